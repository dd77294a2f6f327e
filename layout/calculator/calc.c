#include "layout/calculator/calc.h"
#include "layout/calculator/bridge.h"
#include "layout/calculator/convert.h"
#include "layout/calculator/encoding.h"
#include "layout/calculator/tiled_copy.h"
#include "layout/calculator/tma.h"
#include "layout/optimal_swizzle.h"
#include "support/map.h"
#include "support/vec.h"
#include <ctype.h>
#include <string.h>

struct Calc {
    LayoutContext *cx;
    StrMap *names;
    int depth;
    bool explain;
};

enum { MOST_ARGS = 8, DEEPEST = 64 };

Calc *calc_new(LayoutContext *cx) {
    Calc *calc = NEW(cx->arena, Calc);
    *calc = (Calc){.cx = cx, .names = strmap_new(cx->arena)};
    return calc;
}

void calc_explain(Calc *calc, bool explain) {
    calc->explain = explain;
}

// ---- values ----

static CalcValue of_tuple(Tuple t) {
    return (CalcValue){.kind = CALC_TUPLE, .tuple = t};
}
static CalcValue of_int(int64_t n) {
    return of_tuple(tuple_int(n));
}
static CalcValue of_swizzled(Swizzled a) {
    return (CalcValue){.kind = CALC_LAYOUT, .layout = a};
}
static CalcValue of_cute(Cute a) {
    return of_swizzled((Swizzled){{0, 0, 0}, 0, a});
}
static CalcValue of_tiler(Tiler t) {
    return (CalcValue){.kind = CALC_TILER, .tiler = t};
}
static CalcValue of_linear(Linear a) {
    return (CalcValue){.kind = CALC_LINEAR, .linear = a};
}
static CalcValue of_text(const char *text) {
    return (CalcValue){.kind = CALC_TEXT, .text = text};
}

static const char *kind_name(CalcKind kind) {
    static const char *const names[] = {"a tuple", "a layout", "a tiler", "a swizzle", "a linear layout", "a text"};
    return names[kind];
}

static bool mismatch(Calc *c, CalcValue v, const char *wanted) {
    return layout_refuse(c->cx, "expected %s, got %s", wanted, kind_name(v.kind));
}

static Swizzled as_swizzled(Calc *c, CalcValue v) {
    if (v.kind == CALC_LAYOUT) return v.layout;
    if (v.kind == CALC_TUPLE) return (Swizzled){{0, 0, 0}, 0, cute_column_major(c->cx, v.tuple)};
    mismatch(c, v, "a layout");
    return (Swizzled){{0, 0, 0}, 0, cute_leaf(1, 0)};
}

static Cute as_cute(Calc *c, CalcValue v) {
    Swizzled a = as_swizzled(c, v);
    if (a.swizzle.bits || a.base) layout_refuse(c->cx, "expected a layout without a swizzle");
    return a.layout;
}

static Tuple as_tuple(Calc *c, CalcValue v) {
    if (v.kind != CALC_TUPLE) mismatch(c, v, "a tuple");
    return v.kind == CALC_TUPLE ? v.tuple : tuple_int(1);
}

static int64_t as_int(Calc *c, CalcValue v) {
    bool good = v.kind == CALC_TUPLE && v.tuple.kind == TUPLE_INT;
    if (!good) mismatch(c, v, "an integer");
    return good ? v.tuple.value : 1;
}

static Tiler as_tiler(Calc *c, CalcValue v) {
    if (v.kind == CALC_TILER) return v.tiler;
    if (v.kind == CALC_TUPLE) return tiler_of_shape(c->cx, v.tuple);
    return tiler_layout(as_cute(c, v));
}

static Linear as_linear(Calc *c, CalcValue v) {
    if (v.kind != CALC_LINEAR) mismatch(c, v, "a linear layout");
    return v.kind == CALC_LINEAR ? v.linear : linear_empty();
}

static const char *as_text(Calc *c, CalcValue v) {
    if (v.kind != CALC_TEXT) mismatch(c, v, "a text in quotes");
    return v.kind == CALC_TEXT ? v.text : "";
}

// ---- functions ----

typedef CalcValue Function(Calc *c, const CalcValue *v, int count);

#define UNARY(name, op)                                                                                                \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        (void)count;                                                                                                   \
        return of_cute(op(c->cx, as_cute(c, v[0])));                                                                   \
    }
UNARY(f_flatten, cute_flatten)
UNARY(f_right_inverse, cute_right_inverse)
UNARY(f_left_inverse, cute_left_inverse)

#define BY_PROFILE(name, plain, by)                                                                                    \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        Cute a = as_cute(c, v[0]);                                                                                     \
        return of_cute(count > 1 ? by(c->cx, a, as_tuple(c, v[1])) : plain(c->cx, a));                                 \
    }
BY_PROFILE(f_coalesce, cute_coalesce, cute_coalesce_by)
BY_PROFILE(f_filter, cute_filter, cute_filter_by)

