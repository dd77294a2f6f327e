// raise-copies, loops that are no copies: elements that are gathered into shared tiles get one form, which has mechanisms (cp.async, by
// the warps that load).
//
//     parallel (e in 8, i in 64, j in 8) {                          parallel (i in 64, c in 64)
//         var v: bf16 = 0;                                              As[i, c] = ids[i] >= 0 ? x[ids[i], k * 64 + c] : 0;
//         if (ids[i] >= 0) v = x[ids[i], k * 64 + j * 8 + e];   =>  parallel (i in 64, c in 64)
//         As[i, j * 8 + e] = v;                                         Bs[i, c] = y[ids[i], c];
//         Bs[i, j * 8 + e] = y[ids[i], j * 8 + e];
//     }
//
// A loop for each tile, whose iterators are the dims of the tile, in order. Values of fragments are left as they are: their threads
// have them.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/query.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"
#include "passes/tile/loop_stores.h"

typedef struct Gather {
    Arena *arena;
    const Facts *facts;
    const Stmt *loop;
    Store store;
    Iter iters[LAYOUT_MAX_RANK];   // of the tile's dims
    Subst *subst;                  // old iterators, by new ones
    bool used[LAYOUT_MAX_RANK];    // old ones
} Gather;

// ---- what is gathered ----

static bool loads_tensor(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_LOAD && e->load.buf->scope == SCOPE_GLOBAL;
}

static bool loads_registers(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_LOAD && (e->load.buf->scope & (SCOPE_FRAGMENT | SCOPE_LOCAL)) != 0;
}

static bool is_gather(const Store *store) {
    const Buf *to = store->to.buf;
    return to->scope == SCOPE_SHARED && buf_is_free(to) && store->to.count == to->rank &&
           any_expr(store->value, loads_tensor, NULL) && !any_expr(store->value, loads_registers, NULL) &&
           !(store->guard && any_expr(store->guard, loads_registers, NULL));
}

// ---- iterators of the tile's dims ----

static Expr *new_index(const Gather *g, int dim) {
    return e_var(g->arena, g->iters[dim].var);
}

// The index is the sum of iterators times what the faster ones have, and so takes each value of the dim one time.
static bool takes_digits(Gather *g, int dim) {
    Arena *a = g->arena;
    Expr *index = g->store.to.indices[dim], *sum = e_int(a, 0);
    int64_t extent = buf_extent(g->store.to.buf, dim), reach = 1, stride;
    for (bool found = true; found && reach < extent;) {
        found = false;
        for (int i = 0; i < g->loop->loop.count && !found; i++) {
            const Iter *iter = &g->loop->loop.iters[i];
            int64_t count = iter_count(iter);
            found = !g->used[i] && expr_is_int(iter->begin, 0) && linear_in(index, iter->var, &stride) &&
                    stride == reach && count > 1;
            if (!found) continue;
            if (reach == 1) g->iters[dim].var->name = iter->var->name;
            bool all = reach == 1 && count == extent;
            Expr *digit = all ? new_index(g, dim) : e_rem(a, e_over(a, new_index(g, dim), reach), count);
            subst_var(g->subst, iter->var, digit);
            sum = e_add(a, sum, e_times(a, e_var(a, iter->var), reach));
            g->used[i] = true;
            reach *= count;
        }
    }
    LinearSum rest = linear_new(TYPE_I64);
    linear_add(a, &rest, index, 1);
    linear_add(a, &rest, sum, -1);
    return reach == extent && !rest.full && linear_is_constant(&rest, 0);
}

// t / C and t % C, in this and the next dim.
static bool takes_quotient(Gather *g, int dim) {
    const Expr *high = g->store.to.indices[dim],
               *low = dim + 1 < g->store.to.count ? g->store.to.indices[dim + 1] : NULL;
    int64_t columns = dim + 1 < g->store.to.count ? buf_extent(g->store.to.buf, dim + 1) : 0;
    if (!low || !is_binary(high, BIN_DIV) || !is_binary(low, BIN_MOD)) return false;
    for (int i = 0; i < g->loop->loop.count; i++) {
        const Iter *iter = &g->loop->loop.iters[i];
        bool divided = expr_is_var(high->binary.a, iter->var) && expr_is_var(low->binary.a, iter->var) &&
                       expr_is_int(high->binary.b, columns) && expr_is_int(low->binary.b, columns);
        bool all = divided && !g->used[i] && expr_is_int(iter->begin, 0) &&
                   iter_count(iter) == columns * buf_extent(g->store.to.buf, dim);
        if (!all) continue;
        Expr *number = e_add(g->arena, e_times(g->arena, new_index(g, dim), columns), new_index(g, dim + 1));
        subst_var(g->subst, iter->var, number);
        g->iters[dim].var->name = "r";
        return g->used[i] = true;
    }
    return false;
}

