// Constructors of expressions, and the arithmetic of constants.
//
// What folds: constants with constants (except a division by zero, which stays for its diagnostic or trap), and neutral
// elements. What never happens here: reordering, distributing, anything that needs facts (facts.c does that). Floats
// fold only where the result is exactly what the device computes.
#include "ir/build.h"
#include "ir/match.h"
#include <math.h>
#include <string.h>

// ---- arithmetic of constants ----

// Rounds to a binary format of `digits` explicit mantissa bits and least normal exponent `least`, ties to even.
static double round_binary(double value, int digits, int least) {
    int exponent;
    frexp(value, &exponent);   // |value| in [2^(exponent-1), 2^exponent)
    int unit = (exponent - 1 > least ? exponent - 1 : least) - digits;
    return ldexp(rint(ldexp(value, -unit)), unit);
}

static double round_small(double value, int digits, int least, double largest, bool saturate) {
    if (isnan(value) || value == 0) return value;
    double rounded = isinf(value) ? value : round_binary(value, digits, least);
    if (fabs(rounded) <= largest) return rounded;
    return copysign(saturate ? largest : INFINITY, rounded);
}

double float_round(Type type, double value) {
    switch (type) {
    case TYPE_F16: return round_small(value, 10, -14, 65504, false);
    case TYPE_BF16: return round_small(value, 7, -126, 0x1.fep127, false);
    case TYPE_F32: return round_small(value, 23, -126, 0x1.fffffep127, false);
    case TYPE_E4M3: return round_small(value, 3, -6, 448, true);
    case TYPE_E5M2: return round_small(value, 2, -14, 57344, true);
    default: return value;
    }
}

int64_t int_wrap(Type type, int64_t value) {
    switch (type) {
    case TYPE_BOOL: return value != 0;
    case TYPE_I8: return (int8_t)(uint64_t)value;
    case TYPE_I16: return (int16_t)(uint64_t)value;
    case TYPE_I32: return (int32_t)(uint64_t)value;
    case TYPE_U8: return (uint8_t)value;
    case TYPE_U16: return (uint16_t)value;
    case TYPE_U32: return (uint32_t)value;
    default: return value;
    }
}

// The double nearest in the sense of round-to-odd: a later rounding to a shorter format is then correct (a plain
// conversion would round a large integer twice).
static double int_to_double_odd(int64_t value, bool is_unsigned) {
    bool negative = !is_unsigned && value < 0;
    uint64_t magnitude = negative ? 0 - (uint64_t)value : (uint64_t)value;
    int drop = 0;
    while (magnitude >> drop >> 53) drop++;
    uint64_t kept = magnitude >> drop;
    if (drop && magnitude & (((uint64_t)1 << drop) - 1)) kept |= 1;
    double result = ldexp((double)kept, drop);
    return negative ? -result : result;
}

double float_from_int(Type to, Type from, int64_t value) {
    bool is_unsigned = from == TYPE_U64;
    if (to == TYPE_F64) return is_unsigned ? (double)(uint64_t)value : (double)value;
    return float_round(to, int_to_double_odd(value, is_unsigned));
}

// Toward zero, saturating; NaN becomes 0.
static int64_t float_to_int(Type type, double value) {
    if (isnan(value)) return 0;
    int bits = type_bits(type);
    bool is_signed = type_kind(type) == KIND_INT;
    double end = ldexp(1, is_signed ? bits - 1 : bits);   // one past the largest value
    int64_t largest = is_signed ? INT64_MAX >> (64 - bits) : (int64_t)(UINT64_MAX >> (64 - bits));
    if (value >= end) return largest;
    if (is_signed) return value <= -end ? -largest - 1 : (int64_t)value;
    if (value <= 0) return 0;
    return (int64_t)(uint64_t)value;
}

static bool fold_compare_int(BinaryOp op, bool is_unsigned, int64_t a, int64_t b) {
    int order = is_unsigned ? ((uint64_t)a > (uint64_t)b) - ((uint64_t)a < (uint64_t)b) : (a > b) - (a < b);
    switch (op) {
    case BIN_EQ: return order == 0;
    case BIN_NE: return order != 0;
    case BIN_LT: return order < 0;
    case BIN_LE: return order <= 0;
    case BIN_GT: return order > 0;
    default: return order >= 0;
    }
}

static bool binary_logical(BinaryOp op) {
    return op == BIN_LOGICAL_AND || op == BIN_LOGICAL_OR;
}

