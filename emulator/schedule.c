// The schedule of CTAs and agents.
//
// A CTA is a tree of agents. Its root runs the grid's body with one lane; a thread region makes it a parent of warps
// and roles of one-lane agents, and it continues when they have ended. Among all agents that can run, a random one (by
// the seed) runs for a random number of instructions; now and then a TMA copy makes some progress. If no agent can run
// and some have not ended, that is a deadlock, reported with the agents and the places where they wait.
#include "emulator/machine.h"
#include <string.h>

enum { LONGEST_SLICE = 512, LONGEST_RUN = 1 << 16 };   // among others; alone
enum { BULK_PATIENCE = 8 };                            // slices of agents per step of a copy

// ---- agents ----
static void prepare_locals(Agent *agent, const Code *code, Arena *arena) {
    agent->locals = NEW_ARRAY(arena, LocalArray, code->local_count + 1);
    for (int i = 0; i < code->mem_count; i++) {
        const Mem *mem = &code->mems[i];
        if (mem->local < 0 || mem->dynamic) continue;
        LocalArray *array = &agent->locals[mem->local];
        array->elements = array->capacity = mem->elements;
        array->data = NEW_ARRAY(arena, Lanes, mem->elements);
        array->init = NEW_ARRAY(arena, Mask, mem->elements);
        if (mem->watched) {
            array->busy = NEW_ARRAY(arena, uint16_t, mem->elements);
            array->touched = NEW_ARRAY(arena, uint8_t, mem->elements);
        }
        memcpy(array->shape, mem->shape, sizeof array->shape);
    }
}

static Agent *agent_make(Cta *cta) {
    Arena *arena = cta->machine->arena;
    const Code *code = cta->machine->code;
    Agent *agent = NEW(arena, Agent);
    agent->cta = cta;
    agent->regs = NEW_ARRAY(arena, Lanes, code->const_count + code->slots + 1) + code->const_count;
    for (int i = 0; i < code->const_count; i++)
        for (int l = 0; l < LANES; l++) agent->regs[-1 - i].w[l] = code->consts[i];
    agent->masks = NEW_ARRAY(arena, Mask, code->masks + 1);
    agent->loops = NEW_ARRAY(arena, LoopState, code->parallel_count + 1);
    prepare_locals(agent, code, arena);
    if (cta->agent_count == cta->agent_capacity) {
        int grown = cta->agent_capacity ? 2 * cta->agent_capacity : 16;
        cta->agents =
            arena_grow(arena, cta->agents, sizeof(Agent *) * (size_t)cta->agent_count, sizeof(Agent *) * (size_t)grown);
        cta->agent_capacity = grown;
    }
    cta->agents[cta->agent_count++] = agent;
    return agent;
}

static void start_units(Agent *agent) {
    memset(agent->bulk.closed, 0, sizeof agent->bulk.closed);
    memset(agent->bulk.read, 0, sizeof agent->bulk.read);
    memset(agent->bulk.last, -1, sizeof agent->bulk.last);
    agent->wgmma.count = 0;
    agent->wgmma.fenced = false;
}

Agent *agent_start(Cta *cta, int pc) {
    Agent *agent = NULL;
    for (int i = 0; i < cta->agent_count && !agent; i++)
        if (cta->agents[i]->status == AGENT_FREE) agent = cta->agents[i];
    if (!agent) agent = agent_make(cta);
    cta->machine->moves++;
    agent->status = AGENT_READY;
    agent->pc = pc;
    agent->mask = agent->full = 1;
    agent->parent = NULL;
    agent->role = NULL;
    agent->parallel = NULL;
    agent->warp = false;
    agent->children = agent->first_thread = agent->cp_async.count = 0;
    agent->passed = 0;
    if (agent->channels)
        memset(agent->channels, 0, sizeof *agent->channels * (size_t)cta->machine->code->channel_count);
    memset(agent->cp_async.committed, 0, sizeof agent->cp_async.committed);
    if (cta->machine->code->bulk) start_units(agent);
    return agent;
}

static void hand_down(const Agent *from, Agent *to, int slots) {
    for (int s = 0; s < slots; s++) to->regs[s].i[0] = from->regs[s].i[0];
}

static void thread_indices(Agent *warp, const SpawnCode *spawn, int first) {   // the first index runs fastest
    for (int l = 0; l < LANES; l++) {
        int64_t rest = first + l;
        for (int i = 0; i < spawn->count; i++) {
            warp->regs[spawn->vars[i]].i[l] = rest % spawn->extents[i];
            rest /= spawn->extents[i];
        }
    }
}

