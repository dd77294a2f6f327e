// Functions of the calculator on layouts that are linear over F2, encodings and conversions.
#include "layout/calculator/bridge.h"
#include "layout/calculator/convert.h"
#include "layout/calculator/functions.h"
#include "layout/calculator/optimal_swizzle.h"
#include <string.h>

// ---- linear ----

static const char *const tv_names[] = {"lane", "register"};
static const char *const dim_names[] = {"dim0", "dim1", "dim2", "dim3", "dim4", "dim5", "dim6", "dim7"};

CalcValue f_linear(Calc *c, const CalcValue *v, int count) {
    Swizzled a = as_swizzled(c, v[0]);
    if (count > 1) return of_linear(linear_from_tv(c->cx, as_cute(c, v[0]), as_tuple(c, v[1]), tv_names));
    if (cute_rank(a.layout) > 8) layout_refuse(c->cx, "more than 8 modes");
    return of_linear(c->cx->failed ? linear_empty() : linear_from_swizzled(c->cx, a, dim_names, "offset"));
}
CalcValue f_cute(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_swizzled(swizzled_from_linear(c->cx, as_linear(c, v[0])));
}
CalcValue f_identity1d(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_linear(linear_identity1d(c->cx, as_int(c, v[0]), as_text(c, v[1]), as_text(c, v[2])));
}
CalcValue f_strided1d(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_linear(linear_strided1d(c->cx, as_int(c, v[0]), as_int(c, v[1]), as_text(c, v[2]), as_text(c, v[3])));
}
CalcValue f_zeros1d(Calc *c, const CalcValue *v, int count) {
    int64_t out_size = count > 3 ? as_int(c, v[3]) : 1;
    return of_linear(linear_zeros1d(c->cx, as_int(c, v[0]), as_text(c, v[1]), as_text(c, v[2]), out_size));
}

#define LINEAR_UNARY(name, op)                                                                                         \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]);                                                                                 \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a));                                                         \
    }
LINEAR_UNARY(f_invert, linear_invert)
LINEAR_UNARY(f_pseudoinvert, linear_pseudoinvert)
LINEAR_UNARY(f_flatten_ins, linear_flatten_ins)
LINEAR_UNARY(f_flatten_outs, linear_flatten_outs)

#define LINEAR_BINARY(name, op)                                                                                        \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]);                                                         \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, b));                                                      \
    }
LINEAR_BINARY(f_multiply, linear_multiply)
LINEAR_BINARY(f_compose, linear_compose)
LINEAR_BINARY(f_invert_and_compose, linear_invert_and_compose)

#define LINEAR_DIVISION(name, op)                                                                                      \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        (void)count;                                                                                                   \
        Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]), result = a;                                             \
        if (c->cx->failed) return v[0];                                                                                \
        return op(c->cx, a, b, &result) ? of_linear(result) : of_text("none");                                         \
    }
LINEAR_DIVISION(f_divide_left, linear_divide_left)
LINEAR_DIVISION(f_divide_right, linear_divide_right)

