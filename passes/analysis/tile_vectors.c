// Strides, runs of consecutive elements and vector widths of the accesses of a tile loop. Passes that distribute
// iterations over threads use its fast dim and the vector along it.
#include "ir/build.h"
#include "ir/linear.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "support/numbers.h"

// ---- strides ----

static bool linear_in_product(const Expr *a, const Expr *b, const Var *var, int64_t *coefficient) {
    int64_t factor, inner;
    if (expr_const(b, &factor) && linear_in(a, var, &inner)) return *coefficient = inner * factor, true;
    if (expr_const(a, &factor) && linear_in(b, var, &inner)) return *coefficient = inner * factor, true;
    return false;
}

bool linear_in(const Expr *expr, const Var *var, int64_t *coefficient) {
    if (!expr_uses_var(expr, var)) return *coefficient = 0, true;
    int64_t a, b;
    switch (expr->kind) {
    case EXPR_VAR: return *coefficient = 1, true;
    case EXPR_CAST: return type_is_int(expr->type) && linear_in(expr->operand, var, coefficient);
    case EXPR_BINARY:
        if (expr->binary.op == BIN_MUL) return linear_in_product(expr->binary.a, expr->binary.b, var, coefficient);
        if (expr->binary.op != BIN_ADD && expr->binary.op != BIN_SUB) return false;
        if (!linear_in(expr->binary.a, var, &a) || !linear_in(expr->binary.b, var, &b)) return false;
        *coefficient = expr->binary.op == BIN_ADD ? a + b : a - b;
        return true;
    default: return false;
    }
}

static bool last_dim_is_dense(const Buf *buf) {
    return !buf->strides || expr_is_int(buf->strides[buf->rank - 1], 1);
}

StrideKind access_stride(const TileAccess *access, const Var *iter) {
    bool used = false;
    if (access->is_local) return STRIDE_OTHER;
    for (int d = 0; d < access->count; d++) {
        int64_t coefficient;
        if (!linear_in(access->indices[d], iter, &coefficient)) return STRIDE_OTHER;
        if (coefficient == 0) continue;
        if (used || d != access->count - 1 || coefficient != 1 || !last_dim_is_dense(access->buf)) return STRIDE_OTHER;
        used = true;
    }
    return used ? STRIDE_UNIT : STRIDE_NONE;
}

// iter op n: n; else 0.
static int64_t digit(const Expr *index, BinaryOp op, const Var *iter) {
    int64_t n;
    if (!is_binary(index, op) || index->binary.a->kind != EXPR_VAR || index->binary.a->var != iter) return 0;
    return expr_const(index->binary.b, &n) && n > 0 ? n : 0;
}

// start + iter / n, where start does not use it: n; else 0.
static int64_t quotient(const Expr *index, const Var *iter) {
    if (!is_binary(index, BIN_ADD)) return digit(index, BIN_DIV, iter);
    const Expr *a = index->binary.a, *b = index->binary.b;
    bool first = expr_uses_var(a, iter);
    return first && expr_uses_var(b, iter) ? 0 : quotient(first ? a : b, iter);
}

// x[.., i + iter / n, .., iter % n] of a tensor with rows of n, a power of two, elements: n; else 0.
static int64_t pieces(const TileAccess *access, const Var *iter) {
    const Buf *buf = access->buf;
    int64_t row;
    if (access->count == 0 || buf->scope != SCOPE_GLOBAL || !last_dim_is_dense(buf)) return 0;
    int64_t n = digit(access->indices[access->count - 1], BIN_MOD, iter);
    for (int d = 0; d + 1 < access->count; d++)
        if (expr_uses_var(access->indices[d], iter) && quotient(access->indices[d], iter) != n) return 0;
    return expr_const(buf->shape[buf->rank - 1], &row) && row == n && (n & (n - 1)) == 0 ? n : 0;
}

StrideKind run_stride(const TileAccess *access, const Var *iter) {
    return !access->is_local && pieces(access, iter) > 0 ? STRIDE_UNIT : access_stride(access, iter);
}

Expr *run_start(Arena *arena, const TileAccess *access, Var *iter) {
    EXPECT(arena_failure(arena), access->count > 0, "runs of '%s', which has no dims", access->buf->name);
    int64_t n = pieces(access, iter);
    return n > 0 ? e_int(arena, n) : e_sub(arena, access->indices[access->count - 1], e_var(arena, iter));
}

