// `fn` and `macro`: both disappear here. A fn is a scalar function: its value replaces the call, and what it needs
// besides (lets, loops) is emitted before the statement that calls it. A macro takes buffers by reference; its body
// replaces the call. Neither sees the names around the call: only its parameters and the file's consts.
#include "frontend/sema.h"
#include "ir/rewrite.h"
#include <string.h>

enum { INLINE_MAX_DEPTH = 200, INLINE_MAX_CALLS = 100000 };

// The parser bounds the depth of one text; calls put one body into another, and returns one `if` into the other.
static bool nests(Sema *s, int depth, Span span) {
    if (s->nested + depth <= AST_MAX_DEPTH) return true;
    diag(s->sink, span, T_NESTING, "statements, with those of the calls,", AST_MAX_DEPTH);
    return false;
}

// ---- the calls around ----
// One text more is put in a place; false after a report.
static bool expand(Sema *s, Span span) {
    if (s->expansions++ < INLINE_MAX_CALLS) return true;
    if (s->expansions == INLINE_MAX_CALLS + 1) diag(s->sink, span, T_INLINE_LIMIT, INLINE_MAX_CALLS);
    return false;
}

typedef struct NodeCount {
    int count, most;
} NodeCount;

static bool count_node(Visitor *visitor, Expr *expr) {
    NodeCount *nodes = visitor->user;
    (void)expr;
    return ++nodes->count < nodes->most;
}

bool host_value_fits(Sema *s, Expr *value, Span span) {
    NodeCount nodes = {.most = INLINE_MAX_CALLS - s->expansions};
    if (nodes.most > 0) visit_expr(&(Visitor){.expr = count_node, .user = &nodes}, value);
    if (nodes.count < nodes.most) {
        s->expansions += nodes.count;
        return true;
    }
    if (s->expansions < INLINE_MAX_CALLS) s->expansions = INLINE_MAX_CALLS;
    return expand(s, span);
}

static bool enter(Sema *s, Inlining *frame, const Node *node, const Node *call) {
    *frame = (Inlining){.outer = s->inlining, .node = node, .depth = s->inlining ? s->inlining->depth + 1 : 1};
    for (Inlining *around = s->inlining; around; around = around->outer) {
        if (around->node != node) continue;
        Diag *d = diag(s->sink, call->span, T_RECURSION, node->kind == N_FN ? "fn" : "macro", node->text);
        diag_label(d, node->span, "declared here");
        return false;
    }
    if (frame->depth > INLINE_MAX_DEPTH && s->expansions < INLINE_MAX_CALLS) s->expansions = INLINE_MAX_CALLS;
    if (!expand(s, call->span) || !nests(s, node->depth, call->span)) return false;
    s->inlining = frame;
    return true;
}

// The argument for each parameter, by place or by name; false after a report.
static bool match_params(Sema *s, const Node *node, const Node *call, const Node **out) {
    const Node *params = node->kids[0];
    int next = 0, given = 0;
    bool fine = true;
    for (int i = 0; i < params->count; i++) out[i] = NULL;
    for (int i = 0; fine && i < call->count; i++) {
        const Node *arg = call->kids[i];
        int at = next;
        if (arg->kind == N_NAMED) {
            for (at = 0; at < params->count && strcmp(params->kids[at]->text, arg->text) != 0;) at++;
        } else {
            next++;
        }
        fine = at < params->count && !out[at];
        if (fine) out[at] = arg->kind == N_NAMED ? arg->kids[0] : arg, given++;
    }
    if (fine && given == params->count) return true;
    Diag *d = diag(s->sink, call->span, T_ARGUMENTS, call->text);
    diag_label(d, node->span, "it takes %d", params->count);
    return false;
}

// ---- fn ----
static int uses(const Node *node, const char *name, bool in_loop) {
    int count = 0;
    if (node->kind == N_NAME && strcmp(node->text, name) == 0) return in_loop ? 2 : 1;
    in_loop |= node->kind == N_LOOP || node->kind == N_WHILE;
    for (int i = 0; i < node->count; i++)
        if (node->kids[i]) count += uses(node->kids[i], name, in_loop);
    return count;
}

// The host computes expressions: outside of a kernel's grid, and where a program has no place for a statement.
bool is_host_value(const Sema *s) {
    return s->context == IN_KERNEL || (s->context == IN_PROGRAM && s->skipped > 0);
}

