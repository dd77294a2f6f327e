// Measures the combinations of a kernel's tunables on the device.
//
// Threads compile the combinations through the public API, while the calling thread measures those that are ready, in
// order. The outputs of each combination are compared with those of the first. A combination that fails, gives another
// result or writes out of bounds is discarded with a reason; after a device fault the context is re-created and tuning
// continues.
#pragma once
#include "support/fail.h"
#include "tools/bench.h"

typedef struct TuneResult {
    RecordValues tuned;
    const char *text;   // "BM = 128, BN = 64"
    bool too_large;     // exceeds the resources of the target
    const char *why;    // the reason for discarding it; NULL: measured, or too large
    Spread time;
} TuneResult;

typedef struct TuneJob {
    Arena *arena;
    Failure *failure;
    DiagSink *sink;
    const char *path, *source;   // the file and its text
    size_t length;
    const char *target, *ptxas;
    int define_count;   // -D
    const Define *defines;
    const Func *func;   // the kernel and its arguments
    const EmuArg *args;
    double tolerance;   // relative error that is allowed between combinations
    int threads;
    BenchOptions bench;
    int count;             // combinations
    TuneResult *results;   // [count], `tuned` and `text` given
    void (*progress)(void *user, int done);
    void *user;
    const char *device;   // out: name of the device
} TuneJob;

// False: the device is not usable, reported.
bool tune_run(TuneJob *job);
