// Conversions between scalar types, as the language defines them: to integers toward zero and saturating (NaN gives 0),
// to floats to nearest even, to e4m3 and e5m2 saturating.
#include "codegen/gen.h"
#include <math.h>
#include <string.h>

// ---- 8-bit floats without conversion instructions (targets before sm_89) ----

typedef struct Fp8 {
    int mantissa;   // bits
    int bias;
    double largest;
} Fp8;

static Fp8 fp8_of(Type type) {
    return type == TYPE_E4M3 ? (Fp8){3, 7, 448} : (Fp8){2, 15, 57344};
}

static Value as_bits(Gen *gen, Value value) {
    return build_bitcast(gen, value, gen->types.i32);
}

// f32 -> 8 bits: the value is clamped, then rounded to nearest even by integer arithmetic on the bits; below the
// smallest normal number an addition of a power of two whose ulp is the smallest subnormal number does the rounding.
static Value fp8_from_f32_bits(Gen *gen, Value x, Type type) {
    LLVMBuilderRef b = gen->builder;
    Fp8 f = fp8_of(type);
    int shift = 23 - f.mantissa;
    Value bits = as_bits(gen, x);
    Value sign = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, const_i32(gen, 24), ""), const_i32(gen, 0x80), "");
    Value size = CALL(gen, "llvm.fabs.f32", gen->types.f32, x);
    Value clamped = CALL(gen, "llvm.minnum.f32", gen->types.f32, size, const_f32(gen, f.largest));
    Value all = as_bits(gen, clamped);
    Value odd = LLVMBuildAnd(b, LLVMBuildLShr(b, all, const_i32(gen, shift), ""), const_i32(gen, 1), "");
    Value up = LLVMBuildAdd(b, LLVMBuildAdd(b, all, const_i32(gen, (1 << (shift - 1)) - 1), ""), odd, "");
    Value normal = LLVMBuildSub(b, LLVMBuildLShr(b, up, const_i32(gen, shift), ""),
                                const_i32(gen, (127 - f.bias) << f.mantissa), "");
    Value magic = const_f32(gen, ldexp(1, 23 + 1 - f.bias - f.mantissa));
    Value small = LLVMBuildSub(b, as_bits(gen, LLVMBuildFAdd(b, clamped, magic, "")), as_bits(gen, magic), "");
    Value is_small = LLVMBuildFCmp(b, LLVMRealOLT, clamped, const_f32(gen, ldexp(1, 1 - f.bias)), "");
    Value code = LLVMBuildOr(b, LLVMBuildSelect(b, is_small, small, normal, ""), sign, "");
    Value is_nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
    return LLVMBuildTrunc(b, LLVMBuildSelect(b, is_nan, const_i32(gen, 0x7f), code, ""), gen->types.i8, "");
}

// e4m3 -> f32: the bits as a tiny f32 with the same mantissa, scaled by the difference of the biases (exact).
static Value f32_from_e4m3_bits(Gen *gen, Value code) {
    LLVMBuilderRef b = gen->builder;
    Value wide = LLVMBuildZExt(b, code, gen->types.i32, "");
    Value size = LLVMBuildAnd(b, wide, const_i32(gen, 0x7f), "");
    Value tiny = build_bitcast(gen, LLVMBuildShl(b, size, const_i32(gen, 20), ""), gen->types.f32);
    Value value = as_bits(gen, LLVMBuildFMul(b, tiny, const_f32(gen, ldexp(1, 120)), ""));
    Value is_nan = LLVMBuildICmp(b, LLVMIntEQ, size, const_i32(gen, 0x7f), "");
    value = LLVMBuildSelect(b, is_nan, const_i32(gen, 0x7fffffff), value, "");
    Value sign = LLVMBuildShl(b, LLVMBuildAnd(b, wide, const_i32(gen, 0x80), ""), const_i32(gen, 24), "");
    return build_bitcast(gen, LLVMBuildOr(b, value, sign, ""), gen->types.f32);
}

static Value fp8_from_f32(Gen *gen, Value x, Type type) {
    if (!target_has(gen->target, FEATURE_MMA_FP8)) return fp8_from_f32_bits(gen, x, type);
    const char *name = type == TYPE_E4M3 ? "llvm.nvvm.ff.to.e4m3x2.rn" : "llvm.nvvm.ff.to.e5m2x2.rn";
    return LLVMBuildTrunc(gen->builder, CALL(gen, name, gen->types.i16, const_f32(gen, 0), x), gen->types.i8, "");
}

