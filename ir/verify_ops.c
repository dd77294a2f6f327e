// Rules 9 to 11 and 18: operations and their operands, read from the op table.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/verify_impl.h"
#include "support/strbuf.h"
#include <string.h>

// ---- places ----
static int stage_bits(const Context *c) {
    if (c->kind == FUNC_REFERENCE) return STAGE_BIT_REF;
    if (c->kind == FUNC_PROGRAM) return STAGE_BIT_HOST;
    if (c->thread) return STAGE_BIT_THREAD;
    return c->grid ? STAGE_BIT_TILE : STAGE_BIT_HOST;
}

void report_in_parallel(DiagSink *sink, Span loc, const OpInfo *info) {
    bool tile = !(info->stages & STAGE_BIT_THREAD);
    diag_note(
        diag(sink, loc, T_IR_PLACE, info->text, "inside a parallel loop"),
        tile
            ? "all threads execute it: it stands outside of the loop, on a whole tile; in the loop an element is y[i] = x[i]"
            : "iterations run in any order, so none waits for another: it stands before or behind the loop");
}

static void check_op_place(Verifier *v, const Context *c, const OpInfo *info, int count, const Arg *args, Span loc) {
    bool filled = c->kind == FUNC_PROGRAM && info->id == OP_FILL;   // scratch is prepared by fill
    if (!(info->stages & stage_bits(c)) && !filled) {
        REPORT(v, loc, T_IR_PLACE, info->text,
               c->kind == FUNC_REFERENCE ? "in a reference"
               : c->kind == FUNC_PROGRAM ? "in a program"
               : c->thread               ? "inside a thread region"
               : !c->grid                ? "outside of a grid"
                                         : "outside of a thread region");
        return;
    }
    bool everyone = info->participants == BY_CLUSTER;
    bool collective = info->participants == BY_ROLE || info->participants == BY_BLOCK || everyone;
    bool tile = collective && !(info->stages & STAGE_BIT_THREAD);
    if (collective && c->parallel) {
        v->broken = true;
        report_in_parallel(v->sink, loc, info);
    }
    if (tile && c->kind == FUNC_KERNEL && v->func->stage == STAGE_THREAD)
        REPORT(v, loc, T_IR_PLACE, info->text, "at thread stage");
    bool numbered = info->id == OP_BARRIER && count > 0 && args[0].value;
    if ((everyone || (info->id == OP_BARRIER && !numbered)) && c->thread && c->divergent)
        REPORT(v, loc, T_IR_UNIFORM, info->text);
}

// ---- operands ----
static bool is_map(const Operand *operand) {
    return strcmp(operand->name, "map") == 0;
}

static bool is_handle(const Operand *operand, const Expr *value) {
    return strcmp(operand->name, "slot") == 0 && value->type == TYPE_SLOT;
}

// The scopes of a set, as in "global memory or a fragment".
static const char *scopes_text(Verifier *v, int scopes) {
    static const char *const texts[] = {"global memory", "shared memory", "a fragment", "local registers"};
    const char *text = "";
    for (int i = 0; i < COUNT_OF(texts); i++)
        if (scopes >> i & 1) text = arena_printf(v->arena, "%s%s%s", text, *text ? " or " : "", texts[i]);
    return text;
}

static void report_scope(Verifier *v, const OpInfo *info, const Operand *operand, const Region *region) {
    const Buf *buf = region->buf;
    v->broken = true;
    Diag *d = diag(v->sink, region->loc, T_IR_OPERAND, operand->name, info->text,
                   arena_printf(v->arena, "must be in %s, not in %s", scopes_text(v, operand->scopes),
                                scopes_text(v, (int)buf->scope)));
    diag_label(d, buf->loc, "'%s' is declared here", buf->name);
    bool tile = !(info->stages & STAGE_BIT_THREAD) && !(operand->scopes & SCOPE_GLOBAL);
    const char *word = operand->scopes & SCOPE_SHARED ? "shared" : "fragment";
    if (tile)
        diag_note(d, "declare a tile, %s NAME: %s[extent, ...], and copy to or from '%s'", word, type_text(buf->type),
                  buf->name);
}

