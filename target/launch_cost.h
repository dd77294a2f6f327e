// The clocks of a launch. One evaluator, on numbers alone: the tile search, the emulator and tilec_launch call it, and
// --emit=launcher writes this file into each launcher (so it is C99 and C++11, and includes nothing of the project).
//
// In: the extents of a problem (of a product M, N, 1 and K) and a row of coefficients, which passes/cost/ makes from a
// kernel and a target. Out: clocks of a multiprocessor from the first CTA to the last, by which variants are compared.
//
//     rows x columns x copies tiles, each of `depth` steps, are dealt in waves to the multiprocessors (or to clusters):
//
//     waves * steps * step + tail        the tails of all tiles but the last overlap the main loop of other tiles (hidden)
//     waves * (steps * step + tail)      they do not
//     tiles * (steps * step + tail) / multiprocessors     tiles have unequal work, which is balanced
//
// With split-K several CTAs share the steps of a tile: those of a cluster (`split`), or as many as leave each
// `slice_steps`, in two launches with a workspace between them. Then the loads of all tiles are a limit, too.
//
// A device that multiplies everywhere is limited by power: it lowers its clock until a step takes as long as `power`
// clocks of the highest, however few it has. So do 64 and 104 columns in proportion, and whole waves decide:
//
//     waves * steps * power * share - rest     at least, if the tiles of a wave draw that share of the power
//
// A step takes no fewer clocks than its loads (`fetch`). Each row of a tile, 128 bytes, is one line of the L2 cache where
// the pitch is a multiple of that. Else most rows lie in two lines (`crossing`), and may start within a sector (`straddle`):
// loads then cost up to twice as much, and a wide tile, which loads less per product, is faster. So are CTAs that share loads
// (`cluster_rows`, `cluster_columns`); those of the last clusters may work for nothing.
//
// All loads of a launch take a time, too, whichever CTAs start them: each byte of A and B (`traffic`), which is less the longer the piece
// of a row that is under way. What is in the L2 cache takes as long: launches of 4 to 500 MB are ranked better so than with a
// share that stays there. Where two limits are near to each other, a launch takes longer than by either (`both`). The results of
// the last wave are stored when nothing is loaded any more (`stored`).
//
// A launch has times in which nothing is multiplied (`rest`), so short ones are not limited. A last wave that is not
// full is not faster (H200: 5.3 waves of 4096 cubed take as long as six).
#pragma once
#include <stdint.h>

// The pitches: bytes from a row to the next of the tensors that a tile's rows are loaded from, and its columns; 0: none.
enum { COST_ROWS, COST_COLUMNS, COST_COPIES, COST_DEPTH, COST_FIRST_PITCH, COST_SECOND_PITCH, COST_EXTENTS };
enum { COST_LINE = 128, COST_SECTOR = 32 };   // bytes of the L2 cache
enum { COST_FEW_READERS = 2 };                // CTAs that read a tile; with more, most of it comes from the L2 cache

// TERM(name, meaning). Rates are in 2^-20 clocks. 0 is no such cost; those at the end, of few kernels, are left out then.
#define COST_TERMS(TERM)                                                                                               \
    TERM(tile_rows, "rows of a tile")                                                                                  \
    TERM(tile_columns, "columns of a tile")                                                                            \
    TERM(tile_depth, "depth of a step")                                                                                \
    TERM(step, "clocks of a step")                                                                                     \
    TERM(stream, "clocks of a step where at most two CTAs read a tile; 0: their number is not known")                  \
    TERM(tail, "clocks of a tile after its steps")                                                                     \
    TERM(hidden, "1: the tail overlaps the steps of another tile")                                                     \
    TERM(padding, "rate of a row or column beyond the end, for each step")                                             \
    TERM(power, "clocks of a step by what power the device has, if all multiprocessors work")                          \
    TERM(rest, "clocks of a launch in which nothing is multiplied")                                                    \
    TERM(fetch, "clocks of a step's loads from the L2 cache")                                                          \
    TERM(first_rows, "rows that a step loads, of a tile's rows")                                                       \
    TERM(second_rows, "the same, of its columns")                                                                      \
    TERM(crossing, "rate of such a row in two lines of the cache")                                                     \
    TERM(straddle, "rate of such a row that starts within a sector")                                                   \
    TERM(row_bytes, "bytes of a row in a step's loads; 0: what is loaded is not known")                                \
    TERM(column_bytes, "the same, of a column")                                                                        \
    TERM(traffic, "rate of a byte of the operands")                                                                    \
    TERM(stored, "rate of an element of the result")                                                                   \
    TERM(both, "percent of time that two equal limits take more than one")                                             \
    TERM(cluster_rows, "CTAs of a cluster that share loads, with tiles below each other; 0: each loads for itself")    \
    TERM(cluster_columns, "the same, next to each other")                                                              \
    TERM(multicast, "rate of a row in two lines that two such CTAs load together, of one that each loads")             \
    TERM(meeting, "clocks of a launch in which CTAs of such a cluster wait for each other")                            \
    TERM(balanced, "1: tiles of unequal work, which the launch balances")                                              \
    TERM(uneven, "the share of a tile, in 1/1024, by which balanced multiprocessors differ at the end")                \
    TERM(split, "CTAs of a cluster that share the steps of a tile")                                                    \
    TERM(exchange, "clocks in which the sums of two such CTAs are exchanged")                                          \
    TERM(further, "added clocks for each CTA behind the second")                                                       \
    TERM(sums, "clocks in which a CTA reads all of a tile's sums")                                                     \
    TERM(stray, "of clusters of more than two CTAs, one in so many finds no place")                                    \
    TERM(load, "rate of a tile's loads, for each step")                                                                \
    TERM(copied_rows, "rate of a row whose operands are copied before, for each step")                                 \
    TERM(copied_columns, "the same, of a column")                                                                      \
    TERM(resident, "CTAs that a multiprocessor computes at a time; 0: one")                                            \
    TERM(slice_steps, "split-K by workspace: the least steps of a slice")                                              \
    TERM(read, "the same: rate of a row or column of all tiles, for each step")                                        \
    TERM(sum, "the same: rate of an element of the result, for each slice")                                            \
    TERM(launch, "clocks of the other launches")                                                                       \
    TERM(alone, "clocks of each wave but the first, of CTAs that compute one tile and load nothing ahead")

