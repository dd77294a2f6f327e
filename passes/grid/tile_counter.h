// The counter of dynamic claims.
//
// In: a module. Out: the same, where each kernel whose grid has `@claim(dynamic)` has its counter: a parameter, and a program
// around it with the scratch.
#pragma once
#include "ir/ir.h"

void add_tile_counters(Module *module);
