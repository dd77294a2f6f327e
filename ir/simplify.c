// Simplification of expressions with facts.
//
// Bottom-up: when a node is reached its operands are simple already. Integer sums go through one normal form
// (linear.h), in which terms are collected and quotient-remainder pairs are put together again; / and % by constants
// are taken apart by what divides evenly; comparisons become sums compared with 0. Where the ranges do not exclude
// wrapping around, only what holds modulo 2^n is done.
//
//     (bm * 64 + i) / 64, 0 <= i < 64                  bm
//     (8 * x + y) % 64, 0 <= y < 8                     x % 8 * 8 + y
//     t / 32 * 32 + t % 32                             t
//     t / 8 % 4 * 8 + t % 8                            t % 32
//     n * 64 + j < n * 64 + 10                         j < 10
//
// It does not multiply out products of unknowns, and it takes every expression to a form that it leaves alone.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/rewrite.h"

typedef struct Simplifier {
    Arena *arena;
    const Facts *facts;
    bool effects;   // a call with an effect is somewhere inside: those nodes stay as they are
} Simplifier;

static Expr *divide(const Simplifier *s, const LinearSum *sum, int64_t c);
static Expr *remainder_of(const Simplifier *s, const LinearSum *sum, int64_t c);

static bool nonnegative(const Simplifier *s, const LinearSum *sum) {
    WideRange range = linear_range(s->facts, sum);
    return !sum->full && range.low >= 0 && wide_fits(sum->type, range);
}

static bool within(const Simplifier *s, const LinearSum *sum, int64_t end) {   // 0 <= sum < end
    WideRange range = linear_range(s->facts, sum);
    return !sum->full && range.low >= 0 && range.high < end;
}

// ---- taking sums apart ----

// The terms whose factors are multiples of c, and the rest; the constant is split so that the rest's is in [0, c).
static void split(const LinearSum *sum, int64_t c, LinearSum *even, LinearSum *rest) {
    *even = *rest = linear_new(sum->type);
    for (int i = 0; i < sum->count; i++) {
        const Term *term = &sum->terms[i];
        linear_add_term(term->factor % c == 0 ? even : rest, term->atom, term->factor);
    }
    rest->constant = sum->constant - (int64_t)(floor_div128(sum->constant, c) * c);
    even->constant = (int64_t)((uint64_t)sum->constant - (uint64_t)rest->constant);
}

// Whether c divides a term by what is known about its atom.
static bool term_divides(const Simplifier *s, const Term *term, int64_t c) {
    return (Int128)term->factor * multiple_of(s->facts, term->atom) % c == 0;
}

// The terms that c does not divide, known multiples of atoms counted.
static LinearSum uneven_terms(const Simplifier *s, const LinearSum *sum, int64_t c) {
    LinearSum rest = linear_new(sum->type);
    rest.constant = sum->constant;
    for (int i = 0; i < sum->count; i++)
        if (!term_divides(s, &sum->terms[i], c)) linear_add_term(&rest, sum->terms[i].atom, sum->terms[i].factor);
    return rest;
}

// Looks for g | c with sum = g * a + b and 0 <= b < g, b not 0 or g > 1: then / and % by c are those of a by c / g.
static int64_t find_grain(const Simplifier *s, const LinearSum *sum, int64_t c, LinearSum *a, LinearSum *b) {
    int64_t best = 1;
    for (int i = 0; i < sum->count; i++) {
        int64_t g = gcd64(sum->terms[i].factor, c);
        if (g <= best) continue;
        split(sum, g, a, b);
        if (within(s, b, g)) best = g;
    }
    if (best == 1) return 1;
    split(sum, best, a, b);
    *a = linear_divided(a, best);
    return best;
}

