// Index arithmetic: offsets into global tensors, and layouts as expressions.
//
// A digit of an input x is x / weight % extent (the slowest without %). An output is the sum of its digits times their
// strides. A swizzle is written on chunks, not on the whole offset: the sum of the last output is cut at the bits that
// the XOR touches (bits cut, for Sw<3,4,3> and 16-bit elements),
//
//      index  =  rest * 64  +  chunk * 8  +  vec             chunk: bits 3..5, its partner: bits 6..8, vec: bits 0..2
//      Forward:  rest * 64  +  (chunk ^ partner) * 8  +  vec
//
// so that constants fold through vec and rest, and (chunk ^ partner) is shared. It needs digits that do not straddle
// the cuts (they are cut with them) and sums of digits that do not carry across; where that fails the XOR takes the
// whole. A linear layout is an XOR of runs of bits of digits, each moved by one distance.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/linear.h"

// ---- global tensors ----
Expr *global_stride(Arena *arena, const Buf *buf, int dim) {
    if (buf->strides) return buf->strides[dim];
    Expr *stride = e_int(arena, 1);
    for (int i = dim + 1; i < buf->rank; i++) stride = e_mul(arena, stride, buf->shape[i]);
    return stride;
}

Expr *global_offset(Arena *arena, const Buf *buf, int count, Expr *const *indices) {
    Expr *offset = e_int(arena, 0);
    for (int i = 0; i < count; i++) {
        if (buf->strides) offset = e_add(arena, offset, e_mul(arena, indices[i], buf->strides[i]));
        else offset = e_add(arena, i ? e_mul(arena, offset, buf->shape[i]) : offset, indices[i]);
    }
    return offset;
}

// ---- layouts ----
typedef struct Piece {
    Expr *value;   // in [0, extent)
    int64_t extent, stride;
} Piece;

enum { MAX_PIECES = LAYOUT_MAX_RANK * LAYOUT_MAX_MODES * 2 };

typedef struct Forward {
    Arena *arena;
    const Facts *facts;
    int count;
    Piece pieces[MAX_PIECES];   // of the swizzled output
} Forward;

static Expr *times(Arena *arena, Expr *e, int64_t factor) {
    return e_mul(arena, e, e_int(arena, factor));
}

static Expr *digit_value(Arena *arena, Expr *x, int64_t weight, int64_t extent, bool slowest) {
    Expr *digit = e_div(arena, x, e_int(arena, weight));
    return slowest ? digit : e_mod(arena, digit, e_int(arena, extent));
}

static Expr *sum_pieces(const Forward *f, int64_t low, int64_t high, int64_t unit) {
    Expr *sum = e_int(f->arena, 0);
    for (int i = 0; i < f->count; i++) {
        const Piece *piece = &f->pieces[i];
        if (piece->stride < low || piece->stride >= high) continue;
        sum = e_add(f->arena, sum, times(f->arena, piece->value, piece->stride / unit));
    }
    return simplify_expr(f->arena, f->facts, sum);
}

// Cuts every piece that reaches across the bit `cut`: value % n below, value / n above. False when one does not divide.
static bool cut_pieces(Forward *f, int64_t cut) {
    for (int i = 0, count = f->count; i < count; i++) {
        Piece *piece = &f->pieces[i];
        if (piece->stride >= cut || piece->stride * (piece->extent - 1) < cut) continue;
        if (cut % piece->stride != 0 || f->count == MAX_PIECES) return false;
        int64_t below = cut / piece->stride;
        Expr *value = piece->value, *by = e_int(f->arena, below);
        f->pieces[f->count++] = (Piece){e_div(f->arena, value, by), (piece->extent + below - 1) / below, cut};
        *piece = (Piece){e_mod(f->arena, value, by), below, piece->stride};
    }
    return true;
}

// Whether the pieces with strides in [low, high) stay below `high` together and start on multiples of `low`.
static bool field_is_closed(const Forward *f, int64_t low, int64_t high) {
    int64_t most = 0;
    for (int i = 0; i < f->count; i++) {
        const Piece *piece = &f->pieces[i];
        if (piece->stride < low || piece->stride >= high) continue;
        if (piece->stride % low != 0) return false;
        most += piece->stride * (piece->extent - 1);
    }
    return most < high;
}

static bool tail_is_aligned(const Forward *f, int64_t low) {
    for (int i = 0; i < f->count; i++)
        if (f->pieces[i].stride >= low && f->pieces[i].stride % low != 0) return false;
    return true;
}

// The swizzle x ^ (x >> shift & mask) with the mask's bits at `base`, of the whole sum: for sums with carries.
static Expr *swizzle_whole(const Forward *f, const Swizzle *s) {
    Expr *x = sum_pieces(f, 1, INT64_MAX, 1);
    Expr *partner = e_div(f->arena, x, e_int(f->arena, (int64_t)1 << (s->base + s->shift)));
    partner = e_mod(f->arena, partner, e_int(f->arena, (int64_t)1 << s->bits));
    return e_xor(f->arena, x, times(f->arena, partner, (int64_t)1 << s->base));
}