// What an element was converted from by one half of the instruction.
static Value fp8_source(Gen *gen, Value value, const char **name) {
    if (!LLVMIsATruncInst(value)) return NULL;
    Value call = LLVMGetOperand(value, 0);
    if (!LLVMIsACallInst(call)) return NULL;
    size_t length;
    *name = LLVMGetValueName2(LLVMGetCalledValue(call), &length);
    if (strncmp(*name, "llvm.nvvm.ff.to.e", strlen("llvm.nvvm.ff.to.e")) != 0) return NULL;
    return LLVMGetOperand(call, 0) == const_f32(gen, 0) ? LLVMGetOperand(call, 1) : NULL;
}

Value join_fp8(Gen *gen, Value low, Value high) {
    const char *low_name, *high_name;
    Value a = fp8_source(gen, low, &low_name), b = fp8_source(gen, high, &high_name);
    if (!a || !b || strcmp(low_name, high_name) != 0) return NULL;
    return CALL(gen, arena_printf(gen->arena, "%s", low_name), gen->types.i16, b, a);
}

// The x of a 16-bit relu(x), which the conversion has.
static Value relu_source(Gen *gen, Value value) {
    if (!LLVMIsAFPTruncInst(value)) return NULL;
    Value call = LLVMGetOperand(value, 0);
    if (!LLVMIsACallInst(call)) return NULL;
    size_t length;
    bool maximum = strcmp(LLVMGetValueName2(LLVMGetCalledValue(call), &length), "llvm.maximum.f32") == 0;
    return maximum && LLVMGetOperand(call, 1) == const_f32(gen, 0) ? LLVMGetOperand(call, 0) : NULL;
}

Value join_relu(Gen *gen, Value low, Value high) {
    Value a = relu_source(gen, low), b = relu_source(gen, high);
    if (!a || !b) return NULL;
    bool half = LLVMTypeOf(low) == gen->types.f16;
    return CALL(gen, half ? "llvm.nvvm.ff2f16x2.rn.relu" : "llvm.nvvm.ff2bf16x2.rn.relu",
                LLVMVectorType(LLVMTypeOf(low), 2), b, a);
}

static Value f32_from_fp8(Gen *gen, Value code, Type type) {
    LLVMBuilderRef b = gen->builder;
    if (type == TYPE_E5M2) {   // the upper byte of an f16
        Value bits =
            LLVMBuildShl(b, LLVMBuildZExt(b, code, gen->types.i16, ""), LLVMConstInt(gen->types.i16, 8, 0), "");
        return LLVMBuildFPExt(b, build_bitcast(gen, bits, gen->types.f16), gen->types.f32, "");
    }
    if (!target_has(gen->target, FEATURE_MMA_FP8)) return f32_from_e4m3_bits(gen, code);
    Value pair = CALL(gen, "llvm.nvvm.e4m3x2.to.f16x2.rn", LLVMVectorType(gen->types.f16, 2),
                      LLVMBuildZExt(b, code, gen->types.i16, ""));
    return LLVMBuildFPExt(b, LLVMBuildExtractElement(b, pair, const_i32(gen, 0), ""), gen->types.f32, "");
}

// ---- pairs of 8-bit floats to 16 bits: four in a register, exact ----

// The bits at the places of the wider type, times the difference of the biases. All ones is NaN: one more than its bits
// carries to where no other value has a bit, and from there the exponent is filled.
typedef struct Fp8Upcast {
    int shift;          // from the upper byte of 16 bits
    double scale;       // 2 to the difference of the biases
    uint32_t one;       // of the last bit, in both halves
    uint32_t carried;   // the bit that only the NaN's carry sets
    uint32_t fill;      // that bit / 2 times this is what its exponent lacks
} Fp8Upcast;

