// The search over combinations of tunables: the first that fits, or the few that are fastest (passes/cost/search.h).
#include "ir/build.h"
#include "ir/print.h"
#include "ir/schedule.h"
#include "passes/cost/search_internal.h"
#include "passes/grid/multicast.h"
#include "passes/specialize/builder.h"
#include "passes/specialize/warp_specialize.h"
#include "passes/tile/stream_k.h"
#include "passes/tile/tile.h"
#include <string.h>

static bool is_larger(const Occupancy *a, const Occupancy *b) {
    return a->registers != b->registers ? a->registers > b->registers : a->shared > b->shared;
}

static void remember(TileSearch *search, const Occupancy *estimate, const char *tunables) {
    search->tried++;
    if (estimate->fits) {
        search->settled = true;
        if (search->largest_tunables && !is_larger(estimate, &search->largest)) return;
        search->largest = *estimate;
        search->largest_tunables = tunables;
    } else if (!search->smallest_tunables || estimate->shared < search->smallest.shared) {
        search->smallest = *estimate;
        search->smallest_tunables = tunables;
    }
}

// ---- kernels that will be warp-specialized ----
//
// The time of a problem with a tile is a number of waves of CTAs times the time of a main loop (the cost models). It
// depends on how full the last wave is, so no tile is the best for all problems: a few are kept, and the launch takes
// the cheapest.

// Whether and how a candidate will be warp-specialized, asked once.
typedef struct Answer {
    const Func *kernel;   // with operands swapped, if the pass swap-operands will do so
    Specialization how;
    Occupancy estimate;
    int64_t staging;
} Answer;

static Answer answer_of(const TileSearch *search, const Func *kernel) {
    Answer answer = {.kernel = kernel};
    const Func *swapped = operands_swapped(search->arena, search->target, kernel, &answer.how);
    if (swapped) answer.kernel = swapped;
    else answer.how = specialization_of(search->arena, search->target, kernel);
    answer.estimate = occupancy_estimate(search->arena, answer.kernel, search->target);
    answer.staging = specialized_staging(search->arena, search->target, answer.kernel, &answer.how);
    return answer;
}

// Bytes of shared memory with the epilogue's staging, and `more`.
static int64_t shared_with(const TileSearch *search, const Answer *answer, int64_t more) {
    return specialized_shared(search->target, &answer->how, answer->staging, answer->estimate.shared + more);
}

static int64_t slots_of(const Occupancy *estimate) {
    int64_t slots = 1;
    VEC_EACH (const OccupancyBuffer, buffer, &estimate->buffers) slots = larger(slots, buffer->stages);
    return slots;
}

static bool is_pingpong(const TileSearch *search, const Answer *answer) {
    int64_t shared = shared_with(search, answer, pingpong_barriers(slots_of(&answer->estimate)));
    return answer->how.kind == WS_PINGPONG && shared <= search->target->shared_block;
}

// Threads that scatter the results of swapped operands hold addresses besides them.
static bool has_scatter_room(const TileSearch *search, const Answer *answer) {
    if (answer->staging > 0) return true;   // they are stored by TMA
    int64_t most = consumer_registers(search->target, PINGPONG_MOST, 1, search->target->registers_least);
    return fragment_registers(search->target, answer->kernel, 1) + 2 * PINGPONG_ROOM <= most;
}

// A tile that two warpgroups compute together, since one has too few registers for it.
static bool is_shared_tile(const TileSearch *search, const Answer *answer) {
    return answer->how.kind == WS_COOPERATIVE && answer->how.too_large &&
           shared_with(search, answer, pingpong_barriers(slots_of(&answer->estimate))) <= search->target->shared_block;
}

// Identifies a source kernel with its compile-time values: variants of one name differ in line or condition.
static const char *variant_key(const TileSearch *search, const Func *kernel) {
    StrBuf key;
    sb_init(&key, search->arena);
    sb_printf(&key, "%s:%u:", kernel->name, kernel->loc.line);
    if (kernel->when) print_expr(kernel->when, &key);
    return sb_text(&key);
}

TileChoice *tile_choice(TileSearch *search, const Func *kernel) {
    const char *key = variant_key(search, kernel);
    VEC_EACH_PTR (TileChoice, known, &search->choices)
        if (strcmp(known->key, key) == 0) return known;
    TileChoice *choice = NEW(search->arena, TileChoice);
    choice->key = key;
    choice->kernel = arena_strdup(search->arena, kernel->name);
    vec_push(search->arena, &search->choices, choice);
    return choice;
}

// The fallback variant (without TMA and wgmma) keeps operands and addresses of several instructions in registers.
static bool fits_fallback(const TileSearch *search, const Occupancy *estimate) {
    enum { MORE = 32 };
    return estimate->fits && estimate->registers + MORE <= search->target->registers_thread;
}

// Of candidates with equal tiles, the fastest is kept. A later (larger) one must be faster by 1/CLEARLY, since it
// wastes more of a partial last step. Of equally fast candidates the one with more bytes in flight is kept.
static bool is_better_cooperative(const TileChoice *choice, const TileCandidate *a, const TileCandidate *b) {
    enum { CLEARLY = 32 };
    if (a->rate < b->rate - b->rate / CLEARLY) return true;
    return !choice->by_rows && a->ring > b->ring && a->rate <= b->rate + b->rate / CLEARLY;
}

