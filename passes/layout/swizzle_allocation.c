// swizzle-allocation: the layout of every shared buffer, then its offset.
//
// Layout. TMA and wgmma dictate the layout of the buffers that they write or read, in panels (tma.h). The accesses of
// the others are known: the element of each lane of a warp (shared_access.h). Candidates are tried in this order on all
// accesses. The least cost wins, extra wavefronts (a bank conflict each) and extra accesses, the earlier candidate on a
// tie; cost 0 ends the search:
//     row-major; the full, half and quarter bank swizzles (panels of 128, 64, 32 bytes, as for TMA and wgmma);
//     row-major with the XORs that make the wavefronts of all accesses together the fewest (layout/shared_swizzle.h),
//     the longest runs first; rows padded by one access, where that adds no more than half a tile.
// A layout that splits a 16-byte run is illegal for cp.async and ldmatrix, and costs more accesses elsewhere.
//
// Offset. A buffer is live from its first to its last use. A use in a loop counts for the whole loop if the declaration
// is outside. Buffers that other CTAs of the cluster read are always live. Buffers with disjoint live ranges may share
// bytes: each gets the lowest free aligned offset, largest buffer first. insert-sync, the next pass, orders threads
// where bytes are shared.
//
// Leading dims beyond the last two (slots) pass through the layout.
#include "ir/build.h"
#include "layout/shared_swizzle.h"
#include "passes/analysis/shared_access.h"
#include "passes/analysis/util.h"
#include "passes/pass.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "support/map.h"
#include "support/numbers.h"
#include <limits.h>

// ---- choosing a layout ----

typedef struct Chooser {
    PassContext *context;
    const SharedAccessVec *accesses;
    const Buf *buf;
    const Layout *best;   // NULL: none yet
    int64_t cost;         // of `best`
} Chooser;

// Extra wavefronts and extra accesses; -1: illegal for some access, or no better than the best so far.
static int64_t total_cost(const Chooser *chooser, const Layout *layout) {
    int64_t total = 0, least = chooser->best ? chooser->cost : INT64_MAX;
    VEC_EACH (const SharedAccess, access, chooser->accesses) {
        if (access->buf != chooser->buf) continue;
        AccessCost cost = access_cost(chooser->context->target, access, layout, least - total);
        total += cost.conflicts + cost.accesses - access->steps;
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
    out->phases = access->steps * (access->lanes / lanes) * (whole ? 1 : access->vector);
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
    VEC_EACH (const SharedAccess, access, chooser->accesses) {
        SwizzleAccess spread;
        if (access->buf != chooser->buf || !swizzle_access(chooser, access, shape, run, &spread)) continue;
        vec_push(cx.arena, &spreads, spread);
    }
    MemoryShape memory = memory_shape(chooser->context->target);
    consider(chooser,
             fewest_wavefronts(&cx, shape, type_bits(chooser->buf->type), run, spreads.items, spreads.count, memory));
}

static int64_t longest_run(const Chooser *chooser) {
    int64_t run = 1;
    VEC_EACH (const SharedAccess, access, chooser->accesses)
        if (access->buf == chooser->buf && access->vector > run) run = access->vector;
    return run;
}

// Panels, if TMA or wgmma uses the buffer; none for a vector.
typedef struct Touch {
    bool found, in_rows;   // in_rows: by copies without panels
    const char *order;     // of k; NULL: natural
} Touch;

// The order in which a wgmma gemm has k in its right operand; NULL: natural.
static const char *order_of(PassContext *context, const Func *kernel, const Stmt *stmt, const Buf *buf) {
    GemmOp gemm;
    WgmmaInfo info;
    if (!via_is(stmt, VIA_WGMMA) || !match_gemm(stmt, &gemm) || gemm.b->buf != buf) return NULL;
    bool pairs = !wgmma_problem(context->target, stmt, &info) && wgmma_pairs(context->arena, kernel, stmt, &info);
    return pairs ? info.k_paired : NULL;
}

static Touch touch_of(PassContext *context, Func *kernel, const Buf *buf) {
    Touch touch = {0};
    if (buf->type == TYPE_MBARRIER) return touch;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (!by_bulk(stmt) && !via_is(stmt, VIA_TMA) && !via_is(stmt, VIA_TMA_STORE) && !via_is(stmt, VIA_WGMMA))
            continue;
        const Stmt *copy = stmt->kind == STMT_CALL ? stmt : tma_copy(context->arena, stmt);
        for (int i = 0; copy && i < copy->call.count; i++) {
            if (!call_region(copy, i) || call_region(copy, i)->buf != buf) continue;
            touch.found = true;
            touch.in_rows |= by_bulk(stmt);
        }
        const char *order = order_of(context, kernel, stmt, buf);
        if (order) touch.order = order;
    }
    return touch;
}

