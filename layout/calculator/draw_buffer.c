// Pictures of the layouts that the passes chose.
#include "layout/calculator/draw.h"
#include "layout/distribution.h"
#include "support/numbers.h"

enum { MOST_ROWS = 32, MOST_NARROW = 32, MOST_WIDE = 16 };   // of cells

// The two dims that are drawn. A single dim is cut into rows of `cut` elements (0: it is one row).
typedef struct Plane {
    int rank;
    int64_t rows, columns, cut;
} Plane;

static Plane plane_of(int rank, const int64_t *shape, int64_t row) {
    Plane plane = {.rank = rank, .rows = 1, .columns = shape[rank - 1]};
    if (rank > 1) plane.rows = shape[rank - 2];
    else if (plane.columns > row && plane.columns % row == 0) plane.cut = row;
    if (plane.cut) {
        plane.rows = plane.columns / plane.cut;
        plane.columns = plane.cut;
    }
    return plane;
}

static void at_plane(const Plane *plane, int64_t row, int64_t column, int64_t *coordinate) {
    for (int d = 0; d < plane->rank; d++) coordinate[d] = 0;
    coordinate[plane->rank - 1] = plane->cut ? row * plane->cut + column : column;
    if (plane->rank > 1) coordinate[plane->rank - 2] = row;
}

// An empty drawing of cells of `run` elements; *more says what is left out.
static Drawing window(LayoutContext *cx, const char *title, const Plane *plane, int64_t rows, int64_t columns,
                      int64_t run, const char **more) {
    Drawing d = draw_blank(cx, title, rows, columns);
    d.row_step = plane->cut ? (int)plane->cut : 1;
    d.column_step = (int)run;
    *more = "";
    if (rows == plane->rows && columns * run == plane->columns) return d;
    long long shown = rows * columns * run, all = plane->rows * plane->columns;
    *more = plane->cut ? arena_printf(cx->arena, "; the first %lld of %lld", shown, all)
                       : arena_printf(cx->arena, "; the first %lld x %lld of %lld x %lld", (long long)rows,
                                      (long long)(columns * run), (long long)plane->rows, (long long)plane->columns);
    return d;
}

static const char *span_text(LayoutContext *cx, const char *before, int64_t first, int64_t count) {
    if (count == 1) return arena_printf(cx->arena, "%s%lld", before, (long long)first);
    return arena_printf(cx->arena, "%s%lld-%lld", before, (long long)first, (long long)(first + count - 1));
}

// ---- shared memory ----

static int64_t place_of(const Layout *layout, const Plane *plane, int64_t row, int64_t column) {
    int64_t coordinate[LAYOUT_MAX_RANK];
    at_plane(plane, row, column, coordinate);
    return layout_linear(layout, coordinate);
}

static bool stays_contiguous(const Layout *layout, const Plane *plane, int64_t run) {
    for (int64_t row = 0; row < plane->rows; row++)
        for (int64_t column = 0; column < plane->columns; column++) {
            int64_t first = place_of(layout, plane, row, column - column % run);
            if (first % run || place_of(layout, plane, row, column) != first + column % run) return false;
        }
    return true;
}

static int64_t bank_of(const Layout *layout, const Plane *plane, int64_t row, int64_t column, int element_bits,
                       MemoryShape memory) {
    return place_of(layout, plane, row, column) * element_bits / 8 / memory.bank_bytes % memory.banks;
}

// The fewest rows, of 8, 16, ..., after which the banks repeat.
static int64_t rows_to_draw(const Layout *layout, const Plane *plane, int element_bits, MemoryShape memory) {
    for (int64_t period = 8; period < smaller(plane->rows, MOST_ROWS); period *= 2) {
        bool repeats = true;
        for (int64_t row = period; row < plane->rows && repeats; row++)
            for (int64_t column = 0; column < plane->columns && repeats; column++)
                repeats = bank_of(layout, plane, row, column, element_bits, memory) ==
                          bank_of(layout, plane, row - period, column, element_bits, memory);
        if (repeats) return period;
    }
    return smaller(plane->rows, MOST_ROWS);
}

