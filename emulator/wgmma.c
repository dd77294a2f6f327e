// wgmma: matrix instructions of a warpgroup, which run while its warps continue.
//
// A statement (its `steps` instructions) is executed when all four warps have reached it; an earlier warp continues. It
// is computed as a whole when some warp waits for it: one product of 64 rows, with operands read from shared memory at
// that late moment. So a program that overwrites a stage too early corrupts the result, and one that reads accumulators
// too early sees old values; both are reported under any schedule:
//
//     shared memory   the warpgroup's unit reads it when the last warp has arrived, with the clocks of all 128 threads
//                     (race.c); a statement is an epoch of the unit, which threads learn by wgmma_wait
//     registers       accumulators and A belong to the statement from a warp's arrival to its wait. Another access in
//                     that time is an error, and so is a statement on registers accessed after the last wgmma_fence
//
// A wait ends the fence's effect for the registers that it returns, which is stricter than PTX: the assembler inserts a
// fence there itself (with a warning), and tilec's kernels do not rely on it.
//
// Where an operand's elements lie in shared memory (PTX ISA, "Strides"; r a row of m or n, in units of 16 bytes: u):
//
//     k-major, swizzled in S bytes     r / 8 * stride + r % 8 * S + k bytes                     then exchanged
//     k-major                          r / 8 * stride + u(k) * lead + r % 8 * 16 + rest of k
//     m/n-major, swizzled in S bytes   r bytes / S * lead + k / 8 * stride + k % 8 * S + rest   then exchanged
//     m/n-major                        u(r) * stride + k / 8 * lead + k % 8 * 16 + rest of r
//
// Exchanged: as tensor maps do it, by the bits of the address itself (target/tma.c).
#include "emulator/machine.h"
#include "emulator/products.h"
#include <string.h>

enum {
    W_A = OPERAND_INDEX(WGMMA, a),
    W_B = OPERAND_INDEX(WGMMA, b),
    W_ACC = OPERAND_INDEX(WGMMA, acc),
    W_A_FORM = OPERAND_INDEX(WGMMA, a_form),
    W_B_FORM = OPERAND_INDEX(WGMMA, b_form)
};
enum { WARPGROUP_THREADS = WARPGROUP * LANES, MOST_A = 64 * 32, MOST_B = 256 * 32, MOST_ACC = 64 * 256 };

typedef struct OperandCode {
    bool shared, k_major;
    int rows, k, bytes, swizzle;   // rows: m or n; bytes of an element
    int64_t lead, stride, step;
    bool tf32;
} OperandCode;

typedef struct RegisterCode {
    int values;          // of a thread
    const int32_t *at;   // [value][thread of the warpgroup]: row * columns + column
} RegisterCode;

struct WgmmaCode {
    int m, n, k, steps;
    OperandCode a, b;
    RegisterCode a_regs, acc_regs;
};

typedef struct Statement {   // one that some warp has executed
    const Call *call;
    int pc, issued, released;
    Agent *warps[WARPGROUP];
    bool accumulate;
    int64_t a_byte, b_byte;           // of shared memory
    int64_t a_element, acc_element;   // of the warps' local arrays
    Actor actor;
} Statement;

struct Warpgroup {
    Statement *items;   // not yet waited for by all warps; oldest first
    int count, capacity;
    int64_t first, done;   // numbers of items[0], and of the first that has not been computed
};

// ---- tables ----
static RegisterCode register_code(Arena *arena, Failure *failure, const char *text, int columns) {
    const char *why = "";
    const Layout *layout = layout_parse(arena, text, 0, &why);
    EXPECT(failure, layout && layout->rank_in == 2 && layout->rank_out == 2, "the layout '%s': %s", text, why);
    EXPECT(failure, layout_extent_in(layout, 0) == WARPGROUP_THREADS, "the layout '%s' is no warpgroup's", text);
    int values = (int)layout_extent_in(layout, 1);
    int32_t *at = NEW_ARRAY(arena, int32_t, values * WARPGROUP_THREADS);
    for (int v = 0; v < values; v++)
        for (int t = 0; t < WARPGROUP_THREADS; t++) {
            int64_t in[2] = {t, v}, out[2];
            layout_eval(layout, in, out);
            at[v * WARPGROUP_THREADS + t] = (int32_t)(out[0] * columns + out[1]);
        }
    return (RegisterCode){values, at};
}

