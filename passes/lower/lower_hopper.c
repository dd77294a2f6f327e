// Copies by TMA and gemms by wgmma, for one thread.
//
// One thread starts a copy, a box at a time: a panel of the tile, one swizzle span wide (tma.h). The tensor map is a
// parameter that launches fill in; it is made here, from the panel and the tensor, so that the two cannot disagree.
//
// A gemm is a run of instructions for each strip of 64 rows and each panel along k. How an operand lies in its panels
// is the instruction's to know (PTX ISA, "Matrix descriptor"; "Strides"):
//
//     k contiguous    rows of a panel are rows of the operand: 8 of them are `stride` bytes; the next k is `step` = the
//                     instruction's k in bytes, within the row
//     m contiguous    rows of a panel are k: 8 of them are `stride` bytes, `step` is the instruction's k rows; the next panel
//                     along m (or n) is `lead` bytes away
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "support/strbuf.h"
#include <string.h>

static int64_t warpgroups_of(const Lower *lower) {
    return lower->warpgroup ? lower->threads / target_warpgroup(lower->target) : 1;
}

// ---- tensor maps ----

// A box of the region's tile, with these extents; 1 at its other dims.
static Var *tensor_map(Lower *lower, const Region *region, const int64_t *extents, int swizzle, bool tf32) {
    Arena *arena = lower->arena;
    Func *kernel = lower->kernel;
    const Buf *tensor = region->buf;
    StrBuf box;
    sb_init(&box, arena);
    for (int d = region->count - 1, own = region_rank(region) - 1; d >= 0; d--)
        sb_printf(&box, "%s%lld", box.length ? "," : "", region->dims[d].extent ? (long long)extents[own--] : 1);
    int taken = 0;
    for (int i = 0; i < kernel->params.count; i++) {
        const Attr *attr = attr_get(kernel->params.items[i].attrs, ATTR_TMA);
        if (!attr || strcmp(attr->args[0].text, tensor->name)) continue;
        bool rounds_totf32 = attr_get(kernel->params.items[i].attrs, ATTR_TF32) != NULL;
        if (!strcmp(attr->args[1].text, sb_text(&box)) && attr->args[2].integer == swizzle && rounds_totf32 == tf32)
            return kernel->params.items[i].var;
        taken++;
    }
    const char *name =
        taken ? arena_printf(arena, "%s_map%d", tensor->name, taken) : arena_printf(arena, "%s_map", tensor->name);
    Param param = {.var = var_new(arena, name, VAR_PARAM, TYPE_TENSORMAP, kernel->loc)};
    param.attrs = NEW(arena, Attr);
    *param.attrs = (Attr){
        .id = ATTR_TMA, .count = 3, .args = {{.text = tensor->name}, {.text = sb_text(&box)}, {.integer = swizzle}}};
    if (tf32) attr_set_ints(arena, &param.attrs, ATTR_TF32, 0, NULL);
    vec_push(arena, &kernel->params, param);
    return param.var;
}

// ---- TMA ----

// Where a tile has this element, from its slot on.
static Region *place_in(Lower *lower, const Region *tile, int count, Expr *const *at) {
    Expr *indices[LAYOUT_MAX_RANK + TENSOR_MAP_RANK];
    int slots = tile->buf->stage_dims;
    for (int d = 0; d < slots; d++) indices[d] = lower_expr(lower, tile->dims[d].start);
    for (int d = 0; d < count; d++) indices[slots + d] = at[d];
    return lower_place(lower, tile->buf, slots + count, indices);
}

typedef struct Boxes {   // that a tile is copied in: its panels
    const Region *tile, *region;
    TmaPanels panels;
    Var *map;
} Boxes;

static bool boxes_of(Lower *lower, const Stmt *copy, const Region *tile, const Region *region, Boxes *out) {
    int64_t extents[TENSOR_MAP_RANK];
    int rank = region_rank(tile);
    *out = (Boxes){.tile = tile, .region = region};
    if (tma_panels_problem(tile->buf, &out->panels)) return false;
    for (int d = 0; d < rank; d++) extents[d] = region_extent(tile, d);
    extents[rank - 1] = out->panels.columns;
    out->map = tensor_map(lower, region, extents, out->panels.swizzle, attr_get(copy->attrs, ATTR_TF32) != NULL);
    return true;
}

