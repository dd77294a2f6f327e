// Operations with effects: one function per family of the op table. (async.c has mbarriers and TMA, wgmma.c wgmma.)
#include "codegen/gen.h"
#include <string.h>

// ---- operands ----

bool has_arg(const OpCall *call, int index) {
    return index < call->count && (call->args[index].value || call->args[index].region || call->args[index].name);
}

Expr *arg_expr(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].value, "%s without operand %d",
           op_info(call->op)->text, index);
    return call->args[index].value;
}

Region *arg_place(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].region, "%s without operand %d",
           op_info(call->op)->text, index);
    return call->args[index].region;
}

int64_t arg_const(Gen *gen, const OpCall *call, int index) {
    int64_t value = 0;
    Value constant = emit_index(gen, arg_expr(gen, call, index));
    EXPECT(gen->failure, value_const(constant, &value), "operand %d of %s is not a constant", index,
           op_info(call->op)->text);
    return LLVMTypeOf(constant) == gen->i1 ? value & 1 : value;
}

const char *arg_word(Gen *gen, const OpCall *call, int index) {
    EXPECT(gen->failure, index < call->count && call->args[index].name, "%s without word %d", op_info(call->op)->text,
           index);
    return call->args[index].name;
}

// ---- synchronisation ----

// `barrier()` in a role waits for the role's threads, at a named barrier from the end of the list.
static void emit_barrier(Gen *gen, const OpCall *call) {
    bool named = has_arg(call, 0), whole = !named && !gen->role.barrier;
    if (whole) keep_arrays_packed(gen);
    if (whole && gen->cluster > 1) {   // of all blocks that share the point
        call_named(gen, "llvm.nvvm.barrier.cluster.arrive.aligned", gen->none, 0, NULL);
        call_named(gen, "llvm.nvvm.barrier.cluster.wait.aligned", gen->none, 0, NULL);
        return;
    }
    if (whole) {
        CALL(gen, "llvm.nvvm.barrier.cta.sync.aligned.all", gen->none, const_i32(gen, 0));
        return;
    }
    Value id = named ? emit_i32(gen, arg_expr(gen, call, 0)) : const_i32(gen, gen->role.barrier);
    Value count = has_arg(call, 1) ? emit_i32(gen, arg_expr(gen, call, 1))
                                   : const_i32(gen, whole_warps(gen, named ? gen->threads : gen->role.count));
    const char *name = call->op == OP_BARRIER ? "llvm.nvvm.barrier.cta.sync.aligned.count"
                                              : "llvm.nvvm.barrier.cta.arrive.aligned.count";
    CALL(gen, name, gen->none, id, count);
}

static Value all_lanes(Gen *gen) {
    return const_i32(gen, -1);
}

static const char *sync_scope(Gen *gen, const char *word) {
    static const char *const names[][2] = {
        {"block", "block"}, {"cluster", "cluster"}, {"device", "device"}, {"system", ""}};
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(names[i][0], word) == 0) return names[i][1];
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "memory scope '%s'", word);
}

static unsigned scope_id(Gen *gen, const char *word) {
    const char *name = sync_scope(gen, word);
    return LLVMGetSyncScopeID(gen->context, name, strlen(name));
}

static void emit_fence(Gen *gen, const OpCall *call) {
    LLVMBuildFenceSyncScope(gen->builder, LLVMAtomicOrderingSequentiallyConsistent,
                            scope_id(gen, arg_word(gen, call, 0)), "");
}

// The addresses of all tensors come out of the wait anew: loads that may be moved, of tensors that are never written while the
// kernel is at work on them, cannot come before it.
static void emit_dependency_wait(Gen *gen) {
    build_asm(gen, "griddepcontrol.wait;", "~{memory}", gen->none, 0, NULL);
    for (int i = 0; i < gen->func->params.count; i++) {
        const Buf *tensor = gen->func->params.items[i].buf;
        Value slot = tensor ? map_get(gen->tensors, tensor) : NULL;
        if (!slot) continue;
        LLVMTypeRef type = LLVMGetAllocatedType(slot);
        Value address = LLVMBuildLoad2(gen->builder, type, slot, "");
        LLVMBuildStore(gen->builder, build_asm(gen, "", "=l,0", type, 1, &address), slot);
    }
}