// Prefers enough stages; then less time per k, by a clear margin; then more bytes in flight.
static bool is_better(const TileCandidate *a, const TileCandidate *b) {
    enum { ENOUGH_SLOTS = 5, CLEARER = 50 };   // a fiftieth
    if (a->slots != b->slots && (a->slots < ENOUGH_SLOTS || b->slots < ENOUGH_SLOTS)) return a->slots > b->slots;
    int64_t own = a->cost.step * b->cost.k, other = b->cost.step * a->cost.k;
    if (own + own / CLEARER < other) return true;
    return a->ring > b->ring && other + other / CLEARER >= own;
}

// Adds a candidate to `tiles`, or keeps the better one of two with equal tiles.
static void add_candidate(TileSearch *search, const TileChoice *choice, TileVec *tiles, const TileCandidate *tile) {
    VEC_EACH (TileCandidate, other, tiles) {
        if (other->m != tile->m || other->n != tile->n || other->split != tile->split) continue;
        if (other->cluster[0] != tile->cluster[0] || other->cluster[1] != tile->cluster[1]) continue;
        if (other->alias_epilogue != tile->alias_epilogue && tile->m) continue;
        if (tile->rate ? is_better_cooperative(choice, tile, other) : is_better(tile, other)) *other = *tile;
        return;
    }
    vec_push(search->arena, tiles, *tile);
}

// Clocks of a step by what it multiplies.
static int64_t step_rate(const TileCandidate *tile) {
    enum { SCALE = 1 << 30 };
    return tile->cost.step * SCALE / (tile->m * tile->n * tile->cost.k);
}

static void compare_cooperative(TileSearch *search, TileChoice *choice, const Answer *answer, TileCandidate tile) {
    const Func *kernel = answer->kernel;
    tile.alias_epilogue = answer->staging > 0 && shared_with(search, answer, 0) == tile.ring;
    if (shared_with(search, answer, 0) > search->target->shared_block) return;
    tile.rate = cooperative_rate(search->arena, search->target, kernel, &tile.m);
    choice->by_rows = !cooperative_tile(search->arena, search->target, kernel, &tile.m, &tile.n, &tile.cost);
    if (!choice->by_rows) {
        tile.rate = step_rate(&tile);
        if (kernel_split(kernel).kind == SPLIT_NONE) tile.sharing = (Func *)kernel;
    }
    if (!cooperative_has_cost(search->arena, kernel))
        tile.m = tile.n = 0;   // no cost expression for a launch to compare: keep one tile
    add_candidate(search, choice, &choice->tiles, &tile);
}

static void swap_tiles(TileVec *tiles, int i, int j) {
    TileCandidate tile = tiles->items[i];
    tiles->items[i] = tiles->items[j];
    tiles->items[j] = tile;
}

// Moves the first tile to the end: the last tile has the fallback variant.
static void order_cooperative(TileChoice *choice) {
    enum { MOST = 4 };
    if (choice->tiles.count > MOST) choice->tiles.count = MOST;
    for (int i = 1; i < choice->tiles.count; i++) swap_tiles(&choice->tiles, i - 1, i);
}

// One warpgroup holds the accumulators and its share of the sums.
static bool holds_split(const TileSearch *search, const Func *shaped, int ctas) {
    int64_t sums = split_registers(search->arena, search->target, shaped, ctas);
    return fragment_registers(search->target, shaped, 1) + sums <= pingpong_limit(search->target);
}

// Clusters of 3 CTAs that share a tile's steps are harder to place and were not faster.
enum { LEAST_SLOTS = 4 };

static bool is_refused(const TileSearch *search, const Func *kernel, int ctas) {
    TileSplit split = {.kind = SPLIT_CLUSTER, .ctas = ctas};
    return split_refused(search->arena, search->target, kernel, &split) != NULL;
}

// Split-K within a cluster: partial results need shared memory besides the multi-buffered tiles. `shaped`: with operands swapped.
static void compare_splits(TileSearch *search, TileChoice *choice, const Func *kernel, const Func *shaped,
                           TileCandidate tile) {
    if (tile.ring + split_bytes(search->arena, kernel) > search->target->shared_block || tile.slots < LEAST_SLOTS)
        return;
    TileCandidate all = tile;
    for (tile.split = 2; tile.split <= search->target->max_cluster; tile.split *= 2) {
        if (is_refused(search, kernel, tile.split)) break;
        if (!holds_split(search, shaped, tile.split)) continue;
        tile.cost = cost_pingpong_split(search->arena, search->target, shaped, tile.split);
        add_candidate(search, choice, &choice->candidates, &tile);
        if (all.split == 1) all = tile;
        else all.splits = tile.split;
    }
    if (all.split > 1) add_candidate(search, choice, &choice->shared, &all);
}

const ClusterShape cluster_shapes[CLUSTER_SHAPES] = {{{2, 1}}, {{1, 2}}, {{2, 2}}, {{4, 1}},
                                                     {{1, 4}}, {{4, 2}}, {{2, 4}}, {{1, 1}}};

// Of the shapes those along the first name.
static unsigned along_first(unsigned shapes) {
    for (int i = 0; i < CLUSTER_SHAPES; i++)
        if (cluster_shapes[i].extents[1] > 1) shapes &= ~(1u << i);
    return shapes;
}

