// cp.async: copies of a warp that land late.
//
// A started copy is kept until every lane has waited for it, and its destination is marked as being written. Nothing is
// moved before that: a read before that sees old bytes (and is reported). Groups are counted by lane, since `commit`
// and `wait` are the thread's: a copy belongs to the group that the lane's next commit closes, and wait(n) lands those
// of all but the n newest closed groups. After the wait the bytes are as if the lane itself had just stored them: other
// threads need a barrier as for any store (race.c).
#include "emulator/machine.h"
#include <string.h>

static Copy *new_copy(Agent *agent) {
    if (agent->cp_async.count == agent->cp_async.capacity) {
        int grown = agent->cp_async.capacity ? 2 * agent->cp_async.capacity : 16;
        agent->cp_async.copies = arena_grow(agent->cta->machine->arena, agent->cp_async.copies,
                                            sizeof(Copy) * (size_t)agent->cp_async.count, sizeof(Copy) * (size_t)grown);
        agent->cp_async.capacity = grown;
    }
    return &agent->cp_async.copies[agent->cp_async.count++];
}

// Elements that each lane really reads: `valid` of them, none where the last operand says so.
static void read_spans(const Agent *agent, const Call *call, int64_t n, int64_t *spans) {
    const CallArg *valid = &CALL_ARG(call, CP_ASYNC, valid);
    for (int l = 0; l < LANES; l++) {
        int64_t count = valid->has_value ? agent->regs[valid->slot].i[l] : n;
        spans[l] = count < 0 ? 0 : count > n ? n : count;
    }
}

static Mask lanes_that_read(Mask mask, const int64_t *spans) {
    Mask reading = 0;
    for (Mask m = mask; m; m &= m - 1)
        if (spans[__builtin_ctz(m)] > 0) reading |= m & -m;
    return reading;
}

static void start_lane(Agent *agent, Copy *copy, int l, int64_t to, int64_t n) {
    const Cta *cta = agent->cta;
    bool races = cta->machine->options.races;
    copy->to[l] = copy->dst->offset + to * copy->dst->bytes;
    copy->group[l] = agent->cp_async.committed[l];
    access_aligned(agent, copy->dst, to, copy->bytes, l);
    if (copy->valid[l]) {
        int64_t count = copy->valid[l] / copy->src->bytes;
        state_readable(agent, copy->src, copy->from[l], count, l);
        access_aligned(agent, copy->src, copy->from[l], copy->bytes, l);
        if (races) race_global(agent, l, copy->src, copy->from[l], (int)count, TOUCH_READ, agent->pc);
    }
    if (races) race_shared(agent, l, copy->to[l], copy->bytes, TOUCH_WRITE, copy->dst, agent->pc);
    state_writable(agent, copy->dst, to, n, l);
    state_set(cta, copy->dst, to, n, STATE_WRITING);
}

static void copy_start(Agent *agent, const Call *call) {
    Machine *machine = agent->cta->machine;
    int64_t n = CALL_ARG(call, CP_ASYNC, n).number, spans[LANES], whole[LANES], to[LANES];
    for (int l = 0; l < LANES; l++) whole[l] = n;
    read_spans(agent, call, n, spans);
    Copy *copy = new_copy(agent);
    copy->pc = agent->pc;
    copy->dst = machine_mem(machine, CALL_ARG(call, CP_ASYNC, dst).place->mem);
    copy->src = machine_mem(machine, CALL_ARG(call, CP_ASYNC, src).place->mem);
    copy->bytes = (int)n * copy->dst->bytes;
    copy->pending = place_offsets(agent, CALL_ARG(call, CP_ASYNC, dst).place, agent->mask, whole, to);
    spend(agent, __builtin_popcount(copy->pending) * copy->bytes, STEP_BYTES);
    Mask reading = lanes_that_read(copy->pending, spans);
    Mask readable = reading ? place_offsets(agent, CALL_ARG(call, CP_ASYNC, src).place, reading, spans, copy->from) : 0;
    for (Mask m = copy->pending; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        copy->valid[l] = readable >> l & 1 ? (int)spans[l] * copy->src->bytes : 0;
        start_lane(agent, copy, l, to[l], n);
    }
    int64_t bytes_at[LANES];
    memcpy(bytes_at, copy->to, sizeof bytes_at);
    conflicts_count(agent, copy->dst, bytes_at, copy->pending, copy->bytes);
}

