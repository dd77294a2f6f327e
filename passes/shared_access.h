// How warps touch shared memory: the lanes' elements for each access of a kernel, and what a layout makes of them.
#pragma once
#include "ir/ir.h"
#include "passes/lower.h"

// One access of one shared buffer by a warp, repeated for a number of steps (a thread's values).
typedef struct SharedAccess {
    Buf *buf;
    Stmt *stmt;
    bool is_store;
    int vector;         // consecutive elements per lane (along the last dim)
    bool must_be_contiguous;   // cp_async, ldmatrix: a layout that tears the run apart is not allowed
    int steps;
    int lanes;
    int64_t *element;   // [steps][lanes][rank]: logical coordinates; first coordinate -1: the lane is idle
} SharedAccess;
typedef VEC(SharedAccess) SharedAccessVec;

// All accesses of shared buffers in the kernel (maps must have been inferred).
void shared_accesses(PassContext *context, Func *kernel, SharedAccessVec *out);

// Extra wavefronts that `layout` (over the last rank_in dims of the buffer) costs the access, over all its steps.
// -1: the layout is not possible for it.
int64_t predicted_conflicts(const Target *target, const SharedAccess *access, const Layout *layout);
