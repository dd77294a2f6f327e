// Loops whose iterations may meet in an element that data names.
#include "emulator/emulator.h"
#include "ir/match.h"
#include "ir/query.h"
#include "support/map.h"

typedef struct Places {
    Map *named;    // variables whose values come from memory
    Map *stored;   // buffers that the loop stores to
    bool grows;
} Places;

static bool comes_from_memory(const Expr *expr, const void *user) {
    const Places *places = user;
    return expr->kind == EXPR_LOAD || (expr->kind == EXPR_VAR && map_has(places->named, expr->var));
}

static bool is_named_by_data(const Places *places, int count, Expr *const *indices) {
    for (int d = 0; d < count; d++)
        if (any_expr(indices[d], comes_from_memory, places)) return true;
    return false;
}

// A load of what the loop stores to, from where data says.
static bool reads_scattered(const Expr *expr, const void *user) {
    const Places *places = user;
    return expr->kind == EXPR_LOAD && map_has(places->stored, expr->load.buf) &&
           is_named_by_data(places, expr->load.count, expr->load.indices);
}

static void note_names(Places *places, const Stmt *stmt) {
    if (stmt->kind != STMT_LET && stmt->kind != STMT_VAR && stmt->kind != STMT_ASSIGN) return;
    bool data = stmt->let.value && any_expr(stmt->let.value, comes_from_memory, places);
    if (!data || map_has(places->named, stmt->let.var)) return;
    map_put(places->named, stmt->let.var, places);
    places->grows = true;
}

static bool scatters(const Places *places, const Stmt *stmt) {
    bool stores = stmt->kind == STMT_STORE && stmt->store.buf->scope != SCOPE_FRAGMENT;
    return (stores && is_named_by_data(places, stmt->store.count, stmt->store.indices)) ||
           stmt_any_expr(stmt, reads_scattered, places);
}

static bool loop_scatters(Arena *arena, Places *places, const Stmt *loop) {
    places->stored = map_new(arena);
    FOR_EACH_STMT (stmt, &loop->loop.body)
        if (stmt->kind == STMT_STORE && stmt->store.buf->scope != SCOPE_FRAGMENT)
            map_put(places->stored, stmt->store.buf, places);
    FOR_EACH_STMT (stmt, &loop->loop.body)
        if (scatters(places, stmt)) return true;
    return false;
}

bool emulate_has_scatters(Arena *arena, const Module *module) {
    Places places = {.named = map_new(arena)};
    for (int i = 0; i < module->funcs.count; i++) {
        const Block *body = &module->funcs.items[i]->body;
        for (places.grows = true; places.grows;) {
            places.grows = false;
            FOR_EACH_STMT (stmt, body) note_names(&places, stmt);
        }
        FOR_EACH_STMT (loop, body)
            if (is_loop(loop, LOOP_PARALLEL) && loop_scatters(arena, &places, loop)) return true;
    }
    return false;
}
