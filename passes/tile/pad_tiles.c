// Pads tiles with columns, so that a tile has whole swizzle spans.
//
// wgmma takes any number of columns that is a multiple of 8. A right operand that is contiguous along n lies in panels
// as wide as a swizzle's span, of 16 elements of 16 bits at least; with 40 columns half of the last panel is over:
//
//     shared Bs: bf16[64, 40];                              shared Bs: bf16[64, 48];
//     copy(B[k * 64, j * 40], Bs);                =>        copy(B[k * 64 +: 64, j * 40 +: 48], Bs);
//     gemm(As, Bs, acc);                                    gemm(As, Bs[:, 0 +: 40], acc);
//
// TMA loads these columns from the tensor, or zeros, and the instruction, of 40 columns, does not read them. They cost
// shared memory and memory traffic.
//
// Operands that are contiguous along k must have a multiple of 16 columns (of 16 bits). A head of 72 elements has not. But
// where the tile holds all of the tensor's columns, those that are added are beyond the tensor, so they are zeros, and
// the product may read them:
//
//     shared Qs: bf16[64, 72], Ks: bf16[64, 72];            shared Qs: bf16[64, 96], Ks: bf16[64, 96];
//     copy(Q[h, i * 64, 0], Qs);                  =>        copy(Q[h, i * 64 +: 64, 0 +: 96], Qs);
//     gemm(Qs, Ks.T, s);                                    gemm(Qs[:, 0 +: 80], Ks[:, 0 +: 80].T, s);
//
// Wide panels are worth some padding: with boxes of 32 bytes a product has half of the speed of 128 bytes
// (docs/notebook/hopper.md). So a tile gets up to a third more columns for wider panels, where shared memory has room.
#include "ir/build.h"
#include "ir/facts.h"
#include "ir/rewrite.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"
#include "passes/tile/tile.h"

enum { MOST_SLOTS = 16 };   // of a ring, whose barriers want room, too

typedef struct TilePadding {
    Arena *arena;
    const Target *target;
    Map *wider;   // a tile -> the one in its place
    Map *stays;   // tiles that are used in another way
    Subst *subst;
    int span;       // the widest that is tried
    Facts *facts;   // of the kernel
} TilePadding;

// ---- which ----

// The columns that the tile has then: of panels no wider than `span` bytes, the widest for which a third more is
// enough, or the narrowest. (With panels of 64 bytes as it is, more columns cost as much as wider panels save.)
static int64_t wider_columns(const Buf *tile, int span) {
    int64_t bits = type_bits(tile->type), columns = buf_extent(tile, 1), wider = columns;
    for (int i = 0; i < TMA_SPANS - 1; i++)
        if (columns * bits / 8 % tma_facts.spans[i] == 0) return columns;
    for (int i = span; i < TMA_SPANS; i++) {
        int64_t unit = tma_facts.spans[i] * 8 / bits;
        wider = (columns + unit - 1) / unit * unit;
        if (3 * (wider - columns) <= columns) return wider;
    }
    return wider;
}

// What the product takes of a tile's columns.
typedef enum { READS_N, READS_K, READS_OTHER } ColumnUse;

static ColumnUse column_use(const Stmt *gemm, const Region *region) {
    const Buf *tile = region->buf;
    GemmOp op = gemm_of(gemm);
    if ((region != op.a && region != op.b) || tile->scope != SCOPE_SHARED || tile->rank != 2 || tile->layout)
        return READS_OTHER;
    if (!region_is_whole(region)) return READS_OTHER;
    if (region == op.b && !region->transposed) return READS_N;
    return region->transposed == (region == op.b) ? READS_K : READS_OTHER;
}

static bool lacks_n(const TilePadding *w, const Stmt *gemm) {
    const Region *b = gemm_of(gemm).b;
    WgmmaInfo info;
    if (column_use(gemm, b) != READS_N) return false;
    int64_t columns = buf_extent(b->buf, 1);
    return gemm_wgmma(w->target, gemm, columns, &info) && info.can_transpose &&
           wider_columns(b->buf, w->span) != columns;
}

static bool lacks_k(const TilePadding *w, const Stmt *gemm) {
    GemmOp op = gemm_of(gemm);
    WgmmaInfo info;
    return column_use(gemm, op.a) == READS_K && column_use(gemm, op.b) == READS_K &&
           gemm_wgmma(w->target, gemm, region_extent(op.acc, 1), &info) && buf_extent(op.a->buf, 1) % info.k != 0;
}

