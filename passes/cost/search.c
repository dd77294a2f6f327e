// The search over combinations of tunables: the first that fits, or the few that are fastest (passes/cost/search.h).
#include "ir/build.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "passes/cost/cost.h"
#include "passes/cost/search_internal.h"
#include "passes/specialize/warp_specialize.h"
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

const Func *as_specialized(const TileSearch *search, const Func *kernel) {
    const Func *swapped = operands_swapped(search->arena, search->target, kernel);
    return swapped ? swapped : kernel;
}

static int64_t slots_of(const Occupancy *estimate) {
    int64_t slots = 1;
    for (int i = 0; i < estimate->buffers.count; i++)
        if (estimate->buffers.items[i].stages > slots) slots = estimate->buffers.items[i].stages;
    return slots;
}

static bool is_pingpong(const TileSearch *search, const Func *kernel, const Occupancy *estimate) {
    int64_t shared = estimate->shared + pingpong_barriers(slots_of(estimate));
    shared += specialized_staging(search->arena, search->target, kernel, shared);
    bool pingpong = specialization_of(search->arena, search->target, kernel).kind == WS_PINGPONG;
    return pingpong && shared <= search->target->shared_block;
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
    if (!search->choices) search->choices = strmap_new(search->arena);
    TileChoice *choice = strmap_get(search->choices, key);
    if (choice) return choice;
    choice = NEW(search->arena, TileChoice);
    choice->kernel = arena_strdup(search->arena, kernel->name);
    strmap_put(search->choices, key, choice);
    return choice;
}

// The fallback variant (without TMA and wgmma) keeps operands and addresses of several instructions in registers.
static bool fits_fallback(const TileSearch *search, const Occupancy *estimate) {
    enum { MORE = 32 };
    return estimate->fits && estimate->registers + MORE <= search->target->registers_thread;
}

// Of candidates with equal tiles, the fastest is kept. A later (larger) one must be faster by 1/CLEARLY, since it
// wastes more of a partial last step. Of equally fast candidates the one with more bytes in flight is kept.
enum { CLEARLY = 32 };

static bool is_better_cooperative(const TileChoice *choice, const TileCandidate *a, const TileCandidate *b) {
    if (a->rate < b->rate - b->rate / CLEARLY) return true;
    return !choice->by_rows && a->ring > b->ring && a->rate <= b->rate + b->rate / CLEARLY;
}

// Whether the epilogue reuses an operand's tile, because shared memory has no space for staging.
bool aliases_epilogue(const TileSearch *search, const Func *kernel) {
    Occupancy estimate = occupancy_estimate(search->arena, kernel, search->target);
    return specialized_staging(search->arena, search->target, kernel, 0) > 0 &&
           specialized_staging(search->arena, search->target, kernel, estimate.shared) == 0;
}

static void compare_cooperative(TileSearch *search, TileChoice *choice, const Func *kernel, int combination) {
    Occupancy estimate = occupancy_estimate(search->arena, kernel, search->target);
    int64_t staging = specialized_staging(search->arena, search->target, kernel, estimate.shared);
    if (estimate.shared + staging > search->target->shared_block) return;
    bool alias_epilogue = aliases_epilogue(search, kernel);
    TileCandidate tile = {.alias_epilogue = alias_epilogue,
                          .combination = combination,
                          .fallback = fits_fallback(search, &estimate),
                          .ring = estimate.shared,
                          .split = 1};
    tile.rate = cooperative_rate(search->arena, search->target, kernel, &tile.m);
    choice->by_rows = !cooperative_tile(search->arena, search->target, kernel, &tile.m, &tile.n, &tile.cost);
    if (!cost_cooperative(search->arena, search->target, kernel, alias_epilogue))
        tile.m = tile.n = 0;   // no cost expression for a launch to compare: keep one tile
    VEC_EACH (TileCandidate, other, &choice->tiles) {
        if (other->m != tile.m || other->n != tile.n || (other->alias_epilogue != alias_epilogue && tile.m)) continue;
        if (is_better_cooperative(choice, &tile, other)) *other = tile;
        return;
    }
    vec_push(search->arena, &choice->tiles, tile);
}

