#include "runtime/compile/prune_variants.h"
#include "ir/build.h"
#include "ir/channels.h"
#include "ir/facts.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/cost/occupancy.h"
#include <string.h>

static bool is_and(const Expr *expr) {
    return expr->kind == EXPR_BINARY && expr->binary.op == BIN_LOGICAL_AND;
}

static void assume_values(Facts *facts, const Expr *when) {
    if (is_and(when)) {
        assume_values(facts, when->binary.a);
        assume_values(facts, when->binary.b);
    } else if (when->kind == EXPR_BINARY && when->binary.op == BIN_EQ && when->binary.b->kind == EXPR_INT) {
        facts_assume(facts, when, true);
    }
}

static bool is_refuted(const Facts *facts, Expr *when) {
    if (is_and(when)) return is_refuted(facts, when->binary.a) || is_refuted(facts, when->binary.b);
    return expr_is_int(simplify_expr(facts_arena(facts), facts, when), 0);
}

// Whether a condition contradicts the values that it itself requires of compile-time names.
static bool never_holds(Arena *arena, Expr *when) {
    if (!when) return false;
    Facts *facts = facts_new(arena, NULL);
    assume_values(facts, when);
    return is_refuted(facts, when);
}

static bool is_gemm(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_GEMM);
}

// Groups that multiply what others load are a schedule for asynchronous products: a target without them takes the plain variant behind.
static bool suits(const Func *kernel, const Target *target) {
    if (!kernel_is_supported(kernel, target)) return false;
    if (target_has(target, FEATURE_WGMMA) || !roles_share_channels(kernel)) return true;
    FOR_EACH_STMT (role, &kernel->body)
        if (role->kind == STMT_ROLE && block_any(&role->role.body, is_gemm, NULL)) return false;
    return true;
}

// ---- of a module ----

static bool can_run(const Module *module, const Func *func, const Target *target);

static bool some_can_run(const Module *module, const char *name, const Func *but, const Target *target) {
    for (int i = 0; i < module->funcs.count; i++) {
        const Func *func = module->funcs.items[i];
        if (func != but && strcmp(func->name, name) == 0 && can_run(module, func, target)) return true;
    }
    return false;
}

// A program can run if each kernel that it launches has a variant that can.
static bool can_run(const Module *module, const Func *func, const Target *target) {
    if (never_holds(module->arena, func->when)) return false;
    if (func->kind != FUNC_PROGRAM) return suits(func, target);
    FOR_EACH_STMT (stmt, &func->body)
        if (stmt->kind == STMT_LAUNCH && !some_can_run(module, stmt->launch.callee, NULL, target)) return false;
    return true;
}

static bool launches(const Func *program, const char *callee) {
    if (program->kind != FUNC_PROGRAM) return false;
    FOR_EACH_STMT (stmt, &program->body)
        if (stmt->kind == STMT_LAUNCH && strcmp(stmt->launch.callee, callee) == 0) return true;
    return false;
}

static bool launched(const Func *const *programs, int count, const char *callee) {
    for (int i = 0; i < count; i++)
        if (launches(programs[i], callee)) return true;
    return false;
}

static bool is_made_from(const Func *func, const Func *const *others, int count) {
    for (int i = 0; i < count; i++)
        if (func->loc.line == others[i]->loc.line && func->loc.file == others[i]->loc.file) return true;
    return false;
}

static void take_out(Module *module, int at) {
    for (int k = at + 1; k < module->funcs.count; k++) module->funcs.items[k - 1] = module->funcs.items[k];
    module->funcs.count--;
}

void prune_variants(Module *module, const Target *target) {
    VEC(const Func *) gone = {0};
    for (int i = module->funcs.count - 1; i >= 0; i--) {
        const Func *func = module->funcs.items[i];
        if (can_run(module, func, target) || !some_can_run(module, func->name, func, target)) continue;
        if (func->kind == FUNC_PROGRAM) vec_push(module->arena, &gone, func);
        take_out(module, i);
    }
    VEC(const Func *) specialised = {0};
    for (int i = module->funcs.count - 1; i >= 0; i--) {   // kernels that only removed programs launched
        const Func *func = module->funcs.items[i];
        const Func *const *left = (const Func *const *)module->funcs.items;
        if (can_run(module, func, target) || launched(left, module->funcs.count, func->name)) continue;
        if (!launched(gone.items, gone.count, func->name) && !is_made_from(func, specialised.items, specialised.count))
            continue;
        vec_push(module->arena, &specialised, func);
        take_out(module, i);
    }
}
