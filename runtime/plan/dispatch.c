// From arguments to actions: chooses a variant, checks its contracts, computes grid and parameters.
//
// Arguments are bound to a variant in three phases, since an expression may use a dim before the parameter that binds
// it:
//
//     1. each single name in a shape or stride list is bound to the argument's extent:   A: [M, K], offs: [E + 1] -> M, K
//     2. each shape and stride expression is compared with the argument:                 does offs have E + 1 elements?
//     3. `when` is evaluated
//
// The first variant that passes all three is launched. Of variants that are compared the cheapest is asked first: their
// costs are computed from a few extents, before any condition is. If no variant passes, the diagnostic lists the reason
// of each.
// Contracts (`assume`) are checked after the choice: a violated contract is an error, and no other variant is tried.
#include "ir/query.h"
#include "runtime/plan/plan.h"
#include "target/target.h"
#include <limits.h>
#include <string.h>

enum { MAX_CALL_DEPTH = 32, MAX_REASONS = 12 };

static const Span NOWHERE;

typedef struct Tensor {   // a tensor of a program
    const char *name;
    Type type;
    LaunchArg arg;
} Tensor;

// The names of one call of an entry.
typedef struct Frame {
    const PlanEntry *entry;
    const PlanVariant *variant;
    const LaunchArg *args;   // with leading dims as one where the variant takes them so
    HostScope scope;
    VEC(Tensor) tensors;
} Frame;

typedef struct Dispatcher {
    Arena *arena;
    DiagSink *sink;
    const Plan *plan;
    const LaunchDevice *device;
    LaunchMemory memory;
    Launch *out;
    int depth;
} Dispatcher;

