// split-k: the CTAs of a cluster share the k steps of a tile.
//
// Where a product has few tiles and many steps, most multiprocessors are idle. `@split(cluster, S)` on a kernel (from the
// tile search, or from the source) lets a cluster of S CTAs compute each tile: each CTA does a range of the steps. The
// CTAs exchange partial tiles through shared memory, and each CTA adds up its share of the rows, always in the
// order of the CTAs: the same bits in every run, without workspace and without a second launch.
//
//     grid (bm in X, bn in Y) {                 grid (s in 4, bm in X, bn in Y) cluster (4, 1) {
//         fill(acc, 0);                             fill(acc, 0);
//         pipelined (k in n) {                      pipelined (k in min(each, n - s * each)) {      each = ceildiv(n, 4)
//             copy(A[.., k * BK], As);                  copy(A[.., (s * each + k) * BK], As);
//             copy(B[.., k * BK], Bs);                  copy(B[.., (s * each + k) * BK], Bs);
//             gemm(As, Bs.T, acc);                      gemm(As, Bs.T, acc);
//         }                                         }
//                                                   shared part: f32[BM, BN] @scratch;
//                                                   copy(acc, part);
//                                                   cluster_barrier();                 all parts are there
//                                                   fragment sum: f32[BM / 4, BN];
//                                                   parallel (i in BM / 4, j in BN)
//                                                       sum[i, j] = peer(part[s * BM / 4 + i, j], 0) + ..;
//                                                   cluster_barrier();                 no CTA exits while others read
//         copy(acc, C[bm * BM, bn * BN]);           copy(sum, C[bm * BM + s * BM / 4, bn * BN]);
//     }                                         }
//
// `parallel` loops that change the elements of acc before the copy change those of sum: each CTA does its rows. swap-operands comes
// afterwards and swaps the product alone: slices and sums keep the order of C, so that peers are read and C is written by rows.
//
// `@split(cluster, 2, 4, 8)` leaves the choice to the launch: S is then cluster_extent(0), and each number has sums of its own.
//
// A grid of `cluster (x)` has clusters of (S, x) CTAs: those with the same steps, of x tiles next to each other along the first name,
// read the same tile of B, which one of them loads for all (passes/grid/multicast.c). The tiles are then a multiple of x; those beyond
// the last one store nothing. `@cluster(x, 1)` leaves x to the launch, too: it is then cluster_extent(1).
//
// If the number of CTAs does not divide the rows, the last CTAs add nothing: of 6 CTAs with 64 rows, 4 have 16
// rows each, `if (s < 4)`.
//
// The pass rewrites the tile program; later passes add roles, layouts and barriers.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "passes/specialize/builder.h"
#include "passes/tile/k_loop.h"
#include "passes/tile/tile.h"
#include "support/numbers.h"
#include <string.h>

typedef struct KSlices {
    int loop, store;   // of the grid's body
    int epilogues;     // loops over the elements of acc between them
    Buf *acc;
    bool transposed;         // of the result, which acc is the transposed of
    int64_t rows, columns;   // of the result
} KSlices;

// The iterator of an epilogue that counts the rows of the accumulator, -1: none does.
static int row_iter(const Stmt *loop, const Buf *acc) {
    const Stmt *last = loop->loop.body.count ? loop->loop.body.items[loop->loop.body.count - 1] : NULL;
    if (!last || last->kind != STMT_STORE || last->store.buf != acc || acc->rank != 2) return -1;
    for (int i = 0; i < loop->loop.count; i++)
        if (expr_is_var(last->store.indices[0], loop->loop.iters[i].var)) return i;
    return -1;
}

typedef struct Element {
    const Buf *acc;
    const Var *row, *column;
    const Region *to;   // where the accumulator is stored
} Element;

static bool is_own_element(const Element *own, const Buf *buf, Expr *const *indices) {
    return buf == own->acc && expr_is_var(indices[0], own->row) && expr_is_var(indices[1], own->column);
}

static bool is_sum(const Expr *e, const Expr *start, const Var *var) {
    if (expr_is_int(start, 0) && expr_is_var(e, var)) return true;
    if (e->kind != EXPR_BINARY || e->binary.op != BIN_ADD) return false;
    return (expr_equal(e->binary.a, start) && expr_is_var(e->binary.b, var)) ||
           (expr_equal(e->binary.b, start) && expr_is_var(e->binary.a, var));
}

// Where the element is stored: another CTA may have written another place of the tensor already.
static bool is_own_place(const Element *own, Expr *const *indices) {
    bool transposed = own->to->transposed;
    const Var *vars[] = {transposed ? own->column : own->row, transposed ? own->row : own->column};
    int kept = 0;
    for (int d = 0; d < own->to->count; d++) {
        const RegionDim *dim = &own->to->dims[d];
        if (dim->extent ? !is_sum(indices[d], dim->start, vars[kept++]) : !expr_equal(indices[d], dim->start))
            return false;
    }
    return true;
}

