// Launches: arguments to dims, the choice of a variant, and the run of a kernel, program or reference.
#include "emulator/machine.h"
#include "ir/print.h"
#include "ir/query.h"
#include <string.h>

static const uint64_t MOST_STEPS = 1000000000;   // of a run; beyond, it is taken to be endless

// ---- memory that lasts as long as a run ----
bool in_scratch(const Module *module, Span place, void (*job)(const Module *module, void *user), void *user) {
    Failure failure;
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(&failure)) {
        arena_free(arena);
        if (failure.kind != FAIL_OUT_OF_MEMORY)
            fail_internal(module->failure, __FILE__, __LINE__, "%s", failure.message);
        Diag *d = diag(module->sink, place, T_OUT_OF_MEMORY);
        diag_note(d, "the emulator holds each tensor several times: as it is, as f64 for the reference, and who "
                     "touched each element; smaller extents need less");
        return false;
    }
    arena = arena_new(arena_host(module->arena), &failure);
    if (!arena) fail_out_of_memory(module->failure);
    Module inner = *module;
    inner.arena = arena;
    inner.failure = &failure;
    job(&inner, user);
    arena_free(arena);
    return true;
}

// ---- machines ----
EmuOptions host_options(const EmuOptions *options) {
    return (EmuOptions){.max_steps = options ? options->max_steps : 0};
}

static Machine *machine_new(const Module *module, Code *code, const EmuOptions *options, EmuReport *report) {
    Machine *machine = NEW(module->arena, Machine);
    *machine = (Machine){.module = module,
                         .code = code,
                         .arena = module->arena,
                         .failure = module->failure,
                         .sink = module->sink,
                         .report = report,
                         .steps = report->steps,
                         .most_steps = MOST_STEPS};
    if (options) machine->options = *options;
    machine->races_wanted = machine->options.races;
    if (machine->options.max_steps > 0) machine->most_steps = (uint64_t)machine->options.max_steps;
    if (!machine->options.multiprocessors) machine->options.multiprocessors = EMU_MULTIPROCESSORS;
    machine->target = machine->options.target ? machine->options.target : target_at(0);
    EXPECT(module->failure, machine->target && machine->target->warp_lanes == LANES, "a target with warps of %d lanes",
           LANES);
    machine->random.state = machine->options.seed;
    if (!machine->options.approximate) machine->options.approximate = machine->options.seed;
    machine->reported = map_new(module->arena);
    return machine;
}

static void bind_tensor(Machine *machine, Mem *mem, EmuTensor *tensor) {
    mem->tensor = tensor;
    mem->type = tensor->type;
    mem->bytes = type_bytes(tensor->type);
    mem->data = tensor->data;
    mem->state = tensor->initialised;
    mem->dynamic = false;
    int64_t reach = 1;
    mem->elements = 1;
    for (int d = 0; d < mem->rank; d++) {
        mem->shape[d] = tensor->shape[d];
        mem->stride[d] = tensor->strides[d];
        mem->elements *= tensor->shape[d];
        reach += tensor->shape[d] > 0 ? (tensor->shape[d] - 1) * tensor->strides[d] : 0;
    }
    if (!mem->elements) return;
    EXPECT(machine->failure, (uint64_t)(reach * mem->bytes) <= tensor->bytes,
           "the tensor for '%s' has %zu bytes, not %lld", mem->buf->name, tensor->bytes, (long long)reach * mem->bytes);
    if (machine->races && mem->written) races_watch(machine, mem, reach);
}

// A tensor that is written and passed twice must be watched under one name.
static void share_watches(const Machine *machine) {
    const Code *code = machine->code;
    for (int i = 0; i < code->mem_count; i++)
        for (int k = 0; k < code->mem_count; k++) {
            Mem *a = &code->mems[i];
            const Mem *b = &code->mems[k];
            if (a->tensor && b->cells && !a->cells && a->data == b->data && a->bytes == b->bytes &&
                a->elements <= b->elements) {
                a->cells = b->cells;
                a->thread_cells = b->thread_cells;
                a->iter_cells = b->iter_cells;
            }
        }
}

