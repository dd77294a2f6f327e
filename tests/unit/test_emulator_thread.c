// The emulator at thread stage: lanes, barriers, races, cp.async, tensor-core operations. Each correct program has
// wrong ones beside it, made by leaving something out; they must be reported under every schedule.
#include "tests/unit/emulator_unit.h"

#define REVERSE_REFERENCE                                                                                              \
    "reference k { for (b in B, i in 64) y[b, i] = x[b, 63 - i]; }\n"                                                  \
    "test k (B = 3) tolerance 0;\n"

static const char reverse[] = "kernel k(x: f32[B, 64], y: out f32[B, 64]) {\n"
                              "  grid (b in B) threads 64 {\n"
                              "    shared s: f32[64];\n"
                              "    thread (t in 64) {\n"
                              "      for (again in 2) {\n"
                              "        s[t] = x[b, t];\n"
                              "        barrier();\n"
                              "        y[b, t] = s[63 - t];\n"
                              "        barrier();\n"
                              "      }\n"
                              "    }\n"
                              "  }\n"
                              "}\n" REVERSE_REFERENCE;

static void barriers_order_threads(void **state) {
    Arena *arena = *state;
    expect_pass(arena, reverse);
    const char *read_early = without(arena, reverse, "s[t]", "barrier();", "");
    expect_report(arena, read_early, "T0701");
    expect_report(arena, read_early, "s[t] = x[b, t]");
    expect_report(arena, without(arena, reverse, "63 - t", "barrier();", ""), "T0701");   // overwritten too early
    expect_report(arena, without(arena, reverse, "s[t]", "barrier();", "warp_sync();"), "T0701");
}

static const char within_warp[] = "kernel k(x: f32[32], y: out f32[32]) {\n"
                                  "  grid (b in 1) threads 32 {\n"
                                  "    shared s: f32[32];\n"
                                  "    thread (t in 32) {\n"
                                  "      s[t] = x[t];\n"
                                  "      warp_sync();\n"
                                  "      y[t] = s[31 - t];\n"
                                  "    }\n"
                                  "  }\n"
                                  "}\n"
                                  "reference k { for (i in 32) y[i] = x[31 - i]; }\n"
                                  "test k () tolerance 0;\n";

static void lanes_of_a_warp_are_threads(void **state) {
    expect_pass(*state, within_warp);
    expect_report(*state, without(*state, within_warp, "s[t]", "warp_sync();", ""), "T0701");
}

#define COPY_KERNEL(WAIT, SYNC, INDEX)                                                                                 \
    "kernel k(x: f32[256], y: out f32[256]) {\n"                                                                       \
    "  grid (b in 1) threads 64 {\n"                                                                                   \
    "    shared s: f32[256];\n"                                                                                        \
    "    thread (t in 64) {\n"                                                                                         \
    "      cp_async(s[t * 4], x[t * 4], 4);\n"                                                                         \
    "      cp_async_commit();\n" WAIT SYNC "      unroll (i in 4) y[t * 4 + i] = s[" INDEX "];\n"                      \
    "    }\n"                                                                                                          \
    "  }\n"                                                                                                            \
    "}\n"
#define OWN "t * 4 + i"
#define OTHER "252 - t * 4 + i"
#define SAME "reference k { for (i in 256) y[i] = x[i]; }\ntest k () tolerance 0;\n"
#define SWAPPED "reference k { for (i in 64, j in 4) y[i * 4 + j] = x[252 - i * 4 + j]; }\ntest k () tolerance 0;\n"
#define WAIT "cp_async_wait(0);\n"
#define SYNC "barrier();\n"

static void async_copies_land_late(void **state) {
    expect_pass(*state, COPY_KERNEL(WAIT, "", OWN) SAME);   // a thread sees its own copies after its wait
    expect_pass(*state, COPY_KERNEL(WAIT, SYNC, OTHER) SWAPPED);
    expect_report(*state, COPY_KERNEL("", "", OWN) SAME, "T0708");   // nobody waited
    expect_report(*state, COPY_KERNEL("", "", OWN) SAME, "the copy starts here");
    expect_report(*state, COPY_KERNEL("", SYNC, OTHER) SWAPPED, "T0708");
    expect_report(*state, COPY_KERNEL(WAIT, "", OTHER) SWAPPED, "T0701");   // the wait is the copying thread's alone
    expect_report(*state, COPY_KERNEL(SYNC, WAIT, OTHER) SWAPPED, "T070");
}

static const char valid_counts[] = "kernel k(x: f16[N], y: out f16[64, 8]) {\n"
                                   "  grid (b in 1) threads 64 {\n"
                                   "    shared s: f16[512];\n"
                                   "    thread (t in 64) {\n"
                                   "      let left = N - t * 8;\n"
                                   "      cp_async(s[t * 8], x[left > 0 ? t * 8 : 0], 8, max(0, min(8, left)));\n"
                                   "      cp_async_commit();\n"
                                   "      cp_async_wait(0);\n"
                                   "      unroll (i in 8) y[t, i] = s[t * 8 + i];\n"
                                   "    }\n"
                                   "  }\n"
                                   "}\n"
                                   "reference k { for (i in 64, j in 8) y[i, j] = i * 8 + j < N ? x[i * 8 + j] : 0; }\n"
                                   "test k (N = 500) tolerance 0;\n"
                                   "test k (N = 1) tolerance 0;\n";

