// The arguments of the public API: checked against an entry's parameters, and as a launch takes them.
#pragma once
#include "runtime/api/api.h"

TilecArg argument_at(const TilecArg *args, size_t index);   // of an array of a caller's header
// The bytes from a tensor's first element to its last. False: a scalar, or there is no element, or no way to count.
bool argument_span(const TilecArg *arg, size_t *bytes);

LaunchArg argument_read(const TilecArg *arg);

// NULL: the structures are sound (sizes, kinds, ranks); else what is wrong.
const char *arguments_fault(const TilecArg *args, size_t count);
// What plan_dispatch takes, in `arena`. NULL: reported, a tensor has another type than its parameter. (Number and kinds
// are dispatch's to check.)
const LaunchArg *arguments_read(Arena *arena, DiagSink *sink, const PlanEntry *entry, size_t count,
                                const TilecArg *args);
// False, with a report: a tensor with elements has no address, or lies elsewhere than on `device`, which may be
// TILEC_HOST.
bool arguments_there(DiagSink *sink, const PlanEntry *entry, size_t count, const TilecArg *args, int device);
