// Copies of adjacent pieces of one tile from adjacent places of one tensor are one copy:
//
//     unroll (u in 2)                                                  copy(A[i * 128 +: 128, k * 64 +: 64], As);
//         copy(A[i * 128, k * 64 + u * 32], As[:, u * 32 +: 32]);  =>
//     copy(B[k * 64, j * 128], Bs[0 +: 32, :]);                        copy(B[k * 64 +: 64, j * 128 +: 128], Bs);
//     copy(B[k * 64 + 32, j * 128], Bs[32 +: 32, :]);
//
// Only whole tiles have slots and a role that loads. Elements beyond the tensor are judged each for itself, so they are the same.
//
// Pieces from other places stay copies, and come one behind the other, since a tile that is filled at one place has slots, too:
//
//     copy(K[page, :, :], Ks[0 +: 16, :]);                copy(K[page, :, :], Ks[0 +: 16, :]);
//     copy(V[page, :, :], Vs[0 +: 16, :]);            =>  copy(K[next, :, :], Ks[16 +: 16, :]);
//     copy(K[next, :, :], Ks[16 +: 16, :]);               copy(V[page, :, :], Vs[0 +: 16, :]);
//     copy(V[next, :, :], Vs[16 +: 16, :]);               copy(V[next, :, :], Vs[16 +: 16, :]);
//
// It takes loops of a constant number of copies and of names, and copies with nothing between them than names and copies and loops that
// touch neither side. What the pieces begin with may not depend on memory.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/tile/neighbours.h"
#include "passes/tile/tile.h"

static bool is_piece(const Region *region) {
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        int64_t extent;
        if (!expr_is_stable(dim->start) || !expr_is_pure(dim->start)) return false;
        if (dim->extent && (!expr_const(dim->extent, &extent) || extent != dim->tile)) return false;
    }
    return !region->buf->im2col;
}

static bool is_piece_copy(const Stmt *stmt) {
    return is_bare_copy(stmt) && is_piece(copy_of(stmt).src) && is_piece(copy_of(stmt).dst) &&
           buf_root(copy_of(stmt).src->buf) != buf_root(copy_of(stmt).dst->buf) &&
           !attr_get(copy_of(stmt).src->buf->attrs, ATTR_ALIAS);
}

typedef struct Joining {
    Arena *arena;
    Subst *names;
} Joining;

// ---- one behind the other ----

static Stmt *joined(const Joining *join, const Stmt *first, const Stmt *second) {
    CopyOp a = copy_of(first), b = copy_of(second);
    int along = next_dim(join->arena, join->names, a.src, b.src);
    if (along < 0 || along != next_dim(join->arena, join->names, a.dst, b.dst)) return NULL;
    int64_t extent = region_extent(a.src, along) + region_extent(b.src, along);
    Arena *arena = join->arena;
    return s_copy(arena, region_widened(arena, join->names, a.src, along, extent),
                  region_widened(arena, join->names, a.dst, along, extent), first->loc);
}

// The copy may as well come behind the statement.
static bool lets_pass(Arena *arena, const Stmt *copy, const Stmt *stmt) {
    bool orders = stmt->kind == STMT_CALL && !is_bare_copy(stmt) && !is_call(stmt, OP_FILL);
    bool calm =
        is_stable_let(stmt) || stmt->kind == STMT_DECL || is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_CALL;
    if (!calm || orders || stmt_any_expr(stmt, has_effect, NULL)) return false;
    return stmt->kind == STMT_DECL || (!stmt_touches(arena, stmt, buf_root(copy_of(copy).dst->buf)) &&
                                       !stmt_writes(arena, stmt, buf_root(copy_of(copy).src->buf)));
}

static bool join_neighbours(const Joining *join, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        const Stmt *first = block->items[i];
        if (!is_piece_copy(first)) continue;
        for (int j = i + 1; j < block->count; j++) {
            const Stmt *second = block->items[j];
            Stmt *copy = is_piece_copy(second) ? joined(join, first, second) : NULL;
            if (!copy && is_piece_copy(second)) copy = joined(join, second, first);
            if (copy) {
                block->items[j] = copy;
                block_remove(block, i);
                i = -1;   // (one before may go on with both)
                changed = true;
            }
            if (copy || !lets_pass(join->arena, first, block->items[j])) break;
        }
    }
    return changed;
}

// ---- pieces from several places ----

// The tile that the statement loads a constant piece of; NULL: it does something else.
static const Buf *piece_tile(const Stmt *stmt) {
    if (!is_bare_copy(stmt) || !is_global_to_shared_copy(stmt)) return NULL;
    const Region *to = copy_of(stmt).dst;
    int64_t begin, extent;
    for (int d = 0; d < to->count; d++) {
        const RegionDim *dim = &to->dims[d];
        if (!expr_const(dim->start, &begin) || (dim->extent && !expr_const(dim->extent, &extent))) return NULL;
    }
    return buf_is_free(to->buf) && !region_is_whole(to) ? to->buf : NULL;
}

static bool is_name(const Stmt *stmt) {
    return stmt->kind == STMT_ASSUME || (stmt->kind == STMT_LET && expr_is_pure(stmt->let.value));
}

