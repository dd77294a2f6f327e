// Turns of a role's warpgroups (order_barriers.c).
//
// A named barrier for each warpgroup of a role, at which it waits and the one before arrives. `@leader` waits are the first one's.
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

static Stmt *order_barrier(Lower *lower, OpId op, Expr *warpgroup, Span loc) {
    Arena *arena = lower->arena;
    Arg args[] = {arg_value(e_add(arena, warpgroup, e_int(arena, ORDER_BARRIER))),
                  arg_value(e_int(arena, 2 * target_warpgroup(lower->target)))};
    Stmt *barrier = s_call(arena, op, COUNT_OF(args), args);
    barrier->loc = loc;
    return barrier;
}

static Stmt *if_warpgroup(Lower *lower, int64_t number) {
    Expr *wg = e_var(lower->arena, lower->warpgroup);
    return s_if(lower->arena, e_binary(lower->arena, BIN_EQ, wg, e_int(lower->arena, number)));
}

bool lower_order(Lower *lower, const Stmt *stmt, Block *out) {
    Arena *arena = lower->arena;
    bool begins = stmt->call.op == OP_ORDER_ACQUIRE;
    if (!begins && stmt->call.op != OP_ORDER_RELEASE) return false;
    if (!lower->warpgroup) return true;   // it is alone
    Expr *wg = e_var(arena, lower->warpgroup), *one = e_int(arena, 1);
    Expr *last = e_int(arena, lower->threads / target_warpgroup(lower->target) - 1);
    Expr *next = e_select(arena, e_binary(arena, BIN_EQ, wg, last), e_int(arena, 0), e_add(arena, wg, one));
    OpId op = begins ? OP_BARRIER : OP_BARRIER_ARRIVE;
    block_push(arena, out, order_barrier(lower, op, begins ? wg : next, stmt->loc));
    return true;
}

bool is_order_barrier(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_CALL && stmt->call.op == OP_ORDER_ACQUIRE;
}

void open_order(Lower *lower, const Stmt *role, Block *out) {
    if (!lower->warpgroup || !block_any(&role->role.body, is_order_barrier, NULL)) return;
    Stmt *last = if_warpgroup(lower, role->role.threads / target_warpgroup(lower->target) - 1);
    Stmt *begin = order_barrier(lower, OP_BARRIER_ARRIVE, e_int(lower->arena, 0), role->loc);
    block_push(lower->arena, &last->if_.then, begin);
    block_push(lower->arena, out, last);
}

bool lower_leader_wait(Lower *lower, Stmt *wait, Block *out) {
    if (!attr_get(wait->attrs, ATTR_LEADER)) return false;
    attr_remove(&wait->attrs, ATTR_LEADER);
    if (!lower->warpgroup) return false;
    Stmt *first = if_warpgroup(lower, 0);
    block_push(lower->arena, &first->if_.then, wait);
    block_push(lower->arena, out, first);
    return true;
}
