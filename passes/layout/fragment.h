// Fragments: what of their distributions (layout/distribution.h) needs the target's instructions or makes expressions.
#pragma once
#include "ir/ir.h"
#include "layout/distribution.h"
#include "passes/pass.h"

// A tile [rows, columns] in an instruction's own layout (of MmaInfo or WgmmaInfo), repeated over warps_m x warps_n warps
// (of wgmma: warpgroups, warps_n 1), each with rows one after the other; the rest of the threads replicate.
const Layout *fragment_of_instruction(Arena *arena, const char *instruction, int64_t rows, int64_t columns,
                                      int64_t warps_m, int64_t warps_n, int64_t threads);
// Operand a of a gemm by wgmma in registers, with k in pairs where that of b is so (wgmma_pairs).
const Layout *fragment_wgmma_a(Arena *arena, const Func *kernel, const Stmt *stmt, const WgmmaInfo *info,
                               int64_t warpgroups, int64_t threads);

// Where in `own` the thread has what is its value number `value` in `seen`. NULL: not every thread has the same in
// both.
Expr *fragment_same_thread(Arena *arena, const Layout *seen, const Layout *own, Expr *value);
// Value index within tv_project(map, dims) of the thread's value number `value` of `map`.
Expr *fragment_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value);
// `thread` is the first of the replicas of its elements: a condition, NULL when there are no replicas.
Expr *fragment_first_replica(Arena *arena, const Layout *map, Expr *thread);

// Afterwards every `parallel` loop reads each fragment by one list of iterators and constants; other views are copies
// of the fragment. True when something changed.
bool separate_views(PassContext *context, Func *kernel);
