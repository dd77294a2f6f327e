// The consumer role: all statements of the tile that other roles do not execute, with waits for its input tiles and
// arrivals after their last use.
#include "passes/specialize/emit_roles.h"
#include "passes/specialize/shared_loads.h"

static void push_empty(Maker *m, TileRing *ring, Block *out) {
    RoleBuilder *p = m->builder;
    Expr *count = p->consumers > 1 ? integer(p, p->consumers) : NULL;
    Expr *slot = slot_index(p, &ring->counter);
    EXPECT(p->context->failure, ring->empty, "consumers free a tile that is filled a single time");
    map_put(m->consumes, push_on(p, OP_MBARRIER_ARRIVE, ring->empty, slot, count, out), ring);
}

// Waits for the tiles that the statement uses first, or arrivals for those that it uses last.
static void push_live_ranges(Maker *m, const Block *block, int at, bool first, Block *out) {
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        EXPECT(arena_failure(m->plan->arena), ring->tiles.count > 0, "a ring of no tiles");
        const RoleTile *tile = ring->tiles.items[0];
        for (int s = 0; s < tile->live_ranges.count && ring->consumer == ROLE_COMPUTE; s++) {
            const TileRange *range = &tile->live_ranges.items[s];
            bool unused = range->first < 0;
            if (range->block != block || at != (unused ? range->at : first ? range->first : range->last)) continue;
            if (first) push_full(m, ring, out);
            else if (!ring->single_use) push_empty(m, ring, out);
        }
    }
}

static void stage_store(Maker *m, const Stmt *store, Stmt *clone) {
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        if (ring->store != store) continue;
        Arg none = {0}, tile = arg_region(region_whole(m->plan->arena, ring->staging));
        set_staging(m->builder, clone, tile, none);
        return;
    }
    add_staging(m->builder, clone, m->builder->consumers, &m->buffers);
}

static void compute_block(Maker *m, const Block *from, Block *out) {
    Arena *a = m->plan->arena;
    for (int i = 0; i < from->count; i++) {
        Stmt *stmt = from->items[i];
        push_live_ranges(m, from, i, true, out);
        Block *bodies[2], *to[2];
        int count = is_loop(stmt, LOOP_PARALLEL) || loaded_tile(stmt) ? 0 : stmt_bodies(stmt, bodies);
        if (count > 0) {
            Stmt *shell = shell_of(m, stmt);
            stmt_bodies(shell, to);
            for (int b = 0; b < count; b++) compute_block(m, bodies[b], to[b]);
            block_push(a, out, shell);
        } else if (!loaded_tile(stmt) && !transposes_loaded(stmt, m->plan) &&
                   !(is_shared_decl(stmt) && tile_of(m->plan, stmt->decl))) {
            Stmt *clone = clone_for_role(m, stmt);
            if (stores_staged(clone)) stage_store(m, stmt, clone);
            block_push(a, out, clone);
        }
        push_live_ranges(m, from, i, false, out);
    }
}

static bool surely_multiplies(const Facts *facts, const Stmt *stmt) {
    if (is_wgmma(stmt)) return true;
    if (stmt->kind == STMT_IF || stmt->kind == STMT_WHILE) return false;
    if (stmt->kind == STMT_FOR) {
        const Iter *iter = &stmt->loop.iters[0];
        if (stmt->loop.kind == LOOP_PARALLEL || stmt->loop.count != 1) return false;
        if (!prove(facts, e_lt(facts_arena(facts), iter->begin, iter->end))) return false;
    }
    FOR_EACH_BODY (body, stmt)
        FOR_EACH_ITEM (item, body)
            if (surely_multiplies(facts, item)) return true;
    return false;
}

// One thread arrives for its warpgroup. The other threads have surely waited for the tile if the warpgroup meets or executes an
// MMA after the wait; in a tile without steps it executes none.
static bool has_all_waited(const Maker *m, const TileRing *ring, const Block *before) {
    for (int i = before->count - 1; i >= 0; i--) {
        const Stmt *stmt = before->items[i];
        if (surely_multiplies(m->facts, stmt) || is_call(stmt, OP_ORDER_ACQUIRE) || is_call(stmt, OP_BARRIER))
            return true;
        if (is_call(stmt, OP_MBARRIER_WAIT) && wait_of(stmt).bar->buf == ring->full) return false;
    }
    return false;
}

static bool reads_operand(const Maker *m, const Stmt *stmt) {
    GemmOp gemm;
    return match_gemm(stmt, &gemm) && (map_has(m->operands, gemm.a->buf) || map_has(m->operands, gemm.b->buf));
}

