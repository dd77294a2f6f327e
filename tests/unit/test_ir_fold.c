// Folded constants are what the host computes of the same expression; equality and what may be dropped.
#include "ir/build.h"
#include "runtime/plan/plan.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <string.h>

static const Type integers[] = {TYPE_I8, TYPE_I16, TYPE_I32, TYPE_I64, TYPE_U8, TYPE_U16, TYPE_U32, TYPE_U64};
static const int64_t numbers[] = {0,  1,   -1,  2,   3,     -3,    7,         8,          31,        32,       63,
                                  64, 127, 128, 255, 32767, -8000, INT32_MAX, 2147483648, INT64_MAX, INT64_MIN};
static const double reals[] = {0.0, -0.0, 1, -1, 0.5, 2.5, -2.5, 3, 1e-30, 0.1, 300, INFINITY, -INFINITY, NAN};

typedef struct Pair {   // x and y of a type, with their values
    Arena *arena;
    Expr *x, *y;
    HostScope scope;
} Pair;

static Expr *name_of(Arena *arena, HostScope *scope, const char *text, Scalar value) {
    HostName name = {text, value};
    vec_push(arena, &scope->names, name);
    return e_var(arena, var_new(arena, text, VAR_PARAM, value.type, (Span){0}));
}

static Pair pair_of(Arena *arena, Scalar x, Scalar y) {
    Pair p = {.arena = arena};
    p.x = name_of(arena, &p.scope, "x", x);
    p.y = name_of(arena, &p.scope, "y", y);
    return p;
}

static bool is_constant(const Expr *e) {
    return e->kind == EXPR_INT || e->kind == EXPR_FLOAT;
}

// A constant of the expression with values in the place of the names is what the host computes of it with names, where it
// can: 0 divided by a name is 0.
static void agree(Pair *p, Expr *names, const Expr *constants) {
    Scalar value;
    const char *why = NULL;
    if (!is_constant(constants) || !host_eval(p->arena, &p->scope, names, &value, &why)) return;
    assert_int_equal(constants->type, value.type);
    if (constants->kind == EXPR_INT && constants->integer != value.integer)
        fail_msg("%s(%lld, %lld) is %lld, folded %lld", type_text(p->x->type),
                 (long long)p->scope.names.items[0].value.integer, (long long)p->scope.names.items[1].value.integer,
                 (long long)value.integer, (long long)constants->integer);
    if (constants->kind == EXPR_FLOAT)
        assert_true(isnan(value.real)
                        ? isnan(constants->real)
                        : constants->real == value.real && signbit(constants->real) == signbit(value.real));
}

static void binary_agrees(Pair *p, BinaryOp op, Expr *x, Expr *y) {
    agree(p, e_binary(p->arena, op, p->x, p->y), e_binary(p->arena, op, x, y));
    agree(p, e_binary(p->arena, op, p->x, p->y), e_binary(p->arena, op, p->x, y));   // x * 0
    agree(p, e_binary(p->arena, op, p->x, p->y), e_binary(p->arena, op, x, p->y));
}

static bool folds_always(BinaryOp op) {
    return op != BIN_DIV && op != BIN_MOD && op != BIN_SHL && op != BIN_SHR;
}

static void integers_fold_as_the_host_computes(void **state) {
    for (int t = 0; t < COUNT_OF(integers); t++)
        for (int i = 0; i < COUNT_OF(numbers); i++)
            for (int j = 0; j < COUNT_OF(numbers); j++) {
                Type type = integers[t];
                Scalar a = scalar_integer(type, numbers[i]), b = scalar_integer(type, numbers[j]);
                Pair p = pair_of(*state, a, b);
                Expr *x = e_int_of(*state, type, numbers[i]), *y = e_int_of(*state, type, numbers[j]);
                for (BinaryOp op = 0; op < BIN_LOGICAL_AND; op++) {
                    binary_agrees(&p, op, x, y);
                    bool constant = is_constant(e_binary(*state, op, x, y));
                    assert_true(constant || !folds_always(op));
                    if (op == BIN_DIV || op == BIN_MOD) assert_int_equal(constant, b.integer != 0);
                }
                agree(&p, e_min(*state, p.x, p.y), e_min(*state, x, y));
                agree(&p, e_max(*state, p.x, p.y), e_max(*state, x, y));
                if (a.integer >= 0 && b.integer > 0)
                    agree(&p, e_call2(*state, OP_CEILDIV, p.x, p.y), e_call2(*state, OP_CEILDIV, x, y));
                agree(&p, e_call1(*state, OP_ABS, p.x), e_call1(*state, OP_ABS, x));
                agree(&p, e_unary(*state, UNARY_NEG, p.x), e_unary(*state, UNARY_NEG, x));
                agree(&p, e_unary(*state, UNARY_BITNOT, p.x), e_unary(*state, UNARY_BITNOT, x));
            }
}

