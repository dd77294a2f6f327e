// layout-inference: the distribution of every fragment over the threads, and of iterations over threads.
//
// Items are the tile ops of a kernel: loops (parallel, copy, fill, transpose), reductions and gemms. Each has a map,
// the thread-value layout of its iteration space; each fragment has a thread-value layout. Constraints:
//
//     gemm       fixes its accumulator (and its a operand in registers): the register layout of the instruction,
//                repeated over warps                                                                      (strict)
//     loop       an access f[i, j] by loop iterators means layout(f) == the loop's map projected onto (i, j)
//     reduction  layout(dst) == layout(src) without the axis: threads along it all get the result        (common)
//     scan       layout(dst) == layout(src)                                                              (common)
//
// The three phases are TileLang's: strict (layouts that instructions fix), common (propagate to a fixpoint), free (a
// fragment without a layout gets a blocked one from the loop that moves most of its elements, with the widest aligned
// accesses; then propagate again). If an item needs a fragment in another layout, a second fragment and a copy are
// inserted: stage-through-shared routes that copy through shared memory. layout_items.c collects the items.
//
//     softmax:  copy(x[row, :], v)        free: 8 bf16 per thread and access       v: 128:8@0 | (8,4):(1@0,1024@0)
//               reduce_max(v, top)        common: top is in every thread           top: 128:0 | 1
//               reduce_max(v, top)        common: every thread holds top           top: 128:0 | 1
//               parallel (j) ... top[0]   common: the map of the loop is v's layout
// Limits: an index into a fragment must be an iterator, a constant or a sum of digits (analysis/fragment_digits.c), or its
// dim so short that selects are cheap (register_selects.c; else an error: use shared memory); iteration spaces with
// run-time extents are first cut into chunks of constant size.
#include "passes/layout/layout_inference.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "support/numbers.h"

// False: it already has a layout.
static bool set_layout(Inference *inference, Buf *buf, const Layout *layout) {
    if (!layout || buf->layout) return false;
    buf->layout = layout;
    return inference->changed = true;
}

// ---- strict: layouts of instructions, and the split over warps ----

static int find_group(Inference *inference, int i) {
    Item **items = inference->items.items;
    while (items[i]->group != i) i = items[i]->group = items[items[i]->group]->group;
    return i;
}

// Items that use a common fragment form a group: all split their rows over warps in the same way. What is decided for
// one concerns its group alone.
static void join_groups(Inference *inference) {
    Map *first = map_new(inference->arena);
    VEC_EACH_PTR (Item, item, &inference->items) {
        VEC_EACH (const FragmentUse, use, &item->uses) {
            const Item *other = map_get(first, use->buf);
            if (!other) map_put(first, use->buf, item);
            else
                inference->items.items[find_group(inference, item->group)]->group = find_group(inference, other->group);
        }
    }
    ItemVec *groups = NEW_ARRAY(inference->arena, ItemVec, inference->items.count + 1);
    VEC_EACH_PTR (Item, item, &inference->items) {
        ItemVec *group = &groups[find_group(inference, item->group)];
        vec_push(inference->arena, group, item);
        item->group_items = group;
    }
}

static bool reduces_rows(const Item *item) {
    ReduceOp reduce;
    return match_reduce(item->stmt, &reduce) && reduce.src->buf->rank == 2 && expr_is_int(reduce.axis, 1);
}

static bool has_register_operand(const Item *item) {
    return item->kind == ITEM_GEMM && gemm_of(item->stmt).a->buf->scope == SCOPE_FRAGMENT;
}

// A warp should own whole rows if a row is reduced, if rows are an operand of a further gemm from registers, or if wgmma has
// them, whose warps do.
static bool group_wants_rows(const ItemVec *group) {
    VEC_EACH_PTR (Item, item, group)
        if (reduces_rows(item) || has_register_operand(item) || item->is_wgmma) return true;
    return false;
}

// Each warp has whole instructions.
static bool splits(const Item *item, int64_t warps, int64_t wm, int64_t wn) {
    return warps % wm == 0 && warps / wm % wn == 0 && item->m % (wm * item->mma->m) == 0 &&
           item->n % (wn * item->mma->n) == 0;
}

