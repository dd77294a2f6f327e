// annotate-kernel: facts about a whole kernel that codegen needs at single statements.
//
// Each is an attribute, so that the dump shows what codegen goes by; run again, the pass finds the same. What no longer
// holds is removed.
//
//     local acc: f32[64];                 local acc: f32[64] @wgmma_registers;
//     wgmma(..., acc[0], ...);            wgmma(..., acc[0], ...);
//
//     cluster_barrier();                  @shared_only cluster_barrier();
//
// @wgmma_registers   wgmma reads or writes the array while the program goes on: waits and fences tie its registers.
// @coalesce          Where many registers are joined after an `if`, ptxas leaves moves in, on the path past the `if` too; where
//                    wgmma's accumulators are moved, it inserts waits. Codegen then coalesces registers, which costs compile time.
// @shared_only       A cluster barrier releases at cluster scope, and a release of all memory waits until all stores have
//                    reached the L2 cache. If the kernel reads no tensor that it writes, only shared memory is published, and
//                    a fence of that is enough. That fence does not order reads of other CTAs' shared memory, though: such a
//                    CTA could end, or overwrite what is still being read. So a barrier after such reads releases everything.
// @cluster_scope     Arrivals at mbarriers of other CTAs release, and waits acquire, at cluster scope if the CTAs read what
//                    others wrote (`peer`). Elsewhere they only report slots that TMA may fill, and order nothing else.
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

static bool note_registers(Visitor *visitor, Stmt *stmt) {
    Map *found = visitor->user;
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_WGMMA) return true;
    for (int i = 0; i < stmt->call.count; i++) {
        const Region *region = stmt->call.args[i].region;
        if (!region || region->buf->scope != SCOPE_LOCAL) continue;
        const Buf *root = region->buf;
        while (root->alias_of) root = root->alias_of;
        map_put(found, root, found);
    }
    return true;
}

typedef struct Marker {
    Arena *arena;
    const Map *wgmma;   // arrays
    bool changed;
} Marker;

static bool mark_declaration(Visitor *visitor, Stmt *stmt) {
    Marker *marker = visitor->user;
    if (stmt->kind != STMT_DECL) return true;
    Buf *buf = stmt->decl;
    marker->changed |= set_fact(marker->arena, &buf->attrs, ATTR_WGMMA_REGISTERS, map_has(marker->wgmma, buf));
    return true;
}

static bool annotate_registers(Arena *arena, Func *kernel) {
    Map *wgmma = map_new(arena);
    visit_block(&(Visitor){.stmt = note_registers, .user = wgmma}, &kernel->body);
    Marker marker = {.arena = arena, .wgmma = wgmma};
    visit_block(&(Visitor){.stmt = mark_declaration, .user = &marker}, &kernel->body);
    return marker.changed;
}

// ---- `if`s that write many registers ----

static int64_t trips_of(const Stmt *loop) {
    int64_t trips = 1, begin, end, step;
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        if (expr_const(iter->begin, &begin) && expr_const(iter->end, &end) && expr_const(iter->step, &step))
            trips *= (end - begin) / step;
    }
    return trips;
}

static bool find_unrolled_stores(Visitor *visitor, Stmt *stmt) {
    enum { MANY = 32 };
    bool *found = visitor->user;
    if (stmt->kind != STMT_FOR || stmt->loop.kind != LOOP_UNROLL) return !*found;
    bool many = trips_of(stmt) >= MANY;
    for (int i = 0; many && i < stmt->loop.body.count; i++) {
        const Stmt *inner = stmt->loop.body.items[i];
        if (inner->kind == STMT_IF && inner->if_.then.count > 0) inner = inner->if_.then.items[0];
        *found |= inner->kind == STMT_STORE && inner->store.buf->scope == SCOPE_LOCAL;
    }
    return !*found;
}

static bool find_wide_if(Visitor *visitor, Stmt *stmt) {
    bool *found = visitor->user;
    if (stmt->kind == STMT_IF) visit_stmt(&(Visitor){.stmt = find_unrolled_stores, .user = found}, stmt);
    return !*found;
}

