// unroll: expands small `unroll` loops whose iterations fold to different constants.
//
// codegen expands every `unroll` loop while it emits, so most loops stay: the text and compile time stay short. A loop
// is expanded here if it is small and tests or divides by its iterator: then each iteration is a constant case, and the
// following `simplify` drops the other cases.
//
//     unroll (r in 4) v[r] = r % 2 == 0 ? a : b;          v[0] = a; v[1] = b; v[2] = a; v[3] = b;
#include "passes/analysis/util.h"

enum { MOST_STATEMENTS = 16 };   // after expansion

static int64_t count_statements(const Block *block) {
    int64_t count = 0;
    FOR_EACH_STMT (stmt, block) count += stmt != NULL;
    return count;
}

static bool is_test(BinaryOp op) {
    return op == BIN_DIV || op == BIN_MOD || op_compares(op);
}

// The expression becomes constant or simpler if the variable is constant.
static bool folds(const Expr *expr, const void *var) {
    return expr->kind == EXPR_BINARY && is_test(expr->binary.op) && type_is_int(expr->binary.a->type) &&
           expr_uses_var(expr, var);
}

static bool wants_expansion(const Stmt *stmt) {
    if (!is_loop(stmt, LOOP_UNROLL) || stmt->loop.count != 1 || block_breaks(&stmt->loop.body)) return false;
    int64_t trips = iter_count(&stmt->loop.iters[0]);
    if (trips < 1 || trips > MOST_STATEMENTS) return false;
    return trips * count_statements(&stmt->loop.body) <= MOST_STATEMENTS &&
           block_any_expr(&stmt->loop.body, folds, stmt->loop.iters[0].var);
}

static void unroll_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *arena = mapper->arena;
    if (!wants_expansion(stmt)) {
        block_push(arena, out, stmt);
        return;
    }
    mapper->changed = true;
    clone_iterations(arena, stmt, out);
}

bool pass_unroll(PassContext *context, Func *kernel) {
    return rewrite_block(&(StmtMapper){.arena = context->arena, .stmt = unroll_stmt}, &kernel->body);
}
