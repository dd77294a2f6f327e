// Tests: what each binding means, which tests belong to a module, and the choices that need an elaboration each.
//
// Consts, tunables and types are used up by the elaboration: a test belongs to the modules that were made with its
// values of them. Dims, strides, scalars and numeric compile-time names stay in the test, as arguments of its launch.
#include "frontend/sema.h"
#include "ir/rewrite.h"
#include "support/strbuf.h"
#include <stdlib.h>
#include <string.h>

// ---- what a binding means ----
typedef enum { BIND_UNKNOWN, BIND_PARAM, BIND_CHOICE, BIND_TYPE, BIND_TUNABLE, BIND_CONST } BindKind;

static bool tunable_in(const Node *block, const char *name) {
    for (int i = 0; i < block->count; i++)
        for (int k = 0; block->kids[i]->kind == N_TUNE && k < block->kids[i]->count; k++)
            if (strcmp(block->kids[i]->kids[k]->text, name) == 0) return true;
    return false;
}

// Of the kernel itself; a program's test sets those of the kernels it calls.
static bool is_tunable(const Syntax *syntax, const Node *target, const char *name) {
    if (target && target->kind == N_KERNEL) return tunable_in(target->kids[3], name);
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *node = syntax->items.items[i].node;
        if (node->kind == N_KERNEL && tunable_in(node->kids[3], name)) return true;
    }
    return false;
}

static bool names(const Node *node, const char *name) {
    if (!node) return false;
    if (node->kind == N_NAME) return strcmp(node->text, name) == 0;
    for (int i = 0; i < node->count; i++)
        if (names(node->kids[i], name)) return true;
    return false;
}

static BindKind binding_kind(Sema *s, const Node *target, const char *name) {
    const Node *cparams = target->kids[0], *params = target->kids[1];
    for (int i = 0; i < cparams->count; i++)
        if (strcmp(cparams->kids[i]->text, name) == 0) return is_type_param(cparams->kids[i]) ? BIND_TYPE : BIND_CHOICE;
    if (strmap_has(s->syntax->consts, name)) return BIND_CONST;
    for (int i = 0; i < params->count; i++) {
        const Node *param = params->kids[i];
        bool hidden = is_hidden_param(param);
        if (!param->kids[1] && !hidden && strcmp(param->text, name) == 0) return BIND_PARAM;
        if (names(param->kids[1], name) || names(param->kids[2], name)) return BIND_PARAM;
    }
    return is_tunable(s->syntax, target, name) ? BIND_TUNABLE : BIND_UNKNOWN;
}

static bool has_names(Sema *s, const Node *target, const Node *test) {
    const Node *list = test->kids[0];
    for (int i = 0; i < list->count; i++)
        if (binding_kind(s, target, list->kids[i]->text) == BIND_UNKNOWN) return false;
    return true;
}

// Of the variants of that name the first that has all names of the test, as strides; else the first. NULL: there is none.
static const Node *tested(Sema *s, const Node *test) {
    int first = item_named(s->syntax, test->text);
    for (int i = first; first >= 0 && i < s->syntax->items.count; i++) {
        const Node *node = s->syntax->items.items[i].node;
        bool same = node->kind == s->syntax->items.items[first].node->kind && strcmp(node->text, test->text) == 0;
        if (same && has_names(s, node, test)) return node;
    }
    return first < 0 ? NULL : s->syntax->items.items[first].node;
}

static bool used_up(BindKind kind) {
    return kind == BIND_TYPE || kind == BIND_TUNABLE || kind == BIND_CONST;
}

static void put_names(StrMap *map, const Node *node) {
    if (!node) return;
    if (node->kind == N_NAME || node->kind == N_PARAM || node->kind == N_CPARAM) strmap_put(map, node->text, map);
    for (int i = 0; i < node->count; i++) put_names(map, node->kids[i]);
}

static void unknown_binding(Sema *s, const Node *target, const Node *bind) {
    Diag *d = diag(s->sink, bind->span, T_UNKNOWN_BINDING, target->text, bind->text);
    const Node *params = target->kids[1];
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->kids[i]->text, bind->text) != 0) continue;
        diag_note(d, "'%s' is a tensor: fill it in the test's block, by a loop over its elements", bind->text);
        return;
    }
    StrMap *all = strmap_new(s->arena);
    put_names(all, target->kids[0]);
    put_names(all, target->kids[1]);
    diag_suggest(d, bind->span, strmap_nearest(all, bind->text));
}

