// Places in memory, and how wide index arithmetic is.
//
// Indices are i64 in the language; a GPU has 32-bit integer registers, and 64-bit arithmetic costs two to four times as
// much. So an i64 expression whose value provably lies in [-2^31, 2^31) (facts.h) is computed in 32 bits, if its
// operands also do; otherwise in 64 bits, and cut to 32 afterwards. What is proven also gives LLVM `nsw` and `nuw`, by
// which it moves constants into the offsets of loads and stores:
//
//     A[row, k * 64 + 8 * v]          row * K is a 32 x 32 -> 64 multiplication, `8 * v` part of the instruction
//
// Offsets look through lets, and are simplified as a whole, once for each access in the program. With q the iterator of
// an unrolled loop,
//
//     let i = q * 32 + t / 8;
//     As[i / 8, i % 8 * 64 + j]       (q * 32 + t / 8) / 8 * 512 + ...  =  q * 2048 + t / 64 * 512 + ...
//
// so that all copies share one address register and differ in the instruction's offset.
//
// Facts depend on the place, so what is known is remembered per block (statement list): an unrolled body asks once.
#include "codegen/gen.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "support/numbers.h"

// ---- what is known of an i64 expression ----

enum { BIT_ASKED = 1, BIT_NARROW = 2, BIT_NONNEGATIVE = 4 };

static bool is_narrow(Range range) {
    return range.low >= INT32_MIN && range.high <= INT32_MAX;
}

Known known_of(Gen *gen, Expr *expr) {
    if (expr->kind == EXPR_INT) {
        return (Known){is_narrow((Range){expr->integer, expr->integer}), expr->integer >= 0};
    }
    uintptr_t bits = (uintptr_t)map_get(gen->address.known, expr);
    if (!bits) {
        Range range = range_of(gen->kernel.facts, expr);
        bits = BIT_ASKED | (is_narrow(range) ? BIT_NARROW : 0) | (range.low >= 0 ? BIT_NONNEGATIVE : 0);
        map_put(gen->address.known, expr, (void *)bits);
    }
    return (Known){bits & BIT_NARROW, bits & BIT_NONNEGATIVE};
}

Value fit_bits(Gen *gen, Value value, int bits, bool nonnegative) {
    int have = (int)LLVMGetIntTypeWidth(LLVMTypeOf(value));
    if (have == bits) return value;
    LLVMTypeRef type = LLVMIntTypeInContext(gen->llvm.context, (unsigned)bits);
    if (have > bits) return LLVMBuildTrunc(gen->builder, value, type, "");
    if (!nonnegative) return LLVMBuildSExt(gen->builder, value, type, "");
    Value wide = LLVMBuildZExt(gen->builder, value, type, "");
    if (LLVMIsAInstruction(wide)) LLVMSetNNeg(wide, 1);
    return wide;
}

// ---- looking through lets ----

// Whether an expression is a sum of digits: of integers, with / and % by constants only. Counts its nodes.
static bool is_digits(const Expr *e, int *size) {
    if (++*size > MOST_OPENED) return false;
    switch (e->kind) {
    case EXPR_INT: return true;
    case EXPR_VAR: return e->var->kind != VAR_MUTABLE && e->type == TYPE_I64;
    case EXPR_BINARY: break;
    default: return false;
    }
    if (e->type != TYPE_I64 || e->binary.op > BIN_XOR) return false;
    bool divides = e->binary.op == BIN_DIV || e->binary.op == BIN_MOD;
    if (divides && e->binary.b->kind != EXPR_INT) return false;
    return is_digits(e->binary.a, size) && is_digits(e->binary.b, size);
}

static Expr *open_node(Mapper *mapper, Expr *e) {
    Gen *gen = mapper->user;
    if (e->kind != EXPR_VAR || e->var->kind != VAR_LET) return e;
    Expr *value = map_get(gen->address.lets, e->var);
    return value ? value : e;
}

static Expr *open_lets(Gen *gen, Expr *e) {
    Mapper mapper = {.arena = gen->arena, .expr = open_node, .user = gen};
    return map_expr(&mapper, e);
}

void remember_let(Gen *gen, const Var *var, Expr *value) {
    int size = 0;
    if (map_has(gen->address.lets, var) || var->kind != VAR_LET || !is_digits(value, &size)) return;
    Expr *opened = open_lets(gen, value);
    size = 0;
    if (is_digits(opened, &size)) map_put(gen->address.lets, var, opened);
}

