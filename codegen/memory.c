// Accesses to memory: moves between memory and registers, cp.async, atomics, ordered loads and stores.
#include "codegen/gen.h"
#include <string.h>

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
        array->bits >= bits ? memory_type(gen, array->type) : LLVMIntTypeInContext(gen->llvm.context, (unsigned)bits);
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
        Value bits = register_get_bits(gen, array, index + lane * piece.bits / array->bits, piece.bits);
        value = LLVMBuildInsertElement(gen->builder, value, bits, const_i32(gen, lane), "");
    }
    LLVMSetAlignment(LLVMBuildStore(gen->builder, value, address), (unsigned)bytes);
}

static void emit_vector_move(Gen *gen, const OpCall *call) {
    bool is_load = call->op == OP_VLOAD;
    Region *to = ARG_PLACE(gen, call, VLOAD, dst), *from = ARG_PLACE(gen, call, VLOAD, src);
    Region *memory = is_load ? from : to, *local = is_load ? to : from;
    EXPECT(gen->failure, memory->buf->type == local->buf->type, "%s between types", op_info(call->op)->text);
    RegisterArray *array = register_array(gen, local->buf);
    int64_t bytes = ARG_CONST(gen, call, VLOAD, n) * array->bits / 8, first = place_register_index(gen, local);
    int64_t piece = piece_of(gen, bytes);
    Value base = place_address(gen, memory);
    for (int64_t at = 0; at < bytes; at += piece) {
        Value offset = const_i64(gen, at);
        Value address = at ? LLVMBuildGEP2(gen->builder, gen->types.i8, base, &offset, 1, "") : base;
        int64_t index = first + at * 8 / array->bits;
        if (is_load) load_piece(gen, memory->buf, address, array, index, piece);
        else store_piece(gen, address, array, index, piece);
    }
}

// ---- 16 bytes wherever they start ----

enum { UNIT_WORDS = 4, WORD_BYTES = 4 };

// The words of the unit at an address; zeros where the condition is false (NULL: it never is). Without a branch, so that loads of
// several places are asked for at once. (That the unit lies in the tensor is not in `inside` but a branch around this: LLVM moves no call
// of asm out of it.)
static void load_unit(Gen *gen, const Buf *from, Value address, Value inside, Value words[UNIT_WORDS]) {
    bool constant = buf_is_constant(from) && !gen->kernel.waits_for_launch;
    LLVMTypeRef types[UNIT_WORDS] = {gen->types.i32, gen->types.i32, gen->types.i32, gen->types.i32};
    LLVMTypeRef result = LLVMStructTypeInContext(gen->llvm.context, types, UNIT_WORDS, 0);
    Value always = LLVMConstInt(LLVMInt1TypeInContext(gen->llvm.context), 1, 0);
    Value args[] = {LLVMBuildZExt(gen->builder, inside ? inside : always, gen->types.i32, ""), address};
    const char *text =
        arena_printf(gen->arena,
                     "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, $4, 0;\n\tmov.b32 $0, 0;\n\tmov.b32 $1, 0;\n\t"
                     "mov.b32 $2, 0;\n\tmov.b32 $3, 0;\n\t@p ld.global%s.v4.b32 {$0, $1, $2, $3}, [$5];\n\t}",
                     constant ? ".nc" : "");
    Value unit = constant ? build_pure_asm(gen, text, "=r,=r,=r,=r,r,l", result, 2, args)
                          : build_asm(gen, text, "=r,=r,=r,=r,r,l,~{memory}", result, 2, args);
    for (int w = 0; w < UNIT_WORDS; w++) words[w] = LLVMBuildExtractValue(gen->builder, unit, (unsigned)w, "");
}

// words[w + by] where `bytes` has the bit of `by` words, else words[w].
static void move_words(Gen *gen, Value *words, int count, int by, Value bytes) {
    Value bit = LLVMBuildAnd(gen->builder, bytes, const_i32(gen, by * WORD_BYTES), "");
    Value moves = LLVMBuildICmp(gen->builder, LLVMIntNE, bit, const_i32(gen, 0), "");
    for (int w = 0; w < count; w++) words[w] = LLVMBuildSelect(gen->builder, moves, words[w + by], words[w], "");
}