static bool is_beyond_place(const Element *own, const Expr *load) {
    const Buf *buf = load->load.buf;
    if (buf->scope != SCOPE_GLOBAL) return !is_own_element(own, buf, load->load.indices);
    return !buf_is_constant(buf) && (buf->rank != own->to->buf->rank || !is_own_place(own, load->load.indices));
}

// What no share of the rows can have: elements of other fragments, of shared memory, and of what other CTAs write; calls
// with effects, and calls on regions.
static bool is_beyond_element(const Expr *e, const void *own) {
    if (e->kind == EXPR_LOAD) return is_beyond_place(own, e);
    if (e->kind != EXPR_CALL) return false;
    for (int a = 0; a < e->call.count; a++)
        if (e->call.args[a].region) return true;
    return expr_must_not_repeat(e) || !expr_is_pure(e);
}

static bool is_elementwise(const Stmt *stmt, const Element *own) {
    if (stmt->kind == STMT_LET) return !any_expr(stmt->let.value, is_beyond_element, own);
    bool stores = stmt->kind == STMT_STORE && is_own_element(own, stmt->store.buf, stmt->store.indices);
    return stores && !any_expr(stmt->store.value, is_beyond_element, own);
}

static bool counts(const Iter *iter, const Expr *extent) {
    return expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1) && expr_equal(iter->end, extent);
}

// `parallel (i in rows, j in columns) acc[i, j] = f(acc[i, j], tensors)`: each CTA runs it on the rows that it adds up.
static bool epilogue_serves(const Stmt *loop, const Buf *acc, const Region *to) {
    int row = is_loop(loop, LOOP_PARALLEL) && loop->loop.count == 2 ? row_iter(loop, acc) : -1;
    if (row < 0) return false;
    const Iter *rows = &loop->loop.iters[row], *columns = &loop->loop.iters[1 - row];
    if (!counts(rows, acc->shape[0]) || !counts(columns, acc->shape[1])) return false;
    Element own = {acc, rows->var, columns->var, to};
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (!is_elementwise(stmt, &own)) return false;
    return true;
}

// The copy of the whole accumulator to a tile of a tensor, all of whose rows are there.
static bool store_serves(const Stmt *stmt, const Buf *acc) {
    if (!is_call(stmt, OP_COPY) || acc->rank != 2) return false;
    CopyOp store = copy_of(stmt);
    bool whole = store.src->buf == acc && region_is_whole(store.src) && !store.src->transposed;
    if (!whole || store.dst->buf->scope != SCOPE_GLOBAL || region_rank(store.dst) != 2) return false;
    int rows = store.dst->transposed ? 1 : 0, kept = 0;   // acc's dim that has the result's rows
    for (int d = 0; d < store.dst->count; d++) {
        const RegionDim *dim = &store.dst->dims[d];
        if (dim->extent && kept++ == 0 && !expr_is_int(dim->extent, buf_extent(acc, rows))) return false;
    }
    return true;
}

// Outside of the loop: declarations and scalars, the fill before it, epilogues and the store behind it. Why the kernel
// is not of this form; NULL: it is.
static const char *find_pieces(Arena *arena, const Func *kernel, KSlices *slices) {
    const Stmt *grid = func_grid(kernel);
    KLoop k;
    const char *why = find_k_loop(arena, kernel, &k);
    *slices = (KSlices){.loop = k.loop, .store = -1, .acc = k.acc};
    if (why) return why;
    const Block *body = &grid->grid.body;
    for (int i = k.loop + 1; i < body->count; i++)
        if (slices->store < 0 && store_serves(body->items[i], slices->acc)) slices->store = i;
    if (slices->store < 0) return "no copy behind the loop takes all of the accumulator to a tile of a tensor";
    const Region *to = copy_of(body->items[slices->store]).dst;
    for (int i = k.loop + 1; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        if (i == slices->store || each_cta_runs(stmt)) continue;
        if (i > slices->store || !epilogue_serves(stmt, slices->acc, to))
            return "a `fill` of 0, a `pipelined` loop of copies and one gemm, `parallel` loops that change each element "
                   "of its result, and a `copy` of it are all that it takes";
        slices->epilogues++;
    }
    slices->transposed = to->transposed;
    slices->rows = buf_extent(slices->acc, to->transposed ? 1 : 0);
    slices->columns = buf_extent(slices->acc, to->transposed ? 0 : 1);
    return NULL;
}

static bool is_of_tile(const Expr *expr, const void *user) {
    (void)user;
    return expr->kind == EXPR_VAR && expr->var->kind != VAR_DIM && expr->var->kind != VAR_PARAM;
}

// A tile beyond the grid is computed, too: nothing relies on where a tile is, and nothing fails there.
bool split_serves_beyond(const Func *kernel) {
    FOR_EACH_STMT (stmt, &func_grid(kernel)->grid.body)
        if (stmt->kind == STMT_ASSUME && any_expr(stmt->assume, is_of_tile, NULL)) return false;
    FOR_EACH_ITEM (stmt, &func_grid(kernel)->grid.body)
        if (may_fail_beyond_grid(kernel, stmt)) return false;
    return true;
}

