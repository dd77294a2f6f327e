// Making the roles of a kernel whose warpgroups work on one point together (cooperative.c).
#pragma once
#include "passes/specialize/ws_analysis.h"

typedef struct Filler Filler;   // of a role that brings tiles for others (emit_producer.c)

typedef struct Maker {
    Parting *parting;
    Plan *plan;
    const Filler *filler;
    Subst *subst;
    Map *releases;                // arrivals at `empty` -> Group, whose first member is the Release
    Block buffers;                // shared memory of the role
    bool staged;                  // results leave by way of a tile that nobody waits for
    Facts *facts;                 // of the role that loads
    const Group *own;             // what that loads; NULL: all
    const Stmt *delayed, *into;   // a copy, and the loop that it goes into
} Maker;

// ---- of all roles (cooperative.c) ----
// Of the tiles that a role fills the first phase of `empty` is over, of those that it reads that of `full` is not.
void push_counters(Maker *m, bool (*concerns)(const Group *group), bool (*fills)(const Group *group), Block *out);
Stmt *clone_for_role(Maker *m, const Stmt *stmt);   // with the slots of its tiles
// The statement without its bodies, which are empty. Loops get an iterator of their own.
Stmt *shell_of(Maker *m, const Stmt *stmt);
void push_full(Maker *m, const Group *group, Block *out);   // waits for the group's tiles
void learn_scalars(Facts *facts, const Block *block);       // its scalars and assumptions

// ---- the roles ----
void push_filling_roles(Maker *m, const Func *kernel, Block *out);   // emit_producer.c
void push_compute_role(Maker *m, const Func *kernel, Block *out);    // emit_consumer.c

// ---- points (persistent_loop.c) ----
// The loop over points of a persistent block; the role itself where a point is a block.
Block *push_points(Maker *m, Stmt *role);
// What is the same for all points is computed once, before the roles.
void hoist_scalars(Parting *p, Block *body, Block *out);
void find_section(Parting *p, Block *body);   // `let section = block / group`: the rounds know it
// `hoisted`: of points in sections, which blocks stay for; NULL: there are none.
void make_points(Parting *p, bool persistent, const Block *hoisted, Block *out);
