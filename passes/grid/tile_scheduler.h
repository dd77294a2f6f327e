// The tile scheduler: which CTA computes which tile, and when.
//
// In: a tile-stage kernel with a grid of several names. Out: a grid of one number, in an order with L2 reuse, over as
// many CTAs as there are tiles or persistent ones; L2 hints and multicast on copies. Files:
//
//     tile_order.c       which order, and whether persistent: what plan writes on the grid
//     tile_scheduler.c   the pass; raster orders, persistent CTAs
//     hilbert.c          ... order along a Hilbert curve
//     lpt_schedule.c     ... longest tiles first
//     cluster_grid.c     ... grids whose clusters communicate
//     multicast.c        ... tiles that several CTAs of a cluster read
//     l2_hints.c         ... eviction hints for tiles that few CTAs read
//
// This header, shared by these files: the grid, the lets that compute its names, and tile numbers.
#pragma once
#include "passes/analysis/util.h"
#include "passes/grid/tile_order.h"

typedef struct Scheduler {
    PassContext *context;
    Arena *arena;
    Facts *facts;
    Stmt *grid;
    TileOrder order;
    Expr *raster;   // rows of a raster group, of clusters where they share tiles; NULL: the order says it
    bool snake;     // persistent CTAs get the tiles of a section in snake order
    Block top;      // lets that compute the old iterators
} Scheduler;

// `let name = value;` at the top; constants and names stay themselves.
Expr *bind_name(Scheduler *s, const char *name, Expr *value);
// Assumptions about the numbers: provers cannot derive them from the arithmetic.
void push_assume(Scheduler *s, Expr *condition);
void assume_between(Scheduler *s, Expr *x, Expr *low, Expr *end);
void assume_within(Scheduler *s, Expr *x, Expr *extent);              // from 0
void bind_iter(Scheduler *s, int index, Expr *value, Expr *extent);   // the old iterator as a let

// The iterators from `first` on, except `but` (-1: none), from their number: the first one runs fastest.
void bind_iters(Scheduler *s, int first, int but, Expr *number);

void decompose(Scheduler *s, Expr *number);   // the old iterators from a tile number; fills s->top
// Makes `var` the grid's only iterator. The body begins with its declarations and s->top.
void set_grid(Scheduler *s, Var *var, Expr *end);

// All iterators from a tile number, the longest tiles first (lpt_schedule.c).
void bind_longest_first(Scheduler *s, Expr *number);

// ---- clusters ----
Expr *cluster_along(const Scheduler *s, int name);   // CTAs of a cluster along the name; NULL: one
// For communicating CTAs (cluster_grid.c): `tiles` becomes the only extent. False: no change.
bool flatten_clusters(Scheduler *s, Func *kernel, Expr *tiles, int blocks);
// Marks tiles that CTAs share (multicast.c). NULL: some are; else the reason why not.
const char *share_tiles(Scheduler *s, Func *kernel);
void flatten_shared(Scheduler *s);
