// The cost of a cooperative kernel. A step of the loop takes the time of its MMAs, plus the time of the other work that
// warpgroups do not overlap with each other. The more warpgroups, the less of that.
//
//     MMAs         each strip of 64 rows by n columns and `strip_bytes` of k: 2 n clocks; of mma.sync, `products` of them a clock
//     other work   `hidden_clocks` per `hidden_elements` of all tile statements in the loop, divided by the warpgroups
//                  (`work_clocks` per `work_elements` where no MMA overlaps it); nothing where warps skip it nearly always
//     wait         `wait_clocks` per step
//
// A tile adds `tile_clocks` (its first scores and last MMA overlap nothing, its results are written). It adds
// `alone_clocks` if the CTA has one tile, so that no load ran ahead, and `alias_clocks` if the epilogue is staged in
// the operand tile that the next tile waits for. The number of steps is that of the tile in the middle of the grid: if
// it grows along the grid, as with a causal mask, that is the mean. (H200, examples/attention.tile, head dims 64, 128
// and 256, causal or not, lengths 1024, 4096 and 16384: what the model chooses of the tiles that fit has 0.997 of the speed of the
// fastest in the mean, 0.966 at least.)
#include "passes/cost/cost.h"
#include "passes/grid/tile_order.h"
#include "passes/lower/lower.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/builder.h"
#include "passes/tile/tile.h"

typedef struct Sum {
    const Target *target;
    int64_t multiplying;   // clocks
    int64_t products;      // multiplications
    int64_t rows;          // of the first gemm's accumulator
} Sum;

static int64_t fragment_elements(const Region *region) {
    return region && region->buf->scope == SCOPE_FRAGMENT ? buf_elements(region->buf) : 0;
}

static void add_gemm(Arena *arena, Sum *sum, const Stmt *stmt) {
    GemmOp gemm = gemm_of(stmt);
    int64_t m = region_extent(gemm.acc, 0), n = region_extent(gemm.acc, 1), k = region_extent(gemm.a, 1);
    WgmmaInfo info;
    if (wgmma_problem(arena, sum->target, stmt, &info)) {
        const Target *t = sum->target;
        sum->multiplying += m * n * k / (gemm_mma(t, stmt) ? t->wgmma.products : t->warp_lanes * t->partitions);
        return;
    }
    sum->multiplying += m / info.m * k * type_bytes(gemm.a->buf->type) * 2 * n / sum->target->wgmma.strip_bytes;
    sum->products += m * n * k;
    if (!sum->rows) sum->rows = m;
}

static int64_t call_elements(const Stmt *call) {   // of its largest fragment
    int64_t most = 0;
    for (int i = 0; i < call->call.count; i++) most = larger(most, fragment_elements(call->call.args[i].region));
    return most;
}

// For each statement that stores.
static int64_t loop_elements(Arena *arena, const Stmt *loop) {
    int64_t elements = 0, extent;
    FOR_EACH_STMT (stmt, &loop->loop.body) elements += stmt->kind == STMT_STORE;
    if (elements == 0) elements = 1;
    for (int i = 0; i < loop->loop.count; i++)
        if (expr_const(iter_trips(arena, &loop->loop.iters[i]), &extent)) elements *= extent;
    return elements;
}

// The loop that contains the loads.
static const Stmt *find_loop(const Func *kernel) {
    FOR_EACH_STMT (stmt, &func_grid(kernel)->grid.body)
        if (is_pipelined(stmt)) return stmt;
    return NULL;
}

// Elements per warpgroup of the statements between the MMAs.
static int64_t work_elements(Arena *arena, const Target *target, const Func *kernel, Sum *sum) {
    const Stmt *loop = find_loop(kernel);
    int64_t elements = 0;
    *sum = (Sum){.target = target};
    if (!loop) return 0;
    FOR_EACH_STMT (stmt, &loop->loop.body) {
        if (is_call(stmt, OP_GEMM)) add_gemm(arena, sum, stmt);
        else if (stmt->kind == STMT_CALL) elements += call_elements(stmt);
        if (!is_loop(stmt, LOOP_PARALLEL)) continue;
        if (!rescales_seldom(&loop->loop.body, stmt)) elements += loop_elements(arena, stmt);
        SKIP_BODY(stmt);
    }
    return elements / tile_warpgroups(arena, target, kernel);
}

