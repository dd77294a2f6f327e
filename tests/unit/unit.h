// What every unit test includes: cmocka in the order it wants, and an arena per test.
//
//     static void test_x(void **state) { Arena *arena = *state; ... }
//     int main(void) { const struct CMUnitTest tests[] = {IN_ARENA(test_x)}; return run(tests); }
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/arena.h"
#include "support/fail.h"

// Runs a test (cmocka's initial state) with a failure point and an arena of its own.
static inline void unit_in_arena(void **state) {
    Failure failure;
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(&failure)) {
        arena_free(arena);
        fail_msg("left through the failure point: %s", failure.message);
    }
    arena = arena_new(libc_allocator, &failure);
    void *test_state = arena;
    ((CMUnitTestFunction)*state)(&test_state);
    arena_free(arena);
}

#define IN_ARENA(test) ((struct CMUnitTest){#test, unit_in_arena, NULL, NULL, (void *)(test)})
#define run(tests) cmocka_run_group_tests(tests, NULL, NULL)
