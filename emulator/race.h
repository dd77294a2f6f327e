// Happens-before: which accesses are ordered (race.c explains the method).
//
// In: accesses of threads and of asynchronous units, and the synchronisation between them. Out: reports of pairs of
// accesses that conflict and are not ordered.
//
// Files in order: clocks.c (what threads and units know), race.c (accesses of a CTA), race_blocks.c (between CTAs).
// race_impl.h has what these three share.
#pragma once
#include "emulator/code.h"

typedef struct Machine Machine;
typedef struct Cta Cta;
typedef struct Clock Clock;
typedef struct Cell Cell;
typedef struct SharedCells SharedCells;
typedef struct GlobalCell GlobalCell;
typedef struct IterCell IterCell;
typedef struct Races Races;

typedef enum {
    TOUCH_READ,
    TOUCH_WRITE,
    TOUCH_ATOMIC,        // an update, a store with a memory order
    TOUCH_ATOMIC_READ,   // a load with one
    TOUCH_KINDS,
} Touch;

// Asynchronous units have components in clocks, as threads have.
typedef enum {
    UNIT_READS,      // of shared memory by the TMA stores of a warp
    UNIT_WRITES,     // of the tensor by them
    UNIT_WGMMA,      // of a warpgroup
    UNIT_MBARRIER,   // the copies that complete on it
    UNIT_SLOT,       // of a channel: an epoch for each time that it is full
} UnitKind;

typedef struct Actor {   // an operation of a unit
    uint32_t unit, epoch;
    Clock *clock;   // what was known when it started
    int pc;
} Actor;

// ---- a launch, a CTA ----
Races *races_new(Machine *machine);
void races_watch(Machine *machine, Mem *mem, int64_t elements);
void races_start(Cta *cta);           // a CTA begins
void races_start_cluster(Cta *cta);   // all CTAs of a cluster begin; cta is the first
void races_meet(Cta *cta);            // each CTA of the cluster learns what the others wrote to global memory

// ---- accesses ----
void race_shared(Agent *agent, int lane, int64_t byte, int bytes, Touch touch, const Mem *mem, int pc);
void race_global(Agent *agent, int lane, const Mem *mem, int64_t element, int count, Touch touch, int pc);
void race_iteration(Agent *agent, int lane, const Mem *mem, int64_t element, Touch touch, int pc);
void race_peer(Agent *agent, int lane, Cta *peer, const Mem *mem, int64_t element,
               Touch touch);   // in the memory of another CTA of the cluster
// An access of another CTA to this one's shared memory that none of its threads is ordered after; -1: none. *byte:
// where.
int race_unfinished(Cta *cta, int64_t *byte);
void actor_shared(Cta *cta, const Actor *actor, int64_t byte, int bytes, Touch touch, const Mem *mem);
void actor_global(Agent *agent, int lane, const Actor *actor, const Mem *mem, int64_t element, int64_t count,
                  Touch touch);

// ---- synchronisation ----
void race_release(Agent *agent, int lane, const Mem *mem, int64_t element, const char *scope);
void race_acquire(Agent *agent, int lane, const Mem *mem, int64_t element, const char *scope);
void race_atomic(Agent *agent, int lane, const Mem *mem, int64_t element);
void race_fence(Agent *agent, const Call *call);
void race_fence_async(Agent *agent);
void clock_arrive(Cta *cta, Clock **into, int thread);   // `into` learns what the thread did and knows
// The thread learns what `from` knows. arrived: it told `from` everything before.
void clock_depart(Cta *cta, Clock *from, int thread, bool arrived);
// Whether these lanes know all that threads told `from`.
bool clock_known(const Agent *agent, Mask lanes, const Clock *from);
void clock_tick(Cta *cta, int warp);   // after clock_arrive of its threads
void clock_merge(Cta *cta, Clock **into, const Clock *from);
void clock_drop(Cta *cta, Clock **clock);
uint32_t thread_epoch(const Agent *agent);

// ---- units ----
Actor actor_start(const Cta *cta, UnitKind kind, int number, int pc);   // an operation in the unit's open epoch
void actor_acts_for(const Agent *agent, Mask lanes, Actor *actor);      // it knows what these threads know
void actor_end(Cta *cta, Actor *actor);
uint32_t actor_knows(const Cta *cta, const Actor *actor, int thread);                   // epoch of that thread
uint32_t unit_epoch(const Cta *cta, UnitKind kind, int number);                         // the open one
void unit_next(Cta *cta, UnitKind kind, int number);                                    // closes it
void unit_tell(Cta *cta, Clock **clock, UnitKind kind, int number);                     // the clock learns of it
void unit_learn(Agent *agent, Mask lanes, UnitKind kind, int number, uint32_t epoch);   // threads learn up to there
uint32_t unit_known(const Agent *agent, int lane, UnitKind kind, int number);   // the last epoch that it knows of
uint32_t unit_known_best(const Cta *cta, UnitKind kind, int number);            // that some thread knows of
