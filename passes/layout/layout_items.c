// Collects the items of layout-inference: the tile ops of a kernel, and the fragments that each reads and writes.
#include "ir/build.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/layout_inference.h"
#include "passes/lower/lower.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "passes/select/tma_simple.h"
#include "support/numbers.h"
#include <string.h>

static void add_fragment(Inference *inference, Buf *buf) {
    if (map_has(inference->is_fragment, buf)) return;
    map_put(inference->is_fragment, buf, buf);
    vec_push(inference->arena, &inference->fragments, buf);
}

static void add_use(Inference *inference, Item *item, Buf *buf, FragmentDigits at, bool is_store) {
    FragmentUse use = {.buf = buf, .at = at, .is_store = is_store};
    EXPECT(inference->context->failure, buf->scope == SCOPE_FRAGMENT, "'%s' is no fragment", buf->name);
    vec_push(inference->arena, &item->uses, use);
    add_fragment(inference, buf);
}

// An operand of an op on whole tiles.
static void add_operand(Inference *inference, Item *item, const Region *region, bool is_store) {
    if (region->buf->scope == SCOPE_FRAGMENT)
        add_use(inference, item, region->buf, whole_digits(region->buf, region->buf->rank), is_store);
}

static bool stores_all(const TileLoop *loop, const TileAccess *access, const FragmentDigits *at) {
    if (access->conditional || access->condition) return false;
    for (int k = 0; k < at->count; k++) {
        int64_t extent = at->items[k].iterator < 0 ? 1 : loop->extents[at->items[k].iterator];
        if (extent < at->items[k].extent) return false;
    }
    return true;
}

// Unconditional, at constants in some dims and at all elements of the others. The place, as a number among the
// constants.
static bool stores_at_constants(const TileLoop *loop, const TileAccess *access, int64_t *place) {
    FragmentDigits at;
    *place = 0;
    if (!access->is_store || access->conditional || access->condition ||
        !fragment_digits(loop, access->buf, access->count, access->indices, &at))
        return false;
    for (int k = 0; k < at.count; k++) {
        const FragmentDigit *digit = &at.items[k];
        if (digit->iterator >= 0 && loop->extents[digit->iterator] < digit->extent) return false;
        if (digit->iterator < 0) *place = *place * digit->extent + digit->value;
    }
    return true;
}

// The stores at constants together leave no element unchanged, and nothing reads the fragment before: `v[i, 0] = ..;
// v[i, 1] = ..;`. (one_view: they are at constants in the same dims.)
static bool stores_all_constants(Arena *arena, const TileLoop *loop, const TileAccessVec *accesses,
                                 const TileAccess *one) {
    FragmentDigits at;
    int64_t places = 1, found = 0, place;
    if (!fragment_digits(loop, one->buf, one->count, one->indices, &at)) return false;
    for (int k = 0; k < at.count; k++) places *= at.items[k].iterator < 0 ? at.items[k].extent : 1;
    bool *seen = NEW_ARRAY(arena, bool, places);
    VEC_EACH (const TileAccess, access, accesses) {
        if (access->buf != one->buf) continue;
        if (!access->is_store) return false;
        if (!stores_at_constants(loop, access, &place) || place < 0 || place >= places || seen[place]) continue;
        seen[place] = true;
        found++;
    }
    return found == places;
}

// The loop's other accesses of the fragment use the same iterators (separate_views has made that so where possible).
static bool one_view(const Item *item, const TileAccess *access, const FragmentDigits *at) {
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (use->buf == access->buf && !digits_equal(&use->at, at)) return false;
    return true;
}

// By the index that no layout of the fragment follows.
static void report_index(Inference *inference, const Item *item, const TileAccess *access) {
    Span place = access->load && access->load->loc.line ? access->load->loc : item->stmt->loc;
    Span last = inference->reported;
    inference->failed = true;
    if (last.line && place.file == last.file && place.line == last.line && place.column == last.column) return;
    inference->reported = place;
    Diag *d = diag(inference->context->sink, place, T_FRAGMENT_INDEX, buf_source_name(access->buf));
    int64_t choices = 1;
    int dims = 0;
    for (int i = 0; i < access->count; i++) {
        FragmentDigits at;
        Expr *alone[LAYOUT_MAX_RANK];
        for (int d = 0; d < access->count; d++) alone[d] = d == i ? access->indices[d] : e_int(inference->arena, 0);
        if (fragment_digits(&item->loop, access->buf, access->count, alone, &at)) continue;
        diag_note(d, "index %d is %s", i, expr_text(inference->arena, access->indices[i]));
        choices *= buf_extent(access->buf, i);
        dims++;
    }
    if (dims > 1) diag_note(d, "they choose among %lld elements, along %d dims", (long long)choices, dims);
}