// Division and remainder, truncating; false for a zero divisor.
static bool fold_divide(bool remainder, bool is_unsigned, int64_t a, int64_t b, int64_t *out) {
    if (b == 0) return false;
    if (is_unsigned) {
        *out = (int64_t)(remainder ? (uint64_t)a % (uint64_t)b : (uint64_t)a / (uint64_t)b);
    } else if (b == -1) {   // INT64_MIN / -1 wraps
        *out = remainder ? 0 : (int64_t)(0 - (uint64_t)a);
    } else {
        *out = remainder ? a % b : a / b;
    }
    return true;
}

// Bits shifted out are gone: amounts are not taken modulo the width.
static int64_t fold_shift(Type type, bool right, int64_t a, int64_t count) {
    bool outside = count < 0 || count >= type_bits(type);
    if (right && type != TYPE_U64) return a >> (outside ? 63 : count);
    if (outside) return 0;
    return (int64_t)(right ? (uint64_t)a >> count : (uint64_t)a << count);
}

bool int_binary(BinaryOp op, Type type, int64_t a, int64_t b, int64_t *out) {
    bool is_unsigned = type == TYPE_U64;
    switch (op) {
    case BIN_ADD: *out = (int64_t)((uint64_t)a + (uint64_t)b); return true;
    case BIN_SUB: *out = (int64_t)((uint64_t)a - (uint64_t)b); return true;
    case BIN_MUL: *out = (int64_t)((uint64_t)a * (uint64_t)b); return true;
    case BIN_DIV: return fold_divide(false, is_unsigned, a, b, out);
    case BIN_MOD: return fold_divide(true, is_unsigned, a, b, out);
    case BIN_AND: *out = a & b; return true;
    case BIN_OR: *out = a | b; return true;
    case BIN_XOR: *out = a ^ b; return true;
    case BIN_SHL: *out = fold_shift(type, false, a, b); return true;
    case BIN_SHR: *out = fold_shift(type, true, a, b); return true;
    case BIN_LOGICAL_AND: *out = a && b; return true;
    case BIN_LOGICAL_OR: *out = a || b; return true;
    default: *out = fold_compare_int(op, is_unsigned, a, b); return true;
    }
}

static bool fold_compare_float(BinaryOp op, double a, double b) {
    switch (op) {
    case BIN_EQ: return a == b;
    case BIN_NE: return a != b;
    case BIN_LT: return a < b;
    case BIN_LE: return a <= b;
    case BIN_GT: return a > b;
    default: return a >= b;
    }
}

// A double computes + - * / of two f32 and rounds once more to the exact f32 result (53 >= 2 * 24 + 2 bits).
static bool fold_float(BinaryOp op, double a, double b, double *out) {
    switch (op) {
    case BIN_ADD: *out = a + b; return true;
    case BIN_SUB: *out = a - b; return true;
    case BIN_MUL: *out = a * b; return true;
    case BIN_DIV: *out = a / b; return b != 0;   // a constant zero divisor is an error, reported by the verifier
    default: return false;
    }
}

// ---- leaves ----
static Expr *expr_new(Arena *arena, ExprKind kind, Type type) {
    Expr *e = NEW(arena, Expr);
    e->kind = kind;
    e->type = type;
    return e;
}

Expr *e_int(Arena *arena, int64_t value) {
    return e_int_of(arena, TYPE_I64, value);
}

Expr *e_int_of(Arena *arena, Type type, int64_t value) {
    Expr *e = expr_new(arena, EXPR_INT, type);
    e->integer = int_wrap(type, value);
    return e;
}

Expr *e_float(Arena *arena, Type type, double value) {
    Expr *e = expr_new(arena, EXPR_FLOAT, type);
    e->real = float_round(type, value);
    return e;
}

Expr *e_zero(Arena *arena, Type type) {
    return type_is_float(type) ? e_float(arena, type, 0) : e_int_of(arena, type, 0);
}

Expr *e_bool(Arena *arena, bool value) {
    return e_int_of(arena, TYPE_BOOL, value);
}

Expr *e_var(Arena *arena, Var *var) {
    Expr *e = expr_new(arena, EXPR_VAR, var->type);
    e->var = var;
    return e;
}

Expr *e_load(Arena *arena, Buf *buf, int count, Expr *const *indices) {
    Expr *e = expr_new(arena, EXPR_LOAD, buf->type);
    e->load.buf = buf;
    e->load.count = count;
    e->load.indices = arena_copy(arena, indices, sizeof *indices * (size_t)count);
    return e;
}

