// Expressions. Constant operands fold while building (LLVM's builder does it), so a body whose unrolled iterators are
// bound to constants becomes constants where it should.
#include "codegen/gen.h"
#include "ir/query.h"
#include <math.h>

static Value emit(Gen *gen, Expr *expr);

// ---- laziness ----

// Whether evaluating this where the program does not could go wrong: reading memory out of range, dividing by zero,
// or an operation with effects. `&&`, `||` and `?:` branch over such operands and select between all others.
bool is_lazy(const Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_VAR: return false;
    case EXPR_LOAD:
        if (expr->load.buf->scope != SCOPE_LOCAL) return true;
        return false;
    case EXPR_UNARY: return is_lazy(expr->unary.a);
    case EXPR_BINARY: {
        bool divides = expr->binary.op == BIN_DIV || expr->binary.op == BIN_MOD;
        if (divides && !type_is_float(expr->type) && expr->binary.b->kind != EXPR_INT) return true;
        return is_lazy(expr->binary.a) || is_lazy(expr->binary.b);
    }
    case EXPR_SELECT: return is_lazy(expr->select.condition) || is_lazy(expr->select.yes) || is_lazy(expr->select.no);
    case EXPR_CAST:
    case EXPR_BITCAST: return is_lazy(expr->operand);
    case EXPR_CALL: break;
    }
    if (!op_is_pure(expr->call.op) || expr->call.op == OP_CEILDIV) return true;
    for (int i = 0; i < expr->call.count; i++) {
        if (expr->call.args[i].value && is_lazy(expr->call.args[i].value)) return true;
    }
    return false;
}

// ---- choices ----

typedef struct Choice {
    Value condition;
    Label yes, no, join;
} Choice;

static Value join_values(Gen *gen, Label join, Value a, Label from_a, Value b, Label from_b) {
    go_to(gen, join);
    Value phi = LLVMBuildPhi(gen->builder, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, (Value[]){a, b}, (Label[]){from_a, from_b}, 2);
    return phi;
}

// Both arms in blocks of their own. `yes` or `no` NULL: that arm is the constant given instead.
static Value branch_choice(Gen *gen, Value condition, Expr *yes, Expr *no, Value yes_constant, Value no_constant) {
    Label yes_label = new_label(gen, "yes"), no_label = new_label(gen, "no"), join = new_label(gen, "join");
    LLVMBuildCondBr(gen->builder, condition, yes_label, no_label);
    LLVMPositionBuilderAtEnd(gen->builder, yes_label);
    Value a = yes ? emit_expr(gen, yes) : yes_constant;
    Label from_yes = LLVMGetInsertBlock(gen->builder);
    LLVMBuildBr(gen->builder, join);
    LLVMPositionBuilderAtEnd(gen->builder, no_label);
    Value b = no ? emit_expr(gen, no) : no_constant;
    return join_values(gen, join, a, from_yes, b, LLVMGetInsertBlock(gen->builder));
}

static Value emit_decided(Gen *gen, Expr *expr, Value a) {
    bool is_and = expr->binary.op == BIN_LOGICAL_AND;
    Expr *b = expr->binary.b;
    if (!is_lazy(b)) {
        Value right = emit(gen, b);
        return is_and ? LLVMBuildAnd(gen->builder, a, right, "") : LLVMBuildOr(gen->builder, a, right, "");
    }
    Value decided = LLVMConstInt(gen->types.i1, !is_and, 0);
    return is_and ? branch_choice(gen, a, b, NULL, NULL, decided) : branch_choice(gen, a, NULL, b, decided, NULL);
}

static Value emit_logical(Gen *gen, Expr *expr) {
    bool is_and = expr->binary.op == BIN_LOGICAL_AND;
    Value a = emit(gen, expr->binary.a);
    int64_t constant;
    if (value_const(a, &constant)) return (constant != 0) == is_and ? emit(gen, expr->binary.b) : a;
    gen->kernel.conditions++;
    Value value = emit_decided(gen, expr, a);
    gen->kernel.conditions--;
    return value;
}

static void prepare_load(Gen *gen, Expr *expr) {
    while (expr->kind == EXPR_CAST || expr->kind == EXPR_BITCAST) expr = expr->operand;
    if (expr->kind == EXPR_LOAD) prepare_address(gen, expr->load.buf, expr->load.count, expr->load.indices, expr);
}

