// JSON -> launch plan; write.c is the inverse. docs/reference/launch-plan.md describes the format.
#include "frontend/frontend.h"
#include "ir/build.h"
#include "runtime/plan/expr_cse.h"
#include "runtime/plan/plan.h"
#include "support/json.h"
#include <string.h>

static const Span NOWHERE;

const char plan_leading[] = "..";
const char *const plan_step_names[] = {[DO_LET] = "let", [DO_ASSUME] = "assume", [DO_SCRATCH] = "scratch",
                                       [DO_IF] = "if",   [DO_FILL] = "fill",     [DO_LAUNCH] = "launch"};

// Names are declared in the order in which a launch binds them; an expression may use only earlier names.
typedef struct Reader {
    Arena *arena;
    Arena *scratch;
    Failure *failure;
    VEC(const char *) names;
    VEC(Var *) vars;
    int arguments;               // of the names: those of the variant's arguments
    ExprCse *sharer;             // of the entry
    const Json *texts, *terms;   // of expressions, by number; of costs
    const char *grid;            // of the kernel before, in names of tunables; NULL: the entry's first
    int threads;                 // of it
    Expr **parsed;               // of each text, with the names of these arguments; NULL: not yet
    int64_t address_unit;
    bool ok;
    const char *why;   // it is not
    const char *text;
    size_t length;
    Plan *plan;
} Reader;

static void refuse(Reader *r, const char *what) {
    if (r->ok) r->why = what;
    r->ok = false;
}

static const char *need_text(Reader *r, const Json *object, const char *name) {
    const char *text = json_text(json_get(object, name), NULL);
    if (!text) refuse(r, arena_printf(r->arena, "its plan lacks '%s'", name));
    return text ? text : "";
}

static Type need_type(Reader *r, const Json *object) {
    const char *text = need_text(r, object, "type");
    Type type = type_named(text);
    if (type == TYPE_NONE) refuse(r, arena_printf(r->arena, "its plan has the unknown type '%s'", text));
    return type == TYPE_NONE ? TYPE_I64 : type;
}

static void declare(Reader *r, const char *name, VarKind kind, Type type) {
    Var *var = var_new(r->arena, name, kind, type, NOWHERE);
    vec_push(r->arena, &r->names, name);
    vec_push(r->arena, &r->vars, var);
}

// The parser allocates in an arena for each expression, its sink too: memory that was just freed is in the processor's
// cache. expr_cse copies the nodes to the arena of the plan.
static Expr *parse_expr(Reader *r, const char *text) {
    arena_free(r->scratch);
    r->scratch = arena_new(arena_host(r->arena), r->failure);
    if (!r->scratch) fail_out_of_memory(r->failure);
    const Expr *expr = parse_host_expr(r->scratch, r->failure, diag_sink_new(r->scratch), text, r->names.items,
                                       r->names.count, r->vars.items);
    return expr ? expr_cse(r->sharer, expr) : NULL;
}

// A fast path for the most frequent expression: a single name.
static Var *lone_name(const Reader *r, const char *text) {
    for (int i = r->names.count - 1; i >= 0; i--)
        if (strcmp(r->names.items[i], text) == 0) return r->vars.items[i];
    return NULL;
}

static HostExpr parse_host(Reader *r, const char *text) {
    HostExpr e = {.text = text};
    if (!e.text || !r->ok) return e;
    Var *name = lone_name(r, e.text);
    e.expr = name ? expr_cse(r->sharer, e_var(r->arena, name)) : parse_expr(r, e.text);
    if (!e.expr) refuse(r, arena_printf(r->arena, "its plan has the expression '%s'", e.text));
    else r->address_unit = host_address_unit(e.expr, r->address_unit);
    return e;
}

// A text of the entry by its number. It is parsed once for the variants that have the same arguments.
static HostExpr numbered_expr(Reader *r, int64_t number) {
    const char *text = number >= 0 && number <= INT32_MAX ? json_text(json_at(r->texts, (int)number), NULL) : NULL;
    if (!text) {
        refuse(r, "its plan has a text that is not there");
        return (HostExpr){0};
    }
    HostExpr e = {.text = text, .expr = r->parsed[number]};
    if (!e.expr) r->parsed[number] = (e = parse_host(r, text)).expr;
    return e;
}

static HostExpr read_expr(Reader *r, const Json *value) {
    if (value && value->kind == JSON_INTEGER) return numbered_expr(r, value->integer);
    return parse_host(r, json_text(value, NULL));
}

