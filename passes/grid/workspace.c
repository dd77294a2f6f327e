// Workspace of a kernel whose schedule keeps something in global memory, as the counter of CTAs that claim their tiles
// dynamically: an i32 that is zero before each launch, and after it.
//
//     kernel k(x, y) { @claim(dynamic) grid .. }
//
// becomes
//
//     program k(x, y) {
//         scratch taken: i32[1] @zeroed;
//         k__tiles(x, y, taken);
//     }
//     kernel k__tiles(x, y, taken: inout i32[1] @workspace(counter)) { @claim(dynamic) grid .. }
//
// so that it comes from where the scratch of programs does: for each stream one, kept by the library, or the caller's,
// also in captured graphs. Nothing clears the counter: of T tiles each of C CTAs takes one unasked, and asks until it
// gets none, which is T times together, and `atomic_inc` wraps behind the T-th. Of `@split(stream)`
// (passes/tile/stream_k.c) CTAs have slices, for parts of tiles, and flags. A kernel with workspace of its own stays as
// it is; so do its calls. Programs of the source that launch the kernel get scratch of their own.
//
// Variants of a name are variants of one k__tiles, whose launch chooses among them. It has what any of them wants: a
// kernel is told by the attribute which is its own.
#include "passes/grid/workspace.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "passes/tile/stream_k.h"
#include <string.h>

// A buffer that a kernel wants.
typedef struct Want {
    WorkspaceKind kind;
    Type type;
    int64_t ctas;   // the first extent; 0: multiprocessors
    int count;      // of the other extents
    int64_t extents[STREAM_SLICE_DIMS];
} Want;
typedef VEC(Want) WantVec;
typedef VEC(Func *) FuncVec;

typedef struct Lent {
    const Want *want;
    Buf *scratch;
} Lent;

typedef struct Tiles {   // the variants of a name that have got workspace
    const char *name;    // before
    Func *first;
    WantVec wants;
} Tiles;

typedef struct Workspaces {
    Module *module;
    Arena *arena;
    VEC(Tiles) tiles;
    FuncVec funcs;
    VEC(Lent) lent;   // what a program has declared so far, in the blocks around a launch
} Workspaces;

static bool is_same(const Want *a, const Want *b) {
    bool same = a->kind == b->kind && a->type == b->type && a->ctas == b->ctas && a->count == b->count;
    for (int i = 0; same && i < a->count; i++) same = a->extents[i] == b->extents[i];
    return same;
}

static const Want *find_want(const WantVec *wants, const Want *want) {
    VEC_EACH (const Want, known, wants)
        if (is_same(known, want)) return known;
    return NULL;
}

static WantVec wants_of(Arena *arena, const Func *func) {
    WantVec wants = {0};
    const Stmt *grid = func->kind == FUNC_KERNEL ? func_grid(func) : NULL;
    const Want counter = {.kind = WORKSPACE_COUNTER, .type = TYPE_I32, .ctas = 1};
    Want slices = {.kind = WORKSPACE_SLICES, .count = STREAM_SLICE_DIMS}, flags = {WORKSPACE_FLAGS, .type = TYPE_I32};
    bool claims = grid && grid_claim(grid).kind == CLAIM_DYNAMIC;
    if (claims && !kernel_workspace(func, WORKSPACE_COUNTER)) vec_push(arena, &wants, counter);
    if (!grid || kernel_workspace(func, WORKSPACE_SLICES)) return wants;
    if (!stream_slice(arena, func, &slices.type, slices.extents)) return wants;
    slices.ctas = flags.ctas = kernel_split(func).ctas;
    vec_push(arena, &wants, slices);
    vec_push(arena, &wants, flags);
    return wants;
}

// ---- buffers ----

static bool names_value(const Func *func, const char *name) {
    if (func_dim(func, name)) return true;
    VEC_EACH (const Param, param, &func->params)
        if (strcmp(param->buf ? param->buf->name : param->var->name, name) == 0) return true;
    return false;
}

static const char *free_value(Arena *arena, const Func *func, const char *wanted) {
    const char *name = wanted;
    for (int n = 1; names_value(func, name); n++) name = arena_printf(arena, "%s_%d", wanted, n);
    return name;
}