Drawing draw_shared(LayoutContext *cx, const char *title, const Layout *layout, int element_bits, MemoryShape memory) {
    enum { WIDEST_BITS = 128 };
    int64_t shape[LAYOUT_MAX_RANK] = {1}, run = 1;
    for (int i = 0; i < layout->rank_in; i++) shape[i] = layout_extent_in(layout, i);
    Plane plane = plane_of(layout->rank_in, shape, MOST_NARROW);
    while (2 * run * element_bits <= WIDEST_BITS && plane.columns % (2 * run) == 0 &&
           stays_contiguous(layout, &plane, 2 * run))
        run *= 2;
    const char *more;
    Drawing d = window(cx, title, &plane, rows_to_draw(layout, &plane, element_bits, memory),
                       smaller(plane.columns / run, run == 1 ? MOST_NARROW : MOST_WIDE), run, &more);
    int64_t bytes = run * element_bits / 8, banks = bytes > memory.bank_bytes ? bytes / memory.bank_bytes : 1;
    for (int i = 0; i < d.rows * d.columns; i++) {
        int64_t row = i / d.columns, column = i % d.columns * run;
        int64_t byte = place_of(layout, &plane, row, column) * element_bits / 8;
        int64_t bank = bank_of(layout, &plane, row, column, element_bits, memory);
        const char *hint = arena_printf(cx->arena, "row %lld, %s: %s", (long long)(row * d.row_step),
                                        span_text(cx, "column ", column, run), span_text(cx, "byte ", byte, bytes));
        int colours = (int)smaller(memory.banks / banks, 16);
        d.cells[i] = (DrawCell){span_text(cx, "", bank, banks), hint, (int)(bank * colours / memory.banks), false};
    }
    const char *unit = run == 1 ? "one element" : arena_printf(cx->arena, "%lld elements", (long long)run);
    d.caption = arena_printf(cx->arena, "banks, a cell is %s%s", unit, more);
    return d;
}

// ---- fragments ----

// Consecutive values that are consecutive columns.
static int64_t run_of_values(const Layout *tv, int64_t columns) {
    enum { WIDEST = 8 };
    const LayoutInput *values = &tv->in[TV_VALUE];
    if (!values->count || values->modes[0].stride != 1 || values->modes[0].out != tv->rank_out - 1) return 1;
    int64_t run = 1;
    while (run < WIDEST && values->modes[0].extent % (2 * run) == 0 && columns % (2 * run) == 0) run *= 2;
    return run;
}

// The cell of the place that (thread, value) has; NULL outside the drawing.
static DrawCell *cell_of(const Drawing *d, const Plane *plane, const Layout *tv, int64_t thread, int64_t value) {
    int64_t at[LAYOUT_MAX_RANK];
    layout_eval(tv, (int64_t[]){thread, value}, at);
    for (int i = 0; i < plane->rank - 2; i++)
        if (at[i]) return NULL;
    int64_t column = at[plane->rank - 1], row = plane->rank > 1 ? at[plane->rank - 2] : 0;
    if (plane->cut) row = column / plane->cut;
    if (plane->cut) column %= plane->cut;
    column /= d->column_step;
    return row < d->rows && column < d->columns ? &d->cells[row * d->columns + column] : NULL;
}

Drawing draw_distribution(LayoutContext *cx, const char *title, const Layout *tv, const int64_t *shape) {
    enum { LARGEST = 1 << 22 };
    int64_t threads = tv_threads(tv), values = tv_values(tv), run = run_of_values(tv, shape[tv->rank_out - 1]);
    Plane plane = plane_of(tv->rank_out, shape, run * MOST_WIDE);
    if (threads * values > LARGEST) layout_refuse(cx, "too large to draw");
    const char *more;
    Drawing d =
        window(cx, title, &plane, smaller(plane.rows, MOST_ROWS), smaller(plane.columns / run, MOST_WIDE), run, &more);
    for (int64_t value = 0; value < values && !cx->failed; value += run)
        for (int64_t thread = 0; thread < threads; thread++) {
            DrawCell *cell = cell_of(&d, &plane, tv, thread, value);
            if (!cell || *cell->text) continue;   // of replicas the first holder is shown
            cell->text = arena_printf(cx->arena, "T%lld %s", (long long)thread, span_text(cx, "V", value, run));
            cell->hint =
                arena_printf(cx->arena, "thread %lld, %s", (long long)thread, span_text(cx, "value ", value, run));
            cell->colour = (int)(thread % 16);
        }
    const char *copies = "";
    if (tv_replicas(tv) > 1)
        copies =
            arena_printf(cx->arena, "; %lld threads hold the same, the first is shown", (long long)tv_replicas(tv));
    d.caption = arena_printf(cx->arena, "%lld threads, %lld value%s each%s%s", (long long)threads, (long long)values,
                             values == 1 ? "" : "s", copies, more);
    return d;
}
