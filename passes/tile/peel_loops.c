// peel-loops: loop peeling. A loop with an `if` that holds only in its first or last iterations becomes two or three
// loops, when asynchronous products overlap the other work of an iteration.
//
//     for (n in begin .. end) {                           let plain = min(end, max(begin, T / 64));
//         async gemm(Qs, Ks[n].T, s)                      for (n in begin .. plain) {
//         wgmma_wait(1)                                       async gemm(Qs, Ks[n].T, s)
//         if (n * 64 + 63 >= T) { mask s }          =>        wgmma_wait(1)
//         softmax of s                                        softmax of s
//     }                                                   }
//                                                         for (n in plain .. end) {
//                                                             assume(n * 64 + 63 >= T);
//                                                             async gemm(Qs, Ks[n].T, s)
//                                                             wgmma_wait(1)
//                                                             mask s
//                                                             softmax of s
//                                                         }
//
// When the first loop is one iteration, the start of pipelined MMA, waits in it for more products than are in flight
// are removed.
//
// Why only loops with asynchronous products: ptxas moves a wait past instructions that do not use its registers, but
// not past a branch. With the `if` in the loop, the wait for a product that could overlap the softmax moves up to the
// branch. Loops without such products stay whole; hoist_guards.c handles them.
//
// The condition is one comparison, or several of which one must hold (`||`), each linear in the loop's index. A rising
// one holds in all iterations from some n on; a falling one, as at the near edge of a window, in all iterations up to
// some n, which gives a loop before the plain one, too. The limits are computed before the loops.
//
//     if (n * 64 + 63 > at || n * 64 + window <= at + 127)  =>   let near = min(end, max(begin, (at + 127 - window + 64) / 64));
//                                                                let plain = min(end, max(near, ceildiv(at - 62, 64)));
//                                                                for (n in begin .. near) { ... mask s ... }
//                                                                for (n in near .. plain) { ... }
//                                                                for (n in plain .. end) { ... mask s ... }
//
// Not peeled: conditions on values that the iteration computes; loops with several such conditions; loops with a
// `break` (the next loop would continue).
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/specialize/builder.h"
#include "passes/specialize/warp_specialize.h"

// Of a condition: it holds before `until` and from `from` on; NULL: by no comparison that falls, that rises.
typedef struct Edges {
    Expr *until, *from;
} Edges;

typedef struct Split {
    Arena *arena;
    Map *edges;         // loop -> Edges: where its plain part begins and ends
    Map *single_trip;   // loops whose plain part is the first and has one iteration, and then that part
} Split;

static bool starts_products(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (is_call(stmt, OP_GEMM) && stmt->call.is_async) return true;
    return false;
}

static bool assigns(const Block *block) {   // slots and parities
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_ASSIGN) return true;
    return false;
}

static bool is_rare(const Stmt *stmt) {
    return stmt->kind == STMT_IF && stmt->if_.otherwise.count == 0 && expr_is_stable(stmt->if_.condition);
}

// The one statement that only some iterations do; -1.
static int rare_at(const Block *body) {
    int at = -1;
    for (int i = 0; i < body->count; i++) {
        if (body->items[i]->kind != STMT_IF || assigns(&body->items[i]->if_.then)) continue;
        if (at >= 0 || !is_rare(body->items[i])) return -1;
        at = i;
    }
    return at;
}

// A variable that the body binds at its top level, or a `var`.
static bool is_bound_in(const Expr *expr, const void *body) {
    if (expr->kind != EXPR_VAR) return false;
    FOR_EACH_ITEM (stmt, (const Block *)body)
        if ((stmt->kind == STMT_LET || stmt->kind == STMT_VAR) && stmt->let.var == expr->var) return true;
    return expr->var->kind == VAR_MUTABLE;
}

// Of one comparison, counted from 0 on. False: it does not depend on the index so, or may wrap around.
static bool edge_of(Arena *arena, const Facts *facts, const Expr *e, const Var *index, Edges *edges) {
    int64_t in_a, in_b;
    if (!is_comparison(e) || e->binary.a->type != TYPE_I64 || !comparison_is_exact(facts, e)) return false;
    BinaryOp op = e->binary.op;
    bool least = op == BIN_GE || op == BIN_GT, strict = op == BIN_GT || op == BIN_LT;
    if (!least && op != BIN_LE && op != BIN_LT) return false;
    Expr *high = least ? e->binary.a : e->binary.b, *low = least ? e->binary.b : e->binary.a;   // high >= low
    if (!linear_in(high, index, &in_a) || !linear_in(low, index, &in_b) || in_a == in_b) return false;
    bool rises = in_a > in_b;
    Subst *subst = subst_new(arena);
    subst_var(subst, index, e_int(arena, 0));
    high = subst_expr(subst, high);
    low = subst_expr(subst, low);
    Expr *step = e_int(arena, rises ? in_a - in_b : in_b - in_a), *none = e_int(arena, 0);
    // what is missing at 0, or, where it falls, what is left
    Expr *rest = rises ? e_add(arena, e_sub(arena, low, high), e_int(arena, strict))
                       : e_add(arena, e_sub(arena, high, low), e_sub(arena, step, e_int(arena, strict)));
    int64_t constant;
    if (!expr_const(rest, &constant) && !comparison_is_exact(facts, e_binary(arena, BIN_GT, rest, none))) return false;
    rest = e_max(arena, rest, none);
    *edges =
        rises ? (Edges){.from = e_call2(arena, OP_CEILDIV, rest, step)} : (Edges){.until = e_div(arena, rest, step)};
    return true;
}

