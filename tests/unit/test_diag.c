// Diagnostics: what is collected and how it is rendered.
#include "support/diag.h"
#include "support/map.h"
#include "support/vec.h"
#include "tests/unit/unit.h"
#include <string.h>

static const char source[] = "kernel k() {\n"
                             "    copy(foo, As);\n"
                             "\tgemm(a, b);\n"
                             "    fill(\"\xce\xb1\xe4\xb8\xad\", z);\n"
                             "}\n"
                             "\xff\x01 = 1;\n"
                             "last";

static Span at(int line, int column, int end_column) {
    return (Span){0, line, column, line, end_column};
}

static DiagSink *sink_with_source(Arena *arena) {
    DiagSink *sink = diag_sink_new(arena);
    assert_int_equal(diag_add_source(sink, "a.tile", source, sizeof source - 1), 0);
    return sink;
}

static const char *rendered(DiagSink *sink, Arena *arena, DiagFormat format) {
    StrBuf out;
    sb_init(&out, arena);
    diag_render(sink, 0, format, &out);
    return sb_text(&out);
}

static void sources_are_kept(void **state) {
    DiagSink *sink = diag_sink_new(*state);
    char text[] = "kernel k() {\n";
    diag_add_source(sink, "a.tile", text, sizeof text - 1);
    memset(text, '!', sizeof text);
    diag(sink, at(1, 8, 9), T_CANNOT_READ, "foo", "gone");
    assert_non_null(strstr(rendered(sink, *state, DIAG_TEXT), "kernel k() {"));
}

static void text_has_place_excerpt_caret_labels_notes(void **state) {
    DiagSink *sink = sink_with_source(*state);
    Diag *d = diag(sink, at(2, 10, 13), T_CANNOT_READ, "foo", "gone");
    diag_label(d, at(2, 5, 9), "in this call");
    diag_label(d, at(2, 10, 13), "not declared");
    diag_label(d, at(5, 1, 2), "the end");
    diag_note(d, "did you mean '%s'?\nor another", "fob");
    assert_string_equal(rendered(sink, *state, DIAG_TEXT), "a.tile:2:10: error[T0001]: cannot read 'foo': gone\n"
                                                           "  |\n"
                                                           "2 |     copy(foo, As);\n"
                                                           "  |     ---- ^^^ not declared\n"
                                                           "  |     |\n"
                                                           "  |     in this call\n"
                                                           "...\n"
                                                           "5 | }\n"
                                                           "  | - the end\n"
                                                           "  = note: did you mean 'fob'?\n"
                                                           "          or another\n"
                                                           "  = help: check the path and its permissions\n");
}

static void tabs_wide_and_unprintable_characters_align(void **state) {
    DiagSink *sink = sink_with_source(*state);
    diag(sink, at(3, 7, 8), T_CANNOT_READ, "", "");
    diag(sink, at(4, 18, 19), T_CANNOT_READ, "", "");
    diag(sink, at(6, 4, 5), T_CANNOT_READ, "", "");
    const char *text = rendered(sink, *state, DIAG_TEXT);
    assert_non_null(strstr(text, "a.tile:3:7: "));
    assert_non_null(strstr(text, "3 |     gemm(a, b);\n  |          ^\n"));
    assert_non_null(strstr(text, "a.tile:4:15: "));   // characters, not bytes
    assert_non_null(strstr(text, "4 |     fill(\"\xce\xb1\xe4\xb8\xad\", z);\n  |                ^\n"));
    assert_non_null(strstr(text, "6 | \xef\xbf\xbd\xef\xbf\xbd = 1;\n  |    ^\n"));
}

