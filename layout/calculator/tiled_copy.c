// Tiled MMA and tiled copy.
//
// An atom says which thread of an instruction holds which elements of its small tile. Tiling repeats it: over more
// threads (the layout of atoms), then over more values. Both are divisions: cut the tensor into atoms, compose each
// atom with its TV layout, cut the grid of atoms by the threads, and gather thread parts and value parts.
//
//   C (16,8)      one warp, mma.m16n8:  ((4,8),(2,2)):((32,1),(16,8))
//   (T,V) -> offset: thread 5 = (1,1), value 3 = (1,1)  ->  32 + 1 + 16 + 8 = 57 = row 9, column 3
//
// A tiled copy with fewer values per access than a fragment holds moves a part of the MMA's tile. Its tiler picks that
// part, mode by mode; its TV layout counts offsets of the part. See tiled_copy_steps, and docs/reference/layout-calculator.md for the
// pictures.
#include "layout/calculator/tiled_copy.h"

MmaAtom mma_atom_parse(LayoutContext *cx, int64_t m, int64_t n, int64_t k, const char *threads, const char *a_tv,
                       const char *b_tv, const char *c_tv) {
    return (MmaAtom){
        m, n, k, cute_parse(cx, threads), cute_parse(cx, a_tv), cute_parse(cx, b_tv), cute_parse(cx, c_tv)};
}

static Tiler any(void) {
    return (Tiler){.kind = TILER_ANY};
}

static Tiler pair_of(LayoutContext *cx, Tiler a, Tiler b) {
    return tiler_tuple(cx, (Tiler[]){a, b}, 2);
}

static Tiler size_tiler(int64_t size) {
    return tiler_layout(cute_leaf(size, size == 1 ? 0 : 1));
}

TiledMma tiled_mma(LayoutContext *cx, MmaAtom atom, Cute atoms, Tiler permutation) {
    TiledMma mma = {.atom = atom};
    int64_t extent[3] = {atom.m, atom.n, atom.k};
    if (cute_rank(atoms) > 3) layout_refuse(cx, "atoms are laid out over at most M, N and K");
    if (cx->failed) return mma;
    Cute grid[3];
    for (int i = 0; i < 3; i++) grid[i] = i < cute_rank(atoms) ? cute_mode(atoms, i) : cute_leaf(1, 0);
    mma.threads = cute_tiled_product(cx, atom.threads, tiler_layout(cute_tuple(cx, grid, 3)));
    for (int i = 0; i < 3 && !cx->failed; i++) {
        bool given = permutation.kind == TILER_TUPLE && i < permutation.count;
        mma.permutation[i] = given ? permutation.items[i] : any();
        mma.tile[i] = mma.permutation[i].kind == TILER_LAYOUT
                          ? cute_size(cx, mma.permutation[i].layout)
                          : layout_mul(cx, extent[i], cute_size(cx, mma.threads.modes[i + 1]));
    }
    return mma;
}

// The two modes of M, N, K that an operand has.
static void modes_of(TiledOperand operand, int modes[2]) {
    modes[0] = operand == OPERAND_B ? 1 : 0;
    modes[1] = operand == OPERAND_C ? 1 : 2;
}

Tuple tiled_mma_tile(LayoutContext *cx, TiledMma mma, TiledOperand operand) {
    int mode[2];
    modes_of(operand, mode);
    return tuple_list(cx, (Tuple[]){tuple_int(mma.tile[mode[0]]), tuple_int(mma.tile[mode[1]])}, 2);
}

Cute tiled_mma_partition(LayoutContext *cx, TiledMma mma, TiledOperand operand, Cute tensor) {
    int mode[2];
    modes_of(operand, mode);
    if (cx->failed) return tensor;
    int64_t extent[3] = {mma.atom.m, mma.atom.n, mma.atom.k};
    Cute atom_tv = operand == OPERAND_A ? mma.atom.a_tv : operand == OPERAND_B ? mma.atom.b_tv : mma.atom.c_tv;
    // 1. Reorder by the permutation, cut into atoms: ((AtomM,AtomN),(RestM,RestN)).
    Cute ordered = cute_logical_divide(cx, tensor, pair_of(cx, mma.permutation[mode[0]], mma.permutation[mode[1]]));
    Tiler atom_tile = pair_of(cx, size_tiler(extent[mode[0]]), size_tiler(extent[mode[1]]));
    Cute atoms = cute_zipped_divide(cx, ordered, atom_tile);
    // 2. Within the atom, (thread, value): ((ThrV,FrgV),(RestM,RestN)).
    Cute values = cute_compose_tiler(cx, atoms, pair_of(cx, tiler_layout(atom_tv), any()));
    // 3. Cut the rests by the threads: ((ThrV,(ThrM,ThrN)),(FrgV,(RestM,RestN))).
    if (cx->failed) return tensor;
    Tiler grid = pair_of(cx, size_tiler(cute_size(cx, mma.threads.modes[mode[0] + 1])),
                         size_tiler(cute_size(cx, mma.threads.modes[mode[1] + 1])));
    return cute_zipped_divide(cx, values, pair_of(cx, any(), grid));
}

