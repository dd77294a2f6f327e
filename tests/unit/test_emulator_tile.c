// The emulator at tile stage: tile ops, regions, parallel loops, started ops, programs, variants, tests.
#include "tests/unit/emulator_unit.h"

static void regions_clip(void **state) {
    const char *source = "kernel k(x: f32[N], y: out f32[16], z: out f32[8]) {\n"
                         "    grid (b in 1) threads 32 {\n"
                         "        fragment f: f32[16], g: f32[8];\n"
                         "        copy(x[N - 10], f);\n"
                         "        copy(f, y);\n"
                         "        fragment h: f32[32];\n"
                         "        copy(x[0], h);\n"
                         "        copy(h, y[8]);\n"
                         "        fill(g, 1);\n"
                         "        let n = N - 7;\n"
                         "        copy(x[2 +: n], g);\n"
                         "        copy(g, z);\n"
                         "    }\n"
                         "}\n"
                         "reference k {\n"
                         "    for (i in 16) y[i] = i < 8 ? (N - 10 + i >= 0 && N - 10 + i < N ? x[N - 10 + i] : 0) :\n"
                         "                                 (i - 8 < N ? x[i - 8] : 0);\n"
                         "    for (i in 8) z[i] = i < N - 7 && 2 + i < N ? x[2 + i] : 0;\n"
                         "}\n"
                         "test k (N = 12) tolerance 0;\n"
                         "test k (N = 8) tolerance 0;\n"
                         "test k (N = 40) tolerance 0;\n";
    expect_pass(*state, source);
}

static const char reductions[] =
    "kernel k(x: f32[6, 10], i: i32[6, 10], sum: out f32[10], top: out f32[6], low: out i32[6], run: out f32[6, 10],\n"
    "         any: out bool[6], t: out f32[10, 6]) {\n"
    "    grid (b in 1) threads 32 {\n"
    "        fragment v: f32[6, 10], s: f32[10], m: f32[6], n: i32[6, 10], l: i32[6], r: f32[6, 10];\n"
    "        fragment q: bool[6, 10], a: bool[6], w: f32[10, 6];\n"
    "        copy(x, v);\n"
    "        copy(i, n);\n"
    "        fill(s, 100);\n"
    "        reduce_sum(v, s, axis = 0, accumulate = true);\n"
    "        reduce_max(v, m, axis = 1);\n"
    "        reduce_min(n, l, axis = 1);\n"
    "        scan_sum(v, r, axis = 1);\n"
    "        parallel (p in 6, o in 10) q[p, o] = n[p, o] > 50;\n"
    "        reduce_any(q, a, axis = 1);\n"
    "        transpose(v, w);\n"
    "        copy(s, sum); copy(m, top); copy(l, low); copy(r, run); copy(a, any); copy(w, t);\n"
    "    }\n"
    "}\n"
    "reference k {\n"
    "    for (c in 10) { var s: f64 = 100; for (r in 6) s += x[r, c]; sum[c] = s; }\n"
    "    for (r in 6) {\n"
    "        var m: f64 = -inf; var l: i32 = 1000; var s: f64 = 0; var q: bool = false;\n"
    "        for (c in 10) {\n"
    "            m = max(m, x[r, c]); l = min(l, i[r, c]); s += x[r, c]; run[r, c] = s; t[c, r] = x[r, c];\n"
    "            if (i[r, c] > 50) q = true;\n"
    "        }\n"
    "        top[r] = m; low[r] = l; any[r] = q;\n"
    "    }\n"
    "}\n"
    "test k () { for (r in 6, c in 10) i[r, c] = i32((r * 37 + c * 11) % 60); } tolerance 1e-5;\n";

static void reductions_scans_transposes(void **state) {
    expect_pass(*state, reductions);
    expect_report(
        *state, without(*state, reductions, "{ for (r in 6, c in 10) i[", "i[r, c] = i32", "if (r > 0) i[r, c] = i32"),
        "T0719");
}

