// Copies by TMA and gemms by wgmma, for one thread.
//
// One thread starts a copy, a box at a time: a panel of the tile, one swizzle span wide (tma.h). The tensor map is a
// parameter that launches fill in; it is derived here from the panel and the tensor, so the two always agree.
//
// A gemm is a run of instructions for each strip of 64 rows and each panel along k. The matrix descriptor gives the
// position of an operand in its panels (PTX ISA, "Matrix descriptor"; "Strides"):
//
//     k contiguous    rows of a panel are rows of the operand: 8 of them are `stride` bytes; the next k is `step` = the
//                     instruction's k in bytes, within the row
//     m contiguous    rows of a panel are k: 8 of them are `stride` bytes, `step` is the instruction's k rows; the next
//                     along m (or n) is `lead` bytes away
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "support/numbers.h"
#include "support/strbuf.h"
#include <string.h>

static int64_t warpgroups_of(const Lower *lower) {
    return lower->warpgroup ? lower->threads / target_warpgroup(lower->target) : 1;
}

// ---- tensor maps ----

// The parameter that is a tensor map for boxes of the region's tile with these extents; extent 1 in its other dims.
static Var *tensor_map(Lower *lower, const Region *region, const int64_t *extents, int swizzle, bool tf32) {
    Arena *arena = lower->arena;
    Func *kernel = lower->kernel;
    Buf *view = region->buf->im2col ? region->buf : NULL;
    const char *tensor = buf_viewed(region->buf)->name, *box = tensor_map_box(arena, region, extents);
    int taken = 0;
    VEC_EACH (const Param, param, &kernel->params) {
        const Attr *attr = attr_get(param->attrs, ATTR_TMA);
        if (!attr || strcmp(attr->args[0].text, tensor)) continue;
        bool same = !strcmp(attr->args[1].text, box) && attr->args[2].integer == swizzle &&
                    im2col_equal(attr->args[0].view, view);
        if (same && tf32 == (attr_get(param->attrs, ATTR_TF32) != NULL)) return param->var;
        taken++;
    }
    const char *name = taken ? arena_printf(arena, "%s_map%d", tensor, taken) : arena_printf(arena, "%s_map", tensor);
    Param param = {.var = var_new(arena, name, VAR_PARAM, TYPE_TENSORMAP, kernel->loc), .attrs = NEW(arena, Attr)};
    *param.attrs = (Attr){
        .id = ATTR_TMA, .count = 3, .args = {{.text = tensor, .view = view}, {.text = box}, {.integer = swizzle}}};
    if (tf32) attr_set_ints(arena, &param.attrs, ATTR_TF32, 0, NULL);
    vec_push(arena, &kernel->params, param);
    return param.var;
}

// ---- TMA ----

typedef struct Boxes {   // the boxes of a tile: its panels, or their rows in several
    const Region *tile, *region;
    TmaPanels panels;
    int64_t rows, count;   // of a box of two dims; boxes
    Expr *map;
} Boxes;

// Reports what the statement's mechanism, which a source or a dump may name, cannot do.
static bool is_possible(const Lower *lower, const Stmt *stmt, const char *why) {
    if (why) diag(lower->context->sink, stmt->loc, T_VIA, via_text(via_of(stmt)), why);
    return !why;
}

static bool boxes_of(Lower *lower, const Stmt *copy, const Region *tile, const Region *region, Boxes *out) {
    int64_t extents[TENSOR_MAP_RANK];
    int rank = region_rank(tile);
    *out = (Boxes){.tile = tile, .region = region};
    if (!is_possible(lower, copy, tma_boxes_problem(tile->buf, &out->panels))) return false;
    EXPECT(lower->context->failure, rank >= 1 && rank <= TENSOR_MAP_RANK && region->count <= TENSOR_MAP_RANK,
           "a box of rank %d of a tensor of rank %d", rank, region->count);
    out->panels.count = region_extent(tile, rank - 1) / out->panels.columns;   // a store may take some of them
    EXPECT(lower->context->failure, out->panels.columns * out->panels.count == region_extent(tile, rank - 1),
           "the panels of '%s' do not cover its rows", tile->buf->name);
    for (int d = 0; d < rank; d++) extents[d] = region_extent(tile, d);
    extents[rank - 1] = out->panels.columns;
    out->count = out->panels.count;
    if (rank == 2) {
        int64_t rows = tma_box_rows(extents[0]);
        EXPECT(lower->context->failure, rows > 0, "no box for %lld rows", (long long)extents[0]);
        out->rows = larger(rows, 1);
        out->count *= extents[0] / out->rows;
        extents[0] = out->rows;
    }
    bool tf32 = attr_get(copy->attrs, ATTR_TF32) != NULL;
    out->map = e_var(lower->arena, tensor_map(lower, region, extents, out->panels.swizzle, tf32));
    return true;
}

