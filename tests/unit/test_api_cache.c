// tilec_compile and the compile cache: in memory, on disk, with what was said.
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tilec/tilec.h>
#include <time.h>
#include <unistd.h>

static const char source[] = "kernel zero(x: out f32[N]) { grid (b in N) threads 32 { x[b] = 0; } }";
// T0805 warns of the division.
static const char warned[] = "import \"one.tile\";\n"
                             "kernel fold(x: f32[M], y: out f32[W]) {\n"
                             "    grid (b in ONE) threads 1 { thread (t in 1) { for (i in M) y[i % W] = x[i]; } }\n"
                             "}\n";

typedef struct Place {
    char folder[32], cache[64], log[64], compiler[64];
} Place;

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// The compiler of this place counts its starts.
static Place new_place(void) {
    Place place = {.folder = "/tmp/tilec_XXXXXX"};
    char script[500];
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.cache, sizeof place.cache, "%s/cache", place.folder);
    snprintf(place.log, sizeof place.log, "%s/log", place.folder);
    snprintf(place.compiler, sizeof place.compiler, "%s/tilec", place.folder);
    snprintf(script, sizeof script, "#!/bin/sh\necho >> %s\nexec %s \"$@\"\n", place.log, getenv("TILEC_COMPILER"));
    write_file(place.compiler, script);
    chmod(place.compiler, 0700);
    return place;
}

static void remove_place(const Place *place) {
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", place->folder);
    assert_int_equal(system(command), 0);
}

static int starts(const Place *place) {
    FILE *file = fopen(place->log, "r");
    int count = 0;
    for (int c; file && (c = getc(file)) != EOF;) count += c == '\n';
    if (file) fclose(file);
    return count;
}

static TilecCompileOptions options_of(const Place *place) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_80";
    options.no_assemble = true;
    options.compiler = place->compiler;
    options.cache = place->cache;
    return options;
}

// Asked while a compile, of whatever process, is waited for.
static bool count_waits(void *user) {
    ++*(int *)user;
    return false;
}

static TilecContext *new_context(void) {
    TilecContext *context;
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    return context;
}

static TilecArtefact *compile(TilecContext *context, const TilecCompileOptions *options, const char *text) {
    TilecArtefact *artefact;
    assert_int_equal(tilec_compile(context, "a.tile", text, strlen(text), options, &artefact, NULL), TILEC_OK);
    return artefact;
}

static void test_memory_and_disk(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context(), *other = new_context();
    TilecArtefact *first = compile(context, &options, source), *second = compile(context, &options, source);
    TilecArtefact *third = compile(other, &options, source);
    assert_int_equal(starts(&place), 1);
    assert_string_equal(tilec_artefact_ptx(first), tilec_artefact_ptx(second));
    assert_string_equal(tilec_artefact_ptx(first), tilec_artefact_ptx(third));
    assert_string_equal(tilec_artefact_manifest(first), tilec_artefact_manifest(third));
    tilec_artefact_destroy(first);   // the others stay
    assert_non_null(tilec_artefact_find(second, "zero"));
    options.optimize = 2;   // which may be the same code, but is asked for
    tilec_artefact_destroy(compile(other, &options, source));
    assert_int_equal(starts(&place), 2);
    tilec_artefact_destroy(second);
    tilec_artefact_destroy(third);
    tilec_context_destroy(context);
    tilec_context_destroy(other);
    remove_place(&place);
}

static void test_off(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    options.cache = "off";
    for (int i = 0; i < 2; i++) {
        TilecContext *context = new_context();
        tilec_artefact_destroy(compile(context, &options, source));
        tilec_context_destroy(context);
    }
    assert_int_equal(starts(&place), 2);
    assert_int_equal(access(place.cache, F_OK), -1);
    remove_place(&place);
}

// Where nothing can be kept on disk, memory serves.
static void test_no_disk(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    options.cache = "/dev/null";
    TilecContext *context = new_context();
    TilecArtefact *first = compile(context, &options, source), *second = compile(context, &options, source);
    assert_string_equal(tilec_artefact_ptx(first), tilec_artefact_ptx(second));
    assert_int_equal(starts(&place), 1);
    tilec_artefact_destroy(first);
    tilec_artefact_destroy(second);
    tilec_context_destroy(context);
    remove_place(&place);
}

static TilecDiagnostics *said_by(TilecContext *context, const TilecCompileOptions *options, const char *path,
                                 const char *text) {
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics;
    assert_int_equal(tilec_compile(context, path, text, strlen(text), options, &artefact, &diagnostics), TILEC_OK);
    tilec_artefact_destroy(artefact);
    return diagnostics;
}