static int slot_of(const Code *code, const Var *var) {
    return (int)(intptr_t)map_get(code->slot_of, var) - 1;
}

// Whether a tensor map can be made of the argument, as the driver would say.
static const char *map_problem(const Mem *mem) {
    if (!mem->tensor || !mem->elements) return NULL;
    if (mem->stride[mem->rank - 1] != 1 && mem->shape[mem->rank - 1] > 1) return "its innermost stride is not 1";
    if ((uintptr_t)mem->data % (uintptr_t)tma_facts.unit_bytes) return "its base address is no multiple of 16 bytes";
    for (int d = 0; d < mem->rank - 1; d++)
        if (mem->shape[d] > 1 && mem->stride[d] * mem->bytes % tma_facts.unit_bytes)
            return "one of its strides is no multiple of 16 bytes";
    return NULL;
}

static void check_maps(Machine *machine) {
    const Code *code = machine->code;
    for (int i = 0; i < code->map_count; i++) {
        const MapCode *map = code->maps[i];
        const char *why = map_problem(machine_mem(machine, map->mem));
        if (!why) continue;
        emu_report(machine, -1, T_EMU_TENSOR_MAP, map->name, why);
        machine->stop = true;
    }
}

static Agent *host_agent(Machine *machine, int count, const EmuArg *args, const int64_t *dims) {
    const Code *code = machine->code;
    const Func *func = code->func;
    Cta *cta = ctas_new(machine, 1);
    machine->cta_count = 0;   // its agent is run by hand
    Agent *agent = cta->root = agent_start(cta, 0);
    for (int i = 0; i < count && func_argument(func, i); i++) {
        const Param *param = func_argument(func, i);
        if (param->buf && args[i].tensor) {
            bind_tensor(machine, &code->mems[(intptr_t)map_get(code->mem_of, param->buf) - 1], args[i].tensor);
        } else if (param->var) {
            Word *word = &agent->regs[slot_of(code, param->var)].w[0];
            if (type_is_float(param->var->type)) word->f = float_round(param->var->type, args[i].real);
            else word->i = int_wrap(param->var->type, args[i].integer);
        }
    }
    for (int i = 0; i < func->dims.count; i++) agent->regs[slot_of(code, func->dims.items[i])].i[0] = dims[i];
    share_watches(machine);
    if (count) check_maps(machine);
    return agent;
}

static bool run_host(Machine *machine, Agent *host) {
    while (host->status == AGENT_READY && !machine->stop) {
        agent_run(host, 1 << 20);
        if (machine->steps > machine->most_steps) report_endless(machine, host->pc);
    }
    return !machine->stop;
}

bool host_value(const Module *module, const Func *func, const Expr *expr, int count, const EmuArg *args,
                const int64_t *dims, Arena *arena, Word *out) {
    Code *code = compile_expr(module, func, expr, arena);
    EmuReport unused = {0};
    Machine *machine = machine_new(module, code, NULL, &unused);
    Agent *host = host_agent(machine, count, args, dims);
    bool ok = run_host(machine, host) && !machine->reports;
    *out = host->regs[code->result].w[0];
    return ok;
}

// ---- dims ----
typedef struct Binder {
    const Func *func;
    int64_t *dims;
    bool *bound;
    Arena *arena;
    const char *why;
} Binder;

static int dim_index(const Func *func, const Expr *e) {
    for (int i = 0; e->kind == EXPR_VAR && i < func->dims.count; i++)
        if (func->dims.items[i] == e->var) return i;
    return -1;
}

// Binds a dim that an extent or stride names; false when it has another value already.
static void bind_one(Binder *b, const Expr *e, int64_t value, const char *what, const char *tensor, int dim) {
    int index = dim_index(b->func, e);
    if (index < 0 || b->why) return;
    if (!b->bound[index]) {
        b->bound[index] = true;
        b->dims[index] = value;
    } else if (b->dims[index] != value) {
        b->why = arena_printf(b->arena, "%s %d of '%s' is %lld, but %s is %lld", what, dim, tensor, (long long)value,
                              e->var->name, (long long)b->dims[index]);
    }
}