static int64_t box_columns(const Boxes *boxes, int64_t box) {
    return box % boxes->panels.count * boxes->panels.columns;
}

static int64_t box_rows(const Boxes *boxes, int64_t box) {
    return box / boxes->panels.count * boxes->rows;
}

// The address of a box in the tile, or in a piece of it.
static Arg box_place(Lower *lower, const Boxes *boxes, int64_t box) {
    Expr *at[TENSOR_MAP_RANK];
    const Region *tile = boxes->tile;
    int rank = region_rank(tile);
    for (int d = 0; d < rank; d++) at[d] = lower_expr(lower, tile->dims[tile->count - rank + d].start);
    at[rank - 1] = e_plus(lower->arena, at[rank - 1], box_columns(boxes, box));
    if (rank == 2) at[0] = e_plus(lower->arena, at[0], box_rows(boxes, box));
    return arg_region(lower_in_slot(lower, boxes->tile, rank, at));
}

// A coordinate has 32 bits. One that may be beyond `most` becomes the nearest that has: no tensor with a map reaches
// that far (select), so the box is outside of it as before. It is a multiple of `unit` elements, 1 but along rows.
static Expr *fitted(const Lower *lower, Expr *value, int64_t most, int64_t unit) {
    const Range range = range_of(lower->facts, value);
    Expr *highest = e_int(lower->arena, (int64_t)INT32_MAX + 1 - unit);
    bool high = range.high > most && !prove(lower->facts, e_binary(lower->arena, BIN_LE, value, highest));
    if (high) value = e_min(lower->arena, value, highest);
    return range.low < INT32_MIN ? e_max(lower->arena, value, e_int(lower->arena, INT32_MIN)) : value;
}

// The box's coordinates as operands: how many. A start that a load may let wrap comes back as negative, with all of its
// box below 0; a store must not begin there. Beyond a start that fits, a tile's own reach is as harmless. (The row of
// windows is divided before it is a coordinate.)
static int set_coordinates(Lower *lower, const Region *region, int64_t columns, Expr *rows, bool loads, Arg *out) {
    const int64_t wrapping = UINT32_MAX - (int64_t)tma_facts.max_box;
    Expr *at[MOST_COORDINATES];
    Region from = *region;
    bool windows = region->buf->im2col && !im2col_is_merged(region->buf), far = windows;
    from.dims = arena_copy(lower->arena, region->dims, sizeof *region->dims * (size_t)region->count);
    for (int d = windows ? from.count - 1 : 0; d < from.count; d++) {   // first the starts, so that no sum wraps
        RegionDim *dim = &from.dims[d];
        int64_t unit = d == from.count - 1 ? tma_unit_elements(region->buf) : 1;
        Expr *start = fitted(lower, dim->start, loads ? wrapping - dim->tile : INT32_MAX, unit);
        far |= start != dim->start;
        dim->start = start;
    }
    int count = tensor_map_coordinates(lower->arena, &from, columns, rows, loads, at);
    for (int i = 0; i < count; i++) {
        Expr *simple = lower_simple(lower, lower_expr(lower, at[i]));
        int64_t unit = i == 0 ? tma_unit_elements(region->buf) : 1;
        out[i] = arg_value(far ? fitted(lower, simple, loads ? wrapping : INT32_MAX, unit) : simple);
    }
    return count;
}

static int set_box(Lower *lower, const Region *region, const Boxes *boxes, int64_t box, bool loads, Arg *out) {
    int64_t rows = box_rows(boxes, box);
    return set_coordinates(lower, region, box_columns(boxes, box), rows ? e_int(lower->arena, rows) : NULL, loads, out);
}

