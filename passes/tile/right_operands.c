// Right operands in registers get a tile in shared memory, where wgmma reads them.
//
//     fragment w: bf16[64, 64];                     fragment w: bf16[64, 64];
//     parallel (r in 64, c in 64) w[r, c] = ..;     shared w_tile: bf16[64, 64];
//     gemm(Xs, w, acc);                       =>    parallel (r in 64, c in 64) w[r, c] = ..;
//                                                   copy(w, w_tile);
//                                                   gemm(Xs, w_tile, acc);
//
// mma.sync has such operands from shared memory, too, by a copy that stage-through-shared adds. That is too late for roles and
// for MMAs in flight, which have to know what writes their operands. So this is for kernels all of whose products can
// be wgmma afterwards.
#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"
#include "passes/tile/tile.h"

static bool is_right_operand(const Func *kernel, const Buf *buf) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (match_gemm(stmt, &gemm) && gemm.b->buf == buf) return true;
    }
    return false;
}

// The tiles' contents are those of the fragment still: nothing has changed it since.
static bool is_copied(Arena *arena, const Block *before, const Buf *fragment, const Buf *tile) {
    for (int i = before->count - 1; i >= 0; i--) {
        const Stmt *stmt = before->items[i];
        if (is_call(stmt, OP_COPY) && copy_of(stmt).dst->buf == tile) return true;
        if (stmt_touches(arena, stmt, tile) && !is_call(stmt, OP_GEMM)) return false;
        if (stmt_writes(arena, stmt, fragment)) return false;
    }
    return false;
}

static void to_tile(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *a = mapper->arena;
    Map *tiles = mapper->user;
    GemmOp gemm;
    Buf *fragment = match_gemm(stmt, &gemm) ? gemm.b->buf : NULL, *tile = fragment ? map_get(tiles, fragment) : NULL;
    if (tile) {
        if (!is_copied(a, out, fragment, tile))
            block_push(a, out, s_copy(a, region_whole(a, fragment), region_whole(a, tile), stmt->loc));
        Region *operand = clone_region(a, NULL, gemm.b);
        operand->buf = tile;
        ARG(stmt, GEMM, b) = arg_region(operand);
        mapper->changed = true;
    }
    block_push(a, out, stmt);
    if (stmt->kind == STMT_DECL && (tile = map_get(tiles, stmt->decl))) block_push(a, out, s_decl(a, tile));
}

static bool multiplies_by_wgmma(Arena *arena, const Target *target, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        WgmmaInfo info;
        if (is_call(stmt, OP_GEMM) && wgmma_problem(arena, target, stmt, &info)) return false;
    }
    return true;
}

bool right_operands_to_shared(Arena *arena, const Target *target, Func *kernel) {
    Map *tiles = map_new(arena);
    FOR_EACH_STMT (stmt, &kernel->body) {
        const Buf *buf = stmt->kind == STMT_DECL ? stmt->decl : NULL;
        if (!buf || buf->scope != SCOPE_FRAGMENT || buf->rank != 2 || !is_right_operand(kernel, buf)) continue;
        const char *name = arena_printf(arena, "%s_tile", buf->name);
        map_put(tiles, buf, buf_new(arena, name, SCOPE_SHARED, buf->type, 2, buf->shape, buf->loc));
    }
    StmtMapper mapper = {.arena = arena, .stmt = to_tile, .user = tiles};
    return map_count(tiles) > 0 && rewrite_block(&mapper, &kernel->body) && multiplies_by_wgmma(arena, target, kernel);
}

bool has_right_fragments(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_call(stmt, OP_GEMM) && gemm_of(stmt).b->buf->scope == SCOPE_FRAGMENT) return true;
    return false;
}