Expr *e_load1(Arena *arena, Buf *buf, Expr *index) {
    return e_load(arena, buf, 1, &index);
}

Expr *e_load_at(Arena *arena, const Region *element) {
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < element->count; d++) indices[d] = element->dims[d].start;
    return e_load(arena, element->buf, element->count, indices);
}

// ---- questions ----
bool expr_const(const Expr *e, int64_t *value) {
    if (!e || e->kind != EXPR_INT) return false;
    *value = e->integer;
    return true;
}

bool expr_is_int(const Expr *e, int64_t value) {
    return e && e->kind == EXPR_INT && e->integer == value;
}

static bool expr_is_float(const Expr *e, double value) {   // tells -0 from 0
    return e->kind == EXPR_FLOAT && e->real == value && signbit(e->real) == signbit(value);
}

bool expr_is_zero(const Expr *e) {
    while (e->kind == EXPR_CAST) e = e->operand;
    return expr_is_int(e, 0) || expr_is_float(e, 0);
}

static bool exprs_equal(int count, Expr *const *a, Expr *const *b) {
    for (int i = 0; i < count; i++)
        if (!expr_equal(a[i], b[i])) return false;
    return true;
}

static bool region_equal(const Region *a, const Region *b) {
    if (a == b) return true;
    if (!a || !b || a->buf != b->buf || a->transposed != b->transposed || a->count != b->count) return false;
    for (int i = 0; i < a->count; i++) {
        const RegionDim *x = &a->dims[i], *y = &b->dims[i];
        if (!expr_equal(x->start, y->start) || !expr_equal(x->extent, y->extent) || x->tile != y->tile) return false;
    }
    return true;
}

static bool arg_equal(const Arg *a, const Arg *b) {
    if (!a->name != !b->name || (a->name && strcmp(a->name, b->name) != 0)) return false;
    return a->is_string == b->is_string && expr_equal(a->value, b->value) && region_equal(a->region, b->region);
}

static bool call_equal(const Expr *a, const Expr *b) {
    if (a->call.op != b->call.op || a->call.count != b->call.count) return false;
    for (int i = 0; i < a->call.count; i++)
        if (!arg_equal(&a->call.args[i], &b->call.args[i])) return false;
    return true;
}

bool expr_equal(const Expr *a, const Expr *b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->type != b->type) return false;
    switch (a->kind) {
    case EXPR_INT: return a->integer == b->integer;
    case EXPR_FLOAT: return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case EXPR_VAR: return a->var == b->var;
    case EXPR_LOAD:
        return a->load.buf == b->load.buf && a->load.count == b->load.count &&
               exprs_equal(a->load.count, a->load.indices, b->load.indices);
    case EXPR_UNARY: return a->unary.op == b->unary.op && expr_equal(a->unary.a, b->unary.a);
    case EXPR_BINARY:
        return a->binary.op == b->binary.op && expr_equal(a->binary.a, b->binary.a) &&
               expr_equal(a->binary.b, b->binary.b);
    case EXPR_SELECT:
        return expr_equal(a->select.condition, b->select.condition) && expr_equal(a->select.yes, b->select.yes) &&
               expr_equal(a->select.no, b->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return expr_equal(a->operand, b->operand);
    case EXPR_CALL: return call_equal(a, b);
    }
    return false;
}

