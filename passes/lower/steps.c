#include "passes/lower/steps.h"
#include "ir/build.h"
#include "ir/query.h"
#include "layout/matrix.h"

static void add_digit(Steps *steps, const LayoutMode *mode, int64_t weight) {
    int64_t two = mode->extent & -mode->extent;
    for (int64_t bit = 1; bit < two; bit *= 2)
        steps->items[steps->count++] = (Step){2, mode->stride * bit, weight * bit, mode->out};
    if (two < mode->extent)
        steps->items[steps->count++] = (Step){mode->extent / two, mode->stride * two, weight * two, mode->out};
}

Steps register_steps(const LayoutInput *input) {
    Steps steps = {0};
    _Static_assert(COUNT_OF(steps.items) >= 62, "the extents of the steps, from 2 on, multiply to a number of 63 bits");
    int64_t weight = 1;
    for (int i = 0; i < input->count; i++) {
        add_digit(&steps, &input->modes[i], weight);
        weight *= input->modes[i].extent;
    }
    return steps;
}

// The place of a coordinate of input `dim`.
static int64_t image_of(const LayoutBits *bits, int dim, int64_t at) {
    int first = 0;
    int64_t image = 0;
    for (int d = 0; d < dim; d++) first += bits->in[d];
    for (int bit = 0; bit < bits->in[dim]; bit++)
        if (at >> bit & 1) image ^= bits->images[first + bit][0];
    return image;
}

// A step along several bits of a coordinate would carry; of other extents than 2, the places must be multiples.
static bool to_memory(const LayoutBits *bits, Steps *steps) {
    for (int i = 0; i < steps->count; i++) {
        Step *step = &steps->items[i];
        int64_t image = image_of(bits, step->out, step->stride);
        if (step->extent == 2 && (step->stride & (step->stride - 1))) return false;
        for (int64_t j = 2; j < step->extent && step->extent != 2; j++)
            if (image_of(bits, step->out, j * step->stride) != j * image) return false;
        step->stride = image;
        step->out = 0;
    }
    return true;
}

bool steps_in_memory(const Region *tile, const Layout *fragment, Steps *threads, Steps *values) {
    const Layout *layout = tile->buf->layout;
    if (!layout || layout->rank_out != 1 || layout->rank_in != tile->buf->rank || !region_is_whole(tile) ||
        fragment->bits)
        return false;
    LayoutContext cx = layout_context(NULL);   // refusals alone
    LayoutBits bits = layout_images(&cx, layout);
    *threads = register_steps(&fragment->in[TV_THREAD]);
    *values = register_steps(&fragment->in[TV_VALUE]);
    return !cx.failed && to_memory(&bits, threads) && to_memory(&bits, values);
}