// A parameter stands for its argument where that costs nothing; otherwise for a let.
static void bind_scalar(Sema *s, const Node *param, SemaValue value, bool single) {
    bool direct =
        is_poison(value) || value_is_const(value) || value.expr->kind == EXPR_VAR || single || is_host_value(s);
    if (direct) {
        bool large = is_host_value(s) && value.kind == VALUE_EXPR && !host_value_fits(s, value.expr, value.span);
        if (large) value = value_poison(value.span);
        declare_value(s, param->text, value, param->span);
        return;
    }
    Var *var = declare_var(s, param->text, VAR_LET, value.expr->type, param->span);
    var->loc = place_of(s, value.span);
    emit(s, s_let(s->arena, var, value.expr));
}

static bool returns_in(const Node *node) {
    if (!node) return false;
    if (node->kind == N_RETURN) return true;
    for (int i = 0; i < node->count; i++)
        if (returns_in(node->kids[i])) return true;
    return false;
}

// The statements after one in a block, and what comes after that block.
typedef struct Rest {
    Node *const *items;
    int count;
    NameScope *scope;
    const struct Rest *outer;
} Rest;

static SemaValue tail(Sema *s, Node *const *items, int count, const Rest *rest, Type type, Span span);

// The rest, at the end of one of the ways that lead to it.
static SemaValue go_on(Sema *s, const Rest *rest, Type type, Span span) {
    NameScope scope, *inner = s->scope;
    if (!expand(s, span)) return value_poison(span);
    s->scope = rest->scope;
    scope_open(s, &scope);
    SemaValue value = tail(s, rest->items, rest->count, rest->outer, type, span);
    s->scope = inner;
    return value;
}

// if (c) <branch that returns> <rest>: the rest is the other branch, and what comes where the first one does not return.
static SemaValue tail_if(Sema *s, const Node *node, const Rest *rest, Type type) {
    Expr *condition = to_condition(s, expression(s, node->kids[0]));
    const Node *branches[2] = {node->kids[1], node->kids[2]};
    Block blocks[2] = {{0}}, *outer = s->block;
    SemaValue values[2];
    if (!nests(s, 2, node->span)) return value_poison(node->span);
    s->nested += 2;   // the `if` and its branches
    s->skipped++;
    for (int i = 0; i < 2; i++) {
        NameScope scope;
        bool own = branches[i] && returns_in(branches[i]);
        s->block = &blocks[i];
        scope_open(s, &scope);
        if (branches[i] && !own) statements(s, branches[i]);
        values[i] = own ? tail(s, branches[i]->kids, branches[i]->count, rest, type, node->span)
                        : go_on(s, rest, type, node->span);
        scope_close(s);
    }
    s->skipped--;
    s->nested -= 2;
    s->block = outer;
    SemaValue chosen = value_expr(s, condition, node->span);
    if (is_poison(values[0]) || is_poison(values[1])) return value_poison(node->span);
    if (expr_is_int(condition, 0) || expr_is_int(condition, 1)) {
        int i = expr_is_int(condition, 1) ? 0 : 1;
        for (int k = 0; k < blocks[i].count; k++) emit(s, blocks[i].items[k]);
        return values[i];
    }
    if (blocks[0].count + blocks[1].count == 0) return ternary(s, chosen, values[0], values[1], node->span);
    Var *var = var_new(s->arena, "result", VAR_MUTABLE, type, place_of(s, node->span));
    emit(s, s_var(s->arena, var, NULL));
    Stmt *stmt = s_if(s->arena, condition);
    stmt->loc = var->loc;
    for (int i = 0; i < 2; i++) block_push(s->arena, &blocks[i], s_assign(s->arena, var, values[i].expr));
    stmt->if_.then = blocks[0];
    stmt->if_.otherwise = blocks[1];
    emit(s, stmt);
    return value_expr(s, e_var(s->arena, var), node->span);
}