static OperandCode operand_code(const Call *call, int form, int rows, int k, const char *type) {
    const WgmmaForm *how = call_arg(call, form)->name ? wgmma_form(call_arg(call, form)->name) : NULL;
    OperandCode code = {
        .shared = how != NULL, .rows = rows, .k = k, .bytes = 32 / k, .tf32 = strcmp(type, "tf32") == 0};
    if (!how) return code;
    code.k_major = how->k_major;
    code.swizzle = how->swizzle;
    code.lead = call->args[form + 1].number;
    code.stride = call->args[form + 2].number;
    code.step = call->args[form + 3].number;
    return code;
}

const WgmmaCode *wgmma_compile(Arena *arena, Failure *failure, const Call *call) {
    WgmmaInfo info;
    EXPECT(failure, CALL_ARG(call, WGMMA, shape).name && wgmma_named(CALL_ARG(call, WGMMA, shape).name, &info),
           "unknown instruction '%s'", CALL_ARG(call, WGMMA, shape).name ? CALL_ARG(call, WGMMA, shape).name : "");
    WgmmaCode *code = NEW(arena, WgmmaCode);
    *code = (WgmmaCode){.m = info.m, .n = info.n, .k = info.k, .steps = (int)CALL_ARG(call, WGMMA, steps).number};
    code->a = operand_code(call, W_A_FORM, info.m, info.k, info.a_type);
    code->b = operand_code(call, W_B_FORM, info.n, info.k, info.b_type);
    code->acc_regs = register_code(arena, failure, info.acc_layout, info.n);
    code->a_regs = register_code(arena, failure, info.a_layout, info.k);
    EXPECT(failure, info.m * info.k <= MOST_A && info.n * info.k <= MOST_B && info.m * info.n <= MOST_ACC,
           "a wgmma as large as '%s'", CALL_ARG(call, WGMMA, shape).name);
    return code;
}

Warpgroup *warpgroups_new(Machine *machine) {
    int64_t threads = machine->code->block_threads;
    return NEW_ARRAY(machine->arena, Warpgroup, (threads + WARPGROUP_THREADS - 1) / WARPGROUP_THREADS + 1);
}

static Warpgroup *warpgroup_of(const Agent *agent) {
    return &agent->cta->warpgroups[(agent->first_thread - agent->cta->first_thread) / WARPGROUP_THREADS];
}

// ---- operands in shared memory, 16 bytes that stay together at a time ----
enum { UNIT_BYTES = 16 };

static int unit_count(const OperandCode *op) {   // of one instruction
    return op->rows * op->k * op->bytes / UNIT_BYTES;
}

// Where the n-th unit lies, and which elements it has: from (row, k) on, along k or along the rows.
static int64_t unit_place(const OperandCode *op, int64_t begin, int n, int *row, int *k) {
    int span = UNIT_BYTES / op->bytes;   // elements
    int64_t at;
    if (op->k_major) {
        int along = n % (op->k / span);
        *row = n / (op->k / span);
        *k = along * span;
        at = *row / 8 * op->stride;
        at += op->swizzle ? *row % 8 * op->swizzle + along * UNIT_BYTES : along * op->lead + *row % 8 * UNIT_BYTES;
    } else {
        int along = n % (op->rows / span), bytes = along * UNIT_BYTES;
        *k = n / (op->rows / span);
        *row = along * span;
        if (op->swizzle)
            at = bytes / op->swizzle * op->lead + *k / 8 * op->stride + *k % 8 * op->swizzle + bytes % op->swizzle;
        else at = along * op->stride + *k / 8 * op->lead + *k % 8 * UNIT_BYTES;
    }
    return tma_swizzled(begin + at, op->swizzle);
}

