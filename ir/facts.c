// Facts and proofs.
//
// A stack of facts. About one variable: its range, a number that divides it, the expression it is bound to; a later
// fact includes what earlier ones said, so that a look-up is one step. About several: a sum that is not negative (k + 2
// < steps is the sum steps - k - 3), or any condition, remembered as it was written.
//
// Dims count as [0, 2^62], so that one more level of arithmetic is safe; ranges.c derives the rest.
//
// Proofs: is a sum never negative? By the ranges of its atoms; if that does not do, atoms are replaced by what bounds
// them (a quotient x / c by x, min(a, b) by a or b, a let by its value) or an assumed sum is subtracted, a few steps
// deep.
//
//     known: k < ceildiv(K, 64), K % 64 == 0        to show: k * 64 + 63 < K, that is K - 64 k - 64 >= 0
//     subtract 64 * (K / 64 - k - 1):  K - 64 * (K / 64)       replace the quotient:  K - K = 0
#include "ir/facts.h"
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/query.h"
#include "support/map.h"

typedef enum { FACT_VAR, FACT_NONNEGATIVE, FACT_MULTIPLE, FACT_ALIGNED, FACT_CONDITION } FactKind;

typedef struct Fact {
    FactKind kind;
    int previous;     // earlier fact of the same variable or kind; -1
    const Var *var;   // FACT_VAR
    Range range;
    int64_t multiple;       //     divides it; FACT_MULTIPLE: divides the sum
    const Expr *expr;       //     what it is bound to; FACT_CONDITION: the condition
    const LinearSum *sum;   // FACT_NONNEGATIVE, FACT_MULTIPLE
    bool holds;             // FACT_CONDITION
    const Buf *buf;         // FACT_ALIGNED
    int64_t bytes;
} Fact;

struct Facts {
    Arena *arena;
    VEC(Fact) facts;
    Map *heads;                       // Var -> 1 + index of its latest fact
    int latest[FACT_CONDITION + 1];   // by kind; -1
    Map *carried;                     // Var -> Range of all its values; NULL: not asked for
    Map *known;                       // Expr -> KnownRange
    int64_t changes;                  // of the facts so far
};

// ---- the stack ----
static int var_head(const Facts *facts, const Var *var) {
    return (int)(intptr_t)map_get(facts->heads, var) - 1;
}

static void set_var_head(Facts *facts, const Var *var, int index) {
    if (index < 0) map_remove(facts->heads, var);
    else map_put(facts->heads, var, (void *)(intptr_t)(index + 1));
}

static void push_fact(Facts *facts, Fact fact) {
    facts->changes++;
    if (fact.kind == FACT_VAR) {
        fact.previous = var_head(facts, fact.var);
        set_var_head(facts, fact.var, facts->facts.count);
    } else {
        fact.previous = facts->latest[fact.kind];
        facts->latest[fact.kind] = facts->facts.count;
    }
    vec_push(facts->arena, &facts->facts, fact);
}

Arena *facts_arena(const Facts *facts) {
    return facts->arena;
}

int facts_mark(const Facts *facts) {
    return facts->facts.count;
}

void facts_release(Facts *facts, int mark) {
    while (facts->facts.count > mark) {
        const Fact *fact = &facts->facts.items[--facts->facts.count];
        facts->changes++;
        if (fact->kind == FACT_VAR) set_var_head(facts, fact->var, fact->previous);
        else facts->latest[fact->kind] = fact->previous;
    }
}

static const Fact *latest_fact(const Facts *facts, FactKind kind) {
    if (!facts || facts->latest[kind] < 0) return NULL;
    return &facts->facts.items[facts->latest[kind]];
}

static const Fact *earlier_fact(const Facts *facts, const Fact *fact) {
    return fact->previous < 0 ? NULL : &facts->facts.items[fact->previous];
}

