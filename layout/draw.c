#include "layout/draw.h"
#include <string.h>

enum { MOST_CELLS = 1 << 16 };

// ---- building ----

static Drawing blank(LayoutContext *cx, const char *title, int64_t rows, int64_t columns) {
    Drawing d = {.title = title, .caption = ""};
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
    Drawing d = blank(cx, swizzled_text(cx, a), rows, columns);
    for (int64_t i = 0; i < (int64_t)d.rows * d.columns; i++)
        if (swizzled_at(a, i) > largest) largest = swizzled_at(a, i);
    for (int j = 0; j < d.columns; j++)
        for (int i = 0; i < d.rows; i++) {
            int64_t offset = swizzled_at(a, i + (int64_t)j * d.rows);
            int colour = (int)(offset * 8 / (largest + 1)) * 2;   // eight bands of offsets
            d.cells[i * d.columns + j] =
                (DrawCell){arena_printf(cx->arena, "%lld", (long long)offset),
                           arena_printf(cx->arena, "(%d,%d) -> %lld", i, j, (long long)offset), colour, false};
        }
    return d;
}

Drawing draw_owners(LayoutContext *cx, Cute tv, Tuple tile) {
    if (cute_rank(tv) != 2 || tuple_rank(tile) != 2)
        layout_refuse(cx, "owners: expected (thread, value) over a tile of two modes");
    if (cx->failed) return blank(cx, "", 0, 0);
    int64_t rows = tuple_product(cx, tuple_mode(tile, 0)), columns = tuple_product(cx, tuple_mode(tile, 1));
    Drawing d = blank(cx, cute_text(cx->arena, tv), rows, columns);
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
            int64_t apart = a > b ? a - b : b - a, around = apart % m.banks;
            bool same_bank = around < words || m.banks - around < words;
            for (int k = column; k < column + width && k < d->columns && i != j && a != b && same_bank; k++)
                d->cells[(first + i) * d->columns + k].marked = true;
        }
}

Drawing draw_banks(LayoutContext *cx, Swizzled a, int element_bits, int access_bytes, MemoryShape memory) {
    enum { WARP = 32 };
    int64_t rows, columns;
    extents(cx, a.layout, &rows, &columns);
    if (element_bits < 1 || access_bytes < 1 || (access_bytes & (access_bytes - 1)) || access_bytes > 16)
        layout_refuse(cx, "an access moves 1, 2, 4, 8 or 16 bytes");
    Drawing d = blank(cx, swizzled_text(cx, a), rows, columns);
    if (cx->failed) return d;
    int64_t row_bytes = (int64_t)memory.banks * memory.bank_bytes, worst = 0, least = 0;
    int step = access_bytes * 8 > element_bits ? access_bytes * 8 / element_bits : 1;   // elements of one access
    int widest = access_bytes > memory.bank_bytes ? access_bytes : memory.bank_bytes, phase = (int)(row_bytes / widest);
    for (int j = 0; j < d.columns; j++)
        for (int i = 0; i < d.rows; i++) {
            int64_t byte = swizzled_at(a, i + (int64_t)j * d.rows) * element_bits / 8;
            int bank = (int)(byte % row_bytes / memory.bank_bytes);
            const char *hint = arena_printf(cx->arena, "(%d,%d): byte %lld, bank %d", i, j, (long long)byte, bank);
            d.cells[i * d.columns + j] = (DrawCell){arena_printf(cx->arena, "%d", bank), hint, bank / 2 % 16, false};
        }
    for (int j = 0; j < d.columns; j += step)
        for (int row = 0; row < d.rows; row += WARP) {
            int lanes = d.rows - row < WARP ? d.rows - row : WARP;
            int64_t addresses[WARP];
            for (int i = 0; i < lanes; i++)
                addresses[i] =
                    swizzled_at(a, row + i + (int64_t)j * d.rows) * element_bits / 8 / access_bytes * access_bytes;
            SharedCost cost = shared_cost_counted(addresses, lanes, access_bytes, memory);
            if (cost.wavefronts > worst) worst = cost.wavefronts, least = cost.phases;
            for (int first = 0; first < lanes; first += phase)
                mark_phase(&d, row + first, lanes - first < phase ? lanes - first : phase, j, step, addresses + first,
                           access_bytes, memory);
        }
    d.caption =
        arena_printf(cx->arena, "lanes reading %d bytes each down a column: wavefronts %lld, without conflicts %lld",
                     access_bytes, (long long)worst, (long long)least);
    return d;
}