// The value that a list of statements returns: straight on, or by an `if` whose branches return.
static SemaValue tail(Sema *s, Node *const *items, int count, const Rest *rest, Type type, Span span) {
    for (int i = 0; i < count; i++) {
        const Node *node = items[i];
        if (node->kind == N_RETURN) {
            SemaValue value = expression(s, node->kids[0]);
            return is_poison(value) ? value : value_expr(s, to_type(s, value, type), node->span);
        }
        Rest after = {items + i + 1, count - i - 1, s->scope, rest};
        if (node->kind == N_IF && returns_in(node)) return tail_if(s, node, &after, type);
        if (node->kind == N_BLOCK && returns_in(node)) {
            NameScope scope;
            scope_open(s, &scope);
            SemaValue value = tail(s, node->kids, node->count, &after, type, span);
            scope_close(s);
            return value;
        }
        if (returns_in(node)) {
            diag(s->sink, node->span, T_RETURN_PLACE);
            return value_poison(span);
        }
        statement(s, node);
    }
    if (rest) return go_on(s, rest, type, span);
    diag(s->sink, span, T_NO_RETURN);
    return value_poison(span);
}

static bool fn_args(Sema *s, const Node *fn, const Node *call, SemaValue *values) {
    const Node *params = fn->kids[0];
    const Node **args = NEW_ARRAY(s->arena, const Node *, params->count + 1);
    if (!match_params(s, fn, call, args)) return false;
    for (int i = 0; i < params->count; i++) {
        const Node *param = params->kids[i];
        if (param->kids[1] || (param->op != AST_IN)) {
            diag(s->sink, param->span, T_FN_SCALARS, fn->text);
            return false;
        }
        Type type = find_type(s, param->kids[0]);
        SemaValue value = expression(s, args[i]);
        if (type == TYPE_NONE || is_poison(value)) return false;
        values[i] = value_expr(s, to_type(s, value, type), args[i]->span);
    }
    return true;
}

SemaValue inline_fn(Sema *s, const Node *fn, const Node *call) {
    Inlining frame;
    SemaValue *values = NEW_ARRAY(s->arena, SemaValue, fn->kids[0]->count + 1);
    Type type = find_type(s, fn->kids[1]);
    if (type == TYPE_NONE || !fn_args(s, fn, call, values) || !enter(s, &frame, fn, call))
        return value_poison(call->span);
    NameScope scope, inner, *outer = s->scope;
    s->scope = s->file;
    scope_open(s, &scope);
    for (int i = 0; i < fn->kids[0]->count; i++) {
        const Node *param = fn->kids[0]->kids[i];
        bind_scalar(s, param, values[i], uses(fn->kids[2], param->text, false) <= 1);
    }
    scope_open(s, &inner);
    int loops = s->loops;
    s->loops = 0;
    SemaValue value = tail(s, fn->kids[2]->kids, fn->kids[2]->count, NULL, type, fn->span);
    s->loops = loops;
    s->scope = outer;
    s->inlining = frame.outer;
    value.span = call->span;
    return value;
}

// ---- macro ----
static const char *scope_text(int scope) {
    return scope == SCOPE_SHARED     ? "shared"
           : scope == SCOPE_FRAGMENT ? "a fragment"
           : scope == SCOPE_LOCAL    ? "local"
                                     : "global";
}

static bool check_mode(Sema *s, const Node *param, const Node *arg, const View *view) {
    static const int scopes[] = {[AST_IN] = SCOPE_GLOBAL | SCOPE_SHARED | SCOPE_FRAGMENT | SCOPE_LOCAL,
                                 [AST_OUT] = SCOPE_GLOBAL,
                                 [AST_INOUT] = SCOPE_GLOBAL,
                                 [AST_SHARED] = SCOPE_SHARED,
                                 [AST_FRAGMENT] = SCOPE_FRAGMENT,
                                 [AST_LOCAL] = SCOPE_LOCAL};
    const Buf *buf = view->buf;
    Type own = view_type(view), type = bind_type(s, param->kids[0], own);
    int rank = param->kids[1] ? param->kids[1]->count : 0;
    if (type == TYPE_NONE) return false;
    if (has_index_map(param) || (param->kids[1] && param->kids[1]->op == AST_LEADING)) {
        diag(s->sink, param->span, T_PARAM_OF_MACRO, param->text);
        return false;
    }
    if ((scopes[param->op] & (int)buf->scope) && type == own && rank == view->rank) return true;
    Diag *d = diag(s->sink, arg->span, T_MACRO_ARGUMENT, buf->name, param->text);
    if (!(scopes[param->op] & (int)buf->scope))
        diag_note(d, "the argument is %s, the parameter %s", scope_text((int)buf->scope),
                  scope_text(scopes[param->op]));
    else if (type != own)
        diag_note(d, "the argument has elements of %s, the parameter of %s", type_text(own), type_text(type));
    else diag_note(d, "the argument has rank %d, the parameter %d", view->rank, rank);
    diag_label(d, param->span, "the parameter");
    diag_label(d, buf->loc, "the argument");
    return false;
}

