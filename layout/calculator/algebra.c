// The algebra of layouts, on digits and on bits.
//
// Composition on digits. A digit of the inner layout takes e steps of s through an input of the outer one, whose digits
// have weights w0 = 1, w1 = e0, w2 = e0 * e1, ... The step is so many of the digit it falls on; what does not fit there
// goes on with the next digit:
//
//     outer (4,8):(1,100)   inner 8:2      2 steps of 2 within the 4, then 4 steps of one 8:      (2,4):(2,100)
//
// That is exact if every digit of the outer layout gets a sum below its extent, so that nothing carries, and the last
// one a sum within the input.
//
// Everything on bits is linear_algebra.c: layouts become matrices and their results layouts again.
#include "layout/calculator/algebra.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const Layout *finished(LayoutContext *cx, Layout *layout) {
    if (cx->failed) return NULL;
    const Layout *result = layout_finish(layout);
    if (!result) layout_refuse(cx, "an input would have more than %d digits", LAYOUT_MAX_MODES);
    return result;
}

static const Layout *none(LayoutContext *cx, const char *reason) {
    layout_refuse(cx, "%s", reason);
    return NULL;
}

const Layout *layout_of_linear(LayoutContext *cx, Linear a, int element_bits) {
    LayoutBits bits = {0};
    int count = 0;
    if (cx->failed) return NULL;
    if (a.in_count > LAYOUT_MAX_RANK || a.out_count > LAYOUT_MAX_RANK || linear_in_bits(a) > LAYOUT_MAX_BITS ||
        linear_out_bits(a) > LAYOUT_MAX_BITS)
        return none(cx, "more inputs, outputs or bits than a layout has");
    for (int in = 0; in < a.in_count; in++) {
        bits.in[in] = a.ins[in].bits;
        for (int bit = 0; bit < a.ins[in].bits; bit++, count++)
            for (int o = 0; o < a.out_count; o++) bits.images[count][o] = linear_basis(a, in, bit, o);
    }
    return layout_of_bits(cx->arena, a.in_count, a.out_count, &bits, element_bits);
}

// The matrices of both; false if one is no linear map, which is no refusal.
static bool both_linear(LayoutContext *cx, const Layout *a, const Layout *b, Linear *of_a, Linear *of_b) {
    LayoutContext trial = layout_context(cx->arena);
    *of_a = layout_to_linear(&trial, a);
    if (!trial.failed) *of_b = layout_to_linear(&trial, b);
    return !trial.failed;
}

static int unit_of(const Layout *a, const Layout *b) {
    return a->element_bits ? a->element_bits : b->element_bits;
}

static bool has_rings(const Layout *a) {
    for (int i = 0; i < a->rank_in; i++)
        if (a->in[i].ring) return true;
    return false;
}

// ---- composition ----

// The walk of one input of the result through the inputs of `outer`.
typedef struct Walk {
    LayoutContext *cx;
    const Layout *outer;
    Layout *result;
    int input;                                              // of the result
    int64_t reach[LAYOUT_MAX_RANK][LAYOUT_MAX_MODES + 1];   // sums that the digits of `outer` get, over all inputs
} Walk;

// Digit d of an input; behind its last one a ring has a digit that moves nothing, and of an input that is no ring the
// last one has no end.
static LayoutMode digit_at(const LayoutInput *in, int d) {
    LayoutMode endless = {INT64_MAX, 0, 0};
    if (d >= in->count) return endless;
    LayoutMode mode = in->modes[d];
    if (d == in->count - 1 && !in->ring) mode.extent = INT64_MAX;
    return mode;
}

// How many of `extent` steps, each of `step` of a digit, stay within it; 0: they neither all stay nor leave it evenly.
static int64_t steps_within(int64_t digit, int64_t step, int64_t extent) {
    if (extent - 1 <= (digit - 1) / step) return extent;
    int64_t fit = digit / step;
    return digit % step == 0 && extent % fit == 0 ? fit : 0;
}

