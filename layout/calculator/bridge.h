// Between the calculator's notations: nested shape:stride with a swizzle, and linear over F2.
//
// The bridge converts exactly when both sides are the same map, and otherwise gives the reason. A shape:stride layout
// is linear iff every extent is a power of two and no addition of its strides carries: adding is then the same as
// XORing. A linear layout is shape:stride iff no two input bits flip the same output bit; with a swizzle Sw<B,M,S> in
// front, iff undoing some Sw makes it so, which is searched exhaustively.
#pragma once
#include "layout/calculator/linear_algebra.h"
#include "layout/calculator/swizzled.h"

// The offset as a linear function of the top-level modes, named ins[0], ins[1], ...; the output is `out`, its size the
// smallest power of two that holds all offsets.
Linear linear_from_swizzled(LayoutContext *cx, Swizzled a, const char *const *ins, const char *out);
// A thread-value layout over a tile: (thread, value) -> offset in the column-major tile, as (lane, register) -> dim0,
// dim1... `ins` names the two modes; outputs are the tile's modes. Refused unless tile extents are powers of two.
Linear linear_from_tv(LayoutContext *cx, Cute tv, Tuple tile, const char *const *ins);

// One mode per input, offsets in the outputs' flattened order (the first output fastest). The simplest swizzle that
// does.
Swizzled swizzled_from_linear(LayoutContext *cx, Linear a);
