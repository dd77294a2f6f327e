// Elements in memory and values in registers.
//
// A value of any type is a Word: floats (of every width) are doubles that lie on the type's grid, integers are sign- or
// zero-extended, bool is 0 or 1. Memory holds the element's own bits.
#pragma once
#include "ir/build.h"
#include "support/numbers.h"

typedef union Word {
    int64_t i;
    double f;
} Word;

Word element_load(Type type, const void *place);
void element_store(Type type, void *place, Word value);   // a float is rounded to the type first
Word word_convert(Type to, Type from, Word value);        // T(x): to integer toward zero and saturating

double to_tf32(double value);       // an f32 with 10 bits of mantissa, rounded (cvt.rna, but for ties; TMA)
double cut_to_tf32(double value);   // as wgmma reads an f32: it leaves the other bits out (so measured on an H200)

// `count` elements, `stride` elements apart.
void elements_load(Type type, const uint8_t *base, int64_t stride, int64_t count, Word *out);
void elements_store(Type type, uint8_t *base, int64_t stride, int64_t count, const Word *in);
// The elements at `offsets` of the lanes in `mask`.
void elements_gather(Type type, const uint8_t *base, const int64_t *offsets, uint32_t mask, Word *out);
void elements_scatter(Type type, uint8_t *base, const int64_t *offsets, uint32_t mask, const Word *in);
void words_convert(Type to, Type from, int64_t count, Word *words);   // in place
const char *word_text(Arena *arena, Type type, Word value);

// Random numbers of tests and schedules: a stream for each seed.
typedef struct Random {
    uint64_t state;
} Random;
uint64_t random_next(Random *random);
double random_normal(Random *random);   // N(0, 1)
static inline uint32_t random_below(Random *random, uint32_t bound) {
    return (uint32_t)((random_next(random) >> 32) * bound >> 32);
}