static void missing_elements_become_zero(void **state) {
    expect_pass(*state, valid_counts);
}

static const char product[] =
    "kernel gemm(A: bf16[M, K], B: bf16[N, K], C: out f32[M, N]) {\n"
    "    grid (bm in M / 32, bn in N / 32) threads 64 {\n"
    "        shared As: bf16[2, 32, 24], Bs: bf16[2, 32, 24];\n"
    "        thread (t in 64) {\n"
    "            let lane = t % 32;\n"
    "            let warp = t / 32;\n"
    "            local acc: f32[16];\n"
    "            local a: bf16[8];\n"
    "            local b: bf16[16];\n"
    "            let row = t / 2;\n"
    "            let column = t % 2 * 8;\n"
    "            unroll (r in 16) acc[r] = 0;\n"
    "            let steps = K / 16;\n"
    "            if (0 < steps) {\n"
    "                cp_async(As[0, row, column], A[bm * 32 + row, column], 8);\n"
    "                cp_async(Bs[0, row, column], B[bn * 32 + row, column], 8);\n"
    "            }\n"
    "            cp_async_commit();\n"
    "            for (k in steps) {\n"
    "                if (k + 1 < steps) {\n"
    "                    cp_async(As[(k + 1) % 2, row, column], A[bm * 32 + row, (k + 1) * 16 + column], 8);\n"
    "                    cp_async(Bs[(k + 1) % 2, row, column], B[bn * 32 + row, (k + 1) * 16 + column], 8);\n"
    "                }\n"
    "                cp_async_commit();\n"
    "                cp_async_wait(1);\n"
    "                barrier(); // landed\n"
    "                ldmatrix(a[0], As[k % 2, warp * 16 + lane % 16, lane / 16 * 8], 4, false);\n"
    "                unroll (j in 2)\n"
    "                    ldmatrix(b[j * 8], Bs[k % 2, j * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8], 4,\n"
    "                             false);\n"
    "                unroll (j in 4) mma(m16n8k16_f32_bf16, a[0], b[j * 4], acc[j * 4]);\n"
    "                barrier(); // read\n"
    "            }\n"
    "            unroll (j in 4) unroll (r in 4)\n"
    "                C[bm * 32 + warp * 16 + lane / 4 + r / 2 * 8, bn * 32 + j * 8 + lane % 4 * 2 + r % 2] =\n"
    "                    acc[j * 4 + r];\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference gemm {\n"
    "    for (m in M, n in N) {\n"
    "        var sum: f64 = 0;\n"
    "        for (k in K) sum += A[m, k] * B[n, k];\n"
    "        C[m, n] = sum;\n"
    "    }\n"
    "}\n";

static const char *product_of(Arena *arena, const char *source, int k) {
    return arena_printf(arena, "%stest gemm (M = 64, N = 32, K = %d) tolerance 1e-5;\n", source, k);
}

static void matrix_product(void **state) {
    Arena *arena = *state;
    for (int k = 0; k <= 64; k += 16) expect_pass(arena, product_of(arena, product, k));
    expect_report(arena, product_of(arena, without(arena, product, "wait(1)", "barrier(); // landed", ""), 64),
                  "T0701");
    expect_report(arena, product_of(arena, without(arena, product, "mma(", "barrier(); // read", ""), 64), "T0701");
    expect_report(arena, product_of(arena, without(arena, product, "commit", "cp_async_wait(1);", ""), 64), "T0708");
    expect_report(arena,
                  product_of(arena, without(arena, product, "commit", "cp_async_wait(1)", "cp_async_wait(2)"), 64),
                  "T0708");
}

static const char transposed[] = "kernel k(x: f16[16, 16], y: out f16[16, 16]) {\n"
                                 "    grid (b in 1) threads 32 {\n"
                                 "        shared s: f16[16, 16], d: f16[16, 16];\n"
                                 "        thread (t in 32) {\n"
                                 "            local v: f16[8];\n"
                                 "            vload(v[0], x[t / 2, t % 2 * 8], 8);\n"
                                 "            vstore(s[t / 2, t % 2 * 8], v[0], 8);\n"
                                 "            warp_sync();\n"
                                 "            ldmatrix(v[0], s[t % 16, t / 16 * 8], 4, true);\n"
                                 "            stmatrix(d[t / 16 * 8 + t % 8, t / 8 % 2 * 8], v[0], 4, false);\n"
                                 "            warp_sync();\n"
                                 "            unroll (i in 8) y[t / 2, t % 2 * 8 + i] = d[t / 2, t % 2 * 8 + i];\n"
                                 "        }\n"
                                 "    }\n"
                                 "}\n"
                                 "reference k { for (i in 16, j in 16) y[i, j] = x[j, i]; }\n"
                                 "test k () tolerance 0;\n";

