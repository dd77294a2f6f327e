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
// A tile that is transposed to another one in shared memory (`copy(Vs.T, Vt)` of bytes, which wgmma reads in one order only) is the
// work of a third role, `turn`, that goes through the same control flow: it waits for `full` of the one and `empty` of the other,
// and arrives at `empty` of the one and `full` of the other. Those that compute see only the other.
//
// A tile's life is textual: from its copy to the next one in the same block of statements, or to the block's end. All statements
// that use it stand there; the wait comes before the first of them, the arrival after the last.
//
// Products then become asynchronous (start_products.c), and some move behind those of the next iteration
// (rotate_products.c), for which the warpgroups take turns (take_turns.c). Where all points take equally many steps
// blocks are persistent and load ahead across points; else every point is a block, and the device balances them.
#include "ir/build.h"
#include "passes/kernel_walk.h"
#include "passes/together_plan.h"

// ---- both roles ----

// A role that brings tiles for others: what fills them, and how.
typedef struct Maker Maker;
typedef struct Filler {
    bool (*fills)(const Stmt *stmt, void *plan);
    bool (*does)(const Stmt *stmt, void *plan);   // that, or what it needs to know
    void (*push)(Maker *m, const Stmt *copy, Block *out);
} Filler;

struct Maker {
    Parting *parting;
    Plan *plan;
    const Filler *filler;
    Subst *subst;
    Map *releases;                // arrivals at `empty` -> Group, whose first member is the Release
    Block buffers;                // shared memory of the role
    bool staged;                  // results leave by way of a tile that nobody waits for
    Facts *facts;                 // of the role that loads
    const Group *own;             // what that loads; NULL: all
    const Stmt *delayed, *into;   // a copy, and the loop that it goes into
};

