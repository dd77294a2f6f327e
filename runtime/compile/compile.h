// The compile pipeline, from source text to a cubin that carries its launch plan.
//
// In: a source file, a target, -D defines, a tuning record. Out: PTX, cubin, launch plan (Compiled), diagnostics in a
// sink. The files of runtime/compile/, in the order of the pipeline:
//
//     load_module      parse, elaborate, search tiles, merge variants, prune, verify: source text -> Module
//     record           the tuning record: measured tunables, as a text file
//     load_recorded    adds the tiles of the tuning record to a module
//     prune_variants   drops variants that the target cannot run
//     chosen           drops variants that one launch does not take
//     compile          passes -> codegen -> ptxas -> launch plan -> container; reports for -v
//     layouts          the report of --emit=layouts
//
// compile.c needs LLVM (through codegen/); tilec-gpu is linked without it. The rest needs no LLVM.
#pragma once
#include "codegen/codegen.h"
#include "emulator/emulator.h"
#include "passes/pass.h"
#include "runtime/compile/load_module.h"
#include "runtime/plan/plan.h"

typedef struct PhaseHook {
    void (*begin)(void *user, const char *phase);   // NULL: not told
    void *user;
} PhaseHook;

typedef enum { UPTO_MODULE, UPTO_PASSES, UPTO_PTX, UPTO_CUBIN } Upto;

typedef struct CompileOptions {
    const Target *target;
    int define_count;
    const Define *defines;
    const char *only;     // compile this kernel or program alone; NULL: all
    const char *repro;    // FOLDER/NAME of reproducers (runtime/compile/repro.h); NULL: none are written
    PassOptions passes;   // all zero, with bisect_limit = -1, is the default pipeline: compile_options()
    int optimize;         // LLVM: 0, 1, 2
    bool lines;           // emit a line table
    bool llvm;            // keep the LLVM IR as text
    bool pdl;             // every grid is `@pdl`
    const char
        *independent;   // tensors of kernels, separated by commas, that are `@independent`; NULL: as the source says
    const char *ptxas;
    uint64_t seed;                        // of --emulate-each
    int64_t max_steps;                    // of its emulator; 0: the default
    bool tested_only;                     // passes leave out kernels that no test of the module may launch
    EmuReferenceCache *reference_cache;   // reference results, shared by several runs; NULL: none are shared
    Upto upto;
    PhaseHook phases;   // "elaborate", "passes", "codegen", "ptxas"
} CompileOptions;

CompileOptions compile_options(const Target *target);

typedef struct CompileTimes {
    double parse, elaborate, passes, llvm, assemble;   // wall-clock seconds of each phase
    double build, optimize, emit;                      // seconds in LLVM, summed over threads
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

// Compiles the source that `loader` opened. The result lies in `arena`. False: reported.
bool compile(Loader *loader, Arena *arena, const CompileOptions *options, Compiled *out);

// Runs the passes on a module with the parser and the emulator as hooks. False: reported.
bool run_pipeline(Module *module, const CompileOptions *options);

// For -v: condition, threads, shared memory, registers and spills of each kernel variant.
void report_resources(const Plan *plan, StrBuf *out);
void report_times(const CompileTimes *times, int kernels, StrBuf *out);
void report_passes(bool json, StrBuf *out);   // the pipeline, a line for each pass
// LLVM and the assembler, for --version and doctor.
void report_llvm(Arena *arena, StrBuf *out);
// The assembler that a compile would use, tried on an empty kernel. `ptxas`: its path; NULL: search.
void report_assembler(Arena *arena, Failure *failure, const char *ptxas, StrBuf *out);
