// A reduction for one thread, in three steps, by the position of the axis in the source's layout:
//
//     values     in the thread: part[d] = op(part[d], src[r]) over the thread's own values
//     lanes      in the warp: butterflies, part[d] = op(part[d], shfl_xor(part[d], mask)) for each bit of a lane digit; bools of
//                all lanes by a vote
//     warps      through `scratch`[partial, element]: one lane of each warp writes its partial result, barrier, all
//                threads read all partial results of their elements, in the same order; many partial results are split
//                over the lanes and combined by butterflies. In a cluster the scratch has a slice per CTA (first dim):
//                a partial result is written to each CTA's slice, and each CTA reads its own.
//
// Every thread along the axis ends with the result, in the destination's layout (tv_reduce). If the destination keeps
// the axis, its elements are partial results (lower.h): the threads that number them are not reduced over. Arithmetic
// is in the compute type. Values beyond the source's shape (a padded layout) are left out.
#include "passes/lower/lower_reduce.h"
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include <math.h>

int reduce_op_axis(const Stmt *stmt) {
    int64_t axis = 0;
    expr_const(ARG(stmt, REDUCE_SUM, axis).value, &axis);
    return (int)axis;
}

bool reduces_to_partials(const Stmt *stmt) {
    ReduceOp reduce = reduce_of(stmt);
    int rank = reduce.src->buf->rank;
    return reduce.dst->buf->rank == rank && (rank > 1 || buf_extent(reduce.dst->buf, 0) > 1);
}

static int64_t reduce_partials(const Stmt *stmt) {
    return buf_extent(reduce_of(stmt).dst->buf, reduce_op_axis(stmt));
}

const Layout *reduce_source(Arena *arena, const Stmt *reduce, const Layout *src) {
    if (!reduces_to_partials(reduce)) return src;
    return tv_split_axis(arena, src, reduce_op_axis(reduce), reduce_partials(reduce));
}

const Layout *reduce_result(Arena *arena, const Stmt *reduce, const Layout *src) {
    int axis = reduce_op_axis(reduce);
    if (!reduces_to_partials(reduce)) return tv_reduce(arena, src, axis);
    return tv_partial_reduce(arena, src, axis, reduce_partials(reduce));
}

int64_t scratch_rows(Arena *arena, const Target *target, const Stmt *stmt) {
    const Layout *src = ARG(stmt, REDUCE_SUM, src).region->buf->layout;
    int axis = reduce_op_axis(stmt);
    if (is_scan(stmt)) return scan_scratch(src, axis, target->warp_lanes);
    const Layout *source = reduce_source(arena, stmt, src);
    int64_t pieces = source ? tv_partials_along(source, axis, target->warp_lanes) : 1;
    return pieces > 1 ? pieces : 0;
}

static bool along_axis(const LayoutMode *mode, int axis) {
    return mode->stride != 0 && mode->out == axis;
}

typedef struct Reduce {
    Combiner c;
    const Stmt *stmt;
    Buf *source, *result;
    int axis, rank;
    int dims[LAYOUT_MAX_RANK];   // outputs of `src` that are kept (-1: the single element of a rank-1 source)
    ThreadDigits digits;         // of the threads of `src`
    const Layout *src;           // the source's layout with the reduced digits (reduce_source)
    Buf *partial;                // a local array
    int64_t count;               // results per thread
} Reduce;

static int64_t integer_limit(Type type, bool largest) {
    int bits = type_bits(type);
    if (type_kind(type) == KIND_UINT) return largest ? int_wrap(type, -1) : 0;
    int64_t top = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1;
    return largest ? top : -top - 1;
}

Expr *reduce_identity(Arena *arena, OpId op, Type type) {
    bool real = type_is_float(type);
    switch (op) {
    case OP_REDUCE_SUM: return e_zero(arena, type);
    case OP_REDUCE_PROD: return real ? e_float(arena, type, 1) : e_int_of(arena, type, 1);
    case OP_REDUCE_ANY: return e_bool(arena, false);
    case OP_REDUCE_ALL: return e_bool(arena, true);
    default: {
        if (real) return e_float(arena, type, NAN);   // it loses against a number; of NaNs alone it is the result
        return e_int_of(arena, type, integer_limit(type, op == OP_REDUCE_MIN));
    }
    }
}

