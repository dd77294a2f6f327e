// Registers that fragments need at a time, for a kernel that warpgroups share.
//
// A fragment that is written before it is read, in each round of a loop, is live from there to its last use in the round;
// its registers serve others before and behind:
//
//     pipelined (n in steps) {
//         copy(G[n * 64, 0], g);               g
//         parallel (..) up[..] = exp(g[..]);   g up
//         copy(up, left);                        up left
//         gemm(left, Ks.T, acc);                    left acc     (acc is live throughout: the next round adds to it)
//     }
//
// What only reductions read is reduced while it is computed, and has no registers of its own.
//
// Of several tiles, one with room for all fragments is the better one. So this is for kernels whose tile the source gives.
#include "passes/analysis/util.h"
#include "passes/specialize/warp_specialize.h"

typedef struct Live {
    const Block *block;   // NULL: nothing uses it
    int first, last;      // statements of the block
    int64_t registers;
} Live;

typedef VEC(Live) LiveVec;

static bool is_compound(const Stmt *stmt) {
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

// The fragment has no value from before the statement.
static bool defines(Arena *arena, const Stmt *stmt, const Buf *buf) {
    if (is_compound(stmt)) {
        FOR_EACH_BODY (body, stmt) {
            const Stmt *first = first_use(arena, body, buf);
            if (first && !defines(arena, first, buf)) return false;
        }
        return true;
    }
    if (is_first_product(stmt, buf)) return true;
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->buf == buf && effect->access != ACCESS_WRITE) return false;
    return true;
}

static Live live_in(Arena *arena, const Block *block, const Buf *buf) {
    Live live = {.first = -1};
    for (int i = 0; i < block->count; i++) {
        if (block->items[i]->kind == STMT_DECL || !stmt_touches(arena, block->items[i], buf)) continue;
        if (live.first < 0) live.first = i;
        live.last = i;
        live.block = block;
    }
    if (live.first < 0 || live.first != live.last || !is_compound(block->items[live.first])) return live;
    const Stmt *only = block->items[live.first];
    bool repeats = only->kind == STMT_FOR || only->kind == STMT_WHILE;
    if (repeats && !defines(arena, only, buf)) return live;
    int bodies = 0;
    Live inner = live;
    FOR_EACH_BODY (body, only) {
        if (!first_use(arena, body, buf)) continue;
        inner = live_in(arena, body, buf);
        bodies++;
    }
    return bodies == 1 ? inner : live;
}

static bool reads_fragment(const Expr *expr, const void *buf) {
    return expr->kind == EXPR_LOAD && expr->load.buf == buf;
}

static bool only_reductions_read(const Func *kernel, const Buf *buf) {
    bool reduced = false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        Stmt alone = stmt_alone(stmt);
        if (stmt_any_own_expr(&alone, reads_fragment, buf)) return false;
        if (stmt->kind != STMT_CALL) continue;
        for (int i = 0; i < stmt->call.count; i++) {
            const Region *region = stmt->call.args[i].region;
            if (!region || region->buf != buf) continue;
            if (!is_reduction(stmt) || i > 0) return false;
            reduced = true;
        }
    }
    return reduced;
}

static int64_t most_live(const LiveVec *ranges, const Block *block) {
    int64_t most = 0;
    for (int i = 0; i < block->count; i++) {
        int64_t here = 0, inner = 0;
        VEC_EACH (const Live, live, ranges)
            if (live->block == block && live->first <= i && i <= live->last) here += live->registers;
        FOR_EACH_BODY (body, block->items[i]) {
            int64_t in_body = is_compound(block->items[i]) ? most_live(ranges, body) : 0;
            if (in_body > inner) inner = in_body;
        }
        if (here + inner > most) most = here + inner;
    }
    return most;
}

static int64_t live_registers(Arena *arena, const Target *target, const Func *kernel, int warpgroups) {
    LiveVec ranges = {0};
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT) continue;
        if (only_reductions_read(kernel, stmt->decl)) continue;
        Live live = live_in(arena, &kernel->body, stmt->decl);
        live.registers = buf_registers(target, stmt->decl, warpgroups);
        vec_push(arena, &ranges, live);
    }
    return most_live(&ranges, &kernel->body);
}

int64_t needed_registers(Arena *arena, const Target *target, const Func *kernel, int warpgroups) {
    bool chosen = attr_get(kernel->attrs, ATTR_TUNED) != NULL;
    return chosen ? fragment_registers(target, kernel, warpgroups) : live_registers(arena, target, kernel, warpgroups);
}
