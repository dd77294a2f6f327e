// Asynchronous MMA: MMAs run while the role continues, and each wait comes as late as possible.
//
// An MMA by wgmma (a gemm in a role) uses its operands and its accumulator until a wait. Each MMA becomes `async`.
// Before the first statement that conflicts with it comes
//
//     wgmma_wait(n)      all MMAs are complete except the last n
//
// where n is the number of MMAs started after the last one that conflicts. A statement conflicts with an MMA if it
// touches the accumulator or an operand in registers. An arrival at a slot's mbarrier conflicts if the MMA reads the
// slot. Arrivals cause no wait: they move behind the next wait that completes the MMA.
//
//     gemm(Qs, Ks[i].T, s)          async gemm(Qs, Ks[i].T, s)
//     arrive(K_empty[i])            async gemm(p, Vs[j], o)
//     gemm(p, Vs[j], o)             wgmma_wait(1)
//     arrive(V_empty[j])       =>   arrive(K_empty[i])
//     softmax of s                  softmax of s
//     o *= alpha                    wgmma_wait(0)
//                                   arrive(V_empty[j])
//                                   o *= alpha
//
// A wait for a tile stays before the first MMA that reads the tile, so that earlier MMAs run meanwhile.
//
// No MMA is in flight where control flow branches or joins: a loop or branch that contains MMAs or arrivals starts and
// ends with none in flight. But for one loop: where threads compute the left operands of its MMAs in registers, the last
// MMAs run on into the next iteration, which computes its first operand meanwhile.
//
//     for (k in N) {                              for (k in N) {
//         a = convert(As[i])                          a = convert(As[i])             while the last one's second MMA runs
//         gemm(a, Ws[i][0], acc)                      async gemm(a, Ws[i][0], acc)
//         b = convert(Bs[i])                =>        wgmma_wait(1)
//         gemm(b, Ws[i][1], acc)                      if (0 < k) arrive(W_empty[i - 1])
//         arrive(W_empty[i])                          b = convert(Bs[i])             while the first one runs
//     }                                               async gemm(b, Ws[i][1], acc)
//                                                     wgmma_wait(1)
//                                                 }
//                                                 wgmma_wait(0)
//                                                 if (0 < N) arrive(W_empty[i - 1])
#include "passes/specialize/builder.h"
#include "support/numbers.h"

typedef struct Started {
    const Stmt *gemm;
    VEC(Stmt *) consumes;   // delayed arrivals
    Expr *some;             // of an earlier iteration: there is one; NULL: of this one
} Started;

typedef struct Starter {
    Arena *arena;
    const Map *consumes;
    bool prompt;   // arrivals are made before the role waits for another slot
    const Flight *flight;
    VEC(Started) started;   // in order, since the last wait for all
    Block out;
} Starter;

static void push(Starter *s, Stmt *stmt) {
    block_push(s->arena, &s->out, stmt);
}

static void arrive(Starter *s, const Started *done) {
    if (!done->consumes.count) return;
    Block *out = done->some ? block_if(s->arena, &s->out, done->some) : &s->out;
    for (int i = 0; i < done->consumes.count; i++) {
        Stmt *arrival = done->consumes.items[i];
        block_push(s->arena, out, done->some ? s->flight->lagging(s->flight->user, arrival) : arrival);
    }
}

// Waits for all MMAs except the last `pending`.
static void wait_for(Starter *s, int pending) {
    if (s->started.count <= pending) return;
    BLOCK_CALL(s->arena, &s->out, (Span){0}, OP_WGMMA_WAIT, arg_int(s->arena, pending));
    int over = s->started.count - pending;
    for (int i = 0; i < over; i++) arrive(s, &s->started.items[i]);
    for (int i = 0; i < pending; i++) s->started.items[i] = s->started.items[over + i];
    s->started.count = pending;
}

// The statement must wait for the MMA. Other statements must not even read registers that the MMA reads (PTX ISA,
// "wgmma.wait_group"). MMAs on one accumulator run in order.
static bool conflicts(const Stmt *product, const Stmt *stmt, const Effect *effect) {
    GemmOp gemm = gemm_of(product);
    bool writes = effect->access != ACCESS_READ || (effect->buf->scope == SCOPE_FRAGMENT && !is_wgmma(stmt));
    if (effect->buf == gemm.acc->buf) return !is_wgmma(stmt) || gemm_of(stmt).acc->buf != effect->buf;
    return writes && (effect->buf == gemm.a->buf || effect->buf == gemm.b->buf);
}

static void wait_before(Starter *s, const Stmt *stmt) {
    EffectVec effects = effects_of(s->arena, stmt);
    for (int i = s->started.count - 1; i >= 0; i--) {
        const Stmt *gemm = s->started.items[i].gemm;
        VEC_EACH (const Effect, effect, &effects) {
            if (!conflicts(gemm, stmt, effect)) continue;
            wait_for(s, s->started.count - 1 - i);
            return;
        }
    }
}

