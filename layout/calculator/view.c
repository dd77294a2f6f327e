#include "layout/calculator/view.h"
#include <string.h>

// ---- dims ----

Dim dim_named(const char *name) {
    return (Dim){.factor = 1, .count = 1, .names = {name}};
}

static void insert_name(LayoutContext *cx, Dim *d, const char *name) {
    if (d->count == DIM_MAX_FACTORS) {
        layout_refuse(cx, "a dim has more than %d run-time factors", DIM_MAX_FACTORS);
        return;
    }
    int at = d->count++;
    for (; at > 0 && strcmp(d->names[at - 1], name) > 0; at--) d->names[at] = d->names[at - 1];
    d->names[at] = name;
}

Dim dim_mul(LayoutContext *cx, Dim a, Dim b) {
    a.factor = layout_mul(cx, a.factor, b.factor);
    for (int i = 0; i < b.count; i++) insert_name(cx, &a, b.names[i]);
    return a.factor ? a : dim_known(0);
}

bool dim_divides(Dim a, int64_t divisor, Dim *quotient) {
    *quotient = a;
    quotient->factor = divisor ? a.factor / divisor : 0;
    return divisor > 0 && a.factor % divisor == 0;
}

Dim dim_ceil_div(LayoutContext *cx, Dim a, int64_t divisor) {
    Dim quotient;
    if (divisor < 1) return layout_refuse(cx, "division by %lld", (long long)divisor), a;
    if (dim_divides(a, divisor, &quotient)) return quotient;
    if (dim_is_known(a)) return dim_known(layout_ceil_div(a.factor, divisor));
    StrBuf name;
    sb_init(&name, cx->arena);
    sb_str(&name, "ceildiv(");
    dim_print(&name, a);
    sb_printf(&name, ",%lld)", (long long)divisor);
    return dim_named(name.text);
}

bool dim_equal(Dim a, Dim b) {
    if (a.factor != b.factor || a.count != b.count) return false;
    for (int i = 0; i < a.count; i++)
        if (strcmp(a.names[i], b.names[i])) return false;
    return true;
}

void dim_print(StrBuf *out, Dim d) {
    if (d.factor != 1 || !d.count) tuple_print_integer(out, d.factor);
    for (int i = 0; i < d.count; i++) {
        if (i || d.factor != 1) sb_char(out, '*');
        sb_str(out, d.names[i]);
    }
}

static bool is_one(Dim d) {
    return d.factor == 1 && d.count == 0;
}

// ---- views ----

View view_strided(LayoutContext *cx, const Dim *shape, const Dim *stride, int rank) {
    View v = {.rank = rank};
    if (rank < 1 || rank > VIEW_MAX_RANK) return layout_refuse(cx, "views have rank 1 to %d", VIEW_MAX_RANK), v;
    for (int d = 0; d < rank; d++) {
        v.shape[d] = shape[d];
        v.stride[d] = stride[d];
        v.element[d] = 1;
    }
    return v;
}

View view_row_major(LayoutContext *cx, const Dim *shape, int rank) {
    Dim stride[VIEW_MAX_RANK], size = dim_known(1);
    for (int d = rank < VIEW_MAX_RANK ? rank - 1 : VIEW_MAX_RANK - 1; d >= 0; d--) {
        stride[d] = size;
        size = dim_mul(cx, size, shape[d]);
    }
    return view_strided(cx, shape, stride, rank);
}

static void add_offset(LayoutContext *cx, View *v, Dim term) {
    if (term.factor == 0) return;
    for (int i = 0; i < v->terms; i++) {   // like terms are added
        Dim same = v->offset[i];
        same.factor = term.factor;
        if (!dim_equal(same, term)) continue;
        v->offset[i].factor = layout_sum(cx, v->offset[i].factor, term.factor);
        return;
    }
    if (v->terms == (int)(sizeof v->offset / sizeof v->offset[0])) layout_refuse(cx, "an offset of too many terms");
    else v->offset[v->terms++] = term;
}

View view_tile(LayoutContext *cx, View v, const int64_t *sizes, const Dim *coords) {
    for (int d = 0; d < v.rank; d++) {
        if (sizes[d] < 1) layout_refuse(cx, "a tile's extent is at least 1");
        Dim start = dim_mul(cx, coords[d], dim_known(sizes[d]));
        add_offset(cx, &v, dim_mul(cx, start, v.stride[d]));
        v.shape[d] = dim_known(sizes[d]);
    }
    return v;
}

