// The scalar functions of the op table, without a device library.
//
// f32 uses the machine's approximations where they are good enough for the language's rules (2 ulp for exp2, sqrt and
// rsqrt, 2^-11 for tanh, exp through exp2) and short series elsewhere: lg2.approx has an absolute error near 1,
// sin.approx everywhere. f64 has no approximations on the machine; its functions are argument reduction and series,
// within a few ulp.
//
//     log     x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f), z = s^2:
//             log(m) = 2 atanh(s) = f - s (f - R),  R = 2 z (1/3 + z/5 + z^2/7 + ...)
//     exp     x = k ln2 + r, |r| <= ln2 / 2:  2^k (1 + r + r^2/2! + ...)
//     sin     x = k pi/2 + r, |r| <= pi/4, pi/2 in three parts, so that r is exact; the series of sin or cos by k % 4
//
// Limits: arguments of sin and cos beyond 2^45 lose accuracy; those of f64 beyond 2^30.
#include "codegen/gen.h"
#include <math.h>

#define LOG2E 1.44269504088896340736
#define LN2 0.69314718055994530942
#define LN2_HIGH 0x1.62e42fefa38p-1   // few enough bits that k * LN2_HIGH is exact
#define LN2_LOW 0x1.ef35793c7673p-45
#define TWO_OVER_PI 0.63661977236758134308

// ---- small builders; all work on f32 or f64 by the type of their operands ----

static Value real(Gen *gen, Value like, double value) {
    (void)gen;
    return LLVMConstReal(LLVMTypeOf(like), value);
}

static bool is_f64(Gen *gen, Value x) {
    return LLVMTypeOf(x) == gen->types.f64;
}

static Value mul(Gen *gen, Value a, Value b) {
    return LLVMBuildFMul(gen->builder, a, b, "");
}

static Value add(Gen *gen, Value a, Value b) {
    return LLVMBuildFAdd(gen->builder, a, b, "");
}

static Value sub(Gen *gen, Value a, Value b) {
    return LLVMBuildFSub(gen->builder, a, b, "");
}

static Value choose(Gen *gen, Value condition, Value a, Value b) {
    return LLVMBuildSelect(gen->builder, condition, a, b, "");
}

static Value fma_of(Gen *gen, Value a, Value b, Value c) {
    return CALL(gen, is_f64(gen, a) ? "llvm.fma.f64" : "llvm.fma.f32", LLVMTypeOf(a), a, b, c);
}

static Value call_float(Gen *gen, const char *f32_name, const char *f64_name, Value x) {
    return CALL(gen, is_f64(gen, x) ? f64_name : f32_name, LLVMTypeOf(x), x);
}

static Value fabs_of(Gen *gen, Value x) {
    return call_float(gen, "llvm.fabs.f32", "llvm.fabs.f64", x);
}

static Value rint_of(Gen *gen, Value x) {
    return call_float(gen, "llvm.rint.f32", "llvm.rint.f64", x);
}

static Value sqrt_exact(Gen *gen, Value x) {
    return call_float(gen, "llvm.sqrt.f32", "llvm.sqrt.f64", x);
}

static Value less(Gen *gen, Value a, Value b) {
    return LLVMBuildFCmp(gen->builder, LLVMRealOLT, a, b, "");
}

// c[0] + c[1] x + c[2] x^2 + ...
static Value polynomial(Gen *gen, Value x, int count, const double *c) {
    Value sum = real(gen, x, c[count - 1]);
    for (int i = count - 2; i >= 0; i--) sum = fma_of(gen, sum, x, real(gen, x, c[i]));
    return sum;
}

// sum of sign^i x^i / (first + 2 i)!, the tails of sin, cos and sinh
static Value factorial_series(Gen *gen, Value x, int first, int step, double sign, int count) {
    double c[20], factorial = 1;
    int n = 1;
    for (int i = 0; i < count; i++) {
        for (; n <= first + step * i; n++) factorial *= n;
        c[i] = (i % 2 ? sign : 1) / factorial;
    }
    return polynomial(gen, x, count, c);
}

// ---- exponentials ----

