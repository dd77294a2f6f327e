// Pictures of layouts: text tables, SVG and HTML.
//
// A picture is a grid of cells, built from a layout by one of three views and rendered by one of three functions.
//   values   cell (i, j) shows the offset
//   owners   of a thread-value layout over a tile: cell (m, n) shows which thread holds it as which value
//   banks    of a layout (row, column) -> element in shared memory: cell shows its bank; conflicting cells are marked
#pragma once
#include "layout/cost.h"
#include "layout/swizzle.h"

typedef struct DrawCell {
    const char *text;   // "" when nothing is there
    const char *hint;   // shown on hovering; may be NULL
    int colour;         // 0..15 picks from the palette, -1: none
    bool marked;        // a conflict
} DrawCell;

typedef struct Drawing {
    const char *title, *caption;
    int rows, columns;
    DrawCell *cells;   // row by row
} Drawing;

// Rows are mode 0, columns the other modes together (a layout of rank 1 is one row). At most 2^16 cells.
Drawing draw_values(LayoutContext *cx, Swizzled a);
// `tv` maps (thread, value) to offsets in the column-major tile of two modes.
Drawing draw_owners(LayoutContext *cx, Cute tv, Tuple tile);
// Lanes of one wavefront read `access_bytes` each, in consecutive rows of one column.
Drawing draw_banks(LayoutContext *cx, Swizzled a, int element_bits, int access_bytes, MemoryShape memory);

// CuTe's print_layout: the layout on a line of its own, then the table. `static_mark` writes integers as CuTe's `_8`.
char *draw_table(LayoutContext *cx, Swizzled a, bool static_mark);
char *draw_text(LayoutContext *cx, Drawing drawing);                      // any drawing as a text table
char *draw_svg(LayoutContext *cx, Drawing drawing);                       // one <svg>
char *draw_html(LayoutContext *cx, const Drawing *drawings, int count);   // a page of several
// Which elements of a rows x columns tile the two tilers pick, `X` or `.`: the transcript's coverage map.
char *draw_coverage(LayoutContext *cx, Cute rows, Cute columns, int64_t row_count, int64_t column_count);
