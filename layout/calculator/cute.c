// The shape:stride algebra.
//
// Idea. A layout is a sum of strided counters, so all of the algebra is bookkeeping on lists of (shape, stride) pairs:
//
//   coalesce    4:1, 8:4      -> 32:1   a counter whose carry lands where the next one starts is one with it
//   compose     A o (n:s)     -> walk A's counters from the fastest: divide s by the shapes passed over (what B skips),
//                                then take from each counter as many steps as are left of it, until n is used up
//   complement  A up to M     -> sort by stride; the gaps between what the counters so far reach and the next stride
//   inverses                  -> sort by stride; emit for each counter its position in the domain
//
// Everything else is composition: A divided by B is A o (B, complement of B), a product is (A, complement of A o B).
//
// Worked example: (16,8):(1,16) divided by 4 along the first mode and 2:4 along the second.
//
//   4:1 of 16:1   complement of 4:1 in 16 is 4:4      16:1 o (4,4):(1,4)    = (4,4):(1,4)
//   2:4 of 8:16   complement of 2:4 in 8 is 4:1       8:16 o (2,4):(4,1)    = (2,4):(64,16)
//   result ((4,4),(2,4)):((1,4),(64,16)): mode i is (within the tile, which tile)
//
// When composition is refused. A counter of shape s entered with step d yields ceil(s/d) points; B needs a whole
// number of such runs. Strides cannot express a carry: a run that ends inside the counter (d does not divide s), or
// two modes of B whose steps add up to more than s. C++ CuTe checks less: it compiles (8,8):(8,1) o 6:3 to
// (3,2):(24,1), whose value at 3 is 1 where A(B(3)) = A(9) = 9, and (8,3):(1,9) o (2,2):(5,6) to (2,2):(5,6), where
// A(11) = 12. Here these two signs make a result suspicious, and a suspicious result is compared point by point, or
// refused when it is too large for that. Everything that is answered satisfies R(c) = A(B(c)) for every coordinate of
// B, also beyond A's domain, where A's last mode goes on.
//
// Divide and product are not refused where they still mean something. A tile that does not divide an extent divides
// the extent rounded up: (3,5):(20,4) by 2 is (2,(2,5)):(20,(40,4)), with (1,(1,j)) outside of the layout. A product
// needs free places for the repetitions, not those of the composition in particular (multiply_mode).
//
// Limits: integers only, strides >= 0.
#include "layout/calculator/cute.h"
#include "support/numbers.h"
#include "support/vec.h"
#include <stdlib.h>
#include <string.h>

// ---- lists of leaf modes ----

typedef struct FlatMode {
    int64_t shape, stride;
} FlatMode;

typedef struct Modes {
    FlatMode *items;
    int count;
} Modes;

static int count_leaves(Cute a) {
    if (a.rank == CUTE_LEAF) return 1;
    int count = 0;
    for (int i = 0; i < a.rank; i++) count += count_leaves(a.modes[i]);
    return count;
}

static void collect(Modes *into, Cute a) {
    if (a.rank == CUTE_LEAF) into->items[into->count++] = (FlatMode){a.shape, a.stride};
    for (int i = 0; i < a.rank; i++) collect(into, a.modes[i]);
}

// The leaves, leftmost first; never empty: () is 1:0.
static Modes leaves(LayoutContext *cx, Cute a) {
    int count = count_leaves(a);
    Modes all = {NEW_ARRAY(cx->arena, FlatMode, count ? count : 1), 0};
    collect(&all, a);
    if (!all.count) all.items[all.count++] = (FlatMode){1, 0};
    return all;
}

// 0 modes are 1:0, one is a leaf, more are a flat tuple.
static Cute from_modes(LayoutContext *cx, Modes list) {
    if (list.count == 0) return cute_leaf(1, 0);
    if (list.count == 1) return cute_leaf(list.items[0].shape, list.items[0].stride);
    Cute *modes = NEW_ARRAY(cx->arena, Cute, list.count);
    for (int i = 0; i < list.count; i++) modes[i] = cute_leaf(list.items[i].shape, list.items[i].stride);
    return (Cute){.rank = list.count, .modes = modes};
}

// ---- construction ----

Cute cute_tuple(LayoutContext *cx, const Cute *modes, int count) {
    return (Cute){.rank = count, .modes = arena_copy(cx->arena, modes, sizeof *modes * (size_t)count)};
}

static Cute zip_tuples(LayoutContext *cx, Tuple shape, Tuple stride) {
    if (shape.kind == TUPLE_INT && stride.kind == TUPLE_INT) {
        if (shape.value < 1) layout_refuse(cx, "an extent is %lld; extents are at least 1", (long long)shape.value);
        if (stride.value < 0) layout_refuse(cx, "negative strides are not supported");
        return cute_leaf(shape.value, stride.value);
    }
    if (shape.kind != TUPLE_LIST || stride.kind != TUPLE_LIST || shape.count != stride.count) {
        layout_refuse(cx, "shape and stride do not have the same nesting");
        return cute_leaf(1, 0);
    }
    Cute *modes = NEW_ARRAY(cx->arena, Cute, shape.count);
    for (int i = 0; i < shape.count; i++) modes[i] = zip_tuples(cx, shape.items[i], stride.items[i]);
    return (Cute){.rank = shape.count, .modes = modes};
}