// Of the tiles that a role fills the first phase of `empty` is over, of those that it reads that of `full` is not.
static void push_counters(Maker *m, bool (*concerns)(const Group *group), bool (*fills)(const Group *group),
                          Block *out) {
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        int parity = fills(group);
        if (!concerns(group) || (m->own && group != m->own)) continue;
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
    if (stmt->kind == STMT_WHILE) shell->while_.condition = subst_expr(m->subst, stmt->while_.condition);
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

static bool is_loaded(const Group *group) {
    return !group->turned;
}

static bool is_transposed(const Group *group) {
    return group->turned;
}

static bool is_turning(const Group *group) {
    return group->turned || group->raw;
}

static bool is_computed_with(const Group *group) {
    return !group->raw;
}

static bool is_none(const Group *group) {
    (void)group;
    return false;
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
    const Tile *tile = tile_of(m->plan, loaded_tile(copy));
    const Group *group = tile->group;
    Expr *slot = slot_index(p, &group->counter);
    if (tile == group->tiles.items[0]) {
        if (!group->once) push_on(p, OP_MBARRIER_WAIT, group->empty, slot, e_var(p->arena, group->counter.parity), out);
        push_on(p, OP_MBARRIER_EXPECT, group->full, slot, integer(p, group->bytes), out);
    }
    push_started(m, copy, group, out);
    if (tile == vec_last(&group->tiles) && !group->once) push_advance(p, &group->counter, out);
}

// A tile that is loaded once before a loop of loads has one slot, which is free late, when the loop of the point before is over;
// the loop's first tiles have slots that are free earlier. So it goes behind the first of them:
//
//     copy(Q.., Qs)                     for (n in steps) {
//     for (n in steps) {                    copy(K.., Ks)
//         copy(K.., Ks)         =>          if (n == 0) copy(Q.., Qs)
//         copy(V.., Vs)                     copy(V.., Vs)
//     }                                 }
static Stmt *first_load(const Block *block, int from) {
    for (int i = from; i < block->count; i++) {
        Block one = {.items = &block->items[i], .count = 1, .capacity = 1};
        if (block_any(&one, loads_tile, NULL)) return block->items[i];
    }
    return NULL;
}

static bool is_delayed(Maker *m, const Block *from, int at) {
    if (!loads_tile(from->items[at], NULL)) return false;
    const Group *group = tile_of(m->plan, loaded_tile(from->items[at]))->group;
    const Stmt *loop = first_load(from, at + 1);
    if (m->own || m->delayed || group->slots > 1 || group->tiles.count > 1 || !loop) return false;
    if (loop->kind != STMT_FOR || loop->loop.count != 1) return false;
    const Stmt *first = first_load(&loop->loop.body, 0);
    if (!loads_tile(first, NULL) || loaded_tile(first) == loaded_tile(from->items[at])) return false;
    m->delayed = from->items[at];
    m->into = loop;
    return true;
}

static void push_delayed(Maker *m, const Stmt *copy, const Block *block, Block *out) {
    if (!m->delayed || block != &m->into->loop.body) return;
    const Group *group = tile_of(m->plan, loaded_tile(copy))->group;
    if (loaded_tile(copy) != vec_last(&group->tiles)->buf) return;
    Arena *a = m->plan->arena;
    const Iter *iter = &m->into->loop.iters[0];
    Expr *first = e_binary(a, BIN_EQ, e_var(a, iter->var), iter->begin);
    Stmt *once = s_if(a, subst_expr(m->subst, first));
    push_load(m, m->delayed, &once->if_.then);
    block_push(a, out, once);
    m->delayed = NULL;
}

// ---- what brings tiles ----

static void fill_block(Maker *m, const Block *from, Block *out);

static void fill_scalar(Maker *m, const Stmt *stmt, Block *out) {
    Stmt *clone = clone_stmt(m->plan->arena, m->subst, stmt);
    if (is_scalar(clone)) facts_enter(m->facts, clone);
    block_push(m->plan->arena, out, clone);
}

static bool is_filled(const Stmt *stmt, void *user) {
    const Maker *m = user;
    return m->filler->fills(stmt, m->plan) && (!m->own || tile_of(m->plan, loaded_tile(stmt))->group == m->own);
}

static bool fills_or_counts(const Stmt *stmt, void *user) {
    const Maker *m = user;
    return m->filler->fills(stmt, m->plan) ? is_filled(stmt, user) : m->filler->does(stmt, m->plan);
}

static void fill_stmt(Maker *m, Stmt *stmt, Block *out) {
    Arena *a = m->plan->arena;
    if (load_knows(m->plan, stmt)) fill_scalar(m, stmt, out);
    Block *bodies[2], *to[2];
    int count = stmt_bodies(stmt, bodies);
    bool does = false;
    for (int b = 0; b < count; b++) does |= block_any(bodies[b], fills_or_counts, m);
    if (!does) return;
    Stmt *shell = shell_of(m, stmt);
    stmt_bodies(shell, to);
    bool runs =
        stmt->kind == STMT_FOR && prove(m->facts, e_lt(a, shell->loop.iters[0].begin, shell->loop.iters[0].end));
    if (m->delayed && stmt == m->into && !runs) {   // it may be that nobody takes the copy along
        push_load(m, m->delayed, out);
        m->delayed = NULL;
    }
    for (int b = 0; b < count; b++) fill_block(m, bodies[b], to[b]);
    block_push(a, out, shell);
}

static void fill_block(Maker *m, const Block *from, Block *out) {
    int mark = facts_mark(m->facts);
    for (int i = 0; i < from->count; i++) {
        const Stmt *stmt = from->items[i];
        if (!m->filler->fills(stmt, m->plan)) {
            fill_stmt(m, from->items[i], out);
        } else if (!is_filled(stmt, m)) {
            continue;
        } else if (!is_delayed(m, from, i)) {
            m->filler->push(m, stmt, out);
            if (loads_tile(stmt, NULL)) push_delayed(m, stmt, from, out);
        }
    }
    facts_release(m->facts, mark);
}

// ---- transpose ----

static void push_full(Maker *m, const Group *group, Block *out) {
    Parting *p = m->parting;
    push_on(p, OP_MBARRIER_WAIT, group->full, slot_index(p, &group->counter), e_var(p->arena, group->counter.parity),
            out);
}

// All threads of the role have read the one tile and written the other; what they wrote wgmma reads.
static void push_turned(Maker *m, const Stmt *copy, Block *out) {
    Parting *p = m->parting;
    Arg none[2] = {{0}};
    const Group *from = tile_of(m->plan, copy->call.args[0].region->buf)->group,
                *to = tile_of(m->plan, copy->call.args[1].region->buf)->group;
    Expr *slot = slot_index(p, &to->counter);
    if (!to->once) push_on(p, OP_MBARRIER_WAIT, to->empty, slot, e_var(p->arena, to->counter.parity), out);
    push_full(m, from, out);
    block_push(p->arena, out, cloned(m, copy));
    push_call(p, OP_FENCE_ASYNC, 0, NULL, out);
    push_call(p, OP_BARRIER, COUNT_OF(none), none, out);
    push_on(p, OP_MBARRIER_ARRIVE, to->full, slot, NULL, out);
    if (!from->once) push_on(p, OP_MBARRIER_ARRIVE, from->empty, slot_index(p, &from->counter), NULL, out);
    if (!to->once) push_advance(p, &to->counter, out);
    if (!from->once) push_advance(p, &from->counter, out);
}

// ---- compute ----

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
        for (int s = 0; s < tile->sites.count && !group->raw; s++) {
            const Site *site = &tile->sites.items[s];
            bool unused = site->first < 0;
            if (site->block != block || at != (unused ? site->at : first ? site->first : site->last)) continue;
            if (first) push_full(m, group, out);
            else if (!group->once) push_empty(m, group, out);
        }
    }
}

