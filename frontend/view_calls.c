// Views as they are written: permute(x, 1, 0), reshape(x, M, 8, 8), distribute(x, t, 8, 4), vectorize(x, 1, 4), im2col
// views, and slices, x[i +: n step 2, :].
#include "frontend/sema.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "layout/layout.h"
#include <string.h>

Expr *view_bound(Sema *s, Expr *e, Span span) {
    if (expr_is_stable(e)) return e;
    Var *var = var_new(s->arena, "bound", VAR_LET, e->type, place_of(s, span));
    Stmt *stmt = s_let(s->arena, var, e);
    stmt->loc = var->loc;
    emit(s, stmt);
    return e_var(s->arena, var);
}

const View *view_refused(Sema *s, const Node *call, const View *of, const char *why) {
    Diag *d = diag(s->sink, call->span, T_VIEW, call->text, of->buf->name, why);
    diag_label(d, of->buf->loc, "declared here");
    return NULL;
}

static const char *counts(Sema *s, const Node *call, const View *of, const char *what) {
    return arena_printf(s->arena, "it needs %s for each of %d dims, and has %d", what, of->rank, call->count - 1);
}

// ---- permute ----
static const View *permute(Sema *s, const Node *call, const View *of) {
    int order[LAYOUT_MAX_RANK], seen = 0;
    if (call->count - 1 != of->rank) return view_refused(s, call, of, counts(s, call, of, "a number"));
    for (int k = 0; k < of->rank; k++) {
        int64_t dim;
        if (!constant_int(s, call->kids[k + 1], "a dim", 0, of->rank - 1, &dim)) return NULL;
        order[k] = (int)dim;
        seen |= 1 << dim;
    }
    if (seen != (1 << of->rank) - 1) return view_refused(s, call, of, "it names a dim twice");
    return view_permute(s, of, order);
}

// ---- reshape ----
static const char *extents_text(Sema *s, int count, Expr *const *extents) {
    StrBuf text;
    sb_init(&text, s->arena);
    for (int i = 0; i < count; i++) sb_printf(&text, "%s%s", i ? ", " : "[", expr_text(s->arena, extents[i]));
    sb_char(&text, ']');
    return sb_text(&text);
}

static const View *reshape(Sema *s, const Node *call, const View *of) {
    Expr *shape[LAYOUT_MAX_RANK];
    int rank = call->count - 1;
    if (rank < 1 || rank > LAYOUT_MAX_RANK)
        return view_refused(s, call, of, arena_printf(s->arena, "it needs 1 to %d extents", LAYOUT_MAX_RANK));
    int errors = diag_errors(s->sink);
    for (int k = 0; k < rank; k++) {
        int64_t extent;
        shape[k] = substitute_choices(s, view_bound(s, index_expression(s, call->kids[k + 1]), call->span));
        if (diag_errors(s->sink) > errors || !expr_const(shape[k], &extent) || extent >= 1) continue;
        diag(s->sink, call->kids[k + 1]->span, T_EXTENT_POSITIVE, (long long)extent);
    }
    if (diag_errors(s->sink) > errors) return NULL;
    const View *view = view_reshape(s, of, rank, shape);
    if (view) return view;
    return view_refused(s, call, of,
                        arena_printf(s->arena, "%s and %s are not known to have as many elements",
                                     extents_text(s, of->rank, of->shape), extents_text(s, rank, shape)));
}

// ---- distribute, vectorize ----

// A number for each dim that divides its extent; false after a report.
static bool divisors(Sema *s, const Node *call, const View *of, int first, int64_t *out, Expr **quotients) {
    if (call->count - first != of->rank) {
        view_refused(
            s, call, of,
            arena_printf(s->arena, "it needs a number for each of %d dims, and has %d", of->rank, call->count - first));
        return false;
    }
    for (int d = 0; d < of->rank; d++) {
        const Node *node = call->kids[first + d];
        if (!constant_int(s, node, "the number of a dim", 1, INT32_MAX, &out[d])) return false;
        Expr *extent = of->shape[d];
        if (!view_divides(s, extent, out[d])) {
            view_refused(s, call, of,
                         arena_printf(s->arena, "%s elements along dim %d are not known to be a multiple of %lld",
                                      expr_text(s->arena, extent), d, (long long)out[d]));
            return false;
        }
        quotients[d] = e_over(s->arena, extent, out[d]);
    }
    return true;
}

// distribute(x, t, 8, 4): what thread t of 8 x 4 has, the last dim fastest, cyclically.
static const View *distribute(Sema *s, const Node *call, const View *of) {
    int64_t threads[LAYOUT_MAX_RANK];
    Expr *counts[LAYOUT_MAX_RANK];
    ViewSlice slices[LAYOUT_MAX_RANK];
    if (call->count < 2) return view_refused(s, call, of, "it needs a thread's number and a number for each dim");
    if (!divisors(s, call, of, 2, threads, counts)) return NULL;
    Expr *thread = view_bound(s, index_expression(s, call->kids[1]), call->span);
    for (int d = of->rank - 1; d >= 0; d--) {
        Expr *digit = d ? e_rem(s->arena, thread, threads[d]) : thread;
        slices[d] = (ViewSlice){.start = digit, .count = counts[d], .step = threads[d]};
        thread = e_over(s->arena, thread, threads[d]);
    }
    return view_slice(s, of, slices);
}

