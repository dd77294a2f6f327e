// Operations of threads: vector accesses, lanes, atomics, ordered accesses, debugging. Those with a machinery of their
// own are elsewhere: copies.c (cp.async), bulk.c (TMA), matrix.c (ldmatrix, mma), wgmma.c, barriers.c.
//
// At CTA level (tile stage) the same calls come from an agent with one lane: atomics and ordered accesses mean the
// same, a barrier waits for no other agent, and groups of copies are the CTA's.
#include "emulator/machine.h"
#include <math.h>
#include <string.h>

static const Lanes *value_of(const Agent *agent, const CallArg *arg) {
    return &agent->regs[arg->slot];
}

static Mask call_mask(const Agent *agent, const Instr *in) {
    return in->wide ? agent->mask : 1;
}

bool whole_warp(Agent *agent, const char *what) {
    if (agent->mask == agent->full) return true;
    emu_report(agent->cta->machine, agent->pc, T_EMU_DIVERGENT, what, thread_text(agent, __builtin_ctz(agent->mask)),
               thread_text(agent, __builtin_ctz(agent->full & ~agent->mask)));
    return false;
}

bool access_aligned(Agent *agent, const Mem *mem, int64_t offset, int64_t bytes, int lane) {
    uint64_t at = (uint64_t)(mem->offset + offset * mem->bytes);
    if (mem->scope == SCOPE_GLOBAL) at = (uint64_t)(uintptr_t)(mem->data + offset * mem->bytes);
    if (at % (uint64_t)bytes == 0) return true;
    Machine *machine = agent->cta->machine;
    emu_report(machine, agent->pc, T_EMU_MISALIGNED, (long long)bytes, element_text(machine->arena, mem, offset),
               thread_text(agent, lane));
    return false;
}

// ---- accesses of several elements ----
static void note_span(Agent *agent, const Mem *mem, int lane, int64_t offset, int64_t count, Touch touch) {
    if (!agent->cta->machine->options.races) return;
    if (mem->scope == SCOPE_SHARED)
        race_shared(agent, lane, mem->offset + offset * mem->bytes, (int)(count * mem->bytes), touch, mem, agent->pc);
    else race_global(agent, lane, mem, offset, (int)count, touch, agent->pc);
}

static void note_traffic(Agent *agent, const Mem *mem, Mask mask, const int64_t *offsets, int bytes) {
    int64_t at[LANES], base = mem->scope == SCOPE_SHARED ? mem->offset : 0;
    for (int l = 0; l < LANES; l++) at[l] = base + offsets[l] * mem->bytes;
    if (mem->scope == SCOPE_SHARED) conflicts_count(agent, mem, at, mask, bytes);
    if (mem->scope == SCOPE_GLOBAL) sectors_count(agent, at, mask, bytes);
}

static Word atomic_result(OpId op, Type type, Word old, Word v, Word expected) {
    bool floating = type_is_float(type);
    switch (op) {
    case OP_ATOMIC_ADD:
        if (floating)
            return word_convert(type, TYPE_F64, (Word){.f = type == TYPE_F64 ? old.f + v.f : (float)(old.f + v.f)});
        return (Word){.i = int_wrap(type, (int64_t)((uint64_t)old.i + (uint64_t)v.i))};
    case OP_ATOMIC_MAX:
        if (floating) return (Word){.f = number_max(old.f, v.f)};
        return type == TYPE_U64 ? ((uint64_t)old.i > (uint64_t)v.i ? old : v) : old.i > v.i ? old : v;
    case OP_ATOMIC_MIN:
        if (floating) return (Word){.f = number_min(old.f, v.f)};
        return type == TYPE_U64 ? ((uint64_t)old.i < (uint64_t)v.i ? old : v) : old.i < v.i ? old : v;
    case OP_ATOMIC_AND: return (Word){.i = old.i & v.i};
    case OP_ATOMIC_OR: return (Word){.i = old.i | v.i};
    case OP_ATOMIC_XOR: return (Word){.i = old.i ^ v.i};
    case OP_ATOMIC_INC: return (Word){.i = (uint64_t)old.i < (uint64_t)v.i ? int_wrap(type, old.i + 1) : 0};
    case OP_ATOMIC_CAS: return old.i == expected.i ? v : old;   // equal bits: floats are compared as Words
    default: return v;                                          // exch, store
    }
}

