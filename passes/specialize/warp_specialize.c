// warp-specialize: ping-pong kernels, of a producer warpgroup and one or two consumer warpgroups.
//
// A kernel is ping-pong if its pipelined loop contains only TMA loads and wgmma MMAs (select made sure of that) and one
// warpgroup can hold its tile. Its CTAs are persistent, except in clusters. (Other kernels: cooperative.c.)
//
//     load                        the producer: executes all tiles of the CTA and all k steps, and keeps the slots full
//     compute[consumer in 2]      consumers, one warpgroup each, on alternate tiles: the epilogue of one overlaps the main
//                                 loop of the other ("ping-pong")
//
// Roles synchronize by mbarriers, a pair for each slot. `full` completes when the bytes of all copies have landed,
// `empty` when the MMAs that read the slot are complete:
//
//     load                                        compute
//     wait(empty[s])    is free                   wait(full[s])     has landed
//     expect(full[s], bytes)                      async gemm(As[s], Bs[s], acc)
//     async copy(A.., As[s], bar = full[s])       wgmma_wait(1)     the step before this one is done
//     async copy(B.., Bs[s], bar = full[s])       arrive(empty[slot before s])
//
// A phase of an mbarrier has a parity. Slots and parities come from counters that continue across tiles, as the slots
// do; a consumer skips the steps of the other consumer's tiles. A wait on a new mbarrier with parity 1 passes at once:
// so the first loads find all slots empty. (PTX ISA, "mbarrier"; the protocol and its pitfalls: docs/notebook/hopper.md.)
//
// With `@pdl` a second loading role issues the loads of `@independent` tensors, which need not wait for the kernel launched
// before. Both roles expect their bytes at `full`, and both wait for `empty`.
//
// The two consumers alternate on the tensor cores, by a pair of named barriers. Otherwise the second one would wait for
// a phase two ahead, which has the same parity as the completed one.
//
//     consumer 0   barrier(1)  MMAs of tile 0  arrive(2)  epilogue of tile 0     barrier(1)  MMAs of tile 2 ...
//     consumer 1   arrive(1)   barrier(2)    ...          MMAs of tile 1   arrive(1)   epilogue of tile 1  ...
#include "passes/specialize/warp_specialize.h"
#include "ir/schedule.h"
#include "passes/specialize/shared_loads.h"

enum { PINGPONG_BARRIER = 1 };   // named barriers PINGPONG_BARRIER + consumer
_Static_assert(PINGPONG_BARRIER + PINGPONG_MOST <= TMA_STORE_BARRIER,
               "consumers alternate at named barriers of their own");

// ---- the consumers ----

// Skips the steps of another consumer.
static void push_skip(RoleBuilder *p, Expr *steps, const Counter *counter, Block *out) {
    Arena *a = p->arena;
    Expr *slot = e_var(a, counter->slot), *parity = e_var(a, counter->parity), *slots = integer(p, p->slots);
    Expr *waves = e_cast(a, TYPE_I32, e_mod(a, e_div(a, steps, slots), integer(p, 2)));
    block_push(a, out, s_assign(a, counter->slot, e_add(a, slot, e_cast(a, TYPE_I32, e_mod(a, steps, slots)))));
    block_push(a, out, s_assign(a, counter->parity, e_xor(a, parity, waves)));
    out = block_if(a, out, e_ge(a, slot, small(p, p->slots)));
    block_push(a, out, s_assign(a, counter->slot, e_sub(a, slot, small(p, p->slots))));
    block_push(a, out, s_assign(a, counter->parity, e_xor(a, parity, small(p, 1))));
}

// Puts the counter's slot into regions of multi-buffered tiles.
static Region *set_slot(Mapper *mapper, Region *region) {
    if (region->buf->stage_dims == 0) return region;
    Region *other = clone_region(mapper->arena, NULL, region);
    other->dims[0].start = mapper->user;
    return other;
}

static Stmt *clone_with_slot(RoleBuilder *p, const Stmt *stmt, Subst *subst, const Counter *counter) {
    Mapper mapper = {.arena = p->arena, .region = set_slot, .user = slot_index(p, counter)};
    Stmt *clone = clone_stmt(p->arena, subst, stmt);
    map_stmt(&mapper, clone);
    clone->call.is_async = true;
    return clone;
}

