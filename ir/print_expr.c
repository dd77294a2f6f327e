// Names, constants, expressions and operands as text; print.c says what holds of them.
#include "ir/print_impl.h"
#include "ir/query.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- names ----
static const char *const reserved[] = {
    "kernel", "program",    "fn",       "macro",     "import",  "const",   "reference",  "test",   "tolerance", "tune",
    "assume", "when",       "scratch",  "grid",      "threads", "cluster", "persistent", "raster", "regs",      "role",
    "async",  "thread",     "shared",   "fragment",  "local",   "var",     "let",        "layout", "strides",   "for",
    "unroll", "vectorized", "parallel", "pipelined", "while",   "if",      "else",       "break",  "return",    "in",
    "out",    "inout",      "step",     "inf",       "nan",     "true",    "false",
};

static bool is_reserved(const char *name) {
    for (int i = 0; i < COUNT_OF(reserved); i++)
        if (strcmp(reserved[i], name) == 0) return true;
    return false;
}

static bool name_free(const Printer *p, const char *name) {
    return !is_reserved(name) && !strmap_get(p->taken, name);
}

const char *declare_text(Printer *p, const void *object, const char *name) {
    const char *text = name && *name ? name : "x";
    const char *base = text;
    for (int i = 1; !name_free(p, text); i++) text = arena_printf(p->arena, "%s_%d", base, i);
    strmap_put(p->taken, text, (void *)object);
    map_put(p->names, object, (void *)text);
    vec_push(p->arena, &p->order, text);
    return text;
}

void forget_texts(Printer *p, int mark) {
    while (p->order.count > mark) {
        const char *text = vec_pop(&p->order);
        map_remove(p->names, strmap_get(p->taken, text));
        strmap_put(p->taken, text, NULL);
    }
}

static const char *name_of(const Printer *p, const void *object, const char *name) {
    const char *text = map_get(p->names, object);
    return text ? text : name ? name : "x";   // not declared: a statement printed by itself
}

const char *var_text(const Printer *p, const Var *var) {
    return name_of(p, var, var->name);
}

const char *buf_text(const Printer *p, const Buf *buf) {
    return name_of(p, buf, buf->name);
}

// ---- constants ----

// The shortest text that reads back as the same number of that type.
void put_real(StrBuf *out, Type type, double value) {
    if (isnan(value)) {
        sb_str(out, "nan");
        return;
    }
    if (isinf(value)) {
        sb_str(out, value < 0 ? "-inf" : "inf");
        return;
    }
    char text[64];
    int digits = 0, exponent = 0;
    do {
        snprintf(text, sizeof text, "%.*e", digits, value);
    } while (float_round(type, strtod(text, NULL)) != value && ++digits < 17);
    sscanf(strchr(text, 'e') + 1, "%d", &exponent);
    bool plain = exponent >= -5 && exponent <= 15;   // 0.5 and 100.0 rather than 5e-01 and 1e+02
    if (plain) snprintf(text, sizeof text, "%.*f", digits > exponent ? digits - exponent : 1, value);
    for (char *c = text; *c; c++)
        if (*c == ',') *c = '.';   // a host's locale
    sb_str(out, text);
}

static LiteralPlace promoted_with(Type type) {
    return (LiteralPlace){type == TYPE_NONE ? TYPE_FREE : TYPE_PROMOTED, type};
}

LiteralPlace exactly(Type type) {
    return (LiteralPlace){TYPE_EXACT, type};
}

static bool is_literal(const Expr *e) {
    return (e->kind == EXPR_INT && e->type != TYPE_BOOL) || e->kind == EXPR_FLOAT;
}

// Whether a bare literal in that place takes the constant's type (the rules of DESIGN 3.2, "numbers").
static bool bare(const Expr *e, LiteralPlace place) {
    if (place.rule == TYPE_EXACT) return e->type == place.type;
    if (e->kind == EXPR_INT) return e->type == (place.rule == TYPE_FREE ? TYPE_I64 : place.type);
    return e->type == (place.rule == TYPE_PROMOTED && place.type == TYPE_F64 ? TYPE_F64 : TYPE_F32);
}

