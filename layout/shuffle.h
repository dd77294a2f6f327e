// Conversions within warps: which register of which lane each register of the destination comes from, as rounds of
// shuffles between permutations of registers.
//
// A thread t does, with words of 2^unit elements:
//
//     packed[j]  = source register `source_order(j)`             the same for all threads
//     sent[i]    = word i ^ swap_source(t) of packed
//     got[i]     = sent[sent(i)] of lane lane_base(t) ^ lane_step(i); of the own thread where i < 2^local
//     out[i]     = got[i ^ swap_destination(t)]
//     destination register `destination_order(j)` = element j of out
//
// All are linear over F2, given by the images of bits, of the quotient (layout/quotient.h). Odd digits that both sides have
// in values are `repeats` of such a conversion; those of warps are the same in a warp.
#pragma once
#include "layout/quotient.h"

enum { SHUFFLE_BITS = QUOTIENT_BITS, SHUFFLE_REPEATS = 2 * QUOTIENT_ODD };

typedef struct ShuffleRepeat {
    int64_t extent, source, destination;   // steps; what one adds to the value numbers
} ShuffleRepeat;

typedef struct ShufflePlan {
    int unit;                  // log2 of the elements of a word
    int rounds, local;         // log2 of the words that a thread takes; of those that are its own (-1: none)
    int source_bits, copies;   // log2 of its elements of the source; of equal elements of the destination
    int thread_bits, lane_bits;
    uint64_t source_order[SHUFFLE_BITS], destination_order[SHUFFLE_BITS];    // element bit -> value bits
    uint64_t sent[SHUFFLE_BITS], lane_step[SHUFFLE_BITS];                    // round bit -> words, lanes
    uint64_t lane_base[SHUFFLE_BITS];                                        // thread bit -> lanes
    uint64_t swap_source[SHUFFLE_BITS];                                      // thread bit -> words of packed
    uint64_t swap_destination[SHUFFLE_BITS];                                 // thread bit -> rounds
    int64_t source_weight[SHUFFLE_BITS], destination_weight[SHUFFLE_BITS];   // value bit -> value number
    int64_t thread_weight[SHUFFLE_BITS];                                     // thread bit -> thread number
    int repeat_count;
    ShuffleRepeat repeats[SHUFFLE_REPEATS];
} ShufflePlan;

// Refused where an element comes from another warp, or another group of the quotient's lanes, where an odd digit stands at different places of the two sides, and
// where two lanes need different registers of one lane in a round. The layouts have exactly the tile's elements.
ShufflePlan shuffle_plan(LayoutContext *cx, const Quotient *q, int element_bits);
// The same of (register, lane, warp) -> tile, which both sides have as their only inputs.
ShufflePlan shuffle_plan_of_bits(LayoutContext *cx, Linear source, Linear destination, int element_bits);
// What a thread executes, in instructions of one register: shuffles; selections and byte permutations.
typedef struct ShuffleCost {
    int64_t shuffles, selects;
} ShuffleCost;
ShuffleCost shuffle_cost(const ShufflePlan *plan, int element_bits);
// Independent swaps that make up an XOR by the image of the thread: where the parity of thread & masks[i] is odd, by
// images[i]. Returns their number.
int shuffle_swaps(const uint64_t *columns, int thread_bits, uint64_t *masks, uint64_t *images);