static void copy_commit(Agent *agent) {
    if (!agent->warp) {
        tile_commit(agent);
        return;
    }
    for (Mask m = agent->mask; m; m &= m - 1) agent->cp_async.committed[__builtin_ctz(m)]++;
}

static void land_lane(Agent *agent, Copy *copy, int l) {
    Cta *cta = agent->cta;
    uint8_t *to = cta->shared + copy->to[l];
    if (copy->valid[l]) memcpy(to, mem_data(cta, copy->src) + copy->from[l] * copy->src->bytes, (size_t)copy->valid[l]);
    memset(to + copy->valid[l], 0, (size_t)(copy->bytes - copy->valid[l]));
    int64_t element = (copy->to[l] - copy->dst->offset) / copy->dst->bytes;
    state_set(cta, copy->dst, element, copy->bytes / copy->dst->bytes, STATE_READY);
    copy->pending &= ~((Mask)1 << l);
    if (!cta->machine->options.races) return;
    if (copy->valid[l])   // the source is read until now
        race_global(agent, l, copy->src, copy->from[l], copy->valid[l] / copy->src->bytes, TOUCH_READ, copy->pc);
    race_shared(agent, l, copy->to[l], copy->bytes, TOUCH_WRITE, copy->dst, copy->pc);
}

static void forget_landed(Agent *agent) {
    int kept = 0;
    for (int i = 0; i < agent->cp_async.count; i++) {
        if (!agent->cp_async.copies[i].pending) continue;
        if (kept != i) agent->cp_async.copies[kept] = agent->cp_async.copies[i];
        kept++;
    }
    agent->cp_async.count = kept;
}

static void copy_wait(Agent *agent, const Call *call) {
    int64_t groups = CALL_ARG(call, CP_ASYNC_WAIT, n).number;
    if (!agent->warp) {
        tile_wait(agent, groups);
        return;
    }
    for (int i = 0; i < agent->cp_async.count; i++) {
        Copy *copy = &agent->cp_async.copies[i];
        for (Mask m = copy->pending & agent->mask; m; m &= m - 1) {
            int l = __builtin_ctz(m);
            if (copy->group[l] < agent->cp_async.committed[l] - groups) land_lane(agent, copy, l);
        }
    }
    forget_landed(agent);
}

void copies_land_all(Agent *agent) {
    for (int i = 0; i < agent->cp_async.count; i++)
        for (Mask m = agent->cp_async.copies[i].pending; m; m &= m - 1)
            land_lane(agent, &agent->cp_async.copies[i], __builtin_ctz(m));
    agent->cp_async.count = 0;
}

int copy_writing(const Cta *cta, int64_t byte) {
    for (int a = 0; a < cta->agent_count; a++) {
        const Agent *agent = cta->agents[a];
        for (int i = 0; i < agent->cp_async.count; i++) {
            const Copy *copy = &agent->cp_async.copies[i];
            for (Mask m = copy->pending; m; m &= m - 1) {
                int64_t to = copy->to[__builtin_ctz(m)];
                if (byte >= to && byte < to + copy->bytes) return copy->pc;
            }
        }
    }
    return -1;
}

const OpHandler copy_handlers[OP_COUNT] = {
    [OP_CP_ASYNC] = {.effect = copy_start},
    [OP_CP_ASYNC_COMMIT] = {.no_operands = copy_commit},
    [OP_CP_ASYNC_WAIT] = {.effect = copy_wait},
};