// The tile number under the name that the lets use, then the lets and assumptions (`all`: all statements) up to the
// loop. Returns the tile's steps.
static Expr *push_tile(RoleBuilder *p, Expr *wave, Subst *subst, bool all, Block *out) {
    Arena *a = p->arena;
    push_block(p, e_add(a, e_var(a, p->cta), e_mul(a, wave, p->ctas)), subst, out);
    FOR_EACH_ITEM (stmt, &p->work) {
        if (stmt == p->loop) break;
        if (all || is_scalar(stmt)) block_push(a, out, clone_stmt(a, subst, stmt));
    }
    if (p->steps) return p->steps;
    Expr *end = subst_expr(subst, p->loop->loop.iters[0].end);
    Expr *steps = bind(p, "steps", e_max(a, end, integer(p, 0)), out);
    push_range(p, steps, integer(p, 0), integer(p, p->context->target->max_grid), out);
    return steps;
}

// Skips the steps of another consumer's tile, if there is one.
static void push_skipped_wave(RoleBuilder *p, Expr *wave, const Counter *counter, Block *out) {
    Arena *a = p->arena;
    if (p->steps) {
        push_skip(p, p->steps, counter, out);
        return;
    }
    Subst *subst = subst_new(a);
    out = block_if(a, out, e_lt(a, wave, p->waves));
    push_skip(p, push_tile(p, wave, subst, false, out), counter, out);
}

// ---- the producer ----

static void push_started_copy(RoleBuilder *p, const Stmt *copy, Subst *subst, const Counter *counter, Block *out) {
    Stmt *started = clone_with_slot(p, copy, subst, counter);
    call_set_arg(p->arena, started, OPERAND_INDEX(COPY, bar), element(p, p->full, slot_index(p, counter)));
    push_shared_copy(p, started, slot_index(p, counter), out);
}

static bool is_loaded(const Func *kernel, const Stmt *stmt, Loads loads) {
    if (!is_call(stmt, OP_COPY)) return false;
    return loads == LOADS_ALL || tensor_is_independent(kernel, copy_of(stmt).src->buf) == (loads == LOADS_AHEAD);
}

int64_t loaded_bytes(const Func *kernel, const Stmt *loop, Loads loads) {
    int64_t bytes = 0;
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (is_loaded(kernel, stmt, loads)) bytes += region_bytes(copy_of(stmt).dst);
    return bytes;
}

static void push_load_role(RoleBuilder *p, const char *name, const ThreadGroup *group, Loads loads, Block *out) {
    Arena *a = p->arena;
    Stmt *role = push_role(p, name, group->threads, group->registers, out);
    Counter counter = push_counter(p, "", p->slots, 1, &role->role.body);
    Expr *wave, *k;
    Stmt *tiles = push_tile_loop(p, "wave", p->waves, &wave, &role->role.body);
    Subst *subst = subst_new(a);
    Expr *steps = push_tile(p, wave, subst, false, &tiles->loop.body);
    Stmt *loop = push_loop(p, p->loop->loop.iters[0].var->name, steps, &k, &tiles->loop.body);
    Block *body = &loop->loop.body;
    subst_var(subst, p->loop->loop.iters[0].var, k);
    push_slot_wait(p, p->empty, &counter, body);
    push_on(p, OP_MBARRIER_EXPECT, p->full, slot_index(p, &counter),
            integer(p, loaded_bytes(p->kernel, p->loop, loads)), body);
    FOR_EACH_ITEM (stmt, &p->loop->loop.body) {
        if (is_scalar(stmt)) block_push(a, body, clone_stmt(a, subst, stmt));
        else if (is_loaded(p->kernel, stmt, loads)) push_started_copy(p, stmt, subst, &counter, body);
    }
    push_advance(p, &counter, body);
    if (p->cluster > 1) push_last_waits(p, &p->sharings, p->empty, &counter, &role->role.body);
}

static void push_load_roles(RoleBuilder *p, Block *out) {
    const ThreadGroup *load = &p->groups.of[GROUP_LOAD], *ahead = &p->groups.of[GROUP_LOAD_AHEAD];
    push_load_role(p, "load", load, ahead->count ? LOADS_WAITING : LOADS_ALL, out);
    if (ahead->count) push_load_role(p, "load_ahead", ahead, LOADS_AHEAD, out);
}

