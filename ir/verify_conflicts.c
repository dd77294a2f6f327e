// Rule 12, what the iterations of a parallel loop do to each other: proven by an example.
//
// An example is a value for each iterator with which two accesses, by different iterations, have the same element. Each
// iterator takes its first, second or last value; indices are sums of iterators and of what both have in common.
//
//     parallel (i in 32) {                       with i = 0 the let reads what is stored with i = 1
//         let next = s[i + 1];
//         s[i] = next;
//     }
//
// Iterators outside of the parallel loop have one value in both accesses, its own and those inside one in each. An access
// under a condition inside the loop proves nothing. The search ends after so many examples.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/query.h"
#include "ir/verify_impl.h"
#include <string.h>

enum { MOST_VALUES = 3, MOST_LEVELS = 16, MOST_EXAMPLES = 1 << 20 };

typedef struct Level {   // an iterator around an access
    const struct Level *outer;
    const Var *var;
    bool parallel;
    int depth, conditions;   // around it
    int count;               // of values to try; 0: not known
    int64_t values[MOST_VALUES];
} Level;

typedef struct Touch {
    const Buf *buf;   // the storage's root
    const Level *level;
    const LinearSum *indices;
    int conditions;   // around it
    bool writes;
    Span loc;
} Touch;

typedef struct Search {
    Verifier *v;
    VEC(Touch) touches;
    Map *lets;     // Var -> LinearSum, of one that is a sum of variables
    Map *levels;   // Var -> Level: of an iterator its own, of any other let the one that it is bound in
    const Level *level;
    int parallels, conditions;   // around what is looked at
    int64_t examples;            // tried so far
} Search;

// ---- indices ----
static int depth_of(const Level *level) {
    return level ? level->depth : 0;
}

static const Level *level_at(const Level *level, int depth) {
    while (depth_of(level) > depth) level = level->outer;
    return level;
}

static bool is_mutable(const Expr *e, const void *what) {
    (void)what;
    return e->kind == EXPR_VAR && e->var->kind == VAR_MUTABLE;
}

// The value changes only with iterators.
static bool is_fixed(const Expr *atom) {
    return !expr_reads_memory(atom) && !any_expr(atom, is_mutable, NULL);
}

static void add_sum(Search *s, LinearSum *sum, const Expr *e) {
    LinearSum own = linear_of(s->v->arena, e);
    sum->full |= own.full;
    linear_add_constant(sum, own.constant);
    for (int i = 0; i < own.count; i++) {
        Expr *atom = own.terms[i].atom;
        const LinearSum *let = atom->kind == EXPR_VAR ? map_get(s->lets, atom->var) : NULL;
        if (let && let->type == sum->type) linear_add_linear(sum, let, own.terms[i].factor);
        else linear_add_term(sum, atom, own.terms[i].factor);
        if (!is_fixed(atom)) sum->full = true;
    }
}

static LinearSum sum_of(Search *s, const Expr *e) {
    LinearSum sum = linear_new(e->type);
    add_sum(s, &sum, e);
    return sum;
}

typedef struct Deepest {
    const Search *search;
    int depth;
} Deepest;

static bool look_deeper(Visitor *visitor, Expr *e) {
    Deepest *deepest = visitor->user;
    int depth = e->kind == EXPR_VAR ? depth_of(map_get(deepest->search->levels, e->var)) : 0;
    if (depth > deepest->depth) deepest->depth = depth;
    return true;
}

// The number of levels that decide its value.
static int atom_depth(const Search *s, Expr *atom) {
    Deepest deepest = {s, 0};
    Visitor visitor = {.expr = look_deeper, .user = &deepest};
    visit_expr(&visitor, atom);
    return deepest.depth;
}

// ---- accesses ----
static void add_touch(Search *s, const Buf *buf, int count, Expr *const *indices, bool writes, Span loc) {
    if (!s->parallels) return;
    LinearSum *sums = NEW_ARRAY(s->v->arena, LinearSum, count + 1);
    for (int d = 0; d < count; d++) {
        sums[d] = sum_of(s, indices[d]);
        if (sums[d].full) return;
    }
    Touch touch = {buf_root(buf), s->level, sums, s->conditions, writes, loc};
    vec_push(s->v->arena, &s->touches, touch);
}

static bool add_loads(Visitor *visitor, Expr *e) {
    Search *s = visitor->user;
    bool select = e->kind == EXPR_SELECT;
    bool lazy = select || is_binary(e, BIN_LOGICAL_AND) || is_binary(e, BIN_LOGICAL_OR);
    if (e->kind == EXPR_LOAD) add_touch(s, e->load.buf, e->load.count, e->load.indices, false, e->loc);
    if (!lazy) return true;
    visit_expr(visitor, select ? e->select.condition : e->binary.a);
    s->conditions++;
    visit_expr(visitor, select ? e->select.yes : e->binary.b);
    if (select) visit_expr(visitor, e->select.no);
    s->conditions--;
    return false;
}

