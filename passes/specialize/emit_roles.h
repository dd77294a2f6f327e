// Emitting the roles of a cooperative kernel (cooperative.c).
#pragma once
#include "passes/specialize/ws_analysis.h"

typedef struct ProducerEmitter ProducerEmitter;   // what a producing role does (emit_producer.c)

typedef struct Maker {
    RoleBuilder *builder;
    Plan *plan;
    const ProducerEmitter *emitter;
    Subst *subst;
    Map *consumes;                // arrivals at `empty` -> Channel, whose first member is the Consume
    Block buffers;                // shared memory of the role
    bool staged;                  // the epilogue is staged in a tile that has no waiter
    Facts *facts;                 // of the role that loads
    const Channel *own;           // what that loads; NULL: all
    const Stmt *delayed, *into;   // a copy, and the loop that it goes into
} Maker;

// ---- of all roles (cooperative.c) ----
// Of the tiles that a role fills the first phase of `empty` is over, of those that it reads that of `full` is not.
void push_counters(Maker *m, bool (*concerns)(const Channel *channel), bool (*fills)(const Channel *channel),
                   Block *out);
Stmt *clone_for_role(Maker *m, const Stmt *stmt);   // with the slots of its tiles
// The statement without its bodies, which are empty. Loops get an iterator of their own.
Stmt *shell_of(Maker *m, const Stmt *stmt);
void push_full(Maker *m, const Channel *channel, Block *out);   // waits for the group's tiles
void learn_scalars(Facts *facts, const Block *block);           // its scalars and assumptions

// ---- the roles ----
void push_filling_roles(Maker *m, const Func *kernel, Block *out);   // emit_producer.c
void push_compute_role(Maker *m, const Func *kernel, Block *out);    // emit_consumer.c

// ---- tiles (persistent_loop.c) ----
// The persistent loop over tiles; the body of the role itself where each CTA has one tile.
Block *push_tiles(Maker *m, Stmt *role);
// Scalars that are the same for all tiles move before the roles.
void hoist_scalars(RoleBuilder *p, Block *body, Block *out);
void find_section(RoleBuilder *p, Block *body);   // `let section = block / group`: the rounds know it
// `hoisted`: of points in sections, which blocks stay for; NULL: there are none.
void make_tiles(RoleBuilder *p, bool persistent, const Block *hoisted, Block *out);
