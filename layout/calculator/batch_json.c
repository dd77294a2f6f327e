#include "layout/calculator/batch_json.h"
#include "layout/calculator/encoding.h"
#include "layout/calculator/linear_text.h"
#include "layout/calculator/optimal_swizzle.h"
#include "support/json.h"
#include "support/vec.h"
#include <string.h>

// One question: its arguments, and the result's text.
typedef struct Question {
    LayoutContext *cx;
    const Json *args;
    int count;
    StrBuf *out;
} Question;

// ---- arguments ----

static const Json nothing = {.kind = JSON_NULL};

static const Json *arg(Question *q, int index, JsonKind kind, const char *what) {
    static const Json empty[] = {
        [JSON_NULL] = {.kind = JSON_NULL},       [JSON_BOOL] = {.kind = JSON_BOOL},
        [JSON_INTEGER] = {.kind = JSON_INTEGER}, [JSON_STRING] = {.kind = JSON_STRING, .text = ""},
        [JSON_ARRAY] = {.kind = JSON_ARRAY},     [JSON_OBJECT] = {.kind = JSON_OBJECT},
    };
    if (index < q->count && q->args[index].kind == kind) return &q->args[index];
    layout_refuse(q->cx, "argument %d: expected %s", index + 1, what);
    return &empty[kind];
}

static int64_t integer(Question *q, int index) {
    int64_t value = arg(q, index, JSON_INTEGER, "an integer")->integer;
    bool good = value <= LAYOUT_LIMIT && value >= -LAYOUT_LIMIT;
    return good ? value : layout_refuse(q->cx, "overflow: a number exceeds 2^62");
}

static const char *name(Question *q, int index) {
    return arg(q, index, JSON_STRING, "a name")->text;
}

static bool is_list(LayoutContext *cx, const Json *value, int count, const char *what) {
    bool good = value->kind == JSON_ARRAY && (count < 0 || value->count == count);
    return good || layout_refuse(cx, "expected %s", what);
}

static const char **names(Question *q, int index, int *count) {
    const Json *list = arg(q, index, JSON_ARRAY, "a list of names");
    const char **result = NEW_ARRAY(q->cx->arena, const char *, list->count);
    *count = 0;
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind == JSON_STRING) result[(*count)++] = list->items[i].text;
        else layout_refuse(q->cx, "argument %d: expected a list of names", index + 1);
    }
    return result;
}

static int log2_of_size(LayoutContext *cx, const Json *value) {
    if (value->kind == JSON_ARRAY && value->count == 1) value = &value->items[0];   // [n] stands for n
    if (value->kind == JSON_INTEGER && value->integer > 0 && !(value->integer & (value->integer - 1)))
        return __builtin_ctzll((unsigned long long)value->integer);
    return layout_refuse(cx, "a size is not a power of two");
}

// A list of [name, size]. Empty when refused.
static LinearDim *dims(LayoutContext *cx, const Json *list, int *count) {
    *count = 0;
    if (!list || !is_list(cx, list, -1, "a list of [name, size]")) return NULL;
    LinearDim *result = NEW_ARRAY(cx->arena, LinearDim, list->count);
    for (int i = 0; i < list->count && !cx->failed; i++) {
        const Json *item = &list->items[i];
        if (!is_list(cx, item, 2, "[name, size]")) break;
        if (item->items[0].kind != JSON_STRING) layout_refuse(cx, "expected [name, size]");
        else result[i] = (LinearDim){item->items[0].text, log2_of_size(cx, &item->items[1])};
    }
    if (!cx->failed) *count = list->count;
    return result;
}

static uint64_t packed_image(LayoutContext *cx, const Json *image, const LinearDim *outs, int out_count) {
    uint64_t packed = 0;
    if (!is_list(cx, image, out_count, "an image with one entry per output")) return 0;
    for (int i = 0, shift = 0; i < out_count; shift += outs[i++].bits) {
        const Json *entry = &image->items[i];
        if (entry->kind != JSON_INTEGER || entry->integer < 0 || entry->integer >> outs[i].bits)
            return (uint64_t)layout_refuse(cx, "an image lies outside the output sizes");
        packed |= (uint64_t)entry->integer << shift;
    }
    return packed;
}

