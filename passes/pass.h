// The contract of a pass, the registry, and the runner.
//
// A pass transforms one kernel in place and says whether it changed anything. The runner does the rest: timing,
// verifying, dumping, round-tripping, emulating, bisecting. Every pass is idempotent, so any dump can be resumed.
#pragma once
#include "ir/ir.h"
#include "ir/print.h"
#include "target/target.h"
#include <stdio.h>

typedef struct PassContext {
    Module *module;
    Arena *arena;   // the module's
    Failure *failure;
    DiagSink *sink;
    const Target *target;
    bool remarks;   // -R: passes explain what they declined
    VEC(Func *)
    variants;             // kernels a pass adds, placed after the one it was given, those of tiles after the last tile
    const Func *kernel;   // the one it was given
} PassContext;

typedef bool (*PassFn)(PassContext *context, Func *kernel);

// What a pass may rely on, as bits 1 << PRE_x (preconditions.def).
typedef enum {
#define PRECONDITION(NAME, text, check) PRE_##NAME,
#include "passes/preconditions.def"
#undef PRECONDITION
    PRE_COUNT
} Precondition;
const char *precondition_text(Precondition which);
// The first statement that breaks it; NULL: it holds.
const Stmt *precondition_broken(Precondition which, const PassContext *context, const Func *kernel);

typedef struct Pass {
    const char *name;
    Stage from, to;
    const char *needs;     // passes that must have run before, space separated
    int relies;            // on these preconditions
    const char *results;   // "": outputs stay the same, to the bit; else how they may differ
    const char *summary;   // one sentence
    PassFn run;
} Pass;

const Pass *pass_named(const char *name);
const Pass *pass_at(int index);   // NULL past the end; in pipeline order

// ---- the runner ----
// The runner gets the parser and the emulator as callbacks, since passes/ may include neither.
typedef struct PassHooks {
    // Parses and verifies text into a fresh module (for --roundtrip-each). NULL: errors are in `sink`.
    Module *(*parse)(void *user, Arena *arena, Failure *failure, DiagSink *sink, const char *name, const char *text);
    // Runs the module's tests on the emulator (for --emulate-each); false when one fails, with *why.
    bool (*emulate)(void *user, Module *module, const char *after_pass, const char **why);
    void (*begin)(void *user, const char *pass);   // called before each pass of the plan
    void *user;
} PassHooks;

typedef struct PassOptions {
    const char *passes;                       // NULL: the whole pipeline; else comma-separated names
    const char *print_before, *print_after;   // pass name or "all"
    const char *print_kernel;                 // prints kernels of this name only; NULL: all
    const char *stop_after;
    const char *dump_dir;   // NNN-pass.tile files
    bool print_changed, verify_each, roundtrip_each, emulate_each, time_passes, remarks, places;
    const Func *const *left_out;   // kernels that stay as they are
    int left_out_count;
    int bisect_limit;   // run only the first n pass executions; -1: all
    FILE *talk;         // where dumps and timings go (stderr); not owned
} PassOptions;

// True when all went well; otherwise diagnostics are in the module's sink.
bool run_passes(Module *module, const Target *target, const PassOptions *options, const PassHooks *hooks);
const char *kernel_text(const Module *module, const Func *kernel, PrintOptions options);
// T0511, if the kernel has another text than before the pass.
void report_hidden_change(const PassContext *context, const char *pass, const char *before);
void passes_document(StrBuf *out);   // docs/reference/passes.md from the registry

// ---- the passes: the function of each row, one file each ----
#define PASS(suffix, ...) bool pass_##suffix(PassContext *context, Func *kernel);
#include "passes/passes.def"
