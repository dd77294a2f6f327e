// copy(S.T, T) of bytes in shared memory, by the matrix instructions.
//
// They move matrices of 8 rows of 16 bytes, and transpose elements of 16 bits: here pairs of bytes (d, d + 1) of a row
// k of S. The pairs must then be split. From each matrix a lane gets pair number l / 4 of its rows 2 (l % 4) and 2 (l %
// 4) + 1, so from two matrices four rows of k; bytes 0 and 2 of each are one row d of T, bytes 1 and 3 the next one. A
// lane gives four bytes to a row of a matrix that it stores: those at 4 (l % 4) of the row's 16.
//
//     S    k0 .. k0 + 15, 32 columns d             T    32 rows d, k0 .. k0 + 15
//
//     ldmatrix.trans, 4 matrices                         lane l, register r = 2 u + f; k = k(2q, f), k' = k(2q + 1, f)
//         matrix 2 u + f: rows k(., f), columns 16 u ..  (k, d) (k, d + 1) (k', d) (k', d + 1)
//     registers 2 u and 2 u + 1 are deinterleaved        q = l % 4, d = d0 + 16 u + 2 (l / 4)
//     stmatrix, 4 matrices                               k as above, f = 0, then f = 1
//         matrix 2 u + e: rows d0 + 16 u + 2 i + e       (k, d + e) (k', d + e) (k, d + e) (k', d + e)
//
// Rows 2 i and 2 (i + 4) are in the same banks: swizzles repeat after 8 rows. So for i >= 4 the two rows of a pair are
// exchanged, between matrices 2 u and 2 u + 1.
//
// k(r, f) is the k with position 4 (r / 2) + r % 2 + 2 f among the 16 bytes of a row of T. T may have k in any order of
// bits (wgmma_pairs); the lanes then address other rows of S. (PTX ISA, "ldmatrix", "stmatrix".)
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

typedef struct Transpose {
    Lower *lower;
    Arena *arena;
    const Region *from, *to;
    Expr *lane;
    Expr *k0, *d0;   // of the current unit
} Transpose;

// The column of a row of T at this position of 16.
static int64_t key_transposed(const Layout *layout, int64_t place) {
    for (int64_t k = 0; k < TRANSPOSE_K && layout; k++) {
        int64_t zero[2] = {0, 0}, at[2] = {0, k};
        if (layout_linear(layout, at) - layout_linear(layout, zero) == place) return k;
    }
    return place;
}

// Moves four matrices between `bytes` and the rows of a tile whose addresses the lanes have.
static void push_move(Transpose *t, OpId op, const Region *tile, Expr *row, Expr *column, Buf *bytes, Block *out) {
    bool load = op == OP_LDMATRIX;
    Expr *at[] = {row, column};
    Arg memory = arg_region(lower_in_slot(t->lower, tile, COUNT_OF(at), at));
    Arg registers = arg_element(t->arena, bytes, e_int(t->arena, 0));
    BLOCK_CALL(t->arena, out, t->to->loc, op, load ? registers : memory, load ? memory : registers,
               arg_int(t->arena, 4), arg_value(e_bool(t->arena, load)));
}

void transpose_row(const Layout *layout, int lane, bool load, int *k, int *d) {
    static const int bits[4] = {1, 4, 8, 2};   // of the position in T, for lane bits 0 .. 3
    *k = 0;
    *d = lane / 16 * 16 + (load ? 0 : lane % 8 * 2 + (lane / 8 + lane / 4) % 2);
    for (int b = 0; b < 4 && load; b++)
        if (lane >> b & 1) *k += (int)key_transposed(layout, bits[b]);
}

// Bits from .. from + count of the lane number.
static Expr *lane_bits(Transpose *transpose, int from, int count) {
    Expr *high = e_over(transpose->arena, transpose->lane, (int64_t)1 << from);
    return e_rem(transpose->arena, high, (int64_t)1 << count);
}

// transpose_row as expressions. Row k is a sum with one term per bit.
static Expr *loaded_row(Transpose *transpose) {
    Arena *arena = transpose->arena;
    Expr *k = transpose->k0;
    for (int b = 0; b < 4; b++) {
        int weight, d;
        transpose_row(transpose->to->buf->layout, 1 << b, true, &weight, &d);
        k = e_add(arena, k, e_times(arena, lane_bits(transpose, b, 1), weight));
    }
    return k;
}

static Expr *stored_row(Transpose *transpose) {
    Arena *arena = transpose->arena;
    Expr *pair =
        e_add(arena, e_times(arena, lane_bits(transpose, 4, 1), 16), e_times(arena, lane_bits(transpose, 0, 3), 2));
    Expr *within = e_xor(arena, lane_bits(transpose, 3, 1), lane_bits(transpose, 2, 1));
    return e_add(arena, transpose->d0, e_add(arena, pair, within));
}

