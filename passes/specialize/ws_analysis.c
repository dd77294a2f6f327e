// Analysis and legality of cooperative kernels: tiles, the statements that use them, what the role that loads
// has to know, what stands against it, registers. (What comes of it: cooperative.c.)
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All
// statements that use it stand there.
#include "passes/specialize/ws_analysis.h"
#include "ir/build.h"

enum {
    MOST_WARPGROUPS = 3,
    MOST_PRODUCERS = 2,
    ROOM_ALONE = 48
};   // that compute; that do not; registers beside the fragments of one that is alone

Tile *tile_of(const Plan *plan, const Buf *buf) {
    for (int i = 0; i < plan->tiles.count; i++)
        if (plan->tiles.items[i]->buf == buf) return plan->tiles.items[i];
    return NULL;
}

bool loads_tile(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_COPY) && stmt->call.args[0].region->buf->scope == SCOPE_GLOBAL &&
           stmt->call.args[1].region->buf->scope == SCOPE_SHARED;
}

const Buf *loaded_tile(const Stmt *stmt) {
    return loads_tile(stmt, NULL) ? stmt->call.args[1].region->buf : NULL;
}

bool transposes_loaded(const Stmt *stmt, void *user) {
    const Plan *plan = user;
    return transposes_tile(plan->target, stmt) && tile_of(plan, stmt->call.args[0].region->buf);
}

// The tile that the statement fills; NULL: none.
static const Buf *filled_tile(const Plan *plan, const Stmt *stmt) {
    return loads_tile(stmt, NULL) || transposes_loaded(stmt, (void *)plan) ? stmt->call.args[1].region->buf : NULL;
}

static void find_ranges(Plan *plan, const Block *block, bool pipelined) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int64_t stages = 0;
        if (filled_tile(plan, stmt)) {
            Buf *buf = stmt->call.args[1].region->buf;
            Tile *tile = tile_of(plan, buf);
            bool loads = loads_tile(stmt, NULL);
            plan->transposes |= !loads;
            if (!tile) {
                tile = NEW(plan->arena, Tile);
                tile->buf = buf;
                vec_push(plan->arena, &plan->tiles, tile);
            }
            vec_push(plan->arena, &tile->live_ranges, ((LiveRange){block, i, -1, -1}));
            if (loads) vec_push(plan->arena, &plan->sources, stmt->call.args[0].region->buf);
            plan->pipelined |= pipelined;
            continue;
        }
        bool inside = pipelined;
        if (is_pipelined(stmt)) inside = stmt->loop.stages && expr_const(stmt->loop.stages, &stages) && stages > 1;
        if (is_loop(stmt, LOOP_PARALLEL)) continue;
        FOR_EACH_BODY (body, stmt) find_ranges(plan, body, inside);
    }
}

// ---- uses ----

static int count_uses(Arena *arena, const Stmt *stmt, const Buf *buf) {
    EffectVec effects = {0};
    int uses = 0;
    stmt_effects(arena, stmt, &effects);
    for (int i = 0; i < effects.count; i++) uses += effects.items[i].buf == buf;
    return uses;
}

typedef struct Copies {
    const Plan *plan;
    const Buf *buf;
    int count;
} Copies;

static bool count_copy(Visitor *visitor, Stmt *stmt) {
    Copies *copies = visitor->user;
    copies->count += filled_tile(copies->plan, stmt) == copies->buf;
    return true;
}

static int copies_below(const Plan *plan, const Stmt *stmt, const Buf *buf) {
    Copies copies = {plan, buf, 0};
    Visitor visitor = {.stmt = count_copy, .user = &copies};
    visit_stmt(&visitor, (Stmt *)stmt);
    return copies.count;
}

