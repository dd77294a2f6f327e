#include "runtime/fits.h"
#include "ir/build.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "passes/orient.h"
#include "passes/parted_cost.h"
#include "passes/split_k.h"
#include "passes/together_cost.h"
#include "passes/warp_specialize.h"
#include "runtime/served.h"
#include <string.h>

// Registers beside the fragments: addresses, loop counters, and with a gemm operands of a tensor-core instruction.
enum { REGISTER_SLACK = 24, GEMM_SLACK = 40, REGISTER_BYTES = 4, SHARED_ALIGN = 128 };

typedef struct Walk {
    Visitor visitor;
    Arena *arena;
    FitsEstimate *out;
    bool async;       // the target copies asynchronously
    int64_t stages;   // of the pipelined loop that we are in; 0: none
} Walk;

static int64_t elements(const Buf *buf) {
    int64_t count = 1;
    for (int d = 0; d < buf->rank; d++) {
        int64_t extent = buf_extent(buf, d);
        count *= extent < 0 ? 1 : extent;
    }
    return count;
}

static void add_buffer(Walk *walk, const Buf *buf) {
    if (buf->scope != SCOPE_SHARED && buf->scope != SCOPE_FRAGMENT) return;
    FitsBuffer entry = {.buf = buf, .stages = 1};
    vec_push(walk->arena, &walk->out->buffers, entry);
}

// A copy from global memory into a shared buffer within a pipelined loop: the buffer becomes a ring.
static void note_move(Walk *walk, const Buf *from, const Buf *to) {
    if (!walk->async || walk->stages < 2 || from->scope != SCOPE_GLOBAL) return;
    for (int i = 0; i < walk->out->buffers.count; i++) {
        FitsBuffer *entry = &walk->out->buffers.items[i];
        if (entry->buf == to && to->scope == SCOPE_SHARED && to->type == from->type) entry->stages = walk->stages;
    }
}

static void note_copy(Walk *walk, const Stmt *stmt) {
    const Region *from = stmt->call.args[0].region, *to = stmt->call.args[1].region;
    if (from && to) note_move(walk, from->buf, to->buf);
}

// `a[i, j] = x[index[i], j]`, or of `condition ? x[..] : 0`, whose type may have been widened: a gather.
static void note_gather(Walk *walk, const Stmt *store) {
    const Expr *value = store->store.value;
    while (value->kind == EXPR_CAST || value->kind == EXPR_SELECT)
        value = value->kind == EXPR_CAST ? value->operand : value->select.yes;
    if (value->kind == EXPR_LOAD) note_move(walk, value->load.buf, store->store.buf);
}

static FitsBuffer *entry_of(Walk *walk, const Buf *buf) {
    for (int i = 0; i < walk->out->buffers.count; i++)
        if (walk->out->buffers.items[i].buf == buf) return &walk->out->buffers.items[i];
    return NULL;
}

static void note_read(Walk *walk, const Buf *buf) {
    FitsBuffer *entry = entry_of(walk, buf);
    if (entry) entry->is_kept = true;
}

static bool visit_expr_read(Visitor *visitor, Expr *expr) {
    if (expr->kind == EXPR_LOAD) note_read(visitor->user, expr->load.buf);
    return true;
}

// A fragment that only reductions read is consumed as it is made: its elements are not all there at once.
static void note_operands(Walk *walk, const Stmt *stmt) {
    bool reduces = stmt->call.op >= OP_REDUCE_SUM && stmt->call.op <= OP_REDUCE_ALL;
    for (int i = 0; i < stmt->call.count; i++)
        if (stmt->call.args[i].region && !(reduces && i == 0)) note_read(walk, stmt->call.args[i].region->buf);
    if (stmt->call.op == OP_GEMM) walk->out->registers = GEMM_SLACK;
}

static bool visit(Visitor *visitor, Stmt *stmt) {
    Walk *walk = visitor->user;
    if (stmt->kind == STMT_CALL) note_operands(walk, stmt);
    if (stmt->kind == STMT_DECL) add_buffer(walk, stmt->decl);
    if (stmt->kind == STMT_CALL && stmt->call.op == OP_COPY) note_copy(walk, stmt);
    if (stmt->kind == STMT_STORE) note_gather(walk, stmt);
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PIPELINED) return true;
    int64_t outer = walk->stages, stages = 0;
    if (stmt->loop.stages) expr_const(stmt->loop.stages, &stages);
    walk->stages = stages;
    visit_block(visitor, &stmt->loop.body);
    walk->stages = outer;
    return false;
}

