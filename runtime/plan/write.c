// Launch plan -> JSON, few items a line and without spaces, for it is in each artefact; read.c is the inverse. docs/reference/launch-plan.md describes the format.
#include "runtime/plan/plan.h"
#include "support/json.h"
#include <string.h>

typedef struct Writer {
    Arena *arena;
    StrBuf *out;
    bool first;                // no comma before the next item
    int flat;                  // > 0: items stand on one line
    VEC(const char *) texts;   // of expressions, each one time
    const char *grid;          // of the kernel before, in names of tunables; NULL: the entry's first
    int threads;               // of it
} Writer;

static void next_item(Writer *w) {
    if (!w->first) sb_char(w->out, ',');
    if (!w->flat) sb_char(w->out, '\n');
    w->first = false;
}

// A member's name (NULL: an element of an array).
static void key(Writer *w, const char *name) {
    next_item(w);
    if (!name) return;
    json_quote(w->out, name);
    sb_char(w->out, ':');
}

static void open(Writer *w, const char *name, char bracket) {
    key(w, name);
    sb_char(w->out, bracket);
    w->first = true;
}

static void close(Writer *w, char bracket) {
    if (!w->first && !w->flat) sb_char(w->out, '\n');
    sb_char(w->out, bracket);
    w->first = false;
}

// On one line.
static void open_flat(Writer *w, const char *name, char bracket) {
    open(w, name, bracket);
    w->flat++;
}

static void close_flat(Writer *w, char bracket) {
    close(w, bracket);
    w->flat--;
}

static void put_text(Writer *w, const char *name, const char *text) {
    key(w, name);
    json_quote(w->out, text);
}

static void put_integer(Writer *w, const char *name, int64_t value) {
    key(w, name);
    sb_printf(w->out, "%lld", (long long)value);
}

// What is missing has the usual value.
static void put_unless(Writer *w, int64_t usual, const char *name, int64_t value) {
    if (value != usual) put_integer(w, name, value);
}

static void put_true(Writer *w, const char *name) {
    key(w, name);
    sb_str(w->out, "true");
}

// The number of a text in the list.
static void put_number(Writer *w, const char *text) {
    int at = 0;
    while (at < w->texts.count && strcmp(w->texts.items[at], text) != 0) at++;
    if (at == w->texts.count) vec_push(w->arena, &w->texts, text);
    put_integer(w, NULL, at);
}

// An array of short items on one line.
static void put_exprs(Writer *w, const char *name, int count, const HostExpr *exprs) {
    key(w, name);
    sb_char(w->out, '[');
    for (int i = 0; i < count; i++) {
        if (i > 0) sb_char(w->out, ',');
        if (exprs[i].text) json_quote(w->out, exprs[i].text);
        else sb_str(w->out, "null");
    }
    sb_char(w->out, ']');
}

static const char *const mode_names[] = {[MODE_IN] = "in", [MODE_OUT] = "out", [MODE_INOUT] = "inout"};

static void write_param(Writer *w, const PlanParam *p) {
    put_text(w, "name", p->name);
    put_text(w, "type", type_text(p->type));
    if (!p->is_tensor) return;
    if (p->mode != MODE_IN) put_text(w, "mode", mode_names[p->mode]);
    if (p->alias) put_text(w, "alias", p->alias);
    put_exprs(w, "shape", p->rank, p->shape);
    if (p->strides) put_exprs(w, "strides", p->rank, p->strides);
    put_unless(w, -1, "innermost", p->moved - 1);
    if (p->layout) put_text(w, "layout", p->layout);
    if (!p->zeroed) return;
    put_true(w, "zeroed");
}

static void write_region(Writer *w, const PlanRegion *region) {
    put_text(w, "tensor", region->tensor);
    if (region->count > 0) {
        put_exprs(w, "start", region->count, region->start);
        put_exprs(w, "extent", region->count, region->extent);
    }
    if (region->transposed) put_true(w, "transposed");
}

static void write_steps(Writer *w, const char *name, const PlanSteps *steps);

static void write_launch_args(Writer *w, const PlanStep *step) {
    open(w, "args", '[');
    for (int i = 0; i < step->args.count; i++) {
        open(w, NULL, '{');
        if (step->args.items[i].region) write_region(w, step->args.items[i].region);
        else put_text(w, "value", step->args.items[i].value.text);
        close(w, '}');
    }
    close(w, ']');
}

// On one line, but for the steps of a branch.
static void write_step(Writer *w, const PlanStep *step) {
    bool flat = step->kind != DO_IF;
    open(w, NULL, '{');
    w->flat += flat;
    put_text(w, "do", plan_step_names[step->kind]);
    if (step->name) put_text(w, "name", step->name);
    if (step->kind == DO_LET) put_text(w, "type", type_text(step->type));
    if (step->value.text) put_text(w, "value", step->value.text);
    if (step->scratch) write_param(w, step->scratch);
    if (step->region) write_region(w, step->region);
    if (step->kind == DO_IF) {
        write_steps(w, "then", &step->then);
        write_steps(w, "else", &step->otherwise);
    }
    if (step->kind == DO_LAUNCH) write_launch_args(w, step);
    close(w, '}');
    w->flat -= flat;
}

