// The cheapest way from one layout of a fragment to another (layout/conversion.h), by the costs of the target.
#pragma once
#include "passes/pass.h"

#include "layout/shared_way.h"

typedef struct ConversionWay {
    bool within_warps;   // by registers and shuffles; else through shared memory
    int64_t clocks;      // of a multiprocessor; 0: not known
    const char *text;    // the way and its cost, and the other way
    // Through shared memory: the layout of the tile there; NULL: one that no layout on bits gives, by plain loops.
    const Layout *scratch;
    SharedInstruction store, load;
} ConversionWay;
// Of a copy between two fragments that have layouts.
ConversionWay conversion_way(const PassContext *context, const Stmt *copy);
