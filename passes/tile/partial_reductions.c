// partial-reductions: a reduction that accumulates over a loop is done in each thread first, and across threads once,
// after the loop.
//
//     fill(sum, 0);                                       fragment part: f32[64, 4] layout ...;     4 threads share a row
//     for (n in steps) {                                  fill(part, 0);
//         ...                                             for (n in steps) {
//         parallel (i in 64) {                                ...
//             alpha[i] = ...;                                 parallel (i in 64) alpha[i] = ...;
//             sum[i] *= alpha[i];                             parallel (i in 64, q in 4) part[i, q] *= alpha[i];
//         }                                                   reduce_sum(s, part, axis = 1, accumulate = true);
//         reduce_sum(s, sum, axis = 1,                    }
//                    accumulate = true);                  reduce_sum(part, sum, axis = 1);
//     }
//
// `part` has an element for each thread along the axis, so that accumulating needs additions in registers only: no
// shuffles, scratch or barriers. The language allows any grouping of the terms of a reduction.
//
// Candidates, any number for a `sum`, are consecutive statements of a block, with a loop among them, whose only uses of
// `sum` are accumulating reductions of one op over one axis, from sources of one layout, and, if the op is a sum,
// multiplications by factors that are equal for a row. Partial results start with what `sum` was filled with just
// before, the identity of the op or, of a maximum, any constant. Without such a fill `sum` is still scaled too, and the
// partial results are accumulated onto it.
//
// Declined: reductions within one thread, with more threads along the axis than elements, of a `sum` declared in the
// loop, reductions that are read within the loop (a running maximum), and factors on which an `if` or a later statement
// of the same loop depends.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "layout/distribution.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "support/map.h"

// One candidate: what is found about the statements that update `sum`.
typedef struct Sum {
    Arena *arena;
    Buf *sum;
    Buf *partial;         // when rewriting
    const Stmt *reduce;   // the first reduction; others are like it
    bool in_loop;         // a reduction stands in a loop
    bool scales;
    bool whole;   // a fill before gives the partial results their start: `sum` itself need not be updated
} Sum;

// ---- updates ----

static bool accumulates(const Stmt *reduce) {
    return expr_is_int(reduce_of(reduce).accumulate, 1);
}

static const Layout *source_layout(const Stmt *reduce) {
    return reduce_of(reduce).src->buf->layout;
}

static bool is_like(const Stmt *a, const Stmt *b) {
    return a->call.op == b->call.op && reduce_op_axis(a) == reduce_op_axis(b) &&
           layout_equal(source_layout(a), source_layout(b));
}

static bool is_accumulation(const Sum *s, const Stmt *stmt) {
    ReduceOp reduce;
    if (!match_reduce(stmt, &reduce) || reduce.dst->buf != s->sum || !region_is_whole(reduce.dst)) return false;
    const Buf *src = reduce.src->buf;
    return accumulates(stmt) && src->scope == SCOPE_FRAGMENT && src->layout && src != s->sum &&
           region_is_whole(reduce.src) && !reduce.src->transposed && (!s->reduce || is_like(stmt, s->reduce));
}

// sum[i] = sum[i] * f: f, else NULL.
static Expr *factor_of(const Sum *s, const Stmt *stmt) {
    Expr *factor = scale_of(stmt);
    if (!factor || stmt->store.buf != s->sum) return NULL;
    return expr_uses_buf(factor, s->sum) || !expr_is_pure(factor) ? NULL : factor;
}

// Something after statement `at` of the body, the one at `but` aside, writes what `at` reads.
static bool overwritten(const Sum *s, const Block *body, int at, int but) {
    FOR_EACH_EFFECT (effect, s->arena, body->items[at])
        for (int i = at + 1; i < body->count; i++)
            if (i != but && stmt_writes(s->arena, body->items[i], effect->buf)) return true;
    return false;
}

// The update at `at` may as well come after the loop over `body`, with the lets before it.
static bool may_follow(const Sum *s, const Block *body, int at) {
    if (overwritten(s, body, at, at)) return false;
    for (int i = 0; i < at; i++) {
        const Stmt *stmt = body->items[i];
        if (stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) return false;
        if (stmt->kind == STMT_LET && (!expr_is_pure(stmt->let.value) || overwritten(s, body, i, at))) return false;
    }
    return true;
}

