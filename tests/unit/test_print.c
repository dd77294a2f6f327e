// Printed IR reads back as the same IR: random expressions of every type, and each construct of both stages.
#include "tests/unit/unit.h"

#include "frontend/frontend.h"
#include "ir/build.h"
#include "ir/print.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static Module *parse(Arena *arena, Failure *failure, const char *text) {
    DiagSink *sink = diag_sink_new(arena);
    Module *module = parse_module(arena, failure, sink, "test.tile", text);
    if (module) return module;
    StrBuf out;
    sb_init(&out, arena);
    diag_render(sink, 0, DIAG_TEXT, &out);
    fail_msg("%s\n%s", sb_text(&out), text);
    return NULL;
}

static const char *print(const Module *module, PrintOptions options) {
    StrBuf out;
    sb_init(&out, module->arena);
    options.tests = true;
    print_module(module, options, &out);
    return sb_text(&out);
}

// ---- the same tree ----
static bool same(const Expr *a, const Expr *b) {
    if (!a || !b) return a == b;
    if (a->kind != b->kind || a->type != b->type) return false;
    switch (a->kind) {
    case EXPR_INT: return a->integer == b->integer;
    case EXPR_FLOAT: return memcmp(&a->real, &b->real, sizeof a->real) == 0 || (isnan(a->real) && isnan(b->real));
    case EXPR_VAR: return strcmp(a->var->name, b->var->name) == 0;
    case EXPR_LOAD: {
        bool equal = strcmp(a->load.buf->name, b->load.buf->name) == 0 && a->load.count == b->load.count;
        for (int i = 0; equal && i < a->load.count; i++) equal = same(a->load.indices[i], b->load.indices[i]);
        return equal;
    }
    case EXPR_UNARY: return a->unary.op == b->unary.op && same(a->unary.a, b->unary.a);
    case EXPR_BINARY:
        return a->binary.op == b->binary.op && same(a->binary.a, b->binary.a) && same(a->binary.b, b->binary.b);
    case EXPR_SELECT:
        return same(a->select.condition, b->select.condition) && same(a->select.yes, b->select.yes) &&
               same(a->select.no, b->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return same(a->operand, b->operand);
    case EXPR_CALL: {
        bool equal = a->call.op == b->call.op && a->call.count == b->call.count;
        for (int i = 0; equal && i < a->call.count; i++) equal = same(a->call.args[i].value, b->call.args[i].value);
        return equal;
    }
    }
    return false;
}

// ---- random expressions: nodes as they are, nothing folded ----
typedef struct Random {
    Arena *arena;
    uint64_t state;
    const Func *func;
    Buf *tile;
} Random;

static unsigned draw(Random *r, unsigned bound) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(r->state >> 33) % bound;
}

static Expr *node(Random *r, ExprKind kind, Type type) {
    Expr *e = NEW(r->arena, Expr);
    e->kind = kind;
    e->type = type;
    return e;
}

static const Type numbers[] = {TYPE_I8,  TYPE_I16, TYPE_I32,  TYPE_I64, TYPE_U8,  TYPE_U16,  TYPE_U32,
                               TYPE_U64, TYPE_F16, TYPE_BF16, TYPE_F32, TYPE_F64, TYPE_E4M3, TYPE_E5M2};

static Expr *random_constant(Random *r, Type type) {
    static const double reals[] = {0, -0.0, 1, 0.1, -2.5, 1e30, 3e-40, 1.0 / 3, 65504, 16777217};
    static const int64_t integers[] = {1, 2, 3, 100, 77, 127, -1, -128, INT64_MIN, INT64_MAX, 0x80000000};
    if (type == TYPE_BOOL) return e_bool(r->arena, draw(r, 2));
    if (!type_is_float(type)) return e_int_of(r->arena, type, integers[draw(r, 11)] | 1);   // never 0: no zero divisors
    unsigned pick = draw(r, 14);
    if (pick == 10) return e_float(r->arena, type, INFINITY);
    if (pick == 11) return e_float(r->arena, type, -INFINITY);
    if (pick == 12) return e_float(r->arena, type, NAN);
    return e_float(r->arena, type, pick < 10 ? reals[pick] : (double)draw(r, 1000000) / 7919);
}

static Expr *random_leaf(Random *r, Type type) {
    for (int i = 0; i < r->func->params.count && draw(r, 2); i++) {
        Var *var = r->func->params.items[i].var;
        if (var && var->type == type) return e_var(r->arena, var);
    }
    if (type == TYPE_F16 && draw(r, 2))
        return e_load(r->arena, r->tile, 2, (Expr *[]){e_int(r->arena, 1), e_int(r->arena, 2)});
    return random_constant(r, type);
}

