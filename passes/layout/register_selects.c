// An element of a fragment by an index that is neither a variable of the loop nor a constant: registers have no
// addresses, so the elements along that dim are selected from.
//
//     parallel (r in 32) y[r] = v[r, k];         =>    y[r] = k == 0 ? v[r, 0] : k == 1 ? v[r, 1] : v[r, 2];
//     parallel (r in 32) v[r, idx[r]] = x;       =>    let at = idx[r]; if (at == 0) v[r, 0] = x; ...
//
//     copy(w[0 +: 12, :], v[4 +: 12, :])         =>    parallel (i in 12, j in 64) v[i + 4, j] = w[i, j];    and then so
//     copy(v[16 +: 32, :], w)                    =>    v[16 +: 16, :] to w[0 +: 16, :], v[32 +: 16, :] to w[16 +: 16, :]
//
//     copy(v[16 +: 17, :], s)                    =>    parallel (i in 64, j in 64) if (i - 16 >= 0 && i - 16 < 17) s[i - 16, j] = v[i, j];
//
// Slices that are a digit of their dim need no selections: the third form is taken where those are dear, else the last, whose
// s is memory; between two fragments there is a shared tile. Constant indices make layout inference keep the dim in the registers
// of one thread. It is done where it costs no more than to write the tile to shared memory and to read it, by the costs of the
// target; in a `parallel` loop layout inference reports it else.
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"

typedef struct Selects {
    const PassContext *context;
    Arena *arena;
    const Stmt *loop;   // the parallel loop around; NULL: none
} Selects;

static bool is_iterator(const Selects *selects, const Expr *index) {
    for (int i = 0; selects->loop && i < selects->loop->loop.count; i++)
        if (expr_is_var(index, selects->loop->loop.iters[i].var)) return true;
    return false;
}

// A layout says its dim of the index: a sum in which iterators are digits.
static bool is_digit_sum(Arena *arena, const TileLoop *loop, const Buf *buf, int count, Expr *const *indices, int dim) {
    FragmentDigits digits;
    Expr *alone[LAYOUT_MAX_RANK];
    for (int d = 0; d < count; d++) alone[d] = d == dim ? indices[d] : e_int(arena, 0);
    return fragment_digits(loop, buf, count, alone, &digits);
}

static bool is_followed(const Selects *selects, const Buf *buf, int count, Expr *const *indices, int dim) {
    int64_t constant;
    if (expr_const(indices[dim], &constant) || is_iterator(selects, indices[dim])) return true;
    if (!selects->loop || selects->loop->loop.count > LAYOUT_MAX_RANK) return false;
    TileLoop space = loop_space((Stmt *)selects->loop);
    return is_digit_sum(selects->arena, &space, buf, count, indices, dim);
}

// The first dim that is indexed by what a layout does not say, by itself or with others, as v[i, i]; -1: none.
static int dynamic_dim(const Selects *selects, const Buf *buf, int count, Expr *const *indices) {
    FragmentDigits digits;
    if (selects->loop && selects->loop->loop.count <= LAYOUT_MAX_RANK) {
        TileLoop space = loop_space((Stmt *)selects->loop);
        if (fragment_digits(&space, buf, count, indices, &digits)) return -1;
    }
    for (int d = 0; d < count; d++)
        if (!is_followed(selects, buf, count, indices, d)) return d;
    for (int d = 0; d < count; d++) {
        int64_t constant;
        if (expr_const(indices[d], &constant)) continue;
        bool iterator = is_iterator(selects, indices[d]);
        for (int before = 0; before < d && iterator; before++) iterator = !expr_equal(indices[before], indices[d]);
        if (!iterator) return d;
    }
    return -1;
}

// Each element but the last takes a comparison and a selection.
static bool is_cheap(const Selects *selects, const Buf *buf, int count, Expr *const *indices) {
    const WarpCosts *costs = &selects->context->target->costs;
    int64_t elements = 1;
    for (int d = 0; d < count; d++) {
        if (!is_followed(selects, buf, count, indices, d)) elements *= buf_extent(buf, d);
        if (expr_must_not_repeat(indices[d])) return false;
    }
    int dynamic = dynamic_dim(selects, buf, count, indices);
    if (elements == 1 && dynamic >= 0) elements = buf_extent(buf, dynamic);   // v[i, i]
    return 2 * (elements - 1) * costs->select <= 2 * costs->wavefront + costs->barrier;
}

static Expr **with_index(const Selects *selects, int count, Expr *const *indices, int dim, int64_t at) {
    Expr **out = arena_copy(selects->arena, indices, sizeof(Expr *) * (size_t)count);
    out[dim] = e_int(selects->arena, at);
    return out;
}