static const char too_many[] = "it is more than the CTAs of a cluster";

// Of a cluster whose shape the launch chooses.
static const char *shapes_refused(Arena *arena, const Target *target, const Stmt *grid, const TileSplit *split) {
    ClusterShapes shares = grid_cluster_shapes(arena, grid);
    int least = shares.count ? shares.items[0].extents[0] : 1;
    if (!split->more[0] && !shares.count) return NULL;
    VEC_EACH (const ClusterShape, share, &shares) least = (int)smaller(least, share->extents[0]);
    if (split->ctas * least > target->max_cluster) return too_many;
    for (int i = 0; i <= COUNT_OF(split->more); i++) {
        int ctas = i == 0 ? split->ctas : split->more[i - 1];
        if (ctas & (ctas - 1)) return "where a launch chooses the cluster, its numbers are powers of two";
    }
    return NULL;
}

const char *split_refused(Arena *arena, const Target *target, const Func *kernel, const TileSplit *split) {
    KSlices slices;
    const Stmt *grid = func_grid(kernel);
    bool chooses = grid && chooses_cluster(grid);
    int most = split_most(split);
    if ((grid && !chooses ? grid->grid.cluster[0] : 1) * most > target->max_cluster) return too_many;
    if (grid && (cluster_most(grid, 1) > 1 || (!chooses && grid->grid.cluster[2] > 1)))
        return "its CTAs share loads along the first name of the grid alone";
    if (grid && cluster_most(grid, 0) > 1 && !split_serves_beyond(kernel))
        return "what it does for a tile beyond the grid may fail, which a cluster with shared loads may have";
    const char *why = find_pieces(arena, kernel, &slices);
    if (!why && (most < 2 || slices.rows < most)) why = "each CTA adds up rows of the tile";
    return why ? why : shapes_refused(arena, target, grid, split);
}

// So many of the blocks add up equal shares of the rows.
static int adders_of(const KSlices *slices, int blocks) {
    while (slices->rows % blocks != 0) blocks--;
    return blocks;
}

int64_t split_registers(Arena *arena, const Target *target, const Func *kernel, int blocks) {
    KSlices slices;
    if (find_pieces(arena, kernel, &slices)) return 0;
    return ceil_div(slices.rows / adders_of(&slices, blocks) * slices.columns, target_warpgroup(target));
}

int64_t split_bytes(Arena *arena, const Func *kernel) {
    KSlices slices;
    return find_pieces(arena, kernel, &slices) ? 0 : slices.rows * slices.columns * type_bytes(slices.acc->type);
}

// ---- the rewriting ----

typedef struct Split {
    Arena *arena;
    KSlices slices;
    int blocks;
    Expr *count;    // the same, or as many as the launch chooses
    Expr *shares;   // CTAs of a cluster that share loads; NULL: each loads for itself
    Stmt *grid;
    Var *rank;
    Expr *first;    // the rank of the tile's first CTA in a cluster of several tiles; NULL: 0
    Expr *within;   // the tile is one of the grid; NULL: all are
} Split;