// thread -> (ThrV, ThrM, ThrN, ThrK), then only the modes the operand has: the other one is a broadcast (stride 0).
Cute tiled_mma_tv(LayoutContext *cx, TiledMma mma, TiledOperand operand) {
    int mode[2];
    modes_of(operand, mode);
    Cute whole = cute_column_major(cx, tiled_mma_tile(cx, mma, operand));
    Cute partition = tiled_mma_partition(cx, mma, operand, whole);
    if (cx->failed) return partition;
    if (operand != OPERAND_C) {   // (ThrM, ThrN) -> ThrM, or (ThrM, ThrN) -> ThrN
        int64_t m = cute_size(cx, mma.threads.modes[1]), n = cute_size(cx, mma.threads.modes[2]);
        Cute grid = cute_tuple(cx, (Cute[]){cute_leaf(m, operand == OPERAND_A), cute_leaf(n, operand == OPERAND_B)}, 2);
        Tiler inner = pair_of(cx, any(), pair_of(cx, tiler_layout(grid), any()));
        partition = cute_compose_tiler(cx, partition, pair_of(cx, inner, any()));
    }
    Cute to_grid = cute_right_inverse(cx, mma.threads);
    return cute_compose_tiler(cx, partition, pair_of(cx, tiler_layout(to_grid), any()));
}

// ---- tiled copies ----

static Tuple product_each(LayoutContext *cx, Cute a) {
    int rank = cute_rank(a);
    Tuple *sizes = NEW_ARRAY(cx->arena, Tuple, rank);
    for (int i = 0; i < rank; i++) sizes[i] = tuple_int(cute_size(cx, cute_mode(a, i)));
    return (Tuple){.kind = TUPLE_LIST, .count = rank, .items = sizes};
}

TiledCopy tiled_copy(LayoutContext *cx, Cute threads, Cute values) {
    Cute tile = cute_raked_product(cx, threads, values);
    if (cx->failed) return (TiledCopy){tile, any()};
    Tuple sizes[] = {tuple_int(cute_size(cx, threads)), tuple_int(cute_size(cx, values))};
    Cute tv = cute_with_shape(cx, cute_right_inverse(cx, tile), tuple_list(cx, sizes, 2));
    return (TiledCopy){tv, tiler_of_shape(cx, product_each(cx, tile))};
}

TiledCopySteps tiled_copy_steps(LayoutContext *cx, Cute operand_tv, Tuple tile, int64_t values) {
    TiledCopySteps s = {0};
    if (tuple_rank(tile) != 2 || cute_rank(operand_tv) != 2)
        layout_refuse(cx, "expected (thread, value) over a tile of two modes");
    if (!cx->failed && values > cute_size(cx, operand_tv.modes[1]))
        layout_refuse(cx, "an access of %lld values is wider than the fragment", (long long)values);
    if (cx->failed) return s;
    // 1. The first `values` values of each thread.
    int64_t threads = cute_size(cx, operand_tv.modes[0]);
    s.layout_tv = cute_compose_tiler(
        cx, operand_tv, pair_of(cx, tiler_layout(cute_leaf(threads, 1)), tiler_layout(cute_leaf(values, 1))));
    // 2. Which coordinates of each mode they touch.
    for (int i = 0; i < 2; i++) {
        Tuple unit = tuple_list(cx, (Tuple[]){tuple_int(i == 0), tuple_int(i == 1)}, 2);
        s.projection[i] = cute_make(cx, tile, unit);
        s.unfiltered[i] = cute_composition(cx, s.projection[i], s.layout_tv);
        s.tiler[i] = cute_filter(cx, s.unfiltered[i]);
    }
    // 3. The part as a tile of its own: its coordinates -> offsets of the MMA's tile, and back.
    Cute whole = cute_column_major(cx, tile);
    s.tile_to_mma = cute_compose_tiler(cx, whole, pair_of(cx, tiler_layout(s.tiler[0]), tiler_layout(s.tiler[1])));
    s.inverse = cute_left_inverse(cx, s.tile_to_mma);
    s.tv = cute_composition(cx, s.inverse, s.layout_tv);
    return s;
}

TiledCopy tiled_copy_of_mma(LayoutContext *cx, TiledMma mma, TiledOperand operand, int64_t values) {
    TiledCopySteps s = tiled_copy_steps(cx, tiled_mma_tv(cx, mma, operand), tiled_mma_tile(cx, mma, operand), values);
    return (TiledCopy){s.tv, pair_of(cx, tiler_layout(s.tiler[0]), tiler_layout(s.tiler[1]))};
}