Cute cute_make(LayoutContext *cx, Tuple shape, Tuple stride) {
    Cute layout = zip_tuples(cx, shape, stride);
    if (!cx->failed) {   // all later arithmetic relies on these two
        cute_size(cx, layout);
        cute_cosize(cx, layout);
    }
    return layout;
}

static Cute compact(LayoutContext *cx, Tuple shape, bool leftmost_first, int64_t *stride) {
    if (shape.kind != TUPLE_LIST) {
        if (shape.kind == TUPLE_ANY || shape.value < 1) layout_refuse(cx, "extents are integers of at least 1");
        Cute leaf = cute_leaf(shape.value, shape.value == 1 ? 0 : *stride);   // a static 1 has stride 0, as in C++
        *stride = layout_mul(cx, *stride, shape.value);
        return leaf;
    }
    Cute *modes = NEW_ARRAY(cx->arena, Cute, shape.count);
    for (int i = 0; i < shape.count; i++) {
        int mode = leftmost_first ? i : shape.count - 1 - i;
        modes[mode] = compact(cx, shape.items[mode], leftmost_first, stride);
    }
    return (Cute){.rank = shape.count, .modes = modes};
}

Cute cute_column_major(LayoutContext *cx, Tuple shape) {
    return compact(cx, shape, true, &(int64_t){1});
}

Cute cute_row_major(LayoutContext *cx, Tuple shape) {
    return compact(cx, shape, false, &(int64_t){1});
}

Cute cute_with_shape(LayoutContext *cx, Cute layout, Tuple shape) {
    if (tuple_product(cx, shape) != cute_size(cx, layout)) {
        layout_refuse(cx, "the new shape has another size");
        return layout;
    }
    return cute_composition(cx, layout, cute_column_major(cx, shape));
}

// ---- text ----

Cute cute_scan(Scan *scan) {
    Tuple shape = scan_tuple(scan);
    if (!scan_expect(scan, ':')) return cute_leaf(1, 0);
    Tuple stride = scan_tuple(scan);
    return scan->cx->failed ? cute_leaf(1, 0) : cute_make(scan->cx, shape, stride);
}

Cute cute_parse(LayoutContext *cx, const char *text) {
    Scan scan = scan_text(cx, text);
    Cute layout = cute_scan(&scan);
    scan_end(&scan);
    return layout;
}

static void print_half(StrBuf *out, Cute a, bool strides) {
    if (a.rank == CUTE_LEAF) {
        tuple_print_integer(out, strides ? a.stride : a.shape);
        return;
    }
    if (!a.rank) sb_char(out, '(');
    for (int i = 0; i < a.rank; i++) {
        sb_char(out, i ? ',' : '(');
        print_half(out, a.modes[i], strides);
    }
    sb_char(out, ')');
}

void cute_print(StrBuf *out, Cute layout) {
    print_half(out, layout, false);
    sb_char(out, ':');
    print_half(out, layout, true);
}

char *cute_text(Arena *arena, Cute layout) {
    StrBuf out;
    sb_init(&out, arena);
    cute_print(&out, layout);
    return out.text;
}

// ---- queries ----

int64_t cute_size(LayoutContext *cx, Cute a) {
    if (a.rank == CUTE_LEAF) return a.shape;
    int64_t size = 1;
    for (int i = 0; i < a.rank; i++) size = layout_mul(cx, size, cute_size(cx, a.modes[i]));
    return size;
}

static int64_t last_offset(LayoutContext *cx, Cute a) {
    if (a.rank == CUTE_LEAF) return layout_mul(cx, a.shape - 1, a.stride);
    int64_t last = 0;
    for (int i = 0; i < a.rank; i++) last = layout_sum(cx, last, last_offset(cx, a.modes[i]));
    return last;
}

int64_t cute_cosize(LayoutContext *cx, Cute a) {
    return layout_sum(cx, last_offset(cx, a), 1);
}

static Tuple half(LayoutContext *cx, Cute a, bool strides) {
    if (a.rank == CUTE_LEAF) return tuple_int(strides ? a.stride : a.shape);
    Tuple *items = NEW_ARRAY(cx->arena, Tuple, a.rank);
    for (int i = 0; i < a.rank; i++) items[i] = half(cx, a.modes[i], strides);
    return (Tuple){.kind = TUPLE_LIST, .count = a.rank, .items = items};
}

Tuple cute_shape(LayoutContext *cx, Cute a) {
    return half(cx, a, false);
}

Tuple cute_stride(LayoutContext *cx, Cute a) {
    return half(cx, a, true);
}

static bool equal(Cute a, Cute b, bool mask_ones) {
    if (a.rank != b.rank) return false;
    if (a.rank == CUTE_LEAF) return a.shape == b.shape && (a.stride == b.stride || (mask_ones && a.shape == 1));
    for (int i = 0; i < a.rank; i++)
        if (!equal(a.modes[i], b.modes[i], mask_ones)) return false;
    return true;
}

