// What a kernel costs whose warpgroups work on one point together: the model by which a launch chooses among its tiles.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Clocks of a multiprocessor for each element of the first product, times 2^20; its rows.
int64_t together_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows);
// Clocks for a launch, in the kernel's dims and scalars. Of a source kernel, whose grid is not yet flat. NULL: that is not known
// before it runs.
Expr *together_cost(Arena *arena, const Target *target, const Func *kernel);
