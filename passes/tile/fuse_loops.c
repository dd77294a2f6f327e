// fuse-loops: loop fusion. Serial loops that go on where the one before ends, with the same body, are one loop.
//
//     let middle = min(steps, 4);                      let middle = min(steps, 4);
//     pipelined (k in middle, stages = 4) {            pipelined (k in steps, stages = 4) {
//         copy(A[m, k * 64], As);                          copy(A[m, k * 64], As);
//         copy(B[n, k * 64], Bs);                =>        copy(B[n, k * 64], Bs);
//         gemm(As, Bs.T, acc);                             gemm(As, Bs.T, acc);
//     }                                                }
//     pipelined (k in middle .. steps, stages = 4) {
//         ... the same
//     }
//
// Each loop fills and drains its slots, ping-pong kernels and split-K take one loop, and the costs count its steps.
//
// Legal if the second loop begins where the first one ends, between its begin and the other's end, or all are empty. What
// stands between them are names that the loops do not change; they come before the first loop. It runs before everything
// that asks about loops.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/print.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/pass.h"
#include "passes/tile/tile.h"
#include <stdlib.h>
#include <string.h>

// ---- equal bodies ----

typedef VEC(const void *) NameVec;

typedef struct Names {
    Arena *arena;
    Map *own;        // declared inside
    NameVec order;   // the objects that are named, as they come
} Names;

static void name_object(Names *names, const void *object) {
    vec_push(names->arena, &names->order, object);
}

static bool name_expr(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_VAR) name_object(visitor->user, expr->var);
    if (expr->kind == EXPR_LOAD) name_object(visitor->user, expr->load.buf);
    return true;
}

static void name_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    name_object(visitor->user, region->buf);
}

static bool name_stmt(Visitor *visitor, Stmt *stmt) {
    Names *names = visitor->user;
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) map_put(names->own, iters[i].var, names);
    if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) map_put(names->own, stmt->let.var, names);
    if (stmt->kind == STMT_DECL) map_put(names->own, stmt->decl, names);
    if (stmt->kind == STMT_ASSIGN) name_object(names, stmt->let.var);
    if (stmt->kind == STMT_STORE) name_object(names, stmt->store.buf);
    return true;
}

static Names names_of(Arena *arena, Block *body) {
    Names names = {.arena = arena, .own = map_new(arena)};
    Visitor visitor = {.expr = name_expr, .stmt = name_stmt, .region = name_region, .user = &names};
    visit_block(&visitor, body);
    return names;
}

typedef struct Texted {
    Expr *expr;
    const char *text;
} Texted;

typedef VEC(Texted) TextedVec;

static int by_text(const void *a, const void *b) {
    return strcmp(((const Texted *)a)->text, ((const Texted *)b)->text);
}

// Of integers all that is added; of floats, whose sums round, two.
static void add_terms(Arena *arena, const Expr *expr, TextedVec *terms) {
    Expr *operands[] = {expr->binary.a, expr->binary.b};
    for (int i = 0; i < COUNT_OF(operands); i++) {
        if (type_is_int(expr->type) && is_binary(operands[i], expr->binary.op)) add_terms(arena, operands[i], terms);
        else vec_push(arena, terms, ((Texted){operands[i], expr_text(arena, operands[i])}));
    }
}

static bool commutes(BinaryOp op) {
    return op == BIN_ADD || op == BIN_MUL || op == BIN_AND || op == BIN_OR || op == BIN_XOR || op == BIN_EQ ||
           op == BIN_NE;
}

// One of the ways to write an expression, given those of its operands.
static Expr *in_order(Mapper *mapper, Expr *expr) {
    Arena *arena = mapper->arena;
    const Expr *condition = expr->kind == EXPR_SELECT ? expr->select.condition : NULL;
    if (condition && condition->kind == EXPR_UNARY && condition->unary.op == UNARY_NOT)
        return e_select(arena, condition->unary.a, expr->select.no, expr->select.yes);
    if (is_binary(expr, BIN_GT)) return e_binary(arena, BIN_LT, expr->binary.b, expr->binary.a);
    if (is_binary(expr, BIN_GE)) return e_binary(arena, BIN_LE, expr->binary.b, expr->binary.a);
    if (expr->kind != EXPR_BINARY || !commutes(expr->binary.op)) return expr;
    TextedVec terms = {0};
    add_terms(arena, expr, &terms);
    qsort(terms.items, (size_t)terms.count, sizeof *terms.items, by_text);
    Expr *all = terms.items[0].expr;
    for (int i = 1; i < terms.count; i++) all = e_binary(arena, expr->binary.op, all, terms.items[i].expr);
    return all;
}

