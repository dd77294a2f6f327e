// Evaluates the scalar expressions of a launch plan with the arithmetic of the language.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/print.h"
#include "runtime/plan/expr_cse.h"
#include "support/numbers.h"
#include <math.h>
#include <string.h>

typedef struct Eval {
    Arena *arena;
    const HostScope *scope;
    const char *why;
} Eval;

static Scalar eval(Eval *e, const Expr *expr);

static Scalar refuse(Eval *e, const char *why) {
    if (!e->why) e->why = why;
    return scalar_integer(TYPE_I64, 0);
}

static Scalar eval_name(Eval *e, const Var *var) {
    for (int i = e->scope->names.count - 1; i >= 0; i--)   // the innermost declaration
        if (strcmp(e->scope->names.items[i].name, var->name) == 0)
            return scalar_convert(var->type, e->scope->names.items[i].value);
    return refuse(e, arena_printf(e->arena, "'%s' is not known", var->name));
}

static Scalar truth(bool value) {
    return scalar_integer(TYPE_BOOL, value);
}

static Scalar float_binary(Eval *e, BinaryOp op, Type type, double a, double b) {
    switch (op) {
    case BIN_ADD: return scalar_real(type, a + b);
    case BIN_SUB: return scalar_real(type, a - b);
    case BIN_MUL: return scalar_real(type, a * b);
    case BIN_DIV: return scalar_real(type, a / b);
    case BIN_EQ: return truth(a == b);
    case BIN_NE: return truth(a != b);
    case BIN_LT: return truth(a < b);
    case BIN_LE: return truth(a <= b);
    case BIN_GT: return truth(a > b);
    case BIN_GE: return truth(a >= b);
    default: return refuse(e, "an operator does not take floats");
    }
}

static Scalar divide(Eval *e, BinaryOp op, Type type, int64_t a, int64_t b) {
    if (b == 0) return refuse(e, "division by zero");
    bool quotient = op == BIN_DIV;
    if (type_kind(type) != KIND_INT) {
        uint64_t x = (uint64_t)a, y = (uint64_t)b;
        return scalar_integer(type, (int64_t)(quotient ? x / y : x % y));
    }
    if (b == -1) return scalar_integer(type, quotient ? (int64_t)(0 - (uint64_t)a) : 0);   // INT64_MIN / -1 wraps
    return scalar_integer(type, quotient ? a / b : a % b);
}

static Scalar shift(BinaryOp op, Type type, int64_t a, int64_t b) {
    int bits = type_bits(type);
    if (b < 0 || b >= bits) return scalar_integer(type, op == BIN_SHR && type_kind(type) == KIND_INT && a < 0 ? -1 : 0);
    if (op == BIN_SHL) return scalar_integer(type, (int64_t)((uint64_t)a << b));
    return scalar_integer(type, type_kind(type) == KIND_INT ? a >> b : (int64_t)((uint64_t)a >> b));
}

static Scalar integer_binary(Eval *e, BinaryOp op, Type type, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    bool below = type_kind(type) == KIND_INT ? a < b : x < y;
    switch (op) {
    case BIN_ADD: return scalar_integer(type, (int64_t)(x + y));
    case BIN_SUB: return scalar_integer(type, (int64_t)(x - y));
    case BIN_MUL: return scalar_integer(type, (int64_t)(x * y));
    case BIN_DIV:
    case BIN_MOD: return divide(e, op, type, a, b);
    case BIN_AND: return scalar_integer(type, a & b);
    case BIN_OR: return scalar_integer(type, a | b);
    case BIN_XOR: return scalar_integer(type, a ^ b);
    case BIN_SHL:
    case BIN_SHR: return shift(op, type, a, b);
    case BIN_EQ: return truth(a == b);
    case BIN_NE: return truth(a != b);
    case BIN_LT: return truth(below);
    case BIN_LE: return truth(below || a == b);
    case BIN_GT: return truth(!below && a != b);
    case BIN_GE: return truth(!below);
    default: return refuse(e, "an operator does not take integers");
    }
}

// a <= min(b, c, ...), the condition of a tile: stops at the first operand below a.
static bool at_most(Eval *e, int64_t a, const Expr *b) {
    bool both = b->kind == EXPR_CALL && b->call.op == OP_MIN;
    if (both) return at_most(e, a, b->call.args[0].value) && at_most(e, a, b->call.args[1].value);
    return a <= eval(e, b).integer;
}

static Scalar eval_binary(Eval *e, const Expr *expr) {
    BinaryOp op = expr->binary.op;
    Scalar a = eval(e, expr->binary.a);
    if (op == BIN_LOGICAL_AND) return truth(scalar_truth(a) && scalar_truth(eval(e, expr->binary.b)));
    if (op == BIN_LOGICAL_OR) return truth(scalar_truth(a) || scalar_truth(eval(e, expr->binary.b)));
    if (op == BIN_LE && type_kind(a.type) == KIND_INT) return truth(at_most(e, a.integer, expr->binary.b));
    Scalar b = eval(e, expr->binary.b);
    if (type_is_float(a.type)) return float_binary(e, op, a.type, a.real, scalar_double(b));
    return integer_binary(e, op, a.type, a.integer, b.integer);
}

