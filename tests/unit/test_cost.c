// The cost models of warp-specialized kernels: which of two kernels takes longer, and by how much.
#include "tests/unit/emulator_unit.h"

#include "ir/build.h"
#include "ir/schedule.h"
#include "passes/cost/cost.h"
#include "passes/specialize/warp_specialize.h"

static const Func *kernel_named(Module *module, const char *name) {
    for (int i = 0; i < module->funcs.count; i++)
        if (!strcmp(module->funcs.items[i]->name, name)) return module->funcs.items[i];
    fail_msg("no kernel '%s'", name);
    return NULL;
}

// ---- ping-pong ----

#define PRODUCT(NAME, DECLS, LOADS, STORE)                                                                             \
    "kernel " NAME "(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N], D: out bf16[N, M], W: out f32[M, N]) {\n"        \
    "    grid (i in ceildiv(M, 64), j in ceildiv(N, 64)) threads 128 {\n"                                              \
    "        shared As: bf16[64, 64], Bs: bf16[64, 64];\n"                                                             \
    "        fragment acc: f32[64, 64]" DECLS ";\n"                                                                    \
    "        fill(acc, 0);\n"                                                                                          \
    "        pipelined (k in ceildiv(K, 64), stages = 4) {\n"                                                          \
    "            copy(A[i * 64, k * 64], As);\n"                                                                       \
    "            copy(B[j * 64, k * 64], Bs);\n" LOADS "            gemm(As, Bs.T, acc);\n"                            \
    "        }\n"                                                                                                      \
    "        " STORE ";\n"                                                                                             \
    "    }\n"                                                                                                          \
    "}\n"
#define COLUMNS(NAME, N)                                                                                               \
    "kernel " NAME "(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N]) {\n"                                             \
    "    grid (i in ceildiv(M, 64), j in ceildiv(N, " N ")) threads 128 {\n"                                           \
    "        shared As: bf16[64, 64], Bs: bf16[" N ", 64];\n"                                                          \
    "        fragment acc: f32[64, " N "];\n"                                                                          \
    "        fill(acc, 0);\n"                                                                                          \
    "        pipelined (k in ceildiv(K, 64), stages = 4) {\n"                                                          \
    "            copy(A[i * 64, k * 64], As);\n"                                                                       \
    "            copy(B[j * " N ", k * 64], Bs);\n"                                                                    \
    "            gemm(As, Bs.T, acc);\n"                                                                               \
    "        }\n"                                                                                                      \
    "        copy(acc, C[i * 64, j * " N "]);\n"                                                                       \
    "    }\n"                                                                                                          \
    "}\n"
#define DIRECT "copy(acc, C[i * 64, j * 64])"

// Threads scatter a result of 32 bits to memory; TMA stores the other, transposed or not.
static void results_of_32_bits_are_scattered(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module =
        module_of(*state, &failure,
                  PRODUCT("plain", "", "", DIRECT) PRODUCT("swapped", "", "", "transpose(acc, D[j * 64, i * 64])")
                      PRODUCT("wide", "", "", "copy(acc, W[i * 64, j * 64])"));
    PingpongCost plain = cost_pingpong(*state, target, kernel_named(module, "plain"), 1),
                 swapped = cost_pingpong(*state, target, kernel_named(module, "swapped"), 1),
                 wide = cost_pingpong(*state, target, kernel_named(module, "wide"), 1);
    assert_int_equal(plain.tail, 64 * target->wgmma.tail_clocks);
    assert_int_equal(swapped.tail, plain.tail);
    assert_int_equal(wide.tail - plain.tail, 64 * target->wgmma.scattered_clocks);
    assert_int_equal(wide.step, plain.step);
}

// Two tiles write each sector that their rows share; 40 columns of 2 bytes end within one.
static void rows_end_within_sectors(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module = module_of(*state, &failure, COLUMNS("whole", "48") COLUMNS("within", "40"));
    PingpongCost whole = cost_pingpong(*state, target, kernel_named(module, "whole"), 1),
                 within = cost_pingpong(*state, target, kernel_named(module, "within"), 1);
    assert_int_equal(whole.tail - within.tail, 8 * target->wgmma.tail_clocks - 64 * target->wgmma.sector_clocks);
}