// Moves the first tile to the end: the last tile has the fallback variant.
static void order_cooperative(TileChoice *choice) {
    enum { MOST = 4 };
    if (choice->tiles.count > MOST) choice->tiles.count = MOST;
    TileCandidate first = choice->tiles.items[0];
    for (int i = 1; i < choice->tiles.count; i++) choice->tiles.items[i - 1] = choice->tiles.items[i];
    choice->tiles.items[choice->tiles.count - 1] = first;
}

// Prefers enough stages; then less time per k, by a clear margin; then more bytes in flight.
static bool is_better(const TileCandidate *a, const TileCandidate *b) {
    enum { ENOUGH_SLOTS = 5, CLEARER = 50 };   // a fiftieth
    if (a->slots != b->slots && (a->slots < ENOUGH_SLOTS || b->slots < ENOUGH_SLOTS)) return a->slots > b->slots;
    int64_t own = a->cost.step * b->cost.k, other = b->cost.step * a->cost.k;
    if (own + own / CLEARER < other) return true;
    return a->ring > b->ring && other + other / CLEARER >= own;
}

static void add_split(TileSearch *search, TileChoice *choice, const TileCandidate *tile) {
    VEC_EACH (TileCandidate, other, &choice->splits) {
        if (other->m != tile->m || other->n != tile->n || other->split != tile->split) continue;
        if (is_better(tile, other)) *other = *tile;
        return;
    }
    vec_push(search->arena, &choice->splits, *tile);
}

// (Not with swapped operands: partial results would be stored element by element.)
static void compare_workspace_split(TileSearch *search, TileChoice *choice, const Func *kernel, TileCandidate tile) {
    if (!can_split_k_workspace(kernel) || as_specialized(search, kernel) != kernel) return;
    tile.split = BY_WORKSPACE;
    add_split(search, choice, &tile);
}

// Split-K within a cluster: partial results need shared memory besides the multi-buffered tiles.
static void compare_splits(TileSearch *search, TileChoice *choice, const Func *kernel, TileCandidate tile) {
    enum {
        LEAST_SLOTS = 4,
        MOST_BLOCKS = 4
    };   // larger clusters, and those of 3, are harder to place and were not faster
    if (tile.ring + split_bytes(kernel) > search->target->shared_block || tile.slots < LEAST_SLOTS) return;
    for (tile.split = 2; tile.split <= MOST_BLOCKS; tile.split *= 2) {
        if (!can_split(search->target, kernel, tile.split)) continue;
        tile.cost = cost_pingpong_split(search->target, kernel, tile.split);
        add_split(search, choice, &tile);
    }
}

static void compare(TileSearch *search, TileChoice *choice, const Func *kernel, int combination) {
    const Func *specialized = as_specialized(search, kernel);
    Occupancy estimate = occupancy_estimate(search->arena, specialized, search->target);
    Specialization how = specialization_of(search->arena, search->target, specialized);
    if (is_cooperative_by_loop(&how)) {
        compare_cooperative(search, choice, specialized, combination);
        return;
    }
    if (!is_pingpong(search, specialized, &estimate)) return;
    TileCandidate tile = {.combination = combination,
                          .fallback = fits_fallback(search, &estimate),
                          .ring = estimate.shared,
                          .slots = slots_of(&estimate),
                          .split = 1};
    tile.cost = cost_pingpong(search->target, specialized, 1);
    specialized_tile(kernel, &tile.m, &tile.n);
    compare_splits(search, choice, specialized, tile);
    compare_workspace_split(search, choice, kernel, tile);
    VEC_EACH (TileCandidate, other, &choice->tiles) {
        if (other->m != tile.m || other->n != tile.n) continue;
        if (is_better(&tile, other)) *other = tile;
        return;
    }
    vec_push(search->arena, &choice->tiles, tile);
}

// Problems (m, n, k) that the kept tiles are chosen for: square ones and others.
static const int64_t problems[][3] = {
    {256, 256, 256},       {512, 512, 512},    {1024, 1024, 1024}, {1536, 1536, 1536}, {2048, 2048, 2048},
    {3072, 3072, 3072},    {4096, 4096, 4096}, {6144, 6144, 6144}, {8192, 8192, 8192}, {16, 8192, 8192},
    {32, 8192, 8192},      {48, 8192, 8192},   {64, 8192, 8192},   {96, 8192, 8192},   {128, 8192, 8192},
    {192, 14336, 4096},    {256, 8192, 8192},  {256, 4096, 4096},  {1024, 8192, 8192}, {4096, 14336, 4096},
    {16384, 16384, 16384}, {8192, 1024, 8192}, {8192, 8192, 1024}};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

