// normalize-loops: one form for the loops that move tiles, whatever they were written as.
//
//     var k: i64 = 0;
//     pipelined (q in 0 .. K step 64, stages = 3) {        fill(acc, 0);
//         shared As: bf16[128, 64];                        shared As: bf16[128, 64];
//         if (q <= m * 128) {                              let end = min(ceildiv(K, 64), m * 2 + 1);
//             if (q == 0) fill(acc, 0);              =>    pipelined (q in end, stages = 3) {
//             copy(A[m * 128, k * 64], As);                    copy(A[m * 128, q * 64], As);
//             gemm(As, Bs.T, acc);                             gemm(As, Bs.T, acc);
//         }                                                }
//         k += 1;
//     }
//
// Each of these steps is one rewrite below:
//
//     unrolling        `unroll` over loads of tiles and products is expanded, and a short `for` of products of slices
//     single steps     a loop of one iteration within another is its body, and the other one loads ahead
//     unit steps       iterators go by 1, and those with a step from 0
//     coalescing       a nest whose indices are those of one loop is that loop
//     induction        a `var` that each iteration adds a constant to is a multiple of the iterator
//     ends             a `while` that counts a variable is a `for` (counted_loops.c)
//     bounds           an `if` around the body that bounds the iterator bounds the loop, and so does a `break` at its beginning
//     first iteration  what only the first one does, and does not depend on the others, is done before the loop
//     declarations     tiles are declared before the loop
//
// Passes that ask whether a loop loads tiles ahead, is ping-pong's or can be split know this form alone. Kernels with
// roles or channels stay as they are written.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

static bool is_serial(const Stmt *stmt) {
    return is_loop(stmt, LOOP_SERIAL) || is_loop(stmt, LOOP_PIPELINED);
}

static bool starts_by_hand(const Stmt *stmt, void *unused) {
    (void)unused;
    return stmt->kind == STMT_CALL && stmt->call.is_async;
}

// A loop that this pass is about: in order, over operations on tiles that the compiler starts.
static bool may_move_tiles(const Stmt *stmt) {
    if (!is_serial(stmt) || stmt->attrs) return false;
    if (below_any(stmt, starts_by_hand, NULL)) return false;
    return block_calls(&stmt->loop.body, OP_COPY) || block_calls(&stmt->loop.body, OP_GEMM);
}

// ... to its end.
static bool moves_tiles(const Stmt *stmt) {
    return may_move_tiles(stmt) && !block_breaks(&stmt->loop.body);
}

static bool is_unit(const Iter *iter) {
    return expr_is_int(iter->step, 1);
}

// The expression at body[at] without the names that the iteration gives before.
static Expr *without_names(Arena *arena, const Block *body, int at, Expr *expr) {
    Subst *subst = subst_new(arena);
    for (int i = 0; i < at; i++) {
        const Stmt *stmt = body->items[i];
        if (is_stable_let(stmt)) subst_let(subst, stmt->let.var, subst_expr(subst, stmt->let.value));
    }
    return subst_expr(subst, expr);
}

// ---- unrolling ----

enum { MOST_EXPANDED = 64 };   // statements that one loop becomes

// Products of slices that the iterator chooses, and names.
static bool only_slices(const Stmt *loop) {
    const Var *var = loop->loop.iters[0].var;
    bool slices = false;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm) && !is_stable_let(stmt)) return false;
        slices |= stmt->kind == STMT_LET ? expr_uses_var(stmt->let.value, var)
                                         : region_uses_var(gemm.a, var) || region_uses_var(gemm.acc, var);
    }
    return slices && block_calls(&loop->loop.body, OP_GEMM);
}

static bool fills_or_multiplies(const Stmt *stmt, void *unused) {
    (void)unused;
    return is_call(stmt, OP_GEMM) || is_global_to_shared_copy(stmt);
}

