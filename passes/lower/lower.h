// What lowering, stage-through-shared and swizzle-allocation share about gemms, reductions and shared-memory access
// patterns.
#pragma once
#include "ir/facts.h"
#include "ir/match.h"
#include "passes/analysis/tile_loop.h"
#include "passes/pass.h"
#include "support/map.h"

// ---- reductions ----
enum {
    REDUCE_SRC = OPERAND_INDEX(REDUCE_SUM, src),
    REDUCE_DST = OPERAND_INDEX(REDUCE_SUM, dst),
    REDUCE_AXIS = OPERAND_INDEX(REDUCE_SUM, axis),
    REDUCE_ACCUMULATE = OPERAND_INDEX(REDUCE_SUM, accumulate),
    REDUCE_SCRATCH = OPERAND_INDEX(REDUCE_SUM, scratch)
};
int reduce_op_axis(const Stmt *stmt);           // of a reduction or scan
bool reduces_to_partials(const Stmt *reduce);   // dst keeps the axis, with one element for each partial result
Expr *reduce_identity(Arena *arena, OpId op, Type type);
Expr *reduce_combine(Arena *arena, OpId op, Expr *a, Expr *b);   // of two partial results
// The source's layout with only that along the axis which is reduced (tv_split_axis), and the destination's. NULL: the
// threads along the axis do not come out as so many parts.
const Layout *reduce_source(Arena *arena, const Stmt *reduce, const Layout *src);
const Layout *reduce_result(Arena *arena, const Stmt *reduce, const Layout *src);

// ---- scans ----
enum { SCAN_SRC = OPERAND_INDEX(SCAN_SUM, src), SCAN_DST = OPERAND_INDEX(SCAN_SUM, dst) };
enum { SCAN_SCRATCH = OPERAND_INDEX(SCAN_SUM, scratch) };
_Static_assert(OPERAND_INDEX(SCAN_SUM, axis) == OPERAND_INDEX(REDUCE_SUM, axis), "one way to ask for the axis");
int64_t scan_scratch(const Layout *tv, int axis, int64_t lanes);   // elements that the warps exchange; 0: none
// Where a reduction or scan has its scratch among its operands; -1: neither.
int scratch_operand(const Stmt *stmt);

// Places of operands (ir/match.h names them where no loop over them needs a number).
enum {
    GEMM_A = OPERAND_INDEX(GEMM, a),
    GEMM_B = OPERAND_INDEX(GEMM, b),
    GEMM_ACC = OPERAND_INDEX(GEMM, acc),
    GEMM_ACCUMULATE = OPERAND_INDEX(GEMM, accumulate)
};
enum {
    COPY_FROM = OPERAND_INDEX(COPY, src),
    COPY_TO = OPERAND_INDEX(COPY, dst),
    COPY_BAR = OPERAND_INDEX(COPY, bar),
    COPY_STAGE = OPERAND_INDEX(COPY, stage),
    COPY_TAIL = OPERAND_INDEX(COPY, tail),
    COPY_EVICT_FIRST = OPERAND_INDEX(COPY, evict_first),
    COPY_BLOCKS = OPERAND_INDEX(COPY, blocks)
};

// ---- gemm by mma: how operands come from shared memory ----
const MmaInfo *gemm_instruction(const Target *target, const Stmt *gemm);   // NULL: fma

// Elements of k of the operands that are loaded at once: what one instruction takes, or two.
int64_t gemm_step(const Target *target, const Stmt *gemm);

// One ldmatrix pattern. The operand tile has an outer dim (m or n) and the inner dim k; in memory either k or the outer
// dim is contiguous (`trans`). Lane l supplies the row that starts at (outer, inner) of the block: 16 (x4) or 8 (x2) by
// 32 bytes of k.
typedef struct MatrixLoad {
    bool is_b;    // b: two n tiles of 8; a: one m tile of 16
    bool trans;   // the outer dim is contiguous in memory
    int count;    // 8x8 matrices: 4 or 2
    int pack;     // elements that are one for ldmatrix, 16 bits: 1 or 2
} MatrixLoad;
MatrixLoad matrix_load(const Stmt *gemm, int operand, int count);
// Here as expressions of the lane: constants if it is one.
void matrix_lane(Arena *arena, const MatrixLoad *load, Expr *lane, Expr **outer, Expr **inner);
// The operand can be read with ldmatrix: 16-bit elements in shared memory; 8-bit ones where k is contiguous.
bool matrix_load_possible(const Target *target, const Stmt *gemm, int operand);
// Where it cannot: values of the instruction's layout that are neighbours along k in memory, read in one access.
int64_t operand_run(const Stmt *gemm, int operand, const Layout *layout);

