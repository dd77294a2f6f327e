// lazy-rescale: skips the rescale of online softmax in warps whose row maximum did not change.
//
//     copy(top, old)                                                 copy(top, old)
//     reduce_max(s, top, axis = 1, accumulate = true)                reduce_max(s, top, axis = 1, accumulate = true)
//     parallel (i) alpha[i] = exp2(old[i] * c - top[i] * c)          parallel (i) alpha[i] = exp2(old[i] * c - top[i] * c)
//     parallel (i, j) s[i, j] = exp2(s[i, j] * c - top[i] * c)  =>   parallel (i, j) s[i, j] = exp2(s[i, j] * c - top[i] * c)
//     parallel (i, d) o[i, d] = o[i, d] * alpha[i]                   copy(s, p)
//     copy(s, p)                                                     parallel (i, d) if (alpha[i] != 1) o[i, d] = o[i, d] * alpha[i]
//     gemm(p, Vs, o)                                                 gemm(p, Vs, o)
//
// A row maximum grows seldom, later in the loop ever less often. Where it did not grow the factor is 1, and skipping
// the multiplication gives the same bits. Each warp tests whether any of its rows needs the rescale (lower-tile-op).
// The rescale moves behind the exponentials and conversions, so that no branch separates them.
//
// The exponent old[i] * c - top[i] * c has been contracted to fma(old[i], c, -(top[i] * c)). With old[i] == top[i] that
// is the rounding error of the product, and the factor is nearly 1. It becomes (old[i] - top[i]) * c, which is exactly
// 0.
//
// Multiplications that overlap exponentials cost less than the branch. So the accumulator must have more elements than
// exponentials are computed in an iteration:
//
//     head dim    keys a step    speed with lazy rescale
//     128         128            0.97
//     128         80             1.02 to 1.07 (192 queries)
//     256         80             1.01
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"

static bool is_parallel(const Stmt *stmt) {
    return is_loop(stmt, LOOP_PARALLEL);
}

// The largest fragment that the loop fills with exponentials, or `only` if it is among them; NULL.
static const Buf *exponentials(const Stmt *stmt, const Buf *only) {
    const Buf *largest = NULL;
    for (int i = 0; is_parallel(stmt) && i < stmt->loop.body.count; i++) {
        const Stmt *store = stmt->loop.body.items[i];
        if (store->kind != STMT_STORE || store->store.buf->scope != SCOPE_FRAGMENT) continue;
        if (!expr_calls(store->store.value, OP_EXP2) || (only && store->store.buf != only)) continue;
        if (!largest || buf_elements(store->store.buf) > buf_elements(largest)) largest = store->store.buf;
    }
    return largest;
}

// What the loop multiplies the elements of `acc` by: a load of a fragment with fewer elements; NULL.
static const Expr *factor_of(const Stmt *stmt, const Buf *acc) {
    if (!is_parallel(stmt) || stmt->loop.body.count != 1) return NULL;
    const Expr *factor = scale_of(stmt->loop.body.items[0]);
    if (!factor || stmt->loop.body.items[0]->store.buf != acc || factor->kind != EXPR_LOAD) return NULL;
    const Buf *buf = factor->load.buf;
    return buf->scope == SCOPE_FRAGMENT && buf->rank < acc->rank && type_is_float(factor->type) ? factor : NULL;
}

// A maximum goes on in the block, and exponentials of what is before and after it are the factor.
static bool is_usually_one(const Block *block, int before, const Buf *factor) {
    bool grows = false, follows = false;
    for (int i = 0; i < before; i++) {
        const Stmt *stmt = block->items[i];
        grows |= is_call(stmt, OP_REDUCE_MAX) && expr_is_int(reduce_of(stmt).accumulate, 1);
        follows |= grows && exponentials(stmt, factor);
    }
    return follows;
}

// Nothing from `from` to `to` touches the accumulator or writes the factor.
static bool may_wait(Arena *arena, const Block *block, int from, int to, const Buf *acc, const Buf *factor) {
    for (int i = from; i < to; i++) {
        const Stmt *stmt = block->items[i];
        if (!is_parallel(stmt) && stmt->kind != STMT_CALL) return false;
        if (stmt_touches(arena, stmt, acc) || stmt_writes(arena, stmt, factor)) return false;
    }
    return true;
}

static int64_t most_exponentials(const Block *block) {
    int64_t most = 0;
    for (int i = 0; i < block->count; i++) {
        const Buf *buf = exponentials(block->items[i], NULL);
        if (buf && buf_elements(buf) > most) most = buf_elements(buf);
    }
    return most;
}

