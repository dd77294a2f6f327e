#include "passes/layout/conversion_way.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "layout/shuffle.h"
#include "passes/layout/digit_order.h"
#include "passes/layout/layout_inference.h"
#include "passes/layout/shared_choice.h"
#include "passes/lower/lower.h"
#include "support/numbers.h"

typedef struct Cost {
    bool possible;
    int64_t quarters;
    const char *text;
} Cost;

static bool has_exactly(const Layout *layout, const Buf *buf) {
    for (int d = 0; d < buf->rank; d++)
        if (layout->out_shape[d] != buf_extent(buf, d)) return false;
    return true;
}

static int64_t clocks_of(int64_t quarters) {
    return (quarters + COST_CLOCK - 1) / COST_CLOCK;
}

static Cost by_shuffles(const PassContext *context, const ShufflePlan *plan, int element_bits, int64_t warps) {
    const WarpCosts *costs = &context->target->costs;
    ShuffleCost cost = shuffle_cost(plan, element_bits);
    const char *text = arena_printf(context->arena, "%lld shuffles and %lld selections a thread",
                                    (long long)cost.shuffles, (long long)cost.selects);
    if (!cost.shuffles && !cost.selects) text = "within each thread";
    return (Cost){true, warps * (cost.shuffles * costs->shuffle + cost.selects * costs->select), text};
}

static SharedMachine machine_of(const Target *target, const Buf *from, const Buf *to, int element_bits) {
    bool fits = element_bits <= MATRIX_WORD * 8;
    bool stores = fits && holds_matrices(target, from, false), loads = fits && holds_matrices(target, to, true);
    return (SharedMachine){memory_shape(target), stores, loads, loads && target_has(target, FEATURE_LDMATRIX_BYTES)};
}

typedef struct Through {
    Cost cost;
    const Layout *scratch;
    bool by_loops;
    SharedInstruction store, load;
} Through;

// By the quotient of bits, unless lanes have odd digits.
static Through by_bits(const PassContext *context, const Buf *from, const Buf *to, const Quotient *q) {
    const Target *target = context->target;
    LayoutContext cx = layout_context(context->arena);
    int bits = type_bits(conversion_type(from, to));
    int64_t warps = tv_threads(from->layout) / target->warp_lanes;
    if (q->lanes < target->warp_lanes) return (Through){0};
    SharedWay way = shared_way(&cx, q->sides[0].bits, q->sides[1].bits, bits, machine_of(target, from, to, bits),
                               quotient_repeats(q, 0), quotient_repeats(q, 1));
    if (cx.failed) return (Through){0};
    const Layout *scratch = shared_way_layout(&cx, &way, q, bits);
    int64_t wavefronts = shared_way_wavefronts(&way);
    const char *text =
        arena_printf(context->arena, "%lld wavefronts of shared memory a warp, and a barrier", (long long)wavefronts);
    Cost cost = {!cx.failed, warps * wavefronts * target->costs.wavefront + target->costs.barrier, text};
    return (Through){cost, scratch, false, way.store.instruction, way.load.instruction};
}

static const char *compared(Arena *arena, Cost taken, Cost other) {
    const char *text = arena_printf(arena, "%s, %lld clocks", taken.text, (long long)clocks_of(taken.quarters));
    if (!other.possible) return text;
    return arena_printf(arena, "%s (%s: %lld)", text, other.text, (long long)clocks_of(other.quarters));
}

// ---- plain loops ----

// Wavefronts of all warps: each gives a word of each bank, so that vectors of narrow elements take fewer than elements.
static int64_t least_wavefronts(const Target *target, const Layout *tv, int element_bits) {
    return ceil_div(tv_threads(tv), target->warp_lanes) *
           ceil_div(tv_values(tv) * element_bits, (int64_t)target->bank_bytes * 8);
}

// Of a fragment and a tile, between other regions than the whole. (Replicas count as if they stored.)
static ConversionWay unknown_way(const PassContext *context, const Buf *from, const Buf *to) {
    const WarpCosts *costs = &context->target->costs;
    int bits = type_bits(conversion_type(from, to));
    int64_t wavefronts =
        least_wavefronts(context->target, from->layout, bits) + least_wavefronts(context->target, to->layout, bits);
    return (ConversionWay){.quarters = wavefronts * costs->wavefront + costs->barrier, .text = "through shared memory"};
}

