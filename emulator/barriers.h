// Barriers: of the CTA or a role, named, of a cluster; and mbarriers.
//
// In: arrivals of agents, bytes of copies that have landed. Out: agents that wait or go on, clocks (race.h) that carry
// what the arrivals knew, and reports of counts that do not agree.
//
// Files in order: barriers.c, cluster.c (CTAs that read each other's shared memory).
#pragma once
#include "emulator/race.h"

enum { CLUSTER_BARRIER = -1 };   // the number of the cluster's, for an agent that waits

typedef struct Barrier {
    int64_t expected, arrived;
    int64_t gone;   // threads of a cluster that have ended: no barrier waits for them
    Clock *clock;   // of the arrivals
    Clock *done;    // of those of the phase before
} Barrier;

typedef struct MBarrier {
    int64_t expected, pending, phase;   // arrivals of each phase, those that this one lacks
    int64_t bytes, copied, landed;      // of this phase: expected, of copies that complete on it, of those landed
    Clock *clock;                       // arrivals of the current phase
    Clock *done;                        // of all completed ones
    const Mem *mem;
    int64_t element;
    int number;             // among the CTA's
    uint32_t first_epoch;   // of its unit, in phase 0
    int init_thread;
    uint32_t init_epoch, announced;   // epochs of that thread; announced to the asynchronous proxy; 0: not yet
    uint32_t loaded;                  // epoch of the last copy that completes on it; 0: none
    int load_pc;
} MBarrier;

Mask clocked(const Agent *agent);   // lanes that have a clock: none of a whole CTA at tile stage

// ---- mbarriers, for copies ----
void mbarrier_started(Agent *agent, MBarrier *barrier, int64_t bytes);   // a copy that completes on it
void mbarrier_transact(Cta *cta, MBarrier *barrier, int64_t bytes);      // bytes of a copy have landed
void mbarrier_landed(Agent *agent, Cta *cta, MBarrier *barrier,
                     int64_t bytes);   // of a copy that the agent did itself, just now
// Of this CTA or another; NULL: out of range or not initialised, reported.
// `itself`: the thread touches it, now; else what it starts does.
MBarrier *mbarrier_of(Agent *agent, Cta *cta, const Place *place, int lane, bool itself);
const char *mbarrier_text(const Cta *cta, const MBarrier *barrier);

// ---- clusters ----
Cta *cluster_peer(Agent *agent, int64_t rank, int lane);   // NULL: it does not exist or has ended; reported
void cluster_role_ends(Agent *agent);                      // and its threads with it
void cluster_block_ends(Cta *cta);
