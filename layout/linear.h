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
Linear linear_identity1d(LayoutContext *cx, int64_t size, const char *in,
                         const char *out);   // size 0: the empty layout
Linear linear_strided1d(LayoutContext *cx, int64_t size, int64_t stride, const char *in, const char *out);
Linear linear_zeros1d(LayoutContext *cx, int64_t size, const char *in, const char *out, int64_t out_size);

bool linear_check_dims(LayoutContext *cx, const LinearDim *dims, int count, const char *kind);   // names and bits

// ---- queries ----
int linear_in_bits(Linear a);
int linear_out_bits(Linear a);
int linear_find_in(Linear a, const char *name);   // index, or -1
int linear_find_out(Linear a, const char *name);
int linear_in_shift(Linear a, int in);     // number of input bits before this dim's: index of its first column
int linear_out_shift(Linear a, int out);   // its lowest bit in a column
int64_t linear_basis(Linear a, int in, int bit, int out);
bool linear_equal(Linear a, Linear b);
int linear_rank(Linear a);
bool linear_is_surjective(Linear a);
bool linear_is_injective(Linear a);
bool linear_is_invertible(Linear a);
// The input bits that depend on lower ones, a mask per input dim: the map does not need them.
void linear_free_variables(Linear a, int64_t *masks);
// How many consecutive values of the first input are consecutive values of the first output, whatever the others are.
int64_t linear_consecutive(Linear a);
uint64_t linear_apply_packed(Linear a, uint64_t in);              // flattened input to packed outputs
void linear_apply(Linear a, const int64_t *ins, int64_t *outs);   // one value per dim, in the layout's order

// ---- the algebra ----
Linear linear_multiply(LayoutContext *cx, Linear a, Linear b);   // a is minor; a shared dim gets b's bits above a's
Linear linear_compose(LayoutContext *cx, Linear inner, Linear outer);   // outer(inner(x))
// X with outer(X(i)) = a(i). A dim of both with equal bases is mapped by the identity; the rest is the smallest
// preimage.
Linear linear_invert_and_compose(LayoutContext *cx, Linear a, Linear outer);
Linear linear_solve(LayoutContext *cx, Linear a, Linear outer);   // the same without that rule: smallest preimages
Linear linear_invert(LayoutContext *cx, Linear a);
Linear linear_pseudoinvert(LayoutContext *cx, Linear a);   // smallest preimages; needs surjectivity
Linear linear_flatten_ins(LayoutContext *cx, Linear a);
Linear linear_flatten_outs(LayoutContext *cx, Linear a);
Linear linear_reshape_ins(LayoutContext *cx, Linear a, const LinearDim *dims, int count);
Linear linear_reshape_outs(LayoutContext *cx, Linear a, const LinearDim *dims, int count);
Linear linear_transpose_ins(LayoutContext *cx, Linear a, const char *const *names, int count);
Linear linear_transpose_outs(LayoutContext *cx, Linear a, const char *const *names, int count);
Linear linear_sublayout(LayoutContext *cx, Linear a, const char *const *ins, int in_count, const char *const *outs,
                        int out_count);
bool linear_sublayout_is_zero(LayoutContext *cx, Linear a, const char *const *ins, int in_count,
                              const char *const *outs, int out_count);
bool linear_square_is_identity(LayoutContext *cx, Linear a, const char *const *names, int count);
bool linear_quotient(LayoutContext *cx, Linear a, const char *const *names, int count, Linear *result);
bool linear_divide_left(LayoutContext *cx, Linear a, Linear b, Linear *result);    // a = b * result
bool linear_divide_right(LayoutContext *cx, Linear a, Linear b, Linear *result);   // a = result * b
Linear linear_remove_zero_bases(LayoutContext *cx, Linear a, const char *in);
Linear linear_rename_outs(LayoutContext *cx, Linear a, const char *const *names);   // in order
// Makes each output no larger, or no smaller, than 2^bits[out]: images beyond are cut to 0 (a broadcast); missing bits
// are appended to the first input, outputs in order.
Linear linear_clamp(LayoutContext *cx, Linear a, const int *bits);
Linear linear_grow(LayoutContext *cx, Linear a, const int *bits);

// ---- elimination on words, for the other files of this folder ----
int bits_rank(const uint64_t *vectors, int count);
// Which of the vectors sum up to `wanted`, the first ones where there is a choice; false: it is not in their span.
bool bits_express(const uint64_t *vectors, int count, uint64_t wanted, uint64_t *which);
uint64_t bits_largest(const uint64_t *vectors, int count);                        // of the sums of any of them
uint64_t bits_largest_from(const uint64_t *vectors, int count, uint64_t start);   // of `start` and any of them
// The reduced echelon form whose leading bits are the lowest ones: row i has its lowest bit where no other row has one.
int bits_echelon(uint64_t *vectors, int count);                                     // in place; returns the rank
int bits_nullspace(const uint64_t *vectors, int count, int dim, uint64_t *basis);   // x with v . x = 0 for all v
int bits_intersection(LayoutContext *cx, const uint64_t *a, int a_count, const uint64_t *b, int b_count, int dim,
                      uint64_t *basis);   // of the spans; unit vectors keep a's order
int bits_complement(const uint64_t *vectors, int count, int dim,
                    uint64_t *basis);   // unit vectors that complete a basis
