// hoist-indices: reads the indices of a gather before the loop that gathers the same rows in each iteration.
//
//     for (k in steps) {                                     fragment index: i32[128];
//         parallel (i in 128, j in 64)                       parallel (i in 128) index[i] = rows[m * 128 + i];
//             Xs[i, j] = X[i64(rows[m * 128 + i]),           for (k in steps) {
//                          k * 64 + j];                          parallel (i in 128, j in 64)
//     }                                                              Xs[i, j] = X[i64(index[i]), k * 64 + j];
//                                                            }
//
// The copies of an iteration cannot start before its indices have come: a read and a wait for each step, in the warps
// that the products wait for. LLVM moves no read out of a loop that waits.
//
// It takes indices of started copies, and terms of them, that read tensors which nothing writes or divide by variables,
// depend on one iterator of the parallel loop, and on nothing that the loop binds or assigns. (An index out of range reads
// 0, so a condition around the copy need not hold; where it does not, a divisor may be 0.) They stay in registers: as
// many as a thread that gathers has for its addresses.
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "support/numbers.h"

typedef struct Kept {
    Expr *value;
    Buf *buf;
} Kept;

typedef struct Hoister {
    Arena *arena;
    const Target *target;
    int64_t threads;    // of the group that runs the loop
    const Stmt *copy;   // the parallel loop
    Map *bound;         // variables that the serial loop declares
    Block *out;         // before it
    VEC(Kept) kept;
    bool changed;
} Hoister;

// ---- what can move ----

static bool stays(const Expr *expr, const void *bound) {
    if (expr->kind == EXPR_LOAD) return !buf_is_constant(expr->load.buf);
    return expr->kind == EXPR_VAR && (expr->var->kind == VAR_MUTABLE || map_get(bound, expr->var) != NULL);
}

// The iterator of the copy that the index depends on; NULL: none or several.
static const Iter *only_iterator(const Hoister *h, const Expr *index) {
    const Iter *found = NULL;
    for (int i = 0; i < h->copy->loop.count; i++) {
        const Iter *iter = &h->copy->loop.iters[i];
        if (!expr_uses_var(index, iter->var)) continue;
        if (found) return NULL;
        found = iter;
    }
    return found;
}

static bool whole_iterator(const Iter *iter, int64_t *extent) {
    return expr_is_int(iter->begin, 0) && expr_is_int(iter->step, 1) && expr_const(iter->end, extent);
}

// Registers for the indices, this one too: each of a copy's rows is divided among as many threads as it has vectors.
static bool fits(const Hoister *h, const Iter *iter, const Buf *gathered) {
    int64_t elements = 1, extent;
    for (int i = 0; i < h->copy->loop.count; i++) {
        if (!whole_iterator(&h->copy->loop.iters[i], &extent)) return false;
        elements *= extent;
    }
    whole_iterator(iter, &extent);
    int64_t vectors = ceil_div(elements * type_bits(gathered->type), h->target->vector_bytes * 8);
    return (h->kept.count + 1) * ceil_div(vectors < extent ? extent : vectors, h->threads) <=
           h->target->registers_gatherer - h->target->registers_loader;
}

static Expr *guard_division(Mapper *mapper, Expr *expr) {
    Expr *by = expr_divisor(expr);
    if (!by) return expr;
    Expr *some = e_binary(mapper->arena, BIN_NE, by, e_int_of(mapper->arena, by->type, 0));
    return e_select(mapper->arena, some, expr, e_zero(mapper->arena, expr->type));
}

// The fragment that holds the index for each of the iterator's values.
static Buf *kept_index(Hoister *h, const Iter *iter, Expr *index) {
    VEC_EACH (const Kept, known, &h->kept)
        if (expr_equal(known->value, index)) return known->buf;
    Arena *arena = h->arena;
    Buf *buf = buf_new(arena, "index", SCOPE_FRAGMENT, index->type, 1, &iter->end, h->copy->loc);
    Var *var = var_new(arena, iter->var->name, iter->var->kind, iter->var->type, h->copy->loc);
    Stmt *loop = s_for(arena, LOOP_PARALLEL, var, iter->begin, iter->end);
    loop->loc = h->copy->loc;
    Subst *subst = subst_new(arena);
    subst_var(subst, iter->var, e_var(arena, var));
    Expr *value = map_expr(&(Mapper){.arena = arena, .expr = guard_division}, subst_expr(subst, index));
    block_store1(arena, &loop->loop.body, buf, e_var(arena, var), value);
    block_push(arena, h->out, s_decl(arena, buf));
    block_push(arena, h->out, loop);
    vec_push(arena, &h->kept, ((Kept){index, buf}));
    return buf;
}

