// Tile ops seen as loops: copy, fill, transpose and `parallel` are all "for every point of a space, do this body".
// Layout inference and lowering work on this one form.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"

typedef struct TileLoop {
    Stmt *origin;
    int rank;
    Var *iters[LAYOUT_MAX_RANK];
    int64_t extents[LAYOUT_MAX_RANK];   // constants; iterators run from 0 by 1
    Block body;                         // over the iterators; a parallel loop's own body, or one store
    Expr *clip;                         // only where this holds; of a copy to part of a tensor. NULL: everywhere
    bool is_async;                      // starts cp.async copies: @via(cp_async)
} TileLoop;

// False when `stmt` is none of them (or a parallel loop with an extent that is not constant).
bool tile_loop_of(Arena *arena, Stmt *stmt, TileLoop *loop);
const Layout *stmt_layout(Arena *arena, const Stmt *stmt);   // its @map; NULL: it has none
// Buffer indices of the operand element at tile coordinates `at` (one per kept dim of the region, after `.T`).
Expr **region_indices(Arena *arena, const Region *region, Expr *const *at);
// The element at `at` lies within the region's dynamic extents; NULL when it always does.
Expr *region_clip(Arena *arena, const Region *region, Expr *const *at);

// One load or store of a buffer element in a loop's body.
typedef struct TileAccess {
    Buf *buf;
    int count;
    Expr **indices;   // with the body's pure lets put in
    bool is_store, is_atomic;
    bool adds;          // an atomic addition whose old value is unused
    OpId update;        // an atomic whose old value is unused; OP_COUNT: none
    bool elsewhere;     // written in the shared memory of a block of the cluster
    bool is_peer;       // read in the shared memory of a block of the cluster: atomic for all that would vectorize it
    Expr *condition;    // of the `if` and `?:` around it, over the iterators; NULL: none
    bool conditional;   // under others: with a load or a variable of the body, `&&`, an inner loop
    bool is_local;      // an index uses a variable of the body (a `var`, an inner iterator, what an atomic returned)
    Expr *load;         // the node, for loads
    Stmt *store;        // the statement, for stores
} TileAccess;
typedef VEC(TileAccess) TileAccessVec;
// The loop is `shared[..] = global[..];`, or of `condition ? global[..] : 0`, of one type: the load. NULL: it does
// more.
const Expr *tile_move(Arena *arena, const TileLoop *loop);
void tile_accesses(Arena *arena, const TileLoop *loop, TileAccessVec *out);

// ---- index arithmetic ----
// expr == coefficient * var + (rest without var), coefficient constant. False when it is not of that form.
bool linear_in(const Expr *expr, const Var *var, int64_t *coefficient);
typedef enum { STRIDE_NONE, STRIDE_UNIT, STRIDE_OTHER } StrideKind;   // how an access moves with an iterator
StrideKind access_stride(const TileAccess *access, const Var *iter);
// The same for runs of 2, 4, .. iterations from multiples of that on: those of x[.., iter / n, .., iter % n] are
// consecutive too, if they divide n. `run_start`: what the first one's last index is a multiple of, whatever run it is.
StrideKind run_stride(const TileAccess *access, const Var *iter);
Expr *run_start(Arena *arena, const TileAccess *access, Var *iter);
// The access takes consecutive elements along `fast`, in groups of which all or none happen: its condition is that of
// the group's first point.
bool access_in_runs(const TileLoop *loop, const TileAccess *access, int fast);
// The same, and as vectors: these are read before all that a group does, and written behind it, in order.
bool access_in_vectors(const TileLoop *loop, const TileAccessVec *accesses, const TileAccess *access, int fast);
// Which loop iterator each index of a fragment access is: dims[d] = iterator number, or -1 for a constant index.
// False when some index is neither, or an iterator comes twice.
bool access_dims(const TileLoop *loop, const TileAccess *access, int *dims);

// The iterator along which the loop's memory accesses are contiguous (bytes vote), the last one by default.
int loop_fast_dim(const TileLoop *loop, const TileAccessVec *accesses);
// Elements that one thread may take at once along `fast`: all unit-stride memory accesses are aligned for that many, or
// for as many as an instruction takes of them.
int64_t loop_vector(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                    const Target *target);
// As many elements as one instruction adds to global memory along `fast`, of the atomics there; 1: *why. An atomic is a
// request of its own, so where one takes an element alone, threads side by side take elements that are.
int64_t loop_atomics(const TileLoop *loop, const TileAccessVec *accesses, int fast, const Target *target,
                     const char **why);
// A shared-memory access of the loop moves across `fast` with another stride (a transposed side).
bool loop_has_transposed_side(const TileLoop *loop, const TileAccessVec *accesses, int fast);

// The access to a global tensor lies within it: a condition, NULL when proven.
Expr *access_guard(Arena *arena, const Facts *facts, const Buf *buf, int count, Expr *const *indices);