FitsEstimate fits_estimate(Arena *arena, const Func *kernel, const Target *target) {
    FitsEstimate out = {.threads = 1, .registers = REGISTER_SLACK};
    Walk walk = {.arena = arena, .out = &out, .async = target_has(target, FEATURE_CP_ASYNC)};
    walk.visitor = (Visitor){.stmt = visit, .expr = visit_expr_read, .user = &walk};
    visit_block(&walk.visitor, (Block *)&kernel->body);
    const Stmt *grid = func_grid(kernel);
    if (grid) expr_const(grid->grid.threads, &out.threads);
    if (out.threads < 1) out.threads = 1;
    int64_t blocks =
        grid && attr_get(grid->attrs, ATTR_BLOCKS) ? grid_blocks(grid) : target_cluster(target, out.threads);
    int64_t block_threads = blocks > 0 ? out.threads / blocks : out.threads;
    for (int i = 0; i < out.buffers.count; i++) {
        FitsBuffer *b = &out.buffers.items[i];
        int64_t count = elements(b->buf), bytes = type_bytes(b->buf->type);
        if (b->buf->scope == SCOPE_SHARED) {
            b->bytes = (count * bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN * b->stages;
            out.shared += b->bytes;
        } else {
            int64_t each = (count + out.threads - 1) / out.threads;
            if (b->is_kept) b->registers = (each * bytes + REGISTER_BYTES - 1) / REGISTER_BYTES;
            out.registers += b->registers;
        }
    }
    out.fits = out.shared <= target->shared_block && block_threads <= target->max_threads &&
               out.registers <= target->registers_thread &&
               out.registers * block_threads <= target->registers_multiprocessor;
    return out;
}

const char *fits_tunables(Arena *arena, const Func *kernel) {
    StrBuf text;
    sb_init(&text, arena);
    for (const Attr *attr = kernel->attrs; attr; attr = attr->next) {
        if (attr->id != ATTR_TUNED || attr->count < 2) continue;
        sb_printf(&text, "%s%s = %lld", text.length ? ", " : "", attr->args[0].text, (long long)attr->args[1].integer);
    }
    return sb_text(&text);
}

static bool is_larger(const FitsEstimate *a, const FitsEstimate *b) {
    return a->registers != b->registers ? a->registers > b->registers : a->shared > b->shared;
}

static void remember(FitsSearch *search, const FitsEstimate *estimate, const char *tunables) {
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

// ---- kernels that will be parted into roles ----
//
// How long a problem takes with a tile: as many turns as its points take on the multiprocessors, each of all steps of the loop
// (passes/parted_cost.h). What counts is how well the points fill the last turn, so no tile is best for all problems: a few are
// kept, and the launch takes the cheapest.

enum { MOST_TILES = 16, MOST_SPLITS = 7, MOST_VARIANTS = MOST_TILES + MOST_SPLITS, APART = 0 };

typedef struct Tile {
    int combination;             // its number
    int64_t m, n, ring, slots;   // of C; bytes of shared memory, in so many parts
    PartedCost cost;
    bool through;   // its results leave by way of a tile that it loads
    bool general;   // the variant for what TMA does not serve has registers enough
    int64_t rate;   // of a kernel whose warpgroups work together: together_rate; else 0
    int split;   // blocks of a cluster that share the steps of a tile; 1: none, APART: as many as the launch chooses, anywhere
} Tile;

typedef struct Choice {
    const char *kernel;
    bool decided;
    VEC(Tile) tiles;    // those that fit; then those that are kept. None: the first combination that fits does
    VEC(Tile) splits;   // the same, where blocks share the steps of a tile
    bool by_rows;       // one for each number of rows
} Choice;

// The kernel as the passes will find it.
static const Func *as_parted(const FitsSearch *search, const Func *kernel) {
    const Func *turned = oriented(search->arena, search->target, kernel);
    return turned ? turned : kernel;
}

static int64_t slots_of(const FitsEstimate *estimate) {
    int64_t slots = 1;
    for (int i = 0; i < estimate->buffers.count; i++)
        if (estimate->buffers.items[i].stages > slots) slots = estimate->buffers.items[i].stages;
    return slots;
}

static bool is_parted(const FitsSearch *search, const Func *kernel, const FitsEstimate *estimate) {
    int64_t shared = estimate->shared + ring_barriers(slots_of(estimate));
    shared += specialized_staging(search->arena, search->target, kernel, shared);
    return specialized_in_turn(search->arena, search->target, kernel) && shared <= search->target->shared_block;
}

// Source kernels: variants of one name differ in place or condition.
static Choice *choice_of(FitsSearch *search, const Func *kernel) {
    StrBuf key;
    sb_init(&key, search->arena);
    sb_printf(&key, "%s:%u:", kernel->name, kernel->loc.line);
    if (kernel->when) print_expr(kernel->when, &key);
    if (!search->choices) search->choices = strmap_new(search->arena);
    Choice *choice = strmap_get(search->choices, sb_text(&key));
    if (choice) return choice;
    choice = NEW(search->arena, Choice);
    choice->kernel = arena_strdup(search->arena, kernel->name);
    strmap_put(search->choices, sb_text(&key), choice);
    return choice;
}

// The path without TMA and wgmma keeps operands and addresses of several instructions in registers.
static bool serves_all(const FitsSearch *search, const FitsEstimate *estimate) {
    enum { MORE = 32 };
    return estimate->fits && estimate->registers + MORE <= search->target->registers_thread;
}

// Of equal tiles (of as many rows, staged alike, where a point is no tile of the result) the fastest; a later one has
// to be faster by so much, since larger ones fill the last step less well. Of equally fast tiles of the result the one
// with the longer ring.
enum { CLEARLY = 32 };

static bool is_better_together(const Choice *choice, const Tile *a, const Tile *b) {
    if (a->rate < b->rate - b->rate / CLEARLY) return true;
    return !choice->by_rows && a->ring > b->ring && a->rate <= b->rate + b->rate / CLEARLY;
}

// There is no room for staging.
static bool goes_through_tile(const FitsSearch *search, const Func *kernel) {
    FitsEstimate estimate = fits_estimate(search->arena, kernel, search->target);
    return specialized_staging(search->arena, search->target, kernel, 0) > 0 &&
           specialized_staging(search->arena, search->target, kernel, estimate.shared) == 0;
}

static void compare_together(FitsSearch *search, Choice *choice, const Func *kernel, int combination) {
    FitsEstimate estimate = fits_estimate(search->arena, kernel, search->target);
    int64_t staging = specialized_staging(search->arena, search->target, kernel, estimate.shared);
    if (estimate.shared + staging > search->target->shared_block) return;
    bool through = goes_through_tile(search, kernel);
    Tile tile = {.through = through,
                 .combination = combination,
                 .general = serves_all(search, &estimate),
                 .ring = estimate.shared,
                 .split = 1};
    tile.rate = together_rate(search->arena, search->target, kernel, &tile.m);
    choice->by_rows = !together_tile(search->arena, search->target, kernel, &tile.m, &tile.n, &tile.cost);
    if (!together_cost(search->arena, search->target, kernel, through))
        tile.m = tile.n = 0;   // the launch cannot choose: one for all
    for (int i = 0; i < choice->tiles.count; i++) {
        Tile *other = &choice->tiles.items[i];
        if (other->m != tile.m || other->n != tile.n || (other->through != through && tile.m)) continue;
        if (is_better_together(choice, &tile, other)) *other = tile;
        return;
    }
    vec_push(search->arena, &choice->tiles, tile);
}

// The first that fitted comes last: it has the general variant.
static void order_together(Choice *choice) {
    enum { MOST = 4 };
    if (choice->tiles.count > MOST) choice->tiles.count = MOST;
    Tile first = choice->tiles.items[0];
    for (int i = 1; i < choice->tiles.count; i++) choice->tiles.items[i - 1] = choice->tiles.items[i];
    choice->tiles.items[choice->tiles.count - 1] = first;
}

// The one with slots enough; of such the one that takes k faster, clearly; else the one with the longer ring.
static bool is_better(const Tile *a, const Tile *b) {
    enum { ENOUGH_SLOTS = 5, CLEARER = 50 };   // a fiftieth
    if (a->slots != b->slots && (a->slots < ENOUGH_SLOTS || b->slots < ENOUGH_SLOTS)) return a->slots > b->slots;
    int64_t own = a->cost.step * b->cost.k, other = b->cost.step * a->cost.k;
    if (own + own / CLEARER < other) return true;
    return a->ring > b->ring && other + other / CLEARER >= own;
}

static void add_split(FitsSearch *search, Choice *choice, const Tile *tile) {
    for (int i = 0; i < choice->splits.count; i++) {
        Tile *other = &choice->splits.items[i];
        if (other->m != tile->m || other->n != tile->n || other->split != tile->split) continue;
        if (is_better(tile, other)) *other = *tile;
        return;
    }
    vec_push(search->arena, &choice->splits, *tile);
}

// (Of tiles that will be turned around parts would be written element by element.)
static void compare_apart(FitsSearch *search, Choice *choice, const Func *kernel, Tile tile) {
    if (!can_split_apart(kernel) || as_parted(search, kernel) != kernel) return;
    tile.split = APART;
    add_split(search, choice, &tile);
}

// Blocks that share steps hold their parts beside the ring.
static void compare_splits(FitsSearch *search, Choice *choice, const Func *kernel, Tile tile) {
    enum {
        LEAST_SLOTS = 4,
        MOST_BLOCKS = 4
    };   // larger clusters, and those of three, find fewer places and gained nothing
    if (tile.ring + split_bytes(kernel) > search->target->shared_block || tile.slots < LEAST_SLOTS) return;
    for (tile.split = 2; tile.split <= MOST_BLOCKS; tile.split *= 2) {
        if (!can_split(search->target, kernel, tile.split)) continue;
        tile.cost = parted_cost_split(search->target, kernel, tile.split);
        add_split(search, choice, &tile);
    }
}

static void compare(FitsSearch *search, Choice *choice, const Func *kernel, int combination) {
    const Func *parted = as_parted(search, kernel);
    FitsEstimate estimate = fits_estimate(search->arena, parted, search->target);
    if (specialized_together(search->arena, search->target, parted)) {
        compare_together(search, choice, parted, combination);
        return;
    }
    if (!is_parted(search, parted, &estimate)) return;
    Tile tile = {.combination = combination,
                 .general = serves_all(search, &estimate),
                 .ring = estimate.shared,
                 .slots = slots_of(&estimate),
                 .split = 1};
    tile.cost = parted_cost(search->target, parted, 1);
    specialized_tile(kernel, &tile.m, &tile.n);
    compare_splits(search, choice, parted, tile);
    compare_apart(search, choice, kernel, tile);
    for (int i = 0; i < choice->tiles.count; i++) {
        Tile *other = &choice->tiles.items[i];
        if (other->m != tile.m || other->n != tile.n) continue;
        if (is_better(&tile, other)) *other = tile;
        return;
    }
    vec_push(search->arena, &choice->tiles, tile);
}

// Problems (m, n, k) that the kept tiles should serve: squares, and some that are not.
static const int64_t problems[][3] = {
    {256, 256, 256},       {512, 512, 512},    {1024, 1024, 1024}, {1536, 1536, 1536}, {2048, 2048, 2048},
    {3072, 3072, 3072},    {4096, 4096, 4096}, {6144, 6144, 6144}, {8192, 8192, 8192}, {16, 8192, 8192},
    {32, 8192, 8192},      {48, 8192, 8192},   {64, 8192, 8192},   {96, 8192, 8192},   {128, 8192, 8192},
    {192, 14336, 4096},    {256, 8192, 8192},  {256, 4096, 4096},  {1024, 8192, 8192}, {4096, 14336, 4096},
    {16384, 16384, 16384}, {8192, 1024, 8192}, {8192, 8192, 1024}};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Clusters that run at once: multiprocessors come in groups of pairs, which clusters of more than a pair do not fill.
static int64_t clusters_of(const FitsSearch *search, int64_t multiprocessors, int split) {
    int64_t clusters = multiprocessors / split;
    return split > 2 ? clusters - clusters / search->target->wgmma.stray_clusters : clusters;
}

// Parts of all tiles at once, each at a k of its own: what limits is the tensor cores, how soon tiles come, or memory. Then parts are written,
// as results that TMA does not store, and read by a second launch.
static double apart_clocks(const FitsSearch *search, const Tile *tile, const int64_t *problem) {
    const WgmmaCosts *costs = &search->target->wgmma;
    int64_t rows = ceiling(problem[0], tile->m) * tile->m, columns = ceiling(problem[1], tile->n) * tile->n;
    int64_t tiles = rows / tile->m * (columns / tile->n), all = ceiling(problem[2], tile->cost.k);
    int64_t parts = larger(smaller(search->target->multiprocessors / tiles, all / APART_STEPS), 1);
    int64_t turns = ceiling(tiles * parts, search->target->multiprocessors);
    int64_t loop = turns * ceiling(all, parts) * larger(tile->cost.step, tile->cost.stream);
    int64_t memory = (rows + columns) * all * tile->cost.bytes / costs->memory_bytes;
    int64_t sums = parts * rows * columns * 2 * (int64_t)sizeof(float) / costs->apart_bytes;
    int64_t store = tile->n * (costs->tail_clocks + costs->scattered_clocks);
    int64_t zeros = (rows - problem[0]) * (columns / tile->n) + (columns - problem[1]) * (rows / tile->m);
    zeros = zeros * all * tile->cost.bytes / costs->zero_bytes;
    return (double)(larger(loop, memory) + zeros + turns * store + sums + costs->apart_clocks);
}

static double clocks_of(const FitsSearch *search, const Tile *tile, const int64_t *problem) {
    if (tile->split == APART) return apart_clocks(search, tile, problem);
    const WgmmaCosts *costs = &search->target->wgmma;
    int64_t rows = (problem[0] + tile->m - 1) / tile->m, columns = (problem[1] + tile->n - 1) / tile->n;
    int64_t blocks = clusters_of(search, search->target->multiprocessors, tile->split),
            turns = (rows * columns + blocks - 1) / blocks;
    int64_t all = (problem[2] + tile->cost.k - 1) / tile->cost.k, steps = (all + tile->split - 1) / tile->split;
    int64_t tails = tile->cost.hidden ? 1 : turns, step = tile->cost.step, zeros = 0;
    if (rows <= STREAM_READERS || columns <= STREAM_READERS) {
        if (step < tile->cost.stream) step = tile->cost.stream;
        zeros = (rows * tile->m - problem[0]) * columns + (columns * tile->n - problem[1]) * rows;
    }
    int64_t loop = turns * steps * step, loads = rows * columns * all * tile->cost.loaded;
    int64_t readers = rows < columns ? rows : columns;
    bool apart = tile->split > 1 && readers >= STREAM_READERS;   // they do not read what they share at the same time
    if (apart && loop < loads / costs->cluster_bytes) loop = loads / costs->cluster_bytes;
    return (double)(loop + tails * tile->cost.tail + zeros * all * tile->cost.bytes / costs->zero_bytes);
}

// Takes the tile that lowers the sum of relative times most, given the times so far (0: none); its gain.
static double take_best(const FitsSearch *search, Choice *choice, int taken, const double *least, double *times) {
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
    Tile tile = choice->tiles.items[at];
    choice->tiles.items[at] = choice->tiles.items[taken];
    choice->tiles.items[taken] = tile;
    for (int p = 0; p < PROBLEMS; p++) {
        double time = clocks_of(search, &tile, problems[p]) / least[p];
        if (!times[p] || time < times[p]) times[p] = time;
    }
    return best;
}

// The last one serves what the facts of the others exclude, large problems too: by another path, for which it must not
// be too large.
static void put_largest_last(Choice *choice) {
    int largest = 0, last = choice->tiles.count - 1;
    for (int i = 1; i <= last; i++) {
        const Tile *tile = &choice->tiles.items[i], *most = &choice->tiles.items[largest];
        bool larger = tile->m * tile->n > most->m * most->n;
        if (tile->general == most->general ? larger : tile->general) largest = i;
    }
    if (last < 1) return;
    Tile tile = choice->tiles.items[largest];
    choice->tiles.items[largest] = choice->tiles.items[last];
    choice->tiles.items[last] = tile;
}

static double sum_without(const FitsSearch *search, const Choice *choice, int without, const double *least) {
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

// What was taken early, and is the best for nothing any more.
static void drop_needless(const FitsSearch *search, Choice *choice, const double *least, double worth) {
    for (int i = choice->tiles.count - 1; i >= 0 && choice->tiles.count > 1; i--) {
        if (sum_without(search, choice, i, least) - sum_without(search, choice, -1, least) > worth) continue;
        for (int j = i + 1; j < choice->tiles.count; j++) choice->tiles.items[j - 1] = choice->tiles.items[j];
        choice->tiles.count--;
    }
}

static void keep_few(const FitsSearch *search, Choice *choice) {
    const double WORTH_A_TILE = 0.008, NEEDLESS = 1e-6;   // of the time of one of the problems
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

// Problems with few tiles and many steps.
static const int64_t deep_problems[][3] = {
    {64, 1024, 8192},   {128, 128, 16384},  {128, 1024, 8192}, {256, 256, 8192},   {512, 512, 16384},
    {1024, 1024, 8192}, {64, 2048, 8192},   {256, 1024, 4096}, {16, 1024, 4096},   {16, 1024, 28672},
    {16, 2048, 8192},   {16, 4096, 4096},   {32, 1024, 8192},  {32, 1024, 28672},  {64, 1024, 28672},
    {96, 1024, 28672},  {128, 1024, 28672}, {256, 1024, 8192}, {256, 1024, 28672}, {512, 1024, 28672},
    {32, 4096, 4096},   {16, 2048, 2048},   {64, 4096, 4096}};
enum { DEEP = sizeof deep_problems / sizeof deep_problems[0] };

// Behind the tiles that are kept, in front of the last, those that make deep problems faster.
static void keep_splits(const FitsSearch *search, Choice *choice) {
    const double WORTH_A_SPLIT = 0.05;   // of the time of one of the problems
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
        Tile last = vec_last(&choice->tiles), tile = choice->splits.items[best];
        vec_last(&choice->tiles) = tile;
        vec_push(search->arena, &choice->tiles, last);
        for (int p = 0; p < DEEP; p++) {
            double time = clocks_of(search, &tile, deep_problems[p]);
            if (time < times[p]) times[p] = time;
        }
    }
}

typedef struct Decide {
    FitsSearch *search;
    bool more;
} Decide;

static void decide(const char *kernel, void *value, void *user) {
    Choice *choice = value;
    Decide *d = user;
    (void)kernel;
    if (choice->decided) return;
    d->more = choice->decided = true;
    if (choice->tiles.count > 0 && choice->by_rows) order_together(choice);
    else keep_few(d->search, choice), keep_splits(d->search, choice);
    if (choice->tiles.count > d->search->rounds) d->search->rounds = choice->tiles.count;
}

bool fits_decide(FitsSearch *search) {
    Decide d = {.search = search};
    if (search->choices) strmap_each(search->choices, decide, &d);
    if (search->rounds < 1) search->rounds = 1;
    return d.more;
}

typedef struct Asked {
    const char *kernel;
    bool chooses;
} Asked;

static void ask(const char *key, void *value, void *user) {
    const Choice *choice = value;
    Asked *asked = user;
    (void)key;
    asked->chooses |= choice->tiles.count > 0 && strcmp(choice->kernel, asked->kernel) == 0;
}

bool fits_chooses(const FitsSearch *search, const char *kernel) {
    Asked asked = {.kernel = kernel};
    if (search->choices) strmap_each(search->choices, ask, &asked);
    return asked.chooses;
}

// ---- one kernel with several tiles ----

// An expression of one variant with the dims and scalars of another.
static Expr *translated(Arena *arena, const Func *to, const Func *from, Expr *expr) {
    Subst *subst = subst_new(arena);
    for (int i = 0; i < from->dims.count; i++) {
        Var *own = func_dim(to, from->dims.items[i]->name);
        if (own) subst_var(subst, from->dims.items[i], e_var(arena, own));
    }
    for (int i = 0; i < from->params.count && i < to->params.count; i++)
        if (from->params.items[i].var && to->params.items[i].var)
            subst_var(subst, from->params.items[i].var, e_var(arena, to->params.items[i].var));
    return subst_expr(subst, expr);
}

// What a tile of the grid has behind the end of a tensor: of a name whose end is ceildiv(X, tile), the last one has tile * end - X.
static Expr *behind_end(Arena *arena, const Expr *end, int64_t tile) {
    bool divides = end->kind == EXPR_CALL && end->call.op == OP_CEILDIV && expr_is_int(end->call.args[1].value, tile);
    return divides ? e_sub(arena, e_mul(arena, (Expr *)end, e_int(arena, tile)), end->call.args[0].value)
                   : e_int(arena, 0);
}

typedef struct Streamed {
    Expr *readers;   // blocks that read the tiles of the one operand or the other, the fewer of both; NULL: not known
    Expr *few;       // STREAM_READERS or fewer
    Expr *zeros;     // clocks for what all blocks ask for behind the end
} Streamed;

// Of two names of the grid, each says how many blocks read the tiles that the other one chooses.
static Streamed streamed(const FitsSearch *search, const Func *kernel, const Stmt *grid, const PartedCost *cost) {
    if (grid->grid.count != 2) return (Streamed){0};
    Arena *a = search->arena;
    Expr *rows = grid->grid.iters[0].end, *columns = grid->grid.iters[1].end;
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    Expr *zeros = e_add(a, e_mul(a, behind_end(a, rows, m), columns), e_mul(a, behind_end(a, columns, n), rows));
    zeros = e_mul(a, e_mul(a, zeros, specialized_steps(a, kernel)), e_int(a, cost->bytes));
    Expr *readers = e_min(a, rows, columns);
    return (Streamed){.readers = readers,
                      .few = e_binary(a, BIN_LE, readers, e_int(a, STREAM_READERS)),
                      .zeros = e_div(a, zeros, e_int(a, search->target->wgmma.zero_bytes))};
}

// So many clusters run at once (clusters_of).
static Expr *clusters(const FitsSearch *search, int split) {
    Arena *a = search->arena;
    Expr *all = e_call(a, OP_SMS, 0, NULL);
    if (split == 1) return all;
    all = e_div(a, all, e_int(a, split));
    if (split > 2) all = e_sub(a, all, e_div(a, all, e_int(a, search->target->wgmma.stray_clusters)));
    return e_max(a, all, e_int(a, 1));
}

// As apart_clocks, of a problem that the launch knows.
static Expr *apart_cost(const FitsSearch *search, const Func *kernel) {
    Arena *a = search->arena;
    const WgmmaCosts *costs = &search->target->wgmma;
    const Stmt *grid = func_grid(kernel);
    PartedCost cost = parted_cost(search->target, as_parted(search, kernel), 1);
    Expr *all = specialized_steps(a, kernel), *parts = apart_parts(a, kernel, all);
    int64_t m, n;
    specialized_tile(kernel, &m, &n);
    Expr *tiles = e_mul(a, grid->grid.iters[0].end, grid->grid.iters[1].end);
    Expr *rows = e_mul(a, grid->grid.iters[0].end, e_int(a, m)),
         *columns = e_mul(a, grid->grid.iters[1].end, e_int(a, n));
    Expr *turns = e_call2(a, OP_CEILDIV, e_mul(a, tiles, parts), e_call(a, OP_SMS, 0, NULL));
    Expr *steps = e_mul(a, turns, e_call2(a, OP_CEILDIV, all, parts));
    Expr *loop = e_mul(a, steps, e_int(a, larger(cost.step, cost.stream)));
    Expr *memory = e_mul(a, e_mul(a, e_add(a, rows, columns), all), e_int(a, cost.bytes));
    Expr *sums = e_mul(a, parts, e_mul(a, e_mul(a, rows, columns), e_int(a, 2 * (int64_t)sizeof(float))));
    Expr *store = e_mul(a, turns, e_int(a, n * (costs->tail_clocks + costs->scattered_clocks)));
    Expr *clocks = e_add(a, e_max(a, loop, e_div(a, memory, e_int(a, costs->memory_bytes))), store);
    clocks = e_add(a, clocks, streamed(search, kernel, grid, &cost).zeros);
    return e_add(a, e_add(a, clocks, e_div(a, sums, e_int(a, costs->apart_bytes))), e_int(a, costs->apart_clocks));
}

// As clocks_of does it, of a problem that the launch knows.
static Expr *parted_clocks(const FitsSearch *search, const Func *kernel, const PartedCost *cost, int split) {
    Arena *a = search->arena;
    const Stmt *grid = func_grid(kernel);
    Expr *points = e_int(a, 1), *all = specialized_steps(a, kernel), *steps = all;
    for (int i = 0; i < grid->grid.count; i++) points = e_mul(a, points, grid->grid.iters[i].end);
    if (split > 1) steps = e_call2(a, OP_CEILDIV, steps, e_int(a, split));
    Expr *turns = e_call2(a, OP_CEILDIV, points, clusters(search, split));
    Expr *tail = e_int(a, cost->tail), *step = e_int(a, cost->step), *clocks;
    Streamed stream = streamed(search, kernel, grid, cost);
    if (stream.few && cost->stream > cost->step) step = e_select(a, stream.few, e_int(a, cost->stream), step);
    steps = e_mul(a, steps, step);
    if (split > 1) {
        Expr *loads = e_mul(a, e_mul(a, points, all), e_int(a, cost->loaded));
        loads = e_div(a, loads, e_int(a, search->target->wgmma.cluster_bytes));
        if (stream.readers)
            loads = e_select(a, e_binary(a, BIN_GE, stream.readers, e_int(a, STREAM_READERS)), loads, e_int(a, 0));
        clocks = e_add(a, e_max(a, e_mul(a, turns, steps), loads), e_mul(a, turns, tail));
    } else if (cost->hidden) {
        clocks = e_add(a, e_mul(a, turns, steps), tail);
    } else {
        clocks = e_mul(a, turns, e_add(a, steps, tail));
    }
    return stream.few ? e_add(a, clocks, e_select(a, stream.few, stream.zeros, e_int(a, 0))) : clocks;
}

// What `other` would cost, in the names of `kernel`.
static Expr *cost_for(const FitsSearch *search, const Func *kernel, const Func *other) {
    Arena *arena = search->arena;
    PartedCost cost;
    int64_t m, n;
    int split = (int)attr_int(other->attrs, ATTR_SPLIT, 1);
    if (split == APART) return translated(arena, kernel, other, apart_cost(search, other));
    if (!specialized_together(arena, search->target, other))
        cost = parted_cost_split(search->target, as_parted(search, other), split);
    else if (!together_tile(arena, search->target, other, &m, &n, &cost))
        return translated(arena, kernel, other,
                          together_cost(arena, search->target, other, goes_through_tile(search, other)));
    return translated(arena, kernel, other, parted_clocks(search, other, &cost, split));
}

// Variants are tried in order: one is taken when none of those behind it costs less, the last one when nothing else is.
static void set_conditions(const FitsSearch *search, int count, Func **variants) {
    Arena *arena = search->arena;
    for (int i = 0; i + 1 < count; i++) {
        Func *kernel = variants[i];
        Expr *least = cost_for(search, kernel, variants[count - 1]);
        for (int j = count - 2; j > i; j--) least = e_min(arena, cost_for(search, kernel, variants[j]), least);
        Expr *cheap = e_binary(arena, BIN_LE, cost_for(search, kernel, kernel), least);
        kernel->when = kernel->when ? e_and(arena, kernel->when, cheap) : cheap;
        attr_set_ints(arena, &kernel->attrs, ATTR_ONE_OF, 0, NULL);
    }
}

// Where points differ in a way that rounds balance, blocks stay for several (schedule.c).
static void make_stay(const FitsSearch *search, Func *kernel) {
    if (kernel->kind != FUNC_KERNEL || !points_balance(search->arena, search->target, kernel)) return;
    ((Stmt *)func_grid(kernel))->grid.persistent = true;
}

// One whose tiles are split apart is a program; its kernels come after all variants, the sum once.
static void add_variants(const FitsSearch *search, Module *merged, int count, Func *const *variants) {
    VEC(Func *) kernels = {0};
    for (int v = 0; v < count; v++) {
        const Func *kernel = variants[v];
        if (kernel->kind != FUNC_KERNEL || attr_int(kernel->attrs, ATTR_SPLIT, 1) != APART) {
            vec_push(search->arena, &merged->funcs, variants[v]);
            continue;
        }
        Apart made = split_apart(search->arena, search->target, kernel);
        vec_push(search->arena, &merged->funcs, made.program);
        if (kernels.count == 0) vec_push(search->arena, &kernels, made.sum);
        vec_push(search->arena, &kernels, made.parts);
    }
    for (int k = 0; k < kernels.count; k++) vec_push(search->arena, &merged->funcs, kernels.items[k]);
}

void fits_merge(const FitsSearch *search, Module *module, Module *const *others) {
    Module merged = *module;
    memset(&merged.funcs, 0, sizeof merged.funcs);
    for (int i = 0; i < module->funcs.count; i++) {
        Func *variants[MOST_VARIANTS] = {module->funcs.items[i]};
        int count = 1;
        Choice *choice =
            variants[0]->kind == FUNC_KERNEL && search->choices ? choice_of((FitsSearch *)search, variants[0]) : NULL;
        int tiles = choice ? choice->tiles.count : 1;
        for (; count < tiles; count++) variants[count] = others[count - 1]->funcs.items[i];
        for (int v = 0; choice && v < count && v < tiles; v++) {
            int64_t split = choice->tiles.items[v].split;
            if (split != 1) attr_set_int(search->arena, &variants[v]->attrs, ATTR_SPLIT, split);
        }
        for (int v = 0; v < count; v++) make_stay(search, variants[v]);
        set_conditions(search, count, variants);
        add_variants(search, &merged, count, variants);
    }
    *module = merged;
}

int fits_check(void *user, Module *module, Func *kernel, int combination) {
    FitsSearch *search = user;
    const int fits = combination, next = combination + 1;
    (void)module;
    if (!is_served(kernel, search->target)) return fits;   // it will not be compiled
    if (target_has(search->target, FEATURE_WGMMA) && !search->try_all) {
        Choice *choice = choice_of(search, kernel);
        if (!choice->decided) {
            compare(search, choice, kernel, combination);
            return next;
        }
        int last = choice->tiles.count - 1, tile = search->round < last ? search->round : last;
        if (last >= 0) return choice->tiles.items[tile].combination;
    }
    if (search->kernel && strcmp(search->kernel, kernel->name) != 0 && !search->try_all) {
        if (!search->settled) return fits;   // an earlier kernel does not fit: nothing else matters
        search->kernel = search->smallest_tunables = search->largest_tunables = NULL;
        search->settled = false;
        search->tried = 0;
    }
    if (!search->kernel) search->kernel = arena_strdup(search->arena, kernel->name);
    search->loc = kernel->loc;
    if (strcmp(search->kernel, kernel->name) != 0) return fits;
    const Func *parted = as_parted(search, kernel);
    FitsEstimate estimate = fits_estimate(search->arena, parted, search->target);
    if (specialized_together(search->arena, search->target, parted)) {   // with registers for its roles
        int64_t staging = specialized_staging(search->arena, search->target, parted, estimate.shared);
        estimate.fits = estimate.shared + staging <= search->target->shared_block;
    }
    remember(search, &estimate, fits_tunables(search->arena, kernel));
    return estimate.fits && !search->try_all ? fits : next;
}

static void table_row(const FitsBuffer *b, StrBuf *out) {
    bool shared = b->buf->scope == SCOPE_SHARED;
    sb_printf(out, "  %-9s%s: %s[", shared ? "shared" : "fragment", b->buf->name, type_text(b->buf->type));
    for (int d = 0; d < b->buf->rank; d++) sb_printf(out, "%s%lld", d ? ", " : "", (long long)buf_extent(b->buf, d));
    sb_str(out, "]");
    if (b->stages > 1) sb_printf(out, " x %lld stages", (long long)b->stages);
    if (shared) sb_printf(out, ": %lld bytes\n", (long long)b->bytes);
    else sb_printf(out, ": %lld registers a thread\n", (long long)b->registers);
}

void fits_table(const FitsEstimate *e, const Target *t, StrBuf *out) {
    for (int i = 0; i < e->buffers.count; i++) table_row(&e->buffers.items[i], out);
    if (e->threads > t->max_threads)
        sb_printf(out, "  threads of a point: %lld; a block of %s has %d, a cluster %d blocks\n", (long long)e->threads,
                  t->name, t->max_threads, target_has(t, FEATURE_CLUSTER) ? t->cluster_most : 1);
    sb_printf(out, "  shared memory of a block: %lld bytes; %s has %lld\n", (long long)e->shared, t->name,
              (long long)t->shared_block);
    sb_printf(out, "  registers of a thread: about %lld; %s has %d, and %d for the %lld threads of a block",
              (long long)e->registers, t->name, t->registers_thread, t->registers_multiprocessor,
              (long long)e->threads);
}
