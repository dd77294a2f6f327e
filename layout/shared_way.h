// The cheapest way through shared memory between two register layouts of one tile: where each element lies, and by
// which instructions it comes and goes. Costs are exact.
#pragma once
#include "layout/cost.h"
#include "layout/quotient.h"

typedef enum { SHARED_VECTORS, SHARED_MATRIX, SHARED_MATRIX_TRANSPOSED } SharedInstruction;

// Accesses of a warp on one side.
typedef struct SharedSide {
    SharedInstruction instruction;
    int64_t width;      // elements that a lane moves at once; of ldmatrix and stmatrix those of a row
    int64_t accesses;   // instructions
    int64_t times;      // how often, with other elements
    SharedCost cost;    // of each
} SharedSide;

typedef struct SharedWay {
    Linear shared;   // (vector, bank, segment) -> tile, one to one: the bits of an element's place, lowest first
    SharedSide store, load;
} SharedWay;

typedef struct SharedMachine {
    MemoryShape memory;
    bool stmatrix, ldmatrix, ldmatrix_bytes;   // allowed; the last: transposed, of 8-bit elements
} SharedMachine;

// Of layouts (register, lane, warp) -> tile, which are stored and loaded so often, each time with other elements. Refused
// where registers or threads hold sums of bits that are not independent.
SharedWay shared_way(LayoutContext *cx, Linear source, Linear destination, int element_bits, SharedMachine machine,
                     int64_t stores, int64_t loads);
int64_t shared_way_wavefronts(const SharedWay *way);   // of a warp
// tile -> place in memory: one tile of the quotient for each of the odd digits, one after the other.
const Layout *shared_way_layout(LayoutContext *cx, const SharedWay *way, const Quotient *q, int element_bits);
