// The steps of a fragment's layout: each digit of threads and values as bits, and what is no power of two as one digit.
#pragma once
#include "ir/ir.h"
#include "layout/distribution.h"

typedef struct Step {
    int64_t extent, stride, weight;   // weight: of the thread or value number
    int out;
} Step;

typedef struct Steps {
    int count;
    Step items[63];   // each has an extent of at least 2, and all of a layout fit an int64_t
} Steps;

Steps register_steps(const LayoutInput *input);   // in the tile
// Those of threads and values as places in the memory of a whole tile, in elements, output 0: steps of extent 2 are XORed,
// others added. False: the tile has no layout, or one that this does not hold for.
bool steps_in_memory(const Region *tile, const Layout *fragment, Steps *threads, Steps *values);
