// Views: other coordinates for the elements of a buffer.
//
// A view says for each of its coordinates which element of the buffer it is: index expressions over variables that stand
// for the coordinates. A view of a view substitutes, so a chain costs the index arithmetic of its composition:
//
//     let v = permute(reshape(x, M, 4, 16), 1, 0, 2);       v[a, m, b]   is   x[m, a * 16 + b]
//
// No statement and no buffer stands for a view in the IR: an element is one of the buffer, a tile that a region can say
// is that region, and a copy of any other is a `parallel` loop (view_moves.c). Im2col views alone are buffers (im2col.c).
//
// Of a tensor in global memory what lies outside reads 0. The tensor's own bounds say that where each index of the view
// beyond its extent is one of the tensor beyond its own; for other dims the view has a limit, and each access asks.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include <string.h>

// ---- what is known ----

// Variables of loops and lets keep their facts behind them: nothing names them there.
Facts *known_facts(Sema *s) {
    if (s->facts_of != s->func) {
        s->facts = facts_new(s->arena, s->func);
        s->facts_of = s->func;
    }
    return s->facts;
}

// ---- construction ----

// The same buffer under new coordinates: `rank` of them, and none of the indices yet.
static View *view_new(Sema *s, const View *of, int rank) {
    static const char *const names[] = {"i", "j", "k", "l", "i4", "i5", "i6", "i7"};
    _Static_assert(COUNT_OF(names) == LAYOUT_MAX_RANK, "a name for each dim");
    View *view = NEW(s->arena, View);
    *view = (View){
        .buf = of->buf, .rank = rank, .inside = of->inside, .cta = of->cta, .is_cast = of->is_cast, .cast = of->cast};
    for (int k = 0; k < rank; k++) view->at[k] = var_new(s->arena, names[k], VAR_ITER, TYPE_I64, of->buf->loc);
    return view;
}

const View *view_of_buffer(Sema *s, Buf *buf) {
    View *view = view_new(s, &(View){.buf = buf}, buf->rank);
    view->whole = true;
    for (int d = 0; d < buf->rank; d++) {
        view->shape[d] = known_extent(s, buf, d);
        view->index[d] = e_var(s->arena, view->at[d]);
    }
    return view;
}

static Expr *coordinate(Sema *s, const View *view, int dim) {
    return e_var(s->arena, view->at[dim]);
}

const View *view_through(Sema *s, Buf *buf, const Layout *map, Expr *const *shape) {
    View *view = view_new(s, &(View){.buf = buf}, map->rank_in);
    Expr *at[LAYOUT_MAX_RANK];
    for (int k = 0; k < view->rank; k++) {
        view->shape[k] = shape[k];
        at[k] = coordinate(s, view, k);
    }
    layout_forward(s->arena, NULL, map, at, view->index);
    return view;
}

// The indices of `out` from those of `of`, whose coordinates are given as expressions over out's.
static void compose(Sema *s, View *out, const View *of, Expr *const *coordinates) {
    Subst *subst = subst_new(s->arena);
    for (int d = 0; d < of->rank; d++) subst_var(subst, of->at[d], coordinates[d]);
    for (int d = 0; d < of->buf->rank; d++) out->index[d] = subst_expr(subst, of->index[d]);
    if (of->inside) out->inside = e_both(s->arena, subst_expr(subst, of->inside), out->inside);
    if (of->piece) out->piece = subst_expr(subst, of->piece);
}

// A condition on a coordinate that had a limit and is no coordinate any more.
static void keep_limit(Sema *s, View *out, Expr *coordinate, Expr *limit) {
    if (!limit) return;
    Expr *inside = e_both(s->arena, e_ge(s->arena, coordinate, e_int(s->arena, 0)), e_lt(s->arena, coordinate, limit));
    out->inside = expr_is_int(inside, 1) ? out->inside : e_both(s->arena, out->inside, inside);
}

static bool has_limits(const View *view) {
    return view->buf->scope == SCOPE_GLOBAL;   // elsewhere an index out of range is an error
}

// ---- slices ----
static bool is_at_most(const Expr *a, const Expr *b) {
    int64_t x, y;
    return expr_equal(a, b) || (expr_const(a, &x) && expr_const(b, &y) && x <= y);
}

