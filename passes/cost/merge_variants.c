// Merges the tiles of a kernel into variants, with conditions by which a launch takes the cheapest.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/rewrite.h"
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
    bool divides = is_expr_call(end, OP_CEILDIV) && expr_is_int(ARG(end, CEILDIV, b).value, tile);
    return divides ? e_sub(arena, e_times(arena, (Expr *)end, tile), ARG(end, CEILDIV, a).value) : e_int(arena, 0);
}

// The number of co-resident clusters: multiprocessors come in groups of pairs, which clusters of more than 2 CTAs do
// not fill.
static Expr *clusters_of(Arena *a, const Target *target, Expr *sms, int split) {
    if (split == 1) return sms;
    Expr *all = e_over(a, sms, split);
    if (split > 2) all = e_sub(a, all, e_over(a, all, target->wgmma.stray_clusters));
    return e_max(a, all, e_int(a, 1));
}

// Split-K by workspace: the limit of the main kernel is the tensor cores, the arrival of tiles, or memory. It stores
// partial results without TMA; a second kernel reads and adds them.
static Expr *workspace_clocks(Arena *a, const WgmmaCosts *costs, const TileLaunch *launch, const TileCandidate *tile,
                              Expr *zeros) {
    const PingpongCost *cost = &tile->cost;
    EXPECT(arena_failure(a), launch->rows, "split-K with other than two names of the grid");
    Expr *splits = workspace_slices(a, launch->sms, launch->tiles, launch->steps);
    Expr *rows = e_times(a, launch->rows, tile->m), *columns = e_times(a, launch->columns, tile->n);
    Expr *waves = e_call2(a, OP_CEILDIV, e_mul(a, launch->tiles, splits), launch->sms);
    Expr *steps = e_mul(a, waves, e_call2(a, OP_CEILDIV, launch->steps, splits));
    Expr *loop = e_times(a, steps, larger(cost->step, cost->stream));
    Expr *memory = e_times(a, e_mul(a, e_add(a, rows, columns), launch->steps), cost->bytes);
    Expr *sums = e_mul(a, splits, e_times(a, e_mul(a, rows, columns), 2 * (int64_t)sizeof(float)));
    Expr *store = e_times(a, waves, tile->n * (costs->tail_clocks + costs->scattered_clocks));
    Expr *clocks = e_add(a, e_max(a, loop, e_over(a, memory, costs->memory_bytes)), store);
    clocks = e_add(a, clocks, zeros);
    return e_plus(a, e_add(a, clocks, e_over(a, sums, costs->workspace_bytes)), costs->second_launch_clocks);
}

Expr *launch_clocks(Arena *a, const Target *target, const TileLaunch *launch, const TileCandidate *tile) {
    const PingpongCost *cost = &tile->cost;
    Expr *steps = launch->steps, *step = e_int(a, cost->step), *tail = e_int(a, cost->tail);
    // CTAs that read the same tile of an operand, the smaller number of both operands: with few, most of it comes from
    // memory, also what is beyond the end of tensors.
    Expr *readers = NULL, *few = NULL, *zeros = NULL, *clocks;
    if (launch->rows) {
        readers = e_min(a, launch->rows, launch->columns);
        few = e_binary(a, BIN_LE, readers, e_int(a, STREAM_READERS));
        zeros = e_add(a, e_mul(a, launch->padding_m, launch->columns), e_mul(a, launch->padding_n, launch->rows));
        zeros = e_over(a, e_times(a, e_mul(a, zeros, steps), cost->bytes), target->wgmma.zero_bytes);
        if (cost->stream > cost->step) step = e_select(a, few, e_int(a, cost->stream), step);
    }
    if (tile->split == BY_WORKSPACE) return workspace_clocks(a, &target->wgmma, launch, tile, zeros);
    if (tile->split > 1) steps = e_call2(a, OP_CEILDIV, steps, e_int(a, tile->split));
    Expr *waves = e_call2(a, OP_CEILDIV, launch->tiles, clusters_of(a, target, launch->sms, tile->split));
    steps = e_mul(a, steps, step);
    if (tile->split > 1) {   // CTAs that read the same tile do so at different times
        Expr *loads = e_times(a, e_mul(a, launch->tiles, launch->steps), cost->loaded);
        loads = e_over(a, loads, target->wgmma.cluster_bytes);
        if (readers) loads = e_select(a, e_ge(a, readers, e_int(a, STREAM_READERS)), loads, e_int(a, 0));
        clocks = e_add(a, e_max(a, e_mul(a, waves, steps), loads), e_mul(a, waves, tail));
    } else if (cost->hidden) {
        clocks = e_add(a, e_mul(a, waves, steps), tail);
    } else {
        clocks = e_mul(a, waves, e_add(a, steps, tail));
    }
    return few ? e_add(a, clocks, e_select(a, few, zeros, e_int(a, 0))) : clocks;
}

