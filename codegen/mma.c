// Matrices of a warp: ldmatrix, stmatrix, mma. (wgmma.c has the matrix instructions of warpgroups.)
#include "codegen/gen.h"
#include <string.h>

static LLVMTypeRef struct_of(Gen *gen, LLVMTypeRef type, int count) {
    LLVMTypeRef types[8] = {type, type, type, type, type, type, type, type};
    return count == 1 ? type : LLVMStructTypeInContext(gen->llvm.context, types, (unsigned)count, 0);
}

static Value struct_field(Gen *gen, Value value, int index, int count) {
    return count == 1 ? value : LLVMBuildExtractValue(gen->builder, value, (unsigned)index, "");
}

static const char *matrix_name(Gen *gen, const OpCall *call, const char *what, int64_t count) {
    const char *trans = ARG_CONST(gen, call, LDMATRIX, trans) ? ".trans" : "";
    return arena_printf(gen->arena, "llvm.nvvm.%s.sync.aligned.m8n8.x%d%s.b16.p3", what, (int)count, trans);
}

static void emit_ldmatrix(Gen *gen, const OpCall *call) {
    Region *to = ARG_PLACE(gen, call, LDMATRIX, dst);
    RegisterArray *array = register_array(gen, to->buf);
    int64_t first = place_register_index(gen, to);
    int count = (int)ARG_CONST(gen, call, LDMATRIX, count), per_matrix = 32 / array->bits;
    const char *name = matrix_name(gen, call, "ldmatrix", count);
    Value rows = place_address(gen, ARG_PLACE(gen, call, LDMATRIX, src));
    Value loaded = CALL(gen, name, struct_of(gen, gen->types.i32, count), rows);
    mark_call(gen, loaded, "convergent");
    for (int i = 0; i < count; i++) {
        register_set_bits(gen, array, first + i * per_matrix, 32, struct_field(gen, loaded, i, count));
    }
}

static void emit_ldmatrix_bytes(Gen *gen, const OpCall *call) {
    Region *to = ARG_PLACE(gen, call, LDMATRIX_BYTES, dst);
    RegisterArray *array = register_array(gen, to->buf);
    int64_t first = place_register_index(gen, to);
    int count = (int)ARG_CONST(gen, call, LDMATRIX_BYTES, count), words = 2 * count, per_word = 32 / array->bits;
    const char *name = arena_printf(gen->arena, "llvm.nvvm.ldmatrix.sync.aligned.m16n16.x%d.trans.b8.p3", count);
    Value rows = place_address(gen, ARG_PLACE(gen, call, LDMATRIX_BYTES, src));
    Value loaded = CALL(gen, name, struct_of(gen, gen->types.i32, words), rows);
    mark_call(gen, loaded, "convergent");
    for (int i = 0; i < words; i++)
        register_set_bits(gen, array, first + i * per_word, 32, struct_field(gen, loaded, i, words));
}

static void emit_stmatrix(Gen *gen, const OpCall *call) {
    Region *from = ARG_PLACE(gen, call, STMATRIX, src);
    RegisterArray *array = register_array(gen, from->buf);
    int64_t first = place_register_index(gen, from);
    int count = (int)ARG_CONST(gen, call, STMATRIX, count), per_matrix = 32 / array->bits;
    const char *name = matrix_name(gen, call, "stmatrix", count);
    Value args[5] = {place_address(gen, ARG_PLACE(gen, call, STMATRIX, dst))};
    for (int i = 0; i < count; i++) {
        args[1 + i] = build_bitcast(gen, register_get_bits(gen, array, first + i * per_matrix, 32), gen->types.i32);
    }
    mark_call(gen, call_named(gen, name, gen->types.none, 1 + count, args), "convergent");
}

// How an instruction of the target's table is called: the intrinsic's name after the shape.
static const char *mma_suffix(Gen *gen, const MmaInfo *info) {
    static const char *const suffixes[][4] = {
        {"f16", "f16", "f32", ".f32.f32"},
        {"f16", "f16", "f16", ".f16.f16"},
        {"bf16", "bf16", "f32", ".bf16"},
        {"tf32", "tf32", "f32", ".tf32"},
        {"i8", "i8", "i32", ".s8"},
        {"u8", "u8", "i32", ".u8"},
        {"i8", "u8", "i32", ".s8.u8"},
        {"u8", "i8", "i32", ".u8.s8"},
        {"e4m3", "e4m3", "f32", ".f32.e4m3.e4m3.f32"},
        {"e5m2", "e5m2", "f32", ".f32.e5m2.e5m2.f32"},
        {"e4m3", "e5m2", "f32", ".f32.e4m3.e5m2.f32"},
        {"e5m2", "e4m3", "f32", ".f32.e5m2.e4m3.f32"},
        {"f64", "f64", "f64", ".f64"},
    };
    for (int i = 0; i < COUNT_OF(suffixes); i++) {
        bool operands = !strcmp(suffixes[i][0], info->a_type) && !strcmp(suffixes[i][1], info->b_type);
        if (operands && !strcmp(suffixes[i][2], info->c_type)) return suffixes[i][3];
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "mma of %s and %s to %s", info->a_type, info->b_type, info->c_type);
}

// The type of a 32-bit operand register: f16 pairs have their own, everything else below 32 bits is an integer.
static LLVMTypeRef mma_register(Gen *gen, RegisterArray *array, bool is_tf32) {
    if (array->type == TYPE_F16) return LLVMVectorType(gen->types.f16, 2);
    return array->bits < 32 || is_tf32 ? gen->types.i32 : array->element;
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
        args[i] = operand.is_tf32 ? CALL(gen, "llvm.nvvm.f2tf32.rna", gen->types.i32, value)
                                  : build_bitcast(gen, value, operand.type);
    }
    return operand.registers;
}

static void emit_mma(Gen *gen, const OpCall *call) {
    const MmaInfo *info = mma_named(ARG_WORD(gen, call, MMA, shape));
    EXPECT(gen->failure, info, "mma shape '%s'", ARG_WORD(gen, call, MMA, shape));
    MmaOperand a = mma_operand(gen, call, OPERAND_INDEX(MMA, a), (int64_t)info->m * info->k, info->a_type);
    MmaOperand b = mma_operand(gen, call, OPERAND_INDEX(MMA, b), (int64_t)info->n * info->k, info->b_type);
    MmaOperand c = mma_operand(gen, call, OPERAND_INDEX(MMA, c), (int64_t)info->m * info->n, info->c_type);
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
        register_set_bits(gen, c.array, c.first + i * step, bits, struct_field(gen, result, i, c.registers));
    }
}

const OpEmitter mma_emitters[OP_COUNT] = {
    [OP_LDMATRIX] = {.statement = emit_ldmatrix},
    [OP_LDMATRIX_BYTES] = {.statement = emit_ldmatrix_bytes},
    [OP_STMATRIX] = {.statement = emit_stmatrix},
    [OP_MMA] = {.statement = emit_mma},
};