// sum / c for 0 <= sum, exact.
static Expr *divide_nonnegative(const Simplifier *s, const LinearSum *sum, int64_t c) {
    WideRange range = linear_range(s->facts, sum);
    if (range.low / c == range.high / c) return e_int_of(s->arena, sum->type, (int64_t)(range.low / c));
    LinearSum even, rest;
    split(sum, c, &even, &rest);
    even = linear_divided(&even, c);
    if ((even.count || even.constant) && nonnegative(s, &rest) && linear_exact(s->facts, &even)) {
        LinearSum result = even;
        linear_add(s->arena, &result, divide(s, &rest, c), 1);
        return linear_expr(s->arena, &result);
    }
    rest = uneven_terms(s, sum, c);
    bool some = rest.count || rest.constant;
    if (some && rest.count + 1 == sum->count && within(s, &rest, c)) {   // y + j, y a multiple of c, 0 <= j < c
        LinearSum whole = *sum;
        linear_add_linear(&whole, &rest, -1);
        return divide(s, &whole, c);
    }
    LinearSum a, b;
    int64_t g = find_grain(s, sum, c, &a, &b);
    if (g > 1 && nonnegative(s, &a)) return divide(s, &a, c / g);
    return e_div(s->arena, linear_expr(s->arena, sum), e_int_of(s->arena, sum->type, c));
}

// x / d / c = x / (d * c), and x % m / c = x / c % (m / c): both hold for truncation whatever the sign of x.
static Expr *divide_atom(const Simplifier *s, Expr *atom, int64_t c) {
    int64_t d, product;
    if (atom->kind != EXPR_BINARY || !expr_const(atom->binary.b, &d) || d <= 0) return NULL;
    if (atom->binary.op == BIN_DIV && !__builtin_mul_overflow(d, c, &product) &&
        product <= type_range(atom->type).high) {
        LinearSum x = linear_of(s->arena, atom->binary.a);
        return divide(s, &x, product);
    }
    if (atom->binary.op == BIN_MOD && d % c == 0) {
        LinearSum x = linear_of(s->arena, atom->binary.a);
        LinearSum quotient = linear_of(s->arena, divide(s, &x, c));
        return remainder_of(s, &quotient, d / c);
    }
    return NULL;
}

// sum / c, c > 0.
static Expr *divide(const Simplifier *s, const LinearSum *sum, int64_t c) {
    if (c == 1) return linear_expr(s->arena, sum);
    if (sum->count == 1 && sum->terms[0].factor == 1 && sum->constant == 0 && sum->type != TYPE_U64) {
        Expr *simpler = divide_atom(s, sum->terms[0].atom, c);
        if (simpler) return simpler;
    }
    Expr *plain = e_div(s->arena, linear_expr(s->arena, sum), e_int_of(s->arena, sum->type, c));
    if (!linear_exact(s->facts, sum)) return plain;
    int64_t g = gcd64(gcd64(linear_gcd(sum), sum->constant), c);
    if (g > 1) {
        LinearSum smaller = linear_divided(sum, g);
        return linear_exact(s->facts, &smaller) ? divide(s, &smaller, c / g) : plain;
    }
    return nonnegative(s, sum) ? divide_nonnegative(s, sum, c) : plain;
}

// Replaces y % m by y where c divides its factor times m.
static LinearSum drop_inner_remainders(const Simplifier *s, const LinearSum *sum, int64_t c) {
    LinearSum result = *sum;
    for (int i = 0; i < sum->count; i++) {
        const Term *term = &sum->terms[i];
        int64_t m;
        if (!is_binary(term->atom, BIN_MOD) || !expr_const(term->atom->binary.b, &m) || m <= 0) continue;
        if ((Int128)term->factor * m % c != 0 || range_of(s->facts, term->atom->binary.a).low < 0) continue;
        LinearSum trial = result;
        linear_add_term(&trial, term->atom, -term->factor);
        linear_add(s->arena, &trial, term->atom->binary.a, term->factor);
        if (nonnegative(s, &trial)) result = trial;
    }
    return result;
}

