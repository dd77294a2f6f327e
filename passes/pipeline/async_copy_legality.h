// Asynchronous copies within one role.
//
// In: tile-stage kernels with mechanisms. Out: shared tiles with slots, copies that start iterations before their use,
// mbarriers for TMA copies outside of roles. Files in order:
//
//     async_copy_legality.c   which copies are asynchronous, and which may start early
//     multi_buffer.c          multi-buffer: one slot per stage
//     software_pipeline.c     software-pipeline: prologue, and copies for later iterations
//     insert_mbarriers.c      insert-mbarriers: the mbarrier that the bytes of a TMA copy complete on
//
// This header: async_copy_legality.c.
#pragma once
#include "passes/analysis/util.h"

// Slots of a pipelined loop: its stages when they are a constant above 1, else 1.
int64_t loop_stages(const Stmt *loop);

// The shared buffer that an asynchronous copy or gather (@via(cp_async), @via(tma)) fills; NULL for other statements.
Buf *async_target(const Stmt *stmt);
// The shared tile that the statement fills from global memory: by a copy, or by a loop that moves elements of
// read-only tensors to all of a tile (a gather), or by one of the two in each branch of a condition; NULL: none.
Buf *loaded_tile(const Stmt *stmt);
const Stmt *branch_load(const Block *branch);   // the load of a branch that has nothing else but names; NULL
// It fills the whole buffer (its whole slot, once there are slots).
bool fills_whole(const Stmt *copy, const Buf *buf);
// One of several slots that the source has, by an index that changes; `user`: of this buffer, or NULL.
bool fills_slot(const Stmt *stmt, void *user);
// What a remark says of a copy that fills only a part of the buffer, in the block `around`.
const char *partial_fill_problem(const Block *around, const Buf *buf);
// The last of the loads, from statement `at` on, that between them fill the buffer: `at` where it fills all of it. Else they are
// copies to pieces that do not overlap, with scalars between them. -1: they leave some of it out.
int fill_end(const Block *block, int at, const Buf *buf);

// Why copy number `at` of the loop's body may not start in an earlier iteration; NULL when it may. What it reads is not
// written in the loop, and its indices come from the loop's iterator, from outside, or from lets that do.
const char *early_start_problem(Arena *arena, const Stmt *loop, int at);
// Clones of the marked statements of the body, and of the lets before them that they depend on, under `subst`.
void clone_with_lets(Arena *arena, Subst *subst, const Block *body, const bool *which, Block *to);