static bool annotate_coalescing(Arena *arena, Func *kernel) {
    bool found = func_calls(kernel, OP_WGMMA);
    visit_block(&(Visitor){.stmt = find_wide_if, .user = &found}, &kernel->body);
    return set_fact(arena, &kernel->attrs, ATTR_COALESCE, found);
}

// ---- clusters ----

// Some tensor is both written and read, or may be accessed by TMA.
static bool rereads_tensors(Arena *arena, const Func *kernel) {
    EffectVec effects = {0};
    for (int i = 0; i < kernel->params.count; i++)
        if (kernel->params.items[i].buf && kernel->params.items[i].buf->type == TYPE_TENSORMAP) return true;
    for (int i = 0; i < kernel->body.count; i++) stmt_effects(arena, kernel->body.items[i], &effects);
    for (int i = 0; i < effects.count; i++) {
        const Effect *a = &effects.items[i];
        if (!a->buf || a->buf->scope != SCOPE_GLOBAL || a->access == ACCESS_READ) continue;
        for (int j = 0; j < effects.count; j++)
            if (effects.items[j].buf == a->buf && effects.items[j].access != ACCESS_WRITE) return true;
    }
    return false;
}

static bool is_cluster_barrier(const Stmt *stmt) {
    return stmt->kind == STMT_CALL && stmt->call.op == OP_CLUSTER_BARRIER;
}

static bool find_barrier(Visitor *visitor, Stmt *stmt) {
    bool *found = visitor->user;
    *found |= is_cluster_barrier(stmt);
    return !*found;
}

static bool find_peer(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    *found |= expr->kind == EXPR_CALL && expr->call.op == OP_PEER;
    return !*found;
}

// A loop with both: its barrier follows the reads of the previous iteration.
static bool find_loop(Visitor *visitor, Stmt *stmt) {
    bool *found = visitor->user, peer = false, barrier = false;
    if (stmt->kind != STMT_FOR && stmt->kind != STMT_WHILE) return true;
    visit_stmt(&(Visitor){.expr = find_peer, .user = &peer}, stmt);
    visit_stmt(&(Visitor){.stmt = find_barrier, .user = &barrier}, stmt);
    *found |= peer && barrier;
    return !*found;
}

typedef struct Barriers {
    Arena *arena;
    bool shared_only;   // so far: no tensor is reread, and no `peer` has been read
    bool changed;
} Barriers;

static bool pass_peer(Visitor *visitor, Expr *expr) {
    Barriers *barriers = visitor->user;
    if (expr->kind == EXPR_CALL && expr->call.op == OP_PEER) barriers->shared_only = false;
    return true;
}

static bool mark_barrier(Visitor *visitor, Stmt *stmt) {
    Barriers *b = visitor->user;
    if (is_cluster_barrier(stmt)) b->changed |= set_fact(b->arena, &stmt->attrs, ATTR_SHARED_ONLY, b->shared_only);
    return true;
}

static bool annotate_cluster(Arena *arena, Func *kernel) {
    bool clustered = func_cluster(kernel) > 1, reads_peers = false, in_loop = false;
    visit_block(&(Visitor){.expr = find_peer, .user = &reads_peers}, &kernel->body);
    visit_block(&(Visitor){.stmt = find_loop, .user = &in_loop}, &kernel->body);
    Barriers barriers = {.arena = arena, .shared_only = clustered && !in_loop && !rereads_tensors(arena, kernel)};
    visit_block(&(Visitor){.expr = pass_peer, .stmt = mark_barrier, .user = &barriers}, &kernel->body);
    bool scope = clustered && reads_peers && func_calls(kernel, OP_PEER_ARRIVE);
    return set_fact(arena, &kernel->attrs, ATTR_CLUSTER_SCOPE, scope) | barriers.changed;
}

bool pass_annotate_kernel(PassContext *context, Func *kernel) {
    bool changed = annotate_registers(context->arena, kernel);
    changed |= annotate_coalescing(context->arena, kernel);
    return annotate_cluster(context->arena, kernel) | changed;
}
