// The way out of a compile that cannot go on: out of memory, or a broken promise inside tilec itself.
//
// Every entry point of the library opens a failure point. Code below calls `fail_*`, which does not return; the entry
// point sees a status, frees the arena and answers with an error. All state of a compile lives in arenas (LLVM's
// objects hang on a cleanup list), so leaving early loses nothing.
//
//     Failure failure;
//     if (FAILURE_CAUGHT(&failure)) { ... failure.kind, failure.message ...; return; }
//     ... work ...
#pragma once
#include <setjmp.h>
#include <stdbool.h>

typedef enum { FAIL_NONE, FAIL_OUT_OF_MEMORY, FAIL_INTERNAL } FailureKind;

typedef struct Failure {
    jmp_buf point;
    FailureKind kind;
    char message[512];   // for FAIL_INTERNAL: what was expected, and where
} Failure;

#define FAILURE_CAUGHT(failure) ((failure)->kind = FAIL_NONE, (failure)->message[0] = 0, setjmp((failure)->point) != 0)

// Runs `work`, then `after`, and returns the result of `work`. If `work` leaves by the failure point, `after` runs, and
// control goes on to the caller's failure point, which is restored in `failure`. `user` points to memory that both
// share; it must not be in registers of `work`.
bool fail_scope(Failure *failure, bool (*work)(void *user), void (*after)(void *user), void *user);

_Noreturn void fail_out_of_memory(Failure *failure);
_Noreturn void fail_internal(Failure *failure, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// A promise between parts of tilec; breaking it is an internal error (exit code 70), never an abort.
#define EXPECT(failure, condition, ...)                                                                                \
    do {                                                                                                               \
        if (!(condition)) fail_internal((failure), __FILE__, __LINE__, __VA_ARGS__);                                   \
    } while (0)
