// Launch plan -> JSON; read.c is the inverse. docs/reference/launch-plan.md describes the format.
#include "runtime/plan/plan.h"
#include "support/json.h"

typedef struct Writer {
    StrBuf *out;
    int indent;
    bool first;   // no comma before the next item
} Writer;

static void next_line(Writer *w) {
    sb_printf(w->out, "%s\n%*s", w->first ? "" : ",", w->indent, "");
    w->first = false;
}

// A member's name (NULL: an element of an array).
static void key(Writer *w, const char *name) {
    next_line(w);
    if (!name) return;
    json_quote(w->out, name);
    sb_str(w->out, ": ");
}

static void open(Writer *w, const char *name, char bracket) {
    key(w, name);
    sb_char(w->out, bracket);
    w->indent += 1;
    w->first = true;
}

static void close(Writer *w, char bracket) {
    w->indent -= 1;
    if (w->first) sb_char(w->out, bracket);
    else sb_printf(w->out, "\n%*s%c", w->indent, "", bracket);
    w->first = false;
}

static void put_text(Writer *w, const char *name, const char *text) {
    key(w, name);
    json_quote(w->out, text);
}

static void put_integer(Writer *w, const char *name, int64_t value) {
    key(w, name);
    sb_printf(w->out, "%lld", (long long)value);
}

// An array of short items on one line.
static void put_exprs(Writer *w, const char *name, int count, const HostExpr *exprs) {
    key(w, name);
    sb_char(w->out, '[');
    for (int i = 0; i < count; i++) {
        if (i > 0) sb_str(w->out, ", ");
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
    put_text(w, "mode", mode_names[p->mode]);
    if (p->alias) put_text(w, "alias", p->alias);
    put_exprs(w, "shape", p->rank, p->shape);
    if (p->strides) put_exprs(w, "strides", p->rank, p->strides);
    if (p->layout) put_text(w, "layout", p->layout);
    if (!p->zeroed) return;
    key(w, "zeroed");
    sb_str(w->out, "true");
}

static void write_region(Writer *w, const PlanRegion *region) {
    put_text(w, "tensor", region->tensor);
    if (region->count > 0) {
        put_exprs(w, "start", region->count, region->start);
        put_exprs(w, "extent", region->count, region->extent);
    }
    if (region->transposed) {
        key(w, "transposed");
        sb_str(w->out, "true");
    }
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

static void write_step(Writer *w, const PlanStep *step) {
    open(w, NULL, '{');
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
}

static void write_steps(Writer *w, const char *name, const PlanSteps *steps) {
    open(w, name, '[');
    for (int i = 0; i < steps->count; i++) write_step(w, steps->items[i]);
    close(w, ']');
}

static void write_kernel(Writer *w, const PlanVariant *v) {
    put_text(w, "symbol", v->symbol);
    put_text(w, "grid", v->grid.text);
    put_integer(w, "threads", v->threads);
    if (v->cluster[0] * v->cluster[1] * v->cluster[2] > 1) {
        key(w, "cluster");
        sb_printf(w->out, "[%d, %d, %d]", v->cluster[0], v->cluster[1], v->cluster[2]);
    }
    if (v->pdl) {
        key(w, "pdl");
        sb_str(w->out, "true");
    }
    put_integer(w, "shared_bytes", v->shared_bytes);
    if (v->registers < 0) return;
    open(w, "resources", '{');
    put_integer(w, "registers", v->registers);
    put_integer(w, "spill_stores", v->spill_stores);
    put_integer(w, "spill_loads", v->spill_loads);
    put_integer(w, "stack", v->stack);
    put_integer(w, "barriers", v->barriers);
    close(w, '}');
}

static void write_integers(Writer *w, const char *name, int count, const int *values) {
    key(w, name);
    for (int i = 0; i < count; i++) sb_printf(w->out, "%s%d", i ? ", " : "[", values[i]);
    sb_char(w->out, ']');
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

static void put_true(Writer *w, const char *name) {
    key(w, name);
    sb_str(w->out, "true");
}

static void write_map(Writer *w, const PlanMap *map) {
    open(w, NULL, '{');
    put_text(w, "name", map->name);
    put_integer(w, "at", map->at);
    put_text(w, "tensor", map->tensor);
    write_integers(w, "box", map->box_rank, map->box);
    put_integer(w, "swizzle", map->swizzle);
    if (map->tf32) put_true(w, "tf32");
    if (map->merged) put_true(w, "merged");
    if (map->windows) write_windows(w, map);
    close(w, '}');
}

static void write_maps(Writer *w, const PlanVariant *v) {
    if (v->maps.count == 0) return;
    open(w, "maps", '[');
    for (int i = 0; i < v->maps.count; i++) write_map(w, &v->maps.items[i]);
    close(w, ']');
}

static void write_variant(Writer *w, const PlanVariant *v) {
    open(w, NULL, '{');
    if (v->when.text) put_text(w, "when", v->when.text);
    open(w, "params", '[');
    for (int i = 0; i < v->params.count; i++) {
        open(w, NULL, '{');
        write_param(w, &v->params.items[i]);
        close(w, '}');
    }
    close(w, ']');
    write_maps(w, v);
    open(w, "dims", '[');
    for (int i = 0; i < v->dims.count; i++) put_text(w, NULL, v->dims.items[i]);
    close(w, ']');
    if (v->steps.count > 0 || !v->symbol) write_steps(w, "steps", &v->steps);
    if (v->recorded) {
        key(w, "recorded");
        sb_str(w->out, "true");
    }
    if (v->tuned.count > 0) {
        open(w, "tuned", '{');
        for (int i = 0; i < v->tuned.count; i++) put_integer(w, v->tuned.items[i].name, v->tuned.items[i].value);
        close(w, '}');
    }
    if (v->symbol) write_kernel(w, v);
    close(w, '}');
}

void plan_write(const Plan *plan, StrBuf *out) {
    Writer w = {.out = out, .first = true};
    sb_char(out, '{');
    w.indent = 1;
    put_integer(&w, "manifest", MANIFEST_FORMAT);
    put_text(&w, "producer", plan->producer);
    put_text(&w, "target", plan->target);
    open(&w, "entries", '[');
    for (int i = 0; i < plan->entries.count; i++) {
        const PlanEntry *entry = &plan->entries.items[i];
        open(&w, NULL, '{');
        put_text(&w, "name", entry->name);
        put_text(&w, "kind", entry->is_program ? "program" : "kernel");
        open(&w, "variants", '[');
        for (int v = 0; v < entry->variants.count; v++) write_variant(&w, &entry->variants.items[v]);
        close(&w, ']');
        close(&w, '}');
    }
    close(&w, ']');
    if (plan->declarations) key(&w, "declarations"), sb_str(out, plan->declarations);
    close(&w, '}');
    sb_char(out, '\n');
}
