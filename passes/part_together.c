// Roles that work on one point together: one loads, and one of W warpgroups computes.
//
// What the threads of a block do with a point is parted in two. `load` goes through the point's loops and starts the copies of
// tiles to shared memory by TMA; `compute` does all the rest, with W * 64 rows of its accumulators spread over W warpgroups:
// each has 64 rows (or some times 64), multiplies them by wgmma, and does on its rows what stands between the products.
//
//     source                              load                                compute
//     copy(Q.., Qs)                       wait(Qs_empty) async copy(Q..)      wait(Qs_full)
//     pipelined (n in steps) {            for (n in steps) {                  for (n in steps) {
//         copy(K.., Ks)                       wait(Ks_empty) async copy(K..)      wait(Ks_full)
//         gemm(Qs, Ks.T, s)                                                       gemm(Qs, Ks.T, s)   arrive(Ks_empty)
//         softmax of s                                                            softmax of s
//         copy(V.., Vs)                       wait(Vs_empty) async copy(V..)      wait(Vs_full)
//         gemm(p, Vs, o)                                                          gemm(p, Vs, o)      arrive(Vs_empty)
//     }                                   }                                   }
//     copy(o, O..)                                                            arrive(Qs_empty) copy(o, O..)
//
// Each tile has a pair of mbarriers a slot: `full` completes when its bytes have landed, `empty` when all warpgroups have
// arrived, each when it has read it. Tiles that are filled and read by the same statements share a pair. Both roles go through
// the same control flow and count slots as they meet the tiles, so trips may differ from point to point; what they need to know
// for that must not depend on what is computed.
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All statements
// that use it stand there; the wait comes before the first of them, the arrival after the last.
//
// Products then become asynchronous (start_products.c), and some move behind those of the next iteration
// (rotate_products.c). Where all points take equally many steps blocks are persistent and load ahead across points; else every
// point is a block, and the device balances them.
#include "ir/build.h"
#include "passes/parting.h"
#include <string.h>

enum { MOST_WARPGROUPS = 3, ROOM = 24 };   // that compute; registers for addresses and counters

// ---- tiles ----

typedef struct Group Group;

typedef struct Site {   // a copy into a tile, and the statements of its block that use it
    const Block *block;
    int at, first, last;   // first -1: nothing does
} Site;

typedef struct Tile {
    Buf *buf;
    VEC(Site) sites;
    Group *group;
} Tile;

struct Group {   // tiles that are filled and emptied together
    Release release;
    VEC(Tile *) tiles;
    int64_t slots, bytes;
    bool by_threads;   // some statement reads them without wgmma
    bool once;         // they are filled once in a block: nobody waits for them to be empty
    Buf *full, *empty;
    Counter counter;   // of the role that is being made
};

typedef struct Plan {
    Arena *arena;
    const Target *target;
    const Stmt *grid;
    VEC(Tile *) tiles;
    VEC(Group *) groups;
    VEC(const Var *) computed;   // scalars that depend on what is computed
    const char *problem;
    int64_t rows;   // of the products
    bool pipelined, in_turn;
    int uses;
} Plan;

static Tile *tile_of(const Plan *plan, const Buf *buf) {
    for (int i = 0; i < plan->tiles.count; i++)
        if (plan->tiles.items[i]->buf == buf) return plan->tiles.items[i];
    return NULL;
}

static bool loads_tile(const Stmt *stmt) {
    return is_call(stmt, OP_COPY) && stmt->call.args[0].region->buf->scope == SCOPE_GLOBAL &&
           stmt->call.args[1].region->buf->scope == SCOPE_SHARED;
}

static const Buf *loaded(const Stmt *stmt) {
    return loads_tile(stmt) ? stmt->call.args[1].region->buf : NULL;
}

