// What affine.h knows of comparisons, quotients, minima and casts, against all values that the unknowns may have.
#include "ir/build.h"
#include "passes/analysis/affine.h"
#include "unit.h"

enum { MOST = 3 };   // of the unknown

static Expr *sum_of(Arena *arena, Var *x, int64_t factor, int64_t constant) {
    return e_plus(arena, e_times(arena, e_var(arena, x), factor), constant);
}

static bool holds(BinaryOp op, int64_t a, int64_t b) {
    int64_t value = -1;
    assert_true(int_binary(op, TYPE_I64, a, b, &value));
    return value;
}

// How often `a x + b op c x + d` holds for x in 0 .. MOST: decided where it does for all or for none. Of == and !=, where
// the values of one side are all below the other's, or all equal.
static void check_comparison(Arena *arena, BinaryOp op, const int64_t n[4]) {
    AffineEnv *env = affine_env(arena);
    Var *x = var_new(arena, "x", VAR_LET, TYPE_I64, (Span){0});
    affine_bind(env, x, affine_more(env, 1, MOST));
    Affine value = affine_of(env, e_binary(arena, op, sum_of(arena, x, n[0], n[1]), sum_of(arena, x, n[2], n[3])));
    int64_t told = -1, often = 0, below = 0, equal = 0;
    for (int64_t at = 0; at <= MOST; at++) {
        int64_t left = n[0] * at + n[1], right = n[2] * at + n[3];
        often += holds(op, left, right);
        below += left < right;
        equal += left == right;
    }
    bool known = affine_is_const(&value, &told);
    if (known) assert_int_equal(often, told ? MOST + 1 : 0);
    bool ordered = op != BIN_EQ && op != BIN_NE,
         one_side = below == MOST + 1 || below + equal == 0 || equal == MOST + 1;
    assert_int_equal(known, ordered ? often == 0 || often == MOST + 1 : one_side);
}

static void comparisons_hold_for_all_values(void **state) {
    static const BinaryOp ops[] = {BIN_LT, BIN_LE, BIN_GT, BIN_GE, BIN_EQ, BIN_NE};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int64_t a = -2; a <= 2; a++)
            for (int64_t b = -7; b <= 7; b++)
                for (int64_t c = -1; c <= 1; c++) check_comparison(*state, ops[o], (int64_t[]){a, b, c, 0});
}

static void quotients_round_up(void **state) {
    AffineEnv *env = affine_env(*state);
    static const int64_t rows[][3] = {{0, 3, 0}, {7, 7, 1}, {8, 7, 2}, {INT64_MAX, 2, INT64_MAX / 2 + 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Var *a = var_new(*state, "a", VAR_LET, TYPE_I64, (Span){0}),
            *b = var_new(*state, "b", VAR_LET, TYPE_I64, (Span){0});
        affine_bind(env, a, affine_const(rows[i][0]));
        affine_bind(env, b, affine_const(rows[i][1]));
        Expr *call = E_CALL(*state, OP_CEILDIV, arg_value(e_var(*state, a)), arg_value(e_var(*state, b)));
        Affine value = affine_of(env, call);
        int64_t told = -1;
        assert_true(affine_is_const(&value, &told));
        assert_int_equal(told, rows[i][2]);
    }
}

// Two numbers that differ may be one in fewer bits.
static void narrow_casts_are_unknown(void **state) {
    AffineEnv *env = affine_env(*state);
    Var *x = var_new(*state, "x", VAR_LET, TYPE_I64, (Span){0});
    affine_forget(env, x);
    Expr *near = e_cast(*state, TYPE_U8, e_var(*state, x)), *far = e_cast(*state, TYPE_U8, sum_of(*state, x, 1, 256));
    Affine a = affine_of(env, near), b = affine_of(env, far), between = affine_add(b, a, -1);
    int64_t distance;
    assert_false(affine_is_const(&between, &distance) && distance != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(comparisons_hold_for_all_values), IN_ARENA(quotients_round_up),
                                       IN_ARENA(narrow_casts_are_unknown)};
    return run(tests);
}
