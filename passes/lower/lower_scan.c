// A running sum or maximum for one thread. Source and destination have one layout, whatever it is: its digits along the
// axis, sorted by their strides, are levels of a mixed-radix number, and each level adds to all that lies behind it
// what lies before it.
//
//     v: f32[2048] over 128 threads    values of a vector (4:1), lanes (32:4), values (4:128), warps (4:512)
//
//     run      the thread's elements, summed up within the lowest level if that is one of values: its vectors
//     total    of all that the levels done so far span: one for each value of the digits that are still to come
//     base     what comes before each vector; in the end run + base is the result
//
//     level of values   total[i] is summed up in the thread; base of digit i + 1 gets total[i]
//     level of lanes    log2 steps of shfl_up; base gets the sum of the lanes before, and the last lane's total goes to all
//     level of warps    one thread for each total writes it to `scratch`, barrier, all threads sum up the parts of the warps
//                       before theirs; many parts are shared by the lanes, which meet by butterflies (as in lower_reduce.c, and
//                       as there each block of a cluster has all parts in a slice of its own)
//
// An element costs two operations, one in its vector and one with its base; shuffles and exchanges are for vectors.
// Elements beyond the source's shape count as the identity: they are read by nobody, or lie behind all others.
#include "layout/distribution.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower_reduce.h"

typedef struct Level {
    int input, mode;   // a digit of threads or of values
    int64_t extent, stride;
} Level;

typedef struct Levels {
    int count;
    Level items[2 * LAYOUT_MAX_MODES];
} Levels;

typedef uint32_t Digits;   // a set of digits of values

typedef struct Scan {
    Combiner c;
    Arena *arena;
    const Layout *layout;
    Levels levels;
    Buf *run, *base, *total;
    Digits all, vectors, left;   // those of run, of base, of total
    int64_t taken;               // elements of the scratch that former levels have
} Scan;

int scan_axis(const Stmt *scan) {
    int64_t axis = 0;
    expr_const(scan->call.args[SCAN_AXIS].value, &axis);
    return (int)axis;
}

int scratch_operand(const Stmt *stmt) {
    return is_scan(stmt) ? SCAN_SCRATCH : is_reduction(stmt) ? REDUCE_SCRATCH : -1;
}

// ---- levels ----

static void add_level(Levels *levels, Level level) {
    int at = levels->count++;
    for (; at > 0 && levels->items[at - 1].stride > level.stride; at--) levels->items[at] = levels->items[at - 1];
    levels->items[at] = level;
}

// False: the digits make no mixed-radix number.
static bool levels_of(const Layout *tv, int axis, Levels *levels) {
    int64_t reach = 1;
    levels->count = 0;
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            if (mode->stride != 0 && mode->out == axis && mode->extent > 1)
                add_level(levels, (Level){input, i, mode->extent, mode->stride});
        }
    }
    for (int l = 0; l < levels->count; l++) {
        if (levels->items[l].stride != reach) return false;
        reach *= levels->items[l].extent;
    }
    return true;
}

static int64_t thread_weight(const Layout *tv, int mode) {
    int64_t weight = 1;
    for (int i = 0; i < mode; i++) weight *= tv->in[TV_THREAD].modes[i].extent;
    return weight;
}

static void split_level(const Layout *tv, const Level *level, int64_t lanes, int64_t *within, int64_t *above) {
    tv_split_digit(thread_weight(tv, level->mode), level->extent, lanes, within, above);
}

static int64_t digits_count(const Layout *tv, Digits digits) {
    int64_t count = 1;
    for (int i = 0; i < tv->in[TV_VALUE].count; i++)
        if (digits >> i & 1) count *= tv->in[TV_VALUE].modes[i].extent;
    return count;
}

static Digits all_digits(const Layout *tv) {
    return ((Digits)1 << tv->in[TV_VALUE].count) - 1;
}

// The thread digit tells threads with totals of their own apart when the first `level` levels are done.
static bool is_key(const Levels *levels, int level, const Layout *tv, int mode) {
    for (int l = 0; l <= level; l++)
        if (levels->items[l].input == TV_THREAD && levels->items[l].mode == mode) return false;
    return tv->in[TV_THREAD].modes[mode].stride != 0;
}

static int64_t key_count(const Levels *levels, int level, const Layout *tv) {
    int64_t count = 1;
    for (int i = 0; i < tv->in[TV_THREAD].count; i++)
        if (is_key(levels, level, tv, i)) count *= tv->in[TV_THREAD].modes[i].extent;
    return count;
}

