#include "layout/calculator/tma.h"

enum { MOST_BOX = 256, ALIGNMENT = 128 };   // PTX ISA, "Tensor dimension, size and format"

static bool check_tile(LayoutContext *cx, TmaTile t) {
    int s = t.span;
    if (t.rank < 1 || t.rank > TMA_TILE_RANK) return layout_refuse(cx, "TMA tiles have rank 1 to %d", TMA_TILE_RANK);
    if (s != 0 && s != 32 && s != 64 && s != 128) return layout_refuse(cx, "a TMA swizzle is 0, 32, 64 or 128 bytes");
    if (t.element_bits != 8 && t.element_bits != 16 && t.element_bits != 32 && t.element_bits != 64)
        return layout_refuse(cx, "TMA elements have 8, 16, 32 or 64 bits");
    int64_t bits = t.element_bits, row = 8LL * s / t.element_bits, columns = t.extent[t.rank - 1];
    for (int d = 0; d < t.rank; d++) {
        if (t.extent[d] < 1) return layout_refuse(cx, "extents are at least 1");
        bits = layout_mul(cx, bits, t.extent[d]);
    }
    if (s && columns % row)
        return layout_refuse(cx, "the contiguous extent %lld is not a multiple of the swizzle's %lld elements",
                             (long long)columns, (long long)row);
    return !cx->failed;
}

TmaPlan tma_plan(LayoutContext *cx, TmaTile t) {
    TmaPlan plan = {.copies = 1, .alignment = t.span ? 8 * t.span : ALIGNMENT};
    if (!check_tile(cx, t)) return plan;
    plan.boxes = tma_boxes(&t, MOST_BOX);
    int64_t elements = 1;
    for (int d = 0; d < t.rank; d++) {
        plan.copies *= plan.boxes.count[d];
        elements *= plan.boxes.extent[d];
    }
    plan.box_bytes = elements * t.element_bits / 8;
    plan.swizzle_ordinal = swizzle_of_span(t.span).bits;
    if (plan.boxes.extent[t.rank - 1] * t.element_bits / 8 % SWIZZLE_CHUNK_BYTES)
        return layout_refuse(cx, "a box's rows are multiples of %d bytes", SWIZZLE_CHUNK_BYTES), plan;
    const Layout *layout = tma_tile_layout(cx->arena, &t, &plan.boxes);
    if (!layout)
        layout_refuse(cx, "boxes of %lld bytes do not start at multiples of %d", (long long)plan.box_bytes,
                      plan.alignment);
    plan.layout = swizzled_of_layout(cx, layout);
    return plan;
}

Swizzled tma_k_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes) {
    return tma_plan(cx, (TmaTile){2, {mn, k}, element_bits, swizzle_bytes}).layout;
}

Swizzled tma_mn_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes) {
    Swizzled stored = tma_plan(cx, (TmaTile){2, {k, mn}, element_bits, swizzle_bytes}).layout;
    if (cx->failed) return stored;
    stored.layout = cute_tuple(cx, (Cute[]){stored.layout.modes[1], stored.layout.modes[0]}, 2);
    return stored;
}

TmaIm2col tma_im2col(LayoutContext *cx, int spatial, const int64_t *padding, const int64_t *filter,
                     const int64_t *dilation) {
    TmaIm2col map = {0};
    if (spatial < 1 || spatial > 3) layout_refuse(cx, "im2col has 1 to 3 spatial dims");
    for (int d = 0; d < spatial && !cx->failed; d++) {
        // The filter's first tap starts `padding` before the tensor; its last base pixel leaves room for the other
        // taps.
        map.lower[d] = -padding[d];
        map.upper[d] = padding[d] - layout_mul(cx, filter[d] - 1, dilation[d]);
    }
    return map;
}
