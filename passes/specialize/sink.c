// Cleanup of a consumer's body: a product overwrites its accumulator in place of a fill with zeros; declarations of
// fragments and computations of scalars sink to their uses.
#include "ir/build.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/specialize/builder.h"

// ---- fills ----

// An accumulator that is filled with zeros for a product that can overwrite it instead: the next statement that touches
// it, or the first that does in a loop which is next, and runs.
typedef struct Overwrites {
    Arena *arena;
    Facts *facts;
} Overwrites;

static bool is_zero_fill(const Stmt *stmt) {
    if (!is_call(stmt, OP_FILL) || !region_is_whole(stmt->call.args[0].region)) return false;
    if (stmt->call.args[0].region->buf->scope != SCOPE_FRAGMENT) return false;
    const Expr *value = stmt->call.args[1].value;
    return value->kind == EXPR_FLOAT ? value->real == 0 : expr_is_int(value, 0);
}

static Stmt *first_touch(const Block *block, int from, const Buf *buf) {
    for (int i = from; i < block->count; i++) {
        if (stmt_uses_buf(block->items[i], buf)) return block->items[i];
    }
    return NULL;
}

static bool overwrite(Stmt *gemm, const Buf *buf, Expr *accumulate) {
    enum { ACC = 2, ACCUMULATE = 4 };
    if (!is_call(gemm, OP_GEMM) || gemm->call.args[ACC].region->buf != buf || gemm->call.args[ACCUMULATE].value)
        return false;
    gemm->call.args[ACCUMULATE] = arg_value(accumulate);
    return true;
}

static bool is_dropped(Overwrites *o, const Block *block, int at) {
    Stmt *fill = block->items[at];
    if (!is_zero_fill(fill)) return false;
    const Buf *buf = fill->call.args[0].region->buf;
    Stmt *next = first_touch(block, at + 1, buf);
    if (!next) return false;
    if (next->kind != STMT_FOR || next->loop.kind == LOOP_PARALLEL)
        return overwrite(next, buf, e_bool(o->arena, false));
    const Iter *iter = &next->loop.iters[0];
    Stmt *first = first_touch(&next->loop.body, 0, buf);
    if (next->loop.count != 1 || !prove(o->facts, e_lt(o->arena, iter->begin, iter->end))) return false;
    return overwrite(first, buf, e_lt(o->arena, iter->begin, e_var(o->arena, iter->var)));
}

static void drop_in_block(Overwrites *o, Block *block) {
    Block kept = {0};
    int mark = facts_mark(o->facts);
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_scalar(stmt) || (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL))
            facts_enter(o->facts, stmt);
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) drop_in_block(o, body);
        if (!is_dropped(o, block, i)) block_push(o->arena, &kept, stmt);
    }
    facts_release(o->facts, mark);
    *block = kept;
}

void fold_zero_init(Arena *arena, Facts *facts, Block *block) {
    Overwrites overwrites = {arena, facts};
    drop_in_block(&overwrites, block);
}

// ---- fragments as deep as their uses ----

// A fragment that is overwritten before it is read in the one loop or block that uses it is declared there: nothing of
// it is carried from one iteration to the next.
static bool overwrites_all(const Stmt *stmt, const Buf *buf) {
    enum { ACC = 2, ACCUMULATE = 4 };
    if (is_call(stmt, OP_GEMM) && stmt->call.args[ACC].region->buf == buf)
        return stmt->call.args[ACCUMULATE].value && expr_is_int(stmt->call.args[ACCUMULATE].value, 0);
    if (is_call(stmt, OP_FILL)) return region_is_whole(stmt->call.args[0].region);
    if (!is_call(stmt, OP_COPY) || stmt->call.args[0].region->buf == buf) return false;
    return stmt->call.args[1].region->buf == buf && region_is_whole(stmt->call.args[1].region);
}

static Block *only_user(const Block *block, int from, const Buf *buf) {
    Stmt *user = NULL;
    for (int i = from; i < block->count; i++) {
        if (!stmt_uses_buf(block->items[i], buf)) continue;
        if (user) return NULL;
        user = block->items[i];
    }
    Block *bodies[2];
    if (!user || is_loop(user, LOOP_PARALLEL)) return NULL;
    return stmt_bodies(user, bodies) == 1 ? bodies[0] : NULL;
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
    for (int i = 0; i < block->count; i++) {
        if (is_loop(block->items[i], LOOP_PARALLEL)) continue;
        FOR_EACH_BODY (body, block->items[i]) sink_fragments(arena, body);
    }
}

// ---- scalars as late as their uses ----

// What only the end of a point needs to know (where its results go) is computed there, while the last products run:
// behind the last loop before the first use, and what starts there.

typedef struct Names {
    const Stmt *stmt;
    bool found;
} Names;

static bool find_name(Visitor *visitor, Expr *expr) {
    Names *names = visitor->user;
    if (expr->kind == EXPR_VAR && names->stmt->kind == STMT_LET) names->found |= expr->var == names->stmt->let.var;
    if (expr->kind == EXPR_VAR && names->stmt->kind == STMT_ASSUME)
        names->found |= expr->var->kind == VAR_LET && expr_uses_var(names->stmt->assume, expr->var);
    return !names->found;
}

static bool needs(const Stmt *stmt, const Stmt *scalar) {
    Names names = {scalar, false};
    Visitor visitor = {.expr = find_name, .user = &names};
    visit_stmt(&visitor, (Stmt *)stmt);
    return names.found;
}

static bool starts(const Stmt *stmt, const Map *consumes) {
    return via_is(stmt, VIA_WGMMA) || map_has(consumes, stmt) || is_call(stmt, OP_MBARRIER_WAIT);
}

void sink_scalars(Arena *arena, Block *block, const Map *consumes) {
    for (int i = block->count - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        if (!is_scalar(stmt) || !expr_is_stable(stmt->kind == STMT_LET ? stmt->let.value : stmt->assume)) continue;
        int to = i + 1, use = i + 1;
        while (use < block->count && !needs(block->items[use], stmt)) use++;
        for (int j = i + 1; j < use; j++)
            if (block->items[j]->kind == STMT_FOR && block->items[j]->loop.kind != LOOP_PARALLEL) to = j + 1;
        if (to == i + 1 || use == block->count) continue;
        while (to < use && starts(block->items[to], consumes)) to++;
        block_insert(arena, block, to, stmt);
        block_remove(block, i);
    }
}
