// hoist-guards: hoists the condition of a parallel loop out of it, where only some blocks or some iterations of the
// loop around it do anything.
//
//     for (n in ceildiv(T, 64)) {                         for (n in ceildiv(T, 64)) {
//         ...                                                 ...
//         parallel (i in 128, j in 64) {                      if (n * 64 + 63 >= T) parallel (i in 128, j in 64) {
//             if (n * 64 + j >= T) s[i, j] = -inf;                if (n * 64 + j >= T) s[i, j] = -inf;
//         }                                                   }
//
// All iterations but the last save a compare and a select for each element. The same holds for the diagonal of a causal
// mask, the two edges of a window, and conditions that do not depend on the parallel indices.
//
// Inside, two bounds of one value become one compare: x >= a || x > b becomes x > min(a - 1, b). Values that need 64
// bits are clamped to the range of the indices before the loop, so that the loop compares 32 bits:
//
//     parallel (i in 128, j in 64)                       let bound = i32(min(max(at - n * 64, -128), 63));
//         if (n * 64 + j > at + i) s[i, j] = -inf   =>   parallel (i in 128, j in 64) if (i32(j) > i32(i) + bound) s[i, j] = -inf
//
// The guard is the condition with each parallel index at the end of its range where a comparison is most likely to
// hold: an affine comparison holds for some index exactly when it holds there. The operands of `&&` and `||` are
// replaced one by one; for `&&` the guard is an upper bound, since the two may hold at different indices. Comparisons
// of data or of products of indices count as true. The result is one loop with a branch, not a loop for each phase: it
// stays one pipeline, and the code does not grow.
//
// Unchanged: loops whose guard is known to hold, loops whose indices are compared in 32 bits (the result of this pass),
// and loops that do something whatever the condition.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "support/map.h"

typedef struct HoistGuards {
    PassContext *context;
    Arena *arena;
    Map *guards;   // parallel loop -> Expr
    Map *narrow;   // comparison in it -> Narrow
    Block *out;    // what is known once before the loop that is rewritten
} HoistGuards;

typedef struct Narrow {   // a comparison in 32 bits
    Var *bound;
    Expr *value, *with;
} Narrow;

// What the conditions are looked at under: one parallel loop.
typedef struct Space {
    Arena *arena;
    const Facts *facts;   // with the indices' bounds
    const Stmt *loop;
    Subst *lets;   // of the body
    Map *narrow;   // of HoistGuards
} Space;

static bool depends(const Space *space, const Expr *expr) {
    for (int i = 0; i < space->loop->loop.count; i++)
        if (expr_uses_var(expr, space->loop->loop.iters[i].var)) return true;
    return false;
}

// It may be evaluated before the loop, whatever condition stands before it.
static bool may_be_early(const Expr *expr) {
    return !expr_divides(expr) && expr_is_stable(expr);
}

// Puts in the ends of the indices at which a - b is largest (or smallest). False when it is not affine.
static bool at_corner(const Space *space, Expr **a, Expr **b, bool largest) {
    Arena *arena = space->arena;
    Subst *subst = subst_new(arena);
    for (int i = 0; i < space->loop->loop.count; i++) {
        const Iter *iter = &space->loop->loop.iters[i];
        int64_t in_a, in_b;
        if (!linear_in(*a, iter->var, &in_a) || !linear_in(*b, iter->var, &in_b)) return false;
        bool far = (in_a > in_b) == largest;
        subst_var(subst, iter->var, far ? e_sub(arena, iter->end, e_int(arena, 1)) : iter->begin);
    }
    *a = subst_expr(subst, *a);
    *b = subst_expr(subst, *b);
    return true;
}

// Where a comparison holds for some indices. True: it may.
static Expr *somewhere(const Space *space, BinaryOp op, Expr *a, Expr *b) {
    Arena *arena = space->arena;
    Expr *perhaps = e_bool(arena, true), *whole = e_binary(arena, op, a, b);
    if (op == BIN_NE || a->type != TYPE_I64 || !comparison_is_exact(space->facts, whole)) return perhaps;
    if (op == BIN_EQ) {
        Expr *below = somewhere(space, BIN_LE, a, b), *above = somewhere(space, BIN_GE, a, b);
        return e_and(arena, below, above);
    }
    if (!at_corner(space, &a, &b, op == BIN_GT || op == BIN_GE)) return perhaps;
    return e_binary(arena, op, a, b);
}

