#include "layout/calculator/linear_text.h"
#include "support/vec.h"
#include <string.h>

void linear_print(StrBuf *out, Linear a) {
    sb_char(out, '{');
    for (int in = 0; in < a.in_count; in++) {
        sb_printf(out, "%s%s: [", in ? ", " : "", a.ins[in].name);
        for (int bit = 0; bit < a.ins[in].bits; bit++) {
            sb_str(out, bit ? ",(" : "(");
            for (int i = 0; i < a.out_count; i++) {
                if (i) sb_char(out, ',');
                tuple_print_integer(out, linear_basis(a, in, bit, i));
            }
            sb_char(out, ')');
        }
        sb_char(out, ']');
    }
    sb_str(out, "} -> (");
    for (int i = 0; i < a.out_count; i++)
        sb_printf(out, "%s%s: %lld", i ? ", " : "", a.outs[i].name, 1LL << a.outs[i].bits);
    sb_char(out, ')');
}

char *linear_text(Arena *arena, Linear a) {
    StrBuf out;
    sb_init(&out, arena);
    linear_print(&out, a);
    return out.text;
}

static const char *scan_name(Scan *scan) {
    scan_space(scan);
    size_t length = strspn(scan->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (!length) layout_refuse(scan->cx, "syntax: expected a name at '%.12s'", scan->at);
    const char *name = arena_strndup(scan->cx->arena, scan->at, length);
    scan->at += length;
    return name;
}

// The images come before the output sizes that pack them: they are kept as tuples until those are known.
Linear linear_scan(Scan *scan) {
    LayoutContext *cx = scan->cx;
    VEC(LinearDim) ins = {0}, outs = {0};
    VEC(Tuple) images = {0};
    scan_expect(scan, '{');
    if (!scan_accept(scan, '}')) {
        do {
            LinearDim dim = {scan_name(scan), 0};
            scan_expect(scan, ':');
            scan_expect(scan, '[');
            if (!scan_accept(scan, ']')) {
                do {
                    vec_push(cx->arena, &images, scan_tuple(scan));
                    dim.bits++;
                } while (scan_accept(scan, ','));
                scan_expect(scan, ']');
            }
            vec_push(cx->arena, &ins, dim);
        } while (scan_accept(scan, ','));
        scan_expect(scan, '}');
    }
    scan_expect(scan, '-');
    scan_expect(scan, '>');
    scan_expect(scan, '(');
    if (!scan_accept(scan, ')')) {
        do {
            LinearDim dim = {scan_name(scan), 0};
            scan_expect(scan, ':');
            int64_t size = scan_integer(scan);
            dim.bits = log2_exact(size);
            if (dim.bits < 0) layout_refuse(cx, "size %lld is not a power of two", (long long)size);
            vec_push(cx->arena, &outs, dim);
        } while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    if (cx->failed || !linear_check_dims(cx, outs.items, outs.count, "output")) return linear_empty();
    uint64_t *columns = NEW_ARRAY(cx->arena, uint64_t, images.count);
    for (int i = 0; i < images.count; i++) {
        if (tuple_rank(images.items[i]) != outs.count) layout_refuse(cx, "an image has another rank than the outputs");
        for (int j = 0, shift = 0; j < outs.count && !cx->failed; shift += outs.items[j++].bits) {
            Tuple entry = tuple_mode(images.items[i], j);
            if (entry.kind != TUPLE_INT || (uint64_t)entry.value >> outs.items[j].bits)
                layout_refuse(cx, "an image lies outside the output sizes");
            columns[i] |= (uint64_t)entry.value << shift;
        }
    }
    return cx->failed ? linear_empty() : linear_make(cx, ins.items, ins.count, outs.items, outs.count, columns);
}

Linear linear_parse(LayoutContext *cx, const char *text) {
    Scan scan = scan_text(cx, text);
    Linear a = linear_scan(&scan);
    scan_end(&scan);
    return a;
}

// ---- apply as code ----

int linear_terms(LayoutContext *cx, Linear a, int out, LinearTerm **terms) {
    int shift = linear_out_shift(a, out), count = 0;
    *terms = NEW_ARRAY(cx->arena, LinearTerm, a.in_count * 2 * (LINEAR_MAX_BITS + 1));
    for (int in = 0, column = 0; in < a.in_count; column += a.ins[in++].bits)
        for (int distance = -LINEAR_MAX_BITS; distance <= LINEAR_MAX_BITS; distance++) {
            uint64_t mask = 0, survive = 0;   // `survive`: input bits that the shift alone would keep within the word
            for (int bit = 0; bit < a.ins[in].bits; bit++) {
                int to = bit + distance;
                if (to < 0) continue;
                survive |= (uint64_t)1 << bit;
                if (to < a.outs[out].bits && (a.columns[column + bit] >> (shift + to) & 1)) mask |= (uint64_t)1 << bit;
            }
            if (mask) (*terms)[count++] = (LinearTerm){in, distance, mask, mask != survive};
        }
    return count;
}

char *linear_code(LayoutContext *cx, Linear a, int out) {
    LinearTerm *terms;
    int count = linear_terms(cx, a, out, &terms);
    StrBuf text;
    sb_init(&text, cx->arena);
    for (int i = 0; i < count; i++) {
        LinearTerm t = terms[i];
        const char *name = a.ins[t.in].name;
        if (i) sb_str(&text, " ^ ");
        if (t.shift) sb_char(&text, '(');
        if (t.masked) sb_printf(&text, "(%s & %lld)", name, (long long)t.mask);
        else sb_str(&text, name);
        if (t.shift) sb_printf(&text, t.shift > 0 ? " << %d)" : " >> %d)", t.shift > 0 ? t.shift : -t.shift);
    }
    if (!count) sb_char(&text, '0');
    return text.text;
}
