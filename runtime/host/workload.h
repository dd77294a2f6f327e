// Bytes and floating-point operations of a launch, from the kernel and its arguments.
#pragma once
#include "emulator/emulator.h"
#include "frontend/frontend.h"
#include "runtime/compile/record.h"
#include "runtime/plan/plan.h"

// The least bytes of global memory traffic: each input is read, each output written, each inout tensor both.
double bench_bytes(const Func *func, const EmuArg *args);
// Floating-point operations of the gemms of a tile-stage kernel: two per multiply-add, without padding (`ceildiv`
// counts as the exact fraction). 0: no gemm, or a loop count that is unknown before the launch.
double bench_flops(Arena *arena, const Func *func, const EmuArg *args);
// Dims and integer scalars by name: the shape of a tuning record.
RecordValues bench_shape(Arena *arena, const Func *func, const EmuArg *args);
// Evaluates an expression over dims and scalar arguments, "2 * M * N * K". False, with *why (in `arena`).
bool bench_value(Arena *arena, Failure *failure, const Func *func, const EmuArg *args, const char *text, double *value,
                 const char **why);