bool cute_equal(Cute a, Cute b) {
    return equal(a, b, false);
}

bool cute_equal_masked(Cute a, Cute b) {
    return equal(a, b, true);
}

// Unchecked: used on coordinates of the domain, where cosize has been checked.
static int64_t size_unchecked(Cute a) {
    if (a.rank == CUTE_LEAF) return a.shape;
    int64_t size = 1;
    for (int i = 0; i < a.rank; i++) size *= size_unchecked(a.modes[i]);
    return size;
}

int64_t cute_at(Cute a, int64_t index) {
    if (a.rank == CUTE_LEAF) return index * a.stride;
    int64_t offset = 0;
    for (int i = 0; i < a.rank - 1; i++) {
        int64_t size = size_unchecked(a.modes[i]);
        offset += cute_at(a.modes[i], index % size);
        index /= size;
    }
    return a.rank ? offset + cute_at(a.modes[a.rank - 1], index) : 0;
}

static int64_t offset_of_integer(LayoutContext *cx, Cute a, int64_t index) {
    if (a.rank == CUTE_LEAF) return layout_mul(cx, index, a.stride);
    int64_t offset = 0;
    for (int i = 0; i < a.rank - 1; i++) {
        int64_t size = cute_size(cx, a.modes[i]);
        if (cx->failed) return 0;
        offset = layout_sum(cx, offset, offset_of_integer(cx, a.modes[i], index % size));
        index /= size;
    }
    return a.rank ? layout_sum(cx, offset, offset_of_integer(cx, a.modes[a.rank - 1], index)) : 0;
}

int64_t cute_crd2idx(LayoutContext *cx, Cute a, Tuple coord) {
    if (coord.kind == TUPLE_INT) return offset_of_integer(cx, a, coord.value);
    if (coord.kind == TUPLE_ANY) return layout_refuse(cx, "a coordinate has no '_'; use slice");
    if (a.rank != coord.count) return layout_refuse(cx, "the coordinate's nesting does not fit the shape");
    int64_t offset = 0;
    for (int i = 0; i < coord.count; i++) offset = layout_sum(cx, offset, cute_crd2idx(cx, a.modes[i], coord.items[i]));
    return offset;
}

Tuple cute_idx2crd(LayoutContext *cx, Tuple shape, Tuple index) {
    if (index.kind == TUPLE_ANY || shape.kind == TUPLE_ANY) return layout_refuse(cx, "'_' is not a coordinate"), index;
    if (shape.kind == TUPLE_INT && shape.value < 1) return layout_refuse(cx, "extents are at least 1"), index;
    bool whole = index.kind == TUPLE_INT;
    if (shape.kind == TUPLE_INT && whole) return index;
    if (shape.kind == TUPLE_INT || (!whole && index.count != shape.count))
        return layout_refuse(cx, "the coordinate's nesting does not fit the shape"), index;
    Tuple *items = NEW_ARRAY(cx->arena, Tuple, shape.count);
    int64_t rest = index.value;
    for (int i = 0; i < shape.count; i++) {
        Tuple digit = whole ? tuple_int(rest) : index.items[i];
        if (whole && i < shape.count - 1) {   // the last mode does not wrap
            int64_t size = tuple_product(cx, shape.items[i]);
            if (size < 1) return layout_refuse(cx, "extents are at least 1"), index;
            digit = tuple_int(rest % size);
            rest /= size;
        }
        items[i] = cute_idx2crd(cx, shape.items[i], digit);
    }
    return (Tuple){.kind = TUPLE_LIST, .count = shape.count, .items = items};
}

static void slice_into(LayoutContext *cx, Cute a, Tuple coord, int64_t *offset, Cute *kept, int *count) {
    if (coord.kind == TUPLE_ANY) {
        kept[(*count)++] = a;
    } else if (coord.kind == TUPLE_INT) {
        *offset = layout_sum(cx, *offset, offset_of_integer(cx, a, coord.value));
    } else if (a.rank != coord.count) {
        layout_refuse(cx, "the coordinate's nesting does not fit the shape");
    } else {
        for (int i = 0; i < coord.count; i++) slice_into(cx, a.modes[i], coord.items[i], offset, kept, count);
    }
}

Cute cute_slice(LayoutContext *cx, Cute a, Tuple coord, int64_t *offset) {
    *offset = 0;
    Cute *kept = NEW_ARRAY(cx->arena, Cute, tuple_leaves(coord) + 1);
    int count = 0;
    slice_into(cx, a, coord, offset, kept, &count);
    return coord.kind == TUPLE_ANY ? a : (Cute){.rank = count, .modes = kept};
}

// ---- normal forms ----

Cute cute_flatten(LayoutContext *cx, Cute a) {
    return from_modes(cx, leaves(cx, a));
}