#define WITH_TILER(name, op)                                                                                           \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
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
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        (void)count;                                                                                                   \
        Cute a = as_cute(c, v[0]), b = as_cute(c, v[1]);                                                               \
        return c->cx->failed ? v[0] : of_cute(op(c->cx, a, b));                                                        \
    }
BINARY(f_blocked_product, cute_blocked_product)
BINARY(f_raked_product, cute_raked_product)

static CalcValue f_composition(Calc *c, const CalcValue *v, int count) {
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

static CalcValue f_complement(Calc *c, const CalcValue *v, int count) {
    Cute a = as_cute(c, v[0]);
    return of_cute(cute_complement(c->cx, a, count > 1 ? as_tuple(c, v[1]) : tuple_int(cute_cosize(c->cx, a))));
}

static CalcValue f_size(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_TUPLE) return of_int(tuple_product(c->cx, v[0].tuple));
    return of_int(cute_size(c->cx, as_swizzled(c, v[0]).layout));
}
static CalcValue f_cosize(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(cute_cosize(c->cx, as_cute(c, v[0])));
}
static CalcValue f_last(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(cute_cosize(c->cx, as_cute(c, v[0])) - 1);
}
static CalcValue f_rank(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(v[0].kind == CALC_TUPLE ? tuple_rank(v[0].tuple) : cute_rank(as_swizzled(c, v[0]).layout));
}
static CalcValue f_shape(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_shape(c->cx, as_swizzled(c, v[0]).layout));
}
static CalcValue f_stride(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_stride(c->cx, as_swizzled(c, v[0]).layout));
}

static CalcValue f_mode(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t mode = as_int(c, v[1]);
    if (mode >= cute_rank(a.layout)) layout_refuse(c->cx, "there is no mode %lld", (long long)mode);
    if (!c->cx->failed) a.layout = cute_mode(a.layout, (int)mode);
    return of_swizzled(a);
}

static CalcValue f_make_layout(Calc *c, const CalcValue *v, int count) {
    if (count > 1) return of_cute(cute_make(c->cx, as_tuple(c, v[0]), as_tuple(c, v[1])));
    return of_cute(as_cute(c, v[0]));
}

static CalcValue f_row_major(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_cute(cute_row_major(c->cx, as_tuple(c, v[0])));
}

static CalcValue f_with_shape(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    a.layout = cute_with_shape(c->cx, a.layout, as_tuple(c, v[1]));
    return of_swizzled(a);
}

static CalcValue f_crd2idx(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t offset = cute_crd2idx(c->cx, a.layout, as_tuple(c, v[1]));
    return of_int(swizzle_apply(a.swizzle, a.base + offset));
}

static CalcValue f_idx2crd(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_tuple(cute_idx2crd(c->cx, as_tuple(c, v[0]), as_tuple(c, v[1])));
}

static CalcValue f_slice(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Swizzled a = as_swizzled(c, v[0]);
    int64_t offset;
    a.layout = cute_slice(c->cx, a.layout, as_tuple(c, v[1]), &offset);
    a.base = layout_sum(c->cx, a.base, offset);
    return of_swizzled(a);
}

static CalcValue f_eval(Calc *c, const CalcValue *v, int count) {
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

static CalcValue f_recast(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind != CALC_SWIZZLE) mismatch(c, v[0], "a swizzle");
    int64_t from = as_int(c, v[1]), to = as_int(c, v[2]);
    if (from > 1024 || to > 1024) layout_refuse(c->cx, "widths are at most 1024 bits");
    if (c->cx->failed) return v[0];
    return (CalcValue){.kind = CALC_SWIZZLE, .swizzle = swizzle_recast(c->cx, v[0].swizzle, (int)from, (int)to)};
}

static int small(Calc *c, CalcValue v) {
    int64_t n = as_int(c, v);
    if (n > 1024) layout_refuse(c->cx, "%lld is out of range", (long long)n);
    return c->cx->failed ? 1 : (int)n;
}

static CalcValue f_bank_swizzle(Calc *c, const CalcValue *v, int count) {
    (void)count;
    BankTile tile = {as_int(c, v[0]), as_int(c, v[1]), small(c, v[2]), small(c, v[3])};
    return c->cx->failed ? v[0] : of_swizzled(bank_swizzle(c->cx, tile));
}

static CalcValue f_padded(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_cute(padded_rows(c->cx, as_int(c, v[0]), as_int(c, v[1]), as_int(c, v[2])));
}

// ---- linear ----

static const char *const tv_names[] = {"lane", "register"};
static const char *const dim_names[] = {"dim0", "dim1", "dim2", "dim3", "dim4", "dim5", "dim6", "dim7"};

