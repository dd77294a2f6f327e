// The algebra of linear layouts.
//
//   is every element owned?            rank = number of output bits
//   which lanes hold copies?           columns that depend on earlier ones (free variables)
//   from registers to shared memory?   solve Shared(x) = Register(i) for x: linear_invert_and_compose
//
// Solving. An image is expressed by the columns of `outer`; a column that depends on earlier ones is free and stays 0 in
// every solution. So the preimage is the smallest one, since any other differs by a free column, which is higher than
// the pivots it stands for (bits_express).
#include "layout/calculator/linear_algebra.h"
#include <string.h>

// ---- dims ----

static bool same_dims(const LinearDim *a, int a_count, const LinearDim *b, int b_count) {
    if (a_count != b_count) return false;
    for (int i = 0; i < a_count; i++)
        if (a[i].bits != b[i].bits || strcmp(a[i].name, b[i].name)) return false;
    return true;
}

static int log2_size(LayoutContext *cx, int64_t size) {
    if (size > 0 && !(size & (size - 1))) return __builtin_ctzll((unsigned long long)size);
    return layout_refuse(cx, "size %lld is not a power of two", (long long)size);
}

int linear_find_out(Linear a, const char *name) {
    return linear_find(a.outs, a.out_count, name);
}

int64_t linear_basis(Linear a, int in, int bit, int out) {
    uint64_t column = a.columns[linear_in_shift(a, in) + bit];
    return (int64_t)(column >> linear_out_shift(a, out) & linear_mask(a.outs[out].bits));
}

Linear linear_strided1d(LayoutContext *cx, int64_t size, int64_t stride, const char *in, const char *out) {
    if (size == 0) return linear_empty();
    int bits = log2_size(cx, size), shift = log2_size(cx, stride);
    if (bits + shift > LINEAR_MAX_BITS) layout_refuse(cx, "overflow: more than %d bits", LINEAR_MAX_BITS);
    if (cx->failed) return linear_empty();
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0; i < bits; i++) columns[i] = (uint64_t)1 << (shift + i);
    return linear_make(cx, &(LinearDim){in, bits}, 1, &(LinearDim){out, bits + shift}, 1, columns);
}

Linear linear_identity1d(LayoutContext *cx, int64_t size, const char *in, const char *out) {
    return linear_strided1d(cx, size, 1, in, out);
}

Linear linear_zeros1d(LayoutContext *cx, int64_t size, const char *in, const char *out, int64_t out_size) {
    if (size == 0) return linear_empty();
    int bits = log2_size(cx, size), out_bits = log2_size(cx, out_size);
    uint64_t columns[64] = {0};
    if (cx->failed) return linear_empty();
    return linear_make(cx, &(LinearDim){in, bits}, 1, &(LinearDim){out, out_bits}, 1, columns);
}

// ---- queries ----

bool linear_equal(Linear a, Linear b) {
    if (!same_dims(a.ins, a.in_count, b.ins, b.in_count) || !same_dims(a.outs, a.out_count, b.outs, b.out_count))
        return false;
    int bits = linear_in_bits(a);
    return !bits || !memcmp(a.columns, b.columns, sizeof *a.columns * (size_t)bits);
}

int linear_rank(Linear a) {
    return bits_rank(a.columns, linear_in_bits(a));
}

bool linear_is_surjective(Linear a) {
    return linear_rank(a) == linear_out_bits(a);
}

bool linear_is_injective(Linear a) {
    return linear_rank(a) == linear_in_bits(a);
}

bool linear_is_invertible(Linear a) {
    return linear_in_bits(a) == linear_out_bits(a) && linear_is_surjective(a);
}

void linear_free_variables(Linear a, int64_t *masks) {
    uint64_t which;
    for (int in = 0, column = 0; in < a.in_count; in++) {
        masks[in] = 0;
        for (int bit = 0; bit < a.ins[in].bits; bit++, column++)
            if (bits_express(a.columns, column, a.columns[column], &which)) masks[in] |= (int64_t)1 << bit;
    }
}

