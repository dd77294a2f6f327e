#include "passes/select/tma.h"
#include "ir/build.h"
#include "passes/analysis/util.h"
#include "passes/select/tma_reduce.h"
#include <string.h>

// ---- panels ----

// Rows and columns of a tile; false: *why.
static bool tile_shape(const Buf *shared, int64_t *rows, int64_t *columns, const char **why) {
    *rows = 1, *columns = buf_extent(shared, shared->rank - 1);
    if (shared->rank - shared->stage_dims > tma_facts.max_rank)
        return *why = "a tile has more dims than TMA copies", false;
    for (int d = shared->stage_dims; d < shared->rank - 1; d++) {
        int64_t extent = buf_extent(shared, d);
        if (extent > tma_facts.max_box) return *why = "a tile has more rows than a box of TMA may have", false;
        if (extent < 1) return *why = "a tile needs constant extents", false;
        *rows *= extent;
    }
    return *columns >= 1 || (*why = "a tile needs constant extents", false);
}

// As it lies; where it has slots, each has to start where a box may.
static bool plain_panel(const Buf *shared, int64_t rows, int64_t columns, TmaPanels *out, const char **why) {
    int64_t bytes = columns * type_bits(shared->type) / 8;
    *out = (TmaPanels){rows, columns, 1, 0};
    if (columns > tma_facts.max_box) return *why = "a tile's rows are longer than a box of TMA may be", false;
    if (bytes % tma_facts.unit_bytes) return *why = "the rows of a tile must be a multiple of 16 bytes", false;
    return rows * bytes % tma_facts.shared_align == 0 ||
           (*why = "the size of a tile must be a multiple of 128 bytes", false);
}

static bool panels_in(const Buf *shared, int span, TmaPanels *out, const char **why) {
    int64_t rows, columns, bits = type_bits(shared->type);
    if (!tile_shape(shared, &rows, &columns, why)) return false;
    if (span == 0) return plain_panel(shared, rows, columns, out, why);
    if (shared->rank - shared->stage_dims == 1) return *why = "a vector has no rows to swizzle", false;
    if (rows % tma_facts.swizzle_rows) return *why = "the number of rows of a tile must be a multiple of 8", false;
    if (columns * bits / 8 % span) return *why = "the rows of a tile must be a multiple of 32 bytes", false;
    *out = (TmaPanels){rows, span * 8 / bits, columns * bits / 8 / span, span};
    return true;
}

static LayoutSwizzle swizzle_of(int span) {
    enum { SHIFT = 3 };   // from the bits of a row's number to those of the place in it
    int unit = tma_facts.unit_bytes;
    if (span == 0) return (LayoutSwizzle){0};
    return (LayoutSwizzle){__builtin_ctz((unsigned)(span / unit)), __builtin_ctz((unsigned)unit), SHIFT};
}

// Whether steps along an input are, in elements from the buffer's start, `stride` each up to `extent`, then `far` each
// up to `times`.
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
    int rank = shared->rank - shared->stage_dims;
    int64_t stride = panels->columns;
    LayoutSwizzle swizzle = swizzle_of(panels->swizzle);
    if (layout->rank_in != rank || memcmp(&layout->swizzle, &swizzle, sizeof swizzle) != 0) return false;
    for (int d = rank - 2; d >= 0; d--) {
        int64_t extent = buf_extent(shared, shared->stage_dims + d);
        if (!steps_are(layout, d, extent, stride, 1, 0)) return false;
        stride *= extent;
    }
    return steps_are(layout, rank - 1, panels->columns, 1, panels->count, stride);
}

