// Producer roles: loads, and the transposer.
//
// A producer role executes the control flow around the copies of its tiles, and nothing else. Of what TMA cannot load
// its threads load the elements. Their cp.async copies into a slot are started, then those of `lag` slots before have
// landed:
//
//     mbarrier_wait(As_empty[slot], parity);          // As and Bs are filled together
//     mbarrier_expect(As_full[slot], 8192);           // of Bs
//     parallel (i in 64, j in 64) As[slot, i, j] = A[rows[i], k * 64 + j];      // by cp.async
//     cp_async_commit();
//     async copy(B.., Bs[slot, :, :], bar = As_full[slot]);
//     if (started >= 2) {
//         cp_async_wait(2);                           // the slot two before is complete, of this thread
//         fence_async();                              // and visible to wgmma
//         warp_sync();
//         mbarrier_arrive(As_full[slot - 2], 4);      // once a warp
//     } else started = started + 1;
//
// The others are told behind the loop. At most half of the slots lag, so a slot is told of before its next use waits
// for it.
#include "passes/analysis/kernel_walk.h"
#include "passes/specialize/emit_roles.h"
#include "passes/specialize/shared_loads.h"

// The statement fills a tile of such a role.
static bool fills(const Maker *m, const Stmt *stmt) {
    return m->role == ROLE_LOAD ? loaded_tile(stmt) != NULL : transposes_loaded(stmt, m->plan);
}

static TileRing *filled_ring(const Maker *m, const Stmt *stmt) {
    return tile_of(m->plan, filled_tile(m->plan, stmt))->ring;
}

// ---- warps ----

static int64_t loading_warps(const Maker *m) {
    return m->builder->groups.of[GROUP_LOAD].threads / m->builder->context->target->warp_lanes;
}

static bool starts_load(const Stmt *stmt, void *unused) {
    (void)unused;
    return via_is(stmt, VIA_CP_ASYNC);
}

static bool starts_loads(const Maker *m, const TileRing *ring) {
    VEC_EACH_PTR (RoleTile, tile, &ring->tiles)
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            for (int i = range->at; i <= range->filled; i++)
                if (is_fill_of(m->plan, tile, range, i) && stmt_any(range->block->items[i], starts_load, NULL))
                    return true;
    return false;
}

// What a tile of the grid loads a single time has nothing of its own behind it that would say that it has landed.
static bool repeats(const TileRing *ring) {
    VEC_EACH_PTR (RoleTile, tile, &ring->tiles)
        VEC_EACH (const TileRange, range, &tile->live_ranges)
            if (!range->repeats) return false;
    return true;
}

// Each ring (tiles that are emptied at the same time) is loaded by warps of its own, so that none waits behind another:
// one where TMA fills it; the others share what is left equally, in powers of two. The rest is with the last one of
// TMA.
void share_warps(Maker *m) {
    int64_t warps = loading_warps(m), each = 1;
    int rings = 0, gathered = 0;
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        rings += ring->producer == ROLE_LOAD;
        gathered += ring->gathers > 0;
    }
    m->separate = rings > 1 && rings <= warps;
    while (gathered && 2 * each * gathered <= warps - (rings - gathered)) each *= 2;
    TileRing *last = NULL;
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        if (ring->producer != ROLE_LOAD) continue;
        bool lags = (m->separate || rings == 1) && repeats(ring) && starts_loads(m, ring);
        ring->lag = lags ? ring->slots / 2 : 0;
        ring->warps = ring->gathers ? each : 1;
        warps -= ring->warps;
        if (!last || !ring->gathers || last->gathers) last = ring;
    }
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings)
        if (!m->separate) ring->warps = loading_warps(m);
    if (m->separate) last->warps += warps;
}

int64_t filling_arrivals(const TileRing *ring) {
    return ring->gathers ? ring->by_tma + ring->warps : 1;
}

// ---- load ----

// The slot so many before the counter's.
static Expr *slot_before(RoleBuilder *p, const Counter *counter, int64_t lag) {
    Arena *a = p->arena;
    if (!lag || !counter->slot) return slot_index(p, counter);
    Expr *slot = e_var(a, counter->slot), *around = e_lt(a, slot, small(p, lag));
    slot = e_sub(a, e_select(a, around, e_add(a, slot, small(p, counter->slots)), slot), small(p, lag));
    return e_cast(a, TYPE_I64, slot);
}

