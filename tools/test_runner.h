// The tests of a file, on the emulator or on the device, one line each.
//
// A file's tests fall into choices: those that need the same consts and tunables share one elaboration. For each choice
// the module is made anew; what happens to it before its tests run is up to the caller (callbacks), so that this file
// needs neither passes nor LLVM and the small runner for GPU machines can share it.
#pragma once
#include "runtime/compile/load_module.h"
#include "runtime/device/device.h"
#include "runtime/plan/plan.h"
#include <stdio.h>

typedef struct TestChoice {
    int index;
    int define_count;   // the user's and the choice's
    const Define *defines;
} TestChoice;

typedef struct TestHooks {
    // Emulator: lowers the module (or leaves it at tile stage: NULL). False: reported. `answers`: of references that were asked
    // meanwhile (NULL before).
    bool (*lower)(void *user, Module *module, EmuAnswers **answers);
    // Device: the artefact of a choice. False: reported.
    bool (*artefact)(void *user, Loader *loader, Arena *arena, const TestChoice *choice, const Plan **plan,
                     const void **cubin);
    void *user;
} TestHooks;

typedef struct TestOptions {
    bool on_gpu;
    uint64_t seed;
    const char *only;   // tests of this kernel or program; NULL: all
    int define_count;
    const Define *defines;
    TestHooks hooks;
    bool verbose;     // what the emulator counted, too
    bool no_guards;   // device: nothing around the tensors, so that compute-sanitizer sees every access outside them
    FILE *out;        // a line per test
} TestOptions;

typedef struct TestCounts {
    int passed, failed;
} TestCounts;

// Runs the tests and adds to the counts. False: something beside the tests went wrong, and was reported.
bool test_file(Loader *loader, const TestOptions *options, TestCounts *counts);

// Calls `visit` for every choice of the file; stops at the first false.
bool test_choices(Loader *loader, int define_count, const Define *defines,
                  bool (*visit)(void *user, const TestChoice *choice), void *user);

// "DIR/gemm.0.cubin": where --prepare puts the artefact of a choice and --prepared finds it.
char *test_prepared_path(Arena *arena, const char *folder, const char *source, int choice);

// Opens an artefact: reads the file and its plan. False: reported.
bool artefact_read(Arena *arena, Failure *failure, DiagSink *sink, const char *path, const Plan **plan,
                   const void **cubin, size_t *size);