// The carry of `low` lands on the next step of `high`: together they are one counter, if it is not too long.
static bool carries_into(FlatMode low, FlatMode high, FlatMode *both) {
    int64_t reach;
    if (__builtin_mul_overflow(low.shape, low.stride, &reach) || reach != high.stride) return false;
    both->stride = low.stride;
    return !__builtin_mul_overflow(low.shape, high.shape, &both->shape);
}

// Right to left as C++ does: extent-1 modes vanish, except that an all-1 list leaves its rightmost one. In place.
static Modes merge_modes(Modes list) {
    int front = list.count;   // list.items[front..] is the result but for `open`
    FlatMode open = list.items[list.count - 1];
    for (int i = list.count - 2; i >= 0; i--) {
        FlatMode mode = list.items[i], both;
        if (mode.shape == 1) continue;
        if (open.shape == 1) {
            open = mode;
        } else if (carries_into(mode, open, &both)) {
            open = both;
        } else {
            list.items[--front] = open;
            open = mode;
        }
    }
    list.items[--front] = open;
    return (Modes){list.items + front, list.count - front};
}

static Modes coalesced(Modes list) {
    list = merge_modes(list);
    if (list.count == 1 && list.items[0].shape == 1) list.items[0].stride = 0;
    return list;
}

Cute cute_coalesce(LayoutContext *cx, Cute a) {
    return from_modes(cx, coalesced(leaves(cx, a)));
}

static Cute without_zeros(LayoutContext *cx, Cute a) {
    Modes list = leaves(cx, a);
    for (int i = 0; i < list.count; i++)
        if (list.items[i].stride == 0) list.items[i].shape = 1;
    return from_modes(cx, coalesced(list));
}

Cute cute_filter(LayoutContext *cx, Cute a) {
    return without_zeros(cx, a);
}

// Applies `change` at the leaves of the profile; modes beyond it stay.
static Cute by_profile(LayoutContext *cx, Cute a, Tuple profile, Cute (*change)(LayoutContext *, Cute)) {
    if (profile.kind != TUPLE_LIST) return change(cx, a);
    if (profile.count > cute_rank(a)) {
        layout_refuse(cx, "the profile has more modes than the layout");
        return a;
    }
    Cute *modes = NEW_ARRAY(cx->arena, Cute, cute_rank(a));
    for (int i = 0; i < cute_rank(a); i++)
        modes[i] = i < profile.count ? by_profile(cx, cute_mode(a, i), profile.items[i], change) : cute_mode(a, i);
    return (Cute){.rank = cute_rank(a), .modes = modes};
}

Cute cute_coalesce_by(LayoutContext *cx, Cute a, Tuple profile) {
    return by_profile(cx, a, profile, cute_coalesce);
}

Cute cute_filter_by(LayoutContext *cx, Cute a, Tuple profile) {
    return by_profile(cx, a, profile, cute_filter);
}

// ---- composition ----

// The left side of a composition: coalesced, but a trailing extent-1 mode keeps its stride (it counts as 2), because
// the last mode gives the values beyond the domain.
static Modes coalesced_for_composition(LayoutContext *cx, Cute a) {
    Modes list = leaves(cx, a);
    FlatMode *last = &list.items[list.count - 1];
    if (last->shape == 1) last->shape = 2;
    return merge_modes(list);
}

// The state of one composition: A's counters; for each, the largest digit that B's modes can add up to; and whether
// strides may fail to express the result.
typedef struct Composition {
    Modes a;
    int64_t *digits;
    bool suspicious;
    bool any_run;   // see multiply_mode
} Composition;

// A o (shape:stride) for one counter of B. Returns what it takes of A's counters as a leaf or a flat tuple.
static Cute compose_mode(LayoutContext *cx, Composition *c, int64_t shape, int64_t stride) {
    if (stride == 0) return cute_leaf(shape, 0);
    Modes a = c->a, result = {NEW_ARRAY(cx->arena, FlatMode, a.count), 0};
    for (int i = 0; i < a.count - 1 && !cx->failed; i++) {
        FlatMode mode = a.items[i];
        if (stride % mode.shape != 0 && stride > mode.shape) {
            layout_refuse(cx, "composition: step %lld neither divides nor is divided by extent %lld", (long long)stride,
                          (long long)mode.shape);
        } else if (stride < mode.shape && shape > 1) {
            int64_t taken = ceil_div(mode.shape, stride);
            if (taken < shape && mode.shape % stride != 0 && !c->any_run)
                c->suspicious = true;   // a run that ends inside the counter
            if (taken > shape) taken = shape;
            if (shape % taken != 0)
                layout_refuse(cx, "composition: %lld points do not divide into runs of %lld", (long long)shape,
                              (long long)taken);
            result.items[result.count++] = (FlatMode){taken, layout_mul(cx, stride, mode.stride)};
            c->digits[i] = layout_sum(cx, c->digits[i], layout_mul(cx, taken - 1, stride));
            if (c->digits[i] >= mode.shape) c->suspicious = true;   // two modes of B carry together
            shape /= taken;
        }
        stride = ceil_div(stride, mode.shape);
    }
    if (shape > 1 || result.count == 0)
        result.items[result.count++] = (FlatMode){shape, layout_mul(cx, stride, a.items[a.count - 1].stride)};
    return from_modes(cx, result);
}

