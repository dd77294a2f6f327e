#include "passes/layout/shared_lifetimes.h"
#include "ir/build.h"
#include "ir/query.h"
#include "passes/analysis/util.h"
#include <limits.h>

static int index_of_life(const SharedLifetimes *lifetimes, const Buf *buf) {   // -1: none
    return (int)(intptr_t)map_get(lifetimes->index, buf) - 1;
}

static void touch(SharedLifetimes *lifetimes, const Buf *buf, int from, int to) {
    int index = index_of_life(lifetimes, buf->alias_of ? buf->alias_of : buf);
    if (index < 0) return;
    SharedLifetime *life = &lifetimes->items.items[index];
    if (life->first < 0 || from < life->first) life->first = from;
    if (to > life->last) life->last = to;
}

static void add_life(SharedLifetimes *lifetimes, Buf *buf) {
    vec_push(lifetimes->arena, &lifetimes->items, ((SharedLifetime){buf, lifetimes->members, .first = -1, .last = -1}));
    map_put(lifetimes->index, buf, (void *)(intptr_t)lifetimes->items.count);
}

static void live_block(SharedLifetimes *lifetimes, const Block *block);

static void live_stmt_itself(SharedLifetimes *lifetimes, const Stmt *stmt) {
    int now = lifetimes->clock;
    if (is_call(stmt, OP_AWAIT)) touch(lifetimes, call_region(stmt, 0)->buf, now, now);
    FOR_EACH_EFFECT (effect, lifetimes->arena, stmt) {
        bool peers = effect->op == OP_PEER || effect->op == OP_PEER_STORE;   // other CTAs access it at any time
        touch(lifetimes, effect->buf, peers ? 0 : now, peers ? INT_MAX : now);
    }
}

// Buffers that are declared outside of a loop and used in it are live throughout the loop.
static void live_loop(SharedLifetimes *lifetimes, const Stmt *stmt, const Block *body) {
    int start = lifetimes->clock, known = lifetimes->items.count;
    live_block(lifetimes, body);
    FOR_EACH_EFFECT (effect, lifetimes->arena, stmt)
        if (index_of_life(lifetimes, effect->buf) < known) touch(lifetimes, effect->buf, start, lifetimes->clock);
}

// Roles run concurrently until the end of the CTA: buffers that a role uses are live throughout.
static void live_role(SharedLifetimes *lifetimes, const Stmt *role) {
    lifetimes->members = role_members(role);
    live_block(lifetimes, &role->role.body);
    lifetimes->members = 1;
    FOR_EACH_EFFECT (effect, lifetimes->arena, role) touch(lifetimes, effect->buf, 0, INT_MAX);
}

static void live_stmt(SharedLifetimes *lifetimes, const Stmt *stmt) {
    Stmt alone = stmt_alone(stmt);
    map_put(lifetimes->times, stmt, (void *)(intptr_t)++lifetimes->clock);
    switch (stmt->kind) {
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !stmt->decl->alias_of) add_life(lifetimes, stmt->decl);
        return;
    case STMT_ROLE: live_role(lifetimes, stmt); return;
    case STMT_WHILE: live_loop(lifetimes, stmt, &stmt->while_.body); return;
    case STMT_THREAD: live_loop(lifetimes, stmt, &stmt->thread.body); return;
    case STMT_FOR:
        if (stmt->loop.kind == LOOP_PARALLEL) live_stmt_itself(lifetimes, stmt);
        else live_loop(lifetimes, stmt, &stmt->loop.body);
        return;
    default:
        live_stmt_itself(lifetimes, &alone);
        FOR_EACH_BODY (body, stmt) live_block(lifetimes, body);
    }
}

static void live_block(SharedLifetimes *lifetimes, const Block *block) {
    FOR_EACH_ITEM (stmt, block) live_stmt(lifetimes, stmt);
}

SharedLifetimes shared_lifetimes(Arena *arena, const Func *kernel) {
    SharedLifetimes lifetimes = {.arena = arena, .index = map_new(arena), .times = map_new(arena), .members = 1};
    live_block(&lifetimes, &kernel->body);
    return lifetimes;
}

int64_t shared_live_bytes(const SharedLifetimes *lifetimes, const Stmt *stmt) {
    int now = (int)(intptr_t)map_get(lifetimes->times, stmt);
    int64_t total = 0;
    VEC_EACH (const SharedLifetime, life, &lifetimes->items)
        if (life->first >= 0 && life->first <= now && now <= life->last) total += buf_space(life->buf) * life->members;
    return total;
}
