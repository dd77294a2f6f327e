// What a tile loop reads and writes: every load and store of its body, with its indices and conditions over the
// iterators.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "support/map.h"

typedef struct Collector {
    Arena *arena;
    TileAccessVec *out;
    int depth;         // of conditions around that are no expression over the iterators
    Expr *condition;   // the others; NULL: none
    Subst *lets;       // pure lets of the body
    Map *own;          // other variables of the body
} Collector;

static void collect_block(Collector *c, const Block *block);

typedef struct OwnSearch {
    const Map *own;
    bool found;
} OwnSearch;

static bool find_own(Visitor *visitor, Expr *expr) {
    OwnSearch *search = visitor->user;
    search->found |= expr->kind == EXPR_VAR && map_has(search->own, expr->var);
    return !search->found;
}

static bool uses_own(const Collector *c, Expr *expr) {
    OwnSearch search = {c->own, false};
    Visitor visitor = {.expr = find_own, .user = &search};
    visit_expr(&visitor, expr);
    return search.found;
}

static bool find_impure(Visitor *visitor, Expr *expr) {
    bool *impure = visitor->user;
    *impure |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return true;
}

// A value that depends on the iterators alone.
static bool is_known(const Collector *c, Expr *value) {
    bool impure = false;
    Visitor visitor = {.expr = find_impure, .user = &impure};
    visit_expr(&visitor, value);
    return !impure && !uses_own(c, value);
}

static void declare(Collector *c, Var *var, Expr *value) {
    if (value && is_known(c, value)) subst_var(c->lets, var, subst_expr(c->lets, value));
    else map_put(c->own, var, var);
}

static void collect_access(Collector *c, Buf *buf, int count, Expr **from, Expr *load, Stmt *store) {
    Expr **indices = NEW_ARRAY(c->arena, Expr *, count);
    bool own = false;
    for (int d = 0; d < count; d++) {
        indices[d] = subst_expr(c->lets, from[d]);
        own |= uses_own(c, indices[d]);
    }
    TileAccess access = {.buf = buf,
                         .count = count,
                         .indices = indices,
                         .is_store = store != NULL,
                         .update = OP_COUNT,
                         .load = load,
                         .store = store,
                         .conditional = c->depth > 0,
                         .condition = c->condition,
                         .is_local = own};
    vec_push(c->arena, c->out, access);
}

static void collect_expr(Collector *c, Expr *expr);

// The element operand of an atomic, or of a load or store with an order.
static void collect_region(Collector *c, const Region *region, bool writes, Stmt *store) {
    Expr **indices = NEW_ARRAY(c->arena, Expr *, region->count);
    for (int d = 0; d < region->count; d++) collect_expr(c, indices[d] = region->dims[d].start);
    collect_access(c, region->buf, region->count, indices, NULL, store);
    vec_last(c->out).is_atomic = true;
    vec_last(c->out).is_store = writes;
}

static void collect_args(Collector *c, OpId op, int count, Arg *args, Stmt *stmt) {
    for (int i = 0; i < count; i++) {
        if (args[i].value) collect_expr(c, args[i].value);
        if (!args[i].region) continue;
        collect_region(c, args[i].region, op != OP_LOAD && op != OP_PEER, stmt);
        vec_last(c->out).is_peer = op == OP_PEER;
        vec_last(c->out).elsewhere = op == OP_PEER_STORE;
        vec_last(c->out).adds = op == OP_ATOMIC_ADD && stmt;
        if (stmt) vec_last(c->out).update = op;
    }
}

static void collect_lazily(Collector *c, Expr *expr) {
    c->depth++;
    collect_expr(c, expr);
    c->depth--;
}

// What follows happens under one more condition, until the mark is restored.
typedef struct ConditionMark {
    int depth;
    Expr *condition;
} ConditionMark;

