// Regions: which part of a buffer an operand is, and whether the shapes of a tile op agree.
//
// As written, an operand is a bare name, or indices of three kinds: plain `i`, `a +: n`, and `:`; missing trailing ones
// mean `:`. An operand whose extents can be read off by itself (a bare name, or some `:` or `+:`) drops its plain dims.
// The others are starts only: they take the extents of the other side, aligned right.
//
//     copy(Q[b, h, m * BM, 0], Qs)       Qs: [128, 64]  ->  Q[b, h, m * 128 +: 128, 0 +: 64]
//     copy(x[row, :], v)                 the row dim is dropped, the other is whole
//
// An extent that is not constant clips, and so does `clip(n)`; its tile is then the other side's.
//
// A view (views.c) is written as a buffer is. A part of it becomes a region of its buffer where one says that.
#include "frontend/sema.h"
#include "ir/print.h"
#include "support/strbuf.h"
#include <string.h>

// ---- buffers by name ----

static void report_no_buffer(Sema *s, const Node *node) {
    Diag *d = diag(s->sink, node->span, T_NOT_BUFFER, "this");
    if (s->context == IN_PROGRAM && (node->kind == N_INDEX || node->kind == N_DOT))
        diag_note(d,
                  "a program passes whole tensors: the kernel takes what it needs of them, by scalars that say where");
    else note_foreign(s, d, FOREIGN_INDEXED, end_of(node->span));
}

Buf *buffer_named(Sema *s, const Node *node) {
    if (node->kind != N_NAME) {
        report_no_buffer(s, node);
        return NULL;
    }
    Symbol *symbol = find_or_report(s, node);
    if (!symbol) return NULL;
    if (symbol->kind == SYMBOL_BUF) return symbol->buf;
    if (symbol->kind == SYMBOL_VIEW && symbol->view->declared) return symbol->view->buf;
    if (symbol->kind == SYMBOL_VALUE && is_poison(symbol->value)) return NULL;   // its declaration was reported
    const char *what = symbol->kind == SYMBOL_VIEW ? "a view, here," : arena_printf(s->arena, "'%s'", node->text);
    Diag *d = diag(s->sink, node->span, T_NOT_BUFFER, what);
    diag_label(d, symbol->span, "declared here");
    return NULL;
}

// x.shape[0] is written as the extent.
static const char *extent_meant(Sema *s, const Node *node) {
    const Node *base = node->kids[0];
    bool shape = base->kind == N_DOT && (!strcmp(base->text, "shape") || !strcmp(base->text, "size"));
    if (!shape || base->kids[0]->kind != N_NAME || node->count != 2 || node->kids[1]->kind != N_INT) return NULL;
    Symbol *symbol = find(s, base->kids[0]->text);
    uint64_t dim = node->kids[1]->integer;
    bool buffer = symbol && symbol->kind == SYMBOL_BUF, view = symbol && symbol->kind == SYMBOL_VIEW;
    uint64_t rank = (uint64_t)(buffer ? symbol->buf->rank : view ? symbol->view->rank : 0);
    if (dim >= rank) return NULL;
    return expr_text(s->arena, buffer ? symbol->buf->shape[dim] : symbol->view->shape[dim]);
}

static bool is_regs(const Node *node) {
    return node->kind == N_CALL && strcmp(node->text, "regs") == 0;
}

// The buffer in front of the brackets; *regs: it is `regs(x)`, slots of a fragment.
static Buf *indexed_buffer(Sema *s, const Node *node, bool *regs) {
    const Node *base = node->kids[0];
    *regs = is_regs(base);
    if (*regs && base->count != 1) {
        diag(s->sink, base->span, T_ARGUMENTS, "regs");
        return NULL;
    }
    const char *extent = extent_meant(s, node);
    if (extent) {
        Diag *d = diag(s->sink, node->span, T_NOT_BUFFER, "this");
        diag_note(d, "extents have names: write %s", extent);
        diag_fix(d, node->span, extent);
        return NULL;
    }
    Buf *buf = buffer_named(s, *regs ? base->kids[0] : base);
    if (!buf) return NULL;
    if (*regs && (buf->scope != SCOPE_FRAGMENT || !s->in_thread)) {
        diag(s->sink, node->span, T_REGS, buf->name);
        return NULL;
    }
    return buf;
}

