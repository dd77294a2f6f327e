// TMA: copies between tensors and shared memory by a unit of its own: of boxes, and of consecutive elements (which are
// a box of rows of a few bytes here).
//
// A started copy is kept in the CTA's list. Whenever the schedule lets it, some copy of the list moves some of its
// rows, in an order of its own: bytes land late, in pieces, and no two copies in the order in which they were started.
// A load adds its landed bytes to its mbarrier. A store first reads shared memory and then, some time later, writes the
// tensor: bulk_wait with `read` waits for the first of these only. A wait completes the copies that it waits for.
//     tma_load(As, map, full, 64, 0)       As is being written; nothing moves
//     ... other agents run ...             rows 17, 30, 43, ... land: full lacks 14336 of 16384 bytes
//     mbarrier_wait(full, 0)               blocks until the phase completes
//
// Where the bytes of a box lie in shared memory: row after row, `pitch` bytes apart; the units of 16 bytes change
// places by the bits of their address (target/tma.c), so the destination's own address counts. Coordinates may lie
// outside of the tensor on any side: a load writes zeros there (and counts their bytes), a store leaves them out.
//
// The unit's reads and writes are recorded for happens-before when the copy starts (race.c). They stay unordered until
// a thread waits for the copy, so every access before that wait is reported.
#include "emulator/machine.h"
#include "support/numbers.h"
#include <string.h>

// How an im2col map walks from place to place; innermost window first.
typedef struct Walk {
    int64_t stride[MOST_WINDOWS], lower[MOST_WINDOWS], upper[MOST_WINDOWS], offset[MOST_WINDOWS];
} Walk;

struct BulkCopy {
    Agent *agent;   // that started it, while it has not ended
    int lane, group, pc;
    bool store, adds, has_read;   // adds: to the tensor; has_read: a store, its bytes are in `held`
    const MapCode *map;
    const Mem *tensor, *shared;
    MBarrier *barrier;
    int64_t byte;                 // of shared memory, where the box begins
    int64_t at[MAX_RANK];         // coordinates, innermost first
    Walk walk;                    // of an im2col map
    int64_t moved, first, step;   // rows: the n-th to move is (first + n * step) % rows
    uint8_t *held;
    int64_t held_bytes;
};

// ---- boxes ----
// Adds an index of a tensor's dim to the offset; false: it lies outside.
static bool add_index(const Mem *mem, int dim, int64_t index, int64_t *offset) {
    *offset += index * mem->stride[dim];
    return (uint64_t)index < (uint64_t)mem->shape[dim];
}

// The row of a tiled box: dim d of the box is dim last - d of the tensor.
static bool tiled_row(const BulkCopy *copy, int64_t row, int64_t *offset) {
    const MapCode *map = copy->map;
    bool inside = true;
    for (int d = 1; d < map->box_rank; d++) {
        inside &= add_index(copy->tensor, copy->tensor->rank - 1 - d, copy->at[d] + row % map->box[d], offset);
        row /= map->box[d];
    }
    return inside;
}

// Of a tensor whose leading dims are one.
static bool merged_row(const BulkCopy *copy, int64_t row, int64_t *offset) {
    const Mem *mem = copy->tensor;
    int64_t rows = 1, index = copy->at[1] + row;
    for (int d = 0; d < mem->rank - 1; d++) rows *= mem->shape[d];
    *offset += index * mem->stride[mem->rank - 2];
    return (uint64_t)index < (uint64_t)rows;
}

// Place after place, as the unit counts them: a coordinate beyond the upper corner goes back to the lower one.
static bool im2col_row(const BulkCopy *copy, int64_t row, int64_t *offset) {
    const Walk *walk = &copy->walk;
    int windows = copy->map->offsets, last = copy->tensor->rank - 1;
    int64_t at[MOST_WINDOWS], image = copy->at[windows + 1];
    for (int i = 0; i < windows; i++) at[i] = copy->at[i + 1];
    for (; row > 0; row--) {
        int i = 0;
        while (i < windows && (at[i] += walk->stride[i]) > walk->upper[i]) at[i] = walk->lower[i], i++;
        image += i == windows;
    }
    bool inside = add_index(copy->tensor, 0, image, offset);
    for (int i = 0; i < windows; i++) inside &= add_index(copy->tensor, last - 1 - i, at[i] + walk->offset[i], offset);
    return inside;
}

