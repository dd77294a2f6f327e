// @via(vector_store): a box of an accumulator, from shared memory to a tensor whose rows start at any element.
//
// Where the pitch of a tensor is no multiple of 16 bytes, each row starts at another place in a 16-byte unit, and TMA cannot store
// it. From registers a thread would store single elements of eight rows. From shared memory threads store whole units: a unit of
// the tensor has elements of two units of the box, which a thread loads and shifts.
//
//     head            first elements of a row, up to where a unit starts
//     row     ..abcdefghijklmnopqrstuvwx          in the box: |abcdefgh|ijklmnop|qrstuvwx|
//     units   |..abcdef|ghijklmn|opqrstuv|wx      head = 6: stores ghijklmn, opqrstuv as vectors, and a .. f, w, x as elements
//
// A row has as many elements in its first and last units together as a unit has: as many threads store them. Of a box that
// reaches beyond the tensor, threads store the units that are inside, and up to two units of elements. A tensor whose base is not
// that of a unit is stored element by element.
#include "ir/build.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

typedef struct VectorStore {
    Lower *lower;
    Arena *arena;
    const StagedBox *box;
    const Region *to;
    Span loc;
    int row_dim;            // of the tensor
    int64_t unit;           // elements
    Expr *thread, *valid;   // columns of the box that the tensor has
    int64_t units;          // that lie within a row of the box
} VectorStore;

static Expr *start_of(const VectorStore *s, int dim) {
    return lower_expr(s->lower, s->to->dims[dim].start);
}

static Expr *row_of(const VectorStore *s, Expr *row) {
    return e_add(s->arena, e_add(s->arena, start_of(s, s->row_dim), s->box->row), row);
}

static Expr *column_of(const VectorStore *s, Expr *column) {
    return e_add(s->arena, e_plus(s->arena, start_of(s, s->to->count - 1), s->box->column), column);
}

// An element of the tensor, at a row and column of the box.
static Region *tensor_place(const VectorStore *s, Expr *row, Expr *column) {
    Expr *at[LAYOUT_MAX_RANK];
    for (int d = 0; d < s->to->count; d++) at[d] = start_of(s, d);
    at[s->row_dim] = row_of(s, row);
    at[s->to->count - 1] = column_of(s, column);
    return lower_place(s->lower, s->to->buf, s->to->count, at);
}

static Region *box_place(const VectorStore *s, Expr *row, Expr *column) {
    Expr *at[LAYOUT_MAX_RANK];
    for (int i = 0; i < s->box->prefix; i++) at[i] = s->box->at[i];
    at[s->box->prefix] = row;
    at[s->box->prefix + 1] = column;
    return lower_place(s->lower, s->box->buf, s->box->prefix + 2, at);
}

// first .. end lies in the tensor's dim.
static Expr *is_inside(const VectorStore *s, Expr *first, Expr *end, int dim) {
    Arena *a = s->arena;
    Expr *begins = lower_simple(s->lower, e_ge(a, first, e_int(a, 0)));
    return e_and(a, begins, lower_simple(s->lower, e_binary(a, BIN_LE, end, s->to->buf->shape[dim])));
}

static Expr *holds(const VectorStore *s, Expr *index, int dim) {
    return is_inside(s, index, e_plus(s->arena, index, 1), dim);
}

// Elements of the row up to the first unit that starts in it.
static Expr *head_of(const VectorStore *s, Expr *row, Block *out) {
    const Buf *tensor = s->to->buf;
    Arena *a = s->arena;
    Expr *offset = NULL;
    for (int d = 0; d < s->to->count; d++) {
        Expr *index = d == s->row_dim         ? row_of(s, row)
                      : d == s->to->count - 1 ? column_of(s, e_int(a, 0))
                                              : start_of(s, d);
        if (tensor->strides) index = e_mul(a, index, tensor->strides[d]);
        else if (offset) offset = e_mul(a, offset, tensor->shape[d]);
        offset = offset ? e_add(a, offset, index) : index;
    }
    Expr *before = e_binary(a, BIN_AND, offset, e_int(a, s->unit - 1));
    Expr *head = e_binary(a, BIN_AND, e_sub(a, e_int(a, s->unit), before), e_int(a, s->unit - 1));
    return block_let(a, out, "head", head, s->loc);
}

// One of `count` places in each of the box's rows.
typedef struct Place {
    Expr *row, *number;
    Expr *inside;   // the tensor has the row
    Block *body;
} Place;

