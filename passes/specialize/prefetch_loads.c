// Loads of vectors from global memory into registers, one iteration ahead: what comes from global memory takes longer
// than an iteration's wait for its tiles.
//
//     for (k in N) {                                      s_next = scale[0, ..]
//         parallel (n in 64) s[n] = scale[k, ..]          for (k in N) {
//         wait(W_full[i])                                     s = s_next
//         work on Ws[i], s                      =>            s_next = scale[min(k + 1, N - 1), ..]
//     }                                                       wait(W_full[i])
//                                                             work on Ws[i], s
//                                                         }
//
// In loops whose MMAs have left operands that threads convert, which are seldom long enough to hide it. The loop that moves
// reads tensors that nothing writes meanwhile, at places that depend on the iteration's number and on
// scalars of outside, and gives all of its fragments (of one dim: two of each fit the registers) before anything in the
// iteration uses them. If the loop has no iteration, what is read is not used, and beyond a tensor's end it is 0.
#include "passes/specialize/builder.h"

// A variable that the iteration changes, or binds to what is no function of its number.
static bool is_bound_in(const Expr *expr, const void *user) {
    const Stmt *loop = user;
    if (expr->kind != EXPR_VAR) return false;
    FOR_EACH_STMT (stmt, &loop->loop.body) {
        bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
        if (!binds || stmt->let.var != expr->var) continue;
        if (stmt->kind != STMT_LET || any_expr(stmt->let.value, is_computed, NULL)) return true;
        if (any_expr(stmt->let.value, is_bound_in, loop)) return true;
    }
    return false;
}

static bool only_loads(Arena *arena, const Stmt *stmt) {
    bool loads = false, stores = false;
    if (!is_loop(stmt, LOOP_PARALLEL) || stmt_any_expr(stmt, is_computed, NULL)) return false;
    FOR_EACH_ITEM (store, &stmt->loop.body)
        if (store->kind != STMT_STORE) return false;
    FOR_EACH_EFFECT (effect, arena, stmt) {
        bool reads = effect->access == ACCESS_READ;
        if (effect->buf->scope != (reads ? SCOPE_GLOBAL : SCOPE_FRAGMENT) || (!reads && effect->buf->rank != 1))
            return false;
        loads |= reads;
        stores |= !reads;
    }
    return loads && stores;
}

// Each fragment gets a whole value here: it is the vector that the loop runs over, and nothing before uses it.
static bool gives_all(Arena *arena, const Block *body, int at) {
    const Stmt *loop = body->items[at];
    const Iter *iter = &loop->loop.iters[0];
    int64_t end;
    if (loop->loop.count != 1 || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
    FOR_EACH_ITEM (store, &loop->loop.body) {
        const Expr *index = store->store.indices[0];
        if (!expr_const(iter->end, &end) || end != buf_extent(store->store.buf, 0)) return false;
        if (index->kind != EXPR_VAR || index->var != iter->var) return false;
        for (int i = 0; i < body->count; i++) {
            const Buf *buf = store->store.buf;
            if (i == at) continue;
            if (i < at ? stmt_touches(arena, body->items[i], buf) : stmt_writes(arena, body->items[i], buf))
                return false;
        }
    }
    return true;
}

static bool may_prefetch(Arena *arena, const Stmt *loop, int at) {
    const Stmt *stmt = loop->loop.body.items[at];
    return only_loads(arena, stmt) && gives_all(arena, &loop->loop.body, at) && !stmt_any_expr(stmt, is_bound_in, loop);
}

// The loads of iteration `count` into the fragments that `subst` has in their place.
static Stmt *loads_of(Arena *arena, Subst *subst, const Stmt *loop, const Stmt *loads, Expr *count) {
    subst_var(subst, loop->loop.iters[0].var, count);
    FOR_EACH_ITEM (let, &loop->loop.body)
        if (let->kind == STMT_LET) subst_var(subst, let->let.var, subst_expr(subst, let->let.value));
    return clone_stmt(arena, subst, loads);
}

static void prefetch(Arena *arena, Stmt *loop, int at, Block *out) {
    Block *body = &loop->loop.body, now = {0};
    Stmt *loads = body->items[at];
    const Iter *iter = &loop->loop.iters[0];
    Subst *first = subst_new(arena), *later = subst_new(arena);
    FOR_EACH_ITEM (store, &loads->loop.body) {
        Buf *buf = store->store.buf;
        Buf *next = buf_new(arena, arena_printf(arena, "%s_next", buf->name), buf->scope, buf->type, buf->rank,
                            buf->shape, buf->loc);
        block_push(arena, out, s_decl(arena, next));
        subst_buf(first, buf, next);
        subst_buf(later, buf, next);
        block_push(arena, &now, s_copy(arena, region_whole(arena, next), region_whole(arena, buf), loads->loc));
    }
    Expr *next = e_plus(arena, e_var(arena, iter->var), 1), *last = e_plus(arena, iter->end, -1);
    block_push(arena, out, loads_of(arena, first, loop, loads, iter->begin));
    block_push(arena, &now, loads_of(arena, later, loop, loads, e_min(arena, next, last)));
    block_remove(body, at);
    for (int i = 0; i < now.count; i++) block_insert(arena, body, at + i, now.items[i]);
}

void prefetch_loads(Arena *arena, Block *block) {
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) {
        bool loop = is_loop(stmt, LOOP_SERIAL) && stmt->loop.count == 1 && expr_is_int(stmt->loop.iters[0].step, 1);
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) prefetch_loads(arena, body);
        if (loop && multiplies_converted(arena, &stmt->loop.body))
            for (int i = stmt->loop.body.count - 1; i >= 0; i--)
                if (may_prefetch(arena, stmt, i)) prefetch(arena, stmt, i, &out);
        block_push(arena, &out, stmt);
    }
    *block = out;
}
