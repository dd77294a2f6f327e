// Analysis and legality of cooperative kernels: tiles and their live ranges, rings, the producer's slice, reasons
// against specialization, registers. (Transformation: cooperative.c.)
//
// A condition that loads one tile in either branch is one load (async_copy_legality.h).
//
// The live range of a tile is textual: from its copy to the next one in the same block of statements, or to the block's
// end. All statements that use the tile are in it.
#include "passes/specialize/ws_analysis.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/pipeline/async_copy_legality.h"

enum {
    MOST_WARPGROUPS = 3,
    MOST_PRODUCERS = 2,
    ROOM_ALONE = 48
};   // consumer warpgroups; others; registers for addresses and scalars when registers are not reallocated
_Static_assert(TMA_STORE_BARRIER + MOST_WARPGROUPS <= ORDER_BARRIER,
               "each consumer stores at a named barrier of its own");

RoleTile *tile_of(const RolePlan *plan, const Buf *buf) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles)
        if (tile->buf == buf) return tile;
    return NULL;
}

bool loads_tile(const Stmt *stmt, void *user) {
    (void)user;
    return loaded_tile(stmt) != NULL;
}

bool gathers_tile(const Target *target, const Stmt *stmt) {
    if (stmt->kind == STMT_IF)
        return loaded_tile(stmt) && (gathers_tile(target, branch_load(&stmt->if_.then)) ||
                                     gathers_tile(target, branch_load(&stmt->if_.otherwise)));
    return loaded_tile(stmt) && (stmt->kind == STMT_FOR || tma_piece_problem(target, stmt));
}

bool transposes_loaded(const Stmt *stmt, void *user) {
    const RolePlan *plan = user;
    return transposes_tile(plan->arena, plan->target, stmt) && tile_of(plan, copy_of(stmt).src->buf);
}

Buf *filled_tile(const RolePlan *plan, const Stmt *stmt) {
    return transposes_loaded(stmt, (void *)plan) ? copy_of(stmt).dst->buf : loaded_tile(stmt);
}

const Stmt *filling_stmt(const RolePlan *plan, const TileRange *range) {
    EXPECT(arena_failure(plan->arena), range->at < range->block->count, "a fill at %d of %d statements", range->at,
           range->block->count);
    return range->block->items[range->at];
}

bool is_fill_of(const RolePlan *plan, const RoleTile *tile, const TileRange *range, int i) {
    return i >= range->at && i <= range->filled && filled_tile(plan, range->block->items[i]) == tile->buf;
}

const TileRange *filled_range(const RolePlan *plan, const RoleTile *tile, const Stmt *load) {
    VEC_EACH (const TileRange, range, &tile->live_ranges)
        for (int i = range->at; i <= range->filled; i++)
            if (range->block->items[i] == load && is_fill_of(plan, tile, range, i)) return range;
    return NULL;
}

static const Stmt *first_use(const TileRange *range) {   // NULL: none
    return range->first < 0 ? NULL : range->block->items[range->first];
}

static void add_fill(RolePlan *plan, RoleTile *tile, Stmt *fill) {
    bool gathers = gathers_tile(plan->target, fill);
    tile->gathered |= gathers;
    tile->by_tma |= loaded_tile(fill) && !gathers;
    if (!loaded_tile(fill)) plan->transposes = true;
    else
        FOR_EACH_EFFECT (effect, plan->arena, fill)
            if (effect->access == ACCESS_READ) vec_push(plan->arena, &plan->sources, buf_viewed(effect->buf));
}

// Returns the last statement that fills the tile.
static int add_range(RolePlan *plan, const Block *block, int at, bool repeats) {
    Buf *buf = filled_tile(plan, block->items[at]);
    RoleTile *tile = tile_of(plan, buf);
    if (!tile) {
        tile = NEW(plan->arena, RoleTile);
        tile->buf = buf;
        vec_push(plan->arena, &plan->tiles, tile);
    }
    int end = loaded_tile(block->items[at]) ? fill_end(block, at, buf) : at;
    plan->partial |= end < 0;
    TileRange range = {block, at, end < 0 ? at : end, -1, -1, repeats};
    vec_push(plan->arena, &tile->live_ranges, range);
    for (int i = at; i <= range.filled; i++)
        if (is_fill_of(plan, tile, &range, i)) add_fill(plan, tile, block->items[i]);
    return range.filled;
}

static void find_ranges(RolePlan *plan, const Block *block, bool repeats, bool pipelined) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (filled_tile(plan, stmt)) {
            i = add_range(plan, block, i, repeats);
            plan->pipelined |= pipelined;
        } else if (!is_loop(stmt, LOOP_PARALLEL)) {
            bool inside = is_pipelined(stmt) ? loop_stages(stmt) > 1 : pipelined;
            bool loop = repeats || stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
            FOR_EACH_BODY (body, stmt) find_ranges(plan, body, loop, inside);
        }
    }
}

// ---- uses ----

static bool is_filled_below(const RolePlan *plan, const Stmt *stmt, const Buf *buf) {
    FOR_EACH_STMT_IN (below, stmt)
        if (filled_tile(plan, below) == buf) return true;
    return false;
}

