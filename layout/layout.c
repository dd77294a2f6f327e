// The layout of the compiler (layout.h): the type and what is asked of it.
//
// Everything here is a walk over digits, or over bits in the linear form. An input coordinate x with digits (e0, e1,
// ...), fastest first, is x = d0 + e0 * (d1 + e1 * (d2 + ...)); each digit adds d * stride to its output. Two digits
// side by side are one when the second continues the first (same output, stride1 == e0 * stride0), so a layout without
// a swizzle has one normal form, and equal maps are equal data.
//
//     i in 0..256 as (8,32):(64@2,1@1)        i = 21 -> digits 5, 2 -> outputs [_, 2, 320 + _]
//
// Limits: strides are not negative; sizes stay below 2^40 (checked where text comes in), so nothing here overflows.
#include "layout/layout.h"
#include "layout/linear.h"
#include "support/numbers.h"
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static const Layout *refuse(Arena *arena, const char **why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (why) *why = arena_vprintf(arena, format, args);
    va_end(args);
    return NULL;
}

// ---- construction ----
Layout *layout_new(Arena *arena, int rank_in, int rank_out) {
    Layout *layout = NEW(arena, Layout);
    layout->rank_in = rank_in;
    layout->rank_out = rank_out;
    return layout;
}

void layout_add(Layout *layout, int input, int64_t extent, int64_t stride, int out) {
    if (extent == 1) return;
    if (stride == 0) out = 0;
    LayoutInput *in = &layout->in[input];
    LayoutMode *last = in->count ? &in->modes[in->count - 1] : NULL;
    if (last && last->out == out && stride == last->stride * last->extent) {
        last->extent *= extent;
        return;
    }
    if (in->count < LAYOUT_MAX_MODES) in->modes[in->count] = (LayoutMode){extent, stride, out};
    in->count++;   // beyond the capacity: layout_finish refuses
}

Swizzle layout_swizzle(const Layout *layout) {
    Swizzle s = layout->swizzle;
    if (s.bits) s.base += 3 - log2_exact(layout->element_bits);
    return s;
}

// One past the largest value of an output. A swizzle permutes within aligned blocks of 2^(base + bits).
static int64_t output_range(const Layout *layout, int out) {
    int64_t range = 1;
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            if (mode->out == out) range += (mode->extent - 1) * mode->stride;
        }
    if (layout->swizzle.bits && out == layout->rank_out - 1) {
        Swizzle s = layout_swizzle(layout);
        int64_t block = (int64_t)1 << (s.base + s.bits);
        if (range > (int64_t)1 << (s.base + s.shift)) range = ceil_div(range, block) * block;
    }
    return range;
}

const Layout *layout_finish(Layout *layout) {
    for (int i = 0; i < layout->rank_in; i++)
        if (layout->in[i].count > LAYOUT_MAX_MODES) return NULL;
    if (!layout->swizzle.bits) {
        layout->swizzle = (Swizzle){0};
        layout->element_bits = 0;
    }
    for (int out = 0; out < layout->rank_out; out++) layout->out_shape[out] = output_range(layout, out);
    return layout;
}

// ---- the linear form ----

static int bits_in(int rank_in, const LayoutBits *bits) {
    int count = 0;
    for (int i = 0; i < rank_in; i++) count += bits->in[i];
    return count;
}

// Bits of a digit of an input: the slowest one has what is left.
static int digit_bits(const Layout *layout, int input, int digit) {
    const LayoutInput *in = &layout->in[input];
    int left = layout->bits->in[input];
    if (digit < in->count - 1) return log2_above(in->modes[digit].extent);
    for (int d = 0; d < digit; d++) left -= log2_above(in->modes[d].extent);
    return left;
}

// The images with the swizzle undone in the last output: it is its own inverse.
static LayoutBits unswizzled(const LayoutBits *bits, int count, int last, Swizzle s) {
    LayoutBits plain = *bits;
    for (int bit = 0; bit < count; bit++) plain.images[bit][last] = swizzle_apply(s, plain.images[bit][last]);
    return plain;
}

// The images as digits: each flips bits of one output, and no two the same bit, so that XORing is adding.
static Layout *digits_of_bits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits) {
    int64_t taken[LAYOUT_MAX_RANK] = {0};
    Layout *layout = layout_new(arena, rank_in, rank_out);
    for (int in = 0, bit = 0; in < rank_in; in++)
        for (int end = bit + bits->in[in]; bit < end; bit++) {
            int out = 0;
            for (int o = 0, hit = 0; o < rank_out; o++) {
                if (bits->images[bit][o] && hit++) return NULL;
                if (bits->images[bit][o]) out = o;
            }
            if (bits->images[bit][out] & taken[out]) return NULL;
            taken[out] |= bits->images[bit][out];
            layout_add(layout, in, 2, bits->images[bit][out], out);
        }
    return layout;
}