static bool is_zero(const Expr *e) {
    return expr_is_int(e, 0) || (e->kind == EXPR_FLOAT && e->real == 0 && !signbit(e->real));
}

// An element of a tensor that nothing writes, or 0, for a register that it shares with others. Over a branch each such load
// would wait for the one before, which the blocks pack into the register: so it is one instruction under a predicate.
static bool is_guarded_load(Gen *gen, const Expr *yes, const Expr *no) {
    if (!gen->kernel.into_registers || yes->kind != EXPR_LOAD || yes->load.buf->scope != SCOPE_GLOBAL) return false;
    for (int i = 0; i < yes->load.count; i++)
        if (is_lazy(yes->load.indices[i])) return false;
    int bits = type_bits(yes->load.buf->type);
    return is_zero(no) && (bits == 8 || bits == 16) && buf_is_constant(yes->load.buf) && !gen->kernel.waits_for_launch;
}

static Value guarded_load(Gen *gen, Value condition, Expr *load) {
    Buf *buf = load->load.buf;
    bool byte = type_bits(buf->type) == 8;
    Value args[] = {LLVMBuildZExt(gen->builder, condition, gen->types.i32, ""),
                    memory_address(gen, buf, load->load.count, load->load.indices, load)};
    const char *text = arena_printf(gen->arena,
                                    "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, $1, 0;\n\tmov.b16 $0, 0;\n\t"
                                    "@p ld.global.nc.%s $0, [$2];\n\t}",
                                    byte ? "u8" : "b16");
    Value value = build_pure_asm(gen, text, "=h,r,l", LLVMInt16TypeInContext(gen->llvm.context), 2, args);
    if (byte) value = LLVMBuildTrunc(gen->builder, value, gen->types.i8, "");
    return from_memory(gen, buf->type, build_bitcast(gen, value, memory_type(gen, buf->type)));
}

static Value emit_choice(Gen *gen, Value condition, Expr *expr) {
    Expr *yes = expr->select.yes, *no = expr->select.no;
    if (is_guarded_load(gen, yes, no)) return guarded_load(gen, condition, yes);
    if (is_lazy(yes) || is_lazy(no)) {
        prepare_load(gen, yes);
        prepare_load(gen, no);
        return branch_choice(gen, condition, yes, no, NULL, NULL);
    }
    Value a = emit(gen, yes), b = emit(gen, no);
    if (expr->type == TYPE_I64) {
        int bits = known_of(gen, yes).narrow && known_of(gen, no).narrow ? 32 : 64;
        a = fit_bits(gen, a, bits, known_of(gen, yes).nonnegative);
        b = fit_bits(gen, b, bits, known_of(gen, no).nonnegative);
    }
    return LLVMBuildSelect(gen->builder, condition, a, b, "");
}

static Value emit_select(Gen *gen, Expr *expr) {
    Value condition = emit(gen, expr->select.condition);
    int64_t constant;
    if (value_const(condition, &constant)) return emit(gen, constant ? expr->select.yes : expr->select.no);
    gen->kernel.conditions++;
    Value value = emit_choice(gen, condition, expr);
    gen->kernel.conditions--;
    return value;
}

// ---- integers ----

// A divisor that may be zero (an error of the program) must not let LLVM conclude that it is not; -1 overflows.
static Value safe_divisor(Gen *gen, Value divisor) {
    int64_t constant;
    if (value_const(divisor, &constant) && constant) return divisor;
    Value zero = LLVMConstNull(LLVMTypeOf(divisor));
    Value is_zero = LLVMBuildICmp(gen->builder, LLVMIntEQ, divisor, zero, "");
    return LLVMBuildSelect(gen->builder, is_zero, LLVMConstInt(LLVMTypeOf(divisor), 1, 0), divisor, "");
}

