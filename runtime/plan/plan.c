// What plans are asked for, whether built or read.
#include "runtime/plan/plan.h"
#include <string.h>

const PlanEntry *plan_entry(const Plan *plan, const char *name) {
    for (int i = 0; i < plan->entries.count; i++)
        if (strcmp(plan->entries.items[i].name, name) == 0) return &plan->entries.items[i];
    return NULL;
}

bool plan_has(const Plan *plan, const PlanEntry *entry) {
    for (int i = 0; i < plan->entries.count; i++)
        if (&plan->entries.items[i] == entry) return true;
    return false;
}

bool plan_has_costs(const Plan *plan) {
    VEC_EACH (const PlanEntry, entry, &plan->entries)
        VEC_EACH (const PlanVariant, v, &entry->variants)
            if (v->cost) return true;
    return false;
}

double plan_microseconds(const Plan *plan, const Launch *launch, const LaunchArg *args) {
    const PlanMachine *machine = &plan->machine;
    const PlanVariant *v = launch->variant;
    double bytes = 0;
    if (!v || launch->clocks < 0 || machine->clock_mhz <= 0) return 0;
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        double elements = p->is_tensor ? 1 : 0;
        for (int d = 0; d < args[i].rank && p->is_tensor; d++) elements *= (double)args[i].shape[d];
        bytes += elements * (p->mode == MODE_INOUT ? 2 : 1) * type_bytes(p->type);
    }
    double clocks = machine->memory_bytes > 0 ? bytes / (double)machine->memory_bytes : 0;
    if (launch->clocks > clocks) clocks = launch->clocks;
    return clocks / (double)machine->clock_mhz + (double)machine->launch_ns / 1000;
}

const char *plan_condition_text(Arena *arena, const PlanCondition *condition) {
    StrBuf text;
    sb_init(&text, arena);
    for (int i = 0; i < condition->terms.count; i++)
        sb_printf(&text, "%s%s", i ? " && " : "", condition->terms.items[i].text);
    return sb_text(&text);
}

// ---- names of tunables in expressions ----

static const char word_bytes[] = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

static const PlanTuned *tuned_named(const PlanVariant *v, const char *name, size_t length) {
    VEC_EACH (const PlanTuned, tuned, &v->tuned)
        if (strlen(tuned->name) == length && strncmp(tuned->name, name, length) == 0) return tuned;
    return NULL;
}

// Of tunables with this value the one that was named least often: a tile's extents mostly come in their order. -1: there is none.
static int tuned_of_value(Arena *arena, const PlanVariant *v, const char *digits, size_t length, const int *named) {
    int found = -1;
    for (int i = 0; i < v->tuned.count; i++) {
        const char *value = arena_printf(arena, "%lld", (long long)v->tuned.items[i].value);
        if (strlen(value) != length || strncmp(value, digits, length) != 0) continue;
        if (found < 0 || named[i] < named[found]) found = i;
    }
    return found;
}

const char *plan_with_names(Arena *arena, const PlanVariant *v, const char *text) {
    StrBuf out;
    int *named = NEW_ARRAY(arena, int, v->tuned.count + 1);
    sb_init(&out, arena);
    while (*text) {
        size_t length = strspn(text, word_bytes);
        int tuned = length ? tuned_of_value(arena, v, text, length, named) : -1;
        if (length == 0) length = 1;
        if (tuned >= 0) sb_printf(&out, "{%s}", v->tuned.items[tuned].name);
        else sb_printf(&out, "%.*s", (int)length, text);
        if (tuned >= 0) named[tuned]++;
        text += length;
    }
    return sb_text(&out);
}

const char *plan_with_values(Arena *arena, const PlanVariant *v, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    while (*text) {
        size_t length = *text == '{' ? strspn(text + 1, word_bytes) : 0;
        const PlanTuned *tuned = length && text[length + 1] == '}' ? tuned_named(v, text + 1, length) : NULL;
        if (tuned) sb_printf(&out, "%lld", (long long)tuned->value);
        else sb_char(&out, *text);
        text += tuned ? length + 2 : 1;
    }
    return sb_text(&out);
}

// ---- variants with the same parameters ----

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_exprs(int count, const HostExpr *a, const HostExpr *b) {
    for (int i = 0; i < count; i++)
        if (a[i].expr != b[i].expr || strcmp(a[i].text, b[i].text) != 0) return false;
    return true;
}

static bool same_param(const PlanParam *a, const PlanParam *b) {
    if (strcmp(a->name, b->name) != 0 || a->type != b->type || a->is_tensor != b->is_tensor) return false;
    if (a->mode != b->mode || !same_text(a->alias, b->alias) || !same_text(a->layout, b->layout)) return false;
    if (a->rank != b->rank || !a->strides != !b->strides || a->moved != b->moved) return false;
    return same_exprs(a->rank, a->shape, b->shape) && (!a->strides || same_exprs(a->rank, a->strides, b->strides));
}

static bool same_names(const PlanVariant *a, const PlanVariant *b) {
    if (a->params.count != b->params.count || a->dims.count != b->dims.count) return false;
    for (int i = 0; i < a->params.count && a->params.items != b->params.items; i++)
        if (!same_param(&a->params.items[i], &b->params.items[i])) return false;
    for (int i = 0; i < a->dims.count; i++)
        if (strcmp(a->dims.items[i], b->dims.items[i]) != 0) return false;
    return true;
}

void plan_set_cluster(Arena *arena, PlanVariant *v, const int shape[2]) {
    PlanCost *cost = NEW(arena, PlanCost);
    v->cluster[0] = shape[0], v->cluster[1] = shape[1], v->cluster[2] = 1;
    if (!v->cost) return;
    *cost = *v->cost;
    bool splits = cost->terms.split > 1;   // CTAs along the first name share steps, along the second loads
    if (splits) cost->terms.split = shape[0];
    cost->terms.cluster_rows = splits ? shape[1] : shape[0];
    cost->terms.cluster_columns = splits ? 1 : shape[1];
    v->cost = cost;
}

void plan_set_names(PlanEntry *entry) {
    for (int i = 0; i < entry->variants.count; i++) {
        PlanVariant *v = &entry->variants.items[i];
        bool same = i > 0 && same_names(&entry->variants.items[i - 1], v);
        v->names = same ? entry->variants.items[i - 1].names : i;
    }
}
