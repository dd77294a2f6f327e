// A running sum or maximum for one thread. Source and destination have the same layout, of any kind. Its digits along
// the axis, sorted by stride, are levels of a mixed-radix number. Each level adds the totals of earlier elements to
// later ones.
//
//     v: f32[2048] over 128 threads    values of a vector (4:1), lanes (32:4), values (4:128), warps (4:512)
//
//     run      the thread's elements, scanned within the lowest level if that is a level of values: its vectors
//     total    of the span of all completed levels: one for each value of the remaining digits
//     base     the total before each vector; in the end run + base is the result
//
//     level of values   total[i] is scanned in the thread; base of digit i + 1 gets total[i]
//     level of lanes    log2 steps of shfl_up; base gets the sum of the lanes before; the last lane's total goes to all
//     level of warps    one thread per total writes it to `scratch`, barrier, all threads add the totals of the warps
//                       before theirs; many totals are split over the lanes and combined by butterflies (as in
//                       lower_reduce.c; as there, in a cluster each CTA has all totals in a slice of its own)
//
// An element costs two operations, one in its vector and one with its base; shuffles and exchanges are per vector.
// Elements beyond the source's shape count as the identity: no thread reads them, or they come last.
#include "layout/distribution.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower_reduce.h"

typedef struct Level {
    int input, mode;   // a digit of threads or of values
    int64_t extent, stride;
    ThreadDigit digit;   // the same digit, of threads; else zeros
} Level;

typedef struct Levels {
    int count;
    Level items[2 * LAYOUT_MAX_MODES];
} Levels;

typedef uint32_t Digits;   // a set of value digits
_Static_assert(LAYOUT_MAX_MODES < 8 * sizeof(Digits), "a bit for each digit");

typedef struct Scan {
    Combiner c;
    Arena *arena;
    const Layout *layout;
    Levels levels;
    ThreadDigits digits;
    Buf *run, *base, *total;
    Digits all, vectors, left;   // digits of run, of base, of total
    int64_t taken;               // scratch elements used by earlier levels
} Scan;

Region *stmt_scratch(const Stmt *stmt) {
    return is_scan(stmt) ? scan_of(stmt).scratch : is_reduction(stmt) ? reduce_of(stmt).scratch : NULL;
}

// ---- levels ----

static void add_level(Levels *levels, Level level) {
    int at = levels->count++;
    for (; at > 0 && levels->items[at - 1].stride > level.stride; at--) levels->items[at] = levels->items[at - 1];
    levels->items[at] = level;
}

// False: the digits are no mixed-radix number.
static bool levels_of(const Layout *tv, int axis, const ThreadDigits *digits, Levels *levels) {
    int64_t reach = 1;
    levels->count = 0;
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            if (mode->stride != 0 && mode->out == axis && mode->extent > 1)
                add_level(levels, (Level){input, i, mode->extent, mode->stride,
                                          input == TV_THREAD ? digits->items[i] : (ThreadDigit){0}});
        }
    }
    for (int l = 0; l < levels->count; l++) {
        if (levels->items[l].stride != reach) return false;
        reach *= levels->items[l].extent;
    }
    return true;
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

// The thread digit distinguishes threads with different totals after the first `level` levels.
static bool is_key(const Levels *levels, int level, const ThreadDigit *digit) {
    for (int l = 0; l <= level; l++)
        if (levels->items[l].digit.mode == digit->mode) return false;
    return digit->mode->stride != 0;
}

static int64_t key_count(const Levels *levels, int level, const ThreadDigits *digits) {
    int64_t count = 1;
    VEC_EACH (const ThreadDigit, digit, digits)
        if (is_key(levels, level, digit)) count *= digit->mode->extent;
    return count;
}

int64_t scan_scratch(const Layout *tv, int axis, int64_t lanes) {
    Levels levels;
    int64_t size = 0;
    Digits left = all_digits(tv);
    ThreadDigits digits = tv_thread_digits(tv, lanes);
    levels_of(tv, axis, &digits, &levels);
    for (int l = 0; l < levels.count; l++) {
        const Level *level = &levels.items[l];
        if (level->input == TV_VALUE) left &= ~((Digits)1 << level->mode);
        else if (level->digit.above > 1)
            size += level->digit.above * key_count(&levels, l, &digits) * digits_count(tv, left);
    }
    return size;
}

