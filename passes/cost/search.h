// The search among combinations of tunables.
#pragma once
#include "passes/cost/occupancy.h"
#include "support/map.h"

// What `elaborate` is given as `user` with tile_search_check: remembers the combinations tried, until a kernel has none that
// fits.
typedef struct TileSearch {
    Arena *arena;
    const Target *target;
    bool try_all;          // refuse every combination, to see them all
    const char *kernel;    // the kernel asked about, or the first that nothing fitted
    const char *variant;   // for which compile-time values
    Span loc;              // its place
    int tried;             // combinations of that kernel
    bool settled;          // one of them fitted
    // "BM = 64, BN = 64" and its estimate: the smallest (by shared memory) of those refused, the largest (by fragments,
    // then shared memory) of those that fit; NULL: none
    const char *smallest_tunables, *largest_tunables;
    Occupancy smallest, largest;
    StrMap *choices;              // kernel -> what was chosen for it (tile_search_decide)
    int tile_index, tile_count;   // which of a kernel's tiles is asked for; how many the kernel with most of them has
} TileSearch;

int tile_search_check(void *user, Module *module, Func *kernel, int combination);
// Kernels that will be warp-specialized are not content with the first combination that fits: all of them are compared, and a
// few kept, for problems of different sizes. After an elaboration that chose nothing: true when there are `rounds` more to do,
// with `round` from 0 on; each gives every such kernel another of its tiles (the last one again where there are no more).
bool tile_search_decide(TileSearch *search);
// After tile_search_decide: whether a launch is to choose among tiles of this kernel.
bool tile_search_chooses(const TileSearch *search, const char *kernel);
// Adds the kernels of further rounds to the first's, with conditions by which a launch finds the cheapest tile.
void merge_tile_variants(const TileSearch *search, Module *module, Module *const *others);
