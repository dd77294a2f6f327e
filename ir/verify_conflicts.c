// Rules 12 and 20, what iterations of a parallel loop do to each other, and what reads of a tensor and writes of
// another one do when the two are one: proven by an example.
//
// An example is a value for each iterator with which two accesses, by different iterations, have the same element. Each
// iterator takes its first, second or last value, or a constant of the indices; indices are sums of iterators, of integers
// computed of them (`i / 4`, `i ^ 1`), and of what both accesses have in common.
//
//     parallel (i in 32) {                       with i = 0 the let reads what is stored with i = 1
//         let next = s[i + 1];
//         s[i] = next;
//     }
//
// Iterators outside of the parallel loop have one value in both accesses, its own and those inside one in each. An
// access under a condition inside the loop proves nothing. The search ends after so many examples.
//
// Atomics, and loads and stores with a memory order, go with each other, but not with plain accesses. An early load
// goes with all.
//
// Of tensors that may be one (@alias), CTAs conflict as iterations do, and a read comes before the write of its
// element.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/query.h"
#include "ir/verify_impl.h"
#include <string.h>

enum {
    MOST_VALUES = 3,
    MOST_CONSTANTS = 4,
    MOST_LEVELS = 16,
    MOST_EXAMPLES = 1 << 20,
    MOST_DIMS = LAYOUT_MAX_RANK + 1
};

typedef struct Level {   // an iterator around an access
    const struct Level *outer;
    const Var *var;
    bool parallel, grid;
    int depth, conditions;   // around it
    int count;               // of values to try; 0: not known
    int64_t values[MOST_VALUES];
} Level;

typedef struct Touch {
    const Buf *buf;   // the storage's root
    const Level *level;
    const LinearSum *indices;
    int dims;                 // indices; of a peer's element the last one is the peer's rank
    const int64_t *extents;   // of an operand's region; NULL: an element
    int conditions, order;    // around it; of its statement in the text
    bool writes, atomic, reads_alias, transposed;
    const char *name;   // of the buffer itself
    Span loc;
} Touch;

