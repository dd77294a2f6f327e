// The kernels that warp-specialize accepts. The pass `plan` asks once for each kernel and writes the answer on its grid, for
// the passes behind it; before them, the cost models ask for each combination of tunables.
#pragma once
#include "ir/ir.h"
#include "passes/select/tma.h"
#include "support/map.h"
#include "target/target.h"

// Whether and how a kernel (before or after select) is warp-specialized. Consumers are ping-pong if the kernel is one
// loop of loads and MMAs only and one warpgroup can hold the tile; otherwise they are cooperative.
typedef enum { WS_NONE, WS_PINGPONG, WS_COOPERATIVE } SpecializeKind;

typedef struct Specialization {
    SpecializeKind kind;
    const char *why;            // WS_NONE: the reason, after "the kernel is not warp-specialized: "
    Span at;                    // of what is the reason; no line: the kernel
    const Stmt *loop;           // of WS_PINGPONG: the pipelined loop
    bool too_large;             // a loop for ping-pong, whose tile is too large for one warpgroup
    bool transposes, gathers;   // threads transpose or load some tile
    int consumers, producers;   // warpgroups
    int sharers;                // of one tile, of the consumers
    int64_t slot_bytes;         // of the slots of transposed tiles, or of the sum of shared steps
    int64_t aliased;            // bytes of the staging of a store for which an operand's tile can serve
} Specialization;

// What `plan` wrote: groups of threads, each `count` times `threads` with so many registers (0: as launched). count 0: no
// such group. Ping-pong: `each` compute group has tiles of its own.
typedef enum { GROUP_LOAD, GROUP_LOAD_AHEAD, GROUP_TRANSPOSE, GROUP_COMPUTE, GROUP_COUNT } GroupId;
typedef struct ThreadGroup {
    int64_t count, threads, registers;
} ThreadGroup;
typedef struct Groups {
    ThreadGroup of[GROUP_COUNT];
    bool each;
} Groups;

Groups kernel_groups(const Func *kernel);
void drop_groups(Stmt *grid);   // and the slots of what they load for each tile of the grid
static inline SpecializeKind planned_kind(const Func *kernel) {
    Groups groups = kernel_groups(kernel);
    return groups.of[GROUP_COMPUTE].count == 0 ? WS_NONE : groups.each ? WS_PINGPONG : WS_COOPERATIVE;
}

// All fragments have the layout of accumulators: no thread gets an element of another row than those of its own.
bool has_one_layout(const Func *kernel);
// Shared memory for fragments that products which wgmma cannot compute want in another layout, or in a tile.
int64_t other_products_bytes(Arena *arena, const Target *target, const Func *kernel, int warpgroups);
// Of a kernel that gets these groups: slots for what they load, on its grid and loop. False: no more than it has.
bool plan_slots(Arena *arena, const Target *target, Func *kernel, const Specialization *how, const Groups *groups);

bool loads_multicast(const Block *block);   // some load has @multicast
// All tiles are loaded by TMA, in one loop.
bool loads_in_one_loop(const Target *target, const Func *kernel);
// A CTA of a cluster may have a tile beyond the grid, whose loads give 0: an expression of the statement may fail there.
bool may_fail_beyond_grid(const Func *kernel, const Stmt *stmt);
// Of a kernel before `plan`. Groups that the source asks for are kept, or are the reason.
Specialization specialization_of(Arena *arena, const Target *target, const Func *kernel);
static inline bool is_cooperative_by_loop(const Specialization *how) {
    return how->kind == WS_COOPERATIVE && !how->too_large;
}
// Registers per thread when `warpgroups` warpgroups share a tile: for a fragment, for all of them, and those that a kernel must
// have (live_registers.c).
int64_t buf_registers(const Target *target, const Buf *fragment, int warpgroups);
int64_t needed_registers(Arena *arena, const Target *target, const Func *kernel, int warpgroups);
bool loads_in_loop(const Block *body);   // a loop that is not that over a CTA's tiles fills tiles from global memory
// Whether the warpgroups of a CTA without roles have registers for its fragments and their addresses.
bool whole_registers_fit(Arena *arena, const Target *target, const Func *kernel);
int64_t fragment_registers(const Target *target, const Func *kernel, int warpgroups);
int64_t pingpong_limit(const Target *target);   // what one warpgroup has for fragments
// The fragment holds the result of MMAs, or sums of such results computed element by element. Its layout is wgmma's.
bool is_accumulator(const Func *kernel, const Buf *fragment);
// The statement stores such a fragment by TMA; *why not, if the store could be another one. The tensor is neither read
// nor written after that, since TMA stores are not ordered with accesses of threads.
bool stores_tile(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, TmaStore *out,
                 const char **why);
int64_t pingpong_barriers(int64_t slots);   // bytes of `full` and `empty`
// Shared memory of the source's buffers with their slots, and an mbarrier pair for each that is loaded, in bytes.
int64_t buffer_bytes(Arena *arena, const Target *target, const Func *kernel);
// Bytes of staging of a store by TMA in `stagers` warpgroups; 0: it is none.
int64_t store_staging(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, int stagers);
// Shared memory in addition to the source's buffers, in bytes: staging of TMA stores, slots of transposed tiles.
int64_t specialized_staging(Arena *arena, const Target *target, const Func *kernel, const Specialization *how);
// All of it with `shared` bytes of the source's buffers: where staging does not fit, one of them may serve.
int64_t specialized_shared(const Target *target, const Specialization *how, int64_t staging, int64_t shared);
// Whether all of that is as much as a CTA can have, by the estimate of occupancy.h: or all but the staging of stores.
typedef enum { FITS_NOT, FITS_UNSTAGED, FITS_STAGED } StoreFit;
StoreFit specialized_fits(Arena *arena, const Target *target, const Func *kernel, const Specialization *how);
// The tile m by n of one MMA of the loop.
void specialized_tile(const Func *kernel, int64_t *m, int64_t *n);
// The steps of that loop, or an upper bound, in names that are the same for all tiles.
Expr *specialized_steps(Arena *arena, const Func *kernel);
// Drops each `wgmma_wait(n)` of the kernel before which at most n MMAs are pending (async_mma.c). `single_trip`: loops
// known to have at most one trip.
void drop_redundant_waits(Arena *arena, Func *kernel, const Map *single_trip);
