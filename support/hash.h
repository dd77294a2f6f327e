// A hash of 64-bit words, one after the other, for tables in memory: not the same from one version to the next.
#pragma once
#include <stdint.h>

// Multiplication by an odd number, and the high bits into the low ones (the finalizer of MurmurHash3, by Appleby, has
// these steps).
static inline uint64_t hash_mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 33;
}