static Expr *random_expr(Random *r, Type type, int depth);

static Expr *random_binary(Random *r, Type type, int depth) {
    static const BinaryOp arithmetic[] = {BIN_ADD, BIN_SUB, BIN_MUL, BIN_DIV, BIN_MOD, BIN_AND, BIN_OR, BIN_XOR};
    Expr *e = node(r, EXPR_BINARY, type);
    e->binary.op = arithmetic[draw(r, type_is_float(type) ? 4 : 8)];
    Type inner = type;
    if (type == TYPE_BOOL) {
        e->binary.op = BIN_EQ + draw(r, 8);
        bool logical = e->binary.op >= BIN_LOGICAL_AND;
        inner = logical ? TYPE_BOOL : numbers[draw(r, COUNT_OF(numbers))];
    }
    e->binary.a = random_expr(r, inner, depth - 1);
    e->binary.b = random_expr(r, inner, depth - 1);
    return e;
}

static Expr *random_shift(Random *r, Type type, int depth) {
    Expr *e = node(r, EXPR_BINARY, type);
    e->binary.op = draw(r, 2) ? BIN_SHL : BIN_SHR;
    e->binary.a = random_expr(r, type, depth - 1);
    e->binary.b = e_int_of(r->arena, draw(r, 2) ? type : TYPE_I32, draw(r, 7));
    return e;
}

static Expr *random_call(Random *r, Type type, int depth) {
    static const OpId ops[] = {OP_MIN, OP_MAX, OP_EXP, OP_ABS, OP_IEEE};
    OpId op = ops[type_is_float(type) ? draw(r, 5) : draw(r, 2)];
    int count = op_info(op)->operand_count;
    Expr *e = node(r, EXPR_CALL, type);
    e->call.op = op;
    e->call.count = count;
    e->call.args = NEW_ARRAY(r->arena, Arg, count);
    for (int i = 0; i < count; i++) e->call.args[i].value = random_expr(r, type, depth - 1);
    return e;
}

static Expr *random_unary(Random *r, Type type, int depth) {
    Expr *e = node(r, EXPR_UNARY, type);
    e->unary.op = type == TYPE_BOOL ? UNARY_NOT : type_is_float(type) || draw(r, 2) ? UNARY_NEG : UNARY_BITNOT;
    e->unary.a = random_expr(r, type, depth - 1);
    return e;
}

static Expr *random_expr(Random *r, Type type, int depth) {
    if (depth == 0) return random_leaf(r, type);
    Expr *e;
    switch (draw(r, 8)) {
    case 0: return random_unary(r, type, depth);
    case 1:
        e = node(r, EXPR_SELECT, type);
        e->select.condition = random_expr(r, TYPE_BOOL, depth - 1);
        e->select.yes = random_expr(r, type, depth - 1);
        e->select.no = random_expr(r, type, depth - 1);
        return e;
    case 2:
        e = node(r, EXPR_CAST, type);
        e->operand = random_expr(r, numbers[draw(r, COUNT_OF(numbers))], depth - 1);
        return e->operand->type == type ? e->operand : e;
    case 3: return type == TYPE_BOOL ? random_leaf(r, type) : random_call(r, type, depth);
    case 4: return type_is_int(type) ? random_shift(r, type, depth) : random_leaf(r, type);
    case 5: return random_leaf(r, type);
    default: return random_binary(r, type, depth);
    }
}

static const char head[] =
    "kernel k(a: i8, b: i16, c: i32, d: i64, e: u8, f: u16, g: u32, h: u64, i: f16, j: bf16, l: f32,\n"
    "         m: f64, n: e4m3, o: e5m2, p: bool, y: out f32[M]) {\n"
    "    grid (q in M) threads 32 {\n"
    "        shared tile: f16[4, 4];\n"
    "        barrier();\n"
    "    }\n"
    "}\n";

