// The cost of a ping-pong kernel. A step of the loop takes as long as the slowest of the tensor cores, shared memory,
// the chain of one step's instructions, and memory:
//
//     tensor cores    each strip of 64 rows by n columns: a little more than n / 2 clocks per 32 bytes of k; plus
//                     `step_clocks` for the waits and arrivals of a step
//     shared memory   TMA writes the tiles; each strip reads its rows and all columns again: `shared_bytes` per clock
//                     in all
//     chain           `latency_clocks` from wait to release, and at least `instruction_clocks` per instruction: with
//                     few columns longer steps are better
//     memory          a tile arrives `memory_clocks` after its request, and a request needs a free slot: all slots but
//                     the one being read arrive in that time. This applies to results with few rows (or columns), where
//                     one or two CTAs read a tile; a tile that many CTAs read is mostly in the L2 cache. There, rows
//                     beyond the end are expensive, too: each CTA loads its own zeros, `zero_bytes` per clock over all
//                     CTAs.
//
// With split-K the CTAs of a cluster are at different k. Two or more CTAs that read the same tile do so at different
// times: the L2 cache delivers `cluster_bytes` per clock to all of them. (Other CTAs' requests for the same bytes are
// merged.)
//
// A device that multiplies everywhere is limited by power, and lowers its clock (target/launch_cost.h): a strip then takes
// `power_clocks` of the highest clock per `columns` columns, and the step a little more for what it loads (`power_bytes`).
// So a narrow tile has no disadvantage but for its loads. (H200: 128 rows of bf16 take 3.05 to 3.2 ns per column and 64 of
// k, in ping-pong kernels of one product of 128 to 208 columns and of two of 64 to 104 each; e4m3, of equally many bytes,
// 3 to 6 % more; f16 and tf32 are taken for equal, not measured.) `load_bytes` is the rate of the L2 cache for all
// multiprocessors, in bytes per clock of one.
//
// So a tile of 64 x 128 is faster than one of 128 x 64, and 64 x 64 is limited by shared memory. After the loop a tile
// writes its results: `tail_clocks` per column of a strip, more without TMA stores. (H200, examples/gemm.tile at seven
// sizes, 7 to 18 tiles each: the model's first choice was the fastest at each size. For 1 to 512 rows, 130 GEMMs and 69
// tiles, a third of them with split-K in a cluster: 3 % slower than the fastest in the mean.)
#include "passes/cost/cost.h"
#include "passes/grid/multicast.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/tma.h"
#include "passes/specialize/builder.h"
#include "passes/tile/tile.h"

typedef struct Sum {
    Arena *arena;
    const Target *target;
    const Func *kernel;
    const WgmmaCosts *costs;
    int64_t bytes;         // of shared memory, per step
    int64_t multiplying;   // clocks
    int64_t power;         // the same, by power
    int64_t instructions;
    int64_t k, k_bytes;    // per step
    int64_t loaded;        // bytes, per step
    int64_t operands[2];   // the same, of each operand
    int64_t lines[2];      // the same, as lines of the L2 cache: of tiles of rows, and of columns
    int64_t slots;
    int64_t columns;   // over all strips
    int64_t rows, n;   // of the last MMA
    bool scattered;    // results go from registers to memory
    bool gathers;      // rows are gathered, or windows make them
    int64_t ragged;    // rows of results that end within a sector of the L2 cache
    int64_t result;    // bytes of an element of the results
} Sum;

// Bytes that TMA writes: boxes with rows shorter than the widest swizzle span take as long as full ones.
static int64_t written_bytes(const Region *tile) {
    TmaPanels panels;
    if (tma_panels_problem(tile->buf, &panels) || panels.swizzle == 0) return region_bytes(tile);
    return region_bytes(tile) * tma_facts.spans[0] / panels.swizzle;
}

// The lines that a CTA loads of a copy's tile. (Requests of neighbours for one line are joined without clusters, too: where each row
// is one line, sharing spares nothing.)
static int64_t line_count(const Target *target, const Stmt *copy) {
    return written_bytes(copy_of(copy).dst) / target->line_bytes;
}

bool feeds_columns(Arena *arena, const Block *step, const Buf *tile) {
    FOR_EACH_STMT (stmt, step) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (gemm.b->buf == tile) return true;
        FOR_EACH_STMT (other, step) {
            Stmt made = stmt_alone(other);
            if (other != stmt && stmt_writes(arena, &made, gemm.b->buf) && stmt_touches(arena, &made, tile))
                return true;
        }
    }
    return false;
}