static Linear layout(Question *q, int index) {
    LayoutContext *cx = q->cx;
    const Json *object = arg(q, index, JSON_OBJECT, "a layout {\"ins\", \"outs\"}");
    const Json *in_list = json_get(object, "ins"), *out_list = json_get(object, "outs");
    if (!in_list || !out_list) layout_refuse(cx, "argument %d: expected a layout {\"ins\", \"outs\"}", index + 1);
    int out_count = 0, bits = 0;
    const LinearDim *outs = dims(cx, out_list, &out_count);
    for (int i = 0; i < out_count; i++) bits += outs[i].bits;
    if (bits > LINEAR_MAX_BITS) layout_refuse(cx, "overflow: more than %d output bits", LINEAR_MAX_BITS);
    if (cx->failed || !is_list(cx, in_list, -1, "a list of [name, images]")) return linear_empty();
    LinearDim *ins = NEW_ARRAY(cx->arena, LinearDim, in_list->count);
    VEC(uint64_t) columns = {0};
    for (int i = 0; i < in_list->count; i++) {
        const Json *item = &in_list->items[i];
        if (!is_list(cx, item, 2, "[name, images]") || !is_list(cx, &item->items[1], -1, "[name, images]")) break;
        if (item->items[0].kind != JSON_STRING) layout_refuse(cx, "expected [name, images]");
        ins[i] = (LinearDim){item->items[0].text, item->items[1].count};
        for (int bit = 0; bit < item->items[1].count && !cx->failed; bit++)
            vec_push(cx->arena, &columns, packed_image(cx, &item->items[1].items[bit], outs, out_count));
    }
    if (cx->failed) return linear_empty();
    return linear_make(cx, ins, in_list->count, outs, out_count, columns.items);
}

// ---- results ----

static void put_bool(Question *q, bool value) {
    sb_str(q->out, value ? "true" : "false");
}

static void put_pair(StrBuf *out, bool first, const char *key, int64_t value) {
    sb_str(out, first ? "[" : ",[");
    json_quote(out, key);
    sb_char(out, ',');
    tuple_print_integer(out, value);
    sb_char(out, ']');
}

static void put_layout(Question *q, Linear a) {
    StrBuf *out = q->out;
    sb_str(out, "{\"ins\":[");
    for (int in = 0; in < a.in_count && !q->cx->failed; in++) {
        sb_str(out, in ? ",[" : "[");
        json_quote(out, a.ins[in].name);
        sb_str(out, ",[");
        for (int bit = 0; bit < a.ins[in].bits; bit++) {
            sb_str(out, bit ? ",[" : "[");
            for (int i = 0; i < a.out_count; i++) {
                if (i) sb_char(out, ',');
                tuple_print_integer(out, linear_basis(a, in, bit, i));
            }
            sb_char(out, ']');
        }
        sb_str(out, "]]");
    }
    sb_str(out, "],\"outs\":[");
    for (int i = 0; i < a.out_count; i++) put_pair(out, !i, a.outs[i].name, (int64_t)1 << a.outs[i].bits);
    sb_str(out, "]}");
}

static void put_layout_or_null(Question *q, bool found, Linear a) {
    if (found) put_layout(q, a);
    else sb_str(q->out, "null");
}

// ---- construction and queries ----

static void do_identity1d(Question *q) {
    put_layout(q, linear_identity1d(q->cx, integer(q, 0), name(q, 1), name(q, 2)));
}
static void do_strided1d(Question *q) {
    put_layout(q, linear_strided1d(q->cx, integer(q, 0), integer(q, 1), name(q, 2), name(q, 3)));
}
static void do_zeros1d(Question *q) {
    int64_t out_size = q->count > 3 ? integer(q, 3) : 1;
    put_layout(q, linear_zeros1d(q->cx, integer(q, 0), name(q, 1), name(q, 2), out_size));
}
static void do_is_surjective(Question *q) {
    put_bool(q, linear_is_surjective(layout(q, 0)));
}
static void do_is_injective(Question *q) {
    put_bool(q, linear_is_injective(layout(q, 0)));
}
static void do_is_invertible(Question *q) {
    put_bool(q, linear_is_invertible(layout(q, 0)));
}
static void do_consecutive(Question *q) {
    tuple_print_integer(q->out, linear_consecutive(layout(q, 0)));
}

// Sizes of a dim or of all of them; `log2` gives the number of bits.
static void put_size(Question *q, int bits, bool log2) {
    tuple_print_integer(q->out, log2 ? bits : (int64_t)1 << bits);
}

