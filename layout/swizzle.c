#include "layout/swizzle.h"
#include "layout/scan.h"
#include <stdlib.h>

bool swizzle_check(LayoutContext *cx, Swizzle s) {
    enum { MOST = 62 };
    if (s.bits < 0 || s.base < 0 || s.bits > MOST || s.base > MOST || abs(s.shift) > MOST)
        return layout_refuse(cx, "swizzle: B and M are at least 0, all parameters at most %d", MOST);
    if (abs(s.shift) < s.bits) return layout_refuse(cx, "swizzle: |S| is at least B, else source and target overlap");
    if (s.bits + s.base + abs(s.shift) > MOST) return layout_refuse(cx, "swizzle: bits beyond 2^%d", MOST);
    return true;
}

Swizzle scan_swizzle(Scan *scan) {
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

Swizzle swizzle_of_span(int span) {
    enum { ROWS_LOG2 = 3 };
    int chunks = span / SWIZZLE_CHUNK_BYTES;
    return chunks ? (Swizzle){log2_exact(chunks), log2_exact(SWIZZLE_CHUNK_BYTES), ROWS_LOG2} : (Swizzle){0};
}
