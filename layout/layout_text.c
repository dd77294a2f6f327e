// The notation of layouts: one parser and one printer.
//
//     layout = [ "Sw<" B "," M "," S ">" "o" ] shape ":" strides          mixed radix
//            | "linear" "(" bits { "," bits } ")"                        linear over F2
//     shape and strides: nested tuples of one form; a stride is n or n@output, an extent n or, of a ring, n%
//     bits   = digit | "(" digit { "," digit } ")"                        of one input, the fastest digit first
//     digit  = "[" [ image { "," image } ] "]" [ ":" n ] [ "%" ]          lowest bit first; of n coordinates
//     image  = n | "(" n { "," n } ")"                                    a number for each output
#include "layout/layout.h"
#include "layout/scan.h"
#include <inttypes.h>
#include <string.h>

enum { DEEPEST = 32 };

static const int64_t LARGEST_SIZE = (int64_t)1 << LAYOUT_MAX_BITS;

static int64_t scan_number(Scan *scan) {
    int64_t value = scan_integer(scan);
    if (value > LARGEST_SIZE) layout_refuse(scan->cx, "the number %lld is too large", (long long)value);
    return scan->cx->failed ? 0 : value;
}

// ---- mixed radix ----

// The leaves of one half (shape or stride), by input.
typedef struct Half {
    int rank;
    LayoutInput in[LAYOUT_MAX_RANK];   // shape: .extent; stride: .stride and .out
    int max_out;                       // -1: no `@`
} Half;

static int scan_output(Scan *scan) {
    int64_t out = scan_number(scan);
    if (out >= LAYOUT_MAX_RANK) layout_refuse(scan->cx, "more than %d outputs", LAYOUT_MAX_RANK);
    return scan->cx->failed ? 0 : (int)out;
}

static void scan_leaf(Scan *scan, Half *half, LayoutInput *input, bool is_stride) {
    LayoutMode mode = {1, 0, 0};
    if (input->ring) layout_refuse(scan->cx, "the mark of a ring is behind its last extent");
    if (is_stride) mode.stride = scan_number(scan);
    else mode.extent = scan_number(scan);
    if (is_stride && scan_accept(scan, '@')) {
        mode.out = scan_output(scan);
        if (mode.out > half->max_out) half->max_out = mode.out;
    }
    input->ring = !is_stride && scan_accept(scan, '%');
    if (mode.extent < 1) layout_refuse(scan->cx, "an extent below 1");
    if (input->count == LAYOUT_MAX_MODES) layout_refuse(scan->cx, "an input of more than %d digits", LAYOUT_MAX_MODES);
    if (!scan->cx->failed) input->modes[input->count++] = mode;
}

// Deeper nests only group: what is inside one input is a flat list of digits.
static void scan_input(Scan *scan, Half *half, LayoutInput *input, bool is_stride, int depth) {
    if (depth > DEEPEST) layout_refuse(scan->cx, "nested deeper than %d", DEEPEST);
    if (scan->cx->failed) return;
    if (!scan_accept(scan, '(')) {
        scan_leaf(scan, half, input, is_stride);
        return;
    }
    do scan_input(scan, half, input, is_stride, depth + 1);
    while (scan_accept(scan, ','));
    scan_expect(scan, ')');
}

static LayoutInput *next_input(Scan *scan, Half *half) {
    if (half->rank == LAYOUT_MAX_RANK) layout_refuse(scan->cx, "more than %d inputs", LAYOUT_MAX_RANK);
    return &half->in[scan->cx->failed ? 0 : half->rank++];
}

static void scan_half(Scan *scan, Half *half, bool is_stride) {
    half->max_out = -1;
    if (!scan_accept(scan, '(')) {
        scan_leaf(scan, half, next_input(scan, half), is_stride);
        return;
    }
    do scan_input(scan, half, next_input(scan, half), is_stride, 0);
    while (scan_accept(scan, ','));
    scan_expect(scan, ')');
}

static void scan_layout_swizzle(Scan *scan, Layout *layout, int element_bits) {
    enum { MOST = 20 };
    if (!scan_keyword(scan, "Sw<")) return;
    Swizzle s = scan_swizzle(scan);
    scan_expect(scan, '>');
    scan_expect(scan, 'o');
    if (s.bits > MOST || s.base > MOST || s.shift > MOST || s.shift < 0)
        layout_refuse(scan->cx, "a layout's swizzle has numbers of up to %d, none below 0", MOST);
    layout->swizzle = s;
    layout->element_bits = element_bits;
}