static bool find_live_ranges(Plan *plan, Tile *tile) {
    int uses = 0;
    VEC_EACH (LiveRange, range, &tile->live_ranges) {
        for (int i = range->at + 1; i < range->block->count; i++) {
            const Stmt *stmt = range->block->items[i];
            if (filled_tile(plan, stmt) == tile->buf) break;
            if (copies_below(plan, stmt, tile->buf) > 0) return false;
            int here = count_uses(plan->arena, stmt, tile->buf);
            if (here == 0) continue;
            if (range->first < 0) range->first = i;
            range->last = i;
            uses += here;
        }
    }
    return uses + tile->live_ranges.count == count_uses(plan->arena, plan->grid, tile->buf);
}

// ---- groups ----

// Nothing but copies and scalars from one to the other.
static bool side_by_side(const LiveRange *a, const LiveRange *b) {
    if (a->block != b->block || a->first != b->first || a->last != b->last) return false;
    for (int i = a->at; i < b->at; i++)
        if (!is_scalar(a->block->items[i]) && !loads_tile(a->block->items[i], NULL)) return false;
    return a->at < b->at;
}

static bool share_barriers(const Tile *a, const Tile *b) {
    if (a->live_ranges.count != b->live_ranges.count || buf_slots(a->buf) != buf_slots(b->buf)) return false;
    for (int s = 0; s < a->live_ranges.count; s++)
        if (!side_by_side(&a->live_ranges.items[s], &b->live_ranges.items[s])) return false;
    return true;
}

typedef struct ByThreads {
    const Plan *plan;
    const Buf *buf;
    bool found;
} ByThreads;

static bool find_reader(Visitor *visitor, Stmt *stmt) {
    ByThreads *by = visitor->user;
    bool leaf =
        stmt->kind == STMT_CALL || is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_LET || stmt->kind == STMT_STORE;
    if (!leaf) return true;
    if (!is_call(stmt, OP_GEMM) && filled_tile(by->plan, stmt) != by->buf) by->found |= stmt_uses_buf(stmt, by->buf);
    return false;
}

static bool read_by_threads(const Plan *plan, const Buf *buf) {
    ByThreads by = {plan, buf, false};
    Visitor visitor = {.stmt = find_reader, .user = &by};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    return by.found;
}

static const Stmt *transpose_copy(const Plan *plan, const Tile *tile) {
    VEC_EACH (const LiveRange, range, &tile->live_ranges) {
        if (range->first >= 0 && transposes_loaded(range->block->items[range->first], (void *)plan) &&
            range->block->items[range->first]->call.args[0].region->buf == tile->buf)
            return range->block->items[range->first];
    }
    return NULL;
}

static void make_groups(Plan *plan) {
    VEC_EACH_PTR (Tile, tile, &plan->tiles) {
        for (int g = 0; g < plan->channels.count && !tile->channel; g++)
            if (share_barriers(plan->channels.items[g]->tiles.items[0], tile)) tile->channel = plan->channels.items[g];
        if (!tile->channel) {
            tile->channel = NEW(plan->arena, Channel);
            tile->channel->slots = buf_slots(tile->buf);
            vec_push(plan->arena, &plan->channels, tile->channel);
        }
        vec_push(plan->arena, &tile->channel->tiles, tile);
        vec_push(plan->arena, &tile->channel->consume.tiles, tile->buf);
        tile->channel->bytes += buf_slot_bytes(tile->buf);
        tile->channel->by_threads |= read_by_threads(plan, tile->buf);
        tile->channel->untransposed |= transpose_copy(plan, tile) != NULL;
        const LiveRange *range = &tile->live_ranges.items[0];
        tile->channel->transposed |= transposes_loaded(range->block->items[range->at], plan);
    }
}

// ---- results through a tile ----

// Rows that a warpgroup reads are those of its own products, so that it may write them when these are over.
typedef struct Rows {
    const Buf *buf;
    bool others;
} Rows;

static bool find_rows_read(Visitor *visitor, Stmt *stmt) {
    Rows *rows = visitor->user;
    if (!is_call(stmt, OP_GEMM)) return true;
    const Region *a = stmt->call.args[0].region, *b = stmt->call.args[1].region;
    rows->others |= b->buf == rows->buf || (a->buf == rows->buf && a->transposed);
    return true;
}

