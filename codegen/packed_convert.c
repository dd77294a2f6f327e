// Small integers and 8-bit floats become 16-bit floats two at a time.
//
// Weights of few bits are converted for the tensor cores: bf16((f32(w[i] & 15) - 8) * f32(scale)), an element each.
// Elements 2 n and 2 n + 1 of a `local` array share a register, and so do those of the array that they come from; so
// each statement computes both, and takes its own. LLVM sees that what the neighbour computes is the same, if it is: if
// not, a statement has only worked for nothing.
//
//     bytes b0 b1 of a register   ->   0 b0 0 b1          one permutation
//     an integer below 2^7        ->   as the last bits of a bf16 that is 2^7: 2^7 plus itself (f16: below 2^10)
//     minus 8                     ->   minus 2^7 + 8, exact
//     times the scale             ->   one multiplication: it rounds as f32's product would be rounded
//
// That is the same value as in f32 where every operand is a number of the narrow type, and one operation alone rounds:
// for the product of two the f32 has all bits; and integers up to 2^8 (2^11) are exact.
#include "codegen/gen.h"
#include <math.h>

typedef struct Pair {
    Value lanes;        // of the narrow type; NULL: it is `offset` alone
    double offset;      // to be added
    double low, high;   // integers between them; low > high: any number of the narrow type
} Pair;

typedef struct PackedConvert {
    Gen *gen;
    Type type;
    double integers;   // up to here all are exact
    int lane;          // of the element that is asked for
    bool paired;       // an operand comes from an array of narrow elements
} PackedConvert;

static const Pair ANY = {.low = 1, .high = 0};

static bool is_integer(Pair p) {
    return p.low <= p.high;
}

static LLVMTypeRef pair_type(const PackedConvert *n) {
    return LLVMVectorType(llvm_value_type(n->gen, n->type), 2);
}

static Value splat(const PackedConvert *n, Value value) {
    Value out = LLVMGetPoison(pair_type(n));
    for (int i = 0; i < 2; i++) out = LLVMBuildInsertElement(n->gen->builder, out, value, const_i32(n->gen, i), "");
    return out;
}

static Value splat_real(const PackedConvert *n, double value) {
    return splat(n, LLVMConstReal(llvm_value_type(n->gen, n->type), value));
}

static Value fma_pair(const PackedConvert *n, Value a, Value b, Value c) {
    const char *name = n->type == TYPE_F16 ? "llvm.nvvm.fma.rn.f16x2" : "llvm.nvvm.fma.rn.bf16x2";
    return CALL(n->gen, name, pair_type(n), a, b, c);
}

static Value all_lanes(const PackedConvert *n, Pair p) {
    if (!p.lanes) return splat_real(n, p.offset);
    return p.offset == 0 ? p.lanes : fma_pair(n, p.lanes, splat_real(n, 1), splat_real(n, p.offset));
}

// ---- integers in the halves of a register ----

// The element and its neighbour, which share a register of an array.
static bool neighbours(PackedConvert *n, const Expr *load, Value *four, int *at) {
    if (load->kind != EXPR_LOAD || load->load.buf->scope != SCOPE_LOCAL) return false;
    RegisterArray *array = register_array(n->gen, load->load.buf);
    if (array->bits != 8 || array->pack == 1) return false;
    int64_t index = register_index(n->gen, load->load.buf, load->load.count, load->load.indices);
    int pack = array->pack;
    *four = LLVMBuildZExt(n->gen->builder, register_get_bits(n->gen, array, index - index % pack, pack * array->bits),
                          n->gen->types.i32, "");
    *at = (int)(index % pack) / 2 * 2;
    if (n->paired && n->lane != index % 2) return false;
    n->lane = (int)(index % 2);
    n->paired = true;
    return true;
}

static Value both_halves(const PackedConvert *n, int64_t value) {
    return const_i32(n->gen, value << 16 | value);
}

// NULL, or integers of 0 .. *high.
static Value integer_pair(PackedConvert *n, const Expr *expr, int64_t *high) {
    LLVMBuilderRef b = n->gen->builder;
    Value four;
    int at;
    if (expr->kind == EXPR_CAST && !type_is_float(expr->type) && type_bits(expr->type) >= 8) {
        Value value = integer_pair(n, expr->operand, high);
        return expr->type == TYPE_I8 && value && *high > INT8_MAX ? NULL : value;   // 200 is -56
    }
    if (expr->type == TYPE_U8 && neighbours(n, expr, &four, &at)) {
        enum { WITH_ZEROS = 0x4140, NEXT = 0x0202 };
        *high = UINT8_MAX;
        return CALL(n->gen, "llvm.nvvm.prmt", n->gen->types.i32, four, const_i32(n->gen, 0),
                    const_i32(n->gen, WITH_ZEROS + (at ? NEXT : 0)));
    }
    if (expr->kind != EXPR_BINARY || expr->binary.b->kind != EXPR_INT) return NULL;
    int64_t by = expr->binary.b->integer;
    bool power = by > 0 && (by & (by - 1)) == 0;
    if (by < 0 || (expr->binary.op != BIN_AND && !(expr->binary.op == BIN_DIV && power))) return NULL;
    Value value = integer_pair(n, expr->binary.a, high);
    if (!value) return NULL;
    if (expr->binary.op == BIN_AND) {
        *high = by < *high ? by : *high;
        return LLVMBuildAnd(b, value, both_halves(n, by & UINT8_MAX), "");
    }
    int shift = 0;
    while ((int64_t)1 << shift < by) shift++;
    *high >>= shift;
    return LLVMBuildAnd(b, LLVMBuildLShr(b, value, const_i32(n->gen, shift), ""), both_halves(n, UINT8_MAX >> shift),
                        "");
}

