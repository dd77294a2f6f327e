// The launch plan of a compiled module (compile time only).
#pragma once
#include "codegen/codegen.h"
#include "runtime/plan/plan.h"

// `cubin`: source of the resource usage; NULL: unknown.
const Plan *plan_build(const Module *module, const Target *target, const Cubin *cubin);
