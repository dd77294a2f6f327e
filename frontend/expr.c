// Expressions.
#include "frontend/sema.h"
#include "ir/rewrite.h"
#include <math.h>
#include <string.h>

static SemaValue load(Sema *s, const Node *node) {
    Place place;
    if (!element_place(s, node, &place)) return value_poison(node->span);
    return value_expr(s, place_value(s, &place), node->span);
}

static SemaValue name_value(Sema *s, const Node *node) {
    if (strcmp(node->text, "true") == 0) return value_expr(s, e_bool(s->arena, true), node->span);
    if (strcmp(node->text, "false") == 0) return value_expr(s, e_bool(s->arena, false), node->span);
    if (strcmp(node->text, "inf") == 0) return value_float(INFINITY, node->span);
    if (strcmp(node->text, "nan") == 0) return value_float(NAN, node->span);
    Symbol *symbol = find_or_report(s, node);
    if (!symbol) return value_poison(node->span);
    switch (symbol->kind) {
    case SYMBOL_VAR: return value_expr(s, e_var(s->arena, symbol->var), node->span);
    case SYMBOL_BUF: {
        Diag *d = diag(s->sink, node->span, T_NOT_SCALAR, node->text, "a buffer");
        diag_label(d, symbol->span, "declared here");
        return value_poison(node->span);
    }
    case SYMBOL_VIEW:
        if (symbol->view->rank == 0) return load(s, node);
        diag(s->sink, node->span, T_NOT_A_VALUE, "a view");
        return value_poison(node->span);
    case SYMBOL_TYPE: diag(s->sink, node->span, T_NOT_SCALAR, node->text, "a type"); return value_poison(node->span);
    default: break;
    }
    SemaValue value = symbol->value;
    value.span = node->span;
    return value;
}

// The right operand of a lazy operator: what it would emit (a `fn` with statements) must not run when it is skipped.
static SemaValue lazily(Sema *s, const Node *node, Block *into) {
    Block *outer = s->block;
    s->block = into;
    SemaValue value = expression(s, node);
    s->block = outer;
    return value;
}

static bool writes_memory(Sema *s, const Block *block) {
    bool writes = false;
    for (int i = 0; i < block->count; i++) {
        EffectVec effects = {0};
        stmt_effects(s->arena, block->items[i], &effects);
        for (int k = 0; k < effects.count; k++)
            writes |= effects.items[k].access != ACCESS_READ && effects.items[k].buf->scope != SCOPE_LOCAL;
    }
    return writes;
}

// The value of `node`, which is evaluated after `earlier`: where statements emitted for it write memory, what the
// earlier ones read is read before them.
SemaValue value_after(Sema *s, int count, SemaValue *earlier, const Node *node) {
    Block extra = {0};
    SemaValue value = lazily(s, node, &extra);
    bool writes = writes_memory(s, &extra);
    for (int i = 0; writes && i < count; i++) {
        if (earlier[i].kind != VALUE_EXPR || !expr_reads_memory(earlier[i].expr)) continue;
        Expr *expr = earlier[i].expr;
        Var *var = var_new(s->arena, "earlier", VAR_LET, expr->type, place_of(s, earlier[i].span));
        emit(s, s_let(s->arena, var, expr));
        earlier[i].expr = e_var(s->arena, var);
    }
    block_append(s->arena, s->block, &extra);
    return value;
}

static Stmt *assign(Sema *s, Var *var, Expr *value) {
    Stmt *stmt = s_assign(s->arena, var, value);
    stmt->loc = place_of(s, value->loc);
    return stmt;
}

