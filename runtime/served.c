#include "runtime/served.h"
#include "ir/rewrite.h"
#include <string.h>

typedef struct Needs {
    const Target *target;
    bool served;
} Needs;

static bool needs_expr(Visitor *visitor, Expr *expr) {
    Needs *needs = visitor->user;
    if (expr->kind == EXPR_CALL) needs->served &= target_has(needs->target, op_info(expr->call.op)->feature);
    return needs->served;
}

static bool needs_stmt(Visitor *visitor, Stmt *stmt) {
    Needs *needs = visitor->user;
    if (stmt->kind == STMT_CALL) needs->served &= target_has(needs->target, op_info(stmt->call.op)->feature);
    return needs->served;
}

static bool is_served(const Func *kernel, const Target *target) {
    Needs needs = {target, func_cluster(kernel) <= target->max_cluster};
    Visitor visitor = {.expr = needs_expr, .stmt = needs_stmt, .user = &needs};
    visit_block(&visitor, (Block *)&kernel->body);
    return needs.served;
}

static bool has_served_namesake(const Module *module, const Func *kernel, const Target *target) {
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *other = module->funcs.items[i];
        if (other != kernel && other->kind == FUNC_KERNEL && strcmp(other->name, kernel->name) == 0 &&
            is_served(other, target))
            return true;
    }
    return false;
}

void keep_served(Module *module, const Target *target) {
    for (int i = module->funcs.count - 1; i >= 0; i--) {
        const Func *kernel = module->funcs.items[i];
        if (kernel->kind != FUNC_KERNEL || is_served(kernel, target)) continue;
        if (!has_served_namesake(module, kernel, target)) continue;
        for (int k = i + 1; k < module->funcs.count; k++) module->funcs.items[k - 1] = module->funcs.items[k];
        module->funcs.count--;
    }
}
