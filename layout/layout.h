// layout/: layouts of tiles in registers and memory. Comes in: layouts as text or values, shapes, machine facts given
// by the caller. Goes out: layouts, access costs, text. docs/design/layouts.md says why it is as it is:
//
//     layout.c  layout_text.c                  the type, its queries, its notation
//     linear.c  matrix.c                       bit matrices over F2, elimination; a layout as one
//     distribution.c  swizzle.c  shared_swizzle.c  a tile over threads; XOR swizzles; those for all accesses
//     tma_tile.c                               tiles of TMA and wgmma: boxes and layout
//     quotient.c                               two distributions of a tile without their odd digits
//     shared_way.c  cost.c                     ways between distributions through shared memory; wavefronts and sectors
//     shuffle.c                                rounds of shuffles that convert a distribution within warps
//     scan.c  context.c                        reading of texts; arena and refusals
//     calculator/                              what `tilec layout` alone uses: the algebra of layouts, CuTe's nested ones,
//                                              encodings, pictures
//
// A layout maps input coordinates to output coordinates, in one of two forms.
//
// Mixed radix. Each input is split into digits, fastest first, as in CuTe; a digit d of extent e contributes d * stride
// to one output (stride 0: the digit is a broadcast, that is replication). Written in CuTe's notation with basis
// strides, `stride@output`:
//
//   shared [256, 64] f16, full-bank swizzle:    Sw<3,4,3> o ((8,32),(8,8,1)):((64@2,1@1),(1@2,8@2,1@0))
//       inputs are the logical coordinates (i, j), outputs the physical indices [tc, ts, index]
//   accumulator of mma.m16n8, one warp:         ((4,8),(2,2)):((2@1,1@0),(1@1,8@0))
//       inputs are (thread, value), outputs the tile's coordinates (i, j): a thread-value layout
//
// A stride without `@` means output 0 of a layout with one output. The swizzle Sw<B,M,S> XORs bits of the byte offset
// within the last output (PTX/CuTe semantics: x ^ ((x & mask << (M + S)) >> S)); its period must divide that output's
// bytes, so that the swizzle of the whole linear offset and of the last index agree.
//
// Linear over F2. Each bit of each input has an image, and those of the set bits are XORed; extents are powers of two,
// or the map is cut. An input may have several digits, whose bits have images each:
//
//   linear([1,2,4],[9,18,36])                   (i, j) of an 8 x 8 tile at i ^ 9 * j, if 9 * j is read bit by bit
//   linear([1,2,4]:6,[9,18,36])                 the same of a 6 x 8 tile
//   linear(([1,64,128]:6,[2,4]),[9,18,36])      of a 24 x 8 tile: i = i0 + 6 * i1
//
// Normal form: a map that digits can say, with a swizzle or without, is mixed radix; the linear form has the others.
// `2%` for an extent makes its input a ring, whose coordinates wrap. Output extents are the exact range of the map
// (TileLang's OutputShape).
//
// Layouts are immutable values in an arena. Functions that can refuse return NULL and set *why (an arena text).
#pragma once
#include "layout/swizzle.h"

enum { LAYOUT_MAX_RANK = 8, LAYOUT_MAX_MODES = 16, LAYOUT_MAX_BITS = 40 };

typedef struct LayoutMode {
    int64_t extent;   // >= 1
    int64_t stride;   // added to output `out` per step; 0: broadcast
    int out;          // output index
} LayoutMode;

typedef struct LayoutInput {
    int count;   // digits, fastest first
    bool ring;   // coordinates wrap; else the slowest digit goes on beyond its extent
    LayoutMode modes[LAYOUT_MAX_MODES];
} LayoutInput;

// The linear form: images of the bits of the inputs, fastest bit of the first input first, by output. All digits of an
// input but the slowest have the fewest bits that count their extent.
typedef struct LayoutBits {
    int in[LAYOUT_MAX_RANK];   // bits of each input
    bool ring[LAYOUT_MAX_RANK];
    int64_t images[LAYOUT_MAX_BITS][LAYOUT_MAX_RANK];
} LayoutBits;

typedef struct Layout {
    int rank_in, rank_out;
    LayoutInput in[LAYOUT_MAX_RANK];      // of the linear form: the extents, as digits of stride 0
    int64_t out_shape[LAYOUT_MAX_RANK];   // exact range of each output; derived by layout_finish
    Swizzle swizzle;                      // of bytes
    int element_bits;                     // unit of the last output where there is a swizzle, else 0
    const LayoutBits *bits;               // NULL: mixed radix
} Layout;

// ---- construction, text ----
Layout *layout_new(Arena *arena, int rank_in, int rank_out);
// Appends a slower digit; extent 1 is dropped.
void layout_add(Layout *layout, int input, int64_t extent, int64_t stride, int out);
const Layout *layout_finish(Layout *layout);   // derives out_shape; NULL: too many digits
// The linear map with these images, in normal form. With element_bits (not 0) the form may be digits under a swizzle.
const Layout *layout_of_bits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits, int element_bits);
// The same, of coordinates in `digits`: each has the fewest bits that count its extent (strides are not read).
const Layout *layout_of_digits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits,
                               const LayoutInput *digits, int element_bits);
// The map on the first `extents` coordinates of each input; of digits, as many steps of the slowest one as that takes.
const Layout *layout_cut(Arena *arena, const Layout *layout, const int64_t *extents);
const Layout *layout_parse(Arena *arena, const char *text, int element_bits, const char **why);
char *layout_text(Arena *arena, const Layout *layout);

// ---- queries ----
int64_t layout_extent_in(const Layout *layout, int input);   // product of its digits
int64_t layout_size_out(const Layout *layout);               // product of out_shape: physical size in elements
void layout_eval(const Layout *layout, const int64_t *in, int64_t *out);   // with swizzle
int64_t layout_linear(const Layout *layout, const int64_t *in);            // row-major over out_shape, with swizzle
Swizzle layout_swizzle(const Layout *layout);                              // of the last output's elements
bool layout_same_box(const Layout *a, const Layout *b);                    // the same extents of inputs and outputs
bool layout_mode_equal(const LayoutMode *a, const LayoutMode *b);
// The same map in the same form. Forms are normal, so that layouts of elements of one size have one form for a map.
bool layout_equal(const Layout *a, const Layout *b);
// Whether the swizzle of the last index alone is that of the whole offset: with other outputs in front, a whole number
// of periods lies between their steps.
bool layout_swizzle_is_whole(const Layout *layout);
// Runs of `run` elements along the last input lie together, in order, at multiples of `run`.
bool layout_keeps_runs(const Layout *layout, int64_t run);
// So many consecutive coordinates of the last input, from a multiple on, have as many consecutive places, in an order that is the
// same for all, with the first one first.
bool layout_keeps_sets(const Layout *layout, int64_t run);
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