static Fact var_fact(const Facts *facts, const Var *var) {
    int head = facts ? var_head(facts, var) : -1;
    if (head >= 0) return facts->facts.items[head];
    Fact fact = {.kind = FACT_VAR, .var = var, .range = type_range(var->type), .multiple = 1};
    if (var->kind == VAR_DIM) fact.range = (Range){0, (int64_t)1 << 62};
    return fact;
}

const Expr *facts_binding(const Facts *facts, const Var *var) {
    return var_fact(facts, var).expr;
}

Range facts_range(const Facts *facts, const Var *var) {
    return var_fact(facts, var).range;
}

// ---- ranges that are known already ----
typedef struct KnownRange {
    Range range;
    int64_t changes;   // of the facts, when it was found
} KnownRange;

bool facts_known_range(const Facts *facts, const Expr *e, Range *range) {
    const KnownRange *known = facts ? map_get(facts->known, e) : NULL;
    if (!known || known->changes != facts->changes) return false;
    *range = known->range;
    return true;
}

void facts_keep_range(const Facts *facts, const Expr *e, Range range) {
    KnownRange known = {range, facts ? facts->changes : 0};
    if (facts) map_put(facts->known, e, arena_copy(facts->arena, &known, sizeof known));
}

int64_t facts_multiple(const Facts *facts, const Var *var) {
    return var_fact(facts, var).multiple;
}

// ---- proofs of "never negative" ----
typedef struct Proof {
    const Facts *facts;
    int steps;   // left; keeps hopeless proofs cheap
} Proof;

static bool prove_nonnegative(Proof *proof, const LinearSum *sum, int depth);

// sum += scale * other as true integers; false when a number leaves 62 bits.
static bool add_exactly(LinearSum *sum, const LinearSum *other, int64_t scale) {
    const int64_t limit = (int64_t)1 << 62;
    int64_t product;
    for (int i = 0; i < other->count; i++) {
        if (__builtin_mul_overflow(other->terms[i].factor, scale, &product) || product >= limit || product <= -limit)
            return false;
        int64_t have = linear_factor(sum, other->terms[i].atom);
        if (have >= limit || have <= -limit) return false;
        linear_add_term(sum, other->terms[i].atom, product);
    }
    if (__builtin_mul_overflow(other->constant, scale, &product)) return false;
    return !__builtin_add_overflow(sum->constant, product, &sum->constant) && !sum->full;
}

static bool prove_with(Proof *proof, const LinearSum *sum, Expr *atom, int64_t factor, const Expr *by, int64_t scale,
                       int64_t constant, int depth) {
    LinearSum next = *sum, bound = linear_of(proof->facts->arena, by);
    if (!linear_exact(proof->facts, &bound)) return false;
    linear_add_term(&next, atom, -factor);
    bound.type = TYPE_I64;
    LinearSum slack = {.type = TYPE_I64, .constant = constant};
    if (!add_exactly(&next, &bound, scale) || !add_exactly(&next, &slack, 1)) return false;
    return prove_nonnegative(proof, &next, depth - 1);
}

// x / c and ceildiv(x, c): between (x - c + 1) / c and x / c, or x / c and (x + c - 1) / c, as true fractions.
static bool prove_by_quotient(Proof *proof, const LinearSum *sum, const Term *term, const Expr *x, const Expr *by,
                              bool up, int depth) {
    int64_t c, factor = term->factor;
    if (!expr_const(by, &c) || c <= 0 || factor % c != 0 || range_of(proof->facts, x).low < 0) return false;
    if (c > INT32_MAX || factor > INT32_MAX || factor < -INT32_MAX) return false;
    bool lower = factor > 0;   // a lower bound of the quotient is wanted
    bool even = multiple_of(proof->facts, x) % c == 0;
    int64_t slack = lower == up || even ? 0 : c - 1, scale = factor / c;
    if (lower) slack = -slack;
    return prove_with(proof, sum, term->atom, factor, x, scale, scale * slack, depth);
}

