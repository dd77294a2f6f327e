// The command line: what the commands share.
//
// In: arguments of the process. Out: files and standard output, diagnostics on standard error, an exit code
// (TilecStatus). tools/ includes the public header, runtime/ and support/ only. Its files:
//
//     main                        parses options, runs a command, prints diagnostics
//     commands.def, options.def   the tables of commands and options
//     options, help, completion   parsing; --help, manual, docs/reference/cli.md; completion for shells
//     tool                        defines, targets, tuning record, output
//     subject                     the kernel that run, bench and tune work on
//     cmd_*                       one file per command or group of commands
//     ask                         compiles that the compile cache may have
//     pass_flags                  options for work on the compiler
//     test_runner, test_jobs      runs the tests of a file; files in processes, JUnit (test)
//     bench, bench_flags          times a launch on the device (bench, tune)
//     source, format              a text as tokens and brackets; its standard form (fmt, reduce)
//     tune                        times all combinations of tunables (tune)
//     measurements                the tuning record of a host (tune)
//     lsp/                        serves editors: messages, document (open files), requests, cmd_lsp (the loop)
//     reduce/                     makes a failing program small: edits, oracle (the command), cmd_reduce
#pragma once
#include "runtime/compile/load_module.h"
#include "tools/options.h"
#include <stdio.h>

typedef struct Tool {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    Options options;
    int shown;   // number of diagnostics already printed
    int lost;    // errno of the first failed write to standard output; 0: none failed
} Tool;

// A command returns true on success; else the diagnostics give the reason. A failed test is no diagnostic: `*code` is
// then the exit code.
typedef bool (*CommandFn)(Tool *tool, int *code);

bool command_build(Tool *tool, int *code);
bool command_test(Tool *tool, int *code);
bool command_run(Tool *tool, int *code);
bool command_bench(Tool *tool, int *code);
bool command_tune(Tool *tool, int *code);
bool command_opt(Tool *tool, int *code);
bool command_reduce(Tool *tool, int *code);
bool command_fmt(Tool *tool, int *code);
bool command_lsp(Tool *tool, int *code);
bool command_passes(Tool *tool, int *code);
bool command_targets(Tool *tool, int *code);
bool command_layout(Tool *tool, int *code);
bool command_explain(Tool *tool, int *code);
bool command_doctor(Tool *tool, int *code);
bool command_docs(Tool *tool, int *code);
bool command_cache(Tool *tool, int *code);

// ---- pieces (tool.c) ----
void tool_versions(Tool *tool, StrBuf *out);   // lines for tool_pairs: what a report of a bug needs
void tool_flush(Tool *tool);                   // standard output
void tool_show(Tool *tool);                    // prints new diagnostics to stderr
const char *tool_file(Tool *tool);             // the only operand; NULL: reported
bool tool_usage(Tool *tool, const char *format, ...) __attribute__((format(printf, 2, 3)));   // reports, returns false
// -D options, in order. False: reported.
bool tool_defines(Tool *tool, int *count, const Define **defines);
// The values of --for, with the kernel of --only. NULL: it is not given, or (*ok is false) reported.
const LaunchFor *tool_launch(Tool *tool, bool *ok);
// --target, a comma-separated list; `otherwise`: the default. The result is NULL-terminated; NULL: reported.
const Target **tool_targets(Tool *tool, const char *otherwise);
const Target *tool_target(Tool *tool, const char *otherwise);   // exactly one
// Prints lines of a name, blanks and a value (a name has single blanks at most); with --json as one object of texts and integers.
bool tool_pairs(Tool *tool, const StrBuf *lines);
bool tool_write(Tool *tool, const char *path, const StrBuf *text);
// Writes what a command makes. With --json an object says where it is, or, in the place of standard output, holds it; `members`
// are further ones of the object: "" or `"target": "sm_90a", `.
bool tool_product(Tool *tool, const char *path, const char *members, const StrBuf *text);
// Reads the tuning record for a file: --record, else TILEC_RECORD, else FILE.tune; `none`: no record. False: reported.
bool tool_record(Tool *tool, const char *source, Loader *loader);
// Its path, whether or not it exists; NULL: none. *named: the user gave the path.
const char *tool_record_path(Tool *tool, const char *source, bool *named);
// Of the emulator: --max-steps, else TILEC_MAX_STEPS, else 0: its default. False: reported.
bool tool_max_steps(Tool *tool, int64_t *steps);
bool tool_variants(Tool *tool, int *count);   // --variants; 0: not given. False: reported
bool tool_place(Tool *tool, bool *on_gpu);    // --device; refuses what the emulator would ignore
Loader tool_loader(Tool *tool, const Target *target);
