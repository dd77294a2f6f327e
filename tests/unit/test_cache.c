// The compile cache: entries, locks, keys, and what makes a kept reply stale.
#include "runtime/cache/cache.h"
#include "support/files.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static CacheStore new_store(Arena *arena) {
    char *folder = arena_strdup(arena, "/tmp/tilec_XXXXXX");
    assert_non_null(mkdtemp(folder));
    return (CacheStore){arena_printf(arena, "%s/a/b", folder), 1 << 20};   // made with the first entry
}

static void remove_store(Arena *arena, const CacheStore *store) {
    const char *end = strstr(store->folder, "/a/b");
    assert_int_equal(system(arena_printf(arena, "rm -rf %.*s", (int)(end - store->folder), store->folder)), 0);
}

static CacheHash name(const char *text) {
    return cache_hash(text, strlen(text));
}

static const char *path_of(Arena *arena, const CacheStore *store, CacheHash hash) {
    char text[HASH_TEXT + 1];
    cache_hash_text(hash, text);
    return arena_printf(arena, "%s/%s", store->folder, text);
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// ---- hashes ----

static void test_hash(void **state) {
    (void)state;
    char text[HASH_TEXT + 1];
    cache_hash_text(cache_hash("", 0), text);   // of BLAKE3's own test vectors
    assert_string_equal(text, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    assert_false(cache_hash_equal(cache_hash_named(name("a"), "b", 1), cache_hash_named(name("b"), "b", 1)));
}

static void test_hash_of_file(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    CacheHash hash;
    const char *path = arena_printf(arena, "%.*s/file", (int)strlen(store.folder) - 4, store.folder);
    write_file(path, "bytes", 5);
    int file = open(path, O_RDONLY), folder = open("/", O_RDONLY);
    assert_true(cache_hash_file(file, &hash));
    assert_true(cache_hash_equal(hash, name("bytes")));
    assert_false(cache_hash_file(folder, &hash));
    close(file);
    close(folder);
    remove_store(arena, &store);
}

// ---- entries ----

static void test_entry(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    const char *data;
    size_t size;
    assert_false(store_read(arena, &store, name("k"), &data, &size));
    store_write(arena, &store, name("k"), "a\0b", 3);
    assert_true(store_read(arena, &store, name("k"), &data, &size));
    assert_int_equal(size, 3);
    assert_memory_equal(data, "a\0b", 3);
    store_write(arena, &store, name("k"), "", 0);
    assert_true(store_read(arena, &store, name("k"), &data, &size));
    assert_int_equal(size, 0);
    assert_false(store_read(arena, &store, name("l"), &data, &size));
    struct stat info;
    assert_int_equal(stat(store.folder, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);   // others cannot put code there
    remove_store(arena, &store);
}

// Every byte of an entry counts, and so do its length and its name. A damaged one is gone after the look.
static void test_damage(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    const char *data, *path = path_of(arena, &store, name("k")), *why;
    size_t size;
    FileText whole;
    store_write(arena, &store, name("k"), "some bytes", 10);
    assert_true(file_load(arena, path, 0, &whole, &why));
    for (size_t at = 0; at < whole.length; at++) {
        char *copy = arena_copy(arena, whole.text, whole.length);
        copy[at] ^= 1;
        write_file(path, copy, whole.length);
        assert_false(store_read(arena, &store, name("k"), &data, &size));
        assert_int_equal(access(path, F_OK), -1);
        write_file(path, whole.text, at);
        assert_false(store_read(arena, &store, name("k"), &data, &size));
        assert_int_equal(access(path, F_OK), -1);
    }
    const char *other = path_of(arena, &store, name("other"));
    write_file(other, whole.text, whole.length);
    assert_false(store_read(arena, &store, name("other"), &data, &size));
    assert_int_equal(access(other, F_OK), -1);
    write_file(path, whole.text, whole.length);
    assert_true(store_read(arena, &store, name("k"), &data, &size));
    remove_store(arena, &store);
}

static void test_verify(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    for (int i = 0; i < 10; i++) store_write(arena, &store, name(arena_printf(arena, "%d", i)), "data", 4);
    assert_int_equal(store_count(arena, &store).entries, 10);
    write_file(path_of(arena, &store, name("3")), "tilec cache 1\nno", 16);
    StoreCounts counts = store_verify(arena, &store);
    assert_int_equal(counts.entries, 9);
    assert_int_equal(counts.broken, 1);
    assert_int_equal(store_verify(arena, &store).broken, 0);
    write_file(arena_printf(arena, "%s/a-file-of-its-user", store.folder), "x", 1);
    assert_true(store_clear(arena, &store));
    assert_int_equal(store_count(arena, &store).entries, 0);
    assert_int_equal(access(arena_printf(arena, "%s/a-file-of-its-user", store.folder), F_OK), 0);
    remove_store(arena, &store);
}

static void set_age(const char *path, int seconds) {
    struct timespec times[] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

// The entries that were used least recently go, and what a process left unfinished long ago.
static void test_limit(void **state) {
    enum { COUNT = 10, SIZE = 1000 };
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    const char *data;
    size_t size;
    store.limit = COUNT * (SIZE + 100);
    char *bytes = arena_alloc(arena, SIZE);
    for (int i = 0; i < COUNT; i++) {
        store_write(arena, &store, name(arena_printf(arena, "%d", i)), bytes, SIZE);
        set_age(path_of(arena, &store, name(arena_printf(arena, "%d", i))), 100 - i);
    }
    assert_true(store_read(arena, &store, name("0"), &data, &size));   // used now
    const char *old = arena_printf(arena, "%s/.new.abcdef", store.folder);
    const char *young = arena_printf(arena, "%s/.new.ghijkl", store.folder);
    write_file(old, "x", 1);
    set_age(old, 100000);
    write_file(young, "x", 1);
    set_age(young, 200);   // longer ago than any entry: it is not deleted in the place of one
    store_write(arena, &store, name("more"), bytes, SIZE);
    store_write(arena, &store, name("most"), bytes, SIZE);
    assert_true(store_count(arena, &store).bytes <= store.limit);
    assert_true(store_read(arena, &store, name("0"), &data, &size));
    assert_true(store_read(arena, &store, name("9"), &data, &size));
    assert_true(store_read(arena, &store, name("most"), &data, &size));
    assert_false(store_read(arena, &store, name("1"), &data, &size));
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    store_write(arena, &store, name("too large"), arena_alloc(arena, (size_t)store.limit), (size_t)store.limit);
    assert_false(store_read(arena, &store, name("too large"), &data, &size));
    assert_true(store_read(arena, &store, name("most"), &data, &size));   // for which nothing had to go
    remove_store(arena, &store);
}

// What has an entry's name and is none: other letters, a folder. Nothing is left of what could not be put there.
static void test_names_taken(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    const char *data;
    size_t size;
    store_write(arena, &store, name("k"), "a", 1);
    char *letters = arena_strdup(arena, path_of(arena, &store, name("k")));
    memset(letters + strlen(letters) - HASH_TEXT, 'z', HASH_TEXT);
    write_file(letters, "x", 1);
    const char *folder = path_of(arena, &store, name("folder"));
    assert_int_equal(mkdir(folder, 0700), 0);
    store_write(arena, &store, name("folder"), "a", 1);
    assert_false(store_read(arena, &store, name("folder"), &data, &size));
    StoreCounts counts = store_count(arena, &store);
    assert_int_equal(counts.entries, 1);
    assert_true(store_read(arena, &store, name("k"), &data, &size));
    assert_int_equal(counts.bytes, store_verify(arena, &store).bytes);   // and no unfinished file
    assert_true(store_clear(arena, &store));
    assert_int_equal(access(letters, F_OK), 0);
    remove_store(arena, &store);
}

// Wherever nothing can be kept, nothing is there, and nothing else happens.
static void test_no_folder(void **state) {
    Arena *arena = *state;
    static const char *const folders[] = {NULL, "/proc/tilec", "/dev/null", "/dev/null/x"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        CacheStore store = {folders[i], 1 << 20};
        const char *data;
        size_t size;
        store_write(arena, &store, name("k"), "a", 1);
        assert_false(store_read(arena, &store, name("k"), &data, &size));
        int lock = store_lock(arena, &store, name("k"), &(MessageWait){0});
        store_unlock(lock);
        assert_int_equal(store_count(arena, &store).entries, 0);
    }
}

// ---- locks ----

static bool is_free(Arena *arena, const CacheStore *store, const char *text) {
    int lock = store_lock(arena, store, name(text), &(MessageWait){.deadline = 1});   // which is over
    store_unlock(lock);
    return lock >= 0;
}

static void test_lock(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    int lock = store_lock(arena, &store, name("k"), &(MessageWait){0});
    assert_true(lock >= 0);
    assert_false(is_free(arena, &store, "k"));   // in one process too
    assert_true(is_free(arena, &store, "l"));
    pid_t child = fork();   // has the open file, not the lock
    if (child == 0) pause(), _exit(0);
    store_unlock(lock);
    assert_true(is_free(arena, &store, "k"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    remove_store(arena, &store);
}

static bool after_three(void *user) {
    return ++*(int *)user > 3;
}

// Who waits for a lock stops at the time that it has, or when it is told to.
static void test_lock_given_up(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    int lock = store_lock(arena, &store, name("k"), &(MessageWait){0}), asked = 0;
    int64_t start = milliseconds_now();
    assert_int_equal(store_lock(arena, &store, name("k"), &(MessageWait){.deadline = start + 30}), -1);
    assert_true(milliseconds_now() >= start + 30);
    assert_int_equal(
        store_lock(arena, &store, name("k"), &(MessageWait){.cancelled = after_three, .cancelled_user = &asked}), -1);
    assert_int_equal(asked, 4);
    store_unlock(lock);
    remove_store(arena, &store);
}

static void test_killed_holder(void **state) {
    Arena *arena = *state;
    CacheStore store = new_store(arena);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool held = store_lock(arena, &store, name("k"), &(MessageWait){0}) >= 0;
        if (held && write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_false(is_free(arena, &store, "k"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(is_free(arena, &store, "k"));
    close(ready[0]);
    close(ready[1]);
    remove_store(arena, &store);
}

// ---- keys ----

typedef struct Setting {
    Arena *arena;
    CacheStore store;
    ProgramHashes known;
    CompileRequest request;
    const char *tilec;
} Setting;

static Setting new_setting(Arena *arena) {
    Setting s = {.arena = arena, .store = new_store(arena)};
    assert_int_equal(mkdir(arena_printf(arena, "%.*s", (int)strlen(s.store.folder) - 2, s.store.folder), 0700), 0);
    s.tilec = arena_printf(arena, "%s.tilec", s.store.folder);
    write_file(s.tilec, "tilec", 5);
    s.request = (CompileRequest){.name = "a.tile", .text = "text", .length = 4, .folder = "/", .target = "sm_80"};
    return s;
}

static CacheHash key_of(Setting *s) {
    CacheHash key;
    assert_true(cache_key(s->arena, &s->store, &s->known, &s->request, s->tilec, &key));
    return key;
}

// Each field that can change what is compiled changes the key; the others do not.
static void test_key(void **state) {
    Arena *arena = *state;
    static const TilecDefine defines[] = {{"A", "1"}}, others[] = {{"A", "2"}};
    static const RecordValue shape[] = {{"M", 1}};
    Setting s = new_setting(arena);
    const CompileRequest plain = s.request;
    CacheHash keys[24];
    int count = 0;
#define KEY_WITH(...) (s.request = plain, __VA_ARGS__, keys[count++] = key_of(&s))
    KEY_WITH(s.request.name = "a.tile");
    KEY_WITH(s.request.name = "b.tile");
    KEY_WITH(s.request.text = "next");
    KEY_WITH(s.request.folder = "/tmp");
    KEY_WITH(s.request.target = "sm_90");
    KEY_WITH(s.request.only = "f");
    KEY_WITH(s.request.import_root = "/");
    KEY_WITH(s.request.record = "r", s.request.record_text = "", s.request.record_length = 0);
    KEY_WITH(s.request.record = "r", s.request.record_text = "x", s.request.record_length = 1);
    KEY_WITH(s.request.define_count = 1, s.request.defines = defines);
    KEY_WITH(s.request.define_count = 1, s.request.defines = others);
    KEY_WITH(s.request.optimize = 2);
    KEY_WITH(s.request.lines = 1);
    KEY_WITH(s.request.remarks = 1);
    KEY_WITH(s.request.pdl = 1);
    KEY_WITH(s.request.independent = "x");
    KEY_WITH(s.request.declarations = 1);
    KEY_WITH(s.request.print_after = "all");
    KEY_WITH(s.request.layouts = "all");
    KEY_WITH(s.request.for_shape = 1);
    KEY_WITH(s.request.for_shape = 1, s.request.shape_count = 1, s.request.shape = shape);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) assert_false(cache_hash_equal(keys[i], keys[k]));
    cpu_set_t processors;
    memset(&processors, 1, sizeof processors);
    KEY_WITH(s.request.processors = &processors);
    assert_true(cache_hash_equal(keys[count - 1], keys[0]));
    KEY_WITH(s.request.memory_limit = 1 << 30);
    assert_true(cache_hash_equal(keys[count - 1], keys[0]));
    KEY_WITH(s.request.repro_dir = "/tmp");
    assert_true(cache_hash_equal(keys[count - 1], keys[0]));
#undef KEY_WITH
    remove_store(arena, &s.store);
}

// A program counts by its bytes: another one of its size and time is another one, a copy elsewhere is the same.
static void test_programs(void **state) {
    Arena *arena = *state;
    Setting s = new_setting(arena);
    CacheHash first = key_of(&s);
    const char *copy = arena_printf(arena, "%s.copy", s.store.folder);
    write_file(copy, "tilec", 5);
    Setting other = s;
    other.tilec = copy;
    assert_true(cache_hash_equal(key_of(&other), first));

    struct stat info;
    assert_int_equal(stat(s.tilec, &info), 0);
    write_file(s.tilec, "tilex", 5);
    struct timespec times[] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, s.tilec, times, 0), 0);
    assert_false(cache_hash_equal(key_of(&s), first));

    s.tilec = copy;
    s.request.assemble = 1;
    CacheHash key;
    assert_false(cache_key(arena, &s.store, &s.known, &s.request, s.tilec, &key));   // no assembler is known
    s.request.ptxas = arena_printf(arena, "%s.ptxas", s.store.folder);
    assert_false(cache_key(arena, &s.store, &s.known, &s.request, s.tilec, &key));   // it is not there
    write_file(s.request.ptxas, "ptxas 1", 7);
    first = key_of(&s);
    write_file(s.request.ptxas, "ptxas 2", 7);
    assert_false(cache_hash_equal(key_of(&s), first));
    s.request.ptxas = "/dev/null";
    assert_false(cache_key(arena, &s.store, &s.known, &s.request, s.tilec, &key));
    s.tilec = NULL;
    assert_false(cache_key(arena, &s.store, &s.known, &s.request, s.tilec, &key));
    remove_store(arena, &s.store);
}

// ---- look-up and compile ----

typedef struct Compiler {
    Setting *setting;
    CompileReply reply;
    int compiles;
    const char *replace, *remove;   // a program that is replaced or removed meanwhile
    bool fails;
} Compiler;

static bool compile(void *user, CompileReply *reply) {
    Compiler *compiler = user;
    compiler->compiles++;
    if (compiler->replace) write_file(compiler->replace, "another", 7);
    if (compiler->remove) unlink(compiler->remove);
    *reply = compiler->reply;
    return !compiler->fails;
}

static CompileReply run_cached(Compiler *compiler) {
    Setting *s = compiler->setting;
    CacheSettings cache = {true, s->store, NULL};
    CacheHash key = key_of(s);
    const CachedCompile cached = {.cache = &cache,
                                  .request = &s->request,
                                  .tilec = s->tilec,
                                  .known = &s->known,
                                  .key = &key,
                                  .compile = compile,
                                  .user = compiler};
    CompileReply reply = {0};
    assert_int_equal(cached_compile(s->arena, &cached, &reply), !compiler->fails);
    return reply;
}

static void test_compile(void **state) {
    Setting s = new_setting(*state);
    Compiler compiler = {.setting = &s, .reply = {.ptx = "ptx", .manifest = "{}", .diagnostics = "d"}};
    compiler.reply.diagnostics_size = 1;
    for (int i = 0; i < 3; i++) {
        CompileReply reply = run_cached(&compiler);
        assert_string_equal(reply.ptx, "ptx");
        assert_string_equal(reply.manifest, "{}");
        assert_int_equal(reply.diagnostics_size, 1);
        assert_int_equal(compiler.compiles, 1);
    }
    s.request.text = "next";
    compiler.reply.status = TILEC_ERROR_SOURCE;   // such a reply is not kept
    for (int i = 0; i < 3; i++) assert_int_equal(run_cached(&compiler).status, TILEC_ERROR_SOURCE);
    assert_int_equal(compiler.compiles, 4);
    assert_true(is_free(s.arena, &s.store, "any"));
    remove_store(s.arena, &s.store);
}

static void test_imports(void **state) {
    Setting s = new_setting(*state);
    CompileImport import = {arena_printf(s.arena, "%s.one.tile", s.store.folder), "one", 3};
    Compiler compiler = {.setting = &s, .reply = {.ptx = "ptx", .manifest = "{}", .import_count = 1}};
    compiler.reply.imports = &import;
    write_file(import.path, "one", 3);
    run_cached(&compiler);
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 1);
    write_file(import.path, "two", 3);
    import.text = "two";
    run_cached(&compiler);
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 2);
    write_file(import.path, "two ", 4);
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 3);
    unlink(import.path);
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 4);
    assert_int_equal(mkfifo(import.path, 0600), 0);   // reading it would not end
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 5);
    remove_store(s.arena, &s.store);
}

// What an old program may have compiled is not kept under the key of the new one, nor the other way round.
static void test_replaced_program(void **state) {
    Setting s = new_setting(*state);
    Compiler compiler = {.setting = &s, .reply = {.ptx = "ptx", .manifest = "{}"}, .replace = s.tilec};
    run_cached(&compiler);
    compiler.replace = NULL;
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 2);
    write_file(s.tilec, "tilec", 5);
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 3);
    remove_store(s.arena, &s.store);
}