static void walk_digit(Walk *walk, int through, int64_t extent, int64_t stride) {
    const LayoutInput *in = &walk->outer->in[through];
    int64_t weight = 1;
    for (int d = 0; extent > 1; d++) {
        LayoutMode mode = digit_at(in, d);
        if (mode.extent <= stride / weight) {   // the step passes over this digit
            weight *= mode.extent;
            continue;
        }
        int64_t step = stride / weight, steps = stride % weight == 0 ? steps_within(mode.extent, step, extent) : 0;
        if (!steps) {
            layout_refuse(walk->cx, "no digits say that: steps of %" PRId64 " through a digit of %" PRId64, step,
                          mode.extent);
            return;
        }
        layout_add(walk->result, walk->input, steps, mode.stride * step, mode.out);
        walk->reach[through][d] += (steps - 1) * step;
        extent /= steps;
        stride *= steps;
        if (extent > 1) weight *= mode.extent;
    }
}

static bool nothing_carries(Walk *walk) {
    for (int i = 0; i < walk->outer->rank_in; i++)
        for (int d = 0; d < walk->outer->in[i].count; d++)
            if (walk->reach[i][d] >= walk->outer->in[i].modes[d].extent)
                return layout_refuse(walk->cx,
                                     "no digits say that: sums carry out of a digit of %" PRId64 " of input %d",
                                     walk->outer->in[i].modes[d].extent, i);
    return true;
}

static const Layout *compose_digits(LayoutContext *cx, const Layout *outer, const Layout *inner) {
    Walk walk = {.cx = cx, .outer = outer, .result = layout_new(cx->arena, inner->rank_in, outer->rank_out)};
    if (outer->bits || inner->bits || inner->swizzle.bits)
        return none(cx, "a swizzled or linear layout composes with layouts of powers of two only");
    for (int i = 0; i < inner->rank_in; i++) {
        walk.input = i;
        walk.result->in[i].ring = inner->in[i].ring;
        for (int d = 0; d < inner->in[i].count && !cx->failed; d++) {
            LayoutMode mode = inner->in[i].modes[d];
            if (mode.stride) walk_digit(&walk, mode.out, mode.extent, mode.stride);
            else layout_add(walk.result, i, mode.extent, 0, 0);
        }
    }
    if (cx->failed || !nothing_carries(&walk)) return NULL;
    walk.result->swizzle = outer->swizzle;
    walk.result->element_bits = outer->element_bits;
    if (outer->swizzle.bits && !layout_swizzle_is_whole(walk.result))
        return none(cx, "the swizzle's period does not divide the last output");
    return finished(cx, walk.result);
}

static bool stays_inside(LayoutContext *cx, const Layout *outer, const Layout *inner) {
    if (inner->rank_out != outer->rank_in)
        return layout_refuse(cx, "%d outputs for %d inputs", inner->rank_out, outer->rank_in);
    for (int i = 0; i < outer->rank_in; i++)
        if (!outer->in[i].ring && inner->out_shape[i] > layout_extent_in(outer, i))
            return layout_refuse(cx, "output %d reaches %" PRId64 ", beyond the extent %" PRId64, i,
                                 inner->out_shape[i] - 1, layout_extent_in(outer, i));
    return true;
}

const Layout *layout_compose(LayoutContext *cx, const Layout *outer, const Layout *inner) {
    Linear of_inner, of_outer;
    if (cx->failed || !stays_inside(cx, outer, inner)) return NULL;
    bool bits = !has_rings(outer) && !has_rings(inner) && both_linear(cx, inner, outer, &of_inner, &of_outer);
    return bits ? layout_of_linear(cx, linear_compose(cx, of_inner, of_outer), unit_of(outer, inner))
                : compose_digits(cx, outer, inner);
}

// ---- digits by output ----

// A digit seen from its output: where in its input it stands.
typedef struct Digit {
    int64_t extent, stride, weight;   // weight: what one step of the digit is worth in the input
    int input;
} Digit;

enum { MAX_DIGITS = LAYOUT_MAX_RANK * LAYOUT_MAX_MODES };

static int compare_digits(const void *a, const void *b) {
    const Digit *x = a, *y = b;
    return (x->stride > y->stride) - (x->stride < y->stride);
}

// Digits that reach `out`, smallest stride first; broadcasts are no digit of any output.
static int digits_of(const Layout *layout, int out, Digit *digits) {
    int count = 0;
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t weight = 1;
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            if (mode->stride && mode->out == out) digits[count++] = (Digit){mode->extent, mode->stride, weight, i};
            weight *= mode->extent;
        }
    }
    qsort(digits, (size_t)count, sizeof *digits, compare_digits);
    return count;
}

