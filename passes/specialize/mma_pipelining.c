// Software pipelining of MMA across iterations: the last MMA of an iteration moves behind the first one of the next, so
// that the tensor cores have work while the threads compute the operand of the next MMA from the result of the one
// before.
//
//     for (n in N) {                    if (0 < N) {
//         s = Qs * Ks[n]                    s = Qs * Ks[0];  p = softmax(s)
//         p = softmax(s)        =>          for (n in 1 .. N) {
//         o += p * Vs[n]                        s = Qs * Ks[n]
//     }                                         o += p * Vs[n - 1]      overlaps the softmax below
//                                               p = softmax(s)
//                                           }
//                                           o += p * Vs[N - 1]
//                                       }
//
// The MMA that moves has its left operand in registers, computed by the iteration. Its tile moves too: the wait before
// it and the arrival that frees its slot behind it. The MMA may pass the statements from the top of the body to the
// first MMA if none of them touches its accumulator or writes its operand, and if it needs no scalar of its own
// iteration. No other statement of the iteration may read its tile (slots are counted once, where the last reader frees
// them, so the MMA finds the slot of its own iteration). The tile must have two slots: the next copy may come before
// the tile of this iteration's first MMA. If the loop surely runs, there is no `if`.
#include "passes/analysis/kernel_walk.h"
#include "passes/specialize/builder.h"

typedef struct Rotation {
    Arena *arena;
    Map *consumes;
    Facts *facts;
    int head;          // statements up to the first MMA, including its arrivals
    int moves, ends;   // the MMA that moves, with its waits: from .. end of the body
} Rotation;

// The expression is a variable that the iteration binds: an MMA that uses it stays.
static bool is_bound_in(const Expr *expr, const void *user) {
    const Stmt *loop = user;
    if (expr->kind != EXPR_VAR) return false;
    for (int i = 0; i < loop->loop.count; i++)
        if (loop->loop.iters[i].var == expr->var) return true;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (stmt->kind == STMT_LET && stmt->let.var == expr->var) return true;
    return false;
}

static int declaration_in(const Block *body, const Buf *buf) {   // -1: none
    for (int i = 0; i < body->count; i++)
        if (body->items[i]->kind == STMT_DECL && body->items[i]->decl == buf) return i;
    return -1;
}

// The body ends with waits, one MMA and arrivals.
static bool find_pieces(Rotation *r, const Block *body) {
    int at = body->count - 1, first = 0;
    while (at >= 0 && map_has(r->consumes, body->items[at])) at--;
    if (at < 0 || !is_wgmma(body->items[at])) return false;
    r->moves = at;
    while (r->moves > 0 && is_call(body->items[r->moves - 1], OP_MBARRIER_WAIT)) r->moves--;
    while (first < r->moves && !is_wgmma(body->items[first])) first++;
    r->head = first + 1;
    r->ends = at;
    while (r->head < r->moves && map_has(r->consumes, body->items[r->head])) r->head++;
    return first < r->moves;
}

static bool may_move(Rotation *r, const Stmt *loop) {
    const Block *body = &loop->loop.body;
    GemmOp gemm = gemm_of(body->items[r->ends]);
    const Buf *a = gemm.a->buf, *b = gemm.b->buf, *acc = gemm.acc->buf;
    if (a->scope != SCOPE_FRAGMENT || b->stage_dims == 0 || buf_extent(b, 0) < 2) return false;
    if (declaration_in(body, acc) >= 0) return false;
    for (int i = r->moves; i < body->count; i++)
        if (stmt_any_expr(body->items[i], is_bound_in, loop)) return false;
    for (int i = 0; i < r->moves; i++)
        if (stmt_touches(r->arena, body->items[i], b)) return false;
    for (int i = 0; i < r->head; i++)
        if (stmt_touches(r->arena, body->items[i], acc) || stmt_writes(r->arena, body->items[i], a)) return false;
    return true;
}

