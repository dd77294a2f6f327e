// Copies between shared memory and a fragment by @via(ldmatrix) and @via(stmatrix).
//
// A matrix has 8 rows of 16 bytes; lane l holds 4 bytes of row l / 4. So it fits a fragment where these bits of its
// layout lie along a row in memory (w: elements of a word of 4 bytes):
//
//     plain         values 1 .. w / 2: steps 1 .. w / 2;  lanes 1, 2: steps w, 2 w;      rows: lanes 4, 8, 16
//     transposed    (16 bits) lanes 4, 8, 16: steps 1, 2, 4;                             rows: one value bit, lanes 1, 2
//     of bytes      lanes 4, 8, 16: steps 1, 2, 4;  a value bit: step 8;                 rows: two value bits, lanes 1, 2
//
// Whatever else the layout has makes other matrices, whose rows begin at multiples of 16 bytes: two further bits of values
// those of one instruction (x4), all others instructions of their own. Lane a gives the address of row a % 8 of matrix
// a / 8: that of the element which the layout has at the row's bits.
//
//     accumulator of mma, bf16: ((4,8),(2,2)):((2@1,1@0),(1@1,8@0))      rows are lanes 4, 8, 16; value 2 is another matrix
#include "ir/build.h"
#include "layout/distribution.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower.h"

enum { LANE_BITS = 5, ALONG_LANES = 2, ROW_BITS = 3 };

// ---- does it fit? ----

static bool lies_along(const Step *step, int fast, int64_t stride) {
    return step->extent == 2 && step->out == fast && step->stride == stride;
}

static bool starts_row(const Step *step, int fast, int64_t row) {
    return step->stride != 0 && (step->out != fast || step->stride % row == 0);
}

// Removes the value bit that lies along the row with this stride (0: the first that makes rows); -1: there is none.
static int64_t take_value(Steps *values, int fast, int64_t stride, int64_t row) {
    for (int i = 0; i < values->count; i++) {
        const Step *step = &values->items[i];
        bool fits = stride ? lies_along(step, fast, stride) : step->extent == 2 && starts_row(step, fast, row);
        if (!fits) continue;
        int64_t weight = step->weight;
        for (int j = i; j + 1 < values->count; j++) values->items[j] = values->items[j + 1];
        values->count--;
        return weight;
    }
    return -1;
}

static bool lanes_fit(const Steps *threads, int fast, int64_t word, bool trans) {
    int64_t row = word << ALONG_LANES;
    if (threads->count < LANE_BITS) return false;
    for (int i = 0; i < threads->count; i++) {
        const Step *step = &threads->items[i];
        bool lane = i < LANE_BITS, along = lane && (trans ? i >= ALONG_LANES : i < ALONG_LANES);
        int64_t stride = !along ? 0 : trans ? (int64_t)1 << (i - ALONG_LANES) : word << i;
        bool fits = along  ? lies_along(step, fast, stride)
                    : lane ? step->extent == 2 && starts_row(step, fast, row)
                           : step->stride == 0 || starts_row(step, fast, row);
        if (!fits) return false;
    }
    return true;
}

static bool keep_rests(const Steps *values, int fast, int64_t row, MatrixCopy *out) {
    for (int i = 0; i < values->count; i++) {
        if (!starts_row(&values->items[i], fast, row) || out->rest == COUNT_OF(out->rests)) return false;
        out->rests[out->rest++] = (MatrixRest){values->items[i].extent, values->items[i].weight};
    }
    return true;
}

static bool match_matrices(const Steps *threads, Steps values, int fast, int bytes, bool trans, MatrixCopy *out) {
    int64_t word = MATRIX_WORD / bytes, row = word << ALONG_LANES;
    if ((trans && word != 2) || !lanes_fit(threads, fast, word, trans)) return false;
    *out = (MatrixCopy){.trans = trans, .word = (int)word, .matrices = 1};
    for (int64_t step = 1; step < word; step *= 2) {
        int64_t weight = take_value(&values, fast, trans ? 0 : step, row);
        if (weight < 0) return false;
        out->within[log2_exact(step)] = weight;
    }
    for (int64_t weight; out->matrices < MATRIX_MOST && (weight = take_value(&values, fast, 0, row)) > 0;
         out->matrices *= 2)
        out->weight[log2_exact(out->matrices)] = weight;
    return keep_rests(&values, fast, row, out);
}

// 16 rows, of which half each is a matrix here; 32 rows by one instruction, if another value bit leads to rows.
static bool match_byte_matrices(const Steps *threads, Steps values, int fast, MatrixCopy *out) {
    int64_t word = MATRIX_WORD, row = word << ALONG_LANES, along, more;
    *out = (MatrixCopy){.trans = true, .bytes = true, .word = (int)word, .matrices = 2};
    if (!lanes_fit(threads, fast, word, true) || (along = take_value(&values, fast, row / 2, row)) < 0) return false;
    out->weight[0] = along;
    for (int b = 0; 1 << b < word; b++)
        if ((out->within[b] = take_value(&values, fast, 0, row)) < 0) return false;
    if ((more = take_value(&values, fast, 0, row)) > 0) out->weight[1] = more, out->matrices = MATRIX_MOST;
    return keep_rests(&values, fast, row, out);
}