// Whether leaving the expression out changes nothing: no call with an effect inside.
static bool droppable(const Expr *e) {
    switch (e->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return true;
    case EXPR_LOAD:
        for (int i = 0; i < e->load.count; i++)
            if (!droppable(e->load.indices[i])) return false;
        return true;
    case EXPR_UNARY: return droppable(e->unary.a);
    case EXPR_BINARY: return droppable(e->binary.a) && droppable(e->binary.b);
    case EXPR_SELECT: return droppable(e->select.condition) && droppable(e->select.yes) && droppable(e->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return droppable(e->operand);
    case EXPR_CALL:
        for (int i = 0; i < e->call.count; i++)
            if (e->call.args[i].value && !droppable(e->call.args[i].value)) return false;
        return op_is_pure(e->call.op);
    }
    return false;
}

// ---- unary, binary ----
Expr *e_unary(Arena *arena, UnaryOp op, Expr *a) {
    if (a->kind == EXPR_INT && op == UNARY_NEG) return e_int_of(arena, a->type, (int64_t)(0 - (uint64_t)a->integer));
    if (a->kind == EXPR_INT && op == UNARY_NOT) return e_bool(arena, !a->integer);
    if (a->kind == EXPR_INT && op == UNARY_BITNOT) return e_int_of(arena, a->type, ~a->integer);
    if (a->kind == EXPR_FLOAT && op == UNARY_NEG) return e_float(arena, a->type, -a->real);
    if (a->kind == EXPR_UNARY && a->unary.op == op) return a->unary.a;   // each is its own inverse
    Expr *e = expr_new(arena, EXPR_UNARY, op == UNARY_NOT ? TYPE_BOOL : a->type);
    e->unary.op = op;
    e->unary.a = a;
    return e;
}

// x op b = x, or a constant, for a constant b on the right; NULL: neither.
static Expr *neutral_right(Arena *arena, BinaryOp op, Expr *a, Expr *b) {
    if (expr_is_int(b, 0)) {
        bool keeps = op == BIN_ADD || op == BIN_SUB || op == BIN_OR || op == BIN_XOR || op == BIN_SHL ||
                     op == BIN_SHR || op == BIN_LOGICAL_OR;
        bool zero = op == BIN_MUL || op == BIN_AND || op == BIN_LOGICAL_AND;
        if (keeps) return a;
        if (zero && droppable(a)) return e_int_of(arena, a->type, 0);
    }
    if (expr_is_int(b, 1)) {
        if (op == BIN_MUL || op == BIN_DIV || op == BIN_LOGICAL_AND) return a;
        if (op == BIN_MOD && droppable(a)) return e_int_of(arena, a->type, 0);
        if (op == BIN_LOGICAL_OR && droppable(a)) return b;
    }
    if (expr_is_float(b, 1) && (op == BIN_MUL || op == BIN_DIV)) return a;
    if (expr_is_float(b, 0) && op == BIN_SUB) return a;   // but not x + 0: -0 + 0 is 0
    if (expr_is_float(b, -0.0) && op == BIN_ADD) return a;
    return NULL;
}

static Expr *neutral_left(Arena *arena, BinaryOp op, Expr *a, Expr *b) {
    if (expr_is_int(a, 0)) {
        if (op == BIN_ADD || op == BIN_OR || op == BIN_XOR || op == BIN_LOGICAL_OR) return b;
        if (op == BIN_LOGICAL_AND) return a;   // lazy: b would not have run
        bool zero = op == BIN_MUL || op == BIN_AND || op == BIN_SHL || op == BIN_SHR ||
                    ((op == BIN_DIV || op == BIN_MOD) && !expr_is_int(b, 0));
        if (zero && droppable(b)) return e_int_of(arena, a->type, 0);
    }
    if (expr_is_int(a, 1)) {
        if (op == BIN_MUL || op == BIN_LOGICAL_AND) return b;
        if (op == BIN_LOGICAL_OR) return a;
    }
    if (expr_is_float(a, 1) && op == BIN_MUL) return b;
    if (expr_is_float(a, -0.0) && op == BIN_ADD) return b;
    return NULL;
}

static Expr *fold_binary(Arena *arena, BinaryOp op, Type type, const Expr *a, const Expr *b) {
    if (a->kind == EXPR_INT && b->kind == EXPR_INT) {
        int64_t result;
        return int_binary(op, a->type, a->integer, b->integer, &result) ? e_int_of(arena, type, result) : NULL;
    }
    if (a->kind != EXPR_FLOAT || b->kind != EXPR_FLOAT) return NULL;
    if (op_compares(op)) return e_bool(arena, fold_compare_float(op, a->real, b->real));
    double result;
    return fold_float(op, a->real, b->real, &result) ? e_float(arena, type, result) : NULL;
}

Expr *e_binary(Arena *arena, BinaryOp op, Expr *a, Expr *b) {
    Type type = op_compares(op) || binary_logical(op) ? TYPE_BOOL : a->type;
    Expr *simpler = fold_binary(arena, op, type, a, b);
    if (!simpler) simpler = neutral_right(arena, op, a, b);
    if (!simpler) simpler = neutral_left(arena, op, a, b);
    if (simpler) return simpler;
    Expr *e = expr_new(arena, EXPR_BINARY, type);
    e->binary.op = op;
    e->binary.a = a;
    e->binary.b = b;
    return e;
}

Expr *e_add(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_ADD, a, b);
}