static bool edges_of(Arena *arena, const Facts *facts, const Expr *e, const Var *index, Edges *edges) {
    Edges a, b;
    if (!is_binary(e, BIN_LOGICAL_OR)) return edge_of(arena, facts, e, index, edges);
    if (!edges_of(arena, facts, e->binary.a, index, &a) || !edges_of(arena, facts, e->binary.b, index, &b))
        return false;
    edges->from = a.from && b.from ? e_min(arena, a.from, b.from) : a.from ? a.from : b.from;
    edges->until = a.until && b.until ? e_max(arena, a.until, b.until) : a.until ? a.until : b.until;
    return true;
}

static Expr *within(Split *split, Facts *facts, const Iter *iter, Expr *least, Expr *index) {
    return simplify_expr(split->arena, facts, e_min(split->arena, iter->end, e_max(split->arena, least, index)));
}

static void visit_loop(void *user, Stmt *stmt, const Facts *at) {
    Split *split = user;
    if (!is_loop(stmt, LOOP_SERIAL) || stmt->loop.count != 1) return;
    const Iter *iter = &stmt->loop.iters[0];
    int rare = block_breaks(&stmt->loop.body) ? -1 : rare_at(&stmt->loop.body);
    if (rare < 0 || !expr_is_int(iter->step, 1) || !starts_products(&stmt->loop.body)) return;
    Expr *condition = stmt->loop.body.items[rare]->if_.condition;
    if (any_expr(condition, is_bound_in, &stmt->loop.body)) return;
    Facts *facts = (Facts *)at;   // as it was when we return
    if (!prove(facts, e_ge(split->arena, iter->begin, e_int(split->arena, 0)))) return;
    int mark = facts_mark(facts);
    Edges *edges = NEW(split->arena, Edges);
    facts_iter(facts, iter);
    bool known = edges_of(split->arena, facts, condition, iter->var, edges);
    facts_release(facts, mark);
    if (!known) return;
    if (edges->until) edges->until = within(split, facts, iter, iter->begin, edges->until);
    else if (edges->from) edges->from = within(split, facts, iter, iter->begin, edges->from);
    map_put(split->edges, stmt, edges);
    if (edges->until) return;
    Expr *trips = e_sub(split->arena, edges->from, iter->begin);
    if (prove(facts, e_binary(split->arena, BIN_LE, trips, e_int(split->arena, 1))))
        map_put(split->single_trip, stmt, stmt);
}

static Stmt *piece_of(Arena *arena, Stmt *loop, Expr *begin, Expr *end) {
    Stmt *piece = clone_stmt(arena, NULL, loop);
    piece->loop.iters[0].begin = begin;
    piece->loop.iters[0].end = end;
    return piece;
}

// What the statement does, known to be needed.
static void unwrap(Arena *arena, Block *body, int at) {
    const Stmt *rare = body->items[at];
    EXPECT(arena_failure(arena), is_rare(rare), "statement %d of the loop is no rare `if`", at);
    block_remove(body, at);
    for (int i = 0; i < rare->if_.then.count; i++) block_insert(arena, body, at + i, rare->if_.then.items[i]);
    block_insert(arena, body, 0, s_assume(arena, rare->if_.condition, rare->loc));
}

static void push_rare(Arena *arena, Stmt *loop, Expr *begin, Expr *end, int rare, Block *out) {
    Stmt *piece = piece_of(arena, loop, begin, end);
    unwrap(arena, &piece->loop.body, rare);
    block_push(arena, out, piece);
}

static void split_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Split *split = mapper->user;
    Arena *arena = mapper->arena;
    const Edges *edges = map_get(split->edges, stmt);
    if (!edges) {
        block_push(arena, out, stmt);
        return;
    }
    Expr *begin = stmt->loop.iters[0].begin, *end = stmt->loop.iters[0].end, *last = end;
    int rare = rare_at(&stmt->loop.body);
    Expr *first = edges->until ? block_let(arena, out, "near", edges->until, stmt->loc) : begin;
    if (edges->from) {
        Expr *from = edges->until ? e_min(arena, end, e_max(arena, first, edges->from)) : edges->from;
        last = block_let(arena, out, "plain", from, stmt->loc);
    }
    Stmt *most = piece_of(arena, stmt, first, last);
    if (map_has(split->single_trip, stmt)) map_put(split->single_trip, most, most);
    block_remove(&most->loop.body, rare);
    if (edges->until) push_rare(arena, stmt, begin, first, rare, out);
    block_push(arena, out, most);
    if (edges->from) push_rare(arena, stmt, last, end, rare, out);
}

bool pass_peel_loops(PassContext *context, Func *kernel) {
    Split split = {context->arena, map_new(context->arena), map_new(context->arena)};
    kernel_walk(context->arena, kernel, visit_loop, &split);
    if (map_count(split.edges) == 0) return false;
    rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = split_stmt, .user = &split}, &kernel->body);
    drop_redundant_waits(context->arena, kernel, split.single_trip);
    return true;
}
