// Mbarriers, TMA and the asynchronous proxy.
//
// A wait is a loop around try_wait, which suspends the thread for a while by itself; it acquires what the arrivals
// released. Destinations of TMA loads are named in the cluster's window of shared memory, where a CTA finds its own
// part under the same addresses: the form for the CTA alone would need PTX 8.6.
#include "codegen/gen.h"
#include "ir/query.h"
#include <string.h>

// ---- mbarriers ----

static Value barrier_address(Gen *gen, const OpCall *call) {
    return place_address(gen, ARG_PLACE(gen, call, MBARRIER_WAIT, bar));
}

static void emit_mbarrier_wait(Gen *gen, const OpCall *call) {
    Value address = barrier_address(gen, call), parity = emit_i32(gen, ARG_EXPR(gen, call, MBARRIER_WAIT, parity));
    Label spin = new_label(gen, "spin"), done = new_label(gen, "done");
    go_to(gen, spin);
    const char *wait = gen->cluster.scope ? "llvm.nvvm.mbarrier.try.wait.parity.scope.cluster.space.cta"
                                          : "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta";
    Value reached = CALL(gen, wait, gen->types.i1, address, parity);
    LLVMBuildCondBr(gen->builder, reached, done, spin);
    LLVMPositionBuilderAtEnd(gen->builder, done);
}

static void emit_mbarrier_init(Gen *gen, const OpCall *call) {
    CALL(gen, "llvm.nvvm.mbarrier.init.shared", gen->types.none, barrier_address(gen, call),
         emit_i32(gen, ARG_EXPR(gen, call, MBARRIER_INIT, count)));
}

static void emit_mbarrier_arrive(Gen *gen, const OpCall *call) {
    CALL(gen, "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta", gen->types.i64, barrier_address(gen, call),
         HAS_ARG(call, MBARRIER_ARRIVE, count) ? emit_i32(gen, ARG_EXPR(gen, call, MBARRIER_ARRIVE, count))
                                               : const_i32(gen, 1));
}

// Without a branch: at the end of a loop the assembler would take the warps for diverged in its next iteration, and
// keep addresses and descriptors in ordinary registers.
void emit_arrival_if(Gen *gen, const OpCall *call, Value condition) {
    Value args[] = {LLVMBuildPtrToInt(gen->builder, barrier_address(gen, call), gen->types.i64, ""),
                    LLVMBuildZExt(gen->builder, condition, gen->types.i32, "")};
    build_asm(gen,
              "{ .reg .pred p; .reg .b64 state; setp.ne.b32 p, $1, 0; @p mbarrier.arrive.shared.b64 state, [$0]; }",
              "l,r,~{memory}", gen->types.none, 2, args);
}

static void emit_mbarrier_expect(Gen *gen, const OpCall *call) {
    CALL(gen, "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta", gen->types.i64, barrier_address(gen, call),
         emit_i32(gen, ARG_EXPR(gen, call, MBARRIER_EXPECT, bytes)));
}

// ---- tensor maps ----

static Value tensor_map(Gen *gen, const OpCall *call, int index) {
    Expr *map = arg_expr(gen, call, index);
    VarPlace *place = map->kind == EXPR_VAR ? map_get(gen->kernel.vars, map->var) : NULL;
    EXPECT(gen->failure, place, "operand %d of %s is no tensor map", index, op_info(call->op)->text);
    return place->value;
}

static void emit_prefetch(Gen *gen, const Var *map) {
    VarPlace *place = map_get(gen->kernel.vars, map);   // by assembly: the intrinsic comes out twice
    build_asm(gen, "prefetch.tensormap [$0];", "l,~{memory}", gen->types.none, 1, &place->value);
}