// Input values in the layout's order, as a tuple; so the result.
CalcValue f_apply(Calc *c, const CalcValue *v, int count) {
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

// The dims of `dims` that the arguments from 1 on name.
static int named_dims(Calc *c, const CalcValue *v, int count, const LinearDim *dims, int dim_count,
                      const char **names) {
    int found = 0;
    for (int d = 0; d < dim_count; d++)
        for (int i = 1; i < count; i++)
            if (!strcmp(as_text(c, v[i]), dims[d].name)) {
                names[found++] = dims[d].name;
                break;
            }
    return found;
}

CalcValue f_sublayout(Calc *c, const CalcValue *v, int count) {
    Linear a = as_linear(c, v[0]);
    const char *ins[LINEAR_MAX_BITS], *outs[LINEAR_MAX_BITS];
    for (int i = 1; i < count; i++)
        if (linear_find_in(a, as_text(c, v[i])) < 0 && linear_find_out(a, as_text(c, v[i])) < 0)
            layout_refuse(c->cx, "there is no dim '%.40s'", as_text(c, v[i]));
    if (c->cx->failed) return v[0];
    int in_count = named_dims(c, v, count, a.ins, a.in_count, ins);
    return of_linear(
        linear_sublayout(c->cx, a, ins, in_count, outs, named_dims(c, v, count, a.outs, a.out_count, outs)));
}

CalcValue f_quotient(Calc *c, const CalcValue *v, int count) {
    const char *names[MOST_ARGS];
    Linear a = as_linear(c, v[0]), result = a;
    for (int i = 1; i < count; i++) names[i - 1] = as_text(c, v[i]);
    for (int i = 1; i < count && !c->cx->failed; i++)
        if (linear_find_out(a, names[i - 1]) < 0) layout_refuse(c->cx, "there is no output '%.40s'", names[i - 1]);
    if (c->cx->failed) return v[0];
    return linear_quotient(c->cx, a, names, count - 1, &result) ? of_linear(result) : of_text("none");
}

CalcValue f_equal(Calc *c, const CalcValue *v, int count) {
    (void)count;
    return of_int(linear_equal(as_linear(c, v[0]), as_linear(c, v[1])));
}
CalcValue f_injective(Calc *c, const CalcValue *v, int count) {
    (void)count;
    if (v[0].kind == CALC_LINEAR) return of_int(linear_is_injective(v[0].linear));
    Swizzled a = as_swizzled(c, v[0]);   // a swizzle maps distinct offsets to distinct ones
    return c->cx->failed ? v[0] : of_int(cute_injective(c->cx, a.layout));
}
CalcValue f_consecutive(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]);
    if (!c->cx->failed && (!a.in_count || !a.out_count)) layout_refuse(c->cx, "the layout has no input or no output");
    return c->cx->failed ? v[0] : of_int(linear_consecutive(a));
}
CalcValue f_free_variables(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]);
    int64_t *masks = NEW_ARRAY(c->cx->arena, int64_t, a.in_count);
    Tuple *items = NEW_ARRAY(c->cx->arena, Tuple, a.in_count);
    linear_free_variables(a, masks);
    for (int i = 0; i < a.in_count; i++) items[i] = tuple_int(masks[i]);
    return of_tuple(tuple_list(c->cx, items, a.in_count));
}

CalcValue f_surjective(Calc *c, const CalcValue *v, int count) {
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
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        LinearDim dims[MOST_ARGS];                                                                                     \
        Linear a = as_linear(c, v[0]);                                                                                 \
        int named = named_sizes(c, v, count, dims);                                                                    \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, dims, named));                                            \
    }
LINEAR_RESHAPE(f_reshape_ins, linear_reshape_ins)
LINEAR_RESHAPE(f_reshape_outs, linear_reshape_outs)

#define LINEAR_TRANSPOSE(name, op)                                                                                     \
    CalcValue name(Calc *c, const CalcValue *v, int count) {                                                           \
        const char *names[MOST_ARGS];                                                                                  \
        Linear a = as_linear(c, v[0]);                                                                                 \
        for (int i = 1; i < count; i++) names[i - 1] = as_text(c, v[i]);                                               \
        return c->cx->failed ? v[0] : of_linear(op(c->cx, a, names, count - 1));                                       \
    }
LINEAR_TRANSPOSE(f_transpose_ins, linear_transpose_ins)
LINEAR_TRANSPOSE(f_transpose_outs, linear_transpose_outs)

CalcValue f_code(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]);
    StrBuf out;
    sb_init(&out, c->cx->arena);
    for (int i = 0; i < a.out_count; i++)
        sb_printf(&out, "%s%s = %s", i ? "\n" : "", a.outs[i].name, linear_code(c->cx, a, i));
    return of_text(sb_text(&out));
}

CalcValue f_optimal_swizzle(Calc *c, const CalcValue *v, int count) {
    (void)count;
    Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]);
    int bits = as_small(c, v[2]);
    return c->cx->failed ? v[0] : of_linear(optimal_swizzle(c->cx, a, b, bits));
}

CalcValue f_ldmatrix(Calc *c, const CalcValue *v, int count) {
    Linear a = as_linear(c, v[0]), b = as_linear(c, v[1]), conversion = a;
    int bits = as_small(c, v[2]), permutation[LINEAR_MAX_BITS];
    bool transposed = count > 3 && as_int(c, v[3]) != 0;
    bool fits = !c->cx->failed && matrix_instruction_fits(c->cx, a, b, bits, transposed, &conversion, permutation);
    return fits ? of_linear(conversion) : of_text("none");
}

