// Executes kernels of any stage on the CPU: the reference that all tests compare with. emulator.c explains the method.
//
// In: a module, a function of any stage (kernel, program, reference) and its tensors; or a test. Out: the tensors' new
// contents, diagnostics of what was wrong (races, uninitialised reads, deadlocks, ...), and counts (EmuReport).
//
// Tile stage: each tile op acts on whole arrays; statements run in order. Thread stage: a CTA is warps of masked
// lanes that run interleaved by a seeded schedule; asynchronous copies land late; happens-before is tracked with vector
// clocks.
//
// Headers in the order of a run; each says what comes in, what goes out, and its files:
//
//     launch.h      tests and their inputs; arguments to dims; which variant runs; a machine for one launch
//     code.h        a function is compiled to instructions over slots (compile.h: what the compiler's files share)
//     machine.h     agents and CTAs: a random agent runs for a random time; reports
//     handlers.h    the table from op to handler
//     memory.h      places of elements, bounds, initialisation, bank conflicts
//     barriers.h    barriers, mbarriers, clusters
//     async.h       started tile ops, cp.async, TMA, wgmma
//     race.h        happens-before (race_impl.h: what its files share)
//     values.h      elements in memory and values in registers; random numbers
#pragma once
#include "ir/ir.h"

// A tensor argument: `data` holds size elements of `type` in the order of `strides` (elements). Not owned.
typedef struct EmuTensor {
    Type type;
    int rank;
    int64_t shape[LAYOUT_MAX_RANK], strides[LAYOUT_MAX_RANK];
    void *data;
    size_t bytes;
    uint8_t *initialised;   // one byte per element, or NULL: all are; uninitialised reads are reported
    const Buf *zeroed;      // the program's scratch that each kernel leaves zero; NULL: none
} EmuTensor;

typedef struct EmuArg {   // by parameter order
    EmuTensor *tensor;    // NULL for a scalar
    double real;          // scalar values: floats
    int64_t integer;      //                integers and bool
} EmuArg;

// Results of references, and inputs, for tests that run again with changed kernels (after each pass). Lives in the arena.
typedef struct EmuReferenceCache EmuReferenceCache;
EmuReferenceCache *emu_reference_cache_new(Arena *arena);
// To be called whenever the module may have changed, before its tests run: while its text stays the same, those that have
// passed do not run again. Without a call all run.
void emu_reference_cache_stage(EmuReferenceCache *cache, const Module *module);

// Kernels that launches may take: all variants that accept the arguments.
typedef struct EmuLaunches {
    Arena *arena;
    VEC(const Func *) kernels;
} EmuLaunches;

enum { EMU_MULTIPROCESSORS = 4 };   // few, so that small tests wrap around them

typedef struct EmuOptions {
    uint64_t seed;          // warp schedules, landing times
    uint64_t approximate;   // seed of results of approximate operations; 0: `seed`
    int64_t max_blocks;     // 0: all; else a sample of CTAs spread over the grid (first and last included)
    int multiprocessors;    // the value of sms(); 0: EMU_MULTIPROCESSORS
    bool races;             // happens-before checking (on by default in tests)
    const Target *target;   // banks, warp size
    int64_t max_steps;      // of a run, with all its CTAs and launches, before it is called endless; 0: 10^9
    EmuReferenceCache *reference_cache;   // of references; NULL: each test runs its reference
    EmuLaunches *launches;                // kernels are added to it, and do not run; NULL: they run
} EmuOptions;

typedef struct EmuSite {   // accesses to shared memory from one place of the source
    Span place;
    const char *buffer;
    int64_t accesses, conflicts;   // by warps; conflicts as below
} EmuSite;

typedef struct EmuReport {
    int64_t blocks, barriers, shared_accesses, conflicts;   // conflicts: extra wavefronts over all shared accesses
    int64_t sectors, shuffles;   // of plain accesses to global memory, by warps; and instructions that shuffle
    uint64_t steps;              // of work, as max_steps counts them (machine.h)
    double seconds;
    int site_count;
    const EmuSite *sites;        // in the module's arena, in order of the code (thread stage)
    VEC(const Func *) kernels;   // that were launched, each once
} EmuReport;

// Runs a kernel variant, or a program (its kernels are chosen by `when`), with these arguments. False when something
// was reported to the module's sink: race, uninitialised or out-of-range access, divergent barrier, deadlock, failed
// assert.
bool emulate_func(const Module *module, const Func *func, int count, const EmuArg *args, const EmuOptions *options,
                  EmuReport *report);
// Picks the first variant of `name` whose `when` and shapes hold for the arguments (or the program). NULL: none,
// reported.
const Func *emulate_choose(const Module *module, const char *name, int count, const EmuArg *args);
// Runs a reference (tensors of f64) or a test's fill block.
bool emulate_reference(const Module *module, const Func *reference, int count, const EmuArg *args);

// Runs one test whole: binds, fills inputs (seeded N(0,1)), poisons outputs, runs, compares with the reference.
typedef struct EmuTestResult {
    bool passed;
    double worst;      // largest |got - want| / (|want| + rms(want))
    const char *why;   // what failed, in the arena; NULL when passed
    EmuReport report;
} EmuTestResult;
bool emulate_test(const Module *module, const Test *test, const EmuOptions *options, EmuTestResult *result);
// (scatters.c) Whether some `parallel` loop writes elements that data names. That its iterations meet in one (T0707) shows at the tile stage alone: once
// they are spread over threads, those of one thread do not race.
bool emulate_has_scatters(Arena *arena, const Module *module);
// Adds the kernels that a test may launch, also after passes: these only add conditions, and variants of the same kernel.
// False: not known, as the test cannot run.
bool emulate_launches(const Module *module, const Test *test, const EmuOptions *options, EmuLaunches *launches);

// Pieces of a test for other runners (the GPU's): arguments with filled inputs and poisoned outputs, the reference's
// outputs, and the comparison.
typedef struct TestCase {
    int count;
    EmuArg *args;   // what the kernel gets
    EmuArg *want;   // the reference's tensors (f64), outputs computed
} TestCase;
bool test_case_make(const Module *module, const Test *test, const EmuOptions *options, TestCase *out);
// Makes one tensor of the n-th (from 1) read-only parameter with an @alias and the one it names; NULL: there is none,
// else how it is said of a failure.
const char *test_case_share(const Module *module, const Test *test, int n, TestCase *test_case);
bool test_case_reference(const Module *module, const Test *test, const EmuOptions *options, TestCase *test_case);
bool test_case_compare(const Module *module, const Test *test, const TestCase *test_case, EmuTestResult *result);