// Where the first element begins in its unit: bits 3 and 2 choose words, bits 1 and 0 a funnel shift of neighbours.
static void emit_unaligned_load(Gen *gen, const OpCall *call) {
    Region *to = ARG_PLACE(gen, call, ULOAD, dst), *from = ARG_PLACE(gen, call, ULOAD, src);
    RegisterArray *array = register_array(gen, to->buf);
    EXPECT(gen->failure, ARG_CONST(gen, call, ULOAD, n) * array->bits == UNIT_WORDS * 32 && array->bits <= 32,
           "uload of other than 16 bytes, or of wide elements");
    Value inside = HAS_ARG(call, ULOAD, inside) ? emit_expr(gen, ARG_EXPR(gen, call, ULOAD, inside)) : NULL;
    int64_t first = place_register_index(gen, to);
    Value place = place_address(gen, from), address = LLVMBuildPtrToInt(gen->builder, place, gen->types.i64, "");
    Value low = LLVMBuildTrunc(gen->builder, address, gen->types.i32, "");
    Value bytes = LLVMBuildAnd(gen->builder, low, const_i32(gen, UNIT_WORDS * WORD_BYTES - 1), "");
    Value back = LLVMBuildNeg(gen->builder, LLVMBuildZExt(gen->builder, bytes, gen->types.i64, ""), "");
    Value unit = LLVMBuildGEP2(gen->builder, gen->types.i8, place, &back, 1, "");
    Value starts = LLVMBuildICmp(gen->builder, LLVMIntEQ, bytes, const_i32(gen, 0), "");
    Value step = LLVMBuildSelect(gen->builder, starts, const_i64(gen, 0), const_i64(gen, UNIT_WORDS * WORD_BYTES), "");
    Value next = LLVMBuildGEP2(gen->builder, gen->types.i8, unit, &step, 1, "");   // the same where no other is needed
    Value words[2 * UNIT_WORDS];
    load_unit(gen, from->buf, unit, inside, words);
    load_unit(gen, from->buf, next, inside, words + UNIT_WORDS);
    move_words(gen, words, UNIT_WORDS + 2, 2, bytes);
    move_words(gen, words, UNIT_WORDS + 1, 1, bytes);
    Value bits = LLVMBuildMul(gen->builder, LLVMBuildAnd(gen->builder, bytes, const_i32(gen, WORD_BYTES - 1), ""),
                              const_i32(gen, 8), "");
    for (int w = 0; w < UNIT_WORDS; w++) {
        Value word =
            array->bits < 32 ? CALL(gen, "llvm.fshr.i32", gen->types.i32, words[w + 1], words[w], bits) : words[w];
        register_set_bits(gen, array, first + w * 32 / array->bits, 32, word);
    }
}

static void emit_recast(Gen *gen, const OpCall *call) {
    Region *to = ARG_PLACE(gen, call, RECAST, dst), *from = ARG_PLACE(gen, call, RECAST, src);
    RegisterArray *out = register_array(gen, to->buf), *in = register_array(gen, from->buf);
    int64_t first = place_register_index(gen, to), start = place_register_index(gen, from);
    int64_t bits = ARG_CONST(gen, call, RECAST, n) * out->bits;
    int step = out->bits > in->bits ? out->bits : in->bits;
    for (int64_t at = 0; at < bits; at += step)
        register_set_bits(gen, out, first + at / out->bits, step,
                          register_get_bits(gen, in, start + at / in->bits, step));
}

// red of several elements: f32 as they are, others packed in 32 bits.
static void emit_vector_add(Gen *gen, const OpCall *call) {
    Region *memory = ARG_PLACE(gen, call, VATOMIC_ADD, dst), *local = ARG_PLACE(gen, call, VATOMIC_ADD, src);
    RegisterArray *array = register_array(gen, local->buf);
    int64_t n = ARG_CONST(gen, call, VATOMIC_ADD, n), first = place_register_index(gen, local);
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
        args[1 + i] = packed ? build_bitcast(gen, bits, gen->types.i32) : bits;
        sb_printf(&text, "%s$%d", i ? ", " : count > 1 ? "{" : "", i + 1);
        sb_printf(&constraints, packed ? ",r" : ",f");
    }
    sb_printf(&text, count > 1 ? "};" : ";");
    sb_printf(&constraints, ",~{memory}");
    build_asm(gen, sb_text(&text), sb_text(&constraints), gen->types.none, 1 + count, args);
}

// ---- asynchronous copies to shared memory ----

// 16 bytes go past the L1 cache (cg), smaller copies must go through it (ca).
static void emit_cp_async(Gen *gen, const OpCall *call) {
    Region *to = ARG_PLACE(gen, call, CP_ASYNC, dst), *from = ARG_PLACE(gen, call, CP_ASYNC, src);
    int64_t size = type_bytes(to->buf->type), count = ARG_CONST(gen, call, CP_ASYNC, n), bytes = count * size;
    EXPECT(gen->failure, bytes == 4 || bytes == 8 || bytes == 16, "cp_async of %lld bytes", (long long)bytes);
    Value valid = HAS_ARG(call, CP_ASYNC, valid)
                      ? fit_bits(gen, emit_index(gen, ARG_EXPR(gen, call, CP_ASYNC, valid)), 32, true)
                      : NULL;
    int64_t known;
    if (valid && value_const(valid, &known) && known == count) valid = NULL;
    const char *name = arena_printf(gen->arena, "llvm.nvvm.cp.async.%s.shared.global.%d%s", bytes == 16 ? "cg" : "ca",
                                    (int)bytes, valid ? ".s" : "");
    Value shared = place_address(gen, to), global = place_address(gen, from);
    if (!valid) {
        CALL(gen, name, gen->types.none, shared, global);
        return;
    }
    CALL(gen, name, gen->types.none, shared, global, LLVMBuildMul(gen->builder, valid, const_i32(gen, size), ""));
}

