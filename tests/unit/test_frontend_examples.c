// Every example parses, elaborates, verifies, and prints to text that reads back as the same text.
#include "tests/unit/unit.h"

#include "frontend/frontend.h"
#include "ir/print.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_text(Arena *arena, const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = arena_alloc(arena, 1 << 16);
    *length = fread(text, 1, (1 << 16) - 1, file);
    fclose(file);
    return text;
}

static void show(DiagSink *sink, Arena *arena) {
    StrBuf out;
    sb_init(&out, arena);
    diag_render(sink, 0, DIAG_TEXT, &out);
    fprintf(stderr, "%s", sb_text(&out));
}

static const char *print(const Module *module, bool places) {
    StrBuf out;
    sb_init(&out, module->arena);
    print_module(module, (PrintOptions){.tests = true, .places = places}, &out);
    return sb_text(&out);
}

static void round_trip(Arena *arena, Module *module, bool places) {
    const char *text = print(module, places);
    DiagSink *sink = diag_sink_new(arena);
    Module *again = parse_module(arena, module->failure, sink, "printed.tile", text);
    show(sink, arena);
    if (!again) fprintf(stderr, "%s\n", text);
    assert_non_null(again);
    assert_string_equal(print(again, places), text);
}

static void elaborate_example(Arena *arena, const char *path) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s: %s", path, failure.message);
    DiagSink *sink = diag_sink_new(arena);
    size_t length;
    char *text = read_text(arena, path, &length);
    assert_non_null(text);
    Syntax *syntax = syntax_parse(arena, &failure, sink, path, text, length, NULL);
    show(sink, arena);
    assert_non_null(syntax);
    const Define *defines = NULL;
    int count = 0, choices = syntax_test_choices(syntax, arena, -1, &defines, &count), tests = 0;
    for (int i = 0; i < choices; i++) {
        syntax_test_choices(syntax, arena, i, &defines, &count);
        ElaborateOptions options = {.define_count = count, .defines = defines};
        Module *module = elaborate(syntax, arena, &failure, sink, &options);
        show(sink, arena);
        assert_non_null(module);
        if (getenv("SHOW")) printf("%s\n", print(module, false));
        round_trip(arena, module, false);
        round_trip(arena, module, true);
        tests += module->tests.count;
    }
    int written = 0;
    for (const char *at = text; (at = strstr(at, "\ntest ")); at++) written++;
    assert_int_equal(tests, written);   // each test belongs to exactly one choice
}

static const char *const names[] = {"attention", "center_columns", "gemm_few_rows", "gemm_bias_gelu", "gemm_split_k",
                                    "rmsnorm",   "softmax",        "transpose",     "vector_add"};

static void test_examples(void **state) {
    Arena *arena = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        elaborate_example(arena, arena_printf(arena, "%s/examples/%s.tile", TILEC_SOURCE_DIR, names[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_examples)};
    return run(tests);
}
