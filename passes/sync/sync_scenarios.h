// Trip counts that are not known, and which of them insert-sync plays a kernel through with.
//
// A loop of unknown length takes 0 .. S + 1 iterations, or 2 S + 2 and more, S being the least common multiple of the slots of the
// kernel's rings (the constants of k % S), 1 for a loop that does not count slots. How many more is an unknown: what depends on it is not
// decided. One within a loop takes two numbers in turn, as it may differ from one entry to the next, and one in each where it ends in
// another slot. A scenario is one such number for each; where they are too many some are left with few, or open.
//
// Limits. A large number is one that leaves 2 over, where slots are counted: a condition for large ones that leave something else over
// (`n > 20 && n % 3 == 0`) is never met. Of a large number only the first S + 1 and the last S + 1 iterations are played.
#pragma once
#include "passes/analysis/affine.h"

typedef struct Scenarios Scenarios;
typedef struct Quantity Quantity;   // a trip count: of the loops that end at a variable, or of one iterator

Scenarios *scenarios_new(Arena *arena, Block *body);
int64_t scenarios_period(const Scenarios *scenarios,
                         const Stmt *loop);   // S for a loop that counts slots, else 1; S for NULL
// What more iterations of a loop are a multiple of: of all numbers of slots, where it counts them.
int64_t scenarios_multiple(const Scenarios *scenarios, const Stmt *loop);
Quantity *scenario_quantity(const Scenarios *scenarios, const Var *var);   // NULL: none ends there
bool scenario_is_open(const Quantity *quantity);             // it may be any number: there were too many scenarios
Affine scenario_trips(AffineEnv *env, Quantity *quantity);   // the next entry's

void scenarios_reset(Scenarios *scenarios);   // the first one
bool scenarios_next(Scenarios *scenarios);    // false: that was the last
// Dims and parameters that loops end at are bound from the start, lets where they stand.
void scenario_start(Scenarios *scenarios, AffineEnv *env);
