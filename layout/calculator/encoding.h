// Named ways to spread a tensor over hardware, as linear layouts.
//
// An encoding is what Triton calls an attribute: a kind and a few numbers. Distributed encodings map (register, lane,
// warp, block) to the tensor, shared ones (offset, block), where block is the CTA's rank in the cluster. Outputs are
// dim0, dim1, ... with the tensor's sizes, all powers of two.
//
//   blocked        each thread a box, threads in a box, warps in a box; `order` lists dims fastest first
//   mma            accumulator of mma.sync (version 2: instr_shape [.., m, n]) or wgmma (3: [16 per warp, n, k])
//   dot            operand `op_index` of a matrix product with accumulator `parent` (mma, or blocked for FMA)
//   slice          `parent` with dim `dim` reduced away
//   swizzled       shared memory: within rows of order[0], column ^= vec * ((row / per_phase) % max_phase)
//   nvmma_shared   shared memory as TMA and wgmma see it: swizzle of 32, 64 or 128 bytes, or none (0)
//
// What does not cover the tensor repeats in registers (or offsets), in the encoding's own fastest-first order; what is
// larger than the tensor is a broadcast (zero bases).
#pragma once
#include "layout/calculator/linear_algebra.h"

enum { ENCODING_MAX_RANK = 8 };

typedef enum {
    ENCODING_BLOCKED,
    ENCODING_MMA,
    ENCODING_DOT,
    ENCODING_SLICE,
    ENCODING_SWIZZLED,
    ENCODING_NVMMA_SHARED
} EncodingKind;

typedef int64_t PerDim[ENCODING_MAX_RANK];

typedef struct Encoding {
    EncodingKind kind;
    int rank;   // of the tensor; of slice and dot: the parent decides
    PerDim size_per_thread, threads_per_warp, warps_per_cta, order;   // blocked; order also swizzled; warps also mma
    PerDim ctas, cta_split, cta_order;   // CTAs of the cluster; split < ctas: the others hold copies
    int version;                         // mma: 2 or 3
    PerDim instr_shape;
    int instr_rank;
    int op_index, k_width;   // dot
    int dim;                 // slice
    const struct Encoding *parent;
    int64_t vec, per_phase, max_phase;     // swizzled
    int64_t swizzle_bytes, element_bits;   // nvmma_shared
    bool transposed, fp4_padded;
} Encoding;

Linear encoding_to_linear(LayoutContext *cx, const Encoding *encoding, const int64_t *shape, int rank);
// A distributed layout of a tensor whose dim `dim` has size 1 without that dim: what `slice` makes of its parent.
Linear encoding_without_dim(LayoutContext *cx, Linear whole, const char *dim);

// ---- matrix load and store instructions ----
// ldmatrix and stmatrix move 8x8 matrices of 16-bit elements: each lane gives the address of a row of 16 bytes.
// `contiguous` is (register, lane) -> offset: what lies along a row; `rows` are the 8 lanes whose rows make one
// matrix: lane -> addr.
Linear matrix_tile(LayoutContext *cx, int element_bits, bool transposed);
// Can the instruction move `registers` -> `shared` (offset)? Some permutation of the register bits must make the tile
// divide the conversion. If so *conversion is (register, lane, ...) -> offset with registers so permuted, and
// permutation[i] is the old register bit at new place i.
bool matrix_instruction_fits(LayoutContext *cx, Linear registers, Linear shared, int element_bits, bool transposed,
                             Linear *conversion, int *permutation);
