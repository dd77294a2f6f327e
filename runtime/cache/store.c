#include "runtime/cache/store.h"
#include "support/fail.h"
#include "support/files.h"
#include "support/vec.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[] = "tilec cache 1\n", unfinished[] = ".new.", lock_file[] = "lock";

enum { MAGIC = sizeof magic - 1, HEAD = MAGIC + sizeof(int64_t), FRAME = HEAD + sizeof(CacheHash) };

static const char *path_in(Arena *arena, const CacheStore *store, const char *name) {
    return arena_printf(arena, "%s/%s", store->folder, name);
}

static const char *path_of(Arena *arena, const CacheStore *store, CacheHash name) {
    char text[HASH_TEXT + 1];
    cache_hash_text(name, text);
    return path_in(arena, store, text);
}

static bool is_entry(const char *name) {
    return strlen(name) == HASH_TEXT && strspn(name, "0123456789abcdef") == HASH_TEXT;
}

static bool is_ours(const char *name) {
    return is_entry(name) || strncmp(name, unfinished, sizeof unfinished - 1) == 0;
}

// Its own folder is its user's alone: who can write entries decides what code runs.
static void make_folder(Arena *arena, const char *folder) {
    char *path = arena_strdup(arena, folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0700);
}

// ---- all files ----

typedef struct StoreFile {
    const char *name;
    int64_t bytes;
    struct timespec used;
} StoreFile;

typedef VEC(StoreFile) StoreFiles;

typedef struct Listing {
    Arena *arena;
    DIR *folder;
    StoreFiles *out;
} Listing;

