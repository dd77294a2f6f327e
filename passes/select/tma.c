#include "passes/select/tma.h"
#include "ir/linear.h"
#include "passes/analysis/util.h"
#include "passes/select/tma_reduce.h"
#include <string.h>

// ---- panels ----

// Bytes of one row of a tile.
static int64_t row_bytes(const Buf *shared) {
    return buf_extent(shared, shared->rank - 1) * type_bits(shared->type) / 8;
}

// The tile without its slots, its rows in spans of a swizzle or without (0).
static const char *tile_of(const Buf *shared, int span, TmaTile *tile) {
    *tile = (TmaTile){.rank = buf_slot_rank(shared), .element_bits = type_bits(shared->type), .span = span};
    if (tile->rank > tma_facts.max_rank) return "a tile has more dims than the 5 that TMA copies";
    for (int d = 0; d < tile->rank; d++) {
        tile->extent[d] = buf_extent(shared, shared->stage_dims + d);
        if (tile->extent[d] < 1) return "a tile needs constant extents";
    }
    return NULL;
}

// Each slot must start where a box may.
static const char *plain_problem(const Buf *shared, const TmaPanels *panels) {
    if (panels->count > 1) return "a tile has more columns than the 256 of a box of TMA";
    if (row_bytes(shared) % tma_facts.unit_bytes) return "the rows of a tile must be a multiple of 16 bytes";
    bool aligned = panels->rows * row_bytes(shared) % tma_facts.shared_align == 0;
    return aligned ? NULL : "the size of a tile must be a multiple of 128 bytes";
}

static const char *swizzle_problem(const Buf *shared, const TmaPanels *panels) {
    if (buf_slot_rank(shared) == 1) return "a vector has no rows to swizzle";
    if (panels->rows % tma_facts.swizzle_rows) return "the number of rows of a tile must be a multiple of 8";
    return row_bytes(shared) % panels->swizzle ? "the rows of a tile must be a multiple of 32 bytes" : NULL;
}

enum { LEAST_ROWS = 64 };   // of a box, where a tile has several along its rows
#define TOO_MANY_ROWS "a tile has more rows than the 256 of a box of TMA"

// Of a panel: those of a box, where there is no swizzle; one of matrix operands may have more than TMA copies at a time.
static int64_t most_rows(int span) {
    return span ? INT64_MAX : (int64_t)tma_facts.max_box;
}

// Panels of one swizzle span, or without swizzle (0).
static const char *panels_in(const Buf *shared, int span, TmaPanels *out) {
    TmaTile tile;
    const char *why = tile_of(shared, span, &tile);
    if (why) return why;
    TmaBoxes boxes = tma_boxes(&tile, most_rows(span));
    int last = tile.rank - 1;
    *out = (TmaPanels){1, boxes.extent[last], boxes.count[last], span};
    for (int d = 0; d < last; d++) {
        if (boxes.count[d] > 1) return TOO_MANY_ROWS;
        out->rows *= tile.extent[d];
    }
    return span ? swizzle_problem(shared, out) : plain_problem(shared, out);
}

// The layout's offsets along an input, in elements from the buffer's start: steps of `stride` up to `extent`, then of
// `far`, `times` times.
static bool steps_are(const Layout *layout, int input, int64_t extent, int64_t stride, int64_t times, int64_t far) {
    int64_t expected = stride, done = 1;
    for (int i = 0; i < layout->in[input].count; i++) {
        const LayoutMode *mode = &layout->in[input].modes[i];
        int64_t step = mode->stride;
        for (int o = mode->out + 1; o < layout->rank_out; o++) step *= layout->out_shape[o];
        if (done == extent) expected = far;
        if (step != expected || (done < extent && done * mode->extent > extent)) return false;
        done *= mode->extent;
        expected = step * mode->extent;
    }
    return done == extent * times;
}

static bool lies_in(const Layout *layout, const Buf *shared, const TmaPanels *panels) {
    int rank = buf_slot_rank(shared);
    int64_t stride = panels->columns;
    Swizzle swizzle = swizzle_of_span(panels->swizzle);
    if (layout->rank_in != rank || memcmp(&layout->swizzle, &swizzle, sizeof swizzle) != 0) return false;
    for (int d = rank - 2; d >= 0; d--) {
        int64_t extent = buf_extent(shared, shared->stage_dims + d);
        if (!steps_are(layout, d, extent, stride, 1, 0)) return false;
        stride *= extent;
    }
    return steps_are(layout, rank - 1, panels->columns, 1, panels->count, stride);
}

