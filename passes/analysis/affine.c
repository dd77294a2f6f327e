#include "passes/analysis/affine.h"
#include <string.h>

// An unknown: an expression over variables, with their values at the time when it was first found.
typedef struct Atom {
    const Expr *expr;         // NULL: differs from all others
    int64_t multiple, most;   // of affine_more; 0: no known range
    int next;                 // next older atom with the same latest binding; -1: none
} Atom;

typedef struct Bound {
    Affine value;
    int serial;
    int epoch;   // of the environment at the binding; an older epoch is no binding
} Bound;

struct AffineEnv {
    Arena *arena;
    Map *vars;   // Var -> Bound
    VEC(Atom) atoms;
    VEC(int) latest;   // by serial: the newest atom whose latest binding has that serial; -1: none
    int serial;        // bindings so far
    int epoch;         // resets so far
};

AffineEnv *affine_env(Arena *arena) {
    AffineEnv *env = NEW(arena, AffineEnv);
    env->arena = arena;
    env->vars = map_new(arena);
    return env;
}

void affine_reset(AffineEnv *env) {
    env->epoch++;
    env->serial = 0;
    env->atoms.count = 0;
    env->latest.count = 0;
}

static const Bound *bound_of(const AffineEnv *env, const Var *var) {
    const Bound *bound = map_get(env->vars, var);
    return bound && bound->epoch == env->epoch ? bound : NULL;
}

// ---- arithmetic ----

Affine affine_const(int64_t value) {
    return (Affine){.known = true, .constant = value};
}

static Affine affine_term(int atom) {
    return (Affine){.known = true, .count = 1, .terms = {{.atom = atom, .factor = 1}}};
}

static Affine affine_atom(AffineEnv *env, Atom atom) {
    vec_push(env->arena, &env->atoms, atom);
    return affine_term(env->atoms.count - 1);
}

static Affine affine_unknown(AffineEnv *env) {   // equal to no other
    return affine_atom(env, (Atom){0});
}

// Wraps like i64: indices near the ends of the range have no elements.
static int64_t multiply_add(int64_t a, int64_t b, int64_t factor) {
    return (int64_t)((uint64_t)a + (uint64_t)b * (uint64_t)factor);
}

static void add_term(Affine *sum, int atom, int64_t factor) {
    int at = 0;
    while (at < sum->count && sum->terms[at].atom < atom) at++;
    if (at < sum->count && sum->terms[at].atom == atom) {
        sum->terms[at].factor = multiply_add(sum->terms[at].factor, factor, 1);
        if (sum->terms[at].factor != 0) return;
        sum->count--;
        memmove(&sum->terms[at], &sum->terms[at + 1], sizeof sum->terms[0] * (size_t)(sum->count - at));
        return;
    }
    if (factor == 0) return;
    if (sum->count == AFFINE_TERMS) {
        sum->known = false;
        return;
    }
    memmove(&sum->terms[at + 1], &sum->terms[at], sizeof sum->terms[0] * (size_t)(sum->count - at));
    sum->terms[at].atom = atom;
    sum->terms[at].factor = factor;
    sum->count++;
}

Affine affine_add(Affine a, Affine b, int64_t factor) {
    a.known &= b.known;
    a.constant = multiply_add(a.constant, b.constant, factor);
    for (int i = 0; i < b.count && a.known; i++)
        add_term(&a, b.terms[i].atom, multiply_add(0, b.terms[i].factor, factor));
    return a;
}

bool affine_is_const(const Affine *a, int64_t *value) {
    if (!a->known || a->count > 0) return false;
    *value = a->constant;
    return true;
}

// b - a, if constant: terms are sorted and never 0, so it is exactly if the terms are equal.
static bool affine_distance(const Affine *a, const Affine *b, int64_t *distance) {
    if (!a->known || !b->known || a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->terms[i].atom != b->terms[i].atom || a->terms[i].factor != b->terms[i].factor) return false;
    *distance = multiply_add(b->constant, a->constant, -1);
    return true;
}

bool affine_same(const Affine *a, const Affine *b) {
    int64_t distance;
    return affine_distance(a, b, &distance) && distance == 0;
}

Affine affine_more(AffineEnv *env, int64_t multiple, int64_t most) {
    // A multiple of 0 marks unknowns without a range.
    EXPECT(arena_failure(env->arena), multiple > 0 && most >= 0, "multiples of %lld up to %lld", (long long)multiple,
           (long long)most);
    return affine_atom(env, (Atom){.multiple = multiple, .most = most});
}

