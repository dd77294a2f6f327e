#include "layout/quotient.h"
#include "layout/matrix.h"
#include <inttypes.h>
#include <string.h>

Linear distribution_to_linear(LayoutContext *cx, const Layout *tv, int lanes) {
    Linear whole = layout_to_linear(cx, tv);
    if (!cx->failed && whole.in_count != 2) layout_refuse(cx, "a distribution has the inputs thread and value");
    if (cx->failed) return linear_empty();
    int lane_bits = log2_exact(lanes), threads = whole.ins[TV_THREAD].bits;
    if (threads < lane_bits) lane_bits = threads;
    LinearDim dims[] = {{"lane", lane_bits}, {"warp", threads - lane_bits}, {"register", whole.ins[TV_VALUE].bits}};
    Linear split = linear_reshape(cx, whole, dims, 3, whole.outs, whole.out_count);
    return linear_transpose(cx, split, (const char *[]){"register", "lane", "warp"}, 3, NULL, 0);
}

// ---- common digits ----

typedef struct Marks {
    int count;
    int64_t at[4 * LAYOUT_MAX_MODES * 2 + 2];   // where digits begin and end, in order
} Marks;

static void mark(Marks *marks, int64_t at) {
    int place = marks->count;
    while (place > 0 && marks->at[place - 1] > at) place--;
    if (place > 0 && marks->at[place - 1] == at) return;
    memmove(&marks->at[place + 1], &marks->at[place], sizeof *marks->at * (size_t)(marks->count++ - place));
    marks->at[place] = at;
}

static void mark_digits(Marks *marks, const Layout *tv, int out) {
    for (int i = 0; i < 2 && !tv->bits; i++)
        for (int d = 0; d < tv->in[i].count; d++) {
            const LayoutMode *mode = &tv->in[i].modes[d];
            if (mode->out != out || !mode->stride) continue;
            mark(marks, mode->stride);
            mark(marks, mode->stride * mode->extent);
        }
}

static void add_digit(LayoutContext *cx, LayoutInput *dim, int64_t extent, int64_t stride, int out) {
    if (extent == 1) return;
    if (dim->count == LAYOUT_MAX_MODES) layout_refuse(cx, "more than %d digits", LAYOUT_MAX_MODES);
    else dim->modes[dim->count++] = (LayoutMode){extent, stride, out};
}

// Powers of two and odd numbers.
static void find_digits(LayoutContext *cx, const Layout *source, const Layout *destination, int out, LayoutInput *dim) {
    Marks marks = {1, {1}};
    mark(&marks, source->out_shape[out]);
    mark_digits(&marks, source, out);
    mark_digits(&marks, destination, out);
    if (marks.at[marks.count - 1] != source->out_shape[out]) layout_refuse(cx, "digits that overlap");
    for (int i = 0; i + 1 < marks.count && !cx->failed; i++) {
        int64_t from = marks.at[i], ratio = marks.at[i + 1] / from, two = ratio & -ratio;
        if (marks.at[i + 1] % from)
            layout_refuse(cx, "a digit begins at %" PRId64 ", another one at %" PRId64, from, marks.at[i + 1]);
        add_digit(cx, dim, two, from, out);
        add_digit(cx, dim, ratio / two, from * two, out);
    }
}

// ---- one side ----

static void add_bits(LayoutContext *cx, int *count, int64_t *weights, int64_t extent, int64_t weight) {
    for (int64_t step = 1; step < extent && !cx->failed; step *= 2) {
        if (*count == QUOTIENT_BITS) layout_refuse(cx, "too many values or threads");
        else weights[(*count)++] = weight * step;
    }
}

static void add_input_bits(LayoutContext *cx, QuotientSide *side, int input, int64_t extent, int64_t weight) {
    if (input == TV_VALUE) add_bits(cx, &side->value_bits, side->value_weight, extent, weight);
    else add_bits(cx, &side->thread_bits, side->thread_weight, extent, weight);
}

static bool is_within(int64_t stride, int out, const LayoutMode *mode) {
    return out == mode->out && stride >= mode->stride && stride < mode->stride * mode->extent;
}

// The common digits that make up one of a side.
static void add_mode(LayoutContext *cx, Quotient *q, int side, Layout *tv, int input, const LayoutMode *mode,
                     int64_t weight) {
    const LayoutInput *dim = &q->dims[mode->out];
    int64_t step = 1;   // in the quotient
    for (int d = 0; d < dim->count && !cx->failed; d++) {
        const LayoutMode *digit = &dim->modes[d];
        if (digit->extent % 2) continue;
        if (is_within(digit->stride, mode->out, mode)) {
            layout_add(tv, input, digit->extent, step, mode->out);
            add_input_bits(cx, &q->sides[side], input, digit->extent, weight * (digit->stride / mode->stride));
        }
        step *= digit->extent;
    }
    for (int i = 0; i < q->odd_count; i++) {
        OddDigit *odd = &q->odd[i];
        if (!is_within(odd->stride, odd->out, mode)) continue;
        if (odd->weight[side]) layout_refuse(cx, "digits that overlap");
        odd->input[side] = input;
        odd->weight[side] = weight * (odd->stride / mode->stride);
    }
}