static const char *const names[] = {"taken", "slices", "flags"};
_Static_assert(COUNT_OF(names) == WORKSPACE_COUNT, "a workspace without its name");

static Buf *new_buffer(Arena *arena, const Func *func, const Want *want, Expr *ctas) {
    Expr *shape[1 + STREAM_SLICE_DIMS] = {ctas};
    for (int i = 0; i < want->count; i++) shape[1 + i] = e_int(arena, want->extents[i]);
    const char *name = free_value(arena, func, names[want->kind]);
    return buf_new(arena, name, SCOPE_GLOBAL, want->type, 1 + want->count, shape, func->loc);
}

static Buf *new_scratch(Arena *arena, const Func *program, const Want *want) {
    Buf *scratch = new_buffer(arena, program, want, want->ctas ? e_int(arena, want->ctas) : e_sms(arena));
    scratch->is_scratch = true;
    if (want->kind != WORKSPACE_SLICES) attr_set_ints(arena, &scratch->attrs, ATTR_ZEROED, 0, NULL);
    return scratch;
}

// The number of CTAs that share tiles is a dim, which the launch knows from the scratch: that of parameters from
// `first` on which wants of as many have.
static Expr *ctas_dim(Arena *arena, Func *kernel, const WantVec *wants, const Want *want, int first) {
    if (want->kind == WORKSPACE_COUNTER) return e_int(arena, want->ctas);
    VEC_EACH (const Want, known, wants) {
        if (known == want) break;
        if (known->kind != WORKSPACE_COUNTER && known->ctas == want->ctas)
            return kernel->params.items[first + (known - wants->items)].buf->shape[0];
    }
    Var *dim = var_new(arena, free_value(arena, kernel, "ctas"), VAR_DIM, TYPE_I64, kernel->loc);
    vec_push(arena, &kernel->dims, dim);
    return e_var(arena, dim);
}

static void add_params(Arena *arena, Func *func, const WantVec *own, const WantVec *wants) {
    int first = func->params.count;
    VEC_EACH (const Want, want, wants) {
        Param param = {.buf = new_buffer(arena, func, want, ctas_dim(arena, func, wants, want, first))};
        param.buf->mode = MODE_INOUT;
        param.buf->is_param = true;
        if (find_want(own, want)) attr_set_text(arena, &param.attrs, ATTR_WORKSPACE, workspace_name(want->kind));
        vec_push(arena, &func->params, param);
    }
}

void add_workspace_params(Arena *arena, Func *kernel) {
    WantVec wants = wants_of(arena, kernel);
    add_params(arena, kernel, &wants, &wants);
}

// ---- the variants of a name ----

static const char *free_kernel(const Workspaces *w, const char *name) {
    const char *tiles = arena_printf(w->arena, "%s__tiles", name);
    for (int n = 1; module_func(w->module, tiles); n++) tiles = arena_printf(w->arena, "%s__tiles_%d", name, n);
    return tiles;
}

// The program of a single variant has its condition; else the launch in it chooses.
static Func *program_of(Workspaces *w, Func *first, const char *name, const WantVec *wants, bool single) {
    Arena *a = w->arena;
    Func *program = clone_func(a, first);
    program->kind = FUNC_PROGRAM;
    program->attrs = NULL;
    program->cost = NULL;
    program->body = (Block){0};
    if (!single) program->when = NULL;
    Stmt *launch = stmt_new(a, STMT_LAUNCH, program->loc);
    launch->launch.callee = name;
    launch->launch.func = first;
    launch->launch.args = NEW_ARRAY(a, Arg, program->params.count + wants->count);
    VEC_EACH (Param, param, &program->params) {
        attr_remove(&param->attrs, ATTR_INDEPENDENT);
        launch->launch.args[launch->launch.count++] =
            param->buf ? arg_region(region_whole(a, param->buf)) : arg_value(e_var(a, param->var));
    }
    VEC_EACH (const Want, want, wants) {
        Buf *scratch = new_scratch(a, program, want);
        launch->launch.args[launch->launch.count++] = arg_region(region_whole(a, scratch));
        block_push(a, &program->body, s_decl(a, scratch));
    }
    block_push(a, &program->body, launch);
    return program;
}

