#include "layout/calculator/tma.h"

enum { MOST_BOX = 256, MOST_PIXELS = 1024, CHUNK_BYTES = 16, ROW_BYTES = 128 };

static bool check_tile(LayoutContext *cx, TmaTile t) {
    int s = t.swizzle_bytes;
    if (t.rank < 1 || t.rank > TMA_MAX_RANK) return layout_refuse(cx, "TMA tiles have rank 1 to %d", TMA_MAX_RANK);
    if (s != 0 && s != 32 && s != 64 && s != 128) return layout_refuse(cx, "a TMA swizzle is 0, 32, 64 or 128 bytes");
    if (t.element_bits != 8 && t.element_bits != 16 && t.element_bits != 32 && t.element_bits != 64)
        return layout_refuse(cx, "TMA elements have 8, 16, 32 or 64 bits");
    for (int d = 0; d < t.rank; d++)
        if (t.extent[d] < 1) return layout_refuse(cx, "extents are at least 1");
    return true;
}

// The largest box extent that divides the tile's.
static int64_t box_extent(int64_t extent, int64_t most) {
    int64_t box = extent < most ? extent : most;
    while (extent % box) box--;
    return box;
}

TmaPlan tma_plan(LayoutContext *cx, TmaTile t) {
    TmaPlan plan = {.copies = 1, .alignment = ROW_BYTES};
    if (!check_tile(cx, t)) return plan;
    int last = t.rank - 1;
    int64_t width = t.swizzle_bytes ? 8LL * t.swizzle_bytes / t.element_bits : MOST_BOX;
    if (t.swizzle_bytes && t.extent[last] % width)
        return layout_refuse(cx, "the contiguous extent %lld is not a multiple of the swizzle's %lld elements",
                             (long long)t.extent[last], (long long)width),
               plan;
    // 1. Boxes; their elements are consecutive, row-major.
    int64_t box_size = 1, stride = 1;
    Cute inner[TMA_MAX_RANK], outer[TMA_MAX_RANK], modes[TMA_MAX_RANK];
    for (int d = last; d >= 0; d--) {
        plan.box[d] = box_extent(t.extent[d], d == last ? width : MOST_BOX);
        plan.boxes[d] = t.extent[d] / plan.box[d];
        plan.copies = layout_mul(cx, plan.copies, plan.boxes[d]);
        inner[d] = cute_leaf(plan.box[d], box_size);
        box_size = layout_mul(cx, box_size, plan.box[d]);
    }
    plan.box_bytes = layout_mul(cx, box_size, t.element_bits) / 8;
    if (plan.box[last] * t.element_bits / 8 % CHUNK_BYTES)
        return layout_refuse(cx, "a box's rows are multiples of %d bytes", CHUNK_BYTES), plan;
    // 2. Boxes in memory: the dims in order, the contiguous one's panels slowest.
    for (int i = 0; i < t.rank; i++) {
        int d = i == last ? last : last - 1 - i;
        outer[d] = cute_leaf(plan.boxes[d], layout_mul(cx, box_size, stride));
        stride = layout_mul(cx, stride, plan.boxes[d]);
    }
    for (int d = 0; d < t.rank; d++) modes[d] = cute_coalesce(cx, cute_tuple(cx, (Cute[]){inner[d], outer[d]}, 2));
    plan.layout.layout = cute_tuple(cx, modes, t.rank);
    // 3. The swizzle permutes blocks of 8 rows of its width: boxes start at their multiples.
    if (t.swizzle_bytes) {
        int bits = __builtin_ctz((unsigned)t.swizzle_bytes / CHUNK_BYTES);
        plan.swizzle_ordinal = bits;
        plan.alignment = 8 * t.swizzle_bytes;
        plan.layout.swizzle = swizzle_recast(cx, (Swizzle){bits, 4, 3}, 8, t.element_bits);
        if (plan.copies > 1 && plan.box_bytes % plan.alignment)
            layout_refuse(cx, "boxes of %lld bytes do not start at multiples of %d", (long long)plan.box_bytes,
                          plan.alignment);
    }
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
                     const int64_t *dilation, int64_t pixels, int64_t channels, int element_bits, int swizzle_bytes) {
    TmaIm2col map = {.spatial = spatial, .pixels = pixels, .channels = channels};
    if (spatial < 1 || spatial > 3) layout_refuse(cx, "im2col has 1 to 3 spatial dims");
    if (pixels < 1 || pixels > MOST_PIXELS || channels < 1 || channels > MOST_BOX)
        layout_refuse(cx, "a copy has up to %d pixels of up to %d channels", MOST_PIXELS, MOST_BOX);
    for (int d = 0; d < spatial && !cx->failed; d++) {
        // The filter's first tap starts `padding` before the tensor; its last base pixel leaves room for the other
        // taps.
        map.lower[d] = -padding[d];
        map.upper[d] = padding[d] - layout_mul(cx, filter[d] - 1, dilation[d]);
    }
    if (!cx->failed) map.plan = tma_plan(cx, (TmaTile){2, {pixels, channels}, element_bits, swizzle_bytes});
    if (!cx->failed && map.plan.boxes[1] > 1) layout_refuse(cx, "the channels of one copy fit the swizzle's width");
    map.plan.box[0] = pixels;   // boxes of rows follow each other, so one copy of all pixels has the same layout
    map.plan.box_bytes *= map.plan.boxes[0];
    map.plan.boxes[0] = map.plan.copies = 1;
    return map;
}
