// Steps in which a mask leaves a warpgroup nothing: it does not compute them. All warpgroups of a cooperative kernel have the tile's
// steps; but below a diagonal the first rows are through before the last ones.
//
//     for (n in 1 .. N) {                        let steps = max(1, min(N, (m * 192 + warpgroup(3) * 64 + 63) / 80 + 1))
//         wait(Ks_full)                          for (n in 1 .. steps) { .. }
//         gemm(Qs, Ks.T, s)                      gemm(p, Vs, o)
//         gemm(p, Vs, o)                         arrive(Vs_empty)
//         arrive(Ks_empty)                       for (n in steps .. N) {
//         parallel (i, j)                =>          wait(Ks_full)
//             if (n * 80 + j > m * 192 + i)          wait(Vs_full)
//                 s[i, j] = -inf                     arrive(Ks_empty)
//         ..  p, o                                   arrive(Vs_empty)
//         arrive(Vs_empty)                       }
//     }
//     gemm(p, Vs, o)
//     arrive(Vs_empty)
//
// The number of a warpgroup's steps follows from a comparison of the mask that rises with the step: it is where the comparison holds
// for the warpgroup's rows and all columns. Where warpgroups do not compute they wait and arrive as the others do, so that slots and
// ordered sections stay in step.
//
// Such a step must leave nothing behind. That is found by executing its statements on what is known of their values if all elements of
// the masked fragment are -inf: maxima keep their value, exponentials are 0, factors 1, sums and products stay as they are. (Products
// of 0 and a value of a tile are 0: a tile with infinities or NaN gives NaN where the step is computed.)
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/tile_loop.h"
#include "passes/specialize/emit_roles.h"
#include <math.h>

// ---- values of a fragment's elements, in a step whose masked fragment is -inf ----

typedef enum { VALUE_ANY, VALUE_SAME, VALUE_LOW, VALUE_ZERO, VALUE_ONE } ValueKind;
typedef struct Value {
    ValueKind kind;
    const Buf *buf;   // SAME: the value that this fragment had before the step
} Value;

typedef struct State {
    const Buf *buf;
    Value value;
} State;

typedef struct Step {
    Arena *arena;
    const Block *role;   // all of the role's statements; and the kernel's, where scalars come from
    const Func *kernel;
    const Block *kernel_body;
    const Block *block;   // of the loop
    const Stmt *loop;
    const Stmt *mask;
    const Map *consumes;        // arrivals
    VEC(State) states;          // of fragments that the step has written, or declared
    Map *carried;               // fragments whose value from before the step it may read
    VEC(const Buf *) pending;   // left operands of products that belong to the step before
} Step;

static const Value any_value = {VALUE_ANY, NULL}, low_value = {VALUE_LOW, NULL}, zero_value = {VALUE_ZERO, NULL},
                   one_value = {VALUE_ONE, NULL};

static State *state_of(Step *step, const Buf *buf) {
    VEC_EACH (State, state, &step->states)
        if (state->buf == buf) return state;
    return NULL;
}

static Value value_of(Step *step, const Buf *buf) {
    const State *state = state_of(step, buf);
    if (!state) map_put(step->carried, buf, (void *)buf);
    return state ? state->value : (Value){VALUE_SAME, buf};
}

static void set_value(Step *step, const Buf *buf, Value value) {
    State *state = state_of(step, buf);
    if (state) state->value = value;
    else vec_push(step->arena, &step->states, ((State){buf, value}));
}

static bool is_same(Value a, Value b) {
    return a.kind == b.kind && a.kind != VALUE_ANY && a.buf == b.buf;
}

static Value join(Value a, Value b) {
    return is_same(a, b) ? a : any_value;
}

// ---- scalars ----

static const Expr *let_of(const Block *block, const Var *var) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_LET && stmt->let.var == var) return stmt->let.value;
    return NULL;
}

static bool assumes_positive(const Expr *assumed, const Expr *expr) {
    if (assumed->kind != EXPR_BINARY) return false;
    const Expr *a = assumed->binary.a, *b = assumed->binary.b;
    if (assumed->binary.op == BIN_LOGICAL_AND) return assumes_positive(a, expr) || assumes_positive(b, expr);
    bool zero = b->kind == EXPR_FLOAT ? b->real >= 0 : false;
    return assumed->binary.op == BIN_GT && zero && expr_equal(a, expr);
}

