#include "passes/analysis/shared_access.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "layout/cost.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include <string.h>

enum { MAX_LANES = 64 };
enum { MAX_STEPS = 8 };   // conflicts repeat with the swizzle's period: a few steps of a thread show them all

typedef struct Gather {
    PassContext *context;
    Func *kernel;
    SharedAccessVec *out;
} Gather;

// ---- evaluating index expressions: iterators have values, everything else is taken as 0 ----

static int64_t evaluate(const Expr *expr, const TileLoop *loop, const int64_t *at);

static int64_t evaluate_binary(const Expr *expr, const TileLoop *loop, const int64_t *at) {
    int64_t a = evaluate(expr->binary.a, loop, at), b = evaluate(expr->binary.b, loop, at);
    switch (expr->binary.op) {
    case BIN_ADD: return a + b;
    case BIN_SUB: return a - b;
    case BIN_MUL: return a * b;
    case BIN_DIV: return b ? a / b : 0;
    case BIN_MOD: return b ? a % b : 0;
    case BIN_AND: return a & b;
    case BIN_OR: return a | b;
    case BIN_XOR: return a ^ b;
    case BIN_SHL: return b >= 0 && b < 62 ? a * ((int64_t)1 << b) : 0;
    case BIN_SHR: return b >= 0 && b < 63 ? a >> b : 0;
    default: return 0;
    }
}

static int64_t evaluate(const Expr *expr, const TileLoop *loop, const int64_t *at) {
    switch (expr->kind) {
    case EXPR_INT: return expr->integer;
    case EXPR_VAR:
        for (int d = 0; d < loop->rank; d++)
            if (loop->iters[d] == expr->var) return at[d];
        return 0;
    case EXPR_CAST: return type_is_int(expr->type) ? evaluate(expr->operand, loop, at) : 0;
    case EXPR_BINARY: return evaluate_binary(expr, loop, at);
    default: return 0;
    }
}

static bool find_load(Visitor *visitor, Expr *expr) {
    *(bool *)visitor->user |= expr->kind == EXPR_LOAD;
    return true;
}

static bool has_load(Expr *expr) {
    bool found = false;
    Visitor visitor = {.expr = find_load, .user = &found};
    visit_expr(&visitor, expr);
    return found;
}

// ---- gathering ----

static SharedAccess *new_access(Gather *gather, Buf *buf, Stmt *stmt, bool is_store, int vector, int steps) {
    Arena *arena = gather->context->arena;
    SharedAccess access = {
        .buf = buf, .stmt = stmt, .is_store = is_store, .vector = vector, .steps = steps, .exact = true};
    access.lanes = gather->context->target->warp_lanes;
    access.element = NEW_ARRAY(arena, int64_t, steps * access.lanes * buf->rank);
    vec_push(arena, gather->out, access);
    return &vec_last(gather->out);
}

static int64_t *lane_element(SharedAccess *access, int step, int lane) {
    return &access->element[(step * access->lanes + lane) * access->buf->rank];
}

static void gather_loop_access(Gather *gather, const TileLoop *loop, const Layout *map, const TileAccess *tile,
                               int vector) {
    int64_t values = tv_values(map);
    int groups = (int)(values / vector);
    SharedAccess *access =
        new_access(gather, tile->buf, loop->origin, tile->is_store, vector, groups < MAX_STEPS ? groups : MAX_STEPS);
    access->must_be_contiguous = loop->is_async && vector > 1;
    access->exact = !tile->conditional && !tile->condition;
    for (int d = 0; d < tile->buf->rank; d++) access->exact &= !has_load(tile->indices[d]);
    int64_t lanes = tv_threads(map) < access->lanes ? tv_threads(map) : access->lanes;
    for (int step = 0; step < access->steps; step++) {
        for (int lane = 0; lane < access->lanes; lane++) {
            int64_t in[2] = {lane, (int64_t)step * vector}, at[LAYOUT_MAX_RANK];
            int64_t *element = lane_element(access, step, lane);
            element[0] = -1;
            if (lane >= lanes) continue;
            layout_eval(map, in, at);
            bool inside = true;
            for (int d = 0; d < loop->rank; d++) inside &= at[d] < loop->extents[d];
            if (!inside) continue;
            for (int d = 0; d < tile->buf->rank; d++) element[d] = evaluate(tile->indices[d], loop, at);
        }
    }
}

