#include "runtime/launcher/launcher.h"
#include "runtime/device/tensor_map.h"
#include "runtime/launcher/expression.h"
#include "target/target.h"
#include <ctype.h>
#include <string.h>

extern const char LAUNCHER_TEXT[], LAUNCH_COST_TEXT[];

typedef struct CTensor {
    const char *name, *text;   // in the plan; in C, an Arg
    Type type;
    int rank;
} CTensor;

typedef struct Emit {
    Arena *arena;
    const Plan *plan;
    const char *stem;
    StrBuf *out;
    CNames names;
    VEC(CTensor) tensors;   // in scope
    int next;               // number of the next variable
    int depth;              // of blocks, for indentation
} Emit;

#define TEXT(...) arena_printf(e->arena, __VA_ARGS__)

static void line(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(Emit *e, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sb_printf(e->out, "%*s", 4 * e->depth, "");
    sb_vprintf(e->out, format, args);
    sb_char(e->out, '\n');
    va_end(args);
}

const char *launcher_c_name(Arena *arena, const char *name) {
    char *out = arena_printf(arena, "%s%s", isdigit((unsigned char)name[0]) ? "_" : "", name);
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return out;
}

// A variable of its own, which no keyword and no other name is.
static const char *variable(Emit *e, const char *name) {
    return TEXT("%s_%d", launcher_c_name(e->arena, name), e->next++);
}

static void add_name(Emit *e, const char *name, const char *text) {
    CName item = {name, text};
    vec_push(e->arena, &e->names.items, item);
}

static bool has_name(const Emit *e, const char *name) {
    VEC_EACH (CName, item, &e->names.items)
        if (strcmp(item->name, name) == 0) return true;
    return false;
}

static const char *list_of(Emit *e, int count, const HostExpr *exprs) {
    StrBuf text;
    sb_init(&text, e->arena);
    for (int i = 0; i < count; i++) sb_printf(&text, "%s%s", i ? ", " : "", c_expression(&e->names, exprs[i].expr));
    return count ? sb_text(&text) : "0";
}

// ---- variants ----

static void bind_number(Emit *e, const char *name, const char *type, const char *value) {
    const char *text = variable(e, name);
    line(e, "const %s %s = %s;", type, text, value);
    line(e, "(void)%s;", text);
    add_name(e, name, text);
}

static void bind_lone(Emit *e, const HostExpr *expr, const char *value) {
    const Expr *lone = expr->expr;
    if (lone && lone->kind == EXPR_VAR && !has_name(e, lone->var->name))
        bind_number(e, lone->var->name, "int64_t", value);
}

static void bind_names(Emit *e, const PlanVariant *v) {
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        bool real = !p->is_tensor && type_is_float(p->type);
        if (!p->is_tensor)
            bind_number(e, p->name, real ? "double" : "int64_t", TEXT(real ? "a[%d].real" : "a[%d].integer", i));
        if (p->is_tensor) bind_number(e, p->address, "int64_t", TEXT("(int64_t)a[%d].address", i));
        for (int d = 0; p->is_tensor && d < p->rank; d++) bind_lone(e, &p->shape[d], TEXT("a[%d].shape[%d]", i, d));
    }
    for (int i = 0; i < v->params.count; i++)
        for (int d = 0; v->params.items[i].strides && d < v->params.items[i].rank; d++)
            bind_lone(e, &v->params.items[i].strides[d], TEXT("a[%d].strides[%d]", i, d));
}

static void check_params(Emit *e, const PlanVariant *v) {
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        if (!p->is_tensor) continue;
        line(e, "{");
        line(e, "    const int64_t shape[] = {%s};", list_of(e, p->rank, p->shape));
        if (p->strides) line(e, "    const int64_t strides[] = {%s};", list_of(e, p->rank, p->strides));
        line(e, "    if (!matches(&a[%d], %d, %d, shape, %s) || r->bad) return skip(r);", i, (int)type_bytes(p->type),
             p->rank, p->strides ? "strides" : "NULL");
        line(e, "}");
    }
}

// Conjuncts one by one: conditions are long, and compilers limit the depth of brackets.
static void check_condition(Emit *e, const Expr *expr) {
    if (expr->kind == EXPR_BINARY && expr->binary.op == BIN_LOGICAL_AND) {
        check_condition(e, expr->binary.a);
        check_condition(e, expr->binary.b);
        return;
    }
    line(e, "if (!(%s) || r->bad) return skip(r);", c_expression(&e->names, expr));
}