static void add_let(Search *s, const Var *var, const Expr *value) {
    map_put(s->levels, var, (void *)s->level);
    if (!type_is_int(var->type)) return;
    LinearSum sum = sum_of(s, value);
    bool simple = !sum.full;
    for (int i = 0; i < sum.count; i++) simple &= sum.terms[i].atom->kind == EXPR_VAR;
    if (simple) map_put(s->lets, var, arena_copy(s->v->arena, &sum, sizeof sum));
}

static void walk(Search *s, const Block *block);

static void set_values(Level *level, const Iter *iter) {
    int64_t first, step, trips = iter_count(iter);
    if (trips < 1 || !expr_const(iter->begin, &first) || !expr_const(iter->step, &step)) return;
    int64_t values[MOST_VALUES] = {first, first + step, first + (trips - 1) * step};
    level->count = trips < MOST_VALUES ? (int)trips : MOST_VALUES;
    memcpy(level->values, values, sizeof values);
}

static void enter(Search *s, const Stmt *loop, const Iter *iter) {
    Level *level = NEW(s->v->arena, Level);
    *level = (Level){s->level, iter->var, is_loop(loop, LOOP_PARALLEL), depth_of(s->level) + 1, s->conditions, 0, {0}};
    set_values(level, iter);
    map_put(s->levels, iter->var, level);
    s->level = level;
}

static void walk_loop(Search *s, const Stmt *stmt, const Block *body) {
    const Level *outer = s->level;
    Iter *iters;
    int breaks = block_breaks(body), parallel = is_loop(stmt, LOOP_PARALLEL);
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) enter(s, stmt, &iters[i]);
    s->conditions += breaks;
    s->parallels += parallel;
    walk(s, body);
    s->parallels -= parallel;
    s->conditions -= breaks;
    s->level = outer;
}

static void walk_if(Search *s, const Stmt *stmt) {
    int64_t holds = -1;
    value_known(s->v, stmt->if_.condition, &holds);
    s->conditions += holds == -1;
    if (holds != 0) walk(s, &stmt->if_.then);
    if (holds != 1) walk(s, &stmt->if_.otherwise);
    s->conditions -= holds == -1;
}

static void look_at(Search *s, const Stmt *stmt) {
    Visitor loads = {.expr = add_loads, .user = s};
    switch (stmt->kind) {
    case STMT_LET: add_let(s, stmt->let.var, stmt->let.value);   // fall through
    case STMT_VAR:
    case STMT_ASSIGN:
    case STMT_CALL: visit_stmt(&loads, (Stmt *)stmt); break;
    case STMT_STORE:
        visit_stmt(&loads, (Stmt *)stmt);
        add_touch(s, stmt->store.buf, stmt->store.count, stmt->store.indices, true, stmt->loc);
        break;
    case STMT_FOR: walk_loop(s, stmt, &stmt->loop.body); break;
    case STMT_GRID: walk_loop(s, stmt, &stmt->grid.body); break;
    case STMT_IF: walk_if(s, stmt); break;
    case STMT_WHILE:
        s->conditions++;
        walk(s, &stmt->while_.body);
        s->conditions--;
        break;
    case STMT_BLOCK: walk(s, &stmt->block); break;
    case STMT_ROLE: walk(s, &stmt->role.body); break;
    default: break;
    }
}

static void walk(Search *s, const Block *block) {
    FOR_EACH_ITEM (stmt, block) look_at(s, stmt);
}

// ---- examples ----
typedef struct Pair {
    Search *search;
    const Touch *touches[2];
    int shared, common;   // levels: around the outermost parallel loop that both are in; around both
    bool guarded;         // a condition stands around that loop
    int count;
    struct {
        const Level *level;
        int from, to;   // of which accesses it is the iterator
    } choices[MOST_LEVELS];
    int64_t at[2][MOST_LEVELS];   // the value of the iterator at that depth
} Pair;

// The iterator that the atom is, if it has values to try. Those around a condition need not all come there.
static const Level *tried(const Pair *p, const Expr *atom) {
    const Level *level = atom->kind == EXPR_VAR ? map_get(p->search->levels, atom->var) : NULL;
    bool known = level && level->var == atom->var && level->count > 0;
    return known && !(p->guarded && level->depth <= p->shared) ? level : NULL;
}

static bool add_symbols(const Pair *p, LinearSum *rest, const LinearSum *sum, int sign) {
    for (int i = 0; i < sum->count; i++) {
        Expr *atom = sum->terms[i].atom;
        if (tried(p, atom)) continue;
        if (atom_depth(p->search, atom) > p->shared) return false;
        linear_add_term(rest, atom, sign * sum->terms[i].factor);
    }
    return true;
}

