// Copies and fills whose operand no region can say: loops over the elements.
//
//     copy(x[0 +: 64 step 2, :], tile);    =>    parallel (i in 64, j in 32) tile[i, j] = x[i * 2, j];
//
// Such a loop is a gather or scatter to all passes: it pipelines, and its accesses are as wide as its indices allow.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/rewrite.h"
#include <string.h>

typedef struct Move {
    Stmt *loop;
    Facts *facts;   // with the ranges of the iterators
    int rank;
    Expr *at[LAYOUT_MAX_RANK];
} Move;

static Move loop_over(Sema *s, const TileOperand *dst, Span span) {
    Move move = {.loop = stmt_new(s->arena, STMT_FOR, place_of(s, span)), .rank = dst->view->rank};
    move.facts = known_facts(s);
    move.loop->loop.kind = LOOP_PARALLEL;
    move.loop->loop.count = move.rank;
    move.loop->loop.iters = NEW_ARRAY(s->arena, Iter, move.rank + 1);
    for (int k = 0; k < move.rank; k++) {
        Var *var = var_new(s->arena, dst->view->at[k]->name, VAR_ITER, TYPE_I64, move.loop->loc);
        move.loop->loop.iters[k] = iter_new(s->arena, var, e_int(s->arena, dst->tiles[k]));
        facts_iter(move.facts, &move.loop->loop.iters[k]);
        move.at[k] = e_var(s->arena, var);
    }
    return move;
}

// The element at the loop's indices. An extent that clips is a limit, too.
static Place element_of(Sema *s, const Move *move, const View *view) {
    Place place = view_place(s, view, move->at);
    for (int k = 0; k < view->rank; k++)
        if (view->clips[k] && !view->limit[k])
            place.inside = e_both(s->arena, place.inside, e_lt(s->arena, move->at[k], view->shape[k]));
    if (place.piece) place.piece = simplify_expr(s->arena, move->facts, place.piece);
    for (int d = 0; d < place.count; d++) place.indices[d] = simplify_expr(s->arena, move->facts, place.indices[d]);
    place_in_tensor(s, &place);
    if (place.inside) place.inside = simplify_expr(s->arena, move->facts, place.inside);
    if (place.inside && expr_is_int(place.inside, 1)) place.inside = NULL;
    return place;
}

static void store_at(Sema *s, Move *move, const Place *place, Expr *value, Span span) {
    if (!place_may_be_stored(s, place, span)) return;
    Expr *given = to_type(s, value_expr(s, value, span), place_type(place));
    place_store(s, &move->loop->loop.body, place, given, span);
    emit(s, move->loop);
}

Buf *move_to_fragment(Sema *s, const TileOperand *src, Span span) {
    Buf *read = buf_new_const(s->arena, arena_printf(s->arena, "%s_read", src->view->buf->name), SCOPE_FRAGMENT,
                              view_type(src->view), src->view->rank, src->tiles, place_of(s, span));
    read->made_of = src->view->buf;
    emit(s, s_decl(s->arena, read));
    TileOperand dst = {.view = view_of_buffer(s, read)};
    memcpy(dst.tiles, src->tiles, sizeof dst.tiles);
    move_tiles(s, src, NULL, &dst, span);
    return read;
}

// An operation reads its source before it writes.
static void move_by_fragment(Sema *s, const TileOperand *src, const TileOperand *dst, Span span) {
    TileOperand between = {.view = view_of_buffer(s, move_to_fragment(s, src, span))};
    memcpy(between.tiles, dst->tiles, sizeof between.tiles);
    move_tiles(s, &between, NULL, dst, span);
}

// ---- in pieces ----
//
// A tile of a tensor that lies in tiles itself is several regions, each a copy:
//
//     copy(W[j * 128, k * 32], Ws)    of tiles of 64 x 32    =>    copy(W[2 * j, k, :, :], Ws[0 +: 64, :]);
//                                                                  copy(W[2 * j + 1, k, :, :], Ws[64 +: 64, :]);
//
// So is one of a shared buffer whose dims are joined: t[i * 16 + j, k] is a region for each i.
//
// Pieces smaller than what a swizzle permutes are left to the loop.

enum { PIECE_BYTES = 1024 };   // rows of 128 bytes, eight of them

// The greatest number that divides `tile` and each divisor in the expressions that use the coordinate.
static int64_t unbroken(const Expr *e, const Var *coordinate, int64_t tile) {
    int64_t by;
    if (e->kind != EXPR_BINARY || !expr_uses_var(e, coordinate)) return tile;
    bool cuts = e->binary.op == BIN_DIV || e->binary.op == BIN_MOD;
    if (cuts && expr_const(e->binary.b, &by) && by > 0) tile = gcd64(tile, by);
    return unbroken(e->binary.b, coordinate, unbroken(e->binary.a, coordinate, tile));
}