// Elements of the row that lie inside of the tensor: `count` from its element `skip` on, at element *offset of the
// tensor.
static int64_t row_inside(const BulkCopy *copy, int64_t row, int64_t *skip, int64_t *offset) {
    const MapCode *map = copy->map;
    const Mem *mem = copy->tensor;
    int last = mem->rank - 1;
    *offset = *skip = 0;
    if (map->linear) {
        *offset = copy->at[0] + row * map->box[0];
        return map->box[0];
    }
    bool inside = map->offsets  ? im2col_row(copy, row, offset)
                  : map->merged ? merged_row(copy, row, offset)
                                : tiled_row(copy, row, offset);
    if (!inside) return *offset = 0;
    int64_t begin = copy->at[0] < 0 ? 0 : copy->at[0], end = copy->at[0] + map->box[0];
    if (end > mem->shape[last]) end = mem->shape[last];
    *skip = begin - copy->at[0];
    *offset += begin * mem->stride[last];
    return end > begin ? end - begin : 0;
}

// The row's bytes lie in shared memory in pieces that stay together; this is where the one from byte `from` on is.
static int64_t piece_bytes(const BulkCopy *copy) {
    return copy->map->swizzle ? tma_facts.unit_bytes : copy->map->row_bytes;
}

static int64_t piece_at(const BulkCopy *copy, int64_t row, int64_t from) {
    return tma_swizzled(copy->byte + row * copy->map->pitch + from, copy->map->swizzle);
}

// ---- copies in flight ----
static BulkCopy *new_copy(Cta *cta) {
    Arena *arena = cta->machine->arena;
    if (cta->bulk_count == cta->bulk_capacity) {
        int grown = cta->bulk_capacity ? 2 * cta->bulk_capacity : 16;
        cta->bulk = arena_grow(arena, cta->bulk, sizeof *cta->bulk * (size_t)cta->bulk_count,
                               sizeof *cta->bulk * (size_t)grown);
        for (int i = cta->bulk_count; i < grown; i++) cta->bulk[i] = NEW(arena, BulkCopy);
        cta->bulk_capacity = grown;
    }
    cta->machine->bulk_count++;
    return cta->bulk[cta->bulk_count++];
}

static void forget_copy(Cta *cta, int index) {   // its memory is used again
    BulkCopy *copy = cta->bulk[index];
    cta->bulk[index] = cta->bulk[--cta->bulk_count];
    cta->bulk[cta->bulk_count] = copy;
    cta->machine->bulk_count--;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

static void choose_order(Machine *machine, BulkCopy *copy) {
    int64_t rows = copy->map->rows;
    copy->moved = 0;
    copy->first = random_below(&machine->random, (uint32_t)rows);
    do copy->step = 1 + random_below(&machine->random, (uint32_t)rows);
    while (common_divisor(copy->step, rows) != 1);
}

// ---- rows that move ----
static void set_states(Cta *cta, int64_t byte, int64_t bytes, int value) {
    int granule = cta->machine->code->granule;
    memset(cta->shared_state + byte / granule, value, (size_t)(bytes / granule));
}

static void round_to_tf32(uint8_t *to, int64_t bytes) {
    float value;
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof value) {
        memcpy(&value, to + at, sizeof value);
        value = (float)to_tf32(value);
        memcpy(to + at, &value, sizeof value);
    }
}