static Region *box_place(Lower *lower, const Boxes *boxes, int64_t panel) {
    Expr *at[TENSOR_MAP_RANK];
    int rank = region_rank(boxes->tile);
    for (int d = 0; d < rank; d++) at[d] = e_int(lower->arena, d + 1 < rank ? 0 : panel * boxes->panels.columns);
    return place_in(lower, boxes->tile, rank, at);
}

// Coordinates of a panel, innermost first.
static void set_coordinates(Lower *lower, const Boxes *boxes, int64_t panel, Arg *out) {
    Arena *arena = lower->arena;
    const Region *region = boxes->region;
    for (int d = 0; d < region->count; d++) {
        Expr *start = lower_expr(lower, region->dims[region->count - 1 - d].start);
        if (d == 0) start = e_plus(arena, start, panel * boxes->panels.columns);
        out[d] = arg_value(simplify_expr(arena, lower->facts, start));
    }
}

void lower_tma(Lower *lower, const Stmt *copy, Block *out) {
    enum { EVICT_FIRST = 3, MASK = 3 };
    Arena *arena = lower->arena;
    const Region *from = copy->call.args[COPY_FROM].region, *to = copy->call.args[COPY_TO].region;
    Boxes boxes;
    if (!boxes_of(lower, copy, to, from, &boxes)) return;
    Expr *evict_first =
        copy->call.count > COPY_EVICT_FIRST ? lower_expr(lower, copy->call.args[COPY_EVICT_FIRST].value) : NULL;
    Expr *blocks = copy->call.count > COPY_BLOCKS ? lower_expr(lower, copy->call.args[COPY_BLOCKS].value) : NULL;
    int first = blocks ? 4 : 5;   // where the coordinates begin
    for (int64_t p = 0; p < boxes.panels.count; p++) {
        Arg args[5 + TENSOR_MAP_RANK] = {arg_region(box_place(lower, &boxes, p)), arg_value(e_var(arena, boxes.map)),
                                         arg_region(lower_element(lower, copy->call.args[COPY_BAR].region))};
        set_coordinates(lower, &boxes, p, args + first);
        if (blocks) args[MASK] = arg_value(blocks);
        else if (evict_first) args[EVICT_FIRST] = arg_value(evict_first);
        block_call(lower->arena, out, copy->loc, blocks ? OP_TMA_MULTICAST : OP_TMA_LOAD, first + from->count, args);
    }
}

void lower_tma_away(Lower *lower, const Stmt *copy, OpId op, Block *out) {
    const Region *from = copy->call.args[COPY_FROM].region, *to = copy->call.args[COPY_TO].region;
    Boxes boxes;
    if (!boxes_of(lower, copy, from, to, &boxes)) return;
    for (int64_t p = 0; p < boxes.panels.count; p++) {
        Arg args[2 + TENSOR_MAP_RANK] = {arg_value(e_var(lower->arena, boxes.map)),
                                         arg_region(box_place(lower, &boxes, p))};
        set_coordinates(lower, &boxes, p, args + 2);
        block_call(lower->arena, out, copy->loc, op, 2 + to->count, args);
    }
    block_call(lower->arena, out, copy->loc, OP_BULK_COMMIT, 0, NULL);
}

// ---- stores ----
//
// A box at a time: the registers go to a buffer by stmatrix, in the swizzle that TMA undoes, and one thread starts the
// store. It reads the buffer while the next box is written to the other one:
//
//     bulk_wait(1, read)      the store before the last has read its buffer: this one
//     barrier()               ... which all threads know now
//     loops                   what the box still needs (stage_through_shared.c)
//     stmatrix                16 rows and 16 columns of a warp at once
//     fence_async()           ordinary stores, read by TMA
//     barrier()
//     tma_store, bulk_commit

typedef struct Store {
    Lower *lower;
    const Stmt *copy;
    const Block *loops;
    TmaStore shape;
    Block *out;
    bool tile;                         // it goes through a tile of its own shape
    int64_t first_row, first_column;   // of the box, there
    bool last;                         // box of the tile
} Store;

static void push_plain(Store *store, OpId op, int count, const Arg *args, Block *out) {
    block_call(store->lower->arena, out, store->copy->loc, op, count, args);
}

// Of several warpgroups each stores its own rows: this is the thread within it.
static Expr *thread_of_warpgroup(Lower *lower) {
    Expr *t = lower_thread(lower);
    return lower->warpgroup ? e_rem(lower->arena, t, target_warpgroup(lower->target)) : t;
}