static void find_sites(Plan *plan, const Block *block, bool pipelined) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        int64_t stages = 0;
        if (loads_tile(stmt)) {
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
    copies->count += loaded(stmt) == copies->buf;
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
            if (loaded(stmt) == tile->buf) break;
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
        if (!is_scalar(a->block->items[i]) && !loads_tile(a->block->items[i])) return false;
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
    if (!is_call(stmt, OP_GEMM) && loaded(stmt) != by->buf) by->found |= block_uses_buf(&one, by->buf);
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

static bool is_computed(const Plan *plan, const Var *var) {
    for (int i = 0; i < plan->computed.count; i++)
        if (plan->computed.items[i] == var) return true;
    return false;
}

static bool find_computed(Visitor *visitor, Expr *expr) {
    Plan *plan = visitor->user;
    if (expr->kind == EXPR_VAR && is_computed(plan, expr->var)) plan->uses++;
    if (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op)) plan->uses++;
    if (expr->kind == EXPR_LOAD && (!expr->load.buf->is_param || expr->load.buf->mode != MODE_IN)) plan->uses++;
    return true;
}

static bool depends(Plan *plan, Expr *expr) {
    Visitor visitor = {.expr = find_computed, .user = plan};
    plan->uses = 0;
    if (expr) visit_expr(&visitor, expr);
    return plan->uses > 0;
}

static bool copy_depends(Plan *plan, const Stmt *copy) {
    const Region *from = copy->call.args[0].region;
    for (int d = 0; d < from->count; d++)
        if (depends(plan, from->dims[d].start)) return true;
    return false;
}

static bool holds_copy(const Stmt *stmt, void *user) {
    (void)user;
    return loads_tile(stmt);
}

static bool control_depends(Plan *plan, const Stmt *stmt) {
    if (stmt->kind == STMT_IF) return depends(plan, stmt->if_.condition);
    for (int i = 0; stmt->kind == STMT_FOR && i < stmt->loop.count; i++)
        if (depends(plan, stmt->loop.iters[i].begin) || depends(plan, stmt->loop.iters[i].end)) return true;
    return stmt->kind != STMT_FOR && stmt->kind != STMT_BLOCK;
}

static bool load_depends(Plan *plan, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_LET && depends(plan, stmt->let.value))
            vec_push(plan->arena, &plan->computed, stmt->let.var);
        if (loads_tile(stmt) && copy_depends(plan, stmt)) return true;
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        bool copies = false;
        for (int b = 0; b < count; b++) copies |= block_any(bodies[b], holds_copy, NULL);
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
        if (loads_tile(stmt)) return tma_serves(plan->target, stmt, &why) ? NULL : why;
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