#define COST_FIELD(name, meaning) int64_t name;
typedef struct LaunchCost {
    COST_TERMS(COST_FIELD)
} LaunchCost;
#undef COST_FIELD

// Larger than any clocks; of a variant that was asked and does not serve.
#define COST_NEVER 1e300
#define COST_ASKED 2e300

// The first of the least.
static inline int cost_least(const double *clocks, int count) {
    int least = 0, i;
    for (i = 1; i < count; i++)
        if (clocks[i] < clocks[least]) least = i;
    return least;
}

static inline int64_t cost_count(int64_t extent, int64_t tile) {
    return extent <= 0 ? 0 : tile > 1 ? (extent - 1) / tile + 1 : extent;
}

// Tiles with those that fill the last cluster.
static inline double cost_whole(int64_t tiles, int64_t cluster) {
    return (double)cost_count(tiles, cluster) * (cluster > 1 ? (double)cluster : 1);
}

static inline double cost_larger(double a, double b) {
    return a > b ? a : b;
}

static inline double cost_ceil(double value) {
    return value < 4e15 && (double)(int64_t)value < value ? (double)((int64_t)value + 1) : value;
}

static inline double cost_floor(double value) {
    return value > -4e15 && value < 4e15 ? (double)(int64_t)value : value;
}

// CTAs that share the steps of a tile.
static inline double cost_splits(const LaunchCost *c, double tiles, int64_t steps, int64_t multiprocessors) {
    double room = tiles > 1 ? (double)multiprocessors / tiles : (double)multiprocessors, most;
    if (c->slice_steps <= 0) return c->split > 1 ? (double)c->split : 1;
    most = (double)(steps / c->slice_steps);
    room = cost_floor(room);
    return cost_larger(room < most ? room : most, 1);
}

// Tiles that are computed at a time.
static inline double cost_places(const LaunchCost *c, int64_t multiprocessors) {
    double shared = c->cluster_rows > 0 && c->cluster_columns > 0 ? (double)(c->cluster_rows * c->cluster_columns) : 1;
    double ctas = c->split > 1 && c->slice_steps <= 0 ? (double)c->split * shared : shared;
    double clusters = cost_floor((double)multiprocessors / ctas);
    if (ctas > 2 && c->stray > 0) clusters -= cost_floor(clusters / (double)c->stray);
    return cost_larger(clusters * shared, 1) * (c->resident > 1 ? (double)c->resident : 1);
}

// The share of rows that do not start at a multiple of `unit`, a power of two, which the tensor does.
static inline double cost_off(int64_t pitch, int64_t unit) {
    int64_t common = (int64_t)((uint64_t)pitch & (0 - (uint64_t)pitch));   // the largest power of two in it
    return common == 0 || common >= unit || common < 0 ? 0 : 1 - (double)common / (double)unit;
}

static inline double cost_off_rows(const LaunchCost *c, int64_t pitch) {
    return cost_off(pitch, COST_LINE) * (double)c->crossing + cost_off(pitch, COST_SECTOR) * (double)c->straddle;
}

// What a CTA loads of a row that `ctas` of its cluster share.
static inline double cost_shared(const LaunchCost *c, int64_t ctas) {
    return ctas > 1 ? (double)c->multicast * 2 / ((double)ctas * (1 << 20)) : 1;
}

// Clocks of a step's loads. (Rows of a tile are the same for the CTAs next to each other.)
static inline double cost_fetch(const LaunchCost *c, const int64_t extents[COST_EXTENTS]) {
    double first = cost_off_rows(c, extents[COST_FIRST_PITCH]) * cost_shared(c, c->cluster_columns);
    double second = cost_off_rows(c, extents[COST_SECOND_PITCH]) * cost_shared(c, c->cluster_rows);
    return (double)c->fetch + ((double)c->first_rows * first + (double)c->second_rows * second) / (1 << 20);
}

