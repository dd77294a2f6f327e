// The order of a tile's digits in shared memory that takes the fewest wavefronts, for accesses that are no maps of bits: lanes
// with odd digits, or two sides without common digits. Elements move one by one.
//
// Each side is free of conflicts where its threads lie side by side: such orders come first, then what swaps of two digits
// improve, all counted.
#pragma once
#include "layout/cost.h"
#include "layout/quotient.h"

// tile -> place. Of fragments that cover the tile exactly; lanes with copies of others' elements do not store. NULL: too many
// digits.
const Layout *fewest_by_order(LayoutContext *cx, const Layout *source, const Layout *destination, int element_bytes,
                              int lanes, MemoryShape memory);
