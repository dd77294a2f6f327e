// Races, by happens-before.
//
// Two accesses race when they touch the same bytes, not both only read (or are atomic), and nothing orders them.
// Whether they happened one after the other in this run is of no interest: every thread carries a clock of what it
// knows to have happened, and each granule of memory remembers its last write and the reads since. So a missing barrier
// is found under any schedule.
//
//     clock    for each thread of the CTA, an epoch: everything that thread did in it or before is known
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
// Asynchronous units (TMA, wgmma) are parties, as threads are: each mbarrier that copies complete on, the stores of
// each warp, the matrix instructions of each warpgroup. What a unit does, it does in the epoch that is open (a phase, a
// group, an instruction), knowing what the threads that started it knew. A thread that waits for the phase or group
// learns of the epoch, and tells others as of everything else.
//
//     thread 0: tma_load(As, map, full)     As: written by the unit of `full` in its phase 5, knowing what 0 knows
//     thread 9: mbarrier_wait(full, 1)      9 knows that unit up to 5
//     thread 9: x = As[0]                   ordered
//
// A unit does not see ordinary stores by being ordered after them: the thread must also have executed fence_async after
// the store, and the unit be ordered after that. So a clock has, for each thread, also the epoch up to which its stores
// are known to be fenced.
//
// Global memory within a CTA works the same way. Between CTAs nothing is ordered except by release and acquire: of
// one thread to another (PTX ISA, "Release and acquire patterns": a thread's `fence` makes its later atomics releases
// and its earlier ones acquires). What the releasing thread knew then, of its own CTA and of others, the acquiring
// one knows, and threads of its CTA that learn from it:
//
//     CTA 0, thread 7: part[0] = 1          (epoch 3)
//     barrier()                              thread 0 knows 7 up to 3
//     thread 0: fence, atomic_add(n, 1)      n: tells what thread 0 of CTA 0 knows
//     CTA 1, thread 0: atomic_add(n, 1), fence       knows it from its epoch 5 on
//     barrier()                              thread 9 knows its thread 0 up to 5
//     thread 9: x = part[0]                  ordered; without either barrier a race
//
// In a parallel loop at tile stage each iteration is a thread of its own, and loops follow each other; there a CTA is
// one party.
#include "emulator/race_impl.h"

// ---- threads of a CTA ----
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

const char *touch_text(Touch touch) {
    return touch_is_atomic(touch) ? "atomically accesses" : touch == TOUCH_WRITE ? "writes" : "reads";
}

