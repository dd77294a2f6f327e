#include "passes/analysis/util.h"
#include "passes/sync/sync.h"

typedef struct Choice {
    int first, second;
} Choice;
typedef VEC(Choice) Choices;

// A trip count that is not known: of the loop whose end is the variable `key`, or whose iterator it is.
typedef struct Quantity {
    const Var *key;
    bool inside;                // in a loop: it may differ from one entry to the next
    int64_t period, multiple;   // of the loop's slots
    bool open;
    Choices choices;
    int chosen;
    int bindings;   // in this scenario
    int many;       // from here on it stands for all larger ones
} Quantity;

struct Scenarios {
    Arena *arena;
    Map *ends;   // Var -> Quantity
    VEC(Quantity *) quantities;
    Map *elements;    // iterators of parallel loops
    Map *declared;    // in the body: other variables, as a role's of its grid, do not change
    int64_t period;   // S
    int64_t common;   // a multiple of all numbers of slots, also where S is not
    Map *counting;    // loops that count slots
    const Map *quiet;
};

int64_t scenarios_period(const Scenarios *m, const Stmt *loop) {
    return !loop || map_has(m->counting, loop) ? m->period : 1;
}

int64_t scenarios_multiple(const Scenarios *m, const Stmt *loop) {
    return map_has(m->counting, loop) ? m->common : 1;
}

static Affine next_trips(AffineEnv *env, Quantity *quantity) {
    const Choice *choice = &quantity->choices.items[quantity->chosen];
    int trips = quantity->bindings++ % 2 ? choice->second : choice->first;
    Affine exact = affine_const(trips);
    return trips >= quantity->many ? affine_add(exact, affine_more(env, quantity->multiple, INT64_MAX), 1) : exact;
}

bool scenario_trips(const Scenarios *m, AffineEnv *env, const Var *var, Affine *trips) {
    Quantity *quantity = map_get(m->ends, var);
    if (!quantity || quantity->open) return false;
    EXPECT(arena_failure(m->arena), quantity->chosen < quantity->choices.count, "choice %d of %d of '%s'",
           quantity->chosen, quantity->choices.count, var->name);
    *trips = next_trips(env, quantity);
    return true;
}

static void add_choice(const Scenarios *m, Quantity *quantity, int64_t first, int64_t second) {
    vec_push(m->arena, &quantity->choices, ((Choice){(int)first, (int)second}));
}

// Stands for all larger counts: the second half is of iterations far from the first ones, enough to come back to a slot.
static int64_t many_trips(const Quantity *quantity) {
    return 2 * quantity->period + 2;
}

static void add_choices(Scenarios *m, Quantity *quantity) {
    int64_t period = quantity->period, most = many_trips(quantity), some[] = {0, 1, most};
    quantity->many = (int)most;
    if (!quantity->inside) {
        for (int64_t t = 0; t <= period + 1; t++) add_choice(m, quantity, t, t);
        add_choice(m, quantity, most, most);
        return;
    }
    for (int i = 0; i < COUNT_OF(some); i++)
        for (int j = 0; j < COUNT_OF(some); j++) add_choice(m, quantity, some[i], some[j]);
    for (int64_t t = 3; t <= period; t++) add_choice(m, quantity, t, t);   // that end in other slots
}

static void add_quantity(Scenarios *m, const Var *key, bool inside, const Stmt *loop) {
    int64_t period = scenarios_period(m, loop), multiple = scenarios_multiple(m, loop);
    Quantity *quantity = map_get(m->ends, key);
    if (!quantity) {
        quantity = NEW(m->arena, Quantity);
        *quantity = (Quantity){.key = key, .period = 1, .multiple = 1};
        map_put(m->ends, key, quantity);
        vec_push(m->arena, &m->quantities, quantity);
    }
    quantity->inside |= inside;
    if (period > quantity->period) quantity->period = period;
    if (multiple > quantity->multiple) quantity->multiple = multiple;
}

// Constant moduli of indices are numbers of slots, but for those of elements: of what parallel loops count.
static bool is_slot_count(const Scenarios *m, const Expr *expr, int64_t *slots) {
    if (!is_binary(expr, BIN_MOD) || !type_is_int(expr->type)) return false;
    if (!expr_const(expr->binary.b, slots) || *slots < 2 || *slots > LONGEST_PERIOD) return false;
    return !expr_uses_any(expr->binary.a, m->elements);
}

static int64_t common_multiple(int64_t a, int64_t b) {
    return a / gcd64(a, b) * b;
}

static bool is_played(Visitor *visitor, Stmt *stmt) {
    const Scenarios *m = visitor->user;
    return !map_has(m->quiet, stmt);
}

static bool period_expr(Visitor *visitor, Expr *expr) {
    Scenarios *m = visitor->user;
    int64_t slots;
    if (!is_slot_count(m, expr, &slots)) return true;
    int64_t period = common_multiple(m->period, slots);
    if (period <= LONGEST_PERIOD) m->period = period;
    m->common = common_multiple(m->common, slots);
    return true;
}