// Only copies write tiles; nothing that is written is read again, since a role has no barriers for it.
static const char *memory_problem(Plan *plan) {
    EffectVec effects = {0};
    stmt_effects(plan->arena, plan->grid, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (a->access == ACCESS_READ) continue;
        if (a->buf->scope == SCOPE_SHARED && a->op != OP_COPY) return "a tile is not only written by its copies";
        for (int j = 0; j < effects.count && a->buf->scope == SCOPE_GLOBAL; j++)
            if (effects.items[j].buf == a->buf && effects.items[j].access != ACCESS_WRITE)
                return "it reads again what it writes to global memory";
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
static int warpgroups_of(const Target *target, int64_t rows) {
    WgmmaInfo any;
    int64_t strips = wgmma_named("m64n8k16_f32_bf16", &any) ? rows / any.m : 1;
    for (int w = MOST_WARPGROUPS; w > 1; w--)
        if (strips % w == 0 && (int64_t)(1 + w) * target_warpgroup(target) <= target->max_threads) return w;
    return 1;
}

static bool registers_fit(const Target *target, const Func *kernel, int warpgroups) {
    int64_t most = consumer_registers(target, warpgroups, target->registers_least);
    if (!most) most = target->registers_thread;
    return fragment_registers(target, kernel, warpgroups) + ROOM <= most;
}

static const char *make_plan(Arena *arena, const Target *target, const Func *kernel, Plan *plan) {
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
    if (!registers_fit(target, kernel, warpgroups_of(target, plan->rows)))
        return "its warpgroups have not enough registers for its fragments";
    make_groups(plan);
    return NULL;
}

const char *together_problem(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    return make_plan(arena, target, kernel, &plan);
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
    return warpgroups_of(target, rows);
}

// ---- both roles ----

typedef struct Maker {
    Parting *parting;
    Plan *plan;
    Subst *subst;
    Map *releases;   // arrivals at `empty` -> Group, whose first member is the Release
    Block buffers;   // shared memory of the role
} Maker;

static void push_counters(Maker *m, int parity, Block *out) {
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        const char *name = group->tiles.items[0]->buf->name;
        const char *prefix = m->plan->groups.count > 1 ? arena_printf(m->plan->arena, "%s_", name) : "";
        group->counter = push_counter(m->parting, prefix, group->slots, parity, out);
    }
}

// Tiles get their slots from the counters.
static Region *set_region_slot(Mapper *mapper, Region *region) {
    Maker *m = mapper->user;
    Tile *tile = tile_of(m->plan, region->buf);
    if (!tile || region->buf->stage_dims == 0) return region;
    Region *other = clone_region(mapper->arena, NULL, region);
    other->dims[0].start = slot_index(m->parting, &tile->group->counter);
    return other;
}

static Expr *set_load_slot(Mapper *mapper, Expr *expr) {
    Maker *m = mapper->user;
    Tile *tile = expr->kind == EXPR_LOAD ? tile_of(m->plan, expr->load.buf) : NULL;
    if (!tile || expr->load.buf->stage_dims == 0) return expr;
    Expr *indices[LAYOUT_MAX_RANK];
    for (int d = 0; d < expr->load.count; d++) indices[d] = expr->load.indices[d];
    indices[0] = slot_index(m->parting, &tile->group->counter);
    return e_load(mapper->arena, expr->load.buf, expr->load.count, indices);
}

static Stmt *cloned(Maker *m, const Stmt *stmt) {
    Mapper mapper = {.arena = m->plan->arena, .expr = set_load_slot, .region = set_region_slot, .user = m};
    Stmt *clone = clone_stmt(m->plan->arena, m->subst, stmt);
    map_stmt(&mapper, clone);
    return clone;
}

// The statement without its bodies, which are empty. Loops get an iterator of their own.
static Stmt *shell_of(Maker *m, const Stmt *stmt) {
    Arena *a = m->plan->arena;
    Stmt *shell = stmt_new(a, stmt->kind, stmt->loc);
    shell->attrs = stmt->attrs;
    if (stmt->kind == STMT_IF) shell->if_.condition = subst_expr(m->subst, stmt->if_.condition);
    if (stmt->kind != STMT_FOR) return shell;
    shell->loop = stmt->loop;
    shell->loop.kind = stmt->loop.kind == LOOP_PIPELINED ? LOOP_SERIAL : stmt->loop.kind;
    shell->loop.stages = NULL;
    shell->loop.body = (Block){0};
    shell->loop.iters = NEW_ARRAY(a, Iter, stmt->loop.count);
    for (int i = 0; i < stmt->loop.count; i++) {
        const Iter *iter = &stmt->loop.iters[i];
        Var *var = var_new(a, iter->var->name, VAR_ITER, iter->var->type, iter->var->loc);
        shell->loop.iters[i] = (Iter){var, subst_expr(m->subst, iter->begin), subst_expr(m->subst, iter->end),
                                      subst_expr(m->subst, iter->step)};
        subst_var(m->subst, iter->var, e_var(a, var));
    }
    return shell;
}

// ---- load ----

static void push_started(Maker *m, const Stmt *copy, const Group *group, Block *out) {
    Parting *p = m->parting;
    Stmt *clone = cloned(m, copy);
    Arg args[] = {clone->call.args[0], clone->call.args[1], element(p, group->full, slot_index(p, &group->counter))};
    Stmt *started = s_call(p->arena, OP_COPY, COUNT_OF(args), args);
    started->loc = copy->loc;
    started->attrs = clone->attrs;
    started->call.is_async = true;
    block_push(p->arena, out, started);
}

static void push_load(Maker *m, const Stmt *copy, Block *out) {
    Parting *p = m->parting;
    const Tile *tile = tile_of(m->plan, loaded(copy));
    const Group *group = tile->group;
    Expr *slot = slot_index(p, &group->counter);
    if (tile == group->tiles.items[0]) {
        if (!group->once) push_on(p, OP_MBARRIER_WAIT, group->empty, slot, e_var(p->arena, group->counter.parity), out);
        push_on(p, OP_MBARRIER_EXPECT, group->full, slot, integer(p, group->bytes), out);
    }
    push_started(m, copy, group, out);
    if (tile == vec_last(&group->tiles) && !group->once) push_advance(p, &group->counter, out);
}

static void load_block(Maker *m, const Block *from, Block *out);

static void load_stmt(Maker *m, Stmt *stmt, Block *out) {
    Arena *a = m->plan->arena;
    if (loads_tile(stmt)) push_load(m, stmt, out);
    if (stmt->kind == STMT_LET && !depends(m->plan, stmt->let.value)) block_push(a, out, clone_stmt(a, m->subst, stmt));
    if (stmt->kind == STMT_ASSUME && !depends(m->plan, stmt->assume)) block_push(a, out, clone_stmt(a, m->subst, stmt));
    Block *bodies[2], *to[2];
    int count = stmt_bodies(stmt, bodies);
    bool copies = false;
    for (int b = 0; b < count; b++) copies |= block_any(bodies[b], holds_copy, NULL);
    if (!copies) return;
    Stmt *shell = shell_of(m, stmt);
    stmt_bodies(shell, to);
    for (int b = 0; b < count; b++) load_block(m, bodies[b], to[b]);
    block_push(a, out, shell);
}

static void load_block(Maker *m, const Block *from, Block *out) {
    for (int i = 0; i < from->count; i++) load_stmt(m, from->items[i], out);
}

// ---- compute ----

// An accumulator that is filled with zeros for a product that can overwrite it instead: the next statement that touches it, or
// the first that does in a loop which is next, and runs.
typedef struct Overwrites {
    Arena *arena;
    Facts *facts;
} Overwrites;

static bool is_zero_fill(const Stmt *stmt) {
    if (!is_call(stmt, OP_FILL) || !region_is_whole(stmt->call.args[0].region)) return false;
    if (stmt->call.args[0].region->buf->scope != SCOPE_FRAGMENT) return false;
    const Expr *value = stmt->call.args[1].value;
    return value->kind == EXPR_FLOAT ? value->real == 0 : expr_is_int(value, 0);
}

static Stmt *first_touch(const Block *block, int from, const Buf *buf) {
    for (int i = from; i < block->count; i++) {
        Block one = {.items = &block->items[i], .count = 1, .capacity = 1};
        if (block_uses_buf(&one, buf)) return block->items[i];
    }
    return NULL;
}

static bool overwrite(Stmt *gemm, const Buf *buf, Expr *accumulate) {
    enum { ACC = 2, ACCUMULATE = 4 };
    if (!is_call(gemm, OP_GEMM) || gemm->call.args[ACC].region->buf != buf || gemm->call.args[ACCUMULATE].value)
        return false;
    gemm->call.args[ACCUMULATE] = arg_value(accumulate);
    return true;
}

static bool is_dropped(Overwrites *o, const Block *block, int at) {
    Stmt *fill = block->items[at];
    if (!is_zero_fill(fill)) return false;
    const Buf *buf = fill->call.args[0].region->buf;
    Stmt *next = first_touch(block, at + 1, buf);
    if (!next) return false;
    if (next->kind != STMT_FOR || next->loop.kind == LOOP_PARALLEL)
        return overwrite(next, buf, e_bool(o->arena, false));
    const Iter *iter = &next->loop.iters[0];
    Stmt *first = first_touch(&next->loop.body, 0, buf);
    if (next->loop.count != 1 || !prove(o->facts, e_lt(o->arena, iter->begin, iter->end))) return false;
    return overwrite(first, buf, e_lt(o->arena, iter->begin, e_var(o->arena, iter->var)));
}

static void drop_fills(Overwrites *o, Block *block) {
    Block kept = {0};
    int mark = facts_mark(o->facts);
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        if (stmt->kind == STMT_LET) facts_bind(o->facts, stmt->let.var, stmt->let.value);
        if (stmt->kind == STMT_ASSUME) facts_assume(o->facts, stmt->assume, true);
        if (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL)
            for (int d = 0; d < stmt->loop.count; d++) facts_iter(o->facts, &stmt->loop.iters[d]);
        if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_PARALLEL)
            for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) drop_fills(o, bodies[b]);
        if (!is_dropped(o, block, i)) block_push(o->arena, &kept, stmt);
    }
    facts_release(o->facts, mark);
    *block = kept;
}

