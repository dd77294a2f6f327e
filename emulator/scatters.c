// Loops whose iterations may meet in an element that data names.
#include "emulator/emulator.h"
#include "ir/match.h"
#include "ir/query.h"
#include "support/map.h"

typedef struct Places {
    Map *named;   // variables whose values come from memory
    bool data;    // some place does
} Places;

static bool comes_from_memory(const Expr *expr, const void *user) {
    const Places *places = user;
    return expr->kind == EXPR_LOAD || (expr->kind == EXPR_VAR && map_has(places->named, expr->var));
}

static void note_place(Places *places, const Stmt *stmt) {
    bool binds = stmt->kind == STMT_LET || stmt->kind == STMT_VAR;
    if (binds && stmt->let.value && any_expr(stmt->let.value, comes_from_memory, places))
        map_put(places->named, stmt->let.var, places);
    if (stmt->kind == STMT_ASSIGN) map_put(places->named, stmt->let.var, places);
    if (stmt->kind != STMT_STORE || stmt->store.buf->scope == SCOPE_FRAGMENT) return;
    for (int d = 0; d < stmt->store.count; d++)
        places->data |= any_expr(stmt->store.indices[d], comes_from_memory, places);
}

bool emulate_has_scatters(Arena *arena, const Module *module) {
    Places places = {.named = map_new(arena)};
    for (int i = 0; i < module->funcs.count; i++)
        FOR_EACH_STMT (loop, &module->funcs.items[i]->body)
            if (is_loop(loop, LOOP_PARALLEL))
                FOR_EACH_STMT (stmt, &loop->loop.body) note_place(&places, stmt);
    return places.data;
}