// Consecutive steps: their rows are open in DRAM (1 to 5 % faster than every S-th step).
static void split_loop(Split *s, Stmt *loop) {
    Arena *a = s->arena;
    Iter *iter = &loop->loop.iters[0];
    Expr *rank = e_var(a, s->rank);
    Subst *subst = subst_new(a);
    Var *own = var_new(a, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
    Expr *chunk = e_call2(a, OP_CEILDIV, iter->end, s->count);
    subst_var(subst, iter->var, e_add(a, e_mul(a, rank, chunk), e_var(a, own)));
    Block body = {0};
    clone_block(a, subst, &loop->loop.body, &body);
    loop->loop.body = body;
    iter->var = own;
    iter->end = e_min(a, chunk, e_max(a, e_sub(a, iter->end, e_mul(a, rank, chunk)), e_int(a, 0)));
}

static void push_when(Split *s, Expr *condition, Stmt *stmt, Block *out) {
    block_push(s->arena, out, condition ? s_if_only(s->arena, condition, stmt) : stmt);
}

// What others see of a tile.
static Expr *when_within(Split *s, Expr *adds) {
    return s->within ? e_both(s->arena, adds, s->within) : adds;
}

// sum[i, j] = peer(part[first + i, j], 0) + peer(.., 1) + ..
static void push_sums(Split *s, Buf *slice, Buf *sum, Expr *first, Expr *adds, Block *out) {
    Arena *a = s->arena;
    Var *i = var_new(a, "i", VAR_ITER, TYPE_I64, s->grid->loc), *j = var_new(a, "j", VAR_ITER, TYPE_I64, s->grid->loc);
    Stmt *loop = s_for(a, LOOP_PARALLEL, i, e_int(a, 0), sum->shape[0]);
    iter_insert(a, &loop->loop.iters, &loop->loop.count, 1, iter_new(a, j, sum->shape[1]));
    loop->loc = s->grid->loc;
    Expr *from[] = {e_add(a, first, e_var(a, i)), e_var(a, j)}, *to[] = {e_var(a, i), e_var(a, j)}, *value = NULL;
    for (int rank = 0; rank < s->blocks; rank++) {
        Expr *peer = s->first ? e_plus(a, s->first, rank) : e_int(a, rank);
        Expr *term = E_CALL(a, OP_PEER, arg_region(region_element(a, slice, COUNT_OF(from), from)), arg_value(peer));
        value = value ? e_add(a, value, term) : term;
    }
    block_push(a, &loop->loop.body, s_store(a, sum, COUNT_OF(to), to, value));
    push_when(s, adds, loop, out);
}

// So many rows of the result's place.
static Region *share_of(Split *s, const Region *region, Expr *first, Expr *rows) {
    Region *share = clone_region(s->arena, NULL, region);
    int kept = 0;   // of two
    share->transposed = false;
    for (int d = 0; d < share->count; d++) {
        RegionDim *dim = &share->dims[d];
        if (!dim->extent || kept++ > 0) continue;
        dim->start = e_add(s->arena, dim->start, first);
        expr_const(rows, &dim->tile);
        dim->extent = rows;
    }
    return share;
}

typedef struct Share {
    const Buf *acc;
    const Var *row;
    Expr *place;   // of the row in the tile
    Buf *sum;
    Expr *at[2];   // the element of `sum`
} Share;

// Rows are counted in the share where the sum is accessed, and in the tile elsewhere.
static Expr *place_in_tile(Mapper *mapper, Expr *expr) {
    const Share *share = mapper->user;
    if (expr->kind == EXPR_LOAD && expr->load.buf == share->acc) return e_load(mapper->arena, share->sum, 2, share->at);
    return expr_is_var(expr, share->row) ? share->place : NULL;
}

// Each element is that of the loop's iterators (epilogue_serves).
static void push_epilogue(Split *s, const Stmt *epilogue, Buf *sum, Expr *first, Expr *adds, Block *out) {
    Arena *a = s->arena;
    const Buf *acc = s->slices.acc;
    Stmt *loop = clone_stmt(a, subst_new(a), epilogue);
    int row = row_iter(loop, acc);
    if (s->slices.transposed) row = 1 - row;
    Iter *rows = &loop->loop.iters[row];
    Expr *i = e_var(a, rows->var), *j = e_var(a, loop->loop.iters[1 - row].var);
    Share share = {acc, rows->var, e_add(a, first, i), sum, {i, j}};
    Mapper mapper = {.arena = a, .replace = place_in_tile, .user = &share};
    rows->end = sum->shape[0];
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (stmt->kind == STMT_LET) stmt->let.value = map_expr(&mapper, stmt->let.value);
        else *stmt = *s_store(a, sum, 2, share.at, map_expr(&mapper, stmt->store.value));
    }
    push_when(s, when_within(s, adds), loop, out);
}

// Each CTA adds up its share of the rows, of `s->blocks` CTAs, and stores it.
static void push_sums_of(Split *s, const Block *body, Buf *slice, Block *out) {
    const Stmt *store = body->items[s->slices.store];
    Arena *a = s->arena;
    const Buf *acc = s->slices.acc;
    int adders = adders_of(&s->slices, s->blocks);
    Expr *rows = e_int(a, s->slices.rows / adders), *first = e_mul(a, e_var(a, s->rank), rows);
    Expr *adds = adders < s->blocks ? e_lt(a, e_var(a, s->rank), e_int(a, adders)) : NULL;
    Expr *shape[] = {rows, e_int(a, s->slices.columns)};
    Buf *sum = buf_new(a, "sum", SCOPE_FRAGMENT, acc->type, 2, shape, acc->loc);
    Stmt *share = s_copy(a, region_whole(a, sum), share_of(s, copy_of(store).dst, first, rows), store->loc);
    // (with it, addresses within the slice are seen to be contiguous)
    if (!expr_is_int(s->count, s->blocks))
        block_push(a, out, s_assume(a, e_lt(a, e_var(a, s->rank), e_int(a, s->blocks)), s->grid->loc));
    block_push(a, out, s_decl(a, sum));
    push_sums(s, slice, sum, first, adds, out);
    block_call(a, out, (Span){0}, OP_CLUSTER_BARRIER, 0, NULL);
    for (int i = s->slices.loop + 1; i < s->slices.store; i++)
        if (is_loop(body->items[i], LOOP_PARALLEL)) push_epilogue(s, body->items[i], sum, first, adds, out);
    push_when(s, when_within(s, adds), share, out);
}

// Where the launch chooses among several numbers of CTAs, text for each: a loop over CTAs would wait for one after the other.
static void push_choice(Split *s, const Block *body, Buf *slice, const TileSplit *split, int at, Block *out) {
    int next = at < COUNT_OF(split->more) ? split->more[at] : 0;
    s->blocks = at == 0 ? split->ctas : split->more[at - 1];
    if (next == 0) {
        push_sums_of(s, body, slice, out);
        return;
    }
    Stmt *chosen = s_if(s->arena, e_eq(s->arena, s->count, e_int(s->arena, s->blocks)));
    push_sums_of(s, body, slice, &chosen->if_.then);
    push_choice(s, body, slice, split, at + 1, &chosen->if_.otherwise);
    block_push(s->arena, out, chosen);
}