// ---- one test ----
static SemaValue bound_value(Sema *s, const Node *bind) {
    NameScope *scope = s->scope;
    s->scope = s->file;
    SemaValue value = constant(s, bind->kids[0], "a test's value");
    s->scope = scope;
    return value;
}

static Type param_type(const Func *func, const char *name) {
    for (int i = 0; i < func->params.count; i++) {
        const Var *var = func->params.items[i].var;
        if (var && strcmp(var->name, name) == 0) return var->type;
    }
    return TYPE_I64;
}

// The value of a name that the elaboration uses up, in the module that is being made.
static SemaValue current_value(Sema *s, const char *name, Type *type) {
    *type = TYPE_NONE;
    const Define *define = define_of(s, name);
    if (define) return define_value(s, define, (Span){0}, type);
    Symbol *symbol = strmap_get(s->file->symbols, name);
    if (!symbol) return value_poison((Span){0});
    NameScope *scope = s->scope;
    s->scope = s->file;
    SemaValue value = find(s, name)->value;
    s->scope = scope;
    return value;
}

static const Choice *made_choice(const Made *made, const char *name) {
    for (int i = 0; i < made->choices.count; i++)
        if (strcmp(made->choices.items[i].name, name) == 0) return &made->choices.items[i];
    return NULL;
}

// A tunable that is not defined has the value that was chosen for it.
static bool tuned_to(Sema *s, const Node *target, const char *name, SemaValue value) {
    bool seen = false;
    for (int i = 0; i < s->made.count; i++) {
        const Made *made = &s->made.items[i];
        if (target->kind == N_KERNEL && made->node != target) continue;
        for (const Attr *attr = made->func->attrs; attr; attr = attr->next) {
            if (attr->id != ATTR_TUNED || strcmp(attr->args[0].text, name) != 0) continue;
            seen = true;
            if (value.kind != VALUE_INT || value.integer != attr->args[1].integer) return false;
        }
    }
    return seen;
}

static bool binding_holds(Sema *s, const Node *target, const Made *made, const Node *bind) {
    BindKind kind = binding_kind(s, target, bind->text);
    if (kind == BIND_TYPE) {
        const Choice *choice = made_choice(made, bind->text);
        return choice && bind->kids[0]->kind == N_NAME && choice->type == type_by_name(s, bind->kids[0]->text);
    }
    Type type;
    SemaValue want = bound_value(s, bind);
    if (kind == BIND_TUNABLE && !define_of(s, bind->text)) return tuned_to(s, target, bind->text, want);
    return values_equal(want, current_value(s, bind->text, &type));
}

static const Node *binding(const Node *test, const char *name) {
    const Node *list = test->kids[0];
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->kids[i]->text, name) == 0) return list->kids[i];
    return NULL;
}

// Whether a test has a binding of that name.
static bool bound_by_some_test(const Syntax *syntax, const char *name) {
    for (int i = 0; i < syntax->items.count; i++) {
        const SyntaxItem *item = &syntax->items.items[i];
        if (item->node->kind == N_TEST && !item->imported && binding(item->node, name)) return true;
    }
    return false;
}

static SemaValue default_value(Sema *s, const char *name) {
    const Node *node = strmap_get(s->syntax->consts, name);
    if (!node) return value_poison((Span){0});
    NameScope *scope = s->scope;
    s->scope = s->file;
    SemaValue value = constant(s, node->kids[0], "a const");
    s->scope = scope;
    return value;
}

// A define that only other tests ask for does not fit this one, unless it is the default.
static bool default_holds(Sema *s, const Node *test, const char *name) {
    if (binding(test, name) || !bound_by_some_test(s->syntax, name)) return true;
    SemaValue usual = default_value(s, name);
    Type type;
    return !is_poison(usual) && values_equal(usual, current_value(s, name, &type));
}