static void set_cluster_of(TileCandidate *tile, const ClusterShape *shape) {
    for (int d = 0; d < CLUSTER_NAMES; d++) tile->cluster[d] = tile->cost.cluster[d] = shape->extents[d];
}

static PingpongCost cost_in_cluster(const TileSearch *search, const TileCandidate *tile, const Func *kernel) {
    PingpongCost cost;
    int64_t m, n;
    if (tile->by_two) return cost_shared_tile(search->arena, search->target, kernel);
    bool by_loop = tile->rate > 0 && cooperative_tile(search->arena, search->target, kernel, &m, &n, &cost);
    return by_loop ? cost : cost_pingpong(search->arena, search->target, kernel, 1);
}

// CTAs that share the steps of such a tile may share loads, too, along the first name.
static void share_splits(TileSearch *search, TileChoice *choice, const TileCandidate *tile, unsigned shapes) {
    int own = choice->candidates.count;
    VEC_EACH (TileCandidate, split, &choice->shared) {
        if (split->split < 2 || split->m != tile->m || split->n != tile->n) continue;
        split->shapes = shapes;
        set_cluster_of(split, &cluster_shapes[0]);
    }
    for (int i = 0; i < own; i++) {
        TileCandidate one = choice->candidates.items[i];
        if (one.split < 2 || one.m != tile->m || one.n != tile->n) continue;
        for (int shape = 0; shape < ALONE; shape++) {
            if (!(shapes >> shape & 1) || one.split * cluster_shapes[shape].extents[0] > search->target->max_cluster)
                continue;
            set_cluster_of(&one, &cluster_shapes[shape]);
            vec_push(search->arena, &choice->candidates, one);
        }
    }
}

// Clusters of CTAs that share loads. Without costs a launch would take them always. An artefact for any launch keeps a tile with all
// shapes, as one kernel; what is compiled for one launch has that of one shape.
static void compare_clusters(TileSearch *search, TileChoice *choice, TileCandidate tile) {
    Func *kernel = tile.sharing;
    int *cluster = ((Stmt *)func_grid(kernel))->grid.cluster;
    TileCandidate all = tile;
    if (cluster_largest(func_grid(kernel)) > 1) return;   // a cluster of the source
    tile.sharing = all.sharing = NULL;
    for (int i = 0; i < CLUSTER_SHAPES; i++) {
        for (int d = 0; d < CLUSTER_NAMES; d++) cluster[d] = cluster_shapes[i].extents[d];
        if (i == ALONE) continue;
        if (multicast_problem(search->arena, search->target, kernel) || !specialized_steps(search->arena, kernel))
            continue;
        tile.cost = cost_in_cluster(search, &tile, kernel);
        set_cluster_of(&tile, &cluster_shapes[i]);
        add_candidate(search, choice, &choice->candidates, &tile);
        if (!all.shapes) all = tile;
        all.shapes |= 1u << i;
    }
    for (int d = 0; d < CLUSTER_NAMES; d++) cluster[d] = 1;
    all.shapes |= 1u << ALONE;
    bool every = all.shapes == (1u << CLUSTER_SHAPES) - 1;
    if (!every || !multicast_chooses(search->arena, kernel)) return;
    add_candidate(search, choice, &choice->shared, &all);
    if (split_serves_beyond(kernel)) share_splits(search, choice, &all, along_first(all.shapes));
}

// Whether the split kernel's sums have registers and shared memory is asked of itself.
static bool serves_split(const TileSearch *search, const Func *kernel, int ctas) {
    if (is_refused(search, kernel, ctas)) return false;
    const Func *clone = split_clone(search->arena, kernel, ctas);
    Specialization how = specialization_of(search->arena, search->target, clone);
    return how.kind == WS_COOPERATIVE && specialized_fits(search->arena, search->target, clone, &how) == FITS_STAGED;
}

// Split-K within a cluster, of a tile that warpgroups compute together.
static void compare_shared_splits(TileSearch *search, TileChoice *choice, TileCandidate tile) {
    const Func *kernel = tile.sharing;
    if (cluster_largest(func_grid(kernel)) > 1) return;   // a cluster of the source
    tile.sharing = NULL;
    TileCandidate all = tile;
    tile.cost = cost_with_sums(search->arena, search->target, kernel, tile.cost);
    for (tile.split = 2; tile.split <= search->target->max_cluster && serves_split(search, kernel, tile.split);
         tile.split *= 2) {
        add_candidate(search, choice, &choice->candidates, &tile);
        if (all.split == 1) all = tile;
        else all.splits = tile.split;
    }
    if (all.split > 1) add_candidate(search, choice, &choice->shared, &all);
}

static int64_t slot_bytes(const Occupancy *estimate) {
    int64_t bytes = 0;
    VEC_EACH (const OccupancyBuffer, buffer, &estimate->buffers)
        if (buffer->stages > 1) bytes += buffer->bytes / buffer->stages;
    return bytes;
}