static void assert_same(const TilecDiagnostics *a, const TilecDiagnostics *b) {
    assert_string_equal(tilec_diagnostics_text(a), tilec_diagnostics_text(b));
    assert_string_equal(tilec_diagnostics_json(a), tilec_diagnostics_json(b));
    assert_int_equal(tilec_diagnostics_count(a), tilec_diagnostics_count(b));
}

// Warnings and remarks come again, and a changed import is compiled.
static void test_said_again(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context(), *other = new_context();
    char path[64], import[64];
    snprintf(path, sizeof path, "%s/a.tile", place.folder);
    snprintf(import, sizeof import, "%s/one.tile", place.folder);
    write_file(import, "const ONE = 1;");
    TilecDiagnostics *first = said_by(context, &options, path, warned);
    TilecDiagnostics *memory = said_by(context, &options, path, warned), *disk = said_by(other, &options, path, warned);
    assert_int_equal(starts(&place), 1);
    assert_int_equal(tilec_diagnostics_count(first), 1);
    assert_same(first, memory);
    assert_same(first, disk);
    write_file(import, "const ONE = 2;");
    int waits = 0;
    options.cancelled = count_waits;
    options.cancelled_user = &waits;
    tilec_diagnostics_destroy(said_by(context, &options, path, warned));
    assert_true(waits > 0);
    waits = 0;
    tilec_diagnostics_destroy(said_by(other, &options, path, warned));
    assert_int_equal(waits, 0);
    unlink(import);
    TilecArtefact *artefact;
    assert_int_equal(tilec_compile(context, path, warned, strlen(warned), &options, &artefact, NULL),
                     TILEC_ERROR_SOURCE);
    tilec_diagnostics_destroy(first);
    tilec_diagnostics_destroy(memory);
    tilec_diagnostics_destroy(disk);
    tilec_context_destroy(context);
    tilec_context_destroy(other);
    remove_place(&place);
}

// A record that changes, or is not there, is noticed.
static void test_record(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    char record[64];
    snprintf(record, sizeof record, "%s/a.tune", place.folder);
    options.record = record;
    write_file(record, "");
    assert_null(said_by(context, &options, "a.tile", source));
    write_file(record, "damaged\n");
    TilecDiagnostics *said = said_by(context, &options, "a.tile", source),
                     *again = said_by(context, &options, "a.tile", source);
    assert_int_equal(tilec_diagnostics_count(said), 1);
    assert_same(said, again);
    tilec_diagnostics_destroy(said);
    tilec_diagnostics_destroy(again);
    unlink(record);
    TilecArtefact *artefact;
    assert_int_equal(tilec_compile(context, "a.tile", source, strlen(source), &options, &artefact, NULL),
                     TILEC_ERROR_ENVIRONMENT);
    tilec_context_destroy(context);
    remove_place(&place);
}

typedef struct Thread {
    pthread_t id;
    TilecContext *context;
    const TilecCompileOptions *options;
    TilecArtefact *artefact;
} Thread;

static void *compile_in_thread(void *user) {
    Thread *thread = user;
    tilec_compile(thread->context, "a.tile", source, strlen(source), thread->options, &thread->artefact, NULL);
    return NULL;
}

