// layout/: layouts of tiles in registers and memory. Comes in: layouts as text or values, shapes, machine facts given
// by the caller. Goes out: layouts, access costs, text and pictures. The compiler uses the first group; `tilec layout`
// uses all:
//
//     layout.c  distribution.c                           layouts of the passes; how a tile is spread over threads
//     cost.c  swizzle.c                                  bank conflicts, sectors, shuffles; XOR swizzles
//     tuple.c  cute.c  view.c  tiled_copy.c              CuTe: nested tuples, shape:stride algebra, tiled copies and MMAs
//     linear.c  encoding.c  optimal_swizzle.c  tma.c     Triton: linear layouts over F2, named encodings, best swizzles
//     bridge.c  context.c                                conversions between these; arena and refusals
//     calculator/                                        expressions, batches, pictures, the command line
//
// The layout of the passes: a mixed-radix map from input coordinates to output coordinates, with an optional swizzle.
//
// Each input is split into digits, fastest first, as in CuTe; a digit d of extent e contributes d * stride to one
// output (stride 0: the digit is a broadcast, that is replication). Written in CuTe's notation with basis strides,
// `stride@output`:
//
//   shared [256, 64] f16, full-bank swizzle:    Sw<3,4,3> o ((8,32),(8,8,1)):((64@2,1@1),(1@2,8@2,1@0))
//       inputs are the logical coordinates (i, j), outputs the physical indices [tc, ts, index]
//   accumulator of mma.m16n8, one warp:         ((4,8),(2,2)):((2@1,1@0),(1@1,8@0))
//       inputs are (thread, value), outputs the tile's coordinates (i, j): a thread-value layout
//
// A stride without `@` means output 0 of a layout with one output. Output extents are the exact range of the map
// (TileLang's OutputShape). The swizzle Sw<B,M,S> XORs bits of the byte offset within the last output (PTX/CuTe
// semantics: x ^ ((x & mask << (M + S)) >> S)); its period must divide that output's bytes, so that the swizzle of the
// whole linear offset and of the last index agree.
//
// Layouts are immutable values in an arena. Functions that can refuse return NULL and set *why (a static or arena
// text).
#pragma once
#include "support/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { LAYOUT_MAX_RANK = 8, LAYOUT_MAX_MODES = 16 };

typedef struct LayoutMode {
    int64_t extent;   // >= 1
    int64_t stride;   // added to output `out` per step; 0: broadcast
    int out;          // output index
} LayoutMode;

typedef struct LayoutInput {
    int count;   // digits, fastest first
    LayoutMode modes[LAYOUT_MAX_MODES];
} LayoutInput;

typedef struct LayoutSwizzle {   // Sw<B,M,S>; bits 0: none
    int bits, base, shift;
} LayoutSwizzle;

typedef struct Layout {
    int rank_in, rank_out;
    LayoutInput in[LAYOUT_MAX_RANK];
    int64_t out_shape[LAYOUT_MAX_RANK];   // exact range of each output; derived by layout_finish
    LayoutSwizzle swizzle;
    int element_bits;   // unit of the swizzle; 0 when there is none
} Layout;

// ---- construction, text ----
Layout *layout_new(Arena *arena, int rank_in, int rank_out);
// Appends a slower digit; extent 1 is dropped.
void layout_add(Layout *layout, int input, int64_t extent, int64_t stride, int out);
const Layout *layout_finish(Layout *layout);   // derives out_shape; merges digits that are one (coalesce)
const Layout *layout_parse(Arena *arena, const char *text, int element_bits, const char **why);
char *layout_text(Arena *arena, const Layout *layout);

// ---- queries ----
int64_t layout_extent_in(const Layout *layout, int input);   // product of its digits
int64_t layout_size_in(const Layout *layout);                // product over inputs
int64_t layout_size_out(const Layout *layout);               // product of out_shape: physical size in elements
void layout_eval(const Layout *layout, const int64_t *in, int64_t *out);   // with swizzle
int64_t layout_linear(const Layout *layout, const int64_t *in);            // row-major over out_shape, with swizzle
bool layout_equal(const Layout *a, const Layout *b);   // as maps in normal form (same digits, same swizzle)
bool layout_injective(const Layout *layout);           // ignoring nothing: broadcasts make it false
// Runs of `run` elements along the last input lie together, in order, at multiples of `run`.
bool layout_keeps_runs(const Layout *layout, int64_t run);
// Bytes after which the swizzle's pattern repeats, which the buffer must be aligned to; 1 without a swizzle.
int64_t layout_period(const Layout *layout);

// ---- shared memory ----
const Layout *layout_row_major(Arena *arena, int rank, const int64_t *shape);
const Layout *layout_padded(Arena *arena, int64_t rows, int64_t columns, int64_t pitch);
// TileLang's bank swizzles of a [rows, columns] tile; panel_chunks 8, 4, 2 = full, half, quarter bank (128, 64, 32
// bytes); chunk is 16 bytes. Physical shape [columns / (panel), rows / 8, 8 * panel]. NULL when the shape does not
// allow it.
const Layout *layout_bank_swizzle(Arena *arena, int64_t rows, int64_t columns, int element_bits, int panel_chunks,
                                  const char **why);

// `plain` under another swizzle; NULL when its bytes are no whole number of periods.
const Layout *layout_with_swizzle(Arena *arena, const Layout *plain, LayoutSwizzle swizzle, int element_bits);

// The inverse, digit by digit: outputs to inputs. Broadcast digits are 0 in it, so that of a distribution
// (layout/distribution.h) it gives the first holder. NULL when the map is not a mixed-radix bijection onto its outputs.
const Layout *layout_inverse(Arena *arena, const Layout *layout, const char **why);