static void check_memory(Verifier *v, const Context *c, const OpInfo *info, const Operand *operand,
                         const Region *region) {
    check_region(v, c, region);
    const Buf *buf = region->buf;
    int scopes = operand->scopes;
    if (scopes & SCOPE_LOCAL) scopes |= SCOPE_FRAGMENT;   // regs(x)[r] in a thread region
    bool filled = c->kind == FUNC_PROGRAM && info->id == OP_FILL;
    if (!(scopes & (int)buf->scope) && !filled) report_scope(v, info, operand, region);
    if (filled && attr_get(buf->attrs, ATTR_ZEROED))   // between the fill and a kernel other launches may see it
        REPORT(v, region->loc, T_IR_OPERAND, operand->name, info->text, "is @zeroed, so it must not be filled");
    if (strcmp(operand->name, "bar") == 0 && buf->type != TYPE_MBARRIER)
        REPORT(v, region->loc, T_IR_OPERAND, operand->name, info->text, "is no mbarrier");
    if (strcmp(operand->name, "channel") == 0 && buf->type != TYPE_CHANNEL)
        REPORT(v, region->loc, T_IR_OPERAND, operand->name, info->text, "is no channel");
    bool writes = operand->access == ACCESS_WRITE || operand->access == ACCESS_UPDATE;
    if (writes && buf->is_param && buf->mode == MODE_IN) REPORT(v, region->loc, T_READ_ONLY, buf->name);
}

// A lane, a count or a mask may be a truth value, 0 or 1.
static void check_value_type(Verifier *v, const OpInfo *info, const Operand *operand, const Expr *value, Span loc) {
    Type type = value->type;
    if (operand->flags & OPERAND_TRUTH && type != TYPE_BOOL) REPORT(v, loc, T_NOT_CONDITION, type_text(type));
    const char *wanted = operand->flags & OPERAND_WORD ? "an integer of 32 bits" : "an integer";
    bool fits = operand->flags & OPERAND_WORD    ? type == TYPE_I32 || type == TYPE_U32
                : operand->flags & OPERAND_WHOLE ? type_is_int(type) || type == TYPE_BOOL
                                                 : true;
    if (!fits)
        REPORT(v, loc, T_IR_OPERAND, operand->name, info->text,
               arena_printf(v->arena, "must be %s, not %s", wanted, type_text(type)));
}

static void check_operand(Verifier *v, const Context *c, const OpInfo *info, const Operand *operand, const Arg *arg,
                          Span loc) {
    if (!arg || (!arg->value && !arg->region && !arg->name)) {
        if (!(operand->flags & OPERAND_OPTIONAL)) REPORT(v, loc, T_IR_OPERAND, operand->name, info->text, "is missing");
        return;
    }
    bool word = operand->access == ACCESS_NAME && operand->scopes == 0;
    bool named_word = operand->access == ACCESS_VALUE && (operand->flags & OPERAND_NAMED) && arg->name;
    if (word || named_word) {
        if (!arg->name) REPORT(v, loc, T_IR_OPERAND, operand->name, info->text, "must be a word");
        return;
    }
    if (operand->access == ACCESS_VALUE) {
        if (!arg->value) {
            REPORT(v, loc, T_IR_OPERAND, operand->name, info->text, "must be a value");
            return;
        }
        check_expr(v, c, arg->value);
        if (type_kind(arg->value->type) == KIND_OPAQUE && !is_map(operand) && !is_handle(operand, arg->value))
            REPORT(v, loc, T_NOT_SCALAR_TYPE, type_text(arg->value->type));
        check_value_type(v, info, operand, arg->value, loc);
        bool constant = arg->value->kind == EXPR_INT || arg->value->kind == EXPR_FLOAT;
        if ((operand->flags & OPERAND_CONST) && !constant)
            REPORT(v, loc, T_IR_OPERAND, operand->name, info->text, "must be a constant");
        return;
    }
    if (arg->region) check_memory(v, c, info, operand, arg->region);
    else REPORT(v, loc, T_IR_OPERAND, operand->name, info->text, "must be a buffer or a region of one");
}

// ---- TMA, wgmma (19) ----
void report_operand(Verifier *v, const OpInfo *info, int at, const char *why, Span loc) {
    REPORT(v, loc, T_IR_OPERAND, info->operands[at].name, info->text, why);
}

