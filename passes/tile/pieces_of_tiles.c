// Tiles that a loop fills piece by piece, as pages of a cache that are smaller than the tile:
//
//     pipelined (n in steps, stages = 2) {                 pipelined (n in steps, stages = 2) {
//         for (p in 4) {                                       parallel (i in 64, d in 128)
//             let page = table[b, n * 4 + p];          =>          Ks[i, d] = K[table[b, n * 4 + i / 16], i % 16, d];
//             copy(K[page, :, :], Ks[p * 16 +: 16, :]);
//         }
//
// Copies to pieces of a tile have no slots and no role that loads. The whole tile is one gather.
//
// It takes loops of a constant number of copies from tensors, and of lets; each copy goes to a tile of its own, and the pieces
// are all of it.
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

typedef struct Pieces {
    Arena *arena;
    bool pipelined;
} Pieces;

static bool loops_over_pieces(const Stmt *stmt, int64_t *count) {
    bool serial = is_loop(stmt, LOOP_SERIAL) || is_loop(stmt, LOOP_UNROLL);
    return serial && !stmt->attrs && stmt->loop.count == 1 && iter_is_plain(&stmt->loop.iters[0]) &&
           expr_const(stmt->loop.iters[0].end, count) && *count > 1;
}

// The dim along which piece p begins at p times its extent; the others are whole. -1: the pieces are not all of the tile.
static int pieces_dim(Arena *arena, const Region *to, Var *number, int64_t count) {
    int found = -1;
    for (int d = 0; d < to->count; d++) {
        const RegionDim *dim = &to->dims[d];
        int64_t extent, whole = buf_extent(to->buf, d);
        if (!dim->extent || !expr_const(dim->extent, &extent) || extent != dim->tile) return -1;
        if (expr_is_int(dim->start, 0) && extent == whole) continue;
        Expr *start = e_mul(arena, e_var(arena, number), e_int(arena, extent));
        if (found >= 0 || extent * count != whole || !expr_equal(dim->start, start)) return -1;
        found = d;
    }
    return found;
}

static Stmt *gather_of(Pieces *f, const Stmt *loop, int64_t count, Stmt *copy, Subst *lets) {
    Arena *a = f->arena;
    const Region *to = copy_of(copy).dst;
    Var *number = loop->loop.iters[0].var;
    int along = to->transposed ? -1 : pieces_dim(a, to, number, count);
    TileLoop piece;
    if (along < 0 || !tile_loop_of(a, copy, &piece) || piece.clip || piece.body.count != 1) return NULL;
    Stmt *whole = s_for(a, LOOP_PARALLEL, piece.iters[0], e_int(a, 0), e_int(a, 0));
    whole->loc = copy->loc;
    whole->loop.count = 0;
    Subst *at = subst_new(a);
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < piece.rank; d++) {
        Var *var = var_new(a, piece.iters[d]->name, VAR_ITER, TYPE_I64, copy->loc);
        iter_insert(a, &whole->loop.iters, &whole->loop.count, d, iter_new(a, var, e_int(a, buf_extent(to->buf, d))));
        indices[d] = e_var(a, var);
        Expr *extent = e_int(a, to->dims[d].tile);
        subst_var(at, piece.iters[d], d == along ? e_rem(a, indices[d], to->dims[d].tile) : indices[d]);
        if (d == along) subst_var(at, number, e_div(a, indices[d], extent));
    }
    Stmt *store = clone_stmt(a, subst_new(a), piece.body.items[0]);
    for (int d = 0; d < piece.rank; d++) store->store.indices[d] = indices[d];
    store->store.value = subst_expr(at, subst_expr(lets, store->store.value));
    block_push(a, &whole->loop.body, store);
    return whole;
}

// False: the loop stays.
static bool push_gathers(Pieces *f, const Stmt *loop, Block *out) {
    int64_t count;
    Block gathers = {0};
    Subst *lets = subst_new(f->arena);
    if (!f->pipelined || !loops_over_pieces(loop, &count)) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (stmt->kind == STMT_LET && expr_is_pure(stmt->let.value)) {
            subst_var(lets, stmt->let.var, subst_expr(lets, stmt->let.value));
            continue;
        }
        Stmt *gather =
            is_bare_copy(stmt) && is_global_to_shared_copy(stmt) ? gather_of(f, loop, count, stmt, lets) : NULL;
        if (!gather || stmt_any_expr(gather, is_computed, NULL)) return false;
        const Stmt *store = gather->loop.body.items[0];
        FOR_EACH_ITEM (other, &gathers)
            if (other->loop.body.items[0]->store.buf == store->store.buf) return false;
        if (indices_nest(store)) return false;
        block_push(f->arena, &gathers, gather);
    }
    block_append(f->arena, out, &gathers);
    return gathers.count > 0;
}

static bool join_block(Pieces *f, Block *block) {
    bool changed = false;
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) {
        if (push_gathers(f, stmt, &out)) {
            changed = true;
            continue;
        }
        bool outer = f->pipelined;
        f->pipelined |= is_loop(stmt, LOOP_PIPELINED);
        FOR_EACH_BODY (body, stmt) changed |= join_block(f, body);
        f->pipelined = outer;
        block_push(f->arena, &out, stmt);
    }
    *block = out;
    return changed;
}

bool join_pieces(Arena *arena, Block *block) {
    return join_block(&(Pieces){.arena = arena}, block);
}