// The map of a load; NULL: it is none.
static const Var *map_of_load(const Stmt *stmt) {
    if (!is_call(stmt, OP_TMA_LOAD) && !is_call(stmt, OP_TMA_MULTICAST)) return NULL;
    for (int i = 0; i < stmt->call.count; i++) {
        const Expr *value = stmt->call.args[i].value;
        if (value && value->kind == EXPR_VAR && value->type == TYPE_TENSORMAP) return value->var;
    }
    return NULL;
}

// Maps of loads that fill a slot by themselves: between two expectations of bytes, the statements load by one map.
static void find_lone_loads(const Block *block, Map *maps) {
    const Var *lone = NULL;
    bool shared = false;
    FOR_EACH_ITEM (stmt, block) {
        FOR_EACH_BODY (body, stmt) find_lone_loads(body, maps);
        const Var *map = map_of_load(stmt);
        if (is_call(stmt, OP_MBARRIER_EXPECT) && lone && !shared) map_put(maps, lone, (Var *)lone);
        if (is_call(stmt, OP_MBARRIER_EXPECT)) lone = NULL, shared = false;
        shared |= map && lone && map != lone;
        if (map) lone = map;
    }
    if (lone && !shared) map_put(maps, lone, (Var *)lone);
}

static void find_elected_loads(const Block *block, Map *maps) {
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) continue;
        if (stmt->kind != STMT_IF) {
            FOR_EACH_BODY (body, stmt) find_elected_loads(body, maps);
            continue;
        }
        find_lone_loads(&stmt->if_.then, maps);
    }
}

void prefetch_elected(Gen *gen, const Block *arm) {
    if (gen->kernel.loops) return;
    FOR_EACH_STMT (stmt, arm) {
        const Var *map = map_of_load(stmt);
        if (!map || !map_get(gen->kernel.elected, map)) continue;
        map_put(gen->kernel.elected, map, NULL);
        emit_prefetch(gen, map);
    }
}

static void emit_prefetches(Gen *gen, void *user) {
    const Func *kernel = user;
    for (int i = 0; i < kernel->params.count; i++) {
        const Var *var = kernel->params.items[i].var;
        if (var && var->type == TYPE_TENSORMAP && !map_get(gen->kernel.elected, var)) emit_prefetch(gen, var);
    }
}

// The first copy with a map has to fetch it from global memory; the prefetch overlaps the start of the kernel. Its place
// decides how ptxas issues the loads of the thread that a branch elects. If the branch begins with their loop, ptxas makes
// one condition of both and elects a lane before each load, which sets the loads of a slot apart. Measured on an H200:
// that is 1 to 2 % faster where tiles of two tensors fill a slot (8-bit products of 4096), and 1 to 2 % slower where each
// load has a slot (attention at head dim 64). So the elected thread itself prefetches the maps of the latter.
void prefetch_tensor_maps(Gen *gen, const Func *kernel) {
    gen->kernel.elected = map_new(gen->arena);
    if (!target_has(gen->target, FEATURE_TMA)) return;
    find_elected_loads(&kernel->body, gen->kernel.elected);
    bool any = false;
    for (int i = 0; i < kernel->params.count; i++) {
        const Var *var = kernel->params.items[i].var;
        any |= var && var->type == TYPE_TENSORMAP && !map_get(gen->kernel.elected, var);
    }
    if (!any) return;
    Value is_first = LLVMBuildICmp(gen->builder, LLVMIntEQ, gen->kernel.thread, const_i32(gen, 0), "");
    emit_if_then(gen, is_first, emit_prefetches, (void *)kernel);
}

// ---- copies ----

enum {
    MOST_DIMS = MOST_COORDINATES,   // of a copy, with its offsets; then where the coordinates begin
    FIRST_MULTICAST = OPERAND_INDEX(TMA_MULTICAST, coordinates),
    FIRST_LOAD = OPERAND_INDEX(TMA_LOAD, coordinates),
    FIRST_STORE = OPERAND_INDEX(TMA_STORE, coordinates),
    FIRST_PREFETCH = OPERAND_INDEX(TMA_PREFETCH, coordinates)
};

