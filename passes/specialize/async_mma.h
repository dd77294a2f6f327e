// Asynchronous MMA (async_mma.c): products of a role run while it continues.
#pragma once
#include "ir/ir.h"
#include "support/map.h"

// The tiles whose slots an arrival frees.
typedef struct Consume {
    VEC(const Buf *) tiles;
} Consume;

static inline bool consumes_tile(const Consume *consume, const Buf *buf) {
    VEC_EACH_PTR (const Buf, tile, &consume->tiles)
        if (tile == buf) return true;
    return false;
}

// MMAs may run on into the next iteration of a loop, where a role counts slots in this way. An arrival that waits for
// such an MMA comes in the next iteration, when the role is at the next slot.
typedef struct Flight {
    void *user;
    bool (*can_lag)(void *user, const Stmt *arrival);
    Stmt *(*lagging)(void *user, const Stmt *arrival);              // at the slot before the role's
    void (*advance)(void *user, const Stmt *arrival, Block *out);   // to the next slot, without an arrival
} Flight;

// MMAs become asynchronous, with waits as late as dependences allow (async_mma.c). `consumes`: arrivals at `empty` ->
// Consume. `prompt`: an arrival is not behind the role's next wait for a slot, which may depend on it. `flight`: NULL:
// a loop begins and ends with no MMA in flight.
void make_mma_async(Arena *arena, Block *block, const Map *consumes, bool prompt, const Flight *flight);