// Splits the warps over [m, n]: most warps busy, then whole rows if wanted, then the least operand traffic.
static bool choose_warps(Item *item, int64_t warps, bool rows) {
    int64_t best = INT64_MAX;
    for (int64_t wm = 1; wm <= warps; wm++) {
        for (int64_t wn = 1; wm * wn <= warps; wn++) {
            if (!splits(item, warps, wm, wn)) continue;
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

static const Layout *of_instruction(const Inference *inference, const Item *item, const char *instruction,
                                    int64_t columns) {
    return fragment_of_instruction(inference->arena, instruction, item->m, columns, item->warps_m, item->warps_n,
                                   inference->threads);
}

// Operand a in registers: every warp along n holds it. NULL: the instruction cannot read it from there.
static const Layout *register_operand(const Inference *inference, const Item *item) {
    if (item->is_wgmma)
        return fragment_wgmma_a(inference->arena, inference->kernel, item->stmt, &item->wgmma, item->warps_m,
                                inference->threads);
    if (!item->mma) return NULL;
    return fragment_mma_a(inference->arena, item->stmt, item->mma, item->warps_m, item->warps_n, inference->threads);
}

// False: tensor cores are not used.
static bool split_over_warps(Inference *inference, Item *item, bool rows) {
    const Target *target = inference->context->target;
    const Attr *fixed = attr_get(item->stmt->attrs, ATTR_WARPS);
    if (item->mma && !fixed) return choose_warps(item, inference->threads / target->warp_lanes, rows);
    if (item->mma) {
        item->warps_m = fixed->args[0].integer;
        item->warps_n = fixed->args[1].integer;
        if (splits(item, inference->threads / target->warp_lanes, item->warps_m, item->warps_n)) return true;
        const char *wanted = "numbers whose product divides the warps, each of which has whole instructions";
        diag(inference->context->sink, item->stmt->loc, T_ATTRIBUTE, attr_name(ATTR_WARPS), wanted);
        inference->failed = true;
        item->mma = NULL;
    }
    return item->mma || item->is_wgmma;
}

// Without tensor cores each thread computes a small block: four columns (one vector) by some rows.
static void infer_fma(Inference *inference, Item *item, Buf *acc) {
    int64_t shape[] = {item->m, item->n}, vector = item->n % 4 == 0 ? 4 : 1;
    if (item->mma) via_set(inference->arena, item->stmt, VIA_FMA);
    item->mma = NULL;
    set_layout(inference, acc, tv_blocked(inference->arena, 2, shape, inference->threads, 1, vector, 0));
    item->map = acc->layout;
}

static void infer_gemm(Inference *inference, Item *item, bool rows) {
    GemmOp gemm = gemm_of(item->stmt);
    if (!split_over_warps(inference, item, rows)) {
        infer_fma(inference, item, gemm.acc->buf);
        return;
    }
    const char *instruction = item->mma ? item->mma->c_layout : item->wgmma.acc_layout;
    item->map = of_instruction(inference, item, instruction, item->n);
    set_layout(inference, gemm.acc->buf, item->map);
    if (has_register_operand(item)) set_layout(inference, gemm.a->buf, register_operand(inference, item));
}

static void infer_strict(Inference *inference) {
    join_groups(inference);
    // An accumulator has one layout: wgmma's, which runs while others work, else mma's; fma takes any.
    enum { BY_WGMMA, BY_MMA, BY_FMA, WAYS };
    for (int way = 0; way < WAYS; way++)
        VEC_EACH_PTR (Item, item, &inference->items)
            if (item->kind == ITEM_GEMM && !item->map &&
                way == (item->is_wgmma ? BY_WGMMA
                        : item->mma    ? BY_MMA
                                       : BY_FMA))
                infer_gemm(inference, item, group_wants_rows(item->group_items));
}

// ---- common: propagation ----

// Fragments that a loop indexes by sums have no padding within a dim.
static bool fits_digits(Inference *inference, const Item *item, const Layout *map) {
    Arena *arena = inference->arena;
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (!digits_join(arena, &use->at, use->buf->rank,
                         digits_covering(arena, &use->at, digits_project(arena, &use->at, map, true))))
            return false;
    return true;
}

// The map of a loop from the layout of a fragment that it accesses with all its iterators.
static const Layout *map_from_use(Inference *inference, const Item *item, const FragmentUse *use,
                                  const Layout *layout) {
    int dims[LAYOUT_MAX_RANK];
    const Layout *digits = layout ? digits_split(inference->arena, &use->at, layout) : NULL;
    if (!digits) return NULL;
    for (int i = 0; i < item->loop.rank; i++) {
        dims[i] = -1;
        for (int k = 0; k < use->at.count; k++)
            if (use->at.items[k].iterator == i) dims[i] = k;
        if (dims[i] < 0 && item->loop.extents[i] != 1) return NULL;
    }
    const Layout *map = tv_project(inference->arena, digits, item->loop.rank, dims, NULL);
    return fits_digits(inference, item, map) ? map : NULL;
}

static const Layout *layout_under(Inference *inference, const Layout *map, const FragmentUse *use) {
    const Layout *digits = digits_project(inference->arena, &use->at, map, true);
    return digits_join(inference->arena, &use->at, use->buf->rank, digits);
}

static const Layout *layout_for_use(Inference *inference, const Item *item, const FragmentUse *use, const Layout *map) {
    EXPECT(inference->context->failure, map && map->rank_out == item->loop.rank, "a loop of rank %d with another map",
           item->loop.rank);
    return layout_under(inference, map, use);
}

// Bits of the fragments that a loop with this map needs in another layout than they have.
static int64_t bits_converted(Inference *inference, const Item *item, const Layout *map) {
    int64_t sum = 0;
    VEC_EACH (const FragmentUse, use, &item->uses) {
        if (!use->buf->layout || layout_equal(layout_under(inference, map, use), use->buf->layout)) continue;
        int64_t bits = type_bits(use->buf->type);
        for (int d = 0; d < use->buf->rank; d++) bits *= buf_extent(use->buf, d);
        sum += bits;
    }
    return sum;
}

// Where the loop touches a part of the fragment, each thread holds the rest as further values.
static const Layout *layout_for_whole(Inference *inference, const Item *item, const FragmentUse *use,
                                      const Layout *map) {
    Arena *arena = inference->arena;
    const Layout *digits = digits_covering(arena, &use->at, digits_project(arena, &use->at, map, true));
    EXPECT(inference->context->failure, map->rank_out == item->loop.rank, "a loop of rank %d with another map",
           item->loop.rank);
    return digits_join(arena, &use->at, use->buf->rank, digits);
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

// The map that converts least: on the smaller side of a cast. Of equal ones that of a fragment that is written. (A copy
// between fragments is the conversion itself.)
static const Layout *map_from_uses(Inference *inference, const Item *item) {
    const Layout *best = NULL;
    int64_t least = 0;
    for (int stores = 1; stores >= 0; stores--)
        VEC_EACH (const FragmentUse, use, &item->uses) {
            const Layout *map = use->is_store == stores ? map_from_use(inference, item, use, use->buf->layout) : NULL;
            int64_t bits = map && !is_call(item->stmt, OP_COPY) ? bits_converted(inference, item, map) : 0;
            if (!map || (best && bits >= least)) continue;
            best = map;
            least = bits;
        }
    return best;
}

const Layout *map_following(Inference *inference, const Item *item, const FragmentUse *use, const Layout *layout) {
    if (item->kind == ITEM_LOOP) return map_from_use(inference, item, use, layout);
    if (item->kind == ITEM_SCAN || (item->kind == ITEM_REDUCE && !use->is_store)) return layout;
    return NULL;
}

const Layout *layout_following(Inference *inference, const Item *item, const FragmentUse *use) {
    if (item->kind == ITEM_REDUCE && use->is_store) return reduce_result(inference->arena, item->stmt, item->map);
    if (item->kind != ITEM_LOOP) return item->kind == ITEM_SCALAR || item->kind == ITEM_GEMM ? NULL : item->map;
    const Layout *required = layout_for_use(inference, item, use, item->map);
    return required && covers(required, use->buf) ? required : NULL;
}

static bool propagate_loop(Inference *inference, Item *item) {
    bool changed = !item->map && set_map(item, map_from_uses(inference, item));
    if (!item->map) return changed;
    VEC_EACH (FragmentUse, use, &item->uses) {
        const Layout *required = layout_for_use(inference, item, use, item->map);
        if (required && covers(required, use->buf)) changed |= set_layout(inference, use->buf, required);
    }
    return changed;
}

static bool propagate_reduce(Inference *inference, Item *item) {
    ReduceOp reduce = reduce_of(item->stmt);
    const Layout *src = reduce.src->buf->layout;
    if (reduce.src->buf->scope != SCOPE_FRAGMENT || !src) return false;
    bool changed = set_map(item, src);
    if (reduce.dst->buf->scope != SCOPE_FRAGMENT || reduce.dst->buf->layout) return changed;
    return set_layout(inference, reduce.dst->buf, reduce_result(inference->arena, item->stmt, src)) || changed;
}

static bool propagate_scan(Inference *inference, Item *item) {
    bool changed = false;
    VEC_EACH (const FragmentUse, use, &item->uses) changed |= set_map(item, use->buf->layout);
    VEC_EACH (const FragmentUse, use, &item->uses) changed |= set_layout(inference, use->buf, item->map);
    return changed;
}

static bool propagate_item(Inference *inference, Item *item) {
    bool changed = false;
    if (item->propagated) return false;
    if (item->kind == ITEM_LOOP) changed = propagate_loop(inference, item);
    if (item->kind == ITEM_REDUCE) changed = propagate_reduce(inference, item);
    if (item->kind == ITEM_SCAN) changed = propagate_scan(inference, item);
    item->propagated = item->map && (item->kind == ITEM_LOOP || item->kind == ITEM_SCAN);
    return changed;
}

static void propagate(Inference *inference, const ItemVec *items) {
    for (bool changed = true; changed;) {
        changed = false;
        VEC_EACH_PTR (Item, item, items) changed |= propagate_item(inference, item);
    }
}

// ---- free: blocked layouts ----

// Some reduction or scan of the loop's group runs along the loop's fast dim.
static bool runs_along_fast(const Item *item, ItemKind kind) {
    VEC_EACH_PTR (Item, other, item->group_items)
        if (other->kind == kind && call_region(other->stmt, 0)->buf->rank == item->loop.rank &&
            reduce_op_axis(other->stmt) == item->fast)
            return true;
    return false;
}

// Rows that are reduced or scanned get equal numbers of threads, in whole warps or in slices of a warp that read half a
// line: the partial results of a row need few shuffles, and shared memory only if the CTA has fewer rows than warps.
// A loop with a transposed side reads lines, and more of a row at a time only where there are fewer rows than threads for them.
static int64_t fast_threads(Inference *inference, const Item *item) {
    bool shares = runs_along_fast(item, ITEM_REDUCE) || runs_along_fast(item, ITEM_SCAN);
    if (item->fast_threads == 0 && !shares) return 0;
    int64_t rows = 1, lanes = inference->context->target->warp_lanes;
    for (int d = 0; d < item->loop.rank; d++) rows *= d == item->fast ? 1 : item->loop.extents[d];
    int64_t each = inference->threads / rows, few = item->line_threads / 2 < lanes ? item->line_threads / 2 : lanes;
    if (item->fast_threads > 0) return item->fast_threads * larger(each / item->fast_threads, 1);
    if (each >= lanes) return each / lanes * lanes;
    while (few == 0 || 2 * few <= each) few += few + !few;
    return few;
}

static bool has_digits(const Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (!digits_are_dims(&use->at)) return true;
    return false;
}

// No thread and no value beyond an extent: threads that do not divide what is left are replicas.
static const Layout *exact_map(Inference *inference, const Item *item) {
    const TileLoop *loop = &item->loop;
    Layout *tv = layout_new(inference->arena, 2, loop->rank);
    int64_t left = inference->threads, each[LAYOUT_MAX_RANK], along[LAYOUT_MAX_RANK];
    int64_t vector = loop->extents[item->fast] % item->vector ? 1 : item->vector;
    for (int i = 0; i < loop->rank; i++) {
        int d = i == 0 ? item->fast : i <= item->fast ? i - 1 : i;   // the fast dim first
        each[d] = loop->extents[d] / (i == 0 ? vector : 1);
        along[d] = gcd64(each[d], left);
        left /= along[d];
        layout_add(tv, TV_THREAD, along[d], i == 0 ? vector : 1, d);
    }
    layout_add(tv, TV_THREAD, left, 0, 0);
    layout_add(tv, TV_VALUE, vector, 1, item->fast);
    for (int d = 0; d < loop->rank; d++)
        layout_add(tv, TV_VALUE, each[d] / along[d], along[d] * (d == item->fast ? vector : 1), d);
    return layout_finish(tv);
}

// Each warp gets consecutive elements of a scanned row, so that warps exchange one total each.
static const Layout *blocked_map(Inference *inference, const Item *item) {
    if (has_digits(item)) return exact_map(inference, item);
    const Layout *blocked = tv_blocked(inference->arena, item->loop.rank, item->loop.extents, inference->threads,
                                       item->fast, item->vector, fast_threads(inference, item));
    if (!runs_along_fast(item, ITEM_SCAN)) return blocked;
    return tv_in_stretches(inference->arena, blocked, item->fast, inference->context->target->warp_lanes);
}

static bool has_unknown_fragment(const Item *item) {
    VEC_EACH (const FragmentUse, use, &item->uses)
        if (!use->buf->layout) return true;
    return false;
}

// The loop of a group without a map that moves most elements of unknown fragments, memory accesses first.
static Item *choose_root(const ItemVec *group) {
    Item *best = NULL;
    VEC_EACH_PTR (Item, item, group) {
        if (item->kind != ITEM_LOOP || item->map || !has_unknown_fragment(item)) continue;
        if (!best || (item->has_memory != best->has_memory ? item->has_memory : space_size(item) > space_size(best)))
            best = item;
    }
    return best;
}

static void give_some_layout(Inference *inference, Buf *buf) {
    int64_t shape[LAYOUT_MAX_RANK];
    for (int d = 0; d < buf->rank; d++) shape[d] = buf_extent(buf, d);
    set_layout(inference, buf, tv_blocked(inference->arena, buf->rank, shape, inference->threads, buf->rank - 1, 1, 0));
}

static Buf *unknown_fragment(const ItemVec *group) {
    VEC_EACH_PTR (Item, item, group)
        VEC_EACH (const FragmentUse, use, &item->uses)
            if (!use->buf->layout) return use->buf;
    return NULL;
}

static void infer_group(Inference *inference, const ItemVec *group) {
    for (;;) {
        Item *root = choose_root(group);
        Buf *unknown = root ? NULL : unknown_fragment(group);
        if (root) root->map = blocked_map(inference, root);
        else if (unknown) give_some_layout(inference, unknown);
        else break;
        propagate(inference, group);
    }
}

static void infer_free(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items)
        if (item->group_items->items[0] == item) infer_group(inference, item->group_items);
    VEC_EACH_PTR (Buf, buf, &inference->fragments)
        if (!buf->layout) give_some_layout(inference, buf);   // a right operand alone
    VEC_EACH_PTR (Item, item, &inference->items)
        if (item->kind == ITEM_LOOP && !item->map) item->map = blocked_map(inference, item);
}

// ---- layouts that items need ----

// A layout in which every thread holds every element: the buffer's own layout if it is one.
static const Layout *replicated(Inference *inference, const Buf *buf) {
    if (tv_replicas(buf->layout) == tv_threads(buf->layout)) return buf->layout;
    Layout *tv = layout_new(inference->arena, 2, buf->rank);
    layout_add(tv, TV_THREAD, inference->threads, 0, 0);
    for (int d = buf->rank - 1; d >= 0; d--) layout_add(tv, TV_VALUE, buf_extent(buf, d), 1, d);
    return layout_finish(tv);
}

static const Layout *reduced_layout(Inference *inference, const Item *item, const Layout *map) {
    const Layout *result = reduce_result(inference->arena, item->stmt, map);
    return result ? result : reduce_of(item->stmt).dst->buf->layout;
}

const Layout *required_layout(Inference *inference, const Item *item, const FragmentUse *use, const Layout *map) {
    if (item->kind == ITEM_LOOP) return layout_for_whole(inference, item, use, map);
    if (item->kind == ITEM_SCALAR) return replicated(inference, use->buf);
    if (item->kind == ITEM_REDUCE && use->is_store) return reduced_layout(inference, item, map);
    if (item->kind != ITEM_GEMM || use->is_store) return map;
    const Layout *operand = register_operand(inference, item);
    return operand ? operand : use->buf->layout;   // stage-through-shared moves it through shared memory
}

bool is_conversion(const Item *item) {
    CopyOp copy;
    return item->uses.count == 2 && match_copy(item->stmt, &copy) && copy.src->buf->scope == SCOPE_FRAGMENT &&
           copy.dst->buf->scope == SCOPE_FRAGMENT && region_is_whole(copy.src) && region_is_whole(copy.dst) &&
           copy.src->transposed == copy.dst->transposed;
}

// A reduction to partial results (`dst` keeps the axis) needs threads along the axis that split evenly.
static void check_reductions(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items) {
        if (item->kind != ITEM_REDUCE || !item->map || reduce_result(inference->arena, item->stmt, item->map)) continue;
        ReduceOp reduce = reduce_of(item->stmt);
        int axis = reduce_op_axis(item->stmt);
        if (reduce.dst->buf->scope != SCOPE_FRAGMENT) continue;
        diag(inference->context->sink, item->stmt->loc, T_REDUCE_PARTIALS, buf_source_name(reduce.dst->buf),
             (long long)buf_extent(reduce.dst->buf, axis), (long long)tv_threads_along(item->map, axis), axis);
    }
}

// A store whose iterations threads share, of one element: each thread would keep what its own iterations store.
static bool shares_stores(const Item *item, const FragmentUse *use, int iterator) {
    bool index = false;
    for (int k = 0; k < use->at.count; k++) index |= use->at.items[k].iterator == iterator;
    return use->is_store && !index && tv_threads_along(item->map, iterator) > 1 &&
           stmt_uses_var(item->stmt, item->loop.iters[iterator]);
}

// A map that replicas, or a text, made padded.
static void check_digits(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items) {
        if (item->kind != ITEM_LOOP || !item->map || fits_digits(inference, item, item->map)) continue;
        diag(inference->context->sink, item->stmt->loc, T_FRAGMENT_INDEX, buf_source_name(vec_last(&item->uses).buf));
        inference->failed = true;
    }
}

static void check_stores(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items) {
        if (item->kind != ITEM_LOOP || !item->map || !is_loop(item->stmt, LOOP_PARALLEL)) continue;
        VEC_EACH (const FragmentUse, use, &item->uses)
            for (int i = 0; i < item->loop.rank; i++)
                if (shares_stores(item, use, i)) {
                    diag(inference->context->sink, item->stmt->loc, T_COMMON_STORE, buf_source_name(use->buf));
                    return;
                }
    }
}