// Behind the brackets.
static bool check_fragment(Sema *s, const Buf *buf, bool regs, Span span) {
    if (regs || buf->scope != SCOPE_FRAGMENT || !s->in_thread) return true;
    diag(s->sink, span, T_FRAGMENT_IN_THREAD, buf->name);
    return false;
}

static Expr *substituted(Sema *s, Expr *e) {
    return e ? substitute_choices(s, e) : NULL;
}

Expr *known_extent(Sema *s, const Buf *buf, int dim) {
    return substituted(s, buf->shape[dim]);
}

// What is written in front of brackets: a buffer, or (`view` not NULL) a view of it.
typedef struct Base {
    Buf *buf;
    const View *view;
    const char *name;
    bool regs;   // regs(x): slots of a fragment
} Base;

static bool base_of(Sema *s, const Node *node, const Node *base, Base *out) {
    *out = (Base){0};
    if (is_view(s, base)) {
        out->view = view_named(s, base);
        out->buf = out->view ? out->view->buf : NULL;
        if (out->view && out->view->whole) out->view = NULL;
    } else {
        out->buf = base == node ? buffer_named(s, node) : indexed_buffer(s, node, &out->regs);
    }
    out->name = !out->buf || base->kind == N_NAME ? base->text : out->buf->name;
    return out->buf && (base == node || check_fragment(s, out->buf, out->regs, node->span));
}

static int rank_of(const Base *base) {
    return base->view ? base->view->rank : base->regs ? 1 : base->buf->rank;
}

static Expr *extent_in(Sema *s, const Base *base, int dim) {
    return base->view ? base->view->shape[dim] : known_extent(s, base->buf, dim);
}

static int64_t extent_or_unknown(Sema *s, const Base *base, int dim) {
    int64_t extent;
    return expr_const(extent_in(s, base, dim), &extent) ? extent : -1;
}

// ---- elements ----
bool is_element(const Node *node) {
    if (node->kind != N_INDEX) return false;
    for (int i = 1; i < node->count; i++)
        if (node->kids[i]->kind == N_ALL || node->kids[i]->kind == N_SPAN) return false;
    return true;
}

// Not of a printed program: the verifier knows which of its statements are reached.
static bool check_index(Sema *s, const Base *base, int dim, const Expr *index, Span span) {
    int64_t value;
    bool tap = base->buf->im2col && !base->view && dim > 0 && dim < base->buf->rank - 1;
    if (s->verbatim || base->regs || (base->buf->scope == SCOPE_GLOBAL && !tap))
        return true;   // global: outside reads 0
    if (!expr_const(index, &value)) return true;
    int64_t extent = extent_or_unknown(s, base, dim);
    if (value >= 0 && (extent < 0 || value < extent)) return true;
    Diag *d = diag(s->sink, span, T_INDEX_RANGE, (long long)value, dim, base->name, (long long)extent);
    if (base->view) diag_label(d, base->buf->loc, "it is a view of '%s'", base->buf->name);
    return false;
}

static void wrong_rank(Sema *s, const Node *node, const Buf *buf, int wanted, int given) {
    Diag *d = diag(s->sink, node->span, T_RANK, buf->name, wanted, given);
    diag_label(d, buf->loc, "declared here");
    if (wanted == 0) diag_note(d, "it is one number, which has no index");
}

