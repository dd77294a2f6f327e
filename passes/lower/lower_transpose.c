// copy(S.T, T) of bytes in shared memory, by the matrix instructions.
//
// They move matrices of 8 rows of 16 bytes, and transpose elements of 16 bits: here pairs of bytes (d, d + 1) of a row k of S.
// What is left is to part the pairs. A lane gets of each matrix the pair number l / 4 of its rows 2 (l % 4) and 2 (l % 4) + 1, so
// of two matrices four rows of k; bytes 0 and 2 of each are one row d of T, bytes 1 and 3 the next one. Four bytes are what a lane
// gives to a row of a matrix that it stores: those at 4 (l % 4) of a row's 16.
//
//     S    k0 .. k0 + 15, 32 columns d             T    32 rows d, k0 .. k0 + 15
//
//     ldmatrix.trans, 4 matrices                            lane l, register r = 2 u + f
//         matrix 2 u + f = rows k(., f), columns 16 u ..    (k(2q, f), d) (k(2q, f), d + 1) (k(2q + 1, f), d) (k(2q + 1, f), d + 1)
//     registers 2 u and 2 u + 1 are parted                  q = l % 4, d = d0 + 16 u + 2 (l / 4)
//     stmatrix, 4 matrices
//         matrix 2 u + e = rows d0 + 16 u + 2 i + e         (k(2q, 0), d + e) (k(2q + 1, 0), ..) (k(2q, 1), ..) (k(2q + 1, 1), ..)
//
// Rows 2 i and 2 (i + 4) lie in the same banks: swizzles repeat after 8 rows. So for i >= 4 the two rows of a pair change places,
// between matrices 2 u and 2 u + 1.
//
// k(r, f) is the k whose place among the 16 bytes of a row of T is 4 (r / 2) + r % 2 + 2 f: T may have k in any order of bits
// (wgmma_pairs), the lanes give other rows of S then. (PTX ISA, "ldmatrix", "stmatrix".)
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"
#include "passes/select/tma.h"

typedef struct Turn {
    Lower *lower;
    Arena *arena;
    const Region *from, *to;
    Expr *lane;
    Expr *k0, *d0;   // of the unit
} Turn;

// The column of a row of T that lies at this place of 16.
static int64_t turned_key(const Layout *layout, int64_t place) {
    for (int64_t k = 0; k < TURNED_K && layout; k++) {
        int64_t zero[2] = {0, 0}, at[2] = {0, k};
        if (layout_linear(layout, at) - layout_linear(layout, zero) == place) return k;
    }
    return place;
}

static Expr *plus(Turn *turn, Expr *a, Expr *b) {
    return e_add(turn->arena, a, b);
}

static Expr *times(Turn *turn, Expr *a, int64_t factor) {
    return e_mul(turn->arena, a, e_int(turn->arena, factor));
}

static Arg place_of(Turn *turn, const Region *tile, Expr *row, Expr *column) {
    Expr *at[LAYOUT_MAX_RANK];
    int count = 0, rank;
    for (int d = 0; d < tile->buf->stage_dims; d++) at[count++] = lower_expr(turn->lower, tile->dims[d].start);
    at[count++] = row;
    at[count++] = column;
    Expr **physical = lower_indices(turn->lower, tile->buf, count, at, &rank);
    return arg_region(region_element(turn->arena, lower_physical(turn->lower, tile->buf), rank, physical));
}

static Buf *push_bytes(Turn *turn, const char *name, Block *out) {
    int64_t bytes = (int64_t)4 * 4;   // of four registers
    Buf *buf = buf_new_const(turn->arena, name, SCOPE_LOCAL, turn->to->buf->type, 1, &bytes, turn->to->loc);
    block_push(turn->arena, out, s_decl(turn->arena, buf));
    return buf;
}

static void push_move(Turn *turn, OpId op, Arg first, Arg second, bool trans, Block *out) {
    Arg args[] = {first, second, arg_value(e_int(turn->arena, 4)), arg_value(e_bool(turn->arena, trans))};
    Stmt *call = s_call(turn->arena, op, COUNT_OF(args), args);
    call->loc = turn->to->loc;
    block_push(turn->arena, out, call);
}

static Arg array_start(Turn *turn, Buf *buf) {
    Expr *zero = e_int(turn->arena, 0);
    return arg_region(region_element(turn->arena, buf, 1, &zero));
}

void turned_row(const Layout *layout, int lane, bool load, int *k, int *d) {
    static const int bits[4] = {1, 4, 8, 2};   // of the place in T, of lane bits 0 .. 3
    *k = 0;
    *d = lane / 16 * 16 + (load ? 0 : lane % 8 * 2 + (lane / 8 + lane / 4) % 2);
    for (int b = 0; b < 4 && load; b++)
        if (lane >> b & 1) *k += (int)turned_key(layout, bits[b]);
}

