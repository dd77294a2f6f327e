// annotate-kernel: facts about a whole kernel that codegen needs at single statements.
//
// Each fact is an attribute, so that a dump shows what codegen uses. The pass is idempotent, and removes an attribute
// that no longer holds.
//
//     local acc: f32[64];                 local acc: f32[64] @wgmma_registers;
//     wgmma(..., acc[0], ...);            wgmma(..., acc[0], ...);
//
//     cluster_barrier();                  @shared_only cluster_barrier();
//
// @wgmma_registers   wgmma reads or writes the array while the program continues: waits and fences tie its registers.
// @coalesce          If many registers are joined after an `if`, ptxas leaves moves, also on the path past the `if`;
//                    where accumulators of wgmma are moved, it inserts waits. Codegen then coalesces registers, which
//                    costs compile time.
// @rolled            `unroll` asks for straight-line code. It must be given where the iterator decides which registers are
//                    meant: in the index of a local array, or in an operand that has to be a constant. Elsewhere (a
//                    thread's share of a large copy, say) many copies cost registers for as many addresses, all live
//                    at once, and win nothing beyond a few: such a loop becomes a loop over a few copies.
//                        unroll (q in 64) As[q * 4 + t / 64, ...] = A[...]            rolls
//                        unroll (q in 64) { let r = q * 2; x[...] = bf16(acc[r]); }   does not: r is an index of acc
// @await_cluster     The last statement of the straight-line path before a write to another CTA's shared memory, or a
//                    barrier: control is uniform there. Later than at the start, since CTAs do not start at once.
// @shared_only       A cluster barrier releases at cluster scope, and a release of all memory waits until all stores
//                    are in the L2 cache. If the kernel reads no tensor that it writes, only shared memory is
//                    published, and a fence of shared memory is enough. It does not order reads of other CTAs' shared
//                    memory: such a CTA could end, or overwrite data that is still being read. So a barrier after such
//                    reads releases everything.
// @cluster_scope     Arrivals at mbarriers of other CTAs release, and waits acquire, at cluster scope if they hand on what CTAs
//                    read of others (`peer`). Elsewhere they only report slots that TMA may fill, and order nothing else:
//                    what is read behind a barrier of the cluster, that barrier hands on.
//                    (PTX ISA, "fence", "mbarrier.arrive", "mbarrier.try_wait")
#include "passes/analysis/util.h"

// Sets or removes an attribute without arguments.
static bool set_fact(Arena *arena, Attr **list, AttrId id, bool holds) {
    if (holds == (attr_get(*list, id) != NULL)) return false;
    if (holds) attr_set_ints(arena, list, id, 0, NULL);
    else attr_remove(list, id);
    return true;
}

// ---- registers that wgmma uses ----

static bool annotate_registers(Arena *arena, Func *kernel) {
    Map *arrays = map_new(arena);
    bool changed = false;
    FOR_EACH_STMT (stmt, &kernel->body) {
        for (int i = 0; is_call(stmt, OP_WGMMA) && i < stmt->call.count; i++) {
            const Region *region = stmt->call.args[i].region;
            if (region && region->buf->scope == SCOPE_LOCAL) map_put(arrays, buf_root(region->buf), arrays);
        }
    }
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_DECL)
            changed |= set_fact(arena, &stmt->decl->attrs, ATTR_WGMMA_REGISTERS, map_has(arrays, stmt->decl));
    return changed;
}

// ---- `unroll` loops that nothing needs expanded ----

// 0: all.
static int64_t copies_at_a_time(Arena *arena, const Stmt *loop) {
    enum { MOST_EXPANDED = 16, MOST_COPIES = 8, LEAST_COPIES = 4 };
    if (!is_loop(loop, LOOP_UNROLL) && !is_loop(loop, LOOP_VECTORIZED)) return 0;
    int64_t trips = iter_count(&loop->loop.iters[0]), copies = MOST_COPIES;
    if (trips <= MOST_EXPANDED || needs_constant(arena, &loop->loop.body, loop->loop.iters[0].var)) return 0;
    while (copies >= LEAST_COPIES && trips % copies != 0) copies--;
    return copies >= LEAST_COPIES ? copies : 0;
}

