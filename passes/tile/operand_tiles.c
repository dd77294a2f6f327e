// Operands that wgmma cannot read as they are. Bytes that multiply 16-bit elements are converted in registers, exactly:
//
//     gemm(As, Ws.T, acc);                          copy(Ws, w);                  fragment w: bf16[64, 64]
//                                             =>    gemm(As, w.T, acc);
//
// Right operands in registers, and bytes that are not contiguous along k, get a tile in shared memory:
//
//     fragment w: bf16[64, 64];                     fragment w: bf16[64, 64];
//     parallel (r in 64, c in 64) w[r, c] = ..;     shared w_tile: bf16[64, 64];
//     gemm(Xs, w, acc);                       =>    parallel (r in 64, c in 64) w[r, c] = ..;
//                                                   copy(w, w_tile);
//                                                   gemm(Xs, w_tile, acc);
//
//     copy(B[k * 64, j * 128], Bs);                 copy(B[k * 64, j * 128], Bs);
//     gemm(As, Bs, acc);                      =>    copy(Bs.T, Bs_tile);          by a role of its own
//                                                   gemm(As, Bs_tile.T, acc);
//
// mma.sync has right operands from shared memory, too, by a copy that stage-through-shared adds. That is too late for roles and
// for MMAs in flight, which have to know what writes their operands. So this is for kernels all of whose products can
// be wgmma afterwards. (Of bytes mma.sync needs no transposed tile: they must have roles afterwards.)
#include "ir/build.h"
#include "ir/match.h"
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"
#include "passes/tile/tile.h"

typedef struct OperandTiles {
    Map *tiles;   // of a fragment, or of a tile of bytes
    bool left;    // also of left operands in registers
} OperandTiles;

static bool is_across_k(const Region *operand, bool right) {
    const Buf *buf = operand->buf;
    return buf->scope == SCOPE_SHARED && type_bits(buf->type) == 8 && operand->transposed != right;
}

static bool lacks_tile(const OperandTiles *tiles, const Region *operand, bool right) {
    return is_across_k(operand, right) || ((right || tiles->left) && operand->buf->scope == SCOPE_FRAGMENT);
}

static void add_tile(OperandTiles *tiles, Arena *a, const Region *operand, bool right) {
    Buf *buf = operand->buf;
    if (!lacks_tile(tiles, operand, right) || buf->rank != 2 || map_has(tiles->tiles, buf)) return;
    bool crosses = is_across_k(operand, right);
    Expr *shape[] = {buf->shape[crosses], buf->shape[!crosses]};
    const char *name = arena_printf(a, "%s_tile", buf->name);
    map_put(tiles->tiles, buf, buf_new(a, name, SCOPE_SHARED, buf->type, 2, shape, buf->loc));
}

// The tile's contents are the operand's still: nothing has changed it since.
static bool is_copied(Arena *arena, const Block *before, const Buf *from, const Buf *tile) {
    for (int i = before->count - 1; i >= 0; i--) {
        const Stmt *stmt = before->items[i];
        if (is_call(stmt, OP_COPY) && copy_of(stmt).dst->buf == tile) return true;
        if (stmt_touches(arena, stmt, tile) && !is_call(stmt, OP_GEMM)) return false;
        if (stmt_writes(arena, stmt, from)) return false;
    }
    return false;
}

// The operand, after a copy to its tile.
static Region *in_tile(Arena *a, const OperandTiles *tiles, Region *operand, bool right, Block *out) {
    Buf *tile = lacks_tile(tiles, operand, right) ? map_get(tiles->tiles, operand->buf) : NULL;
    if (!tile) return operand;
    Region *from = region_whole(a, operand->buf);
    from->transposed = is_across_k(operand, right);
    if (!is_copied(a, out, operand->buf, tile))
        block_push(a, out, s_copy(a, from, region_whole(a, tile), operand->loc));
    Region *moved = clone_region(a, NULL, operand);
    moved->buf = tile;
    if (!from->transposed) return moved;
    moved->dims[0] = operand->dims[1];
    moved->dims[1] = operand->dims[0];
    moved->transposed = !operand->transposed;
    return moved;
}