static void load_row(Cta *cta, const BulkCopy *copy, int64_t row) {
    int64_t skip, offset, element = copy->tensor->bytes, bytes = piece_bytes(copy);
    int64_t count = row_inside(copy, row, &skip, &offset), begin = skip * element, end = begin + count * element;
    const uint8_t *from = copy->tensor->data + offset * element - begin;
    for (int64_t at = 0; at < copy->map->row_bytes; at += bytes) {
        int64_t low = larger(begin, at), high = smaller(end, at + bytes), to = piece_at(copy, row, at);
        memset(cta->shared + to, 0, (size_t)bytes);
        if (count && low < high) memcpy(cta->shared + to + (low - at), from + low, (size_t)(high - low));
        if (copy->map->tf32) round_to_tf32(cta->shared + to, bytes);
        set_states(cta, to, bytes, STATE_READY);
    }
}

static void hold_row(Cta *cta, const BulkCopy *copy, int64_t row) {   // the first half of a store
    int64_t bytes = piece_bytes(copy);
    for (int64_t at = 0; at < copy->map->row_bytes; at += bytes) {
        int64_t from = piece_at(copy, row, at);
        memcpy(copy->held + row * copy->map->row_bytes + at, cta->shared + from, (size_t)bytes);
        set_states(cta, from, bytes, STATE_READY);
    }
}

static void add_row(Type type, uint8_t *to, const uint8_t *from, int64_t count) {
    int bytes = type_bytes(type);
    for (int64_t i = 0; i < count; i++, to += bytes, from += bytes) {
        Word a = element_load(type, to), b = element_load(type, from), sum;
        if (type_is_float(type)) sum.f = (float)(a.f + b.f);
        else sum.i = int_wrap(type, (int64_t)((uint64_t)a.i + (uint64_t)b.i));
        element_store(type, to, sum);
    }
}

static void store_row(const BulkCopy *copy, int64_t row) {   // the second half
    int64_t skip, offset, element = copy->tensor->bytes, count = row_inside(copy, row, &skip, &offset);
    if (!count) return;
    const uint8_t *from = copy->held + row * copy->map->row_bytes + skip * element;
    uint8_t *to = copy->tensor->data + offset * element;
    if (copy->adds) add_row(copy->tensor->type, to, from, count);
    else memcpy(to, from, (size_t)(count * element));
    if (copy->tensor->state) memset(copy->tensor->state + offset, STATE_READY, (size_t)count);
}

// Moves up to `most` rows; returns whether all have been moved.
static bool move_rows(Cta *cta, BulkCopy *copy, int64_t most) {
    const MapCode *map = copy->map;
    int64_t moved = 0;
    for (; moved < most && copy->moved < map->rows; moved++) {
        int64_t row = (copy->first + copy->moved++ * copy->step) % map->rows;
        if (!copy->store) load_row(cta, copy, row);
        else if (!copy->has_read) hold_row(cta, copy, row);
        else store_row(copy, row);
    }
    if (!copy->store) mbarrier_transact(cta, copy->barrier, moved * map->row_bytes);
    if (copy->moved < map->rows) return false;
    if (!copy->store || copy->has_read) return true;
    copy->has_read = true;
    choose_order(cta->machine, copy);
    return false;
}

bool bulk_advance(Machine *machine) {
    if (!machine->bulk_count) return false;
    int chosen = (int)random_below(&machine->random, (uint32_t)machine->bulk_count);
    Cta *cta = machine->ctas;
    for (; chosen >= cta->bulk_count; cta++) chosen -= cta->bulk_count;
    BulkCopy *copy = cta->bulk[chosen];
    int64_t most = 1 + random_below(&machine->random, (uint32_t)copy->map->rows);
    if (move_rows(cta, copy, most)) forget_copy(cta, chosen);
    return true;
}

// ---- the start ----
static bool box_place(Agent *agent, const Place *place, int lane, BulkCopy *copy) {
    const MapCode *map = copy->map;
    int align = map->linear ? tma_facts.unit_bytes : tma_facts.shared_align;
    const Mem *mem = copy->shared = machine_mem(agent->cta->machine, place->mem);
    int64_t row = map->swizzle ? map->pitch : map->row_bytes, bytes = (map->rows - 1) * map->pitch + row;
    int64_t spans[LANES], offsets[LANES];
    for (int l = 0; l < LANES; l++) spans[l] = (bytes + mem->bytes - 1) / mem->bytes;
    if (!place_offsets(agent, place, (Mask)1 << lane, spans, offsets)) return false;
    copy->byte = mem->offset + offsets[lane] * mem->bytes;
    return access_aligned(agent, mem, offsets[lane], align, lane);
}

