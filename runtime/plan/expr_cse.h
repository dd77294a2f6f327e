// What is equal in the expressions of a plan's entry becomes one object, so that a launch computes it once: conditions of variants
// compare the cost of each with those of many others.
#pragma once
#include "runtime/plan/plan.h"

enum { HOST_UNSHARED = -1 };

// An expression of a plan. Its operands are such nodes, too.
typedef struct HostNode {
    Expr expr;
    int number;   // HOST_UNSHARED: it stands at one place, or is a constant
    struct HostNode *next;
} HostNode;

static inline int host_number(const Expr *expr) {
    return ((const HostNode *)expr)->number;   // the node begins with its expression
}

typedef struct ExprCse ExprCse;

ExprCse *expr_cse_new(Arena *arena);
// Names are equal by their text. The nodes lie in the sharer's arena, `expr` (but for its Vars) may go.
Expr *expr_cse(ExprCse *sharer, const Expr *expr);
int expr_cse_count(const ExprCse *sharer);   // numbers given so far

// The least common multiple of `unit` and of the constants that an expression takes remainders of addresses by; 0: it reads an address
// otherwise, or they have none that is small.
int64_t host_address_unit(const Expr *expr, int64_t unit);
