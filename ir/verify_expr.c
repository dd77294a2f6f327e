// The verifier's rules of names, expressions and regions: those that ir/verify.c numbers 1 to 5, and what the others
// ask of an expression.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/rewrite.h"
#include "ir/verify_impl.h"

// ---- names (1, 2) ----
void declare_name(Verifier *v, const void *object, const char *name, Span loc) {
    if (map_has(v->visible, object)) REPORT(v, loc, T_IR_SCOPE, name, "is declared twice");
    map_put(v->visible, object, v);
    vec_push(v->arena, &v->declared, object);
}

void check_visible(Verifier *v, const void *object, const char *name, Span loc) {
    if (!map_has(v->visible, object)) REPORT(v, loc, T_IR_SCOPE, name, "is not declared here");
}

// Leaves a scope: what was declared since `mark` is gone.
void undeclare_names(Verifier *v, int mark) {
    while (v->declared.count > mark) map_remove(v->visible, vec_pop(&v->declared));
}

// ---- what an expression depends on (11, 12, 14) ----
static bool depends_visit(Visitor *visitor, Expr *e) {
    Depends *found = visitor->user;
    if (e->kind == EXPR_VAR) {
        const Depends *known = map_get(found->of, e->var);
        if (known) {
            found->iterators |= known->iterators;
            found->thread |= known->thread;
            found->warp |= known->warp;
            found->unknown |= known->unknown;
        }
        found->varies |= !known || known->varies;
        found->unknown |= e->var->kind == VAR_MUTABLE;
    }
    found->warp |= e->kind == EXPR_CALL && e->call.op == OP_ANY;
    bool memory = e->kind == EXPR_LOAD || (e->kind == EXPR_CALL && !op_is_pure(e->call.op));
    found->varies |= memory;
    found->unknown |= memory;
    return true;
}

Depends expr_depends(const Verifier *v, const Expr *expr) {
    Depends found = {.of = v->depends};
    Visitor visitor = {.expr = depends_visit, .user = &found};
    visit_expr(&visitor, (Expr *)expr);
    return found;
}

void set_depends(Verifier *v, const Var *var, Depends depends) {
    Depends *kept = NEW(v->arena, Depends);
    *kept = depends;
    map_put(v->depends, var, kept);
}

static Expr *known_var(Mapper *mapper, Expr *e) {
    const Verifier *v = mapper->user;
    const Depends *depends = e->kind == EXPR_VAR ? map_get(v->depends, e->var) : NULL;
    bool known = depends && depends->ranged && depends->low == depends->high;
    return known ? e_int_of(mapper->arena, e->type, depends->low) : e;
}

bool value_known(const Verifier *v, Expr *e, int64_t *value) {
    Mapper mapper = {.arena = v->arena, .expr = known_var, .user = (void *)v};
    return expr_const(e, value) || expr_const(map_expr(&mapper, e), value);
}

// One control flow of all threads.
bool is_block_level(const Context *c) {
    return c->grid && !c->thread && !c->parallel;
}

// ---- expressions (1, 3, 4, 5) ----
// Passes copy these: into guards, vectors, addresses.
void check_copied(Verifier *v, const Context *c, const Expr *e, const char *what, Span loc) {
    check_expr(v, c, e);
    if (expr_must_not_repeat(e)) REPORT(v, loc, T_IR_REPEATED, what);
}

bool may_be_excluded(const Verifier *v, const Context *c) {
    bool folded = !v->written || v->func->stage == STAGE_THREAD;
    return c->dead || (folded && (c->conditional || c->uncertain));
}

// The first value of an index that is outside of 0 .. extent - 1, for a constant or a sum of iterators that takes all
// their values.
static bool index_outside(const Verifier *v, const Context *c, const Expr *index, int64_t extent, int64_t *at) {
    if (expr_const(index, at)) return *at < 0 || *at >= extent;
    if (c->conditional || c->kind != FUNC_KERNEL) return false;
    LinearSum sum = linear_of(v->arena, index);
    Int128 low = sum.constant, high = sum.constant;
    for (int i = 0; i < sum.count; i++) {
        const Expr *atom = sum.terms[i].atom;
        const Depends *depends = atom->kind == EXPR_VAR ? map_get(v->depends, atom->var) : NULL;
        if (!depends || !depends->ranged || sum.full) return false;
        Int128 a = (Int128)sum.terms[i].factor * depends->low, b = (Int128)sum.terms[i].factor * depends->high;
        low += a < b ? a : b;
        high += a < b ? b : a;
    }
    if (low < INT64_MIN || high > INT64_MAX || sum.full) return false;
    *at = (int64_t)(low < 0 ? low : high);
    return low < 0 || high >= extent;
}