// Each warp says that what its threads loaded is in the slot.
static void push_landed(Maker *m, const TileRing *ring, int64_t lag, Block *out) {
    RoleBuilder *p = m->builder;
    block_call(p->arena, out, p->loc, OP_WARP_SYNC, 0, NULL);
    Expr *warps = ring->warps > 1 ? integer(p, ring->warps) : NULL;
    push_on(p, OP_MBARRIER_ARRIVE, ring->full, slot_before(p, &ring->counter, lag), warps, out);
}

static void push_copies_wait(Maker *m, const TileRing *ring, int64_t lag, Block *out) {
    RoleBuilder *p = m->builder;
    if (starts_loads(m, ring)) PUSH_CALL(p, out, OP_CP_ASYNC_WAIT, arg_int(p->arena, lag * ring->gathers));
    block_call(p->arena, out, p->loc, OP_FENCE_ASYNC, 0, NULL);
}

static void push_gathered(Maker *m, const TileRing *ring, Block *out) {
    Arena *a = m->plan->arena;
    if (ring->lag) {
        Expr *started = e_var(a, ring->started), *lag = small(m->builder, ring->lag);
        Stmt *some = s_if(a, e_ge(a, started, lag));
        block_push(a, out, some);
        block_push(a, &some->if_.otherwise, s_assign(a, ring->started, e_add(a, started, small(m->builder, 1))));
        out = &some->if_.then;
    }
    push_copies_wait(m, ring, ring->lag, out);
    push_landed(m, ring, ring->lag, out);
}

// At the role's end: the slots that no later load has told of.
static void push_last_gathered(Maker *m, const TileRing *ring, Block *out) {
    Arena *a = m->plan->arena;
    push_copies_wait(m, ring, 0, out);
    for (int64_t lag = ring->lag; lag > 0; lag--) {
        Expr *some = e_ge(a, e_var(a, ring->started), small(m->builder, lag));
        push_landed(m, ring, lag, block_if(a, out, some));
    }
}

static void start_copy(Maker *m, Stmt *copy, const TileRing *ring) {
    RoleBuilder *p = m->builder;
    call_set_arg(p->arena, copy, OPERAND_INDEX(COPY, bar), element(p, ring->full, slot_index(p, &ring->counter)));
    copy->call.is_async = true;
}

// (Where a condition chooses, the copy of either branch brings the bytes that the slot expects.)
static void push_started(Maker *m, const Stmt *load, const TileRing *ring, Block *out) {
    RoleBuilder *p = m->builder;
    Stmt *started = clone_for_role(m, load);
    bool by_tma = !gathers_tile(p->context->target, load);
    if (started->kind == STMT_CALL && by_tma) {
        start_copy(m, started, ring);
        push_shared_copy(p, started, slot_index(p, &ring->counter), out);
        return;
    }
    FOR_EACH_STMT_IN_MUT (copy, started)
        if (by_tma && is_global_to_shared_copy(copy)) start_copy(m, copy, ring);
    block_push(p->arena, out, started);
}

static int64_t load_bytes(const Stmt *load) {
    while (load->kind == STMT_IF) load = branch_load(&load->if_.then);
    return region_bytes(copy_of(load).dst);
}

// Bytes of the fill that TMA brings: of a tile that is filled at several places, here.
static int64_t bytes_by_tma(const Maker *m, const TileRing *ring, const Stmt *first) {
    const RoleTile *leading = ring->tiles.items[0];
    int64_t bytes = 0;
    for (int s = 0; s < leading->live_ranges.count; s++) {
        if (filling_stmt(m->plan, &leading->live_ranges.items[s]) != first) continue;
        VEC_EACH_PTR (RoleTile, tile, &ring->tiles) {
            const TileRange *range = &tile->live_ranges.items[s];
            for (int i = range->at; i <= range->filled; i++) {
                const Stmt *load = range->block->items[i];
                bool by_tma = is_fill_of(m->plan, tile, range, i) && !gathers_tile(m->plan->target, load);
                if (by_tma) bytes += load_bytes(load);
            }
        }
    }
    return bytes;
}

