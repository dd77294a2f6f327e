// Clusters: CTAs that run at the same time, access each other's shared memory and synchronize at a barrier.
//
// The CTAs of a cluster have their own memory, barriers and agents, but one set of clocks (race.c), with threads
// numbered across the cluster. So an access to another CTA's memory is compared with that CTA's own accesses like an
// access within a CTA, and the cluster barrier orders all accesses before it.
//
// The shared memory of a CTA ends with the CTA. That a read of another CTA comes before the end must follow from the
// program, not from the schedule: when a CTA ends, each such read must be in the past of one of its threads.
#include "emulator/machine.h"

static void cluster_rank(Agent *agent, const Instr *in, const Call *call) {
    (void)call;
    for (int l = 0; l < LANES; l++) agent->regs[in->dst].i[l] = agent->cta->rank;
}

// ---- memory of other CTAs ----
static void report_end(const Cta *cta, int pc, const char *what) {
    emu_report(cta->machine, pc, T_EMU_PEER_ENDS, what, (long long)cta->index);
    cta->machine->stop = true;
}

Cta *cluster_peer(Agent *agent, int64_t rank, int lane) {
    const Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    if (rank < 0 || rank >= machine->code->cluster) {
        emu_report(machine, agent->pc, T_EMU_RANK, thread_text(agent, lane), (long long)rank, machine->code->cluster);
        machine->stop = true;
        return NULL;
    }
    Cta *peer = &cta->members[rank];
    if (peer->live && peer->root->status != AGENT_DONE) return peer;
    report_end(peer, agent->pc, "shared memory");
    return NULL;
}

static void peer_load(Agent *agent, const Instr *in, const Call *call) {
    Machine *machine = agent->cta->machine;
    const Place *place = CALL_ARG(call, PEER, x).place;
    const Mem *mem = machine_mem(machine, place->mem);
    int64_t offsets[LANES];
    Mask wanted = in->wide ? agent->mask : 1, mask = place_offsets(agent, place, wanted, NULL, offsets);
    Lanes *dst = &agent->regs[in->dst];
    const Lanes *rank = &agent->regs[CALL_ARG(call, PEER, rank).slot];
    for (Mask m = mask; m && !machine->stop; m &= m - 1) {
        int l = __builtin_ctz(m);
        Cta *peer = cluster_peer(agent, rank->i[l], l);
        if (!peer) return;
        if (machine->races) race_peer(agent, l, peer, mem, offsets[l], TOUCH_READ);
        if (!state_readable_in(agent, peer, mem, offsets[l], 1, l)) return;
        dst->w[l] = element_load(mem->type, mem_data(peer, mem) + offsets[l] * mem->bytes);
    }
}

// The write is that of a unit of its own, as a copy's: a thread that waits for the barrier's phase is ordered after it,
// and after what the storing thread did before (the completion releases, and waiting acquires, at cluster scope). No
// other thread is, not even the storing one.
static bool store_in(Agent *agent, Cta *peer, const Call *call, int64_t offset, int lane) {
    const Place *place = CALL_ARG(call, PEER_STORE, x).place;
    const Mem *mem = machine_mem(agent->cta->machine, place->mem);
    MBarrier *barrier =
        call->channel ? NULL : mbarrier_of(agent, peer, CALL_ARG(call, PEER_STORE, bar).place, lane, true);
    if (!barrier && !call->channel) return false;
    if (barrier && clocked(agent)) {
        Actor actor = actor_start(peer, UNIT_MBARRIER, barrier->number, agent->pc);
        actor_acts_for(agent, (Mask)1 << lane, &actor);
        actor_shared(peer, &actor, mem->offset + offset * mem->bytes, mem->bytes, TOUCH_WRITE, mem);
        actor_end(peer, &actor);
        clock_arrive(peer, &barrier->clock, agent->first_thread + lane);
    }
    if (!state_writable_in(agent, peer, mem, offset, 1, lane)) return false;
    Word word = word_convert(mem->type, CALL_ARG(call, PEER_STORE, v).type,
                             agent->regs[CALL_ARG(call, PEER_STORE, v).slot].w[lane]);
    element_store(mem->type, mem_data(peer, mem) + offset * mem->bytes, word);
    state_set(peer, mem, offset, 1, STATE_READY);
    if (barrier) mbarrier_started(agent, barrier, mem->bytes);
    if (barrier) mbarrier_transact(peer, barrier, mem->bytes);
    else channel_peer_stored(agent, peer, call->channel, offset / (mem->elements / mem->shape[0]), lane, mem->bytes);
    return true;
}

