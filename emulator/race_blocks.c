// Accesses of different CTAs, which release and acquire alone order: emulator/race.c explains it.
#include "emulator/race_impl.h"
#include <string.h>

// What a thread knows of its CTA when it releases; stamp 0: nothing.
typedef struct Told {
    Clock *clock;   // NULL: all
    Moment at;
} Told;

// What is known of another CTA.
typedef struct Known {
    int64_t block;
    Told told;
    uint32_t learner, since;   // the thread that learned it, in which epoch
    int64_t within;            // 1 + the first CTA of the cluster in which alone it was told; 0: everywhere
} Known;
typedef VEC(Known) KnownVec;

typedef struct BlockKnown {
    KnownVec known, seen;   // seen: by atomics, known after that thread's next fence
    int settled;            // so many of `known` were left when it was last looked through for what all threads know
    Told whole;             // at the CTA's last fence
    Told *fenced;           // at each thread's; NULL: none
} BlockKnown;

static BlockKnown *block_known(const Machine *machine, int64_t block) {
    Races *races = machine->races;
    const void *key = (const void *)(intptr_t)(block + 1);
    BlockKnown *known = map_get(races->blocks, key);
    if (!known) {
        known = NEW(machine->arena, BlockKnown);
        map_put(races->blocks, key, known);
    }
    return known;
}

// Whether a party that was told this knows of the access.
static bool told_of(const Told *told, const Moment *access) {
    if (access->stamp >= told->at.stamp) return false;
    if (!told->clock || access->thread == WHOLE) return true;
    if (access->thread == told->at.thread) return access->epoch <= told->at.epoch;
    return told->clock->at[access->thread] >= access->epoch;
}

// The last epoch of a thread or unit that a party that was told this knows.
static uint32_t told_until(const Told *told, uint32_t party) {
    uint32_t until = told->clock->at[party];
    return party == told->at.thread && told->at.epoch > until ? told->at.epoch : until;
}

static bool told_as_much(const Races *races, const Told *a, const Told *b) {   // a tells all that b does
    if (a->at.stamp < b->at.stamp) return false;
    if (!a->clock) return true;
    if (!b->clock) return false;
    if (a->clock == b->clock && a->at.thread == b->at.thread) return a->at.epoch >= b->at.epoch;
    for (uint32_t t = 0; t < (uint32_t)races->parties; t++)
        if (told_until(a, t) < told_until(b, t)) return false;
    return true;
}

static bool known_as_widely(const Known *a, const Known *b) {   // by all threads that know b
    return a->learner == WHOLE || (a->learner == b->learner && a->since <= b->since);
}

static void learn(const Machine *machine, KnownVec *into, Known news) {
    Races *races = machine->races;
    for (int i = 0; i < into->count; i++) {
        Known *old = &into->items[i];
        if (old->block != news.block || old->within != news.within) continue;
        if (told_as_much(races, &old->told, &news.told) && known_as_widely(old, &news)) return;
        if (!told_as_much(races, &news.told, &old->told) || !known_as_widely(&news, old)) continue;
        if (news.told.clock) news.told.clock->users++;
        clock_release(races, old->told.clock);
        *old = news;
        return;
    }
    if (news.told.clock) news.told.clock->users++;
    vec_push(machine->arena, into, news);
}

// All that `from` holds is learned by the thread in its epoch.
static void learn_all(const Machine *machine, KnownVec *into, const KnownVec *from, uint32_t learner, uint32_t since) {
    for (int i = 0; i < from->count; i++)
        learn(machine, into, (Known){from->items[i].block, from->items[i].told, learner, since, 0});
}

Party party_of(const Agent *agent, int lane) {
    const Cta *cta = agent->cta;
    if (!agent->warp || !cta->clocks) return (Party){cta->index, WHOLE, WHOLE, 0, NULL};
    uint32_t thread = (uint32_t)(agent->first_thread + lane);
    return (Party){cta->index, thread, thread, cta->epochs[thread / LANES], cta->clocks[thread]->at};
}

Party party_of_unit(const Agent *agent, int lane, const Actor *actor) {
    Party party = party_of(agent, lane);
    party.thread = actor->unit;
    party.epoch = actor->epoch;
    party.knows = actor->clock->at;
    return party;
}

static Moment moment_of(const Machine *machine, const Party *party) {
    return (Moment){party->thread, party->epoch, machine->races->stamp};
}

static bool has_learned(const Party *party, const Known *known) {
    return known->learner == WHOLE || !party->knows || known->learner == party->self ||
           party->knows[known->learner] >= known->since;
}

static bool all_know(const Cta *cta, const Known *known) {
    for (int t = 0; t < cta->machine->code->block_threads && known->learner != WHOLE; t++)
        if (cta->clocks[cta->first_thread + t]->at[known->learner] < known->since) return false;
    return true;
}

