// Functions of the calculator on shape:stride layouts.
#include "layout/calculator/functions.h"

#define UNARY(name, op)                                                                                                \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        return of_cute(op(c->cx, as_cute(c, v[0])));                                                                   \
    }
UNARY(f_flatten, cute_flatten)
UNARY(f_right_inverse, cute_right_inverse)
UNARY(f_left_inverse, cute_left_inverse)

#define BY_PROFILE(name, plain, by)                                                                                    \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        Cute a = as_cute(c, v[0]);                                                                                     \
        return of_cute(count > 1 ? by(c->cx, a, as_tuple(c, v[1])) : plain(c->cx, a));                                 \
    }
BY_PROFILE(f_coalesce, cute_coalesce, cute_coalesce_by)
BY_PROFILE(f_filter, cute_filter, cute_filter_by)

#define WITH_TILER(name, op)                                                                                           \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        Swizzled a = as_swizzled(c, v[0]);                                                                             \
        Tiler tiler = as_tiler(c, v[1]);                                                                               \
        if (c->cx->failed) return v[0];                                                                                \
        a.layout = op(c->cx, a.layout, tiler);                                                                         \
        return of_swizzled(a);                                                                                         \
    }
WITH_TILER(f_logical_divide, cute_logical_divide)
WITH_TILER(f_zipped_divide, cute_zipped_divide)
WITH_TILER(f_tiled_divide, cute_tiled_divide)
WITH_TILER(f_flat_divide, cute_flat_divide)
WITH_TILER(f_logical_product, cute_logical_product)
WITH_TILER(f_zipped_product, cute_zipped_product)
WITH_TILER(f_tiled_product, cute_tiled_product)
WITH_TILER(f_flat_product, cute_flat_product)

#define BINARY(name, op)                                                                                               \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        Cute a = as_cute(c, v[0]), b = as_cute(c, v[1]);                                                               \
        return c->cx->failed ? v[0] : of_cute(op(c->cx, a, b));                                                        \
    }
BINARY(f_blocked_product, cute_blocked_product)
BINARY(f_raked_product, cute_raked_product)

CalcValue f_composition(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_SWIZZLE) {
        Swizzled a = as_swizzled(c, v[1]);
        if (a.swizzle.bits) layout_refuse(c->cx, "the layout has a swizzle already");
        a.swizzle = v[0].swizzle;
        return of_swizzled(a);
    }
    if (v[0].kind == CALC_LINEAR) return of_linear(linear_compose(c->cx, as_linear(c, v[1]), v[0].linear));
    Swizzled a = as_swizzled(c, v[0]);
    Tiler b = as_tiler(c, v[1]);
    if (c->cx->failed) return v[0];
    a.layout = cute_compose_tiler(c->cx, a.layout, b);
    return of_swizzled(a);
}

CalcValue f_complement(Calc *c, const CalcValue *v, int count) {
    Cute a = as_cute(c, v[0]);
    return of_cute(cute_complement(c->cx, a, count > 1 ? as_tuple(c, v[1]) : tuple_int(cute_cosize(c->cx, a))));
}

CalcValue f_size(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_TUPLE) return of_int(tuple_product(c->cx, v[0].tuple));
    return of_int(cute_size(c->cx, as_swizzled(c, v[0]).layout));
}
CalcValue f_cosize(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(cute_cosize(c->cx, as_cute(c, v[0])));
}
CalcValue f_last(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(cute_cosize(c->cx, as_cute(c, v[0])) - 1);
}
CalcValue f_rank(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_LINEAR) return of_int(linear_rank(v[0].linear));
    return of_int(v[0].kind == CALC_TUPLE ? tuple_rank(v[0].tuple) : cute_rank(as_swizzled(c, v[0]).layout));
}
CalcValue f_shape(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_shape(c->cx, as_swizzled(c, v[0]).layout));
}
CalcValue f_stride(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_stride(c->cx, as_swizzled(c, v[0]).layout));
}

CalcValue f_mode(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t mode = as_int(c, v[1]);
    if (mode >= cute_rank(a.layout)) layout_refuse(c->cx, "there is no mode %lld", (long long)mode);
    if (!c->cx->failed) a.layout = cute_mode(a.layout, (int)mode);
    return of_swizzled(a);
}

CalcValue f_make_layout(Calc *c, const CalcValue *v, int count) {
    if (count > 1) return of_cute(cute_make(c->cx, as_tuple(c, v[0]), as_tuple(c, v[1])));
    return of_cute(as_cute(c, v[0]));
}

CalcValue f_row_major(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_cute(cute_row_major(c->cx, as_tuple(c, v[0])));
}

CalcValue f_with_shape(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    a.layout = cute_with_shape(c->cx, a.layout, as_tuple(c, v[1]));
    return of_swizzled(a);
}

CalcValue f_crd2idx(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t offset = cute_crd2idx(c->cx, a.layout, as_tuple(c, v[1]));
    return of_int(swizzle_apply(a.swizzle, a.base + offset));
}

CalcValue f_idx2crd(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_idx2crd(c->cx, as_tuple(c, v[0]), as_tuple(c, v[1])));
}

CalcValue f_slice(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_LINEAR) return of_linear(encoding_without_dim(c->cx, v[0].linear, as_text(c, v[1])));
    Swizzled a = as_swizzled(c, v[0]);
    int64_t offset;
    a.layout = cute_slice(c->cx, a.layout, as_tuple(c, v[1]), &offset);
    a.base = layout_sum(c->cx, a.base, offset);
    return of_swizzled(a);
}

CalcValue f_eval(Calc *c, const CalcValue *v, int count) {
    enum { LARGEST = 1 << 16 };
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t size = cute_size(c->cx, a.layout);
    StrBuf out;
    sb_init(&out, c->cx->arena);
    if (size > LARGEST) layout_refuse(c->cx, "more than %d values", LARGEST);
    for (int64_t i = 0; i < size && !c->cx->failed; i++)
        sb_printf(&out, "%s%lld", i ? "," : "", (long long)swizzled_at(a, i));
    return of_text(sb_text(&out));
}