static bool too_large(LayoutContext *cx) {
    return layout_refuse(cx, "the layout is too large");
}

// Shape and stride halves to digits; false when they do not fit together.
static bool join_halves(LayoutContext *cx, const Half *shape, const Half *stride, Layout *layout) {
    int64_t size = 1, range[LAYOUT_MAX_RANK] = {0}, volume = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (stride->rank != shape->rank || stride->in[i].count != shape->in[i].count)
            return layout_refuse(cx, "shape and stride have different forms");
        layout->in[i].ring = shape->in[i].ring;
        for (int d = 0; d < shape->in[i].count; d++) {
            LayoutMode mode = stride->in[i].modes[d];
            mode.extent = shape->in[i].modes[d].extent;
            int64_t reach;
            bool large = __builtin_mul_overflow(size, mode.extent, &size) || size > LARGEST_SIZE ||
                         __builtin_mul_overflow(mode.extent - 1, mode.stride, &reach) || reach > LARGEST_SIZE;
            if (large || (range[mode.out] += reach) > LARGEST_SIZE) return too_large(cx);
            layout_add(layout, i, mode.extent, mode.stride, mode.out);
        }
    }
    for (int out = 0; out < LAYOUT_MAX_RANK; out++)
        if (__builtin_mul_overflow(volume, range[out] + 1, &volume) || volume > LARGEST_SIZE) return too_large(cx);
    return true;
}

static bool check_swizzle(LayoutContext *cx, const Layout *layout) {
    if (!layout->swizzle.bits) return true;
    if (log2_exact(layout->element_bits) < 0) return layout_refuse(cx, "a swizzle needs elements of 2^n bits");
    if (layout_swizzle(layout).base < 0) return layout_refuse(cx, "the swizzle would tear elements apart");
    return layout_swizzle_is_whole(layout) || layout_refuse(cx, "the swizzle's period does not divide the last output");
}

static const Layout *scan_digits(Scan *scan, int element_bits) {
    LayoutContext *cx = scan->cx;
    Half shape = {0}, stride = {0};
    Layout *layout = layout_new(cx->arena, 0, 0);
    scan_layout_swizzle(scan, layout, element_bits);
    scan_half(scan, &shape, false);
    scan_expect(scan, ':');
    scan_half(scan, &stride, true);
    layout->rank_in = shape.rank;
    layout->rank_out = stride.max_out < 0 ? 1 : stride.max_out + 1;
    if (cx->failed || !join_halves(cx, &shape, &stride, layout) || !check_swizzle(cx, layout)) return NULL;
    const Layout *finished = layout_finish(layout);
    if (!finished) layout_refuse(cx, "an input of more than %d digits", LAYOUT_MAX_MODES);
    return finished;
}

// ---- linear over F2 ----

// One image; its numbers must be as many as those of the images before.
static void scan_image(Scan *scan, int64_t *image, int *rank_out) {
    int count = 0;
    bool tuple = scan_accept(scan, '(');
    do {
        if (count == LAYOUT_MAX_RANK) layout_refuse(scan->cx, "more than %d outputs", LAYOUT_MAX_RANK);
        int64_t value = scan_number(scan);
        if (!scan->cx->failed) image[count++] = value;
    } while (tuple && scan_accept(scan, ','));
    if (tuple) scan_expect(scan, ')');
    if (*rank_out && *rank_out != count) layout_refuse(scan->cx, "images of different ranks");
    *rank_out = count;
}

static void scan_digit(Scan *scan, LayoutBits *bits, int input, LayoutInput *digits, int *count, int *rank_out) {
    int before = *count;
    scan_expect(scan, '[');
    if (!scan_accept(scan, ']')) {
        do {
            if (*count == LAYOUT_MAX_BITS) too_large(scan->cx);
            if (scan->cx->failed) return;
            scan_image(scan, bits->images[(*count)++], rank_out);
            bits->in[input]++;
        } while (scan_accept(scan, ','));
        scan_expect(scan, ']');
    }
    int64_t whole = (int64_t)1 << (*count - before), extent = scan_accept(scan, ':') ? scan_number(scan) : whole;
    if (extent > whole || extent <= whole / 2)
        layout_refuse(scan->cx, "%d bits for %" PRId64 " coordinates", *count - before, extent);
    if (bits->ring[input]) layout_refuse(scan->cx, "the mark of a ring is behind its last digit");
    bits->ring[input] = scan_accept(scan, '%');
    if (digits->count == LAYOUT_MAX_MODES) layout_refuse(scan->cx, "an input of more than %d digits", LAYOUT_MAX_MODES);
    if (!scan->cx->failed) digits->modes[digits->count++].extent = extent;
}

