#include "passes/layout/shared_lives.h"
#include "ir/build.h"
#include "ir/query.h"
#include "passes/analysis/util.h"
#include <limits.h>

static int index_of_life(const SharedLives *lives, const Buf *buf) {   // -1: none
    return (int)(intptr_t)map_get(lives->index, buf) - 1;
}

static void touch(SharedLives *lives, const Buf *buf, int from, int to) {
    int index = index_of_life(lives, buf->alias_of ? buf->alias_of : buf);
    if (index < 0) return;
    SharedLife *life = &lives->items.items[index];
    if (life->first < 0 || from < life->first) life->first = from;
    if (to > life->last) life->last = to;
}

static void add_life(SharedLives *lives, Buf *buf) {
    vec_push(lives->arena, &lives->items, ((SharedLife){buf, lives->members, .first = -1, .last = -1}));
    map_put(lives->index, buf, (void *)(intptr_t)lives->items.count);
}

static void live_block(SharedLives *lives, const Block *block);

static void live_stmt_itself(SharedLives *lives, const Stmt *stmt) {
    int now = lives->clock;
    if (is_call(stmt, OP_AWAIT)) touch(lives, call_region(stmt, 0)->buf, now, now);
    FOR_EACH_EFFECT (effect, lives->arena, stmt) {
        bool peers = effect->op == OP_PEER || effect->op == OP_PEER_STORE;   // other CTAs access it at any time
        touch(lives, effect->buf, peers ? 0 : now, peers ? INT_MAX : now);
    }
}

// Buffers that are declared outside of a loop and used in it are live throughout the loop.
static void live_loop(SharedLives *lives, const Stmt *stmt, const Block *body) {
    int start = lives->clock, known = lives->items.count;
    live_block(lives, body);
    FOR_EACH_EFFECT (effect, lives->arena, stmt)
        if (index_of_life(lives, effect->buf) < known) touch(lives, effect->buf, start, lives->clock);
}

// Roles run concurrently until the end of the CTA: buffers that a role uses are live throughout.
static void live_role(SharedLives *lives, const Stmt *role) {
    lives->members = role_members(role);
    live_block(lives, &role->role.body);
    lives->members = 1;
    FOR_EACH_EFFECT (effect, lives->arena, role) touch(lives, effect->buf, 0, INT_MAX);
}

static void live_stmt(SharedLives *lives, const Stmt *stmt) {
    Stmt alone = stmt_alone(stmt);
    map_put(lives->times, stmt, (void *)(intptr_t)++lives->clock);
    switch (stmt->kind) {
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !stmt->decl->alias_of) add_life(lives, stmt->decl);
        return;
    case STMT_ROLE: live_role(lives, stmt); return;
    case STMT_WHILE: live_loop(lives, stmt, &stmt->while_.body); return;
    case STMT_THREAD: live_loop(lives, stmt, &stmt->thread.body); return;
    case STMT_FOR:
        if (stmt->loop.kind == LOOP_PARALLEL) live_stmt_itself(lives, stmt);
        else live_loop(lives, stmt, &stmt->loop.body);
        return;
    default:
        live_stmt_itself(lives, &alone);
        FOR_EACH_BODY (body, stmt) live_block(lives, body);
    }
}

static void live_block(SharedLives *lives, const Block *block) {
    FOR_EACH_ITEM (stmt, block) live_stmt(lives, stmt);
}

SharedLives shared_lives(Arena *arena, const Func *kernel) {
    SharedLives lives = {.arena = arena, .index = map_new(arena), .times = map_new(arena), .members = 1};
    live_block(&lives, &kernel->body);
    return lives;
}

int64_t shared_live_bytes(const SharedLives *lives, const Stmt *stmt) {
    int now = (int)(intptr_t)map_get(lives->times, stmt);
    int64_t total = 0;
    VEC_EACH (const SharedLife, life, &lives->items)
        if (life->first >= 0 && life->first <= now && now <= life->last) total += buf_space(life->buf) * life->members;
    return total;
}