// The first neighbours along the last dim that the layout separates.
static const char *first_gap(Sema *s, const Buf *buf, int64_t count) {
    int64_t at[LAYOUT_MAX_RANK] = {0}, last = buf->layout->rank_in - 1, from = layout_linear(buf->layout, at);
    for (int64_t i = 1; i < count; i++) {
        at[last] = i;
        int64_t to = layout_linear(buf->layout, at);
        if (to != from + i)
            return arena_printf(s->arena, "by its layout, elements %lld and %lld of a row are at %lld and %lld",
                                (long long)i - 1, (long long)i, (long long)(from + i - 1), (long long)to);
    }
    return "its layout moves the elements of some of them";
}

// Neighbours along the dim are neighbours in memory.
bool view_is_contiguous(Sema *s, const View *view, int dim, int64_t count, const char **why) {
    const Buf *buf = view->buf;
    int last = buf->rank - 1;
    if (buf->scope == SCOPE_FRAGMENT) return true;
    *why = view_neighbours(s, view, dim);
    Expr *at[LAYOUT_MAX_RANK], *next[LAYOUT_MAX_RANK], *inside;
    for (int k = 0; k < view->rank; k++) at[k] = e_var(s->arena, view->at[k]), next[k] = at[k];
    next[dim] = e_plus(s->arena, at[dim], 1);
    Expr **from = view_indices(s, view, at, &inside), **to = view_indices(s, view, next, &inside);
    for (int d = 0; d < last; d++)
        if (!expr_equal(from[d], to[d])) return false;
    if (view_step(s, view, last, dim) != 1) return false;
    bool kept = !buf->layout || layout_keeps_runs(buf->layout, count);
    bool unit = !buf->strides || expr_is_int(buf->strides[last], 1);
    if (!kept) *why = first_gap(s, buf, count);
    if (!unit)
        *why = arena_printf(s->arena, "its stride along dim %d is %s", last, expr_text(s->arena, buf->strides[last]));
    return kept && unit;
}

// vectorize(x, 1, 4): [M, N] as [M, N / 4, 4], whose last dim is one access.
static const View *vectorize(Sema *s, const Node *call, const View *of) {
    int64_t lengths[LAYOUT_MAX_RANK];
    Expr *counts[LAYOUT_MAX_RANK], *shape[2 * LAYOUT_MAX_RANK];
    int order[2 * LAYOUT_MAX_RANK], rank = 0, vector = -1;
    if (!divisors(s, call, of, 1, lengths, counts)) return NULL;
    for (int d = 0; d < of->rank; d++) {
        if (lengths[d] > 1 && vector >= 0)
            return view_refused(s, call, of, "the elements of a vector lie along one dim");
        if (lengths[d] > 1) vector = d;
    }
    if (vector < 0 || of->rank == LAYOUT_MAX_RANK) return view_refused(s, call, of, "it needs one number above 1");
    const char *why = NULL;
    if (!view_is_contiguous(s, of, vector, lengths[vector], &why)) return view_refused(s, call, of, why);
    for (int d = 0; d < of->rank; d++) {
        order[d] = rank;
        shape[rank++] = counts[d];
        if (d == vector) order[of->rank] = rank, shape[rank++] = e_int(s->arena, lengths[d]);
    }
    return view_permute(s, view_reshape(s, of, rank, shape), order);
}

// ---- by name ----
typedef const View *ViewFn(Sema *s, const Node *call, const View *of);

static ViewFn *view_function(Sema *s, const char *name) {
    static const struct {
        const char *name;
        ViewFn *make;
    } table[] = {{"permute", permute},     {"reshape", reshape},  {"distribute", distribute},
                 {"vectorize", vectorize}, {"upcast", view_cast}, {"downcast", view_cast}};
    if (strmap_has(s->syntax->inlines, name)) return NULL;
    for (int i = 0; i < COUNT_OF(table); i++)
        if (strcmp(table[i].name, name) == 0) return table[i].make;
    return NULL;
}

bool is_view(Sema *s, const Node *node) {
    switch (node->kind) {
    case N_CALL: return is_im2col(node) || view_function(s, node->text) != NULL || is_peer_tile(s, node);
    case N_DOT: return strcmp(node->text, "T") == 0 || is_held(s, node);
    case N_INDEX: return !is_element(node);
    case N_NAME: {
        const Symbol *symbol = find(s, node->text);
        return symbol && (symbol->kind == SYMBOL_VIEW || is_held(s, node));
    }
    default: return false;
    }
}

const View *view_named(Sema *s, const Node *node) {
    if (!is_view(s, node) || is_im2col(node)) {
        Buf *buf = is_im2col(node) ? im2col_view(s, node) : buffer_named(s, node);
        return buf ? view_of_buffer(s, buf) : NULL;
    }
    if (is_held(s, node)) return held_tile(s, node);
    if (node->kind == N_NAME) {
        const View *view = find(s, node->text)->view;
        return view->declared ? index_map_known(s, view) : view;
    }
    if (node->kind != N_CALL) return written_view(s, node);
    if (node->count == 0) {
        diag(s->sink, node->span, T_ARGUMENTS, node->text);
        return NULL;
    }
    if (is_peer_tile(s, node)) return view_of_peer(s, node);
    const View *of = view_named(s, node->kids[0]);
    return of ? view_function(s, node->text)(s, node, of) : NULL;
}