#define PARALLEL(BODY)                                                                                                 \
    "kernel k(x: f32[64], y: inout f32[64]) {\n"                                                                       \
    "    grid (b in 1) threads 64 {\n"                                                                                 \
    "        fragment f: f32[64];\n"                                                                                   \
    "        shared s: f32[64];\n"                                                                                     \
    "        copy(x, f);\n"                                                                                            \
    "        copy(x, s);\n" BODY "\n"                                                                                  \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    "reference k { for (i in 64) y[i] = 1; }\n"                                                                        \
    "test k () tolerance 1e9;\n"

#define OTHER "63 - i + i64(f[i] * 0)"   // not provable

static void iterations_must_not_conflict(void **state) {
    Arena *a = *state;
    expect_pass(a, PARALLEL("parallel (i in 64) y[i] = s[63 - i] + f[i];"));
    expect_pass(a, PARALLEL("parallel (i in 64) s[i] = s[i] * 2; parallel (i in 64) y[i] = s[63 - i];"));
    expect_report(a, PARALLEL("parallel (i in 64) y[i * 3 % 64 / 2] = f[i];"), "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) s[i] = s[i ^ (1 + i64(f[i] * 0))];"), "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) { y[i] = s[0]; if (i == 40) s[0] = 1; }"), "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) { if (i == 0) s[0] = 1; y[i] = s[0]; }"), "iteration (1)");
    expect_pass(a, PARALLEL("parallel (i in 64) { let old = atomic_add(y[i / 2], f[i]); }"));
    expect_pass(a, PARALLEL("parallel (i in 64) { let old = atomic_add(s[i], f[i]); s[i] = old; y[i] = s[i]; }"));
    expect_pass(
        a, PARALLEL("parallel (i in 64) { let other = load(s[" OTHER "], relaxed, block); y[i] = s[i] + other; }"));
    expect_report(a, PARALLEL("parallel (i in 64) { y[i] = s[i]; atomic_add(s[" OTHER "], f[i]); }"), "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) { atomic_add(y[" OTHER "], f[i]); y[i] = s[i]; }"), "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) { s[i] = 1; f[i] = load(s[" OTHER "], relaxed, block); }"), "T0707");
    // Two atomics, of which the first is the reading iteration's own.
    expect_report(a, PARALLEL("parallel (i in 2) { atomic_add(s[i64(f[i] * 0)], 1); if (i == 1) y[0] = s[0]; }"),
                  "T0707");
    expect_report(a, PARALLEL("parallel (i in 64) s[i + i64(f[i] * 0) + 1] = 0;"), "T0703");
}

static const char blocks[] = "kernel k(x: f32[4], y: out f32[4]) {\n"
                             "    grid (b in 4) threads 32 {\n"
                             "        fragment f: f32[1];\n"
                             "        copy(x[b], f);\n"
                             "        copy(f, y[b]);\n"
                             "    }\n"
                             "}\n"
                             "reference k { for (i in 4) y[i] = x[i]; }\n"
                             "test k () tolerance 0;\n";

static void blocks_have_elements_of_their_own(void **state) {
    expect_pass(*state, blocks);
    expect_report(*state, without(*state, blocks, "copy(f", "y[b]", "y[b / 2]"), "T0740");
}

static const char started[] = "kernel k(x: f32[4, 64], y: out f32[4, 64]) {\n"
                              "    grid (b in 1) threads 64 {\n"
                              "        shared s: f32[2, 64];\n"
                              "        fragment f: f32[64];\n"
                              "        async copy(x[0, :], s[0, :]);\n"
                              "        for (k in 4) {\n"
                              "            if (k + 1 < 4) async copy(x[k + 1, :], s[(k + 1) % 2, :]);\n"
                              "            await(s[k % 2, :]);\n"
                              "            copy(s[k % 2, :], f);\n"
                              "            copy(f, y[k, :]);\n"
                              "        }\n"
                              "    }\n"
                              "}\n"
                              "reference k { for (i in 4, j in 64) y[i, j] = x[i, j]; }\n"
                              "test k () tolerance 0;\n";