// Clocks of a step of so many CTAs by what power the device has. Few multiprocessors may have a higher clock, but at a
// higher voltage: power grows with the cube of the clock, and the clock with the cube root of their share. This line is
// near to that from a tenth of them on.
static inline double cost_power(const LaunchCost *c, double ctas, int64_t multiprocessors) {
    double share = ctas < (double)multiprocessors ? ctas / (double)multiprocessors : 1;
    return (double)c->power * (1 + share) / 2;
}

// The rate of what is copied before, for each step.
static inline double cost_copied(const LaunchCost *c, const int64_t extents[COST_EXTENTS]) {
    return (double)extents[COST_ROWS] * (double)c->copied_rows +
           (double)extents[COST_COLUMNS] * (double)c->copied_columns;
}

// Clocks in which the L2 cache and memory deliver all operands.
static inline double cost_traffic(const LaunchCost *c, const int64_t extents[COST_EXTENTS], double copies,
                                  int64_t steps) {
    double bytes =
        (double)extents[COST_ROWS] * (double)c->row_bytes + (double)extents[COST_COLUMNS] * (double)c->column_bytes;
    return bytes * (double)steps * copies * (double)c->traffic / (1 << 20);
}

// Of two limits. (Of two that differ by half, the smaller one adds a sixteenth of what an equal one does.)
static inline double cost_limited(const LaunchCost *c, double a, double b) {
    double most = cost_larger(a, b), share = most > 0 ? (a + b - most) / most : 0;
    return most * (1 + share * share * share * share * (double)c->both / 100);
}

// Clocks of a tile after its steps: CTAs that share them read the others' sums.
static inline double cost_tail(const LaunchCost *c) {
    double tail = (double)c->tail + (c->cluster_rows * c->cluster_columns > 1 ? (double)c->meeting : 0);
    if (c->slice_steps > 0 || c->split <= 1) return tail;
    return tail + (double)c->exchange + (double)(c->split - 2) * (double)c->further +
           (double)c->sums * (double)(c->split - 1) / (double)c->split;
}

static inline double cost_clocks(const LaunchCost *c, const int64_t extents[COST_EXTENTS], int64_t multiprocessors) {
    const double unit = 1.0 / (1 << 20);
    int64_t row_tiles = cost_count(extents[COST_ROWS], c->tile_rows),
            steps = cost_count(extents[COST_DEPTH], c->tile_depth);
    int64_t column_tiles = cost_count(extents[COST_COLUMNS], c->tile_columns);
    int64_t readers = row_tiles < column_tiles ? row_tiles : column_tiles;
    int few = c->stream > 0 && readers <= COST_FEW_READERS, by_workspace = c->slice_steps > 0;
    double rows = (double)row_tiles * (double)c->tile_rows, columns = (double)column_tiles * (double)c->tile_columns;
    double copies = extents[COST_COPIES] > 0 ? (double)extents[COST_COPIES] : 0;
    double tiles = cost_whole(row_tiles, c->cluster_rows) * cost_whole(column_tiles, c->cluster_columns) * copies;
    double splits = cost_splits(c, tiles, steps, multiprocessors), places = cost_places(c, multiprocessors);
    double fetch = cost_fetch(c, extents), off = c->fetch > 0 ? fetch / (double)c->fetch : 1;
    double step = cost_larger(few && c->stream > c->step ? (double)c->stream : (double)c->step, fetch);
    double each = cost_ceil((double)steps / splits), loop = each * step, tail = cost_tail(c), point = loop + tail;
    double waves = cost_ceil(tiles * (by_workspace ? splits : 1) / places), moved = 0, powered, clocks;
    if (c->balanced) return cost_larger(tiles * point / places + point * (double)c->uneven / 1024, point);
    if (!(c->stream > 0) || readers >= COST_FEW_READERS) moved = tiles * (double)steps * (double)c->load * off * unit;
    if (by_workspace) moved = (rows + columns) * (double)steps * (double)c->read * unit;
    powered = waves * each * cost_power(c, tiles * splits, multiprocessors) - (double)c->rest;
    moved = cost_larger(moved, cost_traffic(c, extents, copies, steps));
    clocks = cost_limited(c, cost_larger(waves * loop, powered), moved);
    clocks += (c->hidden ? 1 : waves) * tail + (double)c->launch;
    if (waves > 1) clocks += (waves - 1) * (double)c->alone;
    if (few || by_workspace) {
        double beyond = (rows - (double)extents[COST_ROWS]) * (double)column_tiles +
                        (columns - (double)extents[COST_COLUMNS]) * (double)row_tiles;
        clocks += beyond * (double)steps * (double)c->padding * unit;
    }
    clocks += cost_copied(c, extents) * (double)steps * unit;
    if (waves > 0)
        clocks +=
            (double)extents[COST_ROWS] * (double)extents[COST_COLUMNS] * copies * (double)c->stored * unit / waves;
    return clocks + splits * rows * columns * (double)c->sum * unit;
}
