#include "passes/grid/snake.h"
#include "ir/build.h"
#include "ir/query.h"

bool take_section(Block *body, const Var *block, const Map *inside, Expr **group, Var **section) {
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : NULL;
        if (!value || !is_binary(value, BIN_DIV) || value->binary.a->kind != EXPR_VAR) continue;
        if (value->binary.a->var != block || expr_uses_any(value->binary.b, inside)) continue;
        *group = value->binary.b;
        *section = stmt->let.var;
        block_remove(body, i);
        return true;
    }
    return false;
}

Expr *snake_own(Arena *a, const Snake *s, Expr *section, Expr *most, Span loc, Block *out) {
    Expr *ahead = block_name(a, out, "ahead", e_add(a, s->cta, e_mul(a, section, s->shift)), loc);
    Expr *within = e_and(a, e_ge(a, ahead, e_int(a, 0)), e_lt(a, ahead, most));
    block_push(a, out, s_assume(a, within, loc));
    return block_name(a, out, "own", e_select(a, e_lt(a, ahead, s->ctas), ahead, e_sub(a, ahead, s->ctas)), loc);
}

Expr *snake_number(Arena *a, const Snake *s, Expr *section, Expr *wave, Expr *own, Span loc, Block *out,
                   Expr **exists) {
    Expr *back = e_eq(a, e_mod(a, wave, e_int(a, 2)), e_int(a, 1));
    Expr *from = e_select(a, back, e_sub(a, e_sub(a, s->ctas, e_int(a, 1)), own), own);
    Expr *place = block_name(a, out, "place", e_add(a, e_mul(a, wave, s->ctas), from), loc);
    Expr *number = block_name(a, out, "number", e_add(a, e_mul(a, section, s->group), place), loc);
    *exists = e_and(a, e_lt(a, place, s->group), e_lt(a, number, s->tiles));
    return number;
}