static void odd_places_are_harmless(void **state) {
    DiagSink *sink = sink_with_source(*state);
    diag_add_source(sink, "empty.tile", NULL, 0);
    Span spans[] = {{0},
                    {0, 7, 5, 7, 5},
                    {0, 7, 500, 7, 900},
                    {0, 99, 1, 99, 2},
                    {0, 2, 5, 5, 2},
                    {0, 2, 0, 0, 0},
                    {9, 1, 1, 1, 2},
                    {-1, 1, 1, 1, 2},
                    {1, 1, 1, 1, 1}};
    for (int i = 0; i < COUNT_OF(spans); i++) {
        Diag *d = diag(sink, spans[i], T_OUT_OF_MEMORY);
        for (int k = 0; k < COUNT_OF(spans); k++) diag_label(d, spans[k], "%s", k % 2 ? "label" : "");
    }
    for (int format = DIAG_TEXT; format <= DIAG_JSON; format++) rendered(sink, *state, (DiagFormat)format);

    DiagSink *other = sink_with_source(*state);
    diag(other, (Span){0}, T_OUT_OF_MEMORY);
    diag(other, (Span){0, 7, 5, 7, 5}, T_OUT_OF_MEMORY);
    diag(other, (Span){0, 2, 5, 5, 2}, T_OUT_OF_MEMORY);
    const char *text = rendered(other, *state, DIAG_TEXT);
    assert_non_null(strstr(text, "tilec: error[T9902]: out of memory\n  = help: "));
    assert_non_null(strstr(text, "7 | last\n  |     ^\n"));
    assert_non_null(strstr(text, "2 |     copy(foo, As);\n  |     ^^^^^^^^^^^^^^\n"));
}

static void long_lines_are_cut(void **state) {
    Arena *arena = *state;
    size_t length = 100000;
    char *line = arena_alloc(arena, length);
    memset(line, 'x', length);
    DiagSink *sink = diag_sink_new(arena);
    diag_add_source(sink, "long.tile", line, length);
    Diag *d = diag(sink, at(1, 50001, 50002), T_CANNOT_READ, "", "");
    diag_label(d, at(1, 99000, 99001), "far");
    const char *text = rendered(sink, arena, DIAG_TEXT);
    assert_true(strlen(text) < 1500);
    const char *excerpt = strstr(text, "1 | ...xxx"), *caret = strchr(text, '^');
    assert_non_null(excerpt);
    assert_non_null(caret);
    assert_non_null(strstr(caret, "- far\n"));
}

static void other_files_are_named(void **state) {
    DiagSink *sink = sink_with_source(*state);
    int other = diag_add_source(sink, "b.tile", "fn f() = 1;\n", 12);
    Diag *d = diag(sink, at(2, 10, 13), T_CANNOT_READ, "foo", "gone");
    diag_label(d, (Span){other, 1, 4, 1, 5}, "declared here");
    assert_non_null(strstr(rendered(sink, *state, DIAG_TEXT), "  |          ^^^\n"
                                                              "  ::: b.tile:1:4\n"
                                                              "  |\n"
                                                              "1 | fn f() = 1;\n"
                                                              "  |    - declared here\n"));
}

static void json_is_one_object_a_line(void **state) {
    DiagSink *sink = sink_with_source(*state);
    Diag *d = diag(sink, at(4, 18, 19), T_CANNOT_READ, "a\"b\\c\n\x01\xff", "gone");
    diag_label(d, at(2, 5, 9), "call");
    diag_note(d, "one");
    diag_note(d, "two");
    diag(sink, (Span){0}, T_OUT_OF_MEMORY);
    assert_string_equal(
        rendered(sink, *state, DIAG_JSON),
        "{\"code\":\"T0001\",\"severity\":\"error\",\"message\":\"cannot read 'a\\\"b\\\\c\\n\\u0001\\ufffd': gone\","
        "\"file\":\"a.tile\",\"line\":4,\"column\":15,\"end_line\":4,\"end_column\":16,"
        "\"remedy\":\"check the path and its permissions\",\"labels\":[{\"text\":\"call\",\"file\":\"a.tile\","
        "\"line\":2,\"column\":5,\"end_line\":2,\"end_column\":9}],\"fixes\":[],\"notes\":[\"one\",\"two\"]}\n"
        "{\"code\":\"T9902\",\"severity\":\"error\",\"message\":\"out of memory\",\"remedy\":\"give the process more "
        "memory, or ask for less at a time: fewer kernels, smaller tensors of a test\",\"labels\":[],\"fixes\":[],\"notes\":[]}\n");
}