static SemaValue logical(Sema *s, const Node *node) {
    SemaValue a = expression(s, node->kids[0]);
    Block extra = {0};
    s->skipped++;
    SemaValue b = lazily(s, node->kids[1], &extra);
    s->skipped--;
    if (extra.count == 0 || is_poison(a) || is_poison(b)) return binary(s, (BinaryOp)node->op, a, b, node->span);
    // var r = a; if (r) { ...; r = b; }       for ||: if (!r)
    Var *var = var_new(s->arena, "holds", VAR_MUTABLE, TYPE_BOOL, place_of(s, node->span));
    emit(s, s_var(s->arena, var, to_condition(s, a)));
    Expr *condition = e_var(s->arena, var);
    condition->loc = var->loc;
    if (node->op == BIN_LOGICAL_OR) condition = e_unary(s->arena, UNARY_NOT, condition);
    Stmt *stmt = s_if(s->arena, condition);
    stmt->loc = var->loc;
    block_push(s->arena, &extra, assign(s, var, to_condition(s, b)));
    stmt->if_.then = extra;
    emit(s, stmt);
    return value_expr(s, e_var(s->arena, var), node->span);
}

static SemaValue select(Sema *s, const Node *node) {
    SemaValue condition = expression(s, node->kids[0]);
    Block on_yes = {0}, on_no = {0};
    s->skipped++;
    SemaValue yes = lazily(s, node->kids[1], &on_yes), no = lazily(s, node->kids[2], &on_no);
    s->skipped--;
    if (on_yes.count + on_no.count == 0 || is_poison(condition) || is_poison(yes) || is_poison(no))
        return ternary(s, condition, yes, no, node->span);
    Expr *arms[2];
    if (!promote_arms(s, yes, no, arms, node->span)) return value_poison(node->span);
    Var *var = var_new(s->arena, "chosen", VAR_MUTABLE, arms[0]->type, place_of(s, node->span));
    emit(s, s_var(s->arena, var, NULL));
    Stmt *stmt = s_if(s->arena, to_condition(s, condition));
    stmt->loc = var->loc;
    block_push(s->arena, &on_yes, assign(s, var, arms[0]));
    block_push(s->arena, &on_no, assign(s, var, arms[1]));
    stmt->if_.then = on_yes;
    stmt->if_.otherwise = on_no;
    emit(s, stmt);
    return value_expr(s, e_var(s->arena, var), node->span);
}

static SemaValue expression_of_kind(Sema *s, const Node *node);

static bool is_bool(SemaValue v) {
    return v.kind == VALUE_EXPR && v.expr->type == TYPE_BOOL;
}

// `a & b == c` is a & (b == c), an error where a is an integer: the diagnostic names the precedence.
static bool compares_bits(Sema *s, const Node *node, SemaValue a, SemaValue b) {
    bool on_bits = node->op == BIN_AND || node->op == BIN_OR || node->op == BIN_XOR;
    if (!on_bits || is_poison(a) || is_poison(b) || is_bool(a) == is_bool(b)) return false;
    const Node *kid = node->kids[is_bool(b)];
    if (kid->kind != N_BINARY || kid->op < BIN_EQ || kid->op > BIN_GE) return false;
    const char *inner = operator_text((BinaryOp)kid->op), *outer = operator_text((BinaryOp)node->op);
    Diag *d = diag(s->sink, node->span, T_PRECEDENCE, inner, outer, value_text(s, a), value_text(s, b));
    if (is_bool(b)) diag_note(d, "write (a %s b) %s c", outer, inner);
    else diag_note(d, "write a %s (b %s c)", inner, outer);
    return true;
}

// The parser bounds the depth of one text; consts and fn lead from one to the next.
SemaValue expression(Sema *s, const Node *node) {
    enum { DEEPEST = AST_MAX_DEPTH };
    if (s->depth >= DEEPEST) {
        diag(s->sink, node->span, T_EXPRESSION_DEPTH, DEEPEST);
        return value_poison(node->span);
    }
    s->depth++;
    SemaValue value = expression_of_kind(s, node);
    s->depth--;
    return value;
}