// Declares the left operand outside the loop: it now lives across iterations.
static void hoist_operand(Rotation *r, Block *body, Block *out) {
    int at = declaration_in(body, gemm_of(body->items[r->ends]).a->buf);
    if (at < 0) return;
    block_push(r->arena, out, body->items[at]);
    block_remove(body, at);
    find_pieces(r, body);
}

static void append(Rotation *r, const Block *from, int begin, int end, Block *to) {
    for (int i = begin; i < end; i++) block_push(r->arena, to, from->items[i]);
}

// A copy of statements, arrivals included.
static void append_copy(Rotation *r, const Block *from, int begin, int end, Subst *subst, Block *to) {
    for (int i = begin; i < end; i++) {
        Stmt *clone = clone_stmt(r->arena, subst, from->items[i]);
        void *group = map_get(r->consumes, from->items[i]);
        if (group) map_put(r->consumes, clone, group);
        block_push(r->arena, to, clone);
    }
}

// Arrivals behind the loop, from `at` on, that are unrelated to the moved MMA: they need not wait for it.
static int arrivals_behind(Rotation *r, const Block *block, int at, const Stmt *gemm) {
    int count = 0;
    while (at + count < block->count && map_has(r->consumes, block->items[at + count]) &&
           !consumes_tile(map_get(r->consumes, block->items[at + count]), gemm_of(gemm).b->buf))
        count++;
    return count;
}

// Returns the number of statements behind the loop that move with it.
static int rotate_loop(Rotation *r, const Block *block, int at, Block *out) {
    Stmt *loop = block->items[at];
    Arena *a = r->arena;
    Iter *iter = &loop->loop.iters[0];
    hoist_operand(r, &loop->loop.body, out);
    EXPECT(arena_failure(a), r->head <= r->moves && r->moves <= r->ends && r->ends < loop->loop.body.count,
           "the pieces of a loop of %d statements overlap", loop->loop.body.count);
    const Block body = loop->loop.body;
    Stmt *some = s_if(a, e_lt(a, iter->begin, iter->end)), *first = s_block(a);
    Subst *subst = subst_new(a);
    bool runs = prove(r->facts, some->if_.condition);
    Block *to = runs ? out : &some->if_.then;
    some->loc = first->loc = loop->loc;
    subst_var(subst, iter->var, iter->begin);
    append_copy(r, &body, 0, r->moves, subst, &first->block);
    block_push(a, to, first);
    loop->loop.body = (Block){0};
    append(r, &body, 0, r->head, &loop->loop.body);
    append_copy(r, &body, r->moves, body.count, NULL, &loop->loop.body);
    append(r, &body, r->head, r->moves, &loop->loop.body);
    iter->begin = e_plus(a, iter->begin, 1);
    block_push(a, to, loop);
    int behind = arrivals_behind(r, block, at + 1, body.items[r->ends]);
    if (!runs) append_copy(r, block, at + 1, at + 1 + behind, NULL, &some->if_.otherwise);
    append(r, block, at + 1, at + 1 + behind, to);
    append(r, &body, r->moves, body.count, to);
    if (!runs) block_push(a, out, some);
    return behind;
}

void pipeline_mma(Arena *arena, Facts *facts, Block *block, Map *consumes) {
    Block out = {0};
    int outer = facts_mark(facts);
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Rotation r = {.arena = arena, .consumes = consumes, .facts = facts};
        bool loop = is_loop(stmt, LOOP_SERIAL) && stmt->loop.count == 1 && expr_is_int(stmt->loop.iters[0].step, 1);
        int mark = facts_mark(facts);
        facts_enter(facts, stmt);
        FOR_EACH_BODY (body, stmt) pipeline_mma(arena, facts, body, consumes);
        if (!is_scalar(stmt)) facts_release(facts, mark);
        if (loop && find_pieces(&r, &stmt->loop.body) && may_move(&r, stmt)) i += rotate_loop(&r, block, i, &out);
        else block_push(arena, &out, stmt);
    }
    facts_release(facts, outer);
    *block = out;
}