static bool is_positive(const Step *step, const Expr *expr) {
    if (expr->kind == EXPR_FLOAT) return expr->real > 0;
    if (expr->kind == EXPR_CAST) return type_is_float(expr->operand->type) && is_positive(step, expr->operand);
    if (is_binary(expr, BIN_MUL) || is_binary(expr, BIN_DIV))
        return is_positive(step, expr->binary.a) && is_positive(step, expr->binary.b);
    if (expr->kind != EXPR_VAR) return false;
    const Expr *value = let_of(step->role, expr->var);
    if (!value) value = let_of(step->kernel_body, expr->var);
    if (value) return is_positive(step, value);
    FOR_EACH_ITEM (stmt, &step->kernel->body)
        if (stmt->kind == STMT_ASSUME && assumes_positive(stmt->assume, expr)) return true;
    FOR_EACH_ITEM (stmt, &func_grid(step->kernel)->grid.body)
        if (stmt->kind == STMT_ASSUME && assumes_positive(stmt->assume, expr)) return true;
    return step->kernel->when && assumes_positive(step->kernel->when, expr);
}

static bool is_infinite(const Expr *expr) {
    if (expr->kind == EXPR_UNARY && expr->unary.op == UNARY_NEG)
        return expr->unary.a->kind == EXPR_FLOAT && isinf(expr->unary.a->real) && expr->unary.a->real > 0;
    return expr->kind == EXPR_FLOAT && isinf(expr->real) && expr->real < 0;
}

// ---- expressions ----

static bool value_is_number(const Expr *expr) {
    if (expr->kind == EXPR_UNARY && expr->unary.op == UNARY_NEG) expr = expr->unary.a;
    return expr->kind == EXPR_FLOAT;
}

static bool has_infinity(const Expr *expr, const void *user) {
    (void)user;
    return expr->kind == EXPR_FLOAT && !isfinite(expr->real);
}

// It is filled with a finite number, and then takes maxima and its own earlier values.
static bool begins_finite(const Step *step, const Buf *buf) {
    bool filled = false;
    FOR_EACH_STMT (stmt, step->role) {
        bool leaf = stmt->kind == STMT_STORE || stmt->kind == STMT_CALL;
        if (!leaf || !stmt_writes(step->arena, stmt, buf)) continue;
        bool fill = is_call(stmt, OP_FILL),
             keeps = is_call(stmt, OP_REDUCE_MAX) && expr_is_int(reduce_of(stmt).accumulate, 1);
        if (!fill && !keeps && stmt->kind != STMT_STORE) return false;
        if (!keeps && stmt_any_expr(stmt, has_infinity, NULL)) return false;
        filled |= fill && value_is_number(fill_of(stmt).value);
    }
    return filled;
}

static bool is_unbounded(const Expr *expr, const void *user) {
    if (expr->kind != EXPR_LOAD) return false;
    if (expr->load.buf->scope != SCOPE_FRAGMENT) return true;
    Step *step = (Step *)user;
    Value value = value_of(step, expr->load.buf);
    return value.kind == VALUE_ANY || value.kind == VALUE_LOW ||
           (value.kind == VALUE_SAME && !begins_finite(step, value.buf));
}

static bool is_finite(Step *step, const Expr *expr) {
    return !any_expr(expr, is_unbounded, step);
}

// In another type. Rounded, it is another number, and 8-bit floats need not have infinities.
static Value converted(Value value, Type from, Type to) {
    if (!type_is_float(from) || !type_is_float(to)) return any_value;
    bool narrower = type_bits(to) < type_bits(from), small = type_bits(to) < 16;
    return (narrower && value.kind == VALUE_SAME) || (small && value.kind == VALUE_LOW) ? any_value : value;
}

static Value value_of_expr(Step *step, const Expr *expr);