bool plan_gathers(const RolePlan *plan) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles)
        if (tile->gathered) return true;
    return false;
}

static bool find_live_ranges(RolePlan *plan, RoleTile *tile) {
    int uses = 0;   // and fills
    VEC_EACH (TileRange, range, &tile->live_ranges) {
        for (int i = range->at; i <= range->filled; i++)
            if (is_fill_of(plan, tile, range, i)) uses += count_effects(plan->arena, range->block->items[i], tile->buf);
        for (int i = range->filled + 1; i < range->block->count; i++) {
            const Stmt *stmt = range->block->items[i];
            if (filled_tile(plan, stmt) == tile->buf) break;
            if (is_filled_below(plan, stmt, tile->buf)) return false;
            int here = count_effects(plan->arena, stmt, tile->buf);
            if (here == 0) continue;
            if (range->first < 0) range->first = i;
            range->last = i;
            uses += here;
        }
    }
    return uses == count_effects(plan->arena, plan->grid, tile->buf);
}

// ---- rings ----

// Both are loaded, and only loads and scalars lie between the two. (Another role fills a tile by a transposition.)
static bool side_by_side(const TileRange *a, const TileRange *b) {
    if (a->block != b->block || a->first != b->first || a->last != b->last) return false;
    for (int i = a->at; i <= b->at; i++)
        if (!is_scalar(a->block->items[i]) && !loaded_tile(a->block->items[i])) return false;
    return a->at < b->at;
}

static bool share_barriers(const RoleTile *a, const RoleTile *b) {
    if (a->live_ranges.count != b->live_ranges.count || buf_slots(a->buf) != buf_slots(b->buf)) return false;
    for (int s = 0; s < a->live_ranges.count; s++)
        if (!side_by_side(&a->live_ranges.items[s], &b->live_ranges.items[s])) return false;
    return true;
}

// Loaded behind the tile, and used only while it is.
static bool is_used_within(const TileRange *a, const TileRange *b) {
    TileRange used = *b;
    used.first = a->first, used.last = a->last;
    return b->first >= a->first && b->last <= a->last && side_by_side(a, &used);
}

// The barriers of a tile that is loaded before a vector serve it, too: its own, and a warp that waits for them, cost more
// than its bytes are worth.
static bool goes_with(const RoleTile *tile, const RoleTile *vector) {
    if (buf_slot_rank(vector->buf) != 1 || vector->gathered || !vector->by_tma || !tile->by_tma || tile->gathered)
        return false;
    if (tile->live_ranges.count != vector->live_ranges.count || buf_slots(tile->buf) != buf_slots(vector->buf))
        return false;
    for (int s = 0; s < tile->live_ranges.count; s++)
        if (!is_used_within(&tile->live_ranges.items[s], &vector->live_ranges.items[s])) return false;
    return true;
}

// It is loaded and given back where the tile is.
static void go_with(const RoleTile *tile, RoleTile *vector) {
    for (int s = 0; s < tile->live_ranges.count; s++) {
        vector->live_ranges.items[s].first = tile->live_ranges.items[s].first;
        vector->live_ranges.items[s].last = tile->live_ranges.items[s].last;
    }
}

// By mma.sync whose warps have the rows that wgmma's have: an accumulator of both has one layout.
static bool multiplies_by_rows(const Target *target, const Stmt *gemm, int warpgroups) {
    return gemm_mma(target, gemm) && region_extent(gemm_of(gemm).acc, 0) == WGMMA_ROWS * warpgroups;
}

// Layouts of such tiles may have padding, up to a power of two of columns.
static int64_t converted_bytes(const Buf *fragment) {
    int64_t columns = 1, last = fragment->rank > 0 ? buf_extent(fragment, fragment->rank - 1) : 1;
    if (fragment->scope != SCOPE_FRAGMENT) return 0;
    while (columns < last) columns *= 2;
    return buf_elements(fragment) / last * columns * type_bytes(fragment->type);
}

static bool has_wgmma_on(Arena *arena, const Target *target, const Func *kernel, const Buf *acc) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (wgmma_computes(arena, target, stmt) && gemm_of(stmt).acc->buf == acc) return true;
    return false;
}

int64_t other_products_bytes(Arena *arena, const Target *target, const Func *kernel, int warpgroups) {
    int64_t bytes = 0;
    FOR_EACH_STMT (stmt, &kernel->body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm) || wgmma_computes(arena, target, stmt)) continue;
        bytes += converted_bytes(gemm.b->buf);   // it goes through a tile
        if (multiplies_by_rows(target, stmt, warpgroups)) continue;
        bool both = has_wgmma_on(arena, target, kernel, gemm.acc->buf);   // there and back
        bytes += converted_bytes(gemm.a->buf) + (both ? 2 : 1) * converted_bytes(gemm.acc->buf);
    }
    return bytes;
}

static bool read_by_threads(const RolePlan *plan, const Buf *buf) {
    FOR_EACH_STMT (stmt, &plan->grid->grid.body) {
        bool leaf = stmt->kind == STMT_CALL || is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_LET ||
                    stmt->kind == STMT_STORE;
        if (!leaf) continue;
        bool by_wgmma = wgmma_computes(plan->arena, plan->target, stmt);
        if (!by_wgmma && filled_tile(plan, stmt) != buf && stmt_uses_buf(stmt, buf)) return true;
        SKIP_BODY(stmt);
    }
    return false;
}

