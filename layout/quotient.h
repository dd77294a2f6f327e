// Two distributions of one tile without what is no power of two in both: what is left are maps of bits.
//
// The digits of both sides along a dim of the tile have common digits, where each begins at a multiple of the one before:
//
//     source        ((4,8),(2,3,2)):((2@1,2@0),(1@1,16@0,1@0))      dim 0: 2 x 8 x 3        strides 1, 2, 16
//     destination   ((8,4),(2,2,3)):((2@0,2@1),(1@0,1@1,16@0))      dim 1: 2 x 4
//
// The odd ones stand each as a whole in the values or in the threads of a side. Without them strides are products of powers
// of two: an element is (odd digits, element of the quotient), and both sides move each quotient in the same way.
#pragma once
#include "layout/distribution.h"
#include "layout/linear.h"

enum { QUOTIENT_BITS = 20, QUOTIENT_ODD = 8 };

typedef struct OddDigit {
    int64_t extent, stride;   // in the tile
    int out;
    int input[2];        // of source and destination: TV_THREAD or TV_VALUE
    int64_t weight[2];   // its step in the input
} OddDigit;

typedef struct OddCopies {   // of values: equal elements
    int64_t extent, weight;
} OddCopies;

typedef struct QuotientSide {
    const Layout *tv;
    Linear bits;   // of tv: (register, lane, warp) -> tile
    int value_bits, thread_bits, copy_count;
    int64_t value_weight[QUOTIENT_BITS], thread_weight[QUOTIENT_BITS];   // of each bit: the step in the input
    OddCopies copies[QUOTIENT_ODD];
} QuotientSide;

typedef struct Quotient {
    QuotientSide sides[2];   // source, destination
    int lanes;               // neighbouring threads whose numbers are bits on both sides: a warp, or groups in it
    int odd_count;
    OddDigit odd[QUOTIENT_ODD];
    int rank;
    LayoutInput dims[LAYOUT_MAX_RANK];   // the common digits of the tile, with their strides
} Quotient;

// (thread, value) -> tile as (register, lane, warp) -> "0", "1", ...: refused unless it is linear.
Linear distribution_to_linear(LayoutContext *cx, const Layout *tv, int lanes);

// Of each dim of the tile, fastest first: powers of two and odd extents, with their strides. Refused where there are none.
bool common_digits(LayoutContext *cx, const Layout *source, const Layout *destination, LayoutInput *dims);

// Refused where digits have no common ones, or an odd digit is taken apart.
Quotient quotient_of(LayoutContext *cx, const Layout *source, const Layout *destination, int lanes);
// How often a thread of that side does the same with another odd digit.
int64_t quotient_repeats(const Quotient *q, int side);
