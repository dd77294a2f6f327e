// Encodings as linear layouts.
//
// Every distributed encoding is a product of identities, written down from the fastest bits to the slowest. For
// example the accumulator of mma.m16n8 over a 32 x 32 tensor by one warp:
//
//   2 registers along n * 4 lanes along n * 8 lanes along m * 2 registers along m      = the 16 x 8 instruction tile
//   register: (0,1)       lane: (0,2),(0,4)  lane: (1,0)..    register: (8,0)
//
//   then grown to the tensor: registers (0,8), (0,16) along n, then (16,0) along m.
//
// `combine` does the growing, cuts what exceeds the tensor, and adds the CTAs of the cluster. Shared encodings list the
// images of offset bits; the swizzle is in the images of the row bits.
//
// Sources: Triton's LinearLayoutConversions (semantics only) and the PTX ISA's fragment figures.
#include "layout/calculator/encoding.h"
#include "layout/calculator/tuple.h"
#include <string.h>

static const char *const dim_names[ENCODING_MAX_RANK] = {"dim0", "dim1", "dim2", "dim3",
                                                         "dim4", "dim5", "dim6", "dim7"};

// ---- checks ----

static bool is_power_of_two(int64_t n) {
    return n > 0 && n <= LAYOUT_LIMIT && !(n & (n - 1));
}

static int log2_of(int64_t n) {
    return __builtin_ctzll((unsigned long long)n);
}

static bool powers_of_two(LayoutContext *cx, const int64_t *sizes, int count, const char *what) {
    for (int i = 0; i < count; i++)
        if (!is_power_of_two(sizes[i]))
            return layout_refuse(cx, "%s: %lld is not a power of two", what, (long long)sizes[i]);
    return true;
}

static bool permutation_of_dims(LayoutContext *cx, const int64_t *order, int rank, const char *what) {
    unsigned seen = 0;
    for (int i = 0; i < rank; i++)
        if (order[i] >= 0 && order[i] < rank) seen |= 1u << order[i];
    return seen == (1u << rank) - 1 || layout_refuse(cx, "%s is not a permutation of the dims", what);
}

static bool check_rank(LayoutContext *cx, const Encoding *e, int rank) {
    return e->rank == rank || layout_refuse(cx, "the encoding has rank %d, the tensor %d", e->rank, rank);
}

static bool check_cluster(LayoutContext *cx, const Encoding *e) {
    if (!powers_of_two(cx, e->ctas, e->rank, "ctas") || !powers_of_two(cx, e->cta_split, e->rank, "ctaSplit") ||
        !permutation_of_dims(cx, e->cta_order, e->rank, "ctaOrder"))
        return false;
    for (int i = 0; i < e->rank; i++)
        if (e->cta_split[i] > e->ctas[i]) return layout_refuse(cx, "ctaSplit exceeds ctas");
    return true;
}

// ---- products of identities ----

// For d in order: identity of size[d] from `in` to dim d; along `broadcast` (-1: none) zeros instead.
static Linear spread(LayoutContext *cx, const char *in, const int64_t *sizes, const int64_t *order, int rank,
                     int broadcast) {
    Linear result = linear_empty();
    for (int i = 0; i < rank; i++) {
        int d = (int)order[i];
        Linear piece = d == broadcast ? linear_zeros1d(cx, sizes[d], in, dim_names[d], 1)
                                      : linear_identity1d(cx, sizes[d], in, dim_names[d]);
        result = linear_multiply(cx, result, piece);
    }
    return result;
}

static Linear times(LayoutContext *cx, Linear a, int64_t size, const char *in, int64_t dim) {
    return linear_multiply(cx, a, linear_identity1d(cx, size, in, dim_names[dim]));
}

static Linear with_outs_like(LayoutContext *cx, Linear a, Linear like) {
    const char *names[ENCODING_MAX_RANK];
    for (int i = 0; i < like.out_count; i++) names[i] = like.outs[i].name;
    return linear_transpose_outs(cx, a, names, like.out_count);
}