// ---- runs and groups ----

static int iterator_number(const TileLoop *loop, const Expr *index) {
    if (index->kind != EXPR_VAR) return -1;
    for (int i = 0; i < loop->rank; i++)
        if (loop->iters[i] == index->var) return i;
    return -1;
}

typedef struct Runs {
    const Var *iter;
    int64_t common;   // the divisors are multiples of its lowest set bit; 0: no divisors
} Runs;

static bool find_divisor(Visitor *visitor, Expr *expr) {
    Runs *runs = visitor->user;
    int64_t divisor;
    const Expr *of = is_binary(expr, BIN_DIV) ? expr->binary.a : NULL;
    while (of && of->kind == EXPR_CAST) of = of->operand;
    if (of && of->kind == EXPR_VAR && of->var == runs->iter && expr_const(expr->binary.b, &divisor) && divisor > 0) {
        runs->common |= divisor;   // only its trailing zeros matter
        return false;
    }
    if (expr->kind == EXPR_VAR && expr->var == runs->iter) runs->common |= 1;
    return true;
}

// The condition is the same for aligned runs of so many iterations, a power of two; 0: for all iterations.
static int64_t condition_run(const Expr *condition, const Var *iter) {
    Runs runs = {.iter = iter};
    if (condition) visit_expr(&(Visitor){.expr = find_divisor, .user = &runs}, (Expr *)condition);
    return runs.common & -runs.common;
}

bool access_in_runs(const TileLoop *loop, const TileAccess *access, int fast) {
    const Var *iter = loop->iters[fast];
    bool single = access->is_atomic && !access->is_peer && !(access->adds && access->buf->scope == SCOPE_GLOBAL);
    if (access->conditional || single || run_stride(access, iter) != STRIDE_UNIT) return false;
    return condition_run(access->condition, iter) != 1;
}

// An iteration accesses the buffer again after writing to it: its elements then go to memory one by one.
static bool comes_back(const TileLoop *loop, const TileAccessVec *accesses, const Buf *buf, int fast) {
    bool written = false, in_runs = true;
    VEC_EACH (const TileAccess, access, accesses) {
        if (buf_root(access->buf) != buf_root(buf)) continue;
        in_runs &= access_in_runs(loop, access, fast);
        if (written && (!access->is_store || !in_runs)) return true;
        written |= access->is_store;
    }
    return false;
}

bool access_in_vectors(const TileLoop *loop, const TileAccessVec *accesses, const TileAccess *access, int fast) {
    return access_in_runs(loop, access, fast) && !comes_back(loop, accesses, access->buf, fast);
}

bool index_dims(const TileLoop *loop, int count, Expr *const *indices, int *dims) {
    for (int d = 0; d < count; d++) {
        int64_t constant;
        dims[d] = iterator_number(loop, indices[d]);
        if (dims[d] < 0 && !expr_const(indices[d], &constant)) return false;
        for (int other = 0; other < d; other++)
            if (dims[d] >= 0 && dims[other] == dims[d])
                return false;   // v[i, i]: no thread-value layout has a diagonal
    }
    return true;
}

// ---- the fast dim, and vectors along it ----

// Elements that the access touches: a gather reads its indices once per row.
static int64_t touched(const TileLoop *loop, const TileAccess *access) {
    int64_t count = 1;
    for (int i = 0; i < loop->rank; i++) {
        bool moves = false;
        for (int d = 0; d < access->count; d++) moves |= expr_uses_var(access->indices[d], loop->iters[i]);
        if (moves) count *= loop->extents[i];
    }
    return count;
}

static int64_t unit_bytes(const TileLoop *loop, const TileAccessVec *accesses, const Var *iter, Scope scope) {
    int64_t bytes = 0;
    VEC_EACH (const TileAccess, access, accesses)
        if (access->buf->scope == scope && run_stride(access, iter) == STRIDE_UNIT)
            bytes += touched(loop, access) * type_bytes(access->buf->type) * (access->is_store ? 2 : 1);
    return bytes;
}