// Clusters that are co-resident: multiprocessors come in groups of pairs, which clusters of more than 2 CTAs do not
// fill.
static int64_t clusters_of(const TileSearch *search, int64_t multiprocessors, int split) {
    int64_t clusters = multiprocessors / split;
    return split > 2 ? clusters - clusters / search->target->wgmma.stray_clusters : clusters;
}

// Split-K by workspace: the limit of the main kernel is the tensor cores, the arrival of tiles, or memory. It stores
// partial results without TMA; a second kernel reads and adds them.
static double workspace_clocks(const TileSearch *search, const TileCandidate *tile, const int64_t *problem) {
    const WgmmaCosts *costs = &search->target->wgmma;
    int64_t rows = ceiling(problem[0], tile->m) * tile->m, columns = ceiling(problem[1], tile->n) * tile->n;
    int64_t tiles = rows / tile->m * (columns / tile->n), all = ceiling(problem[2], tile->cost.k);
    int64_t splits = larger(smaller(search->target->multiprocessors / tiles, all / WORKSPACE_STEPS), 1);
    int64_t waves = ceiling(tiles * splits, search->target->multiprocessors);
    int64_t loop = waves * ceiling(all, splits) * larger(tile->cost.step, tile->cost.stream);
    int64_t memory = (rows + columns) * all * tile->cost.bytes / costs->memory_bytes;
    int64_t sums = splits * rows * columns * 2 * (int64_t)sizeof(float) / costs->workspace_bytes;
    int64_t store = tile->n * (costs->tail_clocks + costs->scattered_clocks);
    int64_t zeros = (rows - problem[0]) * (columns / tile->n) + (columns - problem[1]) * (rows / tile->m);
    zeros = zeros * all * tile->cost.bytes / costs->zero_bytes;
    return (double)(larger(loop, memory) + zeros + waves * store + sums + costs->second_launch_clocks);
}

static double clocks_of(const TileSearch *search, const TileCandidate *tile, const int64_t *problem) {
    EXPECT(arena_failure(search->arena), tile->m > 0 && tile->n > 0 && tile->cost.k > 0,
           "a candidate of %lld x %lld, %lld of k", (long long)tile->m, (long long)tile->n, (long long)tile->cost.k);
    if (tile->split == BY_WORKSPACE) return workspace_clocks(search, tile, problem);
    const WgmmaCosts *costs = &search->target->wgmma;
    int64_t rows = (problem[0] + tile->m - 1) / tile->m, columns = (problem[1] + tile->n - 1) / tile->n;
    int64_t blocks = clusters_of(search, search->target->multiprocessors, tile->split),
            waves = (rows * columns + blocks - 1) / blocks;
    int64_t all = (problem[2] + tile->cost.k - 1) / tile->cost.k, steps = (all + tile->split - 1) / tile->split;
    int64_t tails = tile->cost.hidden ? 1 : waves, step = tile->cost.step, zeros = 0;
    if (rows <= STREAM_READERS || columns <= STREAM_READERS) {
        if (step < tile->cost.stream) step = tile->cost.stream;
        zeros = (rows * tile->m - problem[0]) * columns + (columns * tile->n - problem[1]) * rows;
    }
    int64_t loop = waves * steps * step, loads = rows * columns * all * tile->cost.loaded;
    int64_t readers = rows < columns ? rows : columns;
    bool independent =
        tile->split > 1 && readers >= STREAM_READERS;   // they do not read shared operands at the same time
    if (independent && loop < loads / costs->cluster_bytes) loop = loads / costs->cluster_bytes;
    int64_t cost = loop + tails * tile->cost.tail + zeros * all * tile->cost.bytes / costs->zero_bytes;
    return (double)cost;
}