static bool wants_expansion(const Stmt *stmt) {
    bool unrolls = is_loop(stmt, LOOP_UNROLL) && below_any(stmt, fills_or_multiplies, NULL);
    if (!unrolls && !(is_loop(stmt, LOOP_SERIAL) && only_slices(stmt))) return false;
    if (stmt->loop.count != 1 || stmt->attrs || block_breaks(&stmt->loop.body)) return false;
    int64_t trips = iter_count(&stmt->loop.iters[0]);
    return trips >= 1 && trips <= MOST_EXPANDED / larger(stmt->loop.body.count, 1);
}

static void expand(Arena *arena, Block *block, int at) {
    Block all = {0};
    clone_iterations(arena, block->items[at], &all);
    block_remove(block, at);
    for (int i = 0; i < all.count; i++) block_insert(arena, block, at + i, all.items[i]);
}

// ---- loops of one iteration ----

static bool is_single(const Stmt *stmt) {
    return moves_tiles(stmt) && stmt->loop.count == 1 && iter_count(&stmt->loop.iters[0]) == 1;
}

// One iteration, by what is known of its bounds.
static void bound_single(void *changed, Stmt *loop, const Facts *facts) {
    if (!moves_tiles(loop) || loop->loop.count != 1 || is_single(loop)) return;
    Arena *arena = facts_arena(facts);
    Iter *iter = &loop->loop.iters[0], one = *iter;
    one.end = e_add(arena, iter->begin, iter->step);
    bool some = iter_count(&one) == 1 && prove(facts, e_lt(arena, iter->begin, iter->end));
    if (!some || !prove(facts, e_ge(arena, one.end, iter->end))) return;
    *iter = one;
    *(bool *)changed = true;
}

static bool is_longer(const Stmt *stmt, void *unused) {
    (void)unused;
    return is_loop(stmt, LOOP_PIPELINED) && !is_single(stmt);
}

// Those of the loop's own body are expanded. What they load ahead, the loop does.
static bool open_singles(Arena *arena, Stmt *loop, Block *body) {
    bool changed = false;
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        if (is_single(stmt)) {
            bool ahead = is_loop(stmt, LOOP_PIPELINED) && is_loop(loop, LOOP_SERIAL) && loop->loop.count == 1;
            if (ahead && !block_any(&loop->loop.body, is_longer, NULL)) {
                loop->loop.kind = LOOP_PIPELINED;
                loop->loop.stages = stmt->loop.stages;
            }
            expand(arena, body, i--);
            changed = true;
        } else if (stmt->kind == STMT_IF) {
            FOR_EACH_BODY (inner, stmt) changed |= open_singles(arena, loop, inner);
        }
    }
    return changed;
}

// ---- unit steps ----

static bool take_unit_steps(Arena *arena, Stmt *loop) {
    bool changed = false;
    for (int i = 0; i < loop->loop.count; i++) {
        Iter *iter = &loop->loop.iters[i];
        if (is_unit(iter) || !expr_is_stable(iter->begin)) continue;   // (it comes into the body)
        Var *number = var_new(arena, iter->var->name, VAR_ITER, iter->var->type, iter->var->loc);
        Expr *scaled = e_mul(arena, e_var(arena, number), e_cast(arena, number->type, iter->step));
        Subst *subst = subst_new(arena);
        subst_var(subst, iter->var, e_add(arena, e_cast(arena, number->type, iter->begin), scaled));
        for (int j = i + 1; j < loop->loop.count; j++) {   // whose bounds it may be in
            loop->loop.iters[j].begin = subst_expr(subst, loop->loop.iters[j].begin);
            loop->loop.iters[j].end = subst_expr(subst, loop->loop.iters[j].end);
        }
        subst_block(subst, &loop->loop.body);
        *iter =
            (Iter){number, e_int_of(arena, number->type, 0), iter_trips(arena, iter), e_int_of(arena, number->type, 1)};
        changed = true;
    }
    return changed;
}

// ---- coalescing ----

typedef struct Nest {
    const Var *outer, *inner;
    int64_t trips;   // of the inner loop
    Var *number;     // outer * trips + inner
} Nest;

static bool uses_nest(const Expr *expr, const Nest *nest) {
    return expr_uses_var(expr, nest->outer) || expr_uses_var(expr, nest->inner);
}

