// The compile cache: from a request to the reply that it got. docs/design/launch.md has the reasons.
//
// In: a CompileRequest (runtime/worker/message.h). Out: its reply, kept from an earlier compile or made now. Whatever is
// wrong with the cache is never an error of the compile. The files of runtime/cache/:
//
//     hash         BLAKE3 of any bytes
//     store        a folder of entries: reading, writing, locks, limit; stat, verify, clear
//     cache        settings; keys of requests; look-up, compile, store
#pragma once
#include "runtime/cache/store.h"
#include "support/diag.h"

typedef struct CacheSettings {
    bool on;
    CacheStore store;
    const char *
        bad_size;   // TILEC_CACHE_SIZE where it is no number of MiB, and the usual limit holds; NULL: it is one, or not set
} CacheSettings;

// `given`, else the environment variable TILEC_CACHE, else $XDG_CACHE_HOME/tilec, else ~/.cache/tilec; "off": no cache. The
// limit is that of TILEC_CACHE_SIZE, in MiB, else 1024.
CacheSettings cache_settings(Arena *arena, const char *given);

enum { MOST_PROGRAMS = 4 };

// The hashes of programs by their path, size and times: so a program is read once, not at each compile.
typedef struct ProgramHashes {
    int count;
    struct ProgramHash {
        CacheHash facts, content;
    } items[MOST_PROGRAMS];
} ProgramHashes;

// The key of a request that the program `tilec` answers. What the store and `known` say of programs is used and added to.
// False: what the reply depends on cannot be known, for example an assembler that is a library.
bool cache_key(Arena *arena, const CacheStore *store, ProgramHashes *known, const CompileRequest *request,
               const char *tilec, CacheHash *out);

// Whether the files that were imported are still what they were.
bool cache_imports_hold(Arena *arena, int64_t count, const CompileImport *imports);

typedef struct CachedCompile {
    const CacheSettings *cache;
    const CompileRequest *request;
    const char *tilec;
    ProgramHashes *known;
    const CacheHash *key;                               // NULL: it has none
    MessageWait until;                                  // ends the waiting for another compile of the key
    bool (*compile)(void *user, CompileReply *reply);   // false: reported, and there is no reply
    void *user;
} CachedCompile;

// What is kept. False: nothing, or it has no key.
bool cache_find(Arena *arena, const CachedCompile *compile, CompileReply *reply);

// The reply lies in `arena`, or where `compile` has it. One process at a time compiles for a key; only replies of compiles
// that succeeded are kept.
bool cached_compile(Arena *arena, const CachedCompile *compile, CompileReply *reply);