static void started_copies_must_be_awaited(void **state) {
    expect_pass(*state, started);
    expect_report(*state, without(*state, started, "async", "await(s[k % 2, :]);", ""), "T0708");
    expect_report(*state, without(*state, started, "if (k", "s[(k + 1) % 2, :]", "s[0, :]"), "T070");
}

static const char groups[] = "kernel k(x: f32[4, 64], y: out f32[4, 64]) {\n"
                             "    grid (b in 1) threads 64 {\n"
                             "        shared s: f32[2, 64];\n"
                             "        fragment f: f32[64];\n"
                             "        async copy(x[0, :], s[0, :]);\n"
                             "        cp_async_commit();\n"
                             "        for (k in 4) {\n"
                             "            if (k + 1 < 4) async copy(x[k + 1, :], s[(k + 1) % 2, :]);\n"
                             "            cp_async_commit();\n"
                             "            cp_async_wait(1);\n"
                             "            barrier();\n"
                             "            copy(s[k % 2, :], f);\n"
                             "            copy(f, y[k, :]);\n"
                             "            barrier();\n"
                             "        }\n"
                             "    }\n"
                             "}\n"
                             "reference k { for (i in 4, j in 64) y[i, j] = x[i, j]; }\n"
                             "test k () tolerance 0;\n";

static void groups_at_tile_stage(void **state) {
    expect_pass(*state, groups);
    expect_report(*state, without(*state, groups, "commit", "cp_async_wait(1)", "cp_async_wait(2)"), "T0708");
}

// Each role counts its own groups, however often the other closes one.
static const char groups_of_roles[] = "kernel k(x: f32[64], y: out f32[64]) {\n"
                                      "    grid (b in 1) threads 64 {\n"
                                      "        shared s: f32[32], r: f32[32];\n"
                                      "        role left threads 32 {\n"
                                      "            fragment v: f32[32];\n"
                                      "            async copy(x[0 +: 32], s);\n"
                                      "            cp_async_commit();\n"
                                      "            barrier(1, 64);\n"
                                      "            cp_async_wait(0);\n"
                                      "            copy(s, v);\n"
                                      "            copy(v, y[0 +: 32]);\n"
                                      "        }\n"
                                      "        role right threads 32 {\n"
                                      "            async copy(x[32 +: 32], r);\n"
                                      "            cp_async_commit();\n"
                                      "            cp_async_wait(0);\n"
                                      "            cp_async_commit();\n"
                                      "            copy(r, y[32 +: 32]);\n"
                                      "            barrier(1, 64);\n"
                                      "        }\n"
                                      "    }\n"
                                      "}\n"
                                      "reference k { for (i in 64) y[i] = x[i]; }\n"
                                      "test k () tolerance 0;\n";

static void roles_have_groups_of_their_own(void **state) {
    expect_pass(*state, groups_of_roles);
    expect_report(*state, without(*state, groups_of_roles, "left", "cp_async_wait(0)", "cp_async_wait(1)"), "T0708");
}

static const char uninitialised[] = "kernel k(x: f32[8], y: out f32[8]) {\n"
                                    "    grid (b in 1) threads 32 {\n"
                                    "        fragment f: f32[8];\n"
                                    "        copy(x, f);\n"
                                    "        parallel (i in 8) f[i] = f[i] + 1;\n"
                                    "        copy(f, y);\n"
                                    "    }\n"
                                    "}\n"
                                    "reference k { for (i in 8) y[i] = x[i] + 1; }\n"
                                    "test k () tolerance 1e-6;\n";