static void push_full(Maker *m, const Group *group, Block *out) {
    Parting *p = m->parting;
    push_on(p, OP_MBARRIER_WAIT, group->full, slot_index(p, &group->counter), e_var(p->arena, group->counter.parity),
            out);
}

static void push_empty(Maker *m, Group *group, Block *out) {
    Parting *p = m->parting;
    Expr *count = p->consumers > 1 ? integer(p, p->consumers) : NULL;
    push_on(p, OP_MBARRIER_ARRIVE, group->empty, slot_index(p, &group->counter), count, out);
    map_put(m->releases, vec_last(out), group);
}

// Waits for tiles whose first use the statement is, or arrivals where it is the last.
static void push_lives(Maker *m, const Block *block, int at, bool first, Block *out) {
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        const Tile *tile = group->tiles.items[0];
        for (int s = 0; s < tile->sites.count; s++) {
            const Site *site = &tile->sites.items[s];
            bool unused = site->first < 0;
            if (site->block != block || at != (unused ? site->at : first ? site->first : site->last)) continue;
            if (first) push_full(m, group, out);
            else if (!group->once) push_empty(m, group, out);
        }
    }
}

static void compute_block(Maker *m, const Block *from, Block *out) {
    Arena *a = m->plan->arena;
    for (int i = 0; i < from->count; i++) {
        Stmt *stmt = from->items[i];
        push_lives(m, from, i, true, out);
        Block *bodies[2], *to[2];
        int count = stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PARALLEL ? 0 : stmt_bodies(stmt, bodies);
        if (count > 0) {
            Stmt *shell = shell_of(m, stmt);
            stmt_bodies(shell, to);
            for (int b = 0; b < count; b++) compute_block(m, bodies[b], to[b]);
            block_push(a, out, shell);
        } else if (!loads_tile(stmt) && !(stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED)) {
            Stmt *clone = cloned(m, stmt);
            if (via_is(clone, "tma_store")) add_staging(m->parting, clone, m->parting->consumers, &m->buffers);
            block_push(a, out, clone);
        }
        push_lives(m, from, i, false, out);
    }
}