static int dim_index(const char *name) {
    return name[3] - '0';
}

// ---- the cluster, and fitting to the tensor ----

static Linear cluster_layout(LayoutContext *cx, const Encoding *e) {
    Linear result = linear_empty();
    for (int i = 0; i < e->rank; i++) {
        int d = (int)e->cta_order[i];
        result = times(cx, result, e->cta_split[d], "block", d);
        result =
            linear_multiply(cx, result, linear_zeros1d(cx, e->ctas[d] / e->cta_split[d], "block", dim_names[d], 1));
    }
    return linear_transpose_outs(cx, result, dim_names, e->rank);
}

static Linear combine(LayoutContext *cx, Linear cta, const Encoding *e, const int64_t *shape) {
    if (cx->failed) return linear_empty();
    int bits[ENCODING_MAX_RANK];
    for (int d = 0; d < e->rank; d++) bits[d] = log2_of(shape[d]);
    Linear cluster = linear_clamp(cx, cluster_layout(cx, e), bits);
    cluster = with_outs_like(cx, cluster, cta);
    if (cx->failed) return linear_empty();
    for (int i = 0; i < cta.out_count; i++) {
        int left = log2_of(shape[dim_index(cta.outs[i].name)]) - cluster.outs[i].bits;
        bits[i] = left > 0 ? left : 0;
    }
    cta = linear_clamp(cx, linear_grow(cx, cta, bits), bits);
    return linear_transpose_outs(cx, linear_multiply(cx, cta, cluster), dim_names, e->rank);
}

// ---- distributed encodings ----

static Linear blocked_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape, int k_dim) {
    if (!powers_of_two(cx, e->size_per_thread, e->rank, "sizePerThread") ||
        !powers_of_two(cx, e->threads_per_warp, e->rank, "threadsPerWarp") ||
        !powers_of_two(cx, e->warps_per_cta, e->rank, "warpsPerCTA") ||
        !permutation_of_dims(cx, e->order, e->rank, "order") || !check_cluster(cx, e))
        return linear_empty();
    PerDim registers;
    memcpy(registers, e->size_per_thread, sizeof registers);
    if (k_dim >= 0) registers[k_dim] = shape[k_dim];   // an operand of FMA: each thread walks all of k
    Linear cta = spread(cx, "register", registers, e->order, e->rank, -1);
    cta = linear_multiply(cx, cta, spread(cx, "lane", e->threads_per_warp, e->order, e->rank, k_dim));
    cta = linear_multiply(cx, cta, spread(cx, "warp", e->warps_per_cta, e->order, e->rank, k_dim));
    return combine(cx, cta, e, shape);
}

// Dims fastest first: row major, or with the two fastest exchanged.
static void matrix_order(int rank, bool row_major, int64_t *order) {
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    if (!row_major && rank >= 2) order[0] = rank - 2, order[1] = rank - 1;
}

// The tile of one warp for an instruction of the mma family, `outer` x `inner` elements: k_width registers and 4 lanes
// along `inner`, 8 lanes along `outer`, then registers along outer and inner. Outputs come in `order`.
static Linear mma_tile(LayoutContext *cx, int64_t outer, int64_t inner, int64_t k_width, const int64_t *order,
                       int rank) {
    enum { LANES_INNER = 4, LANES_OUTER = 8 };
    PerDim ones = {1, 1, 1, 1, 1, 1, 1, 1};
    if (outer % LANES_OUTER || inner % (k_width * LANES_INNER)) {
        layout_refuse(cx, "the instruction's tile is %lld x %lld; it must hold 8 x %lld", (long long)outer,
                      (long long)inner, (long long)k_width * LANES_INNER);
        return linear_empty();
    }
    Linear tile = spread(cx, "register", ones, order, rank, -1);
    tile = times(cx, tile, k_width, "register", order[0]);
    tile = times(cx, tile, LANES_INNER, "lane", order[0]);
    tile = times(cx, tile, LANES_OUTER, "lane", order[1]);
    tile = times(cx, tile, outer / LANES_OUTER, "register", order[1]);
    return times(cx, tile, inner / (k_width * LANES_INNER), "register", order[0]);
}

