// BLAKE3, 256 bits: names of entries, and what tells that bytes have changed. No two texts with one hash are known, nor how
// to make them, so equal hashes mean equal bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CacheHash {
    uint8_t bytes[32];
} CacheHash;

enum { HASH_TEXT = 64 };   // characters of a hash in hexadecimal

CacheHash cache_hash(const void *data, size_t size);
CacheHash cache_hash_named(CacheHash name, const void *data, size_t size);   // of the name, then the data
bool cache_hash_file(int fd, CacheHash *out);                                // to its end
bool cache_hash_equal(CacheHash a, CacheHash b);
void cache_hash_text(CacheHash hash, char out[HASH_TEXT + 1]);