// ---- offsets ----

static Expr *row_major_offset(Gen *gen, const Buf *buf, int count, Expr *const *indices) {
    Expr *offset = e_int(gen->arena, 0);
    for (int i = 0; i < count; i++) {
        offset = e_mul(gen->arena, offset, buf->shape[i]);
        offset = e_add(gen->arena, offset, indices[i]);
    }
    return offset;
}

// The offset expression of an access, made once for each place in the program: an unrolled loop comes by often.
static Expr *offset_of(Gen *gen, const Buf *buf, int count, Expr *const *indices, const void *key) {
    Expr *offset = map_get(gen->address.offsets, key);
    if (offset) return offset;
    if (buf->scope == SCOPE_GLOBAL) offset = global_offset(gen->arena, buf, count, indices);
    else offset = row_major_offset(gen, buf, count, indices);   // lower-tile-op applied the layouts
    offset = simplify_expr(gen->arena, gen->kernel.facts, open_lets(gen, offset));
    map_put(gen->address.offsets, key, offset);
    return offset;
}

Expr *const *place_indices(Gen *gen, const Region *place) {
    Expr **indices = map_get(gen->address.offsets, place->dims);
    if (indices) return indices;
    indices = NEW_ARRAY(gen->arena, Expr *, place->count);
    for (int i = 0; i < place->count; i++) indices[i] = place->dims[i].start;
    map_put(gen->address.offsets, place->dims, indices);
    return indices;
}

// ---- an offset as variable and constant part ----
//
// The constant part (of unrolled iterators, mostly) goes into the instruction; accesses that differ in it alone share
// the register with the variable part. Where all terms are non-negative their partial sums fit as the whole does.

enum { MOST_TERMS = 24 };

typedef struct Terms {
    int count;
    Expr *items[MOST_TERMS];
} Terms;

static bool collect_terms(Expr *e, Terms *terms) {
    if (e->kind == EXPR_BINARY && e->binary.op == BIN_ADD) {
        return collect_terms(e->binary.a, terms) && collect_terms(e->binary.b, terms);
    }
    if (terms->count == MOST_TERMS) return false;
    terms->items[terms->count++] = e;
    return true;
}

static bool all_nonnegative(Gen *gen, const Terms *terms) {
    for (int i = 0; i < terms->count; i++) {
        if (!known_of(gen, terms->items[i]).nonnegative) return false;
    }
    return true;
}

typedef struct Offset {
    Value variable;     // NULL: none
    Value carried;      // what mutable variables and memory add to it; NULL: none
    int64_t constant;   // elements
    bool nonnegative;
    Value stride;   // NULL: none; then `strides` times as many elements more, 64 bits wide
    int64_t strides;
} Offset;

// A factor `q * 32 + rest` with q the iterator of an unrolled loop.
typedef struct Stepped {
    int64_t q, unit;
    Terms rest;
} Stepped;

static bool find_step(Gen *gen, Expr *factor, Stepped *out) {
    Terms terms = {0};
    if (!collect_terms(factor, &terms) || terms.count < 2 || !all_nonnegative(gen, &terms)) return false;
    for (int i = 0; i < terms.count; i++) {
        const Expr *e = terms.items[i];
        bool scaled = e->kind == EXPR_BINARY && e->binary.op == BIN_MUL && e->binary.b->kind == EXPR_INT;
        const Expr *var = scaled ? e->binary.a : e;
        bool steps = out->unit == 0 && var->kind == EXPR_VAR && var->var->kind == VAR_ITER &&
                     value_const(emit_index(gen, (Expr *)var), &out->q);
        if (steps) out->unit = scaled ? e->binary.b->integer : 1;
        else out->rest.items[out->rest.count++] = terms.items[i];
    }
    return out->unit > 0;
}

