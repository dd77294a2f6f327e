// The tile scheduler: which CTA computes which tile, and when.
//
// In: a tile-stage kernel with a grid of several names. Out: a grid of one number, in an order with L2 reuse, over as
// many CTAs as there are tiles or persistent ones; L2 hints and multicast on copies. Files:
//
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

typedef struct Scheduler {
    PassContext *context;
    Arena *arena;
    const Facts *facts;
    Stmt *grid;
    bool persistent;
    bool lpt;       // persistent CTAs with sections of tiles, longest first
    bool by_data;   // work also depends on data: sequences of any lengths
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

Expr *raster_of(Scheduler *s);                // NULL: plain, or a Hilbert curve
void decompose(Scheduler *s, Expr *number);   // the old iterators from a tile number; fills s->top
void drop_raster(Stmt *grid);
bool has_raster(const Stmt *grid);
// Makes `var` the grid's only iterator. The body begins with its declarations and s->top.
void set_grid(Scheduler *s, Var *var, Expr *end);

// ---- tiles with unequal work (lpt_schedule.c) ----
typedef enum { TREND_FLAT = 0, TREND_UP = 1, TREND_DOWN = 2, TREND_UNKNOWN = 3 } Trend;   // the union is `|`
_Static_assert((TREND_UP | TREND_DOWN) == TREND_UNKNOWN, "the union of both trends is unknown");
// The only iterator that trip counts depend on; -1: none.
int deciding_iter(Scheduler *s, Trend *trend);
// All iterators from a tile number, the longest tiles first.
void bind_longest_first(Scheduler *s, Expr *number, int deciding, Trend trend);

// ---- clusters ----
// For communicating CTAs (cluster_grid.c): `tiles` becomes the only extent. False: no change.
bool flatten_clusters(Scheduler *s, Func *kernel, Expr *tiles, int blocks);
// Marks tiles that CTAs share (multicast.c). NULL: some are; else the reason why not.
const char *share_tiles(Scheduler *s, Func *kernel);
void flatten_shared(Scheduler *s);