static Expr *by_number(Mapper *mapper, Expr *expr) {
    const Nest *nest = mapper->user;
    if (expr->type != nest->number->type || !type_is_int(expr->type) || !uses_nest(expr, nest)) return NULL;
    LinearSum sum = linear_of(mapper->arena, expr), rest = linear_new(expr->type);
    int64_t outer = 0, inner = 0;
    if (sum.full) return NULL;
    for (int i = 0; i < sum.count; i++) {
        const Term *term = &sum.terms[i];
        if (expr_is_var(term->atom, nest->outer)) outer = term->factor;
        else if (expr_is_var(term->atom, nest->inner)) inner = term->factor;
        else if (uses_nest(term->atom, nest)) return NULL;
        else linear_add_term(&rest, term->atom, term->factor);
    }
    if (inner == 0 || outer != int_wrap(expr->type, inner * nest->trips)) return NULL;
    linear_add_constant(&rest, sum.constant);
    linear_add_term(&rest, e_var(mapper->arena, nest->number), inner);
    return linear_expr(mapper->arena, &rest);
}

// The loop and the next one in, of constant trips, as one, if the indices are those of one loop.
static bool coalesce_two(Arena *arena, Stmt *loop, const Iter *outer, const Iter *inner, const Block *body,
                         Block *out) {
    int64_t trips = iter_count(inner);
    if (!iter_is_plain(outer) || !iter_is_plain(inner) || trips < 1 || outer->var->type != inner->var->type)
        return false;
    Nest nest = {outer->var, inner->var, trips,
                 var_new(arena, outer->var->name, VAR_ITER, outer->var->type, outer->var->loc)};
    Block copy = {0};
    clone_block(arena, NULL, body, &copy);
    map_block(&(Mapper){.arena = arena, .replace = by_number, .user = &nest}, &copy);
    FOR_EACH_ITEM (stmt, &copy)
        if (stmt_uses_var(stmt, nest.outer) || stmt_uses_var(stmt, nest.inner)) return false;
    *out = copy;
    Iter *iters = arena_alloc(arena, sizeof *iters);
    *iters = iter_new(arena, nest.number, e_times(arena, outer->end, trips));
    loop->loop.iters = iters;
    loop->loop.count = 1;
    return true;
}

// `pipelined (a in n, b in 2) ..`, `for (a in n) pipelined (b in 2) ..`
static bool coalesce(Arena *arena, Stmt *loop) {
    Block body;
    if (loop->loop.count == 2) {
        if (!coalesce_two(arena, loop, &loop->loop.iters[0], &loop->loop.iters[1], &loop->loop.body, &body))
            return false;
        loop->loop.body = body;
        return true;
    }
    const Stmt *inner = loop->loop.count == 1 && loop->loop.body.count == 1 ? loop->loop.body.items[0] : NULL;
    if (!inner || !is_serial(inner) || inner->attrs || inner->loop.count != 1 || is_loop(loop, LOOP_PIPELINED))
        return false;
    if (block_breaks(&inner->loop.body)) return false;
    if (!coalesce_two(arena, loop, &loop->loop.iters[0], &inner->loop.iters[0], &inner->loop.body, &body)) return false;
    loop->loop.kind = inner->loop.kind;
    loop->loop.stages = inner->loop.stages;
    loop->loop.body = body;
    return true;
}

// ---- induction ----

static bool used_elsewhere(const Func *kernel, const Stmt *loop, const Var *var) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt == loop) SKIP_BODY(stmt);
        Stmt alone = stmt_alone(stmt);
        if (stmt_uses_var(&alone, var)) return true;
        if (stmt->kind == STMT_ASSIGN && stmt->let.var == var) return true;
    }
    return false;
}

static void drop_var(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (stmt->kind != STMT_VAR || stmt->let.var != mapper->user) block_push(mapper->arena, out, stmt);
}

