// Which kernels warp-specialize can part into roles: select asks before it chooses TMA and wgmma for one, and whoever estimates
// what a choice of tunables needs.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Whether the kernel, before or after select, can be parted; false: *why, after "the kernel is not parted into roles: ".
bool can_specialize(Arena *arena, const Target *target, const Func *kernel, const char **why);
// Registers of a thread that the fragments of such a kernel need when a point is one warpgroup's.
int64_t specialized_registers(const Target *target, const Func *kernel);
// Most of them that leave room for addresses and counters.
int64_t specialized_register_limit(const Target *target);
// The fragment holds the products of such a kernel's loop, in wgmma's layout.
bool is_accumulator(const Func *kernel, const Buf *fragment);
// Shared memory that the consumers need for stores by TMA, bytes.
int64_t specialized_staging(const Target *target, const Func *kernel);
// The tile that one product of such a kernel's loop computes.
void specialized_tile(const Func *kernel, int64_t *m, int64_t *n);
// The steps of that loop, in names that are the same for all points.
Expr *specialized_steps(Arena *arena, const Func *kernel);