static void scan_bits(Scan *scan, LayoutBits *bits, int input, LayoutInput *digits, int *count, int *rank_out) {
    bool several = scan_accept(scan, '(');
    do scan_digit(scan, bits, input, digits, count, rank_out);
    while (several && scan_accept(scan, ','));
    if (several) scan_expect(scan, ')');
}

static bool fits(const LayoutBits *bits, int count, int rank_out) {
    int width = 0;
    for (int o = 0; o < rank_out; o++) {
        int64_t reach = 0;
        for (int bit = 0; bit < count; bit++) reach |= bits->images[bit][o];
        width += log2_above(reach + 1);
    }
    return width <= LAYOUT_MAX_BITS;
}

static const Layout *scan_linear(Scan *scan, int element_bits) {
    LayoutBits bits = {0};
    LayoutInput digits[LAYOUT_MAX_RANK] = {0};
    int rank_in = 0, rank_out = 0, count = 0;
    scan_expect(scan, '(');
    do {
        if (rank_in == LAYOUT_MAX_RANK) layout_refuse(scan->cx, "more than %d inputs", LAYOUT_MAX_RANK);
        if (!scan->cx->failed) scan_bits(scan, &bits, rank_in, &digits[rank_in], &count, &rank_out), rank_in++;
    } while (scan_accept(scan, ','));
    scan_expect(scan, ')');
    if (!fits(&bits, count, rank_out)) too_large(scan->cx);
    if (scan->cx->failed) return NULL;
    return layout_of_digits(scan->cx->arena, rank_in, rank_out ? rank_out : 1, &bits, digits,
                            log2_exact(element_bits) < 0 ? 0 : element_bits);
}

const Layout *layout_parse(Arena *arena, const char *text, int element_bits, const char **why) {
    LayoutContext cx = layout_context(arena);
    Scan scan = scan_text(&cx, text);
    bool linear = scan_keyword(&scan, "linear");
    const Layout *layout = linear ? scan_linear(&scan, element_bits) : scan_digits(&scan, element_bits);
    if (!cx.failed) scan_end(&scan);
    if (cx.failed && why) *why = arena_strdup(arena, cx.reason);
    return cx.failed ? NULL : layout;
}

// ---- printing ----

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
        if (!is_stride && in->ring) sb_char(out, '%');
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

static void print_bits_of(const Layout *layout, int first, int count, int64_t extent, StrBuf *out) {
    sb_char(out, '[');
    for (int b = 0; b < count; b++) {
        sb_str(out, layout->rank_out > 1 ? b ? ",(" : "(" : b ? "," : "");
        for (int o = 0; o < layout->rank_out; o++)
            sb_printf(out, "%s%" PRId64, o ? "," : "", layout->bits->images[first + b][o]);
        if (layout->rank_out > 1) sb_char(out, ')');
    }
    sb_char(out, ']');
    if (extent < (int64_t)1 << count) sb_printf(out, ":%" PRId64, extent);
}

static void print_bits(const Layout *layout, StrBuf *out) {
    sb_str(out, "linear(");
    for (int i = 0, bit = 0; i < layout->rank_in; i++) {
        const LayoutInput *in = &layout->in[i];
        int end = bit + layout->bits->in[i];
        sb_str(out, i ? "," : "");
        if (in->count > 1) sb_char(out, '(');
        for (int d = 0; d < in->count - 1; d++) {
            int own = log2_above(in->modes[d].extent);
            print_bits_of(layout, bit, own, in->modes[d].extent, out);
            sb_char(out, ',');
            bit += own;
        }
        print_bits_of(layout, bit, end - bit, in->count ? in->modes[in->count - 1].extent : 1, out);
        if (in->ring) sb_char(out, '%');
        if (in->count > 1) sb_char(out, ')');
        bit = end;
    }
    sb_char(out, ')');
}

static void print_digits(const Layout *layout, StrBuf *out) {
    unsigned missing = unnamed_outputs(layout);
    if (layout->swizzle.bits) swizzle_print(out, layout->swizzle);
    if (layout->swizzle.bits) sb_str(out, " o ");
    print_half(layout, false, missing, out);
    sb_char(out, ':');
    print_half(layout, true, missing, out);
}

char *layout_text(Arena *arena, const Layout *layout) {
    StrBuf out;
    sb_init(&out, arena);
    if (layout->bits) print_bits(layout, &out);
    else print_digits(layout, &out);
    return out.text;
}