// What is no iterator is the same in both indices.
static bool symbols_cancel(const Pair *p, const LinearSum *a, const LinearSum *b) {
    LinearSum rest = linear_new(a->type);
    return a->type == b->type && add_symbols(p, &rest, a, 1) && add_symbols(p, &rest, b, -1) && rest.count == 0;
}

static Int128 value_of(const Pair *p, int side, const LinearSum *sum) {
    Int128 value = sum->constant;
    for (int i = 0; i < sum->count; i++) {
        const Level *level = tried(p, sum->terms[i].atom);
        if (level) value += (Int128)sum->terms[i].factor * p->at[side][level->depth];
    }
    return value;
}

static bool iterations_differ(const Pair *p) {
    bool differ = false;
    for (int depth = p->shared + 1; depth <= p->common; depth++)
        differ |= level_at(p->touches[0]->level, depth)->parallel && p->at[0][depth] != p->at[1][depth];
    return differ;
}

static bool is_example(const Pair *p) {
    const Touch *a = p->touches[0], *b = p->touches[1];
    p->search->examples++;
    bool same = iterations_differ(p);
    for (int d = 0; same && d < a->buf->rank; d++)
        same = value_of(p, 0, &a->indices[d]) == value_of(p, 1, &b->indices[d]);
    return same;
}

static bool has_example(Pair *p, int n) {
    if (n == p->count) return is_example(p);
    const Level *level = p->choices[n].level;
    for (int i = 0; i < level->count && p->search->examples < MOST_EXAMPLES; i++) {
        for (int side = p->choices[n].from; side <= p->choices[n].to; side++)
            p->at[side][level->depth] = level->values[i];
        if (has_example(p, n + 1)) return true;
    }
    return false;
}

static bool add_choice(Pair *p, const Level *level, int from, int to) {
    if (p->count == MOST_LEVELS || level->depth >= MOST_LEVELS) return false;
    p->choices[p->count].level = level;
    p->choices[p->count].from = from;
    p->choices[p->count++].to = to;
    return true;
}

static bool choose_iterators(Pair *p) {
    bool fits = true;
    for (int side = 0; side < 2; side++)
        for (const Level *level = p->touches[side]->level; level; level = level->outer) {
            bool both = level->depth <= p->shared;
            if (level->count && !(both && (side || p->guarded))) fits &= add_choice(p, level, side, both ? 1 : side);
        }
    return fits;
}

static bool find_levels(Pair *p) {
    const Level *a = p->touches[0]->level, *b = p->touches[1]->level, *loop = NULL;
    a = level_at(a, depth_of(b));
    b = level_at(b, depth_of(a));
    while (a != b) a = a->outer, b = b->outer;
    for (const Level *level = a; level; level = level->outer) loop = level->parallel ? level : loop;
    if (!loop) return false;
    p->common = depth_of(a);
    p->shared = loop->depth - 1;
    p->guarded = loop->conditions > 0;
    return p->touches[0]->conditions == loop->conditions && p->touches[1]->conditions == loop->conditions;
}

static bool conflict(Search *s, const Touch *a, const Touch *b) {
    Pair pair = {.search = s, .touches = {a, b}};
    if (a->buf != b->buf || s->examples++ >= MOST_EXAMPLES) return false;
    if (!find_levels(&pair) || !choose_iterators(&pair)) return false;
    for (int d = 0; d < a->buf->rank; d++)
        if (!symbols_cancel(&pair, &a->indices[d], &b->indices[d])) return false;
    return has_example(&pair, 0);
}

// ---- reports ----
static void report(Verifier *v, const Touch *store, const Touch *other) {
    const char *why = other->writes ? "two of them store one element" : "one stores an element that another one reads";
    Diag *d = diag(v->sink, store->loc, T_IR_CONFLICT, store->buf->name, why);
    v->broken = true;
    if (other->loc.line != store->loc.line) diag_label(d, other->loc, other->writes ? "the other store" : "the read");
}

static void check_stored(Search *s, const Touch *store) {
    VEC_EACH (const Touch, other, &s->touches) {
        bool seen = other->writes && other < store;   // as a store of its own
        if (seen || !conflict(s, store, other)) continue;
        report(s->v, store, other);
        return;
    }
}

void check_conflicts(Verifier *v, const Func *kernel) {
    Search s = {.v = v, .lets = map_new(v->arena), .levels = map_new(v->arena)};
    walk(&s, &kernel->body);
    VEC_EACH (const Touch, touch, &s.touches) {
        if (touch->writes) check_stored(&s, touch);
    }
}