// y 2^k for integral k in [-2040, 2040], in two steps so that results near the ends of the range come out.
static Value scale_f64(Gen *gen, Value y, Value k) {
    LLVMBuilderRef b = gen->builder;
    Value n = CALL(gen, "llvm.nvvm.d2i.rz", gen->types.i32, k);
    Value half = LLVMBuildAShr(b, n, const_i32(gen, 1), "");
    Value pieces[] = {half, LLVMBuildSub(b, n, half, "")};
    for (int i = 0; i < 2; i++) {
        Value biased = LLVMBuildSExt(b, LLVMBuildAdd(b, pieces[i], const_i32(gen, 1023), ""), gen->types.i64, "");
        y = mul(gen, y, build_bitcast(gen, LLVMBuildShl(b, biased, const_i64(gen, 52), ""), gen->types.f64));
    }
    return y;
}

static Value clamp_f64(Gen *gen, Value x, double limit) {   // NaN stays
    Value low = real(gen, x, -limit), high = real(gen, x, limit);
    x = choose(gen, less(gen, x, low), low, x);
    return choose(gen, less(gen, high, x), high, x);
}

static Value exp_f64(Gen *gen, Value x) {
    x = clamp_f64(gen, x, 1400);
    Value k = rint_of(gen, mul(gen, x, real(gen, x, LOG2E)));
    Value minus_k = LLVMBuildFNeg(gen->builder, k, "");
    Value r = fma_of(gen, minus_k, real(gen, x, LN2_HIGH), x);
    r = fma_of(gen, minus_k, real(gen, x, LN2_LOW), r);
    return scale_f64(gen, factorial_series(gen, r, 0, 1, 1, 14), k);
}

static Value exp2_f64(Gen *gen, Value x) {
    x = clamp_f64(gen, x, 2000);
    Value k = rint_of(gen, x);
    Value r = mul(gen, sub(gen, x, k), real(gen, x, LN2));
    return scale_f64(gen, factorial_series(gen, r, 0, 1, 1, 14), k);
}

// One instruction with .ftz, four without: results below the smallest normal number are 0.
static Value exp2_of(Gen *gen, Value x) {
    return is_f64(gen, x) ? exp2_f64(gen, x) : CALL(gen, "llvm.nvvm.ex2.approx.ftz.f32", gen->types.f32, x);
}

static Value exp_of(Gen *gen, Value x) {
    return is_f64(gen, x) ? exp_f64(gen, x) : exp2_of(gen, mul(gen, x, real(gen, x, LOG2E)));
}

// f64: small arguments by sinh / sqrt(1 + sinh^2), the others by 1 - 2 / (e^2x + 1).
static Value tanh_of(Gen *gen, Value x) {
    LLVMBuilderRef b = gen->builder;
    if (!is_f64(gen, x)) {
        Value call = CALL(gen, "llvm.tanh.f32", gen->types.f32, x);
        LLVMSetFastMathFlags(call, LLVMFastMathApproxFunc);
        return call;
    }
    Value one = real(gen, x, 1), size = fabs_of(gen, x);
    Value z = mul(gen, x, x);
    Value sinh = mul(gen, x, factorial_series(gen, z, 1, 2, 1, 8));
    Value small = LLVMBuildFDiv(b, sinh, sqrt_exact(gen, fma_of(gen, sinh, sinh, one)), "");
    Value e = exp_f64(gen, mul(gen, size, real(gen, x, 2)));
    Value large = sub(gen, one, LLVMBuildFDiv(b, real(gen, x, 2), add(gen, e, one), ""));
    large = CALL(gen, "llvm.copysign.f64", gen->types.f64, large, x);
    return choose(gen, less(gen, size, real(gen, x, 0.5)), small, large);
}

// ---- logarithms ----

typedef struct FloatShape {
    LLVMTypeRef integer;
    int mantissa, bias, terms;
    double smallest;   // normal number
} FloatShape;

static FloatShape shape_of(Gen *gen, Value x) {
    if (is_f64(gen, x)) return (FloatShape){gen->types.i64, 52, 1023, 12, 0x1p-1022};
    return (FloatShape){gen->types.i32, 23, 127, 4, 0x1p-126};
}

// log(1 + f) by the series of atanh.
static Value log_near_one(Gen *gen, Value f, int terms) {
    double c[12];
    for (int i = 0; i < terms; i++) c[i] = 2.0 / (2 * i + 3);
    Value denominator = add(gen, f, real(gen, f, 2));
    Value s = is_f64(gen, f) ? LLVMBuildFDiv(gen->builder, f, denominator, "") : build_quotient(gen, f, denominator);
    Value z = mul(gen, s, s);
    Value r = mul(gen, z, polynomial(gen, z, terms, c));
    return sub(gen, f, mul(gen, s, sub(gen, f, r)));
}

