// Ranges of variables that loops carry: the expected ones, and random functions, executed, that must stay within theirs.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/match.h"
#include "ir/query.h"
#include "support/map.h"
#include "tests/unit/unit.h"
#include <stdbool.h>

static Var *mutable_var(Arena *arena, const char *name, Type type) {
    return var_new(arena, name, VAR_MUTABLE, type, (Span){0});
}

static Stmt *while_of(Arena *arena, Expr *condition) {
    Stmt *stmt = NEW(arena, Stmt);
    stmt->kind = STMT_WHILE;
    stmt->while_.condition = condition;
    return stmt;
}

static Range carried_range(Arena *arena, const Func *func, Var *var) {
    Facts *facts = facts_new(arena, func);
    facts_carried(facts, func);
    return range_of(facts, e_var(arena, var));
}

static void expect_range(Range range, int64_t low, int64_t high) {
    assert_int_equal(range.low, low);
    assert_int_equal(range.high, high);
}

// var h = 1; while (h < 512) h *= 2;
static void doubling(void **state) {
    Arena *arena = *state;
    Func func = {0};
    Var *h = mutable_var(arena, "h", TYPE_I64);
    Expr *value = e_var(arena, h);
    Stmt *loop = while_of(arena, e_lt(arena, value, e_int(arena, 512)));
    block_push(arena, &func.body, s_var(arena, h, e_int(arena, 1)));
    block_push(arena, &func.body, loop);
    block_push(arena, &loop->while_.body, s_assign(arena, h, e_mul(arena, value, e_int(arena, 2))));
    expect_range(carried_range(arena, &func, h), 1, 1022);

    Facts *facts = facts_new(arena, &func);
    facts_carried(facts, &func);
    int mark = facts_mark(facts);
    facts_enter_body(facts, loop, &loop->while_.body);
    expect_range(range_of(facts, value), 1, 511);
    assert_true(facts_forget(facts, loop->while_.body.items[0]));
    expect_range(range_of(facts, value), 1, 1022);
    assert_false(facts_forget(facts, loop->while_.body.items[0]));
    facts_release(facts, mark);
}

// var n = 5; for (i in 100) for (j in 10) if (n < j) n += 3;   and without a known number of iterations
static void counting(void **state) {
    Arena *arena = *state;
    Var *dim = var_new(arena, "D", VAR_DIM, TYPE_I64, (Span){0});
    for (int known = 0; known < 2; known++) {
        Func func = {0};
        Var *n = mutable_var(arena, "n", TYPE_I64), *i = var_new(arena, "i", VAR_ITER, TYPE_I64, (Span){0});
        Var *j = var_new(arena, "j", VAR_ITER, TYPE_I64, (Span){0});
        Stmt *outer = s_for(arena, LOOP_SERIAL, i, e_int(arena, 0), known ? e_int(arena, 100) : e_var(arena, dim));
        Stmt *inner = s_for(arena, LOOP_SERIAL, j, e_int(arena, 0), e_int(arena, 10));
        block_push(arena, &func.body, s_var(arena, n, e_int(arena, 5)));
        block_push(arena, &func.body, outer);
        block_push(arena, &outer->loop.body, inner);
        Expr *odd = e_eq(arena, e_rem(arena, e_var(arena, j), 2), e_int(arena, 1));
        block_push(arena, &inner->loop.body,
                   s_if_only(arena, odd, s_assign(arena, n, e_plus(arena, e_var(arena, n), 3))));
        if (known) expect_range(carried_range(arena, &func, n), 5, 5 + 3 * 1000);
        else expect_range(carried_range(arena, &func, n), INT64_MIN, INT64_MAX);
    }
}

// ---- random functions ----

typedef struct Maker {
    Arena *arena;
    uint64_t random;
    Var *vars[3];
    VEC(Var *) names;   // lets and iterators in scope
} Maker;

static int64_t pick(Maker *m, int64_t count) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (int64_t)(m->random % (uint64_t)count);
}

