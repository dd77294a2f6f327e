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
#include "runtime/device/device.h"
#include "runtime/host/workload.h"

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
bool bench_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                  const EmuArg *args, const BenchOptions *options, Spread *out);