static bool annotate_loops(Arena *arena, Func *kernel) {
    bool changed = false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        int64_t copies = copies_at_a_time(arena, stmt);
        if (attr_int(stmt->attrs, ATTR_ROLLED, 0) == copies) continue;
        if (copies) attr_set_int(arena, &stmt->attrs, ATTR_ROLLED, copies);
        else attr_remove(&stmt->attrs, ATTR_ROLLED);
        changed = true;
    }
    return changed;
}

// ---- `if`s that write many registers ----

static int64_t trips_of(const Stmt *loop) {
    int64_t trips = 1;
    for (int i = 0; i < loop->loop.count; i++)
        if (iter_count(&loop->loop.iters[i]) >= 0) trips *= iter_count(&loop->loop.iters[i]);
    return trips;
}

// An unrolled loop that stores to many registers.
static bool stores_many(const Stmt *stmt, void *user) {
    enum { MANY = 32 };
    (void)user;
    if (!is_loop(stmt, LOOP_UNROLL) || trips_of(stmt) < MANY) return false;
    FOR_EACH_ITEM (inner, &stmt->loop.body) {
        if (inner->kind == STMT_IF && inner->if_.then.count > 0) inner = inner->if_.then.items[0];
        if (inner->kind == STMT_STORE && inner->store.buf->scope == SCOPE_LOCAL) return true;
    }
    return false;
}

static bool is_wide_if(const Stmt *stmt, void *user) {
    return stmt->kind == STMT_IF && stmt_any(stmt, stores_many, user);
}

static bool annotate_coalescing(Arena *arena, Func *kernel) {
    bool found = block_calls(&kernel->body, OP_WGMMA) || block_any(&kernel->body, is_wide_if, NULL);
    return set_fact(arena, &kernel->attrs, ATTR_COALESCE, found);
}

// ---- clusters ----

static bool needs_cluster(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_BARRIER) || (stmt->kind == STMT_STORE && attr_get(stmt->store.buf->attrs, ATTR_CTAS));
}

static bool annotate_await(Arena *arena, Func *kernel) {
    bool needed = grid_blocks(func_grid(kernel)) > 1, changed = false;
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        bool straight = stmt->kind == STMT_GRID || stmt->kind == STMT_THREAD || stmt->kind == STMT_BLOCK;
        bool here = needed && !straight && stmt_any(stmt, needs_cluster, NULL);
        changed |= set_fact(arena, &stmt->attrs, ATTR_AWAIT_CLUSTER, here);
        needed &= !here;
    }
    return changed;
}

// Some tensor is both written and read, or may be accessed by TMA.
static bool rereads_tensors(Arena *arena, const Func *kernel) {
    EffectVec effects = {0};
    VEC_EACH (const Param, param, &kernel->params)
        if (param->buf && param->buf->type == TYPE_TENSORMAP) return true;
    FOR_EACH_ITEM (stmt, &kernel->body) stmt_effects(arena, stmt, &effects);
    VEC_EACH (const Effect, a, &effects) {
        if (!a->buf || a->buf->scope != SCOPE_GLOBAL || a->access == ACCESS_READ) continue;
        VEC_EACH (const Effect, b, &effects)
            if (b->buf == a->buf && b->access != ACCESS_WRITE) return true;
    }
    return false;
}

static bool is_peer(const Expr *expr, const void *what) {
    (void)what;
    return expr->kind == EXPR_CALL && expr->call.op == OP_PEER;
}

// A loop with both: its barrier follows the reads of the previous iteration.
static bool is_loop_of_both(const Stmt *stmt, void *user) {
    (void)user;
    if ((stmt->kind != STMT_FOR && stmt->kind != STMT_WHILE) || !stmt_any_expr(stmt, is_peer, NULL)) return false;
    FOR_EACH_BODY (body, stmt)
        if (block_calls(body, OP_CLUSTER_BARRIER)) return true;
    return false;
}

