// How a kernel is launched, and what moves and multiplies its tiles, as `-v` prints it.
#pragma once
#include "ir/ir.h"

void kernel_cluster(const Func *kernel, int cluster[3]);   // CTAs of a cluster along x, y, z; 1: none
// Clusters, warp roles, and the instructions that load, multiply and store tiles; in the arena. NULL: none of these.
const char *kernel_mechanisms(Arena *arena, const Func *kernel);
