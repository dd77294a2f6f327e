// Every operation and scalar function, on every target that has it: LLVM selects it and ptxas takes it.
#include "tests/unit/codegen_unit.h"

typedef struct Use {
    Kernel *k;
    Arena *a;
    Buf *shared, *global, *local, *bars;   // bf16 but for the barriers
    Buf *out[TYPE_COUNT], *in[TYPE_COUNT];
    int outputs;   // so far: each has a place of its own, so that none is overwritten and dropped
} Use;

static Expr *word(Use *u, int64_t value) {
    return e_int(u->a, value);
}

static void call(Use *u, OpId op, int count, const Arg *args) {
    block_push(u->a, u->k->body, s_call(u->a, op, count, args));
}

#define DO(u, op, ...) call(u, op, COUNT_OF(((Arg[]){__VA_ARGS__})), (Arg[]){__VA_ARGS__})

static Buf *out_of(Use *u, Type type) {
    if (!u->out[type]) {
        u->out[type] = tensor(u->k, arena_printf(u->a, "out_%s", type_text(type)), type, MODE_OUT, word(u, 4096));
    }
    return u->out[type];
}

static Buf *in_of(Use *u, Type type) {
    if (!u->in[type]) {
        u->in[type] = tensor(u->k, arena_printf(u->a, "in_%s", type_text(type)), type, MODE_IN, word(u, 4096));
    }
    return u->in[type];
}

static Expr *input(Use *u, Type type) {
    return e_load1(u->a, in_of(u, type), thread(u->k));
}

static void output(Use *u, Expr *value) {
    Expr *index = e_add(u->a, thread(u->k), word(u, 1024 * u->outputs++));
    block_push(u->a, u->k->body, s_store1(u->a, out_of(u, value->type), index, value));
}

static Arg at(Use *u, Buf *buf, int64_t index) {
    return place(u->k, buf, word(u, index));
}

static Arg at_thread(Use *u, Buf *buf, int64_t scale) {
    Expr *start = word(u, buf->mode == MODE_OUT && buf->is_param ? 4096 * ++u->outputs : 0);
    return place(u->k, buf, e_add(u->a, e_mul(u->a, thread(u->k), word(u, scale)), start));
}

static void start_use(Use *u, Kernel *k) {
    *u = (Use){.k = k, .a = k->arena};
    u->shared = local_buf(k, "shared", SCOPE_SHARED, TYPE_BF16, 4096);
    u->bars = local_buf(k, "bars", SCOPE_SHARED, TYPE_MBARRIER, 4);
    u->local = local_buf(k, "v", SCOPE_LOCAL, TYPE_BF16, 16);
    u->global = in_of(u, TYPE_BF16);
}

// Compiles and assembles for one target; NULL text when the target lacks something.
static const char *assembled(Kernel *k, Failure *failure, const char *target) {
    const char *ptx = ptx_of(k, target);
    AssembleOptions options = {.target = target_named(target)};
    Cubin cubin;
    if (!assemble(k->arena, failure, k->module->sink, ptx, &options, &cubin)) {
        fail_msg("%s for %s:\n%s\n%s", cubin.assembler, target, cubin.log, ptx);
    }
    assert_int_equal(cubin.kernel_count, 1);
    assert_string_equal(cubin.kernels[0].symbol, "test");
    assert_true(cubin.kernels[0].registers > 0);
    assert_int_equal(cubin.kernels[0].stack, 0);
    return ptx;
}

static const char *const targets[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

static void everywhere(Kernel *k, Failure *failure, Feature feature) {
    for (int i = 0; i < COUNT_OF(targets); i++) {
        if (target_has(target_named(targets[i]), feature)) assembled(k, failure, targets[i]);
    }
}

#define USE(threads)                                                                                                   \
    START(k, threads);                                                                                                 \
    Use u;                                                                                                             \
    start_use(&u, &k)

// ---- scalar functions ----

static void math_of(Use *u, Type type) {
    for (OpId op = OP_MIN; op <= OP_MAX; op++) output(u, e_call2(u->a, op, input(u, type), input(u, type)));
    for (OpId op = OP_EXP; op <= OP_ROUND; op++) output(u, e_call1(u->a, op, input(u, type)));
    output(u, e_call1(u->a, OP_ABS, input(u, type)));
    output(u, e_div(u->a, input(u, type), e_call1(u->a, OP_EXP, input(u, type))));
    Expr *quotient = e_div(u->a, input(u, type), e_call1(u->a, OP_SQRT, input(u, type)));
    output(u, e_call1(u->a, OP_IEEE, quotient));
    Arg args[] = {arg_value(input(u, type)), arg_value(input(u, type)), arg_value(input(u, type))};
    output(u, e_call(u->a, OP_FMA, 3, args));
    output(u, e_mod(u->a, input(u, type), e_call1(u->a, OP_EXP, input(u, type))));
}

static void test_math_f32(void **state) {
    USE(128);
    math_of(&u, TYPE_F32);
    everywhere(&k, &failure, FEATURE_BASE);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "ex2.approx.ftz.f32");
    expect_text(ptx, "tanh.approx.f32");
    expect_text(ptx, "rcp.approx.ftz.f32");
    expect_text(ptx, "div.rn.f32");
    expect_text(ptx, "sqrt.rn.f32");
    expect_text(ptx, "sqrt.approx.f32");
    expect_text(ptx, "rsqrt.approx.f32");
    expect_none(ptx, ".func");
}

