// What the role that loads has to know.
//
// Where tiles lie, and whether and how often they are loaded: the scalars in that, what these come of, and the loops and branches
// around all of it. The role that loads does those too, so nothing of it may come of what is computed, or of memory that the
// kernel writes or that other blocks write meanwhile.
#include "passes/specialize/ws_analysis.h"

static bool is_value(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
}

static bool need_piece(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    if (named && !map_has(plan->required, expr->var)) {
        map_put(plan->required, expr->var, expr->var);
        plan->found = true;
    }
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op)) plan->computed = true;
    if (expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN))
        plan->computed = true;
    return true;
}

static void need_expr(Plan *plan, Expr *expr) {
    Visitor visitor = {.expr = need_piece, .user = plan};
    if (expr) visit_expr(&visitor, expr);
}

bool load_does(const Stmt *stmt, void *user) {
    const Plan *plan = user;
    return loads_tile(stmt, NULL) ||
           ((stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) && map_has(plan->required, stmt->let.var));
}

bool transposer_runs(const Stmt *stmt, void *plan) {
    return transposes_loaded(stmt, plan) || (!loads_tile(stmt, NULL) && load_does(stmt, plan));
}

static bool find_other(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    plan->other |= named && !map_has(plan->required, expr->var);
    plan->other |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return true;
}

bool load_knows(Plan *plan, const Stmt *stmt) {
    Visitor visitor = {.expr = find_other, .user = plan};
    if (is_value(stmt)) return map_has(plan->required, stmt->let.var);
    if (stmt->kind != STMT_ASSUME) return false;
    plan->other = false;
    visit_expr(&visitor, stmt->assume);
    return !plan->other;
}

static void need_control(Plan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) need_expr(plan, stmt->if_.condition);
    if (stmt->kind == STMT_WHILE) need_expr(plan, stmt->while_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) {
        need_expr(plan, stmt->loop.iters[i].begin);
        need_expr(plan, stmt->loop.iters[i].end);
        need_expr(plan, stmt->loop.iters[i].step);
    }
}

static void need_block(Plan *plan, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_value(stmt) && map_has(plan->required, stmt->let.var)) need_expr(plan, stmt->let.value);
        const Region *from = loads_tile(stmt, NULL) ? stmt->call.args[0].region : NULL;
        for (int d = 0; from && d < from->count; d++) need_expr(plan, from->dims[d].start);
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        bool does = false;
        for (int b = 0; b < count; b++) does |= block_any(bodies[b], load_does, plan);
        if (!does) continue;
        need_control(plan, stmt);
        for (int b = 0; b < count; b++) need_block(plan, bodies[b]);
    }
}

void slice_producer(Plan *plan) {
    plan->required = map_new(plan->arena);
    do {
        plan->found = false;
        need_block(plan, &plan->grid->grid.body);
    } while (plan->found && !plan->computed);
}
