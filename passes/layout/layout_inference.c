// layout-inference: how every fragment is spread over the threads, and which thread does which iteration.
//
// Items are the tile ops of a kernel: loops (parallel, copy, fill, transpose), reductions and gemms. Each has a map, the
// thread-value layout of its iteration space; each fragment has a thread-value layout. They constrain one another:
//
//     gemm       dictates its accumulator (and its a operand in registers): the instruction's own register layout,
//                repeated over warps                                                                      (strict)
//     loop       an access f[i, j] by loop iterators means layout(f) == the loop's map projected onto (i, j)
//     reduction  layout(dst) == layout(src) without the axis: threads along it all get the result        (common)
//     scan       layout(dst) == layout(src)                                                              (common)
//
// The three phases are TileLang's: strict (what instructions dictate: layout_gemms.c), common (propagate to a fixpoint), free (a fragment
// nobody dictates gets a blocked layout from the loop that moves most of its elements, with the widest aligned accesses;
// then propagate again). Where an item needs a fragment in another layout than it has, a second fragment and a copy are
// inserted (layout_conversions.c): stage-through-shared sends that copy through shared memory. Items are collected in layout_items.c.
//
//     softmax:  copy(x[row, :], v)        free: 8 bf16 per thread and access       v: 128:8@0 | (8,4):(1@0,1024@0)
//               reduce_max(v, top)        common: top is in every thread           top: 128:0 | 1
//               parallel (j) ... top[0]   common: the loop does what v has
//
// What it cannot do: an index into a fragment that is neither an iterator nor a constant (that is an error: go through
// shared memory), and iteration spaces with run-time extents, which it first cuts into chunks of constant size.
#include "passes/layout/layout_inference.h"
#include "ir/build.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/layout/fragment_views.h"
#include "passes/lower/lower.h"

// ---- common: propagation ----

void set_layout(Inference *inference, Buf *buf, const Layout *layout) {
    if (buf->layout) return;
    buf->layout = layout;
    inference->changed = true;
}

// The map of a loop from the layout of a fragment that it accesses with all its iterators.
static const Layout *map_from_use(Inference *inference, const Item *item, const FragmentUse *use) {
    int dims[LAYOUT_MAX_RANK];
    if (!use->buf->layout) return NULL;
    for (int i = 0; i < item->loop.rank; i++) {
        dims[i] = -1;
        for (int d = 0; d < use->rank; d++)
            if (use->dims[d] == i) dims[i] = d;
        if (dims[i] < 0 && item->loop.extents[i] != 1) return NULL;
    }
    return tv_project(inference->arena, use->buf->layout, item->loop.rank, dims, NULL);
}

const Layout *layout_for_use(Inference *inference, const Item *item, const FragmentUse *use) {
    int64_t held[LAYOUT_MAX_RANK];
    for (int d = 0; d < use->rank; d++) held[d] = buf_extent(use->buf, d);
    return tv_project(inference->arena, item->map, use->rank, use->dims, held);
}

static bool covers(const Layout *layout, const Buf *buf) {
    for (int d = 0; d < buf->rank; d++)
        if (layout->out_shape[d] < buf_extent(buf, d)) return false;
    return true;
}

static bool set_map(Item *item, const Layout *map) {
    if (!map || item->map) return false;
    item->map = map;
    return true;
}

static bool propagate_loop(Inference *inference, Item *item) {
    bool changed = false;
    for (int stores = 1; stores >= 0 && !item->map; stores--)
        for (int u = 0; u < item->uses.count && !item->map; u++)
            if (item->uses.items[u].is_store == stores)
                changed |= set_map(item, map_from_use(inference, item, &item->uses.items[u]));
    if (!item->map) return changed;
    for (int u = 0; u < item->uses.count; u++) {
        FragmentUse *use = &item->uses.items[u];
        if (use->buf->layout) continue;
        const Layout *required = layout_for_use(inference, item, use);
        if (!covers(required, use->buf)) continue;
        set_layout(inference, use->buf, required);
        changed = true;
    }
    return changed;
}

static bool propagate_reduce(Inference *inference, Item *item) {
    Buf *src = item->stmt->call.args[0].region->buf, *dst = item->stmt->call.args[1].region->buf;
    if (src->scope != SCOPE_FRAGMENT || !src->layout) return false;
    bool changed = set_map(item, src->layout);
    if (dst->scope != SCOPE_FRAGMENT || dst->layout) return changed;
    const Layout *result = reduce_result(inference->arena, item->stmt, src->layout);
    if (result) set_layout(inference, dst, result);
    return result != NULL || changed;
}

static bool propagate_scan(Inference *inference, Item *item) {
    bool changed = false;
    for (int u = 0; u < item->uses.count; u++) changed |= set_map(item, item->uses.items[u].buf->layout);
    for (int u = 0; u < item->uses.count && item->map; u++) {
        changed |= !item->uses.items[u].buf->layout;
        set_layout(inference, item->uses.items[u].buf, item->map);
    }
    return changed;
}

