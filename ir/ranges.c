// Ranges and multiples of expressions.
//
// Both are of the value as the program computes it. Where an operation could leave its type (computed in 128 bits) the
// range is all of the type, and of a multiple only the power of two remains: that survives wrapping around.
#include "ir/build.h"
#include "ir/linear.h"
#include "support/numbers.h"

// ---- multiples ----
static const int64_t LARGEST_POWER = (int64_t)1 << 62;

// The power of two in a multiple: what survives wrapping around.
static int64_t power_factor(int64_t m) {
    return m == 0 ? LARGEST_POWER : m & -m;
}

int64_t multiple_product(int64_t a, int64_t b) {
    Int128 product = (Int128)a * b;
    if (product <= LARGEST_POWER) return (int64_t)product;
    Int128 power = (Int128)power_factor(a) * power_factor(b);
    return power > LARGEST_POWER ? LARGEST_POWER : (int64_t)power;
}

static WideRange product_range(Range a, Range b) {
    Int128 corners[] = {(Int128)a.low * b.low, (Int128)a.low * b.high, (Int128)a.high * b.low, (Int128)a.high * b.high};
    WideRange wide = {corners[0], corners[0]};
    for (int i = 1; i < 4; i++) {
        if (corners[i] < wide.low) wide.low = corners[i];
        if (corners[i] > wide.high) wide.high = corners[i];
    }
    return wide;
}

// Whether the node's own operation never wraps.
static bool computed_exactly(const Facts *facts, const Expr *e) {
    bool unary = e->kind == EXPR_UNARY;
    Range a = range_of(facts, unary ? e->unary.a : e->binary.a), b = unary ? a : range_of(facts, e->binary.b);
    WideRange wide = {-(Int128)a.high, -(Int128)a.low};
    if (unary) return wide_fits(e->type, wide);
    switch (e->binary.op) {
    case BIN_ADD: wide = (WideRange){(Int128)a.low + b.low, (Int128)a.high + b.high}; break;
    case BIN_SUB: wide = (WideRange){(Int128)a.low - b.high, (Int128)a.high - b.low}; break;
    case BIN_MUL: wide = product_range(a, b); break;
    default: return false;
    }
    return wide_fits(e->type, wide);
}

static int64_t multiple_of_binary(const Facts *facts, const Expr *e) {
    int64_t a = multiple_of(facts, e->binary.a), b, c;
    bool constant = expr_const(e->binary.b, &c);
    switch (e->binary.op) {
    case BIN_ADD:
    case BIN_SUB: return gcd64(a, multiple_of(facts, e->binary.b));
    case BIN_MUL: return multiple_product(a, multiple_of(facts, e->binary.b));
    case BIN_DIV: return constant && c > 0 && a % c == 0 ? a / c : 1;
    case BIN_MOD: return gcd64(a, multiple_of(facts, e->binary.b));
    case BIN_SHL: return constant && c >= 0 && c < 62 ? multiple_product(a, (int64_t)1 << c) : 1;
    case BIN_AND: b = power_factor(multiple_of(facts, e->binary.b)); return power_factor(a) > b ? power_factor(a) : b;
    case BIN_OR:
    case BIN_XOR: return gcd64(power_factor(a), power_factor(multiple_of(facts, e->binary.b)));
    default: return 1;
    }
}

static int64_t multiple_of_call(const Facts *facts, const Expr *e) {
    const Arg *args = e->call.args;
    if (e->call.count == 0 || !args[0].value) return 1;
    int64_t a = multiple_of(facts, args[0].value), c;
    switch (e->call.op) {
    case OP_MIN:
    case OP_MAX: return gcd64(a, multiple_of(facts, args[1].value));
    case OP_ABS: return a;
    case OP_CEILDIV: return expr_const(args[1].value, &c) && c > 0 && a % c == 0 ? a / c : 1;
    default: return 1;
    }
}

static bool range_within(Range inner, Range outer) {
    return inner.low >= outer.low && inner.high <= outer.high;
}

