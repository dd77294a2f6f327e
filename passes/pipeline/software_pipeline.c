// software-pipeline: software pipelining of copies within one role. Copies start some iterations before their use.
//
// With S slots a loop keeps S - 1 copies in flight. The prologue starts the first of them. Each iteration waits for its
// own slot, starts the copy of S - 1 iterations later, and computes:
//
//     for (p in S - 1) if (p < n) async copy(p -> slot p)               prologue
//     for (k in n) {
//         await(slot k % S);
//         if (k + S - 1 < n) async copy(k + S - 1 -> slot (k + S - 1) % S)
//         work on slot k % S
//     }
//
//     S = 3, n = 4      prologue   k = 0      k = 1      k = 2      k = 3
//     copies started    0 1        2 in 2     3 in 0     -          -
//     work                         0 in 0     1 in 1     2 in 2     3 in 0
//
// Iteration k starts a copy into the slot that iteration k - 1 has read. The barrier after the wait makes the copies of
// all threads visible; it also shows that all threads have finished with that slot. So one barrier per iteration is
// enough. The tests against n make trip counts below S correct; simplify removes them where n is known.
//
// Only copies to multi-buffered tiles move (multi-buffer and this pass both ask async_copy_legality.h); the lets of
// their indices are cloned. Other copies stay in place. A loop without a copy that moves becomes a plain `for`.
#include "passes/pipeline/async_copy_legality.h"

typedef struct Pipeline {
    PassContext *context;
    Arena *arena;
    bool quiet;   // the variant for all shapes: that it is slower is known
    Stmt *loop;
    int64_t ahead;   // iterations between a copy's start and its use
    bool *moves;     // by statement of the body
    bool changed;
} Pipeline;

static Expr *slot_of(const Stmt *copy) {
    return async_target(copy) ? copy_slot(copy) : NULL;
}

// Marks the copies that move; their number.
static int find_moves(Pipeline *p) {
    const Block *body = &p->loop->loop.body;
    int64_t slots = loop_stages(p->loop);
    int found = 0;
    p->moves = NEW_ARRAY(p->arena, bool, body->count);
    if (slots < 2 || !loop_is_plain(p->loop) || block_breaks(body)) return 0;
    Expr *live = e_rem(p->arena, e_var(p->arena, p->loop->loop.iters[0].var), slots);
    for (int i = 0; i < body->count; i++) {
        Expr *slot = slot_of(body->items[i]);
        if (!slot || !expr_equal(slot, live)) continue;
        p->moves[i] = !early_start_problem(p->arena, p->loop, i);
        found += p->moves[i];
    }
    return found;
}

// The started copies of iteration `count`, where there is such an iteration.
static Stmt *start_copies(Pipeline *p, Expr *count, Expr *trips) {
    const Block *body = &p->loop->loop.body;
    Stmt *guard = s_if(p->arena, e_lt(p->arena, count, trips));
    guard->loc = p->loop->loc;
    Subst *subst = subst_new(p->arena);
    subst_var(subst, p->loop->loop.iters[0].var, count);
    clone_with_lets(p->arena, subst, body, p->moves, &guard->if_.then);
    FOR_EACH_ITEM (stmt, &guard->if_.then)
        if (stmt->kind == STMT_CALL) stmt->call.is_async = true;
    return guard;
}

static void push_await(Pipeline *p, const Stmt *copy, Block *out) {
    Buf *buf = async_target(copy);
    EXPECT(p->context->failure, buf && buf->stage_dims == 1, "a copy to await has no slot");
    Region *slot = region_whole(p->arena, buf);
    slot->dims[0] = (RegionDim){slot_of(copy), NULL, 1};
    slot->loc = copy->loc;
    BLOCK_CALL(p->arena, out, copy->loc, OP_AWAIT, arg_region(slot), (Arg){0});
}

static void pipeline_loop(Pipeline *p, Block *out) {
    Arena *a = p->arena;
    Stmt *loop = p->loop;
    Expr *trips = block_name(a, out, "steps", loop->loop.iters[0].end, loop->loc);
    EXPECT(p->context->failure, loop->loop.count == 1 && p->ahead > 0, "%d iterators, %lld iterations ahead",
           loop->loop.count, (long long)p->ahead);
    loop->loop.iters[0].end = trips;

    Var *first = var_new(a, "p", VAR_ITER, TYPE_I64, loop->loc);
    Stmt *prologue = s_for(a, LOOP_SERIAL, first, e_int(a, 0), e_int(a, p->ahead));
    prologue->loc = loop->loc;
    block_push(a, &prologue->loop.body, start_copies(p, e_var(a, first), trips));
    block_push(a, out, prologue);

    Block body = {0};
    const Buf *last = NULL;   // (copies to pieces of a tile follow each other)
    for (int i = 0; i < loop->loop.body.count; i++) {
        if (!p->moves[i]) continue;
        const Buf *tile = async_target(loop->loop.body.items[i]);
        if (tile != last) push_await(p, loop->loop.body.items[i], &body);
        last = tile;
    }
    Expr *next = e_add(a, e_var(a, loop->loop.iters[0].var), e_int(a, p->ahead));
    block_push(a, &body, start_copies(p, next, trips));
    for (int i = 0; i < loop->loop.body.count; i++)
        if (!p->moves[i]) block_push(a, &body, loop->loop.body.items[i]);
    loop->loop.body = body;
}

static bool fills_tile(const Stmt *stmt, void *user) {
    (void)user;
    return loaded_tile(stmt) != NULL;
}

static void pipeline_stmt(StmtMapper *mapper, Stmt *stmt, Block *out) {
    Pipeline *outer = mapper->user;
    if (is_loop(stmt, LOOP_PIPELINED)) {
        Pipeline p = {.context = outer->context, .arena = mapper->arena, .loop = stmt, .ahead = loop_stages(stmt) - 1};
        if (find_moves(&p) > 0) pipeline_loop(&p, out);
        else if (loop_stages(stmt) > 1 && !outer->quiet)
            REMARK(p.context, stmt->loc, T_NOT_PIPELINED,
                   block_any(&stmt->loop.body, fills_tile, NULL)
                       ? "no copy in it can start early: the remarks about its copies say why"
                       : "no copy in it can start early: copy whole tiles from global to shared memory in it");
        stmt->loop.kind = LOOP_SERIAL;
        stmt->loop.stages = NULL;
        outer->changed = true;
    }
    block_push(mapper->arena, out, stmt);
}

bool pass_software_pipeline(PassContext *context, Func *kernel) {
    Pipeline p = {.context = context, .arena = context->arena};
    p.quiet = attr_get(kernel->attrs, ATTR_FALLBACK) != NULL;
    StmtMapper mapper = {.arena = context->arena, .stmt = pipeline_stmt, .user = &p};
    rewrite_block(&mapper, &kernel->body);
    return p.changed;
}