static bool prove_by_atom(Proof *proof, const LinearSum *sum, const Term *term, int depth) {
    Expr *atom = term->atom;
    int64_t factor = term->factor;
    if (atom->kind == EXPR_VAR) {
        const Expr *value = facts_binding(proof->facts, atom->var);
        return value && prove_with(proof, sum, atom, factor, value, factor, 0, depth);
    }
    if (atom->kind == EXPR_BINARY && atom->binary.op == BIN_DIV)
        return prove_by_quotient(proof, sum, term, atom->binary.a, atom->binary.b, false, depth);
    if (atom->kind == EXPR_BINARY && atom->binary.op == BIN_MOD && factor < 0 &&
        range_of(proof->facts, atom->binary.a).low >= 0)   // x % c <= x
        return prove_with(proof, sum, atom, factor, atom->binary.a, factor, 0, depth);
    if (atom->kind != EXPR_CALL || atom->call.count != 2) return false;
    const Expr *a = atom->call.args[0].value, *b = atom->call.args[1].value;
    if (atom->call.op == OP_CEILDIV) return prove_by_quotient(proof, sum, term, a, b, true, depth);
    bool bounded = (atom->call.op == OP_MIN && factor < 0) || (atom->call.op == OP_MAX && factor > 0);
    return bounded && (prove_with(proof, sum, atom, factor, a, factor, 0, depth) ||
                       prove_with(proof, sum, atom, factor, b, factor, 0, depth));
}

// sum = k * known + rest with a positive k that cancels a term: then rest must be proved.
static bool prove_by_fact(Proof *proof, const LinearSum *sum, const LinearSum *known, int depth) {
    for (int i = 0; i < known->count; i++) {
        int64_t have = linear_factor(sum, known->terms[i].atom), step = known->terms[i].factor;
        if (have == 0 || have % step != 0 || have / step <= 0) continue;
        LinearSum rest = *sum;
        if (add_exactly(&rest, known, -(have / step)) && prove_nonnegative(proof, &rest, depth - 1)) return true;
    }
    return false;
}

static bool prove_nonnegative(Proof *proof, const LinearSum *sum, int depth) {
    if (sum->full || proof->steps-- <= 0) return false;
    if (linear_range(proof->facts, sum).low >= 0) return true;
    if (depth == 0 || !proof->facts) return false;
    for (const Fact *fact = latest_fact(proof->facts, FACT_NONNEGATIVE); fact; fact = earlier_fact(proof->facts, fact))
        if (prove_by_fact(proof, sum, fact->sum, depth)) return true;
    for (int i = 0; i < sum->count; i++)
        if (prove_by_atom(proof, sum, &sum->terms[i], depth)) return true;
    return false;
}

bool linear_prove_nonnegative(const Facts *facts, const LinearSum *sum) {
    enum { STEPS = 60, DEPTH = 4 };
    Proof proof = {facts, STEPS};
    return prove_nonnegative(&proof, sum, DEPTH);
}

// ---- conditions ----

// A comparison of integers as a sum that it says is >= 0 (for ==: and <= 0). False when the sides may wrap around.
static bool comparison_sum(const Facts *facts, BinaryOp op, const Expr *a, const Expr *b, LinearSum *sum) {
    if (!type_is_int(a->type)) return false;
    LinearSum left = linear_of(facts->arena, a), right = linear_of(facts->arena, b);
    if (!linear_exact(facts, &left) || !linear_exact(facts, &right)) return false;
    bool less = op == BIN_LT || op == BIN_LE;
    left.type = right.type = TYPE_I64;   // true integers from here on
    *sum = linear_new(TYPE_I64);
    sum->constant = op == BIN_LT || op == BIN_GT ? -1 : 0;
    return add_exactly(sum, less ? &right : &left, 1) && add_exactly(sum, less ? &left : &right, -1);
}

