// Merges the tiles of a kernel into variants, with costs by which a launch takes the cheapest.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "passes/cost/search_internal.h"
#include "passes/grid/tile_order.h"
#include "passes/tile/stream_k.h"
#include "passes/tile/tile.h"
#include <string.h>

// An extent, and what of it a tile or step covers: X and 128 of ceildiv(X, 128), else the count itself and 1.
static Expr *extent_of(Expr *count, int64_t tile, int64_t *covered) {
    bool divides = is_expr_call(count, OP_CEILDIV) && expr_is_int(ARG(count, CEILDIV, b).value, tile);
    *covered = divides ? tile : 1;
    return divides ? ARG(count, CEILDIV, a).value : count;
}

// With two grid names, the extent of one is the number of CTAs that read a tile chosen by the other.
static void set_tiles(Arena *a, const Func *kernel, int64_t m, int64_t n, FuncCost *cost) {
    const Stmt *grid = func_grid(kernel);
    if (grid->grid.count != 2) {
        cost->extents[COST_COPIES] = grid_tiles(a, grid);
        cost->terms.tile_rows = cost->terms.tile_columns = 1;
        cost->terms.stream = 0;
        return;
    }
    cost->extents[COST_ROWS] = extent_of(grid->grid.iters[0].end, m, &cost->terms.tile_rows);
    cost->extents[COST_COLUMNS] = extent_of(grid->grid.iters[1].end, n, &cost->terms.tile_columns);
}

// The cost of a kernel of the source with this tile; its coefficients are those of `padded`, the kernel as it will be
// specialized. NULL: it depends on values that are known only in the kernel.
static FuncCost *cost_of(const TileSearch *search, const Func *kernel, const Func *padded, const Specialization *how,
                         TileCandidate tile) {
    Arena *a = search->arena;
    const Target *target = search->target;
    Specialization shaped;
    bool by_loop = tile.split != BY_WORKSPACE && is_cooperative_by_loop(how);
    FuncCost *cost = NEW(a, FuncCost);
    for (int i = 0; i < COST_EXTENTS; i++) cost->extents[i] = e_int(a, i < COST_FIRST_PITCH);
    if (by_loop && !cooperative_tile(a, target, padded, &tile.m, &tile.n, &tile.cost)) {
        LaunchCost unpadded;
        cost->extents[COST_COPIES] = grid_tiles(a, func_grid(kernel));
        cost->extents[COST_DEPTH] = cost_cooperative(a, target, kernel, tile.alias_epilogue, &unpadded);
        cost_cooperative(a, target, padded, tile.alias_epilogue, &cost->terms);
        return cost->extents[COST_DEPTH] ? cost : NULL;
    }
    if (by_loop && tile.split > 1) tile.cost = cost_with_sums(a, target, padded, tile.cost);
    const Func *swapped = by_loop ? NULL : operands_swapped(a, target, kernel, &shaped);
    if (how->too_large && tile.split == 1) tile.cost = cost_shared_tile(a, target, swapped ? swapped : kernel);
    else if (!by_loop) tile.cost = cost_pingpong_split(a, target, swapped ? swapped : kernel, tile.split);
    specialized_tile(kernel, &tile.m, &tile.n);
    cost->terms = launch_cost(target, &tile);
    set_tiles(a, kernel, tile.m, tile.n, cost);
    int64_t lines[2];
    cost_pitches(a, target, kernel, &cost->extents[COST_FIRST_PITCH], lines);
    cost->terms.first_rows = lines[0];
    cost->terms.second_rows = lines[1];
    Expr *steps = specialized_steps(a, kernel);   // NULL: tiles differ, in what no bound is known of
    if (steps) cost->extents[COST_DEPTH] = extent_of(steps, tile.cost.k, &cost->terms.tile_depth);
    return steps ? cost : NULL;
}

// The kernel as it will be specialized, if that is by its loop: its tiles may have to be padded for that.
static const Func *as_specialized(const TileSearch *search, const Func *kernel, Specialization *how) {
    Specialization padded;
    const Func *other = operands_swapped(search->arena, search->target, kernel, &padded);
    if (other && is_cooperative_by_loop(&padded)) {
        *how = padded;
        return other;
    }
    *how = specialization_of(search->arena, search->target, kernel);
    return kernel;
}