// ---- moves between memory and registers ----

// The widest piece, in bytes, that `bytes` consists of and an access can have.
static int64_t piece_of(Gen *gen, int64_t bytes) {
    int64_t piece = gen->target->vector_bytes;
    while (bytes % piece) piece /= 2;
    return piece;
}

typedef struct Piece {
    LLVMTypeRef type;   // of the access
    int bits, lanes;    // of a lane, and how many
} Piece;

// A piece as a vector of 32-bit integers (below 4 bytes: one integer), so that packed elements stay packed. Elements of
// 32 bits and more keep their type.
static Piece piece_shape(Gen *gen, RegisterArray *array, int64_t bytes) {
    int bits = array->bits >= 32 ? array->bits : bytes >= 4 ? 32 : (int)bytes * 8;
    int lanes = (int)(bytes * 8 / bits);
    LLVMTypeRef lane =
        array->bits >= bits ? memory_type(gen, array->type) : LLVMIntTypeInContext(gen->context, (unsigned)bits);
    return (Piece){lanes == 1 ? lane : LLVMVectorType(lane, (unsigned)lanes), bits, lanes};
}

static void load_piece(Gen *gen, const Buf *from, Value address, RegisterArray *array, int64_t index, int64_t bytes) {
    Piece piece = piece_shape(gen, array, bytes);
    Value load = LLVMBuildLoad2(gen->builder, piece.type, address, "");
    LLVMSetAlignment(load, (unsigned)bytes);
    mark_read_only(gen, from, load);
    for (int lane = 0; lane < piece.lanes; lane++) {
        Value value = piece.lanes == 1 ? load : LLVMBuildExtractElement(gen->builder, load, const_i32(gen, lane), "");
        register_set_bits(gen, array, index + lane * piece.bits / array->bits, piece.bits, value);
    }
}

static void store_piece(Gen *gen, Value address, RegisterArray *array, int64_t index, int64_t bytes) {
    Piece piece = piece_shape(gen, array, bytes);
    Value value = piece.lanes == 1 ? register_get_bits(gen, array, index, piece.bits) : LLVMGetPoison(piece.type);
    for (int lane = 0; piece.lanes > 1 && lane < piece.lanes; lane++) {
        Value part = register_get_bits(gen, array, index + lane * piece.bits / array->bits, piece.bits);
        value = LLVMBuildInsertElement(gen->builder, value, part, const_i32(gen, lane), "");
    }
    LLVMSetAlignment(LLVMBuildStore(gen->builder, value, address), (unsigned)bytes);
}

static void emit_vector_move(Gen *gen, const OpCall *call) {
    bool is_load = call->op == OP_VLOAD;
    Region *memory = arg_place(gen, call, is_load ? 1 : 0), *local = arg_place(gen, call, is_load ? 0 : 1);
    EXPECT(gen->failure, memory->buf->type == local->buf->type, "%s between types", op_info(call->op)->text);
    RegisterArray *array = register_array(gen, local->buf);
    int64_t bytes = arg_const(gen, call, 2) * array->bits / 8, first = place_register_index(gen, local);
    int64_t piece = piece_of(gen, bytes);
    Value base = place_address(gen, memory);
    for (int64_t at = 0; at < bytes; at += piece) {
        Value offset = const_i64(gen, at);
        Value address = at ? LLVMBuildGEP2(gen->builder, gen->i8, base, &offset, 1, "") : base;
        int64_t index = first + at * 8 / array->bits;
        if (is_load) load_piece(gen, memory->buf, address, array, index, piece);
        else store_piece(gen, address, array, index, piece);
    }
}

