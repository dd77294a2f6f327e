// Roles as thread regions: one region per role, and one for the statements between roles, for all threads of the CTA.
#include "ir/build.h"
#include "ir/role_text.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

// ---- order barriers of warpgroups (order_barriers.c) ----
//
// Each warpgroup of a role has a named barrier, at which it waits and the previous warpgroup arrives. The first
// warpgroup executes the `@leader` waits.

static void push_order_barrier(Lower *lower, OpId op, Expr *warpgroup, Span loc, Block *out) {
    BLOCK_CALL(lower->arena, out, loc, op, arg_value(e_plus(lower->arena, warpgroup, ORDER_BARRIER)),
               arg_int(lower->arena, 2 * target_warpgroup(lower->target)));
}

static int64_t last_warpgroup(const Lower *lower) {
    return lower->threads / target_warpgroup(lower->target) - 1;
}

static Block *push_if_warpgroup(Lower *lower, int64_t number, Block *out) {
    Expr *wg = e_var(lower->arena, lower->warpgroup);
    return block_if(lower->arena, out, e_eq(lower->arena, wg, e_int(lower->arena, number)));
}

bool lower_order(Lower *lower, const Stmt *stmt, Block *out) {
    Arena *arena = lower->arena;
    bool acquires = is_call(stmt, OP_ORDER_ACQUIRE);
    if (!acquires && !is_call(stmt, OP_ORDER_RELEASE)) return false;
    if (!lower->warpgroup) return true;   // a single warpgroup
    Expr *wg = e_var(arena, lower->warpgroup), *last = e_int(arena, last_warpgroup(lower));
    Expr *next = e_select(arena, e_eq(arena, wg, last), e_int(arena, 0), e_plus(arena, wg, 1));
    push_order_barrier(lower, acquires ? OP_BARRIER : OP_BARRIER_ARRIVE, acquires ? wg : next, stmt->loc, out);
    return true;
}

static void open_order(Lower *lower, const Stmt *role, Block *out) {
    if (!lower->warpgroup || !block_calls(&role->role.body, OP_ORDER_ACQUIRE)) return;
    Block *last = push_if_warpgroup(lower, last_warpgroup(lower), out);
    push_order_barrier(lower, OP_BARRIER_ARRIVE, e_int(lower->arena, 0), role->loc, last);
}

bool lower_leader_wait(Lower *lower, Stmt *wait, Block *out) {
    if (!attr_get(wait->attrs, ATTR_LEADER)) return false;
    attr_remove(&wait->attrs, ATTR_LEADER);
    Var *group = lower->member ? lower->member : lower->warpgroup;
    if (!group) return false;
    Expr *first = e_eq(lower->arena, e_var(lower->arena, group), e_int(lower->arena, 0));
    block_push(lower->arena, block_if(lower->arena, out, first), wait);
    return true;
}

// ---- roles ----

// Work for more than one thread, or on registers of several threads.
static bool needs_threads(const Block *body) {
    FOR_EACH_STMT (stmt, body) {
        if (via_is(stmt, VIA_TMA)) SKIP_BODY(stmt);   // the additions of a tile are one copy
        if (via_is(stmt, VIA_TMA) || is_control(stmt)) continue;
        if (stmt->kind != STMT_CALL) return true;
        OpId op = stmt->call.op;
        bool by_one =
            op == OP_MBARRIER_WAIT || op == OP_MBARRIER_EXPECT || op == OP_MBARRIER_ARRIVE || op == OP_BULK_WAIT;
        if (!by_one) return true;
    }
    return false;
}

static bool wants_warpgroup(const Stmt *stmt, void *user) {
    (void)user;
    return via_is(stmt, VIA_WGMMA) || stores_staged(stmt) || is_call(stmt, OP_ORDER_ACQUIRE);
}

// By shuffle, so that the value is warp-uniform and descriptors are in uniform registers.
void lower_warpgroup(Lower *lower, const Block *work, Span loc, Block *out) {
    Arena *arena = lower->arena;
    int64_t group = target_warpgroup(lower->target), count = lower->threads / group;
    lower->warpgroup = NULL;
    if (count < 2 || !block_any(work, wants_warpgroup, NULL)) return;
    EXPECT(lower->context->failure, count * group == lower->threads, "warpgroups of %lld threads",
           (long long)lower->threads);
    Expr *zero = e_int(arena, 0);
    Expr *number = e_call2(arena, OP_SHFL_IDX, e_over(arena, lower_thread(lower), group), zero);
    Expr *wg = block_let(arena, out, "wg", number, loc);
    Stmt *range = stmt_new(arena, STMT_ASSUME, loc);
    range->assume = e_and(arena, e_ge(arena, wg, zero), e_lt(arena, wg, e_int(arena, count)));
    lower->warpgroup = wg->var;
    block_push(arena, out, range);
    facts_enter(lower->facts, range);
}

static void lower_role(Lower *lower, Stmt *role, Block *out) {
    int mark = facts_mark(lower->facts);
    facts_enter(lower->facts, role);
    Stmt *region = open_region(lower, role->role.threads, role->loc);
    Block *body = &region->thread.body;
    lower->member = role->role.count ? role->role.iters[0].var : NULL;
    lower_warpgroup(lower, &role->role.body, role->loc, body);
    open_order(lower, role, body);
    bool one = !needs_threads(&role->role.body);
    if (one) body = lower_single_thread(lower, NULL, body);
    lower->one = one;
    lower_block(lower, &role->role.body, body);
    lower->one = false;
    lower->warpgroup = lower->member = NULL;
    facts_release(lower->facts, mark);
    role->role.body = (Block){0};
    block_push(lower->arena, &role->role.body, region);
    block_push(lower->arena, out, role);
}

// A thread region of the statements from `first` to the next role or the next one that ends a piece. Returns where it ends.
static int lower_piece(Lower *lower, const RoleText *text, const Block *body, int first, int64_t threads, Block *out) {
    int mark = facts_mark(lower->facts), i = first;
    Stmt *region = open_region(lower, threads, body->items[first]->loc);
    for (; i < body->count && body->items[i]->kind != STMT_ROLE; i++) {
        const Stmt *stmt = body->items[i];
        if (!role_text_is_outside(text, stmt)) lower_stmt(lower, body->items[i], &region->thread.body);
        else if (!role_text_is_early(text, stmt)) break;
    }
    facts_release(lower->facts, mark);
    if (region->thread.body.count > 0) block_push(lower->arena, out, region);
    return i;
}

void lower_roles(Lower *lower, const Block *body, int64_t threads, Block *out) {
    const RoleText *text = role_text_new(lower->arena, body);
    for (int i = 0, known = 0; i < body->count;) {
        for (known = known > i ? known : i; known < body->count && body->items[known]->kind != STMT_ROLE; known++)
            if (role_text_is_early(text, body->items[known])) lower_stmt(lower, body->items[known], out);
        Stmt *stmt = body->items[i];
        if (stmt->kind == STMT_ROLE) lower_role(lower, stmt, out), i++;
        else if (role_text_is_outside(text, stmt) && !role_text_is_early(text, stmt)) lower_stmt(lower, stmt, out), i++;
        else i = lower_piece(lower, text, body, i, threads, out);
    }
}
