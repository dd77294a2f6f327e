// Shared-memory tiles for TMA and wgmma, and the tensor map that fills them: what layout/tma_tile.h says, as numbers to
// print.
#pragma once
#include "layout/calculator/swizzled.h"
#include "layout/tma_tile.h"

typedef struct TmaPlan {
    TmaBoxes boxes;
    int64_t copies, box_bytes;
    int alignment;         // of each box in shared memory, bytes
    int swizzle_ordinal;   // CU_TENSOR_MAP_SWIZZLE_*: none 0, 32B 1, 64B 2, 128B 3
    Swizzled layout;       // tile coordinate -> element in shared memory
} TmaPlan;

TmaPlan tma_plan(LayoutContext *cx, TmaTile tile);

// Operands of wgmma as such tiles. K-major: [mn, k] with k contiguous; MN-major: [mn, k] with mn contiguous.
Swizzled tma_k_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes);
Swizzled tma_mn_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes);

// Convolution by im2col: the bounding box of base pixels, per spatial dim (1 to 3), for a filter with padding.
typedef struct TmaIm2col {
    int64_t lower[3], upper[3];   // corners, relative to the tensor's first and last pixel
} TmaIm2col;
TmaIm2col tma_im2col(LayoutContext *cx, int spatial, const int64_t *padding, const int64_t *filter,
                     const int64_t *dilation);
