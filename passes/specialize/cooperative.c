// Cooperative kernels: a producer, and a consumer role of W warpgroups that compute one tile of the grid.
//
// The producer `load` executes the tile's loops and starts the TMA copies to shared memory. The consumer `compute` does
// the rest. The W * 64 rows of its accumulators are split over W warpgroups: each has 64 rows (or a multiple of 64),
// computes their MMAs, and executes on its rows the statements between the MMAs.
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
// Each tile has a pair of mbarriers per slot. `full` completes when the tile's bytes have landed, `empty` when all
// warpgroups have read the tile and arrived. Tiles that are filled and read by the same statements share a pair. Both
// roles execute the same control flow and count the slots, so trip counts may differ between tiles, but must not depend
// on results of the consumer.
//
// A third role, `transpose`, transposes tiles in shared memory (`copy(Vs.T, Vt)` of bytes, which wgmma reads in one
// order only). It has the same control flow. It waits for `full` of the source and `empty` of the destination, and
// arrives at `empty` of the source and `full` of the destination. The consumer uses only the destination.
//
// The live range of a tile is textual: from its copy to the next one in the same block of statements, or to the block's
// end. All statements that use the tile are in that range; the wait comes before the first of them, the arrival after
// the last.
//
// MMAs then become asynchronous (async_mma.c), some move behind those of the next iteration (mma_pipelining.c), and the
// warpgroups start them in order (order_barriers.c). If all tiles have the same number of steps, CTAs are persistent
// and prefetch across tiles; otherwise each tile is a CTA, and the hardware scheduler balances the load
// (persistent_loop.c). The roles: emit_producer.c, emit_consumer.c.
#include "ir/schedule.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/specialize/emit_roles.h"
#include "passes/specialize/shared_loads.h"
#include <string.h>

// ---- all roles ----

static const char *ring_text(const Maker *m, const TileRing *ring, const char *suffix) {
    const char *name = ring->tiles.items[0]->buf->name;
    return m->plan->rings.count > 1 ? arena_printf(m->plan->arena, "%s_%s", name, suffix) : suffix;
}

void push_counters(Maker *m, Block *out) {
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        bool fills = ring->producer == m->role, concerns = fills || ring->consumer == m->role;
        if (!concerns || (m->own && ring != m->own)) continue;
        ring->counter = push_counter(m->builder, ring_text(m, ring, ""), ring->slots, fills, out);
        if (!fills && m->builder->members > 1) {
            ring->counter.stride = m->builder->members;
            Expr *first = small(m->builder, m->member);
            if (m->member > 0) block_push(m->plan->arena, out, s_assign(m->plan->arena, ring->counter.slot, first));
        }
        if (!fills || !ring->lag) continue;
        ring->started = var_new(m->plan->arena, ring_text(m, ring, "started"), VAR_MUTABLE, TYPE_I32, m->builder->loc);
        block_push(m->plan->arena, out, s_var(m->plan->arena, ring->started, small(m->builder, 0)));
    }
}

// Puts the counters' slots into the regions of tiles.
static Region *set_region_slot(Mapper *mapper, Region *region) {
    Maker *m = mapper->user;
    RoleTile *tile = tile_of(m->plan, region->buf);
    if (!tile || region->buf->stage_dims == 0) return region;
    EXPECT(arena_failure(mapper->arena), tile->ring && tile->ring->counter.parity,
           "the role does not count the slots of '%s'", region->buf->name);
    Region *other = clone_region(mapper->arena, NULL, region);
    other->dims[0].start = slot_index(m->builder, &tile->ring->counter);
    return other;
}

// The slot of an element's tile; NULL: the buffer is no tile with slots.
static Expr *element_slot(Maker *m, const Buf *buf) {
    RoleTile *tile = buf->stage_dims ? tile_of(m->plan, buf) : NULL;
    return tile ? slot_index(m->builder, &tile->ring->counter) : NULL;
}

static Expr *set_load_slot(Mapper *mapper, Expr *expr) {
    Expr *slot = expr->kind == EXPR_LOAD ? element_slot(mapper->user, expr->load.buf) : NULL;
    if (!slot) return expr;
    Expr *indices[LAYOUT_MAX_RANK];
    memcpy(indices, expr->load.indices, sizeof *indices * (size_t)expr->load.count);
    indices[0] = slot;
    return e_load(mapper->arena, expr->load.buf, expr->load.count, indices);
}

Stmt *clone_for_role(Maker *m, const Stmt *stmt) {
    Mapper mapper = {.arena = m->plan->arena, .expr = set_load_slot, .region = set_region_slot, .user = m};
    Stmt *clone = clone_stmt(m->plan->arena, m->subst, stmt);
    map_stmt(&mapper, clone);
    FOR_EACH_STMT_IN_MUT (store, clone) {
        Expr *slot = store->kind == STMT_STORE ? element_slot(m, store->store.buf) : NULL;
        if (slot) store->store.indices[0] = slot;
    }
    return clone;
}

Stmt *shell_of(Maker *m, const Stmt *stmt) {
    Arena *a = m->plan->arena;
    Stmt alone = stmt_alone(stmt);
    EXPECT(arena_failure(a), stmt_bodies(&alone, (Block *[2]){0}) > 0, "a statement of kind %d has no body",
           stmt->kind);
    Stmt *shell = clone_stmt(a, m->subst, &alone);
    if (is_pipelined(shell)) {
        shell->loop.kind = LOOP_SERIAL;
        shell->loop.stages = NULL;
    }
    return shell;
}