static const CTensor *tensor_named(const Emit *e, const char *name) {
    for (int i = e->tensors.count - 1; i >= 0; i--)
        if (strcmp(e->tensors.items[i].name, name) == 0) return &e->tensors.items[i];
    return NULL;
}

// Sets the Arg `to` to a region.
static void set_region(Emit *e, const char *to, const PlanRegion *region) {
    const CTensor *tensor = tensor_named(e, region->tensor);
    StrBuf extents;
    unsigned kept = 0;
    if (!tensor) {
        if (!e->names.refused) e->names.refused = TEXT("a region of '%s'", region->tensor);
        return;
    }
    sb_init(&extents, e->arena);
    for (int d = 0; d < region->count; d++) {
        bool stays = region->extent[d].text != NULL;
        kept |= (unsigned)stays << d;
        sb_printf(&extents, "%s%s", d ? ", " : "", stays ? c_expression(&e->names, region->extent[d].expr) : "1");
    }
    line(e, "{");
    line(e, "    const int64_t start[] = {%s};", list_of(e, region->count, region->start));
    line(e, "    const int64_t extent[] = {%s};", region->count ? sb_text(&extents) : "0");
    line(e, "    const int result = region(%s, %s, %d, %d, start, extent, %uu, %d);", to, tensor->text,
         (int)type_bytes(tensor->type), region->count, kept, region->transposed);
    line(e, "    if (result || r->bad) return r->bad ? LAUNCH_VALUE : result;");
    line(e, "}");
}

static const char *value_in(Emit *e, Type type, const HostExpr *expr) {
    return c_converted(&e->names, type, c_type(expr->expr), c_expression(&e->names, expr->expr));
}

static const PlanParam *param_of(const Emit *e, const char *entry, int index) {
    const PlanEntry *callee = plan_entry(e->plan, entry);
    return callee && index < callee->variants.items[0].params.count ? &callee->variants.items[0].params.items[index]
                                                                    : NULL;
}

static void emit_call(Emit *e, const PlanStep *step) {
    const char *args = variable(e, "b");
    line(e, "{");
    e->depth++;
    line(e, "Arg %s[%d];", args, step->args.count + 1);
    line(e, "memset(%s, 0, sizeof %s);", args, args);
    for (int i = 0; i < step->args.count; i++) {
        const PlanArg *arg = &step->args.items[i];
        const PlanParam *param = param_of(e, step->name, i);
        if (arg->region) set_region(e, TEXT("&%s[%d]", args, i), arg->region);
        else if (param)
            line(e, "%s[%d].%s = %s;", args, i, type_is_float(param->type) ? "real" : "integer",
                 value_in(e, param->type, &arg->value));
    }
    line(e, "if (r->bad) return LAUNCH_VALUE;");
    line(e, "const int called = call_%s(r, %s);", launcher_c_name(e->arena, step->name), args);
    line(e, "if (called) return called;");
    e->depth--;
    line(e, "}");
}

// The bits of a constant are known here, whatever its type.
static const char *pattern_of(Emit *e, Type type, const HostExpr *value) {
    const HostScope nothing = {0};
    const char *why;
    Scalar scalar;
    uint64_t bits = 0;
    if (!host_eval(e->arena, &nothing, value->expr, &scalar, &why))
        return c_bits(&e->names, type, value_in(e, type, value));
    scalar_store(scalar_convert(type, scalar), &bits);
    return TEXT("UINT64_C(%llu)", (unsigned long long)bits);
}

static void emit_fill(Emit *e, const PlanStep *step) {
    const CTensor *tensor = tensor_named(e, step->region->tensor);
    const char *target = variable(e, "target");
    line(e, "{");
    e->depth++;
    line(e, "Arg %s;", target);
    set_region(e, TEXT("&%s", target), step->region);
    if (tensor) {
        line(e, "const uint64_t pattern = %s;", pattern_of(e, tensor->type, &step->value));
        line(e, "const int result = r->bad ? LAUNCH_VALUE : fill(r, &%s, %d, pattern);", target,
             (int)type_bytes(tensor->type));
        line(e, "if (result) return result;");
    }
    e->depth--;
    line(e, "}");
}