bool comparison_is_exact(const Facts *facts, const Expr *e) {
    LinearSum sum;
    return is_comparison(e) && comparison_sum(facts, e->binary.op, e->binary.a, e->binary.b, &sum);
}

BinaryOp comparison_negated(BinaryOp op) {
    switch (op) {
    case BIN_EQ: return BIN_NE;
    case BIN_NE: return BIN_EQ;
    case BIN_LT: return BIN_GE;
    case BIN_LE: return BIN_GT;
    case BIN_GT: return BIN_LE;
    default: return BIN_LT;
    }
}

static bool prove_comparison(const Facts *facts, BinaryOp op, const Expr *a, const Expr *b) {
    LinearSum sum;
    if (!type_is_int(a->type) || !facts) return false;
    if (op == BIN_EQ) {   // equal sums are equal even where they wrap
        LinearSum difference = linear_of(facts->arena, a);
        linear_add(facts->arena, &difference, b, -1);
        if (linear_is_constant(&difference, 0)) return true;
    }
    if (!comparison_sum(facts, op, a, b, &sum)) return false;
    if (op != BIN_EQ && op != BIN_NE) return linear_prove_nonnegative(facts, &sum);
    LinearSum opposite = linear_new(TYPE_I64);
    linear_add_linear(&opposite, &sum, -1);
    if (op == BIN_EQ) return linear_prove_nonnegative(facts, &sum) && linear_prove_nonnegative(facts, &opposite);
    linear_add_constant(&sum, -1);
    linear_add_constant(&opposite, -1);
    if (linear_prove_nonnegative(facts, &sum) || linear_prove_nonnegative(facts, &opposite)) return true;
    int64_t gcd = linear_gcd(&sum);   // 4 x + 2 is not 0
    return gcd > 1 && (sum.constant + 1) % gcd != 0;
}

static bool prove_is(const Facts *facts, const Expr *e, bool holds) {
    if (e->kind == EXPR_INT) return (e->integer != 0) == holds;
    for (const Fact *fact = latest_fact(facts, FACT_CONDITION); fact; fact = earlier_fact(facts, fact))
        if (expr_equal(fact->expr, e)) return fact->holds == holds;
    if (e->kind == EXPR_UNARY && e->unary.op == UNARY_NOT) return prove_is(facts, e->unary.a, !holds);
    if (e->kind == EXPR_BINARY && (e->binary.op == BIN_LOGICAL_AND || e->binary.op == BIN_LOGICAL_OR)) {
        bool both = (e->binary.op == BIN_LOGICAL_AND) == holds;
        bool a = prove_is(facts, e->binary.a, holds);
        return both ? a && prove_is(facts, e->binary.b, holds) : a || prove_is(facts, e->binary.b, holds);
    }
    if (e->kind == EXPR_VAR) {
        Range range = var_fact(facts, e->var).range;
        return range.low == holds && range.high == holds;
    }
    if (e->kind == EXPR_CALL && e->call.op == OP_ALIGNED && holds) {
        int64_t bytes;
        return ARG(e, ALIGNED, tensor).region && expr_const(ARG(e, ALIGNED, n).value, &bytes) &&
               prove_aligned(facts, ARG(e, ALIGNED, tensor).region->buf, bytes);
    }
    if (!is_comparison(e)) return false;
    return prove_comparison(facts, holds ? e->binary.op : comparison_negated(e->binary.op), e->binary.a, e->binary.b);
}

bool prove(const Facts *facts, const Expr *condition) {
    return prove_is(facts, condition, true);
}

bool prove_aligned(const Facts *facts, const Buf *buf, int64_t bytes) {
    for (const Fact *fact = latest_fact(facts, FACT_ALIGNED); fact; fact = earlier_fact(facts, fact))
        if (fact->buf == buf && bytes > 0 && fact->bytes % bytes == 0) return true;
    return buf->align > 0 && bytes > 0 && buf->align % bytes == 0;
}

// ---- learning ----

