// insert-sync: barriers, cp.async groups and waits, where two threads would meet in an element.
//
// The statements of a block run in order as if one thread did them; threads run apart. So between two accesses that
// conflict there must be a barrier, and between a started copy and its use a wait and a barrier. Where is found by
// playing the kernel through (sync_model.c), not by patterns:
//
//  1. groups     each maximal run of started copies closes a group: after the run, or after the `if` around it, so
//                that the number of groups does not depend on whether there was a copy
//  2. place      before each statement what is missing there, as late as possible, but not in a loop when it is against
//                what was there before the loop. An `await` asks for the wait and the barrier at its own place:
//                software-pipeline says so where one barrier serves the whole iteration
//  3. prune      each commit, barrier and wait is taken away in turn, and stays away when nothing is missing then
//                (awaits being no accesses now). What stays is needed, each for some trip count. Most are: playing the
//                kernel through once with what each of them ended kept on the side finds these (sync_model_weigh)
//  4. join       a wait until TMA has read a tile goes to the barrier before it, where that one serves both
//
// The gemm after `software-pipeline` has one barrier an iteration:
//
//     for (k in steps) {
//         cp_async_wait(1);                      As[k % 3] has landed, for the thread's own copies
//         barrier();                             ... for all threads'; and all have left slot (k - 1) % 3
//         if (k + 2 < steps) { async copy(..., As[(k + 2) % 3, :, :]); ... }
//         cp_async_commit();
//         gemm(As[k % 3, :, :], ...);
//     }
//
// Fragments are registers and need nothing. Shared buffers conflict by place in memory, so it runs after allocation; by
// hand before it, by buffer. Roles and hand-written thread regions synchronise themselves within; around them their
// accesses count. Only scratch of passes (stage-through-shared), global memory that a role writes and uses again with
// the fences and releases that order it, tiles that it copies to and awaits, and tiles that its tile operations alone
// use get their barriers in a role too: the role's own. Blocks of a grid are not ordered with one another.
#include "passes/sync/sync.h"

// ---- groups ----

static bool is_copy_group(const Stmt *stmt);

// Nothing but started copies, and what goes with them.
static bool all_copies(const Block *block) {
    bool copies = false;
    FOR_EACH_ITEM (stmt, block) {
        if (is_copy_group(stmt)) copies = true;
        else if (stmt->kind != STMT_LET && !is_call(stmt, OP_AWAIT)) return false;
    }
    return copies;
}

static bool is_copy_group(const Stmt *stmt) {
    if (stmt->kind == STMT_IF) return stmt->if_.otherwise.count == 0 && all_copies(&stmt->if_.then);
    if (stmt->kind == STMT_BLOCK) return all_copies(&stmt->block);
    return starts_copy(stmt);
}

static void find_commits(Arena *arena, SyncPlan *plan, Block *block) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        if (is_copy_group(stmt)) {
            int last = i;
            for (int j = i + 1; j < block->count; j++) {
                if (is_copy_group(block->items[j])) last = j;
                else if (block->items[j]->kind != STMT_LET) break;
            }
            bool closed = last + 1 < block->count && is_call(block->items[last + 1], OP_CP_ASYNC_COMMIT);
            if (!closed) {
                map_put(plan->commits, block->items[last], NEW(arena, bool));
                vec_push(arena, &plan->groups, block->items[last]);
            }
            i = last;
            continue;
        }
        FOR_EACH_BODY (body, stmt)
            if (!is_leaf(stmt)) find_commits(arena, plan, body);
    }
}

// ---- loops ----

static bool loads_memory(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_LOAD && is_memory(expr->load.buf);
}

// The first iterator behind others whose bounds are read from memory. 0: there is none.
static int read_again(const Stmt *loop) {
    for (int i = 1; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (any_expr(iter->begin, loads_memory, NULL) || any_expr(iter->end, loads_memory, NULL)) return i;
    }
    return 0;
}

