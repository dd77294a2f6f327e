// What a kernel that is warp-specialized costs, in clocks of a multiprocessor: the model by which a launch chooses
// among tiles.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

typedef struct PingpongCost {
    int64_t step;     // of the loop, once it is filled
    int64_t stream;   // the same where so few blocks read a tile (STREAM_READERS) that most of it comes from memory
    int64_t k;        // that one step takes
    int64_t bytes;    // of k in a step: what a row of a tile has
    int64_t loaded;   // bytes in a step
    int64_t moving;   // clocks of shared memory in a step, if it had it for itself
    int64_t tail;     // what comes after a point's loop
    bool hidden;      // but for the last one: another consumer multiplies meanwhile
} PingpongCost;

enum { STREAM_READERS = 2 };

static inline int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Of a tile-stage kernel as warp-specialize will find it (see swap_operands.h).
// `warpgroups`: that share a point.
PingpongCost cost_pingpong(const Target *target, const Func *kernel, int warpgroups);
// Of the same when so many blocks of a cluster share the steps of a point (split_k.h).
PingpongCost cost_pingpong_split(const Target *target, const Func *kernel, int blocks);

// ---- cooperative kernels ----
//
// What a kernel costs whose warpgroups work on one point together: the model by which a launch chooses among its tiles.

// Clocks of a multiprocessor for each 2^30 multiplications; the rows of the first product.
int64_t cooperative_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows);
// The tile m by n that a point stores, if that is one of products or of sums of such, as in a GEMM, and what it costs.
bool cooperative_tile(Arena *arena, const Target *target, const Func *kernel, int64_t *m, int64_t *n,
                      PingpongCost *cost);
// Clocks for a launch, in the kernel's dims and scalars. Of a source kernel, whose grid is not yet flat. NULL: that is
// not known before it runs. `through`: its results leave by way of a tile.
Expr *cost_cooperative(Arena *arena, const Target *target, const Func *kernel, bool aliased);
