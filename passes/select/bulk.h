// Copies of consecutive elements by TMA, without a tensor map: `@via(bulk)` (PTX ISA, "cp.async.bulk").
//
// They are what TMA's copies of boxes are (tma.h, insert_mbarriers.c): one thread starts them, a load's bytes complete on an mbarrier, stores are
// waited for in groups. What differs: a row of a tile may have any number of bytes that is a multiple of 16, and the tile lies in shared
// memory as it is written, row after row; but nothing is cut off at the tensor's edge, so all of the tile has to be known to be inside.
#pragma once
#include "ir/facts.h"
#include "passes/lower/lower.h"

bool by_bulk(const Stmt *stmt);   // has @via(bulk)
// Why bulk copies cannot make the copy of a whole tile in shared memory from or to a tensor; NULL: they can, given what the tensor's `when`
// will say (base and rows at multiples of 16 bytes).
const char *bulk_problem(const Target *target, const Facts *facts, const Stmt *copy);
// For the thread that starts it.
void lower_bulk(Lower *lower, const Stmt *copy, Block *out);