static bool is_read_by_rows(const Plan *plan, const Buf *buf) {
    Rows rows = {buf, false};
    Visitor visitor = {.stmt = find_rows_read, .user = &rows};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    return !rows.others && !read_by_threads(plan, buf);
}

static const Stmt *store_behind(const Plan *plan, const Tile *tile) {
    const LiveRange *range = &tile->live_ranges.items[0];
    const Stmt *found = NULL;
    for (int i = range->last + 1; i < range->block->count; i++) {
        const Stmt *stmt = range->block->items[i];
        TmaStore store;
        const char *why;
        if (!is_call(stmt, OP_COPY) || stmt->call.args[1].region->buf->scope != SCOPE_GLOBAL) continue;
        if (found || !tma_stores(plan->target, stmt, &store, &why) || !tma_store_aliases(&store, stmt, tile->buf))
            return NULL;
        found = stmt;
    }
    return found;
}

Channel *cooperative_staged(const Plan *plan, const Stmt **store) {
    for (int g = 0; g < plan->channels.count && !plan->transposes; g++) {
        Channel *channel = plan->channels.items[g];
        const Tile *tile = channel->tiles.items[0];
        bool single_use =
            channel->tiles.count == 1 && tile->live_ranges.count == 1 && tile->live_ranges.items[0].first >= 0;
        if (!single_use || !is_read_by_rows(plan, tile->buf)) continue;
        *store = store_behind(plan, tile);
        if (*store) return channel;
    }
    return NULL;
}

// ---- the producer's slice ----
//
// Scalars that the producer computes, too.
//
// Where tiles lie, and whether and how often they are loaded: the scalars in that, what these come of, and the loops
// and branches around all of it. The role that loads does those too, so nothing of it may come of what is computed, or
// of memory that the kernel writes or that other blocks write meanwhile.

static bool is_value(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
}

static bool need_piece(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    if (named && !map_has(plan->required, expr->var)) {
        map_put(plan->required, expr->var, expr->var);
        plan->found = true;
    }
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op)) plan->computed = true;
    if (expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN))
        plan->computed = true;
    return true;
}

static void need_expr(Plan *plan, Expr *expr) {
    Visitor visitor = {.expr = need_piece, .user = plan};
    if (expr) visit_expr(&visitor, expr);
}

bool load_does(const Stmt *stmt, void *user) {
    const Plan *plan = user;
    return loads_tile(stmt, NULL) ||
           ((stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) && map_has(plan->required, stmt->let.var));
}

bool transposer_runs(const Stmt *stmt, void *plan) {
    return transposes_loaded(stmt, plan) || (!loads_tile(stmt, NULL) && load_does(stmt, plan));
}

static bool find_other(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    plan->other |= named && !map_has(plan->required, expr->var);
    plan->other |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return true;
}

bool load_knows(Plan *plan, const Stmt *stmt) {
    Visitor visitor = {.expr = find_other, .user = plan};
    if (is_value(stmt)) return map_has(plan->required, stmt->let.var);
    if (stmt->kind != STMT_ASSUME) return false;
    plan->other = false;
    visit_expr(&visitor, stmt->assume);
    return !plan->other;
}

static void need_control(Plan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) need_expr(plan, stmt->if_.condition);
    if (stmt->kind == STMT_WHILE) need_expr(plan, stmt->while_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++) {
        need_expr(plan, stmt->loop.iters[i].begin);
        need_expr(plan, stmt->loop.iters[i].end);
        need_expr(plan, stmt->loop.iters[i].step);
    }
}

