// Buffers: places of elements, bounds, what is initialised, loads and stores of lanes.
//
// Every element of shared memory and fragments has a state (one per granule), and those of tensors with an
// `initialised` map: whether it holds a value, and whether an asynchronous operation that has not been waited for is
// writing or reading it. A local array holds a value for each lane, with a mask of the lanes that have stored one.
#include "emulator/machine.h"
#include "ir/query.h"
#include <math.h>
#include <string.h>

Mem *machine_mem(const Machine *machine, int mem) {
    return &machine->code->mems[mem];
}

uint8_t *mem_data(const Cta *cta, const Mem *mem) {
    if (mem->scope == SCOPE_GLOBAL) return mem->data;
    return (mem->scope == SCOPE_SHARED ? cta->shared : cta->fragments) + mem->offset;
}

uint8_t *mem_state(const Cta *cta, const Mem *mem) {
    if (mem->scope == SCOPE_GLOBAL) return mem->state;
    if (mem->scope == SCOPE_FRAGMENT) return cta->fragment_state + mem->first_state;
    return cta->shared_state + mem->offset / cta->machine->code->granule;
}

// ---- states ----
const char *element_text(Arena *arena, const Mem *mem, int64_t offset) {
    StrBuf sb;
    sb_init(&sb, arena);
    sb_printf(&sb, "%s[", mem->buf->name);
    int64_t rest = offset;
    bool exact = true;
    for (int d = 0; d < mem->rank; d++) exact &= mem->stride[d] > 0 && (d == 0 || mem->stride[d] <= mem->stride[d - 1]);
    int64_t at[LAYOUT_MAX_RANK];
    for (int d = 0; d < mem->rank && exact; d++) {
        at[moved_dim(mem->buf->moved, mem->rank, d)] = rest / mem->stride[d];
        rest %= mem->stride[d];
    }
    for (int d = 0; d < mem->rank && exact; d++) sb_printf(&sb, d ? ", %lld" : "%lld", (long long)at[d]);
    if (!exact) sb_printf(&sb, "element %lld", (long long)offset);
    sb_char(&sb, ']');
    return sb_text(&sb);
}

// Of the buffers with the storage of `mem`, the one whose value the element holds.
static const Mem *owner_of(const Machine *machine, const Mem *mem, int state) {
    for (int i = 0; i < machine->code->mem_count; i++) {
        const Mem *other = machine_mem(machine, i);
        if (other->scope == SCOPE_SHARED && other->offset == mem->offset && other->ready == (state & ~STATE_READING))
            return other;
    }
    return NULL;
}

static void report_state(Agent *agent, const Mem *mem, int64_t offset, int lane, int state) {
    Machine *machine = agent->cta->machine;
    DiagCode code = state & STATE_WRITING ? T_EMU_NOT_LANDED : T_EMU_UNINITIALISED;
    Diag *d = emu_report(machine, agent->pc, code, element_text(machine->arena, mem, offset), thread_text(agent, lane));
    if (!d) return;
    int copy = mem->scope == SCOPE_SHARED ? copy_writing(agent->cta, mem->offset + offset * mem->bytes) : -1;
    if (copy < 0 && mem->scope == SCOPE_SHARED) copy = bulk_writing(agent->cta, mem->offset + offset * mem->bytes);
    if (copy >= 0) diag_label(d, machine->code->places[copy], "the copy starts here");
    const Mem *other = state & STATE_READY ? owner_of(machine, mem, state) : NULL;
    if (other) diag_label(d, other->buf->loc, "'%s' has its storage, and was written since", other->buf->name);
    diag_label(d, mem->buf->loc, "'%s' is declared here", mem->buf->name);
}

// The bits in which some of the states differ from plain readiness.
static uint8_t unusual(const uint8_t *state, int64_t count, uint8_t ready) {
    uint8_t bits = 0;
    for (int64_t n = 0; n < count; n++) bits |= state[n] ^ ready;
    return bits;
}