// A dim of a parameter: a new name is bound to the argument's extent, anything else must equal it.
static void bind_dim(Sema *s, const Node *dim, const View *view, int at) {
    Expr *extent = view->shape[at];
    int64_t known;
    SemaValue value = expr_const(extent, &known) ? value_int(known, dim->span) : value_expr(s, extent, dim->span);
    if (dim->kind == N_NAME && !find(s, dim->text)) {
        declare_value(s, dim->text, value, dim->span);
        return;
    }
    SemaValue want = expression(s, dim);
    if (is_poison(want)) return;
    Expr *wanted = to_index(s, want);
    int64_t number;
    if (expr_equal(wanted, extent) || !expr_const(wanted, &number) || !expr_const(extent, &known)) return;
    diag(s->sink, dim->span, T_MACRO_DIM, (long long)number, at, view->buf->name, (long long)known);
}

static void bind_buffer(Sema *s, const Node *param, const Node *arg, NameScope *caller) {
    NameScope *mine = s->scope;
    s->scope = caller;
    const View *view = view_named(s, arg);
    s->scope = mine;
    if (!view || !check_mode(s, param, arg, view)) return;
    declare_view(s, param->text, view, param->span);
    for (int i = 0; i < view->rank; i++) bind_dim(s, param->kids[1]->kids[i], view, i);
}

static void bind_channel(Sema *s, const Node *param, const Node *arg, NameScope *caller) {
    NameScope *mine = s->scope;
    s->scope = caller;
    Buf *channel = channel_named(s, arg);
    s->scope = mine;
    if (channel) declare(s, SYMBOL_BUF, param->text, param->span)->buf = channel;
}

static void bind_macro_scalar(Sema *s, const Node *param, const Node *arg, NameScope *caller) {
    Type type = find_type(s, param->kids[0]);
    if (type == TYPE_CHANNEL) {
        bind_channel(s, param, arg, caller);
        return;
    }
    NameScope *mine = s->scope;
    s->scope = caller;
    Symbol *symbol = arg->kind == N_NAME ? find(s, arg->text) : NULL;
    bool by_reference = symbol && symbol->kind == SYMBOL_VAR && symbol->var->type == type;
    SemaValue value = by_reference ? value_poison(arg->span) : expression(s, arg);
    s->scope = mine;
    if (by_reference) declare(s, SYMBOL_VAR, param->text, param->span)->var = symbol->var;
    else if (type == TYPE_NONE || is_poison(value)) declare_value(s, param->text, value_poison(arg->span), param->span);
    else bind_scalar(s, param, value_expr(s, to_type(s, value, type), arg->span), false);
}

void inline_macro(Sema *s, const Node *macro, const Node *call) {
    const Node *params = macro->kids[0];
    const Node **args = NEW_ARRAY(s->arena, const Node *, params->count + 1);
    Inlining frame;
    if (!match_params(s, macro, call, args) || !enter(s, &frame, macro, call)) return;
    int before = diag_errors(s->sink);
    NameScope scope, inner, *caller = s->scope;
    s->scope = s->file;
    scope_open(s, &scope);
    for (int i = 0; i < params->count; i++)   // buffers first: scalars may be converted to what a dim says
        if (params->kids[i]->kids[1]) bind_buffer(s, params->kids[i], args[i], caller);
    for (int i = 0; i < params->count; i++)
        if (!params->kids[i]->kids[1]) bind_macro_scalar(s, params->kids[i], args[i], caller);
    scope_open(s, &inner);
    int loops = s->loops;
    s->loops = 0;
    if (diag_errors(s->sink) == before) statements(s, macro->kids[1]);
    s->loops = loops;
    s->scope = caller;
    s->inlining = frame.outer;
}