static void learn_range(Facts *facts, const Var *var, Range range) {
    Fact fact = var_fact(facts, var);
    if (range.low > fact.range.low) fact.range.low = range.low;
    if (range.high < fact.range.high) fact.range.high = range.high;
    if (fact.range.low > fact.range.high) return;   // contradiction: code that never runs
    Range known = var_fact(facts, var).range;
    if (fact.range.low == known.low && fact.range.high == known.high) return;
    if (fact.range.low == fact.range.high) fact.multiple = fact.range.low < 0 ? -fact.range.low : fact.range.low;
    push_fact(facts, fact);
}

static void learn_multiple(Facts *facts, const Var *var, int64_t multiple) {
    Fact fact = var_fact(facts, var);
    if (fact.multiple == 0) return;
    int64_t common = gcd64(fact.multiple, multiple);
    if (multiple_product(fact.multiple / common, multiple) % multiple != 0) return;   // too large to tell
    fact.multiple = multiple_product(fact.multiple / common, multiple);
    push_fact(facts, fact);
}

// What a sum that is >= 0 says about one of its variables, given the ranges of the others.
static void learn_from_term(Facts *facts, const LinearSum *sum, const Term *term) {
    LinearSum others = *sum;
    linear_add_term(&others, term->atom, -term->factor);
    Int128 most = linear_range(facts, &others).high, factor = term->factor;
    Int128 bound = floor_div128(most, factor < 0 ? -factor : factor);   // |factor| * x >= -most, or <= most
    Range range = {INT64_MIN, INT64_MAX};
    if (factor > 0 && -bound > INT64_MIN) range.low = -bound > INT64_MAX ? INT64_MAX : (int64_t)-bound;
    if (factor < 0 && bound < INT64_MAX) range.high = bound < INT64_MIN ? INT64_MIN : (int64_t)bound;
    learn_range(facts, term->atom->var, range);
}

// The sum is >= 0.
static void learn_nonnegative(Facts *facts, const LinearSum *sum, bool stable) {
    for (int i = 0; i < sum->count; i++)
        if (sum->terms[i].atom->kind == EXPR_VAR) learn_from_term(facts, sum, &sum->terms[i]);
    if (sum->count < 2 && (sum->count == 0 || sum->terms[0].atom->kind == EXPR_VAR)) return;   // said it all
    if (!stable) return;   // of ranges that hold now it said what it can
    push_fact(facts, (Fact){.kind = FACT_NONNEGATIVE, .sum = arena_copy(facts->arena, sum, sizeof *sum)});
}

// e % c == 0.
static bool learn_divisible(Facts *facts, const Expr *a, const Expr *b) {
    int64_t c;
    if (!expr_is_int(b, 0) || a->kind != EXPR_BINARY || a->binary.op != BIN_MOD || !expr_const(a->binary.b, &c) ||
        c < 2)
        return false;
    LinearSum sum = linear_of(facts->arena, a->binary.a);
    if (sum.full || !linear_exact(facts, &sum)) return false;
    if (sum.count == 1 && sum.constant == 0 && sum.terms[0].atom->kind == EXPR_VAR)
        learn_multiple(facts, sum.terms[0].atom->var, c / gcd64(c, sum.terms[0].factor));
    else
        push_fact(facts,
                  (Fact){.kind = FACT_MULTIPLE, .multiple = c, .sum = arena_copy(facts->arena, &sum, sizeof sum)});
    return true;
}

bool facts_multiple_known(const Facts *facts, const LinearSum *sum, int64_t divisor) {
    for (const Fact *fact = latest_fact(facts, FACT_MULTIPLE); fact; fact = earlier_fact(facts, fact)) {
        if (fact->multiple % divisor != 0) continue;
        LinearSum rest = *sum;   // sum - known must be a multiple by itself
        linear_add_linear(&rest, fact->sum, -1);
        if (!rest.full && gcd64(linear_gcd(&rest), rest.constant) % divisor == 0) return true;
    }
    return false;
}