// Whether no two digit combinations give the same sum: tried one by one for small ranges.
static bool sums_differ(const Digit *digits, int count) {
    enum { CAP = 1 << 16 };
    unsigned char seen[CAP / 8] = {0};
    int64_t range = 1, size = 1;
    for (int d = 0; d < count; d++) {
        range += (digits[d].extent - 1) * digits[d].stride;
        if (__builtin_mul_overflow(size, digits[d].extent, &size)) return false;
    }
    if (size > range || range > CAP) return false;   // by counting; or beyond what is tried
    for (int64_t n = 0; n < size; n++) {
        int64_t rest = n, sum = 0;
        for (int d = 0; d < count; rest /= digits[d++].extent) sum += rest % digits[d].extent * digits[d].stride;
        if (seen[sum / 8] >> sum % 8 & 1) return false;
        seen[sum / 8] |= (unsigned char)(1 << sum % 8);
    }
    return true;
}

// Each output has its own digits, so outputs can be judged alone. When every stride lies beyond the sum of all smaller
// digits no two sums meet (mixed radix with gaps); else small cases are enumerated.
static bool digits_differ(const Layout *layout) {
    for (int out = 0; out < layout->rank_out; out++) {
        Digit digits[MAX_DIGITS];
        int count = digits_of(layout, out, digits);
        int64_t reach = 0;
        bool disjoint = true;
        for (int d = 0; d < count; d++) {
            disjoint = disjoint && digits[d].stride > reach;
            reach += (digits[d].extent - 1) * digits[d].stride;
        }
        if (!disjoint && !sums_differ(digits, count)) return false;
    }
    return true;
}

static int rank_of_images(const Layout *layout) {
    uint64_t columns[LAYOUT_MAX_BITS] = {0};
    int count = 0;
    for (int i = 0; i < layout->rank_in; i++) count += layout->bits->in[i];
    for (int o = 0, shift = 0; o < layout->rank_out; shift += log2_above(layout->out_shape[o++]))
        for (int bit = 0; bit < count; bit++) columns[bit] |= (uint64_t)layout->bits->images[bit][o] << shift;
    return bits_rank(columns, count);
}

int64_t layout_size_in(const Layout *layout) {
    int64_t size = 1;
    for (int i = 0; i < layout->rank_in; i++) size *= layout_extent_in(layout, i);
    return size;
}

static bool same_values(const Layout *a, const Layout *b) {
    int64_t in[LAYOUT_MAX_RANK], of_a[LAYOUT_MAX_RANK], of_b[LAYOUT_MAX_RANK];
    for (int64_t n = 0, size = layout_size_in(a); n < size; n++) {
        int64_t rest = n;
        for (int i = 0; i < a->rank_in; rest /= layout_extent_in(a, i++)) in[i] = rest % layout_extent_in(a, i);
        layout_eval(a, in, of_a);
        layout_eval(b, in, of_b);
        if (memcmp(of_a, of_b, sizeof *of_a * (size_t)a->rank_out)) return false;
    }
    return true;
}

// Digits without a swizzle are one map only in one form.
bool layout_same_map(const Layout *a, const Layout *b) {
    if (layout_equal(a, b)) return true;
    bool plain = !a->bits && !b->bits && !a->swizzle.bits && !b->swizzle.bits;
    return !plain && layout_same_box(a, b) && same_values(a, b);
}

// A swizzle is a bijection.
bool layout_injective(const Layout *layout) {
    if (layout->bits) return (int64_t)1 << rank_of_images(layout) == layout_size_in(layout);
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++)
            if (layout->in[i].modes[d].stride == 0) return false;
    return digits_differ(layout);
}

// ---- inverses ----

static const Layout *right_inverse_of_digits(LayoutContext *cx, const Layout *a) {
    Layout *inverse = layout_new(cx->arena, a->rank_out, a->rank_in);
    for (int out = 0; out < a->rank_out; out++) {
        Digit digits[MAX_DIGITS];
        int count = digits_of(a, out, digits);
        int64_t next = 1;
        for (int d = 0; d < count; next *= digits[d++].extent) {
            if (digits[d].stride != next)
                return layout_refuse(cx, "output %d: after %" PRId64 " elements the next digit has stride %" PRId64,
                                     out, next, digits[d].stride),
                       NULL;
            layout_add(inverse, out, digits[d].extent, digits[d].weight, digits[d].input);
        }
    }
    return finished(cx, inverse);
}

