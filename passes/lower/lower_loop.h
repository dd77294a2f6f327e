// What the parts of the lowering of loops share (lower_loop.c): one version of a loop, for one thread, and the group
// and element at which it stands.
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
    int64_t from, values;            // of the thread's values, those that are done
    bool inside;                     // the whole tile was tested: no guards
    Expr *group;                     // q
    Expr *element;                   // e, or constant 0
    Expr *index_[LAYOUT_MAX_RANK];   // of this element: the loop's iterators
    Expr *first[LAYOUT_MAX_RANK];    // of the group
    Expr *first_replica;             // NULL: no replicas
    Map *temporaries;                // Expr (load) or Stmt (store) -> local Buf holding the group
    Map *indices;                    // of a gather: Expr (index) -> local Buf of those of `unrolled` groups
    Expr *number;                    // of the group among these
} Version;

// ---- points and the body at them (lower_loop_body.c) ----
Expr *at_index(Version *version, Expr *expr, Expr *const *index_);
Expr **access_at(Version *version, const TileAccess *access, Expr *const *index_);   // its indices
Expr *version_expr(Version *version, Expr *expr);
void version_block(Version *version, const Block *from, Block *to);
Expr *guard_of(Version *version, const Buf *buf, int count, Expr *const *indices);

// ---- groups (lower_loop.c) ----
// The coordinates of the group's first point as lets, with what is known of them. Returns what says that it is no
// padding of the map; NULL: none is.
Expr *bind_index(Version *version, Block *out);
// The block for one of `count` groups, and the group in it; *number: of it among these.
Block *group_loop(Version *version, LoopKind kind, const char *name, int64_t count, Expr **number, Block *out);
bool touches_registers(const Version *version);

// ---- accesses of groups (lower_loop_access.c) ----
bool is_vector_access(const Version *version, const TileAccess *access);
void group_in_vectors(Version *version, Block *out);

bool can_start(const Version *version);
// The indices of a gather are read before its first copy starts: each would wait for the one before.
void load_indices(Version *version, int64_t unrolled, Block *out);
void start_group(Version *version, Block *out);

// ---- conditions around the loop (lower_loop_guards.c) ----
bool needs_two_versions(const Version *version);
// The condition that the whole tile of every guarded access is inside. NULL: there is none.
Expr *whole_tile_inside(Version *version);

// Where a warp's threads can say at once that the loop has nothing to do for any of them: the block for what it does.
Block *unless_skipped(const Version *version, Block *out);
void leave_out(Version *version);   // values for which no thread does anything
