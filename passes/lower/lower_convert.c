// Conversions of a fragment's layout within warps: copy(f, g) with @via(shuffle).
//
// What moves is decided by layout/shuffle.h. Elements travel in the narrower of the two types, those of one word
// together:
//
//     local packed: bf16[8], words: u32[4], got: u32[4], out: bf16[8];
//     unroll (j in 8) packed[j] = bf16(f[...]);            words of elements that travel together
//     recast(words[0], packed[0], 4);
//     unroll (i in 4) swapped[i] = t % 2 != 0 ? words[i ^ 1] : words[i];     what a lane sends depends on its number
//     got[0] = swapped[0];
//     unroll (i in 1 .. 4) got[i] = shfl_xor(swapped[i], ...);
//     unroll (i in 4) ... got[i ^ 1] ...;                  and where it goes
//     recast(out[0], ..., 8);
//     unroll (j in 8) g[...] = out[j];
#include "ir/build.h"
#include "layout/shuffle.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"

typedef struct Convert {
    Lower *lower;
    Arena *arena;
    ShufflePlan plan;
    Span loc;
    Type element, word;   // that travel
    Block *out;
} Convert;

// ---- linear maps as expressions ----

// The parity of x & mask: 0 or 1. A bit b of x steps by `steps[b]`; NULL: by 2^b.
static Expr *parity(Arena *arena, Expr *x, const int64_t *steps, uint64_t mask) {
    Expr *sum = e_int(arena, 0);
    for (; mask; mask &= mask - 1) {
        int bit = __builtin_ctzll(mask);
        sum = e_xor(arena, sum, e_rem(arena, e_over(arena, x, steps ? steps[bit] : (int64_t)1 << bit), 2));
    }
    return sum;
}

// Sum of weights[b] over the bits b of the image of x; weights NULL: the image itself.
static Expr *image_of(Arena *arena, Expr *x, const int64_t *steps, const uint64_t *columns, int count,
                      const int64_t *weights) {
    Expr *sum = e_int(arena, 0);
    uint64_t all = 0;
    for (int i = 0; i < count; i++) all |= columns[i];
    for (; all; all &= all - 1) {
        int bit = __builtin_ctzll(all);
        uint64_t mask = 0;
        for (int i = 0; i < count; i++) mask |= (columns[i] >> bit & 1) << i;
        int64_t weight = weights ? weights[bit] : (int64_t)1 << bit;
        sum = e_add(arena, sum, e_times(arena, parity(arena, x, steps, mask), weight));
    }
    return sum;
}

// ---- pieces ----

static Block *unrolled(const Convert *c, const char *name, int64_t from, int64_t to, Expr **index) {
    return lower_counted(c->lower, LOOP_UNROLL, name, from, to, c->loc, index, c->out);
}

static Buf *array(const Convert *c, const char *name, Type type, int bits) {
    return block_local(c->arena, c->out, name, type, (int64_t)1 << bits, c->loc);
}

static Buf *recast(const Convert *c, Buf *from, const char *name, Type type, int bits) {
    if (from->type == type) return from;
    Buf *to = array(c, name, type, bits);
    BLOCK_CALL(c->arena, c->out, c->loc, OP_RECAST, arg_element(c->arena, to, e_int(c->arena, 0)),
               arg_element(c->arena, from, e_int(c->arena, 0)), arg_int(c->arena, (int64_t)1 << bits));
    return to;
}

// x[i ^ image of the thread]: a selection for each independent part of the image.
static Buf *swapped(const Convert *c, Buf *x, int bits, const uint64_t *columns) {
    Arena *arena = c->arena;
    uint64_t masks[SHUFFLE_BITS], images[SHUFFLE_BITS];
    int count = shuffle_swaps(columns, c->plan.thread_bits, masks, images);
    for (int s = 0; s < count; s++) {
        Expr *i, *odd = parity(arena, lower_thread(c->lower), c->plan.thread_weight, masks[s]);
        Expr *swaps = lower_named(c->lower, "swaps", e_eq(arena, odd, e_int(arena, 1)), c->loc, c->out);
        Buf *to = array(c, "swapped", c->word, bits);
        Block *body = unrolled(c, "i", 0, (int64_t)1 << bits, &i);
        Expr *other = e_load1(arena, x, e_xor(arena, i, e_int(arena, (int64_t)images[s])));
        block_store1(arena, body, to, i, e_select(arena, swaps, other, e_load1(arena, x, i)));
        x = to;
    }
    return x;
}

// ---- the steps ----

static Buf *pack(const Convert *c, Buf *from, Expr *offset) {
    Arena *arena = c->arena;
    Expr *j;
    Buf *packed = array(c, "packed", c->element, c->plan.source_bits);
    Block *body = unrolled(c, "j", 0, (int64_t)1 << c->plan.source_bits, &j);
    Expr *slot = image_of(arena, j, NULL, c->plan.source_order, c->plan.source_bits, c->plan.source_weight);
    Expr *value = e_load1(arena, from, e_add(arena, slot, offset));
    block_store1(arena, body, packed, j, e_cast(arena, c->element, value));
    return packed;
}

