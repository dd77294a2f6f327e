// The persistent loop of a cooperative kernel: the number of tiles of a CTA, and their order.
#include "passes/grid/snake.h"
#include "passes/specialize/emit_roles.h"

// ---- whether CTAs are persistent ----

// Every loop of loads has the same number of steps in all tiles.
static bool equal_tiles(Arena *arena, const Block *work, const Block *block) {
    FOR_EACH_ITEM (stmt, block) {
        bool pieces = stmt->kind == STMT_IF || stmt->kind == STMT_WHILE;
        FOR_EACH_BODY (body, stmt) {
            if (!block_any(body, loads_tile, NULL)) continue;
            if (pieces || (stmt->kind == STMT_FOR && !common_trips(arena, work, stmt))) return false;
            if (!equal_tiles(arena, work, body)) return false;
        }
    }
    return true;
}

bool cooperative_equal_tiles(Arena *arena, const Func *kernel) {
    const Block *body = &func_grid(kernel)->grid.body;
    return equal_tiles(arena, body, body);
}

void hoist_scalars(RoleBuilder *p, Block *body, Block *out) {
    Map *inside = map_new(p->arena);
    map_put(inside, p->block, p->block);
    Block kept = {0};
    FOR_EACH_ITEM (stmt, body) {
        Expr *value = stmt->kind == STMT_LET ? stmt->let.value : stmt->kind == STMT_ASSUME ? stmt->assume : NULL;
        bool hoisted = value && expr_is_stable(value) && !expr_uses_any(value, inside);
        block_push(p->arena, hoisted ? out : &kept, stmt);
        if (!hoisted && (stmt->kind == STMT_LET || stmt->kind == STMT_VAR)) map_put(inside, stmt->let.var, stmt);
    }
    if (!p->quotient) take_section(&kept, p->block, inside, &p->section, &p->quotient);
    *body = kept;
}

void make_tiles(RoleBuilder *p, ClaimKind claim, const Block *hoisted, Block *out) {
    Arena *a = p->arena;
    Expr *one = integer(p, 1), *most = integer(p, p->context->target->max_grid);
    p->tiles = bind(p, "tiles", p->grid->grid.iters[0].end, out);
    push_range(p, p->tiles, one, most, out);
    if (claim == CLAIM_OPEN || claim == CLAIM_ONE) return;
    p->ctas = bind(p, "ctas", persistent_ctas(p), out);   // in terms of the grid: codegen uses this expression
    if (claim == CLAIM_DYNAMIC) {
        p->claims = declare_claims(a, 1, p->loc, out);
        return;
    }
    Expr *each = e_sub(a, p->tiles, e_var(a, p->cta));
    if (hoisted) {
        block_append(a, out, hoisted);
        if (!p->section) p->section = p->tiles;
        p->sections = bind(p, "sections", e_call2(a, OP_CEILDIV, p->tiles, p->section), out);
        push_range(p, p->sections, one, most, out);
        each = p->section;
    }
    p->waves = bind(p, "waves", e_call2(a, OP_CEILDIV, each, p->ctas), out);
    if (!hoisted) return;
    push_range(p, p->waves, one, most, out);
    p->shift = bind(p, "shift", e_div(a, p->ctas, p->sections), out);
    push_range(p, p->shift, integer(p, 0), most, out);
}

// ---- the loop over tiles, in a role ----
// In snake order (passes/grid/snake.h).
static Block *push_sections(Maker *m, Block *body) {
    RoleBuilder *p = m->builder;
    Arena *a = p->arena;
    EXPECT(p->context->failure, p->section && p->shift && p->waves, "sections without their number of tiles");
    Snake snake = {e_var(a, p->cta), p->ctas, p->tiles, p->section, p->shift};
    Expr *section, *wave, *exists, *most = integer(p, p->context->target->max_grid);
    body = &push_tile_loop(p, "section", p->sections, &section, body)->loop.body;
    Expr *own = snake_own(a, &snake, section, most, p->loc, body);
    body = &push_tile_loop(p, "wave", p->waves, &wave, body)->loop.body;
    Expr *number = snake_number(a, &snake, section, wave, own, p->loc, body, &exists);
    Stmt *some = s_if(a, exists);
    some->loc = p->loc;
    block_push(a, body, some);
    push_block(p, number, m->subst, &some->if_.then);
    if (p->quotient) subst_var(m->subst, p->quotient, section);
    return &some->if_.then;
}

// ---- dynamic claims ----
// The role that loads what each step uses first claims, when it has started the loads of a tile: what a claim takes is then hidden
// behind the tile's last steps, no load waits for it, and the CTA takes no tile long before it is through. The others take the number
// from the channel.
static Block *push_claimed_tiles(Maker *m, Block *body) {
    RoleBuilder *p = m->builder;
    Arena *a = p->arena;
    m->number = var_new(a, "number", VAR_MUTABLE, TYPE_I64, p->loc);
    block_push(a, body, s_var(a, m->number, e_var(a, p->cta)));
    Stmt *loop = stmt_new(a, STMT_WHILE, p->loc);
    loop->while_.condition = e_lt(a, e_var(a, m->number), p->tiles);
    attr_set_ints(a, &loop->attrs, ATTR_TILE_LOOP, 0, NULL);
    block_push(a, body, loop);
    push_block(p, e_var(a, m->number), m->subst, &loop->while_.body);
    return &loop->while_.body;
}

void push_next_tile(Maker *m, Block *body) {
    RoleBuilder *p = m->builder;
    if (!p->claims.channel) return;
    if (m->claims) {
        Expr *next = next_claim(p->arena, kernel_workspace(p->kernel, WORKSPACE_COUNTER), p->tiles, p->ctas);
        block_push(p->arena, body, s_assign(p->arena, m->number, block_let(p->arena, body, "next", next, p->loc)));
    }
    push_claim(p->arena, &p->claims, m->claims, &m->number, p->loc, body);
}

Block *push_tiles(Maker *m, Stmt *role) {
    RoleBuilder *p = m->builder;
    Expr *wave = integer(p, 0);
    Block *body = &role->role.body;
    m->subst = subst_new(p->arena);
    if (p->sections) return push_sections(m, body);
    if (p->claims.channel) return push_claimed_tiles(m, body);
    if (p->waves) body = &push_tile_loop(p, "wave", p->waves, &wave, body)->loop.body;
    Expr *number = e_var(p->arena, p->cta);
    if (p->waves) number = e_add(p->arena, number, e_mul(p->arena, wave, p->ctas));
    push_block(p, number, m->subst, body);
    return body;
}