static void truths_fold_as_the_host_computes(void **state) {
    for (int i = 0; i < 4; i++) {
        Pair p = pair_of(*state, scalar_integer(TYPE_BOOL, i & 1), scalar_integer(TYPE_BOOL, i >> 1));
        Expr *x = e_bool(*state, i & 1), *y = e_bool(*state, i >> 1);
        binary_agrees(&p, BIN_LOGICAL_AND, x, y);
        binary_agrees(&p, BIN_LOGICAL_OR, x, y);
        binary_agrees(&p, BIN_EQ, x, y);
        binary_agrees(&p, BIN_NE, x, y);
        agree(&p, e_unary(*state, UNARY_NOT, p.x), e_unary(*state, UNARY_NOT, x));
        agree(&p, e_select(*state, p.x, p.y, p.x), e_select(*state, x, y, x));
    }
}

static void floats_fold_as_the_host_computes(void **state) {
    static const Type types[] = {TYPE_F32, TYPE_F64};
    static const BinaryOp ops[] = {BIN_ADD, BIN_SUB, BIN_MUL, BIN_DIV, BIN_EQ, BIN_NE, BIN_LT, BIN_LE, BIN_GT, BIN_GE};
    static const OpId calls[] = {OP_ABS, OP_FLOOR, OP_CEIL, OP_ROUND, OP_RELU};
    for (int t = 0; t < COUNT_OF(types); t++)
        for (int i = 0; i < COUNT_OF(reals); i++)
            for (int j = 0; j < COUNT_OF(reals); j++) {
                Pair p = pair_of(*state, scalar_real(types[t], reals[i]), scalar_real(types[t], reals[j]));
                Expr *x = e_float(*state, types[t], reals[i]), *y = e_float(*state, types[t], reals[j]);
                for (int k = 0; k < COUNT_OF(ops); k++) binary_agrees(&p, ops[k], x, y);
                for (int k = 0; k < COUNT_OF(calls); k++)
                    agree(&p, e_call1(*state, calls[k], p.x), e_call1(*state, calls[k], x));
                agree(&p, e_min(*state, p.x, p.y), e_min(*state, x, y));
                agree(&p, e_max(*state, p.x, p.y), e_max(*state, x, y));
                agree(&p, e_unary(*state, UNARY_NEG, p.x), e_unary(*state, UNARY_NEG, x));
                for (int k = 0; k < COUNT_OF(integers); k++)
                    agree(&p, e_cast(*state, integers[k], p.x), e_cast(*state, integers[k], x));
            }
}

// ---- equality ----

typedef struct Named {
    Buf *b, *c;
    Expr *x, *y, *f;
} Named;

enum { DISTINCT = 38 };

// Expressions of the names, each of which differs from the others in one field or more.
static void distinct(Arena *a, const Named *n, Expr *out[DISTINCT]) {
    Buf *b = n->b, *c = n->c;
    Expr *x = n->x, *y = n->y, *f = n->f, *two[] = {x, y}, *swapped[] = {y, x};
    Region *place = region_element(a, b, 2, two), *other = region_element(a, b, 2, swapped),
           *elsewhere = region_element(a, c, 2, two);
    RegionDim wide[] = {{x, e_int(a, 4), 0}, {y, e_int(a, 4), 0}},
              narrow[] = {{x, e_int(a, 4), 0}, {y, e_int(a, 2), 0}},
              clipped[] = {{x, e_int(a, 4), 8}, {y, e_int(a, 4), 8}};
#define ARGS(...) (Arg[]){__VA_ARGS__}
    Expr *all[DISTINCT] = {
        x,
        f,
        e_int(a, 3),
        e_int(a, 4),
        e_int_of(a, TYPE_I32, 3),
        e_float(a, TYPE_F64, 0.0),
        e_float(a, TYPE_F64, -0.0),
        e_load(a, b, 2, two),
        e_load(a, b, 2, swapped),
        e_load(a, c, 2, two),
        e_unary(a, UNARY_NEG, x),
        e_unary(a, UNARY_BITNOT, x),
        e_add(a, x, y),
        e_sub(a, x, y),
        e_sub(a, y, x),
        e_sub(a, x, x),
        e_select(a, e_lt(a, x, y), x, y),
        e_select(a, e_lt(a, x, y), y, x),
        e_select(a, e_lt(a, y, x), x, y),
        e_select(a, e_lt(a, x, y), x, e_int(a, 1)),
        e_cast(a, TYPE_I32, x),
        e_cast(a, TYPE_I32, y),
        e_bitcast(a, TYPE_F64, x),
        e_min(a, x, y),
        e_max(a, x, y),
        e_call1(a, OP_ABS, x),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(place), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(place), arg_value(y))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(other), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(elsewhere), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(region_new(a, b, wide, false, (Span){0})), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(region_new(a, b, wide, true, (Span){0})), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(region_new(a, b, narrow, false, (Span){0})), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 2, ARGS(arg_region(region_new(a, b, clipped, false, (Span){0})), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 3, ARGS(arg_region(place), arg_value(x), arg_name("relaxed"))),
        e_call(a, OP_ATOMIC_ADD, 3, ARGS(arg_region(place), arg_value(x), arg_name("device"))),
        e_call(a, OP_ATOMIC_ADD, 3, ARGS(arg_region(place), arg_value(x), arg_value(x))),
        e_call(a, OP_ATOMIC_ADD, 3,
               ARGS(arg_region(place), arg_value(x), ((Arg){.name = "relaxed", .is_string = true}))),
    };
