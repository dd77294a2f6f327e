// Functions of the calculator on tiles: shared memory, views, TMA, tiled copies.
#include "layout/calculator/access_cost.h"
#include "layout/calculator/functions.h"
#include "layout/calculator/tiled_copy.h"
#include "layout/calculator/tma.h"
#include "support/numbers.h"
#include <string.h>

// ---- shared and global memory ----

CalcValue f_bank_swizzle(Calc *c, const CalcValue *v, int count) {
    (void)count;
    BankTile tile = {as_int(c, v[0]), as_int(c, v[1]), as_small(c, v[2]), as_small(c, v[3])};
    return c->cx->failed ? v[0] : of_swizzled(bank_swizzle(c->cx, tile));
}

CalcValue f_padded(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_cute(padded_rows(c->cx, as_int(c, v[0]), as_int(c, v[1]), as_int(c, v[2])));
}

static int lane_bytes(Calc *c, const CalcValue *v, int64_t *addresses, int *lanes) {
    enum { WARP = 32 };
    Swizzled a = as_swizzled(c, v[0]);
    int64_t size = cute_size(c->cx, a.layout), bytes = as_int(c, v[1]);
    if (size > WARP) layout_refuse(c->cx, "a warp has %d lanes", WARP);
    if (bytes < 1 || bytes > 16 || log2_exact(bytes) < 0) layout_refuse(c->cx, "a lane moves 1, 2, 4, 8 or 16 bytes");
    *lanes = c->cx->failed ? 0 : (int)size;
    for (int lane = 0; lane < *lanes; lane++) {
        addresses[lane] = swizzled_at(a, lane);
        if (addresses[lane] % bytes) layout_refuse(c->cx, "lane %d's address is not a multiple of its bytes", lane);
    }
    return (int)bytes;
}
CalcValue f_wavefronts(Calc *c, const CalcValue *v, int count) {
    (void)count;
    int64_t addresses[32];
    int lanes, bytes = lane_bytes(c, v, addresses, &lanes);
    if (c->cx->failed) return v[0];
    SharedCost cost = shared_cost_counted(addresses, lanes, bytes, nvidia_memory);
    return of_text(
        arena_printf(c->cx->arena, "%lld, without conflicts %lld", (long long)cost.wavefronts, (long long)cost.phases));
}
CalcValue f_sectors(Calc *c, const CalcValue *v, int count) {
    (void)count;
    int64_t addresses[32];
    int lanes, bytes = lane_bytes(c, v, addresses, &lanes);
    return c->cx->failed ? v[0] : of_int(sectors_counted(c->cx, addresses, lanes, bytes, nvidia_memory));
}

// ---- views ----

// The coordinate of a zipped division: `at` for one of its modes, all of the other.
static Tuple zipped_at(Calc *c, Cute zipped, Tuple at, bool of_rest) {
    int rank = cute_rank(zipped.modes[0]);
    Tuple any[ENCODING_MAX_RANK];
    for (int i = 0; i < ENCODING_MAX_RANK; i++) any[i] = (Tuple){.kind = TUPLE_ANY};
    if (rank > ENCODING_MAX_RANK) layout_refuse(c->cx, "more than %d dims", ENCODING_MAX_RANK);
    if (c->cx->failed) return at;
    Tuple all = zipped.modes[0].rank == CUTE_LEAF ? any[0] : tuple_list(c->cx, any, rank);
    return tuple_list(c->cx, of_rest ? (Tuple[]){all, at} : (Tuple[]){at, all}, 2);
}

static CalcValue sliced(Calc *c, Swizzled a, Tuple coordinate) {
    int64_t offset = 0;
    if (!c->cx->failed) a.layout = cute_slice(c->cx, a.layout, coordinate, &offset);
    if (!c->cx->failed) a.base = layout_sum(c->cx, a.base, offset);
    return of_swizzled(a);
}
CalcValue f_vectorize(Calc *c, const CalcValue *v, int count) {
    return f_zipped_divide(c, v, count);
}
CalcValue f_tile(Calc *c, const CalcValue *v, int count) {
    (void)count;
    CalcValue tiles = f_zipped_divide(c, v, 2);
    if (c->cx->failed) return v[0];
    return sliced(c, tiles.layout, zipped_at(c, tiles.layout.layout, as_tuple(c, v[2]), true));
}