static bool read_indices(Sema *s, const Node *node, const Base *base, int count, Expr **out) {
    SemaValue *values = NEW_ARRAY(s->arena, SemaValue, count + 1);
    for (int i = 0; i < count; i++) {
        const Node *index = node->kids[i + 1];
        if (index->kind == N_ALL || index->kind == N_SPAN) {
            diag(s->sink, index->span, T_ELEMENT_WANTED);
            return false;
        }
        s->copied++;
        values[i] = value_after(s, i, values, index);
        s->copied--;
        values[i] = value_expr(s, to_index(s, values[i]), index->span);
        if (!check_index(s, base, i, values[i].expr, index->span)) return false;
    }
    for (int i = 0; i < count; i++) out[i] = values[i].expr;
    return true;
}

// The taps are their windows'.
static Expr *taps_inside(Sema *s, const Place *place) {
    const Im2col *im2col = place->buf->im2col;
    Expr *all = NULL;
    for (int i = 0; i < im2col->count; i++) {
        Expr *tap = place->indices[i + 1];
        Expr *inside = e_both(s->arena, e_ge(s->arena, tap, e_int(s->arena, 0)),
                              e_lt(s->arena, tap, e_int(s->arena, im2col->windows[i].taps)));
        if (!expr_is_int(inside, 1)) all = e_both(s->arena, all, inside);
    }
    return all;
}

void place_in_tensor(Sema *s, Place *place) {
    if (!place->buf->im2col) return;
    place->inside = e_both(s->arena, place->inside, taps_inside(s, place));
    place->indices = im2col_indices(s->arena, place->buf, place->indices);
    place->buf = place->buf->alias_of;
}

// What is outside of a view is made an index outside of its tensor.
static void outside_of_tensor(Sema *s, Place *place) {
    if (place->inside) place->indices[0] = e_select(s->arena, place->inside, place->indices[0], e_int(s->arena, -1));
    place->inside = NULL;
}

bool element_place(Sema *s, const Node *node, Place *out) {
    Base base;
    bool alone = node->kind != N_INDEX;   // u.n: a view of one element, without dims
    if (alone && !is_view(s, node)) {
        report_no_buffer(s, node);
        return false;
    }
    if (!base_of(s, node, alone ? node : node->kids[0], &base)) return false;
    *out = (Place){.buf = base.buf, .count = alone ? 0 : node->count - 1};
    if (out->count != rank_of(&base)) {
        wrong_rank(s, node, base.buf, rank_of(&base), out->count);
        return false;
    }
    out->indices = NEW_ARRAY(s->arena, Expr *, out->count);
    if (!read_indices(s, node, &base, out->count, out->indices)) return false;
    if (base.view) {
        *out = view_place(s, base.view, out->indices);
        if (s->context != IN_BLOCK || s->in_thread) out->inside = NULL;   // out of range is an error there
    }
    if (!base.regs) out->count = base.buf->rank;
    place_in_tensor(s, out);
    if (s->context != IN_BLOCK || s->in_thread) outside_of_tensor(s, out);
    return true;
}

static bool names_argument(Sema *s, const Node *name) {
    const Symbol *symbol = find(s, name->text);
    return symbol && symbol->kind == SYMBOL_VIEW && symbol->view->declared;
}

Region *region_element_of(Sema *s, const Node *node, bool or_whole) {
    Region *region;
    Place place;
    if (node->kind == N_NAME &&
        (!is_view(s, node) || names_argument(s, node))) {   // a bare name is the whole buffer: `mbarrier_init(full, 1)`
        Buf *buf = buffer_named(s, node);
        region = buf ? region_whole(s->arena, buf) : NULL;
        if (buf && !or_whole) {
            wrong_rank(s, node, buf, buf->rank, 0);
            return NULL;
        }
    } else {
        if (!element_place(s, node, &place)) return NULL;
        if (place.is_cast || place.piece || place.cta) {
            diag(s->sink, node->span, T_VIEW_OPERAND, "an element operand", place.buf->name,
                 place.cta ? "it lies in another CTA" : "its elements have another type");
            return NULL;
        }
        outside_of_tensor(s, &place);
        region = place_region(s, &place, 0);
    }
    if (region) region->loc = place_of(s, node->span);
    return region;
}