// The loop at block[at] counts a variable by its top-level statement `item`.
static bool induce(Arena *arena, Func *kernel, Block *block, int at, int item) {
    Stmt *loop = block->items[at];
    const Stmt *step = loop->loop.body.items[item];
    int64_t by;
    if (!steps_by(arena, step, &by) || assignments(loop, step->let.var) != 1) return false;
    Var *var = step->let.var;
    const Iter *iter = &loop->loop.iters[0];
    if (!expr_is_stable(iter->begin) || !expr_is_stable(iter->end)) return false;
    Expr *first = value_before(block, at, var);
    if (!first) {
        Var *name = var_new(arena, var->name, VAR_LET, var->type, var->loc);
        block_insert(arena, block, at++, s_let(arena, name, e_var(arena, var)));
        first = e_var(arena, name);
    }
    Expr *each = e_int_of(arena, var->type, by);
    Expr *number = e_sub(arena, e_var(arena, iter->var), e_cast(arena, iter->var->type, iter->begin));
    Expr *value = e_add(arena, first, e_mul(arena, e_cast(arena, var->type, number), each));
    Subst *before = subst_new(arena), *behind = subst_new(arena);
    subst_var(before, var, value);
    subst_var(behind, var, e_add(arena, value, each));
    for (int i = 0; i < loop->loop.body.count; i++)
        if (i != item) subst_stmt(i < item ? before : behind, loop->loop.body.items[i]);
    block_remove(&loop->loop.body, item);
    if (used_elsewhere(kernel, loop, var)) {
        Expr *trips = e_max(arena, iter_trips(arena, iter), e_int_of(arena, iter->var->type, 0));
        Expr *last = e_add(arena, first, e_mul(arena, e_cast(arena, var->type, trips), each));
        block_insert(arena, block, at + 1, s_assign(arena, var, last));
    } else {
        rewrite_block(&(StmtMapper){.arena = arena, .stmt = drop_var, .user = var}, &kernel->body);
    }
    return true;
}

static bool induce_all(Arena *arena, Func *kernel, Block *block, int at) {
    const Stmt *loop = block->items[at];
    if (loop->loop.count != 1) return false;
    for (int i = 0; i < loop->loop.body.count; i++)
        if (induce(arena, kernel, block, at, i)) return true;
    return false;
}

// ---- bounds ----

// The `if` that is the loop's body but for names before it; -1: it is something else.
static int guard_of(const Stmt *loop) {
    const Block *body = &loop->loop.body;
    int at = 0;
    while (at < body->count && is_stable_let(body->items[at])) at++;
    const Stmt *stmt = at == body->count - 1 ? body->items[at] : NULL;
    return stmt && stmt->kind == STMT_IF && !stmt->attrs && stmt->if_.otherwise.count == 0 ? at : -1;
}

typedef struct Bounds {
    Arena *arena;
    Map *loops;       // guard -> its loop
    Expr *rest;       // of the condition; NULL: nothing
    ExprVec bounds;   // of it, that are the loop's now
    bool changed;
} Bounds;

static bool may_divide_by_zero(const Expr *expr, const void *facts) {
    Expr *by = expr_divisor(expr);
    return by && !prove(facts, e_lt(facts_arena(facts), e_zero(facts_arena(facts), by->type), by));
}

// a < b, or a <= b: a bound of the iterator, if it is one of the loop's.
static bool bounds_iter(Bounds *b, Iter *iter, const Facts *facts, Expr *low, Expr *high, bool equal) {
    Arena *arena = b->arena;
    LinearSum sum = linear_of(arena, low);   // sum < 0
    linear_add(arena, &sum, high, -1);
    if (equal) linear_add_constant(&sum, -1);
    int64_t factor = linear_factor(&sum, e_var(arena, iter->var));
    if (sum.full || factor == 0 || factor == INT64_MIN) return false;
    linear_add_term(&sum, e_var(arena, iter->var), -factor);
    Expr *rest = linear_expr(arena, &sum);
    if (expr_uses_var(rest, iter->var) || !expr_is_stable(rest)) return false;
    if (any_expr(rest, may_divide_by_zero, facts)) return false;   // it may stand behind a condition
    Type type = iter->var->type;
    Expr *zero = e_int_of(arena, type, 0);
    if (!prove(facts, e_ge(arena, iter->begin, zero)))
        return false;   // below 0 `/` rounds to 0: no iteration either way
    if (factor > 0) {
        Expr *most = e_sub(arena, zero, e_cast(arena, type, rest));
        // ceildiv takes no number below 0
        if (!prove(facts, e_ge(arena, e_zero(arena, rest->type), rest))) most = e_max(arena, most, zero);
        iter->end = e_min(arena, iter->end, e_call2(arena, OP_CEILDIV, most, e_int_of(arena, type, factor)));
    } else {
        iter->begin =
            e_max(arena, iter->begin, e_over(arena, e_plus(arena, e_cast(arena, type, rest), -factor), -factor));
    }
    return true;
}

