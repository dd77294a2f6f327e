#include "passes/lower/steps.h"
#include "ir/build.h"
#include "ir/query.h"
#include "layout/matrix.h"

static void add_steps(Steps *steps, int64_t extent, int64_t stride, int64_t weight, int out) {
    int64_t two = extent & -extent;
    for (int64_t bit = 1; bit < two; bit *= 2)
        steps->items[steps->count++] = (Step){2, stride * bit, weight * bit, out};
    if (two < extent) steps->items[steps->count++] = (Step){extent / two, stride * two, weight * two, out};
}

// Of a tile whose coordinates have digits (NULL: any): one that reaches across several is taken apart where they begin.
static void add_mode(Steps *steps, const LayoutMode *mode, int64_t weight, const LayoutInput *digits) {
    int64_t stride = mode->stride, extent = mode->extent, begin = 1;
    for (int d = 0; digits && d < digits->count; begin *= digits->modes[d++].extent) {
        if (stride == 0 || begin <= stride || begin % stride) continue;
        int64_t below = begin / stride;
        if (below >= extent || extent % below) continue;
        add_steps(steps, below, stride, weight, mode->out);
        stride = begin, extent /= below, weight *= below;
    }
    add_steps(steps, extent, stride, weight, mode->out);
}

static Steps steps_of(const LayoutInput *input, const Layout *tile) {
    Steps steps = {0};
    _Static_assert(COUNT_OF(steps.items) >= 62, "the extents of the steps, from 2 on, multiply to a number of 63 bits");
    int64_t weight = 1;
    for (int i = 0; i < input->count; i++) {
        const LayoutMode *mode = &input->modes[i];
        add_mode(&steps, mode, weight, tile ? &tile->in[mode->out] : NULL);
        weight *= mode->extent;
    }
    return steps;
}

Steps register_steps(const LayoutInput *input) {
    return steps_of(input, NULL);
}

static int64_t place_of(const Layout *layout, int dim, int64_t coordinate) {
    int64_t in[LAYOUT_MAX_RANK] = {0}, out;
    in[dim] = coordinate;
    layout_eval(layout, in, &out);
    return out;
}

// Whether the step stays in one digit of the coordinate, so that it does not carry: a bit of it, or of what is no power of
// two all its steps. Of the slowest digit, whose steps go on, the places tell.
static bool stays_in_digit(const LayoutInput *input, const Step *step) {
    int64_t weight = 1;
    for (int d = 0; d < input->count - 1; weight *= input->modes[d++].extent) {
        int64_t extent = input->modes[d].extent, at = step->stride / weight;
        if (step->stride >= weight * extent) continue;
        if (step->stride % weight || at & (at - 1)) return false;
        return step->extent == 2 ? at < (extent & -extent) : at * step->extent == extent;
    }
    return step->extent != 2 || (step->stride % weight == 0 && !(step->stride / weight & (step->stride / weight - 1)));
}

// Of other extents than 2, the places must be multiples.
static bool to_memory(const Layout *layout, Steps *steps) {
    for (int i = 0; i < steps->count; i++) {
        Step *step = &steps->items[i];
        int64_t place = place_of(layout, step->out, step->stride);
        if (step->stride && !stays_in_digit(&layout->in[step->out], step)) return false;
        for (int64_t j = 2; j < step->extent && step->extent != 2; j++)
            if (place_of(layout, step->out, j * step->stride) != j * place) return false;
        step->stride = place;
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
    layout_images(&cx, layout);
    *threads = steps_of(&fragment->in[TV_THREAD], layout);
    *values = steps_of(&fragment->in[TV_VALUE], layout);
    return !cx.failed && to_memory(layout, threads) && to_memory(layout, values);
}