static void what_nobody_wrote_is_noticed(void **state) {
    expect_pass(*state, uninitialised);
    expect_report(*state, without(*state, uninitialised, "f32[8];", "copy(x, f);", ""), "T0702");
    expect_wrong(*state, without(*state, uninitialised, "f[i]", "copy(f, y);", ""), "never written");
    expect_wrong(*state, without(*state, uninitialised, "f[i]", "copy(f, y);", "copy(f[0 +: 4], y[0 +: 4]);"),
                 "y[4] was never");
    expect_report(*state, without(*state, uninitialised, "reference", "y[i] = x[i] + 1", "y[i] = y[i] + x[i]"),
                  "T0702");
}

static const char numbers[] =
    "kernel k(x: f32[8], a: out bf16[8], b: out e4m3[8], c: out i8[8], d: out u8[8], e: out f16[8], w: out i32[4]) {\n"
    "    grid (g in 1) threads 32 {\n"
    "        parallel (i in 8) {\n"
    "            let v = x[i] * 300;\n"
    "            a[i] = bf16(v); b[i] = e4m3(v); c[i] = i8(v); d[i] = u8(v); e[i] = f16(v);\n"
    "        }\n"
    "        parallel (i in 4) {\n"
    "            var n: i32 = i32(2147483647);\n"
    "            n += i32(i);\n"
    "            w[i] = n;\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k {\n"
    "    for (i in 8) {\n"
    "        let v = x[i] * 300;\n"
    "        a[i] = v; b[i] = v; e[i] = v;\n"
    "        let r = v < 0 ? ceil(v) : floor(v);\n"
    "        c[i] = i8(max(-128, min(127, r))); d[i] = u8(max(0, min(255, r)));\n"
    "    }\n"
    "    for (i in 4) w[i] = i == 0 ? i32(2147483647) : i32(-2147483649 + i);\n"
    "}\n"
    "test k () tolerance 1e-6;\n";

static void numbers_round_saturate_wrap(void **state) {
    expect_pass(*state, numbers);
}

static const char program[] =
    "program p(x: f32[N], y: out f32[N]) {\n"
    "    scratch t: f32[N];\n"
    "    twice(x, t);\n"
    "    if (N > 10) twice(t, y);\n"
    "    else same(t, y);\n"
    "}\n"
    "kernel twice(x: f32[N], y: out f32[N]) when (N % 4 == 0) {\n"
    "    grid (b in N / 4) threads 32 { parallel (i in 4) y[b * 4 + i] = x[b * 4 + i] * 2; }\n"
    "}\n"
    "kernel twice(x: f32[N], y: out f32[N]) {\n"
    "    grid (b in N) threads 32 { parallel (i in 1) y[b] = x[b] * 2; }\n"
    "}\n"
    "kernel same(x: f32[N], y: out f32[N]) {\n"
    "    grid (b in N) threads 32 { parallel (i in 1) y[b] = x[b]; }\n"
    "}\n"
    "reference p { for (i in N) y[i] = x[i] * (N > 10 ? 4 : 2); }\n"
    "test p (N = 16) tolerance 0;\n"
    "test p (N = 15) tolerance 0;\n"
    "test p (N = 3) tolerance 0;\n"
    "test p (N = 0) tolerance 0;\n";

static void programs_launch_variants(void **state) {
    expect_pass(*state, program);
    expect_report(*state, without(*state, program, "scratch", "twice(x, t);", ""), "T0702");
    Outcome out = run_source(*state, program, 1);
    assert_int_equal(out.last.report.blocks, 0);   // an empty grid launches nothing
}

#define SIMPLE(HEAD, TEST)                                                                                             \
    "kernel k(x: f32[N]" HEAD ", y: out f32[N]) {\n"                                                                   \
    "    assume(N % 2 == 0);\n"                                                                                        \
    "    grid (b in N) threads 32 { parallel (i in 1) y[b] = x[b]; }\n"                                                \
    "}\n"                                                                                                              \
    "reference k { for (i in N) y[i] = x[i]; }\n" TEST

