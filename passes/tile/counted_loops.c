// Loops whose end a `while` or a `break` says, as `for` loops (normalize-loops).
//
//     var k: i64 = 0;                          for (i in ceildiv(K, 64)) {
//     while (k < K) {                              copy(A[m * 128, k], As);
//         copy(A[m * 128, k], As);       =>        gemm(As, Bs, acc);
//         gemm(As, Bs, acc);                       k += 64;      (a multiple of the iterator: normalize_loops.c)
//         k += 64;                             }
//     }
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

// `v += c;` with a constant c.
bool steps_by(Arena *arena, const Stmt *stmt, int64_t *by) {
    if (stmt->kind != STMT_ASSIGN || !type_is_int(stmt->let.var->type)) return false;
    LinearSum sum = linear_of(arena, stmt->let.value);
    *by = sum.constant;
    return !sum.full && sum.count == 1 && sum.terms[0].factor == 1 && expr_is_var(sum.terms[0].atom, stmt->let.var);
}

int assignments(const Stmt *top, const Var *var) {
    int count = 0;
    FOR_EACH_STMT_IN (stmt, top) count += (stmt->kind == STMT_ASSIGN || stmt->kind == STMT_VAR) && stmt->let.var == var;
    return count;
}

Expr *value_before(const Block *block, int at, const Var *var) {
    for (int i = at - 1; i >= 0; i--) {
        const Stmt *stmt = block->items[i];
        if (assignments(stmt, var) == 0) continue;
        bool gives = (stmt->kind == STMT_ASSIGN || stmt->kind == STMT_VAR) && stmt->let.value;
        return gives && expr_is_stable(stmt->let.value) ? stmt->let.value : NULL;
    }
    return NULL;
}

// The step of the variable that the loop counts: what each iteration adds to it, in one statement of the body. 0: there is none.
static int64_t step_of(Arena *arena, const Stmt *loop, const Var *var) {
    int64_t by = 0;
    if (assignments(loop, var) != 1) return 0;
    FOR_EACH_ITEM (stmt, &loop->while_.body)
        if (stmt->kind == STMT_ASSIGN && stmt->let.var == var && !steps_by(arena, stmt, &by)) return 0;
    return larger(by, 0);
}

// `v < end`, `v <= end`, or the other way round: the end of the loop, behind the last value.
static Expr *end_of(Arena *arena, const Expr *condition, Var **var) {
    bool orders = is_comparison(condition) && condition->binary.op >= BIN_LT;
    if (!orders || !type_is_int(condition->binary.a->type)) return NULL;
    bool swapped = condition->binary.op >= BIN_GT;
    bool equal = condition->binary.op == BIN_LE || condition->binary.op == BIN_GE;
    Expr *low = swapped ? condition->binary.b : condition->binary.a;
    Expr *high = swapped ? condition->binary.a : condition->binary.b;
    if (low->kind != EXPR_VAR || low->var->kind != VAR_MUTABLE || !expr_is_stable(high)) return NULL;
    *var = low->var;
    return equal ? e_plus(arena, high, 1) : high;
}

bool count_while(Arena *arena, Block *block, int at) {
    const Stmt *loop = block->items[at];
    if (loop->kind != STMT_WHILE || loop->attrs || block_breaks(&loop->while_.body)) return false;
    bool moves = block_calls(&loop->while_.body, OP_COPY) || block_calls(&loop->while_.body, OP_GEMM);
    Var *var;
    Expr *end = moves ? end_of(arena, loop->while_.condition, &var) : NULL;
    int64_t by = end ? step_of(arena, loop, var) : 0;
    // (Of 32 bits the variable may be beyond its type before it reaches the end.)
    if (by <= 0 || var->type != TYPE_I64) return false;
    Expr *first = value_before(block, at, var);
    if (!first) {
        Var *name = var_new(arena, var->name, VAR_LET, var->type, var->loc);
        block_insert(arena, block, at++, s_let(arena, name, e_var(arena, var)));
        first = e_var(arena, name);
    }
    Var *number = var_new(arena, var->name, VAR_ITER, var->type, var->loc);
    Expr *left = e_sub(arena, end, first), *zero = e_int_of(arena, var->type, 0);
    bool dim = end->kind == EXPR_VAR && end->var->kind == VAR_DIM && expr_equal(first, zero);
    if (!dim) left = e_max(arena, left, zero);   // ceildiv takes no number below 0
    Expr *trips = e_call2(arena, OP_CEILDIV, left, e_int_of(arena, var->type, by));
    Stmt *counted = s_for(arena, LOOP_SERIAL, number, e_int_of(arena, var->type, 0), trips);
    counted->loc = loop->loc;
    counted->loop.body = loop->while_.body;
    block->items[at] = counted;
    return true;
}

int leading_break(const Stmt *loop) {
    const Block *body = &loop->loop.body;
    int at = 0;
    while (at < body->count && is_stable_let(body->items[at])) at++;
    const Stmt *stmt = at < body->count ? body->items[at] : NULL;
    if (!stmt || stmt->kind != STMT_IF || stmt->attrs || stmt->if_.otherwise.count > 0) return -1;
    if (stmt->if_.then.count != 1 || stmt->if_.then.items[0]->kind != STMT_BREAK) return -1;
    for (int i = at + 1; i < body->count; i++)
        if (stmt_breaks(body->items[i])) return -1;
    return at;
}