int64_t scan_scratch(const Layout *tv, int axis, int64_t lanes) {
    Levels levels;
    int64_t size = 0, within, above = 1;
    Digits left = all_digits(tv);
    levels_of(tv, axis, &levels);
    for (int l = 0; l < levels.count; l++) {
        const Level *level = &levels.items[l];
        if (level->input == TV_VALUE) {
            left &= ~((Digits)1 << level->mode);
            continue;
        }
        split_level(tv, level, lanes, &within, &above);
        if (above > 1) size += above * key_count(&levels, l, tv) * digits_count(tv, left);
    }
    return size;
}

// ---- making code ----

static Expr *simple(const Scan *scan, Expr *expr) {
    return lower_simple(scan->c.lower, expr);
}

static void put(const Scan *scan, Block *out, Buf *buf, Expr *slot, Expr *value) {
    block_store1(scan->arena, out, buf, slot, value);
}

static Buf *declare(const Scan *scan, const char *name, int64_t count, Block *out) {
    return block_local(scan->arena, out, name, scan->c.type, count, scan->c.loc);
}

static Expr *named(const Scan *scan, const char *name, Expr *value, Block *out) {
    return block_let(scan->arena, out, name, value, scan->c.loc);
}

static Expr *thread_digit(const Scan *scan, int mode) {
    Expr *above = e_over(scan->arena, lower_thread(scan->c.lower), thread_weight(scan->layout, mode));
    return simple(scan, e_rem(scan->arena, above, scan->layout->in[TV_THREAD].modes[mode].extent));
}

// Number among the slots of `to` of the one that has number `slot` among those of `from`; digit `fixed` (-1: none),
// which `from` lacks, is `value`.
static Expr *place(const Scan *scan, Expr *slot, Digits from, Digits to, int fixed, Expr *value) {
    Arena *arena = scan->arena;
    Expr *found = e_int(scan->arena, 0);
    int64_t weight = 1, radix = 1;
    if (from == to) return slot;
    for (int i = 0; i < scan->layout->in[TV_VALUE].count; i++) {
        int64_t extent = scan->layout->in[TV_VALUE].modes[i].extent;
        Expr *digit = i == fixed ? value : e_int(scan->arena, 0);
        if (from >> i & 1) {
            digit = e_mod(arena, e_div(arena, slot, e_int(scan->arena, weight)), e_int(scan->arena, extent));
            weight *= extent;
        }
        if (!(to >> i & 1)) continue;
        found = e_add(arena, found, e_mul(arena, digit, e_int(scan->arena, radix)));
        radix *= extent;
    }
    return simple(scan, found);
}

// ---- in the thread ----

static void load_values(const Scan *scan, Buf *src, Block *out) {
    Arena *arena = scan->arena;
    Expr *value;
    Block *body = counted(&scan->c, "r", tv_values(scan->layout), &value, out);
    Expr *source = e_load1(arena, lower_local(scan->c.lower, src), value);
    source = e_cast(arena, scan->c.type, source);
    Expr *inside = lower_inside(scan->c.lower, scan->layout, src, value);
    put(scan, body, scan->run, value, inside ? e_select(arena, inside, source, identity(&scan->c)) : source);
}

// buf[digit = i + 1] and buf[digit = i], for all i in order: inclusive sums along the digit.
static void sum_along(const Scan *scan, Buf *buf, Digits digits, int mode, Block *out) {
    Expr *slot, *step;
    Digits rest = digits & ~((Digits)1 << mode);
    Block *body = counted(&scan->c, "d", digits_count(scan->layout, rest), &slot, out);
    body = counted(&scan->c, "i", scan->layout->in[TV_VALUE].modes[mode].extent - 1, &step, body);
    Expr *here = place(scan, slot, rest, digits, mode, e_plus(scan->arena, step, 1));
    Expr *before = place(scan, slot, rest, digits, mode, step);
    put(scan, body, buf, here, combined(&scan->c, e_load1(scan->arena, buf, before), e_load1(scan->arena, buf, here)));
}

