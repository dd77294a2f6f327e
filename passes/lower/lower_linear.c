// Copies between a shared tile and a fragment along the bits of their layouts (@via(linear)).
//
// A tile whose layout is linear on bits puts value v of thread t at T(t) ^ V(v), both XORs of the images of bits. So the values
// whose bits have the images 1, 2, 4, .. lie together, along whichever dim: they are one access. The address is
//
//     (base ^ x) + y     base: of the thread; x: images of value bits that meet those of threads; y: all others, constants
//
// after unrolling. A digit of the values that is no power of two steps by a multiple and is added.
//
//     unroll (i in 4) { local words: f16[8]; unroll (e in 8) words[e] = v[..]; vectorized (e in 8) s[(base ^ x) + y + e] = words[e]; }
#include "ir/build.h"
#include "passes/layout/fragment.h"
#include "passes/lower/lower.h"

static void remove_step(Steps *steps, int at) {
    for (int i = at; i + 1 < steps->count; i++) steps->items[i] = steps->items[i + 1];
    steps->count--;
}

static int find_step(const Steps *values, int64_t place) {
    for (int i = 0; i < values->count; i++)
        if (values->items[i].extent == 2 && values->items[i].stride == place) return i;
    return -1;
}

static bool all_multiples(const Steps *steps, int64_t of) {
    for (int i = 0; i < steps->count; i++)
        if (steps->items[i].stride % of) return false;
    return true;
}

// The widest vector: the values of its bits, without others between.
static int64_t vector_of(const Steps *threads, const Steps *values, int64_t most) {
    for (int64_t width = most; width > 1; width /= 2) {
        Steps rest = *values;
        bool held = true;
        for (int64_t place = 1; place < width && held; place *= 2) {
            int at = find_step(&rest, place);
            held = at >= 0;
            if (held) remove_step(&rest, at);
        }
        if (held && all_multiples(threads, width) && all_multiples(&rest, width)) return width;
    }
    return 1;
}

bool linear_copy_of(const Target *target, const Stmt *stmt, LinearCopy *out) {
    CopyOp copy;
    if (!match_copy(stmt, &copy) || stmt->call.is_async) return false;
    bool load = copy.dst->buf->scope == SCOPE_FRAGMENT;
    const Region *tile = load ? copy.src : copy.dst, *fragment = load ? copy.dst : copy.src;
    if (tile->buf->scope != SCOPE_SHARED || fragment->buf->scope != SCOPE_FRAGMENT) return false;
    if (!region_is_whole(fragment) || fragment->transposed || tile->transposed || !fragment->buf->layout) return false;
    *out = (LinearCopy){.load = load, .tile = tile, .fragment = fragment};
    for (int d = 0; d < fragment->buf->rank; d++)
        if (fragment->buf->layout->out_shape[d] != buf_extent(fragment->buf, d)) return false;
    if (!steps_in_memory(tile, fragment->buf->layout, &out->threads, &out->values)) return false;
    out->width = vector_of(&out->threads, &out->values, target->vector_bytes / type_bytes(tile->buf->type));
    for (int64_t place = 1; place < out->width; place *= 2) {
        int at = find_step(&out->values, place);
        out->within[log2_exact(place)] = out->values.items[at].weight;
        remove_step(&out->values, at);
    }
    for (int i = out->values.count - 1; i >= 0; i--) {
        if (out->values.items[i].stride) continue;
        out->copies.items[out->copies.count++] = out->values.items[i];
        remove_step(&out->values, i);
    }
    return true;
}

// ---- places ----

// Bits of places that one value step alone reaches, and no thread.
static int64_t added_bits(const LinearCopy *copy) {
    int64_t reached = 0, more = 0;
    for (int i = 0; i < copy->threads.count; i++) more |= copy->threads.items[i].stride;
    for (int i = 0; i < copy->values.count; i++) {
        int64_t reach = copy->values.items[i].stride;
        more |= reached & reach;
        reached |= reach;
    }
    return reached & ~more;
}

typedef struct Place {
    Expr *value, *xored, *added;
} Place;

static void add_step(Arena *arena, Place *place, const Step *step, Expr *digit, int64_t added) {
    place->value = e_add(arena, place->value, e_times(arena, digit, step->weight));
    if (step->extent != 2) added = step->stride;
    place->added = e_add(arena, place->added, e_times(arena, digit, step->stride & added));
    if (step->stride & ~added) place->xored = e_xor(arena, place->xored, e_times(arena, digit, step->stride & ~added));
}