static void note_shared(Agent *agent, Cta *cta, const BulkCopy *copy, const Actor *actor, int lane) {
    const Mem *mem = copy->shared;
    int64_t bytes = piece_bytes(copy);
    bool fits = true;   // one report is enough
    for (int64_t row = 0; row < copy->map->rows; row++)
        for (int64_t at = 0; at < copy->map->row_bytes; at += bytes) {
            int64_t byte = piece_at(copy, row, at), element = (byte - mem->offset) / mem->bytes;
            actor_shared(cta, actor, byte, (int)bytes, copy->store ? TOUCH_READ : TOUCH_WRITE, mem);
            if (fits && copy->store) fits = state_readable_in(agent, cta, mem, element, bytes / mem->bytes, lane);
            else if (fits) fits = state_writable_in(agent, cta, mem, element, bytes / mem->bytes, lane);
            set_states(cta, byte, bytes, copy->store ? STATE_READY | STATE_READING : STATE_WRITING);
        }
}

static void note_tensor(Agent *agent, const BulkCopy *copy, const Actor *actor, int lane) {
    bool fits = true;
    for (int64_t row = 0; row < copy->map->rows; row++) {
        int64_t skip, offset, count = row_inside(copy, row, &skip, &offset);
        if (!count) continue;
        if (fits && !copy->store) fits = state_readable(agent, copy->tensor, offset, count, lane);
        Touch touch = copy->adds ? TOUCH_ATOMIC : copy->store ? TOUCH_WRITE : TOUCH_READ;
        if (fits && copy->adds) fits = state_readable(agent, copy->tensor, offset, count, lane);
        actor_global(agent, lane, actor, copy->tensor, offset, count, touch);
    }
}

static void start_load(Agent *agent, Cta *cta, BulkCopy *copy, int lane) {
    Actor actor = actor_start(cta, UNIT_MBARRIER, copy->barrier->number, agent->pc);
    actor_acts_for(agent, (Mask)1 << lane, &actor);
    const MBarrier *barrier = copy->barrier;
    uint32_t known = actor_knows(cta, &actor, barrier->init_thread);
    bool same = barrier->init_thread == agent->first_thread + lane;
    if (!barrier->announced || (!same && known <= barrier->announced))
        emu_report(cta->machine, agent->pc, T_EMU_ANNOUNCED, mbarrier_text(cta, barrier));
    note_shared(agent, cta, copy, &actor, lane);
    note_tensor(agent, copy, &actor, lane);
    actor_end(cta, &actor);
    mbarrier_started(agent, copy->barrier, copy->map->rows * copy->map->row_bytes);
}

static void start_store(Agent *agent, BulkCopy *copy, int lane) {
    Cta *cta = agent->cta;
    int warp = agent->first_thread / LANES;
    Actor reads = actor_start(cta, UNIT_READS, warp, agent->pc),
          writes = actor_start(cta, UNIT_WRITES, warp, agent->pc);
    actor_acts_for(agent, (Mask)1 << lane, &reads);
    actor_acts_for(agent, (Mask)1 << lane, &writes);
    note_shared(agent, cta, copy, &reads, lane);
    note_tensor(agent, copy, &writes, lane);
    actor_end(cta, &reads);
    actor_end(cta, &writes);
    int64_t bytes = copy->map->rows * copy->map->row_bytes;
    if (copy->held_bytes < bytes) copy->held = NEW_ARRAY(cta->machine->arena, uint8_t, copy->held_bytes = bytes);
    copy->agent = agent;
    copy->group = agent->bulk.last[lane] = agent->bulk.closed[lane];
    agent->bulk.pc = agent->pc;
}