static Block *push_first_thread(Store *store) {
    Arena *arena = store->lower->arena;
    return block_if(arena, store->out, e_eq(arena, thread_of_warpgroup(store->lower), e_int(arena, 0)));
}

static void push_store_wait(Store *store, int64_t pending) {
    BLOCK_CALL(store->lower->arena, push_first_thread(store), store->copy->loc, OP_BULK_WAIT,
               arg_int(store->lower->arena, pending), arg_name("read"));
}

// Of the warpgroup.
static void push_barrier(Store *store) {
    Lower *lower = store->lower;
    Arg args[2] = {{0}};
    if (lower->warpgroup) {
        args[0] = arg_value(e_plus(lower->arena, e_var(lower->arena, lower->warpgroup), TMA_STORE_BARRIER));
        args[1] = arg_int(lower->arena, target_warpgroup(lower->target));
    }
    push_plain(store, OP_BARRIER, COUNT_OF(args), args, store->out);
}

// Where the warpgroup's rows begin.
static Expr *warpgroup_rows(Lower *lower, int64_t rows) {
    if (!lower->warpgroup || rows == 0) return e_int(lower->arena, 0);
    return e_times(lower->arena, e_var(lower->arena, lower->warpgroup), rows);
}

// Indices of a staging buffer: the warpgroup's part, where there are several, the slot, row and column. Of a whole
// tile: row and column, from the box's first on.
static Region *staging_place(Store *store, Buf *buf, Expr *slot, Expr *row, Expr *column) {
    Lower *lower = store->lower;
    Arena *arena = lower->arena;
    Expr *at[4];
    int count = 0;
    if (store->tile) {
        row = e_add(arena, warpgroup_rows(lower, store->shape.strips * store->shape.rows), row);
        row = e_plus(arena, row, store->first_row);
        column = e_plus(arena, column, store->first_column);
    } else if (lower->warpgroup) at[count++] = e_var(arena, lower->warpgroup);
    if (!store->tile && buf->rank - count == 3) at[count++] = slot;
    at[count++] = row;
    at[count++] = column;
    return lower_place(lower, buf, count, at);
}

// 8 or 16 columns (`count` matrices) from `column` of the box, whose registers start at `first`.
static void push_matrices(Store *store, Buf *buf, Expr *slot, Expr *column, Expr *first, int count, Block *to) {
    Lower *lower = store->lower;
    Arena *arena = lower->arena;
    const Region *from = call_region(store->copy, COPY_FROM), *tensor = call_region(store->copy, COPY_TO);
    Span loc = store->copy->loc;
    Expr *t = thread_of_warpgroup(lower), *zero = e_int(arena, 0), *r;
    Buf *acc = lower_local(lower, from->buf);
    Type type = tensor->buf->type;
    Buf *out = block_local(arena, to, "out", type, (int64_t)2 * count, loc);
    Block *convert = lower_counted(lower, LOOP_UNROLL, "r", 0, (int64_t)2 * count, loc, &r, to);
    block_store1(arena, convert, out, r, e_cast(arena, type, e_load1(arena, acc, e_add(arena, first, r))));
    Expr *lane = e_rem(arena, t, lower->target->warp_lanes), *warp = e_over(arena, t, lower->target->warp_lanes);
    Expr *row = e_add(arena, e_times(arena, warp, 16), e_rem(arena, t, 16));
    Expr *half = count == 4 ? e_times(arena, e_over(arena, lane, 16), 8) : zero;
    Region *place = staging_place(store, buf, slot, row, e_add(arena, column, half));
    BLOCK_CALL(arena, to, loc, OP_STMATRIX, arg_region(place), arg_element(arena, out, zero), arg_int(arena, count),
               arg_value(e_bool(arena, false)));
}

// The registers of a box, from `first` on, to its buffer: 16 columns at a time.
static void push_columns(Store *store, Buf *buf, Expr *slot, int64_t first, int64_t columns) {
    Arena *arena = store->lower->arena;
    int64_t pairs = columns / 16;
    Expr *j;
    if (pairs > 0) {
        Block *body = lower_counted(store->lower, LOOP_UNROLL, "j", 0, pairs, store->copy->loc, &j, store->out);
        push_matrices(store, buf, slot, e_times(arena, j, 16), e_plus(arena, e_times(arena, j, 8), first), 4, body);
    }
    if (columns % 16 == 0) return;
    Stmt *rest = s_block(arena);
    push_matrices(store, buf, slot, e_int(arena, pairs * 16), e_int(arena, first + pairs * 8), 2, &rest->block);
    block_push(arena, store->out, rest);
}

