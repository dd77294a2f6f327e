// Tiles that the CTAs of a cluster share, asked of a kernel whose grid has its names (multicast.c).
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// NULL: the CTAs of the grid's cluster can share tiles; else the reason why not.
const char *multicast_problem(Arena *arena, const Target *target, const Func *kernel);
// A launch can choose the cluster's shape: each tile that CTAs share moves along one of the grid's first names.
bool multicast_chooses(Arena *arena, const Func *kernel);
// The tile of the copy to shared memory moves along the second name of the grid alone: CTAs of a cluster along the first share it.
bool moves_along_second(Arena *arena, const Func *kernel, const Stmt *copy);