// Rows that an unrolled loop goes through, of a tensor whose row length is known at launch: the address of the next row
// is that of the last one plus a stride, so that two registers hold what would else be an address for each row.
//
//     (q * 32 + row) * K     row * K, and q strides of 32 * K
//
static bool emit_stepped(Gen *gen, const Expr *term, Offset *sum, Value *value) {
    Stepped stepped = {0};
    if (sum->stride || term->kind != EXPR_BINARY || term->binary.op != BIN_MUL) return false;
    if (!find_step(gen, term->binary.a, &stepped)) return false;
    Value factor = emit_index(gen, term->binary.b);
    int64_t constant;
    if (value_const(factor, &constant)) return false;
    factor = fit_bits(gen, factor, 64, true);
    Value rest = NULL;
    for (int i = 0; i < stepped.rest.count; i++) {
        Value term = fit_bits(gen, emit_index(gen, stepped.rest.items[i]), 64, true);
        rest = rest ? LLVMBuildAdd(gen->builder, rest, term, "") : term;
    }
    *value = LLVMBuildMul(gen->builder, rest, factor, "");
    sum->stride = LLVMBuildMul(gen->builder, factor, const_i64(gen, stepped.unit), "");
    sum->strides = stepped.q;
    return true;
}

static Value add_term(Gen *gen, Value sum, Value term) {
    if (!sum) return term;
    sum = LLVMBuildNSWAdd(gen->builder, sum, term, "");
    if (LLVMIsAInstruction(sum)) LLVMSetNUW(sum, 1);
    return sum;
}

static Offset sum_terms(Gen *gen, const Terms *terms, int bits) {
    Offset sum = {.nonnegative = true};
    for (int i = 0; i < terms->count; i++) {
        Value value;
        if (bits < 64 || !emit_stepped(gen, terms->items[i], &sum, &value)) value = emit_index(gen, terms->items[i]);
        int64_t constant;
        if (value_const(value, &constant)) {
            sum.constant += constant;
            continue;
        }
        Value *into = expr_is_stable(terms->items[i]) ? &sum.variable : &sum.carried;
        *into = add_term(gen, *into, fit_bits(gen, value, bits, true));
    }
    return sum;
}

static Offset emit_offset(Gen *gen, Expr *offset) {
    Terms terms = {0};
    if (collect_terms(offset, &terms) && all_nonnegative(gen, &terms)) {
        return sum_terms(gen, &terms, known_of(gen, offset).narrow ? 32 : 64);
    }
    Offset whole = {.variable = emit_index(gen, offset), .nonnegative = known_of(gen, offset).nonnegative};
    if (value_const(whole.variable, &whole.constant)) whole.variable = NULL;
    return whole;
}

// ---- comparisons in unrolled loops ----

// The left side of a comparison, looked through; an integer that is cast is that integer.
static Expr *compared(Gen *gen, Expr *key, Expr *left) {
    Expr *sum = map_get(gen->address.offsets, key);
    if (sum) return sum;
    if (left->kind == EXPR_CAST && left->operand->type == TYPE_I64 && known_of(gen, left->operand).narrow)
        left = left->operand;
    sum = simplify_expr(gen->arena, gen->kernel.facts, open_lets(gen, left));
    map_put(gen->address.offsets, key, sum);
    return sum;
}

static bool within_32_bits(Gen *gen, const Expr *right, const Expr *rest) {
    Range a = range_of(gen->kernel.facts, right), b = range_of(gen->kernel.facts, rest);
    return is_narrow(a) && is_narrow(b) && is_narrow((Range){a.low - b.high, a.high - b.low});
}

static bool compares(const Expr *e, const void *user) {
    (void)user;
    return e->kind == EXPR_SELECT || (e->kind == EXPR_BINARY && e->binary.op >= BIN_EQ);
}

// Whether a term has a number here, from iterators of expanded loops. One that compares in turn is not asked: it would
// be emitted twice, what it compares four times, and so on.
static bool term_const(Gen *gen, Expr *term, int64_t *constant) {
    return !any_expr(term, compares, NULL) && value_const(emit_index(gen, term), constant);
}

bool emit_step(Gen *gen, Expr *comparison, Step *out) {
    Expr *left = comparison->binary.a, *right = comparison->binary.b, *rest = NULL;
    Terms terms = {0};
    bool steps = false, signed_ = left->type == TYPE_I32 || left->type == TYPE_I64;
    if (!signed_ || !known_of(gen, left).narrow) return false;
    if (!collect_terms(compared(gen, comparison, left), &terms)) return false;
    out->constant = 0;
    for (int i = 0; i < terms.count; i++) {
        int64_t constant = 0;
        bool known = term_const(gen, terms.items[i], &constant);
        out->constant += constant;
        steps |= known && terms.items[i]->kind != EXPR_INT;
        if (!known) rest = rest ? e_add(gen->arena, rest, terms.items[i]) : terms.items[i];
    }
    if (!steps || !rest || !expr_is_stable(rest) || !within_32_bits(gen, right, rest)) return false;
    Value bound = fit_bits(gen, emit_expr(gen, right), 32, false),
          moved = fit_bits(gen, emit_index(gen, rest), 32, false);
    out->bound = LLVMBuildNSWSub(gen->builder, bound, moved, "");
    return is_narrow((Range){out->constant, out->constant});
}

