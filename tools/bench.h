// The device time of a launch, measured with CUDA events.
//
//     cold   a sample is one launch; a write of twice the size of the L2 cache before it evicts the operands
//     warm   a sample is several launches in a row on the same tensors, after one untimed launch. Short launches are recorded in
//            a CUDA graph, if the driver has graphs
//
// In both, the write also keeps the device busy while the host enqueues the timed launches, so the times contain no
// launch overhead of the host. They contain the cost of an event, about 1 us per sample.
#pragma once
#include "runtime/device/device.h"
#include "runtime/host/workload.h"

typedef struct BenchOptions {
    int samples;
    bool warm;
} BenchOptions;

typedef struct Spread {   // seconds per launch
    double median;
    double low, high;   // 95 % confidence interval of the median, from order statistics (binomial distribution)
    int samples;
    int launches;   // per sample
    bool graph;     // launched as one CUDA graph
} Spread;

Spread spread_of(int count, double *samples);   // sorts them; count >= 1

// Copies the arguments to the device and times launches. False: reported.
bool bench_launch(Arena *arena, DiagSink *sink, const DeviceModule *loaded, const PlanEntry *entry, int count,
                  const EmuArg *args, const BenchOptions *options, Spread *out);
