// Pictures of layouts: text tables, SVG and HTML.
//
// A picture is a grid of cells, built from a layout by one of three views and rendered by one of three functions.
//   values   cell (i, j) shows the offset
//   owners   of a thread-value layout over a tile: cell (m, n) shows which thread holds it as which value
//   banks    of a layout (row, column) -> element in shared memory: cell shows its bank; conflicting cells are marked
#pragma once
#include "layout/calculator/linear_text.h"
#include "layout/calculator/swizzled.h"
#include "layout/cost.h"
#include "layout/layout.h"

// The machine of the calculator: banks and bytes of every NVIDIA GPU since Kepler.
static const MemoryShape nvidia_memory = {.banks = 32, .bank_bytes = 4, .sector_bytes = 32};

typedef struct DrawCell {
    const char *text;   // "" when nothing is there
    const char *hint;   // shown on hovering; may be NULL
    int colour;         // 0..15 picks from the palette, -1: none
    bool marked;        // a conflict
} DrawCell;

typedef struct Drawing {
    const char *title, *caption;
    int rows, columns;
    int row_step, column_step;   // row i is labelled i * row_step
    DrawCell *cells;             // row by row
} Drawing;

Drawing draw_blank(LayoutContext *cx, const char *title, int64_t rows, int64_t columns);   // at most 2^16 cells

// Rows are mode 0, columns the other modes together (a layout of rank 1 is one row).
Drawing draw_values(LayoutContext *cx, Swizzled a);
// `tv` maps (thread, value) to offsets in the column-major tile of two modes.
Drawing draw_owners(LayoutContext *cx, Cute tv, Tuple tile);
// Of a map to one output the outputs; of any other which thread and register, or which offset, is at each coordinate.
// Columns are the dims after the first together.
Drawing draw_linear(LayoutContext *cx, Linear a);
// A cell is what one access moves where that stays together, else an element. Lanes of one wavefront read
// `access_bytes` each, in consecutive rows of one column.
Drawing draw_banks(LayoutContext *cx, Swizzled a, int element_bits, int access_bytes, MemoryShape memory);

// ---- buffers of a kernel: the beginning of the tile, at most 32 x 32 cells, which shows how the layout repeats ----
// A cell is a run of elements, at most 16 bytes, that stays together. Of more than two dims the last two are drawn;
// a single one is cut into rows.
Drawing draw_shared(LayoutContext *cx, const char *title, const Layout *layout, int element_bits, MemoryShape memory);
// The owners of a distribution (layout/distribution.h) over `shape`; of replicas the first.
Drawing draw_distribution(LayoutContext *cx, const char *title, const Layout *tv, const int64_t *shape);

// ---- rendering ----
// CuTe's print_layout: the layout on a line of its own, then the table. `static_mark` writes integers as CuTe's `_8`.
char *draw_table(LayoutContext *cx, Swizzled a, bool static_mark);
char *draw_text(LayoutContext *cx, Drawing drawing);                      // any drawing as a text table
char *draw_svg(LayoutContext *cx, Drawing drawing);                       // one <svg>
char *draw_svgs(LayoutContext *cx, const Drawing *drawings, int count);   // one <svg>, one below the other
char *draw_html(LayoutContext *cx, const Drawing *drawings, int count);   // a page of several
void draw_html_begin(StrBuf *out, const char *title);                     // pages with more than drawings
void draw_html_end(StrBuf *out);
void draw_escaped(StrBuf *out, const char *text);   // for HTML and SVG
// Which elements of a rows x columns tile the two tilers pick, `X` or `.`: the transcript's coverage map.
char *draw_coverage(LayoutContext *cx, Cute rows, Cute columns, int64_t row_count, int64_t column_count);