// After an arrival comes the next slot. Before one for which threads have read, all of them meet.
static void finish_releases(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Maker *m = mapper->user;
    Group *group = map_get(m->releases, stmt);
    Arg none[2] = {{0}};
    if (group && group->by_threads) push_call(m->parting, OP_BARRIER, COUNT_OF(none), none, out);
    block_push(mapper->arena, out, stmt);
    if (group) push_advance(m->parting, &group->counter, out);
}

// Where a point is a block nobody waits for the last arrivals: those behind all loops, if no other tile of the group comes.
// False: there is a loop before them.
static bool drop_last_arrivals(Maker *m, Block *block, Map *filled) {
    for (int i = block->count - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        Group *group = map_get(m->releases, stmt);
        if (is_call(stmt, OP_MBARRIER_WAIT)) map_put(filled, stmt->call.args[0].region->buf, stmt);
        if (group && !map_has(filled, group->full)) block_remove(block, i);
        if (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL) return false;
        if (stmt->kind == STMT_FOR) continue;
        for (int b = count - 1; b >= 0; b--)
            if (!drop_last_arrivals(m, bodies[b], filled)) return false;
    }
    return true;
}

// ---- fragments as deep as their uses ----

// A fragment that is overwritten before it is read in the one loop or block that uses it is declared there: nothing of it is
// carried from one iteration to the next.
static bool overwrites_all(const Stmt *stmt, const Buf *buf) {
    enum { ACC = 2, ACCUMULATE = 4 };
    if (is_call(stmt, OP_GEMM) && stmt->call.args[ACC].region->buf == buf)
        return stmt->call.args[ACCUMULATE].value && expr_is_int(stmt->call.args[ACCUMULATE].value, 0);
    if (is_call(stmt, OP_FILL)) return region_is_whole(stmt->call.args[0].region);
    if (!is_call(stmt, OP_COPY) || stmt->call.args[0].region->buf == buf) return false;
    return stmt->call.args[1].region->buf == buf && region_is_whole(stmt->call.args[1].region);
}

static Block *only_user(const Block *block, int from, const Buf *buf) {
    Stmt *user = NULL;
    for (int i = from; i < block->count; i++) {
        Block one = {.items = &block->items[i], .count = 1, .capacity = 1};
        if (!block_uses_buf(&one, buf)) continue;
        if (user) return NULL;
        user = block->items[i];
    }
    Block *bodies[2];
    if (!user || (user->kind == STMT_FOR && user->loop.kind == LOOP_PARALLEL)) return NULL;
    return stmt_bodies(user, bodies) == 1 ? bodies[0] : NULL;
}