static Value product(Step *step, const Expr *a, const Expr *b) {
    Value x = value_of_expr(step, a), y = value_of_expr(step, b);
    if (x.kind == VALUE_ONE) return y;
    if (y.kind == VALUE_ONE) return x;
    bool above = x.kind == VALUE_ANY ? is_positive(step, a) : y.kind == VALUE_ANY && is_positive(step, b);
    Value other = x.kind == VALUE_ANY ? y : x;
    return above && (other.kind == VALUE_LOW || other.kind == VALUE_ZERO) ? other : any_value;
}

static Value sum(Step *step, Value x, const Expr *b) {
    Value y = value_of_expr(step, b);
    if (x.kind == VALUE_ZERO) return y;
    if (y.kind == VALUE_ZERO) return x;
    return x.kind == VALUE_LOW && is_finite(step, b) ? x : any_value;
}

static Value difference(Step *step, const Expr *a, const Expr *b) {
    Value x = value_of_expr(step, a), y = value_of_expr(step, b);
    if (is_same(x, y) && x.kind != VALUE_LOW) return zero_value;
    if (y.kind == VALUE_ZERO) return x;
    return x.kind == VALUE_LOW && is_finite(step, b) ? x : any_value;
}

// a * b + c. Of a * b - y * b with a and y alike only rounding is left, which the rescale would multiply by.
static Value value_of_fma(Step *step, const Expr *a, const Expr *b, const Expr *c) {
    const Expr *other =
        c->kind == EXPR_UNARY && c->unary.op == UNARY_NEG && is_binary(c->unary.a, BIN_MUL) ? c->unary.a : NULL;
    if (other && expr_equal(other->binary.b, b) &&
        is_same(value_of_expr(step, a), value_of_expr(step, other->binary.a)) &&
        value_of_expr(step, a).kind == VALUE_SAME)
        return zero_value;
    return sum(step, product(step, a, b), c);
}

static Value value_of_call(Step *step, const Expr *expr) {
    const Arg *args = expr->call.args;
    Value x = expr->call.count > 0 && args[0].value ? value_of_expr(step, args[0].value) : any_value;
    switch (expr->call.op) {
    case OP_EXP:
    case OP_EXP2: return x.kind == VALUE_LOW ? zero_value : x.kind == VALUE_ZERO ? one_value : any_value;
    case OP_MAX: {
        Value y = value_of_expr(step, args[1].value);
        return x.kind == VALUE_LOW ? y : y.kind == VALUE_LOW ? x : join(x, y);
    }
    case OP_FMA: return value_of_fma(step, args[0].value, args[1].value, args[2].value);
    default: return any_value;
    }
}

static Value value_of_number(const Expr *expr) {
    if (is_infinite(expr)) return low_value;
    if (expr->kind != EXPR_FLOAT) return any_value;
    return expr->real == 0 ? zero_value : expr->real == 1 ? one_value : any_value;
}

static Value value_of_expr(Step *step, const Expr *expr) {
    switch (expr->kind) {
    case EXPR_LOAD: return expr->load.buf->scope == SCOPE_FRAGMENT ? value_of(step, expr->load.buf) : any_value;
    case EXPR_CAST: return converted(value_of_expr(step, expr->operand), expr->operand->type, expr->type);
    case EXPR_SELECT: return join(value_of_expr(step, expr->select.yes), value_of_expr(step, expr->select.no));
    case EXPR_CALL: return value_of_call(step, expr);
    case EXPR_BINARY:
        if (!type_is_float(expr->type)) return any_value;
        if (expr->binary.op == BIN_MUL) return product(step, expr->binary.a, expr->binary.b);
        if (expr->binary.op == BIN_SUB) return difference(step, expr->binary.a, expr->binary.b);
        if (expr->binary.op == BIN_ADD) return sum(step, value_of_expr(step, expr->binary.a), expr->binary.b);
        return any_value;
    default: return value_of_number(expr);
    }
}

// ---- statements ----

static bool is_asked(const Expr *expr, const void *buf) {
    return is_expr_call(expr, OP_ANY) && expr->call.args[0].region->buf == buf;
}

static bool covers(const Stmt *loop, const Buf *buf) {
    for (int d = 0; d < buf->rank; d++)
        if (!iter_is_plain(&loop->loop.iters[d]) || !expr_is_int(loop->loop.iters[d].end, buf_extent(buf, d)))
            return false;
    return true;
}