static void learn_comparison(Facts *facts, BinaryOp op, const Expr *a, const Expr *b, bool stable);

// Below a minimum is below both, above a maximum above both.
static void learn_of_both(Facts *facts, BinaryOp op, const Expr *a, const Expr *b, bool stable) {
    static const BinaryOp swapped[] = {[BIN_LT] = BIN_GT, [BIN_LE] = BIN_GE, [BIN_GT] = BIN_LT, [BIN_GE] = BIN_LE};
    if (op != BIN_LT && op != BIN_LE && op != BIN_GT && op != BIN_GE) return;
    bool below = op == BIN_LT || op == BIN_LE;
    if (is_expr_call(b, below ? OP_MIN : OP_MAX))
        for (int i = 0; i < 2; i++) learn_comparison(facts, op, a, b->call.args[i].value, stable);
    else if (is_expr_call(a, below ? OP_MAX : OP_MIN)) learn_of_both(facts, swapped[op], b, a, stable);
}

static void learn_comparison(Facts *facts, BinaryOp op, const Expr *a, const Expr *b, bool stable) {
    learn_of_both(facts, op, a, b, stable);
    if (op == BIN_EQ && stable && learn_divisible(facts, a, b)) return;
    LinearSum sum;
    if (!comparison_sum(facts, op, a, b, &sum)) return;
    if (op == BIN_NE) {   // a bound moves when it is excluded
        if (sum.count != 1 || sum.terms[0].atom->kind != EXPR_VAR || sum.constant % sum.terms[0].factor != 0) return;
        const Var *var = sum.terms[0].atom->var;
        Range range = var_fact(facts, var).range;
        int64_t excluded = -(sum.constant / sum.terms[0].factor);
        if (range.low == excluded) learn_range(facts, var, (Range){excluded + 1, INT64_MAX});
        if (range.high == excluded) learn_range(facts, var, (Range){INT64_MIN, excluded - 1});
        return;
    }
    learn_nonnegative(facts, &sum, stable);
    if (op != BIN_EQ) return;
    LinearSum opposite = linear_new(TYPE_I64);
    linear_add_linear(&opposite, &sum, -1);
    learn_nonnegative(facts, &opposite, stable);
}

void facts_assume(Facts *facts, const Expr *e, bool holds) {
    if (e->kind == EXPR_INT) return;
    if (e->kind == EXPR_UNARY && e->unary.op == UNARY_NOT) {
        facts_assume(facts, e->unary.a, !holds);
        return;
    }
    if (e->kind == EXPR_BINARY && e->binary.op == (holds ? BIN_LOGICAL_AND : BIN_LOGICAL_OR)) {
        facts_assume(facts, e->binary.a, holds);
        facts_assume(facts, e->binary.b, holds);
        return;
    }
    bool stable = expr_is_stable(e), compares = is_comparison(e) && type_is_int(e->binary.a->type);
    if (compares && (stable || facts->carried))
        learn_comparison(facts, holds ? e->binary.op : comparison_negated(e->binary.op), e->binary.a, e->binary.b,
                         stable);
    if (compares || !stable) return;   // facts outlive the moment, so what they name must too
    if (e->kind == EXPR_VAR && e->type == TYPE_BOOL) {
        learn_range(facts, e->var, (Range){holds, holds});
        return;
    }
    int64_t bytes;
    if (holds && e->kind == EXPR_CALL && e->call.op == OP_ALIGNED && ARG(e, ALIGNED, tensor).region &&
        expr_const(ARG(e, ALIGNED, n).value, &bytes)) {
        push_fact(facts, (Fact){.kind = FACT_ALIGNED, .buf = ARG(e, ALIGNED, tensor).region->buf, .bytes = bytes});
        return;
    }
    push_fact(facts, (Fact){.kind = FACT_CONDITION, .expr = e, .holds = holds});
}