static void to_tile(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *a = mapper->arena;
    OperandTiles *tiles = mapper->user;
    GemmOp gemm;
    if (match_gemm(stmt, &gemm)) {
        Region *left = in_tile(a, tiles, gemm.a, false, out), *right = in_tile(a, tiles, gemm.b, true, out);
        mapper->changed |= left != gemm.a || right != gemm.b;
        ARG(stmt, GEMM, a) = arg_region(left);
        ARG(stmt, GEMM, b) = arg_region(right);
    }
    block_push(a, out, stmt);
    Buf *tile = stmt->kind == STMT_DECL ? map_get(tiles->tiles, stmt->decl) : NULL;
    if (tile) block_push(a, out, s_decl(a, tile));
}

static bool all_can_be_wgmma(Arena *arena, const Target *target, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (is_call(stmt, OP_GEMM) && !wgmma_computes(arena, target, stmt)) return false;
    return true;
}

// ---- operands of another type ----

// Bytes, where the other operand has 16 bits.
static bool is_narrow(const Region *operand, const Region *other) {
    bool fits = type_bits(operand->buf->type) == 8 && type_bits(other->buf->type) == 16;
    return fits && type_is_float(other->buf->type) && region_rank(operand) == 2;
}

bool multiplies_narrow(const Stmt *stmt, bool right) {
    GemmOp gemm;
    if (!match_gemm(stmt, &gemm)) return false;
    return right ? is_narrow(gemm.b, gemm.a) : is_narrow(gemm.a, gemm.b);
}

// The operand in registers, after the copy that converts it. A left one lies along k there.
static Region *converted(Arena *a, Region *operand, Type type, bool right, Block *declarations, Block *out) {
    Region *from = clone_region(a, NULL, operand);
    from->transposed = !right && operand->transposed;
    int64_t shape[] = {region_extent(from, 0), region_extent(from, 1)};
    const char *name = arena_printf(a, "%s_wide", operand->buf->name);
    Buf *wide = buf_new_const(a, name, SCOPE_FRAGMENT, type, 2, shape, operand->buf->loc);
    block_push(a, declarations, s_decl(a, wide));
    block_push(a, out, s_copy(a, from, region_whole(a, wide), operand->loc));
    Region *to = region_whole(a, wide);
    to->transposed = right && operand->transposed;
    return to;
}

static void convert_operands_of(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Arena *a = mapper->arena;
    GemmOp gemm;
    if (match_gemm(stmt, &gemm)) {
        if (is_narrow(gemm.a, gemm.b))
            ARG(stmt, GEMM, a) = arg_region(converted(a, gemm.a, gemm.b->buf->type, false, mapper->user, out));
        if (is_narrow(gemm.b, gemm.a))
            ARG(stmt, GEMM, b) = arg_region(converted(a, gemm.b, gemm.a->buf->type, true, mapper->user, out));
    }
    block_push(a, out, stmt);
}

void convert_operands(Arena *arena, Func *kernel) {
    Block declarations = {0};
    Block *body = &((Stmt *)func_grid(kernel))->grid.body;
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = convert_operands_of, .user = &declarations}, body);
    block_append(arena, &declarations, body);
    *body = declarations;
}

// ---- right operands that threads compute, and hand on in a tile ----
//
//     copy(Ws, w);   parallel .. w[r, c] = ..;             gemm(As, w.T, acc);
//     copy(w, w_tile);                             =>
//     gemm(As, w_tile.T, acc);
//
// As a left operand it stays in registers (swap_operands.c asks for this form, and takes it only then).

// The operand without the tile that the copy fills; NULL: it is something else.
static Region *read_directly(Arena *a, const Stmt *stmt, const GemmOp *gemm) {
    CopyOp copy;
    if (!is_bare_copy(stmt) || !match_copy(stmt, &copy) || copy.dst->buf != gemm->b->buf) return NULL;
    const Buf *from = copy.src->buf, *tile = copy.dst->buf;
    bool computed = from->scope == SCOPE_FRAGMENT && from->type == tile->type && region_is_whole(copy.src);
    bool converted = from->scope == SCOPE_SHARED && is_narrow(copy.src, copy.dst) && gemm->a->buf->type == tile->type;
    if ((!computed && !converted) || copy.src->transposed || copy.dst->transposed || !region_is_whole(copy.dst))
        return NULL;
    if (!region_is_stable(copy.src)) return NULL;
    Region *direct = clone_region(a, NULL, copy.src);
    direct->transposed = gemm->b->transposed;
    return direct;
}