bool layout_swizzle_is_whole(const Layout *layout) {
    int64_t before = 1, last = layout->rank_out - 1;
    for (int i = 0; i < last; i++) before *= output_range(layout, i);
    return before == 1 || output_range(layout, (int)last) % swizzle_period(layout_swizzle(layout)) == 0;
}

static const Layout *digits_under(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits, Swizzle s,
                                  int element_bits) {
    LayoutBits plain = unswizzled(bits, bits_in(rank_in, bits), rank_out - 1, s);
    Layout *layout = digits_of_bits(arena, rank_in, rank_out, &plain);
    if (!layout) return NULL;
    for (int in = 0; in < rank_in; in++) layout->in[in].ring = bits->ring[in];
    layout->swizzle = s;
    layout->swizzle.base -= s.bits ? 3 - log2_exact(element_bits) : 0;
    layout->element_bits = element_bits;
    return layout->swizzle.base >= 0 && (!s.bits || layout_swizzle_is_whole(layout)) ? layout_finish(layout) : NULL;
}

// Fewest bits first, then the lowest target, then the nearest source.
static const Layout *swizzled_digits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits,
                                     int element_bits) {
    int64_t reach = 0;
    for (int bit = 0, count = bits_in(rank_in, bits); bit < count; bit++) reach |= bits->images[bit][rank_out - 1];
    int top = log2_above(reach + 1);
    for (int width = 1; 2 * width <= top; width++)
        for (int base = 0; base + 2 * width <= top; base++)
            for (int shift = width; base + width + shift <= top; shift++) {
                Swizzle s = {width, base, shift};
                const Layout *found = digits_under(arena, rank_in, rank_out, bits, s, element_bits);
                if (found) return found;
            }
    return NULL;
}

static int64_t largest_xor(const LayoutBits *bits, int count, int out) {
    uint64_t vectors[LAYOUT_MAX_BITS];
    for (int bit = 0; bit < count; bit++) vectors[bit] = (uint64_t)bits->images[bit][out];
    return (int64_t)bits_largest(vectors, count);
}

const Layout *layout_of_bits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits, int element_bits) {
    const Layout *digits = digits_under(arena, rank_in, rank_out, bits, (Swizzle){0}, 0);
    if (!digits && element_bits && rank_out) digits = swizzled_digits(arena, rank_in, rank_out, bits, element_bits);
    if (digits) return digits;
    Layout *layout = layout_new(arena, rank_in, rank_out);
    for (int in = 0; in < rank_in; in++) layout_add(layout, in, (int64_t)1 << bits->in[in], 0, 0);
    for (int in = 0; in < rank_in; in++) layout->in[in].ring = bits->ring[in];
    for (int o = 0; o < rank_out; o++) layout->out_shape[o] = 1 + largest_xor(bits, bits_in(rank_in, bits), o);
    layout->bits = arena_copy(arena, bits, sizeof *bits);
    return layout;
}

// Ranges of a map of bits on a box: it is made of blocks whose extents are powers of two, in each of which some bits of
// the coordinates are fixed and the others are free.
typedef struct Box {
    const Layout *layout;
    uint64_t free[LAYOUT_MAX_RANK][LAYOUT_MAX_BITS], fixed[LAYOUT_MAX_RANK];   // images, by output
    int count;
    int64_t *range;
} Box;

static void blocks_from(Box *box, int input, int digit, int first) {
    const Layout *layout = box->layout;
    while (input < layout->rank_in && digit == layout->in[input].count) input++, digit = 0;
    if (input == layout->rank_in) {
        for (int o = 0; o < layout->rank_out; o++) {
            int64_t range = 1 + (int64_t)bits_largest_from(box->free[o], box->count, box->fixed[o]);
            if (range > box->range[o]) box->range[o] = range;
        }
        return;
    }
    int bits = digit_bits(layout, input, digit), before = box->count;
    int64_t extent = layout->in[input].modes[digit].extent;
    uint64_t fixed[LAYOUT_MAX_RANK];
    memcpy(fixed, box->fixed, sizeof fixed);
    for (int top = bits; top >= 0; top--) {   // the block that begins at the higher bits of the extent
        if (!(extent >> top & 1)) continue;
        for (int bit = 0; bit < top; bit++, box->count++)
            for (int o = 0; o < layout->rank_out; o++)
                box->free[o][box->count] = (uint64_t)layout->bits->images[first + bit][o];
        blocks_from(box, input, digit + 1, first + bits);
        box->count = before;
        for (int o = 0; o < layout->rank_out && top < bits; o++)
            box->fixed[o] ^= (uint64_t)layout->bits->images[first + top][o];
    }
    memcpy(box->fixed, fixed, sizeof fixed);
}

