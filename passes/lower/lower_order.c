// Turns of a role's warpgroups (order_barriers.c).
//
// A named barrier for each warpgroup of a role, at which it waits and the one before arrives. `@first` waits are the first one's.
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

static Stmt *turn_barrier(Lower *lower, OpId op, Expr *warpgroup, Span loc) {
    Arena *arena = lower->arena;
    Arg args[] = {arg_value(e_add(arena, warpgroup, e_int(arena, TURN_BARRIER))),
                  arg_value(e_int(arena, 2 * target_warpgroup(lower->target)))};
    Stmt *barrier = s_call(arena, op, COUNT_OF(args), args);
    barrier->loc = loc;
    return barrier;
}

static Stmt *if_warpgroup(Lower *lower, int64_t number) {
    Expr *wg = e_var(lower->arena, lower->warpgroup);
    return s_if(lower->arena, e_binary(lower->arena, BIN_EQ, wg, e_int(lower->arena, number)));
}

bool lower_turn(Lower *lower, const Stmt *stmt, Block *out) {
    Arena *arena = lower->arena;
    bool begins = stmt->call.op == OP_TURN_BEGIN;
    if (!begins && stmt->call.op != OP_TURN_END) return false;
    if (!lower->warpgroup) return true;   // it is alone
    Expr *wg = e_var(arena, lower->warpgroup), *one = e_int(arena, 1);
    Expr *last = e_int(arena, lower->threads / target_warpgroup(lower->target) - 1);
    Expr *next = e_select(arena, e_binary(arena, BIN_EQ, wg, last), e_int(arena, 0), e_add(arena, wg, one));
    OpId op = begins ? OP_BARRIER : OP_BARRIER_ARRIVE;
    block_push(arena, out, turn_barrier(lower, op, begins ? wg : next, stmt->loc));
    return true;
}

bool takes_turns(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_CALL && stmt->call.op == OP_TURN_BEGIN;
}

void open_turns(Lower *lower, const Stmt *role, Block *out) {
    if (!lower->warpgroup || !block_any(&role->role.body, takes_turns, NULL)) return;
    Stmt *last = if_warpgroup(lower, role->role.threads / target_warpgroup(lower->target) - 1);
    Stmt *begin = turn_barrier(lower, OP_BARRIER_ARRIVE, e_int(lower->arena, 0), role->loc);
    block_push(lower->arena, &last->if_.then, begin);
    block_push(lower->arena, out, last);
}

bool lower_first(Lower *lower, Stmt *wait, Block *out) {
    if (!attr_get(wait->attrs, ATTR_FIRST)) return false;
    attr_remove(&wait->attrs, ATTR_FIRST);
    if (!lower->warpgroup) return false;
    Stmt *first = if_warpgroup(lower, 0);
    block_push(lower->arena, &first->if_.then, wait);
    block_push(lower->arena, out, first);
    return true;
}