// Loops over all accesses of a thread: one over the bits, one for each other digit.
static Block *accesses(Lower *lower, const LinearCopy *copy, Span loc, Place *place, Block *out) {
    Arena *arena = lower->arena;
    int64_t added = added_bits(copy), count = 1;
    Expr *i, *zero = e_int(arena, 0);
    *place = (Place){zero, zero, zero};
    for (int s = 0; s < copy->values.count; s++) {
        const Step *step = &copy->values.items[s];
        if (step->extent == 2) count *= 2;
        else {
            out = lower_counted(lower, LOOP_UNROLL, "r", 0, step->extent, loc, &i, out);
            add_step(arena, place, step, i, added);
        }
    }
    out = lower_counted(lower, LOOP_UNROLL, "i", 0, count, loc, &i, out);
    int64_t bit = 1;
    for (int s = 0; s < copy->values.count; s++)
        if (copy->values.items[s].extent == 2) {
            add_step(arena, place, &copy->values.items[s], e_rem(arena, e_over(arena, i, bit), 2), added);
            bit *= 2;
        }
    return out;
}

static Expr *thread_place(Lower *lower, const LinearCopy *copy, Span loc, Block *out) {
    Expr *in[] = {lower_thread(lower), e_int(lower->arena, 0)}, *at[LAYOUT_MAX_RANK];
    layout_forward(lower->arena, lower->facts, copy->fragment->buf->layout, in, at);
    const Region *place = lower_place(lower, copy->tile->buf, copy->tile->buf->rank, at);
    return lower_named(lower, "base", place->dims[place->count - 1].start, loc, out);
}

// ---- lowering ----

static Expr *within(Arena *arena, const LinearCopy *copy, Expr *e) {
    Expr *value = e_int(arena, 0);
    for (int b = 0; (int64_t)1 << b < copy->width; b++)
        value =
            e_add(arena, value, e_times(arena, e_rem(arena, e_over(arena, e, (int64_t)1 << b), 2), copy->within[b]));
    return value;
}

// Loops over equal elements of a destination.
static Block *repeated(Lower *lower, const LinearCopy *copy, Span loc, Expr **slot, Block *out) {
    Expr *r;
    for (int i = 0; i < copy->copies.count; i++) {
        out = lower_counted(lower, LOOP_UNROLL, "r", 0, copy->copies.items[i].extent, loc, &r, out);
        *slot = e_add(lower->arena, *slot, e_times(lower->arena, r, copy->copies.items[i].weight));
    }
    return out;
}

static void load_vector(Lower *lower, const LinearCopy *copy, Span loc, const Place *place, Expr *index, Block *out) {
    Arena *arena = lower->arena;
    Buf *memory = copy->tile->buf, *local = lower_local(lower, copy->fragment->buf);
    Buf *words = block_local(arena, out, "words", memory->type, copy->width, loc);
    Expr *e;
    Block *body =
        lower_counted(lower, copy->width > 1 ? LOOP_VECTORIZED : LOOP_UNROLL, "e", 0, copy->width, loc, &e, out);
    Expr *at = e_add(arena, index, e);
    block_store1(arena, body, words, e, e_load_at(arena, lower_in_image(lower, memory, 1, &at)));
    body = lower_counted(lower, LOOP_UNROLL, "e", 0, copy->width, loc, &e, out);
    Expr *slot = e_add(arena, place->value, within(arena, copy, e));
    body = repeated(lower, copy, loc, &slot, body);
    block_store1(arena, body, local, slot, e_cast(arena, local->type, e_load1(arena, words, e)));
}

static void store_vector(Lower *lower, const LinearCopy *copy, Span loc, const Place *place, Expr *index, Block *out) {
    Arena *arena = lower->arena;
    Buf *memory = copy->tile->buf, *local = lower_local(lower, copy->fragment->buf);
    Buf *words = block_local(arena, out, "words", memory->type, copy->width, loc);
    Expr *e;
    Block *body = lower_counted(lower, LOOP_UNROLL, "e", 0, copy->width, loc, &e, out);
    Expr *value = e_load1(arena, local, e_add(arena, place->value, within(arena, copy, e)));
    block_store1(arena, body, words, e, e_cast(arena, memory->type, value));
    body = lower_counted(lower, copy->width > 1 ? LOOP_VECTORIZED : LOOP_UNROLL, "e", 0, copy->width, loc, &e, out);
    Expr *at = e_add(arena, index, e);
    block_push(arena, body, s_store_at(arena, lower_in_image(lower, memory, 1, &at), e_load1(arena, words, e)));
}

void lower_linear_copy(Lower *lower, const Stmt *stmt, const LinearCopy *copy, Block *out) {
    Arena *arena = lower->arena;
    int mark = facts_mark(lower->facts);
    Place place;
    out = block_nested(arena, out, stmt->loc);
    Expr *base = thread_place(lower, copy, stmt->loc, out);
    Expr *first = copy->load ? NULL : fragment_first_replica(arena, copy->fragment->buf->layout, lower_thread(lower));
    if (first) out = block_if(arena, out, first);
    out = accesses(lower, copy, stmt->loc, &place, out);
    Expr *index = e_add(arena, e_xor(arena, base, place.xored), place.added);
    (copy->load ? load_vector : store_vector)(lower, copy, stmt->loc, &place, index, out);
    facts_release(lower->facts, mark);
}
