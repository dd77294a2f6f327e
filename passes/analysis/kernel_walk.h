// Walks the tile ops of a kernel in order, with what is known at each.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"

// Calls `visit` for every statement but blocks' own braces, outermost first, with the facts that hold there (loop
// bounds, lets, conditions, the kernel's assumptions). Bodies of parallel loops and thread regions are not entered.
typedef void FactsVisit(void *user, Stmt *stmt, const Facts *facts);
void kernel_walk(Arena *arena, Func *kernel, FactsVisit *visit, void *user);
int64_t kernel_threads(const Func *kernel);
// Facts that a statement adds for what is inside it, or (lets, assumes) after it.
void facts_enter(Facts *facts, const Stmt *stmt);

// ---- scopes: what one set of threads does together. The block is one, each role another ----
typedef struct ThreadScope {
    Stmt *role;    // NULL: what stands in no role
    Block *body;   // the role's, or the kernel's
    int64_t threads;
} ThreadScope;
typedef VEC(ThreadScope) ThreadScopeVec;
void thread_scopes(Arena *arena, Func *kernel, ThreadScopeVec *out);   // the block's first
// kernel_walk, for the statements of one scope.
void scope_walk(Arena *arena, Func *kernel, const ThreadScope *scope, FactsVisit *visit, void *user);
