// Roles as thread regions: each gets one of its own, for its threads, and what stands between them one for all of the block.
#include "ir/build.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"

// Work that needs more than one thread, or their registers.
static bool needs_threads(const Stmt *stmt, void *user) {
    (void)user;
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
    case STMT_ASSUME:
    case STMT_IF:
    case STMT_WHILE:
    case STMT_BLOCK: return false;
    case STMT_FOR: return stmt->loop.kind == LOOP_PARALLEL;
    case STMT_CALL: {
        OpId op = stmt->call.op;
        return !via_is(stmt, VIA_TMA) && op != OP_MBARRIER_WAIT && op != OP_MBARRIER_EXPECT && op != OP_MBARRIER_ARRIVE;
    }
    default: return true;
    }
}

static bool wants_warpgroup(const Stmt *stmt, void *user) {
    return via_is(stmt, VIA_WGMMA) || via_is(stmt, VIA_TMA_STORE) || is_order_barrier(stmt, user);
}

// The same in all lanes, so that descriptors are in uniform registers.
static void name_warpgroup(Lower *lower, Stmt *role, Block *out) {
    Arena *arena = lower->arena;
    int64_t group = target_warpgroup(lower->target), count = role->role.threads / group;
    lower->warpgroup = NULL;
    if (count < 2 || !block_any(&role->role.body, wants_warpgroup, NULL)) return;
    Expr *zero = e_int(arena, 0);
    lower->warpgroup = var_new(arena, "wg", VAR_LET, TYPE_I64, role->loc);
    Expr *number = e_call2(arena, OP_SHFL_IDX, e_div(arena, lower_thread(lower), e_int(arena, group)), zero);
    Stmt *range = stmt_new(arena, STMT_ASSUME, role->loc);
    Expr *wg = e_var(arena, lower->warpgroup);
    range->assume = e_and(arena, e_binary(arena, BIN_GE, wg, zero), e_lt(arena, wg, e_int(arena, count)));
    block_push(arena, out, s_let(arena, lower->warpgroup, number));
    block_push(arena, out, range);
    facts_enter(lower->facts, range);
}

static void lower_role(Lower *lower, Stmt *role, Block *out) {
    Block body = {0};
    int mark = facts_mark(lower->facts);
    Stmt *region = open_region(lower, role->role.threads, role->loc);
    name_warpgroup(lower, role, &body);
    open_order(lower, role, &body);
    lower->one = !block_any(&role->role.body, needs_threads, NULL);
    lower_block(lower, &role->role.body, lower->one ? &lower_single_thread(lower, NULL, &body)->if_.then : &body);
    lower->one = false;
    lower->warpgroup = NULL;
    region->thread.body = body;
    facts_release(lower->facts, mark);
    role->role.body = (Block){0};
    block_push(lower->arena, &role->role.body, region);
    block_push(lower->arena, out, role);
}

static bool is_scalar(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME;
}

void lower_roles(Lower *lower, const Block *body, int64_t threads, Block *out) {
    for (int i = 0; i < body->count; i++) {
        Stmt *stmt = body->items[i];
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED) continue;
        if (is_scalar(stmt)) {
            lower_stmt(lower, stmt, out);
            continue;
        }
        if (stmt->kind == STMT_ROLE) {
            lower_role(lower, stmt, out);
            continue;
        }
        int mark = facts_mark(lower->facts);
        Stmt *region = open_region(lower, threads, stmt->loc);
        for (; i < body->count && body->items[i]->kind != STMT_ROLE && !is_scalar(body->items[i]); i++)
            lower_stmt(lower, body->items[i], &region->thread.body);
        i--;
        facts_release(lower->facts, mark);
        block_push(lower->arena, out, region);
    }
}