void lower_tma(Lower *lower, const Stmt *stmt, Block *out) {
    enum { AFTER_HINTS = OPERAND_INDEX(TMA_LOAD, coordinates), AFTER_MASK = OPERAND_INDEX(TMA_MULTICAST, coordinates) };
    Arena *arena = lower->arena;
    CopyOp copy = copy_of(stmt);
    Boxes boxes;
    if (!boxes_of(lower, stmt, copy.dst, copy.src, &boxes)) return;
    EXPECT(lower->context->failure, copy.bar, "a load of '%s' by TMA has no mbarrier", copy.dst->buf->name);
    Expr *evict_first = lower_expr(lower, copy.evict_first), *blocks = lower_expr(lower, copy.ctas);
    int first = blocks ? AFTER_MASK : AFTER_HINTS;
    for (int64_t b = 0; b < boxes.count; b++) {
        Arg args[AFTER_HINTS + MOST_COORDINATES] = {box_place(lower, &boxes, b), arg_value(boxes.map),
                                                    arg_region(lower_element(lower, copy.bar))};
        if (blocks) args[OPERAND_INDEX(TMA_MULTICAST, mask)] = arg_value(blocks);
        else if (evict_first) args[OPERAND_INDEX(TMA_LOAD, evict_first)] = arg_value(evict_first);
        int count = set_box(lower, copy.src, &boxes, b, true, args + first);
        block_call(arena, out, stmt->loc, blocks ? OP_TMA_MULTICAST : OP_TMA_LOAD, first + count, args);
    }
}

void lower_tma_away(Lower *lower, const Stmt *stmt, OpId op, Block *out) {
    CopyOp copy = copy_of(stmt);
    Boxes boxes;
    if (!boxes_of(lower, stmt, copy.src, copy.dst, &boxes)) return;
    for (int64_t b = 0; b < boxes.count; b++) {
        Arg args[2 + MOST_COORDINATES] = {arg_value(boxes.map), box_place(lower, &boxes, b)};
        int count = set_box(lower, copy.dst, &boxes, b, false, args + 2);
        block_call(lower->arena, out, stmt->loc, op, 2 + count, args);
    }
    block_call(lower->arena, out, stmt->loc, OP_BULK_COMMIT, 0, NULL);
}

// ---- stores ----
//
// A box at a time: stmatrix writes the registers to a buffer, in the swizzle that TMA reverses, and one thread starts
// the store. TMA reads the buffer while the next box is written to the other buffer:
//
//     bulk_wait(1, read)      the store before the last has read its buffer: this one (the first box: all have)
//     barrier()               ... so all threads may write
//     loops                   epilogue of the box (stage_through_shared.c)
//     stmatrix                16 rows and 16 columns of a warp at once; of swapped operands the results are transposed here
//     fence_async()           ordinary stores, read by TMA
//     barrier()
//     tma_store, bulk_commit
//
// @via(vector_store) stores the box by threads behind the last barrier, which also tells that the box before has been read.

typedef struct Store {
    Lower *lower;
    Arena *arena;
    Span loc;
    CopyOp copy;
    const Block *loops;
    TmaStore shape;
    int64_t columns;   // of the fragment, that a warpgroup has
    Block *out;
    bool tile;            // staged in a tile of its own shape
    bool by_tma;          // else by threads
    Expr *row, *column;   // the first ones of the warpgroup
} Store;

typedef struct Box {   // of the tile
    Expr *slot;        // of the staging
    int64_t row, column, columns;
    int swizzle;
    bool last;
} Box;

// If several warpgroups store, each stores its own rows: the thread index within the warpgroup.
static Expr *thread_of_warpgroup(Lower *lower) {
    Expr *t = lower_thread(lower);
    return lower->warpgroup ? e_rem(lower->arena, t, target_warpgroup(lower->target)) : t;
}

static Block *push_first_thread(Store *store) {
    Expr *zero = e_int(store->arena, 0);
    return block_if(store->arena, store->out, e_eq(store->arena, thread_of_warpgroup(store->lower), zero));
}

void lower_warpgroup_barrier(Lower *lower, Span loc, Block *out) {
    Arg args[2] = {{0}};
    if (lower->warpgroup) {
        args[0] = arg_value(e_plus(lower->arena, e_var(lower->arena, lower->warpgroup), TMA_STORE_BARRIER));
        args[1] = arg_int(lower->arena, target_warpgroup(lower->target));
    }
    block_call(lower->arena, out, loc, OP_BARRIER, COUNT_OF(args), args);
}

static void push_barrier(Store *store) {
    lower_warpgroup_barrier(store->lower, store->loc, store->out);
}

static Expr *box_row(Store *store, const Box *box) {
    return e_plus(store->arena, store->row, box->row);
}

