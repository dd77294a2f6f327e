// Whether a kernel's warpgroups can work on one point together: its tiles, the statements that use them, what the role that loads
// has to know, registers. (What comes of it: part_together.c.)
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All statements
// that use it stand there.
#include "passes/together_plan.h"
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

bool turns_loaded(const Stmt *stmt, void *user) {
    const Plan *plan = user;
    return turns_tile(plan->target, stmt) && tile_of(plan, stmt->call.args[0].region->buf);
}

// The tile that the statement fills; NULL: none.
static const Buf *filled_tile(const Plan *plan, const Stmt *stmt) {
    return loads_tile(stmt, NULL) || turns_loaded(stmt, (void *)plan) ? stmt->call.args[1].region->buf : NULL;
}

static void find_sites(Plan *plan, const Block *block, bool pipelined) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int64_t stages = 0;
        if (filled_tile(plan, stmt)) {
            Buf *buf = stmt->call.args[1].region->buf;
            Tile *tile = tile_of(plan, buf);
            bool loads = loads_tile(stmt, NULL);
            plan->turns |= !loads;
            if (!tile) {
                tile = NEW(plan->arena, Tile);
                tile->buf = buf;
                vec_push(plan->arena, &plan->tiles, tile);
            }
            vec_push(plan->arena, &tile->sites, ((Site){block, i, -1, -1}));
            if (loads) vec_push(plan->arena, &plan->sources, stmt->call.args[0].region->buf);
            plan->pipelined |= pipelined;
            continue;
        }
        bool inside = pipelined;
        if (is_pipelined(stmt)) inside = stmt->loop.stages && expr_const(stmt->loop.stages, &stages) && stages > 1;
        Block *bodies[2];
        if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) continue;
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) find_sites(plan, bodies[b], inside);
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

// Where its tiles are used; false: somewhere else too.
static bool find_lives(Plan *plan, Tile *tile) {
    int uses = 0;
    for (int s = 0; s < tile->sites.count; s++) {
        Site *site = &tile->sites.items[s];
        for (int i = site->at + 1; i < site->block->count; i++) {
            const Stmt *stmt = site->block->items[i];
            if (filled_tile(plan, stmt) == tile->buf) break;
            if (copies_below(plan, stmt, tile->buf) > 0) return false;
            int here = count_uses(plan->arena, stmt, tile->buf);
            if (here == 0) continue;
            if (site->first < 0) site->first = i;
            site->last = i;
            uses += here;
        }
    }
    return uses + tile->sites.count == count_uses(plan->arena, plan->grid, tile->buf);
}

// ---- groups ----

// Nothing but copies and scalars from one to the other.
static bool side_by_side(const Site *a, const Site *b) {
    if (a->block != b->block || a->first != b->first || a->last != b->last) return false;
    for (int i = a->at; i < b->at; i++)
        if (!is_scalar(a->block->items[i]) && !loads_tile(a->block->items[i], NULL)) return false;
    return a->at < b->at;
}