static void emit_scratch(Emit *e, const PlanParam *p) {
    const char *text = variable(e, p->name);
    line(e, "Arg %s;", text);
    line(e, "{");
    line(e, "    const int64_t shape[] = {%s};", list_of(e, p->rank, p->shape));
    line(e, "    const int result = r->bad ? LAUNCH_VALUE : scratch(r, &%s, %d, %d, shape, %d);", text,
         (int)type_bytes(p->type), p->rank, p->zeroed);
    line(e, "    if (result) return result;");
    line(e, "}");
    CTensor tensor = {p->name, TEXT("&%s", text), p->type, p->rank};
    vec_push(e->arena, &e->tensors, tensor);
}

static void emit_steps(Emit *e, const PlanSteps *steps);

static void emit_branch(Emit *e, const PlanSteps *steps) {
    int names = e->names.items.count, tensors = e->tensors.count;
    e->depth++;
    emit_steps(e, steps);
    e->depth--;
    e->names.items.count = names;
    e->tensors.count = tensors;
}

static void emit_if(Emit *e, const PlanStep *step) {
    const char *condition = variable(e, "c");
    line(e, "const int64_t %s = (%s) != 0;", condition, c_expression(&e->names, step->value.expr));
    line(e, "if (r->bad) return LAUNCH_VALUE;");
    line(e, "if (%s) {", condition);
    emit_branch(e, &step->then);
    line(e, "} else {");
    emit_branch(e, &step->otherwise);
    line(e, "}");
}

static void emit_step(Emit *e, const PlanStep *step) {
    switch (step->kind) {
    case DO_LET:
        bind_number(e, step->name, type_is_float(step->type) ? "double" : "int64_t",
                    value_in(e, step->type, &step->value));
        line(e, "if (r->bad) return LAUNCH_VALUE;");
        break;
    case DO_ASSUME:
        line(e, "if (!(%s) || r->bad) return r->bad ? LAUNCH_VALUE : LAUNCH_ASSUMPTION;",
             c_expression(&e->names, step->value.expr));
        break;
    case DO_SCRATCH: emit_scratch(e, step->scratch); break;
    case DO_IF: emit_if(e, step); break;
    case DO_FILL: emit_fill(e, step); break;
    case DO_LAUNCH: emit_call(e, step); break;
    }
}

static void emit_steps(Emit *e, const PlanSteps *steps) {
    for (int i = 0; i < steps->count; i++) emit_step(e, steps->items[i]);
}

// ---- kernels ----

static int kernel_index(const Plan *plan, const PlanVariant *variant) {
    int index = 0;
    VEC_EACH (PlanEntry, entry, &plan->entries)
        VEC_EACH (PlanVariant, v, &entry->variants) {
            if (v == variant) return index;
            index += v->symbol != NULL;
        }
    return index;   // so many kernels there are
}

static int param_index(const PlanVariant *v, const char *tensor) {
    int at = 0;
    while (strcmp(v->params.items[at].name, tensor) != 0) at++;   // plan_read checked that it exists
    return at;
}

static void emit_map(Emit *e, const PlanVariant *v, int index) {
    const PlanMap *m = &v->maps.items[index];
    int at = param_index(v, m->tensor);
    Type type = v->params.items[at].type;
    StrBuf box, lower, steps;
    sb_init(&box, e->arena);
    sb_init(&lower, e->arena);
    sb_init(&steps, e->arena);
    for (int d = 0; d < TENSOR_MAP_RANK; d++) sb_printf(&box, "%s%d", d ? ", " : "", m->box[d]);
    for (int d = 0; d < MOST_WINDOWS; d++) sb_printf(&lower, "%s%d", d ? ", " : "", m->lower[d]);
    for (int d = 0; d < MOST_WINDOWS; d++) sb_printf(&steps, "%s%d", d ? ", " : "", m->strides[d]);
    line(e, "{");
    line(e, "    static const MapInfo info = {%d, %d, %d, %d, %d, {%s}, %d, %d, {%s}, {%s}, %d};",
         map_data_type(type, m->tf32), (int)type_bytes(type), v->params.items[at].moved, m->merged, m->box_rank,
         sb_text(&box), map_swizzle(m->swizzle), m->windows, sb_text(&lower), sb_text(&steps),
         m->windows ? tma_facts.corner_bits[m->windows - 1] : 0);
    line(e, "    const int64_t upper[] = {%s};", list_of(e, m->windows, m->upper));
    line(e, "    void *const map = maps + %d;", index * 128);
    line(e, "    const int result = r->bad ? LAUNCH_VALUE : encode_map(map, &a[%d], &info, upper);", at);
    line(e, "    if (result) return result;");
    line(e, "    params[%d] = map;", m->at);
    line(e, "}");
}