static Value upcast_e4m3(Gen *gen, Value upper, Type to) {
    static const Fp8Upcast to_f16 = {1, 0x1p8, 0x00800080, 0x40004000, 1},
                           to_bf16 = {4, 0x1p120, 0x00100010, 0x08000800, 15};
    const Fp8Upcast *w = to == TYPE_F16 ? &to_f16 : &to_bf16;
    LLVMBuilderRef b = gen->builder;
    LLVMTypeRef pair = LLVMVectorType(llvm_value_type(gen, to), 2);
    Value sign = LLVMBuildAnd(b, upper, const_i32(gen, 0x80008000), "");
    Value size = LLVMBuildLShr(b, LLVMBuildAnd(b, upper, const_i32(gen, 0x7f007f00), ""), const_i32(gen, w->shift), "");
    Value small = build_bitcast(gen, LLVMBuildOr(b, sign, size, ""), pair),
          half = LLVMConstReal(llvm_value_type(gen, to), w->scale);
    Value scale = LLVMConstVector((Value[]){half, half}, 2), zero = LLVMConstReal(llvm_value_type(gen, to), -0.0);
    const char *name = to == TYPE_F16 ? "llvm.nvvm.fma.rn.f16x2" : "llvm.nvvm.fma.rn.bf16x2";
    Value value = CALL(gen, name, pair, small, scale, LLVMConstVector((Value[]){zero, zero}, 2));
    Value carry = LLVMBuildAnd(b, LLVMBuildAdd(b, size, const_i32(gen, w->one), ""), const_i32(gen, w->carried), "");
    Value fill = LLVMBuildMul(b, LLVMBuildLShr(b, carry, const_i32(gen, 1), ""), const_i32(gen, w->fill), "");
    return build_bitcast(gen, LLVMBuildOr(b, as_bits(gen, value), fill, ""), pair);
}

Value convert_fp8_pair(Gen *gen, Value four, int at, Type from, Type to) {
    if (to != TYPE_F16 && to != TYPE_BF16) return NULL;
    LLVMBuilderRef b = gen->builder;
    if (target_has(gen->target, FEATURE_MMA_FP8)) {   // (to bf16: four instructions; NaNs cost upcast_e4m3 eleven)
        const char *name = from == TYPE_E4M3 ? "llvm.nvvm.e4m3x2.to.f16x2.rn" : "llvm.nvvm.e5m2x2.to.f16x2.rn";
        Value two = LLVMBuildTrunc(b, LLVMBuildLShr(b, four, const_i32(gen, at * 8), ""), gen->types.i16, "");
        Value halves = CALL(gen, name, LLVMVectorType(gen->types.f16, 2), two);
        if (to == TYPE_F16) return halves;
        // Of f32 that bf16 can hold the upper halves, put together: conversions to 16 bits run at half of that rate.
        enum { UPPER_HALVES = 0x7632 };
        Value wide = LLVMBuildFPExt(b, halves, LLVMVectorType(gen->types.f32, 2), "");
        Value bits = LLVMBuildBitCast(b, wide, LLVMVectorType(gen->types.i32, 2), "");
        Value low = LLVMBuildExtractElement(b, bits, const_i32(gen, 0), "");
        Value high = LLVMBuildExtractElement(b, bits, const_i32(gen, 1), "");
        Value upper = CALL(gen, "llvm.nvvm.prmt", gen->types.i32, low, high, const_i32(gen, UPPER_HALVES));
        return build_bitcast(gen, upper, LLVMVectorType(llvm_value_type(gen, to), 2));
    }
    int upper_bytes = at == 0 ? 0x1404 : 0x3424;   // zero, the first, zero, the second
    Value upper = CALL(gen, "llvm.nvvm.prmt", gen->types.i32, four, const_i32(gen, 0), const_i32(gen, upper_bytes));
    if (from == TYPE_E4M3) return upcast_e4m3(gen, upper, to);
    return to == TYPE_F16 ? build_bitcast(gen, upper, LLVMVectorType(gen->types.f16, 2)) : NULL;
}

// ---- floats ----

// The upper one of two bf16 in a register: the register is the f32, but for the other one's bits. (ptxas takes it out
// and shifts it back.) NULL: `value` is none.
static Value upper_half_as_f32(Gen *gen, Value value) {
    uint64_t upper = 0xffff0000;
    if (!LLVMIsAExtractElementInst(value)) return NULL;
    Value pair = LLVMGetOperand(value, 0), index = LLVMGetOperand(value, 1);
    bool one = LLVMIsAConstantInt(index) && LLVMConstIntGetZExtValue(index) == 1;
    if (!one || LLVMGetVectorSize(LLVMTypeOf(pair)) != 2) return NULL;
    Value bits = LLVMBuildAnd(gen->builder, build_bitcast(gen, pair, gen->types.i32),
                              LLVMConstInt(gen->types.i32, upper, 0), "");
    return build_bitcast(gen, bits, gen->types.f32);
}

