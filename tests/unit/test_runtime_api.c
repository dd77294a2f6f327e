// The public API as an embedder uses it: right use, wrong use, no memory, no driver.
#include "runtime/api/api.h"
#include "runtime/api/status.h"
#include "runtime/compile/load_module.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tilec/tilec.h>

static const char source[] =
    "kernel add(x: f32[N], y: f32[N], z: out f32[N], by: f32) {\n"
    "    tune BLOCK in {256, 128};\n"
    "    grid (b in ceildiv(N, BLOCK)) threads 128 {\n"
    "        parallel (i in BLOCK) z[b * BLOCK + i] = x[b * BLOCK + i] + by * y[b * BLOCK + i];\n"
    "    }\n"
    "}\n";

// An allocator that counts what is out, and refuses the n-th request.
typedef struct Counting {
    long blocks, requests, refuse;   // refuse 0: never
} Counting;

static void *counting_resize(void *user, void *block, size_t bytes) {
    Counting *c = user;
    if (bytes == 0) {
        c->blocks -= block != NULL;
        free(block);
        return NULL;
    }
    if (++c->requests == c->refuse) return NULL;
    void *out = realloc(block, bytes);
    c->blocks += !block && out;
    return out;
}

static TilecCompileOptions usual(void) {
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_80";
    options.no_assemble = true;
    return options;
}

static TilecStatus compile(TilecContext *context, const char *text, const TilecCompileOptions *options,
                           TilecArtefact **artefact, TilecDiagnostics **diagnostics) {
    return tilec_compile(context, "add.tile", text, strlen(text), options, artefact, diagnostics);
}

static void test_compile(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics;
    TilecCompileOptions options = usual();
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    TilecStatus status = compile(context, source, &options, &artefact, &diagnostics);
    if (status != TILEC_OK) fail_msg("%s", tilec_diagnostics_text(diagnostics));
    assert_non_null(strstr(tilec_artefact_ptx(artefact), ".target sm_80"));
    assert_non_null(strstr(tilec_artefact_manifest(artefact), "\"name\":\"add\""));
    assert_string_equal(tilec_artefact_target(artefact), "sm_80");
    size_t size = 1;
    assert_null(tilec_artefact_cubin(artefact, &size));
    assert_int_equal(size, 0);

    const TilecKernel *kernel = tilec_artefact_find(artefact, "add");
    TilecParam param = TILEC_INIT(TilecParam);
    TilecVariant variant = TILEC_INIT(TilecVariant);
    assert_ptr_equal(kernel, tilec_artefact_kernel(artefact, 0));
    assert_null(tilec_artefact_kernel(artefact, 1));
    assert_null(tilec_artefact_find(artefact, "subtract"));
    assert_int_equal(tilec_kernel_param_count(kernel), 4);
    assert_true(tilec_kernel_param(kernel, 2, &param));
    assert_string_equal(param.name, "z");
    assert_string_equal(param.shape[0], "N");
    assert_int_equal(param.mode, TILEC_OUT);
    assert_true(tilec_kernel_param(kernel, 3, &param));
    assert_false(param.is_tensor);
    assert_false(tilec_kernel_param(kernel, 4, &param));
    assert_true(tilec_kernel_variant(kernel, 0, &variant));
    assert_int_equal(variant.threads, 128);
    assert_int_equal(variant.registers, -1);
    tilec_artefact_destroy(artefact);
    tilec_diagnostics_destroy(diagnostics);
    tilec_context_destroy(context);
}

typedef struct Dumps {
    char passes[2000];
    size_t bytes;
    int count;
} Dumps;

static void add_dump(void *user, const char *pass, const char *kernel, const char *program) {
    Dumps *dumps = user;
    assert_int_equal(strncmp(kernel, "add", 3), 0);
    assert_non_null(strstr(program, "kernel add"));
    assert_null(strstr(program, "// after"));
    snprintf(dumps->passes + strlen(dumps->passes), sizeof dumps->passes - strlen(dumps->passes), "%s ", pass);
    dumps->bytes += strlen(program);
    dumps->count++;
}

