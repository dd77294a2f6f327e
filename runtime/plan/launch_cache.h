// Launches that were resolved before: programs launch the same shapes again and again, and what a plan says of a launch depends on
// shapes, strides, scalars and little of addresses (whether they are multiples of 16, say). A launch that agrees in all of that with a
// remembered one takes its actions, with its own addresses put in, and evaluates nothing.
#pragma once
#include "runtime/plan/plan.h"

typedef struct LaunchCache LaunchCache;

// A table of a fixed size in `arena`: the last launches, replaced in turn. Threads may use it at the same time.
LaunchCache *launch_cache_new(Arena *arena);

// plan_dispatch, with the same answer. All calls for a memo have the same plan and device, and entries of that plan.
bool launch_cache_dispatch(Arena *arena, DiagSink *sink, LaunchCache *cache, const Plan *plan, const PlanEntry *entry,
                           int count, const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory,
                           Launch *out);

int64_t launch_cache_hits(LaunchCache *cache);   // launches that were remembered, so far