static ConditionMark collect_under(Collector *c, Expr *condition, bool holds) {
    ConditionMark mark = {c->depth, c->condition};
    if (!is_known(c, condition)) {
        c->depth++;
        return mark;
    }
    Expr *more = subst_expr(c->lets, condition);
    if (!holds) more = e_unary(c->arena, UNARY_NOT, more);
    c->condition = c->condition ? e_and(c->arena, c->condition, more) : more;
    return mark;
}

static void collect_again(Collector *c, ConditionMark mark) {
    c->depth = mark.depth;
    c->condition = mark.condition;
}

static void collect_choice(Collector *c, const Expr *select) {
    ConditionMark mark = collect_under(c, select->select.condition, true);
    collect_expr(c, select->select.yes);
    collect_again(c, mark);
    collect_under(c, select->select.condition, false);
    collect_expr(c, select->select.no);
    collect_again(c, mark);
}

static void collect_expr(Collector *c, Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return;
    case EXPR_LOAD:
        for (int i = 0; i < expr->load.count; i++) collect_expr(c, expr->load.indices[i]);
        collect_access(c, expr->load.buf, expr->load.count, expr->load.indices, expr, NULL);
        return;
    case EXPR_UNARY: collect_expr(c, expr->unary.a); return;
    case EXPR_BINARY:
        collect_expr(c, expr->binary.a);
        if (expr->binary.op >= BIN_LOGICAL_AND) collect_lazily(c, expr->binary.b);
        else collect_expr(c, expr->binary.b);
        return;
    case EXPR_SELECT:
        collect_expr(c, expr->select.condition);
        collect_choice(c, expr);
        return;
    case EXPR_CAST:
    case EXPR_BITCAST: collect_expr(c, expr->operand); return;
    case EXPR_CALL: collect_args(c, expr->call.op, expr->call.count, expr->call.args, NULL); return;
    }
}

static void collect_body(Collector *c, const Block *block) {
    c->depth++;
    collect_block(c, block);
    c->depth--;
}

static void collect_if(Collector *c, const Stmt *stmt) {
    ConditionMark mark = collect_under(c, stmt->if_.condition, true);
    collect_block(c, &stmt->if_.then);
    collect_again(c, mark);
    collect_under(c, stmt->if_.condition, false);
    collect_block(c, &stmt->if_.otherwise);
    collect_again(c, mark);
}

static void collect_stmt(Collector *c, Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        if (stmt->let.value) collect_expr(c, stmt->let.value);
        if (stmt->kind != STMT_ASSIGN) declare(c, stmt->let.var, stmt->kind == STMT_LET ? stmt->let.value : NULL);
        return;
    case STMT_STORE:
        for (int i = 0; i < stmt->store.count; i++) collect_expr(c, stmt->store.indices[i]);
        collect_expr(c, stmt->store.value);
        collect_access(c, stmt->store.buf, stmt->store.count, stmt->store.indices, NULL, stmt);
        return;
    case STMT_FOR:
        for (int i = 0; i < stmt->loop.count; i++) {
            collect_expr(c, stmt->loop.iters[i].begin);
            collect_expr(c, stmt->loop.iters[i].end);
            declare(c, stmt->loop.iters[i].var, NULL);
        }
        collect_body(c, &stmt->loop.body);
        return;
    case STMT_WHILE:
        collect_lazily(c, stmt->while_.condition);
        collect_body(c, &stmt->while_.body);
        return;
    case STMT_IF:
        collect_expr(c, stmt->if_.condition);
        collect_if(c, stmt);
        return;
    case STMT_BLOCK: collect_block(c, &stmt->block); return;
    case STMT_CALL: collect_args(c, stmt->call.op, stmt->call.count, stmt->call.args, stmt); return;
    default: return;
    }
}

static void collect_block(Collector *c, const Block *block) {
    for (int i = 0; i < block->count; i++) collect_stmt(c, block->items[i]);
}

void tile_accesses(Arena *arena, const TileLoop *loop, TileAccessVec *out) {
    Collector collector = {.arena = arena, .out = out, .lets = subst_new(arena), .own = map_new(arena)};
    collect_block(&collector, &loop->body);
}