static void push_loops(Store *store, int64_t first, int64_t count) {
    for (int i = 0; i < store->loops->count; i++) {
        TileLoop loop;
        tile_loop_of(store->lower->arena, store->loops->items[i], &loop);
        lower_loop_slice(store->lower, store->loops->items[i], &loop, first, count, store->out);
    }
}

// Of the box at this strip and column: coordinates in the tensor, innermost first.
static void box_coordinates(Store *store, const Region *to, int64_t strip, int64_t column, Arg *out) {
    Lower *lower = store->lower;
    for (int d = 0; d < to->count; d++) {
        const RegionDim *dim = &to->dims[to->count - 1 - d];
        Expr *at = lower_expr(lower, dim->start);
        if (d == 0) at = e_plus(lower->arena, at, column);
        if (d > 0 && dim->extent) {
            at = e_plus(lower->arena, at, strip * store->shape.rows);
            at = e_add(lower->arena, at, warpgroup_rows(lower, store->shape.strips * store->shape.rows));
        }
        out[d] = arg_value(lower_simple(lower, at));
    }
}

static void push_box(Store *store, Buf *buf, int64_t slot, int64_t strip, int64_t column, int64_t columns,
                     int swizzle) {
    Lower *lower = store->lower;
    Arena *arena = lower->arena;
    const Region *from = call_region(store->copy, COPY_FROM), *to = call_region(store->copy, COPY_TO);
    int64_t group = target_warpgroup(lower->target), rows = store->shape.rows;
    int64_t first = (strip * buf_extent(from->buf, 1) + column) * rows / group;
    push_loops(store, first, columns * rows / group);
    push_columns(store, buf, e_int(arena, slot), first, columns);
    push_plain(store, OP_FENCE_ASYNC, 0, NULL, store->out);
    push_barrier(store);
    int64_t extents[] = {rows, columns};
    Expr *zero = e_int(arena, 0);
    Arg args[2 + TENSOR_MAP_RANK] = {arg_value(e_var(arena, tensor_map(lower, to, extents, swizzle, false))),
                                     arg_region(staging_place(store, buf, e_int(arena, slot), zero, zero))};
    box_coordinates(store, to, strip, column, args + 2);
    Block *only = push_first_thread(store);
    push_plain(store, OP_TMA_STORE, 2 + to->count, args, only);
    if (!store->tile || store->last) push_plain(store, OP_BULK_COMMIT, 0, NULL, only);
}

// Stores that may still read when a box is written: those since its slot's last, in this tile or the one before.
static int64_t stores_since(int64_t boxes, int64_t slots, int64_t box) {
    int64_t since = 0;
    while ((box + boxes - 1 - since) % boxes % slots != box % slots) since++;
    return since;
}

// Of the buffer that the boxes of a tile share.
static int64_t slots_of(const Lower *lower, const Buf *buf) {
    int warpgroups = lower->warpgroup != NULL;   // a dim
    return buf->rank - warpgroups == 3 ? buf_extent(buf, buf->rank - 3) : 1;
}

// Registers are taken as wgmma leaves them.
static void check_layout(const Store *store) {
    const Buf *fragment = store->copy->call.args[COPY_FROM].region->buf;
    Lower *lower = store->lower;
    WgmmaInfo info;
    bool known = wgmma_find(lower->target, "bf16", "bf16", "f32", (int)buf_extent(fragment, 1), &info);
    const Layout *layout = known ? fragment_wgmma(lower->arena, &info, buf_extent(fragment, 0), buf_extent(fragment, 1),
                                                  warpgroups_of(lower), lower->threads)
                                 : NULL;
    EXPECT(lower->context->failure, layout && fragment->layout && layout_equal(layout, fragment->layout),
           "a store by TMA of '%s', which has not the layout of products", fragment->name);
}