static void stage_store(Maker *m, const Stmt *store, Stmt *clone) {
    for (int g = 0; g < m->plan->groups.count; g++) {
        const Group *group = m->plan->groups.items[g];
        if (group->store != store) continue;
        Arg none = {0}, tile = arg_region(region_whole(m->plan->arena, group->tiles.items[0]->buf));
        set_staging(m->parting, clone, tile, none);
        return;
    }
    add_staging(m->parting, clone, m->parting->consumers, &m->buffers);
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
        } else if (!loads_tile(stmt, NULL) && !turns_loaded(stmt, m->plan) &&
                   !(stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_SHARED)) {
            Stmt *clone = cloned(m, stmt);
            if (via_is(clone, "tma_store")) stage_store(m, stmt, clone);
            block_push(a, out, clone);
        }
        push_lives(m, from, i, false, out);
    }
}

static void learn(Facts *facts, const Block *block) {
    for (int i = 0; i < block->count; i++)
        if (is_scalar(block->items[i])) facts_enter(facts, block->items[i]);
}

static bool surely_multiplies(const Facts *facts, const Stmt *stmt) {
    if (is_call(stmt, OP_GEMM)) return true;
    if (stmt->kind == STMT_IF || stmt->kind == STMT_WHILE) return false;
    if (stmt->kind == STMT_FOR) {
        const Iter *iter = &stmt->loop.iters[0];
        if (stmt->loop.kind == LOOP_PARALLEL || stmt->loop.count != 1) return false;
        if (!prove(facts, e_lt(facts_arena(facts), iter->begin, iter->end))) return false;
    }
    Block *bodies[2];
    for (int b = 0, count = stmt_bodies((Stmt *)stmt, bodies); b < count; b++)
        for (int i = 0; i < bodies[b]->count; i++)
            if (surely_multiplies(facts, bodies[b]->items[i])) return true;
    return false;
}

