// Selection of instructions.
//
// In: tile-stage kernels. Out: `@via(..)` on each copy and gemm, and the facts that the launch must guarantee. Files:
//
//     select.c       select: the pass
//     tma.c          requirements of TMA and wgmma
//     tma_simple.c   TMA without warp specialization: legality and cost
//     tma_reduce.c   additions to a tensor by TMA
//     bulk.c         bulk copies: TMA without a tensor map
//
// This header: requirements of TMA and wgmma on copies and gemms. select tests them; swizzle-allocation chooses the
// layouts of their buffers; lower-tile-op writes their operands. One source of truth: the tensor map, the addresses in
// shared memory and the matrix descriptor all follow from the layout that tma_layout gives a buffer.
//
// Functions named `_problem` return NULL, or the reason why not.
#pragma once
#include "ir/facts.h"
#include "ir/ir.h"
#include "layout/tma_tile.h"
#include "target/target.h"

// A tile [.., columns] in shared memory consists of panels. A panel has as many columns as one swizzle span holds, and
// its rows are in row-major order of the other dims. It is the box of one TMA copy (of two dims, several if it has more than 256 rows), and the unit of wgmma's matrix
// descriptors. If no span fits, or the number of rows is no multiple of 8, the tile is one panel without swizzle. (PTX
// ISA, "Swizzling modes"; "Matrix descriptor".)
typedef struct TmaPanels {
    int64_t rows, columns;   // of a panel, elements
    int64_t count;
    int swizzle;   // bytes: 128, 64, 32; 0: none
} TmaPanels;
// For the dims of a shared buffer without its slots: one (a vector is one row) to five.
const char *tma_panels_problem(const Buf *shared, TmaPanels *out);
const char *tma_boxes_problem(const Buf *shared, TmaPanels *out);   // the same of a tile that TMA copies
// Of a tile of two dims with a swizzle, which may be several boxes along its rows: rows of a box. 0: there is no number that serves.
int64_t tma_box_rows(int64_t rows);
// Two dims and a swizzle: a matrix operand. A layout that the tile has must be that of such panels, or the one with the
// columns in `order` (tma_layout_ordered; NULL: none).
const char *tma_matrix_problem(Arena *arena, const Buf *shared, const char *order, TmaPanels *out);
const Layout *tma_layout(Arena *arena, const Buf *shared);   // of a tile that has panels
// The same with another order within the rows: the digits of `order` (WgmmaInfo.k_paired), repeated.
const Layout *tma_layout_ordered(Arena *arena, const Buf *shared, const char *order);

// For a copy from a tensor to a shared tile, under the conditions of the tensor's `when` (unit inner stride, rows and
// base aligned to tma_facts.unit_bytes).
const char *tma_load_problem(const Target *target, const Stmt *copy);
// The same where a role loads, which may also fill a tile by pieces.
const char *tma_piece_problem(const Target *target, const Stmt *copy);
int64_t tma_unit_elements(const Buf *tensor);   // elements of 16 bytes
// Where a box with a swizzle begins in the rows of its tensor must be a multiple of 16 bytes: else it is an illegal instruction
// (measured on an H200; boxes without swizzle begin anywhere). Adds to `multiples` the values known at launch that must be
// multiples of so many elements for that. False: no launch knows.
bool tma_start_known(const Facts *facts, const Region *tensor, ExprVec *multiples);
// Whether it is such a multiple: known here or at launch, where the kernel may ask that (without @given_facts).
bool tma_start_serves(const Func *kernel, const Facts *facts, const Region *tensor);
#define TMA_ANYWHERE                                                                                                     \
    "its rows may begin anywhere, and TMA begins at multiples of 16 bytes: `assume` that the index at which they begin " \
    "is a multiple, as in `assume(first % 8 == 0)`"
// For a copy from a shared tile to a tensor. The caller handles a tile that begins before the tensor (T0738).
const char *tma_store_problem(const Target *target, const Stmt *copy);
const char *tma_tensor_problem(const Buf *tensor);   // its strides

// Whether a copy may round elements to tf32 (CU_TENSOR_MAP_DATA_TYPE_TFLOAT32): only tf32 MMAs use the tile. TMA rounds
// to nearest, where wgmma truncates.
bool tma_rounds_to_tf32(const Func *kernel, const Stmt *copy);