static void read_operand(const Cta *cta, const OperandCode *op, Type type, int64_t begin, Word *matrix) {
    int span = UNIT_BYTES / op->bytes, count = unit_count(op), row, k;
    Word words[UNIT_BYTES];
    for (int n = 0; n < count; n++) {
        int64_t at = unit_place(op, begin, n, &row, &k);
        elements_load(type, cta->shared + at, 1, span, words);
        for (int e = 0; e < span; e++) matrix[op->k_major ? row * op->k + k + e : (row + e) * op->k + k] = words[e];
    }
}

// Every unit of all steps: inside of the buffer, readable, ordered. False when something was reported.
static bool check_operand(Agent *agent, const OperandCode *op, const WgmmaCode *code, const Mem *mem, int64_t begin,
                          const Actor *actor) {
    Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    int64_t bytes = mem->elements * mem->bytes;
    bool fits = true;
    int row, k, count = unit_count(op);
    for (int n = 0; n < count * code->steps; n++) {
        int64_t byte = unit_place(op, begin + n / count * op->step, n % count, &row, &k), at = byte - mem->offset;
        if (at < 0 || at + UNIT_BYTES > bytes) {
            emu_report(machine, agent->pc, T_EMU_DESCRIPTOR, thread_text(agent, 0), (long long)at, mem->buf->name,
                       (long long)bytes);
            machine->stop = true;
            return false;
        }
        actor_shared(cta, actor, byte, UNIT_BYTES, TOUCH_READ, mem);
        if (fits) fits = state_readable(agent, mem, at / mem->bytes, UNIT_BYTES / mem->bytes, 0);
    }
    return fits;
}

// ---- registers ----
static const Mem *register_mem(const Agent *agent, const Call *call, int operand) {
    return machine_mem(agent->cta->machine, call->args[operand].place->mem);
}

void registers_touched(Agent *agent, const Mem *mem, int64_t element, int64_t count) {
    LocalArray *array = &agent->locals[mem->local];
    Machine *machine = agent->cta->machine;
    for (int64_t e = element; e < element + count; e++) {
        array->touched[e] = true;
        if (array->busy[e])
            emu_report(machine, agent->pc, T_EMU_REGISTERS, element_text(machine->arena, mem, e),
                       thread_text(agent, __builtin_ctz(agent->mask)), "touches");
    }
}

// The statement takes a warp's registers: they must be there, and not have been touched since the fence.
static bool take_registers(Agent *agent, const Mem *mem, int64_t element, int64_t count, bool reads) {
    LocalArray *array = &agent->locals[mem->local];
    Machine *machine = agent->cta->machine;
    for (int64_t e = element; e < element + count; e++) {
        if (reads && !array->busy[e] && !local_ready(agent, mem, e, agent->full)) return false;
        if (array->touched[e] || !agent->wgmma.fenced) {
            const char *who = array->touched[e] ? thread_text(agent, 0) : "wgmma_wait";
            emu_report(machine, agent->pc, T_EMU_WGMMA_FENCE, element_text(machine->arena, mem, e), who);
        }
        array->init[e] = agent->full;
        array->busy[e]++;
    }
    return true;
}

static void give_back(Agent *agent, const Mem *mem, int64_t element, int64_t count) {
    LocalArray *array = &agent->locals[mem->local];
    for (int64_t e = element; e < element + count; e++) array->busy[e]--;
}

static void wgmma_fence(Agent *agent) {
    const Code *code = agent->cta->machine->code;
    if (!whole_warp(agent, "wgmma_fence")) return;
    agent->wgmma.fenced = true;
    for (int i = 0; i < code->mem_count; i++) {
        const Mem *mem = &code->mems[i];
        if (!mem->watched || mem->local < 0) continue;
        LocalArray *array = &agent->locals[mem->local];
        memset(array->touched, false, (size_t)array->elements);
    }
}

// ---- the product ----
static void gather(const Statement *s, const RegisterCode *regs, int operand, int64_t element, Word *matrix) {
    for (int w = 0; w < WARPGROUP; w++) {
        const Mem *mem = register_mem(s->warps[w], s->call, operand);
        const Lanes *data = s->warps[w]->locals[mem->local].data + element;
        for (int v = 0; v < regs->values; v++) {
            const int32_t *at = regs->at + v * WARPGROUP_THREADS + w * LANES;
            for (int l = 0; l < LANES; l++) matrix[at[l]] = data[v].w[l];
        }
    }
}

