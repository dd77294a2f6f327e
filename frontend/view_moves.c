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

// Piece number `number` of the operand, the last dim's fastest; NULL: it is no region.
static Region *piece_of(Sema *s, const TileOperand *of, const int64_t *extents, int64_t number, Span span) {
    ViewSlice slices[LAYOUT_MAX_RANK];
    const char *why;
    for (int k = of->view->rank - 1; k >= 0; k--) {
        int64_t count = of->tiles[k] / extents[k];
        slices[k] = (ViewSlice){e_int(s->arena, number % count * extents[k]), e_int(s->arena, extents[k]), 1, false};
        number /= count;
    }
    return view_region(s, view_slice(s, of->view, slices), extents, span, &why);
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
        extents[k] = unbroken_in(src->view, k, unbroken_in(dst->view, k, dst->tiles[k]));
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
    for (int64_t i = 0; i < pieces; i++) {
        Stmt *copy = s_call(s->arena, OP_COPY, 2, (Arg[]){arg_region(regions[2 * i]), arg_region(regions[2 * i + 1])});
        copy->loc = place_of(s, span);
        emit(s, copy);
    }
    return true;
}

void move_tiles(Sema *s, const TileOperand *src, Expr *value, const TileOperand *dst, Span span) {
    if (src && buf_root(src->view->buf) == buf_root(dst->view->buf)) {
        move_by_fragment(s, src, dst, span);
        return;
    }
    if (src && move_pieces(s, src, dst, span)) return;
    Move move = loop_over(s, dst, span);
    Place to = element_of(s, &move, dst->view);
    if (src) {
        Place from = element_of(s, &move, src->view);
        value = place_value(s, &from);
    }
    store_at(s, &move, &to, value, span);
}