static Value divide(Gen *gen, bool is_mod, bool is_unsigned, Value a, Value b) {
    LLVMBuilderRef builder = gen->builder;
    if (is_unsigned) return is_mod ? LLVMBuildURem(builder, a, b, "") : LLVMBuildUDiv(builder, a, b, "");
    if (LLVMIsAConstantInt(b) && LLVMConstIntGetSExtValue(b) != -1) {
        return is_mod ? LLVMBuildSRem(builder, a, b, "") : LLVMBuildSDiv(builder, a, b, "");
    }
    LLVMTypeRef type = LLVMTypeOf(b);
    Value is_minus_one = LLVMBuildICmp(builder, LLVMIntEQ, b, LLVMConstAllOnes(type), "");
    Value divisor = LLVMBuildSelect(builder, is_minus_one, LLVMConstInt(type, 1, 0), b, "");
    Value result = is_mod ? LLVMBuildSRem(builder, a, divisor, "") : LLVMBuildSDiv(builder, a, divisor, "");
    if (is_mod) return result;   // a % 1 == a % -1 == 0
    return LLVMBuildSelect(builder, is_minus_one, LLVMBuildNeg(builder, a, ""), result, "");
}

// Bits shifted beyond the type's width are gone: amounts are not taken modulo the width.
static Value shift(Gen *gen, BinaryOp op, bool is_unsigned, Value a, Value amount) {
    LLVMBuilderRef b = gen->builder;
    LLVMTypeRef type = LLVMTypeOf(a);
    unsigned bits = LLVMGetIntTypeWidth(type);
    Value limit = LLVMConstInt(LLVMTypeOf(amount), bits, 0);
    Value inside = LLVMBuildICmp(b, LLVMIntULT, amount, limit, "");
    Value last = LLVMConstInt(LLVMTypeOf(amount), bits - 1, 0);
    amount = LLVMBuildIntCast2(b, LLVMBuildSelect(b, inside, amount, last, ""), type, 0, "");
    if (op == BIN_SHR && !is_unsigned) return LLVMBuildAShr(b, a, amount, "");
    Value shifted = op == BIN_SHL ? LLVMBuildShl(b, a, amount, "") : LLVMBuildLShr(b, a, amount, "");
    return LLVMBuildSelect(b, inside, shifted, LLVMConstNull(type), "");
}

static Value build_int(Gen *gen, BinaryOp op, bool is_unsigned, Value a, Value b) {
    LLVMBuilderRef builder = gen->builder;
    switch (op) {
    case BIN_ADD: return LLVMBuildAdd(builder, a, b, "");
    case BIN_SUB: return LLVMBuildSub(builder, a, b, "");
    case BIN_MUL: return LLVMBuildMul(builder, a, b, "");
    case BIN_DIV:
    case BIN_MOD: return divide(gen, op == BIN_MOD, is_unsigned, a, safe_divisor(gen, b));
    case BIN_AND: return LLVMBuildAnd(builder, a, b, "");
    case BIN_OR: return LLVMBuildOr(builder, a, b, "");
    case BIN_XOR: return LLVMBuildXor(builder, a, b, "");
    case BIN_SHL:
    case BIN_SHR: return shift(gen, op, is_unsigned, a, b);
    default: break;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "integer operation %d", op);
}

// What the ranges prove, told to LLVM: it lets constants be taken out of sums into the offset of a load.
static void mark_no_wrap(Value value, BinaryOp op, bool nonnegative) {
    if (!LLVMIsAInstruction(value) || (op != BIN_ADD && op != BIN_SUB && op != BIN_MUL)) return;
    LLVMSetNSW(value, 1);
    if (nonnegative) LLVMSetNUW(value, 1);
}

// x / y and x % y for 0 <= x < 2^31 and 0 <= y: of all larger divisors 2^32 - 1 gives the same.
static Value divide_small(Gen *gen, bool is_mod, Expr *a, Expr *b) {
    Value divisor =
        CALL(gen, "llvm.umin.i64", gen->types.i64, fit_bits(gen, emit(gen, b), 64, true), const_i64(gen, UINT32_MAX));
    divisor = safe_divisor(gen, fit_bits(gen, divisor, 32, true));
    return divide(gen, is_mod, true, fit_bits(gen, emit(gen, a), 32, true), divisor);
}

static bool changes_in_loop(const Expr *e, const void *user) {
    const Gen *gen = user;
    const VarPlace *place = e->kind == EXPR_VAR ? map_get(gen->kernel.vars, e->var) : NULL;
    return e->kind == EXPR_LOAD || (place && (place->in_memory || place->loops == gen->kernel.loops));
}