static void bind_param(Binder *b, const Buf *buf, const EmuTensor *tensor) {
    if (tensor->rank != buf->rank) {
        b->why = arena_printf(b->arena, "'%s' has rank %d, the argument has %d", buf->name, buf->rank, tensor->rank);
        return;
    }
    for (int d = 0; d < buf->rank; d++)
        bind_one(b, buf->shape[d], tensor->shape[d], "dim", buf->name, moved_dim(buf->moved, buf->rank, d));
    for (int d = 0; d < buf->rank && buf->strides; d++)
        if (tensor->shape[d] > 1)
            bind_one(b, buf->strides[d], tensor->strides[d], "stride", buf->name, moved_dim(buf->moved, buf->rank, d));
    for (int d = 0; d < buf->rank && buf->strides; d++) {   // a stride that is never used may be anything
        int index = dim_index(b->func, buf->strides[d]);
        if (index < 0 || b->bound[index] || tensor->shape[d] > 1) continue;
        b->bound[index] = true;
        b->dims[index] = tensor->strides[d];
    }
}

static void check_param(Binder *b, const Module *module, const Buf *buf, const EmuTensor *tensor, int count,
                        const EmuArg *args) {
    int64_t dense = 1;
    bool empty = false;   // its strides mean nothing
    for (int d = 0; d < buf->rank; d++) empty |= tensor->shape[d] == 0;
    for (int d = buf->rank - 1; d >= 0 && !b->why; d--) {
        Word value;
        int dim = moved_dim(buf->moved, buf->rank, d);
        if (dim_index(b->func, buf->shape[d]) < 0 &&
            (!host_value(module, b->func, buf->shape[d], count, args, b->dims, b->arena, &value) ||
             value.i != tensor->shape[d]))
            b->why = arena_printf(b->arena, "dim %d of '%s' is %lld, not %lld", dim, buf->name,
                                  (long long)tensor->shape[d], (long long)value.i);
        value.i = dense;
        if (buf->strides) host_value(module, b->func, buf->strides[d], count, args, b->dims, b->arena, &value);
        bool any = b->func->kind == FUNC_REFERENCE && !buf->strides;   // of all variants, also of those with strides
        if (!b->why && !empty && !any && tensor->shape[d] > 1 && value.i != tensor->strides[d])
            b->why = arena_printf(b->arena, "stride %d of '%s' is %lld, not %lld", dim, buf->name,
                                  (long long)tensor->strides[d], (long long)value.i);
        dense *= tensor->shape[d];
    }
}

bool bind_dims(const Module *module, const Func *func, int count, const EmuArg *args, int64_t *dims, Arena *arena,
               const char **why) {
    Binder b = {.func = func, .dims = dims, .bound = NEW_ARRAY(arena, bool, func->dims.count + 1), .arena = arena};
    if (count != func_argument_count(func))
        b.why = arena_printf(arena, "it has %d parameters, %d arguments were given", func_argument_count(func), count);
    for (int i = 0; i < count && !b.why; i++) {
        const Buf *buf = func_argument(func, i)->buf;
        if (buf && !args[i].tensor) b.why = arena_printf(arena, "'%s' needs a tensor", buf->name);
        else if (buf) bind_param(&b, buf, args[i].tensor);
    }
    for (int i = 0; i < func->dims.count && !b.why; i++)
        if (!b.bound[i]) b.why = arena_printf(arena, "no argument tells the value of '%s'", func->dims.items[i]->name);
    for (int i = 0; i < count && !b.why; i++) {
        const Buf *buf = func_argument(func, i)->buf;
        if (buf) check_param(&b, module, buf, args[i].tensor, count, args);
    }
    *why = b.why;
    return !b.why;
}