// A type that the test does not bind is the usual one, or what -D says.
static bool usual_holds(Sema *s, const Node *test, const Node *target, const Choice *choice) {
    if (choice->type == TYPE_NONE || binding(test, choice->name) || define_of_own(s, target->text, choice->name))
        return true;
    const Node *cparams = target->kids[0];
    for (int i = 0; i < cparams->count; i++)
        if (strcmp(cparams->kids[i]->text, choice->name) == 0)
            return usual_type(s, target, cparams->kids[i]) == choice->type;
    return true;
}

static int choice_index(Sema *s, const Node *test);

static bool belongs(Sema *s, const Node *test, const Node *target, const Made *made) {
    const Node *list = test->kids[0];
    bool chosen = s->options->test_choice > 0;
    if (chosen && choice_index(s, test) != s->options->test_choice - 1) return false;
    for (int i = 0; i < list->count; i++) {
        BindKind kind = binding_kind(s, target, list->kids[i]->text);
        bool decides = chosen ? kind == BIND_TYPE : used_up(kind);
        if (decides && !binding_holds(s, target, made, list->kids[i])) return false;
    }
    for (int i = 0; i < made->choices.count; i++)
        if (!usual_holds(s, test, target, &made->choices.items[i])) return false;
    for (int i = 0; i < s->options->define_count && !chosen; i++)
        if (!default_holds(s, test, s->options->defines[i].name)) return false;
    return true;
}

static bool is_stride(const Func *func, const Var *dim) {
    for (int i = 0; i < func->params.count; i++) {
        const Buf *buf = func->params.items[i].buf;
        for (int d = 0; buf && d < buf->rank; d++)
            if (expr_uses_var(buf->shape[d], dim)) return false;
    }
    return true;
}

static void check_bound(Sema *s, const Node *node, const Func *func, const Test *test, const Var *var, bool optional) {
    for (int i = 0; i < test->bindings.count; i++)
        if (strcmp(test->bindings.items[i].name, var->name) == 0) return;
    (void)func;
    if (!optional) diag(s->sink, node->span, T_UNBOUND, var->name);
}

static void check_all_bound(Sema *s, const Node *node, const Func *func, const Test *test) {
    for (int i = 0; i < func->dims.count; i++)
        check_bound(s, node, func, test, func->dims.items[i], is_stride(func, func->dims.items[i]));
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->var && !param_is_hidden(param)) check_bound(s, node, func, test, param->var, false);
    }
}

static bool read_bindings(Sema *s, const Node *node, const Node *target, const Func *func, Test *test) {
    const Node *list = node->kids[0];
    bool fine = true;
    for (int i = 0; i < list->count; i++) {
        const Node *bind = list->kids[i];
        BindKind kind = binding_kind(s, target, bind->text);
        if (kind == BIND_UNKNOWN) unknown_binding(s, target, bind);
        for (int k = 0; k < i; k++)
            if (strcmp(list->kids[k]->text, bind->text) == 0) diag(s->sink, bind->span, T_DUPLICATE_NAME, bind->text);
        if (kind == BIND_UNKNOWN || used_up(kind)) continue;
        SemaValue value = bound_value(s, bind);
        fine &= !is_poison(value);
        Type type = param_type(func, bind->text);
        if (type_is_int(type) && !is_poison(value) && !type_is_int(value_type(s, value))) {
            diag(s->sink, bind->kids[0]->span, T_CONSTANT_KIND, bind->text, "an integer", value_text(s, value));
            fine = false;
            continue;
        }
        Binding made = {.name = bind->text, .value = to_type(s, value, type)};
        vec_push(s->arena, &test->bindings, made);
    }
    return fine;
}

static void add_test(Sema *s, const Node *node, const Node *target, const Made *made) {
    Test *test = NEW(s->arena, Test);
    *test = (Test){.name = made->func->name, .loc = node->span};
    int errors = diag_errors(s->sink);
    if (!read_bindings(s, node, target, made->func, test)) return;
    if (diag_errors(s->sink) == errors)   // else a name that is missing may be the one that is wrong
        check_all_bound(s, node, made->func, test);
    SemaValue tolerance = constant(s, node->kids[2], "a tolerance");
    if (is_poison(tolerance)) return;
    test->tolerance = settle(s, (SemaValue){.kind = VALUE_EXPR, .expr = to_type(s, tolerance, TYPE_F64)})->real;
    if (!(test->tolerance >= 0)) {
        const char *given = arena_printf(s->arena, "%g", test->tolerance);
        diag(s->sink, node->kids[2]->span, T_CONSTANT_KIND, "a tolerance", "a number that is not negative", given);
        return;
    }
    if (node->kids[1])
        test->fill = elaborate_scalar(s, made->node, &made->choices, made->func->name, node->kids[1], IN_FILL);
    vec_push(s->arena, &s->module->tests, test);
}