static HostExpr need_expr(Reader *r, const Json *value) {
    HostExpr e = read_expr(r, value);
    if (!e.text) refuse(r, "its plan lacks an expression");
    return e;
}

static HostExpr *read_exprs(Reader *r, const Json *array, HostExpr read(Reader *r, const Json *value), int *count) {
    *count = array ? array->count : 0;
    HostExpr *exprs = NEW_ARRAY(r->arena, HostExpr, *count + 1);
    int i = 0;
    JSON_EACH(item, array) exprs[i++] = read(r, item);
    return exprs;
}

static bool is_leading(const char *text) {
    return text && strncmp(text, plan_leading, strlen(plan_leading)) == 0;
}

static HostExpr need_extent(Reader *r, const Json *value) {
    const char *text = json_text(value, "");
    if (!is_leading(text)) return need_expr(r, value);
    HostExpr e = parse_host(r, text + strlen(plan_leading));
    e.text = text;
    return e;
}

// Shapes are read after all dims are declared.
static void read_param(Reader *r, const Json *from, PlanParam *p) {
    p->name = need_text(r, from, "name");
    p->type = need_type(r, from);
    const Json *shape = json_get(from, "shape"), *strides = json_get(from, "strides");
    p->is_tensor = shape != NULL;
    if (!p->is_tensor) return;
    p->address = arena_printf(r->arena, "%s_address", p->name);
    const char *mode = json_text(json_get(from, "mode"), "in");
    p->mode = strcmp(mode, "out") == 0 ? MODE_OUT : strcmp(mode, "inout") == 0 ? MODE_INOUT : MODE_IN;
    p->alias = json_text(json_get(from, "alias"), NULL);
    p->shape = read_exprs(r, shape, need_extent, &p->rank);
    p->leading = p->rank > 0 && is_leading(p->shape[0].text);
    int count = p->rank;
    if (strides) p->strides = read_exprs(r, strides, need_expr, &count);
    p->moved = 1 + (int)json_integer(json_get(from, "innermost"), -1);
    p->zeroed = json_boolean(json_get(from, "zeroed"), false);
    if (p->moved < 0 || p->moved > p->rank) refuse(r, "its plan has a tensor without its innermost dim");
    if (p->rank > LAYOUT_MAX_RANK || count != p->rank) refuse(r, "its plan has a tensor of a wrong rank");
}

static PlanRegion *read_region(Reader *r, const Json *from) {
    PlanRegion *region = NEW(r->arena, PlanRegion);
    int extents = 0;
    region->tensor = need_text(r, from, "tensor");
    region->start = read_exprs(r, json_get(from, "start"), need_expr, &region->count);
    region->extent = read_exprs(r, json_get(from, "extent"), read_expr, &extents);
    region->transposed = json_boolean(json_get(from, "transposed"), false);
    if (extents != region->count || extents > LAYOUT_MAX_RANK) refuse(r, "its plan has a region of a wrong rank");
    return region;
}

static void read_steps(Reader *r, const Json *array, PlanSteps *out);

// The names that a branch declares go out of scope after it.
static void read_branch(Reader *r, const Json *array, PlanSteps *out) {
    int known = r->names.count;
    read_steps(r, array, out);
    r->names.count = r->vars.count = known;
}

static void read_launch(Reader *r, const Json *from, PlanStep *step) {
    step->name = need_text(r, from, "name");
    const Json *args = json_get(from, "args");
    JSON_EACH(item, args) {
        PlanArg arg = {0};
        if (json_get(item, "tensor")) arg.region = read_region(r, item);
        else arg.value = read_expr(r, json_get(item, "value"));
        if (!arg.region && !arg.value.text) refuse(r, "its plan has an argument without a value");
        vec_push(r->arena, &step->args, arg);
    }
}

