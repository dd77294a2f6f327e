// Conversions between distributions.
//
// On linear maps both questions, "has the thread what it needs?" and "has the warp?", compare affine spaces, by ranks.
// Else the tile is walked: for each warp, which of its lanes hold an element.
//
// Rounds of shuffles. In a round every lane gives one element and takes one. The transfers are the edges of a bipartite
// graph, senders and receivers; if each element has one of either, as many rounds suffice as the busiest lane has edges
// (Koenig), and no fewer do. With copies the number is that of the lowest lane that holds the element, for all that
// need it.
#include "layout/calculator/conversion.h"
#include "layout/calculator/algebra.h"
#include "layout/calculator/tuple.h"
#include "layout/distribution.h"
#include "layout/matrix.h"
#include "layout/shuffle.h"
#include <string.h>

// ---- by rank ----

static int images_of(Linear a, const char *in, uint64_t *images) {
    int dim = linear_find_in(a, in), bits = dim < 0 ? 0 : a.ins[dim].bits;
    if (bits) memcpy(images, a.columns + linear_in_shift(a, dim), sizeof *images * (size_t)bits);
    return bits;
}

// Are the differences of the images of `in` (what the destination needs, what the same index of the source holds) in
// the span?
static bool reachable(Linear source, Linear destination, const char *in, const uint64_t *span, int count) {
    uint64_t vectors[192], needs[64] = {0}, holds[64] = {0};
    int wanted = images_of(destination, in, needs), held = images_of(source, in, holds), rank = bits_rank(span, count);
    memcpy(vectors, span, sizeof *span * (size_t)count);
    for (int bit = 0; bit < wanted || bit < held; bit++) {
        vectors[count] = needs[bit] ^ holds[bit];
        if (bits_rank(vectors, count + 1) > rank) return false;
    }
    return true;
}

Conversion conversion_by_rank(LayoutContext *cx, Linear source, Linear destination) {
    Conversion cost = {CONVERT_BY_SHARED, 0, true};
    if (linear_out_bits(source) != linear_out_bits(destination) || source.out_count != destination.out_count) {
        layout_refuse(cx, "source and destination lay out different tensors");
        return cost;
    }
    uint64_t span[128], wanted[128];
    int registers = images_of(source, "register", span), lanes = images_of(source, "lane", span + registers);
    int wanted_count = images_of(destination, "register", wanted), in_lane = registers + lanes;
    // 1. Everything a warp needs must lie within the warp: registers and lanes of the destination, warps up to lanes.
    memcpy(wanted + wanted_count, span, sizeof *span * (size_t)in_lane);
    bool within = bits_rank(wanted, wanted_count + in_lane) == bits_rank(span, in_lane) &&
                  reachable(source, destination, "lane", span, in_lane) &&
                  reachable(source, destination, "warp", span, in_lane) &&
                  reachable(source, destination, "block", span, in_lane);
    if (!within) return cost;
    // 2. A lane has the elements of its source registers, an affine space, and needs those of its destination
    // registers, another. They meet in 1 / 2^missing of what it needs, or not at all. As every element has one sender
    // and one receiver, the transfers are a bipartite graph, and as many rounds suffice as the busiest lane has edges
    // (Koenig).
    int missing = bits_rank(wanted, wanted_count + registers) - bits_rank(span, registers);
    bool meet = reachable(source, destination, "lane", wanted, wanted_count + registers) &&
                reachable(source, destination, "warp", wanted, wanted_count + registers) &&
                reachable(source, destination, "block", wanted, wanted_count + registers);
    int64_t all = (int64_t)1 << bits_rank(wanted, wanted_count);
    cost.shuffles = meet ? all - (all >> missing) : all;
    cost.kind = cost.shuffles ? CONVERT_BY_SHUFFLES : CONVERT_IN_REGISTERS;
    cost.fewest = !cost.shuffles || (linear_is_injective(source) && linear_is_injective(destination));
    return cost;
}

// ---- by counting ----

enum { MOST_LANES = 64, MOST_ELEMENTS = 1 << 22, MOST_STEPS = 1 << 26 };

typedef struct Warp {
    const int64_t *shape;
    int lanes;
    uint64_t *holders;   // by element: the lanes that have it
    bool *sent;
    int64_t needs[MOST_LANES], sends[MOST_LANES];
    bool copies;   // an element has several holders or takers
} Warp;

// The element's number, or -1 outside of the tile.
static int64_t element_at(const Layout *tv, const int64_t *shape, int64_t thread, int64_t value) {
    int64_t at[LAYOUT_MAX_RANK], element = 0;
    layout_eval(tv, (int64_t[]){thread, value}, at);
    for (int d = 0; d < tv->rank_out; d++) {
        if (at[d] >= shape[d]) return -1;
        element = element * shape[d] + at[d];
    }
    return element;
}

