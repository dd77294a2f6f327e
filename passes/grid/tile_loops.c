// Loops over the tiles of a CTA that the source writes: `for (tile in tiles)`, most often one in each role.
//
//     @claim(dynamic) grid (m in M, h in H) threads T {          grid (cta in min(M * H, sms())) threads T {
//         role load {                                                channel claimed (claimed: i32[3]) slots 2;
//             for (tile in tiles) {                                  role load {
//                 for (n in N) { .. m, h .. }                            var number: i64 = cta;  var m = cta % M;  var h = cta / M;
//             }                                                          while (number < M * H) {
//         }                                                  =>              for (n in N) {
//         role compute { for (tile in tiles) { .. m, h .. } }                    if (n == N - 1) number = ctas + atomic_inc(taken[0], ..);
//     }                                                                          .. m, h ..
//                                                                            }
//                                                                            m = number % M;  h = number / M;
//                                                                            send(claimed, number, m, h);
//                                                                        } }
//                                                                    role compute { .. number, m, h = take(claimed); .. }
//
// One role claims: that with the fewest threads, and of several the first. If its work on a tile ends in a loop, it claims before the
// last iteration, which waits for a slot most often: so the counter's answer is there when the loads of the next tile may begin, and the
// CTA claims as late as that allows. It tells the others the names of the grid, too: divisions take as long as a product of small tiles,
// and compute groups would have them between two tiles. With `@claim(static)` each role counts by itself.
// Static claims may go in snake order (snake.h).
//
// Before this pass a CTA has one tile, so the loop has one iteration. It stays so where the grid has a CTA for each tile, and where
// something outside of the loops uses the names of the grid.
#include "passes/grid/tile_loops.h"
#include "ir/build.h"
#include "ir/query.h"
#include "ir/schedule.h"
#include "passes/grid/snake.h"

typedef struct TileLoops {
    Scheduler *s;
    Arena *arena;
    const Func *kernel;
    Expr *tiles, *ctas;
    Var *number, *cta;   // of the lets in the scheduler's `top`: what each loop has its own of
    int at;              // behind what is computed before the roles
    Map *inside;         // variables of one tile
    Expr *group;         // in snake order: tiles of a section; else NULL
    Expr *sections, *waves, *shift;
    Var *quotient;         // of a tile's number: its section
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

// The loops over tiles in `block`, roles left out; one in another loop counts as more.
static int count_loops(const Block *block, bool again) {
    int count = 0;
    FOR_EACH_ITEM (stmt, block) {
        bool loop = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
        if (stmt->kind == STMT_ROLE) continue;
        if (is_tile_loop(stmt, NULL)) count += again ? 2 : 1;
        FOR_EACH_BODY (body, stmt) count += count_loops(body, again || loop);
    }
    return count;
}

bool claims_are_for_one_loop(Stmt *grid) {
    int before = count_loops(&grid->grid.body, false), most = 0;
    FOR_EACH_ITEM (stmt, &grid->grid.body) {
        int count = stmt->kind == STMT_ROLE ? count_loops(&stmt->role.body, false) : 0;
        if (count > most) most = count;
    }
    return before + most <= 1;
}

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
    t->claims = declare_claims(t->arena, 1 + grid->grid.count, grid->loc, &decls);
    block_append(t->arena, &decls, &grid->grid.body);
    grid->grid.body = decls;
}

// ---- loops ----

// The lets of the grid's names for the number, and the statements of the loop.
static Block tile_body(TileLoops *t, Expr *number, Expr *section, const Stmt *loop) {
    Block body = {0}, copy = {0};
    Subst *subst = subst_new(t->arena);
    subst_var(subst, t->number, number);
    subst_var(subst, loop->loop.iters[0].var, e_int(t->arena, 0));   // a name without a meaning
    if (t->quotient) subst_var(subst, t->quotient, section);
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
    waves->loop.body = tile_body(t, e_add(a, cta, e_mul(a, e_var(a, wave), t->ctas)), NULL, loop);
    block_push(a, out, waves);
}

static Expr *claim_of(TileLoops *t) {
    return next_claim(t->arena, kernel_workspace(t->kernel, WORKSPACE_COUNTER), t->tiles, t->ctas);
}