static void size_of_dim(Question *q, bool in, bool log2) {
    Linear a = layout(q, 0);
    int dim = in ? linear_find_in(a, name(q, 1)) : linear_find_out(a, name(q, 1));
    if (dim < 0) layout_refuse(q->cx, "there is no such dim");
    else put_size(q, in ? a.ins[dim].bits : a.outs[dim].bits, log2);
}

static void do_in_size(Question *q) {
    size_of_dim(q, true, false);
}
static void do_in_size_log2(Question *q) {
    size_of_dim(q, true, true);
}
static void do_out_size(Question *q) {
    size_of_dim(q, false, false);
}
static void do_out_size_log2(Question *q) {
    size_of_dim(q, false, true);
}
static void do_total_in_size(Question *q) {
    put_size(q, linear_in_bits(layout(q, 0)), false);
}
static void do_total_in_size_log2(Question *q) {
    put_size(q, linear_in_bits(layout(q, 0)), true);
}
static void do_total_out_size(Question *q) {
    put_size(q, linear_out_bits(layout(q, 0)), false);
}
static void do_total_out_size_log2(Question *q) {
    put_size(q, linear_out_bits(layout(q, 0)), true);
}

static void do_free_variables(Question *q) {
    Linear a = layout(q, 0);
    int64_t *masks = NEW_ARRAY(q->cx->arena, int64_t, a.in_count);
    linear_free_variables(a, masks);
    sb_char(q->out, '[');
    for (int i = 0; i < a.in_count; i++) put_pair(q->out, !i, a.ins[i].name, masks[i]);
    sb_char(q->out, ']');
}

static void do_apply(Question *q) {
    Linear a = layout(q, 0);
    const Json *values = arg(q, 1, JSON_ARRAY, "a list of [name, value]");
    int64_t *ins = NEW_ARRAY(q->cx->arena, int64_t, a.in_count), *outs = NEW_ARRAY(q->cx->arena, int64_t, a.out_count);
    if (values->count != a.in_count) layout_refuse(q->cx, "apply needs every input exactly once");
    bool *seen = NEW_ARRAY(q->cx->arena, bool, a.in_count);
    for (int i = 0; i < values->count && !q->cx->failed; i++) {
        const Json *item = &values->items[i];
        if (!is_list(q->cx, item, 2, "[name, value]")) return;
        int in = item->items[0].kind == JSON_STRING ? linear_find_in(a, item->items[0].text) : -1;
        if (in < 0 || seen[in] || item->items[1].kind != JSON_INTEGER) {
            layout_refuse(q->cx, "apply needs every input exactly once");
            return;
        }
        seen[in] = true;
        ins[in] = item->items[1].integer;
        if (ins[in] < 0 || ins[in] >> a.ins[in].bits) layout_refuse(q->cx, "an input value is outside its size");
    }
    if (q->cx->failed) return;
    linear_apply(a, ins, outs);
    sb_char(q->out, '[');
    for (int i = 0; i < a.out_count; i++) put_pair(q->out, !i, a.outs[i].name, outs[i]);
    sb_char(q->out, ']');
}

// ---- the algebra ----

typedef Linear UnaryOp(LayoutContext *, Linear);
typedef Linear BinaryOp(LayoutContext *, Linear, Linear);
typedef bool DivideOp(LayoutContext *, Linear, Linear, Linear *);
typedef Linear ReshapeOp(LayoutContext *, Linear, const LinearDim *, int);
typedef Linear TransposeOp(LayoutContext *, Linear, const char *const *, int);

static void unary(Question *q, UnaryOp *op) {
    Linear a = layout(q, 0);
    if (!q->cx->failed) put_layout(q, op(q->cx, a));
}

static void binary(Question *q, BinaryOp *op) {
    Linear a = layout(q, 0), b = layout(q, 1);
    if (!q->cx->failed) put_layout(q, op(q->cx, a, b));
}

static void division(Question *q, DivideOp *op) {
    Linear a = layout(q, 0), b = layout(q, 1), result = a;
    bool found = !q->cx->failed && op(q->cx, a, b, &result);
    put_layout_or_null(q, found, result);
}

static void reshape(Question *q, ReshapeOp *op) {
    int count;
    Linear a = layout(q, 0);
    const LinearDim *list = dims(q->cx, arg(q, 1, JSON_ARRAY, "a list of [name, size]"), &count);
    if (!q->cx->failed) put_layout(q, op(q->cx, a, list, count));
}