static bool belong_together(const Tile *a, const Tile *b) {
    if (a->sites.count != b->sites.count || buf_slots(a->buf) != buf_slots(b->buf)) return false;
    for (int s = 0; s < a->sites.count; s++)
        if (!side_by_side(&a->sites.items[s], &b->sites.items[s])) return false;
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

// The copy that transposes the tile; NULL: none does.
static const Stmt *turning_copy(const Plan *plan, const Tile *tile) {
    for (int s = 0; s < tile->sites.count; s++) {
        const Site *site = &tile->sites.items[s];
        if (site->first >= 0 && turns_loaded(site->block->items[site->first], (void *)plan) &&
            site->block->items[site->first]->call.args[0].region->buf == tile->buf)
            return site->block->items[site->first];
    }
    return NULL;
}

static void make_groups(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        Tile *tile = plan->tiles.items[i];
        for (int g = 0; g < plan->groups.count && !tile->group; g++)
            if (belong_together(plan->groups.items[g]->tiles.items[0], tile)) tile->group = plan->groups.items[g];
        if (!tile->group) {
            tile->group = NEW(plan->arena, Group);
            tile->group->slots = buf_slots(tile->buf);
            vec_push(plan->arena, &plan->groups, tile->group);
        }
        vec_push(plan->arena, &tile->group->tiles, tile);
        vec_push(plan->arena, &tile->group->release.tiles, tile->buf);
        tile->group->bytes += buf_slot_bytes(tile->buf);
        tile->group->by_threads |= read_by_threads(plan, tile->buf);
        tile->group->raw |= turning_copy(plan, tile) != NULL;
        const Site *site = &tile->sites.items[0];
        tile->group->turned |= turns_loaded(site->block->items[site->at], plan);
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
    const Site *site = &tile->sites.items[0];
    const Stmt *found = NULL;
    for (int i = site->last + 1; i < site->block->count; i++) {
        const Stmt *stmt = site->block->items[i];
        TmaStore store;
        const char *why;
        if (!is_call(stmt, OP_COPY) || stmt->call.args[1].region->buf->scope != SCOPE_GLOBAL) continue;
        if (found || !tma_stores(plan->target, stmt, &store, &why) || !tma_stores_through(&store, stmt, tile->buf))
            return NULL;
        found = stmt;
    }
    return found;
}

Group *together_staged(const Plan *plan, const Stmt **store) {
    for (int g = 0; g < plan->groups.count && !plan->turns; g++) {
        Group *group = plan->groups.items[g];
        const Tile *tile = group->tiles.items[0];
        bool once = group->tiles.count == 1 && tile->sites.count == 1 && tile->sites.items[0].first >= 0;
        if (!once || !is_read_by_rows(plan, tile->buf)) continue;
        *store = store_behind(plan, tile);
        if (*store) return group;
    }
    return NULL;
}

// ---- what the role that loads has to know ----
//
// Where tiles lie, and whether and how often they are loaded: the scalars in that, what these come of, and the loops and branches
// around all of it. The role that loads does those too, so nothing of it may come of what is computed, or of memory that the
// kernel writes or that other blocks write meanwhile.

static bool is_value(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN;
}

static bool need_part(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    if (named && !map_has(plan->needed, expr->var)) {
        map_put(plan->needed, expr->var, expr->var);
        plan->found = true;
    }
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op)) plan->computed = true;
    if (expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN))
        plan->computed = true;
    return true;
}

static void need_expr(Plan *plan, Expr *expr) {
    Visitor visitor = {.expr = need_part, .user = plan};
    if (expr) visit_expr(&visitor, expr);
}

bool load_does(const Stmt *stmt, void *user) {
    const Plan *plan = user;
    return loads_tile(stmt, NULL) ||
           ((stmt->kind == STMT_VAR || stmt->kind == STMT_ASSIGN) && map_has(plan->needed, stmt->let.var));
}

bool turn_does(const Stmt *stmt, void *plan) {
    return turns_loaded(stmt, plan) || (!loads_tile(stmt, NULL) && load_does(stmt, plan));
}

static bool find_other(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool named = expr->kind == EXPR_VAR && (expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE);
    plan->other |= named && !map_has(plan->needed, expr->var);
    plan->other |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    return true;
}

bool load_knows(Plan *plan, const Stmt *stmt) {
    Visitor visitor = {.expr = find_other, .user = plan};
    if (is_value(stmt)) return map_has(plan->needed, stmt->let.var);
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
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_value(stmt) && map_has(plan->needed, stmt->let.var)) need_expr(plan, stmt->let.value);
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

static void find_needed(Plan *plan, const Block *block) {
    plan->needed = map_new(plan->arena);
    do {
        plan->found = false;
        need_block(plan, block);
    } while (plan->found && !plan->computed);
}

// ---- can it? ----

// Memory operations with an order, by which blocks work together: the role that computes does them as the block would.
static bool between_blocks(OpId op) {
    return (op >= OP_ATOMIC_ADD && op <= OP_STORE) || op == OP_FENCE;
}

static bool is_work(OpId op) {
    switch (op) {
    case OP_COPY:
    case OP_FILL:
    case OP_GEMM:
    case OP_TRANSPOSE:
    case OP_ASSERT:
    case OP_PRINT: return true;
    default: return (op >= OP_REDUCE_SUM && op <= OP_REDUCE_ALL) || between_blocks(op);
    }
}