static void scatter(const Statement *s, const RegisterCode *regs, const Word *matrix) {
    for (int w = 0; w < WARPGROUP; w++) {
        const Mem *mem = register_mem(s->warps[w], s->call, W_ACC);
        Lanes *data = s->warps[w]->locals[mem->local].data + s->acc_element;
        for (int v = 0; v < regs->values; v++) {
            const int32_t *at = regs->at + v * WARPGROUP_THREADS + w * LANES;
            for (int l = 0; l < LANES; l++) data[v].w[l] = matrix[at[l]];
        }
    }
}

static void to_tensor_core(const OperandCode *op, Word *matrix) {
    for (int i = 0; op->tf32 && i < op->rows * op->k; i++) matrix[i].f = cut_to_tf32(matrix[i].f);
}

static void compute(Cta *cta, const Statement *s) {
    const WgmmaCode *code = s->call->wgmma;
    Word a[MOST_A], b[MOST_B], *acc = cta->machine->wgmma_acc;
    const Mem *a_mem = register_mem(s->warps[0], s->call, W_A), *b_mem = register_mem(s->warps[0], s->call, W_B);
    Type type = register_mem(s->warps[0], s->call, W_ACC)->type;
    int count = code->m * code->n;
    const Machine *machine = cta->machine;
    Summing how = summing_of(machine->options.approximate, machine->target, type_bits(b_mem->type) == 8);
    if (!acc) acc = cta->machine->wgmma_acc = NEW_ARRAY(cta->machine->arena, Word, MOST_ACC);
    if (s->accumulate) gather(s, &code->acc_regs, W_ACC, s->acc_element, acc);
    else memset(acc, 0, sizeof *acc * (size_t)count);
    for (int step = 0; step < code->steps; step++) {
        if (code->a.shared) read_operand(cta, &code->a, a_mem->type, s->a_byte + step * code->a.step, a);
        else gather(s, &code->a_regs, W_A, s->a_element + (int64_t)step * code->a_regs.values, a);
        read_operand(cta, &code->b, b_mem->type, s->b_byte + step * code->b.step, b);
        to_tensor_core(&code->a, a);
        to_tensor_core(&code->b, b);
        if (type_is_float(type)) multiply_floats(&how, code->m, code->n, code->k, a, b, acc);
        else multiply_integers(code->m, code->n, code->k, a, b, acc);
        if (type != TYPE_F32) words_convert(type, type_is_float(type) ? TYPE_F32 : TYPE_I64, count, acc);
    }
    scatter(s, &code->acc_regs, acc);
}

// ---- statements ----
static Statement *statement(const Warpgroup *group, int64_t number) {
    return &group->items[number - group->first];
}

static bool refuse(Agent *agent, const char *why) {
    Machine *machine = agent->cta->machine;
    emu_report(machine, agent->pc, T_EMU_WARPGROUP, thread_text(agent, __builtin_ctz(agent->mask)), why);
    machine->stop = true;
    return false;
}

static bool whole_group(Agent *agent) {   // its threads all belong to the thread region
    int base = agent->cta->first_thread + (agent->role ? (int)agent->role->first_thread : 0),
        first = agent->first_thread / WARPGROUP_THREADS;
    bool whole = first * WARPGROUP_THREADS >= base && (first + 1) * WARPGROUP_THREADS <= base + agent->region_threads;
    return whole || refuse(agent, "is not all in the role or thread region");
}

static Statement *next_statement(Agent *agent, const Call *call) {
    Arena *arena = agent->cta->machine->arena;
    Warpgroup *group = warpgroup_of(agent);
    int64_t number = agent->wgmma.issued++;
    if (number < group->first + group->count) return statement(group, number);
    if (group->count == group->capacity) {
        int grown = group->capacity ? 2 * group->capacity : 8;
        group->items = arena_grow(arena, group->items, sizeof *group->items * (size_t)group->count,
                                  sizeof *group->items * (size_t)grown);
        group->capacity = grown;
    }
    Statement *s = &group->items[group->count++];
    *s = (Statement){.call = call, .pc = agent->pc, .a_byte = -1};
    s->actor = actor_start(agent->cta, UNIT_WGMMA, agent->first_thread / WARPGROUP_THREADS, agent->pc);
    unit_next(agent->cta, UNIT_WGMMA, agent->first_thread / WARPGROUP_THREADS);
    return s;
}