static bool is_map(const PlanVariant *v, int at) {
    for (int i = 0; i < v->maps.count; i++)
        if (v->maps.items[i].at == at) return true;
    return false;
}

static const char *first_named(const Emit *e, const char *name) {
    VEC_EACH (CName, item, &e->names.items)
        if (strcmp(item->name, name) == 0) return item->text;
    return "0";
}

static void emit_values(Emit *e, const PlanVariant *v) {
    int at = 0;
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        while (is_map(v, at)) at++;
        const char *value =
            p->is_tensor ? TEXT("a[%d].address", i)
                         : c_bits(&e->names, p->type, TEXT(type_is_float(p->type) ? "a[%d].real" : "a[%d].integer", i));
        line(e, "values[%d] = %s;", at++, value);
    }
    at = v->params.count + v->maps.count;
    for (int i = 0; i < v->dims.count; i++)
        line(e, "values[%d] = (uint64_t)%s;", at++, first_named(e, v->dims.items[i]));
    if (v->sets_cluster) line(e, "values[%d] = %d;", at, (int)plan_cluster_logs(v));
}

static void emit_kernel(Emit *e, const PlanVariant *v) {
    int count = plan_kernel_params(v), index = kernel_index(e->plan, v);
    line(e, "{");
    e->depth++;
    line(e, "uint64_t values[%d];", count + 1);
    line(e, "void *params[%d];", count + 1);
    if (v->maps.count)
        line(e, "unsigned char room[%d], *maps = room + (64 - (uintptr_t)room %% 64) %% 64;", v->maps.count * 128 + 64);
    line(e, "int i;");
    line(e, "const int64_t grid = %s;", c_expression(&e->names, v->grid.expr));
    line(e, "if (r->bad || grid < 0 || grid > r->module->max_grid) return LAUNCH_VALUE;");
    line(e, "if (grid == 0 || r->dry) return 0;");
    line(e, "for (i = 0; i < %d; i++) params[i] = &values[i];", count);
    emit_values(e, v);
    for (int i = 0; i < v->maps.count; i++) emit_map(e, v, i);
    line(e, "return launch(r, &kernels[%d], %d, grid, params);", index, index);
    e->depth--;
    line(e, "}");
}

static void emit_variant(Emit *e, const PlanEntry *entry, int index) {
    const PlanVariant *v = &entry->variants.items[index];
    e->names.items.count = e->tensors.count = e->next = 0;
    e->names.cluster = v->cluster;
    line(e, "static int %s_variant%d(Run *r, const Arg *a) {", launcher_c_name(e->arena, entry->name), index);
    e->depth++;
    line(e, "(void)a;");
    bind_names(e, v);
    check_params(e, v);
    VEC_EACH (const HostExpr, term, &v->when.terms) check_condition(e, term->expr);
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        CTensor tensor = {p->name, TEXT("&a[%d]", i), p->type, p->rank};
        if (p->is_tensor) vec_push(e->arena, &e->tensors, tensor);
    }
    emit_steps(e, &v->steps);
    if (v->symbol) emit_kernel(e, v);
    else line(e, "return 0;");
    e->depth--;
    line(e, "}\n");
}

// The clocks of one of the variants that are compared.
static void emit_clocks(Emit *e, const PlanEntry *entry, int first, int index) {
    e->names.cluster = entry->variants.items[index].cluster;
    const PlanVariant *v = &entry->variants.items[index];
    HostExpr extents[COST_EXTENTS];
    LaunchCost terms = v->cost->terms;
    StrBuf text;
    sb_init(&text, e->arena);
    memcpy(extents, v->cost->extents, sizeof extents);
    for (int i = 0; i < COST_TERM_COUNT; i++)
        sb_printf(&text, "%s%lld", i ? ", " : "", (long long)*cost_term(&terms, i));
    if (index == first || v->names != entry->variants.items[index - 1].names) {
        e->names.items.count = 0;
        bind_names(e, v);
    }
    line(e, "{");
    line(e, "    static const LaunchCost cost = {%s};", sb_text(&text));
    line(e, "    const int64_t extents[] = {%s};", list_of(e, COST_EXTENTS, extents));
    line(e, "    clocks[%d] = clocks_of(r, &cost, extents);", index - first);
    line(e, "}");
}