static void push_shares(Split *s, const Block *body, const TileSplit *split, Block *out) {
    Arena *a = s->arena;
    const Buf *acc = s->slices.acc;
    const Stmt *store = body->items[s->slices.store];
    Expr *shape[] = {e_int(a, s->slices.rows), e_int(a, s->slices.columns)};
    Buf *slice = buf_new(a, "slice", SCOPE_SHARED, acc->type, 2, shape, acc->loc);
    attr_set_ints(a, &slice->attrs, ATTR_SCRATCH, 0, NULL);
    block_push(a, out, s_decl(a, slice));
    Region *partial = region_whole(a, slice);
    partial->transposed = s->slices.transposed;
    block_push(a, out, s_copy(a, copy_of(store).src, partial, store->loc));
    block_call(a, out, (Span){0}, OP_CLUSTER_BARRIER, 0, NULL);
    if (s->shares) {
        Expr *tile = e_mod(a, e_var(a, s->grid->grid.iters[0].var), s->shares);
        s->first = block_let(a, out, "first", e_mul(a, tile, s->count), s->grid->loc);
    }
    push_choice(s, body, slice, split, 0, out);
}

// The shapes that a launch chooses among: each number of CTAs that share steps, with each that share loads.
static void add_shapes(Split *s, const TileSplit *split, const ClusterShapes *shares, int most) {
    for (int i = 0; i <= COUNT_OF(split->more); i++) {
        int ctas = i == 0 ? split->ctas : split->more[i - 1];
        if (ctas == 0) break;
        VEC_EACH (const ClusterShape, share, shares)
            if (ctas * share->extents[0] <= most) add_cluster_shape(s->arena, s->grid, ctas, share->extents[0]);
    }
}

// CTAs that share loads have neighbouring tiles along the first name: a multiple of their number.
static void want_whole_shares(Split *s) {
    Iter *iter = &s->grid->grid.iters[0];
    iter->end = e_mul(s->arena, e_call2(s->arena, OP_CEILDIV, iter->end, s->shares), s->shares);
}

// In place, of a kernel that can. `most`: CTAs of a cluster.
static void split_kernel(Arena *arena, Func *kernel, const TileSplit *split, int most) {
    Split s = {.arena = arena, .blocks = split->ctas, .grid = (Stmt *)func_grid(kernel)};
    EXPECT(arena_failure(arena), !find_pieces(arena, kernel, &s.slices), "'%s' cannot be split", kernel->name);
    int shared = cluster_most(s.grid, 0);
    ClusterShapes shares = grid_cluster_shapes(arena, s.grid);
    bool chooses = split->more[0] > 0 || shares.count > 0;
    s.count = chooses ? e_cluster_extent(arena, 0) : e_int(arena, split->ctas);
    if (shared > 1) s.shares = chooses ? e_cluster_extent(arena, 1) : e_int(arena, shared);
    const Iter *rows = &s.grid->grid.iters[0];
    if (shared > 1) s.within = e_lt(arena, e_var(arena, rows->var), rows->end);
    Block out = {0}, *body = &s.grid->grid.body;
    s.rank = var_new(arena, "s", VAR_ITER, TYPE_I64, s.grid->loc);
    for (int i = 0; i < body->count; i++) {
        if (i == s.slices.loop) split_loop(&s, body->items[i]);
        bool epilogue = i > s.slices.loop && is_loop(body->items[i], LOOP_PARALLEL);
        if (i == s.slices.store) push_shares(&s, body, split, &out);
        else if (!epilogue) block_push(arena, &out, body->items[i]);
    }
    *body = out;
    if (s.shares) want_whole_shares(&s);
    iter_insert(arena, &s.grid->grid.iters, &s.grid->grid.count, 0, iter_new(arena, s.rank, s.count));
    drop_cluster_shapes(s.grid);
    if (shares.count == 0) vec_push(arena, &shares, ((ClusterShape){{shared, 1}}));
    if (chooses) add_shapes(&s, split, &shares, most);
    const Attr *first = attr_get(s.grid->attrs, ATTR_CLUSTER);
    s.grid->grid.cluster[0] = first ? (int)first->args[0].integer : split->ctas;
    s.grid->grid.cluster[1] = first ? (int)first->args[1].integer : shared;
    set_order(arena, s.grid, (TileOrder){0});
    set_claim(arena, s.grid, (TileClaim){0});
}

Func *split_clone(Arena *arena, const Func *kernel, int ctas) {
    Func *clone = clone_func(arena, kernel);
    split_kernel(arena, clone, &(TileSplit){.kind = SPLIT_CLUSTER, .ctas = ctas}, MOST_CLUSTER);
    return clone;
}