// Of bytes, pairs stay together: they are one element of 16 bits.
static const char pairs[] = "kernel k(x: u8[16, 32], y: out u8[16, 32]) {\n"
                            "    grid (b in 1) threads 32 {\n"
                            "        shared s: u8[16, 32], d: u8[16, 32];\n"
                            "        thread (t in 32) {\n"
                            "            local v: u8[16];\n"
                            "            vload(v[0], x[t / 2, t % 2 * 16], 16);\n"
                            "            vstore(s[t / 2, t % 2 * 16], v[0], 16);\n"
                            "            warp_sync();\n"
                            "            ldmatrix(v[0], s[t % 16, t / 16 * 16], 4, true);\n"
                            "            stmatrix(d[t / 16 * 8 + t % 8, t / 8 % 2 * 16], v[0], 4, false);\n"
                            "            warp_sync();\n"
                            "            unroll (i in 16) y[t / 2, t % 2 * 16 + i] = d[t / 2, t % 2 * 16 + i];\n"
                            "        }\n"
                            "    }\n"
                            "}\n"
                            "reference k { for (i in 16, j in 16, p in 2) y[i, j * 2 + p] = x[j, i * 2 + p]; }\n"
                            "test k () { for (i in 16, j in 32) x[i, j] = (i * 32 + j) % 251; } tolerance 0;\n";

static void matrices_move_and_transpose(void **state) {
    expect_pass(*state, transposed);
    expect_pass(*state, pairs);
    expect_report(*state, without(*state, transposed, "vstore", "warp_sync();", ""), "T0701");
    expect_report(*state, without(*state, transposed, "vload", "x[t / 2, t % 2 * 8], 8", "x[t / 2, t % 2 * 4], 8"),
                  "T0711");
}

static const char lanes[] = "kernel k(x: f32[64], y: out f32[64], z: out i32[64]) {\n"
                            "    grid (b in 1) threads 64 {\n"
                            "        thread (t in 64) {\n"
                            "            var v: f32 = x[t];\n"
                            "            unroll (i in 5) v += shfl_xor(v, 1 << i);\n"
                            "            let up = shfl_up(x[t], 1);\n"
                            "            let down = shfl_down(x[t], 2);\n"
                            "            y[t] = v + up * 0.0 + down * 0.0 + shfl_idx(x[t], 3) * 0.0;\n"
                            "            var n: i32 = 0;\n"
                            "            for (i in t) {\n"
                            "                if (i % 3 == 2) { if (i > 40) break; n += 100; } else n += 1;\n"
                            "            }\n"
                            "            if (vote_any(t == 5)) n += 1000;\n"
                            "            if (vote_all(t < 40)) n += 10000;\n"
                            "            var w: i32 = 0;\n"
                            "            while (w < t && w < 7) w += 1;\n"
                            "            if (elect()) w += 50;\n"
                            "            z[t] = n + w * 100000;\n"
                            "        }\n"
                            "    }\n"
                            "}\n"
                            "reference k {\n"
                            "    for (t in 64) {\n"
                            "        var sum: f64 = 0;\n"
                            "        for (i in 32) sum += x[t / 32 * 32 + i];\n"
                            "        y[t] = sum;\n"
                            "        var n: i64 = 0;\n"
                            "        for (i in t) { if (i % 3 == 2) { if (i > 40) break; n += 100; } else n += 1; }\n"
                            "        let w = min(t, 7) + (t % 32 == 0 ? 50 : 0);\n"
                            "        z[t] = i32(n + (t < 32 ? 1000 : 0) + (t < 32 ? 10000 : 0) + w * 100000);\n"
                            "    }\n"
                            "}\n"
                            "test k () tolerance 1e-5;\n";

static void lanes_diverge_and_meet(void **state) {
    expect_pass(*state, lanes);
}

#define IN_THREADS(BODY)                                                                                               \
    "kernel k(x: f32[64], y: out f32[64]) {\n"                                                                         \
    "    grid (b in 1) threads 64 {\n"                                                                                 \
    "        shared s: f32[64];\n"                                                                                     \
    "        thread (t in 64) {\n" BODY "\n"                                                                           \
    "        }\n"                                                                                                      \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    "reference k { for (i in 64) y[i] = x[i]; }\n"                                                                     \
    "test k () tolerance 0;\n"

