// Loops that store one element of a fragment in several iterations: threads hold elements, and copies of them, so that the
// thread of one iteration would change its own copy alone. Such iterations are executed by each thread:
//
//     parallel (i in 32, j in 4) if (j == k) r[i] = x[i, j];
//     =>    parallel (i in 32) { { if (0 == k) r[i] = x[i, 0]; } { if (1 == k) r[i] = x[i, 1]; } .. }
//
//     parallel (i in 32, j in 64) if (j == 5) r[i] = v[i, j];      the condition leaves one iteration of j
//     =>    parallel (i in 32) { r[i] = v[i, 5]; }
//
// It is done where the copies cost no more than a way through shared memory, by the costs of the target; else layout
// inference reports what it cannot keep in one thread.
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/layout/fragment.h"

static bool is_index(const Stmt *loop, const Stmt *store, const Var *var) {
    FragmentDigits digits;
    TileLoop space = loop_space((Stmt *)loop);
    bool known = fragment_digits(&space, store->store.buf, store->store.count, store->store.indices, &digits);
    for (int d = 0; d < store->store.count; d++)
        if (known ? expr_uses_var(store->store.indices[d], var) : expr_is_var(store->store.indices[d], var))
            return true;
    return false;
}

// Some fragment is stored without this iterator as an index, and something depends on it.
static bool is_lost(const Stmt *loop, const Iter *iter) {
    bool lost = false;
    if (iter_count(iter) == 1 || !stmt_uses_var(loop, iter->var)) return false;
    FOR_EACH_STMT (stmt, &loop->loop.body)
        lost |=
            stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_FRAGMENT && !is_index(loop, stmt, iter->var);
    return lost;
}

// How many copies of the body that makes; 0: too many.
static int64_t copies_of(const Target *target, const Stmt *loop) {
    const WarpCosts *costs = &target->costs;
    int64_t copies = 1, most = (2 * costs->wavefront + costs->barrier) / (2 * costs->select) + 1;
    for (int i = 0; i < loop->loop.count; i++) {
        int64_t count = iter_count(&loop->loop.iters[i]);
        if (!is_lost(loop, &loop->loop.iters[i])) continue;
        if (count < 0 || count > most / copies) return 0;
        copies *= count;
    }
    return copies;
}

// Of one iterator: a copy of the body for each of its values. The loop keeps it with one iteration.
static void repeat_body(Arena *arena, Stmt *loop, Iter *iter) {
    Block body = {0};
    int64_t begin = 0, step = 1;
    expr_const(iter->begin, &begin);
    expr_const(iter->step, &step);
    for (int64_t i = 0; i < iter_count(iter); i++) {
        Subst *subst = subst_new(arena);
        Stmt *copy = s_block(arena);
        subst_var(subst, iter->var, e_int_of(arena, iter->var->type, begin + i * step));
        copy->loc = loop->loc;
        clone_block(arena, subst, &loop->loop.body, &copy->block);
        block_push(arena, &body, copy);
    }
    loop->loop.body = body;
    iter->end = e_int_of(arena, iter->var->type, begin + step);
}

// ---- iterators that a condition leaves one value ----

// What a conjunction says the iterator is; NULL: nothing.
static Expr *value_of(Expr *condition, const Var *var) {
    if (is_binary(condition, BIN_LOGICAL_AND)) {
        Expr *value = value_of(condition->binary.a, var);
        return value ? value : value_of(condition->binary.b, var);
    }
    if (!is_binary(condition, BIN_EQ)) return NULL;
    Expr *a = condition->binary.a, *b = condition->binary.b, *value = expr_is_var(a, var) ? b : a;
    bool says = expr_is_var(a, var) || expr_is_var(b, var);
    return says && !expr_uses_var(value, var) && expr_is_stable(value) ? value : NULL;
}

// The same of the conditions around all of a body.
static Expr *value_in(const Block *body, const Var *var) {
    const Stmt *only = body->count == 1 ? body->items[0] : NULL;
    if (!only || only->kind != STMT_IF || only->if_.otherwise.count) return NULL;
    Expr *value = value_of(only->if_.condition, var);
    return value ? value : value_in(&only->if_.then, var);
}

// The body for that value alone, if it is one of the iterator's. A constant one costs nothing; with others, elements of
// fragments are selected.
static bool keep_one_value(Arena *arena, Stmt *loop, Iter *iter, bool constants) {
    Expr *value = value_in(&loop->loop.body, iter->var);
    int64_t begin, step, constant, count = iter_count(iter);
    bool known = value && count > 0 && expr_const(iter->begin, &begin) && expr_const(iter->step, &step);
    if (!known || (constants && !expr_const(value, &constant))) return false;
    Type type = iter->var->type;
    Expr *first = e_int_of(arena, type, begin), *end = e_int_of(arena, type, begin + (count - 1) * step + 1);
    Expr *is_one = e_both(arena, e_ge(arena, value, first), e_lt(arena, value, end));
    if (step > 1) {
        Expr *rest = e_mod(arena, e_sub(arena, value, first), e_int_of(arena, type, step));
        is_one = e_both(arena, is_one, e_eq(arena, rest, e_int_of(arena, type, 0)));
    }
    Block body = {0};
    Subst *subst = subst_new(arena);
    subst_var(subst, iter->var, value);
    clone_block(arena, subst, &loop->loop.body, block_if(arena, &body, is_one));
    body.items[0]->loc = loop->loc;
    loop->loop.body = body;
    iter->end = e_int_of(arena, type, begin + step);
    return true;
}

static bool keep_single_values(Arena *arena, Stmt *loop, bool constants) {
    bool kept = false;
    for (int i = 0; i < loop->loop.count; i++) {
        Iter *iter = &loop->loop.iters[i];
        kept |= is_lost(loop, iter) && keep_one_value(arena, loop, iter, constants);
    }
    return kept;
}

static void repeat_in_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const PassContext *context = mapper->user;
    block_push(mapper->arena, out, stmt);
    if (!is_loop(stmt, LOOP_PARALLEL)) return;
    mapper->changed |= keep_single_values(mapper->arena, stmt, true);
    if (!copies_of(context->target, stmt)) mapper->changed |= keep_single_values(mapper->arena, stmt, false);
    if (copies_of(context->target, stmt) <= 1) return;
    for (int i = 0; i < stmt->loop.count; i++)
        if (is_lost(stmt, &stmt->loop.iters[i])) repeat_body(mapper->arena, stmt, &stmt->loop.iters[i]);
    mapper->changed = true;
}

bool repeat_common_stores(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = repeat_in_loop, .user = context},
                         &kernel->body);
}