static void put_literal(Printer *p, const Expr *e, LiteralPlace place) {
    StrBuf *out = p->out;
    if (e->kind == EXPR_INT && e->type == TYPE_BOOL) {
        sb_str(out, e->integer ? "true" : "false");
        return;
    }
    bool wrapped = !bare(e, place);
    if (wrapped) sb_printf(out, "%s(", type_text(e->type));
    if (e->kind == EXPR_FLOAT) put_real(out, e->type, e->real);
    else if (e->type == TYPE_U64) sb_printf(out, "%llu", (unsigned long long)e->integer);
    else sb_printf(out, "%lld", (long long)e->integer);
    if (wrapped) sb_char(out, ')');
}

// ---- expressions ----
static const struct {
    const char *text;
    int level;
} operators[] = {
    [BIN_ADD] = {"+", 10},
    [BIN_SUB] = {"-", 10},
    [BIN_MUL] = {"*", 11},
    [BIN_DIV] = {"/", 11},
    [BIN_MOD] = {"%", 11},
    [BIN_AND] = {"&", 6},
    [BIN_OR] = {"|", 4},
    [BIN_XOR] = {"^", 5},
    [BIN_SHL] = {"<<", 9},
    [BIN_SHR] = {">>", 9},
    [BIN_EQ] = {"==", 7},
    [BIN_NE] = {"!=", 7},
    [BIN_LT] = {"<", 8},
    [BIN_LE] = {"<=", 8},
    [BIN_GT] = {">", 8},
    [BIN_GE] = {">=", 8},
    [BIN_LOGICAL_AND] = {"&&", LEVEL_AND},
    [BIN_LOGICAL_OR] = {"||", LEVEL_OR},
};

void put_indices(Printer *p, int count, Expr *const *indices) {
    sb_char(p->out, '[');
    for (int i = 0; i < count; i++) {
        if (i) sb_str(p->out, ", ");
        put_expr(p, indices[i], 0, exactly(TYPE_I64));
    }
    sb_char(p->out, ']');
}

// In a thread region a fragment has no coordinates, only slots.
static void put_window(Printer *p, const Window *window) {
    sb_str(p->out, ", window(");
    put_expr(p, window->positions, 0, exactly(TYPE_I64));
    sb_printf(p->out, ", %lld", (long long)window->taps);
    if (window->stride != 1) sb_printf(p->out, ", stride = %lld", (long long)window->stride);
    if (window->padding) sb_printf(p->out, ", padding = %lld", (long long)window->padding);
    if (window->dilation != 1) sb_printf(p->out, ", dilation = %lld", (long long)window->dilation);
    sb_char(p->out, ')');
}

static void put_im2col(Printer *p, const Buf *view) {
    sb_printf(p->out, "im2col(%s", buf_text(p, view->alias_of));
    for (int i = 0; i < view->im2col->count; i++) put_window(p, &view->im2col->windows[i]);
    sb_char(p->out, ')');
}

static void put_moved(Printer *p, const Buf *buf) {
    sb_printf(p->out, buf->rank == 2 ? "%s.T" : "permute(%s", buf_text(p, buf));
    for (int d = 0; d < buf->rank && buf->rank > 2; d++) sb_printf(p->out, ", %d", moved_dim(buf->moved, buf->rank, d));
    if (buf->rank > 2) sb_char(p->out, ')');
}

void put_buffer(Printer *p, const Buf *buf) {
    if (buf->im2col) {
        put_im2col(p, buf);
        return;
    }
    if (buf->moved) {
        put_moved(p, buf);
        return;
    }
    bool slots = p->in_thread && buf->scope == SCOPE_FRAGMENT;
    sb_printf(p->out, slots ? "regs(%s)" : "%s", buf_text(p, buf));
}

