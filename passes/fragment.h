// Thread-value layouts of the passes: how a tile's elements, or a loop's iterations, are spread over threads.
//
// A map has inputs (thread, value) and one output per tile dim. Thread digits of stride 0 are replicas: several threads
// hold (or do) the same. Every map here covers exactly `threads` threads.
#pragma once
#include "ir/ir.h"
#include "layout/layout.h"
#include "target/target.h"

enum { MAP_THREAD = 0, MAP_VALUE = 1 };

int64_t map_threads(const Layout *map);
int64_t map_values(const Layout *map);   // elements per thread

// A blocked map of `shape`. `fast` is the dim in which consecutive elements lie in memory: each thread takes `vector` of
// them, neighbouring threads the next ones (at most `fast_threads` threads, 0: no limit), then come the other dims from
// the last to the first. Thread counts per dim are powers of two; what does not divide is padded.
const Layout *map_blocked(Arena *arena, int rank, const int64_t *shape, int64_t threads, int fast, int64_t vector,
                          int64_t fast_threads);
// Every thread holds every element.
const Layout *map_replicated(Arena *arena, int rank, const int64_t *shape, int64_t threads);

// The accumulator [m, n] of a gemm by `info`, warps_m x warps_n warps (the rest of the threads replicate), and its operand
// a [m, k] in registers. Values run over the instruction's own, then along n (or k), then along m.
const Layout *map_mma_accumulator(Arena *arena, const MmaInfo *info, int64_t m, int64_t n, int64_t warps_m,
                                  int64_t warps_n, int64_t threads, int lanes);
const Layout *map_mma_a(Arena *arena, const MmaInfo *info, int64_t m, int64_t k, int64_t warps_m, int64_t threads,
                        int lanes);

// The map seen through an access that uses output dims[d] of it as its dim d (-1: a constant index). Digits along unused
// outputs become replicas (threads) or disappear (values). Of a dim with a constant index each thread holds all held[d]
// elements, as its slowest values (held NULL: one).
const Layout *map_project(Arena *arena, const Layout *map, int rank, const int *dims, const int64_t *held);
// Value index within map_project(...) of the thread's value number `value` of `map`, as an expression.
Expr *map_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value);
// The reduction over one dim: map_project onto the others ([1] for a rank-1 map).
const Layout *map_reduce(Arena *arena, const Layout *map, int axis);
// The same map without replicas: points beyond the extents of output 0 for them, which nothing has.
const Layout *map_without_replicas(Arena *arena, const Layout *map);
// `thread` is the first of the replicas of its elements: a condition, NULL when there are no replicas.
Expr *map_first_replica(Arena *arena, const Layout *map, Expr *thread);
// Covers more than `shape` in some dim.
bool map_is_padded(const Layout *map, const int64_t *shape);