static bool hands_on(const Stmt *stmt, void *user) {
    (void)user;
    return is_call(stmt, OP_MBARRIER_WAIT) || is_call(stmt, OP_PEER_ARRIVE);
}

// A loop that reads others' memory, and waits at mbarriers or arrives at theirs.
static bool is_loop_of_handing(const Stmt *stmt, void *user) {
    if ((stmt->kind != STMT_FOR && stmt->kind != STMT_WHILE) || !stmt_any_expr(stmt, is_peer, NULL)) return false;
    FOR_EACH_BODY (body, stmt)
        if (block_any(body, hands_on, user)) return true;
    return false;
}

typedef struct Handing {
    bool met;      // the cluster met behind the last wait at an mbarrier
    bool reads;    // of other CTAs, so far
    bool handed;   // a read behind such a wait, or an arrival behind a read
} Handing;

// Bodies may be left out.
static void follow(Handing *h, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        bool met = h->met, reads = stmt_any_own_expr(stmt, is_peer, NULL);
        h->handed |= (reads && !met) || (h->reads && is_call(stmt, OP_PEER_ARRIVE));
        h->reads |= reads;
        bool after = is_call(stmt, OP_CLUSTER_BARRIER) || (met && !is_call(stmt, OP_MBARRIER_WAIT));
        FOR_EACH_BODY (body, stmt) {
            h->met = met;
            follow(h, body);
            after &= h->met;
        }
        h->met = after;
    }
}

// What CTAs read of others is handed on by mbarriers. No: from each read back to a barrier of the cluster no one waits at one, and no
// arrival says that it has been read. (With cluster scope for all, 512 x 512 x 16384 in clusters that share loads and steps took
// three times as long.)
static bool mbarriers_hand_on(const Func *kernel) {
    Handing handing = {0};
    FOR_EACH_STMT (stmt, &kernel->body)   // of a source: which thread waits for which, the text does not tell
        if (is_call(stmt, OP_PEER_ARRIVE) && !attr_get(stmt->attrs, ATTR_PREDICATED)) return true;
    follow(&handing, &kernel->body);
    return handing.handed || block_any(&kernel->body, is_loop_of_handing, NULL);
}

static bool annotate_cluster(Arena *arena, Func *kernel) {
    bool clustered = func_cluster(kernel) > 1, in_loop = block_any(&kernel->body, is_loop_of_both, NULL),
         changed = false;
    bool shared_only = clustered && !in_loop && !rereads_tensors(arena, kernel);
    bool peers = false;   // some `peer` has been read so far
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        peers |= stmt_any_own_expr(stmt, is_peer, NULL);
        if (is_call(stmt, OP_CLUSTER_BARRIER))
            changed |= set_fact(arena, &stmt->attrs, ATTR_SHARED_ONLY, shared_only && !peers);
    }
    bool scope = clustered && peers && block_calls(&kernel->body, OP_PEER_ARRIVE) && mbarriers_hand_on(kernel);
    return set_fact(arena, &kernel->attrs, ATTR_CLUSTER_SCOPE, scope) | changed;
}

bool pass_annotate_kernel(PassContext *context, Func *kernel) {
    Arena *arena = context->arena;
    bool has_mma = func_calls(kernel, OP_MMA) || func_calls(kernel, OP_WGMMA);
    bool changed = set_fact(arena, &kernel->attrs, ATTR_HAS_MMA, has_mma);
    changed |= set_fact(arena, &kernel->attrs, ATTR_WAITS_FOR_LAUNCH, func_calls(kernel, OP_DEPENDENCY_WAIT));
    changed |= annotate_registers(arena, kernel);
    changed |= annotate_loops(arena, kernel);
    changed |= annotate_coalescing(arena, kernel);
    changed |= annotate_await(arena, kernel);
    return annotate_cluster(arena, kernel) | changed;
}
