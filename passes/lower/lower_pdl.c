// Launches that overlap (`@pdl`).
//
// Every thread waits for the kernels launched before, ahead of its first use of global memory, be it by a scalar that all roles
// see; the next kernel may begin as soon as all blocks of this one have, since it waits likewise.
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"

static bool uses_global(Arena *arena, const Stmt *stmt) {
    EffectVec effects = {0};
    bool uses = false;
    stmt_effects(arena, stmt, &effects);
    for (int i = 0; i < effects.count; i++) uses |= effects.items[i].buf->scope == SCOPE_GLOBAL;
    return uses;
}

void lower_pdl(Lower *lower, int64_t threads, Block *top) {
    Arena *arena = lower->arena;
    int first = 0;
    while (first < top->count && top->items[first]->kind != STMT_THREAD && top->items[first]->kind != STMT_ROLE &&
           !uses_global(arena, top->items[first]))
        first++;
    if (first == top->count) return;
    if (top->items[first]->kind != STMT_THREAD) block_insert(arena, top, first, open_region(lower, threads, (Span){0}));
    Block *body = &top->items[first]->thread.body;
    int at = 0;
    while (at < body->count && !uses_global(arena, body->items[at])) at++;
    block_insert(arena, body, at, s_call(arena, OP_DEPENDENCY_WAIT, 0, NULL));
    block_insert(arena, body, 0, s_call(arena, OP_LAUNCH_DEPENDENTS, 0, NULL));
}