static void need_block(Plan *plan, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (is_value(stmt) && map_has(plan->required, stmt->let.var)) need_expr(plan, stmt->let.value);
        const Region *from = loads_tile(stmt, NULL) ? stmt->call.args[0].region : NULL;
        for (int d = 0; from && d < from->count; d++) need_expr(plan, from->dims[d].start);
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        bool does = false;
        for (int b = 0; b < count; b++) does |= block_any(bodies[b], load_does, plan);
        if (!does) continue;
        need_control(plan, stmt);
        for (int b = 0; b < count; b++) need_block(plan, bodies[b]);
    }
}

static void slice_producer(Plan *plan) {
    plan->required = map_new(plan->arena);
    do {
        plan->found = false;
        need_block(plan, &plan->grid->grid.body);
    } while (plan->found && !plan->computed);
}

// ---- legality ----
//
// Why the warpgroups of a kernel cannot work on one point together: statements that they could not share, memory that
// somebody else writes, tiles that are used where they were not loaded.

// Memory operations with an order, by which blocks work together: the role that computes does them as the block would.
static bool between_blocks(OpId op) {
    return op_is(op, OP_CLASS_ELEMENT) || op == OP_FENCE;
}

static bool is_work(OpId op) {
    switch (op) {
    case OP_COPY:
    case OP_FILL:
    case OP_GEMM:
    case OP_TRANSPOSE:
    case OP_ASSERT:
    case OP_PRINT: return true;
    default: return op_is(op, OP_CLASS_REDUCTION) || between_blocks(op);
    }
}

static const char *product_problem(Plan *plan, const Stmt *gemm) {
    WgmmaInfo info;
    const char *why;
    int64_t rows = region_extent(gemm->call.args[2].region, 0);
    if (!wgmma_serves(plan->target, gemm, &info, &why)) return why;
    if (plan->rows && plan->rows != rows) return "its gemms have different numbers of rows";
    plan->rows = rows;
    int64_t registers = (int64_t)info.m * info.n / target_warpgroup(plan->target);
    if (registers > plan->widest) plan->widest = registers;
    return NULL;
}

static const char *stmt_problem(Plan *plan, const Stmt *stmt) {
    const char *why;
    switch (stmt->kind) {
    case STMT_ROLE:
    case STMT_THREAD: return "the kernel uses thread indices";
    case STMT_FOR:
    case STMT_WHILE: {
        const Block *body = stmt->kind == STMT_FOR ? &stmt->loop.body : &stmt->while_.body;
        bool leaves = block_any(body, loads_tile, NULL) && block_breaks(body);
        return leaves ? "a `break` leaves a loop that loads" : NULL;
    }
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !tile_of(plan, stmt->decl))
            return "it has a shared buffer that is not loaded by `copy` in the loop: use a fragment";
        return NULL;
    case STMT_CALL:
        if (!is_work(stmt->call.op) || stmt->call.is_async) return "the kernel contains explicit synchronization";
        if (loads_tile(stmt, NULL)) return tma_serves(plan->target, stmt, &why) ? NULL : why;
        if (transposes_loaded(stmt, plan)) return NULL;
        if (is_call(stmt, OP_COPY) && stmt->call.args[1].region->buf->scope == SCOPE_SHARED)
            return "a tile is written by other statements than copies";
        return is_call(stmt, OP_GEMM) ? product_problem(plan, stmt) : NULL;
    default: return NULL;
    }
}

// (memory_problem sees what parallel loops do to memory.)
static bool find_problem(Visitor *visitor, Stmt *stmt) {
    Plan *plan = visitor->user;
    if (plan->problem || is_loop(stmt, LOOP_PARALLEL)) return false;
    plan->problem = stmt_problem(plan, stmt);
    return !plan->problem;
}

static bool find_effect(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool effect = expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && !between_blocks(expr->call.op);
    if (effect && !plan->problem) plan->problem = "the kernel contains explicit synchronization";
    return !plan->problem;
}

static bool find_order(Visitor *visitor, Expr *expr) {
    bool *orders = visitor->user;
    *orders |= expr->kind == EXPR_CALL && between_blocks(expr->call.op);
    return !*orders;
}