// An entry that is whole and no reply, or a reply that is none to keep; a program that is gone when its reply comes.
static void test_no_reply(void **state) {
    Setting s = new_setting(*state);
    Compiler compiler = {.setting = &s, .reply = {.ptx = "ptx", .manifest = "{}"}};
    StrBuf data;
    store_write(s.arena, &s.store, key_of(&s), "junk", 4);
    assert_string_equal(run_cached(&compiler).ptx, "ptx");
    assert_int_equal(compiler.compiles, 1);
    sb_init(&data, s.arena);
    reply_write(&(CompileReply){.ptx = "", .manifest = "", .status = TILEC_ERROR_SOURCE}, &data);
    store_write(s.arena, &s.store, key_of(&s), data.text, data.length);
    assert_string_equal(run_cached(&compiler).ptx, "ptx");
    assert_int_equal(compiler.compiles, 2);
    s.request.text = "next";
    compiler.fails = true;
    run_cached(&compiler);
    compiler.fails = false;
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 4);
    s.request.text = "last";
    compiler.remove = s.tilec;
    run_cached(&compiler);
    write_file(s.tilec, "tilec", 5);
    compiler.remove = NULL;
    run_cached(&compiler);
    assert_int_equal(compiler.compiles, 6);
    remove_store(s.arena, &s.store);
}