static Scalar eval_unary(Eval *e, const Expr *expr) {
    Scalar a = eval(e, expr->unary.a);
    if (expr->unary.op == UNARY_NOT) return truth(!scalar_truth(a));
    if (expr->unary.op == UNARY_BITNOT) return scalar_integer(a.type, ~a.integer);
    if (type_is_float(a.type)) return scalar_real(a.type, -a.real);
    return scalar_integer(a.type, (int64_t)(0 - (uint64_t)a.integer));
}

static Scalar float_call(Eval *e, OpId op, Type type, double x) {
    switch (op) {
    case OP_ABS: return scalar_real(type, fabs(x));
    case OP_EXP: return scalar_real(type, exp(x));
    case OP_EXP2: return scalar_real(type, exp2(x));
    case OP_LOG: return scalar_real(type, log(x));
    case OP_LOG2: return scalar_real(type, log2(x));
    case OP_SQRT: return scalar_real(type, sqrt(x));
    case OP_RSQRT: return scalar_real(type, 1 / sqrt(x));
    case OP_TANH: return scalar_real(type, tanh(x));
    case OP_SIN: return scalar_real(type, sin(x));
    case OP_COS: return scalar_real(type, cos(x));
    case OP_FLOOR: return scalar_real(type, floor(x));
    case OP_CEIL: return scalar_real(type, ceil(x));
    case OP_RELU: return scalar_real(type, x <= 0 ? 0 : x);
    case OP_ROUND: return scalar_real(type, nearbyint(x));
    default: return refuse(e, arena_printf(e->arena, "'%s' is no function of the host", op_info(op)->text));
    }
}

static Scalar eval_call(Eval *e, const Expr *expr) {
    OpId op = expr->call.op;
    if (op == OP_SMS) return scalar_integer(TYPE_I64, e->scope->multiprocessors);
    if (op == OP_CLUSTER_EXTENT && e->scope->cluster)
        return scalar_integer(TYPE_I64, e->scope->cluster[expr_is_int(ARG(expr, CLUSTER_EXTENT, name).value, 1)]);
    if (expr->call.count < 1 || !expr->call.args[0].value) return refuse(e, "a call needs a value");
    Scalar a = eval(e, expr->call.args[0].value);
    if (op == OP_IEEE) return a;
    if (op == OP_MIN || op == OP_MAX || op == OP_CEILDIV) {
        Scalar b = eval(e, expr->call.args[1].value);
        if (op == OP_CEILDIV) {
            Scalar quotient = divide(e, BIN_DIV, a.type, a.integer, b.integer);
            Scalar rest = divide(e, BIN_MOD, a.type, a.integer, b.integer);
            bool more = type_kind(a.type) == KIND_INT ? rest.integer > 0 : rest.integer != 0;
            return scalar_integer(a.type, quotient.integer + more);
        }
        if (type_is_float(a.type))
            return scalar_real(a.type, op == OP_MIN ? number_min(a.real, b.real) : number_max(a.real, b.real));
        bool below = scalar_truth(integer_binary(e, BIN_LT, a.type, a.integer, b.integer));
        return below == (op == OP_MIN) ? a : b;
    }
    if (op == OP_FMA) {
        double b = scalar_double(eval(e, expr->call.args[1].value)),
               c = scalar_double(eval(e, expr->call.args[2].value));
        bool single = a.type == TYPE_F32;
        return scalar_real(a.type, single ? fmaf((float)a.real, (float)b, (float)c) : fma(a.real, b, c));
    }
    if (op == OP_ABS && !type_is_float(a.type)) {
        bool negative = type_kind(a.type) == KIND_INT && a.integer < 0;
        return scalar_integer(a.type, negative ? (int64_t)(0 - (uint64_t)a.integer) : a.integer);
    }
    return float_call(e, op, expr->type, scalar_double(a));
}

static Scalar eval_bitcast(Eval *e, const Expr *expr) {
    unsigned char bits[8] = {0};
    Scalar from = eval(e, expr->operand);
    scalar_store(from, bits);
    return scalar_load(expr->type, bits);
}

static Scalar compute(Eval *e, const Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT: return scalar_integer(expr->type, expr->integer);
    case EXPR_FLOAT: return scalar_real(expr->type, expr->real);
    case EXPR_VAR: return eval_name(e, expr->var);
    case EXPR_UNARY: return eval_unary(e, expr);
    case EXPR_BINARY: return eval_binary(e, expr);
    case EXPR_SELECT:
        return eval(e, scalar_truth(eval(e, expr->select.condition)) ? expr->select.yes : expr->select.no);
    case EXPR_CAST: return scalar_convert(expr->type, eval(e, expr->operand));
    case EXPR_BITCAST: return eval_bitcast(e, expr);
    case EXPR_CALL: return eval_call(e, expr);
    case EXPR_LOAD: break;
    }
    return refuse(e, "the host reads no memory of the device");
}

// Shared subexpressions are evaluated a single time.
static Scalar eval(Eval *e, const Expr *expr) {
    HostValues *cache = e->scope->cache;
    int number = cache ? host_number(expr) : HOST_UNSHARED;
    if (number == HOST_UNSHARED) return compute(e, expr);
    if (!cache->known[number]) {
        Scalar value = compute(e, expr);
        if (e->why) return value;
        cache->values[number] = value;
        cache->known[number] = true;
    }
    return cache->values[number];
}

bool host_eval(Arena *arena, const HostScope *scope, const Expr *expr, Scalar *value, const char **why) {
    Eval e = {.arena = arena, .scope = scope};
    *value = eval(&e, expr);
    if (e.why) *why = e.why;
    return !e.why;
}
