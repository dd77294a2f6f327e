#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/bulk.h"

int64_t loop_stages(const Stmt *loop) {
    int64_t stages = 1;
    if (is_loop(loop, LOOP_PIPELINED) && loop->loop.stages) expr_const(loop->loop.stages, &stages);
    return stages < 1 ? 1 : stages;
}

Buf *async_target(const Stmt *stmt) {
    if (!via_is(stmt, VIA_CP_ASYNC) && !via_is(stmt, VIA_TMA) && !by_bulk(stmt)) return NULL;
    CopyOp copy;
    if (match_copy(stmt, &copy)) return copy.dst->buf->scope == SCOPE_SHARED ? copy.dst->buf : NULL;
    const Stmt *store = gathering_store(stmt);
    return store ? store->store.buf : NULL;
}

// A gather stores at [i, j], its own iterators, over the buffer's extents.
static bool gather_fills(const Stmt *loop, const Buf *buf) {
    const Stmt *store = loop->loop.body.items[0];
    int rank = buf_slot_rank(buf);
    if (!is_loop_element(loop, rank, store->store.indices + buf->stage_dims)) return false;
    for (int d = 0; d < rank; d++) {
        const Iter *iter = &loop->loop.iters[d];
        if (!iter_is_plain(iter) || !expr_equal(iter->end, buf->shape[buf->stage_dims + d])) return false;
    }
    return true;
}

bool fills_slot(const Stmt *stmt, void *user) {
    CopyOp copy;
    int64_t known;
    if (!is_global_to_shared_copy(stmt) || !match_copy(stmt, &copy) || (user && copy.dst->buf != user)) return false;
    for (int d = copy.dst->buf->stage_dims; d < copy.dst->count; d++)
        if (!copy.dst->dims[d].extent && !expr_const(copy.dst->dims[d].start, &known)) return true;
    return false;
}

const char *partial_fill_problem(const Block *around, const Buf *buf) {
    return block_any(around, fills_slot, (void *)buf)
               ? "the source fills slots of a tile by an index: a `pipelined` loop makes them, of a tile without that dim"
               : "the copy fills only a part of its tile: copy the other pieces next to it, or declare a buffer for each";
}

bool fills_whole(const Stmt *copy, const Buf *buf) {
    if (copy->kind == STMT_IF)
        return fills_whole(branch_load(&copy->if_.then), buf) && fills_whole(branch_load(&copy->if_.otherwise), buf);
    return copy->kind == STMT_CALL ? region_is_whole_slot(copy_of(copy).dst) : gather_fills(copy, buf);
}

// ---- pieces of a tile ----

enum { MOST_PIECES = 64 };

// [begin, end) in the slot's dims.
typedef struct Piece {
    int64_t begin[LAYOUT_MAX_RANK], end[LAYOUT_MAX_RANK];
} Piece;

static bool piece_of(const Stmt *stmt, const Buf *buf, Piece *piece) {
    if (!is_global_to_shared_copy(stmt) || copy_of(stmt).dst->buf != buf) return false;
    const Region *to = copy_of(stmt).dst;
    for (int d = buf->stage_dims; d < to->count; d++) {
        const RegionDim *dim = &to->dims[d];
        int64_t extent, *begin = &piece->begin[d - buf->stage_dims];
        if (!dim->extent || !expr_const(dim->extent, &extent) || extent != dim->tile) return false;
        if (!expr_const(dim->start, begin)) return false;
        piece->end[d - buf->stage_dims] = *begin + extent;
    }
    return true;
}

static bool pieces_overlap(const Piece *a, const Piece *b, int rank) {
    for (int d = 0; d < rank; d++)
        if (a->end[d] <= b->begin[d] || b->end[d] <= a->begin[d]) return false;
    return true;
}

int fill_end(const Block *block, int at, const Buf *buf) {
    if (fills_whole(block->items[at], buf)) return at;
    Piece pieces[MOST_PIECES];
    int count = 0, rank = buf_slot_rank(buf);
    int64_t missing = 1;
    for (int d = 0; d < rank; d++) missing *= buf_extent(buf, buf->stage_dims + d);
    for (int i = at; i < block->count && count < MOST_PIECES; i++) {
        const Stmt *stmt = block->items[i];
        if (i > at && (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME)) continue;
        Piece *piece = &pieces[count];
        if (!piece_of(stmt, buf, piece)) return -1;
        int64_t elements = 1;
        for (int d = 0; d < rank; d++) elements *= piece->end[d] - piece->begin[d];
        for (int other = 0; other < count; other++)
            if (pieces_overlap(piece, &pieces[other], rank)) return -1;
        count++;
        missing -= elements;
        if (missing == 0) return i;
    }
    return -1;
}