// ---- shared with scans ----

Expr *combined(const Combiner *c, Expr *a, Expr *b) {
    switch (c->op) {
    case OP_REDUCE_SUM: return e_add(c->arena, a, b);
    case OP_REDUCE_PROD: return e_mul(c->arena, a, b);
    case OP_REDUCE_MAX: return e_max(c->arena, a, b);
    case OP_REDUCE_MIN: return e_min(c->arena, a, b);
    case OP_REDUCE_ANY: return e_binary(c->arena, BIN_LOGICAL_OR, a, b);
    default:
        EXPECT(arena_failure(c->arena), c->op == OP_REDUCE_ALL, "operation %d combines no partial results", c->op);
        return e_binary(c->arena, BIN_LOGICAL_AND, a, b);
    }
}

Expr *identity(const Combiner *c) {
    return reduce_identity(c->arena, c->op, c->type);
}

Block *counted(const Combiner *c, const char *name, int64_t count, Expr **index, Block *out) {
    return lower_counted(c->lower, LOOP_UNROLL, name, 0, count, c->loc, index, out);
}

Expr *butterfly(const Combiner *c, Buf *buf, Expr *slot, int64_t mask, Block *out) {
    Expr *here = e_load1(c->arena, buf, slot);   // && and || must not skip the shuffle
    Expr *other = e_call2(c->arena, OP_SHFL_XOR, here, e_int(c->arena, mask));
    return combined(c, here, block_let(c->arena, out, "other", other, c->loc));
}

static Region *scratch_place(const Combiner *c, Expr *block, Expr *row, Expr *column) {
    Expr *in[3] = {block, row, column};
    int rank = c->scratch->rank;
    EXPECT(c->lower->context->failure, rank == 2 + (c->blocks > 1), "scratch of rank %d for %lld CTAs", rank,
           (long long)c->blocks);
    return lower_place(c->lower, c->scratch, rank, in + COUNT_OF(in) - rank);
}

void scratch_store(const Combiner *c, bool spread, Expr *row, Expr *column, Expr *value, Block *out) {
    Expr *block = lower_lane(c->lower);
    if (c->blocks > 1 && !spread) out = counted(c, "block", c->blocks, &block, out);
    block_push(c->arena, out, s_store_at(c->arena, scratch_place(c, block, row, column), value));
}

Expr *scratch_load(const Combiner *c, Expr *row, Expr *column) {
    EXPECT(c->lower->context->failure, c->lower->threads % c->blocks == 0, "%lld threads in %lld CTAs",
           (long long)c->lower->threads, (long long)c->blocks);
    Expr *own = e_over(c->arena, lower_thread(c->lower), c->lower->threads / c->blocks);
    return e_load_at(c->arena, scratch_place(c, lower_simple(c->lower, own), row, column));
}

int64_t lanes_that_share(const Combiner *c, int64_t partials) {
    enum { FEW = 4 };   // so many loads take no longer than one load and the butterflies
    int64_t lanes = 1;
    while (partials > FEW && lanes < partials && lanes < c->lower->target->warp_lanes) lanes *= 2;
    return lanes;
}

Block *each_partial(const Combiner *c, int64_t partials, int64_t lanes, Expr **partial, Block *out) {
    Expr *trip, *lane = e_rem(c->arena, lower_thread(c->lower), lanes);
    Block *body = counted(c, "w", (partials + lanes - 1) / lanes, &trip, out);
    *partial = lower_simple(c->lower, e_add(c->arena, e_times(c->arena, trip, lanes), lane));
    Expr *exists = e_lt(c->arena, *partial, e_int(c->arena, partials));
    return block_if(c->arena, body, partials % lanes ? lower_simple(c->lower, exists) : NULL);
}

