#include "passes/analysis/kernel_walk.h"
#include "ir/build.h"
#include "ir/query.h"

typedef struct Walk {
    Facts *facts;
    FactsVisit *visit;
    void *user;
    bool all;   // all statements; else only those in `role` (NULL: in no role)
    const Stmt *role, *inside;
} Walk;

static void walk_stmts(Walk *walk, Block *block);

void facts_enter(Facts *facts, const Stmt *stmt) {
    Iter *iters;
    for (int i = 0, count = stmt_iters(stmt, &iters); i < count; i++) facts_iter(facts, &iters[i]);
    if (stmt->kind == STMT_LET) facts_bind(facts, stmt->let.var, stmt->let.value);
    if (stmt->kind == STMT_ASSUME) facts_assume(facts, stmt->assume, true);
    if (stmt->kind == STMT_WHILE) facts_assume(facts, stmt->while_.condition, true);
}

// Visits the body with the facts that hold in it: the condition or its negation, or what the statement declares.
static void walk_inside(Walk *walk, const Stmt *stmt, bool holds, Block *body) {
    int mark = facts_mark(walk->facts);
    if (stmt->kind == STMT_IF) facts_assume(walk->facts, stmt->if_.condition, holds);
    else facts_enter(walk->facts, stmt);
    walk_stmts(walk, body);
    facts_release(walk->facts, mark);
}

static void visit_one(Walk *walk, Stmt *stmt) {
    if (walk->all || walk->inside == walk->role) walk->visit(walk->user, stmt, walk->facts);
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_ASSUME: facts_enter(walk->facts, stmt); break;
    case STMT_FOR:
        if (stmt->loop.kind != LOOP_PARALLEL) walk_inside(walk, stmt, true, &stmt->loop.body);
        break;
    case STMT_WHILE: walk_inside(walk, stmt, true, &stmt->while_.body); break;
    case STMT_IF:
        walk_inside(walk, stmt, true, &stmt->if_.then);
        walk_inside(walk, stmt, false, &stmt->if_.otherwise);
        break;
    case STMT_GRID: walk_inside(walk, stmt, true, &stmt->grid.body); break;
    case STMT_ROLE:
        EXPECT(arena_failure(facts_arena(walk->facts)), !walk->inside, "a role in a role");
        walk->inside = stmt;
        walk_stmts(walk, &stmt->role.body);
        walk->inside = NULL;
        break;
    default: break;
    }
}

static void walk_stmts(Walk *walk, Block *block) {
    int mark = facts_mark(walk->facts);
    for (int i = 0; i < block->count; i++) {
        if (block->items[i]->kind == STMT_BLOCK) walk_stmts(walk, &block->items[i]->block);
        else visit_one(walk, block->items[i]);
    }
    facts_release(walk->facts, mark);
}

void kernel_walk(Arena *arena, Func *kernel, FactsVisit *visit, void *user) {
    Walk walk = {.facts = facts_new(arena, kernel), .visit = visit, .user = user, .all = true};
    walk_stmts(&walk, &kernel->body);
}

// ---- scopes ----

void scope_walk(Arena *arena, Func *kernel, const ThreadScope *scope, FactsVisit *visit, void *user) {
    Walk walk = {.facts = facts_new(arena, kernel), .visit = visit, .user = user, .role = scope->role};
    walk_stmts(&walk, &kernel->body);
}

void thread_scopes(Arena *arena, Func *kernel, ThreadScopeVec *out) {
    ThreadScope whole = {NULL, &kernel->body, kernel_threads(kernel)};
    vec_push(arena, out, whole);
    FOR_EACH_STMT_MUT (stmt, &kernel->body) {
        if (stmt->kind != STMT_ROLE) continue;
        ThreadScope scope = {stmt, &stmt->role.body, stmt->role.threads};
        vec_push(arena, out, scope);
        SKIP_BODY(stmt);
    }
}

int64_t kernel_threads(const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    int64_t threads = 0;
    if (grid) expr_const(grid->grid.threads, &threads);
    return threads;
}
