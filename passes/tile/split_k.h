// Split-K: which products can share the k steps of a tile among the CTAs of a cluster, for the choice of tiles.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// `blocks` of a cluster can share the k steps of one tile of the kernel.
bool can_split(const Target *target, const Func *kernel, int blocks);
// Shared memory that a block's part of the tile needs, bytes.
int64_t split_bytes(const Func *kernel);
// In place, of a kernel that can.
void split_kernel(Arena *arena, Func *kernel, int blocks);

// The same for as many blocks as the launch chooses, anywhere on the device, with workspace and in two launches.
typedef struct SplitKWorkspace {
    Func *program;        // a variant of the kernel: the two launches
    Func *slices, *sum;   // kernels
} SplitKWorkspace;
bool can_split_k_workspace(const Func *kernel);
enum { WORKSPACE_STEPS = 8 };   // of a part at least
// As many parts as the device has room for at once, of so many steps.
Expr *workspace_slices(Arena *arena, const Func *kernel, Expr *steps);
// Of a kernel that can, which stays as it is. Its condition becomes the program's; what the kernels build on is added
// to it. Their names are none of the module's.
SplitKWorkspace split_k_workspace(Arena *arena, const Target *target, const Module *module, const Func *kernel);