// The widest span that the tile's shape allows; with a layout, the span of the layout. If there is none, the reason is
// that of the spans if the rows are whole spans, else that of the form without swizzle.
const char *tma_panels_problem(const Buf *shared, TmaPanels *out) {
    bool fits = false;
    const char *of_span = NULL, *of_plain = NULL;
    for (int i = 0; i <= TMA_SPANS; i++) {
        const char **why = i < TMA_SPANS ? &of_span : &of_plain;
        const char *problem = panels_in(shared, i < TMA_SPANS ? tma_facts.spans[i] : 0, out);
        if (problem) {
            *why = problem;
            continue;
        }
        if (!shared->layout || lies_in(shared->layout, shared, out)) return NULL;
        fits = true;
    }
    bool spans = buf_slot_rank(shared) > 1 && row_bytes(shared) % tma_facts.spans[TMA_SPANS - 1] == 0;
    return fits    ? "TMA cannot write the layout of a tile: leave the layout to the compiler"
           : spans ? of_span
                   : of_plain;
}

int64_t tma_box_rows(int64_t rows) {
    int64_t most = tma_facts.max_box;
    if (rows <= most) return rows;
    while (most >= LEAST_ROWS && rows % most) most -= tma_facts.swizzle_rows;
    return most >= LEAST_ROWS ? most : 0;
}

// The same for boxes.
const char *tma_boxes_problem(const Buf *shared, TmaPanels *out) {
    for (int d = shared->stage_dims; d < shared->rank - 1; d++) {
        int64_t rows = buf_extent(shared, d);
        if (buf_slot_rank(shared) == 2 ? !tma_box_rows(rows) : rows > (int64_t)tma_facts.max_box) return TOO_MANY_ROWS;
    }
    return tma_panels_problem(shared, out);
}

// The widest span that the tile's shape allows, whatever its layout.
static const char *widest_span(const Buf *shared, TmaPanels *out) {
    const char *why = NULL;
    for (int i = 0; i < TMA_SPANS; i++)
        if (!(why = panels_in(shared, tma_facts.spans[i], out))) return NULL;
    return why;
}

const char *tma_matrix_problem(Arena *arena, const Buf *shared, const char *order, TmaPanels *out) {
    if (buf_slot_rank(shared) != 2) return "a tile must have two dims";
    if (!tma_panels_problem(shared, out) && out->swizzle) return NULL;
    const char *why = widest_span(shared, out);
    if (why || !shared->layout) return why;
    if (order && layout_equal(shared->layout, tma_layout_ordered(arena, shared, order))) return NULL;
    return arena_printf(arena,
                        "wgmma cannot read the layout that the source gives '%s': leave the layout to the compiler, or "
                        "write k_major or mn_major",
                        shared->name);
}

static const Layout *layout_of(Arena *arena, const Buf *shared, const TmaPanels *panels) {
    TmaTile tile;
    const char *why = tile_of(shared, panels->swizzle, &tile);
    EXPECT(arena_failure(arena), !why, "%s", why);
    TmaBoxes boxes = tma_boxes(&tile, most_rows(panels->swizzle));
    return tma_tile_layout(arena, &tile, &boxes);
}

const Layout *tma_layout(Arena *arena, const Buf *shared) {
    TmaPanels panels;
    return tma_panels_problem(shared, &panels) ? NULL : layout_of(arena, shared, &panels);
}

// Adds the modes of `from` after the first `skipped`, with outputs shifted by `shift`.
static void add_modes(Layout *layout, int input, const LayoutInput *from, int skipped, int shift) {
    for (int i = skipped; i < from->count; i++)
        layout_add(layout, input, from->modes[i].extent, from->modes[i].stride, from->modes[i].out + shift);
}

const Layout *tma_layout_ordered(Arena *arena, const Buf *shared, const char *order) {
    const char *why;
    TmaPanels panels;
    if (buf_slot_rank(shared) != 2 || widest_span(shared, &panels)) return NULL;
    const Layout *plain = layout_of(arena, shared, &panels), *digits = layout_parse(arena, order, 0, &why);
    Layout *layout = layout_new(arena, plain->rank_in, plain->rank_out);
    const LayoutInput *columns = &plain->in[1];
    int64_t period = layout_extent_in(digits, 0);
    int inner = plain->rank_out - 1;
    EXPECT(arena_failure(arena), digits->rank_out == 1 && columns->modes[0].extent % period == 0,
           "an order of %lld columns in panels of %lld", (long long)period, (long long)columns->modes[0].extent);
    add_modes(layout, 0, &plain->in[0], 0, 0);
    add_modes(layout, 1, &digits->in[0], 0, inner);
    layout_add(layout, 1, columns->modes[0].extent / period, period, inner);   // of a panel
    add_modes(layout, 1, columns, 1, 0);
    layout->swizzle = plain->swizzle;
    layout->element_bits = plain->element_bits;
    return layout_finish(layout);
}