// sum % c for 0 <= sum, exact.
static Expr *remainder_nonnegative(const Simplifier *s, const LinearSum *sum, int64_t c) {
    LinearSum even, rest, a, b;
    split(sum, c, &even, &rest);
    for (int i = 0; i < rest.count; i++)   // 65 x % 64 = x % 64
        if (rest.terms[i].factor > c) rest.terms[i].factor %= c;
    if (!nonnegative(s, &rest)) rest = *sum;
    rest = drop_inner_remainders(s, &rest, c);
    even = uneven_terms(s, &rest, c);   // with what the inner remainders brought
    split(&even, c, &a, &b);
    if (nonnegative(s, &b)) rest = b;
    WideRange range = linear_range(s->facts, &rest);
    if (range.low / c == range.high / c) {
        linear_add_constant(&rest, (int64_t)(0 - (uint64_t)(range.low / c * c)));
        return linear_expr(s->arena, &rest);
    }
    int64_t g = find_grain(s, &rest, c, &a, &b);
    if (g > 1 && nonnegative(s, &a)) {
        linear_add(s->arena, &b, remainder_of(s, &a, c / g), g);
        return linear_expr(s->arena, &b);
    }
    return e_mod(s->arena, linear_expr(s->arena, &rest), e_int_of(s->arena, rest.type, c));
}

// sum % c, c > 0.
static Expr *remainder_of(const Simplifier *s, const LinearSum *sum, int64_t c) {
    Expr *zero = e_int_of(s->arena, sum->type, 0);
    if (c == 1) return zero;
    Expr *plain = linear_expr(s->arena, sum);
    bool exact = linear_exact(s->facts, sum);
    int64_t multiple = multiple_of(s->facts, plain);
    if (multiple % c == 0 && sum->type != TYPE_U64) return zero;
    if (exact && (facts_multiple_known(s->facts, sum, c) || gcd64(linear_gcd(sum), sum->constant) % c == 0))
        return zero;
    int64_t m;
    bool nested = is_binary(plain, BIN_MOD) && expr_const(plain->binary.b, &m) && m > 0 && m % c == 0;
    if (nested && sum->type != TYPE_U64) {
        LinearSum x = linear_of(s->arena, plain->binary.a);
        return remainder_of(s, &x, c);
    }
    if (exact && nonnegative(s, sum)) return remainder_nonnegative(s, sum, c);
    return e_mod(s->arena, plain, e_int_of(s->arena, sum->type, c));
}

// ---- / and % by an unknown ----

// atom / by where `by` is one of its factors (1 for the atom itself); NULL: it is not.
static Expr *without_factor(const Simplifier *s, const Expr *atom, const Expr *by) {
    Expr *factors[PRODUCT_MAX], *rest = NULL;
    int count = product_factors(atom, factors), at = 0;
    while (at < count && !expr_equal(factors[at], by)) at++;
    if (at == count) return NULL;
    for (int i = 0; i < count; i++)
        if (i != at) rest = rest ? e_mul(s->arena, rest, factors[i]) : factors[i];
    return rest ? rest : e_int_of(s->arena, atom->type, 1);
}

static bool proved_below(const Simplifier *s, const LinearSum *sum, const Expr *end) {   // 0 <= sum < end
    LinearSum room = linear_of(s->arena, end);
    if (!nonnegative(s, sum) || !linear_exact(s->facts, &room)) return false;
    room.type = TYPE_I64;
    linear_add_linear(&room, sum, -1);
    linear_add_constant(&room, -1);
    return linear_prove_nonnegative(s->facts, &room);
}

// a = q * b + r with 0 <= r < b: one of them is the answer. NULL: not found.
static Expr *divide_by_unknown(const Simplifier *s, Expr *a, Expr *b, bool remainder) {
    if (range_of(s->facts, b).low < 1) return NULL;
    LinearSum sum = linear_of(s->arena, a), quotient = linear_new(a->type), rest = linear_new(a->type);
    if (!nonnegative(s, &sum)) return NULL;
    for (int i = 0; i < sum.count; i++) {
        const Term *term = &sum.terms[i];
        Expr *factor = without_factor(s, term->atom, b);
        // The product itself must not have wrapped: its factors' ranges say.
        Range product = range_of(s->facts, term->atom), limits = type_range(a->type);
        bool whole = factor && (product.low > limits.low || product.high < limits.high);
        if (whole) linear_add(s->arena, &quotient, factor, term->factor);
        else linear_add_term(&rest, term->atom, term->factor);
    }
    rest.constant = sum.constant;
    if (quotient.full || rest.full || !proved_below(s, &rest, b)) return NULL;
    return linear_expr(s->arena, remainder ? &rest : &quotient);
}