static bool check_mma(LayoutContext *cx, const Encoding *e) {
    if (e->version != 2 && e->version != 3) return layout_refuse(cx, "mma version %d is not supported", e->version);
    if (e->rank < 2) return layout_refuse(cx, "mma encodings have rank 2 or more");
    if (e->version == 2 && e->instr_rank != e->rank)
        return layout_refuse(cx, "instrShape needs one entry per dim of the tensor");
    if (e->version == 3 && e->instr_rank != 3) return layout_refuse(cx, "instrShape of version 3 is [m, n, k]");
    return powers_of_two(cx, e->instr_shape, e->instr_rank, "instrShape") &&
           powers_of_two(cx, e->warps_per_cta, e->rank, "warpsPerCTA") && check_cluster(cx, e);
}

// Multiplies by the warps, those along `broadcast` as copies. Hopper's warps go along m first.
static Linear times_warps(LayoutContext *cx, Linear tile, const Encoding *mma, int broadcast) {
    PerDim order;
    matrix_order(mma->rank, mma->version != 3, order);
    Linear warps = spread(cx, "warp", mma->warps_per_cta, order, mma->rank, broadcast);
    return linear_multiply(cx, tile, with_outs_like(cx, warps, tile));
}

static Linear mma_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape) {
    enum { ACCUMULATOR_WIDTH = 2 };   // consecutive n per lane
    if (!check_mma(cx, e)) return linear_empty();
    PerDim order;
    matrix_order(e->rank, true, order);
    int64_t m = e->version == 3 ? e->instr_shape[0] : e->instr_shape[e->rank - 2];
    int64_t n = e->version == 3 ? e->instr_shape[1] : e->instr_shape[e->rank - 1];
    Linear tile = mma_tile(cx, m, n, ACCUMULATOR_WIDTH, order, e->rank);
    if (cx->failed) return tile;
    return combine(cx, times_warps(cx, tile, e, -1), e, shape);
}

static Linear dot_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape, int rank) {
    Encoding parent = *e->parent;
    if (rank < 2) return layout_refuse(cx, "operands have rank 2 or more"), linear_empty();
    int k_dim = e->op_index == 0 ? rank - 1 : rank - 2;
    if (!check_rank(cx, &parent, rank)) return linear_empty();
    parent.cta_split[k_dim] = 1;   // k is not split over the cluster
    if (parent.kind == ENCODING_BLOCKED) return blocked_to_linear(cx, &parent, shape, k_dim);
    if (parent.kind != ENCODING_MMA) return layout_refuse(cx, "an operand's parent is mma or blocked"), linear_empty();
    if (!check_mma(cx, &parent)) return linear_empty();
    if (parent.version == 3 && e->op_index == 1)
        return layout_refuse(cx, "wgmma takes its second operand from shared memory"), linear_empty();
    if (!is_power_of_two(e->k_width)) return layout_refuse(cx, "kWidth is a power of two"), linear_empty();
    PerDim order;
    matrix_order(rank, e->op_index == 0, order);   // k fastest
    int64_t m = parent.version == 3 ? parent.instr_shape[0] : parent.instr_shape[rank - 2];
    int64_t k = (m == 8 ? 4 : 8) * (int64_t)e->k_width;   // m = 8: the f64 instruction
    Linear tile = mma_tile(cx, e->op_index == 0 ? m : 8, k, e->k_width, order, rank);
    if (cx->failed) return tile;
    return combine(cx, times_warps(cx, tile, &parent, k_dim), &parent, shape);
}