// The columns of an operand along k, in whole steps of the instruction.
static int64_t steps_columns(const TilePadding *w, const Stmt *gemm, const Region *operand) {
    WgmmaInfo info;
    gemm_wgmma(w->target, gemm, region_extent(gemm_of(gemm).acc, 1), &info);
    return (buf_extent(operand->buf, 1) + info.k - 1) / info.k * info.k;
}

// The product has another right operand, or other operands, after the padding.
static bool lacks_columns(const TilePadding *w, const Stmt *gemm) {
    return is_call(gemm, OP_GEMM) && (lacks_n(w, gemm) || lacks_k(w, gemm));
}

static Buf *wider_tile(const TilePadding *w, const Buf *tile) {
    Expr *shape[] = {tile->shape[0], e_int(w->arena, wider_columns(tile, w->span))};
    Buf *wider = buf_new(w->arena, tile->name, tile->scope, tile->type, 2, shape, tile->loc);
    wider->attrs = tile->attrs;
    wider->align = tile->align;
    return wider;
}

static void widen(TilePadding *w, Buf *tile) {
    if (!map_has(w->wider, tile)) map_put(w->wider, tile, wider_tile(w, tile));
}

static void find_narrow(TilePadding *w, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_call(stmt, OP_GEMM)) continue;
        if (lacks_n(w, stmt)) widen(w, gemm_of(stmt).b->buf);
        if (!lacks_k(w, stmt)) continue;
        widen(w, gemm_of(stmt).a->buf);
        widen(w, gemm_of(stmt).b->buf);
    }
}

// The statement loads all of the tile from a tensor, along the tensor's last dim.
static bool loads_all(const Stmt *stmt, const Buf *tile) {
    CopyOp copy;
    if (!match_copy(stmt, &copy) || copy.dst->buf != tile || copy.dst->transposed || !region_is_whole(copy.dst))
        return false;
    const RegionDim *last = &copy.src->dims[copy.src->count - 1];
    return copy.src->buf->scope == SCOPE_GLOBAL && !copy.src->transposed &&
           expr_is_int(last->extent, buf_extent(tile, 1)) && last->tile == buf_extent(tile, 1);
}

// What it would load of added columns is beyond the tensor, so they are zeros.
static bool loads_zeros(const TilePadding *w, const Stmt *stmt, const Buf *tile) {
    if (!loads_all(stmt, tile)) return false;
    const Region *from = copy_of(stmt).src;
    Expr *extent = from->buf->shape[from->count - 1];
    Expr *end = e_add(w->arena, from->dims[from->count - 1].start, e_int(w->arena, buf_extent(tile, 1)));
    return prove(w->facts, e_ge(w->arena, end, extent));
}

// The product takes the tile with its added columns, or what it needs of them.
static bool takes_wider(const TilePadding *w, const Stmt *gemm, const Region *region) {
    ColumnUse use = column_use(gemm, region);
    return (use == READS_N && lacks_n(w, gemm)) || (use == READS_K && lacks_k(w, gemm));
}

// Tiles of which something else than such a copy writes elements.
static Map *with_other_numbers(const TilePadding *w, const Func *kernel) {
    Map *found = map_new(w->arena);
    FOR_EACH_STMT (stmt, &kernel->body) {
        Stmt alone = stmt_alone(stmt);
        FOR_EACH_EFFECT (effect, w->arena, &alone)
            if (effect->access != ACCESS_READ && !loads_zeros(w, stmt, effect->buf)) map_put(found, effect->buf, found);
    }
    return found;
}

// Tiles with a use that does not allow for more columns. Of a product along k both operands get them, or none.
static void find_other(TilePadding *w, const Func *kernel) {
    Map *others = with_other_numbers(w, kernel);
    FOR_EACH_STMT (stmt, &kernel->body)
        for (int i = 0; stmt->kind == STMT_CALL && i < stmt->call.count; i++) {
            const Region *region = call_region(stmt, i);
            if (!region || !map_has(w->wider, region->buf) || loads_all(stmt, region->buf)) continue;
            if (!is_call(stmt, OP_GEMM) || !takes_wider(w, stmt, region)) map_put(w->stays, region->buf, w);
        }
    for (int stays = -1; stays != map_count(w->stays);) {
        stays = map_count(w->stays);
        FOR_EACH_STMT (stmt, &kernel->body) {
            if (!is_call(stmt, OP_GEMM) || !lacks_k(w, stmt)) continue;
            const Buf *a = gemm_of(stmt).a->buf, *b = gemm_of(stmt).b->buf;
            bool stay = map_has(w->stays, a) || map_has(w->stays, b) || map_has(others, a) || map_has(others, b);
            if (stay) map_put(w->stays, a, w), map_put(w->stays, b, w);
        }
    }
}

