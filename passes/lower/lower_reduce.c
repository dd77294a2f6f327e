// A reduction for one thread, in three steps by where the axis lies in the source's layout:
//
// A destination that keeps the axis has partial results (lower.h): the threads that number them are not reduced over.
//
//     values     in the thread: part[d] = op(part[d], src[r]) over the thread's own values
//     lanes      in the warp: butterflies, part[d] = op(part[d], shfl_xor(part[d], mask)) for each bit of a lane digit
//     warps      through `scratch`[warp part, element]: one lane of each warp writes its part, barrier, all threads read all
//                parts of their elements, in the same order (the scratch of a cluster's blocks has a first index, the block:
//                a part is written to each block's slice, and read from the own); many parts are shared by the lanes, which meet by butterflies
//
// Every thread along the axis ends with the result, which is the destination's layout (tv_reduce). Arithmetic is in the
// compute type. Values beyond the source's shape (a padded layout) are left out.
#include "ir/build.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"

int reduce_op_axis(const Stmt *reduce) {
    int64_t axis = 0;
    expr_const(reduce->call.args[REDUCE_AXIS].value, &axis);
    return (int)axis;
}

bool reduces_to_partials(const Stmt *reduce) {
    const Buf *src = reduce->call.args[REDUCE_SRC].region->buf, *dst = reduce->call.args[REDUCE_DST].region->buf;
    return dst->rank == src->rank && (src->rank > 1 || buf_extent(dst, 0) > 1);
}

static int64_t reduce_partials(const Stmt *reduce) {
    return buf_extent(reduce->call.args[REDUCE_DST].region->buf, reduce_op_axis(reduce));
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

static bool along_axis(const LayoutMode *mode, int axis) {
    return mode->stride != 0 && mode->out == axis;
}

typedef struct Reduce {
    Lower *lower;
    Arena *arena;
    Stmt *stmt;
    OpId op;
    int axis, rank;
    int dims[LAYOUT_MAX_RANK];   // outputs of `src` that stay (-1: the single element of a rank-1 source)
    const Layout *whole;         // the source's
    const Layout *src, *dst;     // the source's as it is reduced (reduce_source), the destination's
    Type type;                   // of the arithmetic
    Buf *from, *to, *partial;    // local arrays
    int64_t count;               // results per thread
    int64_t blocks;              // that share the threads: each has its own scratch, with all parts
} Reduce;

Expr *reduce_combine(Arena *arena, OpId op, Expr *a, Expr *b) {
    switch (op) {
    case OP_REDUCE_SUM: return e_add(arena, a, b);
    case OP_REDUCE_PROD: return e_mul(arena, a, b);
    case OP_REDUCE_MAX: return e_max(arena, a, b);
    case OP_REDUCE_MIN: return e_min(arena, a, b);
    case OP_REDUCE_ANY: return e_binary(arena, BIN_LOGICAL_OR, a, b);
    default: return e_binary(arena, BIN_LOGICAL_AND, a, b);
    }
}

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
        bool largest = op == OP_REDUCE_MIN;
        if (real) return e_float(arena, type, largest ? 1.0 / 0.0 : -1.0 / 0.0);
        return e_int_of(arena, type, integer_limit(type, largest));
    }
    }
}

static Expr *combine(Reduce *reduce, Expr *a, Expr *b) {
    return reduce_combine(reduce->arena, reduce->op, a, b);
}

static Expr *identity(Reduce *reduce) {
    return reduce_identity(reduce->arena, reduce->op, reduce->type);
}

static Stmt *counted(Reduce *reduce, const char *name, int64_t count, Expr **index) {
    Var *var = var_new(reduce->arena, name, VAR_ITER, TYPE_I64, reduce->stmt->loc);
    Stmt *loop = s_for(reduce->arena, LOOP_UNROLL, var, e_int(reduce->arena, 0), e_int(reduce->arena, count));
    loop->loc = reduce->stmt->loc;
    *index = e_var(reduce->arena, var);
    facts_iter(reduce->lower->facts, &loop->loop.iters[0]);
    return loop;
}