static void propagate(Inference *inference) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < inference->items.count; i++) {
            Item *item = inference->items.items[i];
            if (item->kind == ITEM_LOOP) changed |= propagate_loop(inference, item);
            if (item->kind == ITEM_REDUCE) changed |= propagate_reduce(inference, item);
            if (item->kind == ITEM_SCAN) changed |= propagate_scan(inference, item);
        }
    }
}

// ---- free ----

static int axis_of(const Stmt *stmt) {
    return is_scan(stmt) ? scan_axis(stmt) : reduce_op_axis(stmt);
}

// Some reduction, or scan, of the loop's group runs along the loop's fast dim.
static bool runs_along_fast(Inference *inference, const Item *item, ItemKind kind) {
    int root = find_group(inference, item->group);
    for (int i = 0; i < inference->items.count; i++) {
        const Item *other = inference->items.items[i];
        if (other->kind == kind && find_group(inference, i) == root &&
            other->stmt->call.args[0].region->buf->rank == item->loop.rank && axis_of(other->stmt) == item->fast)
            return true;
    }
    return false;
}

// Rows that are reduced or scanned share the threads evenly, in whole warps or in parts of one that read half a line: so a row's
// parts meet by few shuffles, and through shared memory only where the block has fewer rows than warps.
static int64_t fast_threads(Inference *inference, const Item *item) {
    bool shares = runs_along_fast(inference, item, ITEM_REDUCE) || runs_along_fast(inference, item, ITEM_SCAN);
    if (item->fast_threads > 0 || !shares) return item->fast_threads;
    int64_t rows = 1, lanes = inference->context->target->warp_lanes;
    for (int d = 0; d < item->loop.rank; d++) rows *= d == item->fast ? 1 : item->loop.extents[d];
    int64_t each = inference->threads / rows, few = item->line_threads / 2 < lanes ? item->line_threads / 2 : lanes;
    if (each >= lanes) return each / lanes * lanes;
    while (few == 0 || 2 * few <= each) few += few + !few;
    return few;
}

// Scanned rows are the warps' in stretches, so that warps exchange one total each.
static const Layout *blocked_map(Inference *inference, const Item *item) {
    const Layout *blocked = tv_blocked(inference->arena, item->loop.rank, item->loop.extents, inference->threads,
                                       item->fast, item->vector, fast_threads(inference, item));
    if (!runs_along_fast(inference, item, ITEM_SCAN)) return blocked;
    return tv_in_stretches(inference->arena, blocked, item->fast, inference->context->target->warp_lanes);
}

static bool has_unknown_fragment(const Item *item) {
    for (int u = 0; u < item->uses.count; u++)
        if (!item->uses.items[u].buf->layout) return true;
    return false;
}

static int64_t space_size(const Item *item) {
    int64_t size = 1;
    for (int d = 0; d < item->loop.rank; d++) size *= item->loop.extents[d];
    return size;
}

// The loop without a map that moves most elements of unknown fragments, memory accesses first.
static Item *choose_root(Inference *inference) {
    Item *best = NULL;
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->kind != ITEM_LOOP || item->map || !has_unknown_fragment(item)) continue;
        if (!best || (item->has_memory != best->has_memory ? item->has_memory : space_size(item) > space_size(best)))
            best = item;
    }
    return best;
}

static bool give_some_fragment_a_layout(Inference *inference) {
    for (int i = 0; i < inference->fragments.count; i++) {
        Buf *buf = inference->fragments.items[i];
        if (buf->layout) continue;
        int64_t shape[LAYOUT_MAX_RANK];
        for (int d = 0; d < buf->rank; d++) shape[d] = buf_extent(buf, d);
        set_layout(inference, buf,
                   tv_blocked(inference->arena, buf->rank, shape, inference->threads, buf->rank - 1, 1, 0));
        return true;
    }
    return false;
}

static void infer_free(Inference *inference) {
    for (;;) {
        Item *root = choose_root(inference);
        if (root) root->map = blocked_map(inference, root);
        else if (!give_some_fragment_a_layout(inference)) break;
        propagate(inference);
    }
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->kind == ITEM_LOOP && !item->map) item->map = blocked_map(inference, item);
    }
}

// ---- run-time extents ----