// The transposer reads it.
static bool is_transposed_from(const RolePlan *plan, const RoleTile *tile) {
    VEC_EACH (const TileRange, range, &tile->live_ranges) {
        const Stmt *use = first_use(range);
        if (use && transposes_loaded(use, (void *)plan) && copy_of(use).src->buf == tile->buf) return true;
    }
    return false;
}

// A transposition fills it.
static bool is_transposed_tile(const RolePlan *plan, const RoleTile *tile) {
    EXPECT(arena_failure(plan->arena), tile->live_ranges.count > 0, "nothing fills '%s'", tile->buf->name);
    return transposes_loaded(filling_stmt(plan, &tile->live_ranges.items[0]), (void *)plan);
}

static void make_groups(RolePlan *plan) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles) {
        VEC_EACH_PTR (TileRing, ring, &plan->rings)
            if (!tile->ring && share_barriers(ring->tiles.items[0], tile)) tile->ring = ring;
        VEC_EACH_PTR (TileRing, ring, &plan->rings)
            if (!tile->ring && goes_with(ring->tiles.items[0], tile)) {
                go_with(ring->tiles.items[0], tile);
                tile->ring = ring;
            }
        if (!tile->ring) {
            tile->ring = NEW(plan->arena, TileRing);
            tile->ring->slots = buf_slots(tile->buf);
            tile->ring->consumer = ROLE_COMPUTE;
            vec_push(plan->arena, &plan->rings, tile->ring);
        }
        vec_push(plan->arena, &tile->ring->tiles, tile);
        vec_push(plan->arena, &tile->ring->consume.tiles, tile->buf);
        tile->ring->space += buf_slot_bytes(tile->buf);
        tile->ring->by_tma |= tile->by_tma;
        tile->ring->gathers += tile->gathered;
        tile->ring->by_threads |= read_by_threads(plan, tile->buf);
        if (is_transposed_from(plan, tile)) tile->ring->consumer = ROLE_TRANSPOSE;
        if (is_transposed_tile(plan, tile)) tile->ring->producer = ROLE_TRANSPOSE;
    }
}

// ---- epilogue staged in an operand's tile ----

static bool is_shared_by_rows(const RolePlan *plan, const Region *acc) {
    return region_extent(acc, 0) / WGMMA_ROWS % plan->consumers == 0;
}

// A warpgroup reads only the rows of its own MMAs, so it may overwrite them when these MMAs are complete.
static bool is_read_by_rows(const RolePlan *plan, const Buf *buf) {
    FOR_EACH_STMT (stmt, &plan->grid->grid.body) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        if (gemm.b->buf == buf) return false;
        if (gemm.a->buf == buf && (gemm.a->transposed || !is_shared_by_rows(plan, gemm.acc))) return false;
    }
    return !read_by_threads(plan, buf);
}

static const Stmt *store_behind(const RolePlan *plan, const RoleTile *tile) {
    const TileRange *range = &tile->live_ranges.items[0];
    for (int i = range->last + 1; i < range->block->count; i++) {
        const Stmt *stmt = range->block->items[i];
        TmaStore store;
        if (!is_call(stmt, OP_COPY) || copy_of(stmt).dst->buf->scope != SCOPE_GLOBAL) continue;
        if (!tma_epilogue_problem(plan->target, stmt, &store) && is_shared_by_rows(plan, copy_of(stmt).src) &&
            tma_store_aliases(plan->arena, &store, stmt, tile->buf))
            return stmt;
    }
    return NULL;
}

bool cooperative_staged(const RolePlan *plan, StagedTile *out) {
    if (plan->transposes) return false;
    VEC_EACH_PTR (TileRing, ring, &plan->rings)
        VEC_EACH_PTR (RoleTile, tile, &ring->tiles) {
            bool single_use = tile->live_ranges.count == 1 && tile->live_ranges.items[0].first >= 0;
            if (!single_use || !is_read_by_rows(plan, tile->buf)) continue;
            *out = (StagedTile){ring, tile, store_behind(plan, tile)};
            if (out->store) return true;
        }
    return false;
}

// ---- the producer's slice ----
//
// The scalars that the producer computes, too: those in the addresses, conditions and trip counts of loads, their
// inputs, and the loops and branches around them, with what leaves these loops. None may depend on results of the
// consumer, or on memory that the kernel or another CTA writes in the meantime.

static bool is_value(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
}

static bool is_missing(const RolePlan *plan, const Expr *expr) {   // a scalar that is not in the slice
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    return named && !map_has(plan->required, expr->var);
}

static void note_computed(RolePlan *plan, bool computed, const Stmt *stmt) {
    if (computed && !plan->computed) plan->at = stmt->loc;
    plan->computed |= computed;
}

static void need_expr(RolePlan *plan, const Stmt *stmt, const Expr *expr) {
    if (!expr) return;
    expr_names(expr, plan->required);
    note_computed(plan, any_expr(expr, is_computed, NULL), stmt);
}