// ---- in the thread ----

static void put(const Reduce *reduce, Expr *slot, Expr *value, Block *out) {
    block_store1(reduce->c.arena, out, reduce->partial, slot, value);
}

static void add(const Reduce *reduce, Expr *slot, Expr *value, Block *out) {
    put(reduce, slot, combined(&reduce->c, e_load1(reduce->c.arena, reduce->partial, slot), value), out);
}

static void reduce_values(const Reduce *reduce, Block *out) {
    Arena *arena = reduce->c.arena;
    Lower *lower = reduce->c.lower;
    Expr *slot, *value;
    Block *clear = counted(&reduce->c, "d", reduce->count, &slot, out);
    put(reduce, slot, identity(&reduce->c), clear);
    Block *body = counted(&reduce->c, "r", tv_values(reduce->src), &value, out);
    slot = lower_simple(lower, fragment_projected_value(arena, reduce->src, reduce->rank, reduce->dims, value));
    Expr *element = e_cast(arena, reduce->c.type, e_load1(arena, lower_local(lower, reduce->source), value));
    body = block_if(arena, body, lower_inside(lower, reduce->source->layout, reduce->source, value));
    add(reduce, slot, element, body);
}

// ---- in the warp ----

static void push_butterfly(const Reduce *reduce, int64_t mask, Block *out) {
    Expr *slot;
    Block *body = counted(&reduce->c, "d", reduce->count, &slot, out);
    put(reduce, slot, butterfly(&reduce->c, reduce->partial, slot, mask, body), body);
}

static void reduce_digit(const Reduce *reduce, const ThreadDigit *digit, Block *out) {
    for (int64_t step = 1; step < digit->within; step *= 2) push_butterfly(reduce, digit->weight * step, out);
}

// All lanes of the warp are asked at once.
static void reduce_by_vote(const Reduce *reduce, Block *out) {
    Arena *arena = reduce->c.arena;
    Expr *slot;
    Block *body = counted(&reduce->c, "d", reduce->count, &slot, out);
    OpId vote = reduce->c.op == OP_REDUCE_ANY ? OP_VOTE_ANY : OP_VOTE_ALL;
    put(reduce, slot, e_call1(arena, vote, e_load1(arena, reduce->partial, slot)), body);
}

static void reduce_lanes(const Reduce *reduce, Block *out) {
    int64_t lanes = 1;
    VEC_EACH (const ThreadDigit, digit, &reduce->digits)
        if (along_axis(digit->mode, reduce->axis)) lanes *= digit->within;
    bool asks = reduce->c.op == OP_REDUCE_ANY || reduce->c.op == OP_REDUCE_ALL;
    if (asks && lanes == reduce->c.lower->target->warp_lanes) {
        reduce_by_vote(reduce, out);
        return;
    }
    VEC_EACH (const ThreadDigit, digit, &reduce->digits)
        if (along_axis(digit->mode, reduce->axis)) reduce_digit(reduce, digit, out);
}

// ---- across warps ----

// The number of the warp's partial result (from the digits along the axis above the warp). *first_lane: the condition
// of the first lanes along the axis (the others hold the same).
static Expr *warp_partial(const Reduce *reduce, Expr **first_lane) {
    Arena *arena = reduce->c.arena;
    Expr *thread = lower_thread(reduce->c.lower), *partial = e_int(arena, 0), *zero = partial;
    int64_t weight = 1;
    *first_lane = NULL;
    VEC_EACH (const ThreadDigit, d, &reduce->digits) {
        Expr *digit = e_rem(arena, e_over(arena, thread, d->weight), d->mode->extent);
        bool along = along_axis(d->mode, reduce->axis);
        if (along && d->above > 1) {
            partial = e_add(arena, partial, e_times(arena, e_over(arena, digit, d->within), weight));
            weight *= d->above;
        }
        if (along && d->within > 1)
            *first_lane = e_both(arena, *first_lane, e_eq(arena, e_rem(arena, digit, d->within), zero));
        if (d->mode->stride == 0) *first_lane = e_both(arena, *first_lane, e_eq(arena, digit, zero));
    }
    return lower_simple(reduce->c.lower, partial);
}