static void tests_say_what_they_lack(void **state) {
    Arena *a = *state;
    expect_pass(a, SIMPLE("", "test k (N = 4) tolerance 0;\n"));
    expect_report(a, SIMPLE("", "test k (N = 5) tolerance 0;\n"), "T0712");
    expect_report(a, SIMPLE(", n: i32[N]", "test k (N = 4) tolerance 0;\n"), "T0719");
}

static const char slots[] =
    "kernel k(x: f32[8, 8], y: out f32[8, 8]) {\n"
    "    grid (b in 1) threads 32 {\n"
    "        fragment f: f32[8, 8] layout \"((4,8),2):((2@1,1@0),1@1)\";\n"
    "        copy(x, f);\n"
    "        thread (t in 32) { regs(f)[0] = regs(f)[0] * 2; if (t == 5) regs(f)[1] = 7; }\n"
    "        copy(f, y);\n"
    "    }\n"
    "}\n"
    "reference k {\n"
    "    for (i in 8, j in 8) y[i, j] = i == 1 && j == 3 ? 7 : j % 2 == 0 ? x[i, j] * 2 : x[i, j];\n"
    "}\n"
    "test k () tolerance 0;\n";

static void threads_see_their_slots(void **state) {
    expect_pass(*state, slots);
    expect_report(*state, without(*state, slots, "f32[8, 8]", " layout \"((4,8),2):((2@1,1@0),1@1)\"", ""), "T0716");
}

static void a_test_binds_every_name(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(arena, &failure, SIMPLE(", s: f32", "test k (N = 4, s = 2) tolerance 0;\n"));
    Test *test = module->tests.items[0];
    EmuTestResult result;
    assert_true(emulate_test(module, test, NULL, &result));
    test->bindings.count = 1;
    assert_false(emulate_test(module, test, NULL, &result));
    assert_int_equal(diag_view(module->sink, 0).code, T_EMU_UNBOUND);   // covers T0718
    test->bindings.count = 2;
    test->name = "nothing";
    assert_false(emulate_test(module, test, NULL, &result));
    assert_int_equal(diag_view(module->sink, 1).code, T_EMU_NO_FUNCTION);   // covers T0717
    test->name = "k";
    module->references.count = 0;
    assert_false(emulate_test(module, test, NULL, &result));
    assert_int_equal(diag_view(module->sink, 2).code, T_EMU_NO_REFERENCE);   // covers T0721
    test->bindings.items[0].value->integer = INT64_MAX / 2;
    assert_false(emulate_test(module, test, NULL, &result));
    assert_int_equal(diag_view(module->sink, 3).code, T_EMU_TOO_LARGE);
}

static const char strided[] = "kernel k(x: f32[M, N] strides [ldx, 1], y: out f32[M, N] strides [1, ldy]) {\n"
                              "    grid (m in M) threads 32 { parallel (j in 8) y[m, j] = x[m, j]; }\n"
                              "}\n"
                              "reference k { for (i in M, j in N) y[i, j] = x[i, j]; }\n"
                              "test k (M = 5, N = 7, ldx = 16, ldy = 9) tolerance 0;\n"
                              "test k (M = 5, N = 7, ldy = 5) tolerance 0;\n";

static void strides_are_followed(void **state) {
    expect_pass(*state, strided);
}

static const char persistent[] = "kernel k(x: f32[N, 8], y: out f32[N, 8]) {\n"
                                 "    grid (worker in min(N, sms())) threads 32 {\n"
                                 "        for (r in ceildiv(N, sms())) {\n"
                                 "            let n = worker + r * sms();\n"
                                 "            if (n < N) { parallel (j in 8) y[n, j] = x[n, j]; }\n"
                                 "        }\n"
                                 "    }\n"
                                 "}\n"
                                 "reference k { for (i in N, j in 8) y[i, j] = x[i, j]; }\n"
                                 "test k (N = 20) tolerance 0;\n";