static void report_race(const Toucher *a, int64_t element, uint32_t other, Touch other_touch, int other_pc) {
    Machine *machine = a->cta->machine;
    Diag *d =
        emu_report_pair(machine, a->pc, other_pc, T_EMU_RACE, element_text(machine->arena, a->mem, element),
                        toucher_text(a), touch_text(a->touch), party_text(a->cta, (int)other), touch_text(other_touch));
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

static void check_fenced(const Toucher *a, const LastWrite *write,
                         int64_t element) {   // of a thread's store before a unit's access
    const Races *races = a->cta->machine->races;
    Machine *machine = a->cta->machine;
    if (write->thread >= (uint32_t)races->threads) return;
    if (a->knows[(uint32_t)races->threads + write->thread] >= write->epoch) return;
    emu_report_pair(machine, a->pc, write->pc, T_EMU_PROXY, element_text(machine->arena, a->mem, element),
                    party_text(a->cta, (int)write->thread), toucher_text(a));
}

static void check_write(const Toucher *a, const LastWrite *write, int64_t element) {
    if (!write->epoch || same_thread(a, write->thread)) return;
    if (a->knows[write->thread] < write->epoch) report_race(a, element, write->thread, TOUCH_WRITE, write->pc);
    else if (!a->agent && a->mem->scope == SCOPE_SHARED) check_fenced(a, write, element);
}

static void unlink_node(Races *races, uint32_t *link) {
    uint32_t node = *link;
    *link = races->nodes.items[node - 1].next;
    races->nodes.items[node - 1].next = races->free_node;
    races->free_node = node;
}

static void drop_more(Races *races, Readers *readers) {
    while (readers->more) unlink_node(races, &readers->more);
}

static void drop_readers(Races *races, Readers *readers) {
    drop_more(races, readers);
    readers->latest.lanes = 0;
}

static void push_more(Races *races, Arena *arena, uint32_t *list, Reader reader) {
    uint32_t node = races->free_node;
    if (node) {
        races->free_node = races->nodes.items[node - 1].next;
    } else {
        vec_push(arena, &races->nodes, (ReaderNode){0});
        node = (uint32_t)races->nodes.count;
    }
    races->nodes.items[node - 1] = (ReaderNode){reader, *list};
    *list = node;
}

static bool same_moment(const Toucher *a, const Reader *reader) {
    return reader->lanes && reader->warp == a->warp && reader->epoch == a->epoch && reader->touch == a->touch;
}

static bool covers(const Toucher *a, const Reader *reader) {   // what conflicts with that one does with this
    return reader->touch == a->touch || reader->touch == TOUCH_ATOMIC_READ;
}

// An access ordered after this one is ordered after that reader too.
static bool replaces(const Toucher *a, const Reader *reader) {
    return !reader->lanes || (covers(a, reader) && unordered_lane(a, reader) < 0);
}

// What a thread read before, this access stands for. Else a thread that polls, and that no other waits for, would leave
// a reader for each of its epochs.
static void forget_earlier(const Toucher *a, Reader *reader) {
    if (a->agent && reader->warp == a->warp && covers(a, reader)) reader->lanes &= ~((Mask)1 << a->lane);
}

static void add_reader(const Toucher *a, Readers *readers) {
    Races *races = a->cta->machine->races;
    Reader mine = {a->epoch, a->warp, (Mask)1 << a->lane, a->pc, a->touch};
    bool same = same_moment(a, &readers->latest);
    if (!same) forget_earlier(a, &readers->latest);
    bool replace = !same && replaces(a, &readers->latest);
    for (uint32_t *link = &readers->more; *link;) {
        Reader *reader = &races->nodes.items[*link - 1].reader;
        bool joins = same_moment(a, reader);
        if (joins) mine.lanes |= reader->lanes;
        else forget_earlier(a, reader);
        if (joins || !reader->lanes) {
            unlink_node(races, link);
            continue;
        }
        replace = replace && replaces(a, reader);
        link = &races->nodes.items[*link - 1].next;
    }
    if (same) mine.lanes |= readers->latest.lanes;
    else if (replace) drop_more(races, readers);
    else if (readers->latest.lanes) push_more(races, a->cta->machine->arena, &readers->more, readers->latest);
    readers->latest = mine;
}

static bool check_reader(const Toucher *a, const Reader *reader, int64_t element) {
    if (!touches_conflict(a->touch, reader->touch)) return true;
    int lane = unordered_lane(a, reader);
    if (lane < 0) return true;
    report_race(a, element, reader->warp * LANES + (uint32_t)lane, reader->touch, reader->pc);
    return false;
}

static void check_readers(const Toucher *a, const Readers *readers, int64_t element) {
    const Races *races = a->cta->machine->races;
    if (!readers->latest.lanes) return;
    bool ordered = check_reader(a, &readers->latest, element);
    for (uint32_t node = readers->more; node && ordered; node = races->nodes.items[node - 1].next)
        ordered = check_reader(a, &races->nodes.items[node - 1].reader, element);
}

static LastWrite write_of(const Toucher *a) {
    return (LastWrite){a->epoch, a->thread, a->pc};
}

// ---- lines of shared memory ----
typedef struct Line {
    LastWrite *writes;
    Readers *readers;
    uint8_t *split;
    int granules;
} Line;

static SharedCells *cells_new(const Cta *cta) {
    Arena *arena = cta->machine->arena;
    SharedCells *cells = NEW(arena, SharedCells);
    int64_t lines = cta->machine->code->shared_bytes / LINE_BYTES + 1;
    int64_t granules = lines * (LINE_BYTES / cta->machine->code->granule);
    cells->writes = NEW_ARRAY(arena, LastWrite, granules);
    cells->readers = NEW_ARRAY(arena, Readers, granules);
    cells->split = NEW_ARRAY(arena, uint8_t, lines);
    return cells;
}

static Line line_at(const Cta *cta, int64_t number) {
    int granules = LINE_BYTES / cta->machine->code->granule;
    SharedCells *cells = cta->cells;
    return (Line){cells->writes + number * granules, cells->readers + number * granules, cells->split + number,
                  granules};
}

static void split_writes(const Line *line) {
    if (*line->split & SPLIT_WRITES) return;
    *line->split |= SPLIT_WRITES;
    for (int g = 1; g < line->granules; g++) line->writes[g] = line->writes[0];
}

static void copy_readers(Races *races, Arena *arena, const Readers *from, Readers *to) {
    uint32_t last = 0;
    *to = (Readers){from->latest, 0};
    for (uint32_t node = from->more; node; node = races->nodes.items[node - 1].next) {
        uint32_t copy = 0;
        push_more(races, arena, &copy, races->nodes.items[node - 1].reader);
        *(last ? &races->nodes.items[last - 1].next : &to->more) = copy;
        last = copy;
    }
}

static void split_readers(const Cta *cta, const Line *line) {
    if (*line->split & SPLIT_READERS) return;
    *line->split |= SPLIT_READERS;
    for (int g = 1; g < line->granules; g++)
        copy_readers(cta->machine->races, cta->machine->arena, &line->readers[0], &line->readers[g]);
}

static void unite_readers(const Line *line) {   // when no granule has any
    for (int g = 0; g < line->granules; g++)
        if (line->readers[g].latest.lanes) return;
    *line->split &= (uint8_t)~SPLIT_READERS;
}

static void check_line(const Toucher *a, const Line *line, int first, int end, int64_t byte) {
    int granule = LINE_BYTES / line->granules;
    bool writes = *line->split & SPLIT_WRITES, readers = *line->split & SPLIT_READERS;
    for (int g = first; g < (writes || readers ? end : first + 1); g++) {
        int64_t element = (byte + g * granule - a->mem->offset) / a->mem->bytes;
        if (writes || g == first) check_write(a, &line->writes[writes ? g : 0], element);
        if (readers || g == first) check_readers(a, &line->readers[readers ? g : 0], element);
    }
}

static void write_line(const Toucher *a, const Line *line, int first, int end) {
    bool whole = end - first == line->granules;
    if (!whole) split_writes(line);
    if (!whole && line->readers[0].latest.lanes) split_readers(a->cta, line);
    for (int g = first; g < end && *line->split & SPLIT_READERS; g++)
        drop_readers(a->cta->machine->races, &line->readers[g]);
    if (whole) drop_readers(a->cta->machine->races, &line->readers[0]);
    for (int g = first; g < (whole ? 1 : end); g++) line->writes[g] = write_of(a);
    if (whole) *line->split = 0;
}

static void read_line(const Toucher *a, const Line *line, int first, int end) {
    if (end - first < line->granules) split_readers(a->cta, line);
    bool split = *line->split & SPLIT_READERS;
    for (int g = first; g < (split ? end : first + 1); g++) add_reader(a, &line->readers[split ? g : 0]);
}

static void touch_shared(const Toucher *a, int64_t byte, int bytes) {
    Cta *cta = a->cta;
    int granule = cta->machine->code->granule;
    if (!cta->cells) cta->cells = cells_new(cta);
    for (int64_t number = byte / LINE_BYTES, last = (byte + bytes - 1) / LINE_BYTES; number <= last; number++) {
        int64_t start = number * LINE_BYTES, from = byte - start, to = byte + bytes - start;
        Line line = line_at(cta, number);
        int first = from > 0 ? (int)from / granule : 0;
        int end = to < LINE_BYTES ? ((int)to + granule - 1) / granule : line.granules;
        if (*line.split & SPLIT_READERS && end - first == line.granules) unite_readers(&line);
        check_line(a, &line, first, end, start);
        if (a->touch == TOUCH_WRITE) write_line(a, &line, first, end);
        else read_line(a, &line, first, end);
    }
}

void race_shared(Agent *agent, int lane, int64_t byte, int bytes, Touch touch, const Mem *mem, int pc) {
    if (!agent->warp && !agent->role) return;   // at CTA level all is in order
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
        Line line = line_at(cta, at * code->granule / LINE_BYTES);
        int granule = (int)(at % line.granules);
        if (granule && !(*line.split & SPLIT_READERS)) continue;
        const Readers *readers = &line.readers[granule];
        for (uint32_t node = readers->more, first = 1; first || node; first = 0) {
            const Reader *reader = first ? &readers->latest : &races->nodes.items[node - 1].reader;
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

// ---- global memory ----
static void touch_global(const Toucher *a, int64_t element) {
    const Mem *mem = a->mem;
    int64_t block = a->cta->index + 1;
    Cell *cell = &mem->thread_cells[element];
    if (mem->cells[element].owner != block) {
        drop_readers(a->cta->machine->races, &cell->readers);
        *cell = (Cell){0};
        mem->cells[element].owner = block;
    }
    check_write(a, &cell->write, element);
    check_readers(a, &cell->readers, element);
    if (a->touch != TOUCH_WRITE) {
        add_reader(a, &cell->readers);
        return;
    }
    drop_readers(a->cta->machine->races, &cell->readers);
    cell->write = write_of(a);
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
static void report_iterations(Agent *agent, const Mem *mem, int64_t element, Touch touch, int64_t other,
                              Touch other_touch, int lane, int pc, int other_pc) {
    Machine *machine = agent->cta->machine;
    const char *mine = thread_text(agent, lane);
    const char *theirs = thread_text(agent, (int)(other - 1 - agent->parallel->base));
    Diag *d = emu_report_pair(machine, pc, other_pc, T_EMU_CONFLICT, element_text(machine->arena, mem, element), mine,
                              touch_text(touch), theirs, touch_text(other_touch));
    if (d) diag_label(d, mem->buf->loc, "'%s' is declared here", mem->buf->name);
}

static void touch_iteration(Agent *agent, int lane, const Mem *mem, IterCell *cell, int64_t element, Touch touch,
                            int pc) {
    uint32_t seq = agent->cta->machine->loop_seq;
    int64_t me = agent->parallel->base + lane + 1;
    if (cell->seq != seq) *cell = (IterCell){.seq = seq};
    for (Touch kind = 0; kind < TOUCH_KINDS; kind++) {
        int64_t other = cell->firsts[kind] == me ? cell->others[kind] : cell->firsts[kind];
        if (other && touches_conflict(touch, kind))
            report_iterations(agent, mem, element, touch, other, kind, lane, pc, cell->pcs[kind]);
    }
    if (!cell->firsts[touch]) cell->firsts[touch] = me;
    else if (cell->firsts[touch] != me) cell->others[touch] = me;
    cell->pcs[touch] = pc;
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

void race_iteration(Agent *agent, int lane, const Mem *mem, int64_t element, Touch touch, int pc) {
    IterCell *cells = iter_cells(agent->cta, mem);
    if (!cells) return;
    for (int64_t at = element * mem->unit; at < (element + 1) * mem->unit; at++)
        touch_iteration(agent, lane, mem, &cells[at], element, touch, pc);
}
