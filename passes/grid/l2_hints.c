// L2 hints for tiles that few CTAs read.
//
// Data that only one CTA, or two neighbours at the same time, read should not evict from the L2 cache the data that all
// CTAs share:
//
//     grid (bm in rows, bn in columns)    copy(B[bn * 64, k * 64], Bs, evict_first = rows <= 2);
//
// where bm does not occur in the index: with more rows, other CTAs read the tile again, later. (No hint if an index
// depends on both the CTA and the step, `X[y + k, ..]`: neighbours read the same data at other steps.)
//
// If each CTA reads tiles of its own, all CTAs advance through k at the same pace. At any time they read the same
// columns of many rows, and if the row size is a multiple of a large power of two, these addresses fall on few memory
// channels. So CTAs begin at different steps, and wrap around:
//
//     let start = rows <= 1 && K % 2048 == 0 ? bn % 8 * steps / 8 : 0;
//     pipelined (k in steps) {
//         let at = k + start < steps ? k + start : max(k + start - steps, 0);      // (max: for proofs of bounds)
//         copy(A[bm * 16, at * 128], As);
//         copy(B[bn * 64, at * 128], Bs, evict_first = rows <= 2);
//         gemm(As, Bs.T, acc);
//     }
//
// The terms of a sum are added in another order, which is the same in every run. CTAs that share tiles should read the
// same k at the same time, so they all begin with the first step. (H200, 8192 rows of 8192 numbers: 2.5 % with 16 rows
// of A, up to 1.5 % with 64; with 128, where two CTAs read a tile, it lost 2 to 4 %. Rows of 5120 numbers: lost 2 %.)
#include "passes/grid/l2_hints.h"
#include "passes/analysis/live_ranges.h"
#include "passes/lower/lower.h"
#include "passes/specialize/builder.h"

enum { NEIGHBOURS = 2 };

typedef struct L2Hints {
    Arena *arena;
    const Target *target;
    Stmt *grid, *loop;
    Map *inner;    // variables that change within a CTA
    Subst *lets;   // by their values, as far as those do not change
} L2Hints;

// Where the slice begins along a dim, in iterators.
static Expr *start_of(const L2Hints *s, const Region *from, int dim) {
    return subst_expr(s->lets, from->dims[dim].start);
}

static bool moves_with(const L2Hints *s, const Region *from, const Var *var) {
    for (int d = 0; d < from->count; d++)
        if (expr_uses_var(start_of(s, from, d), var)) return true;
    return false;
}

// Fills a tile with a slice of a tensor.
static bool is_load(const Stmt *stmt) {
    return is_global_to_shared_copy(stmt) && buf_is_constant(ARG(stmt, COPY, src).region->buf);
}

// The number of CTAs that read the same slice.
static Expr *readers_of(const L2Hints *s, const Region *from) {
    Expr *readers = e_int(s->arena, 1);
    for (int i = 0; i < s->grid->grid.count; i++) {
        const Iter *iter = &s->grid->grid.iters[i];
        if (!moves_with(s, from, iter->var)) readers = e_mul(s->arena, readers, iter->end);
    }
    return readers;
}

static Expr *at_most(const L2Hints *s, Expr *a, int64_t b) {
    return e_binary(s->arena, BIN_LE, a, e_int(s->arena, b));
}

// An index of neighbouring CTAs differs by a constant, and each continues from there.
static bool reaches_over(const L2Hints *s, const Region *from) {
    for (int d = 0; d < from->count; d++) {
        Expr *start = start_of(s, from, d);
        if (!expr_uses_any(start, s->inner)) continue;
        for (int i = 0; i < s->grid->grid.count; i++) {
            int64_t stride;
            if (linear_in(start, s->grid->grid.iters[i].var, &stride) && stride != 0) return true;
        }
    }
    return false;
}

static void note_stmt(const L2Hints *s, const Stmt *stmt) {
    if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value)) subst_let(s->lets, stmt->let.var, stmt->let.value);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++)
        map_put(s->inner, stmt->loop.iters[i].var, stmt->loop.iters[i].var);
    if (stmt->kind == STMT_LET && expr_uses_any(stmt->let.value, s->inner))
        map_put(s->inner, stmt->let.var, stmt->let.var);
}

static void mark_evict_first(const L2Hints *s, Stmt *load) {
    CopyOp copy = copy_of(load);
    if (copy.evict_first || reaches_over(s, copy.src)) return;
    EXPECT(arena_failure(s->arena), !copy.ctas, "a multicast copy of '%s' gets a hint", copy.src->buf->name);
    Arg few = arg_value(at_most(s, readers_of(s, copy.src), NEIGHBOURS));
    call_set_arg(s->arena, load, OPERAND_INDEX(COPY, evict_first), few);
}

// The load of the largest tile, which streams if the others are few rows. (Code before the first load adds latency to
// the whole kernel, so only one load is tested.)
static const Stmt *largest_load(const Stmt *loop) {
    const Stmt *largest = NULL;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_load(stmt) && (!largest || region_bytes(copy_of(stmt).dst) >= region_bytes(copy_of(largest).dst)))
            largest = stmt;
    }
    return largest;
}

// The dim that an iterator of the grid indexes, and that iterator; NULL: none.
static Expr *number_of(const L2Hints *s, const Region *from, int *dim) {
    for (int i = 0; i < s->grid->grid.count; i++)
        for (*dim = 0; *dim < from->count; ++*dim)
            if (expr_uses_var(start_of(s, from, *dim), s->grid->grid.iters[i].var))
                return e_var(s->arena, s->grid->grid.iters[i].var);
    return NULL;
}

