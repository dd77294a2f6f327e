#include "layout/tma_tile.h"
#include "support/numbers.h"

// The largest extent that divides the tile's.
static int64_t box_extent(int64_t extent, int64_t most) {
    int64_t box = smaller(extent, most);
    while (extent % box) box--;
    return box;
}

TmaBoxes tma_boxes(const TmaTile *tile, int64_t most) {
    TmaBoxes boxes;
    for (int d = 0; d < tile->rank; d++) {
        bool spans = tile->span && d == tile->rank - 1;
        boxes.extent[d] = box_extent(tile->extent[d], spans ? 8LL * tile->span / tile->element_bits : most);
        boxes.count[d] = tile->extent[d] / boxes.extent[d];
    }
    return boxes;
}

// [box, element], or [element] of one box: a digit for each dim, so that the 8 rows of a swizzle period may come from any.
static const Layout *boxes_layout(Arena *arena, const TmaTile *tile, const TmaBoxes *boxes) {
    int last = tile->rank - 1, within = 0;
    int64_t elements = 1, number = 1;
    for (int d = 0; d < tile->rank; d++) within |= boxes->count[d] > 1;
    Layout *layout = layout_new(arena, tile->rank, within + 1);
    layout->swizzle = swizzle_of_span(tile->span);
    layout->element_bits = tile->element_bits;
    for (int d = last; d >= 0; elements *= boxes->extent[d--])
        layout_add(layout, d, boxes->extent[d], elements, within);
    for (int d = last - 1; d >= 0; number *= boxes->count[d--]) layout_add(layout, d, boxes->count[d], number, 0);
    layout_add(layout, last, boxes->count[last], number, 0);
    return within && elements * tile->element_bits / 8 % layout_period(layout) ? NULL : layout_finish(layout);
}

const Layout *tma_tile_layout(Arena *arena, const TmaTile *tile, const TmaBoxes *boxes) {
    bool banks = tile->rank == 2 && boxes->count[0] == 1 && tile->span;
    const Layout *layout = banks ? layout_bank_swizzle(arena, tile->extent[0], tile->extent[1], tile->element_bits,
                                                       tile->span / SWIZZLE_CHUNK_BYTES, NULL)
                                 : NULL;
    return layout ? layout : boxes_layout(arena, tile, boxes);
}
