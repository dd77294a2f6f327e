#include "passes/fragment.h"
#include "ir/build.h"

int64_t map_threads(const Layout *map) { return layout_extent_in(map, MAP_THREAD); }
int64_t map_values(const Layout *map) { return layout_extent_in(map, MAP_VALUE); }

static int64_t power_of_two_above(int64_t n) {
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static int64_t power_of_two_in(int64_t n) { return n & -n; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void replicate_rest(Layout *map, int64_t threads, int64_t used) {
    if (used < threads) layout_add(map, MAP_THREAD, threads / used, 0, 0);
}

// ---- blocked ----

// Threads along the fast dim: all of its vectors when the dim is a power of two; a power of two that divides them when the
// other dims have work for the remaining threads; else padded up.
static int64_t fast_dim_threads(int64_t vectors, int64_t others, int64_t threads, int64_t limit) {
    int64_t exact = power_of_two_in(vectors), padded = power_of_two_above(vectors);
    int64_t chosen = exact != padded && exact >= 4 && others >= threads / smaller(exact, threads) ? exact : padded;
    if (limit > 0) chosen = smaller(chosen, limit);
    return smaller(chosen, threads);
}

const Layout *map_blocked(Arena *arena, int rank, const int64_t *shape, int64_t threads, int fast, int64_t vector,
                          int64_t fast_threads) {
    Layout *map = layout_new(arena, 2, rank);
    int64_t along[LAYOUT_MAX_RANK], others = 1;
    for (int d = 0; d < rank; d++) others *= d == fast ? 1 : shape[d];
    int64_t vectors = ceil_div(shape[fast], vector), left = threads;
    along[fast] = fast_dim_threads(vectors, others, threads, fast_threads);
    left /= along[fast];
    layout_add(map, MAP_THREAD, along[fast], vector, fast);
    for (int d = rank - 1; d >= 0; d--) {
        if (d == fast) continue;
        along[d] = smaller(power_of_two_above(shape[d]), power_of_two_in(left));
        left /= along[d];
        layout_add(map, MAP_THREAD, along[d], 1, d);
    }
    replicate_rest(map, threads, threads / left);
    layout_add(map, MAP_VALUE, vector, 1, fast);
    layout_add(map, MAP_VALUE, ceil_div(vectors, along[fast]), vector * along[fast], fast);
    for (int d = rank - 1; d >= 0; d--)
        if (d != fast) layout_add(map, MAP_VALUE, ceil_div(shape[d], along[d]), along[d], d);
    return layout_finish(map);
}

const Layout *map_replicated(Arena *arena, int rank, const int64_t *shape, int64_t threads) {
    Layout *map = layout_new(arena, 2, rank);
    layout_add(map, MAP_THREAD, threads, 0, 0);
    for (int d = rank - 1; d >= 0; d--) layout_add(map, MAP_VALUE, shape[d], 1, d);
    return layout_finish(map);
}

// ---- tensor cores ----

static void add_instruction(Layout *map, const Layout *instruction, int input) {
    for (int i = 0; i < instruction->in[input].count; i++) {
        const LayoutMode *mode = &instruction->in[input].modes[i];
        layout_add(map, input, mode->extent, mode->stride, mode->out);
    }
}

static const Layout *instruction_layout(Arena *arena, const char *text) {
    const char *why = NULL;
    return layout_parse(arena, text, 0, &why);
}

const Layout *map_mma_accumulator(Arena *arena, const MmaInfo *info, int64_t m, int64_t n, int64_t warps_m,
                                  int64_t warps_n, int64_t threads, int lanes) {
    const Layout *instruction = instruction_layout(arena, info->c_layout);
    int64_t warp_m = m / warps_m, warp_n = n / warps_n;
    Layout *map = layout_new(arena, 2, 2);
    add_instruction(map, instruction, MAP_THREAD);
    layout_add(map, MAP_THREAD, warps_m, warp_m, 0);
    layout_add(map, MAP_THREAD, warps_n, warp_n, 1);
    replicate_rest(map, threads, lanes * warps_m * warps_n);
    add_instruction(map, instruction, MAP_VALUE);
    layout_add(map, MAP_VALUE, warp_n / info->n, info->n, 1);
    layout_add(map, MAP_VALUE, warp_m / info->m, info->m, 0);
    return layout_finish(map);
}

const Layout *map_mma_a(Arena *arena, const MmaInfo *info, int64_t m, int64_t k, int64_t warps_m, int64_t threads,
                        int lanes) {
    const Layout *instruction = instruction_layout(arena, info->a_layout);
    int64_t warp_m = m / warps_m;
    Layout *map = layout_new(arena, 2, 2);
    add_instruction(map, instruction, MAP_THREAD);
    layout_add(map, MAP_THREAD, warps_m, warp_m, 0);
    replicate_rest(map, threads, lanes * warps_m);
    add_instruction(map, instruction, MAP_VALUE);
    layout_add(map, MAP_VALUE, k / info->k, info->k, 1);
    layout_add(map, MAP_VALUE, warp_m / info->m, info->m, 0);
    return layout_finish(map);
}

// ---- projections ----

// The dim of an access that a map's output serves; -1: none.
static int dim_of_output(int rank, const int *dims, int out) {
    for (int d = 0; d < rank; d++)
        if (dims[d] == out) return d;
    return -1;
}

const Layout *map_project(Arena *arena, const Layout *map, int rank, const int *dims, const int64_t *held) {
    Layout *projected = layout_new(arena, 2, rank);
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < map->in[input].count; i++) {
            const LayoutMode *mode = &map->in[input].modes[i];
            int dim = mode->stride == 0 ? -1 : dim_of_output(rank, dims, mode->out);
            if (dim >= 0) layout_add(projected, input, mode->extent, mode->stride, dim);
            else if (input == MAP_THREAD) layout_add(projected, input, mode->extent, 0, 0);
        }
    }
    for (int d = 0; d < rank && held; d++)
        if (dims[d] < 0) layout_add(projected, MAP_VALUE, held[d], 1, d);
    return layout_finish(projected);
}