// Every index an iterator of the loop, each once, and all of them.
static bool scales_all(const Sum *s, Stmt *loop, const Stmt *store) {
    TileLoop space;
    int dims[LAYOUT_MAX_RANK];
    if (!tile_loop_of(s->arena, loop, &space) || space.rank != s->sum->rank) return false;
    bool all = index_dims(&space, store->store.count, store->store.indices, dims);
    for (int d = 0; d < space.rank && all; d++) all = dims[d] >= 0 && space.extents[dims[d]] == buf_extent(s->sum, d);
    return all;
}

static int scaling_at(const Sum *s, Stmt *loop) {
    const Block *body = &loop->loop.body;
    for (int i = 0; i < body->count; i++)
        if (factor_of(s, body->items[i])) return scales_all(s, loop, body->items[i]) && may_follow(s, body, i) ? i : -1;
    return -1;
}

// At block level, of the one result of a rank-1 source.
static bool is_element_scaling(const Sum *s, const Stmt *stmt) {
    return s->sum->rank == 1 && buf_extent(s->sum, 0) == 1 && factor_of(s, stmt);
}

static bool updates_only(Sum *s, const Block *block, bool in_loop);

// The statement does nothing with the sum but update it; what is found out goes to `s`.
static bool stmt_updates_only(Sum *s, Stmt *stmt, bool in_loop) {
    if (stmt->kind == STMT_DECL && stmt->decl == s->sum) return false;   // another one in each iteration
    if (!stmt_uses_buf(stmt, s->sum)) return true;
    if (is_accumulation(s, stmt)) {
        if (!s->reduce) s->reduce = stmt;
        s->in_loop |= in_loop;
        return true;
    }
    if (is_element_scaling(s, stmt)) return s->scales = true;
    if (is_loop(stmt, LOOP_PARALLEL)) {
        int at = scaling_at(s, stmt);
        for (int i = 0; i < stmt->loop.body.count; i++)
            if (i != at && stmt_uses_buf(stmt->loop.body.items[i], s->sum)) return false;
        return s->scales = at >= 0;
    }
    Stmt alone = stmt_alone(stmt);
    bool loops = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    if (stmt_uses_buf(&alone, s->sum)) return false;
    FOR_EACH_BODY (body, stmt)
        if (!updates_only(s, body, in_loop || loops)) return false;
    return true;
}

static bool updates_only(Sum *s, const Block *block, bool in_loop) {
    FOR_EACH_ITEM (stmt, block)
        if (!stmt_updates_only(s, stmt, in_loop)) return false;
    return true;
}

// ---- rewriting ----

// part[i, q] = part[i, q] * f for all i and q: the loop's scaling of the sum, for each part.
static Stmt *scale_partials(const Sum *s, const Stmt *loop, int at) {
    Arena *arena = s->arena;
    Stmt *scale = clone_stmt(arena, NULL, loop), *store = scale->loop.body.items[at];
    int axis = reduce_op_axis(s->reduce), rank = s->partial->rank;
    Var *q = var_new(arena, "q", VAR_ITER, TYPE_I64, loop->loc);
    Iter partials = iter_new(arena, q, e_int(arena, buf_extent(s->partial, axis)));
    iter_insert(arena, &scale->loop.iters, &scale->loop.count, scale->loop.count, partials);
    EXPECT(arena_failure(arena), axis < rank && rank <= scale->loop.count,
           "%d loops over the parts of '%s', of rank %d", scale->loop.count, s->sum->name, rank);
    scale->loc = store->loc;
    scale->attrs = NULL;
    Block body = {0};
    for (int i = 0; i < at; i++)   // its lets; simplify drops what it does not need
        if (scale->loop.body.items[i]->kind == STMT_LET) block_push(arena, &body, scale->loop.body.items[i]);
    Expr *indices[LAYOUT_MAX_RANK], *factor = e_cast(arena, s->partial->type, factor_of(s, store));
    for (int d = 0, from = 0; d < rank; d++) indices[d] = d == axis ? e_var(arena, q) : store->store.indices[from++];
    Expr *value = e_binary(arena, BIN_MUL, e_load(arena, s->partial, rank, indices), factor);
    block_push(arena, &body, s_store(arena, s->partial, rank, indices, value));
    scale->loop.body = body;
    return scale;
}