static void read_step(Reader *r, const Json *from, PlanStep *step) {
    const char *what = need_text(r, from, "do");
    int kind = 0;
    while (kind <= DO_LAUNCH && strcmp(plan_step_names[kind], what) != 0) kind++;
    step->kind = kind <= DO_LAUNCH ? (PlanStepKind)kind : DO_LET;
    if (kind > DO_LAUNCH) refuse(r, arena_printf(r->arena, "its plan has the unknown step '%s'", what));
    if (step->kind == DO_SCRATCH) read_param(r, from, step->scratch = NEW(r->arena, PlanParam));
    if (step->kind == DO_FILL) step->region = read_region(r, from);
    if (step->kind == DO_LAUNCH) read_launch(r, from, step);
    step->value = read_expr(r, json_get(from, "value"));
    bool needs_value = step->kind != DO_SCRATCH && step->kind != DO_LAUNCH;
    if (needs_value && !step->value.text) refuse(r, "its plan has a step without a value");
    if (step->kind == DO_IF) {
        read_branch(r, json_get(from, "then"), &step->then);
        read_branch(r, json_get(from, "else"), &step->otherwise);
    }
    if (step->kind == DO_LET) {
        step->name = need_text(r, from, "name");
        step->type = need_type(r, from);
        declare(r, step->name, VAR_LET, step->type);
    }
}

static void read_steps(Reader *r, const Json *array, PlanSteps *out) {
    JSON_EACH(item, array) {
        if (!r->ok) break;
        PlanStep *step = NEW(r->arena, PlanStep);
        read_step(r, item, step);
        vec_push(r->arena, out, step);
    }
}

// Without a grid and threads they are those of the kernel before it.
static void read_grid(Reader *r, const Json *from, PlanVariant *v) {
    r->grid = json_text(json_get(from, "grid"), r->grid);
    r->threads = (int)json_integer(json_get(from, "threads"), r->threads);
    if (r->grid) v->grid = parse_host(r, plan_with_values(r->arena, v, r->grid));
    v->threads = r->threads;
}

static bool read_integers(const Json *array, int count, int64_t low, int64_t high, int *out) {
    bool fits = array && array->count == count;
    for (int i = 0; fits && i < count; i++) {
        int64_t value = json_integer(json_at(array, i), low - 1);
        fits = value >= low && value <= high;
        out[i] = (int)value;
    }
    return fits;
}

// Two numbers that a launch sets, of which the kernel gets logarithms.
static bool read_shape(const Json *from, int shape[2]) {
    if (!read_integers(from, 2, 1, MOST_CLUSTER, shape)) return false;
    return shape[0] * shape[1] <= MOST_CLUSTER && !(shape[0] & (shape[0] - 1)) && !(shape[1] & (shape[1] - 1));
}

static void read_cluster(Reader *r, const Json *from, PlanVariant *v) {
    for (int i = 0; i < COUNT_OF(v->cluster); i++) v->cluster[i] = 1;
    v->sets_cluster = from && from->count == 2;
    bool right = !from || (v->sets_cluster ? read_shape(from, v->cluster)
                                           : read_integers(from, COUNT_OF(v->cluster), 1, MOST_CLUSTER, v->cluster));
    if (!right) refuse(r, "its plan has a cluster that no device has");
}

static void read_kernel(Reader *r, const Json *from, PlanVariant *v) {
    v->symbol = need_text(r, from, "symbol");
    read_grid(r, from, v);
    v->shared_bytes = json_integer(json_get(from, "shared"), 0);
    if (!v->grid.text || v->threads < 1) refuse(r, "its plan has a kernel without a grid");
    read_cluster(r, json_get(from, "cluster"), v);
    v->pdl = (int)json_integer(json_get(from, "pdl"), 0);
    v->registers = (int)json_integer(json_get(from, "registers"), -1);
    v->spill_stores = (int)json_integer(json_get(from, "spill_stores"), 0);
    v->spill_loads = (int)json_integer(json_get(from, "spill_loads"), 0);
    v->stack = (int)json_integer(json_get(from, "stack"), 0);
    v->barriers = (int)json_integer(json_get(from, "barriers"), 0);
}

// Declares dims, scalars and addresses: the names that all expressions of a variant may use.
static void declare_arguments(Reader *r, const Json *from) {
    const Json *dims = json_get(from, "dims"), *params = json_get(from, "params");
    r->names.count = r->vars.count = 0;
    JSON_EACH(dim, dims)
    declare(r, json_text(dim, ""), VAR_DIM, TYPE_I64);
    JSON_EACH(param, params) {
        const char *name = need_text(r, param, "name");
        if (!json_get(param, "shape")) declare(r, name, VAR_PARAM, need_type(r, param));
        else declare(r, arena_printf(r->arena, "%s_address", name), VAR_PARAM, TYPE_I64);
    }
}

