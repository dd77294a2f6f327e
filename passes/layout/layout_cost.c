// What a choice of layouts costs, in units of WarpCosts: conversions, and the items under their maps.
//
// An item's part is what depends on its map: arithmetic of all values that threads have, replicas included; sectors of
// global memory and wavefronts of shared memory, whose bank conflicts swizzle-allocation will avoid; shuffles of
// reductions and their way through shared memory.
#include "ir/build.h"
#include "ir/query.h"
#include "passes/layout/conversion_way.h"
#include "passes/layout/fragment.h"
#include "passes/layout/layout_inference.h"
#include "passes/lower/lower.h"
#include "support/numbers.h"

const Layout *layout_copy(Arena *arena, const Layout *layout) {
    if (!layout) return NULL;
    Layout *copy = arena_copy(arena, layout, sizeof *layout);
    if (layout->bits) copy->bits = arena_copy(arena, layout->bits, sizeof *layout->bits);
    return copy;
}

// ---- conversions ----

// Equal layouts, and those in which each thread has what it needs, cost nothing: registers are renamed.
static int64_t find_quarters(Inference *inference, const Buf *from, const Buf *to) {
    if (layout_equal(from->layout, to->layout)) return 0;
    if (fragment_same_thread(inference->arena, to->layout, from->layout, e_int(inference->arena, 0))) return 0;
    return conversion_between(inference->context, from, to).quarters;
}

int64_t conversion_quarters(Inference *inference, const Buf *from, const Buf *to) {
    int bits = type_bits(conversion_type(from, to));
    VEC_EACH (const KnownCost, known, &inference->costs)
        if (known->bits == bits && layout_equal(known->from, from->layout) && layout_equal(known->to, to->layout))
            return known->quarters;
    Arena *arena = inference->context->arena;   // this stays, when the layouts of a search go
    KnownCost cost = {layout_copy(arena, from->layout), layout_copy(arena, to->layout), bits,
                      find_quarters(inference, from, to)};
    vec_push(arena, &inference->costs, cost);
    return cost.quarters;
}

// ---- memory ----

// Vectors must lie along the map's first value digit. A map that comes from a fragment may be narrower than the memory
// allows.
int64_t vector_under(const Item *item, const Layout *map) {
    const LayoutInput *values = &map->in[TV_VALUE];
    const LayoutMode *first = &values->modes[0];
    int64_t run = values->count > 0 && first->stride == 1 && first->out == item->fast ? first->extent : 1;
    int64_t vector = item->vector;
    while (vector > 1 && run % vector != 0) vector /= 2;
    return vector;
}

// Of the iteration: its coordinates along iterators that the access uses, the contiguous one in `units` of elements.
static void place_accessed(const Item *item, const TileAccess *access, const Layout *map, int64_t lane, int64_t units,
                           int64_t *place) {
    int64_t in[] = {lane, 0}, at[LAYOUT_MAX_RANK];
    layout_eval(map, in, at);
    for (int i = 0; i < item->loop.rank; i++) {
        StrideKind stride = access_stride(access, item->loop.iters[i]);
        place[i] = stride == STRIDE_NONE ? 0 : stride == STRIDE_UNIT ? at[i] / units : at[i];
    }
}

static bool same_place(int rank, const int64_t *a, const int64_t *b) {
    for (int i = 0; i < rank; i++)
        if (a[i] != b[i]) return false;
    return true;
}

// Different pieces of so many elements that the lanes of a warp access at once.
static int64_t pieces_of_warp(const Target *target, const Item *item, const TileAccess *access, const Layout *map,
                              int64_t units) {
    int64_t pieces = 0, lanes = smaller(target->warp_lanes, tv_threads(map));
    int64_t seen[64][LAYOUT_MAX_RANK];
    for (int64_t lane = 0; lane < lanes && pieces < 64; lane++) {
        bool found = false;
        place_accessed(item, access, map, lane, units, seen[pieces]);
        for (int64_t i = 0; i < pieces && !found; i++) found = same_place(item->loop.rank, seen[i], seen[pieces]);
        pieces += !found;
    }
    return pieces;
}