// Byte of shared memory at which an operand begins, the same for all lanes; -1: reported.
static int64_t operand_byte(Agent *agent, const CallArg *arg) {
    const Mem *mem = machine_mem(agent->cta->machine, arg->place->mem);
    int64_t offsets[LANES];
    if (place_offsets(agent, arg->place, agent->mask, NULL, offsets) != agent->mask) return -1;
    for (int l = 1; l < LANES; l++)
        if (offsets[l] != offsets[0]) return refuse(agent, "gives operands at different places") - 1;
    if (!access_aligned(agent, mem, offsets[0], UNIT_BYTES, 0)) return -1;
    return mem->offset + offsets[0] * mem->bytes;
}

static bool take_operands(Agent *agent, const Call *call, Statement *mine) {
    const WgmmaCode *code = call->wgmma;
    const Mem *acc = register_mem(agent, call, W_ACC), *a = register_mem(agent, call, W_A);
    const CallArg *accumulate = &CALL_ARG(call, WGMMA, accumulate);
    mine->accumulate = !accumulate->has_value || agent->regs[accumulate->slot].i[0];
    mine->acc_element = local_place(agent, CALL_ARG(call, WGMMA, acc).place, 0, code->acc_regs.values);
    if (mine->acc_element < 0) return false;
    if (!take_registers(agent, acc, mine->acc_element, code->acc_regs.values, mine->accumulate)) return false;
    if (!code->a.shared) {
        int64_t values = (int64_t)code->steps * code->a_regs.values;
        mine->a_element = local_place(agent, CALL_ARG(call, WGMMA, a).place, 0, values);
        if (mine->a_element < 0 || !take_registers(agent, a, mine->a_element, values, true)) return false;
    } else {
        mine->a_byte = operand_byte(agent, &CALL_ARG(call, WGMMA, a));
        if (mine->a_byte < 0) return false;
    }
    mine->b_byte = operand_byte(agent, &CALL_ARG(call, WGMMA, b));
    return mine->b_byte >= 0;
}

static void complete_statement(Agent *agent, Statement *s) {   // all warps have come
    Cta *cta = agent->cta;
    const WgmmaCode *code = s->call->wgmma;
    if (!spend(agent, (int64_t)code->m * code->n * code->k * code->steps, STEP_PRODUCTS)) return;
    if (code->a.shared) check_operand(agent, &code->a, code, register_mem(agent, s->call, W_A), s->a_byte, &s->actor);
    check_operand(agent, &code->b, code, register_mem(agent, s->call, W_B), s->b_byte, &s->actor);
    actor_end(cta, &s->actor);
    for (int i = 0; i < cta->agent_count; i++)
        if (cta->agents[i]->status == AGENT_WARPGROUP) cta->agents[i]->status = AGENT_READY;
}

static void wgmma_start(Agent *agent, const Call *call) {
    if (!whole_warp(agent, "wgmma") || !whole_group(agent)) return;
    Statement mine = {0}, *s = next_statement(agent, call);
    if (s->call != call) {
        refuse(agent, "executes another wgmma");
        return;
    }
    if (!take_operands(agent, call, &mine)) {
        agent->cta->machine->stop = true;
        return;
    }
    bool first = s->issued == 0;
    if (first) {
        s->accumulate = mine.accumulate;
        s->a_byte = mine.a_byte;
        s->b_byte = mine.b_byte;
        s->a_element = mine.a_element;
        s->acc_element = mine.acc_element;
    }
    bool same = s->accumulate == mine.accumulate && s->a_byte == mine.a_byte && s->b_byte == mine.b_byte &&
                s->a_element == mine.a_element && s->acc_element == mine.acc_element;
    if (!same) {
        refuse(agent, "gives it other operands");
        return;
    }
    s->warps[agent->first_thread / LANES % WARPGROUP] = agent;
    actor_acts_for(agent, agent->full, &s->actor);
    if (++s->issued == WARPGROUP) complete_statement(agent, s);
}