static void faults_are_reported(void **state) {
    Arena *a = *state;
    expect_pass(a, IN_THREADS("y[t] = x[t];"));
    expect_report(a, IN_THREADS("if (x[t] > 0) barrier(); y[t] = x[t];"), "T0704");
    expect_report(a, IN_THREADS("var warp: i64 = t / 32; if (warp == 0) barrier(); y[t] = x[t];"), "T0705");
    expect_report(a, IN_THREADS("if (x[t] > 0) y[t] = shfl_xor(x[t], 1); else y[t] = x[t];"), "T0704");
    expect_report(a, IN_THREADS("y[t] = s[t];"), "T0702");
    expect_report(a, IN_THREADS("local v: f32[2]; if (x[t] > 0) v[0] = x[t]; y[t] = v[0];"), "T0702");
    expect_report(a, IN_THREADS("y[t] = x[t + i64(x[t] * 0) + 1];"), "T0703");
    expect_report(a, IN_THREADS("s[t + i64(x[t] * 0) - 1] = 1; y[t] = x[t];"), "T0703");
    expect_report(a, IN_THREADS("y[t] = x[t]; assert(x[t] < -100, \"small\");"), "small");
    expect_report(a, IN_THREADS("y[t] = x[t / (t / 100)];"), "T0710");
    expect_report(a, IN_THREADS("y[t / 2] = x[t];"), "T0701");
    expect_report(a, IN_THREADS("y[t] = x[t]; y[63 - t] = x[63 - t];"), "T0701");
    expect_wrong(a, IN_THREADS("if (t != 7) y[t] = x[t];"), "y[7] was never written");
    expect_wrong(a, IN_THREADS("y[t] = t == 9 ? 0.0 : x[t];"), "y[9] is 0");
}

static const char printing[] = IN_THREADS("y[t] = x[t]; if (t == 33) print(\"value\", t, 0.5);");

static void print_says_who_and_what(void **state) {
    Outcome out = run_source(*state, printing, 1);
    assert_true(out.passed);
    assert_non_null(strstr(out.text, "thread 33 of CTA 0: value 33 0.5"));
}

#define CONFLICTS(INDEX)                                                                                               \
    "kernel k(y: out f32[32]) {\n"                                                                                     \
    "    grid (b in 1) threads 32 {\n"                                                                                 \
    "        shared s: f32[1024];\n"                                                                                   \
    "        thread (t in 32) { s[" INDEX "] = 1; y[t] = 1; }\n"                                                       \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    "reference k { for (i in 32) y[i] = 1; }\n"                                                                        \
    "test k () tolerance 0;\n"

static void bank_conflicts_are_counted(void **state) {
    assert_int_equal(run_source(*state, CONFLICTS("t"), 1).last.report.conflicts, 0);
    assert_int_equal(run_source(*state, CONFLICTS("t * 2"), 1).last.report.conflicts, 1);
    assert_int_equal(run_source(*state, CONFLICTS("t * 32"), 1).last.report.conflicts, 31);
    assert_int_equal(run_source(*state, CONFLICTS("t * 31"), 1).last.report.conflicts, 0);
    EmuReport report = run_source(*state, CONFLICTS("t * 4"), 1).last.report;
    assert_int_equal(report.site_count, 1);
    assert_string_equal(report.sites[0].buffer, "s");
    assert_int_equal(report.sites[0].place.line, 4);
    assert_int_equal(report.sites[0].accesses, 1);
    assert_int_equal(report.sites[0].conflicts, 3);
}

#define BLOCKS_OF(COUNT, BODY)                                                                                         \
    "kernel k(x: f32[64], y: inout f32[64]) {\n"                                                                       \
    "    grid (b in " #COUNT ") threads 32 {\n"                                                                        \
    "        thread (t in 32) {\n" BODY "\n"                                                                           \
    "        }\n"                                                                                                      \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    "reference k { for (i in 64) y[i] = y[i]; }\n"                                                                     \
    "test k () tolerance 1e9;\n"
#define BLOCKS(BODY) BLOCKS_OF(2, BODY)

static void blocks_race_too(void **state) {
    expect_pass(*state, BLOCKS("y[b * 32 + t] = x[t];"));
    expect_report(*state, BLOCKS("y[t] = x[t];"), "T0740");
    expect_report(*state, BLOCKS("if (b == 0) y[t] = x[t] + y[t + 32]; else y[t + 32] = x[t];"), "T0740");
    expect_report(*state, BLOCKS("y[b * 32 + t] = y[32 - b * 32 + t];"), "T0740");
    expect_pass(*state, BLOCKS("let old = atomic_add(y[t], 1.0);"));
}

#define USED "if (a + c > 1e30) y[t] = a;"   // which never holds

static void loads_with_an_order_go_with_reads_and_atomics(void **state) {
    expect_pass(*state, BLOCKS("let a = load(y[t], relaxed, device); let c = y[31 - t]; " USED));
    expect_pass(*state, BLOCKS("let c = y[31 - t]; let a = load(y[t], relaxed, device); " USED));
    expect_pass(*state, BLOCKS("let a = load(y[t], relaxed, device); let c = atomic_add(y[31 - t], 1.0); " USED));
    expect_report(*state, BLOCKS("y[b * 32 + t] = load(y[b * 32 + 31 - t], relaxed, device);"), "T0701");
    expect_report(*state,
                  BLOCKS("y[b * 32 + t] = 1; let a = load(y[b * 32 + 31 - t], relaxed, device); let c = a; " USED),
                  "T0701");
    expect_report(*state, BLOCKS("if (b == 0) y[t + 32] = load(y[t], relaxed, device); else y[t] = x[t];"), "T0740");
    // The plain read is not forgotten for the load after it, of this CTA or of others.
    expect_report(*state,
                  BLOCKS("if (b == 0) { let c = y[t]; let a = load(y[t], relaxed, device); " USED " }\n"
                         "else atomic_add(y[t], 1.0);"),
                  "T0740");
    expect_report(*state,
                  BLOCKS_OF(4, "if (b == 0) { let c = y[t]; let a = c; " USED " }\n"
                               "else if (b < 3) { let a = load(y[t], relaxed, device); let c = a; " USED " }\n"
                               "else atomic_add(y[t], 1.0);"),
                  "T0740");
}

