// IR to text. What is printed parses, and prints the same again: so the text says everything that the IR says.
//
// - Names. A Var or Buf prints as its name unless another one that is visible there has it already: then `i_1`, `i_2`.
//   Names are given when a declaration is printed, and taken back at the end of its block.
// - Constants. A literal has no type until it is used, so a constant prints bare only where its use gives it back its
//   type (i64 or f32 where nothing asks, the other operand's, the type of what is stored to); elsewhere as `u32(3)`.
// - Conversions. All are explicit in the IR, so all are printed, and a constant that is converted says its own type:
//   `f32(i64(3))` converts, `f32(3.0)` is a constant.
#include "ir/print.h"
#include "ir/build.h"
#include "support/map.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_WIDTH = 110 };

typedef struct Printer {
    Arena *arena;
    StrBuf *out;
    const Module *module;   // for the names of source files; may be NULL
    PrintOptions options;
    int indent;
    Map *names;                // Var, Buf -> its text
    StrMap *taken;             // text -> the object that has it now
    VEC(const char *) order;   // texts in order of declaration: a block ends by taking them back
    Span place;                // what @loc said around
    bool in_thread;
} Printer;

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

static const char *declare(Printer *p, const void *object, const char *name) {
    const char *text = name && *name ? name : "x";
    const char *base = text;
    for (int i = 1; !name_free(p, text); i++) text = arena_printf(p->arena, "%s_%d", base, i);
    strmap_put(p->taken, text, (void *)object);
    map_put(p->names, object, (void *)text);
    vec_push(p->arena, &p->order, text);
    return text;
}