// ---- operands as written ----
typedef enum { DIM_PLAIN, DIM_SPAN, DIM_WHOLE } DimKind;

typedef struct Written {
    Base base;
    int rank;
    bool transposed, starts_only, open;   // open: trailing indices are missing
    DimKind kinds[LAYOUT_MAX_RANK];
    Expr *starts[LAYOUT_MAX_RANK], *extents[LAYOUT_MAX_RANK];
    int64_t steps[LAYOUT_MAX_RANK];
    bool clips[LAYOUT_MAX_RANK];     // by its extent: that is no constant, or in clip(..)
    Span clip_at[LAYOUT_MAX_RANK];   // of `clip(..)`
    Span span;
} Written;

typedef struct Shape {   // of an operand; -1: not constant
    int rank;
    int64_t tiles[LAYOUT_MAX_RANK];
} Shape;

static bool read_step(Sema *s, const Node *index, Written *w, int dim) {
    const Node *step = index->kids[2];
    return !step || constant_int(s, step, "the step of a slice", 1, INT32_MAX, &w->steps[dim]);
}

static bool read_index(Sema *s, const Node *index, Written *w, int dim) {
    w->starts[dim] = e_int(s->arena, 0);
    if (index->kind == N_ALL) {
        w->kinds[dim] = DIM_WHOLE;
        return true;
    }
    w->kinds[dim] = index->kind == N_SPAN ? DIM_SPAN : DIM_PLAIN;
    w->starts[dim] = index_expression(s, index->kind == N_SPAN ? index->kids[0] : index);
    if (index->kind != N_SPAN) return check_index(s, &w->base, dim, w->starts[dim], index->span);
    const Node *written = index->kids[1];
    bool clips = written->kind == N_CALL && written->count == 1 && strcmp(written->text, "clip") == 0;
    if (!index_value(s, clips ? written->kids[0] : written, &w->extents[dim])) return false;
    if (clips) w->clip_at[dim] = written->span;
    if (!read_step(s, index, w, dim)) return false;
    int64_t extent;
    w->clips[dim] = clips || !expr_const(w->extents[dim], &extent);
    if (w->clips[dim] || extent > 0) return true;
    diag(s->sink, index->kids[1]->span, T_EXTENT_POSITIVE, (long long)extent);
    return false;
}

static bool is_patches(const Written *w) {
    return w->base.buf->im2col && !w->base.view;
}

// Of an im2col view: rows of channels at one tap.
static bool reads_rows(Sema *s, const Written *w) {
    int last = w->rank - 1;
    bool taps = true, channels = !w->transposed && (w->starts_only || w->kinds[last] != DIM_PLAIN);
    for (int d = 1; d < last; d++) taps &= w->kinds[d] == DIM_PLAIN;
    if (taps && channels) return true;
    diag(s->sink, w->span, T_IM2COL, taps ? "ends with its channels" : "takes one tap of each window");
    return false;
}

static bool read_operand(Sema *s, const Node *node, Written *w) {
    *w = (Written){.span = node->span};
    while (node->kind == N_DOT && !is_held(s, node)) {
        if (strcmp(node->text, "T") != 0) {
            Diag *d = diag(s->sink, node->span, T_UNKNOWN_VIEW, node->text);
            note_foreign(s, d, FOREIGN_INDEXED, end_of(node->span));
            return false;
        }
        w->transposed = !w->transposed;
        node = node->kids[0];
    }
    bool indexed = node->kind == N_INDEX;
    if (!base_of(s, node, indexed ? node->kids[0] : node, &w->base)) return false;
    w->rank = w->base.regs ? w->base.buf->rank : rank_of(&w->base);
    int given = indexed ? node->count - 1 : 0, wide = 0;
    if (given > w->rank || w->base.regs) {
        wrong_rank(s, node, w->base.buf, w->rank, given);
        return false;
    }
    for (int i = 0; i < w->rank; i++) w->steps[i] = 1;
    for (int i = 0; i < given; i++) {
        if (!read_index(s, node->kids[i + 1], w, i)) return false;
        wide += w->kinds[i] != DIM_PLAIN;
    }
    for (int i = given; i < w->rank; i++) {
        w->kinds[i] = DIM_WHOLE;
        w->starts[i] = e_int(s->arena, 0);
    }
    w->starts_only = indexed && wide == 0;
    w->open = given < w->rank;
    return !is_patches(w) || reads_rows(s, w);
}

