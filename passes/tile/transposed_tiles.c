// Tiles that are transposed as they are loaded are loaded as they lie, if all that reads them are products:
//
//     shared As: bf16[128, 64];                              shared As: bf16[64, 128];
//     copy(A[k * 64 +: 64, i * 128 +: 128].T, As);       =>  copy(A[k * 64 +: 64, i * 128 +: 128], As);
//     gemm(As, Bs, acc);                                     gemm(As.T, Bs, acc);
//
// The instructions of tensor cores read 16-bit operands either way, and a role transposes tiles of bytes for them
// (operand_tiles.c), where TMA and cp.async move only what lies together.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

static bool is_flipped(const Stmt *stmt, const Buf *tile) {
    if (!is_global_to_shared_copy(stmt) || stmt->call.is_async || stmt->attrs) return false;
    CopyOp copy = copy_of(stmt);
    return copy.dst->buf == tile && copy.src->transposed != copy.dst->transposed && !copy.bar;
}

static bool loads_tile(const Expr *expr, const void *tile) {
    return expr->kind == EXPR_LOAD && expr->load.buf == tile;
}

// All uses are transposed loads, at least one, fills, and operands of products.
static bool can_flip(Arena *arena, const Func *kernel, const Buf *tile) {
    int loads = 0, products = 0;
    bool free = tile->scope == SCOPE_SHARED && buf_is_free(tile) && tile->rank == 2 && type_is_float(tile->type) &&
                type_bits(tile->type) <= 16;
    if (!free) return false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        Stmt alone = stmt_alone(stmt);
        if (stmt->kind == STMT_DECL && stmt->decl->alias_of == tile) return false;
        if (stmt->kind == STMT_DECL || !stmt_touches(arena, &alone, tile)) continue;
        GemmOp gemm;
        bool multiplies = match_gemm(stmt, &gemm) && gemm.acc->buf != tile;
        bool flips = is_flipped(stmt, tile);
        if (!multiplies && !flips && !is_zero_fill(stmt)) return false;
        if (stmt->attrs || stmt_any_own_expr(stmt, loads_tile, tile)) return false;
        for (int i = 0; i < stmt->call.count; i++) {
            const Region *region = call_region(stmt, i);
            if (region && region->buf == tile && region_rank(region) != 2) return false;
        }
        products += multiplies;
        loads += flips;
    }
    return loads > 0 && products > 0;
}

typedef struct Flip {
    const Buf *from;
    Buf *to;
} Flip;

static void flip_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const Flip *flip = mapper->user;
    Arena *a = mapper->arena;
    if (stmt->kind == STMT_DECL && stmt->decl == flip->from) stmt->decl = flip->to;
    bool loads = is_flipped(stmt, flip->from);
    for (int i = 0; stmt->kind == STMT_CALL && i < stmt->call.count; i++) {
        const Region *region = call_region(stmt, i);
        if (!region || region->buf != flip->from) continue;
        RegionDim dims[] = {region->dims[1], region->dims[0]};
        bool transposed = is_call(stmt, OP_GEMM) ? !region->transposed : false;
        call_set_arg(a, stmt, i, arg_region(region_new(a, flip->to, dims, transposed, region->loc)));
    }
    if (loads) {
        Region *src = clone_region(a, NULL, call_region(stmt, 0));
        src->transposed = false;
        stmt = s_copy(a, src, call_region(stmt, 1), stmt->loc);
    }
    block_push(a, out, stmt);
}

bool load_as_stored(Arena *arena, Func *kernel) {
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (stmt->kind != STMT_DECL || !can_flip(arena, kernel, stmt->decl)) continue;
        Buf *tile = stmt->decl;
        Expr *shape[] = {tile->shape[1], tile->shape[0]};
        Flip flip = {tile, buf_new(arena, tile->name, SCOPE_SHARED, tile->type, 2, shape, tile->loc)};
        rewrite_block(&(StmtMapper){.arena = arena, .stmt = flip_stmt, .user = &flip}, &kernel->body);
        load_as_stored(arena, kernel);
        return true;
    }
    return false;
}
