// TMA in kernels that are not warp-specialized: whether a copy can and should be made so. (How its bytes are waited
// for: insert_mbarriers.c. In roles: warp_specialize.h.)
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "target/target.h"

// Why TMA cannot make the copy; NULL: it can. `loop`: the pipelined one around it, of several stages; NULL: none.
const char *tma_simple_problem(Arena *arena, const Target *target, const Func *kernel, const Stmt *copy,
                               const Stmt *loop);
// The same of bulk copies (bulk.h), as far as facts are known.
const char *block_bulk_problem(Arena *arena, const Target *target, const Func *kernel, const Facts *facts,
                               const Stmt *copy, const Stmt *loop);
// The same of an addition to a tensor (tma_reduce.h); `in_shared`: of a tile that other statements use too.
const char *block_add_problem(Arena *arena, const Func *kernel, const Stmt *copy, bool in_shared);
// Why something else does it faster; NULL: TMA does.
const char *tma_simple_cost(const Target *target, const Func *kernel, const Stmt *copy, const Stmt *loop);
