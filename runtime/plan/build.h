// The launch plan of a compiled module. Apart from plan.h, since only a tilec that compiles needs it.
#pragma once
#include "codegen/codegen.h"
#include "runtime/plan/plan.h"

// `cubin` gives the resources; NULL: unknown.
const Plan *plan_build(const Module *module, const Target *target, const Cubin *cubin);