// Out: what shared memory the combination takes.
static RingSize compare(TileSearch *search, TileChoice *choice, const Func *source, int combination) {
    const Func *kernel = as_streamed(search->arena, source);
    Answer answer = answer_of(search, kernel);
    if (choice->tiles.count == 0) choice->repacks = repack_stores(search->arena, search->target, kernel);
    TileCandidate tile = {.combination = combination,
                          .fallback = fits_fallback(search, &answer.estimate),
                          .without = cost_fallback(search->arena, search->target, answer.kernel, NULL),
                          .ring = answer.estimate.shared,
                          .slots = slots_of(&answer.estimate),
                          .split = 1};
    RingSize ring = {.slots = tile.slots, .slot = slot_bytes(&answer.estimate)};
    if (is_cooperative_by_loop(&answer.how)) {
        compare_cooperative(search, choice, &answer, tile);
        ring.other = true;
        return ring;
    }
    bool is_shared = is_shared_tile(search, &answer);
    bool would_be = answer.how.kind == WS_PINGPONG || (answer.how.kind == WS_COOPERATIVE && answer.how.too_large);
    bool fits = is_shared || is_pingpong(search, &answer);
    ring.too_large = would_be && !fits;
    ring.refused = !would_be || (fits && answer.kernel != kernel && !has_scatter_room(search, &answer));
    if (!fits || ring.refused) return ring;
    ring.shared = shared_with(search, &answer, pingpong_barriers(tile.slots));
    tile.cost = is_shared ? cost_shared_tile(search->arena, search->target, answer.kernel)
                          : cost_pingpong(search->arena, search->target, answer.kernel, 1);
    specialized_tile(kernel, &tile.m, &tile.n);
    tile.by_two = is_shared;
    if (kernel_split(source).kind == SPLIT_NONE) tile.sharing = (Func *)answer.kernel;
    if (is_shared) tile.fallback = false;   // whose threads would hold twice as much as those of the others
    add_candidate(search, choice, &choice->tiles, &tile);
    if (is_shared || !tile.sharing) return ring;   // a split in a source is kept
    tile.sharing = NULL;
    if (split_bytes(search->arena, kernel) > 0) ring.split = tile.ring + split_bytes(search->arena, kernel);
    compare_splits(search, choice, kernel, answer.kernel, tile);
    tile.split = BY_WORKSPACE;   // (with swapped operands partial results would be stored element by element)
    if (answer.kernel == kernel && can_split_k_workspace(search->arena, kernel))
        add_candidate(search, choice, &choice->shared, &tile);
    return ring;
}

// The sizes that people compare count as several others: as one, 1024 cubed had 0.66 of the speed before; as ten, 128 x 8192 x 8192
// had 0.92 (splits that no other size wants).
static double weight_of(int problem) {
    return problem < COMPARED_PROBLEMS ? 6 : 1;
}

// The clocks of a tile, in the best of its clusters. Out: in *best the tile in that cluster alone, unless NULL.
static double clocks_in(const TileSearch *search, LaunchCost cost, const TileCandidate *tile,
                        const int64_t extents[COST_EXTENTS], int64_t multiprocessors, TileCandidate *best) {
    TileCandidate one = *tile;
    double least = COST_NEVER;
    one.shapes = 0, one.splits = 0;
    for (int i = 0; i < (tile->shapes ? CLUSTER_SHAPES : 1); i++) {
        if (tile->shapes && !(tile->shapes >> i & 1)) continue;
        if (tile->shapes) set_cluster_of(&one, &cluster_shapes[i]);
        cost.cluster_rows = one.cost.cluster[0], cost.cluster_columns = one.cost.cluster[1];
        for (one.split = tile->split; one.split <= larger(tile->split, tile->splits); one.split = 2 * one.split) {
            if (one.split > 1 && one.split * larger(cost.cluster_rows, 1) > search->target->max_cluster) break;
            if (one.split > 1) cost.split = one.split;
            double clocks = cost_clocks(&cost, extents, multiprocessors);
            if (clocks < least && best) *best = one;
            if (clocks < least) least = clocks;
            if (one.split == BY_WORKSPACE) break;
        }
    }
    return least;
}

static TileProblem problem_of(const TileSearch *search, int p, int64_t element) {
    int64_t pitch = search_problems[p][2] * element;
    return (TileProblem){
        .multiprocessors = search->target->multiprocessors,
        .extents = {search_problems[p][0], search_problems[p][1], 1, search_problems[p][2], pitch, pitch}};
}

// The clocks of each problem, by the evaluator that launches use.
static void set_times(const TileSearch *search, TileVec *tiles) {
    VEC_EACH (TileCandidate, tile, tiles) {
        EXPECT(arena_failure(search->arena), tile->m > 0 && tile->n > 0 && tile->cost.k > 0,
               "a candidate of %lld x %lld, %lld of k", (long long)tile->m, (long long)tile->n,
               (long long)tile->cost.k);
        LaunchCost cost = launch_cost(search->target, tile);
        tile->times = NEW_ARRAY(search->arena, double, ALL_PROBLEMS);
        for (int p = 0; p < ALL_PROBLEMS; p++) {
            TileProblem problem = problem_of(search, p, tile->cost.element);
            tile->times[p] = clocks_in(search, cost, tile, problem.extents, problem.multiprocessors, NULL);
        }
    }
}

static void lower_times(double *times, const TileCandidate *tile, int problems) {
    for (int p = 0; p < problems; p++)
        if (tile->times[p] < times[p]) times[p] = tile->times[p];
}

