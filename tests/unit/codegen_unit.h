// Thread-stage kernels built by hand, for the tests of codegen.
#pragma once
#include "codegen/codegen.h"
#include "ir/build.h"
#include "passes/pass.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Kernel {
    Arena *arena;
    Module *module;
    Func *func;
    Stmt *grid, *thread;
    Var *block, *index;   // grid and thread iterators
    Block *body;          // of the thread region
} Kernel;

static const Span nowhere;

static inline Iter iter_to(Arena *arena, Var *var, int64_t end) {
    return (Iter){.var = var, .begin = e_int(arena, 0), .end = e_int(arena, end), .step = e_int(arena, 1)};
}

static inline void kernel_start(Kernel *k, Arena *arena, Failure *failure, int threads) {
    *k = (Kernel){.arena = arena};
    k->module = module_new(arena, failure, diag_sink_new(arena));
    diag_add_source(k->module->sink, "test.tile", "kernel\n", 7);
    k->func = NEW(arena, Func);
    k->func->kind = FUNC_KERNEL;
    k->func->name = "test";
    k->func->stage = STAGE_THREAD;
    vec_push(arena, &k->module->funcs, k->func);
    k->grid = stmt_new(arena, STMT_GRID, nowhere);
    k->thread = stmt_new(arena, STMT_THREAD, nowhere);
    k->block = var_new(arena, "block", VAR_ITER, TYPE_I64, nowhere);
    k->index = var_new(arena, "t", VAR_ITER, TYPE_I64, nowhere);
    k->grid->grid.count = k->thread->thread.count = 1;
    k->grid->grid.iters = NEW(arena, Iter);
    k->thread->thread.iters = NEW(arena, Iter);
    k->grid->grid.iters[0] = iter_to(arena, k->block, 100);
    k->thread->thread.iters[0] = iter_to(arena, k->index, threads);
    k->grid->grid.threads = e_int(arena, threads);
    for (int i = 0; i < 3; i++) k->grid->grid.cluster[i] = 1;
    block_push(arena, &k->grid->grid.body, k->thread);
    block_push(arena, &k->func->body, k->grid);
    k->body = &k->thread->thread.body;
}

static inline Buf *tensor(Kernel *k, const char *name, Type type, Mode mode, Expr *extent) {
    Buf *buf = buf_new(k->arena, name, SCOPE_GLOBAL, type, 1, &extent, nowhere);
    buf->mode = mode;
    buf->is_param = true;
    vec_push(k->arena, &k->func->params, ((Param){.buf = buf}));
    return buf;
}

static inline Expr *dim(Kernel *k, const char *name) {
    Var *var = var_new(k->arena, name, VAR_DIM, TYPE_I64, nowhere);
    vec_push(k->arena, &k->func->dims, var);
    return e_var(k->arena, var);
}

static inline Buf *local_buf(Kernel *k, const char *name, Scope scope, Type type, int64_t count) {
    Buf *buf = buf_new_const(k->arena, name, scope, type, 1, &count, nowhere);
    buf->offset = -1;
    if (scope == SCOPE_SHARED) block_insert(k->arena, &k->grid->grid.body, 0, s_decl(k->arena, buf));
    else block_push(k->arena, k->body, s_decl(k->arena, buf));
    return buf;
}

static inline Expr *thread(Kernel *k) {
    return e_var(k->arena, k->index);
}

static inline Expr *global_index(Kernel *k, int threads) {
    return e_add(k->arena, e_mul(k->arena, e_var(k->arena, k->block), e_int(k->arena, threads)), thread(k));
}

static inline Arg place(Kernel *k, Buf *buf, Expr *index) {
    return arg_region(region_element(k->arena, buf, 1, &index));
}

static inline const char *ptx_of(Kernel *k, const char *target) {
    CodegenOptions options = {.target = target_named(target), .optimize = 1};
    CodegenResult result;
    bool show = getenv("SHOW_LLVM") != NULL;
    PassOptions annotation = {.passes = "annotate-kernel", .bisect_limit = -1};
    bool ok =
        run_passes(k->module, options.target, &annotation, NULL) && codegen_module(k->module, &options, show, &result);
    if (show) fprintf(stderr, "%s\n", result.llvm);
    if (getenv("SHOW_PTX")) fprintf(stderr, "%s\n", result.ptx);
    StrBuf text;
    sb_init(&text, k->arena);
    diag_render(k->module->sink, 0, DIAG_TEXT, &text);
    if (!ok) fail_msg("%s", sb_text(&text));
    return result.ptx;
}

static inline void expect_text(const char *ptx, const char *piece) {
    if (!strstr(ptx, piece)) fail_msg("no '%s' in\n%s", piece, ptx);
}

static inline void expect_none(const char *ptx, const char *piece) {
    if (strstr(ptx, piece)) fail_msg("'%s' in\n%s", piece, ptx);
}

#define START(k, threads)                                                                                              \
    Failure failure;                                                                                                   \
    if (FAILURE_CAUGHT(&failure)) fail_msg("%s", failure.message);                                                     \
    Kernel k;                                                                                                          \
    kernel_start(&k, *state, &failure, threads)
