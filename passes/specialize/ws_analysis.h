// Analysis of cooperative kernels: tiles, their live ranges, rings, the producer's slice. Result: a Plan for
// cooperative.c.
#pragma once
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/builder.h"

typedef struct TileRing TileRing;

// A copy that fills a tile, or those to its pieces, and the statements of its block that use it.
typedef struct TileRange {
    const Block *block;
    int at, filled, first, last;   // the first and last copy; uses; first -1: no use
    bool repeats;                  // in a loop: several times for a tile of the grid
} TileRange;

typedef struct RoleTile {
    Buf *buf;
    VEC(TileRange) live_ranges;
    bool gathered, by_tma;   // by threads of the producer; by TMA: both, where it is filled at several places
    TileRing *ring;
} RoleTile;

typedef enum { ROLE_LOAD, ROLE_TRANSPOSE, ROLE_COMPUTE } RoleKind;

struct TileRing {   // tiles that are filled and emptied at the same time share mbarriers
    Consume consume;
    VEC(RoleTile *) tiles;
    int64_t slots, space;   // bytes of a slot
    bool by_tma;            // some fill of a tile is by TMA
    int gathers;            // tiles that the producer's threads fill
    bool by_threads;        // some statement other than wgmma reads them
    bool single_use;        // filled a single time per CTA: the producer does not wait for empty
    RoleKind producer, consumer;
    int64_t warps;       // of the role that loads it
    int64_t lag;         // loads that have been started when the producer says that one has landed; 0: no cp.async
    const Stmt *store;   // staged in `staging`, one of its tiles, after the last use; NULL: none
    Buf *staging;
    SharingVec sharings;   // with other CTAs
    Buf *full, *empty;
    Counter counter;   // of the role being built
    Var *started;      // loads, up to the lag
};

typedef struct RolePlan {
    Arena *arena;
    const Target *target;
    const Stmt *grid;
    VEC(RoleTile *) tiles;
    VEC(TileRing *) rings;
    VEC(const Buf *) sources;   // tensors that tiles are loaded from
    Map *required, *breaks;     // scalars in the producer's slice; what leaves its loops
    int64_t rows;               // that divide those of all MMAs by wgmma
    const char *other;          // why some product is not by wgmma; NULL: all are
    Span other_at;              // that product
    bool pipelined, computed;
    bool partial;               // some copy leaves a part of its tile out
    bool transposes;            // some tile is transposed in shared memory, by a role of its own
    bool by_columns;            // the consumers share the columns of one strip
    int consumers, producers;   // warpgroups that compute (of a role); that load or transpose
    int members;                // compute roles
    Span at;                    // of what cannot be in such a kernel
} RolePlan;

// Returns NULL, or why the kernel cannot be cooperative: then only `plan->at` is valid, if it has a line.
const char *ws_analyze(Arena *arena, const Target *target, const Func *kernel, RolePlan *plan);
// A tile that can serve as staging of a store behind its last use.
typedef struct StagedTile {
    TileRing *ring;
    RoleTile *tile;
    const Stmt *store;
} StagedTile;

bool cooperative_staged(const RolePlan *plan, StagedTile *out);   // false: there is none

enum { COOPERATIVE_ROOM = 24 };   // registers for addresses and counters

bool plan_gathers(const RolePlan *plan);                   // threads of the producer fill some tile
RoleTile *tile_of(const RolePlan *plan, const Buf *buf);   // NULL: no tile
Buf *filled_tile(const RolePlan *plan,
                 const Stmt *stmt);   // by a load, or the transposition of a loaded tile; NULL: none
const Stmt *filling_stmt(const RolePlan *plan, const TileRange *range);   // the first one
// Whether statement `i` of its block is one of them.
bool is_fill_of(const RolePlan *plan, const RoleTile *tile, const TileRange *range, int i);
// The live range that the load helps to fill.
const TileRange *filled_range(const RolePlan *plan, const RoleTile *tile, const Stmt *load);
bool loads_tile(const Stmt *stmt, void *user);   // for block_any
// Threads of the producer load it, since TMA cannot: a gather, other types or places.
bool gathers_tile(const Target *target, const Stmt *stmt);
bool transposes_loaded(const Stmt *stmt, void *plan);   // for block_any: a loaded tile is transposed to another one
// Changes a scalar that the load role needs, or leaves a loop that it runs.
bool steers_loads(const RolePlan *plan, const Stmt *stmt);
// Such a statement, a let that the load role needs, or an assumption about what it has only.
bool load_knows(const RolePlan *plan, const Stmt *stmt);