// ---- TMA ----

// The box ends where its tile ends, or at the end of its tensor.
static bool ends_as_box(const Region *region, int d) {
    const RegionDim *dim = &region->dims[d];
    if (!dim->extent || expr_is_int(dim->extent, dim->tile)) return true;
    return expr_is_int(dim->start, 0) && expr_equal(dim->extent, region->buf->shape[d]);
}

// Whether the region's tile is a box of its tensor: `dims` dims of known extents, the last one the tensor's last; all
// other dims have a single index, in any position.
static const char *box_problem(const Region *region, int dims) {
    int rank = region->count;
    if (region->transposed) return "TMA does not transpose: copy the tile as it is, and use it with `.T`";
    if (region->buf->im2col && dims != 2) return "TMA copies rows of channels of an im2col view";
    if (region->buf->im2col && tensor_map_view_problem(region->buf)) return tensor_map_view_problem(region->buf);
    if (region_rank(region) != dims) return "its tile has fewer dims than its buffer: declare a buffer for each tile";
    if (rank > tma_facts.max_rank) return "TMA copies tiles of tensors of up to 5 dims: join dims by `reshape`";
    for (int d = 0; d < rank; d++)
        if (!ends_as_box(region, d)) return "TMA copies tiles of constant extents";
    return region->dims[rank - 1].extent ? NULL : "TMA copies tiles along the last dim of a tensor";
}

const char *tma_tensor_problem(const Buf *buf) {
    const Buf *tensor = buf_viewed(buf);
    bool unit = !tensor->strides || expr_is_int(tensor->strides[tensor->rank - 1], 1);
    return unit ? NULL : "TMA needs a stride that is the constant 1: declare one so";
}

// All rows of some of the slot's panels.
static bool is_whole_panels(const Region *tile, const TmaPanels *panels) {
    int last = tile->count - 1;
    const RegionDim *columns = &tile->dims[last];
    for (int d = tile->buf->stage_dims; d < last; d++)
        if (!tile->dims[d].extent || !expr_is_int(tile->dims[d].start, 0) ||
            !expr_is_int(tile->dims[d].extent, buf_extent(tile->buf, d)))
            return false;
    int64_t extent;
    return columns->extent && expr_const(columns->extent, &extent) && extent % panels->columns == 0 &&
           multiple_of(NULL, columns->start) % panels->columns == 0;
}

// Rows and panels that begin at a swizzle pattern.
static bool is_whole_patterns(const Region *tile, const TmaPanels *panels) {
    int last = tile->count - 1;
    for (int d = tile->buf->stage_dims; d <= last; d++) {
        const RegionDim *dim = &tile->dims[d];
        int64_t unit = d == last ? panels->columns : d == last - 1 ? tma_facts.swizzle_rows : 1, extent;
        if (!dim->extent || !expr_const(dim->extent, &extent) || extent % unit) return false;
        if (multiple_of(NULL, dim->start) % unit) return false;
    }
    return panels->swizzle > 0;
}

typedef enum { MOVE_LOAD, MOVE_PIECE, MOVE_STORE } Move;

static const char *move_problem(const Target *target, const Stmt *copy, Move move) {
    bool stores = move == MOVE_STORE;
    const Region *at = stores ? copy_of(copy).dst : copy_of(copy).src,
                 *tile = stores ? copy_of(copy).src : copy_of(copy).dst;
    const Buf *tensor = at->buf, *shared = tile->buf;
    TmaPanels panels;
    if (!target_has(target, FEATURE_TMA)) return "the target has no TMA";
    if (tensor->scope != SCOPE_GLOBAL || shared->scope != SCOPE_SHARED || !buf_viewed(tensor)->is_param)
        return "TMA copies between parameters and shared memory";
    if (tensor->type != shared->type) return "TMA does not convert: copy to a tile of the tensor's type";
    const char *why = tma_tensor_problem(tensor);
    if (why) return why;
    if (tile->transposed) return "TMA does not transpose: copy the tile as it is, and use it with `.T`";
    if ((why = box_problem(at, buf_slot_rank(shared)))) return why;
    why = tma_boxes_problem(shared, &panels);
    if (!why && panels.swizzle && attr_get(copy->attrs, ATTR_UNALIGNED)) return TMA_ANYWHERE;
    bool whole = why || region_is_whole_slot(tile) || (stores && is_whole_panels(tile, &panels)) ||
                 (move == MOVE_PIECE && is_whole_patterns(tile, &panels));
    if (!whole) return "TMA moves whole buffers here: give the copy a buffer of its own";
    bool pieces = !why && buf_slot_rank(shared) == 2 && !tma_box_rows(region_extent(tile, 0));
    return pieces ? TOO_MANY_ROWS : why;
}