static void put_unary(Printer *p, const Expr *e, LiteralPlace place) {
    static const char *const texts[] = {[UNARY_NEG] = "-", [UNARY_NOT] = "!", [UNARY_BITNOT] = "~"};
    const Expr *a = e->unary.a;
    sb_str(p->out, texts[e->unary.op]);
    (void)place;
    bool minus = a->kind == EXPR_UNARY && a->unary.op == UNARY_NEG;
    bool number = is_literal(a) && e->unary.op == UNARY_NEG;   // `-5` is a constant, `-(i64(5))` is not
    if (number) {
        sb_printf(p->out, "%s(", type_text(a->type));
        put_literal(p, a, exactly(a->type));
        sb_char(p->out, ')');
    } else {
        put_expr(p, a, minus ? LEVEL_PRIMARY : LEVEL_UNARY, anywhere);
    }
}

static void put_binary(Printer *p, const Expr *e, int level) {
    BinaryOp op = e->binary.op;
    const Expr *a = e->binary.a, *b = e->binary.b;
    int own = operators[op].level;
    bool shift = op == BIN_SHL || op == BIN_SHR, logical = own <= 3;
    Type with_a = is_literal(b) || shift || logical ? TYPE_NONE : b->type;
    Type with_b = (is_literal(a) && !shift) || logical ? TYPE_NONE : a->type;
    if (own < level) sb_char(p->out, '(');
    put_expr(p, a, own, promoted_with(with_a));
    sb_printf(p->out, " %s ", operators[op].text);
    put_expr(p, b, own + 1, shift ? exactly(a->type) : promoted_with(with_b));
    if (own < level) sb_char(p->out, ')');
}

static void put_select(Printer *p, const Expr *e, int level) {
    const Expr *yes = e->select.yes, *no = e->select.no;
    if (level > LEVEL_SELECT) sb_char(p->out, '(');
    put_expr(p, e->select.condition, LEVEL_OR, anywhere);
    sb_str(p->out, " ? ");
    put_expr(p, yes, LEVEL_SELECT, promoted_with(is_literal(no) ? TYPE_NONE : no->type));
    sb_str(p->out, " : ");
    put_expr(p, no, LEVEL_SELECT, promoted_with(is_literal(yes) ? TYPE_NONE : yes->type));
    if (level > LEVEL_SELECT) sb_char(p->out, ')');
}

// A converted constant says its own type: `f32(i64(3))`.
static void put_operand(Printer *p, const Expr *e) {
    if (!is_literal(e)) {
        put_expr(p, e, 0, anywhere);
        return;
    }
    sb_printf(p->out, "%s(", type_text(e->type));
    put_literal(p, e, exactly(e->type));
    sb_char(p->out, ')');
}

// `level`: the precedence that the surroundings need; a looser expression gets parentheses.
void put_expr(Printer *p, const Expr *e, int level, LiteralPlace place) {
    switch (e->kind) {
    case EXPR_INT:
    case EXPR_FLOAT: put_literal(p, e, place); break;
    case EXPR_VAR: sb_str(p->out, var_text(p, e->var)); break;
    case EXPR_LOAD:
        put_buffer(p, e->load.buf);
        put_indices(p, e->load.count, e->load.indices);
        break;
    case EXPR_UNARY: put_unary(p, e, place); break;
    case EXPR_BINARY: put_binary(p, e, level); break;
    case EXPR_SELECT: put_select(p, e, level); break;
    case EXPR_CAST:
        sb_printf(p->out, "%s(", type_text(e->type));
        put_operand(p, e->operand);
        sb_char(p->out, ')');
        break;
    case EXPR_BITCAST:
        sb_printf(p->out, "bitcast(%s, ", type_text(e->type));
        put_operand(p, e->operand);
        sb_char(p->out, ')');
        break;
    case EXPR_CALL: put_args(p, e->call.op, e->call.count, e->call.args); break;
    }
}

