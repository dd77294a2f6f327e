// The cheapest way from one layout of a fragment to another (layout/conversion.h), by the costs of the target.
#pragma once
#include "passes/pass.h"

typedef struct ConversionWay {
    bool within_warps;   // by registers and shuffles; else through shared memory
    int64_t clocks;      // of a multiprocessor; 0: not known
    const char *text;    // the way and its cost, and the other way
} ConversionWay;
// Of a copy between two fragments that have layouts.
ConversionWay conversion_way(const PassContext *context, const Stmt *copy);