// Written as a chain, of which all but the last link are what the iterations before made.
static Value add_strides(Gen *gen, Value base, LLVMTypeRef element, const Offset *offset) {
    enum { LONGEST_CHAIN = 16 };
    Value stride = offset->stride;
    int64_t links = offset->strides;
    if (links > LONGEST_CHAIN) {
        stride = LLVMBuildMul(gen->builder, stride, const_i64(gen, links), "");
        links = 1;
    }
    while (links-- > 0) base = LLVMBuildGEP2(gen->builder, element, base, &stride, 1, "");
    return base;
}

static Value add_elements(Gen *gen, Value base, LLVMTypeRef element, Value count, bool nonnegative) {
    if (!count) return base;
    Value index = fit_bits(gen, count, 64, nonnegative);
    return LLVMBuildGEP2(gen->builder, element, base, &index, 1, "");
}

// base + offset elements + bytes. What a loop changes goes onto the base: mostly all threads have it in common (a slot), so
// that this is uniform arithmetic, and the threads' part is one register that the loop adds to it.
static Value offset_address(Gen *gen, Value base, LLVMTypeRef element, int64_t size, Expr *offset, int64_t bytes) {
    Offset sum = emit_offset(gen, offset);
    base = add_elements(gen, base, element, sum.carried, sum.nonnegative);
    base = add_elements(gen, base, element, sum.variable, sum.nonnegative);
    if (sum.stride) base = add_strides(gen, base, element, &sum);
    bytes += sum.constant * size;
    Value distance = const_i64(gen, bytes);
    return bytes ? LLVMBuildGEP2(gen->builder, gen->types.i8, base, &distance, 1, "") : base;
}

// ---- global memory ----

Value tensor_base(Gen *gen, const Buf *buf) {
    Value base = map_get(gen->kernel.tensors, buf);
    EXPECT(gen->failure, base, "'%s' is not a parameter of '%s'", buf->name, gen->kernel.func->name);
    if (gen->kernel.waits_for_launch) base = LLVMBuildLoad2(gen->builder, LLVMGetAllocatedType(base), base, buf->name);
    return base;
}

static Value global_place(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key) {
    Value base = tensor_base(gen, buf);
    Expr *offset = offset_of(gen, buf, count, indices, key);
    return offset_address(gen, base, memory_type(gen, buf->type), type_bytes(buf->type), offset, 0);
}

// Loads of what is never written while the kernel runs may go through the read-only path (ld.global.nc).
void mark_read_only(Gen *gen, const Buf *buf, Value load) {
    if (!buf_is_constant(buf)) return;
    LLVMMetadataRef node = LLVMMDNodeInContext2(gen->llvm.context, NULL, 0);
    unsigned kind = LLVMGetMDKindIDInContext(gen->llvm.context, "invariant.load", 14);
    LLVMSetMetadata(load, kind, LLVMMetadataAsValue(gen->llvm.context, node));
}

// ---- shared memory ----

static const Buf *storage_of(const Buf *buf) {
    while (buf->alias_of) buf = buf->alias_of;
    return buf;
}

static LLVMTypeRef shared_element(Gen *gen, Type type) {
    if (type_bits(type) <= 64) return memory_type(gen, type);
    return LLVMArrayType2(gen->types.i8, (uint64_t)type_bytes(type));
}

static Value shared_place(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key) {
    intptr_t start = (intptr_t)map_get(gen->address.shared_offsets, storage_of(buf)) - 1;
    EXPECT(gen->failure, start >= 0, "shared buffer '%s' is not declared in '%s'", buf->name, gen->kernel.func->name);
    Expr *offset = offset_of(gen, buf, count, indices, key);
    return offset_address(gen, gen->address.shared, shared_element(gen, buf->type), type_bytes(buf->type), offset,
                          start);
}

// ---- shared memory of another CTA ----