// An argument as the parameter has its dims; or back again.
static EmuTensor *moved_tensor(Arena *arena, const Buf *param, const EmuTensor *tensor, bool back) {
    EmuTensor *out = arena_copy(arena, tensor, sizeof *tensor);
    for (int d = 0; d < param->rank; d++) {
        int dim = moved_dim(param->moved, param->rank, d), from = back ? d : dim, to = back ? dim : d;
        out->shape[to] = tensor->shape[from];
        out->strides[to] = tensor->strides[from];
    }
    return out;
}

static const Buf *with_leading(const Func *func, int index, const EmuArg *args) {
    const Buf *buf = func_argument(func, index)->buf;
    return buf && buf->leading && args[index].tensor ? buf : NULL;
}

static LeadingDims leading_of(const Buf *buf, const EmuTensor *tensor) {
    return (LeadingDims){buf->name, tensor->rank - buf->rank + 1, tensor->shape};
}

static const char *check_leading(const Func *func, int count, const EmuArg *args, Arena *arena) {
    const char *why = NULL;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i && !why; j++) {
            const Buf *p = with_leading(func, j, args), *q = with_leading(func, i, args);
            if (!p || !q || !expr_equal(p->shape[0], q->shape[0])) continue;
            LeadingDims a = leading_of(p, args[j].tensor), b = leading_of(q, args[i].tensor);
            why = leading_differ(arena, &a, &b);
        }
    return why;
}

// The arguments with the dims that the function's parameters have. NULL: *why they have not.
static const EmuArg *merge_arguments(const Func *func, int count, const EmuArg *args, Arena *arena, const char **why) {
    EmuArg *merged = arena_copy(arena, args, sizeof *args * (size_t)count);
    if (count > func_argument_count(func)) count = func_argument_count(func);
    *why = NULL;
    for (int i = 0; i < count && !*why; i++) {
        const Buf *buf = func_argument(func, i)->buf;
        EmuTensor *tensor = args[i].tensor;
        if (!buf || !tensor || (!buf->leading && !buf->moved)) continue;
        tensor = merged[i].tensor = arena_copy(arena, tensor, sizeof *tensor);
        if (buf->leading)
            *why = merge_leading(arena, buf->name, buf->rank, &tensor->rank, tensor->shape, tensor->strides);
        if (tensor->rank == buf->rank) merged[i].tensor = moved_tensor(arena, buf, tensor, false);
    }
    if (!*why) *why = check_leading(func, count, args, arena);
    return *why ? NULL : merged;
}

// ---- the choice ----
// The first part of a conjunction that does not hold; NULL: it holds.
static const Expr *failing_condition(const Module *module, const Func *func, const Expr *condition, int count,
                                     const EmuArg *args, const int64_t *dims) {
    if (condition->kind == EXPR_BINARY && condition->binary.op == BIN_LOGICAL_AND) {
        const Expr *first = failing_condition(module, func, condition->binary.a, count, args, dims);
        return first ? first : failing_condition(module, func, condition->binary.b, count, args, dims);
    }
    Word holds;
    bool known = host_value(module, func, condition, count, args, dims, module->arena, &holds);
    return known && holds.i ? NULL : condition;
}

// Its dims and their values, for messages.
static const char *dims_in(Arena *arena, const Func *func, const Expr *condition, const int64_t *dims) {
    const char *text = "";
    for (int i = 0; i < func->dims.count; i++) {
        if (!expr_uses_var(condition, func->dims.items[i])) continue;
        text = arena_printf(arena, "%s%s%s is %lld", text, *text ? ", " : ": ", func->dims.items[i]->name,
                            (long long)dims[i]);
    }
    return text;
}

static bool accepts(const Module *module, const Func *func, int count, const EmuArg *args, const char **why) {
    int64_t *dims = NEW_ARRAY(module->arena, int64_t, func->dims.count + 1);
    args = merge_arguments(func, count, args, module->arena, why);
    if (!args || !bind_dims(module, func, count, args, dims, module->arena, why)) return false;
    const Expr *fails = func->when ? failing_condition(module, func, func->when, count, args, dims) : NULL;
    if (fails)
        *why = arena_printf(module->arena, "its condition %s does not hold%s", expr_text(module->arena, fails),
                            dims_in(module->arena, func, fails, dims));
    return !fails;
}

