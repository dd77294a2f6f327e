// Blocks of a cluster: another one's shared memory has the address that `mapa` makes of one's own. (PTX ISA, "mapa",
// "barrier.cluster".) The barrier's arrival releases and its wait acquires at cluster scope, which are the default forms.
#include "codegen/gen.h"

static Value emit_peer_load(Gen *gen, const OpCall *call) {
    Region *place = arg_place(gen, call, 0);
    Type type = place->buf->type;
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, place),
                         emit_i32(gen, arg_expr(gen, call, 1)));
    return from_memory(gen, type, LLVMBuildLoad2(gen->builder, memory_type(gen, type), address, ""));
}

// By assembly, in the form without .cluster: with it the assembler puts a fence of all memory before the arrival.
static void emit_peer_arrive(Gen *gen, const OpCall *call) {
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, arg_place(gen, call, 0)),
                         emit_i32(gen, arg_expr(gen, call, 1)));
    Value place = LLVMBuildPtrToInt(gen->builder, address, gen->i64, "");
    build_asm(gen, "mbarrier.arrive.shared::cluster.b64 _, [$0];", "l,~{memory}", gen->none, 1, &place);
}

Value emit_cluster(Gen *gen, const OpCall *call) {
    if (call->op == OP_PEER_ARRIVE) {
        emit_peer_arrive(gen, call);
        return NULL;
    }
    if (call->op == OP_PEER) return emit_peer_load(gen, call);
    if (call->op == OP_CLUSTER_RANK)   // narrow, by its range
        return call_named(gen, "llvm.nvvm.read.ptx.sreg.cluster.ctarank", gen->i32, 0, NULL);
    call_named(gen, "llvm.nvvm.barrier.cluster.arrive.aligned", gen->none, 0, NULL);
    call_named(gen, "llvm.nvvm.barrier.cluster.wait.aligned", gen->none, 0, NULL);
    return NULL;
}
