// Merges the tiles of a kernel into variants, with conditions by which a launch takes the cheapest.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/cost/cost.h"
#include "passes/cost/search_internal.h"
#include "passes/specialize/warp_specialize.h"
#include "passes/tile/tile.h"
#include <string.h>

// An expression of one variant in the dims and scalars of another.
static Expr *translated(Arena *arena, const Func *to, const Func *from, Expr *expr) {
    Subst *subst = subst_new(arena);
    for (int i = 0; i < from->dims.count; i++) {
        Var *own = func_dim(to, from->dims.items[i]->name);
        if (own) subst_var(subst, from->dims.items[i], e_var(arena, own));
    }
    for (int i = 0; i < from->params.count && i < to->params.count; i++)
        if (from->params.items[i].var && to->params.items[i].var)
            subst_var(subst, from->params.items[i].var, e_var(arena, to->params.items[i].var));
    return subst_expr(subst, expr);
}

// The padding of the last tile: tile * end - X for a grid name with end ceildiv(X, tile), else 0.
static Expr *behind_end(Arena *arena, const Expr *end, int64_t tile) {
    bool divides = end->kind == EXPR_CALL && end->call.op == OP_CEILDIV && expr_is_int(end->call.args[1].value, tile);
    return divides ? e_sub(arena, e_times(arena, (Expr *)end, tile), end->call.args[0].value) : e_int(arena, 0);
}

typedef struct Streamed {
    Expr *readers;   // CTAs that read the same tile of an operand, the smaller number of both operands; NULL: unknown
    Expr *few;       // STREAM_READERS or fewer
    Expr *zeros;     // clocks of loads past the end of tensors
} Streamed;

// With two grid names, the extent of one is the number of CTAs that read a tile chosen by the other.
static Streamed streamed(const TileSearch *search, const Func *kernel, const Stmt *grid, const PingpongCost *cost) {
    if (grid->grid.count != 2) return (Streamed){0};
    Arena *a = search->arena;
    Expr *rows = grid->grid.iters[0].end, *columns = grid->grid.iters[1].end;
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    Expr *zeros = e_add(a, e_mul(a, behind_end(a, rows, m), columns), e_mul(a, behind_end(a, columns, n), rows));
    zeros = e_times(a, e_mul(a, zeros, specialized_steps(a, kernel)), cost->bytes);
    Expr *readers = e_min(a, rows, columns);
    return (Streamed){.readers = readers,
                      .few = e_binary(a, BIN_LE, readers, e_int(a, STREAM_READERS)),
                      .zeros = e_over(a, zeros, search->target->wgmma.zero_bytes)};
}

// The number of co-resident clusters (as clusters_of).
static Expr *clusters(const TileSearch *search, int split) {
    Arena *a = search->arena;
    Expr *all = e_call(a, OP_SMS, 0, NULL);
    if (split == 1) return all;
    all = e_over(a, all, split);
    if (split > 2) all = e_sub(a, all, e_over(a, all, search->target->wgmma.stray_clusters));
    return e_max(a, all, e_int(a, 1));
}

// As workspace_clocks in search.c, as an expression for the launch.
static Expr *workspace_cost(const TileSearch *search, const Func *kernel) {
    Arena *a = search->arena;
    const WgmmaCosts *costs = &search->target->wgmma;
    const Stmt *grid = func_grid(kernel);
    PingpongCost cost = cost_pingpong(search->target, as_specialized(search, kernel), 1);
    EXPECT(arena_failure(a), grid->grid.count == 2, "split-K with %d names of the grid", grid->grid.count);
    Expr *all = specialized_steps(a, kernel), *splits = workspace_slices(a, kernel, all);
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    Expr *tiles = e_mul(a, grid->grid.iters[0].end, grid->grid.iters[1].end);
    Expr *rows = e_times(a, grid->grid.iters[0].end, m), *columns = e_times(a, grid->grid.iters[1].end, n);
    Expr *waves = e_call2(a, OP_CEILDIV, e_mul(a, tiles, splits), e_call(a, OP_SMS, 0, NULL));
    Expr *steps = e_mul(a, waves, e_call2(a, OP_CEILDIV, all, splits));
    Expr *loop = e_times(a, steps, larger(cost.step, cost.stream));
    Expr *memory = e_times(a, e_mul(a, e_add(a, rows, columns), all), cost.bytes);
    Expr *sums = e_mul(a, splits, e_times(a, e_mul(a, rows, columns), 2 * (int64_t)sizeof(float)));
    Expr *store = e_times(a, waves, n * (costs->tail_clocks + costs->scattered_clocks));
    Expr *clocks = e_add(a, e_max(a, loop, e_over(a, memory, costs->memory_bytes)), store);
    clocks = e_add(a, clocks, streamed(search, kernel, grid, &cost).zeros);
    return e_plus(a, e_add(a, clocks, e_over(a, sums, costs->workspace_bytes)), costs->second_launch_clocks);
}