// The first step of a CTA; NULL: step 0 for all.
static Expr *first_step(const L2Hints *s, const Stmt *load) {
    Arena *a = s->arena;
    const Region *from = ARG(load, COPY, src).region;
    int dim;
    Expr *number = number_of(s, from, &dim), *starts = e_int(a, s->target->memory_starts);
    if (!number) return NULL;
    Expr *period = e_int(a, s->target->memory_period / type_bytes(from->buf->type));
    Expr *aligned = e_eq(a, e_mod(a, global_stride(a, from->buf, dim), period), e_int(a, 0));
    Expr *alone = e_and(a, at_most(s, readers_of(s, from), 1), aligned);
    Expr *piece = e_div(a, e_mul(a, e_mod(a, number, starts), s->loop->loop.iters[0].end), starts);
    Expr *start = e_select(a, alone, piece, e_int(a, 0));
    return expr_is_int(start, 0) ? NULL : start;
}

static bool is_one_of(const Expr *e, const void *vars) {
    return e->kind == EXPR_VAR && map_has(vars, e->var);
}

// ---- whether steps may come in any order ----

static bool is_element_of(const Expr *e, const void *buf) {
    return e->kind == EXPR_LOAD && e->load.buf == buf;
}

// A store of x[..] + term to x[..], where the term does not read x.
static bool adds_to_itself(const Stmt *store) {
    const Expr *value = store->store.value;
    if (value->kind != EXPR_BINARY || value->binary.op != BIN_ADD) return false;
    const Expr *sides[] = {value->binary.a, value->binary.b};
    for (int i = 0; i < 2; i++) {
        bool itself = is_element_of(sides[i], store->store.buf);
        for (int d = 0; itself && d < store->store.count; d++)
            itself = expr_equal(sides[i]->load.indices[d], store->store.indices[d]);
        if (itself) return !any_expr(sides[1 - i], is_element_of, store->store.buf);
    }
    return false;
}

// Only adds to the buffer.
static bool only_adds(const Stmt *stmt, const Buf *buf) {
    GemmOp gemm;
    if (match_gemm(stmt, &gemm)) {
        return gemm_adds(&gemm) && gemm.acc->buf == buf && gemm.a->buf != buf && gemm.b->buf != buf;
    }
    if (!is_loop(stmt, LOOP_PARALLEL) || stmt->loop.body.count != 1) return false;
    const Stmt *store = stmt->loop.body.items[0];
    return store->kind == STMT_STORE && store->store.buf == buf && adds_to_itself(store);
}

// Nothing outside of the step sees the buffer, or all that the loop does to it is to add.
static bool is_term_or_sum(const L2Hints *s, const Buf *buf) {
    bool inner = buf->scope == SCOPE_SHARED || buf->scope == SCOPE_FRAGMENT;
    if (!inner) return false;
    if (!loop_carries(s->arena, s->loop, buf) && !is_read_behind(s->arena, &s->grid->grid.body, s->loop, buf))
        return true;
    FOR_EACH_ITEM (stmt, &s->loop->loop.body)
        if (stmt->kind != STMT_DECL && stmt_touches(s->arena, stmt, buf) && !only_adds(stmt, buf)) return false;
    return true;
}

// Each step loads its tiles and adds to sums. No statement except loads, and lets for them, depends on the step's number.
static bool any_order(const L2Hints *s) {
    Arena *arena = s->arena;
    const Stmt *loop = s->loop;
    Map *steps = map_new(arena);
    map_put(steps, loop->loop.iters[0].var, loop->loop.iters[0].var);
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        bool depends = !is_load(stmt) && stmt_any_expr(stmt, is_one_of, steps);
        if (depends && (stmt->kind != STMT_LET || !expr_is_stable(stmt->let.value))) return false;
        if (depends) map_put(steps, stmt->let.var, stmt->let.var);
        if (stmt->kind == STMT_ASSIGN || binds_effect(stmt)) return false;
        FOR_EACH_EFFECT (effect, arena, stmt)
            if (effect->access != ACCESS_READ && !is_term_or_sum(s, effect->buf)) return false;
    }
    return true;
}

static void stagger(const L2Hints *s, int place, Expr *first) {
    Arena *a = s->arena;
    const Iter *iter = &s->loop->loop.iters[0];
    Var *start = var_new(a, "start", VAR_LET, TYPE_I64, s->loop->loc),
        *at = var_new(a, "at", VAR_LET, TYPE_I64, s->loop->loc);
    Expr *step = e_add(a, e_var(a, iter->var), e_var(a, start));
    Expr *wrapped = e_select(a, e_lt(a, step, iter->end), step, e_max(a, e_sub(a, step, iter->end), e_int(a, 0)));
    Subst *subst = subst_new(a);
    subst_var(subst, iter->var, e_var(a, at));
    subst_block(subst, &s->loop->loop.body);
    block_insert(a, &s->loop->loop.body, 0, s_let(a, at, wrapped));
    block_insert(a, &s->grid->grid.body, place, s_let(a, start, first));
}

void l2_hints(Arena *arena, const Target *target, Stmt *grid) {
    L2Hints s = {.arena = arena, .target = target, .grid = grid, .inner = map_new(arena), .lets = subst_new(arena)};
    FOR_EACH_STMT_MUT (stmt, &grid->grid.body) {
        note_stmt(&s, stmt);
        if (is_load(stmt)) mark_evict_first(&s, stmt);
    }
    int place = 0;
    while (place < grid->grid.body.count && !is_pipelined(grid->grid.body.items[place])) place++;
    if (place == grid->grid.body.count) return;
    s.loop = grid->grid.body.items[place];
    if (!any_order(&s)) return;
    const Stmt *load = largest_load(s.loop);
    Expr *start = load ? first_step(&s, load) : NULL;
    if (start) stagger(&s, place, start);
}