// Into the memory of a CTA: the agent's own, or another of the cluster.
static void start_in(Agent *agent, Cta *cta, const Call *call, BulkCopy box) {
    if (!box.store &&
        !(box.barrier = mbarrier_of(agent, cta, CALL_ARG(call, TMA_LOAD, bar).place, box.lane, cta == agent->cta)))
        return;
    BulkCopy *copy = new_copy(cta);
    box.held = copy->held;
    box.held_bytes = copy->held_bytes;
    *copy = box;
    spend(agent, box.map->rows * box.map->row_bytes, STEP_BYTES);
    choose_order(cta->machine, copy);
    if (box.store) start_store(agent, copy, box.lane);
    else start_load(agent, cta, copy, box.lane);
}

// Elements of the tensor that follow each other in memory from this one on: to the end of its row, or of all rows that
// have no gaps between.
static int64_t line_room(const Agent *agent, const Place *place, int lane, const Mem *mem) {
    int64_t room = 1, dense = 1;
    for (int d = place->rank - 1; d >= 0 && mem->stride[d] == dense; d--) {
        int64_t index = agent->regs[place->index[d]].i[place->varying[d] ? lane : 0];
        room += (mem->shape[d] - 1 - index) * dense;
        dense *= mem->shape[d];
    }
    return room;
}

// The consecutive elements of a tensor; unlike a box's they must all be there.
static bool line_place(Agent *agent, const Place *place, int lane, BulkCopy *copy) {
    int64_t spans[LANES], offsets[LANES];
    const Mask mask = (Mask)1 << lane;
    for (int l = 0; l < LANES; l++) spans[l] = copy->map->rows * copy->map->box[0];
    if (!place_offsets(agent, place, mask, NULL, offsets)) return false;
    if (line_room(agent, place, lane, copy->tensor) < spans[lane] && !place_offsets(agent, place, mask, spans, offsets))
        return false;   // and reported
    copy->at[0] = offsets[lane];
    return access_aligned(agent, copy->tensor, offsets[lane], tma_facts.unit_bytes, lane);
}

static void start_line(Agent *agent, const Call *call, int lane) {
    bool store = call->op == OP_BULK_STORE;
    BulkCopy line = {.store = store, .map = call->line, .pc = agent->pc, .lane = lane};
    line.tensor = machine_mem(agent->cta->machine, line.map->mem);
    const Place *to = CALL_ARG(call, BULK_LOAD, dst).place, *from = CALL_ARG(call, BULK_LOAD, src).place;
    if (line_place(agent, store ? to : from, lane, &line) && box_place(agent, store ? from : to, lane, &line))
        start_in(agent, agent->cta, call, line);
}

// Whether the box has a row that ends at the end of its tensor's row, within a unit.
static bool ends_within_unit(const BulkCopy *box) {
    const Mem *mem = box->tensor;
    int64_t extent = mem->shape[mem->rank - 1], skip, offset;
    if (extent * mem->bytes % tma_facts.unit_bytes == 0 || box->at[0] + box->map->box[0] <= extent) return false;
    for (int64_t row = 0; row < box->map->rows; row++)
        if (row_inside(box, row, &skip, &offset)) return true;
    return false;
}

// Whether a store stays in its tensor: none has a corner below 0 (CUDA's guide; a load may), and TMA writes whole
// units, also where a row ends within one (measured on an H200).
static bool store_fits(Agent *agent, const BulkCopy *box, const char *op) {
    Machine *machine = agent->cta->machine;
    const Mem *mem = box->tensor;
    for (int d = 0; d < box->map->rank; d++) {
        if (box->at[d] >= 0) continue;
        emu_report(machine, agent->pc, T_EMU_BELOW, op, (long long)box->at[d]);
        return false;
    }
    if (!ends_within_unit(box)) return true;
    emu_report(machine, agent->pc, T_EMU_PART_OF_UNIT, op, mem->buf->name,
               (long long)mem->shape[mem->rank - 1] * mem->bytes);
    return false;
}

