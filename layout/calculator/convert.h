// Conversions between register layouts, explained (layout/calculator/conversion.h).
#pragma once
#include "layout/calculator/conversion.h"
#include "layout/calculator/draw.h"

// Two linear layouts (register, lane, warp) -> tensor; or layouts (thread, value) -> tile of warps of 32, which need not
// be linear.
typedef struct ConvertSides {
    Linear source, destination;
    const Layout *from, *to;   // NULL: `source` and `destination` say it
    bool linear;
    int element_bits;
} ConvertSides;

enum { CONVERT_DRAWINGS = 3 };

ConvertSides convert_sides(LayoutContext *cx, const char *source, const char *destination, int element_bits);
// One line; with `explain` also where each bit of the destination comes from, and the accesses of shared memory.
char *convert_text(LayoutContext *cx, const ConvertSides *sides, bool explain);
// Source, tile in shared memory where the way goes through it, and destination, in the colours of the threads of the
// source. Returns how many.
int convert_draw(LayoutContext *cx, const ConvertSides *sides, Drawing *drawings);