// Known not to be negative.
static bool is_natural(Sema *s, const Expr *e) {
    int64_t value;
    if (expr_const(e, &value)) return value >= 0;
    if (e->kind == EXPR_VAR) return e->var->kind == VAR_DIM || map_has(s->naturals, e->var);
    bool grows = e->kind == EXPR_BINARY && (e->binary.op == BIN_ADD || e->binary.op == BIN_MUL ||
                                            e->binary.op == BIN_DIV || e->binary.op == BIN_MOD);
    return grows && is_natural(s, e->binary.a) && is_natural(s, e->binary.b);
}

static bool is_min_with(const Expr *e, const Expr *a) {
    return e->kind == EXPR_CALL && e->call.op == OP_MIN && expr_equal(e->call.args[0].value, a);
}

static Expr *smaller(Sema *s, Expr *a, Expr *b) {
    if (is_min_with(b, a)) return b;
    return is_at_most(a, b) ? a : is_at_most(b, a) ? b : e_min(s->arena, a, b);
}

// The limit of a sliced dim. A coordinate from `count` on may be an element of the buffer that is not the slice's.
static Expr *limit_of_slice(Sema *s, View *out, const View *of, int dim, const ViewSlice *slice, Expr *at) {
    Expr *limit = of->limit[dim];
    bool from_zero = expr_is_int(slice->start, 0), unit = slice->step == 1;
    if (!has_limits(of)) return NULL;
    if (from_zero && unit && expr_equal(slice->count, of->shape[dim])) return limit;
    if (limit && unit && is_natural(s, slice->start))
        return smaller(s, slice->count, e_sub(s->arena, limit, slice->start));
    keep_limit(s, out, at, limit);
    bool to_the_end = is_at_most(of->shape[dim], e_times(s->arena, slice->count, slice->step));
    return from_zero && to_the_end && !limit ? NULL : slice->count;
}

const View *view_slice(Sema *s, const View *of, const ViewSlice *slices) {
    Expr *coordinates[LAYOUT_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < of->rank; d++) rank += slices[d].count != NULL;
    View *view = view_new(s, of, rank);
    view->inside = NULL;
    for (int d = 0, k = 0; d < of->rank; d++) {
        const ViewSlice *slice = &slices[d];
        coordinates[d] = slice->start;
        if (!slice->count) {
            keep_limit(s, view, slice->start, of->limit[d]);
            continue;
        }
        coordinates[d] = e_add(s->arena, slice->start, e_times(s->arena, coordinate(s, view, k), slice->step));
        view->shape[k] = slice->count;
        view->limit[k] = limit_of_slice(s, view, of, d, slice, coordinates[d]);
        view->clips[k] = slice->clips;
        k++;
    }
    compose(s, view, of, coordinates);
    return view;
}

// ---- parts of elements ----
const View *view_in_pieces(Sema *s, const View *of, int64_t ratio) {
    Expr *coordinates[LAYOUT_MAX_RANK];
    View *view = view_new(s, of, of->rank);
    int last = of->rank - 1;
    view->inside = NULL;
    for (int k = 0; k < of->rank; k++) {
        coordinates[k] = coordinate(s, view, k);
        view->shape[k] = of->shape[k];
        view->limit[k] = of->limit[k];
        view->clips[k] = of->clips[k];
    }
    view->piece = e_rem(s->arena, coordinates[last], ratio);
    coordinates[last] = e_over(s->arena, coordinates[last], ratio);
    view->shape[last] = e_times(s->arena, of->shape[last], ratio);
    if (has_limits(of)) view->limit[last] = view->shape[last];
    compose(s, view, of, coordinates);
    return view;
}

// ---- permute ----
const View *view_permute(Sema *s, const View *of, const int *order) {
    Expr *coordinates[LAYOUT_MAX_RANK];
    View *view = view_new(s, of, of->rank);
    view->inside = NULL;
    for (int k = 0; k < of->rank; k++) {
        coordinates[order[k]] = coordinate(s, view, k);
        view->shape[k] = of->shape[order[k]];
        view->limit[k] = of->limit[order[k]];
        view->clips[k] = of->clips[order[k]];
    }
    compose(s, view, of, coordinates);
    return view;
}

