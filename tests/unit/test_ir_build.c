// Tables, constructors and the arithmetic of constants.
#include "ir/build.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

static void tables_answer(void **state) {
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const OpInfo *info = op_info((OpId)op);
        assert_int_equal(op_named(info->text), op);
        for (int i = 0; i < info->operand_count; i++) {
            const Operand *operand = &info->operands[i];
            assert_non_null(operand->name);
            bool memory =
                operand->access == ACCESS_READ || operand->access == ACCESS_WRITE || operand->access == ACCESS_UPDATE;
            assert_true(!memory || operand->scopes);
        }
    }
    assert_int_equal(op_named("no_such_op"), OP_COUNT);
    assert_int_equal(op_info(OP_REDUCE_SUM)->operand_count, 5);
    assert_int_equal(op_info(OP_SMS)->operand_count, 0);
    assert_true(op_is_pure(OP_SMS) && !op_is_pure(OP_COPY));
    for (int type = 0; type < TYPE_COUNT; type++) assert_int_equal(type_named(type_text((Type)type)), type);
    assert_int_equal(type_named("f128"), TYPE_NONE);
    assert_int_equal(type_compute(TYPE_E4M3), TYPE_F32);
    assert_int_equal(type_compute(TYPE_F64), TYPE_F64);
    for (int id = 0; id < ATTR_COUNT; id++) assert_int_equal(attr_named(attr_name((AttrId)id)), id);
}

static void attributes_are_set_and_removed(void **state) {
    Arena *arena = *state;
    Attr *list = NULL;
    attr_set_int(arena, &list, ATTR_VECTOR, 8);
    attr_set_ints(arena, &list, ATTR_WARPS, 2, (int64_t[]){2, 4});
    attr_set_text(arena, &list, ATTR_VIA, "mma");
    attr_set_int(arena, &list, ATTR_VECTOR, 4);
    assert_int_equal(list->id, ATTR_VECTOR);   // setting again keeps the order
    assert_int_equal(attr_int(list, ATTR_VECTOR, 0), 4);
    assert_int_equal(attr_get(list, ATTR_WARPS)->args[1].integer, 4);
    assert_string_equal(attr_text(list, ATTR_VIA), "mma");
    attr_remove(&list, ATTR_WARPS);
    attr_remove(&list, ATTR_WARPS);
    assert_null(attr_get(list, ATTR_WARPS));
    assert_int_equal(attr_int(list, ATTR_OFFSET, -1), -1);
}

// Every value of a small format is a fixed point, and the middle between two neighbours goes to the even one.
static void check_format(Type type, int digits, int least, double largest) {
    double unit = ldexp(1, least - digits);
    double previous = 0;
    bool odd = false;
    while (previous < largest) {
        double next = previous + unit;
        if (next > ldexp(1, 1 + digits) * unit) unit *= 2, next = previous + unit;
        assert_true(float_round(type, next) == next);
        assert_true(float_round(type, -next) == -next);
        double middle = (previous + next) / 2, even = odd ? next : previous;
        assert_true(float_round(type, middle) == even);
        assert_true(float_round(type, nextafter(middle, 0)) == previous);
        assert_true(float_round(type, nextafter(middle, INFINITY)) == next);
        previous = next;
        odd = !odd;
    }
    assert_true(previous == largest);
}

