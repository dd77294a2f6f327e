// L2 hints for streamed data; called by `tile-scheduler`.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// For a kernel whose loop only loads and multiplies, with a grid of several names.
void l2_hints(Arena *arena, const Target *target, Stmt *grid);
