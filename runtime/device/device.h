// Tensors of the host as arguments on the device: for `tilec bench`, and `tilec test` and `tilec run` with --on=gpu.
#pragma once
#include "emulator/emulator.h"
#include "runtime/device/module.h"

typedef struct Upload Upload;
typedef struct DeviceArgs {
    int count;
    LaunchArg *launch;   // [count] what a launch takes
    Upload *uploads;     // [count] memory of the tensors
} DeviceArgs;

// Copies arguments over; with `guards` each tensor lies between two zones that nothing may write. Free them either way.
// False: reported.
bool device_upload(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, bool guards,
                   int count, const EmuArg *args, DeviceArgs *out);
void device_free(const DeviceModule *loaded, DeviceArgs *args);

typedef struct DeviceRun {
    const DeviceModule *loaded;
    const PlanEntry *entry;
    bool no_guards;        // no guard zones around the tensors
    double seconds;        // out: time on the device
    const char *outside;   // out: "it wrote outside 'C'", when a guard zone was written; else NULL
} DeviceRun;

// Launches with arguments that lie in host memory and waits: copies tensors over, runs, copies them back. A device
// keeps no marks of what was written: `initialised` of the tensors becomes NULL. False: reported (a driver error,
// arguments that do not fit).
bool device_run(Arena *arena, DiagSink *sink, DeviceRun *run, int count, const EmuArg *args);
