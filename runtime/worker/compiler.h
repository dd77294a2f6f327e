// The library's side of runtime/worker/: processes of `tilec serve-compiles`, kept for later compiles.
#pragma once
#include "runtime/worker/message.h"
#include "support/diag.h"
#include <pthread.h>
#include <sys/types.h>

typedef struct Compiler Compiler;   // such a process

typedef struct CompilerPool {
    Allocator host;
    pthread_mutex_t lock;
    Compiler *idle;
    int count;          // of them
    Compiler *killed;   // that have not ended yet
} CompilerPool;

void pool_open(CompilerPool *pool, Allocator host);
void pool_close(CompilerPool *pool);   // ends the idle ones, and waits for all

// The program tilec: the environment variable TILEC_COMPILER, else as TilecCompileOptions.compiler says; NULL: not found.
const char *compiler_find(Arena *arena);

// ptxas, on PATH or in CUDA's usual folders; NULL: not found. It is searched here: a process has the environment of its start.
const char *assembler_find(Arena *arena);

typedef struct CompilerOptions {
    const char *path;     // of the program tilec; NULL: it was not found
    int64_t time_limit;   // milliseconds, for the message where `until` is over
    MessageWait until;
    void (*progress)(void *user, const char *phase);   // NULL: phases are not told
    void *progress_user;
} CompilerOptions;

// Asks an idle process, or a new one. *used is the process while it works: after leaving by the failure point, call
// compiler_end(used). False: reported.
bool compiler_ask(CompilerPool *pool, Arena *arena, DiagSink *sink, const CompilerOptions *options,
                  const CompileRequest *request, Compiler **used, CompileReply *reply);
// And all that it started. What takes long to end is waited for later. NULL is allowed.
void compiler_end(CompilerPool *pool, Compiler *compiler);
