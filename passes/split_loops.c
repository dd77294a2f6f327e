// split-loops: a loop whose last iterations do more than the others becomes two, where products run beside an iteration's work.
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
// Where the first part is one iteration (which starts what the second one repeats), the waits in it that find too few products to
// wait for go (idle_waits.c).
//
// A branch parts what the assembler orders as one: it moves the wait for a product that runs meanwhile up to the branch, since it
// moves waits past all that does not touch their registers. Where nothing runs beside the work the one loop stays (unswitch.c).
//
// The condition is one comparison, or several of which one must hold (`||`), each linear in the loop's index and rising
// with it: from the first iteration in which it holds on it holds in all. That iteration is computed before the loop.
//
// Left alone: conditions that fall with the index, as at the near edge of a window, or that need what the iteration computes; loops
// with several such conditions; loops that are left (which would go on with the second one).
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/idle_waits.h"
#include "passes/kernel_walk.h"
#include "passes/parting.h"
#include "passes/tile_loop.h"
#include "passes/util.h"

typedef struct Split {
    Arena *arena;
    Map *plain;   // loop -> Expr: where its first part ends
    Map *once;    // loops whose first part has one iteration, and then that part
} Split;

static bool is_running(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_GEMM) && stmt->call.is_async;
}

static bool counts(const Stmt *stmt, void *user) {   // slots and parities
    (void)user;
    return stmt->kind == STMT_ASSIGN;
}

static bool is_rare(const Stmt *stmt) {
    return stmt->kind == STMT_IF && stmt->if_.otherwise.count == 0 && expr_is_stable(stmt->if_.condition);
}

// The one statement that only some iterations do; -1.
static int rare_at(const Block *body) {
    int at = -1;
    for (int i = 0; i < body->count; i++) {
        if (body->items[i]->kind != STMT_IF || block_any(&body->items[i]->if_.then, counts, NULL)) continue;
        if (at >= 0 || !is_rare(body->items[i])) return -1;
        at = i;
    }
    return at;
}

typedef struct Bound {
    const Block *body;
    bool found;
} Bound;

static bool find_bound(Visitor *visitor, Expr *expr) {
    Bound *bound = visitor->user;
    for (int i = 0; expr->kind == EXPR_VAR && i < bound->body->count; i++) {
        const Stmt *stmt = bound->body->items[i];
        bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR;
        bound->found |= binds && stmt->let.var == expr->var;
    }
    bound->found |= expr->kind == EXPR_VAR && expr->var->kind == VAR_MUTABLE;
    return !bound->found;
}

// The first index at which the comparison holds, from 0 on; NULL: it does not rise with it, or may wrap around.
static Expr *first_of(Arena *arena, const Facts *facts, const Expr *e, const Var *index) {
    int64_t in_a, in_b;
    bool compares = e->kind == EXPR_BINARY && e->binary.op >= BIN_EQ && e->binary.op <= BIN_GE;
    if (!compares || e->binary.a->type != TYPE_I64 || !comparison_is_exact(facts, e)) return NULL;
    BinaryOp op = e->binary.op;
    bool least = op == BIN_GE || op == BIN_GT, strict = op == BIN_GT || op == BIN_LT;
    if (!least && op != BIN_LE && op != BIN_LT) return NULL;
    Expr *high = least ? e->binary.a : e->binary.b, *low = least ? e->binary.b : e->binary.a;   // high >= low
    if (!linear_in(high, index, &in_a) || !linear_in(low, index, &in_b) || in_a <= in_b) return NULL;
    Subst *subst = subst_new(arena);
    subst_var(subst, index, e_int(arena, 0));
    Expr *misses = e_sub(arena, subst_expr(subst, low), subst_expr(subst, high));
    if (strict) misses = e_add(arena, misses, e_int(arena, 1));
    return e_call2(arena, OP_CEILDIV, e_max(arena, misses, e_int(arena, 0)), e_int(arena, in_a - in_b));
}

