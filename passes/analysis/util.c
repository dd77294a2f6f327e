#include "passes/analysis/util.h"
#include <string.h>

// ---- mapping a statement's own expressions ----

typedef struct OwnMap {
    Arena *arena;
    ExprFn map;
    void *user;
    bool changed;
} OwnMap;

static void own_expr(OwnMap *own, Expr **expr) {
    if (!*expr) return;
    Expr *mapped = own->map(own->user, *expr);
    own->changed |= mapped != *expr;
    *expr = mapped;
}

static void own_exprs(OwnMap *own, int count, Expr **exprs) {
    for (int i = 0; i < count; i++) own_expr(own, &exprs[i]);
}

// A region may be shared: one that changes is copied.
static Region *own_region(OwnMap *own, Region *region) {
    bool before = own->changed;
    own->changed = false;
    RegionDim *dims = arena_copy(own->arena, region->dims, sizeof *dims * (size_t)region->count);
    for (int i = 0; i < region->count; i++) {
        own_expr(own, &dims[i].start);
        own_expr(own, &dims[i].extent);
    }
    if (own->changed) region = region_new(own->arena, region->buf, dims, region->transposed, region->loc);
    own->changed |= before;
    return region;
}

static void own_args(OwnMap *own, int count, Arg *args) {
    for (int i = 0; i < count; i++) {
        own_expr(own, &args[i].value);
        if (args[i].region) args[i].region = own_region(own, args[i].region);
    }
}

bool stmt_map_own(Arena *arena, Stmt *stmt, ExprFn map, void *user) {
    OwnMap own = {arena, map, user, false};
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) {
        own_expr(&own, &iters[i].begin);
        own_expr(&own, &iters[i].end);
    }
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: own_expr(&own, &stmt->let.value); break;
    case STMT_STORE:
        own_exprs(&own, stmt->store.count, stmt->store.indices);
        own_expr(&own, &stmt->store.value);
        break;
    case STMT_WHILE: own_expr(&own, &stmt->while_.condition); break;
    case STMT_IF: own_expr(&own, &stmt->if_.condition); break;
    case STMT_CALL: own_args(&own, stmt->call.count, stmt->call.args); break;
    case STMT_LAUNCH: own_args(&own, stmt->launch.count, stmt->launch.args); break;
    default: break;
    }
    return own.changed;
}

// ---- what an expression is ----

static bool is_unstable(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_LOAD || (e->kind == EXPR_VAR && e->var->kind == VAR_MUTABLE) ||
           (e->kind == EXPR_CALL && !op_is_pure(e->call.op));
}

bool expr_is_stable(const Expr *expr) {
    return !any_expr(expr, is_unstable, NULL);
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
        return;
    }
    bool both = condition->kind == EXPR_BINARY && condition->binary.op == (holds ? BIN_LOGICAL_AND : BIN_LOGICAL_OR);
    if (both) {
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

bool block_breaks(const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_BREAK) return true;
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) continue;
        Block *bodies[2];
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++)
            if (block_breaks(bodies[b])) return true;
    }
    return false;
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

void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out) {
    Stmt shell = *stmt;   // the statement without its bodies
    Block *bodies[2], inner[2] = {{0}, {0}};
    int count = stmt_bodies(&shell, bodies);
    for (int b = 0; b < count; b++) {
        inner[b] = *bodies[b];
        *bodies[b] = (Block){0};
    }
    stmt_effects(arena, &shell, out);
    EffectVec pieces[2] = {{0}, {0}};
    for (int b = 0; b < count; b++)
        for (int i = 0; i < inner[b].count; i++) path_effects(arena, inner[b].items[i], &pieces[b]);
    for (int b = 0; b < count; b++)
        for (int i = 0; i < pieces[b].count; i++) {
            const Effect *effect = &pieces[b].items[i];
            bool again = b == 1 && stmt->kind == STMT_IF && effect->access == ACCESS_WRITE;
            if (!again || !writes(&pieces[0], effect->buf)) vec_push(arena, out, *effect);
        }
}

Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes) {
    Arg args[] = {arg_region(region_whole(arena, buf)), arg_value(e_int(arena, bytes))};
    return e_call(arena, OP_ALIGNED, COUNT_OF(args), args);
}
