// Im2col views: a tensor [N, (D, H,) W, C] as the matrix that a convolution multiplies.
//
// A view has a row for each position of the windows in each image, an index for each window's tap, and the channels:
//
//     im2col(X, window(P, 3, stride = 2, padding = 1), window(Q, 3, padding = 1))[m, r, s, c]
//         = X[m / (P * Q), m / Q % P * 2 + r - 1, m % Q + s - 1, c]
//
// It is a buffer without storage of its own (alias_of is the tensor), which regions name like any other. Threads read
// the tensor at im2col_indices; TMA has maps for it (tensormap.c): what both do follows from the windows.
#include "ir/build.h"
#include "ir/query.h"

Buf *im2col_new(Arena *arena, Buf *tensor, int count, const Window *windows, Span loc) {
    int channels = tensor->rank - 1;
    Expr *shape[TENSOR_MAP_RANK], **of = argument_dims(arena, tensor, tensor->shape), *rows = of[0];
    EXPECT(arena_failure(arena), count >= 1 && count <= MOST_WINDOWS && tensor->rank == count + 2,
           "%d windows of a tensor of rank %d", count, tensor->rank);
    Im2col *im2col = NEW(arena, Im2col);
    im2col->count = count;
    for (int i = 0; i < count; i++) {
        im2col->windows[i] = windows[i];
        rows = e_mul(arena, rows, windows[i].positions);
        shape[i + 1] = e_int(arena, windows[i].taps);
    }
    shape[0] = rows;
    shape[channels] = of[channels];
    for (int d = 0; d < tensor->rank; d++) im2col->dims[moved_dim(tensor->moved, tensor->rank, d)] = d;
    Buf *view = buf_new(arena, tensor->name, SCOPE_GLOBAL, tensor->type, tensor->rank, shape, loc);
    view->mode = tensor->mode;
    view->alias_of = tensor;
    view->im2col = im2col;
    return view;
}

// The position of a window in the row's image, and its first tap's place in the tensor; `row` loses its digit.
static Expr *first_tap(Arena *arena, const Window *window, Expr **row) {
    Expr *position = e_mod(arena, *row, window->positions);
    *row = e_div(arena, *row, window->positions);
    return e_plus(arena, e_times(arena, position, window->stride), -window->padding);
}

void im2col_first(Arena *arena, const Buf *view, Expr *row, Expr **out) {
    const Im2col *im2col = view->im2col;
    for (int i = im2col->count - 1; i >= 0; i--) out[i + 1] = first_tap(arena, &im2col->windows[i], &row);
    out[0] = row;
}

Expr **im2col_indices(Arena *arena, const Buf *view, Expr *const *at) {
    const Im2col *im2col = view->im2col;
    Expr *places[MOST_WINDOWS + 2], **out = NEW_ARRAY(arena, Expr *, view->rank);
    im2col_first(arena, view, at[0], places);
    for (int i = 0; i < im2col->count; i++)
        places[i + 1] = e_add(arena, places[i + 1], e_times(arena, at[i + 1], im2col->windows[i].dilation));
    places[view->rank - 1] = at[view->rank - 1];
    for (int d = 0; d < view->rank; d++) out[im2col->dims[d]] = places[d];
    return out;
}

static bool same_window(const Window *a, const Window *b) {
    return expr_equal(a->positions, b->positions) && a->taps == b->taps && a->stride == b->stride &&
           a->padding == b->padding && a->dilation == b->dilation;
}

bool im2col_equal(const Buf *a, const Buf *b) {
    if (!a || !b || a->alias_of != b->alias_of || a->im2col->count != b->im2col->count) return a == b;
    for (int i = 0; i < a->im2col->count; i++)
        if (!same_window(&a->im2col->windows[i], &b->im2col->windows[i])) return false;
    return true;
}

static bool covers(const Window *window, const Expr *extent) {
    return window->taps == 1 && window->stride == 1 && window->padding == 0 && expr_equal(window->positions, extent);
}

bool im2col_is_merged(const Buf *view) {
    const Im2col *im2col = view->im2col;
    bool merged = !view->alias_of->strides;
    for (int i = 0; i < im2col->count; i++)
        merged &= covers(&im2col->windows[i], view->alias_of->shape[im2col->dims[i + 1]]);
    return merged;
}

const char *im2col_problem(const Buf *view) {
    for (int i = 0; i < view->im2col->count; i++) {
        const Window *window = &view->im2col->windows[i];
        if (!expr_known_at_launch(window->positions)) return "has positions that no launch knows";
        if (window->taps < 1 || window->stride < 1 || window->dilation < 1)
            return "has a window without taps, stride or dilation";
    }
    return NULL;
}

const char *im2col_region_problem(const Region *region) {
    int last = region->buf->rank - 1;
    for (int d = 1; d < last && d < region->count; d++)
        if (region->dims[d].extent) return "takes one tap of each window";
    bool complete = region->count == region->buf->rank;
    return complete && (!region->dims[last].extent || region->transposed) ? "ends with its channels" : NULL;
}