bool state_readable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane) {
    return state_readable_in(agent, agent->cta, mem, offset, count, lane);
}

bool state_readable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int lane) {
    const uint8_t *state = mem_state(cta, mem);
    if (!state || !unusual(state + offset * mem->unit, count * mem->unit, mem->ready)) return true;
    for (int64_t n = offset * mem->unit; n < (offset + count) * mem->unit; n++) {
        if ((state[n] & ~STATE_READING) == mem->ready) continue;
        report_state(agent, mem, n / mem->unit, lane, state[n]);
        return false;
    }
    return true;
}

bool state_writable(Agent *agent, const Mem *mem, int64_t offset, int64_t count, int lane) {
    return state_writable_in(agent, agent->cta, mem, offset, count, lane);
}

bool state_writable_in(Agent *agent, const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int lane) {
    const uint8_t *state = mem_state(cta, mem);
    if (!state) return true;
    for (int64_t n = offset * mem->unit; n < (offset + count) * mem->unit; n++) {
        if (!(state[n] & (STATE_WRITING | STATE_READING))) continue;
        Machine *machine = agent->cta->machine;
        emu_report(machine, agent->pc, T_EMU_OVERWRITES, element_text(machine->arena, mem, n / mem->unit),
                   state[n] & STATE_WRITING ? "writes" : "reads", thread_text(agent, lane));
        return false;
    }
    return true;
}

void state_set(const Cta *cta, const Mem *mem, int64_t offset, int64_t count, int value) {
    uint8_t *state = mem_state(cta, mem);
    if (value & STATE_READY) value |= mem->ready;
    if (state) memset(state + offset * mem->unit, value, (size_t)(count * mem->unit));
}

// ---- places ----
static void report_range(Agent *agent, const Place *place, int lane) {
    Machine *machine = agent->cta->machine;
    const Mem *mem = machine_mem(machine, place->mem);
    const int64_t *shape = mem->local >= 0 ? agent->locals[mem->local].shape : mem->shape;
    StrBuf index, extent;
    sb_init(&index, machine->arena);
    sb_init(&extent, machine->arena);
    int64_t at[LAYOUT_MAX_RANK], extents[LAYOUT_MAX_RANK];   // of the argument
    for (int d = 0; d < place->rank; d++) {
        int dim = moved_dim(mem->buf->moved, place->rank, d);
        at[dim] = agent->regs[place->index[d]].i[place->varying[d] ? lane : 0];
        extents[dim] = shape[d];
    }
    for (int d = 0; d < place->rank; d++) {
        sb_printf(&index, d ? ", %lld" : "%lld", (long long)at[d]);
        sb_printf(&extent, d ? ", %lld" : "%lld", (long long)extents[d]);
    }
    Diag *d = emu_report(machine, agent->pc, T_EMU_OUT_OF_RANGE, mem->buf->name, sb_text(&index), sb_text(&extent),
                         thread_text(agent, lane));
    if (d) diag_label(d, mem->buf->loc, "'%s' is declared here", mem->buf->name);
}

// Offsets of all lanes without looking at bounds; returns the lanes with an index outside.
static Mask linear_offsets(const Agent *agent, const Place *place, const int64_t *shape, const int64_t *stride,
                           int64_t *offsets) {
    uint64_t fixed = 0, sum[LANES] = {0};
    Mask outside = 0;
    for (int d = 0; d < place->rank; d++) {
        const Lanes *index = &agent->regs[place->index[d]];
        uint64_t extent = (uint64_t)shape[d];
        if (!place->varying[d]) {
            if ((uint64_t)index->i[0] >= extent) outside = UINT32_MAX;
            else fixed += (uint64_t)(index->i[0] * stride[d]);
            continue;
        }
        uint64_t bad = 0, step = (uint64_t)stride[d];   // bad: its sign, when an index is negative or too large
        for (int l = 0; l < LANES; l++) {
            uint64_t at = (uint64_t)index->i[l];
            bad |= at | (extent - 1 - at);
            sum[l] += at * step;
        }
        for (int l = 0; bad >> 63 && l < LANES; l++) outside |= (Mask)((uint64_t)index->i[l] >= extent) << l;
    }
    for (int l = 0; l < LANES; l++) offsets[l] = (int64_t)(sum[l] + fixed);
    return outside;
}

