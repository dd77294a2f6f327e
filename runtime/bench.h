// How long a launch takes on the device, measured by its events.
//
//     cold   each sample is one launch; before it, twice the L2 cache's size is written, so that operands come from memory
//     warm   each sample is several launches in a row on the same tensors, after one that is not counted. Short launches are
//            many, in a CUDA graph, where the driver has graphs
//
// In both, that write also keeps the device busy while the host sends what is to be timed: launch overhead of the host is
// not in the times (a graph of many short launches needs no such help). An event's own cost, about a microsecond, is, in a
// warm sample divided by the launches.
#pragma once
#include "emulator/emulator.h"
#include "frontend/frontend.h"
#include "runtime/loaded.h"
#include "runtime/record.h"

typedef struct BenchOptions {
    int samples;
    bool warm;
} BenchOptions;

typedef struct Spread {   // seconds of a launch
    double median;
    double low, high;   // 95 % confidence interval of the median: order statistics of the binomial distribution
    int samples;
    int launches;   // timed together in a sample
    bool graph;     // as one CUDA graph
} Spread;

Spread spread_of(int count, double *samples);   // sorts them; count >= 1

// Copies the arguments over and times launches with them. False: reported.
bool bench_launch(Arena *arena, DiagSink *sink, const Loaded *loaded, const PlanEntry *entry, int count,
                  const EmuArg *args, const BenchOptions *options, Spread *out);

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
