// What a launch moves and computes, from the text of the kernel and its arguments.
#pragma once
#include "emulator/emulator.h"
#include "frontend/frontend.h"
#include "runtime/compile/record.h"
#include "runtime/plan/plan.h"

// Bytes that have to cross the memory bus: inputs and outputs once, tensors that are both twice.
double bench_bytes(const Func *func, const EmuArg *args);
// Floating-point operations of a kernel's gemms for these arguments: two for each product, padding not counted (a
// `ceildiv` is taken as the true fraction). Of the tile stage. 0: it has none, or they cannot be counted.
double bench_flops(Arena *arena, const Func *func, const EmuArg *args);
// The dims and integer scalars by name, as a tuning record has them.
RecordValues bench_shape(Arena *arena, const Func *func, const EmuArg *args);
// The value of an expression over dims and scalar arguments, "2 * M * N * K". False: *why (in `arena`).
bool bench_value(Arena *arena, Failure *failure, const Func *func, const EmuArg *args, const char *text, double *value,
                 const char **why);
