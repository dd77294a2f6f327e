// Sums of terms: flattening, collecting, printing back in a canonical order.
#include "ir/linear.h"
#include "ir/build.h"
#include <string.h>

int64_t gcd64(int64_t a, int64_t b) {
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;   // 2^63 alone: any divisor will do
}

Int128 floor_div128(Int128 a, Int128 b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Factors of unsigned types are kept signed, so that x - y has the factors 1 and -1.
static int64_t wrap_factor(Type type, int64_t factor) {
    switch (type_bits(type)) {
    case 8: return (int8_t)(uint64_t)factor;
    case 16: return (int16_t)(uint64_t)factor;
    case 32: return (int32_t)(uint64_t)factor;
    default: return factor;
    }
}

static int64_t wrap_mul(Type type, int64_t a, int64_t b) {
    return wrap_factor(type, (int64_t)((uint64_t)a * (uint64_t)b));
}

static int64_t wrap_add(Type type, int64_t a, int64_t b) {
    return wrap_factor(type, (int64_t)((uint64_t)a + (uint64_t)b));
}

// ---- products ----
static int collect_factors(const Expr *e, Expr *factors[PRODUCT_MAX], int count) {
    if (count < 0) return -1;
    if (e->kind == EXPR_BINARY && e->binary.op == BIN_MUL)
        return collect_factors(e->binary.b, factors, collect_factors(e->binary.a, factors, count));
    if (count == PRODUCT_MAX) return -1;
    factors[count] = (Expr *)e;
    return count + 1;
}

int product_factors(const Expr *atom, Expr *factors[PRODUCT_MAX]) {
    int count = collect_factors(atom, factors, 0);
    return count < 0 ? 0 : count;
}

static bool products_equal(const Expr *a, const Expr *b) {
    Expr *x[PRODUCT_MAX], *y[PRODUCT_MAX];
    int count = product_factors(a, x);
    if (count == 0 || count != product_factors(b, y)) return false;
    for (int i = 0, left = count; i < count; i++, left--) {
        int at = 0;
        while (at < left && !expr_equal(x[i], y[at])) at++;
        if (at == left) return false;
        y[at] = y[left - 1];
    }
    return true;
}

static bool is_product(const Expr *e) {
    return e->kind == EXPR_BINARY && e->binary.op == BIN_MUL;
}

bool atoms_equal(const Expr *a, const Expr *b) {
    if (expr_equal(a, b)) return true;
    return is_product(a) && is_product(b) && a->type == b->type && products_equal(a, b);
}

// ---- collecting ----
LinearSum linear_new(Type type) {
    return (LinearSum){.type = type};
}

void linear_add_constant(LinearSum *sum, int64_t constant) {
    sum->constant = wrap_add(sum->type, sum->constant, constant);
}

void linear_add_term(LinearSum *sum, Expr *atom, int64_t factor) {
    if (factor == 0) return;
    int i = 0;
    while (i < sum->count && !atoms_equal(sum->terms[i].atom, atom)) i++;
    if (i == LINEAR_MAX) {
        sum->full = true;
        return;
    }
    if (i == sum->count) {
        sum->terms[sum->count++] = (Term){factor, atom};
        return;
    }
    sum->terms[i].factor = wrap_add(sum->type, sum->terms[i].factor, factor);
    if (sum->terms[i].factor) return;
    sum->count--;
    memmove(&sum->terms[i], &sum->terms[i + 1], sizeof(Term) * (size_t)(sum->count - i));
}

void linear_add_linear(LinearSum *sum, const LinearSum *other, int64_t factor) {
    for (int i = 0; i < other->count; i++)
        linear_add_term(sum, other->terms[i].atom, wrap_mul(sum->type, other->terms[i].factor, factor));
    linear_add_constant(sum, wrap_mul(sum->type, other->constant, factor));
    sum->full |= other->full;
}

// A product of unknowns: its constants join the factor, what is left is the atom.
static void add_product(Arena *arena, LinearSum *sum, const Expr *e, int64_t factor) {
    Expr *factors[PRODUCT_MAX], *atom = NULL;
    int count = product_factors(e, factors);
    int64_t constant = 1;
    bool has_constant = false;
    for (int i = 0; i < count; i++)
        if (factors[i]->kind == EXPR_INT) {
            constant = wrap_mul(sum->type, constant, factors[i]->integer);
            has_constant = true;
        }
    if (!has_constant) {
        linear_add_term(sum, (Expr *)e, factor);
        return;
    }
    for (int i = 0; i < count; i++)
        if (factors[i]->kind != EXPR_INT) atom = atom ? e_mul(arena, atom, factors[i]) : factors[i];
    if (atom) linear_add_term(sum, atom, wrap_mul(sum->type, factor, constant));
    else linear_add_constant(sum, wrap_mul(sum->type, factor, constant));
}

// a << n is a * 2^n only inside the width: by another amount it is 0, which is no multiple of this form.
static bool is_multiple_by_shift(const Expr *e) {
    const Expr *count = e->binary.b;
    return e->binary.op == BIN_SHL && count->kind == EXPR_INT && count->integer >= 0 &&
           count->integer < type_bits(e->type);
}

static void add_binary(Arena *arena, LinearSum *sum, const Expr *e, int64_t factor) {
    const Expr *a = e->binary.a, *b = e->binary.b;
    switch (e->binary.op) {
    case BIN_ADD:
        linear_add(arena, sum, a, factor);
        linear_add(arena, sum, b, factor);
        return;
    case BIN_SUB:
        linear_add(arena, sum, a, factor);
        linear_add(arena, sum, b, wrap_mul(sum->type, factor, -1));
        return;
    case BIN_MUL:
        if (b->kind == EXPR_INT) linear_add(arena, sum, a, wrap_mul(sum->type, factor, b->integer));
        else if (a->kind == EXPR_INT) linear_add(arena, sum, b, wrap_mul(sum->type, factor, a->integer));
        else add_product(arena, sum, e, factor);
        return;
    case BIN_SHL:
        if (is_multiple_by_shift(e))
            linear_add(arena, sum, a, wrap_mul(sum->type, factor, (int64_t)((uint64_t)1 << b->integer)));
        else linear_add_term(sum, (Expr *)e, factor);
        return;
    default: linear_add_term(sum, (Expr *)e, factor);
    }
}

void linear_add(Arena *arena, LinearSum *sum, const Expr *e, int64_t factor) {
    if (factor == 0 || sum->full) return;
    if (e->kind == EXPR_INT) linear_add_constant(sum, wrap_mul(sum->type, e->integer, factor));
    else if (e->kind == EXPR_BINARY) add_binary(arena, sum, e, factor);
    else if (e->kind == EXPR_UNARY && e->unary.op == UNARY_NEG)
        linear_add(arena, sum, e->unary.a, wrap_mul(sum->type, factor, -1));
    else linear_add_term(sum, (Expr *)e, factor);
}

bool linear_splits(const Expr *e) {
    if (e->kind == EXPR_UNARY) return e->unary.op == UNARY_NEG;
    if (e->kind != EXPR_BINARY) return false;
    if (e->binary.op == BIN_MUL) return e->binary.a->kind == EXPR_INT || e->binary.b->kind == EXPR_INT;
    return e->binary.op == BIN_ADD || e->binary.op == BIN_SUB || is_multiple_by_shift(e);
}

LinearSum linear_of(Arena *arena, const Expr *expr) {
    LinearSum sum = linear_new(expr->type);
    linear_add(arena, &sum, expr, 1);
    return sum;
}

// ---- questions ----
LinearSum linear_divided(const LinearSum *sum, int64_t divisor) {
    LinearSum result = *sum;
    for (int i = 0; i < result.count; i++) result.terms[i].factor /= divisor;
    result.constant /= divisor;
    return result;
}

bool linear_is_constant(const LinearSum *sum, int64_t value) {
    return !sum->full && sum->count == 0 && sum->constant == value;
}

int64_t linear_factor(const LinearSum *sum, const Expr *atom) {
    for (int i = 0; i < sum->count; i++)
        if (atoms_equal(sum->terms[i].atom, atom)) return sum->terms[i].factor;
    return 0;
}

int64_t linear_gcd(const LinearSum *sum) {
    int64_t gcd = 0;
    for (int i = 0; i < sum->count; i++) gcd = gcd64(gcd, sum->terms[i].factor);
    return gcd;
}

// ---- back to an expression ----

// Larger factors first (they belong to outer loops, so what is invariant stands together), products of unknowns before
// all; what is equal keeps its order of appearance. Names play no role: renaming must not change the program.
static bool term_before(const Term *a, const Term *b) {
    if (is_product(a->atom) != is_product(b->atom)) return is_product(a->atom);
    uint64_t x = a->factor < 0 ? 0 - (uint64_t)a->factor : (uint64_t)a->factor;
    uint64_t y = b->factor < 0 ? 0 - (uint64_t)b->factor : (uint64_t)b->factor;
    return x > y;
}

static void sort_terms(LinearSum *sum) {   // insertion sort: stable, and the sums are short
    for (int i = 1; i < sum->count; i++) {
        Term term = sum->terms[i];
        int at = i;
        for (; at > 0 && term_before(&term, &sum->terms[at - 1]); at--) sum->terms[at] = sum->terms[at - 1];
        sum->terms[at] = term;
    }
}

static Expr *append_term(Arena *arena, Type type, Expr *sum, const Term *term) {
    bool minus = sum && term->factor < 0 && term->factor != INT64_MIN;
    Expr *value = e_mul(arena, term->atom, e_int_of(arena, type, minus ? -term->factor : term->factor));
    if (!sum && term->factor == -1) value = e_unary(arena, UNARY_NEG, term->atom);
    if (!sum) return value;
    return minus ? e_sub(arena, sum, value) : e_add(arena, sum, value);
}

Expr *linear_expr(Arena *arena, const LinearSum *unsorted) {
    LinearSum sum = *unsorted;
    sort_terms(&sum);
    Expr *result = NULL;
    int first = 0;   // starts with a term that is added: n - i, not -i + n
    while (first < sum.count && sum.terms[first].factor < 0) first++;
    bool negative = first == sum.count;
    if (!negative) result = append_term(arena, sum.type, NULL, &sum.terms[first]);
    else if (sum.constant > 0 || sum.count == 0) result = e_int_of(arena, sum.type, sum.constant);
    for (int i = 0; i < sum.count; i++)
        if (negative || i != first) result = append_term(arena, sum.type, result, &sum.terms[i]);
    if ((negative && sum.constant > 0) || sum.constant == 0 || sum.count == 0) return result;
    bool minus = sum.constant < 0 && sum.constant != INT64_MIN;
    Expr *constant = e_int_of(arena, sum.type, minus ? -sum.constant : sum.constant);
    return minus ? e_sub(arena, result, constant) : e_add(arena, result, constant);
}

// ---- ranges ----
Range type_range(Type type) {
    int bits = type_bits(type);
    if (type == TYPE_BOOL) return (Range){0, 1};
    if (bits >= 64 || !type_is_int(type)) return (Range){INT64_MIN, INT64_MAX};
    if (type_kind(type) == KIND_UINT) return (Range){0, ((int64_t)1 << bits) - 1};
    return (Range){-((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1};
}

// A u64 is only reasoned about while its bits are those of a non-negative i64.
bool wide_fits(Type type, WideRange range) {
    Range limits = type_range(type);
    return range.low >= (type == TYPE_U64 ? 0 : limits.low) && range.high <= limits.high;
}

static Int128 clamp(Int128 value) {   // far outside of 64 bits, and sums of LINEAR_MAX such still fit
    const Int128 limit = (Int128)1 << 100;
    return value > limit ? limit : value < -limit ? -limit : value;
}

WideRange linear_range(const Facts *facts, const LinearSum *sum) {
    WideRange range = {sum->constant, sum->constant};
    for (int i = 0; i < sum->count; i++) {
        Range atom = range_of(facts, sum->terms[i].atom);
        Int128 a = (Int128)sum->terms[i].factor * atom.low, b = (Int128)sum->terms[i].factor * atom.high;
        range.low += clamp(a < b ? a : b);
        range.high += clamp(a < b ? b : a);
    }
    return range;
}

bool linear_exact(const Facts *facts, const LinearSum *sum) {
    return !sum->full && wide_fits(sum->type, linear_range(facts, sum));
}