static const char *load_problem(const Target *target, const Stmt *copy, Move move) {
    Via via = via_of(copy);   // (select says why there are no bulk copies)
    if (via != VIA_NONE && via != VIA_TMA && via != VIA_BULK) return "@via names another mechanism";
    return move_problem(target, copy, move);
}

const char *tma_load_problem(const Target *target, const Stmt *copy) {
    return load_problem(target, copy, MOVE_LOAD);
}

const char *tma_piece_problem(const Target *target, const Stmt *copy) {
    return load_problem(target, copy, MOVE_PIECE);
}

// ---- where rows begin ----

typedef struct Start {
    const Facts *facts;
    int64_t unit;
    Expr *known;   // the terms that are known at launch, and no multiples of the unit
    ExprVec *multiples;
} Start;

static bool add_term(Start *start, Expr *e, int sign) {
    Arena *arena = facts_arena(start->facts);
    if (multiple_of(start->facts, e) % start->unit == 0) return true;
    const Expr *value = e->kind == EXPR_VAR ? facts_binding(start->facts, e->var) : NULL;
    if (value) return add_term(start, (Expr *)value, sign);
    bool minus = is_binary(e, BIN_SUB);
    if (minus || is_binary(e, BIN_ADD))
        return add_term(start, e->binary.a, sign) && add_term(start, e->binary.b, minus ? -sign : sign);
    if (expr_known_at_launch(e)) {
        start->known = sign > 0 ? e_add(arena, start->known, e) : e_sub(arena, start->known, e);
        return true;
    }
    if (!is_binary(e, BIN_MUL)) return false;
    bool first = expr_known_at_launch(e->binary.a);   // a multiple of it, whatever the other is
    if (!first && !expr_known_at_launch(e->binary.b)) return false;
    vec_push(arena, start->multiples, first ? e->binary.a : e->binary.b);
    return true;
}

int64_t tma_unit_elements(const Buf *tensor) {
    return (int64_t)tma_facts.unit_bytes * 8 / type_bits(tensor->type);
}

bool tma_start_known(const Facts *facts, const Region *tensor, ExprVec *multiples) {
    const RegionDim *last = &tensor->dims[tensor->count - 1];
    Arena *arena = facts_arena(facts);
    Start start = {facts, tma_unit_elements(tensor->buf), e_int(arena, 0), multiples};
    if (!last->extent) return true;
    if (!add_term(&start, last->start, 1)) return false;
    if (!expr_is_int(start.known, 0)) vec_push(arena, multiples, start.known);
    VEC_EACH_PTR (Expr, each, multiples)
        if (each->kind == EXPR_INT) return false;   // and no multiple
    return true;
}

bool tma_start_serves(const Func *kernel, const Facts *facts, const Region *tensor) {
    ExprVec multiples = {0};
    return tma_start_known(facts, tensor, &multiples) &&
           (multiples.count == 0 || !attr_get(kernel->attrs, ATTR_GIVEN_FACTS));
}

// TMA stores rows of a view only where they are the tensor's.
static const char *stored_view_problem(const Buf *tensor) {
    bool rows = !tensor->im2col || im2col_is_merged(tensor);
    return rows ? NULL : "TMA stores to im2col views only where each window has its tensor's extent, and one tap";
}

const char *tma_store_problem(const Target *target, const Stmt *copy) {
    const char *why = stored_view_problem(copy_of(copy).dst->buf);
    if (why) return why;
    return move_problem(target, copy, MOVE_STORE);
}

// ---- tf32 ----

