// Shared memory accesses of warps: the elements of the lanes for each access of a kernel, and their cost in a layout.
#pragma once
#include "ir/ir.h"
#include "layout/cost.h"
#include "passes/lower/lower.h"

// One access of a shared buffer by a warp, repeated for several steps (a thread's values).
typedef struct SharedAccess {
    Buf *buf;
    Stmt *stmt;
    bool is_store;
    int vector;                // consecutive elements per lane (along the last dim)
    bool in_pieces;            // where the layout splits the runs, by the widest pieces that it keeps; else by elements
    bool must_be_contiguous;   // cp_async, ldmatrix: the layout must keep the run contiguous
    bool any_order;            // the elements of a run must be contiguous, but in any order
    bool along_bits;           // the elements of a run lie along any dim, where the layout has them together
    bool exact;                // neither guarded by a condition, indexed by data nor split at edges: it surely happens
    int64_t times;             // how often the loops around repeat it, in a CTA: an estimate
    int steps;                 // all of them
    int lanes;
    int64_t *element;   // [steps][lanes][rank]: logical coordinates; first coordinate -1: the lane is idle
} SharedAccess;
typedef VEC(SharedAccess) SharedAccessVec;

// All accesses of shared buffers in the kernel (maps must have been inferred).
void shared_accesses(PassContext *context, Func *kernel, SharedAccessVec *out);

// Those of one tile loop by the warp of thread `first`.
void loop_accesses(const PassContext *context, Stmt *stmt, int64_t first, SharedAccessVec *out);

MemoryShape memory_shape(const Target *target);

// The cost of the access, over all its steps, with `layout` (over the last rank_in dims of the buffer). A layout that
// splits the runs gives several accesses for one.
typedef struct AccessCost {
    bool suits;         // false: the access must be contiguous but is not
    int width;          // elements that a lane moves at once
    int64_t accesses;   // of the warp
    int64_t wavefronts;
    int64_t conflicts;   // wavefronts beyond the minimum
} AccessCost;
// Stops counting conflicts at `most`.
AccessCost access_cost(const Target *target, const SharedAccess *access, const Layout *layout, int64_t most);