static void rewrite_update(Sum *s, Stmt *stmt, Block *out);

static void rewrite_updates(Sum *s, Block *block) {
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) rewrite_update(s, stmt, &out);
    *block = out;
}

static void rewrite_parallel(Sum *s, Stmt *loop, Block *out) {
    int at = scaling_at(s, loop);
    EXPECT(arena_failure(s->arena), at >= 0, "a loop that uses '%s' does not scale it", s->sum->name);
    Stmt *scale = scale_partials(s, loop, at);
    if (s->whole) block_remove(&loop->loop.body, at);
    if (loop->loop.body.count > 0) block_push(s->arena, out, loop);
    block_push(s->arena, out, scale);
}

static void rewrite_update(Sum *s, Stmt *stmt, Block *out) {
    if (!stmt_uses_buf(stmt, s->sum)) {
        block_push(s->arena, out, stmt);
    } else if (is_accumulation(s, stmt)) {
        ARG(stmt, REDUCE_SUM, dst) = arg_region(region_whole(s->arena, s->partial));
        block_push(s->arena, out, stmt);
    } else if (stmt->kind == STMT_STORE) {
        Stmt *loop = stmt_new(s->arena, STMT_FOR, stmt->loc);   // without iterators
        loop->loop.kind = LOOP_PARALLEL;
        block_push(s->arena, &loop->loop.body, stmt);
        if (!s->whole) block_push(s->arena, out, stmt);
        block_push(s->arena, out, scale_partials(s, loop, 0));
    } else if (is_loop(stmt, LOOP_PARALLEL)) {
        rewrite_parallel(s, stmt, out);
    } else {
        FOR_EACH_BODY (body, stmt) rewrite_updates(s, body);
        block_push(s->arena, out, stmt);
    }
}

static void push_reduction_to_sum(const Sum *s, Block *out) {
    BLOCK_CALL(s->arena, out, s->reduce->loc, s->reduce->call.op, arg_region(region_whole(s->arena, s->partial)),
               arg_region(region_whole(s->arena, s->sum)), arg_int(s->arena, reduce_op_axis(s->reduce)),
               s->whole ? (Arg){0} : arg_value(e_bool(s->arena, true)), (Arg){0});
}

static Buf *new_partials(const Sum *s, int64_t partials) {
    const Buf *src = reduce_of(s->reduce).src->buf;
    int axis = reduce_op_axis(s->reduce);
    int64_t shape[LAYOUT_MAX_RANK];
    for (int d = 0; d < src->rank; d++) shape[d] = d == axis ? partials : buf_extent(src, d);
    Buf *partial = buf_new_const(s->arena, "partial", SCOPE_FRAGMENT, type_compute(s->sum->type), src->rank, shape,
                                 s->reduce->loc);
    partial->made_of = s->sum;
    partial->layout = tv_partial_reduce(s->arena, src->layout, axis, partials);
    EXPECT(arena_failure(s->arena), partial->layout, "no layout for the parts of '%s'", s->sum->name);
    return partial;
}

// ---- candidates ----

// The identity of the op, or, where a term may count twice, any constant: what partial results may start with.
static bool may_start(const Sum *s, const Expr *value) {
    OpId op = s->reduce->call.op;
    if (op == OP_REDUCE_SUM || op == OP_REDUCE_PROD)
        return expr_equal(value, reduce_identity(s->arena, op, s->sum->type));
    return value->kind == EXPR_INT || value->kind == EXPR_FLOAT;
}

