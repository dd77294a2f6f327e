#include "passes/analysis/shared_access.h"
#include "ir/build.h"
#include "ir/rewrite.h"
#include "layout/cost.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/layout/fragment.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "support/map.h"
#include "support/numbers.h"
#include <limits.h>

enum { MAX_LANES = 64 };

typedef struct Gather {
    const PassContext *context;
    int64_t first;   // thread of the warp
    SharedAccessVec *out;
    Map *trips;   // of serial loops
    Map *times;   // of statements with accesses: how often they are executed
} Gather;

// ---- evaluating index expressions: iterators have values, all other variables count as 0 ----

static int64_t evaluate(const Expr *expr, const TileLoop *loop, const int64_t *at) {
    int64_t a, b, value;
    switch (expr->kind) {
    case EXPR_INT: return expr->integer;
    case EXPR_VAR:
        for (int d = 0; d < loop->rank; d++)
            if (loop->iters[d] == expr->var) return at[d];
        return 0;
    case EXPR_CAST: return type_is_int(expr->type) ? evaluate(expr->operand, loop, at) : 0;
    case EXPR_BINARY:
        a = evaluate(expr->binary.a, loop, at), b = evaluate(expr->binary.b, loop, at);
        return int_binary(expr->binary.op, TYPE_I64, a, b, &value) ? value : 0;
    default: return 0;
    }
}

// ---- gathering ----

// The first element of a region; slots of a pipeline are those of its first step.
static void first_element(const Region *region, int64_t *element) {
    const TileLoop outside = {0};
    for (int d = 0; d < region->buf->rank; d++) {
        int64_t start = region->dims[d].start ? evaluate(region->dims[d].start, &outside, NULL) : 0;
        element[d] = start > 0 ? start : 0;
    }
}

static SharedAccess *new_access(Gather *gather, Buf *buf, Stmt *stmt, bool is_store, int vector, int64_t steps) {
    Arena *arena = gather->context->arena;
    SharedAccess access = {.buf = buf, .stmt = stmt, .is_store = is_store, .vector = vector, .exact = true, .times = 1};
    access.steps = (int)steps;
    access.lanes = gather->context->target->warp_lanes;
    EXPECT(gather->context->failure, steps > 0 && steps < INT_MAX / access.lanes / LAYOUT_MAX_RANK && vector > 0,
           "%lld steps of %d elements", (long long)steps, vector);
    EXPECT(gather->context->failure, access.lanes <= MAX_LANES, "a warp of %d lanes", access.lanes);
    access.element = NEW_ARRAY(arena, int64_t, access.steps * access.lanes * buf->rank);
    vec_push(arena, gather->out, access);
    return &vec_last(gather->out);
}

static int64_t *lane_element(const SharedAccess *access, int step, int lane) {
    return &access->element[(step * access->lanes + lane) * access->buf->rank];
}

// Iterates over all steps and lanes, with the element of the lane (all zeros until set).
#define FOR_EACH_LANE(access, step, lane, element)                                                                     \
    for (int step = 0; step < (access)->steps; step++)                                                                 \
        for (int lane = 0; lane < (access)->lanes; lane++)                                                             \
            for (int64_t *element = lane_element(access, step, lane); element; element = NULL)

static void gather_loop_access(Gather *gather, const TileLoop *loop, const Layout *map, const TileAccess *tile,
                               int vector) {
    SharedAccess *access = new_access(gather, tile->buf, loop->origin, tile->is_store, vector, tv_values(map) / vector);
    access->must_be_contiguous = loop->is_async && vector > 1;
    access->in_pieces = true;
    access->exact = !tile->conditional && !tile->condition;
    for (int d = 0; d < tile->buf->rank; d++) access->exact &= !expr_reads_memory(tile->indices[d]);
    FOR_EACH_LANE(access, step, lane, element) {
        int64_t thread = gather->first + lane, in[2] = {thread, (int64_t)step * vector}, at[LAYOUT_MAX_RANK];
        bool inside = thread < tv_threads(map) && !(tile->is_store && !tile->is_atomic && tv_is_replica(map, thread));
        if (inside) layout_eval(map, in, at);
        for (int d = 0; d < loop->rank && inside; d++) inside = at[d] < loop->extents[d];
        if (!inside) element[0] = -1;
        for (int d = 0; d < tile->buf->rank && inside; d++) element[d] = evaluate(tile->indices[d], loop, at);
    }
}