// What each element becomes, an atomic of its own.
static void add_elements(Agent *agent, const Mem *mem, int lane, int64_t first, int64_t n, Word *words) {
    uint8_t *data = mem_data(agent->cta, mem);
    state_readable(agent, mem, first, n, lane);
    for (int64_t e = 0; e < n; e++) {
        race_atomic(agent, lane, mem, first + e);
        Word old = element_load(mem->type, data + (first + e) * mem->bytes);
        words[e] = atomic_result(OP_ATOMIC_ADD, mem->type, old, words[e], (Word){.i = 0});
    }
}

static void vector_access(Agent *agent, const Call *call) {
    bool load = call->op == OP_VLOAD, adds = call->op == OP_VATOMIC_ADD;
    const Place *to = CALL_ARG(call, VLOAD, dst).place, *from = CALL_ARG(call, VLOAD, src).place;
    const Place *local = load ? to : from, *place = load ? from : to;
    int64_t n = CALL_ARG(call, VLOAD, n).number, spans[LANES], offsets[LANES];
    const Mem *mem = machine_mem(agent->cta->machine, place->mem),
              *array_mem = machine_mem(agent->cta->machine, local->mem);
    LocalArray *array = &agent->locals[array_mem->local];
    for (int l = 0; l < LANES; l++) spans[l] = n;
    Mask mask = place_offsets(agent, place, agent->mask, spans, offsets);
    uint8_t *data = mem_data(agent->cta, mem);
    spend(agent, __builtin_popcount(mask) * n, STEP_ACCESSES);
    note_traffic(agent, mem, mask, offsets, (int)n * mem->bytes);
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        Word words[LANES];
        int64_t element = local_offset(agent, local, l, n);
        if (element < 0 || n > LANES || !access_aligned(agent, mem, offsets[l], n * mem->bytes, l)) continue;
        note_span(agent, mem, l, offsets[l], n, load ? TOUCH_READ : adds ? TOUCH_ATOMIC : TOUCH_WRITE);
        if (load) {
            state_readable(agent, mem, offsets[l], n, l);
            elements_load(mem->type, data + offsets[l] * mem->bytes, 1, n, words);
            words_convert(array_mem->type, mem->type, n, words);
        }
        for (int64_t e = 0; e < n; e++) {
            if (load) {
                array->data[element + e].w[l] = words[e];
                array->init[element + e] |= (Mask)1 << l;
            } else {
                local_ready(agent, array_mem, element + e, (Mask)1 << l);
                words[e] = array->data[element + e].w[l];
            }
        }
        if (load) continue;
        if (array_mem->type != mem->type) words_convert(mem->type, array_mem->type, n, words);
        if (adds) add_elements(agent, mem, l, offsets[l], n, words);
        state_writable(agent, mem, offsets[l], n, l);
        elements_store(mem->type, data + offsets[l] * mem->bytes, 1, n, words);
        state_set(agent->cta, mem, offsets[l], n, STATE_READY);
    }
}

// The elements may start anywhere; the aligned units that hold them must lie in the tensor.
static bool units_in_tensor(Agent *agent, const Mem *mem, int64_t offset, int64_t n, int lane) {
    int64_t bytes = n * mem->bytes, elements = 1;   // with what lies between rows
    for (int d = 0; d < mem->rank; d++) elements += (mem->shape[d] - 1) * mem->stride[d];
    int64_t before = (int64_t)((uintptr_t)(mem->data + offset * mem->bytes) % (uintptr_t)bytes);
    int64_t first = offset * mem->bytes - before, end = first + (before ? 2 : 1) * bytes;
    if (first >= 0 && end <= elements * mem->bytes) return true;
    Machine *machine = agent->cta->machine;
    const char *units = arena_printf(machine->arena, "%lld .. %lld", (long long)(first / mem->bytes),
                                     (long long)(end / mem->bytes - 1));
    const char *extent = arena_printf(machine->arena, "%lld, as one dim", (long long)elements);
    emu_report(machine, agent->pc, T_EMU_OUT_OF_RANGE, mem->buf->name, units, extent, thread_text(agent, lane));
    return false;
}