// Local arrays and a thread's slots of a fragment are registers.
static void check_register_index(Verifier *v, const Context *c, const Buf *buf, const Expr *index, Span loc) {
    bool slots = buf->scope == SCOPE_FRAGMENT && c->thread;
    if ((buf->scope != SCOPE_LOCAL && !slots) || c->kind != FUNC_KERNEL || !expr_depends(v, index).varies) return;
    if (map_has(v->misplaced, buf)) return;
    REPORT(v, loc, T_IR_LOCAL_INDEX, arena_printf(v->arena, slots ? "regs(%s)" : "local '%s'", buf->name));
}

// swizzle-allocation chooses no layout for an alias.
static void check_alias_use(Verifier *v, const Context *c, const Buf *buf, Span loc) {
    bool laid_out = buf->scope == SCOPE_SHARED && !c->thread && v->func->stage == STAGE_TILE;
    if (laid_out && buf->alias_of && !buf->layout)
        REPORT(v, loc, T_IR_PLACE, buf->name,
               "here: tile operations and parallel loops use a buffer with @alias only where it has a layout");
}

// An integer, or the handle of a slot in the first dim of a channel's tile.
static bool is_index(const Buf *buf, int dim, Type type) {
    return type_is_int(type) || (type == TYPE_SLOT && buf->channel && dim == 0);
}