static void gather_loop(Gather *gather, Stmt *stmt, const TileLoop *loop) {
    Arena *arena = gather->context->arena;
    const Layout *map = stmt_layout(stmt);
    TileAccessVec accesses = {0};
    if (!map) return;
    tile_accesses(arena, loop, &accesses);
    int fast = loop_fast_dim(loop, &accesses);
    int64_t vector = attr_int(stmt->attrs, ATTR_VECTOR, 1);
    bool edges = false;   // of a tensor, where single elements take the place of vectors
    VEC_EACH (const TileAccess, tile, &accesses)
        edges |= tile->buf->scope == SCOPE_GLOBAL && vector > 1 && !loop->is_async;
    VEC_EACH (const TileAccess, tile, &accesses) {
        if (tile->buf->scope != SCOPE_SHARED) continue;
        gather_loop_access(gather, loop, map, tile, access_in_vectors(loop, &accesses, tile, fast) ? (int)vector : 1);
        vec_last(gather->out).exact &= !edges;
    }
}

static void kept_dims(const Gather *gather, const Region *region, int kept[2]) {
    int found = 0;
    EXPECT(gather->context->failure, region_rank(region) == 2, "an operand of rank %d", region_rank(region));
    for (int d = 0; d < region->buf->rank; d++)
        if (region->dims[d].extent) kept[found++] = d;
}

// Each lane reads its own values of the instruction.
static void gather_operand(Gather *gather, Stmt *gemm, int operand) {
    const Region *region = gemm->call.args[operand].region;
    const MmaInfo *info = gemm_instruction(gather->context->target, gemm);
    const Layout *layout =
        instruction_layout(gather->context->arena, operand == GEMM_A ? info->a_layout : info->b_layout);
    int run = (int)operand_run(gemm, operand, layout), kept[2];
    bool transposed = region->transposed != (operand == GEMM_B);
    int64_t steps = layout_extent_in(layout, TV_VALUE) / run;
    SharedAccess *access = new_access(gather, region->buf, gemm, false, run, steps);
    kept_dims(gather, region, kept);
    FOR_EACH_LANE(access, step, lane, element) {
        int64_t in[2] = {lane, (int64_t)step * run}, at[2];
        layout_eval(layout, in, at);
        first_element(region, element);
        element[kept[transposed ? 1 : 0]] += at[0];
        element[kept[transposed ? 0 : 1]] += at[1];
        if (at[1] >= region_extent(gemm_of(gemm).a, 1)) element[0] = -1;   // a zero that fills k up
    }
}

// The 8 lanes of each matrix read 8 rows of 16 bytes. All matrices of all steps differ only in their position.
static void gather_matrix(Gather *gather, Stmt *gemm, int operand) {
    Arena *arena = gather->context->arena;
    const Region *region = gemm->call.args[operand].region;
    MatrixLoad load = matrix_load(gather->context->target, gemm, operand, 4);
    int kept[2], run = matrix_facts.row_bytes / type_bytes(region->buf->type);
    EXPECT(gather->context->failure, load.pack == 1 || load.pack == 2, "%d elements as one", load.pack);
    int64_t block = (int64_t)matrix_facts.rows * load.across * load.pack;
    int64_t steps = region_extent(region, operand == GEMM_A ? 1 : 0) / block;
    SharedAccess *access = new_access(gather, region->buf, gemm, false, run, steps);
    access->must_be_contiguous = true;
    kept_dims(gather, region, kept);
    FOR_EACH_LANE(access, step, lane, element) {
        Expr *outer, *inner;
        matrix_lane(arena, &load, e_int(arena, lane), &outer, &inner);
        first_element(region, element);
        element[kept[load.trans ? 0 : 1]] += inner->integer + block * step;
        element[kept[load.trans ? 1 : 0]] += outer->integer;
    }
}

static void gather_gemm(Gather *gather, Stmt *gemm, int operand) {
    if (gemm->call.args[operand].region->buf->scope != SCOPE_SHARED) return;
    if (matrix_load_possible(gather->context->target, gemm, operand)) gather_matrix(gather, gemm, operand);
    else gather_operand(gather, gemm, operand);
}

// No lanes of one warp have partial results that meet.
static bool meet_between_warps(const Layout *tv, int64_t lanes) {
    ThreadDigits digits = tv_thread_digits(tv, lanes);
    VEC_EACH (const ThreadDigit, digit, &digits)
        if (digit->above > 1 && digit->weight * digit->within % lanes) return false;
    return true;
}