// A swizzle moves whole units, so a box that has one starts at a unit of the rows (measured on an H200: elsewhere it is an illegal
// instruction. Without swizzle it may start anywhere).
static bool starts_at_unit(Agent *agent, const BulkCopy *box, const char *op) {
    int64_t byte = box->at[0] * box->tensor->bytes;
    if (!box->map->swizzle || byte % tma_facts.unit_bytes == 0) return true;
    emu_report(agent->cta->machine, agent->pc, T_EMU_BETWEEN_UNITS, op, (long long)byte, box->tensor->buf->name);
    return false;
}

static Walk walk_of(const Agent *agent, const Im2colCode *im2col, const CallArg *offsets, int lane) {
    Walk walk = {0};
    for (int i = 0; i < im2col->count; i++) {
        const WindowCode *w = &im2col->windows[im2col->count - 1 - i];
        walk.stride[i] = w->stride;
        walk.lower[i] = -w->padding;
        walk.upper[i] = (agent->regs[w->positions].i[lane] - 1) * w->stride - w->padding;
        walk.offset[i] = (uint16_t)agent->regs[offsets[i].slot].i[lane];
    }
    return walk;
}

static void start_lane(Agent *agent, const Call *call, int lane) {
    Cta *cta = agent->cta;
    bool adds = call->op == OP_TMA_ADD, store = adds || call->op == OP_TMA_STORE, all = call->op == OP_TMA_MULTICAST;
    int coordinates = op_info(call->op)->operand_count - 1;   // the last operand
    const CallArg *map = store ? &CALL_ARG(call, TMA_STORE, map) : &CALL_ARG(call, TMA_LOAD, map);
    const CallArg *tile = store ? &CALL_ARG(call, TMA_STORE, src) : &CALL_ARG(call, TMA_LOAD, dst);
    BulkCopy box = {.store = store, .adds = adds, .map = map->map, .pc = agent->pc, .lane = lane};
    box.tensor = machine_mem(cta->machine, box.map->mem);
    for (int d = 0; d < box.map->rank; d++)   // a coordinate has 32 bits, an offset 16
        box.at[d] = (int32_t)agent->regs[call->args[coordinates + d].slot].i[lane];
    if (map->im2col) box.walk = walk_of(agent, map->im2col, &call->args[coordinates + box.map->rank], lane);
    if (store && !store_fits(agent, &box, op_info(call->op)->text)) return;
    if (!starts_at_unit(agent, &box, op_info(call->op)->text)) return;
    if (!box_place(agent, tile->place, lane, &box)) return;
    if (!all) {
        start_in(agent, cta, call, box);
        return;
    }
    uint64_t mask = (uint64_t)agent->regs[CALL_ARG(call, TMA_MULTICAST, mask).slot].i[lane];
    for (int rank = 0; mask && !cta->machine->stop; rank++, mask >>= 1) {
        Cta *peer = mask & 1 ? cluster_peer(agent, rank, lane) : NULL;
        if (peer) start_in(agent, peer, call, box);
    }
}

static void bulk_start(Agent *agent, const Call *call) {
    for (Mask m = agent->mask; m && !agent->cta->machine->stop; m &= m - 1) {
        if (call->line) start_line(agent, call, __builtin_ctz(m));
        else start_lane(agent, call, __builtin_ctz(m));
    }
}

// ---- groups of stores ----
// Units count the groups of a warp. A thread that waits for its own group learns of all that the warp had closed by
// then.
static void bulk_commit(Agent *agent) {
    if (!agent->warp) return;   // at tile stage nothing is late
    Cta *cta = agent->cta;
    int warp = agent->first_thread / LANES;
    for (Mask m = agent->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        agent->bulk.epochs[l][agent->bulk.closed[l]++ % BULK_GROUPS] = unit_epoch(cta, UNIT_READS, warp);
    }
    unit_next(cta, UNIT_READS, warp);
    unit_next(cta, UNIT_WRITES, warp);
}

static void finish_groups(Agent *agent, int lane, int groups, bool only_reads) {   // those numbered below `groups`
    Cta *cta = agent->cta;
    for (int i = cta->bulk_count - 1; i >= 0; i--) {
        BulkCopy *copy = cta->bulk[i];
        bool waited = copy->store && copy->agent == agent && copy->lane == lane && copy->group < groups;
        bool done = false;
        while (waited && !done && !(only_reads && copy->has_read)) done = move_rows(cta, copy, copy->map->rows);
        if (done) forget_copy(cta, i);
    }
}

