// Multicast: tiles that several CTAs of a cluster read.
//
// The CTAs of `cluster (x, y)` compute x neighbouring tiles along the first name of the grid and y along the second. A
// tile that does not depend on the first name is the same for x CTAs with adjacent ranks; one that does not depend on
// the second, for y CTAs with ranks x apart. warp-specialize lets one of them load it for all (`@multicast`).
//
//     grid (bm in X, bn in Y) cluster (2, 1):     A[bm * BM, ..] one load per CTA,  B[bn * BN, ..] @multicast(2, 1)
//
// Clusters form a grid of their own, in raster order. Where a cluster extends beyond the end of the grid, its CTAs
// outside take part in all loads and products, and skip the stores.
#include "passes/analyses.h"
#include "passes/grid/tile_scheduler.h"
#include "passes/lower/lower.h"
#include "passes/specialize/warp_specialize.h"

enum { SHARED_NAMES = 2 };

typedef struct Share {
    Scheduler *s;
    Subst *lets;
    bool some, differ;   // there is such a tile; blocks take unequally many steps, or nobody knows
} Share;

typedef struct Dependence {
    const Var *iter;
    bool found;
} Dependence;

static bool find_dependence(Visitor *visitor, Expr *expr) {
    Dependence *dependence = visitor->user;
    bool unknown = expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    if (expr->kind == EXPR_VAR)
        unknown = expr->var == dependence->iter || expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE;
    dependence->found |= unknown;
    return !dependence->found;
}

static bool depends_on(const Share *share, int name, Expr *expr) {
    Dependence dependence = {.iter = share->s->grid->grid.iters[name].var};
    Visitor visitor = {.expr = find_dependence, .user = &dependence};
    visit_expr(&visitor, subst_expr(share->lets, expr));
    return dependence.found;
}

static bool find_impure(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    *found |= expr->kind == EXPR_CALL && !op_is_pure(expr->call.op);
    return !*found;
}

static int cluster_blocks(const Stmt *grid) {
    int blocks = 1;
    for (int d = 0; d < 3; d++) blocks *= grid->grid.cluster[d] > 1 ? grid->grid.cluster[d] : 1;
    return blocks;
}

static bool share_copy(Visitor *visitor, Stmt *stmt) {
    Share *share = visitor->user;
    const Stmt *grid = share->s->grid;
    if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value))
        subst_var(share->lets, stmt->let.var, subst_expr(share->lets, stmt->let.value));
    if (stmt->kind == STMT_LET) visit_expr(&(Visitor){.expr = find_impure, .user = &share->differ}, stmt->let.value);
    for (int d = 0; stmt->kind == STMT_ASSUME && d < SHARED_NAMES; d++)   // beyond the grid's end nobody promised it
        share->differ |= grid->grid.cluster[d] > 1 && depends_on(share, d, stmt->assume);
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PIPELINED)
        for (int d = 0; d < SHARED_NAMES; d++)
            share->differ |= grid->grid.cluster[d] > 1 && depends_on(share, d, stmt->loop.iters[0].end);
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_COPY) return true;
    const Region *from = stmt->call.args[COPY_FROM].region, *to = stmt->call.args[COPY_TO].region;
    if (from->buf->scope != SCOPE_GLOBAL || to->buf->scope != SCOPE_SHARED) return true;
    int64_t numbers[] = {1, 1};   // blocks, apart
    for (int d = 0; d < SHARED_NAMES; d++) {
        bool moves = grid->grid.cluster[d] <= 1;
        for (int r = 0; r < from->count && !moves; r++) moves = depends_on(share, d, from->dims[r].start);
        if (moves) continue;
        if (numbers[0] == 1 && d == 1) numbers[1] = grid->grid.cluster[0];
        numbers[0] *= grid->grid.cluster[d];
    }
    if (numbers[0] == 1) return true;
    attr_set_ints(share->s->arena, &stmt->attrs, ATTR_MULTICAST, COUNT_OF(numbers), numbers);
    return share->some = true;
}

static bool drop_share(Visitor *visitor, Stmt *stmt) {
    (void)visitor;
    attr_remove(&stmt->attrs, ATTR_MULTICAST);
    return true;
}

bool loads_shared(const Stmt *stmt, void *user) {
    (void)user;
    return attr_get(stmt->attrs, ATTR_MULTICAST) != NULL;
}

const char *share_tiles(Scheduler *s, Func *kernel) {
    const Stmt *grid = s->grid;
    Share share = {.s = s, .lets = subst_new(s->arena)};
    Visitor visitor = {.stmt = share_copy, .user = &share}, drop = {.stmt = drop_share, .user = &share};
    if (!has_cluster(grid)) return "there is none";
    if (kernel_specialization(s->context, kernel)->kind != WS_PINGPONG)
        return "only ping-pong GEMMs use multicast, and no operation reaches another CTA of the cluster";
    if (grid->grid.cluster[2] > 1 || grid->grid.count < SHARED_NAMES)
        return "multicast needs a grid of two or more names, and a cluster along the first two";
    if (cluster_blocks(grid) > s->context->target->max_cluster) return "it is larger than the target's";
    visit_block(&visitor, &kernel->body);
    if (share.some && !share.differ) return NULL;
    visit_block(&drop, &kernel->body);
    return share.some
               ? "the trip counts of its CTAs may differ, or an `assume` need not hold for tiles outside of the grid"
               : "its CTAs read no tile in common";
}