// `always`: whatever the conditions around the store.
static void store_values(Step *step, const Stmt *loop, const Block *body, bool always) {
    FOR_EACH_ITEM (stmt, body) {
        if (stmt->kind == STMT_STORE) {
            const Buf *buf = stmt->store.buf;
            Value value = value_of_expr(step, stmt->store.value);
            set_value(step, buf, always && covers(loop, buf) ? value : join(value_of(step, buf), value));
        }
        FOR_EACH_BODY (inner, stmt) store_values(step, loop, inner, false);
    }
}

static void reduce_values(Step *step, const Stmt *stmt) {
    ReduceOp reduce = reduce_of(stmt);
    Value from = value_of(step, reduce.src->buf);
    bool neutral =
        is_call(stmt, OP_REDUCE_MAX) ? from.kind == VALUE_LOW : is_call(stmt, OP_REDUCE_SUM) && from.kind == VALUE_ZERO;
    bool adds = expr_is_int(reduce.accumulate, 1);
    Value to = adds ? value_of(step, reduce.dst->buf) : from;
    set_value(step, reduce.dst->buf, neutral ? to : any_value);
}

static void multiply_values(Step *step, const Stmt *stmt) {
    GemmOp gemm = gemm_of(stmt);
    Value left = gemm.a->buf->scope == SCOPE_FRAGMENT ? value_of(step, gemm.a->buf) : any_value;
    bool adds = gemm_adds(&gemm);
    Value to = adds ? value_of(step, gemm.acc->buf) : any_value;
    bool before = adds && left.kind == VALUE_SAME && left.buf == gemm.a->buf;
    if (before) vec_push(step->arena, &step->pending, gemm.a->buf);
    set_value(step, gemm.acc->buf, before || left.kind == VALUE_ZERO ? to : any_value);
}

static bool has_whole_fragments(const Stmt *call) {
    for (int i = 0; i < call->call.count; i++) {
        const Region *region = call_region(call, i);
        if (region && region->buf->scope == SCOPE_FRAGMENT && !region_is_whole(region)) return false;
    }
    return true;
}

// Statements of threads on fragments, which a warpgroup may leave out.
static bool computes(const Stmt *stmt) {
    if (is_call(stmt, OP_WGMMA_WAIT)) return true;
    if (stmt->kind == STMT_DECL) return stmt->decl->scope == SCOPE_FRAGMENT;
    if (stmt->kind == STMT_ASSUME) return true;
    if (stmt->kind == STMT_LET) return expr_is_pure(stmt->let.value);
    bool fills = is_call(stmt, OP_FILL) && fill_of(stmt).dst->buf->scope == SCOPE_FRAGMENT;
    if (fills || is_call(stmt, OP_GEMM) || is_reduction(stmt) || is_fragment_copy(stmt))
        return has_whole_fragments(stmt);
    if (!is_loop(stmt, LOOP_PARALLEL)) return false;
    FOR_EACH_STMT (below, &stmt->loop.body) {
        bool fits = below->kind == STMT_IF || below->kind == STMT_BLOCK || below->kind == STMT_LET;
        if (!fits && !(below->kind == STMT_STORE && below->store.buf->scope == SCOPE_FRAGMENT)) return false;
    }
    return true;
}

// Those that slots and ordered sections need: waits, and arrivals, which get their counters later.
static bool keeps_pace(const Map *consumes, const Stmt *stmt) {
    return is_call(stmt, OP_MBARRIER_WAIT) || is_call(stmt, OP_ORDER_ACQUIRE) || is_call(stmt, OP_ORDER_RELEASE) ||
           map_has(consumes, stmt);
}

static void execute(Step *step, const Stmt *stmt) {
    if (stmt->kind == STMT_DECL) set_value(step, stmt->decl, any_value);
    else if (is_call(stmt, OP_FILL)) set_value(step, fill_of(stmt).dst->buf, value_of_number(fill_of(stmt).value));
    else if (is_call(stmt, OP_GEMM)) multiply_values(step, stmt);
    else if (is_reduction(stmt)) reduce_values(step, stmt);
    else if (is_fragment_copy(stmt))
        set_value(step, copy_of(stmt).dst->buf,
                  converted(value_of(step, copy_of(stmt).src->buf), copy_of(stmt).src->buf->type,
                            copy_of(stmt).dst->buf->type));
    else if (is_loop(stmt, LOOP_PARALLEL)) store_values(step, stmt, &stmt->loop.body, true);
}