static void write_steps(Writer *w, const char *name, const PlanSteps *steps) {
    open(w, name, '[');
    for (int i = 0; i < steps->count; i++) write_step(w, steps->items[i]);
    close(w, ']');
}

static void write_integers(Writer *w, const char *name, int count, const int *values) {
    open_flat(w, name, '[');
    for (int i = 0; i < count; i++) put_integer(w, NULL, values[i]);
    close_flat(w, ']');
}

// What is that of the kernel before is missing.
static void write_grid(Writer *w, const PlanVariant *v) {
    if (!w->grid || strcmp(plan_with_values(w->arena, v, w->grid), v->grid.text) != 0) {
        w->grid = plan_with_names(w->arena, v, v->grid.text);
        put_text(w, "grid", w->grid);
    }
    put_unless(w, w->threads, "threads", v->threads);
    w->threads = v->threads;
}

static void write_kernel(Writer *w, const PlanVariant *v) {
    put_text(w, "symbol", v->symbol);
    w->flat++;
    write_grid(w, v);
    if (v->sets_cluster) write_integers(w, "cluster", 2, v->cluster);
    else if (v->cluster[0] * v->cluster[1] * v->cluster[2] > 1)
        write_integers(w, "cluster", (int)COUNT_OF(v->cluster), v->cluster);
    if (v->pdl) put_integer(w, "pdl", v->pdl);
    put_integer(w, "shared", v->shared_bytes);
    put_unless(w, -1, "registers", v->registers);
    put_unless(w, 0, "spill_stores", v->spill_stores);
    put_unless(w, 0, "spill_loads", v->spill_loads);
    put_unless(w, 0, "stack", v->stack);
    put_unless(w, 0, "barriers", v->barriers);
    w->flat--;
}

static void write_windows(Writer *w, const PlanMap *map) {
    open(w, "im2col", '{');
    write_integers(w, "lower", map->windows, map->lower);
    open(w, "upper", '[');
    for (int i = 0; i < map->windows; i++) put_text(w, NULL, map->upper[i].text);
    close(w, ']');
    write_integers(w, "strides", map->windows, map->strides);
    close(w, '}');
}

// ["A",64,128]
static void write_plain_map(Writer *w, const PlanMap *map) {
    open_flat(w, NULL, '[');
    put_text(w, NULL, map->tensor);
    for (int i = 0; i < map->box_rank; i++) put_integer(w, NULL, map->box[i]);
    close_flat(w, ']');
}

// `behind`: its place if it is behind the parameters, as most are.
static void write_map(Writer *w, const PlanMap *map, int behind) {
    bool usual = map->at == behind && map->swizzle == SWIZZLE_USUAL;
    if (usual && !map->tf32 && !map->merged && !map->windows) {
        write_plain_map(w, map);
        return;
    }
    open_flat(w, NULL, '{');
    put_unless(w, behind, "at", map->at);
    put_text(w, "tensor", map->tensor);
    write_integers(w, "box", map->box_rank, map->box);
    put_unless(w, SWIZZLE_USUAL, "swizzle", map->swizzle);
    if (map->tf32) put_true(w, "tf32");
    if (map->merged) put_true(w, "merged");
    if (map->windows) write_windows(w, map);
    close_flat(w, '}');
}

static void write_maps(Writer *w, const PlanVariant *v) {
    if (v->maps.count == 0) return;
    open_flat(w, "maps", '[');
    for (int i = 0; i < v->maps.count; i++) write_map(w, &v->maps.items[i], v->params.count + i);
    close_flat(w, ']');
}

// The number of texts that two lists begin with; of none or one it is shorter to say them.
static int common_texts(const HostExpr *a, int count, const HostExpr *b, int other) {
    int same = 0;
    while (same < count && same < other && strcmp(a[same].text, b[same].text) == 0) same++;
    return same > 1 ? same : 0;
}

// -n for the first n texts of the variant before, then the others.
static void put_numbers(Writer *w, const HostExpr *exprs, int count, int same) {
    if (same > 0) put_integer(w, NULL, -same);
    for (int i = same; i < count; i++) put_number(w, exprs[i].text);
}

// `before`: the variant before, if it has the same arguments; else NULL. What is that variant's is missing.
static void write_condition(Writer *w, const PlanCondition *when, const PlanVariant *before) {
    const HostExpr *terms = when->terms.items;
    int others = before ? before->when.terms.count : 0;
    int same = before ? common_texts(terms, when->terms.count, before->when.terms.items, others) : 0;
    if (same == when->terms.count && same == others) return;
    open_flat(w, "when", '[');
    put_numbers(w, terms, when->terms.count, same);
    close_flat(w, ']');
}

