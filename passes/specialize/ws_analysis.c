// Whether a kernel's warpgroups can work on one point together: its tiles, the statements that use them, what the role that loads
// has to know (producer_slice.c), what stands against it (ws_legality.c), registers. (What comes of it: cooperative.c.)
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All statements
// that use it stand there.
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
            plan->waves |= !loads;
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
        Block *bodies[2];
        if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) continue;
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) find_ranges(plan, bodies[b], inside);
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

bool find_live_ranges(Plan *plan, Tile *tile) {
    int uses = 0;
    for (int s = 0; s < tile->live_ranges.count; s++) {
        LiveRange *range = &tile->live_ranges.items[s];
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
    bool leaf = stmt->kind == STMT_CALL || (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) ||
                stmt->kind == STMT_LET || stmt->kind == STMT_STORE;
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

const Stmt *transpose_copy(const Plan *plan, const Tile *tile) {
    for (int s = 0; s < tile->live_ranges.count; s++) {
        const LiveRange *range = &tile->live_ranges.items[s];
        if (range->first >= 0 && transposes_loaded(range->block->items[range->first], (void *)plan) &&
            range->block->items[range->first]->call.args[0].region->buf == tile->buf)
            return range->block->items[range->first];
    }
    return NULL;
}

static void make_groups(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        Tile *tile = plan->tiles.items[i];
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
    for (int g = 0; g < plan->channels.count && !plan->waves; g++) {
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

// Warpgroups that load, or transpose. Those that transpose share the one that loads where a warpgroup of their own would leave the
// fragments less than SLACK: with 192 columns of 8 bits that costs more than one warp less that transposes.
static int producers_for(const Plan *plan, const Func *kernel, int warpgroups) {
    enum { SLACK = 32, GIVEN = 40 };   // registers of a thread: beside its fragments; of one that transposes
    if (!plan->waves) return 1;
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
    if (ws_analyze(arena, target, kernel, &plan) || !plan.waves) return 0;
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