// Between digits of strides s and s' lie s' / s places, of which the first has the extent e: an output's digit of that
// many places gives the input's.
static const Layout *left_inverse_of_digits(LayoutContext *cx, const Layout *a) {
    Layout *inverse = layout_new(cx->arena, a->rank_out, a->rank_in);
    for (int out = 0; out < a->rank_out; out++) {
        Digit digits[MAX_DIGITS];
        int count = digits_of(a, out, digits);
        if (count && digits[0].stride > 1) layout_add(inverse, out, digits[0].stride, 0, 0);
        for (int d = 0; d < count; d++) {
            bool last = d == count - 1;
            int64_t places = last ? digits[d].extent : digits[d + 1].stride / digits[d].stride;
            if (places < digits[d].extent || (!last && digits[d + 1].stride % digits[d].stride))
                return none(cx, "no digits say that: strides do not divide each other");
            layout_add(inverse, out, places, digits[d].weight, digits[d].input);
        }
    }
    return finished(cx, inverse);
}

// Only of a linear map that fills its output box does every coordinate have a preimage.
static const Layout *right_inverse_of_bits(LayoutContext *cx, Linear bits, const Layout *a) {
    for (int o = 0; o < a->rank_out; o++)
        if (log2_exact(a->out_shape[o]) < 0) return none(cx, "the layout does not reach every place of its outputs");
    uint64_t identity[LINEAR_MAX_BITS];
    for (int bit = 0; bit < linear_out_bits(bits); bit++) identity[bit] = (uint64_t)1 << bit;
    Linear all = linear_make(cx, bits.outs, bits.out_count, bits.outs, bits.out_count, identity);
    return layout_of_linear(cx, linear_solve(cx, all, bits), 0);
}

// a(x) -> x as a solution of bits: l is fixed on the independent images and 0 on what completes them.
static const Layout *left_inverse_of_bits(LayoutContext *cx, Linear a) {
    if (!linear_is_injective(a)) return none(cx, "the layout is not injective");
    int in_bits = linear_in_bits(a), out_bits = linear_out_bits(a), place = linear_in_shift(a, a.in_count);
    uint64_t columns[2 * LINEAR_MAX_BITS], identity[LINEAR_MAX_BITS];
    memcpy(columns, a.columns, sizeof *columns * (size_t)in_bits);
    int extra = bits_complement(a.columns, in_bits, out_bits, columns + in_bits);
    LinearDim whole = {"x", in_bits + extra}, flat = {"y", out_bits};
    for (int bit = 0; bit < out_bits; bit++) identity[bit] = (uint64_t)1 << bit;
    Linear square = linear_make(cx, &whole, 1, &flat, 1, columns);
    Linear inverse = linear_solve(cx, linear_make(cx, &flat, 1, &flat, 1, identity), square);
    if (cx->failed) return NULL;
    uint64_t kept[LINEAR_MAX_BITS];
    for (int bit = 0; bit < out_bits; bit++) kept[bit] = inverse.columns[bit] & (((uint64_t)1 << place) - 1);
    return layout_of_linear(cx, linear_make(cx, a.outs, a.out_count, a.ins, a.in_count, kept), 0);
}

const Layout *layout_right_inverse(LayoutContext *cx, const Layout *a) {
    Linear bits;
    if (cx->failed) return NULL;
    if (!a->bits && !a->swizzle.bits) return right_inverse_of_digits(cx, a);
    bits = layout_to_linear(cx, a);
    return cx->failed ? NULL : right_inverse_of_bits(cx, bits, a);
}

const Layout *layout_left_inverse(LayoutContext *cx, const Layout *a) {
    LayoutContext trial = layout_context(cx->arena);
    Linear bits = layout_to_linear(&trial, a);
    if (cx->failed) return NULL;
    if (!trial.failed) return left_inverse_of_bits(cx, bits);
    if (!layout_injective(a)) return none(cx, "the layout is not injective");
    if (a->bits || a->swizzle.bits) return none(cx, trial.reason);
    return left_inverse_of_digits(cx, a);
}

