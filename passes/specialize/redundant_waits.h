// Waits for products that find none to wait for.
#pragma once
#include "ir/ir.h"
#include "support/map.h"

// Drops each `wgmma_wait(n)` of the kernel before which never more than n products run. `once`: loops known to have at most one
// trip.
void drop_redundant_waits(Arena *arena, Func *kernel, const Map *single_trip);