static void emit_compared(Emit *e, const PlanEntry *entry, int first) {
    const char *name = launcher_c_name(e->arena, entry->name);
    int count = entry->variants.items[first].compared;
    e->next = 0;
    line(e, "static int %s_compared%d(Run *r, const Arg *a) {", name, first);
    e->depth++;
    line(e, "static int (*const variants[])(Run *r, const Arg *a) = {");
    for (int i = first; i < first + count; i++) line(e, "    %s_variant%d,", name, i);
    line(e, "};");
    line(e, "double clocks[%d];", count);
    for (int i = first; i < first + count; i++) emit_clocks(e, entry, first, i);
    line(e, "return cheapest(r, a, variants, clocks, %d);", count);
    e->depth--;
    line(e, "}\n");
}

static void emit_choice(Emit *e, const PlanEntry *entry) {
    const char *name = launcher_c_name(e->arena, entry->name);
    for (int i = 0; i < entry->variants.count; i++)
        if (entry->variants.items[i].compared > 1) emit_compared(e, entry, i);
    line(e, "static int call_%s(Run *r, const Arg *a) {", name);
    line(e, "    int result;");
    for (int i = 0; i < entry->variants.count; i += entry->variants.items[i].compared) {
        const char *how = entry->variants.items[i].compared > 1 ? "compared" : "variant";
        line(e, "    if ((result = %s_%s%d(r, a)) != SKIP) return result;", name, how, i);
    }
    line(e, "    return LAUNCH_NO_VARIANT;");
    line(e, "}\n");
}

// ---- typed functions ----

static const char *scalar_c_type(Type type) {
    static const struct {
        Type type;
        const char *text;
    } types[] = {{TYPE_BOOL, "int"},     {TYPE_I8, "int8_t"},  {TYPE_I16, "int16_t"},  {TYPE_I32, "int32_t"},
                 {TYPE_I64, "int64_t"},  {TYPE_U8, "uint8_t"}, {TYPE_U16, "uint16_t"}, {TYPE_U32, "uint32_t"},
                 {TYPE_U64, "uint64_t"}, {TYPE_F32, "float"},  {TYPE_F64, "double"}};
    for (int i = 0; i < COUNT_OF(types); i++)
        if (types[i].type == type) return types[i].text;
    return NULL;
}

typedef struct Signature {
    Emit *e;
    const PlanEntry *entry;
    StrBuf params, body;   // of C: what is declared, and what sets the arguments from it
} Signature;

static const HostExpr *dim_expr(const PlanVariant *v, int param, int d, bool stride) {
    const PlanParam *p = &v->params.items[param];
    if (d >= p->rank) return NULL;
    return stride ? (p->strides ? &p->strides[d] : NULL) : &p->shape[d];
}

// The expression that all variants have there; NULL: they differ.
static const HostExpr *common_expr(const PlanEntry *entry, int param, int d, bool stride) {
    const HostExpr *first = dim_expr(&entry->variants.items[0], param, d, stride);
    for (int i = 1; i < entry->variants.count; i++) {
        const HostExpr *other = dim_expr(&entry->variants.items[i], param, d, stride);
        if (!first || !other || strcmp(first->text, other->text) != 0) return NULL;
    }
    return first;
}

static void declare(Signature *s, const char *type, const char *name) {
    sb_printf(&s->params, ", %s%s%s", type, type[strlen(type) - 1] == '*' ? "" : " ", name);
}

static void set_dim(Signature *s, int param, int d, bool stride) {
    Emit *e = s->e;
    const PlanParam *p = &s->entry->variants.items[0].params.items[param];
    const HostExpr *expr = common_expr(s->entry, param, d, stride);
    const Expr *lone = expr && expr->expr->kind == EXPR_VAR ? expr->expr : NULL;
    const char *refused = e->names.refused, *text = NULL;
    if (lone && !has_name(e, lone->var->name)) {
        text = TEXT("%s_", launcher_c_name(e->arena, lone->var->name));
        add_name(e, lone->var->name, text);
        declare(s, "int64_t", text);
    } else if (expr) {
        text = c_expression(&e->names, expr->expr);
        if (e->names.refused != refused) text = NULL;
        e->names.refused = refused;
    }
    if (!text) {
        text = TEXT("%s_%s%d_", launcher_c_name(e->arena, p->name), stride ? "stride" : "dim", d);
        declare(s, "int64_t", text);
    }
    sb_printf(&s->body, "    a[%d].%s[%d] = %s;\n", param, stride ? "strides" : "shape", d, text);
}