int64_t linear_consecutive(Linear a) {
    if (!a.in_count || !a.out_count) return 1;
    int run = 0;
    while (run < a.ins[0].bits && a.columns[run] == (uint64_t)1 << run && run < a.outs[0].bits) run++;
    uint64_t others = 0;   // what the other bits add to the first output must not disturb the run
    for (int i = run; i < linear_in_bits(a); i++) others |= a.columns[i] & linear_mask(a.outs[0].bits);
    int undisturbed = others ? __builtin_ctzll(others) : LINEAR_MAX_BITS;
    return (int64_t)1 << (run < undisturbed ? run : undisturbed);
}

uint64_t linear_apply_packed(Linear a, uint64_t in) {
    uint64_t out = 0;
    for (int i = 0; in; i++, in >>= 1)
        if (in & 1) out ^= a.columns[i];
    return out;
}

void linear_apply(Linear a, const int64_t *ins, int64_t *outs) {
    uint64_t in = 0, shift = 0;
    for (int i = 0; i < a.in_count; i++) {
        in |= ((uint64_t)ins[i] & linear_mask(a.ins[i].bits)) << shift;
        shift += (uint64_t)a.ins[i].bits;
    }
    uint64_t out = linear_apply_packed(a, in);
    for (int i = 0; i < a.out_count; i++) {
        outs[i] = (int64_t)(out & linear_mask(a.outs[i].bits));
        out >>= a.outs[i].bits;
    }
}

// ---- product ----

// The shortest list with both as subsequences, a's dims first where there is a choice; bits add up.
static int merge_dims(LayoutContext *cx, const LinearDim *a, int a_count, const LinearDim *b, int b_count,
                      LinearDim *into) {
    int i = 0, j = 0, count = 0;
    while (i < a_count || j < b_count) {
        int of_a = i < a_count ? linear_find(b, b_count, a[i].name) : -1,
            of_b = j < b_count ? linear_find(a, a_count, b[j].name) : -1;
        if (i < a_count && of_a < 0) {
            into[count++] = a[i++];
        } else if (j < b_count && of_b < 0) {
            into[count++] = b[j++];
        } else if (i < a_count && j < b_count && of_a == j) {
            into[count++] = (LinearDim){a[i].name, a[i].bits + b[j].bits};
            i++, j++;
        } else {
            layout_refuse(cx, "the operands order their common dims differently");
            return 0;
        }
    }
    return count;
}

Linear linear_multiply(LayoutContext *cx, Linear a, Linear b) {
    LinearDim *ins = NEW_ARRAY(cx->arena, LinearDim, a.in_count + b.in_count);
    LinearDim *outs = NEW_ARRAY(cx->arena, LinearDim, a.out_count + b.out_count);
    int in_count = merge_dims(cx, a.ins, a.in_count, b.ins, b.in_count, ins);
    int out_count = merge_dims(cx, a.outs, a.out_count, b.outs, b.out_count, outs);
    linear_check_dims(cx, ins, in_count, "input");
    linear_check_dims(cx, outs, out_count, "output");
    if (cx->failed) return linear_empty();

    int *a_places = NEW_ARRAY(cx->arena, int, a.out_count), *b_places = NEW_ARRAY(cx->arena, int, b.out_count);
    for (int out = 0, place = 0; out < out_count; place += outs[out++].bits) {
        int in_a = linear_find_out(a, outs[out].name), in_b = linear_find_out(b, outs[out].name);
        if (in_a >= 0) a_places[in_a] = place;
        if (in_b >= 0) b_places[in_b] = place + (in_a >= 0 ? a.outs[in_a].bits : 0);
    }
    uint64_t columns[LINEAR_MAX_BITS];
    for (int in = 0, column = 0; in < in_count; in++) {
        int in_a = linear_find_in(a, ins[in].name), in_b = linear_find_in(b, ins[in].name);
        for (int bit = 0; in_a >= 0 && bit < a.ins[in_a].bits; bit++)
            columns[column++] = linear_move_fields(a, a.columns[linear_in_shift(a, in_a) + bit], a_places);
        for (int bit = 0; in_b >= 0 && bit < b.ins[in_b].bits; bit++)
            columns[column++] = linear_move_fields(b, b.columns[linear_in_shift(b, in_b) + bit], b_places);
    }
    return linear_make(cx, ins, in_count, outs, out_count, columns);
}

// ---- composition and inverses ----

