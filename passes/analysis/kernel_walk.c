#include "passes/analysis/kernel_walk.h"
#include "ir/build.h"

typedef struct Walk {
    Facts *facts;
    void (*visit)(void *user, Stmt *stmt, const Facts *facts);
    void *user;
    bool all;   // else only what stands in `role` (NULL: in none)
    const Stmt *role, *inside;
} Walk;

static void walk_block(Walk *walk, Block *block);

void facts_enter(Facts *facts, const Stmt *stmt) {
    switch (stmt->kind) {
    case STMT_LET: facts_bind(facts, stmt->let.var, stmt->let.value); break;
    case STMT_ASSUME: facts_assume(facts, stmt->assume, true); break;
    case STMT_FOR:
        for (int i = 0; i < stmt->loop.count; i++) facts_iter(facts, &stmt->loop.iters[i]);
        break;
    case STMT_GRID:
        for (int i = 0; i < stmt->grid.count; i++) facts_iter(facts, &stmt->grid.iters[i]);
        break;
    case STMT_THREAD:
        for (int i = 0; i < stmt->thread.count; i++) facts_iter(facts, &stmt->thread.iters[i]);
        break;
    case STMT_WHILE: facts_assume(facts, stmt->while_.condition, true); break;
    default: break;
    }
}

static void walk_body(Walk *walk, const Stmt *stmt, Block *body) {
    int mark = facts_mark(walk->facts);
    facts_enter(walk->facts, stmt);
    walk_block(walk, body);
    facts_release(walk->facts, mark);
}

static void walk_branch(Walk *walk, const Expr *condition, bool holds, Block *body) {
    int mark = facts_mark(walk->facts);
    facts_assume(walk->facts, condition, holds);
    walk_block(walk, body);
    facts_release(walk->facts, mark);
}

static void walk_stmt(Walk *walk, Stmt *stmt) {
    if (walk->all || walk->inside == walk->role) walk->visit(walk->user, stmt, walk->facts);
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_ASSUME: facts_enter(walk->facts, stmt); break;
    case STMT_FOR:
        if (stmt->loop.kind != LOOP_PARALLEL) walk_body(walk, stmt, &stmt->loop.body);
        break;
    case STMT_WHILE: walk_body(walk, stmt, &stmt->while_.body); break;
    case STMT_IF:
        walk_branch(walk, stmt->if_.condition, true, &stmt->if_.then);
        walk_branch(walk, stmt->if_.condition, false, &stmt->if_.otherwise);
        break;
    case STMT_GRID: walk_body(walk, stmt, &stmt->grid.body); break;
    case STMT_ROLE:
        walk->inside = stmt;
        walk_block(walk, &stmt->role.body);
        walk->inside = NULL;
        break;
    default: break;
    }
}

static void walk_block(Walk *walk, Block *block) {
    int mark = facts_mark(walk->facts);
    for (int i = 0; i < block->count; i++) {
        if (block->items[i]->kind == STMT_BLOCK) walk_block(walk, &block->items[i]->block);
        else walk_stmt(walk, block->items[i]);
    }
    facts_release(walk->facts, mark);
}

void kernel_walk(Arena *arena, Func *kernel, void (*visit)(void *user, Stmt *stmt, const Facts *facts), void *user) {
    Walk walk = {.facts = facts_new(arena, kernel), .visit = visit, .user = user, .all = true};
    walk_block(&walk, &kernel->body);
}

// ---- scopes ----

void scope_walk(Arena *arena, Func *kernel, const ThreadScope *scope,
                void (*visit)(void *user, Stmt *stmt, const Facts *facts), void *user) {
    Walk walk = {.facts = facts_new(arena, kernel), .visit = visit, .user = user, .role = scope->role};
    walk_block(&walk, &kernel->body);
}

static void add_roles(Arena *arena, Block *block, ThreadScopeVec *out) {
    for (int i = 0; i < block->count; i++) {
        Stmt *stmt = block->items[i];
        ThreadScope scope = {stmt, &stmt->role.body, stmt->role.threads};
        if (stmt->kind == STMT_ROLE) vec_push(arena, out, scope);
        else if (stmt->kind == STMT_GRID) add_roles(arena, &stmt->grid.body, out);
        else if (stmt->kind == STMT_BLOCK) add_roles(arena, &stmt->block, out);
    }
}

void thread_scopes(Arena *arena, Func *kernel, ThreadScopeVec *out) {
    ThreadScope whole = {NULL, &kernel->body, kernel_threads(kernel)};
    vec_push(arena, out, whole);
    add_roles(arena, &kernel->body, out);
}

int64_t kernel_threads(const Func *kernel) {
    const Stmt *grid = func_grid(kernel);
    int64_t threads = 0;
    if (grid) expr_const(grid->grid.threads, &threads);
    return threads;
}