static bool is_constant_tile(const Region *region) {
    int64_t extent;
    for (int d = 0; d < region->count; d++)
        if (region->dims[d].extent && !(expr_const(region->dims[d].extent, &extent) && extent == region->dims[d].tile))
            return false;
    return true;
}

static bool keeps_rows(const Region *region, int64_t row) {
    return is_constant_tile(region) && region_keeps_runs(region, row);
}

static bool match_any(const Steps *threads, const Steps *values, int fast, int bytes, bool whole_bytes,
                      MatrixCopy *out) {
    if (whole_bytes && bytes == 1 && match_byte_matrices(threads, *values, fast, out)) return true;
    return match_matrices(threads, *values, fast, bytes, false, out) ||
           match_matrices(threads, *values, fast, bytes, true, out);
}

// Along the rows of the tile, whatever layout it gets; or, in a tile that has a layout, wherever that puts them.
static bool match_tile(const Region *tile, const Layout *layout, int fast, bool whole_bytes, MatrixCopy *out) {
    int bytes = type_bytes(tile->buf->type);
    Steps threads = register_steps(&layout->in[TV_THREAD]), values = register_steps(&layout->in[TV_VALUE]);
    bool kept = keeps_rows(tile, matrix_facts.row_bytes / bytes);
    if (kept && match_any(&threads, &values, fast, bytes, whole_bytes, out)) return true;
    if (!steps_in_memory(tile, layout, &threads, &values)) return false;
    bool fits = match_any(&threads, &values, 0, bytes, whole_bytes, out);
    out->in_memory = fits;
    return fits;
}

bool holds_matrices(const Target *target, const Buf *fragment, bool load) {
    const Layout *layout = fragment->layout;
    if (!target_has(target, load ? FEATURE_LDMATRIX : FEATURE_STMATRIX) || !layout || layout->bits) return false;
    if (fragment->rank != 2 || (!load && tv_replicas(layout) > 1)) return false;
    for (int d = 0; d < 2; d++)
        if (layout->out_shape[d] != buf_extent(fragment, d)) return false;
    return true;
}

bool matrix_copy_of(const Target *target, const Stmt *stmt, MatrixCopy *out) {
    CopyOp copy;
    if (!match_copy(stmt, &copy) || stmt->call.is_async) return false;
    bool load = copy.dst->buf->scope == SCOPE_FRAGMENT;
    const Region *tile = load ? copy.src : copy.dst, *fragment = load ? copy.dst : copy.src;
    if (tile->buf->scope != SCOPE_SHARED || fragment->buf->scope != SCOPE_FRAGMENT) return false;
    const Layout *layout = fragment->buf->layout;
    int bytes = type_bytes(tile->buf->type);
    if (!holds_matrices(target, fragment->buf, load)) return false;
    if (tile->buf->type == TYPE_BOOL || bytes > MATRIX_WORD || region_rank(tile) != 2) return false;
    if (!region_is_whole(fragment) || fragment->transposed) return false;
    int fast = operand_dim(tile, 1);
    bool whole_bytes = load && target_has(target, FEATURE_LDMATRIX_BYTES);
    if (!match_tile(tile, layout, fast, whole_bytes, out)) return false;
    out->load = load, out->tile = tile, out->fragment = fragment;
    return true;
}

// ---- addresses ----

// The fragment's element whose place in memory lane `lane` gives, of the instruction whose values begin at `value`.
void matrix_copy_row(Arena *arena, const Facts *facts, const MatrixCopy *copy, Expr *warp, Expr *lane, Expr *value,
                     Expr **at) {
    int rows = copy->bytes ? matrix_facts.byte_rows : matrix_facts.rows, first = copy->bytes;   // bit 0 is no row's
    Expr *row = e_rem(arena, lane, rows), *matrix = e_over(arena, lane, matrix_facts.rows);
    Expr *thread = copy->trans ? e_over(arena, row, copy->word) : e_times(arena, row, 1 << ALONG_LANES);
    for (int b = 0; copy->trans && 1 << b < copy->word; b++) {
        Expr *bit = e_rem(arena, e_over(arena, row, 1 << b), 2);
        value = e_add(arena, value, e_times(arena, bit, copy->within[b]));
    }
    for (int b = first; 1 << b < copy->matrices; b++) {
        Expr *bit = e_rem(arena, e_over(arena, matrix, 1 << b), 2);
        value = e_add(arena, value, e_times(arena, bit, copy->weight[b]));
    }
    Expr *in[] = {e_add(arena, warp, thread), value};
    layout_forward(arena, facts, copy->fragment->buf->layout, in, at);
}

// ---- lowering ----