// The number of the next tile, claimed before the last iteration of the loop at the end of `body`, or behind it.
static void push_number(TileLoops *t, Var *number, Span loc, Block *body) {
    Arena *a = t->arena;
    Stmt *last = body->count > 0 ? body->items[body->count - 1] : NULL;
    if (!last || last->kind != STMT_FOR || last->loop.kind != LOOP_SERIAL || last->loop.count != 1) {
        block_push(a, body, s_assign(a, number, block_let(a, body, "next", claim_of(t), loc)));
        return;
    }
    Var *next = var_new(a, "next", VAR_MUTABLE, TYPE_I64, loc);
    Iter *iter = &last->loop.iters[0];
    Expr *none = e_int(a, -1), *is_last;
    body->count--;
    block_push(a, body, s_var(a, next, none));
    iter->end = block_let(a, body, "end", iter->end, loc);
    is_last = e_eq(a, e_var(a, iter->var), e_sub(a, iter->end, e_int(a, 1)));
    block_insert(a, &last->loop.body, 0, s_if_only(a, is_last, s_assign(a, next, claim_of(t))));
    block_push(a, body, last);
    block_push(a, body,
               s_if_only(a, e_lt(a, e_var(a, next), e_int(a, 0)), s_assign(a, next, claim_of(t))));   // no iteration
    block_push(a, body, s_assign(a, number, e_var(a, next)));
}

// The names of the grid for a tile's number, in `vars` behind the number.
static void push_names(TileLoops *t, Expr *number, Var *const *vars, Block *out) {
    Block body = {0};
    Subst *subst = subst_new(t->arena);
    subst_var(subst, t->number, number);
    block_append(t->arena, &body, &t->s->top);
    for (int i = 0; i + 1 < t->claims.count; i++)
        block_push(t->arena, &body, s_assign(t->arena, vars[i + 1], e_var(t->arena, t->s->grid->grid.iters[i].var)));
    clone_block(t->arena, subst, &body, out);
}

// A tile whose names are in `vars`.
static void push_named(TileLoops *t, Var *const *vars, const Stmt *loop, Block *out) {
    Arena *a = t->arena;
    Block body = {0};
    for (int i = 0; i + 1 < t->claims.count; i++) {
        const Iter *iter = &t->s->grid->grid.iters[i];
        Expr *name = e_var(a, iter->var);
        block_push(a, &body, s_let(a, iter->var, e_var(a, vars[i + 1])));
        block_push(a, &body, s_assume(a, e_and(a, e_ge(a, name, e_int(a, 0)), e_lt(a, name, iter->end)), loop->loc));
    }
    block_append(a, &body, &loop->loop.body);
    Subst *subst = subst_new(a);
    subst_var(subst, loop->loop.iters[0].var, e_int(a, 0));
    clone_block(a, subst, &body, out);
}

static Block *push_counted(TileLoops *t, const char *name, Expr *count, Span loc, Expr **index, Block *out) {
    Var *var = var_new(t->arena, name, VAR_ITER, TYPE_I64, loc);
    Stmt *loop = s_for(t->arena, LOOP_SERIAL, var, e_int(t->arena, 0), count);
    loop->loc = loc;
    *index = e_var(t->arena, var);
    block_push(t->arena, out, loop);
    return &loop->loop.body;
}

static void push_snake(TileLoops *t, Stmt *loop, Block *out) {
    Arena *a = t->arena;
    Span loc = loop->loc;
    Snake snake = {e_var(a, t->cta), t->ctas, t->tiles, t->group, t->shift};
    Expr *section, *wave, *exists, *most = e_int(a, t->s->context->target->max_grid);
    Block *body = push_counted(t, "section", t->sections, loc, &section, out);
    Expr *own = snake_own(a, &snake, section, most, loc, body);
    body = push_counted(t, "wave", t->waves, loc, &wave, body);
    Expr *number = snake_number(a, &snake, section, wave, own, loc, body, &exists);
    body = block_if(a, body, exists);
    *body = tile_body(t, number, section, loop);
}