// The clocks of a launch with this variant, which accepts the arguments; a cost without a value is the largest.
static double clocks_of(const Module *module, const Func *func, int count, const EmuArg *args) {
    int64_t *dims = NEW_ARRAY(module->arena, int64_t, func->dims.count + 1), extents[COST_EXTENTS];
    const char *why;
    args = merge_arguments(func, count, args, module->arena, &why);
    bool known = args && bind_dims(module, func, count, args, dims, module->arena, &why);
    for (int i = 0; known && i < COST_EXTENTS; i++) {
        Word value;
        known = host_value(module, func, func->cost->extents[i], count, args, dims, module->arena, &value);
        extents[i] = known ? value.i : 0;
    }
    return known ? cost_clocks(&func->cost->terms, extents, EMU_MULTIPROCESSORS) : COST_NEVER;
}

// Of the variants from `at` on that a launch compares, the cheapest that accepts the arguments; NULL: none of them.
static const Func *cheapest(const Module *module, int at, int compared, int count, const EmuArg *args) {
    const Func *best = NULL;
    double least = COST_NEVER;
    for (int i = at; i < at + compared; i++) {
        const Func *func = module->funcs.items[i];
        const char *why;
        if (!accepts(module, func, count, args, &why)) continue;
        double clocks = clocks_of(module, func, count, args);
        if (best && clocks >= least) continue;
        best = func;
        least = clocks;
    }
    return best;
}

const Func *choose_variant(const Module *module, const char *name, int count, const EmuArg *args) {
    VEC(const char *) reasons = {0};
    Span place = {0};
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        const char *why = NULL;
        if (strcmp(func->name, name) != 0) continue;
        if (accepts(module, func, count, args, &why))
            return func->cost ? cheapest(module, i, module_compared(module, i), count, args) : func;
        if (!reasons.count) place = func->loc;
        vec_push(module->arena, &reasons, why);
    }
    Diag *d = diag(module->sink, place, T_EMU_NO_VARIANT, name);
    for (int i = 0; d && i < reasons.count; i++) diag_note(d, "variant %d: %s", i, reasons.items[i]);
    return NULL;
}

// ---- runs ----

// What a kernel is given as @zeroed is zero when it begins (a program may not fill it, nor one that is a variant of a
// kernel), and again at its end.
static void check_zeroed(Machine *machine, const char *verb) {
    const Code *code = machine->code;
    if (code->func->kind != FUNC_KERNEL || machine->options.max_blocks) return;   // a sample of CTAs need not
    for (int i = 0; i < code->mem_count; i++) {
        const Mem *mem = &code->mems[i];
        if (mem->scope != SCOPE_GLOBAL || !mem->tensor || !mem->tensor->zeroed) continue;
        int64_t at = 0;
        const uint8_t *data = mem->tensor->data;
        while (at < (int64_t)mem->tensor->bytes && !data[at]) at++;
        if (at == (int64_t)mem->tensor->bytes) continue;
        const Buf *declared = mem->tensor->zeroed;
        Word word = element_load(mem->type, data + at / mem->bytes * mem->bytes);
        const char *value = type_is_float(mem->type) ? arena_printf(machine->arena, "%g", word.f)
                                                     : arena_printf(machine->arena, "%lld", (long long)word.i);
        Diag *d = emu_report(machine, -1, T_EMU_NOT_ZEROED, code->func->name, verb,
                             element_text(machine->arena, mem, at / mem->bytes), value);
        if (d) diag_label(d, declared->loc, "'%s' is declared here", declared->name);
    }
}

static bool run_grid(Machine *machine, Agent *host) {
    const int64_t most = INT32_MAX;   // as on devices
    const GridCode *grid = &machine->code->grid;
    int64_t blocks = 1;
    for (int i = 0; i < grid->count; i++) {
        int64_t extent = host->regs[grid->extents[i]].i[0];
        if (__builtin_mul_overflow(blocks, extent > 0 ? extent : 0, &blocks)) blocks = INT64_MAX;
    }
    if (blocks <= most) return machine_run_blocks(machine, host, blocks);
    const Func *func = machine->code->func;
    diag(machine->module->sink, func->loc, T_GRID_SIZE, func->name, (long long)blocks, (long long)most);
    return false;
}

