#include "runtime/host/workload.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include <math.h>
#include <string.h>

double bench_bytes(const Func *func, const EmuArg *args) {
    double bytes = 0;
    for (int i = 0; i < func->params.count; i++) {
        const Buf *buf = func->params.items[i].buf;
        if (buf) bytes += (double)args[i].tensor->bytes * (buf->mode == MODE_INOUT ? 2 : 1);
    }
    return bytes;
}

static void add_name(Arena *arena, HostScope *scope, const char *name, Scalar value) {
    HostName entry = {name, value};
    for (int i = 0; i < scope->names.count; i++)
        if (strcmp(scope->names.items[i].name, name) == 0) return;
    vec_push(arena, &scope->names, entry);
}

// Dims and scalar arguments by name.
static HostScope names_of(Arena *arena, const Func *func, const EmuArg *args) {
    HostScope scope = {.multiprocessors = 1};
    for (int i = 0; i < func->params.count; i++) {
        const Param *p = &func->params.items[i];
        for (int d = 0; p->buf && d < p->buf->rank; d++)
            if (p->buf->shape[d]->kind == EXPR_VAR)
                add_name(arena, &scope, p->buf->shape[d]->var->name,
                         scalar_integer(TYPE_I64, args[i].tensor->shape[moved_dim(p->buf->moved, p->buf->rank, d)]));
        if (p->var)
            add_name(arena, &scope, p->var->name,
                     type_is_float(p->var->type) ? scalar_real(TYPE_F64, args[i].real)
                                                 : scalar_integer(TYPE_I64, args[i].integer));
    }
    return scope;
}

RecordValues bench_shape(Arena *arena, const Func *func, const EmuArg *args) {
    HostScope scope = names_of(arena, func, args);
    RecordValues out = {0};
    for (int i = 0; i < scope.names.count; i++) {
        RecordValue value = {scope.names.items[i].name, scope.names.items[i].value.integer};
        if (!type_is_float(scope.names.items[i].value.type)) vec_push(arena, &out, value);
    }
    return out;
}

bool bench_value(Arena *arena, Failure *failure, const Func *func, const EmuArg *args, const char *text, double *value,
                 const char **why) {
    HostScope scope = names_of(arena, func, args);
    const char **names = NEW_ARRAY(arena, const char *, scope.names.count + 1);
    Var **vars = NEW_ARRAY(arena, Var *, scope.names.count + 1);
    DiagSink *sink = diag_sink_new(arena);
    for (int i = 0; i < scope.names.count; i++) names[i] = scope.names.items[i].name;
    const Expr *expr = parse_host_expr(arena, failure, sink, text, names, scope.names.count, vars);
    Scalar result;
    *why = "it is no expression over the dims and scalars";
    if (!expr || !host_eval(arena, &scope, expr, &result, why)) return false;
    *value = scalar_double(result);
    return *value > 0 || (*why = "it is not above 0", false);
}

// ---- floating-point operations ----

typedef struct Count {
    Arena *arena;
    HostScope scope;
    double flops;
    bool unknown;   // a gemm is inside a loop or branch that is unknown before the launch
} Count;

static double real_of(Count *c, const Expr *e);

static double real_binary(Count *c, const Expr *e) {
    double a = real_of(c, e->binary.a), b = real_of(c, e->binary.b);
    switch (e->binary.op) {
    case BIN_ADD: return a + b;
    case BIN_SUB: return a - b;
    case BIN_MUL: return a * b;
    default: return NAN;
    }
}

// The value as a real number, `ceildiv` as the exact fraction; NaN: unknown.
static double real_of(Count *c, const Expr *e) {
    Scalar value;
    const char *why;
    if (is_expr_call(e, OP_CEILDIV)) return real_of(c, ARG(e, CEILDIV, a).value) / real_of(c, ARG(e, CEILDIV, b).value);
    if (e->kind == EXPR_BINARY && e->binary.op != BIN_DIV) return real_binary(c, e);
    return host_eval(c->arena, &c->scope, e, &value, &why) ? scalar_double(value) : NAN;
}

static double trips(Count *c, int count, const Iter *iters) {
    double product = 1;
    for (int i = 0; i < count; i++)
        product *= (real_of(c, iters[i].end) - real_of(c, iters[i].begin)) / real_of(c, iters[i].step);
    return product;
}

static void count_block(Count *c, const Block *block, double times);

static void count_gemm(Count *c, const Stmt *gemm, double times) {
    GemmOp op = gemm_of(gemm);
    double flops = 2 * times * (double)region_extent(op.a, 1) * (double)region_extent(op.acc, 0) *
                   (double)region_extent(op.acc, 1);
    if (isnan(flops)) c->unknown = true;
    else c->flops += flops;
}

static void count_let(Count *c, const Stmt *let) {
    HostName name = {.name = let->let.var->name};
    const char *why;
    if (host_eval(c->arena, &c->scope, let->let.value, &name.value, &why)) vec_push(c->arena, &c->scope.names, name);
}

static void count_stmt(Count *c, const Stmt *s, double times) {
    switch (s->kind) {
    case STMT_LET: count_let(c, s); break;
    case STMT_FOR: count_block(c, &s->loop.body, times * trips(c, s->loop.count, s->loop.iters)); break;
    case STMT_GRID: count_block(c, &s->grid.body, times * trips(c, s->grid.count, s->grid.iters)); break;
    case STMT_BLOCK: count_block(c, &s->block, times); break;
    case STMT_ROLE: count_block(c, &s->role.body, times * (double)role_members(s)); break;
    case STMT_WHILE: count_block(c, &s->while_.body, NAN); break;
    case STMT_IF:
        count_block(c, &s->if_.then, NAN);
        count_block(c, &s->if_.otherwise, NAN);
        break;
    case STMT_CALL:
        if (s->call.op == OP_GEMM) count_gemm(c, s, times);
        break;
    default: break;
    }
}

static void count_block(Count *c, const Block *block, double times) {
    for (int i = 0; i < block->count; i++) count_stmt(c, block->items[i], times);
}

double bench_flops(Arena *arena, const Func *func, const EmuArg *args) {
    Count c = {.arena = arena, .scope = names_of(arena, func, args)};
    if (func->kind != FUNC_KERNEL) return 0;
    count_block(&c, &func->body, 1);
    return c.unknown ? 0 : c.flops;
}
