#include "layout/calculator/swizzled.h"
#include "support/numbers.h"

// ---- swizzled layouts ----

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
    Swizzled result = {{0, 0, 0}, 0, cute_leaf(1, 0)};
    if (!bank_check(cx, t)) return result;
    int64_t panel = 128 / t.element_bits * t.panel_chunks, panels = t.columns / panel;
    if (t.rows == 4 && panels > 1) {
        layout_refuse(cx, "with 4 rows and several panels the pitch of a panel reaches into the swizzle's source bits");
        return result;
    }
    Cute columns = cute_tuple(cx, (Cute[]){cute_leaf(panel, 1), cute_leaf(panels, layout_mul(cx, t.rows, panel))}, 2);
    result.layout = cute_tuple(cx, (Cute[]){cute_leaf(t.rows, panel), columns}, 2);
    result.swizzle = swizzle_recast(cx, (Swizzle){log2_exact(t.panel_chunks), 4, 3}, 8, t.element_bits);
    return result;
}

Cute padded_rows(LayoutContext *cx, int64_t rows, int64_t columns, int64_t pad) {
    int64_t pitch = layout_sum(cx, columns, pad);
    Tuple shape = tuple_list(cx, (Tuple[]){tuple_int(rows), tuple_int(columns)}, 2);
    Tuple stride = tuple_list(cx, (Tuple[]){tuple_int(pitch), tuple_int(1)}, 2);
    return cute_make(cx, shape, stride);
}