static const char too_large[] = "kernel add(x: f32[N], y: out f32[N]) {\n"
                                "    grid (b in ceildiv(N, 65536)) threads 64 {\n"
                                "        shared s: f32[65536];\n"
                                "        copy(x[b * 65536], s);\n"
                                "        copy(s, y[b * 65536]);\n"
                                "    }\n"
                                "}\n";

static void test_dumps(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact;
    TilecCompileOptions options = usual();
    Dumps first = {0}, again = {0}, failed = {0};
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    options.dump = add_dump;
    options.dump_user = &first;
    assert_int_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
    assert_int_equal(first.count, 0);   // not asked for
    tilec_artefact_destroy(artefact);
    options.print_after = "all";
    for (int i = 0; i < 2; i++) {
        options.dump_user = i ? &again : &first;
        assert_int_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
        const char *listing = tilec_artefact_listing(artefact);
        assert_true(first.bytes > strlen(listing) / 2 && first.bytes < strlen(listing));
        tilec_artefact_destroy(artefact);
    }
    assert_true(first.count > 10);
    assert_non_null(strstr(first.passes, "simplify "));
    assert_non_null(strstr(first.passes, "lower-tile-op "));
    assert_string_equal(again.passes, first.passes);   // the artefact is kept
    options.dump_user = &failed;
    options.print_after = "select";
    options.target = "sm_80";
    assert_int_equal(compile(context, too_large, &options, &artefact, NULL), TILEC_ERROR_TARGET);
    assert_string_equal(failed.passes, "select select ");   // of both variants
    tilec_context_destroy(context);
}

static void test_listings(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics = NULL;
    TilecCompileOptions options = usual();
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    options.print_after = "lower-tile-op";
    options.layouts = "text";
    assert_int_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
    assert_non_null(strstr(tilec_artefact_listing(artefact), "// after lower-tile-op (add"));
    assert_null(strstr(tilec_artefact_listing(artefact), "// after simplify"));
    assert_non_null(strstr(tilec_artefact_layouts(artefact), "add"));
    assert_true(tilec_artefact_ptx(artefact)[0]);
    tilec_artefact_destroy(artefact);
    options.layouts = "pdf";
    assert_int_equal(compile(context, source, &options, &artefact, &diagnostics), TILEC_ERROR_USAGE);
    assert_non_null(strstr(tilec_diagnostics_text(diagnostics), "text, svg, html"));
    tilec_diagnostics_destroy(diagnostics);
    options.layouts = NULL;
    options.print_after = "no-such-pass";
    assert_int_not_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
    options.print_after = NULL;
    options.declarations = true;
    assert_int_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
    assert_int_equal(tilec_artefact_kernel_count(artefact), 0);
    assert_non_null(strstr(tilec_artefact_manifest(artefact), "\"tunables\": [\"BLOCK\"]"));
    assert_string_equal(tilec_artefact_listing(artefact), "");
    assert_string_equal(tilec_artefact_layouts(NULL), "");
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
}

