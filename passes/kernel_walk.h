// Walks the tile ops of a kernel in order, with what is known at each.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"

// Calls `visit` for every statement but blocks' own braces, outermost first, with the facts that hold there (loop bounds,
// lets, conditions, the kernel's assumptions). Bodies of parallel loops and thread regions are not entered.
void kernel_walk(Arena *arena, Func *kernel, void (*visit)(void *user, Stmt *stmt, const Facts *facts), void *user);
int64_t kernel_threads(const Func *kernel);
// Facts that a statement adds for what is inside it, or (lets, assumes) after it.
void facts_enter(Facts *facts, const Stmt *stmt);
