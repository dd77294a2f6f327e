// Builds the roles of a cooperative kernel (cooperative.c).
#pragma once
#include "ir/schedule.h"
#include "passes/specialize/ws_analysis.h"

typedef struct Maker {
    RoleBuilder *builder;
    RolePlan *plan;
    RoleKind role;   // that is being built
    Subst *subst;
    Map *consumes;                // arrivals at `empty` -> TileRing, whose first member is the Consume
    Block buffers;                // shared memory of the role
    Map *operands;                // shared memory that the consumers write and MMAs read
    bool staged;                  // the epilogue is staged in a tile of single use, so no role waits for its stores
    Facts *facts;                 // of the current role
    const TileRing *own;          // the ring that a load role fills; NULL: all
    Var *number;                  // dynamic claims: of the current tile, in the current role
    bool claims;                  // this role claims
    int member;                   // of the roles that share steps
    Buf *sum;                     // in which they add their accumulators
    bool separate;                // each ring is loaded by warps of its own
    const Stmt *delayed, *into;   // a copy, and the loop that it moves into
} Maker;

// ---- for all roles (cooperative.c) ----
// Initial parities: for tiles that the role fills, the first phase of `empty` counts as complete; for tiles that it
// reads, the first phase of `full` does not.
void push_counters(Maker *m, Block *out);
Stmt *clone_for_role(Maker *m, const Stmt *stmt);   // with the slots of its tiles
// The statement with empty bodies. Loops get new iterators.
Stmt *shell_of(Maker *m, const Stmt *stmt);
void push_full(Maker *m, const TileRing *ring, Block *out);   // waits for the ring's tiles

// ---- the roles ----
// emit_producer.c: first the warps of each ring, then arrivals at `full` of a slot, then the roles.
void share_warps(Maker *m);
int64_t filling_arrivals(const TileRing *ring);
void push_filling_roles(Maker *m, const Func *kernel, Block *out);
void push_compute_roles(Maker *m, const Func *kernel, Block *out);   // emit_consumer.c
// masked_steps.c: in place. `kernel_body`: what stands before the role, with the scalars of all roles.
void skip_masked_steps(Maker *m, const Block *kernel_body, Block *work);

// ---- tiles (persistent_loop.c) ----
// Adds the persistent loop over tiles and returns its body; with one tile per CTA, the body of the role.
Block *push_tiles(Maker *m, Stmt *role);
void push_next_tile(Maker *m, Block *body);   // at the end of that body: with dynamic claims, on to the next tile
// Scalars that are the same for all tiles move before the roles. The `let section = block / group` of the tiles goes;
// both are then in p.
void hoist_scalars(RoleBuilder *p, Block *body, Block *out);
// `hoisted`: scalars before the roles, for persistent CTAs with sections of tiles; NULL: no sections.
void make_tiles(RoleBuilder *p, ClaimKind claim, const Block *hoisted, Block *out);
