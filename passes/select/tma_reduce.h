// A tile that is added to a tensor, element by element, by atomics of threads or by TMA (TMA reduce):
//
//     parallel (i in 64, j in 64) atomic_add(T[h, m + i, n + j], v);
//
// The old values are unused. TMA adds like atomics: each element by itself, relaxed, in device scope (PTX ISA,
// "cp.reduce.async.bulk.tensor"), and clipped to the tensor.
#pragma once
#include "ir/ir.h"
#include "passes/pass.h"
#include "passes/select/tma_simple.h"
#include "target/target.h"

typedef struct TmaReduce {
    Stmt *copy;   // from a whole tile in shared memory to the tile of the tensor, as TMA needs it
    // The value of the element at the loop's indices, if it must first be staged in that tile (not yet declared). NULL:
    // it is already in shared memory.
    Expr *value;
    Stmt *atomic;   // the atomic in the loop
} TmaReduce;

bool is_addition(const Stmt *stmt);   // a parallel loop that only adds to elements of a tensor
// For an addition. Functions named `_problem` return NULL, or the reason why not.
const char *tma_reduce_problem(Arena *arena, const Stmt *stmt, TmaReduce *out);
// The TMA copy of a statement with `@via(tma)` or `@via(bulk)`: the copy itself, or that of an addition from shared
// memory. NULL: none.
Stmt *tma_copy(Arena *arena, Stmt *stmt);

// Why TMA cannot do an addition; why it is not faster than atomics.
const char *tma_reduce_target_problem(const Target *target, const Func *kernel, const KernelUses *uses,
                                      const TmaReduce *tile);
const char *tma_reduce_cost(const Target *target, const Func *kernel, const TmaReduce *tile);

// Adds staging tiles to additions by TMA of values that are not in shared memory (in insert-mbarriers). Without space
// for staging they become atomics.
bool stage_additions(PassContext *context, Func *kernel);