// What the offset is a multiple of, with the numbers that iterators of expanded loops have here.
static int64_t offset_multiple(Gen *gen, Expr *offset) {
    Terms terms = {0};
    int64_t constant, multiple = 0;
    if (!collect_terms(offset, &terms)) return multiple_of(gen->kernel.facts, offset);
    for (int i = 0; i < terms.count; i++) {
        bool known = value_const(emit_index(gen, terms.items[i]), &constant);
        multiple = gcd64(multiple, known ? constant : multiple_of(gen->kernel.facts, terms.items[i]));
    }
    return multiple;
}

// The window of that CTA, and the offset in it: neighbours are seen as such, and become vectors. *alignment is known, in bytes.
Value peer_place(Gen *gen, const Region *place, Value rank, int64_t *alignment) {
    enum { WIDEST = 16 };
    Buf *buf = place->buf;
    int64_t size = type_bytes(buf->type), start = (intptr_t)map_get(gen->address.shared_offsets, storage_of(buf)) - 1;
    EXPECT(gen->failure, start >= 0, "shared buffer '%s' is not declared in '%s'", buf->name, gen->kernel.func->name);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(gen->llvm.context, CLUSTER_SPACE);
    Value window = CALL(gen, "llvm.nvvm.mapa.shared.cluster", pointer, gen->address.shared, rank);
    Expr *offset = offset_of(gen, buf, place->count, place_indices(gen, place), place);
    int64_t known = offset_multiple(gen, offset) * size | start | WIDEST;
    *alignment = known & -known;
    return offset_address(gen, window, shared_element(gen, buf->type), size, offset, start);
}

// ---- both ----

Value memory_address(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key) {
    Value ready = map_get(gen->address.ready, key);
    if (ready) {
        map_remove(gen->address.ready, key);
        return ready;
    }
    EXPECT(gen->failure, buf->scope != SCOPE_FRAGMENT, "fragment '%s' at thread stage", buf->name);
    return buf->scope == SCOPE_GLOBAL ? global_place(gen, buf, count, indices, key)
                                      : shared_place(gen, buf, count, indices, key);
}

Value place_address(Gen *gen, const Region *place) {
    return memory_address(gen, place->buf, place->count, place_indices(gen, place), place);
}

// ---- addresses in matrix descriptors: units of 16 bytes, 14 bits ----
//
// base + offset, each in units: what does not change in a loop is then one sum before it. Nothing carries beyond the 14
// bits, since they reach past all of shared memory. In a cluster the upper bits of a shared address hold the CTA's
// rank, so the base is masked.

enum { UNIT_BYTES = 16, UNIT_BITS = 14 };

Value shared_units(Gen *gen, Value address) {
    Value integer = LLVMBuildPtrToInt(gen->builder, address, gen->types.i32, "");
    Value units = LLVMBuildLShr(gen->builder, integer, const_i32(gen, __builtin_ctz(UNIT_BYTES)), "");
    return LLVMBuildAnd(gen->builder, units, const_i32(gen, (1 << UNIT_BITS) - 1), "");
}

// The offset in units, NULL when it is not known to be a whole number of them. Made once for each place in the program.
static Expr *unit_offset(Gen *gen, const Region *place, int64_t size) {
    Expr *offset = map_get(gen->address.offsets, &place->count);
    if (offset) return offset;
    offset = offset_of(gen, place->buf, place->count, place_indices(gen, place), place);
    int64_t each = UNIT_BYTES / size;
    if (size > UNIT_BYTES || multiple_of(gen->kernel.facts, offset) % each) return NULL;
    offset = simplify_expr(gen->arena, gen->kernel.facts, e_div(gen->arena, offset, e_int(gen->arena, each)));
    map_put(gen->address.offsets, &place->count, offset);
    return offset;
}

Value place_units(Gen *gen, const Region *place) {
    const Buf *buf = place->buf;
    intptr_t start = (intptr_t)map_get(gen->address.shared_offsets, storage_of(buf)) - 1;
    Expr *offset = unit_offset(gen, place, type_bytes(buf->type));
    if (!offset || start < 0 || start % UNIT_BYTES) return shared_units(gen, place_address(gen, place));
    Offset sum = emit_offset(gen, offset);
    Value units =
        LLVMBuildAdd(gen->builder, gen->address.shared_units, const_i32(gen, start / UNIT_BYTES + sum.constant), "");
    if (sum.variable) units = LLVMBuildAdd(gen->builder, units, fit_bits(gen, sum.variable, 32, true), "");
    return sum.carried ? LLVMBuildAdd(gen->builder, units, fit_bits(gen, sum.carried, 32, true), "") : units;
}

