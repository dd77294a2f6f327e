// Compiling in another process: the library's side and the other one.
//
// In: a CompileRequest of tilec_compile or tilec_emulate. Out: a CompileReply. Errors: diagnostics of the reply; what the process did
// instead of replying is the library's to report. docs/design/decisions.md says why a process. The files of runtime/worker/:
//
//     message      requests and replies as bytes, sent through a socket
//     compiler     the library's side: finds `tilec`, keeps processes, asks them
//     emulate      runs a kernel on the emulator, for serve
//     serve        `tilec serve-compiles`, the other side; with emulate the only file that needs the compiler
#pragma once
#include "runtime/compile/record.h"
#include "support/strbuf.h"
#include "tilec/tilec.h"
#include <sched.h>

// A kernel to run on the emulator, with its arguments.
typedef struct SentArgument {
    TilecArg arg;       // `data` is an address of the caller
    int64_t same;       // index of an earlier argument at the same address; -1: none
    const void *data;   // from element [0, ..., 0] to the last one; NULL: a scalar, or no element
    size_t size;
} SentArgument;

typedef struct Emulation {
    const char *kernel;   // NULL: none is run
    int64_t seed, max_steps;
    int64_t count;
    const SentArgument *args;
} Emulation;

// All that decides what a compile gives, but for the files that the source imports, and the programs.
typedef struct CompileRequest {
    const char *name, *text;   // of the source
    size_t length;
    const char *folder;                                                     // the caller's working folder
    const char *target, *only, *ptxas, *record, *repro_dir, *import_root;   // NULL where nothing is given
    const char *print_after, *layouts, *independent;                        // as TilecCompileOptions has them
    const char *record_text;                                                // what is in the file `record`
    size_t record_length;
    int64_t define_count;
    const TilecDefine *defines;
    int64_t optimize;   // 0, 1, 2
    int64_t lines, assemble, remarks, pdl;
    int64_t phases;            // says when each begins
    int64_t declarations;      // only what the source declares is asked for
    int64_t for_shape;         // `shape` is the only one that the code will run with
    int64_t multiprocessors;   // of the device of that launch; 0: as many as the target has
    int64_t variants;          // tiles of a kernel at most; 0: as few as pay
    int64_t for_launch;        // only what the launch of `kernel` takes is compiled, with `args`, else by `shape`
    int64_t shape_count;
    const RecordValue *shape;
    const char *kernel;   // NULL: the first
    int64_t arg_count;
    const SentArgument *args;      // without data
    Emulation emulation;           // in the place of a compile
    int64_t memory_limit;          // bytes; 0: none
    const cpu_set_t *processors;   // NULL: as they are
} CompileRequest;

typedef struct CompileImport {   // a file that was read, and what was in it
    const char *path;            // relative to the folder of the request, or absolute
    const char *text;
    size_t length;
} CompileImport;

typedef struct SentOutput {   // the tensor of an argument after the emulation
    int64_t index;
    const void *data;
    size_t size;
} SentOutput;

typedef struct CompileReply {
    int64_t status;
    const char *ptx, *manifest;
    const char *listing, *layouts;   // NULL: not asked for
    const void *cubin;               // with its plan; NULL: not assembled
    size_t cubin_size;
    const char *diagnostics;   // all of them, for reply_diagnostics; NULL: there was no memory for more than the status
    size_t diagnostics_size;
    int64_t import_count;
    const CompileImport *imports;
    int64_t output_count;
    const SentOutput *outputs;   // of an emulation
} CompileReply;

void request_write(const CompileRequest *request, StrBuf *out);
void reply_write(const CompileReply *reply, StrBuf *out);
// What they return points into `data`. False: it is no such message.
bool request_read(Arena *arena, const char *data, size_t size, CompileRequest *out);
bool reply_read(Arena *arena, const char *data, size_t size, CompileReply *out);
// Adds the diagnostics of the reply to `sink`. False: they are damaged.
bool reply_diagnostics(const CompileReply *reply, DiagSink *sink);

// A message over a socket, behind a line that names the version of tilec. Never raises SIGPIPE.
typedef enum { MESSAGE_COMPLETE, MESSAGE_CLOSED, MESSAGE_LATE, MESSAGE_CANCELLED, MESSAGE_OTHER_VERSION } MessageEnd;

typedef struct MessageWait {         // what ends waiting for the other side; all zero: that side alone
    int64_t deadline;                // on the monotonic clock, in milliseconds; 0: none
    bool (*cancelled)(void *user);   // asked every 10 ms; NULL: never
    void *cancelled_user;
} MessageWait;

typedef enum { MESSAGE_WHOLE, MESSAGE_PHASE } MessageKind;   // a request or a reply; the name of a phase that begins

typedef struct Message {
    MessageKind kind;
    const char *data;   // a zero follows
    size_t size;
} Message;

MessageEnd message_send(int fd, const MessageWait *until, MessageKind kind, const char *data, size_t size);
MessageEnd message_receive(Arena *arena, int fd, const MessageWait *until, Message *out);
int64_t milliseconds_now(void);