static void test_errors(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics;
    TilecDiagnostic d = TILEC_INIT(TilecDiagnostic);
    TilecCompileOptions options = usual();
    tilec_context_create(NULL, &context);
    assert_int_equal(compile(context, "kernel f(x: f32[N]) { oops }", &options, &artefact, &diagnostics),
                     TILEC_ERROR_SOURCE);
    assert_null(artefact);
    assert_true(tilec_diagnostics_get(diagnostics, 0, &d));
    assert_int_equal(d.line, 1);
    assert_string_equal(d.file, "add.tile");
    assert_non_null(strstr(tilec_diagnostics_text(diagnostics), "add.tile:1:"));
    assert_int_equal(tilec_diagnostics_json(diagnostics)[0], '{');
    assert_false(tilec_diagnostics_get(diagnostics, tilec_diagnostics_count(diagnostics), &d));
    assert_false(tilec_diagnostics_get(diagnostics, 0, NULL));
    d.size = sizeof d.size - 1;
    assert_false(tilec_diagnostics_get(diagnostics, 0, &d));
    tilec_diagnostics_destroy(diagnostics);

    // A length that is none is refused before it is read; the longest limit is one that never comes.
    assert_int_equal(tilec_compile(context, "add.tile", source, SIZE_MAX, &options, &artefact, &diagnostics),
                     TILEC_ERROR_SOURCE);
    assert_non_null(strstr(tilec_diagnostics_text(diagnostics), "error[T0004]: 'add.tile' has"));
    tilec_diagnostics_destroy(diagnostics);
    options.time_limit = INT64_MAX;
    assert_int_equal(compile(context, source, &options, &artefact, NULL), TILEC_OK);
    tilec_artefact_destroy(artefact);
    options.time_limit = 0;

    options.target = "sm_1";
    assert_int_equal(compile(context, source, &options, &artefact, &diagnostics), TILEC_ERROR_USAGE);
    tilec_diagnostics_destroy(diagnostics);
    assert_int_equal(tilec_artefact_open(context, "not a cubin", 11, &artefact, &diagnostics), TILEC_ERROR_SOURCE);
    tilec_diagnostics_destroy(diagnostics);
    tilec_context_destroy(context);
    assert_int_equal(tilec_compile(NULL, "", "", 0, &options, &artefact, NULL), TILEC_ERROR_USAGE);
    assert_string_equal(tilec_diagnostics_text(NULL), "");
    assert_int_equal(tilec_diagnostics_count(NULL), 0);
    tilec_diagnostics_destroy(NULL);
    tilec_artefact_destroy(NULL);
    tilec_unload(NULL);
}

// What `tilec tune` would write for `source` with BLOCK = 128, under this hash; the file's name.
static const char *write_record(const char *text) {
    static const char path[] = "test_runtime_api.tune";
    FILE *file = fopen(path, "w");
    fprintf(file,
            "{\"kernel\": \"add\", \"text\": \"%s\", \"target\": \"sm_80\", \"device\": \"d\", \"shape\": {\"N\": 1}, "
            "\"tuned\": {\"BLOCK\": 128}, \"us\": 1, \"us_low\": 1, \"us_high\": 1}\n",
            text);
    fclose(file);
    return path;
}

static void compile_recorded(const char *record, TilecStatus status, const char *tuned, int code) {
    TilecContext *context;
    TilecArtefact *artefact;
    TilecDiagnostics *diagnostics;
    TilecDiagnostic first = TILEC_INIT(TilecDiagnostic);
    TilecCompileOptions options = usual();
    options.record = record;
    tilec_context_create(NULL, &context);
    assert_int_equal(compile(context, source, &options, &artefact, &diagnostics), status);
    if (tuned) assert_non_null(strstr(tilec_artefact_manifest(artefact), tuned));
    tilec_diagnostics_get(diagnostics, 0, &first);
    assert_int_equal(first.code, code);
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
}

static void test_record(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Loader loader = {
        .arena = arena, .failure = &failure, .sink = diag_sink_new(arena), .target = target_named("sm_80")};
    assert_true(loader_open_text(&loader, "add.tile", source, strlen(source)));
    const char *text = kernel_signature(&loader, arena, 0, NULL, "add");
    compile_recorded(NULL, TILEC_OK, "\"BLOCK\":256", 0);
    compile_recorded(write_record(text), TILEC_OK, "\"BLOCK\":128", 0);
    compile_recorded(write_record("0"), TILEC_OK, "\"BLOCK\":256", T_STALE_RECORD);
    remove(write_record(text));
    compile_recorded("test_runtime_api.tune", TILEC_ERROR_ENVIRONMENT, NULL, T_CANNOT_READ);
}

// Without a cubin there is nothing to load, with or without a driver. // covers T0915
static void test_load(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact;
    TilecModule *module;
    TilecDiagnostics *diagnostics;
    TilecCompileOptions options = usual();
    tilec_context_create(NULL, &context);
    assert_int_equal(compile(context, source, &options, &artefact, &diagnostics), TILEC_OK);
    tilec_diagnostics_destroy(diagnostics);
    assert_int_not_equal(tilec_load(artefact, &module, &diagnostics), TILEC_OK);
    assert_null(module);
    assert_int_equal(tilec_diagnostics_count(diagnostics), 1);
    tilec_diagnostics_destroy(diagnostics);
    tilec_artefact_destroy(artefact);
    tilec_context_destroy(context);
}

