// Shared by lower_gemm.c and lower_gemm_loop.c: lowering of one gemm on the tensor cores.
#pragma once
#include "passes/lower/lower.h"

typedef struct GemmOperand {   // a or b
    const Region *region;
    const Layout *layout;   // of an instruction tile, for the instruction
    Buf *local;             // local array
    Buf *wide;              // of the instruction's type, if the operand has a narrower one; else NULL
    Expr *corner;           // the warp's first row (a) or column (b) in the tile
    int64_t tiles;          // instruction tiles of the warp along m (a) or n (b)
    int64_t extent;         // of one tile
    int64_t values;         // per thread, tile and step of k
} GemmOperand;

typedef struct Gemm {
    Lower *lower;
    Arena *arena;
    Stmt *stmt;
    const MmaInfo *info;
    GemmOperand operands[2];   // by GEMM_A, GEMM_B
    Buf *acc;                  // local array
    Expr *lane;
    int64_t step;       // elements of k per load
    int64_t k_steps;    // number of loads along k
    int64_t c_values;   // values per thread and instruction tile of the accumulator
    Expr *set;          // index of the current set of operand registers; NULL: one set
} Gemm;
_Static_assert(GEMM_A == 0 && GEMM_B == 1, "places of operands number Gemm.operands");

Gemm gemm_new(Lower *lower, Stmt *stmt);
// Declares operand registers (`sets` of them) and finds the warp's corner.
void gemm_begin(Gemm *gemm, int sets, Block *body);
void gemm_load(Gemm *gemm, Expr *kk, Block *out);   // loads operands of k step kk to the current set
void gemm_convert(Gemm *gemm, Block *out);          // converts b of the current set to the instruction's type
// MMAs of k step kk, for rows from .. to of instruction tiles.
void gemm_multiply(Gemm *gemm, Expr *kk, int64_t from, int64_t to, Block *out);
// The body of a loop 0 .. count. The index is known to the facts until they are released.
Block *gemm_counted(Gemm *gemm, LoopKind kind, const char *name, int64_t count, Expr **index, Block *out);
