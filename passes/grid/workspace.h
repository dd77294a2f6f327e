// Global memory that the schedule of a kernel wants: the counter of `@claim(dynamic)`, slices and flags of
// `@split(stream)`.
//
// In: a module. Out: the same, where each kernel that wants workspace has it: parameters, and a program around it with
// the scratch.
#pragma once
#include "ir/ir.h"

void add_workspaces(Module *module);
// The parameters alone, in place: what a kernel is like inside of its program.
void add_workspace_params(Arena *arena, Func *kernel);