// fma(x, c, -(y * c)): y; NULL.
static Expr *difference(const Expr *e) {
    if (!is_expr_call(e, OP_FMA)) return NULL;
    const Expr *c = e->call.args[1].value, *rest = e->call.args[2].value;
    const Expr *product = rest->kind == EXPR_UNARY && rest->unary.op == UNARY_NEG ? rest->unary.a : NULL;
    if (!product || !is_binary(product, BIN_MUL)) return NULL;
    if (expr_equal(product->binary.b, c)) return product->binary.a;
    return expr_equal(product->binary.a, c) ? product->binary.b : NULL;
}

static Expr *exact_node(Mapper *mapper, Expr *expr) {
    if (!is_expr_call(expr, OP_EXP2)) return expr;
    const Expr *exponent = expr->call.args[0].value;
    Expr *y = difference(exponent);
    if (!y) return expr;
    Arena *a = mapper->arena;
    Expr *x = exponent->call.args[0].value, *c = exponent->call.args[1].value;
    return e_call1(a, OP_EXP2, e_binary(a, BIN_MUL, e_binary(a, BIN_SUB, x, y), c));
}

// The factor is exactly 1 where the maximum has not grown.
static void make_exact(Arena *arena, Block *block, int before, const Buf *factor) {
    Mapper mapper = {.arena = arena, .expr = exact_node};
    for (int i = 0; i < before; i++)
        if (exponentials(block->items[i], factor)) map_stmt(&mapper, block->items[i]);
}

static void guard(Arena *arena, Stmt *loop, const Expr *factor) {
    EXPECT(arena_failure(arena), loop->loop.body.count == 1, "a rescale of %d statements", loop->loop.body.count);
    Expr *grown = e_binary(arena, BIN_NE, (Expr *)factor, e_float(arena, factor->type, 1));
    loop->loop.body.items[0] = s_if_only(arena, grown, loop->loop.body.items[0]);
}

static int place_of(const Block *block, const Stmt *stmt) {
    int at = 0;
    while (at < block->count && block->items[at] != stmt) at++;
    return at;
}

// `if (..) top[i] = old[i]`, of the copy from before a maximum went on: it stays what it was while it has not grown by much.
static bool keeps_maximum(const Block *block, int before) {
    const Buf *top = NULL, *old = NULL;
    for (int i = 0; i < before; i++) {
        const Stmt *stmt = block->items[i];
        if (is_call(stmt, OP_COPY) && !top) old = copy_of(stmt).dst->buf;
        if (is_call(stmt, OP_REDUCE_MAX)) top = reduce_of(stmt).dst->buf;
        if (!is_parallel(stmt)) continue;
        FOR_EACH_STMT_IN (store, stmt) {
            const Expr *value = store->kind == STMT_STORE && store->store.buf == top ? store->store.value : NULL;
            if (value && value->kind == EXPR_LOAD && value->load.buf == old) return true;
        }
    }
    return false;
}

bool rescales_seldom(const Block *block, const Stmt *loop) {
    int at = place_of(block, loop);
    const Stmt *store = loop->loop.body.count == 1 ? loop->loop.body.items[0] : NULL;
    if (at == block->count || !store || store->kind != STMT_STORE) return false;
    const Expr *factor = factor_of(loop, store->store.buf);
    if (!factor || !is_usually_one(block, at, factor->load.buf) || !keeps_maximum(block, at)) return false;
    return buf_elements(store->store.buf) > most_exponentials(block);
}

// The loop before the product at `gemm` that multiplies its accumulator.
static bool skip_before(Arena *arena, Block *block, int gemm) {
    const Buf *acc = gemm_of(block->items[gemm]).acc->buf;
    for (int i = gemm - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        const Expr *factor = factor_of(stmt, acc);
        if (!factor) continue;
        if (!is_usually_one(block, i, factor->load.buf) || buf_elements(acc) <= most_exponentials(block)) return false;
        if (!may_wait(arena, block, i + 1, gemm, acc, factor->load.buf)) return false;
        make_exact(arena, block, i, factor->load.buf);
        guard(arena, stmt, factor);
        block_insert(arena, block, gemm, stmt);
        block_remove(block, i);
        return true;
    }
    return false;
}

static bool skip_rescale(Arena *arena, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_parallel(stmt)) continue;
        FOR_EACH_BODY (body, stmt) changed |= skip_rescale(arena, body);
        if (is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA)) changed |= skip_before(arena, block, i);
    }
    return changed;
}

bool pass_lazy_rescale(PassContext *context, Func *kernel) {
    return skip_rescale(context->arena, &kernel->body);
}