// Linear layouts, or in quotes layouts in the compiler's notation.
CalcValue f_convert(Calc *c, const CalcValue *v, int count) {
    int element_bits = count > 2 ? as_small(c, v[2]) : 32;
    ConvertSides *sides = NEW(c->cx->arena, ConvertSides);
    if (v[0].kind == CALC_TEXT || v[1].kind == CALC_TEXT)
        *sides = convert_sides(c->cx, as_text(c, v[0]), as_text(c, v[1]), element_bits);
    else *sides = (ConvertSides){as_linear(c, v[0]), as_linear(c, v[1]), NULL, NULL, true, element_bits};
    const char *text = c->cx->failed ? "" : convert_text(c->cx, sides, c->explain);
    CalcValue value = of_text(c->cx->failed ? "" : text);
    value.conversion = sides;
    return value;
}

// ---- encodings: shape, then the encoding's numbers, then those of the cluster (absent: one CTA) ----

static void read_cluster(Calc *c, Encoding *e, const CalcValue *v, int count, int first) {
    for (int i = 0; i < e->rank; i++) {
        e->ctas[i] = e->cta_split[i] = 1;
        e->cta_order[i] = e->rank - 1 - i;
    }
    if (count <= first) return;
    if (count != first + 3) layout_refuse(c->cx, "a cluster has CTAs, how they split the tensor, and their order");
    int64_t *numbers[] = {e->ctas, e->cta_split, e->cta_order};
    for (int i = 0; i < 3 && !c->cx->failed; i++)
        if (as_per_dim(c, v[first + i], numbers[i]) != e->rank)
            layout_refuse(c->cx, "the cluster has one number for each dim of the tensor");
}

static CalcValue encoded(Calc *c, Encoding *e, const CalcValue *v, int count, int cluster) {
    PerDim shape;
    e->rank = as_per_dim(c, v[0], shape);
    read_cluster(c, e, v, count, cluster);
    return of_linear(c->cx->failed ? linear_empty() : encoding_to_linear(c->cx, e, shape, e->rank));
}

static Encoding blocked_of(Calc *c, const CalcValue *v) {
    Encoding e = {.kind = ENCODING_BLOCKED};
    as_per_dim(c, v[0], e.size_per_thread);
    as_per_dim(c, v[1], e.threads_per_warp);
    as_per_dim(c, v[2], e.warps_per_cta);
    as_per_dim(c, v[3], e.order);
    return e;
}
static Encoding mma_of(Calc *c, const CalcValue *v) {
    Encoding e = {.kind = ENCODING_MMA, .version = as_small(c, v[0])};
    e.instr_rank = as_per_dim(c, v[1], e.instr_shape);
    as_per_dim(c, v[2], e.warps_per_cta);
    return e;
}
CalcValue f_blocked(Calc *c, const CalcValue *v, int count) {
    Encoding e = blocked_of(c, v + 1);
    return encoded(c, &e, v, count, 5);
}
CalcValue f_mma(Calc *c, const CalcValue *v, int count) {
    Encoding e = mma_of(c, v + 1);
    return encoded(c, &e, v, count, 4);
}

// Operand of a product whose accumulator is `parent`.
static CalcValue operand(Calc *c, Encoding *parent, int k_width, const CalcValue *v, int count, int cluster) {
    PerDim shape;
    parent->rank = as_per_dim(c, v[0], shape);
    read_cluster(c, parent, v, count, cluster);
    Encoding e = {.kind = ENCODING_DOT, .parent = parent, .op_index = as_small(c, v[1]), .k_width = k_width};
    return encoded(c, &e, v, 1, 1);
}
CalcValue f_dot(Calc *c, const CalcValue *v, int count) {
    Encoding parent = mma_of(c, v + 3);
    return operand(c, &parent, as_small(c, v[2]), v, count, 6);
}
CalcValue f_dot_blocked(Calc *c, const CalcValue *v, int count) {
    Encoding parent = blocked_of(c, v + 2);
    return operand(c, &parent, 1, v, count, 6);
}
CalcValue f_swizzled(Calc *c, const CalcValue *v, int count) {
    Encoding e = {
        .kind = ENCODING_SWIZZLED, .vec = as_int(c, v[1]), .per_phase = as_int(c, v[2]), .max_phase = as_int(c, v[3])};
    as_per_dim(c, v[4], e.order);
    return encoded(c, &e, v, count, 5);
}
CalcValue f_nvmma(Calc *c, const CalcValue *v, int count) {
    Encoding e = {.kind = ENCODING_NVMMA_SHARED, .swizzle_bytes = as_int(c, v[1]), .element_bits = as_int(c, v[2])};
    e.transposed = count > 3 && as_int(c, v[3]) != 0;
    e.fp4_padded = count > 4 && as_int(c, v[4]) != 0;
    return encoded(c, &e, v, count, 5);
}