static void unaligned_load(Agent *agent, const Call *call) {
    const Place *local = CALL_ARG(call, ULOAD, dst).place, *place = CALL_ARG(call, ULOAD, src).place;
    const CallArg *inside = &CALL_ARG(call, ULOAD, inside);
    int64_t n = CALL_ARG(call, ULOAD, n).number, spans[LANES], offsets[LANES] = {0};
    const Mem *mem = machine_mem(agent->cta->machine, place->mem),
              *array_mem = machine_mem(agent->cta->machine, local->mem);
    LocalArray *array = &agent->locals[array_mem->local];
    Mask reading = 0;
    for (int l = 0; l < LANES; l++) spans[l] = n;
    for (Mask m = agent->mask; m; m &= m - 1)
        if (!inside->has_value || agent->regs[inside->slot].i[__builtin_ctz(m)]) reading |= m & -m;
    reading = reading ? place_offsets(agent, place, reading, spans, offsets) : 0;
    spend(agent, __builtin_popcount(agent->mask) * n, STEP_ACCESSES);
    note_traffic(agent, mem, reading, offsets, (int)n * mem->bytes);
    for (Mask m = agent->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        Word words[LANES] = {{0}};
        int64_t element = local_offset(agent, local, l, n);
        if (element < 0 || n > LANES) continue;
        if (reading >> l & 1 && units_in_tensor(agent, mem, offsets[l], n, l)) {
            note_span(agent, mem, l, offsets[l], n, TOUCH_READ);
            state_readable(agent, mem, offsets[l], n, l);
            elements_load(mem->type, mem_data(agent->cta, mem) + offsets[l] * mem->bytes, 1, n, words);
            words_convert(array_mem->type, mem->type, n, words);
        }
        for (int64_t e = 0; e < n; e++) {
            array->data[element + e].w[l] = words[e];
            array->init[element + e] |= (Mask)1 << l;
        }
    }
}

// ---- the same bits in elements of another width ----
static void recast(Agent *agent, const Call *call) {
    const Place *to = CALL_ARG(call, RECAST, dst).place, *from = CALL_ARG(call, RECAST, src).place;
    const Mem *out = machine_mem(agent->cta->machine, to->mem), *in = machine_mem(agent->cta->machine, from->mem);
    int64_t n = CALL_ARG(call, RECAST, n).number, held = n * out->bytes / in->bytes;
    int lane = __builtin_ctz(agent->mask);
    int64_t first = local_offset(agent, to, lane, n), start = local_offset(agent, from, lane, held);
    if (first < 0 || start < 0) return;
    spend(agent, __builtin_popcount(agent->mask) * n, STEP_ELEMENTS);
    LocalArray *dst = &agent->locals[out->local], *src = &agent->locals[in->local];
    int step = out->bytes > in->bytes ? out->bytes : in->bytes;
    for (int64_t at = 0; at < n * out->bytes; at += step)
        for (Mask m = agent->mask; m; m &= m - 1) {
            int l = __builtin_ctz(m);
            uint8_t bytes[8] = {0};
            for (int b = 0; b < step; b += in->bytes) {
                int64_t element = start + (at + b) / in->bytes;
                local_ready(agent, in, element, (Mask)1 << l);
                elements_store(in->type, bytes + b, 1, 1, &src->data[element].w[l]);
            }
            for (int b = 0; b < step; b += out->bytes) {
                int64_t element = first + (at + b) / out->bytes;
                elements_load(out->type, bytes + b, 1, 1, &dst->data[element].w[l]);
                dst->init[element] |= (Mask)1 << l;
            }
        }
}

// ---- atomics and ordered accesses ----
static void note_atomic(Agent *agent, const Mem *mem, int lane, int64_t offset, Touch touch) {
    if (!agent->cta->machine->options.races) return;
    if (agent->parallel) race_iteration(agent, lane, mem, offset, touch, agent->pc);
    if (mem->scope == SCOPE_SHARED && agent->warp)
        race_shared(agent, lane, mem->offset + offset * mem->bytes, mem->bytes, touch, mem, agent->pc);
    if (mem->scope == SCOPE_GLOBAL) race_global(agent, lane, mem, offset, 1, touch, agent->pc);
}

static bool is_early(const Call *call) {
    return call->op == OP_LOAD && strcmp(CALL_ARG(call, LOAD, order).name, "early") == 0;
}

// An element that kernels before may still write: what it is, or anything that it may have been or may become.
static Word early_value(Machine *machine, const Mem *mem, const uint8_t *at) {
    uint64_t other = random_next(&machine->random);
    return element_load(mem->type, random_below(&machine->random, 2) ? at : (const uint8_t *)&other);
}

