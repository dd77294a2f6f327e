// How tensor cores sum: the products of a few steps of k and the accumulator are shifted to the exponent of the largest of
// them, lose the bits that this shifts out, and are added exactly; the sum is cut to the accumulator's bits.
//
//     1024 + 2^-10 * 3 + 1, 13 bits of fraction     the unit is 2^(10 - 13), so 2^-10 * 3 counts as 0: 1025
//
// How many steps and how many bits differs by generation: 4, 8, 16 steps and 23, 24, 25 bits from Volta to Blackwell; for
// operands of 8 bits Ada and Hopper have 13 (Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021; Khattak and
// Mikaitis, "Accurate models of NVIDIA tensor cores", 2025). A seed chooses, so a tolerance that holds for one of them
// alone fails with some seed. Whole numbers whose sums have few enough bits are exact with all.
//
// A row of sums is computed at a time, in loops over its columns that compilers vectorize for SSE2, too: without branches or
// conditions, and with floats read as whole numbers from memory. Limit: sums with a term below 2^-100, and those that are not
// finite, are rounded in each step as f32 instead.
#include "emulator/products.h"
#include <string.h>

enum { FRACTION = 23, BIAS = 127 };
static const int32_t EXPONENT = 0x7f800000, LEAST = (BIAS - 100) << FRACTION, END = (BIAS + 127) << FRACTION;

typedef union Bits {
    float f;
    int32_t i;
} Bits;

Summing summing_of(uint64_t seed, const Target *target, bool narrow) {
    Random random = {seed};
    int terms = 4 << random_below(&random, 3), bits = FRACTION + (int)random_below(&random, 3);
    if (!narrow || !target->float8_bits) return (Summing){terms, bits, FRACTION};
    return (Summing){2 * terms, target->float8_bits, target->float8_bits};
}

// The exponents of the largest of `count` terms[p, j] and row[j], as bits of a float; false: some is out of the range of
// this method.
static bool largest_exponents(int n, int count, const Bits *terms, const Bits *row, int32_t *top) {
    int32_t outside = 0;
    for (int j = 0; j < n; j++) top[j] = row[j].i & INT32_MAX;
    for (int p = 0; p < count; p++)
        for (int j = 0; j < n; j++) {
            int32_t size = terms[p * n + j].i & INT32_MAX, larger = -(size > top[j]);
            top[j] ^= (size ^ top[j]) & larger;
        }
    for (int j = 0; j < n; j++) {
        int32_t exponent = top[j] & EXPONENT, none = -(top[j] == 0);
        exponent |= LEAST & none;
        outside |= (exponent - LEAST) | (END - 1 - exponent);
        top[j] = exponent;
    }
    return outside >= 0;
}

// One addition of the tensor core: row[j] += sum over p of left[p] right[p, j].
static void add_terms(const Summing *how, int n, int count, const float *left, const float *right, Bits *row) {
    Bits terms[MOST_DEPTH * MOST_COLUMNS];
    float scale[MOST_COLUMNS];
    int32_t top[MOST_COLUMNS], sum[MOST_COLUMNS];
    for (int p = 0; p < count; p++)
        for (int j = 0; j < n; j++) terms[p * n + j].f = left[p] * right[p * n + j];
    if (!largest_exponents(n, count, terms, row, top)) {
        for (int p = 0; p < count; p++)
            for (int j = 0; j < n; j++) row[j].f += terms[p * n + j].f;
        return;
    }
    for (int j = 0; j < n; j++) {
        Bits inverse = {.i = (int32_t)(((int64_t)(2 * BIAS + how->bits) << FRACTION) - top[j])};   // 1 / unit
        scale[j] = inverse.f;
        sum[j] = (int32_t)(row[j].f * scale[j]);
    }
    for (int p = 0; p < count; p++)
        for (int j = 0; j < n; j++) sum[j] += (int32_t)(terms[p * n + j].f * scale[j]);
    uint64_t lost = ((uint64_t)1 << (52 - how->kept)) - 1;
    for (int j = 0; j < n; j++) {
        Bits unit = {.i = top[j] - (how->bits << FRACTION)};
        double value = (double)sum[j] * (double)unit.f;
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits &= ~lost;
        memcpy(&value, &bits, sizeof bits);
        row[j].f = (float)value;
    }
}

void multiply_floats(const Summing *how, int m, int n, int k, const Word *a, const Word *b, Word *c) {
    float right[MOST_COLUMNS * MOST_DEPTH], left[MOST_DEPTH];
    Bits row[MOST_COLUMNS];
    bool swap = m > n;   // long rows are faster: those of the transposed product
    int rows = swap ? n : m, columns = swap ? m : n, down = swap ? 1 : n, across = swap ? n : 1;
    const Word *of_rows = swap ? b : a, *of_columns = swap ? a : b;
    for (int j = 0; j < columns; j++)
        for (int p = 0; p < k; p++) right[p * columns + j] = (float)of_columns[j * k + p].f;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) row[j].f = (float)c[i * down + j * across].f;
        for (int p = 0; p < k; p++) left[p] = (float)of_rows[i * k + p].f;
        for (int p = 0; p < k; p += how->terms)
            add_terms(how, columns, p + how->terms < k ? how->terms : k - p, left + p, right + p * columns, row);
        for (int j = 0; j < columns; j++) c[i * down + j * across].f = row[j].f;
    }
}

#define MULTIPLY(NAME, TYPE, FIELD)                                                                                    \
    void NAME(int m, int n, int k, const Word *a, const Word *b, Word *c) {                                            \
        TYPE right[MOST_COLUMNS * MOST_DEPTH], row[MOST_COLUMNS];                                                      \
        for (int j = 0; j < n; j++)                                                                                    \
            for (int p = 0; p < k; p++) right[p * n + j] = (TYPE)b[j * k + p].FIELD;                                   \
        for (int i = 0; i < m; i++) {                                                                                  \
            for (int j = 0; j < n; j++) row[j] = (TYPE)c[i * n + j].FIELD;                                             \
            for (int p = 0; p < k; p++) {                                                                              \
                TYPE left = (TYPE)a[i * k + p].FIELD;                                                                  \
                for (int j = 0; j < n; j++) row[j] += left * right[p * n + j];                                         \
            }                                                                                                          \
            for (int j = 0; j < n; j++) c[i * n + j].FIELD = row[j];                                                   \
        }                                                                                                              \
    }
MULTIPLY(multiply_doubles, double, f)
MULTIPLY(multiply_integers, uint64_t, i)