// ---- emitting code ----

static Expr *simple(const Scan *scan, Expr *expr) {
    return lower_simple(scan->c.lower, expr);
}

static Buf *declare(const Scan *scan, const char *name, int64_t count, Block *out) {
    return block_local(scan->arena, out, name, scan->c.type, count, scan->c.loc);
}

static Expr *named(const Scan *scan, const char *name, Expr *value, Block *out) {
    return block_let(scan->arena, out, name, value, scan->c.loc);
}

static Expr *thread_digit(const Scan *scan, const ThreadDigit *digit) {
    Expr *above = e_over(scan->arena, lower_thread(scan->c.lower), digit->weight);
    return simple(scan, e_rem(scan->arena, above, digit->mode->extent));
}

// Maps slot number `slot` of the digits `from` to the slot number of the digits `to`; digit `fixed` (-1: none), which
// `from` lacks, has `value`.
static Expr *place(const Scan *scan, Expr *slot, Digits from, Digits to, int fixed, Expr *value) {
    Arena *arena = scan->arena;
    Expr *found = e_int(arena, 0);
    int64_t weight = 1, radix = 1;
    EXPECT(scan->c.lower->context->failure, fixed < 0 || !(from >> fixed & 1), "digit %d is given twice", fixed);
    if (from == to) return slot;
    for (int i = 0; i < scan->layout->in[TV_VALUE].count; i++) {
        int64_t extent = scan->layout->in[TV_VALUE].modes[i].extent;
        Expr *digit = i == fixed ? value : e_int(arena, 0);
        if (from >> i & 1) {
            digit = e_rem(arena, e_over(arena, slot, weight), extent);
            weight *= extent;
        }
        if (!(to >> i & 1)) continue;
        found = e_add(arena, found, e_times(arena, digit, radix));
        radix *= extent;
    }
    return simple(scan, found);
}

// ---- in the thread ----

static void load_values(const Scan *scan, Buf *src, Block *out) {
    Expr *value;
    Block *body = counted(&scan->c, "r", tv_values(scan->layout), &value, out);
    Expr *source = e_cast(scan->arena, scan->c.type, e_load1(scan->arena, lower_local(scan->c.lower, src), value));
    Expr *inside = lower_inside(scan->c.lower, scan->layout, src, value);
    block_store1(scan->arena, body, scan->run, value,
                 inside ? e_select(scan->arena, inside, source, identity(&scan->c)) : source);
}

// to[digit = i + 1] gets from[digit = i] added, for all i in order: inclusive sums along the digit if `from` is `to`.
// The slots of each buffer are those of its digits.
static void sum_along(const Scan *scan, Buf *from, Digits digits, Buf *to, Digits to_digits, int mode, Block *out) {
    Expr *slot, *step;
    Digits rest = to_digits & ~((Digits)1 << mode);
    Block *body = counted(&scan->c, "d", digits_count(scan->layout, rest), &slot, out);
    body = counted(&scan->c, "i", scan->layout->in[TV_VALUE].modes[mode].extent - 1, &step, body);
    Expr *here = place(scan, slot, rest, to_digits, mode, e_plus(scan->arena, step, 1));
    Expr *before = place(scan, slot, rest, digits, mode, step);
    block_store1(scan->arena, body, to, here,
                 combined(&scan->c, e_load1(scan->arena, from, before), e_load1(scan->arena, to, here)));
}

