// The cost models of warp-specialized kernels.
//
// In: a tile-stage kernel and a target. Out: coefficients of target/launch_cost.h, by which the tile search compares
// tiles, and a launch variants. Files:
//
//     cost_pingpong.c      ping-pong kernels: clocks per step and per tile
//     cost_cooperative.c   cooperative kernels: the same, and the number of steps
//     cost_fallback.c      the variant without TMA and wgmma
//     launch_cost.c        the coefficients of a launch
//
// search.h has the map of the folder.
#pragma once
#include "ir/ir.h"
#include "support/numbers.h"
#include "target/target.h"

typedef struct PingpongCost {
    int64_t step;           // clocks per step of the main loop, in the steady state
    int64_t stream;         // the same if at most STREAM_READERS CTAs read a tile, so that most of it comes from memory
    int64_t k;              // per step
    int64_t bytes;          // of k per step: row length of a tile
    int64_t loaded;         // bytes per step
    int64_t product[2];     // rows and columns of a product; of the transposed one if operands are swapped
    int64_t row_bytes[2];   // bytes per step of a row of its first operand, of a column of its second
    int64_t lines[2];       // of the L2 cache that these loads are: of tiles of rows, and of columns (cost_pitches)
    int cluster[2];    // CTAs of a cluster that share loads, along the grid's first names; 0: each loads for itself
    int64_t element;   // bytes of an operand's element
    int64_t moving;    // clocks of shared memory traffic per step, alone
    int64_t tail;      // clocks after the main loop of a tile
    int64_t result;    // bytes that are stored of an element of the tile
    int64_t sums;      // added to read the sums of all CTAs that share the steps of a tile
    int64_t run;       // bytes of a row of an operand under way; 0: rows are gathered, or read several times
    int64_t fetch;     // clocks per step of the loads from the L2 cache, if all multiprocessors load
    int64_t power;     // clocks per step by what power the device has, if all multiprocessors work
    bool hidden;       // the tail overlaps the MMAs of another consumer, except for the last tile
} PingpongCost;

enum { STREAM_READERS = 2 };

// For a tile-stage kernel with operands already swapped if swap-operands will do so (tile/tile.h). `warpgroups`:
// the number that share a tile.
PingpongCost cost_pingpong(Arena *arena, const Target *target, const Func *kernel, int warpgroups);
// The same with split-K over `blocks` CTAs of a cluster (tile/tile.h).
PingpongCost cost_pingpong_split(Arena *arena, const Target *target, const Func *kernel, int blocks);
// The cost of a tile, where CTAs of a cluster share its steps.
PingpongCost cost_with_sums(Arena *arena, const Target *target, const Func *kernel, PingpongCost cost);

// A tile too large for one warpgroup, which several compute together: no other tile's MMAs overlap the tail, or the time
// from the arrival of a slot to its release.
PingpongCost cost_shared_tile(Arena *arena, const Target *target, const Func *kernel);
// The pitches of the tensors that a step loads from, and the lines of each (target/launch_cost.h): the second are those whose tiles
// move along the second name of the grid alone.
void cost_pitches(Arena *arena, const Target *target, const Func *kernel, Expr *pitches[2], int64_t lines[2]);

// Amounts per clock as clocks of one amount (target/launch_cost.h); 0: no such cost.
int64_t cost_rate(int64_t amount, int64_t per_clock);
// The tile is the second operand of a product of the step, or that is made of it.
bool feeds_columns(Arena *arena, const Block *step, const Buf *tile);
// Sets what all loads of a launch take: the bytes of a row and of a column in a step, and those of a row under way (0: unknown).
void add_traffic(const Target *target, int64_t row_bytes, int64_t column_bytes, int64_t run, LaunchCost *terms);
// Of the variant of a kernel without facts, whose tile and depth are those of `tile`; NULL: the tile is to be filled in
// (cost_fallback.c).
LaunchCost cost_fallback(Arena *arena, const Target *target, const Func *kernel, const LaunchCost *tile);

// ---- cooperative kernels ----
// Clocks of a multiprocessor per 2^30 multiplications; `rows`: of the first gemm's accumulator.
int64_t cooperative_rate(Arena *arena, const Target *target, const Func *kernel, int64_t *rows);
// The tile m by n that a CTA stores, if it is a result of MMAs or a sum of such results, as in a GEMM, and its cost.
bool cooperative_tile(Arena *arena, const Target *target, const Func *kernel, int64_t *m, int64_t *n,
                      PingpongCost *cost);
bool cooperative_has_cost(Arena *arena, const Func *kernel);   // that a launch can compare
// The coefficients of a source kernel (whose grid is not yet flat), but for its tile. Out: the number of steps of a
// tile, in dims and scalars; NULL: unknown before the kernel runs. `aliased`: the epilogue is staged in an operand's tile.
Expr *cost_cooperative(Arena *arena, const Target *target, const Func *kernel, bool aliased, LaunchCost *terms);
