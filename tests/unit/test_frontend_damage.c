// Damaged programs: examples with bytes and tokens changed, dropped, doubled or swapped, and cut off at any length.
// Whatever comes out, it is diagnostics or a module that reads back as it prints: no crash, no internal error.
#include "tests/unit/unit.h"

#include "frontend/frontend.h"
#include "ir/print.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 14 };

static uint64_t state_;

static unsigned draw(unsigned bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state_ >> 33) % bound;
}

// ---- one program ----
static const char *print(const Module *module) {
    StrBuf out;
    sb_init(&out, module->arena);
    print_module(module, (PrintOptions){.tests = true, .places = true}, &out);
    return sb_text(&out);
}

// What compiles all the same reads back as it prints, however odd it is.
static void round_trip(const Module *module, Arena *arena, Failure *failure) {
    const char *text = print(module);
    DiagSink *sink = diag_sink_new(arena);
    Module *again = *text ? parse_module(arena, failure, sink, "printed", text) : NULL;
    if (again) {
        assert_string_equal(print(again), text);
    } else if (*text) {
        StrBuf out;
        sb_init(&out, arena);
        diag_render(sink, 0, DIAG_TEXT, &out);
        fail_msg("%s\n%s", sb_text(&out), text);
    }
}

static void compile(const char *name, const char *text, size_t length) {
    Failure failure;
    Arena *volatile arena = NULL;
    if (FAILURE_CAUGHT(&failure)) {
        fprintf(stderr, "%.*s\n", (int)length, text);
        fail_msg("%s: %s", name, failure.message);
    }
    arena = arena_new(libc_allocator, &failure);
    char *exact = malloc(length + 1);   // so that the sanitizer sees a byte read too far
    memcpy(exact, text, length);
    DiagSink *sink = diag_sink_new(arena);
    Syntax *syntax = syntax_parse(arena, &failure, sink, name, exact, length, NULL);
    Module *module = NULL;
    if (syntax) {
        ElaborateOptions options = {0};
        module = elaborate(syntax, arena, &failure, sink, &options);
    }
    assert_true(module || diag_errors(sink) > 0);   // what fails says why
    StrBuf out;
    sb_init(&out, arena);
    diag_render(sink, 0, DIAG_TEXT, &out);
    if (module) round_trip(module, arena, &failure);
    free(exact);
    arena_free(arena);
}

// ---- damage ----
static size_t token_end(const char *text, size_t length, size_t at) {
    size_t end = at + 1;
    if (isalnum((unsigned char)text[at]))
        while (end < length && isalnum((unsigned char)text[end])) end++;
    return end;
}

static size_t replace(char *text, size_t length, size_t at, size_t drop, const char *with, size_t count) {
    if (length - drop + count >= MOST_BYTES) return length;
    memmove(text + at + count, text + at + drop, length - at - drop);
    memcpy(text + at, with, count);
    return length - drop + count;
}

static const char *const pieces[] = {
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    ":",
    "+:",
    "..",
    "@",
    "=",
    "+",
    "-",
    "/ 0",
    "0",
    "1",
    "-1",
    "1e9",
    "\"",
    "x",
    "M",
    "i",
    "k",
    "f16",
    "i8",
    "u64",
    "bool",
    "true",
    "inf",
    "copy",
    "gemm",
    "fill",
    "regs(x)[0]",
    ".T",
    "T",
    "?",
    "9223372036854775807",
    "18446744073709551615",
    "for (i in 4) ",
    "parallel (i in 4) ",
    "thread (t in 32) { }",
    "grid (b in M) threads 32 { }",
    "if (true) ",
    "while (true) ",
    "let x = 1;",
    "var y: f16 = 2;",
    "return 1;",
    "break;",
    "@loc(\"a\", 1, 1) ",
    "@stages(2) ",
    "layout \"(4):(1)\"",
    "async ",
    "await(x);",
    "role r threads 32 { }",
    "shared s: f32[4];",
    "fragment g: f32[1];",
    "strides [1]",
    "when (M > 1)",
    "\xc3\xa4",
    "\xff",
    "\n",
    "//",
    "%",
    "!",
};

static size_t damage(char *text, size_t length) {
    size_t at = draw((unsigned)length), end = token_end(text, length, at);
    const char *piece = pieces[draw(COUNT_OF(pieces))];
    char copy[256];
    size_t other = draw((unsigned)length), count = token_end(text, length, other) - other;
    if (count > sizeof copy) count = sizeof copy;
    memcpy(copy, text + other, count);
    switch (draw(5)) {
    case 0: return replace(text, length, at, end - at, "", 0);
    case 1: return replace(text, length, at, 0, piece, strlen(piece));
    case 2: return replace(text, length, at, end - at, piece, strlen(piece));
    case 3: return replace(text, length, at, end - at, copy, count);
    default: text[at] = (char)draw(256); return length;
    }
}

static size_t read_example(const char *name, char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/examples/%s.tile", TILEC_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(text, 1, MOST_BYTES / 2, file);
    fclose(file);
    return length;
}

static const char *const names[] = {"attention", "center_columns", "gemm_few_rows", "gemm_bias_gelu", "gemm_split_k",
                                    "rmsnorm",   "softmax",        "transpose",     "vector_add"};

static void test_damaged(void **state) {
    (void)state;
    static char text[MOST_BYTES];
    int rounds = getenv("DAMAGE_ROUNDS") ? atoi(getenv("DAMAGE_ROUNDS")) : 300;
    for (int i = 0; i < rounds; i++) {
        state_ = (uint64_t)i * 7919 + 1 + (getenv("DAMAGE_SEED") ? (uint64_t)atoll(getenv("DAMAGE_SEED")) : 0);
        const char *name = names[draw(COUNT_OF(names))];
        size_t length = read_example(name, text);
        for (unsigned k = 1 + draw(3); k > 0; k--) length = damage(text, length);
        compile(name, text, length);
    }
}

static void test_truncated(void **state) {
    (void)state;
    static char text[MOST_BYTES];
    size_t length = read_example("center_columns", text);
    for (size_t i = 0; i <= length; i += 1 + i % 7) compile("truncated", text, i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged), cmocka_unit_test(test_truncated)};
    return run(tests);
}