// One thread arrives for its warpgroup. That the others have waited for the tile, too, is sure where they multiply together after
// it: not where a point has no steps.
static bool has_all_waited(const Maker *m, const Group *group, const Block *before) {
    for (int i = before->count - 1; i >= 0; i--) {
        const Stmt *stmt = before->items[i];
        if (surely_multiplies(m->facts, stmt)) return true;
        if (is_call(stmt, OP_MBARRIER_WAIT) && stmt->call.args[0].region->buf == group->full) return false;
    }
    return false;
}

// After an arrival comes the next slot. Before one for which threads have read, all of them meet.
static void finish_releases(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Maker *m = mapper->user;
    Group *group = map_get(m->releases, stmt);
    Arg none[2] = {{0}};
    if (group && (group->by_threads || !has_all_waited(m, group, out)))
        push_call(m->parting, OP_BARRIER, COUNT_OF(none), none, out);
    if (group && group->store) push_last_stores(m->parting, out);
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
        if (stmt->kind == STMT_WHILE || (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL)) return false;
        if (stmt->kind == STMT_FOR) continue;
        for (int b = count - 1; b >= 0; b--)
            if (!drop_last_arrivals(m, bodies[b], filled)) return false;
    }
    return true;
}

// ---- roles ----

// Of a section the worker's place in this round, in the next one from the other end: who had a long point has a short one next.
// The last round of a section has not one for each, and who has one in it changes from section to section: each begins with another
// worker, as far ahead as spreads them evenly.
static Block *push_sections(Maker *m, Block *body) {
    Parting *p = m->parting;
    Arena *a = p->arena;
    Expr *section, *round, *most = integer(p, p->context->target->max_grid), *zero = integer(p, 0);
    Stmt *sections = push_points_loop(p, "section", p->sections, &section, body);
    body = &sections->loop.body;
    Expr *ahead = bind(p, "ahead", e_add(a, e_var(a, p->worker), e_mul(a, section, p->shift)), body);
    push_range(p, ahead, zero, most, body);
    Expr *around = e_select(a, e_lt(a, ahead, p->workers), ahead, e_sub(a, ahead, p->workers));
    Expr *own = bind(p, "own", around, body);
    body = &push_points_loop(p, "round", p->turns, &round, body)->loop.body;
    Expr *back = e_binary(a, BIN_EQ, e_mod(a, round, integer(p, 2)), integer(p, 1));
    Expr *from = e_select(a, back, e_sub(a, e_sub(a, p->workers, integer(p, 1)), own), own);
    Expr *place = bind(p, "place", e_add(a, e_mul(a, round, p->workers), from), body);
    Expr *number = bind(p, "number", e_add(a, e_mul(a, section, p->section), place), body);
    Stmt *some = s_if(a, e_and(a, e_lt(a, place, p->section), e_lt(a, number, p->points)));
    some->loc = p->loc;
    block_push(a, body, some);
    push_block(p, number, m->subst, &some->if_.then);
    if (p->quotient) subst_var(m->subst, p->quotient, section);
    return &some->if_.then;
}

// The loop over points of a persistent block; the role itself where a point is a block.
static Block *push_points(Maker *m, Stmt *role) {
    Parting *p = m->parting;
    Expr *turn = integer(p, 0);
    Block *body = &role->role.body;
    m->subst = subst_new(p->arena);
    if (p->sections) return push_sections(m, body);
    if (p->turns) body = &push_points_loop(p, "turn", p->turns, &turn, body)->loop.body;
    Expr *number = e_var(p->arena, p->worker);
    if (p->turns) number = e_add(p->arena, number, e_mul(p->arena, turn, p->workers));
    push_block(p, number, m->subst, body);
    return body;
}

