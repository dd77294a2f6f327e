// Shared by search.c and merge_variants.c.
#pragma once
#include "ir/schedule.h"
#include "passes/cost/cost.h"
#include "passes/cost/search.h"
#include "passes/tile/tile.h"

enum { MOST_TILES = 12, MOST_VARIANTS = 34, BY_WORKSPACE = 0, MOST_FALLBACKS = 2, MOST_REPACKED = 4 };

// Problems (m, n, k) that the kept tiles are chosen for (problems.c): the sizes that people compare, and random ones;
// those of few tiles and a long K; random ones whose rows lie in two lines of the L2 cache. The first MOST_TILES are kept for the
// former alone.
enum {
    COMPARED_PROBLEMS = 28,
    PROBLEMS = COMPARED_PROBLEMS + 900,
    DEEP_PROBLEMS = 23,
    CROSSING_PROBLEMS = 20,
    ALL_PROBLEMS = PROBLEMS + DEEP_PROBLEMS + CROSSING_PROBLEMS
};
extern const int64_t search_problems[ALL_PROBLEMS][3];

// Clusters of CTAs that share loads; the last is of one, which shares none. Those of CTAs that share steps are along the first name.
enum { CLUSTER_SHAPES = 8, ALONE = CLUSTER_SHAPES - 1 };
extern const ClusterShape cluster_shapes[CLUSTER_SHAPES];

typedef struct TileCandidate {
    int combination;   // its number in the search
    // Of a tile whose CTAs may share loads: its kernel, as it will be specialized, and whether two warpgroups compute the tile. What it
    // costs in clusters is asked of the tiles that remain, not of each combination. NULL: they may not.
    Func *sharing;
    bool by_two;
    int64_t m, n, ring,
        slots;   // tile of C; bytes of shared memory of the multi-buffered tiles, and their number of stages
    PingpongCost cost;
    bool alias_epilogue;   // the epilogue is staged in an operand's tile
    bool fallback;         // the variant without TMA has enough registers
    LaunchCost without;    // its cost
    bool keeps_fallback;   // that variant is kept, too
    bool keeps_repacked;   // programs that copy its operands first are kept, too (passes/tile/repack.c)
    int64_t rate;          // of a cooperative kernel: cooperative_rate; else 0
    // CTAs of a cluster that share loads, along the grid's first names, for each that shares steps; 0: each loads for itself.
    int cluster[2];
    // A bit for each of `cluster_shapes` that a launch chooses among, `cluster` being the first; 0: that alone.
    unsigned shapes;
    // Split-K factor within a cluster; 1: none, BY_WORKSPACE: split-K by workspace, the launch chooses the factor. `splits`: it chooses
    // among several within a cluster, from `split` on to that, each twice the one before; 0: that alone.
    int split, splits;
    // Of the problems; in the end relative to the best tile's, for the first PROBLEMS.
    double *times;
} TileCandidate;
typedef VEC(TileCandidate) TileVec;

// What a combination takes of shared memory.
typedef struct RingSize {
    bool other;              // not by these rules: a loop that does more than load and multiply
    bool too_large;          // for shared memory
    bool refused;            // its roles cannot be with so many slots, nor with more
    int64_t slots, slot;     // slots of the ring; bytes of each
    int64_t shared, split;   // in all: of a tile, and as partial sums of split-K need; 0: it is none
} RingSize;

// What the combinations show that differ in the last tunable alone, the first group of them (search_depths.c).
typedef struct SlotDepths {
    VEC(int64_t) slots;   // in order of the combinations
    RingSize ring;        // of the first ping-pong tile among them
    bool differ;          // the tunable is more than the number of slots
} SlotDepths;

struct TileChoice {
    const char *key, *kernel;
    bool decided;
    bool fixed;       // the source gives the only tile: it is compared in clusters, split, and with its operands copied
    TileVec tiles;    // candidates that fit; later the kept ones. Empty: take the first combination that fits
    TileVec shared;   // candidates whose CTAs share loads, or steps (also by workspace)
    bool by_rows;     // cooperative: one tile per number of rows
    RepackStores repacks;
    TileVec candidates;   // when it is decided: all tiles, alone and in each cluster
    TileVec kept;         // the tiles that were decided on
    SlotDepths depths;
};

bool is_swapped(const TileCandidate *tile);   // the product of its tile is the transposed one
// The coefficients of a ping-pong kernel, or one that stores a tile of a GEMM per CTA.
LaunchCost launch_cost(const Target *target, const TileCandidate *tile);
// Adds copies of so many bytes of a step's tiles (`terms` has their extents), by as many launches.
void add_copies(const Target *target, const int64_t bytes[2], int launches, LaunchCost *terms);

// The choice of a source kernel; variants of one name (other line or condition) have their own.
TileChoice *tile_choice(TileSearch *search, const Func *kernel);

// The combination to compare behind this one: the next, or behind those that have fewer slots than fit.
int next_combination(const TileSearch *search, TileChoice *choice, const Func *kernel, const RingSize *ring,
                     int combination, int last);