// The role's threads wrote an operand of its MMAs, since the block's last barrier or MMA of one (which has a barrier).
static bool wrote_operand(const Maker *m, const Block *before) {
    for (int i = before->count - 1; i >= 0 && !is_call(before->items[i], OP_BARRIER); i--) {
        if (reads_operand(m, before->items[i])) return false;
        FOR_EACH_EFFECT (effect, m->plan->arena, before->items[i])
            if (effect->access != ACCESS_READ && map_has(m->operands, effect->buf)) return true;
    }
    return false;
}

// Adds the step to the next slot after an arrival, and a barrier before the arrival if threads have read the tile.
static void finish_consumes(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Maker *m = mapper->user;
    TileRing *ring = map_get(m->consumes, stmt);
    if (ring && (ring->by_threads || !has_all_waited(m, ring, out))) {
        // (so that an MMA of it needs no barrier of its own)
        bool wrote = wrote_operand(m, out);
        if (wrote) block_call(mapper->arena, out, m->builder->loc, OP_FENCE_ASYNC, 0, NULL);
        block_barrier(mapper->arena, out, m->builder->loc);
        // Each warpgroup arrives for itself, so it need not wait for the others.
        if (!wrote) attr_set_ints(mapper->arena, &vec_last(out)->attrs, ATTR_WARPGROUP, 0, NULL);
    }
    if (ring && ring->store) push_store_wait(mapper->arena, m->builder->loc, out);
    block_push(mapper->arena, out, stmt);
    if (!ring) return;
    Expr *slot = slot_index(m->builder, &ring->counter);
    tell_loaders(m->builder, &ring->sharings, ring->empty, slot, m->builder->consumers, out);
    push_advance(m->builder, &ring->counter, out);
}

// With one tile per CTA, no role waits for the last arrivals: drops those behind all loops, unless another tile of the
// ring follows. False: a loop was found before them.
static bool drop_last_arrivals(Maker *m, Block *block, Map *filled) {
    for (int i = block->count - 1; i >= 0; i--) {
        Stmt *stmt = block->items[i];
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies);
        TileRing *ring = map_get(m->consumes, stmt);
        if (is_call(stmt, OP_MBARRIER_WAIT)) map_put(filled, wait_of(stmt).bar->buf, stmt);
        if (ring && !map_has(filled, ring->full)) block_remove(block, i);
        if (stmt->kind == STMT_WHILE || is_thread_loop(stmt)) return false;
        if (stmt->kind == STMT_FOR) continue;
        for (int b = count - 1; b >= 0; b--)
            if (!drop_last_arrivals(m, bodies[b], filled)) return false;
    }
    return true;
}

// Operands that the role's threads write. A barrier of the role comes before such an MMA, and must not lie in an
// ordered section.
static void find_operands(Maker *m, const Block *work) {
    m->operands = map_new(m->plan->arena);
    FOR_EACH_STMT (stmt, work) {
        GemmOp gemm;
        if (!match_gemm(stmt, &gemm)) continue;
        Buf *operands[] = {gemm.a->buf, gemm.b->buf};
        for (int i = 0; i < COUNT_OF(operands); i++)
            if (operands[i]->scope == SCOPE_SHARED && !tile_of(m->plan, operands[i]))
                map_put(m->operands, operands[i], operands[i]);
    }
}

// ---- MMAs in flight across iterations (async_mma.c) ----

// Products in flight hold a slot longer. Where roles share the steps, the other one multiplies meanwhile anyway: with two slots for each
// role the loads wait for more than the products gain (gemm_w8, tiles of 256 x 64: 0.85 of the speed).
static bool has_lag_slots(const TileRing *ring) {
    int64_t roles = larger(ring->counter.stride, 1);
    return roles > 1 ? ring->slots > 2 * roles : ring->slots > 1;
}

static bool can_lag(void *user, const Stmt *arrival) {
    const TileRing *ring = map_get(((Maker *)user)->consumes, arrival);
    return has_lag_slots(ring) && !ring->by_threads && !ring->store && ring->sharings.count == 0;
}

// A wait for a tile between MMAs moves before the first one: ptxas serialises MMAs that are in flight across loops (C7513).
static bool may_pass(const Maker *m, const Stmt *stmt, const Stmt *wait) {
    const TileRing *ring = map_get(m->consumes, stmt);
    if (ring) return can_lag((void *)m, stmt) && ring->full != wait_of(wait).bar->buf;
    return is_loop(stmt, LOOP_PARALLEL) || is_call(stmt, OP_COPY) || is_wgmma(stmt) || is_scalar(stmt) ||
           stmt->kind == STMT_DECL;
}

