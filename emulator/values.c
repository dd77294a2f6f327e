// Loads, stores and conversions of all types, and random numbers.
//
// Rounding is float_round's (ir/build.h), so that folded constants and executed code agree. bf16 and f16 are frequent
// enough for a short way that gives the same bits (a unit test compares them for every halfway case).
#include "emulator/values.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

// A binary float format below f32: explicit mantissa bits and exponent bias.
typedef struct Format {
    int mantissa, bias, bits;
} Format;

static Format format_of(Type type) {
    switch (type) {
    case TYPE_F16: return (Format){10, 15, 16};
    case TYPE_BF16: return (Format){7, 127, 16};
    case TYPE_E4M3: return (Format){3, 7, 8};
    default: return (Format){2, 15, 8};
    }
}

// ---- small floats to doubles ----
static double from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static double from_f16(uint16_t bits) {
    if ((bits & 0x7c00) == 0x7c00) return bits & 0x3ff ? NAN : bits >> 15 ? -INFINITY : INFINITY;
    uint32_t wide = (uint32_t)(bits & 0x7fff) << 13;   // right digits, exponent 112 too low
    float value;
    memcpy(&value, &wide, sizeof value);
    value *= 0x1p112f;
    return bits >> 15 ? -value : value;
}

static double from_fp8(Type type, uint8_t bits) {
    Format format = format_of(type);
    int fraction = bits & ((1 << format.mantissa) - 1), exponent = (bits & 0x7f) >> format.mantissa;
    double value;
    if (type == TYPE_E4M3 && (bits & 0x7f) == 0x7f) value = NAN;
    else if (type == TYPE_E5M2 && exponent == 31) value = fraction ? NAN : INFINITY;
    else if (exponent == 0) value = ldexp(fraction, 1 - format.bias - format.mantissa);
    else value = ldexp(fraction + (1 << format.mantissa), exponent - format.bias - format.mantissa);
    return bits >> 7 ? -value : value;
}

// ---- doubles to small floats ----

// Bits of a value that the format holds exactly (float_round's result), or of a NaN or infinity.
static uint32_t encode_exact(Type type, double value) {
    Format format = format_of(type);
    uint32_t sign = signbit(value) ? 1u << (format.bits - 1) : 0, most = (1u << (format.bits - 1)) - 1;
    if (isnan(value)) return most;
    value = fabs(value);
    if (value == 0) return sign;
    if (isinf(value)) return sign | (most >> format.mantissa << format.mantissa);
    int exponent;
    double fraction = frexp(value, &exponent);   // in [0.5, 1)
    exponent += format.bias - 1;
    if (exponent <= 0) return sign | (uint32_t)ldexp(value, format.bias - 1 + format.mantissa);
    uint32_t digits = (uint32_t)ldexp(fraction, format.mantissa + 1) - (1u << format.mantissa);
    return sign | (uint32_t)exponent << format.mantissa | digits;
}

// float_round for the two frequent formats, on the bits of an f32; only where the value is one.
static bool round_quick(Type type, float value, double *out) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000) return false;
    if (type == TYPE_F16 && (value >= 65520 || value <= -65520)) return false;
    int drop = type == TYPE_BF16 ? 16 : 13;
    if (type == TYPE_F16 && (bits & 0x7fffffff) < 0x38800000) {   // below 2^-14: multiples of 2^-24, the unit of 0.75f
        volatile float shifted = value + 0.75f;
        float rounded = shifted - 0.75f;
        *out = copysign(rounded, value);
        return true;
    }
    bits += ((uint32_t)1 << (drop - 1)) - 1 + (bits >> drop & 1);
    bits &= ~(((uint32_t)1 << drop) - 1);
    memcpy(&value, &bits, sizeof value);
    *out = value;
    return true;
}

static double round_to(Type type, double value) {
    double out;
    if ((type == TYPE_BF16 || type == TYPE_F16) && (float)value == value && round_quick(type, (float)value, &out))
        return out;
    return float_round(type, value);
}