// Indices of a staging buffer: the warpgroup (if several), slot, row and column. In a whole tile: row and column, from
// the box's first on.
static Arg staging_place(Store *store, Buf *buf, const Box *box, Expr *row, Expr *column) {
    Lower *lower = store->lower;
    Expr *at[4];
    int count = 0;
    if (store->tile) {
        row = e_add(store->arena, box_row(store, box), row);
        column = e_plus(store->arena, column, box->column);
    } else {
        if (lower->warpgroup) at[count++] = e_var(store->arena, lower->warpgroup);
        if (buf->rank - count == 3) at[count++] = box->slot;
    }
    at[count++] = row;
    at[count++] = column;
    return arg_region(lower_place(lower, buf, count, at));
}

// Stores 8 or 16 columns (`count` matrices) from `column` of the box, whose registers start at `first`.
static void push_matrices(Store *store, Buf *buf, const Box *box, Expr *column, Expr *first, int count, Block *to) {
    Lower *lower = store->lower;
    Arena *arena = store->arena;
    Type type = store->copy.dst->buf->type;
    int64_t lanes = lower->target->warp_lanes;
    Expr *t = thread_of_warpgroup(lower), *zero = e_int(arena, 0), *r;
    Buf *acc = lower_local(lower, store->copy.src->buf);
    Buf *out = block_local(arena, to, "out", type, (int64_t)2 * count, store->loc);
    Block *convert = lower_counted(lower, LOOP_UNROLL, "r", 0, (int64_t)2 * count, store->loc, &r, to);
    block_store1(arena, convert, out, r, e_cast(arena, type, e_load1(arena, acc, e_add(arena, first, r))));
    Expr *strip = e_times(arena, e_over(arena, t, lanes), 16), *lane = e_rem(arena, t, 16);
    Expr *half = count == 4 ? e_times(arena, e_over(arena, e_rem(arena, t, lanes), 16), 8) : zero, *row, *place;
    bool transposed = store->shape.transposed;
    column = e_add(arena, column, half);
    if (transposed) {
        row = e_add(arena, column, e_rem(arena, lane, matrix_facts.rows));
        place = e_add(arena, strip, e_times(arena, e_over(arena, lane, matrix_facts.rows), matrix_facts.rows));
    } else {
        row = e_add(arena, strip, lane);
        place = column;
    }
    BLOCK_CALL(arena, to, store->loc, OP_STMATRIX, staging_place(store, buf, box, row, place),
               arg_element(arena, out, zero), arg_int(arena, count), arg_value(e_bool(arena, transposed)));
}

// Stores the registers of a box, from `first` on, to its buffer, 16 columns at a time.
static void push_columns(Store *store, Buf *buf, const Box *box, int64_t first) {
    Arena *arena = store->arena;
    int64_t pairs = box->columns / 16;
    EXPECT(store->lower->context->failure, box->columns % matrix_facts.rows == 0, "a box of %lld columns",
           (long long)box->columns);
    Expr *j;
    if (pairs > 0) {
        Block *body = lower_counted(store->lower, LOOP_UNROLL, "j", 0, pairs, store->loc, &j, store->out);
        push_matrices(store, buf, box, e_times(arena, j, 16), e_plus(arena, e_times(arena, j, 8), first), 4, body);
    }
    if (box->columns % 16 == 0) return;
    Block *rest = block_nested(arena, store->out, (Span){0});
    push_matrices(store, buf, box, e_int(arena, pairs * 16), e_int(arena, first + pairs * 8), 2, rest);
}

static void push_loops(Store *store, int64_t first, int64_t count) {
    FOR_EACH_ITEM (stmt, store->loops) {
        TileLoop loop;
        tile_loop_of(store->arena, stmt, &loop);
        lower_loop(store->lower, stmt, &loop, first, count, store->out);
    }
}

// The region, so many columns further.
static Region *moved_along(const Store *store, const Region *region, Expr *columns) {
    Region *moved = clone_region(store->arena, NULL, region);
    RegionDim *last = &moved->dims[moved->count - 1];
    last->start = e_add(store->arena, last->start, columns);
    return moved;
}