// Wraps: if a dim is 0, the product of the others has no bound.
static int64_t product(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

void launch_arg_dense(LaunchArg *arg) {
    int64_t stride = 1;
    for (int d = arg->rank - 1; d >= 0; d--) {
        arg->strides[d] = stride;
        stride = product(stride, arg->shape[d]);
    }
}

static bool is_empty(const LaunchArg *arg) {
    for (int d = 0; d < arg->rank; d++)
        if (arg->shape[d] == 0) return true;
    return false;
}

static int64_t elements(const LaunchArg *arg) {
    int64_t count = 1;
    for (int d = 0; d < arg->rank; d++) count = product(count, arg->shape[d]);
    return is_empty(arg) ? 0 : count;
}

// Whether the size in bytes, and the distance of the last element from the first, fit 64 bits. They then do for all
// regions too.
static bool is_countable(const LaunchArg *arg, Type type) {
    int64_t bytes = type_bytes(type), reach = 0, step;
    for (int d = 0; d < arg->rank; d++) {
        if (__builtin_mul_overflow(bytes, arg->shape[d], &bytes)) return false;
        if (arg->shape[d] <= 1) continue;   // the stride is not used
        if (__builtin_mul_overflow(arg->strides[d], type_bytes(type), &step) ||
            __builtin_mul_overflow(step, arg->shape[d] - 1, &step) || step == INT64_MIN ||
            __builtin_add_overflow(reach, step < 0 ? -step : step, &reach))
            return false;
    }
    return true;
}

// ---- binding ----

static void bind(Arena *arena, Frame *frame, const char *name, Scalar value) {
    HostName entry = {name, value};
    vec_push(arena, &frame->scope.names, entry);
}

static bool is_bound(const Frame *frame, const char *name) {
    for (int i = 0; i < frame->scope.names.count; i++)
        if (strcmp(frame->scope.names.items[i].name, name) == 0) return true;
    return false;
}

static void bind_lone(Arena *arena, Frame *frame, const HostExpr *expr, int64_t value) {
    const Expr *e = expr->expr;
    if (e && e->kind == EXPR_VAR && !is_bound(frame, e->var->name))
        bind(arena, frame, e->var->name, scalar_integer(TYPE_I64, value));
}

static void bind_names(Arena *arena, Frame *frame, const LaunchArg *args) {
    const PlanVariant *v = frame->variant;
    for (int i = 0; i < v->params.count; i++) {
        const PlanParam *p = &v->params.items[i];
        if (!p->is_tensor) {
            bind(arena, frame, p->name, scalar_convert(p->type, args[i].scalar));
            continue;
        }
        bind(arena, frame, p->address, scalar_integer(TYPE_I64, (int64_t)args[i].address));
        for (int d = 0; d < p->rank && d < args[i].rank; d++) bind_lone(arena, frame, &p->shape[d], args[i].shape[d]);
    }
    for (int i = 0; i < v->params.count; i++) {   // after all shapes: `strides [K, 1]` checks, `strides [lda, 1]` binds
        const PlanParam *p = &v->params.items[i];
        for (int d = 0; p->strides && d < p->rank && d < args[i].rank; d++)
            bind_lone(arena, frame, &p->strides[d], args[i].strides[d]);
    }
}

static bool eval_integer(Arena *arena, const Frame *frame, const HostExpr *expr, int64_t *value, const char **why) {
    Scalar result;
    if (!host_eval(arena, &frame->scope, expr->expr, &result, why)) return false;
    *value = result.integer;
    return true;
}

// NULL: the tensor matches its declaration; else the difference.
static const char *check_tensor(Arena *arena, const Frame *frame, const PlanParam *p, const LaunchArg *arg) {
    const char *why = NULL;
    if (arg->rank != p->rank)
        return arena_printf(arena, "'%s' has %d dims; the parameter has %d", p->name, arg->rank, p->rank);
    for (int d = 0; d < p->rank; d++)
        if (arg->shape[d] < 0) return arena_printf(arena, "dim %d of '%s' is negative", d, p->name);
    bool empty = is_empty(arg);
    if (!empty && !is_countable(arg, p->type))
        return arena_printf(arena, "'%s' has more bytes than 64 bits can count", p->name);
    int64_t dense = 1, want;
    for (int d = p->rank - 1; d >= 0; d--) {
        if (!eval_integer(arena, frame, &p->shape[d], &want, &why)) return why;
        if (want != arg->shape[d])
            return arena_printf(arena, "dim %d of '%s' is %lld; it must be %lld (%s)", d, p->name,
                                (long long)arg->shape[d], (long long)want, p->shape[d].text);
        if (p->strides && !eval_integer(arena, frame, &p->strides[d], &want, &why)) return why;
        if (!p->strides) want = dense;
        dense = product(dense, arg->shape[d]);
        if (arg->shape[d] > 1 && !empty && arg->strides[d] != want)   // else no address depends on the stride
            return arena_printf(arena, "stride %d of '%s' is %lld; it must be %lld%s", d, p->name,
                                (long long)arg->strides[d], (long long)want, p->strides ? "" : " (dense row-major)");
    }
    return NULL;
}

// NULL: the arguments match the variant's parameters; else the difference.
static const char *check_params(Arena *arena, const Frame *frame, const LaunchArg *args) {
    const PlanVariant *v = frame->variant;
    const char *why = NULL;
    for (int i = 0; i < v->params.count; i++)
        if (v->params.items[i].is_tensor && (why = check_tensor(arena, frame, &v->params.items[i], &args[i])))
            return why;
    for (int i = 0; i < v->dims.count; i++)
        if (!is_bound(frame, v->dims.items[i])) return arena_printf(arena, "nothing gives '%s'", v->dims.items[i]);
    return NULL;
}

// NULL: the condition holds; else the reason, without formatting: most launches skip some variants, and conditions are
// long.
static const char *check_condition(Arena *arena, const Frame *frame) {
    const PlanCondition *when = &frame->variant->when;
    const char *why = NULL;
    VEC_EACH (const HostExpr, term, &when->terms) {
        Scalar holds;
        if (!host_eval(arena, &frame->scope, term->expr, &holds, &why)) return why;
        if (!scalar_truth(holds)) return when->text;
    }
    return NULL;
}

// All variants take the same number and kinds of arguments.
static bool check_kinds(Dispatcher *r, const PlanEntry *entry, int count, const LaunchArg *args) {
    const PlanVariant *v = &entry->variants.items[0];
    if (count != v->params.count) {
        diag(r->sink, NOWHERE, T_ARGUMENT_COUNT, entry->name, v->params.count, count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        const PlanParam *p = &v->params.items[i];
        bool real = !args[i].is_tensor && type_is_float(args[i].scalar.type);
        const char *want = p->is_tensor && !args[i].is_tensor                 ? "a tensor"
                           : !p->is_tensor && args[i].is_tensor               ? "a scalar"
                           : !p->is_tensor && real && !type_is_float(p->type) ? "an integer"
                                                                              : NULL;
        if (!want) continue;
        diag(r->sink, NOWHERE, T_ARGUMENT_KIND, p->name, entry->name, want);
        return false;
    }
    return true;
}

static bool is_dense(const LaunchArg *arg) {
    int64_t dense = 1;
    for (int d = arg->rank - 1; d >= 0; d--) {
        if (arg->shape[d] > 1 && arg->strides[d] != dense) return false;
        dense = product(dense, arg->shape[d]);
    }
    return dense > 0;
}

static bool is_same_tensor(const LaunchArg *a, const LaunchArg *b) {
    bool same = a->address == b->address && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->shape[d] == b->shape[d] && (a->shape[d] <= 1 || a->strides[d] == b->strides[d]);
    return same;
}

static bool names(const PlanParam *p, const PlanParam *q) {
    return p->alias && strcmp(p->alias, q->name) == 0;
}

// Every variant says that the two may be one tensor.
static bool may_be_one(const PlanEntry *entry, int i, int j) {
    bool may = true;
    for (int v = 0; v < entry->variants.count; v++) {
        const PlanParam *params = entry->variants.items[v].params.items;
        may &= names(&params[i], &params[j]) || names(&params[j], &params[i]);
    }
    return may;
}

// Of tensors that begin at one address, or of dense ones: parts of one with strides interleave.
static bool overlap(const PlanParam *p, const LaunchArg *a, const PlanParam *q, const LaunchArg *b) {
    if (!p->is_tensor || !q->is_tensor || (p->mode == MODE_IN && q->mode == MODE_IN)) return false;
    if (!a->address || !b->address || elements(a) <= 0 || elements(b) <= 0) return false;
    if (a->address == b->address) return true;
    if (!is_dense(a) || !is_dense(b)) return false;
    uint64_t low = a->address < b->address ? a->address : b->address;
    uint64_t end_a = a->address - low + (uint64_t)product(elements(a), type_bytes(p->type));
    uint64_t end_b = b->address - low + (uint64_t)product(elements(b), type_bytes(q->type));
    return a->address - low < end_b && b->address - low < end_a;
}

bool plan_arguments_separate(DiagSink *sink, const PlanEntry *entry, int count, const LaunchArg *args) {
    const PlanParam *params = entry->variants.items[0].params.items;
    for (int i = 0; count == entry->variants.items[0].params.count && i < count; i++)
        for (int j = 0; j < i; j++) {
            if (!overlap(&params[i], &args[i], &params[j], &args[j])) continue;
            if (is_same_tensor(&args[i], &args[j]) && may_be_one(entry, i, j)) continue;
            diag(sink, NOWHERE, T_ARGUMENTS_OVERLAP, params[j].name, params[i].name, entry->name);
            return false;
        }
    return true;
}

// ---- leading dims ----
static LeadingDims leading_of(const PlanParam *param, const LaunchArg *arg) {
    return (LeadingDims){param->name, arg->rank - param->rank + 1, arg->shape};
}

static const char *check_leading(Arena *arena, const PlanVariant *v, const LaunchArg *args) {
    const char *why = NULL;
    for (int i = 0; i < v->params.count; i++)
        for (int j = 0; j < i && !why; j++) {
            const PlanParam *p = &v->params.items[j], *q = &v->params.items[i];
            if (!p->leading || !q->leading || strcmp(p->shape[0].text, q->shape[0].text) != 0) continue;
            LeadingDims a = leading_of(p, &args[j]), b = leading_of(q, &args[i]);
            why = leading_differ(arena, &a, &b);
        }
    return why;
}

// NULL: *out are the arguments with all leading dims as one where the variant has one for them; else why they are not.
static const char *merge_arguments(Arena *arena, const PlanVariant *v, const LaunchArg *args, const LaunchArg **out) {
    const char *why = NULL;
    bool any = false;
    for (int i = 0; i < v->params.count; i++) any |= v->params.items[i].leading;
    *out = args;
    if (!any) return NULL;
    LaunchArg *merged = arena_copy(arena, args, sizeof *args * (size_t)v->params.count);
    *out = merged;
    for (int i = 0; i < v->params.count && !why; i++) {
        const PlanParam *p = &v->params.items[i];
        if (p->leading)
            why = merge_leading(arena, p->name, p->rank, &merged[i].rank, merged[i].shape, merged[i].strides);
    }
    return why ? why : check_leading(arena, v, args);
}

static bool is_condition(const PlanEntry *entry, const char *why) {
    for (int i = 0; i < entry->variants.count; i++)
        if (entry->variants.items[i].when.text == why) return true;
    return false;
}

// The choice of a variant.
typedef struct Choice {
    Dispatcher *r;
    const LaunchArg *args;
    Frame *frame;
    HostValues cache;
    const char *different;   // how the arguments differ from the variant's parameters
    VEC(const char *) reasons;
} Choice;

// Binds the arguments to this variant. NULL: they match its parameters; else how they differ. If its parameters equal
// those of the variant before, the names and the result of comparing shapes are kept.
static const char *bind_variant(Choice *c, const PlanVariant *v) {
    Frame *frame = c->frame;
    Arena *arena = c->r->arena;
    bool same = frame->variant && frame->variant->names == v->names;
    frame->variant = v;
    frame->scope.cluster = v->cluster;
    if (same) return c->different;
    memset(c->cache.known, 0, (size_t)frame->entry->shared);
    frame->scope =
        (HostScope){.multiprocessors = c->r->device->multiprocessors, .cluster = v->cluster, .cache = &c->cache};
    c->different = merge_arguments(arena, v, c->args, &frame->args);
    bind_names(arena, frame, frame->args);
    if (!c->different) c->different = check_params(arena, frame, frame->args);
    return c->different;
}

// Whether the variant serves; else the reason is kept, a single time if several variants have it.
static bool serves(Choice *c, const PlanVariant *v) {
    const char *why = bind_variant(c, v);
    if (!why) why = check_condition(c->r->arena, c->frame);
    if (!why) return true;
    bool known = false;
    VEC_EACH_PTR (const char, reason, &c->reasons) known |= strcmp(reason, why) == 0;
    if (!known) vec_push(c->r->arena, &c->reasons, why);
    return false;
}

// The clocks that the cost of a variant predicts; COST_NEVER: its arguments differ, or the cost has no value.
static double clocks_of(Choice *c, const PlanVariant *v, int64_t extents[COST_EXTENTS]) {
    const char *why;
    if (!v->cost || bind_variant(c, v)) return COST_NEVER;
    for (int i = 0; i < COST_EXTENTS; i++)
        if (!eval_integer(c->r->arena, c->frame, &v->cost->extents[i], &extents[i], &why)) return COST_NEVER;
    return cost_clocks(&v->cost->terms, extents, c->r->device->multiprocessors);
}

// Of the variants from `at` on that are compared, the cheapest that serves; NULL: none.
static const PlanVariant *cheapest(Choice *c, const PlanVariant *first) {
    int64_t extents[COST_EXTENTS];
    double *clocks = NEW_ARRAY(c->r->arena, double, first->compared);
    for (int i = 0; i < first->compared; i++) clocks[i] = clocks_of(c, &first[i], extents);
    for (int asked = 0; asked < first->compared; asked++) {
        int least = cost_least(clocks, first->compared);
        if (serves(c, &first[least])) return &first[least];
        clocks[least] = COST_ASKED;
    }
    return NULL;
}

static bool choose(Dispatcher *r, const PlanEntry *entry, int count, const LaunchArg *args, Frame *frame) {
    if (!check_kinds(r, entry, count, args)) return false;
    Choice c = {.r = r, .args = args, .frame = frame};
    c.cache =
        (HostValues){NEW_ARRAY(r->arena, bool, entry->shared + 1), NEW_ARRAY(r->arena, Scalar, entry->shared + 1)};
    *frame = (Frame){.entry = entry};
    for (int i = 0; i < entry->variants.count; i += entry->variants.items[i].compared) {
        const PlanVariant *v = &entry->variants.items[i];
        bool found = v->compared > 1 ? cheapest(&c, v) != NULL : serves(&c, v);
        if (!found) continue;
        if (r->depth == 1) r->out->clocks = frame->variant->cost ? clocks_of(&c, frame->variant, r->out->extents) : -1;
        frame->scope.cache = NULL;   // later steps bind names, so values may change
        return true;
    }
    Diag *d = diag(r->sink, NOWHERE, T_NO_VARIANT, entry->name);
    for (int i = 0; i < c.reasons.count && i < MAX_REASONS; i++)
        diag_note(d, is_condition(entry, c.reasons.items[i]) ? "it needs %s" : "%s", c.reasons.items[i]);
    return false;
}

// ---- actions ----

static bool compute(Dispatcher *r, const Frame *frame, const HostExpr *expr, const char *what, Scalar *value) {
    const char *why = NULL;
    if (host_eval(r->arena, &frame->scope, expr->expr, value, &why)) return true;
    diag(r->sink, NOWHERE, T_HOST_VALUE, what, frame->entry->name, why);
    return false;
}

static uint64_t bits_of(Scalar value) {
    uint64_t bits = 0;
    scalar_store(value, &bits);
    return bits;
}

static Scalar value_of(const Frame *frame, const char *name) {
    for (int i = 0; i < frame->scope.names.count; i++)
        if (strcmp(frame->scope.names.items[i].name, name) == 0) return frame->scope.names.items[i].value;
    return scalar_integer(TYPE_I64, 0);
}

// All dims but the last as one, which they are in memory.
static void merge_dims(MapRequest *request) {
    for (int d = 2; d < request->rank; d++) request->extent[1] = product(request->extent[1], request->extent[d]);
    request->rank = 2;
}

static bool set_corners(Dispatcher *r, const Frame *frame, const PlanMap *map, MapRequest *request) {
    for (int i = 0; i < map->windows; i++) {
        Scalar upper;
        if (!compute(r, frame, &map->upper[i], "a tensor map's corner", &upper)) return false;
        bool fits = upper.integer >= INT32_MIN && upper.integer <= INT32_MAX;   // the encoder knows the real limits
        request->upper[i] = fits ? (int)upper.integer : INT32_MAX;
        request->lower[i] = map->lower[i];
        request->steps[i] = map->strides[i];
    }
    request->windows = map->windows;
    return true;
}

static bool request_of(Dispatcher *r, const Frame *frame, const PlanMap *map, const LaunchArg *args, MapRequest *out) {
    const PlanVariant *v = frame->variant;
    MapRequest request = {.swizzle = map->swizzle, .tf32 = map->tf32};
    int at = 0;
    while (strcmp(v->params.items[at].name, map->tensor) != 0) at++;   // plan_read checked that it exists
    request.type = v->params.items[at].type;
    request.address = args[at].address;
    request.base = args[at].base;
    request.rank = args[at].rank;
    memcpy(request.box, map->box, sizeof request.box);
    for (int d = 0; d < request.rank; d++) {
        int dim = moved_dim(v->params.items[at].moved, request.rank, request.rank - 1 - d);
        request.extent[d] = args[at].shape[dim];
        request.stride[d] = product(args[at].strides[dim], type_bytes(request.type));
    }
    if (map->merged) merge_dims(&request);
    *out = request;
    return set_corners(r, frame, map, out);
}

static bool is_map(const PlanVariant *v, int at) {
    for (int i = 0; i < v->maps.count; i++)
        if (v->maps.items[i].at == at) return true;
    return false;
}

void action_room(Arena *arena, Action *action) {
    size_t align = (size_t)tma_facts.map_align, maps = (size_t)action->variant->maps.count;
    action->slots = NEW_ARRAY(arena, void *, action->param_count + 1);
    if (maps == 0) return;
    char *room = arena_alloc(arena, maps * (size_t)type_bytes(TYPE_TENSORMAP) + align);
    action->map_room = room + (align - (uintptr_t)room % align) % align;
}

// Parameter bits in the kernel's order: arguments with tensor maps in between, then dims.
static bool fill_params(Dispatcher *r, const Frame *frame, const LaunchArg *args, Action *action) {
    const PlanVariant *v = frame->variant;
    action->param_count = plan_kernel_params(v);
    action->params = NEW_ARRAY(r->arena, uint64_t, action->param_count);
    action->bases = NEW_ARRAY(r->arena, int, action->param_count);
    for (int i = 0; i < action->param_count; i++) action->bases[i] = BASE_NONE;
    action->maps = NEW_ARRAY(r->arena, MapRequest, v->maps.count + 1);
    action_room(r->arena, action);
    uint64_t *next = action->params;
    for (int i = 0; i < v->params.count; i++) {
        while (is_map(v, (int)(next - action->params))) next++;
        if (args[i].is_tensor) action->bases[next - action->params] = args[i].base;
        *next++ =
            args[i].is_tensor ? args[i].address : bits_of(scalar_convert(v->params.items[i].type, args[i].scalar));
    }
    for (int i = 0; i < v->maps.count; i++)
        if (!request_of(r, frame, &v->maps.items[i], args, &action->maps[i])) return false;
    next = action->params + v->params.count + v->maps.count;
    for (int i = 0; i < v->dims.count; i++) *next++ = (uint64_t)value_of(frame, v->dims.items[i]).integer;
    if (v->sets_cluster) *next++ = plan_cluster_logs(v);
    return true;
}

static bool push_kernel(Dispatcher *r, const Frame *frame, const LaunchArg *args) {
    const PlanVariant *v = frame->variant;
    Scalar grid;
    if (!compute(r, frame, &v->grid, "the grid", &grid)) return false;
    if (grid.integer == 0) return true;
    if (grid.integer < 0 || grid.integer > r->device->max_grid) {
        diag(r->sink, NOWHERE, T_GRID_SIZE, frame->entry->name, (long long)grid.integer,
             (long long)r->device->max_grid);
        return false;
    }
    Action action = {.variant = v, .grid = grid.integer};
    if (!fill_params(r, frame, args, &action)) return false;
    vec_push(r->arena, &r->out->actions, action);
    return true;
}

static const Tensor *tensor_named(const Frame *frame, const char *name) {
    for (int i = frame->tensors.count - 1; i >= 0; i--)
        if (strcmp(frame->tensors.items[i].name, name) == 0) return &frame->tensors.items[i];
    return NULL;
}

// A region of a tensor, as a launch argument.
static bool region_argument(Dispatcher *r, const Frame *frame, const PlanRegion *region, LaunchArg *out, Type *type) {
    const Tensor *tensor = tensor_named(frame, region->tensor);
    if (!tensor || (region->count > 0 && region->count != tensor->arg.rank)) {
        diag(r->sink, NOWHERE, T_BAD_ARTEFACT, arena_printf(r->arena, "its plan has no tensor '%s'", region->tensor));
        return false;
    }
    *type = tensor->type;
    *out = tensor->arg;
    if (region->count > 0) out->rank = 0;
    for (int d = 0; d < region->count; d++) {
        Scalar start, extent = scalar_integer(TYPE_I64, 1);
        bool kept = region->extent[d].text != NULL;
        if (!compute(r, frame, &region->start[d], "a region", &start)) return false;
        if (kept && !compute(r, frame, &region->extent[d], "a region", &extent)) return false;
        if (start.integer < 0 || extent.integer < 0 || start.integer > tensor->arg.shape[d] - extent.integer) {
            diag(r->sink, NOWHERE, T_HOST_VALUE, "a region", frame->entry->name,
                 arena_printf(r->arena, "it lies outside dim %d of '%s'", d, region->tensor));
            return false;
        }
        out->address += (uint64_t)product(product(start.integer, tensor->arg.strides[d]), type_bytes(*type));
        if (!kept) continue;
        out->shape[out->rank] = extent.integer;
        out->strides[out->rank++] = tensor->arg.strides[d];
    }
    if (region->transposed && out->rank >= 2) {
        int a = out->rank - 2, b = out->rank - 1;
        LaunchArg same = *out;
        out->shape[a] = same.shape[b], out->shape[b] = same.shape[a];
        out->strides[a] = same.strides[b], out->strides[b] = same.strides[a];
    }
    return true;
}

static bool push_fill(Dispatcher *r, const Frame *frame, const PlanStep *step) {
    LaunchArg target, dense;
    Type type;
    Scalar value;
    if (!region_argument(r, frame, step->region, &target, &type)) return false;
    if (!compute(r, frame, &step->value, "a value", &value)) return false;
    dense = target;
    launch_arg_dense(&dense);
    for (int d = 0; d < target.rank; d++) {
        if (target.shape[d] <= 1 || target.strides[d] == dense.strides[d]) continue;
        diag(r->sink, NOWHERE, T_HOST_REGION);
        return false;
    }
    Action action = {
        .address = target.address, .base = target.base, .count = elements(&target), .width = type_bytes(type)};
    action.pattern = bits_of(scalar_convert(type, value));
    if (action.count > 0) vec_push(r->arena, &r->out->actions, action);
    return true;
}

// Takes `bytes` at the end of the scratch memory at `base`; returns the address.
static uint64_t take_room(uint64_t base, int64_t *taken, int64_t bytes) {
    uint64_t address = base + (uint64_t)*taken;
    *taken += (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
    return address;
}

static bool push_scratch(Dispatcher *r, Frame *frame, const PlanParam *scratch) {
    Tensor tensor = {scratch->name, scratch->type, {.is_tensor = true, .base = BASE_WORKSPACE, .rank = scratch->rank}};
    const int64_t most = INT64_MAX / 4, taken = r->out->workspace > r->out->zeroed ? r->out->workspace : r->out->zeroed;
    int64_t bytes = type_bytes(scratch->type);
    for (int d = 0; d < scratch->rank; d++) {
        Scalar extent;
        if (!compute(r, frame, &scratch->shape[d], "a shape", &extent)) return false;
        if (extent.integer < 0 || __builtin_mul_overflow(bytes, extent.integer, &bytes) || bytes > most - taken) {
            diag(r->sink, NOWHERE, T_HOST_VALUE, "a shape", frame->entry->name,
                 arena_printf(r->arena, "scratch '%s' is too large or negative", scratch->name));
            return false;
        }
        tensor.arg.shape[d] = extent.integer;
    }
    launch_arg_dense(&tensor.arg);
    if (scratch->zeroed) tensor.arg.address = take_room(r->memory.zeroed, &r->out->zeroed, bytes);
    if (scratch->zeroed && r->memory.zeroed) {
        tensor.arg.base = BASE_ZEROED;
    } else {
        tensor.arg.address = take_room(r->memory.workspace, &r->out->workspace, bytes);
        Action clear = {.base = BASE_WORKSPACE,
                        .address = tensor.arg.address,
                        .count = elements(&tensor.arg),
                        .width = type_bytes(scratch->type)};
        if (scratch->zeroed && clear.count > 0) vec_push(r->arena, &r->out->actions, clear);
    }
    vec_push(r->arena, &frame->tensors, tensor);
    return true;
}

static bool run_call(Dispatcher *r, const PlanEntry *entry, int count, const LaunchArg *args);

static bool push_launch(Dispatcher *r, const Frame *frame, const PlanStep *step) {
    const PlanEntry *entry = plan_entry(r->plan, step->name);
    if (!entry) {
        diag(r->sink, NOWHERE, T_NO_ENTRY, step->name);
        return false;
    }
    LaunchArg *args = NEW_ARRAY(r->arena, LaunchArg, step->args.count);
    for (int i = 0; i < step->args.count; i++) {
        const PlanArg *arg = &step->args.items[i];
        Type type;
        if (arg->region && !region_argument(r, frame, arg->region, &args[i], &type)) return false;
        if (!arg->region && !compute(r, frame, &arg->value, "an argument", &args[i].scalar)) return false;
    }
    return run_call(r, entry, step->args.count, args);
}

static bool run_steps(Dispatcher *r, Frame *frame, const PlanSteps *steps);

static bool run_if(Dispatcher *r, Frame *frame, const PlanStep *step) {
    Scalar condition;
    if (!compute(r, frame, &step->value, "a condition", &condition)) return false;
    int names = frame->scope.names.count, tensors = frame->tensors.count;
    bool ok = run_steps(r, frame, scalar_truth(condition) ? &step->then : &step->otherwise);
    frame->scope.names.count = names;
    frame->tensors.count = tensors;
    return ok;
}

static bool run_step(Dispatcher *r, Frame *frame, const PlanStep *step) {
    Scalar value;
    switch (step->kind) {
    case DO_LET:
        if (!compute(r, frame, &step->value, "a let", &value)) return false;
        bind(r->arena, frame, step->name, scalar_convert(step->type, value));
        return true;
    case DO_ASSUME:
        if (!compute(r, frame, &step->value, "an assumption", &value)) return false;
        if (!scalar_truth(value)) diag(r->sink, NOWHERE, T_ASSUME_FAILED, frame->entry->name, step->value.text);
        return scalar_truth(value);
    case DO_SCRATCH: return push_scratch(r, frame, step->scratch);
    case DO_IF: return run_if(r, frame, step);
    case DO_FILL: return push_fill(r, frame, step);
    case DO_LAUNCH: return push_launch(r, frame, step);
    }
    return false;
}

static bool run_steps(Dispatcher *r, Frame *frame, const PlanSteps *steps) {
    for (int i = 0; i < steps->count; i++)
        if (!run_step(r, frame, steps->items[i])) return false;
    return true;
}

static bool run_call(Dispatcher *r, const PlanEntry *entry, int count, const LaunchArg *args) {
    Frame frame;
    if (++r->depth > MAX_CALL_DEPTH) {
        diag(r->sink, NOWHERE, T_BAD_ARTEFACT, "its programs call each other without end");
        return false;
    }
    if (!choose(r, entry, count, args, &frame)) return false;
    if (r->depth == 1) r->out->variant = frame.variant;
    args = frame.args;
    for (int i = 0; i < count; i++) {
        const PlanParam *p = &frame.variant->params.items[i];
        Tensor tensor = {p->name, p->type, args[i]};
        if (p->is_tensor) vec_push(r->arena, &frame.tensors, tensor);
    }
    bool ok = run_steps(r, &frame, &frame.variant->steps) && (!frame.variant->symbol || push_kernel(r, &frame, args));
    r->depth--;
    return ok;
}

bool plan_dispatch(Arena *arena, DiagSink *sink, const Plan *plan, const PlanEntry *entry, int count,
                   const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory, Launch *out) {
    *out = (Launch){.clocks = -1};
    Dispatcher r = {.arena = arena, .sink = sink, .plan = plan, .device = device, .memory = memory, .out = out};
    LaunchArg *based = arena_copy(arena, args, sizeof *args * (size_t)count);
    for (int i = 0; i < count; i++) based[i].base = i;
    return run_call(&r, entry, count, based);
}
