// split-k: the steps of a product's loop, shared by the blocks of a cluster.
//
// Where a product has few tiles and many steps, most multiprocessors have nothing to do. `@split(S)` on a kernel (the choice of
// tiles puts it there, or whoever writes it) makes each tile the work of S blocks: a cluster, of which each block takes a
// stretch of the steps.
// The partial tiles then meet in the blocks' shared memory, and each block adds up its share of the rows, always in the order of
// the blocks: the same bits in every run, without workspace and without a second launch.
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
//                                                       sum[i, j] = peer(part[s * BM / 4 + i, j], 0) + peer(.., 1) + ..;
//                                                   cluster_barrier();                 nobody goes while others read
//         copy(acc, C[bm * BM, bn * BN]);           copy(sum, C[bm * BM + s * BM / 4, bn * BN]);
//     }                                         }
//
// Where the blocks are no divisor of the rows, the last of them add nothing: of 6 blocks with 64 rows 4 have 16 rows each, `if (s < 4)`.
//
// It is a rewriting of the tile program: roles, layouts and barriers come from the passes that follow.
#include "passes/split_k.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/lower.h"
#include "passes/util.h"

typedef struct Parts {
    int loop, store;   // of the grid's body
    Buf *acc;
    int64_t rows, columns;   // of acc
} Parts;

// The loop does nothing but copy and multiply into one accumulator.
static bool loop_serves(const Stmt *loop, Parts *parts) {
    const Iter *iter = &loop->loop.iters[0];
    if (loop->loop.count != 1 || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
    for (int i = 0; i < loop->loop.body.count; i++) {
        const Stmt *stmt = loop->loop.body.items[i];
        if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) continue;
        if (is_call(stmt, OP_COPY) && stmt->call.args[COPY_TO].region->buf->scope == SCOPE_SHARED) continue;
        if (!is_call(stmt, OP_GEMM) || stmt->call.count <= GEMM_ACC) return false;
        for (int a = GEMM_ACC + 1; a < stmt->call.count; a++)
            if (stmt->call.args[a].value || stmt->call.args[a].name) return false;
        Buf *acc = stmt->call.args[GEMM_ACC].region->buf;
        if (parts->acc && parts->acc != acc) return false;
        parts->acc = acc;
    }
    return parts->acc != NULL;
}

static bool is_whole_fragment(const Region *region, const Buf *buf) {
    return region->buf == buf && region_is_whole(region) && !region->transposed;
}

// What stands outside of the loop: declarations, scalars, the fill before it, and one store behind it.
static bool find_parts(const Func *kernel, Parts *parts) {
    const Stmt *grid = func_grid(kernel);
    *parts = (Parts){.loop = -1, .store = -1};
    if (!grid || kernel->stage != STAGE_TILE || func_cluster(kernel) > 1 || grid->grid.count > 2) return false;
    const Block *body = &grid->grid.body;
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        bool pipelined = stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PIPELINED;
        if (stmt->kind == STMT_DECL || stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) continue;
        if (pipelined && parts->loop < 0 && loop_serves(stmt, parts)) parts->loop = i;
        else if (is_call(stmt, OP_COPY) && parts->loop >= 0 && parts->store < 0) parts->store = i;
        else if (!is_call(stmt, OP_FILL) || parts->loop >= 0) return false;
    }
    if (parts->loop < 0 || parts->store < 0) return false;
    const Region *from = body->items[parts->store]->call.args[COPY_FROM].region;
    const Region *to = body->items[parts->store]->call.args[COPY_TO].region;
    if (!is_whole_fragment(from, parts->acc) || parts->acc->rank != 2 || to->buf->scope != SCOPE_GLOBAL) return false;
    parts->rows = buf_extent(parts->acc, 0);
    parts->columns = buf_extent(parts->acc, 1);
    return region_rank(to) == 2;
}

bool can_split(const Target *target, const Func *kernel, int blocks) {
    Parts parts;
    return blocks > 1 && blocks <= target->max_cluster && find_parts(kernel, &parts) && parts.rows >= blocks;
}

// So many of the blocks add up equal shares of the rows.
static int adders_of(const Parts *parts, int blocks) {
    while (parts->rows % blocks != 0) blocks--;
    return blocks;
}

int64_t split_bytes(const Func *kernel) {
    Parts parts;
    return find_parts(kernel, &parts) ? parts.rows * parts.columns * type_bytes(parts.acc->type) : 0;
}

// ---- the rewriting ----

typedef struct Split {
    Arena *arena;
    Parts parts;
    int blocks;
    Stmt *grid;
    Var *rank;
} Split;