static Expr *is_at(const Selects *selects, Expr *index, int64_t at) {
    return e_eq(selects->arena, index, e_int_of(selects->arena, index->type, at));
}

static Expr *selected(const Selects *selects, Buf *buf, int count, Expr *const *indices) {
    int dim = dynamic_dim(selects, buf, count, indices);
    if (dim < 0) return e_load(selects->arena, buf, count, indices);
    int64_t last = buf_extent(buf, dim) - 1;
    Expr *value = selected(selects, buf, count, with_index(selects, count, indices, dim, last));
    for (int64_t at = last - 1; at >= 0; at--) {
        Expr *one = selected(selects, buf, count, with_index(selects, count, indices, dim, at));
        value = e_select(selects->arena, is_at(selects, indices[dim], at), one, value);
    }
    return value;
}

static Expr *select_load(Mapper *mapper, Expr *expr) {
    const Selects *selects = mapper->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_FRAGMENT) return expr;
    bool dynamic = dynamic_dim(selects, expr->load.buf, expr->load.count, expr->load.indices) >= 0;
    if (!dynamic || !is_cheap(selects, expr->load.buf, expr->load.count, expr->load.indices)) return expr;
    return selected(selects, expr->load.buf, expr->load.count, expr->load.indices);
}

static void select_store(const Selects *selects, const Stmt *store, int count, Expr *const *indices, Block *out) {
    int dim = dynamic_dim(selects, store->store.buf, count, indices);
    if (dim < 0) {
        Stmt *one = s_store(selects->arena, store->store.buf, count, indices, store->store.value);
        one->loc = store->loc;
        block_push(selects->arena, out, one);
        return;
    }
    for (int64_t at = 0; at < buf_extent(store->store.buf, dim); at++)
        select_store(selects, store, count, with_index(selects, count, indices, dim, at),
                     block_if(selects->arena, out, is_at(selects, indices[dim], at)));
}

// What the ifs ask and store is computed once.
static void push_store(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Selects *selects = mapper->user;
    bool stores = stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_FRAGMENT;
    if (!stores || dynamic_dim(selects, stmt->store.buf, stmt->store.count, stmt->store.indices) < 0 ||
        !is_cheap(selects, stmt->store.buf, stmt->store.count, stmt->store.indices)) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < stmt->store.count; d++)
        indices[d] = is_followed(selects, stmt->store.buf, stmt->store.count, stmt->store.indices, d)
                         ? stmt->store.indices[d]
                         : block_name(mapper->arena, out, "at", stmt->store.indices[d], stmt->loc);
    stmt->store.value = block_name(mapper->arena, out, "value", stmt->store.value, stmt->loc);
    select_store(selects, stmt, stmt->store.count, indices, out);
    mapper->changed = true;
}

static void select_in_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Selects selects = *(const Selects *)mapper->user;
    block_push(mapper->arena, out, stmt);
    if (!is_loop(stmt, LOOP_PARALLEL)) return;
    selects.loop = stmt;
    Mapper loads = {.arena = mapper->arena, .expr = select_load, .user = &selects};
    map_block(&loads, &stmt->loop.body);
    StmtMapper stores = {.arena = mapper->arena, .stmt = push_store, .user = &selects};
    mapper->changed |= rewrite_block(&stores, &stmt->loop.body) || loads.changed;
}

// ---- tile operations of regions ----

// The accesses of a fragment by other indices than its layout says, or by several such lists.
static bool needs_selects(const TileLoop *loop, const TileAccessVec *accesses) {
    FragmentDigits digits, others;
    VEC_EACH (const TileAccess, access, accesses) {
        if (access->buf->scope != SCOPE_FRAGMENT) continue;
        if (!fragment_digits(loop, access->buf, access->count, access->indices, &digits)) return true;
        VEC_EACH (const TileAccess, other, accesses)
            if (other->buf == access->buf && fragment_digits(loop, other->buf, other->count, other->indices, &others) &&
                !digits_equal(&digits, &others))
                return true;
    }
    return false;
}

