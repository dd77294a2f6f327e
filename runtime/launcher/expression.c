#include "runtime/launcher/expression.h"
#include "ir/build.h"
#include "ir/match.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TEXT(...) arena_printf(names->arena, __VA_ARGS__)

static const char *refuse(CNames *names, const char *what) {
    if (!names->refused) names->refused = what;
    return "0";
}

static bool is_signed(Type type) {
    return type_kind(type) == KIND_INT;
}

Type c_type(const Expr *expr) {
    switch (expr->kind) {
    case EXPR_VAR: return expr->var->type;
    case EXPR_UNARY: return expr->unary.op == UNARY_NOT ? TYPE_BOOL : c_type(expr->unary.a);
    case EXPR_BINARY: return expr->binary.op >= BIN_EQ ? TYPE_BOOL : c_type(expr->binary.a);
    case EXPR_SELECT: return c_type(expr->select.yes);
    case EXPR_CALL:
        switch (expr->call.op) {
        case OP_CLUSTER_EXTENT:
        case OP_SMS: return TYPE_I64;
        case OP_MIN:
        case OP_MAX:
        case OP_CEILDIV:
        case OP_IEEE: return c_type(expr->call.args[0].value);
        case OP_ABS: return type_is_float(expr->type) ? expr->type : c_type(expr->call.args[0].value);
        default: return expr->type;
        }
    default: return expr->type;
    }
}

// A computed number as a value of its type.
static const char *rounded(CNames *names, Type type, const char *value) {
    if (type == TYPE_F64 || type == TYPE_I64 || type == TYPE_U64) return value;
    if (type == TYPE_F32) return TEXT("f32(%s)", value);
    if (type_is_float(type)) return refuse(names, "arithmetic of types narrower than f32");
    if (type == TYPE_BOOL) return TEXT("((%s) & 1)", value);
    return TEXT("wrap(%s, %d, %d)", value, type_bits(type), is_signed(type));
}

const char *c_converted(CNames *names, Type to, Type from, const char *value) {
    if (to == from) return value;
    if (to == TYPE_BOOL) return TEXT("(int64_t)((%s) != 0)", value);
    if (type_is_float(from) && type_is_float(to)) return rounded(names, to, value);
    if (type_is_float(to))
        return rounded(names, to,
                       TEXT(is_signed(from) || from == TYPE_BOOL ? "(double)(%s)" : "(double)(uint64_t)(%s)", value));
    if (type_is_float(from)) return TEXT("integer_of(%s, %d, %d)", value, type_bits(to), is_signed(to));
    return rounded(names, to, value);
}

const char *c_bits(CNames *names, Type type, const char *value) {
    if (type == TYPE_F32) return TEXT("bits_of_f32(%s)", value);
    if (type == TYPE_F64) return TEXT("bits_of_f64(%s)", value);
    if (type_is_float(type)) return refuse(names, "a scalar of a type narrower than f32");
    return type_bits(type) < 64 ? TEXT("(uint64_t)wrap(%s, %d, 0)", value, type_bits(type))
                                : TEXT("(uint64_t)(%s)", value);
}

static const char *real_text(CNames *names, double value) {
    if (isnan(value)) return "(double)NAN";
    if (isinf(value)) return value < 0 ? "(-(double)INFINITY)" : "(double)INFINITY";
    const char *text = TEXT("%.17g", value);
    return strpbrk(text, ".e") ? TEXT("(%s)", text) : TEXT("(%s.0)", text);
}

static const char *integer_text(CNames *names, int64_t value) {
    if (value == INT64_MIN) return "INT64_MIN";
    return value == (int)value ? TEXT("(int64_t)%" PRId64, value) : TEXT("INT64_C(%" PRId64 ")", value);
}

static const char *name_text(CNames *names, const Var *var) {
    for (int i = names->items.count - 1; i >= 0; i--)
        if (strcmp(names->items.items[i].name, var->name) == 0) return names->items.items[i].text;
    return refuse(names, TEXT("'%s', which nothing gives", var->name));
}

static const char *unary_text(CNames *names, const Expr *expr) {
    const char *a = c_expression(names, expr->unary.a);
    Type type = c_type(expr->unary.a);
    if (expr->unary.op == UNARY_NOT) return TEXT("(int64_t)!(%s)", a);
    if (expr->unary.op == UNARY_BITNOT) return rounded(names, type, TEXT("(int64_t)~(uint64_t)(%s)", a));
    return rounded(names, type, type_is_float(type) ? TEXT("(-(%s))", a) : TEXT("sub(0, %s)", a));
}

static const char *compared(CNames *names, BinaryOp op, Type type, const char *a, const char *b) {
    static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
    const char *sign = signs[op - BIN_EQ];
    bool plain = type_is_float(type) || is_signed(type);
    return plain ? TEXT("(int64_t)((%s) %s (%s))", a, sign, b)
                 : TEXT("(int64_t)((uint64_t)(%s) %s (uint64_t)(%s))", a, sign, b);
}

