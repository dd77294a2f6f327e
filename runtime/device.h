// Tensors of the host as arguments on the device: for `tilec test --on=gpu` and `tilec run --on=gpu`.
#pragma once
#include "emulator/emulator.h"
#include "runtime/loaded.h"

typedef struct DeviceRun {
    const Loaded *loaded;
    const PlanEntry *entry;
    bool no_guards;        // no guard zones around the tensors
    double seconds;        // out: time on the device
    const char *outside;   // out: "it wrote outside 'C'", when a guard zone was written; else NULL
} DeviceRun;

// Launches with arguments that lie in host memory and waits: copies tensors over, runs, copies them back. A device
// keeps no marks of what was written: `initialised` of the tensors becomes NULL. False: reported (a driver error,
// arguments that do not fit).
bool device_run(Arena *arena, DiagSink *sink, DeviceRun *run, int count, const EmuArg *args);
