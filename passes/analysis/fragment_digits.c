// The indices of a fragment as digits: a view that splits or joins dims indexes by sums, v[i, j * 8 + k].
#include "ir/build.h"
#include "ir/query.h"
#include "ir/rewrite.h"
#include "passes/analysis/tile_loop.h"
#include <string.h>

TileLoop loop_space(Stmt *loop) {
    TileLoop space = {.origin = loop, .rank = loop->loop.count};
    for (int i = 0; i < space.rank; i++) {
        space.iters[i] = loop->loop.iters[i].var;
        space.extents[i] = iter_count(&loop->loop.iters[i]);
    }
    return space;
}

static bool push_digit(FragmentDigits *digits, FragmentDigit digit) {
    if (digits->count == LAYOUT_MAX_RANK) return false;
    digits->items[digits->count++] = digit;
    return true;
}

// ---- a sum as digits ----

typedef struct SumTerm {
    int iterator;
    int64_t weight;
} SumTerm;

typedef struct IndexSum {   // weight * iterator + ... + constant, the lightest first
    int count;
    SumTerm terms[LAYOUT_MAX_RANK];
    int64_t constant;
} IndexSum;

static bool constant_of(const TileLoop *loop, const Expr *e, int64_t *value) {
    int64_t a, b;
    if (expr_const(e, value)) return true;
    if (e->kind == EXPR_CAST) return type_is_int(e->type) && constant_of(loop, e->operand, value);
    for (int i = 0; i < loop->rank; i++)
        if (expr_is_var(e, loop->iters[i])) return *value = 0, true;
    if (e->kind != EXPR_BINARY || !constant_of(loop, e->binary.a, &a) || !constant_of(loop, e->binary.b, &b))
        return false;
    *value = e->binary.op == BIN_ADD ? a + b : e->binary.op == BIN_SUB ? a - b : a * b;
    return e->binary.op == BIN_ADD || e->binary.op == BIN_SUB || e->binary.op == BIN_MUL;
}

static bool sum_of(const TileLoop *loop, const Expr *index, IndexSum *sum) {
    *sum = (IndexSum){0};
    for (int i = 0; i < loop->rank; i++) {
        int64_t weight;
        int at = sum->count;
        if (!linear_in(index, loop->iters[i], &weight)) return false;
        if (weight == 0) continue;
        for (; at > 0 && sum->terms[at - 1].weight > weight; at--) sum->terms[at] = sum->terms[at - 1];
        sum->terms[at] = (SumTerm){i, weight};
        sum->count++;
    }
    return constant_of(loop, index, &sum->constant) && sum->constant >= 0 && sum->count > 0;
}

typedef struct DimDigits {
    int dim, count;
    FragmentDigit items[2 * LAYOUT_MAX_RANK + 1];   // the fastest first
    int64_t rest;                                   // of the constant, in steps of the next digit
} DimDigits;

static void add_constant(DimDigits *d, int64_t extent) {
    if (extent > 1) d->items[d->count++] = (FragmentDigit){d->dim, -1, extent, d->rest % extent};
    d->rest /= extent;
}

// The iterator's digit, and a constant one up to the next place.
static bool add_iterator(DimDigits *d, int iterator, int64_t extent, int64_t room, bool last) {
    bool fills = extent > 0 && room % extent == 0;
    if (extent < 1 || extent > room || (!fills && (!last || d->rest)) || (fills && d->rest % extent)) return false;
    d->items[d->count++] = (FragmentDigit){d->dim, iterator, fills ? extent : room, 0};
    d->rest /= fills ? extent : 1;
    if (fills) add_constant(d, room / extent);
    return true;
}

