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

// ---- the main loop of a matrix product: ldmatrix and mma with tiles_m x tiles_n x 4 accumulators ----

static Var *iterator(Kernel *k, const char *name) {
    return var_new(k->arena, name, VAR_ITER, TYPE_I64, nowhere);
}

static Stmt *unroll(Kernel *k, Var *var, int64_t count) {
    return s_for(k->arena, LOOP_UNROLL, var, e_int(k->arena, 0), e_int(k->arena, count));
}

static Expr *times(Kernel *k, Var *var, int64_t factor) {
    return e_mul(k->arena, e_var(k->arena, var), e_int(k->arena, factor));
}

// unroll (i in count) ldmatrix(to[i * 8], from[t % 32 * 8 + i * 1024 + kk * 16], 4, false);
static Stmt *load_matrices(Kernel *k, Buf *to, Buf *from, Var *kk, int count) {
    Arena *a = k->arena;
    Var *i = iterator(k, "i");
    Expr *lane = e_mul(a, e_mod(a, thread(k), e_int(a, 32)), e_int(a, 8));
    Expr *row = e_add(a, e_add(a, lane, times(k, i, 1024)), times(k, kk, 16));
    Arg args[] = {place(k, to, times(k, i, 8)), place(k, from, row), arg_value(e_int(a, 4)),
                  arg_value(e_bool(a, false))};
    Stmt *loop = unroll(k, i, count);
    block_push(a, &loop->loop.body, s_call(a, OP_LDMATRIX, 4, args));
    return loop;
}

// unroll (i, j) mma(shape, a[i * 8], b[j * 4], acc[(i * tiles_n + j) * 4]);
static Stmt *multiply(Kernel *k, Buf *av, Buf *bv, Buf *acc, int tiles_m, int tiles_n) {
    Arena *a = k->arena;
    Var *i = iterator(k, "i"), *j = iterator(k, "j");
    Expr *tile = e_mul(a, e_add(a, times(k, i, tiles_n), e_var(a, j)), e_int(a, 4));
    Arg args[] = {arg_name("m16n8k16_f32_bf16"), place(k, av, times(k, i, 8)), place(k, bv, times(k, j, 4)),
                  place(k, acc, tile)};
    Stmt *outer = unroll(k, i, tiles_m), *inner = unroll(k, j, tiles_n);
    block_push(a, &inner->loop.body, s_call(a, OP_MMA, 4, args));
    block_push(a, &outer->loop.body, inner);
    return outer;
}

static void make_mma(Kernel *k, int tiles_m, int tiles_n) {
    Arena *a = k->arena;
    int elements = tiles_m * tiles_n * 4;
    Buf *out = tensor(k, "out", TYPE_F32, MODE_OUT, e_int(a, 1 << 20));
    Buf *as = local_buf(k, "as", SCOPE_SHARED, TYPE_BF16, 8192);
    Buf *bs = local_buf(k, "bs", SCOPE_SHARED, TYPE_BF16, 8192);
    Buf *acc = local_buf(k, "acc", SCOPE_LOCAL, TYPE_F32, elements);
    Buf *av = local_buf(k, "av", SCOPE_LOCAL, TYPE_BF16, tiles_m * 8);
    Buf *bv = local_buf(k, "bv", SCOPE_LOCAL, TYPE_BF16, tiles_n * 4);
    Var *r = iterator(k, "r"), *kk = iterator(k, "kk"), *s = iterator(k, "s");

    Stmt *fill = unroll(k, r, elements);
    block_push(a, &fill->loop.body, s_store1(a, acc, e_var(a, r), e_float(a, TYPE_F32, 0)));
    block_push(a, k->body, fill);

    Stmt *steps = s_for(a, LOOP_SERIAL, iterator(k, "k"), e_int(a, 0), dim(k, "K")), *inner = unroll(k, kk, 4);
    block_push(a, &inner->loop.body, load_matrices(k, av, as, kk, tiles_m));
    block_push(a, &inner->loop.body, load_matrices(k, bv, bs, kk, tiles_n / 2));
    block_push(a, &inner->loop.body, multiply(k, av, bv, acc, tiles_m, tiles_n));
    block_push(a, &steps->loop.body, inner);
    block_push(a, &steps->loop.body, s_call(a, OP_BARRIER, 0, NULL));
    block_push(a, k->body, steps);

    Stmt *store = unroll(k, s, elements / 4);
    Expr *to = e_add(a, e_mul(a, thread(k), e_int(a, elements)), times(k, s, 4));
    Arg args[] = {place(k, out, to), place(k, acc, times(k, s, 4)), arg_value(e_int(a, 4))};
    block_push(a, &store->loop.body, s_call(a, OP_VSTORE, 3, args));
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
