// Loads that the CTAs of a cluster share, in the roles of ping-pong and cooperative kernels (shared_loads.c).
#pragma once
#include "passes/specialize/builder.h"

// Adds how the copy's tile is shared, if it is and `sharings` has no such one.
void add_sharing(Arena *arena, SharingVec *sharings, const Stmt *copy);
// mbarrier_init of all slots of a pair, by one thread. `writers`: arrivals that make a slot full; `readers`: empty, and as many of each
// other CTA for which this one loads the slot's tiles. `empty` is NULL: it is unused.
void push_barrier_init(RoleBuilder *p, int64_t slots, Buf *full, int64_t writers, Buf *empty, int64_t readers,
                       const SharingVec *sharings, Block *out);
// Pushes what the operations below need to know of a cluster whose shape the launch chooses.
void bind_cluster(RoleBuilder *p, Block *out);
// Pushes a started copy: if its tile is shared, to all CTAs, by the one that loads the slot.
void push_shared_copy(RoleBuilder *p, Stmt *started, Expr *slot, Block *out);
// Behind the role's own arrival: `arrivals` more at `empty` of each other CTA that loads one of the slot's tiles.
void tell_loaders(RoleBuilder *p, const SharingVec *sharings, Buf *empty, Expr *slot, int64_t arrivals, Block *out);
// The mbarriers are set up: all threads that use them meet, those of a cluster where its CTAs share loads.
void publish_barriers(RoleBuilder *p, const SharingVec *sharings, Block *out);
// Waits until every slot is empty, where CTAs share loads.
void push_last_waits(RoleBuilder *p, const SharingVec *sharings, Buf *empty, const Counter *counter, Block *out);