static const Layout *with_ranges(Layout *layout) {
    Box box = {.layout = layout, .range = layout->out_shape};
    for (int o = 0; o < layout->rank_out; o++) layout->out_shape[o] = 1;
    blocks_from(&box, 0, 0, 0);
    return layout;
}

const Layout *layout_cut(Arena *arena, const Layout *layout, const int64_t *extents) {
    Layout *cut = arena_copy(arena, layout, sizeof *layout);
    bool same = true;
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t whole = layout_extent_in(layout, i);
        if (extents[i] >= whole) continue;
        LayoutInput *in = &cut->in[i];
        LayoutMode *slowest = &in->modes[in->count - 1];
        slowest->extent = ceil_div(extents[i], whole / slowest->extent);
        same = false;
    }
    if (same || !layout->bits) return same ? layout : layout_finish(cut);
    return with_ranges(cut);
}

// A bit of an input whose digits are powers of two.
static LayoutMode mode_of_bit(const LayoutInput *in, int bit) {
    int d = 0;
    for (; bit >= log2_exact(in->modes[d].extent); d++) bit -= log2_exact(in->modes[d].extent);
    return (LayoutMode){2, in->modes[d].stride << bit, in->modes[d].out};
}

// The map `whole`, in digits that are powers of two, on the first steps of each of `digits` alone. NULL: the steps of one
// that ends before a power of two do not follow each other.
static const Layout *narrow_digits(Arena *arena, const Layout *whole, const LayoutInput *digits) {
    Layout *narrow = layout_new(arena, whole->rank_in, whole->rank_out);
    narrow->swizzle = whole->swizzle, narrow->element_bits = whole->element_bits;
    for (int i = 0; i < whole->rank_in; i++) {
        narrow->in[i].ring = whole->in[i].ring;
        for (int d = 0, bit = 0; d < digits[i].count; d++) {
            int64_t odd = digits[i].modes[d].extent;
            for (; odd % 2 == 0; odd /= 2, bit++) {
                LayoutMode mode = mode_of_bit(&whole->in[i], bit);
                layout_add(narrow, i, 2, mode.stride, mode.out);
            }
            if (odd == 1) continue;
            LayoutMode first = mode_of_bit(&whole->in[i], bit++);
            for (int more = log2_above(odd) - 1, n = 1; n <= more; n++, bit++) {
                LayoutMode mode = mode_of_bit(&whole->in[i], bit);
                if (mode.out != first.out || mode.stride != first.stride << n) return NULL;
            }
            layout_add(narrow, i, odd, first.stride, first.out);
        }
    }
    return layout_finish(narrow);
}

// The linear form: digits of powers of two go with the next one.
static const Layout *narrow_bits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits,
                                 const LayoutInput *digits) {
    Layout *narrow = layout_new(arena, rank_in, rank_out);
    narrow->bits = arena_copy(arena, bits, sizeof *bits);
    for (int i = 0; i < rank_in; i++) {
        LayoutInput *in = &narrow->in[i];
        int64_t extent = 1;
        in->ring = bits->ring[i];
        for (int d = 0; d < digits[i].count; d++) {
            extent *= digits[i].modes[d].extent;
            bool ends = d == digits[i].count - 1 || log2_exact(digits[i].modes[d].extent) < 0;
            if (!ends || extent == 1) continue;
            in->modes[in->count++] = (LayoutMode){extent, 0, 0};
            extent = 1;
        }
    }
    return with_ranges(narrow);
}

const Layout *layout_of_digits(Arena *arena, int rank_in, int rank_out, const LayoutBits *bits,
                               const LayoutInput *digits, int element_bits) {
    const Layout *whole = layout_of_bits(arena, rank_in, rank_out, bits, element_bits);
    const Layout *narrow = whole->bits ? NULL : narrow_digits(arena, whole, digits);
    return narrow ? narrow : narrow_bits(arena, rank_in, rank_out, bits, digits);
}

// ---- queries ----
int64_t layout_extent_in(const Layout *layout, int input) {
    int64_t extent = 1;
    for (int d = 0; d < layout->in[input].count; d++) extent *= layout->in[input].modes[d].extent;
    return extent;
}