static bool split_dim(const TileLoop *loop, const Buf *buf, int dim, const Expr *index, FragmentDigits *out) {
    IndexSum sum;
    if (!sum_of(loop, index, &sum)) return false;
    DimDigits d = {.dim = dim, .rest = sum.constant};
    int64_t place = 1, extent = buf_extent(buf, dim);
    for (int i = 0; i < sum.count; i++) {
        const SumTerm *term = &sum.terms[i];
        int64_t next = i + 1 < sum.count ? sum.terms[i + 1].weight : extent;
        if (term->weight < 1 || term->weight % place || next % term->weight) return false;
        add_constant(&d, term->weight / place);
        if (!add_iterator(&d, term->iterator, loop->extents[term->iterator], next / term->weight, i + 1 == sum.count))
            return false;
        place = next;
    }
    while (d.count > 0)
        if (!push_digit(out, d.items[--d.count])) return false;
    return d.rest == 0;
}

static int iterator_of(const TileLoop *loop, const Expr *index) {
    for (int i = 0; i < loop->rank; i++)
        if (expr_is_var(index, loop->iters[i])) return i;
    return -1;
}

typedef struct Sums {
    const TileLoop *loop;
    bool found;
} Sums;

static void note_sums(Sums *sums, const Buf *buf, int count, Expr *const *indices) {
    int64_t constant;
    for (int d = 0; d < count && buf->scope == SCOPE_FRAGMENT; d++)
        sums->found |= iterator_of(sums->loop, indices[d]) < 0 && !expr_const(indices[d], &constant);
}

static bool sums_of_load(Visitor *visitor, Expr *e) {
    if (e->kind == EXPR_LOAD) note_sums(visitor->user, e->load.buf, e->load.count, e->load.indices);
    return true;
}

static bool sums_of_store(Visitor *visitor, Stmt *stmt) {
    if (stmt->kind == STMT_STORE) note_sums(visitor->user, stmt->store.buf, stmt->store.count, stmt->store.indices);
    return true;
}

// A slice of the dim, in a loop that indexes fragments by sums: v[i] has the digits that v[i + 32] has, so that both are
// one view.
static bool is_slice(const TileLoop *loop, int iterator, int64_t extent) {
    int64_t count = iterator < 0 ? 0 : loop->extents[iterator];
    if (count < 1 || count >= extent || extent % count) return false;
    Sums sums = {loop, false};
    Visitor visitor = {.expr = sums_of_load, .stmt = sums_of_store, .user = &sums};
    visit_block(&visitor, is_loop(loop->origin, LOOP_PARALLEL) ? &loop->origin->loop.body : (Block *)&loop->body);
    return sums.found;
}

bool fragment_digits(const TileLoop *loop, const Buf *buf, int count, Expr *const *indices, FragmentDigits *out) {
    uint64_t used = 0;
    memset(out, 0, sizeof *out);
    for (int d = 0; d < count; d++) {
        int64_t constant = 0;
        int iterator = iterator_of(loop, indices[d]);
        bool whole = iterator >= 0 ? !is_slice(loop, iterator, buf_extent(buf, d)) : expr_const(indices[d], &constant);
        if (whole ? !push_digit(out, (FragmentDigit){d, iterator, buf_extent(buf, d), constant})
                  : !split_dim(loop, buf, d, indices[d], out))
            return false;
    }
    for (int i = 0; i < out->count; i++) {   // v[i, i]: no thread-value layout has a diagonal
        uint64_t bit = out->items[i].iterator < 0 ? 0 : (uint64_t)1 << out->items[i].iterator;
        if (used & bit) return false;
        used |= bit;
    }
    return true;
}

FragmentDigits whole_digits(const Buf *buf, int rank) {
    FragmentDigits digits;
    memset(&digits, 0, sizeof digits);
    for (int d = 0; d < rank; d++) push_digit(&digits, (FragmentDigit){d, d, buf_extent(buf, d), 0});
    return digits;
}

bool digits_equal(const FragmentDigits *a, const FragmentDigits *b) {
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++) {
        const FragmentDigit *x = &a->items[i], *y = &b->items[i];
        same = x->dim == y->dim && x->iterator == y->iterator && x->extent == y->extent;
    }
    return same;
}

