#include "passes/layout/fragment.h"
#include "ir/build.h"

// ---- tensor cores ----

static const Layout *of_instruction(Arena *arena, const char *text, int64_t rows, int64_t columns, int64_t warps_m,
                                    int64_t warps_n, int64_t threads) {
    const char *why = NULL;
    int64_t shape[] = {rows, columns}, warps[] = {warps_m, warps_n};
    return tv_of_instruction(arena, layout_parse(arena, text, 0, &why), shape, warps, threads);
}

const Layout *fragment_accumulator(Arena *arena, const MmaInfo *info, int64_t m, int64_t n, int64_t warps_m,
                                   int64_t warps_n, int64_t threads) {
    return of_instruction(arena, info->c_layout, m, n, warps_m, warps_n, threads);
}

const Layout *fragment_operand_a(Arena *arena, const MmaInfo *info, int64_t m, int64_t k, int64_t warps_m,
                                 int64_t threads) {
    return of_instruction(arena, info->a_layout, m, k, warps_m, 1, threads);
}

const Layout *fragment_wgmma(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t n, int64_t warpgroups,
                             int64_t threads) {
    return of_instruction(arena, info->acc_layout, m, n, warpgroups, 1, threads);
}

const Layout *fragment_wgmma_a(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t k, int64_t warpgroups,
                               int64_t threads) {
    return of_instruction(arena, info->a_layout, m, k, warpgroups, 1, threads);
}

const Layout *fragment_wgmma_paired(Arena *arena, const WgmmaInfo *info, int64_t m, int64_t k, int64_t warpgroups,
                                    int64_t threads) {
    return of_instruction(arena, info->a_paired, m, k, warpgroups, 1, threads);
}

// ---- digits as expressions ----

// The digit of `index` whose step is `weight`; the slowest one (of `total`) needs no remainder.
static Expr *digit_of(Arena *arena, Expr *index, int64_t weight, int64_t extent, int64_t total) {
    Expr *digit = e_div(arena, index, e_int(arena, weight));
    return weight * extent < total ? e_mod(arena, digit, e_int(arena, extent)) : digit;
}

static bool is_used(const LayoutMode *mode, int rank, const int *dims) {
    for (int d = 0; d < rank; d++)
        if (mode->stride != 0 && dims[d] == mode->out) return true;
    return false;
}

Expr *fragment_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value) {
    Expr *slot = e_int(arena, 0);
    int64_t weight = 1, place = 1, total = tv_values(map);
    for (int i = 0; i < map->in[TV_VALUE].count; i++) {
        const LayoutMode *mode = &map->in[TV_VALUE].modes[i];
        if (is_used(mode, rank, dims)) {
            Expr *digit = digit_of(arena, value, weight, mode->extent, total);
            slot = e_add(arena, slot, e_mul(arena, digit, e_int(arena, place)));
            place *= mode->extent;
        }
        weight *= mode->extent;
    }
    return place == total ? value : slot;   // all digits kept, in order: the same number
}

Expr *fragment_first_replica(Arena *arena, const Layout *map, Expr *thread) {
    Expr *first = NULL;
    int64_t weight = 1;
    for (int i = 0; i < map->in[TV_THREAD].count; i++) {
        const LayoutMode *mode = &map->in[TV_THREAD].modes[i];
        if (mode->stride == 0) {
            Expr *digit = digit_of(arena, thread, weight, mode->extent, tv_threads(map));
            Expr *is_first = e_binary(arena, BIN_EQ, digit, e_int(arena, 0));
            first = first ? e_and(arena, first, is_first) : is_first;
        }
        weight *= mode->extent;
    }
    return first;
}

static bool same_modes(const LayoutInput *a, const LayoutInput *b) {
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = a->modes[i].extent == b->modes[i].extent && a->modes[i].stride == b->modes[i].stride &&
               (a->modes[i].stride == 0 || a->modes[i].out == b->modes[i].out);
    return same;
}

// A part of a digit: `extent` of its steps, from `stride` on.
typedef struct Piece {
    int64_t extent, weight;   // weight: of the part in the value
} Piece;

// The part of a digit of `values` that goes on from `stride`, at most `extent` steps. Extent 0: there is none.
static Piece piece_from(const LayoutInput *values, int64_t stride, int out, int64_t extent) {
    int64_t weight = 1;
    for (int i = 0; i < values->count; weight *= values->modes[i++].extent) {
        const LayoutMode *mode = &values->modes[i];
        if (mode->out != out || mode->stride == 0 || stride % mode->stride != 0) continue;
        int64_t before = stride / mode->stride;
        if (before >= mode->extent || mode->extent % before != 0) continue;
        int64_t rest = mode->extent / before;
        return (Piece){rest < extent ? rest : extent, weight * before};
    }
    return (Piece){0};
}

Expr *fragment_same_thread(Arena *arena, const Layout *seen, const Layout *own, Expr *value) {
    Expr *slot = e_int(arena, 0);
    int64_t place = 1, total = tv_values(seen);
    if (!same_modes(&seen->in[TV_THREAD], &own->in[TV_THREAD]) || tv_values(own) != total) return NULL;
    for (int i = 0; i < own->in[TV_VALUE].count; i++) {
        LayoutMode left = own->in[TV_VALUE].modes[i];
        while (left.extent > 1) {
            if (left.stride == 0) return NULL;
            Piece piece = piece_from(&seen->in[TV_VALUE], left.stride, left.out, left.extent);
            if (piece.extent < 2 || left.extent % piece.extent != 0) return NULL;
            Expr *digit = digit_of(arena, value, piece.weight, piece.extent, total);
            slot = e_add(arena, slot, e_mul(arena, digit, e_int(arena, place)));
            place *= piece.extent;
            left.extent /= piece.extent;
            left.stride *= piece.extent;
        }
    }
    return slot;
}
