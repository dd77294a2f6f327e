// Layout expressions, and lines of questions. The first byte chooses.
#include "layout/calculator/batch.h"
#include "layout/calculator/calc.h"
#include "tests/fuzz/fuzz.h"

static void expressions(Arena *arena, const char *text, bool expand) {
    LayoutContext cx = layout_context(arena);
    Calc *calc = calc_new(&cx);
    if (expand) {
        calc_expand(calc, text);
        return;
    }
    CalcValue value = calc_run(calc, text);
    if (cx.failed) return;
    calc_text(calc, value, true);
    if (value.kind == CALC_LAYOUT) draw_text(&cx, draw_values(&cx, value.layout));
    if (value.kind == CALC_LINEAR) draw_text(&cx, draw_linear(&cx, value.linear));
}

void fuzz(Arena *arena, Failure *failure, const uint8_t *data, size_t size) {
    (void)failure;
    if (size == 0) return;
    const char *text = arena_strndup(arena, (const char *)data + 1, size - 1);
    if (data[0] % 3 == 0) layout_batch_line(arena, (const char *)data + 1, size - 1);
    else expressions(arena, text, data[0] % 3 == 2);
}
