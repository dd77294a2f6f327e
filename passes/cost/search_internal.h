// What the search for tiles (fits.c) and the variants that are made of them (merge_tile_variants.c) share. Not for other folders.
#pragma once
#include "passes/cost/cost_pingpong.h"
#include "passes/cost/search.h"

enum { MOST_TILES = 16, MOST_SPLITS = 7, MOST_VARIANTS = MOST_TILES + MOST_SPLITS, APART = 0 };

typedef struct TileCandidate {
    int combination;             // its number
    int64_t m, n, ring, slots;   // of C; bytes of shared memory, in so many parts
    PingpongCost cost;
    bool alias_epilogue;   // its results leave by way of a tile that it loads
    bool fallback;         // the variant for what TMA does not serve has registers enough
    int64_t rate;          // of a kernel whose warpgroups work together: cooperative_rate; else 0
    int split;   // blocks of a cluster that share the steps of a tile; 1: none, APART: as many as the launch chooses, anywhere
} TileCandidate;

typedef struct TileChoice {
    const char *kernel;
    bool decided;
    VEC(TileCandidate) tiles;    // those that fit; then those that are kept. None: the first combination that fits does
    VEC(TileCandidate) splits;   // the same, where blocks share the steps of a tile
    bool by_rows;                // one for each number of rows
} TileChoice;

// The kernel as the passes will find it.
const Func *as_specialized(const TileSearch *search, const Func *kernel);
// Of a source kernel: variants of one name differ in place or condition.
TileChoice *tile_choice(TileSearch *search, const Func *kernel);
bool aliases_epilogue(const TileSearch *search, const Func *kernel);   // as Tile.through

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
