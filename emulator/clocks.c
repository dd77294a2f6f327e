// What threads and asynchronous units know of each other: emulator/race.c explains it.
#include "emulator/race_impl.h"
#include <string.h>

// ---- clocks ----
static void forget_joins(Races *races) {
    races->last_into = NULL;
    races->last_next = NULL;
}

Clock *clock_new(Races *races, Arena *arena) {
    Clock *clock = races->free;
    if (clock) races->free = clock->next;
    else clock = arena_alloc(arena, sizeof *clock + sizeof clock->at[0] * (size_t)races->parties);
    clock->users = 1;
    forget_joins(races);
    return clock;
}

void clock_release(Races *races, Clock *clock) {
    if (!clock || --clock->users) return;
    clock->next = races->free;
    races->free = clock;
}

Clock *clock_copy(Races *races, Arena *arena, const Clock *from) {
    Clock *clock = clock_new(races, arena);
    memcpy(clock->at, from->at, sizeof(uint32_t) * (size_t)races->parties);
    return clock;
}

void clock_join(const Races *races, Clock *into, const Clock *from) {
    for (int t = 0; t < races->parties; t++) into->at[t] = from->at[t] > into->at[t] ? from->at[t] : into->at[t];
}

static void clock_meet(const Races *races, Clock *into, const Clock *from) {   // what both know
    for (int t = 0; t < races->parties; t++) into->at[t] = from->at[t] < into->at[t] ? from->at[t] : into->at[t];
}

static int unit_index(const Races *races, UnitKind kind, int number) {
    switch (kind) {
    case UNIT_READS: return number;
    case UNIT_WRITES: return races->warps + number;
    case UNIT_WGMMA: return 2 * races->warps + number;
    case UNIT_MBARRIER: return 2 * races->warps + races->groups + number;
    default: return 2 * races->warps + races->groups + races->mbarriers + number;
    }
}

Races *races_new(Machine *machine) {
    Races *races = NEW(machine->arena, Races);
    const Code *code = machine->code;
    races->threads = (int)(code->padded_threads * code->cluster);
    races->first_unit = races->threads;
    if (code->bulk) {
        races->warps = races->threads / LANES;
        races->groups = (races->warps + WARPGROUP - 1) / WARPGROUP;
        races->mbarriers = code->mbarrier_count * (int)code->cluster;
        races->first_unit = 2 * races->threads;
    }
    races->parties = races->first_unit + unit_index(races, UNIT_SLOT, code->heard_slots * (int)code->cluster);
    races->locations = map_new(machine->arena);
    races->blocks = map_new(machine->arena);
    races->stamp = 1;
    return races;
}

static void make_clocks(Cta *cta, int warps, int units) {
    Races *races = cta->machine->races;
    Arena *arena = cta->machine->arena;
    cta->clocks = NEW_ARRAY(arena, Clock *, races->threads);
    cta->epochs = NEW_ARRAY(arena, uint32_t, warps);
    cta->unit_epochs = NEW_ARRAY(arena, uint32_t, units + 1);
    for (int rank = 1; rank < cta->machine->code->cluster; rank++) {
        cta[rank].clocks = cta->clocks;
        cta[rank].epochs = cta->epochs;
        cta[rank].unit_epochs = cta->unit_epochs;
    }
}

// Threads [first, first + count) begin: whatever is remembered of earlier ones in this memory lies in epochs that all
// of them know.
static void begin_threads(Cta *cta, int first, int count) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    int warps = races->threads / LANES, units = races->parties - races->first_unit;
    if (!cta->clocks) make_clocks(cta->members, warps, units);
    uint32_t last = cta->machine->epoch;
    for (int w = 0; w < warps; w++)
        if (cta->epochs[w] > last) last = cta->epochs[w];
    for (int u = 0; u < units; u++)
        if (cta->unit_epochs[u] > last) last = cta->unit_epochs[u];
    Clock *clock = clock_new(races, cta->machine->arena);
    for (int t = 0; t < races->parties; t++) clock->at[t] = last;
    for (int t = first; t < first + count; t++) {
        clock_release(races, cta->clocks[t]);
        cta->clocks[t] = clock;
        clock->users++;
    }
    clock_release(races, clock);
    for (int w = first / LANES; w < (first + count) / LANES; w++) cta->epochs[w] = last + 1;
    for (int u = 0; u < units; u++) cta->unit_epochs[u] = last + 1;
    cta->machine->epoch = last + 1;
}

