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
// ends with none in flight.
#include "passes/specialize/builder.h"
#include "support/numbers.h"

typedef struct Started {
    const Stmt *gemm;
    VEC(Stmt *) consumes;   // delayed arrivals
} Started;

typedef struct Starter {
    Arena *arena;
    const Map *consumes;
    bool prompt;            // arrivals are made before the role waits for another slot
    VEC(Started) started;   // in order, since the last wait for all
    Block out;
} Starter;

static void push(Starter *s, Stmt *stmt) {
    block_push(s->arena, &s->out, stmt);
}

// Waits for all MMAs except the last `pending`.
static void wait_for(Starter *s, int pending) {
    if (s->started.count <= pending) return;
    BLOCK_CALL(s->arena, &s->out, (Span){0}, OP_WGMMA_WAIT, arg_int(s->arena, pending));
    int over = s->started.count - pending;
    for (int i = 0; i < over; i++)
        for (int r = 0; r < s->started.items[i].consumes.count; r++) push(s, s->started.items[i].consumes.items[r]);
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
        if (inside)
            FOR_EACH_BODY (body, stmt) make_mma_async(s->arena, body, s->consumes, s->prompt);
        push(s, stmt);
    }
}

void make_mma_async(Arena *arena, Block *block, const Map *consumes, bool prompt) {
    Starter s = {.arena = arena, .consumes = consumes, .prompt = prompt};
    FOR_EACH_ITEM (stmt, block) start_stmt(&s, stmt);
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
