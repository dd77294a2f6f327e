// A folder of entries: bytes under the name of a hash, written by any number of processes.
//
// An entry is a file; its name is the hash of the key in hexadecimal:
//
//     "tilec cache 1\n"   size of the data, 8 bytes   the data   hash of the name and of all before
//
// It is written under another name and renamed, so that none is ever seen in pieces. What a full disk, a crash or another
// program made of one is noticed when it is read: it is then deleted, and is not there. Whatever fails is as if the entry
// were not there; nothing is reported.
#pragma once
#include "runtime/cache/hash.h"
#include "runtime/worker/message.h"
#include "support/strbuf.h"

typedef struct CacheStore {
    const char *folder;   // made with the first entry; NULL: nothing is there, and nothing is kept
    int64_t limit;        // bytes of all entries
} CacheStore;

// The data lies in `arena`.
bool store_read(Arena *arena, const CacheStore *store, CacheHash name, const char **data, size_t *size);
// Then deletes those that were not read for the longest time, until all are within the limit.
void store_write(Arena *arena, const CacheStore *store, CacheHash name, const void *data, size_t size);

// Waits for the lock of a name, at most until `until` and some minutes. It ends with its process, and leaves nothing behind.
// -1: there is none (a folder that cannot be written, a file system without locks), or no more time.
int store_lock(Arena *arena, const CacheStore *store, CacheHash name, const MessageWait *until);
void store_unlock(int lock);

typedef struct StoreCounts {
    int64_t entries, bytes;
    int64_t broken;   // of store_verify: so many were deleted
} StoreCounts;

StoreCounts store_count(Arena *arena, const CacheStore *store);
StoreCounts store_verify(Arena *arena, const CacheStore *store);   // reads every entry
bool store_clear(Arena *arena, const CacheStore *store);           // false: something could not be deleted