static void floats_round_to_nearest_even(void **state) {
    (void)state;
    check_format(TYPE_F16, 10, -14, 65504);
    check_format(TYPE_E4M3, 3, -6, 448);
    check_format(TYPE_E5M2, 2, -14, 57344);
    assert_true(isinf(float_round(TYPE_F16, 65520)));
    assert_true(float_round(TYPE_F16, 65519.99) == 65504);
    assert_true(float_round(TYPE_E4M3, 1e9) == 448 && float_round(TYPE_E4M3, -INFINITY) == -448);
    assert_true(float_round(TYPE_E5M2, INFINITY) == 57344);
    assert_true(isnan(float_round(TYPE_E4M3, NAN)));
    assert_true(signbit(float_round(TYPE_BF16, -0.0)));
    uint64_t random = 5;
    for (int n = 0; n < 100000; n++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        double value;
        uint64_t bits = (random >> 2 & ~((uint64_t)0x7ff << 52)) | (uint64_t)(1023 - 160 + random % 320) << 52;
        memcpy(&value, &bits, sizeof value);
        assert_true(float_round(TYPE_F32, value) == (double)(float)value);
    }
    // bfloat16: 1 + 2^-8 is the middle, 1 + 3 * 2^-8 too.
    assert_true(float_round(TYPE_BF16, 1 + 0x1p-8) == 1);
    assert_true(float_round(TYPE_BF16, 1 + 0x3p-8) == 1 + 0x1p-6);
    assert_true(float_round(TYPE_F64, 0.1) == 0.1);
}

static int64_t folded(const Expr *e) {
    assert_int_equal(e->kind, EXPR_INT);
    return e->integer;
}

static Expr *of(Arena *arena, Type type, int64_t value) {
    return e_int_of(arena, type, value);
}

static void integers_wrap(void **state) {
    Arena *arena = *state;
    assert_int_equal(folded(e_add(arena, of(arena, TYPE_I8, 100), of(arena, TYPE_I8, 100))), -56);
    assert_int_equal(folded(e_add(arena, of(arena, TYPE_U8, 200), of(arena, TYPE_U8, 100))), 44);
    assert_int_equal(folded(e_sub(arena, of(arena, TYPE_U32, 0), of(arena, TYPE_U32, 1))), UINT32_MAX);
    assert_true(folded(e_mul(arena, e_int(arena, INT64_MAX), e_int(arena, 2))) == -2);
    assert_int_equal(folded(e_div(arena, e_int(arena, -7), e_int(arena, 2))), -3);
    assert_int_equal(folded(e_mod(arena, e_int(arena, -7), e_int(arena, 2))), -1);
    assert_true(folded(e_div(arena, e_int(arena, INT64_MIN), e_int(arena, -1))) == INT64_MIN);
    assert_int_equal(folded(e_mod(arena, e_int(arena, INT64_MIN), e_int(arena, -1))), 0);
    assert_true(folded(e_div(arena, of(arena, TYPE_U64, -1), of(arena, TYPE_U64, 2))) == INT64_MAX);
    assert_int_equal(folded(e_lt(arena, of(arena, TYPE_U64, -1), of(arena, TYPE_U64, 2))), 0);
    assert_int_equal(folded(e_binary(arena, BIN_SHR, of(arena, TYPE_I32, -8), of(arena, TYPE_I32, 1))), -4);
    assert_true(folded(e_binary(arena, BIN_SHR, of(arena, TYPE_U64, -8), of(arena, TYPE_I32, 1))) == INT64_MAX - 3);
    assert_int_equal(e_div(arena, e_int(arena, 1), e_int(arena, 0))->kind, EXPR_BINARY);   // never folded
    assert_int_equal(e_mod(arena, e_int(arena, 0), e_int(arena, 0))->kind, EXPR_BINARY);
    assert_int_equal(folded(e_binary(arena, BIN_SHL, of(arena, TYPE_I32, 1), of(arena, TYPE_I32, 32))), 0);
    assert_int_equal(folded(e_binary(arena, BIN_SHL, of(arena, TYPE_I64, 1), of(arena, TYPE_I64, -1))), 0);
    assert_int_equal(folded(e_binary(arena, BIN_SHR, of(arena, TYPE_I32, -8), of(arena, TYPE_I32, 40))), -1);
    assert_int_equal(folded(e_binary(arena, BIN_SHR, of(arena, TYPE_U64, -8), of(arena, TYPE_I32, 64))), 0);
}