bool type_can_be_added(Type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_I32 || type == TYPE_U32 ||
           type == TYPE_U64;
}

static void check_tma(Verifier *v, const OpInfo *info, int count, const Arg *args, Span loc) {
    bool load = info->id == OP_TMA_LOAD || info->id == OP_TMA_MULTICAST, moves = info->id != OP_TMA_PREFETCH;
    int map_at = load ? 1 : 0, coordinates = info->operand_count - 1;
    const Buf *buf = moves ? args[load ? 0 : 1].region->buf : NULL;
    const Expr *e = args[map_at].value;
    const Param *param = e->kind == EXPR_VAR ? func_hidden(v->func, e->var) : NULL;
    TensorMap map;
    const char *why;
    if (!param) report_operand(v, info, map_at, "is no tensormap parameter", loc);
    if (!param || !tensor_map_read(v->func, param, &map, &why)) return;   // reported where it is declared
    if (buf && buf->type != map.tensor->type)
        report_operand(v, info, load ? 0 : 1, "has another type than the tensor", loc);
    bool loads = load || !moves;
    if (count - coordinates != map.rank + (loads ? map.offsets : 0))
        report_operand(v, info, coordinates,
                       map.offsets && loads ? "are not one for each dim of the tensor and an offset for each window"
                                            : "are not one for each dim of the box",
                       loc);
    if (!loads && map.offsets) report_operand(v, info, map_at, "is an im2col map, by which TMA only loads here", loc);
    if (info->id == OP_TMA_ADD && !type_can_be_added(map.tensor->type))
        report_operand(v, info, map_at, "has a type that TMA cannot add", loc);
    if (!load && moves && map.tf32)
        report_operand(v, info, map_at, "rounds to tf32, which TMA does only where it loads", loc);
    if (!load && moves && map.tensor->mode == MODE_IN) REPORT(v, loc, T_READ_ONLY, map.tensor->name);
}

