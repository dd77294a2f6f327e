// A tile that is added to a tensor, element by element, by threads' atomics or by TMA (reduce-add):
//
//     parallel (i in 64, j in 64) atomic_add(T[h, m + i, n + j], v);
//
// The old values are not used. What TMA adds, it adds as atomics do: each element by itself, relaxed, for the whole
// device (PTX ISA, "cp.reduce.async.bulk.tensor"), and nothing outside of the tensor.
#pragma once
#include "ir/ir.h"
#include "passes/pass.h"
#include "target/target.h"

typedef struct AddedTile {
    Stmt *copy;   // from a whole tile in shared memory to the tensor's, as TMA sees it
    // Of the element at the loop's indices, where it has to be put into that tile first (which no statement declares
    // yet). NULL: it stands there.
    Expr *value;
    Stmt *atomic;   // that the loop does
} AddedTile;

bool is_addition(const Stmt *stmt);   // a parallel loop that does nothing but add to elements of a tensor
// Of an addition. Functions named `_problem` return NULL when there is none, else the reason.
const char *tma_reduce_problem(Arena *arena, const Stmt *stmt, AddedTile *out);
// The statement is an addition by TMA of a value that has to be put into a tile in shared memory first.
bool tma_adds_staged(Arena *arena, const Stmt *stmt, AddedTile *out);
// What TMA copies or adds in a statement that has `@via(tma)` or `@via(bulk)`: the copy itself, or that of an addition
// from shared memory. NULL: none.
Stmt *tma_copy(Arena *arena, Stmt *stmt);

// Why TMA cannot do an addition; why atomics are as fast.
const char *added_tile_problem(Arena *arena, const Target *target, const Func *kernel, const AddedTile *tile);
const char *added_tile_cost(const Target *target, const Func *kernel, const AddedTile *tile);

// Additions by TMA of what is not in shared memory get a tile there (insert-mbarriers), or go by atomics where there is
// no room for it.
bool stage_additions(PassContext *context, Func *kernel);
