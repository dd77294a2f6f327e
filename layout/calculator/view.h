// Views of tensors whose extents and strides may be known now or only at run time.
//
// A dim is a known integer or a product with named run-time factors, `64*K`. A view has a shape, strides and an offset
// (a sum of dims); sub-tiles keep the parent's strides, and everything known stays known: tiling a run-time tensor by
// known sizes gives known extents. When all is known, a view is a shape:stride layout.
//
//     c = row_major(M, N)                            (M,N):(N,1)
//     t = tile(c, (128, 64), (bm, bn))               (128,64):(N,1) + 128*N*bm + 64*bn
//     vectorize(t, (1, 2)), distribute over (8,4)    (16,8):(8*N,8) + ...
#pragma once
#include "layout/calculator/cute.h"

enum { VIEW_MAX_RANK = 8, DIM_MAX_FACTORS = 8 };

typedef struct Dim {
    int64_t factor;
    int count;                            // of run-time factors; 0: the dim is known
    const char *names[DIM_MAX_FACTORS];   // sorted
} Dim;

static inline Dim dim_known(int64_t value) {
    return (Dim){.factor = value};
}
static inline bool dim_is_known(Dim d) {
    return d.count == 0 || d.factor == 0;
}
Dim dim_named(const char *name);
Dim dim_mul(LayoutContext *cx, Dim a, Dim b);
bool dim_divides(Dim a, int64_t divisor, Dim *quotient);       // provably, whatever the names are
Dim dim_ceil_div(LayoutContext *cx, Dim a, int64_t divisor);   // a new name, `ceildiv(M,64)`, when it must be
bool dim_equal(Dim a, Dim b);
void dim_print(StrBuf *out, Dim d);

typedef struct View {
    int rank;
    Dim shape[VIEW_MAX_RANK], stride[VIEW_MAX_RANK];
    int64_t element[VIEW_MAX_RANK];   // extents of one element: 1, or what vectorize has taken in
    int terms;                        // of the offset
    Dim offset[4 * VIEW_MAX_RANK];
} View;

View view_row_major(LayoutContext *cx, const Dim *shape, int rank);
View view_strided(LayoutContext *cx, const Dim *shape, const Dim *stride, int rank);
// The tile at `coords` of a tiling by known sizes: extents `sizes`, the parent's strides.
View view_tile(LayoutContext *cx, View v, const int64_t *sizes, const Dim *coords);
// The same places with strides that are known: refused where a known stride differs.
View view_with_strides(LayoutContext *cx, View v, const int64_t *strides);
// Groups sizes[d] elements of each dim into one: needs known, divisible extents.
View view_vectorize(LayoutContext *cx, View v, const int64_t *sizes);
// The elements of thread `thread` of a row-major grid of threads: every threads[d]-th of dim d. *coords (may be NULL)
// are its first coordinates.
View view_distribute(LayoutContext *cx, View v, const int64_t *threads, const char *thread, Dim *coords);
// Another shape of the same elements: refused unless the view is dense row-major and the sizes agree, extents of 1
// aside.
View view_reshape(LayoutContext *cx, View v, const Dim *shape, int rank);
Cute view_layout(LayoutContext *cx, View v);   // refused while anything but the offset is unknown
void view_print(StrBuf *out, View v);