// As layout-inference makes it.
static Stmt *plain_copy(const PassContext *context, const Buf *from, const Buf *to, const Layout *map) {
    Arena *arena = context->arena;
    Block block = {0};
    Item item = {0};
    Region *src = region_whole(arena, arena_copy(arena, from, sizeof *from)),
           *dst = region_whole(arena, arena_copy(arena, to, sizeof *to));
    Stmt *copy = BLOCK_CALL(arena, &block, from->loc, OP_COPY, arg_region(src), arg_region(dst));
    attr_set_layout(arena, &copy->attrs, ATTR_MAP, map);
    if (!tile_loop_of(arena, copy, &item.loop)) return copy;
    tile_accesses(arena, &item.loop, &item.accesses);
    item.fast = loop_fast_dim(&item.loop, &item.accesses);
    item.vector = loop_vector(facts_new(arena, NULL), &item.loop, &item.accesses, item.fast, context->target);
    attr_set_int(arena, &copy->attrs, ATTR_VECTOR, vector_under(&item, map));
    return copy;
}

static int64_t wavefronts_in(const Target *target, const SharedAccessVec *accesses, const Layout *layout) {
    int64_t sum = 0;
    VEC_EACH (const SharedAccess, access, accesses) sum += access_cost(target, access, layout, INT64_MAX).wavefronts;
    return sum;
}

// Layouts whose odd digits stand in lanes, or at places that differ: all accesses of all warps are counted, in the layout
// that costs them least.
static Through by_loops(const PassContext *context, const Buf *from, const Buf *to) {
    const Target *target = context->target;
    SharedAccessVec all = {0};
    AccessVec accesses = {0};
    LayoutContext cx = layout_context(context->arena);
    int64_t shape[LAYOUT_MAX_RANK], wavefronts;
    for (int d = 0; d < to->rank; d++) shape[d] = buf_extent(to, d);
    Buf *tile =
        buf_new_const(context->arena, from->name, SCOPE_SHARED, conversion_type(from, to), to->rank, shape, from->loc);
    Stmt *copies[] = {plain_copy(context, from, tile, from->layout), plain_copy(context, tile, to, to->layout)};
    for (int64_t first = 0; first < tv_threads(from->layout); first += target->warp_lanes)
        for (int i = 0; i < 2; i++) loop_accesses(context, copies[i], first, &all);
    VEC_EACH (const SharedAccess, access, &all) vec_push(context->arena, &accesses, access);
    const Layout *scratch = choose_shared_layout(context, &accesses, tile), *ordered = NULL;
    wavefronts = wavefronts_in(target, &all, scratch);
    if (has_exactly(from->layout, from) && has_exactly(to->layout, to))
        ordered = fewest_by_order(&cx, from->layout, to->layout, type_bytes(tile->type), target->warp_lanes,
                                  memory_shape(target));
    if (ordered && wavefronts_in(target, &all, ordered) < wavefronts) {
        scratch = ordered;
        wavefronts = wavefronts_in(target, &all, ordered);
    }
    const char *text =
        arena_printf(context->arena, "%lld wavefronts of shared memory in all, and a barrier", (long long)wavefronts);
    Cost cost = {true, wavefronts * target->costs.wavefront + target->costs.barrier, text};
    return (Through){.cost = cost, .scratch = scratch, .by_loops = true};
}

// ---- the cheapest ----

ConversionWay conversion_between(const PassContext *context, const Buf *from, const Buf *to) {
    EXPECT(context->failure, from->layout && to->layout, "a conversion of '%s' without layouts", from->name);
    int bits = type_bits(conversion_type(from, to));
    int64_t warps = tv_threads(from->layout) / context->target->warp_lanes;
    LayoutContext cx = layout_context(context->arena);
    Cost shuffles = {.text = "no shuffles"};
    Through through = {.cost = {0}};
    if (has_exactly(from->layout, from) && has_exactly(to->layout, to)) {
        Quotient q = quotient_of(&cx, from->layout, to->layout, context->target->warp_lanes);
        if (!cx.failed) through = by_bits(context, from, to, &q);
        ShufflePlan plan = shuffle_plan(&cx, &q, bits);
        if (!cx.failed) shuffles = by_shuffles(context, &plan, bits, warps);
    }
    if (!through.cost.possible) through = by_loops(context, from, to);
    bool within_warps = shuffles.possible && shuffles.quarters <= through.cost.quarters;
    Cost taken = within_warps ? shuffles : through.cost, other = within_warps ? through.cost : shuffles;
    return (ConversionWay){.within_warps = within_warps,
                           .quarters = taken.quarters,
                           .clocks = clocks_of(taken.quarters),
                           .text = compared(context->arena, taken, other),
                           .scratch = through.scratch,
                           .by_loops = through.by_loops,
                           .store = through.store,
                           .load = through.load};
}

ConversionWay conversion_way(const PassContext *context, const Stmt *copy) {
    const Region *src = copy_of(copy).src, *dst = copy_of(copy).dst;
    bool whole = region_is_whole(src) && region_is_whole(dst) && !src->transposed && !dst->transposed;
    return whole ? conversion_between(context, src->buf, dst->buf) : unknown_way(context, src->buf, dst->buf);
}