static const char flags[] =
    "kernel k(x: f32[2, 32], flag: inout i32[1], y: out f32[2, 32]) {\n"
    "    grid (b in 2) threads 32 {\n"
    "        thread (t in 32) {\n"
    "            if (b == 1) {\n"
    "                y[1, t] = x[1, t];\n"
    "                warp_sync();\n"
    "                if (t == 0) store(flag[0], 1, release, device);\n"
    "            } else {\n"
    "                while (load(flag[0], acquire, device) == 0) { }\n"
    "                y[0, t] = y[1, t] + x[0, t];\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { flag[0] = 1; for (i in 32) { y[1, i] = x[1, i]; y[0, i] = x[1, i] + x[0, i]; } }\n"
    "test k () { flag[0] = 0; } tolerance 1e-6;\n";

static void release_and_acquire_order_blocks(void **state) {
    expect_pass(*state, flags);
    expect_report(*state, without(*state, flags, "store(", "release", "relaxed"), "T0740");
}

// CTA `writer` of `blocks` tells CTA 0.
static const char *scoped(Arena *a, int blocks, int writer, const char *cluster, const char *told, const char *asked) {
    return arena_printf(a,
                        "kernel k(flag: inout i32[1], y: out i32[2, 32]) {\n"
                        "    grid (b in %d) threads 32 %s {\n"
                        "        thread (t in 32) {\n"
                        "            if (b == %d) {\n"
                        "                y[1, t] = 5;\n"
                        "                warp_sync();\n"
                        "                if (t == 0) { %s }\n"
                        "            } else if (b == 0) {\n"
                        "                while (load(flag[0], acquire, %s) == 0) { }\n"
                        "                y[0, t] = y[1, t] + 1;\n"
                        "            }\n"
                        "        }\n"
                        "    }\n"
                        "}\n"
                        "reference k { flag[0] = 1; for (i in 32) { y[1, i] = 5; y[0, i] = 6; } }\n"
                        "test k () { flag[0] = 0; } tolerance 0;\n",
                        blocks, cluster, writer, told, asked);
}

// A release, an acquire and a fence tell CTAs of their scope alone.
static void scopes_say_who_is_told(void **state) {
    Arena *a = *state;
    const char *block = "store(flag[0], 1, release, block);", *cluster = "store(flag[0], 1, release, cluster);",
               *device = "store(flag[0], 1, release, device);", *pair = "cluster (2, 1)";
    expect_pass(a, scoped(a, 2, 1, "", device, "device"));
    expect_pass(a, scoped(a, 2, 1, "", device, "system"));
    expect_report(a, scoped(a, 2, 1, "", block, "device"), "T0740");
    expect_report(a, scoped(a, 2, 1, "", device, "block"), "T0740");
    expect_report(a, scoped(a, 2, 1, "", cluster, "cluster"), "T0740");
    expect_pass(a, scoped(a, 2, 1, pair, cluster, "cluster"));
    expect_report(a, scoped(a, 2, 1, pair, block, "cluster"), "T0740");
    expect_pass(a, scoped(a, 4, 2, pair, device, "device"));
    expect_report(a, scoped(a, 4, 2, pair, cluster, "device"), "T0740");
    expect_report(a, scoped(a, 4, 2, pair, device, "cluster"), "T0740");
    expect_pass(a, scoped(a, 2, 1, "", "fence(device); atomic_add(flag[0], 1);", "device"));
    expect_report(a, scoped(a, 2, 1, "", "fence(block); atomic_add(flag[0], 1);", "device"), "T0740");
}

// CTA 1 tells CTA 0, which clears the flag.
static const char cleared[] = "kernel k(flag: inout i32[1], y: inout i32[1]) {\n"
                              "    grid (b in 3) threads 64 {\n"
                              "        thread (t in 64) {\n"
                              "            if (b == 1 && t == 0) { fence(device); atomic_add(flag[0], 1); }\n"
                              "            if (b == 0) {\n"
                              "                if (t == 0) while (load(flag[0], acquire, device) == 0) { }\n"
                              "                barrier();\n"
                              "                if (t == 63) flag[0] = 0;\n"
                              "            }\n"
                              "            if (b == 2 && t == 0) y[0] = 1;\n"
                              "        }\n"
                              "    }\n"
                              "}\n"
                              "reference k { flag[0] = 0; y[0] = 1; }\n"
                              "test k () { flag[0] = 0; y[0] = 0; } tolerance 0;\n";

