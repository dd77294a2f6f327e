// Compiling in another process: the library's side and the other one.
//
// In: a CompileRequest of tilec_compile. Out: a CompileReply. Errors: diagnostics of the reply; what the process did
// instead of replying is the library's to report. docs/decisions.md says why a process. The files of runtime/worker/:
//
//     message      requests and replies as bytes, sent through a socket
//     compiler     the library's side: finds `tilec`, keeps processes, asks them
//     serve        `tilec serve-compiles`, the other side; the only file that needs the compiler
#pragma once
#include "support/strbuf.h"
#include "tilec/tilec.h"
#include <sched.h>

typedef struct CompileRequest {
    const char *name, *text;   // of the source
    size_t length;
    const char *folder;                                                     // the caller's working folder
    const char *target, *only, *ptxas, *record, *repro_dir, *import_root;   // NULL where nothing is given
    int64_t define_count;
    const TilecDefine *defines;
    int64_t optimize, lines, assemble;
    int64_t memory_limit;   // bytes; 0: none
    const cpu_set_t *processors;
} CompileRequest;

typedef struct CompileReply {
    int64_t status;
    const char *ptx, *manifest;
    const void *cubin;
    size_t cubin_size;
    int64_t count;   // of diagnostics
    const TilecDiagnostic *diagnostics;
    const char *text, *json;   // all of them
} CompileReply;

void request_write(const CompileRequest *request, StrBuf *out);
void reply_write(const CompileReply *reply, StrBuf *out);
// What they return points into `data`. False: it is no such message.
bool request_read(Arena *arena, const char *data, size_t size, CompileRequest *out);
bool reply_read(Arena *arena, const char *data, size_t size, CompileReply *out);

// A message over a socket, behind a line that names the version of tilec. Never raises SIGPIPE.
typedef enum { MESSAGE_COMPLETE, MESSAGE_CLOSED, MESSAGE_LATE, MESSAGE_CANCELLED, MESSAGE_OTHER_VERSION } MessageEnd;

typedef struct MessageWait {         // what ends waiting for a message; all zero: its sender alone
    int64_t deadline;                // on the monotonic clock, in milliseconds; 0: none
    bool (*cancelled)(void *user);   // asked every 20 ms; NULL: never
    void *cancelled_user;
} MessageWait;

bool message_send(int fd, const char *data, size_t size);
MessageEnd message_receive(Arena *arena, int fd, const MessageWait *until, const char **data, size_t *size);
int64_t milliseconds_now(void);