static uint32_t encode(Type type, double value) {
    float narrow = (float)value;
    if (type != TYPE_BF16 || narrow != value) return encode_exact(type, round_to(type, value));
    uint32_t bits;   // an f32: to nearest even on its bits
    memcpy(&bits, &narrow, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// ---- one element ----
Word element_load(Type type, const void *place) {
    Word word;
    elements_load(type, place, 1, 1, &word);
    return word;
}

void element_store(Type type, void *place, Word value) {
    elements_store(type, place, 1, 1, &value);
}

// ---- many elements: one switch, then a loop ----
#define LOAD_AS(CType, FIELD, VALUE)                                                                                   \
    for (int64_t n = 0; n < count; n++) {                                                                              \
        CType x;                                                                                                       \
        memcpy(&x, base + n * stride * (int64_t)sizeof x, sizeof x);                                                   \
        out[n].FIELD = (VALUE);                                                                                        \
    }                                                                                                                  \
    return

void elements_load(Type type, const uint8_t *base, int64_t stride, int64_t count, Word *out) {
    switch (type) {
    case TYPE_BOOL: LOAD_AS(uint8_t, i, x != 0);
    case TYPE_I8: LOAD_AS(int8_t, i, x);
    case TYPE_I16: LOAD_AS(int16_t, i, x);
    case TYPE_I32: LOAD_AS(int32_t, i, x);
    case TYPE_U8: LOAD_AS(uint8_t, i, x);
    case TYPE_U16: LOAD_AS(uint16_t, i, x);
    case TYPE_U32: LOAD_AS(uint32_t, i, x);
    case TYPE_F16: LOAD_AS(uint16_t, f, from_f16(x));
    case TYPE_BF16: LOAD_AS(uint16_t, f, from_bf16(x));
    case TYPE_F32: LOAD_AS(float, f, x);
    case TYPE_F64: LOAD_AS(double, f, x);
    case TYPE_E4M3: LOAD_AS(uint8_t, f, from_fp8(TYPE_E4M3, x));
    case TYPE_E5M2: LOAD_AS(uint8_t, f, from_fp8(TYPE_E5M2, x));
    default: LOAD_AS(int64_t, i, x);
    }
}

#define STORE_AS(CType, VALUE)                                                                                         \
    for (int64_t n = 0; n < count; n++) {                                                                              \
        CType x = (CType)(VALUE);                                                                                      \
        memcpy(base + n * stride * (int64_t)sizeof x, &x, sizeof x);                                                   \
    }                                                                                                                  \
    return

void elements_store(Type type, uint8_t *base, int64_t stride, int64_t count, const Word *in) {
    switch (type) {
    case TYPE_BOOL: STORE_AS(uint8_t, in[n].i != 0);
    case TYPE_I8:
    case TYPE_U8: STORE_AS(uint8_t, in[n].i);
    case TYPE_I16:
    case TYPE_U16: STORE_AS(uint16_t, in[n].i);
    case TYPE_I32:
    case TYPE_U32: STORE_AS(uint32_t, in[n].i);
    case TYPE_F16:
    case TYPE_BF16: STORE_AS(uint16_t, encode(type, in[n].f));
    case TYPE_F32: STORE_AS(float, in[n].f);
    case TYPE_F64: STORE_AS(double, in[n].f);
    case TYPE_E4M3:
    case TYPE_E5M2: STORE_AS(uint8_t, encode(type, in[n].f));
    default: STORE_AS(int64_t, in[n].i);
    }
}

// ---- elements of lanes ----
#define GATHER_AS(CType, FIELD, VALUE)                                                                                 \
    for (; mask; mask &= mask - 1) {                                                                                   \
        int l = __builtin_ctz(mask);                                                                                   \
        CType x;                                                                                                       \
        memcpy(&x, base + offsets[l] * (int64_t)sizeof x, sizeof x);                                                   \
        out[l].FIELD = (VALUE);                                                                                        \
    }                                                                                                                  \
    return

void elements_gather(Type type, const uint8_t *base, const int64_t *offsets, uint32_t mask, Word *out) {
    switch (type) {
    case TYPE_F16: GATHER_AS(uint16_t, f, from_f16(x));
    case TYPE_BF16: GATHER_AS(uint16_t, f, from_bf16(x));
    case TYPE_F32: GATHER_AS(float, f, x);
    case TYPE_F64: GATHER_AS(double, f, x);
    case TYPE_I32: GATHER_AS(int32_t, i, x);
    default: break;
    }
    int64_t bytes = type_bytes(type);
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        elements_load(type, base + offsets[l] * bytes, 1, 1, &out[l]);
    }
}

void elements_scatter(Type type, uint8_t *base, const int64_t *offsets, uint32_t mask, const Word *in) {
    int64_t bytes = type_bytes(type);
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        elements_store(type, base + offsets[l] * bytes, 1, 1, &in[l]);
    }
}