// The logarithm to a base: `scale` is 1 / ln(base), `unit` the logarithm of 2.
static Value log_of(Gen *gen, Value x, double scale, double unit) {
    LLVMBuilderRef b = gen->builder;
    FloatShape shape = shape_of(gen, x);
    Value is_tiny = less(gen, x, real(gen, x, shape.smallest));
    Value grown = choose(gen, is_tiny, mul(gen, x, real(gen, x, ldexp(1, shape.mantissa + 1))), x);
    Value bits = build_bitcast(gen, grown, shape.integer);
    // The exponent of m's binade is taken such that m lies in [sqrt(1/2), sqrt(2)).
    Value root = build_bitcast(gen, real(gen, x, sqrt(0.5)), shape.integer);
    Value shift = LLVMConstInt(shape.integer, (unsigned)shape.mantissa, 0);
    Value k = LLVMBuildAShr(b, LLVMBuildSub(b, bits, root, ""), shift, "");
    Value m = build_bitcast(gen, LLVMBuildSub(b, bits, LLVMBuildShl(b, k, shift, ""), ""), LLVMTypeOf(x));
    Value exponent = LLVMBuildSIToFP(b, k, LLVMTypeOf(x), "");
    Value adjusted = sub(gen, exponent, real(gen, x, shape.mantissa + 1));
    exponent = choose(gen, is_tiny, adjusted, exponent);
    Value log = log_near_one(gen, sub(gen, m, real(gen, x, 1)), shape.terms);
    Value result =
        scale == 1 ? fma_of(gen, exponent, real(gen, x, unit), log) : fma_of(gen, log, real(gen, x, scale), exponent);
    Value is_zero = LLVMBuildFCmp(b, LLVMRealOEQ, x, real(gen, x, 0), "");
    Value is_finite = less(gen, x, real(gen, x, INFINITY));
    Value is_valid = LLVMBuildFCmp(b, LLVMRealOGE, x, real(gen, x, 0), "");
    result = choose(gen, is_finite, result, x);   // infinity, NaN
    result = choose(gen, is_zero, real(gen, x, -INFINITY), result);
    return choose(gen, is_valid, result, real(gen, x, NAN));
}

// ---- sine and cosine ----

// x - k pi/2 with k in *quadrant.
static Value reduce_angle(Gen *gen, Value x, int count, const double *pieces, Value *quadrant) {
    Value k = rint_of(gen, mul(gen, x, real(gen, x, TWO_OVER_PI)));
    *quadrant = is_f64(gen, x) ? LLVMBuildTrunc(gen->builder, CALL(gen, "llvm.nvvm.d2ll.rz", gen->types.i64, k),
                                                gen->types.i32, "")
                               : CALL(gen, "llvm.nvvm.f2i.rz", gen->types.i32, k);
    Value minus_k = LLVMBuildFNeg(gen->builder, k, "");
    for (int i = 0; i < count; i++) x = fma_of(gen, minus_k, real(gen, x, pieces[i]), x);
    return x;
}

static Value sine_of_quadrant(Gen *gen, Value r, Value quadrant) {
    LLVMBuilderRef b = gen->builder;
    bool wide = is_f64(gen, r);
    Value z = mul(gen, r, r), one = const_i32(gen, 1), two = const_i32(gen, 2);
    // sin r = r - r z (1/3! - z/5! + ...), cos r = 1 - z (1/2! - z/4! + ...)
    Value sine = fma_of(gen, LLVMBuildFNeg(b, mul(gen, r, z), ""), factorial_series(gen, z, 3, 2, -1, wide ? 8 : 4), r);
    Value cosine =
        fma_of(gen, LLVMBuildFNeg(b, z, ""), factorial_series(gen, z, 2, 2, -1, wide ? 9 : 5), real(gen, r, 1));
    Value odd = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, quadrant, one, ""), const_i32(gen, 0), "");
    Value negative = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, quadrant, two, ""), const_i32(gen, 0), "");
    Value value = choose(gen, odd, cosine, sine);
    return choose(gen, negative, LLVMBuildFNeg(b, value, ""), value);
}

static const double pi_half_f64[] = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};

