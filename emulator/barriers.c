// Barriers: of the block or a role, named, of a warp, and mbarriers. Each carries a clock (race.c): who arrives tells
// it what it did, who leaves learns it.
#include "emulator/machine.h"

// Lanes of an agent that have a clock: threads of a warp; at tile stage a role, as one.
static Mask clocked(const Agent *agent) {
    if (!agent->cta->machine->races) return 0;
    return agent->warp || agent->role ? agent->full : 0;
}

// ---- barrier(), barrier(id, count): `barrier()` of the whole block is number 0, as on the device ----
static void complete(Cta *cta, Barrier *barrier, int id) {
    for (int i = 0; i < cta->agent_count; i++) {
        Agent *agent = cta->agents[i];
        if (agent->status != AGENT_BARRIER || agent->barrier != id) continue;
        agent->status = AGENT_READY;
        for (Mask m = clocked(agent); m; m &= m - 1)
            clock_depart(cta, barrier->clock, agent->first_thread + __builtin_ctz(m), true);
    }
    if (cta->machine->races) clock_drop(cta, &barrier->clock);
    barrier->arrived = 0;
    cta->machine->report->barriers++;
}

static int64_t operand(const Agent *agent, const Call *call, int index, int64_t otherwise) {
    if (index >= call->count || !call->args[index].has_value) return otherwise;
    return agent->regs[call->args[index].slot].i[__builtin_ctz(agent->mask)];
}

static bool count_agrees(Agent *agent, Barrier *barrier, int64_t id, int64_t expected) {
    Machine *machine = agent->cta->machine;
    bool whole = id >= NAMED_BARRIERS || expected == agent->region_threads || expected % LANES == 0;
    if (!barrier->arrived) barrier->expected = expected;
    if (whole && expected > 0 && barrier->expected == expected) return true;
    emu_report(machine, agent->pc, T_EMU_BARRIER_COUNT, (long long)id, (long long)expected,
               (long long)barrier->expected, thread_text(agent, __builtin_ctz(agent->full)));
    machine->stop = true;
    return false;
}

void barrier_sync(Agent *agent, const Call *call, bool waits) {
    Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    bool named = call->count > 0 && call->args[0].has_value;
    if (!agent->warp && !(agent->role && named)) return;   // at block level statements are in order anyway
    if (!whole_warp(agent, "barrier")) {
        machine->stop = true;
        return;
    }
    int64_t id = operand(agent, call, 0, agent->role ? agent->role->barrier : 0);
    int64_t expected = operand(agent, call, 1, agent->warp ? agent->region_threads : machine->code->block_threads);
    int64_t lanes = agent->warp ? __builtin_popcount(agent->full) : agent->role->threads;
    if (named) lanes = (lanes + LANES - 1) / LANES * LANES;   // named barriers count whole warps
    EXPECT(machine->failure, id >= 0 && (id < NAMED_BARRIERS || !named), "named barrier %lld", (long long)id);
    Barrier *barrier = &cta->barriers[id];
    if (!count_agrees(agent, barrier, id, expected)) return;
    barrier->arrived += lanes;
    for (Mask m = clocked(agent); m; m &= m - 1)
        clock_arrive(cta, &barrier->clock, agent->first_thread + __builtin_ctz(m));
    if (clocked(agent)) clock_tick(cta, agent->first_thread / LANES);
    if (waits) {
        agent->status = AGENT_BARRIER;
        agent->barrier = (int)id;
        agent->wait_pc = agent->pc;
    }
    if (barrier->arrived >= expected) complete(cta, barrier, (int)id);
}

void warp_sync(Agent *agent) {
    Cta *cta = agent->cta;
    if (!agent->warp || !whole_warp(agent, "warp_sync") || !cta->machine->races) return;
    Clock *clock = NULL;
    for (Mask m = agent->full; m; m &= m - 1) clock_arrive(cta, &clock, agent->first_thread + __builtin_ctz(m));
    for (Mask m = agent->full; m; m &= m - 1) clock_depart(cta, clock, agent->first_thread + __builtin_ctz(m), true);
    clock_tick(cta, agent->first_thread / LANES);
    clock_drop(cta, &clock);
}

