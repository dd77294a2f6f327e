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

Combiner combiner_of(Lower *lower, const Stmt *stmt, OpId op);
Expr *combined(const Combiner *c, Expr *a, Expr *b);
Expr *identity(const Combiner *c);
// An unrolled loop. The index is known to the facts until they are released.
Block *counted(const Combiner *c, const char *name, int64_t count, Expr **index, Block *out);
// buf[slot] combined with that of lane ^ mask.
Expr *butterfly(const Combiner *c, Buf *buf, Expr *slot, int64_t mask, Block *out);
// Element [row, column] of the scratch. In a cluster a store goes to the slice of each CTA: by one lane per CTA if
// `spread`, else by one thread; a load reads the thread's own slice.
void scratch_store(const Combiner *c, bool spread, Expr *row, Expr *column, Expr *value, Block *out);
Expr *scratch_load(const Combiner *c, Expr *row, Expr *column);
// Lanes of a warp that split the loads of so many partial results; 1: each thread loads all.
int64_t lanes_that_share(const Combiner *c, int64_t partials);
// The body of a loop over the partial results that the thread loads: every lanes-th, from its lane's on.
Block *each_partial(const Combiner *c, int64_t partials, int64_t lanes, Expr **partial, Block *out);
