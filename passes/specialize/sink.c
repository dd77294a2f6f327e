// Cleanup of a consumer's body: a product overwrites its accumulator in place of a fill with zeros; declarations of
// fragments and computations of scalars sink to their uses.
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/specialize/builder.h"

// ---- fills ----

// A fill with zeros is dropped if an MMA can overwrite the accumulator instead: the next statement that touches the
// accumulator, or the first one in a loop that follows and surely runs.

static Stmt *first_touch(const Block *block, int from, const Buf *buf) {
    for (int i = from; i < block->count; i++)
        if (stmt_uses_buf(block->items[i], buf)) return block->items[i];
    return NULL;
}

static bool overwrite(Stmt *stmt, const Buf *buf, Expr *accumulate) {
    GemmOp gemm;
    if (!is_wgmma(stmt) || !match_gemm(stmt, &gemm) || gemm.acc->buf != buf || gemm.accumulate) return false;
    ARG(stmt, GEMM, accumulate) = arg_value(accumulate);
    return true;
}

static bool is_dropped(Arena *arena, const Facts *facts, const Block *block, int at) {
    const Stmt *fill = block->items[at];
    if (!is_zero_fill(fill) || fill_of(fill).dst->buf->scope != SCOPE_FRAGMENT) return false;
    const Buf *buf = fill_of(fill).dst->buf;
    Stmt *next = first_touch(block, at + 1, buf);
    if (!next) return false;
    if (next->kind != STMT_FOR || next->loop.kind == LOOP_PARALLEL) return overwrite(next, buf, e_bool(arena, false));
    const Iter *iter = &next->loop.iters[0];
    Stmt *first = first_touch(&next->loop.body, 0, buf);
    if (next->loop.count != 1 || !prove(facts, e_lt(arena, iter->begin, iter->end))) return false;
    return overwrite(first, buf, e_lt(arena, iter->begin, e_var(arena, iter->var)));
}

void fold_zero_init(Arena *arena, Facts *facts, Block *block) {
    Block kept = {0};
    int mark = facts_mark(facts);
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_scalar(stmt) || is_thread_loop(stmt)) facts_enter(facts, stmt);
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) fold_zero_init(arena, facts, body);
        if (!is_dropped(arena, facts, block, i)) block_push(arena, &kept, stmt);
    }
    facts_release(facts, mark);
    *block = kept;
}

// ---- fragments as deep as their uses ----

// A fragment that the only loop or block that uses it overwrites before reading is declared there: its value is not
// carried across iterations.
static bool overwrites_all(const Stmt *stmt, const Buf *buf) {
    GemmOp gemm;
    CopyOp copy;
    if (match_gemm(stmt, &gemm) && gemm.acc->buf == buf) return gemm.accumulate && expr_is_int(gemm.accumulate, 0);
    if (is_call(stmt, OP_FILL)) return region_is_whole(fill_of(stmt).dst);
    if (!match_copy(stmt, &copy) || copy.src->buf == buf) return false;
    return copy.dst->buf == buf && region_is_whole(copy.dst);
}

static Block *only_user(const Block *block, int from, const Buf *buf) {
    Stmt *user = first_touch(block, from, buf);
    Block *bodies[2];
    if (!user || is_loop(user, LOOP_PARALLEL) || stmt_bodies(user, bodies) != 1) return NULL;
    while (block->items[from] != user) from++;
    return first_touch(block, from + 1, buf) ? NULL : bodies[0];
}

void sink_fragments(Arena *arena, Block *block) {
    Block kept = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *deeper = NULL;
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT)
            deeper = only_user(block, i + 1, stmt->decl);
        if (deeper && overwrites_all(first_touch(deeper, 0, stmt->decl), stmt->decl))
            block_insert(arena, deeper, 0, stmt);
        else block_push(arena, &kept, stmt);
    }
    *block = kept;
    FOR_EACH_ITEM (stmt, block)
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) sink_fragments(arena, body);
}

// ---- scalars as late as their uses ----

// Scalars that only the epilogue needs (addresses of results) are computed while the last MMAs run: behind the last
// loop before the first use, and behind the statements after it that start MMAs, wait or arrive.

// The expression names the variable of the let, or a variable of the assumption.
static bool is_named(const Expr *expr, const void *scalar) {
    const Stmt *stmt = scalar;
    if (expr->kind != EXPR_VAR) return false;
    if (stmt->kind == STMT_LET) return expr->var == stmt->let.var;
    return expr->var->kind == VAR_LET && expr_uses_var(stmt->assume, expr->var);
}

static bool starts(const Stmt *stmt, const Map *consumes) {
    return via_is(stmt, VIA_WGMMA) || map_has(consumes, stmt) || is_call(stmt, OP_MBARRIER_WAIT);
}

void sink_scalars(Arena *arena, Block *block, const Map *consumes) {
    for (int i = block->count - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        if (!is_scalar(stmt) || !expr_is_stable(stmt->kind == STMT_LET ? stmt->let.value : stmt->assume)) continue;
        int to = i + 1, use = i + 1;
        while (use < block->count && !stmt_any_expr(block->items[use], is_named, stmt)) use++;
        for (int j = i + 1; j < use; j++)
            if (is_thread_loop(block->items[j])) to = j + 1;
        if (to == i + 1 || use == block->count) continue;
        while (to < use && starts(block->items[to], consumes)) to++;
        block_insert(arena, block, to, stmt);
        block_remove(block, i);
    }
}
