// Common subexpressions of a plan's entry become one node, which a launch evaluates a single time. The conditions of
// variants need it: each compares the cost of its tile with the costs of many others.
#pragma once
#include "runtime/plan/plan.h"

enum { HOST_UNSHARED = -1 };

// An expression of a plan; its operands are HostNodes too.
typedef struct HostNode {
    Expr expr;
    int number;   // index into HostValues; HOST_UNSHARED: used at one place, or a constant
    struct HostNode *next;
} HostNode;

static inline int host_number(const Expr *expr) {
    return ((const HostNode *)expr)->number;   // `expr` is the first member
}

typedef struct ExprCse ExprCse;

ExprCse *expr_cse_new(Arena *arena);
// The node for `expr`. Vars with equal names are equal. Nodes are allocated in the arena of `cse`; of `expr` only its
// Vars must outlive the call.
Expr *expr_cse(ExprCse *sharer, const Expr *expr);
int expr_cse_count(const ExprCse *sharer);   // number of shared nodes so far

// The least common multiple of `unit` and of all constants n in `X_address % n` of the expression. 0: the expression
// uses an address in another way, or the multiple is too large.
int64_t host_address_unit(const Expr *expr, int64_t unit);