static void test_math_f64(void **state) {
    USE(128);
    math_of(&u, TYPE_F64);
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_math_small(void **state) {
    USE(128);
    static const Type types[] = {TYPE_F16, TYPE_BF16, TYPE_E4M3, TYPE_E5M2};
    for (int i = 0; i < COUNT_OF(types); i++) math_of(&u, types[i]);
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_integers(void **state) {
    USE(128);
    for (Type type = TYPE_I8; type <= TYPE_U64; type++) {
        Expr *x = input(&u, type), *y = e_call2(u.a, OP_MAX, x, e_int_of(u.a, type, 3));
        for (BinaryOp op = BIN_ADD; op <= BIN_SHR; op++) output(&u, e_binary(u.a, op, x, y));
        for (BinaryOp op = BIN_EQ; op <= BIN_GE; op++) output(&u, e_binary(u.a, op, x, y));
        output(&u, e_unary(u.a, UNARY_NEG, x));
        output(&u, e_unary(u.a, UNARY_BITNOT, x));
        output(&u, e_call1(u.a, OP_ABS, x));
        output(&u, e_call2(u.a, OP_CEILDIV, x, y));
    }
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_conversions(void **state) {
    USE(128);
    for (Type from = TYPE_BOOL; from <= TYPE_E5M2; from++) {
        for (Type to = TYPE_BOOL; to <= TYPE_E5M2; to++) output(&u, e_cast(u.a, to, input(&u, from)));
    }
    output(&u, e_bitcast(u.a, TYPE_U32, input(&u, TYPE_F32)));
    output(&u, e_bitcast(u.a, TYPE_F16, input(&u, TYPE_BF16)));
    output(&u, e_bitcast(u.a, TYPE_U8, input(&u, TYPE_E4M3)));
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_choices(void **state) {
    USE(128);
    Expr *x = input(&u, TYPE_F32), *n = dim(&k, "N");
    Expr *inside = e_lt(u.a, thread(&k), n);
    output(&u, e_select(u.a, inside, x, e_float(u.a, TYPE_F32, 0)));
    Expr *positive = e_lt(u.a, e_float(u.a, TYPE_F32, 0), x);
    Stmt *both = s_if(u.a, e_and(u.a, inside, positive));
    block_push(u.a, &both->if_.then, s_store1(u.a, out_of(&u, TYPE_F32), word(&u, 0), x));
    Stmt *either = s_if(u.a, e_binary(u.a, BIN_LOGICAL_OR, inside, e_unary(u.a, UNARY_NOT, positive)));
    block_push(u.a, &either->if_.then, s_store1(u.a, out_of(&u, TYPE_F32), word(&u, 1), x));
    block_push(u.a, &either->if_.otherwise, s_store1(u.a, out_of(&u, TYPE_F32), word(&u, 2), x));
    block_push(u.a, k.body, both);
    block_push(u.a, k.body, either);
    everywhere(&k, &failure, FEATURE_BASE);
}

// ---- moves ----

static void test_copies(void **state) {
    USE(128);
    for (int count = 2; count <= 8; count *= 2) {
        Arg n = arg_value(word(&u, count)), valid = arg_value(e_cast(u.a, TYPE_I64, input(&u, TYPE_I32)));
        DO(&u, OP_CP_ASYNC, at_thread(&u, u.shared, count), at_thread(&u, u.global, count), n);
        DO(&u, OP_CP_ASYNC, at_thread(&u, u.shared, count), at_thread(&u, u.global, count), n, valid);
    }
    call(&u, OP_CP_ASYNC_COMMIT, 0, NULL);
    DO(&u, OP_CP_ASYNC_WAIT, arg_value(word(&u, 1)));
    call(&u, OP_BARRIER, 0, NULL);
    output(&u, e_load1(u.a, u.shared, thread(&k)));
    everywhere(&k, &failure, FEATURE_CP_ASYNC);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "cp.async.cg.shared.global");
    expect_text(ptx, "cp.async.ca.shared.global");
    expect_text(ptx, "cp.async.commit_group");
    expect_text(ptx, "cp.async.wait_group 	1");
}

static void test_vectors(void **state) {
    USE(128);
    for (Type type = TYPE_BOOL; type <= TYPE_E5M2; type++) {
        for (int bytes = type_bytes(type); bytes <= 16; bytes *= 2) {
            int n = bytes / type_bytes(type);
            Buf *v = local_buf(&k, "w", SCOPE_LOCAL, type, n + n / 4);
            DO(&u, OP_VLOAD, at(&u, v, n / 4), at_thread(&u, in_of(&u, type), n), arg_value(word(&u, n)));
            DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, type), n), at(&u, v, n / 4), arg_value(word(&u, n)));
        }
    }
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_unaligned_loads(void **state) {
    USE(128);
    for (Type type = TYPE_BOOL; type <= TYPE_E5M2; type++) {
        int n = 16 / type_bytes(type);
        if (type == TYPE_BOOL || type_bytes(type) > 4) continue;
        Buf *v = local_buf(&k, "w", SCOPE_LOCAL, type, 2 * n);
        DO(&u, OP_ULOAD, at(&u, v, n), at_thread(&u, in_of(&u, type), 1), arg_value(word(&u, n)));
        DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, type), n), at(&u, v, n), arg_value(word(&u, n)));
    }
    everywhere(&k, &failure, FEATURE_BASE);
    expect_text(ptx_of(&k, "sm_80"), ".v4.b32");
    expect_text(ptx_of(&k, "sm_80"), "prmt.b32.f4e");
}

