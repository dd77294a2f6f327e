// Views whose element is not an element of the buffer as it is: of another width, or of another CTA.
//
//     upcast(x, u32)[i, j]      x[i, 4 * j] and the three behind it, of u8[M, N]; [M, N / 4]
//     downcast(w, u8)[i, j]     part j % 4 of w[i, j / 4], of u32[M, N]; [M, 4 * N]
//     peer(t, rank)[i, j]       t[i, j] of that CTA of the cluster
//
// Parts are numbered from the lowest bits, as they lie in memory. Accesses are those of the buffer's own elements: parts
// of one element that a thread reads are one load.
#include "frontend/sema.h"
#include "ir/facts.h"
#include "ir/print.h"
#include <string.h>

// ---- types ----
static Type unsigned_of(Type type) {
    static const Type types[] = {TYPE_U8, TYPE_U16, TYPE_U32, TYPE_U64};
    for (int i = 0; i < COUNT_OF(types); i++)
        if (type_bits(types[i]) == type_bits(type)) return types[i];
    return TYPE_NONE;
}

static bool has_bits(Type type) {
    return (type_is_int(type) || type_is_float(type)) && unsigned_of(type) != TYPE_NONE;
}

Type view_type(const View *view) {
    return view->is_cast ? view->cast : view->buf->type;
}

Type place_type(const Place *place) {
    return place->is_cast ? place->cast : place->buf->type;
}

// ---- upcast, downcast ----
static const View *upcast(Sema *s, const Node *call, const View *of, int64_t ratio) {
    ViewSlice slices[LAYOUT_MAX_RANK];
    int last = of->rank - 1;
    const char *why = NULL;
    if (!view_divides(s, of->shape[last], ratio))
        why = arena_printf(s->arena, "%s elements along dim %d are not known to be a multiple of %lld",
                           expr_text(s->arena, of->shape[last]), last, (long long)ratio);
    else if (view_step(s, of, of->buf->rank - 1, last) != 1) why = view_neighbours(s, of, last);
    if (why || !view_is_contiguous(s, of, last, ratio, &why)) return view_refused(s, call, of, why);
    for (int k = 0; k < of->rank; k++)
        slices[k] = (ViewSlice){.start = e_int(s->arena, 0), .count = of->shape[k], .step = 1, .clips = of->clips[k]};
    slices[last].count = e_over(s->arena, of->shape[last], ratio);
    slices[last].step = ratio;
    return view_slice(s, of, slices);
}

const View *view_cast(Sema *s, const Node *call, const View *of) {
    bool up = strcmp(call->text, "upcast") == 0;
    if (call->count != 2 || call->kids[1]->kind != N_NAME) return view_refused(s, call, of, "it needs a type");
    Type type = find_type(s, call->kids[1]), own = view_type(of);
    if (type == TYPE_NONE) return NULL;
    if (of->is_cast) return view_refused(s, call, of, "its elements are those of a view of another type");
    if (!has_bits(type) || !has_bits(own) || of->rank == 0)
        return view_refused(s, call, of, "only numbers are seen as others");
    if (type == own) return of;
    int from = type_bits(own), to = type_bits(type);
    if (up ? to < from : to > from)
        return view_refused(
            s, call, of,
            arena_printf(s->arena, "%s has %d bits, and %s %d", type_text(own), from, type_text(type), to));
    const View *view = to > from ? upcast(s, call, of, to / from) : to < from ? view_in_pieces(s, of, from / to) : of;
    if (!view) return NULL;
    View *cast = arena_copy(s->arena, view, sizeof *view);
    cast->is_cast = true;
    cast->cast = type;
    cast->whole = false;
    return cast;
}

// ---- tiles of other CTAs ----

// Of a tile; `peer(x[i], rank)` is an element.
bool is_peer_tile(Sema *s, const Node *call) {
    if (strcmp(call->text, op_info(OP_PEER)->text) != 0 || call->count != 2) return false;
    const Node *of = call->kids[0];
    if (is_element(of) || of->kind == N_NAMED) return false;
    if (of->kind == N_NAME && !find(s, of->text)) return false;
    if (!is_view(s, of)) return of->kind == N_NAME && find(s, of->text)->kind == SYMBOL_BUF;
    if (of->kind == N_NAME && !is_held(s, of)) return find(s, of->text)->view->rank > 0;
    if (!is_held(s, of)) return true;
    const View *tile = held_tile(s, of);
    return tile && tile->rank > 0;
}

const View *view_of_peer(Sema *s, const Node *call) {
    const View *of = view_named(s, call->kids[0]);
    if (!of) return NULL;
    if (of->buf->scope != SCOPE_SHARED || of->cta || type_kind(of->buf->type) == KIND_OPAQUE)
        return view_refused(s, call, of, of->cta ? "it is a peer's already" : "a peer has tiles in shared memory");
    View *view = arena_copy(s->arena, of, sizeof *of);
    view->cta = view_bound(s, index_expression(s, call->kids[1]), call->span);
    view->whole = false;
    return view;
}

