// Variants that a target has no hardware for.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Of kernels with one name, leaves out those that use what the target lacks (an operation's feature, clusters so large), where
// another one remains; a kernel that stands alone is left for codegen to refuse.
void keep_served(Module *module, const Target *target);
