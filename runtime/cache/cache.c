#include "runtime/cache/cache.h"
#include "support/fail.h"
#include "support/files.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- settings ----

static const char *folder_of(Arena *arena, const char *given) {
    const char *variable = getenv("TILEC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && given[0]) return given;
    if (variable && variable[0]) return variable;
    if (xdg && xdg[0] == '/') return arena_printf(arena, "%s/tilec", xdg);
    return home && home[0] == '/' ? arena_printf(arena, "%s/.cache/tilec", home) : NULL;
}

CacheSettings cache_settings(Arena *arena, const char *given) {
    enum { USUAL = 1024, MOST = 1 << 30 };   // MiB
    const char *folder = folder_of(arena, given), *size = getenv("TILEC_CACHE_SIZE");
    char *end = NULL;
    long long limit = size ? strtoll(size, &end, 10) : 0;
    bool good = limit > 0 && limit < MOST && *end == 0;
    if (folder && strcmp(folder, "off") == 0) return (CacheSettings){0};
    return (CacheSettings){
        true, {folder, (int64_t)(good ? limit : USUAL) << 20}, size && size[0] && !good ? size : NULL};
}

// ---- programs ----

static CacheHash facts_of(Arena *arena, const char *path, const struct stat *info) {
    StrBuf facts;
    int64_t numbers[] = {(int64_t)info->st_dev, (int64_t)info->st_ino, info->st_size,        info->st_mtim.tv_sec,
                         info->st_mtim.tv_nsec, info->st_ctim.tv_sec,  info->st_ctim.tv_nsec};
    sb_init(&facts, arena);
    sb_printf(&facts, "program %s\n", path);
    sb_bytes(&facts, (const char *)numbers, sizeof numbers);
    return cache_hash(facts.text, facts.length);
}

static bool is_known(const ProgramHashes *known, CacheHash facts, CacheHash *out) {
    for (int i = 0; i < known->count; i++) {
        *out = known->items[i].content;
        if (cache_hash_equal(known->items[i].facts, facts)) return true;
    }
    return false;
}

static bool is_stored(Arena *arena, const CacheStore *store, CacheHash facts, CacheHash *out) {
    const char *data;
    size_t size;
    if (!store_read(arena, store, facts, &data, &size) || size != sizeof *out) return false;
    memcpy(out, data, sizeof *out);
    return true;
}

static void add_known(ProgramHashes *known, CacheHash facts, CacheHash content) {
    memmove(&known->items[1], &known->items[0], sizeof known->items - sizeof known->items[0]);
    known->items[0] = (struct ProgramHash){facts, content};
    known->count += known->count < MOST_PROGRAMS;
}

// A program that changes while it is read has facts that never come again.
static bool read_program(Arena *arena, const char *path, CacheHash *facts, CacheHash *content) {
    struct stat before, after;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &before) == 0 && cache_hash_file(fd, content) && fstat(fd, &after) == 0;
    if (fd >= 0) close(fd);
    if (!ok) return false;
    *facts = facts_of(arena, path, &before);
    return cache_hash_equal(*facts, facts_of(arena, path, &after));
}

static bool program_hash(Arena *arena, const CacheStore *store, ProgramHashes *known, const char *path,
                         CacheHash *out) {
    struct stat info;
    if (!path || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    CacheHash facts = facts_of(arena, path, &info);
    if (is_known(known, facts, out)) return true;
    if (!is_stored(arena, store, facts, out)) {
        if (!read_program(arena, path, &facts, out)) return false;
        store_write(arena, store, facts, out, sizeof *out);
    }
    add_known(known, facts, *out);
    return true;
}

// ---- keys ----

// Neither where it is compiled, nor within which limits, changes what comes of a request that succeeds; ptxas counts by
// what it is, not by its name.
static void add_request(StrBuf *key, const CompileRequest *request) {
    CompileRequest what = *request;
    what.processors = NULL;
    what.memory_limit = what.phases = 0;
    what.repro_dir = what.ptxas = NULL;
    request_write(&what, key);
}

static const char *llvm_file(void) {
#ifdef TILEC_LLVM_FILE
    return TILEC_LLVM_FILE;   // LLVM is not in the program
#else
    return NULL;
#endif
}

bool cache_key(Arena *arena, const CacheStore *store, ProgramHashes *known, const CompileRequest *request,
               const char *tilec, CacheHash *out) {
    const char *programs[] = {tilec, llvm_file(), request->assemble ? request->ptxas : NULL};
    bool needed[] = {true, llvm_file() != NULL, request->assemble != 0};
    StrBuf key;
    sb_init(&key, arena);
    sb_str(&key, "tilec " TILEC_VERSION "\n");
    for (int i = 0; i < COUNT_OF(programs); i++) {
        CacheHash hash;
        if (!needed[i]) continue;
        if (!program_hash(arena, store, known, programs[i], &hash)) return false;
        sb_bytes(&key, (const char *)hash.bytes, sizeof hash.bytes);
    }
    add_request(&key, request);
    *out = cache_hash(key.text, key.length);
    return true;
}

// ---- look-up and compile ----

bool cache_imports_hold(Arena *arena, int64_t count, const CompileImport *imports) {
    for (int64_t i = 0; i < count; i++) {
        const CompileImport *import = &imports[i];
        const char *why;
        FileText file;
        if (!path_is_regular(import->path, &why) || !file_load(arena, import->path, SOURCE_LIMIT, &file, &why) ||
            file.length != import->length || memcmp(file.text, import->text, file.length) != 0)
            return false;
    }
    return true;
}

bool cache_find(Arena *arena, const CachedCompile *c, CompileReply *reply) {
    const char *data;
    size_t size;
    return c->key && c->cache->store.folder && store_read(arena, &c->cache->store, *c->key, &data, &size) &&
           reply_read(arena, data, size, reply) && reply->status == TILEC_OK &&
           cache_imports_hold(arena, reply->import_count, reply->imports);
}

// The key is made again: a program that was replaced meanwhile may have compiled.
static void keep(Arena *arena, const CachedCompile *c, const CompileReply *reply) {
    StrBuf data;
    CacheHash key;
    if (reply->status != TILEC_OK) return;
    if (!cache_key(arena, &c->cache->store, c->known, c->request, c->tilec, &key) || !cache_hash_equal(key, *c->key))
        return;
    sb_init(&data, arena);
    reply_write(reply, &data);
    store_write(arena, &c->cache->store, key, data.text, data.length);
}

typedef struct Locked {
    Arena *arena;
    const CachedCompile *compile;
    CompileReply *reply;
    int lock;
} Locked;

static bool with_lock(void *user) {
    const Locked *l = user;
    if (l->lock >= 0 && cache_find(l->arena, l->compile, l->reply)) return true;   // the one that had the lock made it
    if (!l->compile->compile(l->compile->user, l->reply)) return false;
    keep(l->arena, l->compile, l->reply);
    return true;
}

static void end_lock(void *user) {
    store_unlock(((const Locked *)user)->lock);
}

bool cached_compile(Arena *arena, const CachedCompile *compile, CompileReply *reply) {
    if (!compile->key || !compile->cache->store.folder) return compile->compile(compile->user, reply);
    if (cache_find(arena, compile, reply)) return true;
    Locked locked = {arena, compile, reply, -1};
    locked.lock = store_lock(arena, &compile->cache->store, *compile->key, &compile->until);
    return fail_scope(arena_failure(arena), with_lock, end_lock, &locked);
}