static bool is_in_order(const Gather *g) {
    for (int d = 0; d < g->store.to.count; d++)
        if (d >= g->loop->loop.count || !expr_is_var(g->store.to.indices[d], g->loop->loop.iters[d].var)) return false;
    return g->loop->loop.count == g->store.to.count;
}

static bool find_iterators(Gather *g) {
    for (int d = 0; d < g->store.to.count; d++) {
        Var *var = var_new(g->arena, "c", VAR_ITER, TYPE_I64, g->loop->loc);
        Expr *extent = e_int(g->arena, buf_extent(g->store.to.buf, d));
        g->iters[d] = (Iter){var, e_int(g->arena, 0), extent, e_int(g->arena, 1)};
    }
    for (int d = 0; d < g->store.to.count; d++) {
        if (takes_digits(g, d)) continue;
        if (!takes_quotient(g, d)) return false;
        d++;
    }
    for (int i = 0; i < g->loop->loop.count; i++)
        if (!g->used[i]) return false;
    return true;
}

// ---- rows that are copied one by one ----

// The element of a region at the iterators of its dims.
static Expr **element_at(Arena *arena, const Region *region, const Iter *iters) {
    Expr **at = NEW_ARRAY(arena, Expr *, region->count);
    int kept = 0;
    for (int d = 0; d < region->count; d++) {
        at[d] = region->dims[d].start;
        if (region->dims[d].extent) at[d] = e_add(arena, at[d], e_var(arena, iters[kept++].var));
    }
    return at;
}

// All of the slice is there, as it lies in the buffer.
static bool is_whole_slice(const Region *region) {
    for (int d = 0; d < region->count; d++)
        if (region->dims[d].extent && !expr_is_int(region->dims[d].extent, region->dims[d].tile)) return false;
    return !region->transposed && !region->buf->im2col;
}

// An iterator for each dim that the region keeps; false: they are too many.
static bool add_dims(Arena *arena, const Region *region, Stmt *loop) {
    for (int d = 0; d < region->count; d++) {
        int64_t extent = region->dims[d].tile;
        if (!region->dims[d].extent) continue;
        if (loop->loop.count == LAYOUT_MAX_RANK) return false;
        Var *var = var_new(arena, "c", VAR_ITER, TYPE_I64, loop->loc);
        Iter iter = {var, e_int(arena, 0), e_int(arena, extent), e_int(arena, 1)};
        iter_insert(arena, &loop->loop.iters, &loop->loop.count, loop->loop.count, iter);
    }
    return true;
}

Stmt *rows_as_loop(Arena *arena, const Stmt *rows) {
    const Block *body = &rows->loop.body;
    bool plain = (is_loop(rows, LOOP_SERIAL) || is_loop(rows, LOOP_UNROLL)) && !rows->attrs && loop_is_plain(rows) &&
                 iter_count(&rows->loop.iters[0]) > 1 && body->count > 0;
    const Stmt *last = plain ? last_behind_names(body) : NULL;
    if (!last || !is_bare_copy(last) || !is_global_to_shared_copy(last)) return NULL;
    CopyOp copy = copy_of(last);
    if (!buf_is_free(copy.dst->buf) || region_rank(copy.src) != 1 || region_rank(copy.dst) != 1) return NULL;
    if (!is_whole_slice(copy.src) || !is_whole_slice(copy.dst)) return NULL;
    Stmt *loop = stmt_new(arena, STMT_FOR, rows->loc);
    loop->loop.kind = LOOP_PARALLEL;
    iter_insert(arena, &loop->loop.iters, &loop->loop.count, 0, rows->loop.iters[0]);
    if (!add_dims(arena, copy.dst, loop)) return NULL;
    const Iter *kept = loop->loop.iters + 1;
    for (int i = 0; i + 1 < body->count; i++) block_push(arena, &loop->loop.body, body->items[i]);
    Expr *value = e_load(arena, copy.src->buf, copy.src->count, element_at(arena, copy.src, kept));
    block_push(arena, &loop->loop.body,
               s_store(arena, copy.dst->buf, copy.dst->count, element_at(arena, copy.dst, kept),
                       e_cast(arena, copy.dst->buf->type, value)));
    return loop;
}

