// What the search for tiles (fits.c) and the variants that are made of them (fits_merge.c) share. Not for other folders.
#pragma once
#include "passes/cost/search.h"
#include "passes/cost/cost_pingpong.h"

enum { MOST_TILES = 16, MOST_SPLITS = 7, MOST_VARIANTS = MOST_TILES + MOST_SPLITS, APART = 0 };

typedef struct Tile {
    int combination;             // its number
    int64_t m, n, ring, slots;   // of C; bytes of shared memory, in so many parts
    PingpongCost cost;
    bool through;   // its results leave by way of a tile that it loads
    bool general;   // the variant for what TMA does not serve has registers enough
    int64_t rate;   // of a kernel whose warpgroups work together: cooperative_rate; else 0
    int split;   // blocks of a cluster that share the steps of a tile; 1: none, APART: as many as the launch chooses, anywhere
} Tile;

typedef struct Choice {
    const char *kernel;
    bool decided;
    VEC(Tile) tiles;    // those that fit; then those that are kept. None: the first combination that fits does
    VEC(Tile) splits;   // the same, where blocks share the steps of a tile
    bool by_rows;       // one for each number of rows
} Choice;

// The kernel as the passes will find it.
const Func *fits_as_parted(const FitsSearch *search, const Func *kernel);
// Of a source kernel: variants of one name differ in place or condition.
Choice *fits_choice(FitsSearch *search, const Func *kernel);
bool fits_through_tile(const FitsSearch *search, const Func *kernel);   // as Tile.through

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}
