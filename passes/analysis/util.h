// What several passes share: walking one level of a statement, trip counts, remarks.
#pragma once
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/query.h"
#include "passes/pass.h"

// A remark of a pass (-R): silent unless asked for.
#define REMARK(context, span, ...)                                                                                     \
    do {                                                                                                               \
        if ((context)->remarks) diag((context)->sink, (span), __VA_ARGS__);                                            \
    } while (0)

// Maps the expressions that stand in the statement itself, not in its bodies (iterator bounds and conditions included).
// True when one became another.
typedef Expr *(*ExprFn)(void *user, Expr *expr);
bool stmt_map_own(Arena *arena, Stmt *stmt, ExprFn map, void *user);

// Its value changes only where it is bound: no memory, no `var`, no effects. What facts may be assumed about.
bool expr_is_stable(const Expr *expr);
// Evaluating it has no effect, so that it may be dropped.
bool expr_is_pure(const Expr *expr);

// facts_assume for the parts of a condition that are stable.
void assume_stable(Facts *facts, const Expr *condition, bool holds);

// Iterations of an iterator as an expression: (end - begin) rounded up to steps.
Expr *iter_trips(Arena *arena, const Iter *iter);
// A `break` in the block that leaves the loop around it.
bool block_breaks(const Block *block);

// What instructions call the type of a gemm's operand (0, 1) or accumulator (2): f32 is "tf32" where the source allows
// it.
const char *gemm_type(const Stmt *gemm, int operand);

// The operand of a call at `index`: NULL when it is absent or no region.
Region *call_region(const Stmt *call, int index);

// A copy or gather that starts cp.async copies: the mechanism says so, or before there is one, the program.
bool starts_copy(const Stmt *stmt);

// `aligned(buf, bytes)`.
Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes);

// Storage: follows alias_of.
const Buf *buf_root(const Buf *buf);

// What a statement and everything below it does to buffers on one way through it: of the two branches of an `if` only
// one is executed, so what both write is written once.
void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out);