static void await_accumulator(Starter *s, const Buf *acc) {
    for (int i = s->started.count - 1; i >= 0; i--) {
        if (gemm_of(s->started.items[i].gemm).acc->buf != acc) continue;
        wait_for(s, s->started.count - 1 - i);
        return;
    }
}

static void start(Starter *s, Stmt *gemm) {
    wait_before(s, gemm);
    gemm->call.is_async = true;
    push(s, gemm);
    vec_push(s->arena, &s->started, ((Started){.gemm = gemm}));
}

// Moves the arrival behind the last MMA that reads the slot.
static void consume(Starter *s, Stmt *arrival) {
    const Consume *freed = map_get(s->consumes, arrival);
    for (int i = s->started.count - 1; i >= 0; i--) {
        GemmOp gemm = gemm_of(s->started.items[i].gemm);
        if (!consumes_tile(freed, gemm.a->buf) && !consumes_tile(freed, gemm.b->buf)) continue;
        if (s->started.items[i].some) {   // in a loop that is over: the arrival is none of its iterations'
            wait_for(s, s->started.count - 1 - i);
            break;
        }
        vec_push(s->arena, &s->started.items[i].consumes, arrival);
        return;
    }
    push(s, arrival);
}

static bool matters(const Stmt *stmt, void *user) {
    const Starter *s = user;
    return is_wgmma(stmt) || map_has(s->consumes, stmt) || is_call(stmt, OP_MBARRIER_WAIT);
}

// What the role waits for may wait for the slots that it has given back.
static void arrive_before(Starter *s) {
    for (int i = s->started.count - 1; i >= 0; i--) {
        if (!s->started.items[i].consumes.count) continue;
        wait_for(s, s->started.count - 1 - i);
        return;
    }
}

// Of an accumulator: the products that add to it are awaited here.
static bool awaits_registers(const Stmt *stmt) {
    return is_call(stmt, OP_AWAIT) && call_region(stmt, 0)->buf->scope == SCOPE_FRAGMENT;
}

// ---- MMAs in flight from one iteration to the next ----

static void start_block(Starter *s, const Block *block);

static bool has_inner(const Starter *s, const Block *body) {
    FOR_EACH_ITEM (stmt, body)
        if (below_any(stmt, matters, (void *)s)) return true;
    return false;
}

// Only MMAs whose left operand threads convert in registers: operands that come from results (a softmax) wait for those.
static bool may_fly(const Starter *s, const Started *last, const Block *body) {
    const Buf *operand = gemm_of(last->gemm).a->buf;
    if (operand->scope != SCOPE_FRAGMENT) return false;
    FOR_EACH_ITEM (stmt, body) {
        bool writes = stmt->kind != STMT_DECL && stmt_writes(s->arena, stmt, operand);
        if (writes && !converts_tile(s->arena, stmt, operand)) return false;
    }
    for (int i = 0; i < last->consumes.count; i++)
        if (!s->flight->can_lag(s->flight->user, last->consumes.items[i])) return false;
    return true;
}

// The next iteration overwrites the operand before its first MMA: it would have to wait.
static bool is_overwritten_first(const Starter *s, const Block *body, const Buf *operand) {
    FOR_EACH_ITEM (stmt, body) {
        if (is_wgmma(stmt)) return false;
        if (stmt_writes(s->arena, stmt, operand)) return true;
    }
    return false;
}

// Its operands live from one iteration to the next.
static void hoist_declaration(Starter *s, Block *body, const Buf *buf) {
    for (int i = 0; i < body->count; i++) {
        if (body->items[i]->kind != STMT_DECL || body->items[i]->decl != buf) continue;
        push(s, body->items[i]);
        block_remove(body, i);
        return;
    }
}

// The last MMAs of an iteration, seen from the next one, or from behind the loop.
static void carry(Starter *s, const Starter *body, int flying, Expr *some) {
    for (int i = body->started.count - flying; i < body->started.count; i++) {
        Started last = body->started.items[i];
        last.some = some;
        vec_push(s->arena, &s->started, last);
    }
}

// How many of them: those whose operands the next iteration overwrites only behind its first MMA.
static int count_flying(const Starter *s, const Starter *body, const Block *statements) {
    int flying = 0;
    for (int i = body->started.count - 1; i >= 0; i--) {
        const Started *last = &body->started.items[i];
        if (!may_fly(s, last, statements) || is_overwritten_first(s, statements, gemm_of(last->gemm).a->buf)) break;
        flying++;
    }
    return flying;
}