// The last operands of a copy by a tensor map: coordinates, then the offsets of an im2col map.
typedef struct Coordinates {
    int count, offsets;
} Coordinates;

// Offsets that the map of operand `index` takes in im2col mode; 0: tiled.
static int offsets_of(Gen *gen, const OpCall *call, int index) {
    const Param *param = func_hidden(gen->kernel.func, arg_expr(gen, call, index)->var);
    const Attr *tma = param ? attr_get(param->attrs, ATTR_TMA) : NULL;
    const Buf *view = tma ? tma->args[0].view : NULL;
    return view && !im2col_is_merged(view) ? view->im2col->count : 0;
}

// From operand `from` on, with the map of operand `map`.
static Coordinates coordinates(Gen *gen, const OpCall *call, int map, int from, Value *out) {
    Coordinates all = {.offsets = offsets_of(gen, call, map)};
    for (int i = from; i < call->count && has_arg(call, i); i++, all.count++) {
        EXPECT(gen->failure, all.count < MOST_DIMS, "%s with more than %d coordinates", op_info(call->op)->text,
               MOST_DIMS);
        out[all.count] = emit_i32(gen, arg_expr(gen, call, i));
    }
    EXPECT(gen->failure, all.count > all.offsets, "%s with %d coordinates", op_info(call->op)->text, all.count);
    for (int i = all.count - all.offsets; i < all.count; i++)
        out[i] = LLVMBuildTrunc(gen->builder, out[i], gen->types.i16, "");
    return all;
}

// What intrinsics call the copy's mode and the number of coordinates.
static const char *mode_text(Gen *gen, Coordinates all) {
    return arena_printf(gen->arena, "%s.%dd", all.offsets ? "im2col" : "tile", all.count - all.offsets);
}

static Value in_cluster_window(Gen *gen, Value shared) {
    Value integer = LLVMBuildPtrToInt(gen->builder, shared, gen->types.i64, "");
    return LLVMBuildIntToPtr(gen->builder, integer, LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE), "");
}

// The L2 cache policy of a copy; NULL: none.
static Value cache_policy(Gen *gen, const OpCall *call) {
    enum { EVICT_FIRST = OPERAND_INDEX(TMA_LOAD, evict_first), EVICT_LAST = OPERAND_INDEX(TMA_LOAD, evict_last) };
    if (call->op == OP_TMA_MULTICAST || !(has_arg(call, EVICT_FIRST) || has_arg(call, EVICT_LAST))) return NULL;
    Value policy = const_i64(gen, tma_facts.evict_normal);
    for (int i = EVICT_LAST; i >= EVICT_FIRST; i--) {
        if (!has_arg(call, i)) continue;
        Value special = const_i64(gen, i == EVICT_FIRST ? tma_facts.evict_first : tma_facts.evict_last);
        policy = LLVMBuildSelect(gen->builder, emit_expr(gen, arg_expr(gen, call, i)), special, policy, "");
    }
    return policy;
}

