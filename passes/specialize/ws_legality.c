// Why the warpgroups of a kernel cannot work on one point together: statements that they could not share, memory that somebody else
// writes, tiles that are used where they were not loaded.
#include "ir/build.h"
#include "passes/specialize/ws_analysis.h"

// Memory operations with an order, by which blocks work together: the role that computes does them as the block would.
static bool between_blocks(OpId op) {
    return op_is(op, OP_CLASS_ELEMENT) || op == OP_FENCE;
}

static bool is_work(OpId op) {
    switch (op) {
    case OP_COPY:
    case OP_FILL:
    case OP_GEMM:
    case OP_TRANSPOSE:
    case OP_ASSERT:
    case OP_PRINT: return true;
    default: return op_is(op, OP_CLASS_REDUCTION) || between_blocks(op);
    }
}

static const char *product_problem(Plan *plan, const Stmt *gemm) {
    WgmmaInfo info;
    const char *why;
    int64_t rows = region_extent(gemm->call.args[2].region, 0);
    if (!wgmma_serves(plan->target, gemm, &info, &why)) return why;
    if (plan->rows && plan->rows != rows) return "its gemms have different numbers of rows";
    plan->rows = rows;
    int64_t registers = (int64_t)info.m * info.n / target_warpgroup(plan->target);
    if (registers > plan->widest) plan->widest = registers;
    return NULL;
}

static const char *stmt_problem(Plan *plan, const Stmt *stmt) {
    const char *why;
    switch (stmt->kind) {
    case STMT_ROLE:
    case STMT_THREAD: return "the kernel uses thread indices";
    case STMT_FOR:
    case STMT_WHILE: {
        const Block *body = stmt->kind == STMT_FOR ? &stmt->loop.body : &stmt->while_.body;
        bool leaves = block_any(body, loads_tile, NULL) && block_breaks(body);
        return leaves ? "a `break` leaves a loop that loads" : NULL;
    }
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !tile_of(plan, stmt->decl))
            return "it has a shared buffer that is not loaded by `copy` in the loop: use a fragment";
        return NULL;
    case STMT_CALL:
        if (!is_work(stmt->call.op) || stmt->call.is_async) return "the kernel contains explicit synchronization";
        if (loads_tile(stmt, NULL)) return tma_serves(plan->target, stmt, &why) ? NULL : why;
        if (transposes_loaded(stmt, plan)) return NULL;
        if (is_call(stmt, OP_COPY) && stmt->call.args[1].region->buf->scope == SCOPE_SHARED)
            return "a tile is written by other statements than copies";
        return is_call(stmt, OP_GEMM) ? product_problem(plan, stmt) : NULL;
    default: return NULL;
    }
}

// (memory_problem sees what parallel loops do to memory.)
static bool find_problem(Visitor *visitor, Stmt *stmt) {
    Plan *plan = visitor->user;
    if (plan->problem || (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL)) return false;
    plan->problem = stmt_problem(plan, stmt);
    return !plan->problem;
}

static bool find_effect(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool effect = expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && !between_blocks(expr->call.op);
    if (effect && !plan->problem) plan->problem = "the kernel contains explicit synchronization";
    return !plan->problem;
}

static bool find_order(Visitor *visitor, Expr *expr) {
    bool *orders = visitor->user;
    *orders |= expr->kind == EXPR_CALL && between_blocks(expr->call.op);
    return !*orders;
}

static bool find_order_stmt(Visitor *visitor, Stmt *stmt) {
    bool *orders = visitor->user;
    *orders |= stmt->kind == STMT_CALL && between_blocks(stmt->call.op);
    return !*orders;
}

static bool works_with_others(const Block *body) {
    bool orders = false;
    Visitor visitor = {.stmt = find_order_stmt, .expr = find_order, .user = &orders};
    visit_block(&visitor, (Block *)body);
    return orders;
}

// Blocks do not tell each other about what one has read, and it does not come round to its reads again.
static bool reads_before(const Block *body, const Buf *buf) {
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        bool loop = stmt->kind == STMT_WHILE || (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL);
        const Block one = {.items = (Stmt **)&body->items[i], .count = 1, .capacity = 1};
        if (loop && block_uses_buf(&one, buf)) return false;
    }
    return !works_with_others(body);
}

bool written_last(Arena *arena, const Func *kernel, const Buf *buf) {
    const Stmt *grid = func_grid(kernel);
    EffectVec effects = {0};
    int reads = 0, writes = 0;
    path_effects(arena, grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *effect = &effects.items[i];
        if (effect->buf != buf) continue;
        if (writes > 0 || effect->access == ACCESS_UPDATE) return false;
        reads += effect->access == ACCESS_READ;
        writes += effect->access == ACCESS_WRITE;
    }
    return reads == 0 || reads_before(&grid->grid.body, buf);
}

// Only copies write tiles, and nobody writes what they come from. (What else is written to global memory and used again,
// insert-sync orders within the role.)
static const char *memory_problem(Plan *plan) {
    EffectVec effects = {0};
    path_effects(plan->arena, plan->grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (a->access == ACCESS_READ) continue;
        if (a->buf->scope == SCOPE_SHARED && a->op != OP_COPY)
            return "a tile is written by other statements than copies";
        for (int j = 0; j < plan->sources.count; j++)
            if (plan->sources.items[j] == a->buf) return "it writes a tensor that it loads";
    }
    return NULL;
}

static const char *copies_problem(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        Tile *tile = plan->tiles.items[i];
        if (tile->buf->alias_of) return "a tile has an @alias";
        if (!find_live_ranges(plan, tile)) return "a tile is used outside of the block of the copy that loads it";
    }
    return NULL;
}

bool is_transposed_tile(const Plan *plan, const Tile *tile) {
    const LiveRange *range = &tile->live_ranges.items[0];
    return transposes_loaded(range->block->items[range->at], (void *)plan);
}

// What one role transposes another one does not read: a tile that is transposed is used for nothing else, and filled in the same
// block, always by a load or always by transposing.
static const char *transpose_problem(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        const Tile *tile = plan->tiles.items[i];
        bool transposed = is_transposed_tile(plan, tile), read = transpose_copy(plan, tile) != NULL;
        if (transposed && read) return "a tile is transposed twice";
        for (int s = 0; s < tile->live_ranges.count; s++) {
            const LiveRange *range = &tile->live_ranges.items[s];
            const Stmt *fill = range->block->items[range->at];
            if (transposes_loaded(fill, plan) != transposed)
                return "a tile is both loaded and the result of a transpose";
            if (!read) continue;
            const Stmt *waves = range->first >= 0 ? range->block->items[range->first] : NULL;
            if (range->first != range->last || !waves || !transposes_loaded(waves, plan))
                return "a transposed tile is also used untransposed";
        }
    }
    return NULL;
}

const char *plan_problem(Plan *plan) {
    Visitor visitor = {.stmt = find_problem, .expr = find_effect, .user = plan};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    if (plan->problem) return plan->problem;
    if (!plan->rows) return "it has no gemm";
    const char *problem = memory_problem(plan);
    if (!problem) problem = copies_problem(plan);
    return problem || !plan->waves ? problem : transpose_problem(plan);
}
