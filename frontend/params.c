// Parameters: scalars, tensors, the dims that their names bind, and compile-time names.
//
// A bare name in a tensor's dims or strides that means nothing else is a dynamic dim. Any other dim is an expression
// that the launch checks. A compile-time name stays symbolic in the parameters (a dim, or a scalar parameter of its own
// when no tensor has it as a dim); the kernel's `when` states its value, and the body sees the value.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/query.h"
#include <string.h>

// ---- scalars ----
static bool has_dims(const Node *param) {
    return param->kids[1] != NULL;
}

bool is_hidden_param(const Node *param) {
    return !has_dims(param) && param->kids[0]->text && strcmp(param->kids[0]->text, type_text(TYPE_TENSORMAP)) == 0;
}

// A reference means what it means without them.
static bool is_left_out(const Sema *s, const Node *param) {
    return s->context == IN_REFERENCE && is_hidden_param(param);
}

static void scalar_param(Sema *s, const Node *param) {
    if (is_left_out(s, param)) return;
    Type type = find_type(s, param->kids[0]);
    if (param->op != AST_IN || param->kids[2]) diag(s->sink, param->span, T_SCALAR_MODE, param->text);
    if (type == TYPE_NONE) type = TYPE_F32;
    Param out = {.var = declare_var(s, param->text, VAR_PARAM, type, param->span)};
    Span loc;
    out.attrs = attributes(s, param->attrs, 'p', &loc);
    vec_push(s->arena, &s->func->params, out);
}

// ---- dims ----
// A compile-time name hides a const of the file.
static bool hides_const(Sema *s, const char *name) {
    for (int i = 0; i < s->choices.count; i++)
        if (strcmp(s->choices.items[i].name, name) == 0) return !strmap_get(s->scope->symbols, name);
    return false;
}

static void bare_dim(Sema *s, const Node *dim) {
    if (dim->kind != N_NAME || (find(s, dim->text) && !hides_const(s, dim->text))) return;
    Var *var = declare_var(s, dim->text, VAR_DIM, TYPE_I64, dim->span);
    vec_push(s->arena, &s->func->dims, var);
}

static void bare_strides(Sema *s, const Node *list) {
    for (int i = 0; list && i < list->count; i++) bare_dim(s, list->kids[i]);
}

static void bare_dims(Sema *s, const Node *param) {
    const Node *dims = param->kids[1];
    for (int i = 0; dims && i < dims->count; i++)
        if (argument_dim(param, i) >= 0) bare_dim(s, dims->kids[i]);
}

// A name inside a dim's expression must be bound elsewhere: `E + 1` is checked, not solved.
static bool dims_bound(Sema *s, const Node *node) {
    if (node->kind == N_NAME && !find(s, node->text)) {
        diag(s->sink, node->span, T_DIM_UNBOUND, node->text);
        declare_value(s, node->text, value_poison(node->span), node->span);   // reported one time
        return false;
    }
    for (int i = 0; i < node->count; i++)
        if (node->kids[i] && !dims_bound(s, node->kids[i])) return false;
    return true;
}

static void dim_expressions(Sema *s, const Node *list, bool strides, Expr **out) {
    for (int i = 0; i < list->count; i++) {
        int64_t extent;
        out[i] = e_int(s->arena, 1);
        if (!dims_bound(s, list->kids[i])) continue;
        out[i] = index_expression(s, list->kids[i]);
        if (!expr_const(out[i], &extent) || extent >= 0) continue;
        Span at = list->kids[i]->span;
        if (strides) diag(s->sink, at, T_OUT_OF_BOUNDS, "a stride", 0LL, (long long)INT64_MAX);
        else diag(s->sink, at, T_EXTENT_POSITIVE, (long long)extent);
    }
}

// Strides in elements, of the argument's dims.
static void read_strides(Sema *s, const Node *param, Buf *buf) {
    const Node *strides = param->kids[2];
    Expr *steps[LAYOUT_MAX_RANK];
    if (strides && strides->count != buf->rank) {
        diag(s->sink, strides->span, T_STRIDES_COUNT, param->text, buf->rank, strides->count);
    } else if (strides) {
        dim_expressions(s, strides, true, steps);
        buf->strides = arena_copy(s->arena, steps, sizeof *steps * (size_t)buf->rank);
    }
}

