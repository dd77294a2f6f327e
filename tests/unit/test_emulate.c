// tilec_emulate: kernels and programs on tensors of the host, and what it refuses.
#include "tests/unit/unit.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tilec/tilec.h>

#define TAKES(type)                                                                                                    \
    "kernel of_" type "(z: out i64[1], n: " type                                                                       \
    ") { grid (b in 1) threads 32 { thread (t in 1) { z[0] = i64(n); } } }\n"

static const char source[] =
    "kernel add(x: f32[N], y: f32[N], z: out f32[N]) {\n"
    "    grid (b in ceildiv(N, 64)) threads 64 { thread (i in 64) { let n = b * 64 + i; if (n < N) z[n] = x[n] + y[n]; } }\n"
    "}\n"
    "kernel scale(x: f32[M, N] strides [s, 1], factor: f32, times: i32, z: out f32[M, N] strides [r, 1]) {\n"
    "    grid (m in M, n in N) threads 32 { thread (t in 1) { z[m, n] = x[m, n] * factor * f32(times); } }\n"
    "}\n"
    "kernel two(x: f32[M, N] strides [a, b], y: f32[M, N] strides [c, d], z: out f32[M]) {\n"
    "    grid (m in M) threads 32 { thread (t in 1) { z[m] = x[m, 0] + y[m, 1]; } }\n"
    "}\n"
    "kernel increase(x: inout f32[N]) {\n"
    "    grid (b in N) threads 32 { thread (t in 1) { x[b] = x[b] + 1; } }\n"
    "}\n"
    "kernel reads_out(x: f32[N], z: out f32[N]) {\n"
    "    grid (b in N) threads 32 { thread (t in 1) { z[b] = z[b] + x[b]; } }\n"
    "}\n"
    "kernel races(z: out f32[N]) {\n"
    "    grid (b in 2) threads 32 { thread (t in 1) { z[0] = f32(b); } }\n"
    "}\n"
    "kernel endless(z: inout i32[N]) {\n"
    "    grid (b in 1) threads 32 { thread (t in 1) { while (z[0] == 0) { z[1] = z[1] + 1; } } }\n"
    "}\n"
    "kernel bounded(x: f32[N], z: out f32[N]) {\n"
    "    assume(N % 4 == 0);\n"
    "    grid (b in N) threads 32 { thread (t in 1) { z[b] = x[b]; } }\n"
    "}\n" TAKES("i8") TAKES("u8") TAKES("i32") TAKES("u32") TAKES("i64") TAKES("u64") TAKES("bool")
        TAKES("f32") "program add_twice(x: f32[N], y: f32[N], z: out f32[N]) {\n"
                     "    scratch s: f32[N];\n"
                     "    add(x, y, s);\n"
                     "    add(s, y, z);\n"
                     "}\n";

typedef struct Done {
    TilecStatus status;
    int code;
    char message[200];
} Done;

static TilecContext *context;

static int open_context(void **state) {
    (void)state;
    return tilec_context_create(NULL, &context) != TILEC_OK;
}

static int close_context(void **state) {
    (void)state;
    tilec_context_destroy(context);
    return 0;
}

static Done run_with(const TilecEmulation *how, const char *kernel, size_t count, const TilecArg *args) {
    TilecDiagnostics *diagnostics;
    TilecDiagnostic first = TILEC_INIT(TilecDiagnostic);
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    Done done = {0};
    done.status =
        tilec_emulate(context, "a.tile", source, strlen(source), &options, kernel, args, count, how, &diagnostics);
    if (tilec_diagnostics_get(diagnostics, 0, &first)) {
        done.code = first.code;
        snprintf(done.message, sizeof done.message, "%s", first.message);
    }
    tilec_diagnostics_destroy(diagnostics);
    return done;
}

static Done emulate(const char *kernel, size_t count, const TilecArg *args) {
    return run_with(NULL, kernel, count, args);
}

#define RUN(kernel, ...) emulate(kernel, sizeof(TilecArg[]){__VA_ARGS__} / sizeof(TilecArg), (TilecArg[]){__VA_ARGS__})

static TilecArg vector(float *data, int64_t count) {
    return tilec_tensor(TILEC_F32, data, 1, &count);
}

