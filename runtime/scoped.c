#include "runtime/scoped.h"

typedef struct Scope {
    bool (*work)(void *user, Arena *arena);
    void *user;
    Arena *arena;
} Scope;

static bool work_in_arena(void *user) {
    const Scope *scope = user;
    return scope->work(scope->user, scope->arena);
}

static void free_scope(void *user) {
    const Scope *scope = user;
    arena_free(scope->arena);
}

bool scoped(Failure *failure, bool (*work)(void *user, Arena *arena), void *user) {
    Scope scope = {work, user, arena_new(libc_allocator, failure)};
    if (!scope.arena) fail_out_of_memory(failure);
    return fail_scope(failure, work_in_arena, free_scope, &scope);
}