// The widest span that the tile's shape has; of a tile that has a layout, that of the layout. Why there is none: rows
// of whole spans are lacking what spans ask, others what a tile asks that lies as it does.
bool tma_panels(const Buf *shared, TmaPanels *out, const char **why) {
    bool fits = false;
    const char *reason = NULL, *of_span = NULL;
    for (int i = 0; i <= TMA_SPANS; i++) {
        if (!panels_in(shared, i < TMA_SPANS ? tma_facts.spans[i] : 0, out, i < TMA_SPANS ? &of_span : &reason))
            continue;
        if (!shared->layout || lies_in(shared->layout, shared, out)) return true;
        fits = true;
    }
    int64_t bytes = buf_extent(shared, shared->rank - 1) * type_bits(shared->type) / 8;
    bool spans = shared->rank - shared->stage_dims > 1 && bytes % tma_facts.spans[TMA_SPANS - 1] == 0;
    *why = fits ? "TMA cannot write the layout of a tile" : spans ? of_span : reason;
    return false;
}

bool tma_matrix_panels(const Buf *shared, TmaPanels *out, const char **why) {
    if (shared->rank - shared->stage_dims != 2) return *why = "a tile must have two dims", false;
    if (tma_panels(shared, out, why) && out->swizzle) return true;
    for (int i = 0; i < TMA_SPANS; i++)   // (its rows may have another order)
        if (panels_in(shared, tma_facts.spans[i], out, why)) return true;
    return false;
}

// Rows of a panel in row-major order of their dims: [panel, element]. One digit for each dim, so that 8 rows, of which
// a period of the swizzle is, may be of any of them.
static const Layout *boxes_layout(Arena *arena, const Buf *shared, const TmaPanels *panels) {
    int rank = shared->rank - shared->stage_dims;
    Layout *layout = layout_new(arena, rank, 2);
    int64_t stride = panels->columns;
    for (int d = rank - 2; d >= 0; d--) {
        int64_t extent = buf_extent(shared, shared->stage_dims + d);
        layout_add(layout, d, extent, stride, 1);
        stride *= extent;
    }
    layout_add(layout, rank - 1, panels->columns, 1, 1);
    layout_add(layout, rank - 1, panels->count, 1, 0);
    return layout_with_swizzle(arena, layout_finish(layout), swizzle_of(panels->swizzle), type_bits(shared->type));
}

static const Layout *layout_of(Arena *arena, const Buf *shared, const TmaPanels *panels) {
    int64_t shape[TENSOR_MAP_RANK];
    const char *why;
    int rank = shared->rank - shared->stage_dims;
    for (int d = 0; d < rank; d++) shape[d] = buf_extent(shared, shared->stage_dims + d);
    if (panels->swizzle == 0) return layout_row_major(arena, rank, shape);
    if (rank > 2) return boxes_layout(arena, shared, panels);
    return layout_bank_swizzle(arena, panels->rows, panels->columns * panels->count, type_bits(shared->type),
                               panels->swizzle / tma_facts.unit_bytes, &why);
}

const Layout *tma_layout(Arena *arena, const Buf *shared) {
    TmaPanels panels;
    const char *why;
    return tma_panels(shared, &panels, &why) ? layout_of(arena, shared, &panels) : NULL;
}

const Layout *tma_layout_ordered(Arena *arena, const Buf *shared, const char *order) {
    const char *why;
    TmaPanels panels;
    if (!tma_matrix_panels(shared, &panels, &why)) return NULL;
    const Layout *plain = layout_of(arena, shared, &panels), *digits = layout_parse(arena, order, 0, &why);
    Layout *layout = layout_new(arena, plain->rank_in, plain->rank_out);
    const LayoutInput *rows = &plain->in[0], *columns = &plain->in[1], *within = &digits->in[0];
    int64_t period = layout_extent_in(digits, 0), inner = plain->rank_out - 1;
    for (int i = 0; i < rows->count; i++)
        layout_add(layout, 0, rows->modes[i].extent, rows->modes[i].stride, rows->modes[i].out);
    for (int i = 0; i < within->count; i++)
        layout_add(layout, 1, within->modes[i].extent, within->modes[i].stride, (int)inner);
    layout_add(layout, 1, columns->modes[0].extent / period, period, (int)inner);   // of a panel
    for (int i = 1; i < columns->count; i++)
        layout_add(layout, 1, columns->modes[i].extent, columns->modes[i].stride, columns->modes[i].out);
    layout->swizzle = plain->swizzle;
    layout->element_bits = plain->element_bits;
    return layout_finish(layout);
}

// ---- TMA ----