// A region that is accessed becomes whole dims under a condition: a thread has the elements that it holds.
static void over_whole_dims(Arena *arena, const TileAccess *access, TileLoop *loop) {
    Expr *inside = NULL, **own = access->is_store ? access->store->store.indices : access->load->load.indices;
    Subst *subst = subst_new(arena);
    for (int d = 0; d < access->count; d++) {
        int dim = 0;
        while (dim < loop->rank && !expr_uses_var(own[d], loop->iters[dim])) dim++;
        if (dim == loop->rank || expr_is_var(own[d], loop->iters[dim])) continue;
        if (is_digit_sum(arena, loop, access->buf, access->count, own, d)) continue;
        Var *old = loop->iters[dim], *var = var_new(arena, old->name, VAR_ITER, TYPE_I64, old->loc);
        Subst *first = subst_new(arena);
        subst_var(first, old, e_int(arena, 0));
        Expr *from = e_sub(arena, e_var(arena, var), subst_expr(first, own[d]));
        inside = e_both(arena, inside, e_ge(arena, from, e_int(arena, 0)));
        inside = e_both(arena, inside, e_lt(arena, from, e_int(arena, loop->extents[dim])));
        subst_var(subst, old, from);
        loop->iters[dim] = var;
        loop->extents[dim] = buf_extent(access->buf, d);
        own[d] = e_var(arena, var);
    }
    Block body = {0};
    clone_block(arena, subst, &loop->body, &body);
    loop->body = body;
    loop->clip = e_both(arena, inside, loop->clip ? subst_expr(subst, loop->clip) : NULL);
}

// The store, or else a load, of a fragment at indices that its layout does not say.
static bool find_unfollowed(Arena *arena, const TileLoop *loop, bool store, TileAccess *out) {
    FragmentDigits digits;
    TileAccessVec accesses = {0};
    tile_accesses(arena, loop, &accesses);
    VEC_EACH (const TileAccess, access, &accesses) {
        if (access->buf->scope != SCOPE_FRAGMENT || access->is_store != store) continue;
        if (fragment_digits(loop, access->buf, access->count, access->indices, &digits)) continue;
        *out = *access;
        return true;
    }
    return false;
}

// The largest extent in which slices of the loop's dim are slices of every fragment's; 0: an index is no sum with a
// constant.
static int64_t slice_extent(Arena *arena, const TileLoop *loop, const TileAccessVec *accesses, int dim) {
    int64_t slice = loop->extents[dim], start;
    Subst *first = subst_new(arena);
    subst_var(first, loop->iters[dim], e_int(arena, 0));
    VEC_EACH (const TileAccess, access, accesses)
        for (int d = 0; d < access->count && access->buf->scope == SCOPE_FRAGMENT; d++) {
            if (!expr_uses_var(access->indices[d], loop->iters[dim])) continue;
            if (!expr_const(subst_expr(first, access->indices[d]), &start)) return 0;
            slice = gcd64(gcd64(slice, start), buf_extent(access->buf, d));
        }
    return slice;
}

static void slice_loop(Arena *arena, const TileLoop *loop, int dim, int64_t from, int64_t extent, TileLoop *out) {
    Subst *subst = subst_new(arena);
    *out = *loop;
    for (int d = 0; d < loop->rank; d++) {
        Var *old = loop->iters[d];
        out->iters[d] = var_new(arena, old->name, VAR_ITER, TYPE_I64, old->loc);
        subst_var(subst, old, e_plus(arena, e_var(arena, out->iters[d]), d == dim ? from : 0));
    }
    out->extents[dim] = extent;
    out->body = (Block){0};
    clone_block(arena, subst, &loop->body, &out->body);
    if (loop->clip) out->clip = subst_expr(subst, loop->clip);
}

static Stmt *loop_over(Arena *arena, const TileLoop *loop);

// Slices of a copy between two buffers, of which layouts say each. (v[16 +: 32] is v[16 +: 16] and v[32 +: 16].)
static bool push_slices(Arena *arena, const TileLoop *loop, int dim, Block *out) {
    TileAccessVec accesses = {0};
    tile_accesses(arena, loop, &accesses);
    if (dim == loop->rank) {
        if (needs_selects(loop, &accesses)) return false;
        block_push(arena, out, loop_over(arena, loop));
        return true;
    }
    int64_t extent = loop->extents[dim], slice = slice_extent(arena, loop, &accesses, dim);
    if (slice == extent) return push_slices(arena, loop, dim + 1, out);
    for (int64_t from = 0; from < extent && slice > 1; from += slice) {
        TileLoop one;
        slice_loop(arena, loop, dim, from, slice, &one);
        if (!push_slices(arena, &one, dim + 1, out)) return false;
    }
    return slice > 1;
}

// A load that no layout follows takes more clocks by selections than to write the tile to shared memory and to read it.
static bool selects_are_dear(const PassContext *context, const TileLoop *loop, const TileAccessVec *accesses) {
    Selects selects = {.context = context, .arena = context->arena, .loop = loop_over(context->arena, loop)};
    VEC_EACH (const TileAccess, access, accesses) {
        bool loads = access->buf->scope == SCOPE_FRAGMENT && !access->is_store;
        if (loads && dynamic_dim(&selects, access->buf, access->count, access->indices) >= 0 &&
            !is_cheap(&selects, access->buf, access->count, access->indices))
            return true;
    }
    return false;
}

