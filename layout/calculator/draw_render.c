// Drawings as text, SVG and HTML.
#include "layout/calculator/draw.h"
#include "support/numbers.h"
#include <stdio.h>
#include <string.h>

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
    for (int j = 0; j < d.columns; j++) sb_printf(out, "  %*d ", width, j * d.column_step);
    sb_char(out, '\n');
    for (int i = 0; i < d.rows; i++) {
        rule(out, d.columns, width + 2);
        sb_printf(out, "%2d  ", i * d.row_step);
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

void draw_escaped(StrBuf *out, const char *text) {
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
    draw_escaped(out, text);
    sb_str(out, "</text>\n");
}

enum { HEIGHT = 24, LEFT = 44, TITLE = 32, LABELS = 24, LETTER = 7, PAD = 12, NOTE = 32 };   // pixels

typedef struct Extent {
    int cell, top, width, height;   // `top`: title and labels
} Extent;

static Extent svg_extent(Drawing d) {
    int longest = 2;
    for (int i = 0; i < d.rows * d.columns; i++) longest = (int)larger(longest, (int)strlen(d.cells[i].text));
    Extent e = {.cell = longest * LETTER + PAD, .top = (*d.title ? TITLE : 0) + LABELS};
    e.height = e.top + d.rows * HEIGHT + (*d.caption ? NOTE : PAD);
    e.width = (int)larger(LEFT + d.columns * e.cell + PAD, (int)strlen(d.title) * 9 + 2 * PAD);
    e.width = (int)larger(e.width, (int)strlen(d.caption) * 8 + LEFT + PAD);
    return e;
}

static void svg_cell(StrBuf *out, DrawCell c, int x, int y, int width) {
    sb_str(out, "<g>");
    if (c.hint) {
        sb_str(out, "<title>");
        draw_escaped(out, c.hint);
        sb_str(out, "</title>");
    }
    sb_printf(out, "<rect%s x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>", c.marked ? " class=\"m\"" : "",
              x, y, width, HEIGHT, c.colour < 0 ? "#f4f4f4" : palette[c.colour % 16]);
    svg_text(out, x + width / 2, y + 16, "c", c.text);
    sb_str(out, "</g>\n");
}

// Marked cells come last, so that nothing covers their outline.
static void svg_drawing(StrBuf *out, Drawing d, int top) {
    Extent e = svg_extent(d);
    int cell = e.cell, cells = top + e.top;
    char label[16];
    if (*d.title) svg_text(out, PAD, top + 22, "t", d.title);
    for (int j = 0; j < d.columns; j++) {
        snprintf(label, sizeof label, "%d", j * d.column_step);
        svg_text(out, LEFT + j * cell + cell / 2, cells - 6, "i", label);
    }
    for (int i = 0; i < d.rows; i++) {
        snprintf(label, sizeof label, "%d", i * d.row_step);
        svg_text(out, LEFT / 2, cells + i * HEIGHT + 16, "i", label);
    }
    for (int marked = 0; marked < 2; marked++)
        for (int i = 0; i < d.rows * d.columns; i++)
            if (d.cells[i].marked == marked)
                svg_cell(out, d.cells[i], LEFT + i % d.columns * cell, cells + i / d.columns * HEIGHT, cell);
    if (*d.caption) svg_text(out, LEFT, cells + d.rows * HEIGHT + 20, "n", d.caption);
}

char *draw_svgs(LayoutContext *cx, const Drawing *drawings, int count) {
    int width = 0, height = 0;
    for (int i = 0; i < count; i++) {
        Extent e = svg_extent(drawings[i]);
        width = (int)larger(width, e.width);
        height += e.height;
    }
    StrBuf out;
    sb_init(&out, cx->arena);
    sb_printf(&out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
              "style=\"min-width:%dpx\">\n",   // on a page it may shrink, but stay readable
              width, height, width, height, width * 3 / 5);
    sb_str(&out, "<style>text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
                 "text-anchor:middle;fill:#222}.t{font-size:14px;font-weight:600;text-anchor:start}"
                 ".i{fill:#888;font-size:11px}.n{text-anchor:start;fill:#555}"
                 "rect{stroke:#fff;stroke-width:1}.m{stroke:#d01c1c;stroke-width:2}</style>\n");
    sb_printf(&out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
    int top = 0;
    for (int i = 0; i < count; i++) {
        svg_drawing(&out, drawings[i], top);
        top += svg_extent(drawings[i]).height;
    }
    sb_str(&out, "</svg>\n");
    return out.text;
}

char *draw_svg(LayoutContext *cx, Drawing d) {
    return draw_svgs(cx, &d, 1);
}

// ---- HTML ----

void draw_html_begin(StrBuf *out, const char *title) {
    sb_str(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    draw_escaped(out, title);
    sb_str(out, "</title>\n<style>body{margin:2rem;font-family:system-ui,sans-serif;background:#fafafa;color:#222}"
                "h1 small,h2 small{font-weight:400;color:#666;margin-left:.6em}h2{margin-top:2.5rem}"
                "code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:.9em}"
                "p{margin:.4rem 0;max-width:60rem}"
                "table{border-collapse:collapse;margin:.6rem 0 1rem}th{text-align:left;font-weight:600;color:#555}"
                "th,td{padding:.2rem 1.2rem .2rem 0;border-bottom:1px solid #e2e2e2;font-size:.9rem}"
                "td.bad{color:#d01c1c;font-weight:600}"
                "figure{margin:0 0 2rem;padding:1rem;background:#fff;border:1px solid #e2e2e2;border-radius:8px;"
                "overflow:auto;width:fit-content;max-width:100%;box-sizing:border-box}"
                "svg{display:block;max-width:100%;height:auto}</style></head>\n<body>\n");
}

void draw_html_end(StrBuf *out) {
    sb_str(out, "</body></html>\n");
}

char *draw_html(LayoutContext *cx, const Drawing *drawings, int count) {
    StrBuf out;
    sb_init(&out, cx->arena);
    draw_html_begin(&out, "layouts");
    for (int i = 0; i < count; i++) {
        sb_str(&out, "<figure>\n");
        sb_str(&out, draw_svg(cx, drawings[i]));
        sb_str(&out, "</figure>\n");
    }
    draw_html_end(&out);
    return out.text;
}