static void test_expressions(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    for (int round = 0; round < 60; round++) {
        Module *module = parse(arena, &failure, head);
        Func *func = module->funcs.items[0];
        Block *body = &((Stmt *)func_grid(func))->grid.body;
        Random r = {.arena = arena, .state = (uint64_t)round * 977 + 3, .func = func, .tile = body->items[0]->decl};
        for (int i = 0; i < 40; i++) {
            unsigned pick = draw(&r, COUNT_OF(numbers) + 1);
            Type type = pick == COUNT_OF(numbers) ? TYPE_BOOL : numbers[pick];
            Expr *value = random_expr(&r, type, 1 + i % 5);
            Var *var = var_new(arena, "v", draw(&r, 2) ? VAR_LET : VAR_MUTABLE, type, (Span){0});
            block_push(arena, body, var->kind == VAR_LET ? s_let(arena, var, value) : s_var(arena, var, value));
        }
        const char *text = print(module, (PrintOptions){0});
        Module *again = parse(arena, &failure, text);
        assert_string_equal(print(again, (PrintOptions){0}), text);
        const Block *back = &func_grid(again->funcs.items[0])->grid.body;
        assert_int_equal(back->count, body->count);
        for (int i = 2; i < body->count; i++) {
            if (same(body->items[i]->let.value, back->items[i]->let.value)) continue;
            fail_msg("another tree: %s", expr_text(arena, body->items[i]->let.value));
        }
    }
}

// ---- constructs, as they must print ----
static const char *const programs[] = {
    // Thread stage: physical shapes, local arrays, instructions, places of elements, slots of fragments.
    "@tuned(BM, 128) @fallback\n"
    "kernel k(A: bf16[M, K] strides [lda, 1], C: out f32[M, M]) when (aligned(A, 16) && K % 8 == 0) {\n"
    "    assume(M < 2147483648);\n"
    "    grid (block in M) threads 256 {\n"
    "        shared As: bf16[3, 1, 16, 512] @stages(3) @offset(0) @align(1024);\n"
    "        shared Bs: bf16[512] @alias(As) @offset(0);\n"
    "        shared full: mbarrier[2];\n"
    "        thread (t in 256) {\n"
    "            local a: bf16[32];\n"
    "            local b: bf16[16];\n"
    "            local acc: f32[128];\n"
    "            unroll (r in 128) acc[r] = 0.0;\n"
    "            for (k_1 in 4 .. 100 step 4) {\n"
    "                cp_async(As[k_1 % 3, 0, t / 16, 0], A[t, k_1], 8, 4);\n"
    "                cp_async_commit();\n"
    "                cp_async_wait(1);\n"
    "                barrier();\n"
    "                unroll (i in 4) ldmatrix(a[i * 8], As[k_1 % 3, 0, i, t % 32], 4, false);\n"
    "                unroll (i in 4) mma(m16n8k16_f32_bf16, a[i * 8], b[i * 4], acc[i * 4]);\n"
    "            }\n"
    "            if (t < 32) {\n"
    "                vstore(C[t, 0], acc[0], 4);\n"
    "            } else if (elect()) {\n"
    "                mbarrier_init(full[0], 1);\n"
    "                warp_sync();\n"
    "            } else {\n"
    "                barrier(1, 96);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n",
    // Tile stage: rings, async copies, roles, layouts, decisions as attributes.
    "kernel k(A: bf16[M, K], C: out bf16[M, M], n: i32) {\n"
    "    @order(raster, 8) @claim(static) grid (block in M) threads 256 {\n"
    "        shared As: bf16[3, 128, 64] @stages(3);\n"
    "        shared Bs: bf16[64, 64];\n"
    "        fragment acc: f32[128, 64];\n"
    "        let bm = block / 8;\n"
    "        fill(acc, 0.0);\n"
    "        for (p in 2) {\n"
    "            if (p < K) {\n"
    "                @via(cp_async) async copy(A[bm * 128 +: 128, p * 64 +: 64], As[p, :, :]);\n"
    "            }\n"
    "        }\n"
    "        pipelined (k_1 in ceildiv(K, 64), stages = 3) {\n"
    "            await(As[k_1 % 3, :, :]);\n"
    "            @via(mma) @warps(4, 2) gemm(As[k_1 % 3, :, :], Bs.T, acc);\n"
    "            await(As[k_1 % 3, :, :], reads);\n"
    "        }\n"
    "        @map(\"(256,32):(1@0,1@1)\") @vector(8) parallel (i in 128, j in 64) acc[i, j] = acc[i, j] * f32(n);\n"
    "        copy(acc, C[bm * 128 +: i64(n), 0 +: 64]);\n"
    "    }\n"
    "}\n",
    // Host and reference.
    "kernel k(x: f32[M], y: out f32[M], s: u32) {\n"
    "    grid (i in M) threads 32 {\n"
    "        parallel (j in 1) y[i + j] = x[i];\n"
    "    }\n"
    "}\n"
    "\n"
    "program p(x: f32[M], y: out f32[M]) {\n"
    "    scratch t: f32[M];\n"
    "    let half = M / 2;\n"
    "    assume(M > 0);\n"
    "    fill(t, 0.0);\n"
    "    if (half > 4) {\n"
    "        k(x, t, 7);\n"
    "    } else {\n"
    "        k(x, t, u32(half));\n"
    "    }\n"
    "    k(t, y, 4294967295);\n"
    "}\n"
    "\n"
    "reference p {\n"
    "    local w: f64[M + 1];\n"
    "    var i: i64 = 0;\n"
    "    while (i < M) {\n"
    "        w[i] = exp(x[i] * 0.1);\n"
    "        y[i] = i > 3 ? w[i] : -inf;\n"
    "        i = i + 1;\n"
    "        if (i == 5) break;\n"
    "    }\n"
    "}\n"
    "\n"
    "test p (M = 16) {\n"
    "    for (i in M) x[i] = f32(i) * 0.5;\n"
    "} tolerance 1.5e-10;\n",
};