static bool is_pending(const Step *step, const Buf *buf) {
    VEC_EACH_PTR (const Buf, each, &step->pending)
        if (each == buf) return true;
    return false;
}

static bool multiplies(const Stmt *stmt, const Buf *left) {
    return is_call(stmt, OP_GEMM) && gemm_of(stmt).a->buf == left;
}

// What a step hands to the next one is read by products alone, as their left operand.
static bool is_operand_alone(const Step *step, const Buf *buf) {
    FOR_EACH_STMT (stmt, step->role) {
        if (is_loop(stmt, LOOP_PARALLEL)) {
            if (block_loads(&stmt->loop.body, buf)) return false;
            SKIP_BODY(stmt);
        }
        if (stmt->kind != STMT_CALL || multiplies(stmt, buf)) continue;
        FOR_EACH_EFFECT (effect, step->arena, stmt)
            if (effect->buf == buf && effect->access != ACCESS_WRITE) return false;
    }
    return !block_any_expr(step->role, is_asked, buf);
}

static bool leaves_nothing(Step *step) {
    FOR_EACH_ITEM (stmt, &step->loop->loop.body) {
        if (keeps_pace(step->consumes, stmt)) continue;
        if (!computes(stmt)) return false;
        execute(step, stmt);
        if (stmt != step->mask) continue;
        FOR_EACH_STMT_IN (store, stmt)
            if (store->kind == STMT_STORE) set_value(step, store->store.buf, low_value);
    }
    VEC_EACH (const State, state, &step->states) {
        bool same = state->value.kind == VALUE_SAME && state->value.buf == state->buf;
        if (same || is_pending(step, state->buf)) continue;
        if (map_has(step->carried, state->buf) || is_read_behind(step->arena, step->role, step->loop, state->buf))
            return false;
    }
    VEC_EACH_PTR (const Buf, buf, &step->pending)
        if (value_of(step, buf).kind != VALUE_ZERO || !is_operand_alone(step, buf)) return false;
    return true;
}

// ---- the mask ----

typedef struct Masking {
    Arena *arena;
    const Stmt *loop, *mask;
    Subst *lets;    // of the loop's body
    Map *bound;     // names that the body binds
    int64_t rows;   // of a warpgroup
    Expr *warpgroup;
} Masking;

// The step from which on `less < more` (`equal`: or equal) holds for all elements of the warpgroup; NULL: unknown.
static Expr *first_of(Masking *m, Expr *less, Expr *more, bool equal) {
    Arena *a = m->arena;
    const Iter *step = &m->loop->loop.iters[0], *row = &m->mask->loop.iters[0], *column = &m->mask->loop.iters[1];
    less = subst_expr(m->lets, e_cast(a, TYPE_I64, less));
    more = subst_expr(m->lets, e_cast(a, TYPE_I64, more));
    int64_t up[3], down[3], columns;
    const Var *vars[] = {step->var, row->var, column->var};
    for (int i = 0; i < 3; i++)
        if (!linear_in(more, vars[i], &up[i]) || !linear_in(less, vars[i], &down[i])) return NULL;
    int64_t rise = up[0] - down[0], by_row = up[1] - down[1], by_column = up[2] - down[2];
    if (rise <= 0 || by_row == 0 || !expr_const(column->end, &columns)) return NULL;
    Expr *last = e_plus(a, e_times(a, m->warpgroup, m->rows), by_row < 0 ? m->rows - 1 : 0);
    Subst *least = subst_new(a);
    subst_var(least, step->var, e_int(a, 0));
    subst_var(least, row->var, last);
    subst_var(least, column->var, e_int(a, by_column < 0 ? columns - 1 : 0));
    Expr *rest = e_sub(a, subst_expr(least, less), subst_expr(least, more));
    if (expr_uses_any(rest, m->bound) || expr_reads_memory(rest)) return NULL;
    if (equal) rest = e_plus(a, rest, -1);   // more - less > -1
    return e_plus(a, e_over(a, rest, rise), 1);
}

