// Loops that store one element of a fragment in several iterations: threads hold elements, and copies of them, so that the
// thread of one iteration would change its own copy alone. Such iterations are executed by each thread:
//
//     parallel (i in 32, j in 4) if (j == k) r[i] = x[i, j];
//     =>    parallel (i in 32) { { if (0 == k) r[i] = x[i, 0]; } { if (1 == k) r[i] = x[i, 1]; } .. }
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

static void repeat_in_loop(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const PassContext *context = mapper->user;
    block_push(mapper->arena, out, stmt);
    if (!is_loop(stmt, LOOP_PARALLEL) || copies_of(context->target, stmt) <= 1) return;
    for (int i = 0; i < stmt->loop.count; i++)
        if (is_lost(stmt, &stmt->loop.iters[i])) repeat_body(mapper->arena, stmt, &stmt->loop.iters[i]);
    mapper->changed = true;
}

bool repeat_common_stores(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = repeat_in_loop, .user = context},
                         &kernel->body);
}