static void element_access(Agent *agent, const Instr *in, const Call *call) {
    OpId op = call->op;
    Machine *machine = agent->cta->machine;
    const Place *place = CALL_ARG(call, LOAD, x).place;
    const Mem *mem = machine_mem(machine, place->mem);
    int64_t offsets[LANES];
    Mask mask = place_offsets(agent, place, call_mask(agent, in), NULL, offsets);
    Lanes result = {0};   // apart from the operands: their slots may be the result's
    bool reads = op != OP_STORE, writes = op != OP_LOAD;
    const CallArg *value = op == OP_ATOMIC_CAS ? &CALL_ARG(call, ATOMIC_CAS, v) : &CALL_ARG(call, ATOMIC_ADD, v);
    const CallArg *expects = &CALL_ARG(call, ATOMIC_CAS, expected);
    spend(agent, __builtin_popcount(mask), 1);
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        uint8_t *at = mem_data(agent->cta, mem) + offsets[l] * mem->bytes;
        if (op == OP_LOAD && strcmp(CALL_ARG(call, LOAD, order).name, "acquire") == 0)
            race_acquire(agent, l, mem, offsets[l], CALL_ARG(call, LOAD, scope).name);
        if (reads && writes) race_atomic(agent, l, mem, offsets[l]);
        if (is_early(call)) {
            result.w[l] = early_value(machine, mem, at);
            continue;
        }
        note_atomic(agent, mem, l, offsets[l], writes ? TOUCH_ATOMIC : TOUCH_ATOMIC_READ);
        if (op == OP_STORE && strcmp(CALL_ARG(call, STORE, order).name, "release") == 0)   // of itself, too
            race_release(agent, l, mem, offsets[l], CALL_ARG(call, STORE, scope).name);
        if (reads) state_readable(agent, mem, offsets[l], 1, l);
        Word old = reads ? element_load(mem->type, at) : (Word){.i = 0};
        if (writes) {
            Word v = word_convert(mem->type, value->type, value_of(agent, value)->w[l]), expected = {.i = 0};
            if (op == OP_ATOMIC_CAS) expected = word_convert(mem->type, expects->type, value_of(agent, expects)->w[l]);
            Word stored = atomic_result(op, mem->type, old, v, expected);
            Word before = element_load(mem->type, at);
            element_store(mem->type, at, stored);
            Word after = element_load(mem->type, at);
            machine->moves += memcmp(&before, &after, sizeof after) != 0;
            state_set(agent->cta, mem, offsets[l], 1, STATE_READY);
        }
        result.w[l] = old;
    }
    for (Mask m = call_mask(agent, in); m; m &= m - 1)
        agent->regs[in->dst].w[__builtin_ctz(m)] = result.w[__builtin_ctz(m)];
}

// ---- lanes ----
static int shuffle_source(OpId op, int lane, int64_t by) {
    int64_t from = op == OP_SHFL_XOR ? lane ^ by : op == OP_SHFL_UP ? lane - by : op == OP_SHFL_DOWN ? lane + by : by;
    if (from >= 0 && from < LANES) return (int)from;
    return op == OP_SHFL_IDX ? (int)(from & (LANES - 1)) : lane;
}

static void shuffle(Agent *agent, const Instr *in, const Call *call) {
    Lanes out = {0};
    if (!whole_warp(agent, op_info(call->op)->text)) return;
    const Lanes *x = value_of(agent, &CALL_ARG(call, SHFL_XOR, x)),
                *by = value_of(agent, &CALL_ARG(call, SHFL_XOR, mask));
    agent->cta->machine->report->shuffles++;
    for (Mask m = agent->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m), from = shuffle_source(call->op, l, by->i[l]);
        out.i[l] = x->i[agent->full >> from & 1 ? from : l];
    }
    agent->regs[in->dst] = out;
}

static void vote(Agent *agent, const Instr *in, const Call *call) {
    if (!whole_warp(agent, op_info(call->op)->text)) return;
    Mask yes = 0;
    for (int l = 0; l < LANES; l++) yes |= (Mask)(value_of(agent, &CALL_ARG(call, VOTE_ANY, x))->i[l] != 0) << l;
    yes &= agent->mask;
    bool result = call->op == OP_VOTE_ANY ? yes != 0 : yes == agent->mask;
    for (int l = 0; l < LANES; l++) agent->regs[in->dst].i[l] = result;
}

static void permute_bytes(Agent *agent, const Instr *in, const Call *call) {
    const Lanes *a = value_of(agent, &CALL_ARG(call, BYTE_PERM, a)),
                *b = value_of(agent, &CALL_ARG(call, BYTE_PERM, b));
    const Lanes *selector = value_of(agent, &CALL_ARG(call, BYTE_PERM, selector));
    Lanes out = {0};   // apart from the operands: their slots may be the result's
    for (Mask m = call_mask(agent, in); m; m &= m - 1) {
        int l = __builtin_ctz(m);
        uint64_t bytes = (uint64_t)b->i[l] << 32 | (uint32_t)a->i[l], result = 0;
        for (int i = 0; i < 4; i++) result |= (bytes >> (selector->i[l] >> 4 * i & 7) * 8 & 0xff) << 8 * i;
        out.i[l] = (int64_t)result;
    }
    agent->regs[in->dst] = out;
}

