// layout-inference: how every fragment is spread over the threads, and which thread does which iteration.
//
// Items are the tile ops of a kernel: loops (parallel, copy, fill, transpose), reductions and gemms. Each has a map,
// the thread-value layout of its iteration space; each fragment has a thread-value layout. They constrain one another:
//
//     gemm       dictates its accumulator (and its a operand in registers): the instruction's own register layout,
//                repeated over warps                                                                      (strict)
//     loop       an access f[i, j] by loop iterators means layout(f) == the loop's map projected onto (i, j)
//     reduction  layout(dst) == layout(src) without the axis: threads along it all get the result        (common)
//     scan       layout(dst) == layout(src)                                                              (common)
//
// The three phases are TileLang's: strict (what instructions dictate), common (propagate to a fixpoint), free (a
// fragment nobody dictates gets a blocked layout from the loop that moves most of its elements, with the widest aligned
// accesses; then propagate again). Where an item needs a fragment in another layout than it has, a second fragment and
// a copy are inserted: stage-through-shared sends that copy through shared memory. Items are collected in
// layout_items.c.
//
//     softmax:  copy(x[row, :], v)        free: 8 bf16 per thread and access       v: 128:8@0 | (8,4):(1@0,1024@0)
//               reduce_max(v, top)        common: top is in every thread           top: 128:0 | 1
//               parallel (j) ... top[0]   common: the loop does what v has
//
// What it cannot do: an index into a fragment that is neither an iterator nor a constant (that is an error: go through
// shared memory), and iteration spaces with run-time extents, which it first cuts into chunks of constant size.
#include "passes/layout/layout_inference.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analyses.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

static void set_layout(Inference *inference, Buf *buf, const Layout *layout) {
    if (buf->layout) return;
    buf->layout = layout;
    inference->changed = true;
}

// ---- strict: what instructions dictate, over how many warps ----

static int find_group(Inference *inference, int i) {
    while (inference->items.items[i]->group != i) i = inference->items.items[i]->group;
    return i;
}

// Items that touch a common fragment belong together: their rows are split over warps in one way.
static void join_groups(Inference *inference) {
    Map *first = map_new(inference->arena);
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        for (int u = 0; u < item->uses.count; u++) {
            Item *other = map_get(first, item->uses.items[u].buf);
            if (!other) {
                map_put(first, item->uses.items[u].buf, item);
                continue;
            }
            int root = find_group(inference, i), other_root = find_group(inference, other->group);
            inference->items.items[root]->group = other_root;
        }
    }
}

static bool reduces_rows(const Item *item) {
    return item->kind == ITEM_REDUCE && item->stmt->call.args[0].region->buf->rank == 2 &&
           expr_is_int(item->stmt->call.args[2].value, 1);
}

static bool has_register_operand(const Item *item) {
    return item->kind == ITEM_GEMM && item->stmt->call.args[0].region->buf->scope == SCOPE_FRAGMENT;
}

// A warp should own whole rows when a row is reduced or when rows feed a further gemm from registers.
static bool group_wants_rows(Inference *inference, int root) {
    for (int i = 0; i < inference->items.count; i++)
        if (find_group(inference, i) == root &&
            (reduces_rows(inference->items.items[i]) || has_register_operand(inference->items.items[i])))
            return true;
    return false;
}

// Splits of the warps over [m, n]: most warps busy, then whole rows as far as wanted, then the least operand traffic.
static bool choose_warps(Item *item, int64_t warps, bool rows) {
    int64_t best = INT64_MAX;
    for (int64_t wm = 1; wm <= warps; wm++) {
        for (int64_t wn = 1; wm * wn <= warps; wn++) {
            if (warps % (wm * wn) != 0) continue;
            if (item->m % (wm * item->mma->m) != 0 || item->n % (wn * item->mma->n) != 0) continue;
            int64_t unused = warps / (wm * wn), traffic = item->m / wm + item->n / wn;
            int64_t cost = unused * 1000000 + (rows ? wn * 1000 + traffic : traffic * 2 + (item->n / wn % 16 != 0));
            if (cost >= best) continue;
            best = cost;
            item->warps_m = wm;
            item->warps_n = wn;
        }
    }
    return best != INT64_MAX;
}