static void emit_cp_async_wait(Gen *gen, const OpCall *call) {
    CALL(gen, "llvm.nvvm.cp.async.wait.group", gen->types.none, const_i32(gen, ARG_CONST(gen, call, CP_ASYNC_WAIT, n)));
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

static Value emit_cas(Gen *gen, Value address, Value expected, Value desired) {
    LLVMTypeRef type = LLVMTypeOf(expected);
    unsigned bits = (unsigned)LLVMSizeOfTypeInBits(LLVMGetModuleDataLayout(gen->llvm.module), type);
    LLVMTypeRef integer = LLVMIntTypeInContext(gen->llvm.context, bits);
    Value pair = LLVMBuildAtomicCmpXchgSyncScope(gen->builder, address, build_bitcast(gen, expected, integer),
                                                 build_bitcast(gen, desired, integer), LLVMAtomicOrderingMonotonic,
                                                 LLVMAtomicOrderingMonotonic, scope_id(gen, "device"));
    return build_bitcast(gen, LLVMBuildExtractValue(gen->builder, pair, 0, ""), type);
}

// Relaxed, at device scope; what LLVM has no instruction for becomes a loop of compare-and-swap.
static Value emit_atomic(Gen *gen, const OpCall *call) {
    Region *place = ARG_PLACE(gen, call, ATOMIC_ADD, x);
    Type type = place->buf->type;
    Value address = place_address(gen, place);
    Value old;
    if (call->op == OP_ATOMIC_CAS) {
        Value expected = emit_value_as(gen, ARG_EXPR(gen, call, ATOMIC_CAS, expected), type);
        old = emit_cas(gen, address, expected, emit_value_as(gen, ARG_EXPR(gen, call, ATOMIC_CAS, v), type));
    } else {
        Value value = emit_value_as(gen, ARG_EXPR(gen, call, ATOMIC_ADD, v), type);
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
    return LLVMIntTypeInContext(gen->llvm.context, (unsigned)type_bits(type));
}

static Value emit_ordered_load(Gen *gen, const OpCall *call) {
    Region *place = ARG_PLACE(gen, call, LOAD, x);
    Type type = place->buf->type;
    Value load = LLVMBuildLoad2(gen->builder, atomic_type(gen, type), place_address(gen, place), "");
    make_atomic(gen, load, type, ARG_WORD(gen, call, LOAD, order), ARG_WORD(gen, call, LOAD, scope));
    return from_memory(gen, type, build_bitcast(gen, load, memory_type(gen, type)));
}

static void emit_ordered_store(Gen *gen, const OpCall *call) {
    Region *place = ARG_PLACE(gen, call, STORE, x);
    Type type = place->buf->type;
    Value value = build_bitcast(gen, emit_value_as(gen, ARG_EXPR(gen, call, STORE, v), type), atomic_type(gen, type));
    Value store = LLVMBuildStore(gen->builder, value, place_address(gen, place));
    make_atomic(gen, store, type, ARG_WORD(gen, call, STORE, order), ARG_WORD(gen, call, STORE, scope));
}

// ---- all ----

const OpEmitter memory_emitters[OP_COUNT] = {
    [OP_VLOAD] = {.statement = emit_vector_move},
    [OP_ULOAD] = {.statement = emit_unaligned_load},
    [OP_VSTORE] = {.statement = emit_vector_move},
    [OP_VATOMIC_ADD] = {.statement = emit_vector_add},
    [OP_RECAST] = {.statement = emit_recast},
    [OP_CP_ASYNC] = {.statement = emit_cp_async},
    [OP_CP_ASYNC_COMMIT] = {.intrinsic = "llvm.nvvm.cp.async.commit.group"},
    [OP_CP_ASYNC_WAIT] = {.statement = emit_cp_async_wait},
    [OP_ATOMIC_ADD] = {.value = emit_atomic},
    [OP_ATOMIC_MAX] = {.value = emit_atomic},
    [OP_ATOMIC_MIN] = {.value = emit_atomic},
    [OP_ATOMIC_AND] = {.value = emit_atomic},
    [OP_ATOMIC_OR] = {.value = emit_atomic},
    [OP_ATOMIC_XOR] = {.value = emit_atomic},
    [OP_ATOMIC_EXCH] = {.value = emit_atomic},
    [OP_ATOMIC_INC] = {.value = emit_atomic},
    [OP_ATOMIC_CAS] = {.value = emit_atomic},
    [OP_LOAD] = {.value = emit_ordered_load},
    [OP_STORE] = {.statement = emit_ordered_store},
};
