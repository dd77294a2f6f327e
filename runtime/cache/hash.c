#include "runtime/cache/hash.h"
#include <errno.h>
#include <llvm-c/blake3.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CacheHash) == LLVM_BLAKE3_OUT_LEN, "a hash is what BLAKE3 gives");

static CacheHash finish(const llvm_blake3_hasher *hasher) {
    CacheHash out;
    llvm_blake3_hasher_finalize(hasher, out.bytes, sizeof out.bytes);
    return out;
}

CacheHash cache_hash(const void *data, size_t size) {
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    llvm_blake3_hasher_update(&hasher, data, size);
    return finish(&hasher);
}

CacheHash cache_hash_named(CacheHash name, const void *data, size_t size) {
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    llvm_blake3_hasher_update(&hasher, name.bytes, sizeof name.bytes);
    llvm_blake3_hasher_update(&hasher, data, size);
    return finish(&hasher);
}

bool cache_hash_file(int fd, CacheHash *out) {
    char buffer[64 << 10];
    ssize_t got;
    llvm_blake3_hasher hasher;
    llvm_blake3_hasher_init(&hasher);
    while ((got = read(fd, buffer, sizeof buffer)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        llvm_blake3_hasher_update(&hasher, buffer, (size_t)got);
    }
    *out = finish(&hasher);
    return true;
}

bool cache_hash_equal(CacheHash a, CacheHash b) {
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

void cache_hash_text(CacheHash hash, char out[HASH_TEXT + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof hash.bytes; i++) {
        out[2 * i] = digits[hash.bytes[i] >> 4];
        out[2 * i + 1] = digits[hash.bytes[i] & 15];
    }
    out[HASH_TEXT] = 0;
}