static Mask beyond_span(const Agent *agent, const Place *place, const Mem *mem, Mask mask, const int64_t *spans,
                        const int64_t *offsets) {
    Mask outside = 0;
    int last = place->rank - 1;
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (spans[l] <= 1) continue;
        bool fits;
        if (mem->scope == SCOPE_GLOBAL) {
            int64_t index = agent->regs[place->index[last]].i[place->varying[last] ? l : 0];
            fits = spans[l] <= mem->shape[last] - index && mem->stride[last] == 1;
        } else {
            fits = offsets[l] + spans[l] <= mem->elements;
        }
        if (!fits) outside |= (Mask)1 << l;
    }
    return outside;
}

// Slots of a fragment: the element that each thread's slot holds. Padding slots hold none.
static Mask regs_offsets(Agent *agent, const Place *place, Mask mask, int64_t *offsets) {
    const RegsCode *regs = place->regs;
    int first = agent->first_thread - agent->cta->first_thread - (agent->role ? (int)agent->role->first_thread : 0);
    if (!regs->known) {
        emu_report(agent->cta->machine, agent->pc, T_EMU_UNSUPPORTED, "regs of a fragment without a layout");
        agent->cta->machine->stop = true;
        return 0;
    }
    Mask there = 0;
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        int64_t value = agent->regs[place->index[0]].i[place->varying[0] ? l : 0];
        if (value < 0 || value >= regs->values) {
            report_range(agent, place, l);
            continue;
        }
        offsets[l] = regs->at[value * regs->threads + (first + l) % regs->threads];
        if (offsets[l] >= 0) there |= (Mask)1 << l;
    }
    return there;
}

Mask place_offsets(Agent *agent, const Place *place, Mask mask, const int64_t *spans, int64_t *offsets) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    if (place->regs) return regs_offsets(agent, place, mask, offsets);
    Mask outside = linear_offsets(agent, place, mem->shape, mem->stride, offsets) & mask;
    if (spans) outside |= beyond_span(agent, place, mem, mask & ~outside, spans, offsets);
    if (outside && place->strict) report_range(agent, place, __builtin_ctz(outside));
    mask &= ~outside;
    return mask;
}

// ---- what an access means for races and bank conflicts ----
static void note_access(Agent *agent, const Mem *mem, Mask mask, const int64_t *offsets, Touch touch) {
    const Machine *machine = agent->cta->machine;
    if (mem->scope == SCOPE_SHARED && agent->warp) {
        int64_t bytes[LANES];
        for (int l = 0; l < LANES; l++) bytes[l] = mem->offset + offsets[l] * mem->bytes;
        conflicts_count(agent, mem, bytes, mask, mem->bytes);
        if (!machine->options.races) return;
        spend(agent, __builtin_popcount(mask), STEP_ACCESSES);
        for (Mask m = mask; m; m &= m - 1) {
            int l = __builtin_ctz(m);
            race_shared(agent, l, bytes[l], mem->bytes, touch, mem, agent->pc);
        }
        return;
    }
    if (mem->scope == SCOPE_GLOBAL && agent->warp) {
        int64_t bytes[LANES];
        for (int l = 0; l < LANES; l++) bytes[l] = offsets[l] * mem->bytes;
        sectors_count(agent, bytes, mask, mem->bytes);
    }
    if (!machine->options.races) return;
    if (mem->scope == SCOPE_GLOBAL && !mem->cells && !machine->code->dependent) return;
    if (!agent->parallel && mem->scope != SCOPE_GLOBAL) return;
    spend(agent, __builtin_popcount(mask), STEP_ACCESSES);
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (agent->parallel) race_iteration(agent, l, mem, offsets[l], touch, agent->pc);
        if (mem->scope == SCOPE_GLOBAL) race_global(agent, l, mem, offsets[l], 1, touch, agent->pc);
    }
}

