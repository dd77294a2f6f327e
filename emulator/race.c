// Races, by happens-before.
//
// Two accesses race when they touch the same bytes, not both only read (or are atomic), and nothing orders them.
// Whether they happened one after the other in this run is of no interest: every thread carries a clock of what it
// knows to have happened, and each granule of memory remembers its last write and the reads since. So a missing barrier
// is found under any schedule.
//
//     clock    for each thread of the block, an epoch: everything that thread did in it or before is known
//     epoch    a counter of each warp, which advances when one of its threads tells others (arrives at a barrier)
//
//     thread 3: As[0] = 1    (epoch 5)          As[0]: written by 3 in 5
//     barrier()                                  all clocks become the maximum of all: [3] = 5; epochs advance
//     thread 9: x = As[0]                        9 knows 3 up to 5: ordered
//     thread 3: As[0] = 2    (epoch 6)          read by 9 in its epoch 6, of which 3 knows nothing: race
//
// Threads share clocks: after a barrier all point to the same one, so an access costs a comparison and a barrier one
// pass over the threads. Readers are kept by warp, as lane masks, and dropped once a later reader knows of them
// (whatever is ordered after the later one is ordered after them).
//
// Asynchronous units (TMA, wgmma) are parties beside the threads: each mbarrier that copies complete on, the stores of
// each warp, the matrix instructions of each warpgroup. What a unit does, it does in the epoch that is open (a phase, a
// group, an instruction), knowing what the threads that started it knew. Whoever waits for the phase or group learns of
// the epoch, and tells others as of everything else.
//
//     thread 0: tma_load(As, map, full)     As: written by the unit of `full` in its phase 5, knowing what 0 knows
//     thread 9: mbarrier_wait(full, 1)      9 knows that unit up to 5
//     thread 9: x = As[0]                   ordered
//
// A unit does not see ordinary stores by being ordered after them: the thread must also have executed fence_async after
// the store, and the unit be ordered after that. So a clock has, beside each thread, the epoch up to which its stores are
// known to be fenced.
//
// Global memory within a block works the same way. Between blocks nothing is ordered except by release and acquire: of
// one thread to another (PTX ISA, "Release and acquire patterns": a thread's `fence` makes its later atomics releases and
// its earlier ones acquires). What the releasing thread knew then, of its own block and of others, the acquiring one knows,
// and whoever learns from that one in its block:
//
//     block 0, thread 7: part[0] = 1        (epoch 3)
//     barrier()                              thread 0 knows 7 up to 3
//     thread 0: fence, atomic_add(n, 1)      n: tells what thread 0 of block 0 knows
//     block 1, thread 0: atomic_add(n, 1), fence     knows it from its epoch 5 on
//     barrier()                              thread 9 knows its thread 0 up to 5
//     thread 9: x = part[0]                  ordered; without either barrier a race
//
// In a parallel loop at tile stage each iteration is a thread of its own, and loops follow each other; there a block is
// one party.
#include "emulator/machine.h"
#include <string.h>

struct Clock {
    int users;
    Clock *next;   // of the free ones
    uint32_t at[];
};

typedef struct Reader {
    uint32_t epoch, warp;
    Mask lanes;   // 0: none
    int pc;
    bool atomic;   // updates: they go with each other, as reads do
} Reader;

struct Cell {
    uint32_t w_epoch, w_thread;   // the last plain write; epoch 0: never written
    int w_pc;
    Reader reader;   // since then
    uint32_t more;   // further readers: index + 1 in the pool
};

typedef struct ReaderNode {
    Reader reader;
    uint32_t next;
} ReaderNode;

struct IterCell {
    uint32_t seq;                       // the parallel loop; older ones are over
    int64_t writer, reader, reader_2;   // iteration + 1; the first two different readers
    int w_pc, r_pc;
};

// Who of a block touched something, and when.
typedef struct Moment {
    uint32_t thread, epoch;   // or a unit; thread WHOLE: the block as one
    uint32_t stamp;           // of all blocks
} Moment;

struct GlobalCell {                     // across blocks; block + 1, 0: none
    int64_t writer, reader, reader_2;   // the last writer, and two different readers
    Moment wrote, read, read_2;
    int w_pc, r_pc, r2_pc;
    bool w_atomic;
    int64_t owner;   // the block that the thread cell speaks of
};

enum { WHOLE = UINT32_MAX };   // for a thread: all of the block