int64_t layout_size_out(const Layout *layout) {
    int64_t size = 1;
    for (int i = 0; i < layout->rank_out; i++) size *= layout->out_shape[i];
    return size;
}

static void eval_bits(const Layout *layout, const int64_t *in, int64_t *out) {
    int bit = 0;
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t rest = in[i];
        for (int d = 0; d < layout->in[i].count; d++) {
            int64_t extent = layout->in[i].modes[d].extent, digit = d < layout->in[i].count - 1 ? rest % extent : rest;
            for (int end = bit + digit_bits(layout, i, d); bit < end; bit++, digit >>= 1)
                for (int o = 0; o < layout->rank_out && digit & 1; o++) out[o] ^= layout->bits->images[bit][o];
            rest /= extent;
        }
    }
}

static void eval_digits(const Layout *layout, const int64_t *in, int64_t *out) {
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t rest = in[i];
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            bool goes_on = d == layout->in[i].count - 1 && !layout->in[i].ring;   // as in CuTe
            out[mode->out] += (goes_on ? rest : rest % mode->extent) * mode->stride;
            rest /= mode->extent;
        }
    }
}

void layout_eval(const Layout *layout, const int64_t *in, int64_t *out) {
    for (int i = 0; i < layout->rank_out; i++) out[i] = 0;
    if (layout->bits) eval_bits(layout, in, out);
    else eval_digits(layout, in, out);
    if (layout->swizzle.bits) {
        int64_t *last = &out[layout->rank_out - 1];
        *last = swizzle_apply(layout_swizzle(layout), *last);
    }
}

int64_t layout_linear(const Layout *layout, const int64_t *in) {
    int64_t out[LAYOUT_MAX_RANK], linear = 0;
    layout_eval(layout, in, out);
    for (int i = 0; i < layout->rank_out; i++) linear = linear * layout->out_shape[i] + out[i];
    return linear;
}

bool layout_same_box(const Layout *a, const Layout *b) {
    if (a->rank_in != b->rank_in || a->rank_out != b->rank_out) return false;
    for (int o = 0; o < a->rank_out; o++)
        if (a->out_shape[o] != b->out_shape[o]) return false;
    for (int i = 0; i < a->rank_in; i++)
        if (a->in[i].ring != b->in[i].ring || layout_extent_in(a, i) != layout_extent_in(b, i)) return false;
    return true;
}

bool layout_mode_equal(const LayoutMode *a, const LayoutMode *b) {
    return a->extent == b->extent && a->stride == b->stride && (a->stride == 0 || a->out == b->out);
}

static bool same_digits(const Layout *a, const Layout *b) {
    for (int i = 0; i < a->rank_in; i++) {
        if (a->in[i].count != b->in[i].count) return false;
        for (int d = 0; d < a->in[i].count; d++)
            if (!layout_mode_equal(&a->in[i].modes[d], &b->in[i].modes[d])) return false;
    }
    return true;
}

static bool same_images(const Layout *a, const Layout *b) {
    if (!a->bits || !b->bits) return a->bits == b->bits;
    for (int bit = 0, count = bits_in(a->rank_in, a->bits); bit < count; bit++)
        for (int o = 0; o < a->rank_out; o++)
            if (a->bits->images[bit][o] != b->bits->images[bit][o]) return false;
    return true;
}

bool layout_equal(const Layout *a, const Layout *b) {
    if (a == b) return true;
    return a && b && layout_same_box(a, b) && a->element_bits == b->element_bits &&
           !memcmp(&a->swizzle, &b->swizzle, sizeof a->swizzle) && same_digits(a, b) && same_images(a, b);
}

// The run's bits are the lowest of the last input and of the last output, and nothing else reaches those.
static bool bits_keep_runs(const Layout *layout, int64_t run) {
    int last = layout->rank_in - 1, out = layout->rank_out - 1, first = bits_in(last, layout->bits);
    const LayoutInput *in = &layout->in[last];
    if (log2_exact(run) < 0 || log2_exact(run) > digit_bits(layout, last, 0)) return false;
    if (in->count > 1 && in->modes[0].extent % run) return false;
    for (int bit = 0, count = bits_in(layout->rank_in, layout->bits); bit < count; bit++) {
        const int64_t *image = layout->bits->images[bit];
        bool in_run = bit >= first && bit < first + log2_exact(run);
        for (int o = 0; o < out && in_run; o++)
            if (image[o]) return false;
        if (in_run ? image[out] != (int64_t)1 << (bit - first) : image[out] % run != 0) return false;
    }
    return layout->rank_out == 1 || layout->out_shape[out] % run == 0;
}