// *view: what the name means, where that is not the argument itself.
static Buf *tensor_param(Sema *s, const Node *param, View **view) {
    const Node *dims = param->kids[1];
    bool mapped = has_index_map(param);
    Type type = find_type(s, param->kids[0]);
    if (type == TYPE_NONE) type = TYPE_F32;
    if (s->context == IN_REFERENCE && type_is_float(type)) type = TYPE_F64;   // rounded once, at the end
    if (type_kind(type) == KIND_OPAQUE) diag(s->sink, param->span, T_NOT_SCALAR_TYPE, type_text(type));
    if (param->op > AST_INOUT) diag(s->sink, param->span, T_PARAM_SCOPE, param->text);
    Expr *shape[LAYOUT_MAX_RANK], *places[LAYOUT_MAX_RANK];
    if (dims->count > LAYOUT_MAX_RANK) {
        diag(s->sink, param->span, T_DIMS_COUNT, param->text, LAYOUT_MAX_RANK);
        return NULL;
    }
    dim_expressions(s, dims, false, shape);
    if (mapped && !(*view = index_map_read(s, param, shape, places))) return NULL;
    int rank = mapped ? param->kids[4]->count : dims->count;
    Buf *buf =
        buf_new(s->arena, param->text, SCOPE_GLOBAL, type, rank, mapped ? places : shape, place_of(s, param->span));
    buf->mode = param->op == AST_OUT ? MODE_OUT : param->op == AST_INOUT ? MODE_INOUT : MODE_IN;
    buf->is_param = true;
    buf->leading = dims->op == AST_LEADING;
    read_strides(s, param, buf);
    if (mapped) (*view)->buf = buf;
    if (mapped) index_map_check(s, *view, param->span);
    return buf;
}

// ---- the innermost dim ----

// A kernel has the innermost dim of a tensor as its last one, where TMA and vectors look for it:
//
//     A: bf16[M, K] strides [1, lda]      is [K, M] strides [lda, 1], of which A is the transpose
//
// Callers and references know the argument alone. *view is what the name means.
static void move_inner(Sema *s, Buf *buf, View **view) {
    Expr *shape[LAYOUT_MAX_RANK], *strides[LAYOUT_MAX_RANK], *index[LAYOUT_MAX_RANK];
    int moved = s->func->kind == FUNC_KERNEL ? moved_by_strides(buf->rank, buf->leading, buf->shape, buf->strides) : 0;
    if (!moved) return;
    if (!*view) {
        *view = arena_copy(s->arena, view_of_buffer(s, buf), sizeof **view);
        (*view)->declared = true;
        (*view)->whole = false;
    }
    buf->moved = moved;
    for (int d = 0; d < buf->rank; d++) {
        int from = moved_dim(buf->moved, buf->rank, d);
        shape[d] = buf->shape[from];
        strides[d] = buf->strides[from];
        index[d] = (*view)->index[from];
    }
    memcpy(buf->shape, shape, sizeof *shape * (size_t)buf->rank);
    memcpy(buf->strides, strides, sizeof *strides * (size_t)buf->rank);
    memcpy((*view)->index, index, sizeof *index * (size_t)buf->rank);
}

// ---- compile-time names ----
static bool names_dim(const Node *params, const char *name) {
    for (int i = 0; i < params->count; i++) {
        const Node *dims = params->kids[i]->kids[1];
        for (int d = 0; dims && d < dims->count; d++)
            if (argument_dim(params->kids[i], d) >= 0 && dims->kids[d]->kind == N_NAME &&
                strcmp(dims->kids[d]->text, name) == 0)
                return true;
    }
    return false;
}

static void choice_param(Sema *s, Choice *choice, Span span) {
    SemaValue v = choice->value;
    Type type = v.kind == VALUE_FLOAT ? TYPE_F32 : v.kind == VALUE_INT ? TYPE_I64 : value_type(s, v);
    choice->is_param = true;
    choice->var = declare_var(s, choice->name, VAR_PARAM, type, span);
}

