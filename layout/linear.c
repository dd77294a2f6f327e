// Linear layouts over F2: the matrices, and elimination on their columns.
//
// Idea. Hardware indices (register, lane, warp) and tensor indices are bit strings, and nearly every layout of a GPU
// moves or XORs bits: such a map is a matrix over F2, stored as the images of the input bits. Questions become
// elimination: is every element owned (the rank is the number of output bits), which bits of the lanes go to one bank
// (those that the bank does not tell apart), where in the source is an element of the destination (bits_express).
//
// Worked example: C of mma.m16n8, {register: [(0,1),(8,0)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)]} -> (dim0: 16, dim1:
// 8). Lane 5 = 1 + 4, register 3 = 1 + 2: (0,2) ^ (1,0) ^ (0,1) ^ (8,0) = (9, 3).
//
// Limits: sizes are powers of two; 62 bits on either side. Whole layouts are solved for in
// calculator/linear_algebra.c.
#include "layout/linear.h"
#include <string.h>

// ---- elimination on words ----

// Rows by their highest bit, each with the set of inserted vectors it is the sum of.
typedef struct Echelon {
    uint64_t row[64], sum[64];
} Echelon;

// Reduces `vector`; `sum` collects the inserted vectors used. The remainder is 0 iff the vector is in the span.
static uint64_t reduce(const Echelon *e, uint64_t vector, uint64_t *sum) {
    while (vector) {
        int top = 63 - __builtin_clzll(vector);
        if (!e->row[top]) return vector;
        vector ^= e->row[top];
        *sum ^= e->sum[top];
    }
    return 0;
}

// Inserts vector number `index`; false when it depends on earlier ones.
static bool insert(Echelon *e, uint64_t vector, int index) {
    uint64_t sum = (uint64_t)1 << index, rest = reduce(e, vector, &sum);
    if (!rest) return false;
    int top = 63 - __builtin_clzll(rest);
    e->row[top] = rest;
    e->sum[top] = sum;
    return true;
}

int bits_rank(const uint64_t *vectors, int count) {
    uint64_t row[64], leads = 0;   // by its leading bit; those that are there. (Searches ask often: nothing is cleared)
    for (int i = 0; i < count; i++) {
        uint64_t rest = vectors[i];
        while (rest && leads >> (63 - __builtin_clzll(rest)) & 1) rest ^= row[63 - __builtin_clzll(rest)];
        if (!rest) continue;
        row[63 - __builtin_clzll(rest)] = rest;
        leads |= (uint64_t)1 << (63 - __builtin_clzll(rest));
    }
    return __builtin_popcountll(leads);
}

bool bits_express(const uint64_t *vectors, int count, uint64_t wanted, uint64_t *which) {
    Echelon e = {{0}, {0}};
    for (int i = 0; i < count; i++) insert(&e, vectors[i], i);
    *which = 0;
    return !reduce(&e, wanted, which);
}

uint64_t bits_largest(const uint64_t *vectors, int count) {
    return bits_largest_from(vectors, count, 0);
}

uint64_t bits_largest_from(const uint64_t *vectors, int count, uint64_t sum) {
    Echelon e = {{0}, {0}};
    for (int i = 0; i < count; i++) insert(&e, vectors[i], i);
    for (int top = 63; top >= 0; top--)
        if (!(sum >> top & 1)) sum ^= e.row[top];
    return sum;
}

int bits_echelon(uint64_t *vectors, int count) {
    int rank = 0;
    for (int bit = 0; bit < 64 && rank < count; bit++) {
        int pivot = rank;
        while (pivot < count && !(vectors[pivot] >> bit & 1)) pivot++;
        if (pivot == count) continue;
        uint64_t row = vectors[pivot];
        vectors[pivot] = vectors[rank];
        vectors[rank] = row;
        for (int i = 0; i < count; i++)
            if (i != rank && (vectors[i] >> bit & 1)) vectors[i] ^= row;
        rank++;
    }
    return rank;
}

