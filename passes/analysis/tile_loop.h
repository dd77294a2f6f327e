// Tile ops as loops: copy, fill, transpose and `parallel` all execute a body for every point of an iteration space.
// Layout inference and lowering work on this form.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "layout/distribution.h"

typedef struct TileLoop {
    Stmt *origin;
    int rank;
    Var *iters[LAYOUT_MAX_RANK];
    int64_t extents[LAYOUT_MAX_RANK];   // constants; iterators run from 0 by 1
    Block body;                         // over the iterators; a parallel loop's own body, or one store
    Expr *clip;                         // guard, of a copy to or from a clipped region. NULL: none
    bool is_async;                      // starts cp.async copies: @via(cp_async)
} TileLoop;

// False if `stmt` is none of these, or a parallel loop with an extent that is not constant.
bool tile_loop_of(Arena *arena, Stmt *stmt, TileLoop *loop);
TileLoop loop_space(Stmt *loop);                   // of a parallel loop as it stands: extents may be -1, no body
const Layout *stmt_layout(const Stmt *stmt);       // its @map; NULL: none
int operand_dim(const Region *region, int kept);   // the operand's dim that is the buffer's kept dim `kept`
// Buffer indices of the operand element at tile coordinates `at` (one per kept dim of the region, after `.T`).
Expr **region_indices(Arena *arena, const Region *region, Expr *const *at);

// One load or store of a buffer element in a loop's body.
typedef struct TileAccess {
    Buf *buf;
    int count;
    Expr **indices;   // with the body's pure lets substituted
    bool is_store, is_atomic;
    bool adds;          // an atomic addition whose old value is unused
    OpId update;        // an atomic whose old value is unused; OP_COUNT: none
    bool elsewhere;     // writes shared memory of another CTA of the cluster
    bool is_peer;       // reads shared memory of another CTA of the cluster
    Expr *condition;    // of the `if` and `?:` around it, over the iterators; NULL: none
    bool conditional;   // under other conditions: with a load or a variable of the body, `&&`, an inner loop
    bool is_local;      // an index uses a variable of the body (a `var`, an inner iterator, the result of an atomic)
    Expr *load;         // the node, for loads
    Stmt *store;        // the statement, for stores
} TileAccess;
typedef VEC(TileAccess) TileAccessVec;
// The loop is `shared[..] = global[..];`, or of `condition ? global[..] : 0`, without conversion: returns the load.
// NULL: the loop does more.
const Expr *tile_move(Arena *arena, const TileLoop *loop);
void tile_accesses(Arena *arena, const TileLoop *loop, TileAccessVec *out);

// ---- index arithmetic ----
// expr == coefficient * var + (rest without var), coefficient constant. False when it is not of that form.
bool linear_in(const Expr *expr, const Var *var, int64_t *coefficient);
typedef enum { STRIDE_NONE, STRIDE_UNIT, STRIDE_OTHER } StrideKind;   // stride of an access along an iterator
StrideKind access_stride(const TileAccess *access, const Var *iter);
// The same for aligned runs of 2, 4, .. iterations: those of x[.., iter / n, .., iter % n] are consecutive if they
// divide n. `run_start`: has the alignment of the last index of the first element of every run.
StrideKind run_stride(const TileAccess *access, const Var *iter);
Expr *run_start(Arena *arena, const TileAccess *access, Var *iter);
// The access begins on a multiple of `vector` elements, a power of two, from the tensor's first: along each dim, or as the sum of
// all, as x[row, j * 8 - row * N % 8] does in rows of N elements.
bool starts_on_vector(const Facts *facts, const TileAccess *access, Var *iter, int64_t vector);
// The access takes consecutive elements along `fast`, and each group of them has one condition: that of its first
// iteration.
bool access_in_runs(const TileLoop *loop, const TileAccess *access, int fast);
// The same as vectors: vector loads come before the other accesses of a group, vector stores after them, in order.
bool access_in_vectors(const TileLoop *loop, const TileAccessVec *accesses, const TileAccess *access, int fast);
// Which loop iterator each index of a fragment is: dims[d] = iterator number, or -1 for a constant index. False if some
// index is neither, or if an iterator occurs twice.
bool index_dims(const TileLoop *loop, int count, Expr *const *indices, int *dims);

// ---- fragment_digits.c ----
// A digit of an index of a fragment: an iterator of the loop, or a constant.
typedef struct FragmentDigit {
    int dim, iterator;   // of the fragment; of the loop, -1: `value`
    int64_t extent, value;
} FragmentDigit;

typedef struct FragmentDigits {   // of all indices; of each dim the slowest first
    int count;
    FragmentDigit items[LAYOUT_MAX_RANK];
} FragmentDigits;

// An index is an iterator, a constant, or a sum like j * 8 + k in which iterators and a constant are digits of the dim.
// False if some index is none of these, or if an iterator occurs twice.
bool fragment_digits(const TileLoop *loop, const Buf *buf, int count, Expr *const *indices, FragmentDigits *out);
FragmentDigits whole_digits(const Buf *buf, int rank);   // dim d by iterator d
bool digits_are_dims(const FragmentDigits *digits);      // each dim is one
bool digits_equal(const FragmentDigits *a, const FragmentDigits *b);
// Layouts (thread, value) -> digits: of what the map of a loop gives each thread (`held`: all of constant digits too),
// extended to whole digits, as one of the fragment's dims, and from one; NULL: it is padded within a dim, or its steps
// do not lie in digits.
const Layout *digits_project(Arena *arena, const FragmentDigits *digits, const Layout *map, bool held);
const Layout *digits_covering(Arena *arena, const FragmentDigits *digits, const Layout *tv);
const Layout *digits_join(Arena *arena, const FragmentDigits *digits, int rank, const Layout *tv);
const Layout *digits_split(Arena *arena, const FragmentDigits *digits, const Layout *tv);

// The iterator along which the loop's memory accesses are contiguous (weighted by bytes); by default the last one.
int loop_fast_dim(const TileLoop *loop, const TileAccessVec *accesses);
// Elements that one thread may access at a time along `fast`: all unit-stride memory accesses are aligned for that
// many, or for as many as one instruction takes.
int64_t loop_vector(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                    const Target *target);
// The loop is a move whose load may be made of aligned vectors, shifted (@via(shifted)). Then loop_vector does not ask how it is aligned.
bool loop_shifts(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                 const Target *target);
// The condition that the columns of the whole tile are inside, and in the tensor the aligned units that hold its elements.
Expr *units_inside(Arena *arena, const Facts *facts, const TileLoop *loop, const TileAccess *access, int64_t vector);
// It is that load, and the statement has @via(shifted).
bool access_is_shifted(const Facts *facts, const TileLoop *loop, const TileAccess *access, int fast);
// The elements that one atomic instruction adds to global memory along `fast`; 1: *why. Each atomic is a request of its
// own, so scalar atomics go to consecutive elements in adjacent threads.
int64_t loop_atomics(const TileLoop *loop, const TileAccessVec *accesses, int fast, const Target *target,
                     const char **why);
// A shared-memory access of the loop moves across `fast` with another stride (a transposed side).
bool loop_has_transposed_side(const TileLoop *loop, const TileAccessVec *accesses, int fast);

// The index at the corner of the tile where it is largest (or smallest). NULL if it is not linear in the iterators.
Expr *tile_corner(Arena *arena, const Facts *facts, const TileLoop *loop, Expr *index, bool largest);
// The condition that the access to a global tensor lies within it; NULL: proven.
Expr *access_guard(Arena *arena, const Facts *facts, const Buf *buf, int count, Expr *const *indices);