static Value sine_f64(Gen *gen, Value x, int ahead) {
    Value quadrant, r = reduce_angle(gen, x, 3, pi_half_f64, &quadrant);
    return sine_of_quadrant(gen, r, LLVMBuildAdd(gen->builder, quadrant, const_i32(gen, ahead), ""));
}

typedef struct SineCall {
    Value x, slot;
    int ahead;
} SineCall;

static void sine_of_large(Gen *gen, void *user) {
    SineCall *call = user;
    Value wide = sine_f64(gen, LLVMBuildFPExt(gen->builder, call->x, gen->types.f64, ""), call->ahead);
    LLVMBuildStore(gen->builder, LLVMBuildFPTrunc(gen->builder, wide, gen->types.f32, ""), call->slot);
}

// sin(x + ahead pi/2). In f32 the parts of pi/2 serve to 2^15; larger arguments branch to f64.
static Value sine_of(Gen *gen, Value x, int ahead) {
    static const double pieces[] = {0x1.921fb6p0, -0x1.777a5cp-25, -0x1.ee59dap-50};
    if (is_f64(gen, x)) return sine_f64(gen, x, ahead);
    Value quadrant, r = reduce_angle(gen, x, 3, pieces, &quadrant);
    Value value = sine_of_quadrant(gen, r, LLVMBuildAdd(gen->builder, quadrant, const_i32(gen, ahead), ""));
    SineCall call = {x, stack_slot(gen, gen->types.f32, "sine"), ahead};
    LLVMBuildStore(gen->builder, value, call.slot);
    Value is_large = LLVMBuildFCmp(gen->builder, LLVMRealOGT, fabs_of(gen, x), real(gen, x, 0x1p15), "");
    emit_if_then(gen, is_large, sine_of_large, &call);
    return LLVMBuildLoad2(gen->builder, gen->types.f32, call.slot, "");
}

// ---- roots ----

static Value sqrt_of(Gen *gen, Value x) {
    if (gen->kernel.exact || is_f64(gen, x)) return sqrt_exact(gen, x);
    return CALL(gen, "llvm.nvvm.sqrt.approx.f", gen->types.f32, x);
}

static Value rsqrt_of(Gen *gen, Value x) {
    if (gen->kernel.exact || is_f64(gen, x))
        return LLVMBuildFDiv(gen->builder, real(gen, x, 1), sqrt_exact(gen, x), "");
    return CALL(gen, "llvm.nvvm.rsqrt.approx.f", gen->types.f32, x);
}

// (There is no maximum of f64 in which NaN stays.)
static Value relu_of(Gen *gen, Value x) {
    Value zero = real(gen, x, 0);
    if (!is_f64(gen, x)) return CALL(gen, "llvm.maximum.f32", gen->types.f32, x, zero);
    return choose(gen, LLVMBuildFCmp(gen->builder, LLVMRealOLE, x, zero, ""), zero, x);
}

// ---- functions of one float ----

static Value float_function(Gen *gen, OpId op, Value x) {
    switch (op) {
    case OP_ABS: return fabs_of(gen, x);
    case OP_EXP: return exp_of(gen, x);
    case OP_EXP2: return exp2_of(gen, x);
    case OP_LOG: return log_of(gen, x, 1, LN2);
    case OP_LOG2: return log_of(gen, x, LOG2E, 1);
    case OP_SQRT: return sqrt_of(gen, x);
    case OP_RSQRT: return rsqrt_of(gen, x);
    case OP_TANH: return tanh_of(gen, x);
    case OP_SIN: return sine_of(gen, x, 0);
    case OP_COS: return sine_of(gen, x, 1);
    case OP_FLOOR: return call_float(gen, "llvm.floor.f32", "llvm.floor.f64", x);
    case OP_CEIL: return call_float(gen, "llvm.ceil.f32", "llvm.ceil.f64", x);
    case OP_RELU: return relu_of(gen, x);
    case OP_ROUND: return rint_of(gen, x);
    default: break;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "no lowering for %s", op_info(op)->text);
}

static Value emit_float_function(Gen *gen, Expr *call) {
    Expr *operand = ARG(call, EXP, x).value;
    Type type = type_compute(call->type);
    Value x = emit_expr(gen, operand);
    x = type_is_float(operand->type) ? to_compute(gen, x, operand->type) : emit_convert(gen, x, operand->type, type);
    return from_compute(gen, float_function(gen, call->call.op, x), call->type);
}

