// Calls of kernels in a program: which argument is which parameter, and the kernel that these arguments ask for.
//
// A kernel with compile-time names is made for each call's values: given by name, or read off the arguments (a constant
// extent, an element type), or -D. It gets a name of its own, such as scale__D_64, but where -D gives all of them.
#include "frontend/sema.h"
#include "ir/query.h"
#include <string.h>

// ---- arguments ----
static const Node *named_arg(const Node *call, const char *name) {
    for (int i = 0; i < call->count; i++)
        if (call->kids[i]->kind == N_NAMED && strcmp(call->kids[i]->text, name) == 0) return call->kids[i]->kids[0];
    return NULL;
}

// Parameters of the text that callers pass; with `end`, of those before it.
static int passed_params(const Node *kernel, int end) {
    int count = 0;
    for (int i = 0; i < end; i++) count += !is_hidden_param(kernel->kids[1]->kids[i]);
    return count;
}

// The argument of the callee's parameter `at`; NULL where it is hidden.
static const Node *launch_arg(const Node *call, const Node *kernel, int at) {
    if (is_hidden_param(kernel->kids[1]->kids[at])) return NULL;
    int place = 0, wanted = passed_params(kernel, at);
    for (int i = 0; i < call->count; i++)
        if (call->kids[i]->kind != N_NAMED && place++ == wanted) return call->kids[i];
    return named_arg(call, kernel->kids[1]->kids[at]->text);
}

// The tensor that is passed for parameter `at`; NULL: none.
static const Buf *passed_tensor(Sema *s, const Node *call, const Node *kernel, int at) {
    const Node *arg = launch_arg(call, kernel, at);
    Symbol *symbol = arg && arg->kind == N_NAME ? find(s, arg->text) : NULL;
    bool mapped = symbol && symbol->kind == SYMBOL_VIEW && symbol->view->declared;
    if (!symbol || !kernel->kids[1]->kids[at]->kids[1]) return NULL;
    return symbol->kind == SYMBOL_BUF ? symbol->buf : mapped ? symbol->view->buf : NULL;
}

// From dim *d on, the first that the parameter calls `name` and whose extent in the tensor is constant.
static bool extent_named(Sema *s, const Node *param, const Buf *buf, const char *name, int *d, int64_t *extent) {
    int dims = param->kids[1]->count;
    bool leading = param->kids[1]->op == AST_LEADING;
    for (; *d < dims; ++*d) {
        const Node *dim = param->kids[1]->kids[*d];
        int at = leading ? buf->rank - dims + *d : argument_dim(param, *d);
        if (at < 0 || at >= buf->rank || (leading && *d == 0)) continue;
        if (dim->kind == N_NAME && strcmp(dim->text, name) == 0 && expr_const(known_extent(s, buf, at), extent))
            return true;
    }
    return false;
}

// A compile-time name that the arguments decide: a tensor's type, or a constant extent.
static bool infer(Sema *s, const Node *call, const Node *kernel, const Node *cparam, Choice *out) {
    for (int i = 0; i < kernel->kids[1]->count; i++) {
        const Node *param = kernel->kids[1]->kids[i];
        const Buf *buf = passed_tensor(s, call, kernel, i);
        if (!buf) continue;
        out->type = is_type_param(cparam) && strcmp(param->kids[0]->text, cparam->text) == 0 ? buf->type : TYPE_NONE;
        if (out->type != TYPE_NONE) return true;
        int d = 0;
        int64_t extent;
        if (is_type_param(cparam) || !extent_named(s, param, buf, cparam->text, &d, &extent)) continue;
        out->value = value_int(extent, launch_arg(call, kernel, i)->span);
        return true;
    }
    return false;
}