static const char *product_problem(Plan *plan, const Stmt *gemm) {
    WgmmaInfo info;
    const char *why;
    int64_t rows = region_extent(gemm->call.args[2].region, 0);
    if (!wgmma_serves(plan->target, gemm, &info, &why)) return why;
    if (plan->rows && plan->rows != rows) return "its products have different numbers of rows";
    plan->rows = rows;
    int64_t registers = (int64_t)info.m * info.n / target_warpgroup(plan->target);
    if (registers > plan->widest) plan->widest = registers;
    return NULL;
}

static const char *stmt_problem(Plan *plan, const Stmt *stmt) {
    const char *why;
    switch (stmt->kind) {
    case STMT_ROLE:
    case STMT_THREAD: return "it names its threads";
    case STMT_FOR:
    case STMT_WHILE: {
        const Block *body = stmt->kind == STMT_FOR ? &stmt->loop.body : &stmt->while_.body;
        bool leaves = block_any(body, loads_tile, NULL) && block_breaks(body);
        return leaves ? "it leaves a loop that loads" : NULL;
    }
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !tile_of(plan, stmt->decl))
            return "it has shared memory beside the tiles that are loaded";
        return NULL;
    case STMT_CALL:
        if (!is_work(stmt->call.op) || stmt->call.is_async) return "it orders what its threads do itself";
        if (loads_tile(stmt, NULL)) return tma_serves(plan->target, stmt, &why) ? NULL : why;
        if (turns_loaded(stmt, plan)) return NULL;
        if (is_call(stmt, OP_COPY) && stmt->call.args[1].region->buf->scope == SCOPE_SHARED)
            return "a tile is not only written by its copies";
        return is_call(stmt, OP_GEMM) ? product_problem(plan, stmt) : NULL;
    default: return NULL;
    }
}

// (memory_problem sees what parallel loops do to memory.)
static bool find_problem(Visitor *visitor, Stmt *stmt) {
    Plan *plan = visitor->user;
    if (plan->problem || (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL)) return false;
    plan->problem = stmt_problem(plan, stmt);
    return !plan->problem;
}

static bool find_effect(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    bool effect = expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && !between_blocks(expr->call.op);
    if (effect && !plan->problem) plan->problem = "it orders what its threads do itself";
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
        const Block one = {.items = (Stmt **)&body->items[i], .count = 1, .capacity = 1};
        if (loop && block_uses_buf(&one, buf)) return false;
    }
    return !works_with_others(body);
}

bool written_last(Arena *arena, const Func *kernel, const Buf *buf) {
    const Stmt *grid = func_grid(kernel);
    EffectVec effects = {0};
    int reads = 0, writes = 0;
    path_effects(arena, grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *effect = &effects.items[i];
        if (effect->buf != buf) continue;
        if (writes > 0 || effect->access == ACCESS_UPDATE) return false;
        reads += effect->access == ACCESS_READ;
        writes += effect->access == ACCESS_WRITE;
    }
    return reads == 0 || reads_before(&grid->grid.body, buf);
}

// Only copies write tiles, and nobody writes what they come from. (What else is written to global memory and used again,
// insert-sync orders within the role.)
static const char *memory_problem(Plan *plan) {
    EffectVec effects = {0};
    path_effects(plan->arena, plan->grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (a->access == ACCESS_READ) continue;
        if (a->buf->scope == SCOPE_SHARED && a->op != OP_COPY) return "a tile is not only written by its copies";
        for (int j = 0; j < plan->sources.count; j++)
            if (plan->sources.items[j] == a->buf) return "it writes to what it loads from";
    }
    return NULL;
}

static const char *copies_problem(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        Tile *tile = plan->tiles.items[i];
        if (tile->buf->alias_of) return "a tile shares its memory";
        if (!find_lives(plan, tile)) return "a tile is used where it was not loaded";
    }
    return NULL;
}

static bool is_turned(const Plan *plan, const Tile *tile) {
    const Site *site = &tile->sites.items[0];
    return turns_loaded(site->block->items[site->at], (void *)plan);
}

