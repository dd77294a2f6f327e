// Fragments: the layouts (layout/distribution.h) that depend on the target's instructions, and expressions over them.
#pragma once
#include "ir/ir.h"
#include "layout/distribution.h"
#include "passes/pass.h"

const Layout *instruction_layout(Arena *arena, const char *text);   // of an operand (MmaInfo, WgmmaInfo)
// A tile [rows, columns] in the layout of an instruction (MmaInfo or WgmmaInfo), repeated over warps_m x warps_n warps
// (for wgmma: warpgroups), each with consecutive rows and columns; the other threads hold replicas.
const Layout *fragment_of_instruction(Arena *arena, const char *instruction, int64_t rows, int64_t columns,
                                      int64_t warps_m, int64_t warps_n, int64_t threads);
// Operand a of a wgmma gemm in registers, with paired k if operand b has it (wgmma_pairs).
const Layout *fragment_wgmma_a(Arena *arena, const Func *kernel, const Stmt *stmt, const WgmmaInfo *info,
                               int64_t warpgroups, int64_t threads);

// The same of an mma gemm; its k may be some columns of the fragment. NULL: the instruction cannot read it from there.
const Layout *fragment_mma_a(Arena *arena, const Stmt *stmt, const MmaInfo *info, int64_t warps_m, int64_t warps_n,
                             int64_t threads);

// The thread's value in `own` that equals its value number `value` in `seen`. NULL: not every thread has the same
// element in both.
Expr *fragment_same_thread(Arena *arena, const Layout *seen, const Layout *own, Expr *value);
// Value index within tv_project(map, dims) of the thread's value number `value` of `map`.
Expr *fragment_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value);
// The condition that `thread` is the first replica of its elements; NULL: no replicas.
Expr *fragment_first_replica(Arena *arena, const Layout *map, Expr *thread);

// Iterators of which a fragment has the digits as dims, w[j / 8, j % 8], become several (iterator_digits.c).
bool split_iterators(PassContext *context, Func *kernel);
// Elements at indices that are neither iterators nor constants become selects, where that is cheap (register_selects.c).
bool regions_as_loops(PassContext *context, Func *kernel);   // tile operations that need them become loops
bool select_registers(PassContext *context, Func *kernel);
bool repeat_common_stores(PassContext *context, Func *kernel);   // common_stores.c
// Makes every `parallel` loop read each fragment by one list of iterators and constants, and every reduction, scan and
// accumulator a whole fragment; other views become copies of the fragment. True: something changed.
bool separate_views(PassContext *context, Func *kernel);
