// The layout of the passes (layout.h): digits, text, inverse, distributions.
//
// Everything here is a walk over digits. An input coordinate x with digits (e0, e1, ...), fastest first, is x = d0 + e0
// * (d1 + e1 * (d2 + ...)); each digit adds d * stride to its output. Two digits side by side are one when the second
// continues the first (same output, stride1 == e0 * stride0), so a layout has one normal form, and equal maps are equal
// data.
//
//     i in 0..256 as (8,32):(64@2,1@1)        i = 21 -> digits 5, 2 -> outputs [_, 2, 320 + _]
//
// Limits: strides are not negative; sizes stay below 2^40 (checked where text comes in), so nothing here overflows.
#include "layout/layout.h"
#include "support/strbuf.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LARGEST_SIZE = (int64_t)1 << 40;

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int log2_exact(int64_t x) {   // -1: no power of two
    if (x <= 0 || x & (x - 1)) return -1;
    return __builtin_ctzll((unsigned long long)x);
}

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

// The swizzle as a map of elements: element offsets are shifted byte offsets.
static LayoutSwizzle swizzle_in_elements(const Layout *layout) {
    LayoutSwizzle s = layout->swizzle;
    s.base += 3 - log2_exact(layout->element_bits);
    return s;
}

static int64_t swizzle_apply_bits(LayoutSwizzle s, int64_t x) {
    int64_t mask = (((int64_t)1 << s.bits) - 1) << (s.base + s.shift);
    return x ^ ((x & mask) >> s.shift);
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
        LayoutSwizzle s = swizzle_in_elements(layout);
        int64_t block = (int64_t)1 << (s.base + s.bits);
        if (range > (int64_t)1 << (s.base + s.shift)) range = ceil_div(range, block) * block;
    }
    return range;
}

const Layout *layout_finish(Layout *layout) {
    for (int i = 0; i < layout->rank_in; i++)
        if (layout->in[i].count > LAYOUT_MAX_MODES) return NULL;
    if (!layout->swizzle.bits) {
        layout->swizzle = (LayoutSwizzle){0};
        layout->element_bits = 0;
    }
    for (int out = 0; out < layout->rank_out; out++) layout->out_shape[out] = output_range(layout, out);
    return layout;
}

// ---- text ----
typedef struct Scanner {
    Arena *arena;
    const char *at;
    const char **why;
    bool failed;
} Scanner;

static void skip_space(Scanner *scanner) {
    while (isspace((unsigned char)*scanner->at)) scanner->at++;
}

static bool accept(Scanner *scanner, char c) {
    skip_space(scanner);
    if (*scanner->at != c) return false;
    scanner->at++;
    return true;
}

static bool scan_fail(Scanner *scanner, const char *message) {
    if (!scanner->failed) refuse(scanner->arena, scanner->why, "%s at '%.20s'", message, scanner->at);
    scanner->failed = true;
    return false;
}

static int64_t scan_number(Scanner *scanner) {
    skip_space(scanner);
    if (!isdigit((unsigned char)*scanner->at)) {
        scan_fail(scanner, "expected a number");
        return 0;
    }
    int64_t value = 0;
    while (isdigit((unsigned char)*scanner->at)) {
        value = value * 10 + (*scanner->at++ - '0');
        if (value > LARGEST_SIZE) {
            scan_fail(scanner, "the number is too large");
            return 0;
        }
    }
    return value;
}

// The leaves of one half (shape or stride), by input.
typedef struct Half {
    int rank;
    LayoutInput in[LAYOUT_MAX_RANK];   // shape: .extent; stride: .stride and .out
    int max_out;                       // -1: no `@`
} Half;

static void scan_leaf(Scanner *scanner, Half *half, LayoutInput *input, bool is_stride) {
    LayoutMode mode = {1, 0, 0};
    int64_t number = scan_number(scanner);
    if (is_stride) mode.stride = number;
    else mode.extent = number;
    if (is_stride && accept(scanner, '@')) {
        int64_t out = scan_number(scanner);
        if (out >= LAYOUT_MAX_RANK) scan_fail(scanner, "too many outputs");
        else mode.out = (int)out;
        if (mode.out > half->max_out) half->max_out = mode.out;
    }
    if (!is_stride && number < 1) scan_fail(scanner, "an extent below 1");
    if (scanner->failed) return;
    if (input->count == LAYOUT_MAX_MODES) scan_fail(scanner, "too many digits");
    else input->modes[input->count++] = mode;
}

