#include "runtime/scoped.h"
#include <string.h>

// The point in `failure` is ours while `work` runs; what is caught there is handed on to the point that was there
// before.
bool scoped(Failure *failure, bool (*work)(void *user, Arena *arena), void *user) {
    jmp_buf outer;
    memcpy(outer, failure->point, sizeof outer);
    Arena *arena = arena_new(libc_allocator, failure);
    if (!arena) fail_out_of_memory(failure);
    if (setjmp(failure->point)) {
        arena_free(arena);
        memcpy(failure->point, outer, sizeof outer);
        longjmp(failure->point, 1);
    }
    bool ok = work(user, arena);
    memcpy(failure->point, outer, sizeof outer);
    arena_free(arena);
    return ok;
}
