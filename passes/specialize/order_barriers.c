// Warpgroups that work on one point together take turns at the tensor cores, so that the products of one run beside what the
// others do between theirs.
//
//     mbarrier_wait(Ks_full[i], ..)         @leader mbarrier_wait(Ks_full[i], ..)
//     async gemm(Qs, Ks[i].T, s)            order_acquire()
//     mbarrier_wait(Vs_full[j], ..)         async gemm(Qs, Ks[i].T, s)
//     async gemm(p, Vs[j], o)         =>    @leader mbarrier_wait(Vs_full[j], ..)
//     wgmma_wait(1)                         async gemm(p, Vs[j], o)
//     softmax of s                          order_release()
//                                           wgmma_wait(1)
//                                           softmax of s
//
// Without turns all of them multiply, and then all of them compute: the tensor cores wait. A turn is short: products are only
// started in it. What the first warpgroup has waited for the others know by their turns (`@leader`), so that one of them asks.
//
// A loop takes turns when each of its iterations has one row of products, of which one is another iteration's (mma_pipelining.c),
// and work on fragments besides; and so does the first iteration, where it stands before the loop. Every warpgroup goes through
// the same control flow, so they have equally many turns.
#include "ir/build.h"
#include "passes/specialize/builder.h"

typedef struct Row {   // of products that follow each other, with waits for their tiles
    int begin, end;
    int rows;       // in the block
    int products;   // in the last one
} Row;

static bool is_started(const Stmt *stmt) {
    return is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA) && stmt->call.is_async;
}

static bool has_product(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA);
}

static bool is_work(const Stmt *stmt) {
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) return true;
    return is_reduction(stmt);
}

static bool only_waits(const Block *block, int from, int to) {
    while (from < to && is_call(block->items[from], OP_MBARRIER_WAIT)) from++;
    return from == to;
}

// One row, directly in the block, with work behind it.
static bool find_row(const Block *block, Row *row) {
    bool works = false;
    *row = (Row){0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block one = {.items = &block->items[i], .count = 1, .capacity = 1};
        if (!is_started(stmt)) {
            if (block_any(&one, has_product, NULL)) return false;
            works |= row->rows > 0 && is_work(stmt);
            continue;
        }
        if (row->rows == 0 || !only_waits(block, row->end, i)) row->rows++, row->begin = i;
        row->end = i + 1;
        row->products++;
    }
    return row->rows == 1 && works;
}

static Stmt *order_call(Arena *arena, OpId op, const Stmt *gemm) {
    Stmt *call = s_call(arena, op, 0, NULL);
    call->loc = gemm->loc;
    return call;
}

static void surround(Arena *arena, Block *block, const Row *row) {
    const Stmt *gemm = block->items[row->begin];
    int from = row->begin;
    while (from > 0 && is_call(block->items[from - 1], OP_MBARRIER_WAIT)) from--;
    for (int i = from; i < row->end; i++)
        if (is_call(block->items[i], OP_MBARRIER_WAIT))
            attr_set_ints(arena, &block->items[i]->attrs, ATTR_LEADER, 0, NULL);
    block_insert(arena, block, row->end, order_call(arena, OP_ORDER_RELEASE, gemm));
    block_insert(arena, block, row->begin, order_call(arena, OP_ORDER_ACQUIRE, gemm));
}

void insert_order_barriers(Arena *arena, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        Row row, first;
        bool loop = stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_SERIAL;
        if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) continue;
        if (!loop || !find_row(&stmt->loop.body, &row) || row.products < 2) {
            for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) insert_order_barriers(arena, bodies[b]);
            continue;
        }
        Stmt *before = i > 0 ? block->items[i - 1] : NULL;
        if (before && before->kind == STMT_BLOCK && find_row(&before->block, &first))
            surround(arena, &before->block, &first);
        surround(arena, &stmt->loop.body, &row);
    }
}