static void push_vectors(Store *store, Buf *buf, const Box *box) {
    const Lower *lower = store->lower;
    StagedBox staged = {buf, .row = box_row(store, box), .column = box->column, .rows = store->shape.rows,
                        .columns = box->columns};
    if (lower->warpgroup) staged.at[staged.prefix++] = e_var(store->arena, lower->warpgroup);
    if (buf->rank - staged.prefix == 3) staged.at[staged.prefix++] = box->slot;
    push_barrier(store);
    lower_vector_store(store->lower, moved_along(store, store->copy.dst, store->column), &staged,
                       thread_of_warpgroup(store->lower), store->loc, store->out);
}

static void push_box(Store *store, Buf *buf, const Box *box) {
    Lower *lower = store->lower;
    Arena *arena = store->arena;
    const Region *to = store->copy.dst;
    int64_t group = target_warpgroup(lower->target), rows = store->shape.rows;
    const Region *from = store->copy.src;
    int64_t column = box->column + from->dims[1].start->integer;   // of the fragment
    int64_t first = (box->row / rows * store->columns + column) * rows / group;
    push_loops(store, first, box->columns * rows / group);
    push_columns(store, buf, box, first);
    if (!store->by_tma) {
        push_vectors(store, buf, box);
        return;
    }
    block_call(arena, store->out, store->loc, OP_FENCE_ASYNC, 0, NULL);
    push_barrier(store);
    bool transposed = store->shape.transposed;
    int64_t extents[] = {transposed ? box->columns : rows, transposed ? rows : box->columns};
    Expr *zero = e_int(arena, 0);
    Region tile = *to;
    tile.transposed = false;
    Arg args[2 + MOST_COORDINATES] = {arg_value(e_var(arena, tensor_map(lower, &tile, extents, box->swizzle, false))),
                                      staging_place(store, buf, box, zero, zero)};
    Expr *row = transposed ? e_plus(arena, store->column, box->column) : box_row(store, box);
    const Region *to_box = moved_along(store, &tile, transposed ? box_row(store, box) : store->column);
    int count = set_coordinates(lower, to_box, transposed ? 0 : box->column, row, false, args + 2);
    Block *only = push_first_thread(store);
    block_call(arena, only, store->loc, OP_TMA_STORE, 2 + count, args);
    if (!store->tile || box->last) block_call(arena, only, store->loc, OP_BULK_COMMIT, 0, NULL);
}

// Stores that may still be reading when a box is written: those since the last use of its slot, in this tile or the
// previous one.
static int64_t stores_since(int64_t boxes, int64_t slots, int64_t box) {
    int64_t since = 0;
    while ((box + boxes - 1 - since) % boxes % slots != box % slots) since++;
    return since;
}

// Slots of the buffer that the boxes of a tile share.
static int64_t slots_of(const Lower *lower, const Buf *buf) {
    int warpgroups = lower->warpgroup != NULL;   // a dim
    return buf->rank - warpgroups == 3 ? buf_extent(buf, buf->rank - 3) : 1;
}

// Of a statement with a mechanism that a source names: select asks before it chooses one.
static const char *layout_problem(const Store *store, const WgmmaSplit *split) {
    const Buf *fragment = store->copy.src->buf;
    Lower *lower = store->lower;
    int64_t rows = buf_extent(fragment, 0), columns = buf_extent(fragment, 1), across = columns / split->n;
    const char *why = "the registers have not the layout of products";
    WgmmaInfo info;
    if (!fragment->layout || !wgmma_find(lower->target, "bf16", "bf16", "f32", (int)across, &info)) return why;
    const Layout *layout =
        fragment_of_instruction(lower->arena, info.acc_layout, rows, columns, split->m, split->n, lower->threads);
    if (!layout_equal(layout, fragment->layout)) return why;
    return (store->shape.chunks ? store->copy.stage : store->copy.tail) ? NULL
                                                                        : "it is no result of products of a role";
}

// Before a box is written: its slot has been read. By TMA the first box waits for all stores of the tile before, which were started
// long ago, so that the other slots need no wait of their own.
static void push_slot_wait(Store *store, int64_t boxes, int64_t slots, int64_t box) {
    int64_t since = store->by_tma && box == 0 ? 0 : stores_since(boxes, slots, box);
    if (store->by_tma && box > 0 && box < slots) return;
    if (store->by_tma)
        BLOCK_CALL(store->arena, push_first_thread(store), store->loc, OP_BULK_WAIT, arg_int(store->arena, since),
                   arg_name("read"));
    if (store->by_tma || since == 0) push_barrier(store);
}

