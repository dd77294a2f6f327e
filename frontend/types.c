// Values: literals without a type, promotion, conversion (DESIGN 3.2, "numbers").
#include "frontend/sema.h"
#include <string.h>

// ---- values ----
SemaValue value_int(Wide value, Span span) {
    return (SemaValue){.kind = VALUE_INT, .integer = value, .span = span};
}

SemaValue value_float(double value, Span span) {
    return (SemaValue){.kind = VALUE_FLOAT, .real = value, .span = span};
}

SemaValue value_expr(Sema *s, Expr *expr, Span span) {
    if (!expr->loc.line) expr->loc = place_of(s, span);   // fresh nodes only: shared ones have their place already
    return (SemaValue){.kind = VALUE_EXPR, .expr = expr, .span = span};
}

SemaValue value_poison(Span span) {
    return (SemaValue){.kind = VALUE_POISON, .span = span};
}

Span place_of(const Sema *s, Span span) {
    return s->placed ? s->place : span;
}

bool is_untyped(SemaValue v) {
    return v.kind == VALUE_INT || v.kind == VALUE_FLOAT;
}

bool value_is_const(SemaValue v) {
    return is_untyped(v) || (v.kind == VALUE_EXPR && (v.expr->kind == EXPR_INT || v.expr->kind == EXPR_FLOAT));
}

// References compute in f64; printed ones say so where it matters.
static Type default_float(const Sema *s) {
    return s->context == IN_REFERENCE && !s->verbatim ? TYPE_F64 : TYPE_F32;
}

Type value_type(Sema *s, SemaValue v) {
    switch (v.kind) {
    case VALUE_INT: return TYPE_I64;
    case VALUE_FLOAT: return default_float(s);
    case VALUE_EXPR: return v.expr->type;
    default: return TYPE_NONE;
    }
}

const char *value_text(Sema *s, SemaValue v) {
    if (v.kind == VALUE_INT) return "an integer literal";
    if (v.kind == VALUE_FLOAT) return "a float literal";
    if (v.kind != VALUE_EXPR) return "an error";
    bool widened = s->context == IN_REFERENCE && v.expr->type == TYPE_F64;
    return widened ? "f64 (as floats are in a reference)" : type_text(v.expr->type);
}

// ---- to a type ----
static bool fits(Type type, Wide value) {
    if (type == TYPE_BOOL) return value == 0 || value == 1;
    int bits = type_bits(type);
    if (type_kind(type) == KIND_UINT) return value >= 0 && value >> bits == 0;
    Wide half = (Wide)1 << (bits - 1);
    return value >= -half && value < half;
}

static const char *wide_text(Sema *s, Wide value) {
    if (value >= 0) return arena_printf(s->arena, "%llu", (unsigned long long)value);
    return arena_printf(s->arena, "%lld", (long long)value);
}

// A float literal's integer, as `T(x)` does it: toward zero, saturating.
static Expr *number(Sema *s, Type type, SemaValue v) {
    if (v.kind == VALUE_FLOAT)
        return type_is_float(type) ? e_float(s->arena, type, v.real)
                                   : e_cast(s->arena, type, e_float(s->arena, TYPE_F64, v.real));
    Type wide = v.integer > INT64_MAX ? TYPE_U64 : TYPE_I64;
    return e_cast(s->arena, type, e_int_of(s->arena, wide, (int64_t)(uint64_t)v.integer));
}

static Expr *literal_of(Sema *s, Type type, SemaValue v) {
    if (v.kind == VALUE_INT && !type_is_float(type) && !fits(type, v.integer))
        diag(s->sink, v.span, T_LITERAL_RANGE, wide_text(s, v.integer), type_text(type));
    Expr *e = number(s, type, v);
    e->loc = place_of(s, v.span);
    return e;
}

Expr *settle(Sema *s, SemaValue v) {
    if (v.kind == VALUE_EXPR) return v.expr;
    if (is_poison(v)) return e_int(s->arena, 0);
    return literal_of(s, value_type(s, v), v);
}

static bool is_number(Type type) {
    return type != TYPE_NONE && type_kind(type) != KIND_OPAQUE;
}

Expr *to_type(Sema *s, SemaValue v, Type type) {
    if (is_poison(v) || type == TYPE_NONE) return e_zero(s->arena, type == TYPE_NONE ? TYPE_I64 : type);
    if (is_untyped(v)) {
        if (is_number(type)) return literal_of(s, type, v);
        diag(s->sink, v.span, T_NOT_CONVERTIBLE, value_text(s, v), type_text(type));
        return e_zero(s->arena, type);
    }
    if (v.expr->type == type) return v.expr;
    if (!is_number(v.expr->type) || !is_number(type)) {
        diag(s->sink, v.span, T_NOT_CONVERTIBLE, value_text(s, v), type_text(type));
        return e_zero(s->arena, type);
    }
    return value_expr(s, e_cast(s->arena, type, v.expr), v.span).expr;
}