// red of several elements: f32 as they are, others packed in 32 bits.
static void emit_vector_add(Gen *gen, const OpCall *call) {
    Region *memory = arg_place(gen, call, 0), *local = arg_place(gen, call, 1);
    RegisterArray *array = register_array(gen, local->buf);
    int64_t n = arg_const(gen, call, 2), first = place_register_index(gen, local);
    const RedInfo *red = red_of(type_text(memory->buf->type), n);
    EXPECT(gen->failure, red && memory->buf->type == local->buf->type, "%s of %d", op_info(call->op)->text, (int)n);
    bool packed = array->bits < 32;
    int count = (int)(n * array->bits / 32);
    Value args[1 + 4] = {place_address(gen, memory)};
    StrBuf text, constraints;
    sb_init(&text, gen->arena);
    sb_init(&constraints, gen->arena);
    sb_printf(&text, "red.relaxed.gpu.global.add.%s [$0], ", red->suffix);
    sb_printf(&constraints, "l");
    for (int i = 0; i < count; i++) {
        Value bits = register_get_bits(gen, array, first + i * 32 / array->bits, 32);
        args[1 + i] = packed ? build_bitcast(gen, bits, gen->i32) : bits;
        sb_printf(&text, "%s$%d", i ? ", " : count > 1 ? "{" : "", i + 1);
        sb_printf(&constraints, packed ? ",r" : ",f");
    }
    sb_printf(&text, count > 1 ? "};" : ";");
    sb_printf(&constraints, ",~{memory}");
    build_asm(gen, sb_text(&text), sb_text(&constraints), gen->none, 1 + count, args);
}

// ---- asynchronous copies to shared memory ----

// 16 bytes go past the L1 cache (cg), smaller copies must go through it (ca).
static void emit_cp_async(Gen *gen, const OpCall *call) {
    Region *to = arg_place(gen, call, 0), *from = arg_place(gen, call, 1);
    int64_t size = type_bytes(to->buf->type), count = arg_const(gen, call, 2), bytes = count * size;
    EXPECT(gen->failure, bytes == 4 || bytes == 8 || bytes == 16, "cp_async of %lld bytes", (long long)bytes);
    Value valid = has_arg(call, 3) ? fit_bits(gen, emit_index(gen, arg_expr(gen, call, 3)), 32, true) : NULL;
    int64_t known;
    if (valid && value_const(valid, &known) && known == count) valid = NULL;
    const char *name = arena_printf(gen->arena, "llvm.nvvm.cp.async.%s.shared.global.%d%s", bytes == 16 ? "cg" : "ca",
                                    (int)bytes, valid ? ".s" : "");
    Value shared = place_address(gen, to), global = place_address(gen, from);
    if (!valid) {
        CALL(gen, name, gen->none, shared, global);
        return;
    }
    CALL(gen, name, gen->none, shared, global, LLVMBuildMul(gen->builder, valid, const_i32(gen, size), ""));
}

static void emit_cp_async_group(Gen *gen, const OpCall *call) {
    if (call->op == OP_CP_ASYNC_COMMIT) {
        call_named(gen, "llvm.nvvm.cp.async.commit.group", gen->none, 0, NULL);
    } else {
        CALL(gen, "llvm.nvvm.cp.async.wait.group", gen->none, const_i32(gen, arg_const(gen, call, 0)));
    }
}

// ---- matrices ----

static LLVMTypeRef struct_of(Gen *gen, LLVMTypeRef type, int count) {
    LLVMTypeRef types[8] = {type, type, type, type, type, type, type, type};
    return count == 1 ? type : LLVMStructTypeInContext(gen->context, types, (unsigned)count, 0);
}

static Value struct_part(Gen *gen, Value value, int index, int count) {
    return count == 1 ? value : LLVMBuildExtractValue(gen->builder, value, (unsigned)index, "");
}

static const char *matrix_name(Gen *gen, const OpCall *call, const char *what, int64_t count) {
    const char *trans = arg_const(gen, call, 3) ? ".trans" : "";
    return arena_printf(gen->arena, "llvm.nvvm.%s.sync.aligned.m8n8.x%d%s.b16.p3", what, (int)count, trans);
}

static void emit_ldmatrix(Gen *gen, const OpCall *call) {
    Region *to = arg_place(gen, call, 0);
    RegisterArray *array = register_array(gen, to->buf);
    int64_t first = place_register_index(gen, to);
    int count = (int)arg_const(gen, call, 2), per_matrix = 32 / array->bits;
    const char *name = matrix_name(gen, call, "ldmatrix", count);
    Value rows = place_address(gen, arg_place(gen, call, 1));
    Value loaded = CALL(gen, name, struct_of(gen, gen->i32, count), rows);
    mark_call(gen, loaded, "convergent");
    for (int i = 0; i < count; i++) {
        register_set_bits(gen, array, first + i * per_matrix, 32, struct_part(gen, loaded, i, count));
    }
}