// No tensor has another extent than the value that the call gives.
static bool agrees(Sema *s, const Node *call, const Node *kernel, const Choice *given, Span span) {
    for (int i = 0; i < kernel->kids[1]->count && given->value.kind == VALUE_INT; i++) {
        const Buf *buf = passed_tensor(s, call, kernel, i);
        int64_t extent;
        for (int d = 0; buf && extent_named(s, kernel->kids[1]->kids[i], buf, given->name, &d, &extent); d++) {
            if (extent == given->value.integer) continue;
            diag(s->sink, span, T_MACRO_DIM, (long long)given->value.integer, d, buf->name, (long long)extent);
            return false;
        }
    }
    return true;
}

// A signed integer without its type, as -D and extents give it: one kernel for one number.
static SemaValue plain_number(SemaValue value) {
    bool typed = value.kind == VALUE_EXPR && (value.expr->type == TYPE_I32 || value.expr->type == TYPE_I64);
    return typed ? value_int(value.expr->integer, value.span) : value;
}

static bool call_choice(Sema *s, const Node *call, const Node *kernel, const Node *cparam, Choice *out) {
    const Node *given = named_arg(call, cparam->text);
    const Define *define = define_of_own(s, kernel->text, cparam->text);
    *out = (Choice){.name = cparam->text, .type = TYPE_NONE, .value = value_poison(cparam->span)};
    if (given && is_type_param(cparam)) {
        if (given->kind == N_NAME) out->type = type_by_name(s, given->text);
        return check_type(s, kernel, cparam, out->type, given->span);
    }
    if (given) {
        out->value = plain_number(constant(s, given, "a compile-time value"));
        return !is_poison(out->value) && agrees(s, call, kernel, out, given->span);
    }
    if (infer(s, call, kernel, cparam, out))
        return !is_type_param(cparam) || check_type(s, kernel, cparam, out->type, call->span);
    if (!define && (out->type = usual_type(s, kernel, cparam)) != TYPE_NONE) return true;
    if (define) out->value = define_value(s, define, cparam->span, &out->type);
    if (define && is_type_param(cparam)) return check_type(s, kernel, cparam, out->type, call->span);
    if (define && out->type == TYPE_NONE) return true;
    Diag *d = diag(s->sink, call->span, T_NO_COMPILE_VALUE, cparam->text, cparam->text);
    diag_note(d, "or give it in the call: %s(..., %s = ...)", kernel->text, cparam->text);
    return false;
}

// Whether -D gives a name the value that the call does.
static bool is_defined_so(Sema *s, const Node *kernel, const Node *cparam, const Choice *choice) {
    const Define *define = define_of_own(s, kernel->text, cparam->text);
    if (!define) return false;
    Choice own = {.type = TYPE_NONE, .value = value_poison(cparam->span)};
    own.value = define_value(s, define, cparam->span, &own.type);
    return own.type == choice->type && values_equal(own.value, choice->value);
}

// Types that all are the usual ones, of which alone the kernel is built for itself.
static bool is_usual(Sema *s, const Node *kernel, const ChoiceVec *choices) {
    int diags = diag_count(s->sink);
    const ChoiceVec *all;
    for (int i = 0; i < choices->count; i++)
        if (choices->items[i].type == TYPE_NONE ||
            choices->items[i].type != usual_type(s, kernel, kernel->kids[0]->kids[i]))
            return false;
    bool one = choices->count > 0 && combinations(s, kernel, &all) == 1;
    for (int i = 0; one && i < choices->count; i++) one = all[0].items[i].type == choices->items[i].type;
    diag_truncate(s->sink, diags);
    return one;
}

// Of the values of the call, and none where -D gives all of them, so that the kernel that is built for itself is called.
static const char *callee_name(Sema *s, const Node *call, const Node *kernel, ChoiceVec *choices) {
    bool defined = true;
    for (int i = 0; i < kernel->kids[0]->count; i++) {
        Choice choice;
        if (!call_choice(s, call, kernel, kernel->kids[0]->kids[i], &choice)) return NULL;
        defined &= is_defined_so(s, kernel, kernel->kids[0]->kids[i], &choice);
        vec_push(s->arena, choices, choice);
    }
    if (defined || is_usual(s, kernel, choices)) *choices = (ChoiceVec){0};
    return choices->count ? mangled(s, kernel->text, choices, false) : kernel->text;
}

