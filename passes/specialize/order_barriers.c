// Order barriers between cooperative consumer warpgroups: the MMAs of one warpgroup overlap the other work of the
// others.
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
// Without order barriers all warpgroups start their MMAs at the same time and then compute at the same time, while the
// tensor cores are idle. An ordered section is short: it only starts MMAs. Only the first warpgroup waits for a tile
// (`@leader`); the order barrier makes the result of its wait visible to the others.
//
// A loop gets an ordered section when each iteration has one row of MMAs, one of them of another iteration
// (mma_pipelining.c), and other work on fragments. The prologue of such a loop gets one, too. All warpgroups have the
// same control flow, so they execute equally many ordered sections.
#include "passes/specialize/builder.h"

typedef struct Row {   // consecutive MMAs, with the waits for their tiles
    int begin, end;
    int rows;       // in the block
    int products;   // in the last row
} Row;

static bool is_started(const Stmt *stmt) {
    return is_wgmma(stmt) && stmt->call.is_async;
}

static bool has_product(const Stmt *stmt, void *user) {
    (void)user;
    return is_wgmma(stmt);
}

static bool is_work(const Stmt *stmt) {
    return is_loop(stmt, LOOP_PARALLEL) || is_reduction(stmt);
}

static bool only_waits(const Block *block, int from, int to) {
    while (from < to && is_call(block->items[from], OP_MBARRIER_WAIT)) from++;
    return from == to;
}

// Exactly one row, directly in the block, followed by other work.
static bool find_row(const Block *block, Row *row) {
    bool works = false;
    *row = (Row){0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (!is_started(stmt)) {
            if (stmt_any(block->items[i], has_product, NULL)) return false;
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
    EXPECT(arena_failure(arena), row->begin < row->end && row->end <= block->count, "a row of MMAs from %d to %d of %d",
           row->begin, row->end, block->count);
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
        Row row, first;
        bool loop = is_loop(stmt, LOOP_SERIAL);
        if (is_loop(stmt, LOOP_PARALLEL)) continue;
        if (!loop || !find_row(&stmt->loop.body, &row) || row.products < 2) {
            FOR_EACH_BODY (inner, stmt) insert_order_barriers(arena, inner);
            continue;
        }
        Stmt *prologue = i > 0 && block->items[i - 1]->kind == STMT_BLOCK ? block->items[i - 1] : NULL;
        if (!prologue || !find_row(&prologue->block, &first)) continue;   // no MMA is of another iteration
        surround(arena, &prologue->block, &first);
        surround(arena, &stmt->loop.body, &row);
    }
}