const Node *compile_time_name(const Node *func, const char *name) {
    const Node *names = func->kids[0];
    for (int i = 0; names && i < names->count; i++)
        if (strcmp(names->kids[i]->text, name) == 0) return names->kids[i];
    return NULL;
}

static void declare_choices(Sema *s, const Node *kernel) {
    for (int i = 0; i < s->choices.count; i++) {
        Choice *choice = &s->choices.items[i];
        Span span = compile_time_name(kernel, choice->name)->span;
        choice->var = NULL;
        choice->is_param = false;
        if (choice->type != TYPE_NONE) declare_type(s, choice->name, choice->type, span);
        else if (!names_dim(kernel->kids[1], choice->name)) choice_param(s, choice, span);
    }
}

// A compile-time name that is a tensor's dim was made like any other dim.
static void find_choice_dims(Sema *s) {
    for (int i = 0; i < s->choices.count; i++) {
        Choice *choice = &s->choices.items[i];
        if (choice->type == TYPE_NONE && !choice->is_param) choice->var = func_dim(s->func, choice->name);
    }
}

static Expr *and_choices(Sema *s, Expr *when) {
    for (int i = 0; i < s->choices.count; i++) {
        Choice *choice = &s->choices.items[i];
        if (!choice->var) continue;
        Expr *var = e_var(s->arena, choice->var), *value = to_type(s, choice->value, choice->var->type);
        Expr *holds = choice->var->type == TYPE_BOOL ? (value->integer ? var : e_unary(s->arena, UNARY_NOT, var))
                                                     : e_binary(s->arena, BIN_EQ, var, value);
        holds->loc = choice->var->loc;
        when = when ? e_and(s->arena, when, holds) : holds;
    }
    return when;
}

bool choices_exclude(Sema *s) {
    Func bare = *s->func;
    bare.when = NULL;
    Facts *facts = facts_new(s->arena, &bare);
    Expr *chosen = and_choices(s, NULL);
    if (!chosen || !s->func->when) return false;
    facts_assume(facts, chosen, true);
    const Expr *left = simplify_expr(s->arena, facts, s->func->when);
    return left->kind == EXPR_INT && !left->integer;
}

// ---- tensors that may be one ----
static bool same_tensors(const Buf *a, const Buf *b) {
    bool same = a->type == b->type && a->rank == b->rank && a->leading == b->leading && a->moved == b->moved &&
                !a->strides == !b->strides;
    for (int d = 0; same && d < a->rank; d++)
        same = expr_equal(a->shape[d], b->shape[d]) && (!a->strides || expr_equal(a->strides[d], b->strides[d]));
    return same;
}

static const char *alias_problem(const Func *func, const Buf *read, const Buf *written) {
    bool named = false;
    for (int i = 0; i < func->params.count; i++) named |= func->params.items[i].buf == written;
    if (!named || written->mode != MODE_OUT) return "it is no `out` parameter";
    if (read->mode != MODE_IN) return "both are written";
    return same_tensors(read, written) ? NULL : "they differ in type, shape or strides";
}

// @alias of a parameter is a field of its tensor. A reference means what it means without.
static void take_alias(Sema *s, Param *param, Span span) {
    const char *name = attr_text(param->attrs, ATTR_ALIAS);
    attr_remove(&param->attrs, ATTR_ALIAS);
    if (!name || !s->func || s->context == IN_REFERENCE || s->context == IN_FILL) return;
    Symbol *symbol = find(s, name);
    bool mapped = symbol && symbol->kind == SYMBOL_VIEW && symbol->view->declared;
    Buf *written = symbol && symbol->kind == SYMBOL_BUF ? symbol->buf : mapped ? symbol->view->buf : NULL;
    const char *problem = param->buf ? alias_problem(s->func, param->buf, written) : "only tensors have one";
    if (problem) diag(s->sink, span, T_ALIAS, name, problem);
    else param->buf->alias_of = written;
}