// ---- regions, operands ----
static bool clips_by_constant(const RegionDim *dim) {
    int64_t extent;
    return dim->extent && dim->tile > 0 && expr_const(dim->extent, &extent) && extent != dim->tile;
}

static bool dim_whole(const Region *region, int dim) {
    const RegionDim *d = &region->dims[dim];
    return d->extent && dim < region->buf->rank && expr_is_int(d->start, 0) && !clips_by_constant(d) &&
           expr_equal(d->extent, region->buf->shape[dim]);
}

void put_region(Printer *p, const Region *region) {
    put_buffer(p, region->buf);
    bool whole = region->count == region->buf->rank && region_is_whole(region);
    if (!whole) sb_char(p->out, '[');
    for (int i = 0; !whole && i < region->count; i++) {
        const RegionDim *dim = &region->dims[i];
        if (i) sb_str(p->out, ", ");
        if (dim_whole(region, i)) {
            sb_char(p->out, ':');
            continue;
        }
        put_expr(p, dim->start, 0, exactly(TYPE_I64));
        if (!dim->extent) continue;
        bool clips = clips_by_constant(dim);
        sb_str(p->out, clips ? " +: clip(" : " +: ");
        put_expr(p, dim->extent, 0, exactly(TYPE_I64));
        if (clips) sb_char(p->out, ')');
    }
    if (!whole) sb_char(p->out, ']');
    if (region->transposed) sb_str(p->out, ".T");
}

void put_string(StrBuf *out, const char *text) {
    sb_char(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') sb_char(out, '\\');
        if (*text == '\n') sb_str(out, "\\n");
        else if (*text == '\t') sb_str(out, "\\t");
        else sb_char(out, *text);
    }
    sb_char(out, '"');
}

// The type that decides literals among a call's operands: those of min, max, ... promote each other, a stored value
// takes its place's type.
static LiteralPlace operand_place(const OpInfo *info, int count, const Arg *args, int at) {
    bool stores = info->id == OP_FILL || info->id == OP_STORE || op_is(info->id, OP_CLASS_ATOMIC);
    if (stores && count > 0 && args[0].region) return exactly(args[0].region->buf->type);
    if (info->result != RESULT_PROMOTE) return anywhere;
    if (is_literal(args[at].value))
        for (int i = 0; i < count; i++)
            if (i != at && args[i].value && !is_literal(args[i].value)) return promoted_with(args[i].value->type);
    return anywhere;
}

static bool arg_absent(const Arg *arg) {
    return !arg->value && !arg->region && !arg->name;
}

static void put_arg(Printer *p, const OpInfo *info, int count, const Arg *args, int at) {
    const Arg *arg = &args[at];
    if (arg->value) put_expr(p, arg->value, 0, operand_place(info, count, args, at));
    else if (arg->region && info->id == OP_ALIGNED) sb_str(p->out, buf_text(p, arg->region->buf));
    else if (arg->region) put_region(p, arg->region);
    else if (arg->is_string) put_string(p->out, arg->name);
    else sb_str(p->out, arg->name);
}

void put_args(Printer *p, OpId op, int count, const Arg *args) {
    const OpInfo *info = op_info(op);
    bool first = true, skipped = false;
    sb_printf(p->out, "%s(", info->text);
    for (int i = 0; i < count; i++) {
        bool in_table = i < info->operand_count;
        if (arg_absent(&args[i])) {
            skipped |= !in_table || !(info->operands[i].flags & OPERAND_NAMED);   // those are named anyhow
            continue;
        }
        if (!first) sb_str(p->out, ", ");
        first = false;
        bool named = in_table && (skipped || (info->operands[i].flags & OPERAND_NAMED));
        if (named) sb_printf(p->out, "%s = ", info->operands[i].name);
        put_arg(p, info, count, args, i);
    }
    sb_char(p->out, ')');
}
