#include "layout/calculator/tuple.h"
#include "support/vec.h"
#include <ctype.h>
#include <string.h>

// ---- numbers ----

static int64_t within_limit(LayoutContext *cx, bool overflow, int64_t value) {
    if (!overflow && value <= LAYOUT_LIMIT && value >= -LAYOUT_LIMIT) return value;
    layout_refuse(cx, "overflow: a size or offset exceeds 2^62");
    return 0;
}

int64_t layout_mul(LayoutContext *cx, int64_t a, int64_t b) {
    int64_t product;
    bool overflow = __builtin_mul_overflow(a, b, &product);
    return within_limit(cx, overflow, product);
}

int64_t layout_sum(LayoutContext *cx, int64_t a, int64_t b) {
    int64_t sum;
    bool overflow = __builtin_add_overflow(a, b, &sum);
    return within_limit(cx, overflow, sum);
}

enum { DEEPEST = 32 };   // nesting of parsed tuples: bounds the recursion of all that follows

Tuple tuple_list(LayoutContext *cx, const Tuple *items, int count) {
    const Tuple *copy = arena_copy(cx->arena, items, sizeof *items * (size_t)count);
    return (Tuple){.kind = TUPLE_LIST, .count = count, .items = copy};
}

int tuple_leaves(Tuple t) {
    if (t.kind != TUPLE_LIST) return 1;
    int leaves = 0;
    for (int i = 0; i < t.count; i++) leaves += tuple_leaves(t.items[i]);
    return leaves;
}

int64_t tuple_product(LayoutContext *cx, Tuple t) {
    if (t.kind == TUPLE_INT) return t.value;
    if (t.kind == TUPLE_ANY) return layout_refuse(cx, "'_' has no size"), 1;
    int64_t product = 1;
    for (int i = 0; i < t.count; i++) product = layout_mul(cx, product, tuple_product(cx, t.items[i]));
    return product;
}

void tuple_print_integer(StrBuf *out, int64_t value) {
    char digits[24];
    int at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) digits[--at] = '-';
    sb_bytes(out, digits + at, sizeof digits - (size_t)at);
}

void tuple_print(StrBuf *out, Tuple t) {
    if (t.kind == TUPLE_INT) {
        tuple_print_integer(out, t.value);
    } else if (t.kind == TUPLE_ANY) {
        sb_char(out, '_');
    } else {
        for (int i = 0; i < t.count; i++) {
            sb_char(out, i ? ',' : '(');
            tuple_print(out, t.items[i]);
        }
        sb_str(out, t.count ? ")" : "()");
    }
}

// ---- parsing ----

static Tuple scan_nested(Scan *scan, int depth) {
    if (depth > DEEPEST) return layout_refuse(scan->cx, "syntax: nested deeper than %d", DEEPEST), tuple_int(1);
    scan_space(scan);
    if (*scan->at == '_' && !isdigit((unsigned char)scan->at[1])) return scan->at++, (Tuple){.kind = TUPLE_ANY};
    if (!scan_accept(scan, '(')) return tuple_int(scan_integer(scan));
    Tuple few[8];
    VEC(Tuple) items = {few, 0, COUNT_OF(few)};
    if (!scan_accept(scan, ')')) {
        do vec_push(scan->cx->arena, &items, scan_nested(scan, depth + 1));
        while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    return tuple_list(scan->cx, items.items, items.count);
}

Tuple scan_tuple(Scan *scan) {
    return scan_nested(scan, 0);
}

Tuple tuple_parse(LayoutContext *cx, const char *text) {
    Scan scan = scan_text(cx, text);
    Tuple t = scan_tuple(&scan);
    scan_end(&scan);
    return t;
}
