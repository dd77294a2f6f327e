// A kernel's memory accesses played through, block-wide: which of them still need a barrier or a wait between them.
#pragma once
#include "passes/sync/sync_access.h"

// What stands before a statement, or at the end of a `while` body (its condition is read again there).
typedef struct Sync {
    const Stmt *before;
    const Block *at_end;
    bool commit, barrier;
    bool bulk, fence;   // bulk_wait(0, read), fence_async(): before the barrier
    int wait;           // cp.async groups that may be pending; -1: no wait
} Sync;

typedef struct SyncPlan {
    Map *by_place;        // Stmt or Block -> Sync
    VEC(Sync *) syncs;    // in order of discovery
    Map *commits;         // statements after which a cp.async group closes
    VEC(Stmt *) groups;   // the same, in order
} SyncPlan;

typedef struct SyncModel SyncModel;

SyncModel *sync_model_new(Arena *arena, Func *kernel, SyncPlan *plan);
// Of a role: its accesses of scratch buffers, which stage-through-shared made, so that no source orders them, of global memory that it
// writes and uses again, and of `awaited` buffers (their roots).
SyncModel *sync_model_of_role(Arena *arena, const Func *kernel, const Stmt *role, const Map *awaited, SyncPlan *plan);
// Plays the kernel through for all scenarios. Where something is missing it is added to the plan, as late as possible.
void sync_model_place(SyncModel *model);
// Plays it again, awaits being no accesses: true when the plan is enough.
bool sync_model_check(SyncModel *model);
// Statements played so far: what the caller budgets by.
int64_t sync_model_steps(const SyncModel *model);