static void sink_fragments(Arena *arena, Block *block) {
    Block kept = {0};
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *deeper = NULL;
        if (stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT)
            deeper = only_user(block, i + 1, stmt->decl);
        if (deeper && overwrites_all(first_touch(deeper, 0, stmt->decl), stmt->decl))
            block_insert(arena, deeper, 0, stmt);
        else block_push(arena, &kept, stmt);
    }
    *block = kept;
    for (int i = 0; i < block->count; i++) {
        Block *bodies[2];
        if (block->items[i]->kind == STMT_FOR && block->items[i]->loop.kind == LOOP_PARALLEL) continue;
        for (int b = 0, count = stmt_bodies(block->items[i], bodies); b < count; b++) sink_fragments(arena, bodies[b]);
    }
}

// ---- roles ----

static void learn(Facts *facts, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (stmt->kind == STMT_LET) facts_bind(facts, stmt->let.var, stmt->let.value);
        if (stmt->kind == STMT_ASSUME) facts_assume(facts, stmt->assume, true);
    }
}

// The loop over points of a persistent block; the role itself where a point is a block.
static Block *push_points(Maker *m, Stmt *role) {
    Parting *p = m->parting;
    Expr *turn = integer(p, 0);
    Block *body = &role->role.body;
    m->subst = subst_new(p->arena);
    if (p->turns) body = &push_points_loop(p, "turn", p->turns, &turn, body)->loop.body;
    Expr *number = e_var(p->arena, p->worker);
    if (p->turns) number = e_add(p->arena, number, e_mul(p->arena, turn, p->workers));
    push_block(p, number, m->subst, body);
    return body;
}

static void push_load_role(Maker *m, Block *out) {
    Parting *p = m->parting;
    Stmt *role = push_role(p, "load", 1, p->producer_registers, out);
    push_counters(m, 1, &role->role.body);
    load_block(m, &p->grid->grid.body, push_points(m, role));
}

static void push_compute_role(Maker *m, const Func *kernel, Block *out) {
    Parting *p = m->parting;
    const Target *target = p->context->target;
    int64_t regs = p->producer_registers ? consumer_registers(target, p->consumers, p->producer_registers) : 0;
    Stmt *role = push_role(p, "compute", p->consumers, regs, out);
    Block work = {0};
    push_counters(m, 0, &role->role.body);
    Block *body = push_points(m, role);
    compute_block(m, &p->grid->grid.body, &work);
    Overwrites overwrites = {p->arena, facts_new(p->arena, kernel)};
    learn(overwrites.facts, out);
    learn(overwrites.facts, body);
    drop_fills(&overwrites, &work);
    sink_fragments(p->arena, &work);
    rotate_products(p->arena, &work, m->releases);
    start_products(p->arena, &work, m->releases);
    if (!p->turns) drop_last_arrivals(m, &work, map_new(p->arena));
    StmtMapper finish = {.arena = p->arena, .stmt = finish_releases, .user = m};
    rewrite_block(&finish, &work);
    block_append(p->arena, body, &work);
    if (m->buffers.count > 0) push_last_stores(p, &role->role.body);
    block_append(p->arena, &m->buffers, &role->role.body);
    role->role.body = m->buffers;
}

// ---- the kernel ----

static void push_group_barriers(Maker *m, Block *out) {
    Arena *a = m->plan->arena;
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        const char *name = group->tiles.items[0]->buf->name;
        const char *prefix = m->plan->groups.count > 1 ? arena_printf(a, "%s_", name) : "";
        group->full = push_barriers(m->parting, arena_printf(a, "%sfull", prefix), group->slots, out);
        if (!group->once)
            group->empty = push_barriers(m->parting, arena_printf(a, "%sempty", prefix), group->slots, out);
    }
}