// Deeper nests only group: what is inside one input is a flat list of digits.
static void scan_input(Scanner *scanner, Half *half, LayoutInput *input, bool is_stride, int depth) {
    if (depth > 32) scan_fail(scanner, "nested too deeply");
    if (scanner->failed) return;
    if (!accept(scanner, '(')) {
        scan_leaf(scanner, half, input, is_stride);
        return;
    }
    do scan_input(scanner, half, input, is_stride, depth + 1);
    while (!scanner->failed && accept(scanner, ','));
    if (!scanner->failed && !accept(scanner, ')')) scan_fail(scanner, "expected ')'");
}

static void scan_half(Scanner *scanner, Half *half, bool is_stride) {
    half->max_out = -1;
    if (!accept(scanner, '(')) {
        scan_leaf(scanner, half, &half->in[half->rank++], is_stride);
        return;
    }
    do {
        if (half->rank == LAYOUT_MAX_RANK) scan_fail(scanner, "too many inputs");
        if (scanner->failed) return;
        scan_input(scanner, half, &half->in[half->rank++], is_stride, 0);
    } while (!scanner->failed && accept(scanner, ','));
    if (!scanner->failed && !accept(scanner, ')')) scan_fail(scanner, "expected ')'");
}

static void scan_swizzle(Scanner *scanner, LayoutSwizzle *swizzle) {
    skip_space(scanner);
    if (strncmp(scanner->at, "Sw<", 3) != 0) return;
    scanner->at += 3;
    int *fields[] = {&swizzle->bits, &swizzle->base, &swizzle->shift};
    for (int i = 0; i < 3 && !scanner->failed; i++) {
        int64_t value = scan_number(scanner);
        if (value > 20) scan_fail(scanner, "the swizzle's number is too large");
        else *fields[i] = (int)value;
        if (!scanner->failed && !accept(scanner, i < 2 ? ',' : '>')) scan_fail(scanner, "expected Sw<B,M,S>");
    }
    if (!scanner->failed && !accept(scanner, 'o')) scan_fail(scanner, "expected 'o' after the swizzle");
    if (!scanner->failed && swizzle->bits > swizzle->shift) scan_fail(scanner, "Sw<B,M,S> needs S >= B");
}

// Shape and stride halves to digits; false when they do not fit together.
static bool join_halves(Scanner *scanner, const Half *shape, const Half *stride, Layout *layout) {
    int64_t size = 1, range[LAYOUT_MAX_RANK] = {0};
    for (int i = 0; i < shape->rank; i++) {
        if (stride->rank != shape->rank || stride->in[i].count != shape->in[i].count)
            return scan_fail(scanner, "shape and stride have different forms");
        for (int d = 0; d < shape->in[i].count; d++) {
            LayoutMode mode = stride->in[i].modes[d];
            mode.extent = shape->in[i].modes[d].extent;
            int64_t reach;
            bool large = __builtin_mul_overflow(size, mode.extent, &size) || size > LARGEST_SIZE ||
                         __builtin_mul_overflow(mode.extent - 1, mode.stride, &reach) || reach > LARGEST_SIZE;
            if (large || (range[mode.out] += reach) > LARGEST_SIZE)
                return scan_fail(scanner, "the layout is too large");
            layout_add(layout, i, mode.extent, mode.stride, mode.out);
        }
    }
    int64_t volume = 1;
    for (int out = 0; out < LAYOUT_MAX_RANK; out++)
        if (__builtin_mul_overflow(volume, range[out] + 1, &volume) || volume > LARGEST_SIZE)
            return scan_fail(scanner, "the layout is too large");
    return true;
}

// The swizzle acts on the last index alone; with other outputs in front that equals the swizzle of the whole offset
// only when a whole number of periods lies between their steps.
static bool check_swizzle(Scanner *scanner, const Layout *layout) {
    if (!layout->swizzle.bits) return true;
    int bits = log2_exact(layout->element_bits);
    if (bits < 0) return scan_fail(scanner, "a swizzle needs elements of 2^n bits");
    LayoutSwizzle s = swizzle_in_elements(layout);
    if (s.base < 0) return scan_fail(scanner, "the swizzle would tear elements apart");
    int64_t before = 1, last = layout->rank_out - 1;
    for (int i = 0; i < last; i++) before *= output_range(layout, i);
    if (before > 1 && output_range(layout, (int)last) % ((int64_t)1 << (s.bits + s.base + s.shift)))
        return scan_fail(scanner, "the swizzle's period does not divide the last output");
    return true;
}