// A loop in which each thread has such a place. The last round may have fewer threads. What is stored is loaded whether the
// tensor has the row or not, since a load behind a branch would wait for those before it.
static Place push_places(const VectorStore *s, LoopKind kind, int64_t count, Block *out) {
    Arena *a = s->arena;
    int64_t threads = target_warpgroup(s->lower->target), all = s->box->rows * count;
    Place place;
    Expr *q;
    Block *body = lower_counted(s->lower, kind, "q", 0, (all + threads - 1) / threads, s->loc, &q, out);
    Expr *v = lower_named(s->lower, "v", e_add(a, e_times(a, q, threads), s->thread), s->loc, body);
    place.row = lower_named(s->lower, "i", e_over(a, v, count), s->loc, body);
    place.number = lower_named(s->lower, "c", e_rem(a, v, count), s->loc, body);
    place.inside = holds(s, row_of(s, place.row), s->row_dim);
    place.body = all % threads ? block_if(a, body, lower_simple(s->lower, e_lt(a, v, e_int(a, all)))) : body;
    return place;
}

static void push_element(const VectorStore *s, const Place *place, Expr *column, Expr *inside) {
    Arena *a = s->arena;
    Expr *last = e_int(a, s->box->columns - 1), *held = lower_simple(s->lower, e_min(a, column, last));
    Expr *value = block_let(a, place->body, "element", e_load_at(a, box_place(s, place->row, held)), s->loc);
    Block *only = block_if(a, place->body, e_both(a, inside, place->inside));
    block_push(a, only, s_store_at(a, tensor_place(s, place->row, column), value));
}

// ---- a unit ----

enum { WORD_BITS = 32, PER_WORD = 2 };   // stmatrix stores elements of 16 bits

// words[e + by] where `chosen`, else words[e].
static Buf *selected(Arena *a, Block *out, Buf *words, int64_t count, int64_t by, Expr *chosen, Span loc) {
    Buf *moved = block_local(a, out, "moved", TYPE_U32, count, loc);
    for (int64_t e = 0; e < count; e++) {
        Expr *stays = e_load1(a, words, e_int(a, e)), *moves = e_load1(a, words, e_int(a, e + by));
        block_store1(a, out, moved, e_int(a, e), e_select(a, chosen, moves, stays));
    }
    return moved;
}

static Expr *low_bits(Arena *a, Expr *value, int64_t mask) {
    return e_binary(a, BIN_AND, value, e_int(a, mask));
}

// The elements of a unit from number `first` of the two units in `pair` on. The bits of `first` select words; what is left is a funnel
// shift of neighbouring words.
static Buf *push_shifted(const VectorStore *s, Buf *pair, Expr *first, Block *out) {
    Arena *a = s->arena;
    int64_t half = s->unit / PER_WORD;
    Buf *words = block_local(a, out, "words", TYPE_U32, 2 * half, s->loc);
    Arg from = arg_element(a, pair, e_int(a, 0));
    BLOCK_CALL(a, out, s->loc, OP_RECAST, arg_element(a, words, e_int(a, 0)), from, arg_int(a, 2 * half));
    for (int64_t by = half / 2; by > 0; by /= 2) {   // a word more than the unit's is left for the shift
        Expr *chosen = e_binary(a, BIN_NE, low_bits(a, first, by * PER_WORD), e_int(a, 0));
        words = selected(a, out, words, half + by, by, chosen, s->loc);
    }
    Buf *shifted = block_local(a, out, "shifted", TYPE_U32, half, s->loc);
    Expr *odd = e_times(a, low_bits(a, first, PER_WORD - 1), WORD_BITS / PER_WORD);
    Expr *by = e_cast(a, TYPE_U64, block_let(a, out, "by", odd, s->loc));
    for (int64_t e = 0; e < half; e++) {
        Expr *low = e_cast(a, TYPE_U64, e_load1(a, words, e_int(a, e)));
        Expr *high = e_cast(a, TYPE_U64, e_load1(a, words, e_int(a, e + 1)));
        Expr *both = e_binary(a, BIN_OR, e_binary(a, BIN_SHL, high, e_cast(a, TYPE_U64, e_int(a, WORD_BITS))), low);
        block_store1(a, out, shifted, e_int(a, e), e_cast(a, TYPE_U32, e_binary(a, BIN_SHR, both, by)));
    }
    Buf *unit = block_local(a, out, "unit", pair->type, s->unit, s->loc);
    from = arg_element(a, shifted, e_int(a, 0));
    BLOCK_CALL(a, out, s->loc, OP_RECAST, arg_element(a, unit, e_int(a, 0)), from, arg_int(a, s->unit));
    return unit;
}

// ---- a box ----

