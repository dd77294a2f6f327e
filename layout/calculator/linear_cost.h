// What an access costs (layout/cost.h), from a linear layout: by ranks, exact and without enumerating.
#pragma once
#include "layout/cost.h"
#include "layout/linear.h"

// `conversion` maps (register, lane, ...) to an offset of elements, its first output; the first `width` registers (a
// power of two) are moved at once and are consecutive. The cost is the same for every such access of every warp.
SharedCost shared_cost_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width,
                              MemoryShape memory);
int64_t sectors_linear(LayoutContext *cx, Linear conversion, int element_bits, int64_t width, MemoryShape memory);
// Consecutive registers at consecutive, aligned offsets; `most` elements at the most.
int64_t vector_width_linear(Linear conversion, int64_t most);