static bool is_within_one(const TileAccessVec *accesses) {
    VEC_EACH (const TileAccess, access, accesses)
        VEC_EACH (const TileAccess, other, accesses)
            if (access != other && access->buf == other->buf) return true;
    return false;
}

static Stmt *loop_over(Arena *arena, const TileLoop *loop) {
    Span loc = loop->origin->loc;
    Stmt *out = s_for(arena, LOOP_PARALLEL, loop->iters[0], e_int(arena, 0), e_int(arena, loop->extents[0]));
    out->loc = loc;
    for (int d = 1; d < loop->rank; d++)
        iter_insert(arena, &out->loop.iters, &out->loop.count, d,
                    iter_new(arena, loop->iters[d], e_int(arena, loop->extents[d])));
    TileAccessVec accesses = {0};
    tile_accesses(arena, loop, &accesses);
    VEC_EACH (const TileAccess, access, &accesses)
        if (access->load) access->load->loc = loc;
    FOR_EACH_ITEM (stmt, &loop->body) {
        stmt->loc = loc;
        block_push(arena, &out->loop.body, loop->clip ? s_if_only(arena, loop->clip, stmt) : stmt);
    }
    return out;
}

static void region_as_loop(StmtMapper *mapper, Stmt *stmt, Block *out);

// A copy between two fragments of which no thread holds the elements of both: it is written to shared memory, and read there.
static void through_shared(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *arena = mapper->arena;
    Region *src = call_region(stmt, 0);
    int64_t shape[LAYOUT_MAX_RANK];
    for (int d = 0; d < region_rank(src); d++) shape[d] = region_extent(src, d);
    Buf *scratch =
        buf_new_const(arena, src->buf->name, SCOPE_SHARED, src->buf->type, region_rank(src), shape, stmt->loc);
    attr_set_ints(arena, &scratch->attrs, ATTR_SCRATCH, 0, NULL);
    REMARK_NOTE((const PassContext *)mapper->user, stmt->loc, T_LAYOUT_CONVERSION, src->buf->name,
                "no layout has the elements of this region at the threads that take them: through shared memory");
    block_push(arena, out, s_decl(arena, scratch));
    Arg between[] = {arg_region(src), arg_region(region_whole(arena, scratch))};
    Stmt *write = s_call(arena, OP_COPY, 2, between);
    write->loc = stmt->loc;
    region_as_loop(mapper, write, out);
    stmt->call.args[0] = between[1];
    region_as_loop(mapper, stmt, out);
    mapper->changed = true;
}

static void region_as_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    TileLoop loop;
    TileAccess access;
    TileAccessVec accesses = {0}, whole = {0};
    bool tile_op = is_call(stmt, OP_COPY) || is_call(stmt, OP_FILL);
    bool plain = via_is(stmt, VIA_NONE) || via_is(stmt, VIA_PLAIN) || via_is(stmt, VIA_VECTOR);
    bool moves = tile_op && plain && tile_loop_of(mapper->arena, stmt, &loop) && !loop.is_async;
    if (moves) tile_accesses(mapper->arena, &loop, &accesses);
    if (!moves || loop.rank == 0 || !needs_selects(&loop, &accesses)) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    Block slices = {0};
    bool sliced = selects_are_dear(mapper->user, &loop, &accesses) && !is_within_one(&accesses) &&
                  push_slices(mapper->arena, &loop, 0, &slices);
    if (sliced) {
        FOR_EACH_ITEM (slice, &slices) block_push(mapper->arena, out, slice);
        mapper->changed = true;
        return;
    }
    if (find_unfollowed(mapper->arena, &loop, true, &access)) over_whole_dims(mapper->arena, &access, &loop);
    tile_accesses(mapper->arena, &loop, &whole);
    bool dear = selects_are_dear(mapper->user, &loop, &whole);
    if (dear && call_region(stmt, 1)->buf->scope == SCOPE_FRAGMENT) {
        through_shared(mapper, stmt, out);
        return;
    }
    if (dear && find_unfollowed(mapper->arena, &loop, false, &access)) over_whole_dims(mapper->arena, &access, &loop);
    block_push(mapper->arena, out, loop_over(mapper->arena, &loop));
    mapper->changed = true;
}

bool regions_as_loops(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = region_as_loop, .user = context},
                         &kernel->body);
}

bool select_registers(PassContext *context, Func *kernel) {
    Selects selects = {.context = context, .arena = context->arena};
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = select_in_loop, .user = &selects},
                         &kernel->body);
}
