// How warps touch shared memory: the lanes' elements for each access of a kernel, and what a layout makes of them.
#pragma once
#include "ir/ir.h"
#include "passes/lower/lower.h"

// One access of one shared buffer by a warp, repeated for a number of steps (a thread's values).
typedef struct SharedAccess {
    Buf *buf;
    Stmt *stmt;
    bool is_store;
    int vector;                // consecutive elements per lane (along the last dim)
    bool must_be_contiguous;   // cp_async, ldmatrix: a layout that tears the run apart does not do
    bool any_order;            // the elements of a run must lie together, but not in order
    bool exact;   // neither guarded by a condition nor indexed by data: all that follows is what will happen
    int steps;
    int lanes;
    int64_t *element;   // [steps][lanes][rank]: logical coordinates; first coordinate -1: the lane is idle
} SharedAccess;
typedef VEC(SharedAccess) SharedAccessVec;

// All accesses of shared buffers in the kernel (maps must have been inferred).
void shared_accesses(PassContext *context, Func *kernel, SharedAccessVec *out);

// What `layout` (over the last rank_in dims of the buffer) makes of the access, over all its steps. Where it tears runs
// apart they go element by element: that many more accesses.
typedef struct AccessCost {
    bool suits;          // false: the access must be contiguous and is not
    int64_t accesses;    // of the warp
    int64_t conflicts;   // wavefronts beyond the least possible for them
} AccessCost;
AccessCost access_cost(const Target *target, const SharedAccess *access, const Layout *layout);
// The same, but conflicts beyond `most` need not be counted.
AccessCost access_cost_upto(const Target *target, const SharedAccess *access, const Layout *layout, int64_t most);
