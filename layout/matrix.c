#include "layout/matrix.h"
#include <inttypes.h>

static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7"};

// Appends the images of an input's bits; those of the last output, under the swizzle. `taken`: output bits in use, of
// which a second use would carry. Digits may end before a power of two.
static void images_of_digits(LayoutContext *cx, const Layout *a, int input, int64_t *taken, LayoutBits *bits,
                             int *bit) {
    Swizzle s = layout_swizzle(a);
    for (int d = 0; d < a->in[input].count && !cx->failed; d++) {
        LayoutMode mode = a->in[input].modes[d];
        int64_t step = mode.stride;
        for (int left = log2_above(mode.extent); left > 0 && !cx->failed; left--, step *= 2) {
            if (*bit == LAYOUT_MAX_BITS) layout_refuse(cx, "overflow: more than %d input bits", LAYOUT_MAX_BITS);
            if (step & taken[mode.out]) layout_refuse(cx, "not linear: sums of stride %" PRId64 " carry", mode.stride);
            if (cx->failed) return;
            taken[mode.out] |= step;
            bool swizzled = a->swizzle.bits && mode.out == a->rank_out - 1;
            bits->images[(*bit)++][mode.out] = swizzled ? swizzle_apply(s, step) : step;
            bits->in[input]++;
        }
    }
}

LayoutBits layout_images(LayoutContext *cx, const Layout *a) {
    LayoutBits bits = {0};
    int64_t taken[LAYOUT_MAX_RANK] = {0};
    int count = 0;
    if (a->bits) return *a->bits;
    for (int i = 0; i < a->rank_in && !cx->failed; i++) {
        bits.ring[i] = a->in[i].ring;
        images_of_digits(cx, a, i, taken, &bits, &count);
    }
    return bits;
}

static LayoutBits bits_of(LayoutContext *cx, const Layout *a) {
    for (int i = 0; i < a->rank_in && !cx->failed; i++)
        if (log2_exact(layout_extent_in(a, i)) < 0)
            layout_refuse(cx, "not linear: extent %" PRId64 " is no power of two", layout_extent_in(a, i));
    return cx->failed ? (LayoutBits){0} : layout_images(cx, a);
}

Linear layout_to_linear(LayoutContext *cx, const Layout *a) {
    LayoutBits bits = bits_of(cx, a);
    LinearDim ins[LAYOUT_MAX_RANK], outs[LAYOUT_MAX_RANK];
    uint64_t columns[LAYOUT_MAX_BITS] = {0};
    int count = 0, shift = 0;
    for (int i = 0; i < a->rank_in; i++) ins[i] = (LinearDim){names[i], bits.in[i]}, count += bits.in[i];
    for (int o = 0; o < a->rank_out && !cx->failed; shift += outs[o++].bits) {
        outs[o] = (LinearDim){names[o], log2_above(a->out_shape[o])};
        for (int bit = 0; bit < count; bit++) columns[bit] |= (uint64_t)bits.images[bit][o] << shift;
    }
    return cx->failed ? linear_empty() : linear_make(cx, ins, a->rank_in, outs, a->rank_out, columns);
}