const View *view_transpose(Sema *s, const View *of) {
    int order[LAYOUT_MAX_RANK];
    for (int k = 0; k < of->rank; k++) order[k] = k < of->rank - 2 ? k : 2 * of->rank - 3 - k;
    return view_permute(s, of, order);
}

// ---- reshape ----
//
// Both shapes are cut where the products of the extents before the cut are equal. Between two cuts lies a group of dims
// whose elements are numbered in row-major order on both sides; so a dim that both have stays what it is.

typedef struct Product {   // constant * factors
    int64_t constant;
    bool full;   // it has no such product: it equals none
    int count;
    Expr *factors[4 * LAYOUT_MAX_RANK];
} Product;

static void multiply(Product *product, Expr *e) {
    int64_t value;
    if (expr_const(e, &value)) {
        product->full |= __builtin_mul_overflow(product->constant, value, &product->constant);
    } else if (e->kind == EXPR_BINARY && e->binary.op == BIN_MUL && product->count < COUNT_OF(product->factors) / 2) {
        multiply(product, e->binary.a);
        multiply(product, e->binary.b);
    } else if (product->count < COUNT_OF(product->factors)) {
        product->factors[product->count++] = e;
    }
}

static void drop_factor(Product *product, int k) {
    product->factors[k] = product->factors[--product->count];
}

static int find_factor(const Product *product, const Expr *e) {
    int k = 0;
    while (k < product->count && !expr_equal(product->factors[k], e)) k++;
    return k;
}

// Takes the divisor of a quotient out of the product: N / 16 * 16 is N, where N is a multiple of 16; so is N / G * G.
static bool cancel_quotient(Sema *s, Product *product, const Expr *quotient) {
    Expr *value = quotient->binary.a, *divisor = quotient->binary.b;
    int64_t by;
    if (expr_const(divisor, &by)) {
        if (by == 0 || product->constant % by != 0 || !view_divides(s, value, by)) return false;
        product->constant /= by;
        return true;
    }
    int k = find_factor(product, divisor);
    Expr *rest = e_mod(s->arena, value, divisor);
    if (k == product->count || !s->func) return false;
    if (!prove(facts_new(s->arena, s->func), e_eq(s->arena, rest, e_int(s->arena, 0)))) return false;
    drop_factor(product, k);
    return true;
}

static void cancel_quotients(Sema *s, Product *product) {
    for (int i = 0; i < product->count; i++) {
        Expr *factor = product->factors[i];
        if (!is_binary(factor, BIN_DIV) || !cancel_quotient(s, product, factor)) continue;
        drop_factor(product, find_factor(product, factor));
        multiply(product, factor->binary.a);
        i = -1;
    }
}

static Product product_of(Sema *s, Expr *const *extents, int count) {
    Product product = {.constant = 1};
    for (int i = 0; i < count; i++) multiply(&product, extents[i]);
    cancel_quotients(s, &product);
    return product;
}

static void cancel_common(Product *a, Product *b) {
    for (int i = 0; i < a->count; i++) {
        int k = find_factor(b, a->factors[i]);
        if (k == b->count) continue;
        drop_factor(b, k);
        drop_factor(a, i--);
    }
}

static Expr *expr_of(Sema *s, const Product *product) {
    Expr *e = e_int(s->arena, product->constant);
    for (int i = 0; i < product->count; i++) e = e_mul(s->arena, e, product->factors[i]);
    return e;
}

static Expr *size_of(Sema *s, Expr *const *extents, int count) {
    Expr *size = e_int(s->arena, 1);
    for (int i = 0; i < count; i++) size = e_mul(s->arena, size, extents[i]);
    return size;
}

// ---- products that an assumption makes equal ----
//
//     assume(W == H * 72)      [M, W] has as many elements as [M, H, 72]
enum { MOST_EXCHANGES = 4 };

static bool exchange_one(Sema *s, const Expr *condition, Product *x, Product *y, int left);