// Without a folder, or without a key, each compile is a compile.
static void test_not_cached(void **state) {
    Setting s = new_setting(*state);
    Compiler compiler = {.setting = &s, .reply = {.ptx = "ptx", .manifest = "{}"}};
    CacheHash key = key_of(&s);
    CacheSettings cache = {true, s.store, NULL}, none = {true, {NULL, 1 << 20}, NULL};
    CompileReply reply;
    CachedCompile cached = {.cache = &none, .request = &s.request, .tilec = s.tilec, .known = &s.known, .key = &key};
    cached.compile = compile;
    cached.user = &compiler;
    for (int i = 1; i <= 2; i++) {
        assert_true(cached_compile(s.arena, &cached, &reply));
        assert_int_equal(compiler.compiles, i);
    }
    cached.cache = &cache;
    cached.key = NULL;
    for (int i = 3; i <= 4; i++) {
        assert_true(cached_compile(s.arena, &cached, &reply));
        assert_int_equal(compiler.compiles, i);
    }
    remove_store(s.arena, &s.store);
}

static void test_settings(void **state) {
    Arena *arena = *state;
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("TILEC_CACHE", "", 1);
    assert_string_equal(cache_settings(arena, NULL).store.folder, "/x/tilec");
    assert_string_equal(cache_settings(arena, "/given").store.folder, "/given");
    setenv("TILEC_CACHE", "/variable", 1);
    assert_string_equal(cache_settings(arena, NULL).store.folder, "/variable");
    setenv("TILEC_CACHE", "off", 1);
    assert_false(cache_settings(arena, NULL).on);
    assert_true(cache_settings(arena, "/given").on);
    assert_false(cache_settings(arena, "off").on);
    unsetenv("TILEC_CACHE");
    setenv("XDG_CACHE_HOME", "relative", 1);   // to be ignored, says its specification
    setenv("HOME", "/h", 1);
    assert_string_equal(cache_settings(arena, NULL).store.folder, "/h/.cache/tilec");
    unsetenv("XDG_CACHE_HOME");
    assert_string_equal(cache_settings(arena, "").store.folder, "/h/.cache/tilec");
    setenv("HOME", "relative", 1);
    assert_null(cache_settings(arena, NULL).store.folder);
    unsetenv("HOME");
    assert_null(cache_settings(arena, NULL).store.folder);
    assert_true(cache_settings(arena, NULL).on);
    assert_int_equal(cache_settings(arena, NULL).store.limit, 1 << 30);
    setenv("TILEC_CACHE_SIZE", "3", 1);
    assert_int_equal(cache_settings(arena, NULL).store.limit, 3 << 20);
    setenv("TILEC_CACHE_SIZE", "99999999999999", 1);
    assert_int_equal(cache_settings(arena, NULL).store.limit, 1 << 30);
    setenv("TILEC_CACHE_SIZE", "-3", 1);
    assert_int_equal(cache_settings(arena, NULL).store.limit, 1 << 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),     IN_ARENA(test_hash_of_file),  IN_ARENA(test_entry),
        IN_ARENA(test_damage),           IN_ARENA(test_verify),        IN_ARENA(test_limit),
        IN_ARENA(test_names_taken),      IN_ARENA(test_no_folder),     IN_ARENA(test_lock),
        IN_ARENA(test_lock_given_up),    IN_ARENA(test_killed_holder), IN_ARENA(test_key),
        IN_ARENA(test_programs),         IN_ARENA(test_compile),       IN_ARENA(test_imports),
        IN_ARENA(test_replaced_program), IN_ARENA(test_no_reply),      IN_ARENA(test_not_cached),
        IN_ARENA(test_settings),
    };
    return run(tests);
}