static void forget(Printer *p, int mark) {
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

static const char *var_text(const Printer *p, const Var *var) {
    return name_of(p, var, var->name);
}

static const char *buf_text(const Printer *p, const Buf *buf) {
    return name_of(p, buf, buf->name);
}

// ---- constants ----

// The shortest text that reads back as the same number of that type.
static void put_real(StrBuf *out, Type type, double value) {
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

// What decides the type of a literal in some place.
typedef enum { TYPE_FREE, TYPE_BESIDE, TYPE_EXACT } LiteralRule;

typedef struct Place {
    LiteralRule rule;   // nothing; the other operand's type; the type that is stored to
    Type type;
} Place;

static const Place anywhere = {TYPE_FREE, TYPE_NONE};

static Place beside(Type type) {
    return (Place){type == TYPE_NONE ? TYPE_FREE : TYPE_BESIDE, type};
}

static Place exactly(Type type) {
    return (Place){TYPE_EXACT, type};
}

static bool is_literal(const Expr *e) {
    return (e->kind == EXPR_INT && e->type != TYPE_BOOL) || e->kind == EXPR_FLOAT;
}

// Whether a bare literal in that place takes the constant's type (the rules of DESIGN 3.2, "numbers").
static bool bare(const Expr *e, Place place) {
    if (place.rule == TYPE_EXACT) return e->type == place.type;
    if (e->kind == EXPR_INT) return e->type == (place.rule == TYPE_FREE ? TYPE_I64 : place.type);
    return e->type == (place.rule == TYPE_BESIDE && place.type == TYPE_F64 ? TYPE_F64 : TYPE_F32);
}

static void put_literal(Printer *p, const Expr *e, Place place) {
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
enum { LEVEL_SELECT = 1, LEVEL_OR, LEVEL_UNARY = 12, LEVEL_PRIMARY };

static const struct {
    const char *text;
    int level;
} operators[] = {
    [BIN_ADD] = {"+", 10}, [BIN_SUB] = {"-", 10},         [BIN_MUL] = {"*", 11},
    [BIN_DIV] = {"/", 11}, [BIN_MOD] = {"%", 11},         [BIN_AND] = {"&", 6},
    [BIN_OR] = {"|", 4},   [BIN_XOR] = {"^", 5},          [BIN_SHL] = {"<<", 9},
    [BIN_SHR] = {">>", 9}, [BIN_EQ] = {"==", 7},          [BIN_NE] = {"!=", 7},
    [BIN_LT] = {"<", 8},   [BIN_LE] = {"<=", 8},          [BIN_GT] = {">", 8},
    [BIN_GE] = {">=", 8},  [BIN_LOGICAL_AND] = {"&&", 3}, [BIN_LOGICAL_OR] = {"||", LEVEL_OR},
};

static void put_expr(Printer *p, const Expr *e, int level, Place place);
static void put_args(Printer *p, OpId op, int count, const Arg *args);

static void put_indices(Printer *p, int count, Expr *const *indices) {
    sb_char(p->out, '[');
    for (int i = 0; i < count; i++) {
        if (i) sb_str(p->out, ", ");
        put_expr(p, indices[i], 0, exactly(TYPE_I64));
    }
    sb_char(p->out, ']');
}

// In a thread region a fragment has no coordinates, only slots.
static void put_buffer(Printer *p, const Buf *buf) {
    bool slots = p->in_thread && buf->scope == SCOPE_FRAGMENT;
    sb_printf(p->out, slots ? "regs(%s)" : "%s", buf_text(p, buf));
}

static void put_unary(Printer *p, const Expr *e, Place place) {
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
    Type beside_a = is_literal(b) || shift || logical ? TYPE_NONE : b->type;
    Type beside_b = (is_literal(a) && !shift) || logical ? TYPE_NONE : a->type;
    if (own < level) sb_char(p->out, '(');
    put_expr(p, a, own, beside(beside_a));
    sb_printf(p->out, " %s ", operators[op].text);
    put_expr(p, b, own + 1, shift ? exactly(a->type) : beside(beside_b));
    if (own < level) sb_char(p->out, ')');
}

static void put_select(Printer *p, const Expr *e, int level) {
    const Expr *yes = e->select.yes, *no = e->select.no;
    if (level > LEVEL_SELECT) sb_char(p->out, '(');
    put_expr(p, e->select.condition, LEVEL_OR, anywhere);
    sb_str(p->out, " ? ");
    put_expr(p, yes, LEVEL_SELECT, beside(is_literal(no) ? TYPE_NONE : no->type));
    sb_str(p->out, " : ");
    put_expr(p, no, LEVEL_SELECT, beside(is_literal(yes) ? TYPE_NONE : yes->type));
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
static void put_expr(Printer *p, const Expr *e, int level, Place place) {
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
static bool dim_whole(const Region *region, int dim) {
    const RegionDim *d = &region->dims[dim];
    return d->extent && dim < region->buf->rank && expr_is_int(d->start, 0) &&
           expr_equal(d->extent, region->buf->shape[dim]);
}

static void put_region(Printer *p, const Region *region) {
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
        sb_str(p->out, " +: ");
        put_expr(p, dim->extent, 0, exactly(TYPE_I64));
    }
    if (!whole) sb_char(p->out, ']');
    if (region->transposed) sb_str(p->out, ".T");
}

static void put_string(StrBuf *out, const char *text) {
    sb_char(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') sb_char(out, '\\');
        if (*text == '\n') sb_str(out, "\\n");
        else if (*text == '\t') sb_str(out, "\\t");
        else sb_char(out, *text);
    }
    sb_char(out, '"');
}

// The type that decides literals among a call's operands: those of min, max, ... are beside each other, a stored value
// takes its place's type.
static Place operand_place(const OpInfo *info, int count, const Arg *args, int at) {
    bool stores =
        info->id == OP_FILL || info->id == OP_STORE || (info->id >= OP_ATOMIC_ADD && info->id <= OP_ATOMIC_CAS);
    if (stores && count > 0 && args[0].region) return exactly(args[0].region->buf->type);
    if (info->result != RESULT_PROMOTE) return anywhere;
    if (is_literal(args[at].value))
        for (int i = 0; i < count; i++)
            if (i != at && args[i].value && !is_literal(args[i].value)) return beside(args[i].value->type);
    return anywhere;
}

static bool arg_absent(const Arg *arg) {
    return !arg->value && !arg->region && !arg->name;
}

static void put_arg(Printer *p, const OpInfo *info, int count, const Arg *args, int at) {
    const Arg *arg = &args[at];
    if (arg->value) put_expr(p, arg->value, 0, operand_place(info, count, args, at));
    else if (arg->region) put_region(p, arg->region);
    else if (arg->is_string) put_string(p->out, arg->name);
    else sb_str(p->out, arg->name);
}

static void put_args(Printer *p, OpId op, int count, const Arg *args) {
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

// ---- attributes ----
static void put_attr(Printer *p, const Attr *attr) {
    sb_printf(p->out, "@%s", attr_name(attr->id));
    const char *pattern = attr_pattern(attr->id);
    for (int i = 0; i < attr->count; i++) {
        sb_str(p->out, i ? ", " : "(");
        if (pattern[i] == 'i') sb_printf(p->out, "%lld", (long long)attr->args[i].integer);
        else if (pattern[i] == 's') put_string(p->out, attr->args[i].text ? attr->args[i].text : "");
        else sb_str(p->out, attr->args[i].text ? attr->args[i].text : "none");
    }
    if (attr->count) sb_char(p->out, ')');
}

static bool same_place(Span a, Span b) {
    return a.line == b.line && (a.line == 0 || (a.file == b.file && a.column == b.column));
}

// @loc only where the place differs from the one around: a place holds for all that is inside.
static bool says_place(const Printer *p, Span loc) {
    return p->options.places && p->module && loc.line > 0 && !same_place(loc, p->place);
}

static void put_loc(Printer *p, Span loc) {
    sb_str(p->out, "@loc(");
    put_string(p->out, diag_source_name(p->module->sink, loc.file));
    sb_printf(p->out, ", %d, %d)", loc.line, loc.column);
}

static void put_attrs_before(Printer *p, const Attr *attrs, Span loc) {
    if (says_place(p, loc)) {
        put_loc(p, loc);
        sb_char(p->out, ' ');
    }
    for (; attrs; attrs = attrs->next) {
        put_attr(p, attrs);
        sb_char(p->out, ' ');
    }
}

static void put_attrs_after(Printer *p, const Attr *attrs) {
    for (; attrs; attrs = attrs->next) {
        sb_char(p->out, ' ');
        put_attr(p, attrs);
    }
}

// ---- statements ----
static void put_stmt(Printer *p, const Stmt *stmt);

static void put_indent(Printer *p) {
    for (int i = 0; i < p->indent; i++) sb_str(p->out, "    ");
}

static void put_dims(Printer *p, int rank, Expr *const *extents) {
    if (rank > 0) put_indices(p, rank, extents);
}

// Statements that may follow a loop's or condition's head on the same line.
static bool is_simple(const Stmt *stmt) {
    return !stmt->attrs && (stmt->kind == STMT_ASSIGN || stmt->kind == STMT_STORE || stmt->kind == STMT_CALL ||
                            stmt->kind == STMT_BREAK);
}

static void put_lines(Printer *p, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        put_indent(p);
        put_stmt(p, block->items[i]);
        sb_char(p->out, '\n');
    }
}

static void put_block(Printer *p, const Block *block) {
    if (block->count == 0) {
        sb_str(p->out, "{ }");
        return;
    }
    int mark = p->order.count;
    sb_str(p->out, "{\n");
    p->indent++;
    put_lines(p, block);
    p->indent--;
    put_indent(p);
    sb_char(p->out, '}');
    forget(p, mark);
}

static size_t line_length(const Printer *p) {
    size_t at = p->out->length;
    while (at > 0 && p->out->text[at - 1] != '\n') at--;
    return p->out->length - at;
}

// One simple statement stays on the line of its loop when it fits there.
static void put_body(Printer *p, const Block *block) {
    bool inline_ = block->count == 1 && is_simple(block->items[0]) && !says_place(p, block->items[0]->loc);
    if (!inline_) {
        put_block(p, block);
        return;
    }
    size_t start = p->out->length;
    put_stmt(p, block->items[0]);
    if (line_length(p) <= LINE_WIDTH) return;
    p->out->length = start;
    p->out->text[start] = 0;
    put_block(p, block);
}

static void put_iter(Printer *p, const Iter *iter) {
    // The bounds are outside the iterator's scope: they are printed before it gets its name.
    StrBuf *out = p->out, bounds;
    sb_init(&bounds, p->arena);
    p->out = &bounds;
    if (!expr_is_int(iter->begin, 0)) {
        put_expr(p, iter->begin, 0, exactly(TYPE_I64));
        sb_str(&bounds, " .. ");
    }
    put_expr(p, iter->end, 0, exactly(TYPE_I64));
    if (!expr_is_int(iter->step, 1)) {
        sb_str(&bounds, " step ");
        put_expr(p, iter->step, 0, exactly(TYPE_I64));
    }
    p->out = out;
    sb_printf(out, "%s in %s", declare(p, iter->var, iter->var->name), sb_text(&bounds));
}

static void put_iters(Printer *p, int count, const Iter *iters) {
    for (int i = 0; i < count; i++) {
        if (i) sb_str(p->out, ", ");
        put_iter(p, &iters[i]);
    }
}

static int64_t slots_of(const Buf *buf) {
    int64_t slots = 1;
    for (int i = 0; i < buf->stage_dims && i < buf->rank; i++) slots *= buf_extent(buf, i);
    return slots;
}

// Printed layouts belong to logical shapes: a lowered buffer has its physical shape instead.
static void put_decl(Printer *p, const Stmt *stmt) {
    const Buf *buf = stmt->decl;
    const char *scope = buf->is_scratch                ? "scratch"
                        : buf->scope == SCOPE_SHARED   ? "shared"
                        : buf->scope == SCOPE_FRAGMENT ? "fragment"
                                                       : "local";
    bool logical = buf->layout && !buf->lowered;
    StrBuf dims, *out = p->out;   // before the name is visible
    sb_init(&dims, p->arena);
    p->out = &dims;
    put_dims(p, buf->rank, buf->shape);
    p->out = out;
    sb_printf(out, "%s %s: %s%s", scope, declare(p, buf, buf->name), type_text(buf->type), sb_text(&dims));
    if (logical) sb_printf(out, " layout \"%s\"", layout_text(p->arena, buf->layout));
    if (buf->stage_dims > 0 && !attr_get(buf->attrs, ATTR_STAGES) && !(logical && buf->scope == SCOPE_SHARED))
        sb_printf(out, " @stages(%lld)", (long long)slots_of(buf));
    if (buf->alias_of) sb_printf(out, " @alias(%s)", buf_text(p, buf->alias_of));
    if (buf->owner) sb_printf(out, " @owner(%s)", buf->owner);
    if (buf->offset >= 0) sb_printf(out, " @offset(%lld)", (long long)buf->offset);
    if (buf->align > 0) sb_printf(out, " @align(%d)", buf->align);
    put_attrs_after(p, buf->attrs);
    sb_char(out, ';');
    if (!p->options.comments || buf->scope != SCOPE_SHARED) return;
    if (buf_space(buf) > 0) sb_printf(out, "   // %lld bytes", (long long)buf_space(buf));
}

static void put_let(Printer *p, const Stmt *stmt) {
    const Var *var = stmt->let.var;
    StrBuf value, *out = p->out;
    sb_init(&value, p->arena);
    p->out = &value;
    if (stmt->let.value) put_expr(p, stmt->let.value, 0, stmt->kind == STMT_LET ? anywhere : exactly(var->type));
    p->out = out;
    const char *name = declare(p, var, var->name);
    if (stmt->kind == STMT_LET) sb_printf(out, "let %s", name);
    else sb_printf(out, "var %s: %s", name, type_text(var->type));
    if (stmt->let.value) sb_printf(out, " = %s", sb_text(&value));
    sb_char(out, ';');
}

static void put_loop(Printer *p, const Stmt *stmt) {
    static const char *const kinds[] = {[LOOP_SERIAL] = "for",
                                        [LOOP_UNROLL] = "unroll",
                                        [LOOP_VECTORIZED] = "vectorized",
                                        [LOOP_PARALLEL] = "parallel",
                                        [LOOP_PIPELINED] = "pipelined"};
    int mark = p->order.count;
    sb_printf(p->out, "%s (", kinds[stmt->loop.kind]);
    put_iters(p, stmt->loop.count, stmt->loop.iters);
    if (stmt->loop.stages) {
        sb_str(p->out, ", stages = ");
        put_expr(p, stmt->loop.stages, 0, exactly(TYPE_I64));
    }
    sb_str(p->out, ") ");
    put_body(p, &stmt->loop.body);
    forget(p, mark);
}

static void put_if(Printer *p, const Stmt *stmt) {
    sb_str(p->out, "if (");
    put_expr(p, stmt->if_.condition, 0, anywhere);
    sb_str(p->out, ") ");
    const Block *otherwise = &stmt->if_.otherwise;
    if (otherwise->count == 0) {
        put_body(p, &stmt->if_.then);
        return;
    }
    put_block(p, &stmt->if_.then);
    sb_str(p->out, " else ");
    bool chain = otherwise->count == 1 && otherwise->items[0]->kind == STMT_IF && !otherwise->items[0]->attrs &&
                 !says_place(p, otherwise->items[0]->loc);
    if (chain) put_stmt(p, otherwise->items[0]);
    else put_block(p, otherwise);
}

static void put_grid(Printer *p, const Stmt *stmt) {
    int mark = p->order.count;
    sb_str(p->out, "grid (");
    put_iters(p, stmt->grid.count, stmt->grid.iters);
    sb_str(p->out, ") threads ");
    put_expr(p, stmt->grid.threads, 0, exactly(TYPE_I64));
    const int *c = stmt->grid.cluster;
    if (c[0] > 1 || c[1] > 1 || c[2] > 1) {
        sb_printf(p->out, " cluster (%d, %d", c[0], c[1] > 0 ? c[1] : 1);
        if (c[2] > 1) sb_printf(p->out, ", %d", c[2]);
        sb_char(p->out, ')');
    }
    if (stmt->grid.persistent) sb_str(p->out, " persistent");
    if (stmt->grid.hilbert) sb_str(p->out, " raster hilbert");
    if (stmt->grid.raster) {
        sb_str(p->out, " raster ");
        put_expr(p, stmt->grid.raster, 0, exactly(TYPE_I64));
    }
    sb_char(p->out, ' ');
    put_block(p, &stmt->grid.body);
    forget(p, mark);
}

static void put_thread(Printer *p, const Stmt *stmt) {
    int mark = p->order.count;
    bool outer = p->in_thread;
    sb_str(p->out, "thread (");
    put_iters(p, stmt->thread.count, stmt->thread.iters);
    sb_str(p->out, ") ");
    p->in_thread = true;
    put_block(p, &stmt->thread.body);
    p->in_thread = outer;
    forget(p, mark);
}

static void put_role(Printer *p, const Stmt *stmt) {
    sb_printf(p->out, "role %s threads %lld ", stmt->role.name, (long long)stmt->role.threads);
    if (stmt->role.regs) sb_printf(p->out, "regs %lld ", (long long)stmt->role.regs);
    put_block(p, &stmt->role.body);
}

static void put_launch(Printer *p, const Stmt *stmt) {
    sb_printf(p->out, "%s(", stmt->launch.callee);
    for (int i = 0; i < stmt->launch.count; i++) {
        const Arg *arg = &stmt->launch.args[i];
        const Func *func = stmt->launch.func;
        const Param *param = func ? func_argument(func, i) : NULL;
        const Var *var = param ? param->var : NULL;
        if (i) sb_str(p->out, ", ");
        if (arg->region) put_region(p, arg->region);
        else if (arg->value) put_expr(p, arg->value, 0, var ? exactly(var->type) : anywhere);
    }
    sb_str(p->out, ");");
}

static void put_bare(Printer *p, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR: put_let(p, stmt); break;
    case STMT_ASSIGN:
        sb_printf(p->out, "%s = ", var_text(p, stmt->let.var));
        put_expr(p, stmt->let.value, 0, exactly(stmt->let.var->type));
        sb_char(p->out, ';');
        break;
    case STMT_STORE:
        put_buffer(p, stmt->store.buf);
        put_indices(p, stmt->store.count, stmt->store.indices);
        sb_str(p->out, " = ");
        put_expr(p, stmt->store.value, 0, exactly(stmt->store.buf->type));
        sb_char(p->out, ';');
        break;
    case STMT_DECL: put_decl(p, stmt); break;
    case STMT_FOR: put_loop(p, stmt); break;
    case STMT_WHILE:
        sb_str(p->out, "while (");
        put_expr(p, stmt->while_.condition, 0, anywhere);
        sb_str(p->out, ") ");
        put_body(p, &stmt->while_.body);
        break;
    case STMT_IF: put_if(p, stmt); break;
    case STMT_BREAK: sb_str(p->out, "break;"); break;
    case STMT_BLOCK: put_block(p, &stmt->block); break;
    case STMT_GRID: put_grid(p, stmt); break;
    case STMT_ROLE: put_role(p, stmt); break;
    case STMT_THREAD: put_thread(p, stmt); break;
    case STMT_CALL:
        if (stmt->call.is_async) sb_str(p->out, "async ");
        put_args(p, stmt->call.op, stmt->call.count, stmt->call.args);
        sb_char(p->out, ';');
        break;
    case STMT_LAUNCH: put_launch(p, stmt); break;
    case STMT_ASSUME:
        sb_str(p->out, "assume(");
        put_expr(p, stmt->assume, 0, anywhere);
        sb_str(p->out, ");");
        break;
    }
}

static void put_stmt(Printer *p, const Stmt *stmt) {
    Span outer = p->place;
    put_attrs_before(p, stmt->attrs, stmt->loc);
    if (stmt->loc.line > 0) p->place = stmt->loc;
    int64_t conflicts = attr_int(stmt->attrs, ATTR_CONFLICTS, -1);
    put_bare(p, stmt);
    if (p->options.comments && conflicts >= 0) sb_printf(p->out, "   // bank conflicts: %lld", (long long)conflicts);
    p->place = outer;
}

// ---- functions ----
static void put_param(Printer *p, const Param *param) {
    static const char *const modes[] = {[MODE_IN] = "", [MODE_OUT] = "out ", [MODE_INOUT] = "inout "};
    const Buf *buf = param->buf;
    if (!buf) {
        sb_printf(p->out, "%s: %s", var_text(p, param->var), type_text(param->var->type));
    } else {
        sb_printf(p->out, "%s: %s%s", buf_text(p, buf), modes[buf->mode], type_text(buf->type));
        put_dims(p, buf->rank, buf->shape);
        if (buf->strides) {
            sb_str(p->out, " strides ");
            put_indices(p, buf->rank, buf->strides);
        }
    }
    put_attrs_after(p, param->attrs);
}

static void declare_params(Printer *p, const Func *func) {
    for (int i = 0; i < func->dims.count; i++) declare(p, func->dims.items[i], func->dims.items[i]->name);
    for (int i = 0; i < func->params.count; i++) {
        const Param *param = &func->params.items[i];
        if (param->buf) declare(p, param->buf, param->buf->name);
        else declare(p, param->var, param->var->name);
    }
}

// On one line where that fits; else filled into lines.
static void put_params(Printer *p, const Func *func) {
    sb_char(p->out, '(');
    size_t head = line_length(p), start = head;
    for (int i = 0; i < func->params.count; i++) {
        StrBuf *out = p->out, text;
        sb_init(&text, p->arena);
        p->out = &text;
        put_param(p, &func->params.items[i]);
        p->out = out;
        bool fits = line_length(p) + text.length + 2 <= LINE_WIDTH || line_length(p) == start;
        if (i) sb_str(out, fits ? ", " : ",\n");
        for (size_t k = 0; i && !fits && k < head; k++) sb_char(out, ' ');
        sb_str(out, sb_text(&text));
    }
    sb_char(p->out, ')');
}

// A function's attributes have a line of their own.
static void put_func_attrs(Printer *p, const Func *func) {
    size_t start = p->out->length;
    put_attrs_before(p, func->attrs, func->loc);
    if (p->out->length > start) p->out->text[p->out->length - 1] = '\n';
}

// A condition, broken before a term of its top-level && where a line would get too long; `level` is that of what it stands in.
static void put_terms(Printer *p, const Expr *e, int level, size_t indent) {
    bool chain = e->kind == EXPR_BINARY && e->binary.op == BIN_LOGICAL_AND;
    if (chain) put_terms(p, e->binary.a, operators[BIN_LOGICAL_AND].level, indent);
    const Expr *term = chain ? e->binary.b : e;
    StrBuf *out = p->out, text;
    sb_init(&text, p->arena);
    p->out = &text;
    put_expr(p, term, chain ? operators[BIN_LOGICAL_AND].level + 1 : level, anywhere);
    p->out = out;
    bool fits = line_length(p) + text.length + 8 <= LINE_WIDTH;
    if (chain) sb_str(out, fits ? " && " : " &&\n");
    for (size_t i = 0; chain && !fits && i < indent; i++) sb_char(out, ' ');
    sb_str(out, sb_text(&text));
}

static void put_when(Printer *p, const Expr *when) {
    StrBuf whole;
    sb_init(&whole, p->arena);
    StrBuf *out = p->out;
    p->out = &whole;
    put_expr(p, when, 0, anywhere);
    p->out = out;
    bool fits = line_length(p) + whole.length + 10 <= LINE_WIDTH;
    sb_str(out, fits ? " when (" : "\n    when (");
    put_terms(p, when, 0, strlen("    when ("));
    sb_char(out, ')');
}

static void put_func(Printer *p, const Func *func) {
    static const char *const kinds[] = {
        [FUNC_KERNEL] = "kernel", [FUNC_PROGRAM] = "program", [FUNC_REFERENCE] = "reference"};
    int mark = p->order.count;
    declare_params(p, func);
    Span outer = p->place;
    if (func->kind != FUNC_REFERENCE) put_func_attrs(p, func);
    sb_printf(p->out, "%s %s", kinds[func->kind], func->name);
    if (func->kind != FUNC_REFERENCE) put_params(p, func);
    if (func->when) put_when(p, func->when);
    sb_char(p->out, ' ');
    if (func->kind != FUNC_REFERENCE) p->place = func->loc;
    put_block(p, &func->body);
    sb_char(p->out, '\n');
    p->place = outer;
    forget(p, mark);
}

static void put_test(Printer *p, const Test *test) {
    sb_printf(p->out, "test %s (", test->name);
    for (int i = 0; i < test->bindings.count; i++) {
        const Binding *binding = &test->bindings.items[i];
        sb_printf(p->out, "%s%s = ", i ? ", " : "", binding->name);
        put_expr(p, binding->value, 0, exactly(binding->value->type));
    }
    sb_char(p->out, ')');
    if (test->fill) {
        int mark = p->order.count;
        declare_params(p, test->fill);
        sb_char(p->out, ' ');
        put_block(p, &test->fill->body);
        forget(p, mark);
    }
    sb_str(p->out, " tolerance ");
    put_real(p->out, TYPE_F64, test->tolerance);
    sb_str(p->out, ";\n");
}

// ---- entry points ----
static Printer printer(const Module *module, PrintOptions options, StrBuf *out) {
    Printer p = {.arena = out->arena, .out = out, .module = module, .options = options};
    p.names = map_new(out->arena);
    p.taken = strmap_new(out->arena);
    return p;
}

void print_module(const Module *module, PrintOptions options, StrBuf *out) {
    Printer p = printer(module, options, out);
    for (int i = 0; i < module->funcs.count; i++) {
        if (i) sb_char(out, '\n');
        put_func(&p, module->funcs.items[i]);
    }
    for (int i = 0; options.tests && i < module->references.count; i++) {
        sb_char(out, '\n');
        put_func(&p, module->references.items[i]);
    }
    if (options.tests && module->tests.count) sb_char(out, '\n');
    for (int i = 0; options.tests && i < module->tests.count; i++) put_test(&p, module->tests.items[i]);
}

void print_func(const Module *module, const Func *func, PrintOptions options, StrBuf *out) {
    Printer p = printer(module, options, out);
    put_func(&p, func);
}

void print_stmt(const Stmt *stmt, int indent, StrBuf *out) {
    Printer p = printer(NULL, (PrintOptions){0}, out);
    p.indent = indent;
    put_indent(&p);
    put_stmt(&p, stmt);
    sb_char(out, '\n');
}

void print_expr(const Expr *expr, StrBuf *out) {
    Printer p = printer(NULL, (PrintOptions){0}, out);
    put_expr(&p, expr, 0, anywhere);
}

char *expr_text(Arena *arena, const Expr *expr) {
    StrBuf out;
    sb_init(&out, arena);
    print_expr(expr, &out);
    return out.text;
}

char *region_text(Arena *arena, const Region *region) {
    StrBuf out;
    sb_init(&out, arena);
    Printer p = printer(NULL, (PrintOptions){0}, &out);
    put_region(&p, region);
    return out.text;
}