static Cute compose_tree(LayoutContext *cx, Composition *c, Cute b) {
    if (b.rank == CUTE_LEAF) return compose_mode(cx, c, b.shape, b.stride);
    Cute *modes = NEW_ARRAY(cx->arena, Cute, b.rank);
    for (int i = 0; i < b.rank; i++) modes[i] = compose_tree(cx, c, b.modes[i]);
    return (Cute){.rank = b.rank, .modes = modes};
}

enum { LARGEST_CHECK = 1 << 16 };   // coordinates: suspicious results are compared point by point up to here

static bool is_composition(LayoutContext *cx, Cute result, Cute a, Cute b) {
    int64_t size = cute_size(cx, b);
    if (cx->failed || size > LARGEST_CHECK) return false;
    for (int64_t i = 0; i < size; i++)
        if (cute_at(result, i) != offset_of_integer(cx, a, cute_at(b, i))) return false;
    return !cx->failed;
}

// `a` as coalesced_for_composition leaves it.
static Cute compose_modes(LayoutContext *cx, Modes a, Cute b, bool any_run) {
    Composition c = {.a = a, .digits = NEW_ARRAY(cx->arena, int64_t, a.count), .any_run = any_run};
    Cute result = compose_tree(cx, &c, b);
    if (!cx->failed) cute_cosize(cx, result);   // refuses what overflows
    if (!cx->failed && c.suspicious && !is_composition(cx, result, from_modes(cx, a), b))
        layout_refuse(
            cx, "composition: steps of the right layout carry out of an extent of the left one; no strides give that");
    return result;
}

Cute cute_composition(LayoutContext *cx, Cute a, Cute b) {
    return compose_modes(cx, coalesced_for_composition(cx, a), b, false);
}

// ---- complement ----

// Sorts by stride; equal strides keep their order.
static void sort_modes(Modes list) {
    for (int i = 1; i < list.count; i++)
        for (int j = i; j > 0 && list.items[j - 1].stride > list.items[j].stride; j--) {
            FlatMode swap = list.items[j];
            list.items[j] = list.items[j - 1];
            list.items[j - 1] = swap;
        }
}

// ceil(cotarget / reach); for a shape mode by mode, what a mode does not use up dividing the next one.
static int64_t repetitions(LayoutContext *cx, Tuple cotarget, int64_t *reach) {
    if (cotarget.kind != TUPLE_LIST) {
        int64_t extent = tuple_product(cx, cotarget);
        if (extent < 1) layout_refuse(cx, "extents are at least 1");
        if (cx->failed) return 1;
        int64_t count = ceil_div(extent, *reach);
        *reach = ceil_div(*reach, extent);
        return count;
    }
    int64_t count = 1;
    for (int i = 0; i < cotarget.count; i++) count = layout_mul(cx, count, repetitions(cx, cotarget.items[i], reach));
    return count;
}

Cute cute_complement(LayoutContext *cx, Cute a, Tuple cotarget) {
    Modes list = leaves(cx, cute_filter(cx, a));
    if (list.items[0].stride == 0) list.count = 0;   // only 1:0: nothing is taken
    sort_modes(list);
    Modes gaps = {NEW_ARRAY(cx->arena, FlatMode, list.count + 1), 0};
    int64_t reach = 1;   // offsets below it are covered by the modes so far and their gaps
    for (int i = 0; i < list.count && !cx->failed; i++) {
        FlatMode mode = list.items[i];
        if (mode.stride < reach) layout_refuse(cx, "complement: the layout is not injective");
        gaps.items[gaps.count++] = (FlatMode){mode.stride / reach, reach};
        reach = layout_mul(cx, mode.stride, mode.shape);
    }
    if (cx->failed) return a;
    int64_t divisor = reach;
    gaps.items[gaps.count++] = (FlatMode){repetitions(cx, cotarget, &divisor), reach};
    Cute result = from_modes(cx, coalesced(gaps));
    if (!cx->failed) cute_cosize(cx, result);
    return result;
}

// ---- inverses ----

// A mode and where it starts in the domain.
typedef struct Counter {
    int64_t shape, stride, position;
} Counter;

// The modes of the coalesced layout by stride. Of equal strides C++ does not keep the order, and which one comes first
// shows in the result, so this is C++'s exchange sort.
static Counter *by_stride(LayoutContext *cx, Cute a, int *count) {
    Modes list = coalesced(leaves(cx, a));
    Counter *all = NEW_ARRAY(cx->arena, Counter, list.count);
    int64_t position = 1;
    for (int i = 0; i < list.count; i++) {
        all[i] = (Counter){list.items[i].shape, list.items[i].stride, position};
        position = layout_mul(cx, position, list.items[i].shape);
    }
    for (int i = 0; i < list.count; i++)
        for (int j = i + 1; j < list.count; j++)
            if (all[j].stride < all[i].stride) {
                Counter swap = all[i];
                all[i] = all[j];
                all[j] = swap;
            }
    *count = list.count;
    return all;
}

