#include "runtime/scalar.h"
#include "ir/build.h"
#include <math.h>
#include <string.h>

// A binary float below 32 bits: 1 sign bit, `exponent` bits, `mantissa` bits. e4m3 has no infinity: its largest exponent
// holds numbers, but for the one pattern of NaN.
typedef struct SmallFloat {
    int exponent, mantissa;
    bool infinity;
} SmallFloat;

static const SmallFloat *small_float(Type type) {
    static const SmallFloat f16 = {5, 10, true}, bf16 = {8, 7, true}, e4m3 = {4, 3, false}, e5m2 = {5, 2, true};
    return type == TYPE_F16    ? &f16
           : type == TYPE_BF16 ? &bf16
           : type == TYPE_E4M3 ? &e4m3
           : type == TYPE_E5M2 ? &e5m2
                               : NULL;
}

// The bits of a value that the format has exactly (or infinity, NaN).
static unsigned small_encode(const SmallFloat *f, double value) {
    unsigned ones = (1u << f->exponent) - 1, sign = signbit(value) ? 1u << (f->exponent + f->mantissa) : 0;
    int bias = (1 << (f->exponent - 1)) - 1;
    if (isnan(value)) return sign | ones << f->mantissa | (f->infinity ? 1u << (f->mantissa - 1) : (1u << f->mantissa) - 1);
    if (isinf(value)) return sign | ones << f->mantissa | (f->infinity ? 0 : (1u << f->mantissa) - 1);
    if (value == 0) return sign;
    int power;
    frexp(value, &power);   // |value| in [2^(power - 1), 2^power)
    int biased = power - 1 + bias;
    if (biased < 1) return sign | (unsigned)ldexp(fabs(value), f->mantissa + bias - 1);   // subnormal
    double fraction = ldexp(fabs(value), 1 - power) - 1;
    return sign | (unsigned)biased << f->mantissa | (unsigned)ldexp(fraction, f->mantissa);
}

static double small_decode(const SmallFloat *f, unsigned bits) {
    unsigned mantissa = bits & ((1u << f->mantissa) - 1), ones = (1u << f->exponent) - 1;
    unsigned biased = bits >> f->mantissa & ones;
    double sign = bits >> (f->exponent + f->mantissa) & 1 ? -1 : 1;
    int bias = (1 << (f->exponent - 1)) - 1;
    if (biased == ones && f->infinity) return mantissa ? NAN : sign * INFINITY;
    if (biased == ones && mantissa == (1u << f->mantissa) - 1) return NAN;
    if (biased == 0) return sign * ldexp(mantissa, 1 - bias - f->mantissa);
    return sign * ldexp(mantissa + (1u << f->mantissa), (int)biased - bias - f->mantissa);
}

Scalar scalar_integer(Type type, int64_t value) {
    return (Scalar){.type = type, .integer = int_wrap(type, value)};
}

Scalar scalar_real(Type type, double value) {
    return (Scalar){.type = type, .real = float_round(type, value)};
}

double scalar_double(Scalar value) {
    if (type_is_float(value.type)) return value.real;
    return value.type == TYPE_U64 ? (double)(uint64_t)value.integer : (double)value.integer;
}

bool scalar_truth(Scalar value) {
    return type_is_float(value.type) ? value.real != 0 : value.integer != 0;
}

static int64_t saturate(Type type, double value) {
    bool is_signed = type_kind(type) == KIND_INT;
    int bits = type_bits(type);
    double high = ldexp(1, is_signed ? bits - 1 : bits), low = is_signed ? -high : 0;
    if (isnan(value)) return 0;
    if (value >= high) return is_signed ? (int64_t)(UINT64_MAX >> (65 - bits)) : (int64_t)(UINT64_MAX >> (64 - bits));
    if (value <= low) return is_signed ? (int64_t)low : 0;
    return value >= 0x1p63 ? (int64_t)(uint64_t)value : (int64_t)value;
}

Scalar scalar_convert(Type type, Scalar from) {
    if (type == TYPE_BOOL) return (Scalar){.type = type, .integer = scalar_truth(from)};
    if (type_is_float(type)) return scalar_real(type, scalar_double(from));
    if (type_is_float(from.type)) return (Scalar){.type = type, .integer = saturate(type, from.real)};
    return scalar_integer(type, from.integer);
}

void scalar_store(Scalar value, void *memory) {
    if (value.type == TYPE_F64) {
        memcpy(memory, &value.real, sizeof value.real);
    } else if (value.type == TYPE_F32) {
        float single = (float)value.real;
        memcpy(memory, &single, sizeof single);
    } else {
        const SmallFloat *small = small_float(value.type);
        uint64_t bits = small ? small_encode(small, float_round(value.type, value.real)) : (uint64_t)value.integer;
        memcpy(memory, &bits, (size_t)type_bytes(value.type));   // little endian, as every machine with a CUDA driver
    }
}

Scalar scalar_load(Type type, const void *memory) {
    Scalar value = {.type = type};
    if (type == TYPE_F64) {
        memcpy(&value.real, memory, sizeof value.real);
    } else if (type == TYPE_F32) {
        float single;
        memcpy(&single, memory, sizeof single);
        value.real = single;
    } else {
        uint64_t bits = 0;
        memcpy(&bits, memory, (size_t)type_bytes(type));
        const SmallFloat *small = small_float(type);
        if (small) value.real = small_decode(small, (unsigned)bits);
        else value.integer = int_wrap(type, (int64_t)bits);
    }
    return value;
}