// ---- conversions ----
static int64_t to_int(Type to, double value) {
    if (isnan(value)) return 0;
    int bits = type_bits(to);
    bool is_signed = type_kind(to) == KIND_INT;
    double end = ldexp(1, is_signed ? bits - 1 : bits);   // one past the largest value
    int64_t largest = is_signed ? INT64_MAX >> (64 - bits) : (int64_t)(UINT64_MAX >> (64 - bits));
    if (value >= end) return largest;
    if (is_signed) return value <= -end ? -largest - 1 : (int64_t)value;
    return value <= 0 ? 0 : (int64_t)(uint64_t)value;
}

static double from_int(Type to, Type from, int64_t value) {
    double wide = from == TYPE_U64 ? (double)(uint64_t)value : (double)value;
    if (to == TYPE_F64) return wide;
    if (to == TYPE_F32) return from == TYPE_U64 ? (float)(uint64_t)value : (float)value;
    return float_round(to, wide);
}

Word word_convert(Type to, Type from, Word value) {
    bool from_float = type_is_float(from);
    if (to == TYPE_BOOL) return (Word){.i = from_float ? value.f != 0 : value.i != 0};
    if (type_is_float(to)) {
        if (!from_float) return (Word){.f = from_int(to, from, value.i)};
        if (to == TYPE_F64 || to == from) return value;
        if (to == TYPE_F32) return (Word){.f = (float)value.f};
        return (Word){.f = round_to(to, value.f)};
    }
    return (Word){.i = from_float ? to_int(to, value.f) : int_wrap(to, value.i)};
}

void words_convert(Type to, Type from, int64_t count, Word *words) {
    if (to == from || (type_is_float(from) && to == TYPE_F64)) return;
    if (type_is_float(from) && to == TYPE_F32) {
        for (int64_t n = 0; n < count; n++) words[n].f = (float)words[n].f;
        return;
    }
    for (int64_t n = 0; n < count; n++) words[n] = word_convert(to, from, words[n]);
}

double to_tf32(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&narrow, &bits, sizeof narrow);
    return narrow;
}

double cut_to_tf32(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) bits &= ~(uint32_t)0x1fff;
    memcpy(&narrow, &bits, sizeof narrow);
    return narrow;
}

const char *word_text(Arena *arena, Type type, Word value) {
    if (type_is_float(type)) return arena_printf(arena, "%.9g", value.f);
    if (type == TYPE_BOOL) return value.i ? "true" : "false";
    if (type == TYPE_U64) return arena_printf(arena, "%" PRIu64, (uint64_t)value.i);
    return arena_printf(arena, "%" PRId64, value.i);
}

// ---- random numbers: splitmix64 ----
uint64_t random_next(Random *random) {
    uint64_t x = random->state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

double random_normal(Random *random) {
    double u = (double)((random_next(random) >> 11) + 1) * 0x1p-53;   // in (0, 1]
    double v = (double)(random_next(random) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}