static const Layout *dictated_layout(PassContext *context, Func *kernel, const Buf *buf) {
    Touch touch = touch_of(context, kernel, buf);
    if (!touch.found) return NULL;
    int rank = buf->rank - buf->stage_dims;
    EXPECT(context->failure, !touch.in_rows || rank <= 2, "'%s' of rank %d is moved in rows", buf->name, rank);
    int64_t extents[2] = {buf_extent(buf, buf->rank - rank), buf_extent(buf, buf->rank - 1)};
    if (touch.in_rows) return layout_row_major(context->arena, rank, extents);
    return touch.order ? tma_layout_ordered(context->arena, buf, touch.order) : tma_layout(context->arena, buf);
}

// Alignment of the buffer in bytes.
static int64_t alignment_of(PassContext *context, Func *kernel, const Buf *buf) {
    int64_t period = buf->layout ? layout_period(buf->layout) : 1;
    if (period > 1) return period;
    return touch_of(context, kernel, buf).found ? tma_facts.shared_align : context->target->vector_bytes;
}

static const Layout *choose_layout(PassContext *context, const SharedAccessVec *accesses, const Buf *buf) {
    Arena *arena = context->arena;
    Chooser chooser = {.context = context, .accesses = accesses, .buf = buf};
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

// ---- live ranges ----

typedef struct Life {
    Buf *buf;
    int64_t members;   // of an array of roles, each of which has its own
    int first, last;   // statement numbers in textual order
    int64_t bytes, align;
} Life;

typedef struct Lifetimes {
    Arena *arena;
    VEC(Life) items;
    int clock;
    int64_t members;   // of the current role
} Lifetimes;

static void touch(Lifetimes *lifetimes, const Buf *buf, int from, int to) {
    VEC_EACH (Life, life, &lifetimes->items) {
        if (life->buf != (buf->alias_of ? buf->alias_of : buf)) continue;
        if (life->first < 0 || from < life->first) life->first = from;
        if (to > life->last) life->last = to;
    }
}

static void live_block(Lifetimes *lifetimes, const Block *block);

static void live_stmt_itself(Lifetimes *lifetimes, const Stmt *stmt) {
    int now = lifetimes->clock;
    if (is_call(stmt, OP_AWAIT)) touch(lifetimes, call_region(stmt, 0)->buf, now, now);
    FOR_EACH_EFFECT (effect, lifetimes->arena, stmt) {
        bool peers = effect->op == OP_PEER || effect->op == OP_PEER_STORE;   // other CTAs access it at any time
        touch(lifetimes, effect->buf, peers ? 0 : now, peers ? INT_MAX : now);
    }
}

// Buffers that are declared outside of a loop and used in it are live throughout the loop.
static void live_loop(Lifetimes *lifetimes, const Stmt *stmt, const Block *body) {
    int start = lifetimes->clock, known = lifetimes->items.count;
    live_block(lifetimes, body);
    FOR_EACH_EFFECT (effect, lifetimes->arena, stmt)
        for (int l = 0; l < known; l++)
            if (lifetimes->items.items[l].buf == effect->buf) touch(lifetimes, effect->buf, start, lifetimes->clock);
}

// Roles run concurrently until the end of the CTA: buffers that a role uses are live throughout.
static void live_role(Lifetimes *lifetimes, const Stmt *role) {
    lifetimes->members = role_members(role);
    live_block(lifetimes, &role->role.body);
    lifetimes->members = 1;
    FOR_EACH_EFFECT (effect, lifetimes->arena, role) touch(lifetimes, effect->buf, 0, INT_MAX);
}

static void live_stmt(Lifetimes *lifetimes, const Stmt *stmt) {
    Stmt alone = stmt_alone(stmt);
    lifetimes->clock++;
    switch (stmt->kind) {
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !stmt->decl->alias_of)
            vec_push(lifetimes->arena, &lifetimes->items,
                     ((Life){stmt->decl, lifetimes->members, .first = -1, .last = -1}));
        return;
    case STMT_ROLE: live_role(lifetimes, stmt); return;
    case STMT_WHILE: live_loop(lifetimes, stmt, &stmt->while_.body); return;
    case STMT_THREAD: live_loop(lifetimes, stmt, &stmt->thread.body); return;
    case STMT_FOR:
        if (stmt->loop.kind == LOOP_PARALLEL) live_stmt_itself(lifetimes, stmt);
        else live_loop(lifetimes, stmt, &stmt->loop.body);
        return;
    default:
        live_stmt_itself(lifetimes, &alone);
        FOR_EACH_BODY (body, stmt) live_block(lifetimes, body);
    }
}

static void live_block(Lifetimes *lifetimes, const Block *block) {
    FOR_EACH_ITEM (stmt, block) live_stmt(lifetimes, stmt);
}

// ---- offsets ----

static bool meet(const Life *a, const Life *b) {
    return a->first >= 0 && b->first >= 0 && a->first <= b->last && b->first <= a->last;
}

static bool is_free(const Lifetimes *lifetimes, const Life *life, int64_t offset) {
    VEC_EACH (const Life, other, &lifetimes->items) {
        if (other == life || other->buf->offset < 0 || !meet(life, other)) continue;
        if (offset < other->buf->offset + other->bytes && other->buf->offset < offset + life->bytes) return false;
    }
    return true;
}

