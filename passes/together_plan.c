// Whether a kernel's warpgroups can work on one point together: its tiles, the statements that use them, what the role that loads
// has to know, registers. (What comes of it: part_together.c.)
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All statements
// that use it stand there.
#include "passes/together_plan.h"
#include "ir/build.h"

enum { MOST_WARPGROUPS = 3, ROOM_ALONE = 48 };   // that compute; registers beside the fragments of one that is alone

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

static void find_sites(Plan *plan, const Block *block, bool pipelined) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int64_t stages = 0;
        if (loads_tile(stmt, NULL)) {
            Buf *buf = stmt->call.args[1].region->buf;
            Tile *tile = tile_of(plan, buf);
            if (!tile) {
                tile = NEW(plan->arena, Tile);
                tile->buf = buf;
                vec_push(plan->arena, &plan->tiles, tile);
            }
            vec_push(plan->arena, &tile->sites, ((Site){block, i, -1, -1}));
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
    const Buf *buf;
    int count;
} Copies;

static bool count_copy(Visitor *visitor, Stmt *stmt) {
    Copies *copies = visitor->user;
    copies->count += loaded_tile(stmt) == copies->buf;
    return true;
}

static int copies_below(const Stmt *stmt, const Buf *buf) {
    Copies copies = {buf, 0};
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
            if (loaded_tile(stmt) == tile->buf) break;
            if (copies_below(stmt, tile->buf) > 0) return false;
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

static int64_t slots_of(const Buf *buf) {
    return buf->stage_dims ? buf_extent(buf, 0) : 1;
}

static bool belong_together(const Tile *a, const Tile *b) {
    if (a->sites.count != b->sites.count || slots_of(a->buf) != slots_of(b->buf)) return false;
    for (int s = 0; s < a->sites.count; s++)
        if (!side_by_side(&a->sites.items[s], &b->sites.items[s])) return false;
    return true;
}

typedef struct ByThreads {
    const Buf *buf;
    bool found;
} ByThreads;

static bool find_reader(Visitor *visitor, Stmt *stmt) {
    ByThreads *by = visitor->user;
    bool leaf = stmt->kind == STMT_CALL || (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL) ||
                stmt->kind == STMT_LET || stmt->kind == STMT_STORE;
    if (!leaf) return true;
    Block one = {.items = &stmt, .count = 1, .capacity = 1};
    if (!is_call(stmt, OP_GEMM) && loaded_tile(stmt) != by->buf) by->found |= block_uses_buf(&one, by->buf);
    return false;
}

static bool read_by_threads(const Plan *plan, const Buf *buf) {
    ByThreads by = {buf, false};
    Visitor visitor = {.stmt = find_reader, .user = &by};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    return by.found;
}

static int64_t tile_bytes(const Buf *buf) {
    int64_t bits = type_bits(buf->type);
    for (int d = buf->stage_dims; d < buf->rank; d++) bits *= buf_extent(buf, d);
    return bits / 8;
}

static void make_groups(Plan *plan) {
    for (int i = 0; i < plan->tiles.count; i++) {
        Tile *tile = plan->tiles.items[i];
        for (int g = 0; g < plan->groups.count && !tile->group; g++)
            if (belong_together(plan->groups.items[g]->tiles.items[0], tile)) tile->group = plan->groups.items[g];
        if (!tile->group) {
            tile->group = NEW(plan->arena, Group);
            tile->group->slots = slots_of(tile->buf);
            vec_push(plan->arena, &plan->groups, tile->group);
        }
        vec_push(plan->arena, &tile->group->tiles, tile);
        vec_push(plan->arena, &tile->group->release.tiles, tile->buf);
        tile->group->bytes += tile_bytes(tile->buf);
        tile->group->by_threads |= read_by_threads(plan, tile->buf);
    }
}

// ---- what the role that loads may know ----

static bool is_computed_scalar(const Plan *plan, const Var *var) {
    for (int i = 0; i < plan->computed.count; i++)
        if (plan->computed.items[i] == var) return true;
    return false;
}

static bool find_computed(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    if (expr->kind == EXPR_VAR && is_computed_scalar(plan, expr->var)) plan->uses++;
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op)) plan->uses++;
    if (expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN)) plan->uses++;
    return true;
}

bool is_computed(Plan *plan, Expr *expr) {
    Visitor visitor = {.expr = find_computed, .user = plan};
    plan->uses = 0;
    if (expr) visit_expr(&visitor, expr);
    return plan->uses > 0;
}

static bool copy_depends(Plan *plan, const Stmt *copy) {
    const Region *from = copy->call.args[0].region;
    for (int d = 0; d < from->count; d++)
        if (is_computed(plan, from->dims[d].start)) return true;
    return false;
}

static bool control_depends(Plan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) return is_computed(plan, stmt->if_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++)
        if (is_computed(plan, stmt->loop.iters[i].begin) || is_computed(plan, stmt->loop.iters[i].end)) return true;
    return stmt->kind != STMT_FOR && stmt->kind != STMT_BLOCK;
}

static bool load_depends(Plan *plan, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_LET && is_computed(plan, stmt->let.value))
            vec_push(plan->arena, &plan->computed, stmt->let.var);
        if (loads_tile(stmt, NULL) && copy_depends(plan, stmt)) return true;
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        bool copies = false;
        for (int b = 0; b < count; b++) copies |= block_any(bodies[b], loads_tile, NULL);
        if (!copies) continue;
        if (control_depends(plan, stmt)) return true;
        for (int b = 0; b < count; b++)
            if (load_depends(plan, bodies[b])) return true;
    }
    return false;
}

// ---- can it? ----

