// Live ranges of fragments, in statements of a block.
#include "passes/analysis/live_ranges.h"
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"

bool is_compound(const Stmt *stmt) {
    Block *bodies[2];
    return !is_loop(stmt, LOOP_PARALLEL) && stmt_bodies((Stmt *)stmt, bodies) > 0;
}

static const Stmt *first_use(Arena *arena, const Block *block, const Buf *buf) {
    FOR_EACH_ITEM (stmt, block)
        if (stmt->kind != STMT_DECL && stmt_touches(arena, stmt, buf)) return stmt;
    return NULL;
}

static bool is_first_product(const Stmt *stmt, const Buf *acc) {   // gemm(.., acc, accumulate = false)
    if (!is_call(stmt, OP_GEMM) || gemm_of(stmt).acc->buf != acc) return false;
    const Expr *accumulate = ARG(stmt, GEMM, accumulate).value;
    return accumulate && expr_is_int(accumulate, 0);
}

// The loop's variable by which the index goes over the whole dim.
static const Var *over_dim(const Stmt *loop, const Expr *index, int64_t extent) {
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (expr_is_var(index, iter->var) && iter_is_plain(iter) && expr_is_int(iter->end, extent)) return iter->var;
    }
    return NULL;
}

static bool is_store_to_all(const Stmt *loop, const Stmt *store, const Buf *buf) {
    if (store->kind != STMT_STORE || store->store.buf != buf) return false;
    for (int d = 0; d < store->store.count; d++) {
        const Var *var = over_dim(loop, store->store.indices[d], buf_extent(buf, d));
        if (!var) return false;
        for (int e = 0; e < d; e++)
            if (expr_is_var(store->store.indices[e], var)) return false;
    }
    return true;
}

// The iterations of the parallel loop store every element.
static bool stores_all(const Stmt *loop, const Block *block, const Buf *buf) {
    FOR_EACH_ITEM (stmt, block) {
        if (is_store_to_all(loop, stmt, buf)) return true;
        if (stmt->kind == STMT_IF && stores_all(loop, &stmt->if_.then, buf) &&
            stores_all(loop, &stmt->if_.otherwise, buf))
            return true;
    }
    return false;
}

typedef struct Reach {   // of the value that a fragment has at first
    Arena *arena;
    const Buf *buf;
    bool read;   // something reads it
} Reach;

// The statement, which is no compound, leaves none of the value.
static bool replaces(const Reach *reach, const Stmt *stmt) {
    if (is_loop(stmt, LOOP_PARALLEL)) return stores_all(stmt, &stmt->loop.body, reach->buf);
    if (is_first_product(stmt, reach->buf)) return region_is_whole(gemm_of(stmt).acc);
    FOR_EACH_EFFECT (effect, reach->arena, stmt)
        if (effect->buf == reach->buf && effect->region && region_is_whole(effect->region)) return true;
    return false;
}

static void note_reads(Reach *reach, const Stmt *stmt) {
    if (is_first_product(stmt, reach->buf)) return;
    FOR_EACH_EFFECT (effect, reach->arena, stmt)
        reach->read |= effect->buf == reach->buf && effect->access != ACCESS_WRITE;
}

// Whether the value may still be there behind the block.
static bool passes_block(Reach *reach, const Block *block);

static bool passes(Reach *reach, const Stmt *stmt) {
    Stmt alone = is_compound(stmt) ? stmt_alone(stmt) : *stmt;
    note_reads(reach, &alone);
    if (!is_compound(stmt)) return !replaces(reach, stmt);
    if (stmt->kind == STMT_IF) {
        bool then = passes_block(reach, &stmt->if_.then);
        return passes_block(reach, &stmt->if_.otherwise) || then;
    }
    bool behind = stmt->kind != STMT_BLOCK;   // (a loop may have no round)
    FOR_EACH_BODY (body, stmt) behind |= passes_block(reach, body);
    return behind;
}