static Expr *shuffled(const Convert *c, Expr *value, Expr *round, Expr *base) {
    Arena *arena = c->arena;
    Expr *step = image_of(arena, round, NULL, c->plan.lane_step, c->plan.rounds, NULL);
    if (!base) return e_call2(arena, OP_SHFL_XOR, value, step);
    return e_call2(arena, OP_SHFL_IDX, value, e_xor(arena, base, step));
}

static Buf *exchange(const Convert *c, Buf *words) {
    Arena *arena = c->arena;
    const ShufflePlan *plan = &c->plan;
    Expr *i, *base = NULL;
    int64_t local = plan->local < 0 ? 0 : (int64_t)1 << plan->local;
    if (plan->local < 0) {
        base = image_of(arena, lower_thread(c->lower), plan->thread_weight, plan->lane_base, plan->thread_bits, NULL);
        int64_t group = (int64_t)1 << plan->lane_bits, warp = c->lower->target->warp_lanes;
        Expr *first = e_over(arena, e_rem(arena, lower_thread(c->lower), warp), group);
        if (group < warp) base = e_add(arena, e_times(arena, first, group), base);
        base = lower_named(c->lower, "from", base, c->loc, c->out);
    }
    Buf *got = array(c, "got", c->word, plan->rounds);
    for (int piece = 0; piece < 2; piece++) {
        int64_t begin = piece ? local : 0, end = piece ? (int64_t)1 << plan->rounds : local;
        if (begin == end) continue;
        Block *body = unrolled(c, "i", begin, end, &i);
        Expr *value = e_load1(arena, words, image_of(arena, i, NULL, plan->sent, plan->rounds, NULL));
        block_store1(arena, body, got, i, piece ? shuffled(c, value, i, base) : value);
    }
    return got;
}

static void unpack(const Convert *c, Buf *elements, Buf *to, Expr *offset) {
    Arena *arena = c->arena;
    const ShufflePlan *plan = &c->plan;
    Expr *j;
    int bits = plan->unit + plan->rounds;
    Block *body = unrolled(c, "j", 0, (int64_t)1 << (bits + plan->copies), &j);
    Expr *slot = image_of(arena, j, NULL, plan->destination_order, bits + plan->copies, plan->destination_weight);
    Expr *value = e_load1(arena, elements, plan->copies ? e_rem(arena, j, (int64_t)1 << bits) : j);
    block_store1(arena, body, to, e_add(arena, slot, offset), e_cast(arena, to->type, value));
}

// ---- all ----

// A loop over what both sides repeat; the values at which a repetition begins.
static Block *repeated(Convert *c, Expr **from, Expr **to, Block *out) {
    Arena *arena = c->arena;
    *from = *to = e_int(arena, 0);
    for (int i = 0; i < c->plan.repeat_count; i++) {
        const ShuffleRepeat *repeat = &c->plan.repeats[i];
        Expr *r;
        out = lower_counted(c->lower, LOOP_UNROLL, "r", 0, repeat->extent, c->loc, &r, out);
        *from = e_add(arena, *from, e_times(arena, r, repeat->source));
        *to = e_add(arena, *to, e_times(arena, r, repeat->destination));
    }
    return c->plan.repeat_count ? out : block_nested(arena, out, c->loc);
}

Type conversion_type(const Buf *from, const Buf *to) {
    Type narrow = type_bits(to->type) < type_bits(from->type) ? to->type : from->type;
    return narrow == TYPE_BOOL ? TYPE_U8 : narrow;
}

void lower_conversion(Lower *lower, const Stmt *copy, Block *out) {
    Buf *from = copy_of(copy).src->buf, *to = copy_of(copy).dst->buf;
    Convert c = {.lower = lower, .arena = lower->arena, .loc = copy->loc, .element = conversion_type(from, to)};
    LayoutContext cx = layout_context(lower->arena);
    Quotient q = quotient_of(&cx, from->layout, to->layout, lower->target->warp_lanes);
    c.plan = shuffle_plan(&cx, &q, type_bits(c.element));
    EXPECT(lower->context->failure, !cx.failed, "no shuffles convert '%s': %s", from->name, cx.reason);
    static const Type words[] = {TYPE_U8, TYPE_U16, TYPE_U32};
    int bytes = c.plan.unit ? type_bytes(c.element) << c.plan.unit : 0;
    c.word = bytes ? words[bytes / 2] : c.element;
    Expr *first, *place;
    int mark = facts_mark(lower->facts);
    int words_bits = c.plan.source_bits - c.plan.unit;
    c.out = repeated(&c, &first, &place, out);
    Buf *x = recast(&c, pack(&c, lower_local(lower, from), first), "words", c.word, words_bits);
    x = swapped(&c, x, words_bits, c.plan.swap_source);
    x = swapped(&c, exchange(&c, x), c.plan.rounds, c.plan.swap_destination);
    x = recast(&c, x, "elements", c.element, c.plan.unit + c.plan.rounds);
    unpack(&c, x, lower_local(lower, to), place);
    facts_release(lower->facts, mark);
}