// ---- a consumer ----

// Arrives at `empty` of the previous slot: the wait before it has completed the MMAs that read the slot.
static void push_consume(RoleBuilder *p, const Counter *counter, Expr *condition, Block *out) {
    Arena *a = p->arena;
    Expr *slot = e_var(a, counter->slot), *first = e_eq(a, slot, small(p, 0));
    Expr *before = e_sub(a, e_select(a, first, small(p, p->slots), slot), small(p, 1));
    Block *consume = block_if(a, out, condition);
    before = e_cast(a, TYPE_I64, before);
    push_on(p, OP_MBARRIER_ARRIVE, p->empty, before, NULL, consume);
    tell_loaders(p, &p->sharings, p->empty, before, 1, consume);
}

static void push_order(RoleBuilder *p, OpId op, Expr *consumer, Block *out) {
    if (p->consumers == 1) return;
    PUSH_CALL(p, out, op, arg_value(e_plus(p->arena, consumer, PINGPONG_BARRIER)),
              arg_int(p->arena, p->consumers * target_warpgroup(p->context->target)));
}

static void push_products(RoleBuilder *p, Subst *subst, Expr *steps, const Counter *counter, Block *out) {
    Arena *a = p->arena;
    Expr *k;
    Stmt *loop = push_loop(p, p->loop->loop.iters[0].var->name, steps, &k, out);
    Block *body = &loop->loop.body;
    subst_var(subst, p->loop->loop.iters[0].var, k);
    push_slot_wait(p, p->full, counter, body);
    int products = 0;
    FOR_EACH_ITEM (stmt, &p->loop->loop.body) {
        if (is_scalar(stmt)) block_push(a, body, clone_stmt(a, subst, stmt));
        if (!is_call(stmt, OP_GEMM)) continue;
        block_push(a, body, clone_with_slot(p, stmt, subst, counter));
        products++;
    }
    push_wait(p, products, body);   // those of the previous step are complete
    push_consume(p, counter, e_lt(a, integer(p, 0), k), body);
    push_advance(p, counter, body);
}

// `buffers`: declarations of the role's shared memory.
static void push_consumer_tile(RoleBuilder *p, Expr *consumer, Expr *wave, Subst *subst, const Counter *counter,
                               Block *buffers, Block *out) {
    Arena *a = p->arena;
    Expr *other = e_mod(a, e_plus(a, consumer, 1), integer(p, p->consumers));
    Expr *steps = push_tile(p, wave, subst, true, out);
    push_order(p, OP_BARRIER, consumer, out);
    push_products(p, subst, steps, counter, out);
    Stmt *more = s_if(a, e_lt(a, e_add(a, wave, integer(p, 1)), p->waves));
    push_order(p, OP_BARRIER_ARRIVE, other, &more->if_.then);
    if (more->if_.then.count > 0) block_push(a, out, more);
    push_wait(p, 0, out);
    if (!p->single_tile) push_consume(p, counter, e_lt(a, integer(p, 0), steps), out);
    for (int others = 1; others < p->consumers; others++)
        push_skipped_wave(p, e_add(a, wave, integer(p, others)), counter, out);
    int at = 0;
    while (at < p->work.count && p->work.items[at] != p->loop) at++;
    EXPECT(p->context->failure, at < p->work.count, "the kernel's loop is not at its top level");
    for (int i = at + 1; i < p->work.count; i++) {
        block_push(a, out, clone_stmt(a, subst, p->work.items[i]));
        FOR_EACH_STMT_IN_MUT (stmt, vec_last(out))
            if (stores_staged(stmt)) add_staging(p, stmt, 1, buffers);
    }
}

// The slot of its first tile, and the first turn. (`consumer`: its number.)
static void push_start(RoleBuilder *p, Expr *consumer, const Counter *counter, Block *out) {
    Arena *a = p->arena;
    for (int before = 0; before + 1 < p->consumers; before++) {
        Block *skips = block_if(a, out, e_lt(a, integer(p, before), consumer));
        push_skipped_wave(p, integer(p, before), counter, skips);
        if (before == 0) push_order(p, OP_BARRIER_ARRIVE, integer(p, 0), skips);
    }
}