// ---- run-time extents ----

// parallel (i in n) body  =>  for (c in ceildiv(n, T)) parallel (i' in T) if (c * T + i' < n) body
static void chunk_dynamic_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Inference *inference = mapper->user;
    Arena *arena = mapper->arena;
    block_push(arena, out, stmt);
    if (!is_loop(stmt, LOOP_PARALLEL)) return;
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
        Block body = stmt->loop.body;
        stmt->loop.body = (Block){0};
        *block_if(arena, &stmt->loop.body, e_lt(arena, at, steps)) = body;
        *iter = iter_new(arena, inner, e_int(arena, size));
        block_push(arena, &outer->loop.body, vec_last(out));
        vec_last(out) = outer;
        inference->changed = true;
    }
}

// ---- the pass ----

// Checks a layout in the source that was written for another number of threads.
static void check_threads(Inference *inference) {
    VEC_EACH_PTR (Buf, buf, &inference->fragments) {
        if (!buf->layout || tv_threads(buf->layout) == inference->threads) continue;
        diag(inference->context->sink, buf->loc, T_FRAGMENT_THREADS, buf_source_name(buf),
             (long long)tv_threads(buf->layout), (long long)inference->threads);
        inference->failed = true;
    }
}

// A copy between whole fragments is made in the layout of its destination, once it is there.
static void follow_destinations(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items)
        if (is_conversion(item) && !copy_of(item->stmt).dst->transposed)
            item->map = copy_of(item->stmt).dst->buf->layout;
}