static bool find_order_stmt(Visitor *visitor, Stmt *stmt) {
    bool *orders = visitor->user;
    *orders |= stmt->kind == STMT_CALL && between_blocks(stmt->call.op);
    return !*orders;
}

static bool works_with_others(const Block *body) {
    bool orders = false;
    Visitor visitor = {.stmt = find_order_stmt, .expr = find_order, .user = &orders};
    visit_block(&visitor, (Block *)body);
    return orders;
}

// Blocks do not tell each other about what one has read, and it does not come round to its reads again.
static bool reads_before(const Block *body, const Buf *buf) {
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        bool loop = stmt->kind == STMT_WHILE || (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL);
        if (loop && stmt_uses_buf(body->items[i], buf)) return false;
    }
    return !works_with_others(body);
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

// Only copies write tiles, and nobody writes what they come from. (What else is written to global memory and used
// again, insert-sync orders within the role.)
static const char *memory_problem(Plan *plan) {
    EffectVec effects = {0};
    path_effects(plan->arena, plan->grid, &effects);
    VEC_EACH (const Effect, a, &effects) {
        if (a->access == ACCESS_READ) continue;
        if (a->buf->scope == SCOPE_SHARED && a->op != OP_COPY)
            return "a tile is written by other statements than copies";
        for (int j = 0; j < plan->sources.count; j++)
            if (plan->sources.items[j] == a->buf) return "it writes a tensor that it loads";
    }
    return NULL;
}

static const char *copies_problem(Plan *plan) {
    VEC_EACH_PTR (Tile, tile, &plan->tiles) {
        if (tile->buf->alias_of) return "a tile has an @alias";
        if (!find_live_ranges(plan, tile)) return "a tile is used outside of the block of the copy that loads it";
    }
    return NULL;
}

bool is_transposed_tile(const Plan *plan, const Tile *tile) {
    const LiveRange *range = &tile->live_ranges.items[0];
    return transposes_loaded(range->block->items[range->at], (void *)plan);
}

// What one role transposes another one does not read: a tile that is transposed is used for nothing else, and filled in
// the same block, always by a load or always by transposing.
static const char *transpose_problem(Plan *plan) {
    VEC_EACH_PTR (Tile, tile, &plan->tiles) {
        bool transposed = is_transposed_tile(plan, tile), read = transpose_copy(plan, tile) != NULL;
        if (transposed && read) return "a tile is transposed twice";
        VEC_EACH (const LiveRange, range, &tile->live_ranges) {
            const Stmt *fill = range->block->items[range->at];
            if (transposes_loaded(fill, plan) != transposed)
                return "a tile is both loaded and the result of a transpose";
            if (!read) continue;
            const Stmt *waves = range->first >= 0 ? range->block->items[range->first] : NULL;
            if (range->first != range->last || !waves || !transposes_loaded(waves, plan))
                return "a transposed tile is also used untransposed";
        }
    }
    return NULL;
}

static const char *plan_problem(Plan *plan) {
    Visitor visitor = {.stmt = find_problem, .expr = find_effect, .user = plan};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    if (plan->problem) return plan->problem;
    if (!plan->rows) return "it has no gemm";
    const char *problem = memory_problem(plan);
    if (!problem) problem = copies_problem(plan);
    return problem || !plan->transposes ? problem : transpose_problem(plan);
}

// ---- warpgroups and registers ----

// As many as have 64 rows each, or equally many strips of 64.
int cooperative_warpgroups_for(const Target *target, int64_t rows) {
    WgmmaInfo any;
    int64_t strips = wgmma_named("m64n8k16_f32_bf16", &any) ? rows / any.m : 1;
    for (int w = MOST_WARPGROUPS; w > 1; w--)
        if (strips % w == 0 && (int64_t)(MOST_PRODUCERS + w) * target_warpgroup(target) <= target->max_threads)
            return w;
    return 1;
}