static void add_kernel(Arena *keep, EmuReport *report, const Func *kernel) {
    for (int i = 0; i < report->kernels.count; i++)
        if (report->kernels.items[i] == kernel) return;
    vec_push(keep, &report->kernels, kernel);
}

bool run_func(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
              Arena *keep, EmuReport *out) {
    int64_t *dims = NEW_ARRAY(module->arena, int64_t, func->dims.count + 1);
    const char *why = NULL;
    args = merge_arguments(func, count, args, module->arena, &why);
    if (!args || !bind_dims(module, func, count, args, dims, module->arena, &why)) {
        diag(module->sink, func->loc, T_EMU_ARGUMENTS, func->name, why);
        return false;
    }
    const Target *target = options ? options->target : NULL;
    Code *code = compile_func(module, func, target, module->arena);
    Machine *machine = machine_new(module, code, options, out);
    if (func->kind == FUNC_KERNEL && machine->options.races) machine->races = races_new(machine);
    machine->options.races = machine->races != NULL;
    machine->keep = keep;
    machine->sites = NEW_ARRAY(module->arena, EmuSite, code->count);
    Agent *host = host_agent(machine, count, args, dims);
    check_zeroed(machine, "finds");
    bool ran = run_host(machine, host) && (host->status != AGENT_GRID || run_grid(machine, host));
    out->steps = machine->steps;
    if (keep) conflicts_sites(machine, keep);
    if (keep && func->kind == FUNC_KERNEL) add_kernel(keep, out, func);
    if (ran) check_zeroed(machine, "leaves");
    return ran && !machine->reports;
}

// ---- launches without runs ----
static void add_launch(EmuLaunches *launches, const Func *kernel) {
    VEC_EACH_PTR (const Func, known, &launches->kernels)
        if (known == kernel) return;
    vec_push(launches->arena, &launches->kernels, kernel);
}

bool add_launches(const Module *module, const char *name, int count, const EmuArg *args, const EmuOptions *options,
                  EmuReport *report) {
    bool ok = true, any = false;
    VEC_EACH_PTR (Func, func, &module->funcs) {
        const char *why;
        if (strcmp(func->name, name) != 0 || !accepts(module, func, count, args, &why)) continue;
        if (func->kind == FUNC_KERNEL) add_launch(options->launches, func);
        else ok = ok && run_func(module, func, count, args, options, NULL, report);
        any = true;
    }
    return ok && any;
}

bool launch_callee(Machine *caller, const LaunchCode *code, Agent *agent) {
    EmuArg *args = NEW_ARRAY(caller->arena, EmuArg, code->count + 1);
    for (int i = 0; i < code->count; i++) {
        const CallArg *arg = &code->args[i];
        if (!arg->has_value) {
            const Mem *mem = machine_mem(caller, (int)arg->number);
            args[i].tensor = mem->buf->moved ? moved_tensor(caller->arena, mem->buf, mem->tensor, true) : mem->tensor;
        } else if (type_is_float(arg->type)) {
            args[i].real = agent->regs[arg->slot].f[0];
        } else {
            args[i].integer = agent->regs[arg->slot].i[0];
            args[i].real = (double)args[i].integer;
        }
    }
    if (caller->options.launches)
        return add_launches(caller->module, code->callee, code->count, args, &caller->options, caller->report);
    const Func *func = choose_variant(caller->module, code->callee, code->count, args);
    EmuOptions options = caller->options;
    options.races = caller->races_wanted;
    options.seed = random_next(&caller->random);
    caller->report->steps = caller->steps;
    bool ok = func && run_func(caller->module, func, code->count, args, &options, caller->keep, caller->report);
    caller->steps = caller->report->steps;
    return ok;
}