static void devices_and_samples_of_blocks(void **state) {
    EmuOptions options = {.races = true, .multiprocessors = 3};
    Outcome out = run_source_with(*state, persistent, options);
    assert_true(out.passed);
    assert_int_equal(out.last.report.blocks, 3);
    options.max_blocks = 2;
    out = run_source_with(*state, blocks, options);
    assert_int_equal(out.last.report.blocks, 2);
    assert_non_null(strstr(out.last.why, "y[1] was never written"));   // the first and the last ran
}

static void a_choice_needs_fitting_arguments(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(arena, &failure, program);
    float data[16] = {0};
    EmuTensor x = {.type = TYPE_F32, .rank = 1, .shape = {16}, .strides = {1}, .data = data, .bytes = sizeof data};
    EmuTensor y = x;
    EmuArg args[2] = {{.tensor = &x}, {.tensor = &y}};
    assert_ptr_equal(emulate_choose(module, "twice", 2, args), module_func(module, "twice"));
    x.shape[0] = y.shape[0] = 15;
    const Func *second = emulate_choose(module, "twice", 2, args);
    assert_non_null(second);
    assert_ptr_not_equal(second, module_func(module, "twice"));
    y.shape[0] = 14;
    assert_null(emulate_choose(module, "twice", 2, args));
    assert_int_equal(diag_view(module->sink, 0).code, T_EMU_NO_VARIANT);
    assert_false(emulate_func(module, second, 2, args, NULL, NULL));
    assert_int_equal(diag_view(module->sink, 1).code, T_EMU_ARGUMENTS);   // covers T0713
}

// ---- what a reference answered is taken for the same question only ----
static void cached_results_belong_to_their_arguments(void **state) {
    static const char source[] = "kernel %s(x: f32[N], y: out f32[N], s: f32) {\n"
                                 "    grid (b in 1) threads 32 { parallel (i in N) y[i] = x[i] * s; }\n"
                                 "}\n"
                                 "reference %s { for (i in N) y[i] = x[i] * %s; }\n"
                                 "test %s (N = %d, s = %d) tolerance 1e-5;\n";
    static const struct {
        const char *name, *factor;
        int n, s;
        uint64_t seed;
        bool passes;
    } runs[] = {{"a", "s", 40, 3, 1, true},  {"a", "s", 40, 3, 1, true}, {"a", "2", 40, 3, 1, false},
                {"a", "2", 40, 2, 1, true},  {"a", "s", 41, 3, 1, true}, {"a", "s", 40, 3, 2, true},
                {"a", "2", 40, 3, 1, false}, {"b", "s", 40, 3, 1, true}, {"a", "s", 40, 3, 1, true}};
    EmuReferenceCache *reference_cache = emu_reference_cache_new(*state);
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        const char *name = runs[i].name,
                   *text = arena_printf(*state, source, name, name, runs[i].factor, name, runs[i].n, runs[i].s);
        Outcome out =
            run_source_with(*state, text, (EmuOptions){.seed = runs[i].seed, .reference_cache = reference_cache});
        if (out.passed != runs[i].passes) fail_msg("run %d: %s\n%s", (int)i, out.last.why, out.text);
    }
}

// ---- a run leaves the inputs of the next one as they were made ----
static void inputs_are_made_a_single_time(void **state) {
    static const char source[] = "kernel f(x: f32[N], y: inout f32[N]) {\n"
                                 "    grid (b in 1) threads 32 { parallel (i in N) y[i] = y[i] + 1; }\n"
                                 "}\n"
                                 "reference f { for (i in N) y[i] = 2 * y[i]; }\n"
                                 "test f (N = 40) { for (i in N) y[i] = 1; } tolerance 1e-5;\n";
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(*state, &failure, source);
    Test *test = module->tests.items[0];
    EmuOptions options = {.seed = 1, .reference_cache = emu_reference_cache_new(*state)};
    EmuTestResult result;
    for (int i = 0; i < 3; i++) assert_true(emulate_test(module, test, &options, &result));
    module->funcs.items[0]->params.items[0].buf->mode = MODE_OUT;   // which the kernel does not write
    assert_false(emulate_test(module, test, &options, &result));
}