// Takes the tile that lowers the sum of relative times most, given the best times so far (0: none); returns the gain.
static double take_best(const TileSearch *search, TileChoice *choice, int taken, const double *least, double *times) {
    double best = 0;
    int at = taken;
    for (int i = taken; i < choice->tiles.count; i++) {
        double gain = 0;
        for (int p = 0; p < PROBLEMS; p++) {
            double time = clocks_of(search, &choice->tiles.items[i], problems[p]) / least[p];
            double before = times[p] ? times[p] : 1e6;
            gain += time < before ? before - time : 0;
        }
        if (gain > best) best = gain, at = i;
    }
    if (at >= choice->tiles.count) return 0;
    TileCandidate tile = choice->tiles.items[at];
    choice->tiles.items[at] = choice->tiles.items[taken];
    choice->tiles.items[taken] = tile;
    for (int p = 0; p < PROBLEMS; p++) {
        double time = clocks_of(search, &tile, problems[p]) / least[p];
        if (!times[p] || time < times[p]) times[p] = time;
    }
    return best;
}

// The last tile is the fallback for problems that the conditions of the others exclude: prefer a large tile whose
// variant without TMA still fits.
static void put_largest_last(TileChoice *choice) {
    int largest = 0, last = choice->tiles.count - 1;
    for (int i = 1; i <= last; i++) {
        const TileCandidate *tile = &choice->tiles.items[i], *most = &choice->tiles.items[largest];
        bool larger = tile->m * tile->n > most->m * most->n;
        if (tile->fallback == most->fallback ? larger : tile->fallback) largest = i;
    }
    if (last < 1) return;
    TileCandidate tile = choice->tiles.items[largest];
    choice->tiles.items[largest] = choice->tiles.items[last];
    choice->tiles.items[last] = tile;
}

static double sum_without(const TileSearch *search, const TileChoice *choice, int without, const double *least) {
    double sum = 0;
    for (int p = 0; p < PROBLEMS; p++) {
        double time = 1e300;
        for (int i = 0; i < choice->tiles.count; i++) {
            double own = i == without ? 1e300 : clocks_of(search, &choice->tiles.items[i], problems[p]) / least[p];
            if (own < time) time = own;
        }
        sum += time;
    }
    return sum;
}

// Drops tiles that are not the fastest for any problem any more.
static void drop_needless(const TileSearch *search, TileChoice *choice, const double *least, double worth) {
    for (int i = choice->tiles.count - 1; i >= 0 && choice->tiles.count > 1; i--) {
        if (sum_without(search, choice, i, least) - sum_without(search, choice, -1, least) > worth) continue;
        for (int j = i + 1; j < choice->tiles.count; j++) choice->tiles.items[j - 1] = choice->tiles.items[j];
        choice->tiles.count--;
    }
}

static void keep_few(const TileSearch *search, TileChoice *choice) {
    const double WORTH_A_TILE = 0.008, NEEDLESS = 1e-6;   // of the time of one problem
    double least[PROBLEMS], times[PROBLEMS] = {0};
    for (int p = 0; p < PROBLEMS; p++) {
        least[p] = 1e300;
        for (int i = 0; i < choice->tiles.count; i++) {
            double time = clocks_of(search, &choice->tiles.items[i], problems[p]);
            if (time < least[p]) least[p] = time;
        }
    }
    int kept = 0;
    while (kept < choice->tiles.count && kept < MOST_TILES &&
           take_best(search, choice, kept, least, times) > WORTH_A_TILE)
        kept++;
    choice->tiles.count = kept;
    drop_needless(search, choice, least, NEEDLESS);
    put_largest_last(choice);
}

// Problems with few tiles of C and a long K.
static const int64_t deep_problems[][3] = {
    {64, 1024, 8192},   {128, 128, 16384},  {128, 1024, 8192}, {256, 256, 8192},   {512, 512, 16384},
    {1024, 1024, 8192}, {64, 2048, 8192},   {256, 1024, 4096}, {16, 1024, 4096},   {16, 1024, 28672},
    {16, 2048, 8192},   {16, 4096, 4096},   {32, 1024, 8192},  {32, 1024, 28672},  {64, 1024, 28672},
    {96, 1024, 28672},  {128, 1024, 28672}, {256, 1024, 8192}, {256, 1024, 28672}, {512, 1024, 28672},
    {32, 4096, 4096},   {16, 2048, 2048},   {64, 4096, 4096}};
