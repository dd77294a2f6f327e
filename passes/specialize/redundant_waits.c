// The most products that can be under way are counted along the control flow; a loop is gone through until its count rests.
#include "passes/specialize/redundant_waits.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"

enum { MANY = 1 << 8 };   // as many as there can be: a loop that never waits

typedef struct RedundantWaits {
    Arena *arena;
    const Map *single_trip;
    Map *most;   // wgmma_wait -> int *: products under way before it, at most
} RedundantWaits;

static int after_block(RedundantWaits *waits, Block *block, int running);

static int larger(int a, int b) {
    return a > b ? a : b;
}

static int after_wait(RedundantWaits *waits, const Stmt *wait, int running) {
    int64_t pending;
    int *most = map_get(waits->most, wait);
    if (!most) map_put(waits->most, wait, most = NEW(waits->arena, int));
    *most = larger(*most, running);
    return expr_const(wait->call.args[0].value, &pending) && pending < running ? (int)pending : running;
}

static int after_loop(RedundantWaits *waits, Stmt *loop, Block *body, int running) {
    int after = larger(running, after_block(waits, body, running));
    while (after > running && !map_has(waits->single_trip, loop)) {
        running = after;
        after = larger(running, after_block(waits, body, running));
    }
    return after;
}

static int after_stmt(RedundantWaits *waits, Stmt *stmt, int running) {
    Block *bodies[2];
    if (is_call(stmt, OP_GEMM) && stmt->call.is_async) return running < MANY ? running + 1 : MANY;
    if (is_call(stmt, OP_WGMMA_WAIT)) return after_wait(waits, stmt, running);
    if (stmt->kind == STMT_BREAK) return MANY;   // to be safe: what follows does not see it
    int count = stmt_bodies(stmt, bodies);
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) return after_loop(waits, stmt, bodies[0], running);
    int after = count ? 0 : running;
    for (int i = 0; i < count; i++) after = larger(after, after_block(waits, bodies[i], running));
    return after;
}

static int after_block(RedundantWaits *waits, Block *block, int running) {
    for (int i = 0; i < block->count; i++) running = after_stmt(waits, block->items[i], running);
    return running;
}

static void keep_required(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const RedundantWaits *waits = mapper->user;
    const int *most = map_get(waits->most, stmt);
    int64_t pending;
    if (most && expr_const(stmt->call.args[0].value, &pending) && *most <= pending) return;
    block_push(mapper->arena, out, stmt);
}

void drop_redundant_waits(Arena *arena, Func *kernel, const Map *single_trip) {
    RedundantWaits waits = {.arena = arena, .single_trip = single_trip, .most = map_new(arena)};
    after_block(&waits, &kernel->body, 0);
    StmtMapper mapper = {.arena = arena, .stmt = keep_required, .user = &waits};
    rewrite_block(&mapper, &kernel->body);
}