// What a thread knows of its block when it releases; stamp 0: nothing.
typedef struct Told {
    Clock *clock;   // NULL: all
    Moment at;
} Told;

// What is known of another block.
typedef struct Known {
    int64_t block;
    Told told;
    uint32_t learner, since;   // the thread that learned it, in which epoch
} Known;
typedef VEC(Known) KnownVec;

struct Races {
    int threads;   // of a block (of all of a cluster), in whole warps
    int parties;   // components of a clock: threads, their fences, units
    int first_unit, warps, groups;
    Clock *free;
    VEC(ReaderNode) nodes;
    uint32_t free_node;
    uint32_t stamp;                       // advances with every release and fence; 1: there was none
    const Clock *last_into, *last_from;   // the last join, which need not be repeated
    const Clock *last_own, *last_told;    // the same for what a thread learns
    Clock *last_next;
    Map *locations;   // released: address -> KnownVec
    Map *blocks;      // block + 1 -> BlockKnown
};

typedef struct BlockKnown {
    KnownVec known, seen;   // seen: by atomics, known after that thread's next fence
    Told whole;             // at the block's last fence
    Told *fenced;           // at each thread's; NULL: none
} BlockKnown;

// ---- clocks ----
static void forget_joins(Races *races) {
    races->last_into = NULL;
    races->last_next = NULL;
}

static Clock *clock_new(Races *races, Arena *arena) {
    Clock *clock = races->free;
    if (clock) races->free = clock->next;
    else clock = arena_alloc(arena, sizeof *clock + sizeof clock->at[0] * (size_t)races->parties);
    clock->users = 1;
    forget_joins(races);
    return clock;
}

static void clock_release(Races *races, Clock *clock) {
    if (!clock || --clock->users) return;
    clock->next = races->free;
    races->free = clock;
}

static Clock *clock_copy(Races *races, Arena *arena, const Clock *from) {
    Clock *clock = clock_new(races, arena);
    memcpy(clock->at, from->at, sizeof(uint32_t) * (size_t)races->parties);
    return clock;
}

static void clock_join(const Races *races, Clock *into, const Clock *from) {
    for (int t = 0; t < races->parties; t++) into->at[t] = from->at[t] > into->at[t] ? from->at[t] : into->at[t];
}

static void clock_meet(const Races *races, Clock *into, const Clock *from) {   // what both know
    for (int t = 0; t < races->parties; t++) into->at[t] = from->at[t] < into->at[t] ? from->at[t] : into->at[t];
}