// ---- extents ----
static Expr *extent_of(Sema *s, const Written *w, int dim) {
    return w->kinds[dim] == DIM_WHOLE ? extent_in(s, &w->base, dim) : w->extents[dim];
}

static void exchange(Shape *shape) {
    if (shape->rank < 2) return;
    int64_t last = shape->tiles[shape->rank - 1];
    shape->tiles[shape->rank - 1] = shape->tiles[shape->rank - 2];
    shape->tiles[shape->rank - 2] = last;
}

// The shape that the operand has by itself: dims that are not plain. One that clips from index 0 on is as long as the
// buffer, where nothing else says how long it is (`otherwise`).
static Shape own_shape(Sema *s, const Written *w, bool otherwise) {
    Shape shape = {0};
    for (int i = 0; i < w->rank; i++) {
        if (w->kinds[i] == DIM_PLAIN) continue;
        int64_t tile = -1;
        if (!w->clips[i]) expr_const(extent_of(s, w, i), &tile);
        else if (otherwise && expr_is_int(w->starts[i], 0)) tile = extent_or_unknown(s, &w->base, i);
        shape.tiles[shape.rank++] = tile;
    }
    if (w->transposed) exchange(&shape);
    return shape;
}

static const char *shape_text(Sema *s, Shape shape) {
    StrBuf text;
    sb_init(&text, s->arena);
    sb_char(&text, '[');
    for (int i = 0; i < shape.rank; i++) {
        sb_str(&text, i ? ", " : "");
        if (shape.tiles[i] >= 0) sb_printf(&text, "%lld", (long long)shape.tiles[i]);
        else sb_char(&text, '?');
    }
    sb_char(&text, ']');
    return sb_text(&text);
}

// Dim i is one of the operand. Starts only: the last dims take the other side's extents; of an im2col view the rows and
// the channels.
static bool is_kept(const Written *w, int dim, int shape_rank) {
    int last = w->rank - 1;
    if (!w->starts_only) return w->kinds[dim] != DIM_PLAIN;
    return is_patches(w) ? dim == last || (dim == 0 && shape_rank > 1) : dim > last - shape_rank;
}

static Expr *kept_extent(Sema *s, const Written *w, int dim, int64_t tile) {
    return w->starts_only && w->kinds[dim] == DIM_PLAIN ? e_int(s->arena, tile) : extent_of(s, w, dim);
}

// The region whose operand shape is `shape`.
static Region *make_region(Sema *s, const Written *w, Shape shape) {
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    int at = 0;
    if (w->transposed) exchange(&shape);
    for (int i = 0; i < w->rank; i++) {
        dims[i].start = w->starts[i];
        dims[i].tile = 1;
        if (!is_kept(w, i, shape.rank)) continue;
        dims[i].tile = shape.tiles[at++];
        dims[i].extent = kept_extent(s, w, i, dims[i].tile);
    }
    return region_new(s->arena, w->base.buf, dims, w->transposed && shape.rank >= 2, place_of(s, w->span));
}

static const View *make_view(Sema *s, const Written *w, Shape shape) {
    ViewSlice slices[LAYOUT_MAX_RANK] = {0};
    int at = 0;
    if (w->transposed) exchange(&shape);
    for (int i = 0; i < w->rank; i++) {
        slices[i] = (ViewSlice){.start = w->starts[i], .step = w->steps[i], .clips = w->clips[i]};
        if (is_kept(w, i, shape.rank)) slices[i].count = kept_extent(s, w, i, shape.tiles[at++]);
    }
    const View *of = w->base.view ? w->base.view : view_of_buffer(s, w->base.buf), *slice = view_slice(s, of, slices);
    return w->transposed && slice->rank >= 2 ? view_transpose(s, slice) : slice;
}

