// The standard form of programs (tilec fmt): what it does to a text, and that it changes no token and no comment of any
// `.tile` file of the tree.
#include "support/files.h"
#include "tests/unit/unit.h"
#include "tools/format.h"
#include <string.h>

static const char *format(Arena *arena, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    format_source(source_parse(arena, text, (int)strlen(text)), &out);
    return sb_text(&out);
}

// `text` becomes `formatted`, which stays.
static void expect(Arena *arena, const char *text, const char *formatted) {
    assert_string_equal(format(arena, text), formatted);
    assert_string_equal(format(arena, formatted), formatted);
}

static void test_blanks(void **state) {
    expect(*state, "kernel k( x:f32[ N ],y :out f32[N] ){\ny [0]=-x[1]*( x[2]-1 )+f( 2 );}\n",
           "kernel k(x: f32[N], y: out f32[N]) {\n    y[0] = -x[1] * (x[2] - 1) + f(2); }\n");
    expect(*state, "x = a?b:-c;y>>=1;z=!a&&~b<<2;", "x = a ? b : -c; y >>= 1; z = !a && ~b << 2;\n");
    expect(*state, "x = a ? b[1 +: 2] : c ? d : e;", "x = a ? b[1 +: 2] : c ? d : e;\n");
    expect(*state, "copy(x[ : ,0+:4].T,s [k]);", "copy(x[:, 0 +: 4].T, s[k]);\n");
    expect(*state, "let p=f32 (x.y)- step;return -1;", "let p = f32(x.y) - step; return -1;\n");
    expect(*state, "for(i in -4 .. N step -2) x[i]=(step -1);", "for (i in -4 .. N step -2) x[i] = (step - 1);\n");
    expect(*state, "test k(N=4,M=-1) tolerance 1e-3;", "test k (N = 4, M = -1) tolerance 1e-3;\n");
    expect(*state, "tune T in { 1,2 };if(a){b=1;}else{}", "tune T in {1, 2}; if (a) { b = 1; } else {}\n");
    expect(*state, "@via( mma )@wide copy(a,b);", "@via(mma) @wide copy(a, b);\n");
    expect(*state, "x: f32[M, N] strides[a, 1]", "x: f32[M, N] strides [a, 1]\n");
    expect(*state, "kernel k(x: f32[N]) cost(N,step=4) {", "kernel k(x: f32[N]) cost (N, step = 4) {\n");
    expect(*state, "x = cost( n );", "x = cost(n);\n");
}

static void test_indentation(void **state) {
    expect(*state, "grid (i in 4)\nthreads 32 {\nfor (i in 4)\nif (a)\nb = 1;\nelse\nc = 2;\nd = 3;\n}\n",
           "grid (i in 4)\n    threads 32 {\n    for (i in 4)\n        if (a)\n            b = 1;\n        else\n"
           "            c = 2;\n    d = 3;\n}\n");
    expect(*state, "{ if (a)\nif (b) x = 1; else\nx = 2;\nelse y = 3;\nz = 4;\n}",
           "{ if (a)\n        if (b) x = 1; else\n            x = 2;\n    else y = 3;\n    z = 4;\n}\n");
    expect(*state, "if (a) {\nx = 1;\n} else if (b) {\nx = 2;\n} else\nx = 3;\ny = 4;",
           "if (a) {\n    x = 1;\n} else if (b) {\n    x = 2;\n} else\n    x = 3;\ny = 4;\n");
    expect(*state, "{\n@group(load)\n@unrolled\nfor (i in 4)\n@via(tma)\ncopy(a, b);\n}",
           "{\n    @group(load)\n    @unrolled\n    for (i in 4)\n        @via(tma)\n        copy(a, b);\n}\n");
    expect(*state, "{\nif (a)\n{\nx = 1;\n}\ny = 2;\n}",
           "{\n    if (a)\n    {\n        x = 1;\n    }\n    y = 2;\n}\n");
}

static void test_lines_that_go_on(void **state) {
    expect(
        *state, "macro m(a: f32,\nb: f32) {\nx = f(a,\nb[0 +\n1]) +\n1;\ny = g(\na\n);\n}",
        "macro m(a: f32,\n        b: f32) {\n    x = f(a,\n          b[0 +\n            1]) +\n        1;\n    y = g(\n"
        "        a\n    );\n}\n");
    expect(*state, "tune A in {1},\nB in {2,\n3};\nx = 1;", "tune A in {1},\n     B in {2,\n           3};\nx = 1;\n");
    expect(*state, "{\nshared a: f32[4],\nb: f32[4];\n}", "{\n    shared a: f32[4],\n           b: f32[4];\n}\n");
}

static void test_columns(void **state) {
    expect(*state, "shared a: f32[4];\nfragment b: f32[4];\n\nshared c: f32[4];\nvar d: f32;",
           "shared   a: f32[4];\nfragment b: f32[4];\n\nshared c: f32[4];\nvar d: f32;\n");
    expect(*state, "const A = 1; // a\nconst BCD = 1;// b  \nconst E = 1;\nconst F = 1;    // f",
           "const A = 1;     // a\nconst BCD = 1;   // b\nconst E = 1;\nconst F = 1;   // f\n");
    expect(*state, "x = \"\xc3\xa4\"; // a\ny = \"b\"; // c", "x = \"\xc3\xa4\";   // a\ny = \"b\";   // c\n");
}

static void test_comments_and_blank_lines(void **state) {
    expect(*state, "\n\n// head\n\n\nkernel k() {\n\n// a\nx = 1;\n\n\ny = 2;\n      // end\n\n}\n\n\n",
           "// head\n\nkernel k() {\n    // a\n    x = 1;\n\n    y = 2;\n    // end\n}\n");
    expect(*state, "// \xe2\x82\xac only", "// \xe2\x82\xac only\n");
    expect(*state, "f(a,   // first\nb);\r\n", "f(a,   // first\n  b);\n");
    expect(*state, "", "");
}

static void expect_same_tokens(Arena *arena, const char *path, const char *before, const char *after) {
    SourceTree *a = source_parse(arena, before, (int)strlen(before));
    SourceTree *b = source_parse(arena, after, (int)strlen(after));
    if (a->tokens.count != b->tokens.count) fail_msg("%s: another number of tokens", path);
    for (int i = 0; i < a->tokens.count; i++)
        if (strcmp(token_text(a, i), token_text(b, i)) != 0) fail_msg("%s: %s", path, token_text(b, i));
}

static int comments(const char *text) {
    int count = 0;
    for (; (text = strstr(text, "//")); text++) count++;
    return count;
}

static void test_files_of_the_tree(void **state) {
    Arena *arena = *state;
    DiagSink *sink = diag_sink_new(arena);
    FileNames names = {0};
    assert_true(files_named(arena, sink, TILEC_SOURCE_DIR "/examples", ".tile", &names));
    assert_true(files_named(arena, sink, TILEC_SOURCE_DIR "/tests", ".tile", &names));
    assert_true(names.count > 150);
    for (int i = 0; i < names.count; i++) {
        FileText text;
        assert_true(file_read(arena, sink, names.items[i], 0, &text));
        const char *formatted = format(arena, text.text);
        expect_same_tokens(arena, names.items[i], text.text, formatted);
        assert_int_equal(comments(text.text), comments(formatted));
        assert_string_equal(format(arena, formatted), formatted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_blanks),           IN_ARENA(test_indentation),       IN_ARENA(test_columns),
        IN_ARENA(test_lines_that_go_on), IN_ARENA(test_files_of_the_tree), IN_ARENA(test_comments_and_blank_lines),
    };
    return run(tests);
}