static void bind_in_cluster(Scheduler *s, Expr *rank, const Iter *clusters) {
    Arena *a = s->arena;
    int64_t rank_stride = 1;
    for (int d = 0; d < SHARED_NAMES; d++) {
        int extent = s->grid->grid.cluster[d];
        if (extent <= 1) continue;
        Expr *place = e_mod(a, e_div(a, rank, e_int(a, rank_stride)), e_int(a, extent));
        Expr *first = e_mul(a, e_var(a, clusters[d].var), e_int(a, extent));
        bind_iter(s, d, e_add(a, first, place), e_mul(a, clusters[d].end, e_int(a, extent)));
        rank_stride *= extent;
    }
}

// Of clusters that may hang over the grid's end, whether the point is within it; NULL: all are.
static Expr *tile_within(Scheduler *s, const Iter *own) {
    Arena *a = s->arena;
    Expr *within = NULL;
    for (int d = 0; d < SHARED_NAMES; d++) {
        int64_t extent = s->grid->grid.cluster[d];
        if (extent <= 1 || multiple_of(s->facts, own[d].end) % extent == 0) continue;
        Expr *below = e_lt(a, e_var(a, own[d].var), own[d].end);
        within = within ? e_and(a, within, below) : below;
    }
    return within;
}

// Its effect outlasts the block.
static bool is_seen(const Stmt *stmt, void *user) {
    EffectVec effects = {0};
    if (stmt->kind == STMT_CALL && (stmt->call.op == OP_PRINT || stmt->call.op == OP_ASSERT)) return true;
    stmt_effects(user, stmt, &effects);
    for (int i = 0; i < effects.count; i++)
        if (effects.items[i].buf && effects.items[i].buf->scope == SCOPE_GLOBAL &&
            effects.items[i].access != ACCESS_READ)
            return true;
    return false;
}

static void leave_beyond(Scheduler *s, Expr *within, Block *work) {
    for (int i = 0; within && i < work->count; i++) {
        Stmt *stmt = work->items[i];
        Block alone = {.items = &work->items[i], .count = 1, .capacity = 1};
        if (!block_any(&alone, is_seen, s->arena)) continue;
        Stmt *guard = s_if(s->arena, within);
        guard->loc = stmt->loc;
        block_push(s->arena, &guard->if_.then, stmt);
        work->items[i] = guard;
    }
}

void flatten_shared(Scheduler *s) {
    static const char *const names[SHARED_NAMES] = {"cluster_row", "cluster_column"};
    Arena *a = s->arena;
    Stmt *grid = s->grid;
    int blocks = cluster_blocks(grid);
    Iter *own = grid->grid.iters, *clusters = arena_copy(a, own, sizeof *own * (size_t)grid->grid.count);
    for (int d = 0; d < SHARED_NAMES; d++) {
        if (grid->grid.cluster[d] <= 1) continue;
        clusters[d].var = var_new(a, names[d], VAR_ITER, TYPE_I64, grid->loc);
        clusters[d].end = e_call2(a, OP_CEILDIV, own[d].end, e_int(a, grid->grid.cluster[d]));
    }
    Var *block = var_new(a, "block", VAR_ITER, TYPE_I64, grid->loc);
    Expr *number = e_var(a, block), *size = e_int(a, blocks), *limit = e_int(a, s->context->target->max_grid);
    Block body = {0}, work = {0};
    split_declarations(a, &grid->grid.body, &body, &work);
    push_assume(s, e_lt(a, number, limit));
    Expr *raster = raster_of(s);   // of so many rows of points, as far as clusters go
    if (raster)
        grid->grid.raster =
            e_call2(a, OP_CEILDIV, raster, e_int(a, grid->grid.cluster[0] > 1 ? grid->grid.cluster[0] : 1));
    grid->grid.iters = clusters;
    Expr *tiles = e_mul(a, grid_tiles(s), size), *cluster = bind_name(s, "cluster", e_div(a, number, size));
    assume_within(s, cluster, limit);
    decompose(s, cluster);
    grid->grid.iters = own;
    bind_in_cluster(s, e_mod(a, number, size), clusters);
    leave_beyond(s, tile_within(s, own), &work);
    block_append(a, &body, &s->top);
    block_append(a, &body, &work);
    grid->grid.body = body;
    set_iter(s, block, tiles);
    set_cluster(grid, blocks);
    grid->grid.persistent = false;
    drop_raster(grid);
}
