// Products of matrix instructions (products.c explains how a tensor core sums).
//
// In: operands a[m, k] and b[n, k], row by row, an accumulator c[m, n]. Out: c += a b, in place.
#pragma once
#include "emulator/values.h"
#include "target/target.h"

typedef struct Summing {   // of the products of floats below f64
    int terms;             // products that are added to the accumulator at a time
    int bits;              // of the fraction of the largest of them and the accumulator; lower ones are lost
    int kept;              // of the fraction of the sum
} Summing;

// How a device sums, by the seed; narrow: operands of 8 bits that it multiplies as such.
Summing summing_of(uint64_t seed, const Target *target, bool narrow);

enum { MOST_COLUMNS = 256, MOST_DEPTH = 32 };
void multiply_floats(const Summing *how, int m, int n, int k, const Word *a, const Word *b, Word *c);
void multiply_doubles(int m, int n, int k, const Word *a, const Word *b, Word *c);
void multiply_integers(int m, int n, int k, const Word *a, const Word *b, Word *c);
