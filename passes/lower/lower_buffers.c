// Buffers in terms of threads: a fragment is a local array, a shared buffer has its physical shape. Expressions outside
// of loops in these terms.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"
#include "support/map.h"

Expr *lower_thread(Lower *lower) {
    return e_var(lower->arena, lower->thread);
}

Expr *lower_lane(Lower *lower) {
    return e_rem(lower->arena, lower_thread(lower), lower->target->warp_lanes);
}

Expr *lower_simple(const Lower *lower, Expr *expr) {
    return simplify_expr(lower->arena, lower->facts, expr);
}

Expr *lower_inside(Lower *lower, const Layout *layout, const Buf *buf, Expr *value) {
    Expr *in[2] = {lower_thread(lower), value}, *at[LAYOUT_MAX_RANK], *inside = NULL;
    layout_forward(lower->arena, lower->facts, layout, in, at);
    for (int d = 0; d < buf->rank; d++)
        if (layout->out_shape[d] > buf_extent(buf, d))
            inside = e_both(lower->arena, inside, e_lt(lower->arena, at[d], buf->shape[d]));
    return inside ? lower_simple(lower, inside) : NULL;
}

Block *lower_counted(Lower *lower, LoopKind kind, const char *name, int64_t begin, int64_t end, Span loc, Expr **index,
                     Block *out) {
    Arena *arena = lower->arena;
    EXPECT(lower->context->failure, begin <= end, "a loop from %lld to %lld", (long long)begin, (long long)end);
    Var *var = var_new(arena, name, VAR_ITER, TYPE_I64, loc);
    Stmt *loop = s_for(arena, kind, var, e_int(arena, begin), e_int(arena, end));
    *index = e_var(arena, var);
    facts_iter(lower->facts, &loop->loop.iters[0]);
    block_push(arena, out, loop);
    return &loop->loop.body;
}

Expr *lower_named(Lower *lower, const char *name, Expr *value, Span loc, Block *out) {
    value = lower_simple(lower, value);
    Expr *named = block_name(lower->arena, out, name, value, loc);
    if (named != value) facts_bind(lower->facts, named->var, value);
    return named;
}

// ---- buffers ----

Buf *lower_local(Lower *lower, Buf *fragment) {
    Buf *local = map_get(lower->locals, fragment);
    if (local) return local;
    int64_t size = fragment->layout ? tv_values(fragment->layout) : 1;
    EXPECT(lower->context->failure, fragment->scope == SCOPE_FRAGMENT, "'%s' is not in registers", fragment->name);
    if (size > MOST_LOCAL_ELEMENTS)
        diag(lower->context->sink, fragment->loc, T_LOCAL_SIZE, fragment->name, (long long)size, MOST_LOCAL_ELEMENTS);
    local = buf_new_const(lower->arena, fragment->name, SCOPE_LOCAL, fragment->type, 1, &size, fragment->loc);
    map_put(lower->locals, fragment, local);
    return local;
}

Buf *lower_physical(Lower *lower, Buf *shared) {
    Buf *physical = map_get(lower->physical, shared);
    if (physical) return physical;
    int64_t shape[2 * LAYOUT_MAX_RANK];
    EXPECT(lower->context->failure, shared->scope == SCOPE_SHARED && !shared->lowered, "'%s' has its place already",
           shared->name);
    int rank = 0, lead = shared->layout ? shared->rank - shared->layout->rank_in : shared->rank;
    const Stmt *array = map_get(lower->arrays, shared);
    if (array) shape[rank++] = role_members(array);
    int outermost = rank;
    for (int d = 0; d < lead; d++) shape[rank++] = buf_extent(shared, d);
    for (int d = 0; shared->layout && d < shared->layout->rank_out; d++) shape[rank++] = shared->layout->out_shape[d];
    if (array && rank > outermost) shape[outermost] = buf_outermost_aligned(shared, shared->align);
    physical = buf_new_const(lower->arena, shared->name, SCOPE_SHARED, shared->type, rank, shape, shared->loc);
    physical->offset = shared->offset;
    physical->align = shared->align;
    physical->lowered = true;
    if (attr_get(shared->attrs, ATTR_CTAS))
        attr_set_int(lower->arena, &physical->attrs, ATTR_CTAS, attr_int(shared->attrs, ATTR_CTAS, 1));
    map_put(lower->physical, shared, physical);
    return physical;
}

Region *lower_in_image(Lower *lower, Buf *shared, int count, Expr *const *indices) {
    Expr *at[2 * LAYOUT_MAX_RANK];
    const Stmt *array = map_get(lower->arrays, shared);
    int rank = 0;
    if (array) at[rank++] = e_var(lower->arena, array->role.iters[0].var);
    for (int d = 0; d < count; d++) at[rank++] = indices[d];
    return region_element(lower->arena, lower_physical(lower, shared), rank, at);
}

Region *lower_place(Lower *lower, Buf *buf, int count, Expr *const *indices) {
    Arena *arena = lower->arena;
    if (buf->scope != SCOPE_SHARED || buf->lowered) return region_element(arena, buf, count, indices);
    Expr *logical[LAYOUT_MAX_RANK], *physical[2 * LAYOUT_MAX_RANK];
    int lead = buf->layout ? count - buf->layout->rank_in : count;
    int rank = buf->layout ? lead + buf->layout->rank_out : count;
    EXPECT(lower->context->failure, lead >= 0 && count <= buf->rank && rank <= LAYOUT_MAX_RANK,
           "'%s' has rank %d, %d indices and a layout of rank %d", buf->name, buf->rank, count, count - lead);
    for (int d = 0; d < count; d++) physical[d] = logical[d] = lower_simple(lower, indices[d]);
    if (buf->layout) layout_forward(arena, lower->facts, buf->layout, logical + lead, physical + lead);
    return lower_in_image(lower, buf, rank, physical);
}