// `buf` holds sums along the digit; returns the last ones.
static Buf *last_along(const Scan *scan, Buf *buf, Digits digits, int mode, Block *out) {
    Expr *slot, *last = e_int(scan->arena, scan->layout->in[TV_VALUE].modes[mode].extent - 1);
    Digits rest = digits & ~((Digits)1 << mode);
    int64_t count = digits_count(scan->layout, rest);
    Buf *total = declare(scan, "total", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    block_store1(scan->arena, body, total, slot,
                 e_load1(scan->arena, buf, place(scan, slot, rest, digits, mode, last)));
    return total;
}

static void scan_values(Scan *scan, const Level *level, bool more, Block *out) {
    sum_along(scan, scan->total, scan->left, scan->total, scan->left, level->mode, out);
    sum_along(scan, scan->total, scan->left, scan->base, scan->vectors, level->mode, out);
    if (more) scan->total = last_along(scan, scan->total, scan->left, level->mode, out);
    scan->left &= ~((Digits)1 << level->mode);
}

// Adds to the base of each vector the value of `before` for its total.
static void add_before(const Scan *scan, Buf *before, Block *out) {
    Expr *slot;
    Block *body = counted(&scan->c, "d", digits_count(scan->layout, scan->vectors), &slot, out);
    Expr *from = e_load1(scan->arena, before, place(scan, slot, scan->vectors, scan->left, -1, NULL));
    block_store1(scan->arena, body, scan->base, slot, combined(&scan->c, from, e_load1(scan->arena, scan->base, slot)));
}

// ---- in the warp ----

static void scan_lanes(const Scan *scan, const ThreadDigit *along, bool more, Block *out) {
    Arena *arena = scan->arena;
    Expr *slot, *lane = lower_lane(scan->c.lower);
    int64_t weight = along->weight, count = digits_count(scan->layout, scan->left);
    Expr *digit = named(scan, "along", simple(scan, e_rem(arena, thread_digit(scan, along), along->within)), out);
    Buf *before = declare(scan, "before", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    Expr *total = e_load1(scan->arena, scan->total, slot);
    for (int64_t step = 1; step < along->within; step *= 2) {
        Expr *other = named(scan, "other", e_call2(arena, OP_SHFL_UP, total, e_int(arena, step * weight)), body);
        Expr *reaches = e_lt(arena, digit, e_int(arena, step));
        block_store1(scan->arena, body, scan->total, slot,
                     e_select(arena, reaches, total, combined(&scan->c, other, total)));
    }
    Expr *other = named(scan, "other", e_call2(arena, OP_SHFL_UP, total, e_int(arena, weight)), body);
    block_store1(scan->arena, body, before, slot,
                 e_select(arena, e_lt(arena, digit, e_int(arena, 1)), identity(&scan->c), other));
    if (more) {
        Expr *behind = e_times(arena, e_sub(arena, e_int(arena, along->within - 1), digit), weight);
        Expr *last = simple(scan, e_add(arena, lane, behind));
        block_store1(scan->arena, body, scan->total, slot, e_call2(arena, OP_SHFL_IDX, total, last));
    }
    add_before(scan, before, out);
}

// ---- across warps ----

// One exchange through the scratch.
typedef struct Exchange {
    int level;
    const ThreadDigit *digit;
    int64_t keys, count;   // threads with different totals; totals per thread
    bool agree;            // all lanes of a warp have the same totals
    Expr *key, *mine;      // number of the thread among them; of its warp's partial result
} Exchange;

static Exchange exchange_of(const Scan *scan, int l, Block *out) {
    Arena *arena = scan->arena;
    Exchange x = {.level = l, .digit = &scan->levels.items[l].digit, .key = e_int(arena, 0)};
    int64_t radix = 1;
    int64_t lanes = scan->c.lower->target->warp_lanes;
    x.agree = tv_threads(scan->layout) % lanes == 0;
    x.keys = key_count(&scan->levels, l, &scan->digits);
    x.count = digits_count(scan->layout, scan->left);
    VEC_EACH (const ThreadDigit, digit, &scan->digits) {
        if (!is_key(&scan->levels, l, digit)) continue;
        x.agree &= digit->mode->extent == 1 || digit->weight % lanes == 0;
        x.key = e_add(arena, x.key, e_times(arena, thread_digit(scan, digit), radix));
        radix *= digit->mode->extent;
    }
    x.key = simple(scan, x.key);
    Expr *mine = e_over(arena, thread_digit(scan, x.digit), x.digit->within);
    x.mine = named(scan, "mine", simple(scan, mine), out);
    return x;
}

// The first of the threads that hold the same totals; with `any_lane`, all lanes of the first warp.
static Expr *is_first(const Scan *scan, const Exchange *x, bool any_lane) {
    Arena *arena = scan->arena;
    Expr *first = NULL, *zero = e_int(arena, 0);
    VEC_EACH (const ThreadDigit, d, &scan->digits) {
        if (d->mode->extent == 1 || is_key(&scan->levels, x->level, d)) continue;
        Expr *digit = thread_digit(scan, d), *lanes = e_rem(arena, digit, d->within);
        Expr *warps = e_over(arena, digit, d->within);
        if (d->within > 1 && !any_lane) first = e_both(arena, first, e_eq(arena, lanes, zero));
        if (d->above > 1 && d->mode != x->digit->mode) first = e_both(arena, first, e_eq(arena, warps, zero));
    }
    return first ? simple(scan, first) : NULL;
}

// Scratch index of a warp's total.
static Expr *scratch_row(const Scan *scan, const Exchange *x, Expr *partial, Expr *slot) {
    Arena *arena = scan->arena;
    int64_t near = x->agree ? x->digit->above : x->keys;   // values of different lanes are adjacent
    Expr *row = x->agree ? e_add(arena, e_times(arena, slot, x->keys), x->key)
                         : e_add(arena, e_times(arena, partial, x->count), slot);
    Expr *at = e_add(arena, e_times(arena, row, near), x->agree ? partial : x->key);
    return simple(scan, e_add(arena, e_int(arena, scan->taken), at));
}

// In a cluster that shares the scan, writes to the slice of each CTA: one lane per CTA if all lanes hold the totals.
static void write_totals(const Scan *scan, const Exchange *x, Block *out) {
    Arena *arena = scan->arena;
    const Combiner *c = &scan->c;
    Expr *slot, *zero = e_int(arena, 0);
    bool spread = c->blocks > 1 && x->agree;
    Expr *first = is_first(scan, x, spread);
    if (spread) first = e_both(arena, first, e_lt(arena, lower_lane(c->lower), e_int(arena, c->blocks)));
    Block *inside = counted(c, "d", x->count, &slot, block_if(arena, out, first));
    scratch_store(c, spread, scratch_row(scan, x, x->mine, slot), zero, e_load1(scan->arena, scan->total, slot),
                  inside);
}

static void push_butterflies(const Scan *scan, Buf *buf, Expr *slot, int64_t lanes, Block *out) {
    for (int64_t mask = 1; mask < lanes; mask *= 2)
        block_store1(scan->arena, out, buf, slot, butterfly(&scan->c, buf, slot, mask, out));
}

// before[slot] = the totals of the warps before this one; total[slot] = of all warps.
static void read_totals(const Scan *scan, const Exchange *x, Buf *before, bool more, Block *out) {
    Arena *arena = scan->arena;
    int64_t lanes = x->agree ? lanes_that_share(&scan->c, x->digit->above) : 1;
    Expr *slot, *partial;
    Block *body = counted(&scan->c, "d", x->count, &slot, out);
    block_store1(scan->arena, body, before, slot, identity(&scan->c));
    if (more) block_store1(scan->arena, body, scan->total, slot, identity(&scan->c));
    Block *each = each_partial(&scan->c, x->digit->above, lanes, &partial, body);
    Expr *piece = scratch_load(&scan->c, scratch_row(scan, x, partial, slot), e_int(arena, 0));
    Expr *other = named(scan, "other", piece, each);
    Expr *sum = e_load1(scan->arena, before, slot), *all = e_load1(scan->arena, scan->total, slot);
    block_store1(scan->arena, each, before, slot,
                 e_select(arena, e_lt(arena, partial, x->mine), combined(&scan->c, sum, other), sum));
    if (more) block_store1(scan->arena, each, scan->total, slot, combined(&scan->c, all, other));
    push_butterflies(scan, before, slot, lanes, body);
    if (more) push_butterflies(scan, scan->total, slot, lanes, body);
}

static void scan_warps(Scan *scan, int level, bool more, Block *out) {
    Exchange x = exchange_of(scan, level, out);
    write_totals(scan, &x, out);
    EXPECT(scan->c.lower->context->failure, scan->c.scratch, "a scan across warps has no scratch");
    block_barrier(scan->arena, out, (Span){0});
    Buf *before = declare(scan, "before", x.count, out);
    read_totals(scan, &x, before, more, out);
    add_before(scan, before, out);
    scan->taken += x.digit->above * x.keys * x.count;
}

// ---- the scan ----

static void scan_level(Scan *scan, int l, Block *out) {
    const Level *level = &scan->levels.items[l];
    bool more = l + 1 < scan->levels.count;
    if (level->input == TV_VALUE) {
        scan_values(scan, level, more, out);
        return;
    }
    const ThreadDigit *digit = &level->digit;
    if (digit->within > 1) scan_lanes(scan, digit, more || digit->above > 1, out);
    if (digit->above > 1) scan_warps(scan, l, more, out);
}

// All levels above the vectors: computes base.
static void scan_vectors(Scan *scan, int first, Block *out) {
    Expr *slot;
    int64_t count = digits_count(scan->layout, scan->vectors);
    scan->base = declare(scan, "base", count, out);
    Block *body = counted(&scan->c, "d", count, &slot, out);
    block_store1(scan->arena, body, scan->base, slot, identity(&scan->c));
    if (first > 0) {
        scan->total = last_along(scan, scan->run, scan->all, scan->levels.items[0].mode, out);
    } else {
        scan->total = declare(scan, "total", count, out);
        body = counted(&scan->c, "d", count, &slot, out);
        block_store1(scan->arena, body, scan->total, slot, e_load1(scan->arena, scan->run, slot));
    }
    scan->left = scan->vectors;
    for (int l = first; l < scan->levels.count; l++) scan_level(scan, l, out);
}

static void store_results(const Scan *scan, Buf *to, Block *out) {
    Expr *value;
    Block *body = counted(&scan->c, "r", tv_values(scan->layout), &value, out);
    Expr *result = e_load1(scan->arena, scan->run, value);
    if (scan->base) {
        Expr *before = e_load1(scan->arena, scan->base, place(scan, value, scan->all, scan->vectors, -1, NULL));
        result = combined(&scan->c, before, result);
    }
    block_store1(scan->arena, body, to, value, e_cast(scan->arena, to->type, result));
}

bool lower_scan(Lower *lower, Stmt *stmt, Block *out) {
    Buf *src = scan_of(stmt).src->buf, *dst = scan_of(stmt).dst->buf;
    OpId op = stmt->call.op == OP_SCAN_SUM ? OP_REDUCE_SUM : OP_REDUCE_MAX;
    Scan scan = {.c = combiner_of(lower, stmt, op), .arena = lower->arena, .layout = src->layout};
    EXPECT(lower->context->failure, layout_equal(src->layout, dst->layout), "'%s' and its scan have different layouts",
           src->name);
    scan.digits = tv_thread_digits(scan.layout, lower->target->warp_lanes);
    if (!levels_of(scan.layout, reduce_op_axis(stmt), &scan.digits, &scan.levels)) return false;
    scan.all = scan.vectors = all_digits(scan.layout);
    Block *body = block_nested(lower->arena, out, (Span){0});
    int mark = facts_mark(lower->facts);
    scan.run = declare(&scan, "run", tv_values(scan.layout), body);
    load_values(&scan, src, body);
    bool in_vectors = scan.levels.count > 0 && scan.levels.items[0].input == TV_VALUE;
    if (in_vectors) {
        sum_along(&scan, scan.run, scan.all, scan.run, scan.all, scan.levels.items[0].mode, body);
        scan.vectors &= ~((Digits)1 << scan.levels.items[0].mode);
    }
    if (scan.levels.count > in_vectors) scan_vectors(&scan, in_vectors, body);
    store_results(&scan, lower_local(lower, dst), body);
    facts_release(lower->facts, mark);
    return true;
}