static void gather_scratch(Gather *gather, Stmt *reduce) {
    const Region *region = stmt_scratch(reduce);
    int last = region->buf->rank - 1;   // one lane per element; rows are read as broadcasts
    SharedAccess *access = new_access(gather, region->buf, reduce, true, 1, 1);
    access->exact = meet_between_warps(ARG(reduce, REDUCE_SUM, src).region->buf->layout, access->lanes);
    FOR_EACH_LANE(access, step, lane, element) element[last] = lane % buf_extent(region->buf, last);
}

// A store by TMA: a warp writes 16 rows of matrices with 8 columns, in two columns of matrices if there are that many. Transposed
// matrices lie the other way.
static void gather_staging(Gather *gather, Stmt *copy, Buf *buf, int64_t columns, bool transposed) {
    int rank = buf->rank, matrix = matrix_facts.rows, rows = 2 * matrix;   // two matrices above each other
    SharedAccess *access = new_access(gather, buf, copy, true, matrix, (columns + rows - 1) / rows);
    access->must_be_contiguous = true;
    FOR_EACH_LANE(access, step, lane, element) {
        int64_t column = (int64_t)step * rows + lane / rows * matrix;
        element[rank - 2] = transposed ? column + lane % matrix : lane % rows;
        element[rank - 1] = transposed ? lane / matrix % 2 * matrix : column;
        if (column >= columns) element[0] = -1;
    }
}

static void gather_stagings(Gather *gather, Stmt *copy) {
    TmaStore store;
    const Region *whole = copy_of(copy).stage, *tail = copy_of(copy).tail;
    if (tma_epilogue_problem(gather->context->target, copy, &store)) return;
    if (whole && tma_store_aliases(gather->context->arena, &store, copy, whole->buf)) return;   // its layout is fixed
    if (whole) gather_staging(gather, copy, whole->buf, store.columns, store.transposed);
    if (tail) gather_staging(gather, copy, tail->buf, store.tail, false);
}

// Rows of the matrices of the first warp.
static void gather_matrix_copy(Gather *gather, Stmt *stmt, const MatrixCopy *copy) {
    Arena *arena = gather->context->arena;
    const Region *tile = copy->tile;
    int64_t steps = 1;
    for (int i = 0; i < copy->rest; i++) steps *= copy->rests[i].extent;
    int run = matrix_facts.row_bytes / type_bytes(tile->buf->type), kept[2];
    SharedAccess *access = new_access(gather, tile->buf, stmt, !copy->load, run, steps);
    access->must_be_contiguous = !copy->in_memory;
    access->along_bits = copy->in_memory;
    kept_dims(gather, tile, kept);
    FOR_EACH_LANE(access, step, lane, element) {
        int64_t value = 0, left = step;
        for (int i = 0; i < copy->rest; left /= copy->rests[i++].extent)
            value += left % copy->rests[i].extent * copy->rests[i].weight;
        Expr *at[2];
        first_element(tile, element);
        matrix_copy_row(arena, NULL, copy, e_int(arena, 0), e_int(arena, lane), e_int(arena, value), at);
        for (int d = 0; d < 2; d++) element[kept[d]] += at[operand_dim(tile, d)]->integer;
        if (lane >= matrix_facts.rows * copy->matrices) element[0] = -1;
    }
}

// The vectors of the first warp.
static void gather_linear_copy(Gather *gather, Stmt *stmt, const LinearCopy *copy) {
    const Layout *layout = copy->fragment->buf->layout;
    const Region *tile = copy->tile;
    int64_t steps = 1;
    for (int i = 0; i < copy->values.count; i++) steps *= copy->values.items[i].extent;
    SharedAccess *access = new_access(gather, tile->buf, stmt, !copy->load, (int)copy->width, steps);
    access->along_bits = true;
    FOR_EACH_LANE(access, step, lane, element) {
        int64_t value = 0, left = step;
        for (int i = 0; i < copy->values.count; left /= copy->values.items[i++].extent)
            value += left % copy->values.items[i].extent * copy->values.items[i].weight;
        layout_eval(layout, (int64_t[]){lane, value}, element);
        for (int i = 0; i < copy->threads.count && !copy->load; i++)   // one of the replicas stores
            if (!copy->threads.items[i].stride && lane / copy->threads.items[i].weight % copy->threads.items[i].extent)
                element[0] = -1;
    }
}