// Rows of a transposed result are columns of the accumulator: of 128 columns of C, whose rows are whole sectors.
static void transposed_rows_end_with_sectors(void **state) {
    static const char text[] = "kernel swapped(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N]) {\n"
                               "    grid (i in ceildiv(M, 40), j in ceildiv(N, 128)) threads 128 {\n"
                               "        shared As: bf16[40, 64], Bs: bf16[128, 64];\n"
                               "        fragment acc: f32[128, 40];\n"
                               "        fill(acc, 0);\n"
                               "        pipelined (k in ceildiv(K, 64), stages = 4) {\n"
                               "            copy(A[i * 40, k * 64], As);\n"
                               "            copy(B[j * 128, k * 64], Bs);\n"
                               "            gemm(Bs, As.T, acc);\n"
                               "        }\n"
                               "        copy(acc, C[i * 40 +: 40, j * 128 +: 128].T);\n"
                               "    }\n"
                               "}\n";
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module = module_of(*state, &failure, text);
    assert_int_equal(cost_pingpong(*state, target, kernel_named(module, "swapped"), 1).tail,
                     2 * 40 * target->wgmma.tail_clocks);
}

// Bytes of a row under way are those of all slots; nothing is known of rows that threads gather.
static void gathered_rows_have_no_traffic(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module =
        module_of(*state, &failure,
                  PRODUCT("plain", "", "", DIRECT)
                      PRODUCT("gathered", "",
                              "parallel (r in 64, c in 64) As[r, c] = A[(i * 64 + r) / 2, k * 64 + c];\n", DIRECT));
    assert_int_equal(cost_pingpong(*state, target, kernel_named(module, "plain"), 1).run, 4 * 128);
    assert_int_equal(cost_pingpong(*state, target, kernel_named(module, "gathered"), 1).run, 0);
}

// What threads read of a tile takes bandwidth of shared memory; what they move between registers takes none.
static void reads_of_tiles_are_counted(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module =
        module_of(*state, &failure,
                  PRODUCT("plain", "", "", DIRECT) PRODUCT("read", ", v: bf16[64, 64]", "copy(Bs, v);\n", DIRECT)
                      PRODUCT("moved", ", v: f32[64, 64]", "copy(acc, v);\n", DIRECT));
    int64_t plain = cost_pingpong(*state, target, kernel_named(module, "plain"), 1).moving,
            read = cost_pingpong(*state, target, kernel_named(module, "read"), 1).moving;
    int64_t more = 64 * 64 * 2 / target->wgmma.shared_bytes;
    assert_in_range(read - plain, more, more + 1);
    assert_int_equal(cost_pingpong(*state, target, kernel_named(module, "moved"), 1).moving, plain);
}

// ---- expressions ----

typedef struct Launch {
    int64_t dim, sms;   // all dims have one extent, but H
    int64_t heads;
} Launch;

static int64_t evaluate(const Expr *e, const Launch *at) {
    int64_t out = 0, args[2];
    switch (e->kind) {
    case EXPR_INT: return e->integer;
    case EXPR_VAR:
        assert_int_equal(e->var->kind, VAR_DIM);   // known before the launch
        return strcmp(e->var->name, "H") ? at->dim : at->heads;
    case EXPR_CAST: return evaluate(e->operand, at);
    case EXPR_SELECT: return evaluate(evaluate(e->select.condition, at) ? e->select.yes : e->select.no, at);
    case EXPR_BINARY:
        assert_true(int_binary(e->binary.op, TYPE_I64, evaluate(e->binary.a, at), evaluate(e->binary.b, at), &out));
        return out;
    case EXPR_CALL:
        if (e->call.op == OP_SMS) return at->sms;
        for (int i = 0; i < 2; i++) args[i] = evaluate(e->call.args[i].value, at);
        if (e->call.op == OP_CEILDIV) return ceil_div(args[0], args[1]);
        return e->call.op == OP_MAX ? larger(args[0], args[1]) : smaller(args[0], args[1]);
    default: fail_msg("an expression of kind %d", e->kind);
    }
    return 0;
}

// ---- cooperative ----

