// Lowering: tile ops become statements of one thread.
//
// In: tile-stage kernels with layouts, offsets and mechanisms. Out: thread-stage kernels: `thread` regions, local
// arrays, physical coordinates, instructions. No decisions are made here. Files in order:
//
//     lower_tile_op.c       lower-tile-op: the pass, statements of the CTA
//     lower_roles.c         ... roles and order barriers
//     lower_buffers.c       ... local arrays, physical shared buffers, expressions outside loops
//     lower_loop*.c         ... parallel, copy, fill, transpose: groups; body, accesses, guards
//     lower_gemm*.c         ... gemm by mma or FMA; loops that load fragments a step ahead
//     lower_hopper.c        ... TMA copies, staged stores, gemm by wgmma
//     lower_vector_store.c  ... staged boxes to rows that start at any element
//     lower_transpose.c     ... transposes of bytes in shared memory
//     lower_matrix.c        ... copies by ldmatrix and stmatrix
//     lower_convert.c       ... conversions of fragments within warps
//     lower_reduce.c, lower_scan.c   ... reductions and scans
//     vectorize.c           vectorize: wide accesses
//     unroll.c              unroll: small loops with constant cases
//     hoist_divisions.c     hoist-divisions: those that are the same in each iteration
//     annotate_kernel.c     annotate-kernel: facts for codegen
//
// This header: also gemm, reduction and scratch queries for stage-through-shared and swizzle-allocation.
#pragma once
#include "ir/facts.h"
#include "ir/match.h"
#include "passes/analysis/tile_loop.h"
#include "passes/lower/steps.h"
#include "passes/pass.h"
#include "support/map.h"

// ---- reductions ----
int reduce_op_axis(const Stmt *stmt);           // of a reduction or scan
bool reduces_to_partials(const Stmt *reduce);   // dst keeps the axis, with one element for each partial result
Expr *reduce_identity(Arena *arena, OpId op, Type type);
// The source's layout with only the reduced digits along the axis (tv_split_axis), and the destination's. NULL: the
// threads along the axis cannot be split into that many partial results.
const Layout *reduce_source(Arena *arena, const Stmt *reduce, const Layout *src);
const Layout *reduce_result(Arena *arena, const Stmt *reduce, const Layout *src);
// Rows of scratch (for a scan: elements) for the exchange between the warps of a reduction or scan; 0: none.
int64_t scratch_rows(Arena *arena, const Target *target, const Stmt *stmt);

// ---- scans ----
_Static_assert(OPERAND_INDEX(SCAN_SUM, src) == OPERAND_INDEX(REDUCE_SUM, src) &&
                   OPERAND_INDEX(SCAN_SUM, dst) == OPERAND_INDEX(REDUCE_SUM, dst) &&
                   OPERAND_INDEX(SCAN_SUM, axis) == OPERAND_INDEX(REDUCE_SUM, axis),
               "one way to ask for the operands");
int64_t scan_scratch(const Layout *tv, int axis,
                     int64_t lanes);      // scratch elements for the exchange between warps; 0: none
Region *stmt_scratch(const Stmt *stmt);   // of a reduction or scan; NULL: it has none, or another statement

// Operand numbers (ir/match.h names operands; loops over operands need numbers).
enum { GEMM_A = OPERAND_INDEX(GEMM, a), GEMM_B = OPERAND_INDEX(GEMM, b), GEMM_ACC = OPERAND_INDEX(GEMM, acc) };
enum { COPY_FROM = OPERAND_INDEX(COPY, src), COPY_TO = OPERAND_INDEX(COPY, dst) };

// ---- gemm by mma: operands in shared memory ----
const MmaInfo *gemm_instruction(const Target *target, const Stmt *gemm);   // NULL: fma

// Elements of k per load of the operands: k of one instruction, or of two.
int64_t gemm_step(const Target *target, const Stmt *gemm);

// One ldmatrix pattern. The operand tile has an outer dim (m or n) and the inner dim k; in memory either k or the outer
// dim is contiguous (`trans`). Lane l supplies the row that starts at (outer, inner) of the block: `across` matrices of
// 16 bytes of k, and as many rows as `count` matrices make.
typedef struct MatrixLoad {
    bool is_b;
    bool trans;   // the outer dim is contiguous in memory
    int count;    // 8x8 matrices: 4, 2 or 1
    int across;   // those along k: 2 or 1
    int pack;     // elements per 16-bit unit of ldmatrix: 1 or 2
} MatrixLoad;
MatrixLoad matrix_load(const Target *target, const Stmt *gemm, int operand, int count);
// Row start (outer, inner) as expressions of the lane; constants if the lane is constant.
void matrix_lane(Arena *arena, const MatrixLoad *load, Expr *lane, Expr **outer, Expr **inner);
// The operand can be read with ldmatrix: 16-bit elements in shared memory, or 8-bit ones if k is contiguous, whole
// steps of k, and rows of matrices that start at multiples of their size.
bool matrix_load_possible(const Target *target, const Stmt *gemm, int operand);
// Otherwise: values of the instruction's layout that are consecutive along k in memory, read in one access.
int64_t operand_run(const Stmt *gemm, int operand, const Layout *layout);