// Whether the call uses the tile only as destination of copies and as operand of tf32 gemms.
static bool uses_rounded(const Stmt *call, const Buf *tile) {
    for (int i = 0; i < call->call.count; i++) {
        const Region *region = call_region(call, i);
        if (!region || region->buf != tile) continue;
        bool loads = is_global_to_shared_copy(call) && region == copy_of(call).dst;
        if (!loads && !(is_call(call, OP_GEMM) && strcmp(gemm_type(call, i), "tf32") == 0)) return false;
    }
    return true;
}

bool tma_rounds_to_tf32(const Func *kernel, const Stmt *copy) {
    const Buf *tile = copy_of(copy).dst->buf;
    if (tile->type != TYPE_F32 || block_loads(&kernel->body, tile)) return false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind == STMT_STORE && stmt->store.buf == tile) return false;
        if (stmt->kind == STMT_CALL && !uses_rounded(stmt, tile)) return false;
    }
    return true;
}

// ---- stores ----

// After the whole boxes comes a narrower one in the same slots. TMA reads rows of a full span, although it stores fewer
// columns of them.
static void set_tail(TmaStore *store, int64_t columns, int64_t element) {
    store->tail = store->tail_columns = columns;
    if (columns > 0 && store->chunks > 0) {
        store->tail_columns = store->columns;
        store->tail_swizzle = tma_facts.spans[0];
        return;
    }
    for (int i = TMA_SPANS - 1; i >= 0 && columns * element > matrix_facts.row_bytes; i--) {
        if (columns * element > tma_facts.spans[i]) continue;
        store->tail_swizzle = tma_facts.spans[i];
        store->tail_columns = tma_facts.spans[i] / element;
        return;
    }
}

static const char *vectors_problem(const Region *to) {
    if (buf_viewed(to->buf) != to->buf) return "vectors are not stored to views";
    return to->transposed ? "vectors are stored by rows of the fragment" : NULL;
}

const char *tma_epilogue_problem(const Target *target, const Stmt *copy, TmaStore *out) {
    const Region *from = copy_of(copy).src, *to = copy_of(copy).dst;
    const Buf *tensor = to->buf;
    if (!target_has(target, FEATURE_TMA)) return "the target has no TMA";
    if (via_of(copy) != VIA_NONE && !stores_staged(copy)) return "@via names another mechanism";
    if (from->buf->scope != SCOPE_FRAGMENT || from->buf->rank != 2 || !region_has_columns(from, matrix_facts.rows))
        return "TMA stores fragments of two dims, with all of their rows";
    if (tensor->scope != SCOPE_GLOBAL || !buf_viewed(tensor)->is_param || tensor->mode == MODE_IN)
        return "TMA stores to parameters";
    const char *why = stored_view_problem(tensor);
    Region box = *to;
    box.transposed = false;   // stmatrix transposes
    if (!why) why = box_problem(&box, 2);
    if (why || (why = tma_tensor_problem(tensor))) return why;
    if (attr_get(copy->attrs, ATTR_UNALIGNED)) return TMA_ANYWHERE;
    if (via_is(copy, VIA_VECTOR_STORE) && (why = vectors_problem(to))) return why;
    int64_t element = type_bytes(tensor->type), m = buf_extent(from->buf, 0), n = region_extent(from, 1);
    if (element * matrix_facts.rows != matrix_facts.row_bytes) return "TMA stores 16-bit elements, by stmatrix";
    if (m % WGMMA_ROWS || n % matrix_facts.rows) return "TMA stores strips of 64 rows and 8 columns";
    *out = (TmaStore){.strips = m / WGMMA_ROWS,
                      .rows = WGMMA_ROWS,
                      .columns = tma_facts.spans[0] / element,
                      .transposed = to->transposed};
    if (to->transposed && n < out->columns) out->columns = n;   // rows of the tensor, of a span each
    out->chunks = n / out->columns;
    out->slot[to->transposed] = out->rows, out->slot[!to->transposed] = out->columns;
    set_tail(out, n % out->columns, element);
    return NULL;
}

Via rows_store(const Target *target, const Stmt *copy) {
    TmaStore store;
    return vectors_problem(copy_of(copy).dst) || tma_epilogue_problem(target, copy, &store) ? VIA_PLAIN
                                                                                            : VIA_VECTOR_STORE;
}

bool tma_store_aliases(Arena *arena, const TmaStore *store, const Stmt *copy, const Buf *tile) {
    const Buf *from = copy_of(copy).src->buf;
    TmaPanels panels;
    if (tile->scope != SCOPE_SHARED || tile->rank != 2 || tile->stage_dims || store->tail || store->transposed)
        return false;
    if (tma_matrix_problem(arena, tile, NULL, &panels)) return false;
    for (int d = 0; d < 2; d++)
        if (buf_extent(tile, d) != buf_extent(from, d) || !region_is_whole(copy_of(copy).src)) return false;
    return tile->type == copy_of(copy).dst->buf->type && panels.columns == store->columns;
}

