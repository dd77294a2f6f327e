// Device memory that is zero between launches: kernels restore the zeros before they end (`scratch x: u32[1] @zeroed`).
// Launches of one stream run in order, so they share one block, cleared when it is allocated; each stream has its own.
#pragma once
#include "runtime/device/cuda.h"
#include "support/arena.h"

typedef struct ZeroedPool ZeroedPool;
ZeroedPool *zeroed_pool_new(Arena *arena);
void zeroed_pool_free(const Driver *driver, ZeroedPool *memory);   // no launch may be running

// At least `bytes` for the next launch in the stream. Thread-safe. *address is 0 if no block can be kept: the stream is
// being captured (the graph may run in any stream), the driver cannot identify streams, or the pool is full. False:
// reported.
bool zeroed_pool_take(const Driver *driver, DiagSink *sink, ZeroedPool *memory, CudaStream stream, int64_t bytes,
                      CudaAddress *address);