// The store by which the loop gives each element of the tile, at its iterators in this or the other order; NULL: it does something else.
static Stmt *element_store(const Stmt *loop, const Buf *tile) {
    Stmt *found = NULL;
    if (!is_loop(loop, LOOP_PARALLEL) || loop->attrs || loop->loop.count != 2 || tile->rank != 2) return NULL;
    if (block_loads(&loop->loop.body, tile)) return NULL;
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (stmt->kind == STMT_LET) continue;
        if (stmt->kind != STMT_STORE || found) return NULL;
        found = stmt;
    }
    if (!found || found->store.buf != tile) return NULL;
    for (int d = 0; d < 2; d++) {
        const Expr *at = found->store.indices[d];
        int of = expr_is_var(at, loop->loop.iters[1].var);
        const Iter *iter = &loop->loop.iters[of];
        bool whole = expr_is_var(at, iter->var) && iter_is_plain(iter) && expr_is_int(iter->end, buf_extent(tile, d));
        if (!whole || (d == 1 && expr_equal(at, found->store.indices[0]))) return NULL;
    }
    return found;
}

// Gives the elements of the tile to a fragment along k; returns the operand.
static Region *computed_there(Arena *a, Block *block, int at, const GemmOp *gemm) {
    const Buf *tile = gemm->b->buf;
    Stmt *store = element_store(block->items[at], tile);
    if (!store) return NULL;
    bool along = gemm->b->transposed;
    Expr *shape[] = {tile->shape[!along], tile->shape[along]};
    Expr *indices[] = {store->store.indices[!along], store->store.indices[along]};
    Buf *fragment = buf_new(a, tile->name, SCOPE_FRAGMENT, tile->type, 2, shape, tile->loc);
    Span loc = store->loc;
    *store = *s_store(a, fragment, 2, indices, store->store.value);
    store->loc = loc;
    block_insert(a, block, at, s_decl(a, fragment));
    Region *region = region_whole(a, fragment);
    region->transposed = true;
    return region;
}

// The tile of the product at block[i] is given by block[at], and nothing between changes what that read.
static bool take_over(Arena *a, Func *kernel, Block *block, int at, int i) {
    Stmt *product = block->items[i];
    GemmOp gemm = gemm_of(product);
    Buf *tile = gemm.b->buf;
    Region *direct = read_directly(a, block->items[at], &gemm);
    for (int j = at + 1; j < i && direct; j++)
        if (stmt_writes(a, block->items[j], direct->buf)) return false;
    if (direct) block_remove(block, at);
    else direct = computed_there(a, block, at, &gemm);
    if (!direct) return false;
    ARG(product, GEMM, b) = arg_region(direct);
    undeclare(a, kernel, tile);
    return true;
}

static bool hand_over(Arena *a, Func *kernel, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        GemmOp gemm;
        if (is_compound(stmt))
            FOR_EACH_BODY (body, stmt)
                if (hand_over(a, kernel, body)) return true;
        if (!match_gemm(stmt, &gemm) || gemm.b->buf->scope != SCOPE_SHARED || !region_is_whole(gemm.b)) continue;
        if (!buf_is_free(gemm.b->buf) || uses_of(a, kernel, gemm.b->buf) != 2) continue;
        int at = i - 1;
        while (at >= 0 && !stmt_touches(a, block->items[at], gemm.b->buf)) at--;
        if (at >= 0 && block->items[at]->kind != STMT_DECL && take_over(a, kernel, block, at, i)) return true;
    }
    return false;
}

bool read_computed_directly(Arena *arena, Func *kernel) {
    bool changed = false;
    while (hand_over(arena, kernel, &kernel->body)) changed = true;
    return changed;
}

// ---- what a kernel lacks ----

bool add_operand_tiles(Arena *arena, const Target *target, Func *kernel, bool left) {
    OperandTiles tiles = {.tiles = map_new(arena), .left = left};
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        add_tile(&tiles, arena, gemm.a, false);
        add_tile(&tiles, arena, gemm.b, true);
    }
    StmtMapper mapper = {.arena = arena, .stmt = to_tile, .user = &tiles};
    return rewrite_block(&mapper, &kernel->body) && all_can_be_wgmma(arena, target, kernel);
}

OperandLack operands_lack(const Func *kernel) {
    OperandLack lack = LACK_NONE;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (multiplies_narrow(stmt, false) || multiplies_narrow(stmt, true)) return LACK_TYPE;
        if (is_across_k(gemm.a, false) || is_across_k(gemm.b, true)) return LACK_ORDER;
        if (gemm.b->buf->scope == SCOPE_FRAGMENT) lack = LACK_TILE;
    }
    return lack;
}