Region *lower_in_slot(Lower *lower, const Region *tile, int count, Expr *const *at) {
    Expr *indices[2 * LAYOUT_MAX_RANK];
    int slots = tile->buf->stage_dims;
    EXPECT(lower->context->failure, slots + count == tile->buf->rank, "%d indices in a slot of '%s', of rank %d", count,
           tile->buf->name, tile->buf->rank);
    for (int d = 0; d < slots; d++) indices[d] = lower_expr(lower, tile->dims[d].start);
    for (int d = 0; d < count; d++) indices[slots + d] = at[d];
    return lower_place(lower, tile->buf, slots + count, indices);
}

// ---- expressions outside loops ----

Expr *lower_replicated_slot(Lower *lower, const Buf *fragment, int count, Expr *const *indices, Span loc) {
    const Layout *layout = fragment->layout;
    bool replicated = layout && tv_replicas(layout) == tv_threads(layout);
    for (int64_t v = 0; replicated && v < tv_values(layout); v++) {
        int64_t out[LAYOUT_MAX_RANK], at;
        bool same = true;
        layout_eval(layout, (int64_t[]){0, v}, out);
        for (int d = 0; d < count; d++) same &= expr_const(indices[d], &at) && at == out[d];
        if (same) return e_int(lower->arena, v);
    }
    diag(lower->context->sink, loc, T_FRAGMENT_INDEX, buf_source_name(fragment));
    return e_int(lower->arena, 0);
}

Expr *lower_load(Lower *lower, Expr *expr) {
    Arena *arena = lower->arena;
    Buf *buf = expr->load.buf;
    int count = expr->load.count;
    Expr **indices = expr->load.indices;
    if (buf->scope == SCOPE_FRAGMENT)
        return e_load1(arena, lower_local(lower, buf), lower_replicated_slot(lower, buf, count, indices, expr->loc));
    if (buf->scope == SCOPE_SHARED) return e_load_at(arena, lower_place(lower, buf, count, indices));
    if (buf->scope != SCOPE_GLOBAL) return expr;
    Expr *guard = access_guard(arena, lower->facts, buf, count, indices);
    return guard ? e_select(arena, guard, expr, e_zero(arena, expr->type)) : expr;
}

Expr *lower_call_guard(Lower *lower, int count, const Arg *args) {
    Expr *guard = NULL, *indices[LAYOUT_MAX_RANK];
    for (int i = 0; i < count; i++) {
        const Region *region = args[i].region;
        if (!region || region->buf->scope != SCOPE_GLOBAL) continue;
        for (int d = 0; d < region->count; d++) indices[d] = region->dims[d].start;
        Expr *inside = access_guard(lower->arena, lower->facts, region->buf, region->count, indices);
        guard = e_both(lower->arena, guard, inside);
    }
    return guard;
}

// any(x): the lanes of a warp tell each other of their slots.
static Expr *lower_any(Lower *lower, const Expr *any) {
    Arena *arena = lower->arena;
    const Buf *fragment = ARG(any, ANY, x).region->buf;
    Buf *local = lower_local(lower, (Buf *)fragment);
    Expr *own = e_bool(arena, false);
    for (int64_t v = 0; v < tv_values(fragment->layout); v++)
        own = e_binary(arena, BIN_LOGICAL_OR, own, e_load1(arena, local, e_int(arena, v)));
    return e_call1(arena, OP_VOTE_ANY, own);
}

static Expr *own_warpgroup(Lower *lower) {
    if (lower->warpgroup) return e_var(lower->arena, lower->warpgroup);
    return e_over(lower->arena, lower_thread(lower), target_warpgroup(lower->target));
}

static Expr *lower_node(Mapper *mapper, Expr *expr) {
    Lower *lower = mapper->user;
    if (is_expr_call(expr, OP_WARPGROUP)) return own_warpgroup(lower);
    if (expr->kind == EXPR_LOAD) return lower_load(lower, expr);
    if (is_expr_call(expr, OP_ANY)) return lower_any(lower, expr);
    bool element = expr->kind == EXPR_CALL && op_is(expr->call.op, OP_CLASS_ELEMENT);
    Expr *guard = element ? lower_call_guard(lower, expr->call.count, expr->call.args) : NULL;
    return guard ? e_select(lower->arena, guard, expr, e_zero(lower->arena, expr->type)) : expr;
}

static Region *lower_operand(Mapper *mapper, Region *region) {
    return lower_element(mapper->user, region);
}

Expr *lower_expr(Lower *lower, Expr *expr) {
    if (!expr) return NULL;
    Mapper mapper = {.arena = lower->arena, .expr = lower_node, .region = lower_operand, .user = lower};
    return simplify_expr(lower->arena, lower->facts, map_expr(&mapper, expr));
}

Region *lower_element(Lower *lower, const Region *region) {
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < region->count; d++) indices[d] = lower_expr(lower, region->dims[d].start);
    return lower_place(lower, region->buf, region->count, indices);
}
