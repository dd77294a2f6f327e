// TMA in kernels without warp specialization: is it legal and faster? (Waits: insert_mbarriers.c. In roles:
// warp_specialize.h.)
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "target/target.h"

// What a kernel does with its tiles and tensors; it stays so while only attributes change.
typedef struct KernelUses KernelUses;
const KernelUses *kernel_uses_new(Arena *arena, const Target *target, const Func *kernel);

// Why TMA cannot make the copy; NULL: it can. `loop`: the pipelined loop around it, with several stages; NULL: none.
const char *tma_simple_problem(Arena *arena, const Target *target, const KernelUses *uses, const Stmt *copy,
                               const Stmt *loop);
// The same for bulk copies (bulk.h), as far as facts are known.
const char *block_bulk_problem(Arena *arena, const Target *target, const KernelUses *uses, const Facts *facts,
                               const Stmt *copy, const Stmt *loop);
// The same for an addition to a tensor (tma_reduce.h); `in_shared`: from a tile that other statements use too.
const char *block_add_problem(const KernelUses *uses, const Stmt *copy, bool in_shared);
// Why TMA is not faster; NULL: it is.
const char *tma_simple_cost(const Target *target, const Func *kernel, const Stmt *copy, const Stmt *loop);
// Whether a loop around the copy to a tensor may write the same place again.
bool stores_again(const Func *kernel, const Stmt *copy);
