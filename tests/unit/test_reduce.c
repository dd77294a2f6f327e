// The pieces of `tilec reduce`: tokens, the tree of brackets, printing, and what each family of edits makes of a
// program.
#include "support/strbuf.h"
#include "tests/unit/unit.h"
#include "tools/reduce/edits.h"
#include <string.h>

static SourceTree *parse(Arena *arena, const char *text) {
    return source_parse(arena, text, (int)strlen(text));
}

static const char *format(Arena *arena, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    source_format(parse(arena, text), &out);
    return sb_text(&out);
}

// The tree in a line: statements end with `;`, list items with `,`, tokens are joined by blanks.
static void show(const SourceTree *tree, const SourceNode *node, StrBuf *out) {
    if (node->kind == NODE_TOKEN) {
        sb_str(out, token_text(tree, node->from));
        return;
    }
    bool group = node->kind == NODE_GROUP;
    if (group) sb_str(out, node->block ? "{" : "<");
    for (int i = 0; i < node->kids.count; i++) {
        if (i) sb_char(out, group ? '|' : ' ');
        show(tree, node->kids.items[i], out);
    }
    if (group) sb_str(out, node->block ? "}" : ">");
}

static void expect_tree(Arena *arena, const char *text, const char *expected) {
    SourceTree *tree = parse(arena, text);
    StrBuf out;
    sb_init(&out, arena);
    show(tree, tree->groups.items[0], &out);
    assert_string_equal(sb_text(&out), expected);
}

static void test_tree(void **state) {
    expect_tree(*state, "", "{}");
    expect_tree(*state, "f(a, b[1]); g();", "{f <a|b <1>> ;|g <> ;}");
    expect_tree(*state, "if (c) { x; } else { y; } z;", "{if <c> {x ;} else {y ;}|z ;}");
    expect_tree(*state, "test k (M = 1) { a; } tolerance 0; b;", "{test k <M = 1> {a ;} tolerance 0 ;|b ;}");
    expect_tree(*state, "tune A in {1, 2}, B in {3};", "{tune <A in <1|2>|B in <3>> ;}");
    expect_tree(*state, "for (i in 0..N) y[i] += 0x1p-4; // end", "{for <i in 0 .. N> y <i> += 0x1p-4 ;}");
}

// Brackets without partners, strings without ends and bytes outside of ASCII are tokens too.
static void test_damaged(void **state) {
    expect_tree(*state, "f(a]; ) }", "{f <a ] ;> }}");
    expect_tree(*state, "((x", "{( ( x}");
    expect_tree(*state, "a \"b c\nd \xc3\xa9 1e", "{a \"b c d \xc3\xa9 1e}");
}

static void test_format(void **state) {
    assert_string_equal(
        format(*state, "kernel k ( x : out f32 [ N ] ) { grid(b in 1) threads 32 { a[ - 1 ] = b-c ; } } //x"),
        "kernel k(x: out f32[N]) {\n    grid (b in 1) threads 32 {\n        a[-1] = b - c;\n    }\n}\n");
    assert_string_equal(format(*state, "if(a){}else{b;}"), "if (a) {} else {\n    b;\n}\n");
    assert_string_equal(format(*state, "a - -b; 1 .T; - - c;"), "a - -b;\n1 .T;\n- -c;\n");
}

// Whether a family makes this text.
static bool makes(Arena *arena, EditFamily family, const char *text, const char *expected) {
    SourceTree *tree = parse(arena, text);
    Edits edits = {0};
    family(tree, &edits);
    for (int i = 0; i < edits.count; i++) {
        StrBuf out;
        sb_init(&out, arena);
        edit_apply(tree, &edits.items[i], &out);
        if (!strcmp(format(arena, sb_text(&out)), format(arena, expected))) return true;
    }
    return false;
}

static void test_edits(void **state) {
    Arena *arena = *state;
    assert_true(makes(arena, edits_delete, "a; b; c; d;", "a; b;"));
    assert_true(makes(arena, edits_delete, "a; b; c;", "a; c;"));
    assert_true(makes(arena, edits_delete, "f(a, b, c);", "f(a, c);"));
    assert_true(makes(arena, edits_delete, "shared a: f32, b: f32;", "shared a: f32;"));
    assert_true(makes(arena, edits_unwrap, "for (i in N) { a[i]; b; }", "a[0]; b;"));
    assert_true(makes(arena, edits_unwrap, "if (c) { a; } else { b; }", "b;"));
    assert_true(makes(arena, edits_hoist, "x = f(a, b + c);", "x = b + c;"));
    assert_true(makes(arena, edits_elements, "x = a + b;", "x = a;"));
    assert_true(makes(arena, edits_elements, "x = a + b;", "x = b;"));
    assert_true(makes(arena, edits_constants, "x = a + f(b); grid () threads N {a;}", "x = 0; grid () threads N {a;}"));
    assert_true(makes(arena, edits_constants, "grid () threads N {a;}", "grid () threads 1 {a;}"));
    assert_true(makes(arena, edits_numbers, "a[64] = b[64, 32];", "a[8] = b[8, 32];"));
    assert_true(makes(arena, edits_numbers, "a[64] = b[64, 32];", "a[32] = b[32, 16];"));
    assert_true(makes(arena, edits_numbers, "a[64] = b[64, 32];", "a[64] = b[0, 32];"));
    assert_true(makes(arena, edits_rename, "long = long + a;", "b = b + a;"));
}

static void test_edits_of_names(void **state) {
    Arena *arena = *state;
    assert_true(makes(arena, edits_names, "kernel k(x: T, y: T) { f(x); g(y); }", "kernel k(y: T) { g(y); }"));
    assert_true(makes(arena, edits_names, "k(a, b, c); k(d, e, f);", "k(a, c); k(d, f);"));
    assert_true(makes(arena, edits_names, "x: out f32[4, 8]; x[i, j] = 0;", "x: out f32[4]; x[i] = 0;"));
    assert_true(makes(arena, edits_names, "let n = a + b; f(n);", "f((a + b));"));
    assert_true(makes(arena, edits_names, "tune N in {8, 16}; f(N);", "f(16);"));
    assert_true(makes(arena, edits_names, "x: T[M]; test k (M = 8);", "x: T[8]; test k();"));
}

// All parts of a list go together.
static void test_overlaps(void **state) {
    assert_true(makes(*state, edits_names, "f(x, x); g(y);", "f(); g(y);"));
    assert_true(makes(*state, edits_names, "f(a, x, x); g(y);", "f(a); g(y);"));
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_tree),  IN_ARENA(test_damaged),        IN_ARENA(test_format),
                                       IN_ARENA(test_edits), IN_ARENA(test_edits_of_names), IN_ARENA(test_overlaps)};
    return run(tests);
}
