// Compiling for one launch: the variants that it takes are kept, and nothing else.
#pragma once
#include "ir/ir.h"
#include "passes/cost/search.h"
#include "runtime/compile/record.h"
#include "runtime/plan/plan.h"
#include "target/target.h"

typedef struct LaunchFor {
    const char *kernel;   // or program; NULL: the first of the source
    int count;
    const LaunchArg *args;        // NULL: dense, aligned tensors, by
    const RecordValues *values;   // dims, strides and scalars by name
    int multiprocessors;          // of the device; 0: those of the target
} LaunchFor;

// Drops what the launch would not take, by the plan of the module. Before the passes, which add variants and conditions,
// the last tile stays, too: it serves where the chosen one turns out not to. False: reported.
bool keep_chosen(Module *module, const Target *target, const LaunchFor *launch, bool lowered);

// The launch takes a tile of this kernel by costs, and all of the tensors' rows are aligned for TMA. Out: its name, and the extents of
// its cost. Reports nothing.
typedef bool LaunchProblem(Module *module, const Target *target, const LaunchFor *launch, const char **kernel,
                           TileProblem *problem);
LaunchProblem launch_problem;
