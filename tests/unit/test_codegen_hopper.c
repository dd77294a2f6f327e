// Mbarriers, TMA and wgmma: the PTX text, and that ptxas takes it without a note about serialised instructions.
#include "tests/unit/codegen_unit.h"

typedef struct Use {
    Kernel k;
    Arena *a;
    Failure *failure;
    Buf *tile, *bars, *acc, *a_regs;
    Var *map;
    Expr *k_index;   // of the loop around the product; NULL: none
} Use;

static Expr *number(Use *u, int64_t value) {
    return e_int(u->a, value);
}

static Arg at(Use *u, Buf *buf, int64_t index) {
    return place(&u->k, buf, number(u, index));
}

static void call(Use *u, Block *block, OpId op, int count, const Arg *args) {
    block_push(u->a, block, s_call(u->a, op, count, args));
}
#define DO(u, block, op, ...) call(u, block, op, COUNT_OF(((Arg[]){__VA_ARGS__})), (Arg[]){__VA_ARGS__})
#define N(value) arg_value(number(u, value))

static void start_use(Use *u, Arena *arena, Failure *failure) {
    *u = (Use){.a = arena, .failure = failure};
    kernel_start(&u->k, arena, failure, 128);
    u->tile = local_buf(&u->k, "tile", SCOPE_SHARED, TYPE_BF16, 32768);
    u->tile->align = 1024;
    u->bars = local_buf(&u->k, "bars", SCOPE_SHARED, TYPE_MBARRIER, 4);
    u->map = var_new(arena, "A_map", VAR_PARAM, TYPE_TENSORMAP, nowhere);
    vec_push(arena, &u->k.func->params, ((Param){.var = u->map}));
}

static const char *assembled(Use *u) {
    const char *ptx = ptx_of(&u->k, "sm_90a");
    AssembleOptions options = {.target = target_named("sm_90a")};
    Cubin cubin;
    if (!assemble(u->a, u->failure, u->k.module->sink, ptx, &options, &cubin)) {
        fail_msg("%s:\n%s\n%s", cubin.assembler, cubin.log, ptx);
    }
    if (strstr(cubin.log, "(C75")) fail_msg("%s\n%s", cubin.log, ptx);
    assert_int_equal(cubin.kernels[0].stack, 0);
    assert_int_equal(cubin.kernels[0].spill_stores, 0);
    return ptx;
}

static int occurrences(const char *text, const char *piece) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, piece)) != NULL; at++) count++;
    return count;
}

// Moves from register to register: between the accumulators of a loop stands nothing but the instructions themselves.
static int moves(const char *ptx) {
    int count = 0;
    for (const char *at = ptx; (at = strstr(at, "mov.b32")) != NULL; at++) {
        const char *comma = strchr(at, ',');
        count += comma && comma[1] == ' ' && comma[2] == '%' && comma[3] == 'r';
    }
    return count;
}

static void a_tensor_map_is_read_where_it_is(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Use use, *u = &use;
    start_use(u, *state, &failure);
    Block *b = u->k.body;
    Arg map = arg_value(e_var(u->a, u->map));
    DO(u, b, OP_MBARRIER_INIT, at(u, u->bars, 0), N(1));
    DO(u, b, OP_FENCE_MBARRIER_INIT, {0});
    DO(u, b, OP_MBARRIER_EXPECT, at(u, u->bars, 0), N(16384));
    DO(u, b, OP_TMA_LOAD, at(u, u->tile, 0), map, at(u, u->bars, 0), {0}, {0}, N(64), N(128));
    DO(u, b, OP_TMA_LOAD, at(u, u->tile, 1024), map, at(u, u->bars, 0), {0}, {0}, N(1), N(2), N(3), N(4), N(5));
    DO(u, b, OP_MBARRIER_WAIT, at(u, u->bars, 0), N(0));
    DO(u, b, OP_MBARRIER_ARRIVE, at(u, u->bars, 1));
    DO(u, b, OP_FENCE_ASYNC, {0});
    DO(u, b, OP_TMA_STORE, map, at(u, u->tile, 0), N(64), N(128), N(7));
    DO(u, b, OP_BULK_COMMIT, {0});
    DO(u, b, OP_BULK_WAIT, N(1), arg_name("read"));
    DO(u, b, OP_BULK_WAIT, N(0));
    const char *ptx = assembled(u);
    expect_text(ptx, ".param .align 64 .b8 test_param_0[128]");
    expect_none(ptx, ".local");
    assert_int_equal(occurrences(ptx, "prefetch.tensormap"), 1);
    expect_text(ptx, "mbarrier.init.shared.b64");
    assert_int_equal(occurrences(ptx, "fence.mbarrier_init.release.cluster"), 1);
    expect_text(ptx, "mbarrier.arrive.expect_tx.shared.b64");
    expect_text(ptx, "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes");
    expect_text(ptx, "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes");
    expect_text(ptx, "mbarrier.try_wait.parity.shared.b64");
    expect_text(ptx, "mbarrier.arrive.shared.b64");
    expect_text(ptx, "fence.proxy.async.shared::cta");
    expect_text(ptx, "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group");
    expect_text(ptx, "cp.async.bulk.commit_group");
    expect_text(ptx, "cp.async.bulk.wait_group.read");
}

