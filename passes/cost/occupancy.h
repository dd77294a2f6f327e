// Does a kernel fit the target? Estimated from its tile-stage text, before any pass, so that unsuitable tunables are
// passed over in microseconds. What allocation and ptxas find out later is the truth; the estimate errs towards "fits".
//
//   shared memory   sum over shared buffers of bytes, times the stages of a pipelined loop that copies into them
//                   asynchronously; and over fragments that a gemm takes by way of it
//   registers       sum over fragments of bytes / threads / 4, plus what addresses and temporaries usually take
#pragma once
#include "ir/ir.h"
#include "support/strbuf.h"
#include "target/target.h"

typedef struct OccupancyBuffer {
    const Buf *buf;
    int64_t stages;      // 1: no ring
    bool is_loaded;      // from memory
    bool by_shared;      // fragment: a gemm takes it by way of shared memory
    int64_t bytes;       // of shared memory, with stages
    bool is_kept;        // fragment: something other than a reduction reads it
    int64_t registers;   // of a thread; 0 where it is not kept
} OccupancyBuffer;

typedef struct Occupancy {
    VEC(OccupancyBuffer) buffers;
    int64_t threads, shared, registers;   // of a block; of a block; of a thread
    bool fits;
} Occupancy;

Occupancy occupancy_estimate(Arena *arena, const Func *kernel, const Target *target);

// "BM = 128, BN = 64", from the kernel's @tuned attributes; "" without tunables.
const char *tunables_text(Arena *arena, const Func *kernel);
// The table of buffers, a line each, with totals against the target's limits; no newline at its end.
void occupancy_table(const Occupancy *estimate, const Target *target, StrBuf *out);

// Whether the target has what a kernel uses: its operations' features, clusters so large.
bool kernel_is_supported(const Func *kernel, const Target *target);