// Two tiles of each head, with one and two steps.
static const char causal[] =
    "kernel causal(Q: bf16[H, M, 64], K: bf16[H, M, 64], V: bf16[H, M, 64], O: out bf16[H, M, 64]) {\n"
    "    grid (m in ceildiv(M, 128), h in H) threads 128 {\n"
    "        shared   Qs: bf16[128, 64], Ks: bf16[128, 64], Vs: bf16[128, 64];\n"
    "        fragment s: f32[128, 128], p: bf16[128, 128], o: f32[128, 64];\n"
    "        copy(Q[h, m * 128, 0], Qs);\n"
    "        fill(o, 0);\n"
    "        pipelined (n in m + 1, stages = 2) {\n"
    "            copy(K[h, n * 128, 0], Ks);\n"
    "            copy(V[h, n * 128, 0], Vs);\n"
    "            fill(s, 0);\n"
    "            gemm(Qs, Ks.T, s);\n"
    "            parallel (i in 128, j in 128) s[i, j] = max(s[i, j], 0);\n"
    "            copy(s, p);\n"
    "            gemm(p, Vs, o);\n"
    "        }\n"
    "        copy(o, O[h, m * 128, 0]);\n"
    "    }\n"
    "}\n";

static double clocks(const LaunchCost *terms, const Expr *steps, const Launch *at) {
    int64_t extents[COST_EXTENTS] = {1, 1, 2 * at->heads, evaluate(steps, at)};   // 2 tiles of each head
    return cost_clocks(terms, extents, at->sms);
}

// Tiles that differ: the hardware starts the next CTA where one ends, so that the multiprocessors end together. Persistent
// CTAs have their tiles beforehand, and differ at the end.
static void unequal_tiles_are_balanced(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module = module_of(*state, &failure, causal);
    Func *kernel = module->funcs.items[0];
    set_claim(*state, (Stmt *)func_grid(kernel), (TileClaim){.kind = CLAIM_ONE});
    Launch few = {256, 100, 1}, many = {256, 100, 100};   // 2 tiles; 200, two for each multiprocessor
    LaunchCost terms;
    Expr *steps = cost_cooperative(*state, target, kernel, false, &terms);
    assert_non_null(steps);
    double tile = clocks(&terms, steps, &few);
    assert_true(clocks(&terms, steps, &many) == 2 * tile);
    set_claim(*state, (Stmt *)func_grid(kernel), (TileClaim){.kind = CLAIM_STATIC});
    steps = cost_cooperative(*state, target, kernel, false, &terms);
    double next = clocks(&terms, steps, &few);
    assert_true(tile - next == (double)target->wgmma.alone_clocks);   // its loads do not run ahead of the tile before
    assert_true(clocks(&terms, steps, &many) > 2 * next);
}

// ---- the evaluator ----

static const LaunchCost plain = {.tile_rows = 128, .tile_columns = 64, .tile_depth = 32, .step = 100, .tail = 30};

static double at(LaunchCost cost, int64_t m, int64_t n, int64_t k) {
    int64_t extents[COST_EXTENTS] = {m, n, 1, k};
    return cost_clocks(&cost, extents, 10);
}

// Tiles are dealt in waves, and partial tiles and steps take as long as whole ones.
static void waves_take_equally_long(void **state) {
    (void)state;
    assert_true(at(plain, 128, 64, 32) == 130);
    assert_true(at(plain, 1, 640, 64) == 230);
    assert_true(at(plain, 1, 641, 33) == 2 * 230);
    assert_true(at(plain, 0, 640, 64) == 0);
}

static void hidden_tails_count_once(void **state) {
    LaunchCost hidden = plain;
    (void)state;
    hidden.hidden = 1;
    assert_true(at(hidden, 1, 641, 33) == 2 * 200 + 30);
}

// Where few CTAs read a tile, memory delivers it, and zeros beyond the end, too.
static void few_readers_wait_for_memory(void **state) {
    LaunchCost streams = plain;
    (void)state;
    streams.stream = 150;
    streams.padding = 1 << 20;
    assert_true(at(streams, 128, 640, 32) == 180);
    assert_true(at(streams, 3 * 128, 3 * 64, 32) == 130);
    assert_true(at(streams, 127, 640, 64) == 330 + 10 * 2);   // a row of 10 tiles in 2 steps
}

