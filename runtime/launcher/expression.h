// An expression of a plan as one of C, with the functions of launcher_text.c.in: integers are int64_t, floats double, of the
// values that runtime/plan/host_eval.c computes. `r` is the Run.
#pragma once
#include "runtime/plan/plan.h"

typedef struct CName {
    const char *name, *text;   // in the plan, in C
} CName;

typedef struct CNames {
    Arena *arena;
    VEC(CName) items;      // the innermost is last
    const int *cluster;    // of the variant
    const char *refused;   // what has no C form; NULL: nothing so far
} CNames;

const char *c_expression(CNames *names, const Expr *expr);
Type c_type(const Expr *expr);   // of its value
// A value as it lies in memory, as uint64_t: for parameters and fills.
const char *c_bits(CNames *names, Type type, const char *value);
const char *c_converted(CNames *names, Type to, Type from, const char *value);   // as T(x) of the language
