// Multicast: tiles that several CTAs of a cluster read.
//
// The CTAs of `cluster (x, y)` compute x neighbouring tiles along the first name of the grid and y along the second. A
// tile that does not depend on the first name is the same for x CTAs with adjacent ranks; one that does not depend on
// the second, for y CTAs with ranks x apart. warp-specialize lets one of them load it for all (`@multicast`).
//
//     grid (bm in X, bn in Y) cluster (2, 1):     A[bm * BM, ..] one load per CTA,  B[bn * BN, ..] @multicast(2, 1)
//
// With `@cluster` a launch chooses among shapes (`@cluster(2, 1) @cluster(1, 2) ..`), and the kernel asks for its extents
// (cluster_extent): copies say along which name they are shared (`@multicast_along`), of whatever number of CTAs that is.
//
// Clusters form a grid of their own, in raster order. If a cluster extends beyond the end of the grid, its CTAs outside
// execute all loads and MMAs, and skip the stores.
#include "passes/grid/multicast.h"
#include "passes/grid/tile_scheduler.h"
#include "passes/specialize/warp_specialize.h"
#include "support/numbers.h"

enum { SHARED_NAMES = CLUSTER_NAMES, GRID_NAMES = 3 };   // without operations that reach other CTAs, and with them

typedef struct Share {
    Arena *arena;
    const Stmt *grid;
    Subst *lets;
    bool shared[GRID_NAMES];          // along the name some tile is
    bool differs[GRID_NAMES], open;   // along it CTAs have different trip counts; they are unknown
} Share;

static bool may_depend(const Expr *expr, const void *var) {
    if (expr->kind == EXPR_VAR) return expr->var == var || expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE;
    return expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
}

// The value differs along the name, or is unknown.
static bool varies(const Share *share, int name, Expr *expr) {
    return any_expr(subst_expr(share->lets, expr), may_depend, share->grid->grid.iters[name].var);
}

// A dim of the cluster has several CTAs, and the value differs between them.
static bool differs(const Share *share, int dim, Expr *expr) {
    return cluster_most(share->grid, dim) > 1 && varies(share, dim, expr);
}

static bool moves_along(const Share *share, const Stmt *copy, int name) {
    const Region *from = ARG(copy, COPY, src).region;
    for (int r = 0; r < from->count; r++)
        if (varies(share, name, from->dims[r].start)) return true;
    return false;
}

// The tile is the same for all CTAs of the cluster along the name.
static bool is_shared_along(const Share *share, const Stmt *copy, int name) {
    return cluster_most(share->grid, name) > 1 && !moves_along(share, copy, name);
}

static int shared_names(const Share *share) {
    return share->grid->grid.count < GRID_NAMES ? share->grid->grid.count : GRID_NAMES;
}

// Of a tile that does not move along some dims of the cluster one CTA loads for all of them, if their ranks have one stride. Out: their
// number, and the stride.
static void sharing(const Share *share, const Stmt *copy, int64_t numbers[2]) {
    int64_t ranks = 1;
    numbers[0] = numbers[1] = 1;
    for (int d = 0; d < shared_names(share); d++) {
        bool next = numbers[0] == 1 || numbers[0] * numbers[1] == ranks;
        if (next && is_shared_along(share, copy, d)) {
            if (numbers[0] == 1) numbers[1] = ranks;
            numbers[0] *= share->grid->grid.cluster[d];
        }
        ranks *= larger(share->grid->grid.cluster[d], 1);
    }
}

static void share_stmt(Share *share, const Stmt *stmt) {
    if (stmt->kind == STMT_LET) {
        bool known = !expr_is_stable(stmt->let.value) || subst_let(share->lets, stmt->let.var, stmt->let.value);
        share->open |= !known || !expr_is_pure(stmt->let.value);
    }
    for (int d = 0; d < shared_names(share); d++) {
        if (stmt->kind == STMT_ASSUME)
            share->differs[d] |= differs(share, d, stmt->assume);   // it need not hold outside of the grid
        if (is_loop(stmt, LOOP_PIPELINED)) share->differs[d] |= differs(share, d, stmt->loop.iters[0].end);
        share->shared[d] |= is_global_to_shared_copy(stmt) && is_shared_along(share, stmt, d);
    }
}

static bool shares_some(const Share *share) {
    bool some = false;
    for (int d = 0; d < GRID_NAMES; d++) some |= share->shared[d];
    return some;
}