// Where each output of `a` starts among the inputs of `outer`; refuses unless the dims are the same set and fit.
static int *places_in(LayoutContext *cx, Linear a, Linear outer) {
    int *places = NEW_ARRAY(cx->arena, int, a.out_count);
    if (a.out_count != outer.in_count) layout_refuse(cx, "compose: output and input dims differ");
    for (int i = 0; i < a.out_count && !cx->failed; i++) {
        int in = linear_find_in(outer, a.outs[i].name);
        if (in < 0) layout_refuse(cx, "compose: the outer layout has no input '%.40s'", a.outs[i].name);
        else if (a.outs[i].bits > outer.ins[in].bits)
            layout_refuse(cx, "compose: output '%.40s' is larger than the outer layout's input", a.outs[i].name);
        else places[i] = linear_in_shift(outer, in);
    }
    return places;
}

Linear linear_compose(LayoutContext *cx, Linear inner, Linear outer) {
    int *places = places_in(cx, inner, outer);
    if (cx->failed) return linear_empty();
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0; i < linear_in_bits(inner); i++)
        columns[i] = linear_apply_packed(outer, linear_move_fields(inner, inner.columns[i], places));
    return linear_make(cx, inner.ins, inner.in_count, outer.outs, outer.out_count, columns);
}

// The columns of `a` with its outputs at the places they have in `b`; refuses unless b has them all, at least as large.
static uint64_t *columns_in_outs_of(LayoutContext *cx, Linear a, Linear b) {
    int *places = NEW_ARRAY(cx->arena, int, a.out_count);
    uint64_t *columns = NEW_ARRAY(cx->arena, uint64_t, linear_in_bits(a));
    if (a.out_count != b.out_count) layout_refuse(cx, "the output dims differ");
    for (int i = 0; i < a.out_count && !cx->failed; i++) {
        int out = linear_find_out(b, a.outs[i].name);
        if (out < 0) layout_refuse(cx, "the outer layout has no output '%.40s'", a.outs[i].name);
        else if (a.outs[i].bits > b.outs[out].bits)
            layout_refuse(cx, "output '%.40s' is larger than the outer layout's", a.outs[i].name);
        else places[i] = linear_out_shift(b, out);
    }
    for (int i = 0; i < linear_in_bits(a) && !cx->failed; i++) columns[i] = linear_move_fields(a, a.columns[i], places);
    return columns;
}

// Smallest preimages of the wanted images of `a`, of the inputs that are not left out, in those of `outer`.
static bool solve(LayoutContext *cx, const uint64_t *wanted, Linear a, const bool *left_out_of_a, Linear outer,
                  const bool *left_out_of_outer, uint64_t *columns) {
    uint64_t known[LINEAR_MAX_BITS], which;
    int place[LINEAR_MAX_BITS], count = 0;
    for (int in = 0, column = 0; in < outer.in_count; in++)
        for (int bit = 0; bit < outer.ins[in].bits; bit++, column++) {
            if (left_out_of_outer[in]) continue;
            known[count] = outer.columns[column];
            place[count++] = column;
        }
    for (int in = 0, column = 0; in < a.in_count; in++)
        for (int bit = 0; bit < a.ins[in].bits; bit++, column++) {
            if (left_out_of_a[in]) continue;
            columns[column] = 0;
            if (!bits_express(known, count, wanted[column], &which))
                return layout_refuse(cx, "the outer layout does not reach every element: no solution");
            for (int i = 0; i < count; i++) columns[column] |= (which >> i & 1) << place[i];
        }
    return true;
}

