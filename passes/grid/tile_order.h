// The order of a grid's tiles, and how its CTAs come to them: the decision.
#pragma once
#include "ir/schedule.h"
#include "passes/specialize/warp_specialize.h"

typedef struct Schedule {
    TileOrder order;
    TileClaim claim;   // CLAIM_OPEN: a CTA for each tile
    bool deals;        // tiles have unequal work, and persistent CTAs would get long and short ones
} Schedule;

// Of a kernel whose grid is not lowered yet, and which is specialized as `how` says. `neighbours`: CTAs next to each other in the
// order that load a line of the L2 cache together (Target.gpc_ctas); 0: loads do not limit the kernel.
Schedule schedule_of(Arena *arena, const Func *kernel, const Specialization *how, int64_t neighbours);
// The bytes that tiles which differ in this name only read again, or add to (these count `added` times), for each combination of
// the others; NULL: there are none.
Expr *bytes_read_again(Arena *arena, const Stmt *grid, const Iter *iter, int64_t added);