static void push_load(Maker *m, const Stmt *load, Block *out) {
    RoleBuilder *p = m->builder;
    const RoleTile *tile = tile_of(m->plan, loaded_tile(load));
    const TileRing *ring = tile->ring;
    const TileRange *range = filled_range(m->plan, tile, load);
    EXPECT(p->context->failure, range && ring->producer == ROLE_LOAD && (ring->by_tma || ring->gathers > 0),
           "a load of '%s', which the transposer fills", tile->buf->name);
    if (tile == ring->tiles.items[0] && load == filling_stmt(m->plan, range)) {
        if (!ring->single_use) push_slot_wait(p, ring->empty, &ring->counter, out);
        if (ring->by_tma)
            push_on(p, OP_MBARRIER_EXPECT, ring->full, slot_index(p, &ring->counter),
                    integer(p, bytes_by_tma(m, ring, load)), out);
    }
    push_started(m, load, ring, out);
    if (load != range->block->items[range->filled]) return;
    // (as many groups in each fill, also where TMA brings this one: the lag counts groups)
    if (tile->gathered && starts_loads(m, ring)) block_call(p->arena, out, p->loc, OP_CP_ASYNC_COMMIT, 0, NULL);
    if (tile != vec_last(&ring->tiles)) return;
    if (ring->gathers) push_gathered(m, ring, out);
    if (!ring->single_use) push_advance(p, &ring->counter, out);
}

// A tile that is loaded a single time before a loop of loads has one slot, which becomes free late, at the end of the
// previous tile's loop. The first slots of the loop's tiles become free earlier. So the single load moves behind the
// first load of the loop:
//
//     copy(Q.., Qs)                     for (n in steps) {
//     for (n in steps) {                    copy(K.., Ks)
//         copy(K.., Ks)         =>          if (n == 0) copy(Q.., Qs)
//         copy(V.., Vs)                     copy(V.., Vs)
//     }                                 }
static Stmt *first_load(const Block *block, int from) {
    for (int i = from; i < block->count; i++)
        if (stmt_any(block->items[i], loads_tile, NULL)) return block->items[i];
    return NULL;
}

static bool is_delayed(Maker *m, const Block *from, int at) {
    const Stmt *copy = from->items[at];
    if (!is_global_to_shared_copy(copy) || plan_gathers(m->plan)) return false;
    if (!fills_whole(copy, copy_of(copy).dst->buf)) return false;
    const Buf *buf = copy_of(copy).dst->buf;
    const TileRing *ring = tile_of(m->plan, buf)->ring;
    const Stmt *loop = first_load(from, at + 1);
    if (m->own || m->delayed || ring->slots > 1 || ring->tiles.count > 1 || !loop) return false;
    if (loop->kind != STMT_FOR || loop->loop.count != 1) return false;
    const Stmt *first = first_load(&loop->loop.body, 0);
    if (!is_global_to_shared_copy(first) || copy_of(first).dst->buf == buf) return false;
    m->delayed = copy;
    m->into = loop;
    return true;
}

static void push_delayed(Maker *m, const Stmt *copy, const Block *block, Block *out) {
    if (!m->delayed || block != &m->into->loop.body) return;
    const Buf *buf = loaded_tile(copy);
    if (buf != vec_last(&tile_of(m->plan, buf)->ring->tiles)->buf) return;
    Arena *a = m->plan->arena;
    const Iter *iter = &m->into->loop.iters[0];
    Expr *first = e_eq(a, e_var(a, iter->var), iter->begin);
    Stmt *single_use = s_if(a, subst_expr(m->subst, first));
    push_load(m, m->delayed, &single_use->if_.then);
    block_push(a, out, single_use);
    m->delayed = NULL;
}

// ---- transpose ----

// Each thread of the role has read and written its elements; wgmma then reads the written tile.
static void push_transposed(Maker *m, const Stmt *copy, Block *out) {
    RoleBuilder *p = m->builder;
    const TileRing *from = tile_of(m->plan, copy_of(copy).src->buf)->ring,
                   *to = tile_of(m->plan, copy_of(copy).dst->buf)->ring;
    Expr *slot = slot_index(p, &to->counter);
    EXPECT(p->context->failure, from->consumer == ROLE_TRANSPOSE && to->producer == ROLE_TRANSPOSE,
           "'%s' is not the transpose of a loaded tile", copy_of(copy).dst->buf->name);
    if (!to->single_use) push_slot_wait(p, to->empty, &to->counter, out);
    push_full(m, from, out);
    block_push(p->arena, out, clone_for_role(m, copy));
    block_call(p->arena, out, p->loc, OP_FENCE_ASYNC, 0, NULL);
    block_barrier(p->arena, out, p->loc);
    push_on(p, OP_MBARRIER_ARRIVE, to->full, slot, NULL, out);
    if (!from->single_use) push_on(p, OP_MBARRIER_ARRIVE, from->empty, slot_index(p, &from->counter), NULL, out);
    if (!to->single_use) push_advance(p, &to->counter, out);
    if (!from->single_use) push_advance(p, &from->counter, out);
}

