// Gathers through registers are direct:
//
//     parallel (i in 64, j in 64) v[i, j] = ids[i] < 0 ? 0 : x[ids[i], k * 64 + j];
//     copy(v, As);
//                                     =>
//     parallel (i in 64, j in 64) As[i, j] = ids[i] < 0 ? 0 : x[ids[i], k * 64 + j];
//
// So is a plain load, which then becomes a copy. What comes between are names and moves that write nothing that the loop reads: as in
// direct_copies.c, registers that a tensor is loaded to before something else is computed stay. Nothing else uses the fragment.
//
// Of the conversions only one may round: one type is that of the fragment. (What a copy makes of infinities in e5m2 a loop does not.)
#include "ir/build.h"
#include "ir/match.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/live_ranges.h"
#include "passes/analysis/util.h"
#include "passes/tile/loop_stores.h"
#include "passes/tile/tile.h"

// ---- what is gathered ----

static bool has_alias(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_LOAD && attr_get(expr->load.buf->attrs, ATTR_ALIAS);
}

static bool is_gathered(const Store *store) {
    const Expr *element = moved_element(store->value);
    return store->to.buf->scope == SCOPE_FRAGMENT && element && element->load.buf->scope == SCOPE_GLOBAL &&
           !any_expr(store->value, has_alias, NULL);
}

// ---- where it goes ----

// The shared tile that takes all of the fragment, element by element; NULL: another thing happens to it.
static Buf *taking_tile(Arena *arena, const Stmt *stmt, const Buf *fragment) {
    if (is_bare_copy(stmt)) {
        CopyOp copy = copy_of(stmt);
        bool all = copy.src->buf == fragment && region_is_whole(copy.src) && region_is_whole(copy.dst) &&
                   copy.src->transposed == copy.dst->transposed;
        return all && copy.dst->buf->scope == SCOPE_SHARED && buf_is_free(copy.dst->buf) ? copy.dst->buf : NULL;
    }
    Store store;
    if (!tile_store(arena, stmt, &store) || store.to.buf->scope != SCOPE_SHARED) return NULL;
    const Expr *value = store.value->kind == EXPR_CAST ? store.value->operand : store.value;
    bool same = value->kind == EXPR_LOAD && value->load.buf == fragment &&
                is_loop_element(stmt, value->load.count, value->load.indices);
    return same ? store.to.buf : NULL;
}

static bool same_extents(const Buf *a, const Buf *b) {
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++) same = expr_equal(a->shape[d], b->shape[d]);
    return same;
}

static bool converts_in_one_step(const Store *store, const Buf *to) {
    Type type = store->to.buf->type;
    return to->type == type || (moved_element(store->value)->type == type && to->type != TYPE_E5M2);
}

static bool moves(Arena *arena, const Stmt *stmt) {
    Store store;
    if (is_bare_copy(stmt) || is_call(stmt, OP_FILL)) return true;
    return tile_store(arena, stmt, &store) && moved_element(store.value);
}

// What the loop reads is the same behind the statement, which computes nothing.
static bool lets_pass(Arena *arena, const Stmt *loop, const Stmt *stmt) {
    if (stmt->kind == STMT_LET) return expr_is_pure(stmt->let.value);
    if (stmt->kind == STMT_DECL) return true;
    if (!moves(arena, stmt)) return false;
    FOR_EACH_EFFECT (effect, arena, loop)
        if (effect->access == ACCESS_READ && stmt_writes(arena, stmt, buf_root(effect->buf))) return false;
    return true;
}

// The statement of the block that takes the fragment; -1: there is none.
static int taker_of(Arena *arena, const Block *block, int at, const Buf *fragment) {
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind != STMT_DECL && stmt_touches(arena, stmt, fragment)) return i;
        if (!lets_pass(arena, block->items[at], stmt)) return -1;
    }
    return -1;
}

// ---- the loop ----

static bool skip_fragment(Arena *arena, Func *kernel, Block *block, int at) {
    Store store;
    const Stmt *written = block->items[at];
    if (!is_loop(written, LOOP_PARALLEL)) return false;
    Stmt *loop = flattened(arena, block->items[at]);
    if (!tile_store(arena, loop, &store) || !is_gathered(&store)) return false;
    Buf *fragment = store.to.buf;
    int taker = uses_of(arena, kernel, fragment) == 2 ? taker_of(arena, block, at, fragment) : -1;
    Buf *to = taker < 0 ? NULL : taking_tile(arena, block->items[taker], fragment);
    if (!to || !same_extents(to, fragment) || !converts_in_one_step(&store, to)) return false;
    if (stmt_touches(arena, written, to)) return false;
    block->items[taker] = loop_storing(arena, loop, &store, to);
    block_remove(block, at);
    undeclare(arena, kernel, fragment);
    return true;
}

static bool skip_fragments(Arena *arena, Func *kernel, Block *block) {
    for (int i = 0; i < block->count; i++) {
        if (is_compound(block->items[i]))
            FOR_EACH_BODY (body, block->items[i])
                if (skip_fragments(arena, kernel, body)) return true;
        if (skip_fragment(arena, kernel, block, i)) return true;   // (a declaration may be of this block)
    }
    return false;
}

bool gather_directly(Arena *arena, Func *kernel) {
    bool changed = false;
    while (skip_fragments(arena, kernel, &kernel->body)) changed = true;
    return changed;
}