static void add_copy(Sum *sum, const Block *step, const Stmt *stmt) {
    CopyOp copy = copy_of(stmt);
    if (copy.dst->buf->scope == SCOPE_SHARED) {
        sum->operands[feeds_columns(sum->arena, step, copy.dst->buf)] += region_bytes(copy.dst);
        sum->bytes += written_bytes(copy.dst);
        sum->loaded += region_bytes(copy.dst);
        sum->lines[moves_along_second(sum->arena, sum->kernel, stmt)] += line_count(sum->target, stmt);
        sum->gathers |= copy.src->buf->im2col != NULL;
    } else if (copy.src->buf->scope == SCOPE_SHARED) {
        sum->bytes += region_bytes(copy.src);
    }
}

// Threads load the tile, by addresses of their own.
static void add_gather(Sum *sum, const Stmt *loop) {
    const Stmt *store = gathering_store(loop);
    if (!store || store->store.buf->scope != SCOPE_SHARED) return;
    int64_t bytes = buf_slot_bytes(store->store.buf);
    sum->bytes += bytes;
    sum->loaded += bytes;
    sum->lines[0] += bytes / sum->target->line_bytes;
    sum->gathers = true;
}

static void add_gemm(Sum *sum, GemmOp gemm) {
    int64_t n = region_extent(gemm.acc, 1);
    sum->rows = region_extent(gemm.acc, 0), sum->n = n;
    sum->k = region_extent(gemm.a, 1);
    sum->k_bytes = sum->k * type_bytes(gemm.a->buf->type);
    int64_t strips = ceil_div(sum->rows, WGMMA_ROWS),
            instructions = strips * ceil_div(sum->k_bytes, sum->costs->k_bytes);
    if (gemm.a->buf->scope == SCOPE_SHARED) sum->bytes += region_bytes(gemm.a);
    sum->bytes += strips * region_bytes(gemm.b);
    sum->instructions += instructions;
    sum->multiplying += instructions * n * sum->costs->column_clocks / sum->costs->columns;
    sum->power += instructions * n * sum->costs->power_clocks / sum->costs->columns;
    sum->columns += strips * n;
}

static void add_loop(Sum *sum, const Stmt *loop) {
    sum->slots = loop_stages(loop);
    FOR_EACH_STMT (stmt, &loop->loop.body) {
        if (is_call(stmt, OP_COPY)) add_copy(sum, &loop->loop.body, stmt);
        if (is_call(stmt, OP_GEMM)) add_gemm(sum, gemm_of(stmt));
        if (is_loop(stmt, LOOP_PARALLEL)) add_gather(sum, stmt);
    }
}

// Results that are not stored by TMA.
static bool is_scattered(const Target *target, const Stmt *stmt) {
    TmaStore store;
    return is_fragment_to_global_copy(stmt) && tma_epilogue_problem(target, stmt, &store);
}

// Rows of a tile of results that share a sector of the L2 cache with the next tile's: neither tile writes all of it.
static int64_t ragged_rows(const Stmt *stmt) {
    if (!is_fragment_to_global_copy(stmt)) return 0;
    CopyOp copy = copy_of(stmt);
    int along = copy.dst->transposed ? 0 : 1;
    int64_t bytes = region_extent(copy.src, along) * type_bytes(copy.dst->buf->type);
    return bytes % COST_SECTOR == 0 ? 0 : region_extent(copy.src, 1 - along);
}

// Bytes that the kernel stores of an element of the tile.
static int64_t result_bytes(const Stmt *stmt) {
    return is_fragment_to_global_copy(stmt) ? type_bytes(copy_of(stmt).dst->buf->type) : 0;
}

