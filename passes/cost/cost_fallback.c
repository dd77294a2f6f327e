// The cost of a variant without facts (passes/select/select.c), which a launch takes where TMA cannot serve a tensor. Its
// threads load element by element, through registers; then its warps multiply. A step takes
//
//     the multiprocessor     `element_clocks` for each element of each lane of a warp, and the products, `products` a clock
//     a CTA                  `waited_clocks` instead: loads wait for each other, unless another CTA has work meanwhile
//
// Elements beyond the tensors' ends are not loaded, so the steps are counted in units of UNIT of k, and a short K costs less than a step.
//
// As many CTAs share a multiprocessor as have registers and shared memory, so smaller tiles are better than wide ones.
// (H200, examples/gemm.tile, 60 problems of any sizes, 12 tiles: the model's choice takes 5 % more than the fastest in the mean,
// the largest tile 122 %. Tiles of 96 rows take up to 1.3 of the model's time.)
#include "passes/cost/cost.h"
#include "passes/cost/occupancy.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/specialize/builder.h"

// Elements on their way from global to shared memory, in a register each; fewer bytes are not copied asynchronously.
enum { ON_THE_WAY = 8, ASYNCHRONOUS = 4 };
enum { UNIT = 16 };   // the k of an MMA of 16-bit elements

typedef struct Sum {
    int64_t elements, bytes;   // loaded in a step; bytes of shared memory
    int64_t products;          // in a step
    int64_t k;                 // the same
    int64_t loaded[2];         // bytes that a step loads of each operand
    int64_t m, n;              // of the result
} Sum;

static Sum sum_of(Arena *arena, const Func *kernel) {
    Sum sum = {0};
    FOR_EACH_STMT (loop, &kernel->body) {
        if (!is_loop(loop, LOOP_PIPELINED)) continue;
        FOR_EACH_STMT (stmt, &loop->loop.body) {
            CopyOp copy;
            GemmOp gemm;
            if (match_copy(stmt, &copy) && copy.dst->buf->scope == SCOPE_SHARED) {
                int64_t each = type_bytes(copy.dst->buf->type), bytes = region_bytes(copy.dst);
                sum.elements += bytes / each;
                sum.loaded[feeds_columns(arena, &loop->loop.body, copy.dst->buf)] += bytes;
                sum.bytes += bytes * (each >= ASYNCHRONOUS ? loop_stages(loop) : 1);
            }
            if (!match_gemm(stmt, &gemm)) continue;
            sum.k = region_extent(gemm.a, 1);
            sum.m = region_extent(gemm.acc, 0), sum.n = region_extent(gemm.acc, 1);
            sum.products += sum.m * sum.n * sum.k;
        }
        SKIP_BODY(loop);
    }
    return sum;
}

LaunchCost cost_fallback(Arena *arena, const Target *target, const Func *kernel, const LaunchCost *tile) {
    const WgmmaCosts *costs = &target->wgmma;
    Sum sum = sum_of(arena, kernel);
    Occupancy occupancy = occupancy_estimate(arena, kernel, target);
    int threads = (int)larger(occupancy.threads, 1);
    int64_t multiplying = sum.products / costs->products, loads = sum.elements / target->warp_lanes;
    int64_t busy = loads * costs->element_clocks + multiplying, step = loads * costs->waited_clocks + multiplying;
    int64_t resident = smaller(target_ctas_by_registers(target, occupancy.registers + ON_THE_WAY, threads),
                               target_ctas_by_shared(target, sum.bytes));
    int64_t depth = tile ? tile->tile_depth : sum.k, units = depth == sum.k ? ceil_div(sum.k, UNIT) : 1;
    LaunchCost cost = {.tile_rows = tile ? tile->tile_rows : 0,
                       .tile_columns = tile ? tile->tile_columns : 0,
                       .tile_depth = depth / larger(units, 1),
                       .step = step / larger(units, 1),
                       .load = cost_rate(busy, target->multiprocessors) / larger(units, 1),
                       .resident = larger(smaller(resident, target->threads_multiprocessor / threads), 1)};
    int64_t row_bytes = sum.loaded[0] / larger(sum.m, 1), column_bytes = sum.loaded[1] / larger(sum.n, 1);
    add_traffic(target, row_bytes / larger(units, 1), column_bytes / larger(units, 1), row_bytes, &cost);
    return cost;
}
