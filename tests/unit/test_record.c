// The tuning record: damage, and which combination is taken.
#include "runtime/compile/record.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static const char line[] =
    "{\"kernel\": \"k\", \"text\": \"t\", \"target\": \"sm_90a\", \"device\": \"%s\", \"shape\": "
    "{\"N\": %d}, \"tuned\": {\"B\": %d}, \"us\": %g, \"us_low\": 1, \"us_high\": 2.5}\n";

typedef struct Row {
    const char *device;
    int n, b;
    double us;
} Row;

static Record record_of(Arena *arena, int count, const Row *rows) {
    StrBuf text;
    Record record;
    DiagSink *sink = diag_sink_new(arena);
    sb_init(&text, arena);
    for (int i = 0; i < count; i++) sb_printf(&text, line, rows[i].device, rows[i].n, rows[i].b, rows[i].us);
    record_parse(arena, sink, "record", sb_text(&text), &record);
    assert_int_equal(diag_count(sink), 0);
    return record;
}

// The B that is taken for N = n; n 0: no shape is known. -1: none.
static int64_t chosen(Arena *arena, const Record *record, int n) {
    RecordValues shape = {0};
    RecordKey key = {"k", "t", "sm_90a", n ? &shape : NULL};
    RecordValue value = {"N", n};
    bool stale;
    vec_push(arena, &shape, value);
    const RecordEntry *entry = record_choose(arena, record, &key, &stale);
    assert_false(stale);
    return entry ? entry->tuned.items[0].value : -1;
}

static void test_nearest(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 64, 1, 5}, {"d", 64, 2, 6}, {"d", 1024, 1, 9}, {"d", 1024, 2, 8}};
    Record record = record_of(arena, 4, rows);
    assert_int_equal(chosen(arena, &record, 64), 1);
    assert_int_equal(chosen(arena, &record, 1), 1);
    assert_int_equal(chosen(arena, &record, 255), 1);
    assert_int_equal(chosen(arena, &record, 257), 2);
    assert_int_equal(chosen(arena, &record, 100000), 2);
}

// 2 is never the best and never bad; 3 was measured for one problem alone; a device is a problem of its own.
static void test_mean(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 64, 1, 10}, {"d", 64, 2, 11}, {"d", 64, 4, 40}, {"e", 64, 1, 40},
                               {"e", 64, 2, 11}, {"e", 64, 4, 10}, {"e", 64, 3, 1}};
    Record record = record_of(arena, 7, rows);
    assert_int_equal(chosen(arena, &record, 0), 2);
    assert_int_equal(chosen(arena, &record, 64), 2);
}

// The B for N = n where a launch chooses; -1: the model does.
static int64_t near(Arena *arena, const Record *record, int n) {
    bool stale;
    RecordPlaces places = record_places(arena, record, &(RecordKey){"k", "t", "sm_90a", NULL}, &stale);
    RecordValues shape = {0};
    RecordValue value = {"N", n};
    vec_push(arena, &shape, value);
    assert_false(stale);
    for (int i = 0; i < places.count; i++)
        if (record_is_near(places.items[i].shape, &shape)) return places.items[i].entry->tuned.items[0].value;
    return -1;
}

// A shape speaks for those that are up to an eighth smaller; of several the smallest does, whatever their order in the
// file.
static void test_places(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 1024, 1, 5}, {"d", 1024, 2, 4}, {"d", 960, 1, 5}, {"d", 960, 3, 4},
                               {"d", 1, 9, 1},    {"d", 0, 8, 1},    {"d", 16, 7, 1}};
    Record record = record_of(arena, 7, rows);
    bool stale;
    RecordPlaces places = record_places(arena, &record, &(RecordKey){"k", "t", "sm_90a", NULL}, &stale);
    assert_int_equal(places.count, 5);
    static const int expected[][2] = {{1025, -1}, {1024, 2}, {961, 2},  {960, 3}, {896, 3},
                                      {840, 3},   {839, -1}, {512, -1}, {17, -1}, {16, 7},
                                      {14, 7},    {13, -1},  {2, -1},   {1, 9},   {0, 8}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(near(arena, &record, expected[i][0]), expected[i][1]);
}

// A shape's times on several devices count together, and a shape that lacks a name is near nothing.
static void test_places_of_devices(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 64, 1, 10}, {"d", 64, 2, 11}, {"e", 64, 1, 40}, {"e", 64, 2, 11}, {"e", 64, 3, 1}};
    Record record = record_of(arena, 5, rows);
    RecordValues none = {0};
    bool stale;
    RecordPlaces places = record_places(arena, &record, &(RecordKey){"k", "t", "sm_90a", NULL}, &stale);
    assert_int_equal(places.count, 1);
    assert_int_equal(places.items[0].entry->tuned.items[0].value, 2);
    assert_false(record_is_near(places.items[0].shape, &none));
    record_places(arena, &record, &(RecordKey){"k", "new", "sm_90a", NULL}, &stale);
    assert_true(stale);
}

static void test_ties_and_repeats(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 64, 7, 3}, {"d", 64, 5, 3}, {"d", 64, 9, 2}, {"d", 64, 9, 4}};
    Record record = record_of(arena, 4, rows);
    assert_int_equal(record.entries.count, 3);         // the later line of one problem and combination counts
    assert_int_equal(chosen(arena, &record, 64), 7);   // of equals the first
}