// ---- conditions of vectors ----

typedef struct Runs {
    Arena *arena;
    const Facts *facts;
    const Var *along;   // the iterator of the last dim
    int64_t vector;
    bool changed;
} Runs;

// c + j < b, where c and b are multiples of a vector: so for all of it, c + j / 8 * 8 < b.
static Expr *in_runs(Mapper *mapper, Expr *expr) {
    Runs *runs = mapper->user;
    Arena *a = mapper->arena;
    int64_t left, right;
    if (!is_binary(expr, BIN_LT) && !is_binary(expr, BIN_GE)) return expr;
    Expr *sides[] = {expr->binary.a, expr->binary.b};
    if (sides[0]->type != TYPE_I64 || !linear_in(sides[0], runs->along, &left) || left != 1) return expr;
    if (!linear_in(sides[1], runs->along, &right) || right != 0) return expr;
    Subst *first = subst_new(a), *run = subst_new(a);
    subst_var(first, runs->along, e_int(a, 0));
    Expr *rest = simplify_expr(a, runs->facts, e_sub(a, subst_expr(first, sides[0]), sides[1]));
    if (multiple_of(runs->facts, rest) % runs->vector != 0) return expr;
    Expr *along = e_var(a, (Var *)runs->along);
    subst_var(run, runs->along, e_times(a, e_over(a, along, runs->vector), runs->vector));
    runs->changed = true;
    return subst_expr(run, expr);
}

// ---- the loop ----

static Expr *folded(Mapper *mapper, Expr *expr) {
    return simplify_expr(mapper->arena, mapper->user, expr);
}

// `in_vectors`: a condition was changed.
static Stmt *loop_of(Gather *g, Stmt *store, bool *in_vectors) {
    Stmt *loop = stmt_new(g->arena, STMT_FOR, g->loop->loc);
    loop->loop.kind = LOOP_PARALLEL;
    for (int d = 0; d < g->store.to.count; d++)
        iter_insert(g->arena, &loop->loop.iters, &loop->loop.count, d, g->iters[d]);
    Block *body = &loop->loop.body;
    if (g->store.guard) body = block_if(g->arena, body, subst_expr(g->subst, g->store.guard));
    block_push(g->arena, body, store);
    Facts *facts = (Facts *)g->facts;
    int mark = facts_mark(facts);
    for (int d = 0; d < loop->loop.count; d++) facts_iter(facts, &loop->loop.iters[d]);
    map_block(&(Mapper){.arena = g->arena, .expr = folded, .user = facts, .whole = true}, &loop->loop.body);
    Runs runs = {g->arena, facts, g->iters[g->store.to.count - 1].var,
                 tma_facts.unit_bytes / type_bytes(g->store.to.buf->type), false};
    map_block(&(Mapper){.arena = g->arena, .expr = in_runs, .user = &runs}, &loop->loop.body);
    facts_release(facts, mark);
    *in_vectors |= runs.changed;
    return loop;
}

static Stmt *normal_gather(Gather *g, bool *in_vectors) {
    Arena *a = g->arena;
    Expr *at[LAYOUT_MAX_RANK];
    if (is_in_order(g)) {
        for (int d = 0; d < g->store.to.count; d++) {
            g->iters[d] = g->loop->loop.iters[d];
            g->iters[d].var = var_new(a, g->iters[d].var->name, VAR_ITER, TYPE_I64, g->loop->loc);
            subst_var(g->subst, g->loop->loop.iters[d].var, new_index(g, d));
        }
    } else if (!find_iterators(g)) {
        return NULL;
    }
    for (int d = 0; d < g->store.to.count; d++) at[d] = new_index(g, d);
    return loop_of(g, s_store(a, g->store.to.buf, g->store.to.count, at, subst_expr(g->subst, g->store.value)),
                   in_vectors);
}

bool normal_gathers(Arena *arena, const Facts *facts, const Stmt *written, const Stmt *loop, const Stores *stores,
                    Block *out) {
    bool changes = loop != written || stores->vars || stores->all.count > 1;
    VEC_EACH (const Store, each, &stores->all) {
        Gather g = {.arena = arena, .facts = facts, .loop = loop, .store = *each, .subst = subst_new(arena)};
        look_through(stores, &g.store);
        if (!is_gather(&g.store)) return false;
        changes |= !is_in_order(&g);
        Stmt *gather = normal_gather(&g, &changes);
        if (!gather) return false;
        block_push(arena, out, gather);
    }
    return changes;
}