// A wait for all stores and a barrier come right before (stage_store), so no slot is in use.
static bool follows_wait(const Store *store) {
    const Block *before = store->out;
    int last = before->count - 1;
    if (last < 0 || !is_call(before->items[last], OP_BARRIER)) return false;
    if (!store->by_tma) return true;
    return last > 0 && is_call(before->items[last - 1], OP_BULK_WAIT) &&
           expr_is_int(ARG(before->items[last - 1], BULK_WAIT, n).value, 0);
}

// Of several warpgroups each stores its own rows, or columns.
static void share_store(Store *store, const WgmmaSplit *split) {
    Lower *lower = store->lower;
    Arena *a = store->arena;
    TmaStore *shape = &store->shape;
    shape->strips /= split->m;
    store->columns = buf_extent(store->copy.src->buf, 1) / split->n;
    Expr *number = lower->warpgroup ? e_var(a, lower->warpgroup) : e_int(a, 0);
    store->row = e_times(a, e_rem(a, number, split->m), shape->strips * shape->rows);
    store->column = e_times(a, e_over(a, number, split->m), store->columns);
}

void lower_staged_store(Lower *lower, const Stmt *stmt, const Block *loops, Block *out) {
    Store store = {lower, lower->arena, stmt->loc, copy_of(stmt), loops, .out = out};
    store.by_tma = via_is(stmt, VIA_TMA_STORE);
    if (!is_possible(lower, stmt, tma_epilogue_problem(lower->target, stmt, &store.shape))) return;
    WgmmaSplit split = strips_split(store.shape.strips, warpgroups_of(lower));
    if (!is_possible(lower, stmt, layout_problem(&store, &split))) return;
    if (!is_possible(lower, stmt,
                     tma_store_share(stmt, split.n, &store.shape) ? NULL : "its columns are not shared equally"))
        return;
    share_store(&store, &split);
    const TmaStore *shape = &store.shape;
    int64_t across = shape->chunks + (shape->tail > 0), boxes = shape->strips * across;
    Buf *stage = shape->chunks ? store.copy.stage->buf : store.copy.tail->buf;
    store.tile = store.by_tma && shape->chunks && tma_store_aliases(lower->arena, shape, stmt, stage);
    int64_t slots = slots_of(lower, stage);
    bool used = lower->repeats && !follows_wait(&store);
    int swizzle = (int)(shape->slot[1] * type_bytes(store.copy.dst->buf->type));
    for (int64_t i = 0; i < boxes; i++) {
        int64_t chunk = i % across;
        bool whole = chunk < shape->chunks;
        Box box = {e_int(lower->arena, i % slots),
                   i / across * shape->rows,
                   chunk * shape->columns,
                   whole ? shape->columns : shape->tail,
                   whole ? swizzle : shape->tail_swizzle,
                   i + 1 == boxes};
        if (!store.tile && (used || i >= slots)) push_slot_wait(&store, boxes, slots, i);
        push_box(&store, stage, &box);
    }
}

// ---- wgmma ----

typedef struct Described {   // an operand in shared memory
    const Region *region;
    TmaPanels panels;
    bool k_major;
    int64_t element, lead, stride, step;   // bytes
    Expr *row, *column;                    // of the tile, where it starts
    Expr *share;                           // the warpgroup's number among those that share it; NULL: none do
    int64_t shared;                        // rows (of m or n) of each
} Described;

static Described described(Lower *lower, const Stmt *gemm, bool is_b, const WgmmaInfo *info) {
    const Region *region = is_b ? gemm_of(gemm).b : gemm_of(gemm).a;
    Described operand = {.region = region, .k_major = region->transposed == is_b};
    const TmaPanels *panels = &operand.panels;
    wgmma_panels_problem(lower->arena, gemm, info, is_b, &operand.panels);
    operand.element = type_bytes(region->buf->type);
    operand.stride = (int64_t)8 * panels->swizzle;
    operand.lead = operand.k_major ? tma_facts.unit_bytes : panels->rows * panels->swizzle;
    operand.row = lower_expr(lower, region->dims[region->count - 2].start);
    operand.column = lower_expr(lower, region->dims[region->count - 1].start);
    operand.step = info->k * (operand.k_major ? operand.element : panels->swizzle);
    return operand;
}