bool steers_loads(const RolePlan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_BREAK) return map_has(plan->breaks, stmt);
    return (stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) && map_has(plan->required, stmt->let.var);
}

// The load role copies a tile, or the statement says which and how many.
static bool load_does(const Stmt *stmt, void *plan) {
    return loaded_tile(stmt) || steers_loads(plan, stmt);
}

static bool is_other(const Expr *expr, const void *plan) {
    bool effect = expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return effect || is_missing(plan, expr);
}

bool load_knows(const RolePlan *plan, const Stmt *stmt) {
    if (is_value(stmt)) return map_has(plan->required, stmt->let.var);
    if (stmt->kind == STMT_BREAK) return steers_loads(plan, stmt);
    return stmt->kind == STMT_ASSUME && !any_expr(stmt->assume, is_other, plan);
}

static void need_control(RolePlan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) need_expr(plan, stmt, stmt->if_.condition);
    if (stmt->kind == STMT_WHILE) need_expr(plan, stmt, stmt->while_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) {
        need_expr(plan, stmt, stmt->loop.iters[i].begin);
        need_expr(plan, stmt, stmt->loop.iters[i].end);
        need_expr(plan, stmt, stmt->loop.iters[i].step);
    }
}

// All that it names: where the region begins, how much of it there is, hints. (A gather computes nothing: loaded_tile.)
static void need_load(RolePlan *plan, const Stmt *load) {
    stmt_names(load, plan->required);
    if (is_global_to_shared_copy(load)) note_computed(plan, stmt_any_own_expr(load, is_computed, NULL), load);
}

// What leaves the loop of this body.
static void need_breaks(RolePlan *plan, const Block *body) {
    FOR_EACH_ITEM (stmt, body) {
        if (stmt->kind == STMT_BREAK) map_put(plan->breaks, stmt, stmt);
        if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) continue;
        FOR_EACH_BODY (inner, stmt) need_breaks(plan, inner);
    }
}

static void need_block(RolePlan *plan, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (is_value(stmt) && map_has(plan->required, stmt->let.var)) need_expr(plan, stmt, stmt->let.value);
        if (loaded_tile(stmt)) need_load(plan, stmt);
        if (!below_any(stmt, load_does, plan)) continue;
        need_control(plan, stmt);
        FOR_EACH_BODY (body, stmt) {
            if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) need_breaks(plan, body);
            need_block(plan, body);
        }
    }
}

static void slice_producer(RolePlan *plan) {
    plan->required = map_new(plan->arena);
    plan->breaks = map_new(plan->arena);
    int before;
    do {
        before = map_count(plan->required) + map_count(plan->breaks);
        need_block(plan, &plan->grid->grid.body);
    } while (map_count(plan->required) + map_count(plan->breaks) > before && !plan->computed);
}

// ---- legality ----
//
// Reasons why warpgroups cannot share a tile: statements that cannot be split, memory that others write, tiles that are
// used outside of the block that loads them.

static const char *because(RolePlan *plan, const Stmt *stmt, const char *why) {
    plan->at = stmt->loc;
    return why;
}

// Ordered memory operations, which synchronize CTAs: the consumer executes them as the CTA would.
static bool between_blocks(OpId op) {
    return op_is(op, OP_CLASS_ELEMENT) || op == OP_FENCE;
}

static bool is_work(OpId op) {
    bool moves = op == OP_COPY || op == OP_FILL || op == OP_GEMM;
    bool combines = op_is(op, OP_CLASS_REDUCTION) || op_is(op, OP_CLASS_SCAN);
    return moves || combines || op == OP_ASSERT || op == OP_PRINT || op == OP_CLUSTER_BARRIER || between_blocks(op);
}

// A product that wgmma cannot compute (16 rows, 8 steps of k, f32) is computed by mma.sync or fma in the role, as other work
// between products is.
static void add_product(RolePlan *plan, const Stmt *gemm) {
    WgmmaInfo info;
    const char *why = wgmma_reason(plan->arena, plan->target, gemm, &info);
    if (why) {
        if (!plan->other) plan->other = why, plan->other_at = gemm->loc;
        return;
    }
    plan->rows = gcd64(plan->rows, region_extent(gemm_of(gemm).acc, 0));
}

static const char *stmt_problem(RolePlan *plan, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_ROLE:
    case STMT_THREAD: return "the kernel uses thread indices: write it with tile operations";
    case STMT_FOR:
    case STMT_WHILE: {
        const Block *body = stmt->kind == STMT_FOR ? &stmt->loop.body : &stmt->while_.body;
        bool leaves = block_any(body, loads_tile, NULL) && block_breaks(body);
        return leaves ? "a `break` leaves a loop that loads" : NULL;
    }
    case STMT_DECL: return is_shared_decl(stmt) && stmt->decl->alias_of ? "a shared buffer has an @alias" : NULL;
    case STMT_CALL:
        if (!is_work(stmt->call.op) || stmt->call.is_async) return "the kernel contains explicit synchronization";
        if (is_global_to_shared_copy(stmt) && plan->partial && !fills_whole(stmt, copy_of(stmt).dst->buf))
            return partial_fill_problem(&plan->grid->grid.body, copy_of(stmt).dst->buf);
        if (is_call(stmt, OP_GEMM)) add_product(plan, stmt);
        return NULL;
    default: return NULL;
    }
}

