// A cache of the last requests to cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, replaced in FIFO order. The key is
// the whole request: address, extents, strides, box, windows and swizzle.
#include "runtime/device/tensor_map.h"
#include "support/hash.h"
#include <pthread.h>
#include <string.h>

static const Span NOWHERE;

enum { CACHED = 64 };

typedef struct CachedMap {
    MapRequest request;
    TensorMapBytes map;
} CachedMap;

struct MapCache {
    pthread_mutex_t lock;
    int count, next;
    uint64_t hashes[CACHED];   // of the requests, compared first
    CachedMap *items;          // [CACHED]
};

MapCache *map_cache_new(Arena *arena) {
    MapCache *cache = NEW(arena, MapCache);
    pthread_mutex_init(&cache->lock, NULL);
    char *room = arena_alloc(arena, sizeof(CachedMap) * CACHED + _Alignof(CachedMap));
    uintptr_t aligned = ((uintptr_t)room + _Alignof(CachedMap) - 1) / _Alignof(CachedMap) * _Alignof(CachedMap);
    cache->items = (CachedMap *)aligned;
    return cache;
}

// ---- what the driver takes (CUDA driver API, CUtensorMapDataType and its neighbours) ----

int map_data_type(Type type, bool tf32) {
    enum { TFLOAT32 = 11 };
    if (tf32) return TFLOAT32;
    switch (type) {
    case TYPE_I32: return 3;
    case TYPE_I64: return 5;
    case TYPE_F16: return 6;
    case TYPE_F32: return 7;
    case TYPE_F64: return 8;
    case TYPE_BF16: return 9;
    default: return type_bytes(type) == 1 ? 0 : type_bytes(type) == 2 ? 1 : type_bytes(type) == 4 ? 2 : 4;
    }
}

int map_swizzle(int bytes) {
    return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
}

// Whether corners fit the bits that the descriptor has for them, and the box is not empty.
static bool corners_fit(const MapRequest *r) {
    int bits = tma_facts.corner_bits[r->windows - 1], half = 1 << (bits - 1);
    for (int i = 0; i < r->windows; i++) {
        if (r->lower[i] < -half || r->lower[i] >= half || r->upper[i] < -half || r->upper[i] >= half) return false;
        if (r->extent[i + 1] - 1 + r->upper[i] < r->lower[i]) return false;
    }
    return true;
}

// NULL, or why no tensor map can describe the tensor. What `when` promised need not be looked at again, but a kernel
// written by hand may have promised too little.
static const char *refusal(const MapRequest *r) {
    if (r->stride[0] != type_bytes(r->type)) return "its innermost dim is not contiguous";
    if (r->address % (uint64_t)tma_facts.unit_bytes != 0) return "its address is not a multiple of 16 bytes";
    for (int d = 1; d < r->rank; d++) {
        if (r->stride[d] % tma_facts.unit_bytes != 0) return "a stride is not a multiple of 16 bytes";
        if (r->stride[d] < 0 || r->stride[d] >> 40 != 0) return "a stride is negative, or 2^40 bytes or more";
    }
    for (int d = 0; d < r->rank; d++) {
        if (r->extent[d] < 0 || r->extent[d] >> 32 != 0) return "a dim has 2^32 elements or more";
    }
    if (r->windows && !corners_fit(r)) return "its windows begin or end too far from the tensor's ends";
    return NULL;
}

// Up to how many bytes L2 fetches where fewer are asked for: the most, where all rows begin at multiples of that
// (tma_facts).
static int promotion_of(const MapRequest *r) {
    enum { PROMOTE_128 = 2, PROMOTE_256 = 3 };
    for (int d = 1; d < r->rank; d++)
        if (r->stride[d] % tma_facts.fetch_bytes != 0) return PROMOTE_128;
    return PROMOTE_256;
}

enum { INTERLEAVE_NONE = 0, FILL_ZERO = 0 };

