// What a kernel costs whose warpgroups work on one point together: the model by which a launch chooses among its tiles.
#pragma once
#include "ir/ir.h"
#include "passes/cost/cost_pingpong.h"
#include "target/target.h"

// Clocks of a multiprocessor for each 2^30 multiplications; the rows of the first product.
int64_t cooperative_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows);
// The tile m by n that a point stores, if that is one of products or of sums of such, as in a GEMM, and what it costs.
bool cooperative_tile(Arena *arena, const Target *target, const Func *kernel, int64_t *m, int64_t *n,
                      PingpongCost *cost);
// Clocks for a launch, in the kernel's dims and scalars. Of a source kernel, whose grid is not yet flat. NULL: that is not known
// before it runs.
// `through`: its results leave by way of a tile.
Expr *cost_cooperative(Arena *arena, const Target *target, const Func *kernel, bool aliased);
