// Drops variants that cannot run: the target lacks a feature that they use, or their condition contradicts a
// compile-time value.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Removes kernel variants that the target cannot run or whose condition is false, and programs that launch them, as
// long as another variant of the name remains. The last variant of a name stays: codegen reports what the target lacks.
void prune_variants(Module *module, const Target *target);