// Of 10 multiprocessors 2 clusters of 4 CTAs have a place, but for strays.
static void clusters_share_steps(void **state) {
    LaunchCost split = plain;
    (void)state;
    split.split = 4;
    assert_true(at(split, 256, 64, 40 * 32) == 10 * 100 + 30);
    assert_true(at(split, 3 * 128, 64, 40 * 32) == 2 * (10 * 100 + 30));
    split.stray = 2;
    assert_true(at(split, 256, 64, 40 * 32) == 2 * (10 * 100 + 30));
    split.load = 1000 << 20;
    split.stream = 100;
    assert_true(at(split, 128, 128, 40 * 32) == 2 * (10 * 100 + 30));      // each tile of A and B is read by one
    assert_true(at(split, 256, 128, 40 * 32) == 4 * 40 * 1000 + 4 * 30);   // by two
}

// All operands have to arrive, and of the results those of the last wave to be stored; of two equal limits both count.
static void operands_take_time(void **state) {
    LaunchCost loads = plain;
    (void)state;
    loads.row_bytes = 64;
    loads.column_bytes = 32;
    loads.traffic = 1 << 18;
    double bytes = 128 * 64 + 64 * 32, large = 1280 * 64 + 64 * 32;   // of a step
    assert_true(at(loads, 128, 64, 320) == 10 * bytes / 4 + 30);
    assert_true(at(loads, 1280, 64, 64) == 2 * large / 4 + 30);
    loads.stored = 1 << 19;
    assert_true(at(loads, 128, 64, 320) == 10 * bytes / 4 + 30 + 128 * 64 / 2);
    loads.stored = 0;
    loads.both = 32;
    loads.step = (int64_t)bytes / 4;
    assert_true(at(loads, 128, 64, 320) == 10 * bytes / 4 * 1.32 + 30);
    loads.step /= 2;
    assert_true(at(loads, 128, 64, 320) == 10 * bytes / 4 * 1.02 + 30);
}

// CTAs that share a multiprocessor wait at the same time; what it does for each of them adds up.
static void residents_share_a_multiprocessor(void **state) {
    LaunchCost shared = plain;
    (void)state;
    shared.resident = 2;
    assert_true(at(shared, 1, 1280, 64) == 230);
    assert_true(at(shared, 1, 1281, 64) == 2 * 230);
    shared.load = 8 << 20;
    assert_true(at(shared, 1, 1280, 64) == 20 * 2 * 8 + 30);
}

// Bytes of the problem's own rows and columns, for all of its steps.
static void operands_are_copied_before(void **state) {
    LaunchCost copies = plain;
    (void)state;
    copies.copied_rows = 3 << 20;
    copies.copied_columns = 2 << 20;
    copies.launch = 1000;
    assert_true(at(copies, 128, 64, 32) == 100 + 30 + 1000 + 128 * 3 + 64 * 2);
    assert_true(at(copies, 1, 65, 33) == 2 * 100 + 30 + 1000 + 2 * (3 + 65 * 2));
}

static void slices_fill_the_device(void **state) {
    LaunchCost sliced = plain;
    (void)state;
    sliced.slice_steps = 8;
    sliced.launch = 7;
    assert_true(at(sliced, 128, 64, 40 * 32) == 8 * 100 + 30 + 7);        // 5 slices of 8 steps
    assert_true(at(sliced, 5 * 128, 64, 40 * 32) == 20 * 100 + 30 + 7);   // 2 for each of 5 tiles
    assert_true(at(sliced, 20 * 128, 64, 40 * 32) == 2 * (40 * 100 + 30) + 7);
    sliced.sum = 1 << 20;
    assert_true(at(sliced, 128, 64, 40 * 32) == 8 * 100 + 30 + 7 + 5 * 128 * 64);
}

// A full device takes the clocks that power allows; a few multiprocessors have less of them, and short launches rest.
static void power_limits_a_full_device(void **state) {
    LaunchCost powered = plain;
    (void)state;
    powered.power = 160;
    assert_true(at(powered, 10 * 128, 64, 32) == 160 + 30);
    assert_true(at(powered, 11 * 128, 64, 32) == 2 * (160 + 30));   // a last wave of one tile
    assert_true(at(powered, 5 * 128, 64, 32) == 120 + 30);          // half of them draw three quarters
    assert_true(at(powered, 128, 64, 32) == 100 + 30);
    powered.rest = 500;
    assert_true(at(powered, 10 * 128, 64, 8 * 32) == 8 * 100 + 30);
    assert_true(at(powered, 10 * 128, 64, 80 * 32) == 80 * 160 - 500 + 30);
}

