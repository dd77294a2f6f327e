// A compile whose products alone are wanted: what the compile cache has, else what this process makes.
#pragma once
#include "runtime/worker/serve.h"
#include "tools/tool.h"

typedef struct Ask {
    CompileRequest request;
    CompileReply reply;   // until ask_end
    Answer answer;        // empty: the reply is from the cache
} Ask;

// A request with what the command line says of any compile. False: reported.
bool ask_open(Tool *tool, const char *path, const Target *target, Ask *out);
// Adds the tuning record: --record, else TILEC_RECORD, else FILE.tune. False: reported.
bool ask_record(Tool *tool, const char *path, Ask *ask);
// What was said goes to the tool's sink, also where it was said in an earlier compile. False: reply.status is why.
bool ask(Tool *tool, Ask *ask);
void ask_end(Ask *ask);
