// Loops over the tiles of a CTA that the source writes: `for (tile in tiles)`, most often one in each role.
//
//     @claim(dynamic) grid (m in M, h in H) threads T {          grid (cta in min(M * H, sms())) threads T {
//         role load { for (tile in tiles) { .. m, h .. } }           channel claimed (claimed: i32) slots 2;
//         role compute { for (tile in tiles) { .. m, h .. } }        role load {
//     }                                                   =>             var number: i64 = cta;
//                                                                        while (number < M * H) {
//                                                                            let m = number % M; let h = number / M; ..
//                                                                            number = ctas + atomic_inc(taken[0], ..);
//                                                                            send(claimed, number);
//                                                                        } }
//                                                                    role compute { .. number = take(claimed); .. }
//
// One role claims: that with the fewest threads, and of several the first. It does so when it is through with a tile, ahead of the
// others by the slots of what it loads. With `@claim(static)` each role counts by itself.
//
// Before this pass a CTA has one tile, so the loop has one iteration. It stays so where the grid has a CTA for each tile, and where
// something outside of the loops uses the names of the grid.
#include "passes/grid/tile_loops.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/schedule.h"

typedef struct TileLoops {
    Scheduler *s;
    Arena *arena;
    const Func *kernel;
    Expr *tiles, *ctas;
    Var *number, *cta;     // of the lets in the scheduler's `top`: what each loop has its own of
    Claims claims;         // of no channel: no other group is to be told
    const Stmt *claimer;   // the role that claims; NULL: the CTA
    const Stmt *role;
} TileLoops;

void drop_tile_loops(Stmt *grid) {
    FOR_EACH_STMT_MUT (stmt, &grid->grid.body) attr_remove(&stmt->attrs, ATTR_TILES);
}

// ---- names of the grid outside of the loops ----

static bool uses_names(Visitor *visitor, Expr *expr) {
    Stmt *grid = visitor->user;
    for (int i = 0; grid && i < grid->grid.count; i++)
        if (expr->kind == EXPR_VAR && expr->var == grid->grid.iters[i].var) visitor->user = NULL;
    return visitor->user != NULL;
}

static bool outside(Visitor *visitor, Stmt *stmt) {
    return visitor->user && !is_tile_loop(stmt, NULL);
}

bool uses_tile_outside(Stmt *grid) {
    Visitor visitor = {.expr = uses_names, .stmt = outside, .user = grid};
    visit_block(&visitor, &grid->grid.body);
    return !visitor.user;
}

// ---- claims ----

static void choose_claimer(TileLoops *t) {
    int64_t groups = 0;
    Block decls = {0};
    Stmt *grid = t->s->grid;
    FOR_EACH_ITEM (stmt, &grid->grid.body) {
        if (stmt->kind != STMT_ROLE || !block_any(&stmt->role.body, is_tile_loop, NULL)) continue;
        groups += role_members(stmt);
        if (!t->claimer || role_span(stmt) < role_span(t->claimer)) t->claimer = stmt;
    }
    if (groups < 2) return;
    t->claims = declare_claims(t->arena, grid->loc, &decls);
    block_append(t->arena, &decls, &grid->grid.body);
    grid->grid.body = decls;
}

// ---- loops ----

// The lets of the grid's names for the number, and the statements of the loop.
static Block tile_body(TileLoops *t, Expr *number, const Stmt *loop) {
    Block body = {0}, copy = {0};
    Subst *subst = subst_new(t->arena);
    subst_var(subst, t->number, number);
    block_append(t->arena, &body, &t->s->top);
    block_append(t->arena, &body, &loop->loop.body);
    clone_block(t->arena, subst, &body, &copy);
    return copy;
}

static void push_static(TileLoops *t, Stmt *loop, Block *out) {
    Arena *a = t->arena;
    Var *wave = var_new(a, "wave", VAR_ITER, TYPE_I64, loop->loc);
    Expr *cta = e_var(a, t->cta), *count = e_call2(a, OP_CEILDIV, e_sub(a, t->tiles, cta), t->ctas);
    Stmt *waves = s_for(a, LOOP_SERIAL, wave, e_int(a, 0), count);
    waves->loc = loop->loc;
    waves->loop.body = tile_body(t, e_add(a, cta, e_mul(a, e_var(a, wave), t->ctas)), loop);
    block_push(a, out, waves);
}

static void push_dynamic(TileLoops *t, Stmt *loop, Block *out) {
    Arena *a = t->arena;
    Var *number = var_new(a, "number", VAR_MUTABLE, TYPE_I64, loop->loc);
    Stmt *next = stmt_new(a, STMT_WHILE, loop->loc);
    block_push(a, out, s_var(a, number, e_var(a, t->cta)));
    next->while_.condition = e_lt(a, e_var(a, number), t->tiles);
    next->while_.body = tile_body(t, e_var(a, number), loop);
    Expr *claim = t->role == t->claimer ? next_claim(a, tile_counter(t->kernel), t->tiles, t->ctas) : NULL;
    push_claim(a, &t->claims, claim, number, loop->loc, &next->while_.body);
    block_push(a, out, next);
}

static void expand_loops(TileLoops *t, Block *block) {
    Block out = {0};
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_ROLE) t->role = stmt;
        bool loop = is_tile_loop(stmt, NULL);
        if (!loop)
            FOR_EACH_BODY (body, stmt) expand_loops(t, body);
        if (!loop) block_push(t->arena, &out, stmt);
        else if (grid_claim(t->s->grid).kind == CLAIM_DYNAMIC) push_dynamic(t, stmt, &out);
        else push_static(t, stmt, &out);
        if (stmt->kind == STMT_ROLE) t->role = NULL;
    }
    *block = out;
}

// What does not depend on the tile is computed once, before the roles.
static void hoist_lets(TileLoops *t) {
    Block kept = {0}, *body = &t->s->grid->grid.body;
    Map *inside = map_new(t->arena);
    int at = 0;
    map_put(inside, t->number, t->number);
    while (at < body->count && body->items[at]->kind == STMT_DECL) at++;
    FOR_EACH_ITEM (stmt, &t->s->top) {
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : stmt->kind == STMT_ASSUME ? stmt->assume : NULL;
        if (value && expr_is_stable(value) && !expr_uses_any(value, inside)) {
            block_insert(t->arena, body, at++, stmt);
            continue;
        }
        if (stmt->kind == STMT_LET) map_put(inside, stmt->let.var, stmt);
        block_push(t->arena, &kept, stmt);
    }
    t->s->top = kept;
}

Expr *expand_tile_loops(Scheduler *s, Func *kernel, Expr *tiles, Var *cta) {
    Arena *a = s->arena;
    TileLoops t = {.s = s, .arena = a, .kernel = kernel, .tiles = tiles, .ctas = e_min(a, tiles, e_sms(a)), .cta = cta};
    bool dynamic = grid_claim(s->grid).kind == CLAIM_DYNAMIC;
    t.number = var_new(a, "number", VAR_LET, TYPE_I64, s->grid->loc);
    Expr *block = block_let(a, &s->top, "block", e_var(a, t.number), s->grid->loc);
    assume_within(s, block, tiles);
    push_assume(s, e_lt(a, block, e_int(a, s->context->target->max_grid)));
    decompose(s, block);
    hoist_lets(&t);
    if (dynamic) choose_claimer(&t);
    expand_loops(&t, &s->grid->grid.body);
    kernel->when = e_both(a, kernel->when, e_lt(a, tiles, e_int(a, s->context->target->max_grid)));
    return t.ctas;
}