// Whole tiles in shared memory outweigh a row of global memory that all their rows use.
int loop_fast_dim(const TileLoop *loop, const TileAccessVec *accesses) {
    enum { GLOBAL_WEIGHT = 8 };
    int fast = loop->rank - 1;
    int64_t most = 0, global = 0;
    for (int i = loop->rank - 1; i >= 0; i--) {
        int64_t here = unit_bytes(loop, accesses, loop->iters[i], SCOPE_GLOBAL);
        int64_t bytes = GLOBAL_WEIGHT * here + unit_bytes(loop, accesses, loop->iters[i], SCOPE_SHARED);
        global += here;
        if (bytes > most) most = bytes, fast = i;
    }
    return global > 0 ? fast : loop->rank - 1;
}

// Where the access starts along dim d, from the tensor's first element.
static Expr *offset_along(Arena *arena, const Facts *facts, const TileAccess *access, Var *iter, int d) {
    Expr *index = d == access->count - 1 ? run_start(arena, access, iter) : access->indices[d];
    return simplify_expr(arena, facts, e_mul(arena, index, global_stride(arena, access->buf, d)));
}

// What e is congruent to modulo n, a power of two: with the values of names, x % c as x where n divides c, and without
// terms that n divides.
static Expr *congruent(Arena *arena, const Facts *facts, Expr *e, int64_t n) {
    int64_t c;
    if (multiple_of(facts, e) % n == 0) return e_zero(arena, e->type);
    Expr *value = e->kind == EXPR_VAR ? (Expr *)facts_binding(facts, e->var) : NULL;
    if (value) return congruent(arena, facts, value, n);
    if (e->kind == EXPR_CAST && type_is_int(e->type) && type_is_int(e->operand->type) &&
        type_bits(e->type) >= type_bits(e->operand->type))
        return e_cast(arena, e->type, congruent(arena, facts, e->operand, n));
    if (e->kind == EXPR_UNARY && e->unary.op == UNARY_NEG)
        return e_sub(arena, e_zero(arena, e->type), congruent(arena, facts, e->unary.a, n));
    if (e->kind != EXPR_BINARY) return e;
    if (e->binary.op == BIN_MOD && expr_const(e->binary.b, &c) && c % n == 0)
        return congruent(arena, facts, e->binary.a, n);
    if (e->binary.op == BIN_MUL && expr_const(e->binary.b, &c) && c != 0)   // 2 * (x % 4) is 2 * x modulo 8
        return e_mul(arena, congruent(arena, facts, e->binary.a, n / gcd64(n, c)), e->binary.b);
    if (e->binary.op != BIN_ADD && e->binary.op != BIN_SUB && e->binary.op != BIN_MUL) return e;
    return e_binary(arena, e->binary.op, congruent(arena, facts, e->binary.a, n),
                    congruent(arena, facts, e->binary.b, n));
}

bool starts_on_vector(const Facts *facts, const TileAccess *access, Var *iter, int64_t vector) {
    Arena *arena = facts_arena(facts);
    Expr *sum = NULL;
    for (int d = 0; d < access->count; d++) {
        Expr *offset = offset_along(arena, facts, access, iter, d);
        if (multiple_of(facts, offset) % vector != 0) sum = sum ? e_add(arena, sum, offset) : offset;
    }
    if (!sum) return true;
    return multiple_of(facts, simplify_expr(arena, facts, congruent(arena, facts, sum, vector))) % vector == 0;
}

static bool aligned_for(const Facts *facts, const TileLoop *loop, const TileAccess *access, int fast, int64_t vector) {
    const Buf *buf = access->buf;
    if (buf->scope == SCOPE_GLOBAL && !prove_aligned(facts, buf, vector * type_bytes(buf->type))) return false;
    return starts_on_vector(facts, access, loop->iters[fast], vector);
}

// Bytes of the widest elements accessed along `fast`. Global elements that the loop accesses repeatedly do not count if
// others are new in each iteration: they are cached, and two instructions per vector are as good as one.
static int widest_type(const TileLoop *loop, const TileAccessVec *accesses, int fast) {
    int64_t iterations = 1;
    for (int i = 0; i < loop->rank; i++) iterations *= loop->extents[i];
    int widest = 0, widest_new = 0;
    VEC_EACH (const TileAccess, access, accesses) {
        if (!is_memory(access->buf) || run_stride(access, loop->iters[fast]) != STRIDE_UNIT) continue;
        if (comes_back(loop, accesses, access->buf, fast)) continue;
        int bytes = type_bytes(access->buf->type);
        bool again = access->buf->scope == SCOPE_GLOBAL && !access->is_store && touched(loop, access) < iterations;
        widest = bytes > widest ? bytes : widest;
        if (!again) widest_new = bytes > widest_new ? bytes : widest_new;
    }
    return widest_new > 0 ? widest_new : widest;
}

