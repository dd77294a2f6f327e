// Producer roles: loads, and the transposer.
//
// A producer role executes the control flow around the copies of its tiles, and nothing else.
#include "passes/analysis/kernel_walk.h"
#include "passes/specialize/emit_roles.h"

// The statement fills a tile of such a role.
static bool fills(const Maker *m, const Stmt *stmt) {
    return m->role == ROLE_LOAD ? is_global_to_shared_copy(stmt) : transposes_loaded(stmt, m->plan);
}

// ---- load ----

static void push_load(Maker *m, const Stmt *copy, Block *out) {
    RoleBuilder *p = m->builder;
    const RoleTile *tile = tile_of(m->plan, copy_of(copy).dst->buf);
    const TileRing *ring = tile->ring;
    EXPECT(p->context->failure, ring->producer == ROLE_LOAD && ring->bytes > 0,
           "a load of '%s', which the transposer fills", tile->buf->name);
    Expr *slot = slot_index(p, &ring->counter);
    if (tile == ring->tiles.items[0]) {
        if (!ring->single_use) push_slot_wait(p, ring->empty, &ring->counter, out);
        push_on(p, OP_MBARRIER_EXPECT, ring->full, slot, integer(p, ring->bytes), out);
    }
    Stmt *started = clone_for_role(m, copy);
    call_set_arg(p->arena, started, OPERAND_INDEX(COPY, bar), element(p, ring->full, slot));
    started->call.is_async = true;
    block_push(p->arena, out, started);
    if (tile == vec_last(&ring->tiles) && !ring->single_use) push_advance(p, &ring->counter, out);
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
    if (!is_global_to_shared_copy(copy)) return false;
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
    const Buf *buf = copy_of(copy).dst->buf;
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
    return fills(m, stmt) && (!m->own || tile_of(m->plan, copy_of(stmt).dst->buf)->ring == m->own);
}

static bool fills_or_counts(const Stmt *stmt, void *user) {
    return is_filled(stmt, user) || sets_required(((const Maker *)user)->plan, stmt);
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
    if (!below_any(stmt, fills_or_counts, m)) return;
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
    Stmt *role = push_role(p, name, threads, p->producer_registers, out);
    push_counters(m, &role->role.body);
    Block *body = push_tiles(m, role);
    learn_scalars(m->facts, body);
    fill_block(m, &p->grid->grid.body, body);
}

// Each ring (tiles that are emptied at the same time) is loaded by a warp of its own, so that none waits behind
// another.
static void push_loading_roles(Maker *m, const Func *kernel, int64_t threads, Block *out) {
    int64_t warp = m->builder->context->target->warp_lanes;
    int count = 0, made = 0;
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) count += ring->producer == ROLE_LOAD;
    if (count < 2 || count * warp > threads) {
        push_filling_role(m, kernel, "load", threads, ROLE_LOAD, out);
        return;
    }
    VEC_EACH_PTR (TileRing, ring, &m->plan->rings) {
        if (ring->producer != ROLE_LOAD) continue;
        const char *name = arena_printf(m->plan->arena, "load_%s", ring->tiles.items[0]->buf->name);
        m->own = ring;
        int64_t rest = threads - made * warp;
        push_filling_role(m, kernel, name, ++made < count ? warp : rest, ROLE_LOAD, out);
    }
    m->own = NULL;
}

// One warp is enough to load. With transposed tiles and few registers, the other warps of its warpgroup transpose.
void push_filling_roles(Maker *m, const Func *kernel, Block *out) {
    const Target *target = m->builder->context->target;
    bool share = m->plan->transposes && m->plan->producers == 1;
    int64_t all = target_warpgroup(target), loading = share ? target->warp_lanes : all,
            transposing = share ? all - loading : all;
    push_loading_roles(m, kernel, loading, out);
    if (m->plan->transposes) push_filling_role(m, kernel, "transpose", transposing, ROLE_TRANSPOSE, out);
}