static void color_changes_nothing_but_color(void **state) {
    DiagSink *sink = sink_with_source(*state);
    diag_label(diag(sink, at(2, 10, 13), T_CANNOT_READ, "foo", "gone"), at(2, 5, 9), "in this call");
    const char *colored = rendered(sink, *state, DIAG_TEXT_COLOR);
    StrBuf plain;
    sb_init(&plain, *state);
    for (const char *c = colored; *c; c++) {
        if (*c == '\033') c = strchr(c, 'm');
        else sb_char(&plain, *c);
    }
    assert_true(strlen(colored) > plain.length);
    // Spaces that end a line are dropped only where no colour code follows them.
    assert_string_equal(sb_text(&plain), rendered(sink, *state, DIAG_TEXT));
}

static void errors_are_listed_up_to_a_hundred(void **state) {
    DiagSink *sink = sink_with_source(*state);
    for (int i = 0; i < 130; i++)
        diag_note(diag(sink, at(1, 1, 2), T_CANNOT_READ, arena_printf(*state, "%d", i), ""), "%d", i);
    assert_int_equal(diag_errors(sink), 130);
    assert_int_equal(diag_count(sink), 100);
    assert_non_null(strstr(rendered(sink, *state, DIAG_TEXT), "\n... and 30 more errors\n"));
    diag_truncate(sink, 2);
    assert_int_equal(diag_errors(sink), 2);
    assert_int_equal(diag_count(sink), 2);
}

static void a_remark_is_listed_a_single_time(void **state) {
    DiagSink *sink = sink_with_source(*state);
    diag_note(diag(sink, at(2, 5, 9), T_NOT_PIPELINED, "it has one trip"), "first");
    diag_note(diag(sink, at(2, 5, 9), T_NOT_PIPELINED, "it has one trip"), "second");
    assert_int_equal(diag_count(sink), 1);
    assert_null(strstr(rendered(sink, *state, DIAG_TEXT), "second"));
    diag(sink, at(2, 5, 9), T_NOT_PIPELINED, "another reason");
    diag(sink, at(3, 5, 9), T_NOT_PIPELINED, "it has one trip");
    assert_int_equal(diag_count(sink), 3);
    for (int i = 0; i < 2; i++) diag(sink, at(2, 5, 9), T_EMU_PRINT, "x = 1");   // a program's own output
    assert_int_equal(diag_count(sink), 5);
    diag(sink, at(2, 5, 9), T_SHARED_CONFLICTS, "s1");   // about two tiles, whose names differ in a digit
    diag(sink, at(2, 5, 9), T_SHARED_CONFLICTS, "s2");
    assert_int_equal(diag_count(sink), 7);
}

static void diagnostics_are_data(void **state) {
    DiagSink *sink = sink_with_source(*state);
    Diag *d = diag(sink, at(2, 10, 13), T_CANNOT_READ, "foo", "gone");
    diag_suggest(d, at(2, 10, 13), "fob");
    diag_suggest(d, at(2, 10, 13), NULL);
    diag_suggest(d, (Span){0}, "bar");   // no place: a note alone
    DiagView view = diag_view(sink, 0);
    assert_int_equal(view.note_count, 2);
    assert_string_equal(view.notes[0], "did you mean 'fob'?");
    assert_int_equal(view.fix_count, 1);
    assert_string_equal(view.fixes[0].text, "fob");
    assert_int_equal(view.fixes[0].span.column, 10);
    assert_non_null(strstr(rendered(sink, *state, DIAG_JSON), "\"fixes\":[{\"text\":\"fob\""));
    assert_int_equal(view.code, T_CANNOT_READ);
    assert_int_equal(view.severity, SEVERITY_ERROR);
    assert_string_equal(view.file, "a.tile");
    assert_string_equal(view.message, "cannot read 'foo': gone");
    assert_int_equal(view.span.column, 10);
    assert_string_equal(diag_source_name(sink, 5), "<none>");
}

// All kinds of diagnostics, more errors than are listed, a repeated one.
static DiagSink *full_sink(Arena *arena) {
    DiagSink *sink = sink_with_source(arena);
    int other = diag_add_source(sink, "b.tile", "one\n", 4);
    Span there = {other, 1, 1, 1, 4};
    Diag *d = diag(sink, at(2, 10, 13), T_UNKNOWN_NAME, "foo");
    diag_label(d, there, "declared here");
    diag_suggest(d, at(2, 10, 13), "fob");
    diag(sink, (Span){0}, T_SPILLS, "k", 1, 2, 3);
    for (int i = 0; i < 2; i++) diag(sink, there, T_UNKNOWN_NAME, "one");
    for (int i = 0; i < 120; i++) diag(sink, (Span){0}, T_UNKNOWN_TARGET, "sm_1");
    return sink;
}

