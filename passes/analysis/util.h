// Questions that several passes ask. Nothing here changes a kernel.
//
// In: a kernel of any stage, or a part of one. Out: answers. Files, from small to large:
//
//     util.c            properties of copies and gemms
//     affine.c          integers as a constant plus multiples of unknowns
//     live_ranges.c     where a fragment has a value that is used later
//     kernel_walk.c     the statements of a kernel, with the facts known at each
//     tile_loop.c       tile ops as loops; tile_accesses.c: their accesses; tile_vectors.c: runs and vector widths
//     shared_access.c   shared memory accesses of warps, and their bank conflicts
//
// This header: util.c, and remarks.
#pragma once
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/query.h"
#include "passes/pass.h"

// A remark of a pass (-R): silent by default.
#define REMARK(context, span, ...)                                                                                     \
    do {                                                                                                               \
        if ((context)->remarks) diag((context)->sink, (span), __VA_ARGS__);                                            \
    } while (0)
// The same about `name`, with a note of what may differ from one variant to the next.
#define REMARK_NOTE(context, span, code, name, ...)                                                                    \
    do {                                                                                                               \
        if ((context)->remarks) diag_note(diag((context)->sink, (span), (code), (name)), __VA_ARGS__);                 \
    } while (0)

// The instruction of a warp that the target has for a gemm's types and k; NULL: none.
const MmaInfo *gemm_mma(const Target *target, const Stmt *gemm);

// That of a warpgroup, for a tile of so many columns. False: there is none.
bool gemm_wgmma(const Target *target, const Stmt *gemm, int64_t columns, WgmmaInfo *info);

// Runs of `run` elements along the last dim of the region lie together in shared memory, at multiples of `run`. Without
// a layout rows lie one after the other. (Starts are judged by what they are made of, so that all passes agree.)
bool region_keeps_runs(const Region *region, int64_t run);

// All rows of some columns of a tile of two dims, from a constant multiple of `unit` on.
bool region_has_columns(const Region *region, int64_t unit);

// A copy or gather that starts cp.async copies: by its mechanism or, before it has one, by the program.
bool starts_copy(const Stmt *stmt);
bool moves_by_matrices(const Stmt *stmt);   // between shared memory and a fragment, by ldmatrix or stmatrix
bool moves_by_warps(const Stmt *stmt);      // with addresses and lanes that lowering finds
// The one store of a loop that may gather into a tile; NULL.
const Stmt *gathering_store(const Stmt *loop);
// The slot of the multi-buffered tile that a copy or gather fills; NULL: its tile has no slots.
Expr *copy_slot(const Stmt *copy);

// A name whose value is the same wherever it is computed, so that it may be computed earlier.
static inline bool is_stable_let(const Stmt *stmt) {
    return stmt->kind == STMT_LET && expr_is_stable(stmt->let.value) && expr_is_pure(stmt->let.value);
}

// Scalars and control flow, of which one thread can execute all that is in it.
static inline bool is_control(const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN:
    case STMT_ASSUME:
    case STMT_IF:
    case STMT_WHILE:
    case STMT_BLOCK: return true;
    case STMT_FOR: return stmt->loop.kind != LOOP_PARALLEL;
    default: return false;
    }
}

static inline bool is_memory(const Buf *buf) {   // not registers
    return buf->scope == SCOPE_GLOBAL || buf->scope == SCOPE_SHARED;
}

// For any_expr: the call of an operation with an effect.
bool has_effect(const Expr *expr, const void *what);
// For any_expr: an effect, or memory that the kernel or another CTA may write in the meantime.
bool is_computed(const Expr *expr, const void *what);

// Tiles and a grid, without roles and channels: how it is written is the compiler's to choose.
bool has_free_form(const Func *kernel);

bool is_bare_copy(const Stmt *stmt);   // the source says no more of it than what goes where
bool buf_is_free(const Buf *buf);      // the source says no more of a tile than its type and extents
bool is_zero_fill(const Stmt *stmt);   // of a whole buffer, with zeros
