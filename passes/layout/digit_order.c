#include "passes/layout/digit_order.h"
#include <string.h>

enum { MOST_DIGITS = 24, MOST_LANES = 64, MOST_COUNTED = 1 << 22 };   // elements that a search counts

typedef struct Digit {
    int dim;
    int64_t extent, stride;   // in the tile
} Digit;

typedef struct Order {
    int digits[MOST_DIGITS];   // fastest first
} Order;

typedef struct Search {
    const Layout *sides[2];
    int count, lanes, bytes;
    MemoryShape memory;
    Digit digits[MOST_DIGITS];
    int16_t
        *values[2];   // of the digits of each thread's elements: [value][thread][digit]; the first is negative: idle
    int64_t counted, least;
    Order best;
} Search;

// ---- what is counted ----

static int16_t *values_of(LayoutContext *cx, const Search *s, int side) {
    const Layout *tv = s->sides[side];
    int64_t threads = tv_threads(tv), values = tv_values(tv);
    int16_t *all = NEW_ARRAY(cx->arena, int16_t, threads * values * s->count), *next = all;
    for (int64_t v = 0; v < values; v++)
        for (int64_t t = 0; t < threads; t++, next += s->count) {
            int64_t at[LAYOUT_MAX_RANK];
            layout_eval(tv, (int64_t[]){t, v}, at);
            for (int d = 0; d < s->count; d++)
                next[d] = (int16_t)(at[s->digits[d].dim] / s->digits[d].stride % s->digits[d].extent);
            if (side == 0 && tv_is_replica(tv, t)) next[0] = -1;
        }
    return all;
}

static void strides_of(const Search *s, const Order *order, int64_t *strides) {
    int64_t stride = s->bytes;
    for (int i = 0; i < s->count; i++) {
        strides[order->digits[i]] = stride;
        stride *= s->digits[order->digits[i]].extent;
    }
}

// Of all warps.
static int64_t wavefronts_of(Search *s, const Order *order) {
    int64_t strides[MOST_DIGITS], sum = 0, addresses[MOST_LANES];
    strides_of(s, order, strides);
    for (int side = 0; side < 2; side++) {
        int64_t elements = tv_threads(s->sides[side]) * tv_values(s->sides[side]);
        const int16_t *next = s->values[side];
        for (int64_t e = 0; e < elements && sum < s->least; e += s->lanes) {
            for (int lane = 0; lane < s->lanes; lane++, next += s->count) {
                addresses[lane] = next[0] < 0 ? -1 : 0;
                for (int d = 0; d < s->count && next[0] >= 0; d++) addresses[lane] += next[d] * strides[d];
            }
            sum += shared_cost_counted(addresses, s->lanes, s->bytes, s->memory).wavefronts;
        }
        s->counted += elements;
    }
    return sum;
}

static bool consider(Search *s, const Order *order) {
    int64_t wavefronts = wavefronts_of(s, order);
    if (wavefronts >= s->least) return false;
    s->least = wavefronts;
    s->best = *order;
    return true;
}

// ---- orders ----

static void add_digits(const Search *s, const LayoutMode *mode, Order *order, int *count) {
    for (int d = 0; d < s->count; d++) {
        const Digit *digit = &s->digits[d];
        bool own = digit->dim == mode->out && digit->stride >= mode->stride &&
                   digit->stride < mode->stride * mode->extent,
             taken = false;
        for (int i = 0; i < *count; i++) taken |= order->digits[i] == d;
        if (mode->stride && own && !taken) order->digits[(*count)++] = d;
    }
}

// The threads of the side, then its values, then what digits of the other side there are.
static Order order_of(const Search *s, int side) {
    const Layout *tv = s->sides[side];
    Order order = {{0}};
    int count = 0;
    for (int input = 0; input < 2; input++)
        for (int d = 0; d < tv->in[input].count; d++) add_digits(s, &tv->in[input].modes[d], &order, &count);
    for (int d = 0; d < s->count; d++)
        add_digits(s, &(LayoutMode){2, s->digits[d].stride, s->digits[d].dim}, &order, &count);
    return order;
}

static void improve(Search *s) {
    bool better = true;
    while (better) {
        better = false;
        for (int i = 0; i < s->count; i++)
            for (int j = i + 1; j < s->count && s->counted < MOST_COUNTED; j++) {
                Order order = s->best;
                order.digits[i] = s->best.digits[j];
                order.digits[j] = s->best.digits[i];
                better |= consider(s, &order);
            }
    }
}

// ---- the layout ----

static void find_digits(LayoutContext *cx, Search *s, const LayoutInput *dims, int rank) {
    for (int dim = 0; dim < rank; dim++)
        for (int d = 0; d < dims[dim].count; d++) {
            LayoutMode mode = dims[dim].modes[d];
            for (int64_t step; mode.extent > 1; mode.extent /= step, mode.stride *= step) {
                step = mode.extent % 2 ? mode.extent : 2;
                if (s->count == MOST_DIGITS || step > INT16_MAX) layout_refuse(cx, "too many digits");
                else s->digits[s->count++] = (Digit){dim, step, mode.stride};
            }
        }
}

static const Layout *layout_in(LayoutContext *cx, const Search *s, int rank) {
    int64_t strides[MOST_DIGITS];
    Layout *layout = layout_new(cx->arena, rank, 1);
    strides_of(s, &s->best, strides);
    for (int d = 0; d < s->count; d++)
        layout_add(layout, s->digits[d].dim, s->digits[d].extent, strides[d] / s->bytes, 0);
    return layout_finish(layout);
}

// By the digits that `first` and `second` have in common.
static const Layout *by_digits_of(LayoutContext *cx, Search *s, const Layout *first, const Layout *second) {
    LayoutInput dims[LAYOUT_MAX_RANK] = {0};
    s->count = 0;
    if (common_digits(cx, first, second, dims)) find_digits(cx, s, dims, first->rank_out);
    if (cx->failed) return NULL;
    int64_t before = s->least;
    for (int side = 0; side < 2; side++) s->values[side] = values_of(cx, s, side);
    for (int side = 0; side < 2; side++) {
        Order order = order_of(s, side);
        consider(s, &order);
    }
    if (s->least < before) improve(s);
    return s->least < before ? layout_in(cx, s, first->rank_out) : NULL;
}

const Layout *fewest_by_order(LayoutContext *cx, const Layout *source, const Layout *destination, int element_bytes,
                              int lanes, MemoryShape memory) {
    Search s = {
        .sides = {source, destination}, .lanes = lanes, .bytes = element_bytes, .memory = memory, .least = INT64_MAX};
    LayoutContext trial = *cx;
    if (lanes > MOST_LANES || tv_threads(source) % lanes || tv_threads(destination) % lanes) return NULL;
    const Layout *best = by_digits_of(&trial, &s, source, destination);
    for (int side = 0; side < 2 && trial.failed; side++) {
        LayoutContext own = *cx;
        const Layout *found = by_digits_of(&own, &s, s.sides[side], s.sides[side]);
        if (found) best = found;
    }
    return best;
}
