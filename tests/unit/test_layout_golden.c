// The golden tables, line by line, through the batch: what CuTe's C++ headers print, Triton's unit tests and an
// independent reference of linear layouts, TileLang's bank swizzles element by element.
#include "layout/calculator/batch.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Calls `check` for every line of a golden file that is not a comment. Returns how many there were.
static int each_line(const char *name, void (*check)(Arena *arena, char *line)) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", TILEC_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t capacity = 0;
    int count = 0;
    while (getline(&line, &capacity, file) >= 0) {
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        Failure failure;
        assert_false(FAILURE_CAUGHT(&failure));
        Arena *arena = arena_new(libc_allocator, &failure);
        check(arena, line);
        arena_free(arena);
        count++;
    }
    free(line);
    fclose(file);
    return count;
}

// Splits off the columns after the first `columns`; they are the expectation and the source.
static char *after_columns(char *line, int columns) {
    char *at = line;
    for (int i = 0; i < columns; i++) at = strchr(at, '\t') + 1;
    at[-1] = 0;
    return at;
}

static void check_cute(Arena *arena, char *line) {
    char *expected = after_columns(line, 3);
    expected[strcspn(expected, "\t")] = 0;
    char *answer = layout_batch_line(arena, line, strlen(line));
    if (strcmp(answer, expected)) fail_msg("%s: expected %s, got %s", line, expected, answer);
}

static void check_bank(Arena *arena, char *line) {
    char *expected = after_columns(line, 6), *answer = layout_batch_line(arena, line, strlen(line));
    if (strcmp(answer, expected)) fail_msg("%s: expected %s, got %s", line, expected, answer);
}

static void check_linear(Arena *arena, char *line) {
    char *expected = strstr(line, "\"expect\":"), *source = strstr(line, ",\"src\":");
    assert_non_null(expected);
    assert_non_null(source);
    char *result = arena_strndup(arena, expected + 9, (size_t)(source - expected - 9));
    char *answer = layout_batch_line(arena, line, strlen(line));
    if (strcmp(answer, arena_printf(arena, "{\"result\":%s}", result))) fail_msg("%s: got %s", line, answer);
}

static void cute_table(void **state) {
    (void)state;
    assert_int_equal(each_line("cute.tsv", check_cute), 1049);
}

static void linear_table(void **state) {
    (void)state;
    assert_int_equal(each_line("linear.jsonl", check_linear), 687);
}

static void swizzle_table(void **state) {
    (void)state;
    assert_int_equal(each_line("swizzle.tsv", check_bank), 6283);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cute_table), cmocka_unit_test(linear_table),
                                       cmocka_unit_test(swizzle_table)};
    return run(tests);
}