// ---- groups ----
static void wgmma_commit(Agent *agent) {
    if (!whole_warp(agent, "wgmma_commit")) return;
    if (agent->wgmma.count == agent->wgmma.capacity) {
        int grown = agent->wgmma.capacity ? 2 * agent->wgmma.capacity : 8;
        agent->wgmma.groups = arena_grow(agent->cta->machine->arena, agent->wgmma.groups,
                                         sizeof(int64_t) * (size_t)agent->wgmma.count, sizeof(int64_t) * (size_t)grown);
        agent->wgmma.capacity = grown;
    }
    agent->wgmma.groups[agent->wgmma.count++] = agent->wgmma.issued;
}

static void release(Agent *agent, Statement *s) {   // this warp has waited for it
    const WgmmaCode *code = s->call->wgmma;
    give_back(agent, register_mem(agent, s->call, W_ACC), s->acc_element, code->acc_regs.values);
    if (!code->a.shared)
        give_back(agent, register_mem(agent, s->call, W_A), s->a_element, (int64_t)code->steps * code->a_regs.values);
    unit_learn(agent, agent->full, UNIT_WGMMA, agent->first_thread / WARPGROUP_THREADS, s->actor.epoch);
    s->released++;
}

static void forget_released(Warpgroup *group) {
    int gone = 0;
    while (gone < group->count && group->items[gone].released == WARPGROUP) gone++;
    if (!gone) return;
    group->count -= gone;
    group->first += gone;
    memmove(group->items, group->items + gone, sizeof *group->items * (size_t)group->count);
}

static void wgmma_wait(Agent *agent, const Call *call) {
    int64_t groups = CALL_ARG(call, WGMMA_WAIT, n).number;
    if (!agent->warp) {
        tile_wait_products(agent, groups);
        return;
    }
    Warpgroup *group = warpgroup_of(agent);
    if (!whole_warp(agent, "wgmma_wait")) return;
    int waited = agent->wgmma.count - (int)groups;   // so many of the pending groups, oldest first
    agent->wgmma.fenced = false;
    if (waited <= 0) return;
    int64_t end = agent->wgmma.groups[waited - 1];
    if (end > agent->wgmma.waited && statement(group, end - 1)->issued < WARPGROUP) {
        agent->status = AGENT_WARPGROUP;
        agent->wait_pc = agent->pc;
        agent->pc--;
        return;
    }
    for (; group->done < end; group->done++) compute(agent->cta, statement(group, group->done));
    for (; agent->wgmma.waited < end; agent->wgmma.waited++) release(agent, statement(group, agent->wgmma.waited));
    forget_released(group);
    agent->wgmma.count -= waited;
    memmove(agent->wgmma.groups, agent->wgmma.groups + waited, sizeof(int64_t) * (size_t)agent->wgmma.count);
}

void wgmma_agent_starts(Agent *agent) {
    const Warpgroup *group = warpgroup_of(agent);
    agent->wgmma.issued = agent->wgmma.waited = group->first + group->count;
}

void wgmma_agent_ends(Agent *agent) {
    Machine *machine = agent->cta->machine;
    if (agent->wgmma.waited == agent->wgmma.issued) return;
    const Statement *s = statement(warpgroup_of(agent), agent->wgmma.waited);
    emu_report(machine, s->pc, T_EMU_PENDING, thread_text(agent, 0), "its wgmma");
    machine->stop = true;
}

const OpHandler wgmma_handlers[OP_COUNT] = {
    [OP_WGMMA] = {.effect = wgmma_start},
    [OP_WGMMA_FENCE] = {.no_operands = wgmma_fence},
    [OP_WGMMA_COMMIT] = {.no_operands = wgmma_commit},
    [OP_WGMMA_WAIT] = {.effect = wgmma_wait},
};