// parallel (i in n) body  =>  for (c in ceildiv(n, T)) parallel (i' in T) if (c * T + i' < n) body
static void chunk_dynamic_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Inference *inference = mapper->user;
    Arena *arena = mapper->arena;
    block_push(arena, out, stmt);
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PARALLEL) return;
    for (int d = 0; d < stmt->loop.count; d++) {
        Iter *iter = &stmt->loop.iters[d];
        int64_t constant;
        Expr *count = e_sub(arena, iter->end, iter->begin);
        if (expr_const(count, &constant)) continue;
        int64_t size = d == stmt->loop.count - 1 ? inference->threads : 1;
        Var *chunk = var_new(arena, "chunk", VAR_ITER, TYPE_I64, iter->var->loc);
        Var *inner = var_new(arena, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
        Expr *steps = e_call2(arena, OP_CEILDIV, count, iter->step);
        Stmt *outer =
            s_for(arena, LOOP_SERIAL, chunk, e_int(arena, 0), e_call2(arena, OP_CEILDIV, steps, e_int(arena, size)));
        Expr *at = e_add(arena, e_mul(arena, e_var(arena, chunk), e_int(arena, size)), e_var(arena, inner));
        Subst *subst = subst_new(arena);
        subst_var(subst, iter->var, e_add(arena, iter->begin, e_mul(arena, at, iter->step)));
        subst_block(subst, &stmt->loop.body);
        Stmt *guard = s_if(arena, e_lt(arena, at, steps));
        guard->if_.then = stmt->loop.body;
        stmt->loop.body = (Block){0};
        block_push(arena, &stmt->loop.body, guard);
        *iter = (Iter){.var = inner, .begin = e_int(arena, 0), .end = e_int(arena, size), .step = e_int(arena, 1)};
        block_push(arena, &outer->loop.body, vec_last(out));
        vec_last(out) = outer;
        inference->changed = true;
    }
}

// ---- the pass ----

// A fragment's layout that was written by hand for another number of threads.
static void check_threads(Inference *inference) {
    for (int i = 0; i < inference->fragments.count; i++) {
        const Buf *buf = inference->fragments.items[i];
        if (!buf->layout || tv_threads(buf->layout) == inference->threads) continue;
        diag(inference->context->sink, buf->loc, T_FRAGMENT_THREADS, buf->name, (long long)tv_threads(buf->layout),
             (long long)inference->threads);
        inference->failed = true;
    }
}

static void write_decisions(Inference *inference) {
    Arena *arena = inference->arena;
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        Attr **attrs = &item->stmt->attrs;
        if (item->kind == ITEM_GEMM && item->mma) {
            int64_t warps[] = {item->warps_m, item->warps_n};
            attr_set_ints(arena, attrs, ATTR_WARPS, 2, warps);
        }
        if (item->kind == ITEM_GEMM || !item->map || attr_get(*attrs, ATTR_MAP)) continue;
        attr_set_text(arena, attrs, ATTR_MAP, layout_text(arena, item->map));
        if (item->kind == ITEM_LOOP && item->has_memory && item->vector > 1)
            attr_set_int(arena, attrs, ATTR_VECTOR, item->vector);
        inference->changed = true;
    }
}

// Vectors must lie along the map's first value digit; a map that came from a fragment may be narrower than the memory allows.
static void narrow_vectors(Inference *inference) {
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->kind != ITEM_LOOP || !item->map) continue;
        const LayoutInput *values = &item->map->in[TV_VALUE];
        const LayoutMode *first = &values->modes[0];
        int64_t run = values->count > 0 && first->stride == 1 && first->out == item->fast ? first->extent : 1;
        while (item->vector > 1 && run % item->vector != 0) item->vector /= 2;
    }
}

// Where fragments have replicas of what such a loop writes, conversions come around it.
static void drop_replicas(Inference *inference) {
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->unreplicated && item->map) item->map = tv_without_replicas(inference->arena, item->map);
    }
}

static bool infer_scope(PassContext *context, Func *kernel, const ThreadScope *scope) {
    Inference inference = {.context = context, .arena = context->arena, .kernel = kernel, .threads = scope->threads};
    inference.before = map_new(context->arena);
    inference.after = map_new(context->arena);
    StmtMapper chunks = {.arena = context->arena, .stmt = chunk_dynamic_loop, .user = &inference};
    rewrite_block(&chunks, scope->body);
    scope_walk(context->arena, kernel, scope, collect_item, &inference);
    check_threads(&inference);
    if (inference.failed) return inference.changed;
    infer_strict(&inference);
    propagate(&inference);
    infer_free(&inference);
    narrow_vectors(&inference);
    drop_replicas(&inference);
    write_decisions(&inference);
    convert_where_layouts_meet(&inference);
    StmtMapper insert = {.arena = context->arena, .stmt = push_with_conversions, .user = &inference};
    if (map_count(inference.before) > 0) rewrite_block(&insert, scope->body);
    return inference.changed;
}

bool pass_layout_inference(PassContext *context, Func *kernel) {
    ThreadScopeVec scopes = {0};
    bool changed = separate_views(context, kernel);
    thread_scopes(context->arena, kernel, &scopes);
    for (int i = scopes.count - 1; i >= 0; i--) changed |= infer_scope(context, kernel, &scopes.items[i]);
    return changed;
}