static void transpose(Question *q, TransposeOp *op) {
    int count;
    Linear a = layout(q, 0);
    const char **order = names(q, 1, &count);
    if (!q->cx->failed) put_layout(q, op(q->cx, a, order, count));
}

static void do_flatten_ins(Question *q) {
    unary(q, linear_flatten_ins);
}
static void do_flatten_outs(Question *q) {
    unary(q, linear_flatten_outs);
}
static void do_invert(Question *q) {
    unary(q, linear_invert);
}
static void do_pseudoinvert(Question *q) {
    unary(q, linear_pseudoinvert);
}
static void do_multiply(Question *q) {
    binary(q, linear_multiply);
}
static void do_compose(Question *q) {
    binary(q, linear_compose);
}
static void do_invert_and_compose(Question *q) {
    binary(q, linear_invert_and_compose);
}
static void do_divide_left(Question *q) {
    division(q, linear_divide_left);
}
static void do_divide_right(Question *q) {
    division(q, linear_divide_right);
}
static void do_reshape_ins(Question *q) {
    reshape(q, linear_reshape_ins);
}
static void do_reshape_outs(Question *q) {
    reshape(q, linear_reshape_outs);
}
static void do_transpose_ins(Question *q) {
    transpose(q, linear_transpose_ins);
}
static void do_transpose_outs(Question *q) {
    transpose(q, linear_transpose_outs);
}

static void do_sublayout(Question *q) {
    int in_count, out_count;
    Linear a = layout(q, 0);
    const char **ins = names(q, 1, &in_count), **outs = names(q, 2, &out_count);
    if (!q->cx->failed) put_layout(q, linear_sublayout(q->cx, a, ins, in_count, outs, out_count));
}

static void do_sublayout_is_zero(Question *q) {
    int in_count, out_count;
    Linear a = layout(q, 0);
    const char **ins = names(q, 1, &in_count), **outs = names(q, 2, &out_count);
    if (!q->cx->failed) put_bool(q, linear_sublayout_is_zero(q->cx, a, ins, in_count, outs, out_count));
}

static void do_square_is_identity(Question *q) {
    int count;
    Linear a = layout(q, 0);
    const char **list = names(q, 1, &count);
    if (!q->cx->failed) put_bool(q, linear_square_is_identity(q->cx, a, list, count));
}

static void do_quotient(Question *q) {
    int count;
    Linear a = layout(q, 0), result = a;
    const char **list = names(q, 1, &count);
    bool found = !q->cx->failed && linear_quotient(q->cx, a, list, count, &result);
    put_layout_or_null(q, found, result);
}

static void do_is_trivial_over(Question *q) {
    int count;
    Linear a = layout(q, 0), result = a;
    const char **list = names(q, 1, &count);
    if (!q->cx->failed) put_bool(q, linear_quotient(q->cx, a, list, count, &result));
}

static void do_remove_zero_bases(Question *q) {
    Linear a = layout(q, 0);
    const char *in = name(q, 1);
    if (!q->cx->failed) put_layout(q, linear_remove_zero_bases(q->cx, a, in));
}

// ---- encodings and swizzles ----

// A member that lists integers, one per dim; fills `values` and returns the count. Absent: 0.
static int per_dim(LayoutContext *cx, const Json *object, const char *key, int64_t *values) {
    const Json *list = json_get(object, key);
    if (!list) return layout_refuse(cx, "the encoding has no %s", key);
    if (list->kind != JSON_ARRAY || list->count > ENCODING_MAX_RANK)
        return layout_refuse(cx, "%s is a list of up to %d integers", key, ENCODING_MAX_RANK);
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != JSON_INTEGER) return layout_refuse(cx, "%s is a list of integers", key);
        values[i] = list->items[i].integer;
    }
    return list->count;
}

static int64_t number(LayoutContext *cx, const Json *object, const char *key) {
    const Json *value = json_get(object, key);
    if (value && (value->kind == JSON_INTEGER || value->kind == JSON_BOOL)) return value->integer;
    return layout_refuse(cx, "the encoding has no number %s", key);
}

static bool flag(LayoutContext *cx, const Json *object, const char *key) {
    return json_get(object, key) && number(cx, object, key) != 0;
}