static bool passes_block(Reach *reach, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_DECL || !stmt_touches(reach->arena, stmt, reach->buf)) continue;
        if (!passes(reach, stmt)) return false;
    }
    return true;
}

bool loop_carries(Arena *arena, const Stmt *loop, const Buf *buf) {
    Reach reach = {arena, buf, false};
    passes(&reach, loop);
    return reach.read;
}

// Follows the value that `stmt` leaves to the end of the block. Out: `found`: it is in the block; whether the value may still be there.
static bool follows(Reach *reach, const Block *block, const Stmt *stmt, bool *found) {
    bool there = false;
    FOR_EACH_ITEM (item, block) {
        if (*found) {
            if (!stmt_touches(reach->arena, item, reach->buf) || item->kind == STMT_DECL) continue;
            if (!passes(reach, item)) return false;
            continue;
        }
        *found = there = item == stmt;
        if (*found) continue;
        FOR_EACH_BODY (body, item)
            if (!*found) there = follows(reach, body, stmt, found);
        if (!*found) continue;
        bool repeats = item->kind == STMT_FOR || item->kind == STMT_WHILE;
        FOR_EACH_BODY (body, item) there |= repeats && block_breaks(body);   // (with the value, perhaps)
        if (there && repeats) passes(reach, item);                           // the next round
        if (!there) return false;
    }
    return there;
}

// peer(x[..], rank): another CTA, which may be anywhere, reads the buffer.
static bool reads_peer(const Expr *e, const void *buf) {
    return e->kind == EXPR_CALL && e->call.op == OP_PEER && expr_uses_buf(e, buf);
}

bool is_read_behind(Arena *arena, const Block *block, const Stmt *stmt, const Buf *buf) {
    Reach reach = {arena, buf, block_any_expr(block, reads_peer, buf)};
    bool found = false;
    follows(&reach, block, stmt, &found);
    return reach.read;
}

int uses_of(Arena *arena, const Func *kernel, const Buf *buf) {
    int uses = 0;
    FOR_EACH_STMT (stmt, &kernel->body) {
        Stmt alone = is_compound(stmt) ? stmt_alone(stmt) : *stmt;
        if (stmt->kind != STMT_DECL) uses += stmt_touches(arena, &alone, buf);
        if (is_loop(stmt, LOOP_PARALLEL)) SKIP_BODY(stmt);
    }
    return uses;
}

LiveRange live_range(Arena *arena, const Block *block, const Buf *buf) {
    LiveRange live = {.first = -1};
    for (int i = 0; i < block->count; i++) {
        if (block->items[i]->kind == STMT_DECL || !stmt_touches(arena, block->items[i], buf)) continue;
        if (live.first < 0) live.first = i;
        live.last = i;
        live.block = block;
    }
    if (live.first < 0 || live.first != live.last || !is_compound(block->items[live.first])) return live;
    const Stmt *only = block->items[live.first];
    bool repeats = only->kind == STMT_FOR || only->kind == STMT_WHILE;
    if (repeats && loop_carries(arena, only, buf)) return live;
    int bodies = 0;
    LiveRange inner = live;
    FOR_EACH_BODY (body, only) {
        if (!first_use(arena, body, buf)) continue;
        inner = live_range(arena, body, buf);
        bodies++;
    }
    return bodies == 1 ? inner : live;
}

int64_t most_live(const LiveVec *ranges, const Block *block) {
    int64_t most = 0;
    for (int i = 0; i < block->count; i++) {
        int64_t here = 0, inner = 0;
        VEC_EACH (const Live, live, ranges) {
            const LiveRange *range = &live->range;
            if (range->block == block && range->first <= i && i <= range->last) here += live->registers;
        }
        FOR_EACH_BODY (body, block->items[i]) {
            int64_t in_body = is_compound(block->items[i]) ? most_live(ranges, body) : 0;
            if (in_body > inner) inner = in_body;
        }
        if (here + inner > most) most = here + inner;
    }
    return most;
}