static void test_kernel_and_program(void **state) {
    (void)state;
    float x[100], y[100], z[100] = {0};
    for (int i = 0; i < 100; i++) x[i] = (float)i, y[i] = 2;
    Done done = RUN("add", vector(x, 100), vector(y, 100), vector(z, 100));
    if (done.status) fail_msg("T%04d %s", done.code, done.message);
    for (int i = 0; i < 100; i++) assert_true(z[i] == x[i] + 2);
    assert_int_equal(RUN("add_twice", vector(x, 100), vector(y, 100), vector(z, 100)).status, TILEC_OK);
    for (int i = 0; i < 100; i++) assert_true(z[i] == x[i] + 4);
    assert_int_equal(RUN("add", vector(x, 0), vector(y, 0), vector(z, 0)).status, TILEC_OK);
    assert_int_equal(RUN("increase", vector(x, 100)).status, TILEC_OK);
    for (int i = 0; i < 100; i++) assert_true(x[i] == (float)(i + 1));
}

// What lies between the rows of an output is not its own, also where another output lies there.
static void test_strides_and_scalars(void **state) {
    (void)state;
    float x[3][8], z[3][8];
    int64_t shape[] = {3, 4}, strides[] = {8, 1};
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < 8; n++) x[m][n] = (float)(10 * m + n), z[m][n] = -1;
    TilecArg in = tilec_strided_tensor(TILEC_F32, &x[0][2], 2, shape, strides);
    TilecArg out = tilec_strided_tensor(TILEC_F32, &z[0][2], 2, shape, strides);
    Done done = RUN("scale", in, tilec_real(0.5), tilec_integer(3), out);
    if (done.status) fail_msg("T%04d %s", done.code, done.message);
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < 8; n++) assert_true(z[m][n] == (n >= 2 && n < 6 ? x[m][n] * 1.5f : -1));
    assert_int_equal(RUN("scale", in, tilec_integer(2), tilec_integer(1), out).status, TILEC_OK);
    assert_true(z[1][3] == x[1][3] * 2);
}

// What the parameter's type cannot hold is refused, not cut off; u64 takes the bits.
static void test_integers_in_range(void **state) {
    (void)state;
    static const struct {
        const char *kernel;
        int64_t value;
        bool fits;
    } rows[] = {{"of_i8", 127, true},
                {"of_i8", -128, true},
                {"of_i8", 128, false},
                {"of_u8", 255, true},
                {"of_u8", -1, false},
                {"of_u8", 256, false},
                {"of_i32", INT32_MIN, true},
                {"of_i32", INT64_C(1) << 32, false},
                {"of_u32", UINT32_MAX, true},
                {"of_u32", -1, false},
                {"of_bool", 1, true},
                {"of_bool", 2, false},
                {"of_i64", INT64_MIN, true},
                {"of_u64", -1, true},
                {"of_f32", INT64_C(1) << 40, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t z = 0, one = 1;
        Done done = RUN(rows[i].kernel, tilec_tensor(TILEC_I64, &z, 1, &one), tilec_integer(rows[i].value));
        if (done.code != (rows[i].fits ? 0 : 935))
            fail_msg("row %zu: T%04d %s", i, done.code, done.message);   // covers T0935
        if (rows[i].fits) assert_int_equal(z, rows[i].value);
    }
}

static void test_same_tensor_twice(void **state) {
    (void)state;
    float x[10], z[10];
    for (int i = 0; i < 10; i++) x[i] = (float)i;
    assert_int_equal(RUN("add", vector(x, 10), vector(x, 10), vector(z, 10)).status, TILEC_OK);
    for (int i = 0; i < 10; i++) assert_true(z[i] == 2 * x[i]);
    Done done = RUN("add", vector(x, 10), vector(z, 10), vector(z, 10));
    assert_int_equal(done.code, 928);
}

// The rules of a launch. After a refusal, and after a fault, outputs are as they were.
static void test_refused(void **state) {
    (void)state;
    float x[10] = {0}, z[10] = {7};
    int64_t ten = 10, square[] = {2, 5}, backwards[] = {-1};
    TilecArg on_device = vector(x, 10), reversed = tilec_strided_tensor(TILEC_F32, x + 9, 1, &ten, backwards);
    on_device.device = 0;
    const struct {
        Done done;
        TilecStatus status;
        int code;
    } calls[] = {
        {RUN("nothing", vector(x, 10)), TILEC_ERROR_SOURCE, 903},
        {RUN("add", vector(x, 10)), TILEC_ERROR_SOURCE, 904},
        {RUN("add", vector(x, 10), tilec_integer(1), vector(z, 10)), TILEC_ERROR_SOURCE, 905},
        {RUN("add", vector(x, 10), vector(x, 9), vector(z, 10)), TILEC_ERROR_SOURCE, 0},
        {RUN("add", vector(x, 10), tilec_tensor(TILEC_I32, x, 1, &ten), vector(z, 10)), TILEC_ERROR_SOURCE, 929},
        {RUN("add", vector(x, 10), vector(NULL, 10), vector(z, 10)), TILEC_ERROR_SOURCE, 930},
        {RUN("add", vector(x, 10), on_device, vector(z, 10)), TILEC_ERROR_SOURCE, 931},
        {RUN("add", vector(x, 10), tilec_tensor(TILEC_F32, x, 2, square), vector(z, 10)), TILEC_ERROR_SOURCE, 0},
        {RUN("add", vector(x, 10), reversed, vector(z, 10)), TILEC_ERROR_SOURCE, 0},
        {RUN("bounded", vector(x, 10), vector(z, 10)), TILEC_ERROR_SOURCE, 0},
        {RUN("races", vector(z, 10)), TILEC_ERROR_SOURCE, 0},
        {RUN("reads_out", vector(x, 10), vector(z, 10)), TILEC_ERROR_SOURCE, 0},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].done.status != calls[i].status || calls[i].done.code == 0 ||
            (calls[i].code && calls[i].done.code != calls[i].code))
            fail_msg("call %zu: status %d, T%04d %s", i, calls[i].done.status, calls[i].done.code,
                     calls[i].done.message);
        assert_true(z[0] == 7);
    }
}

