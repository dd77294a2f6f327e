// Tiles of TMA and wgmma in shared memory: the boxes that copy one and the layout that they write, from one description.
//
// The contiguous dim is cut by the swizzle's width into panels, every dim by the extent that a box may have. Boxes follow
// each other in memory, those along the contiguous dim last. In a box rows lie one after the other, and the swizzle
// permutes the 16-byte chunks of 8 rows. So a tile of two dims is TileLang's bank swizzle. (PTX ISA, "Swizzling modes".)
//
// The compiler takes tiles whose rows are one box (passes/select/tma.h); the calculator shows the others too.
#pragma once
#include "layout/layout.h"

enum { TMA_TILE_RANK = 5 };

typedef struct TmaTile {
    int rank;                        // 1 to 5
    int64_t extent[TMA_TILE_RANK];   // row-major: the last dim is contiguous
    int element_bits, span;          // bytes of a swizzled row: 128, 64, 32; 0: no swizzle
} TmaTile;

typedef struct TmaBoxes {
    int64_t extent[TMA_TILE_RANK];   // of one box, in the tile's order (a tensor map lists them reversed)
    int64_t count[TMA_TILE_RANK];    // boxes along each dim
} TmaBoxes;

// Boxes of at most `most` elements along a dim, all alike. Of a swizzled tile a row of a box is one span, if its rows are
// whole spans.
TmaBoxes tma_boxes(const TmaTile *tile, int64_t most);
// Coordinates -> [panel, 8 rows, element] of two dims with a swizzle, [box, element] of others, [element] of one box. NULL: of several boxes one is no whole number of the swizzle's periods.
const Layout *tma_tile_layout(Arena *arena, const TmaTile *tile, const TmaBoxes *boxes);
