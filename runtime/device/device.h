// Host tensors as device arguments, for `tilec bench` and for `tilec test` and `tilec run` with --device=gpu.
#pragma once
#include "emulator/emulator.h"
#include "runtime/device/module.h"

typedef struct Upload Upload;
typedef struct DeviceArgs {
    int count;
    LaunchArg *launch;   // [count] arguments of the launch
    Upload *uploads;     // [count] device memory of the tensors
} DeviceArgs;

// Copies arguments to the device; with `guards`, each tensor lies between two guard zones. Call device_free on success
// and on failure. False: reported.
bool device_upload(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, bool guards,
                   int count, const EmuArg *args, DeviceArgs *out);
void device_free(const DeviceModule *loaded, DeviceArgs *args);

typedef struct DeviceRun {
    const DeviceModule *loaded;
    const PlanEntry *entry;
    bool no_guards;        // no guard zones around the tensors
    double seconds;        // out: device time
    const char *outside;   // out: "it wrote outside 'C'" if a guard zone changed; else NULL
} DeviceRun;

// Copies tensors to the device, launches, waits, copies them back. A device does not track initialised elements, so
// `initialised` of the tensors becomes NULL. False: reported (a driver error, or arguments that match no variant).
bool device_run(Arena *arena, DiagSink *sink, DeviceRun *run, int count, const EmuArg *args);