static bool is_dense(const PlanEntry *entry, int param) {
    VEC_EACH (PlanVariant, v, &entry->variants)
        if (v->params.items[param].strides) return false;
    return true;
}

static void set_pointer(Signature *s, int i, const PlanParam *p) {
    Emit *e = s->e;
    const char *name = TEXT("%s_", launcher_c_name(e->arena, p->name));
    declare(s, p->mode == MODE_IN ? "const void *" : "void *", name);
    sb_printf(&s->body, "    a[%d].address = (uint64_t)(uintptr_t)%s;\n    a[%d].rank = %d;\n", i, name, i, p->rank);
}

static void set_scalar(Signature *s, int i, const PlanParam *p) {
    Emit *e = s->e;
    const char *name = TEXT("%s_", launcher_c_name(e->arena, p->name)), *type = scalar_c_type(p->type);
    if (!type && !e->names.refused) e->names.refused = "a scalar parameter of a type narrower than f32";
    declare(s, type ? type : "double", name);
    sb_printf(&s->body,
              type_is_float(p->type) ? "    a[%d].real = (double)%s;\n" : "    a[%d].integer = (int64_t)%s;\n", i,
              name);
    add_name(e, p->name, TEXT(type_is_float(p->type) ? "(double)%s" : "(int64_t)%s", name));
}

static Signature signature_of(Emit *e, const PlanEntry *entry) {
    Signature s = {.e = e, .entry = entry};
    const PlanVariant *v = &entry->variants.items[0];
    sb_init(&s.params, e->arena);
    sb_init(&s.body, e->arena);
    e->names.items.count = 0;
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        if (p->is_tensor) set_pointer(&s, i, p);
        else set_scalar(&s, i, p);
    }
    for (int i = 0; i < v->params.count; i++)
        for (int d = 0; v->params.items[i].is_tensor && d < v->params.items[i].rank; d++) set_dim(&s, i, d, false);
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        if (p->is_tensor && is_dense(entry, i)) sb_printf(&s.body, "    dense(&a[%d]);\n", i);
        else
            for (int d = 0; p->is_tensor && d < p->rank; d++) set_dim(&s, i, d, true);
    }
    return s;
}

// The parameter that may be one tensor with this one, in every variant; -1: none.
static int alias_of(const PlanEntry *entry, int i) {
    int count = entry->variants.items[0].params.count;
    for (int j = 0; j < count; j++) {
        bool may = j != i;
        for (int k = 0; may && k < entry->variants.count; k++) {
            const PlanParam *params = entry->variants.items[k].params.items, *p = &params[i], *q = &params[j];
            may = (p->alias && strcmp(p->alias, q->name) == 0) || (q->alias && strcmp(q->alias, p->name) == 0);
        }
        if (may) return j;
    }
    return -1;
}

static void emit_entry(Emit *e, const PlanEntry *entry) {
    const char *name = launcher_c_name(e->arena, entry->name);
    const PlanVariant *v = &entry->variants.items[0];
    Signature s = signature_of(e, entry);
    int count = v->params.count;
    line(e, "static const ParamInfo %s_params[] = {", name);
    for (int i = 0; i < count; i++) {
        const PlanParam *p = &v->params.items[i];
        line(e, "    {%d, %d, %d},", p->is_tensor ? (int)type_bytes(p->type) : 0, p->is_tensor && p->mode != MODE_IN,
             alias_of(entry, i));
    }
    line(e, "    {0, 0, -1}};\n");
    line(e, "int %s_launch(const %s_module *module, void *stream, void *workspace, size_t workspace_size%s) {", name,
         e->stem, sb_text(&s.params));
    line(e, "    Arg a[%d];\n    Run run = start(module, stream, workspace), *r = &run;\n    memset(a, 0, sizeof a);",
         count + 1);
    sb_str(e->out, sb_text(&s.body));
    line(e, "    return r->bad ? LAUNCH_VALUE : enter(r, call_%s, a, %s_params, %d, workspace_size);\n}\n", name, name,
         count);
    line(e, "int %s_workspace(const %s_module *module, size_t *bytes%s) {", name, e->stem, sb_text(&s.params));
    line(e, "    Arg a[%d];\n    Run run = start(module, NULL, NULL), *r = &run;\n    memset(a, 0, sizeof a);",
         count + 1);
    sb_str(e->out, sb_text(&s.body));
    line(e, "    return r->bad ? LAUNCH_VALUE : count_workspace(r, call_%s, a, bytes);\n}\n", name);
}