// Number of consecutive results of a thread.
static int64_t results_in_a_run(const Reduce *reduce, int64_t extent) {
    const Layout *layout = reduce->result->layout;
    const LayoutMode *first = layout->in[TV_VALUE].modes;
    bool next = layout->in[TV_VALUE].count > 0 && first->out == layout->rank_out - 1 && first->stride == 1;
    return next && extent % first->extent == 0 ? first->extent : 1;
}

// Number of the thread's result `slot` among all results in the scratch: row-major, but results of lanes are adjacent,
// not those of a thread, to avoid bank conflicts.
static Expr *result_number(const Reduce *reduce, Expr *slot) {
    Arena *arena = reduce->c.arena;
    const Buf *dst = reduce->result;
    Expr *in[2] = {lower_thread(reduce->c.lower), slot}, *at[LAYOUT_MAX_RANK], *number = e_int(arena, 0);
    layout_forward(arena, reduce->c.lower->facts, dst->layout, in, at);
    int last = dst->rank - 1;
    int64_t extent = buf_extent(dst, last), run = results_in_a_run(reduce, extent);
    Expr *within = e_times(arena, e_rem(arena, at[last], run), extent / run);
    at[last] = e_add(arena, within, e_over(arena, at[last], run));
    for (int d = 0; d <= last; d++) number = e_add(arena, e_mul(arena, number, dst->shape[d]), at[d]);
    return lower_simple(reduce->c.lower, number);
}

static Expr *result_exists(const Reduce *reduce, Expr *slot) {
    return lower_inside(reduce->c.lower, reduce->result->layout, reduce->result, slot);
}

// All lanes of a warp hold the same results.
static bool lanes_agree(const Reduce *reduce) {
    int64_t lanes = reduce->c.lower->target->warp_lanes;
    ThreadDigits digits = tv_thread_digits(reduce->result->layout, lanes);
    VEC_EACH (const ThreadDigit, digit, &digits)
        if (digit->mode->stride != 0 && digit->mode->extent > 1 && digit->weight % lanes) return false;
    return tv_threads(reduce->result->layout) % lanes == 0;
}

// One lane of each warp writes; in a cluster that shares the reduction, to the scratch of each CTA.
static void write_partials(const Reduce *reduce, Block *out) {
    const Combiner *c = &reduce->c;
    Arena *arena = c->arena;
    Expr *slot, *first_lane, *own = warp_partial(reduce, &first_lane);
    bool spread = c->blocks > 1 && tv_replicas(reduce->src) == 1 && lanes_agree(reduce);   // one lane per CTA
    if (spread) first_lane = e_lt(arena, lower_lane(c->lower), e_int(arena, c->blocks));
    out = block_if(arena, out, first_lane ? lower_simple(c->lower, first_lane) : NULL);
    Block *body = counted(c, "d", reduce->count, &slot, out);
    body = block_if(arena, body, result_exists(reduce, slot));
    scratch_store(c, spread, own, result_number(reduce, slot), e_load1(arena, reduce->partial, slot), body);
}

// Every thread reads all partial results, or the lanes of a warp split them, one load each per round, and combine them
// by butterflies.
static void read_partials(const Reduce *reduce, int64_t partials, int64_t lanes, Block *out) {
    const Combiner *c = &reduce->c;
    Expr *slot, *partial;
    Block *body = counted(c, "d", reduce->count, &slot, out);
    body = block_if(c->arena, body, result_exists(reduce, slot));
    put(reduce, slot, identity(c), body);
    body = each_partial(c, partials, lanes, &partial, body);
    add(reduce, slot, scratch_load(c, partial, result_number(reduce, slot)), body);
    for (int64_t mask = 1; mask < lanes; mask *= 2) push_butterfly(reduce, mask, out);
}

