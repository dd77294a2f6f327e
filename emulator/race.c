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
// Global memory within a block works the same way. Between blocks nothing is ordered except by release and acquire (a
// block's `fence` makes its atomics both); blocks are compared as wholes: what a block wrote before its release is
// known to whoever acquires. In a parallel loop at tile stage each iteration is a thread of its own, and loops follow
// each other.
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

struct GlobalCell {                     // across blocks; block + 1, 0: none
    int64_t writer, reader, reader_2;   // the last writer, and two different readers
    uint32_t w_stamp, r_stamp, r2_stamp;
    int w_pc, r_pc, r2_pc;
    bool w_atomic;
    int64_t owner;   // the block that the thread cell speaks of
};

typedef struct Known {
    int64_t block;
    uint32_t stamp;   // its writes with a smaller stamp are known
} Known;
typedef VEC(Known) KnownVec;

struct Races {
    int threads;
    Clock *free;
    VEC(ReaderNode) nodes;
    uint32_t free_node;
    uint32_t stamp;                       // advances with every release and fence; 1: there was none
    const Clock *last_into, *last_from;   // the last join, which need not be repeated
    Map *locations;                       // released: address -> KnownVec
    Map *blocks;                          // block + 1 -> BlockKnown
};

typedef struct BlockKnown {
    KnownVec known, seen;   // seen: by atomics, known after the next fence
    uint32_t fenced;        // stamp of the last fence; 0: none
} BlockKnown;

// ---- clocks ----
static Clock *clock_new(Races *races, Arena *arena) {
    Clock *clock = races->free;
    if (clock) races->free = clock->next;
    else clock = arena_alloc(arena, sizeof *clock + sizeof clock->at[0] * (size_t)races->threads);
    clock->users = 1;
    races->last_into = NULL;
    return clock;
}

static void clock_release(Races *races, Clock *clock) {
    if (!clock || --clock->users) return;
    clock->next = races->free;
    races->free = clock;
}

static void clock_join(const Races *races, Clock *into, const Clock *from) {
    for (int t = 0; t < races->threads; t++)
        if (from->at[t] > into->at[t]) into->at[t] = from->at[t];
}

Races *races_new(Machine *machine) {
    Races *races = NEW(machine->arena, Races);
    races->threads = (int)((machine->code->block_threads + LANES - 1) / LANES * LANES);
    races->locations = map_new(machine->arena);
    races->blocks = map_new(machine->arena);
    races->stamp = 1;
    return races;
}

// A block begins: whatever is remembered of earlier blocks in this memory lies in epochs that all its threads know.
void races_start(Cta *cta) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    int warps = races->threads / LANES;
    if (!cta->clocks) {
        cta->clocks = NEW_ARRAY(cta->machine->arena, Clock *, races->threads);
        cta->epochs = NEW_ARRAY(cta->machine->arena, uint32_t, warps);
    }
    uint32_t last = cta->machine->epoch;
    for (int w = 0; w < warps; w++)
        if (cta->epochs[w] > last) last = cta->epochs[w];
    Clock *clock = clock_new(races, cta->machine->arena);
    for (int t = 0; t < races->threads; t++) clock->at[t] = last;
    for (int t = 0; t < races->threads; t++) {
        clock_release(races, cta->clocks[t]);
        cta->clocks[t] = clock;
        clock->users++;
    }
    clock_release(races, clock);
    for (int w = 0; w < warps; w++) cta->epochs[w] = last + 1;
    cta->machine->epoch = last + 1;
}

// A thread tells `into` all it knows and did.
void clock_arrive(Cta *cta, Clock **into, int thread) {
    Races *races = cta->machine->races;
    if (!races->threads) return;
    if (!*into) {
        *into = clock_new(races, cta->machine->arena);
        memcpy((*into)->at, cta->clocks[thread]->at, sizeof(uint32_t) * (size_t)races->threads);
    } else if (races->last_into != *into || races->last_from != cta->clocks[thread]) {
        clock_join(races, *into, cta->clocks[thread]);
    }
    races->last_into = *into;
    races->last_from = cta->clocks[thread];
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
    bool covered = true;
    for (int t = 0; t < races->threads && covered && !arrived; t++) covered = own->at[t] <= from->at[t];
    Clock *next = from;
    if (covered) {
        from->users++;
    } else {
        next = clock_new(races, cta->machine->arena);
        memcpy(next->at, own->at, sizeof(uint32_t) * (size_t)races->threads);
        clock_join(races, next, from);
    }
    clock_release(races, cta->clocks[thread]);
    cta->clocks[thread] = next;
}