// Puts `by` in the place of `what` in the product.
static bool exchange(Product *product, const Product *what, const Product *by) {
    Product rest = *product;
    if (what->full || by->full || what->constant == 0 || rest.constant % what->constant) return false;
    for (int i = 0; i < what->count; i++) {
        int k = find_factor(&rest, what->factors[i]);
        if (k == rest.count) return false;
        drop_factor(&rest, k);
    }
    if (rest.count + by->count > COUNT_OF(rest.factors)) return false;
    if (__builtin_mul_overflow(rest.constant / what->constant, by->constant, &rest.constant)) return false;
    for (int i = 0; i < by->count; i++) rest.factors[rest.count++] = by->factors[i];
    *product = rest;
    return true;
}

static bool products_agree(Sema *s, Product x, Product y, int left) {
    if (x.full || y.full) return false;
    cancel_common(&x, &y);
    if (x.count + y.count == 0) return x.constant == y.constant;
    for (int i = 0; left && s->func && i < s->func->body.count; i++) {
        const Stmt *stmt = s->func->body.items[i];
        if (stmt->kind == STMT_ASSUME && exchange_one(s, stmt->assume, &x, &y, left)) return true;
    }
    return left && s->func && s->func->when && exchange_one(s, s->func->when, &x, &y, left);
}

static bool exchange_one(Sema *s, const Expr *condition, Product *x, Product *y, int left) {
    if (is_binary(condition, BIN_LOGICAL_AND))
        return exchange_one(s, condition->binary.a, x, y, left) || exchange_one(s, condition->binary.b, x, y, left);
    if (!is_binary(condition, BIN_EQ) || !type_is_int(condition->binary.a->type)) return false;
    Product sides[] = {product_of(s, &condition->binary.a, 1), product_of(s, &condition->binary.b, 1)};
    for (int from = 0; from < 2; from++) {
        Product a = *x, b = *y;
        if (exchange(&a, &sides[from], &sides[!from]) && products_agree(s, a, *y, left - 1)) return true;
        if (exchange(&b, &sides[from], &sides[!from]) && products_agree(s, *x, b, left - 1)) return true;
    }
    return false;
}

static bool sizes_agree(Sema *s, Expr *const *a, int count_a, Expr *const *b, int count_b) {
    Product x = product_of(s, a, count_a), y = product_of(s, b, count_b);
    if (products_agree(s, x, y, MOST_EXCHANGES)) return true;
    if (x.full || y.full) return false;
    cancel_common(&x, &y);
    if (x.count + y.count == 0 || !s->func) return false;
    const Facts *facts = facts_new(s->arena, s->func);
    return prove(facts, e_eq(s->arena, expr_of(s, &x), expr_of(s, &y))) ||
           prove(facts, e_eq(s->arena, size_of(s, a, count_a), size_of(s, b, count_b)));
}

// The number of an element of the group in row-major order.
static Expr *number_in_group(Sema *s, const View *view, int first, int count) {
    Expr *number = e_int(s->arena, 0);
    for (int k = first; k < first + count; k++)
        number = e_add(s->arena, e_mul(s->arena, number, view->shape[k]), coordinate(s, view, k));
    return number;
}

static void split_number(Sema *s, Expr *number, Expr *const *extents, int count, Expr **digits) {
    for (int d = count - 1; d >= 0; d--) {
        digits[d] = d ? e_mod(s->arena, number, extents[d]) : number;
        if (d) number = e_div(s->arena, number, extents[d]);
    }
}

static void reshape_group(Sema *s, View *out, const View *of, int from, int from_count, int to, int to_count,
                          Expr **coordinates) {
    bool one = from_count == 1 && to_count == 1;
    split_number(s, number_in_group(s, out, to, to_count), of->shape + from, from_count, coordinates + from);
    for (int d = from; d < from + from_count; d++)
        if (one) out->limit[to] = of->limit[d];
        else keep_limit(s, out, coordinates[d], of->limit[d]);
    for (int k = to + 1; k < to + to_count && has_limits(of); k++) out->limit[k] = out->shape[k];
}