Races *races_new(Machine *machine) {
    Races *races = NEW(machine->arena, Races);
    const Code *code = machine->code;
    races->threads = (int)(code->padded_threads * code->cluster);
    races->parties = races->threads;
    if (code->bulk) {
        races->warps = races->threads / LANES;
        races->groups = (races->warps + WARPGROUP - 1) / WARPGROUP;
        races->first_unit = 2 * races->threads;
        races->parties = races->first_unit + 2 * races->warps + races->groups + code->mbarrier_count * code->cluster;
    }
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

// Threads [first, first + count) begin: whatever is remembered of earlier ones in this memory lies in epochs that all of
// them know.
static void begin_threads(Cta *cta, int first, int count) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    int warps = races->threads / LANES, units = races->parties - races->first_unit;
    if (!cta->machine->code->bulk) units = 0;
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

void clock_tick(Cta *cta, int warp) {   // what the warp does from now on is news to those it has told
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
static int unit_index(const Races *races, UnitKind kind, int number) {
    switch (kind) {
    case UNIT_READS: return number;
    case UNIT_WRITES: return races->warps + number;
    case UNIT_WGMMA: return 2 * races->warps + number;
    default: return 2 * races->warps + races->groups + number;
    }
}

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

// These threads of a warp learn that the party has come to the epoch; party -1: each learns it of its own fence. Those
// that knew the same go on sharing their knowledge: what they learn here, they learn together.
static void learn_together(Cta *cta, int first_thread, Mask lanes, int party, uint32_t epoch) {
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
        learn_together(agent->cta, agent->first_thread, lanes, unit_party(races, kind, number), epoch);
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
    learn_together(cta, agent->first_thread, agent->warp ? agent->mask : 1, -1, epoch);
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

// ---- threads of a block ----
typedef struct Toucher {
    Agent *agent;                         // NULL: a unit
    Cta *cta;                             // whose memory it touches
    uint32_t thread, warp, lane, epoch;   // of a unit: its party, counted as if it were a thread
    const uint32_t *knows;
    Touch touch;
    const Mem *mem;
    int pc;
} Toucher;

static Toucher access_of(Agent *agent, int lane, Touch touch, const Mem *mem, int pc) {
    Cta *cta = agent->cta;
    uint32_t thread = (uint32_t)(agent->first_thread + lane);
    return (Toucher){
        agent, cta, thread, thread / LANES, (uint32_t)lane, cta->epochs[thread / LANES], cta->clocks[thread]->at,
        touch, mem, pc};
}

static Toucher unit_of(Cta *cta, const Actor *actor, Touch touch, const Mem *mem) {
    uint32_t party = actor->unit;
    return (Toucher){NULL,  cta, party,    party / LANES, party % LANES, actor->epoch, actor->clock->at,
                     touch, mem, actor->pc};
}

static const char *party_text(Cta *cta, int party) {
    const Races *races = cta->machine->races;
    Arena *arena = cta->machine->arena;
    if (party < races->threads) return thread_index_text(cta, party);
    int unit = party - races->first_unit, stores = 2 * races->warps;
    if (unit < stores) return arena_printf(arena, "a tma_store of warp %d", unit % races->warps);
    if (unit < stores + races->groups) return arena_printf(arena, "a wgmma of warpgroup %d", unit - stores);
    int number = unit - stores - races->groups, of_each = cta->machine->code->mbarrier_count;
    const MBarrier *barrier = cta->members[number / of_each].mbarrier_list[number % of_each];
    return arena_printf(arena, "a tma_load that completes on %s", mbarrier_text(cta, barrier));
}

static const char *toucher_text(const Toucher *a) {
    return a->agent ? thread_text(a->agent, (int)a->lane) : party_text(a->cta, (int)a->thread);
}

static const char *touch_text(bool write, bool atomic) {
    return atomic ? "updates" : write ? "writes" : "reads";
}

static void report_race(const Toucher *a, int64_t element, uint32_t other, bool other_writes, bool other_atomic,
                        int other_pc) {
    Machine *machine = a->cta->machine;
    Diag *d = emu_report_pair(machine, a->pc, other_pc, T_EMU_RACE, element_text(machine->arena, a->mem, element),
                              toucher_text(a), touch_text(a->touch == TOUCH_WRITE, a->touch == TOUCH_ATOMIC),
                              party_text(a->cta, (int)other), touch_text(other_writes, other_atomic));
    if (d) diag_label(d, a->mem->buf->loc, "'%s' is declared here", a->mem->buf->name);
}

// A thread's own accesses are in order; those of a unit are not.
static bool same_thread(const Toucher *a, uint32_t thread) {
    return a->agent && a->thread == thread;
}

// A lane of the reader that this access is not ordered after; -1: none.
static int unordered_lane(const Toucher *a, const Reader *reader) {
    for (Mask m = reader->lanes; m; m &= m - 1) {
        uint32_t thread = reader->warp * LANES + (uint32_t)__builtin_ctz(m);
        if (!same_thread(a, thread) && a->knows[thread] < reader->epoch) return (int)(thread % LANES);
    }
    return -1;
}

static void check_fenced(const Toucher *a, const Cell *cell,
                         int64_t element) {   // of a thread's store before a unit's access
    const Races *races = a->cta->machine->races;
    Machine *machine = a->cta->machine;
    if (cell->w_thread >= (uint32_t)races->threads) return;
    if (a->knows[(uint32_t)races->threads + cell->w_thread] >= cell->w_epoch) return;
    emu_report_pair(machine, a->pc, cell->w_pc, T_EMU_PROXY, element_text(machine->arena, a->mem, element),
                    party_text(a->cta, (int)cell->w_thread), toucher_text(a));
}

static void check_writer(const Toucher *a, const Cell *cell, int64_t element) {
    if (!cell->w_epoch || same_thread(a, cell->w_thread)) return;
    if (a->knows[cell->w_thread] < cell->w_epoch) report_race(a, element, cell->w_thread, true, false, cell->w_pc);
    else if (!a->agent && a->mem->scope == SCOPE_SHARED) check_fenced(a, cell, element);
}

static void drop_more(Races *races, Cell *cell) {
    while (cell->more) {
        uint32_t node = cell->more;
        cell->more = races->nodes.items[node - 1].next;
        races->nodes.items[node - 1].next = races->free_node;
        races->free_node = node;
    }
}

static void push_more(Races *races, Arena *arena, Cell *cell, Reader reader) {
    uint32_t node = races->free_node;
    if (node) {
        races->free_node = races->nodes.items[node - 1].next;
    } else {
        vec_push(arena, &races->nodes, (ReaderNode){0});
        node = (uint32_t)races->nodes.count;
    }
    races->nodes.items[node - 1] = (ReaderNode){reader, cell->more};
    cell->more = node;
}

static bool same_moment(const Toucher *a, const Reader *reader) {
    return reader->lanes && reader->warp == a->warp && reader->epoch == a->epoch &&
           reader->atomic == (a->touch == TOUCH_ATOMIC);
}

// Whoever is ordered after this access is ordered after that reader too, and it conflicts with the same accesses.
static bool replaces(const Toucher *a, const Reader *reader) {
    return !reader->lanes || (reader->atomic == (a->touch == TOUCH_ATOMIC) && unordered_lane(a, reader) < 0);
}

static void add_reader(const Toucher *a, Cell *cell) {
    Races *races = a->cta->machine->races;
    Mask bit = (Mask)1 << a->lane;
    Reader *known = same_moment(a, &cell->reader) ? &cell->reader : NULL;
    bool replace = known || replaces(a, &cell->reader);
    for (uint32_t node = cell->more; node && !known; node = races->nodes.items[node - 1].next) {
        Reader *reader = &races->nodes.items[node - 1].reader;
        if (same_moment(a, reader)) known = reader;
        else replace = replace && replaces(a, reader);
    }
    if (known) {
        known->lanes |= bit;
        known->pc = a->pc;
        return;
    }
    if (replace) drop_more(races, cell);
    else push_more(races, a->cta->machine->arena, cell, cell->reader);
    cell->reader = (Reader){a->epoch, a->warp, bit, a->pc, a->touch == TOUCH_ATOMIC};
}

static bool check_reader(const Toucher *a, const Reader *reader, int64_t element) {
    if (a->touch == TOUCH_READ ? !reader->atomic : a->touch == TOUCH_ATOMIC && reader->atomic) return true;
    int lane = unordered_lane(a, reader);
    if (lane < 0) return true;
    report_race(a, element, reader->warp * LANES + (uint32_t)lane, false, reader->atomic, reader->pc);
    return false;
}

static void check_readers(const Toucher *a, const Cell *cell, int64_t element) {
    const Races *races = a->cta->machine->races;
    bool ordered = check_reader(a, &cell->reader, element);
    for (uint32_t node = cell->more; node && ordered; node = races->nodes.items[node - 1].next)
        ordered = check_reader(a, &races->nodes.items[node - 1].reader, element);
}

static void touch_cell(const Toucher *a, Cell *cell, int64_t element) {
    check_writer(a, cell, element);
    if (cell->reader.lanes) check_readers(a, cell, element);
    if (a->touch != TOUCH_WRITE) {
        add_reader(a, cell);
        return;
    }
    drop_more(a->cta->machine->races, cell);
    cell->reader.lanes = 0;
    cell->w_epoch = a->epoch;
    cell->w_thread = a->thread;
    cell->w_pc = a->pc;
}

static void touch_shared(const Toucher *a, int64_t byte, int bytes) {
    Cta *cta = a->cta;
    int granule = cta->machine->code->granule;
    if (!cta->cells) cta->cells = NEW_ARRAY(cta->machine->arena, Cell, cta->machine->code->shared_bytes / granule + 1);
    for (int64_t at = byte / granule; at * granule < byte + bytes; at++)
        touch_cell(a, &cta->cells[at], (at * granule - a->mem->offset) / a->mem->bytes);
}

void race_shared(Agent *agent, int lane, int64_t byte, int bytes, Touch touch, const Mem *mem, int pc) {
    if (!agent->warp && !agent->role) return;   // at block level all is in order
    Toucher a = access_of(agent, lane, touch, mem, pc);
    touch_shared(&a, byte, bytes);
}

void race_peer(Agent *agent, int lane, Cta *peer, const Mem *mem, int64_t element, Touch touch) {
    if (!agent->warp && !agent->role) return;
    Toucher a = access_of(agent, agent->warp ? lane : 0, touch, mem, agent->pc);   // a role is one party
    a.cta = peer;
    touch_shared(&a, mem->offset + element * mem->bytes, mem->bytes);
}

static bool from_outside(const Cta *cta, const Reader *reader) {
    int thread = (int)reader->warp * LANES;
    return reader->lanes &&
           (thread < cta->first_thread || thread >= cta->first_thread + cta->machine->code->padded_threads);
}

int race_unfinished(Cta *cta, int64_t *byte) {
    Races *races = cta->machine->races;
    const Code *code = cta->machine->code;
    if (!races || !races->threads || !cta->cells) return -1;
    Clock *all = clock_copy(races, cta->machine->arena, cta->clocks[cta->first_thread]);
    for (int t = 1; t < code->block_threads; t++) clock_join(races, all, cta->clocks[cta->first_thread + t]);
    int found = -1;
    for (int64_t at = 0; at < code->shared_bytes / code->granule && found < 0; at++) {
        const Cell *cell = &cta->cells[at];
        for (uint32_t node = cell->more, first = 1; first || node; first = 0) {
            const Reader *reader = first ? &cell->reader : &races->nodes.items[node - 1].reader;
            if (!first) node = races->nodes.items[node - 1].next;
            for (Mask m = from_outside(cta, reader) ? reader->lanes : 0; m; m &= m - 1)
                if (all->at[reader->warp * LANES + (uint32_t)__builtin_ctz(m)] < reader->epoch) found = reader->pc;
        }
        *byte = at * code->granule;
    }
    clock_release(races, all);
    return found;
}

void actor_shared(Cta *cta, const Actor *actor, int64_t byte, int bytes, Touch touch, const Mem *mem) {
    if (!actor->clock) return;
    Toucher a = unit_of(cta, actor, touch, mem);
    touch_shared(&a, byte, bytes);
}

// ---- between blocks ----
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

// An access that whoever was told this knows of.
static bool told_of(const Told *told, const Moment *access) {
    if (access->stamp >= told->at.stamp) return false;
    if (!told->clock || access->thread == WHOLE) return true;
    if (access->thread == told->at.thread) return access->epoch <= told->at.epoch;
    return told->clock->at[access->thread] >= access->epoch;
}

static bool told_as_much(const Races *races, const Told *a, const Told *b) {   // a tells all that b does
    if (a->at.stamp < b->at.stamp) return false;
    if (!a->clock) return true;
    if (!b->clock || a->at.thread != b->at.thread) return false;
    for (int t = 0; t < races->parties && a->clock != b->clock; t++)
        if (a->clock->at[t] < b->clock->at[t]) return false;
    return a->at.epoch >= b->at.epoch;
}

static bool known_as_widely(const Known *a, const Known *b) {   // by all who know b
    return a->learner == WHOLE || (a->learner == b->learner && a->since <= b->since);
}

static void learn(const Machine *machine, KnownVec *into, Known news) {
    Races *races = machine->races;
    for (int i = 0; i < into->count; i++) {
        Known *old = &into->items[i];
        if (old->block != news.block) continue;
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
        learn(machine, into, (Known){from->items[i].block, from->items[i].told, learner, since});
}

// Whoever touches global memory: a thread or unit, or the block as one.
typedef struct Party {
    int64_t block;
    uint32_t thread, self, epoch;   // self: the thread that a unit acts for
    const uint32_t *knows;
} Party;

static Party party_of(const Agent *agent, int lane) {
    const Cta *cta = agent->cta;
    if (!agent->warp || !cta->clocks) return (Party){cta->index, WHOLE, WHOLE, 0, NULL};
    uint32_t thread = (uint32_t)(agent->first_thread + lane);
    return (Party){cta->index, thread, thread, cta->epochs[thread / LANES], cta->clocks[thread]->at};
}

static Party party_of_unit(const Agent *agent, int lane, const Actor *actor) {
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

// What the party tells: of its own block, and of the others that it knows.
static void release_to(const Machine *machine, KnownVec *released, const Party *party, const Told *told) {
    const KnownVec *known = &block_known(machine, party->block)->known;
    for (int i = 0; i < known->count; i++) {
        const Known *item = &known->items[i];
        if (has_learned(party, item)) learn(machine, released, (Known){item->block, item->told, WHOLE, 0});
    }
    learn(machine, released, (Known){party->block, *told, WHOLE, 0});
}

static Told all_told(const Agent *agent, const Party *party) {
    Races *races = agent->cta->machine->races;
    Clock *clock = party->thread == WHOLE ? NULL : agent->cta->clocks[party->thread];
    return (Told){clock, {party->thread, party->epoch, ++races->stamp}};
}

void race_release(Agent *agent, int lane, const Mem *mem, int64_t element) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    Party party = party_of(agent, lane);
    Told told = all_told(agent, &party);
    release_to(machine, location(machine, mem, element), &party, &told);
}

void race_acquire(Agent *agent, int lane, const Mem *mem, int64_t element) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    Party party = party_of(agent, lane);
    learn_all(machine, &block_known(machine, party.block)->known, location(machine, mem, element), party.thread,
              party.epoch);
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
        learn(machine, &known->known, (Known){item.block, item.told, item.learner, party.epoch});
    }
}

void race_fence(Agent *agent) {
    if (!agent->cta->machine->races) return;
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
    if (known->whole.at.stamp > fence->at.stamp) fence = &known->whole;   // the block's, before its threads began
    if (fence->at.stamp) release_to(machine, released, &party, fence);
}

void races_meet(Cta *cta) {
    Machine *machine = cta->machine;
    KnownVec all = {0};
    if (!machine->races) return;
    uint32_t stamp = ++machine->races->stamp;
    for (int rank = 0; rank < machine->code->cluster; rank++) {
        learn_all(machine, &all, &block_known(machine, cta->members[rank].index)->known, WHOLE, 0);
        learn(machine, &all, (Known){cta->members[rank].index, {NULL, {WHOLE, 0, stamp}}, WHOLE, 0});
    }
    for (int rank = 0; rank < machine->code->cluster; rank++)
        learn_all(machine, &block_known(machine, cta->members[rank].index)->known, &all, WHOLE, 0);
}

static void report_blocks(Agent *agent, int lane, const Mem *mem, int64_t element, Touch touch, int64_t other,
                          bool other_writes, bool other_atomic, int pc, int other_pc) {
    Machine *machine = agent->cta->machine;
    const char *who = arena_printf(machine->arena, "block %lld", (long long)other);
    emu_report_pair(machine, pc, other_pc, T_EMU_RACE, element_text(machine->arena, mem, element),
                    thread_text(agent, lane), touch_text(touch == TOUCH_WRITE, touch == TOUCH_ATOMIC), who,
                    touch_text(other_writes, other_atomic));
}

static void touch_blocks(Agent *agent, int lane, const Party *party, const Mem *mem, int64_t element, Touch touch,
                         int pc) {
    Machine *machine = agent->cta->machine;
    GlobalCell *cell = &mem->cells[element];
    int64_t me = party->block + 1;
    Moment now = moment_of(machine, party);
    bool atomics = touch == TOUCH_ATOMIC && cell->w_atomic;
    if (cell->writer && cell->writer != me && !atomics && !party_knows(machine, party, cell->writer - 1, &cell->wrote))
        report_blocks(agent, lane, mem, element, touch, cell->writer - 1, true, cell->w_atomic, pc, cell->w_pc);
    if (touch == TOUCH_READ) {
        if (cell->reader != me) {
            cell->reader_2 = cell->reader;
            cell->r2_pc = cell->r_pc;
            cell->read_2 = cell->read;
            cell->reader = me;
            cell->r_pc = pc;
        }
        cell->read = now;
        return;
    }
    bool first = cell->reader && cell->reader != me;
    int64_t other = first ? cell->reader : cell->reader_2 && cell->reader_2 != me ? cell->reader_2 : 0;
    if (other && !party_knows(machine, party, other - 1, first ? &cell->read : &cell->read_2))
        report_blocks(agent, lane, mem, element, touch, other - 1, false, false, pc, first ? cell->r_pc : cell->r2_pc);
    cell->reader = cell->reader_2 = 0;
    if (touch == TOUCH_ATOMIC && cell->writer == me && !cell->w_atomic) return;   // the plain write conflicts with more
    cell->writer = me;
    cell->w_pc = pc;
    cell->w_atomic = touch == TOUCH_ATOMIC;
    cell->wrote = now;
}

static void touch_global(const Toucher *a, int64_t element) {
    const Mem *mem = a->mem;
    int64_t block = a->cta->index + 1;
    Cell *cell = &mem->thread_cells[element];
    if (mem->cells[element].owner != block) {
        drop_more(a->cta->machine->races, cell);
        *cell = (Cell){0};
        mem->cells[element].owner = block;
    }
    touch_cell(a, cell, element);
}

void race_global(Agent *agent, int lane, const Mem *mem, int64_t element, int count, Touch touch, int pc) {
    dependency_check(agent, lane, mem, element, pc);
    if (!mem->cells || agent->cta->index < 0) return;
    Party party = party_of(agent, lane);
    for (int64_t at = element; at < element + count; at++) {
        touch_blocks(agent, lane, &party, mem, at, touch, pc);
        if (!agent->warp || !mem->thread_cells) continue;
        Toucher a = access_of(agent, lane, touch, mem, pc);
        touch_global(&a, at);
    }
}

void actor_global(Agent *agent, int lane, const Actor *actor, const Mem *mem, int64_t element, int64_t count,
                  Touch touch) {
    dependency_check(agent, lane, mem, element, actor->pc);
    if (!mem->cells || agent->cta->index < 0 || !actor->clock) return;
    Toucher a = unit_of(agent->cta, actor, touch, mem);
    Party party = party_of_unit(agent, lane, actor);
    for (int64_t at = element; at < element + count; at++) {
        touch_blocks(agent, lane, &party, mem, at, touch, actor->pc);
        if (mem->thread_cells) touch_global(&a, at);
    }
}

void races_watch(Machine *machine, Mem *mem, int64_t elements) {   // a tensor that the kernel writes
    mem->cells = NEW_ARRAY(machine->arena, GlobalCell, elements);
    if (machine->code->threads) mem->thread_cells = NEW_ARRAY(machine->arena, Cell, elements);
    else mem->iter_cells = NEW_ARRAY(machine->arena, IterCell, elements);
}

// ---- iterations of a parallel loop ----
static void report_iterations(Agent *agent, const Mem *mem, int64_t element, bool write, int64_t other,
                              bool other_writes, int lane, int pc, int other_pc) {
    Machine *machine = agent->cta->machine;
    const char *mine = thread_text(agent, lane);
    const char *theirs = thread_text(agent, (int)(other - 1 - agent->parallel->base));
    Diag *d = emu_report_pair(machine, pc, other_pc, T_EMU_CONFLICT, element_text(machine->arena, mem, element), mine,
                              touch_text(write, false), theirs, touch_text(other_writes, false));
    if (d) diag_label(d, mem->buf->loc, "'%s' is declared here", mem->buf->name);
}

static void touch_iteration(Agent *agent, int lane, const Mem *mem, IterCell *cell, int64_t element, bool write,
                            int pc) {
    uint32_t seq = agent->cta->machine->loop_seq;
    int64_t me = agent->parallel->base + lane + 1;
    if (cell->seq != seq) *cell = (IterCell){.seq = seq};
    if (cell->writer && cell->writer != me)
        report_iterations(agent, mem, element, write, cell->writer, true, lane, pc, cell->w_pc);
    if (!write) {
        if (!cell->reader) cell->reader = me;
        else if (cell->reader != me) cell->reader_2 = me;
        cell->r_pc = pc;
        return;
    }
    int64_t other = cell->reader && cell->reader != me ? cell->reader : cell->reader_2 != me ? cell->reader_2 : 0;
    if (other) report_iterations(agent, mem, element, write, other, false, lane, pc, cell->r_pc);
    cell->writer = me;
    cell->w_pc = pc;
}

static IterCell *iter_cells(Cta *cta, const Mem *mem) {
    Machine *machine = cta->machine;
    const Code *code = machine->code;
    if (mem->scope == SCOPE_GLOBAL) return mem->iter_cells;
    if (mem->scope == SCOPE_FRAGMENT) {
        if (!cta->fragment_iters)
            cta->fragment_iters = NEW_ARRAY(machine->arena, IterCell, code->fragment_elements + 1);
        return cta->fragment_iters + mem->first_state;
    }
    if (!cta->shared_iters)
        cta->shared_iters = NEW_ARRAY(machine->arena, IterCell, code->shared_bytes / code->granule + 1);
    return cta->shared_iters + mem->offset / code->granule;
}

void race_iteration(Agent *agent, int lane, const Mem *mem, int64_t element, bool write, int pc) {
    IterCell *cells = iter_cells(agent->cta, mem);
    if (!cells) return;
    for (int64_t at = element * mem->unit; at < (element + 1) * mem->unit; at++)
        touch_iteration(agent, lane, mem, &cells[at], element, write, pc);
}