void clock_drop(Cta *cta, Clock **clock) {
    clock_release(cta->machine->races, *clock);
    *clock = NULL;
}

void clock_merge(Cta *cta, Clock **into, const Clock *from) {
    Races *races = cta->machine->races;
    if (!races->threads || !from) return;
    Clock *next = clock_new(races, cta->machine->arena);   // others may share the old one
    memcpy(next->at, from->at, sizeof(uint32_t) * (size_t)races->threads);
    if (*into) clock_join(races, next, *into);
    clock_release(races, *into);
    *into = next;
}

// ---- threads of a block ----
typedef struct Toucher {
    Agent *agent;
    Cta *cta;
    uint32_t thread, warp, lane, epoch;
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

static const char *touch_text(bool write, bool atomic) {
    return atomic ? "updates" : write ? "writes" : "reads";
}

static void report_race(const Toucher *a, int64_t element, uint32_t other, bool other_writes, bool other_atomic,
                        int other_pc) {
    Machine *machine = a->cta->machine;
    Diag *d = emu_report_pair(machine, a->pc, other_pc, T_EMU_RACE, element_text(machine->arena, a->mem, element),
                              thread_text(a->agent, (int)a->lane),
                              touch_text(a->touch == TOUCH_WRITE, a->touch == TOUCH_ATOMIC),
                              thread_index_text(a->cta, (int)other), touch_text(other_writes, other_atomic));
    if (d) diag_label(d, a->mem->buf->loc, "'%s' is declared here", a->mem->buf->name);
}

// A lane of the reader that this access is not ordered after; -1: none.
static int unordered_lane(const Toucher *a, const Reader *reader) {
    for (Mask m = reader->lanes; m; m &= m - 1) {
        uint32_t thread = reader->warp * LANES + (uint32_t)__builtin_ctz(m);
        if (thread != a->thread && a->knows[thread] < reader->epoch) return (int)(thread % LANES);
    }
    return -1;
}

static void check_writer(const Toucher *a, const Cell *cell, int64_t element) {
    if (!cell->w_epoch || cell->w_thread == a->thread || a->knows[cell->w_thread] >= cell->w_epoch) return;
    report_race(a, element, cell->w_thread, true, false, cell->w_pc);
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

void race_shared(Agent *agent, int lane, int64_t byte, int bytes, Touch touch, const Mem *mem, int pc) {
    Cta *cta = agent->cta;
    if (!agent->warp && !agent->role) return;   // at block level all is in order
    int granule = cta->machine->code->granule;
    if (!cta->cells) cta->cells = NEW_ARRAY(cta->machine->arena, Cell, cta->machine->code->shared_bytes / granule + 1);
    Toucher a = access_of(agent, lane, touch, mem, pc);
    for (int64_t at = byte / granule; at * granule < byte + bytes; at++)
        touch_cell(&a, &cta->cells[at], (at * granule - mem->offset) / mem->bytes);
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

static void learn(Arena *arena, KnownVec *into, Known news) {
    for (int i = 0; i < into->count; i++) {
        if (into->items[i].block != news.block) continue;
        if (news.stamp > into->items[i].stamp) into->items[i].stamp = news.stamp;
        return;
    }
    vec_push(arena, into, news);
}

static void learn_all(Arena *arena, KnownVec *into, const KnownVec *from) {
    for (int i = 0; i < from->count; i++) learn(arena, into, from->items[i]);
}

static bool block_knows(const Machine *machine, int64_t block, int64_t other, uint32_t stamp) {
    if (machine->races->stamp == 1) return false;
    const KnownVec *known = &block_known(machine, block)->known;
    for (int i = 0; i < known->count; i++)
        if (known->items[i].block == other) return known->items[i].stamp > stamp;
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

void race_release(Agent *agent, const Mem *mem, int64_t element) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    int64_t block = agent->cta->index;
    KnownVec *released = location(machine, mem, element);
    learn_all(machine->arena, released, &block_known(machine, block)->known);
    learn(machine->arena, released, (Known){block, ++machine->races->stamp});
}

void race_acquire(Agent *agent, const Mem *mem, int64_t element) {
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    learn_all(machine->arena, &block_known(machine, agent->cta->index)->known, location(machine, mem, element));
}

void race_fence(Agent *agent) {
    Machine *machine = agent->cta->machine;
    if (!machine->races) return;
    BlockKnown *known = block_known(machine, agent->cta->index);
    known->fenced = ++machine->races->stamp;
    learn_all(machine->arena, &known->known, &known->seen);
}

void race_atomic(Agent *agent, const Mem *mem, int64_t element) {   // after a fence a release; before one an acquire
    Machine *machine = agent->cta->machine;
    if (mem->scope != SCOPE_GLOBAL || !machine->races) return;
    BlockKnown *known = block_known(machine, agent->cta->index);
    KnownVec *released = location(machine, mem, element);
    learn_all(machine->arena, &known->seen, released);
    if (!known->fenced) return;
    learn_all(machine->arena, released, &known->known);
    learn(machine->arena, released, (Known){agent->cta->index, known->fenced});
}

static void report_blocks(Agent *agent, int lane, const Mem *mem, int64_t element, Touch touch, int64_t other,
                          bool other_writes, bool other_atomic, int pc, int other_pc) {
    Machine *machine = agent->cta->machine;
    const char *who = arena_printf(machine->arena, "block %lld", (long long)other);
    emu_report_pair(machine, pc, other_pc, T_EMU_RACE, element_text(machine->arena, mem, element),
                    thread_text(agent, lane), touch_text(touch == TOUCH_WRITE, touch == TOUCH_ATOMIC), who,
                    touch_text(other_writes, other_atomic));
}

static void touch_blocks(Agent *agent, int lane, const Mem *mem, int64_t element, Touch touch, int pc) {
    Machine *machine = agent->cta->machine;
    GlobalCell *cell = &mem->cells[element];
    int64_t me = agent->cta->index + 1;
    bool atomics = touch == TOUCH_ATOMIC && cell->w_atomic;
    if (cell->writer && cell->writer != me && !atomics &&
        !block_knows(machine, me - 1, cell->writer - 1, cell->w_stamp))
        report_blocks(agent, lane, mem, element, touch, cell->writer - 1, true, cell->w_atomic, pc, cell->w_pc);
    if (touch == TOUCH_READ) {
        if (cell->reader == me) {
            cell->r_stamp = machine->races->stamp;
            return;
        }
        cell->reader_2 = cell->reader;
        cell->r2_pc = cell->r_pc;
        cell->r2_stamp = cell->r_stamp;
        cell->r_stamp = machine->races->stamp;
        cell->reader = me;
        cell->r_pc = pc;
        return;
    }
    bool first = cell->reader && cell->reader != me;
    int64_t other = first ? cell->reader : cell->reader_2 && cell->reader_2 != me ? cell->reader_2 : 0;
    if (other && !block_knows(machine, me - 1, other - 1, first ? cell->r_stamp : cell->r2_stamp))
        report_blocks(agent, lane, mem, element, touch, other - 1, false, false, pc, first ? cell->r_pc : cell->r2_pc);
    cell->reader = cell->reader_2 = 0;
    if (touch == TOUCH_ATOMIC && cell->writer == me && !cell->w_atomic) return;   // the plain write conflicts with more
    cell->writer = me;
    cell->w_pc = pc;
    cell->w_atomic = touch == TOUCH_ATOMIC;
    cell->w_stamp = machine->races->stamp;
}

void race_global(Agent *agent, int lane, const Mem *mem, int64_t element, int count, Touch touch, int pc) {
    if (!mem->cells || agent->cta->index < 0) return;
    for (int64_t at = element; at < element + count; at++) {
        touch_blocks(agent, lane, mem, at, touch, pc);
        if (!agent->warp || !mem->thread_cells) continue;
        Cell *cell = &mem->thread_cells[at];
        if (mem->cells[at].owner != agent->cta->index + 1) {
            drop_more(agent->cta->machine->races, cell);
            *cell = (Cell){0};
            mem->cells[at].owner = agent->cta->index + 1;
        }
        Toucher a = access_of(agent, lane, touch, mem, pc);
        touch_cell(&a, cell, at);
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