// Rows in two lines of the cache load more, those that start within a sector still more; only of tensors with such a pitch.
static void loads_depend_on_the_pitch(void **state) {
    LaunchCost loads = plain;
    const int64_t rows[] = {128, 64}, steps = 10;
    (void)state;
    loads.fetch = 120;
    loads.first_rows = rows[0];
    loads.second_rows = rows[1];
    loads.crossing = 1 << 20;
    loads.straddle = 2 << 20;
    static const struct {
        int64_t first, second;
        double more;   // clocks of a step
    } pitches[] = {{0, 0, 0},    {256, 0, 0},        {192, 256, 64},      {256, 192, 32},
                   {160, 0, 96}, {16, 0, 112 + 128}, {-16, 0, 112 + 128}, {16, 16, 1.5 * 240}};
    for (int i = 0; i < COUNT_OF(pitches); i++) {
        int64_t extents[COST_EXTENTS] = {128, 64, 1, steps * 32, pitches[i].first, pitches[i].second};
        assert_true(cost_clocks(&loads, extents, 10) == (double)steps * (120 + pitches[i].more) + 30);
    }
}

// Two products of one A, as in examples/gemm_swiglu.tile: clocks of a step of 64 and 104 columns are as 3 to 4, since shared
// memory limits the narrow one, but power takes them nearly as the products (measured: 0.62 to 0.65).
#define TWO(NAME, BN)                                                                                                  \
    "kernel " NAME "(A: bf16[M, K], G: bf16[N, K], U: bf16[N, K], C: out bf16[M, N]) {\n"                              \
    "    grid (i in ceildiv(M, 128), j in ceildiv(N, " BN ")) threads 128 {\n"                                         \
    "        shared As: bf16[128, 64], Gs: bf16[" BN ", 64], Us: bf16[" BN ", 64];\n"                                  \
    "        fragment gate: f32[128, " BN "], up: f32[128, " BN "];\n"                                                 \
    "        fill(gate, 0);\n        fill(up, 0);\n"                                                                   \
    "        pipelined (k in ceildiv(K, 64), stages = 4) {\n"                                                          \
    "            copy(A[i * 128, k * 64], As);\n"                                                                      \
    "            copy(G[j * " BN ", k * 64], Gs);\n            copy(U[j * " BN ", k * 64], Us);\n"                     \
    "            gemm(As, Gs.T, gate);\n            gemm(As, Us.T, up);\n        }\n"                                  \
    "        copy(gate, C[i * 128, j * " BN "]);\n    }\n}\n"

static void power_is_that_of_the_products(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const Target *target = target_named("sm_90a");
    Module *module = module_of(*state, &failure, TWO("narrow", "64") TWO("wide", "104"));
    PingpongCost narrow = cost_pingpong(*state, target, kernel_named(module, "narrow"), 1),
                 wide = cost_pingpong(*state, target, kernel_named(module, "wide"), 1);
    assert_in_range(100 * narrow.step / wide.step, 70, 75);
    assert_in_range(100 * narrow.power / wide.power, 61, 64);
    assert_true(narrow.power > narrow.step && wide.power > wide.step);
}

// Clusters that share loads are dealt whole, to whole clusters of multiprocessors: tiles beyond the end take time, too.
static void clusters_are_dealt_whole(void **state) {
    LaunchCost pairs = plain;
    (void)state;
    pairs.cluster_rows = 2;
    pairs.cluster_columns = 1;
    int64_t three[COST_EXTENTS] = {3 * plain.tile_rows, plain.tile_columns, 1, 10 * plain.tile_depth};
    int64_t four[COST_EXTENTS] = {4 * plain.tile_rows, plain.tile_columns, 1, 10 * plain.tile_depth};
    assert_true(cost_clocks(&pairs, three, 3) == cost_clocks(&plain, four, 2));   // one pair at a time
    assert_true(cost_clocks(&plain, three, 3) < cost_clocks(&pairs, three, 3));
    assert_true(cost_clocks(&pairs, four, 4) == cost_clocks(&plain, four, 4));
    pairs.cluster_rows = 1;
    pairs.cluster_columns = 2;
    assert_true(
        cost_clocks(&pairs, four, 4) ==
        cost_clocks(&plain,
                    (int64_t[COST_EXTENTS]){4 * plain.tile_rows, 2 * plain.tile_columns, 1, 10 * plain.tile_depth}, 4));
}

