// What the parts of `tile-scheduler` share: the grid, the lets that give its names back, and how points are numbered.
#pragma once
#include "passes/analysis/util.h"

typedef struct Scheduler {
    PassContext *context;
    Arena *arena;
    const Facts *facts;
    Stmt *grid;
    bool persistent;
    bool stays;     // blocks stay, for points that differ
    bool by_data;   // points take as long as data says, too: sequences of any lengths
    Block top;      // lets that compute the old iterators
} Scheduler;

// `let name = value;` at the top; constants and names stay themselves.
Expr *bind_name(Scheduler *s, const char *name, Expr *value);
// What is true of the numbers that follow: no prover finds its way back through the arithmetic.
void push_assume(Scheduler *s, Expr *condition);
void assume_between(Scheduler *s, Expr *x, Expr *low, Expr *end);
void assume_within(Scheduler *s, Expr *x, Expr *extent);              // from 0 on
void bind_iter(Scheduler *s, int index, Expr *value, Expr *extent);   // the old iterator as a let

// The iterators from `first` on, without `but` (-1: all), from their number: the first one runs fastest.
void bind_iters(Scheduler *s, int first, int but, Expr *number);

Expr *raster_of(Scheduler *s);                // NULL: plain, or a curve
void decompose(Scheduler *s, Expr *number);   // the old iterators from the number of a point; fills s->top
Expr *grid_tiles(Scheduler *s);               // how many
void drop_raster(Stmt *grid);
bool has_raster(const Stmt *grid);
// `var` becomes the grid's only iterator. The body begins with its declarations and s->top.
void set_grid(Scheduler *s, Var *var, Expr *end);

// ---- points that take unequally long (lpt_schedule.c) ----
typedef enum { TREND_FLAT = 0, TREND_UP = 1, TREND_DOWN = 2, TREND_UNKNOWN = 3 } Trend;   // the union is `|`
_Static_assert((TREND_UP | TREND_DOWN) == TREND_UNKNOWN, "the union of both trends is unknown");
// The iterator that alone decides how long a point takes; -1.
int deciding_iter(Scheduler *s, Trend *trend);
// All iterators from the number of a point, the longest points first.
void bind_longest_first(Scheduler *s, Expr *number, int deciding, Trend trend);

// ---- blocks of a cluster ----
bool has_cluster(const Stmt *grid);
void set_cluster(Stmt *grid, int blocks);
// That work together (cluster_grid.c): `points` becomes the only extent. False: nothing changed.
bool flatten_clusters(Scheduler *s, Func *kernel, Expr *tiles, int blocks);
// That share tiles (multicast.c). share_tiles marks what they share. NULL: they do; else why not.
const char *share_tiles(Scheduler *s, Func *kernel);
bool loads_shared(const Block *block);   // it loads such a tile
void flatten_shared(Scheduler *s);