static void conversions_fold(void **state) {
    Arena *arena = *state;
    assert_int_equal(folded(e_cast(arena, TYPE_I8, e_float(arena, TYPE_F32, 1e9))), 127);
    assert_int_equal(folded(e_cast(arena, TYPE_U8, e_float(arena, TYPE_F32, -3))), 0);
    assert_int_equal(folded(e_cast(arena, TYPE_I32, e_float(arena, TYPE_F32, -2.9))), -2);
    assert_int_equal(folded(e_cast(arena, TYPE_I32, e_float(arena, TYPE_F32, NAN))), 0);
    assert_true(folded(e_cast(arena, TYPE_U64, e_float(arena, TYPE_F64, 1e30))) == -1);
    assert_int_equal(folded(e_cast(arena, TYPE_U8, e_int(arena, 300))), 44);
    assert_int_equal(folded(e_cast(arena, TYPE_BOOL, e_float(arena, TYPE_F32, 0.5))), 1);
    // Rounded once: 2^53 + 2^29 + 1 is above the middle of two f32, which a double cannot tell.
    int64_t above = ((int64_t)1 << 60) + ((int64_t)1 << 36) + 1;
    assert_true(e_cast(arena, TYPE_F32, e_int(arena, above))->real == 0x1p60 + 0x1p37);
    assert_true(e_cast(arena, TYPE_F32, of(arena, TYPE_U64, -1))->real == 0x1p64);
    assert_true(e_cast(arena, TYPE_BF16, e_int(arena, 257))->real == 256);
    Expr *x = e_var(arena, var_new(arena, "x", VAR_PARAM, TYPE_I32, (Span){0}));
    assert_ptr_equal(e_cast(arena, TYPE_I32, x), x);
    assert_int_equal(e_cast(arena, TYPE_I64, x)->kind, EXPR_CAST);
}

static void neutral_elements_disappear(void **state) {
    Arena *arena = *state;
    Expr *x = e_var(arena, var_new(arena, "x", VAR_PARAM, TYPE_I64, (Span){0}));
    Expr *f = e_var(arena, var_new(arena, "f", VAR_PARAM, TYPE_F32, (Span){0}));
    Expr *zero = e_int(arena, 0), *one = e_int(arena, 1);
    assert_ptr_equal(e_add(arena, x, zero), x);
    assert_ptr_equal(e_add(arena, zero, x), x);
    assert_ptr_equal(e_mul(arena, one, x), x);
    assert_ptr_equal(e_div(arena, x, one), x);
    assert_ptr_equal(e_xor(arena, x, zero), x);
    assert_int_equal(folded(e_mul(arena, x, zero)), 0);
    assert_int_equal(folded(e_mod(arena, x, one)), 0);
    assert_int_equal(folded(e_div(arena, zero, x)), 0);
    assert_int_equal(e_sub(arena, zero, x)->kind, EXPR_BINARY);
    assert_ptr_equal(e_min(arena, x, x), x);
    Expr *c = e_lt(arena, x, one), *yes = e_bool(arena, true), *no = e_bool(arena, false);
    assert_ptr_equal(e_and(arena, c, yes), c);
    assert_ptr_equal(e_and(arena, yes, c), c);
    assert_int_equal(folded(e_and(arena, c, no)), 0);
    assert_ptr_equal(e_select(arena, yes, x, one), x);
    assert_ptr_equal(e_select(arena, c, x, x), x);
    assert_ptr_equal(e_unary(arena, UNARY_NOT, e_unary(arena, UNARY_NOT, c)), c);
    // Floats: x + 0 is not x for -0; x * 1 and x - 0 are.
    assert_ptr_equal(e_mul(arena, f, e_float(arena, TYPE_F32, 1)), f);
    assert_ptr_equal(e_sub(arena, f, e_float(arena, TYPE_F32, 0)), f);
    assert_int_equal(e_add(arena, f, e_float(arena, TYPE_F32, 0))->kind, EXPR_BINARY);
    assert_int_equal(e_mul(arena, f, e_float(arena, TYPE_F32, 0))->kind, EXPR_BINARY);
    assert_true(e_add(arena, e_float(arena, TYPE_F32, 0.1), e_float(arena, TYPE_F32, 0.2))->real ==
                (double)(0.1f + 0.2f));
    // What has an effect is not dropped.
    Buf *buf = buf_new_const(arena, "n", SCOPE_GLOBAL, TYPE_I64, 1, (int64_t[]){1}, (Span){0});
    Arg args[] = {arg_region(region_element(arena, buf, 1, &zero)), arg_value(one)};
    Expr *bump = e_call(arena, OP_ATOMIC_ADD, 2, args);
    assert_int_equal(bump->type, TYPE_I64);
    assert_int_equal(e_mul(arena, bump, zero)->kind, EXPR_BINARY);
}