static void check_bulk(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {   // PTX ISA, "cp.async.bulk"
    int n_at = info->operand_count - 1, shared_at = info->id == OP_BULK_LOAD ? 0 : 1;
    Type type = args[shared_at].region->buf->type;
    int64_t n = 0, bytes = type_kind(type) == KIND_OPAQUE ? 0 : type_bytes(type);
    if (type != args[1 - shared_at].region->buf->type || !bytes)
        report_operand(v, info, shared_at, "has another type than the tensor", loc);
    else if (!expr_const(args[n_at].value, &n) || n < 1 || n * bytes % tma_facts.unit_bytes ||
             n > tma_facts.max_transaction / bytes)
        report_operand(v, info, n_at, "is no multiple of 16 bytes that one copy can have", loc);
}

static void check_bulk_prefetch(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    enum { SRC = OPERAND_INDEX(BULK_PREFETCH, src), N = OPERAND_INDEX(BULK_PREFETCH, n) };
    Type type = args[SRC].region->buf->type;
    int64_t n = 0;
    bool plain = type_kind(type) != KIND_OPAQUE;
    if (!plain || !expr_const(args[N].value, &n) || n < 1 || n * type_bytes(type) % tma_facts.unit_bytes)
        report_operand(v, info, N, "is no multiple of 16 bytes", loc);
}

static void check_peer_store(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {   // PTX ISA, "st.async"
    const Buf *x = args[OPERAND_INDEX(PEER_STORE, x)].region->buf;
    Type type = x->type;
    if (!x->channel != !!args[OPERAND_INDEX(PEER_STORE, bar)].region)
        report_operand(v, info, OPERAND_INDEX(PEER_STORE, bar),
                       "is needed, but for a slot of a channel, which has its own", loc);
    bool stored = type_kind(type) != KIND_OPAQUE && (type_bytes(type) == 4 || type_bytes(type) == 8);
    if (!stored) report_operand(v, info, OPERAND_INDEX(PEER_STORE, x), "has elements of neither 4 nor 8 bytes", loc);
}

bool type_fits(Type type, const char *name) {
    return strcmp(type_text(type), name) == 0 || (strcmp(name, "tf32") == 0 && type == TYPE_F32);
}

// The form, lead, stride and step of an operand in shared memory: operands `at` and the three after it.
static void check_described(Verifier *v, const OpInfo *info, int at, const WgmmaInfo *shape, const Arg *args,
                            Span loc) {
    const WgmmaForm *form = args[at].name ? wgmma_form(args[at].name) : NULL;
    if (!form) report_operand(v, info, at, "must be one of k128, k64, k32, k0, mn128, mn64, mn32, mn0", loc);
    else if (!form->k_major && !shape->can_transpose)
        report_operand(v, info, at, "must be k..: only 16-bit types transpose", loc);
    for (int i = at + 1; i <= at + 3; i++) {
        int64_t bytes;
        bool step = i == at + 3;
        if (!args[i].value || !expr_const(args[i].value, &bytes)) report_operand(v, info, i, "is missing", loc);
        else if (bytes % tma_facts.unit_bytes || (step ? bytes < 0 : bytes < 0 || bytes >= tma_facts.descriptor_bytes))
            report_operand(v, info, i, "does not fit into a matrix descriptor: multiples of 16 below 2^18", loc);
    }
}

enum { WGMMA_SHAPE, WGMMA_A, WGMMA_B, WGMMA_ACC, WGMMA_STEPS, WGMMA_A_FORM, WGMMA_B_FORM = 9 };

static void check_wgmma(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    WgmmaInfo shape;
    int64_t steps = 0;
    if (!wgmma_named(args[WGMMA_SHAPE].name, &shape)) {
        report_operand(v, info, WGMMA_SHAPE, "names no instruction", loc);
        return;
    }
    const Buf *a = args[WGMMA_A].region->buf, *b = args[WGMMA_B].region->buf, *acc = args[WGMMA_ACC].region->buf;
    if (!type_fits(a->type, shape.a_type))
        report_operand(v, info, WGMMA_A, "has another type than the instruction", loc);
    if (!type_fits(b->type, shape.b_type))
        report_operand(v, info, WGMMA_B, "has another type than the instruction", loc);
    if (!type_fits(acc->type, shape.acc_type))
        report_operand(v, info, WGMMA_ACC, "has another type than the instruction", loc);
    if (!expr_const(args[WGMMA_STEPS].value, &steps)) report_operand(v, info, WGMMA_STEPS, "is no constant", loc);
    if (a->scope == SCOPE_SHARED) check_described(v, info, WGMMA_A_FORM, &shape, args, loc);
    check_described(v, info, WGMMA_B_FORM, &shape, args, loc);
}

// ---- shapes of tile ops ----
typedef struct Shape {
    int rank;
    int64_t extents[LAYOUT_MAX_RANK];   // below 0: not known
} Shape;

static Shape shape_of(const Region *region) {
    Shape shape = {.rank = region_rank(region)};
    for (int i = 0; i < shape.rank; i++) shape.extents[i] = region_extent(region, i);
    return shape;
}

static bool shapes_equal(const Shape *a, const Shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->extents[i] >= 0 && b->extents[i] >= 0 && a->extents[i] != b->extents[i]) return false;
    return true;
}

static const char *shape_text(const Verifier *v, const Shape *shape) {
    StrBuf out;
    sb_init(&out, v->arena);
    for (int i = 0; i < shape->rank; i++) sb_printf(&out, "%s%lld", i ? ", " : "[", (long long)shape->extents[i]);
    sb_str(&out, shape->rank ? "]" : "[]");
    return sb_text(&out);
}

static void check_same(Verifier *v, const Region *a, const Region *b, Span loc) {
    Shape x = shape_of(a), y = shape_of(b);
    if (!shapes_equal(&x, &y))
        REPORT(v, loc, T_SHAPES, a->buf->name, shape_text(v, &x), b->buf->name, shape_text(v, &y));
}

static void check_gemm(Verifier *v, const Arg *args, Span loc) {
    Shape a = shape_of(args[OPERAND_INDEX(GEMM, a)].region), b = shape_of(args[OPERAND_INDEX(GEMM, b)].region),
          acc = shape_of(args[OPERAND_INDEX(GEMM, acc)].region);
    bool fits = a.rank == 2 && b.rank == 2 && acc.rank == 2 && a.extents[1] == b.extents[0] &&
                a.extents[0] == acc.extents[0] && b.extents[1] == acc.extents[1];
    if (!fits) REPORT(v, loc, T_GEMM_SHAPES, shape_text(v, &a), shape_text(v, &b), shape_text(v, &acc));
}

static void check_reduce(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    Shape src = shape_of(args[OPERAND_INDEX(REDUCE_SUM, src)].region),
          dst = shape_of(args[OPERAND_INDEX(REDUCE_SUM, dst)].region), want = {0};
    int64_t axis;
    if (!expr_const(args[OPERAND_INDEX(REDUCE_SUM, axis)].value, &axis) || axis < 0 || axis >= src.rank) {
        REPORT(v, loc, T_AXIS, info->text, src.rank - 1);
        return;
    }
    for (int i = 0; i < src.rank; i++)
        if (i != axis) want.extents[want.rank++] = src.extents[i];
    if (src.rank == 1) want = (Shape){1, {1}};
    if (dst.rank == src.rank && dst.extents[axis] <= src.extents[axis]) {   // partial results
        want = src;
        want.extents[axis] = dst.extents[axis];
    }
    if (!shapes_equal(&want, &dst))
        REPORT(v, loc, T_REDUCE_SHAPES, info->text, shape_text(v, &src), (long long)axis, shape_text(v, &want),
               shape_text(v, &dst));
}

// Only global memory has what kernels before still write.
static void check_early(Verifier *v, const OpInfo *info, const Arg *args, Span loc) {
    if (strcmp(args[OPERAND_INDEX(LOAD, order)].name, "early") == 0 &&
        args[OPERAND_INDEX(LOAD, x)].region->buf->scope != SCOPE_GLOBAL)
        report_operand(v, info, OPERAND_INDEX(LOAD, order), "is 'early', which is for global memory", loc);
}

static void check_shapes(Verifier *v, const Context *c, const OpInfo *info, int count, const Arg *args, Span loc) {
    OpId op = info->id;
    if (op_is(op, OP_CLASS_TENSOR_MAP)) check_tma(v, info, count, args, loc);
    if (op == OP_BULK_LOAD || op == OP_BULK_STORE) check_bulk(v, info, args, loc);
    if (op == OP_BULK_PREFETCH) check_bulk_prefetch(v, info, args, loc);
    if (op == OP_LOAD) check_early(v, info, args, loc);
    if (op == OP_PEER_STORE) check_peer_store(v, info, args, loc);
    if (op == OP_WGMMA) check_wgmma(v, info, args, loc);
    if (op_is(op, OP_CLASS_INTEGER) && type_is_float(args[0].region->buf->type))
        REPORT(v, loc, T_IR_OPERAND, "x", info->text, "is no integer");
    for (int i = 0; i < count; i++)
        if (args[i].region && strcmp(op_operand(op, i)->name, "bar") != 0 &&
            !op_takes_element(op, args[i].region->buf->type))
            report_operand(v, info, i, "has elements of a type that it does not take", loc);
    if (op == OP_COPY || op == OP_SCAN_SUM || op == OP_SCAN_MAX)
        check_same(v, args[OPERAND_INDEX(COPY, src)].region, args[OPERAND_INDEX(COPY, dst)].region, loc);
    if (op == OP_GEMM) check_gemm(v, args, loc);
    if (op_is(op, OP_CLASS_REDUCTION)) check_reduce(v, info, args, loc);
    check_thread_op(v, c, info, count, args, loc);
}

void check_call(Verifier *v, const Context *c, OpId op, int count, const Arg *args, Span loc) {
    const OpInfo *info = op_info(op);
    bool broken = v->broken;
    v->broken = false;
    check_op_place(v, c, info, count, args, loc);
    int operands = info->operand_count;
    bool variadic = operands && (info->operands[operands - 1].flags & OPERAND_VARIADIC);
    if (count > operands && !variadic) REPORT(v, loc, T_ARGUMENTS, info->text);
    for (int i = 0; i < operands || i < count; i++) {
        const Operand *operand = i < operands ? &info->operands[i] : variadic ? &info->operands[operands - 1] : NULL;
        if (operand) check_operand(v, c, info, operand, i < count ? &args[i] : NULL, loc);
    }
    if (!v->broken) check_shapes(v, c, info, count, args, loc);   // all operands are there
    v->broken |= broken;
}
