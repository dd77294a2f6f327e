// Synchronisation and lanes: barriers, fences, programmatic dependent launch, shuffles and votes.
#include "codegen/gen.h"
#include <string.h>

// ---- barriers and fences ----

static Value role_barrier(Gen *gen) {
    const Role *role = &gen->kernel.role;
    Value first = const_i32(gen, role->barrier);
    return role->member ? LLVMBuildSub(gen->builder, first, role->member, "") : first;
}

// `barrier()` in a role waits for the role's threads, at a named barrier from the end of the list.
static void emit_barrier(Gen *gen, const OpCall *call) {
    bool named = HAS_ARG(call, BARRIER, id), whole = !named && !gen->kernel.role.barrier;
    if (whole) keep_arrays_packed(gen);
    if (whole && gen->cluster.ctas > 1) {   // of all CTAs that share the tile
        call_named(gen, "llvm.nvvm.barrier.cluster.arrive.aligned", gen->types.none, 0, NULL);
        call_named(gen, "llvm.nvvm.barrier.cluster.wait.aligned", gen->types.none, 0, NULL);
        return;
    }
    if (whole) {
        CALL(gen, "llvm.nvvm.barrier.cta.sync.aligned.all", gen->types.none, const_i32(gen, 0));
        return;
    }
    Value id = named ? emit_i32(gen, ARG_EXPR(gen, call, BARRIER, id)) : role_barrier(gen);
    Value count = HAS_ARG(call, BARRIER, count)
                      ? emit_i32(gen, ARG_EXPR(gen, call, BARRIER, count))
                      : const_i32(gen, whole_warps(gen, named ? gen->kernel.threads : gen->kernel.role.count));
    const char *name = call->op == OP_BARRIER ? "llvm.nvvm.barrier.cta.sync.aligned.count"
                                              : "llvm.nvvm.barrier.cta.arrive.aligned.count";
    CALL(gen, name, gen->types.none, id, count);
}

static const char *sync_scope(Gen *gen, const char *word) {
    static const char *const names[][2] = {
        {"block", "block"}, {"cluster", "cluster"}, {"device", "device"}, {"system", ""}};
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(names[i][0], word) == 0) return names[i][1];
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "memory scope '%s'", word);
}

unsigned scope_id(Gen *gen, const char *word) {
    const char *name = sync_scope(gen, word);
    return LLVMGetSyncScopeID(gen->llvm.context, name, strlen(name));
}

static void emit_fence(Gen *gen, const OpCall *call) {
    LLVMBuildFenceSyncScope(gen->builder, LLVMAtomicOrderingSequentiallyConsistent,
                            scope_id(gen, ARG_WORD(gen, call, FENCE, scope)), "");
}

// The wait redefines the addresses of all tensors, so that LLVM cannot move loads of read-only tensors before it.
static void emit_dependency_wait(Gen *gen, const OpCall *call) {
    (void)call;
    build_asm(gen, "griddepcontrol.wait;", "~{memory}", gen->types.none, 0, NULL);
    for (int i = 0; i < gen->kernel.func->params.count; i++) {
        const Buf *tensor = gen->kernel.func->params.items[i].buf;
        Value slot = tensor ? map_get(gen->kernel.tensors, tensor) : NULL;
        if (!slot) continue;
        LLVMTypeRef type = LLVMGetAllocatedType(slot);
        Value address = LLVMBuildLoad2(gen->builder, type, slot, "");
        LLVMBuildStore(gen->builder, build_asm(gen, "", "=l,0", type, 1, &address), slot);
    }
}

static void emit_launch_dependents(Gen *gen, const OpCall *call) {
    (void)call;
    build_asm(gen, "griddepcontrol.launch_dependents;", "~{memory}", gen->types.none, 0, NULL);
}

// ---- lanes ----

static Value all_lanes(Gen *gen) {
    return const_i32(gen, -1);
}

static void emit_warp_sync(Gen *gen, const OpCall *call) {
    (void)call;
    CALL(gen, "llvm.nvvm.bar.warp.sync", gen->types.none, all_lanes(gen));
}

static Value shuffle_i32(Gen *gen, OpId op, Value x, Value lane) {
    static const char *const names[OP_COUNT] = {
        [OP_SHFL_XOR] = "bfly", [OP_SHFL_UP] = "up", [OP_SHFL_DOWN] = "down", [OP_SHFL_IDX] = "idx"};
    const char *name = arena_printf(gen->arena, "llvm.nvvm.shfl.sync.%s.i32", names[op]);
    Value clamp = const_i32(gen, op == OP_SHFL_UP ? 0 : gen->target->warp_lanes - 1);
    return CALL(gen, name, gen->types.i32, all_lanes(gen), x, lane, clamp);
}

