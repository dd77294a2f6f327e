// Analysis of cooperative kernels: tiles, their live ranges, rings, the producer's slice. Result: a Plan for
// cooperative.c.
#pragma once
#include "passes/specialize/builder.h"

typedef struct TileRing TileRing;

typedef struct LiveRange {   // a copy that fills a tile, and the statements of its block that use it
    const Block *block;
    int at, first, last;   // first -1: no use
} LiveRange;

typedef struct RoleTile {
    Buf *buf;
    VEC(LiveRange) live_ranges;
    TileRing *ring;
} RoleTile;

typedef enum { ROLE_LOAD, ROLE_TRANSPOSE, ROLE_COMPUTE } RoleKind;

struct TileRing {   // tiles that are filled and emptied at the same time share mbarriers
    Consume consume;
    VEC(RoleTile *) tiles;
    int64_t slots, bytes;
    bool by_threads;   // some statement other than wgmma reads them
    bool single_use;   // filled a single time per CTA: the producer does not wait for empty
    RoleKind producer, consumer;
    const Stmt *store;   // epilogue staged in its tile after the last use
    Buf *full, *empty;
    Counter counter;   // of the role being built
};

typedef struct RolePlan {
    Arena *arena;
    const Target *target;
    const Stmt *grid;
    VEC(RoleTile *) tiles;
    VEC(TileRing *) rings;
    VEC(const Buf *) sources;   // tensors that tiles are loaded from
    Map *required;              // scalars in the producer's slice
    int64_t rows;               // of the MMAs
    int64_t widest;             // registers per thread for the accumulator of one instruction
    bool pipelined, computed;
    bool transposes;   // some tile is transposed in shared memory, by a role of its own
    int producers;     // warpgroups that load or transpose
} RolePlan;

// Returns NULL, or why the kernel cannot be cooperative. `plan` is valid if NULL.
const char *ws_analyze(Arena *arena, const Target *target, const Func *kernel, RolePlan *plan);
int cooperative_warpgroups_for(const Target *target, int64_t rows);   // number of consumers
// The ring whose tile can serve as staging, and the store; NULL: none.
TileRing *cooperative_staged(const RolePlan *plan, const Stmt **store);
enum { COOPERATIVE_ROOM = 24 };   // registers for addresses and counters

RoleTile *tile_of(const RolePlan *plan, const Buf *buf);   // NULL: no tile
bool loads_tile(const Stmt *stmt, void *user);             // for block_any
bool transposes_loaded(const Stmt *stmt, void *plan);      // for block_any: a loaded tile is transposed to another one
bool sets_required(const RolePlan *plan, const Stmt *stmt);   // changes a scalar that the load role needs
// A scalar that the load role needs, or an assumption about such scalars only.
bool load_knows(const RolePlan *plan, const Stmt *stmt);