// Warpgroups that load, or transpose. Those that transpose share the one that loads where a warpgroup of their own
// would leave the fragments less than SLACK: with 192 columns of 8 bits that costs more than one warp less that
// transposes.
static int producers_for(const Plan *plan, const Func *kernel, int warpgroups) {
    enum { SLACK = 32, GIVEN = 40 };   // registers of a thread: beside its fragments; of one that transposes
    if (!plan->transposes) return 1;
    int64_t most = consumer_registers(plan->target, warpgroups, MOST_PRODUCERS, GIVEN);
    return !most || fragment_registers(plan->target, kernel, warpgroups) + SLACK <= most ? MOST_PRODUCERS : 1;
}

// What threads start with must hold each instruction.
static bool starts_fit(const Plan *plan, int warpgroups, int producers) {
    int64_t threads = (int64_t)(warpgroups + producers) * target_warpgroup(plan->target),
            unit = plan->target->register_unit;
    int64_t share = plan->target->registers_multiprocessor / threads / unit * unit;
    return plan->widest + WGMMA_ROOM <= share;
}

static bool registers_fit(const Target *target, const Func *kernel, int warpgroups, int producers) {
    int64_t most = consumer_registers(target, warpgroups, producers, target->registers_least), room = COOPERATIVE_ROOM;
    if (!most) most = target->registers_thread, room = ROOM_ALONE;   // all fragments are its own, scalars too
    return fragment_registers(target, kernel, warpgroups) + room <= most;
}

// ---- the plan ----

const char *ws_analyze(Arena *arena, const Target *target, const Func *kernel, Plan *plan) {
    *plan = (Plan){.arena = arena, .target = target, .grid = func_grid(kernel)};
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (!plan->grid) return "it has no grid";
    if (func_cluster(kernel) > 1) return "its CTAs form clusters";
    find_ranges(plan, &plan->grid->grid.body, false);
    if (!plan->pipelined) return "no loop loads its tiles ahead: use `pipelined`";
    const char *problem = plan_problem(plan);
    if (problem) return problem;
    slice_producer(plan);
    if (plan->computed) return "the addresses of its loads depend on computed values";
    int warpgroups = cooperative_warpgroups_for(target, plan->rows);
    int producers = plan->producers = producers_for(plan, kernel, warpgroups);
    if (!registers_fit(target, kernel, warpgroups, producers) || !starts_fit(plan, warpgroups, producers))
        return "its fragments need more registers than its warpgroups have: use smaller tiles or more threads";
    make_groups(plan);
    return NULL;
}

const char *cooperative_problem(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    return ws_analyze(arena, target, kernel, &plan);
}

static bool find_stages(Visitor *visitor, Stmt *stmt) {
    int64_t *most = visitor->user, stages = 0;
    if (is_pipelined(stmt) && stmt->loop.stages && expr_const(stmt->loop.stages, &stages) && stages > *most)
        *most = stages;
    return true;
}

int64_t cooperative_slots(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    int64_t bytes = 0, stages = 1;
    if (ws_analyze(arena, target, kernel, &plan) || !plan.transposes) return 0;
    Visitor visitor = {.stmt = find_stages, .user = &stages};
    visit_block(&visitor, (Block *)&kernel->body);
    for (int i = 0; i < plan.tiles.count; i++)
        if (is_transposed_tile(&plan, plan.tiles.items[i]) && plan.tiles.items[i]->buf->stage_dims == 0)
            bytes += (stages - 1) * buf_slot_bytes(plan.tiles.items[i]->buf);
    return bytes;
}

static bool find_rows(Visitor *visitor, Stmt *stmt) {
    int64_t *rows = visitor->user;
    if (is_call(stmt, OP_GEMM)) *rows = region_extent(stmt->call.args[2].region, 0);
    return true;
}

int cooperative_warpgroups(const Target *target, const Func *kernel) {
    int64_t rows = 0;
    Visitor visitor = {.stmt = find_rows, .user = &rows};
    visit_block(&visitor, (Block *)&kernel->body);
    return cooperative_warpgroups_for(target, rows);
}