static bool is_widened(const Expr *e, const void *user) {
    (void)user;
    return e->kind == EXPR_CAST && e->type == TYPE_I64;
}

// A division in 64 bits that every iteration repeats, unless the source asks for 64 bits: `i64(x) * y / z`. (A
// @fallback is for shapes that no other variant serves.)
static void report_wide_division(Gen *gen, const Expr *expr, Known dividend) {
    int64_t constant;
    if (expr->loc.line <= 0 || gen->kernel.loops == 0 || attr_get(gen->kernel.func->attrs, ATTR_FALLBACK)) return;
    if (expr_const(expr->binary.b, &constant) || any_expr(expr->binary.a, is_widened, NULL)) return;
    if (!any_expr(expr, changes_in_loop, gen)) return;
    bool small = dividend.narrow && dividend.nonnegative;
    diag(gen->sink, expr->loc, T_WIDE_DIVISION,
         small ? "its divisor may be negative" : "its dividend may be negative, or 2^31 and more");
}

static Value emit_i64_binary(Gen *gen, Expr *expr) {
    BinaryOp op = expr->binary.op;
    Known known = known_of(gen, expr), a = known_of(gen, expr->binary.a);
    bool is_shift = op == BIN_SHL || op == BIN_SHR;
    Known b = is_shift && expr->binary.b->type != TYPE_I64 ? (Known){false, false} : known_of(gen, expr->binary.b);
    bool narrow = known.narrow && a.narrow && (b.narrow || is_shift), divides = op == BIN_DIV || op == BIN_MOD;
    if (divides && a.narrow && a.nonnegative && b.nonnegative && !b.narrow)
        return divide_small(gen, op == BIN_MOD, expr->binary.a, expr->binary.b);
    if (divides && !narrow) report_wide_division(gen, expr, a);
    Value left = fit_bits(gen, emit(gen, expr->binary.a), narrow ? 32 : 64, a.nonnegative);
    Value right = emit(gen, expr->binary.b);
    if (!is_shift) right = fit_bits(gen, right, narrow ? 32 : 64, b.nonnegative);
    bool nonnegative = a.nonnegative && b.nonnegative;
    bool is_unsigned = is_shift ? a.nonnegative : nonnegative;
    Value result = build_int(gen, op, is_unsigned, left, right);
    if (narrow) mark_no_wrap(result, op, nonnegative && known.nonnegative);
    return known.narrow ? fit_bits(gen, result, 32, false) : result;
}

static LLVMIntPredicate int_predicate(BinaryOp op, bool is_unsigned) {
    switch (op) {
    case BIN_EQ: return LLVMIntEQ;
    case BIN_NE: return LLVMIntNE;
    case BIN_LT: return is_unsigned ? LLVMIntULT : LLVMIntSLT;
    case BIN_LE: return is_unsigned ? LLVMIntULE : LLVMIntSLE;
    case BIN_GT: return is_unsigned ? LLVMIntUGT : LLVMIntSGT;
    default: return is_unsigned ? LLVMIntUGE : LLVMIntSGE;
    }
}

static LLVMRealPredicate float_predicate(BinaryOp op) {
    switch (op) {
    case BIN_EQ: return LLVMRealOEQ;
    case BIN_NE: return LLVMRealUNE;
    case BIN_LT: return LLVMRealOLT;
    case BIN_LE: return LLVMRealOLE;
    case BIN_GT: return LLVMRealOGT;
    default: return LLVMRealOGE;
    }
}

static Value emit_comparison(Gen *gen, Expr *expr) {
    Expr *a = expr->binary.a, *b = expr->binary.b;
    Step step;
    if (emit_step(gen, expr, &step))
        return LLVMBuildICmp(gen->builder, int_predicate(expr->binary.op, false), const_i32(gen, step.constant),
                             step.bound, "");
    Value left = emit(gen, a), right = emit(gen, b);
    if (type_is_float(a->type)) {
        left = to_compute(gen, left, a->type);
        right = to_compute(gen, right, b->type);
        return LLVMBuildFCmp(gen->builder, float_predicate(expr->binary.op), left, right, "");
    }
    if (a->type == TYPE_I64) {
        int bits = known_of(gen, a).narrow && known_of(gen, b).narrow ? 32 : 64;
        left = fit_bits(gen, left, bits, known_of(gen, a).nonnegative);
        right = fit_bits(gen, right, bits, known_of(gen, b).nonnegative);
    }
    bool is_unsigned = type_kind(a->type) == KIND_UINT || a->type == TYPE_BOOL;
    return LLVMBuildICmp(gen->builder, int_predicate(expr->binary.op, is_unsigned), left, right, "");
}