// Values of any width travel as 32-bit pieces; an i64 that provably fits 32 bits as one.
static Value emit_shuffle(Gen *gen, const OpCall *call) {
    LLVMBuilderRef b = gen->builder;
    Expr *operand = ARG_EXPR(gen, call, SHFL_XOR, x);
    bool is_index = operand->type == TYPE_I64;
    Value x = is_index ? emit_index(gen, operand) : emit_expr(gen, operand);
    Value lane = emit_i32(gen, ARG_EXPR(gen, call, SHFL_XOR, mask));
    if (is_index && LLVMTypeOf(x) == gen->types.i32) {
        return fit_bits(gen, shuffle_i32(gen, call->op, x, lane), 64, known_of(gen, operand).nonnegative);
    }
    LLVMTypeRef type = LLVMTypeOf(x);
    int bits = operand->type == TYPE_BOOL ? 1 : type_bits(operand->type);
    Value integer = build_bitcast(gen, x, LLVMIntTypeInContext(gen->llvm.context, (unsigned)bits));
    if (bits <= 32) {
        Value moved = shuffle_i32(gen, call->op, LLVMBuildZExt(b, integer, gen->types.i32, ""), lane);
        return build_bitcast(gen, LLVMBuildTrunc(b, moved, LLVMTypeOf(integer), ""), type);
    }
    Value half = const_i64(gen, 32);
    Value low = shuffle_i32(gen, call->op, LLVMBuildTrunc(b, integer, gen->types.i32, ""), lane);
    Value upper = LLVMBuildTrunc(b, LLVMBuildLShr(b, integer, half, ""), gen->types.i32, "");
    Value high = LLVMBuildZExt(b, shuffle_i32(gen, call->op, upper, lane), gen->types.i64, "");
    Value joined = LLVMBuildOr(b, LLVMBuildShl(b, high, half, ""), LLVMBuildZExt(b, low, gen->types.i64, ""), "");
    return build_bitcast(gen, joined, type);
}

static Value emit_vote(Gen *gen, const OpCall *call) {
    const char *name = call->op == OP_VOTE_ANY ? "llvm.nvvm.vote.any.sync" : "llvm.nvvm.vote.all.sync";
    return CALL(gen, name, gen->types.i1, all_lanes(gen), emit_expr(gen, ARG_EXPR(gen, call, VOTE_ANY, x)));
}

static Value emit_byte_perm(Gen *gen, const OpCall *call) {
    return CALL(gen, "llvm.nvvm.prmt", gen->types.i32, emit_expr(gen, ARG_EXPR(gen, call, BYTE_PERM, a)),
                emit_expr(gen, ARG_EXPR(gen, call, BYTE_PERM, b)),
                emit_expr(gen, ARG_EXPR(gen, call, BYTE_PERM, selector)));
}

static Value emit_elect(Gen *gen, const OpCall *call) {
    (void)call;
    if (target_has(gen->target, FEATURE_MBARRIER)) {   // elect.sync came with Hopper, as they did
        LLVMTypeRef fields[] = {gen->types.i32, gen->types.i1};
        LLVMTypeRef pair = LLVMStructTypeInContext(gen->llvm.context, fields, 2, 0);
        return LLVMBuildExtractValue(gen->builder, CALL(gen, "llvm.nvvm.elect.sync", pair, all_lanes(gen)), 1, "");
    }
    Value lane = call_named(gen, "llvm.nvvm.read.ptx.sreg.laneid", gen->types.i32, 0, NULL);
    return LLVMBuildICmp(gen->builder, LLVMIntEQ, lane, const_i32(gen, 0), "");
}

// ---- all ----

const OpEmitter sync_emitters[OP_COUNT] = {
    [OP_BARRIER] = {.statement = emit_barrier},
    [OP_BARRIER_ARRIVE] = {.statement = emit_barrier},
    [OP_FENCE] = {.statement = emit_fence},
    [OP_LAUNCH_DEPENDENTS] = {.statement = emit_launch_dependents},
    [OP_DEPENDENCY_WAIT] = {.statement = emit_dependency_wait},
    [OP_WARP_SYNC] = {.statement = emit_warp_sync},
    [OP_SHFL_XOR] = {.value = emit_shuffle},
    [OP_SHFL_UP] = {.value = emit_shuffle},
    [OP_SHFL_DOWN] = {.value = emit_shuffle},
    [OP_SHFL_IDX] = {.value = emit_shuffle},
    [OP_VOTE_ANY] = {.value = emit_vote},
    [OP_VOTE_ALL] = {.value = emit_vote},
    [OP_BYTE_PERM] = {.value = emit_byte_perm},
    [OP_ELECT] = {.value = emit_elect},
};
