// swizzle-allocation: the layout of every shared buffer, then its offset.
//
// Layout. TMA and wgmma dictate the layout of the buffers that they write or read, in panels (tma.h). The accesses of
// the others are known: the element of each lane of a warp (shared_access.h), and with them what a layout costs
// (shared_choice.h).
//
// Offset. Buffers with disjoint live ranges (shared_lifetimes.h) may share bytes: each gets the lowest free aligned offset,
// largest buffer first. insert-sync, the next pass, orders threads where bytes are shared.
//
// Leading dims beyond the last two (slots) pass through the layout.
#include "ir/build.h"
#include "passes/analysis/shared_access.h"
#include "passes/analysis/util.h"
#include "passes/layout/shared_choice.h"
#include "passes/layout/shared_lifetimes.h"
#include "passes/pass.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "support/map.h"
#include "support/numbers.h"
#include <limits.h>
#include <stdlib.h>

// ---- layouts ----

// Panels, if TMA or wgmma uses the buffer; none for a vector.
typedef struct Touch {
    bool in_rows;        // by copies without panels
    bool multiplied;     // by wgmma
    const char *order;   // of k; NULL: natural
} Touch;

static Touch *touch_of(PassContext *context, Map *touches, const Buf *buf) {
    Touch *touch = map_get(touches, buf);
    if (!touch) map_put(touches, buf, touch = NEW(context->arena, Touch));
    return touch;
}

// A wgmma gemm may have k of its right operand in another order.
static void touch_in_order(PassContext *context, const Func *kernel, const Stmt *stmt, Map *touches) {
    GemmOp gemm;
    WgmmaInfo info;
    if (!via_is(stmt, VIA_WGMMA) || !match_gemm(stmt, &gemm) ||
        wgmma_problem(context->arena, context->target, stmt, &info))
        return;
    if (wgmma_pairs(context->arena, kernel, stmt, &info))
        touch_of(context, touches, gemm.b->buf)->order = info.k_paired;
}

// Of the buffers that TMA and wgmma use.
static Map *find_touches(PassContext *context, Func *kernel) {
    Map *touches = map_new(context->arena);
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (!by_bulk(stmt) && !via_is(stmt, VIA_TMA) && !stores_staged(stmt) && !via_is(stmt, VIA_WGMMA)) continue;
        const Stmt *copy = stmt->kind == STMT_CALL ? stmt : tma_copy(context->arena, stmt);
        for (int i = 0; copy && i < copy->call.count; i++) {
            const Region *region = call_region(copy, i);
            if (region && region->buf->type != TYPE_MBARRIER) {
                Touch *touch = touch_of(context, touches, region->buf);
                touch->in_rows |= by_bulk(stmt);
                touch->multiplied |= via_is(stmt, VIA_WGMMA);
            }
        }
        touch_in_order(context, kernel, stmt, touches);
    }
    return touches;
}

static const Layout *dictated_layout(PassContext *context, const Map *touches, const Buf *buf) {
    const Touch *touch = map_get(touches, buf);
    if (!touch) return NULL;
    int rank = buf->rank - buf->stage_dims;
    EXPECT(context->failure, !touch->in_rows || rank <= 2, "'%s' of rank %d is moved in rows", buf->name, rank);
    int64_t extents[2] = {buf_extent(buf, buf->rank - rank), buf_extent(buf, buf->rank - 1)};
    if (touch->in_rows) return layout_row_major(context->arena, rank, extents);
    return touch->order ? tma_layout_ordered(context->arena, buf, touch->order) : tma_layout(context->arena, buf);
}

// A layout that the source gives to an operand of wgmma is the one that it asks for, maybe in another form; its
// descriptors go by the coordinates of tma_layout.
static bool write_dictated(PassContext *context, const Map *touches, Buf *buf) {
    const Touch *touch = map_get(touches, buf);
    const Layout *asked = touch && touch->multiplied ? dictated_layout(context, touches, buf) : NULL;
    if (!asked || layout_equal(asked, buf->layout)) return false;
    buf->layout = asked;
    return true;
}

// Alignment of the buffer in bytes.
static int64_t alignment_of(PassContext *context, const Map *touches, const Buf *buf) {
    int64_t period = buf->layout ? layout_period(buf->layout) : 1;
    int64_t needed = period > 1              ? period
                     : map_has(touches, buf) ? tma_facts.shared_align
                                             : context->target->vector_bytes;
    return buf->align > needed ? buf->align : needed;
}

// One of the source is of addresses. (That of a layout is of places.)
static void check_align(PassContext *context, const Buf *buf) {
    int most = tma_facts.spans[0] * tma_facts.swizzle_rows;   // to which shared memory begins
    if (buf->align <= most) return;
    diag(context->sink, buf->loc, T_ATTRIBUTE, attr_name(ATTR_ALIGN),
         arena_printf(context->arena, "a power of two up to %d", most));
}

// Of a place that the source gives, where vectors or TMA access it.
static void check_offset(PassContext *context, const Map *touches, const AccessVec *accesses, const Buf *buf) {
    int64_t needed = map_has(touches, buf) ? alignment_of(context, touches, buf) : 1;
    for (int i = 0; accesses && i < accesses->count; i++) {
        int64_t bytes = (int64_t)accesses->items[i]->vector * type_bytes(buf->type);
        if (bytes > needed) needed = bytes;
    }
    if (buf->offset % needed == 0) return;
    const char *why = arena_printf(context->arena, "has an @offset that is no multiple of %lld", (long long)needed);
    diag(context->sink, buf->loc, T_IR_ALLOCATION, buf->name, why);
}