static void gather_loop(Gather *gather, Stmt *stmt, const TileLoop *loop) {
    Arena *arena = gather->context->arena;
    const char *text = attr_text(stmt->attrs, ATTR_MAP), *why;
    const Layout *map = text ? layout_parse(arena, text, 0, &why) : NULL;
    TileAccessVec accesses = {0};
    if (!map) return;
    tile_accesses(arena, loop, &accesses);
    int fast = loop_fast_dim(loop, &accesses);
    int64_t vector = attr_int(stmt->attrs, ATTR_VECTOR, 1);
    for (int a = 0; a < accesses.count; a++) {
        const TileAccess *tile = &accesses.items[a];
        if (tile->buf->scope != SCOPE_SHARED) continue;
        gather_loop_access(gather, loop, map, tile, access_in_vectors(loop, &accesses, tile, fast) ? (int)vector : 1);
    }
}

static void kept_dims(const Region *region, int *kept) {
    int found = 0;
    for (int d = 0; d < region->buf->rank; d++)
        if (region->dims[d].extent) kept[found++] = d;
}

// Each lane reads its own values of the instruction.
static void gather_operand(Gather *gather, Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    const MmaInfo *info = gemm_instruction(gather->context->target, gemm);
    const char *why;
    const Layout *layout =
        layout_parse(gather->context->arena, operand == 0 ? info->a_layout : info->b_layout, 0, &why);
    int run = (int)operand_run(gemm, operand, layout), rank = region->buf->rank, kept[2];
    int steps = (int)(layout_extent_in(layout, TV_VALUE) / run);
    bool transposed = region->transposed != (operand == 1);
    SharedAccess *access = new_access(gather, region->buf, gemm, false, run, steps < MAX_STEPS ? steps : MAX_STEPS);
    kept_dims(region, kept);
    for (int step = 0; step < access->steps; step++) {
        for (int lane = 0; lane < access->lanes; lane++) {
            int64_t *element = lane_element(access, step, lane), in[2] = {lane, (int64_t)step * run}, at[2];
            layout_eval(layout, in, at);
            memset(element, 0, sizeof *element * (size_t)rank);
            element[kept[transposed ? 1 : 0]] = at[0];
            element[kept[transposed ? 0 : 1]] = at[1];
        }
    }
}

// The 8 lanes of each matrix read 8 rows of 16 bytes; all matrices of all steps look alike but for their place.
static void gather_matrix(Gather *gather, Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    MatrixLoad load = matrix_load(gemm, operand, 4);
    int rank = region->buf->rank, kept[2];
    kept_dims(region, kept);
    int64_t inner_extent = region_extent(region, operand == 0 ? 1 : 0), block = (int64_t)16 * load.pack;
    int steps = (int)(inner_extent / block);
    SharedAccess *access = new_access(gather, region->buf, gemm, false, 16 / type_bytes(region->buf->type),
                                      steps < MAX_STEPS ? steps : MAX_STEPS);
    access->must_be_contiguous = true;
    for (int step = 0; step < access->steps; step++) {
        for (int lane = 0; lane < access->lanes; lane++) {
            int outer, inner;
            int64_t *element = lane_element(access, step, lane);
            matrix_lane(&load, lane, &outer, &inner);
            memset(element, 0, sizeof *element * (size_t)rank);
            element[kept[load.trans ? 0 : 1]] = inner + block * step;
            element[kept[load.trans ? 1 : 0]] = outer;
        }
    }
}

static void gather_gemm(Gather *gather, Stmt *gemm, int operand) {
    if (gemm->call.args[operand].region->buf->scope != SCOPE_SHARED) return;
    if (matrix_load_possible(gather->context->target, gemm, operand)) gather_matrix(gather, gemm, operand);
    else gather_operand(gather, gemm, operand);
}