static bool sharers_differ(const Share *share) {
    bool differ = share->open;
    for (int d = 0; d < GRID_NAMES; d++) differ |= share->shared[d] && share->differs[d];
    return differ;
}

static Share share_of(Arena *arena, const Func *kernel) {
    Share share = {.arena = arena, .grid = func_grid(kernel), .lets = subst_new(arena)};
    FOR_EACH_STMT (stmt, &kernel->body) share_stmt(&share, stmt);
    return share;
}

// The effect is visible outside of the CTA.
static bool is_seen(Arena *arena, const Stmt *stmt) {
    FOR_EACH_STMT_IN (below, stmt)
        if (is_call(below, OP_PRINT) || is_call(below, OP_ASSERT)) return true;
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->buf->scope == SCOPE_GLOBAL && effect->access != ACCESS_READ) return true;
    return false;
}

// Before the loop: what others see is left out for a tile beyond the grid, the rest is done.
static bool may_fail_before_loop(Arena *arena, const Func *kernel) {
    FOR_EACH_ITEM (stmt, &func_grid(kernel)->grid.body) {
        if (is_loop(stmt, LOOP_PIPELINED)) return false;
        if (!is_seen(arena, stmt) && may_fail_beyond_grid(kernel, stmt)) return true;
    }
    return false;
}

static const char *const other_kernel =
    "multicast needs a loop whose tiles TMA loads and whose steps only compute with them by wgmma, "
    "and no operation that reaches another CTA of the cluster";

// The load roles of a cluster's CTAs go through the same tiles and steps, and a step only computes with what they load.
static bool loads_in_step(const Target *target, const Func *kernel) {
    TileClaim claim = grid_claim(func_grid(kernel));
    return claim.kind != CLAIM_DYNAMIC && !claim.snake && loads_in_one_loop(target, kernel);
}

// Out: what the statements of the kernel say, if the cluster can share tiles.
static const char *problem_of(Arena *arena, const Target *target, const Func *kernel, Share *share) {
    const Stmt *grid = func_grid(kernel);
    if (grid->grid.count < SHARED_NAMES || (grid->grid.cluster[2] > 1 && func_cluster(kernel) == 1))
        return "multicast needs a grid of two or more names, and a cluster along the first two";
    if (!loads_in_step(target, kernel)) return other_kernel;
    if (may_fail_before_loop(arena, kernel))
        return "what it does before its loop may fail for tiles outside of the grid";
    if (cluster_largest(grid) > target->max_cluster) return "it is larger than the target's";
    *share = share_of(arena, kernel);
    if (!shares_some(share)) return "its CTAs read no tile in common";
    if (chooses_cluster(grid) && !multicast_chooses(arena, kernel)) return "all CTAs of a cluster read the same tile";
    return sharers_differ(share)
               ? "the trip counts of its CTAs may differ, or an `assume` need not hold for tiles outside of the grid"
               : NULL;
}

const char *multicast_problem(Arena *arena, const Target *target, const Func *kernel) {
    Share share;
    return problem_of(arena, target, kernel, &share);
}

bool multicast_chooses(Arena *arena, const Func *kernel) {
    Share share = share_of(arena, kernel);
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_global_to_shared_copy(stmt) && is_shared_along(&share, stmt, 0) && is_shared_along(&share, stmt, 1))
            return false;
    return true;
}

bool moves_along_second(Arena *arena, const Func *kernel, const Stmt *copy) {
    Share share = {.arena = arena, .grid = func_grid(kernel), .lets = subst_new(arena)};
    if (share.grid->grid.count < SHARED_NAMES) return false;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value))
            subst_let(share.lets, stmt->let.var, stmt->let.value);
    return !moves_along(&share, copy, 0) && moves_along(&share, copy, 1);
}

const char *share_tiles(Scheduler *s, Func *kernel) {
    if (grid_cluster(s->grid) == 1) return "there is none";
    if (planned_kind(kernel) == WS_NONE) return other_kernel;
    Share share;
    const char *problem = problem_of(s->arena, s->context->target, kernel, &share);
    if (problem) return problem;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        int64_t numbers[2];   // CTAs, rank stride
        if (!is_global_to_shared_copy(stmt)) continue;
        for (int d = 0; d < SHARED_NAMES && chooses_cluster(s->grid); d++)
            if (is_shared_along(&share, stmt, d)) attr_set_int(s->arena, &stmt->attrs, ATTR_MULTICAST_ALONG, d + 1);
        if (chooses_cluster(s->grid)) continue;
        sharing(&share, stmt, numbers);
        if (numbers[0] > 1) attr_set_ints(s->arena, &stmt->attrs, ATTR_MULTICAST, COUNT_OF(numbers), numbers);
    }
    return NULL;
}