// ---- producers ----

static void fill_block(Maker *m, const Block *from, Block *out);

static bool is_filled(const Stmt *stmt, void *user) {
    const Maker *m = user;
    return fills(m, stmt) && (!m->own || filled_ring(m, stmt) == m->own);
}

static bool fills_or_steers(const Stmt *stmt, void *user) {
    return is_filled(stmt, user) || steers_loads(((const Maker *)user)->plan, stmt);
}

static void fill_stmt(Maker *m, Stmt *stmt, Block *out) {
    Arena *a = m->plan->arena;
    if (load_knows(m->plan, stmt)) {
        Stmt *clone = clone_stmt(a, m->subst, stmt);
        if (is_scalar(clone)) facts_enter(m->facts, clone);
        block_push(a, out, clone);
    }
    Block *bodies[2], *to[2];
    int count = stmt_bodies(stmt, bodies);
    if (!below_any(stmt, fills_or_steers, m)) return;
    Stmt *shell = shell_of(m, stmt);
    stmt_bodies(shell, to);
    bool runs =
        stmt->kind == STMT_FOR && prove(m->facts, e_lt(a, shell->loop.iters[0].begin, shell->loop.iters[0].end));
    if (m->delayed && stmt == m->into && !runs) {   // no first iteration is certain to execute the copy
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
        if (!fills(m, stmt)) {
            fill_stmt(m, from->items[i], out);
        } else if (!is_filled(stmt, m)) {
            continue;
        } else if (m->role == ROLE_TRANSPOSE) {
            push_transposed(m, stmt, out);
        } else if (!is_delayed(m, from, i)) {
            push_load(m, stmt, out);
            push_delayed(m, stmt, from, out);
        }
    }
    facts_release(m->facts, mark);
}

// ---- the roles ----

static void push_filling_role(Maker *m, const Func *kernel, const char *name, int64_t threads, RoleKind kind,
                              Block *out) {
    RoleBuilder *p = m->builder;
    m->facts = facts_new(p->arena, kernel);
    m->role = kind;
    learn_scalars(m->facts, out);
    GroupId group = kind == ROLE_LOAD ? GROUP_LOAD : GROUP_TRANSPOSE;
    Stmt *role = push_role(p, name, threads, p->groups.of[group].registers, out);
    push_counters(m, &role->role.body);
    Block *body = push_tiles(m, role);
    learn_scalars(m->facts, body);
    fill_block(m, &p->grid->grid.body, body);
    push_next_tile(m, body);
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        if (kind != ROLE_LOAD || (m->own && ring != m->own)) continue;
        if (ring->lag) push_last_gathered(m, ring, &role->role.body);
        if (ring->sharings.count > 0)
            push_last_waits(p, &ring->sharings, ring->empty, &ring->counter, &role->role.body);
    }
}

void push_filling_roles(Maker *m, const Func *kernel, Block *out) {
    const ThreadGroup *load = &m->builder->groups.of[GROUP_LOAD], *transpose = &m->builder->groups.of[GROUP_TRANSPOSE];
    const TileRing *claimer = NULL;
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings)
        if (ring->producer == ROLE_LOAD && (!claimer || (repeats(ring) && !repeats(claimer)))) claimer = ring;
    m->claims = !m->separate;
    if (!m->separate) push_filling_role(m, kernel, "load", load->threads, ROLE_LOAD, out);
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        if (!m->separate || ring->producer != ROLE_LOAD) continue;
        const char *name = arena_printf(m->plan->arena, "load_%s", ring->tiles.items[0]->buf->name);
        m->own = ring;
        m->claims = ring == claimer;
        push_filling_role(m, kernel, name, ring->warps * m->builder->context->target->warp_lanes, ROLE_LOAD, out);
    }
    m->own = NULL;
    m->claims = false;
    if (transpose->count) push_filling_role(m, kernel, "transpose", transpose->threads, ROLE_TRANSPOSE, out);
}