// `for (p in 3, q in s[p])` reads its bound in each iteration of p, behind the body of the one before: it becomes two
// loops, so that a barrier fits between them. (A `break` leaves the innermost iterator's loop in both.)
static bool nest_loops(Arena *arena, Block *block) {
    bool changed = false;
    FOR_EACH_ITEM (stmt, block) {
        if (is_leaf(stmt)) continue;
        int outer = stmt->kind == STMT_FOR ? read_again(stmt) : 0;
        if (outer > 0) {
            Stmt *inner = NEW(arena, Stmt);
            *inner = *stmt;
            inner->attrs = NULL;
            inner->loop.iters += outer;
            inner->loop.count -= outer;
            stmt->loop.count = outer;
            stmt->loop.body = (Block){0};
            block_push(arena, &stmt->loop.body, inner);
            changed = true;
        }
        FOR_EACH_BODY (body, stmt) changed |= nest_loops(arena, body);
    }
    return changed;
}

// ---- pruning ----

static void prune_op(SyncModel *model, Sync *sync, SyncOp op) {
    if (!sync_has(sync, op) || sync->needs[op]) return;
    sync->ops &= ~(1 << op);
    if (!sync_model_check(model)) sync->ops |= 1 << op;
}

static void prune_group(SyncModel *model, SyncPlan *plan, Stmt *last) {
    bool *needed = map_get(plan->commits, last);
    if (*needed) return;
    map_remove(plan->commits, last);
    if (!sync_model_check(model)) map_put(plan->commits, last, needed);
}

static void prune(SyncModel *model, SyncPlan *plan) {
    static const SyncOp order[SYNC_OPS] = {SYNC_BARRIER, SYNC_WAIT, SYNC_COMMIT, SYNC_BULK, SYNC_FENCE};
    if (!sync_model_check(model)) return;   // an await asked for more than any access: keep all of it
    sync_model_weigh(model);
    VEC_EACH_PTR (Stmt, last, &plan->groups) prune_group(model, plan, last);
    VEC_EACH_PTR (Sync, sync, &plan->syncs)
        for (int i = 0; i < SYNC_OPS; i++) prune_op(model, sync, order[i]);
}

// ---- waits for TMA that reads ----

// A tile that TMA has read is written again behind a wait and a barrier. Where a barrier comes before, and the model allows
// it, the wait goes before that one, and the tile's own is not needed.
static void join_waits(SyncModel *model, const SyncPlan *plan, Block *block) {
    const int both = 1 << SYNC_BULK | 1 << SYNC_BARRIER;
    Sync *before = NULL;   // with the last barrier
    FOR_EACH_ITEM (stmt, block) {
        Sync *sync = map_get(plan->by_place, stmt);
        if (before && sync && (sync->ops & both) == both) {
            int ops = sync->ops, earlier = before->ops;
            sync->ops &= ~both, before->ops |= 1 << SYNC_BULK;
            if (!sync_model_check(model)) sync->ops = ops, before->ops = earlier;
        }
        if (sync && sync_has(sync, SYNC_BARRIER)) before = sync;
        FOR_EACH_BODY (body, stmt)
            if (!is_leaf(stmt)) join_waits(model, plan, body);
    }
}

// ---- writing it down ----

typedef struct Writer {
    Arena *arena;
    const SyncPlan *plan;
    bool changed;
} Writer;

static void push_call(Writer *w, OpId op, int count, const Arg *args, Span loc, Block *out) {
    block_call(w->arena, out, loc, op, count, args);
    w->changed = true;
}

// A fence that another one follows at once, perhaps the last statement of an `if`.
static void drop_fence(Block *out) {
    if (out->count && vec_last(out)->kind == STMT_IF) out = &vec_last(out)->if_.then;
    if (out->count && is_call(vec_last(out), OP_FENCE_ASYNC)) out->count--;
}