static void test_recasts(void **state) {
    static const Type types[] = {TYPE_U8, TYPE_E4M3, TYPE_U16, TYPE_BF16, TYPE_F16, TYPE_U32, TYPE_F32, TYPE_F64};
    USE(128);
    for (int i = 0; i < COUNT_OF(types); i++)
        for (int j = 0; j < COUNT_OF(types); j++) {
            int n = 16 / type_bytes(types[i]), m = 16 / type_bytes(types[j]);
            Buf *from = local_buf(&k, "from", SCOPE_LOCAL, types[i], n),
                *to = local_buf(&k, "to", SCOPE_LOCAL, types[j], m);
            DO(&u, OP_VLOAD, at(&u, from, 0), at_thread(&u, in_of(&u, types[i]), n), arg_value(word(&u, n)));
            DO(&u, OP_RECAST, at(&u, to, 0), at(&u, from, 0), arg_value(word(&u, m)));
            DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, types[j]), m), at(&u, to, 0), arg_value(word(&u, m)));
        }
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_vector_additions(void **state) {
    static const Type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    for (volatile int i = 0; i < COUNT_OF(types) * 3; i++) {
        USE(128);
        Type type = types[i / 3];
        int n = 2 << i % 3;
        const RedInfo *info = red_of(type_text(type), n);
        if (!info) continue;
        Buf *v = local_buf(&k, "w", SCOPE_LOCAL, type, n + 2);
        DO(&u, OP_VLOAD, at(&u, v, 2), at_thread(&u, in_of(&u, type), n), arg_value(word(&u, n)));
        DO(&u, OP_VATOMIC_ADD, at_thread(&u, out_of(&u, type), n), at(&u, v, 2), arg_value(word(&u, n)));
        everywhere(&k, &failure, info->feature);
        expect_text(ptx_of(&k, "sm_90"), info->suffix);
    }
}

static void test_byte_matrices(void **state) {
    USE(128);
    Buf *bytes = local_buf(&k, "bytes", SCOPE_LOCAL, TYPE_I8, 16);
    Buf *rows = local_buf(&k, "rows", SCOPE_SHARED, TYPE_I8, 512);
    for (int count = 1; count <= 2; count++) {
        DO(&u, OP_LDMATRIX_BYTES, at(&u, bytes, 0), at_thread(&u, rows, 16), arg_value(word(&u, count)));
        DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, TYPE_I8), 16), at(&u, bytes, 0), arg_value(word(&u, 8 * count)));
    }
    everywhere(&k, &failure, FEATURE_LDMATRIX_BYTES);
}

