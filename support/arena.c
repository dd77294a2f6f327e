// An arena is a list of blocks. Allocation moves a mark through the newest block; a block that is too small for a
// request is left as it is and a new one, twice as large, becomes the newest. Under AddressSanitizer the unused part of
// each block is poisoned and a gap is kept after every allocation, so that an overrun inside an arena is still caught.
#include "support/arena.h"
#include "support/available.h"
#include "support/fail.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_CHECKED 1
#endif
#endif
#ifdef ARENA_CHECKED
#include <sanitizer/asan_interface.h>
#define HIDE(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define SHOW(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
enum { GAP = 16 };
#else
#define HIDE(address, bytes) ((void)(address), (void)(bytes))
#define SHOW(address, bytes) ((void)(address), (void)(bytes))
enum { GAP = 0 };
#endif

enum { ALIGNMENT = 16, FIRST_BLOCK = 16 * 1024, LARGEST_BLOCK = 4 * 1024 * 1024 };

typedef struct Chunk {
    struct Chunk *previous;
    size_t size, used;   // bytes of the payload, which follows this header
} Chunk;

struct Arena {
    Allocator host;
    Failure *failure;
    Chunk *newest;
    size_t next_size;
};

_Static_assert(sizeof(Chunk) <= 2 * ALIGNMENT, "the payload starts two alignment units after the header");
enum { HEADER = 2 * ALIGNMENT };

static void *libc_resize(void *user, void *block, size_t bytes) {
    (void)user;
    if (bytes) return realloc(block, bytes);
    free(block);
    return NULL;
}

const Allocator libc_allocator = {libc_resize, NULL};

static size_t round_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static char *payload(Chunk *block) {
    return (char *)block + HEADER;
}

Arena *arena_new(Allocator host, Failure *failure) {
    Arena *arena = host.resize(host.user, NULL, sizeof *arena);
    if (arena) *arena = (Arena){.host = host, .failure = failure, .newest = NULL, .next_size = FIRST_BLOCK};
    return arena;
}

Failure *arena_failure(const Arena *arena) {
    return arena->failure;
}

Allocator arena_host(const Arena *arena) {
    return arena->host;
}

void arena_free(Arena *arena) {
    if (!arena) return;
    for (Chunk *block = arena->newest, *previous; block; block = previous) {
        previous = block->previous;
        SHOW(payload(block), block->size);
        arena->host.resize(arena->host.user, block, 0);
    }
    arena->host.resize(arena->host.user, arena, 0);
}

// All of a block is written to, and memory that is promised but not there ends the process. An eighth stays for others.
void arena_expect(const Arena *arena, size_t bytes) {
    enum { LARGE = 64 << 20 };   // less is not worth the question
    if (bytes >= LARGE && bytes > (size_t)memory_available() / 8 * 7) fail_out_of_memory(arena->failure);
}

static void add_block(Arena *arena, size_t at_least) {
    size_t size = arena->next_size > at_least ? arena->next_size : at_least;
    arena_expect(arena, size);
    Chunk *block = arena->host.resize(arena->host.user, NULL, HEADER + size);
    if (!block) fail_out_of_memory(arena->failure);
    *block = (Chunk){arena->newest, size, 0};
    HIDE(payload(block), size);
    arena->newest = block;
    if (arena->next_size < LARGEST_BLOCK) arena->next_size *= 2;
}

static void *allocate(Arena *arena, size_t bytes) {
    if (bytes > PTRDIFF_MAX / 2) fail_out_of_memory(arena->failure);
    size_t taken = round_up(bytes ? bytes : 1) + GAP;
    if (!arena->newest || arena->newest->size - arena->newest->used < taken) add_block(arena, taken);
    void *result = payload(arena->newest) + arena->newest->used;
    arena->newest->used += taken;
    SHOW(result, bytes);
    return result;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    return memset(allocate(arena, bytes), 0, bytes);
}

void *arena_copy(Arena *arena, const void *data, size_t bytes) {
    void *copy = allocate(arena, bytes);
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

void *arena_grow(Arena *arena, const void *old, size_t old_bytes, size_t new_bytes) {
    char *grown = allocate(arena, new_bytes);
    if (old_bytes) memcpy(grown, old, old_bytes);
    memset(grown + old_bytes, 0, new_bytes - old_bytes);
    return grown;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
    char *copy = allocate(arena, length + 1);
    if (length) memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
    return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    EXPECT(arena->failure, length >= 0, "cannot format text with '%s'", format);
    char *text = allocate(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

// ---- scopes ----

typedef struct ScopedWork {
    bool (*work)(void *user, Arena *arena);
    void *user;
    Arena *arena;
} ScopedWork;

static bool work_in_arena(void *user) {
    const ScopedWork *scope = user;
    return scope->work(scope->user, scope->arena);
}

static void free_scope(void *user) {
    const ScopedWork *scope = user;
    arena_free(scope->arena);
}

bool arena_scope(Failure *failure, bool (*work)(void *user, Arena *arena), void *user) {
    ScopedWork scope = {work, user, arena_new(libc_allocator, failure)};
    if (!scope.arena) fail_out_of_memory(failure);
    return fail_scope(failure, work_in_arena, free_scope, &scope);
}
