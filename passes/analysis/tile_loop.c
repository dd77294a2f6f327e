// Tile ops as loops: the space that an op runs over, and one store to each of its points.
#include "passes/analysis/tile_loop.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include <string.h>

// ---- regions as elements ----

Expr **region_indices(Arena *arena, const Region *region, Expr *const *at) {
    Expr **indices = NEW_ARRAY(arena, Expr *, region->count);
    int rank = region_rank(region), kept = 0;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        indices[d] = dim->start;
        if (!dim->extent) continue;
        int from = kept++;
        if (region->transposed && rank >= 2 && from >= rank - 2) from = from == rank - 1 ? rank - 2 : rank - 1;
        indices[d] = e_add(arena, dim->start, at[from]);
    }
    return indices;
}

Expr *region_clip(Arena *arena, const Region *region, Expr *const *at) {
    Expr *inside = NULL;
    int rank = region_rank(region), kept = 0;
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        if (!dim->extent) continue;
        int from = kept++;
        int64_t extent;
        if (expr_const(dim->extent, &extent) && extent >= dim->tile) continue;
        if (region->transposed && rank >= 2 && from >= rank - 2) from = from == rank - 1 ? rank - 2 : rank - 1;
        Expr *here = e_lt(arena, at[from], dim->extent);
        inside = inside ? e_and(arena, inside, here) : here;
    }
    return inside;
}

static void space_of_region(Arena *arena, const Region *region, TileLoop *loop) {
    static const char *const names[] = {"i", "j", "k", "l", "i4", "i5", "i6", "i7"};
    loop->rank = region_rank(region);
    for (int d = 0; d < loop->rank; d++) {
        loop->iters[d] = var_new(arena, names[d], VAR_ITER, TYPE_I64, region->loc);
        loop->extents[d] = region_extent(region, d);
    }
}

static void iter_exprs(Arena *arena, const TileLoop *loop, Expr **at) {
    for (int d = 0; d < loop->rank; d++) at[d] = e_var(arena, loop->iters[d]);
}

// What a tensor does not get is left away point by point; of other buffers passes ask whether all is stored.
static void push_clipped(Arena *arena, TileLoop *loop, Expr *clip, Stmt *store) {
    if (clip && store->store.buf->scope == SCOPE_GLOBAL) loop->clip = clip, clip = NULL;
    if (!clip) {
        block_push(arena, &loop->body, store);
        return;
    }
    Stmt *guard = s_if(arena, clip);
    block_push(arena, &guard->if_.then, store);
    block_push(arena, &loop->body, guard);
}

static void loop_of_copy(Arena *arena, const Region *src, const Region *dst, bool transpose, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK], *from[LAYOUT_MAX_RANK];
    space_of_region(arena, dst, loop);
    iter_exprs(arena, loop, at);
    for (int d = 0; d < loop->rank; d++) from[d] = at[transpose ? loop->rank - 1 - d : d];
    Expr *value = e_load(arena, src->buf, src->count, region_indices(arena, src, from));
    Expr *clip = region_clip(arena, src, from);
    if (clip) value = e_select(arena, clip, value, e_zero(arena, value->type));
    value = e_cast(arena, dst->buf->type, value);
    Stmt *store = s_store(arena, dst->buf, dst->count, region_indices(arena, dst, at), value);
    push_clipped(arena, loop, region_clip(arena, dst, at), store);
}

static void loop_of_fill(Arena *arena, const Region *dst, Expr *value, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK];
    space_of_region(arena, dst, loop);
    iter_exprs(arena, loop, at);
    Stmt *store =
        s_store(arena, dst->buf, dst->count, region_indices(arena, dst, at), e_cast(arena, dst->buf->type, value));
    push_clipped(arena, loop, region_clip(arena, dst, at), store);
}

// A parallel loop keeps its body; iterators that do not run from 0 by 1 are replaced by ones that do.
static bool loop_of_parallel(Arena *arena, Stmt *stmt, TileLoop *loop) {
    Subst *subst = subst_new(arena);
    bool plain = true;
    loop->rank = stmt->loop.count;
    if (loop->rank > LAYOUT_MAX_RANK) return false;
    for (int d = 0; d < loop->rank; d++) {
        const Iter *iter = &stmt->loop.iters[d];
        int64_t begin, end, step;
        if (!expr_const(iter->step, &step)) return false;
        Expr *count = e_sub(arena, iter->end, iter->begin);
        if (!expr_const(count, &end)) return false;
        loop->extents[d] = end <= 0 ? 0 : (end - 1) / step + 1;
        loop->iters[d] = iter->var;
        if (expr_const(iter->begin, &begin) && begin == 0 && step == 1) continue;
        plain = false;
        loop->iters[d] = var_new(arena, iter->var->name, VAR_ITER, TYPE_I64, iter->var->loc);
        Expr *scaled = e_mul(arena, e_var(arena, loop->iters[d]), e_int(arena, step));
        subst_var(subst, iter->var, e_add(arena, iter->begin, scaled));
    }
    if (plain) loop->body = stmt->loop.body;
    else clone_block(arena, subst, &stmt->loop.body, &loop->body);
    return true;
}

bool tile_loop_of(Arena *arena, Stmt *stmt, TileLoop *loop) {
    memset(loop, 0, sizeof *loop);
    loop->origin = stmt;
    loop->is_async = starts_copy(stmt);
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) return loop_of_parallel(arena, stmt, loop);
    if (stmt->kind != STMT_CALL) return false;
    const Arg *args = stmt->call.args;
    switch (stmt->call.op) {
    case OP_COPY: loop_of_copy(arena, args[0].region, args[1].region, false, loop); return true;
    case OP_TRANSPOSE: loop_of_copy(arena, args[0].region, args[1].region, true, loop); return true;
    case OP_FILL: loop_of_fill(arena, args[0].region, args[1].value, loop); return true;
    default: return false;
    }
}

// ---- moves ----

const Expr *tile_move(Arena *arena, const TileLoop *loop) {
    if (loop->body.count != 1) return NULL;
    const Stmt *store = loop->body.items[0];
    if (store->kind != STMT_STORE || store->store.buf->scope != SCOPE_SHARED) return NULL;
    const Expr *value = store->store.value;
    if (value->kind == EXPR_SELECT && expr_equal(value->select.no, e_zero(arena, value->type)))
        value = value->select.yes;
    bool global = value->kind == EXPR_LOAD && value->load.buf->scope == SCOPE_GLOBAL;
    return global && value->type == store->store.buf->type ? value : NULL;
}