static void test_matrices(void **state) {
    USE(128);
    for (int count = 1; count <= 4; count *= 2) {
        for (int trans = 0; trans < 2; trans++) {
            Arg n = arg_value(word(&u, count)), t = arg_value(e_bool(u.a, trans));
            DO(&u, OP_LDMATRIX, at(&u, u.local, 0), at_thread(&u, u.shared, 8), n, t);
            DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, TYPE_BF16), 8), at(&u, u.local, 0), arg_value(word(&u, 8)));
        }
    }
    everywhere(&k, &failure, FEATURE_LDMATRIX);
    for (int count = 1; count <= 4; count *= 2) {
        for (int trans = 0; trans < 2; trans++) {
            Arg n = arg_value(word(&u, count)), t = arg_value(e_bool(u.a, trans));
            DO(&u, OP_STMATRIX, at_thread(&u, u.shared, 8), at(&u, u.local, 0), n, t);
        }
    }
    everywhere(&k, &failure, FEATURE_STMATRIX);
}

static void test_mma_table(void **state) {
    for (volatile int i = 0; mma_at(i); i++) {
        USE(128);
        const MmaInfo *info = mma_at(i);
        Type a_type = strcmp(info->a_type, "tf32") ? type_named(info->a_type) : TYPE_F32;
        Type c_type = type_named(info->c_type);
        Buf *a = local_buf(&k, "a", SCOPE_LOCAL, a_type, info->m * info->k / 32);
        Buf *b = local_buf(&k, "b", SCOPE_LOCAL, a_type, info->n * info->k / 32);
        int sums = info->m * info->n / 32;
        Buf *c = local_buf(&k, "c", SCOPE_LOCAL, c_type, sums);
        int n = 16 / type_bytes(a_type), all = info->m * info->k / 32;
        if (n > all) n = all;
        for (int from = 0; from < all; from += n) {
            DO(&u, OP_VLOAD, at(&u, a, from), at_thread(&u, in_of(&u, a_type), n), arg_value(word(&u, n)));
        }
        Arg of_b = arg_value(word(&u, info->n * info->k / 32));
        DO(&u, OP_VLOAD, at(&u, b, 0), at_thread(&u, in_of(&u, a_type), n), of_b);
        DO(&u, OP_VLOAD, at(&u, c, 0), at_thread(&u, in_of(&u, c_type), sums), arg_value(word(&u, sums)));
        DO(&u, OP_MMA, arg_name(info->name), at(&u, a, 0), at(&u, b, 0), at(&u, c, 0));
        DO(&u, OP_VSTORE, at_thread(&u, out_of(&u, c_type), sums), at(&u, c, 0), arg_value(word(&u, sums)));
        everywhere(&k, &failure, info->feature);
    }
}

// ---- lanes, synchronisation, atomics ----