static const PlanParam *param_named(const PlanVariant *v, const char *name) {
    for (int i = 0; i < v->params.count; i++)
        if (strcmp(v->params.items[i].name, name) == 0) return &v->params.items[i];
    return NULL;
}

static bool read_windows(Reader *r, const Json *from, PlanMap *map) {
    enum { CORNER = 1 << 15 };
    const Json *upper = json_get(from, "upper");
    int count = upper ? upper->count : 0;
    if (count < 1 || count > MOST_WINDOWS) return false;
    map->upper = read_exprs(r, upper, need_expr, &map->windows);
    return read_integers(json_get(from, "lower"), count, -CORNER, CORNER - 1, map->lower) &&
           read_integers(json_get(from, "strides"), count, 1, tma_facts.max_stride, map->strides);
}

// The box of a view, merged or in im2col mode, has two extents.
static bool map_fits(const PlanMap *map, const PlanParam *tensor) {
    int rank = map->merged || map->windows ? 2 : tensor->rank;
    return map->box_rank == rank && (!map->windows || tensor->rank == map->windows + 2) &&
           (!map->merged || (!map->windows && tensor->rank > 2)) && tma_swizzle_valid(map->swizzle) &&
           (!map->tf32 || tensor->type == TYPE_F32);
}

// A tensor and its box alone are an array of both.
static void read_map(Reader *r, const Json *from, PlanVariant *v) {
    bool plain = from->kind == JSON_ARRAY;
    PlanMap map = {.tensor = plain ? json_text(json_at(from, 0), "") : need_text(r, from, "tensor")};
    const Json *box = plain ? from : json_get(from, "box");
    int first = plain;
    map.at = (int)json_integer(json_get(from, "at"), v->params.count + v->maps.count);
    map.swizzle = (int)json_integer(json_get(from, "swizzle"), SWIZZLE_USUAL);
    map.tf32 = json_boolean(json_get(from, "tf32"), false);
    map.merged = json_boolean(json_get(from, "merged"), false);
    bool walks = !json_get(from, "im2col") || read_windows(r, json_get(from, "im2col"), &map);
    while (map.box_rank < TENSOR_MAP_RANK && json_at(box, first + map.box_rank)) {
        map.box[map.box_rank] = (int)json_integer(json_at(box, first + map.box_rank), 0);
        if (map.box[map.box_rank++] < 1) refuse(r, "its plan has a tensor map with an empty box");
    }
    const PlanParam *tensor = param_named(v, map.tensor);
    bool fits = walks && tensor && tensor->is_tensor && !json_at(box, first + map.box_rank) && map_fits(&map, tensor);
    int after = v->maps.count ? vec_last(&v->maps).at : -1;
    if (!fits || map.at <= after || map.at >= v->params.count + v->maps.count + 1)
        refuse(r, "its plan has a tensor map that fits no tensor");
    vec_push(r->arena, &v->maps, map);
}

// Without parameters and dims they are those of the variant before it.
static void read_arguments(Reader *r, const Json *from, const PlanVariant *before, PlanVariant *v) {
    const Json *params = json_get(from, "params"), *dims = json_get(from, "dims");
    if (!params && !dims && before) {
        v->params = before->params;
        v->dims = before->dims;
        r->names.count = r->vars.count = r->arguments;
        return;
    }
    declare_arguments(r, from);
    r->arguments = r->names.count;
    r->parsed = NEW_ARRAY(r->arena, Expr *, r->texts ? r->texts->count + 1 : 1);
    JSON_EACH(dim, dims)
    vec_push(r->arena, &v->dims, json_text(dim, ""));
    JSON_EACH(param, params) {
        PlanParam p = {0};
        read_param(r, param, &p);
        vec_push(r->arena, &v->params, p);
    }
}

// A list that begins with -n begins with the first n of the variant before, if that has the same arguments (`before`).
static int first_of_before(Reader *r, const Json *from, int most) {
    int64_t first = from->kind == JSON_ARRAY ? json_integer(json_at(from, 0), 0) : 0;
    if (first < -most) refuse(r, "its plan has a variant that begins as none before it");
    return r->ok && first < 0 ? (int)-first : 0;
}