// A transposed tile of bytes: 8 rows of 16 bytes for each of four matrices, for both loads and stores.
static void gather_transposed(Gather *gather, Stmt *copy, bool load) {
    const Region *src = ARG(copy, COPY, src).region, *dst = ARG(copy, COPY, dst).region;
    Buf *buf = load ? src->buf : dst->buf;
    int rank = buf->rank;
    SharedAccess *access =
        new_access(gather, buf, copy, !load, matrix_facts.row_bytes, region_extent(dst, 1) / TRANSPOSE_K);
    access->must_be_contiguous = true;
    access->any_order = !load;
    FOR_EACH_LANE(access, step, lane, element) {
        int k, d;
        transpose_row(dst->buf->layout, lane, load, &k, &d);
        element[load ? rank - 2 : rank - 1] = k + (int64_t)step * TRANSPOSE_K;
        element[load ? rank - 1 : rank - 2] = d;
    }
}

// A scalar store of the CTA: one lane executes it.
static void gather_element(Gather *gather, Stmt *store) {
    SharedAccess *access = new_access(gather, store->store.buf, store, true, 1, 1);
    FOR_EACH_LANE(access, step, lane, element) element[0] = lane ? -1 : 0;
}

static void gather_stmt(void *user, Stmt *stmt, const Facts *facts) {
    Gather *gather = user;
    const PassContext *context = gather->context;
    TileLoop loop;
    MatrixCopy matrices;
    LinearCopy linear;
    note_trips(gather->trips, context->target, stmt, facts);
    if (tma_copy(context->arena, stmt) || via_is(stmt, VIA_WGMMA)) return;   // not by lanes: the layout is fixed
    if (stores_staged(stmt)) {
        gather_stagings(gather, stmt);
    } else if (via_is(stmt, VIA_TRANSPOSE)) {
        gather_transposed(gather, stmt, true);
        gather_transposed(gather, stmt, false);
    } else if (is_call(stmt, OP_GEMM) && gemm_instruction(context->target, stmt)) {
        gather_gemm(gather, stmt, GEMM_A);
        gather_gemm(gather, stmt, GEMM_B);
    } else if (stmt_scratch(stmt)) {
        gather_scratch(gather, stmt);
    } else if (stmt->kind == STMT_STORE && stmt->store.buf->scope == SCOPE_SHARED) {
        gather_element(gather, stmt);
    } else if (moves_by_matrices(stmt) && matrix_copy_of(context->target, stmt, &matrices)) {
        gather_matrix_copy(gather, stmt, &matrices);
    } else if (via_is(stmt, VIA_LINEAR) && linear_copy_of(context->target, stmt, &linear)) {
        gather_linear_copy(gather, stmt, &linear);
    } else if (tile_loop_of(context->arena, stmt, &loop)) {
        gather_loop(gather, stmt, &loop);
    }
}

// Statements come outermost first.
static void count_times(const Gather *gather, const Block *block, int64_t times) {
    FOR_EACH_ITEM (stmt, block) {
        map_put(gather->times, stmt, (void *)(intptr_t)times);
        if (is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_THREAD) continue;
        int64_t within = loop_trips(gather->trips, stmt, times);
        FOR_EACH_BODY (body, stmt) count_times(gather, body, within);
    }
}

void shared_accesses(PassContext *context, Func *kernel, SharedAccessVec *out) {
    Gather gather = {context, 0, out, map_new(context->arena), map_new(context->arena)};
    int first = out->count;
    kernel_walk(context->arena, kernel, gather_stmt, &gather);
    count_times(&gather, &kernel->body, 1);
    for (int i = first; i < out->count; i++)
        out->items[i].times = larger((int64_t)(intptr_t)map_get(gather.times, out->items[i].stmt), 1);
}

void loop_accesses(const PassContext *context, Stmt *stmt, int64_t first, SharedAccessVec *out) {
    Gather gather = {.context = context, .first = first, .out = out};
    TileLoop loop;
    if (tile_loop_of(context->arena, stmt, &loop)) gather_loop(&gather, stmt, &loop);
}

// ---- conflicts ----