static void what_follows_a_load_follows_the_write_that_it_saw(void **state) {
    Arena *a = *state;
    const char *update = "fence(device); atomic_add(flag[0], 1);";
    expect_pass(a, cleared);
    expect_pass(a, without(a, cleared, "b == 1", update, "store(flag[0], 1, release, device);"));
    expect_pass(a, without(a, cleared, "b == 1", update, "store(flag[0], 1, relaxed, device);"));
    expect_report(a, without(a, cleared, "in 64", "barrier();", ""), "T0740");
    expect_report(a, without(a, cleared, "b == 1", update, "flag[0] = 1;"), "T0740");
    expect_report(a, without(a, cleared, "b == 2", "y[0] = 1;", "{ y[0] = 1; flag[0] = 0; }"), "T0740");
}

static const char handshake[] = "kernel k(x: f32[4, 32], y: out f32[4, 32]) {\n"
                                "    grid (b in 1) threads 64 {\n"
                                "        shared s: f32[32], full: mbarrier[1], empty: mbarrier[1];\n"
                                "        thread (t in 64) {\n"
                                "            if (t == 0) { mbarrier_init(full[0], 32); mbarrier_init(empty[0], 32); }\n"
                                "            barrier();\n"
                                "            if (t < 32) {\n"
                                "                for (i in 4) {\n"
                                "                    mbarrier_wait(empty[0], 1 - i % 2);\n"
                                "                    s[t] = x[i, t];\n"
                                "                    mbarrier_arrive(full[0]);\n"
                                "                }\n"
                                "            } else {\n"
                                "                for (i in 4) {\n"
                                "                    mbarrier_wait(full[0], i % 2);\n"
                                "                    y[i, t - 32] = s[63 - t];\n"
                                "                    mbarrier_arrive(empty[0]);\n"
                                "                }\n"
                                "            }\n"
                                "        }\n"
                                "    }\n"
                                "}\n"
                                "reference k { for (i in 4, j in 32) y[i, j] = x[i, 31 - j]; }\n"
                                "test k () tolerance 0;\n";

static void mbarriers_hand_over(void **state) {
    Arena *a = *state;
    expect_pass(a, handshake);
    expect_report(a, without(a, handshake, "in 4", "mbarrier_wait(empty[0], 1 - i % 2);", ""),
                  "T07");   // a race, or a phase missed
    expect_report(a, without(a, handshake, "else", "mbarrier_wait(full[0], i % 2);", ""), "T070");
    expect_report(a, without(a, handshake, "else", "mbarrier_arrive(empty[0]);", ""), "T0705");
    expect_report(a, without(a, handshake, "mbarrier_init", "barrier();", ""), "T070");
}

static const char named[] =
    "kernel k(x: f32[64], y: out f32[64]) {\n"
    "    grid (b in 1) threads 64 {\n"
    "        shared s: f32[32], r: f32[32];\n"
    "        thread (t in 64) {\n"
    "            if (t < 32) { s[t] = x[t]; barrier_arrive(1, 64); barrier(2, 64); y[t] = r[t]; }\n"
    "            else {\n"
    "                r[t - 32] = x[t - 32]; barrier(1, 64); y[t] = s[t - 32] * 0.0 + x[t]; barrier_arrive(2, 64);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 64) y[i] = x[i]; }\n"
    "test k () tolerance 0;\n";

static void named_barriers_count(void **state) {
    expect_pass(*state, named);
    expect_report(*state, without(*state, named, "x[t - 32]", "barrier(1, 64);", ""), "T070");
    expect_report(*state, without(*state, named, "y[t] = s", "barrier_arrive(2, 64);", ""), "T0705");
}

static const char roles[] =
    "kernel k(x: f32[4, 32], y: out f32[4, 32]) {\n"
    "    grid (b in 1) threads 64 {\n"
    "        shared s: f32[32];\n"
    "        role load threads 32 {\n"
    "            thread (t in 32) { for (i in 4) { s[t] = x[i, t]; barrier(1, 64); barrier(2, 64); } }\n"
    "        }\n"
    "        role compute threads 32 {\n"
    "            thread (t in 32) { for (i in 4) { barrier(1, 64); y[i, t] = s[31 - t]; barrier(2, 64); } }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { for (i in 4, j in 32) y[i, j] = x[i, 31 - j]; }\n"
    "test k () tolerance 0;\n";

static void roles_run_side_by_side(void **state) {
    expect_pass(*state, roles);
    const char *both =
        without(*state, without(*state, roles, "s[t]", "barrier(2, 64);", ""), "s[31", "barrier(2, 64);", "");
    expect_report(*state, both, "T0701");
}

