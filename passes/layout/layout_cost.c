// What a choice of layouts costs, in units of WarpCosts.
#include "ir/build.h"
#include "passes/layout/conversion_way.h"
#include "passes/layout/fragment.h"
#include "passes/layout/layout_inference.h"
#include "passes/lower/lower.h"

// Equal layouts, and those in which each thread has what it needs, cost nothing: registers are renamed.
static int64_t find_quarters(Inference *inference, const Buf *from, const Buf *to) {
    if (layout_equal(from->layout, to->layout)) return 0;
    if (fragment_same_thread(inference->arena, to->layout, from->layout, e_int(inference->arena, 0))) return 0;
    return conversion_between(inference->context, from, to).quarters;
}

int64_t conversion_quarters(Inference *inference, const Buf *from, const Buf *to) {
    int bits = type_bits(conversion_type(from, to));
    VEC_EACH (const KnownCost, known, &inference->costs)
        if (known->bits == bits && layout_equal(known->from, from->layout) && layout_equal(known->to, to->layout))
            return known->quarters;
    KnownCost cost = {from->layout, to->layout, bits, find_quarters(inference, from, to)};
    vec_push(inference->arena, &inference->costs, cost);
    return cost.quarters;
}