// ---- layouts ----

// The place of digit k in its dim.
static int64_t place_of(const FragmentDigits *digits, int k) {
    int64_t place = 1;
    for (int i = k + 1; i < digits->count && digits->items[i].dim == digits->items[k].dim; i++)
        place *= digits->items[i].extent;
    return place;
}

bool digits_are_dims(const FragmentDigits *digits) {
    for (int k = 0; k < digits->count; k++)
        if (digits->items[k].dim != k) return false;
    return true;
}

static bool is_slowest(const FragmentDigits *digits, int k) {
    return k == 0 || digits->items[k - 1].dim != digits->items[k].dim;
}

const Layout *digits_join(Arena *arena, const FragmentDigits *digits, int rank, const Layout *tv) {
    if (digits_are_dims(digits)) return tv;
    for (int k = 0; k < digits->count; k++)
        if (!is_slowest(digits, k) && tv->out_shape[k] > digits->items[k].extent) return NULL;
    Layout *joined = layout_new(arena, 2, rank);
    for (int input = 0; input < 2; input++)
        for (int i = 0; i < tv->in[input].count; i++) {
            const LayoutMode *mode = &tv->in[input].modes[i];
            int64_t place = mode->stride ? place_of(digits, mode->out) : 0;
            layout_add(joined, input, mode->extent, mode->stride * place,
                       mode->stride ? digits->items[mode->out].dim : 0);
        }
    return layout_finish(joined);
}

// The digit in which a step of `stride` along `dim` lies; the slowest one goes on.
static int digit_at(const FragmentDigits *digits, int dim, int64_t stride) {
    int k = 0;
    while (digits->items[k].dim != dim) k++;
    while (k + 1 < digits->count && digits->items[k + 1].dim == dim && stride < place_of(digits, k)) k++;
    return k;
}

static bool split_mode(const FragmentDigits *digits, Layout *split, int input, LayoutMode mode) {
    while (mode.extent > 1) {
        int k = digit_at(digits, mode.out, mode.stride);
        int64_t place = place_of(digits, k), step = mode.stride / place, extent = digits->items[k].extent;
        bool slowest = is_slowest(digits, k);
        int64_t room = slowest ? mode.extent : extent / step, taken = room < mode.extent ? room : mode.extent;
        if (mode.stride % place || (!slowest && extent % step) || mode.extent % taken) return false;
        layout_add(split, input, taken, step, k);
        mode.extent /= taken;
        mode.stride *= taken;
    }
    return true;
}

const Layout *digits_split(Arena *arena, const FragmentDigits *digits, const Layout *tv) {
    if (digits_are_dims(digits)) return tv;
    Layout *split = layout_new(arena, 2, digits->count);
    for (int input = 0; input < 2; input++)
        for (int i = 0; i < tv->in[input].count; i++) {
            LayoutMode mode = tv->in[input].modes[i];
            if (mode.stride == 0) layout_add(split, input, mode.extent, 0, 0);
            else if (!split_mode(digits, split, input, mode)) return NULL;
        }
    return layout_finish(split);
}

const Layout *digits_project(Arena *arena, const FragmentDigits *digits, const Layout *map, bool held) {
    int dims[LAYOUT_MAX_RANK];
    int64_t extents[LAYOUT_MAX_RANK];
    for (int k = 0; k < digits->count; k++) {
        dims[k] = digits->items[k].iterator;
        extents[k] = digits->items[k].extent;
    }
    return tv_project(arena, map, digits->count, dims, held ? extents : NULL);
}

const Layout *digits_covering(Arena *arena, const FragmentDigits *digits, const Layout *tv) {
    int64_t extents[LAYOUT_MAX_RANK];
    for (int k = 0; k < digits->count; k++) extents[k] = digits->items[k].extent;
    return tv_covering(arena, tv, extents);
}