// Multicast to several CTAs, or to the CTA's own shared memory: by its own window where ptxas would test addresses of
// the cluster's window (tests_cluster_window).
static void emit_tma_load(Gen *gen, const OpCall *call) {
    enum { PLACES = 3 };
    bool all = call->op == OP_TMA_MULTICAST, own = !all && gen->target->tests_cluster_window;
    Value args[PLACES + MOST_DIMS + 5], policy = cache_policy(gen, call);
    Value place = place_address(gen, ARG_PLACE(gen, call, TMA_LOAD, dst));
    args[0] = own ? place : in_cluster_window(gen, place);
    args[1] = place_address(gen, ARG_PLACE(gen, call, TMA_LOAD, bar));
    args[2] = tensor_map(gen, call, OPERAND_INDEX(TMA_LOAD, map));
    Coordinates at =
        coordinates(gen, call, OPERAND_INDEX(TMA_LOAD, map), all ? FIRST_MULTICAST : FIRST_LOAD, args + PLACES);
    int count = PLACES + at.count;
    Value blocks = all ? emit_i32(gen, ARG_EXPR(gen, call, TMA_MULTICAST, mask)) : const_i32(gen, 0);
    if (!own) args[count++] = LLVMBuildTrunc(gen->builder, blocks, gen->types.i16, "");
    args[count++] = policy ? policy : const_i64(gen, 0);
    if (!own) args[count++] = LLVMConstInt(gen->types.i1, all, 0);
    args[count++] = LLVMConstInt(gen->types.i1, policy != NULL, 0);
    if (!own) args[count++] = const_i32(gen, 0);   // no pair of CTAs
    const char *name = "llvm.nvvm.cp.async.bulk.tensor.g2s";
    call_named(gen, arena_printf(gen->arena, "%s.%s%s", name, own ? "cta." : "", mode_text(gen, at)), gen->types.none,
               count, args);
}

static void emit_tma_store(Gen *gen, const OpCall *call) {
    bool adds = call->op == OP_TMA_ADD;
    Value args[FIRST_STORE + MOST_DIMS + 2];
    args[0] = place_address(gen, ARG_PLACE(gen, call, TMA_STORE, src));
    args[1] = tensor_map(gen, call, OPERAND_INDEX(TMA_STORE, map));
    Coordinates at = coordinates(gen, call, OPERAND_INDEX(TMA_STORE, map), FIRST_STORE, args + FIRST_STORE);
    int count = FIRST_STORE + at.count;
    args[count++] = const_i64(gen, adds ? tma_facts.evict_last : 0);   // what is added to is added to again
    args[count++] = LLVMConstInt(gen->types.i1, adds, 0);
    const char *how = adds ? "reduce.add" : "s2g";
    const char *name = arena_printf(gen->arena, "llvm.nvvm.cp.async.bulk.tensor.%s.%s", how, mode_text(gen, at));
    call_named(gen, name, gen->types.none, count, args);
}

static void emit_tma_prefetch(Gen *gen, const OpCall *call) {
    Value args[FIRST_PREFETCH + MOST_DIMS + 2] = {tensor_map(gen, call, OPERAND_INDEX(TMA_PREFETCH, map))};
    Coordinates at = coordinates(gen, call, OPERAND_INDEX(TMA_PREFETCH, map), FIRST_PREFETCH, args + FIRST_PREFETCH);
    int count = FIRST_PREFETCH + at.count;
    args[count++] = const_i64(gen, 0);
    args[count++] = LLVMConstInt(gen->types.i1, 0, 0);   // no policy
    const char *name = arena_printf(gen->arena, "llvm.nvvm.cp.async.bulk.tensor.prefetch.%s", mode_text(gen, at));
    call_named(gen, name, gen->types.none, count, args);
}

// Linear copies. (PTX ISA, "cp.async.bulk")
static void emit_bulk_load(Gen *gen, const OpCall *call) {
    const Buf *tile = CALL_ARG(call, BULK_LOAD, dst).region->buf;
    bool own = gen->target->tests_cluster_window;
    Value place = place_address(gen, ARG_PLACE(gen, call, BULK_LOAD, dst)), args[8];
    int count = 0;
    args[count++] = own ? place : in_cluster_window(gen, place);
    args[count++] = place_address(gen, ARG_PLACE(gen, call, BULK_LOAD, bar));
    args[count++] = place_address(gen, ARG_PLACE(gen, call, BULK_LOAD, src));
    args[count++] = const_i32(gen, ARG_CONST(gen, call, BULK_LOAD, n) * type_bytes(tile->type));
    if (!own) args[count++] = LLVMConstInt(gen->types.i16, 0, 0);
    args[count++] = const_i64(gen, 0);
    if (!own) args[count++] = LLVMConstInt(gen->types.i1, 0, 0);
    args[count++] = LLVMConstInt(gen->types.i1, 0, 0);
    const char *name = "llvm.nvvm.cp.async.bulk.global.to.shared";
    call_named(gen, arena_printf(gen->arena, "%s.%s", name, own ? "cta" : "cluster"), gen->types.none, count, args);
}