// One of the source: as many iterations as lie in one thread and contiguous in memory, or a divisor of that.
static void check_vector(Inference *inference, const Item *item, int64_t most) {
    const Attr *given = attr_get(item->stmt->attrs, ATTR_VECTOR);
    if (!given || item->kind != ITEM_LOOP || most % given->args[0].integer == 0) return;
    diag(inference->context->sink, item->stmt->loc, T_ATTRIBUTE, attr_name(ATTR_VECTOR),
         arena_printf(inference->arena, "%lld here, or a divisor of it", (long long)most));
    inference->failed = true;
}

static void write_decisions(Inference *inference) {
    Arena *arena = inference->arena;
    VEC_EACH_PTR (Item, item, &inference->items) {
        Attr **attrs = &item->stmt->attrs;
        if (item->kind == ITEM_GEMM && item->mma) {
            int64_t warps[] = {item->warps_m, item->warps_n};
            attr_set_ints(arena, attrs, ATTR_WARPS, 2, warps);
        }
        if (item->kind == ITEM_GEMM || !item->map) continue;
        int64_t vector = item->kind == ITEM_LOOP && item->has_memory ? vector_under(item, item->map) : 1;
        check_vector(inference, item, vector);
        if (attr_get(*attrs, ATTR_MAP)) continue;
        attr_set_layout(arena, attrs, ATTR_MAP, item->map);
        if (vector > 1) attr_set_int(arena, attrs, ATTR_VECTOR, vector);
        inference->changed = true;
    }
}