static void emit_stmatrix(Gen *gen, const OpCall *call) {
    Region *from = arg_place(gen, call, 1);
    RegisterArray *array = register_array(gen, from->buf);
    int64_t first = place_register_index(gen, from);
    int count = (int)arg_const(gen, call, 2), per_matrix = 32 / array->bits;
    const char *name = matrix_name(gen, call, "stmatrix", count);
    Value args[5] = {place_address(gen, arg_place(gen, call, 0))};
    for (int i = 0; i < count; i++) {
        args[1 + i] = build_bitcast(gen, register_get_bits(gen, array, first + i * per_matrix, 32), gen->i32);
    }
    mark_call(gen, call_named(gen, name, gen->none, 1 + count, args), "convergent");
}

// How an instruction of the target's table is called: the intrinsic's name after the shape.
static const char *mma_suffix(Gen *gen, const MmaInfo *info) {
    static const char *const suffixes[][3] = {
        {"f16", "f32", ".f32.f32"},
        {"f16", "f16", ".f16.f16"},
        {"bf16", "f32", ".bf16"},
        {"tf32", "f32", ".tf32"},
        {"i8", "i32", ".s8"},
        {"u8", "i32", ".u8"},
        {"e4m3", "f32", ".f32.e4m3.e4m3.f32"},
        {"e5m2", "f32", ".f32.e5m2.e5m2.f32"},
        {"f64", "f64", ".f64"},
    };
    for (int i = 0; i < COUNT_OF(suffixes); i++) {
        if (!strcmp(suffixes[i][0], info->a_type) && !strcmp(suffixes[i][1], info->c_type)) return suffixes[i][2];
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "mma of %s to %s", info->a_type, info->c_type);
}

// The type of a 32-bit operand register: f16 pairs have their own, everything else below 32 bits is an integer.
static LLVMTypeRef mma_register(Gen *gen, RegisterArray *array, bool is_tf32) {
    if (array->type == TYPE_F16) return LLVMVectorType(gen->f16, 2);
    return array->bits < 32 || is_tf32 ? gen->i32 : array->element;
}

typedef struct MmaOperand {
    RegisterArray *array;
    int64_t first;
    int registers;
    LLVMTypeRef type;
    bool is_tf32;
} MmaOperand;

static MmaOperand mma_operand(Gen *gen, const OpCall *call, int index, int64_t elements, const char *type) {
    Region *place = arg_place(gen, call, index);
    RegisterArray *array = register_array(gen, place->buf);
    int bits = array->bits > 32 ? array->bits : 32;
    bool is_tf32 = strcmp(type, "tf32") == 0;
    return (MmaOperand){array, place_register_index(gen, place),
                        (int)(elements * array->bits / bits / gen->target->warp_lanes),
                        mma_register(gen, array, is_tf32), is_tf32};
}

static int mma_collect(Gen *gen, MmaOperand operand, Value *args) {
    int bits = operand.array->bits > 32 ? operand.array->bits : 32, step = bits / operand.array->bits;
    for (int i = 0; i < operand.registers; i++) {
        Value value = register_get_bits(gen, operand.array, operand.first + i * step, bits);
        args[i] = operand.is_tf32 ? CALL(gen, "llvm.nvvm.f2tf32.rna", gen->i32, value)
                                  : build_bitcast(gen, value, operand.type);
    }
    return operand.registers;
}

