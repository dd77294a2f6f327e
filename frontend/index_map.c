// Index maps: tensor parameters whose elements lie elsewhere than in row-major order of their coordinates.
//
//     W: bf16[n in N, k in K] layout [n / 64, k / 32, n % 64, k % 32]        tiles of 64 x 32, packed by the host
//
// The argument is the tensor of the places, here [ceildiv(N, 64), ceildiv(K, 32), 64, 32]: its extents are those of the
// indices, and launches check them as they do all shapes. In the text the name is a view of it (views.c), so copies,
// loads and TMA see a tensor of more dims. Where the last tile is not full, what the host put behind the extents is
// not read.
#include "frontend/sema.h"
#include "ir/print.h"
#include "ir/query.h"
#include <string.h>

// ---- dims that the argument binds ----
int argument_dim(const Node *param, int dim) {
    const Node *coordinates = ast_kid(param, 3), *map = ast_kid(param, 4);
    if (!coordinates || !map) return dim;
    for (int d = 0; d < map->count; d++)
        if (map->kids[d]->kind == N_NAME && strcmp(map->kids[d]->text, coordinates->kids[dim]->text) == 0) return d;
    return -1;
}

// ---- extents of indices ----
static int coordinate_of(const View *view, const Expr *e) {
    for (int k = 0; e->kind == EXPR_VAR && k < view->rank; k++)
        if (view->at[k] == e->var) return k;
    return -1;
}

static bool uses_coordinates(const View *view, const Expr *e) {
    for (int k = 0; k < view->rank; k++)
        if (expr_uses_var(e, view->at[k])) return true;
    return false;
}

static Expr *extent_of(Sema *s, const View *view, Expr *e);

// Of x * c + rest it is extent(x) * c where the rest is below c.
static Expr *extent_of_sum(Sema *s, const View *view, Expr *a, Expr *b) {
    Expr *x = extent_of(s, view, a), *y = extent_of(s, view, b);
    if (!x || !y) return NULL;
    for (int swap = 0; swap < 2; swap++) {
        const Expr *high = swap ? b : a;
        Expr *low = swap ? x : y;
        bool scaled = high->kind == EXPR_BINARY && high->binary.op == BIN_MUL && expr_equal(high->binary.b, low);
        Expr *outer = scaled ? extent_of(s, view, high->binary.a) : NULL;
        if (outer) return e_mul(s->arena, outer, low);
    }
    return e_sub(s->arena, e_add(s->arena, x, y), e_int(s->arena, 1));
}

static Expr *extent_of_binary(Sema *s, const View *view, Expr *e) {
    Expr *a = e->binary.a, *b = e->binary.b;
    if (e->binary.op == BIN_ADD) return extent_of_sum(s, view, a, b);
    Expr *inner = extent_of(s, view, a);
    int64_t x, y;
    if (!inner || uses_coordinates(view, b) || (expr_const(b, &y) && y <= 0)) return NULL;
    switch (e->binary.op) {
    case BIN_MUL: return e_plus(s->arena, e_mul(s->arena, e_sub(s->arena, inner, e_int(s->arena, 1)), b), 1);
    case BIN_DIV: return E_CALL(s->arena, OP_CEILDIV, arg_value(inner), arg_value(b));
    case BIN_MOD: return expr_const(inner, &x) && expr_const(b, &y) && x < y ? inner : b;
    default: return NULL;
    }
}

// One more than the largest value of an index; NULL: it is none, or may be negative.
static Expr *extent_of(Sema *s, const View *view, Expr *e) {
    int k = coordinate_of(view, e);
    int64_t value;
    if (k >= 0) return view->shape[k];
    if (!uses_coordinates(view, e)) return expr_const(e, &value) && value < 0 ? NULL : e_plus(s->arena, e, 1);
    return e->kind == EXPR_BINARY ? extent_of_binary(s, view, e) : NULL;
}

// ---- two elements at one place ----

// The coordinate alone, from 0 on: the first value whose place an earlier one has. -1: none among these.
static int64_t first_twice(Sema *s, const View *view, int dim, int64_t *earlier) {
    enum { LOOKED_AT = 256 };
    int64_t count = LOOKED_AT, places[LOOKED_AT][LAYOUT_MAX_RANK], extent;
    if (expr_const(view->shape[dim], &extent) && extent < count) count = extent;
    for (int64_t value = 0; value < count; value++) {
        Subst *subst = subst_new(s->arena);
        for (int k = 0; k < view->rank; k++) subst_var(subst, view->at[k], e_int(s->arena, k == dim ? value : 0));
        for (int d = 0; d < view->buf->rank; d++)
            if (!expr_const(subst_expr(subst, view->index[d]), &places[value][d])) return -1;
        for (*earlier = 0; *earlier < value; ++*earlier)
            if (!memcmp(places[*earlier], places[value], sizeof **places * (size_t)view->buf->rank)) return value;
    }
    return -1;
}

