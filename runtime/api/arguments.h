// The arguments of the public API: checked against an entry's parameters, and as a launch takes them.
#pragma once
#include "runtime/api/api.h"

// NULL: the structures are sound (sizes, kinds, ranks); else what is wrong.
const char *arguments_fault(const TilecArg *args, size_t count);
// What plan_dispatch takes, in `arena`. NULL: reported, a tensor has another type than its parameter. (Number and kinds
// are dispatch's to check.)
const LaunchArg *arguments_read(Arena *arena, DiagSink *sink, const PlanEntry *entry, size_t count,
                                const TilecArg *args);
// False, with a report: a tensor with elements has no address, or lies elsewhere than on `device`.
bool arguments_there(DiagSink *sink, const PlanEntry *entry, size_t count, const TilecArg *args, int device);
