#include "runtime/compile/chosen.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "runtime/plan/build.h"
#include <string.h>

typedef struct Chooser {
    Module *module;
    const Target *target;
    const LaunchFor *asked;
    Arena *arena;
    const Plan *plan;         // of the module, as a launch reads it
    const PlanEntry *entry;   // that is launched
    bool *kept;               // of each function
    int count;                // arguments
    const LaunchArg *args;
} Chooser;

static const Span NOWHERE;

static int multiprocessors_of(const Chooser *c) {
    return c->asked->multiprocessors ? c->asked->multiprocessors : c->target->multiprocessors;
}

static const Plan *plan_of(const Chooser *c) {
    StrBuf text;
    sb_init(&text, c->arena);
    plan_write(plan_build(c->module, c->target, NULL), &text);
    return plan_read(c->arena, c->module->failure, c->module->sink, sb_text(&text), text.length);
}

// ---- arguments by name ----

static HostScope scope_of(const Chooser *c) {
    HostScope scope = {.multiprocessors = multiprocessors_of(c)};
    VEC_EACH (const RecordValue, value, c->asked->values) {
        HostName name = {value->name, scalar_integer(TYPE_I64, value->value)};
        vec_push(c->arena, &scope.names, name);
    }
    return scope;
}

static bool evaluate(const Chooser *c, const HostScope *scope, const HostExpr *expr, int64_t *out) {
    Scalar value = {0};
    const char *why = NULL;
    bool known = host_eval(c->arena, scope, expr->expr, &value, &why);
    if (!known) diag(c->module->sink, NOWHERE, T_HOST_VALUE, "a shape", c->entry->name, why);
    *out = value.integer;
    return known;
}

static bool names_no_value(const Chooser *c, const HostExpr *expr) {
    VEC_EACH (const RecordValue, value, c->asked->values)
        if (strcmp(value->name, expr->text) == 0) return false;
    return expr->expr->kind == EXPR_VAR;
}

// A program's parameters have the argument's dims.
static int innermost_of(const PlanParam *p) {
    Expr *shape[LAYOUT_MAX_RANK], *strides[LAYOUT_MAX_RANK];
    if (p->moved || !p->strides) return p->moved;
    for (int d = 0; d < p->rank; d++) shape[d] = p->shape[d].expr, strides[d] = p->strides[d].expr;
    return moved_by_strides(p->rank, p->leading, shape, strides);
}

static bool make_tensor(const Chooser *c, const HostScope *scope, const PlanParam *p, LaunchArg *arg) {
    arg->is_tensor = true;
    arg->rank = p->rank;
    for (int d = 0; d < p->rank; d++)
        if (!evaluate(c, scope, &p->shape[d], &arg->shape[d])) return false;
    LaunchArg dense = *arg;   // from the innermost dim on
    int moved = innermost_of(p);
    for (int d = 0; d < p->rank; d++) dense.shape[d] = arg->shape[moved_dim(moved, p->rank, d)];
    launch_arg_dense(&dense);
    for (int d = 0; d < p->rank; d++) arg->strides[moved_dim(moved, p->rank, d)] = dense.strides[d];
    for (int d = 0; p->strides && d < p->rank; d++)   // a stride that is not given is that of a dense tensor
        if (!names_no_value(c, &p->strides[d]) && !evaluate(c, scope, &p->strides[d], &arg->strides[d])) return false;
    return true;
}

static void make_scalar(const HostScope *scope, const PlanParam *p, LaunchArg *arg) {
    int64_t value = 0;
    VEC_EACH (const HostName, name, &scope->names)
        if (strcmp(name->name, p->name) == 0) value = name->value.integer;
    arg->scalar = type_is_float(p->type) ? scalar_real(TYPE_F64, (double)value) : scalar_integer(TYPE_I64, value);
}

static bool is_named(const Expr *e, const void *name) {
    return e->kind == EXPR_VAR && strcmp(e->var->name, name) == 0;
}

static bool takes_value(const PlanVariant *variant, const char *name) {
    VEC_EACH (const PlanParam, p, &variant->params) {
        if (!p->is_tensor && strcmp(p->name, name) == 0) return true;
        for (int d = 0; d < p->rank; d++)
            if (any_expr(p->shape[d].expr, is_named, name) ||
                (p->strides && any_expr(p->strides[d].expr, is_named, name)))
                return true;
    }
    return false;
}

// Each name is one of some variant, and has one value.
static bool values_fit(const Chooser *c) {
    const RecordValues *values = c->asked->values;
    for (int i = 0; i < values->count; i++) {
        const char *name = values->items[i].name;
        bool taken = false;
        for (int k = 0; k < i; k++)
            if (strcmp(values->items[k].name, name) == 0) {
                diag(c->module->sink, NOWHERE, T_DUPLICATE_NAME, name);
                return false;
            }
        VEC_EACH (const PlanVariant, variant, &c->entry->variants) taken |= takes_value(variant, name);
        if (taken) continue;
        diag(c->module->sink, NOWHERE, T_UNKNOWN_BINDING, c->entry->name, name);
        return false;
    }
    return true;
}

static const LaunchArg *make_args(const Chooser *c, int *count) {
    const PlanVariant *first = &c->entry->variants.items[0];
    HostScope scope = scope_of(c);
    LaunchArg *args = NEW_ARRAY(c->arena, LaunchArg, first->params.count + 1);
    *count = first->params.count;
    for (int i = 0; i < *count; i++) {
        const PlanParam *p = &first->params.items[i];
        if (!p->is_tensor) make_scalar(&scope, p, &args[i]);
        else if (!make_tensor(c, &scope, p, &args[i])) return NULL;
    }
    return args;
}

// ---- functions ----

