// The algebra of linear layouts that only the calculator runs, with the semantics of Triton's LinearLayout: one
// dimension, products, quotients, inverses, reshaping.
#pragma once
#include "layout/linear.h"

// ---- one dim ----
Linear linear_identity1d(LayoutContext *cx, int64_t size, const char *in,
                         const char *out);   // size 0: the empty layout
Linear linear_strided1d(LayoutContext *cx, int64_t size, int64_t stride, const char *in, const char *out);
Linear linear_zeros1d(LayoutContext *cx, int64_t size, const char *in, const char *out, int64_t out_size);

// ---- queries ----
int linear_find_out(Linear a, const char *name);
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