// Indices that mean the same before the branch: no memory is read, not even a local array that the arm may change.
static bool is_simple(int count, Expr *const *indices) {
    for (int i = 0; i < count; i++) {
        if (is_lazy(indices[i]) || expr_reads_memory(indices[i])) return false;
    }
    return true;
}

void prepare_address(Gen *gen, Buf *buf, int count, Expr *const *indices, const void *key) {
    if (buf->scope != SCOPE_GLOBAL || !is_simple(count, indices)) return;
    map_put(gen->address.ready, key, memory_address(gen, buf, count, indices, key));
}

void prepare_place(Gen *gen, const Region *place) {
    prepare_address(gen, place->buf, place->count, place_indices(gen, place), place);
}

// ---- the CTA's shared memory ----

typedef struct SharedWalk {
    Arena *arena;
    Map *offsets;
    int64_t bytes;
    bool placed;   // first round: buffers with an offset; second: the rest, behind them
} SharedWalk;

static void lay_out_block(SharedWalk *walk, const Block *block);

static void lay_out_buf(SharedWalk *walk, const Buf *buf) {
    if (buf->scope != SCOPE_SHARED || buf->alias_of || (buf->offset >= 0) != walk->placed) return;
    int64_t align = buf->align > 16 ? buf->align : 16;
    int64_t offset = walk->placed ? buf->offset : round_up(walk->bytes, align);
    if (walk->offsets) map_put(walk->offsets, buf, (void *)(intptr_t)(offset + 1));
    int64_t end = offset + buf_space(buf);
    if (end > walk->bytes) walk->bytes = end;
}

static void lay_out_stmt(SharedWalk *walk, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_DECL: lay_out_buf(walk, stmt->decl); break;
    case STMT_GRID: lay_out_block(walk, &stmt->grid.body); break;
    case STMT_ROLE: lay_out_block(walk, &stmt->role.body); break;
    case STMT_THREAD: lay_out_block(walk, &stmt->thread.body); break;
    case STMT_FOR: lay_out_block(walk, &stmt->loop.body); break;
    case STMT_WHILE: lay_out_block(walk, &stmt->while_.body); break;
    case STMT_BLOCK: lay_out_block(walk, &stmt->block); break;
    case STMT_IF:
        lay_out_block(walk, &stmt->if_.then);
        lay_out_block(walk, &stmt->if_.otherwise);
        break;
    default: break;
    }
}

static void lay_out_block(SharedWalk *walk, const Block *block) {
    for (int i = 0; i < block->count; i++) lay_out_stmt(walk, block->items[i]);
}

// Byte offsets of the shared buffers: those of swizzle-allocation; hand-written buffers without one follow.
void lay_out_shared(Arena *arena, const Func *kernel, Map *offsets, int64_t *bytes) {
    SharedWalk walk = {.arena = arena, .offsets = offsets, .placed = true};
    lay_out_block(&walk, &kernel->body);
    walk.placed = false;
    lay_out_block(&walk, &kernel->body);
    *bytes = walk.bytes;
}

// ---- local arrays ----

int64_t register_index(Gen *gen, Buf *buf, int count, Expr *const *indices) {
    int64_t index = 0;
    for (int i = 0; i < count; i++) {
        int64_t at = 0;
        bool constant = value_const(emit_index(gen, indices[i]), &at);
        EXPECT(gen->failure, constant, "an index of local array '%s' is not a constant (line %d)", buf->name,
               indices[i]->loc.line);
        if (at < 0 || at >= buf_extent(buf, i)) {   // known only since its loop was unrolled
            if (!gen->kernel.conditions)            // that may exclude it
                diag(gen->sink, indices[i]->loc.line > 0 ? indices[i]->loc : buf->loc, T_INDEX_RANGE, (long long)at, i,
                     buf->name, (long long)buf_extent(buf, i));
            at = 0;
        }
        index = index * buf_extent(buf, i) + at;
    }
    return index;
}

int64_t place_register_index(Gen *gen, const Region *place) {
    return register_index(gen, place->buf, place->count, place_indices(gen, place));
}