// Takes the tile that lowers the sum of times most, given the best times of the first `problems` so far; returns the gain.
static double take_best(TileVec *tiles, int taken, double *times, int problems) {
    double best = 0;
    int at = taken;
    for (int i = taken; i < tiles->count; i++) {
        double gain = 0;
        for (int p = 0; p < problems; p++)
            if (tiles->items[i].times[p] < times[p]) gain += times[p] - tiles->items[i].times[p];
        if (gain > best) best = gain, at = i;
    }
    if (at >= tiles->count) return 0;
    swap_tiles(tiles, at, taken);
    lower_times(times, &tiles->items[taken], problems);
    return best;
}

// The last tile is the fallback of kernels without costs, so prefer a large one whose variant without TMA still fits.
static void put_largest_last(TileVec *tiles) {
    int largest = 0;
    for (int i = 1; i < tiles->count; i++) {
        const TileCandidate *tile = &tiles->items[i], *most = &tiles->items[largest];
        bool larger = tile->m * tile->n > most->m * most->n;
        if (tile->fallback == most->fallback ? larger : tile->fallback) largest = i;
    }
    if (tiles->count > 1) swap_tiles(tiles, largest, tiles->count - 1);
}

static double sum_without(const TileVec *tiles, int without) {
    double sum = 0, times[PROBLEMS];
    for (int p = 0; p < PROBLEMS; p++) times[p] = COST_NEVER;
    for (int i = 0; i < tiles->count; i++)
        if (i != without) lower_times(times, &tiles->items[i], PROBLEMS);
    for (int p = 0; p < PROBLEMS; p++) sum += times[p];
    return sum;
}

// Drops tiles that are not the fastest for any problem any more.
static void drop_needless(TileVec *tiles, double worth) {
    for (int i = tiles->count - 1; i >= 0 && tiles->count > 1; i--) {
        if (sum_without(tiles, i) - sum_without(tiles, -1) > worth) continue;
        for (int j = i + 1; j < tiles->count; j++) tiles->items[j - 1] = tiles->items[j];
        tiles->count--;
    }
}

static int most_tiles(const TileSearch *search, int most) {
    return search->most > 0 && search->most < most ? search->most : most;
}

// ---- problems that TMA cannot serve ----
//
// Some tiles are kept for them, too: a few whose operands are copied first, and a few without TMA, of which one serves everything.

// Tiles whose variant without TMA has enough registers, or all.
static TileVec able_to_fall_back(const TileSearch *search, const TileVec *tiles) {
    TileVec able = {0};
    VEC_EACH (const TileCandidate, tile, tiles)
        if (tile->fallback) vec_push(search->arena, &able, *tile);
    if (able.count == 0)
        VEC_EACH (const TileCandidate, tile, tiles) vec_push(search->arena, &able, *tile);
    return able;
}

// If none of the tensors has aligned rows.
static LaunchCost unaligned_cost(const Target *target, const TileCandidate *tile, RepackStores stores) {
    LaunchCost cost = tile->without;
    cost.tile_rows = tile->m, cost.tile_columns = tile->n;
    if (stores == REPACK_NEVER) return cost;
    const int64_t bytes[] = {tile->m * tile->cost.bytes, tile->n * tile->cost.bytes};
    bool swapped = is_swapped(tile);   // whose results threads scatter where TMA cannot store them
    cost = launch_cost(target, tile);
    if (stores == REPACK_SCATTERED || swapped)
        cost.tail += ceil_div(swapped ? tile->n : tile->m, WGMMA_ROWS) * (swapped ? tile->m : tile->n) *
                     target->wgmma.scattered_clocks;
    add_copies(target, bytes, COUNT_OF(bytes), &cost);
    return cost;
}

// The clocks of each problem, and the least of all tiles.
static void set_unaligned_times(const TileSearch *search, TileVec *tiles, RepackStores stores, double *least) {
    VEC_EACH (TileCandidate, tile, tiles) tile->times = NEW_ARRAY(search->arena, double, PROBLEMS);
    for (int p = 0; p < PROBLEMS; p++) {
        const int64_t extents[COST_EXTENTS] = {search_problems[p][0], search_problems[p][1], 1, search_problems[p][2]};
        VEC_EACH (TileCandidate, tile, tiles) {
            LaunchCost cost = unaligned_cost(search->target, tile, stores);
            tile->times[p] = cost_clocks(&cost, extents, search->target->multiprocessors);
        }
    }
    VEC_EACH (const TileCandidate, tile, tiles) lower_times(least, tile, PROBLEMS);
}

static void divide_times(TileVec *tiles, const double *least) {
    VEC_EACH (TileCandidate, tile, tiles)
        for (int p = 0; p < PROBLEMS; p++) tile->times[p] /= least[p];
}

static const double worth_a_tile = 1;   // what a tile more must save: the time of one problem

typedef struct RepackedSet {
    int count;
    const TileCandidate *tiles[MOST_REPACKED];
} RepackedSet;