static Func *made_func(Sema *s, const char *name) {
    for (int i = 0; i < s->made.count; i++)
        if (strcmp(s->made.items[i].func->name, name) == 0) return s->made.items[i].func;
    return NULL;
}

static void make_variants(Sema *s, const char *text, NodeKind kind, const char *name, const ChoiceVec *choices) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const Node *node = s->syntax->items.items[i].node;
        if (node->kind != kind || strcmp(node->text, text) != 0) continue;
        if (choices->count) make_function(s, i, name, choices, true);
        else elaborate_item(s, i);
    }
}

// The kernel to call, made when it is not there yet, with all its variants.
static Func *callee(Sema *s, const Node *call, const Node *kernel) {
    ChoiceVec choices = {0};
    const char *name = callee_name(s, call, kernel, &choices);
    if (!name) return NULL;
    if (!made_func(s, name)) {
        make_variants(s, kernel->text, N_KERNEL, name, &choices);
        make_variants(s, kernel->text, N_PROGRAM, name, &choices);
    }
    return made_func(s, name);
}

static bool check_tensor(Sema *s, const Node *node, const Buf *buf, const Buf *param) {
    Diag *d = NULL;
    int more = buf->rank - param->rank;   // leading dims, which the launch makes one
    if (buf->type != param->type || !param_takes_rank(param, buf->rank) || buf->scope != SCOPE_GLOBAL)
        d = diag(s->sink, node->span, T_LAUNCH_TENSOR, buf->name, param->name, type_text(param->type), param->rank);
    else if (param->mode != MODE_IN && buf->is_param && buf->mode == MODE_IN)
        d = diag(s->sink, node->span, T_READ_ONLY, buf->name);
    if (d) diag_label(d, param->loc, "the parameter");
    for (int i = param->leading; !d && i < param->rank; i++) {
        int64_t want, got;
        int at = moved_dim(param->moved, param->rank, i) + more;
        if (!expr_const(param->shape[i], &want) || !expr_const(known_extent(s, buf, at), &got) || want == got) continue;
        d = diag(s->sink, node->span, T_MACRO_DIM, (long long)want, at, buf->name, (long long)got);
    }
    return !d;
}

static bool launch_argument(Sema *s, const Node *node, const Param *param, Arg *out) {
    if (param->var) {
        SemaValue value = expression(s, node);
        out->value = s->verbatim && value.kind == VALUE_EXPR ? value.expr : to_type(s, value, param->var->type);
        return !is_poison(value);
    }
    Buf *buf = buffer_named(s, node);
    if (!buf || !param->buf || !check_tensor(s, node, buf, param->buf))
        return false;   // NULL: reported where it is declared
    *out = arg_region(region_whole(s->arena, buf));
    out->region->loc = place_of(s, node->span);
    return true;
}

// Two parameters are two tensors, unless they say that they may be one: a read of one may be moved before a write of
// the other.
static bool check_twice(Sema *s, const Func *func, const Stmt *launch) {
    for (int i = 0; i < launch->launch.count; i++)
        for (int j = 0; j < launch->launch.count; j++) {
            const Region *read = launch->launch.args[i].region, *written = launch->launch.args[j].region;
            if (i == j || !read || !written || buf_root(read->buf) != buf_root(written->buf)) continue;
            const Buf *from = func_argument(func, i)->buf, *to = func_argument(func, j)->buf;
            if (to->mode == MODE_IN || from->alias_of == to || (from->mode != MODE_IN && i < j)) continue;
            Diag *d = diag(s->sink, written->loc, T_SAME_TENSOR, written->buf->name, from->name, to->name, func->name);
            diag_label(d, to->loc, "the parameter that is written");
            return false;
        }
    return true;
}

