#include "passes/tile/neighbours.h"
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/query.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"

Subst *stable_names(Arena *arena, const Func *kernel) {
    Subst *names = subst_new(arena);
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_stable_let(stmt)) subst_let(names, stmt->let.var, subst_expr(names, stmt->let.value));
    return names;
}

bool differ_by(Arena *arena, Subst *names, Expr *a, Expr *b, int64_t by) {
    LinearSum sum = linear_new(TYPE_I64);
    linear_add(arena, &sum, subst_expr(names, b), 1);
    linear_add(arena, &sum, subst_expr(names, a), -1);
    return !sum.full && linear_is_constant(&sum, by);
}

static bool is_there(const RegionDim *dim) {
    return dim->extent && expr_is_int(dim->extent, dim->tile);
}

int next_dim(Arena *arena, Subst *names, const Region *first, const Region *second) {
    int found = REGIONS_EQUAL;
    if (first->buf != second->buf || first->transposed != second->transposed) return REGIONS_DIFFER;
    for (int d = 0, kept = 0; d < first->count; d++) {
        const RegionDim *a = &first->dims[d], *b = &second->dims[d];
        if (!a->extent != !b->extent) return REGIONS_DIFFER;
        int operand = a->extent ? operand_dim(first, kept++) : 0;
        bool same = differ_by(arena, names, a->start, b->start, 0) && a->tile == b->tile;
        if (same && (!a->extent || differ_by(arena, names, a->extent, b->extent, 0))) continue;
        bool follows = is_there(a) && is_there(b) && differ_by(arena, names, a->start, b->start, a->tile);
        if (found != REGIONS_EQUAL || !follows) return REGIONS_DIFFER;
        found = operand;
    }
    return found;
}

Region *region_widened(Arena *arena, Subst *names, const Region *region, int operand, int64_t extent) {
    Region *wide = clone_region(arena, NULL, region);
    for (int d = 0, kept = 0; d < wide->count; d++) {
        RegionDim *dim = &wide->dims[d];
        if (!dim->extent || operand_dim(region, kept++) != operand) continue;
        *dim = (RegionDim){subst_expr(names, dim->start), e_int(arena, extent), extent};
    }
    return wide;
}