static bool is_ordered(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_CALL && between_blocks(expr->call.op);
}

static bool is_sync(const Expr *expr, const void *what) {
    return is_joint_effect(expr, what) && !is_ordered(expr, what);
}

static const Buf *written_tile(const RolePlan *plan, const Stmt *stmt) {
    FOR_EACH_EFFECT (effect, plan->arena, stmt)
        if (effect->access != ACCESS_READ && tile_of(plan, effect->buf)) return effect->buf;
    return NULL;
}

static const Stmt *first_write(const RolePlan *plan, const Stmt *root, const Buf *buf) {
    FOR_EACH_STMT_IN (stmt, root) {
        Stmt alone = stmt_alone(stmt);
        if (stmt_writes(plan->arena, &alone, buf)) return stmt;
    }
    return root;
}

static const char *stmts_problem(RolePlan *plan) {
    FOR_EACH_STMT (stmt, &plan->grid->grid.body) {
        bool whole = is_loop(stmt, LOOP_PARALLEL);
        Stmt alone = stmt_alone(stmt);
        const Buf *written = filled_tile(plan, stmt) ? NULL : written_tile(plan, whole ? stmt : &alone);
        if (written)
            return because(
                plan, first_write(plan, stmt, written),
                arena_printf(plan->arena,
                             "'%s' is written by other statements than loads: write to another `shared` buffer",
                             written->name));
        if (whole) {
            SKIP_BODY(stmt);
            continue;
        }
        const char *problem = stmt_problem(plan, stmt);
        if (!problem && stmt_any_own_expr(stmt, is_sync, NULL))
            problem = "the kernel contains explicit synchronization";
        if (problem) return because(plan, stmt, problem);
    }
    return NULL;
}

// CTAs do not signal each other after the reads, and no loop repeats the reads.
static bool reads_before(const Block *body, const Buf *buf) {
    FOR_EACH_ITEM (stmt, body) {
        if ((stmt->kind == STMT_WHILE || is_thread_loop(stmt)) && stmt_uses_buf(stmt, buf)) return false;
    }
    FOR_EACH_STMT (stmt, body)
        if (stmt->kind == STMT_CALL && between_blocks(stmt->call.op)) return false;
    return !block_any_expr(body, is_ordered, NULL);
}

bool written_last(Arena *arena, const Func *kernel, const Buf *buf) {
    const Stmt *grid = func_grid(kernel);
    EffectVec effects = {0};
    int reads = 0, writes = 0;
    path_effects(arena, grid, &effects);
    VEC_EACH (const Effect, effect, &effects) {
        if (effect->buf != buf) continue;
        if (writes > 0 || effect->access == ACCESS_UPDATE) return false;
        reads += effect->access == ACCESS_READ;
        writes += effect->access == ACCESS_WRITE;
    }
    return reads == 0 || reads_before(&grid->grid.body, buf);
}

static bool loads_from(const RolePlan *plan, const RoleTile *tile, const Buf *tensor) {
    VEC_EACH (const TileRange, range, &tile->live_ranges)
        for (int i = range->at; i <= range->filled; i++)
            FOR_EACH_EFFECT (effect, plan->arena, range->block->items[i])
                if (effect->access == ACCESS_READ && buf_viewed(effect->buf) == tensor) return true;
    return false;
}

// The tile of a CTA is loaded from the tensor, used, and only then written to it: the use waits for the load. (Other CTAs
// write elsewhere, or the source has a race.)
static bool loads_before_write(const RolePlan *plan, const Func *kernel, const Buf *tensor) {
    const Block *body = &plan->grid->grid.body;
    int write = 0;
    if (!written_last(plan->arena, kernel, tensor)) return false;
    while (write < body->count && !stmt_writes(plan->arena, body->items[write], tensor)) write++;
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles) {
        if (!loads_from(plan, tile, tensor)) continue;
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            if (range->block != body || range->first < 0 || range->first > write) return false;
    }
    return true;
}

// Only copies write tiles, and no statement writes their sources before they are loaded. (Other global memory that is
// written and used again is ordered by insert-sync within the role.)
static const char *memory_problem(RolePlan *plan, const Func *kernel) {
    EffectVec effects = {0};
    path_effects(plan->arena, plan->grid, &effects);
    VEC_EACH (const Effect, a, &effects) {
        if (a->access == ACCESS_READ) continue;
        VEC_EACH_PTR (const Buf, source, &plan->sources)
            if (source == a->buf && !loads_before_write(plan, kernel, source))
                return because(
                    plan, first_write(plan, plan->grid, source),
                    arena_printf(plan->arena, "it writes '%s', which it loads: write to another tensor", source->name));
    }
    return NULL;
}

