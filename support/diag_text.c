// Diagnostics as text for people:
//
//     gemm.tile:4:10: error[T0201]: unknown name 'foo'
//       |
//     4 |     copy(foo, As);
//       |     ---- ^^^
//       |     |
//       |     in this call
//       = note: did you mean 'fob'?
//       = help: declare it, or check the spelling
//
// Lines with a mark are shown in order of their numbers, `...` stands for lines left out. On one line several marks may
// stand: the text of the rightmost follows its underline, each other text hangs below its mark on a line of its own.
//
// Columns of spans are bytes; what is printed is cells. A line is first laid out (`Cells`): every byte gets the cell in
// which its character begins, tabs become spaces, wide characters take two cells, what cannot be printed becomes
// U+FFFD. A line longer than fits is cut to a window around its first mark.
#include "support/diag_impl.h"
#include "support/utf8.h"
#include <limits.h>
#include <string.h>

enum { TAB = 4, WINDOW = 160, WINDOW_BEFORE = 60, MOST_MARKS = 8 };

typedef struct Mark {
    Span span;
    const char *text;   // "" for none
    bool primary;
    int from, to;   // cells, once laid out
} Mark;

typedef VEC(Mark) Marks;

typedef struct Cells {
    StrBuf text;   // what is printed
    int *cell;     // cell[i]: where byte i of the line begins; one more entry for the end
} Cells;

typedef struct Writer {
    const DiagSink *sink;
    StrBuf *out;
    bool color;
    int gutter;   // digits of the largest line number
} Writer;

#define BOLD "\033[1m"
#define BLUE "\033[1;34m"
#define RESET "\033[0m"

static const char *severity_color(Severity severity) {
    return severity == SEVERITY_ERROR ? "\033[1;31m" : severity == SEVERITY_WARNING ? "\033[1;33m" : "\033[1;36m";
}

static void paint(Writer *w, const char *color) {
    if (w->color) sb_str(w->out, color);
}

static void repeat(StrBuf *out, char c, int count) {
    for (int i = 0; i < count; i++) sb_char(out, c);
}