static void emit_mma(Gen *gen, const OpCall *call) {
    const MmaInfo *info = mma_named(arg_word(gen, call, 0));
    EXPECT(gen->failure, info, "mma shape '%s'", arg_word(gen, call, 0));
    MmaOperand a = mma_operand(gen, call, 1, (int64_t)info->m * info->k, info->a_type);
    MmaOperand b = mma_operand(gen, call, 2, (int64_t)info->n * info->k, info->b_type);
    MmaOperand c = mma_operand(gen, call, 3, (int64_t)info->m * info->n, info->c_type);
    Value args[32];
    EXPECT(gen->failure, a.registers + b.registers + c.registers <= COUNT_OF(args), "mma shape '%s'", info->name);
    int count = mma_collect(gen, a, args);
    count += mma_collect(gen, b, args + count);
    count += mma_collect(gen, c, args + count);
    const char *name =
        arena_printf(gen->arena, "llvm.nvvm.mma.m%dn%dk%d.row.col%s", info->m, info->n, info->k, mma_suffix(gen, info));
    Value result = call_named(gen, name, struct_of(gen, c.type, c.registers), count, args);
    mark_call(gen, result, "convergent");
    int bits = c.array->bits > 32 ? c.array->bits : 32, step = bits / c.array->bits;
    for (int i = 0; i < c.registers; i++) {
        register_set_bits(gen, c.array, c.first + i * step, bits, struct_part(gen, result, i, c.registers));
    }
}

// ---- lanes ----

static Value shuffle_i32(Gen *gen, OpId op, Value x, Value lane) {
    static const char *const names[] = {"bfly", "up", "down", "idx"};
    const char *name = arena_printf(gen->arena, "llvm.nvvm.shfl.sync.%s.i32", names[op - OP_SHFL_XOR]);
    Value clamp = const_i32(gen, op == OP_SHFL_UP ? 0 : gen->target->warp_lanes - 1);
    return CALL(gen, name, gen->i32, all_lanes(gen), x, lane, clamp);
}

// Values of any width travel as 32-bit pieces; an i64 that provably fits 32 bits as one.
static Value emit_shuffle(Gen *gen, const OpCall *call) {
    LLVMBuilderRef b = gen->builder;
    Expr *operand = arg_expr(gen, call, 0);
    bool is_index = operand->type == TYPE_I64;
    Value x = is_index ? emit_index(gen, operand) : emit_expr(gen, operand);
    Value lane = emit_i32(gen, arg_expr(gen, call, 1));
    if (is_index && LLVMTypeOf(x) == gen->i32) {
        return fit_bits(gen, shuffle_i32(gen, call->op, x, lane), 64, known_of(gen, operand).nonnegative);
    }
    LLVMTypeRef type = LLVMTypeOf(x);
    int bits = operand->type == TYPE_BOOL ? 1 : type_bits(operand->type);
    Value integer = build_bitcast(gen, x, LLVMIntTypeInContext(gen->context, (unsigned)bits));
    if (bits <= 32) {
        Value moved = shuffle_i32(gen, call->op, LLVMBuildZExt(b, integer, gen->i32, ""), lane);
        return build_bitcast(gen, LLVMBuildTrunc(b, moved, LLVMTypeOf(integer), ""), type);
    }
    Value half = const_i64(gen, 32);
    Value low = shuffle_i32(gen, call->op, LLVMBuildTrunc(b, integer, gen->i32, ""), lane);
    Value upper = LLVMBuildTrunc(b, LLVMBuildLShr(b, integer, half, ""), gen->i32, "");
    Value high = LLVMBuildZExt(b, shuffle_i32(gen, call->op, upper, lane), gen->i64, "");
    Value joined = LLVMBuildOr(b, LLVMBuildShl(b, high, half, ""), LLVMBuildZExt(b, low, gen->i64, ""), "");
    return build_bitcast(gen, joined, type);
}

static Value emit_vote(Gen *gen, const OpCall *call) {
    const char *name = call->op == OP_VOTE_ANY ? "llvm.nvvm.vote.any.sync" : "llvm.nvvm.vote.all.sync";
    return CALL(gen, name, gen->i1, all_lanes(gen), emit_expr(gen, arg_expr(gen, call, 0)));
}

