// Ranges of variables whose values loops carry from one iteration to the next.
//
// One range for each `var`, which holds wherever it is in scope: of all that is ever assigned to it. Walks over the
// kernel let the ranges grow until no assignment leaves them (the values before the first such walk are those of the
// declarations). An end that keeps growing goes to the next of a few limits, so that the walks are few; two more take
// back what that gave away. What the walks end with is confirmed by one, so it holds whatever the steps were.
//
//     var h: i64 = 1;  while (h < 512) { ..; h *= 2; }      1, 1..2, 1..4, 1..2^31, then 1..1022: h < 512 at `h *= 2`
//
// Between two assignments, conditions bound a variable more closely (`h < 512` in the loop): facts learn them like
// those of other names, and a walk says what is assigned (facts_forget).
//
// A variable to which numbers are only added is bounded by how often: the trip counts of the loops between its
// declaration and the addition.
//
//     var n: i64 = 0;  for (i in 100) if (x[i] > 0) n += 1;                                 0..100
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/match.h"
#include "ir/query.h"

typedef struct Carried {
    const Var *var;
    int depth;            // loops around the declaration
    Range range, next;    // by the last walk; of the values assigned in this one
    bool assigned;        // in this walk
    bool counts;          // every assignment adds to it
    Int128 least, most;   // of the sum of what is added, and the first value
} Carried;

typedef struct Analysis {
    Arena *arena;
    Facts *facts;
    Map *index;   // Var -> Carried
    VEC(Carried *) vars;
    bool first;           // the walk that knows no ranges yet: it counts declarations alone
    VEC(int64_t) trips;   // of the loops around; -1: not known
} Analysis;

static const Int128 MOST_ADDED = (Int128)1 << 62;   // times a number of iterations it fits

// ---- loops ----

static int64_t most_trips(const Facts *facts, const Iter *iter) {
    Range begin = range_of(facts, iter->begin), end = range_of(facts, iter->end), step = range_of(facts, iter->step);
    Int128 count = ((Int128)end.high - begin.low + step.low - 1) / (step.low < 1 ? 1 : step.low);
    if (step.low < 1 || begin.low == INT64_MIN || end.high == INT64_MAX || count > INT32_MAX) return -1;
    return count < 0 ? 0 : (int64_t)count;
}

// How often a statement here runs for one of `depth` loops further out; -1: not known.
static int64_t times_within(const Analysis *a, int depth) {
    int64_t times = 1;
    for (int i = depth; i < a->trips.count; i++) {
        if (a->trips.items[i] < 0 || __builtin_mul_overflow(times, a->trips.items[i], &times)) return -1;
    }
    return times;
}

// ---- assignments ----

static void join(Carried *v, Range range) {
    if (!v->assigned || range.low < v->next.low) v->next.low = range.low;
    if (!v->assigned || range.high > v->next.high) v->next.high = range.high;
    v->assigned = true;
}

static void declare(Analysis *a, const Stmt *stmt) {
    Carried *v = map_get(a->index, stmt->let.var);
    if (!v) return;
    Range first = stmt->let.value ? range_of(a->facts, stmt->let.value) : type_range(v->var->type);
    if (a->first) facts_carry(a->facts, v->var, first);
    v->counts = !v->assigned;   // declared once
    v->depth = a->trips.count;
    v->least = first.low, v->most = first.high;
    join(v, first);
}

// What v + e adds to v; false: the value is no such sum.
static bool added(const Analysis *a, const Carried *v, const Expr *value, WideRange *out) {
    LinearSum sum = linear_of(a->arena, value);
    Expr *self = e_var(a->arena, (Var *)v->var);
    if (sum.full || linear_factor(&sum, self) != 1) return false;
    linear_add_term(&sum, self, -1);
    *out = linear_range(a->facts, &sum);
    return true;
}

static void count_up(const Analysis *a, Carried *v, const Expr *value) {
    WideRange by;
    int64_t times = times_within(a, v->depth);
    v->counts = v->counts && times >= 0 && added(a, v, value, &by) && by.low > -MOST_ADDED && by.high < MOST_ADDED;
    if (!v->counts) return;
    if (by.low < 0) v->least += by.low * times;
    if (by.high > 0) v->most += by.high * times;
    v->counts = v->least > -MOST_ADDED && v->most < MOST_ADDED;
}

static void assign(Analysis *a, const Stmt *stmt) {
    Carried *v = a->first ? NULL : map_get(a->index, stmt->let.var);
    if (!v) return;
    join(v, range_of(a->facts, stmt->let.value));
    count_up(a, v, stmt->let.value);
}

// ---- one walk ----

static void follow_block(Analysis *a, const Block *block);