// One stretch of the steps: whoever reads on in a row finds it open in memory (1 to 5 % faster than every S-th step).
static void split_loop(Split *s, Stmt *loop) {
    Arena *a = s->arena;
    Iter *iter = &loop->loop.iters[0];
    Expr *rank = e_var(a, s->rank), *blocks = e_int(a, s->blocks);
    Subst *subst = subst_new(a);
    Var *own = var_new(a, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
    Expr *chunk = e_call2(a, OP_CEILDIV, iter->end, blocks);
    subst_var(subst, iter->var, e_add(a, e_mul(a, rank, chunk), e_var(a, own)));
    Block body = {0};
    clone_block(a, subst, &loop->loop.body, &body);
    loop->loop.body = body;
    iter->var = own;
    iter->end = e_min(a, chunk, e_max(a, e_sub(a, iter->end, e_mul(a, rank, chunk)), e_int(a, 0)));
}

static void push_barrier(Split *s, Block *out) {
    block_push(s->arena, out, s_call(s->arena, OP_CLUSTER_BARRIER, 0, NULL));
}

static void push_when(Split *s, Expr *condition, Stmt *stmt, Block *out) {
    Stmt *branch = condition ? s_if(s->arena, condition) : NULL;
    if (branch) branch->loc = stmt->loc;
    block_push(s->arena, branch ? &branch->if_.then : out, stmt);
    if (branch) block_push(s->arena, out, branch);
}

// sum[i, j] = peer(part[first + i, j], 0) + peer(.., 1) + ..
static void push_sums(Split *s, Buf *part, Buf *sum, Expr *first, Expr *adds, Block *out) {
    Arena *a = s->arena;
    Var *i = var_new(a, "i", VAR_ITER, TYPE_I64, s->grid->loc), *j = var_new(a, "j", VAR_ITER, TYPE_I64, s->grid->loc);
    Stmt *loop = s_for(a, LOOP_PARALLEL, i, e_int(a, 0), sum->shape[0]);
    Iter iters[] = {loop->loop.iters[0], {j, e_int(a, 0), sum->shape[1], e_int(a, 1)}};
    loop->loop.iters = arena_copy(a, iters, sizeof iters);
    loop->loop.count = COUNT_OF(iters);
    loop->loc = s->grid->loc;
    Expr *from[] = {e_add(a, first, e_var(a, i)), e_var(a, j)}, *to[] = {e_var(a, i), e_var(a, j)}, *value = NULL;
    for (int rank = 0; rank < s->blocks; rank++) {
        Arg args[] = {arg_region(region_element(a, part, COUNT_OF(from), from)), arg_value(e_int(a, rank))};
        Expr *term = e_call(a, OP_PEER, COUNT_OF(args), args);
        value = value ? e_add(a, value, term) : term;
    }
    block_push(a, &loop->loop.body, s_store(a, sum, COUNT_OF(to), to, value));
    push_when(s, adds, loop, out);
}

// So many rows of the accumulator's place.
static Region *share_of(Split *s, const Region *region, Expr *first, Expr *rows) {
    Region *share = clone_region(s->arena, NULL, region);
    int kept = 0, wanted = region->transposed ? 1 : 0;   // of two
    for (int d = 0; d < share->count; d++) {
        RegionDim *dim = &share->dims[d];
        if (!dim->extent || kept++ != wanted) continue;
        dim->start = e_add(s->arena, dim->start, first);
        expr_const(rows, &dim->tile);
        dim->extent = rows;
    }
    return share;
}

static void push_shares(Split *s, const Stmt *store, Block *out) {
    Arena *a = s->arena;
    const Buf *acc = s->parts.acc;
    int adders = adders_of(&s->parts, s->blocks);
    Expr *rows = e_int(a, s->parts.rows / adders), *first = e_mul(a, e_var(a, s->rank), rows);
    Expr *adds = adders < s->blocks ? e_lt(a, e_var(a, s->rank), e_int(a, adders)) : NULL;
    Expr *shape[] = {rows, acc->shape[1]};
    Buf *part = buf_new(a, "part", SCOPE_SHARED, acc->type, 2, acc->shape, acc->loc);
    Buf *sum = buf_new(a, "sum", SCOPE_FRAGMENT, acc->type, 2, shape, acc->loc);
    attr_set_ints(a, &part->attrs, ATTR_SCRATCH, 0, NULL);
    Stmt *keep = s_call(a, OP_COPY, 2, (Arg[]){store->call.args[COPY_FROM], arg_region(region_whole(a, part))});
    Stmt *share = s_call(a, OP_COPY, 2,
                         (Arg[]){arg_region(region_whole(a, sum)),
                                 arg_region(share_of(s, store->call.args[COPY_TO].region, first, rows))});
    keep->loc = share->loc = store->loc;
    block_push(a, out, s_decl(a, part));
    block_push(a, out, keep);
    push_barrier(s, out);
    block_push(a, out, s_decl(a, sum));
    push_sums(s, part, sum, first, adds, out);
    push_barrier(s, out);
    push_when(s, adds, share, out);
}

void split_kernel(Arena *arena, Func *kernel, int blocks) {
    Split s = {.arena = arena, .blocks = blocks, .grid = (Stmt *)func_grid(kernel)};
    find_parts(kernel, &s.parts);
    Block out = {0}, *body = &s.grid->grid.body;
    s.rank = var_new(arena, "s", VAR_ITER, TYPE_I64, s.grid->loc);
    for (int i = 0; i < body->count; i++) {
        if (i == s.parts.loop) split_loop(&s, body->items[i]);
        if (i == s.parts.store) push_shares(&s, body->items[i], &out);
        else block_push(arena, &out, body->items[i]);
    }
    *body = out;
    Iter *iters = NEW_ARRAY(arena, Iter, s.grid->grid.count + 1);
    iters[0] = (Iter){s.rank, e_int(arena, 0), e_int(arena, blocks), e_int(arena, 1)};
    for (int i = 0; i < s.grid->grid.count; i++) iters[i + 1] = s.grid->grid.iters[i];
    s.grid->grid.iters = iters;
    s.grid->grid.count++;
    s.grid->grid.cluster[0] = blocks;
    s.grid->grid.cluster[1] = s.grid->grid.cluster[2] = 1;
    s.grid->grid.persistent = false;
    s.grid->grid.raster = NULL;
    s.grid->grid.hilbert = false;
}

bool pass_split_k(PassContext *context, Func *kernel) {
    int blocks = (int)attr_int(kernel->attrs, ATTR_SPLIT, 1);
    if (!attr_get(kernel->attrs, ATTR_SPLIT)) return false;
    attr_remove(&kernel->attrs, ATTR_SPLIT);
    if (can_split(context->target, kernel, blocks)) split_kernel(context->arena, kernel, blocks);
    return true;
}