// bound + factor * most, saturated at the ends of the range.
static int64_t beyond(int64_t bound, int64_t factor, int64_t most) {
    int64_t end = factor > 0 ? INT64_MAX : INT64_MIN, sum;
    bool endless = bound == end || most == INT64_MAX || __builtin_mul_overflow(factor, most, &sum) ||
                   __builtin_add_overflow(bound, sum, &sum);
    return endless ? end : sum;
}

bool affine_range(const AffineEnv *env, const Affine *a, int64_t *low, int64_t *high) {
    *low = *high = a->constant;
    for (int i = 0; i < a->count; i++) {
        EXPECT(arena_failure(env->arena), a->terms[i].atom < env->atoms.count, "a number from before affine_reset");
        const Atom *atom = &env->atoms.items[a->terms[i].atom];
        int64_t factor = a->terms[i].factor, *bound = factor > 0 ? high : low;
        if (!atom->multiple) return false;
        *bound = beyond(*bound, factor, atom->most);
    }
    return a->known;
}

// ---- expressions ----

void affine_bind(AffineEnv *env, const Var *var, Affine value) {
    Bound *bound = map_get(env->vars, var);
    if (!bound) map_put(env->vars, var, bound = NEW(env->arena, Bound));
    *bound = (Bound){value, ++env->serial, env->epoch};
}

void affine_forget(AffineEnv *env, const Var *var) {
    affine_bind(env, var, affine_unknown(env));
}

typedef struct Latest {
    const AffineEnv *env;
    int serial;
    bool memory;
} Latest;

static bool latest_expr(Visitor *visitor, Expr *expr) {
    Latest *latest = visitor->user;
    if (expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op))) latest->memory = true;
    const Bound *bound = expr->kind == EXPR_VAR ? bound_of(latest->env, expr->var) : NULL;
    if (bound && bound->serial > latest->serial) latest->serial = bound->serial;
    return true;
}

static Affine opaque(AffineEnv *env, const Expr *expr) {
    Latest latest = {.env = env};
    visit_expr(&(Visitor){.expr = latest_expr, .user = &latest}, (Expr *)expr);
    if (latest.memory) return affine_unknown(env);
    while (env->latest.count <= latest.serial) vec_push(env->arena, &env->latest, -1);
    int *head = &env->latest.items[latest.serial];
    for (int i = *head; i >= 0; i = env->atoms.items[i].next)
        if (expr_equal(env->atoms.items[i].expr, expr)) return affine_term(i);
    int next = *head;
    *head = env->atoms.count;
    return affine_atom(env, (Atom){.expr = expr, .next = next});
}

// a op b of constants. Shifts and divisions by non-positive numbers are not folded.
static bool fold(BinaryOp op, int64_t a, int64_t b, int64_t *value) {
    bool divides = op == BIN_DIV || op == BIN_MOD, shifts = op == BIN_SHL || op == BIN_SHR;
    return !shifts && (!divides || b > 0) && int_binary(op, TYPE_I64, a, b, value);
}

static bool type_holds(Type type, int64_t value) {
    return int_wrap(type, value) == value;
}

static bool is_moderate(Type type, const Affine *a) {
    bool moderate = a->known && type_holds(type, a->constant);
    for (int i = 0; i < a->count; i++) moderate &= type_holds(type, a->terms[i].factor);
    return moderate;
}

// The value of an expression, if its type holds it. A number of 8 or 16 bits may wrap and stay within a tile; one of 32
// bits, of moderate terms, would leave it first.
static Affine within(AffineEnv *env, const Expr *expr, Affine value) {
    Type type = expr->type;
    int64_t low, high;
    if (!type_is_int(type) || type_bytes(type) == 8) return value;
    if (type_bytes(type) == 4 && is_moderate(type, &value)) return value;
    bool fits = affine_range(env, &value, &low, &high) && type_holds(type, low) && type_holds(type, high);
    return fits ? value : opaque(env, expr);
}

static Affine cast(AffineEnv *env, const Expr *expr) {
    Type from = expr->operand->type;
    if (!type_is_int(expr->type) || !type_is_int(from)) return opaque(env, expr);
    bool wider = type_bytes(from) < type_bytes(expr->type) &&
                 (type_kind(from) == KIND_UINT || type_kind(expr->type) == KIND_INT);
    Affine value = affine_of(env, expr->operand);
    return wider || from == expr->type ? value : within(env, expr, value);
}