static void follow_body(Analysis *a, const Stmt *stmt, const Block *body) {
    int mark = facts_mark(a->facts), depth = a->trips.count;
    Iter *iters;
    bool loops = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    for (int i = 0, count = loops ? stmt_iters(stmt, &iters) : 0; i < count; i++)
        vec_push(a->arena, &a->trips, most_trips(a->facts, &iters[i]));
    if (stmt->kind == STMT_WHILE) vec_push(a->arena, &a->trips, -1);
    facts_enter_body(a->facts, stmt, body);
    follow_block(a, body);
    a->trips.count = depth;
    facts_release(a->facts, mark);
}

static void follow_stmt(Analysis *a, const Stmt *stmt) {
    if (stmt->kind == STMT_VAR) declare(a, stmt);
    if (stmt->kind == STMT_ASSIGN) assign(a, stmt);
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) facts_forget(a->facts, stmt);
    FOR_EACH_BODY (body, stmt) follow_body(a, stmt, body);
    if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) facts_enter(a->facts, stmt);
    facts_forget(a->facts, stmt);
}

static void follow_block(Analysis *a, const Block *block) {
    int mark = facts_mark(a->facts);
    FOR_EACH_ITEM (stmt, block) follow_stmt(a, stmt);
    facts_release(a->facts, mark);
}

// The ranges that the assignments have, where the variables have those of the last walk.
static void walk(Analysis *a, const Func *func) {
    int mark = facts_mark(a->facts);
    VEC_EACH_PTR (Carried, v, &a->vars) {
        v->assigned = false;
        if (!a->first) facts_carry(a->facts, v->var, v->range);
    }
    follow_block(a, &func->body);
    facts_release(a->facts, mark);
    VEC_EACH_PTR (Carried, v, &a->vars) {
        if (!v->assigned) v->next = type_range(v->var->type);
        bool fits = v->counts && wide_fits(v->var->type, (WideRange){v->least, v->most});
        if (fits && v->least > v->next.low) v->next.low = (int64_t)v->least;
        if (fits && v->most < v->next.high) v->next.high = (int64_t)v->most;
    }
}

// ---- until nothing grows ----

static int64_t lower_limit(Type type, int64_t low) {
    return low >= 0 ? 0 : low >= INT32_MIN ? INT32_MIN : type_range(type).low;
}

static int64_t upper_limit(Type type, int64_t high) {
    return high <= INT32_MAX && type_range(type).high >= INT32_MAX ? INT32_MAX : type_range(type).high;
}

static bool holds(const Analysis *a) {
    VEC_EACH_PTR (Carried, v, &a->vars)
        if (v->next.low < v->range.low || v->next.high > v->range.high) return false;
    return true;
}

static void grow(Analysis *a, bool far) {
    VEC_EACH_PTR (Carried, v, &a->vars) {
        Type type = v->var->type;
        if (v->next.low < v->range.low) v->range.low = far ? lower_limit(type, v->next.low) : v->next.low;
        if (v->next.high > v->range.high) v->range.high = far ? upper_limit(type, v->next.high) : v->next.high;
    }
}

// Takes the smaller ranges of the last walk, if they hold too.
static void shrink(Analysis *a, const Func *func) {
    Range *before = NEW_ARRAY(a->arena, Range, a->vars.count);
    for (int i = 0; i < a->vars.count; i++) {
        before[i] = a->vars.items[i]->range;
        a->vars.items[i]->range = a->vars.items[i]->next;
    }
    walk(a, func);
    bool smaller = holds(a);
    for (int i = 0; i < a->vars.count && !smaller; i++) a->vars.items[i]->range = before[i];
}

static void find_vars(Analysis *a, const Func *func) {
    FOR_EACH_STMT (stmt, &func->body) {
        if (stmt->kind != STMT_VAR || !type_is_int(stmt->let.var->type) || map_has(a->index, stmt->let.var)) continue;
        Carried *v = NEW(a->arena, Carried);
        v->var = stmt->let.var;
        map_put(a->index, v->var, v);
        vec_push(a->arena, &a->vars, v);
    }
}

// The ranges of declarations, then ever larger ones. False: no end in sight.
static bool settle(Analysis *a, const Func *func) {
    enum { SMALL_STEPS = 2, STEPS = 12 };
    a->first = true;
    walk(a, func);
    a->first = false;
    VEC_EACH_PTR (Carried, v, &a->vars) v->range = v->next;
    for (int i = 0; i < STEPS; i++) {
        walk(a, func);
        if (holds(a)) return true;
        grow(a, i >= SMALL_STEPS);
    }
    return false;
}

void facts_carried(Facts *facts, const Func *func) {
    Analysis a = {.arena = facts_arena(facts), .facts = facts, .index = map_new(facts_arena(facts))};
    find_vars(&a, func);
    if (a.vars.count == 0) return;
    bool settled = settle(&a, func);
    if (settled) shrink(&a, func);
    VEC_EACH_PTR (Carried, v, &a.vars) facts_carry(facts, v->var, settled ? v->range : type_range(v->var->type));
}