Expr *to_index(Sema *s, SemaValue v) {
    Type type = value_type(s, v);
    if (is_poison(v)) return e_int(s->arena, 0);
    if (type == TYPE_SLOT) return settle(s, v);
    if (v.kind == VALUE_FLOAT || !type_is_int(type) || type == TYPE_U64) {
        diag(s->sink, v.span, T_NOT_INDEX, value_text(s, v));
        return e_int(s->arena, 0);
    }
    return to_type(s, v, TYPE_I64);
}

Expr *to_condition(Sema *s, SemaValue v) {
    if (is_poison(v)) return e_bool(s->arena, true);
    if (v.kind == VALUE_EXPR && v.expr->type == TYPE_BOOL) return v.expr;
    diag(s->sink, v.span, T_NOT_CONDITION, value_text(s, v));
    return e_bool(s->arena, true);
}

// ---- promotion ----
typedef struct Kinds {
    bool any_bool, all_bool, any_signed, any_unsigned, any_f64, typed_float, literal_float, opaque, same;
    Type widest, first;   // widest integer; type of the first typed value
} Kinds;

static void look_at_type(Kinds *k, Type type) {
    if (k->first == TYPE_NONE) k->first = type;
    if (type != k->first) k->same = false;
    if (type != TYPE_BOOL) k->all_bool = false;
    switch (type_kind(type)) {
    case KIND_BOOL: k->any_bool = true; break;
    case KIND_OPAQUE: k->opaque = true; break;
    case KIND_FLOAT:
        k->typed_float = true;
        k->any_f64 |= type == TYPE_F64;
        break;
    default:
        if (type_kind(type) == KIND_INT) k->any_signed = true;
        else k->any_unsigned = true;
        if (k->widest == TYPE_NONE || type_bits(type) > type_bits(k->widest)) k->widest = type;
    }
}

static bool has_literal_float(SemaValue v) {
    return v.arms ? has_literal_float(v.arms->yes) || has_literal_float(v.arms->no) : v.kind == VALUE_FLOAT;
}

static Kinds look_at(int count, const SemaValue *values) {
    Kinds k = {.all_bool = true, .same = true, .widest = TYPE_NONE, .first = TYPE_NONE};
    for (int i = 0; i < count; i++) {
        if (values[i].kind == VALUE_EXPR && !values[i].arms) look_at_type(&k, values[i].expr->type);
        else k.all_bool = false;
        k.literal_float |= has_literal_float(values[i]);
    }
    return k;
}

// The type that all operands take; TYPE_NONE after a report.
static Type common_type(Sema *s, int count, const SemaValue *values, const char *what, Span span) {
    Kinds k = look_at(count, values);
    if (k.first != TYPE_NONE && k.all_bool) return TYPE_BOOL;
    if (k.any_bool || k.opaque) {
        Diag *d =
            diag(s->sink, span, T_OPERAND_TYPES, what, value_text(s, values[0]), value_text(s, values[count > 1]));
        if (strchr("<>=!", *what) && value_type(s, values[0]) == TYPE_BOOL)
            diag_note(d, "two comparisons are written a < b && b < c");
        return TYPE_NONE;
    }
    if (s->verbatim && k.same && k.first != TYPE_NONE && (type_is_float(k.first) || !k.literal_float)) {
        // Printed IR says every conversion: operands of one type are just that, also below f32.
        bool literal = false;
        for (int i = 0; i < count; i++) literal |= is_untyped(values[i]);
        if (!literal || !type_is_float(k.first)) return k.first;
    }
    if (k.any_f64) return TYPE_F64;
    if (k.typed_float) return TYPE_F32;
    if (k.literal_float) return k.first == TYPE_NONE ? default_float(s) : TYPE_F32;
    if (k.any_signed && k.any_unsigned) {
        diag(s->sink, span, T_SIGNEDNESS, what);
        return TYPE_NONE;
    }
    return k.widest == TYPE_NONE ? TYPE_I64 : k.widest;
}

static bool literals_fit(Type type, SemaValue v) {
    if (v.arms) return literals_fit(type, v.arms->yes) && literals_fit(type, v.arms->no);
    return type_is_float(type) || (v.kind == VALUE_INT && fits(type, v.integer));
}