// Byte 4 (2 u + e) + 2 f + p of the stored data is byte 4 (2 u + f) + 2 p + e of the loaded data, in the lanes of exchanged rows with
// 1 - e: the even or the odd bytes of two registers. These lanes exchange the bytes of each pair first, by a selector, since a second
// register is more than the warps of a loading group have.
static void push_deinterleaved(Transpose *transpose, Buf *loaded, Buf *stored, Expr *exchanged, Block *out) {
    Arena *arena = transpose->arena;
    Expr *plain = e_int_of(arena, TYPE_U32, 0x3210), *pairs = e_int_of(arena, TYPE_U32, 0x2301);
    Expr *selector = block_let(arena, out, "selector", e_select(arena, exchanged, pairs, plain), transpose->to->loc);
    for (int r = 0; r < 4; r++) {
        Expr *word = e_load1(arena, loaded, e_int(arena, r));
        Arg args[] = {arg_value(word), arg_value(word), arg_value(selector)};
        block_store1(arena, out, loaded, e_int(arena, r), e_call(arena, OP_BYTE_PERM, COUNT_OF(args), args));
    }
    for (int r = 0; r < 4; r++) {
        Expr *a = e_load1(arena, loaded, e_int(arena, r / 2 * 2)),
             *b = e_load1(arena, loaded, e_int(arena, r / 2 * 2 + 1));
        Arg args[] = {arg_value(a), arg_value(b), arg_value(e_int_of(arena, TYPE_U32, r % 2 ? 0x7531 : 0x6420))};
        block_store1(arena, out, stored, e_int(arena, r), e_call(arena, OP_BYTE_PERM, COUNT_OF(args), args));
    }
}

static void push_recast(Transpose *transpose, Buf *to, Buf *from, int64_t n, Block *out) {
    Expr *zero = e_int(transpose->arena, 0);
    BLOCK_CALL(transpose->arena, out, transpose->to->loc, OP_RECAST, arg_element(transpose->arena, to, zero),
               arg_element(transpose->arena, from, zero), arg_int(transpose->arena, n));
}

// Warps divide the rows if possible, else the columns, so that the addresses of a warp's rounds differ by constants.
void lower_transpose(Lower *lower, const Stmt *copy, Block *out) {
    Arena *arena = lower->arena;
    Transpose transpose = {.lower = lower, .arena = arena, .from = copy_of(copy).src, .to = copy_of(copy).dst};
    int64_t rows = region_extent(transpose.to, 0) / TRANSPOSE_ROWS,
            columns = region_extent(transpose.to, 1) / TRANSPOSE_K;
    int64_t lanes = lower->target->warp_lanes, warps = lower->threads / lanes;
    EXPECT(lower->context->failure, warps > 0 && warps * lanes == lower->threads, "a transpose by %lld threads",
           (long long)lower->threads);
    EXPECT(lower->context->failure,
           rows * TRANSPOSE_ROWS == region_extent(transpose.to, 0) &&
               columns * TRANSPOSE_K == region_extent(transpose.to, 1),
           "'%s' is not made of transposed blocks", transpose.to->buf->name);
    bool by_rows = rows % warps == 0;
    int64_t each_rows = by_rows ? rows / warps : rows, each_columns = by_rows ? columns : (columns + warps - 1) / warps;
    int mark = facts_mark(lower->facts);
    Expr *i, *warp = e_over(arena, lower_thread(lower), lanes);
    Block *body = lower_counted(lower, LOOP_UNROLL, "i", 0, each_rows * each_columns, copy->loc, &i, out);
    transpose.lane = lower_lane(lower);
    Expr *row = e_rem(arena, i, each_rows), *column = e_over(arena, i, each_rows);
    if (by_rows) row = e_add(arena, e_times(arena, row, warps), warp);
    else column = e_add(arena, e_times(arena, column, warps), warp);
    transpose.d0 = e_times(arena, row, TRANSPOSE_ROWS);
    Expr *first = lower_expr(lower, transpose.to->dims[transpose.to->count - 2].start);
    transpose.k0 = e_times(arena, column, TRANSPOSE_K);
    if (!by_rows && columns % warps) {
        Expr *exists = e_lt(arena, column, e_int(arena, columns));
        body = block_if(arena, body, exists);
        facts_assume(lower->facts, exists, true);
    }
    enum { BYTES = 4 * 4 };   // of four registers
    Type type = transpose.to->buf->type;
    Buf *loaded = block_local(arena, body, "loaded", type, BYTES, copy->loc);
    Buf *deinterleaved = block_local(arena, body, "deinterleaved", type, BYTES, copy->loc);
    Buf *from = block_local(arena, body, "from", TYPE_U32, BYTES / 4, copy->loc);
    Buf *to = block_local(arena, body, "to", TYPE_U32, BYTES / 4, copy->loc);
    Expr *half = e_times(arena, lane_bits(&transpose, 4, 1), 16);
    push_move(&transpose, OP_LDMATRIX, transpose.from, loaded_row(&transpose), e_add(arena, transpose.d0, half), loaded,
              body);
    push_recast(&transpose, from, loaded, BYTES / 4, body);
    push_deinterleaved(&transpose, from, to, e_ge(arena, transpose.lane, e_int(arena, lanes / 2)), body);
    push_recast(&transpose, deinterleaved, to, BYTES, body);
    push_move(&transpose, OP_STMATRIX, transpose.to, e_add(arena, first, stored_row(&transpose)), transpose.k0,
              deinterleaved, body);
    facts_release(lower->facts, mark);
}
