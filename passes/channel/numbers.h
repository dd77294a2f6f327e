// Channels become what the target has.
//
// In: a tile-stage kernel with channels whose copies and products have mechanisms. Out: the same with mbarriers, counters,
// waits and started copies, and no channels. Files:
//
//     lower_channels.c   lower-channels: the pass
//     numbers.c          the numbers of slots, as far as the text says them
//     leader_waits.c     which slots one group waits for on behalf of all
//
// This header: numbers.c and leader_waits.c.
//
// In: the body of a group, and one of its ends of a channel (acquire or receive). Out: for each statement of that end how
// many came before it, as an expression of loop iterators and trip counts.
#pragma once
#include "ir/channels.h"
#include "support/map.h"

typedef bool EndTest(const Stmt *stmt, void *user);   // it begins a slot of the end
// Stmt -> Expr, a number that counts from 0. NULL: some are known only when the kernel runs.
Map *slot_numbers(Arena *arena, const Block *body, EndTest *is_end, void *user);
// Stmt -> Stmt: the receives of the role for which only the first group of the array has to wait.
Map *waits_of_leader(Arena *arena, const Channels *channels, const Stmt *role);