static Tuple mode_sizes(LayoutContext *cx, Cute a) {
    Tuple *sizes = NEW_ARRAY(cx->arena, Tuple, cute_rank(a));
    for (int i = 0; i < cute_rank(a); i++) sizes[i] = tuple_int(cute_size(cx, cute_mode(a, i)));
    return a.rank == CUTE_LEAF ? sizes[0] : tuple_list(cx, sizes, a.rank);
}
// A thread's coordinate is where its number stands in the layout of the threads.
CalcValue f_distribute(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute threads = as_cute(c, v[1]);
    int64_t thread = as_int(c, v[2]);
    if (!c->cx->failed && thread >= cute_size(c->cx, threads)) layout_refuse(c->cx, "there is no such thread");
    Cute number = c->cx->failed ? threads : cute_right_inverse(c->cx, threads);
    if (!c->cx->failed && cute_size(c->cx, number) != cute_size(c->cx, threads))
        layout_refuse(c->cx, "the layout of the threads does not number them from 0");
    if (c->cx->failed) return v[0];
    Tuple shape = mode_sizes(c->cx, threads), at = cute_idx2crd(c->cx, shape, tuple_int(cute_at(number, thread)));
    CalcValue pieces = f_zipped_divide(c, (CalcValue[]){v[0], of_tuple(shape)}, 2);
    if (c->cx->failed) return v[0];
    return sliced(c, pieces.layout, zipped_at(c, pieces.layout.layout, at, false));
}

// ---- other element types ----

// Of elements n times as wide, and of those that are an n-th as wide, in the same memory: steps of less than an element
// become one, and stride 1 counts the parts of an element. Refused where n and a stride do not divide one another.

static Cute upcast_leaf(LayoutContext *cx, Cute a, int64_t n) {
    if (a.stride == 0) return a;
    int64_t within = ceil_div(n, a.stride);   // steps that stay within the wider element
    bool divides = n % a.stride == 0 || a.stride % n == 0;
    if (!divides || (a.shape % within && within % a.shape))
        return layout_refuse(cx, "%lld:%lld has no form in elements %lld times as wide", (long long)a.shape,
                             (long long)a.stride, (long long)n),
               a;
    return cute_leaf(ceil_div(a.shape, within), ceil_div(a.stride, n));
}

static Cute downcast_leaf(LayoutContext *cx, Cute a, int64_t n) {
    return a.stride == 1 ? cute_leaf(layout_mul(cx, a.shape, n), 1) : cute_leaf(a.shape, layout_mul(cx, a.stride, n));
}

static Cute each_leaf(LayoutContext *cx, Cute a, int64_t n, Cute (*change)(LayoutContext *, Cute, int64_t)) {
    if (a.rank == CUTE_LEAF) return change(cx, a, n);
    Cute *modes = NEW_ARRAY(cx->arena, Cute, a.rank);
    for (int i = 0; i < a.rank; i++) modes[i] = each_leaf(cx, a.modes[i], n, change);
    return (Cute){.rank = a.rank, .modes = modes};
}

static CalcValue recast_layout(Calc *c, Swizzled a, int from, int to) {
    if (from < 1 || to < 1 || (from % to && to % from))
        return layout_refuse(c->cx, "one width is a multiple of the other"), of_swizzled(a);
    int wide = to > from ? to / from : 1, narrow = from > to ? from / to : 1;
    if (a.base % wide) layout_refuse(c->cx, "the layout starts within an element of the other type");
    if (c->cx->failed) return of_swizzled(a);
    a.layout =
        wide > 1 ? each_leaf(c->cx, a.layout, wide, upcast_leaf) : each_leaf(c->cx, a.layout, narrow, downcast_leaf);
    a.base = layout_mul(c->cx, a.base / wide, narrow);
    if (a.swizzle.bits) a.swizzle = swizzle_recast(c->cx, a.swizzle, from, to);
    return of_swizzled(a);
}
CalcValue f_recast(Calc *c, const CalcValue *v, int count) {
    (void)count;
    int64_t from = as_int(c, v[1]), to = as_int(c, v[2]);
    if (from > 1024 || to > 1024) layout_refuse(c->cx, "widths are at most 1024 bits");
    if (c->cx->failed) return v[0];
    if (v[0].kind != CALC_SWIZZLE) return recast_layout(c, as_swizzled(c, v[0]), (int)from, (int)to);
    return (CalcValue){.kind = CALC_SWIZZLE, .swizzle = swizzle_recast(c->cx, v[0].swizzle, (int)from, (int)to)};
}
CalcValue f_upcast(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return f_recast(c, (CalcValue[]){v[0], of_int(1), v[1]}, 3);
}
CalcValue f_downcast(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return f_recast(c, (CalcValue[]){v[0], v[1], of_int(1)}, 3);
}