// Cells of a code point on a terminal: 0, 1 or 2.
static int width(uint32_t point) {
    static const struct {
        uint32_t first, last;
        int width;
    } ranges[] = {
        {0x0300, 0x036f, 0}, {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},   {0x20d0, 0x20ff, 0}, {0x2e80, 0xa4cf, 2},
        {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2}, {0xff00, 0xff60, 2},
        {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
    };
    for (int i = 0; i < COUNT_OF(ranges); i++)
        if (point >= ranges[i].first && point <= ranges[i].last) return ranges[i].width;
    return 1;
}

// Lays out the bytes [0, length) of a line; `from` and `to` bound the cells whose text is kept.
static Cells lay_out(Arena *arena, const char *line, size_t length, int from, int to) {
    Cells cells = {.cell = NEW_ARRAY(arena, int, length + 1)};
    sb_init(&cells.text, arena);
    int at = 0;
    for (size_t i = 0; i < length;) {
        uint32_t point = 0xfffd;
        int bytes = utf8_decode(line + i, length - i, &point);
        bool printable = bytes && point >= 0x20 && point != 0x7f && !(point >= 0x80 && point < 0xa0);
        // Marks that turn the direction of writing would let a source show what it does not say.
        if ((point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069)) printable = false;
        int cells_taken = point == '\t' ? TAB - at % TAB : printable ? width(point) : 1;
        int taken = bytes ? bytes : 1;
        for (int k = 0; k < taken; k++) cells.cell[i + (size_t)k] = at;
        if (at >= from && at + cells_taken <= to) {
            if (point == '\t') repeat(&cells.text, ' ', cells_taken);
            else if (printable) sb_bytes(&cells.text, line + i, (size_t)bytes);
            else sb_str(&cells.text, "\xef\xbf\xbd");
        }
        at += cells_taken;
        i += (size_t)taken;
    }
    cells.cell[length] = at;
    return cells;
}

// A name or message: what cannot be printed in it becomes U+FFFD, a line's end too.
static const char *printable(Arena *arena, const char *text) {
    const char *c = text;
    while (*c >= ' ' && *c <= '~') c++;
    if (!*c) return text;
    Cells cells = lay_out(arena, text, strlen(text), 0, INT_MAX);
    return sb_text(&cells.text);
}

static int cell_of(const Cells *cells, size_t length, int column) {
    if (column < 1) column = 1;
    size_t byte = (size_t)column - 1;
    return byte <= length ? cells->cell[byte] : cells->cell[length];
}

// Where the marks of a line stand, in cells. A span over several lines is underlined to the end of its first.
static void place_marks(Marks *marks, const Cells *cells, size_t length) {
    for (int i = 0; i < marks->count; i++) {
        Mark *mark = &marks->items[i];
        mark->from = cell_of(cells, length, mark->span.column);
        bool one_line = mark->span.end_line <= mark->span.line;
        mark->to = one_line ? cell_of(cells, length, mark->span.end_column) : cells->cell[length];
        if (mark->to <= mark->from) mark->to = mark->from + 1;
    }
    for (int i = 1; i < marks->count; i++)   // by insertion: stable, and there are few
        for (int j = i; j > 0 && marks->items[j].from < marks->items[j - 1].from; j--) {
            Mark swap = marks->items[j];
            marks->items[j] = marks->items[j - 1];
            marks->items[j - 1] = swap;
        }
}

static void gutter(Writer *w, int line) {
    paint(w, BLUE);
    if (line) sb_printf(w->out, "%*d |", w->gutter, line);
    else sb_printf(w->out, "%*s |", w->gutter, "");
    paint(w, RESET);
}

static void end_line(Writer *w) {
    StrBuf *out = w->out;
    while (out->length && out->text[out->length - 1] == ' ') out->text[--out->length] = 0;
    sb_char(out, '\n');
}

static void mark_color(Writer *w, const Mark *mark, Severity severity) {
    paint(w, mark->primary ? severity_color(severity) : BLUE);
}

// The line under the source: carets and dashes, where two overlap the primary one wins; then the rightmost text.
static void underline(Writer *w, const Marks *marks, Severity severity, int from, int indent) {
    gutter(w, 0);
    repeat(w->out, ' ', indent);
    int to = 0;
    for (int i = 0; i < marks->count; i++)
        if (marks->items[i].to > to) to = marks->items[i].to;
    const Mark *painted = NULL;
    for (int cell = from; cell < to; cell++) {
        const Mark *here = NULL;
        for (int i = 0; i < marks->count; i++) {
            const Mark *mark = &marks->items[i];
            if (cell >= mark->from && cell < mark->to && (!here || mark->primary)) here = mark;
        }
        if (w->color && here != painted) {
            paint(w, RESET);
            if (here) mark_color(w, here, severity);
        }
        painted = here;
        sb_char(w->out, here ? (here->primary ? '^' : '-') : ' ');
    }
    const Mark *last = &marks->items[marks->count - 1];
    if (*last->text) {
        if (painted != last) mark_color(w, last, severity);
        sb_printf(w->out, " %s", printable(w->out->arena, last->text));
    }
    paint(w, RESET);
    end_line(w);
}

// One line with `|` under each mark before `count` that has a text; with `text`, the last one's text instead of its
// bar.
static void hang(Writer *w, const Marks *marks, int count, bool text, Severity severity, int from, int indent) {
    gutter(w, 0);
    repeat(w->out, ' ', indent);
    int cell = from;
    for (int i = 0; i < count; i++) {
        const Mark *mark = &marks->items[i];
        bool last = i == count - 1;
        if (!*mark->text || mark->from < cell) continue;
        repeat(w->out, ' ', mark->from - cell);
        mark_color(w, mark, severity);
        sb_str(w->out, last && text ? printable(w->out->arena, mark->text) : "|");
        paint(w, RESET);
        cell = mark->from + 1;
    }
    end_line(w);
}

// Marks beyond a window that ends at cell `to` stand at its end, under the `...`.
static void clip_marks(Marks *marks, int to) {
    for (int i = 0; i < marks->count; i++) {
        Mark *mark = &marks->items[i];
        if (mark->from > to) mark->from = to;
        if (mark->to > to + 1) mark->to = to + 1;
    }
}

// The source line with everything that hangs under it.
static void excerpt_line(Writer *w, Marks *marks, Severity severity) {
    Arena *arena = w->out->arena;
    Span span = marks->items[0].span;
    const char *line;
    size_t length;
    if (!diag_line(w->sink, span.file, span.line, &line, &length)) return;

    Cells whole = lay_out(arena, line, length, 0, 0);
    place_marks(marks, &whole, length);
    int total = whole.cell[length], from = 0, to = total;
    if (total > WINDOW) {
        int first = marks->items[0].from;
        from = first > WINDOW_BEFORE ? first - WINDOW_BEFORE : 0;
        to = from + WINDOW < total ? from + WINDOW : total;
        clip_marks(marks, to);
    }
    Cells window = lay_out(arena, line, length, from, to);
    gutter(w, span.line);
    sb_str(w->out, from > 0 ? " ..." : " ");
    sb_str(w->out, sb_text(&window.text));
    if (to < total) sb_str(w->out, "...");
    end_line(w);

    int indent = from > 0 ? 4 : 1;
    underline(w, marks, severity, from, indent);
    for (int count = marks->count - 1; count > 0; count--) {
        if (!*marks->items[count - 1].text) continue;
        hang(w, marks, count, false, severity, from, indent);
        hang(w, marks, count, true, severity, from, indent);
    }
}

static bool same_line(Span a, Span b) {
    return a.file == b.file && a.line == b.line;
}

// The mark to show next: the primary file's lines first, in order, then other files as they come. `shown` marks are
// those with primary or not already printed.
static int next_mark(const Marks *marks, const bool *shown, int file) {
    int next = -1;
    for (int i = 0; i < marks->count; i++) {
        if (shown[i]) continue;
        Span here = marks->items[i].span;
        if (next < 0) next = i;
        Span best = marks->items[next].span;
        bool better_file = here.file == file && best.file != file;
        if (better_file || (here.file == best.file && here.line < best.line)) next = i;
    }
    return next;
}

static Marks marks_of(const Diag *d, Arena *arena) {
    Marks marks = {0};
    Mark primary = {.span = d->span, .text = "", .primary = true};
    if (d->span.line) vec_push(arena, &marks, primary);
    for (int i = 0; i < d->labels.count && marks.count < MOST_MARKS; i++) {
        DiagLabel label = d->labels.items[i];
        if (!label.span.line) continue;
        bool on_primary = d->span.line && memcmp(&label.span, &d->span, sizeof label.span) == 0;
        if (on_primary && !*marks.items[0].text) {
            marks.items[0].text = label.text;   // a label on the very place of the diagnostic speaks for the caret
            continue;
        }
        Mark mark = {.span = label.span, .text = label.text};
        vec_push(arena, &marks, mark);
    }
    return marks;
}

static int digits(int number) {
    int count = 1;
    for (; number >= 10; number /= 10) count++;
    return count;
}

static void excerpts(Writer *w, const Diag *d) {
    Arena *arena = w->out->arena;
    Marks marks = marks_of(d, arena);
    bool *shown = NEW_ARRAY(arena, bool, marks.count + 1);
    for (int i = 0; i < marks.count; i++)
        if (digits(marks.items[i].span.line) > w->gutter) w->gutter = digits(marks.items[i].span.line);

    Span before = {.file = d->span.line ? d->span.file : -1};
    for (int next; (next = next_mark(&marks, shown, d->span.file)) >= 0;) {
        Span span = marks.items[next].span;
        Marks group = {0};
        for (int i = next; i < marks.count; i++) {
            if (shown[i] || !same_line(marks.items[i].span, span)) continue;
            shown[i] = true;
            vec_push(arena, &group, marks.items[i]);
        }
        if (span.file != before.file) {
            sb_printf(w->out, "%*s::: %s:%d:%d\n", w->gutter + 1, "",
                      printable(arena, diag_source_name(w->sink, span.file)), span.line,
                      diag_column(w->sink, span.file, span.line, span.column));
            before.line = 0;
        }
        if (!before.line) gutter(w, 0), end_line(w);
        else if (span.line > before.line + 1) sb_str(w->out, "...\n");
        excerpt_line(w, &group, d->row->severity);
        before = span;
    }
}

static void note(Writer *w, const char *kind, const char *text) {
    paint(w, BLUE);
    sb_printf(w->out, "%*s = ", w->gutter, "");
    paint(w, RESET);
    paint(w, BOLD);
    sb_printf(w->out, "%s: ", kind);
    paint(w, RESET);
    int indent = w->gutter + 3 + (int)strlen(kind) + 2;
    for (const char *at = text; *at;) {   // a note of several lines stays in its column
        size_t length = strcspn(at, "\n");
        sb_str(w->out, printable(w->out->arena, arena_strndup(w->out->arena, at, length)));
        at += length;
        if (*at == '\n' && *++at) {
            sb_char(w->out, '\n');
            repeat(w->out, ' ', indent);
        }
    }
    end_line(w);
}

void diag_render_text(const DiagSink *sink, const Diag *d, bool color, StrBuf *out) {
    Writer w = {.sink = sink, .out = out, .color = color, .gutter = 1};
    paint(&w, BOLD);
    if (d->span.line)
        sb_printf(out, "%s:%d:%d: ", printable(out->arena, diag_source_name(sink, d->span.file)), d->span.line,
                  diag_column(sink, d->span.file, d->span.line, d->span.column));
    else sb_str(out, "tilec: ");
    paint(&w, severity_color(d->row->severity));
    sb_printf(out, "%s[T%04d]", diag_severity_name(d->row->severity), (int)d->row->code);
    paint(&w, RESET);
    paint(&w, BOLD);
    sb_printf(out, ": %s", printable(out->arena, d->message));
    paint(&w, RESET);
    sb_char(out, '\n');
    excerpts(&w, d);
    for (int i = 0; i < d->notes.count; i++) note(&w, "note", d->notes.items[i]);
    if (*d->row->remedy) note(&w, "help", d->row->remedy);
}