static Expr *partial_at(Reduce *reduce, Expr *slot) {
    return e_load1(reduce->arena, reduce->partial, slot);
}

static Expr *simple(Reduce *reduce, Expr *expr) {
    return simplify_expr(reduce->arena, reduce->lower->facts, expr);
}

// ---- in the thread ----

static Expr *inside_source(Reduce *reduce, Expr *value) {
    Arena *arena = reduce->arena;
    const Buf *buf = reduce->stmt->call.args[REDUCE_SRC].region->buf;
    Expr *in[2] = {lower_thread(reduce->lower), value}, *at[LAYOUT_MAX_RANK], *inside = NULL;
    layout_forward(arena, reduce->lower->facts, reduce->whole, in, at);
    for (int d = 0; d < buf->rank; d++) {
        if (reduce->whole->out_shape[d] <= buf_extent(buf, d)) continue;
        Expr *test = e_lt(arena, at[d], buf->shape[d]);
        inside = inside ? e_and(arena, inside, test) : test;
    }
    return inside ? simple(reduce, inside) : NULL;
}

static void reduce_values(Reduce *reduce, Block *out) {
    Arena *arena = reduce->arena;
    Expr *slot, *value;
    int mark = facts_mark(reduce->lower->facts);
    Stmt *clear = counted(reduce, "d", reduce->count, &slot);
    block_store1(arena, &clear->loop.body, reduce->partial, slot, identity(reduce));
    block_push(arena, out, clear);
    Stmt *loop = counted(reduce, "r", tv_values(reduce->src), &value);
    slot = simple(reduce, fragment_projected_value(arena, reduce->src, reduce->rank, reduce->dims, value));
    Expr *element = e_cast(arena, reduce->type, e_load1(arena, reduce->from, value));
    Stmt *update = s_store1(arena, reduce->partial, slot, combine(reduce, partial_at(reduce, slot), element));
    Expr *inside = inside_source(reduce, value);
    if (inside) {
        Stmt *only = s_if(arena, inside);
        block_push(arena, &only->if_.then, update);
        update = only;
    }
    block_push(arena, &loop->loop.body, update);
    facts_release(reduce->lower->facts, mark);
    block_push(arena, out, loop);
}

// ---- in the warp ----

static void push_butterfly(Reduce *reduce, int64_t mask, Block *out) {
    Arena *arena = reduce->arena;
    Expr *slot;
    int mark = facts_mark(reduce->lower->facts);
    Stmt *loop = counted(reduce, "d", reduce->count, &slot);
    Expr *other = e_call2(arena, OP_SHFL_XOR, partial_at(reduce, slot), e_int(arena, mask));
    Var *var =
        var_new(arena, "other", VAR_LET, reduce->type, reduce->stmt->loc);   // && and || must not skip the shuffle
    block_push(arena, &loop->loop.body, s_let(arena, var, other));
    Expr *sum = combine(reduce, partial_at(reduce, slot), e_var(arena, var));
    block_store1(arena, &loop->loop.body, reduce->partial, slot, sum);
    facts_release(reduce->lower->facts, mark);
    block_push(arena, out, loop);
}

static void reduce_lanes(Reduce *reduce, Block *out) {
    int64_t radix = 1, within, above;
    for (int i = 0; i < reduce->src->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &reduce->src->in[TV_THREAD].modes[i];
        tv_split_digit(radix, mode->extent, reduce->lower->target->warp_lanes, &within, &above);
        if (along_axis(mode, reduce->axis))
            for (int64_t step = 1; step < within; step *= 2) push_butterfly(reduce, radix * step, out);
        radix *= mode->extent;
    }
}

// ---- across warps ----