// What one role transposes another one does not read: a tile that is transposed is used for nothing else, and filled in the same
// block, always by a load or always by transposing.
static const char *turns_problem(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        const Tile *tile = plan->tiles.items[i];
        bool turned = is_turned(plan, tile), read = turning_copy(plan, tile) != NULL;
        if (turned && read) return "a tile is transposed twice";
        for (int s = 0; s < tile->sites.count; s++) {
            const Site *site = &tile->sites.items[s];
            const Stmt *fill = site->block->items[site->at];
            if (turns_loaded(fill, plan) != turned) return "a tile is loaded and transposed to";
            if (!read) continue;
            const Stmt *turns = site->first >= 0 ? site->block->items[site->first] : NULL;
            if (site->first != site->last || !turns || !turns_loaded(turns, plan))
                return "a tile that is transposed is used as it is too";
        }
    }
    return NULL;
}

// As many as have 64 rows each, or equally many strips of 64.
int together_warpgroups_for(const Target *target, int64_t rows) {
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
    if (!plan->turns) return 1;
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
    int64_t most = consumer_registers(target, warpgroups, producers, target->registers_least), room = TOGETHER_ROOM;
    if (!most) most = target->registers_thread, room = ROOM_ALONE;   // all fragments are its own, scalars too
    return fragment_registers(target, kernel, warpgroups) + room <= most;
}

const char *together_plan(Arena *arena, const Target *target, const Func *kernel, Plan *plan) {
    *plan = (Plan){.arena = arena, .target = target, .grid = func_grid(kernel)};
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (!plan->grid) return "it has no grid";
    if (func_cluster(kernel) > 1) return "its blocks work together";
    Block *body = (Block *)&plan->grid->grid.body;
    find_sites(plan, body, false);
    if (!plan->pipelined) return "it has no pipelined loop that loads tiles";
    Visitor visitor = {.stmt = find_problem, .expr = find_effect, .user = plan};
    visit_block(&visitor, body);
    if (plan->problem) return plan->problem;
    if (!plan->rows) return "it does not multiply";
    const char *problem = memory_problem(plan);
    if (!problem) problem = copies_problem(plan);
    if (!problem && plan->turns) problem = turns_problem(plan);
    find_needed(plan, body);
    if (!problem && plan->computed) problem = "what it loads depends on what it computes";
    if (problem) return problem;
    int warpgroups = together_warpgroups_for(target, plan->rows);
    int producers = plan->producers = producers_for(plan, kernel, warpgroups);
    if (!registers_fit(target, kernel, warpgroups, producers) || !starts_fit(plan, warpgroups, producers))
        return "its warpgroups have not enough registers for its fragments";
    make_groups(plan);
    return NULL;
}

const char *together_problem(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    return together_plan(arena, target, kernel, &plan);
}

static bool find_stages(Visitor *visitor, Stmt *stmt) {
    int64_t *most = visitor->user, stages = 0;
    if (is_pipelined(stmt) && stmt->loop.stages && expr_const(stmt->loop.stages, &stages) && stages > *most)
        *most = stages;
    return true;
}

int64_t together_slots(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    int64_t bytes = 0, stages = 1;
    if (together_plan(arena, target, kernel, &plan) || !plan.turns) return 0;
    Visitor visitor = {.stmt = find_stages, .user = &stages};
    visit_block(&visitor, (Block *)&kernel->body);
    for (int i = 0; i < plan.tiles.count; i++)
        if (is_turned(&plan, plan.tiles.items[i]) && plan.tiles.items[i]->buf->stage_dims == 0)
            bytes += (stages - 1) * buf_slot_bytes(plan.tiles.items[i]->buf);
    return bytes;
}

static bool find_rows(Visitor *visitor, Stmt *stmt) {
    int64_t *rows = visitor->user;
    if (is_call(stmt, OP_GEMM)) *rows = region_extent(stmt->call.args[2].region, 0);
    return true;
}

int together_warpgroups(const Target *target, const Func *kernel) {
    int64_t rows = 0;
    Visitor visitor = {.stmt = find_rows, .user = &rows};
    visit_block(&visitor, (Block *)&kernel->body);
    return together_warpgroups_for(target, rows);
}