// What all threads of the CTA know no longer needs the thread that learned it and when: of what a spinning thread
// learns, again and again, the latest takes the place of all before it. Looked for when the list has doubled.
static void settle(const Cta *cta, BlockKnown *block) {
    const Machine *machine = cta->machine;
    enum { FEW = 32 };
    if (!cta->clocks || block->known.count < 2 * block->settled + FEW) return;
    KnownVec kept = {0};
    for (int pass = 0; pass < 2; pass++)   // first what all know, which then covers others
        for (int i = 0; i < block->known.count; i++) {
            Known item = block->known.items[i];
            if (all_know(cta, &item) != (pass == 0)) continue;
            if (pass == 0) item.learner = WHOLE, item.since = 0;
            learn(machine, &kept, item);
        }
    for (int i = 0; i < block->known.count; i++) clock_release(machine->races, block->known.items[i].told.clock);
    block->known = kept;
    block->settled = kept.count;
}

static bool party_knows(const Machine *machine, const Party *party, int64_t other, const Moment *access) {
    if (machine->races->stamp == 1) return false;
    const KnownVec *known = &block_known(machine, party->block)->known;
    for (int i = 0; i < known->count; i++) {
        const Known *item = &known->items[i];
        if (item->block == other && told_of(&item->told, access) && has_learned(party, item)) return true;
    }
    return false;
}

static KnownVec *location(const Machine *machine, const Mem *mem, int64_t element) {
    const void *key = mem->data + element * mem->bytes;
    KnownVec *released = map_get(machine->races->locations, key);
    if (!released) {
        released = arena_alloc(machine->arena, sizeof *released);
        map_put(machine->races->locations, key, released);
    }
    return released;
}

// A scope in which there are other CTAs. (PTX ISA, "morally strong": the scopes of both sides include each other.)
static bool reaches_others(const Machine *machine, const char *scope) {
    return strcmp(scope, "cluster") == 0 ? machine->code->cluster > 1 : strcmp(scope, "block") != 0;
}

static int64_t cluster_of(const Cta *cta) {
    return cta->members[0].index;
}

static bool in_cluster(const Cta *cta, int64_t block) {
    for (int rank = 0; rank < cta->machine->code->cluster; rank++)
        if (cta->members[rank].index == block) return true;
    return false;
}

// What the party tells: of its own CTA, and of the others that it knows.
static void release_to(const Machine *machine, KnownVec *released, const Party *party, const Told *told,
                       int64_t within) {
    const KnownVec *known = &block_known(machine, party->block)->known;
    for (int i = 0; i < known->count; i++) {
        const Known *item = &known->items[i];
        if (has_learned(party, item)) learn(machine, released, (Known){item->block, item->told, WHOLE, 0, within});
    }
    learn(machine, released, (Known){party->block, *told, WHOLE, 0, within});
}

static Told all_told(const Agent *agent, const Party *party) {
    Races *races = agent->cta->machine->races;
    Clock *clock = party->thread == WHOLE ? NULL : agent->cta->clocks[party->thread];
    return (Told){clock, {party->thread, party->epoch, ++races->stamp}};
}

void race_release(Agent *agent, int lane, const Mem *mem, int64_t element, const char *scope) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races || !reaches_others(machine, scope)) return;
    Party party = party_of(agent, lane);
    Told told = all_told(agent, &party);
    int64_t within = strcmp(scope, "cluster") == 0 ? 1 + cluster_of(agent->cta) : 0;
    release_to(machine, location(machine, mem, element), &party, &told, within);
}

void race_acquire(Agent *agent, int lane, const Mem *mem, int64_t element, const char *scope) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races || !reaches_others(machine, scope)) return;
    Party party = party_of(agent, lane);
    BlockKnown *known = block_known(machine, party.block);
    const KnownVec *released = location(machine, mem, element);
    int64_t cluster = 1 + cluster_of(agent->cta);
    bool near = strcmp(scope, "cluster") == 0;   // knows of its own cluster then
    for (int i = 0; i < released->count; i++) {
        const Known *item = &released->items[i];
        if ((item->within && item->within != cluster) || (near && !in_cluster(agent->cta, item->block))) continue;
        learn(machine, &known->known, (Known){item->block, item->told, party.thread, party.epoch, 0});
    }
    settle(agent->cta, known);
}

static Told *fence_of(const Machine *machine, BlockKnown *known, const Party *party) {
    if (party->thread == WHOLE) return &known->whole;
    if (!known->fenced) known->fenced = NEW_ARRAY(machine->arena, Told, machine->races->threads);
    return &known->fenced[party->thread];
}

static void fence_thread(Agent *agent, int lane) {
    const Machine *machine = agent->cta->machine;
    Party party = party_of(agent, lane);
    BlockKnown *known = block_known(machine, party.block);
    Told *fence = fence_of(machine, known, &party), told = all_told(agent, &party);
    if (told.clock) told.clock->users++;
    clock_release(machine->races, fence->clock);
    *fence = told;
    for (int i = 0; i < known->seen.count; i++) {
        Known item = known->seen.items[i];
        if (item.learner != party.thread && party.thread != WHOLE) continue;
        learn(machine, &known->known, (Known){item.block, item.told, item.learner, party.epoch, 0});
    }
    settle(agent->cta, known);
}