static SemaValue expression_of_kind(Sema *s, const Node *node) {
    Span span = node->span;
    switch (node->kind) {
    case N_INT: return value_int((Wide)node->integer, span);
    case N_FLOAT: return value_float(node->real, span);
    case N_NAME: return name_value(s, node);
    case N_INDEX: return load(s, node);
    case N_CALL: return call_expression(s, node);
    case N_UNARY: {
        bool literal = node->kids[0]->kind == N_INT || node->kids[0]->kind == N_FLOAT ||
                       (node->kids[0]->kind == N_NAME && strcmp(node->kids[0]->text, "inf") == 0);
        return unary(s, (UnaryOp)node->op, expression(s, node->kids[0]), literal, span);
    }
    case N_BINARY:
        if (node->op == BIN_LOGICAL_AND || node->op == BIN_LOGICAL_OR) return logical(s, node);
        SemaValue a = expression(s, node->kids[0]);
        SemaValue b = value_after(s, 1, &a, node->kids[1]);
        if (compares_bits(s, node, a, b)) return value_poison(span);
        return binary(s, (BinaryOp)node->op, a, b, span);
    case N_TERNARY: return select(s, node);
    case N_DOT:
        if (is_held(s, node)) return load(s, node);
        if (node->kids[0]->kind == N_NAME && !find_or_report(s, node->kids[0])) return value_poison(span);
        if (strcmp(node->text, "T") == 0) diag(s->sink, span, T_NOT_A_VALUE, "a view");
        else note_foreign(s, diag(s->sink, span, T_UNKNOWN_VIEW, node->text), FOREIGN_INDEXED, end_of(span));
        return value_poison(span);
    case N_STRING: diag(s->sink, span, T_NOT_A_VALUE, "a string"); return value_poison(span);
    default: diag(s->sink, span, T_NOT_A_VALUE, "this"); return value_poison(span);
    }
}

SemaValue constant_or(Sema *s, const Node *node, const char *what, const char *remedy) {
    s->constant++;
    Block nowhere = {0}, *outer = s->block;
    s->block = &nowhere;
    SemaValue value = expression(s, node);
    s->block = outer;
    s->constant--;
    if (is_poison(value) || (value_is_const(value) && nowhere.count == 0)) return value;
    Diag *d = diag(s->sink, node->span, T_NOT_CONSTANT, what);
    if (remedy) diag_note(d, "%s", remedy);
    return value_poison(node->span);
}

SemaValue constant(Sema *s, const Node *node, const char *what) {
    return constant_or(s, node, what, NULL);
}

bool constant_int(Sema *s, const Node *node, const char *what, int64_t low, int64_t high, int64_t *out) {
    SemaValue value = constant(s, node, what);
    if (is_poison(value)) return false;
    Wide wide;
    if (value.kind == VALUE_INT) wide = value.integer;
    else if (value.kind == VALUE_EXPR && type_is_int(value.expr->type)) wide = value.expr->integer;
    else {
        diag(s->sink, node->span, T_CONSTANT_KIND, what, "an integer", value_text(s, value));
        return false;
    }
    if (wide < low || wide > high) {
        diag(s->sink, node->span, T_OUT_OF_BOUNDS, what, (long long)low, (long long)high);
        return false;
    }
    *out = (int64_t)wide;
    return true;
}

bool index_value(Sema *s, const Node *node, Expr **out) {
    s->copied++;
    SemaValue value = expression(s, node);
    s->copied--;
    *out = to_index(s, value);
    return !is_poison(value);
}

Expr *index_expression(Sema *s, const Node *node) {
    Expr *index;
    index_value(s, node, &index);
    return index;
}

// Printed IR says every conversion: there only literals take the place's type.
Expr *as_type(Sema *s, SemaValue value, Type type) {
    return s->verbatim && value.kind == VALUE_EXPR ? value.expr : to_type(s, value, type);
}

Expr *value_of_type(Sema *s, const Node *node, Type type) {
    return as_type(s, expression(s, node), type);
}