static bool launch_names(Sema *s, const Node *call, const Node *kernel) {
    int places = 0, passed = passed_params(kernel, kernel->kids[1]->count);
    bool fine = true, named = true;
    for (int i = 0; i < call->count; i++) {
        const Node *arg = call->kids[i];
        bool known = arg->kind != N_NAMED && places++ < passed;
        for (int k = 0; arg->kind == N_NAMED && k < 2; k++)
            for (int j = 0; j < kernel->kids[k]->count; j++)
                known |= strcmp(kernel->kids[k]->kids[j]->text, arg->text) == 0;
        fine &= known;
        named &= known || arg->kind != N_NAMED;
        if (!known && arg->kind == N_NAMED) diag(s->sink, arg->span, T_UNKNOWN_ARGUMENT, kernel->text, arg->text);
    }
    if (!named) return false;
    for (int i = 0; fine && i < kernel->kids[1]->count; i++)
        fine = is_hidden_param(kernel->kids[1]->kids[i]) || launch_arg(call, kernel, i);
    if (fine) return true;
    Diag *d = diag(s->sink, call->span, T_ARGUMENTS, kernel->text);
    diag_label(d, kernel->span, "it takes %d", passed);
    return false;
}

// The first variant that is a kernel; NULL: all are programs.
static const Node *kernel_named(const Syntax *syntax, const char *name) {
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *node = syntax->items.items[i].node;
        if (node->kind == N_KERNEL && strcmp(node->text, name) == 0) return node;
    }
    return NULL;
}

static bool leads_back(Sema *s, const Node *call) {
    const Making *making = s->making;
    while (making && strcmp(making->node->text, call->text) != 0) making = making->outer;
    if (!making) return false;
    Diag *d = diag(s->sink, call->span, T_RECURSION, "program", call->text);
    diag_label(d, making->node->span, "declared here");
    return true;
}

static ChoiceVec choices_of(Sema *s, const Func *func) {
    for (int i = s->made.count - 1; i >= 0; i--)
        if (s->made.items[i].func == func) return s->made.items[i].choices;
    fail_internal(s->failure, __FILE__, __LINE__, "%s is launched, but was not made", func->name);
}

void launch_statement(Sema *s, const Node *call) {
    const Node *kernel = kernel_named(s->syntax, call->text);
    if (!kernel) {
        diag(s->sink, call->span, T_CALLS_PROGRAM, call->text);
        return;
    }
    if (leads_back(s, call)) return;
    if (!launch_names(s, call, kernel)) return;
    Func *func = callee(s, call, kernel);
    if (!func) return;
    Stmt *stmt = stmt_new(s->arena, STMT_LAUNCH, place_of(s, call->span));
    stmt->launch.callee = func->name;
    stmt->launch.args = NEW_ARRAY(s->arena, Arg, func->params.count + 1);
    int next = 0;   // of the first variant's parameters: others may have more or less hidden ones
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param_is_hidden(param)) continue;
        while (next < kernel->kids[1]->count && is_hidden_param(kernel->kids[1]->kids[next])) next++;
        Arg *out = &stmt->launch.args[stmt->launch.count++];
        if (next < kernel->kids[1]->count) {
            if (!launch_argument(s, launch_arg(call, kernel, next++), param, out)) return;
            continue;
        }
        ChoiceVec choices = choices_of(s, func);   // a compile-time name that became a scalar parameter
        const Choice *choice = choice_named(&choices, param->var->name);
        if (choice) out->value = to_type(s, choice->value, param->var->type);
    }
    if (!s->verbatim && !check_twice(s, func, stmt)) return;
    emit(s, stmt);
}

static void link_block(Sema *s, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_LAUNCH) stmt->launch.func = module_func(s->module, stmt->launch.callee);
        if (stmt->kind == STMT_BLOCK) link_block(s, &stmt->block);
        if (stmt->kind != STMT_IF) continue;
        link_block(s, &stmt->if_.then);
        link_block(s, &stmt->if_.otherwise);
    }
}

void link_launches(Sema *s) {
    for (int i = 0; i < s->module->funcs.count; i++)
        if (s->module->funcs.items[i]->kind == FUNC_PROGRAM) link_block(s, &s->module->funcs.items[i]->body);
}
