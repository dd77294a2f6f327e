// split-tiles, last part: a tile that a pipelined loop fills anew in each step, and that is used elsewhere for something else, becomes two.
//
//     copy(A2[i, 0], As);  gemm(As, Bs.T, acc);                     copy(A2[i, 0], As);  gemm(As, Bs.T, acc);
//     pipelined (k in steps, stages = 3) {                          pipelined (k in steps, stages = 3) {
//         copy(A[i, k * 64], As);                             =>        copy(A[i, k * 64], As_loop);
//         gemm(As, Bs.T, acc);                                          gemm(As_loop, Bs.T, acc);
//     }                                                             }
//     copy(R[i, j], As);                                            copy(R[i, j], As);
//
// The loop's tile has slots then, and a role loads it. So it is where no value of the tile goes into such a loop, from step to step or
// out of it, and shared memory has room for both. (Several loops have one ring.)
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/tile/tile.h"
#include "support/numbers.h"

enum { ROOM_FOR_BARRIERS = 2048 };

static bool is_plain(const Buf *buf) {
    bool one = buf->scope == SCOPE_SHARED && buf->rank > 1 && buf->stage_dims == 0;
    return one && buf_is_free(buf) && !buf->align && buf->offset < 0;
}

static bool has_alias(const Func *kernel, const Buf *buf) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL && stmt->decl != buf && buf_root(stmt->decl) == buf) return true;
    return false;
}

// The slots that a tile has: the stages of the longest loop that uses it.
static int64_t slots_of(Arena *arena, const Func *kernel, const Buf *buf) {
    int64_t slots = 1;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_pipelined(stmt) && loop_stages(stmt) > slots && stmt_touches(arena, stmt, buf))
            slots = loop_stages(stmt);
    return slots;
}

// For so many bytes more.
static bool has_room(Arena *arena, const Target *target, const Func *kernel, int64_t bytes) {
    bytes += ROOM_FOR_BARRIERS;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_shared_decl(stmt)) bytes += slots_of(arena, kernel, stmt->decl) * buf_slot_bytes(stmt->decl);
    return bytes <= target->shared_block;
}

// Its uses outside of pipelined loops.
static int other_uses(Arena *arena, const Func *kernel, const Buf *buf) {
    int uses = uses_of(arena, kernel, buf);
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_pipelined(stmt)) continue;
        uses -= uses_of(arena, &(Func){.body = stmt->loop.body}, buf);
        SKIP_BODY(stmt);
    }
    return uses;
}

// Each step of each pipelined loop gives the tile a value of its own, which nothing else uses. *bytes: of what the loops need then.
static bool is_two_tiles(Arena *arena, const Func *kernel, const Buf *buf, int64_t *bytes) {
    *bytes = 0;
    FOR_EACH_STMT (loop, &kernel->body) {
        if (!is_pipelined(loop) || !stmt_touches(arena, loop, buf)) continue;
        if (loop_carries(arena, loop, buf) || is_read_behind(arena, &kernel->body, loop, buf)) return false;
        *bytes = larger(*bytes, loop_stages(loop) * buf_slot_bytes(buf));
        SKIP_BODY(loop);
    }
    return *bytes > 0 && other_uses(arena, kernel, buf) > 0;
}

static void give_loops_their_own(Arena *arena, Func *kernel, Block *block, int at) {
    const Buf *buf = block->items[at]->decl;
    const char *name = arena_printf(arena, "%s_loop", buf->name);
    Buf *own = buf_new(arena, name, buf->scope, buf->type, buf->rank, buf->shape, buf->loc);
    Subst *subst = subst_new(arena);
    own->made_of = (Buf *)buf;
    subst_buf(subst, buf, own);
    FOR_EACH_STMT_MUT (loop, &kernel->body) {
        if (!is_pipelined(loop)) continue;
        subst_block(subst, &loop->loop.body);
        SKIP_BODY(loop);
    }
    block_insert(arena, block, at + 1, s_decl(arena, own));
}

bool split_loop_tiles(Arena *arena, const Target *target, Func *kernel) {
    Stmt *grid = (Stmt *)func_grid(kernel);
    bool changed = false;
    if (!grid || grid_cluster(grid) > 1) return false;   // (other CTAs may write the tile)
    for (int i = 0; i < grid->grid.body.count; i++) {
        const Stmt *decl = grid->grid.body.items[i];
        int64_t bytes;
        if (!is_shared_decl(decl) || !is_plain(decl->decl) || has_alias(kernel, decl->decl)) continue;
        if (!is_two_tiles(arena, kernel, decl->decl, &bytes) || !has_room(arena, target, kernel, bytes)) continue;
        give_loops_their_own(arena, kernel, &grid->grid.body, i);
        changed = true;
    }
    return changed;
}