// ---- text ----

static int digits_of(int64_t n) {
    int digits = 1;
    while (n >= 10) n /= 10, digits++;
    return digits;
}

static void rule(StrBuf *out, int columns, int width) {
    sb_str(out, "    ");
    for (int j = 0; j < columns; j++) {
        sb_char(out, '+');
        for (int i = 0; i < width; i++) sb_char(out, '-');
    }
    sb_str(out, "+\n");
}

static void print_static(StrBuf *out, Cute a, bool strides) {
    if (a.rank == CUTE_LEAF) sb_printf(out, "_%lld", (long long)(strides ? a.stride : a.shape));
    for (int i = 0; i < a.rank; i++) {
        sb_char(out, i ? ',' : '(');
        print_static(out, a.modes[i], strides);
    }
    if (a.rank >= 0) sb_str(out, a.rank ? ")" : "()");
}

static void print_marked(StrBuf *out, Swizzled a, bool static_mark) {
    if (!static_mark) {
        swizzled_print(out, a);
        return;
    }
    print_static(out, a.layout, false);
    sb_char(out, ':');
    print_static(out, a.layout, true);
}

// A grid of texts, right-aligned in `width`.
static void print_grid(StrBuf *out, Drawing d, int width) {
    sb_str(out, "    ");
    for (int j = 0; j < d.columns; j++) sb_printf(out, "  %*d ", width, j);
    sb_char(out, '\n');
    for (int i = 0; i < d.rows; i++) {
        rule(out, d.columns, width + 2);
        sb_printf(out, "%2d  ", i);
        for (int j = 0; j < d.columns; j++) {
            DrawCell cell = d.cells[i * d.columns + j];
            sb_printf(out, "|%s%*s ", cell.marked ? "!" : " ", width, cell.text);
        }
        sb_str(out, "|\n");
    }
    rule(out, d.columns, width + 2);
}

char *draw_table(LayoutContext *cx, Swizzled a, bool static_mark) {
    Drawing d = draw_values(cx, a);
    StrBuf out;
    sb_init(&out, cx->arena);
    if (!cx->failed) {
        print_marked(&out, a, static_mark);
        sb_char(&out, '\n');
        print_grid(&out, d, digits_of(cute_cosize(cx, a.layout)));
    }
    return arena_strdup(cx->arena, sb_text(&out));
}

char *draw_text(LayoutContext *cx, Drawing d) {
    StrBuf out;
    sb_init(&out, cx->arena);
    int width = digits_of(d.columns);
    for (int i = 0; i < d.rows * d.columns; i++)
        if ((int)strlen(d.cells[i].text) > width) width = (int)strlen(d.cells[i].text);
    sb_printf(&out, "%s\n", d.title);
    print_grid(&out, d, width);
    if (*d.caption) sb_printf(&out, "%s\n", d.caption);
    return out.text;
}

char *draw_coverage(LayoutContext *cx, Cute rows, Cute columns, int64_t row_count, int64_t column_count) {
    StrBuf out;
    sb_init(&out, cx->arena);
    if (row_count > 256 || column_count > 256) layout_refuse(cx, "a coverage map has at most 256 rows and columns");
    if (cx->failed) return arena_strdup(cx->arena, "");
    bool row_in[256] = {false}, column_in[256] = {false};
    for (int64_t i = 0; i < cute_size(cx, rows); i++)
        if (cute_at(rows, i) < row_count) row_in[cute_at(rows, i)] = true;
    for (int64_t i = 0; i < cute_size(cx, columns); i++)
        if (cute_at(columns, i) < column_count) column_in[cute_at(columns, i)] = true;
    sb_str(&out, "     N:  ");
    for (int j = 0; j < column_count; j++) sb_printf(&out, "%d ", j);
    sb_str(&out, "\n  M     ");
    for (int j = 0; j < column_count; j++) sb_str(&out, "--");
    sb_char(&out, '\n');
    for (int i = 0; i < row_count; i++) {
        sb_printf(&out, "  %2d |  ", i);
        for (int j = 0; j < column_count; j++) sb_str(&out, row_in[i] && column_in[j] ? "X " : ". ");
        sb_char(&out, '\n');
    }
    return out.text;
}

// ---- SVG ----

