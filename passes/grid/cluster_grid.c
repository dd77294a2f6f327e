// Grids whose clusters communicate.
//
// If operations access another CTA of the cluster, the CTAs of a cluster have consecutive numbers, as in hardware:
// block / C is the cluster, block % C the rank in it, C the number of CTAs of a cluster.
//
//     grid (slice in 4, row in M) cluster (2, 1):    rank = block % 2, cluster = block / 2,
//                                                   slice = cluster % (4 / 2) * 2 + rank % 2,   row = cluster / (4 / 2)
//
// `raster` and `persistent` are then ignored. Where the launch chooses the cluster, its extents stand for the numbers. Tiles that some
// of the CTAs read in common are shared (multicast.c): those along a name that the tile does not depend on.
#include "passes/grid/tile_scheduler.h"

Expr *cluster_along(const Scheduler *s, int name) {
    int extent = name < 3 ? s->grid->grid.cluster[name] : 1;
    if (chooses_cluster(s->grid))
        return name < CLUSTER_NAMES && cluster_most(s->grid, name) > 1 ? e_cluster_extent(s->arena, name) : NULL;
    return extent > 1 ? e_int(s->arena, extent) : NULL;
}

// The extent counts whole clusters: a product with the cluster's.
static bool counts_clusters(const Expr *end, const Expr *extent) {
    return is_binary(end, BIN_MUL) && expr_equal(end->binary.b, extent);
}

// The extents must be multiples of the cluster's; the launch checks this. True: the condition was added.
static bool want_whole_clusters(Scheduler *s, Func *kernel) {
    Arena *a = s->arena;
    bool wanted = false;
    for (int i = 0; i < s->grid->grid.count; i++) {
        Expr *extent = cluster_along(s, i), *end = s->grid->grid.iters[i].end;
        if (!extent || expr_equal(end, extent) || counts_clusters(end, extent)) continue;
        Expr *whole = e_eq(a, e_mod(a, end, extent), e_int(a, 0));
        if (prove(s->facts, whole)) continue;
        kernel->when = e_both(a, kernel->when, whole);
        wanted = true;
    }
    return wanted;
}

static Expr *clusters_along(Scheduler *s, int name) {
    Expr *extent = cluster_along(s, name), *end = s->grid->grid.iters[name].end;
    if (!extent) return end;
    if (expr_equal(end, extent)) return e_int(s->arena, 1);
    return counts_clusters(end, extent) ? end->binary.a : e_div(s->arena, end, extent);
}

// The old iterators from the cluster's number and the rank in it; fills s->top.
static void decompose_clusters(Scheduler *s, Expr *number, int blocks) {
    Arena *a = s->arena;
    Expr *size = chooses_cluster(s->grid) ? e_cluster_ctas(a) : e_int(a, blocks), *one = e_int(a, 1);
    Expr *cluster = bind_name(s, "cluster", e_div(a, number, size));
    Expr *rank = bind_name(s, "rank", e_mod(a, number, size));
    for (int i = 0; i < s->grid->grid.count; i++) {
        const Iter *iter = &s->grid->grid.iters[i];
        Expr *extent = cluster_along(s, i);
        bool last = i == s->grid->grid.count - 1;
        Expr *clusters = clusters_along(s, i);
        Expr *at = e_mul(a, last ? cluster : e_mod(a, cluster, clusters), extent ? extent : one);
        bind_iter(s, i, extent ? e_add(a, at, e_mod(a, rank, extent)) : at, iter->end);
        if (last) break;
        cluster = bind_name(s, "rest", e_div(a, cluster, clusters));
        if (extent) rank = e_div(a, rank, extent);
    }
}

bool flatten_clusters(Scheduler *s, Func *kernel, Expr *tiles, int blocks) {
    int largest = cluster_largest(s->grid);
    if (largest > s->context->target->cluster_most)
        diag(s->context->sink, s->grid->loc, T_CLUSTER_TOO_LARGE, kernel->name, largest, s->context->target->name,
             s->context->target->cluster_most);
    bool claims = set_claim(s->arena, s->grid, (TileClaim){0}), orders = set_order(s->arena, s->grid, (TileOrder){0});
    const char *unused = claims ? "persistent" : orders ? "raster" : NULL;
    if (unused) REMARK(s->context, s->grid->loc, T_GRID_HINT, unused, "the CTAs of a cluster share tiles");
    bool changed = want_whole_clusters(s, kernel) || s->grid->grid.count > 1 || unused;
    share_tiles(s, kernel);   // (else each CTA loads its own)
    if (s->grid->grid.count > 1) {
        Var *block = var_new(s->arena, "block", VAR_ITER, TYPE_I64, s->grid->loc);
        push_assume(s, e_lt(s->arena, e_var(s->arena, block), e_int(s->arena, s->context->target->max_grid)));
        decompose_clusters(s, e_var(s->arena, block), blocks);
        set_grid(s, block, tiles);
    }
    set_cluster(s->grid, blocks);
    return changed;
}
