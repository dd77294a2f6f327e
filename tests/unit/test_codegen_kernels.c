// Small thread-stage kernels, built by hand, to PTX: what instructions they become.
#include "tests/unit/codegen_unit.h"

static void test_elementwise(void **state) {
    START(k, 256);
    Arena *a = k.arena;
    Expr *n = dim(&k, "N");
    Buf *x = tensor(&k, "x", TYPE_F32, MODE_IN, n), *y = tensor(&k, "y", TYPE_F32, MODE_OUT, n);
    Expr *at = global_index(&k, 256);
    Stmt *guard = s_if(a, e_lt(a, at, n));
    Expr *value = e_add(a, e_load1(a, x, at), e_float(a, TYPE_F32, 1));
    block_push(a, &guard->if_.then, s_store1(a, y, at, value));
    block_push(a, k.body, guard);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, ".entry test");
    expect_text(ptx, ".reqntid 256, 1, 1");
    expect_text(ptx, "ld.global.nc.b32");
    expect_text(ptx, "add.rn.f32");
    expect_text(ptx, "st.global.b32");
    expect_none(ptx, "mad.lo.s64");
}

static void test_vector_access(void **state) {
    START(k, 128);
    Arena *a = k.arena;
    Expr *n = dim(&k, "N");
    Buf *x = tensor(&k, "x", TYPE_BF16, MODE_IN, n), *y = tensor(&k, "y", TYPE_BF16, MODE_OUT, n);
    Buf *v = local_buf(&k, "v", SCOPE_LOCAL, TYPE_BF16, 8);
    Expr *at = e_mul(a, global_index(&k, 128), e_int(a, 8)), *eight = e_int(a, 8), *zero = e_int(a, 0);
    block_push(a, k.body, s_call(a, OP_VLOAD, 3, (Arg[]){place(&k, v, zero), place(&k, x, at), arg_value(eight)}));
    Var *i = var_new(a, "i", VAR_ITER, TYPE_I64, nowhere);
    Stmt *loop = s_for(a, LOOP_UNROLL, i, zero, eight);
    Expr *element = e_load1(a, v, e_var(a, i));
    Expr *wide = e_mul(a, e_cast(a, TYPE_F32, element), e_float(a, TYPE_F32, 0.3));
    block_push(a, &loop->loop.body, s_store1(a, v, e_var(a, i), e_cast(a, TYPE_BF16, wide)));
    block_push(a, k.body, loop);
    block_push(a, k.body, s_call(a, OP_VSTORE, 3, (Arg[]){place(&k, y, at), place(&k, v, zero), arg_value(eight)}));
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "ld.global.nc.v4.b32");
    expect_text(ptx, "cvt.rn.bf16x2.f32");
    expect_text(ptx, "st.global.v4.b32");
    expect_none(ptx, ".local");
}