// One compile under an allocator that refuses the n-th request: nothing leaks, the status is honest.
static TilecStatus compile_refusing(Counting *counting, bool assembles) {
    TilecAllocator allocator = {sizeof allocator, counting_resize, counting};
    TilecContext *context;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecCompileOptions options = usual();
    options.no_assemble = !assembles;
    TilecStatus status = tilec_context_create(&allocator, &context);
    if (status != TILEC_OK) return status;
    status = compile(context, source, &options, &artefact, &diagnostics);
    assert_int_equal(status == TILEC_OK, artefact != NULL);
    tilec_artefact_destroy(artefact);
    tilec_diagnostics_destroy(diagnostics);
    tilec_context_destroy(context);
    return status;
}

static void refuse_one_by_one(bool assembles, long most) {
    Counting all = {0};
    TilecStatus wanted = compile_refusing(&all, assembles);
    assert_true(wanted == TILEC_OK || (assembles && wanted == TILEC_ERROR_ENVIRONMENT));   // no ptxas here
    assert_int_equal(all.blocks, 0);
    long step = all.requests > most ? all.requests / most : 1;
    for (long n = 1; n <= all.requests; n += step) {
        Counting counting = {.refuse = n};
        TilecStatus status = compile_refusing(&counting, assembles);
        assert_true(status == TILEC_ERROR_ENVIRONMENT || status == TILEC_OK);   // ok: refused a diagnostics object
        assert_int_equal(counting.blocks, 0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);   // ptxas, started ahead, is not left behind
    }
}

static void test_no_memory(void **state) {   // covers T9902
    (void)state;
    refuse_one_by_one(false, 200);
    refuse_one_by_one(true, 40);
}

// One context, many threads: each compiles and asks for itself, and all get the same text.
static void *compile_in_thread(void *user) {
    TilecContext *context = user;
    TilecCompileOptions options = usual();
    char *ptx = NULL;
    for (int i = 0; i < 3; i++) {
        TilecArtefact *artefact;
        TilecDiagnostics *diagnostics;
        free(ptx);
        ptx = NULL;
        if (compile(context, source, &options, &artefact, &diagnostics) == TILEC_OK)
            ptx = strdup(tilec_artefact_ptx(artefact));
        tilec_artefact_destroy(artefact);
        tilec_diagnostics_destroy(diagnostics);
    }
    return ptx;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    char *texts[THREADS];
    TilecContext *context;
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compile_in_thread, context), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], (void **)&texts[i]);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(texts[i]);
        assert_string_equal(texts[i], texts[0]);
    }
    for (int i = 0; i < THREADS; i++) free(texts[i]);
    tilec_context_destroy(context);
}

static TilecStatus break_a_promise(Job *job) {
    fail_internal(&job->failure, "here.c", 7, "%d is not %d", 1, 2);
}

static void test_internal_error(void **state) {   // covers T9901
    (void)state;
    Job job = {.host = libc_allocator};
    TilecDiagnostics *diagnostics;
    TilecDiagnostic d = TILEC_INIT(TilecDiagnostic);
    assert_int_equal(job_run(&job, break_a_promise, &diagnostics), TILEC_ERROR_INTERNAL);
    assert_true(tilec_diagnostics_get(diagnostics, 0, &d));
    assert_int_equal(d.code, 9901);
    assert_non_null(strstr(d.message, "1 is not 2"));
    tilec_diagnostics_destroy(diagnostics);
}

static void test_arguments(void **state) {
    (void)state;
    int64_t shape[] = {4, 5, 6}, strides[] = {100, 10, 1};
    TilecArg dense = tilec_tensor(TILEC_F32, NULL, 3, shape),
             strided = tilec_strided_tensor(TILEC_F32, NULL, 3, shape, strides);
    assert_int_equal(dense.strides[0], 30);
    assert_int_equal(strided.strides[0], 100);
    assert_int_equal(tilec_integer(-3).integer, -3);
    assert_true(tilec_real(0.5).real == 0.5);
    assert_string_equal(tilec_status_text(TILEC_ERROR_DEVICE), "device fault");
    assert_non_null(tilec_status_text((TilecStatus)99));
}