static PlanCondition read_condition(Reader *r, const Json *from, const PlanVariant *before) {
    PlanCondition condition = {0};
    HostExpr term;
    if (!from) return before ? before->when : condition;
    int same = first_of_before(r, from, before ? before->when.terms.count : 0);
    for (int i = 0; i < same; i++) vec_push(r->arena, &condition.terms, before->when.terms.items[i]);
    if (from->kind != JSON_ARRAY) {
        term = need_expr(r, from);
        vec_push(r->arena, &condition.terms, term);
    }
    for (int i = same > 0; from->kind == JSON_ARRAY && i < from->count; i++) {
        term = need_expr(r, json_at(from, i));
        vec_push(r->arena, &condition.terms, term);
    }
    if (r->ok && condition.terms.count) condition.text = plan_condition_text(r->arena, &condition);
    return condition;
}

static void read_term(Reader *r, int at, int64_t value, LaunchCost *terms) {
    int term = cost_term_named(json_text(json_at(r->terms, at), ""));
    if (term == COST_TERM_COUNT || value < 0 || value > INT32_MAX) refuse(r, "its plan has a cost that is none");
    else *cost_term(terms, term) = value;
}

// Terms from `at` on: -n for the first n of them as in the variant before, or the value of one. Returns their number.
static int read_terms(Reader *r, int at, int64_t value, const PlanCost *before, LaunchCost *terms) {
    if (value >= 0 || !before) {
        read_term(r, at, value, terms);
        return 1;
    }
    LaunchCost other = before->terms;
    int64_t count = value > -COST_TERM_COUNT ? -value : 0;
    if (count == 0) refuse(r, "its plan has a cost that is none");
    for (int i = at; i < at + count && r->ok; i++) {
        int term = cost_term_named(json_text(json_at(r->terms, i), ""));
        if (term == COST_TERM_COUNT) refuse(r, "its plan has a cost that is none");
        else *cost_term(terms, term) = *cost_term(&other, term);
    }
    return (int)count;
}

static PlanCost *read_cost(Reader *r, const Json *from, const PlanVariant *before) {
    if (!from) return NULL;
    PlanCost *cost = NEW(r->arena, PlanCost);
    int same = first_of_before(r, from, before && before->cost ? COST_EXTENTS : 0), at = same;
    for (int i = 0; i < same; i++) cost->extents[i] = before->cost->extents[i];
    for (int i = same > 0; i < from->count; i++) {
        const Json *item = json_at(from, i);
        if (at < COST_EXTENTS) cost->extents[at++] = need_expr(r, item);
        else
            at += read_terms(r, at - COST_EXTENTS, json_integer(item, -COST_TERM_COUNT), before ? before->cost : NULL,
                             &cost->terms);
    }
    if (at < COST_EXTENTS) refuse(r, "its plan has a cost without extents");
    return cost;
}

static void read_tuned(Reader *r, const Json *from, const PlanVariant *before, PlanVariant *v) {
    if (!from || (from->kind != JSON_OBJECT && from->kind != JSON_ARRAY)) return;
    bool named = from->kind == JSON_OBJECT;
    if (!named && (!before || before->tuned.count != from->count)) {
        refuse(r, "its plan has tuned values without names");
        return;
    }
    for (int i = 0; i < from->count; i++) {
        PlanTuned value = {named ? from->keys[i] : before->tuned.items[i].name, json_integer(&from->items[i], 0)};
        vec_push(r->arena, &v->tuned, value);
    }
}

// [2,1]: the variant before, in a cluster of this shape.
static bool read_same_kernel(Reader *r, const Json *from, const PlanVariant *before, PlanVariant *v) {
    int shape[2];
    if (from->kind != JSON_ARRAY) return false;
    if (!before || !before->sets_cluster || !read_shape(from, shape)) {
        refuse(r, "its plan has a cluster of no kernel");
        return true;
    }
    *v = *before;
    v->same_kernel = true;
    v->compared = 1;
    plan_set_cluster(r->arena, v, shape);
    return true;
}

static void read_variant(Reader *r, const Json *from, bool is_program, const PlanVariant *before, PlanVariant *v) {
    const Json *maps = json_get(from, "maps");
    if (read_same_kernel(r, from, before, v)) return;
    read_arguments(r, from, before, v);
    JSON_EACH(map, maps)
    if (r->ok) read_map(r, map, v);
    const PlanVariant *same = json_get(from, "params") || json_get(from, "dims") ? NULL : before;
    v->when = read_condition(r, json_get(from, "when"), same);
    v->cost = read_cost(r, json_get(from, "cost"), same);
    v->compared = (int)json_integer(json_get(from, "compare"), 1);
    read_steps(r, json_get(from, "steps"), &v->steps);
    v->recorded = json_boolean(json_get(from, "recorded"), false);
    read_tuned(r, json_get(from, "tuned"), before, v);
    if (!is_program && (json_get(from, "symbol") || !json_get(from, "steps"))) read_kernel(r, from, v);
}