Expr *e_sub(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_SUB, a, b);
}

Expr *e_mul(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_MUL, a, b);
}

Expr *e_div(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_DIV, a, b);
}

Expr *e_mod(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_MOD, a, b);
}

Expr *e_xor(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_XOR, a, b);
}

Expr *e_lt(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_LT, a, b);
}

Expr *e_and(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_LOGICAL_AND, a, b);
}

// ---- select, casts ----
Expr *e_select(Arena *arena, Expr *condition, Expr *yes, Expr *no) {
    if (condition->kind == EXPR_INT) return condition->integer ? yes : no;
    if (expr_equal(yes, no) && droppable(condition)) return yes;
    Expr *e = expr_new(arena, EXPR_SELECT, yes->type);
    e->select.condition = condition;
    e->select.yes = yes;
    e->select.no = no;
    return e;
}

static Expr *fold_cast(Arena *arena, Type type, const Expr *a) {
    bool to_float = type_is_float(type);
    if (a->kind == EXPR_INT)
        return to_float ? e_float(arena, type, float_from_int(type, a->type, a->integer))
                        : e_int_of(arena, type, a->integer);
    if (to_float) return e_float(arena, type, a->real);
    if (type == TYPE_BOOL) return e_bool(arena, a->real != 0);
    return e_int_of(arena, type, float_to_int(type, a->real));
}

Expr *e_cast(Arena *arena, Type type, Expr *a) {
    if (a->type == type) return a;
    if (a->kind == EXPR_INT || a->kind == EXPR_FLOAT) return fold_cast(arena, type, a);
    Expr *e = expr_new(arena, EXPR_CAST, type);
    e->operand = a;
    return e;
}

Expr *e_bitcast(Arena *arena, Type type, Expr *a) {
    if (a->type == type) return a;
    if (a->kind == EXPR_INT && !type_is_float(type) && type_bits(type) == type_bits(a->type))
        return e_int_of(arena, type, a->integer);
    Expr *e = expr_new(arena, EXPR_BITCAST, type);
    e->operand = a;
    return e;
}

// ---- calls ----

// The common type of two operands (DESIGN 3.2): a float with an integer wins (f32 at least), else the wider.
static Type promote(Type a, Type b) {
    if (a == b) return a;
    if (type_is_float(a) != type_is_float(b)) return type_compute(type_is_float(a) ? a : b);
    if (type_bits(a) != type_bits(b)) return type_bits(a) > type_bits(b) ? a : b;
    return type_is_float(a) ? TYPE_F32 : a;   // f16 with bf16
}

static Type arg_type(const Arg *arg) {
    if (arg->value) return arg->value->type;
    return arg->region ? arg->region->buf->type : TYPE_NONE;
}

static Type call_type(OpId op, int count, const Arg *args) {
    Type first = count > 0 ? arg_type(&args[0]) : TYPE_NONE;
    switch (op_info(op)->result) {
    case RESULT_NONE: return TYPE_NONE;
    case RESULT_FIRST:
    case RESULT_ELEMENT: return first;
    case RESULT_FLOATING: return type_is_float(first) ? first : TYPE_F32;
    case RESULT_PROMOTE:
        for (int i = 1; i < count; i++) first = promote(first, arg_type(&args[i]));
        return first;
    case RESULT_BOOL: return TYPE_BOOL;
    case RESULT_I32: return TYPE_I32;
    case RESULT_I64: return TYPE_I64;
    case RESULT_U32: return TYPE_U32;
    case RESULT_SLOT: return TYPE_SLOT;
    }
    return TYPE_NONE;
}

static Expr *fold_call_int(Arena *arena, OpId op, Type type, int64_t a, int64_t b) {
    bool less = fold_compare_int(BIN_LT, type == TYPE_U64, a, b);
    switch (op) {
    case OP_MIN: return e_int_of(arena, type, less ? a : b);
    case OP_MAX: return e_int_of(arena, type, less ? b : a);
    case OP_CEILDIV:
        if (a < 0 || b <= 0) return NULL;
        return e_int_of(arena, type, a / b + (a % b != 0));
    default: return NULL;
    }
}