static void emit_bulk_prefetch(Gen *gen, const OpCall *call) {
    const Buf *tensor = CALL_ARG(call, BULK_PREFETCH, src).region->buf;
    Value args[] = {place_address(gen, ARG_PLACE(gen, call, BULK_PREFETCH, src)),
                    const_i32(gen, ARG_CONST(gen, call, BULK_PREFETCH, n) * type_bytes(tensor->type)),
                    const_i64(gen, 0), LLVMConstInt(gen->types.i1, 0, 0)};   // no policy
    call_named(gen, "llvm.nvvm.cp.async.bulk.prefetch.L2", gen->types.none, COUNT_OF(args), args);
}

static void emit_bulk_store(Gen *gen, const OpCall *call) {
    const Buf *tile = CALL_ARG(call, BULK_STORE, src).region->buf;
    Value args[] = {place_address(gen, ARG_PLACE(gen, call, BULK_STORE, dst)),
                    place_address(gen, ARG_PLACE(gen, call, BULK_STORE, src)),
                    const_i32(gen, ARG_CONST(gen, call, BULK_STORE, n) * type_bytes(tile->type)), const_i64(gen, 0),
                    LLVMConstInt(gen->types.i1, 0, 0)};
    call_named(gen, "llvm.nvvm.cp.async.bulk.shared.cta.to.global", gen->types.none, COUNT_OF(args), args);
}

static void emit_bulk_wait(Gen *gen, const OpCall *call) {
    bool reads = HAS_ARG(call, BULK_WAIT, what);   // the word `read`
    EXPECT(gen->failure, !reads || strcmp(ARG_WORD(gen, call, BULK_WAIT, what), "read") == 0, "bulk_wait(n, %s)",
           ARG_WORD(gen, call, BULK_WAIT, what));
    const char *name = reads ? "llvm.nvvm.cp.async.bulk.wait.group.read" : "llvm.nvvm.cp.async.bulk.wait.group";
    CALL(gen, name, gen->types.none, const_i32(gen, ARG_CONST(gen, call, BULK_WAIT, n)));
}

// ---- all ----

const OpEmitter async_emitters[OP_COUNT] = {
    [OP_MBARRIER_INIT] = {.statement = emit_mbarrier_init},
    [OP_MBARRIER_ARRIVE] = {.statement = emit_mbarrier_arrive},
    [OP_MBARRIER_EXPECT] = {.statement = emit_mbarrier_expect},
    [OP_MBARRIER_WAIT] = {.statement = emit_mbarrier_wait},
    [OP_FENCE_MBARRIER_INIT] = {.intrinsic = "llvm.nvvm.fence.mbarrier_init.release.cluster"},
    [OP_FENCE_ASYNC] = {.intrinsic = "llvm.nvvm.fence.proxy.async.shared_cta"},
    [OP_TMA_LOAD] = {.statement = emit_tma_load},
    [OP_TMA_MULTICAST] = {.statement = emit_tma_load},
    [OP_TMA_STORE] = {.statement = emit_tma_store},
    [OP_TMA_ADD] = {.statement = emit_tma_store},
    [OP_TMA_PREFETCH] = {.statement = emit_tma_prefetch},
    [OP_BULK_LOAD] = {.statement = emit_bulk_load},
    [OP_BULK_STORE] = {.statement = emit_bulk_store},
    [OP_BULK_PREFETCH] = {.statement = emit_bulk_prefetch},
    [OP_BULK_COMMIT] = {.intrinsic = "llvm.nvvm.cp.async.bulk.commit.group"},
    [OP_BULK_WAIT] = {.statement = emit_bulk_wait},
};
