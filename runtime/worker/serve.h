// `tilec serve-compiles`: compiles what the library asks for through a socket, until that is closed.
#pragma once
#include "runtime/api/api.h"
#include "runtime/compile/compile.h"
#include "runtime/worker/message.h"

typedef struct Answer {
    Job job;
    const CompileRequest *request;
    PhaseHook phases;
    Arena *arena;   // of what the reply points to
    CompileReply reply;
} Answer;

// Compiles in this process. The reply is there until answer_free.
void answer_request(const CompileRequest *request, PhaseHook phases, Answer *out);
void answer_free(Answer *answer);

bool can_serve(int fd);           // it is a socket
int serve_compiles(int socket);   // the exit code