static void hoist_waits_of(const Maker *m, Block *body) {
    int first = 0;
    while (first < body->count && !is_wgmma(body->items[first])) first++;
    if (first == body->count || !multiplies_converted(m->plan->arena, body)) return;
    for (int i = first + 1; i < body->count; i++) {
        Stmt *wait = body->items[i];
        if (!is_call(wait, OP_MBARRIER_WAIT)) continue;
        int to = i;
        while (to > first && may_pass(m, body->items[to - 1], wait)) to--;
        if (to > first) return;
        block_remove(body, i);
        block_insert(m->plan->arena, body, first++, wait);
    }
}

static void hoist_waits(const Maker *m, Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        if (!is_loop(stmt, LOOP_PARALLEL))
            FOR_EACH_BODY (body, stmt) hoist_waits(m, body);
        if (is_loop(stmt, LOOP_SERIAL)) hoist_waits_of(m, &stmt->loop.body);
    }
}

static Stmt *lagging_arrival(void *user, const Stmt *arrival) {
    Maker *m = user;
    Arena *a = m->plan->arena;
    RoleBuilder *p = m->builder;
    const TileRing *ring = map_get(m->consumes, arrival);
    int64_t stride = larger(ring->counter.stride, 1);
    Expr *slot = e_var(a, ring->counter.slot), *around = e_lt(a, slot, small(p, stride));
    Expr *before = e_add(a, slot, e_select(a, around, small(p, ring->slots - stride), small(p, -stride)));
    Stmt *lagging = clone_stmt(a, NULL, arrival);
    ARG(lagging, MBARRIER_ARRIVE, bar) = element(p, ring->empty, e_cast(a, TYPE_I64, before));
    attr_set_ints(a, &lagging->attrs, ATTR_PREDICATED, 0, NULL);   // in the condition of the first iteration
    return lagging;
}

static void advance_ring(void *user, const Stmt *arrival, Block *out) {
    Maker *m = user;
    TileRing *ring = map_get(m->consumes, arrival);
    push_advance(m->builder, &ring->counter, out);
}

static void push_compute_role(Maker *m, const Func *kernel, Block *out) {
    RoleBuilder *p = m->builder;
    const ThreadGroup *group = &p->groups.of[GROUP_COMPUTE];
    const char *name = p->members > 1 ? arena_printf(p->arena, "compute%d", m->member) : "compute";
    Stmt *role = push_role(p, name, p->consumers * group->threads, group->registers, out);
    Block work = {0};
    m->role = ROLE_COMPUTE;
    m->buffers = (Block){0};
    push_counters(m, &role->role.body);
    Var *first_step = p->members > 1 ? push_first_step(p, m->member, &role->role.body) : NULL;
    Block *body = push_tiles(m, role);
    compute_block(m, &p->grid->grid.body, &work);
    if (p->members > 1) share_steps(p, m->member, first_step, m->sum, &work);
    Facts *facts = facts_new(p->arena, kernel);
    learn_scalars(facts, out);
    learn_scalars(facts, body);
    fold_zero_init(p->arena, facts, &work);
    sink_fragments(p->arena, &work);
    split_operands(p->arena, p->context->target, &work, m->consumes);
    prefetch_loads(p->arena, &work);
    pipeline_mma(p->arena, facts, &work, m->consumes);
    sink_scalars(p->arena, &work, m->consumes);
    hoist_waits(m, &work);
    Flight flight = {m, can_lag, lagging_arrival, advance_ring};
    make_mma_async(p->arena, &work, m->consumes, false, &flight);
    // With transposed tiles order barriers are slower (attention in 8 bits: 0.89 to 1.01): a late tile delays all.
    find_operands(m, &work);
    bool orders = p->consumers > 1 && !m->plan->transposes && !m->plan->other && map_count(m->operands) == 0;
    if (orders) insert_order_barriers(p->arena, &work);
    skip_masked_steps(m, out, &work);
    if (!p->waves && !p->claims.channel) drop_last_arrivals(m, &work, map_new(p->arena));
    learn_scalars(facts, &work);
    m->facts = facts;
    StmtMapper finish = {.arena = p->arena, .stmt = finish_consumes, .user = m};
    rewrite_block(&finish, &work);
    block_append(p->arena, body, &work);
    push_next_tile(m, body);
    if (m->buffers.count > 0 || m->staged) push_last_store_wait(p->arena, p->loc, &role->role.body);
    block_append(p->arena, &m->buffers, &role->role.body);
    role->role.body = m->buffers;
}

void push_compute_roles(Maker *m, const Func *kernel, Block *out) {
    for (m->member = 0; m->member < m->builder->members; m->member++) push_compute_role(m, kernel, out);
}
