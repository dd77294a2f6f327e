// What the parts of the race detector share (emulator/race.c explains it): clocks.c has what threads and units know,
// race.c the accesses of a CTA, race_blocks.c those between CTAs. All lives in the machine's arena.
#pragma once
#include "emulator/machine.h"

struct Clock {
    int users;
    Clock *next;   // of the free ones
    uint32_t at[];
};

typedef struct Reader {
    uint32_t epoch, warp;
    Mask lanes;   // 0: none
    int pc;
    Touch touch;
} Reader;

typedef struct LastWrite {   // the last plain one; epoch 0: never written
    uint32_t epoch, thread;
    int pc;
} LastWrite;

typedef struct Readers {   // since the last write
    Reader latest;
    uint32_t more;   // further ones: index + 1 in the pool
} Readers;

struct Cell {   // of global memory, within a CTA
    LastWrite write;
    Readers readers;
};

// Of a CTA's shared memory. Most accesses touch whole lines, whose granules then have equal records: the line's first
// one represents them, until an access to a smaller piece splits the line. Writes and readers are split separately; an
// access to the whole line merges the records that it makes equal.
enum { LINE_BYTES = 16, SPLIT_WRITES = 1, SPLIT_READERS = 2 };

struct SharedCells {
    LastWrite *writes;   // by granule
    Readers *readers;
    uint8_t *split;   // by line
};

typedef struct ReaderNode {
    Reader reader;
    uint32_t next;
} ReaderNode;

struct IterCell {
    uint32_t seq;   // the parallel loop; older ones are over
    int pcs[TOUCH_KINDS];
    int64_t firsts[TOUCH_KINDS], others[TOUCH_KINDS];   // two different iterations that touched it so, + 1; 0: none
};

// The thread of a CTA that accessed a location, and the time.
typedef struct Moment {
    uint32_t thread, epoch;   // or a unit; thread WHOLE: the CTA as one
    uint32_t stamp;           // of all CTAs
} Moment;

typedef struct BlockTouch {
    int64_t block;   // + 1; 0: none
    Moment when;
    int pc;
    Touch touch;
} BlockTouch;

struct GlobalCell {                   // across CTAs
    BlockTouch write, read, read_2;   // the last writer, and two different readers
    BlockTouch seen;                  // the last load with an order of what another CTA wrote with one
    int64_t owner;                    // the CTA that the thread cell speaks of
};

struct Races {
    int threads;   // of a CTA (of all of a cluster), in whole warps
    int parties;   // components of a clock: threads, their fences, units
    int first_unit, warps, groups, mbarriers;
    Clock *free;
    VEC(ReaderNode) nodes;
    uint32_t free_node;
    uint32_t stamp;                       // advances with every release and fence; 1: there was none
    const Clock *last_into, *last_from;   // the last join, which need not be repeated
    const Clock *last_own, *last_told;    // the same for what a thread learns
    Clock *last_next;
    Map *locations;   // released: address -> KnownVec
    Map *blocks;      // CTA + 1 -> BlockKnown
};

// ---- clocks ----

// A clock has users: each user counts itself in, and releases the clock. A clock must have one user to be written.
Clock *clock_new(Races *races, Arena *arena);   // of unknown contents
Clock *clock_copy(Races *races, Arena *arena, const Clock *from);
void clock_join(const Races *races, Clock *into, const Clock *from);   // into knows what both know together
void clock_release(Races *races, Clock *clock);                        // NULL: nothing

// ---- between CTAs ----

enum { WHOLE = UINT32_MAX };   // for a thread: all of the CTA

// An agent that accesses global memory: a thread or unit, or the CTA as one.
typedef struct Party {
    int64_t block;
    uint32_t thread, self, epoch;   // self: the thread that a unit acts for
    const uint32_t *knows;
} Party;

Party party_of(const Agent *agent, int lane);
Party party_of_unit(const Agent *agent, int lane, const Actor *actor);
// Reports what another CTA did with the element unordered with this access, and remembers the access.
void touch_blocks(Agent *agent, int lane, const Party *party, const Mem *mem, int64_t element, Touch touch, int pc);

const char *touch_text(Touch touch);   // "reads"

static inline bool touch_is_atomic(Touch touch) {
    return touch == TOUCH_ATOMIC || touch == TOUCH_ATOMIC_READ;
}

static inline bool touches_conflict(Touch a, Touch b) {
    bool reads = (a == TOUCH_READ || a == TOUCH_ATOMIC_READ) && (b == TOUCH_READ || b == TOUCH_ATOMIC_READ);
    return !reads && !(touch_is_atomic(a) && touch_is_atomic(b));
}