// ---- loads ----

// A loop that moves elements of read-only tensors to a whole tile.
static bool is_gather(const Stmt *stmt) {
    const Stmt *store = is_loop(stmt, LOOP_PARALLEL) ? gathering_store(stmt) : NULL;
    if (!store || store->store.buf->scope != SCOPE_SHARED || !fills_whole(stmt, store->store.buf)) return false;
    const Expr *value = store->store.value;
    if (value->kind == EXPR_SELECT && expr_is_zero(value->select.no)) value = value->select.yes;
    if (value->kind == EXPR_CAST) value = value->operand;
    return value->kind == EXPR_LOAD && !stmt_any_expr(stmt, is_computed, NULL);
}

const Stmt *branch_load(const Block *branch) {
    for (int i = 0; i + 1 < branch->count; i++)
        if (branch->items[i]->kind != STMT_LET || !expr_is_pure(branch->items[i]->let.value)) return NULL;
    const Stmt *last = branch->count > 0 ? branch->items[branch->count - 1] : NULL;
    return last && loaded_tile(last) ? last : NULL;
}

// The tile that either branch fills.
static Buf *chosen_tile(const Stmt *stmt) {
    const Stmt *yes = branch_load(&stmt->if_.then), *no = branch_load(&stmt->if_.otherwise);
    Buf *tile = yes && no ? loaded_tile(yes) : NULL;
    return tile && loaded_tile(no) == tile && fills_whole(stmt, tile) ? tile : NULL;
}

Buf *loaded_tile(const Stmt *stmt) {
    if (stmt->kind == STMT_IF) return chosen_tile(stmt);
    if (is_global_to_shared_copy(stmt)) return copy_of(stmt).dst->buf;
    return is_gather(stmt) ? gathering_store(stmt)->store.buf : NULL;
}

// ---- what a statement depends on ----

typedef struct Needs {
    Arena *arena;
    Map *vars;   // named in its expressions
    Map *bufs;   // read
} Needs;

static void needs_of(Needs *needs, const Stmt *stmt) {
    stmt_names(stmt, needs->vars);
    FOR_EACH_EFFECT (effect, needs->arena, stmt)
        if (effect->access != ACCESS_WRITE) map_put(needs->bufs, effect->buf, effect->buf);
}

// The lets before statement `at` that it needs, marked in `taken`; `needs` becomes what all of them need together.
static void close_over_lets(Needs *needs, const Block *body, int at, bool *taken) {
    needs_of(needs, body->items[at]);
    for (int i = at - 1; i >= 0; i--) {
        Stmt *stmt = body->items[i];
        taken[i] = stmt->kind == STMT_LET && map_has(needs->vars, stmt->let.var);
        if (taken[i]) needs_of(needs, stmt);
    }
}

const char *early_start_problem(Arena *arena, const Stmt *loop, int at) {
    const Block *body = &loop->loop.body;
    Needs needs = {arena, map_new(arena), map_new(arena)};
    bool *taken = NEW_ARRAY(arena, bool, body->count);
    close_over_lets(&needs, body, at, taken);
    for (int i = 0; i < at; i++)
        if (taken[i] && !expr_is_pure(body->items[i]->let.value))
            return "its indices depend on an atomic operation: do it before the loop";
    FOR_EACH_ITEM (stmt, body)
        FOR_EACH_EFFECT (effect, arena, stmt)
            if (effect->access != ACCESS_READ && map_has(needs.bufs, effect->buf))
                return "the loop writes the tensor that it copies from: write to another one";
    FOR_EACH_STMT (stmt, body) {
        bool sets = stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
        if (sets && map_has(needs.vars, stmt->let.var))
            return "its indices depend on a `var` that the loop sets: compute them from the loop's variable";
    }
    return NULL;
}

void clone_with_lets(Arena *arena, Subst *subst, const Block *body, const bool *which, Block *to) {
    bool *taken = NEW_ARRAY(arena, bool, body->count), *all = NEW_ARRAY(arena, bool, body->count);
    for (int at = 0; at < body->count; at++) {
        Needs needs = {arena, map_new(arena), map_new(arena)};
        if (which[at]) close_over_lets(&needs, body, at, taken);
        for (int i = 0; i < at; i++) all[i] |= which[at] && taken[i];
        all[at] = which[at];
    }
    for (int i = 0; i < body->count; i++)
        if (all[i]) block_push(arena, to, clone_stmt(arena, subst, body->items[i]));
}