// The number of the warp's part (from the digits along the axis above the warp), and the condition of the lanes that are
// first along the axis within their warp (the others hold the same).
static Expr *warp_partial(Reduce *reduce, Expr **first_lane) {
    Arena *arena = reduce->arena;
    Expr *thread = lower_thread(reduce->lower), *partial = e_int(arena, 0);
    int64_t radix = 1, weight = 1, within, above;
    *first_lane = NULL;
    for (int i = 0; i < reduce->src->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &reduce->src->in[TV_THREAD].modes[i];
        tv_split_digit(radix, mode->extent, reduce->lower->target->warp_lanes, &within, &above);
        Expr *digit = e_rem(arena, e_over(arena, thread, radix), mode->extent);
        bool along = along_axis(mode, reduce->axis), replica = mode->stride == 0;
        if (along && above > 1) {
            partial = e_add(arena, partial, e_times(arena, e_over(arena, digit, within), weight));
            weight *= above;
        }
        Expr *same = NULL;
        if (along && within > 1) same = e_eq(arena, e_rem(arena, digit, within), e_int(arena, 0));
        if (replica) same = e_eq(arena, digit, e_int(arena, 0));
        if (same) *first_lane = *first_lane ? e_and(arena, *first_lane, same) : same;
        radix *= mode->extent;
    }
    return simple(reduce, partial);
}

// Results that a thread has next to each other.
static int64_t results_in_a_run(const Reduce *reduce, int64_t extent) {
    const LayoutInput *values = &reduce->dst->in[TV_VALUE];
    const LayoutMode *first = values->modes;
    bool next = values->count > 0 && first->out == reduce->dst->rank_out - 1 && first->stride == 1;
    return next && extent % first->extent == 0 ? first->extent : 1;
}

// Number of the thread's result `slot` among all results in the scratch: row-major, but what lanes hold lies side by side, not what
// a thread does, so that their accesses meet in no bank.
static Expr *result_number(Reduce *reduce, Expr *slot) {
    Arena *arena = reduce->arena;
    const Buf *dst = reduce->stmt->call.args[REDUCE_DST].region->buf;
    Expr *in[2] = {lower_thread(reduce->lower), slot}, *at[LAYOUT_MAX_RANK], *number = e_int(arena, 0);
    layout_forward(arena, reduce->lower->facts, reduce->dst, in, at);
    int last = dst->rank - 1;
    int64_t extent = buf_extent(dst, last), run = results_in_a_run(reduce, extent);
    Expr *within = e_times(arena, e_rem(arena, at[last], run), extent / run);
    at[last] = e_add(arena, within, e_over(arena, at[last], run));
    for (int d = 0; d <= last; d++) number = e_add(arena, e_mul(arena, number, dst->shape[d]), at[d]);
    return simple(reduce, number);
}

static Expr *result_exists(Reduce *reduce, Expr *slot) {
    Arena *arena = reduce->arena;
    const Buf *dst = reduce->stmt->call.args[REDUCE_DST].region->buf;
    Expr *in[2] = {lower_thread(reduce->lower), slot}, *at[LAYOUT_MAX_RANK], *inside = NULL;
    layout_forward(arena, reduce->lower->facts, reduce->dst, in, at);
    for (int d = 0; d < dst->rank; d++) {
        if (reduce->dst->out_shape[d] <= buf_extent(dst, d)) continue;
        Expr *test = e_lt(arena, at[d], dst->shape[d]);
        inside = inside ? e_and(arena, inside, test) : test;
    }
    return inside ? simple(reduce, inside) : NULL;
}

static Block *guarded(Reduce *reduce, Expr *guard, Block *out) {
    if (!guard) return out;
    Stmt *only = s_if(reduce->arena, guard);
    block_push(reduce->arena, out, only);
    return &only->if_.then;
}

// All lanes of a warp want the same results.
static bool lanes_agree(const Reduce *reduce) {
    int64_t radix = 1, within, above;
    for (int i = 0; i < reduce->dst->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &reduce->dst->in[TV_THREAD].modes[i];
        tv_split_digit(radix, mode->extent, reduce->lower->target->warp_lanes, &within, &above);
        if (mode->stride != 0 && within > 1) return false;
        radix *= mode->extent;
    }
    return radix % reduce->lower->target->warp_lanes == 0;
}

static Expr *lane_of(Reduce *reduce) {
    return e_rem(reduce->arena, lower_thread(reduce->lower), reduce->lower->target->warp_lanes);
}