static bool list(void *user) {
    const Listing *l = user;
    struct stat info;
    for (const struct dirent *entry; (entry = readdir(l->folder));) {
        if (!is_ours(entry->d_name) || fstatat(dirfd(l->folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        StoreFile file = {arena_strdup(l->arena, entry->d_name), info.st_size, info.st_mtim};
        if (S_ISREG(info.st_mode)) vec_push(l->arena, l->out, file);
    }
    return true;
}

static void end_listing(void *user) {
    closedir(((Listing *)user)->folder);
}

// Entries, and what was not finished.
static StoreFiles files_of(Arena *arena, const CacheStore *store) {
    StoreFiles files = {0};
    Listing listing = {arena, store->folder ? opendir(store->folder) : NULL, &files};
    if (listing.folder) fail_scope(arena_failure(arena), list, end_listing, &listing);
    return files;
}

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const StoreFile *)a)->used, *y = &((const StoreFile *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// Deletes what a process that was killed did not finish, and the entries that were not used for the longest time.
static void trim(Arena *arena, const CacheStore *store) {
    enum { ABANDONED = 3600 };   // seconds
    StoreFiles files = files_of(arena, store);
    time_t now = time(NULL);
    int64_t bytes = 0;
    VEC_EACH (StoreFile, file, &files) bytes += file->bytes;
    if (bytes > store->limit) qsort(files.items, (size_t)files.count, sizeof *files.items, by_use);
    VEC_EACH (StoreFile, file, &files) {
        bool abandoned = !is_entry(file->name) && file->used.tv_sec < now - ABANDONED;
        if (!abandoned && (bytes <= store->limit || !is_entry(file->name))) continue;
        unlink(path_in(arena, store, file->name));
        bytes -= file->bytes;
    }
}

// ---- entries ----

static bool is_whole(const FileText *file, CacheHash name) {
    int64_t size;
    if (file->length < FRAME || memcmp(file->text, magic, MAGIC) != 0) return false;
    memcpy(&size, file->text + MAGIC, sizeof size);
    if (size != (int64_t)(file->length - FRAME)) return false;
    size_t before = file->length - sizeof(CacheHash);
    CacheHash hash = cache_hash_named(name, file->text, before);
    return memcmp(hash.bytes, file->text + before, sizeof hash.bytes) == 0;
}

static bool load(Arena *arena, const char *path, FileText *out) {
    const char *why;
    return path_is_regular(path, &why) && file_load(arena, path, 0, out, &why);
}

bool store_read(Arena *arena, const CacheStore *store, CacheHash name, const char **data, size_t *size) {
    FileText file;
    if (!store->folder) return false;
    const char *path = path_of(arena, store, name);
    if (!load(arena, path, &file)) return false;
    if (!is_whole(&file, name)) {
        unlink(path);
        return false;
    }
    utimensat(AT_FDCWD, path, NULL, 0);   // used now
    *data = file.text + HEAD;
    *size = file.length - FRAME;
    return true;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t put = write(fd, data, size);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        data += put;
        size -= (size_t)put;
    }
    return true;
}

static StrBuf entry_of(Arena *arena, CacheHash name, const void *data, size_t size) {
    StrBuf entry;
    int64_t length = (int64_t)size;
    sb_init(&entry, arena);
    sb_bytes(&entry, magic, MAGIC);
    sb_bytes(&entry, (const char *)&length, sizeof length);
    sb_bytes(&entry, data, size);
    CacheHash hash = cache_hash_named(name, entry.text, entry.length);
    sb_bytes(&entry, (const char *)hash.bytes, sizeof hash.bytes);
    return entry;
}

void store_write(Arena *arena, const CacheStore *store, CacheHash name, const void *data, size_t size) {
    if (!store->folder || (int64_t)(size + FRAME) > store->limit) return;
    StrBuf entry = entry_of(arena, name, data, size);
    const char *path = path_of(arena, store, name);
    char *temporary = arena_printf(arena, "%s/%sXXXXXX", store->folder, unfinished);
    make_folder(arena, store->folder);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return;
    bool ok = write_all(fd, entry.text, entry.length);
    ok = close(fd) == 0 && ok;
    if (ok && rename(temporary, path) == 0) trim(arena, store);
    else unlink(temporary);
}

// ---- the lock of a name ----

static bool is_over(const MessageWait *until) {
    return (until->deadline && milliseconds_now() >= until->deadline) ||
           (until->cancelled && until->cancelled(until->cancelled_user));
}

// One byte of one file for each name. A lock of an open file, unlike one of a process, also excludes another thread.
int store_lock(Arena *arena, const CacheStore *store, CacheHash name, const MessageWait *until) {
    enum { MOST = 300 * 1000 };   // a process that is stopped, not ended, keeps its lock
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t place;
    if (!store->folder) return -1;
    memcpy(&place, name.bytes, sizeof place);
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(place >> 2), .l_len = 1};
    int64_t give_up = milliseconds_now() + MOST;
    make_folder(arena, store->folder);
    int fd = open(path_in(arena, store, lock_file), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && fcntl(fd, F_OFD_SETLK, &byte) != 0) {
        bool held = errno == EAGAIN || errno == EACCES || errno == EINTR;
        if (held && milliseconds_now() < give_up && !is_over(until)) {
            nanosleep(&pause, NULL);
            continue;
        }
        close(fd);
        fd = -1;
    }
    return fd;
}

// Unlocked and closed: a process that was forked meanwhile has the same open file.
void store_unlock(int lock) {
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (lock < 0) return;
    fcntl(lock, F_OFD_SETLK, &all);
    close(lock);
}

// ---- for the command ----

StoreCounts store_count(Arena *arena, const CacheStore *store) {
    StoreCounts counts = {0};
    StoreFiles files = files_of(arena, store);
    VEC_EACH (StoreFile, file, &files) {
        counts.entries += is_entry(file->name);
        counts.bytes += file->bytes;
    }
    return counts;
}

static CacheHash name_of(const char *text) {
    CacheHash name;
    for (size_t i = 0; i < sizeof name.bytes; i++) {
        char pair[] = {text[2 * i], text[2 * i + 1], 0};
        name.bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return name;
}

typedef struct Check {
    const CacheStore *store;
    const StoreFile *file;
    StoreCounts *counts;
} Check;

static bool check(void *user, Arena *arena) {
    const Check *c = user;
    const char *path = path_in(arena, c->store, c->file->name);
    FileText text;
    if (!load(arena, path, &text)) return true;   // another process deleted it
    bool whole = is_whole(&text, name_of(c->file->name));
    if (!whole) unlink(path);
    c->counts->broken += !whole;
    c->counts->entries += whole;
    c->counts->bytes += whole ? c->file->bytes : 0;
    return true;
}

StoreCounts store_verify(Arena *arena, const CacheStore *store) {
    StoreCounts counts = {0};
    StoreFiles files = files_of(arena, store);
    VEC_EACH (StoreFile, file, &files) {
        Check one = {store, file, &counts};
        if (is_entry(file->name)) arena_scope(arena_failure(arena), check, &one);
    }
    return counts;
}

bool store_clear(Arena *arena, const CacheStore *store) {
    bool ok = true;
    StoreFiles files = files_of(arena, store);
    VEC_EACH (StoreFile, file, &files) ok &= unlink(path_in(arena, store, file->name)) == 0 || errno == ENOENT;
    return ok;
}