static int small(LayoutContext *cx, const Json *object, const char *key) {
    int64_t value = number(cx, object, key);
    if (value < 0 || value > 1 << 20) layout_refuse(cx, "%s is out of range", key);
    return cx->failed ? 0 : (int)value;
}

static void same_rank(LayoutContext *cx, Encoding *e, int count, const char *key) {
    if (e->rank && count != e->rank) layout_refuse(cx, "%s has another rank than the encoding", key);
    e->rank = count;
}

static Encoding *read_encoding(LayoutContext *cx, const Json *object, int depth) {
    Encoding *e = NEW(cx->arena, Encoding);
    const Json *kind = json_get(object, "kind");
    if (!kind || kind->kind != JSON_STRING || depth > ENCODING_MAX_RANK)
        return layout_refuse(cx, "expected an encoding with a kind"), e;
    const char *k = kind->text;
    if (!strcmp(k, "slice") || !strcmp(k, "dot")) {
        e->kind = *k == 's' ? ENCODING_SLICE : ENCODING_DOT;
        if (*k == 's') e->dim = small(cx, object, "dim");
        else e->op_index = small(cx, object, "opIdx"), e->k_width = small(cx, object, "kWidth");
        if (e->op_index > 1) layout_refuse(cx, "opIdx is 0 or 1");
        e->parent = read_encoding(cx, json_get(object, "parent"), depth + 1);
        return e;
    }
    same_rank(cx, e, per_dim(cx, object, "ctas", e->ctas), "ctas");
    same_rank(cx, e, per_dim(cx, object, "ctaSplit", e->cta_split), "ctaSplit");
    same_rank(cx, e, per_dim(cx, object, "ctaOrder", e->cta_order), "ctaOrder");
    if (!strcmp(k, "blocked")) {
        e->kind = ENCODING_BLOCKED;
        same_rank(cx, e, per_dim(cx, object, "sizePerThread", e->size_per_thread), "sizePerThread");
        same_rank(cx, e, per_dim(cx, object, "threadsPerWarp", e->threads_per_warp), "threadsPerWarp");
        same_rank(cx, e, per_dim(cx, object, "warpsPerCTA", e->warps_per_cta), "warpsPerCTA");
        same_rank(cx, e, per_dim(cx, object, "order", e->order), "order");
    } else if (!strcmp(k, "mma")) {
        e->kind = ENCODING_MMA;
        e->version = small(cx, object, "version");
        same_rank(cx, e, per_dim(cx, object, "warpsPerCTA", e->warps_per_cta), "warpsPerCTA");
        e->instr_rank = per_dim(cx, object, "instrShape", e->instr_shape);
    } else if (!strcmp(k, "swizzled")) {
        e->kind = ENCODING_SWIZZLED;
        e->vec = number(cx, object, "vec");
        e->per_phase = number(cx, object, "perPhase");
        e->max_phase = number(cx, object, "maxPhase");
        same_rank(cx, e, per_dim(cx, object, "order", e->order), "order");
    } else if (!strcmp(k, "nvmma_shared")) {
        e->kind = ENCODING_NVMMA_SHARED;
        e->swizzle_bytes = number(cx, object, "swizzleBytes");
        e->element_bits = number(cx, object, "elemBits");
        e->transposed = flag(cx, object, "transposed");
        e->fp4_padded = flag(cx, object, "fp4Padded");
    } else {
        layout_refuse(cx, "unknown encoding '%.40s'", k);
    }
    return e;
}

static void do_to_linear_layout(Question *q) {
    const Json *list = arg(q, 0, JSON_ARRAY, "a shape");
    PerDim shape;
    int rank = 0;
    if (list->count > ENCODING_MAX_RANK) layout_refuse(q->cx, "tensors have rank 1 to %d", ENCODING_MAX_RANK);
    for (int i = 0; i < list->count && !q->cx->failed; i++) {
        if (list->items[i].kind != JSON_INTEGER) layout_refuse(q->cx, "a shape is a list of integers");
        shape[rank++] = list->items[i].integer;
    }
    Encoding *e = read_encoding(q->cx, arg(q, 1, JSON_OBJECT, "an encoding"), 0);
    if (!q->cx->failed) put_layout(q, encoding_to_linear(q->cx, e, shape, rank));
}