// One lane of each warp writes; where several blocks share the threads, to the scratch of each of them, which reads its own.
static void write_partials(Reduce *reduce, const Buf *scratch, Block *out) {
    Arena *arena = reduce->arena;
    Lower *lower = reduce->lower;
    Expr *slot, *first_lane, *mine = warp_partial(reduce, &first_lane), *block = lane_of(reduce);
    int count, mark = facts_mark(lower->facts);
    bool spread = reduce->blocks > 1 && tv_replicas(reduce->src) == 1 && lanes_agree(reduce);   // a lane for each block
    if (spread) first_lane = e_lt(arena, block, e_int(arena, reduce->blocks));
    Stmt *write = counted(reduce, "d", reduce->count, &slot);
    Block *inside = guarded(reduce, result_exists(reduce, slot), &write->loop.body);
    if (reduce->blocks > 1 && !spread) {
        Stmt *each = counted(reduce, "block", reduce->blocks, &block);
        block_push(arena, inside, each);
        inside = &each->loop.body;
    }
    Expr *at[3] = {block, mine, result_number(reduce, slot)};
    Expr **indices = lower_indices(lower, scratch, scratch->rank, at + 3 - scratch->rank, &count);
    block_push(arena, inside,
               s_store(arena, lower_physical(lower, (Buf *)scratch), count, indices, partial_at(reduce, slot)));
    block_push(arena, guarded(reduce, first_lane ? simple(reduce, first_lane) : NULL, out), write);
    facts_release(lower->facts, mark);
}

static Expr *load_partial(Reduce *reduce, Buf *scratch, Expr *partial, Expr *slot) {
    int count;
    int64_t block_threads = reduce->lower->threads / reduce->blocks;
    Expr *mine = e_over(reduce->arena, lower_thread(reduce->lower), block_threads);
    Expr *at[3] = {mine, simple(reduce, partial), result_number(reduce, slot)};
    Expr **indices = lower_indices(reduce->lower, scratch, scratch->rank, at + 3 - scratch->rank, &count);
    return e_load(reduce->arena, lower_physical(reduce->lower, scratch), count, indices);
}

// Every thread reads all parts.
static void read_partials(Reduce *reduce, Buf *scratch, int64_t partials, Block *out) {
    Arena *arena = reduce->arena;
    Expr *slot, *partial;
    int mark = facts_mark(reduce->lower->facts);
    Stmt *read = counted(reduce, "d", reduce->count, &slot);
    Block *inside = guarded(reduce, result_exists(reduce, slot), &read->loop.body);
    block_store1(arena, inside, reduce->partial, slot, identity(reduce));
    Stmt *each = counted(reduce, "w", partials, &partial);
    Expr *sum = combine(reduce, partial_at(reduce, slot), load_partial(reduce, scratch, partial, slot));
    block_store1(arena, &each->loop.body, reduce->partial, slot, sum);
    block_push(arena, inside, each);
    block_push(arena, out, read);
    facts_release(reduce->lower->facts, mark);
}

// The lanes of a warp share the parts, a load each for as many as there are lanes, and meet by butterflies.
static void share_partials(Reduce *reduce, Buf *scratch, int64_t partials, Block *out) {
    Arena *arena = reduce->arena;
    int64_t lanes = reduce->lower->target->warp_lanes, group = 1;
    while (group < partials && group < lanes) group *= 2;
    Expr *slot, *trip, *thread = lower_thread(reduce->lower);
    int mark = facts_mark(reduce->lower->facts);
    Stmt *read = counted(reduce, "d", reduce->count, &slot);
    block_store1(arena, &read->loop.body, reduce->partial, slot, identity(reduce));
    Stmt *each = counted(reduce, "w", (partials + group - 1) / group, &trip);
    Expr *partial = e_add(arena, e_times(arena, trip, group), e_rem(arena, thread, group));
    Block *inside =
        guarded(reduce, partials % group ? simple(reduce, e_lt(arena, partial, e_int(arena, partials))) : NULL,
                &each->loop.body);
    Expr *sum = combine(reduce, partial_at(reduce, slot), load_partial(reduce, scratch, partial, slot));
    block_store1(arena, inside, reduce->partial, slot, sum);
    block_push(arena, &read->loop.body, each);
    block_push(arena, out, read);
    facts_release(reduce->lower->facts, mark);
    for (int64_t mask = 1; mask < group; mask *= 2) push_butterfly(reduce, mask, out);
}

