// The most products that can be under way are counted along the control flow; a loop is gone through until its count rests.
#include "passes/specialize/redundant_waits.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"

enum { MANY = 1 << 8 };   // as many as there can be: a loop that never waits

typedef struct Idle {
    Arena *arena;
    const Map *once;
    Map *most;   // wgmma_wait -> int *: products under way before it, at most
} Idle;

static int after_block(Idle *idle, Block *block, int running);

static int larger(int a, int b) {
    return a > b ? a : b;
}

static int after_wait(Idle *idle, const Stmt *wait, int running) {
    int64_t pending;
    int *most = map_get(idle->most, wait);
    if (!most) map_put(idle->most, wait, most = NEW(idle->arena, int));
    *most = larger(*most, running);
    return expr_const(wait->call.args[0].value, &pending) && pending < running ? (int)pending : running;
}

static int after_loop(Idle *idle, Stmt *loop, Block *body, int running) {
    int after = larger(running, after_block(idle, body, running));
    while (after > running && !map_has(idle->once, loop)) {
        running = after;
        after = larger(running, after_block(idle, body, running));
    }
    return after;
}

static int after_stmt(Idle *idle, Stmt *stmt, int running) {
    Block *bodies[2];
    if (is_call(stmt, OP_GEMM) && stmt->call.is_async) return running < MANY ? running + 1 : MANY;
    if (is_call(stmt, OP_WGMMA_WAIT)) return after_wait(idle, stmt, running);
    if (stmt->kind == STMT_BREAK) return MANY;   // to be safe: what follows does not see it
    int count = stmt_bodies(stmt, bodies);
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) return after_loop(idle, stmt, bodies[0], running);
    int after = count ? 0 : running;
    for (int i = 0; i < count; i++) after = larger(after, after_block(idle, bodies[i], running));
    return after;
}

static int after_block(Idle *idle, Block *block, int running) {
    for (int i = 0; i < block->count; i++) running = after_stmt(idle, block->items[i], running);
    return running;
}

static void keep_needed(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Idle *idle = mapper->user;
    const int *most = map_get(idle->most, stmt);
    int64_t pending;
    if (most && expr_const(stmt->call.args[0].value, &pending) && *most <= pending) return;
    block_push(mapper->arena, out, stmt);
}

void drop_idle_waits(Arena *arena, Func *kernel, const Map *once) {
    Idle idle = {.arena = arena, .once = once, .most = map_new(arena)};
    after_block(&idle, &kernel->body, 0);
    StmtMapper mapper = {.arena = arena, .stmt = keep_needed, .user = &idle};
    rewrite_block(&mapper, &kernel->body);
}