// A copy of a tile whose elements need not be neighbours in the tensor: threads load them one by one, and those of a role
// are fewer than those of a CTA without roles.
static bool loads_single_elements(const RolePlan *plan, const Stmt *load) {
    if (load->kind == STMT_IF)
        return loads_single_elements(plan, branch_load(&load->if_.then)) ||
               loads_single_elements(plan, branch_load(&load->if_.otherwise));
    if (!is_global_to_shared_copy(load) || !gathers_tile(plan->target, load)) return false;
    const Buf *tensor = copy_of(load).src->buf;
    return tensor->strides && !expr_is_int(tensor->strides[tensor->rank - 1], 1);
}

static bool is_in_range(const RoleTile *tile, const Block *block, int i) {
    VEC_EACH (const TileRange, range, &tile->live_ranges)
        if (range->block == block && i >= range->at && i <= larger(range->filled, range->last)) return true;
    return false;
}

// The first use that is in no live range; NULL: all are.
static const Stmt *use_outside(const RolePlan *plan, const RoleTile *tile, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i], *use = NULL;
        if (is_in_range(tile, block, i) || !count_effects(plan->arena, stmt, tile->buf)) continue;
        if (is_loop(stmt, LOOP_PARALLEL)) return stmt;
        FOR_EACH_BODY (body, stmt)
            if (!use) use = use_outside(plan, tile, body);
        Stmt alone = stmt_alone(stmt);
        if (!use && count_effects(plan->arena, &alone, tile->buf)) use = stmt;
        if (use) return use;
    }
    return NULL;
}

// TMA loads in one branch of a condition, and threads in the other: the arrivals of a slot are the same in both.
static bool loads_in_two_ways(const RolePlan *plan, const Stmt *load) {
    if (load->kind != STMT_IF) return false;
    const Stmt *yes = branch_load(&load->if_.then), *no = branch_load(&load->if_.otherwise);
    return gathers_tile(plan->target, yes) != gathers_tile(plan->target, no) || loads_in_two_ways(plan, yes) ||
           loads_in_two_ways(plan, no);
}

static const char *copies_problem(RolePlan *plan) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles) {
        const Stmt *load = filling_stmt(plan, &tile->live_ranges.items[0]), *use = NULL;
        if (tile->buf->alias_of) return because(plan, load, "a tile has an @alias");
        if (!find_live_ranges(plan, tile)) {
            use = use_outside(plan, tile, &plan->grid->grid.body);
            return because(plan, use ? use : load,
                           arena_printf(plan->arena,
                                        "'%s' is used outside of the block of the copy that loads it: let the copy "
                                        "and all its uses stand in one block",
                                        tile->buf->name));
        }
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            if (loads_in_two_ways(plan, filling_stmt(plan, range)))
                return because(plan, filling_stmt(plan, range),
                               "TMA loads a tile in one branch of a condition, and cannot in the other");
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            if (range->block != &plan->grid->grid.body && loads_single_elements(plan, filling_stmt(plan, range)))
                return because(
                    plan, filling_stmt(plan, range),
                    "it loads a tensor element by element, of which no stride is the constant 1: declare one so");
    }
    return NULL;
}

// A tile that is transposed has no other use, and is filled in the same block: always by a load, or always by a
// transposition.
static const char *transpose_problem(RolePlan *plan) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles) {
        bool transposed = is_transposed_tile(plan, tile), read = is_transposed_from(plan, tile);
        VEC_EACH (const TileRange, range, &tile->live_ranges) {
            const Stmt *fill = filling_stmt(plan, range);
            if (transposed && read) return because(plan, fill, "a tile is transposed twice");
            if (transposes_loaded(fill, plan) != transposed)
                return because(plan, fill, "a tile is both loaded and the result of a transpose");
            if (!read) continue;
            const Stmt *use = first_use(range);
            if (range->first != range->last || !use || !transposes_loaded(use, plan))
                return because(plan, use ? use : fill, "a transposed tile is also used untransposed");
        }
    }
    return NULL;
}

static bool is_peer_read(const Expr *expr, const void *plan) {
    return is_expr_call(expr, OP_PEER) && tile_of(plan, expr->call.args[OPERAND_INDEX(PEER, x)].region->buf);
}

// A barrier of the cluster waits for all threads that have not ended: those that load end behind their last load. It
// does not wait until what they have started has landed.
static const char *meeting_problem(RolePlan *plan) {
    const Stmt *met = NULL;
    FOR_EACH_STMT (stmt, &plan->grid->grid.body) {
        bool repeats = (stmt->kind == STMT_WHILE || is_thread_loop(stmt)) && below_any(stmt, loads_tile, NULL);
        const Block *body = stmt->kind == STMT_WHILE ? &stmt->while_.body : &stmt->loop.body;
        if (!met && repeats) met = block_first_call(body, OP_CLUSTER_BARRIER);
        if (met && (repeats || filled_tile(plan, stmt)))
            return because(plan, met,
                           "the CTAs of its cluster meet before its last load: let each `cluster_barrier` stand behind "
                           "all loops and copies that load");
        if (!met && is_call(stmt, OP_CLUSTER_BARRIER)) met = stmt;
        if (stmt_any_own_expr(stmt, is_peer_read, plan))
            return because(plan, stmt,
                           "another CTA reads a tile that is loaded: copy it to another `shared` buffer for that");
    }
    return NULL;
}

