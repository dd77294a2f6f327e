// Measures the combinations of a kernel's tunables on the device.
//
// Threads compile one combination after the other, through the public API, while the calling thread runs what is ready, in
// order. Each combination's outputs are compared with the first's that ran; what writes outside its tensors, gives another
// result or fails is discarded with a reason, and does not end the tuning: after a device fault the context is made anew.
#pragma once
#include "support/fail.h"
#include "tools/bench.h"

typedef struct TuneResult {
    RecordValues tuned;
    const char *text;   // "BM = 128, BN = 64"
    bool too_large;     // does not fit the target
    const char *why;    // discarded; NULL: measured, or too large
    Spread time;
} TuneResult;

typedef struct TuneJob {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    const char *path, *source;   // the file and its text
    size_t length;
    const char *target, *ptxas;
    int define_count;   // the user's
    const Define *defines;
    const Func *func;   // the kernel, and arguments for it
    const EmuArg *args;
    double tolerance;   // as a test's
    int threads;
    BenchOptions bench;
    int count;             // combinations
    TuneResult *results;   // [count], `tuned` and `text` given
    void (*progress)(void *user, int done);
    void *user;
    const char *device;   // out: its name
} TuneJob;

// False: the device cannot be used, reported.
bool tune_run(TuneJob *job);