static void elaborate_test(Sema *s, const Node *node) {
    const Node *target = tested(s, node);
    if (!target) {
        Diag *d = diag(s->sink, node->span, T_NO_TARGET, "test", node->text);
        diag_suggest(d, node->span, strmap_nearest(s->syntax->launchables, node->text));
        return;
    }
    for (int i = 0; i < s->made.count; i++) {
        const Made *made = &s->made.items[i];
        if (made->called || made->broken || strcmp(made->node->text, node->text) != 0) continue;
        if (has_names(s, target, node) && !has_names(s, made->node, node)) continue;
        if (!belongs(s, node, target, made)) continue;
        add_test(s, node, target, made);
        return;
    }
}

void elaborate_tests(Sema *s) {
    for (int i = 0; i < s->syntax->items.count; i++) {
        const SyntaxItem *item = &s->syntax->items.items[i];
        bool wanted = !s->options->only || strcmp(s->options->only, item->node->text) == 0;
        if (item->node->kind == N_TEST && !item->imported && wanted) elaborate_test(s, item->node);
    }
}

// ---- choices ----
typedef VEC(Define) DefineVec;
typedef VEC(DefineVec) ChoiceList;   // in order of the first test of each

static int by_name(const void *a, const void *b) {
    return strcmp(((const Define *)a)->name, ((const Define *)b)->name);
}

static bool defines_equal(const DefineVec *a, const DefineVec *b) {
    bool equal = a->count == b->count;
    for (int i = 0; equal && i < a->count; i++)
        equal = strcmp(a->items[i].name, b->items[i].name) == 0 && strcmp(a->items[i].value, b->items[i].value) == 0;
    return equal;
}

// What one test asks for, besides the defaults.
static DefineVec choice_of(Sema *s, const Node *test) {
    DefineVec out = {0};
    const Node *target = tested(s, test), *list = test->kids[0];
    for (int i = 0; target && i < list->count; i++) {
        const Node *bind = list->kids[i];
        BindKind kind = binding_kind(s, target, bind->text);
        if (!used_up(kind)) continue;
        bool is_type = kind == BIND_TYPE && bind->kids[0]->kind == N_NAME;
        SemaValue value = is_type ? value_poison(bind->span) : bound_value(s, bind);
        if (!is_type && kind == BIND_CONST && values_equal(value, default_value(s, bind->text))) continue;
        bool own = kind == BIND_TYPE;   // another kernel's name may be a number
        Define define = {.name = own ? arena_printf(s->arena, "%s.%s", target->text, bind->text) : bind->text};
        define.value = is_type ? bind->kids[0]->text : constant_text(s->arena, value);
        vec_push(s->arena, &out, define);
    }
    if (out.count) qsort(out.items, (size_t)out.count, sizeof *out.items, by_name);
    return out;
}

static ChoiceList all_choices(Sema *s) {
    ChoiceList all = {0};
    for (int i = 0; i < s->syntax->items.count; i++) {
        const SyntaxItem *item = &s->syntax->items.items[i];
        if (item->node->kind != N_TEST || item->imported) continue;
        DefineVec one = choice_of(s, item->node);
        bool known = false;
        for (int k = 0; k < all.count; k++) known |= defines_equal(&all.items[k], &one);
        if (!known) vec_push(s->arena, &all, one);
    }
    return all;
}

static int choice_index(Sema *s, const Node *test) {
    DefineVec one = choice_of(s, test);
    ChoiceList all = all_choices(s);
    for (int k = 0; k < all.count; k++)
        if (defines_equal(&all.items[k], &one)) return k;
    return -1;
}

