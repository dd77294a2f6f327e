// start-products: a product starts before work that it does not wait for.
//
//     copy(starts, column);                               fill(s, 0);
//     parallel (i in 64) gain[i] = exp2(column[i]);       gemm(Qs, Ks.T, s);
//     fill(s, 0);                                   =>    copy(starts, column);
//     gemm(Qs, Ks.T, s);                                  parallel (i in 64) gain[i] = exp2(column[i]);
//     parallel (i in 64, j in 64) s[i, j] *= gain[i];     parallel (i in 64, j in 64) s[i, j] *= gain[i];
//
// In a role that computes, products are asynchronous (async_mma.c): they start where they stand, and the threads work on
// until something needs the result. So the source's order of independent statements does not matter. Products keep their
// order, and loads theirs: both are counted. What makes an operand of another product stays ahead of it, too (a chunk scan that
// copies its state to shared memory: 0.87 of the speed).
#include "ir/match.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/warp_specialize.h"

// The statement writes an operand of a product of the block: that one waits for it.
static bool makes_operand(Arena *arena, const Stmt *stmt, const Block *block) {
    FOR_EACH_ITEM (product, block) {
        GemmOp gemm;
        if (!match_gemm(product, &gemm)) continue;
        if (stmt_writes(arena, stmt, gemm.a->buf) || stmt_writes(arena, stmt, gemm.b->buf)) return true;
    }
    return false;
}

// Work of threads that changes nothing that the product reads, needs none of its registers, and that no product waits for.
static bool may_come_after(Arena *arena, const Stmt *stmt, const Stmt *product, const Block *block) {
    bool works = is_loop(stmt, LOOP_PARALLEL) || is_reduction(stmt) || is_call(stmt, OP_COPY);
    if (!works || loaded_tile(stmt) || stmt_touches(arena, stmt, gemm_of(product).acc->buf)) return false;
    FOR_EACH_EFFECT (effect, arena, product)
        if (stmt_writes(arena, stmt, effect->buf)) return false;
    return !makes_operand(arena, stmt, block);
}

static bool zeroes(const Stmt *stmt, const Buf *acc) {
    return is_zero_fill(stmt) && fill_of(stmt).dst->buf == acc;
}

// Moves the product, with a fill right before it; returns where it stands then.
static int move_up(Arena *arena, Block *block, int at) {
    const Stmt *product = block->items[at];
    int first = at > 0 && zeroes(block->items[at - 1], gemm_of(product).acc->buf) ? at - 1 : at, to = first;
    while (to > 0 && may_come_after(arena, block->items[to - 1], product, block)) to--;
    for (int moved = first; moved <= at && to < first; moved++) {
        Stmt *stmt = block->items[moved];
        block_remove(block, moved);
        block_insert(arena, block, to + moved - first, stmt);
    }
    return to + at - first;
}

static bool start_early(Arena *arena, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) changed |= start_early(arena, body);
        if (!is_call(stmt, OP_GEMM) || !via_is(stmt, VIA_WGMMA)) continue;
        int to = i, next;
        while ((next = move_up(arena, block, to)) < to) to = next;   // a fill may then be right before it
        changed |= to < i;
    }
    return changed;
}

bool pass_start_products(PassContext *context, Func *kernel) {
    if (planned_kind(kernel) != WS_COOPERATIVE) return false;
    return start_early(context->arena, &((Stmt *)func_grid(kernel))->grid.body);
}