Linear linear_invert_and_compose(LayoutContext *cx, Linear a, Linear outer) {
    uint64_t *wanted = columns_in_outs_of(cx, a, outer);
    if (cx->failed) return linear_empty();
    int in_bits = linear_in_bits(a);
    uint64_t *columns = NEW_ARRAY(cx->arena, uint64_t, in_bits);

    // 1. A dim that both have with equal bases is mapped by the identity and leaves the system.
    bool *same_in_a = NEW_ARRAY(cx->arena, bool, a.in_count),
         *same_in_outer = NEW_ARRAY(cx->arena, bool, outer.in_count);
    int left_in_a = a.in_count, left_in_outer = outer.in_count;
    for (int i = 0; i < a.in_count; i++) {
        int in = linear_find_in(outer, a.ins[i].name), bits = a.ins[i].bits;
        if (in < 0 || outer.ins[in].bits != bits) continue;
        int from = linear_in_shift(a, i), to = linear_in_shift(outer, in);
        if (bits && memcmp(wanted + from, outer.columns + to, sizeof *wanted * (size_t)bits)) continue;
        for (int bit = 0; bit < bits; bit++) columns[from + bit] = (uint64_t)1 << (to + bit);
        same_in_a[i] = same_in_outer[in] = true;
        left_in_a--, left_in_outer--;
    }
    if (!left_in_a != !left_in_outer) {
        layout_refuse(cx, "only one side has inputs left to solve for");
        return linear_empty();
    }

    // 2. The rest.
    if (!solve(cx, wanted, a, same_in_a, outer, same_in_outer, columns)) return linear_empty();
    return linear_make(cx, a.ins, a.in_count, outer.ins, outer.in_count, columns);
}

Linear linear_solve(LayoutContext *cx, Linear a, Linear outer) {
    uint64_t *wanted = columns_in_outs_of(cx, a, outer), *columns = NEW_ARRAY(cx->arena, uint64_t, linear_in_bits(a));
    bool *no_a = NEW_ARRAY(cx->arena, bool, a.in_count), *no_outer = NEW_ARRAY(cx->arena, bool, outer.in_count);
    if (cx->failed || !solve(cx, wanted, a, no_a, outer, no_outer, columns)) return linear_empty();
    return linear_make(cx, a.ins, a.in_count, outer.ins, outer.in_count, columns);
}

Linear linear_pseudoinvert(LayoutContext *cx, Linear a) {
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0; i < linear_out_bits(a); i++) columns[i] = (uint64_t)1 << i;
    Linear identity = linear_make(cx, a.outs, a.out_count, a.outs, a.out_count, columns);
    if (!cx->failed && !linear_is_surjective(a)) layout_refuse(cx, "pseudoinvert needs a surjective layout");
    return cx->failed ? identity : linear_invert_and_compose(cx, identity, a);
}

Linear linear_invert(LayoutContext *cx, Linear a) {
    if (!linear_is_invertible(a)) {
        layout_refuse(cx, "invert needs a bijection");
        return a;
    }
    return linear_pseudoinvert(cx, a);
}

Linear linear_reshape_ins(LayoutContext *cx, Linear a, const LinearDim *dims, int count) {
    return linear_reshape(cx, a, dims, count, a.outs, a.out_count);
}

Linear linear_reshape_outs(LayoutContext *cx, Linear a, const LinearDim *dims, int count) {
    return linear_reshape(cx, a, a.ins, a.in_count, dims, count);
}

Linear linear_flatten_ins(LayoutContext *cx, Linear a) {
    if (!a.in_count) return a;
    return linear_reshape_ins(cx, a, &(LinearDim){a.ins[0].name, linear_in_bits(a)}, 1);
}

Linear linear_flatten_outs(LayoutContext *cx, Linear a) {
    if (!a.out_count) return a;
    return linear_reshape_outs(cx, a, &(LinearDim){a.outs[0].name, linear_out_bits(a)}, 1);
}

Linear linear_rename_outs(LayoutContext *cx, Linear a, const char *const *names) {
    LinearDim *outs = NEW_ARRAY(cx->arena, LinearDim, a.out_count);
    for (int i = 0; i < a.out_count; i++) outs[i] = (LinearDim){names[i], a.outs[i].bits};
    return linear_reshape_outs(cx, a, outs, a.out_count);
}

Linear linear_transpose_ins(LayoutContext *cx, Linear a, const char *const *names, int count) {
    return linear_transpose(cx, a, names, count, NULL, 0);
}

Linear linear_transpose_outs(LayoutContext *cx, Linear a, const char *const *names, int count) {
    return linear_transpose(cx, a, NULL, 0, names, count);
}

