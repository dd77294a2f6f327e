#include "layout/calculator/bridge.h"
#include <stdlib.h>
#include <string.h>

// ---- shape:stride -> linear ----

// Appends the images of the bits of every leaf. `taken` holds the offset bits in use: a second use would carry.
static void append_images(LayoutContext *cx, Cute a, uint64_t *columns, int *count, uint64_t *taken) {
    for (int i = 0; i < a.rank; i++) append_images(cx, a.modes[i], columns, count, taken);
    if (a.rank != CUTE_LEAF || cx->failed) return;
    int bits = log2_exact(a.shape);
    if (bits < 0) {
        layout_refuse(cx, "not linear: extent %lld is not a power of two", (long long)a.shape);
        return;
    }
    for (int bit = 0; bit < bits; bit++) {
        uint64_t image = (uint64_t)layout_mul(cx, (int64_t)1 << bit, a.stride);
        if (*count == LINEAR_MAX_BITS) layout_refuse(cx, "overflow: more than %d input bits", LINEAR_MAX_BITS);
        if (image & *taken)
            layout_refuse(cx, "not linear: stride %lld carries into another one's bits (bit %d)", (long long)a.stride,
                          __builtin_ctzll(image & *taken));
        if (cx->failed) return;
        *taken |= image;
        columns[(*count)++] = image;
    }
}

Linear linear_from_swizzled(LayoutContext *cx, Swizzled a, const char *const *ins, const char *out) {
    if (a.base) return layout_refuse(cx, "not linear: 0 maps to offset %lld", (long long)a.base), linear_empty();
    uint64_t columns[LINEAR_MAX_BITS], taken = 0, reach = 0;
    int rank = cute_rank(a.layout), count = 0;
    LinearDim *dims = NEW_ARRAY(cx->arena, LinearDim, rank);
    for (int i = 0; i < rank && !cx->failed; i++) {
        int before = count;
        append_images(cx, cute_mode(a.layout, i), columns, &count, &taken);
        dims[i] = (LinearDim){ins[i], count - before};
    }
    if (cx->failed) return linear_empty();
    for (int i = 0; i < count; i++) {
        columns[i] = (uint64_t)swizzle_apply(a.swizzle, (int64_t)columns[i]);
        reach |= columns[i];
    }
    int out_bits = reach ? 64 - __builtin_clzll(reach) : 0;
    return linear_make(cx, dims, rank, &(LinearDim){out, out_bits}, 1, columns);
}

Linear linear_from_tv(LayoutContext *cx, Cute tv, Tuple tile, const char *const *ins) {
    static const char *const names[] = {"dim0", "dim1", "dim2", "dim3", "dim4", "dim5", "dim6", "dim7"};
    int rank = tuple_rank(tile), bits = 0;
    if (cute_rank(tv) != 2) return layout_refuse(cx, "a thread-value layout has two modes"), linear_empty();
    if (rank > 8) return layout_refuse(cx, "tiles have at most 8 dims"), linear_empty();
    Linear flat = linear_from_swizzled(cx, (Swizzled){{0, 0, 0}, 0, tv}, ins, "offset");
    LinearDim outs[8];
    for (int i = 0; i < rank && !cx->failed; i++) {
        outs[i] = (LinearDim){names[i], log2_exact(tuple_product(cx, tuple_mode(tile, i)))};
        if (outs[i].bits < 0) layout_refuse(cx, "not linear: a tile extent is not a power of two");
        bits += outs[i].bits;
    }
    if (!cx->failed && linear_out_bits(flat) > bits) layout_refuse(cx, "the layout reaches beyond the tile");
    if (cx->failed) return linear_empty();
    return linear_make(cx, flat.ins, flat.in_count, outs, rank, flat.columns);
}

// ---- linear -> shape:stride ----

static bool disjoint_after(Linear a, Swizzle undo) {
    uint64_t taken = 0;
    for (int i = 0; i < linear_in_bits(a); i++) {
        uint64_t image = (uint64_t)swizzle_apply(undo, (int64_t)a.columns[i]);
        if (image & taken) return false;
        taken |= image;
    }
    return true;
}

// Fewest bits first, then the lowest target, then the nearest source above, then below. A swizzle is its own inverse.
static bool find_swizzle(Linear a, Swizzle *found) {
    int out_bits = linear_out_bits(a);
    *found = (Swizzle){0, 0, 0};
    if (disjoint_after(a, *found)) return true;
    for (int bits = 1; 2 * bits <= out_bits; bits++)
        for (int base = 0; base + 2 * bits <= out_bits; base++)
            for (int distance = bits; base + bits + distance <= out_bits; distance++)
                for (int sign = 1; sign >= -1; sign -= 2) {
                    Swizzle s = {bits, base, sign * distance};
                    if (disjoint_after(a, s)) return *found = s, true;
                }
    return false;
}

Swizzled swizzled_from_linear(LayoutContext *cx, Linear a) {
    Swizzled result = {{0, 0, 0}, 0, cute_leaf(1, 0)};
    if (!find_swizzle(a, &result.swizzle)) {
        layout_refuse(cx, "no strides: input bits share output bits, and no Sw<B,M,S> takes them apart");
        return result;
    }
    Cute *modes = NEW_ARRAY(cx->arena, Cute, a.in_count);
    for (int in = 0, column = 0; in < a.in_count; in++) {
        Cute leaves[LINEAR_MAX_BITS];
        for (int bit = 0; bit < a.ins[in].bits; bit++, column++)
            leaves[bit] = cute_leaf(2, swizzle_apply(result.swizzle, (int64_t)a.columns[column]));
        modes[in] = cute_coalesce(cx, cute_tuple(cx, leaves, a.ins[in].bits));
    }
    result.layout = a.in_count == 1 ? modes[0] : cute_tuple(cx, modes, a.in_count);
    return result;
}