static Expr *simplify_division(const Simplifier *s, Expr *e) {
    bool remainder = e->binary.op == BIN_MOD;
    Expr *a = e->binary.a, *b = e->binary.b, *simpler = NULL;
    int64_t c;
    if (!expr_const(b, &c)) {
        simpler = divide_by_unknown(s, a, b, remainder);
        return simpler ? simpler : e;
    }
    if (c <= 0) return e;
    LinearSum sum = linear_of(s->arena, a);
    if (sum.full) return e;
    return remainder ? remainder_of(s, &sum, c) : divide(s, &sum, c);
}

// ---- sums ----

// Puts quotients and remainders together again, by identities that hold for every x:
//     x / c * c + x % c = x          x / a % b * a + x % a = x % (a * b)
// A step is kept when terms disappear.
static bool join_division(const Simplifier *s, LinearSum *sum, int at) {
    Term term = sum->terms[at];
    int64_t c, factor = term.factor;
    if (term.atom->kind != EXPR_BINARY || !expr_const(term.atom->binary.b, &c) || c <= 1) return false;
    LinearSum trial = *sum;
    linear_add_term(&trial, term.atom, -factor);
    if (term.atom->binary.op == BIN_DIV && factor % c == 0) {
        LinearSum x = linear_of(s->arena, term.atom->binary.a);
        linear_add_linear(&trial, &x, factor / c);
        linear_add(s->arena, &trial, remainder_of(s, &x, c), -(factor / c));
    } else if (term.atom->binary.op == BIN_MOD) {   // as x - x / c * c: in x - x % c
        LinearSum x = linear_of(s->arena, term.atom->binary.a), whole = trial;
        int64_t product;
        linear_add_linear(&whole, &x, factor);
        if (!__builtin_mul_overflow(factor, c, &product)) linear_add(s->arena, &whole, divide(s, &x, c), -product);
        if (!whole.full && whole.count < sum->count) {
            *sum = whole;
            return true;
        }
        const Expr *inner = term.atom->binary.a;   // x / a % c
        int64_t a;
        if (!is_binary(inner, BIN_DIV) || !expr_const(inner->binary.b, &a) || a <= 1 || factor % a != 0) return false;
        if (__builtin_mul_overflow(a, c, &product) || product > type_range(sum->type).high) return false;
        x = linear_of(s->arena, inner->binary.a);
        linear_add(s->arena, &trial, remainder_of(s, &x, product), factor / a);
        linear_add(s->arena, &trial, remainder_of(s, &x, a), -(factor / a));
    } else {
        return false;
    }
    if (trial.full || trial.count >= sum->count) return false;
    *sum = trial;
    return true;
}

static Expr *simplify_sum(const Simplifier *s, Expr *e) {
    LinearSum sum = linear_of(s->arena, e);
    if (sum.full) return e;
    if (sum.type != TYPE_U64)
        for (int i = 0; i < sum.count; i++)
            if (join_division(s, &sum, i)) i = -1;
    return linear_expr(s->arena, &sum);
}

// ---- bits ----

// For a, c >= 0 and b, d in [0, g), g a power of two: (g a + b) ^ (g c + d) = g (a ^ c) + (b ^ d). Done when one side
// of each part is 0, so that no XOR is added.
static Expr *xor_by_pieces(const Simplifier *s, Expr *x, Expr *y) {
    LinearSum u = linear_of(s->arena, x), v = linear_of(s->arena, y), a, b, c, d;
    if (!nonnegative(s, &u) || !nonnegative(s, &v)) return NULL;
    for (int64_t g = (int64_t)1 << 20; g > 1; g /= 2) {
        split(&u, g, &a, &b);
        split(&v, g, &c, &d);
        bool high = linear_is_constant(&a, 0) != linear_is_constant(&c, 0);
        bool low = linear_is_constant(&b, 0) != linear_is_constant(&d, 0);
        if (!high || !low || !within(s, &b, g) || !within(s, &d, g) || !nonnegative(s, &a) || !nonnegative(s, &c))
            continue;
        linear_add_linear(&u, &v, 1);   // disjoint bits
        return linear_expr(s->arena, &u);
    }
    return NULL;
}