static int64_t unbroken_in(const View *view, int dim, int64_t tile) {
    for (int d = 0; d < view->buf->rank; d++) tile = unbroken(view->index[d], view->at[dim], tile);
    return tile;
}

// An index of the buffer counts the dim's coordinate in larger steps than another one's.
static bool is_joined(Sema *s, const View *view, int dim) {
    for (int d = 0; d < view->buf->rank; d++) {
        int64_t step = expr_uses_var(view->index[d], view->at[dim]) ? view_step(s, view, d, dim) : 0;
        for (int k = 0; k < view->rank && step; k++) {
            if (k == dim || !expr_uses_var(view->index[d], view->at[k])) continue;
            int64_t other = view_step(s, view, d, k);
            if (other > 0 && other < step) return true;
        }
    }
    return false;
}

// The extent of a piece along the dim; 1 of joined dims of a shared buffer that a tensor fills.
static int64_t piece_extent(Sema *s, const TileOperand *src, const TileOperand *dst, int dim) {
    bool fills = src->view->buf->scope == SCOPE_GLOBAL && dst->view->buf->scope == SCOPE_SHARED;
    if (fills && is_joined(s, dst->view, dim)) return 1;
    return unbroken_in(src->view, dim, unbroken_in(dst->view, dim, dst->tiles[dim]));
}

static void push_copy(Sema *s, Region *from, Region *to, Span span) {
    Stmt *copy = s_call(s->arena, OP_COPY, 2, (Arg[]){arg_region(from), arg_region(to)});
    copy->loc = place_of(s, span);
    emit(s, copy);
}

// Piece number `number` of the operand, the last dim's fastest; NULL: it is no region. Dims that are cut into single
// steps are none of the piece.
static Region *piece_of(Sema *s, const TileOperand *of, const int64_t *extents, int64_t number, Span span) {
    ViewSlice slices[LAYOUT_MAX_RANK];
    int64_t tiles[LAYOUT_MAX_RANK];
    const char *why;
    int rank = 0;
    for (int k = of->view->rank - 1; k >= 0; k--) {
        int64_t count = of->tiles[k] / extents[k];
        slices[k] = (ViewSlice){e_int(s->arena, number % count * extents[k]), e_int(s->arena, extents[k]), 1, false};
        if (extents[k] == 1 && count > 1) slices[k].count = NULL;
        number /= count;
    }
    for (int k = 0; k < of->view->rank; k++)
        if (slices[k].count) tiles[rank++] = extents[k];
    return view_region(s, view_slice(s, of->view, slices), tiles, span, &why);
}

static bool is_clipped(const View *view) {
    bool clips = false;
    for (int k = 0; k < view->rank; k++) clips |= view->clips[k];
    return clips;
}

static bool move_pieces(Sema *s, const TileOperand *src, const TileOperand *dst, Span span) {
    int64_t extents[LAYOUT_MAX_RANK], pieces = 1, bytes = type_bytes(src->view->buf->type);
    int rank = dst->view->rank;
    for (int k = 0; k < rank; k++) {
        extents[k] = piece_extent(s, src, dst, k);
        pieces *= dst->tiles[k] / extents[k];
        bytes *= extents[k];
    }
    if (pieces == 1 || bytes < PIECE_BYTES || is_clipped(src->view) || is_clipped(dst->view)) return false;
    Region **regions = NEW_ARRAY(s->arena, Region *, 2 * pieces);
    for (int64_t i = 0; i < pieces; i++) {
        regions[2 * i] = piece_of(s, src, extents, i, span);
        regions[2 * i + 1] = piece_of(s, dst, extents, i, span);
        if (!regions[2 * i] || !regions[2 * i + 1]) return false;
    }
    for (int64_t i = 0; i < pieces; i++) push_copy(s, regions[2 * i], regions[2 * i + 1], span);
    return true;
}

// ---- in the coordinates of a shared buffer ----
//
// Where the dims of a tile that a tensor fills are not those of the operands, both take its dims: in t[i * 16 + j, k] r is
// i * 16 + j, and in t[i % 2, i / 2] i is 2 * b + a. Then the copy, or a loop if the tensor's side is no region, fills it
// in its own order.

typedef struct Sides {
    TileOperand *from, *to;   // a tensor, a shared tile
} Sides;

// Both with these dims, in this order.
static bool reshape_sides(Sema *s, const Sides *sides, const int *order, int rank, const int64_t *tiles) {
    TileOperand *both[] = {sides->from, sides->to};
    Expr *shape[LAYOUT_MAX_RANK];
    for (int k = 0; k < rank; k++) shape[k] = e_int(s->arena, tiles[k]);
    for (int i = 0; i < COUNT_OF(both); i++) {
        const View *view = order ? view_permute(s, both[i]->view, order) : both[i]->view;
        view = view_reshape(s, view, rank, shape);
        if (!view) return false;
        both[i]->view = view_simple(s, view, tiles);
        memcpy(both[i]->tiles, tiles, sizeof *tiles * (size_t)rank);
    }
    return true;
}