// If the work of tiles differs in a way that dealing them in snake order balances, the kernel becomes persistent. All variants
// of a source kernel have a cost, or none has.
static void set_costs(const TileSearch *search, const TileVec *tiles, int count, Func **variants) {
    bool known = true;
    for (int v = 0; v < count; v++) {
        Specialization how;
        const Func *kernel = as_streamed(search->arena, variants[v]), *padded = as_specialized(search, kernel, &how);
        Schedule schedule = schedule_of(search->arena, padded, &how, 0);
        if (is_cooperative_by_loop(&how) && schedule.deals && schedule.claim.kind == CLAIM_OPEN) {
            set_claim(search->arena, (Stmt *)func_grid(variants[v]), (TileClaim){.kind = CLAIM_STATIC});
            set_claim(search->arena, (Stmt *)func_grid(padded), (TileClaim){.kind = CLAIM_STATIC});
        }
        if (v < tiles->count) variants[v]->cost = cost_of(search, kernel, padded, &how, tiles->items[v]);
        known &= variants[v]->cost != NULL;
        if (v + 1 < tiles->count) attr_set_ints(search->arena, &variants[v]->attrs, ATTR_TILE_VARIANT, 0, NULL);
    }
    for (int v = 0; v < tiles->count; v++) {
        if (!known) variants[v]->cost = NULL;
        else if (tiles->items[v].keeps_fallback)
            attr_set_ints(search->arena, &variants[v]->attrs, ATTR_WITH_FALLBACK, 0, NULL);
    }
}

// The kernels of the tiles that are kept for copied operands, with costs: a launch by a program chooses. Out: in *smallest the tile
// with the fewest results. 0: none is kept.
static int rows_kernels(const TileSearch *search, const Module *module, const TileVec *tiles, Func *const *variants,
                        FuncVec *kernels, int *smallest) {
    int count = 0;
    VEC_EACH (const TileCandidate, tile, tiles) {
        int v = (int)(tile - tiles->items);
        if (!tile->keeps_repacked || !variants[v]->cost) continue;
        Func *rows = repack_rows(search->arena, search->target, module, variants[v]);
        Specialization how = specialization_of(search->arena, search->target, rows);
        rows->cost = cost_of(search, rows, rows, &how, *tile);
        if (!rows->cost) continue;
        if (count > 0) attr_set_ints(search->arena, &vec_last(kernels)->attrs, ATTR_TILE_VARIANT, 0, NULL);
        if (count == 0 || tile->m * tile->n < tiles->items[*smallest].m * tiles->items[*smallest].n) *smallest = v;
        vec_push(search->arena, kernels, rows);
        count++;
    }
    return count;
}

// The programs that copy operands first, and their kernels. They have the cost of the smallest tile: where another one is much
// cheaper, so are they all in comparison with threads that load.
static void add_repacked(const TileSearch *search, const Module *module, const TileVec *tiles, Func *const *variants,
                         FuncVec *programs, FuncVec *kernels) {
    int smallest = 0, count = rows_kernels(search, module, tiles, variants, kernels, &smallest), at = 0;
    if (count == 0) return;
    for (int v = 0; v < smallest; v++) at += tiles->items[v].keeps_repacked && variants[v]->cost;
    const Func *kernel = variants[smallest];
    Repacked made = repack(search->arena, search->target, module, kernel, kernels->items[0]);
    for (int i = 0; i < made.count; i++) {
        FuncCost *own = made.programs[i]->cost;
        RepackBytes bytes = repack_bytes(search->arena, search->target, kernel, i);
        own->terms = kernels->items[at]->cost->terms;
        if (i + 1 == made.count)   // rows of whole lines
            own->extents[COST_FIRST_PITCH] = own->extents[COST_SECOND_PITCH] = e_int(search->arena, 0);
        add_copies(search->target, bytes.of, bytes.launches, &own->terms);
        vec_push(search->arena, programs, made.programs[i]);
    }
    VEC_EACH_PTR (Func, copy, &made.copies) vec_push(search->arena, kernels, copy);
}