static void push_sync(Writer *w, const Sync *sync, Span loc, Block *out) {
    if (!sync) return;
    Arg none[2] = {{0}}, groups = arg_int(w->arena, sync->wait), read[] = {arg_int(w->arena, 0), arg_name("read")};
    if (sync_has(sync, SYNC_COMMIT)) push_call(w, OP_CP_ASYNC_COMMIT, 0, NULL, loc, out);
    if (sync_has(sync, SYNC_WAIT)) push_call(w, OP_CP_ASYNC_WAIT, 1, &groups, loc, out);
    if (sync_has(sync, SYNC_BULK)) push_call(w, OP_BULK_WAIT, COUNT_OF(read), read, loc, out);
    if (sync_has(sync, SYNC_FENCE)) {
        drop_fence(out);
        push_call(w, OP_FENCE_ASYNC, 0, NULL, loc, out);
    }
    if (sync_has(sync, SYNC_BARRIER)) push_call(w, OP_BARRIER, COUNT_OF(none), none, loc, out);
}

// What threads copy themselves is there when the statement is over, though it may have been started by hand.
static void drop_async(Writer *w, Stmt *stmt) {
    bool own = via_is(stmt, VIA_PLAIN) || via_is(stmt, VIA_VECTOR) || via_is(stmt, VIA_SHIFTED);
    if (stmt->kind != STMT_CALL || !stmt->call.is_async || !own) return;
    stmt->call.is_async = false;
    w->changed = true;
}

static void write_block(Writer *w, Block *block) {
    Block out = {0};
    Span loc = {0};
    FOR_EACH_ITEM (stmt, block) {
        loc = stmt->loc;
        FOR_EACH_BODY (body, stmt)
            if (!is_leaf(stmt)) write_block(w, body);
        push_sync(w, map_get(w->plan->by_place, stmt), loc, &out);
        drop_async(w, stmt);
        if (is_call(stmt, OP_AWAIT)) w->changed = true;
        else block_push(w->arena, &out, stmt);
        if (map_has(w->plan->commits, stmt)) push_call(w, OP_CP_ASYNC_COMMIT, 0, NULL, loc, &out);
    }
    push_sync(w, map_get(w->plan->by_place, block), loc, &out);
    *block = out;
}

// Finds what the model lacks, adds it and writes it into the body. True when that changed something.
static bool complete(PassContext *context, Block *body, const Map *awaited, SyncPlan *plan) {
    static const int scenarios[] = {MOST_SCENARIOS, MOST_SCENARIOS / 10,
                                    1};   // fewer where playing them takes too long
    Writer writer = {.arena = context->arena, .plan = plan};
    SyncModel *model = NULL;
    bool placed = false;
    for (int i = 0; i < COUNT_OF(scenarios) && !placed; i++) {
        plan->by_place = map_new(context->arena);
        plan->syncs.count = 0;
        model = sync_model_new(context->arena, context->target, body, awaited, plan, scenarios[i]);
        placed = sync_model_place(model);
    }
    if (!placed) {
        diag(context->sink, context->kernel->loc, T_SYNC_LIMIT, context->kernel->name);
        return false;
    }
    prune(model, plan);
    join_waits(model, plan, body);
    write_block(&writer, body);
    return writer.changed;
}

// ---- roles ----

static bool needs_sync(const Block *body) {
    FOR_EACH_STMT (stmt, body)
        if (orders_memory(stmt) || (stmt->kind == STMT_DECL && attr_get(stmt->decl->attrs, ATTR_SCRATCH))) return true;
    return false;
}

// Stores by TMA order themselves, and their staging (lower_hopper.c, stage_through_shared.c): in the tensor nothing else
// touches.
static Map *stored_by_tma(Arena *arena, const Stmt *role) {
    Map *stored = map_new(arena);
    FOR_EACH_STMT (stmt, &role->role.body)
        if (stores_staged(stmt))
            FOR_EACH_EFFECT (effect, arena, stmt) map_put(stored, buf_root(effect->buf), stored);
    return stored;
}