static const char *integer_text_of(CNames *names, BinaryOp op, Type type, const char *a, const char *b) {
    bool sign = is_signed(type);
    switch (op) {
    case BIN_ADD: return rounded(names, type, TEXT("add(%s, %s)", a, b));
    case BIN_SUB: return rounded(names, type, TEXT("sub(%s, %s)", a, b));
    case BIN_MUL: return rounded(names, type, TEXT("mul(%s, %s)", a, b));
    case BIN_DIV: return rounded(names, type, TEXT("quotient(r, %d, %s, %s)", sign, a, b));
    case BIN_MOD: return rounded(names, type, TEXT("rest(r, %d, %s, %s)", sign, a, b));
    case BIN_AND: return TEXT("((%s) & (%s))", a, b);
    case BIN_OR: return TEXT("((%s) | (%s))", a, b);
    case BIN_XOR: return TEXT("((%s) ^ (%s))", a, b);
    case BIN_SHL: return rounded(names, type, TEXT("shift_left(%s, %s, %d)", a, b, type_bits(type)));
    case BIN_SHR: return rounded(names, type, TEXT("shift_right(%s, %s, %d, %d)", a, b, type_bits(type), sign));
    default: return refuse(names, "an operator");
    }
}

static const char *binary_text(CNames *names, const Expr *expr) {
    static const char *const signs[] = {"+", "-", "*", "/"};
    BinaryOp op = expr->binary.op;
    Type type = c_type(expr->binary.a), other = c_type(expr->binary.b);
    const char *a = c_expression(names, expr->binary.a), *b = c_expression(names, expr->binary.b);
    if (op == BIN_LOGICAL_AND) return TEXT("(int64_t)((%s) && (%s))", a, b);
    if (op == BIN_LOGICAL_OR) return TEXT("(int64_t)((%s) || (%s))", a, b);
    if (type_is_float(type) && !type_is_float(other)) b = c_converted(names, TYPE_F64, other, b);
    if (op >= BIN_EQ) return compared(names, op, type, a, b);
    if (!type_is_float(type)) return integer_text_of(names, op, type, a, b);
    return op > BIN_DIV ? refuse(names, "an operator of floats")
                        : rounded(names, type, TEXT("((%s) %s (%s))", a, signs[op], b));
}

static const char *function_text(CNames *names, OpId op, Type type, const char *x) {
    static const struct {
        OpId op;
        const char *format;
    } functions[] = {{OP_ABS, "fabs(%s)"},         {OP_EXP, "exp(%s)"},     {OP_EXP2, "exp2(%s)"},
                     {OP_LOG, "log(%s)"},          {OP_LOG2, "log2(%s)"},   {OP_SQRT, "sqrt(%s)"},
                     {OP_RSQRT, "(1 / sqrt(%s))"}, {OP_TANH, "tanh(%s)"},   {OP_SIN, "sin(%s)"},
                     {OP_COS, "cos(%s)"},          {OP_FLOOR, "floor(%s)"}, {OP_CEIL, "ceil(%s)"},
                     {OP_ROUND, "nearbyint(%s)"}};
    for (int i = 0; i < COUNT_OF(functions); i++)
        if (functions[i].op == op) {
            const char *at = strstr(functions[i].format, "%s");
            return rounded(names, type,
                           TEXT("%.*s%s%s", (int)(at - functions[i].format), functions[i].format, x, at + 2));
        }
    return refuse(names, op_info(op)->text);
}

static const char *call_text(CNames *names, const Expr *expr) {
    OpId op = expr->call.op;
    if (op == OP_SMS) return "(int64_t)r->module->multiprocessors";
    if (op == OP_CLUSTER_EXTENT && names->cluster)
        return TEXT("(int64_t)%d", names->cluster[expr_is_int(ARG(expr, CLUSTER_EXTENT, name).value, 1)]);
    if (expr->call.count < 1 || !expr->call.args[0].value) return refuse(names, "a call without a value");
    const Expr *first = expr->call.args[0].value;
    Type type = c_type(first);
    const char *a = c_expression(names, first);
    if (op == OP_IEEE) return a;
    if (op == OP_MIN || op == OP_MAX || op == OP_CEILDIV) {
        const char *b = c_expression(names, expr->call.args[1].value);
        if (op == OP_CEILDIV) return rounded(names, type, TEXT("ceildiv(r, %d, %s, %s)", is_signed(type), a, b));
        const char *name = op == OP_MIN ? "least" : "largest";
        return type_is_float(type) ? TEXT("%s_real(%s, %s)", name, a, b)
                                   : TEXT("%s(%d, %s, %s)", name, is_signed(type), a, b);
    }
    if (op == OP_ABS && type_kind(type) == KIND_UINT) return a;
    if (op == OP_ABS && !type_is_float(type)) return rounded(names, type, TEXT("absolute(%s)", a));
    return function_text(names, op, expr->type, c_converted(names, TYPE_F64, type, a));
}

const char *c_expression(CNames *names, const Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT: return integer_text(names, expr->integer);
    case EXPR_FLOAT: return real_text(names, expr->real);
    case EXPR_VAR: return name_text(names, expr->var);
    case EXPR_UNARY: return unary_text(names, expr);
    case EXPR_BINARY: return binary_text(names, expr);
    case EXPR_SELECT:
        return TEXT("((%s) ? (%s) : (%s))", c_expression(names, expr->select.condition),
                    c_expression(names, expr->select.yes), c_expression(names, expr->select.no));
    case EXPR_CALL: return call_text(names, expr);
    case EXPR_CAST: return c_converted(names, expr->type, c_type(expr->operand), c_expression(names, expr->operand));
    case EXPR_BITCAST:
    case EXPR_LOAD: break;
    }
    return refuse(names, "bits of another type, or an element of a tensor");
}