// ---- whether there is room ----

// Shared memory of the block's tiles, with the buffers of pipelined loops and the columns that are added.
static int64_t tiles_bytes(const TilePadding *w, const Block *block, int64_t stages) {
    int64_t bytes = 0;
    FOR_EACH_ITEM (stmt, block) {
        CopyOp copy;
        int64_t inner = stages;
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED) bytes += buf_slot_bytes(stmt->decl);
        if (stages > 1 && match_copy(stmt, &copy)) {
            const Buf *tile = copy.dst->buf, *wider = map_get(w->wider, tile);
            if (tile->scope == SCOPE_SHARED) bytes += (stages - 1) * buf_slot_bytes(tile);
            if (wider) bytes += stages * (buf_slot_bytes(wider) - buf_slot_bytes(tile));
        }
        if (is_loop(stmt, LOOP_PIPELINED)) expr_const(stmt->loop.stages, &inner);
        FOR_EACH_BODY (body, stmt) bytes += tiles_bytes(w, body, inner);
    }
    return bytes;
}

// ---- how ----

static void pad_call(const TilePadding *w, Stmt *stmt) {
    for (int i = 0; i < stmt->call.count; i++) {
        Region *region = call_region(stmt, i);
        Buf *wider = region ? map_get(w->wider, region->buf) : NULL;
        if (!wider || map_has(w->stays, region->buf)) continue;
        int64_t columns = buf_extent(wider, 1);
        Region *piece = clone_region(w->arena, NULL, region);
        piece->buf = wider;
        if (is_call(stmt, OP_COPY)) {
            Region *from = clone_region(w->arena, NULL, ARG(stmt, COPY, src).region);
            RegionDim *last = &from->dims[from->count - 1];
            last->extent = e_int(w->arena, columns);
            last->tile = columns;
            ARG(stmt, COPY, src) = arg_region(from);
        }
        if (is_call(stmt, OP_COPY)) piece = region_whole(w->arena, wider);
        if (is_call(stmt, OP_GEMM) && column_use(stmt, region) == READS_K) {   // zeros of the last step, no others
            int64_t k = steps_columns(w, stmt, region);
            piece->dims[1].extent = e_int(w->arena, k);
            piece->dims[1].tile = k;
        }
        stmt->call.args[i] = arg_region(piece);
    }
}

static void pad_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    TilePadding *w = mapper->user;
    if (stmt->kind == STMT_CALL) pad_call(w, stmt);
    if (stmt->kind == STMT_DECL && map_has(w->wider, stmt->decl) && !map_has(w->stays, stmt->decl)) {
        Buf *wider = map_get(w->wider, stmt->decl);
        EXPECT(arena_failure(w->arena), buf_extent(wider, 1) > buf_extent(stmt->decl, 1), "'%s' gets no columns",
               stmt->decl->name);
        subst_buf(w->subst, stmt->decl, wider);
        stmt->decl = wider;
    }
    block_push(mapper->arena, out, stmt);
}

bool tiles_lack_columns(const Target *target, const Func *kernel) {
    TilePadding w = {.target = target};
    FOR_EACH_STMT (stmt, &kernel->body)
        if (lacks_columns(&w, stmt)) return true;
    return false;
}

bool pad_tiles(Arena *arena, const Target *target, Func *kernel) {
    TilePadding w = {.arena = arena, .target = target, .stays = map_new(arena), .subst = subst_new(arena)};
    if (!tiles_lack_columns(target, kernel)) return false;
    w.facts = facts_new(arena, kernel);
    Specialization how = specialization_of(arena, target, kernel);
    int64_t staging = specialized_staging(arena, target, kernel, &how);
    for (w.span = 0; w.span < TMA_SPANS; w.span++) {
        w.wider = map_new(arena);
        find_narrow(&w, kernel);
        int64_t bytes = tiles_bytes(&w, &kernel->body, 1) + pingpong_barriers(MOST_SLOTS);
        if (w.span == TMA_SPANS - 1 || specialized_shared(target, &how, staging, bytes) <= target->shared_block) break;
    }
    if (map_count(w.wider) == 0) return false;
    find_other(&w, kernel);
    if (map_count(w.stays) == map_count(w.wider)) return false;
    rewrite_block(&(StmtMapper){.arena = arena, .stmt = pad_stmt, .user = &w}, &kernel->body);
    subst_block(w.subst, &kernel->body);   // elements that threads read
    return true;
}