// Of a condition that masks (`holds`) or keeps elements: one comparison that alone masks them.
static Expr *first_masked(Masking *m, const Expr *condition, bool holds) {
    if (condition->kind == EXPR_UNARY && condition->unary.op == UNARY_NOT)
        return first_masked(m, condition->unary.a, !holds);
    if (condition->kind != EXPR_BINARY) return NULL;
    Expr *a = condition->binary.a, *b = condition->binary.b;
    if (condition->binary.op == (holds ? BIN_LOGICAL_OR : BIN_LOGICAL_AND)) {
        Expr *first = first_masked(m, a, holds);
        return first ? first : first_masked(m, b, holds);
    }
    if (!type_is_int(a->type)) return NULL;
    switch (holds ? condition->binary.op : comparison_negated(condition->binary.op)) {
    case BIN_LT: return first_of(m, a, b, false);
    case BIN_LE: return first_of(m, a, b, true);
    case BIN_GT: return first_of(m, b, a, false);
    case BIN_GE: return first_of(m, b, a, true);
    default: return NULL;
    }
}

// `if (..) s[i, j] = -inf` or `s[i, j] = .. ? -inf : ..`, of all of s.
static Expr *masked_from(Masking *m) {
    const Stmt *loop = m->mask, *inner = loop->loop.body.count == 1 ? loop->loop.body.items[0] : NULL;
    bool branch = inner && inner->kind == STMT_IF && inner->if_.otherwise.count == 0 && inner->if_.then.count == 1;
    const Stmt *store = branch ? inner->if_.then.items[0] : inner;
    if (!store || store->kind != STMT_STORE || store->store.buf->scope != SCOPE_FRAGMENT || loop->loop.count != 2)
        return NULL;
    if (!is_loop_element(loop, store->store.count, store->store.indices)) return NULL;
    if (!covers(loop, store->store.buf)) return NULL;
    const Expr *value = store->store.value;
    if (branch) return is_infinite(value) ? first_masked(m, inner->if_.condition, true) : NULL;
    if (value->kind != EXPR_SELECT) return NULL;
    if (is_infinite(value->select.yes)) return first_masked(m, value->select.condition, true);
    return is_infinite(value->select.no) ? first_masked(m, value->select.condition, false) : NULL;
}

static void bind_names(Masking *m) {
    FOR_EACH_STMT (stmt, &m->loop->loop.body) {
        if (stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN) continue;
        map_put(m->bound, stmt->let.var, stmt->let.var);
        if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value))
            subst_let(m->lets, stmt->let.var, stmt->let.value);
    }
}

// ---- the loop ----

static bool frees_tile_of(const Map *consumes, const Stmt *loop, const Stmt *arrival) {
    FOR_EACH_ITEM (inner, &loop->loop.body)
        if (map_has(consumes, arrival) && map_get(consumes, arrival) == map_get(consumes, inner)) return true;
    return false;
}

static bool waits_as_in(const Stmt *loop, const Stmt *stmt) {
    if (!is_call(stmt, OP_MBARRIER_WAIT)) return false;
    FOR_EACH_ITEM (inner, &loop->loop.body)
        if (is_call(inner, OP_MBARRIER_WAIT) && wait_of(inner).bar->buf == wait_of(stmt).bar->buf) return true;
    return false;
}

// Behind the loop or, where a product of its last step is `pending`, behind the arrival for that one's tile; -1: the tiles go on otherwise.
static int end_of_tiles(const Map *consumes, const Block *block, int loop, const Buf *pending) {
    const Stmt *body = block->items[loop];
    int waits = 0;
    bool multiplied = false;
    if (!pending) return loop + 1;
    for (int i = loop + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_WHILE || is_loop(stmt, LOOP_SERIAL)) return -1;
        waits += waits_as_in(body, stmt);
        multiplied |= multiplies(stmt, pending);
        if (waits > 1) return -1;
        if (multiplied && frees_tile_of(consumes, body, stmt)) return i + 1;
    }
    return -1;
}

static void push_pace(Arena *arena, Map *consumes, const Stmt *loop, Block *out) {
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (!keeps_pace(consumes, stmt)) continue;
        Stmt *clone = clone_stmt(arena, NULL, stmt);
        if (map_has(consumes, stmt)) map_put(consumes, clone, map_get(consumes, stmt));
        block_push(arena, out, clone);
    }
}