// ---- lowering ----
typedef struct Lower {
    PassContext *context;
    Arena *arena;
    Func *kernel;
    const Target *target;
    Facts *facts;
    Var *thread;      // the thread index of the region being made
    Var *warpgroup;   // of a role of several: which one the thread is of. NULL: there is one
    int64_t threads;
    Map *locals;     // fragment Buf -> local Buf
    Map *physical;   // shared Buf -> physical Buf
    bool one;        // the role does only what one thread does: the others stay away from all of it
    bool repeats;    // what is being lowered stands in a loop
} Lower;

Expr *lower_thread(Lower *lower);                     // t
Expr *lower_lane(Lower *lower);                       // of the warp
Expr *lower_simple(const Lower *lower, Expr *expr);   // simplified with what is known
// The thread's value number `value` of the layout lies within the buffer's shape; NULL: all do.
Expr *lower_inside(Lower *lower, const Layout *layout, const Buf *buf, Expr *value);
// The body of a new loop begin .. end, whose index is known to the facts until they are released.
Block *lower_counted(Lower *lower, LoopKind kind, const char *name, int64_t begin, int64_t end, Span loc, Expr **index,
                     Block *out);
void lower_barrier(Lower *lower, Block *out);   // of all threads of the CTA or role
// An element as threads address it: of a shared buffer its physical place (ring dims, then Forward); others stay.
Region *lower_place(Lower *lower, Buf *buf, int count, Expr *const *indices);
// The same of a tile in the slot that `tile` names.
Region *lower_in_slot(Lower *lower, const Region *tile, int count, Expr *const *at);
// All shared and fragment accesses left in a statement (outside loops made by the lowering) become physical.
Expr *lower_expr(Lower *lower, Expr *expr);
Expr *lower_load(Lower *lower, Expr *load);   // outside loops
// The slot of a fragment element that every thread holds; where not all do, an error.
Expr *lower_replicated_slot(Lower *lower, const Buf *fragment, int count, Expr *const *indices, Span loc);
Buf *lower_local(Lower *lower, Buf *fragment);   // its local array
Buf *lower_physical(Lower *lower, Buf *shared);
// An element operand (of atomics, loads, stores, mbarriers) in physical coordinates.
Region *lower_element(Lower *lower, const Region *region);

// Statements of a block (lower_tile_op.c); regions, roles and order barriers (lower_roles.c).
void lower_block(Lower *lower, const Block *from, Block *to);
void lower_stmt(Lower *lower, Stmt *stmt, Block *out);
// The body of an `if` for thread 0 and the guard (NULL: none).
Block *lower_single_thread(Lower *lower, Expr *guard, Block *out);
// A `thread (t in n)` region for `threads` threads; statements that are lowered from here on go by its index.
Stmt *open_region(Lower *lower, int64_t threads, Span loc);
// Scalars that all roles see, the roles, and between them what the whole block does.
void lower_roles(Lower *lower, const Block *body, int64_t threads, Block *out);
bool lower_order(Lower *lower, const Stmt *stmt, Block *out);   // false: it neither begins nor ends one
bool lower_leader_wait(Lower *lower, Stmt *wait, Block *out);   // a `@leader` wait; false: it is everybody's

void lower_loop(Lower *lower, Stmt *stmt, const TileLoop *loop, Block *out);   // parallel, copy, fill, transpose
// The part of it that each thread does for its values first .. first + count of the loop's map (multiples of its
// @vector); count 0: all.
void lower_loop_slice(Lower *lower, Stmt *stmt, const TileLoop *loop, int64_t first, int64_t count, Block *out);
void lower_gemm(Lower *lower, Stmt *stmt, Block *out);
// A loop that waits for its tiles, starts later copies and ends with one gemm from shared memory: its fragments are
// loaded a step ahead.
bool is_gemm_loop(const Target *target, const Stmt *loop);
void lower_gemm_loop(Lower *lower, Stmt *loop, Block *out);
// Hopper (lower_hopper.c): a copy that TMA does, for the thread that starts it; a gemm by wgmma.
void lower_tma(Lower *lower, const Stmt *copy, Block *out);
// From a shared tile to a tensor, by tma_store or tma_add; closes a group.
void lower_tma_away(Lower *lower, const Stmt *copy, OpId op, Block *out);
// Of a fragment, by all threads, with the `loops` (@epilogue_subtile) that stand before it.
void lower_tma_store(Lower *lower, const Stmt *copy, const Block *loops, Block *out);
void lower_wgmma(Lower *lower, const Stmt *gemm, Block *out);
void lower_transpose(Lower *lower, const Stmt *copy, Block *out);   // @via(ldmatrix)
// Row k of S (`load`: of ldmatrix) or d of T (of stmatrix) whose address the lane gives, from the warp's corner on; the
// other one is where in it. T's layout (NULL: not known yet) says in which order it has k.
void transpose_row(const Layout *layout, int lane, bool load, int *k, int *d);
void lower_reduce(Lower *lower, Stmt *stmt, Block *out);
bool lower_scan(Lower *lower, Stmt *stmt, Block *out);   // false: the digits of its layout along the axis leave gaps