bool pass_split_k(PassContext *context, Func *kernel) {
    TileSplit split = kernel_split(kernel);
    if (split.kind != SPLIT_CLUSTER) return false;
    set_split(context->arena, kernel, (TileSplit){0});
    const char *why = split_refused(context->arena, context->target, kernel, &split);
    int64_t tiles = why ? 0 : buffer_bytes(context->arena, context->target, kernel);
    if (!why && tiles + split_bytes(context->arena, kernel) > context->target->shared_block)
        why = "the sums of its CTAs need more shared memory than its tiles leave: use smaller tiles or fewer stages";
    if (why) REMARK(context, kernel->loc, T_GRID_HINT, "@split", why);
    else split_kernel(context->arena, kernel, &split, context->target->max_cluster);
    return true;
}

// ---- blocks anywhere ----
//
// A cluster has few blocks, and for all of them to begin together there must be room. For the longest loops as many
// blocks as the device runs at once share the steps of a tile, in two launches: of partial tiles into workspace, and of
// their sums, part after part.
//
//     program gemm(A, B, C) when (.. && this costs less) {
//         let parts = max(min(sms() / tiles, steps / 8), 1);
//         scratch part: f32[parts, M, N];
//         gemm__split_k_64x64(A, B, slice);    grid (bm in X, bn in Y, s in slices): the loop as above, copy(acc, slice[s, ..]);
//         gemm__split_k_reduce(slice, C);
//     }

// The result: a whole tensor, of which tiles are stored.
static const Param *result_of(const Func *kernel, const KSlices *slices) {
    const Region *to = copy_of(func_grid(kernel)->grid.body.items[slices->store]).dst;
    int uses = 0;
    const Param *result = NULL;
    VEC_EACH (const Param, param, &kernel->params) {
        uses += param->buf && !buf_is_constant(param->buf);
        if (param->buf == to->buf) result = param;
    }
    if (!result || uses != 1 || to->transposed || to->buf->rank != 2 || to->buf->strides) return NULL;
    if (to->buf->mode != MODE_OUT || !to->dims[0].extent || !to->dims[1].extent) return NULL;
    for (int d = 0; d < 2; d++)   // (the workspace's shape has to tell the launch what they are)
        if (to->buf->shape[d]->kind != EXPR_VAR) return NULL;
    return result;
}

// Names that are added to the kernel's, and by which a launch knows values: dims and parameters.
static bool has_names(const Func *kernel) {
    static const char *const added[] = {"slice", "slices", "S"};
    bool has = false;
    for (int n = 0; n < COUNT_OF(added); n++) {
        has |= func_dim(kernel, added[n]) != NULL;
        VEC_EACH (const Param, param, &kernel->params) {
            has |= strcmp(param->buf ? param->buf->name : param->var->name, added[n]) == 0;
        }
    }
    return has;
}

// For all tiles, by what a launch knows. NULL: there is none.
static Expr *launch_steps(Arena *arena, const Func *kernel, const KSlices *slices) {
    const Block *body = &func_grid(kernel)->grid.body;
    return common_trips(arena, body, body->items[slices->loop]);
}

bool can_split_k_workspace(Arena *arena, const Func *kernel) {
    KSlices slices;
    if (grid_claim(func_grid(kernel)).kind == CLAIM_DYNAMIC) return false;
    return !find_pieces(arena, kernel, &slices) && !slices.epilogues && func_grid(kernel)->grid.count == 2 &&
           result_of(kernel, &slices) && !kernel->when && !has_names(kernel) && launch_steps(arena, kernel, &slices);
}

// f32[count, M, N] for a result [M, N].
static Buf *new_slices(Arena *arena, const KSlices *slices, Var *count, const Buf *result) {
    Expr *shape[] = {e_var(arena, count), result->shape[0], result->shape[1]};
    return buf_new(arena, "slice", SCOPE_GLOBAL, slices->acc->type, COUNT_OF(shape), shape, count->loc);
}

// f32[S, M, N] in the place of the result.
static Buf *slice_param(Arena *arena, Func *func, const KSlices *slices, Mode mode, Param *result) {
    Var *count = var_new(arena, "S", VAR_DIM, TYPE_I64, func->loc);
    Buf *slice = result->buf = new_slices(arena, slices, count, result->buf);
    slice->mode = mode;
    slice->is_param = true;
    vec_push(arena, &func->dims, count);
    return slice;
}

// What the kernels of both launches rely on, so that neither needs a variant that does without: the workspace is
// aligned.
static Expr *map_facts(Arena *arena, const Func *func) {
    Expr *all = NULL;
    VEC_EACH (const Param, param, &func->params) {
        Buf *buf = param->buf;
        if (!buf) continue;
        Expr *fact = aligned_fact(arena, buf, tma_facts.unit_bytes);
        int64_t elements = tma_facts.unit_bytes / type_bytes(buf->type);
        for (int d = 0; d < buf->rank; d++) {
            Expr *period = buf->strides ? buf->strides[d] : buf->shape[buf->rank - 1];
            Expr *whole = e_eq(arena, e_rem(arena, period, elements), e_int(arena, 0));
            if (d < buf->rank - 1) fact = e_and(arena, fact, whole);
            fact = e_and(arena, fact, e_lt(arena, e_int(arena, 0), buf->shape[d]));
            fact = e_and(arena, fact, e_lt(arena, buf->shape[d], e_int(arena, (int64_t)INT32_MAX + 1)));
        }
        all = e_both(arena, all, fact);
    }
    return all;
}