// ---- a test that passed runs again when the module has changed ----
static void results_belong_to_a_stage(void **state) {
    static const char source[] = "kernel f(y: out f32[N]) {\n"
                                 "    grid (b in 1) threads 32 { parallel (i in N) y[i] = %d; }\n"
                                 "}\n"
                                 "reference f { for (i in N) y[i] = 1; }\n"
                                 "test f (N = 40) tolerance 1e-5;\n";
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(*state, &failure, arena_printf(*state, source, 1));
    const Module *other = module_of(*state, &failure, arena_printf(*state, source, 2));
    EmuOptions options = {.seed = 1, .reference_cache = emu_reference_cache_new(*state)};
    EmuTestResult result;
    emu_reference_cache_stage(options.reference_cache, module);
    assert_true(emulate_test(module, module->tests.items[0], &options, &result));
    int64_t steps = (int64_t)result.report.steps;
    module->funcs.items[0] = other->funcs.items[0];
    result = (EmuTestResult){0};
    assert_true(emulate_test(module, module->tests.items[0], &options, &result));   // as it is not told of the change
    assert_int_equal(result.report.steps, steps);
    emu_reference_cache_stage(options.reference_cache, module);
    assert_false(emulate_test(module, module->tests.items[0], &options, &result));
}

// ---- every lack of memory ends the run, and nothing is lost (the sanitizer looks) ----
typedef struct Budget {
    int left;   // allocations that succeed; -1: all
} Budget;

static void *limited(void *user, void *block, size_t bytes) {
    Budget *budget = user;
    if (bytes && budget->left == 0) return NULL;
    if (bytes && budget->left > 0) budget->left--;
    return libc_allocator.resize(NULL, block, bytes);
}

static void memory_may_run_out(void **state) {
    (void)state;
    Budget budget = {-1};
    Failure failure;
    Arena *arena = arena_new((Allocator){limited, &budget}, &failure);
    Module *module = module_of(arena, &failure, program);
    EmuTestResult result = {0};
    volatile int tries = 0;
    if (FAILURE_CAUGHT(&failure)) assert_int_equal(failure.kind, FAIL_OUT_OF_MEMORY);
    bool passed;
    do {   // what ends here is reported, where the sink has memory
        budget.left = tries++;
        passed = emulate_test(module, module->tests.items[0], &(EmuOptions){.races = true}, &result);
        int count = diag_count(module->sink);
        if (!passed) assert_true(count > 0 && diag_view(module->sink, count - 1).code == T_OUT_OF_MEMORY);
    } while (!passed);
    assert_true(tries > 5);
    budget.left = -1;
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(regions_clip),
        IN_ARENA(reductions_scans_transposes),
        IN_ARENA(iterations_must_not_conflict),
        IN_ARENA(blocks_have_elements_of_their_own),
        IN_ARENA(started_copies_must_be_awaited),
        IN_ARENA(groups_at_tile_stage),
        IN_ARENA(what_nobody_wrote_is_noticed),
        IN_ARENA(numbers_round_saturate_wrap),
        IN_ARENA(programs_launch_variants),
        IN_ARENA(tests_say_what_they_lack),
        IN_ARENA(threads_see_their_slots),
        IN_ARENA(a_test_binds_every_name),
        IN_ARENA(strides_are_followed),
        IN_ARENA(a_choice_needs_fitting_arguments),
        IN_ARENA(roles_have_groups_of_their_own),
        IN_ARENA(devices_and_samples_of_blocks),
        IN_ARENA(cached_results_belong_to_their_arguments),
        IN_ARENA(inputs_are_made_a_single_time),
        IN_ARENA(results_belong_to_a_stage),
        IN_ARENA(memory_may_run_out),
    };
    return run(tests);
}