void races_start(Cta *cta) {
    begin_threads(cta, cta->first_thread, (int)cta->machine->code->padded_threads);
}

void races_start_cluster(Cta *cta) {
    begin_threads(cta, 0, cta->machine->races->threads);
}

// A thread tells `into` all it knows and did.
void clock_arrive(Cta *cta, Clock **into, int thread) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    if (!*into) {
        *into = clock_copy(races, cta->machine->arena, cta->clocks[thread]);
    } else if (races->last_into != *into || races->last_from != cta->clocks[thread]) {
        clock_join(races, *into, cta->clocks[thread]);
    }
    races->last_into = *into;
    races->last_from = cta->clocks[thread];
    races->last_next = NULL;
    uint32_t *at = &(*into)->at[thread];
    if (cta->epochs[thread / LANES] > *at) *at = cta->epochs[thread / LANES];
}

void clock_tick(Cta *cta, int warp) {   // later events of the warp are new to threads that have its clock
    if (cta->machine->races->threads) cta->epochs[warp]++;
}

// A thread learns what `from` knows. Threads that learn the same from the same share the result.
void clock_depart(Cta *cta, Clock *from, int thread, bool arrived) {
    Races *races = cta->machine->races;
    if (!races->threads || !from || cta->clocks[thread] == from) return;
    const Clock *own = cta->clocks[thread];
    bool again = races->last_next && races->last_own == own && races->last_told == from, covered = true;
    for (int t = 0; t < races->parties && covered && !arrived && !again; t++) covered = own->at[t] <= from->at[t];
    Clock *next = again ? races->last_next : from;
    if (again || covered) {
        next->users++;
    } else {
        next = clock_copy(races, cta->machine->arena, own);
        clock_join(races, next, from);
    }
    clock_release(races, cta->clocks[thread]);
    cta->clocks[thread] = next;
    races->last_own = own;
    races->last_told = from;
    races->last_next = next;
}

// What one lane knows the warp knows: it acts as a whole.
bool clock_known(const Agent *agent, Mask lanes, const Clock *from) {
    Clock *const *clocks = agent->cta->clocks + agent->first_thread;
    for (int t = 0; t < agent->cta->machine->races->threads; t++) {
        if (t / LANES == agent->first_thread / LANES) continue;   // its clocks do not say what it did itself
        Mask m = lanes;
        while (m && clocks[__builtin_ctz(m)]->at[t] < from->at[t]) m &= m - 1;
        if (!m) return false;
    }
    return true;
}

void clock_drop(Cta *cta, Clock **clock) {
    clock_release(cta->machine->races, *clock);
    *clock = NULL;
}

void clock_merge(Cta *cta, Clock **into, const Clock *from) {
    Races *races = cta->machine->races;
    if (!races->threads || !from) return;
    Clock *next = clock_copy(races, cta->machine->arena, from);   // others may share the old one
    if (*into) clock_join(races, next, *into);
    clock_release(races, *into);
    *into = next;
}

// ---- units ----
static int unit_party(const Races *races, UnitKind kind, int number) {
    return races->first_unit + unit_index(races, kind, number);
}

uint32_t unit_epoch(const Cta *cta, UnitKind kind, int number) {
    const Races *races = cta->machine->races;
    return races && races->threads ? cta->unit_epochs[unit_index(races, kind, number)] : 0;
}

void unit_next(Cta *cta, UnitKind kind, int number) {
    const Races *races = cta->machine->races;
    if (races && races->threads) cta->unit_epochs[unit_index(races, kind, number)]++;
}

void unit_tell(Cta *cta, Clock **clock, UnitKind kind, int number) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    Clock *next;   // others may share the old one
    if (*clock) {
        next = clock_copy(races, cta->machine->arena, *clock);
    } else {
        next = clock_new(races, cta->machine->arena);
        memset(next->at, 0, sizeof next->at[0] * (size_t)races->parties);
    }
    next->at[unit_party(races, kind, number)] = unit_epoch(cta, kind, number);
    clock_release(races, *clock);
    *clock = next;
}