// Of left operands in registers, which threads compute in each step.
static int64_t converted_elements(const Func *kernel) {
    const Stmt *loop = find_loop(kernel);
    int64_t elements = 0;
    if (!loop) return 0;
    FOR_EACH_STMT (stmt, &loop->loop.body)
        if (is_call(stmt, OP_GEMM)) elements += fragment_elements(gemm_of(stmt).a);
    return elements;
}

static int64_t clocks_of(int64_t elements, int64_t clocks, int64_t each) {
    return each > 0 ? elements * clocks / each : 0;
}

static int64_t step_clocks(Arena *arena, const Target *target, const Func *kernel, Sum *sum) {
    int64_t elements = work_elements(arena, target, kernel, sum);
    return sum->multiplying + clocks_of(elements, target->wgmma.hidden_clocks, target->wgmma.hidden_elements);
}

int64_t cooperative_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows) {
    enum { SCALE = 1 << 30 };
    Sum sum;
    int64_t clocks = step_clocks(arena, target, kernel, &sum);
    *rows = sum.rows;
    return sum.products > 0 ? clocks * SCALE / sum.products : INT64_MAX;
}

// ---- kernels that store one tile of a GEMM per CTA ----

typedef struct Result {
    const Stmt *store;
    const Region *product;      // accumulator of the first gemm
    const Region *seen[2][8];   // left and right operands
    int count[2];
    int64_t k[2];   // of the distinct operands
    bool others;
} Result;

static bool same_share(const Region *a, const Region *b) {
    int64_t x = 0, y = 0;
    bool same = a->buf == b->buf && a->count == b->count;
    for (int d = 0; d < a->count && same; d++)
        same = expr_const(a->dims[d].start, &x) == expr_const(b->dims[d].start, &y) && x == y;
    return same;
}

static void add_operand(Result *result, const Region *operand, int side, int64_t k) {
    enum { MOST = COUNT_OF(result->seen[0]) };
    for (int i = 0; i < result->count[side]; i++)
        if (same_share(result->seen[side][i], operand)) return;
    if (result->count[side] < MOST) result->seen[side][result->count[side]++] = operand;
    result->k[side] += k;
}

static Result result_of(const Func *kernel) {
    Result result = {0};
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (match_gemm(stmt, &gemm)) {
            if (!result.product) result.product = gemm.acc;
            add_operand(&result, gemm.a, 0, region_extent(gemm.a, 1));
            add_operand(&result, gemm.b, 1, region_extent(gemm.a, 1));
        }
        if (!is_call(stmt, OP_COPY)) continue;
        if (stmt->call.args[COPY_TO].region->buf->scope != SCOPE_GLOBAL) continue;
        result.others |= result.store || !is_accumulator(kernel, stmt->call.args[COPY_FROM].region->buf);
        result.store = stmt;
    }
    return result;
}

static bool stores_to(const Stmt *stmt, void *buf) {
    return stmt->kind == STMT_STORE && stmt->store.buf == buf;
}

// A loop computes the elements of one fragment from those of the other.
static bool is_made_of(const Func *kernel, Buf *to, const Buf *from) {
    if (to == from) return true;
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_loop(stmt, LOOP_PARALLEL)) continue;
        if (block_any(&stmt->loop.body, stores_to, to) && block_loads(&stmt->loop.body, from)) return true;
        SKIP_BODY(stmt);
    }
    return false;
}

// A warpgroup converts left operands, multiplies and waits, whatever the others do. Of roles that share the steps each has
// some of the slots; with one, it waits for each load.
static int64_t chain_clocks(Arena *arena, const Target *target, const Func *kernel, const Sum *sum) {
    const WgmmaCosts *costs = &target->wgmma;
    int members, warpgroups = cooperative_warpgroups(arena, target, kernel, &members);
    int64_t converted = converted_elements(kernel);
    if (converted == 0) return 0;
    int64_t chain = clocks_of(converted, costs->convert_clocks, costs->convert_elements) + sum->multiplying +
                    costs->convert_step_clocks;
    int64_t issued = clocks_of(converted, costs->convert_issue_clocks, costs->convert_elements);
    bool waits = members > 1 && loop_stages(find_loop(kernel)) / members < 2;
    return larger(chain / warpgroups + (waits ? costs->cache_clocks / members : 0), issued);
}