static void infer_mma(Inference *inference, Item *item, bool rows) {
    int64_t warps = inference->threads / inference->context->target->warp_lanes;
    const Attr *fixed = attr_get(item->stmt->attrs, ATTR_WARPS);
    if (fixed) {
        item->warps_m = fixed->args[0].integer;
        item->warps_n = fixed->args[1].integer;
    } else if (!choose_warps(item, warps, rows)) {
        via_set(inference->arena, item->stmt, VIA_FMA);
        item->mma = NULL;
        return;
    }
    item->map = fragment_accumulator(inference->arena, item->mma, item->m, item->n, item->warps_m, item->warps_n,
                                     inference->threads);
    set_layout(inference, item->stmt->call.args[2].region->buf, item->map);
    if (has_register_operand(item) && item->warps_n == 1)
        set_layout(
            inference, item->stmt->call.args[0].region->buf,
            fragment_operand_a(inference->arena, item->mma, item->m, item->k, item->warps_m, inference->threads));
}

static int64_t warpgroups(const Inference *inference) {
    return inference->threads / target_warpgroup(inference->context->target);
}

static const Layout *wgmma_operand(const Inference *inference, const Item *item) {
    bool paired = wgmma_pairs(inference->arena, inference->kernel, item->stmt, &item->wgmma);
    return (paired ? fragment_wgmma_paired : fragment_wgmma_a)(inference->arena, &item->wgmma, item->m, item->k,
                                                               warpgroups(inference), inference->threads);
}

static void infer_wgmma(Inference *inference, Item *item) {
    item->map =
        fragment_wgmma(inference->arena, &item->wgmma, item->m, item->n, warpgroups(inference), inference->threads);
    set_layout(inference, item->stmt->call.args[2].region->buf, item->map);
    if (has_register_operand(item))
        set_layout(inference, item->stmt->call.args[0].region->buf, wgmma_operand(inference, item));
}

// Without tensor cores each thread computes a small block: four columns (one vector) by some rows.
static void infer_fma(Inference *inference, Item *item) {
    int64_t shape[] = {item->m, item->n};
    int64_t vector = item->n % 4 == 0 ? 4 : 1;
    Buf *acc = item->stmt->call.args[2].region->buf;
    set_layout(inference, acc, tv_blocked(inference->arena, 2, shape, inference->threads, 1, vector, 0));
    item->map = acc->layout;
}

static void infer_strict(Inference *inference) {
    join_groups(inference);
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if (item->kind != ITEM_GEMM) continue;
        if (item->mma) infer_mma(inference, item, group_wants_rows(inference, find_group(inference, i)));
        else if (item->is_wgmma) infer_wgmma(inference, item);
        if (!item->map) infer_fma(inference, item);
    }
}

// ---- common: propagation ----

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

