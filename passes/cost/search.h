// The tile search: chooses the values of the tunables of a kernel, by the cost models.
//
// In: the tile-stage text of a kernel for each combination of its tunables, a target. Out: for each kernel the first
// combination that fits the target; for a warp-specialized kernel up to MOST_VARIANTS tiles, with conditions (`when`)
// by which a launch takes the cheapest. The files of passes/cost/:
//
//     occupancy            estimates shared memory and registers: does a combination fit?
//     cost_pingpong        clocks of a ping-pong kernel
//     cost_cooperative     clocks of a cooperative kernel
//     search               compares combinations, keeps a few tiles
//     search_depths        passes over combinations with fewer slots than fit
//     merge_variants       the kept tiles as variants of a kernel, with their conditions
//
// The search runs during elaboration (runtime/compile/load_module.c calls it), so before all passes.
#pragma once
#include "passes/cost/occupancy.h"

typedef struct TileChoice TileChoice;   // the tiles of one kernel (search_internal.h)

// The state of a search, `user` of tile_search_check.
typedef struct TileSearch {
    Arena *arena;
    const Target *target;
    bool try_all;          // reject every combination, to visit them all
    int most;              // tiles of a kernel at most; 0: MOST_VARIANTS
    const char *kernel;    // the kernel being searched, or the first without a combination that fits
    const char *variant;   // its key: name, line, condition
    Span loc;              // its location
    int tried;             // number of combinations tried for that kernel
    bool settled;          // one of them fits
    // "BM = 64, BN = 64" and its estimate: the smallest combination (by shared memory) that does not fit, the largest
    // (by registers, then shared memory) that fits; NULL: none
    const char *smallest_tunables, *largest_tunables;
    Occupancy smallest, largest;
    VEC(TileChoice *) choices;    // of tile_search_decide
    int tile_index, tile_count;   // the tile of each kernel to elaborate next; the largest number of tiles of a kernel
} TileSearch;

// The `fits` callback of elaborate(): returns `combination` to take it, the next number to see another one.
int tile_search_check(void *user, Module *module, Func *kernel, int combination, int last);
// For kernels that will be warp-specialized, tile_search_check visits all combinations; this function then keeps a few
// tiles of each. True: elaborate `tile_count` times more, with `tile_index` from 0; each time every such kernel takes
// its next tile (or its last one again).
bool tile_search_decide(TileSearch *search);
// The problem of a launch: the extents of its cost (target/launch_cost.h), and the device's multiprocessors.
typedef struct TileProblem {
    int64_t extents[COST_EXTENTS];
    int multiprocessors;
} TileProblem;

// For one launch, after tile_search_decide. The kernel keeps its last tile alone, of which the launch's extents can be asked.
// False: its tiles are not chosen by such extents.
bool tile_search_probe(TileSearch *search, const char *kernel);
// Then: of all tiles that were compared, the kernel keeps the fastest for this problem; behind it the last one, which has the
// variants without TMA.
void tile_search_keep(TileSearch *search, const char *kernel, const TileProblem *problem);
void tile_search_keep_all(TileSearch *search);   // those that tile_search_decide kept again
// After tile_search_decide: whether this kernel keeps tiles from which a launch chooses.
bool tile_search_chooses(const TileSearch *search, const char *kernel);
// Adds the kernels of the other elaborations to those of the first, with conditions by which a launch takes the
// cheapest tile.
void merge_tile_variants(TileSearch *search, Module *module, Module *const *others);