// Accesses by buffer.
static Map *group_accesses(PassContext *context, const SharedAccessVec *accesses) {
    Map *groups = map_new(context->arena);
    VEC_EACH (const SharedAccess, access, accesses) {
        AccessVec *group = map_get(groups, access->buf);
        if (!group) map_put(groups, access->buf, group = NEW(context->arena, AccessVec));
        vec_push(context->arena, group, access);
    }
    return groups;
}

// ---- offsets ----

static bool meet(const SharedLifetime *a, const SharedLifetime *b) {
    return a->first >= 0 && b->first >= 0 && a->first <= b->last && b->first <= a->last;
}

typedef VEC(SharedLifetime *) SharedLifetimeVec;

// The lowest offset that is free; `placed` is in the order of offsets.
static int64_t free_offset(const SharedLifetimeVec *placed, const SharedLifetime *life) {
    int64_t offset = 0;
    VEC_EACH_PTR (SharedLifetime, other, placed) {
        if (!meet(life, other) || other->buf->offset + other->bytes <= offset) continue;
        if (other->buf->offset >= offset + life->bytes) break;
        offset = round_up(other->buf->offset + other->bytes, life->align);
    }
    return offset;
}

static void keep_placed(Arena *arena, SharedLifetimeVec *placed, SharedLifetime *life) {
    int at = placed->count;
    vec_push(arena, placed, life);
    for (; at > 0 && placed->items[at - 1]->buf->offset > life->buf->offset; at--)
        placed->items[at] = placed->items[at - 1];
    placed->items[at] = life;
}

// The largest first; of equal ones that which is declared first.
static int by_size(const void *a, const void *b) {
    const SharedLifetime *one = *(SharedLifetime *const *)a, *other = *(SharedLifetime *const *)b;
    if (one->bytes != other->bytes) return one->bytes > other->bytes ? -1 : 1;
    return one < other ? -1 : one > other;
}

// True: some had no place yet.
static bool place_all(SharedLifetimes *lifetimes) {
    SharedLifetimeVec placed = {0}, unplaced = {0};
    VEC_EACH (SharedLifetime, life, &lifetimes->items) {
        if (life->buf->offset < 0) vec_push(lifetimes->arena, &unplaced, life);
        else keep_placed(lifetimes->arena, &placed, life);
    }
    if (unplaced.count > 1) qsort(unplaced.items, (size_t)unplaced.count, sizeof(SharedLifetime *), by_size);
    VEC_EACH_PTR (SharedLifetime, life, &unplaced) {
        life->buf->offset = free_offset(&placed, life);
        life->buf->align = (int)life->align;
        keep_placed(lifetimes->arena, &placed, life);
    }
    return unplaced.count > 0;
}

static void check_size(PassContext *context, const Func *kernel, const SharedLifetimes *lifetimes) {
    int64_t total = 0;
    VEC_EACH (const SharedLifetime, life, &lifetimes->items) {
        int64_t end = life->buf->offset + life->bytes;
        total = end > total ? end : total;
    }
    if (total <= context->target->shared_block) return;
    Diag *d = diag(context->sink, kernel->loc, T_SHARED_TOO_LARGE, kernel->name, (long long)total,
                   context->target->name, (long long)context->target->shared_block);
    VEC_EACH (const SharedLifetime, life, &lifetimes->items)
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
        AccessCost cost = access_cost(context->target, access, access->buf->layout, INT64_MAX);
        int64_t before = attr_int(access->stmt->attrs, ATTR_CONFLICTS, 0);
        attr_set_int(context->arena, &access->stmt->attrs, ATTR_CONFLICTS, before + cost.conflicts);
        if (cost.conflicts > 0)
            REMARK_NOTE(context, access->stmt->loc, T_SHARED_CONFLICTS, access->buf->name,
                        "%lld extra wavefronts for a warp in %lld accesses of %d bytes a lane, with layout %s",
                        (long long)cost.conflicts, (long long)cost.accesses, cost.width * type_bytes(access->buf->type),
                        layout_text(context->arena, access->buf->layout));
    }
}

// Size, alignment and other inputs of the placement.
static void measure(PassContext *context, const Func *kernel, const Map *touches, SharedLifetime *life) {
    const Buf *buf = life->buf;
    int64_t blocks = grid_blocks(func_grid(kernel));
    bool spread = attr_get(buf->attrs, ATTR_CTAS) != NULL;
    life->align = alignment_of(context, touches, buf);
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
    SharedLifetimes lifetimes = shared_lifetimes(context->arena, kernel);
    SharedAccessVec accesses = {0};
    bool changed = false;
    shared_accesses(context, kernel, &accesses);
    const Map *touches = find_touches(context, kernel), *groups = group_accesses(context, &accesses);
    VEC_EACH (SharedLifetime, life, &lifetimes.items) {
        Buf *buf = life->buf;
        if (buf->layout && !buf->lowered) changed |= write_dictated(context, touches, buf);
        if (!buf->layout && !buf->lowered) {
            buf->layout = dictated_layout(context, touches, buf);
            if (!buf->layout) buf->layout = choose_shared_layout(context, map_get(groups, buf), buf);
            buf->stage_dims = buf->rank - buf->layout->rank_in;
            changed = true;
        }
        if (buf->offset < 0) check_align(context, buf);
        measure(context, kernel, touches, life);
        if (buf->offset > 0) check_offset(context, touches, map_get(groups, buf), buf);
    }
    changed |= place_all(&lifetimes);
    if (changed) report_conflicts(context, kernel, &accesses);
    check_size(context, kernel, &lifetimes);
    return changed;
}