Expr *map_projected_value(Arena *arena, const Layout *map, int rank, const int *dims, Expr *value) {
    Expr *slot = e_int(arena, 0);
    int64_t radix = 1, weight = 1, total = map_values(map);
    for (int i = 0; i < map->in[MAP_VALUE].count; i++) {
        const LayoutMode *mode = &map->in[MAP_VALUE].modes[i];
        if (mode->stride != 0 && dim_of_output(rank, dims, mode->out) >= 0) {
            Expr *digit = e_div(arena, value, e_int(arena, radix));
            if (radix * mode->extent < total) digit = e_mod(arena, digit, e_int(arena, mode->extent));
            slot = e_add(arena, slot, e_mul(arena, digit, e_int(arena, weight)));
            weight *= mode->extent;
        }
        radix *= mode->extent;
    }
    return weight == total ? value : slot;   // all digits kept, in order: the same number
}

const Layout *map_reduce(Arena *arena, const Layout *map, int axis) {
    int dims[LAYOUT_MAX_RANK], rank = 0;
    for (int d = 0; d < map->rank_out; d++)
        if (d != axis) dims[rank++] = d;
    if (rank == 0) dims[rank++] = -1;
    return map_project(arena, map, rank, dims, NULL);
}

const Layout *map_without_replicas(Arena *arena, const Layout *map) {
    Layout *spread = layout_new(arena, 2, map->rank_out);
    int64_t reach = map->out_shape[0];
    for (int input = 0; input < 2; input++) {
        for (int i = 0; i < map->in[input].count; i++) {
            const LayoutMode *mode = &map->in[input].modes[i];
            bool replica = input == MAP_THREAD && mode->stride == 0;
            layout_add(spread, input, mode->extent, replica ? reach : mode->stride, replica ? 0 : mode->out);
            if (replica) reach *= mode->extent;
        }
    }
    return layout_finish(spread);
}

Expr *map_first_replica(Arena *arena, const Layout *map, Expr *thread) {
    Expr *first = NULL;
    int64_t radix = 1;
    for (int i = 0; i < map->in[MAP_THREAD].count; i++) {
        const LayoutMode *mode = &map->in[MAP_THREAD].modes[i];
        if (mode->stride == 0) {
            Expr *digit = e_div(arena, thread, e_int(arena, radix));
            if (radix * mode->extent < map_threads(map)) digit = e_mod(arena, digit, e_int(arena, mode->extent));
            Expr *is_first = e_binary(arena, BIN_EQ, digit, e_int(arena, 0));
            first = first ? e_and(arena, first, is_first) : is_first;
        }
        radix *= mode->extent;
    }
    return first;
}

bool map_is_padded(const Layout *map, const int64_t *shape) {
    for (int d = 0; d < map->rank_out; d++)
        if (map->out_shape[d] > shape[d]) return true;
    return false;
}