enum { DEEP = sizeof deep_problems / sizeof deep_problems[0] };

// Inserts split-K tiles that make deep problems faster, after the kept tiles but before the last.
static void keep_splits(const TileSearch *search, TileChoice *choice) {
    const double WORTH_A_SPLIT = 0.05;   // of the time of one problem
    double times[DEEP];
    for (int p = 0; p < DEEP; p++) {
        times[p] = 1e300;
        for (int i = 0; i < choice->tiles.count; i++) {
            double time = clocks_of(search, &choice->tiles.items[i], deep_problems[p]);
            if (time < times[p]) times[p] = time;
        }
    }
    for (int kept = 0; kept < MOST_SPLITS && choice->tiles.count > 0; kept++) {
        int best = -1;
        double most = WORTH_A_SPLIT;
        for (int i = 0; i < choice->splits.count; i++) {
            double gain = 0;
            for (int p = 0; p < DEEP; p++) {
                double time = clocks_of(search, &choice->splits.items[i], deep_problems[p]);
                gain += time < times[p] ? (times[p] - time) / times[p] : 0;
            }
            if (gain > most) most = gain, best = i;
        }
        if (best < 0) return;
        TileCandidate last = vec_last(&choice->tiles), tile = choice->splits.items[best];
        vec_last(&choice->tiles) = tile;
        vec_push(search->arena, &choice->tiles, last);
        for (int p = 0; p < DEEP; p++) {
            double time = clocks_of(search, &tile, deep_problems[p]);
            if (time < times[p]) times[p] = time;
        }
    }
}

typedef struct Decide {
    TileSearch *search;
    bool more;
} Decide;

static void decide(const char *kernel, void *value, void *user) {
    TileChoice *choice = value;
    Decide *d = user;
    (void)kernel;
    if (choice->decided) return;
    d->more = choice->decided = true;
    if (choice->tiles.count > 0 && choice->by_rows) order_cooperative(choice);
    else keep_few(d->search, choice), keep_splits(d->search, choice);
    if (choice->tiles.count > d->search->tile_count) d->search->tile_count = choice->tiles.count;
}

bool tile_search_decide(TileSearch *search) {
    Decide d = {.search = search};
    if (search->choices) strmap_each(search->choices, decide, &d);
    if (search->tile_count < 1) search->tile_count = 1;
    return d.more;
}

typedef struct ChoosesQuery {
    const char *kernel;
    bool chooses;
} ChoosesQuery;

static void query_choice(const char *key, void *value, void *user) {
    const TileChoice *choice = value;
    ChoosesQuery *query = user;
    (void)key;
    query->chooses |= choice->tiles.count > 0 && strcmp(choice->kernel, query->kernel) == 0;
}

bool tile_search_chooses(const TileSearch *search, const char *kernel) {
    ChoosesQuery query = {.kernel = kernel};
    if (search->choices) strmap_each(search->choices, query_choice, &query);
    return query.chooses;
}

int tile_search_check(void *user, Module *module, Func *kernel, int combination) {
    TileSearch *search = user;
    const int fits = combination, next = combination + 1;
    (void)module;
    if (!kernel_is_supported(kernel, search->target)) return fits;   // prune_variants removes it
    if (target_has(search->target, FEATURE_WGMMA) && !search->try_all) {
        TileChoice *choice = tile_choice(search, kernel);
        if (!choice->decided) {
            compare(search, choice, kernel, combination);
            return next;
        }
        int last = choice->tiles.count - 1, tile = search->tile_index < last ? search->tile_index : last;
        if (last >= 0) return choice->tiles.items[tile].combination;
    }
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
    const Func *specialized = as_specialized(search, kernel);
    Occupancy estimate = occupancy_estimate(search->arena, specialized, search->target);
    Specialization how = specialization_of(search->arena, search->target, specialized);
    if (is_cooperative_by_loop(&how)) {   // its roles set their own register counts
        int64_t staging = specialized_staging(search->arena, search->target, specialized, estimate.shared);
        estimate.fits = estimate.shared + staging <= search->target->shared_block;
    }
    remember(search, &estimate, tunables_text(search->arena, kernel));
    return estimate.fits && !search->try_all ? fits : next;
}