static Value emit_elect(Gen *gen) {
    if (target_has(gen->target, FEATURE_MBARRIER)) {   // elect.sync came with Hopper, as they did
        LLVMTypeRef parts[] = {gen->i32, gen->i1};
        LLVMTypeRef pair = LLVMStructTypeInContext(gen->context, parts, 2, 0);
        return LLVMBuildExtractValue(gen->builder, CALL(gen, "llvm.nvvm.elect.sync", pair, all_lanes(gen)), 1, "");
    }
    Value lane = call_named(gen, "llvm.nvvm.read.ptx.sreg.laneid", gen->i32, 0, NULL);
    return LLVMBuildICmp(gen->builder, LLVMIntEQ, lane, const_i32(gen, 0), "");
}

// ---- atomics ----

static LLVMAtomicRMWBinOp atomic_operation(Gen *gen, OpId op, Type type) {
    bool is_float = type_is_float(type), is_unsigned = type_kind(type) == KIND_UINT;
    switch (op) {
    case OP_ATOMIC_ADD: return is_float ? LLVMAtomicRMWBinOpFAdd : LLVMAtomicRMWBinOpAdd;
    case OP_ATOMIC_MAX:
        return is_float ? LLVMAtomicRMWBinOpFMax : is_unsigned ? LLVMAtomicRMWBinOpUMax : LLVMAtomicRMWBinOpMax;
    case OP_ATOMIC_MIN:
        return is_float ? LLVMAtomicRMWBinOpFMin : is_unsigned ? LLVMAtomicRMWBinOpUMin : LLVMAtomicRMWBinOpMin;
    case OP_ATOMIC_AND: return LLVMAtomicRMWBinOpAnd;
    case OP_ATOMIC_OR: return LLVMAtomicRMWBinOpOr;
    case OP_ATOMIC_XOR: return LLVMAtomicRMWBinOpXor;
    case OP_ATOMIC_EXCH: return LLVMAtomicRMWBinOpXchg;
    case OP_ATOMIC_INC: return LLVMAtomicRMWBinOpUIncWrap;
    default: break;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "%s is no atomic", op_info(op)->text);
}

Value emit_value_as(Gen *gen, Expr *expr, Type type) {
    return to_memory(gen, type, emit_convert(gen, emit_expr(gen, expr), expr->type, type));
}

static Value emit_cas(Gen *gen, Value address, Value expected, Value desired) {
    LLVMTypeRef type = LLVMTypeOf(expected);
    unsigned bits = (unsigned)LLVMSizeOfTypeInBits(LLVMGetModuleDataLayout(gen->llvm), type);
    LLVMTypeRef integer = LLVMIntTypeInContext(gen->context, bits);
    Value pair = LLVMBuildAtomicCmpXchgSyncScope(gen->builder, address, build_bitcast(gen, expected, integer),
                                                 build_bitcast(gen, desired, integer), LLVMAtomicOrderingMonotonic,
                                                 LLVMAtomicOrderingMonotonic, scope_id(gen, "device"));
    return build_bitcast(gen, LLVMBuildExtractValue(gen->builder, pair, 0, ""), type);
}

// Relaxed, at device scope; what LLVM has no instruction for becomes a loop of compare-and-swap.
static Value emit_atomic(Gen *gen, const OpCall *call) {
    Region *place = arg_place(gen, call, 0);
    Type type = place->buf->type;
    Value address = place_address(gen, place);
    Value value = emit_value_as(gen, arg_expr(gen, call, 1), type);
    Value old;
    if (call->op == OP_ATOMIC_CAS) {
        old = emit_cas(gen, address, value, emit_value_as(gen, arg_expr(gen, call, 2), type));
    } else {
        old = LLVMBuildAtomicRMWSyncScope(gen->builder, atomic_operation(gen, call->op, type), address, value,
                                          LLVMAtomicOrderingMonotonic, scope_id(gen, "device"));
    }
    return from_memory(gen, type, old);
}

static LLVMAtomicOrdering memory_order(Gen *gen, const char *word) {
    if (strcmp(word, "relaxed") == 0 || strcmp(word, "early") == 0) return LLVMAtomicOrderingMonotonic;
    if (strcmp(word, "acquire") == 0) return LLVMAtomicOrderingAcquire;
    if (strcmp(word, "release") == 0) return LLVMAtomicOrderingRelease;
    fail_internal(gen->failure, __FILE__, __LINE__, "memory order '%s'", word);
}