Linear encoding_without_dim(LayoutContext *cx, Linear whole, const char *dim) {
    const char *ins[LINEAR_MAX_BITS], *outs[ENCODING_MAX_RANK];
    int gone = linear_find_out(whole, dim), rank = 0;
    if (gone < 0 || whole.outs[gone].bits || whole.out_count > ENCODING_MAX_RANK)
        return layout_refuse(cx, "slice: there is no dim '%.40s' of size 1", dim), whole;
    for (int i = 0; i < whole.in_count; i++) ins[i] = whole.ins[i].name;
    for (int i = 0; i < whole.out_count; i++)
        if (i != gone) outs[rank++] = whole.outs[i].name;
    Linear sliced = linear_sublayout(cx, whole, ins, whole.in_count, outs, rank);
    return linear_remove_zero_bases(cx, linear_rename_outs(cx, sliced, dim_names), "register");
}

static Linear slice_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape, int rank) {
    if (e->dim < 0 || e->dim > rank || rank + 1 > ENCODING_MAX_RANK)
        return layout_refuse(cx, "slice: there is no dim %d", e->dim), linear_empty();
    PerDim parent_shape;
    for (int d = 0; d <= rank; d++) parent_shape[d] = d < e->dim ? shape[d] : d == e->dim ? 1 : shape[d - 1];
    Linear whole = encoding_to_linear(cx, e->parent, parent_shape, rank + 1);
    return cx->failed ? whole : encoding_without_dim(cx, whole, dim_names[e->dim]);
}

// ---- shared encodings ----

// Sizes of one CTA's part.
static void shape_per_cta(const Encoding *e, const int64_t *shape, int64_t *per_cta) {
    for (int d = 0; d < e->rank; d++) per_cta[d] = shape[d] / (e->cta_split[d] < shape[d] ? e->cta_split[d] : shape[d]);
}

// offset -> (row, column) of a rows x columns box: columns first; row bit r also flips the column bits of its phase.
static Linear swizzled_box(LayoutContext *cx, int64_t rows, int64_t columns, const Encoding *e, int row_dim,
                           int column_dim) {
    uint64_t images[LINEAR_MAX_BITS];
    int row_bits = log2_of(rows), column_bits = log2_of(columns), count = 0;
    if (row_bits + column_bits > LINEAR_MAX_BITS)
        return layout_refuse(cx, "overflow: too many offsets"), linear_empty();
    for (int bit = 0; bit < column_bits; bit++) images[count++] = (uint64_t)1 << (row_bits + bit);
    for (int bit = 0; bit < row_bits; bit++) {
        int64_t row = (int64_t)1 << bit, phase = row / e->per_phase % e->max_phase;
        images[count++] = (uint64_t)row | (uint64_t)(e->vec * phase % columns) << row_bits;
    }
    LinearDim outs[] = {{dim_names[row_dim], row_bits}, {dim_names[column_dim], column_bits}};
    return linear_make(cx, &(LinearDim){"offset", count}, 1, outs, 2, images);
}

static Linear swizzled_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape) {
    if (!powers_of_two(cx, (int64_t[]){e->vec, e->per_phase, e->max_phase}, 3, "vec, perPhase, maxPhase") ||
        !permutation_of_dims(cx, e->order, e->rank, "order") || !check_cluster(cx, e))
        return linear_empty();
    layout_mul(cx, e->vec, e->max_phase);
    if (cx->failed) return linear_empty();
    PerDim per_cta;
    shape_per_cta(e, shape, per_cta);
    if (e->rank == 1) return combine(cx, linear_identity1d(cx, per_cta[0], "offset", "dim0"), e, shape);
    int column_dim = (int)e->order[0], row_dim = (int)e->order[1];
    Linear cta = swizzled_box(cx, per_cta[row_dim], per_cta[column_dim], e, row_dim, column_dim);
    for (int i = 2; i < e->rank; i++) cta = times(cx, cta, per_cta[e->order[i]], "offset", e->order[i]);
    return combine(cx, cta, e, shape);
}

// 16-byte groups of fp4 are padded to 16 offsets of which the upper 8 alias the lower.
static uint64_t packed_fp4(uint64_t column) {
    return column / 16 * 8 + column % 8;
}