Value to_compute(Gen *gen, Value value, Type type) {
    Value widened = type == TYPE_BF16 ? upper_half_as_f32(gen, value) : NULL;
    if (widened) return widened;
    if (type == TYPE_F16 || type == TYPE_BF16) return LLVMBuildFPExt(gen->builder, value, gen->types.f32, "");
    if (type == TYPE_E4M3 || type == TYPE_E5M2) return f32_from_fp8(gen, value, type);
    return value;
}

Value from_compute(Gen *gen, Value value, Type type) {
    if (type == TYPE_F16 || type == TYPE_BF16) {
        return LLVMBuildFPTrunc(gen->builder, value, llvm_value_type(gen, type), "");
    }
    if (type == TYPE_E4M3 || type == TYPE_E5M2) return fp8_from_f32(gen, value, type);
    return value;
}

// "Round to odd": what was cut off toward zero has its last bit set when anything was lost. A second rounding, to a
// narrower type, then rounds as one would.
static Value rounded_to_odd(Gen *gen, Value cut, Value lost) {
    Value sticky = LLVMBuildZExt(gen->builder, lost, gen->types.i32, "");
    return build_bitcast(gen, LLVMBuildOr(gen->builder, as_bits(gen, cut), sticky, ""), gen->types.f32);
}

static Value f64_to_odd_f32(Gen *gen, Value value) {
    LLVMBuilderRef b = gen->builder;
    Value cut = CALL(gen, "llvm.nvvm.d2f.rz", gen->types.f32, value);
    return rounded_to_odd(gen, cut,
                          LLVMBuildFCmp(b, LLVMRealONE, LLVMBuildFPExt(b, cut, gen->types.f64, ""), value, ""));
}

static Value int_to_odd_f32(Gen *gen, Value value, Type from) {
    static const char *const names[2][2][2] = {
        {{"llvm.nvvm.i2f.rz", "llvm.nvvm.ui2f.rz"}, {"llvm.nvvm.f2i.rz", "llvm.nvvm.f2ui.rz"}},
        {{"llvm.nvvm.ll2f.rz", "llvm.nvvm.ull2f.rz"}, {"llvm.nvvm.f2ll.rz", "llvm.nvvm.f2ull.rz"}},
    };
    bool is_long = type_bits(from) == 64, is_unsigned = type_kind(from) == KIND_UINT;
    Value cut = CALL(gen, names[is_long][0][is_unsigned], gen->types.f32, value);
    Value back = CALL(gen, names[is_long][1][is_unsigned], LLVMTypeOf(value), cut);
    return rounded_to_odd(gen, cut, LLVMBuildICmp(gen->builder, LLVMIntNE, back, value, ""));
}

static Value float_to_float(Gen *gen, Value value, Type from, Type to) {
    if (from == TYPE_F64) {
        bool direct = to == TYPE_F16 || to == TYPE_F32;
        if (direct) return LLVMBuildFPTrunc(gen->builder, value, llvm_value_type(gen, to), "");
        return from_compute(gen, f64_to_odd_f32(gen, value), to);
    }
    value = to_compute(gen, value, from);
    if (to == TYPE_F64) return LLVMBuildFPExt(gen->builder, value, gen->types.f64, "");
    return from_compute(gen, value, to);
}

// ---- floats and integers ----

static Value clamp_i32(Gen *gen, Value value, int64_t low, int64_t high) {
    Value above = CALL(gen, "llvm.smax.i32", gen->types.i32, value, const_i32(gen, low));
    return CALL(gen, "llvm.smin.i32", gen->types.i32, above, const_i32(gen, high));
}