static int run_end(const Module *module, int at) {
    int end = at;
    while (end < module->funcs.count && !strcmp(module->funcs.items[end]->name, module->funcs.items[at]->name)) end++;
    return end;
}

// The program comes before the variants, so that those of a name are adjacent. Some may be programs themselves, which
// use none of it.
static void add_workspace(Workspaces *w, int at, int end) {
    Func **items = w->module->funcs.items;
    Tiles tiles = {.name = items[at]->name};
    for (int i = end - 1; i >= at; i--) {
        WantVec own = wants_of(w->arena, items[i]);
        VEC_EACH (const Want, want, &own)
            if (!find_want(&tiles.wants, want)) vec_push(w->arena, &tiles.wants, *want);
    }
    if (tiles.wants.count > 0) {
        const char *name = free_kernel(w, tiles.name);
        tiles.first = items[at];
        vec_push(w->arena, &w->funcs, program_of(w, tiles.first, name, &tiles.wants, end == at + 1));
        for (int i = at; i < end; i++) {
            WantVec own = wants_of(w->arena, items[i]);
            add_params(w->arena, items[i], &own, &tiles.wants);
            items[i]->name = name;
        }
        vec_push(w->arena, &w->tiles, tiles);
    }
    for (int i = at; i < end; i++) vec_push(w->arena, &w->funcs, items[i]);
}

// ---- programs of the source ----

static const Tiles *tiles_launched(const Workspaces *w, const Stmt *launch) {
    VEC_EACH (const Tiles, tiles, &w->tiles)
        if (strcmp(tiles->name, launch->launch.callee) == 0) return tiles;
    return NULL;
}

static Buf *lent_scratch(const Workspaces *w, const Want *want) {
    VEC_EACH (const Lent, lent, &w->lent)
        if (is_same(lent->want, want)) return lent->scratch;
    return NULL;
}

static void lend_launch(Workspaces *w, const Func *program, const Tiles *tiles, Stmt *stmt, Block *out) {
    int count = stmt->launch.count;
    Arg *args = NEW_ARRAY(w->arena, Arg, count + tiles->wants.count);
    for (int i = 0; i < count; i++) args[i] = stmt->launch.args[i];
    VEC_EACH (const Want, want, &tiles->wants) {
        Buf *scratch = lent_scratch(w, want);
        if (!scratch) {
            const Lent lent = {want, scratch = new_scratch(w->arena, program, want)};
            vec_push(w->arena, &w->lent, lent);
            block_push(w->arena, out, s_decl(w->arena, scratch));
        }
        args[count++] = arg_region(region_whole(w->arena, scratch));
    }
    stmt->launch.args = args;
    stmt->launch.count = count;
    stmt->launch.callee = tiles->first->name;
    stmt->launch.func = tiles->first;
}

// A scratch stands before the first launch that wants it, and those behind it in the block, which come one after the
// other, share it.
static void lend_block(Workspaces *w, const Func *program, Block *block) {
    Block out = {0};
    int known = w->lent.count;
    FOR_EACH_ITEM (stmt, block) {
        const Tiles *tiles = stmt->kind == STMT_LAUNCH ? tiles_launched(w, stmt) : NULL;
        if (tiles) lend_launch(w, program, tiles, stmt, &out);
        FOR_EACH_BODY (body, stmt) lend_block(w, program, body);
        block_push(w->arena, &out, stmt);
    }
    w->lent.count = known;
    *block = out;
}

void add_workspaces(Module *module) {
    Workspaces w = {.module = module, .arena = module->arena};
    FuncVec programs = {0};
    VEC_EACH_PTR (Func, func, &module->funcs)
        if (func->kind == FUNC_PROGRAM) vec_push(w.arena, &programs, func);
    for (int at = 0, end; at < module->funcs.count; at = end) {
        end = run_end(module, at);
        add_workspace(&w, at, end);
    }
    if (w.tiles.count == 0) return;
    module->funcs.count = 0;
    VEC_EACH_PTR (Func, func, &w.funcs) vec_push(w.arena, &module->funcs, func);
    VEC_EACH_PTR (Func, program, &programs) lend_block(&w, program, &program->body);
}