// Sixteen fills, light enough for black text, neighbours well apart.
static const char *const palette[16] = {"#8dd3c7", "#fff3a8", "#bebada", "#fb9a91", "#8fbfe0", "#fdc086",
                                        "#b9e07a", "#fbcfe6", "#d4d4d4", "#c79bd1", "#ccebc5", "#ffe066",
                                        "#a1d6f0", "#e5c9a8", "#9fdcb6", "#f2a7c3"};

static void escaped(StrBuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<') sb_str(out, "&lt;");
        else if (*text == '>') sb_str(out, "&gt;");
        else if (*text == '&') sb_str(out, "&amp;");
        else if (*text == '"') sb_str(out, "&quot;");
        else sb_char(out, *text);
    }
}

static void svg_text(StrBuf *out, int x, int y, const char *class, const char *text) {
    sb_printf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    escaped(out, text);
    sb_str(out, "</text>\n");
}

char *draw_svg(LayoutContext *cx, Drawing d) {
    enum { HEIGHT = 24, LEFT = 40, TOP = 56, LETTER = 7, PAD = 12 };
    size_t longest = 2;
    for (int i = 0; i < d.rows * d.columns; i++)
        if (strlen(d.cells[i].text) > longest) longest = strlen(d.cells[i].text);
    int cell = (int)longest * LETTER + PAD, title = (int)strlen(d.title) * 8 + 2 * PAD,
        note = (int)strlen(d.caption) * 7 + LEFT + PAD;
    int width = LEFT + d.columns * cell + PAD, height = TOP + d.rows * HEIGHT + (*d.caption ? 32 : PAD);
    if (width < title) width = title;
    if (width < note) width = note;
    StrBuf out;
    sb_init(&out, cx->arena);
    sb_printf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
              width, height, width, height);
    sb_str(
        &out,
        "<style>text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;text-anchor:middle;fill:#222}"
        ".t{font-size:14px;font-weight:600;text-anchor:start}"
                 ".i{fill:#888;font-size:11px}.n{text-anchor:start;fill:#555}"
        "rect{stroke:#fff;stroke-width:1}.m{stroke:#d01c1c;stroke-width:2}</style>\n");
    sb_printf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
    svg_text(&out, PAD, 22, "t", d.title);
    for (int j = 0; j < d.columns; j++)
        svg_text(&out, LEFT + j * cell + cell / 2, TOP - 6, "i", arena_printf(cx->arena, "%d", j));
    for (int pass = 0; pass < 2; pass++)   // marked cells last, so that their outline is not covered
        for (int i = 0; i < d.rows; i++) {
            if (!pass) svg_text(&out, LEFT / 2, TOP + i * HEIGHT + 16, "i", arena_printf(cx->arena, "%d", i));
            for (int j = 0; j < d.columns; j++) {
                DrawCell c = d.cells[i * d.columns + j];
                if (c.marked != (pass == 1)) continue;
                int x = LEFT + j * cell, y = TOP + i * HEIGHT;
                sb_str(&out, "<g>");
                if (c.hint) {
                    sb_str(&out, "<title>");
                    escaped(&out, c.hint);
                    sb_str(&out, "</title>");
                }
                sb_printf(&out, "<rect%s x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>",
                          c.marked ? " class=\"m\"" : "", x, y, cell, HEIGHT,
                          c.colour < 0 ? "#f4f4f4" : palette[c.colour % 16]);
                svg_text(&out, x + cell / 2, y + 16, "c", c.text);
                sb_str(&out, "</g>");
            }
        }
    if (*d.caption) svg_text(&out, LEFT, TOP + d.rows * HEIGHT + 20, "n", d.caption);
    sb_str(&out, "</svg>\n");
    return out.text;
}

char *draw_html(LayoutContext *cx, const Drawing *drawings, int count) {
    StrBuf out;
    sb_init(&out, cx->arena);
    sb_str(&out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>layouts</title>\n"
                 "<style>body{margin:2rem;font-family:system-ui,sans-serif;background:#fafafa;color:#222}"
                 "figure{margin:0 0 2rem;padding:1rem;background:#fff;border:1px solid #e2e2e2;border-radius:8px;"
                 "overflow:auto;width:fit-content;max-width:100%;box-sizing:border-box}</style></head>\n<body>\n");
    for (int i = 0; i < count; i++) {
        sb_str(&out, "<figure>\n");
        sb_str(&out, draw_svg(cx, drawings[i]));
        sb_str(&out, "</figure>\n");
    }
    sb_str(&out, "</body></html>\n");
    return out.text;
}