// ---- floats ----

// a / b of f32 within 2 ulp: a times the reciprocal of b, both scaled where that of b would leave the normal numbers.
// What depends on b alone is done once for all that is divided by it: a row of a tile takes two multiplications an
// element, where div.full takes three and their predicates. (PTX ISA, "rcp": 1 ulp, from 2^-126 to 2^126.)
Value build_quotient(Gen *gen, Value a, Value b) {
    Value size = CALL(gen, "llvm.fabs.f32", gen->types.f32, b);
    Value large = LLVMBuildFCmp(gen->builder, LLVMRealOGT, size, const_f32(gen, 0x1p126), "");
    Value small = LLVMBuildFCmp(gen->builder, LLVMRealOLT, size, const_f32(gen, 0x1p-126), "");
    Value scale = LLVMBuildSelect(gen->builder, small, const_f32(gen, 0x1p24), const_f32(gen, 1), "");
    scale = LLVMBuildSelect(gen->builder, large, const_f32(gen, 0x1p-2), scale, "");
    Value inverse = CALL(gen, "llvm.nvvm.rcp.approx.ftz.f", gen->types.f32, LLVMBuildFMul(gen->builder, b, scale, ""));
    return LLVMBuildFMul(gen->builder, LLVMBuildFMul(gen->builder, a, scale, ""), inverse, "");
}

// `/` is exact inside ieee() and for f64. Nothing is contracted.
static Value build_float(Gen *gen, BinaryOp op, Value a, Value b) {
    switch (op) {
    case BIN_ADD: return LLVMBuildFAdd(gen->builder, a, b, "");
    case BIN_SUB: return LLVMBuildFSub(gen->builder, a, b, "");
    case BIN_MUL: return LLVMBuildFMul(gen->builder, a, b, "");
    case BIN_DIV:
        if (gen->kernel.exact || LLVMTypeOf(a) == gen->types.f64) return LLVMBuildFDiv(gen->builder, a, b, "");
        return build_quotient(gen, a, b);
    case BIN_MOD: return LLVMBuildFRem(gen->builder, a, b, "");
    default: break;
    }
    fail_internal(gen->failure, __FILE__, __LINE__, "float operation %d", op);
}

Value emit_float_binary(Gen *gen, BinaryOp op, Type type, Value a, Value b) {
    a = to_compute(gen, a, type);
    b = to_compute(gen, b, type);
    return from_compute(gen, build_float(gen, op, a, b), type);
}

// ---- the rest ----

static Value emit_binary(Gen *gen, Expr *expr) {
    BinaryOp op = expr->binary.op;
    if (op == BIN_LOGICAL_AND || op == BIN_LOGICAL_OR) return emit_logical(gen, expr);
    if (op >= BIN_EQ && op <= BIN_GE) return emit_comparison(gen, expr);
    if (expr->type == TYPE_I64) return emit_i64_binary(gen, expr);
    Value a = emit(gen, expr->binary.a), b = emit(gen, expr->binary.b);
    if (type_is_float(expr->type)) return emit_float_binary(gen, op, expr->type, a, b);
    return build_int(gen, op, type_kind(expr->type) != KIND_INT, a, b);
}

static Value emit_unary(Gen *gen, Expr *expr) {
    Expr *a = expr->unary.a;
    Value value = emit(gen, a);
    if (expr->unary.op != UNARY_NEG) return LLVMBuildNot(gen->builder, value, "");
    if (type_is_float(expr->type)) {
        value = to_compute(gen, value, expr->type);
        return from_compute(gen, LLVMBuildFNeg(gen->builder, value, ""), expr->type);
    }
    if (expr->type == TYPE_I64) {
        Known known = known_of(gen, expr), inner = known_of(gen, a);
        value = fit_bits(gen, value, known.narrow && inner.narrow ? 32 : 64, inner.nonnegative);
    }
    return LLVMBuildNeg(gen->builder, value, "");
}

