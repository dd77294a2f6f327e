// Live ranges of a kernel's shared buffers, in statement numbers in textual order.
//
// A buffer is live from its first to its last use. A use in a loop counts for the whole loop if the declaration is
// outside. Buffers of roles, and those that other CTAs of the cluster access, are always live.
#pragma once
#include "ir/ir.h"
#include "support/map.h"

typedef struct SharedLifetime {
    Buf *buf;
    int64_t members;        // of an array of roles, each of which has its own
    int first, last;        // -1: not used
    int64_t bytes, align;   // of the caller
} SharedLifetime;

typedef struct SharedLifetimes {
    Arena *arena;
    VEC(SharedLifetime) items;
    Map *index;   // Buf -> its index, from 1
    Map *times;   // statement -> its number
    int clock;
    int64_t members;   // of the current role
} SharedLifetimes;

SharedLifetimes shared_lifetimes(Arena *arena, const Func *kernel);
// Bytes of the buffers that are live at a statement of the kernel, without padding.
int64_t shared_live_bytes(const SharedLifetimes *lifetimes, const Stmt *stmt);