// A store of an accumulator, staged in shared memory: boxes of 64 rows (those of one warpgroup per instruction) and one
// swizzle span of columns. The remaining columns form a narrower box, which alternates with the others on the slots in
// shared memory.
typedef struct TmaStore {
    int64_t strips, chunks;   // boxes along m; whole boxes along n
    int64_t rows, columns;    // of a whole box, in the fragment
    bool transposed;          // its rows are columns of the tensor
    int64_t slot[2];          // extents of a whole box in shared memory
    int64_t tail,
        tail_columns;   // remaining columns; the same padded to a swizzle span in shared memory. 0: none
    int tail_swizzle;
} TmaStore;
const char *tma_epilogue_problem(const Target *target, const Stmt *copy, TmaStore *out);   // copy: fragment to tensor
// How threads store a fragment wherever the tensor's rows start: VIA_VECTOR_STORE (staged like a store by TMA) or VIA_PLAIN.
Via rows_store(const Target *target, const Stmt *copy);
// Whether a shared tile that is no longer used can be the staging: it has the shape of the accumulator and the layout
// of the boxes.
bool tma_store_aliases(Arena *arena, const TmaStore *store, const Stmt *copy, const Buf *tile);
// In place: what each of so many warpgroups stores that share the columns of the fragment. False: they cannot.
bool tma_store_share(const Stmt *copy, int64_t warpgroups, TmaStore *store);
void push_store_wait(Arena *arena, Span loc, Block *out);         // until stores no longer read shared memory
void push_last_store_wait(Arena *arena, Span loc, Block *body);   // of a role, if it stores accumulators by TMA
enum { TMA_STORE_SLOTS = 2 };                                     // one box is written while the other is read
// The first named barrier for TMA stores of the warpgroups of one role. (Order barriers follow below.)
enum { TMA_STORE_BARRIER = 4 };
// The first named barrier for roles that alternate: each waits at its own.
enum { ORDER_BARRIER = 8 };

// The first of m, n and k of a gemm's tile that is no multiple of the instruction's (0: any).
const char *gemm_extent_problem(Arena *arena, const Stmt *gemm, int m, int n, int k);
// For a gemm with operands in shared memory (the left one also in registers), with acc [m, n] in registers.
const char *wgmma_problem(Arena *arena, const Target *target, const Stmt *gemm, WgmmaInfo *info);
bool wgmma_computes(Arena *arena, const Target *target, const Stmt *stmt);   // a gemm without such a problem
// The panels of its left or right operand in shared memory.
const char *wgmma_panels_problem(Arena *arena, const Stmt *gemm, const WgmmaInfo *info, bool right, TmaPanels *out);
// The same as wgmma_problem to be read: with the numbers, where an extent of the tile is the reason.
const char *wgmma_reason(Arena *arena, const Target *target, const Stmt *gemm, WgmmaInfo *info);
// How warpgroups share such a gemm: rows first; where these are too few, `n` of them the columns, too, for which a is in
// shared memory. *info becomes that of a warpgroup's columns.
typedef struct WgmmaSplit {
    int64_t m, n;
} WgmmaSplit;
WgmmaSplit strips_split(int64_t strips, int64_t warpgroups);   // strips of rows first
bool wgmma_split(Arena *arena, const Target *target, const Stmt *gemm, int64_t warpgroups, WgmmaInfo *info,
                 WgmmaSplit *out);
// Whether the right operand of a wgmma gemm has paired k (WgmmaInfo.k_paired), as then has the left one in registers:
// if that saves conversions, and only such MMAs and threads access the tile.
bool wgmma_pairs(Arena *arena, const Func *kernel, const Stmt *gemm, const WgmmaInfo *info);

// ---- transposed tiles ----

// `copy(S.T, T)` between whole shared tiles of bytes, for operands that wgmma cannot read in their order. ldmatrix and
// stmatrix can do it (lower_transpose.c).
bool transposes_tile(Arena *arena, const Target *target, const Stmt *stmt);
enum { TRANSPOSE_K = 16, TRANSPOSE_ROWS = 32 };   // columns and rows of T per warp and step