// CTAs that share steps and loads: a cluster has both numbers of them, and a tile takes the exchange of sums and the waits for others.
static void shared_steps_and_loads_add_up(void **state) {
    LaunchCost both = plain, split = plain;
    int64_t extents[COST_EXTENTS] = {2 * plain.tile_rows, plain.tile_columns, 1, 10 * plain.tile_depth};
    (void)state;
    both.split = split.split = 2;
    both.exchange = split.exchange = 1000;
    both.cluster_rows = 2;
    both.cluster_columns = 1;
    both.meeting = 70;
    assert_true(cost_clocks(&both, extents, 4) == cost_clocks(&split, extents, 4) + both.meeting);
    extents[COST_ROWS] *= 2;   // two clusters of four CTAs, or four of two; one at a time, or three
    assert_true(cost_clocks(&both, extents, 7) > cost_clocks(&split, extents, 8) + 2 * both.meeting);
    assert_true(cost_clocks(&both, extents, 8) < cost_clocks(&both, extents, 7));
}

// No extents, however large, and no row, however strange, is undefined.
static void any_numbers_have_clocks(void **state) {
    static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, 7, INT32_MAX, INT64_MAX};
    (void)state;
    for (int i = 0; i < 10000; i++) {
        LaunchCost cost;
        int64_t extents[COST_EXTENTS];
        unsigned random = (unsigned)i * 2654435761u;
        for (int t = 0; t < COST_TERM_COUNT; t++, random = random * 1664525u + 1013904223u)
            *cost_term(&cost, t) = (int64_t[]){0, 1, 5, INT32_MAX}[random >> 30];
        for (int e = 0; e < COST_EXTENTS; e++, random = random * 1664525u + 1013904223u)
            extents[e] = numbers[(random >> 16) % COUNT_OF(numbers)];
        double value = cost_clocks(&cost, extents, numbers[i % COUNT_OF(numbers)]);
        assert_true(value == value);
        assert_true(value < COST_NEVER);
    }
}

// ---- tiles ----

#define TILE(NAME, LOADS, PRODUCTS, STORE)                                                                             \
    "kernel " NAME "(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N], D: out bf16[N, M], W: out f32[M, N]) {\n"        \
    "    grid (i in ceildiv(M, 128), j in ceildiv(N, 64)) threads 128 {\n"                                             \
    "        shared As: bf16[128, 64], Bs: bf16[64, 64], A2: bf16[128, 64], B2: bf16[64, 64];\n"                       \
    "        fragment acc: f32[128, 64];\n"                                                                            \
    "        fill(acc, 0);\n"                                                                                          \
    "        pipelined (k in ceildiv(K, 128), stages = 3) {\n"                                                         \
    "            copy(A[i * 128, k * 128], As);\n"                                                                     \
    "            copy(B[j * 64, k * 128], Bs);\n" LOADS PRODUCTS "        }\n" STORE ";\n    }\n}\n"
#define MORE_A "            copy(A[i * 128, k * 128 + 64], A2);\n"
#define MORE_B "            copy(B[j * 64, k * 128 + 64], B2);\n"

typedef struct TileCost {
    int64_t m, n, k;
} TileCost;

static TileCost tile_of(Arena *arena, Module *module, const char *name) {
    TileCost tile = {0};
    PingpongCost cost;
    assert_true(cooperative_tile(arena, target_named("sm_90a"), kernel_named(module, name), &tile.m, &tile.n, &cost));
    tile.k = cost.k;
    return tile;
}

static void check_tile(Arena *arena, Module *module, const char *name, TileCost expected) {
    TileCost tile = tile_of(arena, module, name);
    assert_int_equal(tile.m, expected.m);
    assert_int_equal(tile.n, expected.n);
    assert_int_equal(tile.k, expected.k);
}