static Expr *leaf(Maker *m) {
    int64_t kind = pick(m, 4);
    if (kind == 0) return e_int(m->arena, pick(m, 40) - 8);
    if (kind == 1 && m->names.count > 0) return e_var(m->arena, m->names.items[pick(m, m->names.count)]);
    return e_cast(m->arena, TYPE_I64, e_var(m->arena, m->vars[pick(m, 3)]));
}

static Expr *value(Maker *m, int depth) {
    Arena *arena = m->arena;
    if (depth == 0) return leaf(m);
    Expr *a = value(m, depth - 1), *b = value(m, depth - 1), *c = e_int(arena, 1 + pick(m, 9));
    switch (pick(m, 9)) {
    case 0: return e_add(arena, a, b);
    case 1: return e_sub(arena, a, b);
    case 2: return e_mul(arena, a, pick(m, 3) ? c : b);
    case 3: return e_div(arena, a, c);
    case 4: return e_mod(arena, a, c);
    case 5: return e_min(arena, a, b);
    case 6: return e_max(arena, a, b);
    default: return a;
    }
}

static Expr *condition(Maker *m) {
    Expr *test = e_binary(m->arena, BIN_EQ + (BinaryOp)pick(m, 6), leaf(m), value(m, 1));
    return pick(m, 4) ? test : e_and(m->arena, test, e_lt(m->arena, leaf(m), value(m, 1)));
}

static void statements(Maker *m, Block *block, int depth);

static void body(Maker *m, Block *block, int depth) {
    int names = m->names.count;
    statements(m, block, depth - 1);
    m->names.count = names;
}

static Stmt *statement(Maker *m, int depth) {
    Arena *arena = m->arena;
    int64_t kind = pick(m, depth > 0 ? 7 : 4);
    if (kind < 3) {
        Var *var = m->vars[pick(m, 3)];
        return s_assign(arena, var, e_cast(arena, var->type, value(m, 1 + (int)pick(m, 2))));
    }
    Var *name = var_new(arena, "x", kind == 3 ? VAR_LET : VAR_ITER, TYPE_I64, (Span){0});
    Stmt *stmt = kind == 3   ? s_let(arena, name, value(m, 1))
                 : kind == 4 ? s_if(arena, condition(m))
                 : kind == 5 ? while_of(arena, condition(m))
                             : s_for(arena, LOOP_SERIAL, name, e_int(arena, pick(m, 3)), leaf(m));
    if (kind == 3 || kind == 6) vec_push(arena, &m->names, name);
    FOR_EACH_BODY (inner, stmt) body(m, inner, depth);
    if (kind == 6) m->names.count--;
    return stmt;
}

static void statements(Maker *m, Block *block, int depth) {
    for (int64_t i = 0, count = 1 + pick(m, 3); i < count; i++) block_push(m->arena, block, statement(m, depth));
}

// ---- their ranges, and what they compute ----

typedef struct Run {
    Arena *arena;
    Facts *facts;
    Map *ranges, *values;   // Stmt -> Range of what it assigns; Var -> value
    int fuel;
} Run;

static void find_ranges(Run *r, const Block *block) {
    int mark = facts_mark(r->facts);
    FOR_EACH_ITEM (stmt, block) {
        bool gives = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) facts_forget(r->facts, stmt);
        if (gives) {
            Range range = range_of(r->facts, stmt->let.value);
            map_put(r->ranges, stmt, arena_copy(r->arena, &range, sizeof range));
        }
        FOR_EACH_BODY (inner, stmt) {
            int outer = facts_mark(r->facts);
            facts_enter_body(r->facts, stmt, inner);
            find_ranges(r, inner);
            facts_release(r->facts, outer);
        }
        if (stmt->kind == STMT_LET) facts_enter(r->facts, stmt);
        facts_forget(r->facts, stmt);
    }
    facts_release(r->facts, mark);
}

