// One run of a kernel or program on tensors of the host: what `tilec run` does.
//
//     A=x.npy   A=random[256x192]   A=zeros[4]   A=iota[8]   scale=0.125   M=256
#pragma once
#include "emulator/emulator.h"
#include "runtime/host/npy.h"
#include "runtime/plan/plan.h"

typedef struct RunArg {
    const char *name, *value;   // as given
} RunArg;

// The arguments of `func` from NAME=VALUE pairs; outputs that are not given get their shape from the others and are
// poisoned (NaN, or the largest integer). Where dims are given by name, so do inputs, which are then random. False: reported.
bool run_make_args(Arena *arena, DiagSink *sink, const Func *func, int given_count, const RunArg *given, uint64_t seed,
                   EmuArg **args);

// The dense tensor of an argument (for saving it).
Tensor run_tensor(const EmuArg *arg);

int run_param(const Func *func, const char *name);   // its index; -1: none
