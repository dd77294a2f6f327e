// Does a kernel fit the target? Estimated from its tile-stage text, before any pass, so that unsuitable tunables are
// passed over in microseconds. What allocation and ptxas find out later is the truth; the estimate errs towards "fits".
//
//   shared memory   sum over shared buffers of bytes, times the stages of a pipelined loop that copies into them
//                   asynchronously; and over fragments that a gemm takes by way of it
//   registers       sum over fragments of bytes / threads / 4, plus what addresses and temporaries usually take
#pragma once
#include "frontend/frontend.h"
#include "support/map.h"
#include "support/strbuf.h"

typedef struct FitsBuffer {
    const Buf *buf;
    int64_t stages;      // 1: no ring
    bool is_loaded;      // from memory
    bool by_shared;      // fragment: a gemm takes it by way of shared memory
    int64_t bytes;       // of shared memory, with stages
    bool is_kept;        // fragment: something other than a reduction reads it
    int64_t registers;   // of a thread; 0 where it is not kept
} FitsBuffer;

typedef struct FitsEstimate {
    VEC(FitsBuffer) buffers;
    int64_t threads, shared, registers;   // of a block; of a block; of a thread
    bool fits;
} FitsEstimate;

FitsEstimate fits_estimate(Arena *arena, const Func *kernel, const Target *target);

// What `elaborate` is given as `user` with fits_check: remembers the combinations tried, until a kernel has none that
// fits.
typedef struct FitsSearch {
    Arena *arena;
    const Target *target;
    bool try_all;          // refuse every combination, to see them all
    const char *kernel;    // the kernel asked about, or the first that nothing fitted
    const char *variant;   // for which compile-time values
    Span loc;              // its place
    int tried;             // combinations of that kernel
    bool settled;          // one of them fitted
    // "BM = 64, BN = 64" and its estimate: the smallest (by shared memory) of those refused, the largest (by fragments,
    // then shared memory) of those that fit; NULL: none
    const char *smallest_tunables, *largest_tunables;
    FitsEstimate smallest, largest;
    StrMap *choices;     // kernel -> what was chosen for it (fits_decide)
    int round, rounds;   // which of a kernel's tiles is asked for; how many the kernel with most of them has
} FitsSearch;

int fits_check(void *user, Module *module, Func *kernel, int combination);
// Kernels that will be warp-specialized are not content with the first combination that fits: all of them are compared, and a
// few kept, for problems of different sizes. After an elaboration that chose nothing: true when there are `rounds` more to do,
// with `round` from 0 on; each gives every such kernel another of its tiles (the last one again where there are no more).
bool fits_decide(FitsSearch *search);
// After fits_decide: whether a launch is to choose among tiles of this kernel.
bool fits_chooses(const FitsSearch *search, const char *kernel);
// Adds the kernels of further rounds to the first's, with conditions by which a launch finds the cheapest tile.
void fits_merge(const FitsSearch *search, Module *module, Module *const *others);

// "BM = 128, BN = 64", from the kernel's @tuned attributes; "" without tunables.
const char *fits_tunables(Arena *arena, const Func *kernel);
// The table of buffers, a line each, with totals against the target's limits; no newline at its end.
void fits_table(const FitsEstimate *estimate, const Target *target, StrBuf *out);
