// Runs the tests of a file, on the emulator or on the device, and prints a line for each.
//
// Tests with equal consts and tunables form a choice and share one elaboration. The caller lowers or compiles the
// module of a choice (TestHooks), so that this file needs neither passes nor LLVM: tilec-gpu links it too.
#pragma once
#include "runtime/compile/load_module.h"
#include "runtime/device/device.h"
#include "runtime/plan/plan.h"
#include <stdio.h>

typedef struct TestChoice {
    int index;
    int define_count;   // the choice's values, then the user's -D
    const Define *defines;
} TestChoice;

typedef struct TestHooks {
    // Emulator: lowers the module; NULL: it stays at the tile stage. False: reported. Sets `reference_cache` (NULL
    // before) to the cache of reference results, if it made one.
    bool (*lower)(void *user, Module *module, EmuReferenceCache **reference_cache);
    // Device: the artefact of a choice. False: reported.
    bool (*artefact)(void *user, Loader *loader, Arena *arena, const TestChoice *choice, const Plan **plan,
                     const void **cubin);
    void *user;
} TestHooks;

typedef struct TestOutcome {
    const char *file, *name;   // "vector_add (N = 4096)"
    bool passed;
    bool error;        // of the whole file, which could not be tested; `name` is ""
    const char *why;   // it failed; NULL: see the errors
    double worst, tolerance, seconds;
} TestOutcome;

typedef VEC(TestOutcome) TestOutcomes;

typedef struct TestOptions {
    bool on_gpu;
    uint64_t seed;
    int64_t max_steps;   // of the emulator; 0: its default
    const char *only;    // run only the tests of this kernel or program; NULL: all
    int define_count;
    const Define *defines;
    TestHooks hooks;
    bool verbose;             // also print the counters of the emulator
    bool no_guards;           // device: no guard zones, so that compute-sanitizer reports every access out of bounds
    FILE *out;                // gets a line per test
    bool json;                // the line is an object
    TestOutcomes *outcomes;   // adds one per test, in the loader's arena; NULL: they are not wanted
} TestOptions;

typedef struct TestCounts {
    int passed, failed;
} TestCounts;

// An outcome as an object, on a line.
void test_outcome_json(const TestOutcome *outcome, StrBuf *out);

// Runs the tests of a file and adds to the counts. False: an error other than a failed test, reported.
bool test_file(Loader *loader, const char *path, const TestOptions *options, TestCounts *counts);

// Calls `visit` for each choice of the file until it returns false.
bool test_choices(Loader *loader, int define_count, const Define *defines,
                  bool (*visit)(void *user, const TestChoice *choice), void *user);

// "FOLDER/gemm.0.cubin": the artefact of a choice, written by --compile-only and read by --compiled.
char *test_compiled_path(Arena *arena, const char *folder, const char *source, int choice);

// Reads an artefact and its plan. False: reported.
bool artefact_read(Arena *arena, Failure *failure, DiagSink *sink, const char *path, const Plan **plan,
                   const void **cubin, size_t *size);