static void make_atomic(Gen *gen, Value access, Type type, const char *order, const char *scope) {
    LLVMSetOrdering(access, memory_order(gen, order));
    LLVMSetAtomicSyncScopeID(access, scope_id(gen, scope));
    LLVMSetAlignment(access, (unsigned)type_bytes(type));
}

// Ordered accesses move integers: not every float width has an atomic load.
static LLVMTypeRef atomic_type(Gen *gen, Type type) {
    return LLVMIntTypeInContext(gen->context, (unsigned)type_bits(type));
}

static Value emit_ordered_load(Gen *gen, const OpCall *call) {
    Region *place = arg_place(gen, call, 0);
    Type type = place->buf->type;
    Value load = LLVMBuildLoad2(gen->builder, atomic_type(gen, type), place_address(gen, place), "");
    make_atomic(gen, load, type, arg_word(gen, call, 1), arg_word(gen, call, 2));
    return from_memory(gen, type, build_bitcast(gen, load, memory_type(gen, type)));
}

static void emit_ordered_store(Gen *gen, const OpCall *call) {
    Region *place = arg_place(gen, call, 0);
    Type type = place->buf->type;
    Value value = build_bitcast(gen, emit_value_as(gen, arg_expr(gen, call, 1), type), atomic_type(gen, type));
    Value store = LLVMBuildStore(gen->builder, value, place_address(gen, place));
    make_atomic(gen, store, type, arg_word(gen, call, 2), arg_word(gen, call, 3));
}

// ---- debugging ----

// How vprintf takes a value: integers as 64 bits, floats as f64.
static Value print_value(Gen *gen, Expr *expr, const char **format) {
    Value value = emit_expr(gen, expr);
    if (type_is_float(expr->type)) {
        *format = "%g";
        return emit_convert(gen, value, expr->type, TYPE_F64);
    }
    *format = type_kind(expr->type) == KIND_UINT ? "%llu" : "%lld";
    return emit_convert(gen, value, expr->type, type_kind(expr->type) == KIND_UINT ? TYPE_U64 : TYPE_I64);
}

static void format_text(StrBuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '%') sb_char(out, '%');
        sb_char(out, *text);
    }
}

static void emit_print(Gen *gen, const OpCall *call) {
    StrBuf format;
    sb_init(&format, gen->arena);
    format_text(&format, arg_word(gen, call, 0));
    LLVMTypeRef room = LLVMArrayType2(gen->i64, (uint64_t)(call->count > 1 ? call->count - 1 : 1));
    Value buffer = stack_slot(gen, room, "print");
    for (int i = 1; i < call->count; i++) {
        if (!has_arg(call, i)) continue;
        const char *part;
        Value value = print_value(gen, arg_expr(gen, call, i), &part);
        sb_printf(&format, " %s", part);
        Value offset = const_i64(gen, i - 1);
        LLVMBuildStore(gen->builder, value, LLVMBuildGEP2(gen->builder, gen->i64, buffer, &offset, 1, ""));
    }
    sb_char(&format, '\n');
    CALL(gen, "vprintf", gen->i32, string_constant(gen, sb_text(&format)), buffer);
}

static void emit_assert_failure(Gen *gen, void *user) {
    const OpCall *call = user;
    const char *text = has_arg(call, 1) ? call->args[1].name : "assertion failed";
    const char *file = diag_source_name(gen->module->sink, call->loc.file);
    CALL(gen, "__assertfail", gen->none, string_constant(gen, text), string_constant(gen, file),
         const_i32(gen, call->loc.line), string_constant(gen, gen->func->name), const_i64(gen, 1));
    call_named(gen, "llvm.trap", gen->none, 0, NULL);
}

static void emit_assert(Gen *gen, OpCall *call) {
    Value failed = LLVMBuildNot(gen->builder, emit_expr(gen, arg_expr(gen, call, 0)), "");
    emit_if_then(gen, failed, emit_assert_failure, call);
}

// ---- all ----