// The core tile of TMA's swizzle: 8 rows of `swizzle_bytes` (at least 16), as outputs (dim0: row, dim1: column).
static Linear core_tile(LayoutContext *cx, const Encoding *e) {
    enum { ROWS = 8, LEAST_BYTES = 16, WIDEST_BYTES = 128 };
    int64_t bytes = e->swizzle_bytes > LEAST_BYTES ? e->swizzle_bytes : LEAST_BYTES;
    int64_t columns = 8 * bytes / e->element_bits, vec = 128 / e->element_bits;
    int64_t per_phase = WIDEST_BYTES / bytes, max_phase = bytes / LEAST_BYTES;
    int row_bits = log2_of(ROWS), count = 0, column_bits = log2_of(columns) - (e->fp4_padded ? 1 : 0);
    uint64_t images[LINEAR_MAX_BITS];
    for (int64_t column = 1; column < columns; column *= 2)
        images[count++] = (e->fp4_padded ? packed_fp4((uint64_t)column) : (uint64_t)column) << row_bits;
    for (int64_t row = 1; row < ROWS; row *= 2) {
        uint64_t flip = (uint64_t)(vec * (row / per_phase % max_phase));
        images[count++] = (uint64_t)row | (e->fp4_padded ? packed_fp4(flip) : flip) << row_bits;
    }
    LinearDim outs[] = {{dim_names[0], row_bits}, {dim_names[1], column_bits}};
    return linear_make(cx, &(LinearDim){"offset", count}, 1, outs, 2, images);
}

// Splits (dim0: rows, dim1: columns) into dim0.. of `shape`, both read row-major.
static Linear reshape_row_major(LayoutContext *cx, Linear a, const int64_t *shape, int rank) {
    LinearDim dims[ENCODING_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = (LinearDim){dim_names[rank - 1 - i], log2_of(shape[rank - 1 - i])};
    Linear minor_first = linear_transpose_outs(cx, a, (const char *[]){dim_names[1], dim_names[0]}, 2);
    return linear_transpose_outs(cx, linear_reshape_outs(cx, minor_first, dims, rank), dim_names, rank);
}

static bool check_nvmma(LayoutContext *cx, const Encoding *e) {
    int64_t s = e->swizzle_bytes;
    if (s != 0 && s != 32 && s != 64 && s != 128) return layout_refuse(cx, "swizzleBytes is 0, 32, 64 or 128");
    if (!is_power_of_two(e->element_bits) || e->element_bits < 4 || e->element_bits > 64)
        return layout_refuse(cx, "elemBits is a power of two from 4 to 64");
    if (e->fp4_padded && e->element_bits != 8) return layout_refuse(cx, "fp4Padded elements count as 8 bits");
    return check_cluster(cx, e);
}

// The box of one TMA copy: at most 256 per dim, the contiguous one exactly the swizzle's width.
static bool tma_box(LayoutContext *cx, const Encoding *e, const int64_t *per_cta, int64_t *box) {
    enum { MOST = 256 };
    int contiguous = e->transposed ? 0 : e->rank - 1;
    for (int d = 0; d < e->rank; d++) box[d] = per_cta[d] < MOST ? per_cta[d] : MOST;
    if (!e->swizzle_bytes) return true;
    int64_t width = 8 * e->swizzle_bytes / e->element_bits / (e->fp4_padded ? 2 : 1);
    if (box[contiguous] < width)
        return layout_refuse(cx, "the contiguous dim has %lld elements, the swizzle %lld", (long long)box[contiguous],
                             (long long)width);
    box[contiguous] = width;
    return true;
}

// The box's dims in the order in which they lie in memory before the transposition: the contiguous one last.
static void rotate(const Encoding *e, const int64_t *box, int64_t *stored) {
    for (int d = 0; d < e->rank; d++) stored[d] = box[e->transposed ? (d + 1) % e->rank : d];
}

// (dim0.. of the stored box) -> (dim0.. of the tensor): the stored last dim is the tensor's first.
static Linear unrotate(LayoutContext *cx, const Encoding *e, Linear a) {
    if (!e->transposed) return a;
    const char *names[ENCODING_MAX_RANK];
    for (int d = 0; d < e->rank; d++) names[d] = dim_names[(d + 1) % e->rank];
    return linear_transpose_outs(cx, linear_rename_outs(cx, a, names), dim_names, e->rank);
}

static Linear nvmma_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape) {
    PerDim per_cta, box, stored;
    if (!check_nvmma(cx, e)) return linear_empty();
    shape_per_cta(e, shape, per_cta);
    if (!tma_box(cx, e, per_cta, box)) return linear_empty();
    rotate(e, box, stored);
    Linear layout;
    if (e->swizzle_bytes == 0) {   // plain, the stored last dim fastest
        layout = linear_empty();
        for (int d = e->rank - 1; d >= 0; d--) layout = times(cx, layout, stored[d], "offset", d);
        layout = linear_transpose_outs(cx, layout, dim_names, e->rank);
    } else {
        // Leading dims collapse into rows. Triton collapses before it exchanges rows and columns, so a transposed box
        // of rank > 2 has its middle dims among the columns.
        int64_t rows = 1, columns = box[e->rank - 1];
        for (int d = 0; d + 1 < e->rank; d++) rows *= box[d];
        if (e->transposed) {
            int64_t swap = rows;
            rows = columns;
            columns = swap;
        }
        Linear tile = core_tile(cx, e);
        if (cx->failed) return tile;
        int bits[] = {log2_of(rows), log2_of(columns)};
        if (e->rank < 2 || bits[0] < tile.outs[0].bits || bits[1] < tile.outs[1].bits)
            return layout_refuse(cx, "the tensor is smaller than the swizzle's tile of 8 rows"), linear_empty();
        layout = reshape_row_major(cx, linear_grow(cx, tile, bits), stored, e->rank);
    }
    return combine(cx, unrotate(cx, e, layout), e, shape);
}