static const char *plan_problem(RolePlan *plan, const Func *kernel) {
    const char *problem = stmts_problem(plan);
    if (!problem && !plan->rows && plan->other) problem = plan->other, plan->at = plan->other_at;
    else if (!problem && !plan->rows) problem = "it has no gemm";
    if (!problem) problem = copies_problem(plan);
    if (!problem) problem = memory_problem(plan, kernel);
    if (!problem) problem = meeting_problem(plan);
    return problem || !plan->transposes ? problem : transpose_problem(plan);
}

// ---- warpgroups and registers ----

// Two warpgroups share each product: its strips, or its columns, if their number of strips is odd.
static bool splits_columns(Arena *arena, const Target *target, const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body) {
        WgmmaInfo info;
        WgmmaSplit split;
        TmaStore store;
        bool stores = is_fragment_to_global_copy(stmt) && !tma_epilogue_problem(target, stmt, &store);
        if (stores && !tma_store_share(stmt, strips_split(store.strips, COLUMN_GROUPS).n, &store)) return false;
        if (!is_call(stmt, OP_GEMM)) continue;
        if (wgmma_problem(arena, target, stmt, &info)) return false;
        if (!wgmma_split(arena, target, stmt, COLUMN_GROUPS, &info, &split)) return false;
    }
    return true;
}

// Registers of the accumulator of its largest instruction.
static int64_t widest_instruction(const RolePlan *plan, const Func *kernel) {
    int64_t widest = 0;
    int sharers = plan->by_columns ? COLUMN_GROUPS : 1;
    FOR_EACH_STMT (stmt, &kernel->body) {
        WgmmaInfo info;
        WgmmaSplit split;
        if (!is_call(stmt, OP_GEMM) || wgmma_problem(plan->arena, plan->target, stmt, &info)) continue;
        bool splits = wgmma_split(plan->arena, plan->target, stmt, sharers, &info, &split);
        int64_t columns = region_extent(gemm_of(stmt).acc, 1) / (splits ? split.n : 1);
        widest = larger(widest, info.m * columns / target_warpgroup(plan->target));
    }
    return widest;
}

static bool registers_fit(Arena *arena, const Target *target, const Func *kernel, int warpgroups, int sharers,
                          int producers) {
    int64_t most = consumer_registers(target, warpgroups, producers, target->registers_least), room = COOPERATIVE_ROOM;
    if (!most)
        most = target->registers_thread,
        room = ROOM_ALONE;   // registers are not reallocated; the thread holds scalars too
    return needed_registers(arena, target, kernel, sharers) + room <= most;
}

// What the source says, or the largest number of warpgroups with equally many strips of 64 rows each. Of one strip two
// share the steps, or the columns where a single one's registers do not hold them.
int cooperative_warpgroups(Arena *arena, const Target *target, const Func *kernel, int *members) {
    int64_t asked = kernel_groups(kernel).of[GROUP_COMPUTE].count, rows = 0;
    bool all = true;
    FOR_EACH_STMT (stmt, &kernel->body) {
        if (!is_call(stmt, OP_GEMM)) continue;
        bool by_wgmma = wgmma_computes(arena, target, stmt);
        if (by_wgmma) rows = gcd64(rows, region_extent(gemm_of(stmt).acc, 0));
        all &= by_wgmma;
    }
    bool shares = all && rows == WGMMA_ROWS && (!asked || asked == SHARED_STEPS) && may_share_steps(arena, kernel);
    *members = shares ? SHARED_STEPS : 1;
    if (asked) return (int)asked;
    if (shares) return SHARED_STEPS;
    for (int w = MOST_WARPGROUPS; w > 1; w--)
        if (rows / WGMMA_ROWS % w == 0 &&
            (int64_t)(MOST_PRODUCERS + w) * target_warpgroup(target) <= target->max_threads)
            return w;
    bool strip = all && rows == WGMMA_ROWS && !registers_fit(arena, target, kernel, 1, 1, 1);
    return strip && splits_columns(arena, target, kernel) ? COLUMN_GROUPS : 1;
}

// Producer warpgroups. Transposing warps share the loading warpgroup if a warpgroup of their own would leave consumers
// fewer than SLACK registers besides fragments: with 192 columns of 8 bits that costs more than one transposing warp
// less.
static int producers_for(const RolePlan *plan, const Func *kernel, int warpgroups) {
    enum { SLACK = 32 };   // registers of a thread besides its fragments
    if (!plan->transposes) return 1;
    int64_t most = consumer_registers(plan->target, warpgroups, MOST_PRODUCERS, plan->target->registers_loader);
    return !most || fragment_registers(plan->target, kernel, warpgroups) + SLACK <= most ? MOST_PRODUCERS : 1;
}

// The registers at the start must hold the accumulator of each instruction.
static bool starts_fit(const RolePlan *plan, const Func *kernel, int warpgroups) {
    return widest_instruction(plan, kernel) + WGMMA_ROOM <= initial_registers(plan->target, warpgroups);
}