// The extents, then the terms without the zeros at the end; -n for n terms that are those of the variant before.
static void write_cost(Writer *w, const PlanVariant *v, const PlanVariant *before) {
    if (v->compared > 1) put_integer(w, "compare", v->compared);
    if (!v->cost) return;
    const PlanCost none = {0}, *other = before && before->cost ? before->cost : &none;
    LaunchCost cost = v->cost->terms, known = other->terms;
    int last = COST_TERM_COUNT - 1, same = 0;
    while (last >= 0 && !*cost_term(&cost, last)) last--;
    open_flat(w, "cost", '[');
    bool compares = other != &none;
    put_numbers(w, v->cost->extents, COST_EXTENTS,
                compares ? common_texts(v->cost->extents, COST_EXTENTS, other->extents, COST_EXTENTS) : 0);
    for (int i = 0; i <= last; i++) {
        bool equal = compares && *cost_term(&cost, i) == *cost_term(&known, i);
        same += equal;
        if (equal && i < last) continue;
        if (same > 0) put_integer(w, NULL, -same);
        if (!equal) put_integer(w, NULL, *cost_term(&cost, i));
        same = 0;
    }
    close_flat(w, ']');
}

// A variant without parameters and dims has those of the variant before it.
static void write_arguments(Writer *w, const PlanVariant *v) {
    open(w, "params", '[');
    for (int i = 0; i < v->params.count; i++) {
        open_flat(w, NULL, '{');
        write_param(w, &v->params.items[i]);
        close_flat(w, '}');
    }
    close(w, ']');
    open_flat(w, "dims", '[');
    for (int i = 0; i < v->dims.count; i++) put_text(w, NULL, v->dims.items[i]);
    close_flat(w, ']');
}

static bool names_the_same(const PlanVariant *a, const PlanVariant *b) {
    bool same = a->tuned.count == b->tuned.count;
    for (int i = 0; same && i < a->tuned.count; i++) same = strcmp(a->tuned.items[i].name, b->tuned.items[i].name) == 0;
    return same;
}

// Values alone if the variant before has the same names.
static void write_tuned(Writer *w, const PlanVariant *v, const PlanVariant *before) {
    if (v->tuned.count == 0) return;
    bool same = before && names_the_same(v, before);
    open_flat(w, "tuned", same ? '[' : '{');
    for (int i = 0; i < v->tuned.count; i++)
        put_integer(w, same ? NULL : v->tuned.items[i].name, v->tuned.items[i].value);
    close_flat(w, same ? ']' : '}');
}

static void write_variant(Writer *w, const PlanEntry *entry, int at) {
    const PlanVariant *v = &entry->variants.items[at];
    const PlanVariant *before = v->names != at ? v - 1 : NULL;
    if (v->same_kernel) {   // [2,1], the cluster alone, on the line of the others
        w->flat++;
        write_integers(w, NULL, 2, v->cluster);
        w->flat--;
        return;
    }
    open(w, NULL, '{');
    write_condition(w, &v->when, before);
    write_cost(w, v, before);
    if (v->names == at) write_arguments(w, v);
    write_maps(w, v);
    if (v->steps.count > 0 || !v->symbol) write_steps(w, "steps", &v->steps);
    if (v->recorded) put_true(w, "recorded");
    write_tuned(w, v, at > 0 ? v - 1 : NULL);
    if (v->symbol) write_kernel(w, v);
    close(w, '}');
}

static void write_entry(Writer *w, const PlanEntry *entry) {
    open(w, NULL, '{');
    put_text(w, "name", entry->name);
    put_text(w, "kind", entry->is_program ? "program" : "kernel");
    open(w, "variants", '[');
    w->grid = NULL;
    w->threads = 0;
    for (int v = 0; v < entry->variants.count; v++) write_variant(w, entry, v);
    close(w, ']');
    close(w, '}');
}

static void write_texts(Writer *w) {
    if (w->texts.count == 0) return;
    open_flat(w, "texts", '[');
    VEC_EACH_PTR (const char, text, &w->texts) put_text(w, NULL, text);
    close_flat(w, ']');
}

static void write_machine(Writer *w, const PlanMachine *machine) {
    open_flat(w, "machine", '{');
    put_integer(w, "clock_mhz", machine->clock_mhz);
    put_integer(w, "launch_ns", machine->launch_ns);
    put_integer(w, "memory_bytes", machine->memory_bytes);
    close_flat(w, '}');
}

static void write_terms(Writer *w) {
    open_flat(w, "terms", '[');
    for (int i = 0; i < COST_TERM_COUNT; i++) put_text(w, NULL, cost_term_name(i));
    close_flat(w, ']');
}

void plan_write(const Plan *plan, StrBuf *out) {
    Writer w = {.arena = out->arena, .out = out, .first = true};
    sb_char(out, '{');
    put_integer(&w, "manifest", MANIFEST_FORMAT);
    put_text(&w, "producer", plan->producer);
    put_text(&w, "target", plan->target);
    if (plan->one_launch) put_true(&w, "one_launch");
    if (plan_has_costs(plan)) write_machine(&w, &plan->machine), write_terms(&w);
    open(&w, "entries", '[');
    VEC_EACH (const PlanEntry, entry, &plan->entries) write_entry(&w, entry);
    close(&w, ']');
    write_texts(&w);
    if (plan->declarations) key(&w, "declarations"), sb_str(out, plan->declarations);
    close(&w, '}');
    sb_char(out, '\n');
}