static bool contains(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

// The indices of the dims that are (or are not) among the names, in the layout's order; refuses unknown names.
static int *chosen(LayoutContext *cx, const LinearDim *dims, int count, const char *const *names, int names_count,
                   bool among, int *chosen_count) {
    for (int i = 0; i < names_count; i++)
        if (linear_find(dims, count, names[i]) < 0) layout_refuse(cx, "there is no dim '%.40s'", names[i]);
    int *indices = NEW_ARRAY(cx->arena, int, count);
    *chosen_count = 0;
    for (int i = 0; i < count; i++)
        if (contains(names, names_count, dims[i].name) == among) indices[(*chosen_count)++] = i;
    return indices;
}

static Linear submap(LayoutContext *cx, Linear a, const char *const *ins, int in_count, bool among_ins,
                     const char *const *outs, int out_count, bool among_outs) {
    int kept_ins, kept_outs;
    int *in_order = chosen(cx, a.ins, a.in_count, ins, in_count, among_ins, &kept_ins);
    int *out_order = chosen(cx, a.outs, a.out_count, outs, out_count, among_outs, &kept_outs);
    return cx->failed ? linear_empty() : linear_gather(cx, a, in_order, kept_ins, out_order, kept_outs);
}

Linear linear_sublayout(LayoutContext *cx, Linear a, const char *const *ins, int in_count, const char *const *outs,
                        int out_count) {
    return submap(cx, a, ins, in_count, true, outs, out_count, true);
}

// ---- parts, quotients, division ----

static bool all_zero(Linear a) {
    for (int i = 0; i < linear_in_bits(a); i++)
        if (a.columns[i]) return false;
    return true;
}

bool linear_sublayout_is_zero(LayoutContext *cx, Linear a, const char *const *ins, int in_count,
                              const char *const *outs, int out_count) {
    Linear submap = linear_sublayout(cx, a, ins, in_count, outs, out_count);
    return !cx->failed && all_zero(submap);
}

bool linear_square_is_identity(LayoutContext *cx, Linear a, const char *const *names, int count) {
    if (!count) return true;
    Linear square = linear_sublayout(cx, a, names, count, names, count);
    if (cx->failed) return false;
    for (int i = 0; i < square.in_count; i++) {
        int out = linear_find_out(square, square.ins[i].name);
        if (square.outs[out].bits != square.ins[i].bits) return false;
    }
    for (int i = 0; i < linear_in_bits(square); i++)
        if (square.columns[i] != (uint64_t)1 << i) return false;
    return true;
}

bool linear_quotient(LayoutContext *cx, Linear a, const char *const *names, int count, Linear *result) {
    for (int i = 0; i < count; i++)
        if (linear_find_in(a, names[i]) < 0) return false;
    if (!linear_square_is_identity(cx, a, names, count)) return false;
    Linear above = submap(cx, a, names, count, true, names, count, false);
    Linear below = submap(cx, a, names, count, false, names, count, true);
    if (cx->failed || !all_zero(above) || !all_zero(below)) return false;
    *result = submap(cx, a, names, count, false, names, count, false);
    return !cx->failed;
}

// a = b * c is a block structure: within each pair of dims, b's bits are one block and c's the other. `left`: b is
// minor.
static bool divide(LayoutContext *cx, Linear a, Linear b, bool left, Linear *result) {
    for (int i = 0; i < b.in_count; i++)
        if (linear_find_in(a, b.ins[i].name) < 0) return false;
    for (int i = 0; i < b.out_count; i++)
        if (linear_find_out(a, b.outs[i].name) < 0) return false;

    // 1. The sizes of c, and for each output of a the places of b's and of c's bits.
    LinearDim *ins = NEW_ARRAY(cx->arena, LinearDim, a.in_count), *outs = NEW_ARRAY(cx->arena, LinearDim, a.out_count);
    int *b_place = NEW_ARRAY(cx->arena, int, b.out_count);
    uint64_t b_bits = 0, shift = 0;   // which bits of a's columns are b's
    for (int i = 0; i < a.out_count; i++) {
        int in_b = linear_find_out(b, a.outs[i].name), bits = in_b < 0 ? 0 : b.outs[in_b].bits;
        if (bits > a.outs[i].bits) return false;
        outs[i] = (LinearDim){a.outs[i].name, a.outs[i].bits - bits};
        int place = (int)shift + (left ? 0 : outs[i].bits);
        if (in_b >= 0) b_place[in_b] = place;
        b_bits |= linear_mask(bits) << place;
        shift += (uint64_t)a.outs[i].bits;
    }

    // 2. Each column of a belongs to b, and must equal b's, or to c, and must not touch b's bits.
    uint64_t columns[LINEAR_MAX_BITS];
    int column = 0, found = 0;
    for (int i = 0; i < a.in_count; i++) {
        int in_b = linear_find_in(b, a.ins[i].name), bits = in_b < 0 ? 0 : b.ins[in_b].bits;
        if (bits > a.ins[i].bits) return false;
        ins[i] = (LinearDim){a.ins[i].name, a.ins[i].bits - bits};
        for (int bit = 0; bit < a.ins[i].bits; bit++, column++) {
            int of_b = left ? bit : bit - ins[i].bits;
            if (of_b >= 0 && of_b < bits) {
                uint64_t image = linear_move_fields(b, b.columns[linear_in_shift(b, in_b) + of_b], b_place);
                if (a.columns[column] != image) return false;
            } else {
                if (a.columns[column] & b_bits) return false;
                columns[found++] = a.columns[column];
            }
        }
    }

    // 3. Close the gaps that b's bits leave in c's columns.
    for (int i = 0; i < found; i++) {
        uint64_t packed = 0;
        for (int bit = 0, to = 0; bit < LINEAR_MAX_BITS; bit++)
            if (!(b_bits >> bit & 1)) packed |= (columns[i] >> bit & 1) << to++;
        columns[i] = packed;
    }
    *result = linear_make(cx, ins, a.in_count, outs, a.out_count, columns);
    return !cx->failed;
}

bool linear_divide_left(LayoutContext *cx, Linear a, Linear b, Linear *result) {
    return divide(cx, a, b, true, result);
}

bool linear_divide_right(LayoutContext *cx, Linear a, Linear b, Linear *result) {
    return divide(cx, a, b, false, result);
}

Linear linear_remove_zero_bases(LayoutContext *cx, Linear a, const char *in) {
    int dim = linear_find_in(a, in), kept = 0;
    if (dim < 0) {
        layout_refuse(cx, "there is no input '%.40s'", in);
        return a;
    }
    LinearDim *ins = arena_copy(cx->arena, a.ins, sizeof *ins * (size_t)a.in_count);
    int first = linear_in_shift(a, dim), last = first + a.ins[dim].bits;
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0; i < linear_in_bits(a); i++) {
        if (i >= first && i < last && !a.columns[i]) ins[dim].bits--;
        else columns[kept++] = a.columns[i];
    }
    return linear_make(cx, ins, a.in_count, a.outs, a.out_count, columns);
}