bool tma_store_share(const Stmt *copy, int64_t warpgroups, TmaStore *store) {
    const Region *from = copy_of(copy).src;
    int64_t columns = region_extent(from, 1) / warpgroups;
    if (warpgroups == 1) return true;
    if (!region_is_whole(from) || columns * warpgroups != region_extent(from, 1)) return false;
    if (columns % matrix_facts.rows || columns < store->columns) return false;
    store->chunks = columns / store->columns;
    set_tail(store, columns % store->columns, type_bytes(copy_of(copy).dst->buf->type));
    return true;
}

void push_store_wait(Arena *arena, Span loc, Block *out) {
    BLOCK_CALL(arena, out, loc, OP_BULK_WAIT, arg_int(arena, 0), arg_name("read"));
}

static bool is_tma_store(const Stmt *stmt, void *user) {
    (void)user;
    return via_is(stmt, VIA_TMA_STORE);
}

void push_last_store_wait(Arena *arena, Span loc, Block *body) {
    if (block_any(body, is_tma_store, NULL)) push_store_wait(arena, loc, body);
}

// ---- wgmma ----

const char *gemm_extent_problem(Arena *arena, const Stmt *gemm, int m, int n, int k) {
    GemmOp op = gemm_of(gemm);
    const struct {
        const char *name;
        int64_t extent;
        int unit;
    } dims[] = {
        {"m", region_extent(op.acc, 0), m}, {"n", region_extent(op.acc, 1), n}, {"k", region_extent(op.a, 1), k}};
    for (int i = 0; i < (int)COUNT_OF(dims); i++)
        if (dims[i].unit && dims[i].extent % dims[i].unit)
            return arena_printf(arena,
                                "its tile has %s = %lld, and must have a multiple of %d: change the tile's extent",
                                dims[i].name, (long long)dims[i].extent, dims[i].unit);
    return NULL;
}

// The order that k of the right operand may also have.
static const char *order_of_k(const Stmt *gemm, const WgmmaInfo *info) {
    GemmOp op = gemm_of(gemm);
    return op.a->buf->scope == SCOPE_FRAGMENT && op.b->transposed ? info->k_paired : NULL;
}

const char *wgmma_panels_problem(Arena *arena, const Stmt *gemm, const WgmmaInfo *info, bool right, TmaPanels *out) {
    GemmOp op = gemm_of(gemm);
    const Buf *tile = right ? op.b->buf : op.a->buf;
    return tma_matrix_problem(arena, tile, right ? order_of_k(gemm, info) : NULL, out);
}

// A part of one panel along k, of whole steps: a matrix descriptor may start there, since the swizzle is of addresses.
static bool is_inside_panel(const RegionDim *dim, const WgmmaInfo *info, int64_t columns) {
    int64_t start, extent;
    if (!dim->extent || !expr_const(dim->start, &start) || !expr_const(dim->extent, &extent)) return false;
    return extent > 0 && extent % info->k == 0 && columns % extent == 0 && start % extent == 0;
}

static const char *operand_problem(Arena *arena, const Stmt *gemm, const WgmmaInfo *info, bool right) {
    const Region *region = right ? gemm_of(gemm).b : gemm_of(gemm).a;
    const Buf *buf = region->buf;
    TmaPanels panels;
    if (buf->scope == SCOPE_FRAGMENT && !right)   // in registers: the instruction reads it directly
        return region_has_columns(region, info->k)
                   ? NULL
                   : "an operand in registers must have all rows, and begin at a step of k";
    if (buf->scope != SCOPE_SHARED) return "an operand is not in shared memory: copy it to a `shared` buffer";
    bool k_major = region->transposed == right;
    if (!k_major && !info->can_transpose && type_bits(buf->type) != 8)   // (H200: 160 TFLOP/s in both ways)
        return arena_printf(
            arena,
            "wgmma takes %s along k alone, and to transpose '%s' costs what it gains: mma.sync takes it as it is",
            gemm_type(gemm, right), buf->name);
    if (!k_major && !info->can_transpose)
        return arena_printf(
            arena,
            "'%s' of %s must be contiguous along k: copy it transposed, as in copy(%s.T, t), and multiply "
            "t%s",
            buf->name, gemm_type(gemm, right), buf->name, right ? ".T" : "");
    const char *why = wgmma_panels_problem(arena, gemm, info, right, &panels);
    if (why) return why;
    for (int d = buf->stage_dims; d < buf->rank; d++) {   // an operand may start at any swizzle pattern of it
        int64_t unit = d == buf->rank - 1 ? panels.columns : tma_facts.swizzle_rows;
        if (k_major && d == buf->rank - 1 && is_inside_panel(&region->dims[d], info, unit)) continue;
        if (!region->dims[d].extent || multiple_of(NULL, region->dims[d].start) % unit != 0)
            return "an operand must start at a swizzle pattern of its tile: at a multiple of 8 rows, at a whole panel";
    }
    return NULL;
}