// At tile stage a thread region is one of its role's statements: its threads know what the role knows, and the role
// what they did.
static void tell_threads(const Agent *agent, int64_t threads) {
    Cta *cta = agent->cta;
    Clock *clock = NULL;
    int base = agent->first_thread;
    clock_arrive(cta, &clock, base);
    clock_tick(cta, base / LANES);
    for (int t = 0; t < threads; t++) clock_depart(cta, clock, base + t, false);
    clock_drop(cta, &clock);
}

static void hear_threads(const Agent *agent) {
    Cta *cta = agent->cta;
    Clock *clock = NULL;
    int base = agent->first_thread;
    for (int t = 0; t < agent->role->threads; t++) clock_arrive(cta, &clock, base + t);
    for (int t = 0; t < agent->role->threads; t += LANES) clock_tick(cta, (base + t) / LANES);
    clock_depart(cta, clock, base, true);
    clock_drop(cta, &clock);
}

static bool roles_have_clocks(const Agent *agent) {
    return agent->role && agent->cta->machine->races && agent->cta->machine->code->func->stage == STAGE_TILE;
}

void agent_spawn(Agent *agent, const SpawnCode *spawn, int body) {
    Cta *cta = agent->cta;
    if (!spend(agent, spawn->threads, STEP_THREADS)) return;
    if (cta->machine->races && cta->machine->code->func->stage == STAGE_TILE && !agent->role) races_start(cta);
    int base = cta->first_thread + (agent->role ? (int)agent->role->first_thread : 0);
    if (roles_have_clocks(agent)) tell_threads(agent, spawn->threads);
    for (int first = 0; first < spawn->threads; first += LANES) {
        Agent *warp = agent_start(cta, body);
        int64_t lanes = spawn->threads - first;
        warp->mask = warp->full = lanes >= LANES ? UINT32_MAX : ((Mask)1 << lanes) - 1;
        warp->parent = agent;
        warp->role = agent->role;
        warp->warp = true;
        warp->first_thread = base + first;
        warp->region_threads = (int)spawn->threads;
        if (cta->machine->code->bulk) wgmma_agent_starts(warp);
        hand_down(agent, warp, spawn->slots);
        thread_indices(warp, spawn, first);
        agent->children++;
    }
    if (agent->children) agent->status = AGENT_CHILDREN;
}

void agent_fork(Agent *agent, const ForkCode *fork) {
    Machine *machine = agent->cta->machine;
    const char *why = roles_cannot_trade(machine->arena, machine->target, fork->block, machine->code->block_threads);
    if (why) emu_report(machine, fork->roles[0].pc, T_ROLE_REGISTERS, why);
    for (int i = 0; i < fork->count; i++) {
        Agent *child = agent_start(agent->cta, fork->roles[i].pc);
        child->parent = agent;
        child->role = &fork->roles[i];
        child->first_thread = agent->cta->first_thread + (int)fork->roles[i].first_thread;
        hand_down(agent, child, fork->roles[i].slots);
        agent->children++;
    }
    if (agent->children) agent->status = AGENT_CHILDREN;
}

void agent_end(Agent *agent) {
    Cta *cta = agent->cta;
    cta->machine->moves++;
    if (agent->warp) copies_land_all(agent);
    if (agent->warp && cta->machine->code->bulk) {
        bulk_agent_ends(agent);
        wgmma_agent_ends(agent);
    }
    if (agent == cta->root) {
        if (cta->machine->code->bulk) bulk_block_ends(cta);
        tile_land_all(agent);
        channels_end(cta);
        if (cta->machine->code->cluster > 1) cluster_block_ends(cta);
        agent->status = AGENT_DONE;
        return;
    }
    if (!agent->warp) tile_role_ends(agent);
    const Code *code = cta->machine->code;
    bool last = agent->role && !agent->warp && code->instrs[agent->parent->pc].op == X_END;
    if (last && code->cluster > 1) cluster_role_ends(agent);
    agent->status = AGENT_FREE;
    if (--agent->parent->children) return;
    agent->parent->status = AGENT_READY;
    if (agent->warp && roles_have_clocks(agent->parent)) hear_threads(agent->parent);
}