// Rows and columns of C, also where the result is stored transposed; k counts each operand of a step a single time.
static void tiles_are_those_of_the_result(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = module_of(
        *state, &failure,
        TILE("plain", "", "gemm(As, Bs.T, acc);\n", "copy(acc, C[i * 128, j * 64])")
            TILE("across", "", "gemm(As, Bs.T, acc);\n", "transpose(acc, D[j * 64, i * 128])") TILE(
                "two", MORE_A MORE_B, "gemm(As, Bs.T, acc);\ngemm(A2, B2.T, acc);\n", "copy(acc, C[i * 128, j * 64])")
                TILE("again", MORE_B, "gemm(As, Bs.T, acc);\ngemm(As, B2.T, acc);\n", "copy(acc, C[i * 128, j * 64])"));
    check_tile(*state, module, "plain", (TileCost){128, 64, 64});
    check_tile(*state, module, "across", (TileCost){64, 128, 64});
    check_tile(*state, module, "two", (TileCost){128, 64, 128});
    check_tile(*state, module, "again", (TileCost){128, 64, 64});
}

// ---- steps ----

#define STEPS(NAME, TRIPS)                                                                                             \
    "kernel " NAME "(A: bf16[M, K], B: bf16[N, K], C: out bf16[M, N]) {\n"                                             \
    "    grid (i in ceildiv(M, 64), j in ceildiv(N, 64)) threads 128 {\n"                                              \
    "        shared As: bf16[64, 64], Bs: bf16[64, 64];\n"                                                             \
    "        fragment acc: f32[64, 64];\n"                                                                             \
    "        fill(acc, 0);\n"                                                                                          \
    "        pipelined (k in " TRIPS ", stages = 4) {\n"                                                               \
    "            copy(A[i * 64, k * 64], As);\n"                                                                       \
    "            copy(B[j * 64, k * 64], Bs);\n"                                                                       \
    "            gemm(As, Bs.T, acc);\n"                                                                               \
    "        }\n"                                                                                                      \
    "        copy(acc, C[i * 64, j * 64]);\n"                                                                          \
    "    }\n"                                                                                                          \
    "}\n"

// The most steps of any tile, whichever of the values it has.
static void steps_are_those_of_the_longest_tile(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const char *names[] = {"none_first", "none_last", "more_first", "more_last", "same"};
    int64_t steps[] = {16, 16, 32, 32, 16};
    Module *module = module_of(
        *state, &failure,
        STEPS("none_first", "i == 0 ? 0 : ceildiv(K, 64)") STEPS("none_last", "i == 0 ? ceildiv(K, 64) : 0")
            STEPS("more_first", "i == 0 ? ceildiv(K, 32) : ceildiv(K, 64)")
                STEPS("more_last", "i == 0 ? ceildiv(K, 64) : ceildiv(K, 32)") STEPS("same", "ceildiv(K, 64)"));
    for (int i = 0; i < COUNT_OF(names); i++) {
        Expr *most = specialized_steps(*state, kernel_named(module, names[i]));
        assert_non_null(most);
        assert_int_equal(evaluate(most, &(Launch){1024, 100, 1}), steps[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(results_of_32_bits_are_scattered),
        IN_ARENA(rows_end_within_sectors),
        IN_ARENA(transposed_rows_end_with_sectors),
        IN_ARENA(gathered_rows_have_no_traffic),
        IN_ARENA(reads_of_tiles_are_counted),
        IN_ARENA(unequal_tiles_are_balanced),
        cmocka_unit_test(waves_take_equally_long),
        cmocka_unit_test(hidden_tails_count_once),
        cmocka_unit_test(few_readers_wait_for_memory),
        cmocka_unit_test(operands_take_time),
        cmocka_unit_test(clusters_share_steps),
        cmocka_unit_test(slices_fill_the_device),
        cmocka_unit_test(residents_share_a_multiprocessor),
        cmocka_unit_test(operands_are_copied_before),
        cmocka_unit_test(loads_depend_on_the_pitch),
        cmocka_unit_test(power_limits_a_full_device),
        IN_ARENA(power_is_that_of_the_products),
        cmocka_unit_test(clusters_are_dealt_whole),
        cmocka_unit_test(shared_steps_and_loads_add_up),
        cmocka_unit_test(any_numbers_have_clocks),
        IN_ARENA(steps_are_those_of_the_longest_tile),
        IN_ARENA(tiles_are_those_of_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