void check_indices(Verifier *v, const Context *c, const Buf *buf, int count, Expr *const *indices, Span loc) {
    check_visible(v, buf, buf->name, loc);
    check_alias_use(v, c, buf, loc);
    int rank = buf->scope == SCOPE_FRAGMENT && c->thread ? 1 : buf->rank;
    if (count != rank) {
        REPORT(v, loc, T_RANK, buf->name, rank, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        check_copied(v, c, indices[i], "an index", loc);
        if (!is_index(buf, i, indices[i]->type)) REPORT(v, loc, T_NOT_INDEX, type_text(indices[i]->type));
        int64_t at, extent = rank == buf->rank ? buf_extent(buf, i) : -1;
        if (extent < 0) extent = INT64_MAX;
        bool register_of_person = buf->scope == SCOPE_LOCAL && v->written && !c->dead;   // each must name one
        bool reached = buf->scope != SCOPE_GLOBAL && (register_of_person || !may_be_excluded(v, c));
        if (reached && index_outside(v, c, indices[i], extent, &at))
            REPORT(v, loc, T_INDEX_RANGE, (long long)at, i, buf->name, (long long)extent);
        check_register_index(v, c, buf, indices[i], loc);
    }
}

static bool is_integral(Type type) {
    return type_is_int(type) || type == TYPE_BOOL;
}

void check_condition(Verifier *v, const Context *c, Expr *e) {
    check_expr(v, c, e);
    if (e->type != TYPE_BOOL) REPORT(v, e->loc, T_NOT_CONDITION, type_text(e->type));
}

static void check_binary(Verifier *v, const Context *c, const Expr *e) {
    static const char *const texts[] = {"+",  "-",  "*",  "/", "%",  "&", "|",  "^",  "<<",
                                        ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||"};
    BinaryOp op = e->binary.op;
    Type a = e->binary.a->type, b = e->binary.b->type;
    Context lazy = *c;
    lazy.conditional |= op >= BIN_LOGICAL_AND;
    check_expr(v, c, e->binary.a);
    check_expr(v, &lazy, e->binary.b);
    bool shift = op == BIN_SHL || op == BIN_SHR, compares = op >= BIN_EQ && op <= BIN_GE,
         logical = op >= BIN_LOGICAL_AND;
    bool bits = op == BIN_AND || op == BIN_OR || op == BIN_XOR;
    bool fits = shift ? type_is_int(a) && type_is_int(b) : a == b && type_kind(a) != KIND_OPAQUE;
    if (logical) fits = a == TYPE_BOOL && b == TYPE_BOOL;
    if (bits || op == BIN_MOD) fits = fits && (bits ? is_integral(a) : type_is_int(a));
    if (!compares && !logical && !bits) fits = fits && a != TYPE_BOOL;
    if (e->type != (compares || logical ? TYPE_BOOL : a)) fits = false;
    if (!fits) REPORT(v, e->loc, T_OPERAND_TYPES, texts[op], type_text(a), type_text(b));
}

void report_on_host(DiagSink *sink, Span loc, const char *name) {
    diag_note(diag(sink, loc, T_IR_PLACE, name,
                   "outside of a grid: the host computes this, and reads no element of a tensor"),
              "read it in the grid, or make it a scalar parameter, whose value the caller knows");
}

void check_expr(Verifier *v, const Context *c, const Expr *e) {
    switch (e->kind) {
    case EXPR_INT:
        if (!is_integral(e->type) || int_wrap(e->type, e->integer) != e->integer)
            REPORT(v, e->loc, T_IR_TYPE, "an integer constant", type_text(e->type));
        break;
    case EXPR_FLOAT:
        if (!type_is_float(e->type)) REPORT(v, e->loc, T_IR_TYPE, "a float constant", type_text(e->type));
        break;
    case EXPR_VAR:
        check_visible(v, e->var, e->var->name, e->loc);
        if (e->type != e->var->type) REPORT(v, e->loc, T_IR_TYPE, e->var->name, type_text(e->type));
        break;
    case EXPR_LOAD:
        check_indices(v, c, e->load.buf, e->load.count, e->load.indices, e->loc);
        if (c->kind != FUNC_REFERENCE && !c->grid) {
            v->broken = true;
            report_on_host(v->sink, e->loc, e->load.buf->name);
        }
        if (e->type != e->load.buf->type) REPORT(v, e->loc, T_IR_TYPE, e->load.buf->name, type_text(e->type));
        break;
    case EXPR_UNARY: {
        Type a = e->unary.a->type;
        check_expr(v, c, e->unary.a);
        bool fits = e->unary.op == UNARY_NOT   ? a == TYPE_BOOL
                    : e->unary.op == UNARY_NEG ? type_is_float(a) || type_is_int(a)
                                               : type_is_int(a);
        if (!fits)
            REPORT(v, e->loc, T_OPERAND_TYPE,
                   e->unary.op == UNARY_NOT   ? "!"
                   : e->unary.op == UNARY_NEG ? "-"
                                              : "~",
                   type_text(a));
        break;
    }
    case EXPR_BINARY: check_binary(v, c, e); break;
    case EXPR_SELECT: {
        Context lazy = *c;
        lazy.conditional = true;
        check_condition(v, c, e->select.condition);
        check_expr(v, &lazy, e->select.yes);
        check_expr(v, &lazy, e->select.no);
        if (e->select.yes->type != e->select.no->type)
            REPORT(v, e->loc, T_OPERAND_TYPES, "?:", type_text(e->select.yes->type), type_text(e->select.no->type));
        break;
    }
    case EXPR_CAST:
    case EXPR_BITCAST: {
        Type from = e->operand->type;
        check_expr(v, c, e->operand);
        bool fits = type_kind(from) != KIND_OPAQUE && type_kind(e->type) != KIND_OPAQUE;
        if (!fits) REPORT(v, e->loc, T_NOT_CONVERTIBLE, type_text(from), type_text(e->type));
        else if (e->kind == EXPR_BITCAST && (from == TYPE_BOOL || e->type == TYPE_BOOL))
            REPORT(v, e->loc, T_OPERAND_TYPE, "bitcast", type_text(TYPE_BOOL));
        else if (e->kind == EXPR_BITCAST && type_bits(from) != type_bits(e->type))
            REPORT(v, e->loc, T_BITCAST, type_text(from), type_bits(from), type_text(e->type), type_bits(e->type));
        break;
    }
    case EXPR_CALL: check_call(v, c, e->call.op, e->call.count, e->call.args, e->loc); break;
    }
}

// ---- regions (1, 4) ----
// A region of an im2col view is rows of channels at one tap.
static void check_im2col(Verifier *v, const Context *c, const Region *region) {
    const Buf *view = region->buf;
    const char *why = im2col_problem(view);
    for (int i = 0; i < view->im2col->count; i++) check_expr(v, c, view->im2col->windows[i].positions);
    if (!why) why = im2col_region_problem(region);
    if (why) REPORT(v, region->loc, T_IM2COL, why);
}

void check_region(Verifier *v, const Context *c, const Region *region) {
    const Buf *buf = region->buf;
    check_visible(v, buf_viewed(buf), buf->name, region->loc);
    check_alias_use(v, c, buf, region->loc);
    if (buf->im2col) check_im2col(v, c, region);
    bool slots = buf->scope == SCOPE_FRAGMENT && c->thread;
    if (region->count != buf->rank && !slots) {
        REPORT(v, region->loc, T_RANK, buf->name, buf->rank, region->count);
        return;
    }
    for (int i = 0; i < region->count; i++) {
        const RegionDim *dim = &region->dims[i];
        check_copied(v, c, dim->start, "an index", region->loc);
        if (dim->extent) check_copied(v, c, dim->extent, "an extent", region->loc);
        if (!is_index(buf, i, dim->start->type)) REPORT(v, region->loc, T_NOT_INDEX, type_text(dim->start->type));
        int64_t at, extent = 1, all = slots ? -1 : buf_extent(buf, i);
        bool known = !dim->extent || expr_const(dim->extent, &extent);
        if (all < 0) all = INT64_MAX;
        bool reached = buf->scope != SCOPE_GLOBAL && (v->written || !may_be_excluded(v, c));
        if (known && reached && index_outside(v, c, dim->start, all - extent + 1, &at))
            REPORT(v, region->loc, T_INDEX_RANGE, (long long)(at < 0 ? at : at + extent - 1), i, buf->name,
                   (long long)all);
        check_register_index(v, c, buf, dim->start, region->loc);
    }
    if (region->transposed && region_rank(region) < 2)
        REPORT(v, region->loc, T_TRANSPOSED_RANK, buf->name, region_rank(region));
}