static void push_setup(Maker *m, Block *out) {
    Parting *p = m->parting;
    Arg none[2] = {{0}};
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        Expr *s;
        Stmt *each = push_loop(p, "s", integer(p, group->slots), &s, out);
        each->loop.kind = LOOP_UNROLL;
        push_on(p, OP_MBARRIER_INIT, group->full, s, integer(p, 1), &each->loop.body);
        if (group->empty) push_on(p, OP_MBARRIER_INIT, group->empty, s, integer(p, p->consumers), &each->loop.body);
    }
    push_call(p, OP_FENCE_MBARRIER_INIT, 0, NULL, out);
    push_call(p, OP_BARRIER, COUNT_OF(none), none, out);
}

// Every loop that loads takes equally many steps for all points.
static bool equal_points(Arena *arena, const Block *work, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        if (stmt->kind == STMT_IF && block_any(&stmt->if_.then, holds_copy, NULL)) return false;
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) {
            if (!block_any(bodies[b], holds_copy, NULL)) continue;
            if (stmt->kind == STMT_FOR && !common_trips(arena, work, stmt)) return false;
            if (!equal_points(arena, work, bodies[b])) return false;
        }
    }
    return true;
}

static void make_points(Parting *p, bool persistent, Block *out) {
    Arena *a = p->arena;
    p->points = bind(p, "points", p->grid->grid.iters[0].end, out);
    push_range(p, p->points, integer(p, 1), integer(p, p->context->target->max_grid), out);
    if (!persistent) return;
    p->workers = bind(p, "workers", blocks_of(p), out);   // in the words of the grid, as codegen knows it
    p->turns = bind(p, "turns", e_call2(a, OP_CEILDIV, e_sub(a, p->points, e_var(a, p->worker)), p->workers), out);
}

static bool find_other_product(Visitor *visitor, Stmt *stmt) {
    bool *all = visitor->user;
    if (is_call(stmt, OP_GEMM)) *all &= via_is(stmt, "wgmma");
    if (loads_tile(stmt)) *all &= via_is(stmt, "tma");
    return *all;
}

static bool all_chosen(const Plan *plan) {
    bool all = true;
    Visitor visitor = {.stmt = find_other_product, .user = &all};
    visit_block(&visitor, (Block *)&plan->grid->grid.body);
    return all;
}

static void find_once(const Plan *plan) {
    for (int g = 0; g < plan->groups.count; g++) {
        Group *group = plan->groups.items[g];
        const Tile *tile = group->tiles.items[0];
        group->once = tile->sites.count == 1 && tile->sites.items[0].block == &plan->grid->grid.body;
    }
}

static void push_tiles(const Plan *plan, Block *out) {
    for (int i = 0; i < plan->tiles.count; i++)
        block_push(plan->arena, out, s_decl(plan->arena, plan->tiles.items[i]->buf));
}

bool part_together(PassContext *context, Func *kernel) {
    Arena *a = context->arena;
    const Target *target = context->target;
    Plan plan;
    if (make_plan(a, target, kernel, &plan) || !all_chosen(&plan) || plan.grid->grid.count != 1) return false;
    Stmt *grid = (Stmt *)plan.grid;
    Parting p = {.context = context, .arena = a, .grid = grid, .loc = grid->loc};
    Maker maker = {.parting = &p, .plan = &plan, .releases = map_new(a)};
    Block body = {0};
    bool persistent = equal_points(a, &grid->grid.body, &grid->grid.body);
    if (!persistent) find_once(&plan);
    want_few_points(context, kernel, grid);
    p.consumers = warpgroups_of(target, plan.rows);
    p.producer_registers =
        producer_registers(target, p.consumers, fragment_registers(target, kernel, p.consumers), ROOM);
    p.block = grid->grid.iters[0].var;
    p.worker = var_new(a, "worker", VAR_ITER, TYPE_I64, p.loc);
    push_tiles(&plan, &body);
    push_group_barriers(&maker, &body);
    make_points(&p, persistent, &body);
    push_setup(&maker, &body);
    push_load_role(&maker, &body);
    push_compute_role(&maker, kernel, &body);
    Iter *iter = NEW(a, Iter);
    *iter = (Iter){p.worker, integer(&p, 0), persistent ? blocks_of(&p) : grid->grid.iters[0].end, integer(&p, 1)};
    grid->grid.iters = iter;
    grid->grid.threads = integer(&p, (1 + p.consumers) * target_warpgroup(target));
    grid->grid.body = body;
    return true;
}