static void gather_scratch(Gather *gather, Stmt *reduce) {
    Region *region = reduce->call.args[scratch_operand(reduce)].region;
    if (!region) return;
    Buf *scratch = region->buf;
    SharedAccess *access =
        new_access(gather, scratch, reduce, true, 1, 1);   // one lane per element; rows are read as broadcasts
    for (int lane = 0; lane < access->lanes; lane++) {
        int64_t *element = lane_element(access, 0, lane);
        int last = scratch->rank - 1;
        for (int d = 0; d < last; d++) element[d] = 0;
        element[last] = lane < buf_extent(scratch, last) ? lane : 0;
    }
}

// A store by TMA: 16 rows of a warp and 8 columns a matrix, two matrices beside each other where there are so many
// columns.
static void gather_staging(Gather *gather, Stmt *copy, Buf *buf, int64_t columns) {
    int rank = buf->rank, matrix = matrix_facts.rows, rows = 2 * matrix;   // two matrices above each other
    int steps = (int)((columns + rows - 1) / rows);
    SharedAccess *access = new_access(gather, buf, copy, true, matrix, steps < MAX_STEPS ? steps : MAX_STEPS);
    access->must_be_contiguous = true;
    for (int step = 0; step < access->steps; step++) {
        for (int lane = 0; lane < access->lanes; lane++) {
            int64_t *element = lane_element(access, step, lane), column = (int64_t)step * rows + lane / rows * matrix;
            memset(element, 0, sizeof *element * (size_t)rank);
            element[rank - 2] = lane % rows;
            element[rank - 1] = column;
            if (column >= columns) element[0] = -1;
        }
    }
}

static void gather_stagings(Gather *gather, Stmt *copy) {
    TmaStore store;
    const char *why;
    const Region *whole = call_region(copy, COPY_STAGE), *tail = call_region(copy, COPY_TAIL);
    if (!tma_stores(gather->context->target, copy, &store, &why)) return;
    if (whole && tma_store_aliases(&store, copy, whole->buf)) return;   // whose layout is dictated
    if (whole) gather_staging(gather, copy, whole->buf, store.columns);
    if (tail) gather_staging(gather, copy, tail->buf, store.tail);
}

// A transposed tile of bytes: 8 rows of 16 bytes for each of four matrices, on both sides.
static void gather_transposed(Gather *gather, Stmt *copy, bool load) {
    const Region *from = copy->call.args[COPY_FROM].region, *to = copy->call.args[COPY_TO].region;
    Buf *buf = load ? from->buf : to->buf;
    int steps = (int)(region_extent(to, 1) / TRANSPOSE_K), rank = buf->rank;
    SharedAccess *access =
        new_access(gather, buf, copy, !load, matrix_facts.row_bytes, steps < MAX_STEPS ? steps : MAX_STEPS);
    access->must_be_contiguous = true;
    access->any_order = !load;
    for (int step = 0; step < access->steps; step++) {
        for (int lane = 0; lane < access->lanes; lane++) {
            int64_t *element = lane_element(access, step, lane);
            int k, d;
            transpose_row(to->buf->layout, lane, load, &k, &d);
            memset(element, 0, sizeof *element * (size_t)rank);
            element[load ? rank - 2 : rank - 1] = k + (int64_t)step * TRANSPOSE_K;
            element[load ? rank - 1 : rank - 2] = d;
        }
    }
}

// An element that the block stores: one lane does it.
static void gather_element(Gather *gather, Stmt *store) {
    SharedAccess *access = new_access(gather, store->store.buf, store, true, 1, 1);
    for (int lane = 0; lane < access->lanes; lane++) lane_element(access, 0, lane)[0] = lane ? -1 : 0;
}

