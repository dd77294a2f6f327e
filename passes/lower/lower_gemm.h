// What lower_gemm.c and lower_gemm_loop.c share: one gemm on the tensor cores, being lowered.
#pragma once
#include "passes/lower/lower.h"

typedef struct GemmOperand {   // a or b
    const Region *region;
    const Layout *layout;   // of an instruction tile, as the instruction has it
    Buf *local;             // local array
    Buf *wide;              // of the instruction's type, where the operand has a narrower one; else NULL
    Expr *corner;           // the warp's first row (a) or column (b) in the tile
    int64_t tiles;          // instruction tiles of the warp along m (a) or n (b)
    int64_t extent;         // of one of them
    int64_t values;         // a thread's, of one of them and a step of k
} GemmOperand;

typedef struct Gemm {
    Lower *lower;
    Arena *arena;
    Stmt *stmt;
    const MmaInfo *info;
    GemmOperand operands[2];   // by GEMM_A, GEMM_B
    Buf *acc;                  // local array
    Expr *lane;
    int64_t step;       // elements of k that are loaded at once
    int64_t k_steps;    // of them in the operands
    int64_t c_values;   // a thread's, of an instruction tile of the accumulator
    Expr *set;          // which of the two sets of operand registers; NULL: there is one
} Gemm;
_Static_assert(GEMM_A == 0 && GEMM_B == 1, "places of operands number Gemm.operands");

Gemm gemm_new(Lower *lower, Stmt *stmt);
// Declares operand registers (`sets` of them) and finds the warp's corner.
void gemm_begin(Gemm *gemm, int sets, Block *body);
void gemm_load(Gemm *gemm, Expr *kk, Block *out);   // operands of k step kk to the set in use
void gemm_convert(Gemm *gemm, Block *out);          // b of the set in use to the instruction's type
// Products of k step kk, of the instruction tiles' rows from .. to.
void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out);
// The body of a loop 0 .. count, whose index is known to the facts until they are released.
Block *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index, Block *out);