// The first dim that a quotient or remainder cuts, in two.
static bool split_dim(Sema *s, const Sides *sides) {
    const TileOperand *of = sides->to;
    int64_t tiles[LAYOUT_MAX_RANK];
    int rank = 0;
    bool done = of->view->rank == LAYOUT_MAX_RANK;
    for (int k = 0; k < of->view->rank; k++) {
        int64_t tile = of->tiles[k], extent = done ? tile : unbroken_in(of->view, k, tile);
        bool cut = extent > 1 && extent < tile;
        if (cut) tiles[rank++] = tile / extent;
        tiles[rank++] = cut ? extent : tile;
        done |= cut;
    }
    return rank > of->view->rank && reshape_sides(s, sides, NULL, rank, tiles);
}

// The dim whose steps this one's go on; -1: there is none.
static int goes_on_from(Sema *s, const TileOperand *of, int dim) {
    for (int d = 0; d < of->view->buf->rank; d++) {
        if (!expr_uses_var(of->view->index[d], of->view->at[dim])) continue;
        int64_t step = view_step(s, of->view, d, dim);
        for (int k = 0; k < of->view->rank && step > 0; k++)
            if (k != dim && view_step(s, of->view, d, k) * of->tiles[k] == step) return k;
    }
    return -1;
}

static bool join_dim(Sema *s, const Sides *sides) {
    const TileOperand *of = sides->to;
    int64_t tiles[LAYOUT_MAX_RANK];
    int order[LAYOUT_MAX_RANK], slow = 0, fast = -1, rank = 0, at = 0;
    while (slow < of->view->rank && (fast = goes_on_from(s, of, slow)) < 0) slow++;
    for (int k = 0; k < of->view->rank && fast >= 0; k++) {
        if (k == slow) continue;
        if (k == fast) order[at++] = slow;
        order[at++] = k;
        tiles[rank++] = of->tiles[k] * (k == fast ? of->tiles[slow] : 1);
    }
    return fast >= 0 && reshape_sides(s, sides, order, rank, tiles);
}

// The dims in the order of the buffer's.
static bool sort_dims(Sema *s, const Sides *sides) {
    const TileOperand *of = sides->to;
    int64_t tiles[LAYOUT_MAX_RANK];
    int order[LAYOUT_MAX_RANK], count = 0;
    for (int d = 0; d < of->view->buf->rank; d++)
        for (int k = 0; k < of->view->rank; k++) {
            bool taken = !expr_uses_var(of->view->index[d], of->view->at[k]);
            for (int i = 0; i < count; i++) taken |= order[i] == k;
            if (taken) continue;
            tiles[count] = of->tiles[k];
            order[count++] = k;
        }
    return count == of->view->rank && reshape_sides(s, sides, order, count, tiles);
}

static bool is_constant(const TileOperand *of) {
    for (int k = 0; k < of->view->rank; k++)
        if (of->view->clips[k] || !expr_is_int(of->view->shape[k], of->tiles[k])) return false;
    return true;
}

// False: they stay as they are.
static bool take_coordinates(Sema *s, TileOperand *from, TileOperand *to) {
    Sides sides = {from, to};
    bool fills = from->view->buf->scope == SCOPE_GLOBAL && to->view->buf->scope == SCOPE_SHARED, changed = false;
    if (!fills || !is_constant(from) || !is_constant(to)) return false;
    while (split_dim(s, &sides)) changed = true;
    while (join_dim(s, &sides)) changed = true;
    return changed && sort_dims(s, &sides);
}

static bool move_regions(Sema *s, const TileOperand *src, const TileOperand *dst, Span span) {
    const char *why;
    Region *from = view_region(s, src->view, src->tiles, span, &why);
    Region *to = from ? view_region(s, dst->view, dst->tiles, span, &why) : NULL;
    if (to) push_copy(s, from, to, span);
    return to != NULL;
}

void move_tiles(Sema *s, const TileOperand *src, Expr *value, const TileOperand *dst, Span span) {
    if (src && buf_root(src->view->buf) == buf_root(dst->view->buf)) {
        move_by_fragment(s, src, dst, span);
        return;
    }
    TileOperand taken_src = src ? *src : *dst, taken_dst = *dst;
    bool changed = src && take_coordinates(s, &taken_src, &taken_dst);
    if (changed && move_regions(s, &taken_src, &taken_dst, span)) return;
    if (src && !(changed && s->in_pipelined) && move_pieces(s, src, dst, span)) return;   // one copy fills a slot
    if (changed) src = &taken_src, dst = &taken_dst;
    Move move = loop_over(s, dst, span);
    Place to = element_of(s, &move, dst->view);
    if (src) {
        Place from = element_of(s, &move, src->view);
        value = place_value(s, &from);
    }
    store_at(s, &move, &to, value, span);
}