// A fragment that is stored to a tensor in narrower vectors than that takes is staged in shared memory.
static int64_t staging_quarters(const Target *target, const Item *item, const TileAccess *access, const Layout *map) {
    int64_t bytes = tv_values(map) * tv_threads(map) * type_bytes(access->buf->type);
    bool staged = access->is_store && vector_under(item, map) < item->vector &&
                  is_copy_between(item->stmt, SCOPE_FRAGMENT, SCOPE_GLOBAL);
    int64_t wavefronts = 2 * ceil_div(bytes, (int64_t)target->banks * target->bank_bytes);
    return staged ? wavefronts * target->costs.wavefront + target->costs.barrier : 0;
}

// Of a warp.
static int64_t access_quarters(const Target *target, const Item *item, const TileAccess *access, const Layout *map) {
    int64_t bytes = type_bytes(access->buf->type), steps = tv_values(map), vector = vector_under(item, map);
    if (access->buf->scope == SCOPE_FRAGMENT) return 0;
    if (access_stride(access, item->loop.iters[item->fast]) != STRIDE_UNIT) vector = 1;
    steps /= vector;
    if (access->buf->scope == SCOPE_GLOBAL) {
        int64_t sectors = pieces_of_warp(target, item, access, map, larger(1, target->sector_bytes / bytes));
        return steps * larger(sectors * target->costs.sector, target->costs.wavefront);
    }
    int64_t vectors = pieces_of_warp(target, item, access, map, vector);
    return steps * ceil_div(vectors * vector * bytes, (int64_t)target->banks * target->bank_bytes) *
           target->costs.wavefront;
}

// ---- arithmetic ----

typedef struct Work {
    const WarpCosts *costs;
    int64_t quarters;
} Work;

static bool is_function(const Expr *expr) {
    if (expr->kind == EXPR_BINARY) return expr->binary.op == BIN_DIV || expr->binary.op == BIN_MOD;
    return expr->kind == EXPR_CALL && op_is(expr->call.op, OP_CLASS_MATH);
}

static bool add_work(Visitor *visitor, Expr *expr) {
    Work *work = visitor->user;
    if (expr->kind == EXPR_LOAD) return false;
    bool leaf = expr->kind == EXPR_INT || expr->kind == EXPR_FLOAT || expr->kind == EXPR_VAR;
    if (!leaf) work->quarters += is_function(expr) ? work->costs->function : work->costs->arithmetic;
    return true;
}

static int64_t loop_quarters(const Target *target, const Item *item, const Layout *map) {
    Work work = {&target->costs, 0};
    visit_block(&(Visitor){.expr = add_work, .user = &work}, (Block *)&item->loop.body);
    int64_t sum = tv_values(map) * work.quarters;
    VEC_EACH (const TileAccess, access, &item->accesses) sum += access_quarters(target, item, access, map);
    return sum;
}

static int64_t stores_quarters(const Target *target, const Item *item, const Layout *map) {
    int64_t sum = 0;
    VEC_EACH (const TileAccess, access, &item->accesses) sum += staging_quarters(target, item, access, map);
    return sum;
}

// Across threads: shuffles for each result that a thread has, then one row of partial results for each warp.
static int64_t across_quarters(Inference *inference, const Item *item, const Layout *map) {
    const Target *target = inference->context->target;
    const Layout *result = item->kind == ITEM_REDUCE ? reduce_result(inference->arena, item->stmt, map) : map;
    int axis = reduce_op_axis(item->stmt);
    if (!result) return INT32_MAX;
    int64_t partials = tv_partials_along(map, axis, target->warp_lanes);
    int64_t results = tv_values(result), rounds = log2_above(ceil_div(tv_threads_along(map, axis), partials));
    int64_t sum = tv_values(map) * target->costs.arithmetic + results * rounds * target->costs.shuffle;
    return partials > 1 ? sum + results * (1 + partials) * target->costs.wavefront : sum;
}

int64_t item_quarters(Inference *inference, const Item *item, const Layout *map) {
    const Target *target = inference->context->target;
    if (!map) return 0;
    int64_t warps = ceil_div(tv_threads(map), target->warp_lanes);
    if (item->kind == ITEM_LOOP) return warps * loop_quarters(target, item, map) + stores_quarters(target, item, map);
    if (item->kind != ITEM_REDUCE && item->kind != ITEM_SCAN) return 0;
    int64_t partials = tv_partials_along(map, reduce_op_axis(item->stmt), target->warp_lanes);
    return warps * across_quarters(inference, item, map) + (partials > 1 ? target->costs.barrier : 0);
}
