// hoist-divisions: evaluates divisions that are the same in each iteration of a loop before it.
//
//     for (k in steps) {                                 let quotient = i * 128 / Q;
//         mbarrier_wait(empty[slot], parity);            for (k in steps) {
//         tma_load(.., i * 128 / Q, k, ..);                  mbarrier_wait(empty[slot], parity);
//     }                                                      tma_load(.., quotient, k, ..);
//                                                        }
//
// A division by a variable takes some twenty instructions in 32 bits and a hundred in 64, and the thread that starts the
// copies of a kernel has the others wait for it. LLVM moves none of them over a wait or a barrier: behind it they might
// not be reached, and a division by 0 is undefined. So this pass moves what the kernel's facts show to divide by no less
// than 1: the loop may have no iteration. It takes the largest expressions that have such a division, memory and
// variables that are assigned excepted, out of the outermost loop that does not bind what they use. Loops that codegen
// unrolls keep theirs.
#include "ir/build.h"
#include "ir/facts.h"
#include "passes/analysis/util.h"

typedef struct Quotient {
    Expr *value;
    Var *var;
} Quotient;

typedef struct Hoist {
    Arena *arena;
    Facts *facts;
    bool changed;
    Span loc;
    Map *bound;                // variables that the loop declares
    VEC(Quotient) quotients;   // of the loop
} Hoist;

// ---- what can move ----

static bool may_trap(const Expr *expr, const void *facts) {
    Expr *by = expr_divisor(expr);
    if (!by) return false;
    Arena *arena = facts_arena(facts);
    return !prove(facts, e_binary(arena, BIN_GE, by, e_int_of(arena, by->type, 1)));
}

static bool moves(const Hoist *h, const Expr *expr) {
    return type_is_int(expr->type) && expr_divides(expr) && expr_is_stable(expr) && expr_is_pure(expr) &&
           !expr_uses_any(expr, h->bound) && !any_expr(expr, may_trap, h->facts);
}

static Expr *replace(Mapper *mapper, Expr *expr) {
    Hoist *h = mapper->user;
    if (!moves(h, expr)) return NULL;
    VEC_EACH (const Quotient, known, &h->quotients)
        if (expr_equal(known->value, expr)) return e_var(h->arena, known->var);
    Quotient made = {expr, var_new(h->arena, "quotient", VAR_LET, expr->type, h->loc)};
    vec_push(h->arena, &h->quotients, made);
    return e_var(h->arena, made.var);
}

// ---- the walk: outer loops first, with the facts at each ----

static void collect_bound(Hoist *h, const Stmt *loop) {
    h->bound = map_new(h->arena);
    FOR_EACH_STMT_IN (stmt, loop) {
        Iter *iters;
        int count = stmt_iters(stmt, &iters);
        for (int i = 0; i < count; i++) map_put(h->bound, iters[i].var, h);
        if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) map_put(h->bound, stmt->let.var, h);
    }
}

static void hoist_from(Hoist *h, Stmt *loop, Block *out) {
    collect_bound(h, loop);
    h->loc = loop->loc;
    h->quotients.count = 0;
    Mapper mapper = {.arena = h->arena, .replace = replace, .user = h};
    if (loop->kind == STMT_WHILE) map_stmt(&mapper, loop);
    else map_block(&mapper, &loop->loop.body);
    VEC_EACH (const Quotient, quotient, &h->quotients) {
        block_push(h->arena, out, s_let(h->arena, quotient->var, quotient->value));
        facts_bind(h->facts, quotient->var, quotient->value);
        h->changed = true;
    }
}

static void hoist_block(Hoist *h, Block *block) {
    Block out = {0};
    int scope = facts_mark(h->facts);
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_WHILE || is_loop(stmt, LOOP_SERIAL)) hoist_from(h, stmt, &out);
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        for (int j = 0; j < count; j++) {
            int mark = facts_mark(h->facts);
            facts_enter_body(h->facts, stmt, bodies[j]);
            hoist_block(h, bodies[j]);
            facts_release(h->facts, mark);
        }
        if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) facts_enter(h->facts, stmt);
        block_push(h->arena, &out, stmt);
    }
    facts_release(h->facts, scope);
    *block = out;
}

bool pass_hoist_divisions(PassContext *context, Func *kernel) {
    Hoist h = {.arena = context->arena, .facts = facts_new(context->arena, kernel)};
    hoist_block(&h, &kernel->body);
    return h.changed;
}
