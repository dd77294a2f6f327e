#include "passes/layout/shared_choice.h"
#include "ir/build.h"
#include "layout/shared_swizzle.h"

typedef struct Chooser {
    const PassContext *context;
    const AccessVec *accesses;   // of the buffer
    const Buf *buf;
    const Layout *best;   // NULL: none yet
    int64_t cost;         // of `best`
} Chooser;

// Extra wavefronts and extra accesses, each as often as it is executed; -1: illegal for some access, or no better than
// the best so far.
static int64_t total_cost(const Chooser *chooser, const Layout *layout) {
    int64_t total = 0, least = chooser->best ? chooser->cost : INT64_MAX;
    VEC_EACH_PTR (const SharedAccess, access, chooser->accesses) {
        AccessCost cost = access_cost(chooser->context->target, access, layout, (least - total) / access->times);
        total += access->times * (cost.conflicts + cost.accesses - access->steps);
        if (!cost.suits || total >= least) return -1;
    }
    return total;
}

static void consider(Chooser *chooser, const Layout *layout) {
    if (!layout || (chooser->best && chooser->cost == 0)) return;
    int64_t cost = total_cost(chooser, layout);
    if (cost < 0) return;
    chooser->best = layout;
    chooser->cost = cost;
}

// Index of the element of a lane, for fewest_wavefronts.
static int64_t index_of(const SharedAccess *access, const int64_t *shape, int lane) {
    int rank = access->buf->rank;
    const int64_t *element = &access->element[lane * rank];
    return element[0] < 0 ? -1 : swizzle_index(shape, element[rank - 2], element[rank - 1]);
}

// How its lanes differ, of the first step; others lie elsewhere in the same way. False: not by their bits.
static bool swizzle_access(const Chooser *chooser, const SharedAccess *access, const int64_t *shape, int64_t run,
                           SwizzleAccess *out) {
    int64_t first = index_of(access, shape, 0);
    bool whole = access->vector <= run;
    *out = (SwizzleAccess){.width = whole ? access->vector : 1};
    int bytes = (int)out->width * type_bytes(access->buf->type);
    int lanes = phase_lanes(access->lanes, bytes, memory_shape(chooser->context->target));
    out->phases = access->times * access->steps * (access->lanes / lanes) * (whole ? 1 : access->vector);
    for (int lane = 0; lane < lanes; lane++) {
        int64_t index = index_of(access, shape, lane), expected = first;
        if (index < 0) continue;
        if (lane && !(lane & (lane - 1))) out->spread[out->bits++] = (uint64_t)(index ^ first);
        for (int bit = 0; bit < out->bits; bit++)
            if (lane >> bit & 1) expected ^= (int64_t)out->spread[bit];
        if (first < 0 || index != expected) return false;
    }
    return true;
}

static void consider_swizzle(Chooser *chooser, const int64_t *shape, int64_t run) {
    VEC(SwizzleAccess) spreads = {0};
    LayoutContext cx = layout_context(chooser->context->arena);
    VEC_EACH_PTR (const SharedAccess, access, chooser->accesses) {
        SwizzleAccess spread;
        if (swizzle_access(chooser, access, shape, run, &spread)) vec_push(cx.arena, &spreads, spread);
    }
    MemoryShape memory = memory_shape(chooser->context->target);
    consider(chooser,
             fewest_wavefronts(&cx, shape, type_bits(chooser->buf->type), run, spreads.items, spreads.count, memory));
}

static int64_t longest_run(const Chooser *chooser) {
    int64_t run = 1;
    VEC_EACH_PTR (const SharedAccess, access, chooser->accesses)
        if (access->vector > run) run = access->vector;
    return run;
}

const Layout *choose_shared_layout(const PassContext *context, const AccessVec *accesses, const Buf *buf) {
    static const AccessVec none = {0};
    Arena *arena = context->arena;
    Chooser chooser = {.context = context, .accesses = accesses ? accesses : &none, .buf = buf};
    int rank = buf->rank < 2 ? buf->rank : 2, bits = type_bits(buf->type);
    int64_t shape[2];
    const char *why;
    for (int d = 0; d < rank; d++) shape[d] = buf_extent(buf, buf->rank - rank + d);
    const Layout *plain = layout_row_major(arena, rank, shape);
    if (rank < 2) return plain;
    consider(&chooser, plain);
    for (int chunks = 8; chunks >= 2; chunks /= 2)
        consider(&chooser, layout_bank_swizzle(arena, shape[0], shape[1], bits, chunks, &why));
    for (int64_t run = longest_run(&chooser); run >= 1; run /= 2)
        if (!chooser.best || chooser.cost > 0) consider_swizzle(&chooser, shape, run);
    for (int64_t pad = context->target->vector_bytes * 8 / bits; pad >= 1; pad /= 2)
        if (2 * pad <= shape[1]) consider(&chooser, layout_padded(arena, shape[0], shape[1], shape[1] + pad));
    return chooser.best ? chooser.best : plain;   // no layout is legal for indices outside of the tile
}