static Expr *make_xor(const Simplifier *s, Expr *a, Expr *b);

// (x + k) ^ y for a constant k below all bits of x and y: (x ^ y) + k, so that neighbours differ by an offset.
static Expr *xor_constant_below(const Simplifier *s, Expr *x, Expr *y) {
    LinearSum u = linear_of(s->arena, x), v = linear_of(s->arena, y), a, b, c, d;
    if (!nonnegative(s, &u) || !nonnegative(s, &v) || u.count == 0 || v.count == 0) return NULL;
    for (int64_t g = 2; g <= (int64_t)1 << 20 && g <= 2 * u.constant; g *= 2) {
        split(&u, g, &a, &b);
        split(&v, g, &c, &d);
        if (b.count > 0 || b.constant <= 0 || b.constant >= g || !linear_is_constant(&d, 0) || !nonnegative(s, &a))
            continue;
        LinearSum sum = linear_of(s->arena, make_xor(s, linear_expr(s->arena, &a), linear_expr(s->arena, &c)));
        linear_add_linear(&sum, &b, 1);
        return linear_expr(s->arena, &sum);
    }
    return NULL;
}

// (k + y) ^ z for a constant k above all bits of y: (y ^ z) ^ k, so that what varies is shared between constants.
static Expr *xor_constant_out(const Simplifier *s, Expr *x, Expr *z) {
    LinearSum u = linear_of(s->arena, x), rest = u;
    rest.constant = 0;
    if (u.count == 0 || u.constant <= 0 || z->kind == EXPR_INT || !within(s, &rest, u.constant & -u.constant))
        return NULL;
    Expr *inner = make_xor(s, linear_expr(s->arena, &rest), z);
    return make_xor(s, inner, e_int_of(s->arena, x->type, u.constant));
}

static Expr *make_xor(const Simplifier *s, Expr *a, Expr *b) {
    Expr *simpler;
    int64_t outer, inner;
    if (a->kind == EXPR_INT && b->kind != EXPR_INT) return make_xor(s, b, a);   // constants to the right
    if (expr_is_int(b, 0)) return a;
    if (expr_equal(a, b)) return e_int_of(s->arena, a->type, 0);
    if (expr_const(b, &outer) && is_binary(a, BIN_XOR) && expr_const(a->binary.b, &inner))
        return make_xor(s, a->binary.a, e_int_of(s->arena, a->type, outer ^ inner));
    if (is_binary(a, BIN_XOR) && a->binary.b->kind == EXPR_INT)   // (x ^ k) ^ y
        return b->kind == EXPR_INT ? e_xor(s->arena, a, b) : make_xor(s, make_xor(s, a->binary.a, b), a->binary.b);
    simpler = xor_by_pieces(s, a, b);
    if (!simpler) simpler = xor_constant_out(s, a, b);
    if (!simpler) simpler = xor_constant_out(s, b, a);
    if (!simpler) simpler = xor_constant_below(s, a, b);
    if (!simpler) simpler = xor_constant_below(s, b, a);
    return simpler ? simpler : e_xor(s->arena, a, b);
}

static Expr *simplify_xor(const Simplifier *s, Expr *e) {
    return make_xor(s, e->binary.a, e->binary.b);
}

static Expr *simplify_and_or(const Simplifier *s, Expr *e) {
    Expr *a = e->binary.a, *b = e->binary.b;
    if (expr_equal(a, b)) return a;
    Range range = range_of(s->facts, a);
    int64_t mask;
    bool whole = e->binary.op == BIN_AND && expr_const(b, &mask) && mask > 0 && (mask & (mask + 1)) == 0;
    return whole && range.low >= 0 && range.high <= mask ? a : e;
}

static Expr *simplify_shift_right(const Simplifier *s, Expr *e) {
    int64_t count;
    LinearSum sum = linear_of(s->arena, e->binary.a);
    if (!expr_const(e->binary.b, &count) || count < 0 || count > 61 || count >= type_bits(e->type) - 1) return e;
    return nonnegative(s, &sum) ? divide(s, &sum, (int64_t)1 << count) : e;   // x >> n is x / 2^n
}

