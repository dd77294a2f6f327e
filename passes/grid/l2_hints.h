// What streams by: part of `tile-scheduler`.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// Of a kernel whose loop only copies and multiplies, with a grid of several names.
void l2_hints(Arena *arena, const Target *target, Stmt *grid);