static void peer_store(Agent *agent, const Call *call) {
    int64_t offsets[LANES];
    Mask mask = place_offsets(agent, CALL_ARG(call, PEER_STORE, x).place, agent->mask, NULL, offsets);
    for (Mask m = mask; m && !agent->cta->machine->stop; m &= m - 1) {
        int l = __builtin_ctz(m);
        Cta *peer = cluster_peer(agent, agent->regs[CALL_ARG(call, PEER_STORE, rank).slot].i[l], l);
        if (!peer || !store_in(agent, peer, call, offsets[l], l)) return;
    }
    if (mask && clocked(agent)) clock_tick(agent->cta, agent->first_thread / LANES);
}

// ---- the barrier ----
// At tile stage a role is one party.
static bool is_role_party(const Agent *agent) {
    return !agent->warp && agent->role && agent->cta->machine->code->func->stage == STAGE_TILE;
}

static void leave(Agent *agent, Clock *clock) {
    agent->status = AGENT_READY;
    if (agent->cta->machine->races && is_role_party(agent)) clock_depart(agent->cta, clock, agent->first_thread, true);
    if (!agent->cta->machine->races || !agent->warp) return;
    for (Mask m = agent->full; m; m &= m - 1)
        clock_depart(agent->cta, clock, agent->first_thread + __builtin_ctz(m), true);
}

static void complete(Cta *cta) {
    Machine *machine = cta->machine;
    Barrier *barrier = cta->cluster;
    for (int rank = 0; rank < machine->code->cluster; rank++) {
        Cta *member = &cta->members[rank];
        for (int i = 0; i < member->agent_count; i++) {
            Agent *agent = member->agents[i];
            if (agent->status == AGENT_BARRIER && agent->barrier == CLUSTER_BARRIER) leave(agent, barrier->clock);
        }
    }
    races_meet(cta);
    if (machine->races) clock_drop(cta, &barrier->clock);
    barrier->arrived = 0;
    machine->report->barriers++;
}

static int64_t block_threads(const Machine *machine) {
    return machine->code->block_threads ? machine->code->block_threads : 1;
}

// All threads that have not ended (PTX ISA, "barrier.cluster").
static bool all_there(const Cta *cta) {
    return cta->cluster->arrived + cta->cluster->gone >= block_threads(cta->machine) * cta->machine->code->cluster;
}

static void cluster_barrier(Agent *agent) {
    Cta *cta = agent->cta;
    Machine *machine = cta->machine;
    Barrier *barrier = cta->cluster;
    if (agent->warp && !whole_warp(agent, "cluster_barrier")) {
        machine->stop = true;
        return;
    }
    int64_t threads = agent->role ? agent->role->threads : block_threads(machine);
    barrier->arrived += agent->warp ? __builtin_popcount(agent->full) : threads;
    spend(agent, agent->warp ? LANES : threads, STEP_THREADS);
    if (machine->races && is_role_party(agent)) {
        clock_arrive(cta, &barrier->clock, agent->first_thread);
        clock_tick(cta, agent->first_thread / LANES);
    }
    if (machine->races && agent->warp) {
        for (Mask m = agent->full; m; m &= m - 1)
            clock_arrive(cta, &barrier->clock, agent->first_thread + __builtin_ctz(m));
        clock_tick(cta, agent->first_thread / LANES);
    }
    agent->status = AGENT_BARRIER;
    agent->barrier = CLUSTER_BARRIER;
    agent->wait_pc = agent->pc;
    if (all_there(cta)) complete(cta);
}

void cluster_role_ends(Agent *agent) {
    Cta *cta = agent->cta;
    cta->cluster->gone += agent->role->threads;
    if (cta->cluster->arrived && all_there(cta)) complete(cta);
}

// ---- the end ----
void cluster_block_ends(Cta *cta) {
    int64_t byte = 0;
    if (cta->machine->code->func->stage != STAGE_THREAD) return;   // at tile stage the CTA itself has no clock
    int pc = race_unfinished(cta, &byte);
    if (pc >= 0) report_end(cta, pc, arena_printf(cta->machine->arena, "byte %lld of shared memory", (long long)byte));
}

const OpHandler cluster_handlers[OP_COUNT] = {
    [OP_CLUSTER_RANK] = {.with_result = cluster_rank},
    [OP_PEER] = {.with_result = peer_load},
    [OP_PEER_STORE] = {.effect = peer_store},
    [OP_CLUSTER_BARRIER] = {.no_operands = cluster_barrier},
};