static void open_braces(StmtMapper *mapper, Stmt *stmt, Block *out) {
    if (stmt->kind == STMT_BLOCK) block_append(mapper->arena, out, &stmt->block);
    else block_push(mapper->arena, out, stmt);
}

// A copy of the body for the iterator's value, written in one of the ways that mean the same.
static Block canonical_body(Arena *arena, const Stmt *loop, Expr *iterator) {
    Subst *subst = subst_new(arena);
    Stmt *copy = clone_stmt(arena, NULL, loop);
    subst_var(subst, copy->loop.iters[0].var, iterator);
    subst_block(subst, &copy->loop.body);
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = open_braces}, &copy->loop.body);
    map_block(&(Mapper){.arena = arena, .expr = in_order}, &copy->loop.body);
    return copy->loop.body;
}

static const char *block_text(Arena *arena, const Block *block) {
    StrBuf text;
    sb_init(&text, arena);
    FOR_EACH_ITEM (stmt, block) print_stmt(stmt, 0, &text);
    return sb_text(&text);
}

// The text says what is done and to which names; equal names inside of both, and the same objects elsewhere, say that
// the names mean the same.
static bool same_bodies(Arena *arena, const Stmt *a, const Stmt *b) {
    Expr *iterator = e_var(arena, a->loop.iters[0].var);
    Block bodies[2] = {canonical_body(arena, a, iterator), canonical_body(arena, b, iterator)};
    if (strcmp(block_text(arena, &bodies[0]), block_text(arena, &bodies[1])) != 0) return false;
    Names first = names_of(arena, &bodies[0]), second = names_of(arena, &bodies[1]);
    if (first.order.count != second.order.count) return false;
    for (int i = 0; i < first.order.count; i++) {
        const void *x = first.order.items[i], *y = second.order.items[i];
        if (x != y && !(map_has(first.own, x) && map_has(second.own, y))) return false;
    }
    return true;
}

// ---- loops that go on ----

static bool is_serial(const Stmt *stmt) {
    bool serial = is_loop(stmt, LOOP_SERIAL) || is_loop(stmt, LOOP_PIPELINED);
    return serial && stmt->loop.count == 1 && expr_is_int(stmt->loop.iters[0].step, 1) && !stmt->attrs &&
           !block_breaks(&stmt->loop.body);
}

static bool same_stages(const Stmt *a, const Stmt *b) {
    const Expr *x = a->loop.stages, *y = b->loop.stages;
    return a->loop.kind == b->loop.kind && (x && y ? expr_equal(x, y) : x == y);
}

// The next loop, with names only before it; -1: none.
static int next_loop(const Block *block, int at) {
    do at++;
    while (at < block->count && is_stable_let(block->items[at]));
    return at < block->count && is_serial(block->items[at]) ? at : -1;
}

static bool provably(Arena *arena, const Facts *facts, BinaryOp op, Expr *a, Expr *b) {
    return expr_equal(a, b) || prove(facts, e_binary(arena, op, a, b));
}

static Expr *value_of(const Facts *facts, Expr *expr) {
    for (;;) {
        Expr *value = expr->kind == EXPR_VAR ? (Expr *)facts_binding(facts, expr->var) : NULL;
        if (!value && expr->kind == EXPR_CAST && type_bits(expr->type) >= type_bits(expr->operand->type))
            value = expr->operand;
        if (!value) return expr;
        expr = value;
    }
}

static bool same_value(const Facts *facts, Expr *a, Expr *b) {
    return expr_equal(value_of(facts, a), value_of(facts, b));
}