// What must be so for the condition to hold (or not to hold) for any of the indices, without the indices.
static Expr *guard_of(const Space *space, Expr *e, bool holds) {
    Arena *arena = space->arena;
    if (e->kind == EXPR_INT) return e_bool(arena, (e->integer != 0) == holds);
    if (e->kind == EXPR_UNARY && e->unary.op == UNARY_NOT) return guard_of(space, e->unary.a, !holds);
    if (is_binary(e, BIN_LOGICAL_AND) || is_binary(e, BIN_LOGICAL_OR)) {
        Expr *a = guard_of(space, e->binary.a, holds), *b = guard_of(space, e->binary.b, holds);
        bool both = (e->binary.op == BIN_LOGICAL_AND) == holds;
        return e_binary(arena, both ? BIN_LOGICAL_AND : BIN_LOGICAL_OR, a, b);
    }
    if (!may_be_early(e)) return e_bool(arena, true);
    if (!depends(space, e)) return holds ? e : e_unary(arena, UNARY_NOT, e);
    if (!is_comparison(e)) return e_bool(arena, true);
    return somewhere(space, holds ? e->binary.op : comparison_negated(e->binary.op), e->binary.a, e->binary.b);
}

static Expr *block_guard(Space *space, const Block *block);

// What must be so for the statement to do anything.
static Expr *stmt_guard(Space *space, const Stmt *stmt) {
    Arena *arena = space->arena;
    switch (stmt->kind) {
    case STMT_LET:
        return e_bool(arena, !expr_is_pure(stmt->let.value) || !subst_let(space->lets, stmt->let.var, stmt->let.value));
    case STMT_BLOCK: return block_guard(space, &stmt->block);
    case STMT_IF: {
        Expr *condition = subst_expr(space->lets, stmt->if_.condition);
        Expr *then = block_guard(space, &stmt->if_.then), *otherwise = block_guard(space, &stmt->if_.otherwise);
        if (!expr_is_pure(condition)) return e_bool(arena, true);
        then = e_and(arena, guard_of(space, condition, true), then);
        otherwise = e_and(arena, guard_of(space, condition, false), otherwise);
        return e_binary(arena, BIN_LOGICAL_OR, then, otherwise);
    }
    case STMT_STORE: {   // x = c ? v : x
        const Expr *value = stmt->store.value;
        if (value->kind != EXPR_SELECT || !expr_is_pure(value)) return e_bool(arena, true);
        bool keeps_no = loads_stored(value->select.no, stmt), keeps_yes = loads_stored(value->select.yes, stmt);
        if (!keeps_no && !keeps_yes) return e_bool(arena, true);
        return guard_of(space, subst_expr(space->lets, value->select.condition), keeps_no);
    }
    default: return e_bool(arena, true);
    }
}

static Expr *block_guard(Space *space, const Block *block) {
    Expr *any = e_bool(space->arena, false);
    for (int i = 0; i < block->count; i++)
        any = e_binary(space->arena, BIN_LOGICAL_OR, any, stmt_guard(space, block->items[i]));
    return any;
}

// ---- comparisons in 32 bits ----

static void add_term(Arena *arena, Expr **sum, const Var *index, int64_t coefficient) {
    Expr *term = e_cast(arena, TYPE_I32, e_var(arena, (Var *)index));
    term = e_mul(arena, term, e_cast(arena, TYPE_I32, e_int(arena, coefficient)));
    *sum = *sum ? e_add(arena, *sum, term) : term;
}