const Layout *layout_invert_and_compose(LayoutContext *cx, const Layout *a, const Layout *outer) {
    Linear of_a, of_outer;
    if (cx->failed) return NULL;
    if (both_linear(cx, a, outer, &of_a, &of_outer)) return layout_of_linear(cx, linear_solve(cx, of_a, of_outer), 0);
    const Layout *inverse = layout_injective(outer) ? layout_left_inverse(cx, outer) : layout_right_inverse(cx, outer);
    const Layout *found = cx->failed ? NULL : layout_compose(cx, inverse, a);
    const Layout *back = found ? layout_compose(cx, outer, found) : NULL;
    if (cx->failed) return NULL;
    if (layout_same_map(back, a)) return found;
    return none(cx, "the outer layout does not reach every value");
}

// ---- product and quotient ----

static void append_digits(Layout *to, const Layout *from, int input, const int64_t *scale) {
    for (int d = 0; d < from->in[input].count; d++) {
        const LayoutMode *mode = &from->in[input].modes[d];
        layout_add(to, input, mode->extent, scale ? mode->stride * scale[mode->out] : mode->stride, mode->out);
    }
}

static bool box_is_binary(const Layout *a) {
    for (int o = 0; o < a->rank_out; o++)
        if (log2_exact(a->out_shape[o]) < 0) return false;
    return true;
}

static bool same_ranks(LayoutContext *cx, const Layout *a, const Layout *b) {
    if (a->rank_in == b->rank_in && a->rank_out == b->rank_out) return true;
    return layout_refuse(cx, "the layouts have different numbers of inputs or outputs");
}

const Layout *layout_product(LayoutContext *cx, const Layout *a, const Layout *b) {
    Linear of_a, of_b;
    if (cx->failed || !same_ranks(cx, a, b)) return NULL;
    bool digits = !a->bits && !b->bits && !a->swizzle.bits && !b->swizzle.bits;
    if (!digits && box_is_binary(a) && both_linear(cx, a, b, &of_a, &of_b))
        return layout_of_linear(cx, linear_multiply(cx, of_a, of_b), unit_of(a, b));
    if (!digits) return none(cx, "a swizzled or linear layout has products with layouts of powers of two only");
    Layout *result = layout_new(cx->arena, a->rank_in, a->rank_out);
    for (int i = 0; i < a->rank_in; i++) {
        append_digits(result, a, i, NULL);
        append_digits(result, b, i, a->out_shape);
        result->in[i].ring = b->in[i].ring;
    }
    return finished(cx, result);
}

// What is left of an input's digits behind its first `skipped` coordinates, with strides in units of `scale`.
static bool rest_of_digits(const LayoutInput *in, int64_t skipped, const int64_t *scale, Layout *rest, int input) {
    for (int d = 0; d < in->count; d++) {
        LayoutMode mode = in->modes[d];
        int64_t cut = skipped < mode.extent ? skipped : mode.extent;
        if (mode.extent % cut || skipped % cut) return false;
        mode.extent /= cut;
        mode.stride *= cut;
        skipped /= cut;
        if (mode.extent > 1 && mode.stride % scale[mode.out]) return false;
        layout_add(rest, input, mode.extent, mode.stride / scale[mode.out], mode.out);
    }
    return skipped == 1;
}

static const Layout *quotient_of_digits(LayoutContext *cx, const Layout *a, const Layout *b) {
    Layout *rest = layout_new(cx->arena, a->rank_in, a->rank_out);
    for (int i = 0; i < a->rank_in; i++) {
        rest->in[i].ring = a->in[i].ring;
        if (!rest_of_digits(&a->in[i], layout_extent_in(b, i), b->out_shape, rest, i)) return NULL;
    }
    return layout_finish(rest);
}

static const Layout *quotient_of_bits(LayoutContext *cx, const Layout *a, const Layout *b) {
    Linear of_a, of_b, rest;
    if (!box_is_binary(b) || !both_linear(cx, a, b, &of_a, &of_b)) return NULL;
    return linear_divide_left(cx, of_a, of_b, &rest) ? layout_of_linear(cx, rest, unit_of(a, b)) : NULL;
}

