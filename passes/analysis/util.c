#include "passes/analysis/util.h"
#include <string.h>

// ---- properties of expressions ----

static bool is_mutable(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_VAR && e->var->kind == VAR_MUTABLE;
}

bool expr_is_stable(const Expr *expr) {
    return !expr_reads_memory(expr) && !any_expr(expr, is_mutable, NULL);
}

static bool has_effect(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_CALL && !op_is_pure(e->call.op);
}

bool expr_is_pure(const Expr *expr) {
    return !any_expr(expr, has_effect, NULL);
}

void assume_stable(Facts *facts, const Expr *condition, bool holds) {
    if (condition->kind == EXPR_UNARY && condition->unary.op == UNARY_NOT) {
        assume_stable(facts, condition->unary.a, !holds);
    } else if (is_binary(condition, holds ? BIN_LOGICAL_AND : BIN_LOGICAL_OR)) {
        assume_stable(facts, condition->binary.a, holds);
        assume_stable(facts, condition->binary.b, holds);
    } else if (expr_is_stable(condition)) {
        facts_assume(facts, condition, holds);
    }
}

Expr *iter_trips(Arena *arena, const Iter *iter) {
    Expr *span = e_sub(arena, iter->end, iter->begin);
    if (!expr_is_int(iter->begin, 0)) span = e_max(arena, span, e_int(arena, 0));
    return expr_is_int(iter->step, 1) ? span : e_call2(arena, OP_CEILDIV, span, iter->step);
}

bool stmt_breaks(const Stmt *stmt) {
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) return false;
    FOR_EACH_BODY (body, stmt)
        if (block_breaks(body)) return true;
    return stmt->kind == STMT_BREAK;
}

bool block_breaks(const Block *block) {
    FOR_EACH_ITEM (stmt, block)
        if (stmt_breaks(stmt)) return true;
    return false;
}

bool is_loop_element(const Stmt *loop, int count, Expr *const *indices) {
    bool same = count == loop->loop.count;
    for (int d = 0; d < count && same; d++)
        same = indices[d]->kind == EXPR_VAR && indices[d]->var == loop->loop.iters[d].var;
    return same;
}

const char *gemm_type(const Stmt *gemm, int operand) {
    Type type = gemm->call.args[operand].region->buf->type;
    const char *precision = ARG(gemm, GEMM, precision).name;
    bool fewer =
        operand < (int)OPERAND_INDEX(GEMM, acc) && type == TYPE_F32 && precision && strcmp(precision, "tf32") == 0;
    return fewer ? "tf32" : type_text(type);
}

Region *call_region(const Stmt *call, int index) {
    return index < call->call.count ? call->call.args[index].region : NULL;
}

bool starts_copy(const Stmt *stmt) {
    if (via_of(stmt)) return via_is(stmt, VIA_CP_ASYNC);
    return stmt->kind == STMT_CALL && stmt->call.is_async;
}

Expr *copy_slot(const Stmt *copy) {
    CopyOp call;
    if (match_copy(copy, &call)) return call.dst->buf->stage_dims == 1 ? call.dst->dims[0].start : NULL;
    const Stmt *store = copy->kind == STMT_FOR && copy->loop.body.count == 1 ? copy->loop.body.items[0] : NULL;
    bool slots = store && store->kind == STMT_STORE && store->store.buf->stage_dims == 1;
    return slots ? store->store.indices[0] : NULL;
}

bool loads_stored(const Expr *expr, const Stmt *store) {
    bool same = expr->kind == EXPR_LOAD && expr->load.buf == store->store.buf;
    for (int d = 0; same && d < store->store.count; d++)
        same = expr_equal(expr->load.indices[d], store->store.indices[d]);
    return same;
}

const Buf *buf_root(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

// ---- effects ----

static bool writes(const EffectVec *effects, const Buf *buf) {
    for (int i = 0; i < effects->count; i++)
        if (effects->items[i].buf == buf && effects->items[i].access == ACCESS_WRITE) return true;
    return false;
}

int stmt_alone(const Stmt *stmt, Stmt *alone, Block bodies[2]) {
    Block *own[2];
    *alone = *stmt;
    int count = stmt_bodies(alone, own);
    for (int b = 0; b < count; b++) {
        bodies[b] = *own[b];
        *own[b] = (Block){0};
    }
    return count;
}

void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out) {
    Stmt alone;
    Block bodies[2];
    EffectVec effects[2] = {{0}, {0}};
    int count = stmt_alone(stmt, &alone, bodies);
    stmt_effects(arena, &alone, out);
    for (int b = 0; b < count; b++)
        for (int i = 0; i < bodies[b].count; i++) path_effects(arena, bodies[b].items[i], &effects[b]);
    for (int b = 0; b < count; b++)
        for (int i = 0; i < effects[b].count; i++) {
            const Effect *effect = &effects[b].items[i];
            bool again = b == 1 && effect->access == ACCESS_WRITE && writes(&effects[0], effect->buf);
            if (!again) vec_push(arena, out, *effect);
        }
}

Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes) {
    return E_CALL(arena, OP_ALIGNED, arg_region(region_whole(arena, buf)), arg_int(arena, bytes));
}