// ---- copies between shared memory and a fragment by ldmatrix and stmatrix (lower_matrix.c) ----
enum { MATRIX_WORD = 4, MATRIX_MOST = 4 };   // bytes of a lane's part of a matrix; matrices of an instruction
typedef struct MatrixRest {
    int64_t extent, weight;   // instructions; values from one to the next
} MatrixRest;
typedef struct MatrixCopy {
    bool load, trans;
    bool bytes;           // ldmatrix_bytes, each of whose matrices counts as two, of 8 rows
    bool in_memory;       // rows lie along the bits of the tile's layout, in whichever dims
    int word, matrices;   // elements of a word; matrices of an instruction: 1, 2, 4
    int rest;
    int64_t within[2], weight[2];   // what a bit of the element, of the matrix adds to the value number
    MatrixRest rests[LAYOUT_MAX_MODES];
    const Region *tile, *fragment;
} MatrixCopy;
bool holds_matrices(const Target *target, const Buf *fragment, bool load);      // a fragment that such a copy may have
bool matrix_copy_of(const Target *target, const Stmt *stmt, MatrixCopy *out);   // false: the layouts do not fit
// Coordinates in the tile of the row that a lane gives; `warp` is the number of its first thread, `value` that of the
// instruction's first value.
void matrix_copy_row(Arena *arena, const Facts *facts, const MatrixCopy *copy, Expr *warp, Expr *lane, Expr *value,
                     Expr **at);

// ---- copies between shared memory and a fragment along the bits of their layouts (lower_linear.c) ----
typedef struct LinearCopy {
    bool load;
    int64_t width;                   // elements of an access
    int64_t within[4];               // what a bit of the element adds to the value number
    Steps threads, values, copies;   // places of threads, of a thread's accesses; equal values
    const Region *tile, *fragment;
} LinearCopy;
bool linear_copy_of(const Target *target, const Stmt *stmt, LinearCopy *out);   // false: the layouts are not linear

// ---- lowering ----
typedef struct Lower {
    PassContext *context;
    Arena *arena;
    Func *kernel;
    const Target *target;
    Facts *facts;
    Var *thread;      // the thread index of the current region
    Var *member;      // of an array of roles: which of them it is. NULL: no array
    Var *warpgroup;   // of a role of several: index of the thread's warpgroup. NULL: a single one
    int64_t threads;
    Map *locals;     // fragment Buf -> local Buf
    Map *physical;   // shared Buf -> physical Buf
    Map *arrays;     // shared Buf -> the array of roles of which each member has one: the first dim of the physical one
    bool one;        // one thread executes the whole role
    bool repeats;    // the current statement is in a loop
} Lower;

Expr *lower_thread(Lower *lower);                     // t
Expr *lower_lane(Lower *lower);                       // of the warp
Expr *lower_simple(const Lower *lower, Expr *expr);   // simplified with the facts
// Simplified, and with a name in `out` unless it is a constant or variable; the facts know the name.
Expr *lower_named(Lower *lower, const char *name, Expr *value, Span loc, Block *out);
// The condition that the thread's value number `value` is within the buffer's shape; NULL: all are.
Expr *lower_inside(Lower *lower, const Layout *layout, const Buf *buf, Expr *value);
// The body of a new loop begin .. end. The index is known to the facts until they are released.
Block *lower_counted(Lower *lower, LoopKind kind, const char *name, int64_t begin, int64_t end, Span loc, Expr **index,
                     Block *out);
// An element in the coordinates of threads: physical for a shared buffer (slots, then Forward); unchanged for others.
Region *lower_place(Lower *lower, Buf *buf, int count, Expr *const *indices);
// The same for a tile, in the slot of `tile`.
Region *lower_in_slot(Lower *lower, const Region *tile, int count, Expr *const *at);
// Makes all remaining shared and fragment accesses of a statement physical (outside of the loops that lowering emits).
Expr *lower_expr(Lower *lower, Expr *expr);
Expr *lower_load(Lower *lower, Expr *load);   // outside loops
// The slot of a fragment element that every thread holds; error if some thread does not.
Expr *lower_replicated_slot(Lower *lower, const Buf *fragment, int count, Expr *const *indices, Span loc);
Buf *lower_local(Lower *lower, Buf *fragment);   // its local array
Buf *lower_physical(Lower *lower, Buf *shared);
// An element of it, at indices that are physical already; of an array of roles the member's.
Region *lower_in_image(Lower *lower, Buf *shared, int count, Expr *const *indices);
// An element operand (of atomics, loads, stores, mbarriers) in physical coordinates.
Region *lower_element(Lower *lower, const Region *region);
// The condition that all global elements of a lowered call are inside their tensors. NULL: always.
Expr *lower_call_guard(Lower *lower, int count, const Arg *args);