// Calls that are wrong in themselves, each with a text.
// The host cannot read what is elsewhere, and does not try.
static void test_elsewhere(void **state) {
    (void)state;
    float z[4];
    static const int places[] = {0, 3, TILEC_OTHER_DEVICE};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        TilecArg x = vector((float *)0x10000, 4);
        x.device = places[i];
        assert_int_equal(RUN("add", x, x, vector(z, 4)).code, 931);
        assert_int_equal(RUN("increase", x).code, 931);
    }
}

static void test_misused(void **state) {
    (void)state;
    float x[10] = {0};
    TilecArg arg = vector(x, 10), unsized = arg, odd = arg;
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions), no_size = {0};
    TilecEmulation no_how = {0}, below = {.size = sizeof below, .max_steps = -1};
    unsized.size = 0;
    odd.kind = 77;
    const struct {
        TilecContext *context;
        const char *name, *text;
        const TilecCompileOptions *options;
        const char *kernel;
        const TilecArg *args;
        const TilecEmulation *how;
    } calls[] = {{NULL, "a", source, &options, "increase", &arg, NULL},
                 {context, NULL, source, &options, "increase", &arg, NULL},
                 {context, "a", NULL, &options, "increase", &arg, NULL},
                 {context, "a", source, NULL, "increase", &arg, NULL},
                 {context, "a", source, &options, NULL, &arg, NULL},
                 {context, "a", source, &options, "increase", NULL, NULL},
                 {context, "a", source, &no_size, "increase", &arg, NULL},
                 {context, "a", source, &options, "increase", &unsized, NULL},
                 {context, "a", source, &options, "increase", &odd, NULL},
                 {context, "a", source, &options, "increase", &arg, &no_how},
                 {context, "a", source, &options, "increase", &arg, &below}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        TilecDiagnostics *diagnostics = NULL;
        TilecStatus status = tilec_emulate(calls[i].context, calls[i].name, calls[i].text, 10, calls[i].options,
                                           calls[i].kernel, calls[i].args, 1, calls[i].how, &diagnostics);
        assert_int_equal(status, TILEC_ERROR_USAGE);
        assert_non_null(strstr(tilec_diagnostics_text(diagnostics), "T0932"));
        tilec_diagnostics_destroy(diagnostics);
    }
    TilecArg none[] = {arg};
    assert_int_equal(RUN("add", vector(x, 10)).code, 904);
    assert_int_equal(emulate("add", 0, none).code, 904);
    assert_int_equal(emulate("add", 0, NULL).code, 904);
}