static void push_filling_role(Maker *m, const Func *kernel, const char *name, int64_t threads,
                              bool (*concerns)(const Group *group), bool (*fills)(const Group *group),
                              const Filler *filler, Block *out) {
    Parting *p = m->parting;
    m->facts = facts_new(p->arena, kernel);
    m->filler = filler;
    learn(m->facts, out);
    Stmt *role = push_role(p, name, threads, p->producer_registers, out);
    push_counters(m, concerns, fills, &role->role.body);
    Block *body = push_points(m, role);
    learn(m->facts, body);
    fill_block(m, &p->grid->grid.body, body);
}

// Tiles that are emptied at different times come from warps of their own, so that none waits behind another.
static void push_loading_roles(Maker *m, const Func *kernel, int64_t threads, Block *out) {
    static const Filler load = {loads_tile, load_does, push_load};
    int64_t warp = m->parting->context->target->warp_lanes;
    int count = 0, made = 0;
    for (int g = 0; g < m->plan->groups.count; g++) count += is_loaded(m->plan->groups.items[g]);
    if (count < 2 || count * warp > threads) {
        push_filling_role(m, kernel, "load", threads, is_loaded, is_loaded, &load, out);
        return;
    }
    for (int g = 0; g < m->plan->groups.count; g++) {
        Group *group = m->plan->groups.items[g];
        if (!is_loaded(group)) continue;
        const char *name = arena_printf(m->plan->arena, "load_%s", group->tiles.items[0]->buf->name);
        m->own = group;
        int64_t rest = threads - made * warp;
        push_filling_role(m, kernel, name, ++made < count ? warp : rest, is_loaded, is_loaded, &load, out);
    }
    m->own = NULL;
}

// One warp is enough to load: where tiles are transposed and registers are few, the others of its warpgroup do that.
static void push_filling_roles(Maker *m, const Func *kernel, Block *out) {
    static const Filler transpose = {turns_loaded, turn_does, push_turned};
    const Target *target = m->parting->context->target;
    bool share = m->plan->turns && m->plan->producers == 1;
    int64_t all = target_warpgroup(target), loading = share ? target->warp_lanes : all,
            turning = share ? all - loading : all;
    push_loading_roles(m, kernel, loading, out);
    if (m->plan->turns) push_filling_role(m, kernel, "turn", turning, is_turning, is_transposed, &transpose, out);
}

static void push_compute_role(Maker *m, const Func *kernel, Block *out) {
    Parting *p = m->parting;
    const Target *target = p->context->target;
    int64_t regs =
        p->producer_registers ? consumer_registers(target, p->consumers, m->plan->producers, p->producer_registers) : 0;
    Stmt *role = push_role(p, "compute", p->consumers * target_warpgroup(target), regs, out);
    Block work = {0};
    push_counters(m, is_computed_with, is_none, &role->role.body);
    Block *body = push_points(m, role);
    compute_block(m, &p->grid->grid.body, &work);
    Facts *facts = facts_new(p->arena, kernel);
    learn(facts, out);
    learn(facts, body);
    drop_fills(p->arena, facts, &work);
    sink_fragments(p->arena, &work);
    rotate_products(p->arena, facts, &work, m->releases);
    sink_scalars(p->arena, &work, m->releases);
    start_products(p->arena, &work, m->releases);
    // Where tiles are transposed turns lose (attention in 8 bits: 0.89 to 1.01): a late tile holds up all.
    if (p->consumers > 1 && !m->plan->turns) take_turns(p->arena, &work);
    if (!p->turns) drop_last_arrivals(m, &work, map_new(p->arena));
    learn(facts, &work);
    m->facts = facts;
    StmtMapper finish = {.arena = p->arena, .stmt = finish_releases, .user = m};
    rewrite_block(&finish, &work);
    block_append(p->arena, body, &work);
    if (m->buffers.count > 0 || m->staged) push_last_stores(p, &role->role.body);
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
        int64_t readers = group->raw ? 1 : p->consumers;
        if (group->empty) push_on(p, OP_MBARRIER_INIT, group->empty, s, integer(p, readers), &each->loop.body);
    }
    push_call(p, OP_FENCE_MBARRIER_INIT, 0, NULL, out);
    push_call(p, OP_BARRIER, COUNT_OF(none), none, out);
}