static bool is_work(OpId op) {
    switch (op) {
    case OP_COPY:
    case OP_FILL:
    case OP_GEMM:
    case OP_TRANSPOSE:
    case OP_ASSERT:
    case OP_PRINT: return true;
    default: return op >= OP_REDUCE_SUM && op <= OP_REDUCE_ALL;
    }
}

static const char *product_problem(Plan *plan, const Stmt *gemm) {
    WgmmaInfo info;
    const char *why;
    int64_t rows = region_extent(gemm->call.args[2].region, 0);
    if (!wgmma_serves(plan->target, gemm, &info, &why)) return why;
    if (plan->rows && plan->rows != rows) return "its products have different numbers of rows";
    plan->rows = rows;
    return NULL;
}

static const char *stmt_problem(Plan *plan, const Stmt *stmt) {
    const char *why;
    switch (stmt->kind) {
    case STMT_ROLE:
    case STMT_THREAD: return "it names its threads";
    case STMT_VAR:
    case STMT_WHILE:
    case STMT_BREAK: return "its control flow is not the same for every role";
    case STMT_DECL:
        if (stmt->decl->scope == SCOPE_SHARED && !tile_of(plan, stmt->decl))
            return "it has shared memory beside the tiles that are loaded";
        return NULL;
    case STMT_CALL:
        if (!is_work(stmt->call.op) || stmt->call.is_async) return "it orders what its threads do itself";
        if (loads_tile(stmt, NULL)) return tma_serves(plan->target, stmt, &why) ? NULL : why;
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
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op) && !plan->problem)
        plan->problem = "it orders what its threads do itself";
    return !plan->problem;
}

static bool writes(const EffectVec *effects, const Buf *buf) {
    for (int i = 0; i < effects->count; i++)
        if (effects->items[i].buf == buf && effects->items[i].access == ACCESS_WRITE) return true;
    return false;
}

// Effects of all statements, where of the two branches of an `if` only one is executed: what both write is written once.
static void effects_of(Arena *arena, const Stmt *stmt, EffectVec *out) {
    Stmt shell = *stmt;   // the statement without its bodies
    Block *bodies[2], inner[2] = {{0}, {0}};
    int count = stmt_bodies(&shell, bodies);
    for (int b = 0; b < count; b++) {
        inner[b] = *bodies[b];
        *bodies[b] = (Block){0};
    }
    stmt_effects(arena, &shell, out);
    EffectVec parts[2] = {{0}, {0}};
    for (int b = 0; b < count; b++)
        for (int i = 0; i < inner[b].count; i++) effects_of(arena, inner[b].items[i], &parts[b]);
    for (int b = 0; b < count; b++)
        for (int i = 0; i < parts[b].count; i++) {
            const Effect *effect = &parts[b].items[i];
            bool again = b == 1 && stmt->kind == STMT_IF && effect->access == ACCESS_WRITE;
            if (!again || !writes(&parts[0], effect->buf)) vec_push(arena, out, *effect);
        }
}

// Only copies write tiles; nothing that is written is read again or written by another statement, since a role has no barriers
// for it.
static const char *memory_problem(Plan *plan) {
    EffectVec effects = {0};
    effects_of(plan->arena, plan->grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (a->access == ACCESS_READ) continue;
        if (a->buf->scope == SCOPE_SHARED && a->op != OP_COPY) return "a tile is not only written by its copies";
        for (int j = 0; j < effects.count && a->buf->scope == SCOPE_GLOBAL; j++)
            if (effects.items[j].buf == a->buf && (i != j || a->access != ACCESS_WRITE))
                return "it uses again what it writes to global memory";
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

// As many as have 64 rows each, or equally many strips of 64.
int together_warpgroups_for(const Target *target, int64_t rows) {
    WgmmaInfo any;
    int64_t strips = wgmma_named("m64n8k16_f32_bf16", &any) ? rows / any.m : 1;
    for (int w = MOST_WARPGROUPS; w > 1; w--)
        if (strips % w == 0 && (int64_t)(1 + w) * target_warpgroup(target) <= target->max_threads) return w;
    return 1;
}

static bool registers_fit(const Target *target, const Func *kernel, int warpgroups) {
    int64_t most = consumer_registers(target, warpgroups, target->registers_least), room = TOGETHER_ROOM;
    if (!most) most = target->registers_thread, room = ROOM_ALONE;   // all fragments are its own, scalars too
    return fragment_registers(target, kernel, warpgroups) + room <= most;
}

const char *together_plan(Arena *arena, const Target *target, const Func *kernel, Plan *plan) {
    *plan = (Plan){.arena = arena, .target = target, .grid = func_grid(kernel)};
    if (!target_has(target, FEATURE_TMA) || !target_has(target, FEATURE_WGMMA)) return "the target has no wgmma";
    if (!plan->grid) return "it has no grid";
    Block *body = (Block *)&plan->grid->grid.body;
    find_sites(plan, body, false);
    if (!plan->pipelined) return "it has no pipelined loop that loads tiles";
    Visitor visitor = {.stmt = find_problem, .expr = find_effect, .user = plan};
    visit_block(&visitor, body);
    if (plan->problem) return plan->problem;
    if (!plan->rows) return "it does not multiply";
    const char *problem = memory_problem(plan);
    if (!problem) problem = copies_problem(plan);
    if (!problem && load_depends(plan, body)) problem = "what it loads depends on what it computes";
    if (problem) return problem;
    if (!registers_fit(target, kernel, together_warpgroups_for(target, plan->rows)))
        return "its warpgroups have not enough registers for its fragments";
    make_groups(plan);
    return NULL;
}

const char *together_problem(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    return together_plan(arena, target, kernel, &plan);
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