void lower_tma_store(Lower *lower, const Stmt *copy, const Block *loops, Block *out) {
    Store store = {.lower = lower, .copy = copy, .loops = loops, .out = out};
    if (tma_epilogue_problem(lower->target, copy, &store.shape)) return;
    check_layout(&store);
    store.shape.strips /= warpgroups_of(lower);
    const TmaStore *shape = &store.shape;
    int64_t across = shape->chunks + (shape->tail > 0), boxes = shape->strips * across;
    const Region *stage = call_region(copy, shape->chunks ? COPY_STAGE : COPY_TAIL);
    store.tile = shape->chunks && tma_store_aliases(shape, copy, stage->buf);
    int64_t slots = slots_of(lower, stage->buf);
    for (int64_t box = 0; box < boxes; box++) {
        int64_t chunk = box % across, slot = box % slots;
        bool whole = chunk < shape->chunks;
        store.last = box + 1 == boxes;
        store.first_row = box / across * shape->rows, store.first_column = chunk * shape->columns;
        if (!store.tile && (lower->repeats || box >= slots)) {
            push_store_wait(&store, stores_since(boxes, slots, box));
            push_barrier(&store);
        }
        push_box(&store, stage->buf, slot, box / across, chunk * shape->columns, whole ? shape->columns : shape->tail,
                 whole ? (int)(shape->columns * type_bytes(copy->call.args[1].region->buf->type))
                       : shape->tail_swizzle);
    }
}

// ---- wgmma ----

typedef struct Described {   // of a gemm, in shared memory
    const Region *region;
    TmaPanels panels;
    bool k_major;
    int64_t element, lead, stride, step;   // bytes
    int64_t first;                         // column of the tile
} Described;

static Described operand_of(const Stmt *gemm, const WgmmaInfo *info, int at) {
    Described operand = {.region = gemm->call.args[at].region};
    tma_matrix_problem(operand.region->buf, &operand.panels);
    const TmaPanels *panels = &operand.panels;
    operand.k_major = operand.region->transposed == (at == 1);
    operand.element = type_bytes(operand.region->buf->type);
    operand.stride = (int64_t)8 * panels->swizzle;
    operand.lead = operand.k_major ? tma_facts.unit_bytes : panels->rows * panels->swizzle;
    expr_const(operand.region->dims[operand.region->count - 1].start, &operand.first);
    operand.step = info->k * (operand.k_major ? operand.element : panels->swizzle);
    return operand;
}

// Panel `panel` of an operand from its group of 8 rows on: its slot, then the physical coordinates of tma_layout.
static Region *panel_place(Lower *lower, const Region *tile, Expr *panel, Expr *eight) {
    Expr *indices[2 * LAYOUT_MAX_RANK];
    int count = 0;
    for (int d = 0; d < tile->buf->stage_dims; d++) indices[count++] = lower_expr(lower, tile->dims[d].start);
    indices[count++] = panel;
    indices[count++] = eight;
    indices[count++] = e_int(lower->arena, 0);
    return region_element(lower->arena, lower_physical(lower, tile->buf), count, indices);
}

// Where the operand's rows (of m or n) from `outer` and its k from `k` start; `rows`: of a, of each warpgroup.
static Arg operand_place(Lower *lower, const Described *o, int64_t outer, int64_t k, int64_t rows) {
    Arena *arena = lower->arena;
    int64_t row = o->k_major ? outer : k, column = o->first + (o->k_major ? k : outer);
    Expr *panel = e_int(arena, column / o->panels.columns), *eight = e_int(arena, row / 8);
    if (o->k_major) eight = e_add(arena, warpgroup_rows(lower, rows / 8), eight);
    else panel = e_add(arena, warpgroup_rows(lower, rows / o->panels.columns), panel);
    return arg_region(panel_place(lower, o->region, panel, eight));
}

static void set_described(Lower *lower, const Described *o, Arg *out) {
    out[0] = arg_name(arena_printf(lower->arena, "%s%d", o->k_major ? "k" : "mn", o->panels.swizzle));
    out[1] = arg_int(lower->arena, o->lead);
    out[2] = arg_int(lower->arena, o->stride);
    out[3] = arg_int(lower->arena, o->step);
}

typedef struct Products {   // of a gemm, by one warpgroup
    Lower *lower;
    const Stmt *gemm;
    WgmmaInfo info;
    Described a, b;
    bool registers;   // a is in them
    int64_t strips;
} Products;