// Threads of one context that ask for the same wait for one compile.
static void test_threads(void **state) {
    (void)state;
    enum { COUNT = 16 };
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    Thread threads[COUNT];
    for (int i = 0; i < COUNT; i++) {
        threads[i] = (Thread){.context = context, .options = &options};
        assert_int_equal(pthread_create(&threads[i].id, NULL, compile_in_thread, &threads[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) pthread_join(threads[i].id, NULL);
    for (int i = 0; i < COUNT; i++) {
        assert_non_null(threads[i].artefact);
        assert_string_equal(tilec_artefact_ptx(threads[i].artefact), tilec_artefact_ptx(threads[0].artefact));
    }
    for (int i = 0; i < COUNT; i++) tilec_artefact_destroy(threads[i].artefact);
    assert_int_equal(starts(&place), 1);
    tilec_context_destroy(context);
    remove_place(&place);
}

// Many different kernels: the oldest leave memory, and are on disk.
static void test_many(void **state) {
    (void)state;
    enum { COUNT = 70 };
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    int waits = 0;
    options.cancelled = count_waits;
    options.cancelled_user = &waits;
    for (int i = 0; i < 2 * COUNT; i++) {
        char text[200];
        waits = 0;
        snprintf(text, sizeof text, "kernel k%d(x: out f32[N]) { grid (b in N) threads 32 { x[b] = 0; } }", i % COUNT);
        TilecArtefact *artefact = compile(context, &options, text);
        snprintf(text, sizeof text, "k%d", i % COUNT);
        assert_non_null(tilec_artefact_find(artefact, text));
        assert_int_equal(waits > 0, i < COUNT);
        tilec_artefact_destroy(artefact);
    }
    tilec_context_destroy(context);
    remove_place(&place);
}

// The figure of docs/reference/c-api.md, with room for a busy machine: time of this thread.
static void test_time(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    double best = 1;
    tilec_artefact_destroy(compile(context, &options, source));
    for (int i = 0; i < 20; i++) {
        struct timespec start, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        tilec_artefact_destroy(compile(context, &options, source));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
        if (seconds < best) best = seconds;
    }
    print_message("from memory: %.3f ms\n", 1e3 * best);
    assert_true(best < 1e-3);
    tilec_context_destroy(context);
    remove_place(&place);
}

static const char two_tiles[] =
    "kernel twice(x: f32[N], y: out f32[N]) when (N % 4 == 0 && aligned(x, 16)) {\n"
    "    grid (b in N / 4) threads 32 { parallel (i in 4) y[b * 4 + i] = 2 * x[b * 4 + i]; }\n"
    "}\n"
    "kernel twice(x: f32[N], y: out f32[N]) {\n"
    "    grid (b in N) threads 32 { thread (t in 1) { y[b] = 2 * x[b]; } }\n"
    "}\n"
    "kernel other(x: f32[N], y: out f32[N]) { grid (b in N) threads 32 { y[b] = x[b]; } }\n";

static TilecArtefact *compile_for(TilecContext *context, const TilecCompileOptions *options, int64_t n, uintptr_t at) {
    TilecArtefact *artefact;
    TilecArg args[] = {tilec_tensor(TILEC_F32, (void *)at, 1, &n), tilec_tensor(TILEC_F32, (void *)0x10000, 1, &n)};
    assert_int_equal(
        tilec_compile_for(context, "a.tile", two_tiles, strlen(two_tiles), options, "twice", args, 2, &artefact, NULL),
        TILEC_OK);
    return artefact;
}

static const char *only_condition(const TilecArtefact *artefact) {
    static TilecVariant variant = TILEC_INIT(TilecVariant);
    const TilecKernel *twice = tilec_artefact_find(artefact, "twice");
    assert_non_null(twice);
    assert_null(tilec_artefact_find(artefact, "other"));
    assert_int_equal(tilec_kernel_variant_count(twice), 1);
    assert_true(tilec_kernel_variant(twice, 0, &variant));
    return variant.when;
}

// Of all variants the one that these arguments take; the same again for arguments of its kind, wherever they are.
static void test_one_launch(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    TilecArtefact *fast = compile_for(context, &options, 64, 0x1000), *odd = compile_for(context, &options, 63, 0x1000),
                  *shifted = compile_for(context, &options, 64, 0x1004);
    assert_non_null(strstr(only_condition(fast), "N % 4 == 0 && x_address % 16 == 0"));
    assert_string_equal(only_condition(odd), "");
    assert_string_equal(only_condition(shifted), "");
    int before = starts(&place);
    TilecArtefact *again = compile_for(context, &options, 64, 0x51000);
    assert_ptr_equal(tilec_artefact_ptx(again), tilec_artefact_ptx(fast));
    assert_int_equal(starts(&place), before);
    assert_true(tilec_artefact_one_launch(fast));
    TilecArtefact *whole = NULL;   // for any launch: where it is kept it serves one, too
    assert_int_equal(tilec_compile(context, "a.tile", two_tiles, strlen(two_tiles), &options, &whole, NULL), TILEC_OK);
    assert_false(tilec_artefact_one_launch(whole));
    TilecArtefact *of_whole = compile_for(context, &options, 32, 0x1000);
    assert_ptr_equal(tilec_artefact_ptx(of_whole), tilec_artefact_ptx(whole));
    TilecContext *other = new_context();   // from disk
    TilecArtefact *of_disk = compile_for(other, &options, 32, 0x1000);
    assert_false(tilec_artefact_one_launch(of_disk));
    assert_int_equal(starts(&place), before);
    TilecArtefact *all[] = {fast, odd, shifted, again, whole, of_whole, of_disk};
    for (int i = 0; i < 7; i++) tilec_artefact_destroy(all[i]);
    tilec_context_destroy(other);
    tilec_context_destroy(context);
    remove_place(&place);
}

// The variant may depend on the device.
static void test_one_launch_of_a_device(void **state) {
    (void)state;
    static const char text[] = "kernel twice(x: f32[N], y: out f32[N]) when (sms() > 50) {\n"
                               "    grid (b in N) threads 32 { thread (t in 1) { y[b] = x[b] + x[b]; } }\n"
                               "}\n"
                               "kernel twice(x: f32[N], y: out f32[N]) {\n"
                               "    grid (b in N) threads 32 { thread (t in 1) { y[b] = 2 * x[b]; } }\n"
                               "}\n";
    static const int multiprocessors[] = {0, 108, 40};
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    int64_t n = 64;
    TilecArg args[] = {tilec_tensor(TILEC_F32, (void *)0x1000, 1, &n), tilec_tensor(TILEC_F32, (void *)0x2000, 1, &n)};
    for (int i = 0; i < 3; i++) {
        TilecArtefact *artefact;
        TilecVariant variant = TILEC_INIT(TilecVariant);
        options.multiprocessors = multiprocessors[i];
        assert_int_equal(
            tilec_compile_for(context, "a.tile", text, strlen(text), &options, "twice", args, 2, &artefact, NULL),
            TILEC_OK);
        assert_true(tilec_kernel_variant(tilec_artefact_find(artefact, "twice"), 0, &variant));
        assert_int_equal(strstr(variant.when, "sms()") != NULL, i < 2);
        tilec_artefact_destroy(artefact);
    }
    tilec_context_destroy(context);
    remove_place(&place);
}

static void refuse_launches(TilecContext *context, const TilecCompileOptions *options) {
    int64_t n = 64, m = 32;
    TilecArg x = tilec_tensor(TILEC_F32, (void *)0x1000, 1, &n), y = tilec_tensor(TILEC_F32, (void *)0x2000, 1, &n);
    const struct {
        const char *kernel;
        TilecArg args[2];
    } wrong[] = {{"thrice", {x, y}},
                 {"twice", {x, tilec_integer(1)}},
                 {"twice", {x, tilec_tensor(TILEC_F32, (void *)0x2000, 1, &m)}},
                 {"twice", {tilec_tensor(TILEC_I32, (void *)0x1000, 1, &n), y}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        TilecArtefact *artefact;
        assert_int_equal(tilec_compile_for(context, "a.tile", two_tiles, strlen(two_tiles), options, wrong[i].kernel,
                                           wrong[i].args, 2, &artefact, NULL),
                         TILEC_ERROR_SOURCE);
        assert_null(artefact);
    }
}

// What no variant takes, and what is not there, is an error of the compile, also where the code for any launch is kept.
static void test_no_such_launch(void **state) {
    (void)state;
    Place place = new_place();
    TilecCompileOptions options = options_of(&place);
    TilecContext *context = new_context();
    TilecArtefact *artefact;
    int64_t n = 64;
    TilecArg args[] = {tilec_tensor(TILEC_F32, (void *)0x1000, 1, &n), tilec_integer(1)};
    refuse_launches(context, &options);
    assert_int_equal(tilec_compile(context, "a.tile", two_tiles, strlen(two_tiles), &options, &artefact, NULL),
                     TILEC_OK);
    tilec_artefact_destroy(artefact);
    refuse_launches(context, &options);
    assert_int_equal(
        tilec_compile_for(context, "a.tile", two_tiles, strlen(two_tiles), &options, NULL, args, 2, &artefact, NULL),
        TILEC_ERROR_USAGE);
    args[0].size = 0;
    assert_int_equal(
        tilec_compile_for(context, "a.tile", two_tiles, strlen(two_tiles), &options, "twice", args, 2, &artefact, NULL),
        TILEC_ERROR_USAGE);
    tilec_context_destroy(context);
    remove_place(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_and_disk),
                                       cmocka_unit_test(test_off),
                                       cmocka_unit_test(test_no_disk),
                                       cmocka_unit_test(test_said_again),
                                       cmocka_unit_test(test_record),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_one_launch),
                                       cmocka_unit_test(test_one_launch_of_a_device),
                                       cmocka_unit_test(test_no_such_launch),
                                       cmocka_unit_test(test_time)};
    return run(tests);
}