// All variants of an entry take the same arguments: the same count, and tensors at the same indices.
static bool takes_the_same(const PlanVariant *a, const PlanVariant *b) {
    if (a->params.count != b->params.count) return false;
    for (int i = 0; i < a->params.count; i++)
        if (a->params.items[i].is_tensor != b->params.items[i].is_tensor) return false;
    return true;
}

static bool can_compare(const PlanEntry *entry, int at) {
    int count = entry->variants.items[at].compared;
    bool can = count >= 1 && count <= entry->variants.count - at;
    for (int i = at; can && count > 1 && i < at + count; i++) can = entry->variants.items[i].cost != NULL;
    return can;
}

static void read_entry(Reader *r, const Json *from, PlanEntry *entry) {
    r->sharer = expr_cse_new(r->arena);
    r->grid = NULL;
    r->threads = 0;
    entry->name = need_text(r, from, "name");
    entry->is_program = strcmp(need_text(r, from, "kind"), "program") == 0;
    const Json *variants = json_get(from, "variants");
    JSON_EACH(item, variants) {
        if (!r->ok) break;
        PlanVariant variant = {0};
        read_variant(r, item, entry->is_program, entry->variants.count ? &vec_last(&entry->variants) : NULL, &variant);
        vec_push(r->arena, &entry->variants, variant);
        if (!takes_the_same(&entry->variants.items[0], &variant))
            refuse(r, arena_printf(r->arena, "its plan has variants of '%s' that take other arguments", entry->name));
    }
    entry->shared = expr_cse_count(r->sharer);
    if (r->ok) plan_set_names(entry);
    for (int i = 0; r->ok && i < entry->variants.count; i++)
        if (!can_compare(entry, i)) refuse(r, "its plan compares variants without costs");
    if (entry->variants.count == 0) refuse(r, arena_printf(r->arena, "its plan has no variant of '%s'", entry->name));
}

static PlanMachine read_machine(const Json *from) {
    return (PlanMachine){.clock_mhz = json_integer(json_get(from, "clock_mhz"), 0),
                         .launch_ns = json_integer(json_get(from, "launch_ns"), 0),
                         .memory_bytes = json_integer(json_get(from, "memory_bytes"), 0)};
}

static bool read_plan(void *user) {
    Reader *r = user;
    const char *why = NULL;
    const Json *root = json_read(r->arena, r->text, r->length, &why);
    int64_t format = json_integer(json_get(root, "manifest"), 0);
    if (!root) refuse(r, arena_printf(r->arena, "its plan is no JSON: %s", why));
    else if (format != MANIFEST_FORMAT)
        refuse(r, arena_printf(r->arena, "its plan has format %lld, that of another version; this one reads format %d",
                               (long long)format, MANIFEST_FORMAT));
    if (!r->ok) return false;
    r->plan->producer = json_text(json_get(root, "producer"), "");
    r->plan->target = need_text(r, root, "target");
    r->plan->one_launch = json_boolean(json_get(root, "one_launch"), false);
    r->plan->machine = read_machine(json_get(root, "machine"));
    r->terms = json_get(root, "terms");
    r->texts = json_get(root, "texts");
    const Json *entries = json_get(root, "entries");
    JSON_EACH(item, entries) {
        if (!r->ok) break;
        PlanEntry entry = {0};
        read_entry(r, item, &entry);
        vec_push(r->arena, &r->plan->entries, entry);
    }
    r->plan->address_unit = r->address_unit;
    return r->ok;
}

static void free_scratch(void *user) {
    arena_free(((Reader *)user)->scratch);
}

// A refusal is reported behind the scope: the sink may leave by another failure point.
const Plan *plan_read(Arena *arena, Failure *failure, DiagSink *sink, const char *text, size_t length) {
    Reader r = {.arena = arena, .failure = failure, .address_unit = 1, .ok = true, .text = text, .length = length};
    r.plan = NEW(arena, Plan);
    if (fail_scope(failure, read_plan, free_scratch, &r)) return r.plan;
    diag(sink, NOWHERE, T_BAD_ARTEFACT, r.why);
    return NULL;
}
