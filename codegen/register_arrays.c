// Per-thread arrays as registers.
//
// An element of a `local` array lives in a stack slot that mem2reg turns into a register. Elements below 32 bits share
// slots of 32 bits (two f16 or bf16, four bytes), because that is the register in which matrix instructions, 16-byte
// loads and the packed conversions hold them: a pair is then moved as a whole and never unpacked.
//
//     local a: bf16[8]     slots: <2 x bfloat> x 4      ldmatrix writes slots 0..3, mma reads them, nothing between
//
// Many 16-bit floats that live across a barrier should stay packed. But LLVM and ptxas see that the second f32(a[i])
// equals the first and keep the f32, in twice the registers. So at a barrier each slot is or-ed with a zero opaque to
// both.
#include "codegen/gen.h"
#include "ir/query.h"
#include <string.h>

enum { MANY = 64 };   // elements whose f32 would take a good part of a thread's registers

static const Buf *array_of(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static bool stores_elements(const Block *body, const Buf *buf) {
    FOR_EACH_STMT (stmt, body)
        if (stmt->kind == STMT_STORE && array_of(stmt->store.buf) == buf) return true;
    return false;
}

// As many as a register holds, or half as many of bytes, that the count is a multiple of; else one. LLVM holds two bytes
// as halves of 16 bits. If one is an 8-bit float that was just converted, ptxas 13.0 may overwrite the other one's
// register (docs/notebook/reliability.md): so only bytes that are loaded, and not stored one by one, are held in pairs.
static int pack_of(const Block *body, const Buf *buf, int64_t count) {
    int bits = type_bits(buf->type), pack = buf->type == TYPE_BOOL || bits >= 32 ? 1 : 32 / bits;
    if (count % pack == 0) return pack;
    bool pairs = bits == 8 && count % 2 == 0 && !(type_is_float(buf->type) && stores_elements(body, buf));
    return pairs ? 2 : 1;
}

static int64_t element_count(Gen *gen, const Buf *buf) {
    int64_t count = 1;
    for (int i = 0; i < buf->rank; i++) {
        int64_t extent = buf_extent(buf, i);
        EXPECT(gen->failure, extent >= 0, "local array '%s' has a dynamic extent", buf->name);
        count *= extent;
    }
    return count;
}

static RegisterArray *new_array(Gen *gen, const Buf *buf) {
    RegisterArray *array = NEW(gen->arena, RegisterArray);
    array->count = element_count(gen, buf);
    if (array->count > MOST_LOCAL_ELEMENTS) {
        diag(gen->sink, buf->loc, T_LOCAL_SIZE, buf->name, (long long)array->count, MOST_LOCAL_ELEMENTS);
        array->count = MOST_LOCAL_ELEMENTS;
        array->reported = gen->kernel.abandoned = true;
    }
    array->name = buf->name;
    array->type = buf->type;
    array->bits = type_bits(buf->type);
    array->element = llvm_value_type(gen, buf->type);
    array->pack = pack_of(&gen->kernel.func->body, buf, array->count);
    array->slot_type = array->pack == 1 ? array->element : LLVMVectorType(array->element, (unsigned)array->pack);
    int64_t slots = array->count / array->pack;
    array->slots = NEW_ARRAY(gen->arena, Value, slots);
    for (int64_t i = 0; i < slots; i++) array->slots[i] = stack_slot(gen, array->slot_type, buf->name);
    return array;
}

// A declaration inside a loop starts afresh each time: without the poison, LLVM would carry old elements around.
void declare_register_array(Gen *gen, Buf *buf) {
    if (buf->alias_of) return;
    RegisterArray *array = map_get(gen->registers.arrays, buf);
    if (!array) {
        map_put(gen->registers.arrays, buf, array = new_array(gen, buf));
        if (array->bits == 16 && array->pack == 2 && array->count >= MANY && type_is_float(buf->type))
            vec_push(gen->arena, &gen->registers.packed, array);
    }
    if (attr_get(buf->attrs, ATTR_WGMMA_REGISTERS)) vec_push(gen->arena, &gen->registers.wgmma, buf);
    for (int64_t i = 0; i < array->count / array->pack; i++) {
        LLVMBuildStore(gen->builder, LLVMGetPoison(array->slot_type), array->slots[i]);
    }
    array->last.block = NULL;
}

RegisterArray *register_array(Gen *gen, const Buf *buf) {
    RegisterArray *array = map_get(gen->registers.arrays, array_of(buf));
    EXPECT(gen->failure, array, "'%s' is used before its declaration", buf->name);
    return array;
}

// The verifier knows an index that is a constant; that of an unrolled loop is known here.
static Value *slot_of(Gen *gen, RegisterArray *array, int64_t index) {
    if (index >= 0 && index < array->count) return &array->slots[index / array->pack];
    if (array->reported || gen->kernel.conditions) return &array->slots[0];   // a condition may exclude it
    diag(gen->sink, gen->kernel.place, T_INDEX_RANGE, (long long)index, 0, array->name, (long long)array->count);
    array->reported = true;
    return &array->slots[0];
}

Value register_get(Gen *gen, RegisterArray *array, int64_t index) {
    Value slot = LLVMBuildLoad2(gen->builder, array->slot_type, *slot_of(gen, array, index), "");
    if (array->pack == 1) return slot;
    return LLVMBuildExtractElement(gen->builder, slot, const_i32(gen, index % array->pack), "");
}

// 8-bit floats come out of the conversion in pairs, and 16-bit ones that are not negative by it: the second of two in a
// slot takes the first along.
static bool set_pair(Gen *gen, RegisterArray *array, int64_t index, Value value) {
    LLVMBuilderRef b = gen->builder;
    if (array->bits > 16 || index % 2 == 0 || array->pack < 2 || array->last.index != index - 1) return false;
    if (array->last.block != LLVMGetInsertBlock(b)) return false;
    if (array->bits == 16) {
        Value pair = join_relu(gen, array->last.value, value);
        if (pair) LLVMBuildStore(b, pair, *slot_of(gen, array, index));
        if (pair) array->last.block = NULL;
        return pair != NULL;
    }
    Value pair = join_fp8(gen, array->last.value, value);
    if (!pair) return false;
    Value halves = build_bitcast(gen, array->last.before, LLVMVectorType(gen->types.i16, (unsigned)array->pack / 2));
    halves = LLVMBuildInsertElement(b, halves, pair, const_i32(gen, index % array->pack / 2), "");
    LLVMBuildStore(b, build_bitcast(gen, halves, array->slot_type), *slot_of(gen, array, index));
    array->last.block = NULL;
    return true;
}

void register_set(Gen *gen, RegisterArray *array, int64_t index, Value value) {
    Value slot = *slot_of(gen, array, index);
    if (set_pair(gen, array, index, value)) return;
    if (array->pack > 1) {
        Value old = LLVMBuildLoad2(gen->builder, array->slot_type, slot, "");
        array->last.index = index;
        array->last.value = value;
        array->last.before = old;
        array->last.block = LLVMGetInsertBlock(gen->builder);
        value = LLVMBuildInsertElement(gen->builder, old, value, const_i32(gen, index % array->pack), "");
    }
    LLVMBuildStore(gen->builder, value, slot);
}

// Elements index .. as one integer of `bits` bits, the first in the low bits; an element itself when it is that wide.
Value register_get_bits(Gen *gen, RegisterArray *array, int64_t index, int bits) {
    LLVMTypeRef integer = LLVMIntTypeInContext(gen->llvm.context, (unsigned)bits);
    int count = bits / array->bits;
    if (count <= 1) return to_memory(gen, array->type, register_get(gen, array, index));
    if (count == array->pack && index % array->pack == 0) {
        Value slot = *slot_of(gen, array, index);
        return build_bitcast(gen, LLVMBuildLoad2(gen->builder, array->slot_type, slot, ""), integer);
    }
    Value vector = LLVMGetPoison(LLVMVectorType(memory_type(gen, array->type), (unsigned)count));
    for (int i = 0; i < count; i++) {
        Value element = to_memory(gen, array->type, register_get(gen, array, index + i));
        vector = LLVMBuildInsertElement(gen->builder, vector, element, const_i32(gen, i), "");
    }
    return build_bitcast(gen, vector, integer);
}

void register_set_bits(Gen *gen, RegisterArray *array, int64_t index, int bits, Value value) {
    int count = bits / array->bits;
    if (count <= 1) {
        value = build_bitcast(gen, value, memory_type(gen, array->type));
        register_set(gen, array, index, from_memory(gen, array->type, value));
        return;
    }
    array->last.block = NULL;
    if (count == array->pack && index % array->pack == 0) {
        LLVMBuildStore(gen->builder, build_bitcast(gen, value, array->slot_type), *slot_of(gen, array, index));
        return;
    }
    Value vector = build_bitcast(gen, value, LLVMVectorType(memory_type(gen, array->type), (unsigned)count));
    for (int i = 0; i < count; i++) {
        Value element = LLVMBuildExtractElement(gen->builder, vector, const_i32(gen, i), "");
        register_set(gen, array, index + i, from_memory(gen, array->type, element));
    }
}

// ---- packed over barriers ----

// Grids have one dim, so the number of CTAs along z is 1, and half of it 0.
static Value unknown_zero(Gen *gen) {
    LLVMBuilderRef builder = gen->builder;
    gen->builder = gen->llvm.entry;
    Value zero =
        build_pure_asm(gen, "{\n\tmov.u32 $0, %nctaid.z;\n\tshr.u32 $0, $0, 1;\n\t}", "=r", gen->types.i32, 0, NULL);
    gen->builder = builder;
    return zero;
}

Value hidden_zero(Gen *gen) {
    if (!gen->registers.zero) gen->registers.zero = unknown_zero(gen);
    return gen->registers.zero;
}

void keep_arrays_packed(Gen *gen) {
    if (gen->kernel.has_mma || !gen->registers.packed.count)
        return;   // operands of matrix instructions are not converted
    hidden_zero(gen);
    for (int i = 0; i < gen->registers.packed.count; i++) {
        RegisterArray *array = gen->registers.packed.items[i];
        array->last.block = NULL;
        for (int64_t k = 0; k < array->count / array->pack; k++) {
            Value old = LLVMBuildLoad2(gen->builder, array->slot_type, array->slots[k], "");
            Value args[] = {build_bitcast(gen, old, gen->types.i32), gen->registers.zero};
            Value same = build_pure_asm(gen, "or.b32 $0, $1, $2;", "=r,r,r", gen->types.i32, COUNT_OF(args), args);
            LLVMBuildStore(gen->builder, build_bitcast(gen, same, array->slot_type), array->slots[k]);
        }
    }
}