// The sums along the digit have been made in `buf`: what is left is its last ones.
static Buf *last_along(const Scan *scan, Buf *buf, Digits digits, int mode, Block *out) {
    Expr *slot, *last = e_int(scan->arena, scan->layout->in[TV_VALUE].modes[mode].extent - 1);
    Digits rest = digits & ~((Digits)1 << mode);
    int64_t count = digits_count(scan->layout, rest);
    Buf *total = declare(scan, "total", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    put(scan, body, total, slot, e_load1(scan->arena, buf, place(scan, slot, rest, digits, mode, last)));
    return total;
}

static void scan_values(Scan *scan, const Level *level, bool more, Block *out) {
    Expr *slot, *step;
    int mode = level->mode;
    Digits own = (Digits)1 << mode, rest = scan->vectors & ~own;
    sum_along(scan, scan->total, scan->left, mode, out);
    Block *body = counted(&scan->c, "d", digits_count(scan->layout, rest), &slot, out);
    body = counted(&scan->c, "i", level->extent - 1, &step, body);
    Expr *at = place(scan, slot, rest, scan->vectors, mode, e_plus(scan->arena, step, 1));
    Expr *before = place(scan, slot, rest, scan->left, mode, step);
    put(scan, body, scan->base, at,
        combined(&scan->c, e_load1(scan->arena, scan->total, before), e_load1(scan->arena, scan->base, at)));
    if (more) scan->total = last_along(scan, scan->total, scan->left, mode, out);
    scan->left &= ~own;
}

// base of each vector gets what `before` says of its total.
static void add_before(const Scan *scan, Buf *before, Block *out) {
    Expr *slot;
    Block *body = counted(&scan->c, "d", digits_count(scan->layout, scan->vectors), &slot, out);
    Expr *from = e_load1(scan->arena, before, place(scan, slot, scan->vectors, scan->left, -1, NULL));
    put(scan, body, scan->base, slot, combined(&scan->c, from, e_load1(scan->arena, scan->base, slot)));
}

// ---- in the warp ----

static void scan_lanes(const Scan *scan, int mode, int64_t within, bool more, Block *out) {
    Arena *arena = scan->arena;
    Expr *slot;
    int64_t weight = thread_weight(scan->layout, mode), count = digits_count(scan->layout, scan->left);
    int64_t lanes = scan->c.lower->target->warp_lanes;
    Expr *digit =
        named(scan, "along", simple(scan, e_mod(arena, thread_digit(scan, mode), e_int(scan->arena, within))), out);
    Buf *before = declare(scan, "before", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    Expr *total = e_load1(scan->arena, scan->total, slot);
    for (int64_t step = 1; step < within; step *= 2) {
        Expr *other = named(scan, "other", e_call2(arena, OP_SHFL_UP, total, e_int(scan->arena, step * weight)), body);
        Expr *reaches = e_lt(arena, digit, e_int(scan->arena, step));
        put(scan, body, scan->total, slot, e_select(arena, reaches, total, combined(&scan->c, other, total)));
    }
    Expr *other = named(scan, "other", e_call2(arena, OP_SHFL_UP, total, e_int(scan->arena, weight)), body);
    put(scan, body, before, slot,
        e_select(arena, e_lt(arena, digit, e_int(scan->arena, 1)), identity(&scan->c), other));
    if (more) {
        Expr *lane = e_mod(arena, lower_thread(scan->c.lower), e_int(scan->arena, lanes));
        Expr *behind = e_mul(arena, e_sub(arena, e_int(scan->arena, within - 1), digit), e_int(scan->arena, weight));
        put(scan, body, scan->total, slot,
            e_call2(arena, OP_SHFL_IDX, total, simple(scan, e_add(arena, lane, behind))));
    }
    add_before(scan, before, out);
}

// ---- across warps ----

// One exchange through the scratch.
typedef struct Exchange {
    int level, mode;
    int64_t within, above;   // of the digit
    int64_t keys, count;     // totals of other threads, of one thread
    bool agree;              // all lanes of a warp have the same totals
    Expr *key, *mine;        // number of the thread's totals, of its warp's part
} Exchange;

static Exchange exchange_of(const Scan *scan, int l, Block *out) {
    const Layout *tv = scan->layout;
    Arena *arena = scan->arena;
    Exchange x = {.level = l, .mode = scan->levels.items[l].mode, .agree = true, .key = e_int(scan->arena, 0)};
    int64_t lanes = scan->c.lower->target->warp_lanes, within, above, radix = 1;
    split_level(tv, &scan->levels.items[l], lanes, &x.within, &x.above);
    x.keys = key_count(&scan->levels, l, tv);
    x.count = digits_count(tv, scan->left);
    for (int i = 0; i < tv->in[TV_THREAD].count; i++) {
        if (!is_key(&scan->levels, l, tv, i)) continue;
        int64_t extent = tv->in[TV_THREAD].modes[i].extent;
        tv_split_digit(thread_weight(tv, i), extent, lanes, &within, &above);
        x.agree &= within == 1;
        x.key = e_add(arena, x.key, e_mul(arena, thread_digit(scan, i), e_int(scan->arena, radix)));
        radix *= extent;
    }
    x.agree &= tv_threads(tv) % lanes == 0;
    x.key = simple(scan, x.key);
    Expr *mine = e_div(arena, thread_digit(scan, x.mode), e_int(scan->arena, x.within));
    x.mine = named(scan, "mine", simple(scan, mine), out);
    return x;
}

// Of the threads that have the same totals the first one; or, with `any_lane`, all lanes of the first warp.
static Expr *is_first(const Scan *scan, const Exchange *x, bool any_lane) {
    const Layout *tv = scan->layout;
    int64_t within, above;
    Expr *first = NULL;
    for (int i = 0; i < tv->in[TV_THREAD].count; i++) {
        int64_t extent = tv->in[TV_THREAD].modes[i].extent, weight = thread_weight(tv, i);
        if (extent == 1 || is_key(&scan->levels, x->level, tv, i)) continue;
        tv_split_digit(weight, extent, scan->c.lower->target->warp_lanes, &within, &above);
        Expr *digit = thread_digit(scan, i), *lanes = e_rem(scan->arena, digit, within);
        Expr *warps = e_over(scan->arena, digit, within), *zero = e_int(scan->arena, 0);
        if (within > 1 && !any_lane) first = e_both(scan->arena, first, e_eq(scan->arena, lanes, zero));
        if (above > 1 && i != x->mode) first = e_both(scan->arena, first, e_eq(scan->arena, warps, zero));
    }
    return first ? simple(scan, first) : NULL;
}

// Where the scratch has the total of a warp's part.
static Expr *scratch_row(const Scan *scan, const Exchange *x, Expr *partial, Expr *slot) {
    Arena *arena = scan->arena;
    int64_t near = x->agree ? x->above : x->keys;   // what differs between lanes is adjacent
    Expr *row = x->agree ? e_add(arena, e_times(arena, slot, x->keys), x->key)
                         : e_add(arena, e_times(arena, partial, x->count), slot);
    Expr *at = e_add(arena, e_times(arena, row, near), x->agree ? partial : x->key);
    return simple(scan, e_add(arena, e_int(arena, scan->taken), at));
}

// Where several blocks share the threads, to the slice of each of them: a lane for each where all have the same totals.
static void write_totals(const Scan *scan, const Exchange *x, Block *out) {
    Arena *arena = scan->arena;
    const Combiner *c = &scan->c;
    Expr *block = NULL, *slot, *first;
    bool spread = c->blocks > 1 && x->agree;
    first = is_first(scan, x, spread);
    if (spread) {
        block = lower_lane(c->lower);
        first = e_both(arena, first, e_lt(arena, block, e_int(arena, c->blocks)));
    }
    Block *inside = counted(c, "d", x->count, &slot, block_if(arena, out, first));
    if (c->blocks > 1 && !spread) inside = counted(c, "block", c->blocks, &block, inside);
    Expr *row = scratch_row(scan, x, x->mine, slot), *zero = e_int(arena, 0);
    scratch_store(c, block, row, zero, e_load1(arena, scan->total, slot), inside);
}

static void push_butterflies(const Scan *scan, Buf *buf, Expr *slot, int64_t group, Block *out) {
    for (int64_t mask = 1; mask < group; mask *= 2)
        put(scan, out, buf, slot, butterfly(&scan->c, buf, slot, mask, out));
}

// before[slot] = the parts of the warps before this one; total[slot] = all of them. `group` lanes share the parts (1:
// each reads all).
static void read_totals(const Scan *scan, const Exchange *x, Buf *before, bool more, int64_t group, Block *out) {
    Arena *arena = scan->arena;
    Expr *slot, *trip, *lane = e_mod(arena, lower_thread(scan->c.lower), e_int(scan->arena, group));
    Block *body = counted(&scan->c, "d", x->count, &slot, out);
    put(scan, body, before, slot, identity(&scan->c));
    if (more) put(scan, body, scan->total, slot, identity(&scan->c));
    Block *each = counted(&scan->c, "w", (x->above + group - 1) / group, &trip, body);
    Expr *partial = simple(scan, e_add(arena, e_mul(arena, trip, e_int(scan->arena, group)), lane));
    Expr *exists = x->above % group ? simple(scan, e_lt(arena, partial, e_int(scan->arena, x->above))) : NULL;
    each = block_if(scan->arena, each, exists);
    Expr *other =
        named(scan, "other", scratch_load(&scan->c, scratch_row(scan, x, partial, slot), e_int(arena, 0)), each);
    Expr *sum = e_load1(scan->arena, before, slot), *all = e_load1(scan->arena, scan->total, slot);
    put(scan, each, before, slot, e_select(arena, e_lt(arena, partial, x->mine), combined(&scan->c, sum, other), sum));
    if (more) put(scan, each, scan->total, slot, combined(&scan->c, all, other));
    push_butterflies(scan, before, slot, group, body);
    if (more) push_butterflies(scan, scan->total, slot, group, body);
}

static void scan_warps(Scan *scan, int level, bool more, Block *out) {
    enum { FEW = 4 };   // loads that take no longer than one and the butterflies
    int64_t group = 1, lanes = scan->c.lower->target->warp_lanes;
    Exchange x = exchange_of(scan, level, out);
    while (x.agree && x.above > FEW && group < x.above && group < lanes) group *= 2;
    write_totals(scan, &x, out);
    EXPECT(scan->c.lower->context->failure, scan->c.scratch, "a scan across warps has no scratch");
    lower_barrier(scan->c.lower, out);
    Buf *before = declare(scan, "before", x.count, out);
    read_totals(scan, &x, before, more, group, out);
    add_before(scan, before, out);
    scan->taken += x.above * x.keys * x.count;
}

// ---- the scan ----

static void scan_threads(Scan *scan, int level, bool more, Block *out) {
    int64_t within, above;
    split_level(scan->layout, &scan->levels.items[level], scan->c.lower->target->warp_lanes, &within, &above);
    if (within > 1) scan_lanes(scan, scan->levels.items[level].mode, within, more || above > 1, out);
    if (above > 1) scan_warps(scan, level, more, out);
}

// Everything above the vectors: makes base.
static void scan_vectors(Scan *scan, int first, Block *out) {
    Expr *slot;
    int64_t count = digits_count(scan->layout, scan->vectors);
    scan->base = declare(scan, "base", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    put(scan, body, scan->base, slot, identity(&scan->c));
    if (first > 0) {
        scan->total = last_along(scan, scan->run, scan->all, scan->levels.items[0].mode, out);
    } else {
        scan->total = declare(scan, "total", count, out);
        body = counted(&scan->c, "d", count, &slot, out);
        put(scan, body, scan->total, slot, e_load1(scan->arena, scan->run, slot));
    }
    scan->left = scan->vectors;
    for (int l = first; l < scan->levels.count; l++) {
        bool more = l + 1 < scan->levels.count;
        if (scan->levels.items[l].input == TV_VALUE) scan_values(scan, &scan->levels.items[l], more, out);
        else scan_threads(scan, l, more, out);
    }
}

static void store_results(const Scan *scan, Buf *to, Block *out) {
    Expr *value;
    Block *body = counted(&scan->c, "r", tv_values(scan->layout), &value, out);
    Expr *result = e_load1(scan->arena, scan->run, value);
    if (scan->base) {
        Expr *before = e_load1(scan->arena, scan->base, place(scan, value, scan->all, scan->vectors, -1, NULL));
        result = combined(&scan->c, before, result);
    }
    put(scan, body, to, value, e_cast(scan->arena, to->type, result));
}

bool lower_scan(Lower *lower, Stmt *stmt, Block *out) {
    Buf *src = call_region(stmt, SCAN_SRC)->buf, *dst = call_region(stmt, SCAN_DST)->buf;
    OpId op = stmt->call.op == OP_SCAN_SUM ? OP_REDUCE_SUM : OP_REDUCE_MAX;
    Scan scan = {.c = combiner_of(lower, stmt, op, SCAN_SCRATCH), .arena = lower->arena, .layout = src->layout};
    EXPECT(lower->context->failure, layout_equal(src->layout, dst->layout), "'%s' and its scan have different layouts",
           src->name);
    if (!levels_of(scan.layout, scan_axis(stmt), &scan.levels)) return false;
    scan.all = scan.vectors = all_digits(scan.layout);
    Stmt *block = s_block(lower->arena);
    Block *body = &block->block;
    int mark = facts_mark(lower->facts);
    scan.run = declare(&scan, "run", tv_values(scan.layout), body);
    load_values(&scan, src, body);
    bool in_vectors = scan.levels.count > 0 && scan.levels.items[0].input == TV_VALUE;
    if (in_vectors) {
        sum_along(&scan, scan.run, scan.all, scan.levels.items[0].mode, body);
        scan.vectors &= ~((Digits)1 << scan.levels.items[0].mode);
    }
    if (scan.levels.count > in_vectors) scan_vectors(&scan, in_vectors, body);
    store_results(&scan, lower_local(lower, dst), body);
    facts_release(lower->facts, mark);
    block_push(lower->arena, out, block);
    return true;
}
