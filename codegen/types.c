// Types, constants, intrinsic calls and other small builders.
#include "codegen/gen.h"
#include <string.h>

void types_init(Gen *gen) {
    LLVMContextRef c = gen->llvm.context;
    gen->types.i1 = LLVMInt1TypeInContext(c);
    gen->types.i8 = LLVMInt8TypeInContext(c);
    gen->types.i16 = LLVMInt16TypeInContext(c);
    gen->types.i32 = LLVMInt32TypeInContext(c);
    gen->types.i64 = LLVMInt64TypeInContext(c);
    gen->types.f16 = LLVMHalfTypeInContext(c);
    gen->types.bf16 = LLVMBFloatTypeInContext(c);
    gen->types.f32 = LLVMFloatTypeInContext(c);
    gen->types.f64 = LLVMDoubleTypeInContext(c);
    gen->types.none = LLVMVoidTypeInContext(c);
    gen->types.pointer = LLVMPointerTypeInContext(c, 0);
    gen->types.global_pointer = LLVMPointerTypeInContext(c, 1);
    gen->types.shared_pointer = LLVMPointerTypeInContext(c, 3);
}

LLVMTypeRef llvm_value_type(Gen *gen, Type type) {
    switch (type) {
    case TYPE_BOOL: return gen->types.i1;
    case TYPE_F16: return gen->types.f16;
    case TYPE_BF16: return gen->types.bf16;
    case TYPE_F32: return gen->types.f32;
    case TYPE_F64: return gen->types.f64;
    default: break;
    }
    EXPECT(gen->failure, type >= 0 && type_bits(type) <= 64, "a value of type %s", type < 0 ? "none" : type_text(type));
    return LLVMIntTypeInContext(gen->llvm.context, (unsigned)type_bits(type));
}

LLVMTypeRef memory_type(Gen *gen, Type type) {
    return type == TYPE_BOOL ? gen->types.i8 : llvm_value_type(gen, type);
}

Value to_memory(Gen *gen, Type type, Value value) {
    return type == TYPE_BOOL ? LLVMBuildZExt(gen->builder, value, gen->types.i8, "") : value;
}

Value from_memory(Gen *gen, Type type, Value value) {
    if (type != TYPE_BOOL) return value;
    return LLVMBuildICmp(gen->builder, LLVMIntNE, value, LLVMConstInt(gen->types.i8, 0, 0), "");
}

Value const_i32(Gen *gen, int64_t value) {
    return LLVMConstInt(gen->types.i32, (uint64_t)value & UINT32_MAX, 0);
}

Value const_i64(Gen *gen, int64_t value) {
    return LLVMConstInt(gen->types.i64, (uint64_t)value, 0);
}

Value const_f32(Gen *gen, double value) {
    return LLVMConstReal(gen->types.f32, value);
}

bool value_const(Value value, int64_t *constant) {
    if (!LLVMIsAConstantInt(value)) return false;
    *constant = LLVMConstIntGetSExtValue(value);
    return true;
}

Value call_named(Gen *gen, const char *name, LLVMTypeRef result, int count, Value *args) {
    Value function = LLVMGetNamedFunction(gen->llvm.module, name);
    if (!function) {
        LLVMTypeRef types[32];
        EXPECT(gen->failure, count <= COUNT_OF(types), "%s has %d arguments", name, count);
        for (int i = 0; i < count; i++) types[i] = LLVMTypeOf(args[i]);
        function = LLVMAddFunction(gen->llvm.module, name, LLVMFunctionType(result, types, (unsigned)count, 0));
    }
    return LLVMBuildCall2(gen->builder, LLVMGlobalGetValueType(function), function, args, (unsigned)count, "");
}

void mark_call(Gen *gen, Value call, const char *attribute) {
    unsigned kind = LLVMGetEnumAttributeKindForName(attribute, strlen(attribute));
    LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(gen->llvm.context, kind, 0));
}

Value build_bitcast(Gen *gen, Value value, LLVMTypeRef type) {
    return LLVMTypeOf(value) == type ? value : LLVMBuildBitCast(gen->builder, value, type, "");
}

// A pointer to a zero-terminated text in constant memory, as a generic pointer (what device system calls take).
Value string_constant(Gen *gen, const char *text) {
    Value global = strmap_get(gen->llvm.strings, text);
    if (!global) {
        Value data = LLVMConstStringInContext2(gen->llvm.context, text, strlen(text), 0);
        const char *name = gen->unit->alone ? "text$" : arena_printf(gen->arena, "text$%d$", gen->unit->first);
        global = LLVMAddGlobalInAddressSpace(gen->llvm.module, LLVMTypeOf(data), name, 1);
        LLVMSetInitializer(global, data);
        LLVMSetGlobalConstant(global, 1);
        LLVMSetLinkage(global, LLVMPrivateLinkage);
        strmap_put(gen->llvm.strings, text, global);
    }
    return LLVMConstAddrSpaceCast(global, gen->types.pointer);
}

Label new_label(Gen *gen, const char *name) {
    return LLVMAppendBasicBlockInContext(gen->llvm.context, gen->kernel.function, name);
}

void go_to(Gen *gen, Label label) {
    LLVMBuildBr(gen->builder, label);
    LLVMMoveBasicBlockAfter(label, LLVMGetInsertBlock(gen->builder));
    LLVMPositionBuilderAtEnd(gen->builder, label);
}

Value stack_slot(Gen *gen, LLVMTypeRef type, const char *name) {
    return LLVMBuildAlloca(gen->llvm.entry, type, name);
}

static Value call_asm(Gen *gen, const char *text, const char *constraints, LLVMTypeRef result, int count, Value *args,
                      bool effects) {
    LLVMTypeRef *types = NEW_ARRAY(gen->arena, LLVMTypeRef, count + 1);
    for (int i = 0; i < count; i++) types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)count, 0);
    Value code = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), effects, 0,
                                  LLVMInlineAsmDialectATT, 0);
    Value call = LLVMBuildCall2(gen->builder, type, code, args, (unsigned)count, "");
    if (effects) mark_call(gen, call, "convergent");
    mark_call(gen, call, "nounwind");
    return call;
}

Value build_asm(Gen *gen, const char *text, const char *constraints, LLVMTypeRef result, int count, Value *args) {
    return call_asm(gen, text, constraints, result, count, args, true);
}

Value build_pure_asm(Gen *gen, const char *text, const char *constraints, LLVMTypeRef result, int count, Value *args) {
    return call_asm(gen, text, constraints, result, count, args, false);
}