// Value number of element e of an instruction's words: within its word, then the matrix.
static Expr *value_of(Arena *arena, const MatrixCopy *copy, Expr *e) {
    Expr *value = e_int(arena, 0);
    int bits = log2_exact(copy->word);
    for (int b = 0; 1 << b < copy->word * copy->matrices; b++) {
        int64_t weight = b < bits ? copy->within[b] : copy->weight[b - bits];
        value = e_add(arena, value, e_times(arena, e_rem(arena, e_over(arena, e, 1 << b), 2), weight));
    }
    return value;
}

static void push_matrices(Lower *lower, const Stmt *stmt, const MatrixCopy *copy, Expr *first, Block *out) {
    Arena *arena = lower->arena;
    int mark = facts_mark(lower->facts), elements = copy->word * copy->matrices;
    Expr *e, *at[2];
    EXPECT(lower->context->failure, copy->word * type_bytes(copy->tile->buf->type) == MATRIX_WORD,
           "%d elements in a word of a matrix", copy->word);
    int64_t lanes = lower->target->warp_lanes, given = (int64_t)matrix_facts.rows * copy->matrices;
    EXPECT(lower->context->failure, lower->threads % lanes == 0, "matrices for %lld threads",
           (long long)lower->threads);
    Expr *warp = e_times(arena, e_over(arena, lower_thread(lower), lanes), lanes);
    Expr *lane = e_rem(arena, lower_thread(lower), given);
    matrix_copy_row(arena, lower->facts, copy, warp, lane, first, at);
    Region *tile = (Region *)copy->tile;
    Arg place = arg_region(lower_place(lower, tile->buf, tile->count, region_indices(arena, tile, at)));
    Buf *local = lower_local(lower, copy->fragment->buf);
    Buf *words = block_local(arena, out, "words", tile->buf->type, elements, stmt->loc);
    Arg registers = arg_element(arena, words, e_int(arena, 0)), count = arg_int(arena, copy->matrices),
        trans = arg_value(e_bool(arena, copy->trans));
    if (copy->bytes)
        BLOCK_CALL(arena, out, stmt->loc, OP_LDMATRIX_BYTES, registers, place, arg_int(arena, copy->matrices / 2));
    else if (copy->load) BLOCK_CALL(arena, out, stmt->loc, OP_LDMATRIX, registers, place, count, trans);
    Block *body = lower_counted(lower, LOOP_UNROLL, "e", 0, elements, stmt->loc, &e, out);
    Expr *slot = e_add(arena, first, value_of(arena, copy, e));
    if (copy->load) block_store1(arena, body, local, slot, e_cast(arena, local->type, e_load1(arena, words, e)));
    else block_store1(arena, body, words, e, e_cast(arena, words->type, e_load1(arena, local, slot)));
    if (!copy->load) BLOCK_CALL(arena, out, stmt->loc, OP_STMATRIX, place, registers, count, trans);
    facts_release(lower->facts, mark);
}

void lower_matrix_copy(Lower *lower, const Stmt *stmt, const MatrixCopy *copy, Block *out) {
    Expr *first = e_int(lower->arena, 0), *index;
    for (int i = 0; i < copy->rest; i++) {
        out = lower_counted(lower, LOOP_UNROLL, "r", 0, copy->rests[i].extent, stmt->loc, &index, out);
        first = e_add(lower->arena, first, e_times(lower->arena, index, copy->rests[i].weight));
    }
    if (!copy->rest) out = block_nested(lower->arena, out, stmt->loc);
    push_matrices(lower, stmt, copy, first, out);
}

// Each instruction moves the values that come next, as the loop makes them.
static bool is_in_order(const MatrixCopy *copy) {
    int64_t next = 1;
    for (int b = 0; 1 << b < copy->word; b++, next *= 2)
        if (copy->within[b] != next) return false;
    for (int b = 0; 1 << b < copy->matrices; b++, next *= 2)
        if (copy->weight[b] != next) return false;
    for (int i = 0; i < copy->rest; next *= copy->rests[i++].extent)
        if (copy->rests[i].weight != next) return false;
    return true;
}

bool lower_matrix_subtiles(Lower *lower, const Stmt *stmt, const MatrixCopy *copy, const Block *loops, Block *out) {
    Arena *arena = lower->arena;
    int64_t each = (int64_t)copy->word * copy->matrices, values = tv_values(copy->fragment->buf->layout);
    if (copy->load || !is_in_order(copy) || values % each) return false;
    FOR_EACH_ITEM (loop, loops) {
        const Layout *map = stmt_layout(loop);
        if (!map || !layout_equal(map, copy->fragment->buf->layout)) return false;
    }
    for (int64_t from = 0; from < values; from += each) {
        FOR_EACH_ITEM (loop, loops) {
            TileLoop tile;
            tile_loop_of(arena, loop, &tile);
            lower_loop(lower, loop, &tile, from, each, out);
        }
        push_matrices(lower, stmt, copy, e_int(arena, from), block_nested(arena, out, stmt->loc));
    }
    return true;
}