// ---- loads and stores ----
static Mask access_mask(const Agent *agent, const Instr *in) {
    return in->wide ? agent->mask : 1;
}

static bool consecutive(const int64_t *offsets) {
    bool yes = true;
    for (int l = 1; l < LANES; l++) yes &= offsets[l] == offsets[0] + l;
    return yes;
}

static bool all_readable(Agent *agent, const Mem *mem, Mask mask, const int64_t *offsets) {
    const uint8_t *state = mem_state(agent->cta, mem);
    if (!state) return true;
    if (mask == UINT32_MAX && mem->unit == 1) {   // most are
        unsigned other = 0;
        for (int l = 0; l < LANES; l++) other |= state[offsets[l]] ^ mem->ready;
        if (!other) return true;
    }
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (mem->unit == 1 && state[offsets[l]] == mem->ready) continue;
        if (!state_readable(agent, mem, offsets[l], 1, l)) return false;
    }
    return true;
}

void access_load(Agent *agent, const Instr *in, const Place *place, Lanes *out) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    int64_t offsets[LANES];
    Mask wanted = access_mask(agent, in), mask = place_offsets(agent, place, wanted, NULL, offsets);
    if (mask != wanted) memset(out, 0, sizeof *out);   // out of range reads 0
    if (!mask) return;
    all_readable(agent, mem, mask, offsets);
    const uint8_t *data = mem_data(agent->cta, mem);
    if (mask == UINT32_MAX && consecutive(offsets)) {
        elements_load(mem->type, data + offsets[0] * mem->bytes, 1, LANES, out->w);
    } else if (!place->any_varying) {
        Word word = element_load(mem->type, data + offsets[__builtin_ctz(mask)] * mem->bytes);
        for (int l = 0; l < (in->wide ? LANES : 1); l++) out->w[l] = word;
    } else {
        elements_gather(mem->type, data, offsets, mask, out->w);
    }
    note_access(agent, mem, mask, offsets, TOUCH_READ);
}

static void access_ready(Agent *agent, const Mem *mem, Mask mask, const int64_t *offsets) {
    uint8_t *state = mem_state(agent->cta, mem);
    if (!state) return;
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        uint8_t *at = state + offsets[l] * mem->unit;
        if (*at & (STATE_WRITING | STATE_READING)) state_writable(agent, mem, offsets[l], 1, l);
        for (int n = 0; n < mem->unit; n++) at[n] = mem->ready;
    }
}

// elements_store rounds floats by itself, but it keeps infinities, which a conversion to e5m2 does not.
static bool converts(Type to, Type from) {
    return to != from && (to == TYPE_E5M2 || !(type_is_float(to) && type_is_float(from)));
}

void access_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    int64_t offsets[LANES];
    Mask mask = place_offsets(agent, place, access_mask(agent, in), NULL, offsets);
    if (!mask) return;
    Lanes converted = *value;
    if (converts(mem->type, from))
        for (Mask m = mask; m; m &= m - 1)
            converted.w[__builtin_ctz(m)] = word_convert(mem->type, from, value->w[__builtin_ctz(m)]);
    note_access(agent, mem, mask, offsets, TOUCH_WRITE);
    uint8_t *data = mem_data(agent->cta, mem);
    bool spins = agent->cta->machine->code->spins;
    Lanes before = {0}, after = {0};
    if (spins) elements_gather(mem->type, data, offsets, mask, before.w);
    if (mask == UINT32_MAX && consecutive(offsets))
        elements_store(mem->type, data + offsets[0] * mem->bytes, 1, LANES, converted.w);
    else elements_scatter(mem->type, data, offsets, mask, converted.w);
    if (spins) elements_gather(mem->type, data, offsets, mask, after.w);
    if (spins) agent->cta->machine->moves += memcmp(&before, &after, sizeof after) != 0;
    access_ready(agent, mem, mask, offsets);
}