// Every loop that loads takes equally many steps for all points.
static bool equal_points(Arena *arena, const Block *work, const Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        bool parts = stmt->kind == STMT_IF || stmt->kind == STMT_WHILE;
        for (int b = 0, count = stmt_bodies(stmt, bodies); b < count; b++) {
            if (!block_any(bodies[b], loads_tile, NULL)) continue;
            if (parts || (stmt->kind == STMT_FOR && !common_trips(arena, work, stmt))) return false;
            if (!equal_points(arena, work, bodies[b])) return false;
        }
    }
    return true;
}

bool together_equal_points(Arena *arena, const Func *kernel) {
    const Block *body = &func_grid(kernel)->grid.body;
    return equal_points(arena, body, body);
}

// ---- points ----

typedef struct Names {
    const Map *inside;   // names bound for one point
    bool found;
} Names;

static bool find_inside(Visitor *visitor, Expr *expr) {
    Names *names = visitor->user;
    names->found |= expr->kind == EXPR_VAR && map_has(names->inside, expr->var);
    return !names->found;
}

// What is the same for all points is computed once, before the roles.
static void hoist_scalars(Parting *p, Block *body, Block *out) {
    Map *inside = map_new(p->arena);
    map_put(inside, p->block, p->block);
    Block kept = {0};
    for (int i = 0; i < body->count; i++) {
        Stmt *stmt = body->items[i];
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : stmt->kind == STMT_ASSUME ? stmt->assume : NULL;
        Names names = {inside, !value || !expr_is_stable(value)};
        Visitor visitor = {.expr = find_inside, .user = &names};
        if (value) visit_expr(&visitor, value);
        block_push(p->arena, names.found ? &kept : out, stmt);
        if (names.found && (stmt->kind == STMT_LET || stmt->kind == STMT_VAR)) map_put(inside, stmt->let.var, stmt);
    }
    *body = kept;
}

// Every name in it is the same for all points.
static bool is_common(const Parting *p, const Block *body, const Expr *expr) {
    bool common = !expr_uses_var(expr, p->block);
    for (int i = 0; i < body->count; i++) {
        const Stmt *stmt = body->items[i];
        if (stmt->kind == STMT_LET || stmt->kind == STMT_VAR) common &= !expr_uses_var(expr, stmt->let.var);
    }
    return common;
}

// `let section = block / group`: the rounds know it.
static void find_section(Parting *p, Block *body) {
    for (int i = 0; i < body->count && !p->quotient; i++) {
        const Stmt *stmt = body->items[i];
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : NULL;
        bool divides = value && value->kind == EXPR_BINARY && value->binary.op == BIN_DIV;
        if (!divides || value->binary.a->kind != EXPR_VAR || value->binary.a->var != p->block) continue;
        if (!is_common(p, body, value->binary.b)) continue;
        p->section = value->binary.b;
        p->quotient = stmt->let.var;
        block_remove(body, i);
    }
}

// `hoisted`: of points in sections, which blocks stay for.
static void make_points(Parting *p, bool persistent, const Block *hoisted, Block *out) {
    Arena *a = p->arena;
    Expr *one = integer(p, 1), *most = integer(p, p->context->target->max_grid);
    p->points = bind(p, "points", p->grid->grid.iters[0].end, out);
    push_range(p, p->points, one, most, out);
    if (!persistent) return;
    p->workers = bind(p, "workers", blocks_of(p), out);   // in the words of the grid, as codegen knows it
    Expr *each = e_sub(a, p->points, e_var(a, p->worker));
    if (hoisted) {
        block_append(a, out, hoisted);
        if (!p->section) p->section = p->points;
        p->sections = bind(p, "sections", e_call2(a, OP_CEILDIV, p->points, p->section), out);
        push_range(p, p->sections, one, most, out);
        each = p->section;
    }
    p->turns = bind(p, hoisted ? "rounds" : "turns", e_call2(a, OP_CEILDIV, each, p->workers), out);
    if (!hoisted) return;
    push_range(p, p->turns, one, most, out);
    p->shift = bind(p, "shift", e_div(a, p->workers, p->sections), out);
    push_range(p, p->shift, integer(p, 0), most, out);
}