// An array of roles: the consumers have one code.
static void push_compute_roles(RoleBuilder *p, Block *out) {
    Arena *a = p->arena;
    Subst *subst = subst_new(a);
    const ThreadGroup *group = &p->groups.of[GROUP_COMPUTE];
    Stmt *role = push_role(p, "compute", group->threads, group->registers, out);
    Block *body = &role->role.body;
    Expr *consumer = integer(p, 0);
    if (p->consumers > 1) {
        Var *number = var_new(a, "consumer", VAR_ITER, TYPE_I64, p->loc);
        role->role.count = 1;
        role->role.iters = NEW(a, Iter);
        *role->role.iters = (Iter){number, consumer, integer(p, p->consumers), integer(p, 1)};
        consumer = e_var(a, number);
    }
    Block declarations = {0};   // within the loop over tiles: no value is carried across tiles
    FOR_EACH_ITEM (decl, &p->fragments) {
        const Buf *buf = decl->decl;
        Buf *own = buf_new(a, buf->name, buf->scope, buf->type, buf->rank, buf->shape, buf->loc);
        subst_buf(subst, buf, own);
        block_push(a, &declarations, s_decl(a, own));
    }
    Counter counter = push_counter(p, "", p->slots, 0, body);
    push_start(p, consumer, &counter, body);
    Expr *i, *rest = e_sub(a, p->waves, consumer);
    Stmt *tiles = push_tile_loop(p, "i", e_call2(a, OP_CEILDIV, rest, integer(p, p->consumers)), &i, body);
    block_append(a, &tiles->loop.body, &declarations);
    Expr *wave = e_add(a, e_mul(a, i, integer(p, p->consumers)), consumer);
    wave = bind(p, "wave", wave, &tiles->loop.body);
    Block buffers = {0};
    push_consumer_tile(p, consumer, wave, subst, &counter, &buffers, &tiles->loop.body);
    if (p->some_steps) fold_zero_init(a, p->facts, &tiles->loop.body);
    if (buffers.count > 0) push_last_store_wait(a, p->loc, body);
    block_append(a, &buffers, body);
    *body = buffers;
}

// ---- the kernel ----

static void sort_statements(RoleBuilder *p, const Block *from) {
    FOR_EACH_ITEM (stmt, from) {
        bool shared = is_shared_decl(stmt) && !is_scratch(stmt);
        bool fragment = stmt->kind == STMT_DECL && stmt->decl->scope == SCOPE_FRAGMENT;
        block_push(p->arena, shared ? &p->shared : fragment ? &p->fragments : &p->work, stmt);
        if (is_pipelined(stmt)) p->loop = stmt;
    }
}

static void count_slots(RoleBuilder *p) {
    expr_const(p->loop->loop.stages, &p->slots);
    // A consumer frees the slot before its own one, by the counter that push_counter makes of several.
    EXPECT(p->context->failure, p->slots > 1, "a ping-pong loop of %lld slots", (long long)p->slots);
    FOR_EACH_ITEM (stmt, &p->loop->loop.body) {
        if (!is_call(stmt, OP_COPY)) continue;
        const Region *to = copy_of(stmt).dst;
        EXPECT(p->context->failure, region_rank(to) == 2, "a ping-pong tile of rank %d", region_rank(to));
    }
}

static void push_setup(RoleBuilder *p, Block *out) {
    int64_t writers = p->groups.of[GROUP_LOAD_AHEAD].count ? 2 : 1;
    bind_cluster(p, out);
    push_barrier_init(p, p->slots, p->full, writers, p->empty, 1, &p->sharings, out);
    publish_barriers(p, &p->sharings, out);
}

static bool multi_buffers_everything(const Stmt *loop) {
    FOR_EACH_ITEM (stmt, &loop->loop.body)
        if (is_call(stmt, OP_COPY) && copy_of(stmt).dst->buf->stage_dims != 1) return false;
    return true;
}