void push_full(Maker *m, const TileRing *ring, Block *out) {
    RoleBuilder *p = m->builder;
    EXPECT(p->context->failure, ring->full && ring->counter.parity, "a wait for a ring that the role does not count");
    push_slot_wait(p, ring->full, &ring->counter, out);
}

void learn_scalars(Facts *facts, const Block *block) {
    FOR_EACH_ITEM (stmt, block)
        if (is_scalar(stmt)) facts_enter(facts, stmt);
}

// ---- the kernel ----

static void push_group_barriers(Maker *m, Block *out) {
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        ring->full = push_barriers(m->builder, ring_text(m, ring, "full"), ring->slots, out);
        if (!ring->single_use) ring->empty = push_barriers(m->builder, ring_text(m, ring, "empty"), ring->slots, out);
    }
}

static void push_setup(Maker *m, Block *out) {
    RoleBuilder *p = m->builder;
    SharingVec sharings = {0};
    bind_cluster(p, out);
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        VEC_EACH (const Sharing, sharing, &ring->sharings) vec_push(p->arena, &sharings, *sharing);
        int64_t readers = ring->consumer == ROLE_TRANSPOSE ? 1 : p->consumers;
        push_barrier_init(p, ring->slots, ring->full, filling_arrivals(ring), ring->empty, readers, &ring->sharings,
                          out);
    }
    publish_barriers(p, &sharings, out);
}

static void find_single_use(const RolePlan *plan) {
    VEC_EACH_PTR (TileRing, ring, &plan->rings) {
        const RoleTile *tile = ring->tiles.items[0];
        ring->single_use = tile->live_ranges.count == 1 && tile->live_ranges.items[0].block == &plan->grid->grid.body;
    }
}

static void find_sharings(const RolePlan *plan) {
    VEC_EACH_PTR (RoleTile, tile, &plan->tiles)
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            add_sharing(plan->arena, &tile->ring->sharings, filling_stmt(plan, range));
}

// If shared memory has no space for staging, the epilogue is staged in an operand's tile; its slot becomes empty when
// the stores are complete.
static void stage_in_tile(Maker *m, const Func *kernel) {
    RolePlan *plan = m->plan;
    int64_t shared = 0;
    StagedTile staged;
    VEC_EACH_PTR (TileRing, each, &plan->rings) shared += each->slots * each->space;
    FOR_EACH_STMT (stmt, &plan->grid->grid.body)
        if (is_shared_decl(stmt) && !stmt->decl->alias_of && !tile_of(plan, stmt->decl))
            shared += buf_slots(stmt->decl) * buf_slot_bytes(stmt->decl);
    Specialization how = {.kind = WS_COOPERATIVE, .sharers = plan->consumers};
    shared += specialized_staging(plan->arena, plan->target, kernel, &how);
    if (shared <= plan->target->shared_block) return;
    if (!cooperative_staged(plan, &staged) || !via_is(staged.store, VIA_TMA_STORE)) return;
    TileRing *ring = staged.ring;
    TileRange *range = &ring->tiles.items[0]->live_ranges.items[0];   // which all its tiles have
    ring->store = staged.store;
    ring->staging = staged.tile->buf;
    while (range->block->items[range->last] != ring->store) {
        range->last++;
        EXPECT(arena_failure(plan->arena), range->last < range->block->count,
               "the store is not behind its tile's uses");
    }
    m->staged = ring->single_use;
}

bool specialize_cooperative(PassContext *context, Func *kernel) {
    Arena *a = context->arena;
    RolePlan plan;
    if (ws_analyze(a, context->target, kernel, &plan)) return false;
    Stmt *grid = (Stmt *)plan.grid;
    RoleBuilder p = {.context = context,
                     .arena = a,
                     .kernel = kernel,
                     .grid = grid,
                     .loc = grid->loc,
                     .block = grid->grid.iters[0].var};
    p.groups = kernel_groups(kernel);
    p.consumers = plan.consumers;
    p.members = plan.members;
    Maker maker = {.builder = &p, .plan = &plan, .consumes = map_new(a)};
    Block body = {0}, hoisted = {0};
    TileClaim claim = grid_claim(grid);
    bool sections = claim.snake, persistent = grid_is_persistent(grid);
    if (sections) {
        hoist_scalars(&p, &grid->grid.body, &hoisted);
        const char *problem = ws_analyze(a, context->target, kernel, &plan);   // of the remaining statements
        EXPECT(context->failure, !problem, "not cooperative without its scalars: %s", problem);
    }
    if (!persistent) find_single_use(&plan);
    p.cluster = loads_multicast(&grid->grid.body) ? grid_cluster(grid) : 1;
    find_sharings(&plan);
    want_few_tiles(context, kernel, grid);
    stage_in_tile(&maker, kernel);
    p.cta = var_new(a, "cta", VAR_ITER, TYPE_I64, p.loc);
    VEC_EACH_PTR (RoleTile, tile, &plan.tiles) block_push(a, &body, s_decl(a, tile->buf));
    if (p.members > 1) maker.sum = declare_sum(&p, &body);
    push_group_barriers(&maker, &body);
    make_tiles(&p, claim.kind, sections ? &hoisted : NULL, &body);
    share_warps(&maker);
    push_setup(&maker, &body);
    push_filling_roles(&maker, kernel, &body);
    push_compute_roles(&maker, kernel, &body);
    set_grid(&p, persistent ? persistent_ctas(&p) : grid->grid.iters[0].end, plan.producers, body);
    return true;
}