// A wgmma statement with operands in shared memory (a NULL) or registers.
static void product(Use *u, Block *block, const char *shape, Buf *a, const char *a_form, const char *b_form, int steps,
                    Expr *accumulate) {
    Arg args[14] = {arg_name(shape), at(u, a ? a : u->tile, 0), at(u, u->tile, 8192), at(u, u->acc, 0), N(steps)};
    if (!a) {
        args[5] = arg_name(a_form);
        args[6] = N(a_form[0] == 'k' ? 16 : 8192);
        args[7] = N(1024);
        args[8] = N(32);
    }
    args[9] = arg_name(b_form);
    args[10] = N(b_form[0] == 'k' ? 16 : 8192);
    args[11] = N(1024);
    args[12] = N(b_form[0] == 'k' ? 32 : 2048);
    if (accumulate) args[13] = arg_value(accumulate);
    call(u, block, OP_WGMMA, 14, args);
}

static void store_accumulators(Use *u) {
    Buf *out = tensor(&u->k, "out", u->acc->type, MODE_OUT, number(u, 1 << 20));
    for (int64_t i = 0; i < u->acc->shape[0]->integer; i++) {
        Expr *index = e_add(u->a, thread(&u->k), number(u, 128 * i));
        block_push(u->a, u->k.body, s_store1(u->a, out, index, e_load1(u->a, u->acc, number(u, i))));
    }
}

// The shape's straight-line program: fence, product, commit, wait.
static const char *straight(Arena *arena, Failure *failure, const char *shape, Type acc, int64_t acc_count, Type a_type,
                            int64_t a_count, const char *a_form, const char *b_form) {
    Use use, *u = &use;
    start_use(u, arena, failure);
    Block *b = u->k.body;
    u->acc = local_buf(&u->k, "acc", SCOPE_LOCAL, acc, acc_count);
    Buf *a = a_count ? local_buf(&u->k, "a", SCOPE_LOCAL, a_type, a_count) : NULL;
    for (int64_t i = 0; i < a_count; i++) {
        block_push(arena, b, s_store1(arena, a, number(u, i), e_cast(arena, a_type, thread(&u->k))));
    }
    DO(u, b, OP_WGMMA_FENCE, {0});
    product(u, b, shape, a, a_form, b_form, 2, e_bool(arena, false));
    DO(u, b, OP_WGMMA_COMMIT, {0});
    DO(u, b, OP_WGMMA_WAIT, N(0));
    store_accumulators(u);
    return assembled(u);
}