static CalcValue f_linear(Calc *c, const CalcValue *v, int count) {
    Swizzled a = as_swizzled(c, v[0]);
    if (count > 1) return of_linear(linear_from_tv(c->cx, as_cute(c, v[0]), as_tuple(c, v[1]), tv_names));
    if (cute_rank(a.layout) > 8) layout_refuse(c->cx, "more than 8 modes");
    return of_linear(c->cx->failed ? linear_empty() : linear_from_swizzled(c->cx, a, dim_names, "offset"));
}
static CalcValue f_cute(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_swizzled(swizzled_from_linear(c->cx, as_linear(c, v[0])));
}
static CalcValue f_identity1d(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_linear(linear_identity1d(c->cx, as_int(c, v[0]), as_text(c, v[1]), as_text(c, v[2])));
}
static CalcValue f_strided1d(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_linear(linear_strided1d(c->cx, as_int(c, v[0]), as_int(c, v[1]), as_text(c, v[2]), as_text(c, v[3])));
}
static CalcValue f_zeros1d(Calc *c, const CalcValue *v, int count) {
    int64_t out_size = count > 3 ? as_int(c, v[3]) : 1;
    return of_linear(linear_zeros1d(c->cx, as_int(c, v[0]), as_text(c, v[1]), as_text(c, v[2]), out_size));
}

#define LINEAR_UNARY(name, op)                                                                                         \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]);                                                                                 \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a));                                                         \
    }
LINEAR_UNARY(f_invert, linear_invert)
LINEAR_UNARY(f_pseudoinvert, linear_pseudoinvert)
LINEAR_UNARY(f_flatten_ins, linear_flatten_ins)
LINEAR_UNARY(f_flatten_outs, linear_flatten_outs)

#define LINEAR_BINARY(name, op)                                                                                        \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]);                                                         \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, b));                                                      \
    }
LINEAR_BINARY(f_multiply, linear_multiply)
LINEAR_BINARY(f_compose, linear_compose)
LINEAR_BINARY(f_invert_and_compose, linear_invert_and_compose)

#define LINEAR_DIVISION(name, op)                                                                                      \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]), result = a;                                             \
        if (c->cx->failed) return v[0];                                                                                \
        return op(c->cx, a, b, &result) ? of_linear(result) : of_text("none");                                         \
    }
LINEAR_DIVISION(f_divide_left, linear_divide_left)
LINEAR_DIVISION(f_divide_right, linear_divide_right)

// Input values in the layout's order, as a tuple; so the result.
static CalcValue f_apply(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]);
    Tuple in = as_tuple(c, v[1]);
    int64_t *ins = NEW_ARRAY(c->cx->arena, int64_t, a.in_count), *outs = NEW_ARRAY(c->cx->arena, int64_t, a.out_count);
    if (tuple_rank(in) != a.in_count) layout_refuse(c->cx, "apply needs one value per input");
    for (int i = 0; i < a.in_count && !c->cx->failed; i++) {
        ins[i] = tuple_mode(in, i).value;
        if (tuple_mode(in, i).kind != TUPLE_INT || ins[i] >> a.ins[i].bits)
            layout_refuse(c->cx, "an input value is outside its size");
    }
    if (c->cx->failed) return v[0];
    linear_apply(a, ins, outs);
    Tuple *items = NEW_ARRAY(c->cx->arena, Tuple, a.out_count);
    for (int i = 0; i < a.out_count; i++) items[i] = tuple_int(outs[i]);
    return of_tuple(a.out_count == 1 ? items[0] : tuple_list(c->cx, items, a.out_count));
}

static CalcValue f_surjective(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(linear_is_surjective(as_linear(c, v[0])));
}

// "name", size, ... from argument 1 on.
static int named_sizes(Calc *c, const CalcValue *v, int count, LinearDim *dims) {
    for (int i = 1; i + 1 < count; i += 2) {
        int64_t size = as_int(c, v[i + 1]);
        if (log2_exact(size) < 0) layout_refuse(c->cx, "size %lld is not a power of two", (long long)size);
        if (c->cx->failed) return 0;
        dims[i / 2] = (LinearDim){as_text(c, v[i]), log2_exact(size)};
    }
    return (count - 1) / 2;
}

#define LINEAR_RESHAPE(name, op)                                                                                       \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        LinearDim dims[MOST_ARGS];                                                                                     \
        Linear a = as_linear(c, v[0]);                                                                                 \
        int named = named_sizes(c, v, count, dims);                                                                    \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, dims, named));                                            \
    }
LINEAR_RESHAPE(f_reshape_ins, linear_reshape_ins)
LINEAR_RESHAPE(f_reshape_outs, linear_reshape_outs)

#define LINEAR_TRANSPOSE(name, op)                                                                                     \
    static CalcValue name(Calc *c, const CalcValue *v, int count) {                                                    \
        const char *names[MOST_ARGS];                                                                                  \
        Linear a = as_linear(c, v[0]);                                                                                 \
        for (int i = 1; i < count; i++) names[i - 1] = as_text(c, v[i]);                                               \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, names, count - 1));                                       \
    }
LINEAR_TRANSPOSE(f_transpose_ins, linear_transpose_ins)
LINEAR_TRANSPOSE(f_transpose_outs, linear_transpose_outs)

static CalcValue f_code(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]);
    StrBuf out;
    sb_init(&out, c->cx->arena);
    for (int i = 0; i < a.out_count; i++)
        sb_printf(&out, "%s%s = %s", i ? "\n" : "", a.outs[i].name, linear_code(c->cx, a, i));
    return of_text(sb_text(&out));
}