// Moves the tiles without TMA that add most to `repacked` to the front. Out: their number, and in *sum the time of all problems.
static int best_fallbacks(const TileSearch *search, TileVec *able, const RepackedSet *repacked, double *sum) {
    const double UNSERVED = 1e6;   // of the time of one problem
    double times[PROBLEMS];
    int kept = 0, most = most_tiles(search, MOST_FALLBACKS);
    for (int p = 0; p < PROBLEMS; p++) times[p] = UNSERVED;
    for (int i = 0; i < repacked->count; i++) lower_times(times, repacked->tiles[i], PROBLEMS);
    while (kept < able->count && kept < most && (take_best(able, kept, times, PROBLEMS) > worth_a_tile || kept == 0))
        kept++;
    *sum = 0;
    for (int p = 0; p < PROBLEMS; p++) *sum += times[p];
    return kept;
}

// Exchanges the tile at `at` for the one with which all problems take least, if that is less than *sum.
static void exchange(const TileSearch *search, TileVec *able, const TileVec *repacked, RepackedSet *set, int at,
                     double *sum) {
    RepackedSet with = *set;
    double time;
    VEC_EACH (const TileCandidate, tile, repacked) {
        with.tiles[at] = tile;
        best_fallbacks(search, able, &with, &time);
        if (time < *sum) *sum = time, *set = with;
    }
}

static RepackedSet best_repacked(const TileSearch *search, TileVec *able, const TileVec *repacked) {
    RepackedSet best = {0};
    double fewest;
    best_fallbacks(search, able, &best, &fewest);
    while (best.count < most_tiles(search, MOST_REPACKED) && repacked->count > 0) {
        RepackedSet more = best;
        double sum = fewest;
        more.tiles[more.count++] = repacked->items;
        for (int at = more.count - 1; at >= 0; at--) exchange(search, able, repacked, &more, at, &sum);
        if (fewest - sum <= worth_a_tile) break;
        best = more, fewest = sum;
    }
    return best;
}

static void keep_unaligned(const TileSearch *search, TileChoice *choice) {
    double least[PROBLEMS], sum;
    TileVec able = able_to_fall_back(search, &choice->tiles), repacked = {0};
    for (int p = 0; p < PROBLEMS; p++) least[p] = COST_NEVER;
    VEC_EACH (const TileCandidate, tile, &choice->tiles)
        if (choice->repacks != REPACK_NEVER) vec_push(search->arena, &repacked, *tile);
    set_unaligned_times(search, &able, REPACK_NEVER, least);
    set_unaligned_times(search, &repacked, choice->repacks, least);
    divide_times(&able, least);
    divide_times(&repacked, least);
    RepackedSet best = best_repacked(search, &able, &repacked);
    int kept = best_fallbacks(search, &able, &best, &sum);
    VEC_EACH (TileCandidate, tile, &choice->tiles) {
        for (int i = 0; i < best.count; i++) tile->keeps_repacked |= tile->combination == best.tiles[i]->combination;
        for (int i = 0; i < kept; i++) tile->keeps_fallback |= tile->combination == able.items[i].combination;
    }
}

static void keep_few(const TileSearch *search, TileChoice *choice) {
    const double WORTH_A_TILE = 0.01, NEEDLESS = 1e-6,
                 UNSERVED = 1e6;   // of the time of one problem
    double least[PROBLEMS], times[PROBLEMS];
    TileVec *tiles = &choice->tiles;
    int kept = 0;
    set_times(search, tiles);
    for (int p = 0; p < PROBLEMS; p++) {
        least[p] = COST_NEVER;
        times[p] = UNSERVED;
    }
    VEC_EACH (const TileCandidate, tile, tiles) lower_times(least, tile, PROBLEMS);
    VEC_EACH (TileCandidate, tile, tiles)
        for (int p = 0; p < PROBLEMS; p++) tile->times[p] *= weight_of(p) / least[p];
    int most = most_tiles(search, MOST_TILES);
    while (kept < tiles->count && kept < most && take_best(tiles, kept, times, PROBLEMS) > WORTH_A_TILE) kept++;
    tiles->count = kept;
    drop_needless(tiles, NEEDLESS);
    put_largest_last(tiles);
    keep_unaligned(search, choice);
}

// Inserts, after the kept tiles but before the last, those of the candidates that make most problems faster.
static void keep_more(const TileSearch *search, TileChoice *choice, TileVec *candidates) {
    const double WORTH = 0.5;   // of the time of one problem
    double times[ALL_PROBLEMS];
    set_times(search, &choice->tiles);
    set_times(search, candidates);
    for (int p = 0; p < ALL_PROBLEMS; p++) times[p] = COST_NEVER;
    VEC_EACH (const TileCandidate, tile, &choice->tiles) lower_times(times, tile, ALL_PROBLEMS);
    int room = most_tiles(search, MOST_VARIANTS) - choice->tiles.count;
    for (int kept = 0; kept < room && choice->tiles.count > 0; kept++) {
        const TileCandidate *best = NULL;
        double largest = WORTH;
        VEC_EACH (const TileCandidate, tile, candidates) {
            double gain = 0;
            for (int p = 0; p < ALL_PROBLEMS; p++)
                if (tile->times[p] < times[p]) gain += weight_of(p) * (times[p] - tile->times[p]) / times[p];
            if (gain > largest) largest = gain, best = tile;
        }
        if (!best) return;
        vec_push(search->arena, &choice->tiles, *best);
        swap_tiles(&choice->tiles, choice->tiles.count - 2, choice->tiles.count - 1);
        lower_times(times, best, ALL_PROBLEMS);
    }
}

