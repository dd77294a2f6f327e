// The swizzle of a tile in shared memory with the fewest wavefronts over all accesses of the tile.
#pragma once
#include "layout/cost.h"
#include "layout/layout.h"

// The index of an element: row-major in panels, whose columns are the power of two in those of the tile.
int64_t swizzle_index(const int64_t *shape, int64_t row, int64_t column);

// One access of a warp: how the indices of its lanes differ. `spread` are those of the bits of the lanes that go
// together in a phase: the index of a lane is the XOR of those of its bits, up to a constant.
typedef struct SwizzleAccess {
    int bits;
    uint64_t spread[8];
    int64_t width;    // elements that a lane moves at once
    int64_t phases;   // of all its steps
} SwizzleAccess;

// The index, with XORs that keep runs of `run` elements of a row together (a power of two). NULL: neither rows nor
// columns are a power of two, a panel is narrower than a run, or nothing lies beyond the first row of banks.
const Layout *fewest_wavefronts(LayoutContext *cx, const int64_t *shape, int element_bits, int64_t run,
                                const SwizzleAccess *accesses, int count, MemoryShape memory);
