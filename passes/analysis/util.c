#include "passes/analysis/util.h"
#include <string.h>

const char *gemm_type(const Stmt *gemm, int operand) {
    Type type = gemm->call.args[operand].region->buf->type;
    const char *precision = ARG(gemm, GEMM, precision).name;
    bool fewer =
        operand < (int)OPERAND_INDEX(GEMM, acc) && type == TYPE_F32 && precision && strcmp(precision, "tf32") == 0;
    return fewer ? "tf32" : type_text(type);
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

Expr *scale_of(const Stmt *stmt) {
    const Expr *value = stmt->kind == STMT_STORE ? stmt->store.value : NULL;
    if (!value || !is_binary(value, BIN_MUL)) return NULL;
    bool left = loads_stored(value->binary.a, stmt), right = loads_stored(value->binary.b, stmt);
    if (left == right) return NULL;
    return left ? value->binary.b : value->binary.a;
}

// ---- effects ----

static bool writes(const EffectVec *effects, const Buf *buf) {
    for (int i = 0; i < effects->count; i++)
        if (effects->items[i].buf == buf && effects->items[i].access == ACCESS_WRITE) return true;
    return false;
}

void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out) {
    Stmt alone = stmt_alone(stmt);
    EffectVec first = {0};   // of the first body
    stmt_effects(arena, &alone, out);
    FOR_EACH_BODY (body, stmt) {
        EffectVec effects = {0};
        FOR_EACH_ITEM (below, body) path_effects(arena, below, &effects);
        VEC_EACH (const Effect, effect, &effects)
            if (effect->access != ACCESS_WRITE || !writes(&first, effect->buf)) vec_push(arena, out, *effect);
        first = effects;
    }
}

Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes) {
    return E_CALL(arena, OP_ALIGNED, arg_region(region_whole(arena, buf)), arg_int(arena, bytes));
}