Linear encoding_to_linear(LayoutContext *cx, const Encoding *e, const int64_t *shape, int rank) {
    if (rank < 1 || rank > ENCODING_MAX_RANK)
        return layout_refuse(cx, "tensors have rank 1 to %d", ENCODING_MAX_RANK), linear_empty();
    if (!powers_of_two(cx, shape, rank, "shape")) return linear_empty();
    int bits = 0;
    for (int d = 0; d < rank; d++) bits += log2_of(shape[d]);
    if (bits > LINEAR_MAX_BITS)
        return layout_refuse(cx, "overflow: the tensor has more than 2^62 elements"), linear_empty();
    bool nested = e->kind == ENCODING_SLICE || e->kind == ENCODING_DOT;
    if (!nested && !check_rank(cx, e, rank)) return linear_empty();
    switch (e->kind) {
    case ENCODING_BLOCKED: return blocked_to_linear(cx, e, shape, -1);
    case ENCODING_MMA: return mma_to_linear(cx, e, shape);
    case ENCODING_DOT: return dot_to_linear(cx, e, shape, rank);
    case ENCODING_SLICE: return slice_to_linear(cx, e, shape, rank);
    case ENCODING_SWIZZLED: return swizzled_to_linear(cx, e, shape);
    case ENCODING_NVMMA_SHARED: return nvmma_to_linear(cx, e, shape);
    }
    return linear_empty();
}

// ---- matrix instructions ----