static int64_t compute(const Run *r, const Expr *e) {
    if (e->kind == EXPR_INT) return e->integer;
    if (e->kind == EXPR_VAR) return *(const int64_t *)map_get(r->values, e->var);
    if (e->kind == EXPR_CAST) return int_wrap(e->type, compute(r, e->operand));
    if (e->kind == EXPR_UNARY) {
        int64_t a = compute(r, e->unary.a);
        return e->unary.op == UNARY_NOT ? !a : int_wrap(e->type, (int64_t)(0 - (uint64_t)a));
    }
    if (e->kind == EXPR_CALL) {
        int64_t a = compute(r, e->call.args[0].value), b = compute(r, e->call.args[1].value);
        return (e->call.op == OP_MIN) == (a < b) ? a : b;
    }
    assert_int_equal(e->kind, EXPR_BINARY);
    int64_t a = compute(r, e->binary.a), b = compute(r, e->binary.b), out = 0;
    if (is_comparison(e) || op_compares(e->binary.op) || e->binary.op >= BIN_LOGICAL_AND) {
        switch (e->binary.op) {
        case BIN_EQ: return a == b;
        case BIN_NE: return a != b;
        case BIN_LT: return a < b;
        case BIN_LE: return a <= b;
        case BIN_GT: return a > b;
        case BIN_GE: return a >= b;
        case BIN_LOGICAL_AND: return a && b;
        default: return a || b;
        }
    }
    assert_true(int_binary(e->binary.op, e->type, a, b, &out));
    return int_wrap(e->type, out);
}

static void set(Run *r, const Var *var, int64_t value) {
    map_put(r->values, var, arena_copy(r->arena, &value, sizeof value));
}

static void execute(Run *r, const Block *block);

static void execute_for(Run *r, const Stmt *stmt) {
    const Iter *iter = &stmt->loop.iters[0];
    int64_t end = compute(r, iter->end);
    for (int64_t i = compute(r, iter->begin); i < end && r->fuel > 0; i++) {
        set(r, iter->var, i);
        execute(r, &stmt->loop.body);
    }
}

static void execute(Run *r, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (r->fuel-- <= 0) return;
        const Range *range = map_get(r->ranges, stmt);
        if (range) {
            int64_t now = compute(r, stmt->let.value);
            assert_in_range((uint64_t)now - (uint64_t)range->low, 0, (uint64_t)range->high - (uint64_t)range->low);
            set(r, stmt->let.var, now);
        }
        if (stmt->kind == STMT_FOR) execute_for(r, stmt);
        if (stmt->kind == STMT_IF) execute(r, compute(r, stmt->if_.condition) ? &stmt->if_.then : &stmt->if_.otherwise);
        while (stmt->kind == STMT_WHILE && r->fuel > 0 && compute(r, stmt->while_.condition))
            execute(r, &stmt->while_.body);
    }
}

static void random_functions(void **state) {
    Arena *arena = *state;
    int bounded = 0;
    for (int n = 1; n <= 3000; n++) {
        Maker m = {.arena = arena, .random = (uint64_t)n * UINT64_C(0x9e3779b97f4a7c15)};
        Func func = {0};
        for (int i = 0; i < 3; i++) {
            Type type = i == 2 ? TYPE_I32 : TYPE_I64;
            m.vars[i] = mutable_var(arena, "v", type);
            block_push(arena, &func.body, s_var(arena, m.vars[i], e_int_of(arena, type, pick(&m, 9) - 2)));
        }
        statements(&m, &func.body, 3);
        Run r = {.arena = arena, .facts = facts_new(arena, &func), .fuel = 1000};
        r.ranges = map_new(arena), r.values = map_new(arena);
        facts_carried(r.facts, &func);
        find_ranges(&r, &func.body);
        for (int i = 0; i < 2; i++) bounded += range_of(r.facts, e_var(arena, m.vars[i])).high < INT32_MAX;
        execute(&r, &func.body);
    }
    assert_true(bounded > 1000);   // the analysis knows something
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(doubling),
        IN_ARENA(counting),
        IN_ARENA(random_functions),
    };
    return run(tests);
}
