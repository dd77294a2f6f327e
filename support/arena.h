// support/: data structures without knowledge of compilers. Comes in: bytes, allocators. Goes out: values in arenas,
// diagnostics. The files: arena.c (memory), fail.c (leaving a compile), vec.h, strbuf.c, map.c, hash.h (containers),
// utf8.c, json.c, wire.c, files.c (text, bytes, files), available.c (how much memory there is), diag.c, diag_text.c, diag_wire.c, diagnostics.def (diagnostics).
//
// Memory by lifetime: everything of one compile is allocated in one arena and freed at once.
//
// An arena never returns NULL. When the host has no memory left it leaves through its failure point (support/fail.h),
// so code that allocates needs no checks and the library still returns an error to its caller. A large block is refused
// when the machine has not got it.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;
typedef struct Failure Failure;

// Host memory. `resize(user, NULL, n)` allocates, `resize(user, p, 0)` frees; NULL means out of memory.
typedef struct Allocator {
    void *(*resize)(void *user, void *block, size_t bytes);
    void *user;
} Allocator;

extern const Allocator libc_allocator;

// A new arena over `host` (copied). Returns NULL only when not even the arena itself can be allocated. `failure` is
// where allocation failures go; it must outlive the arena.
Arena *arena_new(Allocator host, Failure *failure);
Failure *arena_failure(const Arena *arena);   // where it goes when there is no memory
Allocator arena_host(const Arena *arena);     // the memory it takes its blocks from, for an arena of a shorter life
void arena_free(Arena *arena);                // frees every block; NULL is allowed

void arena_expect(const Arena *arena, size_t bytes);   // fails now if so many cannot be had
void *arena_alloc(Arena *arena, size_t bytes);         // zeroed, aligned to 16 bytes
void *arena_copy(Arena *arena, const void *data, size_t bytes);
// Grows an array: returns a block of `new_bytes` whose first `old_bytes` are those of `old`. The old one is not reused.
void *arena_grow(Arena *arena, const void *old, size_t old_bytes, size_t new_bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);

#define NEW(arena, Type) ((Type *)arena_alloc((arena), sizeof(Type)))
#define NEW_ARRAY(arena, Type, count) ((Type *)arena_alloc((arena), sizeof(Type) * (size_t)(count)))

// Calls `work` with an arena of its own and frees the arena afterwards, also when `work` leaves through the failure
// point (which then goes on to the caller's). Nothing that `work` returns may lie in that arena.
bool arena_scope(Failure *failure, bool (*work)(void *user, Arena *arena), void *user);
