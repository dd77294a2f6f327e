// The best way through shared memory between two register layouts of one tensor (Triton's optimal swizzling).
//
// The result maps (vector, bank, segment, block, reps) to the tensor: `vector` are the bits that one access moves,
// `bank` the bits that choose a bank, `segment` those that choose a row of all banks, `block` the CTA, `reps` those
// moved in separate rounds through the same memory. A write or read conflicts when lanes of one wavefront differ in
// segment bits only.
#pragma once
#include "layout/calculator/linear_algebra.h"

typedef struct SwizzleConflicts {
    int64_t read, write;   // extra wavefronts per access; 0: none
} SwizzleConflicts;

Linear optimal_swizzle(LayoutContext *cx, Linear source, Linear destination, int element_bits);
SwizzleConflicts optimal_swizzle_conflicts(LayoutContext *cx, Linear source, Linear destination, Linear shared,
                                           int element_bits);