const Layout *layout_parse(Arena *arena, const char *text, int element_bits, const char **why) {
    Scanner scanner = {arena, text, why, false};
    LayoutSwizzle swizzle = {0};
    Half shape = {0}, stride = {0};
    scan_swizzle(&scanner, &swizzle);
    if (!scanner.failed) scan_half(&scanner, &shape, false);
    if (!scanner.failed && !accept(&scanner, ':')) scan_fail(&scanner, "expected ':'");
    if (!scanner.failed) scan_half(&scanner, &stride, true);
    if (scanner.failed) return NULL;
    skip_space(&scanner);
    if (*scanner.at) {
        scan_fail(&scanner, "expected the end of the layout");
        return NULL;
    }
    Layout *layout = layout_new(arena, shape.rank, stride.max_out < 0 ? 1 : stride.max_out + 1);
    layout->swizzle = swizzle;
    layout->element_bits = element_bits;
    if (!join_halves(&scanner, &shape, &stride, layout) || !check_swizzle(&scanner, layout)) return NULL;
    const Layout *finished = layout_finish(layout);
    if (!finished) scan_fail(&scanner, "too many digits");
    return finished;
}

// One half. `missing` are the outputs that no digit names: each gets a digit of extent 1 at the last input, so that the
// text tells how many outputs there are.
static void print_half(const Layout *layout, bool is_stride, unsigned missing, StrBuf *out) {
    bool tuple = layout->rank_in > 1 || layout->in[0].count > 1 || missing;
    if (tuple) sb_char(out, '(');
    for (int i = 0; i < layout->rank_in; i++) {
        const LayoutInput *in = &layout->in[i];
        unsigned extra = i == layout->rank_in - 1 ? missing : 0;
        int count = in->count + __builtin_popcount(extra), printed = 0;
        sb_printf(out, "%s%s", i ? "," : "", count > 1 ? "(" : "");
        if (count == 0) sb_char(out, is_stride ? '0' : '1');
        for (int d = 0; d < in->count; d++) {
            const LayoutMode *mode = &in->modes[d];
            sb_printf(out, "%s%" PRId64, printed++ ? "," : "", is_stride ? mode->stride : mode->extent);
            if (is_stride && mode->stride && layout->rank_out > 1) sb_printf(out, "@%d", mode->out);
        }
        for (int o = 0; o < layout->rank_out; o++)
            if (extra >> o & 1) {
                sb_printf(out, "%s1", printed++ ? "," : "");
                if (is_stride) sb_printf(out, "@%d", o);
            }
        if (count > 1) sb_char(out, ')');
    }
    if (tuple) sb_char(out, ')');
}

static unsigned unnamed_outputs(const Layout *layout) {
    if (layout->rank_out == 1) return 0;
    unsigned missing = (1u << layout->rank_out) - 1;
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++)
            if (layout->in[i].modes[d].stride) missing &= ~(1u << layout->in[i].modes[d].out);
    return missing;
}

char *layout_text(Arena *arena, const Layout *layout) {
    StrBuf out;
    sb_init(&out, arena);
    LayoutSwizzle s = layout->swizzle;
    if (s.bits) sb_printf(&out, "Sw<%d,%d,%d> o ", s.bits, s.base, s.shift);
    print_half(layout, false, unnamed_outputs(layout), &out);
    sb_char(&out, ':');
    print_half(layout, true, unnamed_outputs(layout), &out);
    return out.text;
}

// ---- queries ----
int64_t layout_extent_in(const Layout *layout, int input) {
    int64_t extent = 1;
    for (int d = 0; d < layout->in[input].count; d++) extent *= layout->in[input].modes[d].extent;
    return extent;
}

int64_t layout_size_in(const Layout *layout) {
    int64_t size = 1;
    for (int i = 0; i < layout->rank_in; i++) size *= layout_extent_in(layout, i);
    return size;
}

int64_t layout_size_out(const Layout *layout) {
    int64_t size = 1;
    for (int i = 0; i < layout->rank_out; i++) size *= layout->out_shape[i];
    return size;
}

void layout_eval(const Layout *layout, const int64_t *in, int64_t *out) {
    for (int i = 0; i < layout->rank_out; i++) out[i] = 0;
    for (int i = 0; i < layout->rank_in; i++) {
        int64_t rest = in[i];
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            bool slowest = d == layout->in[i].count - 1;   // does not wrap, as in CuTe
            out[mode->out] += (slowest ? rest : rest % mode->extent) * mode->stride;
            rest /= mode->extent;
        }
    }
    if (layout->swizzle.bits) {
        int64_t *last = &out[layout->rank_out - 1];
        *last = swizzle_apply_bits(swizzle_in_elements(layout), *last);
    }
}