static void append_tiles(const TileSearch *search, const TileVec *from, TileVec *to) {
    VEC_EACH (const TileCandidate, tile, from) vec_push(search->arena, to, *tile);
}

// What variants have in common is said a single time in a row of them. The last one stays.
static int kind_of(const TileCandidate *tile) {
    return tile->split == BY_WORKSPACE ? 3 : tile->split > 1 ? 2 : tile->shapes ? 1 : 0;
}

static void sort_by_kind(TileVec *tiles) {
    for (int i = 1; i + 1 < tiles->count; i++)
        for (int j = i; j > 0 && kind_of(&tiles->items[j - 1]) > kind_of(&tiles->items[j]); j--)
            swap_tiles(tiles, j - 1, j);
}

// Drops the clusters in which a tile is the fastest for none of the problems.
static void drop_shapes(const TileSearch *search, TileChoice *choice) {
    TileVec *tiles = &choice->tiles;
    enum { PAIRS = 3 };   // the first two
    unsigned *used = NEW_ARRAY(search->arena, unsigned, tiles->count + 1);
    bool any = false;
    VEC_EACH (const TileCandidate, tile, tiles) any |= tile->shapes != 0;
    for (int p = 0; p < ALL_PROBLEMS && any; p++) {
        TileProblem problem = problem_of(search, p, tiles->items[0].cost.element);
        TileCandidate best, one;
        double least = COST_NEVER;
        int at = 0;
        VEC_EACH (const TileCandidate, tile, tiles) {
            double clocks = clocks_in(search, launch_cost(search->target, tile), tile, problem.extents,
                                      problem.multiprocessors, &one);
            if (clocks < least) least = clocks, best = one, at = (int)(tile - tiles->items);
        }
        for (int i = 0; least < COST_NEVER && i < CLUSTER_SHAPES; i++)
            if (memcmp(cluster_shapes[i].extents, best.cluster, sizeof best.cluster) == 0) used[at] |= 1u << i;
    }
    VEC_EACH (TileCandidate, tile, tiles) {
        if (!tile->shapes) continue;
        unsigned least = tile->split > 1 ? along_first(PAIRS) : PAIRS;   // (all have the same expressions then)
        tile->shapes = used[tile - tiles->items] | least;
        set_cluster_of(tile, &cluster_shapes[__builtin_ctz(tile->shapes)]);
    }
}

static void keep_tiles(TileSearch *search, TileChoice *choice) {
    TileVec more = {0};
    VEC_EACH (const TileCandidate, tile, &choice->tiles)
        if (tile->sharing) {
            if (tile->rate > 0 && tile->slots >= LEAST_SLOTS) compare_shared_splits(search, choice, *tile);
            compare_clusters(search, choice, *tile);
        }
    append_tiles(search, &choice->tiles, &more);
    append_tiles(search, &choice->shared, &more);
    append_tiles(search, &more, &choice->candidates);
    keep_few(search, choice);
    keep_more(search, choice, &more);
    drop_shapes(search, choice);
    sort_by_kind(&choice->tiles);
}

// Whether the source's only tile is more than one variant.
static bool has_more(const TileVec *tiles) {
    return tiles->count > 1 || (tiles->count == 1 && tiles->items[0].keeps_repacked);
}

static void count_tiles(TileSearch *search) {
    search->tile_count = 1;
    VEC_EACH_PTR (TileChoice, choice, &search->choices)
        if (choice->tiles.count > search->tile_count) search->tile_count = choice->tiles.count;
}

bool tile_search_decide(TileSearch *search) {
    bool more = false;
    VEC_EACH_PTR (TileChoice, choice, &search->choices) {
        if (choice->decided) continue;
        choice->decided = true;
        if (choice->tiles.count > 0 && choice->by_rows) order_cooperative(choice);
        else keep_tiles(search, choice);
        if (choice->fixed && !has_more(&choice->tiles)) choice->tiles = choice->candidates = (TileVec){0};
        else more = true;
        choice->kept = choice->tiles;
    }
    count_tiles(search);
    return more;
}

// ---- one launch ----
//
// Of a kernel that is compiled for one launch all tiles are compared, with clusters and splits: some hundred, where an artefact for any
// launch keeps MOST_VARIANTS. (240 products, of the fastest tile's time: all of them 1.04, 34 of them 1.10.)

static const TileCandidate *last_tile(const TileChoice *choice) {
    return &choice->kept.items[choice->kept.count - 1];
}

// What the kernel's variants are chosen by; NULL: not by these costs, or there are variants of several choices.
static TileChoice *only_choice(const TileSearch *search, const char *kernel) {
    TileChoice *only = NULL;
    VEC_EACH_PTR (TileChoice, choice, &search->choices) {
        if (strcmp(choice->kernel, kernel) != 0 || choice->tiles.count == 0) continue;
        if (only || choice->candidates.count == 0 || choice->by_rows) return NULL;
        only = choice;
    }
    return only;
}

bool tile_search_probe(TileSearch *search, const char *kernel) {
    TileChoice *choice = only_choice(search, kernel);
    if (!choice) return false;
    choice->tiles = (TileVec){0};
    vec_push(search->arena, &choice->tiles, *last_tile(choice));
    count_tiles(search);
    return true;
}