static const char tile_roles[] = "kernel k(x: f32[4, 32], y: out f32[4, 32]) {\n"
                                 "    grid (b in 1) threads 96 {\n"
                                 "        shared s: f32[32];\n"
                                 "        role load threads 32 {\n"
                                 "            for (i in 4) { copy(x[i, :], s); barrier(1, 64); barrier(2, 64); }\n"
                                 "        }\n"
                                 "        role compute threads 32 {\n"
                                 "            for (i in 4) { barrier(1, 64); copy(s, y[i, :]); barrier(2, 64); }\n"
                                 "        }\n"
                                 "        role idle threads 32 { barrier(3, 32); }\n"
                                 "    }\n"
                                 "}\n"
                                 "reference k { for (i in 4, j in 32) y[i, j] = x[i, j]; }\n"
                                 "test k () tolerance 0;\n";

static void roles_race_at_tile_stage(void **state) {
    expect_pass(*state, tile_roles);
    const char *first = without(*state, tile_roles, "copy(x", "barrier(2, 64);", "");
    expect_report(*state, without(*state, first, "copy(s", "barrier(2, 64);", ""), "T0701");
    expect_report(*state, without(*state, tile_roles, "copy(s", "barrier(2, 64)", "barrier(2, 96)"), "T0723");
}

// ---- random programs against the definition of a race ----
//
// Straight-line programs of 64 threads on 4 shared elements. All threads meet at every barrier and warp_sync, so what
// is ordered can be read off the text: a before b when they are of one thread, or with a barrier between them, or with
// a warp_sync between them in one warp. An asynchronous copy is an access from where it starts until its thread waits.
typedef enum { READS, WRITES, UPDATES, COPIES, WAITS, BARRIERS, WARP_SYNCS, KINDS } Kind;
typedef struct Event {
    Kind kind;
    int thread, element;
} Event;
enum { MOST_EVENTS = 10, PROGRAMS = 400 };

static int random_below(uint64_t *state, int bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)bound);
}

static bool ordered(const Event *events, int from, int a, int to, int b) {
    if (a == b) return true;
    for (int i = from + 1; i < to; i++)
        if (events[i].kind == BARRIERS || (events[i].kind == WARP_SYNCS && a / 32 == b / 32)) return true;
    return false;
}

static int end_of(const Event *events, int count, int at) {   // where an access is over
    if (events[at].kind != COPIES) return at;
    for (int i = at + 1; i < count; i++)
        if (events[i].kind == WAITS && events[i].thread == events[at].thread) return i;
    return count;
}

static bool races(const Event *events, int count) {
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++) {
            const Event *x = &events[i], *y = &events[k];
            if (x->kind > COPIES || y->kind > COPIES || x->element != y->element) continue;
            if (x->kind == y->kind && (x->kind == READS || x->kind == UPDATES)) continue;
            int end = end_of(events, count, i);
            if (end >= k && x->kind == COPIES) return true;
            if (!ordered(events, end, x->thread, k, y->thread)) return true;
        }
    return false;
}

static const char *program_text(Arena *arena, const Event *events, int count) {
    static const char *const forms[] = {
        [READS] = "if (t == #) v += s[#];\n",
        [WRITES] = "if (t == #) s[#] = 1;\n",
        [UPDATES] = "if (t == #) atomic_add(s[#], 1.0);\n",
        [COPIES] = "if (t == #) cp_async(s[#], x[0], 1);\n",
        [WAITS] = "if (t == #) { cp_async_commit(); cp_async_wait(#); }\n",
        [BARRIERS] = "barrier();\n",
        [WARP_SYNCS] = "warp_sync();\n",
    };
    StrBuf sb;
    sb_init(&sb, arena);
    for (int i = 0; i < count; i++) {
        bool waits = events[i].kind == WAITS;
        int field = 0;
        for (const char *at = forms[events[i].kind]; *at; at++) {
            if (*at != '#') sb_char(&sb, *at);
            else sb_printf(&sb, "%d", field++ == 0 ? events[i].thread : waits ? 0 : events[i].element);
        }
    }
    return sb_text(&sb);
}

static void programs_race_exactly_when_unordered(void **state) {
    uint64_t random = 7;
    int racing = 0;
    for (int n = 0; n < PROGRAMS; n++) {
        static const int threads[] = {0, 1, 33, 40};
        Event events[MOST_EVENTS];
        int count = 2 + random_below(&random, MOST_EVENTS - 1);
        for (int i = 0; i < count; i++)
            events[i] = (Event){(Kind)random_below(&random, KINDS), threads[random_below(&random, 4)],
                                random_below(&random, 2)};
        const char *source = arena_printf(*state,
                                          "kernel k(x: f32[1], y: out f32[64]) {\n"
                                          "  grid (b in 1) threads 64 {\n"
                                          "    shared s: f32[4];\n"
                                          "    thread (t in 64) {\n"
                                          "      var v: f32 = 0;\n"
                                          "      if (t < 4) s[t] = 0;\n"
                                          "      barrier();\n%s"
                                          "      y[t] = v;\n"
                                          "    }\n"
                                          "  }\n"
                                          "}\n"
                                          "reference k { for (i in 64) y[i] = 1; }\n"
                                          "test k () tolerance 1e9;\n",
                                          program_text(*state, events, count));
        bool expected = races(events, count);
        Outcome out = run_source(*state, source, (uint64_t)n);
        if (out.passed == expected) fail_msg("expected %s:\n%s\n%s", expected ? "a race" : "none", source, out.text);
        racing += expected;
    }
    assert_in_range(racing, PROGRAMS / 5, PROGRAMS * 4 / 5);   // both kinds are there
}