// What keeps pace names nothing of the step itself.
static bool is_of_step(const Expr *expr, const void *names) {
    return expr->kind == EXPR_VAR && map_has(names, expr->var);
}

static bool keeps_pace_alone(Arena *arena, const Map *consumes, const Stmt *loop) {
    Map *names = map_new(arena);
    map_put(names, loop->loop.iters[0].var, (void *)loop);
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) map_put(names, stmt->let.var, stmt);
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (keeps_pace(consumes, stmt) && stmt_any_expr(stmt, is_of_step, names)) return false;
    return true;
}

// The mask of the loop's body whose step is known; NULL: none.
static Expr *find_mask(Masking *m, Step *step) {
    FOR_EACH_ITEM (stmt, &m->loop->loop.body) {
        if (!is_loop(stmt, LOOP_PARALLEL)) continue;
        m->mask = step->mask = stmt;
        Expr *first = masked_from(m);
        if (first) return first;
    }
    return NULL;
}

static bool shorten(Maker *m, const Block *role, const Block *kernel_body, Block *block, int at) {
    RoleBuilder *p = m->builder;
    Arena *a = p->arena;
    Stmt *loop = block->items[at];
    if (loop->loop.count != 1 || !expr_is_int(loop->loop.iters[0].step, 1)) return false;
    Masking masking = {.arena = a, .loop = loop, .lets = subst_new(a), .bound = map_new(a), .rows = WGMMA_ROWS};
    Step step = {.arena = a,
                 .role = role,
                 .kernel = p->kernel,
                 .kernel_body = kernel_body,
                 .block = block,
                 .loop = loop,
                 .consumes = m->consumes,
                 .carried = map_new(a)};
    masking.warpgroup = e_call1(a, OP_WARPGROUP, integer(p, p->consumers));
    bind_names(&masking);
    Expr *first = find_mask(&masking, &step);
    if (!first || !leaves_nothing(&step) || !keeps_pace_alone(a, m->consumes, loop)) return false;
    if (step.pending.count > 1) return false;
    int end = end_of_tiles(m->consumes, block, at, step.pending.count ? step.pending.items[0] : NULL);
    if (end < 0) return false;
    Iter *iter = &loop->loop.iters[0];
    Var *count = var_new(a, "steps", VAR_LET, TYPE_I64, loop->loc);
    Var *number = var_new(a, iter->var->name, VAR_ITER, TYPE_I64, loop->loc);
    Stmt *rest = s_for(a, LOOP_SERIAL, number, e_var(a, count), iter->end);
    rest->loc = loop->loc;
    push_pace(a, m->consumes, loop, &rest->loop.body);
    block_insert(a, block, end, rest);
    block_insert(a, block, at, s_let(a, count, e_max(a, iter->begin, e_min(a, iter->end, first))));
    iter->end = e_var(a, count);
    return true;
}

static void skip_in(Maker *m, const Block *role, const Block *kernel_body, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_loop(stmt, LOOP_PARALLEL)) continue;
        bool multiplies = is_loop(stmt, LOOP_SERIAL) && block_calls(&stmt->loop.body, OP_GEMM);
        if (multiplies && shorten(m, role, kernel_body, block, i)) {
            i++;
            continue;
        }
        FOR_EACH_BODY (body, stmt) skip_in(m, role, kernel_body, body);
    }
}

// Of two warpgroups the last one would be alone, and nothing would overlap its products. (128 x 128 of attention: 0.98 of the speed.)
void skip_masked_steps(Maker *m, const Block *kernel_body, Block *work) {
    enum { FEWEST = 3 };
    const RoleBuilder *p = m->builder;
    bool fits =
        p->consumers >= FEWEST && p->members == 1 && p->cluster == 1 && m->plan->rows == p->consumers * WGMMA_ROWS;
    bool meets =
        map_count(m->operands) > 0 || m->plan->other;   // the role's threads, before products of what they wrote
    if (fits && !meets && has_one_layout(p->kernel)) skip_in(m, work, kernel_body, work);
}