// a op b, decided by the range of b - a.
static bool compared(const AffineEnv *env, BinaryOp op, Affine a, Affine b, int64_t *value) {
    int64_t low, high;
    Affine distance = affine_add(b, a, -1);
    if (!affine_range(env, &distance, &low, &high)) return false;
    bool above = low > 0, not_below = low >= 0, below = high < 0, not_above = high <= 0;
    switch (op) {
    case BIN_LT: return *value = above, above || not_above;
    case BIN_LE: return *value = not_below, not_below || below;
    case BIN_GT: return *value = below, below || not_below;
    case BIN_GE: return *value = not_above, not_above || above;
    case BIN_EQ: return *value = not_below && not_above, *value || above || below;
    case BIN_NE: return *value = above || below, *value || (not_below && not_above);
    default: return false;
    }
}

// For `a % slots`: drops the terms of a non-negative number if all are multiples of `slots`.
static Affine in_slots(const AffineEnv *env, Affine a, int64_t slots) {
    int64_t low, high;
    if (!affine_range(env, &a, &low, &high) || low < 0) return a;
    for (int i = 0; i < a.count; i++) {
        const Atom *atom = &env->atoms.items[a.terms[i].atom];
        if (a.terms[i].factor % slots * (atom->multiple % slots) % slots != 0) return a;
    }
    return affine_const(a.constant);
}

static Affine binary(AffineEnv *env, const Expr *expr) {
    if (!type_is_int(expr->binary.a->type) && expr->binary.a->type != TYPE_BOOL) return opaque(env, expr);
    Affine a = affine_of(env, expr->binary.a), b = affine_of(env, expr->binary.b);
    int64_t x, y, value;
    BinaryOp op = expr->binary.op;
    if (op == BIN_ADD) return within(env, expr, affine_add(a, b, 1));
    if (op == BIN_SUB) return within(env, expr, affine_add(a, b, -1));
    if (op == BIN_MUL && affine_is_const(&b, &y)) return within(env, expr, affine_add(affine_const(0), a, y));
    if (op == BIN_MUL && affine_is_const(&a, &x)) return within(env, expr, affine_add(affine_const(0), b, x));
    if (op_compares(op) && affine_distance(&a, &b, &y) && fold(op, 0, y, &value)) return affine_const(value);
    if (op_compares(op) && compared(env, op, a, b, &value)) return affine_const(value);
    if (op == BIN_MOD && affine_is_const(&b, &y) && y > 0) a = in_slots(env, a, y);
    if (affine_is_const(&a, &x) && affine_is_const(&b, &y) && fold(op, x, y, &value)) return affine_const(value);
    if (op != BIN_LOGICAL_AND && op != BIN_LOGICAL_OR) return opaque(env, expr);
    int64_t deciding = op == BIN_LOGICAL_OR;   // the value that decides alone
    bool decided = (affine_is_const(&a, &x) && x == deciding) || (affine_is_const(&b, &x) && x == deciding);
    return decided ? affine_const(deciding) : opaque(env, expr);
}

static Affine call(AffineEnv *env, const Expr *expr) {
    OpId op = expr->call.op;
    if ((op != OP_MIN && op != OP_MAX && op != OP_CEILDIV) || !type_is_int(expr->type)) return opaque(env, expr);
    Affine a = affine_of(env, expr->call.args[0].value), b = affine_of(env, expr->call.args[1].value);
    int64_t x, y, less;
    if (op != OP_CEILDIV && compared(env, BIN_LE, a, b, &less)) return less == (op == OP_MIN) ? a : b;
    bool divides = op == OP_CEILDIV && affine_is_const(&a, &x) && affine_is_const(&b, &y) && y > 0 && x >= 0;
    return divides ? affine_const(x / y + (x % y > 0)) : opaque(env, expr);
}

Affine affine_of(AffineEnv *env, const Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT: return affine_const(expr->integer);
    case EXPR_VAR: {
        const Bound *bound = bound_of(env, expr->var);
        return bound ? bound->value : opaque(env, expr);
    }
    case EXPR_UNARY:
        if (expr->unary.op == UNARY_NEG && type_is_int(expr->type))
            return within(env, expr, affine_add(affine_const(0), affine_of(env, expr->unary.a), -1));
        if (expr->unary.op == UNARY_NOT) return affine_add(affine_const(1), affine_of(env, expr->unary.a), -1);
        return opaque(env, expr);
    case EXPR_CAST: return cast(env, expr);
    case EXPR_BINARY: return binary(env, expr);
    case EXPR_CALL: return call(env, expr);
    default: return opaque(env, expr);
    }
}