// The candidate is right if the product says so.
const Layout *layout_divide(LayoutContext *cx, const Layout *a, const Layout *b) {
    if (cx->failed || !same_ranks(cx, a, b)) return NULL;
    bool digits = !a->bits && !b->bits && !a->swizzle.bits && !b->swizzle.bits;
    const Layout *rest = digits ? quotient_of_digits(cx, a, b) : quotient_of_bits(cx, a, b);
    LayoutContext trial = layout_context(cx->arena);
    const Layout *back = rest ? layout_product(&trial, b, rest) : NULL;
    if (back && layout_same_map(back, a)) return rest;
    return none(cx, "the layout is no product of that one with another");
}

// ---- image and kernel ----

static const Layout *image_of_bits(LayoutContext *cx, Linear a, int element_bits) {
    uint64_t rows[LINEAR_MAX_BITS];
    int bits = linear_in_bits(a);
    memcpy(rows, a.columns, sizeof *rows * (size_t)bits);
    LinearDim in = {"0", bits_echelon(rows, bits)};
    return layout_of_linear(cx, linear_make(cx, &in, 1, a.outs, a.out_count, rows), element_bits);
}

// x with v . x = 0 for all v.
static int nullspace(uint64_t *vectors, int count, int dim, uint64_t *basis) {
    int rank = bits_echelon(vectors, count), found = 0;
    uint64_t pivots = 0;
    for (int i = 0; i < rank; i++) pivots |= vectors[i] & -vectors[i];
    for (int bit = 0; bit < dim; bit++) {
        if (pivots >> bit & 1) continue;
        uint64_t x = (uint64_t)1 << bit;
        for (int i = 0; i < rank; i++)
            if (vectors[i] >> bit & 1) x |= vectors[i] & -vectors[i];
        basis[found++] = x;
    }
    return found;
}

static const Layout *kernel_of_bits(LayoutContext *cx, Linear a) {
    uint64_t rows[LINEAR_MAX_BITS] = {0}, basis[LINEAR_MAX_BITS];
    int in_bits = linear_in_bits(a), out_bits = linear_out_bits(a);
    for (int bit = 0; bit < out_bits; bit++)
        for (int i = 0; i < in_bits; i++) rows[bit] |= (a.columns[i] >> bit & 1) << i;
    LinearDim in = {"0", nullspace(rows, out_bits, in_bits, basis)};
    return layout_of_linear(cx, linear_make(cx, &in, 1, a.ins, a.in_count, basis), 0);
}

// Apart from broadcasts the digits are injective, so the image is theirs and the kernel the broadcasts'.
static const Layout *image_of_digits(LayoutContext *cx, const Layout *a) {
    Layout *image = layout_new(cx->arena, 1, a->rank_out);
    for (int out = 0; out < a->rank_out; out++) {
        Digit digits[MAX_DIGITS];
        for (int d = 0, count = digits_of(a, out, digits); d < count; d++)
            layout_add(image, 0, digits[d].extent, digits[d].stride, out);
    }
    image->swizzle = a->swizzle;
    image->element_bits = a->element_bits;
    return finished(cx, image);
}

static const Layout *kernel_of_digits(LayoutContext *cx, const Layout *a) {
    Layout *kernel = layout_new(cx->arena, 1, a->rank_in);
    for (int i = 0; i < a->rank_in; i++) {
        int64_t weight = 1;
        for (int d = 0; d < a->in[i].count; weight *= a->in[i].modes[d++].extent)
            if (!a->in[i].modes[d].stride) layout_add(kernel, 0, a->in[i].modes[d].extent, weight, i);
    }
    return finished(cx, kernel);
}

const Layout *layout_image(LayoutContext *cx, const Layout *a) {
    LayoutContext trial = layout_context(cx->arena);
    Linear bits = layout_to_linear(&trial, a);
    if (cx->failed) return NULL;
    if (!trial.failed) return image_of_bits(cx, bits, a->element_bits);
    if (!a->bits && digits_differ(a)) return image_of_digits(cx, a);
    return none(cx, "sums of different digits meet");
}

const Layout *layout_kernel(LayoutContext *cx, const Layout *a) {
    LayoutContext trial = layout_context(cx->arena);
    Linear bits = layout_to_linear(&trial, a);
    if (cx->failed) return NULL;
    if (!trial.failed) return kernel_of_bits(cx, bits);
    if (!a->bits && digits_differ(a)) return kernel_of_digits(cx, a);
    return none(cx, "sums of different digits meet");
}
