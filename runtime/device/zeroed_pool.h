// Device memory that is zero whenever no launch is using it: kernels leave it so (`scratch x: u32[1] @zeroed`). Launches of one stream
// follow each other, so they share it, and it is cleared once, when it is allocated; those of other streams have their own.
#pragma once
#include "runtime/device/cuda.h"
#include "support/arena.h"

typedef struct ZeroedPool ZeroedPool;
ZeroedPool *zeroed_pool_new(Arena *arena);
void zeroed_pool_free(const Driver *driver, ZeroedPool *memory);   // no launch may be running

// At least `bytes` for the next launch on the stream; threads may ask at the same time. *address is 0 where none can be kept: the stream
// is being captured (nobody knows where and when the graph will run), the driver cannot tell streams apart, or streams were many.
// False: reported.
bool zeroed_pool_take(const Driver *driver, DiagSink *sink, ZeroedPool *memory, CudaStream stream, int64_t bytes,
                      CudaAddress *address);
