// Arguments of a kernel or program on the host, from NAME=VALUE pairs.
//
// In: text, .npy files. Out: EmuArgs, as the emulator and runtime/device/ take them; bytes and FLOPs of a launch.
// The files of runtime/host/, for the commands run, bench and tune (they need ir/ and emulator/, which tools/ may not
// include):
//
//     npy              reads and writes .npy files
//     arguments        NAME=VALUE pairs -> arguments
//     workload         bytes and floating-point operations of a launch
//
//     A=x.npy   A=random[256x192]   A=zeros[4]   A=iota[8]   scale=0.125   M=256
#pragma once
#include "emulator/emulator.h"
#include "runtime/host/npy.h"
#include "runtime/plan/plan.h"

typedef struct RunArg {
    const char *name, *value;   // text of the command line
} RunArg;

// Makes the arguments of `func`. The shape of an output that is not given follows from the other arguments; its
// elements are poisoned (NaN, or the largest integer). If dims are given (M=256), inputs may be missing too: they are
// random. False: reported.
bool run_make_args(Arena *arena, DiagSink *sink, const Func *func, int given_count, const RunArg *given, uint64_t seed,
                   EmuArg **args);

// The tensor of an argument, dense, for saving.
Tensor run_tensor(const EmuArg *arg);

int run_param(const Func *func, const char *name);   // index of the parameter; -1: none