static bool reuses_global(Arena *arena, const Stmt *role) {
    EffectVec effects = {0};
    const Map *stored = stored_by_tma(arena, role);
    FOR_EACH_ITEM (stmt, &role->role.body)
        if (stmt->kind != STMT_THREAD) path_effects(arena, stmt, &effects);
    VEC_EACH (const Effect, a, &effects)
        VEC_EACH (const Effect, b, &effects) {
            bool again = a != b && a->buf == b->buf && a->access != ACCESS_READ && a->buf->scope == SCOPE_GLOBAL;
            if (again && !map_has(stored, buf_root(a->buf))) return true;
        }
    return false;
}

static void put_shared(Arena *arena, const Stmt *stmt, Map *bufs) {
    EffectVec effects = {0};
    path_effects(arena, stmt, &effects);
    VEC_EACH (const Effect, effect, &effects)
        if (effect->buf->scope == SCOPE_SHARED) map_put(bufs, buf_root(effect->buf), bufs);
}

// Storage that other statements of the CTA use, other members of an array, or thread regions of the role.
static Map *find_foreign(Arena *arena, const Block *block, const Stmt *role) {
    Map *foreign = map_new(arena);
    FOR_EACH_ITEM (stmt, block)
        if (stmt != role || role_members(role) > 1) put_shared(arena, stmt, foreign);
    FOR_EACH_STMT (stmt, &role->role.body)
        if (stmt->kind == STMT_DECL) map_remove(foreign, stmt->decl);   // each member has its own
    FOR_EACH_STMT (stmt, &role->role.body)
        if (stmt->kind == STMT_THREAD) put_shared(arena, stmt, foreign);
    return foreign;
}

static bool is_handed(const Buf *root) {
    return attr_get(root->attrs, ATTR_HANDED) != NULL;
}

// The regions may have an element of a slot in common: of no dim is it known that one ends before the other begins.
static bool may_meet(const Region *a, const Region *b) {
    for (int d = 0; d < a->count && d < b->count; d++) {
        int64_t first, second;
        const RegionDim *of_a = &a->dims[d], *of_b = &b->dims[d];
        if (!expr_const(of_a->start, &first) || !expr_const(of_b->start, &second)) continue;
        if (first + of_a->tile <= second || second + of_b->tile <= first) return false;
    }
    return true;
}

// Two accesses may conflict while the role has a slot. What it does to a slot that it got another time is ordered by the mbarriers.
static bool touches_again(Arena *arena, const Stmt *role, const Buf *root) {
    EffectVec effects = {0};
    stmt_effects(arena, role, &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (buf_root(a->buf) != root) continue;
        for (int j = 0; j < i; j++) {
            const Effect *b = &effects.items[j];
            if (buf_root(b->buf) != root || (a->access == ACCESS_READ && b->access == ACCESS_READ)) continue;
            if (!a->region || !b->region) return true;
            bool one_slot = expr_equal(a->region->dims[0].start, b->region->dims[0].start);
            if (one_slot && may_meet(a->region, b->region)) return true;
        }
    }
    return false;
}

// Storage that is in order as a kernel's is: tiles that the role awaits, those that its tile operations alone write and
// read, and slots that it has for a while.
static Map *find_awaited(Arena *arena, const Block *block, const Stmt *role) {
    Map *awaited = map_new(arena);
    const Map *foreign = find_foreign(arena, block, role), *stored = stored_by_tma(arena, role);
    FOR_EACH_STMT (stmt, &role->role.body) {
        if (is_call(stmt, OP_AWAIT)) map_put(awaited, buf_root(ARG(stmt, AWAIT, x).region->buf), awaited);
        FOR_EACH_EFFECT (effect, arena, stmt) {
            const Buf *root = buf_root(effect->buf);
            bool own = root->scope == SCOPE_SHARED && effect->access != ACCESS_READ &&
                       (is_handed(root) ? touches_again(arena, role, root) : !map_has(foreign, root));
            if (map_has(stored, root)) continue;
            if (own && type_kind(root->type) != KIND_OPAQUE) map_put(awaited, root, awaited);
        }
    }
    return awaited;
}

