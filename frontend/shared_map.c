// Shared buffers in the coordinates of the views that products read.
//
// A product reads a region of a buffer. A view that is none may be made one: its elements are those of another buffer, of
// as many, in which the view's two dims are dims, and the buffer as it was declared is a view of that one.
//
//     shared t: f16[4, 16, 64];                    =>    shared t: f16[64, 64];         t[i, j, k] is now t[i * 16 + j, k]
//     copy(x[b, 0, 0, 0], t);                            copies of x[b, i, :, :] to t[i * 16 +: 16, :]
//     gemm(reshape(t, 64, 64), w, acc);                  gemm(t, w, acc);
//
//     gemm(t[0 +: 32 step 2, :], w, acc);          of t: f16[64, 64], which becomes [2, 32, 64]
//
// So nothing is moved, and all that follows (slots, swizzles, TMA, wgmma) sees a tile like any other. The digits of the
// view's coordinates, and what is left of each dim, are digits of the dim: a map of bits and mixed radix (Layout).
//
// A product comes behind the declaration that it decides about. So a kernel in which one asks is made again, with that
// buffer so laid; and if something else cannot be said then, as it was. Other errors are reported of the kernel as it was.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/rewrite.h"
#include <stdlib.h>

// ---- declarations ----

const Layout *shared_map_of(Sema *s, const Node *declaration, int rank, Expr *const *shape) {
    if (!s->maps || s->maps->state != MAPS_TAKEN) return NULL;
    VEC_EACH (const SharedMap, known, &s->maps->all) {
        bool fits = known->declaration == declaration && known->map->rank_in == rank;
        for (int d = 0; d < rank && fits; d++) fits = expr_is_int(shape[d], known->map_shape[d]);
        if (fits) return known->map;
    }
    return NULL;
}

Buf *shared_map_buffer(Sema *s, const Layout *map, const char *name, Type type, Span loc) {
    return buf_new_const(s->arena, name, SCOPE_SHARED, type, map->rank_out, map->out_shape, loc);
}

void shared_map_declared(Sema *s, const Buf *buf, const Node *declaration) {
    if (s->maps) map_put(s->maps->declarations, buf, (void *)declaration);
}

// ---- the digits of a view ----

typedef struct Digit {   // of a dim of the buffer: (index / stride) % extent is (coordinate / weight) % extent
    int dim, coordinate;
    int64_t stride, extent, weight;
} Digit;

typedef struct Digits {
    int count;
    Digit items[LAYOUT_MAX_MODES];
} Digits;

// How far the view's element at this coordinate lies from its first one; false: it is not known.
static bool offsets_at(Sema *s, const View *view, int coordinate, int64_t at, int64_t *out) {
    Subst *there = subst_new(s->arena), *first = subst_new(s->arena);
    for (int k = 0; k < view->rank; k++) {
        subst_var(there, view->at[k], e_int(s->arena, k == coordinate ? at : 0));
        subst_var(first, view->at[k], e_int(s->arena, 0));
    }
    for (int d = 0; d < view->buf->rank; d++) {
        out[d] = 0;
        if (!expr_uses_var(view->index[d], view->at[coordinate])) continue;
        Expr *difference = e_sub(s->arena, subst_expr(there, view->index[d]), subst_expr(first, view->index[d]));
        if (!expr_const(simplify_expr(s->arena, known_facts(s), difference), &out[d])) return false;
    }
    return true;
}

static bool is_multiple(const int64_t *offsets, const int64_t *of, int64_t by, int rank) {
    for (int d = 0; d < rank; d++)
        if (offsets[d] != of[d] * by) return false;
    return true;
}

// The dim in which alone the offsets are not 0; -1: there is none.
static int only_dim(const int64_t *offsets, int rank) {
    int dim = -1;
    for (int d = 0; d < rank; d++) {
        if (!offsets[d]) continue;
        if (dim >= 0 || offsets[d] < 0) return -1;
        dim = d;
    }
    return dim;
}

static const char *read_digits(Sema *s, const View *view, int coordinate, int64_t tile, Digits *out) {
    static const char *const none = "its coordinates are no digits of the buffer's";
    int64_t step[LAYOUT_MAX_RANK], next[LAYOUT_MAX_RANK];
    int rank = view->buf->rank;
    for (int64_t weight = 1; weight < tile;) {
        if (!offsets_at(s, view, coordinate, weight, step)) return none;
        int dim = only_dim(step, rank);
        int64_t extent = 1;
        if (dim < 0 || out->count == LAYOUT_MAX_MODES) return none;
        for (bool alike = true; alike && weight * extent < tile;) {
            if (!offsets_at(s, view, coordinate, weight * extent, next)) return none;
            alike = is_multiple(next, step, extent, rank);
            extent += alike;
        }
        if (tile % (weight * extent)) return none;
        out->items[out->count++] = (Digit){dim, coordinate, step[dim], extent, weight};
        weight *= extent;
    }
    return NULL;
}

