// Two consumer roles share the steps of a tile of 64 rows: one takes the even steps, the other one the odd ones, and at
// the end their accumulators are added.
//
// A tile of 64 rows is one warpgroup's. Where its threads convert the left operand of the MMAs, a warpgroup alone is
// a chain of loads, conversions, MMAs and waits, by one warp on each scheduler, longer than its MMAs.
//
//     fill(acc, 0)                   compute0, compute1 (g = 0, 1):
//     for (k in N) {                 fill(acc, 0)
//         w = convert(Ws[i])         for (i in (N - own + 1) / 2) {            own: g in the CTA's first tile
//         gemm(w, As[i].T, acc)          k = 2 * i + own
//     }                                  the same, with each second slot
//     epilogue of acc            =>  }
//                                    own = own ^ N % 2              of two tiles the slots follow each other
//                                    for each c, a slice of the columns:
//                                    compute1: copy(acc[:, c], sum) barrier barrier
//                                    compute0: barrier acc[:, c] += sum barrier
//                                    compute0: epilogue of acc
//
// A slot is always the same role's, so their number is even: else a role would wait for a phase two ahead of the one
// that it knows, which has the same parity. The condition: one loop loads all tiles, and what it computes is only the
// accumulator, from zero on; its other fragments each iteration gives anew.
#include "ir/schedule.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/specialize/emit_roles.h"

// ---- may they? ----

static const Stmt *only_loop_of(const Block *body) {
    const Stmt *loop = NULL;
    FOR_EACH_ITEM (stmt, body) {
        if (!is_thread_loop(stmt) && stmt->kind != STMT_WHILE) continue;
        if (loop) return NULL;
        loop = stmt;
    }
    return loop;
}

static const Buf *only_accumulator(const Func *kernel) {
    const Buf *acc = NULL;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (gemm.a->buf->scope != SCOPE_FRAGMENT || gemm.accumulate || (acc && acc != gemm.acc->buf)) return NULL;
        acc = gemm.acc->buf;
    }
    return acc && acc->type == TYPE_F32 ? acc : NULL;
}

static bool is_plain_step(const Stmt *stmt, const Buf *acc) {
    GemmOp gemm;
    if (match_gemm(stmt, &gemm)) return true;
    if (stmt_uses_buf(stmt, acc)) return false;
    return is_scalar(stmt) || is_call(stmt, OP_COPY) || is_loop(stmt, LOOP_PARALLEL);
}

// The iteration writes all of the fragment before it reads it, and nothing else uses it.
static bool is_local_to(Arena *arena, const Block *body, const Stmt *loop, const Buf *buf) {
    FOR_EACH_ITEM (stmt, body)
        if (stmt != loop && stmt->kind != STMT_DECL && stmt_uses_buf(stmt, buf)) return false;
    return !loop_carries(arena, loop, buf);
}

// Before the loop and in it the roles do the same, or what one of them does next to the other: nothing that both see.
static bool both_may(Arena *arena, const Stmt *stmt) {
    if (loaded_tile(stmt)) return true;
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->access != ACCESS_READ && effect->buf->scope != SCOPE_FRAGMENT) return false;
    FOR_EACH_STMT_IN (below, stmt)
        if (is_call(below, OP_PRINT) || is_call(below, OP_ASSERT)) return false;
    return true;
}

// The last use of the accumulator before the loop.
static bool begins_at_zero(const Block *body, const Stmt *loop, const Buf *acc) {
    bool zero = false;
    FOR_EACH_ITEM (stmt, body) {
        if (stmt == loop) return zero;
        if (stmt->kind != STMT_DECL && stmt_uses_buf(stmt, acc)) zero = is_zero_fill(stmt);
    }
    return false;
}

bool may_share_steps(Arena *arena, const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    const Buf *acc = only_accumulator(kernel);
    const Block *body = &grid->grid.body;
    const Stmt *loop = acc ? only_loop_of(body) : NULL;
    if (!loop || !is_pipelined(loop) || !loop_is_plain(loop)) return false;
    if (loop_stages(loop) < SHARED_STEPS || loop_stages(loop) % SHARED_STEPS) return false;
    if (grid_claim(grid).kind == CLAIM_DYNAMIC || grid_claim(grid).snake) return false;
    FOR_EACH_ITEM (stmt, body)
        if (stmt != loop && (loaded_tile(stmt) || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN)) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (!is_plain_step(stmt, acc) || !both_may(arena, stmt)) return false;
    for (int i = 0; body->items[i] != loop; i++)
        if (!both_may(arena, body->items[i])) return false;
    FOR_EACH_STMT (stmt, body) {
        bool fragment = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT && stmt->decl != acc;
        if (fragment && stmt_uses_buf(loop, stmt->decl) && !is_local_to(arena, body, loop, stmt->decl)) return false;
    }
    return begins_at_zero(body, loop, acc);
}

// ---- the sum ----

enum { SUM_COLUMNS = 32, STEPS_BARRIER = 1 };   // at a time; two named barriers
_Static_assert(STEPS_BARRIER + 1 < TMA_STORE_BARRIER, "stores have barriers of their own");

