// Arena, text, vectors, maps and failure points, and all of them without memory.
#include "support/diag.h"
#include "support/map.h"
#include "support/vec.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

static void arena_gives_zeroed_aligned_memory(void **state) {
    Arena *arena = *state;
    for (size_t bytes = 0; bytes < 70000; bytes = bytes * 2 + 1) {
        unsigned char *block = arena_alloc(arena, bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], 0);
        memset(block, 0xff, bytes);
    }
}

static void arena_copies(void **state) {
    Arena *arena = *state;
    assert_string_equal(arena_strdup(arena, "tile"), "tile");
    assert_string_equal(arena_strndup(arena, "tile", 2), "ti");
    assert_string_equal(arena_printf(arena, "%s %d", "sm", 90), "sm 90");
    int *grown = arena_grow(arena, (int[]){1, 2}, sizeof(int[2]), sizeof(int[4]));
    assert_int_equal(grown[1], 2);
    assert_int_equal(grown[3], 0);
    assert_non_null(arena_copy(arena, NULL, 0));
}

static void vectors_grow(void **state) {
    Arena *arena = *state;
    VEC(int) numbers = {0};
    for (int i = 0; i < 1000; i++) vec_push(arena, &numbers, i);
    for (int i = 0; i < 1000; i++) assert_int_equal(numbers.items[i], i);
    assert_int_equal(vec_pop(&numbers), 999);
    assert_int_equal(vec_last(&numbers), 998);
}

static void text_grows(void **state) {
    StrBuf sb;
    sb_init(&sb, *state);
    assert_string_equal(sb_text(&sb), "");
    for (int i = 0; i < 1000; i++) sb_printf(&sb, "%d,", i % 10);
    assert_int_equal(sb.length, 2000);
    assert_memory_equal(sb_text(&sb) + 1990, "5,6,7,8,9,", 11);
    sb_char(&sb, 'x');
    sb_bytes(&sb, "a\0b", 3);
    assert_int_equal(sb.length, 2004);
}

static void maps_hold_pointers(void **state) {
    Map *map = map_new(*state);
    int keys[500];
    assert_null(map_get(map, keys));
    for (int i = 0; i < 500; i++) map_put(map, &keys[i], &keys[499 - i]);
    assert_int_equal(map_count(map), 500);
    for (int i = 0; i < 500; i++) assert_ptr_equal(map_get(map, &keys[i]), &keys[499 - i]);
    map_put(map, &keys[3], NULL);
    assert_true(map_has(map, &keys[3]));
    assert_null(map_get(map, &keys[3]));
    for (int i = 0; i < 500; i++) map_remove(map, &keys[i]);
    map_remove(map, &keys[0]);
    assert_int_equal(map_count(map), 0);
    map_put(map, NULL, keys);   // a map that was emptied can be filled again; NULL is a key
    assert_true(map_has(map, NULL));
}

static void append_key(const char *key, void *value, void *user) {
    sb_printf(user, "%s%d ", key, *(int *)value);
}

static void string_maps_keep_order_and_copy_keys(void **state) {
    StrMap *map = strmap_new(*state);
    int one = 1, two = 2;
    char key[] = "beta";
    strmap_put(map, key, &one);
    strmap_put(map, "alpha", &one);
    key[0] = 'm';
    strmap_put(map, "alpha", &two);
    assert_true(strmap_has(map, "beta"));
    assert_false(strmap_has(map, key));
    StrBuf sb;
    sb_init(&sb, *state);
    strmap_each(map, append_key, &sb);
    assert_string_equal(sb_text(&sb), "beta1 alpha2 ");
}

static void names_are_suggested(void **state) {
    StrMap *map = strmap_new(*state);
    const char *names[] = {"copy", "gemm", "reduce_sum", "BM", "A"};
    for (int i = 0; i < COUNT_OF(names); i++) strmap_put(map, names[i], map);
    assert_string_equal(strmap_nearest(map, "cpoy"), "copy");
    assert_string_equal(strmap_nearest(map, "gem"), "gemm");
    assert_string_equal(strmap_nearest(map, "redcue_summ"), "reduce_sum");
    assert_string_equal(strmap_nearest(map, "BN"), "BM");
    assert_null(strmap_nearest(map, "B"));
    strmap_put(map, "A", map);
    assert_string_equal(strmap_nearest(map, "a"), "A");
    assert_null(strmap_nearest(map, "fragment"));
    assert_null(strmap_nearest(map, ""));
    char longest[200] = {0};
    memset(longest, 'x', sizeof longest - 1);
    assert_null(strmap_nearest(map, longest));
}