static int by_place(const void *a, const void *b) {
    const Digit *one = a, *other = b;
    if (one->dim != other->dim) return one->dim - other->dim;
    return one->stride < other->stride ? -1 : one->stride > other->stride;
}

// ---- the buffer that they make ----

typedef struct Rest {   // a digit of the buffer that the view leaves at one value
    int dim;
    int64_t extent;
} Rest;

typedef struct Rests {
    int count;
    Rest items[LAYOUT_MAX_RANK];
} Rests;

static bool add_rest(Rests *rests, int dim, int64_t extent, bool keep) {
    if (extent == 1 && !keep) return true;
    if (rests->count == LAYOUT_MAX_RANK - 2) return false;
    rests->items[rests->count++] = (Rest){dim, extent};
    return true;
}

// What is left of each dim; digits are in the order of their places.
static const char *find_rests(const Buf *buf, const Digits *digits, Rests *rests) {
    bool fine = true;
    for (int d = 0; d < buf->rank; d++) {
        int64_t place = 1, extent = buf_extent(buf, d);
        for (int i = 0; i < digits->count; i++) {
            const Digit *digit = &digits->items[i];
            if (digit->dim != d) continue;
            if (digit->stride % place) return "some of its elements are one element of the buffer";
            fine &= add_rest(rests, d, digit->stride / place, false);
            place = digit->stride * digit->extent;
        }
        if (extent % place) return "it takes no whole number of steps of a dim";
        fine &= add_rest(rests, d, extent / place, buf->stage_dims > d);
        if (buf->stage_dims > d && extent / place != extent) return "it joins slots";
    }
    return fine ? NULL : "it leaves too many parts of the buffer";
}

// The coordinate along which neighbours are neighbours in a row of the buffer is the last dim.
static int fast_coordinate(const Buf *buf, const Digits *digits) {
    for (int i = 0; i < digits->count; i++) {
        const Digit *digit = &digits->items[i];
        if (digit->dim == buf->rank - 1 && digit->stride == 1) return digit->coordinate;
    }
    return 1;
}

static const Layout *map_of(Sema *s, const Buf *buf, const Digits *digits, const Rests *rests) {
    Layout *map = layout_new(s->arena, buf->rank, rests->count + 2);
    int fast = fast_coordinate(buf, digits), rest = 0, next = 0;
    for (int d = 0; d < buf->rank; d++) {
        for (int64_t place = 1, own; place < buf_extent(buf, d); place *= own) {
            const Digit *digit = &digits->items[next];
            bool takes = next < digits->count && digit->dim == d && digit->stride == place;
            own = takes ? digit->extent : rests->items[rest].extent;
            if (takes) layout_add(map, d, own, digit->weight, rests->count + (digit->coordinate == fast));
            else layout_add(map, d, own, 1, rest);
            takes ? next++ : rest++;
        }
        rest += rest < rests->count && rests->items[rest].dim == d;   // one slot
    }
    return layout_finish(map);
}

const char *shared_map_ask(Sema *s, const View *view, const int64_t *tiles) {
    const Buf *buf = view->buf;
    const Node *declaration = s->maps ? map_get(s->maps->declarations, buf) : NULL;
    Digits digits = {0};
    Rests rests = {0};
    if (buf->scope != SCOPE_SHARED || view->rank != 2 || view->cta || view->is_cast || view->inside)
        return "it is no view of a shared tile with two dims";
    bool placed = !declaration || shared_map_of(s, declaration, buf->rank, buf->shape);
    if (placed) return "the buffer's elements have their places already";
    for (int k = 0; k < 2; k++) {
        const char *why = read_digits(s, view, k, tiles[k], &digits);
        if (why) return why;
    }
    qsort(digits.items, (size_t)digits.count, sizeof(Digit), by_place);
    const char *why = find_rests(buf, &digits, &rests);
    const Layout *map = why ? NULL : map_of(s, buf, &digits, &rests);
    if (!map) return why ? why : "it has too many digits";
    if (s->maps->state == MAPS_REFUSED) return "where it is one, something else in this kernel cannot be named";
    SharedMap made = {.declaration = declaration, .map = map};
    for (int d = 0; d < buf->rank; d++) made.map_shape[d] = buf_extent(buf, d);
    vec_push(s->arena, &s->maps->asked, made);
    return NULL;
}

// ---- making a kernel ----

bool shared_maps_again(Sema *s, SharedMaps *maps, int errors) {
    int left = diag_errors(s->sink) - errors - maps->asked.count;   // that are of something else
    bool asked = maps->asked.count > 0;
    if (maps->state != MAPS_TAKEN || (!asked && (!maps->all.count || !left))) return false;
    VEC_EACH (const SharedMap, map, &maps->asked) vec_push(s->arena, &maps->all, *map);
    if (!asked) maps->state = left > maps->others ? MAPS_REFUSED : MAPS_SILENT;
    maps->others = left;
    maps->asked.count = 0;
    return true;
}