// Drops replicas of the maps of such loops. If fragments have replicas of what the loop writes, conversions follow.
static void drop_replicas(Inference *inference) {
    VEC_EACH_PTR (Item, item, &inference->items)
        if (item->unreplicated && item->map)
            item->map = tv_without_replicas(inference->arena, item->map), item->fixed = true;
}

static void fix_layouts(Inference *inference) {
    inference->fixed = map_new(inference->arena);
    VEC_EACH_PTR (Buf, buf, &inference->fragments)
        if (buf->layout) map_put(inference->fixed, buf, buf);
    VEC_EACH_PTR (Item, item, &inference->items) item->fixed = item->map || item->kind == ITEM_SCALAR;
}

static bool infer_scope(PassContext *context, Func *kernel, const ThreadScope *scope) {
    Inference inference = {
        .context = context, .arena = context->arena, .kernel = kernel, .role = scope->role, .threads = scope->threads};
    inference.body = scope->body;
    inference.item_of = map_new(context->arena);
    inference.trips = map_new(context->arena);
    inference.is_fragment = map_new(context->arena);
    rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = chunk_dynamic_loop, .user = &inference}, scope->body);
    scope_walk(context->arena, kernel, scope, collect_item, &inference);
    check_threads(&inference);
    if (inference.failed) return inference.changed;
    infer_strict(&inference);
    fix_layouts(&inference);
    propagate(&inference, &inference.items);
    infer_free(&inference);
    drop_replicas(&inference);
    check_digits(&inference);
    if (inference.failed) return inference.changed;
    search_layouts(&inference);
    follow_destinations(&inference);
    write_decisions(&inference);
    check_reductions(&inference);
    check_stores(&inference);
    return place_conversions(&inference) || inference.changed;
}

bool pass_layout_inference(PassContext *context, Func *kernel) {
    bool changed = split_iterators(context, kernel);
    changed |= repeat_common_stores(context, kernel);
    changed |= regions_as_loops(context, kernel);
    changed |= select_registers(context, kernel);
    if (separate_views(context, kernel)) {   // its copies are of regions
        regions_as_loops(context, kernel);
        select_registers(context, kernel);
        changed = true;
    }
    ThreadScopeVec scopes = thread_scopes(context->arena, kernel);
    for (int i = scopes.count - 1; i >= 0; i--) changed |= infer_scope(context, kernel, &scopes.items[i]);
    return changed;
}