static bool is_used_elsewhere(const TileAccessVec *accesses, const TileAccess *access) {
    VEC_EACH (const TileAccess, other, accesses)
        if (other != access && other->buf == access->buf) return true;
    return false;
}

int64_t loop_atomics(const TileLoop *loop, const TileAccessVec *accesses, int fast, const Target *target,
                     const char **why) {
    int64_t most = target->vector_bytes;
    VEC_EACH (const TileAccess, access, accesses) {
        const Buf *buf = access->buf;
        if (!access->is_atomic || buf->scope != SCOPE_GLOBAL || run_stride(access, loop->iters[fast]) != STRIDE_UNIT)
            continue;
        int64_t elements = access->adds ? red_elements(target, type_text(buf->type)) : 1;
        if (elements == 1) return *why = "the target has no vector reduction instruction for this type", 1;
        if (!access_in_runs(loop, access, fast)) return *why = "the addition has a condition per element", 1;
        if (is_used_elsewhere(accesses, access)) return *why = "the loop uses the tensor elsewhere too", 1;
        most = smaller(most, elements);
    }
    return most;
}

// The access is the load of a move that can be made of shifted vectors. Its indices are computed where its condition does not hold,
// too.
static bool can_shift(const Facts *facts, const TileLoop *loop, const TileAccess *access, int fast) {
    enum { MOST_BYTES = 4 };   // of an element: the shift is one of 32-bit words
    int64_t coefficient;
    if (!access->load || access->load != tile_move(facts_arena(facts), loop)) return false;
    if (type_bytes(access->buf->type) > MOST_BYTES || type_bits(access->buf->type) < 8) return false;
    if (access->condition && expr_reads_memory(access->condition)) return false;
    for (int d = 0; d < access->count; d++) {
        const Expr *index = access->indices[d];
        if (access->condition && (expr_reads_memory(index) || expr_divides(index))) return false;
        for (int i = 0; i < loop->rank; i++)
            if (!linear_in(index, loop->iters[i], &coefficient)) return false;
    }
    return access_in_runs(loop, access, fast) && access_stride(access, loop->iters[fast]) == STRIDE_UNIT;
}

// `shifts`: the load of a move may start anywhere, where it can be shifted.
static int64_t common_vector(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                             const Target *target, bool shifts) {
    int widest = widest_type(loop, accesses, fast);
    const char *why;
    int64_t vector = widest > 0 ? target->vector_bytes / widest : 1;
    vector = smaller(vector, loop_atomics(loop, accesses, fast, target, &why));
    while (vector > 1 && loop->extents[fast] % vector != 0) vector /= 2;
    VEC_EACH (const TileAccess, access, accesses) {
        if (!is_memory(access->buf)) continue;
        if (access->is_atomic && !access->is_peer && (!access->adds || access->buf->scope != SCOPE_GLOBAL)) continue;
        if (run_stride(access, loop->iters[fast]) != STRIDE_UNIT) continue;
        int64_t piece = pieces(access, loop->iters[fast]);
        int64_t same = condition_run(access->condition, loop->iters[fast]);
        int64_t one_access = target->vector_bytes / type_bytes(access->buf->type);   // elements of one instruction
        while ((piece > 0 && vector > piece) || (same > 1 && vector > same)) vector /= 2;
        if (shifts && can_shift(facts, loop, access, fast)) continue;
        while (vector > 1 && !aligned_for(facts, loop, access, fast, smaller(vector, one_access))) vector /= 2;
    }
    return vector < 1 ? 1 : vector;
}

bool access_is_shifted(const Facts *facts, const TileLoop *loop, const TileAccess *access, int fast) {
    return via_is(loop->origin, VIA_SHIFTED) && can_shift(facts, loop, access, fast);
}

int64_t loop_vector(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                    const Target *target) {
    return common_vector(facts, loop, accesses, fast, target, via_is(loop->origin, VIA_SHIFTED));
}