static void bound_by(Bounds *b, Iter *iter, const Facts *facts, Expr *condition) {
    if (is_binary(condition, BIN_LOGICAL_AND)) {
        bound_by(b, iter, facts, condition->binary.a);
        bound_by(b, iter, facts, condition->binary.b);
        return;
    }
    bool orders = is_comparison(condition) && condition->binary.op >= BIN_LT && type_is_int(condition->binary.a->type);
    if (orders && type_bits(condition->binary.a->type) <= type_bits(iter->var->type) &&
        comparison_is_exact(facts, condition)) {
        Expr *low = condition->binary.a, *high = condition->binary.b;
        bool swapped = condition->binary.op >= BIN_GT;
        bool equal = condition->binary.op == BIN_LE || condition->binary.op == BIN_GE;
        if (bounds_iter(b, iter, facts, swapped ? high : low, swapped ? low : high, equal)) {
            vec_push(b->arena, &b->bounds, condition);
            return;
        }
    }
    b->rest = e_both(b->arena, b->rest, condition);
}

// What was known under the condition, and does not follow from the loop's bounds.
static void keep_known(Bounds *b, const Iter *iter, const Facts *facts, Block *body) {
    Facts *inside = (Facts *)facts;
    int mark = facts_mark(inside);
    facts_iter(inside, iter);
    VEC_EACH_PTR (Expr, bound, &b->bounds)
        if (!prove(inside, bound)) block_insert(b->arena, body, 0, s_assume(b->arena, bound, bound->loc));
    facts_release(inside, mark);
}

static void bound_loop(void *user, Stmt *guard, const Facts *facts) {
    Bounds *b = user;
    Stmt *loop = map_get(b->loops, guard);
    if (!loop || b->changed) return;
    Block *body = &loop->loop.body;
    int leaves = leading_break(loop), at = leaves >= 0 ? leaves : body->count - 1;
    Expr *condition = without_names(b->arena, body, at, guard->if_.condition);
    if (leaves >= 0) condition = e_unary(b->arena, UNARY_NOT, condition);
    condition = simplify_expr(b->arena, facts, condition);
    b->rest = NULL;
    b->bounds.count = 0;
    Iter iter = loop->loop.iters[0];
    bound_by(b, &iter, facts, condition);
    if (b->bounds.count == 0) return;
    // A `break` is the loop's end, or it stays: it ends iterations that come, too.
    if (leaves >= 0 && (b->rest || iter.begin != loop->loop.iters[0].begin)) return;
    b->changed = true;
    loop->loop.iters[0] = iter;
    if (leaves >= 0) {
        block_remove(body, at);
        keep_known(b, &iter, facts, body);
        return;
    }
    keep_known(b, &iter, facts, &guard->if_.then);
    guard->if_.condition = b->rest ? b->rest : e_bool(b->arena, true);
}

static bool bound_loops(Arena *arena, Func *kernel) {
    Bounds b = {.arena = arena, .loops = map_new(arena)};
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (!may_move_tiles(stmt) || stmt->loop.count != 1 || !is_unit(&stmt->loop.iters[0])) continue;
        int at = block_breaks(&stmt->loop.body) ? leading_break(stmt) : guard_of(stmt);
        if (at >= 0) map_put(b.loops, stmt->loop.body.items[at], stmt);
    }
    if (map_count(b.loops) > 0) kernel_walk(arena, kernel, bound_loop, &b);
    return b.changed;
}

