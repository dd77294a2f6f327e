// The accesses of a tile loop: every load and store of its body, with indices and conditions over the iterators.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "support/map.h"

typedef struct Collector {
    Arena *arena;
    TileAccessVec *out;
    int depth;         // number of enclosing conditions that are not over the iterators
    Expr *condition;   // the other conditions; NULL: none
    Subst *lets;       // pure lets of the body
    Map *own;          // other variables of the body
} Collector;

static void collect_block(Collector *c, const Block *block);
static void collect_expr(Collector *c, Expr *expr);

// A value that depends on the iterators alone.
static bool is_known(const Collector *c, const Expr *value) {
    return !expr_reads_memory(value) && !expr_uses_any(value, c->own);
}

// The collector for code under an unknown condition, or under one more condition.
static Collector under_any(const Collector *c) {
    Collector inner = *c;
    inner.depth++;
    return inner;
}

static Collector under(const Collector *c, Expr *condition, bool holds) {
    if (!is_known(c, condition)) return under_any(c);
    Collector inner = *c;
    Expr *more = subst_expr(c->lets, condition);
    inner.condition = e_both(c->arena, c->condition, holds ? more : e_unary(c->arena, UNARY_NOT, more));
    return inner;
}

static void declare(Collector *c, Var *var, Expr *value) {
    if (!value || !is_known(c, value) || !subst_let(c->lets, var, value)) map_put(c->own, var, var);
}

static void collect_access(Collector *c, Buf *buf, int count, Expr **from, Expr *load, Stmt *store) {
    Expr **indices = NEW_ARRAY(c->arena, Expr *, count);
    TileAccess access = {.buf = buf, .count = count, .indices = indices, .load = load, .store = store};
    access.is_store = store != NULL;
    access.update = OP_COUNT;
    access.conditional = c->depth > 0;
    access.condition = c->condition;
    for (int d = 0; d < count; d++) {
        indices[d] = subst_expr(c->lets, from[d]);
        access.is_local |= expr_uses_any(indices[d], c->own);
    }
    vec_push(c->arena, c->out, access);
}

// The operands of a call. A region is the element of an atomic, or of an ordered load or store.
static void collect_args(Collector *c, OpId op, int count, const Arg *args, Stmt *stmt) {
    for (int i = 0; i < count; i++) {
        const Region *region = args[i].region;
        if (args[i].value) collect_expr(c, args[i].value);
        if (!region) continue;
        Expr **indices = NEW_ARRAY(c->arena, Expr *, region->count);
        for (int d = 0; d < region->count; d++) collect_expr(c, indices[d] = region->dims[d].start);
        collect_access(c, region->buf, region->count, indices, NULL, stmt);
        TileAccess *access = &vec_last(c->out);
        access->is_atomic = true;
        access->is_store = op != OP_LOAD && op != OP_PEER;
        access->is_peer = op == OP_PEER;
        access->elsewhere = op == OP_PEER_STORE;
        access->adds = op == OP_ATOMIC_ADD && stmt;
        if (stmt) access->update = op;
    }
}

static void collect_expr(Collector *c, Expr *expr) {
    Collector inner;
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
        inner = expr->binary.op >= BIN_LOGICAL_AND ? under_any(c) : *c;   // && and || evaluate lazily
        collect_expr(&inner, expr->binary.b);
        return;
    case EXPR_SELECT:
        collect_expr(c, expr->select.condition);
        inner = under(c, expr->select.condition, true);
        collect_expr(&inner, expr->select.yes);
        inner = under(c, expr->select.condition, false);
        collect_expr(&inner, expr->select.no);
        return;
    case EXPR_CAST:
    case EXPR_BITCAST: collect_expr(c, expr->operand); return;
    case EXPR_CALL: collect_args(c, expr->call.op, expr->call.count, expr->call.args, NULL); return;
    }
}

static void collect_stmt(Collector *c, Stmt *stmt) {
    Collector inner;
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
        if (stmt->let.value) collect_expr(c, stmt->let.value);
        declare(c, stmt->let.var, stmt->kind == STMT_LET ? stmt->let.value : NULL);   // (assigned: a `var` of the loop)
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
        inner = under_any(c);
        collect_block(&inner, &stmt->loop.body);
        return;
    case STMT_WHILE:
        inner = under_any(c);
        collect_expr(&inner, stmt->while_.condition);
        collect_block(&inner, &stmt->while_.body);
        return;
    case STMT_IF:
        collect_expr(c, stmt->if_.condition);
        inner = under(c, stmt->if_.condition, true);
        collect_block(&inner, &stmt->if_.then);
        inner = under(c, stmt->if_.condition, false);
        collect_block(&inner, &stmt->if_.otherwise);
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