static void place(const Lifetimes *lifetimes, Life *life) {
    int64_t best = is_free(lifetimes, life, 0) ? 0 : INT64_MAX;
    VEC_EACH (const Life, other, &lifetimes->items) {
        if (other->buf->offset < 0) continue;
        int64_t offset = round_up(other->buf->offset + other->bytes, life->align);
        if (offset < best && is_free(lifetimes, life, offset)) best = offset;
    }
    EXPECT(arena_failure(lifetimes->arena), best < INT64_MAX, "no place for '%s'", life->buf->name);
    life->buf->offset = best;
    life->buf->align = (int)life->align;
}

static Life *largest_unplaced(const Lifetimes *lifetimes) {
    Life *best = NULL;
    VEC_EACH (Life, life, &lifetimes->items)
        if (life->buf->offset < 0 && (!best || life->bytes > best->bytes)) best = life;
    return best;
}

static void check_size(PassContext *context, const Func *kernel, const Lifetimes *lifetimes) {
    int64_t total = 0;
    VEC_EACH (const Life, life, &lifetimes->items) {
        int64_t end = life->buf->offset + life->bytes;
        total = end > total ? end : total;
    }
    if (total <= context->target->shared_block) return;
    Diag *d = diag(context->sink, kernel->loc, T_SHARED_TOO_LARGE, kernel->name, (long long)total,
                   context->target->name, (long long)context->target->shared_block);
    VEC_EACH (const Life, life, &lifetimes->items)
        diag_label(d, life->buf->loc, "%s: %lld bytes", life->buf->name, (long long)life->bytes);
}

// ---- the pass ----

static bool is_transposed_tile(const Stmt *stmt, void *user) {
    (void)user;
    return via_is(stmt, VIA_TRANSPOSE);
}

static void report_conflicts(PassContext *context, Func *kernel, SharedAccessVec *accesses) {
    if (block_any(&kernel->body, is_transposed_tile, NULL)) {   // the rows that these read depend on the layout
        *accesses = (SharedAccessVec){0};
        shared_accesses(context, kernel, accesses);
    }
    VEC_EACH (const SharedAccess, access, accesses) {
        int64_t conflicts = access_cost(context->target, access, access->buf->layout, INT64_MAX).conflicts;
        int64_t before = attr_int(access->stmt->attrs, ATTR_CONFLICTS, 0);
        attr_set_int(context->arena, &access->stmt->attrs, ATTR_CONFLICTS, before + conflicts);
        if (conflicts > 0)
            REMARK_NOTE(context, access->stmt->loc, T_SHARED_CONFLICTS, access->buf->name,
                        "%d extra wavefronts for a warp, with layout %s", (int)conflicts,
                        layout_text(context->arena, access->buf->layout));
    }
}

// Size, alignment and other inputs of the placement.
static void measure(PassContext *context, Func *kernel, Life *life) {
    const Buf *buf = life->buf;
    int64_t blocks = grid_blocks(func_grid(kernel));
    bool spread = attr_get(buf->attrs, ATTR_CTAS) != NULL;
    life->align = alignment_of(context, kernel, buf);
    life->bytes = buf_space(buf);
    if (life->members > 1)
        life->bytes = life->bytes / buf_outermost(buf) * buf_outermost_aligned(buf, life->align) * life->members;
    EXPECT(context->failure, life->align > 0 && (life->align & (life->align - 1)) == 0, "'%s' is aligned to %lld bytes",
           buf->name, (long long)life->align);
    // Small buffers (scratch of reductions, mbarriers) share no storage: it would save little, and cost a barrier
    // between the last read of one and the first write of the next.
    bool disjoint = spread || life->bytes <= context->target->line_bytes;
    if (disjoint && life->first >= 0) {
        life->first = 0;
        life->last = INT_MAX;
    }
    if (!spread && blocks > 1) diag(context->sink, buf->loc, T_TILE_SHARED, buf->name, (long long)blocks);
}

bool pass_swizzle_allocation(PassContext *context, Func *kernel) {
    Lifetimes lifetimes = {.arena = context->arena, .members = 1};
    SharedAccessVec accesses = {0};
    bool changed = false;
    live_block(&lifetimes, &kernel->body);
    shared_accesses(context, kernel, &accesses);
    VEC_EACH (Life, life, &lifetimes.items) {
        Buf *buf = life->buf;
        if (!buf->layout && !buf->lowered) {
            buf->layout = dictated_layout(context, kernel, buf);
            if (!buf->layout) buf->layout = choose_layout(context, &accesses, buf);
            buf->stage_dims = buf->rank - buf->layout->rank_in;
            changed = true;
        }
        measure(context, kernel, life);
    }
    for (Life *life; (life = largest_unplaced(&lifetimes)); changed = true) place(&lifetimes, life);
    if (changed) report_conflicts(context, kernel, &accesses);
    check_size(context, kernel, &lifetimes);
    return changed;
}
