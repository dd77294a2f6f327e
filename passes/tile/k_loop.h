// The k loop of a product whose steps several CTAs may share: it loads tiles, computes operands from them, and multiplies.
#pragma once
#include "ir/ir.h"

typedef struct KLoop {
    int loop;   // of the grid's body
    Buf *acc;   // begins with zeros, and nothing but products is added to it in the loop
    Span loc;   // of what is in the way
} KLoop;

// A statement that each of the CTAs may run: names, declarations.
bool each_cta_runs(const Stmt *stmt);
// Why the steps cannot be shared; NULL: they can. What stands behind the loop is not looked at.
const char *find_k_loop(Arena *arena, const Func *kernel, KLoop *out);