static bool shares_steps(Arena *arena, const Target *target, const Func *kernel) {
    int members;
    cooperative_warpgroups(arena, target, kernel, &members);
    return members > 1;
}

bool cooperative_tile(Arena *arena, const Target *target, const Func *kernel, int64_t *m, int64_t *n,
                      PingpongCost *cost) {
    Result result = result_of(kernel);
    if (!result.store || result.others || !result.product || !cooperative_equal_tiles(arena, kernel)) return false;
    const Region *from = result.store->call.args[COPY_FROM].region, *to = result.store->call.args[COPY_TO].region;
    int64_t rows = region_extent(from, 0), columns = region_extent(from, 1);
    if (rows != region_extent(result.product, 0) || columns != region_extent(result.product, 1)) return false;
    if (!is_made_of(kernel, from->buf, result.product->buf)) return false;
    bool transposed = to->transposed != from->transposed;
    *m = transposed ? columns : rows;
    *n = transposed ? rows : columns;
    Sum sum;
    *cost = cost_pingpong(arena, target, kernel, tile_warpgroups(arena, target, kernel));
    int64_t elements = work_elements(arena, target, kernel, &sum);
    // Loads are not entirely hidden behind the MMAs: of two tiles with equally long steps, the smaller one is faster.
    cost->step += clocks_of(elements, target->wgmma.work_clocks, target->wgmma.work_elements) +
                  clocks_of(cost->moving, 1, target->wgmma.hidden_share) + target->wgmma.latency_clocks;
    cost->step = larger(cost->step, chain_clocks(arena, target, kernel, &sum));
    // Of roles that share the steps one multiplies while the other one waits for its slot.
    if (shares_steps(arena, target, kernel))
        cost->stream = target->wgmma.memory_clocks / larger(loop_stages(find_loop(kernel)), 1);
    cost->k = smaller(result.k[0], result.k[1]);
    cost->hidden = false;
    return cost->k > 0;
}

// ---- number of steps ----

// For the tile in the middle of the grid; NULL: it depends on values known only in the kernel.
static Expr *steps_of(Arena *arena, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    Subst *middle = subst_new(arena);
    for (int i = 0; i < grid->grid.count; i++) {
        const Iter *iter = &grid->grid.iters[i];
        subst_var(middle, iter->var, e_over(arena, e_sub(arena, iter->end, e_int(arena, 1)), 2));
    }
    return common_value(arena, &grid->grid.body, middle, iter_trips(arena, &find_loop(kernel)->loop.iters[0]));
}

bool cooperative_has_cost(Arena *arena, const Func *kernel) {
    return steps_of(arena, kernel) != NULL;
}

Expr *cost_cooperative(Arena *arena, const Target *target, const Func *kernel, bool aliased, LaunchCost *terms) {
    Sum sum;
    const WgmmaCosts *costs = &target->wgmma;
    TileClaim claim = schedule_of(arena, kernel, &(Specialization){.kind = WS_COOPERATIVE}, 0).claim;
    bool equal = cooperative_equal_tiles(arena, kernel), alone = claim.kind <= CLAIM_ONE;
    *terms = (LaunchCost){.step = step_clocks(arena, target, kernel, &sum) + costs->wait_clocks,
                          .tail = costs->tile_clocks + (alone ? costs->alone_clocks : 0) +
                                  (aliased ? costs->alias_clocks : 0),
                          .tile_rows = 1,
                          .tile_columns = 1,
                          .tile_depth = 1,
                          .balanced = !equal,   // by the hardware's scheduler where each CTA has one tile
                          .uneven = claim.snake ? costs->uneven : 0};
    return steps_of(arena, kernel);
}