// A role can wait for its own copies only: the tiles that it awaits are written by no other.
static bool awaits_its_own(Arena *arena, const Block *block, const Stmt *role, const Map *awaited) {
    int own = 0;
    Map *seen = map_new(arena), *foreign = find_foreign(arena, block, role);
    FOR_EACH_ITEM (stmt, block) {
        EffectVec effects = {0};
        if (stmt->kind == STMT_ROLE) path_effects(arena, stmt, &effects);
        VEC_EACH (const Effect, effect, &effects) {
            const Buf *buf = buf_root(effect->buf);
            if (effect->access == ACCESS_READ || effect->op == OP_AWAIT || !map_has(awaited, buf)) continue;
            if (is_handed(buf) && stmt != role) continue;
            if (stmt != role || (role_members(role) > 1 && !is_handed(buf) && map_has(foreign, buf))) return false;
            own += !map_has(seen, buf);
            map_put(seen, buf, seen);
        }
    }
    return own == map_count(awaited);
}

static SyncPlan plan_new(Arena *arena) {
    return (SyncPlan){.by_place = map_new(arena), .commits = map_new(arena)};
}

// A copy whose tile the role does not await is over where it stands: another role may use the tile next.
static bool lands_here(Arena *arena, const Stmt *stmt, const Map *awaited) {
    if (!via_is(stmt, VIA_CP_ASYNC) || (stmt->kind == STMT_CALL && stmt->call.is_async)) return false;
    FOR_EACH_EFFECT (effect, arena, stmt)
        if (effect->access != ACCESS_READ && map_has(awaited, buf_root(effect->buf)) &&
            !is_handed(buf_root(effect->buf)))
            return false;
    return true;
}

static bool land_copies(Arena *arena, Block *block, const Map *awaited) {
    bool changed = false;
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        const Stmt *next = i + 1 < block->count ? block->items[i + 1] : NULL;
        if (!lands_here(arena, stmt, awaited)) {
            FOR_EACH_BODY (body, stmt) changed |= land_copies(arena, body, awaited);
        } else if (!next || !(lands_here(arena, next, awaited) || is_call(next, OP_CP_ASYNC_COMMIT))) {
            Arg none = arg_int(arena, 0);
            block_insert(arena, block, ++i, s_call(arena, OP_CP_ASYNC_COMMIT, 0, NULL));
            block_insert(arena, block, ++i, s_call(arena, OP_CP_ASYNC_WAIT, 1, &none));
            changed = true;
        }
    }
    return changed;
}

static bool sync_role(PassContext *context, const Block *block, Stmt *role) {
    Arena *arena = context->arena;
    const Map *awaited = find_awaited(arena, block, role);
    if (!awaits_its_own(arena, block, role, awaited)) return false;   // lowering says so
    bool awaits = map_count(awaited) > 0, lands = nest_loops(arena, &role->role.body);
    lands |= land_copies(arena, &role->role.body, awaited);
    if (!awaits && !needs_sync(&role->role.body) && !reuses_global(arena, role)) return lands;
    SyncPlan plan = plan_new(arena);
    if (awaits) find_commits(arena, &plan, &role->role.body);
    return complete(context, &role->role.body, awaited, &plan) || lands;
}

static bool sync_roles(PassContext *context, Block *block) {
    bool changed = false;
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_ROLE) changed |= sync_role(context, block, stmt);
        else if (stmt->kind == STMT_GRID) changed |= sync_roles(context, &stmt->grid.body);
    }
    return changed;
}

bool pass_insert_sync(PassContext *context, Func *kernel) {
    Arena *arena = context->arena;
    bool changed = nest_loops(arena, &kernel->body);
    SyncPlan plan = plan_new(arena);
    find_commits(arena, &plan, &kernel->body);
    changed |= complete(context, &kernel->body, NULL, &plan);
    return sync_roles(context, &kernel->body) || changed;
}