// ---- CTAs ----
Cta *ctas_new(Machine *machine, int count) {
    const Code *code = machine->code;
    Arena *arena = machine->arena;
    machine->ctas = NEW_ARRAY(arena, Cta, count);
    machine->cta_count = count;
    for (int i = 0; i < count; i++) {
        Cta *cta = &machine->ctas[i];
        cta->machine = machine;
        cta->rank = i % code->cluster;
        cta->members = cta - cta->rank;
        cta->cluster = cta->rank ? cta->members->cluster : NEW(arena, Barrier);
        cta->first_thread = cta->rank * (int)code->padded_threads;
        cta->index = -1;
        cta->shared = arena_alloc(arena, (size_t)code->shared_bytes + 16);
        if (code->dependent) cta->waited = NEW_ARRAY(arena, Mask, code->padded_threads / LANES);
        cta->shared_state = arena_alloc(arena, (size_t)(code->shared_bytes / code->granule) + 16);
        cta->fragments = arena_alloc(arena, (size_t)code->fragment_bytes + 16);
        cta->fragment_state = arena_alloc(arena, (size_t)code->fragment_elements + 16);
        cta->barriers = NEW_ARRAY(arena, Barrier, NAMED_BARRIERS + code->role_count);
        cta->mbarriers = NEW_ARRAY(arena, MBarrier *, code->shared_bytes / 8 + 1);
        cta->mbarrier_list = NEW_ARRAY(arena, MBarrier *, code->mbarrier_count + 1);
        if (code->bulk) cta->warpgroups = warpgroups_new(machine);
    }
    return machine->ctas;
}

static void cta_clear(Cta *cta) {
    const Code *code = cta->machine->code;
    memset(cta->shared_state, STATE_NONE, (size_t)(code->shared_bytes / code->granule));
    memset(cta->fragment_state, STATE_NONE, (size_t)code->fragment_elements);
    for (int i = 0; i < NAMED_BARRIERS + code->role_count; i++) {
        if (cta->machine->races) {
            clock_drop(cta, &cta->barriers[i].clock);
            clock_drop(cta, &cta->barriers[i].done);
        }
        cta->barriers[i] = (Barrier){0};
    }
    cta->pending_count = 0;
    channels_begin(cta);
}

static void cta_start(Cta *cta, int64_t index, const Agent *host) {
    const Code *code = cta->machine->code;
    const GridCode *grid = &code->grid;
    cta->index = index;
    cta->live = true;
    cta_clear(cta);
    if (cta->waited) memset(cta->waited, 0, sizeof *cta->waited * (size_t)(code->padded_threads / LANES));
    cta->root = agent_start(cta, grid->body);
    hand_down(host, cta->root, grid->slots);
    for (int i = 0; i < grid->count; i++) {
        int64_t extent = host->regs[grid->extents[i]].i[0];
        cta->root->regs[grid->vars[i]].i[0] = index % extent;
        index /= extent;
    }
    cta->machine->report->blocks++;
    spend(cta->root, code->shared_bytes / code->granule + code->fragment_elements, STEP_CLEARED);
}

// ---- deadlocks ----
static const char *waits_for(const Agent *agent) {
    const Cta *cta = agent->cta;
    Arena *arena = cta->machine->arena;
    if (agent->status == AGENT_WARPGROUP) return "the other warps of its warpgroup, which have not executed its wgmma";
    if (agent->status == AGENT_MBARRIER) {
        const MBarrier *awaited = agent->awaited;
        return arena_printf(
            arena, "phase %lld of mbarrier %s, where %lld of %lld arrivals and %lld of %lld bytes have come",
            (long long)awaited->phase, mbarrier_text(cta, awaited), (long long)(awaited->expected - awaited->pending),
            (long long)awaited->expected, (long long)awaited->landed, (long long)awaited->bytes);
    }
    if (agent->status == AGENT_CHANNEL) return channel_wait_text(agent);
    bool all = agent->barrier == CLUSTER_BARRIER;
    const Barrier *barrier = all ? cta->cluster : &cta->barriers[agent->barrier];
    bool named = agent->barrier > 0 && agent->barrier < NAMED_BARRIERS;
    const char *which = all     ? "the cluster's barrier"
                        : named ? arena_printf(arena, "named barrier %d", agent->barrier)
                                : "the barrier";
    return arena_printf(arena, "%s, where %lld threads have arrived", which, (long long)barrier->arrived);
}

static void report_deadlock(Cta *cta) {
    Machine *machine = cta->machine;
    Diag *d = NULL;
    int ended = 0, warps = (int)((machine->code->block_threads + LANES - 1) / LANES);
    for (int i = 0; i < cta->agent_count; i++) {
        const Agent *agent = cta->agents[i];
        ended += agent->status == AGENT_FREE;
        if (agent->status < AGENT_BARRIER || agent->status > AGENT_WARPGROUP) continue;
        const char *who = thread_text(agent, 0);
        if (!d) d = emu_report(machine, agent->wait_pc, T_EMU_DEADLOCK, who, waits_for(agent));
        else
            diag_note(d, "%s waits for %s (line %d)", who, waits_for(agent),
                      machine->code->places[agent->wait_pc].line);
        if (!d) break;
    }
    if (d && ended) diag_note(d, "of the CTA's %d warps some have ended", warps);
    machine->stop = true;
}