static uint64_t pivots_of(const uint64_t *rows, int rank) {
    uint64_t pivots = 0;
    for (int i = 0; i < rank; i++) pivots |= rows[i] & -rows[i];
    return pivots;
}

enum { MOST_VECTORS = 2 * 64 };

int bits_complement(const uint64_t *vectors, int count, int dim, uint64_t *basis) {
    uint64_t rows[MOST_VECTORS];
    memcpy(rows, vectors, sizeof *rows * (size_t)count);
    uint64_t pivots = pivots_of(rows, bits_echelon(rows, count));
    int found = 0;
    for (int bit = 0; bit < dim; bit++)
        if (!(pivots >> bit & 1)) basis[found++] = (uint64_t)1 << bit;
    return found;
}

static bool all_units(const uint64_t *vectors, int count) {
    for (int i = 0; i < count; i++)
        if (!vectors[i] || (vectors[i] & (vectors[i] - 1))) return false;
    return true;
}

int bits_intersection(const uint64_t *a, int a_count, const uint64_t *b, int b_count, uint64_t *basis) {
    if (all_units(a, a_count) && all_units(b, b_count)) {
        uint64_t in_b = 0;
        int found = 0;
        for (int i = 0; i < b_count; i++) in_b |= b[i];
        for (int i = 0; i < a_count; i++)
            if (a[i] & in_b) basis[found++] = a[i];
        return found;
    }
    // What is a sum of a and a sum of b is what the a of a sum that is 0 add up to: one for each vector that depends on
    // those before it.
    Echelon e = {{0}, {0}};   // `sum`: of the vectors of a that are in a row
    int found = 0;
    for (int i = 0; i < a_count + b_count; i++) {
        uint64_t vector = i < a_count ? a[i] : b[i - a_count], sum = i < a_count ? vector : 0;
        uint64_t rest = reduce(&e, vector, &sum);
        if (!rest && i >= a_count && sum) basis[found++] = sum;
        if (!rest) continue;
        e.row[63 - __builtin_clzll(rest)] = rest;
        e.sum[63 - __builtin_clzll(rest)] = sum;
    }
    return bits_echelon(basis, found);
}

// ---- dims ----

static int total_bits(const LinearDim *dims, int count) {
    int bits = 0;
    for (int i = 0; i < count; i++) bits += dims[i].bits;
    return bits;
}

int linear_find(const LinearDim *dims, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (*dims[i].name == *name && !strcmp(dims[i].name, name)) return i;   // most names differ at once
    return -1;
}

int linear_in_bits(Linear a) {
    return total_bits(a.ins, a.in_count);
}

int linear_out_bits(Linear a) {
    return total_bits(a.outs, a.out_count);
}

int linear_find_in(Linear a, const char *name) {
    return linear_find(a.ins, a.in_count, name);
}

int linear_in_shift(Linear a, int in) {
    return total_bits(a.ins, in);
}

int linear_out_shift(Linear a, int out) {
    return total_bits(a.outs, out);
}

// Moves each output field of a packed column to a new place; a negative place drops it.
uint64_t linear_move_fields(Linear a, uint64_t column, const int *places) {
    uint64_t moved = 0;
    for (int i = 0; i < a.out_count; i++) {
        if (places[i] >= 0) moved |= (column & linear_mask(a.outs[i].bits)) << places[i];
        column >>= a.outs[i].bits;
    }
    return moved;
}

// ---- construction ----

Linear linear_empty(void) {
    return (Linear){0, 0, NULL, NULL, NULL};
}

bool linear_check_dims(LayoutContext *cx, const LinearDim *dims, int count, const char *kind) {
    for (int i = 0; i < count; i++)
        if (linear_find(dims, i, dims[i].name) >= 0)
            return layout_refuse(cx, "two %s dims are called '%.40s'", kind, dims[i].name);
    int bits = 0;
    for (int i = 0; i < count && bits <= LINEAR_MAX_BITS; i++) bits += dims[i].bits;
    if (bits > LINEAR_MAX_BITS) return layout_refuse(cx, "overflow: more than %d %s bits", LINEAR_MAX_BITS, kind);
    return true;
}

