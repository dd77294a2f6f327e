// Which kernels warp-specialize accepts: select asks before it chooses TMA and wgmma, and the cost models ask for each
// choice of tunables.
#pragma once
#include "ir/ir.h"
#include "passes/select/tma.h"
#include "support/map.h"
#include "target/target.h"

// Whether a kernel, before or after select, is warp-specialized, and how. Consumers ping-pong in kernels with one loop
// of loads and MMA alone, and a tile that one warpgroup can hold; else they are cooperative.
typedef enum { WS_NONE, WS_PINGPONG, WS_COOPERATIVE } SpecializeKind;

typedef struct Specialization {
    SpecializeKind kind;
    const char *why;    // WS_NONE: the reason, after "the kernel is not warp-specialized: "
    const Stmt *grid;   // NULL: it has none
    const Stmt *loop;   // the pipelined one of WS_PINGPONG
    bool too_large;     // WS_COOPERATIVE only because the tile is too large for one warpgroup
} Specialization;

// Computed anew; passes use the cached kernel_specialization of passes/analyses.h.
Specialization specialization_of(Arena *arena, const Target *target, const Func *kernel);
static inline bool is_cooperative_by_loop(const Specialization *how) {
    return how->kind == WS_COOPERATIVE && !how->too_large;
}
// Registers of a thread that the fragments of such a kernel need when so many warpgroups share a tile.
int64_t fragment_registers(const Target *target, const Func *kernel, int warpgroups);
// The fragment holds the products of such a kernel's loop, in wgmma's layout.
// (or sums of such, made element by element)
bool is_accumulator(const Func *kernel, const Buf *fragment);
// The statement stores such a fragment by TMA, in such a kernel: to a tensor that is neither read nor written after
// that, since TMA stores are not ordered with accesses of threads.
bool stores_tile(Arena *arena, const Target *target, const Func *kernel, const Stmt *stmt, TmaStore *out);
// Shared memory beside the buffers of the source, bytes: for stores by TMA, for slots of transposed tiles. `shared`: of
// those buffers; where there is no room beside them, results may leave by way of one.
int64_t pingpong_barriers(int64_t slots);   // bytes of `full` and `empty`
int64_t specialized_staging(Arena *arena, const Target *target, const Func *kernel, int64_t shared);
// The tile that one product of such a kernel's loop computes.
void specialized_tile(const Func *kernel, int64_t *m, int64_t *n);
// The steps of that loop, or what no point has more of, in names that are the same for all points.
Expr *specialized_steps(Arena *arena, const Func *kernel);
// The points of such a kernel take unequally long, and `persistent` makes blocks that stay for several of them, long
// and short ones (lpt_schedule.c).
bool tiles_balance(Arena *arena, const Target *target, const Func *kernel);
// Drops each `wgmma_wait(n)` of the kernel before which at most n MMAs are pending (async_mma.c). `single_trip`: loops
// known to have at most one trip.
void drop_redundant_waits(Arena *arena, Func *kernel, const Map *single_trip);
