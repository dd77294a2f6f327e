// Copies through a tile that only hands elements on are direct:
//
//     copy(acc, results);                    copy(acc, C[i * 128, j * 128]);
//     copy(results, C[i * 128, j * 128]);
//                                        =>
//     copy(As, a);                           gemm(As, Bs, acc);
//     gemm(a, Bs, acc);
//
// How a fragment comes to a tensor is then for later passes to say, which stage it in the memory of loaded tiles; an operand is read where
// it lies, and its fragment has no registers.
//
// Nothing else uses the tile, or only before; all of it is written and read. Of its conversions only one may round. What comes from a
// tensor and goes to a fragment keeps its shared tile, which is loaded ahead; so do registers that a tensor is loaded to before
// something else is computed.
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/tile/tile.h"

// The copy writes all of a tile that the compiler may leave out.
static bool fills_tile(const Stmt *stmt) {
    if (!is_bare_copy(stmt)) return false;
    CopyOp copy = copy_of(stmt);
    const Buf *tile = copy.dst->buf;
    return tile->scope != SCOPE_GLOBAL && buf_is_free(tile) && region_is_whole(copy.dst) && !copy.dst->transposed &&
           !copy.src->buf->im2col && !attr_get(copy.src->buf->attrs, ATTR_ALIAS);
}

// Results of products are staged by a later pass as well as in a tile; of others the source knows more.
static bool is_direct_way(const Func *kernel, const CopyOp *in, const CopyOp *out) {
    Scope from = in->src->buf->scope, by = in->dst->buf->scope, to = out->dst->buf->scope;
    if (in->src->buf == out->dst->buf || (from != SCOPE_GLOBAL && !buf_is_free(in->src->buf))) return false;
    if (by == SCOPE_SHARED) return to == SCOPE_GLOBAL && is_accumulator(kernel, in->src->buf);
    return from == SCOPE_FRAGMENT ? to == SCOPE_GLOBAL : to == SCOPE_SHARED || from == SCOPE_SHARED;
}

// All of it is there, and it means the same behind the statements between.
static bool is_whole_tile(const Region *region) {
    for (int d = 0; d < region->count; d++)
        if (region->dims[d].extent && !expr_is_int(region->dims[d].extent, region->dims[d].tile)) return false;
    return region_is_stable(region);
}

// Statements from there on that use the tile: of the grid's body, where the tile's values from before are read before.
static int uses_from(Arena *arena, const Func *kernel, const Block *block, int at, const Buf *tile) {
    if (block != &func_grid(kernel)->grid.body) return uses_of(arena, kernel, tile);
    int uses = 0;
    for (int i = at; i < block->count; i++)
        if (block->items[i]->kind != STMT_DECL) uses += stmt_touches(arena, block->items[i], tile);
    return uses;
}

// The one statement behind it that reads the tile, with nothing between that changes what it is copied from; -1: another thing
// does.
static int reader_of(Arena *arena, const Func *kernel, const Block *block, int at) {
    const Buf *from = buf_root(copy_of(block->items[at]).src->buf), *tile = copy_of(block->items[at]).dst->buf;
    if (uses_from(arena, kernel, block, at, tile) != 2 || !is_whole_tile(copy_of(block->items[at]).src)) return -1;
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind != STMT_DECL && stmt_touches(arena, stmt, tile)) return i;
        bool computes = from->scope != SCOPE_GLOBAL && (is_loop(stmt, LOOP_PARALLEL) || is_call(stmt, OP_GEMM));
        bool passes = stmt->kind == STMT_LET || stmt->kind == STMT_DECL || is_call(stmt, OP_COPY) ||
                      is_call(stmt, OP_FILL) || computes;
        if (!passes || stmt_writes(arena, stmt, from)) return -1;
    }
    return -1;
}

static bool takes_operand(const Stmt *in, Stmt *gemm, Arena *arena) {
    CopyOp copy = copy_of(in);
    const Buf *tile = copy.dst->buf;
    bool operand = tile->scope == SCOPE_FRAGMENT && copy.src->buf->scope == SCOPE_SHARED && !copy.src->transposed &&
                   copy.src->buf->type == tile->type && is_call(gemm, OP_GEMM);
    if (!operand || gemm_of(gemm).acc->buf == tile) return false;
    for (int i = 0; i < 2; i++) {
        const Region *read = call_region(gemm, i);
        if (read->buf == tile && !region_is_whole(read)) return false;
    }
    for (int i = 0; i < 2; i++) {
        const Region *read = call_region(gemm, i);
        if (read->buf != tile) continue;
        Region *region = clone_region(arena, NULL, copy.src);
        region->transposed = read->transposed;
        call_set_arg(arena, gemm, i, arg_region(region));
    }
    return true;
}

static bool takes_copy(Arena *arena, const Func *kernel, const Stmt *in, Stmt *out) {
    if (!is_bare_copy(out)) return false;
    CopyOp first = copy_of(in), second = copy_of(out);
    const Buf *tile = first.dst->buf;
    bool exact = tile->type == first.src->buf->type || tile->type == second.dst->buf->type;
    if (second.src->buf != tile || !region_is_whole(second.src) || second.src->transposed) return false;
    if (!exact || !is_direct_way(kernel, &first, &second)) return false;
    Region *from = clone_region(arena, NULL, first.src), *to = clone_region(arena, NULL, second.dst);
    place_transposition(from, to);
    call_set_arg(arena, out, OPERAND_INDEX(COPY, src), arg_region(from));
    call_set_arg(arena, out, OPERAND_INDEX(COPY, dst), arg_region(to));
    return true;
}

static bool skip_tiles(Arena *arena, Func *kernel, Block *block) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *copy = block->items[i];
        if (is_compound(copy))
            FOR_EACH_BODY (body, copy) changed |= skip_tiles(arena, kernel, body);
        int reader = fills_tile(copy) ? reader_of(arena, kernel, block, i) : -1;
        if (reader < 0) continue;
        Stmt *out = block->items[reader];
        if (!takes_copy(arena, kernel, copy, out) && !takes_operand(copy, out, arena)) continue;
        block_remove(block, i--);
        if (uses_of(arena, kernel, copy_of(copy).dst->buf) == 0) undeclare(arena, kernel, copy_of(copy).dst->buf);
        return true;   // (a declaration may be of this block)
    }
    return changed;
}

bool copy_directly(Arena *arena, Func *kernel) {
    bool changed = false;
    while (skip_tiles(arena, kernel, &kernel->body)) changed = true;
    return changed;
}