// With two grid names, the extent of one is the number of CTAs that read a tile chosen by the other.
static TileLaunch launch_of(Arena *a, const Func *kernel, int64_t m, int64_t n) {
    const Stmt *grid = func_grid(kernel);
    TileLaunch launch = {.tiles = grid_tiles(a, grid), .steps = specialized_steps(a, kernel), .sms = e_sms(a)};
    if (grid->grid.count != 2) return launch;
    launch.rows = grid->grid.iters[0].end;
    launch.columns = grid->grid.iters[1].end;
    launch.padding_m = behind_end(a, launch.rows, m);
    launch.padding_n = behind_end(a, launch.columns, n);
    return launch;
}

// The cost of `other`, in the names of `kernel`.
static Expr *cost_for(const TileSearch *search, const Func *kernel, const Func *other) {
    Arena *arena = search->arena;
    TileCandidate tile = {.split = (int)attr_int(other->attrs, ATTR_SPLIT, 1)};
    Specialization how = specialization_of(arena, search->target, other);
    bool by_loop = tile.split != BY_WORKSPACE && is_cooperative_by_loop(&how);
    if (!by_loop) tile.cost = cost_pingpong_split(search->target, as_specialized(search, other), tile.split);
    else if (!cooperative_tile(arena, search->target, other, &tile.m, &tile.n, &tile.cost))
        return translated(arena, kernel, other,
                          cost_cooperative(arena, search->target, other, aliases_epilogue(search, other)));
    specialized_tile(other, &tile.m, &tile.n);
    TileLaunch launch = launch_of(arena, other, tile.m, tile.n);
    return translated(arena, kernel, other, launch_clocks(arena, search->target, &launch, &tile));
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
static void balance_tiles(const TileSearch *search, Func *kernel) {
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
    VEC_EACH_PTR (Func, kernel, &kernels) vec_push(search->arena, &merged->funcs, kernel);
}

void merge_tile_variants(TileSearch *search, Module *module, Module *const *others) {
    Module merged = *module;
    memset(&merged.funcs, 0, sizeof merged.funcs);
    for (int i = 0; i < module->funcs.count; i++) {
        Func *variants[MOST_VARIANTS] = {module->funcs.items[i]};
        int count = 1;
        if (variants[0]->kind == FUNC_KERNEL) {
            const TileVec *tiles = &tile_choice(search, variants[0])->tiles;
            for (; count < tiles->count; count++) variants[count] = others[count - 1]->funcs.items[i];
            for (int v = 0; v < tiles->count; v++)
                if (tiles->items[v].split != 1)
                    attr_set_int(search->arena, &variants[v]->attrs, ATTR_SPLIT, tiles->items[v].split);
        }
        for (int v = 0; v < count; v++) balance_tiles(search, variants[v]);
        set_conditions(search, count, variants);
        add_variants(search, module, &merged, count, variants);
    }
    *module = merged;
}