// ---- comparisons and logic ----

// a < b and the like as terms >= bound, common terms cancelled and divided by their common factor; then written with
// every term on the side where it is added, in the direction the source had.
static Expr *write_comparison(const Simplifier *s, const Expr *e, const LinearSum *terms, int64_t bound) {
    LinearSum more = linear_new(e->binary.a->type), less = more;
    for (int i = 0; i < terms->count; i++) {
        const Term *term = &terms->terms[i];
        if (term->factor > 0) linear_add_term(&more, term->atom, term->factor);
        else linear_add_term(&less, term->atom, -term->factor);
    }
    BinaryOp op = e->binary.op;   // less + bound <= more
    bool strict = op == BIN_LT || op == BIN_GT;
    if (bound == INT64_MIN || bound == INT64_MAX) return NULL;
    if (bound == 1) strict = true;
    if (bound == 0) strict = false;
    int64_t constant = strict ? bound - 1 : bound;
    if (constant > 0 && more.count) less.constant = constant;
    else more.constant = -constant;
    if (!more.count || !less.count) {   // one side is a number
        more.constant = less.constant = 0;
        if (more.count) less.constant = constant;
        else more.constant = -constant;
    }
    if (!linear_exact(s->facts, &more) || !linear_exact(s->facts, &less)) return NULL;
    Expr *small = linear_expr(s->arena, &less), *large = linear_expr(s->arena, &more);
    bool flipped = op == BIN_GT || op == BIN_GE;
    if (flipped) return e_binary(s->arena, strict ? BIN_GT : BIN_GE, large, small);
    return e_binary(s->arena, strict ? BIN_LT : BIN_LE, small, large);
}

static Expr *simplify_order(const Simplifier *s, Expr *e) {
    BinaryOp op = e->binary.op;
    LinearSum a = linear_of(s->arena, e->binary.a), b = linear_of(s->arena, e->binary.b);
    if (!linear_exact(s->facts, &a) || !linear_exact(s->facts, &b)) return e;
    bool less = op == BIN_LT || op == BIN_LE;
    LinearSum difference = less ? b : a;   // >= (strict ? 1 : 0)
    linear_add_linear(&difference, less ? &a : &b, -1);
    int64_t g = linear_gcd(&difference), least;
    if (difference.full || g == 0) return e;
    if (__builtin_sub_overflow((int64_t)(op == BIN_LT || op == BIN_GT), difference.constant, &least)) return e;
    difference.constant = 0;
    LinearSum terms = linear_divided(&difference, g);
    int64_t bound = (int64_t)-floor_div128(-(Int128)least, g);   // ceil(least / g)
    Expr *written = write_comparison(s, e, &terms, bound);
    return written ? written : e;
}

// a == b is a - b == 0, also where they wrap: terms that are added go to the left, the others to the right.
static Expr *simplify_equality(const Simplifier *s, Expr *e) {
    LinearSum difference = linear_of(s->arena, e->binary.a);
    linear_add(s->arena, &difference, e->binary.b, -1);
    if (difference.full) return e;
    LinearSum left = linear_new(difference.type), right = left;
    for (int i = 0; i < difference.count; i++) {
        const Term *term = &difference.terms[i];
        if (term->factor > 0) linear_add_term(&left, term->atom, term->factor);
        else linear_add_term(&right, term->atom, (int64_t)(0 - (uint64_t)term->factor));
    }
    right.constant = (int64_t)(0 - (uint64_t)difference.constant);
    if (left.count == 0) {   // -x == 5: x == -5
        left = right;
        left.constant = 0;
        right = linear_new(difference.type);
        right.constant = difference.constant;
    }
    return e_binary(s->arena, e->binary.op, linear_expr(s->arena, &left), linear_expr(s->arena, &right));
}

static BinaryOp opposite_order(BinaryOp op) {
    static const BinaryOp by[] = {[BIN_EQ] = BIN_NE, [BIN_NE] = BIN_EQ, [BIN_LT] = BIN_GE,
                                  [BIN_LE] = BIN_GT, [BIN_GT] = BIN_LE, [BIN_GE] = BIN_LT};
    return by[op];
}