const View *view_reshape(Sema *s, const View *of, int rank, Expr *const *shape) {
    Expr *coordinates[LAYOUT_MAX_RANK];
    if (!sizes_agree(s, of->shape, of->rank, shape, rank)) return NULL;
    View *view = view_new(s, of, rank);
    view->inside = NULL;
    for (int k = 0; k < rank; k++) view->shape[k] = shape[k];
    int from = 0, to = 0;
    for (int end = 1; end <= of->rank; end++) {
        for (int last = to; last <= rank; last++) {
            bool whole = end == of->rank && last == rank;
            bool cut = whole || (end < of->rank && last > to && last < rank &&
                                 sizes_agree(s, of->shape + from, end - from, shape + to, last - to));
            if (!cut) continue;
            reshape_group(s, view, of, from, end - from, to, last - to, coordinates);
            from = end;
            to = last;
            break;
        }
    }
    compose(s, view, of, coordinates);
    return view;
}

bool view_divides(Sema *s, Expr *extent, int64_t by) {
    int64_t value;
    if (expr_const(extent, &value)) return value % by == 0;
    return by == 1 || (s->func && multiple_of(facts_new(s->arena, s->func), extent) % by == 0);
}

// ---- elements ----

Expr **view_indices(Sema *s, const View *view, Expr *const *at, Expr **inside) {
    Place place = view_place(s, view, at);
    *inside = place.inside;
    return place.indices;
}

Place view_place(Sema *s, const View *view, Expr *const *at) {
    Place place = {
        .buf = view->buf, .count = view->buf->rank, .cta = view->cta, .is_cast = view->is_cast, .cast = view->cast};
    Expr **indices = NEW_ARRAY(s->arena, Expr *, view->buf->rank);
    Subst *subst = subst_new(s->arena);
    for (int k = 0; k < view->rank; k++) subst_var(subst, view->at[k], at[k]);
    for (int d = 0; d < view->buf->rank; d++) indices[d] = subst_expr(subst, view->index[d]);
    View limits = {0};
    for (int k = 0; k < view->rank; k++) keep_limit(s, &limits, at[k], view->limit[k]);
    place.inside = limits.inside;
    if (view->inside) place.inside = e_both(s->arena, subst_expr(subst, view->inside), place.inside);
    if (view->piece) place.piece = subst_expr(subst, view->piece);
    place.indices = indices;
    return place;
}

// ---- as regions ----

// index == start + coordinate: the start; NULL: it is not of that form.
static Expr *start_along(Sema *s, Expr *index, const Var *coordinate) {
    if (index->kind == EXPR_VAR && index->var == coordinate) return e_int(s->arena, 0);
    if (index->kind != EXPR_BINARY || index->binary.op != BIN_ADD) return NULL;
    Expr *a = index->binary.a, *b = index->binary.b;
    bool left = expr_uses_var(a, coordinate);
    if (left && expr_uses_var(b, coordinate)) return NULL;
    Expr *start = start_along(s, left ? a : b, coordinate);
    return start ? e_add(s->arena, left ? b : a, start) : NULL;
}

int64_t view_step(Sema *s, const View *view, int index, int dim) {
    Subst *subst = subst_new(s->arena);
    subst_var(subst, view->at[dim], e_plus(s->arena, coordinate(s, view, dim), 1));
    int64_t step;
    Expr *next = subst_expr(subst, view->index[index]);
    if (!s->func) return 0;
    Expr *difference = simplify_expr(s->arena, facts_new(s->arena, s->func), e_sub(s->arena, next, view->index[index]));
    return expr_const(difference, &step) ? step : 0;
}

static int coordinates_in(const View *view, const Expr *index, int *dim) {
    int count = 0;
    for (int k = 0; k < view->rank; k++)
        if (expr_uses_var(index, view->at[k])) *dim = k, count++;
    return count;
}

// The extent of the dim, where the view may end before the tile.
static Expr *clipped_extent(Sema *s, const View *view, int dim, int64_t tile) {
    Expr *extent = e_int(s->arena, tile), *limit = view->limit[dim] ? view->limit[dim] : view->shape[dim];
    return view->limit[dim] || view->clips[dim] ? smaller(s, extent, limit) : extent;
}