static bool is_plain(const Written *w) {
    for (int i = 0; i < w->rank; i++)
        if (w->steps[i] != 1) return false;
    return !w->base.view;
}

static TileOperand make_operand(Sema *s, const Written *w, Shape shape) {
    TileOperand out = {0};
    memcpy(out.tiles, shape.tiles, sizeof out.tiles);
    if (is_plain(w)) {
        out.region = make_region(s, w, shape);
    } else {
        out.view = make_view(s, w, shape);
        out.region = view_region(s, out.view, out.tiles, w->span, &out.why);
    }
    return out;
}

// An operand of an op that gives no other side: what is not `:` or `+:` is dropped, if anything is left.
static bool stand_alone(Sema *s, Written *w, const char *what) {
    if (w->starts_only && !w->open) {
        diag(s->sink, w->span, T_NO_EXTENT, what);
        return false;
    }
    w->starts_only = false;
    return true;
}

static bool check_transposed(Sema *s, const Written *w, int rank) {
    if (!w->transposed || rank >= 2) return true;
    diag(s->sink, w->span, T_TRANSPOSED_RANK, w->base.buf->name, rank);
    return false;
}

static bool all_known(Sema *s, const Written *w, Shape shape) {
    if (s->context == IN_PROGRAM) return true;   // on the host whole tensors have no tiles
    for (int i = 0; i < shape.rank; i++) {
        if (shape.tiles[i] >= 0) continue;
        int64_t extent;
        Diag *d = diag(s->sink, w->span, T_EXTENT_UNKNOWN, w->base.buf->name);
        for (int dim = 0; dim < w->rank; dim++) {
            if (!w->clip_at[dim].line || !expr_const(w->extents[dim], &extent)) continue;
            diag_note(d, "clip(n) covers the tile of the other side, up to n; with no other side, n is the extent");
            diag_fix(d, w->clip_at[dim], arena_printf(s->arena, "%lld", (long long)extent));
        }
        return false;
    }
    return true;
}

bool region_alone(Sema *s, const Node *node, const char *what, TileOperand *out) {
    Written w;
    if (!read_operand(s, node, &w) || !stand_alone(s, &w, what)) return false;
    Shape shape = own_shape(s, &w, true);
    if (!check_transposed(s, &w, shape.rank) || !all_known(s, &w, shape)) return false;
    *out = make_operand(s, &w, shape);
    return true;
}

// A part of a buffer or view as a view, with extents of its own.
const View *written_view(Sema *s, const Node *node) {
    Written w;
    if (!read_operand(s, node, &w) || !stand_alone(s, &w, "a view")) return NULL;
    Shape shape = own_shape(s, &w, false);
    for (int i = 0; i < w.rank; i++) {
        w.starts[i] = view_bound(s, w.starts[i], w.span);
        if (w.extents[i]) w.extents[i] = view_bound(s, w.extents[i], w.span);
    }
    return check_transposed(s, &w, shape.rank) ? make_view(s, &w, shape) : NULL;
}

// ---- two sides ----
static void mismatch(Sema *s, const Written *a, Shape shape_a, const Written *b, Shape shape_b) {
    Diag *d = diag(s->sink, a->span, T_SHAPES, a->base.buf->name, shape_text(s, shape_a), b->base.buf->name,
                   shape_text(s, shape_b));
    diag_label(d, a->base.buf->loc, "'%s' is declared here", a->base.buf->name);
    diag_label(d, b->base.buf->loc, "'%s' is declared here", b->base.buf->name);
}