static bool find_other_product(Visitor *visitor, Stmt *stmt) {
    bool *all = visitor->user;
    if (is_call(stmt, OP_GEMM)) *all &= via_is(stmt, "wgmma");
    if (loads_tile(stmt, NULL)) *all &= via_is(stmt, "tma");
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

// Where there is no room for staging, results take the way through a tile, which is empty only when they have left.
static void stage_in_tile(Maker *m, const Func *kernel) {
    Plan *plan = m->plan;
    int64_t shared = 0;
    const Stmt *store;
    for (int g = 0; g < plan->groups.count; g++) shared += plan->groups.items[g]->slots * plan->groups.items[g]->bytes;
    if (specialized_staging(plan->arena, plan->target, kernel, shared) > 0) return;
    Group *group = together_staged(plan, &store);
    if (!group || !via_is(store, "tma_store")) return;
    Site *site = &group->tiles.items[0]->sites.items[0];
    group->store = store;
    while (site->block->items[site->last] != store) site->last++;
    m->staged = group->once;
}

bool together_stores_through(Arena *arena, const Target *target, const Func *kernel) {
    Plan plan;
    const Stmt *store;
    return !together_plan(arena, target, kernel, &plan) && together_staged(&plan, &store);
}

bool part_together(PassContext *context, Func *kernel) {
    Arena *a = context->arena;
    const Target *target = context->target;
    Plan plan;
    if (together_plan(a, target, kernel, &plan) || !all_chosen(&plan) || plan.grid->grid.count != 1) return false;
    Stmt *grid = (Stmt *)plan.grid;
    Parting p = {.context = context, .arena = a, .grid = grid, .loc = grid->loc, .block = grid->grid.iters[0].var};
    Maker maker = {.parting = &p, .plan = &plan, .releases = map_new(a)};
    Block body = {0}, hoisted = {0};
    bool sections = attr_get(grid->attrs, ATTR_SECTIONS), persistent = sections || together_equal_points(a, kernel);
    if (sections) {
        hoist_scalars(&p, &grid->grid.body, &hoisted);
        find_section(&p, &grid->grid.body);
        together_plan(a, target, kernel, &plan);   // of what is left
    }
    if (!persistent) find_once(&plan);
    want_few_points(context, kernel, grid);
    stage_in_tile(&maker, kernel);
    p.consumers = together_warpgroups_for(target, plan.rows);
    int producers = plan.producers;
    int64_t fragments = fragment_registers(target, kernel, p.consumers);
    p.producer_registers = producer_registers(target, p.consumers, producers, fragments, TOGETHER_ROOM);
    p.worker = var_new(a, "worker", VAR_ITER, TYPE_I64, p.loc);
    push_tiles(&plan, &body);
    push_group_barriers(&maker, &body);
    make_points(&p, persistent, sections ? &hoisted : NULL, &body);
    push_setup(&maker, &body);
    push_filling_roles(&maker, kernel, &body);
    push_compute_role(&maker, kernel, &body);
    Iter *iter = NEW(a, Iter);
    *iter = (Iter){p.worker, integer(&p, 0), persistent ? blocks_of(&p) : grid->grid.iters[0].end, integer(&p, 1)};
    grid->grid.iters = iter;
    grid->grid.threads = integer(&p, (producers + p.consumers) * target_warpgroup(target));
    attr_remove(&grid->attrs, ATTR_SECTIONS);
    grid->grid.body = body;
    return true;
}
