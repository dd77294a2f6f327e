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
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/specialize/warp_specialize.h"

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

int64_t needed_registers(Arena *arena, const Target *target, const Func *kernel, int warpgroups) {
    LiveVec ranges = {0};
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind != STMT_DECL || stmt->decl->scope != SCOPE_FRAGMENT) continue;
        if (only_reductions_read(kernel, stmt->decl)) continue;
        LiveRange range = live_range(arena, &kernel->body, stmt->decl);
        vec_push(arena, &ranges, ((Live){range, buf_registers(target, stmt->decl, warpgroups)}));
    }
    return most_live(&ranges, &kernel->body);
}