// The truth that the facts give a comparison; NULL: they do not.
static Expr *known_truth(const Simplifier *s, Expr *e) {
    if (e->kind == EXPR_INT) return e;
    if (prove(s->facts, e)) return e_bool(s->arena, true);
    if (prove(s->facts, e_unary(s->arena, UNARY_NOT, e))) return e_bool(s->arena, false);
    return NULL;
}

static Expr *simplify_comparison(const Simplifier *s, Expr *e) {
    if (!type_is_int(e->binary.a->type)) return e;
    Expr *known = known_truth(s, e);
    if (known) return known;
    if (e->binary.op != BIN_EQ && e->binary.op != BIN_NE) return simplify_order(s, e);
    Expr *equality = simplify_equality(s, e);   // may no longer wrap: asked again
    known = expr_equal(equality, e) ? NULL : known_truth(s, equality);
    return known ? known : equality;
}

static Expr *simplify_logic(const Simplifier *s, Expr *e) {
    (void)s;
    if (expr_equal(e->binary.a, e->binary.b)) return e->binary.a;
    return e;
}

static Expr *simplify_not(const Simplifier *s, Expr *e) {
    const Expr *a = e->unary.a;
    bool comparison = a->kind == EXPR_BINARY && a->binary.op >= BIN_EQ && a->binary.op <= BIN_GE;
    if (!comparison || !type_is_int(a->binary.a->type)) return e;   // !(x < y) is not x >= y when x is NaN
    return e_binary(s->arena, opposite_order(a->binary.op), a->binary.a, a->binary.b);
}

// ---- the rest ----
static Expr *simplify_min_max(const Simplifier *s, Expr *e) {
    Expr *a = ARG(e, MIN, a).value, *b = ARG(e, MIN, b).value;
    if (!type_is_int(e->type) || a->type != b->type) return e;
    bool min = e->call.op == OP_MIN;
    if (prove(s->facts, e_binary(s->arena, BIN_LE, a, b))) return min ? a : b;
    if (prove(s->facts, e_binary(s->arena, BIN_LE, b, a))) return min ? b : a;
    return e;
}

static Expr *simplify_ceildiv(const Simplifier *s, Expr *e) {
    Expr *a = ARG(e, CEILDIV, a).value, *b = ARG(e, CEILDIV, b).value;
    int64_t c;
    if (a->type != e->type || !expr_const(b, &c) || c <= 0) return e;
    Range range = range_of(s->facts, a);
    LinearSum sum = linear_of(s->arena, a);
    if (range.low < 0 || !linear_exact(s->facts, &sum)) return e;
    if (multiple_of(s->facts, a) % c == 0 || facts_multiple_known(s->facts, &sum, c)) return divide(s, &sum, c);
    if (range.low == range.high) return e_int_of(s->arena, e->type, range.low / c + (range.low % c != 0));
    return e;
}

static Expr *simplify_call(const Simplifier *s, Expr *e) {
    if (e->call.op == OP_ALIGNED) return prove(s->facts, e) ? e_bool(s->arena, true) : e;
    if (e->call.op == OP_MIN || e->call.op == OP_MAX) return simplify_min_max(s, e);
    if (e->call.op == OP_CEILDIV) return simplify_ceildiv(s, e);
    if (e->call.op == OP_ABS && type_is_int(e->type) && range_of(s->facts, ARG(e, ABS, x).value).low >= 0)
        return ARG(e, ABS, x).value;
    return e;
}

// x as a float of type T, when it was one before it was widened: x of `f32(x)`, constants. NULL: it is rounded.
static Expr *was_float(const Simplifier *s, Type type, Expr *x) {
    if (x->kind == EXPR_FLOAT) return e_cast(s->arena, type, x);
    if (type == TYPE_E5M2) return NULL;   // the conversion saturates an infinity
    return x->kind == EXPR_CAST && x->operand->type == type && x->type == type_compute(type) ? x->operand : NULL;
}

