// Variants that are of no use: a target has no hardware for them, or their condition contradicts a compile-time value.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Of kernels with one name, leaves out those that the target does not serve, and those whose condition cannot hold, where another
// one remains; of programs with one name likewise those that launch such kernels, and these with them. What stands
// alone is left for codegen to refuse.
void prune_variants(Module *module, const Target *target);