// Elements, or threads, that have the same.
static void add_copies(LayoutContext *cx, QuotientSide *side, Layout *tv, int input, int64_t extent, int64_t weight) {
    int64_t two = extent & -extent;
    layout_add(tv, input, two, 0, 0);
    add_input_bits(cx, side, input, two, weight);
    if (two == extent || input == TV_THREAD) return;
    if (side->copy_count == QUOTIENT_ODD) layout_refuse(cx, "too many odd extents");
    else side->copies[side->copy_count++] = (OddCopies){extent / two, weight * two};
}

static void divide(LayoutContext *cx, Quotient *q, int number, const Layout *tv) {
    QuotientSide *side = &q->sides[number];
    side->tv = tv;
    for (int input = 0; input < 2 && tv->bits; input++) add_input_bits(cx, side, input, layout_extent_in(tv, input), 1);
    Layout *left = layout_new(cx->arena, 2, tv->rank_out);
    for (int input = 0; input < 2 && !tv->bits; input++) {
        int64_t weight = 1;
        for (int d = 0; d < tv->in[input].count && !cx->failed; d++) {
            const LayoutMode *mode = &tv->in[input].modes[d];
            if (mode->stride) add_mode(cx, q, number, left, input, mode, weight);
            else add_copies(cx, side, left, input, mode->extent, weight);
            weight *= mode->extent;
        }
    }
    if (!cx->failed && !tv->bits && !(side->tv = layout_finish(left))) layout_refuse(cx, "too many digits");
    for (int i = 0; i < q->odd_count; i++)
        if (!q->odd[i].weight[number]) layout_refuse(cx, "an odd digit on one side");
}

// Until an odd digit stands in a warp.
static int lanes_of(const QuotientSide *side, int most) {
    int lanes = 1;
    for (int bit = 0; bit < side->thread_bits && side->thread_weight[bit] == lanes && lanes < most; bit++) lanes *= 2;
    return lanes;
}

// ---- both ----

static void find_odd(LayoutContext *cx, Quotient *q) {
    for (int o = 0; o < q->rank; o++)
        for (int d = 0; d < q->dims[o].count; d++) {
            const LayoutMode *digit = &q->dims[o].modes[d];
            if (digit->extent % 2 == 0) continue;
            if (q->odd_count == QUOTIENT_ODD) layout_refuse(cx, "too many odd extents");
            else q->odd[q->odd_count++] = (OddDigit){.extent = digit->extent, .stride = digit->stride, .out = o};
        }
}

static bool same_tile(const Layout *a, const Layout *b) {
    bool same = a->rank_out == b->rank_out;
    for (int o = 0; o < a->rank_out && same; o++) same = a->out_shape[o] == b->out_shape[o];
    return same;
}

bool common_digits(LayoutContext *cx, const Layout *source, const Layout *destination, LayoutInput *dims) {
    if (!same_tile(source, destination)) layout_refuse(cx, "different tiles");
    for (int o = 0; o < source->rank_out && !cx->failed; o++) find_digits(cx, source, destination, o, &dims[o]);
    return !cx->failed;
}

Quotient quotient_of(LayoutContext *cx, const Layout *source, const Layout *destination, int lanes) {
    Quotient q = {.sides = {{.bits = linear_empty()}, {.bits = linear_empty()}}, .rank = source->rank_out};
    if (tv_threads(source) != tv_threads(destination) || tv_threads(source) % lanes)
        layout_refuse(cx, "not of the same whole warps");
    if (!cx->failed && common_digits(cx, source, destination, q.dims)) find_odd(cx, &q);
    if (!cx->failed) divide(cx, &q, 0, source);
    if (!cx->failed) divide(cx, &q, 1, destination);
    if (cx->failed) return q;
    q.lanes = lanes_of(&q.sides[1], lanes_of(&q.sides[0], lanes));
    for (int i = 0; i < 2; i++) q.sides[i].bits = distribution_to_linear(cx, q.sides[i].tv, q.lanes);
    return q;
}

int64_t quotient_repeats(const Quotient *q, int side) {
    int64_t repeats = 1;
    for (int i = 0; i < q->odd_count; i++)
        if (q->odd[i].input[side] == TV_VALUE) repeats *= q->odd[i].extent;
    return repeats;
}