// Row-wise, a lane holds 32 bits of a row and 4 lanes hold the row; transposed (16-bit elements only), 8 lanes hold a
// row, one element each in their one register.
Linear matrix_tile(LayoutContext *cx, int element_bits, bool transposed) {
    enum { ROW_BITS = 128, REGISTER_BITS = 32 };
    if (!is_power_of_two(element_bits) || element_bits > REGISTER_BITS)
        return layout_refuse(cx, "ldmatrix moves elements of up to 32 bits"), linear_empty();
    if (transposed && element_bits != 16)
        return layout_refuse(cx, "transposed ldmatrix moves 16-bit elements"), linear_empty();
    if (transposed) {   // lanes 2..4 (8 lanes) along the row; registers and lanes 0, 1 name the row
        LinearDim ins[] = {{"register", 1}, {"lane", 5}};
        LinearDim outs[] = {{"offset", 3}, {"addr", 3}};
        uint64_t columns[] = {1 << 3, 1 << 4, 1 << 5, 1, 2, 4};
        return linear_make(cx, ins, 2, outs, 2, columns);
    }
    Linear row = linear_multiply(cx, linear_identity1d(cx, REGISTER_BITS / element_bits, "register", "offset"),
                                 linear_identity1d(cx, ROW_BITS / REGISTER_BITS, "lane", "offset"));
    return linear_multiply(cx, row, linear_identity1d(cx, 8, "lane", "addr"));
}

// The bits of one row come first in the conversion: their images are offsets 1, 2, 4, ...; no other image touches
// those.
bool matrix_instruction_fits(LayoutContext *cx, Linear registers, Linear shared, int element_bits, bool transposed,
                             Linear *conversion, int *permutation) {
    Linear tile = matrix_tile(cx, element_bits, transposed);
    Linear cvt = cx->failed ? tile : linear_invert_and_compose(cx, registers, shared);
    if (cx->failed) return false;
    int reg = linear_find_in(cvt, "register"), lane = linear_find_in(cvt, "lane"), out = linear_find_out(cvt, "offset");
    if (reg < 0 || lane < 0 || out < 0) return layout_refuse(cx, "conversions go from register and lane to offset");
    if (cvt.ins[lane].bits != tile.ins[1].bits) return false;
    int row_bits = tile.outs[0].bits, taken = 0;
    uint64_t row_mask = ((uint64_t)1 << row_bits) - 1;
    int reg_from = linear_in_shift(cvt, reg), lane_from = linear_in_shift(cvt, lane),
        shift = linear_out_shift(cvt, out);
    bool used[LINEAR_MAX_BITS] = {false};
    // 1. Each offset bit of the row has its lane, or any register bit that maps to it alone.
    for (int bit = 0; bit < row_bits; bit++) {
        uint64_t image = (uint64_t)1 << (shift + bit);
        int tile_lane = -1, found = -1;
        for (int l = 0; l < tile.ins[1].bits; l++)
            if (tile.columns[tile.ins[0].bits + l] == (uint64_t)1 << bit) tile_lane = l;
        if (tile_lane >= 0) {
            if (cvt.columns[lane_from + tile_lane] != image) return false;
            continue;
        }
        for (int r = 0; r < cvt.ins[reg].bits && found < 0; r++)
            if (cvt.columns[reg_from + r] == image) found = r;
        if (found < 0) return false;
        used[found] = true;
        permutation[taken++] = found;
    }
    for (int r = 0; r < cvt.ins[reg].bits; r++)
        if (!used[r]) permutation[taken++] = r;
    // 2. Nothing else moves within the row.
    for (int i = 0; i < linear_in_bits(cvt); i++) {
        uint64_t within = cvt.columns[i] >> shift & row_mask;
        bool of_row = cvt.columns[i] == within << shift && within && !(within & (within - 1));
        bool in_tile = (i >= reg_from && i < reg_from + cvt.ins[reg].bits && used[i - reg_from]) ||
                       (i >= lane_from && i < lane_from + cvt.ins[lane].bits &&
                        (tile.columns[tile.ins[0].bits + i - lane_from] & row_mask));
        if (within && !(of_row && in_tile)) return false;
    }
    uint64_t columns[LINEAR_MAX_BITS];
    for (int i = 0; i < linear_in_bits(cvt); i++) columns[i] = cvt.columns[i];
    for (int r = 0; r < cvt.ins[reg].bits; r++) columns[reg_from + r] = cvt.columns[reg_from + permutation[r]];
    *conversion = linear_make(cx, cvt.ins, cvt.in_count, cvt.outs, cvt.out_count, columns);
    return !cx->failed;
}
