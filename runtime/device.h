// Tensors of the host as arguments on the device: for `tilec test --on=gpu` and `tilec run --on=gpu`.
#pragma once
#include "emulator/emulator.h"
#include "runtime/loaded.h"

// Launches `entry` with arguments that lie in host memory and waits: copies tensors over, runs, copies them back.
// Around each tensor lies a guard zone; *why is set when the kernel wrote into one. `params` are the entry's.
// False: reported (a driver error, arguments that do not fit). *seconds is the time on the device.
bool device_run(Arena *arena, DiagSink *sink, const Loaded *loaded, const PlanEntry *entry, int count,
                const EmuArg *args, const char **why, double *seconds);

LaunchArg launch_arg_of(const EmuArg *arg, const PlanParam *param);
