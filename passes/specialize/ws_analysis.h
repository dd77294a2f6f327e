// Which tiles a kernel loads, and where each is used: what ws_analyze finds out before cooperative.c makes roles.
#pragma once
#include "passes/specialize/builder.h"

typedef struct Channel Channel;

typedef struct LiveRange {   // a copy that fills a tile, and the statements of its block that use it
    const Block *block;
    int at, first, last;   // first -1: nothing does
} LiveRange;

typedef struct Tile {
    Buf *buf;
    VEC(LiveRange) live_ranges;
    Channel *channel;
} Tile;

struct Channel {   // tiles that are filled and emptied together
    Consume consume;
    VEC(Tile *) tiles;
    int64_t slots, bytes;
    bool by_threads;     // some statement reads them without wgmma
    bool single_use;     // filled a single time per CTA: the producer does not wait for empty
    bool transposed;     // the role that transposes fills them
    bool untransposed;   // it alone reads them
    const Stmt *store;   // results that leave by way of its tile, when nothing needs that any more
    Buf *full, *empty;
    Counter counter;   // of the role that is being made
};

typedef struct Plan {
    Arena *arena;
    const Target *target;
    const Stmt *grid;
    VEC(Tile *) tiles;
    VEC(Channel *) channels;
    VEC(const Buf *) sources;   // of the tiles that are loaded
    Map *required;              // scalars in the producer's slice
    int64_t rows;               // of the products
    int64_t widest;             // registers of a thread for the accumulators of one instruction
    bool pipelined, computed, found;
    bool transposes;   // some tile is transposed in shared memory, by a role of its own
    int producers;     // warpgroups that load or transpose
} Plan;

// NULL, or why the kernel cannot be warp-specialized so. `plan`: of a kernel that can.
const char *ws_analyze(Arena *arena, const Target *target, const Func *kernel, Plan *plan);
int cooperative_warpgroups_for(const Target *target, int64_t rows);   // that compute
// The channel whose tile the store can use instead of staging of its own, and the store; NULL: there is none.
Channel *cooperative_staged(const Plan *plan, const Stmt **store);
enum { COOPERATIVE_ROOM = 24 };   // registers for addresses and counters

Tile *tile_of(const Plan *plan, const Buf *buf);        // NULL: no tile
bool loads_tile(const Stmt *stmt, void *user);          // for block_any
bool transposes_loaded(const Stmt *stmt, void *plan);   // for block_any: a loaded tile is transposed to another one
// The role that loads copies a tile there, or changes a scalar that it needs; for block_any, of a Plan.
bool load_does(const Stmt *stmt, void *plan);
bool transposer_runs(const Stmt *stmt, void *plan);   // the same of the role that transposes
// A scalar that the role that loads has to know, or an assumption about nothing else.
bool load_knows(const Plan *plan, const Stmt *stmt);

// ---- of the plan itself ----
bool is_transposed_tile(const Plan *plan, const Tile *tile);   // transposing fills it
