// unroll: expands small `unroll` loops whose iterations fold to different constants.
//
// codegen expands every `unroll` loop while it emits, so most loops stay: the text and compile time stay short. A loop
// is expanded here if it is small and tests or divides by its iterator: then each iteration is a constant case, and the
// following `simplify` drops the other cases.
//
//     unroll (r in 4) v[r] = r % 2 == 0 ? a : b;          v[0] = a; v[1] = b; v[2] = a; v[3] = b;
#include "passes/analysis/util.h"

enum { MOST_STATEMENTS = 16 };   // after expansion

typedef struct Unroller {
    Arena *arena;
    bool changed;
} Unroller;

static int64_t count_statements(const Block *block) {
    int64_t count = 0;
    FOR_EACH_STMT (stmt, block) count += stmt != NULL;
    return count;
}

static bool is_test(BinaryOp op) {
    return op == BIN_DIV || op == BIN_MOD || (op >= BIN_EQ && op <= BIN_GE);
}
_Static_assert(BIN_NE == BIN_EQ + 1 && BIN_GE == BIN_EQ + 5, "comparisons stand together");

// The expression becomes constant or simpler if the variable is constant.
static bool folds(const Expr *expr, const void *var) {
    return expr->kind == EXPR_BINARY && is_test(expr->binary.op) && type_is_int(expr->binary.a->type) &&
           expr_uses_var(expr, var);
}

static bool wants_expansion(const Stmt *stmt, int64_t *begin, int64_t *end, int64_t *step) {
    if (!is_loop(stmt, LOOP_UNROLL) || stmt->loop.count != 1) return false;
    const Iter *iter = &stmt->loop.iters[0];
    bool constant = expr_const(iter->begin, begin) && expr_const(iter->end, end) && expr_const(iter->step, step);
    if (!constant || *end <= *begin || *end - *begin > MOST_STATEMENTS * *step || block_breaks(&stmt->loop.body))
        return false;
    int64_t trips = (*end - *begin + *step - 1) / *step;
    return trips * count_statements(&stmt->loop.body) <= MOST_STATEMENTS &&
           block_any_expr(&stmt->loop.body, folds, iter->var);
}

static void unroll_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Unroller *pass = mapper->user;
    int64_t begin, end, step;
    if (!wants_expansion(stmt, &begin, &end, &step)) {
        block_push(pass->arena, out, stmt);
        return;
    }
    pass->changed = true;
    for (int64_t i = begin; i < end; i += step) {
        Subst *subst = subst_new(pass->arena);
        subst_var(subst, stmt->loop.iters[0].var, e_int(pass->arena, i));
        clone_block(pass->arena, subst, &stmt->loop.body, out);
    }
}

bool pass_unroll(PassContext *context, Func *kernel) {
    Unroller pass = {.arena = context->arena};
    StmtMapper mapper = {.arena = context->arena, .stmt = unroll_stmt, .user = &pass};
    rewrite_block(&mapper, &kernel->body);
    return pass.changed;
}
