// Shape:stride layouts with the semantics of CuTe's C++ headers.
//
// A layout maps a coordinate to an offset: the sum of coordinate times stride over its modes. Shape and stride are
// nested tuples of one profile, so one tree holds both: a layout is a leaf `shape:stride`, or a tuple of layouts, its
// modes.
//
//     ((4,8),2):((32,1),16)    is the tuple of  (4:32, 8:1)  and  2:16
//
// Coordinates count leftmost fastest (column-major): coordinate 5 of (4,8) is (1,1). An integer may stand for the
// coordinate of any mode, and the last mode of a tuple does not wrap: layouts are functions beyond their size, too.
//
// Results are in the context's arena and immutable. A refusal is in the context (layout/context.h); the value returned
// then means nothing. Extents are at least 1, strides at least 0, sizes and offsets at most 2^62.
#pragma once
#include "layout/calculator/tuple.h"

typedef struct Cute {
    int rank;                   // CUTE_LEAF, or the number of modes
    int64_t shape, stride;      // of a leaf
    const struct Cute *modes;   // of a tuple
} Cute;

enum { CUTE_LEAF = -1 };

// ---- construction, text ----
static inline Cute cute_leaf(int64_t shape, int64_t stride) {
    return (Cute){.rank = CUTE_LEAF, .shape = shape, .stride = stride};
}
Cute cute_tuple(LayoutContext *cx, const Cute *modes, int count);    // copies the modes
Cute cute_make(LayoutContext *cx, Tuple shape, Tuple stride);        // refuses what is not congruent
Cute cute_column_major(LayoutContext *cx, Tuple shape);              // compact, leftmost fastest: make_layout(shape)
Cute cute_row_major(LayoutContext *cx, Tuple shape);                 // compact, rightmost fastest
Cute cute_with_shape(LayoutContext *cx, Cute layout, Tuple shape);   // same map under another shape of the same size
Cute cute_parse(LayoutContext *cx, const char *text);                // "shape:stride", the whole text
Cute cute_scan(Scan *scan);
void cute_print(StrBuf *out, Cute layout);
char *cute_text(Arena *arena, Cute layout);

// ---- queries ----
static inline int cute_rank(Cute a) {   // of the top level; a leaf is its own single mode
    return a.rank == CUTE_LEAF ? 1 : a.rank;
}
static inline Cute cute_mode(Cute a, int mode) {
    return a.rank == CUTE_LEAF ? a : a.modes[mode];
}
int64_t cute_size(LayoutContext *cx, Cute a);     // of the domain
int64_t cute_cosize(LayoutContext *cx, Cute a);   // 1 + the largest offset
Tuple cute_shape(LayoutContext *cx, Cute a);
Tuple cute_stride(LayoutContext *cx, Cute a);
bool cute_equal(Cute a, Cute b);          // same profile, shapes and strides
bool cute_equal_masked(Cute a, Cute b);   // the same, but strides of extent-1 modes do not count
// Do no two coordinates share an offset? Decided by sorting strides where that decides, else by enumeration (refused
// above 2^24 coordinates).
bool cute_injective(LayoutContext *cx, Cute a);

int64_t cute_at(Cute a, int64_t index);   // offset of a linear coordinate >= 0, unchecked
int64_t cute_crd2idx(LayoutContext *cx, Cute a, Tuple coord);
Tuple cute_idx2crd(LayoutContext *cx, Tuple shape, Tuple index);
// The sub-layout of the modes where `coord` has `_`; the rest of the coordinate gives *offset.
Cute cute_slice(LayoutContext *cx, Cute a, Tuple coord, int64_t *offset);

// ---- normal forms ----
Cute cute_flatten(LayoutContext *cx, Cute a);
Cute cute_coalesce(LayoutContext *cx, Cute a);                     // fewest modes with the same map on the domain
Cute cute_coalesce_by(LayoutContext *cx, Cute a, Tuple profile);   // coalesces each mode the profile names
Cute cute_filter(LayoutContext *cx, Cute a);                       // drops stride-0 modes, then coalesces
Cute cute_filter_by(LayoutContext *cx, Cute a, Tuple profile);

// ---- the algebra ----
// A tiler says what to do to a mode: a layout, `_` (nothing), or a tuple of tilers for the modes of a tuple. Text: an
// integer n is n:1; `<a;b;...>` or `(4,8)` is a tuple.
typedef struct Tiler {
    enum { TILER_LAYOUT, TILER_ANY, TILER_TUPLE } kind;
    Cute layout;
    bool is_integer;   // the layout was given as an integer
    int count;
    const struct Tiler *items;
} Tiler;

static inline Tiler tiler_layout(Cute layout) {
    return (Tiler){.kind = TILER_LAYOUT, .layout = layout};
}
Tiler tiler_tuple(LayoutContext *cx, const Tiler *items, int count);
Tiler tiler_of_shape(LayoutContext *cx, Tuple shape);
Tiler tiler_parse(LayoutContext *cx, const char *text);
Tiler tiler_scan(Scan *scan);

Cute cute_composition(LayoutContext *cx, Cute a, Cute b);          // a o b; refused where no shape:stride is that map
Cute cute_complement(LayoutContext *cx, Cute a, Tuple cotarget);   // the offsets a misses, up to cotarget
Cute cute_right_inverse(LayoutContext *cx, Cute a);                // a(r(i)) = i
Cute cute_left_inverse(LayoutContext *cx, Cute a);                 // a(l(a(i))) = a(i); l(a(i)) = i iff a is injective

Cute cute_compose_tiler(LayoutContext *cx, Cute a, Tiler tiler);     // by mode; modes beyond the tiler are dropped
Cute cute_logical_divide(LayoutContext *cx, Cute a, Tiler tiler);    // each mode becomes (tile, rest)
Cute cute_zipped_divide(LayoutContext *cx, Cute a, Tiler tiler);     // ((tiles), (rests))
Cute cute_tiled_divide(LayoutContext *cx, Cute a, Tiler tiler);      // ((tiles), rest, rest, ...)
Cute cute_flat_divide(LayoutContext *cx, Cute a, Tiler tiler);       // (tile, tile, ..., rest, rest, ...)
Cute cute_logical_product(LayoutContext *cx, Cute a, Tiler tiler);   // each mode becomes (block, repetitions)
Cute cute_zipped_product(LayoutContext *cx, Cute a, Tiler tiler);
Cute cute_tiled_product(LayoutContext *cx, Cute a, Tiler tiler);
Cute cute_flat_product(LayoutContext *cx, Cute a, Tiler tiler);
Cute cute_blocked_product(LayoutContext *cx, Cute block, Cute tiler);   // blocks side by side
Cute cute_raked_product(LayoutContext *cx, Cute block, Cute tiler);     // blocks interleaved
