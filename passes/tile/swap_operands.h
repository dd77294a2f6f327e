// Which kernels `swap-operands` turns around, or gives wider tiles: whoever estimates what a choice of tunables costs asks.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// A copy of the tile-stage kernel with its accumulators turned or its tiles wider; NULL: it stays as it is.
Func *operands_swapped(Arena *arena, const Target *target, const Func *kernel);
