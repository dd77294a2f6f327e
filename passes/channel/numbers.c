// Which number a slot has.
//
//     for (s in 2) produce ring { .. }         s
//     for (k in n) {
//         consume ring { .. }                  k
//         produce ring { .. }                  2 + k
//     }
//     produce ring { .. }                      2 + n
//
// A loop that begins the same number of slots in each iteration continues the count; a condition around one, or a loop
// inside another whose counts before are not known, ends it. Then the kernel counts for itself.
#include "passes/channel/numbers.h"
#include "ir/build.h"
#include "ir/query.h"

typedef struct Numbers {
    Arena *arena;
    EndTest *is_end;
    void *user;
    Map *numbers;
    bool failed;
} Numbers;

static bool has_end(const Numbers *n, const Stmt *stmt) {
    return stmt_any(stmt, n->is_end, n->user);
}

static int64_t count_in(const Numbers *n, const Block *block);

// Of a statement; -1: not always as many.
static int64_t count_of(const Numbers *n, const Stmt *stmt) {
    if (n->is_end(stmt, n->user)) return 1;
    if (!has_end(n, stmt)) return 0;
    if (stmt->kind == STMT_BLOCK) return count_in(n, &stmt->block);
    if (stmt->kind == STMT_IF) {
        int64_t count = count_in(n, &stmt->if_.then);
        return count == count_in(n, &stmt->if_.otherwise) ? count : -1;
    }
    if (stmt->kind != STMT_FOR || stmt->loop.count != 1) return -1;
    int64_t trips = iter_count(stmt->loop.iters), each = count_in(n, &stmt->loop.body);
    return trips < 0 || each < 0 || block_breaks(&stmt->loop.body) ? -1 : trips * each;
}

static int64_t count_in(const Numbers *n, const Block *block) {
    int64_t count = 0;
    FOR_EACH_ITEM (stmt, block) {
        int64_t some = count_of(n, stmt);
        if (some < 0) return -1;
        count += some;
    }
    return count;
}

static Expr *number_block(Numbers *n, const Block *block, Expr *before);

// Returns the count behind the loop.
static Expr *number_loop(Numbers *n, const Stmt *loop, Expr *before) {
    const Iter *iter = loop->loop.iters;
    int64_t each = count_in(n, &loop->loop.body);
    bool counted = loop->kind == STMT_FOR && loop->loop.count == 1 && expr_is_int(iter->step, 1) && each >= 0;
    if (!counted || !expr_is_stable(iter->begin) || !expr_is_stable(iter->end)) {
        n->failed = true;
        return before;
    }
    Arena *a = n->arena;
    Expr *at = e_sub(a, e_var(a, iter->var), iter->begin);
    number_block(n, &loop->loop.body, e_add(a, e_times(a, at, each), before));
    // A loop that breaks, or that is in another one, may have had fewer.
    return block_breaks(&loop->loop.body) ? NULL : e_add(a, e_times(a, iter_trips(a, iter), each), before);
}

static Expr *number_stmt(Numbers *n, const Stmt *stmt, Expr *before) {
    if (!before) n->failed = true;
    if (n->failed) return before;
    Arena *a = n->arena;
    if (n->is_end(stmt, n->user)) {
        map_put(n->numbers, stmt, before);
        return e_add(a, before, e_int(a, 1));
    }
    if (stmt->kind == STMT_BLOCK) return number_block(n, &stmt->block, before);
    if (stmt->kind == STMT_IF && count_of(n, stmt) >= 0) {
        number_block(n, &stmt->if_.otherwise, before);
        return number_block(n, &stmt->if_.then, before);
    }
    if (stmt->kind == STMT_FOR) return number_loop(n, stmt, before);
    n->failed = true;
    return before;
}

static Expr *number_block(Numbers *n, const Block *block, Expr *before) {
    FOR_EACH_ITEM (stmt, block)
        if (has_end(n, stmt)) before = number_stmt(n, stmt, before);
    return before;
}

Map *slot_numbers(Arena *arena, const Block *body, EndTest *is_end, void *user) {
    Numbers n = {arena, is_end, user, map_new(arena), false};
    number_block(&n, body, e_int(arena, 0));
    return n.failed ? NULL : n.numbers;
}
