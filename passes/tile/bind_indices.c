// Indices that are read through indices that are read: `x[p[q[r[i]]]]` becomes
//
//     let index = p[q[r[i]]];    ... x[index] ...
//
// A lowered access repeats its index, in the load and in each of its guards, or in each digit of a swizzle: n loads
// within one another would be 3^n. Two stay, since a gather through two tables is copied asynchronously.
//
// What `?:`, `&&` and `||` skip is skipped by the let too: `c ? x[p[q[r[i]]]] : 0` becomes
//
//     let needed = c; let index = needed ? p[q[r[i]]] : 0;    ... needed ? x[index] : 0 ...
//
// The condition of a `while` is evaluated each time, so its names are `var`, and are assigned at the end of the body, too.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

enum { MOST_NESTED = 2 };   // loads of an index within one another

typedef struct Binder {
    Block *out;   // where the lets go
    Expr *when;   // the expression is evaluated if this holds; NULL: always
    Span loc;
    bool in_index;
} Binder;

static bool find_nesting(Visitor *visitor, Expr *expr) {
    if (expr->kind != EXPR_LOAD) return true;
    int inner = 0, *most = visitor->user;
    for (int d = 0; d < expr->load.count; d++)
        visit_expr(&(Visitor){.expr = find_nesting, .user = &inner}, expr->load.indices[d]);
    if (inner + 1 > *most) *most = inner + 1;
    return false;
}

static int loads_nested(Expr *expr) {
    int most = 0;
    visit_expr(&(Visitor){.expr = find_nesting, .user = &most}, expr);
    return most;
}

static Expr *bind_load(Mapper *mapper, Expr *expr) {
    Arena *arena = mapper->arena;
    Binder *b = mapper->user;
    bool in_index = b->in_index;
    Expr *indices[LAYOUT_MAX_RANK];
    b->in_index = true;
    for (int d = 0; d < expr->load.count; d++) indices[d] = map_expr(mapper, expr->load.indices[d]);
    b->in_index = in_index;
    Expr *load = e_load(arena, expr->load.buf, expr->load.count, indices);
    load->loc = expr->loc;
    if (!in_index || loads_nested(load) <= MOST_NESTED) return load;
    if (b->when) load = e_select(arena, b->when, load, e_zero(arena, load->type));
    return block_let(arena, b->out, "index", load, b->loc);
}

// The operand of `?:`, `&&` or `||` that is evaluated if the condition, a name, has the value.
static Expr *bind_under(Mapper *mapper, Expr *condition, bool value, Expr *operand) {
    Binder *b = mapper->user;
    Expr *outer = b->when, *holds = value ? condition : e_unary(mapper->arena, UNARY_NOT, condition);
    b->when = outer ? block_name(mapper->arena, b->out, "needed", e_both(mapper->arena, outer, holds), b->loc) : holds;
    Expr *bound = map_expr(mapper, operand);
    b->when = outer;
    return bound;
}

// The condition is evaluated where the whole expression is.
static Expr *bind_condition(Mapper *mapper, Expr *condition) {
    const Binder *b = mapper->user;
    Expr *bound = map_expr(mapper, condition);
    return block_name(mapper->arena, b->out, "needed", b->when ? e_both(mapper->arena, b->when, bound) : bound, b->loc);
}

static Expr *bind_node(Mapper *mapper, Expr *expr) {
    Arena *arena = mapper->arena;
    const Binder *b = mapper->user;
    if (loads_nested(expr) + b->in_index <= MOST_NESTED + 1) return expr;
    if (expr->kind == EXPR_LOAD) return bind_load(mapper, expr);
    if (expr->kind == EXPR_SELECT) {
        Expr *condition = bind_condition(mapper, expr->select.condition);
        Expr *yes = bind_under(mapper, condition, true, expr->select.yes);
        return e_select(arena, condition, yes, bind_under(mapper, condition, false, expr->select.no));
    }
    if (!is_binary(expr, BIN_LOGICAL_AND) && !is_binary(expr, BIN_LOGICAL_OR)) return NULL;
    Expr *a = bind_condition(mapper, expr->binary.a);
    bool goes_on = expr->binary.op == BIN_LOGICAL_AND;
    return e_binary(arena, expr->binary.op, a, bind_under(mapper, a, goes_on, expr->binary.b));
}

// What is bound comes before an atomic of the same expression, unless the atomic is all of it.
static bool writes_within(const Expr *expr) {
    if (expr->kind != EXPR_CALL) return expr_writes_memory(expr);
    for (int i = 0; i < expr->call.count; i++)
        if (expr->call.args[i].value && expr_writes_memory(expr->call.args[i].value)) return true;
    return false;
}

static Expr *bind_whole(Mapper *mapper, Expr *expr) {
    const Binder *b = mapper->user;
    if (writes_within(expr)) return expr;
    return map_expr(&(Mapper){.arena = mapper->arena, .replace = bind_node, .user = (void *)b}, expr);
}

static void evaluate_again(Arena *arena, Stmt *loop, const Block *lets) {
    for (int i = 0; i < lets->count; i++) {
        Stmt *let = lets->items[i];
        let->kind = STMT_VAR;
        let->let.var->kind = VAR_MUTABLE;
        block_push(arena, &loop->while_.body, s_assign(arena, let->let.var, let->let.value));
    }
}

static void bind_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Block lets = {0};
    Binder binder = {.out = &lets, .loc = stmt->loc};
    Mapper whole = {.arena = mapper->arena, .expr = bind_whole, .user = &binder, .whole = true};
    bool runs = stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN ||
                stmt->kind == STMT_STORE || stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE ||
                stmt->kind == STMT_IF || stmt->kind == STMT_CALL;
    if (runs) map_own(&whole, stmt);
    if (stmt->kind == STMT_WHILE) evaluate_again(mapper->arena, stmt, &lets);
    block_append(mapper->arena, out, &lets);
    mapper->changed |= whole.changed;
    block_push(mapper->arena, out, stmt);
}

bool bind_indices(Arena *arena, Block *block) {
    return rewrite_block(&(StmtMapper){.arena = arena, .stmt = bind_stmt}, block);
}

bool indices_nest(const Stmt *store) {
    int most = loads_nested(store->store.value);
    for (int d = 0; d < store->store.count; d++) {
        int inner = loads_nested(store->store.indices[d]) + 1;
        if (inner > most) most = inner;
    }
    return most > MOST_NESTED + 1;
}