static void reduce_warps(Reduce *reduce, int64_t partials, Block *out) {
    enum { FEW = 4 };   // loads that take no longer than one and the butterflies
    Buf *scratch = reduce->stmt->call.args[REDUCE_SCRATCH].region->buf;
    Arg none[2] = {{0}};
    write_partials(reduce, scratch, out);
    block_push(reduce->arena, out, s_call(reduce->arena, OP_BARRIER, 2, none));
    const Buf *dst = reduce->stmt->call.args[REDUCE_DST].region->buf;
    bool whole = true;   // every slot is an element of the destination
    for (int d = 0; d < dst->rank; d++) whole &= reduce->dst->out_shape[d] <= buf_extent(dst, d);
    if (partials > FEW && whole && lanes_agree(reduce)) share_partials(reduce, scratch, partials, out);
    else read_partials(reduce, scratch, partials, out);
}

// ---- the result ----

static void store_result(Reduce *reduce, Block *out) {
    Arena *arena = reduce->arena;
    const Arg *accumulate = &reduce->stmt->call.args[REDUCE_ACCUMULATE];
    Expr *slot;
    int mark = facts_mark(reduce->lower->facts);
    Stmt *loop = counted(reduce, "d", reduce->count, &slot);
    Expr *value = partial_at(reduce, slot);
    if (accumulate->value && expr_is_int(accumulate->value, 1))
        value = combine(reduce, e_cast(arena, reduce->type, e_load1(arena, reduce->to, slot)), value);
    Block *inside = guarded(reduce, result_exists(reduce, slot), &loop->loop.body);
    block_store1(arena, inside, reduce->to, slot, e_cast(arena, reduce->to->type, value));
    facts_release(reduce->lower->facts, mark);
    block_push(arena, out, loop);
}

void lower_reduce(Lower *lower, Stmt *stmt, Block *out) {
    Reduce reduce = {
        .lower = lower, .arena = lower->arena, .stmt = stmt, .op = stmt->call.op, .axis = reduce_op_axis(stmt)};
    Buf *src = stmt->call.args[REDUCE_SRC].region->buf, *dst = stmt->call.args[REDUCE_DST].region->buf;
    EXPECT(lower->context->failure,
           src->scope == SCOPE_FRAGMENT && dst->scope == SCOPE_FRAGMENT && src->layout && dst->layout,
           "a reduction of '%s' was not materialized", src->name);
    for (int d = 0; d < src->rank; d++) {
        if (d != reduce.axis) reduce.dims[reduce.rank++] = d;
        else if (reduces_to_partials(stmt)) reduce.dims[reduce.rank++] = src->rank;
    }
    if (reduce.rank == 0) reduce.dims[reduce.rank++] = -1;
    reduce.whole = src->layout;
    reduce.src = reduce_source(lower->arena, stmt, src->layout);
    reduce.dst = dst->layout;
    reduce.type = type_compute(dst->type);
    reduce.from = lower_local(lower, src);
    reduce.to = lower_local(lower, dst);
    reduce.count = tv_values(dst->layout);
    reduce.blocks = grid_blocks(func_grid(lower->kernel));
    reduce.partial = buf_new_const(lower->arena, "acc", SCOPE_LOCAL, reduce.type, 1, &reduce.count, stmt->loc);
    Stmt *block = s_block(lower->arena);
    block_push(lower->arena, &block->block, s_decl(lower->arena, reduce.partial));
    reduce_values(&reduce, &block->block);
    reduce_lanes(&reduce, &block->block);
    int64_t partials = tv_warps_along(reduce.src, reduce.axis, lower->target->warp_lanes);
    if (partials > 1) reduce_warps(&reduce, partials, &block->block);
    store_result(&reduce, &block->block);
    block_push(lower->arena, out, block);
}