// ---- all together ----
void parameters(Sema *s, const Node *kernel) {
    const Node *params = kernel->kids[1];
    declare_choices(s, kernel);
    for (int i = 0; i < params->count; i++) {   // in order, so that params stay in order: tensors are filled in below
        if (!has_dims(params->kids[i])) {
            scalar_param(s, params->kids[i]);
        } else {
            Param hole = {0};
            vec_push(s->arena, &s->func->params, hole);
        }
    }
    for (int i = 0; i < params->count; i++) bare_dims(s, params->kids[i]);
    for (int i = 0; i < params->count; i++) bare_strides(s, params->kids[i]->kids[2]);
    for (int i = 0, at = 0; i < params->count; i++) {
        Param *out = &s->func->params.items[at];
        at += !is_left_out(s, params->kids[i]);
        View *view = NULL;
        if (!has_dims(params->kids[i])) continue;
        Buf *buf = tensor_param(s, params->kids[i], &view);
        if (!buf) {   // reported: what uses it says nothing new
            declare_value(s, params->kids[i]->text, value_poison(params->kids[i]->span), params->kids[i]->span);
            continue;
        }
        Span loc;
        out->attrs = attributes(s, params->kids[i]->attrs, 'p', &loc);
        out->buf = buf;
        if (view) attr_set_text(s->arena, &out->attrs, ATTR_LAYOUT, index_map_text(s, view));
        move_inner(s, buf, &view);
        if (view) declare_view(s, params->kids[i]->text, view, params->kids[i]->span);
        else declare_buf(s, buf, params->kids[i]->span);
    }
    for (int i = 0, at = 0; i < params->count; i++)
        if (!is_left_out(s, params->kids[i])) take_alias(s, &s->func->params.items[at++], params->kids[i]->span);
    for (int i = 0; i < s->choices.count; i++) {
        Param param = {.var = s->choices.items[i].is_param ? s->choices.items[i].var : NULL};
        if (param.var) vec_push(s->arena, &s->func->params, param);
    }
    find_choice_dims(s);
    s->skipped++;
    if (kernel->kids[2] && s->func->kind != FUNC_REFERENCE)
        s->func->when = to_condition(s, expression(s, kernel->kids[2]));
    if (s->func->kind != FUNC_REFERENCE) s->func->when = and_choices(s, s->func->when);
    if (kernel->kids[4] && s->func->kind != FUNC_REFERENCE) s->func->cost = cost_clause(s, kernel->kids[4]);
    s->skipped--;
}

void bind_choices(Sema *s) {
    for (int i = 0; i < s->choices.count; i++) {
        Choice *choice = &s->choices.items[i];
        if (choice->type == TYPE_NONE)
            declare_value(s, choice->name, choice->value, choice->var ? choice->var->loc : (Span){0});
    }
}

// ---- values into symbolic extents ----
static Expr *value_of_var(Sema *s, Expr *e) {
    bool symbolic = s->context == IN_REFERENCE || s->context == IN_FILL;   // these serve all variants
    for (int i = 0; i < s->choices.count && !symbolic; i++)
        if (s->choices.items[i].var == e->var) return to_type(s, s->choices.items[i].value, e->var->type);
    return e;
}

static Expr *substitute_call(Sema *s, Expr *e) {
    Arg args[OP_MAX_OPERANDS] = {0};
    for (int i = 0; i < e->call.count; i++) {
        args[i] = e->call.args[i];
        if (args[i].value) args[i].value = substitute_choices(s, args[i].value);
    }
    return e_call(s->arena, e->call.op, e->call.count, args);
}

Expr *substitute_choices(Sema *s, Expr *e) {
    if (s->choices.count == 0) return e;
    switch (e->kind) {
    case EXPR_VAR: return value_of_var(s, e);
    case EXPR_UNARY: return e_unary(s->arena, e->unary.op, substitute_choices(s, e->unary.a));
    case EXPR_BINARY:
        return e_binary(s->arena, e->binary.op, substitute_choices(s, e->binary.a), substitute_choices(s, e->binary.b));
    case EXPR_SELECT:
        return e_select(s->arena, substitute_choices(s, e->select.condition), substitute_choices(s, e->select.yes),
                        substitute_choices(s, e->select.no));
    case EXPR_CAST: return e_cast(s->arena, e->type, substitute_choices(s, e->operand));
    case EXPR_CALL: return e->call.count <= OP_MAX_OPERANDS ? substitute_call(s, e) : e;
    default: return e;
    }
}