typedef struct Counting {
    const Scenarios *m;
    const Var *iter;   // NULL: any
} Counting;

static bool counts(const Expr *expr, const void *what) {
    const Counting *counting = what;
    int64_t slots;
    return is_slot_count(counting->m, expr, &slots) && (!counting->iter || expr_uses_var(expr, counting->iter));
}

// Iterations of a loop over the block count slots: by k % S, by something that comes of k, or by a `var`. `inner`: the
// block stands in a loop within.
static bool counts_slots(const Scenarios *m, const Block *block, const Var *iter, bool inner) {
    Counting counting = {m, inner ? iter : NULL};
    FOR_EACH_ITEM (stmt, block) {
        bool loop = stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL;
        if (map_has(m->quiet, stmt)) continue;
        if (stmt->kind == STMT_ASSIGN && type_is_int(stmt->let.var->type)) return true;
        if (!loop && stmt_any_own_expr(stmt, counts, &counting)) return true;
        FOR_EACH_BODY (body, stmt)
            if (counts_slots(m, body, iter, inner || loop)) return true;
    }
    return false;
}

static void find_quantities(Scenarios *m, Block *block, bool inside) {
    FOR_EACH_ITEM (stmt, block) {
        if (is_leaf(stmt) || map_has(m->quiet, stmt)) continue;
        bool loop = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
        const Iter *iter = stmt->kind == STMT_FOR ? &stmt->loop.iters[stmt->loop.count - 1] : NULL;
        if (iter && counts_slots(m, &stmt->loop.body, iter->var, false)) map_put(m->counting, stmt, stmt);
        for (int k = 0; iter && k < stmt->loop.count; k++) {
            iter = &stmt->loop.iters[k];
            if (iter->end->kind == EXPR_VAR) add_quantity(m, iter->end->var, inside, stmt);
            else if (iter->end->kind != EXPR_INT) add_quantity(m, iter->var, inside || k > 0, stmt);
        }
        FOR_EACH_BODY (body, stmt) find_quantities(m, body, inside || loop);
    }
}

static void find_declared(Scenarios *m, const Block *body) {
    FOR_EACH_STMT (stmt, body) {
        if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) map_put(m->declared, stmt->let.var, stmt->let.var);
        for (int k = 0; stmt->kind == STMT_FOR && k < stmt->loop.count; k++)
            map_put(m->declared, stmt->loop.iters[k].var, stmt->loop.iters[k].var);
    }
}

static void find_period(Scenarios *m, Block *body) {
    FOR_EACH_STMT (stmt, body)
        for (int i = 0; is_loop(stmt, LOOP_PARALLEL) && i < stmt->loop.count; i++)
            map_put(m->elements, stmt->loop.iters[i].var, stmt->loop.iters[i].var);
    m->period = m->common = 1;
    visit_block(&(Visitor){.expr = period_expr, .stmt = is_played, .user = m}, body);
}

// Too many combinations: none, one, and many iterations, until they are few enough; then all at once.
static void limit_scenarios(Scenarios *m, int most) {
    int64_t count = 1;
    for (int q = m->quantities.count - 1; q >= 0; q--) {
        Quantity *quantity = m->quantities.items[q];
        if (count * quantity->choices.count > most) {
            quantity->choices.count = 0;
            int enough = quantity->many;
            add_choice(m, quantity, enough, enough);
            quantity->open = count * 3 > most;
            if (!quantity->open) add_choice(m, quantity, 0, enough), add_choice(m, quantity, 1, 1);
        }
        count *= quantity->choices.count;
    }
}

Scenarios *scenarios_new(Arena *arena, Block *body, const Map *quiet, int most) {
    Scenarios *m = NEW(arena, Scenarios);
    *m = (Scenarios){.arena = arena, .ends = map_new(arena), .counting = map_new(arena), .elements = map_new(arena)};
    m->quiet = quiet;
    m->declared = map_new(arena);
    find_declared(m, body);
    find_period(m, body);
    find_quantities(m, body, false);
    for (int q = 0; q < m->quantities.count; q++) add_choices(m, m->quantities.items[q]);
    limit_scenarios(m, most);
    return m;
}

void scenarios_reset(Scenarios *m) {
    for (int q = 0; q < m->quantities.count; q++) m->quantities.items[q]->chosen = 0;
}

bool scenarios_next(Scenarios *m) {
    VEC_EACH_PTR (Quantity, quantity, &m->quantities) {
        if (++quantity->chosen < quantity->choices.count) return true;
        quantity->chosen = 0;
    }
    return false;
}

// Dims, parameters and lets around the body that loops end at are bound from the start, its own lets where they stand.
void scenario_start(Scenarios *m, AffineEnv *env) {
    affine_reset(env);
    VEC_EACH_PTR (Quantity, quantity, &m->quantities) {
        quantity->bindings = 0;
        bool known = !map_has(m->declared, quantity->key);
        if (known && !quantity->open) affine_bind(env, quantity->key, next_trips(env, quantity));
    }
}