// A target of the caller's, a record that is not there, and a source that is none.
static void test_options(void **state) {
    (void)state;
    float x[4] = {1, 2, 3, 4};
    TilecArg arg = vector(x, 4);
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.target = "sm_90a";
    assert_int_equal(
        tilec_emulate(context, "a.tile", source, strlen(source), &options, "increase", &arg, 1, NULL, NULL), TILEC_OK);
    assert_true(x[3] == 5);
    assert_int_equal(tilec_emulate(context, "a.tile", "kernel", 6, &options, "increase", &arg, 1, NULL, NULL),
                     TILEC_ERROR_SOURCE);
    options.record = "/nowhere/at/all";
    assert_int_equal(
        tilec_emulate(context, "a.tile", source, strlen(source), &options, "increase", &arg, 1, NULL, NULL),
        TILEC_ERROR_ENVIRONMENT);
    assert_true(x[3] == 5);
}

// Views of one memory: other shapes and strides of what is only read; extents of 1; strides that no memory has.
static void test_views(void **state) {
    (void)state;
    float x[12], z[3] = {0};
    int64_t shape[] = {3, 4}, three = 3, across[] = {1, 3}, steps[] = {4, 1}, row[] = {1, 12},
            far[] = {INT64_MAX / 2, 1}, twice[] = {INT64_MAX / 4, INT64_MAX / 4}, large[] = {5, 5}, most[] = {1};
    int64_t huge = INT64_MAX / 2;
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    TilecArg out = tilec_tensor(TILEC_F32, z, 1, &three), rows = tilec_strided_tensor(TILEC_F32, x, 2, shape, steps);
    Done done = RUN("two", rows, tilec_strided_tensor(TILEC_F32, x, 2, shape, across), out);
    if (done.status) fail_msg("T%04d %s", done.code, done.message);
    for (int m = 0; m < 3; m++) assert_true(z[m] == x[m * 4] + x[m + 3]);
    done = RUN("two", tilec_tensor(TILEC_F32, x, 2, row), tilec_tensor(TILEC_F32, x, 2, row),
               tilec_tensor(TILEC_F32, z, 1, row));
    if (done.status) fail_msg("T%04d %s", done.code, done.message);
    assert_true(z[0] == x[0] + x[1]);
    const TilecArg wrong[] = {
        tilec_strided_tensor(TILEC_F32, x, 2, shape, far), tilec_strided_tensor(TILEC_F32, x, 2, large, twice),
        tilec_strided_tensor(TILEC_F32, x, 1, &huge, most), tilec_strided_tensor(99, x, 2, shape, steps)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(RUN("two", wrong[i], rows, out).status, TILEC_ERROR_SOURCE);
}

static void test_endless(void **state) {
    (void)state;
    int32_t z[2] = {0};
    int64_t two = 2;
    TilecArg arg = tilec_tensor(TILEC_I32, z, 1, &two);
    TilecEmulation how = TILEC_INIT(TilecEmulation);
    how.max_steps = 10000;
    Done done = run_with(&how, "endless", 1, &arg);
    assert_int_equal(done.status, TILEC_ERROR_SOURCE);
    TilecDiagnostics *diagnostics;
    TilecDiagnostic first = TILEC_INIT(TilecDiagnostic);
    TilecCompileOptions options = TILEC_INIT(TilecCompileOptions);
    options.time_limit = 200;
    assert_int_equal(
        tilec_emulate(context, "a.tile", source, strlen(source), &options, "endless", &arg, 1, NULL, &diagnostics),
        TILEC_ERROR_ENVIRONMENT);
    assert_true(tilec_diagnostics_get(diagnostics, 0, &first));
    assert_int_equal(first.code, 823);
    tilec_diagnostics_destroy(diagnostics);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernel_and_program),
                                       cmocka_unit_test(test_strides_and_scalars),
                                       cmocka_unit_test(test_integers_in_range),
                                       cmocka_unit_test(test_same_tensor_twice),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_elsewhere),
                                       cmocka_unit_test(test_misused),
                                       cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_views),
                                       cmocka_unit_test(test_endless)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
