// Measures the combinations of a kernel's tunables on the device.
//
// Threads compile the combinations through the public API, while the calling thread measures those that are ready, in
// order. The outputs of each combination are compared with those of the first. A combination that fails, gives another
// result or writes out of bounds is discarded with a reason; after a device fault the context is re-created and tuning
// continues. Each result goes to the host's record when it is there; what the record has is not measured again.
#pragma once
#include "support/fail.h"
#include "tools/bench.h"
#include "tools/measurements.h"

typedef struct TuneResult {
    RecordValues tuned;
    const char *text;   // "BM = 128, BN = 64"
    RecordValues all;   // `tuned`, and the tunables that -D fixes
    bool too_large;     // exceeds the resources of the target
    bool known;         // from the record
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
    Measurements *record;
    bool anew;           // measures what the record has, too
    RecordEntry entry;   // what all measurements have in common: kernel, text, target, shape, method, tilec
    const Func *func;    // the kernel and its arguments
    const EmuArg *args;
    double tolerance;   // relative error that is allowed between combinations
    int threads;
    BenchOptions bench;
    int count;             // combinations
    TuneResult *results;   // [count], `tuned` and `text` given
    void (*progress)(void *user, int done);
    void *user;
} TuneJob;

// Fills `results`, and device, driver and clocks of `entry`. False: the device or the record is not usable, reported.
bool tune_run(TuneJob *job);