// As clocks_of in search.c, as an expression for the launch.
static Expr *pingpong_clocks(const TileSearch *search, const Func *kernel, const PingpongCost *cost, int split) {
    Arena *a = search->arena;
    const Stmt *grid = func_grid(kernel);
    Expr *tiles = e_int(a, 1), *all = specialized_steps(a, kernel), *steps = all;
    for (int i = 0; i < grid->grid.count; i++) tiles = e_mul(a, tiles, grid->grid.iters[i].end);
    if (split > 1) steps = e_call2(a, OP_CEILDIV, steps, e_int(a, split));
    Expr *waves = e_call2(a, OP_CEILDIV, tiles, clusters(search, split));
    Expr *tail = e_int(a, cost->tail), *step = e_int(a, cost->step), *clocks;
    Streamed stream = streamed(search, kernel, grid, cost);
    if (stream.few && cost->stream > cost->step) step = e_select(a, stream.few, e_int(a, cost->stream), step);
    steps = e_mul(a, steps, step);
    if (split > 1) {
        Expr *loads = e_times(a, e_mul(a, tiles, all), cost->loaded);
        loads = e_over(a, loads, search->target->wgmma.cluster_bytes);
        if (stream.readers) loads = e_select(a, e_ge(a, stream.readers, e_int(a, STREAM_READERS)), loads, e_int(a, 0));
        clocks = e_add(a, e_max(a, e_mul(a, waves, steps), loads), e_mul(a, waves, tail));
    } else if (cost->hidden) {
        clocks = e_add(a, e_mul(a, waves, steps), tail);
    } else {
        clocks = e_mul(a, waves, e_add(a, steps, tail));
    }
    return stream.few ? e_add(a, clocks, e_select(a, stream.few, stream.zeros, e_int(a, 0))) : clocks;
}

// The cost of `other`, in the names of `kernel`.
static Expr *cost_for(const TileSearch *search, const Func *kernel, const Func *other) {
    Arena *arena = search->arena;
    PingpongCost cost;
    int64_t m, n;
    int split = (int)attr_int(other->attrs, ATTR_SPLIT, 1);
    if (split == BY_WORKSPACE) return translated(arena, kernel, other, workspace_cost(search, other));
    Specialization how = specialization_of(arena, search->target, other);
    if (!is_cooperative_by_loop(&how)) cost = cost_pingpong_split(search->target, as_specialized(search, other), split);
    else if (!cooperative_tile(arena, search->target, other, &m, &n, &cost))
        return translated(arena, kernel, other,
                          cost_cooperative(arena, search->target, other, aliases_epilogue(search, other)));
    return translated(arena, kernel, other, pingpong_clocks(search, other, &cost, split));
}

// Variants are tried in order: a variant is taken if no later one costs less; the last has no condition.
static void set_conditions(const TileSearch *search, int count, Func **variants) {
    Arena *arena = search->arena;
    for (int i = 0; i + 1 < count; i++) {
        Func *kernel = variants[i];
        Expr *least = cost_for(search, kernel, variants[count - 1]);
        for (int j = count - 2; j > i; j--) least = e_min(arena, cost_for(search, kernel, variants[j]), least);
        Expr *cheap = e_binary(arena, BIN_LE, cost_for(search, kernel, kernel), least);
        kernel->when = kernel->when ? e_and(arena, kernel->when, cheap) : cheap;
        attr_set_ints(arena, &kernel->attrs, ATTR_TILE_VARIANT, 0, NULL);
    }
}

// If the work of tiles differs in a way that LPT scheduling balances, the kernel becomes persistent.
static void make_stay(const TileSearch *search, Func *kernel) {
    if (kernel->kind != FUNC_KERNEL || !tiles_balance(search->arena, search->target, kernel)) return;
    ((Stmt *)func_grid(kernel))->grid.persistent = true;
}

// A variant with split-K by workspace is a program; its kernels follow all variants, the reduction kernel a single
// time.
static void add_variants(const TileSearch *search, const Module *module, Module *merged, int count,
                         Func *const *variants) {
    VEC(Func *) kernels = {0};
    for (int v = 0; v < count; v++) {
        const Func *kernel = variants[v];
        if (kernel->kind != FUNC_KERNEL || attr_int(kernel->attrs, ATTR_SPLIT, 1) != BY_WORKSPACE) {
            vec_push(search->arena, &merged->funcs, variants[v]);
            continue;
        }
        SplitKWorkspace made = split_k_workspace(search->arena, search->target, module, kernel);
        vec_push(search->arena, &merged->funcs, made.program);
        if (kernels.count == 0) vec_push(search->arena, &kernels, made.sum);
        vec_push(search->arena, &kernels, made.slices);
    }
    for (int k = 0; k < kernels.count; k++) vec_push(search->arena, &merged->funcs, kernels.items[k]);
}

void merge_tile_variants(const TileSearch *search, Module *module, Module *const *others) {
    Module merged = *module;
    memset(&merged.funcs, 0, sizeof merged.funcs);
    for (int i = 0; i < module->funcs.count; i++) {
        Func *variants[MOST_VARIANTS] = {module->funcs.items[i]};
        int count = 1;
        TileChoice *choice =
            variants[0]->kind == FUNC_KERNEL && search->choices ? tile_choice((TileSearch *)search, variants[0]) : NULL;
        int tiles = choice ? choice->tiles.count : 1;
        for (; count < tiles; count++) variants[count] = others[count - 1]->funcs.items[i];
        for (int v = 0; choice && v < count && v < tiles; v++) {
            int64_t split = choice->tiles.items[v].split;
            if (split != 1) attr_set_int(search->arena, &variants[v]->attrs, ATTR_SPLIT, split);
        }
        for (int v = 0; v < count; v++) make_stay(search, variants[v]);
        set_conditions(search, count, variants);
        add_variants(search, module, &merged, count, variants);
    }
    *module = merged;
}