// A box ends where its tile does, or its tensor.
static bool ends_as_box(const Region *region, int d) {
    const RegionDim *dim = &region->dims[d];
    if (!dim->extent || expr_is_int(dim->extent, dim->tile)) return true;
    return expr_is_int(dim->start, 0) && expr_equal(dim->extent, region->buf->shape[d]);
}

// Whether the region's tile is a box of its tensor: `dims` dims of known extents, the last one the tensor's; at the
// others it is at one index, wherever they stand.
static bool is_tile(const Region *region, int dims, const char **why) {
    int rank = region->count;
    if (region->transposed) return *why = "TMA does not transpose", false;
    if (region_rank(region) != dims || rank > tma_facts.max_rank)
        return *why = "TMA copies tiles of tensors of up to 5 dims", false;
    for (int d = 0; d < rank; d++)
        if (!ends_as_box(region, d)) return *why = "TMA copies tiles of constant extents", false;
    return region->dims[rank - 1].extent || (*why = "TMA copies tiles along the last dim of a tensor", false);
}

static bool moves_tile(const Target *target, const Region *from, const Region *to, const char **why) {
    const Buf *tensor = from->buf, *shared = to->buf;
    TmaPanels panels;
    if (!target_has(target, FEATURE_TMA)) return *why = "the target has no TMA", false;
    if (tensor->scope != SCOPE_GLOBAL || shared->scope != SCOPE_SHARED || !tensor->is_param)
        return *why = "TMA copies between parameters and shared memory", false;
    if (tensor->type != shared->type) return *why = "TMA does not convert", false;
    if (tensor->strides && !expr_is_int(tensor->strides[tensor->rank - 1], 1))
        return *why = "TMA needs a contiguous last dim", false;
    if (to->transposed) return *why = "TMA does not transpose", false;
    if (!is_tile(from, shared->rank - shared->stage_dims, why)) return false;
    if (to->count != shared->rank) return *why = "TMA moves whole buffers here", false;
    for (int d = shared->stage_dims; d < shared->rank; d++)
        if (!to->dims[d].extent || !expr_is_int(to->dims[d].start, 0) ||
            !expr_equal(to->dims[d].extent, shared->shape[d]))
            return *why = "TMA moves whole buffers here", false;
    return tma_panels(shared, &panels, why);
}

bool tma_serves(const Target *target, const Stmt *copy, const char **why) {
    return moves_tile(target, copy->call.args[0].region, copy->call.args[1].region, why);
}

bool tma_takes(const Target *target, const Stmt *copy, const char **why) {
    return moves_tile(target, copy->call.args[1].region, copy->call.args[0].region, why);
}

// ---- tf32 ----

typedef struct TileUses {
    const Buf *tile;
    int all, rounded;   // of them copies into it and products in tf32
} TileUses;

static bool use_of_expr(Visitor *visitor, Expr *expr) {
    TileUses *uses = visitor->user;
    uses->all += expr->kind == EXPR_LOAD && expr->load.buf == uses->tile;
    return true;
}

static void use_of_region(Visitor *visitor, Region *region, const Operand *operand) {
    (void)operand;
    TileUses *uses = visitor->user;
    uses->all += region->buf == uses->tile;
}

static bool use_of_stmt(Visitor *visitor, Stmt *stmt) {
    TileUses *uses = visitor->user;
    uses->all += stmt->kind == STMT_STORE && stmt->store.buf == uses->tile;
    if (stmt->kind != STMT_CALL) return true;
    for (int i = 0; i < stmt->call.count; i++) {
        if (!call_region(stmt, i) || call_region(stmt, i)->buf != uses->tile) continue;
        bool loads = stmt->call.op == OP_COPY && i == 1 && stmt->call.args[0].region->buf->scope == SCOPE_GLOBAL;
        uses->rounded += loads || (stmt->call.op == OP_GEMM && strcmp(gemm_type(stmt, i), "tf32") == 0);
    }
    return true;
}

