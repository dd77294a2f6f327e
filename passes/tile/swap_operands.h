// The result of `swap-operands` on a kernel, for the cost model of tunables.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// A copy of the tile-stage kernel with its operands swapped or its tiles padded; NULL: it stays as it is.
Func *operands_swapped(Arena *arena, const Target *target, const Func *kernel);