static CalcValue f_optimal_swizzle(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]);
    int bits = small(c, v[2]);
    return c->cx->failed ? v[0] : of_linear(optimal_swizzle(c->cx, a, b, bits));
}

// Linear layouts, or in quotes layouts in the compiler's notation.
static CalcValue f_convert(Calc *c, const CalcValue *v, int count) {
    int element_bits = count > 2 ? small(c, v[2]) : 32;
    if (v[0].kind == CALC_TEXT || v[1].kind == CALC_TEXT) {
        const char *a = as_text(c, v[0]), *b = as_text(c, v[1]);
        return of_text(c->cx->failed ? "" : convert_layouts_text(c->cx, a, b, element_bits, c->explain));
    }
    Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]);
    return of_text(c->cx->failed ? "" : convert_text(c->cx, a, b, element_bits, c->explain));
}

// ---- encodings: shape, then the encoding's numbers ----

static int per_dim(Calc *c, CalcValue v, int64_t *values) {
    Tuple t = as_tuple(c, v);
    int rank = tuple_rank(t);
    if (rank > ENCODING_MAX_RANK) layout_refuse(c->cx, "more than %d dims", ENCODING_MAX_RANK);
    for (int i = 0; i < rank && !c->cx->failed; i++) {
        if (tuple_mode(t, i).kind != TUPLE_INT) layout_refuse(c->cx, "expected a flat tuple of integers");
        values[i] = tuple_mode(t, i).value;
    }
    return c->cx->failed ? 1 : rank;
}

static CalcValue encoded(Calc *c, Encoding *e, CalcValue shape_value) {
    PerDim shape;
    int rank = per_dim(c, shape_value, shape);
    e->rank = rank;
    for (int i = 0; i < rank; i++) {   // one CTA
        e->ctas[i] = e->cta_split[i] = 1;
        e->cta_order[i] = rank - 1 - i;
    }
    return of_linear(c->cx->failed ? linear_empty() : encoding_to_linear(c->cx, e, shape, rank));
}

static CalcValue f_blocked(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Encoding e = {.kind = ENCODING_BLOCKED};
    per_dim(c, v[1], e.size_per_thread);
    per_dim(c, v[2], e.threads_per_warp);
    per_dim(c, v[3], e.warps_per_cta);
    per_dim(c, v[4], e.order);
    return encoded(c, &e, v[0]);
}
static CalcValue f_mma(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Encoding e = {.kind = ENCODING_MMA, .version = small(c, v[1])};
    e.instr_rank = per_dim(c, v[2], e.instr_shape);
    per_dim(c, v[3], e.warps_per_cta);
    return encoded(c, &e, v[0]);
}
// Operand of a product whose accumulator is that mma.
static CalcValue f_dot(Calc *c, const CalcValue *v, int count) {
    (void)count;
    PerDim shape;
    Encoding parent = {.kind = ENCODING_MMA, .version = small(c, v[3]), .rank = per_dim(c, v[0], shape)};
    parent.instr_rank = per_dim(c, v[4], parent.instr_shape);
    per_dim(c, v[5], parent.warps_per_cta);
    for (int i = 0; i < parent.rank; i++)
        parent.ctas[i] = parent.cta_split[i] = 1, parent.cta_order[i] = parent.rank - 1 - i;
    Encoding e = {.kind = ENCODING_DOT, .parent = &parent, .op_index = small(c, v[1]), .k_width = small(c, v[2])};
    return encoded(c, &e, v[0]);
}
static CalcValue f_swizzled(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Encoding e = {
        .kind = ENCODING_SWIZZLED, .vec = as_int(c, v[1]), .per_phase = as_int(c, v[2]), .max_phase = as_int(c, v[3])};
    per_dim(c, v[4], e.order);
    return encoded(c, &e, v[0]);
}
static CalcValue f_nvmma(Calc *c, const CalcValue *v, int count) {
    Encoding e = {.kind = ENCODING_NVMMA_SHARED, .swizzle_bytes = as_int(c, v[1]), .element_bits = as_int(c, v[2])};
    e.transposed = count > 3 && as_int(c, v[3]) != 0;
    return encoded(c, &e, v[0]);
}

// ---- TMA: (extents), element bits, swizzle bytes ----