Linear linear_clamp(LayoutContext *cx, Linear a, const int *bits) {
    LinearDim *outs = arena_copy(cx->arena, a.outs, sizeof *outs * (size_t)a.out_count);
    int *places = NEW_ARRAY(cx->arena, int, a.out_count);
    uint64_t keep = 0, columns[LINEAR_MAX_BITS];
    for (int i = 0, from = 0, to = 0; i < a.out_count; i++) {
        if (outs[i].bits > bits[i]) outs[i].bits = bits[i];
        keep |= linear_mask(outs[i].bits) << from;
        places[i] = to;
        from += a.outs[i].bits;
        to += outs[i].bits;
    }
    for (int i = 0; i < linear_in_bits(a); i++) {
        uint64_t column = a.columns[i];
        for (int out = 0, shift = 0; out < a.out_count;
             shift += a.outs[out++].bits)   // an entry beyond becomes 0 whole
            if (column & ~keep & linear_mask(a.outs[out].bits) << shift)
                column &= ~(linear_mask(a.outs[out].bits) << shift);
        columns[i] = linear_move_fields(a, column, places);
    }
    return linear_make(cx, a.ins, a.in_count, outs, a.out_count, columns);
}

Linear linear_grow(LayoutContext *cx, Linear a, const int *bits) {
    Linear result = a;
    for (int i = 0; i < a.out_count && !cx->failed; i++) {
        int missing = bits[i] - a.outs[i].bits;
        if (missing < 0) continue;
        Linear more = linear_identity1d(cx, (int64_t)1 << missing, a.ins[0].name, a.outs[i].name);
        result = linear_multiply(cx, result, more);
    }
    return result;
}