static const char *types_problem(Arena *arena, const Stmt *gemm) {
    GemmOp op = gemm_of(gemm);
    Type a = op.a->buf->type, b = op.b->buf->type, narrow = type_bits(a) < type_bits(b) ? a : b;
    if (a == b && a == TYPE_F32) return "wgmma multiplies f32 by rounding it: allow that by `precision = tf32`";
    if (a == b)
        return arena_printf(arena, "wgmma has no instruction for %s with an accumulator of %s", type_text(a),
                            type_text(op.acc->buf->type));
    return arena_printf(arena,
                        "wgmma has no instruction for %s with %s: `copy` the tile of %s to a fragment of %s, and "
                        "multiply that",
                        type_text(a), type_text(b), type_text(narrow), type_text(narrow == a ? b : a));
}

// A strip that is too wide for one warpgroup's registers is for two, with half of its columns each (wgmma_split).
static bool strip_wgmma(const Target *target, const Stmt *gemm, int64_t m, int64_t n, WgmmaInfo *info) {
    WgmmaInfo half;
    if (gemm_wgmma(target, gemm, n, info)) return true;
    if (m != WGMMA_ROWS || n <= WGMMA_COLUMNS || n % 2 || !gemm_wgmma(target, gemm, n / 2, &half)) return false;
    *info = half;
    return true;
}

const char *wgmma_problem(Arena *arena, const Target *target, const Stmt *gemm, WgmmaInfo *info) {
    GemmOp op = gemm_of(gemm);
    int64_t m = region_extent(op.acc, 0), n = region_extent(op.acc, 1), k = region_extent(op.a, 1);
    *info = (WgmmaInfo){0};
    if (!target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (via_of(gemm) != VIA_NONE && !via_is(gemm, VIA_WGMMA)) return "@via names another mechanism";
    if (!strip_wgmma(target, gemm, m, n, info))
        return info->n ? "wgmma has no instruction for so many columns" : types_problem(arena, gemm);
    if (m % info->m || k % info->k) return "m and k of the tile must be multiples of those of wgmma";
    if (op.acc->buf->layout && via_of(gemm) == VIA_NONE)
        return "the source gives its accumulator a layout: leave it out";
    if (!region_is_whole(op.acc)) return "the accumulator must be a whole fragment: declare one for each product";
    const char *why = operand_problem(arena, gemm, info, false);
    return why ? why : operand_problem(arena, gemm, info, true);
}

bool wgmma_computes(Arena *arena, const Target *target, const Stmt *stmt) {
    WgmmaInfo info;
    return is_call(stmt, OP_GEMM) && !wgmma_problem(arena, target, stmt, &info);
}

const char *wgmma_reason(Arena *arena, const Target *target, const Stmt *gemm, WgmmaInfo *info) {
    int64_t n = region_extent(gemm_of(gemm).acc, 1);
    const char *why = wgmma_problem(arena, target, gemm, info);
    const char *extent = why ? gemm_extent_problem(arena, gemm, info->m, info->n, info->k) : NULL;
    int most = 2 * (target->registers_thread - WGMMA_ROOM) / matrix_facts.rows * matrix_facts.rows;
    if (why && info->n && !extent && n > most)
        return arena_printf(arena, "its tile has n = %lld, and must have at most %d: change the tile's extent",
                            (long long)n, most);
    return extent ? extent : why;
}

// Columns of the right operand begin at a swizzle pattern for each warpgroup, or within one.
static bool columns_split(Arena *arena, const Stmt *gemm, const WgmmaInfo *info, int64_t columns) {
    GemmOp op = gemm_of(gemm);
    TmaPanels panels;
    if (op.a->buf->scope != SCOPE_SHARED || wgmma_panels_problem(arena, gemm, info, true, &panels)) return false;
    if (op.b->transposed) return columns % tma_facts.swizzle_rows == 0;
    int least = tma_facts.spans[TMA_SPANS - 1];
    bool within = panels.columns % columns == 0 && columns * type_bits(op.b->buf->type) / 8 % least == 0;
    return within || columns % panels.columns == 0;
}

WgmmaSplit strips_split(int64_t strips, int64_t warpgroups) {
    WgmmaSplit split = {.m = warpgroups};
    while (strips % split.m || warpgroups % split.m) split.m--;
    split.n = warpgroups / split.m;
    return split;
}

bool wgmma_split(Arena *arena, const Target *target, const Stmt *gemm, int64_t warpgroups, WgmmaInfo *info,
                 WgmmaSplit *out) {
    GemmOp op = gemm_of(gemm);
    int64_t columns = region_extent(op.acc, 1);
    *out = strips_split(region_extent(op.acc, 0) / info->m, warpgroups);
    if (out->n == 1) return info->n == columns;
    WgmmaInfo whole = *info;
    return columns % out->n == 0 && columns_split(arena, gemm, &whole, columns / out->n) &&
           gemm_wgmma(target, gemm, columns / out->n, info);
}

// ---- the order of k ----

static bool takes_pairs(const Stmt *gemm) {
    GemmOp op = gemm_of(gemm);
    return via_is(gemm, VIA_WGMMA) && op.a->buf->scope == SCOPE_FRAGMENT && op.b->transposed;
}

// The tile has a use other than thread accesses by its layout and MMAs with paired k.
static bool has_other_use(const Func *kernel, const Buf *tile) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        if ((stmt->kind == STMT_THREAD || is_addition(stmt)) && stmt_uses_buf(stmt, tile)) return true;
        bool by_tma = via_is(stmt, VIA_TMA) || stores_staged(stmt);
        if (stmt->kind != STMT_CALL || (!by_tma && !is_call(stmt, OP_GEMM))) continue;
        for (int i = 0; i < stmt->call.count; i++) {
            const Region *region = call_region(stmt, i);
            bool other = by_tma || region != gemm_of(stmt).b || !takes_pairs(stmt);
            if (region && region->buf == tile && other) return true;
        }
    }
    return false;
}