// Both shapes are known in themselves: they must agree; what one does not know it takes from the other.
static bool agree(Sema *s, const Written *a, Shape *shape_a, const Written *b, Shape *shape_b) {
    bool fine = shape_a->rank == shape_b->rank;
    Shape guess_a = own_shape(s, a, true), guess_b = own_shape(s, b, true);
    for (int i = 0; fine && i < shape_a->rank; i++) {
        int64_t *x = &shape_a->tiles[i], *y = &shape_b->tiles[i];
        if (*x < 0) *x = *y;
        if (*y < 0) *y = *x;
        if (*x < 0) *x = guess_a.tiles[i], *y = guess_b.tiles[i];
        if (*x < 0) *x = *y;
        if (*y < 0) *y = *x;
        fine = *x == *y;
    }
    if (!fine) mismatch(s, a, *shape_a, b, *shape_b);
    return fine;
}

// `w` gives starts only and takes the other's shape.
static bool follow(Sema *s, const Written *w, const Written *other, Shape shape) {
    Shape mine = {.rank = w->rank};
    if (w->transposed) exchange(&shape);   // as the buffer has its dims
    for (int i = 0; i < mine.rank; i++) mine.tiles[i] = extent_or_unknown(s, &w->base, i);
    if (shape.rank > (is_patches(w) ? 2 : w->rank)) {
        mismatch(s, w, mine, other, shape);
        return false;
    }
    for (int i = 0; i < shape.rank; i++) {   // whole trailing dims must still match
        int dim = w->rank - shape.rank + i;
        int64_t whole = w->kinds[dim] == DIM_WHOLE ? mine.tiles[dim] : -1;
        if (whole < 0 || whole == shape.tiles[i]) continue;
        mismatch(s, w, mine, other, shape);
        return false;
    }
    for (int i = 0; i < w->rank - shape.rank; i++) {
        if (w->kinds[i] == DIM_PLAIN) continue;
        mismatch(s, w, mine, other, shape);
        return false;
    }
    return true;
}

bool region_pair(Sema *s, const Node *node_a, const Node *node_b, bool exchanged, TileOperand *out_a,
                 TileOperand *out_b) {
    Written a, b;
    bool read_a = read_operand(s, node_a, &a), read_b = read_operand(s, node_b, &b);
    if (!read_a || !read_b) return false;
    if (a.starts_only && b.starts_only) {   // the side with missing indices is whole in those: it decides
        if (!a.open && !stand_alone(s, &b, "this copy")) return false;
        if (a.open) a.starts_only = false;
        if (a.open && b.open) b.starts_only = false;
    }
    b.transposed ^= exchanged;
    Shape shape_a = own_shape(s, &a, b.starts_only), shape_b = own_shape(s, &b, a.starts_only);
    if (a.starts_only) shape_a = shape_b;
    if (b.starts_only) shape_b = shape_a;
    if (!check_transposed(s, &a, shape_a.rank) || !check_transposed(s, &b, shape_b.rank)) return false;
    bool fine = a.starts_only   ? follow(s, &a, &b, shape_b)
                : b.starts_only ? follow(s, &b, &a, shape_a)
                                : agree(s, &a, &shape_a, &b, &shape_b);
    if (!fine || !all_known(s, &a, shape_a)) return false;
    *out_a = make_operand(s, &a, shape_a);
    *out_b = make_operand(s, &b, shape_b);
    if (!out_a->region) out_a->region = view_joined_region(s, out_a->view, out_a->tiles, a.span);
    if (!out_b->region) out_b->region = view_joined_region(s, out_b->view, out_b->tiles, b.span);
    if (out_a->region && out_b->region) {
        bool both = out_a->region->transposed && out_b->region->transposed;   // a copy of the one is that of the other
        out_a->region->transposed ^= both;
        out_b->region->transposed ^= both;
        if (exchanged) place_transposition(out_a->region, out_b->region);
        return true;
    }
    if (!out_a->view) out_a->view = make_view(s, &a, shape_a);
    if (!out_b->view) out_b->view = make_view(s, &b, shape_b);
    return true;
}