// a > b as left > right + bound: left and right have the parallel indices, and the bound, which has the rest, is kept
// where it decides.
static Narrow *narrow_of(const Space *space, const Expr *e) {
    enum { MOST = 1 << 20 };   // of what the indices make
    Arena *arena = space->arena;
    const Expr *c = subst_expr(space->lets, (Expr *)e);
    if (!is_comparison(c) || c->binary.op == BIN_EQ || c->binary.op == BIN_NE || c->binary.a->type != TYPE_I64)
        return NULL;
    if (!depends(space, c) || !may_be_early(c) || !comparison_is_exact(space->facts, c)) return NULL;
    int64_t low = 0, high = 0;
    Expr *left = NULL, *right = NULL;
    Subst *none = subst_new(arena);
    for (int i = 0; i < space->loop->loop.count; i++) {
        const Var *index = space->loop->loop.iters[i].var;
        Range range = range_of(space->facts, e_var(arena, (Var *)index));
        int64_t in_a, in_b;
        if (!linear_in(c->binary.a, index, &in_a) || !linear_in(c->binary.b, index, &in_b)) return NULL;
        subst_var(none, index, e_int(arena, 0));
        int64_t times = in_a - in_b;
        if (times == 0) continue;
        if (range.low < 0 || range.high > MOST || times > MOST || times < -MOST) return NULL;
        low += times * (times > 0 ? range.low : range.high);
        high += times * (times > 0 ? range.high : range.low);
        if (low < -MOST || high > MOST) return NULL;
        add_term(arena, times > 0 ? &left : &right, index, times > 0 ? times : -times);
    }
    BinaryOp op = c->binary.op;
    bool more = op == BIN_GT || op == BIN_GE, one = op == BIN_GE || op == BIN_LT;   // left > bound; left <= bound
    Expr *rest = e_sub(arena, subst_expr(none, c->binary.b), subst_expr(none, c->binary.a));
    if (one) rest = e_sub(arena, rest, e_int(arena, 1));
    if (!comparison_is_exact(space->facts, e_binary(arena, BIN_GT, rest, e_int(arena, 0)))) return NULL;
    rest = e_min(arena, e_max(arena, rest, e_int(arena, low - 1)), e_int(arena, high));
    Narrow *narrow = NEW(arena, Narrow);
    narrow->bound = var_new(arena, "bound", VAR_LET, TYPE_I32, e->loc);
    narrow->value = e_cast(arena, TYPE_I32, rest);
    Expr *bound = e_var(arena, narrow->bound);
    if (!left) left = e_cast(arena, TYPE_I32, e_int(arena, 0));
    narrow->with = e_binary(arena, more ? BIN_GT : BIN_LE, left, right ? e_add(arena, right, bound) : bound);
    return narrow;
}

// It masks a fragment. (A condition that keeps an access inside of its tensor says so to the passes to come.)
static bool is_mask(Arena *arena, const Stmt *loop) {
    FOR_EACH_EFFECT (effect, arena, loop)
        if (effect->buf->scope != SCOPE_FRAGMENT) return false;
    return true;
}

static bool fits_i32(const Space *space, const Expr *expr) {
    Range range = range_of(space->facts, expr);
    return range.low >= INT32_MIN && range.high <= INT32_MAX;
}

static bool is_wide(const Expr *e, const void *what) {
    const Space *space = what;
    if (!is_comparison(e) || !narrow_of(space, e)) return false;
    return !fits_i32(space, e->binary.a) || !fits_i32(space, e->binary.b);
}

static bool narrow_expr(Visitor *visitor, Expr *expr) {
    const Space *space = visitor->user;
    Narrow *narrow = is_comparison(expr) ? narrow_of(space, expr) : NULL;
    if (narrow) map_put(space->narrow, expr, narrow);
    return true;
}

// ---- which loops ----

// Of a || b, b holds wherever a does not.
static bool always_holds(Facts *facts, const Expr *guard) {
    if (prove(facts, guard)) return true;
    if (!is_binary(guard, BIN_LOGICAL_OR)) return false;
    int mark = facts_mark(facts);
    facts_assume(facts, guard->binary.a, false);
    bool rest = always_holds(facts, guard->binary.b);
    facts_release(facts, mark);
    return rest;
}

