// Shared by reductions and scans (lower_reduce.c): combining partial results, and their exchange between warps.
#pragma once
#include "ir/build.h"
#include "passes/lower/lower.h"

typedef struct Combiner {
    Lower *lower;
    Arena *arena;
    Span loc;
    OpId op;          // the reduction that combines two partial results
    Type type;        // of the arithmetic
    Buf *scratch;     // for the exchange between warps; NULL: none
    int64_t blocks;   // CTAs that share the reduction: each has its own scratch, with all partial results
} Combiner;

Combiner combiner_of(Lower *lower, const Stmt *stmt, OpId op, int scratch);   // scratch: its operand number
Expr *combined(const Combiner *c, Expr *a, Expr *b);
Expr *identity(const Combiner *c);
// An unrolled loop. The index is known to the facts until they are released.
Block *counted(const Combiner *c, const char *name, int64_t count, Expr **index, Block *out);
// buf[slot] combined with that of lane ^ mask.
Expr *butterfly(const Combiner *c, Buf *buf, Expr *slot, int64_t mask, Block *out);
// Element [row, column] of the scratch, in the slice of CTA `block` (of several); loads read the thread's own slice.
void scratch_store(const Combiner *c, Expr *block, Expr *row, Expr *column, Expr *value, Block *out);
Expr *scratch_load(const Combiner *c, Expr *row, Expr *column);
