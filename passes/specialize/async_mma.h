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

// MMAs become asynchronous, with waits as late as dependences allow (async_mma.c). `consumes`: arrivals at `empty` ->
// Consume. `prompt`: an arrival is not behind the role's next wait for a slot, which may depend on it.
void make_mma_async(Arena *arena, Block *block, const Map *consumes, bool prompt);
