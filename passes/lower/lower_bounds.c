// Guards of the whole tile: where the elements of a group have different ones, one test says that no element needs any.
#include "passes/lower/lower_loop.h"

// The guard of an access in a group is the same for all its elements.
static bool guard_is_uniform(const Version *version, const TileAccess *access) {
    Arena *arena = version->arena;
    const Facts *facts = version->lower->facts;
    const Var *fast = version->loop->iters[version->fast];
    if (access->is_local) return false;
    for (int d = 0; d < access->count; d++) {
        int64_t coefficient;
        Expr *inside = e_lt(arena, access->indices[d], access->buf->shape[d]);
        bool proven =
            prove(facts, inside) && prove(facts, e_binary(arena, BIN_GE, access->indices[d], e_int(arena, 0)));
        if (proven || (linear_in(access->indices[d], fast, &coefficient) && coefficient == 0)) continue;
        if (d != access->count - 1 || run_stride(access, fast) != STRIDE_UNIT) return false;
        Expr *base = simplify_expr(arena, facts, e_sub(arena, access->indices[d], e_var(arena, (Var *)fast)));
        if (multiple_of(facts, base) % version->vector != 0) return false;
        if (multiple_of(facts, access->buf->shape[d]) % version->vector != 0) return false;
    }
    return true;
}

// The index at the tile's corner where it is largest (or smallest). NULL when it is not linear in the iterators.
static Expr *corner(const Version *version, Expr *index, bool largest) {
    Arena *arena = version->arena;
    Subst *subst = subst_new(arena);
    for (int d = 0; d < version->loop->rank; d++) {
        int64_t coefficient;
        if (!linear_in(index, version->loop->iters[d], &coefficient)) return NULL;
        bool far = (coefficient > 0) == largest;
        subst_var(subst, version->loop->iters[d], e_int(arena, far ? version->loop->extents[d] - 1 : 0));
    }
    return simplify_expr(arena, version->lower->facts, subst_expr(subst, index));
}

Expr *whole_tile_inside(Version *version) {
    Arena *arena = version->arena;
    Facts *facts = version->lower->facts;
    Expr *all = NULL;
    for (int a = 0; a < version->accesses->count; a++) {
        const TileAccess *access = &version->accesses->items[a];
        if (access->buf->scope != SCOPE_GLOBAL) continue;
        if (access->is_local) return NULL;
        for (int d = 0; d < access->count; d++) {
            Expr *high = corner(version, access->indices[d], true), *low = corner(version, access->indices[d], false);
            if (!high || !low) return NULL;
            Expr *tests[2] = {e_lt(arena, high, access->buf->shape[d]), e_binary(arena, BIN_GE, low, e_int(arena, 0))};
            for (int i = 0; i < 2; i++)
                if (!prove(facts, tests[i])) all = both(version, all, simplify_expr(arena, facts, tests[i]));
        }
    }
    return all;
}

bool needs_two_versions(const Version *version) {
    if (version->vector == 1 || version->loop->is_async) return false;
    for (int a = 0; a < version->accesses->count; a++)
        if (version->accesses->items[a].buf->scope == SCOPE_GLOBAL &&
            !guard_is_uniform(version, &version->accesses->items[a]))
            return true;
    return false;
}
