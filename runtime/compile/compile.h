// The compile pipeline: module -> passes -> PTX -> cubin -> launch plan. Needs LLVM (through codegen).
#pragma once
#include "codegen/codegen.h"
#include "emulator/emulator.h"
#include "passes/pass.h"
#include "runtime/compile/load_module.h"
#include "runtime/plan/plan.h"

typedef enum { UPTO_MODULE, UPTO_PASSES, UPTO_PTX, UPTO_CUBIN } Upto;

typedef struct CompileOptions {
    const Target *target;
    int define_count;
    const Define *defines;
    const char *only;     // this kernel or program; NULL: all
    PassOptions passes;   // zero but for bisect_limit = -1 is the usual pipeline; see compile_options()
    int optimize;         // LLVM: 0, 1, 2
    bool lines;           // source places of instructions
    bool llvm;            // keep LLVM's IR as text
    const char *ptxas;
    uint64_t seed;         // of --emulate-each
    EmuAnswers *answers;   // for it, to be used again; NULL: its own
    Upto upto;
} CompileOptions;

CompileOptions compile_options(const Target *target);

typedef struct CompileTimes {
    double parse, elaborate, passes, llvm, assemble;   // seconds
    double build, optimize, emit;                      // LLVM's, of all threads together
} CompileTimes;

typedef struct Compiled {
    Module *module;   // after the passes
    const char *ptx, *llvm;
    Cubin cubin;   // as the assembler made it
    const Plan *plan;
    const char *manifest;    // the plan as JSON
    const uint8_t *packed;   // the cubin with the plan in it
    size_t packed_size;
    CompileTimes times;
} Compiled;

// Compiles what `front` holds; everything is put into `arena`. False: reported.
bool compile(Loader *loader, Arena *arena, const CompileOptions *options, Compiled *out);

// Runs the passes on a module with the parser and the emulator as hooks. False: reported.
bool run_pipeline(Module *module, const CompileOptions *options);

// Per kernel variant: condition, threads, shared memory, registers, spills. For people.
void report_resources(const Plan *plan, StrBuf *out);
void report_times(const CompileTimes *times, int kernels, StrBuf *out);
void report_passes(StrBuf *out);   // the pipeline, a line for each pass
// The assembler that a compile would use, tried on an empty kernel. `ptxas`: its path; NULL: search.
void report_assembler(Arena *arena, Failure *failure, const char *ptxas, StrBuf *out);