static Arg left_operand(Products *p, int64_t strip, int64_t k) {
    Lower *lower = p->lower;
    const Region *a = p->gemm->call.args[GEMM_A].region;
    int64_t rows = p->strips * p->info.m, group = target_warpgroup(lower->target);
    if (!p->registers) return operand_place(lower, &p->a, strip * p->info.m, k, rows);
    Expr *first = e_int(lower->arena, (strip * region_extent(a, 1) + k) * p->info.m / group);
    return arg_element(lower->arena, lower_local(lower, a->buf), first);
}

static void push_run(Products *p, int64_t strip, int64_t k, int64_t steps, Block *out) {
    enum { A_FORM = 5, B_FORM = 9, ACCUMULATE = 13, COUNT };
    Lower *lower = p->lower;
    Arena *arena = lower->arena;
    const WgmmaInfo *info = &p->info;
    Buf *acc = lower_local(lower, p->gemm->call.args[GEMM_ACC].region->buf);
    Expr *first = e_int(arena, strip * info->m * info->n / target_warpgroup(lower->target));
    const char *shape = arena_printf(arena, "m%dn%dk%d_%s_%s%s%s", info->m, info->n, info->k, info->acc_type,
                                     info->a_type, strcmp(info->a_type, info->b_type) ? "_" : "",
                                     strcmp(info->a_type, info->b_type) ? info->b_type : "");
    Arg args[COUNT] = {arg_name(shape), left_operand(p, strip, k), operand_place(lower, &p->b, 0, k, 0),
                       arg_element(arena, acc, first), arg_int(lower->arena, steps)};
    if (!p->registers) set_described(lower, &p->a, args + A_FORM);
    set_described(lower, &p->b, args + B_FORM);
    if (k == 0) args[ACCUMULATE] = p->gemm->call.args[GEMM_ACCUMULATE];
    block_call(lower->arena, out, p->gemm->loc, OP_WGMMA, COUNT, args);
}

// Behind another product the fence of that one serves both.
static bool is_fenced(const Block *out) {
    return out->count > 0 && vec_last(out)->kind == STMT_CALL && vec_last(out)->call.op == OP_WGMMA_COMMIT;
}

// Both operands have k in one order.
static void check_order(const Products *p, int64_t m, int64_t k) {
    Lower *lower = p->lower;
    const Buf *a = p->gemm->call.args[GEMM_A].region->buf, *b = p->b.region->buf;
    if (!p->registers) return;
    bool paired = wgmma_pairs(lower->arena, lower->kernel, p->gemm, &p->info);
    const Layout *layout = (paired ? fragment_wgmma_paired : fragment_wgmma_a)(lower->arena, &p->info, m, k,
                                                                               warpgroups_of(lower), lower->threads);
    EXPECT(lower->context->failure, a->layout && layout_equal(a->layout, layout),
           "a product of '%s' with '%s', which have k in different orders", a->name, b->name);
}

void lower_wgmma(Lower *lower, const Stmt *gemm, Block *out) {
    Products p = {.lower = lower, .gemm = gemm};
    if (wgmma_problem(lower->target, gemm, &p.info)) return;
    int64_t m = region_extent(gemm->call.args[GEMM_ACC].region, 0),
            k = region_extent(gemm->call.args[GEMM_A].region, 1);
    int64_t run = k;
    p.registers = gemm->call.args[GEMM_A].region->buf->scope == SCOPE_FRAGMENT;
    p.strips = m / p.info.m / warpgroups_of(lower);
    if (!p.registers) p.a = operand_of(gemm, &p.info, GEMM_A);
    p.b = operand_of(gemm, &p.info, GEMM_B);
    check_order(&p, m, k);
    if (!p.registers && p.a.k_major) run = p.a.panels.columns;
    if (p.b.k_major && p.b.panels.columns < run) run = p.b.panels.columns;
    if (!is_fenced(out)) block_call(lower->arena, out, gemm->loc, OP_WGMMA_FENCE, 0, NULL);
    for (int64_t at = 0; at < k; at += run)
        for (int64_t strip = 0; strip < p.strips; strip++) push_run(&p, strip, at, run / p.info.k, out);
    block_call(lower->arena, out, gemm->loc, OP_WGMMA_COMMIT, 0, NULL);
    Arg none = arg_int(lower->arena, 0);
    if (!gemm->call.is_async) block_call(lower->arena, out, gemm->loc, OP_WGMMA_WAIT, 1, &none);
}