// The status, and so the exit code, of each kind of diagnostic.
static void test_statuses(void **state) {
    (void)state;
    static const struct {
        DiagCode code;
        TilecStatus status;
    } rows[] = {{T_NO_PTXAS, TILEC_ERROR_ENVIRONMENT},
                {T_OUT_OF_MEMORY, TILEC_ERROR_ENVIRONMENT},
                {T_NO_DRIVER, TILEC_ERROR_ENVIRONMENT},
                {T_CANCELLED, TILEC_CANCELLED},
                {T_CUDA, TILEC_ERROR_DEVICE},
                {T_NEEDS_FEATURE, TILEC_ERROR_TARGET},
                {T_SHARED_TOO_LARGE, TILEC_ERROR_TARGET},
                {T_MISUSE, TILEC_ERROR_USAGE},
                {T_UNKNOWN_OPTION, TILEC_ERROR_USAGE},
                {T_UNKNOWN_CODE, TILEC_ERROR_USAGE},
                {T_ROUNDTRIP, TILEC_ERROR_INTERNAL},
                {T_EMULATE_AFTER, TILEC_ERROR_INTERNAL},
                {T_INTERNAL, TILEC_ERROR_INTERNAL},
                {T_SYNTAX, TILEC_ERROR_SOURCE},
                {T_TEST_FAILS, TILEC_ERROR_SOURCE},
                {T_ARGUMENT_KIND, TILEC_ERROR_SOURCE}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) assert_int_equal(status_of_code(rows[i].code), rows[i].status);
    Failure failure;
    Arena *arena = arena_new(libc_allocator, &failure);
    DiagSink *sink = diag_sink_new(arena);   // the first error decides, but for a bug in tilec
    assert_int_equal(status_of(sink, 0), TILEC_OK);
    diag(sink, (Span){0}, T_IR_SCOPE, "x", "is declared twice");
    diag(sink, (Span){0}, T_NO_PTXAS, "sm_80");
    assert_int_equal(status_of(sink, 0), TILEC_ERROR_SOURCE);
    diag(sink, (Span){0}, T_PASS_BROKE, "simplify", "k");
    assert_int_equal(status_of(sink, 0), TILEC_ERROR_INTERNAL);
    arena_free(arena);
    assert_string_equal(tilec_status_text(TILEC_CANCELLED), "cancelled");
}