static void test_constructs(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    for (int i = 0; i < COUNT_OF(programs); i++) {
        Module *module = parse(arena, &failure, programs[i]);
        assert_string_equal(print(module, (PrintOptions){0}), programs[i]);
        const char *placed = print(module, (PrintOptions){.places = true});
        assert_string_equal(print(parse(arena, &failure, placed), (PrintOptions){.places = true}), placed);
        parse(arena, &failure, print(module, (PrintOptions){.comments = true}));   // comments are no tokens
    }
    assert_int_equal(parse(arena, &failure, programs[0])->funcs.items[0]->stage, STAGE_THREAD);
    assert_int_equal(parse(arena, &failure, programs[1])->funcs.items[0]->stage, STAGE_TILE);
}

// ---- names ----
static void test_names(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    Module *module = parse(arena, &failure, head);
    Block *body = &((Stmt *)func_grid(module->funcs.items[0]))->grid.body;
    Var *first = var_new(arena, "x", VAR_LET, TYPE_I64, (Span){0});
    Var *second = var_new(arena, "x", VAR_LET, TYPE_I64, (Span){0});
    Var *word = var_new(arena, "if", VAR_LET, TYPE_I64, (Span){0});
    block_push(arena, body, s_let(arena, first, e_int(arena, 1)));
    block_push(arena, body, s_let(arena, second, e_add(arena, e_var(arena, first), e_int(arena, 2))));
    Stmt *loop = s_for(arena, LOOP_SERIAL, var_new(arena, "x", VAR_ITER, TYPE_I64, (Span){0}), e_int(arena, 0),
                       e_var(arena, second));
    block_push(arena, &loop->loop.body, s_let(arena, word, e_var(arena, loop->loop.iters[0].var)));
    block_push(arena, body, loop);
    block_push(arena, body, s_let(arena, var_new(arena, "x", VAR_LET, TYPE_I64, (Span){0}), e_var(arena, first)));
    StrBuf out;
    sb_init(&out, arena);
    print_func(module, module->funcs.items[0], (PrintOptions){0}, &out);
    assert_non_null(strstr(sb_text(&out), "        let x = 1;\n"
                                          "        let x_1 = x + 2;\n"
                                          "        for (x_2 in x_1) {\n"
                                          "            let if_1 = x_2;\n"
                                          "        }\n"
                                          "        let x_2 = x;\n"));
    parse(arena, &failure, sb_text(&out));
}

// The place around a statement holds for it, so only changes are said, and what has no place says none.
static void test_places(void **state) {
    Arena *arena = *state;
    Failure failure;
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);
    const char *text = "@loc(\"a.tile\", 3, 5)\n"
                       "kernel k(y: out f32[M]) {\n"
                       "    grid (i in M) threads 32 {\n"
                       "        @loc(\"a.tile\", 7, 1) for (j in 4) {\n"
                       "            y[i] = f32(j);\n"
                       "            @loc(\"b.tile\", 1, 2) y[j] = 0.0;\n"
                       "        }\n"
                       "    }\n"
                       "}\n";
    Module *module = parse(arena, &failure, text);
    assert_string_equal(print(module, (PrintOptions){.places = true}), text);
    const Stmt *loop = func_grid(module->funcs.items[0])->grid.body.items[0];
    assert_int_equal(loop->loop.body.items[0]->loc.line, 7);
    assert_string_equal(diag_source_name(module->sink, loop->loop.body.items[1]->loc.file), "b.tile");
    assert_int_equal(loop->loop.body.items[1]->store.value->loc.column, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_expressions),
        IN_ARENA(test_constructs),
        IN_ARENA(test_names),
        IN_ARENA(test_places),
    };
    return run(tests);
}