static const char *free_name(Arena *arena, const Module *module, const char *wanted) {
    const char *name = wanted;
    for (int n = 1; module_func(module, name); n++) name = arena_printf(arena, "%s_%d", wanted, n);
    return name;
}

static Func *slices_kernel(Arena *arena, const Module *module, const Func *kernel) {
    Func *func = clone_func(arena, kernel);
    Split s = {.arena = arena, .grid = (Stmt *)func_grid(func)};
    EXPECT(arena_failure(arena), !find_pieces(arena, func, &s.slices), "'%s' cannot be split", kernel->name);
    const char *name = arena_printf(arena, "%s__split_k_%lldx%lld", kernel->name, (long long)s.slices.rows,
                                    (long long)s.slices.columns);
    func->name = free_name(arena, module, name);
    Block *body = &s.grid->grid.body;
    Stmt *store = body->items[s.slices.store];
    const Region *to = copy_of(store).dst;
    Buf *slice = slice_param(arena, func, &s.slices, MODE_OUT, (Param *)result_of(func, &s.slices));
    func->when = map_facts(arena, func);
    func->cost = NULL;
    set_split(arena, func, (TileSplit){0});
    attr_remove(&func->attrs, ATTR_TILE_VARIANT);
    attr_set_ints(arena, &func->attrs, ATTR_GIVEN_FACTS, 0, NULL);
    s.count = slice->shape[0];
    s.rank = var_new(arena, "s", VAR_ITER, TYPE_I64, func->loc);
    split_loop(&s, body->items[s.slices.loop]);
    RegionDim dims[] = {{.start = e_var(arena, s.rank), .tile = 1}, to->dims[0], to->dims[1]};
    ARG(store, COPY, dst) = arg_region(region_new(arena, slice, dims, false, to->loc));
    iter_insert(arena, &s.grid->grid.iters, &s.grid->grid.count, s.grid->grid.count, iter_new(arena, s.rank, s.count));
    return func;
}

// The kernel of the second launch, without its body: `slice` is summed into the result.
static Func *new_sum_kernel(Arena *arena, const Module *module, const Func *kernel, const KSlices *pieces, Buf **slice,
                            Buf **out) {
    Func *func = clone_func(arena, kernel);
    Param result = *result_of(func, pieces), slices = result;
    func->name = free_name(arena, module, arena_printf(arena, "%s__split_k_reduce", kernel->name));
    func->params.count = func->dims.count = 0;
    func->attrs = NULL;
    func->cost = NULL;
    func->body = (Block){0};
    *slice = slice_param(arena, func, pieces, MODE_IN, &slices);
    *out = result.buf;
    for (int d = 0; d < 2; d++) vec_push(arena, &func->dims, result.buf->shape[d]->var);
    vec_push(arena, &func->params, slices);
    vec_push(arena, &func->params, result);
    func->when = map_facts(arena, func);
    return func;
}