static const char *twice(Sema *s, const View *view) {
    int64_t earlier, value;
    for (int k = 0; k < view->rank; k++)
        if ((value = first_twice(s, view, k, &earlier)) > 0)
            return arena_printf(s->arena, "puts two elements into one place: those at %s = %lld and at %s = %lld",
                                view->at[k]->name, (long long)earlier, view->at[k]->name, (long long)value);
    return NULL;
}

// ---- the parameter ----
static const char *form_problem(const Node *param) {
    const Node *coordinates = ast_kid(param, 3), *map = ast_kid(param, 4);
    if (!map) return "is missing: its dims have coordinates";
    if (!coordinates) return "needs the names of the coordinates, as in x[m in M]";
    return map->count > LAYOUT_MAX_RANK || coordinates->count > LAYOUT_MAX_RANK ? "has too many dims" : NULL;
}

bool has_index_map(const Node *param) {
    return ast_kid(param, 3) || ast_kid(param, 4);
}

static void read_indices(Sema *s, const Node *param, View *view) {
    const Node *coordinates = ast_kid(param, 3), *map = ast_kid(param, 4);
    NameScope scope;
    scope_open(s, &scope);
    for (int k = 0; k < view->rank; k++) {
        const Node *name = coordinates->kids[k];
        view->at[k] = var_new(s->arena, name->text, VAR_ITER, TYPE_I64, place_of(s, name->span));
        declare_value(s, name->text, value_expr(s, e_var(s->arena, view->at[k]), name->span), name->span);
    }
    for (int d = 0; d < map->count; d++) view->index[d] = index_expression(s, map->kids[d]);
    scope_close(s);
}

View *index_map_read(Sema *s, const Node *param, Expr *const *shape, Expr **places) {
    const char *why = form_problem(param);
    const Node *map = ast_kid(param, 4);
    View *view = NEW(s->arena, View);
    *view = (View){.rank = param->kids[1]->count, .declared = true, .mapped = true};
    int errors = diag_errors(s->sink);
    if (!why) {
        for (int k = 0; k < view->rank; k++) view->shape[k] = shape[k];
        read_indices(s, param, view);
        for (int d = 0; d < map->count && !why; d++)
            if (!(places[d] = extent_of(s, view, view->index[d])))
                why = arena_printf(
                    s->arena,
                    "has index %d, which is not made of coordinates by + and by *, / and %% of positive numbers", d);
    }
    if (why && diag_errors(s->sink) == errors) diag(s->sink, param->span, T_INDEX_MAP, param->text, why);
    return why || diag_errors(s->sink) > errors ? NULL : view;
}

const char *index_map_text(Sema *s, const View *view) {
    StrBuf out;
    sb_init(&out, s->arena);
    for (int k = 0; k < view->rank; k++) sb_printf(&out, "%s%s", k ? ", " : "[", view->at[k]->name);
    for (int d = 0; d < view->buf->rank; d++)
        sb_printf(&out, "%s%s", d ? ", " : "] -> [", expr_text(s->arena, view->index[d]));
    sb_char(&out, ']');
    return sb_text(&out);
}

void index_map_check(Sema *s, const View *view, Span span) {
    const char *why = view->buf->mode == MODE_IN ? NULL : twice(s, view);
    if (why) diag(s->sink, span, T_INDEX_MAP, view->buf->name, why);
}

// ---- as the body sees it ----

// Coordinates beyond the extent are beyond the tensor, if a whole number of these makes up the extent; 0: they are not.
static int64_t unit_of(const View *view, int dim) {
    int64_t by;
    for (int d = 0; d < view->buf->rank; d++) {
        const Expr *e = view->index[d];
        if (coordinate_of(view, e) == dim) return 1;
        bool quotient = e->kind == EXPR_BINARY && e->binary.op == BIN_DIV && coordinate_of(view, e->binary.a) == dim;
        if (quotient && expr_const(e->binary.b, &by)) return by;
    }
    return 0;
}

const View *index_map_known(Sema *s, const View *declared) {
    View *view = arena_copy(s->arena, declared, sizeof *declared);
    for (int d = 0; d < view->buf->rank; d++) view->index[d] = substitute_choices(s, view->index[d]);
    for (int k = 0; k < view->rank; k++) {
        view->shape[k] = substitute_choices(s, view->shape[k]);
        int64_t unit = unit_of(view, k);
        view->limit[k] = unit && view_divides(s, view->shape[k], unit) ? NULL : view->shape[k];
    }
    return view;
}