// ---- local arrays ----
int64_t local_place(Agent *agent, const Place *place, int lane, int64_t span) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    const LocalArray *array = &agent->locals[mem->local];
    int64_t offset = 0;
    bool inside = true;
    for (int d = 0; d < place->rank; d++) {
        int64_t index = agent->regs[place->index[d]].i[place->varying[d] ? lane : 0];
        inside &= (uint64_t)index < (uint64_t)array->shape[d];
        offset = inside ? offset * array->shape[d] + index : 0;
    }
    if (inside && offset + span <= array->elements) return offset;
    report_range(agent, place, lane);
    return -1;
}

int64_t local_offset(Agent *agent, const Place *place, int lane, int64_t span) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    int64_t offset = local_place(agent, place, lane, span);
    if (offset >= 0 && mem->watched) registers_touched(agent, mem, offset, span);
    return offset;
}

bool local_ready(Agent *agent, const Mem *mem, int64_t element, Mask mask) {
    Mask missing = mask & ~agent->locals[mem->local].init[element];
    if (!missing) return true;
    Machine *machine = agent->cta->machine;
    Diag *d = emu_report(machine, agent->pc, T_EMU_UNINITIALISED, element_text(machine->arena, mem, element),
                         thread_text(agent, __builtin_ctz(missing)));
    if (d) diag_label(d, mem->buf->loc, "'%s' is declared here", mem->buf->name);
    return false;
}

static void local_load_one(Agent *agent, const Place *place, const Mem *mem, Lanes *out, bool wide) {
    int64_t element = local_offset(agent, place, __builtin_ctz(agent->mask), 1);
    if (element < 0) {
        memset(out, 0, sizeof *out);
        return;
    }
    local_ready(agent, mem, element, mem->wide ? agent->mask : 1);
    const Lanes *from = &agent->locals[mem->local].data[element];
    if (!wide) out->i[0] = from->i[0];
    else if (mem->wide) *out = *from;
    else
        for (int l = 0; l < LANES; l++) out->i[l] = from->i[0];
}

void local_load(Agent *agent, const Instr *in, const Place *place, Lanes *out) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    if (!place->any_varying) {
        local_load_one(agent, place, mem, out, in->wide);
        return;
    }
    const LocalArray *array = &agent->locals[mem->local];
    Lanes loaded;   // (an index that all lanes share may have the slot of the result)
    for (Mask m = agent->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m), from = mem->wide ? l : 0;
        int64_t element = local_offset(agent, place, l, 1);
        if (element >= 0) local_ready(agent, mem, element, (Mask)1 << from);
        loaded.i[l] = element < 0 ? 0 : array->data[element].i[from];
    }
    for (Mask m = agent->mask; m; m &= m - 1) out->i[__builtin_ctz(m)] = loaded.i[__builtin_ctz(m)];
}

static Word local_value(const Mem *mem, Type from, Word value) {   // a store rounds, also within a type below f32
    if (from != mem->type) return word_convert(mem->type, from, value);
    bool exact = !type_is_float(from) || type_bits(from) >= 32 || isinf(value.f);
    return exact ? value : word_convert(mem->type, TYPE_F32, value);
}

