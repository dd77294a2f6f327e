// The machine: agents, CTAs, and their schedule. The map of the emulator is emulator.h.
//
// In: Code (code.h) and arguments. Out: the effects of the launch, and reports of faults.
//
// The parts have headers of their own: memory.h, race.h, barriers.h, async.h, handlers.h. Their state is part of the
// agent or the CTA that it belongs to.
//
// Files in order: schedule.c, livelock.c, eval.c, report.c.
#pragma once
#include "emulator/async.h"
#include "emulator/barriers.h"
#include "emulator/channels.h"
#include "emulator/handlers.h"
#include "emulator/launch.h"
#include "emulator/memory.h"
#include "emulator/race.h"

enum { MOST_REPORTS = 16, MOST_REPEATED = 1 << 16 };

// How much work counts for a step, as an instruction of a warp does: what takes up to 60 ns on a CPU of 2023. So the limit
// of a run's steps (EmuOptions) bounds its time, whatever it does. Accesses: elements whose order is watched. Elements:
// of tiles. Bytes: of asynchronous copies and matrices. Functions: lanes that compute exp, a quotient or a conversion.
// Threads: that arrive at a barrier, or begin. Cleared: elements of memory that begins without a value.
enum {
    STEP_ACCESSES = 2,
    STEP_ELEMENTS = 8,
    STEP_BYTES = 16,
    STEP_PRODUCTS = 64,
    STEP_FUNCTIONS = 4,
    STEP_THREADS = 8,
    STEP_CLEARED = 512
};

typedef struct LoopState {   // of a parallel loop
    int64_t total, base, begin[MAX_RANK], step[MAX_RANK], extent[MAX_RANK];
    const ParallelCode *code;
    int pc;
} LoopState;

typedef struct Lap Lap;   // livelock.c

typedef enum {
    AGENT_FREE,
    AGENT_READY,
    AGENT_BARRIER,
    AGENT_MBARRIER,
    AGENT_CHANNEL,
    AGENT_WARPGROUP,
    AGENT_CHILDREN,
    AGENT_GRID,
    AGENT_DONE
} AgentStatus;

// A warp of a thread region; or, with one lane, a CTA, a role, a program, a reference.
struct Agent {
    AgentStatus status;
    int pc;
    Mask mask, full;
    Lanes *regs;
    Mask *masks;
    LocalArray *locals;
    LoopState *loops;
    const LoopState *parallel;   // the parallel loop being run
    Cta *cta;
    Agent *parent;
    const RoleCode *role;   // NULL: the whole CTA
    int children;
    bool warp;                    // of a thread region
    int first_thread;             // of the warp, in the cluster
    int region_threads;           // of its thread region
    int barrier, wait_pc;         // what it waits at
    const MBarrier *awaited;      // by mbarrier_wait
    const ChannelCode *channel;   // whose slot or section it waits for,
    int64_t channel_number;       // of this number
    ChannelCount *channels;       // by channel; NULL: none yet
    Mask passed;                  // lanes whose phase was over when it was last executed
    Cta *receiver;                // of a copy that goes to another CTA too
    CopyGroups cp_async;
    BulkGroups bulk;
    WgmmaGroups wgmma;
    Lap *lap;
};

struct Cta {
    Machine *machine;
    Cta *members;   // of its cluster, in the order of their ranks
    int rank;
    int first_thread;   // of the CTA, in the cluster
    int64_t index;      // in the grid; -1: no kernel's
    bool live;
    Agent *root;
    Agent **agents;
    int agent_count, agent_capacity;
    // memory
    uint8_t *shared, *shared_state, *fragments, *fragment_state;
    // barriers
    Barrier *cluster;       // the cluster's
    Barrier *barriers;      // named ones (0: the CTA's), then the roles'
    MBarrier **mbarriers;   // by 8 bytes of shared memory
    MBarrier **mbarrier_list;
    int mbarrier_count;
    ChannelRun *channels;
    Mask *waited;   // by warp: lanes that have executed dependency_wait; NULL where none does
    // asynchronous operations
    BulkCopy **bulk;   // TMA copies under way
    int bulk_count, bulk_capacity;
    Warpgroup *warpgroups;
    PendingTile *pending;   // started tile ops
    int pending_count, pending_capacity;
    // races
    IterCell *shared_iters, *fragment_iters;
    SharedCells *cells;      // of shared memory
    Clock **clocks;          // what each thread knows; these three are the cluster's
    uint32_t *epochs;        // of each warp
    uint32_t *unit_epochs;   // of each unit: the group or phase that is open
};

struct Machine {
    const Module *module;
    const Code *code;
    Arena *arena;   // of the launch
    Failure *failure;
    EmuOptions options;
    const Target *target;
    Random random;
    Cta *ctas;   // resident CTAs
    int cta_count;
    int bulk_count;     // TMA copies under way, of all CTAs
    Word *scratch[4];   // whole tiles
    int64_t scratch_size[4];
    Word *wgmma_acc;
    // races
    Races *races;
    uint32_t epoch, loop_seq;
    bool races_wanted;
    // reports
    DiagSink *sink;
    EmuReport *report;
    EmuSite *sites;   // by instruction
    Arena *keep;      // where the report's sites go
    int reports, repeated, prints;
    Map *reported;   // pairs of places
    bool stop;
    // ends of runs that do not end by themselves
    uint64_t steps, most_steps;   // of the run, its launches so far included; when it is called endless
    int64_t ctas_ended, ctas_wanted;
    // For CTAs that spin: number of changes (all but loads); last seen; the step of that; when to look closely.
    uint64_t moves, seen_moves, still_since, next_look;
};

// ---- schedule.c: CTAs and their agents ----
Cta *ctas_new(Machine *machine, int count);
Agent *agent_start(Cta *cta, int pc);   // with one lane
bool machine_run_blocks(Machine *machine, const Agent *host, int64_t blocks);
void agent_spawn(Agent *agent, const SpawnCode *spawn, int body);
void agent_fork(Agent *agent, const ForkCode *fork);
void agent_end(Agent *agent);
bool whole_warp(Agent *agent, const char *what);   // all its lanes are active, else reported

// ---- livelock.c ----
bool livelocked(Machine *machine);   // all that can run wait for a value that no agent will store: reported

// ---- eval.c ----
void agent_run(Agent *agent, int64_t budget);   // until it blocks, ends or has done `budget` instructions

// ---- launches.c ----
void dependency_wait(Agent *agent);
void dependency_check(Agent *agent, int lane, const Mem *mem, int64_t element,
                      int pc);   // before a use of global memory

// ---- report.c ----
// Counts work beyond the one instruction that asks for it. False: a run may not do so much, which was reported, and
// nothing more is to be done.
bool spend(Agent *agent, int64_t work, int64_t of_a_step);
void report_endless(Machine *machine, int pc);
Diag *emu_report(Machine *machine, int pc, DiagCode code, ...);   // NULL: enough was reported, or this place before
Diag *emu_report_pair(Machine *machine, int pc, int other_pc, DiagCode code, ...);
const char *thread_text(const Agent *agent, int lane);
const char *thread_index_text(const Cta *cta, int thread);