void race_fence(Agent *agent, const Call *call) {
    const Machine *machine = agent->cta->machine;
    if (!machine->races || !reaches_others(machine, CALL_ARG(call, FENCE, scope).name)) return;
    spend(agent, __builtin_popcount(agent->mask), STEP_ACCESSES);
    for (Mask m = agent->warp ? agent->mask : 1; m; m &= m - 1) fence_thread(agent, __builtin_ctz(m));
}

void race_atomic(Agent *agent, int lane, const Mem *mem,
                 int64_t element) {   // after a fence a release; before one an acquire
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    Party party = party_of(agent, lane);
    BlockKnown *known = block_known(machine, party.block);
    KnownVec *released = location(machine, mem, element);
    learn_all(machine, &known->seen, released, party.thread, 0);
    const Told *fence = fence_of(machine, known, &party);
    if (known->whole.at.stamp > fence->at.stamp) fence = &known->whole;   // the CTA's, before its threads began
    if (fence->at.stamp) release_to(machine, released, &party, fence, 0);
}

void races_meet(Cta *cta) {
    Machine *machine = cta->machine;
    KnownVec all = {0};
    if (!machine->races) return;
    uint32_t stamp = ++machine->races->stamp;
    for (int rank = 0; rank < machine->code->cluster; rank++) {
        learn_all(machine, &all, &block_known(machine, cta->members[rank].index)->known, WHOLE, 0);
        learn(machine, &all, (Known){cta->members[rank].index, {NULL, {WHOLE, 0, stamp}}, WHOLE, 0, 0});
    }
    for (int rank = 0; rank < machine->code->cluster; rank++)
        learn_all(machine, &block_known(machine, cta->members[rank].index)->known, &all, WHOLE, 0);
}

// What follows a load with an order follows the write that it saw, whether that was a release or not (the PTX manual's causality order).
static bool follows_a_load_of(const Machine *machine, const Party *party, const GlobalCell *cell,
                              const BlockTouch *before) {
    const BlockTouch *seen = &cell->seen;
    if (before != &cell->write || !seen->block) return false;
    if (seen->block != party->block + 1) return party_knows(machine, party, seen->block - 1, &seen->when);
    return !party->knows || party->self == seen->when.thread || party->knows[seen->when.thread] >= seen->when.epoch;
}

static void check_blocks(Agent *agent, int lane, const Party *party, const Mem *mem, int64_t element,
                         const BlockTouch *now, const BlockTouch *before) {
    Machine *machine = agent->cta->machine;
    if (!before->block || before->block == now->block || !touches_conflict(now->touch, before->touch)) return;
    if (party_knows(machine, party, before->block - 1, &before->when)) return;
    if (follows_a_load_of(machine, party, &mem->cells[element], before)) return;
    const char *who = arena_printf(machine->arena, "CTA %lld", (long long)before->block - 1);
    emu_report_pair(machine, now->pc, before->pc, T_EMU_CTA_RACE, element_text(machine->arena, mem, element),
                    thread_text(agent, lane), touch_text(now->touch), who, touch_text(before->touch));
}

// A plain read conflicts with more than one with a memory order, which takes the place of none.
static void remember_read(GlobalCell *cell, const BlockTouch *now) {
    bool keeps = cell->read.block && cell->read.touch == TOUCH_READ;
    bool keeps_2 = cell->read_2.block && cell->read_2.touch == TOUCH_READ;
    if (cell->read.block != now->block) {
        if (keeps || !keeps_2) cell->read_2 = cell->read;
    } else if (keeps && now->touch != TOUCH_READ) {
        return;
    }
    cell->read = *now;
}

void touch_blocks(Agent *agent, int lane, const Party *party, const Mem *mem, int64_t element, Touch touch, int pc) {
    GlobalCell *cell = &mem->cells[element];
    BlockTouch now = {party->block + 1, moment_of(agent->cta->machine, party), pc, touch};
    check_blocks(agent, lane, party, mem, element, &now, &cell->write);
    if (touch == TOUCH_READ || touch == TOUCH_ATOMIC_READ) {
        bool sees = touch == TOUCH_ATOMIC_READ && touch_is_atomic(cell->write.touch);
        if (sees && cell->write.block && cell->write.block != now.block) cell->seen = now;
        remember_read(cell, &now);
        return;
    }
    check_blocks(agent, lane, party, mem, element, &now, &cell->read);
    check_blocks(agent, lane, party, mem, element, &now, &cell->read_2);
    cell->read = cell->read_2 = (BlockTouch){0};
    // The plain write of a CTA conflicts with more than its atomics after it.
    if (touch == TOUCH_ATOMIC && cell->write.block == now.block && cell->write.touch == TOUCH_WRITE) return;
    cell->write = now;
    cell->seen = (BlockTouch){0};
}
