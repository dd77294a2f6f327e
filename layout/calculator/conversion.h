// The cheapest way from one distribution of a tile to another (layout/distribution.h): which moves remain, and their
// exact number.
//
//     in registers          every thread has what it needs: at most other names
//     by shuffles           every warp has: rounds in which each lane gives one element and takes one
//     through shared memory otherwise: layout/shared_way.h
#pragma once
#include "layout/calculator/linear_algebra.h"
#include "layout/layout.h"

typedef enum { CONVERT_NOTHING, CONVERT_IN_REGISTERS, CONVERT_BY_SHUFFLES, CONVERT_BY_SHARED } ConversionKind;

typedef struct Conversion {
    ConversionKind kind;
    int64_t shuffles;   // per thread
    bool fewest;        // no order of shuffles has fewer; not known where several lanes hold or need the same element
} Conversion;

// Elements outside of `shape` belong to no thread. By rank where both are linear and exactly of the shape, else by
// counting.
Conversion conversion_of(LayoutContext *cx, const Layout *source, const Layout *destination, const int64_t *shape,
                         int lanes);
// The same of linear layouts (register, lane, warp, block) -> tensor.
Conversion conversion_by_rank(LayoutContext *cx, Linear source, Linear destination);
