// Bulk copy: TMA without a tensor map, `@via(bulk)` (PTX ISA, "cp.async.bulk").
//
// As with TMA copies of boxes (tma.h, insert_mbarriers.c), one thread starts them; the bytes of a load complete on an
// mbarrier, stores are waited for in groups. Differences: a row of a tile may have any length that is a multiple of 16
// bytes; the tile has row-major order in shared memory; nothing is clipped at the edge of the tensor, so the whole tile
// must be provably inside.
#pragma once
#include "ir/facts.h"
#include "passes/lower/lower.h"

bool by_bulk(const Stmt *stmt);   // has @via(bulk)
// Why bulk copies cannot copy a whole tile in shared memory from or to a tensor; NULL: they can, given the tensor's
// `when` (base and rows at multiples of 16 bytes).
const char *bulk_problem(const Target *target, const Facts *facts, const Stmt *copy);
// Emits the copies, for the thread that starts them.
void lower_bulk(Lower *lower, const Stmt *copy, Block *out);