int64_t multiple_of(const Facts *facts, const Expr *e) {
    int64_t m = 1;
    bool sum = false;
    switch (e->kind) {
    case EXPR_INT: return e->integer == INT64_MIN ? LARGEST_POWER : e->integer < 0 ? -e->integer : e->integer;
    case EXPR_VAR: return facts_multiple(facts, e->var);
    case EXPR_UNARY:
        if (e->unary.op == UNARY_NEG) m = multiple_of(facts, e->unary.a);
        sum = true;
        break;
    case EXPR_BINARY:
        m = multiple_of_binary(facts, e);
        sum = e->binary.op <= BIN_MUL || e->binary.op == BIN_SHL;
        break;
    case EXPR_SELECT: return gcd64(multiple_of(facts, e->select.yes), multiple_of(facts, e->select.no));
    case EXPR_CAST:
        if (!type_is_int(e->type) || !type_is_int(e->operand->type)) return 1;
        m = multiple_of(facts, e->operand);
        if (range_within(range_of(facts, e->operand), type_range(e->type))) return m;
        return power_factor(m) > INT32_MAX ? 1 : power_factor(m);
    case EXPR_CALL: return multiple_of_call(facts, e);
    default: return 1;
    }
    if (m == 0 || m == power_factor(m) || !sum || (facts && computed_exactly(facts, e))) return m;
    return power_factor(m);
}

// ---- ranges ----
static Range clip(Type type, WideRange wide) {
    if (!wide_fits(type, wide)) return type_range(type);
    return (Range){(int64_t)wide.low, (int64_t)wide.high};
}

static Range range_union(Range a, Range b) {
    return (Range){smaller(a.low, b.low), larger(a.high, b.high)};
}

// A zero divisor is an error of the program, so a divisor that is not negative is at least 1.
static Range range_of_div(Type type, Range a, Range b) {
    Int128 size = a.high > -(Int128)a.low ? a.high : -(Int128)a.low;
    if (b.low == 0 && b.high > 0) b.low = 1;
    if (type == TYPE_U64 && (a.low < 0 || b.low < 1)) return type_range(type);
    if (b.low < 1) return clip(type, (WideRange){-size, size});
    Int128 ends[] = {a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high};
    Range range = {(int64_t)ends[0], (int64_t)ends[0]};
    for (int i = 1; i < 4; i++) range = range_union(range, (Range){(int64_t)ends[i], (int64_t)ends[i]});
    return range;
}

static Range range_of_mod(const Facts *facts, const Expr *e, Range a, Range b) {
    if (b.low == 0 && b.high > 0) b.low = 1;
    if (e->type == TYPE_U64 && (a.low < 0 || b.low < 1)) return type_range(e->type);
    if (b.low < 1) return range_union(a, (Range){0, 0});
    // Multiples of g stay multiples of g: (8 * x) % 64 is at most 56.
    int64_t g = gcd64(multiple_of(facts, e->binary.a), multiple_of(facts, e->binary.b));
    int64_t most = b.high - (g < 1 ? 1 : g);
    if (most < 0) most = 0;
    Range range = {a.low < 0 ? -most : 0, a.high > 0 ? most : 0};
    if (a.low > range.low && a.low < 0) range.low = a.low;
    if (a.high < range.high) range.high = a.high > 0 ? a.high : 0;
    if (a.low >= 0 && a.high < b.low) range.low = a.low;
    return range;
}

static int64_t all_ones(int64_t value) {   // the least 2^n - 1 that is not below
    for (int shift = 1; shift < 64; shift *= 2) value |= value >> shift;
    return value;
}

static Range range_of_bits(BinaryOp op, Type type, Range a, Range b) {
    if (op == BIN_AND && (a.low >= 0 || b.low >= 0)) {
        int64_t high = a.low >= 0 ? a.high : b.high;
        if (a.low >= 0 && b.low >= 0 && b.high < high) high = b.high;
        return (Range){0, high};
    }
    if (a.low < 0 || b.low < 0 || op == BIN_AND) return type_range(type);
    int64_t high = all_ones(larger(a.high, b.high));
    int64_t low = op == BIN_OR ? larger(a.low, b.low) : 0;
    return (Range){low, high};
}

