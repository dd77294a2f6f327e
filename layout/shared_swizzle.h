// The swizzle of a tile in shared memory with the fewest wavefronts over all accesses of the tile.
#pragma once
#include "layout/cost.h"
#include "layout/layout.h"

// One access of a warp: how the places of its lanes differ, as row-major indices of the tile. `spread` are the indices
// of the bits of the lanes that go together in a phase: the index of a lane is the XOR of those of its bits, up to a
// constant.
typedef struct SwizzleAccess {
    int bits;
    uint64_t spread[8];
    int64_t width;    // elements that a lane moves at once
    int64_t phases;   // of all its steps
} SwizzleAccess;

// Row-major, with XORs that keep runs of `run` elements of a row together (a power of two). NULL: the columns are no
// power of two, or nothing lies beyond the first row of banks.
const Layout *fewest_wavefronts(LayoutContext *cx, const int64_t *shape, int element_bits, int64_t run,
                                const SwizzleAccess *accesses, int count, MemoryShape memory);