static int64_t sum_columns(const Buf *acc) {
    return gcd64(buf_extent(acc, 1), SUM_COLUMNS);
}

int64_t shared_steps_bytes(const Func *kernel) {
    const Buf *acc = only_accumulator(kernel);
    return buf_extent(acc, 0) * sum_columns(acc) * type_bytes(acc->type);
}

Buf *declare_sum(RoleBuilder *p, Block *out) {
    const Buf *acc = only_accumulator(p->kernel);
    int64_t shape[] = {buf_extent(acc, 0), sum_columns(acc)};
    Buf *sum = buf_new_const(p->arena, "sum", SCOPE_SHARED, acc->type, 2, shape, p->loc);
    block_push(p->arena, out, s_decl(p->arena, sum));
    return sum;
}

static void push_meeting(RoleBuilder *p, int number, Block *out) {
    PUSH_CALL(p, out, OP_BARRIER, arg_int(p->arena, STEPS_BARRIER + number),
              arg_int(p->arena, (int64_t)SHARED_STEPS * p->consumers * target_warpgroup(p->context->target)));
}

static Region *columns_of(RoleBuilder *p, Buf *acc, int64_t first, int64_t count) {
    Region *columns = region_whole(p->arena, acc);
    columns->dims[1].start = integer(p, first);
    columns->dims[1].extent = integer(p, count);
    columns->dims[1].tile = count;
    return columns;
}

// acc[:, first +: columns] += sum
static Stmt *addition(RoleBuilder *p, Buf *acc, Buf *sum, int64_t first) {
    Arena *a = p->arena;
    Var *row = var_new(a, "i", VAR_ITER, TYPE_I64, p->loc), *column = var_new(a, "j", VAR_ITER, TYPE_I64, p->loc);
    Stmt *loop = s_for(a, LOOP_PARALLEL, row, integer(p, 0), integer(p, buf_extent(sum, 0)));
    Iter *iters = NEW_ARRAY(a, Iter, 2);
    iters[0] = loop->loop.iters[0];
    iters[1] = (Iter){column, integer(p, 0), integer(p, buf_extent(sum, 1)), integer(p, 1)};
    loop->loop.iters = iters;
    loop->loop.count = 2;
    loop->loc = p->loc;
    Expr *from[] = {e_var(a, row), e_var(a, column)}, *to[] = {e_var(a, row), e_plus(a, e_var(a, column), first)};
    Expr *value = e_add(a, e_load(a, acc, 2, to), e_load(a, sum, 2, from));
    block_push(a, &loop->loop.body, s_store(a, acc, 2, to, value));
    return loop;
}

static void push_sum(RoleBuilder *p, int member, Buf *acc, Buf *sum, Block *out) {
    int64_t each = buf_extent(sum, 1);
    for (int64_t first = 0; first < buf_extent(acc, 1); first += each) {
        Region *columns = columns_of(p, acc, first, each);
        if (member > 0) block_push(p->arena, out, s_copy(p->arena, columns, region_whole(p->arena, sum), p->loc));
        push_meeting(p, 0, out);
        if (member == 0) block_push(p->arena, out, addition(p, acc, sum, first));
        push_meeting(p, 1, out);
    }
}

// ---- the steps ----

Var *push_first_step(RoleBuilder *p, int member, Block *out) {
    Var *first_step = var_new(p->arena, "first_step", VAR_MUTABLE, TYPE_I64, p->loc);
    block_push(p->arena, out, s_var(p->arena, first_step, integer(p, member)));
    return first_step;
}

void share_steps(RoleBuilder *p, int member, Var *first_step, Buf *sum, Block *work) {
    Arena *a = p->arena;
    Block out = {0};
    int at = 0;
    while (!is_thread_loop(work->items[at])) block_push(a, &out, work->items[at++]);
    Stmt *loop = work->items[at];
    Iter *iter = &loop->loop.iters[0];
    Var *step = var_new(a, "step", VAR_ITER, TYPE_I64, p->loc);
    Expr *own = block_let(a, &out, "own", e_var(a, first_step), p->loc),
         *end = iter->end;   // (it changes behind the loop)
    push_range(p, own, integer(p, 0), integer(p, SHARED_STEPS), &out);
    Subst *subst = subst_new(a);
    subst_var(subst, iter->var, e_add(a, e_times(a, e_var(a, step), SHARED_STEPS), own));
    subst_block(subst, &loop->loop.body);
    Expr *rest = e_plus(a, e_sub(a, end, own), SHARED_STEPS - 1);
    *iter = (Iter){step, integer(p, 0), e_over(a, rest, SHARED_STEPS), iter->step};
    block_push(a, &out, loop);
    if (p->waves)
        block_push(a, &out, s_assign(a, first_step, e_xor(a, e_var(a, first_step), e_rem(a, end, SHARED_STEPS))));
    const Stmt *gemm = block_first_call(&loop->loop.body, OP_GEMM);
    push_sum(p, member, gemm_of(gemm).acc->buf, sum, &out);
    for (at++; member == 0 && at < work->count; at++) block_push(a, &out, work->items[at]);
    *work = out;
}