static Expr *first_of_any(Arena *arena, const Facts *facts, const Expr *e, const Var *index) {
    if (e->kind != EXPR_BINARY || e->binary.op != BIN_LOGICAL_OR) return first_of(arena, facts, e, index);
    Expr *a = first_of_any(arena, facts, e->binary.a, index), *b = first_of_any(arena, facts, e->binary.b, index);
    return a && b ? e_min(arena, a, b) : NULL;
}

static void visit_loop(void *user, Stmt *stmt, const Facts *at) {
    Split *split = user;
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_SERIAL || stmt->loop.count != 1) return;
    const Iter *iter = &stmt->loop.iters[0];
    int rare = block_breaks(&stmt->loop.body) ? -1 : rare_at(&stmt->loop.body);
    if (rare < 0 || !expr_is_int(iter->step, 1) || !block_any(&stmt->loop.body, is_running, NULL)) return;
    Expr *condition = stmt->loop.body.items[rare]->if_.condition;
    Bound bound = {&stmt->loop.body, false};
    Visitor visitor = {.expr = find_bound, .user = &bound};
    visit_expr(&visitor, condition);
    Facts *facts = (Facts *)at;   // as it was when we return
    if (bound.found || !prove(facts, e_binary(split->arena, BIN_GE, iter->begin, e_int(split->arena, 0)))) return;
    int mark = facts_mark(facts);
    facts_iter(facts, iter);
    Expr *first = first_of_any(split->arena, facts, condition, iter->var);
    facts_release(facts, mark);
    if (!first) return;
    first = e_min(split->arena, iter->end, e_max(split->arena, iter->begin, first));
    first = simplify_expr(split->arena, facts, first);
    map_put(split->plain, stmt, first);
    Expr *trips = e_sub(split->arena, first, iter->begin);
    if (prove(facts, e_binary(split->arena, BIN_LE, trips, e_int(split->arena, 1)))) map_put(split->once, stmt, stmt);
}

static Stmt *part_of(Arena *arena, Stmt *loop, Expr *begin, Expr *end) {
    Stmt *part = clone_stmt(arena, NULL, loop);
    part->loop.iters[0].begin = begin;
    part->loop.iters[0].end = end;
    return part;
}

// What the statement does, known to be needed.
static void unwrap(Arena *arena, Block *body, int at) {
    Stmt *rare = body->items[at], *known = stmt_new(arena, STMT_ASSUME, rare->loc);
    known->assume = rare->if_.condition;
    block_remove(body, at);
    for (int i = 0; i < rare->if_.then.count; i++) block_insert(arena, body, at + i, rare->if_.then.items[i]);
    block_insert(arena, body, 0, known);
}

static void split_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Split *split = mapper->user;
    Arena *arena = mapper->arena;
    Expr *plain = map_get(split->plain, stmt);
    if (!plain) {
        block_push(arena, out, stmt);
        return;
    }
    Var *var = var_new(arena, "plain", VAR_LET, TYPE_I64, stmt->loc);
    block_push(arena, out, s_let(arena, var, plain));
    int rare = rare_at(&stmt->loop.body);
    Stmt *most = part_of(arena, stmt, stmt->loop.iters[0].begin, e_var(arena, var));
    Stmt *rest = part_of(arena, stmt, e_var(arena, var), stmt->loop.iters[0].end);
    if (map_has(split->once, stmt)) map_put(split->once, most, most);
    block_remove(&most->loop.body, rare);
    unwrap(arena, &rest->loop.body, rare);
    block_push(arena, out, most);
    block_push(arena, out, rest);
}

bool pass_split_loops(PassContext *context, Func *kernel) {
    Split split = {context->arena, map_new(context->arena), map_new(context->arena)};
    kernel_walk(context->arena, kernel, visit_loop, &split);
    if (map_count(split.plain) == 0) return false;
    StmtMapper mapper = {.arena = context->arena, .stmt = split_stmt, .user = &split};
    rewrite_block(&mapper, &kernel->body);
    drop_idle_waits(context->arena, kernel, split.once);
    return true;
}
