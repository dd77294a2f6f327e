// Elements of a wider type than those in memory (upcast): one access, where its alignment is known.
//
//     v[..] = u32(s[i, 4 * j]) | u32(s[i, 4 * j + 1]) << 8 | u32(s[i, 4 * j + 2]) << 16 | u32(s[i, 4 * j + 3]) << 24
//  => vload(narrow[0], s[i, 4 * j], 4); recast(joined[0], narrow[0], 1); v[..] = joined[0]
//
//     s[i, 4 * j] = u8(bits); s[i, 4 * j + 1] = u8(bits / 256); ..
//  => joined[0] = bits; recast(narrow[0], joined[0], 4); vstore(s[i, 4 * j], narrow[0], 4)
//
// The elements lie together in a row, and the first at a multiple of their number. Where a choice decides whether they are
// read at all, they are read one by one.
#include "passes/analysis/tile_loop.h"
#include "passes/lower/lower_loop.h"
#include "support/numbers.h"

enum { MOST = 8 };   // elements of a wider one

typedef struct Joined {
    const Expr *loads[MOST];   // by their place, from the lowest bits on
    int64_t count;
} Joined;

static bool is_unsigned(Type type) {
    return type == TYPE_U8 || type == TYPE_U16 || type == TYPE_U32 || type == TYPE_U64;
}

// A term of the sum of shifted elements, whose bits are extended by zeros.
static bool read_term(const Expr *expr, int bits, Joined *out) {
    int64_t shift = 0;
    if (is_binary(expr, BIN_SHL) || is_binary(expr, BIN_MUL)) {   // simplify makes products of shifts
        if (!expr_const(expr->binary.b, &shift) || shift < 1) return false;
        if (expr->binary.op == BIN_MUL && (shift = log2_exact(shift)) < 0) return false;
        expr = expr->binary.a;
    }
    if (expr->kind != EXPR_CAST || !is_unsigned(expr->operand->type)) return false;
    expr = expr->operand->kind == EXPR_BITCAST ? expr->operand->operand : expr->operand;
    if (expr->kind != EXPR_LOAD || type_bits(expr->type) >= bits || expr->type == TYPE_BOOL) return false;
    int64_t own = type_bits(expr->type), at = shift / own;
    if (shift % own || at >= MOST || out->loads[at]) return false;
    out->loads[at] = expr;
    out->count++;
    return true;
}

static bool read_terms(const Expr *expr, int bits, Joined *out) {
    if (!is_binary(expr, BIN_OR)) return read_term(expr, bits, out);
    return read_terms(expr->binary.a, bits, out) && read_terms(expr->binary.b, bits, out);
}

// At a multiple of so many elements; all of them are in the tensor, or none.
static bool is_aligned(Version *version, const Buf *buf, int dims, Expr *const *indices, int64_t count) {
    const Facts *facts = version->lower->facts;
    int last = dims - 1;
    if (buf->scope == SCOPE_SHARED)
        return layout_keeps_runs(buf->layout, count) && multiple_of(facts, indices[last]) % count == 0 &&
               (!buf->stage_dims || layout_size_out(buf->layout) % count == 0);
    if (buf->scope != SCOPE_GLOBAL || !prove_aligned(facts, buf, count * type_bytes(buf->type))) return false;
    if (buf->strides && !expr_is_int(buf->strides[last], 1)) return false;
    for (int d = 0; d < dims; d++) {
        Expr *offset = e_mul(version->arena, indices[d], global_stride(version->arena, buf, d));
        if (multiple_of(facts, simplify_expr(version->arena, facts, offset)) % count) return false;
    }
    return multiple_of(facts, buf->shape[last]) % count == 0;
}

// The place is that of the element so many behind the first.
static bool is_behind(Version *version, int dims, Expr *const *first, Expr *const *indices, int64_t number) {
    for (int d = 0; d < dims - 1; d++)
        if (!expr_equal(first[d], indices[d])) return false;
    Expr *step = lower_simple(version->lower, e_sub(version->arena, indices[dims - 1], first[dims - 1]));
    return expr_is_int(step, number);
}

// Neighbours in a row, in their order, that make up the whole number.
static bool are_neighbours(Version *version, const Joined *joined, int bits) {
    const Expr *first = joined->loads[0];
    if (!first || joined->count * type_bits(first->type) != bits) return false;
    for (int64_t i = 1; i < joined->count; i++) {
        const Expr *load = joined->loads[i];
        if (!load || load->load.buf != first->load.buf || load->load.count != first->load.count) return false;
        if (!is_behind(version, first->load.count, first->load.indices, load->load.indices, i)) return false;
    }
    return is_aligned(version, first->load.buf, first->load.count, first->load.indices, joined->count);
}