static Range find_range_of_binary(const Facts *facts, const Expr *e) {
    Range a = range_of(facts, e->binary.a), b = range_of(facts, e->binary.b);
    switch (e->binary.op) {
    case BIN_MUL: return clip(e->type, product_range(a, b));
    case BIN_DIV: return range_of_div(e->type, a, b);
    case BIN_MOD: return range_of_mod(facts, e, a, b);
    case BIN_AND:
    case BIN_OR:
    case BIN_XOR: return range_of_bits(e->binary.op, e->type, a, b);
    case BIN_SHR:
        if (a.low < 0 || b.low != b.high || b.low < 0 || b.low > 62) return type_range(e->type);
        return (Range){a.low >> b.low, a.high >> b.low};
    default: return type_range(e->type);
    }
}

// Chains are long, and each operation asks for the range of all before it.
static Range range_of_binary(const Facts *facts, const Expr *e) {
    Range range;
    if (facts_known_range(facts, e, &range)) return range;
    range = find_range_of_binary(facts, e);
    facts_keep_range(facts, e, range);
    return range;
}

static Range range_of_call(const Facts *facts, const Expr *e) {
    if (e->call.op == OP_CLUSTER_RANK) return (Range){0, MOST_CLUSTER - 1};
    if (e->call.op == OP_CLUSTER_EXTENT) return (Range){1, MOST_CLUSTER};
    if (e->call.op == OP_SMS) return (Range){1, (int64_t)1 << 20};
    if (e->call.count == 0 || !e->call.args[0].value || !type_is_int(e->type) || e->type == TYPE_U64)
        return type_range(e->type);
    Range a = range_of(facts, e->call.args[0].value);
    if (e->call.op == OP_ABS && a.low >= 0) return a;
    if (e->call.count < 2 || !e->call.args[1].value) return type_range(e->type);
    Range b = range_of(facts, e->call.args[1].value);
    switch (e->call.op) {
    case OP_MIN: return (Range){smaller(a.low, b.low), smaller(a.high, b.high)};
    case OP_MAX: return (Range){larger(a.low, b.low), larger(a.high, b.high)};
    case OP_CEILDIV:
        if (b.low < 1) return type_range(e->type);
        if (a.low < 0)   // of non-negative integers; of others it is near the quotient, however it is computed
            return (Range){a.low / b.low, a.high <= b.low ? 1 : a.high / b.low + (a.high % b.low != 0)};
        return (Range){a.low / b.high + (a.low % b.high != 0), a.high / b.low + (a.high % b.low != 0)};
    default: return type_range(e->type);
    }
}

Range range_of(const Facts *facts, const Expr *e) {
    if (e->kind == EXPR_INT) return (Range){e->integer, e->integer};
    if (e->kind == EXPR_VAR) return facts_range(facts, e->var);
    if (!type_is_int(e->type)) return type_range(e->type);
    if (facts && linear_splits(e)) {
        LinearSum sum = linear_of(facts_arena(facts), e);
        return sum.full ? type_range(e->type) : clip(e->type, linear_range(facts, &sum));
    }
    switch (e->kind) {
    case EXPR_BINARY: return range_of_binary(facts, e);
    case EXPR_SELECT: return range_union(range_of(facts, e->select.yes), range_of(facts, e->select.no));
    case EXPR_CAST: {
        Range range = range_of(facts, e->operand), limits = type_range(e->type);
        bool from_int = type_is_int(e->operand->type) || e->operand->type == TYPE_BOOL;
        bool same_sign = e->type != TYPE_U64 || range.low >= 0;
        bool from_unsigned = e->operand->type == TYPE_U64 && range.low < 0;
        return from_int && same_sign && !from_unsigned && range_within(range, limits) ? range : limits;
    }
    case EXPR_CALL: return range_of_call(facts, e);
    default: return type_range(e->type);
    }
}