static const Layout *layout_for_use(Inference *inference, const Item *item, const FragmentUse *use) {
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

// Rows that are reduced or scanned share the threads evenly, in whole warps or in parts of one that read half a line:
// so a row's parts meet by few shuffles, and through shared memory only where the block has fewer rows than warps.
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

// ---- conversions ----
//
// Conversions: where an item needs a fragment in another layout than it has, a second fragment, copied from and to the
// first one around the item.

static Block *conversions(Inference *inference, Map *map, Stmt *stmt) {
    Block *block = map_get(map, stmt);
    if (!block) map_put(map, stmt, block = NEW(inference->arena, Block));
    return block;
}

// Within the threads it is a loop like others; else stage-through-shared replaces it.
static Stmt *whole_copy(Arena *arena, Buf *from, Buf *to) {
    Arg args[] = {arg_region(region_whole(arena, from)), arg_region(region_whole(arena, to))};
    Stmt *copy = s_call(arena, OP_COPY, 2, args);
    if (fragment_same_thread(arena, to->layout, from->layout, e_int(arena, 0)))
        attr_set_text(arena, &copy->attrs, ATTR_MAP, layout_text(arena, to->layout));
    return copy;
}

// A second fragment in the layout that the item needs, copied from and to the first one around it.
static void convert(Inference *inference, Item *item, Buf *buf, const Layout *required, bool reads, bool writes) {
    Arena *arena = inference->arena;
    Buf *other = buf_new(arena, buf->name, SCOPE_FRAGMENT, buf->type, buf->rank, buf->shape, item->stmt->loc);
    other->layout = required;
    Block *before = conversions(inference, inference->before, item->stmt);
    block_push(arena, before, s_decl(arena, other));
    if (reads) block_push(arena, before, whole_copy(arena, buf, other));
    if (writes) block_push(arena, conversions(inference, inference->after, item->stmt), whole_copy(arena, other, buf));
    Subst *subst = subst_new(arena);
    subst_buf(subst, buf, other);
    Block one = {.items = &item->stmt, .count = 1, .capacity = 1};
    if (item->stmt->kind == STMT_IF) item->stmt->if_.condition = subst_expr(subst, item->stmt->if_.condition);
    else subst_block(subst, &one);
    inference->changed = true;
    if (inference->context->remarks)
        diag(inference->context->sink, item->stmt->loc, T_LAYOUT_CONVERSION, buf->name, layout_text(arena, buf->layout),
             layout_text(arena, required));
}

// Some layout in which every thread holds every element: the buffer's own if it is one.
static const Layout *replicated(Inference *inference, const Buf *buf) {
    int64_t shape[LAYOUT_MAX_RANK];
    if (tv_replicas(buf->layout) == tv_threads(buf->layout)) return buf->layout;
    for (int d = 0; d < buf->rank; d++) shape[d] = buf_extent(buf, d);
    return tv_replicated(inference->arena, buf->rank, shape, inference->threads);
}

static const Layout *reduced_layout(Inference *inference, const Item *item) {
    const Arg *args = item->stmt->call.args;
    const Buf *src = args[REDUCE_SRC].region->buf, *dst = args[REDUCE_DST].region->buf;
    const Layout *result = reduce_result(inference->arena, item->stmt, item->map);
    int axis = reduce_op_axis(item->stmt);
    if (!result)
        diag(inference->context->sink, item->stmt->loc, T_REDUCE_PARTIALS, (long long)buf_extent(dst, axis),
             (long long)tv_threads_along(item->map, axis), axis, src->name);
    return result ? result : dst->layout;
}

static const Layout *required_layout(Inference *inference, const Item *item, const FragmentUse *use) {
    Arena *arena = inference->arena;
    const Buf *buf = use->buf;
    if (item->kind == ITEM_LOOP) return layout_for_use(inference, item, use);
    if (item->kind == ITEM_REDUCE) return use->is_store ? reduced_layout(inference, item) : item->map;
    if (item->kind == ITEM_SCAN) return item->map;
    if (item->kind == ITEM_SCALAR) return replicated(inference, buf);
    if (use->is_store) return item->map;
    if (item->is_wgmma) return wgmma_operand(inference, item);
    if (!item->mma || item->warps_n != 1) return buf->layout;   // stage-through-shared takes it through shared memory
    return fragment_operand_a(arena, item->mma, item->m, item->k, item->warps_m, inference->threads);
}

static bool is_conversion(const Item *item) {
    return item->kind == ITEM_LOOP && item->stmt->kind == STMT_CALL && item->stmt->call.op == OP_COPY &&
           item->uses.count == 2 && item->stmt->call.args[0].region->buf->scope == SCOPE_FRAGMENT &&
           item->stmt->call.args[1].region->buf->scope == SCOPE_FRAGMENT &&
           region_is_whole(item->stmt->call.args[0].region) && region_is_whole(item->stmt->call.args[1].region);
}

// What the item writes depends on what was there.
static bool updates(const Item *item) {
    if (item->kind == ITEM_REDUCE) {
        const Expr *accumulate = item->stmt->call.args[3].value;
        return accumulate && expr_is_int(accumulate, 1);
    }
    return item->kind != ITEM_LOOP && item->kind != ITEM_SCAN;
}

static void convert_where_layouts_meet(Inference *inference) {
    for (int i = 0; i < inference->items.count; i++) {
        Item *item = inference->items.items[i];
        if ((!item->map && item->kind != ITEM_SCALAR) || is_conversion(item)) continue;
        for (int u = 0; u < item->uses.count; u++) {
            const FragmentUse *use = &item->uses.items[u];
            bool reads = false, writes = false, first = true, written = false;   // written: nothing older is read
            for (int v = 0; v < item->uses.count; v++) {
                const FragmentUse *other = &item->uses.items[v];
                if (other->buf != use->buf) continue;
                first &= v >= u;
                written |= item->kind == ITEM_LOOP && other->is_store && !other->keeps;
                reads |= !written && (!other->is_store || other->keeps || updates(item));
                writes |= other->is_store;
            }
            const Layout *required = required_layout(inference, item, use);
            if (!first || layout_equal(required, use->buf->layout)) continue;
            convert(inference, item, use->buf, required, reads, writes);
        }
    }
}

static void push_with_conversions(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Inference *inference = mapper->user;
    Block *before = map_get(inference->before, stmt), *after = map_get(inference->after, stmt);
    if (before) block_append(mapper->arena, out, before);
    block_push(mapper->arena, out, stmt);
    if (after) block_append(mapper->arena, out, after);
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
        Expr *at = e_add(arena, e_times(arena, e_var(arena, chunk), size), e_var(arena, inner));
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

// Vectors must lie along the map's first value digit; a map that came from a fragment may be narrower than the memory
// allows.
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
    bool changed = separate_views(context, kernel);
    const ThreadScopeVec *scopes = kernel_scopes(context, kernel);
    for (int i = scopes->count - 1; i >= 0; i--) changed |= infer_scope(context, kernel, &scopes->items[i]);
    return changed;
}