// ---- functions of two ----

static Value int_extreme(Gen *gen, bool is_max, bool is_signed, Value a, Value b) {
    static const char *const names[2][2] = {{"umin", "umax"}, {"smin", "smax"}};
    unsigned bits = LLVMGetIntTypeWidth(LLVMTypeOf(a));
    char *name = arena_printf(gen->arena, "llvm.%s.i%u", names[is_signed][is_max], bits);
    return CALL(gen, name, LLVMTypeOf(a), a, b);
}

// min and max of floats: a NaN loses against a number, and -0 is less than 0 (IEEE 754-2019, minimumNumber).
static Value float_extreme(Gen *gen, bool is_max, Type type, Value a, Value b) {
    a = to_compute(gen, a, type);
    b = to_compute(gen, b, type);
    const char *f32_name = is_max ? "llvm.maximumnum.f32" : "llvm.minimumnum.f32";
    const char *f64_name = is_max ? "llvm.maximumnum.f64" : "llvm.minimumnum.f64";
    Value result = CALL(gen, is_f64(gen, a) ? f64_name : f32_name, LLVMTypeOf(a), a, b);
    return from_compute(gen, result, type);
}

static Value emit_extreme(Gen *gen, Expr *call) {
    bool is_max = call->call.op == OP_MAX;
    Expr *a = ARG(call, MIN, a).value, *b = ARG(call, MIN, b).value;
    Value left = emit_index(gen, a), right = emit_index(gen, b);
    if (type_is_float(call->type)) return float_extreme(gen, is_max, call->type, left, right);
    if (call->type != TYPE_I64) return int_extreme(gen, is_max, type_kind(call->type) == KIND_INT, left, right);
    Known known_a = known_of(gen, a), known_b = known_of(gen, b);
    int bits = known_a.narrow && known_b.narrow ? 32 : 64;
    left = fit_bits(gen, left, bits, known_a.nonnegative);
    right = fit_bits(gen, right, bits, known_b.nonnegative);
    Value result = int_extreme(gen, is_max, true, left, right);
    return known_of(gen, call).narrow ? fit_bits(gen, result, 32, false) : result;
}

static Value ceildiv_unsigned(Gen *gen, Value a, Value b) {
    Value quotient = LLVMBuildUDiv(gen->builder, a, b, "");
    Value more = LLVMBuildICmp(gen->builder, LLVMIntNE, LLVMBuildMul(gen->builder, quotient, b, ""), a, "");
    return LLVMBuildAdd(gen->builder, quotient, LLVMBuildZExt(gen->builder, more, LLVMTypeOf(a), ""), "");
}

// Of non-negative integers, so that of signed types unsigned arithmetic has room for a + b - 1.
static Value emit_ceildiv(Gen *gen, Expr *call) {
    LLVMBuilderRef builder = gen->builder;
    Expr *a = ARG(call, CEILDIV, a).value, *b = ARG(call, CEILDIV, b).value;
    Value left = emit_index(gen, a), right = emit_index(gen, b);
    if (call->type == TYPE_I64) {
        int bits = known_of(gen, a).narrow && known_of(gen, b).narrow ? 32 : 64;
        left = fit_bits(gen, left, bits, true);
        right = fit_bits(gen, right, bits, true);
    }
    LLVMTypeRef type = LLVMTypeOf(right);
    Value one = LLVMConstInt(type, 1, 0);
    if (!LLVMIsAConstantInt(right)) {
        Value is_zero = LLVMBuildICmp(builder, LLVMIntEQ, right, LLVMConstNull(type), "");
        right = choose(gen, is_zero, one, right);
    }
    if (type_kind(call->type) == KIND_UINT) return ceildiv_unsigned(gen, left, right);
    Value up = LLVMBuildAdd(builder, left, LLVMBuildSub(builder, right, one, ""), "");
    Value result = LLVMBuildUDiv(builder, up, right, "");
    return call->type == TYPE_I64 && known_of(gen, call).narrow ? fit_bits(gen, result, 32, true) : result;
}

static Value emit_fma(Gen *gen, Expr *call) {
    Value v[3];
    for (int i = 0; i < 3; i++) v[i] = emit_expr(gen, call->call.args[i].value);
    if (!type_is_float(call->type)) {
        return LLVMBuildAdd(gen->builder, LLVMBuildMul(gen->builder, v[0], v[1], ""), v[2], "");
    }
    for (int i = 0; i < 3; i++) v[i] = to_compute(gen, v[i], call->type);
    return from_compute(gen, fma_of(gen, v[0], v[1], v[2]), call->type);
}