// Every function with nothing, and the context as good as before after each error.
static void test_nothing(void **state) {
    (void)state;
    TilecContext *context;
    TilecArtefact *artefact = NULL;
    TilecDiagnostics *diagnostics = NULL;
    TilecModule *module = NULL;
    TilecParam param = TILEC_INIT(TilecParam);
    TilecVariant variant = TILEC_INIT(TilecVariant);
    size_t size = 1;
    TilecAllocator none = {sizeof none, NULL, NULL}, unsized = {0};
    assert_int_equal(tilec_context_create(NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_context_create(&unsized, &context), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_context_create(&none, &context), TILEC_ERROR_USAGE);
    tilec_context_destroy(NULL);
    assert_int_equal(tilec_context_create(NULL, &context), TILEC_OK);
    assert_string_equal(tilec_diagnostics_json(NULL), "");
    assert_false(tilec_diagnostics_get(NULL, 0, NULL));
    assert_string_equal(tilec_artefact_ptx(NULL), "");
    assert_string_equal(tilec_artefact_manifest(NULL), "");
    assert_string_equal(tilec_artefact_listing(NULL), "");
    assert_string_equal(tilec_artefact_target(NULL), "");
    assert_null(tilec_artefact_cubin(NULL, &size));
    assert_int_equal(size, 0);
    assert_null(tilec_artefact_cubin(NULL, NULL));
    assert_int_equal(tilec_artefact_kernel_count(NULL), 0);
    assert_null(tilec_artefact_kernel(NULL, 0));
    assert_null(tilec_artefact_find(NULL, "add"));
    assert_string_equal(tilec_kernel_name(NULL), "");
    assert_false(tilec_kernel_is_program(NULL));
    assert_int_equal(tilec_kernel_param_count(NULL), 0);
    assert_int_equal(tilec_kernel_variant_count(NULL), 0);
    assert_false(tilec_kernel_param(NULL, 0, &param));
    assert_false(tilec_kernel_variant(NULL, 0, &variant));
    assert_int_equal(tilec_artefact_open(context, NULL, 0, &artefact, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_artefact_open(context, "", 0, &artefact, NULL), TILEC_ERROR_SOURCE);
    assert_int_equal(tilec_artefact_open(context, "", 0, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_load(NULL, &module, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_launch(NULL, NULL, NULL, 0, NULL, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_workspace_size(NULL, NULL, NULL, 0, &size, NULL), TILEC_ERROR_USAGE);
    int64_t shape[] = {INT64_MAX, INT64_MAX, INT64_MAX};
    assert_int_equal(tilec_tensor(TILEC_F32, NULL, 3, shape).rank, 3);
    assert_int_equal(tilec_tensor(TILEC_F32, NULL, 3, NULL).shape[0], 0);
    assert_int_equal(tilec_tensor(TILEC_F32, NULL, -1, shape).rank, -1);
    assert_int_equal(tilec_strided_tensor(TILEC_F32, NULL, 100, shape, NULL).rank, 100);

    static const TilecDefine no_name = {NULL, "1"}, no_value = {"BLOCK", NULL}, empty = {"", ""},
                             odd = {"BLOCK", "\xff"};
    TilecCompileOptions good = usual(), bad[15];
    for (size_t i = 0; i < COUNT_OF(bad); i++) bad[i] = good;
    bad[0].size = 0;
    bad[1].target = NULL;
    bad[2].target = "";
    bad[3].define_count = 1;
    bad[4].define_count = 1, bad[4].defines = &no_name;
    bad[5].define_count = 1, bad[5].defines = &no_value;
    bad[6].define_count = 1, bad[6].defines = &empty;
    bad[7].define_count = 1, bad[7].defines = &odd;
    bad[8].only = "";
    bad[9].optimize = 3;
    bad[10].optimize = -1;
    bad[11].threads = -1;
    bad[12].time_limit = -1;
    bad[13].memory_limit = -1;
    bad[14].multiprocessors = -1;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        TilecStatus status = compile(context, source, &bad[i], &artefact, &diagnostics);
        assert_true(status == TILEC_ERROR_USAGE || status == TILEC_ERROR_SOURCE);
        assert_null(artefact);
        tilec_diagnostics_destroy(diagnostics);
        diagnostics = NULL;
        assert_int_equal(compile(context, source, &good, &artefact, NULL), TILEC_OK);
        assert_false(tilec_kernel_param(tilec_artefact_kernel(artefact, 0), 0, NULL));
        assert_false(tilec_kernel_variant(tilec_artefact_kernel(artefact, 0), 0, NULL));
        assert_null(tilec_artefact_find(artefact, NULL));
        tilec_artefact_destroy(artefact);
    }
    assert_int_equal(tilec_compile(context, "", "", 0, &good, &artefact, NULL), TILEC_ERROR_SOURCE);
    assert_int_equal(tilec_compile(context, "x", "\0\0", 2, &good, &artefact, NULL), TILEC_ERROR_SOURCE);
    assert_int_equal(tilec_compile(context, "x", NULL, 0, &good, &artefact, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_compile(context, NULL, "", 0, &good, &artefact, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_compile(context, "x", "", 0, NULL, &artefact, NULL), TILEC_ERROR_USAGE);
    assert_int_equal(tilec_compile(context, "x", "", 0, &good, NULL, NULL), TILEC_ERROR_USAGE);
    tilec_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile),   cmocka_unit_test(test_listings), cmocka_unit_test(test_dumps),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_load),     cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_statuses), cmocka_unit_test(test_internal_error),
        cmocka_unit_test(test_threads),   IN_ARENA(test_record),           cmocka_unit_test(test_nothing),
    };
    return run(tests);
}