static Value emit_var(Gen *gen, const Var *var) {
    VarPlace *place = map_get(gen->kernel.vars, var);
    EXPECT(gen->failure, place, "variable '%s' is used before its definition", var->name);
    if (!place->in_memory) return place->value;
    return LLVMBuildLoad2(gen->builder, llvm_value_type(gen, var->type), place->value, "");
}

static Value emit_load(Gen *gen, Expr *expr) {
    Buf *buf = expr->load.buf;
    int count = expr->load.count;
    Expr *const *indices = expr->load.indices;
    if (buf->scope == SCOPE_LOCAL) {
        return register_get(gen, register_array(gen, buf), register_index(gen, buf, count, indices));
    }
    Value address = memory_address(gen, buf, count, indices, expr);
    Value load = LLVMBuildLoad2(gen->builder, memory_type(gen, buf->type), address, "");
    LLVMSetAlignment(load, (unsigned)type_bytes(buf->type));
    mark_read_only(gen, buf, load);
    return from_memory(gen, buf->type, load);
}

static Value emit_cast(Gen *gen, Expr *expr) {
    Expr *from = expr->operand;
    Value narrow = emit_packed_convert(gen, expr);
    if (narrow) return narrow;
    Value value = emit(gen, from);
    if (from->type == TYPE_I64 && !known_of(gen, from).narrow) value = fit_bits(gen, value, 64, false);
    if (expr->type == TYPE_I64 && !type_is_float(from->type)) {   // the value may stay narrow
        if (type_bits(from->type) == 32 && known_of(gen, expr).narrow) return value;
    }
    if (from->type == TYPE_I64 && LLVMTypeOf(value) == gen->types.i32) {
        if (expr->type == TYPE_I64) return value;
        if (type_kind(expr->type) == KIND_UINT && expr->type == TYPE_U64) {
            return fit_bits(gen, value, 64, known_of(gen, from).nonnegative);
        }
        return emit_convert(gen, value, TYPE_I32, expr->type);
    }
    return emit_convert(gen, value, from->type, expr->type);
}

static Value emit(Gen *gen, Expr *expr) {
    switch (expr->kind) {
    case EXPR_INT:
        if (expr->type == TYPE_I64 && known_of(gen, expr).narrow) return const_i32(gen, expr->integer);
        return LLVMConstInt(llvm_value_type(gen, expr->type), (uint64_t)expr->integer, 0);
    case EXPR_FLOAT: {
        Type compute = type_compute(expr->type);
        return from_compute(gen, LLVMConstReal(llvm_value_type(gen, compute), expr->real), expr->type);
    }
    case EXPR_VAR: return emit_var(gen, expr->var);
    case EXPR_LOAD: return emit_load(gen, expr);
    case EXPR_UNARY: return emit_unary(gen, expr);
    case EXPR_BINARY: return emit_binary(gen, expr);
    case EXPR_SELECT: return emit_select(gen, expr);
    case EXPR_CAST: return emit_cast(gen, expr);
    case EXPR_BITCAST: return build_bitcast(gen, emit_expr(gen, expr->operand), llvm_value_type(gen, expr->type));
    case EXPR_CALL: break;
    }
    if (op_is_pure(expr->call.op)) return emit_math(gen, expr);
    return emit_op(gen, &(OpCall){.op = expr->call.op,
                                  .count = expr->call.count,
                                  .args = expr->call.args,
                                  .type = expr->type,
                                  .loc = expr->loc});
}

Value emit_index(Gen *gen, Expr *expr) {
    return emit(gen, expr);
}

Value emit_expr(Gen *gen, Expr *expr) {
    Value value = emit(gen, expr);
    return expr->type == TYPE_I64 ? fit_bits(gen, value, 64, known_of(gen, expr).nonnegative) : value;
}

Value emit_i32(Gen *gen, Expr *expr) {
    Value value = emit(gen, expr);
    bool is_signed = type_kind(expr->type) == KIND_INT;
    return LLVMBuildIntCast2(gen->builder, value, gen->types.i32, is_signed, "");
}
