// What an access costs, beyond layout/cost.h: sectors of global memory; and from a linear layout, by ranks, exact and
// without enumerating.
#pragma once
#include "layout/calculator/linear_algebra.h"
#include "layout/cost.h"

// `conversion` maps (register, lane, ...) to an offset of elements, its first output; the first `width` registers (a
// power of two) are moved at once and are consecutive. The cost is the same for every such access of every warp.
SharedCost shared_cost_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width,
                              MemoryShape memory);
int64_t sectors_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width, MemoryShape memory);
// Consecutive registers at consecutive, aligned offsets; `most` elements at the most.
int64_t vector_width_linear(Linear conversion, int64_t most);
// Of lanes with these byte addresses, each moving `bytes`; those with a negative address are inactive.
int64_t sectors_counted(LayoutContext *cx, const int64_t *addresses, int lanes, int bytes, MemoryShape memory);