// Values and dims are compared by name.
static void test_order_of_names(void **state) {
    static const char text[] =
        "{\"kernel\": \"k\", \"text\": \"t\", \"target\": \"sm_90a\", \"device\": \"d\", \"shape\": "
        "{\"M\": 1, \"N\": 2}, \"tuned\": {\"A\": 3, \"B\": 4}, \"us\": 5, \"us_low\": 1, \"us_high\": 6}\n"
        "{\"kernel\": \"k\", \"text\": \"t\", \"target\": \"sm_90a\", \"device\": \"d\", \"shape\": "
        "{\"N\": 2, \"M\": 1}, \"tuned\": {\"B\": 4, \"A\": 3}, \"us\": 2, \"us_low\": 1, \"us_high\": 6}\n"
        "{\"kernel\": \"k\", \"text\": \"t\", \"target\": \"sm_90a\", \"device\": \"d\", \"shape\": "
        "{\"N\": 1, \"M\": 2}, \"tuned\": {\"B\": 3, \"A\": 4}, \"us\": 2, \"us_low\": 1, \"us_high\": 6}\n";
    Record record;
    DiagSink *sink = diag_sink_new(*state);
    record_parse(*state, sink, "record", text, &record);
    assert_int_equal(diag_count(sink), 0);
    assert_int_equal(record.entries.count, 2);   // the second line is of the first one's problem and combination
    assert_true(record.entries.items[0].us == 2);
    assert_string_not_equal(record.entries.items[0].combination, record.entries.items[1].combination);
}

static void test_key(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"d", 64, 1, 3}};
    Record record = record_of(arena, 1, rows);
    bool stale;
    assert_null(record_choose(arena, &record, &(RecordKey){"other", "t", "sm_90a", NULL}, &stale));
    assert_false(stale);
    assert_null(record_choose(arena, &record, &(RecordKey){"k", "t", "sm_80", NULL}, &stale));
    assert_false(stale);
    assert_null(record_choose(arena, &record, &(RecordKey){"k", "new", "sm_90a", NULL}, &stale));
    assert_true(stale);
}

static void test_write_and_read(void **state) {
    Arena *arena = *state;
    static const Row rows[] = {{"a \\\"device\\\"", 64, -1, 3.25}};
    Record record = record_of(arena, 1, rows), again;
    StrBuf first, second;
    sb_init(&first, arena);
    sb_init(&second, arena);
    record_entry_write(&record.entries.items[0], &first);
    record_parse(arena, diag_sink_new(arena), "record", sb_text(&first), &again);
    assert_int_equal(again.entries.count, 1);
    record_entry_write(&again.entries.items[0], &second);
    assert_string_equal(sb_text(&first), sb_text(&second));
}

// Whatever happens to a byte, reading ends; the other line stays.
// A line that is JSON and no measurement is a warning. // covers T0922
static void test_kinds(void **state) {
    Arena *arena = *state;
    static const char *const shapes[] = {"3", "[64]", "{\"N\": 1.5}", "{\"N\": \"64\"}", "null"}, *const times[] = {
                                                                                                      "\"1\"", "0",
                                                                                                      "-1", "[1]",
                                                                                                      "1e999"};
    for (int i = 0; i < 10; i++) {
        Record record;
        DiagSink *sink = diag_sink_new(arena);
        const char *text = arena_printf(arena,
                                        "{\"kernel\": \"k\", \"text\": \"t\", \"target\": \"sm_90a\", \"device\": "
                                        "\"d\", \"shape\": %s, \"tuned\": {\"B\": 1}, \"us\": %s, \"us_low\": 1, "
                                        "\"us_high\": 2}\n",
                                        i < 5 ? shapes[i] : "{}", i < 5 ? "1" : times[i - 5]);
        record_parse(arena, sink, "record", text, &record);
        assert_int_equal(record.entries.count, 0);
        assert_int_equal(diag_count(sink), 1);
        assert_int_equal(diag_view(sink, 0).code, T_BAD_RECORD);
    }
}

static void test_damage(void **state) {   // covers T0922
    Arena *arena = *state;
    char good[512], bad[512], text[1024];
    int length = snprintf(good, sizeof good, line, "d", 64, 1, 3.0);
    static const char bytes[] = {'x', '"', '{', '}', '9', '-', (char)0xff, '\n', '\\'};
    for (int at = 0; at < length - 1; at++)
        for (size_t b = 0; b < sizeof bytes; b++) {
            Record record;
            DiagSink *sink = diag_sink_new(arena);
            memcpy(bad, good, (size_t)length + 1);
            bad[at] = bytes[b];
            snprintf(text, sizeof text, "%s%s", bad, good);
            record_parse(arena, sink, "record", text, &record);
            assert_true(record.entries.count >= 1);
            assert_string_equal(record.entries.items[record.entries.count - 1].target, "sm_90a");
            for (int i = 0; i < diag_count(sink); i++) assert_int_equal(diag_view(sink, i).code, T_BAD_RECORD);
        }
    for (int end = 1; end < length - 1; end++) {
        Record record;
        DiagSink *sink = diag_sink_new(arena);
        snprintf(text, sizeof text, "%.*s", end, good);
        record_parse(arena, sink, "record", text, &record);
        assert_int_equal(record.entries.count, end == length - 1);
        assert_int_equal(diag_count(sink), 1);
    }
}

static void test_path(void **state) {
    Arena *arena = *state;
    assert_string_equal(record_path(arena, "a/gemm.tile"), "a/gemm.tune");
    assert_string_equal(record_path(arena, "a/gemm.t"), "a/gemm.t.tune");
    assert_null(record_path(arena, "-"));
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_nearest),
                                       IN_ARENA(test_mean),
                                       IN_ARENA(test_ties_and_repeats),
                                       IN_ARENA(test_order_of_names),
                                       IN_ARENA(test_key),
                                       IN_ARENA(test_write_and_read),
                                       IN_ARENA(test_kinds),
                                       IN_ARENA(test_damage),
                                       IN_ARENA(test_path),
                                       IN_ARENA(test_places),
                                       IN_ARENA(test_places_of_devices)};
    return run(tests);
}
