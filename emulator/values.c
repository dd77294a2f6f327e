// Loads, stores and conversions of all types, and random numbers.
//
// Rounding gives the bits of float_round (ir/build.h), so that folded constants and executed code agree: a unit test
// compares the two for every halfway case. It is written on the bits of doubles here, because it is executed so often.
#include "emulator/values.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

// A binary float format below f32.
typedef struct Format {
    int mantissa, bias, bits;   // explicit mantissa bits
    double largest;
    bool saturates;   // finite values beyond `largest` become it, not infinity
} Format;

static inline Format format_of(Type type) {
    switch (type) {
    case TYPE_F16: return (Format){10, 15, 16, 65504, false};
    case TYPE_BF16: return (Format){7, 127, 16, 0x1.fep127, false};
    case TYPE_E4M3: return (Format){3, 7, 8, 448, true};
    default: return (Format){2, 15, 8, 57344, true};
    }
}

static inline double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

enum { DOUBLE_DIGITS = 52, DOUBLE_BIAS = 1023 };

static inline double power_of_2(int exponent) {   // of a normal double
    return double_of((uint64_t)(DOUBLE_BIAS + exponent) << DOUBLE_DIGITS);
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

static inline double from_fp8(Type type, uint8_t bits) {
    bool e4m3 = type == TYPE_E4M3;
    int rest = bits & 0x7f;
    uint32_t wide = (uint32_t)rest << (e4m3 ? 20 : 21);   // right digits, exponent 120 or 112 too low
    float value;
    memcpy(&value, &wide, sizeof value);
    value *= e4m3 ? 0x1p120f : 0x1p112f;
    if (e4m3 ? rest == 0x7f : rest > 0x7c) value = NAN;
    else if (!e4m3 && rest == 0x7c) value = INFINITY;
    return bits >> 7 ? -value : value;
}

// ---- doubles to small floats ----

static inline bool has_infinity(Format format) {
    return format.mantissa != 3;   // of all but e4m3
}

// To nearest, ties to even; infinities stay. Below the normal numbers all are multiples of one unit, which is the last
// digit of `shift`.
static inline double round_format(Format format, double value) {
    if (isnan(value) || (isinf(value) && has_infinity(format))) return value;
    double size = fabs(value), rounded;
    int least = 1 - format.bias, drop = DOUBLE_DIGITS - format.mantissa;
    if (size < power_of_2(least)) {
        double shift = power_of_2(least + drop);
        rounded = (size + shift) - shift;
    } else {
        uint64_t bits = bits_of(size);
        bits += ((uint64_t)1 << (drop - 1)) - 1 + (bits >> drop & 1);
        rounded = double_of(bits >> drop << drop);
    }
    if (rounded > format.largest) rounded = format.saturates ? format.largest : INFINITY;
    return copysign(rounded, value);
}

static inline uint32_t encode_format(Format format, double value) {
    uint32_t sign = signbit(value) ? 1u << (format.bits - 1) : 0, most = (1u << (format.bits - 1)) - 1;
    if (isnan(value)) return most;
    double size = fabs(round_format(format, value));
    if (isinf(size)) return sign | (most >> format.mantissa << format.mantissa);
    if (size < power_of_2(1 - format.bias))
        return sign | (uint32_t)(size * power_of_2(format.bias - 1 + format.mantissa));
    uint64_t digits = bits_of(size) >> (DOUBLE_DIGITS - format.mantissa);
    return sign | (uint32_t)(digits - ((uint64_t)(DOUBLE_BIAS - format.bias) << format.mantissa));
}

static double round_to(Type type, double value) {
    switch (type) {
    case TYPE_F16: return round_format(format_of(TYPE_F16), value);
    case TYPE_BF16: return round_format(format_of(TYPE_BF16), value);
    case TYPE_E4M3: return round_format(format_of(TYPE_E4M3), value);
    case TYPE_E5M2: return round_format(format_of(TYPE_E5M2), value);
    default: return float_round(type, value);
    }
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
    case TYPE_F16: STORE_AS(uint16_t, encode_format(format_of(TYPE_F16), in[n].f));
    case TYPE_BF16: STORE_AS(uint16_t, encode_format(format_of(TYPE_BF16), in[n].f));
    case TYPE_F32: STORE_AS(float, in[n].f);
    case TYPE_F64: STORE_AS(double, in[n].f);
    case TYPE_E4M3: STORE_AS(uint8_t, encode_format(format_of(TYPE_E4M3), in[n].f));
    case TYPE_E5M2: STORE_AS(uint8_t, encode_format(format_of(TYPE_E5M2), in[n].f));
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
    case TYPE_E4M3: GATHER_AS(uint8_t, f, from_fp8(TYPE_E4M3, x));
    case TYPE_E5M2: GATHER_AS(uint8_t, f, from_fp8(TYPE_E5M2, x));
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
    if (to == TYPE_F32) return from == TYPE_U64 ? (float)(uint64_t)value : (float)value;   // the same, faster
    return float_from_int(to, from, value);
}

Word word_convert(Type to, Type from, Word value) {
    bool from_float = type_is_float(from);
    if (to == TYPE_BOOL) return (Word){.i = from_float ? value.f != 0 : value.i != 0};
    if (type_is_float(to)) {
        if (!from_float) return (Word){.f = from_int(to, from, value.i)};
        if (to == TYPE_F64 || to == from) return value;
        if (to == TYPE_F32) return (Word){.f = (float)value.f};
        if (to == TYPE_E5M2 && isinf(value.f)) return (Word){.f = copysign(format_of(to).largest, value.f)};
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
