// What lower_gemm.c and lower_gemm_loop.c share: one gemm on the tensor cores, being lowered.
#pragma once
#include "passes/lower/lower.h"

typedef struct Gemm {
    Lower *lower;
    Arena *arena;
    Stmt *stmt;
    const MmaInfo *info;
    int64_t m_tiles, n_tiles, k_steps;   // instruction tiles of the warp
    Expr *lane, *row0, *column0;         // the warp's corner in the tile
    Buf *a, *b, *acc;                    // local arrays
    Buf *wide_a, *wide_b;                // of the instruction's type, where the operands have a narrower one; else NULL
    int64_t step;                        // elements of k that are loaded at once
    int a_values, b_values, c_values;    // a thread's, of an instruction tile (of k: a step)
    Expr *set;                           // which of the two sets of operand registers; NULL: there is one
} Gemm;

// Declares operand registers (`sets` of them) and finds the accumulator and the warp's corner. Needs lower, arena,
// stmt, info.
void gemm_begin(Gemm *gemm, int sets, Block *body);
void gemm_load(Gemm *gemm, Expr *kk, Block *out);   // operands of k step kk to the set in use
void gemm_convert(Gemm *gemm, Block *out);          // b of the set in use to the instruction's type
// Products of k step kk, of the instruction tiles' rows from .. to.
void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out);
// The body of a loop 0 .. count, whose index is known to the facts until they are released.
Block *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index, Block *out);