static void every_type_and_form(void **state) {
    static const struct {
        const char *shape;
        Type acc;
        int64_t acc_count;
        Type a_type;
        int64_t a_count;
        const char *a_form, *b_form, *text;
    } rows[] = {
        {"m64n64k16_f32_bf16", TYPE_F32, 32, 0, 0, "k128", "k128", "m64n64k16.f32.bf16.bf16"},
        {"m64n200k16_f32_f16", TYPE_F32, 100, 0, 0, "mn128", "mn64", ", a, b, 0, 1, 1, 1, 1;"},
        {"m64n8k16_f16_f16", TYPE_F16, 4, 0, 0, "k0", "mn0", ", a, b, 0, 1, 1, 0, 1;"},
        {"m64n64k8_f32_tf32", TYPE_F32, 32, 0, 0, "k32", "k64", ", a, b, 0, 1, 1;"},
        {"m64n64k32_f32_e4m3_e5m2", TYPE_F32, 32, 0, 0, "k128", "k128", "m64n64k32.f32.e4m3.e5m2"},
        {"m64n64k32_i32_i8", TYPE_I32, 32, 0, 0, "k128", "k128", "m64n64k32.s32.s8.s8"},
        {"m64n32k32_i32_u8_i8", TYPE_I32, 16, 0, 0, "k128", "k128", ", a, b, 0;"},
        {"m64n64k16_f32_bf16", TYPE_F32, 32, TYPE_BF16, 16, NULL, "mn128", ", b, 0, 1, 1, 1;"},
        {"m64n64k32_f32_e4m3", TYPE_F32, 32, TYPE_E4M3, 32, NULL, "k128", ", b, 0, 1, 1;"},
        {"m64n64k8_f32_tf32", TYPE_F32, 32, TYPE_F32, 8, NULL, "k128", "m64n64k8.f32.tf32.tf32"},
    };
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const char *ptx = straight(*state, &failure, rows[i].shape, rows[i].acc, rows[i].acc_count, rows[i].a_type,
                                   rows[i].a_count, rows[i].a_form, rows[i].b_form);
        expect_text(ptx, rows[i].text);
        assert_int_equal(occurrences(ptx, "wgmma.mma_async"), 2);
    }
}

static void a_run_is_one_piece(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const char *ptx = straight(*state, &failure, "m64n128k16_f32_bf16", TYPE_F32, 64, 0, 0, "k128", "k128");
    assert_int_equal(occurrences(ptx, "begin inline asm"), 3);   // with the base and the prefetch of the map
    expect_text(ptx, "mov.b32 high, 0x40000040;");
    expect_text(ptx, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}");
    assert_int_equal(moves(ptx), 0);
}

// A loop with one group pending across the back edge: the accumulators stay where they are.
static void accumulators_of_a_loop_do_not_move(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Use use, *u = &use;
    start_use(u, *state, &failure);
    Block *b = u->k.body;
    u->acc = local_buf(&u->k, "acc", SCOPE_LOCAL, TYPE_F32, 128);
    Var *step = var_new(u->a, "step", VAR_ITER, TYPE_I64, nowhere);
    Stmt *loop = s_for(u->a, LOOP_SERIAL, step, number(u, 0), dim(&u->k, "K"));
    Block *body = &loop->loop.body;
    DO(u, body, OP_MBARRIER_WAIT, at(u, u->bars, 0), N(0));
    DO(u, body, OP_WGMMA_FENCE, {0});
    Expr *later = e_lt(u->a, number(u, 0), e_var(u->a, step));
    product(u, body, "m64n256k16_f32_bf16", NULL, "k128", "k128", 4, later);
    DO(u, body, OP_WGMMA_COMMIT, {0});
    DO(u, body, OP_WGMMA_WAIT, N(1));
    DO(u, body, OP_MBARRIER_ARRIVE, at(u, u->bars, 1));
    block_push(u->a, b, loop);
    DO(u, b, OP_WGMMA_WAIT, N(0));
    store_accumulators(u);
    const char *ptx = assembled(u);
    assert_int_equal(occurrences(ptx, "wgmma.mma_async"), 4);
    if (moves(ptx) > 0) fail_msg("%d moves in\n%s", moves(ptx), ptx);
}

static void targets_without_it_say_so(void **state) {
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Use use, *u = &use;
    start_use(u, *state, &failure);
    DO(u, u->k.body, OP_WGMMA_COMMIT, {0});
    CodegenOptions options = {.target = target_named("sm_90"), .optimize = 1};
    CodegenResult result;
    assert_false(codegen_module(u->k.module, &options, false, &result));
    assert_int_equal(diag_errors(u->k.module->sink), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(a_tensor_map_is_read_where_it_is),   IN_ARENA(every_type_and_form),       IN_ARENA(a_run_is_one_piece),
        IN_ARENA(accumulators_of_a_loop_do_not_move), IN_ARENA(targets_without_it_say_so),
    };
    return run(tests);
}
