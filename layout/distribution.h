// Distributions: how the elements of a tile, or the iterations of a loop, are spread over threads.
//
// A distribution is a thread-value layout: a Layout with inputs (thread, value) and one output per dim of the tile. A
// value index numbers what one thread has. Thread digits of stride 0 are replicas: several threads have the same.
//
//     f32[16, 32] over 64 threads, 4 columns each:   ((8,8),(4,2)):((4@1,1@0),(1@1,8@0))
//                                                       thread 9 = (1,1) has row 1 + 8 * v1, columns 4 .. 7
//     its sums over the columns:                     ((8,8),2):((0,1),8)
//                                                       threads 8 .. 15 all have those of rows 1 and 9
//
// Functions that make one cover exactly `threads` threads, and at least the shape: what does not divide is padded up,
// and users compare coordinates with the shape.
#pragma once
#include "layout/layout.h"

enum { TV_THREAD = 0, TV_VALUE = 1 };   // the inputs

int64_t tv_threads(const Layout *tv);
int64_t tv_values(const Layout *tv);     // per thread
int64_t tv_replicas(const Layout *tv);   // threads that have the same
// Whether a thread before this one has the same; false for the linear form.
bool tv_is_replica(const Layout *tv, int64_t thread);

// Blocks of `vector` consecutive elements of dim `fast` (the one contiguous in memory). Neighbouring threads take
// neighbouring blocks, at most `fast_threads` threads (0: no limit); then come the other dims, last to first. Threads
// per dim are powers of two, or all that are left; what no dim can use replicates.
const Layout *tv_blocked(Arena *arena, int rank, const int64_t *shape, int64_t threads, int fast, int64_t vector,
                         int64_t fast_threads);
// A tv_blocked in which each group of `group` neighbouring threads has consecutive blocks of dim `fast`, in the place
// of blocks that alternate among all threads. Unchanged if one group covers the dim or each thread has one block.
const Layout *tv_in_stretches(Arena *arena, const Layout *tv, int fast, int64_t group);
// A tile [shape[0], shape[1]] out of tiles of one matrix instruction, whose own (lane, value) layout is given: split
// evenly over warps[0] x warps[1] warps, warps[0] fastest; further threads replicate. Values run over the
// instruction's own, then along dim 1, then along dim 0.
const Layout *tv_of_instruction(Arena *arena, const Layout *instruction, const int64_t *shape, const int64_t *warps,
                                int64_t threads);

// The distribution seen through an access that uses output dims[d] as its own dim d (-1: a constant index). Digits
// along unused outputs become replicas (threads) or disappear (values). Of a dim with a constant index each thread has
// all held[d] elements, as its slowest values (held NULL: one).
const Layout *tv_project(Arena *arena, const Layout *tv, int rank, const int *dims, const int64_t *held);
// The same distribution repeated to cover `shape`: what is beyond it comes as the slowest values of each thread.
const Layout *tv_covering(Arena *arena, const Layout *tv, const int64_t *shape);
// A reduction over one dim: the projection onto the others ([1] when there are none).
const Layout *tv_reduce(Arena *arena, const Layout *tv, int axis);
// The same tile with one more output, rank_out: the fastest thread digits along `axis`, `parts` threads of them, no
// longer lie along the axis but number parts of it. NULL when no digits make up `parts`.
const Layout *tv_split_axis(Arena *arena, const Layout *tv, int axis, int64_t splits);
// A reduction to `parts` results along `axis`, one for each of those threads (tv_split_axis); NULL as there.
const Layout *tv_partial_reduce(Arena *arena, const Layout *tv, int axis, int64_t splits);
int64_t tv_threads_along(const Layout *tv, int axis);
// The first element along `dim` of so many that no thread has (`twice` false), or that one thread has twice or several threads
// have where they are no replicas. -1: each is there once.
int64_t tv_misses(const Layout *tv, int dim, int64_t extent, bool *twice);
// Replicas moved to points of their own, beyond the extent of output 0.
const Layout *tv_without_replicas(Arena *arena, const Layout *tv);

// A digit of the thread's number, whose step is `weight` threads: extent = within * above, where `within` is bits of the lane's
// number, which shuffles reach. Above are other warps, and in a warp what is no power of two.
typedef struct ThreadDigit {
    const LayoutMode *mode;
    int64_t weight, within, above;
} ThreadDigit;
typedef struct ThreadDigits {
    int count;
    ThreadDigit items[LAYOUT_MAX_MODES];
} ThreadDigits;
ThreadDigits tv_thread_digits(const Layout *tv, int64_t lanes);
// Partial results along `axis` that shuffles leave (1: every warp has the whole).
int64_t tv_partials_along(const Layout *tv, int axis, int64_t lanes);