static Expr *replaced_index(Hoister *h, const Buf *gathered, Expr *index);

// Of an index that moves on with the loop, what does not.
static Expr *replaced_terms(Hoister *h, const Buf *gathered, Expr *index) {
    if (!is_binary(index, BIN_ADD) && !is_binary(index, BIN_SUB) && !is_binary(index, BIN_MUL)) return index;
    Expr *a = replaced_index(h, gathered, index->binary.a), *b = replaced_index(h, gathered, index->binary.b);
    return a == index->binary.a && b == index->binary.b ? index : e_binary(h->arena, index->binary.op, a, b);
}

static Expr *replaced_index(Hoister *h, const Buf *gathered, Expr *index) {
    if (index->kind == EXPR_CAST) {   // what is cast has fewer bits
        Expr *value = replaced_index(h, gathered, index->operand);
        return value == index->operand ? index : e_cast(h->arena, index->type, value);
    }
    if (!(expr_reads_memory(index) || expr_divides(index)) || !expr_is_pure(index)) return index;
    if (any_expr(index, stays, h->bound)) return replaced_terms(h, gathered, index);
    const Iter *iter = only_iterator(h, index);
    if (!iter || !fits(h, iter, gathered)) return index;
    return e_load1(h->arena, kept_index(h, iter, index), e_var(h->arena, iter->var));
}

static Expr *replace(Mapper *mapper, Expr *expr) {
    Hoister *h = mapper->user;
    if (expr->kind != EXPR_LOAD || expr->load.buf->scope != SCOPE_GLOBAL) return NULL;
    Expr *indices[LAYOUT_MAX_RANK];
    bool found = false;
    for (int d = 0; d < expr->load.count; d++) {
        indices[d] = replaced_index(h, expr->load.buf, expr->load.indices[d]);
        found |= indices[d] != expr->load.indices[d];
    }
    if (!found) return NULL;
    Expr *load = e_load(h->arena, expr->load.buf, expr->load.count, indices);
    load->loc = expr->loc;
    return load;
}

// ---- the walk ----

static void collect_bound(Hoister *h, const Stmt *serial) {
    h->bound = map_new(h->arena);
    FOR_EACH_STMT_IN (stmt, serial) {
        Iter *iters;
        int count = stmt_iters(stmt, &iters);
        if (!is_loop(stmt, LOOP_PARALLEL))
            for (int i = 0; i < count; i++) map_put(h->bound, iters[i].var, h);
        if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) map_put(h->bound, stmt->let.var, h);
    }
}

static void hoist_from(Hoister *h, Stmt *serial, Block *out) {
    collect_bound(h, serial);
    h->out = out;
    h->kept.count = 0;
    FOR_EACH_STMT_IN (stmt, serial) {
        const Stmt *store = is_loop(stmt, LOOP_PARALLEL) && via_is(stmt, VIA_CP_ASYNC) ? gathering_store(stmt) : NULL;
        if (!store) continue;
        h->copy = stmt;
        Mapper mapper = {.arena = h->arena, .replace = replace, .user = h};
        map_block(&mapper, (Block *)&stmt->loop.body);
        h->changed |= mapper.changed;
    }
}

static void hoist_block(Hoister *h, Block *block) {
    Block out = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int64_t threads = h->threads;
        if (stmt->kind == STMT_GRID) expr_const(stmt->grid.threads, &h->threads);
        if (stmt->kind == STMT_ROLE) h->threads = stmt->role.threads;
        if (is_loop(stmt, LOOP_SERIAL)) hoist_from(h, stmt, &out);
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        for (int j = 0; j < count; j++) hoist_block(h, bodies[j]);
        h->threads = threads;
        block_push(h->arena, &out, stmt);
    }
    *block = out;
}

bool pass_hoist_indices(PassContext *context, Func *kernel) {
    Hoister h = {.arena = context->arena, .target = context->target, .threads = 1};
    hoist_block(&h, &kernel->body);
    return h.changed;
}