static void note_holders(Warp *warp, const Layout *source, int64_t first) {
    for (int lane = 0; lane < warp->lanes; lane++)
        for (int64_t value = 0; value < tv_values(source); value++) {
            int64_t element = element_at(source, warp->shape, first + lane, value);
            if (element >= 0) warp->holders[element] |= (uint64_t)1 << lane;
        }
}

// False if the warp does not have an element that one of its lanes needs.
static bool note_transfers(Warp *warp, const Layout *destination, int64_t first) {
    for (int lane = 0; lane < warp->lanes; lane++)
        for (int64_t value = 0; value < tv_values(destination); value++) {
            int64_t element = element_at(destination, warp->shape, first + lane, value);
            uint64_t holders = element < 0 ? 1 : warp->holders[element];
            if (!holders) return false;
            if (element < 0 || holders >> lane & 1) continue;
            warp->copies |= warp->sent[element] || (holders & (holders - 1));
            warp->needs[lane]++;
            warp->sends[__builtin_ctzll(holders)] += !warp->sent[element];
            warp->sent[element] = true;
        }
    return true;
}

static int64_t busiest(const Warp *warp) {
    int64_t most = 0;
    for (int lane = 0; lane < warp->lanes; lane++) {
        if (warp->needs[lane] > most) most = warp->needs[lane];
        if (warp->sends[lane] > most) most = warp->sends[lane];
    }
    return most;
}

// What the walk touches: all that the threads hold and need, and the tile for each warp.
static int64_t steps_of(LayoutContext *cx, const Layout *source, const Layout *destination, int64_t size) {
    int64_t held = layout_mul(cx, tv_threads(source), tv_values(source));
    int64_t needed = layout_mul(cx, tv_threads(destination), tv_values(destination));
    return layout_sum(cx, layout_mul(cx, tv_threads(source), size), layout_sum(cx, held, needed));
}

static Conversion by_counting(LayoutContext *cx, const Layout *source, const Layout *destination, const int64_t *shape,
                              int lanes) {
    Conversion cost = {CONVERT_IN_REGISTERS, 0, true};
    int64_t size = 1;
    for (int d = 0; d < source->rank_out; d++) size = layout_mul(cx, size, shape[d]);
    int64_t steps = steps_of(cx, source, destination, size);
    if (size > MOST_ELEMENTS || steps > MOST_STEPS || lanes > MOST_LANES) layout_refuse(cx, "too large to count");
    if (cx->failed) return cost;
    uint64_t *holders = NEW_ARRAY(cx->arena, uint64_t, size);
    bool *sent = NEW_ARRAY(cx->arena, bool, size);
    for (int64_t first = 0; first < tv_threads(source); first += lanes) {
        Warp warp = {.shape = shape, .lanes = lanes, .holders = holders, .sent = sent};
        if (tv_threads(source) < lanes) warp.lanes = (int)tv_threads(source);
        memset(holders, 0, sizeof *holders * (size_t)size);
        memset(sent, 0, sizeof *sent * (size_t)size);
        note_holders(&warp, source, first);
        if (!note_transfers(&warp, destination, first)) return (Conversion){CONVERT_BY_SHARED, 0, true};
        if (busiest(&warp) > cost.shuffles) cost.shuffles = busiest(&warp);
        cost.fewest &= !warp.copies;
    }
    if (cost.shuffles) cost.kind = CONVERT_BY_SHUFFLES;
    return cost;
}

// ---- either ----

static bool covers(const Layout *tv, const int64_t *shape) {
    for (int d = 0; d < tv->rank_out; d++)
        if (tv->out_shape[d] != shape[d]) return false;
    return true;
}

Conversion conversion_of(LayoutContext *cx, const Layout *source, const Layout *destination, const int64_t *shape,
                         int lanes) {
    Conversion nothing = {CONVERT_NOTHING, 0, true};
    bool alike = source->rank_in == 2 && destination->rank_in == 2 && source->rank_out == destination->rank_out &&
                 tv_threads(source) == tv_threads(destination);
    if (!alike) return layout_refuse(cx, "the distributions have other threads or tiles than each other"), nothing;
    if (layout_same_map(source, destination)) return nothing;
    LayoutContext trial = layout_context(cx->arena);
    Linear from = distribution_to_linear(&trial, source, lanes),
           to = distribution_to_linear(&trial, destination, lanes);
    bool linear = !trial.failed && covers(source, shape) && covers(destination, shape);
    return linear ? conversion_by_rank(cx, from, to) : by_counting(cx, source, destination, shape, lanes);
}
