// Arithmetic of untyped constants: integers exactly (between INT64_MIN and UINT64_MAX), floats in double. It happens
// before any type is known, so `1 / 3` is 0 and `1.0 / 3` is a third, in whatever type it is used.
#include "frontend/sema.h"
#include "support/numbers.h"
#include <math.h>

static SemaValue checked(Sema *s, Wide value, Span span) {
    if (value >= INT64_MIN && value <= (Wide)UINT64_MAX) return value_int(value, span);
    diag(s->sink, span, T_CONSTANT_RANGE);
    return value_poison(span);
}

static SemaValue overflow(Sema *s, Span span) {
    return checked(s, (Wide)1 << 100, span);
}

static SemaValue truth(Sema *s, bool value, Span span) {
    return value_expr(s, e_bool(s->arena, value), span);
}

static SemaValue fold_int(Sema *s, BinaryOp op, Wide a, Wide b, Span span) {
    Wide result = 0;
    switch (op) {
    case BIN_ADD: return checked(s, a + b, span);
    case BIN_SUB: return checked(s, a - b, span);
    case BIN_MUL: return __builtin_mul_overflow(a, b, &result) ? overflow(s, span) : checked(s, result, span);
    case BIN_DIV:
    case BIN_MOD:
        if (b == 0) {
            diag(s->sink, span, T_ZERO_DIVISOR, op == BIN_DIV ? "/" : "%");
            return value_poison(span);
        }
        return checked(s, op == BIN_DIV ? a / b : a % b, span);
    case BIN_AND: return checked(s, a & b, span);
    case BIN_OR: return checked(s, a | b, span);
    case BIN_XOR: return checked(s, a ^ b, span);
    case BIN_SHL:
    case BIN_SHR:
        if (b < 0 || b > 63) {
            diag(s->sink, span, T_SHIFT_RANGE, (long long)b, "the 64 bits of a constant");
            return value_poison(span);
        }
        return checked(s, op == BIN_SHL ? a * ((Wide)1 << b) : a >> b, span);
    case BIN_EQ: return truth(s, a == b, span);
    case BIN_NE: return truth(s, a != b, span);
    case BIN_LT: return truth(s, a < b, span);
    case BIN_LE: return truth(s, a <= b, span);
    case BIN_GT: return truth(s, a > b, span);
    default: return truth(s, a >= b, span);
    }
}

static SemaValue fold_float(Sema *s, BinaryOp op, SemaValue left, SemaValue right, Span span) {
    double a = left.kind == VALUE_FLOAT ? left.real : (double)left.integer;
    double b = right.kind == VALUE_FLOAT ? right.real : (double)right.integer;
    if (op == BIN_DIV && right.kind == VALUE_INT && b == 0) {
        diag(s->sink, span, T_ZERO_DIVISOR, "/");
        return value_poison(span);
    }
    switch (op) {
    case BIN_ADD: return value_float(a + b, span);
    case BIN_SUB: return value_float(a - b, span);
    case BIN_MUL: return value_float(a * b, span);
    case BIN_DIV: return value_float(a / b, span);
    case BIN_EQ: return truth(s, a == b, span);
    case BIN_NE: return truth(s, a != b, span);
    case BIN_LT: return truth(s, a < b, span);
    case BIN_LE: return truth(s, a <= b, span);
    case BIN_GT: return truth(s, a > b, span);
    case BIN_GE: return truth(s, a >= b, span);
    default: {
        SemaValue bad = left.kind == VALUE_FLOAT ? left : right;
        diag(s->sink, span, T_OPERAND_TYPE, operator_text(op), value_text(s, bad));
        return value_poison(span);
    }
    }
}

SemaValue fold_binary(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span) {
    if (a.kind == VALUE_INT && b.kind == VALUE_INT) return fold_int(s, op, a.integer, b.integer, span);
    return fold_float(s, op, a, b, span);
}

static bool fold_call_int(OpId op, int count, Wide a, Wide b, Span span, SemaValue *out) {
    if (count == 1 && op == OP_ABS) *out = value_int(a < 0 ? -a : a, span);
    else if (count == 2 && op == OP_MIN) *out = value_int(a < b ? a : b, span);
    else if (count == 2 && op == OP_MAX) *out = value_int(a > b ? a : b, span);
    else if (count == 2 && op == OP_CEILDIV && a >= 0 && b > 0) *out = value_int((a + b - 1) / b, span);
    else return false;
    return true;
}

static bool fold_float1(OpId op, double x, double *out) {
    switch (op) {
    case OP_ABS: *out = fabs(x); return true;
    case OP_EXP: *out = exp(x); return true;
    case OP_EXP2: *out = exp2(x); return true;
    case OP_LOG: *out = log(x); return true;
    case OP_LOG2: *out = log2(x); return true;
    case OP_SQRT: *out = sqrt(x); return true;
    case OP_RSQRT: *out = 1 / sqrt(x); return true;
    case OP_TANH: *out = tanh(x); return true;
    case OP_SIN: *out = sin(x); return true;
    case OP_COS: *out = cos(x); return true;
    case OP_FLOOR: *out = floor(x); return true;
    case OP_CEIL: *out = ceil(x); return true;
    case OP_RELU: *out = x <= 0 ? 0 : x; return true;
    case OP_ROUND: *out = rint(x); return true;
    default: return false;
    }
}

// Functions of untyped numbers only; false: not one that folds.
bool fold_call(Sema *s, OpId op, int count, const SemaValue *args, Span span, SemaValue *out) {
    if ((s->verbatim && s->constant == 0) || count < 1 || count > 2) return false;
    for (int i = 0; i < count; i++)
        if (!is_untyped(args[i])) return false;
    bool integers = args[0].kind == VALUE_INT && (count == 1 || args[1].kind == VALUE_INT);
    if (integers && fold_call_int(op, count, args[0].integer, count == 2 ? args[1].integer : 0, span, out)) return true;
    double x[2] = {0};
    for (int i = 0; i < count; i++) x[i] = args[i].kind == VALUE_FLOAT ? args[i].real : (double)args[i].integer;
    double result;
    if (count == 1 && fold_float1(op, x[0], &result)) *out = value_float(result, span);
    else if (count == 2 && op == OP_MIN) *out = value_float(number_min(x[0], x[1]), span);
    else if (count == 2 && op == OP_MAX) *out = value_float(number_max(x[0], x[1]), span);
    else return false;
    return true;
}