// ---- elements ----
Region *place_region(Sema *s, const Place *place, int64_t behind) {
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < place->count; d++) indices[d] = place->indices[d];
    if (behind) indices[place->count - 1] = e_plus(s->arena, indices[place->count - 1], behind);
    Region *region = region_element(s->arena, place->buf, place->count, indices);
    region->count = place->count;   // of a fragment's slots: one
    return region;
}

// Of the buffer's own type; `behind` elements further.
static Expr *element(Sema *s, const Place *place, int64_t behind) {
    Region *region = place_region(s, place, behind);
    if (place->cta) return E_CALL(s->arena, OP_PEER, arg_region(region), arg_value(place->cta));
    return e_load_at(s->arena, region);
}

static Expr *shift(Sema *s, BinaryOp op, Expr *bits, Expr *count) {
    return e_binary(s->arena, op, bits, e_cast(s->arena, bits->type, count));
}

static Expr *joined(Sema *s, const Place *place) {
    Type own = place->buf->type, narrow = unsigned_of(own), wide = unsigned_of(place->cast);
    int64_t bits = type_bits(own), count = type_bits(place->cast) / bits;
    Expr *all = NULL;
    for (int64_t i = 0; i < count; i++) {
        Expr *piece = e_cast(s->arena, wide, e_bitcast(s->arena, narrow, element(s, place, i)));
        if (i) piece = shift(s, BIN_SHL, piece, e_int(s->arena, i * bits));
        all = all ? e_binary(s->arena, BIN_OR, all, piece) : piece;
    }
    return e_bitcast(s->arena, place->cast, all);
}

static Expr *piece_of_element(Sema *s, const Place *place) {
    Type own = place->buf->type;
    Expr *all = e_bitcast(s->arena, unsigned_of(own), element(s, place, 0));
    Expr *at = e_times(s->arena, place->piece, type_bits(place->cast));
    return e_bitcast(s->arena, place->cast, e_cast(s->arena, unsigned_of(place->cast), shift(s, BIN_SHR, all, at)));
}

Expr *place_value(Sema *s, const Place *place) {
    Expr *value = place->piece ? piece_of_element(s, place) : place->is_cast ? joined(s, place) : element(s, place, 0);
    return place->inside ? e_select(s->arena, place->inside, value, e_zero(s->arena, value->type)) : value;
}

bool place_may_be_stored(Sema *s, const Place *place, Span span) {
    const char *why = NULL;
    if (place->piece) why = "several of its elements are parts of one";
    else if (place->cta && place->is_cast) why = "another CTA's elements are written as they are";
    else if (place->cta && !place->buf->channel) why = "it lies in another CTA, and is no tile of a channel";
    if (why) diag(s->sink, span, T_VIEW_STORE, place->buf->name, why);
    return !why;
}

static void push_store(Sema *s, Block *out, Region *region, Expr *value, Span span) {
    Stmt *store = s_store_at(s->arena, region, value);
    store->loc = place_of(s, span);
    block_push(s->arena, out, store);
}

static void store_pieces(Sema *s, Block *out, const Place *place, Expr *value, Span span) {
    Type own = place->buf->type;
    int64_t bits = type_bits(own), count = type_bits(place->cast) / bits;
    Var *all = var_new(s->arena, "bits", VAR_LET, unsigned_of(place->cast), place_of(s, span));
    block_push(s->arena, out, s_let(s->arena, all, e_bitcast(s->arena, all->type, value)));
    for (int64_t i = 0; i < count; i++) {
        Expr *piece = i ? shift(s, BIN_SHR, e_var(s->arena, all), e_int(s->arena, i * bits)) : e_var(s->arena, all);
        piece = e_bitcast(s->arena, own, e_cast(s->arena, unsigned_of(own), piece));
        push_store(s, out, place_region(s, place, i), piece, span);
    }
}

static void store_in_peer(Sema *s, Block *out, const Place *place, Expr *value, Span span) {
    Arg args[] = {arg_region(place_region(s, place, 0)), arg_value(place->cta), arg_value(value), {0}};
    Stmt *store = s_call(s->arena, OP_PEER_STORE, COUNT_OF(args), args);
    store->loc = place_of(s, span);
    block_push(s->arena, out, store);
}

void place_store(Sema *s, Block *out, const Place *place, Expr *value, Span span) {
    if (place->inside) {
        Stmt *inside = s_if(s->arena, place->inside);
        block_push(s->arena, out, inside);
        out = &inside->if_.then;
    }
    if (place->cta) store_in_peer(s, out, place, value, span);
    else if (place->is_cast) store_pieces(s, out, place, value, span);
    else push_store(s, out, place_region(s, place, 0), value, span);
}