void facts_bind(Facts *facts, const Var *var, const Expr *value) {
    if (!type_is_int(var->type) && var->type != TYPE_BOOL) return;
    if (value->type != var->type) return;
    Fact fact = var_fact(facts, var);
    fact.range = range_of(facts, value);
    fact.multiple = multiple_of(facts, value);
    fact.expr = expr_is_stable(value) ? value : NULL;
    push_fact(facts, fact);
}

void facts_iter(Facts *facts, const Iter *iter) {
    if (iter->var->type != iter->begin->type) return;
    Range begin = range_of(facts, iter->begin), end = range_of(facts, iter->end);
    int64_t step = 1, last = end.high;
    expr_const(iter->step, &step);
    if (last > INT64_MIN) last--;
    if (begin.low == begin.high && step > 1 && last >= begin.low)   // the last one that is reached
        last =
            (int64_t)((uint64_t)begin.low + ((uint64_t)last - (uint64_t)begin.low) / (uint64_t)step * (uint64_t)step);
    learn_range(facts, iter->var, (Range){begin.low, last});
    int64_t multiple = gcd64(multiple_of(facts, iter->begin), step);
    if (multiple > 1) learn_multiple(facts, iter->var, multiple);

    Expr *index = e_var(facts->arena, iter->var);
    if (iter->begin->kind != EXPR_INT && expr_is_stable(iter->begin))
        learn_comparison(facts, BIN_LE, iter->begin, index, true);
    if (iter->end->kind != EXPR_INT && expr_is_stable(iter->end))
        learn_comparison(facts, BIN_LT, index, iter->end, true);
}

// ---- variables that are assigned ----

void facts_carry(Facts *facts, const Var *var, Range range) {
    if (!facts->carried) facts->carried = map_new(facts->arena);
    map_put(facts->carried, var, arena_copy(facts->arena, &range, sizeof range));
    push_fact(facts, (Fact){.kind = FACT_VAR, .var = var, .range = range, .multiple = 1});
}

bool facts_forget(Facts *facts, const Stmt *stmt) {
    bool changed = false;
    if (!facts->carried) return false;
    FOR_EACH_STMT_IN (below, stmt) {
        const Range *all = below->kind == STMT_ASSIGN ? map_get(facts->carried, below->let.var) : NULL;
        if (!all) continue;
        Range now = var_fact(facts, below->let.var).range;
        if (now.low == all->low && now.high == all->high) continue;
        push_fact(facts, (Fact){.kind = FACT_VAR, .var = below->let.var, .range = *all, .multiple = 1});
        changed = true;
    }
    return changed;
}

// ---- statements ----

void facts_enter(Facts *facts, const Stmt *stmt) {
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) facts_iter(facts, &iters[i]);
    if (stmt->kind == STMT_LET) facts_bind(facts, stmt->let.var, stmt->let.value);
    if (stmt->kind == STMT_ASSUME) facts_assume(facts, stmt->assume, true);
    if (stmt->kind == STMT_WHILE) facts_assume(facts, stmt->while_.condition, true);
}

void facts_enter_body(Facts *facts, const Stmt *stmt, const Block *body) {
    if (stmt->kind == STMT_IF) facts_assume(facts, stmt->if_.condition, body == &stmt->if_.then);
    else facts_enter(facts, stmt);
}

Facts *facts_new(Arena *arena, const Func *func) {
    Facts *facts = NEW(arena, Facts);
    facts->arena = arena;
    facts->heads = map_new(arena);
    facts->known = map_new(arena);
    for (int kind = 0; kind <= FACT_CONDITION; kind++) facts->latest[kind] = -1;
    if (!func) return facts;
    if (func->when) facts_assume(facts, func->when, true);
    for (int i = 0; i < func->body.count; i++)
        if (func->body.items[i]->kind == STMT_ASSUME) facts_assume(facts, func->body.items[i]->assume, true);
    return facts;
}
