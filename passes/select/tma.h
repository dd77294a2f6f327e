// Requirements of TMA and wgmma on copies and gemms. select tests them; swizzle-allocation lays their buffers out;
// lower-tile-op writes their operands. One source of truth: the descriptor on the host, the place in shared memory and
// the matrix descriptor all follow from the layout that tma_layout gives a buffer.
//
// Functions named `_problem` return NULL when there is none, else the reason.
#pragma once
#include "ir/ir.h"
#include "target/target.h"

// A tile [.., columns] in shared memory lies in panels of as many columns as one swizzle span holds, each a block of
// rows of that many bytes, in row-major order of the dims before: the box that TMA copies at once, and what wgmma's
// descriptors describe. Where no span fits, or the rows are no multiple of 8, it is one panel as it lies. (PTX ISA,
// "Swizzling modes"; "Matrix descriptor".)
typedef struct TmaPanels {
    int64_t rows, columns;   // of a panel, elements
    int64_t count;
    int swizzle;   // bytes: 128, 64, 32; 0: none
} TmaPanels;
// Of a shared buffer's dims behind its slots: one (a vector is one row) to five.
const char *tma_panels_problem(const Buf *shared, TmaPanels *out);
const char *tma_matrix_problem(const Buf *shared, TmaPanels *out);   // of two dims and swizzled: a matrix operand
const Layout *tma_layout(Arena *arena, const Buf *shared);           // of a tile that has panels
// The same with another order within the rows: the digits of `order` (WgmmaInfo.k_paired), which repeats.
const Layout *tma_layout_ordered(Arena *arena, const Buf *shared, const char *order);

// Of a copy from a tensor to a shared tile, given the conditions that the tensor's `when` will have (unit inner stride,
// rows and base aligned to tma_facts.unit_bytes).
const char *tma_load_problem(const Target *target, const Stmt *copy);
// Of a copy from a shared tile to a tensor. A tile that begins before the tensor is left to the caller (T0738).
const char *tma_store_problem(const Target *target, const Stmt *copy);
const char *tma_tensor_problem(const Buf *tensor);   // of its strides

// Whether the elements that a copy loads may be rounded to tf32 on their way (CU_TENSOR_MAP_DATA_TYPE_TFLOAT32): only products in
// tf32 use the tile. TMA rounds to the nearest, where wgmma leaves bits out.
bool tma_rounds_to_tf32(const Func *kernel, const Stmt *copy);

// A store of an accumulator, by way of shared memory: boxes of 64 rows (one warpgroup's, of the instruction) and one
// swizzle span of columns; the columns that are left are a narrower box, which takes turns with the others at the slots
// in shared memory.
typedef struct TmaStore {
    int64_t strips, chunks;   // boxes along m; whole ones along n
    int64_t rows, columns;    // of a whole one
    int64_t tail,
        tail_columns;   // columns that are left; of their rows in shared memory, padded to a swizzle span. 0: none
    int tail_swizzle;
} TmaStore;
const char *tma_epilogue_problem(const Target *target, const Stmt *copy, TmaStore *out);   // copy: fragment to tensor
// Whether a shared tile that is needed no more can be the staging: it has the shape of the accumulator and the layout
// of the boxes.
bool tma_store_aliases(const TmaStore *store, const Stmt *copy, const Buf *tile);
enum { TMA_STORE_SLOTS = 2 };   // for boxes: one is written while the other is read
// Warpgroups of one role meet around their stores at named barriers, from this one on. (Below: where roles take turns.)
enum { TMA_STORE_BARRIER = 4 };
// Where they take turns, each waits at one of its own.
enum { ORDER_BARRIER = 8 };

// Of a gemm whose operands are in shared memory (the left one: or in registers), with acc [m, n] in registers.
const char *wgmma_problem(const Target *target, const Stmt *gemm, WgmmaInfo *info);
// Whether the right operand of a gemm by wgmma has k in pairs (WgmmaInfo.k_paired), as the left one in registers has
// then: where that spares conversions, and nothing but such products and threads touches the tile.
bool wgmma_pairs(Arena *arena, const Func *kernel, const Stmt *gemm, const WgmmaInfo *info);

// ---- transposed tiles ----

// `copy(S.T, T)` between whole shared tiles of bytes: what wgmma wants of operands that it cannot read as they lie.
// ldmatrix and stmatrix can do it (lower_transpose.c).
bool transposes_tile(const Target *target, const Stmt *stmt);
enum { TRANSPOSE_K = 16, TRANSPOSE_ROWS = 32 };   // of T, columns and rows that a warp does at once
