// Asynchronous operations: cp.async, TMA, wgmma, and tile ops that were started.
//
// In: the call that starts an operation; commits and waits. Out: data that moves late, at the wait (TMA: at random
// moments before it), and reports of operands that are used in between.
//
// Files in order: tile.c (tile stage), copies.c (cp.async), bulk.c (TMA and bulk copies), wgmma.c.
#pragma once
#include "emulator/race.h"

enum { BULK_GROUPS = 16 };

typedef struct Copy {   // a cp.async of a warp that has not landed in all lanes
    int pc;
    const Mem *dst, *src;
    int bytes;   // of a lane's copy
    Mask pending;
    int64_t to[LANES];     // byte offset in shared memory
    int64_t from[LANES];   // element of the tensor
    int valid[LANES];      // bytes that are read
    int group[LANES];
} Copy;

// ---- what an agent has started ----
typedef struct CopyGroups {   // cp.async, or started copies of a role
    Copy *copies;
    int count, capacity;
    int committed[LANES];
} CopyGroups;

typedef struct BulkGroups {   // TMA stores, by lane: groups that are closed, that no longer read; the last with a store
    int closed[LANES], read[LANES], last[LANES], pc;
    uint32_t epochs[LANES][BULK_GROUPS];   // of the newest
} BulkGroups;

typedef struct WgmmaGroups {   // statements of its warpgroup that a warp has executed, and waited for
    int64_t issued, waited;
    int64_t *groups;   // statements executed when a group was closed; pending groups, oldest first
    int count, capacity;
    bool fenced;
} WgmmaGroups;

typedef struct BulkCopy BulkCopy;         // bulk.c
typedef struct Warpgroup Warpgroup;       // wgmma.c
typedef struct PendingTile PendingTile;   // tile.c

// ---- tile ops ----
void tile_commit(Agent *agent);
void tile_wait(Agent *agent, int64_t pending_groups);
void tile_wait_products(Agent *agent, int64_t pending);
void tile_land_all(Agent *agent);
// Of a tile with slots: what the agent started into the slot lands; what it started that reads the slot has read it.
void tile_land_slot(Agent *agent, const Mem *mem, int64_t slot);
void tile_finish_reads(Agent *agent, const Mem *mem, int64_t slot);
void tile_role_ends(Agent *agent);

// ---- cp.async ----
void copies_land_all(Agent *agent);
// The instruction that started the copy which is writing this byte of shared memory; -1: none.
int copy_writing(const Cta *cta, int64_t byte);

// ---- TMA ----
bool bulk_advance(Machine *machine);   // some copy makes some progress; false: none is under way
void bulk_agent_ends(Agent *agent);
void bulk_block_ends(Cta *cta);
int bulk_writing(const Cta *cta, int64_t byte);   // as copy_writing

// ---- wgmma ----
Warpgroup *warpgroups_new(Machine *machine);
void wgmma_agent_starts(Agent *agent);
void wgmma_agent_ends(Agent *agent);
void registers_touched(Agent *agent, const Mem *mem, int64_t element, int64_t count);   // of a watched array
