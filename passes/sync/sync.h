// Barriers, cp.async groups and waits (pass insert-sync).
//
// In: a kernel whose shared buffers have layouts and offsets; started copies, `await`s. Out: the same kernel with
// `barrier`, `cp_async_commit`, `cp_async_wait`, `bulk_wait` and `fence_async` where conflicting accesses need them; no
// `await`.
//
//     insert_sync.c      the pass: groups, placement, pruning
//     sync_model.c       executes the kernel symbolically and finds the conflicts that nothing orders yet
//     sync_scenarios.c   the trip counts that it is executed with
//     sync_access.c      the memory accesses of a statement
#pragma once
#include "passes/analysis/affine.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"

// ---- accesses (sync_access.c) ----
//
// Accesses of memory by statements of the tile stage, as insert-sync sees them: which elements, by which threads.

typedef enum {
    WHO_MAPPED,   // element by element, by the threads that the statement's @map names
    WHO_ONE,      // by one thread
    WHO_ALL,      // by all threads, or by threads unknown
} Who;

// A dim of the accessed box: elements start + low .. start + low + length - 1. length -1: unknown elements.
typedef struct BoxDim {
    Expr *start;
    int64_t low, length;
    int64_t factors[LAYOUT_MAX_RANK];   // of the tile loop's iterators (WHO_MAPPED)
} BoxDim;

typedef struct MemAccess {
    const Buf *buf;   // NULL: all global memory (fence, release, cluster_barrier)
    const Stmt *stmt;
    int id;   // for the user's tables
    bool write;
    bool every;           // a plain write by every iteration: where two had one element, they would race by themselves
    bool first_replica;   // of threads that would do the same the first does it
    bool flag;            // an atomic, or an access with a memory order: what blocks tell each other
    OpId update;          // commutative atomic whose result is unused; OP_COUNT: none
    bool async;           // lands later, at a wait for its cp.async group
    bool elsewhere;       // in another block's memory: who reads it here waits for its mbarrier
    bool tma;             // by TMA: lands at a wait for its mbarrier, or (a store, which reads) at a bulk_wait
    bool proxy;           // an operand of wgmma: a fence, too, comes between what threads wrote and it
    const Region *bar;    // that mbarrier
    bool pseudo;          // an await, a cluster's barrier: asks for what has landed, touches nothing
    bool orders_later;    // a fence: what all threads do in global memory after it comes after it
    bool after_barrier;   // behind the statement's own barrier (reductions through scratch)
    Who who;
    int rank;
    BoxDim dims[LAYOUT_MAX_RANK];
    const Layout *map;   // WHO_MAPPED
    int loop_rank;
    int64_t extents[LAYOUT_MAX_RANK];
} MemAccess;

typedef VEC(MemAccess *) MemAccessVec;

// Accesses of global and shared memory by a leaf (bodies of parallel loops and thread regions included), or by the
// bounds and conditions of other statements.
void stmt_accesses(Arena *arena, Stmt *stmt, MemAccessVec *out);
// A fence or a release: what the block did comes before it.
bool orders_memory(const Stmt *stmt);
// Leaves are executed as one; other statements' bodies are walked.
bool is_leaf(const Stmt *stmt);

// Two accesses that meet in an element do so in one thread: the boxes start at the same element (the caller's check)
// and every element belongs to one and the same thread in both maps. By enumeration.
bool same_threads(Arena *arena, const MemAccess *a, const MemAccess *b);
// Bytes of the block's shared memory that an access with these starts may touch: its slot's where that is known. False
// when the buffer has no place yet.
bool shared_range(const MemAccess *access, const Affine *start, int64_t *begin, int64_t *end);

// ---- the model (sync_model.c) ----
//
// A kernel's memory accesses played through, block-wide: which of them still need a barrier or a wait between them.

// cp_async_commit(); cp_async_wait(n); bulk_wait(0, read); fence_async(); barrier(): in this order.
typedef enum { SYNC_COMMIT, SYNC_WAIT, SYNC_BULK, SYNC_FENCE, SYNC_BARRIER } SyncOp;
enum { SYNC_OPS = SYNC_BARRIER + 1 };