static Expr *fold_call_float(Arena *arena, OpId op, Type type, double x) {
    switch (op) {
    case OP_ABS: return e_float(arena, type, fabs(x));
    case OP_FLOOR: return e_float(arena, type, floor(x));
    case OP_CEIL: return e_float(arena, type, ceil(x));
    case OP_RELU: return e_float(arena, type, x <= 0 ? 0 : x);
    case OP_ROUND: return e_float(arena, type, rint(x));
    default: return NULL;
    }
}

// Only what is exact on every target folds: no exp, no sqrt.
static Expr *fold_call(Arena *arena, OpId op, Type type, int count, const Arg *args) {
    if (!op_is_pure(op) || count < 1 || count > 2) return NULL;
    const Expr *a = args[0].value, *b = count == 2 ? args[1].value : NULL;
    if (!a || (count == 2 && !b) || a->type != type) return NULL;
    if (count == 1) {
        if (a->kind == EXPR_FLOAT) return fold_call_float(arena, op, type, a->real);
        if (a->kind == EXPR_INT && op == OP_ABS)
            return e_int_of(arena, type,
                            type != TYPE_U64 && a->integer < 0 ? (int64_t)(0 - (uint64_t)a->integer) : a->integer);
        return NULL;
    }
    if ((op == OP_MIN || op == OP_MAX) && expr_equal(a, b)) return args[0].value;
    if (op == OP_CEILDIV && expr_is_int(b, 1)) return args[0].value;
    if (a->kind == EXPR_INT && b->kind == EXPR_INT && a->type == b->type)
        return fold_call_int(arena, op, type, a->integer, b->integer);
    bool floats = a->kind == EXPR_FLOAT && b->kind == EXPR_FLOAT && !isnan(a->real) && !isnan(b->real);
    if (!floats || a->real == b->real) return NULL;   // -0 and 0 stay
    if (op == OP_MIN) return e_float(arena, type, a->real < b->real ? a->real : b->real);
    return op == OP_MAX ? e_float(arena, type, a->real > b->real ? a->real : b->real) : NULL;
}

Expr *e_call(Arena *arena, OpId op, int count, const Arg *args) {
    Type type = call_type(op, count, args);
    Expr *folded = fold_call(arena, op, type, count, args);
    if (folded) return folded;
    Expr *e = expr_new(arena, EXPR_CALL, type);
    e->call.op = op;
    e->call.count = count;
    e->call.args = arena_copy(arena, args, sizeof *args * (size_t)count);
    return e;
}

Expr *e_call1(Arena *arena, OpId op, Expr *a) {
    return e_call(arena, op, 1, (Arg[]){arg_value(a)});
}

Expr *e_call2(Arena *arena, OpId op, Expr *a, Expr *b) {
    return e_call(arena, op, 2, (Arg[]){arg_value(a), arg_value(b)});
}

Expr *e_min(Arena *arena, Expr *a, Expr *b) {
    return e_call2(arena, OP_MIN, a, b);
}

Expr *e_max(Arena *arena, Expr *a, Expr *b) {
    return e_call2(arena, OP_MAX, a, b);
}

Expr *e_cluster_extent(Arena *arena, int name) {
    Arg arg = arg_int(arena, name);
    return e_call(arena, OP_CLUSTER_EXTENT, 1, &arg);
}

Expr *e_cluster_ctas(Arena *arena) {
    return e_mul(arena, e_cluster_extent(arena, 0), e_cluster_extent(arena, 1));
}

Expr *e_sms(Arena *arena) {
    return e_call(arena, OP_SMS, 0, NULL);
}

Expr *e_eq(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_EQ, a, b);
}

Expr *e_ge(Arena *arena, Expr *a, Expr *b) {
    return e_binary(arena, BIN_GE, a, b);
}

Expr *e_both(Arena *arena, Expr *a, Expr *b) {
    return a && b ? e_and(arena, a, b) : a ? a : b;
}

// ---- with a constant on the right ----
Expr *e_plus(Arena *arena, Expr *a, int64_t n) {
    return e_add(arena, a, e_int(arena, n));
}

Expr *e_times(Arena *arena, Expr *a, int64_t n) {
    return e_mul(arena, a, e_int(arena, n));
}

Expr *e_over(Arena *arena, Expr *a, int64_t n) {
    return e_div(arena, a, e_int(arena, n));
}

Expr *e_rem(Arena *arena, Expr *a, int64_t n) {
    return e_mod(arena, a, e_int(arena, n));
}

Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes) {
    return E_CALL(arena, OP_ALIGNED, arg_region(region_whole(arena, buf)), arg_int(arena, bytes));
}