// The main loop of a matrix product: ldmatrix and mma, 128 accumulators.
static void make_mma(Kernel *k, int tiles_m, int tiles_n) {
    Arena *a = k->arena;
    Buf *out = tensor(k, "out", TYPE_F32, MODE_OUT, e_int(a, 1 << 20));
    Buf *as = local_buf(k, "as", SCOPE_SHARED, TYPE_BF16, 8192), *bs = local_buf(k, "bs", SCOPE_SHARED, TYPE_BF16, 8192);
    Buf *acc = local_buf(k, "acc", SCOPE_LOCAL, TYPE_F32, tiles_m * tiles_n * 4);
    Buf *av = local_buf(k, "av", SCOPE_LOCAL, TYPE_BF16, tiles_m * 8);
    Buf *bv = local_buf(k, "bv", SCOPE_LOCAL, TYPE_BF16, tiles_n * 4);
    Var *r = var_new(a, "r", VAR_ITER, TYPE_I64, nowhere), *s = var_new(a, "s", VAR_ITER, TYPE_I64, nowhere);
    Var *kk = var_new(a, "kk", VAR_ITER, TYPE_I64, nowhere), *i = var_new(a, "i", VAR_ITER, TYPE_I64, nowhere);
    Var *j = var_new(a, "j", VAR_ITER, TYPE_I64, nowhere), *kt = var_new(a, "k", VAR_ITER, TYPE_I64, nowhere);
    Var *i2 = var_new(a, "i", VAR_ITER, TYPE_I64, nowhere), *j2 = var_new(a, "j", VAR_ITER, TYPE_I64, nowhere);
    Expr *zero = e_int(a, 0), *steps = dim(k, "K");
    Stmt *fill = s_for(a, LOOP_UNROLL, r, zero, e_int(a, tiles_m * tiles_n * 4));
    block_push(a, &fill->loop.body, s_store1(a, acc, e_var(a, r), e_float(a, TYPE_F32, 0)));
    block_push(a, k->body, fill);
    Stmt *outer = s_for(a, LOOP_SERIAL, kt, zero, steps), *inner = s_for(a, LOOP_UNROLL, kk, zero, e_int(a, 4));
    block_push(a, k->body, outer);
    block_push(a, &outer->loop.body, inner);
    block_push(a, &outer->loop.body, s_call(a, OP_BARRIER, 0, NULL));
    Stmt *la = s_for(a, LOOP_UNROLL, i, zero, e_int(a, tiles_m)), *lb = s_for(a, LOOP_UNROLL, j, zero, e_int(a, tiles_n / 2));
    Expr *lane = e_mul(a, e_mod(a, thread(k), e_int(a, 32)), e_int(a, 8));
    Expr *arow = e_add(a, lane, e_add(a, e_mul(a, e_var(a, i), e_int(a, 1024)), e_mul(a, e_var(a, kk), e_int(a, 16))));
    Expr *brow = e_add(a, lane, e_add(a, e_mul(a, e_var(a, j), e_int(a, 1024)), e_mul(a, e_var(a, kk), e_int(a, 16))));
    Arg four = arg_value(e_int(a, 4)), plain = arg_value(e_bool(a, false));
    block_push(a, &la->loop.body, s_call(a, OP_LDMATRIX, 4, (Arg[]){place(k, av, e_mul(a, e_var(a, i), e_int(a, 8))), place(k, as, arow), four, plain}));
    block_push(a, &lb->loop.body, s_call(a, OP_LDMATRIX, 4, (Arg[]){place(k, bv, e_mul(a, e_var(a, j), e_int(a, 8))), place(k, bs, brow), four, plain}));
    block_push(a, &inner->loop.body, la);
    block_push(a, &inner->loop.body, lb);
    Stmt *mi = s_for(a, LOOP_UNROLL, i2, zero, e_int(a, tiles_m)), *mj = s_for(a, LOOP_UNROLL, j2, zero, e_int(a, tiles_n));
    Expr *at = e_mul(a, e_add(a, e_mul(a, e_var(a, i2), e_int(a, tiles_n)), e_var(a, j2)), e_int(a, 4));
    block_push(a, &mj->loop.body, s_call(a, OP_MMA, 4, (Arg[]){arg_name("m16n8k16_f32_bf16"), place(k, av, e_mul(a, e_var(a, i2), e_int(a, 8))), place(k, bv, e_mul(a, e_var(a, j2), e_int(a, 4))), place(k, acc, at)}));
    block_push(a, &mi->loop.body, mj);
    block_push(a, &inner->loop.body, mi);
    Stmt *store = s_for(a, LOOP_UNROLL, s, zero, e_int(a, tiles_m * tiles_n));
    Expr *element = e_mul(a, e_var(a, s), e_int(a, 4));
    Expr *to = e_add(a, e_mul(a, thread(k), e_int(a, tiles_m * tiles_n * 4)), element);
    block_push(a, &store->loop.body, s_call(a, OP_VSTORE, 3, (Arg[]){place(k, out, to), place(k, acc, element), four}));
    block_push(a, k->body, store);
}

static void test_mma(void **state) {
    START(k, 256);
    make_mma(&k, 4, 8);
    const char *ptx = ptx_of(&k, "sm_80");
    expect_text(ptx, "ldmatrix.sync.aligned.m8n8.x4.shared.b16");
    expect_text(ptx, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    expect_text(ptx, "bar.sync");
    expect_none(ptx, ".local");
    int count = 0;
    for (const char *p = ptx; (p = strstr(p, "mma.sync")); p++) count++;
    assert_int_equal(count, 128);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(test_elementwise), IN_ARENA(test_vector_access), IN_ARENA(test_mma)};
    return run(tests);
}
