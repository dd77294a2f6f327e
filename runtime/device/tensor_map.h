// TMA tensor maps: encoded by the driver at launch, and cached, since programs launch with the same tensors again and
// again.
#pragma once
#include "runtime/device/cuda.h"
#include "runtime/plan/plan.h"

// The descriptor as the hardware reads it, passed to a kernel by value.
typedef struct TensorMapBytes {
    _Alignas(64) uint8_t bytes[128];
} TensorMapBytes;

typedef struct MapCache MapCache;
MapCache *map_cache_new(Arena *arena);

// False: reported. Thread-safe.
bool map_encode(const Driver *driver, DiagSink *sink, MapCache *cache, const MapRequest *request, TensorMapBytes *out);

// Enumerations of the driver API: CUtensorMapDataType, CUtensorMapSwizzle of so many bytes.
int map_data_type(Type type, bool tf32);
int map_swizzle(int bytes);