int syntax_test_choices(Syntax *syntax, Arena *arena, int index, const Define **defines, int *count) {
    static const ElaborateOptions none = {0};
    Sema *s = sema_new(syntax, arena, syntax->failure, syntax->sink, &none);
    int before = diag_count(syntax->sink);
    ChoiceList all = all_choices(s);
    diag_truncate(syntax->sink, before);   // elaborating the choice says what is wrong
    if (index >= 0 && index < all.count) {
        *defines = all.items[index].items;
        *count = all.items[index].count;
    }
    return all.count;
}

// ---- what a define is for ----
static const Node *test_node(const Syntax *syntax, const Test *test) {
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *node = syntax->items.items[i].node;
        if (node->kind == N_TEST && memcmp(&node->span, &test->loc, sizeof node->span) == 0) return node;
    }
    return NULL;
}

static bool has_choice(const Node *func, const char *name) {
    for (int i = 0; i < func->kids[0]->count; i++)
        if (strcmp(func->kids[0]->kids[i]->text, name) == 0) return true;
    return tunable_in(func->kids[3], name);
}

static bool is_called(const Syntax *syntax, const Node *kernel, const char *by) {
    for (int i = 0; i < syntax->items.count; i++) {
        const Node *program = syntax->items.items[i].node;
        bool mine = program->kind == N_PROGRAM && strcmp(program->text, by) == 0;
        if (mine && calls(program, kernel->text)) return true;
    }
    return false;
}

const char *syntax_define_for(const Syntax *syntax, const Test *test, const Define *define) {
    const Node *node = test_node(syntax, test);
    const char *dot = strchr(define->name, '.');
    size_t length = dot ? (size_t)(dot - define->name) : 0;
    if (strmap_has(syntax->consts, define->name)) return define->name;
    for (int i = 0; node && i < syntax->items.count; i++) {
        const Node *func = syntax->items.items[i].node;
        bool named = !dot || (strlen(func->text) == length && strncmp(func->text, define->name, length) == 0);
        if (!ast_is_launchable(func) || !named || !has_choice(func, dot ? dot + 1 : define->name)) continue;
        if (strcmp(func->text, node->text) == 0) return dot ? dot + 1 : define->name;
        if (is_called(syntax, func, node->text)) return define->name;
    }
    return NULL;
}

typedef VEC(Tunable) TunableVec;

static void add_tunable(Sema *s, const Node *kernel, const Node *tunable, TunableVec *all) {
    const Node *list = tunable->kids[0];
    int64_t *values = NEW_ARRAY(s->arena, int64_t, list->count);
    for (int v = 0; v < list->count; v++) constant_int(s, list->kids[v], "a tunable", INT64_MIN, INT64_MAX, &values[v]);
    Tunable row = {kernel->text, tunable->text, list->count, values};
    vec_push(s->arena, all, row);
}

// The lists may use compile-time names, with their first values, and consts that stand before them.
static void add_tunables(Sema *s, const Node *kernel, TunableVec *all) {
    const ChoiceVec *choices;
    const Node *block = kernel->kids[3];
    NameScope scope;
    bool known = combinations(s, kernel, &choices) > 0;
    scope_open(s, &scope);
    for (int i = 0; known && i < choices[0].count; i++) {
        const Choice *choice = &choices[0].items[i];
        if (choice->type != TYPE_NONE) declare_type(s, choice->name, choice->type, kernel->span);
        else declare_value(s, choice->name, choice->value, kernel->span);
    }
    for (int b = 0; b < block->count; b++) {
        const Node *node = block->kids[b];
        if (node->kind == N_CONST) declare_value(s, node->text, constant(s, node->kids[0], "a const"), node->span);
        for (int k = 0; node->kind == N_TUNE && k < node->count; k++) add_tunable(s, kernel, node->kids[k], all);
    }
    scope_close(s);
}

int syntax_tunables(Syntax *syntax, Arena *arena, int define_count, const Define *defines, const Tunable **tunables) {
    ElaborateOptions options = {.define_count = define_count, .defines = defines};
    Sema *s = sema_new(syntax, arena, syntax->failure, syntax->sink, &options);
    int before = diag_count(syntax->sink);
    TunableVec all = {0};
    for (int i = 0; i < syntax->items.count; i++)
        if (syntax->items.items[i].node->kind == N_KERNEL) add_tunables(s, syntax->items.items[i].node, &all);
    diag_truncate(syntax->sink, before);
    *tunables = all.items;
    return all.count;
}