Expr *tile_corner(Arena *arena, const Facts *facts, const TileLoop *loop, Expr *index, bool largest) {
    Subst *subst = subst_new(arena);
    for (int d = 0; d < loop->rank; d++) {
        int64_t coefficient;
        if (!linear_in(index, loop->iters[d], &coefficient)) return NULL;
        bool far = (coefficient > 0) == largest;
        subst_var(subst, loop->iters[d], e_int(arena, far ? loop->extents[d] - 1 : 0));
    }
    return simplify_expr(arena, facts, subst_expr(subst, index));
}

// Rows outside of the tensor are not read. Of the others as much must lie before the tile's first element as a unit may begin before
// it, and as much behind its last one; then it does not matter where the base begins.
Expr *units_inside(Arena *arena, const Facts *facts, const TileLoop *loop, const TileAccess *access, int64_t vector) {
    const Buf *buf = access->buf;
    int last = access->count - 1;
    Expr *before = NULL, *behind = NULL, *zero = e_int(arena, 0), *all = NULL, *low = zero, *high = zero;
    for (int d = 0; d <= last; d++) {
        low = tile_corner(arena, facts, loop, access->indices[d], false);
        high = tile_corner(arena, facts, loop, access->indices[d], true);
        EXPECT(arena_failure(arena), low && high, "a shifted load of '%s' that is not linear", buf->name);
        Expr *stride = global_stride(arena, buf, d), *rest = e_sub(arena, e_plus(arena, buf->shape[d], -1), high);
        Expr *first = e_mul(arena, e_max(arena, low, zero), stride),
             *left = e_mul(arena, e_max(arena, rest, zero), stride);
        before = before ? e_add(arena, before, first) : first, behind = behind ? e_add(arena, behind, left) : left;
    }
    Expr *most = e_int(arena, vector - 1);
    Expr *tests[4] = {e_ge(arena, low, zero), e_lt(arena, high, buf->shape[last]), e_ge(arena, before, most),
                      e_ge(arena, behind, most)};
    for (int i = 0; i < COUNT_OF(tests); i++) {
        if (prove(facts, tests[i])) continue;
        if (prove(facts, e_unary(arena, UNARY_NOT, tests[i]))) return e_bool(arena, false);
        all = e_both(arena, all, simplify_expr(arena, facts, tests[i]));
    }
    return all ? all : e_bool(arena, true);
}

static bool never_inside(const Facts *facts, const TileLoop *loop, const TileAccess *access, int64_t vector) {
    int64_t known;
    return expr_const(units_inside(facts_arena(facts), facts, loop, access, vector), &known) && !known;
}

bool loop_shifts(const Facts *facts, const TileLoop *loop, const TileAccessVec *accesses, int fast,
                 const Target *target) {
    enum { FEWEST = 8 };   // elements: of fewer, two vectors are no gain
    const Expr *load = tile_move(facts_arena(facts), loop);
    int64_t vector = load ? target->vector_bytes / type_bytes(load->type) : 1;
    bool can = false;
    if (vector < FEWEST) return false;
    VEC_EACH (const TileAccess, access, accesses)
        can |= can_shift(facts, loop, access, fast) && !never_inside(facts, loop, access, vector);
    return can && common_vector(facts, loop, accesses, fast, target, true) == vector;
}

bool loop_has_transposed_side(const TileLoop *loop, const TileAccessVec *accesses, int fast) {
    VEC_EACH (const TileAccess, access, accesses)
        if (access->buf->scope == SCOPE_SHARED && run_stride(access, loop->iters[fast]) == STRIDE_OTHER) return true;
    return false;
}

// ---- bounds ----

Expr *access_guard(Arena *arena, const Facts *facts, const Buf *buf, int count, Expr *const *indices) {
    Expr *guard = NULL;
    for (int d = 0; d < count; d++) {
        Expr *index = simplify_expr(arena, facts, indices[d]);
        Expr *tests[2] = {e_ge(arena, index, e_int(arena, 0)), e_lt(arena, index, buf->shape[d])};
        for (int i = 0; i < COUNT_OF(tests); i++)
            if (!prove(facts, tests[i])) guard = e_both(arena, guard, tests[i]);
    }
    return guard;
}