static TmaPlan plan_of(Calc *c, const CalcValue *v) {
    TmaTile tile = {.element_bits = small(c, v[1]), .swizzle_bytes = small(c, v[2])};
    PerDim extents = {0};
    tile.rank = per_dim(c, v[0], extents);
    for (int d = 0; d < tile.rank && d < TMA_MAX_RANK; d++) tile.extent[d] = extents[d];
    return c->cx->failed ? (TmaPlan){.copies = 1} : tma_plan(c->cx, tile);
}
static CalcValue f_tma(Calc *c, const CalcValue *v, int count) {
    (void)count;
    TmaPlan plan = plan_of(c, v);
    return c->cx->failed ? v[0] : of_swizzled(plan.layout);
}
static CalcValue f_tma_box(Calc *c, const CalcValue *v, int count) {
    (void)count;
    TmaPlan plan = plan_of(c, v);
    Tuple box[TMA_MAX_RANK];
    int rank = c->cx->failed ? 0 : tuple_rank(as_tuple(c, v[0]));
    for (int d = 0; d < rank; d++) box[d] = tuple_int(plan.box[d]);
    return of_tuple(tuple_list(c->cx, box, rank));
}
static CalcValue f_im2col(Calc *c, const CalcValue *v, int count) {
    (void)count;
    PerDim padding, filter, dilation;
    int spatial = per_dim(c, v[0], padding);
    if (per_dim(c, v[1], filter) != spatial || per_dim(c, v[2], dilation) != spatial)
        layout_refuse(c->cx, "padding, filter and dilation have one number for each spatial dim");
    if (c->cx->failed) return v[0];
    TmaIm2col map = tma_im2col(c->cx, spatial, padding, filter, dilation, 1, 8, 16, 0);
    Tuple lower[3], upper[3];
    for (int d = 0; d < spatial && !c->cx->failed; d++) {
        lower[d] = tuple_int(map.lower[d]);
        upper[d] = tuple_int(map.upper[d]);
    }
    if (c->cx->failed) return v[0];
    Tuple corners[] = {tuple_list(c->cx, lower, spatial), tuple_list(c->cx, upper, spatial)};
    return of_tuple(tuple_list(c->cx, corners, 2));
}

// ---- tiled copies ----

static CalcValue f_tiled_copy(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute threads = as_cute(c, v[0]), values = as_cute(c, v[1]);
    return c->cx->failed ? v[0] : of_cute(tiled_copy(c->cx, threads, values).tv);
}
// Operand's thread-value layout over the tile of a tiled MMA.
static CalcValue f_operand_tv(Calc *c, const CalcValue *v, int count) {
    (void)count;
    const char *name = as_text(c, v[0]);
    int64_t extent[ENCODING_MAX_RANK];
    int rank = per_dim(c, v[1], extent);
    if (rank != 3 || !*name || !strchr("ABC", *name) || name[1])
        layout_refuse(c->cx, "expected \"A\", \"B\" or \"C\", and (m,n,k)");
    if (c->cx->failed) return v[1];
    MmaAtom atom = {extent[0],        extent[1],        extent[2],       cute_leaf(32, 1),
                    as_cute(c, v[2]), as_cute(c, v[3]), as_cute(c, v[4])};
    Cute atoms = as_cute(c, v[5]);
    Tiler permutation = count > 6 ? as_tiler(c, v[6]) : (Tiler){.kind = TILER_ANY};
    if (c->cx->failed) return v[1];
    TiledMma mma = tiled_mma(c->cx, atom, atoms, permutation);
    return of_cute(tiled_mma_tv(c->cx, mma, *name == 'A' ? OPERAND_A : *name == 'B' ? OPERAND_B : OPERAND_C));
}

static CalcValue f_copy_tv(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute tv = as_cute(c, v[0]);
    Tuple tile = as_tuple(c, v[1]);
    int64_t values = as_int(c, v[2]);
    return c->cx->failed ? v[0] : of_cute(tiled_copy_steps(c->cx, tv, tile, values).tv);
}
static CalcValue f_copy_tiler(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Cute tv = as_cute(c, v[0]);
    Tuple tile = as_tuple(c, v[1]);
    int64_t values = as_int(c, v[2]);
    if (c->cx->failed) return v[0];
    TiledCopySteps s = tiled_copy_steps(c->cx, tv, tile, values);
    return of_tiler(tiler_tuple(c->cx, (Tiler[]){tiler_layout(s.tiler[0]), tiler_layout(s.tiler[1])}, 2));
}

