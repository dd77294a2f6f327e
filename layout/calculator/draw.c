#include "layout/calculator/draw.h"
#include "support/numbers.h"
#include <string.h>

enum { MOST_CELLS = 1 << 16 };

// ---- building ----

Drawing draw_blank(LayoutContext *cx, const char *title, int64_t rows, int64_t columns) {
    Drawing d = {.title = title, .caption = "", .row_step = 1, .column_step = 1};
    if (rows > MOST_CELLS || columns > MOST_CELLS || rows * columns > MOST_CELLS)
        layout_refuse(cx, "a drawing has at most %d cells; this one has %lld x %lld", MOST_CELLS, (long long)rows,
                      (long long)columns);
    if (cx->failed) return d;
    d.rows = (int)rows;
    d.columns = (int)columns;
    d.cells = NEW_ARRAY(cx->arena, DrawCell, rows * columns);
    for (int i = 0; i < d.rows * d.columns; i++) d.cells[i] = (DrawCell){"", NULL, -1, false};
    return d;
}

static const char *swizzled_text(LayoutContext *cx, Swizzled a) {
    StrBuf text;
    sb_init(&text, cx->arena);
    swizzled_print(&text, a);
    return text.text;
}

static void extents(LayoutContext *cx, Cute a, int64_t *rows, int64_t *columns) {
    int64_t size = cute_size(cx, a);
    *rows = cute_rank(a) < 2 ? 1 : cute_size(cx, a.modes[0]);
    *columns = *rows ? size / *rows : 0;
}

Drawing draw_values(LayoutContext *cx, Swizzled a) {
    int64_t rows, columns, largest = 1;
    extents(cx, a.layout, &rows, &columns);
    Drawing d = draw_blank(cx, swizzled_text(cx, a), rows, columns);
    for (int64_t i = 0; i < (int64_t)d.rows * d.columns; i++)
        if (swizzled_at(a, i) > largest) largest = swizzled_at(a, i);
    for (int j = 0; j < d.columns; j++)
        for (int i = 0; i < d.rows; i++) {
            int64_t offset = swizzled_at(a, i + (int64_t)j * d.rows);
            int colour = (int)((Int128)offset * 8 / ((Int128)largest + 1)) * 2;   // eight bands of offsets
            d.cells[i * d.columns + j] =
                (DrawCell){arena_printf(cx->arena, "%lld", (long long)offset),
                           arena_printf(cx->arena, "(%d,%d) -> %lld", i, j, (long long)offset), colour, false};
        }
    return d;
}

Drawing draw_owners(LayoutContext *cx, Cute tv, Tuple tile) {
    if (cute_rank(tv) != 2 || tuple_rank(tile) != 2)
        layout_refuse(cx, "owners: expected (thread, value) over a tile of two modes");
    if (cx->failed) return draw_blank(cx, "", 0, 0);
    int64_t rows = tuple_product(cx, tuple_mode(tile, 0)), columns = tuple_product(cx, tuple_mode(tile, 1));
    Drawing d = draw_blank(cx, cute_text(cx->arena, tv), rows, columns);
    int64_t threads = cute_size(cx, tv.modes[0]), values = cute_size(cx, tv.modes[1]), copies = 0;
    if (cx->failed || layout_mul(cx, threads, values) > 16 * MOST_CELLS) return layout_refuse(cx, "too many owners"), d;
    for (int64_t value = 0; value < values; value++)
        for (int64_t thread = 0; thread < threads; thread++) {
            int64_t offset = cute_at(tv, thread + value * threads);
            if (offset >= rows * columns) return layout_refuse(cx, "the layout reaches beyond the tile"), d;
            DrawCell *cell = &d.cells[offset % rows * columns + offset / rows];
            if (*cell->text) {   // a copy: the first holder is shown
                copies++;
                continue;
            }
            cell->text = arena_printf(cx->arena, "T%lld V%lld", (long long)thread, (long long)value);
            cell->hint = arena_printf(cx->arena, "(%lld,%lld): thread %lld, value %lld", (long long)(offset % rows),
                                      (long long)(offset / rows), (long long)thread, (long long)value);
            cell->colour = (int)(thread % 16);
        }
    d.caption = arena_printf(cx->arena, "%lld threads x %lld values%s", (long long)threads, (long long)values,
                             copies ? arena_printf(cx->arena, ", %lld copies not shown", (long long)copies) : "");
    return d;
}

