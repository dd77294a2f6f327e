// What several passes share: remarks, and questions about expressions, loops, operands and effects.
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
bool stmt_breaks(const Stmt *stmt);   // it is one, or one below it is

// What instructions call the type of a gemm's operand (0, 1) or accumulator (2): f32 is "tf32" where the source allows
// it.
const char *gemm_type(const Stmt *gemm, int operand);

// The operand of a call at `index`: NULL when it is absent or no region.
Region *call_region(const Stmt *call, int index);

// A copy or gather that starts cp.async copies: the mechanism says so, or before there is one, the program.
bool starts_copy(const Stmt *stmt);

// `aligned(buf, bytes)`.
Expr *aligned_fact(Arena *arena, Buf *buf, int64_t bytes);

// The statement itself, with empty bodies; `bodies` are those that it has, and their number is the result.
int stmt_alone(const Stmt *stmt, Stmt *alone, Block bodies[2]);

static inline bool is_memory(const Buf *buf) {   // not registers
    return buf->scope == SCOPE_GLOBAL || buf->scope == SCOPE_SHARED;
}

// The expression loads the element that the statement stores.
bool loads_stored(const Expr *expr, const Stmt *store);
// The indices are the loop's own iterators, in their order.
bool is_loop_element(const Stmt *loop, int count, Expr *const *indices);

// Storage: follows alias_of.
const Buf *buf_root(const Buf *buf);

// What a statement and everything below it does to buffers on one way through it: of the two branches of an `if` only
// one is executed, so what both write is written once.
void path_effects(Arena *arena, const Stmt *stmt, EffectVec *out);
