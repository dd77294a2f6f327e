#include "layout/swizzle.h"
#include <stdlib.h>
#include <string.h>

bool swizzle_check(LayoutContext *cx, Swizzle s) {
    enum { MOST = 62 };
    if (s.bits < 0 || s.base < 0 || s.bits > MOST || s.base > MOST || abs(s.shift) > MOST)
        return layout_refuse(cx, "swizzle: B and M are at least 0, all parameters at most %d", MOST);
    if (abs(s.shift) < s.bits) return layout_refuse(cx, "swizzle: |S| is at least B, else source and target overlap");
    if (s.bits + s.base + abs(s.shift) > MOST) return layout_refuse(cx, "swizzle: bits beyond 2^%d", MOST);
    return true;
}

Swizzle swizzle_scan(Scan *scan) {
    int64_t bits = scan_integer(scan);
    scan_expect(scan, ',');
    int64_t base = scan_integer(scan);
    scan_expect(scan, ',');
    bool negative = scan_accept(scan, '-');
    int64_t shift = scan_integer(scan);
    if (bits > 64 || base > 64 || shift > 64) layout_refuse(scan->cx, "swizzle: parameters are at most 62");
    if (scan->cx->failed) return (Swizzle){0, 0, 0};
    Swizzle s = {(int)bits, (int)base, negative ? -(int)shift : (int)shift};
    swizzle_check(scan->cx, s);
    return s;
}

int64_t swizzle_apply(Swizzle s, int64_t offset) {
    int64_t mask = (((int64_t)1 << s.bits) - 1) << (s.base + (s.shift > 0 ? s.shift : 0));
    int64_t source = offset & mask;
    return offset ^ (s.shift >= 0 ? source >> s.shift : source << -s.shift);
}

int64_t swizzle_period(Swizzle s) {
    return (int64_t)1 << (s.bits + s.base + abs(s.shift));
}

void swizzle_print(StrBuf *out, Swizzle s) {
    sb_printf(out, "Sw<%d,%d,%d>", s.bits, s.base, s.shift);
}

static int log2_exact(int64_t n) {   // -1 when not a power of two
    return n > 0 && !(n & (n - 1)) ? __builtin_ctzll((unsigned long long)n) : -1;
}

Swizzle swizzle_recast(LayoutContext *cx, Swizzle s, int from_bits, int to_bits) {
    int from = log2_exact(from_bits), to = log2_exact(to_bits);
    if (from < 0 || to < 0) layout_refuse(cx, "recast: element widths are powers of two");
    s.base += from - to;
    if (s.base < 0) layout_refuse(cx, "recast: the swizzle would tear elements of %d bits apart", to_bits);
    return cx->failed ? (Swizzle){0, 0, 0} : s;
}

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
    scan_space(scan);
    Swizzled result = {{0, 0, 0}, 0, {0}};
    if (!strncmp(scan->at, "Sw<", 3)) {
        scan->at += 3;
        result.swizzle = swizzle_scan(scan);
        scan_expect(scan, '>');
        scan_expect(scan, 'o');
    }
    result.layout = cute_scan(scan);
    return result;
}

// The candidates: every nonzero difference map[i] ^ base(i) is a swizzle's target field. The lowest target bit gives
// M, the highest B; the shift is found by trying the few that keep the source within the offsets.
bool swizzle_recognise(LayoutContext *cx, const int64_t *map, int64_t count, Cute base, Swizzle *found) {
    int64_t flips = 0, reach = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = cute_at(base, i);
        flips |= offset ^ map[i];
        reach |= offset | map[i];
    }
    *found = (Swizzle){0, 0, 0};
    if (!flips) return true;
    if (flips < 0) return false;
    int low = __builtin_ctzll((unsigned long long)flips), high = 63 - __builtin_clzll((unsigned long long)flips);
    int top = 63 - __builtin_clzll((unsigned long long)reach), bits = high - low + 1;
    for (int distance = bits; distance <= top; distance++) {
        Swizzle up = {bits, low, distance}, down = {bits, low - distance, -distance};
        for (int k = 0; k < 2; k++) {
            Swizzle s = k ? down : up;
            if (s.base < 0 || s.base + s.bits + distance > 62) continue;
            int64_t i = 0;
            while (i < count && swizzle_apply(s, cute_at(base, i)) == map[i]) i++;
            if (i == count) return *found = s, true;
        }
    }
    (void)cx;
    return false;
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
    shape[1] = layout_ceil_div(t.rows, 8);
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