static bool open_guard(Arena *arena, Stmt *loop) {
    int at = guard_of(loop);
    if (at < 0 || !expr_is_int(loop->loop.body.items[at]->if_.condition, 1)) return false;
    Block inner = loop->loop.body.items[at]->if_.then;
    block_remove(&loop->loop.body, at);
    block_append(arena, &loop->loop.body, &inner);
    return true;
}

// ---- the first iteration ----

// a - b is 0 in the first iteration, and in no other.
static bool differ_by_number(Arena *arena, const Iter *iter, const Expr *a, const Expr *b) {
    if (a->type != iter->var->type) return false;
    LinearSum sum = linear_of(arena, a);
    linear_add(arena, &sum, b, -1);
    int64_t factor = linear_factor(&sum, e_var(arena, iter->var));
    linear_add_term(&sum, e_var(arena, iter->var), -factor);
    linear_add(arena, &sum, iter->begin, factor);
    return !sum.full && factor != 0 && linear_is_constant(&sum, 0);
}

static bool is_first(Arena *arena, const Iter *iter, const Expr *condition) {
    return is_binary(condition, BIN_EQ) && differ_by_number(arena, iter, condition->binary.a, condition->binary.b);
}

// That the iteration is not the first.
static bool is_later(Arena *arena, const Iter *iter, const Expr *condition) {
    if (condition->kind == EXPR_UNARY && condition->unary.op == UNARY_NOT)
        return is_first(arena, iter, condition->unary.a);
    if (condition->kind != EXPR_BINARY) return false;
    const Expr *a = condition->binary.a, *b = condition->binary.b;
    switch (condition->binary.op) {
    case BIN_NE: return differ_by_number(arena, iter, a, b);
    case BIN_GT: return expr_is_var(a, iter->var) && expr_equal(b, iter->begin);
    case BIN_LT: return expr_is_var(b, iter->var) && expr_equal(a, iter->begin);
    default: return false;
    }
}

// The fragment has no value that the loop finds, or none after it: in the grid's body, which runs a single time, it is the first
// use; or the loop has all uses.
static bool begins_in(Arena *arena, const Func *kernel, const Block *block, int at, const Buf *buf) {
    LiveRange live = live_range(arena, &kernel->body, buf);
    if (live.block == block) return block == &func_grid(kernel)->grid.body && live.first == at;
    return live.block == &block->items[at]->loop.body;
}

// What it names is declared or set in the loop.
static bool is_set_in(const Stmt *loop, const Stmt *stmt) {
    FOR_EACH_STMT (inner, &loop->loop.body) {
        if (inner->kind == STMT_DECL && stmt_uses_buf(stmt, inner->decl)) return true;
        bool sets = inner->kind == STMT_LET || inner->kind == STMT_VAR || inner->kind == STMT_ASSIGN;
        if (sets && stmt_uses_var(stmt, inner->let.var)) return true;
    }
    return false;
}

static bool may_divide(const Expr *expr, const void *unused) {
    (void)unused;
    return expr_divisor(expr) || !expr_is_pure(expr);
}

// What only the first iteration does may be done before the loop, even if there is none: to fragments that have no value yet, and
// that nothing before it in the iteration uses.
static bool can_go_first(Arena *arena, const Func *kernel, const Block *block, int at, int item, const Stmt *stmt) {
    const Stmt *loop = block->items[at];
    bool fills = is_call(stmt, OP_FILL) || is_call(stmt, OP_COPY) || is_loop(stmt, LOOP_PARALLEL);
    if (!fills || stmt_any_expr(stmt, may_divide, NULL) || is_set_in(loop, stmt)) return false;
    FOR_EACH_EFFECT (effect, arena, stmt) {
        if (effect->buf->scope != SCOPE_FRAGMENT) return false;
        if (effect->access != ACCESS_READ && !begins_in(arena, kernel, block, at, effect->buf)) return false;
        for (int i = 0; i < item; i++)
            if (stmt_touches(arena, loop->loop.body.items[i], effect->buf)) return false;
    }
    return true;
}

