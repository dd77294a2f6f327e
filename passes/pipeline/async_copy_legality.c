#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/bulk.h"

int64_t loop_stages(const Stmt *loop) {
    int64_t stages = 1;
    if (!is_loop(loop, LOOP_PIPELINED)) return 1;
    if (loop->loop.stages) expr_const(loop->loop.stages, &stages);
    return stages < 1 ? 1 : stages;
}

Buf *async_target(const Stmt *stmt) {
    if (!via_is(stmt, VIA_CP_ASYNC) && !via_is(stmt, VIA_TMA) && !by_bulk(stmt)) return NULL;
    if (is_call(stmt, OP_COPY)) {
        Buf *to = stmt->call.args[1].region->buf;
        return to->scope == SCOPE_SHARED ? to : NULL;
    }
    if (stmt->kind != STMT_FOR || stmt->loop.body.count != 1) return NULL;
    const Stmt *store = stmt->loop.body.items[0];
    return store->kind == STMT_STORE ? store->store.buf : NULL;
}

static bool whole_dim(const RegionDim *dim, const Expr *shape) {
    return dim->extent && expr_is_int(dim->start, 0) && expr_equal(dim->extent, shape);
}

static bool copy_fills(const Region *region, const Buf *buf) {
    for (int d = buf->stage_dims; d < region->count; d++)
        if (!whole_dim(&region->dims[d], buf->shape[d])) return false;
    return true;
}

// A gather stores at [i, j], its own iterators, over the buffer's extents.
static bool gather_fills(const Stmt *loop, const Buf *buf) {
    const Stmt *store = loop->loop.body.items[0];
    if (loop->loop.count != buf->rank - buf->stage_dims) return false;
    for (int d = 0; d < loop->loop.count; d++) {
        const Iter *iter = &loop->loop.iters[d];
        const Expr *index = store->store.indices[buf->stage_dims + d];
        if (index->kind != EXPR_VAR || index->var != iter->var) return false;
        if (!expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
        if (!expr_equal(iter->end, buf->shape[buf->stage_dims + d])) return false;
    }
    return true;
}

bool fills_whole(const Stmt *copy, const Buf *buf) {
    return copy->kind == STMT_CALL ? copy_fills(copy->call.args[1].region, buf) : gather_fills(copy, buf);
}

// ---- what a statement depends on ----

typedef struct Needs {
    Map *vars;   // named in its expressions
    Map *bufs;   // read
} Needs;

static bool needs_expr(Visitor *visitor, Expr *expr) {
    Needs *needs = visitor->user;
    if (expr->kind == EXPR_VAR) map_put(needs->vars, expr->var, expr->var);
    if (expr->kind == EXPR_LOAD) map_put(needs->bufs, buf_root(expr->load.buf), expr->load.buf);
    return true;
}

static void needs_region(Visitor *visitor, Region *region, const Operand *operand) {
    Needs *needs = visitor->user;
    if (operand && operand->access != ACCESS_WRITE) map_put(needs->bufs, buf_root(region->buf), region->buf);
}

static void needs_of(Needs *needs, Stmt *stmt) {
    Visitor visitor = {.expr = needs_expr, .region = needs_region, .user = needs};
    visit_stmt(&visitor, stmt);
}

// The lets before statement `at` that it needs, marked in `taken`; `needs` becomes what all of them need together.
static void close_over_lets(Needs *needs, const Block *body, int at, bool *taken) {
    needs_of(needs, body->items[at]);
    for (int i = at - 1; i >= 0; i--) {
        Stmt *stmt = body->items[i];
        taken[i] = stmt->kind == STMT_LET && map_has(needs->vars, stmt->let.var);
        if (taken[i]) needs_of(needs, stmt);
    }
}

typedef struct Conflict {
    const Needs *needs;
    const Stmt *copy;
    const char *reason;
} Conflict;

static bool conflict_stmt(Visitor *visitor, Stmt *stmt) {
    Conflict *conflict = visitor->user;
    bool sets = stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
    if (sets && map_has(conflict->needs->vars, stmt->let.var)) conflict->reason = "its indices depend on a `var`";
    return true;
}

const char *stays_reason(Arena *arena, const Stmt *loop, int at) {
    const Block *body = &loop->loop.body;
    Needs needs = {map_new(arena), map_new(arena)};
    bool *taken = NEW_ARRAY(arena, bool, body->count);
    close_over_lets(&needs, body, at, taken);
    for (int i = 0; i < at; i++)
        if (taken[i] && !expr_is_pure(body->items[i]->let.value)) return "its indices depend on an atomic operation";
    Conflict conflict = {&needs, body->items[at], NULL};
    Visitor visitor = {.stmt = conflict_stmt, .user = &conflict};
    EffectVec effects = {0};
    for (int i = 0; i < body->count; i++) {
        visit_stmt(&visitor, body->items[i]);
        stmt_effects(arena, body->items[i], &effects);
    }
    for (int i = 0; i < effects.count; i++)
        if (effects.items[i].access != ACCESS_READ && map_has(needs.bufs, effects.items[i].buf))
            return "the loop writes the tensor that it copies from";
    return conflict.reason;
}

void clone_with_lets(Arena *arena, Subst *subst, const Block *body, const bool *which, Block *to) {
    bool *taken = NEW_ARRAY(arena, bool, body->count), *all = NEW_ARRAY(arena, bool, body->count);
    for (int at = 0; at < body->count; at++) {
        Needs needs = {map_new(arena), map_new(arena)};
        if (which[at]) close_over_lets(&needs, body, at, taken);
        for (int i = 0; i < at; i++) all[i] |= which[at] && taken[i];
        all[at] = which[at];
    }
    for (int i = 0; i < body->count; i++)
        if (all[i]) block_push(arena, to, clone_stmt(arena, subst, body->items[i]));
}