// ---- the schedule ----
static Agent *pick(Machine *machine, int *ready) {   // a random one of those that can run
    Agent *chosen = NULL;
    *ready = 0;
    for (int c = 0; c < machine->cta_count; c++) {
        Cta *cta = &machine->ctas[c];
        for (int i = 0; cta->live && i < cta->agent_count; i++) {
            if (cta->agents[i]->status != AGENT_READY) continue;
            if (random_below(&machine->random, (uint32_t)++ * ready) == 0) chosen = cta->agents[i];
        }
    }
    return chosen;
}

static Cta *stuck(Machine *machine) {   // a CTA that has not ended
    for (int c = 0; c < machine->cta_count; c++) {
        const Cta *cta = &machine->ctas[c];
        if (cta->live && cta->root->status != AGENT_DONE && cta->root->status != AGENT_GRID) return &machine->ctas[c];
    }
    return NULL;
}

static bool out_of_steps(Machine *machine, const Agent *agent) {
    if (machine->steps <= machine->most_steps) return false;
    report_endless(machine, agent->pc);
    return true;
}

// Runs until one of the resident CTAs has ended.
static bool run_resident(Machine *machine) {
    bool bulk = machine->code->bulk;
    while (!machine->stop) {
        int ready;
        if (machine->bulk_count && random_below(&machine->random, BULK_PATIENCE) == 0) bulk_advance(machine);
        Agent *agent = pick(machine, &ready);
        if (!agent && bulk_advance(machine)) continue;
        if (!agent) {
            Cta *cta = stuck(machine);
            if (cta) report_deadlock(cta);
            return !cta;
        }
        agent_run(agent, ready == 1 && !machine->code->spins && !bulk
                             ? LONGEST_RUN
                             : 1 + random_below(&machine->random, LONGEST_SLICE));
        if (out_of_steps(machine, agent) || livelocked(machine)) return false;
        if (agent == agent->cta->root && agent->status == AGENT_DONE) return true;
    }
    return false;
}

static int64_t sampled(int64_t n, int64_t count, int64_t blocks) {   // the n-th of `count` CTAs spread over the grid
    return count == blocks ? n : count == 1 ? 0 : (int64_t)((double)n * (double)(blocks - 1) / (double)(count - 1));
}

// Indices in the grid of the n-th cluster's CTAs, by rank.
static int64_t block_index(const Code *code, const Agent *host, int64_t cluster, int rank) {
    int64_t index = 0, blocks = 1;
    for (int i = 0; i < code->grid.count; i++) {
        int64_t extent = host->regs[code->grid.extents[i]].i[0], clusters = extent / code->extents[i];
        index += (cluster % clusters * code->extents[i] + rank % code->extents[i]) * blocks;
        cluster /= clusters;
        rank /= code->extents[i];
        blocks *= extent;
    }
    return index;
}

static bool ended(const Cta *members, int count) {
    for (int i = 0; i < count; i++)
        if (members[i].root->status != AGENT_DONE) return false;
    return true;
}

static void cluster_start(Cta *members, int64_t number, const Agent *host) {
    const Code *code = members->machine->code;
    if (members->machine->races) races_start_cluster(members);
    if (members->machine->races) clock_drop(members, &members->cluster->clock);
    *members->cluster = (Barrier){0};
    for (int rank = 0; rank < code->cluster; rank++)
        cta_start(&members[rank], code->cluster > 1 ? block_index(code, host, number, rank) : number, host);
}

// In whole clusters; a CTA by itself is one of one.
bool machine_run_blocks(Machine *machine, const Agent *host, int64_t blocks) {
    int size = machine->code->cluster;
    int64_t most = machine->options.max_blocks, clusters = blocks / size, next = 0;
    int64_t count = most > 0 && most < clusters ? most : clusters;
    if (!count) return true;
    machine->ctas_wanted = count * size;
    int resident = machine->code->spins ? machine->options.multiprocessors : 1;
    Cta *ctas = ctas_new(machine, (resident < count ? resident : (int)count) * size);
    for (;;) {
        bool live = false;
        for (int i = 0; i < machine->cta_count; i += size) {
            Cta *members = &ctas[i];
            if (members->live && ended(members, size)) {
                for (int rank = 0; rank < size; rank++) {
                    members[rank].root->status = AGENT_FREE;
                    members[rank].live = false;
                    machine->ctas_ended++;
                }
            }
            if (!members->live && next < count) cluster_start(members, sampled(next++, count, clusters), host);
            live |= members->live;
        }
        if (!live) return true;
        if (!run_resident(machine)) return false;
    }
}
