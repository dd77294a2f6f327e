// Linear layouts: maps between bit vectors that are linear over F2, with the semantics of Triton's LinearLayout.
//
// Inputs and outputs are named, ordered minor to major, and have power-of-two sizes; order and sizes are part of
// equality. The map is given by the images of the input bits (the bases): L(a ^ b) = L(a) ^ L(b).
//
//     {register: [(0,1),(8,0)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)]} -> (dim0: 16, dim1: 8)
//
// In memory an image is one word: the outputs' bits packed side by side, the first output lowest. So the whole layout
// is a bit matrix of up to 62 columns, flattening and reshaping only rename, and composing, inverting and counting
// conflicts are eliminations on words.
//
// Results are in the context's arena; refusals are in the context (layout/context.h). Questions answered with yes or
// no return bool; operations that may have no answer (division, quotient) return false for "there is none".
#pragma once
#include "layout/context.h"

enum { LINEAR_MAX_BITS = 62 };   // of all inputs, and of all outputs, together

typedef struct LinearDim {
    const char *name;
    int bits;   // size 2^bits
} LinearDim;

typedef struct Linear {
    int in_count, out_count;
    const LinearDim *ins, *outs;
    const uint64_t *columns;   // image of each input bit, inputs minor to major
} Linear;

// ---- construction ----
Linear linear_empty(void);
Linear linear_make(LayoutContext *cx, const LinearDim *ins, int in_count, const LinearDim *outs, int out_count,
                   const uint64_t *columns);   // copies; refuses duplicate names and images outside

bool linear_check_dims(LayoutContext *cx, const LinearDim *dims, int count, const char *kind);   // names and bits

// ---- queries ----
int linear_in_bits(Linear a);
int linear_out_bits(Linear a);
int linear_find_in(Linear a, const char *name);   // index, or -1
int linear_in_shift(Linear a, int in);            // number of input bits before this dim's: index of its first column
int linear_out_shift(Linear a, int out);          // its lowest bit in a column

// ---- dims by name ----
int linear_find(const LinearDim *dims, int count, const char *name);   // index, or -1
Linear linear_reshape(LayoutContext *cx, Linear a, const LinearDim *ins, int in_count, const LinearDim *outs,
                      int out_count);   // the same columns
// In these orders; NULL: as they are.
Linear linear_transpose(LayoutContext *cx, Linear a, const char *const *ins, int in_count, const char *const *outs,
                        int out_count);
// Of the given inputs and outputs only, in the given orders.
Linear linear_gather(LayoutContext *cx, Linear a, const int *ins, int in_count, const int *outs, int out_count);
// Moves each output's bits in a column to a new place; a negative place drops them.
uint64_t linear_move_fields(Linear a, uint64_t column, const int *places);
static inline uint64_t linear_mask(int bits) {
    return ((uint64_t)1 << bits) - 1;
}

// ---- elimination on words, for the other files of this folder ----
int bits_rank(const uint64_t *vectors, int count);
// Which of the vectors sum up to `wanted`, the first ones where there is a choice; false: it is not in their span.
bool bits_express(const uint64_t *vectors, int count, uint64_t wanted, uint64_t *which);
uint64_t bits_largest(const uint64_t *vectors, int count);                        // of the sums of any of them
uint64_t bits_largest_from(const uint64_t *vectors, int count, uint64_t start);   // of `start` and any of them
// The reduced echelon form whose leading bits are the lowest ones: row i has its lowest bit where no other row has one.
int bits_echelon(uint64_t *vectors, int count);   // in place; returns the rank
int bits_intersection(const uint64_t *a, int a_count, const uint64_t *b, int b_count,
                      uint64_t *basis);   // of the spans; unit vectors keep a's order
int bits_complement(const uint64_t *vectors, int count, int dim,
                    uint64_t *basis);   // unit vectors that complete a basis
