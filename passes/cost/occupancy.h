// Does a kernel fit the target? An estimate from its tile-stage text, before all passes: it rejects tunables in
// microseconds. Allocation and ptxas compute the exact values later; the estimate errs towards "fits".
//
//   shared memory   sum over shared buffers of bytes, times the stages of a pipelined loop that copies into them
//                   asynchronously; plus fragments that a gemm reads from shared memory
//   registers       sum of bytes / threads / 4 over the fragments that are live at a time, plus an allowance for addresses and
//                   temporaries; of a role its own fragments and threads, or what it says (`regs`)
#pragma once
#include "ir/ir.h"
#include "support/strbuf.h"
#include "target/target.h"

typedef struct OccupancyBuffer {
    const Buf *buf;
    const Stmt *role;    // whose threads hold the fragment; NULL: the CTA's
    int64_t members;     // of an array of roles, each of which has its own
    int64_t stages;      // 1: not multi-buffered
    bool is_loaded;      // loaded from memory
    bool by_shared;      // fragment: staged through shared memory for a gemm
    int64_t bytes;       // of shared memory, all stages
    bool is_kept;        // fragment: read by more than reductions
    int64_t registers;   // per thread; 0 if not kept
} OccupancyBuffer;

typedef struct Occupancy {
    VEC(OccupancyBuffer) buffers;
    int64_t threads, shared, registers;   // per CTA; bytes per CTA; per thread
    bool fits;
} Occupancy;

Occupancy occupancy_estimate(Arena *arena, const Func *kernel, const Target *target);

// "BM = 128, BN = 64", from the kernel's @tuned attributes; "": no tunables.
const char *tunables_text(Arena *arena, const Func *kernel);
// A table of the buffers with totals and the limits of the target; without a final newline.
void occupancy_table(const Occupancy *estimate, const Target *target, StrBuf *out);

// Whether the target has the features of the kernel's operations, and clusters of its size.
bool kernel_is_supported(const Func *kernel, const Target *target);