static Value emit_int_abs(Gen *gen, Expr *call) {
    Value x = emit_expr(gen, ARG(call, ABS, x).value);
    if (type_kind(call->type) != KIND_INT) return x;
    LLVMTypeRef type = LLVMTypeOf(x);
    unsigned bits = LLVMGetIntTypeWidth(type);
    // ptxas 13.0 takes `abs.s16` of -32768 for 32768 where the result is widened. LLVM makes abs.s16 of every other form.
    if (bits == 16)
        return build_asm(
            gen, "{\n\t.reg .s32 wide;\n\tcvt.s32.s16 wide, $1;\n\tabs.s32 wide, wide;\n\tcvt.u16.u32 $0, wide;\n\t}",
            "=h,h", type, 1, &x);
    return CALL(gen, arena_printf(gen->arena, "llvm.abs.i%u", bits), type, x, LLVMConstInt(gen->types.i1, 0, 0));
}

static Value emit_exact(Gen *gen, Expr *call) {
    bool outer = gen->kernel.exact;
    gen->kernel.exact = true;
    Value value = emit_expr(gen, ARG(call, IEEE, x).value);
    gen->kernel.exact = outer;
    return value;
}

static Value emit_aligned(Gen *gen, Expr *call) {
    Value base = tensor_base(gen, ARG(call, ALIGNED, tensor).region->buf);
    Value address = LLVMBuildPtrToInt(gen->builder, base, gen->types.i64, "");
    Value beyond = LLVMBuildURem(gen->builder, address, const_i64(gen, ARG(call, ALIGNED, n).value->integer), "");
    return LLVMBuildICmp(gen->builder, LLVMIntEQ, beyond, const_i64(gen, 0), "");
}

// A kernel does not see how many multiprocessors the launch counted. A persistent grid of min(tiles, sms()) CTAs
// strides by that same expression, whose value is the number of CTAs; a bare sms() is the number of multiprocessor
// identifiers, which is not below that of multiprocessors.
static Value emit_launched(Gen *gen, const char *name) {
    return call_named(gen, name, gen->types.i32, 0, NULL);
}

// Of the launch's shape the logarithms are a parameter, a byte each: a division by a power of two is a shift then, and what special
// registers say of the cluster lies in constants that no cache holds when a kernel begins.
static Value emit_cluster_extent(Gen *gen, int64_t name) {
    enum { BITS = 8 };
    Value log = name == 0 ? LLVMBuildAnd(gen->builder, gen->cluster.logs, const_i32(gen, (1 << BITS) - 1), "")
                          : LLVMBuildLShr(gen->builder, gen->cluster.logs, const_i32(gen, BITS), "");
    return LLVMBuildShl(gen->builder, const_i32(gen, 1), log, "");
}

static bool is_number_of_blocks(Gen *gen, const Expr *call) {
    return gen->kernel.grid_extent->kind == EXPR_CALL && expr_equal(call, gen->kernel.grid_extent);
}

Value emit_math(Gen *gen, Expr *call) {
    if (is_number_of_blocks(gen, call)) {
        Value blocks = emit_launched(gen, "llvm.nvvm.read.ptx.sreg.nctaid.x");
        return gen->cluster.ctas > 1 ? LLVMBuildUDiv(gen->builder, blocks, const_i32(gen, gen->cluster.ctas), "")
                                     : blocks;
    }
    switch (call->call.op) {
    case OP_MIN:
    case OP_MAX: return emit_extreme(gen, call);
    case OP_CEILDIV: return emit_ceildiv(gen, call);
    case OP_FMA: return emit_fma(gen, call);
    case OP_IEEE: return emit_exact(gen, call);
    case OP_CLUSTER_EXTENT: return emit_cluster_extent(gen, ARG(call, CLUSTER_EXTENT, name).value->integer);
    case OP_SMS: return emit_launched(gen, "llvm.nvvm.read.ptx.sreg.nsmid");
    case OP_ALIGNED: return emit_aligned(gen, call);
    case OP_ABS:
        if (!type_is_float(call->type)) return emit_int_abs(gen, call);
        return emit_float_function(gen, call);
    default: return emit_float_function(gen, call);
    }
}
