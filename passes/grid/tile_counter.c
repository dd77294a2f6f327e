// The counter of a kernel whose CTAs claim their tiles dynamically: an i32 that is zero before each launch, and after it.
//
//     kernel k(x, y) { @claim(dynamic) grid .. }
//
// becomes
//
//     program k(x, y) {
//         scratch taken: i32[1] @zeroed;
//         k__tiles(x, y, taken);
//     }
//     kernel k__tiles(x, y, taken: inout i32[1] @tile_counter) { @claim(dynamic) grid .. }
//
// so that the counter comes from where the scratch of programs does: for each stream one, kept by the library, or the caller's,
// also in captured graphs. Nothing clears it: of T tiles each of C CTAs takes one unasked, and asks until it gets none, which is
// T times together, and `atomic_inc` wraps behind the T-th. A kernel with a counter of its own stays as it is; so do its calls.
// Programs of the source that launch the kernel get scratch of their own.
//
// Variants of a name are variants of one k__tiles, whose launch chooses among them.
#include "passes/grid/tile_counter.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include <string.h>

typedef VEC(Func *) FuncVec;

typedef struct Counters {
    Module *module;
    Arena *arena;
    Map *names;   // kernels that have got a counter -> their names before
    FuncVec funcs;
} Counters;

static bool wants_counter(const Func *func) {
    const Stmt *grid = func->kind == FUNC_KERNEL ? func_grid(func) : NULL;
    return grid && grid_claim(grid).kind == CLAIM_DYNAMIC && !tile_counter(func);
}

static const char *free_kernel(const Counters *c, const char *name) {
    const char *tiles = arena_printf(c->arena, "%s__tiles", name);
    for (int n = 1; module_func(c->module, tiles); n++) tiles = arena_printf(c->arena, "%s__tiles_%d", name, n);
    return tiles;
}

static bool names_value(const Func *func, const char *name) {
    if (func_dim(func, name)) return true;
    VEC_EACH (const Param, param, &func->params)
        if (strcmp(param->buf ? param->buf->name : param->var->name, name) == 0) return true;
    return false;
}

static Buf *new_counter(Arena *arena, const Func *func) {
    const int64_t one = 1;
    const char *name = "taken";
    for (int n = 1; names_value(func, name); n++) name = arena_printf(arena, "taken_%d", n);
    return buf_new_const(arena, name, SCOPE_GLOBAL, TYPE_I32, 1, &one, func->loc);
}

static Buf *new_scratch(Arena *arena, const Func *program) {
    Buf *scratch = new_counter(arena, program);
    scratch->is_scratch = true;
    attr_set_ints(arena, &scratch->attrs, ATTR_ZEROED, 0, NULL);
    return scratch;
}

static void add_parameter(Counters *c, Func *kernel, const char *name) {
    Param param = {.buf = new_counter(c->arena, kernel)};
    param.buf->mode = MODE_INOUT;
    param.buf->is_param = true;
    attr_set_ints(c->arena, &param.attrs, ATTR_TILE_COUNTER, 0, NULL);
    vec_push(c->arena, &kernel->params, param);
    map_put(c->names, kernel, (void *)kernel->name);
    kernel->name = name;
}

// `name`: that of the kernels. The program of a single variant has its condition; else the launch in it chooses.
static Func *program_of(Counters *c, Func *kernel, const char *name, bool single) {
    Arena *a = c->arena;
    Func *program = clone_func(a, kernel);
    program->kind = FUNC_PROGRAM;
    program->attrs = NULL;
    program->cost = NULL;
    program->body = (Block){0};
    if (!single) program->when = NULL;
    Stmt *launch = stmt_new(a, STMT_LAUNCH, program->loc);
    launch->launch.callee = name;
    launch->launch.func = kernel;
    launch->launch.args = NEW_ARRAY(a, Arg, program->params.count + 1);
    VEC_EACH (Param, param, &program->params) {
        attr_remove(&param->attrs, ATTR_INDEPENDENT);
        launch->launch.args[launch->launch.count++] =
            param->buf ? arg_region(region_whole(a, param->buf)) : arg_value(e_var(a, param->var));
    }
    Buf *scratch = new_scratch(a, program);
    launch->launch.args[launch->launch.count++] = arg_region(region_whole(a, scratch));
    block_push(a, &program->body, s_decl(a, scratch));
    block_push(a, &program->body, launch);
    return program;
}

// ---- the variants of a name ----

static int run_end(const Module *module, int at) {
    int end = at;
    while (end < module->funcs.count && !strcmp(module->funcs.items[end]->name, module->funcs.items[at]->name)) end++;
    return end;
}

// The program comes before the kernels, so that each name's variants are adjacent.
static void add_counter(Counters *c, int at, int end) {
    Func **items = c->module->funcs.items, *first = NULL;
    int kernels = 0;
    bool wanted = false;
    for (int i = end - 1; i >= at; i--) {
        wanted |= wants_counter(items[i]);
        if (items[i]->kind == FUNC_KERNEL) first = items[i], kernels++;
    }
    const char *name = wanted ? free_kernel(c, items[at]->name) : NULL;
    if (wanted) vec_push(c->arena, &c->funcs, program_of(c, first, name, kernels == 1));
    for (int i = at; i < end; i++)   // (a kernel with dynamic claims has no variants that are programs)
        if (wanted && items[i]->kind == FUNC_KERNEL) add_parameter(c, items[i], name);
    for (int i = at; i < end; i++) vec_push(c->arena, &c->funcs, items[i]);
}

// ---- programs of the source ----

static Func *kernel_launched(const Counters *c, const Stmt *launch) {
    VEC_EACH_PTR (Func, kernel, &c->module->funcs) {
        const char *name = map_get(c->names, kernel);
        if (name && strcmp(name, launch->launch.callee) == 0) return kernel;
    }
    return NULL;
}

// One counter for all its launches, which come one after the other.
static void lend_counter(Counters *c, Func *program) {
    Buf *scratch = NULL;
    FOR_EACH_STMT_MUT (stmt, &program->body) {
        Func *kernel = stmt->kind == STMT_LAUNCH ? kernel_launched(c, stmt) : NULL;
        if (!kernel) continue;
        if (!scratch) scratch = new_scratch(c->arena, program);
        Arg *args = NEW_ARRAY(c->arena, Arg, stmt->launch.count + 1);
        memcpy(args, stmt->launch.args, sizeof *args * (size_t)stmt->launch.count);
        args[stmt->launch.count++] = arg_region(region_whole(c->arena, scratch));
        stmt->launch.args = args;
        stmt->launch.callee = kernel->name;
        stmt->launch.func = kernel;
    }
    if (scratch) block_insert(c->arena, &program->body, 0, s_decl(c->arena, scratch));
}

void add_tile_counters(Module *module) {
    Counters c = {.module = module, .arena = module->arena, .names = map_new(module->arena)};
    FuncVec programs = {0};
    bool wanted = false;
    VEC_EACH_PTR (Func, func, &module->funcs) {
        wanted |= wants_counter(func);
        if (func->kind == FUNC_PROGRAM) vec_push(c.arena, &programs, func);
    }
    if (!wanted) return;
    for (int at = 0, end; at < module->funcs.count; at = end) {
        end = run_end(module, at);
        add_counter(&c, at, end);
    }
    module->funcs.count = 0;
    VEC_EACH_PTR (Func, func, &c.funcs) vec_push(c.arena, &module->funcs, func);
    VEC_EACH_PTR (Func, program, &programs) lend_counter(&c, program);
}
