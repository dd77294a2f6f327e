// Live ranges of fragments, in statements of a block.
#include "passes/analysis/live_ranges.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"

bool is_compound(const Stmt *stmt) {
    Block *bodies[2];
    return !is_loop(stmt, LOOP_PARALLEL) && stmt_bodies((Stmt *)stmt, bodies) > 0;
}

static const Stmt *first_use(Arena *arena, const Block *block, const Buf *buf) {
    FOR_EACH_ITEM (stmt, block)
        if (stmt->kind != STMT_DECL && stmt_touches(arena, stmt, buf)) return stmt;
    return NULL;
}

static bool is_first_product(const Stmt *stmt, const Buf *acc) {   // gemm(.., acc, accumulate = false)
    if (!is_call(stmt, OP_GEMM) || gemm_of(stmt).acc->buf != acc) return false;
    const Expr *accumulate = ARG(stmt, GEMM, accumulate).value;
    return accumulate && expr_is_int(accumulate, 0);
}

// The fragment has no value from before the statement.
static bool defines(Arena *arena, const Stmt *stmt, const Buf *buf) {
    if (is_compound(stmt)) {
        FOR_EACH_BODY (body, stmt) {
            const Stmt *first = first_use(arena, body, buf);
            if (first && !defines(arena, first, buf)) return false;
        }
        return true;
    }
    if (is_first_product(stmt, buf)) return true;
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->buf == buf && effect->access != ACCESS_WRITE) return false;
    return true;
}

LiveRange live_range(Arena *arena, const Block *block, const Buf *buf) {
    LiveRange live = {.first = -1};
    for (int i = 0; i < block->count; i++) {
        if (block->items[i]->kind == STMT_DECL || !stmt_touches(arena, block->items[i], buf)) continue;
        if (live.first < 0) live.first = i;
        live.last = i;
        live.block = block;
    }
    if (live.first < 0 || live.first != live.last || !is_compound(block->items[live.first])) return live;
    const Stmt *only = block->items[live.first];
    bool repeats = only->kind == STMT_FOR || only->kind == STMT_WHILE;
    if (repeats && !defines(arena, only, buf)) return live;
    int bodies = 0;
    LiveRange inner = live;
    FOR_EACH_BODY (body, only) {
        if (!first_use(arena, body, buf)) continue;
        inner = live_range(arena, body, buf);
        bodies++;
    }
    return bodies == 1 ? inner : live;
}