// Element offset of a lane's first element. The layout covers the last dims; those before count such tiles.
static int64_t lane_offset(const SharedAccess *access, const Layout *layout, const int64_t *element, int64_t plus) {
    int64_t in[LAYOUT_MAX_RANK], tile = 0;
    int lead = access->buf->rank - layout->rank_in;
    for (int d = 0; d < lead; d++) tile = tile * buf_extent(access->buf, d) + element[d];
    for (int d = 0; d < layout->rank_in; d++) in[d] = element[lead + d];
    in[layout->rank_in - 1] += plus;
    return tile * layout_size_out(layout) + layout_linear(layout, in);
}

// The elements of each run lie next to each other, in any order.
static bool holds_runs(const SharedAccess *access, const Layout *layout) {
    FOR_EACH_LANE(access, step, lane, element) {
        if (element[0] < 0) continue;
        int64_t start = lane_offset(access, layout, element, 0);
        if (start % access->vector != 0) return false;
        for (int e = 1; e < access->vector; e++)
            if (lane_offset(access, layout, element, e) / access->vector != start / access->vector) return false;
    }
    return true;
}

static bool keeps_runs(const SharedAccess *access, const Layout *layout, int run) {
    int last = access->buf->rank - 1;
    bool tiles = access->buf->rank == layout->rank_in || layout_size_out(layout) % run == 0;
    if (!tiles || !layout_keeps_runs(layout, run)) return false;
    FOR_EACH_LANE(access, step, lane, element)
    if (element[0] >= 0 && element[last] % run != 0) return false;
    return true;
}

// Elements that one access of a lane moves.
static int width_in(const SharedAccess *access, const Layout *layout) {
    int width = access->vector;
    if (width == 1 || access->along_bits) return width;
    if (access->any_order) return holds_runs(access, layout) ? width : 1;
    while (width > 1 && !keeps_runs(access, layout, width)) width = access->in_pieces && width % 2 == 0 ? width / 2 : 1;
    return width;
}

MemoryShape memory_shape(const Target *target) {
    return (MemoryShape){target->banks, target->bank_bytes, target->sector_bytes};
}

// The addresses of lanes, and what they take.
typedef struct Pattern {
    int64_t address[MAX_LANES];
    SharedCost cost;
} Pattern;

// All addresses differ by one number of words, or by an XOR with one: banks are renamed, the rest is the same.
static bool same_conflicts(const Pattern *a, const Pattern *b, int lanes, int word_bytes) {
    bool some = false, moved = true, flipped = true;
    int64_t step = 0, bits = 0;
    for (int lane = 0; lane < lanes && (moved || flipped); lane++) {
        int64_t one = a->address[lane], other = b->address[lane];
        if ((one < 0) != (other < 0)) return false;
        if (one < 0) continue;
        if (!some) step = one - other, bits = one ^ other;
        some = true;
        moved &= one - other == step;
        flipped &= (one ^ other) == bits;
    }
    return (moved && step % word_bytes == 0) || (flipped && bits % word_bytes == 0);
}

// Steps are mostly translations of a few.
typedef struct Patterns {
    int count;
    Pattern items[4];
} Patterns;

static SharedCost step_cost(const Target *target, const SharedAccess *access, const Layout *layout, int step,
                            int vector, int64_t plus, Patterns *known) {
    int bytes = type_bytes(access->buf->type);
    Pattern now;
    for (int lane = 0; lane < access->lanes; lane++) {
        const int64_t *element = lane_element(access, step, lane);
        now.address[lane] = element[0] < 0 ? -1 : lane_offset(access, layout, element, plus) * bytes;
    }
    for (int i = 0; i < known->count; i++)
        if (same_conflicts(&known->items[i], &now, access->lanes, target->bank_bytes)) return known->items[i].cost;
    now.cost = shared_cost_counted(now.address, access->lanes, vector * bytes, memory_shape(target));
    if (known->count < COUNT_OF(known->items)) known->items[known->count++] = now;
    return now.cost;
}

AccessCost access_cost(const Target *target, const SharedAccess *access, const Layout *layout, int64_t most) {
    int width = width_in(access, layout), pieces = access->vector / width;
    AccessCost cost = {.suits = pieces == 1 || !access->must_be_contiguous,
                       .width = width,
                       .accesses = (int64_t)access->steps * pieces};
    Patterns known = {0};
    for (int step = 0; step < access->steps && cost.conflicts <= most; step++)
        for (int piece = 0; piece < pieces; piece++) {
            SharedCost more = step_cost(target, access, layout, step, width, (int64_t)piece * width, &known);
            cost.wavefronts += more.wavefronts;
            cost.conflicts += more.wavefronts - more.phases;
        }
    return cost;
}