// A variant with split-K by workspace is a program; its kernels follow all variants, the reduction kernel a single
// time. So do, behind the last tile, programs that copy operands first.
static void add_variants(const TileSearch *search, const Module *module, Module *merged, int count,
                         Func *const *variants, const TileVec *tiles) {
    FuncVec kernels = {0}, programs = {0}, packed = {0};
    add_repacked(search, module, tiles, variants, &programs, &packed);
    for (int v = 0; v < count; v++) {
        const Func *kernel = variants[v];
        if (kernel->kind != FUNC_KERNEL || kernel_split(kernel).kind != SPLIT_WORKSPACE) {
            vec_push(search->arena, &merged->funcs, variants[v]);
            continue;
        }
        SplitKWorkspace made = split_k_workspace(search->arena, search->target, module, kernel);
        if (v + 1 < count) attr_set_ints(search->arena, &made.program->attrs, ATTR_TILE_VARIANT, 0, NULL);
        vec_push(search->arena, &merged->funcs, made.program);
        if (kernels.count == 0) vec_push(search->arena, &kernels, made.sum);
        vec_push(search->arena, &kernels, made.slices);
    }
    for (int i = 0; i < programs.count; i++) {
        if (i + 1 < programs.count) attr_set_ints(search->arena, &programs.items[i]->attrs, ATTR_TILE_VARIANT, 0, NULL);
        vec_push(search->arena, &merged->funcs, programs.items[i]);
    }
    VEC_EACH_PTR (Func, kernel, &packed) vec_push(search->arena, &merged->funcs, kernel);
    VEC_EACH_PTR (Func, kernel, &kernels) vec_push(search->arena, &merged->funcs, kernel);
}

static TileSplit split_of(const TileCandidate *tile) {
    TileSplit split = {.kind = SPLIT_CLUSTER, .ctas = tile->split};
    if (tile->split == BY_WORKSPACE) return (TileSplit){.kind = SPLIT_WORKSPACE};
    for (int i = 0, ctas = 2 * tile->split; i < COUNT_OF(split.more) && ctas <= tile->splits; i++, ctas *= 2)
        split.more[i] = ctas;
    return split;
}

// The tile's cluster, or those that a launch chooses among, of which the first is the grid's.
static void set_shapes(const TileSearch *search, Stmt *grid, const TileCandidate *tile) {
    for (int d = 0; d < COUNT_OF(tile->cluster); d++) grid->grid.cluster[d] = tile->cluster[d];
    for (int i = 0; i < CLUSTER_SHAPES && tile->shapes; i++) {
        if (!(tile->shapes >> i & 1)) continue;
        add_cluster_shape(search->arena, grid, cluster_shapes[i].extents[0], cluster_shapes[i].extents[1]);
    }
}

void merge_tile_variants(TileSearch *search, Module *module, Module *const *others) {
    Module merged = *module;
    memset(&merged.funcs, 0, sizeof merged.funcs);
    for (int i = 0; i < module->funcs.count; i++) {
        Func *variants[MOST_VARIANTS] = {module->funcs.items[i]};
        const TileVec none = {0};
        bool is_kernel = variants[0]->kind == FUNC_KERNEL;
        const TileVec *tiles = is_kernel ? &tile_choice(search, variants[0])->tiles : &none;
        int count = tiles->count > 1 ? tiles->count : 1;
        for (int v = 1; v < count; v++) variants[v] = others[v - 1]->funcs.items[i];
        for (int v = 0; v < tiles->count; v++) {
            const TileCandidate *tile = &tiles->items[v];
            if (tile->split != 1) set_split(search->arena, variants[v], split_of(tile));
            if (tile->cluster[0]) set_shapes(search, (Stmt *)func_grid(variants[v]), tile);
        }
        if (is_kernel && (tiles->count > 0 || !tile_choice(search, variants[0])->fixed))
            set_costs(search, tiles, count, variants);
        add_variants(search, module, &merged, count, variants, tiles);
    }
    *module = merged;
}