// (A row has as many places as its staging has units, so that those of whole rows load at a time, from different banks.)
static void push_vectors(const VectorStore *s, Block *out) {
    Arena *a = s->arena;
    if (s->units == 0) return;
    int mark = facts_mark(s->lower->facts);
    Place place = push_places(s, LOOP_UNROLL, buf_extent(s->box->buf, s->box->buf->rank - 1) / s->unit, out);
    Block *body = place.body;
    Expr *head = head_of(s, place.row, body), *last = e_int(a, s->units);
    Buf *pair = block_local(a, body, "pair", s->to->buf->type, 2 * s->unit, s->loc);
    for (int half = 0; half < 2; half++) {
        Expr *unit = lower_simple(s->lower, e_min(a, e_plus(a, place.number, half), last));
        BLOCK_CALL(a, body, s->loc, OP_VLOAD, arg_element(a, pair, e_int(a, half * s->unit)),
                   arg_region(box_place(s, place.row, e_times(a, unit, s->unit))), arg_int(a, s->unit));
    }
    Buf *unit = push_shifted(s, pair, head, body);
    Expr *first = e_add(a, e_times(a, place.number, s->unit), head);
    Expr *whole = e_and(a, e_lt(a, place.number, last), e_binary(a, BIN_LE, e_plus(a, first, s->unit), s->valid));
    Block *only = block_if(a, body, e_both(a, whole, place.inside));
    BLOCK_CALL(a, only, s->loc, OP_VSTORE, arg_region(tensor_place(s, place.row, first)),
               arg_element(a, unit, e_int(a, 0)), arg_int(a, s->unit));
    facts_release(s->lower->facts, mark);
}

// The elements before the first unit, and those behind the last one: of a whole box a unit's number together.
static void push_ends(const VectorStore *s, bool whole, Block *out) {
    Arena *a = s->arena;
    int mark = facts_mark(s->lower->facts);
    Place place = push_places(s, LOOP_UNROLL, whole ? s->unit : 2 * s->unit, out);
    Expr *e = place.number, *head = head_of(s, place.row, place.body), *inside = NULL;
    Expr *before = e_lt(a, e, head), *behind = e_plus(a, e, s->box->columns - s->unit);
    if (!whole) {
        Expr *units = e_over(a, e_max(a, e_sub(a, s->valid, head), e_int(a, 0)), s->unit);
        behind = e_times(a, e_min(a, units, e_int(a, s->units)), s->unit);
        behind = e_plus(a, e_add(a, e_add(a, head, behind), e), -s->unit);
        inside = e_binary(a, BIN_LOGICAL_OR, e_ge(a, e, e_int(a, s->unit)), before);
        before = e_lt(a, e, e_int(a, s->unit));
    }
    Expr *column = block_let(a, place.body, "j", e_select(a, before, e, behind), s->loc);
    push_element(s, &place, column, whole ? NULL : e_and(a, inside, e_lt(a, column, s->valid)));
    facts_release(s->lower->facts, mark);
}

static void push_elements(const VectorStore *s, Block *out) {
    int mark = facts_mark(s->lower->facts);
    Place place = push_places(s, LOOP_SERIAL, s->box->columns, out);
    push_element(s, &place, place.number, holds(s, column_of(s, place.number), s->to->count - 1));
    facts_release(s->lower->facts, mark);
}

void lower_vector_store(Lower *lower, const Region *to, const StagedBox *box, Expr *thread, Span loc, Block *out) {
    Arena *a = lower->arena;
    VectorStore s = {lower,           a, box, to, loc, .unit = tma_facts.unit_bytes / type_bytes(to->buf->type),
                     .thread = thread};
    while (!to->dims[s.row_dim].extent) s.row_dim++;
    s.units = box->columns / s.unit - 1;
    Expr *first = column_of(&s, e_int(a, 0)), *end = column_of(&s, e_int(a, box->columns));
    Expr *columns = e_int(a, box->columns), *whole = is_inside(&s, first, end, to->count - 1);
    int mark = facts_mark(lower->facts);
    s.valid = lower_named(lower, "valid", e_min(a, columns, e_sub(a, to->buf->shape[to->count - 1], first)), loc, out);
    Expr *begins = lower_simple(lower, e_ge(a, first, e_int(a, 0)));
    Stmt *choice = s_if(a, e_and(a, begins, lower_simple(lower, aligned_fact(a, to->buf, tma_facts.unit_bytes))));
    Stmt *ends = s_if(a, whole);
    block_push(a, out, choice);
    push_vectors(&s, &choice->if_.then);
    push_ends(&s, true, &ends->if_.then);
    push_ends(&s, false, &ends->if_.otherwise);
    block_push(a, &choice->if_.then, ends);
    push_elements(&s, &choice->if_.otherwise);
    facts_release(lower->facts, mark);
}
