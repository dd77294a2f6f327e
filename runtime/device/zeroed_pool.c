#include "runtime/device/zeroed_pool.h"
#include <pthread.h>

enum { MOST_BLOCKS = 256 };
static const int64_t LEAST_BYTES = 4096;

// Streams are identified by the driver's number: the handle of a destroyed stream may be reused while its launches
// still run. For the same reason blocks are freed only with the pool.
typedef struct PoolBlock {
    unsigned long long stream;
    CudaAddress address;
    int64_t bytes;
} PoolBlock;

struct ZeroedPool {
    pthread_mutex_t lock;
    int count;
    PoolBlock items[MOST_BLOCKS];
};

ZeroedPool *zeroed_pool_new(Arena *arena) {
    ZeroedPool *memory = NEW(arena, ZeroedPool);
    pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

void zeroed_pool_free(const Driver *driver, ZeroedPool *memory) {
    for (int i = 0; i < memory->count; i++) driver->release(memory->items[i].address);
    memory->count = 0;
}

static bool may_keep(const Driver *driver, CudaStream stream, unsigned long long *number) {
    int capturing = 0;
    return driver->has_stream_ids && driver->stream_is_capturing(stream, &capturing) == 0 && !capturing &&
           driver->stream_number(stream, number) == 0;
}

static const PoolBlock *find(const ZeroedPool *memory, unsigned long long stream, int64_t bytes) {
    for (int i = 0; i < memory->count; i++)
        if (memory->items[i].stream == stream && memory->items[i].bytes >= bytes) return &memory->items[i];
    return NULL;
}

typedef struct Call {   // the last call of the driver
    CudaResult result;
    const char *name;
} Call;

// The block is cleared in stream order, so before the next launch.
static Call add(const Driver *d, ZeroedPool *memory, unsigned long long number, CudaStream stream, int64_t bytes) {
    PoolBlock kept = {.stream = number, .bytes = LEAST_BYTES};
    while (kept.bytes < bytes) kept.bytes *= 2;   // a stream whose launches grow allocates at most twice the largest
    Call allocates = {d->allocate_async(&kept.address, (size_t)kept.bytes, stream), "cuMemAllocAsync"};
    if (allocates.result != 0) return allocates;
    Call clears = {d->set32(kept.address, 0, (size_t)kept.bytes / sizeof(unsigned), stream), "cuMemset"};
    if (clears.result != 0) kept.bytes = 0;   // find() skips it
    memory->items[memory->count++] = kept;
    return clears;
}

bool zeroed_pool_take(const Driver *driver, DiagSink *sink, ZeroedPool *memory, CudaStream stream, int64_t bytes,
                      CudaAddress *address) {
    unsigned long long number = 0;
    Call call = {0};
    *address = 0;
    if (!may_keep(driver, stream, &number)) return true;
    pthread_mutex_lock(&memory->lock);
    const PoolBlock *kept = find(memory, number, bytes);
    if (!kept && memory->count < MOST_BLOCKS) {
        call = add(driver, memory, number, stream, bytes);
        kept = find(memory, number, bytes);
    }
    if (kept) *address = kept->address;
    pthread_mutex_unlock(&memory->lock);
    return cuda_check(driver, sink, call.result, call.name);   // outside the lock: reporting may longjmp
}
