// Copies of adjacent pieces of one tile from adjacent places of one tensor are one copy:
//
//     unroll (u in 2)                                                  copy(A[i * 128 +: 128, k * 64 +: 64], As);
//         copy(A[i * 128, k * 64 + u * 32], As[:, u * 32 +: 32]);  =>
//     copy(B[k * 64, j * 128], Bs[0 +: 32, :]);                        copy(B[k * 64 +: 64, j * 128 +: 128], Bs);
//     copy(B[k * 64 + 32, j * 128], Bs[32 +: 32, :]);
//
// Only whole tiles have slots and a role that loads. Elements beyond the tensor are judged each for itself, so they are the same.
//
// It takes loops of a constant number of copies and of names, and copies with nothing between them than names and copies and loops that
// touch neither side. What the pieces begin with may not depend on memory.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
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

static bool has_effect(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_CALL && !op_is_pure(expr->call.op);
}

// The copy may as well come behind the statement.
static bool lets_pass(Arena *arena, const Stmt *copy, const Stmt *stmt) {
    bool orders =
        stmt->kind == STMT_CALL && !is_bare_copy(stmt) && !is_call(stmt, OP_FILL) && !is_call(stmt, OP_TRANSPOSE);
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
    return join_neighbours(join, block) || changed;
}

bool join_copies(Arena *arena, Func *kernel) {
    Joining join = {arena, stable_names(arena, kernel)};
    return join_block(&join, &kernel->body);
}
