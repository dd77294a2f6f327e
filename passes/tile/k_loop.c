#include "passes/tile/k_loop.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"

// What differs between the CTAs that share a tile: fragments and shared memory.
static bool is_own_memory(const Expr *e, const void *unused) {
    (void)unused;
    return e->kind == EXPR_LOAD && e->load.buf->scope != SCOPE_GLOBAL;
}

bool each_cta_runs(const Stmt *stmt) {
    if (stmt->kind == STMT_LET) return !any_expr(stmt->let.value, is_own_memory, NULL);
    return stmt->kind == STMT_DECL || stmt->kind == STMT_ASSUME;
}

static bool fills_tile(const Stmt *stmt) {
    if (!is_call(stmt, OP_COPY)) return false;
    CopyOp copy = copy_of(stmt);
    return copy.dst->buf->scope == SCOPE_SHARED && copy.src->buf->scope == SCOPE_GLOBAL;
}

typedef struct Steps {
    Arena *arena;
    const Block *body;   // of the grid
    const Stmt *loop;
    const Buf *acc;
} Steps;

// What a step leaves in the buffer is read in that step alone.
static bool is_of_one_step(const Steps *steps, const Buf *buf) {
    return buf != steps->acc && buf->scope != SCOPE_GLOBAL && !loop_carries(steps->arena, steps->loop, buf) &&
           !is_read_behind(steps->arena, steps->body, steps->loop, buf);
}

// It computes operands of a step from tiles of that step and from tensors that nothing writes.
static bool makes_operand(const Steps *steps, const Stmt *stmt) {
    bool computes = is_bare_copy(stmt) || is_call(stmt, OP_FILL) || is_reduction(stmt) || is_loop(stmt, LOOP_PARALLEL);
    if (!computes || stmt_any_expr(stmt, has_effect, NULL)) return false;
    FOR_EACH_EFFECT (effect, steps->arena, stmt) {
        const Buf *buf = buf_root(effect->buf);
        bool reads = effect->access == ACCESS_READ;
        bool fixed = reads && (buf->scope == SCOPE_GLOBAL ? buf_is_constant(buf) : buf != steps->acc);
        if (!fixed && !is_of_one_step(steps, buf)) return false;
    }
    return true;
}

static bool multiplies_into(const Stmt *stmt, const Buf *acc) {
    GemmOp gemm;
    return match_gemm(stmt, &gemm) && !gemm.accumulate && gemm.acc->buf == acc;
}

// The loop does nothing but load, compute operands and multiply into one accumulator.
static bool loop_serves(Arena *arena, const Block *body, const Stmt *loop, KLoop *out) {
    const Iter *iter = &loop->loop.iters[0];
    const Stmt *product = block_first_call(&loop->loop.body, OP_GEMM);
    if (!product || loop->loop.count != 1 || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
    Steps steps = {arena, body, loop, gemm_of(product).acc->buf};
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (!each_cta_runs(stmt) && !fills_tile(stmt) && !multiplies_into(stmt, steps.acc) &&
            !makes_operand(&steps, stmt))
            return false;
    out->acc = gemm_of(product).acc->buf;
    return true;
}

static bool is_k_loop(Arena *arena, const Block *body, const Stmt *stmt, KLoop *out) {
    if (!is_loop(stmt, LOOP_PIPELINED)) return false;
    out->loc = stmt->loc;
    return loop_serves(arena, body, stmt, out);
}

const char *find_k_loop(Arena *arena, const Func *kernel, KLoop *out) {
    const Stmt *grid = func_grid(kernel);
    int zeroed = 0;
    *out = (KLoop){.loc = kernel->loc};
    if (!grid || kernel->stage != STAGE_TILE) return "it is for a grid of tile operations";
    if (func_cluster(kernel) > 1 || grid->grid.count > 2) return "it is for a grid of one or two dims whose CTAs do not reach each other";
    const Block *body = &grid->grid.body;
    while (out->loop < body->count && !is_k_loop(arena, body, body->items[out->loop], out)) out->loop++;
    if (out->loop == body->count)
        return "there is no `pipelined` loop from 0 that does nothing but load tiles, compute operands of a step and multiply them into one "
               "accumulator";
    for (int i = 0; i < out->loop; i++) {
        const Stmt *stmt = body->items[i];
        out->loc = stmt->loc;
        if (is_zero_fill(stmt) && fill_of(stmt).dst->buf == out->acc) zeroed++;
        else if (!each_cta_runs(stmt))
            return "a `fill` of 0 and names are all that it takes before the `pipelined` loop";
    }
    out->loc = body->items[out->loop]->loc;
    return zeroed == 1 ? NULL : "the accumulator does not begin with one `fill` of 0";
}
