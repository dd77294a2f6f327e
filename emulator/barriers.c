// Barriers: of the CTA or a role, named, of a warp, and mbarriers. Each carries a clock (race.c): an arrival adds the
// thread's clock to it, and a wait adds it to the thread's; so do copies that complete on an mbarrier.
#include "emulator/machine.h"

// Lanes of an agent that have a clock: threads of a warp; at tile stage a role, as one.
Mask clocked(const Agent *agent) {
    if (!agent->cta->machine->races) return 0;
    return agent->warp || agent->role ? agent->full : 0;
}

// ---- barrier(), barrier(id, count): `barrier()` of the whole CTA is number 0, as on the device ----
static void complete(Cta *cta, Barrier *barrier, int id) {
    for (int i = 0; i < cta->agent_count; i++) {
        Agent *agent = cta->agents[i];
        if (agent->status != AGENT_BARRIER || agent->barrier != id) continue;
        agent->status = AGENT_READY;
        for (Mask m = clocked(agent); m; m &= m - 1)
            clock_depart(cta, barrier->clock, agent->first_thread + __builtin_ctz(m), true);
    }
    if (cta->machine->races) {
        clock_drop(cta, &barrier->done);
        barrier->done = barrier->clock;
        barrier->clock = NULL;
    }
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

// An arrival that is not ordered after those of the phase before may come earlier and complete that phase, so that who
// waits goes on too soon or for ever. One schedule may be kind to it: this is the same in all of them.
static bool phase_is_clear(Agent *agent, const Barrier *barrier, int64_t id) {
    Machine *machine = agent->cta->machine;
    if (!clocked(agent) || !barrier->done || clock_known(agent, clocked(agent), barrier->done)) return true;
    emu_report(machine, agent->pc, T_EMU_BARRIER_PHASE, thread_text(agent, __builtin_ctz(agent->full)), (long long)id);
    machine->stop = true;
    return false;
}

// At tile stage the CTA's statements are in order, but thread regions and roles are not: they meet here.
static void order_regions(const Agent *agent) {
    Cta *cta = agent->cta;
    int first = agent->role ? agent->first_thread : cta->first_thread;
    int end = first + (int)(agent->role ? agent->role->threads : cta->machine->code->block_threads);
    if (!cta->machine->races) return;
    Clock *clock = NULL;
    for (int t = first; t < end; t++) clock_arrive(cta, &clock, t);
    for (int t = first; t < end; t++) clock_depart(cta, clock, t, true);
    for (int t = first; t < end; t += LANES) clock_tick(cta, t / LANES);
    clock_drop(cta, &clock);
}

static void barrier_sync(Agent *agent, const Call *call) {
    bool waits = call->op == OP_BARRIER;
    Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    bool named = CALL_ARG(call, BARRIER, id).has_value;
    if (!agent->warp && !(agent->role && named)) return order_regions(agent);
    if (!whole_warp(agent, "barrier")) {
        machine->stop = true;
        return;
    }
    int64_t id = operand(agent, call, OPERAND_INDEX(BARRIER, id), agent->role ? agent->role->barrier : 0);
    int64_t expected = operand(agent, call, OPERAND_INDEX(BARRIER, count),
                               agent->warp ? agent->region_threads : machine->code->block_threads);
    int64_t lanes = agent->warp ? __builtin_popcount(agent->full) : agent->role->threads;
    if (named) lanes = (lanes + LANES - 1) / LANES * LANES;   // named barriers count whole warps
    if (id < 0 || (id >= NAMED_BARRIERS && named)) {
        emu_report(machine, agent->pc, T_EMU_UNSUPPORTED, arena_printf(machine->arena, "barrier %lld", (long long)id));
        machine->stop = true;
        return;
    }
    Barrier *barrier = &cta->barriers[id];
    if (!count_agrees(agent, barrier, id, expected) || !phase_is_clear(agent, barrier, id)) return;
    barrier->arrived += lanes;
    for (Mask m = clocked(agent); m; m &= m - 1)
        clock_arrive(cta, &barrier->clock, agent->first_thread + __builtin_ctz(m));
    if (clocked(agent)) clock_tick(cta, agent->first_thread / LANES);
    spend(agent, lanes, STEP_THREADS);
    if (waits) {
        agent->status = AGENT_BARRIER;
        agent->barrier = (int)id;
        agent->wait_pc = agent->pc;
    }
    if (barrier->arrived >= expected) complete(cta, barrier, (int)id);
}

static void warp_sync(Agent *agent) {
    Cta *cta = agent->cta;
    if (!agent->warp || !whole_warp(agent, "warp_sync") || !cta->machine->races) return;
    Clock *clock = NULL;
    for (Mask m = agent->full; m; m &= m - 1) clock_arrive(cta, &clock, agent->first_thread + __builtin_ctz(m));
    for (Mask m = agent->full; m; m &= m - 1) clock_depart(cta, clock, agent->first_thread + __builtin_ctz(m), true);
    clock_tick(cta, agent->first_thread / LANES);
    clock_drop(cta, &clock);
}

// ---- mbarriers: a phase completes when all expected arrivals are there and all expected bytes have landed ----
const char *mbarrier_text(const Cta *cta, const MBarrier *barrier) {
    return element_text(cta->machine->arena, barrier->mem, barrier->element);
}

static void wake_waiting(Cta *cta) {
    for (int i = 0; i < cta->agent_count; i++)
        if (cta->agents[i]->status == AGENT_MBARRIER) cta->agents[i]->status = AGENT_READY;
}

static void complete_phase(Cta *cta, MBarrier *barrier) {
    if (barrier->pending > 0 || barrier->landed < barrier->bytes) return;
    if (cta->machine->races) {
        clock_merge(cta, &barrier->done, barrier->clock);
        clock_drop(cta, &barrier->clock);
        unit_tell(cta, &barrier->done, UNIT_MBARRIER, barrier->number);
        unit_next(cta, UNIT_MBARRIER, barrier->number);
    }
    barrier->phase++;
    barrier->pending = barrier->expected;
    barrier->bytes = barrier->copied = barrier->landed = 0;
    cta->machine->report->barriers++;
    wake_waiting(cta);
}

// After the last arrival no thread can expect more bytes.
static bool bytes_agree(Agent *agent, const MBarrier *barrier) {
    Machine *machine = agent->cta->machine;
    if (barrier->pending > 0 || barrier->copied <= barrier->bytes) return true;
    emu_report(machine, agent->pc, T_EMU_TRANSACTION, mbarrier_text(agent->cta, barrier), (long long)barrier->bytes,
               (long long)barrier->copied);
    machine->stop = true;
    return false;
}

void mbarrier_started(Agent *agent, MBarrier *barrier, int64_t bytes) {
    barrier->copied += bytes;
    barrier->load_pc = agent->pc;
    if (clocked(agent)) barrier->loaded = unit_epoch(agent->cta, UNIT_MBARRIER, barrier->number);
    bytes_agree(agent, barrier);
}

void mbarrier_transact(Cta *cta, MBarrier *barrier, int64_t bytes) {
    barrier->landed += bytes;
    complete_phase(cta, barrier);
}

void mbarrier_landed(Agent *agent, Cta *cta, MBarrier *barrier, int64_t bytes) {
    for (Mask m = clocked(agent); m; m &= m - 1)
        clock_arrive(cta, &barrier->clock, agent->first_thread + __builtin_ctz(m));
    if (clocked(agent)) clock_tick(agent->cta, agent->first_thread / LANES);
    mbarrier_transact(cta, barrier, bytes);
}

static MBarrier *mbarrier_at(Cta *cta, const Mem *mem, int64_t element) {
    MBarrier **slot = &cta->mbarriers[(mem->offset + element * mem->bytes) / 8];
    if (*slot) return *slot;
    Machine *machine = cta->machine;
    EXPECT(machine->failure, cta->mbarrier_count < machine->code->mbarrier_count, "more mbarriers than declared");
    *slot = NEW(machine->arena, MBarrier);
    (*slot)->number = cta->rank * machine->code->mbarrier_count + cta->mbarrier_count;
    cta->mbarrier_list[cta->mbarrier_count++] = *slot;
    return *slot;
}

static void initialise(Agent *agent, const Mem *mem, int64_t element, int lane, int64_t count) {
    Cta *cta = agent->cta;
    MBarrier *barrier = mbarrier_at(cta, mem, element);
    if (cta->machine->races) {
        clock_drop(cta, &barrier->clock);
        clock_drop(cta, &barrier->done);
    }
    unit_next(cta, UNIT_MBARRIER, barrier->number);
    *barrier = (MBarrier){.expected = count,
                          .pending = count,
                          .mem = mem,
                          .element = element,
                          .number = barrier->number,
                          .first_epoch = unit_epoch(cta, UNIT_MBARRIER, barrier->number),
                          .init_thread = agent->first_thread + lane};
    state_set(cta, mem, element, 1, STATE_READY);
}

// Announces what the thread has initialised until now to the asynchronous proxy.
static void fence_mbarrier_init(Agent *agent) {
    Cta *cta = agent->cta;
    bool any = false;
    for (int i = 0; i < cta->mbarrier_count; i++) {
        MBarrier *barrier = cta->mbarrier_list[i];
        int lane = barrier->init_thread - agent->first_thread;
        if (barrier->announced || lane < 0 || lane >= LANES || !((agent->warp ? agent->mask : 1) >> lane & 1)) continue;
        barrier->announced = clocked(agent) ? thread_epoch(agent) : 1;
        any = true;
    }
    if (any && clocked(agent)) clock_tick(cta, agent->first_thread / LANES);
}

static void arrive(Agent *agent, Cta *cta, MBarrier *barrier, int lane, int64_t count, int64_t bytes) {
    if (barrier->pending < count) {
        emu_report(cta->machine, agent->pc, T_EMU_ARRIVALS, thread_text(agent, lane), mbarrier_text(cta, barrier),
                   (long long)barrier->expected);
        cta->machine->stop = true;
        return;
    }
    barrier->bytes += bytes;
    barrier->pending -= count;
    if (clocked(agent)) clock_arrive(cta, &barrier->clock, agent->first_thread + lane);
    if (clocked(agent) && barrier->expected == count && !barrier->bytes && !barrier->copied)   // it completes the phase
        unit_learn(agent, (Mask)1 << lane, UNIT_MBARRIER, barrier->number,
                   unit_epoch(cta, UNIT_MBARRIER, barrier->number));
    if (bytes_agree(agent, barrier)) complete_phase(cta, barrier);
}

// A wait names its phase by parity: it means the first one that the thread does not know to have completed, or the one
// before. Where another has completed since, the parity is that of two phases.
static bool parity_is_clear(Agent *agent, const MBarrier *barrier, int lane, int64_t parity) {
    Machine *machine = agent->cta->machine;
    if (!clocked(agent)) return true;
    int64_t known = (int64_t)unit_known(agent, lane, UNIT_MBARRIER, barrier->number) + 1 - barrier->first_epoch;
    if (known < 0) known = 0;
    int64_t meant = (known & 1) == (parity & 1) ? known : known - 1;
    if (barrier->phase <= meant + 1) return true;
    emu_report(machine, agent->pc, T_EMU_PARITY, thread_text(agent, lane), mbarrier_text(agent->cta, barrier),
               (long long)known, (long long)barrier->phase);
    machine->stop = true;
    return false;
}

// False: the phase is not over, and the instruction will run again.
static bool wait_phase(Agent *agent, const MBarrier *barrier, int lane, int64_t parity) {
    if (!parity_is_clear(agent, barrier, lane, parity)) return false;
    if ((barrier->phase & 1) == (parity & 1)) {
        agent->status = AGENT_MBARRIER;
        agent->awaited = barrier;
        agent->wait_pc = agent->pc;
        agent->pc--;
        return false;
    }
    if (clocked(agent)) clock_depart(agent->cta, barrier->done, agent->first_thread + lane, false);
    return true;
}

static void touch_mbarrier(Agent *agent, const Mem *mem, int64_t element, int lane, Touch touch) {
    if (agent->cta->machine->races)
        race_shared(agent, lane, mem->offset + element * mem->bytes, mem->bytes, touch, mem, agent->pc);
}

MBarrier *mbarrier_of(Agent *agent, Cta *cta, const Place *place, int lane, bool itself) {
    const Mem *mem = machine_mem(cta->machine, place->mem);
    int64_t offsets[LANES];
    if (!place_offsets(agent, place, (Mask)1 << lane, NULL, offsets)) return NULL;
    if (itself && cta->machine->races) race_peer(agent, lane, cta, mem, offsets[lane], TOUCH_ATOMIC);
    return state_readable_in(agent, cta, mem, offsets[lane], 1, lane) ? mbarrier_at(cta, mem, offsets[lane]) : NULL;
}

static void mbarrier_peer_arrive(Agent *agent, const Instr *in, const Call *call) {
    const CallArg *count = call_arg(call, OPERAND_INDEX(PEER_ARRIVE, count));
    bool told = false;
    for (Mask m = in->wide ? agent->mask : 1; m && !agent->cta->machine->stop; m &= m - 1) {
        int l = __builtin_ctz(m);
        Cta *peer = cluster_peer(agent, agent->regs[CALL_ARG(call, PEER_ARRIVE, rank).slot].i[l], l);
        MBarrier *barrier = peer ? mbarrier_of(agent, peer, CALL_ARG(call, PEER_ARRIVE, bar).place, l, true) : NULL;
        if (!barrier) return;
        arrive(agent, peer, barrier, l, count->has_value ? agent->regs[count->slot].i[l] : 1, 0);
        told = true;
    }
    if (told && clocked(agent)) clock_tick(agent->cta, agent->first_thread / LANES);
}

static void mbarrier_op(Agent *agent, const Instr *in, const Call *call) {
    Cta *cta = agent->cta;
    const Place *place = CALL_ARG(call, MBARRIER_INIT, bar).place;
    const CallArg *given = call_arg(call, 1);   // count, bytes or parity
    const Mem *mem = machine_mem(cta->machine, place->mem);
    int64_t offsets[LANES];
    bool told = false;
    Mask mask = place_offsets(agent, place, in->wide ? agent->mask : 1, NULL, offsets);
    for (Mask m = mask & ~agent->passed; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        int64_t value = given->has_value ? agent->regs[given->slot].i[l] : 0;
        touch_mbarrier(agent, mem, offsets[l], l, call->op == OP_MBARRIER_INIT ? TOUCH_WRITE : TOUCH_ATOMIC);
        if (call->op == OP_MBARRIER_INIT) {
            initialise(agent, mem, offsets[l], l, value);
            continue;
        }
        if (!state_readable(agent, mem, offsets[l], 1, l)) return;
        MBarrier *barrier = mbarrier_at(cta, mem, offsets[l]);
        if (call->op == OP_MBARRIER_WAIT) {
            if (!wait_phase(agent, barrier, l, value)) return;
            agent->passed |= m & -m;
            continue;
        }
        bool expects = call->op == OP_MBARRIER_EXPECT;
        bool counts = !expects && given->has_value;
        arrive(agent, cta, barrier, l, counts ? value : 1, expects ? value : 0);
        told = true;
    }
    agent->passed = 0;
    if (told && clocked(agent)) clock_tick(cta, agent->first_thread / LANES);
}

const OpHandler barrier_handlers[OP_COUNT] = {
    [OP_BARRIER] = {.effect = barrier_sync},
    [OP_BARRIER_ARRIVE] = {.effect = barrier_sync},
    [OP_WARP_SYNC] = {.no_operands = warp_sync},
    [OP_MBARRIER_INIT] = {.with_result = mbarrier_op},
    [OP_MBARRIER_ARRIVE] = {.with_result = mbarrier_op},
    [OP_MBARRIER_EXPECT] = {.with_result = mbarrier_op},
    [OP_MBARRIER_WAIT] = {.with_result = mbarrier_op},
    [OP_FENCE_MBARRIER_INIT] = {.no_operands = fence_mbarrier_init},
    [OP_PEER_ARRIVE] = {.with_result = mbarrier_peer_arrive},
};