static void loop_uses(Inference *inference, Item *item, const TileAccessVec *accesses) {
    VEC_EACH (const TileAccess, access, accesses) {
        FragmentDigits at;
        if (access->buf->scope != SCOPE_FRAGMENT) {
            item->has_memory = true;
        } else if (fragment_digits(&item->loop, access->buf, access->count, access->indices, &at) &&
                   one_view(item, access, &at)) {
            add_use(inference, item, access->buf, at, access->is_store);
            vec_last(&item->uses).keeps = access->is_store && !stores_all(&item->loop, access, &at) &&
                                          !stores_all_constants(inference->arena, &item->loop, accesses, access);
        } else {
            report_index(inference, item, access);
        }
    }
}

// Threads that read the 128-byte line of a warp's access when the other side is transposed: with so few threads along
// the fast dim, the other lanes go to the dim in which the shared side is contiguous.
static int64_t line_threads(const Target *target, const TileAccessVec *accesses, int64_t vector) {
    int widest = 1;
    VEC_EACH (const TileAccess, access, accesses)
        if (access->buf->scope == SCOPE_GLOBAL && type_bytes(access->buf->type) > widest)
            widest = type_bytes(access->buf->type);
    int64_t threads = target->line_bytes / (vector * widest);
    return threads < 1 ? 1 : threads;
}

// The loop updates this memory: an atomic, or both a load and a store.
static bool updates_memory(const TileAccessVec *accesses, const Buf *buf) {
    bool loads = false, stores = false;
    VEC_EACH (const TileAccess, access, accesses) {
        if (access->buf != buf) continue;
        if (access->is_atomic && !access->is_peer) return true;
        stores |= access->is_store;
        loads |= !access->is_store;
    }
    return loads && stores;
}

static bool must_not_be_replicated(const TileAccessVec *accesses) {
    bool registers = false, updates = false;
    VEC_EACH (const TileAccess, access, accesses) {
        if (access->buf->scope == SCOPE_FRAGMENT) registers |= access->is_store;
        else updates |= updates_memory(accesses, access->buf);
    }
    return registers && updates;
}

int64_t space_size(const Item *item) {
    int64_t size = 1;
    for (int d = 0; d < item->loop.rank; d++) size *= item->loop.extents[d];
    return size;
}

// Iterations that have loops of their own take long: where there are few, as many threads as can be have one each.
static int64_t vector_for_threads(const Inference *inference, const Item *item, int64_t vector) {
    bool loops = false;
    if (!is_loop(item->stmt, LOOP_PARALLEL)) return vector;
    FOR_EACH_STMT (stmt, &item->stmt->loop.body) loops |= stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    while (loops && vector > 1 && space_size(item) / vector < inference->threads) vector /= 2;
    return vector;
}

static void collect_loop(Inference *inference, const Facts *facts, Item *item) {
    const TileAccessVec *accesses = &item->accesses;
    tile_accesses(inference->arena, &item->loop, &item->accesses);
    item->fast = loop_fast_dim(&item->loop, accesses);
    int64_t widest = loop_vector(facts, &item->loop, accesses, item->fast, inference->context->target);
    item->vector = vector_for_threads(inference, item, widest);
    item->line_threads = line_threads(inference->context->target, accesses, item->vector);
    if (loop_has_transposed_side(&item->loop, accesses, item->fast)) item->fast_threads = item->line_threads;
    loop_uses(inference, item, accesses);
    item->unreplicated = must_not_be_replicated(accesses);
}

// Why the threads of this scope cannot execute a gemm by these instructions; NULL: they can.
static const char *gemm_problem(const Inference *inference, Item *item) {
    const Target *target = inference->context->target;
    int64_t group = target_warpgroup(target);
    if (item->mma && inference->threads % target->warp_lanes) return "the threads must be a multiple of a warp";
    if (!item->is_wgmma) return NULL;
    if (inference->threads % group) return "the threads must be a multiple of a warpgroup";
    if (inference->threads > group && !inference->role && func_has_roles(inference->kernel))
        return "several warpgroups must be a role";
    const char *why = wgmma_reason(inference->arena, target, item->stmt, &item->wgmma);
    if (why) return why;
    WgmmaSplit split;
    if (!wgmma_split(inference->arena, target, item->stmt, inference->threads / group, &item->wgmma, &split))
        return "the rows must be a multiple of 64 for each warpgroup, or the columns shared equally";
    item->warps_m = split.m, item->warps_n = split.n;
    return NULL;
}

