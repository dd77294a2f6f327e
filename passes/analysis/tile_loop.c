// Tile ops as loops: the iteration space of an op, and one store per iteration.
#include "passes/analysis/tile_loop.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"

// ---- regions as elements ----

int operand_dim(const Region *region, int kept) {
    int rank = region_rank(region);
    return region->transposed && rank >= 2 && kept >= rank - 2 ? 2 * rank - 3 - kept : kept;
}

Expr **region_indices(Arena *arena, const Region *region, Expr *const *at) {
    Expr **indices = NEW_ARRAY(arena, Expr *, region->count);
    for (int d = 0, kept = 0; d < region->count; d++) {
        indices[d] = region->dims[d].start;
        if (region->dims[d].extent) indices[d] = e_add(arena, indices[d], at[operand_dim(region, kept++)]);
    }
    return region->buf->im2col ? im2col_indices(arena, region->buf, indices) : indices;
}

// The element at `at` lies within the region's dynamic extents; NULL when it always does.
static Expr *region_clip(Arena *arena, const Region *region, Expr *const *at) {
    Expr *inside = NULL;
    for (int d = 0, kept = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        int64_t extent;
        if (!dim->extent) continue;
        int from = operand_dim(region, kept++);
        if (expr_const(dim->extent, &extent) && extent >= dim->tile) continue;
        inside = e_both(arena, inside, e_lt(arena, at[from], dim->extent));
    }
    return inside;
}

// The loop over the elements of a region.
static void space_of_region(Arena *arena, const Region *region, TileLoop *loop, Expr **at) {
    static const char *const names[] = {"i", "j", "k", "l", "i4", "i5", "i6", "i7"};
    _Static_assert(COUNT_OF(names) == LAYOUT_MAX_RANK, "a name for each dim");
    loop->rank = region_rank(region);
    for (int d = 0; d < loop->rank; d++) {
        loop->iters[d] = var_new(arena, names[d], VAR_ITER, TYPE_I64, region->loc);
        loop->extents[d] = region_extent(region, d);
        at[d] = e_var(arena, loop->iters[d]);
    }
}

// The loop's body: dst[at] = value. Elements outside of a tensor are skipped one by one; for other buffers passes check
// that the whole region is stored.
static void push_store(Arena *arena, const Region *dst, Expr *const *at, Expr *value, TileLoop *loop) {
    value = e_cast(arena, dst->buf->type, value);
    Stmt *store = s_store(arena, buf_viewed(dst->buf), dst->count, region_indices(arena, dst, at), value);
    Expr *clip = region_clip(arena, dst, at);
    bool by_point = clip && dst->buf->scope == SCOPE_GLOBAL;
    if (by_point) loop->clip = clip;
    block_push(arena, &loop->body, clip && !by_point ? s_if_only(arena, clip, store) : store);
}

static void loop_of_copy(Arena *arena, const Region *src, const Region *dst, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK];
    EXPECT(arena_failure(arena), region_rank(src) == region_rank(dst), "a copy of rank %d to rank %d", region_rank(src),
           region_rank(dst));
    space_of_region(arena, dst, loop, at);
    Expr *value = e_load(arena, buf_viewed(src->buf), src->count, region_indices(arena, src, at));
    Expr *clip = region_clip(arena, src, at);
    push_store(arena, dst, at, clip ? e_select(arena, clip, value, e_zero(arena, value->type)) : value, loop);
}

static void loop_of_fill(Arena *arena, const Region *dst, Expr *value, TileLoop *loop) {
    Expr *at[LAYOUT_MAX_RANK];
    space_of_region(arena, dst, loop, at);
    push_store(arena, dst, at, value, loop);
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
    CopyOp copy;
    FillOp fill;
    *loop = (TileLoop){.origin = stmt, .is_async = starts_copy(stmt)};
    if (is_loop(stmt, LOOP_PARALLEL)) return loop_of_parallel(arena, stmt, loop);
    if (match_copy(stmt, &copy)) return loop_of_copy(arena, copy.src, copy.dst, loop), true;
    if (match_fill(stmt, &fill)) return loop_of_fill(arena, fill.dst, fill.value, loop), true;
    return false;
}

const Layout *stmt_layout(const Stmt *stmt) {
    return attr_layout(stmt->attrs, ATTR_MAP);
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
