// Blocks of a cluster: another one's shared memory has the address that `mapa` makes of one's own. (PTX ISA, "mapa",
// "barrier.cluster".) The barrier's arrival releases and its wait acquires at cluster scope, which are the default forms; but a
// release of all memory waits until all stores have reached the L2 cache. A kernel that reads no tensor which it writes has
// nothing but shared memory to tell: then a fence of that alone comes before an arrival that releases nothing ("fence",
// .sync_restrict). That fence does not order reads, though: what is read of another block may still be on its way when
// this one arrives, and the other then ends (a launch failure, on the device) or writes over it. So an arrival behind
// such reads releases all.
#include "codegen/gen.h"
#include "ir/rewrite.h"

static Value emit_peer_load(Gen *gen, const OpCall *call) {
    Region *place = arg_place(gen, call, 0);
    Type type = place->buf->type;
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, place),
                         emit_i32(gen, arg_expr(gen, call, 1)));
    gen->cluster.peers_read = true;
    return from_memory(gen, type, LLVMBuildLoad2(gen->builder, memory_type(gen, type), address, ""));
}

// An arrival releases at the scope of the block, and a wait acquires there, unless they say .cluster (PTX ISA, "mbarrier.arrive",
// "mbarrier.try_wait"): with it the assembler puts a fence of all memory before the arrival. So they say it where blocks read what
// others wrote; elsewhere arrivals tell of slots that TMA fills, and order nothing else. By assembly, since LLVM has no such form.
static void emit_peer_arrive(Gen *gen, const OpCall *call) {
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, arg_place(gen, call, 0)),
                         emit_i32(gen, arg_expr(gen, call, 1)));
    Value place = LLVMBuildPtrToInt(gen->builder, address, gen->types.i64, "");
    build_asm(gen,
              gen->cluster.tells_peers ? "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];"
                                       : "mbarrier.arrive.shared::cluster.b64 _, [$0];",
              "l,~{memory}", gen->types.none, 1, &place);
}

static Value peer_address(Gen *gen, Region *place, Value rank) {
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE);
    Value address = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, place_address(gen, place), rank);
    return LLVMBuildPtrToInt(gen->builder, address, gen->types.i64, "");
}

static void emit_peer_store(Gen *gen, const OpCall *call) {
    Type type = arg_place(gen, call, 0)->buf->type;
    Value rank = emit_i32(gen, arg_expr(gen, call, 1));
    Value value = emit_value_as(gen, arg_expr(gen, call, 2), type);
    bool wide = type_bits(type) == 64;
    Value bits = build_bitcast(gen, value, wide ? gen->types.i64 : gen->types.i32);
    Value args[] = {peer_address(gen, arg_place(gen, call, 0), rank), bits,
                    peer_address(gen, arg_place(gen, call, 3), rank)};
    build_asm(gen,
              wide ? "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [$0], $1, [$2];"
                   : "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];",
              wide ? "l,l,l,~{memory}" : "l,r,l,~{memory}", gen->types.none, 3, args);
}

// Some tensor is both written and read, or is reached by other means than reading and writing.
static bool rereads_tensors(Gen *gen, const Func *kernel) {
    EffectVec effects = {0};
    for (int i = 0; i < kernel->params.count; i++)
        if (kernel->params.items[i].buf && kernel->params.items[i].buf->type == TYPE_TENSORMAP) return true;
    for (int i = 0; i < kernel->body.count; i++) stmt_effects(gen->arena, kernel->body.items[i], &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (!a->buf || a->buf->scope != SCOPE_GLOBAL || a->access == ACCESS_READ) continue;
        for (int j = 0; j < effects.count; j++)
            if (effects.items[j].buf == a->buf && effects.items[j].access != ACCESS_WRITE) return true;
    }
    return false;
}

static bool find_barrier(Visitor *visitor, Stmt *stmt) {
    bool *found = visitor->user;
    *found |= stmt->kind == STMT_CALL && stmt->call.op == OP_CLUSTER_BARRIER;
    return !*found;
}

static bool find_peer(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    *found |= expr->kind == EXPR_CALL && expr->call.op == OP_PEER;
    return !*found;
}

// A loop has both: its barrier comes behind what its last turn has read.
static bool find_loop(Visitor *visitor, Stmt *stmt) {
    bool *found = visitor->user, peer = false, barrier = false;
    if (stmt->kind != STMT_FOR && stmt->kind != STMT_WHILE) return true;
    visit_stmt(&(Visitor){.expr = find_peer, .user = &peer}, stmt);
    visit_stmt(&(Visitor){.stmt = find_barrier, .user = &barrier}, stmt);
    *found |= peer && barrier;
    return !*found;
}

void cluster_kernel(Gen *gen, const Func *kernel) {
    Visitor loops = {.stmt = find_loop, .user = &gen->cluster.peers_read};
    gen->cluster.shared_alone = !rereads_tensors(gen, kernel);
    gen->cluster.peers_read = gen->cluster.tells_peers = false;
    if (func_calls(kernel, OP_PEER_ARRIVE))
        visit_block(&(Visitor){.expr = find_peer, .user = &gen->cluster.tells_peers}, (Block *)&kernel->body);
    visit_block(&loops, (Block *)&kernel->body);
}

static void emit_cluster_barrier(Gen *gen, const OpCall *call) {
    (void)call;
    bool restricted = gen->cluster.shared_alone && !gen->cluster.peers_read;
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