// Bits from .. from + count of the lane's number.
static Expr *lane_bits(Turn *turn, int from, int count) {
    Expr *high = e_div(turn->arena, turn->lane, e_int(turn->arena, (int64_t)1 << from));
    return e_mod(turn->arena, high, e_int(turn->arena, (int64_t)1 << count));
}

// turned_row as expressions. The rows k are sums of one for each bit.
static Expr *loaded_row(Turn *turn) {
    Expr *k = turn->k0;
    for (int b = 0; b < 4; b++) {
        int weight, d;
        turned_row(turn->to->buf->layout, 1 << b, true, &weight, &d);
        k = plus(turn, k, times(turn, lane_bits(turn, b, 1), weight));
    }
    return k;
}

static Expr *stored_row(Turn *turn) {
    Expr *pair = plus(turn, times(turn, lane_bits(turn, 4, 1), 16), times(turn, lane_bits(turn, 0, 3), 2));
    Expr *within = e_binary(turn->arena, BIN_XOR, lane_bits(turn, 3, 1), lane_bits(turn, 2, 1));
    return plus(turn, turn->d0, plus(turn, pair, within));
}

static void push_load(Turn *turn, Buf *bytes, Block *out) {
    Expr *d = plus(turn, turn->d0, times(turn, lane_bits(turn, 4, 1), 16));
    push_move(turn, OP_LDMATRIX, array_start(turn, bytes), place_of(turn, turn->from, loaded_row(turn), d), true, out);
}

static void push_store(Turn *turn, Buf *bytes, Block *out) {
    Arg to = place_of(turn, turn->to, stored_row(turn), turn->k0);
    push_move(turn, OP_STMATRIX, to, array_start(turn, bytes), false, out);
}

// Byte 4 (2 u + e) + 2 f + p of what is stored is byte 4 (2 u + f) + 2 p + e of what was loaded; `other`: with 1 - e.
static void push_parted(Turn *turn, Buf *loaded, Buf *parted, int other, Block *out) {
    Arena *arena = turn->arena;
    for (int b = 0; b < 16; b++) {
        int p = b % 2, f = b / 2 % 2, e = b / 4 % 2 ^ other, u = b / 8;
        Expr *value = e_load1(arena, loaded, e_int(arena, 4 * (2 * u + f) + 2 * p + e));
        block_push(arena, out, s_store1(arena, parted, e_int(arena, b), value));
    }
}

// Warps divide the rows where they can, else the columns, so that the places of a warp's rounds differ by constants.
void lower_turned(Lower *lower, const Stmt *copy, Block *out) {
    Arena *arena = lower->arena;
    Turn turn = {.lower = lower, .arena = arena, .from = copy->call.args[0].region, .to = copy->call.args[1].region};
    int64_t rows = region_extent(turn.to, 0) / TURNED_ROWS, columns = region_extent(turn.to, 1) / TURNED_K;
    int64_t lanes = lower->target->warp_lanes, warps = lower->threads / lanes;
    bool by_rows = rows % warps == 0;
    int64_t each_rows = by_rows ? rows / warps : rows, each_columns = by_rows ? columns : (columns + warps - 1) / warps;
    Expr *t = lower_thread(lower), *warp = e_div(arena, t, e_int(arena, lanes));
    Var *i = var_new(arena, "i", VAR_ITER, TYPE_I64, copy->loc);
    Stmt *each = s_for(arena, LOOP_UNROLL, i, e_int(arena, 0), e_int(arena, each_rows * each_columns));
    each->loc = copy->loc;
    int mark = facts_mark(lower->facts);
    facts_iter(lower->facts, &each->loop.iters[0]);
    turn.lane = e_mod(arena, t, e_int(arena, lanes));
    Expr *row = e_mod(arena, e_var(arena, i), e_int(arena, each_rows));
    Expr *column = e_div(arena, e_var(arena, i), e_int(arena, each_rows));
    if (by_rows) row = plus(&turn, times(&turn, row, warps), warp);
    else column = plus(&turn, times(&turn, column, warps), warp);
    turn.d0 = times(&turn, row, TURNED_ROWS);
    turn.k0 = times(&turn, column, TURNED_K);
    Block *body = &each->loop.body;
    if (!by_rows && columns % warps) {
        Stmt *some = s_if(arena, e_lt(arena, column, e_int(arena, columns)));
        block_push(arena, body, some);
        body = &some->if_.then;
        facts_assume(lower->facts, some->if_.condition, true);
    }
    Buf *loaded = push_bytes(&turn, "loaded", body), *parted = push_bytes(&turn, "parted", body);
    push_load(&turn, loaded, body);
    Stmt *which = s_if(arena, e_lt(arena, turn.lane, e_int(arena, lanes / 2)));
    push_parted(&turn, loaded, parted, 0, &which->if_.then);
    push_parted(&turn, loaded, parted, 1, &which->if_.otherwise);
    block_push(arena, body, which);
    push_store(&turn, parted, body);
    facts_release(lower->facts, mark);
    block_push(arena, out, each);
}
