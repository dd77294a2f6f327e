// What is known about integers: ranges, multiples, and simple proofs.
//
// Facts come from types, loop bounds, `assume`, the variant's `when`, and conditions on the way to a statement. Unknown
// dims are in [0, 2^62]; a fast variant's `when` bounds them below 2^31 so that index arithmetic fits 32 bits.
#pragma once
#include "ir/ir.h"

typedef struct Facts Facts;

typedef struct Range {
    int64_t low, high;
} Range;   // inclusive; INT64_MIN / INT64_MAX: unknown

Arena *facts_arena(const Facts *facts);             // where it lives
Facts *facts_new(Arena *arena, const Func *func);   // with the function's `when` and top-level assumes
void facts_assume(Facts *facts, const Expr *condition, bool holds);   // conjunctions are taken apart
void facts_bind(Facts *facts, const Var *var, const Expr *value);     // a let
void facts_iter(Facts *facts, const Iter *iter);                      // an index within its bounds
// The facts that a statement gives for its body, or (lets, assumes) for later statements.
void facts_enter(Facts *facts, const Stmt *stmt);
void facts_enter_body(Facts *facts, const Stmt *stmt, const Block *body);   // those that hold in this body of it
int facts_mark(const Facts *facts);   // a scope: facts added later are dropped by facts_release
void facts_release(Facts *facts, int mark);

// Variables that are assigned have no facts, until facts_carried learns the range of all values of each (carried.c).
// From then on conditions bound them more closely; so a walk of the function calls facts_forget after every statement,
// and before a loop, which drops what assignments in it change. True: it dropped something.
void facts_carried(Facts *facts, const Func *func);
void facts_carry(Facts *facts, const Var *var, Range range);   // for carried.c
bool facts_forget(Facts *facts, const Stmt *stmt);

Range range_of(const Facts *facts, const Expr *expr);
int64_t multiple_of(const Facts *facts,
                    const Expr *expr);      // largest known power of two times odd divisor (>= 1; 0 for constant 0)
BinaryOp comparison_negated(BinaryOp op);   // what holds where the comparison does not
bool prove(const Facts *facts, const Expr *condition);   // true only when certain
bool comparison_is_exact(const Facts *facts,
                         const Expr *comparison);   // no side wraps around: as of true integers
bool prove_aligned(const Facts *facts, const Buf *buf,
                   int64_t bytes);   // aligned(buf, n) is known, n a multiple of bytes
// Simplifies with the facts: folds, cancels, drops % and / that ranges make trivial.
Expr *simplify_expr(Arena *arena, const Facts *facts, Expr *expr);
Expr *simplify_top(Arena *arena, const Facts *facts, Expr *expr);   // its operands are simple already
// Row-major (or strided) element offset of an access into a global tensor.
Expr *global_offset(Arena *arena, const Buf *buf, int count, Expr *const *indices);
Expr *global_stride(Arena *arena, const Buf *buf, int dim);
// Layout Forward as expressions: the outputs for given inputs. The same order of operations for constants and
// variables.
void layout_forward(Arena *arena, const Facts *facts, const Layout *layout, Expr *const *in, Expr **out);