// Statements of a block (lower_tile_op.c); regions, roles and order barriers (lower_roles.c).
void lower_block(Lower *lower, const Block *from, Block *to);
void lower_stmt(Lower *lower, Stmt *stmt, Block *out);
// The body of an `if` for thread 0 and the guard (NULL: none).
Block *lower_single_thread(Lower *lower, Expr *guard, Block *out);
// A `thread (t in n)` region for `threads` threads; statements lowered from here on use its index.
Stmt *open_region(Lower *lower, int64_t threads, Span loc);
// Scalars that all roles use, the roles, and between them the statements of the whole CTA.
void lower_roles(Lower *lower, const Block *body, int64_t threads, Block *out);
// Names the warpgroup of a thread, where the work of the region's threads is divided by warpgroups.
void lower_warpgroup(Lower *lower, const Block *work, Span loc, Block *out);
bool lower_order(Lower *lower, const Stmt *stmt, Block *out);   // an order barrier; false: another statement
bool lower_leader_wait(Lower *lower, Stmt *wait, Block *out);   // a `@leader` wait; false: one of all
// Of the warpgroup of the role, or of all its threads where it has one only.
void lower_warpgroup_barrier(Lower *lower, Span loc, Block *out);

// A parallel loop, copy, fill or transpose: the thread's values first .. first + count of its map (multiples of its
// @vector); count 0: all.
void lower_loop(Lower *lower, Stmt *stmt, const TileLoop *loop, int64_t first, int64_t count, Block *out);
void lower_gemm(Lower *lower, Stmt *stmt, Block *out);
// A loop that waits for its tiles, starts later copies and ends with one gemm from shared memory: fragments are loaded
// one step ahead.
bool is_gemm_loop(const Target *target, const Stmt *loop);
// But for where it waits, which insert-sync asks before it has placed the waits.
bool may_be_gemm_loop(const Target *target, const Stmt *loop);
void lower_gemm_loop(Lower *lower, Stmt *loop, Block *out);
// Hopper (lower_hopper.c): a TMA copy, for the thread that starts it; a gemm by wgmma.
void lower_tma(Lower *lower, const Stmt *copy, Block *out);
// From a shared tile to a tensor, by tma_store or tma_add; closes a group.
void lower_tma_away(Lower *lower, const Stmt *copy, OpId op, Block *out);
// A store of a fragment, staged in shared memory, by all threads, with the `loops` (@epilogue_subtile) before it.
void lower_staged_store(Lower *lower, const Stmt *copy, const Block *loops, Block *out);
typedef struct StagedBox {
    Buf *buf;   // its staging, with indices `at` before the box's row and column
    Expr *at[2];
    int prefix;   // how many
    Expr *row;    // of the tile, where the box starts
    int64_t column, rows, columns;
} StagedBox;
// `thread`: the index within the warpgroup, all of whose threads take part. Behind a barrier.
void lower_vector_store(Lower *lower, const Region *to, const StagedBox *box, Expr *thread, Span loc, Block *out);
void lower_wgmma(Lower *lower, const Stmt *gemm, Block *out);
void lower_transpose(Lower *lower, const Stmt *copy, Block *out);   // @via(transpose)
// The lane's address operand, relative to the warp's corner: row k of S (`load`, for ldmatrix) or row d of T (for
// stmatrix); the other result is the position in the row. T's layout (NULL: not known yet) gives the order of k.
void transpose_row(const Layout *layout, int lane, bool load, int *k, int *d);
void lower_matrix_copy(Lower *lower, const Stmt *stmt, const MatrixCopy *copy,
                       Block *out);   // @via(ldmatrix), @via(stmatrix)
// Together with the loops that compute the registers, an instruction at a time. False: it does not take them in order.
bool lower_matrix_subtiles(Lower *lower, const Stmt *stmt, const MatrixCopy *copy, const Block *loops, Block *out);
void lower_linear_copy(Lower *lower, const Stmt *stmt, const LinearCopy *copy, Block *out);   // @via(linear)
void lower_conversion(Lower *lower, const Stmt *copy, Block *out);                            // @via(shuffle)
Type conversion_type(const Buf *from, const Buf *to);   // in which elements of a conversion travel
void lower_reduce(Lower *lower, Stmt *stmt, Block *out);
bool lower_scan(Lower *lower, Stmt *stmt, Block *out);   // false: the layout's digits along the axis have gaps