int64_t layout_linear(const Layout *layout, const int64_t *in) {
    int64_t out[LAYOUT_MAX_RANK], linear = 0;
    layout_eval(layout, in, out);
    for (int i = 0; i < layout->rank_out; i++) linear = linear * layout->out_shape[i] + out[i];
    return linear;
}

bool layout_equal(const Layout *a, const Layout *b) {
    if (a == b) return true;
    if (!a || !b || a->rank_in != b->rank_in || a->rank_out != b->rank_out) return false;
    if (memcmp(&a->swizzle, &b->swizzle, sizeof a->swizzle) != 0 || a->element_bits != b->element_bits) return false;
    for (int i = 0; i < a->rank_in; i++) {
        if (a->in[i].count != b->in[i].count) return false;
        for (int d = 0; d < a->in[i].count; d++) {
            const LayoutMode *x = &a->in[i].modes[d], *y = &b->in[i].modes[d];
            if (x->extent != y->extent || x->stride != y->stride || x->out != y->out) return false;
        }
    }
    return true;
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

// Each output has its own digits and a swizzle is a bijection, so outputs can be judged alone. When every stride lies
// beyond the sum of all smaller digits no two sums meet (mixed radix with gaps); else small cases are enumerated.
bool layout_injective(const Layout *layout) {
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++)
            if (layout->in[i].modes[d].stride == 0) return false;
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

// They are the fastest digit, and every other step is a multiple of them.
bool layout_keeps_runs(const Layout *layout, int64_t run) {
    const LayoutInput *last = &layout->in[layout->rank_in - 1];
    int out = layout->rank_out - 1;
    if (run == 1) return true;
    if (last->count == 0 || last->modes[0].stride != 1 || last->modes[0].out != out) return false;
    if (last->modes[0].extent % run != 0 || (layout->rank_out > 1 && layout->out_shape[out] % run != 0)) return false;
    for (int i = 0; i < layout->rank_in; i++)
        for (int d = 0; d < layout->in[i].count; d++) {
            const LayoutMode *mode = &layout->in[i].modes[d];
            if (mode != &last->modes[0] && mode->out == out && mode->stride % run != 0) return false;
        }
    return !layout->swizzle.bits || run * layout->element_bits <= (int64_t)8 << layout->swizzle.base;
}

int64_t layout_period(const Layout *layout) {
    LayoutSwizzle s = layout->swizzle;
    return s.bits ? (int64_t)1 << (s.bits + s.base + (s.shift < 0 ? -s.shift : s.shift)) : 1;
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

const Layout *layout_with_swizzle(Arena *arena, const Layout *plain, LayoutSwizzle swizzle, int element_bits) {
    Layout *layout = arena_copy(arena, plain, sizeof *plain);
    layout->swizzle = swizzle;
    layout->element_bits = element_bits;
    bool whole = layout_size_out(plain) * element_bits / 8 % layout_period(layout) == 0;
    return whole ? layout : NULL;
}

const Layout *layout_bank_swizzle(Arena *arena, int64_t rows, int64_t columns, int element_bits, int panel_chunks,
                                  const char **why) {
    enum { CHUNK_BITS = 128, CHUNK_LOG2_BYTES = 4, ROWS = 8, ROWS_LOG2 = 3 };
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
    layout->swizzle = (LayoutSwizzle){log2_exact(panel_chunks), CHUNK_LOG2_BYTES, ROWS_LOG2};
    layout->element_bits = element_bits;
    return layout_finish(layout);
}

// ---- inverse ----
const Layout *layout_inverse(Arena *arena, const Layout *tv, const char **why) {
    if (tv->swizzle.bits) return refuse(arena, why, "a swizzled layout has no digit-wise inverse");
    Layout *inverse = layout_new(arena, tv->rank_out, tv->rank_in);
    for (int out = 0; out < tv->rank_out; out++) {
        Digit digits[MAX_DIGITS];
        int count = digits_of(tv, out, digits);
        int64_t next = 1;
        for (int d = 0; d < count; next *= digits[d++].extent) {
            if (digits[d].stride != next)
                return refuse(arena, why, "output %d: after %" PRId64 " elements the next digit has stride %" PRId64,
                              out, next, digits[d].stride);
            layout_add(inverse, out, digits[d].extent, digits[d].weight, digits[d].input);
        }
    }
    return layout_finish(inverse);
}