// Where the element lies whose coordinate is `coordinate` along the dim and 0 along the others.
static Expr **indices_along(Sema *s, const View *view, int dim, int64_t coordinate) {
    Expr *at[LAYOUT_MAX_RANK], *inside;
    for (int k = 0; k < view->rank; k++) at[k] = e_int(s->arena, k == dim ? coordinate : 0);
    return view_indices(s, view, at, &inside);
}

static const char *place_text(Sema *s, const View *view, int dim, int64_t coordinate) {
    Expr **indices = indices_along(s, view, dim, coordinate);
    StrBuf text;
    sb_init(&text, s->arena);
    for (int d = 0; d < view->buf->rank; d++) sb_printf(&text, "%s%s", d ? ", " : "[", expr_text(s->arena, indices[d]));
    sb_char(&text, ']');
    return sb_text(&text);
}

// From the element there to the next one along the dim it is as far as from the first one to the second.
static bool steps_alike(Sema *s, const View *view, int dim, int64_t coordinate) {
    Expr **first = indices_along(s, view, dim, 0), **second = indices_along(s, view, dim, 1);
    Expr **from = indices_along(s, view, dim, coordinate), **to = indices_along(s, view, dim, coordinate + 1);
    for (int d = 0; d < view->buf->rank; d++)
        if (!expr_equal(e_sub(s->arena, second[d], first[d]), e_sub(s->arena, to[d], from[d]))) return false;
    return true;
}

// The first two neighbours in a dim of the view that lie otherwise than those before, and where they lie.
const char *view_neighbours(Sema *s, const View *view, int dim) {
    enum { MOST = 1 << 12 };
    int64_t extent, first = 1;
    dim = dim < 0 ? view->rank - 1 : dim;
    bool known = expr_const(view->shape[dim], &extent) && extent <= MOST;
    while (known && first + 1 < extent && steps_alike(s, view, dim, first)) first++;
    if (!known || first + 1 >= extent) first = 0;
    return arena_printf(s->arena, "neighbours along its dim %d are %s and %s of '%s'", dim,
                        place_text(s, view, dim, first), place_text(s, view, dim, first + 1), view->buf->name);
}

// Of the view, over coordinates within the tile: (i * 64 + r) / 64 is i where r is below 64.
static Expr *simple_in_tile(Sema *s, const View *view, Expr *e, const int64_t *tiles) {
    Facts *facts = known_facts(s);
    int mark = facts_mark(facts);
    for (int k = 0; k < view->rank; k++) {
        Iter iter = iter_new(s->arena, view->at[k], e_int(s->arena, tiles[k]));
        facts_iter(facts, &iter);
    }
    Expr *simpler = simplify_expr(s->arena, facts, e);
    facts_release(facts, mark);
    return simpler;
}

const View *view_simple(Sema *s, const View *view, const int64_t *tiles) {
    View *simple = arena_copy(s->arena, view, sizeof *view);
    for (int d = 0; d < view->buf->rank; d++) simple->index[d] = simple_in_tile(s, view, view->index[d], tiles);
    if (view->inside) simple->inside = simple_in_tile(s, view, view->inside, tiles);
    if (view->inside && expr_is_int(simple->inside, 1)) simple->inside = NULL;
    return simple;
}

// The coordinates that the index uses, of which it is *start plus *dim; NULL: it is no such sum.
static int read_index(Sema *s, const View *view, Expr *index, int *dim, Expr **start) {
    int coordinates = coordinates_in(view, index, dim);
    *start = coordinates ? start_along(s, index, view->at[*dim]) : index;
    return coordinates;
}

// Why no region is this view; NULL: *out is one.
static const char *region_dims(Sema *s, const View *view, const int64_t *tiles, RegionDim *dims, int *kept) {
    if (view->cta) return "it lies in another CTA";
    if (view->is_cast)
        return arena_printf(s->arena, "its elements are %s, and those in memory %s", type_text(view->cast),
                            type_text(view->buf->type));
    int used[LAYOUT_MAX_RANK] = {0}, count = 0;
    for (int d = 0; d < view->buf->rank; d++) {
        int dim = -1;
        Expr *start;
        int coordinates = read_index(s, view, view->index[d], &dim, &start);
        if (!start || coordinates > 1)
            coordinates = read_index(s, view, simple_in_tile(s, view, view->index[d], tiles), &dim, &start);
        if (!start || coordinates > 1 || (coordinates && used[dim]++)) return view_neighbours(s, view, dim);
        dims[d] = (RegionDim){.start = start, .tile = 1};
        if (!coordinates) continue;
        dims[d].tile = tiles[dim];
        dims[d].extent = clipped_extent(s, view, dim, tiles[dim]);
        kept[count++] = dim;
    }
    for (int k = 0; k < view->rank; k++)
        if (!used[k]) return arena_printf(s->arena, "no dim of '%s' is its dim %d", view->buf->name, k);
    if (!view->inside || expr_is_int(simple_in_tile(s, view, view->inside, tiles), 1)) return NULL;
    return arena_printf(s->arena, "some of '%s' inside its bounds is not its own", view->buf->name);
}