static int element_width(Question *q, int index) {
    int64_t bits = integer(q, index);
    if (bits < 1 || bits > 128) layout_refuse(q->cx, "the element's width is a power of two up to 128 bits");
    return q->cx->failed ? 8 : (int)bits;
}

static void do_optimal_swizzle(Question *q) {
    Linear source = layout(q, 0), destination = layout(q, 1);
    int bits = element_width(q, 2);
    if (!q->cx->failed) put_layout(q, optimal_swizzle(q->cx, source, destination, bits));
}

static void do_swizzle_conflicts(Question *q) {
    Linear source = layout(q, 0), destination = layout(q, 1), shared = layout(q, 2);
    int bits = element_width(q, 3);
    if (q->cx->failed) return;
    SwizzleConflicts c = optimal_swizzle_conflicts(q->cx, source, destination, shared, bits);
    sb_printf(q->out, "[%lld,%lld]", (long long)c.read, (long long)c.write);
}

// ---- dispatch ----

static const struct {
    const char *name;
    void (*answer)(Question *);
} operations[] = {
    // sorted by name
    {"apply", do_apply},
    {"bankConflictsLdSt", do_swizzle_conflicts},
    {"compose", do_compose},
    {"divideLeft", do_divide_left},
    {"divideRight", do_divide_right},
    {"flattenIns", do_flatten_ins},
    {"flattenOuts", do_flatten_outs},
    {"getFreeVariableMasks", do_free_variables},
    {"getInDimSize", do_in_size},
    {"getInDimSizeLog2", do_in_size_log2},
    {"getNumConsecutiveInOut", do_consecutive},
    {"getOutDimSize", do_out_size},
    {"getOutDimSizeLog2", do_out_size_log2},
    {"getTotalInDimSize", do_total_in_size},
    {"getTotalInDimSizeLog2", do_total_in_size_log2},
    {"getTotalOutDimSize", do_total_out_size},
    {"getTotalOutDimSizeLog2", do_total_out_size_log2},
    {"identity1D", do_identity1d},
    {"invert", do_invert},
    {"invertAndCompose", do_invert_and_compose},
    {"isInjective", do_is_injective},
    {"isInvertible", do_is_invertible},
    {"isSurjective", do_is_surjective},
    {"isTrivialOver", do_is_trivial_over},
    {"multiply", do_multiply},
    {"optimalSwizzlingLdSt", do_optimal_swizzle},
    {"pseudoinvert", do_pseudoinvert},
    {"quotient", do_quotient},
    {"removeZeroBasesAlongDim", do_remove_zero_bases},
    {"reshapeIns", do_reshape_ins},
    {"reshapeOuts", do_reshape_outs},
    {"squareSublayoutIsIdentity", do_square_is_identity},
    {"strided1D", do_strided1d},
    {"sublayout", do_sublayout},
    {"sublayoutIsZero", do_sublayout_is_zero},
    {"toLinearLayout", do_to_linear_layout},
    {"transposeIns", do_transpose_ins},
    {"transposeOuts", do_transpose_outs},
    {"zeros1D", do_zeros1d},
};

static void answer(Question *q, const char *op) {
    for (int low = 0, high = COUNT_OF(operations); low < high;) {
        int middle = (low + high) / 2, order = strcmp(op, operations[middle].name);
        if (!order) {
            operations[middle].answer(q);
            return;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    layout_refuse(q->cx, "unknown operation '%.40s'", op);
}

char *batch_json(Arena *arena, const char *line, size_t length) {
    LayoutContext cx = layout_context(arena);
    StrBuf out;
    sb_init(&out, arena);
    sb_str(&out, "{\"result\":");
    const char *why = NULL;
    const Json *object = json_read(arena, line, length, &why);
    const Json *op = json_get(object, "op"), *args = json_get(object, "args");
    if (!object) layout_refuse(&cx, "JSON: %s", why);
    if (!op || op->kind != JSON_STRING || !args || args->kind != JSON_ARRAY)
        layout_refuse(&cx, "expected {\"op\": name, \"args\": [...]}");
    Question q = {&cx, args ? args->items : &nothing, args && args->kind == JSON_ARRAY ? args->count : 0, &out};
    if (!cx.failed) answer(&q, op->text);
    if (cx.failed) {
        sb_init(&out, arena);
        sb_str(&out, "{\"error\":");
        json_quote(&out, cx.reason);
    }
    sb_char(&out, '}');
    return out.text;
}