// These threads of a warp learn that the party has reached the epoch; party -1: each learns its own fence. Threads that
// share a clock continue to share it: they learn the same.
static void learn_shared(Cta *cta, int first_thread, Mask lanes, int party, uint32_t epoch) {
    Races *races = cta->machine->races;
    while (lanes) {
        Clock **clocks = cta->clocks + first_thread, *old = clocks[__builtin_ctz(lanes)];
        Mask same = 0;
        for (Mask m = lanes; m; m &= m - 1)
            if (clocks[__builtin_ctz(m)] == old) same |= m & -m;
        lanes &= ~same;
        if (party >= 0 && old->at[party] >= epoch) continue;
        Clock *next = clock_copy(races, cta->machine->arena, old);
        if (party >= 0) next->at[party] = epoch;
        for (Mask m = same; m; m &= m - 1) {
            int lane = __builtin_ctz(m);
            if (party < 0) next->at[races->threads + first_thread + lane] = epoch;
            clock_release(races, old);
            clocks[lane] = next;
            next->users++;
        }
        clock_release(races, next);
    }
}

void unit_learn(Agent *agent, Mask lanes, UnitKind kind, int number, uint32_t epoch) {
    const Races *races = agent->cta->machine->races;
    if (races && races->threads)
        learn_shared(agent->cta, agent->first_thread, lanes, unit_party(races, kind, number), epoch);
}

uint32_t unit_known(const Agent *agent, int lane, UnitKind kind, int number) {
    const Races *races = agent->cta->machine->races;
    if (!races || !races->threads) return 0;
    return agent->cta->clocks[agent->first_thread + lane]->at[unit_party(races, kind, number)];
}

uint32_t unit_known_best(const Cta *cta, UnitKind kind, int number) {
    const Races *races = cta->machine->races;
    uint32_t best = 0;
    for (int t = 0; t < races->threads; t++) {
        uint32_t known = cta->clocks[t]->at[unit_party(races, kind, number)];
        if (known > best) best = known;
    }
    return best;
}

void race_fence_async(Agent *agent) {
    Cta *cta = agent->cta;
    if (!cta->machine->races || !cta->machine->races->threads || !(agent->warp || agent->role)) return;
    uint32_t epoch = cta->epochs[agent->first_thread / LANES];
    learn_shared(cta, agent->first_thread, agent->warp ? agent->mask : 1, -1, epoch);
    clock_tick(cta, agent->first_thread / LANES);   // later stores lie in an epoch that is not fenced
}

uint32_t thread_epoch(const Agent *agent) {
    const Races *races = agent->cta->machine->races;
    return races && races->threads ? agent->cta->epochs[agent->first_thread / LANES] : 0;
}

uint32_t actor_knows(const Cta *cta, const Actor *actor, int thread) {
    return cta->machine->races && actor->clock ? actor->clock->at[thread] : UINT32_MAX;
}

Actor actor_start(const Cta *cta, UnitKind kind, int number, int pc) {
    const Races *races = cta->machine->races;
    if (!races || !races->threads) return (Actor){.pc = pc};
    return (Actor){(uint32_t)unit_party(races, kind, number), unit_epoch(cta, kind, number), NULL, pc};
}

// The actor acts for these threads together: it knows what all of them know.
void actor_acts_for(const Agent *agent, Mask lanes, Actor *actor) {
    Cta *cta = agent->cta;
    Races *races = cta->machine->races;
    if (!races || !races->threads) return;
    Clock *const *clocks = cta->clocks + agent->first_thread;
    while (lanes) {
        const Clock *own = clocks[__builtin_ctz(lanes)];
        Mask same = 0;
        for (Mask m = lanes; m; m &= m - 1)
            if (clocks[__builtin_ctz(m)] == own) same |= m & -m;
        lanes &= ~same;
        Clock *known = clock_copy(races, cta->machine->arena, own);
        if (!(same & (same - 1))) {   // what one thread did itself, it alone knows
            int lane = __builtin_ctz(same);
            known->at[agent->first_thread + lane] = cta->epochs[(agent->first_thread + lane) / LANES];
        }
        if (actor->clock) {
            clock_meet(races, actor->clock, known);
            clock_release(races, known);
        } else {
            actor->clock = known;
        }
    }
}

void actor_end(Cta *cta, Actor *actor) {
    if (cta->machine->races) clock_drop(cta, &actor->clock);
}