// ---- mbarriers: a phase completes when all expected arrivals and bytes are there ----
static void wake_waiting(Cta *cta) {
    for (int i = 0; i < cta->agent_count; i++)
        if (cta->agents[i]->status == AGENT_MBARRIER) cta->agents[i]->status = AGENT_READY;
}

static void complete_phase(Cta *cta, MBarrier *barrier) {
    if (barrier->pending > 0 || barrier->bytes > 0) return;
    if (cta->machine->races) {
        clock_merge(cta, &barrier->done, barrier->clock);
        clock_drop(cta, &barrier->clock);
    }
    barrier->phase++;
    barrier->pending = barrier->expected;
    cta->machine->report->barriers++;
    wake_waiting(cta);
}

static MBarrier *mbarrier_at(Cta *cta, int64_t byte) {
    MBarrier **slot = &cta->mbarriers[byte / 8];
    if (!*slot) *slot = NEW(cta->machine->arena, MBarrier);
    return *slot;
}

static void initialise(Agent *agent, const Mem *mem, int64_t element, int64_t count) {
    Cta *cta = agent->cta;
    MBarrier *barrier = mbarrier_at(cta, mem->offset + element * mem->bytes);
    if (cta->machine->races) {
        clock_drop(cta, &barrier->clock);
        clock_drop(cta, &barrier->done);
    }
    *barrier = (MBarrier){.expected = count, .pending = count};
    state_set(cta, mem, element, 1, STATE_READY);
}

static void arrive(Agent *agent, MBarrier *barrier, int lane, int64_t bytes) {
    Cta *cta = agent->cta;
    barrier->bytes += bytes;
    barrier->pending--;
    if (clocked(agent)) clock_arrive(cta, &barrier->clock, agent->first_thread + lane);
    complete_phase(cta, barrier);
}

// False: the phase is not over, and the instruction will run again.
static bool wait_phase(Agent *agent, const MBarrier *barrier, int lane, int64_t parity) {
    if ((barrier->phase & 1) == (parity & 1)) {
        agent->status = AGENT_MBARRIER;
        agent->wait_pc = agent->pc;
        agent->pc--;
        return false;
    }
    if (clocked(agent)) clock_depart(agent->cta, barrier->done, agent->first_thread + lane, false);
    return true;
}

void mbarrier_op(Agent *agent, const Instr *in, const Call *call) {
    Cta *cta = agent->cta;
    const Place *place = call->args[0].place;
    const Mem *mem = machine_mem(cta->machine, place->mem);
    int64_t offsets[LANES];
    bool told = false;
    Mask mask = place_offsets(agent, place, in->wide ? agent->mask : 1, NULL, offsets);
    for (Mask m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        int64_t byte = mem->offset + offsets[l] * mem->bytes;
        int64_t value = call->count > 1 && call->args[1].has_value ? agent->regs[call->args[1].slot].i[l] : 0;
        Touch touch = call->op == OP_MBARRIER_INIT ? TOUCH_WRITE : TOUCH_ATOMIC;
        if (cta->machine->races) race_shared(agent, l, byte, mem->bytes, touch, mem, agent->pc);
        if (call->op == OP_MBARRIER_INIT) {
            initialise(agent, mem, offsets[l], value);
            continue;
        }
        if (!state_readable(agent, mem, offsets[l], 1, l)) return;
        MBarrier *barrier = mbarrier_at(cta, byte);
        if (call->op == OP_MBARRIER_WAIT) {
            if (!wait_phase(agent, barrier, l, value)) return;
            continue;
        }
        arrive(agent, barrier, l, call->op == OP_MBARRIER_EXPECT ? value : 0);
        told = true;
    }
    if (told && clocked(agent)) clock_tick(cta, agent->first_thread / LANES);
}