// Address of the operand's rows (of m or n) from `outer` and its k from `k`. Physical coordinates of tma_layout: slot,
// panel, group of 8 rows.
static Arg operand_place(Lower *lower, const Described *o, int64_t outer, int64_t k) {
    Arena *arena = lower->arena;
    int64_t row = o->k_major ? outer : k, column = o->k_major ? k : outer;   // from its start, at a whole pattern, on
    int64_t start = 0;
    if (o->k_major && expr_const(o->column, &start)) column += start;   // (or at a part of a panel)
    // A matrix descriptor starts at a swizzle pattern, whose place in the panel must not get lost, or within its first row,
    // which the swizzle leaves as it is.
    int64_t within = column % o->panels.columns;
    EXPECT(lower->context->failure,
           o->panels.swizzle && row % tma_facts.swizzle_rows == 0 && (o->k_major || within == 0),
           "an operand at [%lld, %lld] of '%s', whose panels are [%lld, %lld]", (long long)row, (long long)column,
           o->region->buf->name, (long long)o->panels.rows, (long long)o->panels.columns);
    Expr *first = e_plus(arena, o->column, -start);
    Expr *panel = e_plus(arena, e_over(arena, first, o->panels.columns), column / o->panels.columns);
    Expr *eight = e_plus(arena, e_over(arena, o->row, tma_facts.swizzle_rows), row / tma_facts.swizzle_rows);
    Expr *in_row = e_int(arena, within);
    if (o->share && o->k_major) eight = e_add(arena, e_times(arena, o->share, o->shared / 8), eight);
    else if (o->share) {
        Expr *columns = e_times(arena, o->share, o->shared);
        panel = e_add(arena, e_over(arena, columns, o->panels.columns), panel);
        in_row = e_add(arena, e_rem(arena, columns, o->panels.columns), in_row);
    }
    Buf *tile = o->region->buf;
    Expr *indices[LAYOUT_MAX_RANK];
    int count = 0;
    while (count < tile->stage_dims) indices[count] = lower_expr(lower, o->region->dims[count].start), count++;
    indices[count++] = lower_simple(lower, panel);
    indices[count++] = lower_simple(lower, eight);
    indices[count++] = lower_simple(lower, in_row);
    return arg_region(lower_in_image(lower, tile, count, indices));
}

static void set_described(Lower *lower, const Described *o, Arg *out) {
    out[0] = arg_name(arena_printf(lower->arena, "%s%d", o->k_major ? "k" : "mn", o->panels.swizzle));
    out[1] = arg_int(lower->arena, o->lead);
    out[2] = arg_int(lower->arena, o->stride);
    out[3] = arg_int(lower->arena, o->step);
}

typedef struct Products {   // of one warpgroup
    Lower *lower;
    GemmOp gemm;
    Span loc;
    WgmmaInfo info;
    Described a, b;
    bool registers;   // a is in registers
    int64_t strips;
} Products;

static Arg left_operand(Products *p, int64_t strip, int64_t k) {
    Lower *lower = p->lower;
    const Region *a = p->gemm.a;
    int64_t group = target_warpgroup(lower->target);
    if (!p->registers) return operand_place(lower, &p->a, strip * p->info.m, k);
    int64_t column = a->dims[1].start->integer + k;
    Expr *first = e_int(lower->arena, (strip * buf_extent(a->buf, 1) + column) * p->info.m / group);
    return arg_element(lower->arena, lower_local(lower, a->buf), first);
}

// `columns` of the accumulator from `from` on: those of one instruction.
static void push_run(Products *p, int64_t strip, int64_t from, int64_t columns, int64_t k, int64_t steps, Block *out) {
    Lower *lower = p->lower;
    Arena *arena = lower->arena;
    const WgmmaInfo *info = &p->info;
    bool mixed = strcmp(info->a_type, info->b_type) != 0;
    const char *shape = arena_printf(arena, "m%dn%dk%d_%s_%s%s%s", info->m, (int)columns, info->k, info->acc_type,
                                     info->a_type, mixed ? "_" : "", mixed ? info->b_type : "");
    Expr *first = e_int(arena, (strip * info->n + from) * info->m / target_warpgroup(lower->target));
    Arg args[OPERAND_INDEX(WGMMA, end)] = {
        arg_name(shape), left_operand(p, strip, k), operand_place(lower, &p->b, from, k),
        arg_element(arena, lower_local(lower, p->gemm.acc->buf), first), arg_int(arena, steps)};
    if (!p->registers) set_described(lower, &p->a, &args[OPERAND_INDEX(WGMMA, a_form)]);
    set_described(lower, &p->b, &args[OPERAND_INDEX(WGMMA, b_form)]);
    if (k == 0) args[OPERAND_INDEX(WGMMA, accumulate)] = arg_value(p->gemm.accumulate);
    block_call(arena, out, p->loc, OP_WGMMA, COUNT_OF(args), args);
}