static bool go_first(Arena *arena, const Func *kernel, Block *block, int at) {
    Stmt *loop = block->items[at];
    if (loop->loop.count != 1 || !is_unit(&loop->loop.iters[0])) return false;
    const Iter *iter = &loop->loop.iters[0];
    if (!expr_is_stable(iter->begin)) return false;
    Block *body = &loop->loop.body;
    for (int i = 0; i < body->count; i++) {
        Stmt *stmt = body->items[i];
        if (stmt->kind == STMT_IF && stmt->if_.otherwise.count == 0 &&
            is_first(arena, iter, without_names(arena, body, i, stmt->if_.condition))) {
            Stmt *then = s_block(arena);
            then->block = stmt->if_.then;
            bool can = true;
            FOR_EACH_ITEM (inner, &then->block) can = can && can_go_first(arena, kernel, block, at, i, inner);
            if (!can) continue;
            Subst *subst = subst_new(arena);
            subst_var(subst, iter->var, iter->begin);
            subst_block(subst, &then->block);
            block_remove(body, i);
            for (int j = 0; j < then->block.count; j++) block_insert(arena, block, at + j, then->block.items[j]);
            return true;
        }
        GemmOp gemm;
        if (match_gemm(stmt, &gemm) && gemm.accumulate &&
            is_later(arena, iter, without_names(arena, body, i, gemm.accumulate)) && region_is_whole(gemm.acc)) {
            Arg args[] = {arg_region(region_whole(arena, gemm.acc->buf)),
                          arg_value(e_zero(arena, gemm.acc->buf->type))};
            Stmt *fill = s_call(arena, OP_FILL, COUNT_OF(args), args);
            fill->loc = stmt->loc;
            if (!can_go_first(arena, kernel, block, at, i, fill)) continue;
            ARG(stmt, GEMM, accumulate) = (Arg){0};
            block_insert(arena, block, at, fill);
            return true;
        }
    }
    return false;
}

// ---- declarations ----

static bool hoist_declarations(Arena *arena, Block *block, int at) {
    Block *body = &block->items[at]->loop.body;
    bool changed = false;
    for (int i = 0; i < body->count; i++) {
        Stmt *stmt = body->items[i];
        if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_SHARED || stmt->decl->alias_of) continue;
        block_remove(body, i--);
        block_insert(arena, block, at++, stmt);
        changed = true;
    }
    return changed;
}

// ---- all of them ----

static bool normalize_block(Arena *arena, Func *kernel, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (!is_compound(stmt) || stmt->kind == STMT_THREAD) continue;
        FOR_EACH_BODY (body, stmt) changed |= normalize_block(arena, kernel, body);
        if (count_while(arena, block, i)) {
            changed = true;
            continue;   // the loop, behind the first value of what it counts
        }
        if (wants_expansion(stmt)) {
            expand(arena, block, i--);
            changed = true;
            continue;
        }
        if (!moves_tiles(stmt)) continue;
        int count = block->count;
        bool rewritten = open_singles(arena, stmt, &stmt->loop.body) || take_unit_steps(arena, stmt) ||
                         coalesce(arena, stmt) || induce_all(arena, kernel, block, i) || open_guard(arena, stmt) ||
                         go_first(arena, kernel, block, i) || hoist_declarations(arena, block, i);
        changed |= rewritten;
        if (rewritten) i = i + block->count - count - 1;   // the loop again
    }
    return changed;
}

bool normalize_loops(Arena *arena, Func *kernel) {
    if (!has_free_form(kernel)) return false;
    bool changed = false, again;
    kernel_walk(arena, kernel, bound_single, &changed);
    do {
        bool normal = normalize_block(arena, kernel, &kernel->body), bound = bound_loops(arena, kernel);
        again = normal || bound;
        changed |= again;
    } while (again);
    return changed;
}

bool pass_normalize_loops(PassContext *context, Func *kernel) {
    return normalize_loops(context->arena, kernel);
}
