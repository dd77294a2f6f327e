// What the commands share: one run of `tilec`.
#pragma once
#include "runtime/compile/load_module.h"
#include "tools/options.h"
#include <stdio.h>

typedef struct Tool {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    Options options;
    int shown;   // diagnostics printed so far
    int lost;    // errno of the first time that standard output took no more; 0: it has all
} Tool;

// Each command returns true when all went well; else the diagnostics say what did not. A failing test is no diagnostic:
// `*code` is then the exit code.
typedef bool (*CommandFn)(Tool *tool, int *code);

bool command_build(Tool *tool, int *code);
bool command_test(Tool *tool, int *code);
bool command_run(Tool *tool, int *code);
bool command_bench(Tool *tool, int *code);
bool command_tune(Tool *tool, int *code);
bool command_opt(Tool *tool, int *code);
bool command_reduce(Tool *tool, int *code);
bool command_passes(Tool *tool, int *code);
bool command_targets(Tool *tool, int *code);
bool command_layout(Tool *tool, int *code);
bool command_explain(Tool *tool, int *code);
bool command_doctor(Tool *tool, int *code);
bool command_docs(Tool *tool, int *code);

// ---- pieces (tool.c) ----
void tool_flush(Tool *tool);         // standard output
void tool_show(Tool *tool);          // prints the diagnostics that were not printed yet, to stderr
const char *tool_file(Tool *tool);   // the one operand; NULL: reported
bool tool_usage(Tool *tool, const char *format, ...) __attribute__((format(printf, 2, 3)));   // reports; false
// -D options, in order. False: reported.
bool tool_defines(Tool *tool, int *count, const Define **defines);
// --target, several separated by commas; `otherwise` when not given. NULL-terminated. NULL: reported.
const Target **tool_targets(Tool *tool, const char *otherwise);
const Target *tool_target(Tool *tool, const char *otherwise);   // exactly one
bool tool_write(Tool *tool, const char *path, const StrBuf *text);
// The tuning record for a file: --record, else TILEC_RECORD, else the one beside it; `none` is none. False: reported.
bool tool_record(Tool *tool, const char *source, Loader *loader);
// Where it is, whether or not it exists; NULL: none.
const char *tool_record_path(Tool *tool, const char *source, bool *named);
Loader tool_loader(Tool *tool, const Target *target);
