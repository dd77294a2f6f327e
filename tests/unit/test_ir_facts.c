// Facts and simplification: the expected forms, and thousands of random expressions that must keep their value.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/linear.h"
#include "ir/rewrite.h"
#include "support/strbuf.h"
#include "tests/unit/unit.h"
#include <inttypes.h>
#include <stdbool.h>

// ---- expressions as text: infix with the fewest parentheses ----
static const char *const binary_text[] = {"+",  "-",  "*",  "/", "%",  "&", "|",  "^",  "<<",
                                          ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||"};
static const int precedence[] = {9, 9, 10, 10, 10, 5, 3, 4, 8, 8, 6, 6, 7, 7, 7, 7, 2, 1};

static void show(StrBuf *out, const Expr *e, int outer) {
    switch (e->kind) {
    case EXPR_INT: sb_printf(out, "%" PRId64, e->integer); break;
    case EXPR_VAR: sb_str(out, e->var->name); break;
    case EXPR_UNARY:
        sb_str(out, e->unary.op == UNARY_NEG ? "-" : e->unary.op == UNARY_NOT ? "!" : "~");
        show(out, e->unary.a, 11);
        break;
    case EXPR_BINARY: {
        int own = precedence[e->binary.op];
        if (own < outer) sb_char(out, '(');
        show(out, e->binary.a, own);
        sb_printf(out, " %s ", binary_text[e->binary.op]);
        show(out, e->binary.b, own + 1);
        if (own < outer) sb_char(out, ')');
        break;
    }
    case EXPR_SELECT:
        sb_char(out, '(');
        show(out, e->select.condition, 1);
        sb_str(out, " ? ");
        show(out, e->select.yes, 1);
        sb_str(out, " : ");
        show(out, e->select.no, 1);
        sb_char(out, ')');
        break;
    case EXPR_CAST:
        sb_printf(out, "%s(", type_text(e->type));
        show(out, e->operand, 0);
        sb_char(out, ')');
        break;
    case EXPR_CALL:
        sb_printf(out, "%s(", op_info(e->call.op)->text);
        for (int i = 0; i < e->call.count; i++) {
            if (i) sb_str(out, ", ");
            if (e->call.args[i].value) show(out, e->call.args[i].value, 0);
        }
        sb_char(out, ')');
        break;
    default: sb_char(out, '?');
    }
}

static const char *text_of(Arena *arena, const Expr *e) {
    StrBuf out;
    sb_init(&out, arena);
    show(&out, e, 0);
    return sb_text(&out);
}

// ---- a workbench: variables with facts ----
typedef struct Bench {
    Arena *arena;
    Facts *facts;
    Var *any, *dim;               // an i64 about which nothing is known; a dim
    Var *t, *i, *j, *x, *y, *k;   // t < 256, i < 64, j < 8, x < 1000, y < 64 multiple of 8, k < ceildiv(dim, 64)
} Bench;

static Var *variable(Arena *arena, const char *name, VarKind kind) {
    return var_new(arena, name, kind, TYPE_I64, (Span){0});
}

static Expr *num(Bench *b, int64_t value) {
    return e_int(b->arena, value);
}

static Expr *v(Bench *b, Var *var) {
    return e_var(b->arena, var);
}

static Var *index_below(Bench *b, const char *name, Expr *end) {
    Var *var = variable(b->arena, name, VAR_ITER);
    facts_iter(b->facts, &(Iter){var, num(b, 0), end, num(b, 1)});
    return var;
}

static Bench bench(Arena *arena) {
    Bench b = {.arena = arena, .facts = facts_new(arena, NULL)};
    b.any = variable(arena, "any", VAR_PARAM);
    b.dim = variable(arena, "dim", VAR_DIM);
    b.t = index_below(&b, "t", num(&b, 256));
    b.i = index_below(&b, "i", num(&b, 64));
    b.j = index_below(&b, "j", num(&b, 8));
    b.x = index_below(&b, "x", num(&b, 1000));
    b.y = variable(arena, "y", VAR_ITER);
    facts_iter(b.facts, &(Iter){b.y, num(&b, 0), num(&b, 64), num(&b, 8)});
    b.k = index_below(&b, "k", e_call2(arena, OP_CEILDIV, v(&b, b.dim), num(&b, 64)));
    return b;
}

#define A(a, c) e_add(arena, a, c)
#define SUB(a, c) e_sub(arena, a, c)
#define M(a, c) e_mul(arena, a, c)
#define D(a, c) e_div(arena, a, c)
#define R(a, c) e_mod(arena, a, c)
#define X(a, c) e_xor(arena, a, c)
#define N(n) e_int(arena, n)
#define V(name) e_var(arena, b.name)
#define LT(a, c) e_lt(arena, a, c)

static void expect_form(Bench *b, Expr *e, const char *text) {
    Expr *simple = simplify_expr(b->arena, b->facts, e);
    assert_string_equal(text_of(b->arena, simple), text);
    assert_ptr_equal(simplify_expr(b->arena, b->facts, simple), simple);
}

static void quotients_and_remainders(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    expect_form(&b, R(A(M(V(x), N(64)), V(i)), N(64)), "i");
    expect_form(&b, D(A(M(V(x), N(64)), V(i)), N(64)), "x");
    expect_form(&b, D(A(M(V(x), N(8)), V(j)), N(8)), "x");
    expect_form(&b, D(A(M(V(x), N(64)), V(t)), N(64)), "x + t / 64");
    expect_form(&b, R(A(M(V(x), N(8)), V(j)), N(64)), "x % 8 * 8 + j");
    expect_form(&b, D(A(M(V(x), N(8)), V(j)), N(64)), "x / 8");
    expect_form(&b, D(D(V(x), N(8)), N(4)), "x / 32");
    expect_form(&b, D(R(V(x), N(64)), N(8)), "x / 8 % 8");
    expect_form(&b, R(R(V(x), N(64)), N(8)), "x % 8");
    expect_form(&b, R(A(R(V(x), N(64)), N(5)), N(8)), "(x + 5) % 8");
    expect_form(&b, R(D(V(t), N(32)), N(8)), "t / 32");
    expect_form(&b, D(V(i), N(64)), "0");
    expect_form(&b, R(A(V(y), V(j)), N(8)), "j");
    expect_form(&b, D(A(V(y), V(j)), N(8)), "y / 8");
    expect_form(&b, D(M(V(t), N(6)), N(4)), "t * 3 / 2");
    expect_form(&b, R(SUB(N(63), V(i)), N(64)), "63 - i");
    expect_form(&b, R(M(V(any), N(64)), N(32)), "0");                 // modulo 2^64 too
    expect_form(&b, D(M(V(any), N(64)), N(64)), "any * 64 / 64");     // may wrap
    expect_form(&b, R(A(V(any), N(64)), N(64)), "(any + 64) % 64");   // the sign decides
    expect_form(&b, R(M(V(x), N(65)), N(64)), "x % 64");
    expect_form(&b, D(V(x), V(dim)), "x / dim");
    expect_form(&b, D(V(x), N(0)), "x / 0");
}

static void sums_collect(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    expect_form(&b, A(M(D(V(t), N(32)), N(32)), R(V(t), N(32))), "t");
    expect_form(&b, A(R(V(t), N(32)), M(D(V(t), N(32)), N(128))), "t / 32 * 128 + t % 32");
    expect_form(&b, A(M(R(D(V(t), N(8)), N(4)), N(8)), R(V(t), N(8))), "t % 32");
    expect_form(&b, SUB(V(x), R(V(x), N(8))), "x / 8 * 8");
    expect_form(&b, SUB(V(x), M(D(V(x), N(8)), N(8))), "x % 8");
    expect_form(&b, SUB(A(V(any), N(3)), A(V(any), N(1))), "2");
    expect_form(&b, A(V(j), A(M(V(x), N(4)), M(A(V(x), N(1)), N(12)))), "x * 16 + j + 12");
    expect_form(&b, SUB(M(V(dim), V(any)), M(V(any), V(dim))), "0");
    expect_form(&b, A(V(j), M(V(x), V(dim))), "x * dim + j");
    expect_form(&b, A(e_unary(arena, UNARY_NEG, V(j)), V(x)), "x - j");
    expect_form(&b, e_binary(arena, BIN_SHL, A(V(x), N(1)), N(3)), "x * 8 + 8");
    expect_form(&b, M(M(N(4), V(x)), M(V(dim), N(3))), "x * dim * 12");
}

static void xors_fold(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    expect_form(&b, X(V(i), N(0)), "i");
    expect_form(&b, X(V(i), V(i)), "0");
    expect_form(&b, X(V(j), N(64)), "j + 64");
    expect_form(&b, X(M(V(x), N(8)), V(j)), "x * 8 + j");
    expect_form(&b, X(A(V(j), N(16)), R(V(t), N(32))), "j ^ t % 32 ^ 16");
    expect_form(&b, X(A(M(V(j), N(4)), N(1)), M(V(x), N(8))), "(j * 4 ^ x * 8) + 1");   // 1 is below all bits of both
    expect_form(&b, X(M(V(x), N(8)), A(M(V(j), N(4)), N(3))), "(j * 4 ^ x * 8) + 3");
    expect_form(&b, X(A(M(V(j), N(4)), N(1)), M(V(x), N(2))), "(j * 4 ^ x * 2) + 1");
    expect_form(&b, X(A(M(V(j), N(4)), N(2)), M(V(x), N(2))), "j * 4 + 2 ^ x * 2");   // x has bit 1, too
    expect_form(&b, X(X(V(i), N(5)), N(6)), "i ^ 3");
    expect_form(&b, X(N(5), V(i)), "i ^ 5");
}

// Each operation of a chain asks for the range of all before it: it is found once, and again after a new fact.
static void ranges_are_kept(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    Range range;
    Expr *inner = e_binary(arena, BIN_AND, V(x), V(any)), *outer = e_xor(arena, inner, V(j));
    assert_false(facts_known_range(b.facts, inner, &range));
    assert_int_equal(range_of(b.facts, outer).high, range_of(b.facts, outer).high);
    assert_true(facts_known_range(b.facts, inner, &range) && range.high == range_of(b.facts, inner).high);
    int mark = facts_mark(b.facts);
    facts_assume(b.facts, e_both(arena, e_ge(arena, V(any), N(0)), LT(V(any), N(32))), true);
    assert_false(facts_known_range(b.facts, inner, &range));
    assert_int_equal(range_of(b.facts, outer).high, 31);
    facts_release(b.facts, mark);
    assert_true(range_of(b.facts, outer).high > 31);
}

static void conditions_fold(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    expect_form(&b, LT(V(i), N(64)), "1");
    expect_form(&b, LT(A(V(i), N(3)), N(10)), "i < 7");
    expect_form(&b, LT(M(V(x), N(8)), N(61)), "x < 8");
    expect_form(&b, LT(A(M(V(x), N(64)), V(i)), A(M(V(x), N(64)), N(10))), "i < 10");
    expect_form(&b, e_binary(arena, BIN_GE, A(M(V(k), N(64)), V(i)), V(dim)), "k * 64 + i >= dim");
    expect_form(&b, LT(M(V(k), N(64)), V(dim)), "1");
    expect_form(&b, LT(V(any), A(V(any), N(1))), "any < any + 1");   // false at the largest i64
    expect_form(&b, LT(V(dim), A(V(dim), N(1))), "1");
    expect_form(&b, e_binary(arena, BIN_EQ, A(V(x), N(3)), N(5)), "x == 2");
    expect_form(&b, e_binary(arena, BIN_EQ, M(V(x), N(4)), A(M(V(i), N(2)), N(1))), "0");
    expect_form(&b, e_unary(arena, UNARY_NOT, LT(V(x), V(i))), "x >= i");
    expect_form(&b, e_min(arena, V(i), N(100)), "i");
    expect_form(&b, e_max(arena, V(k), N(0)), "k");
    expect_form(&b, e_call2(arena, OP_CEILDIV, M(V(x), N(64)), N(32)), "x * 2");
    expect_form(&b, e_and(arena, LT(V(x), N(5)), LT(V(x), N(5))), "x < 5");
    expect_form(&b, e_and(arena, LT(V(i), N(64)), LT(V(x), N(5))), "x < 5");
    expect_form(&b, e_cast(arena, TYPE_I64, e_cast(arena, TYPE_I32, V(x))), "x");
    expect_form(&b, e_cast(arena, TYPE_I64, e_cast(arena, TYPE_I32, V(any))), "i64(i32(any))");
}

static void assumptions_prove(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    Expr *dim = V(dim), *k = V(k);
    Expr *inside = LT(A(M(k, N(64)), N(63)), dim);
    assert_false(prove(b.facts, inside));
    int mark = facts_mark(b.facts);
    facts_assume(b.facts, e_binary(arena, BIN_EQ, R(dim, N(64)), N(0)), true);
    assert_int_equal(multiple_of(b.facts, dim), 64);
    assert_int_equal(multiple_of(b.facts, M(dim, N(6))), 128);   // may wrap: the power of two alone
    assert_true(prove(b.facts, inside));
    expect_form(&b, e_call2(arena, OP_CEILDIV, dim, N(64)), "dim / 64");
    expect_form(&b, R(dim, N(8)), "0");
    facts_release(b.facts, mark);
    assert_int_equal(multiple_of(b.facts, dim), 1);
    assert_false(prove(b.facts, inside));

    // k + 2 < steps on the way to a statement.
    Var *steps = variable(arena, "steps", VAR_DIM);
    facts_assume(b.facts, LT(A(V(j), N(2)), e_var(arena, steps)), true);
    assert_true(prove(b.facts, LT(V(j), e_var(arena, steps))));
    assert_false(prove(b.facts, LT(A(V(j), N(3)), e_var(arena, steps))));
    assert_true(prove(b.facts, e_binary(arena, BIN_NE, e_var(arena, steps), N(0))));

    // A when: bounds and multiples; disjunctions negated are conjunctions.
    facts_assume(b.facts,
                 e_binary(arena, BIN_LOGICAL_OR, e_binary(arena, BIN_GE, dim, N((int64_t)1 << 31)),
                          e_binary(arena, BIN_NE, R(dim, N(8)), N(0))),
                 false);
    assert_int_equal(range_of(b.facts, dim).high, ((int64_t)1 << 31) - 1);
    assert_int_equal(multiple_of(b.facts, M(dim, N(6))), 48);
    expect_form(&b, D(A(M(V(any), N(0)), dim), dim), "dim / dim");   // dim may be 0
    facts_assume(b.facts, e_binary(arena, BIN_GT, dim, N(0)), true);
    expect_form(&b, D(dim, dim), "1");
    Var *row = index_below(&b, "row", dim), *column = index_below(&b, "column", dim);
    Expr *flat = A(M(e_var(arena, row), dim), e_var(arena, column));
    expect_form(&b, D(flat, dim), "row");
    expect_form(&b, R(flat, dim), "column");
}

static void bindings_and_ranges(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    Var *last = variable(arena, "last", VAR_LET);
    facts_bind(b.facts, last, e_min(arena, V(dim), A(M(V(x), N(64)), N(64))));
    assert_int_equal(range_of(b.facts, e_var(arena, last)).high, 64000);
    assert_true(prove(b.facts, e_binary(arena, BIN_LE, e_var(arena, last), V(dim))));
    Var *block = variable(arena, "block", VAR_LET);
    facts_bind(b.facts, block, M(V(x), N(128)));
    assert_int_equal(multiple_of(b.facts, A(e_var(arena, block), N(64))), 64);
    expect_form(&b, R(e_var(arena, block), N(32)), "0");

    Buf *tensor = buf_new_const(arena, "A", SCOPE_GLOBAL, TYPE_F16, 1, (int64_t[]){64}, (Span){0});
    Arg args[] = {arg_region(region_whole(arena, tensor)), arg_value(N(16))};
    Expr *aligned = e_call(arena, OP_ALIGNED, 2, args);
    assert_false(prove(b.facts, aligned));
    facts_assume(b.facts, aligned, true);
    assert_true(prove(b.facts, aligned));
    assert_true(prove_aligned(b.facts, tensor, 8));
    assert_false(prove_aligned(b.facts, tensor, 32));

    Range blocks = range_of(b.facts, e_call2(arena, OP_CEILDIV, SUB(V(x), N(100)), N(64)));   // not known to be >= 0
    assert_int_equal(blocks.low, -1);
    assert_int_equal(blocks.high, 15);

    // What changes is no fact: a variable that is assigned, memory.
    Var *counter = var_new(arena, "counter", VAR_MUTABLE, TYPE_I64, (Span){0});
    facts_assume(b.facts, LT(e_var(arena, counter), N(5)), true);
    assert_int_equal(range_of(b.facts, e_var(arena, counter)).high, INT64_MAX);
}

// ---- random expressions ----
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int64_t pick(uint64_t *state, int64_t count) {
    return (int64_t)(next_random(state) % (uint64_t)count);
}

typedef struct Point {
    const Bench *bench;
    int64_t any, dim, t, i, j, x, y, k, small;
    Var *small_var;
} Point;

static int64_t value_of(const Point *p, const Var *var) {
    const Bench *b = p->bench;
    if (var == b->any) return p->any;
    if (var == b->dim) return p->dim;
    if (var == b->t) return p->t;
    if (var == b->i) return p->i;
    if (var == b->j) return p->j;
    if (var == b->x) return p->x;
    if (var == b->y) return p->y;
    if (var == p->small_var) return p->small;
    return p->k;
}

static bool bad;   // a division by zero or a shift that is undefined: the point does not count

static int64_t evaluate(const Point *p, const Expr *e);

static int64_t evaluate_binary(const Point *p, const Expr *e) {
    int64_t a = evaluate(p, e->binary.a), b = evaluate(p, e->binary.b);
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (e->binary.op) {
    case BIN_ADD: return int_wrap(e->type, (int64_t)(ua + ub));
    case BIN_SUB: return int_wrap(e->type, (int64_t)(ua - ub));
    case BIN_MUL: return int_wrap(e->type, (int64_t)(ua * ub));
    case BIN_DIV:
    case BIN_MOD:
        if (b == 0 || (a == INT64_MIN && b == -1)) return bad = true, 0;
        return int_wrap(e->type, e->binary.op == BIN_DIV ? a / b : a % b);
    case BIN_AND: return a & b;
    case BIN_OR: return a | b;
    case BIN_XOR: return a ^ b;
    case BIN_SHL: return int_wrap(e->type, (int64_t)(ua << b));
    case BIN_SHR: return a >> b;
    case BIN_EQ: return a == b;
    case BIN_NE: return a != b;
    case BIN_LT: return a < b;
    case BIN_LE: return a <= b;
    case BIN_GT: return a > b;
    case BIN_GE: return a >= b;
    case BIN_LOGICAL_AND: return a && b;
    case BIN_LOGICAL_OR: return a || b;
    }
    return 0;
}

static int64_t evaluate(const Point *p, const Expr *e) {
    switch (e->kind) {
    case EXPR_INT: return e->integer;
    case EXPR_VAR: return value_of(p, e->var);
    case EXPR_UNARY:
        if (e->unary.op == UNARY_NOT) return !evaluate(p, e->unary.a);
        return int_wrap(e->type, (int64_t)(0 - (uint64_t)evaluate(p, e->unary.a)));
    case EXPR_BINARY: return evaluate_binary(p, e);
    case EXPR_SELECT: return evaluate(p, evaluate(p, e->select.condition) ? e->select.yes : e->select.no);
    case EXPR_CAST: return int_wrap(e->type, evaluate(p, e->operand));
    case EXPR_CALL: {
        int64_t a = evaluate(p, e->call.args[0].value), b = evaluate(p, e->call.args[1].value);
        if (e->call.op == OP_MIN) return a < b ? a : b;
        if (e->call.op == OP_MAX) return a > b ? a : b;
        if (b <= 0 || a < 0) return bad = true, 0;
        return a / b + (a % b != 0);
    }
    default: fail_msg("kind %d", e->kind); return 0;
    }
}

typedef struct Maker {
    Bench *bench;
    uint64_t *random;
    Type type;
    Var *small;   // a variable of the type when that is not i64
} Maker;

static Expr *random_condition(Maker *m, int depth);

static int64_t random_constant(Maker *m) {
    static const int64_t usual[] = {1, 2, 3, 4, 7, 8, 16, 31, 32, 63, 64, 65, 128, 256, 1000};
    int64_t c = usual[pick(m->random, 15)];
    return m->type == TYPE_I64 ? c : c % 100 + 1;
}

static Expr *random_leaf(Maker *m) {
    Bench *b = m->bench;
    Arena *arena = b->arena;
    if (pick(m->random, 4) == 0)
        return e_int_of(arena, m->type, pick(m->random, 3) ? random_constant(m) : -pick(m->random, 9));
    Var *vars[] = {b->t, b->i, b->j, b->x, b->y, b->k, b->dim, b->any};
    Expr *leaf = m->type != TYPE_I64 && pick(m->random, 3) == 0 ? e_var(arena, m->small)
                                                                : e_var(arena, vars[pick(m->random, 8)]);
    return e_cast(arena, m->type, leaf);
}

static Expr *random_expr(Maker *m, int depth) {
    Arena *arena = m->bench->arena;
    if (depth == 0 || pick(m->random, 8) == 0) return random_leaf(m);
    Expr *a = random_expr(m, depth - 1);
    Expr *c = e_int_of(arena, m->type, random_constant(m));
    switch (pick(m->random, 14)) {
    case 0:
    case 1: return A(a, random_expr(m, depth - 1));
    case 2: return SUB(a, random_expr(m, depth - 1));
    case 3:
    case 4: return M(a, c);
    case 5:
    case 6: return D(a, c);
    case 7:
    case 8: return R(a, c);
    case 9: return X(a, random_expr(m, depth - 1));
    case 10:
        return pick(m->random, 2) ? e_min(arena, a, random_expr(m, depth - 1))
                                  : e_max(arena, a, random_expr(m, depth - 1));
    case 11:
        return e_binary(arena, BIN_AND + (BinaryOp)pick(m->random, 2), a,
                        pick(m->random, 2) ? c : random_expr(m, depth - 1));
    case 12: return e_select(arena, random_condition(m, depth - 1), a, random_expr(m, depth - 1));
    default: {
        Expr *other = random_expr(m, depth - 1);
        switch (pick(m->random, 6)) {
        case 0: return M(a, other);
        case 1: return D(a, other);
        case 2: return R(a, other);
        case 3: return e_binary(arena, BIN_SHR, a, e_int_of(arena, m->type, pick(m->random, 7)));
        case 4: return e_call2(arena, OP_CEILDIV, a, c);
        default: return e_binary(arena, BIN_SHL, a, e_int_of(arena, m->type, pick(m->random, 7)));
        }
    }
    }
}

static Expr *random_condition(Maker *m, int depth) {
    Arena *arena = m->bench->arena;
    if (depth > 0 && pick(m->random, 4) == 0) {
        Expr *a = random_condition(m, depth - 1), *c = random_condition(m, depth - 1);
        return e_binary(arena, pick(m->random, 2) ? BIN_LOGICAL_AND : BIN_LOGICAL_OR, a, c);
    }
    Expr *a = random_expr(m, depth), *c = random_expr(m, depth);
    Expr *comparison = e_binary(arena, BIN_EQ + (BinaryOp)pick(m->random, 6), a, c);
    return pick(m->random, 5) ? comparison : e_unary(arena, UNARY_NOT, comparison);
}

static int64_t wide_value(uint64_t *random) {
    static const int64_t corners[] = {
        0, 1, -1, 7, 64, -64, INT64_MAX, INT64_MIN, INT64_MAX - 1, (int64_t)1 << 62, (int64_t)1 << 32};
    if (pick(random, 2)) return corners[pick(random, 11)];
    return (int64_t)next_random(random) >> pick(random, 63);
}

static Point random_point(const Bench *b, uint64_t *random, Var *small) {
    Point p = {.bench = b, .small_var = small};
    p.any = wide_value(random);
    int64_t dim = wide_value(random);
    p.dim = dim < 0 ? pick(random, 5000) + 1 : dim > ((int64_t)1 << 62) ? (int64_t)1 << 62 : dim;
    if (p.dim == 0) p.dim = 1;   // k exists
    p.t = pick(random, 256), p.i = pick(random, 64), p.j = pick(random, 8), p.x = pick(random, 1000);
    p.y = pick(random, 8) * 8;
    int64_t steps = p.dim / 64 + (p.dim % 64 != 0);
    p.k = pick(random, 2) ? pick(random, steps) : steps - 1;
    p.small = int_wrap(small->type, wide_value(random));
    return p;
}

static int size_of(const Expr *e) {
    switch (e->kind) {
    case EXPR_UNARY: return 1 + size_of(e->unary.a);
    case EXPR_BINARY: return 1 + size_of(e->binary.a) + size_of(e->binary.b);
    case EXPR_SELECT: return 1 + size_of(e->select.condition) + size_of(e->select.yes) + size_of(e->select.no);
    case EXPR_CAST: return 1 + size_of(e->operand);
    case EXPR_CALL: return 1 + size_of(e->call.args[0].value) + size_of(e->call.args[1].value);
    default: return 1;
    }
}

static void check_value(Bench *b, const Expr *e, const Expr *simple, const Point *p) {
    bad = false;
    int64_t want = evaluate(p, e);
    if (bad) return;
    int64_t got = evaluate(p, simple);
    if (bad || got != want)
        fail_msg("%s\n  became %s\n  %" PRId64 " instead of %" PRId64 " at any %" PRId64 " dim %" PRId64 " t %" PRId64
                 " i %" PRId64 " j %" PRId64 " x %" PRId64 " y %" PRId64 " k %" PRId64 " small %" PRId64,
                 text_of(b->arena, e), text_of(b->arena, simple), got, want, p->any, p->dim, p->t, p->i, p->j, p->x,
                 p->y, p->k, p->small);
    Range range = range_of(b->facts, e);
    int64_t multiple = multiple_of(b->facts, e);
    if (e->type != TYPE_U64 && (want < range.low || want > range.high))
        fail_msg("%s = %" PRId64 " is not in %" PRId64 "..%" PRId64, text_of(b->arena, e), want, range.low, range.high);
    if (multiple == 0 ? want != 0 : want % multiple != 0)
        fail_msg("%s = %" PRId64 " is no multiple of %" PRId64, text_of(b->arena, e), want, multiple);
}

static void simplify_random(Arena *arena, Type type, uint64_t seed, int count) {
    Bench b = bench(arena);
    uint64_t random = seed;
    Var *small = var_new(arena, "small", VAR_PARAM, type, (Span){0});
    Maker maker = {&b, &random, type, small};
    int unstable = 0, before = 0, after = 0;
    for (int n = 0; n < count; n++) {
        Expr *e = n % 4 ? random_expr(&maker, 2 + n % 3) : random_condition(&maker, 2);
        Expr *simple = simplify_expr(arena, b.facts, e), *again = simplify_expr(arena, b.facts, simple);
        for (int k = 0; k < 12; k++) {
            Point p = random_point(&b, &random, small);
            check_value(&b, e, simple, &p);
            check_value(&b, simple, again, &p);
        }
        assert_int_equal(simple->type, e->type);
        unstable += !expr_equal(simple, again);
        before += size_of(e), after += size_of(simple);
    }
    assert_true(after < before);
    assert_true(unstable <= count / 100);
}

static void random_i64(void **state) {
    simplify_random(*state, TYPE_I64, 1, 4000);
}

static void random_i32(void **state) {
    simplify_random(*state, TYPE_I32, 2, 2000);
}

static void random_u32(void **state) {
    simplify_random(*state, TYPE_U32, 3, 2000);
}

static void random_i8(void **state) {
    simplify_random(*state, TYPE_I8, 4, 1000);
}

// Assumptions that hold at a random point; what follows from them must hold wherever they do.
static void assumptions_are_used_soundly(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    uint64_t random = 99;
    Maker maker = {&b, &random, TYPE_I64, NULL};
    int compared = 0, folded = 0;
    for (int n = 0; n < 4000; n++) {
        Point samples[30];
        for (int k = 0; k < 30; k++) samples[k] = random_point(&b, &random, b.any);
        const Expr *assumed[2];
        bool truth[2];
        int mark = facts_mark(b.facts);
        bad = false;
        for (int a = 0; a < 2; a++) {
            assumed[a] = random_condition(&maker, 1);
            truth[a] = evaluate(&samples[0], assumed[a]);
            if (!bad) facts_assume(b.facts, assumed[a], truth[a]);
        }
        Expr *e = n % 2 ? random_condition(&maker, 1) : random_expr(&maker, 2);
        Expr *simple = bad ? e : simplify_expr(arena, b.facts, e);
        bool valid = !bad;
        for (int k = 0; valid && k < 30; k++) {
            bad = false;
            bool holds = evaluate(&samples[k], assumed[0]) == truth[0] && evaluate(&samples[k], assumed[1]) == truth[1];
            if (bad || !holds) continue;
            check_value(&b, e, simple, &samples[k]);
            compared++;
        }
        folded += simple->kind == EXPR_INT;
        facts_release(b.facts, mark);
    }
    assert_true(compared > 10000 && folded > 100);
}

// ---- layouts as expressions ----
static void the_worked_example(void **state) {
    Arena *arena = *state;
    const char *why = NULL;
    const Layout *layout = layout_bank_swizzle(arena, 256, 64, 16, 8, &why);
    Facts *facts = facts_new(arena, NULL);
    Var *i = variable(arena, "i", VAR_ITER), *j = variable(arena, "j", VAR_ITER);
    facts_iter(facts, &(Iter){i, N(0), N(256), N(1)});
    facts_iter(facts, &(Iter){j, N(0), N(64), N(1)});
    Expr *out[3];
    layout_forward(arena, facts, layout, (Expr *[]){e_var(arena, i), e_var(arena, j)}, out);
    assert_string_equal(text_of(arena, out[0]), "0");
    assert_string_equal(text_of(arena, out[1]), "i / 8");
    assert_string_equal(text_of(arena, out[2]), "i % 8 * 64 + (j / 8 ^ i % 8) * 8 + j % 8");
    // Constants fold through: row 8 * n + 3, chunk 5.
    Var *n = variable(arena, "n", VAR_ITER);
    facts_iter(facts, &(Iter){n, N(0), N(32), N(1)});
    layout_forward(arena, facts, layout, (Expr *[]){A(M(e_var(arena, n), N(8)), N(3)), N(41)}, out);
    assert_string_equal(text_of(arena, out[1]), "n");
    assert_string_equal(text_of(arena, out[2]), "241");   // 3 * 64 + (5 ^ 3) * 8 + 1
}

// Forward as expressions gives what layout_eval gives, for swizzles of all kinds.
static void forward_agrees_with_eval(void **state) {
    Arena *arena = *state;
    static const struct {
        const char *text;
        int bits;
    } layouts[] = {
        {"Sw<3,4,3> o ((8,32),(64,2)):((64@2,1@1),(1@2,1@0))", 16},
        {"Sw<2,4,3> o ((8,4),(32,3)):((32@2,1@1),(1@2,1@0))", 16},
        {"Sw<1,4,3> o ((8,4),(16,3)):((16@2,1@1),(1@2,1@0))", 16},
        {"Sw<3,4,3> o (64,32):(32,1)", 32},
        {"Sw<3,4,3> o (40,64):(64,1)", 16},
        {"Sw<2,4,3> o (40,48):(48,1)", 16},
        {"Sw<3,4,3> o (24,80):(80,1)", 8},
        {"Sw<2,3,4> o (24,(6,5)):(60,(10,2))", 8},
        {"((4,8),(2,2)):((2@1,1@0),(1@1,8@0))", 16},
        {"(4%,(2,3%)):(8,(1,2))", 16},
        {"linear([19,33,68,136],[1,2,4,8])", 32},
        {"linear([40,88,144,264,512],[1,2,4,8,16])", 16},
        {"linear([(1,3),(2,0),(0,1)],[(5,2),(0,0),(4,4)])", 16},
        {"((4,3,2),(5,2)):((2@1,1@0,0),(8@1,3@0))", 16},
    };
    Var *i = variable(arena, "i", VAR_ITER), *j = variable(arena, "j", VAR_ITER);
    for (size_t n = 0; n < sizeof layouts / sizeof *layouts; n++) {
        const char *why = NULL;
        const Layout *layout = layout_parse(arena, layouts[n].text, layouts[n].bits, &why);
        if (!layout) fail_msg("%s: %s", layouts[n].text, why);
        Facts *facts = facts_new(arena, NULL);
        facts_iter(facts, &(Iter){i, N(0), N(layout_extent_in(layout, 0)), N(1)});
        facts_iter(facts, &(Iter){j, N(0), N(layout_extent_in(layout, 1)), N(1)});
        Expr *out[LAYOUT_MAX_RANK];
        layout_forward(arena, facts, layout, (Expr *[]){e_var(arena, i), e_var(arena, j)}, out);
        Bench names = {.t = i, .i = j};
        for (int64_t a = 0; a < layout_extent_in(layout, 0); a++)
            for (int64_t c = 0; c < layout_extent_in(layout, 1); c++) {
                int64_t want[LAYOUT_MAX_RANK];
                layout_eval(layout, (int64_t[]){a, c}, want);
                for (int o = 0; o < layout->rank_out; o++)
                    assert_int_equal(evaluate(&(Point){.bench = &names, .t = a, .i = c}, out[o]), want[o]);
            }
    }
}

static void global_offsets(void **state) {
    Arena *arena = *state;
    Bench b = bench(arena);
    Buf *dense = buf_new(arena, "A", SCOPE_GLOBAL, TYPE_F16, 3, (Expr *[]){V(any), V(dim), N(64)}, (Span){0});
    Expr *indices[] = {V(t), V(i), V(j)};
    expect_form(&b, global_offset(arena, dense, 3, indices), "t * dim * 64 + i * 64 + j");
    assert_string_equal(text_of(arena, global_stride(arena, dense, 0)), "dim * 64");
    assert_string_equal(text_of(arena, global_stride(arena, dense, 2)), "1");
    dense->strides = (Expr *[]){V(dim), N(100), N(1)};
    expect_form(&b, global_offset(arena, dense, 3, indices), "t * dim + i * 100 + j");
    assert_ptr_equal(global_stride(arena, dense, 0), dense->strides[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(quotients_and_remainders),
        IN_ARENA(sums_collect),
        IN_ARENA(xors_fold),
        IN_ARENA(ranges_are_kept),
        IN_ARENA(conditions_fold),
        IN_ARENA(assumptions_prove),
        IN_ARENA(bindings_and_ranges),
        IN_ARENA(random_i64),
        IN_ARENA(random_i32),
        IN_ARENA(random_u32),
        IN_ARENA(random_i8),
        IN_ARENA(assumptions_are_used_soundly),
        IN_ARENA(the_worked_example),
        IN_ARENA(forward_agrees_with_eval),
        IN_ARENA(global_offsets),
    };
    return run(tests);
}