static void reduce_warps(const Reduce *reduce, int64_t partials, Block *out) {
    const Buf *result = reduce->result;
    EXPECT(reduce->c.lower->context->failure, reduce->c.scratch, "a reduction across warps has no scratch");
    write_partials(reduce, out);
    block_barrier(reduce->c.arena, out, (Span){0});
    bool whole = true;   // every slot is an element of the destination
    for (int d = 0; d < result->rank; d++) whole &= result->layout->out_shape[d] <= buf_extent(result, d);
    bool shared = whole && lanes_agree(reduce);
    read_partials(reduce, partials, shared ? lanes_that_share(&reduce->c, partials) : 1, out);
}

// ---- the result ----

static void store_result(const Reduce *reduce, Block *out) {
    Arena *arena = reduce->c.arena;
    Buf *to = lower_local(reduce->c.lower, reduce->result);
    const Expr *accumulate = reduce_of(reduce->stmt).accumulate;
    Expr *slot;
    Block *body = counted(&reduce->c, "d", reduce->count, &slot, out);
    Expr *value = e_load1(arena, reduce->partial, slot);
    if (accumulate && expr_is_int(accumulate, 1))
        value = combined(&reduce->c, e_cast(arena, reduce->c.type, e_load1(arena, to, slot)), value);
    body = block_if(arena, body, result_exists(reduce, slot));
    block_store1(arena, body, to, slot, e_cast(arena, to->type, value));
}

Combiner combiner_of(Lower *lower, const Stmt *stmt, OpId op) {
    const Buf *src = ARG(stmt, REDUCE_SUM, src).region->buf, *dst = ARG(stmt, REDUCE_SUM, dst).region->buf;
    EXPECT(lower->context->failure,
           src->scope == SCOPE_FRAGMENT && dst->scope == SCOPE_FRAGMENT && src->layout && dst->layout,
           "the operands of a %s of '%s' are not fragments with layouts", op_info(stmt->call.op)->text, src->name);
    const Region *scratch = stmt_scratch(stmt);
    return (Combiner){.lower = lower,
                      .arena = lower->arena,
                      .loc = stmt->loc,
                      .op = op,
                      .type = type_compute(dst->type),
                      .scratch = scratch ? scratch->buf : NULL,
                      .blocks = grid_blocks(func_grid(lower->kernel))};
}

void lower_reduce(Lower *lower, Stmt *stmt, Block *out) {
    Buf *src = reduce_of(stmt).src->buf, *dst = reduce_of(stmt).dst->buf;
    Reduce reduce = {.c = combiner_of(lower, stmt, stmt->call.op), .stmt = stmt, .source = src, .result = dst};
    reduce.axis = reduce_op_axis(stmt);
    for (int d = 0; d < src->rank; d++) {
        if (d != reduce.axis) reduce.dims[reduce.rank++] = d;
        else if (reduces_to_partials(stmt)) reduce.dims[reduce.rank++] = src->rank;
    }
    if (reduce.rank == 0) reduce.dims[reduce.rank++] = -1;
    reduce.src = reduce_source(lower->arena, stmt, src->layout);
    reduce.count = tv_values(dst->layout);
    EXPECT(lower->context->failure, reduce.src, "the threads of '%s' along the axis are not split evenly", src->name);
    reduce.digits = tv_thread_digits(reduce.src, lower->target->warp_lanes);
    Block *body = block_nested(lower->arena, out, (Span){0});
    int mark = facts_mark(lower->facts);
    reduce.partial = block_local(lower->arena, body, "acc", reduce.c.type, reduce.count, stmt->loc);
    reduce_values(&reduce, body);
    reduce_lanes(&reduce, body);
    int64_t partials = tv_partials_along(reduce.src, reduce.axis, lower->target->warp_lanes);
    if (partials > 1) reduce_warps(&reduce, partials, body);
    store_result(&reduce, body);
    facts_release(lower->facts, mark);
}