static void bulk_wait(Agent *agent, const Call *call) {
    if (!agent->warp) return;
    int n = (int)CALL_ARG(call, BULK_WAIT, n).number, warp = agent->first_thread / LANES;
    bool only_reads = CALL_ARG(call, BULK_WAIT, what).name;
    if (n >= BULK_GROUPS) {
        emu_report(agent->cta->machine, agent->pc, T_EMU_UNSUPPORTED, "bulk_wait of so many groups");
        agent->cta->machine->stop = true;
        return;
    }
    for (Mask m = agent->mask; m; m &= m - 1) {
        int l = __builtin_ctz(m), groups = agent->bulk.closed[l] - n;
        if (groups <= 0) continue;
        finish_groups(agent, l, groups, only_reads);
        if (groups > agent->bulk.read[l]) agent->bulk.read[l] = groups;
        uint32_t epoch = agent->bulk.epochs[l][(groups - 1) % BULK_GROUPS];
        unit_learn(agent, (Mask)1 << l, UNIT_READS, warp, epoch);
        if (!only_reads) unit_learn(agent, (Mask)1 << l, UNIT_WRITES, warp, epoch);
    }
}

// ---- ends ----
void bulk_agent_ends(Agent *agent) {   // shared memory may be gone after it
    Cta *cta = agent->cta;
    for (Mask m = agent->full; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (agent->bulk.last[l] >= agent->bulk.read[l])
            emu_report(cta->machine, agent->bulk.pc, T_EMU_PENDING, thread_text(agent, l),
                       "the reading half of its tma_store");
    }
    for (int i = 0; i < cta->bulk_count; i++)
        if (cta->bulk[i]->agent == agent) cta->bulk[i]->agent = NULL;
}

static bool load_pending(const Cta *cta, const MBarrier *barrier) {   // no thread has waited for it
    if (!cta->machine->races) return barrier->landed < barrier->copied;
    return barrier->loaded && unit_known_best(cta, UNIT_MBARRIER, barrier->number) < barrier->loaded;
}

void bulk_block_ends(Cta *cta) {
    Machine *machine = cta->machine;
    for (int i = 0; i < cta->mbarrier_count; i++) {
        const MBarrier *barrier = cta->mbarrier_list[i];
        if (!load_pending(cta, barrier)) continue;
        emu_report(machine, barrier->load_pc, T_EMU_PENDING,
                   arena_printf(machine->arena, "CTA %lld", (long long)cta->index),
                   arena_printf(machine->arena, "a copy that completes on %s", mbarrier_text(cta, barrier)));
    }
    while (cta->bulk_count) {
        BulkCopy *copy = cta->bulk[cta->bulk_count - 1];
        while (copy->store && !move_rows(cta, copy, copy->map->rows)) {}
        forget_copy(cta, cta->bulk_count - 1);
    }
}

int bulk_writing(const Cta *cta, int64_t byte) {
    for (int i = 0; i < cta->bulk_count; i++) {
        const BulkCopy *copy = cta->bulk[i];
        int64_t bytes = copy->map->rows * copy->map->pitch;
        if (!copy->store && byte >= copy->byte && byte < copy->byte + bytes) return copy->pc;
    }
    return -1;
}

const OpHandler bulk_handlers[OP_COUNT] = {
    [OP_TMA_LOAD] = {.effect = bulk_start},          [OP_TMA_MULTICAST] = {.effect = bulk_start},
    [OP_TMA_ADD] = {.effect = bulk_start},           [OP_TMA_STORE] = {.effect = bulk_start},
    [OP_BULK_LOAD] = {.effect = bulk_start},         [OP_BULK_STORE] = {.effect = bulk_start},
    [OP_BULK_COMMIT] = {.no_operands = bulk_commit}, [OP_BULK_WAIT] = {.effect = bulk_wait},
};
