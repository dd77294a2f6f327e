// The cheapest way from one layout of a fragment to another (layout/shuffle.h, layout/shared_way.h), by the costs of the
// target.
#pragma once
#include "passes/pass.h"

#include "layout/shared_way.h"

typedef struct ConversionWay {
    bool within_warps;   // by registers and shuffles; else through shared memory
    int64_t quarters;    // in units of WarpCosts; of other than whole fragments what they take at least
    int64_t clocks;      // the same, of a multiprocessor, where it is exact; else 0
    const char *text;    // the way and its cost, and the other way
    // Through shared memory: the layout of the tile there; NULL: not known.
    const Layout *scratch;
    bool by_loops;   // as layouts have no common digits; else by these instructions
    SharedInstruction store, load;
} ConversionWay;
// From one fragment to another of its shape; both have layouts.
ConversionWay conversion_between(const PassContext *context, const Buf *from, const Buf *to);
// Of a copy between two fragments that have layouts.
ConversionWay conversion_way(const PassContext *context, const Stmt *copy);