#undef ARGS
    memcpy(out, all, sizeof all);
}

static void every_field_counts(void **state) {
    Arena *a = *state;
    Named n = {.b = buf_new_const(a, "b", SCOPE_SHARED, TYPE_I64, 2, (int64_t[]){8, 8}, (Span){0}),
               .c = buf_new_const(a, "c", SCOPE_SHARED, TYPE_I64, 2, (int64_t[]){8, 8}, (Span){0}),
               .x = e_var(a, var_new(a, "x", VAR_PARAM, TYPE_I64, (Span){0})),
               .y = e_var(a, var_new(a, "y", VAR_PARAM, TYPE_I64, (Span){0})),
               .f = e_var(a, var_new(a, "f", VAR_PARAM, TYPE_F64, (Span){0}))};
    Expr *some[DISTINCT], *again[DISTINCT];
    distinct(a, &n, some);
    distinct(a, &n, again);
    for (int i = 0; i < DISTINCT; i++) {
        assert_non_null(some[i]);
        assert_false(expr_equal(some[i], NULL));
        assert_false(expr_equal(NULL, some[i]));
        for (int j = 0; j < DISTINCT; j++)
            if (expr_equal(some[i], again[j]) != (i == j)) fail_msg("%d and %d", i, j);
    }
}

// x * 0 is 0 unless x has an effect, however deep it lies.
static void effects_stay(void **state) {
    Arena *a = *state;
    Buf *b = buf_new_const(a, "b", SCOPE_SHARED, TYPE_I64, 1, (int64_t[]){8}, (Span){0});
    Expr *x = e_var(a, var_new(a, "x", VAR_PARAM, TYPE_I64, (Span){0})), *zero = e_int(a, 0);
    Arg args[] = {arg_region(region_element(a, b, 1, &x)), arg_value(x)};
    Expr *leaves[] = {e_load1(a, b, x), e_call(a, OP_ATOMIC_ADD, 2, args)};
    for (int effect = 0; effect < 2; effect++) {
        Expr *leaf = leaves[effect];
        Expr *around[] = {leaf,
                          e_unary(a, UNARY_NEG, leaf),
                          e_add(a, leaf, x),
                          e_add(a, x, leaf),
                          e_select(a, e_lt(a, leaf, x), x, e_int(a, 1)),
                          e_select(a, e_lt(a, x, zero), leaf, x),
                          e_select(a, e_lt(a, x, zero), x, leaf),
                          e_cast(a, TYPE_I64, e_cast(a, TYPE_I32, leaf)),
                          e_load1(a, b, leaf),
                          e_max(a, x, leaf)};
        for (int i = 0; i < COUNT_OF(around); i++) {
            assert_int_equal(is_constant(e_mul(a, around[i], zero)), !effect);
            assert_int_equal(is_constant(e_mul(a, zero, around[i])), !effect);
            assert_int_equal(is_constant(e_rem(a, around[i], 1)), !effect);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(integers_fold_as_the_host_computes),
        IN_ARENA(truths_fold_as_the_host_computes),
        IN_ARENA(floats_fold_as_the_host_computes),
        IN_ARENA(every_field_counts),
        IN_ARENA(effects_stay),
    };
    return run(tests);
}