// The load may as well come behind the statement, which is a name or loads, too.
static bool can_pass(Arena *arena, const Stmt *load, const Stmt *stmt) {
    if (stmt->kind == STMT_DECL) return true;
    if (!is_name(stmt) && !loaded_tile(stmt) && !is_zero_fill(stmt)) return false;
    FOR_EACH_EFFECT (effect, arena, load) {
        const Buf *buf = buf_root(effect->buf);
        if (effect->access == ACCESS_READ ? stmt_writes(arena, stmt, buf) : stmt_touches(arena, stmt, buf))
            return false;
    }
    return true;
}

// The piece from `from` comes to `to` behind it. False: it cannot, or only names lie between.
static bool sink_piece(Arena *arena, Block *block, int from, int to) {
    Stmt *piece = block->items[from];
    bool loads = false;
    for (int i = from + 1; i <= to; i++) {
        if (!can_pass(arena, piece, block->items[i])) return false;
        loads |= !is_name(block->items[i]);
    }
    if (!loads) return false;
    for (int i = from; i < to; i++) block->items[i] = block->items[i + 1];
    block->items[to] = piece;
    return true;
}

// Earlier pieces of a tile come to its later ones.
static bool collect_pieces(Arena *arena, Block *block) {
    bool changed = false;
    for (int last = 0; last < block->count; last++) {
        const Buf *tile = piece_tile(block->items[last]);
        for (int i = last - 1, to = last - 1; tile && i >= 0; i--) {
            if (piece_tile(block->items[i]) != tile) continue;
            if (sink_piece(arena, block, i, to)) changed = true, to--;
            else to = i - 1;
        }
    }
    return changed;
}

// ---- in a loop ----

// All rounds' pieces as one: round by round it goes on. NULL: they do not.
static Stmt *all_rounds(const Joining *join, const Iter *iter, int64_t count, Subst *lets, const Stmt *stmt) {
    Arena *arena = join->arena;
    Stmt *rounds[2];
    for (int i = 0; i < 2; i++) {
        Subst *at = subst_new(arena);
        subst_var(at, iter->var, i ? e_add(arena, e_var(arena, iter->var), e_int(arena, 1)) : e_var(arena, iter->var));
        rounds[i] = clone_stmt(arena, lets, stmt);
        subst_stmt(at, rounds[i]);
    }
    CopyOp a = copy_of(rounds[0]), b = copy_of(rounds[1]);
    if (!is_piece_copy(rounds[0])) return NULL;
    int along = next_dim(join->arena, join->names, a.src, b.src);
    if (along < 0 || along != next_dim(join->arena, join->names, a.dst, b.dst)) return NULL;
    int64_t extent = region_extent(a.src, along) * count;
    Stmt *copy = s_copy(arena, region_widened(arena, join->names, a.src, along, extent),
                        region_widened(arena, join->names, a.dst, along, extent), stmt->loc);
    Subst *begin = subst_new(arena);
    subst_var(begin, iter->var, iter->begin);
    subst_stmt(begin, copy);
    return copy;
}

// False: the loop stays.
static bool join_rounds(const Joining *join, const Stmt *loop, Block *out) {
    Arena *arena = join->arena;
    bool repeats = is_loop(loop, LOOP_SERIAL) || is_loop(loop, LOOP_UNROLL);
    if (!repeats || loop->attrs || loop->loop.count != 1) return false;
    const Iter *iter = &loop->loop.iters[0];
    Iter known = {iter->var, subst_expr(join->names, iter->begin), subst_expr(join->names, iter->end), iter->step};
    int64_t count = iter_count(&known);
    if (count < 1 || !expr_is_int(iter->step, 1)) return false;
    Block copies = {0};
    Subst *lets = subst_new(arena);
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_stable_let(stmt) && subst_let(lets, stmt->let.var, stmt->let.value)) continue;
        Stmt *copy = is_bare_copy(stmt) ? all_rounds(join, iter, count, lets, stmt) : NULL;
        if (!copy) return false;
        FOR_EACH_ITEM (other, &copies) {
            bool shares = stmt_touches(arena, copy, buf_root(copy_of(other).dst->buf)) ||
                          stmt_touches(arena, other, buf_root(copy_of(copy).dst->buf));
            if (shares) return false;
        }
        block_push(arena, &copies, copy);
    }
    block_append(arena, out, &copies);
    return copies.count > 0;
}

static bool join_block(const Joining *join, Block *block) {
    bool changed = false;
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) {
        if (!is_loop(stmt, LOOP_PARALLEL) && stmt->kind != STMT_THREAD)
            FOR_EACH_BODY (body, stmt) changed |= join_block(join, body);
        if (join_rounds(join, stmt, &out)) changed = true;
        else block_push(join->arena, &out, stmt);
    }
    *block = out;
    changed |= join_neighbours(join, block);
    return collect_pieces(join->arena, block) || changed;
}

bool join_copies(Arena *arena, Func *kernel) {
    Joining join = {arena, stable_names(arena, kernel)};
    return join_block(&join, &kernel->body);
}
