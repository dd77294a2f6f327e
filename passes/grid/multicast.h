// Tiles that the CTAs of a cluster share, asked of a kernel whose grid has its names (multicast.c).
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// NULL: the CTAs of the grid's cluster can share tiles; else the reason why not.
const char *multicast_problem(Arena *arena, const Target *target, const Func *kernel);
// The CTAs that share the tile of a copy to shared memory; 1: none.
int64_t multicast_ctas(Arena *arena, const Func *kernel, const Stmt *copy);