typedef struct Search {
    Verifier *v;
    VEC(Touch) touches;
    Map *lets;     // Var -> LinearSum, of one that is a sum of variables
    Map *levels;   // Var -> Level: of an iterator its own, of any other let the one that it is bound in
    Map *shared;   // Buf: the written ones of tensors that may be one
    const Level *level;
    int parallels, conditions, order;   // around what is looked at; of the statement in the text
    bool element, early;                // the operation that is looked at; on an element
    int64_t examples;                   // tried so far
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
static void add_touch(Search *s, const Buf *buf, int count, Expr *const *indices, Touch touch) {
    if (!s->parallels && !map_has(s->shared, buf_root(buf))) return;
    LinearSum *sums = NEW_ARRAY(s->v->arena, LinearSum, count + 1);
    for (int d = 0; d < count; d++) {
        sums[d] = sum_of(s, indices[d]);
        if (sums[d].full) return;
    }
    touch.buf = buf_root(buf);
    touch.name = buf->name;
    touch.level = s->level;
    touch.indices = sums;
    touch.dims = count;
    touch.conditions = s->conditions;
    touch.order = s->order;
    touch.reads_alias = buf != touch.buf && buf->scope == SCOPE_GLOBAL;
    vec_push(s->v->arena, &s->touches, touch);
}

static void see_op(Search *s, OpId op, const Arg *args) {
    s->element = op_is(op, OP_CLASS_ELEMENT);
    s->early = op == OP_LOAD && strcmp(args[OPERAND_INDEX(LOAD, order)].name, "early") == 0;
}

static void add_region(Visitor *visitor, Region *region, const Operand *operand) {
    Search *s = visitor->user;
    if (operand->access == ACCESS_NAME || s->early) return;
    if (!s->element && !map_has(s->shared, buf_root(region->buf))) return;
    if (region->buf->im2col) return;   // has coordinates of its own
    Expr *starts[LAYOUT_MAX_RANK];
    int64_t *extents = NEW_ARRAY(s->v->arena, int64_t, region->count + 1);
    for (int d = 0; d < region->count; d++) {
        const RegionDim *dim = &region->dims[d];
        starts[d] = dim->start;
        extents[d] = 1;
        if (dim->extent && !expr_const(dim->extent, &extents[d])) extents[d] = dim->tile;
    }
    Touch touch = {.extents = extents, .transposed = region->transposed, .loc = region->loc};
    if (s->element) touch.extents = NULL, touch.atomic = true;
    touch.writes = operand->access != ACCESS_READ;
    add_touch(s, region->buf, region->count, starts, touch);
}

static void add_peer_store(Search *s, const Stmt *stmt) {
    const Region *x = ARG(stmt, PEER_STORE, x).region;
    Expr *indices[MOST_DIMS];
    for (int d = 0; d < x->count; d++) indices[d] = x->dims[d].start;
    indices[x->count] = ARG(stmt, PEER_STORE, rank).value;
    add_touch(s, x->buf, x->count + 1, indices, (Touch){.writes = true, .loc = stmt->loc});
}

static bool add_loads(Visitor *visitor, Expr *e) {
    Search *s = visitor->user;
    bool select = e->kind == EXPR_SELECT;
    bool lazy = select || is_binary(e, BIN_LOGICAL_AND) || is_binary(e, BIN_LOGICAL_OR);
    if (e->kind == EXPR_CALL && !op_is_pure(e->call.op)) see_op(s, e->call.op, e->call.args);
    if (e->kind == EXPR_LOAD) add_touch(s, e->load.buf, e->load.count, e->load.indices, (Touch){.loc = e->loc});
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
    if (trips < 0 && level->grid) trips = 2;   // at least: a grid of known size says so
    if (trips < 1 || !expr_const(iter->begin, &first) || !expr_const(iter->step, &step)) return;
    uint64_t at = (uint64_t)first, by = (uint64_t)step;   // the sums fit, their parts may not
    int64_t values[MOST_VALUES] = {first, (int64_t)(at + by), (int64_t)(at + (uint64_t)(trips - 1) * by)};
    level->count = trips < MOST_VALUES ? (int)trips : MOST_VALUES;
    memcpy(level->values, values, sizeof values);
}

static void enter(Search *s, const Stmt *loop, const Iter *iter) {
    Level *level = NEW(s->v->arena, Level);
    *level = (Level){.outer = s->level, .var = iter->var, .depth = depth_of(s->level) + 1, .conditions = s->conditions};
    level->parallel = is_loop(loop, LOOP_PARALLEL);
    level->grid = loop->kind == STMT_GRID;
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
    Visitor loads = {.expr = add_loads, .region = add_region, .user = s};
    s->order++;
    if (stmt->kind == STMT_CALL) see_op(s, stmt->call.op, stmt->call.args);
    if (is_call(stmt, OP_PEER_STORE)) add_peer_store(s, stmt);
    switch (stmt->kind) {
    case STMT_LET: add_let(s, stmt->let.var, stmt->let.value);   // fall through
    case STMT_VAR:
    case STMT_ASSIGN:
    case STMT_CALL: visit_stmt(&loads, (Stmt *)stmt); break;
    case STMT_STORE:
        visit_stmt(&loads, (Stmt *)stmt);
        add_touch(s, stmt->store.buf, stmt->store.count, stmt->store.indices,
                  (Touch){.writes = true, .loc = stmt->loc});
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
    default: break;
    }
}

static void walk(Search *s, const Block *block) {
    FOR_EACH_ITEM (stmt, block) look_at(s, stmt);
}

// ---- examples ----
typedef struct Choice {
    const Level *level;
    int from, to;   // of which accesses it is the iterator
    Int128 factors[MOST_DIMS];
} Choice;

typedef struct Pair {
    Search *search;
    const Touch *touches[2];
    int shared, common;   // levels: around the outermost parallel loop that both are in; around both
    bool guarded;         // a condition stands around that loop
    bool one;             // tensors that may be one
    const char *why;      // they conflict
    int count;
    Choice choices[MOST_LEVELS];
    // In each dim, from the index of the first to that of the other: a constant and the iterators by their factors.
    Int128 constants[MOST_DIMS];
    int64_t at[2][MOST_LEVELS];   // the value of the iterator at that depth
    int constant_count;
    int64_t constants_seen[MOST_CONSTANTS];   // in what is computed of iterators: values worth a try
    bool computes, unknown;                   // some index is computed of iterators; in this example it has no value
} Pair;

// The iterator that the atom is, if it has values to try. Those around a condition need not all come there.
static const Level *tried(const Pair *p, const Expr *atom) {
    const Level *level = atom->kind == EXPR_VAR ? map_get(p->search->levels, atom->var) : NULL;
    bool known = level && level->var == atom->var && level->count > 0;
    return known && !(p->guarded && level->depth <= p->shared) ? level : NULL;
}

// ---- integers computed of iterators ----

static bool is_computing(BinaryOp op) {
    switch (op) {
    case BIN_ADD:
    case BIN_SUB:
    case BIN_MUL:
    case BIN_DIV:
    case BIN_MOD:
    case BIN_AND:
    case BIN_OR:
    case BIN_XOR:
    case BIN_SHL:
    case BIN_SHR: return true;
    default: return false;
    }
}

// Whether it is made of iterators with values to try and constants alone.
static bool is_computed(const Pair *p, const Expr *e) {
    if (!type_is_int(e->type)) return false;
    switch (e->kind) {
    case EXPR_INT: return true;
    case EXPR_VAR: return tried(p, e) != NULL;
    case EXPR_CAST: return is_computed(p, e->operand);
    case EXPR_BINARY: return is_computing(e->binary.op) && is_computed(p, e->binary.a) && is_computed(p, e->binary.b);
    default: return false;
    }
}

// Operands are not negative but for sums and products, where all languages agree.
static bool compute(BinaryOp op, Int128 a, Int128 b, Int128 *out) {
    if (op == BIN_ADD) return *out = a + b, true;
    if (op == BIN_SUB) return *out = a - b, true;
    if (op == BIN_MUL) return *out = a * b, true;
    if (a < 0 || b < 0) return false;
    switch (op) {
    case BIN_DIV: return b > 0 ? *out = a / b, true : false;
    case BIN_MOD: return b > 0 ? *out = a % b, true : false;
    case BIN_AND: return *out = a & b, true;
    case BIN_OR: return *out = a | b, true;
    case BIN_XOR: return *out = a ^ b, true;
    case BIN_SHL: return b < 32 ? *out = a << b, true : false;
    default: return b < 64 ? *out = a >> b, true : false;
    }
}

// The value of a computed expression in the example; false: it leaves its type, or the language leaves it open.
static bool value_of(const Pair *p, int side, const Expr *e, Int128 *out) {
    Int128 a, b;
    if (e->kind == EXPR_INT) *out = e->integer;
    else if (e->kind == EXPR_VAR) *out = p->at[side][tried(p, e)->depth];
    else if (e->kind == EXPR_CAST) {
        if (!value_of(p, side, e->operand, out)) return false;
    } else if (!value_of(p, side, e->binary.a, &a) || !value_of(p, side, e->binary.b, &b) ||
               !compute(e->binary.op, a, b, out)) {
        return false;
    }
    Range range = type_range(e->type);
    return *out >= range.low && *out <= range.high;
}

static bool see_constant(Visitor *visitor, Expr *e) {
    Pair *p = visitor->user;
    if (e->kind == EXPR_INT && p->constant_count < MOST_CONSTANTS) p->constants_seen[p->constant_count++] = e->integer;
    return true;
}

static bool is_computed_atom(const Pair *p, const Expr *atom) {
    return !tried(p, atom) && is_computed(p, atom);
}

static void see_computed(Pair *p, const LinearSum *sum) {
    Visitor visitor = {.expr = see_constant, .user = p};
    for (int i = 0; i < sum->count; i++) {
        if (!is_computed_atom(p, sum->terms[i].atom)) continue;
        p->computes = true;
        visit_expr(&visitor, sum->terms[i].atom);
    }
}

static Int128 computed_sum(Pair *p, int side, int d) {
    const LinearSum *sum = &p->touches[side]->indices[d];
    Int128 all = 0, value;
    for (int i = 0; i < sum->count; i++) {
        if (!is_computed_atom(p, sum->terms[i].atom)) continue;
        if (value_of(p, side, sum->terms[i].atom, &value)) all += value * sum->terms[i].factor;
        else p->unknown = true;
    }
    return all;
}

// ---- distances ----

static bool add_symbols(const Pair *p, LinearSum *rest, const LinearSum *sum, int sign) {
    for (int i = 0; i < sum->count; i++) {
        Expr *atom = sum->terms[i].atom;
        if (tried(p, atom) || is_computed(p, atom)) continue;
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

static void add_factor(Pair *p, int side, const Level *level, int d, Int128 factor) {
    for (Choice *choice = p->choices; choice < p->choices + p->count; choice++)
        if (choice->level == level && choice->from <= side && side <= choice->to) choice->factors[d] += factor;
}

static void add_index(Pair *p, int side, int d, int sign) {
    const LinearSum *sum = &p->touches[side]->indices[d];
    p->constants[d] += sign * (Int128)sum->constant;
    for (int i = 0; i < sum->count; i++) {
        const Level *level = tried(p, sum->terms[i].atom);
        if (level) add_factor(p, side, level, d, sign * (Int128)sum->terms[i].factor);
    }
}

// Whether the distance of both indices is known in the dim.
static bool find_distance(Pair *p, int d) {
    if (!symbols_cancel(p, &p->touches[0]->indices[d], &p->touches[1]->indices[d])) return false;
    add_index(p, 0, d, -1);
    add_index(p, 1, d, 1);
    see_computed(p, &p->touches[0]->indices[d]);
    see_computed(p, &p->touches[1]->indices[d]);
    return true;
}

static bool iterations_differ(const Pair *p) {
    bool differ = false;
    for (int depth = p->shared + 1; depth <= p->common; depth++)
        differ |= level_at(p->touches[0]->level, depth)->parallel && p->at[0][depth] != p->at[1][depth];
    return differ;
}

// In a dim: from the first element of one to that of the other.
static Int128 distance(Pair *p, int d) {
    Int128 sum = p->constants[d];
    if (p->computes) sum += computed_sum(p, 1, d) - computed_sum(p, 0, d);
    for (const Choice *choice = p->choices; choice < p->choices + p->count; choice++)
        sum += choice->factors[d] * p->at[choice->from][choice->level->depth];
    return sum;
}

static int64_t extent_of(const Touch *touch, int d) {
    return touch->extents ? touch->extents[d] : 1;
}

static bool elements_meet(Pair *p) {
    bool meet = true;
    p->unknown = false;
    for (int d = 0; meet && d < p->touches[0]->dims; d++)
        meet = distance(p, d) < extent_of(p->touches[0], d) && -distance(p, d) < extent_of(p->touches[1], d);
    return meet && !p->unknown;
}

// An operation reads all before it writes, but its threads do not wait for each other.
static bool moves(Pair *p) {
    bool moved = p->touches[0]->transposed != p->touches[1]->transposed;
    for (int d = 0; d < p->touches[0]->dims; d++) moved |= distance(p, d) != 0;
    return moved;
}

// What is wrong with a read of an element and a write of it, here of one tensor.
static const char *wrong_order(Pair *p) {
    static const char *const late = "this reads an element after it is written";
    for (int depth = 1; depth <= p->common; depth++) {
        const Level *level = level_at(p->touches[0]->level, depth);
        if (p->at[0][depth] == p->at[1][depth]) continue;
        if (level->grid) return "another CTA writes an element that this reads";
        if (level->parallel) return "another iteration writes an element that this reads";
        return p->at[1][depth] < p->at[0][depth] ? late : NULL;
    }
    if (p->touches[1]->order < p->touches[0]->order) return late;
    bool within = p->touches[1]->order == p->touches[0]->order && p->touches[0]->extents && moves(p);
    return within ? "this operation writes elements at another place than it reads them" : NULL;
}

static bool is_example(Pair *p) {
    p->search->examples++;
    if (!p->one) return iterations_differ(p) && elements_meet(p);
    p->why = elements_meet(p) ? wrong_order(p) : NULL;
    return p->why != NULL;
}

// The value of an iterator to try: its own ones, then constants among its values.
static bool try_value(const Pair *p, const Level *level, int i, int64_t *value) {
    if (i < level->count) return *value = level->values[i], true;
    int64_t first = level->values[0], step = level->count > 1 ? level->values[1] - first : 1;
    int64_t last = level->values[level->count - 1];
    *value = p->constants_seen[i - level->count];
    return step > 0 && *value > first && *value < last && (*value - first) % step == 0;
}

static bool has_example(Pair *p, int n) {
    if (n == p->count) return is_example(p);
    const Level *level = p->choices[n].level;
    for (int i = 0; i < level->count + p->constant_count && p->search->examples < MOST_EXAMPLES; i++) {
        int64_t value;
        if (!try_value(p, level, i, &value)) continue;
        for (int side = p->choices[n].from; side <= p->choices[n].to; side++) p->at[side][level->depth] = value;
        if (has_example(p, n + 1)) return true;
    }
    return false;
}

static bool add_choice(Pair *p, const Level *level, int from, int to) {
    if (p->count == MOST_LEVELS || level->depth >= MOST_LEVELS) return false;
    p->choices[p->count++] = (Choice){.level = level, .from = from, .to = to};
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

static const Level *common_level(const Pair *p) {
    const Level *a = p->touches[0]->level, *b = p->touches[1]->level;
    a = level_at(a, depth_of(b));
    b = level_at(b, depth_of(a));
    while (a != b) a = a->outer, b = b->outer;
    return a;
}

// A pass may have put into it what a condition or bound around it says, so it proves nothing unless it is reached.
static bool may_be_folded(const Pair *p, const Level *level, int conditions) {
    bool uncertain = conditions > 0;
    for (; level; level = level->outer) uncertain |= level->count == 0;
    return uncertain && !p->search->v->written;
}

static bool find_levels(Pair *p) {
    const Level *loop = NULL, *common = common_level(p);
    p->common = depth_of(common);
    for (int i = 0; i < 2; i++)
        if (may_be_folded(p, p->touches[i]->level, p->touches[i]->conditions)) return false;
    if (p->one) return true;
    for (const Level *level = common; level; level = level->outer) loop = level->parallel ? level : loop;
    if (!loop) return false;
    p->shared = loop->depth - 1;
    p->guarded = loop->conditions > 0;
    return p->touches[0]->conditions == loop->conditions && p->touches[1]->conditions == loop->conditions;
}

static bool conflict(Pair *p) {
    const Touch *a = p->touches[0], *b = p->touches[1];
    if (a->buf != b->buf || a->dims != b->dims || p->search->examples++ >= MOST_EXAMPLES) return false;
    if (!find_levels(p) || !choose_iterators(p)) return false;
    for (int d = 0; d < a->dims; d++)
        if (!find_distance(p, d)) return false;
    return has_example(p, 0);
}

// ---- reports ----
static void report(Verifier *v, const Touch *store, const Touch *other) {
    const char *why = other->writes ? "two of them store one element" : "one stores an element that another one reads";
    const char *label = other->writes ? "the other store" : "the read";
    if (store->atomic) why = "one updates an element atomically, and another one accesses it without";
    if (other->atomic) why = "one stores an element that another one accesses atomically", label = "the atomic access";
    Diag *d = diag(v->sink, store->loc, T_IR_CONFLICT, store->buf->name, why);
    v->broken = true;
    if (other->loc.line != store->loc.line) diag_label(d, other->loc, "%s", label);
}

// The outermost parallel loop around an access; NULL: none.
static const Level *loop_of(const Touch *touch) {
    const Level *loop = NULL;
    for (const Level *level = touch->level; level; level = level->outer) loop = level->parallel ? level : loop;
    return loop;
}

// Among the touches from `first` on, those of its loop.
static void check_stored(Search *s, const Touch *store, const Touch *first, const Touch *end) {
    for (const Touch *other = first; other < end; other++) {
        bool seen = other->writes && other < store;   // as a store of its own
        Pair pair = {.search = s, .touches = {store, other}};
        if (seen || other->extents || (store->atomic && other->atomic) || !conflict(&pair)) continue;
        report(s->v, store, other);
        return;
    }
}

static void check_read(Search *s, const Touch *read) {
    VEC_EACH (const Touch, write, &s->touches) {
        Pair pair = {.search = s, .touches = {read, write}, .one = true};
        if (!write->writes || !conflict(&pair)) continue;
        Diag *d = diag(s->v->sink, read->loc, T_IR_ALIAS, read->name, write->buf->name, pair.why);
        diag_label(d, write->loc, "the write");
        s->v->broken = true;
        return;
    }
}

static void find_aliases(Search *s, const Func *func) {
    VEC_EACH (const Param, param, &func->params) {
        const Buf *buf = param->buf;
        if (buf && buf->alias_of) map_put(s->shared, buf->alias_of, (void *)buf);
    }
}

void check_conflicts(Verifier *v, const Func *kernel) {
    Search s = {.v = v, .lets = map_new(v->arena), .levels = map_new(v->arena), .shared = map_new(v->arena)};
    find_aliases(&s, kernel);
    walk(&s, &kernel->body);
    if (!s.touches.count) return;
    const Touch *all = s.touches.items, *end;
    for (const Touch *first = all; first < all + s.touches.count; first = end) {   // a loop's are next to each other
        for (end = first + 1; end < all + s.touches.count && loop_of(end) == loop_of(first);) end++;
        for (const Touch *touch = first; touch < end && loop_of(first); touch++)
            if (touch->writes && !touch->extents) check_stored(&s, touch, first, end);
    }
    VEC_EACH (const Touch, touch, &s.touches) {
        if (touch->reads_alias && !v->broken) check_read(&s, touch);
    }
}

// ---- programs ----
static void note_writes(Map *written, const Stmt *stmt) {
    FillOp fill;
    if (match_fill(stmt, &fill)) map_put(written, fill.dst->buf, written);
    for (int i = 0; stmt->kind == STMT_LAUNCH && i < stmt->launch.count; i++) {
        const Param *param = stmt->launch.func ? func_argument(stmt->launch.func, i) : NULL;
        const Region *region = stmt->launch.args[i].region;
        if (param && param->buf && region && param->buf->mode != MODE_IN) map_put(written, region->buf, written);
    }
}

// A tensor that a program writes is not independent of the kernels before: the loop around a launch may launch it again.
static void check_launched(Verifier *v, const Stmt *launch, const Map *written) {
    for (int i = 0; i < launch->launch.count; i++) {
        const Param *param = launch->launch.func ? func_argument(launch->launch.func, i) : NULL;
        const Buf *buf = launch->launch.args[i].region ? launch->launch.args[i].region->buf : NULL;
        if (param && buf && attr_get(param->attrs, ATTR_INDEPENDENT) && map_has(written, buf))
            REPORT(v, launch->loc, T_INDEPENDENT, buf->name, "this program writes it");
    }
}

void check_launches(Verifier *v, const Func *program) {
    Map *written = map_new(v->arena);
    FOR_EACH_STMT (stmt, &program->body) {
        for (int i = 0; stmt->kind == STMT_LAUNCH && i < stmt->launch.count; i++) {
            const Buf *buf = stmt->launch.args[i].region ? stmt->launch.args[i].region->buf : NULL;
            if (!buf || !buf->alias_of || !map_has(written, buf->alias_of)) continue;
            REPORT(v, stmt->loc, T_IR_ALIAS, buf->name, buf->alias_of->name,
                   "this launch reads it after it is written");
        }
        note_writes(written, stmt);
    }
    FOR_EACH_STMT (stmt, &program->body)
        if (stmt->kind == STMT_LAUNCH) check_launched(v, stmt, written);
}