// value | bits. With the mask of `value` it is one instruction; ptxas makes two of them, since there are two constants.
static Value place_bits(const PackedConvert *n, Value value, Value bits) {
    if (LLVMIsAInstruction(value) == NULL || LLVMGetInstructionOpcode(value) != LLVMAnd)
        return LLVMBuildOr(n->gen->builder, value, bits, "");
    Value args[] = {LLVMGetOperand(value, 0), LLVMGetOperand(value, 1), bits};
    Value placed =
        build_pure_asm(n->gen, "lop3.b32 $0, $1, $2, $3, 0xea;", "=r,r,n,n", n->gen->types.i32, COUNT_OF(args), args);
    mark_call(n->gen, placed, "memory");   // none: so that equal ones are one
    return placed;
}

static bool from_integers(PackedConvert *n, const Expr *expr, Pair *out) {
    int64_t high, one = n->type == TYPE_F16 ? 0x6400 : 0x4300;   // the float whose last bit is 1
    Value value = integer_pair(n, expr, &high);
    double base = n->integers / 2;
    if (!value || (double)high >= base) return false;
    Value placed = place_bits(n, value, both_halves(n, one));
    *out = (Pair){build_bitcast(n->gen, placed, pair_type(n)), -base, 0, (double)high};
    return true;
}

// ---- expressions of f32 whose value the narrow type has ----

static bool exact(PackedConvert *n, Expr *expr, Pair *out);

// Integers plus a constant.
static bool exact_sum(PackedConvert *n, Expr *expr, Pair *out) {
    bool minus = expr->binary.op == BIN_SUB;
    Expr *constant = expr->binary.b;
    if (!exact(n, expr->binary.a, out) || !is_integer(*out) || constant->kind != EXPR_FLOAT) return false;
    double by = minus ? -constant->real : constant->real;
    out->offset += by;
    out->low += by;
    out->high += by;
    return by == floor(by) && fabs(out->offset) <= n->integers && out->low >= -n->integers && out->high <= n->integers;
}

static bool exact(PackedConvert *n, Expr *expr, Pair *out) {
    Value four;
    int at;
    *out = ANY;
    if (expr->kind == EXPR_BINARY && (expr->binary.op == BIN_ADD || expr->binary.op == BIN_SUB))
        return exact_sum(n, expr, out);
    if (expr->kind != EXPR_CAST) return false;
    Expr *from = expr->operand;
    if (!type_is_float(from->type)) return from_integers(n, from, out);
    if (from->type == n->type && (from->kind == EXPR_LOAD || from->kind == EXPR_VAR)) {
        out->lanes = splat(n, emit_expr(n->gen, from));
        return true;
    }
    bool fp8 = from->type == TYPE_E4M3 || from->type == TYPE_E5M2;
    if (!fp8 || !neighbours(n, from, &four, &at)) return false;
    out->lanes = convert_fp8_pair(n->gen, four, at, from->type, n->type);
    return out->lanes != NULL;
}

static Value packed_value(PackedConvert *n, Expr *expr) {
    Pair a, b;
    if (exact(n, expr, &a)) return all_lanes(n, a);
    if (expr->kind != EXPR_BINARY || expr->binary.op != BIN_MUL) return NULL;
    if (!exact(n, expr->binary.a, &a) || !exact(n, expr->binary.b, &b)) return NULL;
    return fma_pair(n, all_lanes(n, a), all_lanes(n, b), splat_real(n, -0.0));
}

Value emit_packed_convert(Gen *gen, Expr *cast) {
    if (cast->type != TYPE_F16 && cast->type != TYPE_BF16) return NULL;
    PackedConvert n = {.gen = gen, .type = cast->type, .integers = cast->type == TYPE_F16 ? 2048 : 256};
    Value pair = type_bits(cast->operand->type) == 8 ? NULL : packed_value(&n, cast->operand);
    Pair direct;
    if (type_bits(cast->operand->type) == 8 && exact(&n, cast, &direct)) pair = all_lanes(&n, direct);
    if (!pair || !n.paired) return NULL;
    return LLVMBuildExtractElement(gen->builder, pair, const_i32(gen, n.lane), "");
}