// bf16(f32(x)) = x; bf16(c ? f32(x) : 0) = c ? x : 0.
static Expr *simplify_float_cast(const Simplifier *s, Expr *e) {
    Expr *x = e->operand;
    if (x->kind != EXPR_SELECT) return x = was_float(s, e->type, x), x ? x : e;
    Expr *yes = was_float(s, e->type, x->select.yes), *no = was_float(s, e->type, x->select.no);
    return yes && no ? e_select(s->arena, x->select.condition, yes, no) : e;
}

// i64(i32(x)) = x when x fits; i32(i64(y)) = y for an i32 y.
static Expr *simplify_cast(const Simplifier *s, Expr *e) {
    Expr *inner = e->operand;
    if (type_is_float(e->type)) return simplify_float_cast(s, e);
    if (inner->kind != EXPR_CAST || !type_is_int(e->type) || !type_is_int(inner->type)) return e;
    Expr *x = inner->operand;
    if (x->type != e->type) return e;
    Range range = range_of(s->facts, x), limits = type_range(inner->type);
    bool kept = range.low >= limits.low && range.high <= limits.high;
    bool same_bits = type_bits(inner->type) >= type_bits(x->type);
    return same_bits || (kept && type_kind(inner->type) == type_kind(x->type)) || (kept && range.low >= 0) ? x : e;
}

static Expr *simplify_binary(const Simplifier *s, Expr *e) {
    BinaryOp op = e->binary.op;
    if (op >= BIN_EQ && op <= BIN_GE) return simplify_comparison(s, e);
    if (op == BIN_LOGICAL_AND || op == BIN_LOGICAL_OR) return simplify_logic(s, e);
    if (!type_is_int(e->type)) return e;
    switch (op) {
    case BIN_ADD:
    case BIN_SUB:
    case BIN_MUL:
    case BIN_SHL: return simplify_sum(s, e);
    case BIN_DIV:
    case BIN_MOD: return simplify_division(s, e);
    case BIN_XOR: return simplify_xor(s, e);
    case BIN_AND:
    case BIN_OR: return simplify_and_or(s, e);
    case BIN_SHR: return simplify_shift_right(s, e);
    default: return e;
    }
}

static bool find_effect(Visitor *visitor, Expr *e) {
    bool *found = visitor->user;
    *found |= e->kind == EXPR_CALL && !op_is_pure(e->call.op);
    return !*found;
}

static bool has_effect(Expr *e) {
    bool found = false;
    Visitor visitor = {.expr = find_effect, .user = &found};
    visit_expr(&visitor, e);
    return found;
}

static Expr *simplify_node(Mapper *mapper, Expr *e) {
    const Simplifier *s = mapper->user;
    Expr *simpler = e;
    if (e->kind == EXPR_INT || e->kind == EXPR_FLOAT || (s->effects && has_effect(e))) return e;
    bool one_value = type_is_int(e->type) || e->type == TYPE_BOOL;
    if (one_value && !is_binary(e, BIN_XOR)) {   // whose operands had one, too
        Range range = range_of(s->facts, e);
        if (range.low == range.high) return e_int_of(s->arena, e->type, range.low);
    }
    switch (e->kind) {
    case EXPR_UNARY:
        if (e->unary.op == UNARY_NOT) simpler = simplify_not(s, e);
        if (e->unary.op == UNARY_NEG && type_is_int(e->type)) simpler = simplify_sum(s, e);
        break;
    case EXPR_BINARY: simpler = simplify_binary(s, e); break;
    case EXPR_CAST: simpler = simplify_cast(s, e); break;
    case EXPR_CALL: simpler = simplify_call(s, e); break;
    default: break;
    }
    return expr_equal(simpler, e) ? e : simpler;
}

Expr *simplify_top(Arena *arena, const Facts *facts, Expr *expr) {
    Simplifier simplifier = {arena, facts, true};
    return simplify_node(&(Mapper){.user = &simplifier}, expr);
}

Expr *simplify_expr(Arena *arena, const Facts *facts, Expr *expr) {
    if (!facts) facts = facts_new(arena, NULL);
    Simplifier simplifier = {arena, facts, has_effect(expr)};
    Mapper mapper = {.arena = arena, .expr = simplify_node, .user = &simplifier};
    return map_expr(&mapper, expr);
}