// They are the fastest digit, and every other step is a multiple of them.
bool layout_keeps_runs(const Layout *layout, int64_t run) {
    const LayoutInput *last = &layout->in[layout->rank_in - 1];
    int out = layout->rank_out - 1;
    if (run == 1) return true;
    if (layout->bits) return bits_keep_runs(layout, run);
    if (last->count == 0 || last->modes[0].stride != 1 || last->modes[0].out != out) return false;
    if (last->modes[0].extent % run != 0 || (layout->rank_out > 1 && layout->out_shape[out] % run != 0)) return false;
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            if (mode != &last->modes[0] && mode->out == out && mode->stride % run != 0) return false;
        }
    return !layout->swizzle.bits || run * layout->element_bits <= (int64_t)8 << layout->swizzle.base;
}

// The layout with the digits of the run in the order of their strides, if that is one of runs.
bool layout_keeps_sets(const Layout *layout, int64_t run) {
    const LayoutInput *last = &layout->in[layout->rank_in - 1];
    int out = layout->rank_out - 1, count = 0;
    int64_t extent = 1, reached = 1;
    if (layout->bits || layout_keeps_runs(layout, run)) return layout_keeps_runs(layout, run);
    while (count < last->count && extent < run) extent *= last->modes[count++].extent;
    if (extent != run || (layout->rank_out > 1 && layout->out_shape[out] % run != 0)) return false;
    for (int i = 0; i < count; i++) {   // each stride is the product of the extents of those below it
        int64_t below = 1;
        for (int j = 0; j < count; j++)
            if (last->modes[j].stride < last->modes[i].stride) below *= last->modes[j].extent;
        if (last->modes[i].out != out || last->modes[i].stride != below) return false;
        reached += (last->modes[i].extent - 1) * last->modes[i].stride;
    }
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            bool in_run = &layout->in[i] == last && d < count;
            if (!in_run && mode->out == out && mode->stride % run != 0) return false;
        }
    return reached == run &&
           (!layout->swizzle.bits || run * layout->element_bits <= (int64_t)8 << layout->swizzle.base);
}

int64_t layout_period(const Layout *layout) {
    return layout->swizzle.bits ? swizzle_period(layout->swizzle) : 1;
}

// ---- shared memory ----
const Layout *layout_row_major(Arena *arena, int rank, const int64_t *shape) {
    Layout *layout = layout_new(arena, rank, 1);
    int64_t stride = 1;
    for (int i = rank; i-- > 0; stride *= shape[i]) layout_add(layout, i, shape[i], stride, 0);
    return layout_finish(layout);
}

const Layout *layout_padded(Arena *arena, int64_t rows, int64_t columns, int64_t pitch) {
    Layout *layout = layout_new(arena, 2, 1);
    layout_add(layout, 0, rows, pitch, 0);
    layout_add(layout, 1, columns, 1, 0);
    return layout_finish(layout);
}

const Layout *layout_bank_swizzle(Arena *arena, int64_t rows, int64_t columns, int element_bits, int panel_chunks,
                                  const char **why) {
    enum { CHUNK_BITS = 8 * SWIZZLE_CHUNK_BYTES, ROWS = 8 };
    if (log2_exact(element_bits) < 0 || element_bits > CHUNK_BITS)
        return refuse(arena, why, "elements of %d bits", element_bits);
    int64_t vector = CHUNK_BITS / element_bits, panel = vector * panel_chunks;
    if (columns % panel != 0)
        return refuse(arena, why, "%" PRId64 " columns are no multiple of %" PRId64, columns, panel);
    // Four rows fill half a period: fine for one panel, but a second one would start in the middle of the pattern.
    if (rows % ROWS != 0 && !(rows == ROWS / 2 && columns == panel))
        return refuse(arena, why, "%" PRId64 " rows are no multiple of %d", rows, ROWS);
    int64_t group = rows < ROWS ? rows : ROWS;
    Layout *layout = layout_new(arena, 2, 3);
    layout_add(layout, 0, group, panel, 2);
    layout_add(layout, 0, rows / group, 1, 1);
    layout_add(layout, 1, panel, 1, 2);
    layout_add(layout, 1, columns / panel, 1, 0);
    layout->swizzle = swizzle_of_span(panel_chunks * SWIZZLE_CHUNK_BYTES);
    layout->element_bits = element_bits;
    return layout_finish(layout);
}