// The function of a variant: those of one name stand in the order of the variants, of which several may be one.
static int function_of(const Chooser *c, const PlanVariant *variant) {
    const PlanEntry *entry = NULL;
    int number = 0, at = 0;
    VEC_EACH (const PlanEntry, candidate, &c->plan->entries)
        for (int i = 0, function = -1; i < candidate->variants.count; i++) {
            function += !candidate->variants.items[i].same_kernel;
            if (&candidate->variants.items[i] == variant) entry = candidate, number = function;
        }
    EXPECT(c->module->failure, entry, "a variant of another plan");
    for (; at < c->module->funcs.count; at++)
        if (strcmp(c->module->funcs.items[at]->name, entry->name) == 0 && number-- == 0) return at;
    fail_internal(c->module->failure, __FILE__, __LINE__, "'%s' has fewer variants than its plan", entry->name);
}

// Whether some tensor has rows that TMA cannot serve.
static bool has_unaligned_rows(const Chooser *c) {
    enum { UNIT = 16 };
    for (int i = 0; i < c->count; i++) {
        int bits = type_bits(c->entry->variants.items[0].params.items[i].type);
        for (int d = 0; c->args[i].is_tensor && d < c->args[i].rank - 1; d++)
            if (c->args[i].strides[d] * bits % (8 * UNIT) != 0) return true;
    }
    return false;
}

// Before the passes it is not known whether the arguments need a variant without facts: where they may, those that are
// to come are kept, too.
static void keep(Chooser *c, const PlanVariant *variant, bool lowered) {
    if (!variant) return;   // a fill
    int at = function_of(c, variant);
    c->kept[at] = true;
    if (lowered) return;
    c->kept[at + module_compared(c->module, at) - 1] = true;
    for (int i = 0; i < c->module->funcs.count && has_unaligned_rows(c); i++) {
        const Func *func = c->module->funcs.items[i];
        bool serves = attr_get(func->attrs, ATTR_WITH_FALLBACK) || attr_get(func->attrs, ATTR_FALLBACK);
        c->kept[i] |= serves && strcmp(func->name, c->module->funcs.items[at]->name) == 0;
    }
}

static bool keeps_some(const Chooser *c, const char *name) {
    for (int i = 0; i < c->module->funcs.count; i++)
        if (c->kept[i] && strcmp(c->module->funcs.items[i]->name, name) == 0) return true;
    return false;
}

// What a program launches in a branch that this launch does not take.
static void keep_callees(Chooser *c, const Func *program) {
    FOR_EACH_STMT (stmt, &program->body) {
        if (stmt->kind != STMT_LAUNCH || keeps_some(c, stmt->launch.callee)) continue;
        for (int i = 0; i < c->module->funcs.count; i++)
            c->kept[i] |= strcmp(c->module->funcs.items[i]->name, stmt->launch.callee) == 0;
    }
}

static void drop_others(Chooser *c) {
    Module *module = c->module;
    int count = 0;
    for (int i = 0; i < module->funcs.count; i++)
        if (c->kept[i] && module->funcs.items[i]->kind == FUNC_PROGRAM) keep_callees(c, module->funcs.items[i]);
    for (int i = 0; i < module->funcs.count; i++)
        if (c->kept[i]) module->funcs.items[count++] = module->funcs.items[i];
    module->one_launch |= count < module->funcs.count;
    module->funcs.count = count;
}

// What the launch would do, and its entry and arguments. False: reported.
static bool dispatch(Chooser *c, Launch *launch) {
    const LaunchFor *asked = c->asked;
    const LaunchDevice device = {.multiprocessors = multiprocessors_of(c), .max_grid = c->target->max_grid};
    c->plan = plan_of(c);
    if (!c->plan) return false;
    c->entry = asked->kernel ? plan_entry(c->plan, asked->kernel) : &c->plan->entries.items[0];
    if (!c->entry) diag(c->module->sink, NOWHERE, T_NO_ENTRY, asked->kernel);
    if (!c->entry || (!asked->args && !values_fit(c))) return false;
    c->args = asked->args, c->count = asked->count;
    if (!c->args && !(c->args = make_args(c, &c->count))) return false;
    return plan_dispatch(c->arena, c->module->sink, c->plan, c->entry, c->count, c->args, &device, (LaunchMemory){0},
                         launch);
}

static Chooser chooser_of(Module *module, const Target *target, const LaunchFor *asked) {
    return (Chooser){.module = module, .target = target, .asked = asked, .arena = module->arena};
}

bool launch_problem(Module *module, const Target *target, const LaunchFor *asked, const char **kernel,
                    TileProblem *problem) {
    Chooser c = chooser_of(module, target, asked);
    Launch launch;
    int said = diag_count(module->sink);
    bool known = module->funcs.count > 0 && dispatch(&c, &launch) && launch.variant && launch.clocks >= 0;
    diag_truncate(module->sink, said);
    if (!known || has_unaligned_rows(&c)) return false;
    const Func *func = module->funcs.items[function_of(&c, launch.variant)];
    *kernel = func->name;
    problem->multiprocessors = multiprocessors_of(&c);
    memcpy(problem->extents, launch.extents, sizeof problem->extents);
    return func->kind == FUNC_KERNEL;
}

bool keep_chosen(Module *module, const Target *target, const LaunchFor *asked, bool lowered) {
    Chooser c = chooser_of(module, target, asked);
    Launch launch;
    if (!dispatch(&c, &launch)) return false;
    c.kept = NEW_ARRAY(c.arena, bool, module->funcs.count + 1);
    keep(&c, launch.variant, lowered);
    VEC_EACH (const Action, action, &launch.actions) keep(&c, action->variant, lowered);
    drop_others(&c);
    return true;
}