bool tma_rounds_to_tf32(const Func *kernel, const Stmt *copy) {
    TileUses uses = {.tile = copy->call.args[1].region->buf};
    Visitor visitor = {.expr = use_of_expr, .stmt = use_of_stmt, .region = use_of_region, .user = &uses};
    if (uses.tile->type != TYPE_F32) return false;
    visit_block(&visitor, (Block *)&kernel->body);
    return uses.all == uses.rounded;
}

// ---- stores ----

// Behind whole boxes it is a narrower one in a slot of theirs: TMA reads rows of the span, however few columns it
// stores of them.
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

bool tma_stores(const Target *target, const Stmt *copy, TmaStore *out, const char **why) {
    const Region *from = copy->call.args[0].region, *to = copy->call.args[1].region;
    const Buf *tensor = to->buf;
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_STMATRIX))
        return *why = "the target has no TMA", false;
    if (from->buf->scope != SCOPE_FRAGMENT || from->buf->rank != 2 || from->transposed || !region_is_whole(from))
        return *why = "TMA stores whole fragments of two dims", false;
    if (tensor->scope != SCOPE_GLOBAL || !tensor->is_param || tensor->mode == MODE_IN)
        return *why = "TMA stores to parameters", false;
    if (!is_tile(to, 2, why)) return false;
    if (tensor->strides && !expr_is_int(tensor->strides[tensor->rank - 1], 1))
        return *why = "TMA needs a contiguous last dim", false;
    int64_t element = type_bytes(tensor->type), m = buf_extent(from->buf, 0), n = buf_extent(from->buf, 1);
    if (element * matrix_facts.rows != matrix_facts.row_bytes)
        return *why = "TMA stores 16-bit elements, by stmatrix", false;
    if (m % WGMMA_ROWS || n % matrix_facts.rows) return *why = "TMA stores strips of 64 rows and 8 columns", false;
    *out = (TmaStore){.strips = m / WGMMA_ROWS, .rows = WGMMA_ROWS, .columns = tma_facts.spans[0] / element};
    out->chunks = n / out->columns;
    set_tail(out, n % out->columns, element);
    return true;
}

bool tma_store_aliases(const TmaStore *store, const Stmt *copy, const Buf *tile) {
    const Buf *from = copy->call.args[0].region->buf;
    TmaPanels panels;
    const char *why;
    if (tile->scope != SCOPE_SHARED || tile->rank != 2 || tile->stage_dims || store->tail ||
        !tma_matrix_panels(tile, &panels, &why))
        return false;
    for (int d = 0; d < 2; d++)
        if (buf_extent(tile, d) != buf_extent(from, d)) return false;
    return tile->type == copy->call.args[1].region->buf->type && panels.columns == store->columns;
}

// ---- wgmma ----

// The left operand from registers, which the instruction takes as it is.
static bool register_operand_serves(const Region *region, const char **why) {
    if (!region_is_whole(region) || region->transposed) return *why = "an operand must be a whole fragment", false;
    return true;
}

static bool operand_serves(const Region *region, const WgmmaInfo *info, int operand, const char **why) {
    const Buf *buf = region->buf;
    TmaPanels panels;
    bool k_major = region->transposed == (operand == 1);
    if (buf->scope == SCOPE_FRAGMENT && operand == 0) return register_operand_serves(region, why);
    if (buf->scope != SCOPE_SHARED)
        return *why = "an operand is not in shared memory: copy it to a `shared` buffer", false;
    if (!k_major && !info->can_transpose) return *why = "an operand of this type must be contiguous along k", false;
    if (!tma_matrix_panels(buf, &panels, why)) return false;
    for (int d = buf->stage_dims; d < buf->rank; d++) {   // whole panels of it may be an operand
        int64_t start, unit = d == buf->rank - 1 ? panels.columns : buf_extent(buf, d);
        if (!region->dims[d].extent || !expr_const(region->dims[d].start, &start) || start % unit != 0)
            return *why = "an operand must start at a whole swizzle panel of its tile", false;
    }
    return true;
}