// What stands before a statement, or at the end of a `while` body (its condition is read again there).
typedef struct Sync {
    const Stmt *before;
    const Block *at_end;
    int ops;                // bits 1 << SyncOp
    int wait;               // cp.async groups that may be pending
    bool needs[SYNC_OPS];   // the plan is not enough without this one (sync_model_weigh)
} Sync;

static inline bool sync_has(const Sync *sync, SyncOp op) {
    return sync->ops >> op & 1;
}

typedef struct SyncPlan {
    Map *by_place;        // Stmt or Block -> Sync
    VEC(Sync *) syncs;    // in order of discovery
    Map *commits;         // statements after which a cp.async group closes -> bool: it is needed
    VEC(Stmt *) groups;   // the same, in order
} SyncPlan;

typedef struct SyncModel SyncModel;

// Of a kernel's body; or of a role's, where `awaited` holds the storage of the tiles that it awaits. Of a role only
// accesses of these, of scratch (from stage-through-shared: no source orders it), and of global memory that it writes
// and uses again are in the model. With fewer scenarios it is played sooner, and the plan may have more than it needs.
SyncModel *sync_model_new(Arena *arena, const Target *target, Block *body, const Map *awaited, SyncPlan *plan,
                          int scenarios);
// Plays the kernel through for all scenarios. Where something is missing it is added to the plan, as late as possible.
// False: that would take too long.
bool sync_model_place(SyncModel *model);
// Plays it again, awaits being no accesses: true when the plan is enough. False, too, once all checks took too long.
bool sync_model_check(SyncModel *model);
// Of a plan that is enough: finds operations without any one of which it is not. What it does not find may be needed
// too.
void sync_model_weigh(SyncModel *model);

// ---- scenarios (sync_scenarios.c) ----
//
// Trip counts that are not known, and which of them insert-sync plays a kernel through with.
//
// A loop of unknown length takes 0 .. S + 1 iterations, or 2 S + 2 and more, S being the least common multiple of the
// slots of the kernel's rings (the constants of k % S), 1 for a loop that does not count slots. How many more is an
// unknown: what depends on it is not decided. One within a loop takes two numbers in turn, as it may differ from one
// entry to the next, and one in each where it ends in another slot. A scenario is one such number for each; where they
// are too many some are left with few, or open.
//
// Limits. A large number is one that leaves 2 over, where slots are counted: a condition for large ones that leave
// something else over (`n > 20 && n % 3 == 0`) is never met. Of a large number only the first S + 1 and the last S + 1
// iterations are played, so an assigned variable is known in them only if it counts slots (`p = (p + 1) % S`): of any
// other (`p = p / 2`) an iteration knows nothing.

typedef struct Scenarios Scenarios;

enum { MOST_SCENARIOS = 300 };
enum { LONGEST_PERIOD = 24 };   // iterations: the most slots of a ring that are told from each other

// `quiet`: loops that are not played. `most` scenarios; 1: every loop is open.
Scenarios *scenarios_new(Arena *arena, Block *body, const Map *quiet, int most);
int64_t scenarios_period(const Scenarios *scenarios,
                         const Stmt *loop);   // S for a loop that counts slots, else 1; S for NULL
// What more iterations of a loop are a multiple of: of all numbers of slots, where it counts them.
int64_t scenarios_multiple(const Scenarios *scenarios, const Stmt *loop);
// Iterations of the loops that end at the variable, or of one iterator, for the next entry. False: no loop ends there,
// or it may be any number, since there were too many scenarios.
bool scenario_trips(const Scenarios *scenarios, AffineEnv *env, const Var *var, Affine *trips);

void scenarios_reset(Scenarios *scenarios);   // the first one
bool scenarios_next(Scenarios *scenarios);    // false: that was the last
// Dims and parameters that loops end at are bound from the start, lets where they stand.
void scenario_start(Scenarios *scenarios, AffineEnv *env);