// The conversion instruction saturates at 32 and 64 bits. It gives 0 for NaN, except in conversions that have 64 bits
// on either side (PTX ISA, cvt).
static Value float_to_int(Gen *gen, Value value, Type from, Type to) {
    static const char *const names[2][2][2] = {
        {{"llvm.nvvm.f2i.rz", "llvm.nvvm.f2ui.rz"}, {"llvm.nvvm.f2ll.rz", "llvm.nvvm.f2ull.rz"}},
        {{"llvm.nvvm.d2i.rz", "llvm.nvvm.d2ui.rz"}, {"llvm.nvvm.d2ll.rz", "llvm.nvvm.d2ull.rz"}},
    };
    bool is_double = from == TYPE_F64, is_unsigned = type_kind(to) == KIND_UINT;
    int bits = type_bits(to);
    value = to_compute(gen, value, from);
    bool small = bits < 32;
    const char *name = names[is_double][bits == 64][is_unsigned && !small];
    Value result = CALL(gen, name, bits == 64 ? gen->types.i64 : gen->types.i32, value);
    if (is_double || bits == 64) {
        Value is_nan = LLVMBuildFCmp(gen->builder, LLVMRealUNO, value, value, "");
        result = LLVMBuildSelect(gen->builder, is_nan, LLVMConstNull(LLVMTypeOf(result)), result, "");
    }
    if (!small) return result;
    int64_t high = is_unsigned ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
    int64_t low = is_unsigned ? 0 : -(1 << (bits - 1));
    return LLVMBuildTrunc(gen->builder, clamp_i32(gen, result, low, high), llvm_value_type(gen, to), "");
}

// At most 16 bits to f32, without the conversion instruction, of which a multiprocessor does few at a time: behind the
// bits of 2^23 an integer is itself. Signed ones are moved up by half their range first.
static Value small_int_to_f32(Gen *gen, Value value, Type from) {
    LLVMBuilderRef b = gen->builder;
    enum { TWO_23 = 1 << 23, BITS_OF_TWO_23 = 0x4b000000 };
    int64_t half = type_kind(from) == KIND_INT ? (int64_t)1 << (type_bits(from) - 1) : 0;
    Value wide = LLVMBuildZExt(b, value, gen->types.i32, "");
    if (half) wide = LLVMBuildXor(b, wide, const_i32(gen, half), "");
    Value moved = build_bitcast(gen, LLVMBuildOr(b, wide, const_i32(gen, BITS_OF_TWO_23), ""), gen->types.f32);
    return LLVMBuildFSub(b, moved, const_f32(gen, (double)(TWO_23 + half)), "");
}

static Value int_to_float(Gen *gen, Value value, Type from, Type to) {
    if (type_bits(from) <= 16 && type_compute(to) == TYPE_F32)
        return from_compute(gen, small_int_to_f32(gen, value, from), to);
    if (to == TYPE_BF16)
        return from_compute(gen, int_to_odd_f32(gen, value, from), to);   // f32 would round a first time
    LLVMTypeRef type = to == TYPE_F64 || to == TYPE_F16 ? llvm_value_type(gen, to) : gen->types.f32;
    bool is_signed = type_kind(from) == KIND_INT;
    Value result =
        is_signed ? LLVMBuildSIToFP(gen->builder, value, type, "") : LLVMBuildUIToFP(gen->builder, value, type, "");
    return type == gen->types.f32 ? from_compute(gen, result, to) : result;
}

static Value int_to_int(Gen *gen, Value value, Type from, Type to) {
    return LLVMBuildIntCast2(gen->builder, value, llvm_value_type(gen, to), type_kind(from) == KIND_INT, "");
}

static Value to_bool(Gen *gen, Value value, Type from) {
    if (!type_is_float(from)) {
        return LLVMBuildICmp(gen->builder, LLVMIntNE, value, LLVMConstNull(LLVMTypeOf(value)), "");
    }
    value = to_compute(gen, value, from);
    return LLVMBuildFCmp(gen->builder, LLVMRealUNE, value, LLVMConstNull(LLVMTypeOf(value)), "");
}

Value emit_convert(Gen *gen, Value value, Type from, Type to) {
    if (from == to) return value;
    if (to == TYPE_BOOL) return to_bool(gen, value, from);
    bool from_float = type_is_float(from), to_float = type_is_float(to);
    if (from_float && to_float) return float_to_float(gen, value, from, to);
    if (from_float) return float_to_int(gen, value, from, to);
    if (to_float) return int_to_float(gen, value, from, to);
    return int_to_int(gen, value, from, to);
}