// Persistent CTAs compute the tiles cta, cta + ctas, ...
static void make_tiles(RoleBuilder *p, bool single, Block *out) {
    Arena *a = p->arena;
    p->tiles = bind(p, "tiles", p->grid->grid.iters[0].end, out);
    push_range(p, p->tiles, integer(p, 1), integer(p, p->context->target->max_grid), out);
    Expr *steps = common_trips(a, &p->work, p->loop);
    if (steps) p->steps = bind(p, "steps", steps, out);
    p->ctas = p->tiles;
    p->waves = integer(p, 1);
    p->single_tile = single && p->cluster == 1;   // (a loading CTA waits for all of its slots, until no other arrives)
    if (single) return;
    p->ctas = bind(p, "ctas", persistent_ctas(p), out);   // in terms of the grid: codegen uses this expression
    Expr *rest = e_sub(a, p->tiles, e_var(a, p->cta));    // usually one wave: the first loads wait for this
    Expr *waves = e_select(a, e_eq(a, p->tiles, p->ctas), integer(p, 1), e_call2(a, OP_CEILDIV, rest, p->ctas));
    p->waves = bind(p, "waves", waves, out);
    push_range(p, p->waves, integer(p, 1), integer(p, p->context->target->max_grid), out);
}

static void specialize_pingpong(PassContext *context, Func *kernel, Stmt *grid) {
    Arena *a = context->arena;
    RoleBuilder p = {.context = context, .arena = a, .kernel = kernel, .grid = grid, .loc = grid->loc};
    Block body = {0};
    want_few_tiles(context, kernel, grid);
    EXPECT(context->failure, grid->grid.count == 1, "ping-pong with %d names of the grid", grid->grid.count);
    sort_statements(&p, &grid->grid.body);
    p.block = grid->grid.iters[0].var;
    p.cta = var_new(a, "cta", VAR_ITER, TYPE_I64, p.loc);
    count_slots(&p);
    p.facts = facts_new(a, kernel);
    p.some_steps = prove(p.facts, e_lt(a, integer(&p, 0), p.loop->loop.iters[0].end));
    p.cluster = loads_multicast(&p.loop->loop.body) ? grid_cluster(grid) : 1;
    FOR_EACH_ITEM (stmt, &p.loop->loop.body) add_sharing(a, &p.sharings, stmt);
    p.groups = kernel_groups(kernel);
    p.consumers = (int)p.groups.of[GROUP_COMPUTE].count;
    EXPECT(context->failure, p.consumers >= 1 && p.consumers <= PINGPONG_MOST, "%d consumers", p.consumers);
    block_append(a, &body, &p.shared);
    p.full = push_barriers(&p, "full", p.slots, &body);
    p.empty = push_barriers(&p, "empty", p.slots, &body);
    bool single = grid_claim(grid).kind != CLAIM_STATIC;
    make_tiles(&p, single, &body);
    push_setup(&p, &body);
    learn_scalars(p.facts, &body);
    push_load_roles(&p, &body);
    push_compute_roles(&p, &body);
    if (p.cluster > 1) set_cluster(grid, p.cluster);
    set_grid(&p, single ? grid->grid.iters[0].end : persistent_ctas(&p), 1, body);
}

// Without slots no load can run ahead: falls back to mechanisms that need no roles.
static void fall_back(Arena *arena, Func *kernel) {
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (via_is(stmt, VIA_TMA) || stores_staged(stmt)) via_set(arena, stmt, VIA_PLAIN);
        if (via_is(stmt, VIA_WGMMA)) via_set(arena, stmt, VIA_FMA);
    }
}

static bool specialize(PassContext *context, Func *kernel, Stmt *grid) {
    if (planned_kind(kernel) == WS_COOPERATIVE) return specialize_cooperative(context, kernel);
    const Stmt *loop = pipelined_loop(grid);
    if (!loop) return false;
    if (multi_buffers_everything(loop)) specialize_pingpong(context, kernel, grid);
    else fall_back(context->arena, kernel);
    return true;
}

bool pass_warp_specialize(PassContext *context, Func *kernel) {
    Stmt *grid = (Stmt *)func_grid(kernel);
    if (planned_kind(kernel) == WS_NONE || !specialize(context, kernel, grid)) return false;
    drop_groups(grid);   // the roles say it
    set_claim(context->arena, grid, (TileClaim){0});
    return true;
}