static void test_lanes(void **state) {
    USE(128);
    for (Type type = TYPE_BOOL; type <= TYPE_E5M2; type++) {
        for (OpId op = OP_SHFL_XOR; op <= OP_SHFL_IDX; op++) {
            output(&u, e_call2(u.a, op, input(&u, type), word(&u, 1)));
        }
    }
    output(&u, e_call1(u.a, OP_VOTE_ANY, input(&u, TYPE_BOOL)));
    output(&u, e_call1(u.a, OP_VOTE_ALL, input(&u, TYPE_BOOL)));
    output(&u, e_call(u.a, OP_ELECT, 0, NULL));
    call(&u, OP_WARP_SYNC, 0, NULL);
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_barriers(void **state) {
    USE(128);
    call(&u, OP_BARRIER, 0, NULL);
    DO(&u, OP_BARRIER, arg_value(word(&u, 1)), arg_value(word(&u, 64)));
    DO(&u, OP_BARRIER_ARRIVE, arg_value(word(&u, 2)), arg_value(word(&u, 64)));
    static const char *const scopes[] = {"block", "device", "system"};
    for (int i = 0; i < COUNT_OF(scopes); i++) DO(&u, OP_FENCE, arg_name(scopes[i]));
    everywhere(&k, &failure, FEATURE_BASE);
    DO(&u, OP_FENCE, arg_name("cluster"));
    DO(&u, OP_MBARRIER_INIT, at(&u, u.bars, 1), arg_value(word(&u, 128)));
    DO(&u, OP_MBARRIER_ARRIVE, at(&u, u.bars, 1));
    DO(&u, OP_MBARRIER_ARRIVE, at(&u, u.bars, 1), arg_value(word(&u, 2)));
    DO(&u, OP_MBARRIER_EXPECT, at(&u, u.bars, 1), arg_value(word(&u, 1024)));
    DO(&u, OP_MBARRIER_WAIT, at(&u, u.bars, 1), arg_value(word(&u, 0)));
    everywhere(&k, &failure, FEATURE_MBARRIER);
}

static void test_atomics(void **state) {
    USE(128);
    for (Type type = TYPE_I8; type <= TYPE_F64; type++) {
        Buf *spread = local_buf(&k, "cells", SCOPE_SHARED, type, 64);
        for (OpId op = OP_ATOMIC_ADD; op <= OP_ATOMIC_CAS; op++) {
            bool integers = op_is(op, OP_CLASS_INTEGER);
            if (integers && type_is_float(type)) continue;
            Arg value = arg_value(input(&u, type));
            int count = op == OP_ATOMIC_CAS ? 3 : 2;
            call(&u, op, count, (Arg[]){at(&u, out_of(&u, type), 5), value, value});
            Expr *old = e_call(u.a, op, count, (Arg[]){at(&u, spread, 5), value, value});
            output(&u, old);
        }
    }
    everywhere(&k, &failure, FEATURE_BASE);
}

static void test_ordered(void **state) {
    USE(128);
    static const char *const scopes[] = {"block", "device", "system"};
    for (Type type = TYPE_BOOL; type <= TYPE_E5M2; type++) {
        for (int i = 0; i < COUNT_OF(scopes); i++) {
            Arg scope = arg_name(scopes[i]), from = at(&u, out_of(&u, type), 7);
            output(&u, e_call(u.a, OP_LOAD, 3, (Arg[]){from, arg_name("relaxed"), scope}));
            output(&u, e_call(u.a, OP_LOAD, 3, (Arg[]){from, arg_name("acquire"), scope}));
            Arg value = arg_value(input(&u, type));
            DO(&u, OP_STORE, from, value, arg_name("relaxed"), scope);
            DO(&u, OP_STORE, from, value, arg_name("release"), scope);
        }
    }
    everywhere(&k, &failure, FEATURE_BASE);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "ld.acquire.gpu");
    expect_text(ptx, "st.release.sys");
}

static void test_debugging(void **state) {
    USE(128);
    Arg text = {.name = "100% of", .is_string = true};
    DO(&u, OP_PRINT, text, arg_value(thread(&k)), arg_value(input(&u, TYPE_F32)), arg_value(input(&u, TYPE_U8)));
    DO(&u, OP_ASSERT, arg_value(e_lt(u.a, thread(&k), dim(&k, "N"))), text);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "vprintf");
    expect_text(ptx, "__assertfail");
    AssembleOptions options = {.target = target_named("sm_80")};
    Cubin cubin;
    assert_true(assemble(u.a, &failure, k.module->sink, ptx, &options, &cubin));
}

// Every row of ops.def that may stand at thread stage has its row in codegen, and no other op has one.
static void test_every_op_has_code(void **state) {
    (void)state;
    for (OpId op = 0; op < OP_COUNT; op++) {
        bool expected = op_is_pure(op) || op_info(op)->stages & STAGE_BIT_THREAD;
        if (op_has_code(op) != expected)
            fail_msg("%s: codegen has %s row for it", op_info(op)->text, expected ? "no" : "a");
    }
}

// covers T0801
static void test_missing_feature(void **state) {
    USE(128);
    DO(&u, OP_STMATRIX, at_thread(&u, u.shared, 8), at(&u, u.local, 0), arg_value(word(&u, 4)),
       arg_value(e_bool(u.a, false)));
    CodegenOptions options = {.target = target_named("sm_80"), .optimize = 1};
    CodegenResult result;
    assert_false(codegen_module(k.module, &options, false, &result));
    assert_int_equal(diag_view(k.module->sink, 0).code, T_NEEDS_FEATURE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_math_f32),  IN_ARENA(test_math_f64),        IN_ARENA(test_math_small),
        IN_ARENA(test_integers),  IN_ARENA(test_conversions),     IN_ARENA(test_choices),
        IN_ARENA(test_copies),    IN_ARENA(test_vectors),         IN_ARENA(test_vector_additions),
        IN_ARENA(test_recasts),   IN_ARENA(test_unaligned_loads), IN_ARENA(test_byte_matrices),
        IN_ARENA(test_matrices),  IN_ARENA(test_mma_table),       IN_ARENA(test_lanes),
        IN_ARENA(test_barriers),  IN_ARENA(test_atomics),         IN_ARENA(test_ordered),
        IN_ARENA(test_debugging), IN_ARENA(test_missing_feature), IN_ARENA(test_every_op_has_code),
    };
    return run(tests);
}
