#include "passes/tile/k_loop.h"
#include "ir/build.h"
#include "ir/match.h"
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

// The loop does nothing but copy and multiply into one accumulator.
static bool loop_serves(const Stmt *loop, KLoop *out) {
    const Iter *iter = &loop->loop.iters[0];
    if (loop->loop.count != 1 || !expr_is_int(iter->begin, 0) || !expr_is_int(iter->step, 1)) return false;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        GemmOp gemm;
        if ((each_cta_runs(stmt) && stmt->kind != STMT_DECL) || fills_tile(stmt)) continue;
        if (!match_gemm(stmt, &gemm) || gemm.accumulate || (out->acc && out->acc != gemm.acc->buf)) return false;
        out->acc = gemm.acc->buf;
    }
    return out->acc != NULL;
}

static bool is_k_loop(const Stmt *stmt, KLoop *out) {
    out->acc = NULL;
    if (!is_loop(stmt, LOOP_PIPELINED)) return false;
    out->loc = stmt->loc;
    return loop_serves(stmt, out);
}

const char *find_k_loop(const Func *kernel, KLoop *out) {
    const Stmt *grid = func_grid(kernel);
    int zeroed = 0;
    *out = (KLoop){.loc = kernel->loc};
    if (!grid || kernel->stage != STAGE_TILE) return "it is for a grid of tile operations";
    if (func_cluster(kernel) > 1 || grid->grid.count > 2) return "it is for a grid of one or two dims without clusters";
    const Block *body = &grid->grid.body;
    while (out->loop < body->count && !is_k_loop(body->items[out->loop], out)) out->loop++;
    if (out->loop == body->count) return "there is no `pipelined` loop from 0 of copies to shared memory and one gemm";
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