static const struct {
    const char *name;
    int least, most;
    Function *function;
    const char *arguments;
} functions[] = {
    {"size", 1, 1, f_size, "(layout or tuple)"},
    {"cosize", 1, 1, f_cosize, "(layout)"},
    {"last", 1, 1, f_last, "(layout): the largest offset"},
    {"rank", 1, 1, f_rank, "(layout or tuple)"},
    {"shape", 1, 1, f_shape, "(layout)"},
    {"stride", 1, 1, f_stride, "(layout)"},
    {"mode", 2, 2, f_mode, "(layout, i)"},
    {"make_layout", 1, 2, f_make_layout, "(shape[, stride])"},
    {"row_major", 1, 1, f_row_major, "(shape)"},
    {"with_shape", 2, 2, f_with_shape, "(layout, shape)"},
    {"flatten", 1, 1, f_flatten, "(layout)"},
    {"coalesce", 1, 2, f_coalesce, "(layout[, profile])"},
    {"filter", 1, 2, f_filter, "(layout[, profile])"},
    {"composition", 2, 2, f_composition, "(a, b or tiler); also a o b; a may be a swizzle"},
    {"complement", 1, 2, f_complement, "(layout[, cotarget])"},
    {"right_inverse", 1, 1, f_right_inverse, "(layout)"},
    {"left_inverse", 1, 1, f_left_inverse, "(layout)"},
    {"logical_divide", 2, 2, f_logical_divide, "(layout, tiler)"},
    {"zipped_divide", 2, 2, f_zipped_divide, "(layout, tiler)"},
    {"tiled_divide", 2, 2, f_tiled_divide, "(layout, tiler)"},
    {"flat_divide", 2, 2, f_flat_divide, "(layout, tiler)"},
    {"logical_product", 2, 2, f_logical_product, "(layout, tiler)"},
    {"zipped_product", 2, 2, f_zipped_product, "(layout, tiler)"},
    {"tiled_product", 2, 2, f_tiled_product, "(layout, tiler)"},
    {"flat_product", 2, 2, f_flat_product, "(layout, tiler)"},
    {"blocked_product", 2, 2, f_blocked_product, "(block, layout)"},
    {"raked_product", 2, 2, f_raked_product, "(block, layout)"},
    {"crd2idx", 2, 2, f_crd2idx, "(layout, coordinate)"},
    {"idx2crd", 2, 2, f_idx2crd, "(shape, index)"},
    {"slice", 2, 2, f_slice, "(layout, coordinate with _)"},
    {"eval", 1, 1, f_eval, "(layout): all offsets"},
    {"recast", 3, 3, f_recast, "(swizzle, from bits, to bits)"},
    {"bank_swizzle", 4, 4, f_bank_swizzle, "(rows, columns, element bits, panel chunks 8, 4 or 2)"},
    {"padded", 3, 3, f_padded, "(rows, columns, pad)"},
    {"linear", 1, 2, f_linear, "(layout) by modes, or (thread-value layout, tile)"},
    {"cute", 1, 1, f_cute, "(linear): as shape:stride, with a swizzle if needed"},
    {"identity1d", 3, 3, f_identity1d, "(size, \"in\", \"out\")"},
    {"strided1d", 4, 4, f_strided1d, "(size, stride, \"in\", \"out\")"},
    {"zeros1d", 3, 4, f_zeros1d, "(size, \"in\", \"out\"[, out size])"},
    {"multiply", 2, 2, f_multiply, "(linear, linear)"},
    {"compose", 2, 2, f_compose, "(inner, outer)"},
    {"invert", 1, 1, f_invert, "(linear)"},
    {"pseudoinvert", 1, 1, f_pseudoinvert, "(linear)"},
    {"invert_and_compose", 2, 2, f_invert_and_compose, "(linear, outer)"},
    {"flatten_ins", 1, 1, f_flatten_ins, "(linear)"},
    {"flatten_outs", 1, 1, f_flatten_outs, "(linear)"},
    {"divide_left", 2, 2, f_divide_left, "(linear, linear)"},
    {"divide_right", 2, 2, f_divide_right, "(linear, linear)"},
    {"reshape_ins", 3, 7, f_reshape_ins, "(linear, \"name\", size, ...)"},
    {"reshape_outs", 3, 7, f_reshape_outs, "(linear, \"name\", size, ...)"},
    {"transpose_ins", 2, 8, f_transpose_ins, "(linear, \"name\", ...)"},
    {"transpose_outs", 2, 8, f_transpose_outs, "(linear, \"name\", ...)"},
    {"apply", 2, 2, f_apply, "(linear, (value per input))"},
    {"surjective", 1, 1, f_surjective, "(linear): 1 or 0"},
    {"code", 1, 1, f_code, "(linear): as shifts, ands and xors"},
    {"optimal_swizzle", 3, 3, f_optimal_swizzle, "(source, destination, element bits)"},
    {"convert", 2, 3, f_convert, "(source, destination[, element bits]): what moving between them takes; --explain"},
    {"blocked", 5, 5, f_blocked, "(shape, per thread, per warp, warps, order)"},
    {"mma", 4, 4, f_mma, "(shape, version, instruction shape, warps)"},
    {"dot", 6, 6, f_dot, "(shape, operand 0 or 1, kWidth, version, instruction shape, warps)"},
    {"swizzled", 5, 5, f_swizzled, "(shape, vec, per phase, max phase, order)"},
    {"nvmma", 3, 4, f_nvmma, "(shape, swizzle bytes, element bits[, transposed])"},
    {"tma", 3, 3, f_tma, "((extents), element bits, swizzle bytes): the tile in shared memory"},
    {"tma_box", 3, 3, f_tma_box, "((extents), element bits, swizzle bytes): of one copy"},
    {"im2col", 3, 3, f_im2col, "((padding), (filter), (dilation)): corners of the box of base pixels"},
    {"tiled_copy", 2, 2, f_tiled_copy, "(thread layout, value layout)"},
    {"operand_tv", 6, 7, f_operand_tv,
     "(\"A\", (m,n,k), A, B, C, atoms[, permutation]): of a tiled MMA of one-warp atoms"},
    {"copy_tv", 3, 3, f_copy_tv, "(thread-value layout of an operand, tile, values)"},
    {"copy_tiler", 3, 3, f_copy_tiler, "(thread-value layout of an operand, tile, values)"},
};

// ---- parsing ----

static CalcValue expression(Calc *c, Scan *scan);