static StrBuf written(const DiagSink *sink, Arena *arena) {
    StrBuf bytes;
    sb_init(&bytes, arena);
    diag_write(sink, &bytes);
    return bytes;
}

static void diagnostics_look_the_same_elsewhere(void **state) {
    Arena *arena = *state;
    DiagSink *here = full_sink(arena), *there = diag_sink_new(arena);
    StrBuf bytes = written(here, arena);
    assert_true(diag_read(there, bytes.text, bytes.length));
    for (DiagFormat form = DIAG_TEXT; form <= DIAG_JSON; form++)
        assert_string_equal(rendered(here, arena, form), rendered(there, arena, form));
    assert_int_equal(diag_count(here), diag_count(there));

    DiagSink *used = sink_with_source(arena);   // a sink that has diagnostics of its own
    diag_add_source(used, "c.tile", "x", 1);
    diag(used, at(1, 1, 2), T_CANNOT_READ, "foo", "gone");
    const char *before = rendered(used, arena, DIAG_TEXT);
    assert_true(diag_read(used, bytes.text, bytes.length));
    assert_string_equal(rendered(used, arena, DIAG_TEXT),
                        arena_printf(arena, "%s%s", before, rendered(here, arena, DIAG_TEXT)));

    DiagSink *none = diag_sink_new(arena);
    bytes = written(sink_with_source(arena), arena);
    assert_true(diag_read(none, bytes.text, bytes.length));
    assert_int_equal(diag_count(none), 0);
}

static void damaged_diagnostics_are_refused(void **state) {
    Arena *arena = *state;
    StrBuf bytes = written(full_sink(arena), arena);
    for (size_t cut = 0; cut < bytes.length; cut += 1 + cut / 100)
        assert_false(diag_read(diag_sink_new(arena), bytes.text, cut));
    for (size_t i = 0; i < bytes.length && i < 2000; i++)
        for (int value = 0; value < 256; value += 85) {
            char *copy = arena_copy(arena, bytes.text, bytes.length);
            copy[i] = (char)value;
            DiagSink *sink = diag_sink_new(arena);
            diag_read(sink, copy, bytes.length);
            rendered(sink, arena, DIAG_TEXT);
            if (i % 10 != 0) break;
        }
}

static void codes_are_explained(void **state) {
    DiagExplanation row;
    assert_true(diag_explain(4, *state, &row));
    assert_string_equal(row.severity, "error");
    assert_string_equal(row.message, "'...' has ... bytes; at most ... are read");
    assert_non_null(strstr(row.remedy, "split it"));
    assert_false(diag_explain(9999, *state, &row));
}

// The table itself: sorted, and every row has words and a remedy.
static void the_table_is_in_order(void **state) {
    (void)state;
    static const struct {
        int number;
        const char *severity, *text, *remedy;
    } rows[] = {
#define DIAG(NAME, number, severity, text, remedy) {number, #severity, text, remedy},
#include "support/diagnostics.def"
#undef DIAG
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (i) assert_true(rows[i - 1].number < rows[i].number);
        assert_true(strlen(rows[i].text) >= 2);   // "%s": the caller's own words
        if (strcmp(rows[i].severity, "REMARK") != 0)
            assert_true(strlen(rows[i].remedy) > 3);   // a remark asks for nothing
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(sources_are_kept),
        IN_ARENA(text_has_place_excerpt_caret_labels_notes),
        IN_ARENA(tabs_wide_and_unprintable_characters_align),
        IN_ARENA(odd_places_are_harmless),
        IN_ARENA(long_lines_are_cut),
        IN_ARENA(other_files_are_named),
        IN_ARENA(json_is_one_object_a_line),
        IN_ARENA(color_changes_nothing_but_color),
        IN_ARENA(errors_are_listed_up_to_a_hundred),
        IN_ARENA(a_remark_is_listed_a_single_time),
        IN_ARENA(diagnostics_are_data),
        IN_ARENA(diagnostics_look_the_same_elsewhere),
        IN_ARENA(damaged_diagnostics_are_refused),
        IN_ARENA(codes_are_explained),
        IN_ARENA(the_table_is_in_order),
    };
    return run(tests);
}
