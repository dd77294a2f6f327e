#include "layout/calculator/swizzled.h"
#include "layout/layout.h"
#include "support/numbers.h"

// ---- swizzled layouts ----

Swizzle swizzle_recast(LayoutContext *cx, Swizzle s, int from_bits, int to_bits) {
    int from = log2_exact(from_bits), to = log2_exact(to_bits);
    if (from < 0 || to < 0) layout_refuse(cx, "recast: element widths are powers of two");
    s.base += from - to;
    if (s.base < 0) layout_refuse(cx, "recast: the swizzle would tear elements of %d bits apart", to_bits);
    return cx->failed ? (Swizzle){0, 0, 0} : s;
}

int64_t swizzled_at(Swizzled a, int64_t index) {
    return swizzle_apply(a.swizzle, a.base + cute_at(a.layout, index));
}

Swizzled swizzled_composition(LayoutContext *cx, Swizzled a, Cute b) {
    return (Swizzled){a.swizzle, a.base, cute_composition(cx, a.layout, b)};
}

void swizzled_print(StrBuf *out, Swizzled a) {
    if (a.swizzle.bits) {
        swizzle_print(out, a.swizzle);
        sb_str(out, " o ");
    }
    if (a.base) sb_printf(out, "%lld + ", (long long)a.base);
    cute_print(out, a.layout);
}

Swizzled swizzled_scan(Scan *scan) {
    Swizzled result = {{0, 0, 0}, 0, {0}};
    if (scan_keyword(scan, "Sw<")) {
        result.swizzle = scan_swizzle(scan);
        scan_expect(scan, '>');
        scan_expect(scan, 'o');
    }
    result.layout = cute_scan(scan);
    return result;
}

// An input's digits, as offsets from the buffer's start: the outputs are row-major.
static Cute input_as_mode(LayoutContext *cx, const Layout *layout, int input) {
    const LayoutInput *in = &layout->in[input];
    Cute digits[LAYOUT_MAX_MODES];
    for (int d = 0; d < in->count; d++) {
        int64_t step = in->modes[d].stride;
        for (int o = in->modes[d].out + 1; o < layout->rank_out; o++) step *= layout->out_shape[o];
        digits[d] = cute_leaf(in->modes[d].extent, step);
    }
    return in->count ? cute_coalesce(cx, cute_tuple(cx, digits, in->count)) : cute_leaf(1, 0);
}

Swizzled swizzled_of_layout(LayoutContext *cx, const Layout *layout) {
    Cute modes[LAYOUT_MAX_RANK];
    if (!layout || cx->failed) return (Swizzled){.layout = cute_leaf(1, 0)};
    for (int i = 0; i < layout->rank_in; i++) modes[i] = input_as_mode(cx, layout, i);
    return (Swizzled){layout_swizzle(layout), 0, cute_tuple(cx, modes, layout->rank_in)};
}

// ---- TileLang's bank layouts ----

bool bank_check(LayoutContext *cx, BankTile t) {
    if (t.rows < 1 || t.columns < 1) return layout_refuse(cx, "rows and columns are at least 1");
    if (t.panel_chunks != 8 && t.panel_chunks != 4 && t.panel_chunks != 2)
        return layout_refuse(cx, "a panel has 8, 4 or 2 chunks of 16 bytes");
    if (t.element_bits < 1 || t.element_bits > 128 || log2_exact(t.element_bits) < 0)
        return layout_refuse(cx, "the element's width is a power of two up to 128 bits");
    if (t.rows != 4 && t.rows % 8 != 0) return layout_refuse(cx, "rows must be 4 or a multiple of 8");
    int64_t panel = 128 / t.element_bits * t.panel_chunks;
    if (t.columns % panel != 0)
        return layout_refuse(cx, "columns must be a multiple of %lld, one panel", (long long)panel);
    layout_mul(cx, t.rows, t.columns);
    return !cx->failed;
}

void bank_shape(BankTile t, int64_t shape[3]) {
    int64_t panel = 128 / t.element_bits * t.panel_chunks;
    shape[0] = t.columns / panel;
    shape[1] = ceil_div(t.rows, 8);
    shape[2] = (t.rows < 8 ? t.rows : 8) * panel;
}

void bank_index(BankTile t, int64_t i, int64_t j, int64_t index[3]) {
    int64_t v = 128 / t.element_bits, n = t.panel_chunks;
    int64_t row = i % 8, chunk = j / v % n;
    index[0] = j / v / n;
    index[1] = i / 8;
    index[2] = j % v + ((chunk ^ (row / (8 / n))) + row * n) * v;
}

int64_t bank_element(BankTile t, int64_t i, int64_t j) {
    int64_t shape[3], index[3];
    bank_shape(t, shape);
    bank_index(t, i, j, index);
    return (index[0] * shape[1] + index[1]) * shape[2] + index[2];
}

Swizzled bank_swizzle(LayoutContext *cx, BankTile t) {
    const char *why = NULL;
    bool fits = bank_check(cx, t);
    if (fits && t.rows == 4 && t.columns > 128 / t.element_bits * t.panel_chunks)
        fits = layout_refuse(
            cx, "with 4 rows and several panels the pitch of a panel reaches into the swizzle's source bits");
    const Layout *layout =
        fits ? layout_bank_swizzle(cx->arena, t.rows, t.columns, t.element_bits, t.panel_chunks, &why) : NULL;
    if (why) layout_refuse(cx, "%s", why);
    return swizzled_of_layout(cx, layout);
}

Cute padded_rows(LayoutContext *cx, int64_t rows, int64_t columns, int64_t pad) {
    int64_t pitch = layout_sum(cx, columns, pad);
    layout_mul(cx, rows, pitch);
    return swizzled_of_layout(cx, cx->failed ? NULL : layout_padded(cx->arena, rows, columns, pitch)).layout;
}