// `exchanged`: CTAs add up their sums, and store them by rows.
static PingpongCost cost_of(Arena *arena, const Target *target, const Func *kernel, int warpgroups, bool exchanged) {
    const int *cluster = func_grid(kernel)->grid.cluster;
    bool shares = grid_cluster(func_grid(kernel)) > 1 && !multicast_problem(arena, target, kernel);
    Sum sum = {.arena = arena, .target = target, .kernel = kernel, .costs = &target->wgmma};
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_loop(stmt, LOOP_PIPELINED)) continue;
        add_loop(&sum, stmt);
        SKIP_BODY(stmt);
    }
    FOR_EACH_STMT (stmt, &kernel->body) {
        sum.scattered |= !exchanged && is_scattered(target, stmt);
        sum.ragged += ragged_rows(stmt);
        sum.result += result_bytes(stmt);
    }
    int64_t column = sum.costs->tail_clocks + (sum.scattered ? sum.costs->scattered_clocks : 0);
    int64_t multiplying = sum.multiplying + sum.costs->step_clocks, moving = sum.bytes / sum.costs->shared_bytes;
    int64_t chain = sum.costs->latency_clocks + sum.instructions / warpgroups * sum.costs->instruction_clocks;
    int64_t ring = sum.costs->memory_clocks / (sum.slots > 1 ? sum.slots - 1 : 1);
    int64_t step = larger(larger(multiplying, moving), chain);
    return (PingpongCost){.step = step,
                          .stream = larger(step, ring),
                          .k = sum.k,
                          .bytes = sum.k_bytes,
                          .loaded = sum.loaded,
                          .product = {sum.rows, sum.n},
                          .row_bytes = {sum.operands[0] / larger(sum.rows, 1), sum.operands[1] / larger(sum.n, 1)},
                          .result = sum.result,
                          .lines = {sum.lines[0], sum.lines[1]},
                          .element = sum.k > 0 ? sum.k_bytes / sum.k : 0,
                          .fetch = sum.loaded / sum.costs->load_bytes,
                          .cluster = {shares ? larger(cluster[0], 1) : 0, shares ? larger(cluster[1], 1) : 0},
                          .moving = moving,
                          .power = sum.power + sum.loaded / sum.costs->power_bytes,
                          .tail = sum.columns / warpgroups * column + sum.ragged * sum.costs->sector_clocks,
                          .run = sum.gathers ? 0 : sum.slots * sum.k_bytes,
                          .hidden = sum.rows > WGMMA_ROWS};
}

PingpongCost cost_pingpong(Arena *arena, const Target *target, const Func *kernel, int warpgroups) {
    return cost_of(arena, target, kernel, warpgroups, false);
}

PingpongCost cost_pingpong_split(Arena *arena, const Target *target, const Func *kernel, int blocks) {
    PingpongCost cost = cost_of(arena, target, kernel, 1, blocks > 1);
    return blocks > 1 ? cost_with_sums(arena, target, kernel, cost) : cost;
}

PingpongCost cost_with_sums(Arena *arena, const Target *target, const Func *kernel, PingpongCost cost) {
    cost.hidden = false;
    cost.sums = split_bytes(arena, kernel) / target->wgmma.peer_bytes;
    return cost;
}

PingpongCost cost_shared_tile(Arena *arena, const Target *target, const Func *kernel) {
    PingpongCost cost = cost_pingpong(arena, target, kernel, tile_warpgroups(arena, target, kernel));
    cost.hidden = false;
    cost.step += target->wgmma.latency_clocks;
    cost.power += target->wgmma.latency_clocks;
    return cost;
}

// Bytes from one row of a tensor to the next; NULL: it has one row, or threads or windows make the rows.
static Expr *pitch_of(Arena *arena, const Buf *tensor) {
    if (tensor->rank < 2 || tensor->im2col) return NULL;
    Expr *pitch = tensor->strides ? tensor->strides[tensor->rank - 2] : tensor->shape[tensor->rank - 1];
    return e_mul(arena, pitch, e_int(arena, type_bytes(tensor->type)));
}

void cost_pitches(Arena *arena, const Target *target, const Func *kernel, Expr *pitches[2], int64_t lines[2]) {
    pitches[0] = pitches[1] = e_int(arena, 0);
    lines[0] = lines[1] = 0;
    FOR_EACH_STMT (loop, &kernel->body) {
        if (!is_loop(loop, LOOP_PIPELINED)) continue;
        FOR_EACH_STMT (stmt, &loop->loop.body) {
            CopyOp copy;
            if (!match_copy(stmt, &copy) || copy.dst->buf->scope != SCOPE_SHARED) continue;
            Expr *pitch = copy.src->buf->scope == SCOPE_GLOBAL ? pitch_of(arena, copy.src->buf) : NULL;
            if (!pitch) continue;
            int at = moves_along_second(arena, kernel, stmt);
            if (lines[at] == 0) pitches[at] = pitch;
            lines[at] += line_count(target, stmt);
        }
        SKIP_BODY(loop);
    }
}
