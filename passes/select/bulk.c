#include "passes/select/bulk.h"
#include "passes/analysis/util.h"
#include "passes/select/tma.h"

// The rows of a tile in shared memory and in the tensor.
typedef struct Rows {
    const Region *tile, *at;   // at: in the tensor
    int rank;                  // of the tile, without slots
    int64_t count, columns;
} Rows;

bool by_bulk(const Stmt *stmt) {
    return via_is(stmt, VIA_BULK);
}

static Rows rows_of(const Stmt *copy) {
    Rows rows = {.tile = copy_tile(copy), .at = copy_tensor(copy)};
    const Buf *buf = rows.tile->buf;
    rows.rank = buf_slot_rank(buf);
    rows.columns = buf_extent(buf, buf->rank - 1);
    rows.count = rows.rank > 1 ? buf_extent(buf, buf->rank - 2) : 1;
    return rows;
}

// ---- legality ----

static bool is_whole_tile(const Region *tile) {
    if (tile->transposed || !region_is_whole_slot(tile)) return false;
    for (int d = 0; d < tile->buf->stage_dims; d++)
        if (tile->dims[d].extent && tile->dims[d].tile != 1) return false;
    return true;
}

// One index in the dims before those of the tile, the extents of the tile in the others.
static bool is_tile_of_tensor(const Rows *rows) {
    const Region *at = rows->at;
    const Buf *tile = rows->tile->buf;
    int outer = at->count - rows->rank;
    if (at->transposed || outer < 0) return false;
    for (int d = 0; d < at->count; d++) {
        const RegionDim *dim = &at->dims[d];
        if (d < outer && dim->extent) return false;
        if (d < outer) continue;
        if (!dim->extent || !expr_is_int(dim->extent, dim->tile)) return false;
        if (dim->tile != buf_extent(tile, tile->stage_dims + d - outer)) return false;
    }
    return true;
}

static bool is_inside(const Facts *facts, const Region *at) {
    Arena *arena = facts_arena(facts);
    for (int d = 0; d < at->count; d++) {
        Expr *start = at->dims[d].start,
             *last = e_add(arena, start, e_int(arena, at->dims[d].extent ? at->dims[d].tile - 1 : 0));
        if (!prove(facts, e_ge(arena, start, e_int(arena, 0)))) return false;
        if (!prove(facts, simplify_expr(arena, facts, e_lt(arena, last, at->buf->shape[d]))) &&
            !prove(facts, e_lt(arena, last, at->buf->shape[d])))
            return false;
    }
    return true;
}

static bool lies_in_rows(const Facts *facts, const Rows *rows) {
    const Layout *layout = rows->tile->buf->layout;
    int64_t extents[2] = {rows->rank > 1 ? rows->count : rows->columns, rows->columns};
    return !layout || layout_equal(layout, layout_row_major(facts_arena(facts), rows->rank, extents));
}

const char *bulk_problem(const Target *target, const Facts *facts, const Stmt *copy) {
    Rows rows = rows_of(copy);
    const Buf *tensor = rows.at->buf, *tile = rows.tile->buf;
    int64_t unit = tma_facts.unit_bytes, element = type_bits(tile->type) / 8;
    if (!target_has(target, FEATURE_TMA)) return "the target has no TMA";
    if (!tensor->is_param) return "TMA copies between parameters and shared memory";
    if (tensor->type != tile->type) return "TMA does not convert";
    const char *why = tma_tensor_problem(tensor);
    if (why) return why;
    if (rows.rank < 1 || rows.rank > 2) return "a tile has more than two dims";
    if (!is_whole_tile(rows.tile) || !is_tile_of_tensor(&rows)) return "bulk copies move whole tiles of the last dims";
    if (!lies_in_rows(facts, &rows)) return "its tile is not in row-major order";
    if (rows.columns * element % unit) return "the rows of a tile must be a multiple of 16 bytes";
    if (rows.count * rows.columns * element > tma_facts.max_transaction)
        return "a tile has more bytes than an mbarrier phase can count";
    if (multiple_of(facts, rows.at->dims[rows.at->count - 1].start) * element % unit)
        return "its rows must start at multiples of 16 bytes: `assume` it of the address and of the row length, such as K % 8 == 0";
    return is_inside(facts, rows.at) ? NULL : "it is not provably inside its tensor: `assume` it, such as M % 128 == 0";
}

// ---- lowering ----

// The tile's rows are contiguous in the tensor.
static bool is_one_run(const Rows *rows) {
    const Buf *tensor = rows->at->buf;
    return !tensor->strides && expr_is_int(tensor->shape[tensor->rank - 1], rows->columns);
}

static void push_row(Lower *lower, const Stmt *copy, const Rows *rows, Expr *row, int64_t elements, Block *out) {
    Arena *arena = lower->arena;
    Expr *far[LAYOUT_MAX_RANK], *near[LAYOUT_MAX_RANK];
    int rank = rows->at->count, count = rows->tile->count;
    for (int d = 0; d < rank; d++) far[d] = lower_expr(lower, rows->at->dims[d].start);
    for (int d = 0; d < count; d++) near[d] = rows->tile->dims[d].start;   // 0 within the slot: the tile is whole
    if (rows->rank > 1) {
        far[rank - 2] = simplify_expr(arena, lower->facts, e_add(arena, far[rank - 2], row));
        near[count - 2] = row;
    }
    Arg at = arg_region(region_element(arena, rows->at->buf, rank, far));
    Arg tile = arg_region(lower_element(lower, region_element(arena, rows->tile->buf, count, near)));
    Arg n = arg_int(arena, elements);
    if (is_shared_to_global_copy(copy)) {
        BLOCK_CALL(arena, out, copy->loc, OP_BULK_STORE, at, tile, n);
    } else {
        Arg bar = arg_region(lower_element(lower, copy_of(copy).bar));
        BLOCK_CALL(arena, out, copy->loc, OP_BULK_LOAD, tile, at, bar, n);
    }
}

void lower_bulk(Lower *lower, const Stmt *copy, Block *out) {
    Arena *arena = lower->arena;
    Rows rows = rows_of(copy);
    if (rows.count == 1 || is_one_run(&rows)) {
        push_row(lower, copy, &rows, e_int(arena, 0), rows.count * rows.columns, out);
    } else {
        Var *row = var_new(arena, "r", VAR_LET, TYPE_I64, copy->loc);
        Stmt *loop = s_for(arena, LOOP_SERIAL, row, e_int(arena, 0), e_int(arena, rows.count));
        loop->loc = copy->loc;
        int mark = facts_mark(lower->facts);
        facts_iter(lower->facts, &loop->loop.iters[0]);
        push_row(lower, copy, &rows, e_var(arena, row), rows.columns, &loop->loop.body);
        facts_release(lower->facts, mark);
        block_push(arena, out, loop);
    }
    if (is_shared_to_global_copy(copy)) block_call(arena, out, copy->loc, OP_BULK_COMMIT, 0, NULL);
}