static void push_dynamic(TileLoops *t, Stmt *loop, Block *out) {
    Arena *a = t->arena;
    bool told = t->claims.channel, claims = t->role == t->claimer;
    Var *number = var_new(a, "number", VAR_MUTABLE, TYPE_I64, loop->loc),
        **vars = NEW_ARRAY(a, Var *, t->claims.count + 1);
    Stmt *next = stmt_new(a, STMT_WHILE, loop->loc);
    Block *body = &next->while_.body;
    block_push(a, out, s_var(a, number, e_var(a, t->cta)));
    next->while_.condition = e_lt(a, e_var(a, number), t->tiles);
    for (int i = 0; told && i < t->claims.count; i++) {
        const Iter *iter = i > 0 ? &t->s->grid->grid.iters[i - 1] : NULL;
        vars[i] = iter ? var_new(a, iter->var->name, VAR_MUTABLE, TYPE_I64, loop->loc) : number;
        if (iter) block_push(a, out, s_var(a, vars[i], e_int(a, 0)));
    }
    if (told) {
        push_names(t, e_var(a, t->cta), vars, out);
        push_named(t, vars, loop, body);
    } else {
        *body = tile_body(t, e_var(a, number), NULL, loop);
    }
    if (claims) push_number(t, number, loop->loc, body);
    if (told && claims) push_names(t, e_min(a, e_var(a, number), e_sub(a, t->tiles, e_int(a, 1))), vars, body);
    push_claim(a, &t->claims, claims, vars, loop->loc, body);
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
        else if (t->group) push_snake(t, stmt, &out);
        else push_static(t, stmt, &out);
        if (stmt->kind == STMT_ROLE) t->role = NULL;
    }
    *block = out;
}

// What does not depend on the tile is computed once, before the roles.
static void hoist_lets(TileLoops *t) {
    Block kept = {0}, *body = &t->s->grid->grid.body;
    int at = 0;
    t->inside = map_new(t->arena);
    map_put(t->inside, t->number, t->number);
    while (at < body->count && body->items[at]->kind == STMT_DECL) at++;
    FOR_EACH_ITEM (stmt, &t->s->top) {
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : stmt->kind == STMT_ASSUME ? stmt->assume : NULL;
        if (value && expr_is_stable(value) && !expr_uses_any(value, t->inside)) {
            block_insert(t->arena, body, at++, stmt);
            continue;
        }
        if (stmt->kind == STMT_LET) map_put(t->inside, stmt->let.var, stmt);
        block_push(t->arena, &kept, stmt);
    }
    t->s->top = kept;
    t->at = at;
}

// Before the roles.
static Expr *bind_before(TileLoops *t, const char *name, Expr *value, int64_t least) {
    Arena *a = t->arena;
    Block lets = {0};
    Span loc = t->s->grid->loc;
    Expr *bound = block_let(a, &lets, name, value, loc), *most = e_int(a, t->s->context->target->max_grid);
    Expr *within = e_and(a, e_ge(a, bound, e_int(a, least)), e_lt(a, bound, most));
    block_push(a, &lets, s_assume(a, within, loc));
    FOR_EACH_ITEM (stmt, &lets) block_insert(a, &t->s->grid->grid.body, t->at++, stmt);
    return bound;
}

static void set_up_sections(TileLoops *t, const Var *block) {
    Arena *a = t->arena;
    t->tiles = bind_before(t, "tiles", t->tiles, 1);
    t->ctas = bind_before(t, "ctas", t->ctas, 1);
    if (!take_section(&t->s->top, block, t->inside, &t->group, &t->quotient)) t->group = t->tiles;
    t->sections = bind_before(t, "sections", e_call2(a, OP_CEILDIV, t->tiles, t->group), 1);
    t->waves = bind_before(t, "waves", e_call2(a, OP_CEILDIV, t->group, t->ctas), 1);
    t->shift = bind_before(t, "shift", e_div(a, t->ctas, t->sections), 0);
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
    Expr *ctas = t.ctas;   // in terms of the grid: codegen uses this expression
    if (s->snake && !dynamic) set_up_sections(&t, block->var);
    if (dynamic) choose_claimer(&t);
    expand_loops(&t, &s->grid->grid.body);
    kernel->when = e_both(a, kernel->when, e_lt(a, tiles, e_int(a, s->context->target->max_grid)));
    return ctas;
}