static void gather_stmt(void *user, Stmt *stmt, const Facts *facts) {
    Gather *gather = user;
    TileLoop loop;
    (void)facts;
    if (tma_copy(gather->context->arena, stmt) || via_is(stmt, VIA_WGMMA))
        return;   // not by lanes: their layout is dictated
    if (via_is(stmt, VIA_TMA_STORE)) {
        gather_stagings(gather, stmt);
        return;
    }
    if (via_is(stmt, VIA_LDMATRIX)) {
        gather_transposed(gather, stmt, true);
        gather_transposed(gather, stmt, false);
        return;
    }
    if (stmt->kind == STMT_CALL && stmt->call.op == OP_GEMM) {
        if (gemm_instruction(gather->context->target, stmt))
            for (int operand = 0; operand < 2; operand++) gather_gemm(gather, stmt, operand);
    } else if (scratch_operand(stmt) >= 0) {
        gather_scratch(gather, stmt);
    } else if (stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_SHARED) {
        gather_element(gather, stmt);
    } else if (tile_loop_of(gather->context->arena, stmt, &loop)) {
        gather_loop(gather, stmt, &loop);
    }
}

void shared_accesses(PassContext *context, Func *kernel, SharedAccessVec *out) {
    Gather gather = {.context = context, .kernel = kernel, .out = out};
    kernel_walk(context->arena, kernel, gather_stmt, &gather);
}

// ---- conflicts ----

// Element offset of a lane's first element; the layout covers the last dims.
static int64_t lane_offset(const SharedAccess *access, const Layout *layout, const int64_t *element, int64_t plus) {
    int64_t in[LAYOUT_MAX_RANK];
    int lead = access->buf->rank - layout->rank_in;
    for (int d = 0; d < layout->rank_in; d++) in[d] = element[lead + d];
    in[layout->rank_in - 1] += plus;
    return layout_linear(layout, in);
}

static bool contiguous(const SharedAccess *access, const Layout *layout) {
    if (access->vector == 1) return true;
    for (int i = 0; i < access->steps * access->lanes; i++) {
        const int64_t *element = &access->element[(int64_t)i * access->buf->rank];
        if (element[0] < 0) continue;
        int64_t start = lane_offset(access, layout, element, 0);
        if (start % access->vector != 0) return false;
        for (int e = 1; e < access->vector; e++) {
            int64_t at = lane_offset(access, layout, element, e);
            if (access->any_order ? at / access->vector != start / access->vector : at != start + e) return false;
        }
    }
    return true;
}

static int64_t step_conflicts(const Target *target, const SharedAccess *access, const Layout *layout, int step,
                              int vector, int64_t plus) {
    const MemoryShape memory = {target->banks, target->bank_bytes, target->sector_bytes};
    int bytes = type_bytes(access->buf->type);
    int64_t address[MAX_LANES];
    for (int lane = 0; lane < access->lanes; lane++) {
        const int64_t *element = &access->element[(int64_t)(step * access->lanes + lane) * access->buf->rank];
        address[lane] = element[0] < 0 ? -1 : lane_offset(access, layout, element, plus) * bytes;
    }
    SharedCost cost = shared_cost_counted(address, access->lanes, vector * bytes, memory);
    return cost.wavefronts - cost.phases;
}

AccessCost access_cost(const Target *target, const SharedAccess *access, const Layout *layout) {
    return access_cost_upto(target, access, layout, INT64_MAX);
}

AccessCost access_cost_upto(const Target *target, const SharedAccess *access, const Layout *layout, int64_t most) {
    bool whole = contiguous(access, layout);
    int pieces = whole ? 1 : access->vector;
    bool everywhere = access->any_order || layout_keeps_runs(layout, access->vector);   // not in the first steps alone
    AccessCost cost = {.suits = (whole && everywhere) || !access->must_be_contiguous,
                       .accesses = (int64_t)access->steps * pieces};
    for (int step = 0; step < access->steps && cost.conflicts <= most; step++)
        for (int piece = 0; piece < pieces; piece++)
            cost.conflicts += step_conflicts(target, access, layout, step, access->vector / pieces, piece);
    return cost;
}