static const char endless[] = IN_THREADS("var n: i64 = 0; while (n >= 0) n = 1; y[t] = x[t];");

static void endless_programs_end(void **state) {
    Outcome out = run_source_with(*state, endless, (EmuOptions){.max_steps = 100000});
    assert_false(out.passed);
    assert_non_null(strstr(out.text, "T0715"));   // covers T0715
}

// Blocks that wait for others. `GOES` says how one of two blocks waits for flag[1 - b], which nobody stores before.
#define WAITING(GOES)                                                                                                  \
    "kernel k(flag: inout i32[2], y: out i32[1]) {\n"                                                                  \
    "    grid (b in 2) threads 64 {\n"                                                                                 \
    "        shared s: bool[1];\n"                                                                                     \
    "        thread (t in 64) {\n" GOES "        }\n"                                                                  \
    "    }\n"                                                                                                          \
    "}\n"                                                                                                              \
    "reference k { y[0] = 1; for (i in 2) flag[i] = 1; }\n"                                                            \
    "test k () { for (i in 2) flag[i] = 0; } tolerance 0;\n"

static void blocks_that_only_spin_are_stuck(void **state) {
    static const char *const ways[] = {
        WAITING("while (load(flag[1 - b], relaxed, device) == 0) { }"),
        WAITING("while (!vote_all(load(flag[1 - b], relaxed, device) != 0)) { }"),
        WAITING("var waits: i32 = 0; while (load(flag[1 - b], relaxed, device) == 0) { waits = (waits + 1) % 3; }"),
        WAITING("while (true) {\n"   // one thread looks, and tells the others
                "    if (t == 0) s[0] = atomic_cas(flag[1 - b], 1, 1) == 0;\n"
                "    barrier();\n"
                "    if (!s[0]) break;\n"
                "    barrier();\n"
                "}"),
        WAITING(
            "if (t / 32 == 0) { while (load(flag[1 - b], relaxed, device) == 0) { } }\n"   // and warp 1 at the barrier
            "barrier();"),
    };
    for (int i = 0; i < COUNT_OF(ways); i++) {
        Outcome out = run_source(*state, ways[i], 1);
        if (out.passed || !strstr(out.text, "waits for a value that it loads again and again"))
            fail_msg("%s\n%s", ways[i], out.text);
    }
}

// Nothing is stored for ten million instructions, most of which are of blocks that wait; and one goes on.
static const char long_work[] =
    "kernel k(flag: inout i32[1], y: out i64[1]) {\n"
    "    grid (b in 4) threads 64 {\n"
    "        thread (t in 64) {\n"
    "            if (b == 3) {\n"
    "                var n: i64 = 0;\n"
    "                for (i in 300000) n = (n * 5 + i) % 1000;\n"
    "                if (t == 0) { y[0] = n; store(flag[0], 1, release, device); }\n"
    "            } else while (load(flag[0], acquire, device) == 0) { }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "reference k { var n: i64 = 0; for (i in 300000) n = (n * 5 + i) % 1000; y[0] = n; flag[0] = 1; }\n"
    "test k () { flag[0] = 0; } tolerance 0;\n";

static void work_beside_blocks_that_spin_is_no_deadlock(void **state) {
    Outcome out = run_source(*state, long_work, 1);
    if (!out.passed) fail_msg("%s", out.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(barriers_order_threads),
        IN_ARENA(lanes_of_a_warp_are_threads),
        IN_ARENA(async_copies_land_late),
        IN_ARENA(missing_elements_become_zero),
        IN_ARENA(matrix_product),
        IN_ARENA(matrices_move_and_transpose),
        IN_ARENA(lanes_diverge_and_meet),
        IN_ARENA(faults_are_reported),
        IN_ARENA(print_says_who_and_what),
        IN_ARENA(bank_conflicts_are_counted),
        IN_ARENA(blocks_race_too),
        IN_ARENA(loads_with_an_order_go_with_reads_and_atomics),
        IN_ARENA(release_and_acquire_order_blocks),
        IN_ARENA(scopes_say_who_is_told),
        IN_ARENA(what_follows_a_load_follows_the_write_that_it_saw),
        IN_ARENA(mbarriers_hand_over),
        IN_ARENA(named_barriers_count),
        IN_ARENA(roles_run_side_by_side),
        IN_ARENA(roles_race_at_tile_stage),
        IN_ARENA(programs_race_exactly_when_unordered),
        IN_ARENA(endless_programs_end),
        IN_ARENA(blocks_that_only_spin_are_stuck),
        IN_ARENA(work_beside_blocks_that_spin_is_no_deadlock),
    };
    return run(tests);
}