// The fill that is the last to touch `sum` before statement `at`, if partial results may start with its value, which
// comes in *start; -1.
static int fill_before(const Sum *s, const Block *block, int at, Expr **start) {
    for (int i = at - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_DECL || !stmt_uses_buf(stmt, s->sum)) continue;
        FillOp fill;
        if (!match_fill(stmt, &fill) || !region_is_whole(fill.dst)) return -1;
        *start = e_cast(s->arena, s->sum->type, fill.value);
        return may_start(s, *start) ? i : -1;
    }
    return -1;
}

// Statements from .. to - 1 of the block update the sum only.
static void reductions(PassContext *context, Block *block, int from, int to, Sum *s) {
    Arena *arena = context->arena;
    const Stmt *first = s->reduce;
    int64_t partials = tv_threads_along(source_layout(first), reduce_op_axis(first));
    Expr *start = NULL;
    int fill = fill_before(s, block, from, &start);
    s->partial = new_partials(s, partials);
    s->whole = fill >= 0;
    Block out = {0};
    for (int i = 0; i < block->count; i++) {
        if (i == from) {
            Expr *value = s->whole ? e_cast(arena, s->partial->type, start)
                                   : reduce_identity(arena, first->call.op, s->partial->type);
            block_push(arena, &out, s_decl(arena, s->partial));
            BLOCK_CALL(arena, &out, first->loc, OP_FILL, arg_region(region_whole(arena, s->partial)), arg_value(value));
        }
        if (i >= from && i < to) rewrite_update(s, block->items[i], &out);
        else if (i != fill) block_push(arena, &out, block->items[i]);
        if (i == to - 1) push_reduction_to_sum(s, &out);
    }
    *block = out;
    REMARK_NOTE(context, first->loc, T_PARTIAL_REDUCTION, s->sum->name, "%lld threads", (long long)partials);
}

static bool shares(const Sum *s) {
    if (!s->reduce || !s->in_loop || reduces_to_partials(s->reduce)) return false;
    if (s->scales && s->reduce->call.op != OP_REDUCE_SUM) return false;
    const Layout *layout = source_layout(s->reduce);
    int axis = reduce_op_axis(s->reduce);
    int64_t partials = tv_threads_along(layout, axis);
    if (partials > buf_extent(reduce_of(s->reduce).src->buf, axis)) return false;   // some threads have no element
    return partials > 1 && tv_partial_reduce(s->arena, layout, axis, partials);
}

// The longest run of statements from `from` on that update `sum` only, ending with one that does.
static bool try_run(PassContext *context, Block *block, int from, Buf *sum) {
    Sum s = {.arena = context->arena, .sum = sum};
    int to = from;
    for (int i = from; i < block->count; i++) {
        Sum before = s;
        if (!stmt_updates_only(&s, block->items[i], false)) {
            s = before;
            break;
        }
        if (stmt_uses_buf(block->items[i], sum)) to = i + 1;
    }
    if (!shares(&s)) return false;
    reductions(context, block, from, to, &s);
    return true;
}

static bool partial_in_block(PassContext *context, Block *block) {
    VEC(Buf *) sums = {0};
    Map *seen = map_new(context->arena);
    bool changed = false;
    FOR_EACH_STMT (stmt, block) {
        if (!is_reduction(stmt) || !accumulates(stmt) || reduces_to_partials(stmt)) continue;
        Buf *sum = reduce_of(stmt).dst->buf;
        if (sum->scope != SCOPE_FRAGMENT || map_has(seen, sum)) continue;
        map_put(seen, sum, sum);
        vec_push(context->arena, &sums, sum);
    }
    VEC_EACH_PTR (Buf, sum, &sums)
        for (int i = 0; i < block->count; i++)
            if (block->items[i]->kind != STMT_DECL && stmt_uses_buf(block->items[i], sum))
                changed |= try_run(context, block, i, sum);
    FOR_EACH_ITEM (stmt, block)
        FOR_EACH_BODY (body, stmt)
            if (!is_loop(stmt, LOOP_PARALLEL)) changed |= partial_in_block(context, body);
    return changed;
}

bool pass_partial_reductions(PassContext *context, Func *kernel) {
    bool changed = partial_in_block(context, &kernel->body);
    if (changed) pass_layout_inference(context, kernel);
    return changed;
}