void local_store(Agent *agent, const Instr *in, const Place *place, const Lanes *value, Type from) {
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    LocalArray *array = &agent->locals[mem->local];
    bool plain = from == mem->type && !(type_is_float(from) && type_bits(from) < 32);
    Mask mask = access_mask(agent, in);
    if (!place->any_varying && plain && mask == UINT32_MAX) {
        int64_t element = local_offset(agent, place, 0, 1);
        if (element < 0) return;
        array->data[element] = *value;
        array->init[element] = mask;
        return;
    }
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m), to = mem->wide ? l : 0;
        int64_t element = local_offset(agent, place, l, 1);
        if (element < 0) return;
        array->data[element].w[to] = local_value(mem, from, value->w[l]);
        array->init[element] |= (Mask)1 << to;
    }
}

// ---- declarations ----
static void declare_local(Agent *agent, const Mem *mem) {
    LocalArray *array = &agent->locals[mem->local];
    Arena *arena = agent->cta->machine->arena;
    array->elements = 1;
    for (int d = 0; d < mem->rank; d++) {
        int slot = mem->shape_slots[d];
        int64_t extent = slot >= 0 ? agent->regs[slot].i[0] : mem->shape[d];
        array->shape[d] = extent < 0 ? 0 : extent;
        array->elements *= array->shape[d];
    }
    if (!spend(agent, array->elements, STEP_CLEARED)) return;
    if (array->elements > array->capacity) {
        array->capacity = array->elements;
        array->data = NEW_ARRAY(arena, Lanes, array->elements);
        array->init = NEW_ARRAY(arena, Mask, array->elements);
        array->busy = NEW_ARRAY(arena, uint16_t, array->elements);
        array->touched = NEW_ARRAY(arena, uint8_t, array->elements);
    }
    if (array->elements) memset(array->init, 0, sizeof *array->init * (size_t)array->elements);
    if (mem->watched) registers_touched(agent, mem, 0, array->elements);
}

// As a launch does.
static void refuse_scratch(Agent *agent, const Mem *mem) {
    Machine *machine = agent->cta->machine;
    emu_report(machine, agent->pc, T_HOST_VALUE, "a shape", machine->code->func->name,
               arena_printf(machine->arena, "scratch '%s' is too large or negative", mem->buf->name));
    machine->stop = true;
}

static void declare_scratch(Agent *agent, Mem *mem) {   // a program's workspace
    Arena *arena = agent->cta->machine->arena;
    EmuTensor *tensor = NEW(arena, EmuTensor);
    tensor->type = mem->type;
    tensor->rank = mem->rank;
    int64_t elements = 1;
    for (int d = mem->rank - 1; d >= 0; d--) {
        int slot = mem->shape_slots[d];
        int64_t extent = slot >= 0 ? agent->regs[slot].i[0] : mem->shape[d];
        if (extent < 0) refuse_scratch(agent, mem);
        mem->shape[d] = tensor->shape[d] = extent < 0 ? 0 : extent;
        mem->stride[d] = tensor->strides[d] = elements;
        elements *= tensor->shape[d];
    }
    mem->elements = elements;
    tensor->bytes = (size_t)(elements * mem->bytes);
    uint8_t *data = arena_alloc(arena, tensor->bytes + 256);
    tensor->data = data + (256 - (uintptr_t)data % 256) % 256;   // as device memory is
    bool zeroed = attr_get(mem->buf->attrs, ATTR_ZEROED) != NULL;
    memset(tensor->data, zeroed ? 0 : 0xff, tensor->bytes);
    if (zeroed) tensor->zeroed = mem->buf;
    else tensor->initialised = NEW_ARRAY(arena, uint8_t, elements + 1);
    mem->tensor = tensor;
    mem->data = tensor->data;
    mem->state = tensor->initialised;
}

void mem_declare(Agent *agent, int index) {
    Mem *mem = machine_mem(agent->cta->machine, index);
    if (mem->scope == SCOPE_LOCAL) declare_local(agent, mem);
    else if (mem->scope == SCOPE_GLOBAL) declare_scratch(agent, mem);
    else if (!mem->buf->alias_of && !mem->buf->channel)   // (another CTA may have begun to fill a slot)
        state_set(agent->cta, mem, 0, mem->elements, STATE_NONE);
}
