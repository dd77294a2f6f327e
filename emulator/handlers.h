// What each op of ir/ops.def does: a table from op to handler.
//
// In: an agent at an X_CALL instruction, and its Call. Out: the effect of the op, its result in register in->dst.
//
// A family of ops has its table in the file that implements it; rows of other ops are empty. handlers.c finds the row
// when a call is compiled.
//
// Files in order: handlers.c; tile.c; thread.c (elements, lanes, debugging), barriers.c, cluster.c, copies.c,
// matrix.c (ldmatrix, mma), bulk.c, wgmma.c.
#pragma once
#include "emulator/code.h"

// How an op is executed: one of the three. All act on the agent's active lanes.
typedef struct OpHandler {
    void (*with_result)(Agent *agent, const Instr *in, const Call *call);   // or it depends on whether `in` is wide
    void (*effect)(Agent *agent, const Call *call);
    void (*no_operands)(Agent *agent);
} OpHandler;

const OpHandler *op_handler(OpId op);   // NULL: none
void run_op(Agent *agent, const Instr *in, const Call *call);

extern const OpHandler thread_handlers[OP_COUNT], barrier_handlers[OP_COUNT], cluster_handlers[OP_COUNT],
    copy_handlers[OP_COUNT], channel_handlers[OP_COUNT], matrix_handlers[OP_COUNT], bulk_handlers[OP_COUNT],
    wgmma_handlers[OP_COUNT];
extern const OpHandler tile_handler;   // of each op of class TILE_OP
