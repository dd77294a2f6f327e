// Tiled MMA and tiled copy: thread-value (TV) layouts of a whole tile from those of one instruction (CuTe's
// construction).
//
// A TV layout maps (thread, value) to an offset in a column-major tile. An atom is one instruction: its tile, its
// threads, and a TV layout per operand. Atoms are data (target/atoms.def) and arguments here.
#pragma once
#include "layout/calculator/cute.h"

typedef struct MmaAtom {
    int64_t m, n, k;
    Cute threads;            // thread ids taking part, (32):(1) for a warp
    Cute a_tv, b_tv, c_tv;   // (thread, value) -> offset in (m, k), (n, k), (m, n)
} MmaAtom;

MmaAtom mma_atom_parse(LayoutContext *cx, int64_t m, int64_t n, int64_t k, const char *threads, const char *a_tv,
                       const char *b_tv, const char *c_tv);

typedef struct TiledMma {
    MmaAtom atom;
    Cute threads;           // (ThrV, ThrM, ThrN, ThrK) -> thread
    Tiler permutation[3];   // of M, N, K: `_`, a size, or a layout
    int64_t tile[3];        // M, N, K covered at once
} TiledMma;

// `atoms` lays atoms out over M, N, K: (2,2,1):(1,2,0). An empty permutation tuple is (_,_,_).
TiledMma tiled_mma(LayoutContext *cx, MmaAtom atom, Cute atoms, Tiler permutation);

typedef enum { OPERAND_A, OPERAND_B, OPERAND_C } TiledOperand;
Cute tiled_mma_tv(LayoutContext *cx, TiledMma mma, TiledOperand operand);      // (thread, value) -> offset in its tile
Tuple tiled_mma_tile(LayoutContext *cx, TiledMma mma, TiledOperand operand);   // (M,K), (N,K) or (M,N)
// A tensor's layout, or any layout of the operand's modes, as ((ThrV,(Thr..)),(FrgV,(Rest..))).
Cute tiled_mma_partition(LayoutContext *cx, TiledMma mma, TiledOperand operand, Cute tensor);

typedef struct TiledCopy {
    Cute tv;       // (thread, value) -> offset in the tiler's tile
    Tiler tiler;   // by mode: which part of the tensor one tile is
} TiledCopy;

// From thread and value layouts of the tile: threads in `threads`, each with a block `values`.
TiledCopy tiled_copy(LayoutContext *cx, Cute threads, Cute values);
// The steps of make_tiled_copy_C_atom and its siblings: the first `values` values of each thread of an operand of a
// tiled MMA.
typedef struct TiledCopySteps {
    Cute layout_tv;                                // truncated to `values`, still in offsets of the MMA's tile
    Cute projection[2], unfiltered[2], tiler[2];   // per mode: the coordinate, composed with layout_tv, filtered
    Cute tile_to_mma, inverse;                     // tile coordinate -> MMA offset, and back
    Cute tv;                                       // (thread, value) -> tile coordinate
} TiledCopySteps;
TiledCopySteps tiled_copy_steps(LayoutContext *cx, Cute operand_tv, Tuple tile, int64_t values);
TiledCopy tiled_copy_of_mma(LayoutContext *cx, TiledMma mma, TiledOperand operand, int64_t values);