Cute cute_right_inverse(LayoutContext *cx, Cute a) {
    int count;
    const Counter *all = by_stride(cx, a, &count);
    Modes result = {NEW_ARRAY(cx->arena, FlatMode, count), 0};
    int64_t next = 1;   // follow the counters that continue each other from stride 1
    for (int i = 0; i < count; i++) {
        if (all[i].stride != next || all[i].shape == 1) continue;
        result.items[result.count++] = (FlatMode){all[i].shape, all[i].position};
        next = layout_mul(cx, next, all[i].shape);
    }
    return result.count ? from_modes(cx, coalesced(result)) : cute_leaf(1, 0);
}

// a(inverse(a(i))) = a(i) for all i?
static bool is_left_inverse(LayoutContext *cx, Cute inverse, Cute a) {
    int64_t size = cute_size(cx, a);
    if (cx->failed || size > LARGEST_CHECK) return false;
    for (int64_t i = 0; i < size && !cx->failed; i++)
        if (offset_of_integer(cx, a, offset_of_integer(cx, inverse, cute_at(a, i))) != cute_at(a, i)) return false;
    return !cx->failed;
}

Cute cute_left_inverse(LayoutContext *cx, Cute a) {
    int count;
    const Counter *all = by_stride(cx, a, &count);
    Modes result = {NEW_ARRAY(cx->arena, FlatMode, count + 1), 0};
    int64_t stride = 1, preimage = 0, reach = 1;
    bool overlaps = false;
    for (int i = 0; i < count; i++) {
        if (all[i].stride == 0) continue;
        overlaps = overlaps || all[i].stride < reach;
        if (all[i].stride % stride != 0) {
            layout_refuse(cx, "left_inverse: stride %lld does not divide stride %lld", (long long)stride,
                          (long long)all[i].stride);
            return a;
        }
        result.items[result.count++] = (FlatMode){all[i].stride / stride, preimage};
        stride = all[i].stride;
        reach = layout_mul(cx, stride, all[i].shape);
        preimage = all[i].position;
    }
    result.items[result.count++] = (FlatMode){all[count - 1].shape, preimage};
    Cute inverse = from_modes(cx, coalesced(result));
    if (overlaps && !is_left_inverse(cx, inverse, a))
        layout_refuse(cx, "left_inverse: the layout overlaps itself, and no strides lead back");
    return inverse;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

bool cute_injective(LayoutContext *cx, Cute a) {
    enum { LARGEST = 1 << 24 };
    Modes list = coalesced(leaves(cx, a));
    sort_modes(list);
    int64_t reach = 1;   // when every stride is beyond what the smaller ones reach, no two sums meet
    bool nested = true;
    for (int i = 0; i < list.count; i++) {
        if (list.items[i].shape == 1) continue;
        if (list.items[i].stride == 0) return false;
        nested = nested && list.items[i].stride >= reach;
        reach += (list.items[i].shape - 1) * list.items[i].stride;
    }
    if (nested) return true;
    int64_t size = cute_size(cx, a);
    if (size > reach) return false;   // more coordinates than offsets
    if (size > LARGEST) return layout_refuse(cx, "too large to decide injectivity by enumeration");
    int64_t *offsets = NEW_ARRAY(cx->arena, int64_t, size);
    for (int64_t i = 0; i < size; i++) offsets[i] = cute_at(a, i);
    qsort(offsets, (size_t)size, sizeof *offsets, by_value);
    for (int64_t i = 1; i < size; i++)
        if (offsets[i] == offsets[i - 1]) return false;
    return true;
}

// ---- tilers ----

Tiler tiler_tuple(LayoutContext *cx, const Tiler *items, int count) {
    const Tiler *copy = arena_copy(cx->arena, items, sizeof *items * (size_t)count);
    return (Tiler){.kind = TILER_TUPLE, .count = count, .items = copy};
}

Tiler tiler_of_shape(LayoutContext *cx, Tuple shape) {
    if (shape.kind == TUPLE_ANY) return (Tiler){.kind = TILER_ANY};
    if (shape.kind == TUPLE_INT) {
        if (shape.value < 1) layout_refuse(cx, "a tile's extent is at least 1");
        return (Tiler){.kind = TILER_LAYOUT, .layout = cute_leaf(shape.value, 1), .is_integer = true};
    }
    Tiler *items = NEW_ARRAY(cx->arena, Tiler, shape.count);
    for (int i = 0; i < shape.count; i++) items[i] = tiler_of_shape(cx, shape.items[i]);
    return (Tiler){.kind = TILER_TUPLE, .count = shape.count, .items = items};
}

static Tiler scan_tiler(Scan *scan, int depth) {
    enum { DEEPEST = 32 };
    if (depth > DEEPEST) layout_refuse(scan->cx, "syntax: nested deeper than %d", DEEPEST);
    if (!scan_accept(scan, '<')) {
        Tuple shape = scan_tuple(scan);
        if (scan->cx->failed || !scan_accept(scan, ':')) return tiler_of_shape(scan->cx, shape);
        Tuple stride = scan_tuple(scan);
        return tiler_layout(scan->cx->failed ? cute_leaf(1, 0) : cute_make(scan->cx, shape, stride));
    }
    Tiler few[8];
    VEC(Tiler) items = {few, 0, COUNT_OF(few)};
    do vec_push(scan->cx->arena, &items, scan_tiler(scan, depth + 1));
    while (scan_accept(scan, ';'));
    scan_expect(scan, '>');
    return tiler_tuple(scan->cx, items.items, items.count);
}

Tiler tiler_scan(Scan *scan) {
    return scan_tiler(scan, 0);
}

Tiler tiler_parse(LayoutContext *cx, const char *text) {
    Scan scan = scan_text(cx, text);
    Tiler tiler = tiler_scan(&scan);
    scan_end(&scan);
    return tiler;
}

// ---- operations by mode ----

typedef Cute ModeOp(LayoutContext *cx, Cute a, Cute tile);

// Applies `op` to each mode that the tiler names. Modes beyond the tiler stay (`keep`) or are dropped.
static Cute by_mode(LayoutContext *cx, Cute a, Tiler tiler, bool keep, ModeOp *op) {
    if (tiler.kind == TILER_ANY) return a;
    if (tiler.kind == TILER_LAYOUT) return op(cx, a, tiler.layout);
    int rank = cute_rank(a);
    if (tiler.count > rank) {
        layout_refuse(cx, "the tiler has %d modes, the layout %d", tiler.count, rank);
        return a;
    }
    Cute *modes = NEW_ARRAY(cx->arena, Cute, rank);
    for (int i = 0; i < rank; i++)
        modes[i] = i < tiler.count ? by_mode(cx, cute_mode(a, i), tiler.items[i], keep, op) : cute_mode(a, i);
    return (Cute){.rank = keep ? rank : tiler.count, .modes = modes};
}

static Cute pair(LayoutContext *cx, Cute a, Cute b) {
    return cute_tuple(cx, (Cute[]){a, b}, 2);
}

// Composition takes an integer n as n:1; divide and product make a layout of it, and that of 1 is 1:0.
static Tiler as_layouts(LayoutContext *cx, Tiler tiler) {
    if (tiler.is_integer && tiler.layout.shape == 1) tiler.layout.stride = 0;
    if (tiler.kind != TILER_TUPLE) return tiler;
    Tiler *items = NEW_ARRAY(cx->arena, Tiler, tiler.count);
    for (int i = 0; i < tiler.count; i++) items[i] = as_layouts(cx, tiler.items[i]);
    return (Tiler){.kind = TILER_TUPLE, .count = tiler.count, .items = items};
}

// Rounds the extent in which a tile of that many offsets ends up to whole tiles, so that the last tile of each run
// reaches outside of the layout instead of into the next mode. The last mode goes on by itself.
static void round_up_to_tiles(LayoutContext *cx, Modes a, int64_t tile) {
    for (int i = 0; i < a.count - 1 && tile > 1; i++) {
        int64_t extent = a.items[i].shape;
        if (extent > tile) a.items[i].shape = layout_mul(cx, ceil_div(extent, tile), tile);
        tile = ceil_div(tile, extent);
    }
}

// What the modes of a tile reach over: 1 more than its largest offset, rounded up to the period of its slowest mode.
static int64_t tile_reach(LayoutContext *cx, Cute tile) {
    Modes list = leaves(cx, tile);
    int64_t reach = 1;
    for (int i = 0; i < list.count; i++) {
        int64_t period = layout_mul(cx, list.items[i].shape, list.items[i].stride);
        if (list.items[i].shape > 1 && period > reach) reach = period;
    }
    return reach;
}

static Cute divide_mode(LayoutContext *cx, Cute a, Cute tile) {
    Tuple whole = cute_shape(cx, cute_coalesce(cx, a));   // not its product: (3,5) is used up mode by mode
    Cute both = pair(cx, tile, cute_complement(cx, tile, whole));
    Modes list = coalesced_for_composition(cx, a);
    round_up_to_tiles(cx, list, tile_reach(cx, tile));
    return cx->failed ? a : compose_modes(cx, list, both, false);
}

// The repetitions are places that the block leaves free. Where steps of the tiler do not divide a gap of the block, the
// next gap is used after the last whole step: fewer places than the composition has, but free ones, and distinct.
static Cute multiply_mode(LayoutContext *cx, Cute a, Cute tile) {
    int64_t room = layout_mul(cx, cute_size(cx, a), cute_cosize(cx, tile));
    if (cx->failed) return a;
    Cute free_places = cute_complement(cx, a, tuple_int(room));
    return pair(cx, a, compose_modes(cx, coalesced_for_composition(cx, free_places), tile, true));
}

Cute cute_compose_tiler(LayoutContext *cx, Cute a, Tiler tiler) {
    return by_mode(cx, a, tiler, false, cute_composition);
}

Cute cute_logical_divide(LayoutContext *cx, Cute a, Tiler tiler) {
    return by_mode(cx, a, as_layouts(cx, tiler), true, divide_mode);
}

Cute cute_logical_product(LayoutContext *cx, Cute a, Tiler tiler) {
    return by_mode(cx, a, as_layouts(cx, tiler), true, multiply_mode);
}

// ---- rearrangements of the logical results ----

// The logical result has a pair at each leaf of the tiler: gathers the first halves and the second halves. Modes
// beyond the tiler go to the second.
static void unzip(LayoutContext *cx, Cute a, Tiler tiler, Cute *first, Cute *second) {
    if (cx->failed) return;
    if (tiler.kind == TILER_ANY && a.rank != 2) {   // `_` leaves the mode as it was: it must happen to be a pair
        layout_refuse(cx, "'_' in the tiler of a zipped, tiled or flat operation needs a mode of rank 2");
    } else if (tiler.kind != TILER_TUPLE) {
        *first = a.modes[0];
        *second = a.modes[1];
    } else {
        Cute *firsts = NEW_ARRAY(cx->arena, Cute, tiler.count), *seconds = NEW_ARRAY(cx->arena, Cute, a.rank);
        for (int i = 0; i < tiler.count; i++) unzip(cx, a.modes[i], tiler.items[i], &firsts[i], &seconds[i]);
        for (int i = tiler.count; i < a.rank; i++) seconds[i] = a.modes[i];
        *first = (Cute){.rank = tiler.count, .modes = firsts};
        *second = (Cute){.rank = a.rank, .modes = seconds};
    }
}

typedef enum { ZIPPED, TILED, FLAT } Arrangement;

// Appends the modes of `a`; a tuple of one mode stays a tuple, as C++ slices it.
static void append_modes(Cute *modes, int *count, Cute a) {
    if (cute_rank(a) == 1) modes[(*count)++] = a;
    else
        for (int i = 0; i < a.rank; i++) modes[(*count)++] = a.modes[i];
}

static Cute arrange(LayoutContext *cx, Cute logical, Tiler tiler, Arrangement arrangement) {
    Cute first = cute_leaf(1, 0), second = first;
    unzip(cx, logical, tiler, &first, &second);
    if (arrangement == ZIPPED) return pair(cx, first, second);
    Cute *modes = NEW_ARRAY(cx->arena, Cute, 1 + cute_rank(first) + cute_rank(second));
    int count = 0;
    if (arrangement == FLAT) append_modes(modes, &count, first);
    else modes[count++] = first;
    append_modes(modes, &count, second);
    return (Cute){.rank = count, .modes = modes};
}

Cute cute_zipped_divide(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_divide(cx, a, tiler), tiler, ZIPPED);
}