static void visit_loop(void *user, Stmt *stmt, const Facts *at) {
    HoistGuards *u = user;
    if (!is_loop(stmt, LOOP_PARALLEL) || starts_copy(stmt) || via_is(stmt, VIA_TMA)) return;
    Facts *facts = (Facts *)at;   // as it was when we return
    int mark = facts_mark(facts);
    for (int i = 0; i < stmt->loop.count; i++) facts_iter(facts, &stmt->loop.iters[i]);
    Space space = {u->arena, facts, stmt, subst_new(u->arena), u->narrow};
    Expr *guard = block_guard(&space, &stmt->loop.body);
    facts_release(facts, mark);
    guard = simplify_expr(u->arena, facts, guard);
    if (guard->kind == EXPR_INT || always_holds(facts, guard)) return;
    map_put(u->guards, stmt, guard);
    for (int i = 0; i < stmt->loop.count; i++) facts_iter(facts, &stmt->loop.iters[i]);
    bool wide = is_mask(u->arena, stmt) && block_any_expr(&stmt->loop.body, is_wide, &space);
    if (wide)   // all of them, as bounds of one thing
        visit_block(&(Visitor){.expr = narrow_expr, .user = &space}, &stmt->loop.body);
    facts_release(facts, mark);
    REMARK(u->context, stmt->loc, T_GUARD_HOISTED);
}

// ---- what is left ----

// Two bounds of one thing are one: x >= a || x > b is x > min(a - 1, b), which for a row of a mask is known once.
static bool lower_bound(Arena *arena, const Expr *e, Expr **x, Expr **bound) {
    if (!is_comparison(e) || !type_is_int(e->binary.a->type) || e->binary.a->type != e->binary.b->type) return false;
    bool dim = e->binary.b->kind == EXPR_VAR && e->binary.b->var->kind == VAR_DIM;   // one less does not overflow
    if (e->binary.op != BIN_GT && (e->binary.op != BIN_GE || !dim)) return false;
    *x = e->binary.a;
    *bound = e->binary.op == BIN_GT ? e->binary.b : e_sub(arena, e->binary.b, e_int(arena, 1));
    return true;
}

static Expr *join_bounds(Mapper *mapper, Expr *e) {
    Expr *x[2], *bound[2];
    if (!is_binary(e, BIN_LOGICAL_OR)) return e;
    if (!lower_bound(mapper->arena, e->binary.a, &x[0], &bound[0])) return e;
    if (!lower_bound(mapper->arena, e->binary.b, &x[1], &bound[1]) || !expr_equal(x[0], x[1])) return e;
    return e_binary(mapper->arena, BIN_GT, x[0], e_min(mapper->arena, bound[0], bound[1]));
}

static Expr *use_bound(Mapper *mapper, Expr *e) {
    const HoistGuards *u = mapper->user;
    const Narrow *narrow = map_get(u->narrow, e);
    if (!narrow) return join_bounds(mapper, e);
    block_push(mapper->arena, u->out, s_let(mapper->arena, narrow->bound, narrow->value));
    return narrow->with;
}

static void guard_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    HoistGuards *u = mapper->user;
    Expr *guard = map_get(u->guards, stmt);
    if (!guard) {
        block_push(mapper->arena, out, stmt);
        return;
    }
    EXPECT(u->context->failure, is_loop(stmt, LOOP_PARALLEL), "a guard of a statement of kind %d", stmt->kind);
    Stmt *only = s_if(mapper->arena, guard);
    u->out = &only->if_.then;
    map_block(&(Mapper){.arena = mapper->arena, .expr = use_bound, .user = u}, &stmt->loop.body);
    only->loc = stmt->loc;
    mapper->changed = true;
    block_push(mapper->arena, &only->if_.then, stmt);
    block_push(mapper->arena, out, only);
}

bool pass_hoist_guards(PassContext *context, Func *kernel) {
    Arena *arena = context->arena;
    HoistGuards u = {.context = context, .arena = arena, .guards = map_new(arena), .narrow = map_new(arena)};
    kernel_walk(arena, kernel, visit_loop, &u);
    return rewrite_block(&(StmtMapper){.arena = arena, .stmt = guard_stmt, .user = &u}, &kernel->body);
}