bool wgmma_serves(const Target *target, const Stmt *gemm, WgmmaInfo *info, const char **why) {
    const Arg *args = gemm->call.args;
    const Region *a = args[0].region, *b = args[1].region, *acc = args[2].region;
    int64_t m = region_extent(acc, 0), n = region_extent(acc, 1), k = region_extent(a, 1);
    if (!target_has(target, FEATURE_WGMMA)) return *why = "the target has no wgmma", false;
    if (via_of(gemm) != VIA_NONE && !via_is(gemm, VIA_WGMMA)) return *why = "@via names another mechanism", false;
    if (!wgmma_find(target, gemm_type(gemm, 0), gemm_type(gemm, 1), gemm_type(gemm, 2), (int)n, info))
        return *why = "wgmma has no instruction for these types and columns", false;
    if (m % info->m || k % info->k) return *why = "m and k of the tile must be multiples of those of wgmma", false;
    if (!region_is_whole(acc)) return *why = "the accumulator must be a whole fragment", false;
    return operand_serves(a, info, 0, why) && operand_serves(b, info, 1, why);
}

// ---- the order of k ----

typedef struct Touches {
    const Buf *buf;
    bool others;   // something else than threads that go by its layout, and such products
} Touches;

static bool takes_pairs(const Stmt *gemm) {
    const Region *a = gemm->call.args[0].region, *b = gemm->call.args[1].region;
    return via_is(gemm, VIA_WGMMA) && a->buf->scope == SCOPE_FRAGMENT && b->transposed;
}

static bool find_other(Visitor *visitor, Stmt *stmt) {
    Touches *touches = visitor->user;
    if (stmt->kind == STMT_THREAD || is_addition(stmt)) touches->others |= stmt_uses_buf(stmt, touches->buf);
    if (stmt->kind != STMT_CALL) return true;
    bool is_gemm = stmt->call.op == OP_GEMM, by_tma = via_is(stmt, VIA_TMA) || via_is(stmt, VIA_TMA_STORE);
    for (int i = 0; i < stmt->call.count && (is_gemm || by_tma); i++) {
        if (!call_region(stmt, i) || call_region(stmt, i)->buf != touches->buf) continue;
        touches->others |= by_tma || i != 1 || !takes_pairs(stmt);
    }
    return true;
}

bool wgmma_pairs(Arena *arena, const Func *kernel, const Stmt *gemm, const WgmmaInfo *info) {
    const Region *b = gemm->call.args[1].region;
    if (!info->k_paired || !takes_pairs(gemm) || b->buf->lowered) return false;
    const Layout *ordered = tma_layout_ordered(arena, b->buf, info->k_paired);
    if (b->buf->layout) return ordered && layout_equal(b->buf->layout, ordered);
    Touches touches = {.buf = b->buf};
    Visitor visitor = {.stmt = find_other, .user = &touches};
    visit_block(&visitor, (Block *)&kernel->body);
    return ordered && !touches.others;
}

// ---- transposed tiles ----

static bool is_whole_tile(const Region *region) {
    const Buf *buf = region->buf;
    if (buf->scope != SCOPE_SHARED || buf->rank - buf->stage_dims != 2 || region->count != buf->rank) return false;
    for (int d = buf->stage_dims; d < buf->rank; d++)
        if (!region->dims[d].extent || !expr_is_int(region->dims[d].start, 0) ||
            !expr_equal(region->dims[d].extent, buf->shape[d]))
            return false;
    return true;
}

bool transposes_tile(const Target *target, const Stmt *stmt) {
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_COPY || !target_has(target, FEATURE_STMATRIX)) return false;
    const Region *from = stmt->call.args[0].region, *to = stmt->call.args[1].region;
    TmaPanels panels;
    const char *why;
    if (!is_whole_tile(from) || !is_whole_tile(to) || !from->transposed || to->transposed) return false;
    if (from->buf == to->buf || from->buf->type != to->buf->type || type_bits(to->buf->type) != 8) return false;
    if (!tma_matrix_panels(from->buf, &panels, &why) || !tma_matrix_panels(to->buf, &panels, &why)) return false;
    return region_extent(to, 0) % TRANSPOSE_ROWS == 0 && region_extent(to, 1) % TRANSPOSE_K == 0;
}