static bool encode(const Driver *driver, DiagSink *sink, const MapRequest *r, TensorMapBytes *out) {
    uint64_t extents[TENSOR_MAP_RANK], strides[TENSOR_MAP_RANK];
    unsigned box[TENSOR_MAP_RANK], steps[TENSOR_MAP_RANK];
    for (int d = 0; d < r->rank; d++) {
        extents[d] = (uint64_t)r->extent[d];
        strides[d] = (uint64_t)r->stride[d];
        box[d] = (unsigned)r->box[d];
        steps[d] = d >= 1 && d <= r->windows ? (unsigned)r->steps[d - 1] : 1;
    }
    int type = map_data_type(r->type, r->tf32), swizzle = map_swizzle(r->swizzle), promotion = promotion_of(r);
    void *address = (void *)(uintptr_t)r->address;
    CudaResult result =
        r->windows
            ? driver->encode_im2col(out->bytes, type, (unsigned)r->rank, address, extents, strides + 1, r->lower,
                                    r->upper, box[0], box[1], steps, INTERLEAVE_NONE, swizzle, promotion, FILL_ZERO)
            : driver->encode_tiled(out->bytes, type, (unsigned)r->rank, address, extents, strides + 1, box, steps,
                                   INTERLEAVE_NONE, swizzle, promotion, FILL_ZERO);
    return cuda_check(driver, sink, result, r->windows ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeTiled");
}

// ---- the cache ----

static uint64_t hash_of(const MapRequest *request) {
    uint64_t words[(sizeof *request + 7) / 8] = {0}, hash = 0;
    memcpy(words, request, sizeof *request);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) hash = hash_mix(hash, words[i]);
    return hash;
}

static bool find(MapCache *cache, const MapRequest *request, uint64_t hash, TensorMapBytes *out) {
    bool found = false;
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < cache->count && !found; i++) {
        if (cache->hashes[i] != hash) continue;
        found = memcmp(&cache->items[i].request, request, sizeof *request) == 0;
        if (found) *out = cache->items[i].map;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void remember(MapCache *cache, const MapRequest *request, uint64_t hash, const TensorMapBytes *map) {
    pthread_mutex_lock(&cache->lock);
    CachedMap *item = &cache->items[cache->next];
    memcpy(&item->request, request, sizeof *request);   // padding too: find compares bytes
    item->map = *map;
    cache->hashes[cache->next] = hash;
    cache->next = (cache->next + 1) % CACHED;
    if (cache->count < CACHED) cache->count++;
    pthread_mutex_unlock(&cache->lock);
}

// Nothing is copied from or to an empty tensor, but the driver describes none without elements.
static void normalize(const MapRequest *from, MapRequest *out) {
    memset(out, 0, sizeof *out);
    out->type = from->type;
    out->rank = from->rank;
    out->swizzle = from->swizzle;
    out->tf32 = from->tf32;
    out->address = from->address;
    out->windows = from->windows;
    memcpy(out->lower, from->lower, sizeof out->lower);
    memcpy(out->upper, from->upper, sizeof out->upper);
    memcpy(out->steps, from->steps, sizeof out->steps);
    bool empty = false;
    for (int d = 0; d < from->rank; d++) {
        out->box[d] = from->box[d];
        out->extent[d] = from->extent[d];
        out->stride[d] = from->stride[d];
        empty |= from->extent[d] == 0;
        if (d > 0 && from->extent[d] == 1) {   // no address depends on the stride
            int64_t row = out->extent[d - 1] * out->stride[d - 1];
            out->stride[d] = (row + tma_facts.unit_bytes - 1) / tma_facts.unit_bytes * tma_facts.unit_bytes;
        }
    }
    if (!empty) return;
    enum { SOME_ADDRESS = 4096, SOME_STRIDE = 256 };
    out->address = SOME_ADDRESS;
    for (int d = 0; d < out->rank; d++) {
        out->extent[d] = 1;
        out->stride[d] = d ? SOME_STRIDE : type_bytes(out->type);
    }
    for (int i = 0; i < out->windows; i++) out->upper[i] = out->lower[i];
}

bool map_encode(const Driver *driver, DiagSink *sink, MapCache *cache, const MapRequest *request, TensorMapBytes *out) {
    MapRequest clean;
    normalize(request, &clean);
    bool knows = clean.windows ? driver->encode_im2col != NULL : driver->encode_tiled != NULL;
    const char *why = knows ? refusal(&clean) : "the driver is older than CUDA 12";
    if (why) {
        diag(sink, NOWHERE, T_NO_TENSOR_MAP, why);
        return false;
    }
    uint64_t hash = hash_of(&clean);
    if (find(cache, &clean, hash, out)) return true;
    if (!encode(driver, sink, &clean, out)) return false;   // not under the lock: reporting may leave by longjmp
    remember(cache, &clean, hash, out);
    return true;
}