static void broken_promises_are_caught(void **state) {
    (void)state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) {
        assert_int_equal(failure.kind, FAIL_INTERNAL);
        assert_non_null(strstr(failure.message, "7 tiles ("));
        assert_non_null(strstr(failure.message, "test_support.c:"));
        return;
    }
    EXPECT(&failure, 1 + 1 == 2, "arithmetic");
    EXPECT(&failure, 1 + 1 == 3, "%d tiles", 7);
    fail();
}

typedef struct Steps {
    Failure failure;
    int work, after;
    bool fails;
} Steps;

static bool count_work(void *user) {
    Steps *steps = user;
    steps->work++;
    EXPECT(&steps->failure, !steps->fails, "work");
    return steps->work == 1;
}

static void count_after(void *user) {
    Steps *steps = user;
    steps->after++;
}

static bool count_nested(void *user) {
    Steps *steps = user;
    return fail_scope(&steps->failure, count_work, count_after, user);
}

static void what_follows_is_done_on_each_way(void **state) {
    (void)state;
    static Steps steps;
    if (FAILURE_CAUGHT(&steps.failure)) {
        assert_int_equal(steps.work, 3);
        assert_int_equal(steps.after, 4);   // of both scopes
        return;
    }
    assert_true(fail_scope(&steps.failure, count_work, count_after, &steps));
    assert_false(fail_scope(&steps.failure, count_work, count_after, &steps));
    assert_int_equal(steps.after, 2);
    steps.fails = true;
    fail_scope(&steps.failure, count_nested, count_after, &steps);
    fail();
}

static void impossible_sizes_are_out_of_memory(void **state) {
    (void)state;
    Failure failure;
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(&failure)) {
        assert_int_equal(failure.kind, FAIL_OUT_OF_MEMORY);
        arena_free(arena);
        return;
    }
    arena = arena_new(libc_allocator, &failure);
    arena_alloc(arena, SIZE_MAX);
    fail();
}

// An allocator whose n-th allocation fails and which knows what is still held.
typedef struct Scarce {
    int allocations, failing, held;
} Scarce;

static void *scarce_resize(void *user, void *block, size_t bytes) {
    Scarce *scarce = user;
    if (bytes == 0) {
        scarce->held -= block != NULL;
        free(block);
        return NULL;
    }
    if (++scarce->allocations == scarce->failing) return NULL;
    scarce->held += block == NULL;
    return realloc(block, bytes);
}

static void use_everything(Arena *arena) {
    Map *map = map_new(arena);
    StrMap *names = strmap_new(arena);
    DiagSink *sink = diag_sink_new(arena);
    const char *source = "copy(A, B);\n";
    int file = diag_add_source(sink, "a.tile", source, strlen(source));
    for (int i = 0; i < 3000; i++) {
        const char *name = arena_printf(arena, "name%d", i);
        map_put(map, name, names);
        strmap_put(names, name, map);
    }
    Span span = {file, 1, 6, 1, 7};
    for (int i = 0; i < 50; i++) {
        Diag *d = diag(sink, span, T_CANNOT_READ, "a.tile", "it is not there");
        diag_label(d, span, "here");
        diag_note(d, "%d", i);
    }
    StrBuf out;
    sb_init(&out, arena);
    diag_render(sink, 0, DIAG_TEXT, &out);
    diag_render(sink, 0, DIAG_JSON, &out);
}

// True when everything could be done; false when the n-th allocation failed, and left by the failure point.
static bool survives(int failing) {
    Scarce scarce = {.failing = failing};
    Failure failure;
    Arena *volatile arena = NULL;
    bool done = false;
    if (FAILURE_CAUGHT(&failure)) {
        assert_int_equal(failure.kind, FAIL_OUT_OF_MEMORY);
    } else {
        arena = arena_new((Allocator){scarce_resize, &scarce}, &failure);
        if (arena) {
            use_everything(arena);
            done = true;
        }
    }
    arena_free(arena);
    assert_int_equal(scarce.held, 0);
    assert_true(done ? scarce.allocations < failing : scarce.allocations == failing);
    return done;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int failing = 1;
    while (!survives(failing)) failing++;
    assert_true(failing > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(arena_gives_zeroed_aligned_memory),
        IN_ARENA(arena_copies),
        IN_ARENA(vectors_grow),
        IN_ARENA(text_grows),
        IN_ARENA(maps_hold_pointers),
        IN_ARENA(string_maps_keep_order_and_copy_keys),
        IN_ARENA(names_are_suggested),
        cmocka_unit_test(broken_promises_are_caught),
        cmocka_unit_test(what_follows_is_done_on_each_way),
        cmocka_unit_test(impossible_sizes_are_out_of_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return run(tests);
}