// ---- files ----

static int kernel_count(const Plan *plan) {
    return kernel_index(plan, NULL);
}

static Emit emit_to(const Plan *plan, const char *stem, StrBuf *out) {
    Emit e = {.arena = out->arena, .plan = plan, .out = out};
    e.stem = launcher_c_name(out->arena, stem);
    e.names.arena = out->arena;
    return e;
}

static void comment_entry(Emit *e, const PlanEntry *entry) {
    const PlanVariant *v = &entry->variants.items[0];
    static const char *const modes[] = {[MODE_IN] = "", [MODE_OUT] = "out ", [MODE_INOUT] = "inout "};
    sb_printf(e->out, "/* %s(", entry->name);
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        sb_printf(e->out, "%s%s: %s%s", i ? ", " : "", p->name, p->is_tensor ? modes[p->mode] : "", type_text(p->type));
        for (int d = 0; d < p->rank; d++) sb_printf(e->out, "%s%s", d ? ", " : "[", p->shape[d].text);
        if (p->is_tensor) sb_char(e->out, ']');
    }
    sb_str(e->out, ") */\n");
}

static void declare_entry(Emit *e, const PlanEntry *entry) {
    const char *name = launcher_c_name(e->arena, entry->name);
    Signature s = signature_of(e, entry);
    comment_entry(e, entry);
    line(e, "int %s_launch(const %s_module *module, void *stream, void *workspace, size_t workspace_size%s);", name,
         e->stem, sb_text(&s.params));
    line(e, "int %s_workspace(const %s_module *module, size_t *bytes%s);\n", name, e->stem, sb_text(&s.params));
}