bool whole_registers_fit(Arena *arena, const Target *target, const Func *kernel) {
    int warpgroups = (int)(kernel_threads(kernel) / target_warpgroup(target));
    int64_t most = smaller(initial_registers(target, warpgroups), target->registers_thread);
    return needed_registers(arena, target, kernel, warpgroups) + ROOM_ALONE <= most;
}

// ---- the plan ----

static const Stmt *loading_loop(const Block *body, bool pipelined) {
    FOR_EACH_STMT (stmt, body) {
        bool loop = is_pipelined(stmt) || (!pipelined && (stmt->kind == STMT_WHILE || is_thread_loop(stmt)));
        if (loop && !attr_get(stmt->attrs, ATTR_TILE_LOOP) && below_any(stmt, loads_tile, NULL)) return stmt;
    }
    return NULL;
}

bool loads_in_loop(const Block *body) {
    return loading_loop(body, false) != NULL;
}

static const char *loads_ahead_problem(RolePlan *plan) {
    const Block *body = &plan->grid->grid.body;
    const Stmt *single = loading_loop(body, true), *loop = loading_loop(body, false);
    if (plan->pipelined) return NULL;
    if (single)
        return because(plan, single, "its `pipelined` loop has one stage, and loads nothing ahead: give it two");
    if (loop)
        return because(
            plan, loop,
            below_any(loop, fills_slot, NULL)
                ? "no loop loads its tiles ahead, but fills slots by an index: a `pipelined` loop makes slots, of tiles "
                  "without that dim"
                : "no loop loads its tiles ahead: use `pipelined`");
    FOR_EACH_STMT (stmt, body)
        if (loaded_tile(stmt))
            return because(plan, stmt, "its tiles are loaded in one step: load them in several, of a `pipelined` loop");
    return "no loop loads its tiles";
}

static const Stmt *largest_fragment(const Func *kernel, const Target *target) {
    const Stmt *found = NULL;
    FOR_EACH_STMT (stmt, &kernel->body) {
        bool fragment = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT;
        if (fragment && (!found || buf_registers(target, stmt->decl, 1) > buf_registers(target, found->decl, 1)))
            found = stmt;
    }
    return found;
}

const char *ws_analyze(Arena *arena, const Target *target, const Func *kernel, RolePlan *plan) {
    *plan = (RolePlan){.arena = arena, .target = target, .grid = func_grid(kernel)};
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (!plan->grid) return "it has no grid";
    find_ranges(plan, &plan->grid->grid.body, false, false);
    const char *problem = loads_ahead_problem(plan);
    if (!problem) problem = plan_problem(plan, kernel);
    if (problem) return problem;
    slice_producer(plan);
    if (plan->computed) return "the addresses of its loads depend on computed values";
    int warpgroups = cooperative_warpgroups(arena, target, kernel, &plan->members);
    plan->consumers = warpgroups / plan->members;
    bool whole = plan->rows / WGMMA_ROWS % plan->consumers == 0;
    plan->by_columns = !whole && plan->consumers == COLUMN_GROUPS && splits_columns(arena, target, kernel);
    if (warpgroups > MOST_WARPGROUPS || (!whole && !plan->by_columns))
        return arena_printf(
            arena,
            "%d groups cannot share its tile: at most %d do, of whole strips of %d rows, or %d of the columns of one strip",
            warpgroups, MOST_WARPGROUPS, WGMMA_ROWS, COLUMN_GROUPS);
    int producers = plan->producers = producers_for(plan, kernel, warpgroups);
    if (!registers_fit(arena, target, kernel, warpgroups, plan->consumers, producers) ||
        !starts_fit(plan, kernel, warpgroups + producers))
        return because(plan, largest_fragment(kernel, target),
                       "its fragments need more registers than its warpgroups have: use smaller tiles or more threads");
    make_groups(plan);
    return NULL;
}

static int64_t transposed_slots(const RolePlan *plan, const Func *kernel) {
    int64_t bytes = 0, stages = 1;
    FOR_EACH_STMT (stmt, &kernel->body)
        if (loop_stages(stmt) > stages) stages = loop_stages(stmt);
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles)
        if (is_transposed_tile(plan, tile) && tile->buf->stage_dims == 0)
            bytes += (stages - 1) * buf_slot_bytes(tile->buf);
    return bytes;
}

Specialization cooperative_specialization(Arena *arena, const Target *target, const Func *kernel) {
    RolePlan plan;
    StagedTile staged;
    const char *why = ws_analyze(arena, target, kernel, &plan);
    if (why) return (Specialization){.why = why, .at = plan.at};
    int64_t sum = plan.members > 1 ? shared_steps_bytes(kernel) : 0;
    return (Specialization){.kind = WS_COOPERATIVE,
                            .transposes = plan.transposes,
                            .gathers = plan_gathers(&plan),
                            .consumers = plan.consumers * plan.members,
                            .producers = plan.producers,
                            .sharers = plan.consumers,
                            .slot_bytes = plan.transposes ? transposed_slots(&plan, kernel) : sum,
                            .aliased = cooperative_staged(&plan, &staged)
                                           ? store_staging(arena, target, kernel, staged.store, plan.consumers)
                                           : 0};
}
