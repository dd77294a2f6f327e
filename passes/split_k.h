// Which products can share the steps of a tile among the blocks of a cluster: whoever chooses tiles asks.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// `blocks` of a cluster can take the steps of one tile of the kernel in turn.
bool can_split(const Target *target, const Func *kernel, int blocks);
// Shared memory that a block's part of the tile needs, bytes.
int64_t split_bytes(const Func *kernel);
// In place, of a kernel that can.
void split_kernel(Arena *arena, Func *kernel, int blocks);
