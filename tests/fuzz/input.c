// The entry points of libFuzzer: an arena with a failure point for each input.
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    if (!FAILURE_CAUGHT(failure)) {
        fuzz(arena, failure, data, size);
    } else if (failure->kind == FAIL_INTERNAL) {
        fprintf(stderr, "internal error: %s\n", failure->message);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Failure failure;
    uint8_t *exact = malloc(size ? size : 1);
    Arena *arena = arena_new(libc_allocator, &failure);
    memcpy(exact, data, size);
    run(arena, &failure, exact, size);
    arena_free(arena);
    free(exact);
    return 0;
}