// ---- shapes of one op ----
static Shape shape_of(const Region *region) {
    Shape shape = {.rank = region_rank(region)};
    for (int i = 0; i < shape.rank; i++) shape.tiles[i] = region_extent(region, i);
    return shape;
}

static bool check_gemm(Sema *s, const Arg *args, Span span) {
    Shape a = shape_of(args[0].region), b = shape_of(args[1].region), c = shape_of(args[2].region);
    bool fine = a.rank == 2 && b.rank == 2 && c.rank == 2 && a.tiles[1] == b.tiles[0] && a.tiles[0] == c.tiles[0] &&
                b.tiles[1] == c.tiles[1];
    Diag *d = fine ? NULL : diag(s->sink, span, T_GEMM_SHAPES, shape_text(s, a), shape_text(s, b), shape_text(s, c));
    if (d && (a.rank != 2 || b.rank != 2 || c.rank != 2))
        diag_note(
            d, "operands have two dims; of several tiles: unroll (g in 2) gemm(a[g, :, :], b[g, :, :], c[g, :, :]);");
    return fine;
}

static bool check_axis(Sema *s, OpId op, const Arg *args, int rank, Span span, int64_t *axis) {
    if (expr_const(args[2].value, axis) && *axis >= 0 && *axis < rank) return true;
    diag(s->sink, span, T_AXIS, op_info(op)->text, rank - 1);
    return false;
}

static bool same_shape(Shape a, Shape b) {
    bool same = a.rank == b.rank;
    for (int i = 0; same && i < a.rank; i++) same = a.tiles[i] == b.tiles[i];
    return same;
}

static bool check_reduce(Sema *s, OpId op, const Arg *args, Span span) {
    Shape src = shape_of(args[0].region), dst = shape_of(args[1].region), want = {0};
    int64_t axis;
    if (!check_axis(s, op, args, src.rank, span, &axis)) return false;
    for (int i = 0; i < src.rank; i++)
        if (i != axis) want.tiles[want.rank++] = src.tiles[i];
    if (want.rank == 0) want = (Shape){.rank = 1, .tiles = {1}};
    if (dst.rank == src.rank && dst.tiles[axis] <= src.tiles[axis]) {   // partial results
        want = src;
        want.tiles[axis] = dst.tiles[axis];
    }
    if (same_shape(want, dst)) return true;
    diag(s->sink, span, T_REDUCE_SHAPES, op_info(op)->text, shape_text(s, src), (long long)axis, shape_text(s, want),
         shape_text(s, dst));
    return false;
}

static bool check_scan(Sema *s, OpId op, const Arg *args, Span span) {
    Shape src = shape_of(args[0].region), dst = shape_of(args[1].region);
    int64_t axis;
    if (!check_axis(s, op, args, src.rank, span, &axis)) return false;
    if (same_shape(src, dst)) return true;
    diag(s->sink, span, T_SHAPES, args[0].region->buf->name, shape_text(s, src), args[1].region->buf->name,
         shape_text(s, dst));
    return false;
}

static bool check_elements(Sema *s, OpId op, const Arg *args, Span span) {
    for (int i = 0; i < (op == OP_GEMM ? 3 : 2) && args[i].region; i++)
        if (!op_takes_element(op, args[i].region->buf->type)) {
            diag(s->sink, span, T_OPERAND_TYPE, op_info(op)->text, type_text(args[i].region->buf->type));
            return false;
        }
    return true;
}

bool check_tile_op(Sema *s, OpId op, const Arg *args, Span span) {
    if (!check_elements(s, op, args, span)) return false;
    if (op == OP_GEMM) return check_gemm(s, args, span);
    if (op_is(op, OP_CLASS_REDUCTION)) return check_reduce(s, op, args, span);
    if (op == OP_SCAN_SUM || op == OP_SCAN_MAX) return check_scan(s, op, args, span);
    return true;
}