// At tile stage, where all warps are one.
static void any_element(Agent *agent, const Instr *in, const Call *call) {
    const Mem *mem = machine_mem(agent->cta->machine, CALL_ARG(call, ANY, x).place->mem);
    int64_t elements = 1;
    bool result = false;
    for (int d = 0; d < mem->rank; d++) elements *= mem->shape[d];
    const uint8_t *data = mem_data(agent->cta, mem);
    spend(agent, elements, 1);
    for (int64_t n = 0; n < elements && state_readable(agent, mem, n, 1, 0); n++)
        result |= element_load(mem->type, data + n * mem->bytes).i != 0;
    for (int l = 0; l < LANES; l++) agent->regs[in->dst].i[l] = result;
}

static void elect(Agent *agent, const Instr *in, const Call *call) {
    (void)call;
    int first = __builtin_ctz(agent->mask);
    for (int l = 0; l < LANES; l++) agent->regs[in->dst].i[l] = l == first;
}

// ---- debugging ----
enum { MOST_PRINTS = 200 };

static void print_line(Agent *agent, const Call *call, int lane) {
    Machine *machine = agent->cta->machine;
    if (machine->prints++ >= MOST_PRINTS) return;
    StrBuf sb;
    sb_init(&sb, machine->arena);
    sb_printf(&sb, "%s: %s", thread_text(agent, lane),
              CALL_ARG(call, PRINT, text).name ? CALL_ARG(call, PRINT, text).name : "");
    for (int i = 1; i < call->count; i++)
        if (call->args[i].has_value)
            sb_printf(&sb, " %s",
                      word_text(machine->arena, call->args[i].type, value_of(agent, &call->args[i])->w[lane]));
    diag(machine->sink, machine->code->places[agent->pc], T_EMU_PRINT, sb_text(&sb));
}

static void print_op(Agent *agent, const Instr *in, const Call *call) {
    for (Mask m = call_mask(agent, in); m; m &= m - 1) print_line(agent, call, __builtin_ctz(m));
}

static void assert_op(Agent *agent, const Instr *in, const Call *call) {
    for (Mask m = call_mask(agent, in); m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (value_of(agent, &CALL_ARG(call, ASSERT, condition))->i[l]) continue;
        const char *text =
            CALL_ARG(call, ASSERT, text).name ? CALL_ARG(call, ASSERT, text).name : "the condition is false";
        emu_report(agent->cta->machine, agent->pc, T_EMU_ASSERT, text, thread_text(agent, l));
        agent->cta->machine->stop = true;
        return;
    }
}

// ---- the table ----
const OpHandler thread_handlers[OP_COUNT] = {
    [OP_VLOAD] = {.effect = vector_access},
    [OP_ULOAD] = {.effect = unaligned_load},
    [OP_VSTORE] = {.effect = vector_access},
    [OP_VATOMIC_ADD] = {.effect = vector_access},
    [OP_RECAST] = {.effect = recast},
    [OP_ATOMIC_ADD] = {.with_result = element_access},
    [OP_ATOMIC_MAX] = {.with_result = element_access},
    [OP_ATOMIC_MIN] = {.with_result = element_access},
    [OP_ATOMIC_AND] = {.with_result = element_access},
    [OP_ATOMIC_OR] = {.with_result = element_access},
    [OP_ATOMIC_XOR] = {.with_result = element_access},
    [OP_ATOMIC_EXCH] = {.with_result = element_access},
    [OP_ATOMIC_INC] = {.with_result = element_access},
    [OP_ATOMIC_CAS] = {.with_result = element_access},
    [OP_LOAD] = {.with_result = element_access},
    [OP_STORE] = {.with_result = element_access},
    [OP_SHFL_XOR] = {.with_result = shuffle},
    [OP_SHFL_UP] = {.with_result = shuffle},
    [OP_SHFL_DOWN] = {.with_result = shuffle},
    [OP_SHFL_IDX] = {.with_result = shuffle},
    [OP_VOTE_ANY] = {.with_result = vote},
    [OP_VOTE_ALL] = {.with_result = vote},
    [OP_BYTE_PERM] = {.with_result = permute_bytes},
    [OP_ANY] = {.with_result = any_element},
    [OP_ELECT] = {.with_result = elect},
    [OP_PRINT] = {.with_result = print_op},
    [OP_ASSERT] = {.with_result = assert_op},
};