// Made from the end by min(x, end) with x >= 0, and end / n: up to the end, and of one below 0 not above 0 and not
// before it. Loops from 0 to it and from it to the end are then one from 0 to the end, or all are empty.
static bool is_within(Arena *arena, const Facts *facts, Expr *middle, Expr *end) {
    Expr *value = value_of(facts, middle);
    int64_t by;
    if (same_value(facts, value, end)) return true;
    if (is_binary(value, BIN_DIV))
        return expr_const(value->binary.b, &by) && by > 0 && is_within(arena, facts, value->binary.a, end);
    if (!is_expr_call(value, OP_MIN)) return false;
    Expr *a = value->call.args[0].value, *b = value->call.args[1].value, *zero = e_int_of(arena, value->type, 0);
    return (provably(arena, facts, BIN_GE, b, zero) && is_within(arena, facts, a, end)) ||
           (provably(arena, facts, BIN_GE, a, zero) && is_within(arena, facts, b, end));
}

// Where begin .. middle and middle .. end end as one loop; NULL: they may not be one. A bound that the first loop may change is
// not the same before and behind it.
static Expr *common_end(Arena *arena, const Facts *facts, const Iter *first, const Iter *second) {
    Expr *middle = second->begin;
    if (!expr_is_stable(first->end) || !expr_is_stable(middle) || !expr_is_stable(second->end)) return NULL;
    if (expr_is_int(first->begin, 0) && is_within(arena, facts, middle, second->end)) return second->end;
    if (!provably(arena, facts, BIN_LE, first->begin, middle)) return NULL;
    return provably(arena, facts, BIN_LE, middle, second->end) ? second->end : NULL;
}

typedef struct Fusion {
    Arena *arena;
    Map *firsts;   // loop -> the one that it may go on with
    Map *ends;     // first loop -> where it ends when it goes on
} Fusion;

static bool find_pairs(Fusion *f, Block *block) {
    bool found = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int next = is_serial(stmt) ? next_loop(block, i) : -1;
        if (next >= 0 && same_stages(stmt, block->items[next]) && same_bodies(f->arena, stmt, block->items[next])) {
            map_put(f->firsts, block->items[next], stmt);
            found = true;
        }
        if (is_loop(stmt, LOOP_PARALLEL)) continue;
        FOR_EACH_BODY (body, stmt) found |= find_pairs(f, body);
    }
    return found;
}

static void find_end(void *user, Stmt *stmt, const Facts *facts) {
    Fusion *f = user;
    const Stmt *first = map_get(f->firsts, stmt);
    if (!first) return;
    const Iter *before = &first->loop.iters[0], *iter = &stmt->loop.iters[0];
    bool goes_on =
        same_value(facts, before->end, iter->begin) || provably(f->arena, facts, BIN_EQ, before->end, iter->begin);
    Expr *end = goes_on ? common_end(f->arena, facts, before, iter) : NULL;
    if (end) map_put(f->ends, first, end);
}

// Of three loops the first two become one, and go on in the next round.
static void fuse_block(Fusion *f, Block *block) {
    Block out = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Expr *end = map_get(f->ends, stmt);
        FOR_EACH_BODY (body, stmt) fuse_block(f, body);
        if (!end) {
            block_push(f->arena, &out, stmt);
            continue;
        }
        int next = next_loop(block, i);
        for (int j = i + 1; j < next; j++) block_push(f->arena, &out, block->items[j]);
        stmt->loop.iters[0].end = end;
        block_push(f->arena, &out, stmt);
        i = next;
    }
    *block = out;
}

bool fuse_loops(Arena *arena, Func *kernel) {
    bool changed = false;
    if (kernel->stage != STAGE_TILE) return false;
    for (;;) {
        Fusion f = {arena, map_new(arena), map_new(arena)};
        if (!find_pairs(&f, &kernel->body)) return changed;
        kernel_walk(arena, kernel, find_end, &f);
        if (map_count(f.ends) == 0) return changed;
        fuse_block(&f, &kernel->body);
        changed = true;
    }
}

bool pass_fuse_loops(PassContext *context, Func *kernel) {
    return fuse_loops(context->arena, kernel);
}