View view_with_strides(LayoutContext *cx, View v, const int64_t *strides) {
    for (int d = 0; d < v.rank; d++) {
        if (dim_is_known(v.stride[d]) && v.stride[d].factor != strides[d])
            layout_refuse(cx, "the stride of dim %d is %lld, not %lld", d, (long long)v.stride[d].factor,
                          (long long)strides[d]);
        v.stride[d] = dim_known(strides[d]);
    }
    return v;
}

// Extent / size and stride * size of each dim.
static bool regroup(LayoutContext *cx, View *v, const int64_t *sizes) {
    for (int d = 0; d < v->rank; d++) {
        Dim quotient;
        if (!dim_is_known(v->shape[d]))
            return layout_refuse(cx, "dim %d has an extent known only at run time: tile it first", d);
        if (!dim_divides(v->shape[d], sizes[d], &quotient))
            return layout_refuse(cx, "%lld does not divide the extent of dim %d", (long long)sizes[d], d);
        v->shape[d] = quotient;
        v->stride[d] = dim_mul(cx, v->stride[d], dim_known(sizes[d]));
    }
    return true;
}

View view_vectorize(LayoutContext *cx, View v, const int64_t *sizes) {
    if (!regroup(cx, &v, sizes)) return v;
    for (int d = 0; d < v.rank; d++) v.element[d] = layout_mul(cx, v.element[d], sizes[d]);
    return v;
}

View view_distribute(LayoutContext *cx, View v, const int64_t *threads, const char *thread, Dim *coords) {
    View parent = v;
    if (!regroup(cx, &v, threads)) return v;
    int64_t inner = 1;
    for (int d = v.rank - 1; d >= 0; d--) {
        Dim coord = dim_known(0);
        if (threads[d] > 1) {
            const char *index = inner == 1 ? arena_printf(cx->arena, "(%s %% %lld)", thread, (long long)threads[d])
                                           : arena_printf(cx->arena, "(%s / %lld %% %lld)", thread, (long long)inner,
                                                          (long long)threads[d]);
            coord = dim_named(index);
        }
        inner = layout_mul(cx, inner, threads[d]);
        add_offset(cx, &v, dim_mul(cx, coord, parent.stride[d]));
        if (coords) coords[d] = coord;
    }
    return v;
}

View view_reshape(LayoutContext *cx, View v, const Dim *shape, int rank) {
    Dim reach = dim_known(1), size = dim_known(1);
    for (int d = v.rank - 1; d >= 0; d--) {
        if (!is_one(v.shape[d]) && !dim_equal(v.stride[d], reach))
            return layout_refuse(cx, "reshape: dim %d is not dense", d), v;
        reach = dim_mul(cx, reach, v.shape[d]);
    }
    for (int d = 0; d < rank && d < VIEW_MAX_RANK; d++) size = dim_mul(cx, size, shape[d]);
    if (!dim_equal(size, reach)) return layout_refuse(cx, "reshape: the sizes are not provably equal"), v;
    View result = view_row_major(cx, shape, rank);
    result.terms = v.terms;
    memcpy(result.offset, v.offset, sizeof v.offset);
    return result;
}

Cute view_layout(LayoutContext *cx, View v) {
    Cute modes[VIEW_MAX_RANK];
    for (int d = 0; d < v.rank; d++) {
        if (!dim_is_known(v.shape[d]) || !dim_is_known(v.stride[d]))
            return layout_refuse(cx, "dim %d is known only at run time", d), cute_leaf(1, 0);
        modes[d] = cute_leaf(v.shape[d].factor, v.stride[d].factor);
    }
    Cute layout = cute_tuple(cx, modes, v.rank);
    return cute_make(cx, cute_shape(cx, layout), cute_stride(cx, layout));
}

void view_print(StrBuf *out, View v) {
    for (int half = 0; half < 2; half++) {
        sb_str(out, half ? ":(" : "(");
        for (int d = 0; d < v.rank; d++) {
            if (d) sb_char(out, ',');
            dim_print(out, half ? v.stride[d] : v.shape[d]);
        }
        sb_char(out, ')');
    }
    for (int i = 0; i < v.terms; i++) {
        sb_str(out, " + ");
        dim_print(out, v.offset[i]);
    }
}