bool wgmma_pairs(Arena *arena, const Func *kernel, const Stmt *gemm, const WgmmaInfo *info) {
    const Buf *tile = gemm_of(gemm).b->buf;
    if (!info->k_paired || !takes_pairs(gemm) || tile->lowered) return false;
    const Layout *ordered = tma_layout_ordered(arena, tile, info->k_paired);
    if (!ordered) return false;
    return tile->layout ? layout_equal(tile->layout, ordered) : !has_other_use(kernel, tile);
}

// ---- transposed tiles ----

// Rows of a slot, from a block on that a warp writes.
static bool has_whole_rows(const Region *region) {
    const Buf *buf = region->buf;
    const RegionDim *rows = &region->dims[region->count - 2], *columns = &region->dims[region->count - 1];
    if (buf_slot_rank(buf) != 2 || region_rank(region) != 2) return false;
    for (int d = 0; d < buf->stage_dims; d++)
        if (region->dims[d].extent) return false;
    bool known = rows->extent && expr_is_int(rows->extent, rows->tile);
    return known && multiple_of(NULL, rows->start) % TRANSPOSE_ROWS == 0 && expr_is_int(columns->start, 0) &&
           columns->extent && expr_is_int(columns->extent, buf_extent(buf, buf->rank - 1));
}

bool transposes_tile(Arena *arena, const Target *target, const Stmt *stmt) {
    if (!is_copy_between(stmt, SCOPE_SHARED, SCOPE_SHARED) || !target_has(target, FEATURE_STMATRIX)) return false;
    const Region *from = copy_of(stmt).src, *to = copy_of(stmt).dst;
    TmaPanels panels;
    if (!region_is_whole_slot(from) || !has_whole_rows(to) || !from->transposed || to->transposed) return false;
    if (from->buf == to->buf || from->buf->type != to->buf->type || type_bits(to->buf->type) != 8) return false;
    if (tma_matrix_problem(arena, from->buf, NULL, &panels) || tma_matrix_problem(arena, to->buf, NULL, &panels))
        return false;
    return region_extent(to, 0) % TRANSPOSE_ROWS == 0 && region_extent(to, 1) % TRANSPOSE_K == 0;
}