// grid (b in ceildiv(N, columns), m in M) threads 32 {
//     fragment sum: f32[columns];
//     fill(sum, 0);
//     for (s in ceildiv(S, IN_FLIGHT)) {
//         fragment v: f32[IN_FLIGHT, columns];               loads in flight, since a use of one waits for all of them
//         copy(slice[s * IN_FLIGHT, m, b * columns], v);
//         reduce_sum(v, sum, axis = 0, accumulate = true);
//     }
//     copy(sum, C[m, b * columns]);
// }
static Func *sum_kernel(Arena *a, const Target *target, const Module *module, const Func *kernel,
                        const KSlices *slices) {
    enum { IN_FLIGHT = 8 };
    Buf *slice, *out;
    Func *func = new_sum_kernel(a, module, kernel, slices, &slice, &out);
    Type type = slices->acc->type;
    int64_t columns = target->warp_lanes * target->vector_bytes / type_bytes(type), v_shape[] = {IN_FLIGHT, columns};
    Expr *width = e_int(a, columns), *many = e_int(a, IN_FLIGHT);
    Var *b = var_new(a, "b", VAR_ITER, TYPE_I64, func->loc), *m = var_new(a, "m", VAR_ITER, TYPE_I64, func->loc);
    Var *step = var_new(a, "s", VAR_ITER, TYPE_I64, func->loc);
    Stmt *grid = stmt_new(a, STMT_GRID, func->loc);
    Iter iters[] = {iter_new(a, b, e_call2(a, OP_CEILDIV, out->shape[1], width)), iter_new(a, m, out->shape[0])};
    grid->grid.iters = arena_copy(a, iters, sizeof iters);
    grid->grid.count = COUNT_OF(iters);
    grid->grid.threads = e_int(a, target->warp_lanes);
    set_cluster(grid, 1);
    Buf *sum = buf_new_const(a, "sum", SCOPE_FRAGMENT, type, 1, &columns, func->loc);
    Buf *v = buf_new_const(a, "v", SCOPE_FRAGMENT, type, 2, v_shape, func->loc);
    RegionDim row = {.start = e_var(a, m), .tile = 1}, column = {e_mul(a, e_var(a, b), width), width, columns};
    RegionDim from[] = {{e_mul(a, e_var(a, step), many), many, IN_FLIGHT}, row, column}, to[] = {row, column};
    Arg sum_arg = arg_region(region_whole(a, sum)), v_arg = arg_region(region_whole(a, v));
    Stmt *loop = s_for(a, LOOP_SERIAL, step, e_int(a, 0), e_call2(a, OP_CEILDIV, slice->shape[0], many));
    Block *body = &grid->grid.body, *steps = &loop->loop.body;
    block_push(a, body, s_decl(a, sum));
    BLOCK_CALL(a, body, (Span){0}, OP_FILL, sum_arg, arg_value(e_zero(a, type)));
    block_push(a, steps, s_decl(a, v));
    block_push(a, steps, s_copy(a, region_new(a, slice, from, false, func->loc), v_arg.region, (Span){0}));
    BLOCK_CALL(a, steps, (Span){0}, OP_REDUCE_SUM, v_arg, sum_arg, arg_int(a, 0), arg_value(e_bool(a, true)), (Arg){0});
    block_push(a, body, loop);
    block_push(a, body, s_copy(a, sum_arg.region, region_new(a, out, to, false, func->loc), (Span){0}));
    block_push(a, &func->body, grid);
    return func;
}

// The first launch computes the slices: it has the program's arguments, with the slices in the place of the result. The
// second one, which sums them, has the slices and the result.
static void push_launch(Arena *arena, Func *program, Func *callee, const Buf *result, Buf *slice, bool sums) {
    Stmt *stmt = stmt_new(arena, STMT_LAUNCH, program->loc);
    Arg *args = NEW_ARRAY(arena, Arg, program->params.count + 1), slices = arg_region(region_whole(arena, slice));
    int count = 0;
    VEC_EACH (const Param, param, &program->params) {
        bool is_result = param->buf == result;
        if (sums && !is_result) continue;
        if (is_result) args[count++] = slices;
        if (param->buf && sums == is_result) args[count++] = arg_region(region_whole(arena, param->buf));
        if (param->var) args[count++] = arg_value(e_var(arena, param->var));
    }
    stmt->launch.callee = callee->name;
    stmt->launch.func = callee;
    stmt->launch.args = args;
    stmt->launch.count = count;
    EXPECT(arena_failure(arena), count == callee->params.count, "'%s' is launched with %d of %d arguments",
           callee->name, count, callee->params.count);
    block_push(arena, &program->body, stmt);
}

// As many parts of tiles of `steps` each as the device has room for at once.
static Expr *workspace_slices(Arena *arena, const Target *target, Expr *tiles, Expr *steps) {
    Expr *room = e_div(arena, e_sms(arena), e_max(arena, tiles, e_int(arena, 1)));
    Expr *worth = e_div(arena, steps, e_int(arena, target->wgmma.slice_steps));
    return e_max(arena, e_min(arena, room, worth), e_int(arena, 1));
}

SplitKWorkspace split_k_workspace(Arena *arena, const Target *target, const Module *module, const Func *kernel) {
    KSlices slices;
    Func *program = clone_func(arena, kernel);
    EXPECT(arena_failure(arena), !find_pieces(arena, program, &slices), "'%s' cannot be split", kernel->name);
    SplitKWorkspace workspace = {program, slices_kernel(arena, module, kernel),
                                 sum_kernel(arena, target, module, kernel, &slices)};
    const Stmt *grid = func_grid(program);
    const Buf *result = result_of(program, &slices)->buf;
    Var *count = var_new(arena, "slices", VAR_LET, TYPE_I64, program->loc);
    Expr *tiles = grid_tiles(arena, grid), *steps = launch_steps(arena, program, &slices);
    Stmt *let = s_let(arena, count, workspace_slices(arena, target, tiles, steps));
    Buf *slice = new_slices(arena, &slices, count, result);
    slice->is_scratch = true;
    program->kind = FUNC_PROGRAM;
    for (int i = 0; i < program->params.count; i++) attr_remove(&program->params.items[i].attrs, ATTR_INDEPENDENT);
    program->attrs = NULL;
    program->body = (Block){0};
    program->when = e_both(arena, program->when, map_facts(arena, program));
    block_push(arena, &program->body, let);
    block_push(arena, &program->body, s_decl(arena, slice));
    push_launch(arena, program, workspace.slices, result, slice, false);
    push_launch(arena, program, workspace.sum, result, slice, true);
    return workspace;
}