// The tile of `tiles` that takes least, in a single cluster, and its clocks. COST_NEVER: there is none.
static double fastest(const TileSearch *search, const TileVec *tiles, const TileProblem *problem, TileCandidate *best) {
    double least = COST_NEVER;
    VEC_EACH (const TileCandidate, tile, tiles) {
        TileCandidate one;
        double clocks = clocks_in(search, launch_cost(search->target, tile), tile, problem->extents,
                                  problem->multiprocessors, &one);
        if (clocks < least) least = clocks, *best = one;
    }
    return least;
}

static bool is_same_tile(const TileCandidate *a, const TileCandidate *b) {
    bool same = a->combination == b->combination && a->split == b->split;
    for (int d = 0; d < CLUSTER_NAMES; d++) same &= larger(a->cluster[d], 1) == larger(b->cluster[d], 1);
    return same;
}

// The more tiles are compared, the more often the least is too low a guess: one that is not kept for its speed at many problems has
// to be faster by more than the model's error.
void tile_search_keep(TileSearch *search, const char *kernel, const TileProblem *problem) {
    const double CLEARLY = 1.02;
    TileChoice *choice = only_choice(search, kernel);
    TileCandidate best = {0}, known = {0};
    double clocks = fastest(search, &choice->candidates, problem, &best);
    double kept = fastest(search, &choice->kept, problem, &known);
    if (clocks * CLEARLY >= kept) best = known, clocks = kept;
    const TileCandidate *last = last_tile(choice);
    choice->tiles = (TileVec){0};
    if (clocks < COST_NEVER && !is_same_tile(&best, last)) vec_push(search->arena, &choice->tiles, best);
    vec_push(search->arena, &choice->tiles, *last);
    count_tiles(search);
}

void tile_search_keep_all(TileSearch *search) {
    VEC_EACH_PTR (TileChoice, choice, &search->choices) choice->tiles = choice->kept;
    count_tiles(search);
}

bool tile_search_chooses(const TileSearch *search, const char *kernel) {
    VEC_EACH_PTR (TileChoice, choice, &search->choices)
        if (choice->tiles.count > 0 && strcmp(choice->kernel, kernel) == 0) return true;
    return false;
}

// A product by tile operations, of the source: what the search or a pass made is taken as it is.
static bool is_source_product(const Func *kernel) {
    const AttrId made[] = {ATTR_TILE_VARIANT, ATTR_WITH_FALLBACK, ATTR_FALLBACK, ATTR_GIVEN_FACTS, ATTR_TUNED};
    bool product = false;
    if (kernel->cost || planned_kind(kernel) != WS_NONE) return false;
    for (int i = 0; i < COUNT_OF(made); i++)
        if (attr_get(kernel->attrs, made[i])) return false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD || via_of(stmt) != VIA_NONE) return false;
        product |= is_call(stmt, OP_GEMM);
    }
    return product;
}

int tile_search_check(void *user, Module *module, Func *kernel, int combination, int last) {
    TileSearch *search = user;
    const int fits = combination, next = combination + 1;
    const bool fixed = last == 0;
    (void)module;
    if (fixed && (search->try_all || search->most == 1 || !target_has(search->target, FEATURE_WGMMA) ||
                  !is_source_product(kernel)))
        return next;
    normalize_loops(search->arena, kernel);
    split_tiles(search->arena, search->target, kernel);
    raise_copies(search->arena, kernel);
    fuse_loops(search->arena, kernel);
    join_products(search->arena, kernel);
    merge_fragments(search->arena, kernel);
    pipeline_loops(search->arena, search->target, kernel);
    stage_vectors(search->arena, search->target, kernel);
    if (!kernel_is_supported(kernel, search->target)) return fits;   // prune_variants removes it
    if (target_has(search->target, FEATURE_WGMMA) && !search->try_all) {
        TileChoice *choice = tile_choice(search, kernel);
        if (!choice->decided) {
            RingSize ring = compare(search, choice, kernel, combination);
            choice->fixed |= fixed;
            if (fixed) return next;
            return next_combination(search, choice, kernel, &ring, combination, last);
        }
        int last = choice->tiles.count - 1, tile = search->tile_index < last ? search->tile_index : last;
        if (last >= 0) return choice->tiles.items[tile].combination;
    }
    if (fixed) return next;
    const char *variant = variant_key(search, kernel);
    if (search->variant && strcmp(search->variant, variant) != 0 && !search->try_all) {
        if (!search->settled) return fits;   // an earlier kernel does not fit: nothing else matters
        search->variant = search->smallest_tunables = search->largest_tunables = NULL;
        search->settled = false;
        search->tried = 0;
    }
    if (!search->variant) search->variant = variant;
    if (strcmp(search->variant, variant) != 0) return fits;
    search->kernel = arena_strdup(search->arena, kernel->name);
    search->loc = kernel->loc;
    Answer answer = answer_of(search, as_streamed(search->arena, kernel));
    if (is_cooperative_by_loop(&answer.how))   // its roles set their own register counts
        answer.estimate.fits = specialized_fits(search->arena, search->target, answer.kernel, &answer.how) != FITS_NOT;
    remember(search, &answer.estimate, tunables_text(search->arena, kernel));
    return answer.estimate.fits && !search->try_all ? fits : next;
}