// Marks the cells of a phase that share a bank with another lane's different word.
static void mark_phase(Drawing *d, int first, int lanes, int column, int width, const int64_t *addresses, int bytes,
                       MemoryShape m) {
    for (int i = 0; i < lanes; i++)
        for (int j = 0; j < lanes; j++) {
            int64_t a = addresses[i] / m.bank_bytes, b = addresses[j] / m.bank_bytes;
            int words = bytes > m.bank_bytes ? bytes / m.bank_bytes : 1;
            int64_t distance = a > b ? a - b : b - a, around = distance % m.banks;
            bool same_bank = around < words || m.banks - around < words;
            for (int k = column; k < column + width && k < d->columns && i != j && a != b && same_bank; k++)
                d->cells[(first + i) * d->columns + k].marked = true;
        }
}

// Do runs of `step` columns stay together in memory?
static bool stays_contiguous(Swizzled a, int64_t rows, int64_t columns, int step) {
    if (columns % step) return false;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t column = i / rows, first = i - column % step * rows;
        if (swizzled_at(a, i) != swizzled_at(a, first) + column % step) return false;
    }
    return true;
}

// Cells of `run` elements, each with its bank or banks.
static Drawing bank_cells(LayoutContext *cx, Swizzled a, int64_t rows, int64_t columns, int run, int element_bits,
                          MemoryShape m) {
    Drawing d = draw_blank(cx, swizzled_text(cx, a), rows, columns / run);
    d.column_step = run;
    int bytes = run * element_bits / 8, banks = bytes > m.bank_bytes ? bytes / m.bank_bytes : 1;
    for (int k = 0; k < d.rows * d.columns; k++) {
        int64_t i = k / d.columns, j = k % d.columns * run, byte = swizzled_at(a, i + j * rows) * element_bits / 8;
        int bank = (int)(byte / m.bank_bytes % m.banks);
        const char *text = banks > 1 ? arena_printf(cx->arena, "%d-%d", bank, (bank + banks - 1) % m.banks)
                                     : arena_printf(cx->arena, "%d", bank);
        const char *hint = arena_printf(cx->arena, "(%lld,%lld): byte %lld, bank %s", (long long)i, (long long)j,
                                        (long long)byte, text);
        d.cells[k] = (DrawCell){text, hint, bank / (banks > 2 ? banks : 2) % 16, false};
    }
    return d;
}

Drawing draw_banks(LayoutContext *cx, Swizzled a, int element_bits, int access_bytes, MemoryShape memory) {
    enum { WARP = 32 };
    int64_t rows, columns;
    extents(cx, a.layout, &rows, &columns);
    if (element_bits < 1 || access_bytes < 1 || (access_bytes & (access_bytes - 1)) || access_bytes > 16)
        layout_refuse(cx, "an access moves 1, 2, 4, 8 or 16 bytes");
    draw_blank(cx, "", rows, columns);   // refuses what is too large
    if (cx->failed) return draw_blank(cx, "", 0, 0);
    int64_t row_bytes = (int64_t)memory.banks * memory.bank_bytes, worst = 0, least = 0;
    int step = access_bytes * 8 > element_bits ? access_bytes * 8 / element_bits : 1;   // elements of one access
    int widest = access_bytes > memory.bank_bytes ? access_bytes : memory.bank_bytes, phase = (int)(row_bytes / widest);
    int run = stays_contiguous(a, rows, columns, step) ? step : 1;
    Drawing d = bank_cells(cx, a, rows, columns, run, element_bits, memory);
    for (int64_t j = 0; j < columns; j += step)
        for (int row = 0; row < d.rows; row += WARP) {
            int lanes = d.rows - row < WARP ? d.rows - row : WARP;
            int64_t addresses[WARP];
            for (int i = 0; i < lanes; i++)
                addresses[i] = swizzled_at(a, row + i + j * rows) * element_bits / 8 / access_bytes * access_bytes;
            SharedCost cost = shared_cost_counted(addresses, lanes, access_bytes, memory);
            if (cost.wavefronts > worst) worst = cost.wavefronts, least = cost.phases;
            for (int first = 0; first < lanes; first += phase)
                mark_phase(&d, row + first, lanes - first < phase ? lanes - first : phase, (int)j / run, step / run,
                           addresses + first, access_bytes, memory);
        }
    d.caption =
        arena_printf(cx->arena, "lanes reading %d bytes each down a column: wavefronts %lld, without conflicts %lld",
                     access_bytes, (long long)worst, (long long)least);
    return d;
}