bool op_supported(Gen *gen, const OpCall *call) {
    const OpInfo *info = op_info(call->op);
    Feature feature = info->feature;
    if (call->op == OP_MMA) {
        const MmaInfo *row = mma_named(arg_word(gen, call, 0));
        if (row) feature = row->feature;
    }
    if (call->op == OP_VATOMIC_ADD) {
        const RedInfo *row = red_of(type_text(arg_place(gen, call, 0)->buf->type), arg_const(gen, call, 2));
        if (row) feature = row->feature;
    }
    if (feature == FEATURE_BASE || target_has(gen->target, feature)) return true;
    diag(gen->sink, call->loc, T_NEEDS_FEATURE, info->text, feature_text(feature), gen->target->name);
    return false;
}

static Value emit_supported(Gen *gen, OpCall *call) {
    switch (call->op) {
    case OP_BARRIER:
    case OP_BARRIER_ARRIVE: emit_barrier(gen, call); return NULL;
    case OP_WARP_SYNC: CALL(gen, "llvm.nvvm.bar.warp.sync", gen->none, all_lanes(gen)); return NULL;
    case OP_CLUSTER_RANK:
    case OP_PEER_ARRIVE:
    case OP_PEER_STORE:
    case OP_PEER:
    case OP_CLUSTER_BARRIER: return emit_cluster(gen, call);
    case OP_LAUNCH_DEPENDENTS:
        build_asm(gen, "griddepcontrol.launch_dependents;", "~{memory}", gen->none, 0, NULL);
        return NULL;
    case OP_DEPENDENCY_WAIT: emit_dependency_wait(gen); return NULL;
    case OP_FENCE: emit_fence(gen, call); return NULL;
    case OP_CP_ASYNC: emit_cp_async(gen, call); return NULL;
    case OP_CP_ASYNC_COMMIT:
    case OP_CP_ASYNC_WAIT: emit_cp_async_group(gen, call); return NULL;
    case OP_VLOAD:
    case OP_VSTORE: emit_vector_move(gen, call); return NULL;
    case OP_VATOMIC_ADD: emit_vector_add(gen, call); return NULL;
    case OP_LDMATRIX: emit_ldmatrix(gen, call); return NULL;
    case OP_STMATRIX: emit_stmatrix(gen, call); return NULL;
    case OP_MMA: emit_mma(gen, call); return NULL;
    case OP_SHFL_XOR:
    case OP_SHFL_UP:
    case OP_SHFL_DOWN:
    case OP_SHFL_IDX: return emit_shuffle(gen, call);
    case OP_VOTE_ANY:
    case OP_VOTE_ALL: return emit_vote(gen, call);
    case OP_ELECT: return emit_elect(gen);
    case OP_LOAD: return emit_ordered_load(gen, call);
    case OP_STORE: emit_ordered_store(gen, call); return NULL;
    case OP_MBARRIER_INIT:
    case OP_MBARRIER_ARRIVE:
    case OP_MBARRIER_EXPECT:
    case OP_MBARRIER_WAIT:
    case OP_FENCE_MBARRIER_INIT: emit_mbarrier(gen, call); return NULL;
    case OP_FENCE_ASYNC:
    case OP_TMA_LOAD:
    case OP_TMA_MULTICAST:
    case OP_TMA_ADD:
    case OP_TMA_STORE:
    case OP_TMA_PREFETCH:
    case OP_BULK_LOAD:
    case OP_BULK_STORE:
    case OP_BULK_COMMIT:
    case OP_BULK_WAIT: emit_bulk(gen, call); return NULL;
    case OP_PRINT: emit_print(gen, call); return NULL;
    case OP_ASSERT: emit_assert(gen, call); return NULL;
    default: break;
    }
    if (call->op >= OP_ATOMIC_ADD && call->op <= OP_ATOMIC_CAS) return emit_atomic(gen, call);
    fail_internal(gen->failure, __FILE__, __LINE__, "%s at thread stage", op_info(call->op)->text);
}

Value emit_op(Gen *gen, OpId op, int count, Arg *args, Type type, Span loc) {
    OpCall call = {op, count, args, type, loc};
    if (op_supported(gen, &call)) return emit_supported(gen, &call);
    return type == TYPE_NONE ? NULL : LLVMGetPoison(llvm_value_type(gen, type));
}