void launcher_header(const Plan *plan, const char *stem, StrBuf *out) {
    Emit e = emit_to(plan, stem, out);
    int kernels = kernel_count(plan);
    line(&e, "/* Made by tilec %s for %s. Link it with the CUDA driver (-lcuda) and -lm.", plan->producer,
         plan->target);
    line(
        &e,
        "   %s_load takes the code into the current CUDA context of the thread. NAME_launch enqueues a kernel or program in a stream",
        e.stem);
    line(
        &e,
        "   (a CUstream); tensors are addresses on the device, names are extents and strides in elements. `workspace`: device memory for");
    line(
        &e,
        "   scratch, 256-byte aligned, as many bytes as NAME_workspace says; NULL: from the stream's memory pool. The result is 0, a CUresult,");
    line(&e, "   or one of the negative numbers below, and then nothing more was enqueued. */");
    line(&e, "#ifndef %s_LAUNCHER_H\n#define %s_LAUNCHER_H\n#include <stddef.h>\n#include <stdint.h>\n", e.stem,
         e.stem);
    line(&e, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    line(
        &e,
        "typedef struct %s_module {\n    void *module, *functions[%d];\n    int multiprocessors, max_grid;\n} %s_module;\n",
        e.stem, kernels ? kernels : 1, e.stem);
    line(&e, "int %s_load(%s_module *out);\nint %s_unload(%s_module *module);", e.stem, e.stem, e.stem, e.stem);
    line(&e, "const char *%s_error(int result); /* what a result means */\n", e.stem);
    VEC_EACH (PlanEntry, entry, &plan->entries) declare_entry(&e, entry);
    line(&e, "#ifdef __cplusplus\n}\n#endif\n#endif");
}

static void emit_cubin(Emit *e, const unsigned char *cubin, size_t size) {
    line(e, "static const union {\n    unsigned char bytes[%zu];\n    uint64_t aligned;\n} cubin = {{",
         size ? size : 1);
    for (size_t i = 0; i < size; i++) sb_printf(e->out, "%s%u,", i % 32 == 0 ? "\n" : "", cubin[i]);
    sb_str(e->out, size ? "\n}};\n\n" : "0}};\n\n");
}

static void emit_kernels(Emit *e) {
    line(e, "static const Kernel kernels[] = {");
    VEC_EACH (PlanEntry, entry, &e->plan->entries)
        VEC_EACH (PlanVariant, v, &entry->variants)
            if (v->symbol) {
                int ctas = v->cluster[0] * v->cluster[1] * v->cluster[2];
                line(e, "    {\"%s\", %d, %d, %d, %d, %d},", v->symbol, v->threads, (int)v->shared_bytes, ctas, v->pdl,
                     v->sets_cluster && ctas > 1);
            }
    line(e, "    {\"\", 0, 0, 0, 0, 0}};\n");
}

static bool plan_compares(const Plan *plan) {
    VEC_EACH (const PlanEntry, entry, &plan->entries)
        VEC_EACH (const PlanVariant, v, &entry->variants)
            if (v->compared > 1) return true;
    return false;
}

// target/launch_cost.h as it is, but for the line that is of headers.
static void emit_comparison(Emit *e) {
    static const char guard[] = "#pragma once\n";
    const char *text = LAUNCH_COST_TEXT, *at = strstr(text, guard);
    sb_printf(e->out, "\n%.*s%s", at ? (int)(at - text) : 0, text, at ? at + strlen(guard) : text);
    line(e, "\nstatic double clocks_of(Run *r, const LaunchCost *cost, const int64_t *extents) {\n"
            "    int bad = r->bad;\n"
            "    r->bad = 0;\n"
            "    return bad ? COST_NEVER : cost_clocks(cost, extents, r->module->multiprocessors);\n"
            "}\n");
    line(
        e,
        "static int cheapest(Run *r, const Arg *a, int (*const *variants)(Run *r, const Arg *a), double *clocks, int count) {\n"
        "    int asked;\n"
        "    for (asked = 0; asked < count; asked++) {\n"
        "        int least = cost_least(clocks, count), result = variants[least](r, a);\n"
        "        if (result != SKIP) return result;\n"
        "        clocks[least] = COST_ASKED;\n"
        "    }\n"
        "    return SKIP;\n"
        "}");
}

bool launcher_source(DiagSink *sink, const Plan *plan, const char *stem, const void *cubin, size_t size, StrBuf *out) {
    Emit e = emit_to(plan, stem, out);
    line(&e, "/* Made by tilec %s for %s; see %s.h. */\n#include \"%s.h\"\n#include <math.h>\n#include <string.h>\n",
         plan->producer, plan->target, stem, stem);
    line(&e, "typedef %s_module LauncherModule;\n", e.stem);
    line(
        &e,
        "enum {\n    LAUNCH_NO_VARIANT = -1,\n    LAUNCH_ASSUMPTION = -2,\n    LAUNCH_VALUE = -3,\n    LAUNCH_WORKSPACE = -4,\n"
        "    LAUNCH_ARGUMENT = -5,\n    LAUNCH_TENSOR_MAP = -6,\n    LAUNCH_NOT_LOADED = -7\n};\n");
    sb_str(out, LAUNCHER_TEXT);
    if (plan_compares(plan)) emit_comparison(&e);
    line(&e, "\n/* ---- this launcher ---- */\n");
    emit_cubin(&e, cubin, size);
    emit_kernels(&e);
    VEC_EACH (PlanEntry, entry, &plan->entries)
        line(&e, "static int call_%s(Run *r, const Arg *a);", launcher_c_name(e.arena, entry->name));
    VEC_EACH (PlanEntry, entry, &plan->entries) {
        sb_char(out, '\n');
        for (int i = 0; i < entry->variants.count; i++) emit_variant(&e, entry, i);
        emit_choice(&e, entry);
        emit_entry(&e, entry);
    }
    line(&e, "int %s_load(%s_module *out) {\n    return load_kernels(out, cubin.bytes, kernels, %d);\n}\n", e.stem,
         e.stem, kernel_count(plan));
    line(
        &e,
        "int %s_unload(%s_module *module) {\n    void *loaded = module->module;\n    module->module = NULL;\n    return loaded ? cuModuleUnload(loaded) : 0;\n}\n",
        e.stem, e.stem);
    line(&e, "const char *%s_error(int result) {\n    return error_text(result);\n}", e.stem);
    if (e.names.refused) diag(sink, (Span){0}, T_NO_LAUNCHER, e.names.refused);
    return !e.names.refused;
}