// ---- TMA: (extents), element bits, swizzle bytes ----

static TmaPlan plan_of(Calc *c, const CalcValue *v) {
    TmaTile tile = {.element_bits = as_small(c, v[1]), .span = as_small(c, v[2])};
    PerDim extents = {0};
    tile.rank = as_per_dim(c, v[0], extents);
    for (int d = 0; d < tile.rank && d < TMA_TILE_RANK; d++) tile.extent[d] = extents[d];
    return c->cx->failed ? (TmaPlan){.copies = 1} : tma_plan(c->cx, tile);
}
CalcValue f_tma(Calc *c, const CalcValue *v, int count) {
    (void)count;
    TmaPlan plan = plan_of(c, v);
    return c->cx->failed ? v[0] : of_swizzled(plan.layout);
}
CalcValue f_tma_box(Calc *c, const CalcValue *v, int count) {
    (void)count;
    TmaPlan plan = plan_of(c, v);
    Tuple box[TMA_TILE_RANK];
    int rank = c->cx->failed ? 0 : tuple_rank(as_tuple(c, v[0]));
    for (int d = 0; d < rank; d++) box[d] = tuple_int(plan.boxes.extent[d]);
    return of_tuple(tuple_list(c->cx, box, rank));
}
CalcValue f_im2col(Calc *c, const CalcValue *v, int count) {
    (void)count;
    PerDim padding, filter, dilation;
    int spatial = as_per_dim(c, v[0], padding);
    if (as_per_dim(c, v[1], filter) != spatial || as_per_dim(c, v[2], dilation) != spatial)
        layout_refuse(c->cx, "padding, filter and dilation have one number for each spatial dim");
    if (c->cx->failed) return v[0];
    TmaIm2col map = tma_im2col(c->cx, spatial, padding, filter, dilation);
    Tuple lower[3], upper[3];
    for (int d = 0; d < spatial && !c->cx->failed; d++) {
        lower[d] = tuple_int(map.lower[d]);
        upper[d] = tuple_int(map.upper[d]);
    }
    if (c->cx->failed) return v[0];
    Tuple corners[] = {tuple_list(c->cx, lower, spatial), tuple_list(c->cx, upper, spatial)};
    return of_tuple(tuple_list(c->cx, corners, 2));
}

// ---- tiled copies ----

CalcValue f_tiled_copy(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute threads = as_cute(c, v[0]), values = as_cute(c, v[1]);
    return c->cx->failed ? v[0] : of_cute(tiled_copy(c->cx, threads, values).tv);
}
// Operand's thread-value layout over the tile of a tiled MMA.
CalcValue f_operand_tv(Calc *c, const CalcValue *v, int count) {
    (void)count;
    const char *name = as_text(c, v[0]);
    int64_t extent[ENCODING_MAX_RANK];
    int rank = as_per_dim(c, v[1], extent);
    if (rank != 3 || !*name || !strchr("ABC", *name) || name[1])
        layout_refuse(c->cx, "expected \"A\", \"B\" or \"C\", and (m,n,k)");
    if (c->cx->failed) return v[1];
    MmaAtom atom = {extent[0],        extent[1],        extent[2],       cute_leaf(32, 1),
                    as_cute(c, v[2]), as_cute(c, v[3]), as_cute(c, v[4])};
    Cute atoms = as_cute(c, v[5]);
    Tiler permutation = count > 6 ? as_tiler(c, v[6]) : (Tiler){.kind = TILER_ANY};
    if (c->cx->failed) return v[1];
    TiledMma mma = tiled_mma(c->cx, atom, atoms, permutation);
    return of_cute(tiled_mma_tv(c->cx, mma, *name == 'A' ? OPERAND_A : *name == 'B' ? OPERAND_B : OPERAND_C));
}

CalcValue f_copy_tv(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute tv = as_cute(c, v[0]);
    Tuple tile = as_tuple(c, v[1]);
    int64_t values = as_int(c, v[2]);
    return c->cx->failed ? v[0] : of_cute(tiled_copy_steps(c->cx, tv, tile, values).tv);
}
CalcValue f_copy_tiler(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute tv = as_cute(c, v[0]);
    Tuple tile = as_tuple(c, v[1]);
    int64_t values = as_int(c, v[2]);
    if (c->cx->failed) return v[0];
    TiledCopySteps s = tiled_copy_steps(c->cx, tv, tile, values);
    return of_tiler(tiler_tuple(c->cx, (Tiler[]){tiler_layout(s.tiler[0]), tiler_layout(s.tiler[1])}, 2));
}