static bool starts_name(char ch) {
    return isalpha((unsigned char)ch);
}

static const char *scan_word(Scan *scan) {
    const char *start = scan->at;
    while (isalnum((unsigned char)*scan->at) || *scan->at == '_') scan->at++;
    return arena_strndup(scan->cx->arena, start, (size_t)(scan->at - start));
}

static CalcValue call(Calc *c, Scan *scan, const char *name) {
    CalcValue values[MOST_ARGS];
    int count = 0;
    if (!scan_accept(scan, ')')) {
        do {
            if (count == MOST_ARGS) layout_refuse(c->cx, "too many arguments");
            else values[count++] = expression(c, scan);
        } while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    if (c->cx->failed) return of_int(1);
    for (int i = 0; i < COUNT_OF(functions); i++) {
        if (strcmp(name, functions[i].name)) continue;
        if (count < functions[i].least || count > functions[i].most)
            return layout_refuse(c->cx, "usage: %s%s", name, functions[i].arguments), of_int(1);
        return functions[i].function(c, values, count);
    }
    return layout_refuse(c->cx, "there is no function '%.40s'", name), of_int(1);
}

// `(a, b)`: a tuple of tuples, or the layout of those modes.
static CalcValue list(Calc *c, Scan *scan) {
    VEC(CalcValue) items = {0};
    bool layouts = false;
    if (!scan_accept(scan, ')')) {
        do {
            CalcValue item = expression(c, scan);
            layouts |= item.kind == CALC_LAYOUT;
            vec_push(c->cx->arena, &items, item);
        } while (scan_accept(scan, ','));
        scan_expect(scan, ')');
    }
    if (c->cx->failed) return of_int(1);
    Cute *modes = NEW_ARRAY(c->cx->arena, Cute, items.count);
    Tuple *tuples = NEW_ARRAY(c->cx->arena, Tuple, items.count);
    for (int i = 0; i < items.count; i++) {
        if (layouts) modes[i] = as_cute(c, items.items[i]);
        else tuples[i] = as_tuple(c, items.items[i]);
    }
    if (layouts) return of_cute((Cute){.rank = items.count, .modes = modes});
    return of_tuple((Tuple){.kind = TUPLE_LIST, .count = items.count, .items = tuples});
}

static CalcValue tiler(Calc *c, Scan *scan) {
    VEC(Tiler) items = {0};
    do {
        CalcValue item = expression(c, scan);
        vec_push(c->cx->arena, &items, as_tiler(c, item));
    } while (scan_accept(scan, ';') || scan_accept(scan, ','));
    scan_expect(scan, '>');
    return of_tiler(tiler_tuple(c->cx, items.items, items.count));
}

static CalcValue quoted(Scan *scan) {
    const char *start = scan->at;
    while (*scan->at && *scan->at != '"') scan->at++;
    const char *text = arena_strndup(scan->cx->arena, start, (size_t)(scan->at - start));
    scan_expect(scan, '"');
    return of_text(text);
}

static CalcValue swizzle_literal(Scan *scan) {
    Swizzle s = scan_swizzle(scan);
    scan_expect(scan, '>');
    return (CalcValue){.kind = CALC_SWIZZLE, .swizzle = s};
}

static CalcValue primary(Calc *c, Scan *scan) {
    scan_space(scan);
    if (*scan->at == '{') return of_linear(linear_scan(scan));
    if (scan_accept(scan, '"')) return quoted(scan);
    if (scan_accept(scan, '<')) return tiler(c, scan);
    if (scan_accept(scan, '(')) return list(c, scan);
    if (!starts_name(*scan->at)) return of_tuple(scan_tuple(scan));
    const char *name = scan_word(scan);
    if (!strcmp(name, "Sw") && scan_accept(scan, '<')) return swizzle_literal(scan);
    if (scan_accept(scan, '(')) return call(c, scan, name);
    CalcValue *value = strmap_get(c->names, name);
    if (!value) layout_refuse(c->cx, "there is no value '%.40s'", name);
    return value ? *value : of_int(1);
}

// primary [: stride] [o expression]
static CalcValue expression(Calc *c, Scan *scan) {
    if (++c->depth > DEEPEST) layout_refuse(c->cx, "syntax: nested deeper than %d", DEEPEST);
    CalcValue value = c->cx->failed ? of_int(1) : primary(c, scan);
    if (value.kind == CALC_TUPLE && scan_accept(scan, ':')) {
        CalcValue stride = primary(c, scan);
        if (!c->cx->failed) value = of_cute(cute_make(c->cx, value.tuple, as_tuple(c, stride)));
    }
    scan_space(scan);
    if (!c->cx->failed && scan->at[0] == 'o' && !isalnum((unsigned char)scan->at[1]) && scan->at[1] != '_') {
        scan->at++;
        CalcValue both[] = {value, expression(c, scan)};
        if (!c->cx->failed) value = f_composition(c, both, 2);
    }
    c->depth--;
    return value;
}

static CalcValue statement(Calc *c, Scan *scan) {
    scan_space(scan);
    const char *start = scan->at;
    const char *name = NULL;
    if (starts_name(*scan->at)) {
        name = scan_word(scan);
        scan_space(scan);
        if (*scan->at == '=') scan->at++;
        else name = NULL, scan->at = start;
    }
    CalcValue value = expression(c, scan);
    if (name && !c->cx->failed) strmap_put(c->names, name, arena_copy(c->cx->arena, &value, sizeof value));
    return value;
}

CalcValue calc_run(Calc *c, const char *text) {
    Scan scan = scan_text(c->cx, text);
    c->depth = 0;
    CalcValue value = statement(c, &scan);
    while (scan_accept(&scan, ';')) {
        scan_space(&scan);
        if (*scan.at) value = statement(c, &scan);
    }
    scan_end(&scan);
    return value;
}

// ---- text ----

static void print_tiler(StrBuf *out, Tiler t) {
    if (t.kind == TILER_ANY) {
        sb_char(out, '_');
    } else if (t.kind == TILER_LAYOUT) {
        if (t.is_integer) tuple_print_integer(out, t.layout.shape);
        else cute_print(out, t.layout);
    } else {
        for (int i = 0; i < t.count; i++) {
            sb_char(out, i ? ';' : '<');
            print_tiler(out, t.items[i]);
        }
        sb_char(out, '>');
    }
}

// Marks every number as static: `_8`.
static char *with_marks(Arena *arena, const char *text) {
    StrBuf out;
    sb_init(&out, arena);
    for (const char *at = text; *at; at++) {
        bool starts = isdigit((unsigned char)*at) && (at == text || !isalnum((unsigned char)at[-1]));
        if (starts) sb_char(&out, '_');
        sb_char(&out, *at);
    }
    return arena_strdup(arena, sb_text(&out));
}

char *calc_text(Calc *c, CalcValue v, bool static_mark) {
    StrBuf out;
    sb_init(&out, c->cx->arena);
    switch (v.kind) {
    case CALC_TUPLE: tuple_print(&out, v.tuple); break;
    case CALC_LAYOUT: swizzled_print(&out, v.layout); break;
    case CALC_TILER: print_tiler(&out, v.tiler); break;
    case CALC_SWIZZLE: swizzle_print(&out, v.swizzle); break;
    case CALC_LINEAR: linear_print(&out, v.linear); break;
    case CALC_TEXT: sb_str(&out, v.text); break;
    }
    bool marks = static_mark && (v.kind == CALC_TUPLE || v.kind == CALC_LAYOUT || v.kind == CALC_TILER);
    return marks ? with_marks(c->cx->arena, sb_text(&out)) : arena_strdup(c->cx->arena, sb_text(&out));
}

// One placeholder's text.
static char *placeholder(Calc *c, const char *text) {
    LayoutContext *cx = c->cx;
    if (!strncmp(text, "table:", 6)) return draw_table(cx, as_swizzled(c, calc_run(c, text + 6)), true);
    if (!strncmp(text, "plain:", 6)) return calc_text(c, calc_run(c, text + 6), false);
    if (!strncmp(text, "let ", 4)) return calc_run(c, text + 4), arena_strdup(cx->arena, "");
    if (!strncmp(text, "cover:", 6)) {
        Scan scan = scan_text(cx, text + 6);
        CalcValue rows = expression(c, &scan);
        scan_expect(&scan, ',');
        CalcValue columns = expression(c, &scan);
        scan_expect(&scan, ',');
        Tuple tile = as_tuple(c, expression(c, &scan));
        if (tuple_rank(tile) != 2) layout_refuse(cx, "cover: expected a tile of two modes");
        if (cx->failed) return arena_strdup(cx->arena, "");
        return draw_coverage(cx, as_cute(c, rows), as_cute(c, columns), tuple_product(cx, tuple_mode(tile, 0)),
                             tuple_product(cx, tuple_mode(tile, 1)));
    }
    return calc_text(c, calc_run(c, text), true);
}

char *calc_expand(Calc *c, const char *text) {
    StrBuf out;
    sb_init(&out, c->cx->arena);
    while (!c->cx->failed) {
        const char *open = strstr(text, "{{"), *close = open ? strstr(open, "}}") : NULL;
        if (!close) break;
        sb_bytes(&out, text, (size_t)(open - text));
        char *inner = arena_strndup(c->cx->arena, open + 2, (size_t)(close - open - 2));
        sb_str(&out, placeholder(c, inner));
        text = close + 2;
        bool whole_lines = !strncmp(inner, "let ", 4) || !strncmp(inner, "table:", 6) || !strncmp(inner, "cover:", 6);
        if (whole_lines && *text == '\n') text++;   // what they give ends its own lines
    }
    sb_str(&out, text);
    return arena_strdup(c->cx->arena, sb_text(&out));
}

char *calc_help(Arena *arena) {
    StrBuf out;
    sb_init(&out, arena);
    for (int i = 0; i < COUNT_OF(functions); i++)
        sb_printf(&out, "    %s%s\n", functions[i].name, functions[i].arguments);
    return out.text;
}
