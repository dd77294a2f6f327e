// Conversions between register layouts, explained (layout/conversion.h).
#pragma once
#include "layout/calculator/conversion.h"

// One line; with `explain` also where each bit of the destination comes from, and the accesses of shared memory.
// Both are linear layouts (register, lane, warp) -> tensor.
char *convert_text(LayoutContext *cx, Linear source, Linear destination, int element_bits, bool explain);
// Of layouts in the compiler's notation, (thread, value) -> tile, for warps of 32.
char *convert_layouts_text(LayoutContext *cx, const char *source, const char *destination, int element_bits,
                           bool explain);
