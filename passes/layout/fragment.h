// Fragments: what of their distributions (layout/distribution.h) needs the target's instructions or makes expressions.
#pragma once
#include "ir/ir.h"
#include "layout/distribution.h"
#include "passes/pass.h"

// The accumulator [m, n] of a gemm by `info` over warps_m x warps_n warps (the rest of the threads replicate), and its
// operand a [m, k] in registers (every warp along n has it).
const Layout *fragment_accumulator(Arena *arena, const MmaInfo *info, int64_t m, int64_t n, int64_t warps_m,
                                   int64_t warps_n, int64_t threads);
const Layout *fragment_operand_a(Arena *arena, const MmaInfo *info, int64_t m, int64_t k, int64_t warps_m,
                                 int64_t threads);

// The accumulator [m, n] of a gemm by wgmma over so many warpgroups, each with strips of the instruction's rows, one
// after the other; and its operand a [m, k] in registers.
const Layout *fragment_wgmma(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t n, int64_t warpgroups,
                             int64_t threads);
const Layout *fragment_wgmma_a(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t k, int64_t warpgroups,
                               int64_t threads);

// With k in pairs (WgmmaInfo.a_paired).
const Layout *fragment_wgmma_paired(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t k, int64_t warpgroups,
                                    int64_t threads);

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