static void collect_gemm(Inference *inference, Item *item) {
    const Target *target = inference->context->target;
    GemmOp gemm = gemm_of(item->stmt);
    item->m = region_extent(gemm.acc, 0);
    item->n = region_extent(gemm.acc, 1);
    item->k = region_extent(gemm.a, 1);
    EXPECT(inference->context->failure, item->m > 0 && item->n > 0 && item->k > 0, "a gemm of %lld x %lld x %lld",
           (long long)item->m, (long long)item->n, (long long)item->k);
    item->mma = gemm_instruction(target, item->stmt);
    item->is_wgmma = via_is(item->stmt, VIA_WGMMA);
    const char *why = gemm_problem(inference, item);
    if (why) {
        diag(inference->context->sink, item->stmt->loc, T_VIA, via_text(via_of(item->stmt)), why);
        inference->failed = true;
        item->is_wgmma = false;
    }
    add_operand(inference, item, gemm.a, false);
    if (gemm.b->buf->scope == SCOPE_FRAGMENT) add_fragment(inference, gemm.b->buf);
    add_operand(inference, item, gemm.acc, true);
}

// A scalar read of the CTA is a broadcast: every thread must hold the element.
typedef struct ScalarUses {
    Inference *inference;
    Item *item;
} ScalarUses;

static bool collect_scalar_load(Visitor *visitor, Expr *expr) {
    const ScalarUses *uses = visitor->user;
    if (expr->kind == EXPR_LOAD && expr->load.buf->scope == SCOPE_FRAGMENT)
        add_use(uses->inference, uses->item, expr->load.buf, (FragmentDigits){0}, false);
    return true;
}

static void collect_scalar(Inference *inference, Item *item) {
    ScalarUses uses = {inference, item};
    Visitor visitor = {.expr = collect_scalar_load, .user = &uses};
    Stmt *stmt = item->stmt;
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        if (stmt->let.value) visit_expr(&visitor, stmt->let.value);
        break;
    case STMT_IF: visit_expr(&visitor, stmt->if_.condition); break;
    case STMT_STORE:
        visit_stmt(&visitor, stmt);
        if (stmt->store.buf->scope == SCOPE_FRAGMENT)
            add_use(inference, item, stmt->store.buf, (FragmentDigits){0}, true);
        break;
    default: break;
    }
}

// (For copies that `select` chose this is already known.)
static void check_tma(Inference *inference, const Stmt *copy) {
    TmaPanels panels;
    const char *why = tma_boxes_problem(copy_tile(copy)->buf, &panels);
    if (why) diag(inference->context->sink, copy->loc, T_VIA, "tma", why);
}

// A map of the source gives each iteration to a thread, and to no two.
static void check_covering(Inference *inference, const Item *item) {
    bool loop = item->kind == ITEM_LOOP;
    const Region *src = loop || item->kind == ITEM_SCALAR ? NULL : ARG(item->stmt, REDUCE_SUM, src).region;
    int rank = loop ? item->loop.rank : src ? region_rank(src) : 0;
    for (int d = 0; d < rank && d < item->map->rank_out; d++) {
        bool twice;
        int64_t at = tv_misses(item->map, d, loop ? item->loop.extents[d] : region_extent(src, d), &twice);
        if (at < 0) continue;
        const char *why = arena_printf(
            inference->arena, twice ? "has iteration %lld along dim %d twice" : "has no iteration %lld along dim %d",
            (long long)at, d);
        diag(inference->context->sink, item->stmt->loc, T_IR_MAP, why);
        inference->failed = true;
        return;
    }
}

void collect_item(void *user, Stmt *stmt, const Facts *facts) {
    Inference *inference = user;
    note_trips(inference->trips, inference->context->target, stmt, facts);
    const Stmt *copy = tma_copy(inference->arena, stmt);
    if (copy && !by_bulk(copy)) check_tma(inference, copy);
    if (copy || moves_by_warps(stmt)) return;   // with addresses and lanes of its own
    Item *item = NEW(inference->arena, Item);
    item->stmt = stmt;
    item->group = inference->items.count;
    if (is_call(stmt, OP_GEMM)) {
        item->kind = ITEM_GEMM;
        collect_gemm(inference, item);
    } else if (is_reduction(stmt) || is_scan(stmt)) {
        item->kind = is_scan(stmt) ? ITEM_SCAN : ITEM_REDUCE;
        add_operand(inference, item, ARG(stmt, REDUCE_SUM, src).region, false);
        add_operand(inference, item, ARG(stmt, REDUCE_SUM, dst).region, true);
    } else if (tile_loop_of(inference->arena, stmt, &item->loop)) {
        item->kind = ITEM_LOOP;
        collect_loop(inference, facts, item);
    } else {
        item->kind = ITEM_SCALAR;
        collect_scalar(inference, item);
        if (item->uses.count == 0) return;
    }
    item->map = stmt_layout(stmt);
    if (item->map) check_covering(inference, item);
    vec_push(inference->arena, &inference->items, item);
    map_put(inference->item_of, stmt, item);
}