Cute cute_tiled_divide(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_divide(cx, a, tiler), tiler, TILED);
}

Cute cute_flat_divide(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_divide(cx, a, tiler), tiler, FLAT);
}

Cute cute_zipped_product(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_product(cx, a, tiler), tiler, ZIPPED);
}

Cute cute_tiled_product(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_product(cx, a, tiler), tiler, TILED);
}

Cute cute_flat_product(LayoutContext *cx, Cute a, Tiler tiler) {
    return arrange(cx, cute_logical_product(cx, a, tiler), tiler, FLAT);
}

// ---- blocked and raked products ----

// Modes 1:0 appended up to `rank`.
static Cute padded(LayoutContext *cx, Cute a, int rank) {
    if (cute_rank(a) >= rank) return a;
    Cute *modes = NEW_ARRAY(cx->arena, Cute, rank);
    for (int i = 0; i < rank; i++) modes[i] = i < cute_rank(a) ? cute_mode(a, i) : cute_leaf(1, 0);
    return (Cute){.rank = rank, .modes = modes};
}

// Mode i is (i-th of a, i-th of b). A leaf counts as one mode when it comes first, as in C++.
static Cute zip(LayoutContext *cx, Cute a, Cute b) {
    if (a.rank == CUTE_LEAF) return cute_tuple(cx, (Cute[]){pair(cx, a, b)}, 1);
    if (a.rank != b.rank) return layout_refuse(cx, "block and repetitions do not have the same rank"), a;
    Cute *modes = NEW_ARRAY(cx->arena, Cute, a.rank);
    for (int i = 0; i < a.rank; i++) modes[i] = pair(cx, a.modes[i], b.modes[i]);
    return (Cute){.rank = a.rank, .modes = modes};
}

// (block, repetitions), both of the larger rank
static Cute product_by_rank(LayoutContext *cx, Cute block, Cute tiler) {
    int rank = cute_rank(block) > cute_rank(tiler) ? cute_rank(block) : cute_rank(tiler);
    return multiply_mode(cx, padded(cx, block, rank), padded(cx, tiler, rank));
}

Cute cute_blocked_product(LayoutContext *cx, Cute block, Cute tiler) {
    Cute both = product_by_rank(cx, block, tiler);
    return cx->failed ? block : zip(cx, both.modes[0], both.modes[1]);
}

Cute cute_raked_product(LayoutContext *cx, Cute block, Cute tiler) {
    Cute both = product_by_rank(cx, block, tiler);
    return cx->failed ? block : zip(cx, both.modes[1], both.modes[0]);
}