// False: no MMA needs to be in flight at the end of its iterations. The wait for the others is behind the last one: ptxas
// serialises all (C7513) if it is in the next iteration.
static bool start_loop(Starter *s, Stmt *loop) {
    if (!s->flight || !is_loop(loop, LOOP_SERIAL) || loop->loop.count != 1 || has_inner(s, &loop->loop.body))
        return false;
    Iter *iter = &loop->loop.iters[0];
    Starter first = {.arena = s->arena, .consumes = s->consumes, .flight = s->flight}, next = first;
    start_block(&first, &loop->loop.body);
    int flying = count_flying(s, &first, &loop->loop.body);
    if (flying == 0) return false;
    for (int i = 0; i < flying; i++)
        hoist_declaration(s, &loop->loop.body, gemm_of(first.started.items[first.started.count - 1 - i].gemm).a->buf);
    carry(&next, &first, flying, e_lt(s->arena, iter->begin, e_var(s->arena, iter->var)));
    start_block(&next, &loop->loop.body);
    wait_for(&next, flying);
    VEC_EACH (const Started, last, &next.started)
        for (int i = 0; i < last->consumes.count; i++)
            s->flight->advance(s->flight->user, last->consumes.items[i], &next.out);
    loop->loop.body = next.out;
    push(s, loop);
    carry(s, &next, flying, e_lt(s->arena, iter->begin, iter->end));
    return true;
}

static void start_stmt(Starter *s, Stmt *stmt) {
    if (is_wgmma(stmt)) {
        start(s, stmt);
    } else if (awaits_registers(stmt)) {
        await_accumulator(s, call_region(stmt, 0)->buf);
    } else if (map_has(s->consumes, stmt)) {
        consume(s, stmt);
    } else {
        bool inside = below_any(stmt, matters, s);
        if (inside) wait_for(s, 0);
        else wait_before(s, stmt);
        if (s->prompt && is_call(stmt, OP_MBARRIER_WAIT)) arrive_before(s);
        if (inside && start_loop(s, stmt)) return;
        if (inside)
            FOR_EACH_BODY (body, stmt) make_mma_async(s->arena, body, s->consumes, s->prompt, s->flight);
        push(s, stmt);
    }
}

static void start_block(Starter *s, const Block *block) {
    FOR_EACH_ITEM (stmt, block) start_stmt(s, stmt);
}

void make_mma_async(Arena *arena, Block *block, const Map *consumes, bool prompt, const Flight *flight) {
    Starter s = {.arena = arena, .consumes = consumes, .prompt = prompt, .flight = flight};
    start_block(&s, block);
    wait_for(&s, 0);
    *block = s.out;
}

// ---- redundant waits ----
//
// Counts the largest possible number of MMAs in flight along the control flow. A loop is repeated until its count is
// stable.

enum { MANY = 1 << 8 };   // upper limit, for loops without a wait

typedef struct RedundantWaits {
    Arena *arena;
    const Map *single_trip;
    Map *most;   // wgmma_wait -> int *: largest number of MMAs in flight before it
} RedundantWaits;

static int after_block(RedundantWaits *waits, Block *block, int running);

static int after_wait(RedundantWaits *waits, const Stmt *wait, int running) {
    int64_t pending;
    int *most = map_get(waits->most, wait);
    if (!most) map_put(waits->most, wait, most = NEW(waits->arena, int));
    *most = (int)larger(*most, running);
    return expr_const(ARG(wait, WGMMA_WAIT, n).value, &pending) && pending < running ? (int)pending : running;
}

static int after_loop(RedundantWaits *waits, Stmt *loop, Block *body, int running) {
    int after = (int)larger(running, after_block(waits, body, running));
    while (after > running && !map_has(waits->single_trip, loop)) {
        running = after;
        after = (int)larger(running, after_block(waits, body, running));
    }
    return after;
}

static int after_stmt(RedundantWaits *waits, Stmt *stmt, int running) {
    Block *bodies[2];
    if (is_call(stmt, OP_GEMM) && stmt->call.is_async) return running < MANY ? running + 1 : MANY;
    if (is_call(stmt, OP_WGMMA_WAIT)) return after_wait(waits, stmt, running);
    if (stmt->kind == STMT_BREAK) return MANY;   // conservative: the loop's exit does not see `running`
    int count = stmt_bodies(stmt, bodies);
    if (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE) return after_loop(waits, stmt, bodies[0], running);
    int after = count ? 0 : running;
    for (int i = 0; i < count; i++) after = (int)larger(after, after_block(waits, bodies[i], running));
    return after;
}

static int after_block(RedundantWaits *waits, Block *block, int running) {
    for (int i = 0; i < block->count; i++) running = after_stmt(waits, block->items[i], running);
    return running;
}

static void keep_required(StmtMapper *mapper, Stmt *stmt, Block *out) {
    const RedundantWaits *waits = mapper->user;
    const int *most = map_get(waits->most, stmt);
    int64_t pending;
    if (most && expr_const(ARG(stmt, WGMMA_WAIT, n).value, &pending) && *most <= pending) return;
    block_push(mapper->arena, out, stmt);
}

void drop_redundant_waits(Arena *arena, Func *kernel, const Map *single_trip) {
    RedundantWaits waits = {.arena = arena, .single_trip = single_trip, .most = map_new(arena)};
    after_block(&waits, &kernel->body, 0);
    StmtMapper mapper = {.arena = arena, .stmt = keep_required, .user = &waits};
    rewrite_block(&mapper, &kernel->body);
}