static void push_runs(Products *p, int64_t strip, int64_t k, int64_t steps, Block *out) {
    for (int64_t from = 0; from < p->info.n; from += WGMMA_COLUMNS) {
        int64_t rest = p->info.n - from;
        push_run(p, strip, from, rest < WGMMA_COLUMNS ? rest : WGMMA_COLUMNS, k, steps, out);
    }
}

// The strips and columns of this warpgroup.
static void share(Products *p, const Stmt *gemm) {
    Lower *lower = p->lower;
    Arena *arena = lower->arena;
    WgmmaSplit split;
    bool shared = wgmma_split(arena, lower->target, gemm, warpgroups_of(lower), &p->info, &split);
    EXPECT(lower->context->failure, shared, "a product that %lld warpgroups do not share",
           (long long)warpgroups_of(lower));
    p->strips = region_extent(p->gemm.acc, 0) / p->info.m / split.m;
    p->a.shared = p->strips * p->info.m;
    p->b.shared = region_extent(p->gemm.acc, 1) / split.n;
    Expr *number = lower->warpgroup ? e_var(arena, lower->warpgroup) : NULL;
    if (split.m > 1) p->a.share = split.n > 1 ? e_rem(arena, number, split.m) : number;
    if (split.n > 1) p->b.share = split.m > 1 ? e_over(arena, number, split.m) : number;
}

// Both operands must have k in the same order.
static void check_order(const Products *p, const Stmt *gemm) {
    Lower *lower = p->lower;
    const Buf *a = p->gemm.a->buf;
    if (!p->registers) return;
    const Layout *layout =
        fragment_wgmma_a(lower->arena, lower->kernel, gemm, &p->info, warpgroups_of(lower), lower->threads);
    EXPECT(lower->context->failure, a->layout && layout_equal(a->layout, layout),
           "a product of '%s' with '%s', which have k in different orders", a->name, p->gemm.b->buf->name);
}

// By the previous gemm: nothing has touched registers since.
static bool is_fenced(const Block *out) {
    for (int i = out->count - 1; i >= 0; i--) {
        const Stmt *stmt = out->items[i];
        bool orders = is_call(stmt, OP_BARRIER) || is_call(stmt, OP_FENCE_ASYNC);   // what goes through shared memory
        if (!orders && stmt->kind != STMT_LET) return is_call(stmt, OP_WGMMA_COMMIT);
        if (stmt->kind == STMT_LET && expr_reads_memory(stmt->let.value)) return false;
    }
    return false;
}

void lower_wgmma(Lower *lower, const Stmt *stmt, Block *out) {
    Arena *arena = lower->arena;
    Products p = {.lower = lower, .gemm = gemm_of(stmt), .loc = stmt->loc};
    if (!is_possible(lower, stmt, wgmma_problem(arena, lower->target, stmt, &p.info))) return;
    int64_t k = region_extent(p.gemm.a, 1), run = k;
    p.registers = p.gemm.a->buf->scope == SCOPE_FRAGMENT;
    if (!p.registers) p.a = described(lower, stmt, false, &p.info);
    p.b = described(lower, stmt, true, &p.info);
    share(&p, stmt);
    check_order(&p, stmt);
    if (!p.registers && p.a.k_major) run = p.a.panels.columns;
    if (p.b.k_major && p.b.panels.columns < run) run = p.b.panels.columns;
    EXPECT(lower->context->failure, run > 0 && run % p.info.k == 0, "%lld columns of k in a panel", (long long)run);
    if (!is_fenced(out)) block_call(arena, out, stmt->loc, OP_WGMMA_FENCE, 0, NULL);
    for (int64_t at = 0; at < k; at += run)
        for (int64_t strip = 0; strip < p.strips; strip++)
            push_runs(&p, strip, at, (run < k - at ? run : k - at) / p.info.k, out);
    block_call(arena, out, stmt->loc, OP_WGMMA_COMMIT, 0, NULL);
    if (!stmt->call.is_async) BLOCK_CALL(arena, out, stmt->loc, OP_WGMMA_WAIT, arg_int(arena, 0));
}
