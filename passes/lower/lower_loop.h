// Shared by lower_loop*.c: one version of a loop for one thread, and its current group and element.
#pragma once
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "support/map.h"

typedef struct Version {
    Lower *lower;
    Arena *arena;
    const TileLoop *loop;
    const Layout *map;
    const TileAccessVec *accesses;
    int fast;
    int64_t vector;                  // n
    int64_t from, values;            // first value and number of values of the thread that this version executes
    bool inside;                     // the whole tile was tested: no guards (@via(shifted): its columns)
    Expr *group;                     // q
    Expr *element;                   // e, or constant 0
    Expr *index_[LAYOUT_MAX_RANK];   // the loop's iterators at the current element
    Expr *first[LAYOUT_MAX_RANK];    // at the first element of the group
    Expr *first_replica;             // NULL: no replicas
    Expr *padding;                   // a condition of all loads: the iteration is no padding of the map; NULL: none
    Map *temporaries;                // Expr (load) or Stmt (store) -> local Buf holding the group
    Map *indices;                    // of a gather: Expr (index) -> local Buf with the indices of `unrolled` groups
    Expr *number;                    // of the group among these
} Version;

// ---- iterations and their body (lower_loop_body.c) ----
Expr *at_index(Version *version, Expr *expr, Expr *const *index_);
Expr **access_at(Version *version, const TileAccess *access, Expr *const *index_);   // its indices
Expr *version_expr(Version *version, Expr *expr);
void version_block(Version *version, const Block *from, Block *to);
Expr *guard_of(Version *version, const Buf *buf, int count, Expr *const *indices);

// ---- groups (lower_loop.c) ----
// Adds lets for the coordinates of the group's first iteration, with facts about them. Returns the condition that the
// iteration is not padding of the map; NULL: no padding.
Expr *bind_index(Version *version, Block *out);
// A loop over `count` groups, or one group; returns its body. *number: of the group among these.
Block *group_loop(Version *version, LoopKind kind, const char *name, int64_t count, Expr **number, Block *out);
bool touches_registers(const Version *version, bool writes);   // writes: by stores

// ---- accesses of groups (lower_loop_access.c) ----
void group_in_vectors(Version *version, Block *out);

// Elements in memory that the store's value joins to wider ones (lower_loop_joined.c).
void load_joined_elements(Version *version, const Stmt *store, Block *out);
// Stores from `at` on of the elements of a wider one, as one: how many; 0: they are none.
int store_joined_elements(Version *version, const Block *block, int at, Block *out);

bool can_start(const Version *version);
// Reads all indices of a gather before its first copy starts: else each read would wait for the one before.
void load_indices(Version *version, int64_t unrolled, Block *out);
void start_group(Version *version, Block *out);

// ---- conditions around the loop (lower_loop_guards.c) ----
bool guard_is_uniform(const Version *version, const TileAccess *access);   // the same for all elements of a group
bool needs_two_versions(const Version *version);
const TileAccess *shifted_access(const Version *version);   // the load of @via(shifted). NULL: none
// The condition that every guarded access, `except` left out (NULL: none is), is inside for the whole tile. NULL: no condition.
Expr *whole_tile_inside(Version *version, const TileAccess *except);

// If a warp can test that no thread has work in the loop: the block under that test.
Block *unless_skipped(const Version *version, Block *out);
void leave_out(Version *version);   // skips values without work in any thread
