// A cache of recent dispatches. Programs launch the same shapes again and again, and the actions of a launch depend
// only on shapes, strides, scalars and the alignment of addresses. A launch whose key is in the cache takes the cached
// actions, with its own addresses inserted, and evaluates no expression.
#pragma once
#include "runtime/plan/plan.h"

typedef struct LaunchCache LaunchCache;

// Of fixed size, in `arena`: the oldest entries are replaced first. Thread-safe.
LaunchCache *launch_cache_new(Arena *arena);

// Same result as plan_dispatch. All calls with one cache must use the same plan and device.
bool launch_cache_dispatch(Arena *arena, DiagSink *sink, LaunchCache *cache, const Plan *plan, const PlanEntry *entry,
                           int count, const LaunchArg *args, const LaunchDevice *device, LaunchMemory memory,
                           Launch *out);

int64_t launch_cache_hits(LaunchCache *cache);   // number of hits so far