Region *view_region(Sema *s, const View *view, const int64_t *tiles, Span span, const char **why) {
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    int kept[LAYOUT_MAX_RANK], rank = view->rank;
    *why = region_dims(s, view, tiles, dims, kept);
    if (*why) return NULL;
    bool exchanged = rank >= 2 && kept[rank - 2] == rank - 1 && kept[rank - 1] == rank - 2;
    for (int k = 0; k < rank - 2 * exchanged; k++) {
        if (kept[k] == k) continue;
        *why = arena_printf(s->arena, "its dims are those of '%s' in another order", view->buf->name);
        return NULL;
    }
    Region *region = region_new(s->arena, view->buf, dims, exchanged, place_of(s, span));
    *why = view->buf->im2col ? im2col_region_problem(region) : NULL;
    return *why ? NULL : region;
}

// ---- joined dims of tensors ----
//
// x[r / S, r % S, d] of x: [B, S, D] is row r of im2col(x, window(S, 1)), the matrix [B * S, 1, D]: one tap, at each
// position. As the tensor is dense, TMA has a map
// for it of two dims, and rows before and behind it are zeros.

// The row of which the indices before the last are the digits; NULL: of none.
static Expr *joined_row(Sema *s, const View *view, const Buf *joined) {
    int last = view->buf->rank - 1;
    Expr *at[LAYOUT_MAX_RANK] = {0}, *row = view->index[last - 1];
    if (!is_binary(row, BIN_MOD)) return NULL;
    at[0] = row->binary.a;
    for (int d = 1; d < last; d++) at[d] = e_int(s->arena, 0);
    at[last] = view->index[last];
    Expr **indices = im2col_indices(s->arena, joined, at);
    for (int d = 0; d < last; d++)
        if (!expr_equal(substitute_choices(s, indices[d]), view->index[d])) return NULL;
    return at[0];
}

Region *view_joined_region(Sema *s, const View *view, const int64_t *tiles, Span span) {
    Buf *buf = view->buf;
    Window windows[MOST_WINDOWS];
    RegionDim dims[LAYOUT_MAX_RANK] = {0};
    int count = buf->rank - 2, last = buf->rank - 1;
    bool tensor = buf->scope == SCOPE_GLOBAL && buf->is_param && !buf->im2col && count >= 1 && count <= MOST_WINDOWS;
    if (!tensor || buf->strides || view->rank != 2 || view->cta || view->is_cast || view->inside) return NULL;
    for (int i = 0; i < count; i++)
        windows[i] = (Window){.positions = buf->shape[i + 1], .taps = 1, .stride = 1, .dilation = 1};
    Buf *joined = im2col_new(s->arena, buf, count, windows, place_of(s, span));
    Expr *row = im2col_problem(joined) ? NULL : joined_row(s, view, joined);
    if (!row) return NULL;
    for (int d = 1; d < last; d++) dims[d] = (RegionDim){.start = e_int(s->arena, 0), .tile = 1};
    for (int k = 0; k < 2; k++) {
        Expr *start = start_along(s, k ? view->index[last] : row, view->at[k]);
        bool other = expr_uses_var(k ? view->index[last] : row, view->at[!k]);
        if (!start || other) return NULL;
        dims[k * last] = (RegionDim){start, clipped_extent(s, view, k, tiles[k]), tiles[k]};
    }
    return region_new(s->arena, joined, dims, false, place_of(s, span));
}
