// Walks the tile ops of a kernel in order, with the facts known at each.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "support/map.h"

// Calls `visit` for every statement (except braces), outermost first, with the facts that hold there (loop bounds,
// lets, conditions, the kernel's assumptions). Does not enter parallel loops and thread regions.
typedef void FactsVisit(void *user, Stmt *stmt, const Facts *facts);
void kernel_walk(Arena *arena, Func *kernel, FactsVisit *visit, void *user);
int64_t kernel_threads(const Func *kernel);

// ---- how often loops are executed, for costs ----
// Puts the iterations of a serial loop into `trips`: of an extent that is not constant what the target's costs count on,
// within the bounds that are known. Nothing for other statements.
void note_trips(Map *trips, const Target *target, const Stmt *stmt, const Facts *facts);
// How often the body is executed where what is around it is executed `around` times; `around` if it is no serial loop.
int64_t loop_trips(const Map *trips, const Stmt *stmt, int64_t around);

// ---- scopes: the statements that one set of threads executes. The CTA is one, each role another ----
typedef struct ThreadScope {
    Stmt *role;    // NULL: statements outside of roles
    Block *body;   // of the role, or of the kernel
    int64_t threads;
} ThreadScope;
typedef VEC(ThreadScope) ThreadScopeVec;
ThreadScopeVec thread_scopes(Arena *arena, Func *kernel);   // the CTA's first
// kernel_walk, for the statements of one scope.
void scope_walk(Arena *arena, Func *kernel, const ThreadScope *scope, FactsVisit *visit, void *user);
