// Arithmetic on sizes; min and max of floats, as the language has them.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 Int128;   // products of two int64_t

static inline int64_t round_up(int64_t n, int64_t to) {   // to a multiple of `to`; n >= 0, to > 0
    return (n + to - 1) / to * to;
}

static inline int64_t ceil_div(int64_t a, int64_t b) {   // a >= 0, b > 0
    return (a + b - 1) / b;
}

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline bool is_power_of_two(int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

// min and max: a NaN, also a signaling one, loses against a number; -0 is less than 0 (IEEE 754-2019, minimumNumber;
// PTX ISA, "min"). C's fmin and fmax leave both open.
static inline double number_min(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}
static inline double number_max(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}
