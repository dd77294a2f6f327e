#include "runtime/plan/expr_cse.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "support/hash.h"
#include <string.h>

enum { BUCKETS = 1024 };

struct ExprCse {
    Arena *arena;
    int shared;
    HostNode *buckets[BUCKETS];
};

ExprCse *expr_cse_new(Arena *arena) {
    ExprCse *sharer = NEW(arena, ExprCse);
    sharer->arena = arena;
    return sharer;
}

int expr_cse_count(const ExprCse *sharer) {
    return sharer->shared;
}

static uint64_t mix_pointer(uint64_t hash, const void *pointer) {
    return hash_mix(hash, (uint64_t)(uintptr_t)pointer);
}

static uint64_t mix_text(uint64_t hash, const char *text) {
    while (text && *text) hash = hash_mix(hash, (uint8_t)*text++);
    return hash;
}

// Operands are already nodes, so equal operands have equal addresses.
static uint64_t hash_of(const Expr *e) {
    uint64_t hash = hash_mix((uint64_t)e->kind, (uint64_t)e->type);
    switch (e->kind) {
    case EXPR_INT: return hash_mix(hash, (uint64_t)e->integer);
    case EXPR_VAR: return mix_text(hash, e->var->name);
    case EXPR_UNARY: return mix_pointer(hash_mix(hash, (uint64_t)e->unary.op), e->unary.a);
    case EXPR_BINARY: return mix_pointer(mix_pointer(hash_mix(hash, (uint64_t)e->binary.op), e->binary.a), e->binary.b);
    case EXPR_SELECT:
        return mix_pointer(mix_pointer(mix_pointer(hash, e->select.condition), e->select.yes), e->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return mix_pointer(hash, e->operand);
    case EXPR_CALL:
        hash = hash_mix(hash, (uint64_t)e->call.op);
        for (int i = 0; i < e->call.count; i++) hash = mix_pointer(hash, e->call.args[i].value);
        return hash;
    default: return hash;
    }
}

static bool same_var(const Var *a, const Var *b) {
    return a == b || (a->kind == b->kind && a->type == b->type && strcmp(a->name, b->name) == 0);
}

static bool same(const Expr *a, const Expr *b) {
    if (a->kind == EXPR_VAR && b->kind == EXPR_VAR) return a->type == b->type && same_var(a->var, b->var);
    return expr_equal(a, b);   // compares operands by address first
}

// Arguments of most calls.
enum { MOST_ARGS = 4 };

// The expression with its operands replaced by nodes. `args`: storage for the arguments of a call.
static Expr with_nodes(ExprCse *s, const Expr *from, Arg *args) {
    Expr e = *from;
    switch (e.kind) {
    case EXPR_UNARY: e.unary.a = expr_cse(s, from->unary.a); break;
    case EXPR_BINARY:
        e.binary.a = expr_cse(s, from->binary.a);
        e.binary.b = expr_cse(s, from->binary.b);
        break;
    case EXPR_SELECT:
        e.select.condition = expr_cse(s, from->select.condition);
        e.select.yes = expr_cse(s, from->select.yes);
        e.select.no = expr_cse(s, from->select.no);
        break;
    case EXPR_CAST:
    case EXPR_BITCAST: e.operand = expr_cse(s, from->operand); break;
    case EXPR_CALL:
        e.call.args = e.call.count <= MOST_ARGS ? args : NEW_ARRAY(s->arena, Arg, e.call.count);
        for (int i = 0; i < e.call.count; i++) {
            Arg arg = from->call.args[i];
            e.call.args[i] = (Arg){.value = arg.value ? expr_cse(s, arg.value) : NULL};
        }
        break;
    default: break;
    }
    return e;
}

static Expr *add_node(ExprCse *s, const Expr *e, HostNode **bucket) {
    HostNode *node = NEW(s->arena, HostNode);
    *node = (HostNode){*e, HOST_UNSHARED, *bucket};
    if (e->kind == EXPR_CALL)
        node->expr.call.args = arena_copy(s->arena, e->call.args, sizeof(Arg) * (size_t)e->call.count);
    return &(*bucket = node)->expr;
}

// What differs among variants that are one kernel.
static bool is_of_shape(const Expr *e, const void *user) {
    (void)user;
    return is_expr_call(e, OP_CLUSTER_EXTENT);
}

Expr *expr_cse(ExprCse *s, const Expr *from) {
    Arg args[MOST_ARGS];
    Expr e = with_nodes(s, from, args);
    HostNode **bucket = &s->buckets[hash_of(&e) % BUCKETS];
    bool constant = e.kind == EXPR_INT || e.kind == EXPR_FLOAT;
    for (HostNode *other = *bucket; other; other = other->next) {
        if (!same(&other->expr, &e)) continue;
        if (other->number == HOST_UNSHARED && !constant && !any_expr(&e, is_of_shape, NULL))
            other->number = s->shared++;
        return &other->expr;
    }
    return add_node(s, &e, bucket);
}

// ---- addresses ----

typedef struct Reads {
    int64_t unit;
} Reads;

static bool is_address(const Expr *e) {
    if (e->kind != EXPR_VAR || e->var->kind != VAR_PARAM || e->var->type != TYPE_I64) return false;
    size_t length = strlen(e->var->name), suffix = strlen("_address");
    return length > suffix && strcmp(e->var->name + length - suffix, "_address") == 0;
}

static bool read_address(Visitor *visitor, Expr *e) {
    enum { LARGEST = 1 << 16 };
    Reads *reads = visitor->user;
    bool remainder = e->kind == EXPR_BINARY && e->binary.op == BIN_MOD && is_address(e->binary.a) &&
                     e->binary.b->kind == EXPR_INT && e->binary.b->integer > 0 && e->binary.b->integer <= LARGEST;
    if (is_address(e)) reads->unit = 0;
    if (!remainder) return true;
    int64_t by = e->binary.b->integer;
    if (reads->unit) reads->unit = reads->unit / gcd64(reads->unit, by) * by;
    if (reads->unit > LARGEST) reads->unit = 0;
    return false;
}

int64_t host_address_unit(const Expr *expr, int64_t unit) {
    Reads reads = {unit};
    Visitor visitor = {.expr = read_address, .user = &reads};
    visit_expr(&visitor, (Expr *)expr);
    return reads.unit;
}
