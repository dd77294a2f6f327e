// Pictures of linear layouts.
//
// Two kinds of picture, by what the layout is. A map from coordinates to one output, such as `linear(Sw<..> o ..)`, is
// a table of the output: rows are the first input. Anything else maps hardware (registers and threads, or offsets of
// shared memory) to the coordinates of a tensor: cell (i, j) shows its owner.
#include "layout/calculator/draw.h"
#include <string.h>

enum { MOST_BITS = 20 };   // of the inputs: they are enumerated

static int64_t bit_field(uint64_t packed, int shift, int bits) {
    return (int64_t)(packed >> shift & (((uint64_t)1 << bits) - 1));
}

static Drawing refused(LayoutContext *cx) {
    layout_refuse(cx, "a drawing enumerates at most %d input bits", MOST_BITS);
    return draw_blank(cx, "", 0, 0);
}

static const char *hint_of(LayoutContext *cx, Linear a, uint64_t in) {
    StrBuf text;
    sb_init(&text, cx->arena);
    uint64_t out = linear_apply_packed(a, in);
    for (int i = 0; i < a.in_count; i++)
        sb_printf(&text, "%s%s %lld", i ? ", " : "", a.ins[i].name,
                  (long long)bit_field(in, linear_in_shift(a, i), a.ins[i].bits));
    for (int i = 0; i < a.out_count; i++)
        sb_printf(&text, "%s%s %lld", i ? ", " : ": ", a.outs[i].name,
                  (long long)bit_field(out, linear_out_shift(a, i), a.outs[i].bits));
    return sb_text(&text);
}

static Drawing outputs(LayoutContext *cx, Linear a) {
    int bits = linear_in_bits(a), rows = a.ins[0].bits;
    if (a.in_count == 1) rows = 0;
    if (bits > MOST_BITS) return refused(cx);
    Drawing d = draw_blank(cx, linear_text(cx->arena, a), (int64_t)1 << rows, (int64_t)1 << (bits - rows));
    for (int i = 0; i < d.rows * d.columns; i++) {
        uint64_t in = (uint64_t)(i / d.columns) | (uint64_t)(i % d.columns) << rows, out = linear_apply_packed(a, in);
        int band = linear_out_bits(a) > 3 ? (int)(out >> (linear_out_bits(a) - 3)) : (int)out;   // eight bands
        d.cells[i] =
            (DrawCell){arena_printf(cx->arena, "%lld", (long long)out), hint_of(cx, a, in), 2 * band % 16, false};
    }
    return d;
}

// "T5 V1" where there are registers, else the flat input. Colours tell threads apart, or runs of 8 offsets.
static const char *owner_text(LayoutContext *cx, Linear a, uint64_t in, int *colour) {
    int reg = linear_find_in(a, "register");
    *colour = (int)(in / 8 % 16);
    if (reg < 0) return arena_printf(cx->arena, "%lld", (long long)in);
    int shift = linear_in_shift(a, reg), bits = a.ins[reg].bits;
    int64_t thread = (int64_t)((in >> (shift + bits) << shift) | (in & (((uint64_t)1 << shift) - 1)));
    *colour = (int)(thread % 16);
    return arena_printf(cx->arena, "T%lld V%lld", (long long)thread, (long long)bit_field(in, shift, bits));
}

static Drawing owners(LayoutContext *cx, Linear a) {
    int bits = linear_in_bits(a), rows = a.out_count > 1 ? a.outs[0].bits : 0;
    if (bits > MOST_BITS) return refused(cx);
    int64_t columns = (int64_t)1 << (linear_out_bits(a) - rows), copies = 0;
    Drawing d = draw_blank(cx, linear_text(cx->arena, a), (int64_t)1 << rows, columns);
    for (uint64_t in = 0; in < (uint64_t)1 << bits && !cx->failed; in++) {
        uint64_t out = linear_apply_packed(a, in);
        DrawCell *cell = &d.cells[bit_field(out, 0, rows) * columns + (int64_t)(out >> rows)];
        if (*cell->text) {   // the first holder is shown
            copies++;
            continue;
        }
        cell->text = owner_text(cx, a, in, &cell->colour);
        cell->hint = hint_of(cx, a, in);
    }
    if (copies) d.caption = arena_printf(cx->arena, "%lld copies not shown", (long long)copies);
    return d;
}

Drawing draw_linear(LayoutContext *cx, Linear a) {
    bool hardware = linear_find_in(a, "register") >= 0 || linear_find_in(a, "lane") >= 0;
    return a.out_count == 1 && a.in_count && !hardware ? outputs(cx, a) : owners(cx, a);
}
