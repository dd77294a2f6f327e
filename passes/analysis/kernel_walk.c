#include "passes/analysis/kernel_walk.h"
#include "ir/build.h"
#include "ir/query.h"
#include "support/numbers.h"

typedef struct Walk {
    Facts *facts;
    FactsVisit *visit;
    void *user;
    bool all;   // all statements; else only those in `role` (NULL: in no role)
    const Stmt *role, *inside;
} Walk;

static void visit_one(Walk *walk, Stmt *stmt) {
    const Stmt *outer = walk->inside;
    bool visited = stmt->kind != STMT_BLOCK && (walk->all || outer == walk->role);
    if (visited) walk->visit(walk->user, stmt, walk->facts);
    if (stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) facts_enter(walk->facts, stmt);
    if (is_loop(stmt, LOOP_PARALLEL) || stmt->kind == STMT_THREAD) return;
    if (stmt->kind == STMT_ROLE) {
        EXPECT(arena_failure(facts_arena(walk->facts)), !outer, "a role in a role");
        walk->inside = stmt;
    }
    FOR_EACH_BODY (body, stmt) {
        int mark = facts_mark(walk->facts);
        facts_enter_body(walk->facts, stmt, body);
        FOR_EACH_ITEM (below, body) visit_one(walk, below);
        facts_release(walk->facts, mark);
    }
    walk->inside = outer;
}

static void walk_kernel(Walk *walk, Arena *arena, const Func *kernel) {
    walk->facts = facts_new(arena, kernel);
    FOR_EACH_ITEM (stmt, &kernel->body) visit_one(walk, stmt);
}

void kernel_walk(Arena *arena, Func *kernel, FactsVisit *visit, void *user) {
    walk_kernel(&(Walk){.visit = visit, .user = user, .all = true}, arena, kernel);
}

// ---- scopes ----

void scope_walk(Arena *arena, Func *kernel, const ThreadScope *scope, FactsVisit *visit, void *user) {
    walk_kernel(&(Walk){.visit = visit, .user = user, .role = scope->role}, arena, kernel);
}

ThreadScopeVec thread_scopes(Arena *arena, Func *kernel) {
    ThreadScopeVec scopes = {0};
    ThreadScope whole = {NULL, &kernel->body, kernel_threads(kernel)};
    vec_push(arena, &scopes, whole);
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (stmt->kind != STMT_ROLE) continue;
        ThreadScope scope = {stmt, &stmt->role.body, stmt->role.threads};
        vec_push(arena, &scopes, scope);
        SKIP_BODY(stmt);
    }
    return scopes;
}

int64_t kernel_threads(const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    int64_t threads = 0;
    if (grid) expr_const(grid->grid.threads, &threads);
    return threads;
}

// ---- iterations of loops ----

enum { MOST_TRIPS = 1 << 20 };   // of nested loops

static int64_t likely_trips(const Target *target, const Stmt *loop, const Facts *facts) {
    int64_t likely = target->costs.trips, product = 1;
    if (loop->kind == STMT_WHILE) return likely;
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        Range range = range_of(facts, iter_trips(facts_arena(facts), iter));
        int64_t count = iter_count(iter), at_least = larger(range.low, 0), at_most = larger(range.high, 1);
        product = smaller(product * (count >= 0 ? count : larger(at_least, smaller(likely, at_most))), INT32_MAX);
    }
    return product;
}

void note_trips(Map *trips, const Target *target, const Stmt *stmt, const Facts *facts) {
    bool serial = stmt->kind == STMT_WHILE || (stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL);
    if (serial) map_put(trips, stmt, (void *)(intptr_t)likely_trips(target, stmt, facts));
}

int64_t loop_trips(const Map *trips, const Stmt *stmt, int64_t around) {
    if (!map_has(trips, stmt)) return around;
    return smaller(around * (int64_t)(intptr_t)map_get(trips, stmt), MOST_TRIPS);
}