static Expr *swizzle_pieces(Forward *f, const Swizzle *s) {
    int64_t chunk = (int64_t)1 << s->base, chunks = chunk << s->bits;
    int64_t partner = chunk << s->shift, partners = partner << s->bits;
    int64_t cuts[] = {chunk, chunks, partner, partners};
    for (int i = 0; i < 4; i++)
        if (!cut_pieces(f, cuts[i])) return swizzle_whole(f, s);
    bool closed = field_is_closed(f, 1, chunk) && field_is_closed(f, chunk, chunks) &&
                  (chunks == partner || field_is_closed(f, chunks, partner)) && field_is_closed(f, partner, partners) &&
                  tail_is_aligned(f, partners);
    if (!closed) return swizzle_whole(f, s);
    Expr *mixed = e_xor(f->arena, sum_pieces(f, chunk, chunks, chunk), sum_pieces(f, partner, partners, partner));
    Expr *rest = sum_pieces(f, chunks, INT64_MAX, 1), *vec = sum_pieces(f, 1, chunk, 1);
    return e_add(f->arena, e_add(f->arena, rest, times(f->arena, mixed, chunk)), vec);
}

static void digits_forward(Arena *arena, const Facts *facts, const Layout *layout, Expr *const *in, Expr **out) {
    Forward f = {.arena = arena, .facts = facts};
    int swizzled = layout->swizzle.bits ? layout->rank_out - 1 : -1;
    for (int i = 0; i < layout->rank_out; i++) out[i] = e_int(arena, 0);
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t weight = 1;
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            bool goes_on = d == layout->in[i].count - 1 && !layout->in[i].ring;
            Expr *digit = digit_value(arena, in[i], weight, mode->extent, goes_on);
            weight *= mode->extent;
            if (mode->stride == 0) continue;
            if (mode->out == swizzled) f.pieces[f.count++] = (Piece){digit, mode->extent, mode->stride};
            else out[mode->out] = e_add(arena, out[mode->out], times(arena, digit, mode->stride));
        }
    }
    if (swizzled >= 0) {
        Swizzle s = layout_swizzle(layout);
        out[swizzled] = swizzle_pieces(&f, &s);
    }
}

// Bits from .. from + count of an input, moved up by `shift`.
static Expr *moved_bits(Arena *arena, Expr *x, int from, int count, int shift, bool whole) {
    Expr *field = e_div(arena, x, e_int(arena, (int64_t)1 << from));
    if (!whole) field = e_mod(arena, field, e_int(arena, (int64_t)1 << count));
    return times(arena, field, (int64_t)1 << (from + shift));
}

// The XOR of an input's bits, each moved by the same distance to a bit of its image: runs of neighbours together.
static Expr *moved_by(Arena *arena, const LayoutBits *bits, int first, int count, int out, int shift, Expr *x,
                      Expr *sum) {
    for (int from = 0, end; from < count; from = end + 1) {
        for (end = from; end < count && end + shift >= 0 && bits->images[first + end][out] >> (end + shift) & 1;) end++;
        if (end > from) sum = e_xor(arena, sum, moved_bits(arena, x, from, end - from, shift, end == count));
    }
    return sum;
}

static void bits_forward(Arena *arena, const Layout *layout, Expr *const *in, Expr **out) {
    for (int o = 0; o < layout->rank_out; o++) out[o] = e_int(arena, 0);
    for (int i = 0, first = 0; i < layout->rank_in; i++) {
        int64_t weight = 1;
        int end = first + layout->bits->in[i];
        for (int d = 0; d < layout->in[i].count; d++) {
            int64_t extent = layout->in[i].modes[d].extent;
            bool slowest = d == layout->in[i].count - 1;
            int count = slowest ? end - first : log2_above(extent);
            Expr *digit = digit_value(arena, in[i], weight, extent, slowest);
            for (int o = 0; o < layout->rank_out; o++)
                for (int shift = -LAYOUT_MAX_BITS; shift <= LAYOUT_MAX_BITS; shift++)
                    out[o] = moved_by(arena, layout->bits, first, count, o, shift, digit, out[o]);
            first += count;
            weight *= extent;
        }
    }
}

void layout_forward(Arena *arena, const Facts *facts, const Layout *layout, Expr *const *in, Expr **out) {
    if (!facts) facts = facts_new(arena, NULL);
    if (layout->bits) bits_forward(arena, layout, in, out);
    else digits_forward(arena, facts, layout, in, out);
    for (int i = 0; i < layout->rank_out; i++) out[i] = simplify_expr(arena, facts, out[i]);
}