static void calls_have_types(void **state) {
    Arena *arena = *state;
    Expr *h = e_var(arena, var_new(arena, "h", VAR_PARAM, TYPE_F16, (Span){0}));
    Expr *n = e_var(arena, var_new(arena, "n", VAR_PARAM, TYPE_I32, (Span){0}));
    assert_int_equal(e_call1(arena, OP_EXP, n)->type, TYPE_F32);
    assert_int_equal(e_call1(arena, OP_EXP, h)->type, TYPE_F16);
    assert_int_equal(e_max(arena, h, n)->type, TYPE_F32);
    assert_int_equal(e_max(arena, n, e_int(arena, 3))->type, TYPE_I64);
    assert_int_equal(e_call(arena, OP_SMS, 0, NULL)->type, TYPE_I64);
    assert_int_equal(folded(e_call2(arena, OP_CEILDIV, e_int(arena, 65), e_int(arena, 64))), 2);
    assert_int_equal(folded(e_max(arena, e_int(arena, -5), e_int(arena, 3))), 3);
    assert_int_equal(e_call1(arena, OP_EXP, e_float(arena, TYPE_F32, 0))->kind, EXPR_CALL);
}

static void regions_have_shapes(void **state) {
    Arena *arena = *state;
    Buf *buf = buf_new_const(arena, "b", SCOPE_SHARED, TYPE_F16, 3, (int64_t[]){2, 32, 64}, (Span){0});
    Region *whole = region_whole(arena, buf);
    assert_true(region_is_whole(whole));
    assert_int_equal(region_rank(whole), 3);
    RegionDim dims[] = {
        {e_int(arena, 1), NULL, 1}, {e_int(arena, 0), e_int(arena, 32), 0}, {e_int(arena, 16), e_int(arena, 8), 0}};
    Region *slice = region_new(arena, buf, dims, true, (Span){0});
    assert_false(region_is_whole(slice));
    assert_int_equal(region_rank(slice), 2);
    assert_int_equal(region_extent(slice, 0), 8);   // transposed
    assert_int_equal(region_extent(slice, 1), 32);
    dims[2].tile = 64;   // clips
    Region *clipped = region_new(arena, buf, dims, false, (Span){0});
    assert_int_equal(region_extent(clipped, 1), 64);
    assert_false(region_is_whole_slot(clipped));
}

static void blocks_grow_and_shrink(void **state) {
    Arena *arena = *state;
    Block block = {0};
    Stmt *stmts[20];
    for (int i = 0; i < 20; i++) block_push(arena, &block, stmts[i] = s_block(arena));
    block_insert(arena, &block, 3, stmts[19]);
    assert_ptr_equal(block.items[3], stmts[19]);
    assert_ptr_equal(block.items[4], stmts[3]);
    block_remove(&block, 3);
    assert_ptr_equal(block.items[3], stmts[3]);
    block_append(arena, &block, &block);
    assert_int_equal(block.count, 40);
    assert_ptr_equal(block.items[39], stmts[19]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(tables_answer),
        IN_ARENA(attributes_are_set_and_removed),
        IN_ARENA(floats_round_to_nearest_even),
        IN_ARENA(integers_wrap),
        IN_ARENA(conversions_fold),
        IN_ARENA(neutral_elements_disappear),
        IN_ARENA(calls_have_types),
        IN_ARENA(regions_have_shapes),
        IN_ARENA(blocks_grow_and_shrink),
    };
    return run(tests);
}