static void bind_in_cluster(Scheduler *s, Expr *rank, const Iter *clusters) {
    Arena *a = s->arena;
    Expr *rank_stride = NULL;
    for (int d = 0; d < SHARED_NAMES; d++) {
        Expr *extent = cluster_along(s, d);
        if (!extent) continue;
        Expr *place = e_mod(a, rank_stride ? e_div(a, rank, rank_stride) : rank, extent);
        Expr *first = e_mul(a, e_var(a, clusters[d].var), extent);
        bind_iter(s, d, e_add(a, first, place), e_mul(a, clusters[d].end, extent));
        rank_stride = rank_stride ? e_mul(a, rank_stride, extent) : extent;
    }
}

// The condition that the tile is within the grid, for clusters that may extend beyond its end; NULL: all are.
static Expr *tile_within(Scheduler *s, const Iter *own) {
    Arena *a = s->arena;
    Expr *within = NULL;
    for (int d = 0; d < SHARED_NAMES; d++) {
        Expr *extent = cluster_along(s, d);
        int64_t fixed = 0;
        if (!extent || (expr_const(extent, &fixed) && multiple_of(s->facts, own[d].end) % fixed == 0)) continue;
        within = e_both(a, within, e_lt(a, e_var(a, own[d].var), own[d].end));
    }
    return within;
}

// What is behind the loop of loads is done under one condition: loops over the results' elements stay next to the stores that
// they are fused with.
static void leave_beyond(Scheduler *s, Expr *within) {
    if (!within) return;
    Block out = {0}, *body = &s->grid->grid.body;
    Stmt *behind = s_if(s->arena, within);
    bool loaded = false;
    FOR_EACH_ITEM (stmt, body) {
        bool before = !loaded && is_seen(s->arena, stmt);
        if (loaded) block_push(s->arena, &behind->if_.then, stmt);
        else block_push(s->arena, &out, before ? s_if_only(s->arena, within, stmt) : stmt);
        loaded |= is_loop(stmt, LOOP_PIPELINED);
    }
    if (behind->if_.then.count > 0) block_push(s->arena, &out, behind);
    *body = out;
}

// Rows of clusters in a raster group: as many rows of tiles as without, as far as possible.
static Expr *raster_rows(Scheduler *s) {
    Expr *rows = e_int(s->arena, s->order.rows), *extent = cluster_along(s, 0);
    return extent ? e_call2(s->arena, OP_CEILDIV, rows, extent) : rows;
}

void flatten_shared(Scheduler *s) {
    static const char *const names[SHARED_NAMES] = {"cluster_row", "cluster_column"};
    Arena *a = s->arena;
    Stmt *grid = s->grid;
    int blocks = grid_cluster(grid);
    EXPECT(s->context->failure, grid->grid.count >= SHARED_NAMES && grid->grid.cluster[2] <= 1,
           "tiles are shared along the first %d names", SHARED_NAMES);
    Iter *own = grid->grid.iters, *clusters = arena_copy(a, own, sizeof *own * (size_t)grid->grid.count);
    for (int d = 0; d < SHARED_NAMES; d++) {
        Expr *extent = cluster_along(s, d);
        if (!extent) continue;
        clusters[d].var = var_new(a, names[d], VAR_ITER, TYPE_I64, grid->loc);
        clusters[d].end = e_call2(a, OP_CEILDIV, own[d].end, extent);
    }
    Var *block = var_new(a, "block", VAR_ITER, TYPE_I64, grid->loc);
    Expr *number = e_var(a, block), *limit = e_int(a, s->context->target->max_grid);
    Expr *size = chooses_cluster(grid) ? e_cluster_ctas(a) : e_int(a, blocks);
    push_assume(s, e_lt(a, number, limit));
    if (s->order.kind == ORDER_RASTER) s->raster = bind_name(s, "raster", raster_rows(s));
    grid->grid.iters = clusters;
    Expr *tiles = e_mul(a, grid_tiles(a, grid), size), *cluster = bind_name(s, "cluster", e_div(a, number, size));
    assume_within(s, cluster, limit);
    decompose(s, cluster);
    grid->grid.iters = own;
    bind_in_cluster(s, e_mod(a, number, size), clusters);
    leave_beyond(s, tile_within(s, own));
    set_grid(s, block, tiles);
    set_cluster(grid, blocks);
    set_order(a, grid, (TileOrder){0});
}