Linear linear_make(LayoutContext *cx, const LinearDim *ins, int in_count, const LinearDim *outs, int out_count,
                   const uint64_t *columns) {
    if (!linear_check_dims(cx, ins, in_count, "input") || !linear_check_dims(cx, outs, out_count, "output"))
        return linear_empty();
    int in_bits = total_bits(ins, in_count);
    uint64_t outside = ~linear_mask(total_bits(outs, out_count));
    for (int i = 0; i < in_bits; i++)
        if (columns[i] & outside) layout_refuse(cx, "an image lies outside the output sizes");
    if (cx->failed) return linear_empty();
    return (Linear){in_count, out_count, arena_copy(cx->arena, ins, sizeof *ins * (size_t)in_count),
                    arena_copy(cx->arena, outs, sizeof *outs * (size_t)out_count),
                    arena_copy(cx->arena, columns, sizeof *columns * (size_t)in_bits)};
}

// ---- renaming ----

Linear linear_reshape(LayoutContext *cx, Linear a, const LinearDim *ins, int in_count, const LinearDim *outs,
                      int out_count) {
    if (total_bits(ins, in_count) != linear_in_bits(a) || total_bits(outs, out_count) != linear_out_bits(a)) {
        layout_refuse(cx, "reshape: the sizes' product changes");
        return a;
    }
    return linear_make(cx, ins, in_count, outs, out_count, a.columns);
}

static bool is_permutation(LayoutContext *cx, const LinearDim *dims, int count, const char *const *names,
                           int names_count) {
    bool good = count == names_count;
    for (int i = 0; i < count && good; i++) {
        good = linear_find(dims, count, names[i]) >= 0;
        for (int j = 0; j < i && good; j++) good = strcmp(names[i], names[j]) != 0;
    }
    return good || layout_refuse(cx, "transpose: the names are not a permutation of the dims");
}

// The layout of the given inputs and outputs only, in the given orders.
Linear linear_gather(LayoutContext *cx, Linear a, const int *in_order, int in_count, const int *out_order,
                     int out_count) {
    LinearDim *ins = NEW_ARRAY(cx->arena, LinearDim, in_count), *outs = NEW_ARRAY(cx->arena, LinearDim, out_count);
    int *places = NEW_ARRAY(cx->arena, int, a.out_count);
    for (int i = 0; i < a.out_count; i++) places[i] = -1;
    for (int i = 0, place = 0; i < out_count; place += outs[i++].bits) {
        outs[i] = a.outs[out_order[i]];
        places[out_order[i]] = place;
    }
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0, column = 0; i < in_count; i++) {
        ins[i] = a.ins[in_order[i]];
        int from = linear_in_shift(a, in_order[i]);
        for (int bit = 0; bit < ins[i].bits; bit++)
            columns[column++] = linear_move_fields(a, a.columns[from + bit], places);
    }
    return linear_make(cx, ins, in_count, outs, out_count, columns);
}

// All of them in order, without names.
static int *order_of(LayoutContext *cx, const LinearDim *dims, int count, const char *const *names) {
    int *order = NEW_ARRAY(cx->arena, int, count);
    for (int i = 0; i < count; i++) order[i] = names ? linear_find(dims, count, names[i]) : i;
    return order;
}

Linear linear_transpose(LayoutContext *cx, Linear a, const char *const *ins, int in_count, const char *const *outs,
                        int out_count) {
    if (ins && !is_permutation(cx, a.ins, a.in_count, ins, in_count)) return a;
    if (outs && !is_permutation(cx, a.outs, a.out_count, outs, out_count)) return a;
    return linear_gather(cx, a, order_of(cx, a.ins, a.in_count, ins), a.in_count,
                         order_of(cx, a.outs, a.out_count, outs), a.out_count);
}