// A conditional of literals takes the type of the other operands, as a literal does.
static Expr *promoted(Sema *s, SemaValue v, Type type) {
    if (!v.arms || !is_number(type) || !literals_fit(type, v)) return to_type(s, v, type);
    Expr *yes = promoted(s, v.arms->yes, type), *no = promoted(s, v.arms->no, type);
    return value_expr(s, e_select(s->arena, v.arms->condition, yes, no), v.span).expr;
}

bool promote(Sema *s, int count, SemaValue *values, Expr **out, const char *what, Span span) {
    for (int i = 0; i < count; i++)
        if (is_poison(values[i])) return false;
    Type type = common_type(s, count, values, what, span);
    for (int i = 0; i < count && type != TYPE_NONE; i++) out[i] = promoted(s, values[i], type);
    return type != TYPE_NONE;
}

// ---- operators ----
static const char *const op_texts[] = {"+",  "-",  "*",  "/", "%",  "&", "|",  "^",  "<<",
                                       ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||"};

const char *operator_text(BinaryOp op) {
    return op_texts[op];
}

static bool folding(const Sema *s) {
    return !s->verbatim || s->constant > 0;
}

static Expr *make_binary(Sema *s, BinaryOp op, Expr *a, Expr *b) {
    if (folding(s)) return e_binary(s->arena, op, a, b);
    Expr *e = NEW(s->arena, Expr);
    *e = (Expr){.kind = EXPR_BINARY, .type = op >= BIN_EQ ? TYPE_BOOL : a->type};
    e->binary.op = op;
    e->binary.a = a;
    e->binary.b = b;
    return e;
}

static SemaValue refuse_operands(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span) {
    Diag *d = diag(s->sink, span, T_OPERAND_TYPES, op_texts[op], value_text(s, a), value_text(s, b));
    Span behind = {a.span.file, a.span.end_line, a.span.end_column, a.span.end_line, a.span.end_column + 1};
    if (type_is_float(value_type(s, a)) || type_is_float(value_type(s, b)))
        note_foreign(s, d, FOREIGN_OPERATOR, behind);
    return value_poison(span);
}

static SemaValue shift(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span) {
    Expr *left = settle(s, a);
    if (!type_is_int(left->type) || b.kind == VALUE_FLOAT || !type_is_int(value_type(s, b)))
        return refuse_operands(s, op, a, b, span);
    Expr *right = is_untyped(b) ? to_type(s, b, left->type) : b.expr;
    int64_t count;
    bool outside = expr_const(right, &count) && (count < 0 || count >= type_bits(left->type));
    if (outside && !s->verbatim) {   // (a pass may have found the amount)
        diag(s->sink, b.span, T_SHIFT_RANGE, (long long)count, type_text(left->type));
        return value_poison(span);
    }
    return value_expr(s, make_binary(s, op, left, right), span);
}

static SemaValue logical(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span) {
    Expr *left = to_condition(s, a), *right = to_condition(s, b);
    return value_expr(s, make_binary(s, op, left, right), span);
}

// Whether the operator takes operands of this type.
static bool takes(BinaryOp op, Type type) {
    bool bits = op == BIN_AND || op == BIN_OR || op == BIN_XOR;
    if (type == TYPE_BOOL) return bits || op == BIN_EQ || op == BIN_NE;
    if (type_is_float(type)) return !bits && op != BIN_MOD;
    return type_is_int(type);
}

// A constant zero; that of a float only in what people write (folding may have made it in printed IR).
// (What a pass has printed may divide by a 0 that it found, where nothing comes.)
bool is_zero_divisor(const Sema *s, const Expr *e) {
    return !s->verbatim && (expr_is_int(e, 0) || (e->kind == EXPR_FLOAT && e->real == 0));
}

SemaValue binary(Sema *s, BinaryOp op, SemaValue a, SemaValue b, Span span) {
    if (is_poison(a) || is_poison(b)) return value_poison(span);
    if (op == BIN_LOGICAL_AND || op == BIN_LOGICAL_OR) return logical(s, op, a, b, span);
    if (is_untyped(a) && is_untyped(b) && folding(s)) return fold_binary(s, op, a, b, span);
    if (op == BIN_SHL || op == BIN_SHR) return shift(s, op, a, b, span);
    SemaValue values[2] = {a, b};
    Expr *out[2];
    if (!promote(s, 2, values, out, op_texts[op], span)) return value_poison(span);
    if (!takes(op, out[0]->type)) return refuse_operands(s, op, a, b, span);
    bool whole = b.kind == VALUE_INT || type_is_int(out[1]->type);   // x / 0.0 is an infinity or NaN
    if ((op == BIN_DIV || op == BIN_MOD) && whole && is_zero_divisor(s, out[1])) {
        diag(s->sink, span, T_ZERO_DIVISOR, op_texts[op]);
        return value_poison(span);
    }
    return value_expr(s, make_binary(s, op, out[0], out[1]), span);
}

static SemaValue unary_untyped(Sema *s, UnaryOp op, SemaValue a, Span span) {
    if (op == UNARY_NEG && a.kind == VALUE_FLOAT) return value_float(-a.real, span);
    if (op == UNARY_NEG && a.integer <= (Wide)INT64_MAX + 1) return value_int(-a.integer, span);
    if (op == UNARY_BITNOT && a.kind == VALUE_INT && a.integer <= INT64_MAX) return value_int(~a.integer, span);
    diag(s->sink, span, T_OPERAND_TYPE, op == UNARY_NEG ? "-" : op == UNARY_NOT ? "!" : "~", value_text(s, a));
    return value_poison(span);
}

// `literal`: the operand is a number as written. In printed IR only such a minus belongs to the number.
SemaValue unary(Sema *s, UnaryOp op, SemaValue a, bool literal, Span span) {
    if (is_poison(a)) return a;
    if (is_untyped(a) && (folding(s) || (literal && op == UNARY_NEG))) return unary_untyped(s, op, a, span);
    Expr *e = settle(s, a);
    bool fine =
        op == UNARY_NOT ? e->type == TYPE_BOOL : type_is_int(e->type) || (op == UNARY_NEG && type_is_float(e->type));
    if (!fine) {
        diag(s->sink, span, T_OPERAND_TYPE, op == UNARY_NEG ? "-" : op == UNARY_NOT ? "!" : "~", value_text(s, a));
        return value_poison(span);
    }
    if (folding(s)) return value_expr(s, e_unary(s->arena, op, e_cast(s->arena, type_compute(e->type), e)), span);
    Expr *made = NEW(s->arena, Expr);
    *made = (Expr){.kind = EXPR_UNARY, .type = e->type};
    made->unary.op = op;
    made->unary.a = e;
    return value_expr(s, made, span);
}

bool promote_arms(Sema *s, SemaValue yes, SemaValue no, Expr **out, Span span) {
    SemaValue values[2] = {yes, no};
    bool same = yes.kind == VALUE_EXPR && no.kind == VALUE_EXPR && yes.expr->type == no.expr->type;
    if (!same) return promote(s, 2, values, out, "? :", span);
    out[0] = yes.expr;
    out[1] = no.expr;
    return true;
}

SemaValue ternary(Sema *s, SemaValue condition, SemaValue yes, SemaValue no, Span span) {
    if (is_poison(condition) || is_poison(yes) || is_poison(no)) return value_poison(span);
    Expr *chosen = to_condition(s, condition);
    if (chosen->kind == EXPR_INT && folding(s) && is_untyped(yes) && is_untyped(no)) {
        SemaValue v = chosen->integer ? yes : no;
        bool to_float = v.kind == VALUE_INT && (yes.kind == VALUE_FLOAT || no.kind == VALUE_FLOAT);
        return to_float ? value_float((double)v.integer, span) : v;
    }
    Expr *arms[2];
    if (!promote_arms(s, yes, no, arms, span)) return value_poison(span);
    if (folding(s)) {
        SemaValue selected = value_expr(s, e_select(s->arena, chosen, arms[0], arms[1]), span);
        bool literals = (is_untyped(yes) || yes.arms) && (is_untyped(no) || no.arms);
        if (!literals) return selected;
        Arms *kept = NEW(s->arena, Arms);
        *kept = (Arms){chosen, yes, no};
        selected.arms = kept;
        return selected;
    }
    Expr *e = NEW(s->arena, Expr);
    *e = (Expr){.kind = EXPR_SELECT, .type = arms[0]->type};
    e->select.condition = chosen;
    e->select.yes = arms[0];
    e->select.no = arms[1];
    return value_expr(s, e, span);
}

SemaValue cast(Sema *s, Type type, SemaValue a, bool literal, Span span) {
    if (is_poison(a)) return a;
    Type from = value_type(s, a);
    if (!is_number(type) || !is_number(from)) {
        diag(s->sink, span, T_NOT_CONVERTIBLE, value_text(s, a), type_text(type));
        return value_poison(span);
    }
    if (is_untyped(a) && (folding(s) || literal)) return value_expr(s, number(s, type, a), span);
    Expr *e = settle(s, a);
    if (folding(s)) return value_expr(s, e_cast(s->arena, type, e), span);
    Expr *made = NEW(s->arena, Expr);
    *made = (Expr){.kind = EXPR_CAST, .type = type, .operand = e};
    return value_expr(s, made, span);
}
