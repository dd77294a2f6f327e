// CTAs of a cluster: the shared memory of another has the address that `mapa` makes of one's own. (PTX ISA, "mapa",
// "barrier.cluster".) The barrier's arrival releases and its wait acquires at cluster scope. A barrier with
// @shared_only releases shared memory alone, by a fence before an arrival that releases nothing ("fence",
// .sync_restrict); annotate-kernel says why.
#include "codegen/gen.h"

static Value emit_peer_load(Gen *gen, const OpCall *call) {
    Region *place = ARG_PLACE(gen, call, PEER, x);
    Type type = place->buf->type;
    int64_t alignment;
    gen->llvm.loads_of_peers = true;
    Value address = peer_place(gen, place, emit_i32(gen, ARG_EXPR(gen, call, PEER, rank)), &alignment);
    Value load = LLVMBuildLoad2(gen->builder, memory_type(gen, type), address, "");
    if (alignment >= type_bytes(type)) LLVMSetAlignment(load, (unsigned)alignment);
    return from_memory(gen, type, load);
}

static Value peer_address(Gen *gen, Region *place, Value rank) {
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, place), rank);
    return LLVMBuildPtrToInt(gen->builder, address, gen->types.i64, "");
}

// With .cluster the assembler puts a fence of all memory before the arrival. By assembly, since LLVM has no such form.
static void arrive_at_peer(Gen *gen, const OpCall *call, Value condition) {
    Value rank = emit_i32(gen, ARG_EXPR(gen, call, PEER_ARRIVE, rank)), args[3];
    int count = 0, at_condition = 0;
    args[count++] = peer_address(gen, ARG_PLACE(gen, call, PEER_ARRIVE, bar), rank);
    const char *arrive = gen->cluster.scope ? "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0]"
                                            : "mbarrier.arrive.shared::cluster.b64 _, [$0]";
    bool counts = HAS_ARG(call, PEER_ARRIVE, count);
    if (counts) {
        args[count] = emit_i32(gen, ARG_EXPR(gen, call, PEER_ARRIVE, count));
        count++;
    }
    const char *text = arena_printf(gen->arena, "%s%s;", arrive, counts ? ", $1" : "");
    if (condition) {
        at_condition = count;
        args[count++] = LLVMBuildZExt(gen->builder, condition, gen->types.i32, "");
        text = arena_printf(gen->arena, "{ .reg .pred p; setp.ne.b32 p, $%d, 0; @p %s }", at_condition, text);
    }
    static const char *const operands[] = {"l,~{memory}", "l,r,~{memory}", "l,r,r,~{memory}"};
    build_asm(gen, text, operands[count - 1], gen->types.none, count, args);
}

static void emit_peer_arrive(Gen *gen, const OpCall *call) {
    arrive_at_peer(gen, call, NULL);
}

void emit_peer_arrival_if(Gen *gen, const OpCall *call, Value condition) {
    arrive_at_peer(gen, call, condition);
}

static void emit_peer_store(Gen *gen, const OpCall *call) {
    Type type = ARG_PLACE(gen, call, PEER_STORE, x)->buf->type;
    Value rank = emit_i32(gen, ARG_EXPR(gen, call, PEER_STORE, rank));
    Value value = emit_value_as(gen, ARG_EXPR(gen, call, PEER_STORE, v), type);
    bool wide = type_bits(type) == 64;
    Value bits = build_bitcast(gen, value, wide ? gen->types.i64 : gen->types.i32);
    Value args[] = {peer_address(gen, ARG_PLACE(gen, call, PEER_STORE, x), rank), bits,
                    peer_address(gen, ARG_PLACE(gen, call, PEER_STORE, bar), rank)};
    build_asm(gen,
              wide ? "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [$0], $1, [$2];"
                   : "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];",
              wide ? "l,l,l,~{memory}" : "l,r,l,~{memory}", gen->types.none, 3, args);
}

static void emit_cluster_barrier(Gen *gen, const OpCall *call) {
    bool restricted = attr_get(call->attrs, ATTR_SHARED_ONLY);
    const char *arrive =
        restricted ? "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned" : "llvm.nvvm.barrier.cluster.arrive.aligned";
    keep_arrays_packed(gen);
    if (restricted)
        build_asm(gen, "fence.release.sync_restrict::shared::cta.cluster;", "~{memory}", gen->types.none, 0, NULL);
    call_named(gen, arrive, gen->types.none, 0, NULL);
    call_named(gen, "llvm.nvvm.barrier.cluster.wait.aligned", gen->types.none, 0, NULL);
}

static Value emit_cluster_rank(Gen *gen, const OpCall *call) {   // narrow, by its range
    (void)call;
    return call_named(gen, "llvm.nvvm.read.ptx.sreg.cluster.ctarank", gen->types.i32, 0, NULL);
}

const OpEmitter cluster_emitters[OP_COUNT] = {
    [OP_CLUSTER_RANK] = {.value = emit_cluster_rank},           [OP_PEER] = {.value = emit_peer_load},
    [OP_PEER_STORE] = {.statement = emit_peer_store},           [OP_PEER_ARRIVE] = {.statement = emit_peer_arrive},
    [OP_CLUSTER_BARRIER] = {.statement = emit_cluster_barrier},
};
