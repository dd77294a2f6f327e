// Shared-memory tiles for TMA and wgmma, and the tensor map that fills them, from one description.
//
// The host needs a box and a swizzle mode, the device a layout of the tile. Both are derived here from the same
// TmaTile, so they cannot disagree. A tile is cut into boxes: the contiguous dim by the swizzle's width, every other
// dim by at most 256; boxes follow each other in memory, those along the contiguous dim ("panels") last. Within a box,
// rows lie one after the other and Sw<log2(bytes / 16),4,3> acts on bytes.
#pragma once
#include "layout/calculator/swizzled.h"

enum { TMA_MAX_RANK = 5 };

typedef struct TmaTile {
    int rank;                          // of the tile, 1 to 5
    int64_t extent[TMA_MAX_RANK];      // row-major: the last dim is contiguous
    int element_bits, swizzle_bytes;   // swizzle 0, 32, 64 or 128
} TmaTile;

typedef struct TmaPlan {
    int64_t box[TMA_MAX_RANK];     // of one copy, in the tile's order (a tensor map lists them reversed)
    int64_t boxes[TMA_MAX_RANK];   // how many along each dim
    int64_t copies, box_bytes;
    int alignment;         // of each box in shared memory, bytes
    int swizzle_ordinal;   // CU_TENSOR_MAP_SWIZZLE_*: none 0, 32B 1, 64B 2, 128B 3
    Swizzled layout;       // tile coordinate -> element in shared memory
} TmaPlan;

TmaPlan tma_plan(LayoutContext *cx, TmaTile tile);

// Operands of wgmma as such tiles. K-major: [mn, k] with k contiguous; MN-major: [mn, k] with mn contiguous.
Swizzled tma_k_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes);
Swizzled tma_mn_major(LayoutContext *cx, int64_t mn, int64_t k, int element_bits, int swizzle_bytes);

// Convolution by im2col: the bounding box of base pixels, per spatial dim, for a filter with padding, and the limits
// of one copy.
typedef struct TmaIm2col {
    int spatial;                  // 1 to 3 spatial dims (tensor rank 3 to 5)
    int64_t lower[3], upper[3];   // pixel box corners, relative to the tensor's first and last pixel
    int64_t pixels, channels;     // per copy: at most 1024 and 256
    TmaPlan plan;                 // of the tile [pixels, channels]
} TmaIm2col;
TmaIm2col tma_im2col(LayoutContext *cx, int spatial, const int64_t *padding, const int64_t *filter,
                     const int64_t *dilation, int64_t pixels, int64_t channels, int element_bits, int swizzle_bytes);