static void load_joined(Version *version, const Expr *sum, const Joined *joined, Block *out) {
    Arena *arena = version->arena;
    const Expr *first = joined->loads[0];
    Span loc = version->loop->origin->loc;
    Expr *indices[LAYOUT_MAX_RANK], *zero = e_int(arena, 0), *e;
    for (int d = 0; d < first->load.count; d++) indices[d] = version_expr(version, first->load.indices[d]);
    Buf *narrow = block_local(arena, out, "narrow", first->type, joined->count, loc);
    Buf *whole = block_local(arena, out, "joined", sum->type, 1, loc);
    Expr *guard = guard_of(version, first->load.buf, first->load.count, indices);
    Block *to = out;
    if (guard) {
        Stmt *choice = s_if(arena, guard);
        block_push(arena, out, choice);
        Block *zeros =
            lower_counted(version->lower, LOOP_UNROLL, "e", 0, joined->count, loc, &e, &choice->if_.otherwise);
        block_store1(arena, zeros, narrow, e, e_zero(arena, narrow->type));
        to = &choice->if_.then;
    }
    Region *place = lower_place(version->lower, first->load.buf, first->load.count, indices);
    BLOCK_CALL(arena, to, loc, OP_VLOAD, arg_element(arena, narrow, zero), arg_region(place),
               arg_int(arena, joined->count));
    BLOCK_CALL(arena, out, loc, OP_RECAST, arg_element(arena, whole, zero), arg_element(arena, narrow, zero),
               arg_int(arena, 1));
    map_put(version->temporaries, sum, whole);
}

// Of what is computed in any case.
static void find_joined(Version *version, Expr *expr, Block *out) {
    Joined joined = {0};
    bool sum = is_binary(expr, BIN_OR) && type_is_int(expr->type) && !map_has(version->temporaries, expr);
    int bits = type_bits(expr->type);
    if (sum && read_terms(expr, bits, &joined) && are_neighbours(version, &joined, bits)) {
        load_joined(version, expr, &joined, out);
        return;
    }
    switch (expr->kind) {
    case EXPR_CAST:
    case EXPR_BITCAST: find_joined(version, expr->operand, out); return;
    case EXPR_UNARY: find_joined(version, expr->unary.a, out); return;
    case EXPR_BINARY:
        if (expr->binary.op == BIN_LOGICAL_AND || expr->binary.op == BIN_LOGICAL_OR) return;
        find_joined(version, expr->binary.a, out);
        find_joined(version, expr->binary.b, out);
        return;
    default: return;
    }
}

void load_joined_elements(Version *version, const Stmt *store, Block *out) {
    find_joined(version, store->store.value, out);
}

// ---- stores ----

// The value is the bits from `shift` on of an unsigned number: that number; NULL: it is not.
static Expr *shifted_number(Expr *value, int64_t shift) {
    int64_t by;
    if (value->kind == EXPR_BITCAST) value = value->operand;
    if (value->kind != EXPR_CAST || !is_unsigned(value->type)) return NULL;   // its lowest bits
    value = value->operand;
    if (shift) {
        bool divides = is_binary(value, BIN_DIV);   // simplify makes quotients of shifts
        if ((!divides && !is_binary(value, BIN_SHR)) || !expr_const(value->binary.b, &by) || by < 1) return NULL;
        if ((divides ? log2_exact(by) : by) != shift) return NULL;
        value = value->binary.a;
    }
    return value->kind == EXPR_VAR && is_unsigned(value->type) ? value : NULL;
}

static Expr *stored_number(Version *version, const Block *block, int at, int64_t *count) {
    const Stmt *first = block->items[at];
    bool one = first->kind == STMT_STORE && first->store.buf->type != TYPE_BOOL;
    Expr *number = one && !map_has(version->temporaries, first) ? shifted_number(first->store.value, 0) : NULL;
    if (!number) return NULL;
    int64_t own = type_bits(first->store.buf->type);
    *count = type_bits(number->type) / own;
    if (*count < 2 || at + *count > block->count) return NULL;
    for (int64_t i = 1; i < *count; i++) {
        const Stmt *store = block->items[at + i];
        bool same = store->kind == STMT_STORE && store->store.buf == first->store.buf;
        if (!same || !is_behind(version, first->store.count, first->store.indices, store->store.indices, i))
            return NULL;
        const Expr *of = shifted_number(store->store.value, i * own);
        if (!of || of->var != number->var) return NULL;
    }
    bool aligned = is_aligned(version, first->store.buf, first->store.count, first->store.indices, *count);
    return aligned ? number : NULL;
}

int store_joined_elements(Version *version, const Block *block, int at, Block *out) {
    Arena *arena = version->arena;
    int64_t count;
    Expr *number = stored_number(version, block, at, &count), *zero = e_int(arena, 0), *indices[LAYOUT_MAX_RANK];
    if (!number) return 0;
    const Stmt *store = block->items[at];
    Buf *buf = store->store.buf;
    for (int d = 0; d < store->store.count; d++) indices[d] = version_expr(version, store->store.indices[d]);
    Expr *guard = e_both(arena, guard_of(version, buf, store->store.count, indices), version->first_replica);
    Buf *whole = block_local(arena, out, "joined", number->type, 1, store->loc);
    Buf *narrow = block_local(arena, out, "narrow", buf->type, count, store->loc);
    block_store1(arena, out, whole, zero, version_expr(version, number));
    BLOCK_CALL(arena, out, store->loc, OP_RECAST, arg_element(arena, narrow, zero), arg_element(arena, whole, zero),
               arg_int(arena, count));
    BLOCK_CALL(arena, block_if(arena, out, guard), store->loc, OP_VSTORE,
               arg_region(lower_place(version->lower, buf, store->store.count, indices)),
               arg_element(arena, narrow, zero), arg_int(arena, count));
    return (int)count;
}
