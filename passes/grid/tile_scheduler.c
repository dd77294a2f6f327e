// tile-scheduler: makes every grid one-dimensional, in the order that it has (`@order`), and persistent where it says so
// (`@claim`) and has no groups of threads, whose roles have loops of their own.
//
//     grid (bm in X, bn in Y) threads T { body }
//
// becomes `grid (block in X * Y)` with the old names as lets. In plain order the first name runs fastest: bm = block %
// X, bn = block / X. With raster R the order runs in groups of R rows: R values of bm, then the next bn; after all of
// bn the next R rows. CTAs that run at the same time then share R tiles of A and few of B. In plain order each tile of
// one operand would stream all of the other past L2:
//
//     X = 5, Y = 3, R = 2:        bn 0  1  2
//                          bm 0      0  2  4        group = block / (R * Y), first row = group * R
//                             1      1  3  5        rows = min(R, X - first row): the last group may be short
//                             2      6  8 10        bm = first row + (block % (R * Y)) % rows
//                             3      7  9 11        bn = (block % (R * Y)) / rows
//                             4     12 13 14
//
// A Hilbert curve (hilbert.c) shares at every scale, so with caches of any size. When the work of tiles differs, the longest
// start first (lpt_schedule.c). The CTAs of a cluster are neighbours in the order, whether operations access other CTAs of
// the cluster (cluster_grid.c) or tiles are multicast (multicast.c). Which order it is, plan has decided (tile_order.c).
//
// Persistent: the grid has as many CTAs as run at the same time; each loops over the tiles cta, cta + ctas, ..., or begins with
// the tile `cta` and takes the next one from the counter (workspace.c). Its
// shared buffers and fragments are declared outside of that loop. The loop counts waves from 0, so that slots and
// phases continue from tile to tile.
#include "passes/grid/tile_scheduler.h"
#include "passes/grid/hilbert.h"
#include "passes/grid/l2_hints.h"
#include "passes/grid/tile_loops.h"
#include "passes/specialize/warp_specialize.h"

Expr *bind_name(Scheduler *s, const char *name, Expr *value) {
    return block_name(s->arena, &s->top, name, value, s->grid->loc);
}

void push_assume(Scheduler *s, Expr *condition) {
    block_push(s->arena, &s->top, s_assume(s->arena, condition, s->grid->loc));
}

void assume_between(Scheduler *s, Expr *x, Expr *low, Expr *end) {
    push_assume(s, e_and(s->arena, e_ge(s->arena, x, low), e_lt(s->arena, x, end)));
}

void assume_within(Scheduler *s, Expr *x, Expr *extent) {
    assume_between(s, x, e_int(s->arena, 0), extent);
}

void bind_iter(Scheduler *s, int index, Expr *value, Expr *extent) {
    const Iter *iter = &s->grid->grid.iters[index];
    EXPECT(s->context->failure, index >= 0 && index < s->grid->grid.count && iter->var->kind == VAR_ITER,
           "iterator %d of %d is bound twice", index, s->grid->grid.count);
    iter->var->kind = VAR_LET;
    block_push(s->arena, &s->top, s_let(s->arena, iter->var, value));
    assume_within(s, e_var(s->arena, iter->var), extent);
}

// a / b, where b is usually `often`: a division takes as long as a hundred additions, and the first loads wait for it.
static Expr *divided(Arena *arena, Expr *a, Expr *b, Expr *often) {
    return e_select(arena, e_binary(arena, BIN_EQ, b, often), e_div(arena, a, often), e_div(arena, a, b));
}

// bm and bn from a number below X * Y, in groups of `raster` rows. Few divisions: the first loads wait for them.
static void bind_raster(Scheduler *s, Expr *number, Expr *rows, Expr *columns, Expr *raster) {
    Arena *a = s->arena;
    Expr *group = bind_name(s, "group", e_mul(a, columns, raster)), *zero = e_int(a, 0), *one = e_int(a, 1);
    Expr *groups = e_select(a, e_lt(a, number, group), zero, e_mul(a, e_div(a, number, group), raster));
    Expr *first = bind_name(s, "first", groups);
    Expr *height = bind_name(s, "height", e_min(a, raster, e_sub(a, rows, first)));
    push_assume(s, e_ge(a, height, one));
    Expr *inside = bind_name(s, "inside", e_sub(a, number, e_mul(a, first, columns)));
    assume_within(s, inside, group);
    Expr *column = e_select(a, e_eq(a, height, one), inside, divided(a, inside, height, raster));
    bind_iter(s, 1, column, columns);
    Expr *above = e_mul(a, e_var(a, s->grid->grid.iters[1].var), height);
    bind_iter(s, 0, e_add(a, first, e_sub(a, inside, above)), rows);
}

static void bind_hilbert(Scheduler *s, Expr *number, Expr *rows, Expr *columns, Type type) {
    Expr *row, *column;
    hilbert_tile(s->arena, type, number, rows, columns, &row, &column, s->grid->loc, &s->top);
    bind_iter(s, 0, row, rows);
    bind_iter(s, 1, column, columns);
}

void bind_iters(Scheduler *s, int first, int but, Expr *number) {
    const Stmt *grid = s->grid;
    EXPECT(s->context->failure, but < grid->grid.count, "iterator %d of %d", but, grid->grid.count);
    int last = but == grid->grid.count - 1 ? but - 1 : grid->grid.count - 1;
    for (int i = first; i <= last; i++) {
        Expr *extent = grid->grid.iters[i].end;
        if (i == but) continue;
        bind_iter(s, i, i == last ? number : e_mod(s->arena, number, extent), extent);
        number = e_div(s->arena, number, extent);
        if (i + 1 < last) number = bind_name(s, "rest", number);
    }
}

void decompose(Scheduler *s, Expr *number) {
    Arena *a = s->arena;
    int count = s->grid->grid.count, first = 0;
    const Iter *iters = s->grid->grid.iters;
    bool is_block = number->kind == EXPR_VAR && number->var->kind == VAR_ITER;   // a launch has at most so many CTAs
    if (count > 1 && is_block) push_assume(s, e_lt(a, number, e_int(a, s->context->target->max_grid)));
    if (order_is_longest(s->order)) {
        bind_longest_first(s, number);
        return;
    }
    if (count > 1 && s->order.kind != ORDER_PLAIN && s->order.kind != ORDER_OPEN) {
        Expr *rows = bind_name(s, "rows", iters[0].end), *columns = bind_name(s, "columns", iters[1].end);
        Expr *plane = e_mul(a, rows, columns);
        Expr *point = count > 2 ? bind_name(s, "point", e_mod(a, number, plane)) : number;
        if (s->order.kind == ORDER_RASTER)
            bind_raster(s, point, rows, columns, s->raster ? s->raster : e_int(a, s->order.rows));
        else bind_hilbert(s, point, rows, columns, is_block ? TYPE_I32 : TYPE_I64);
        number = e_div(a, number, plane);
        if (count > 3) number = bind_name(s, "rest", number);
        first = 2;
    }
    bind_iters(s, first, -1, number);
}

static void set_iter(Scheduler *s, Var *var, Expr *end) {
    s->grid->grid.iters = NEW(s->arena, Iter);
    s->grid->grid.iters[0] = iter_new(s->arena, var, end);
    s->grid->grid.count = 1;
}

// Declarations at the top level of `from` go to `to`, the rest to `rest`.
static void split_declarations(Arena *arena, const Block *from, Block *to, Block *rest) {
    for (int i = 0; i < from->count; i++)
        block_push(arena, from->items[i]->kind == STMT_DECL ? to : rest, from->items[i]);
}

// The tiles of a CTA: `body` runs with the number of each.
static Stmt *push_static_tiles(Scheduler *s, Var *cta, Expr *tiles, Expr *ctas, Block *out, Expr **number) {
    Arena *a = s->arena;
    Var *wave = var_new(a, "wave", VAR_ITER, TYPE_I64, s->grid->loc);
    Expr *count = e_call2(a, OP_CEILDIV, e_sub(a, tiles, e_var(a, cta)), ctas);
    Stmt *loop = s_for(a, LOOP_SERIAL, wave, e_int(a, 0), count);
    block_push(a, out, loop);
    *number = e_add(a, e_var(a, cta), e_mul(a, e_var(a, wave), ctas));
    return loop;
}

// Those that the counter gives it.
static Stmt *push_claimed_tiles(Scheduler *s, Var *cta, Expr *tiles, Block *out, Var **number) {
    Arena *a = s->arena;
    *number = var_new(a, "number", VAR_MUTABLE, TYPE_I64, s->grid->loc);
    block_push(a, out, s_var(a, *number, e_var(a, cta)));
    Stmt *loop = stmt_new(a, STMT_WHILE, s->grid->loc);
    loop->while_.condition = e_lt(a, e_var(a, *number), tiles);
    block_push(a, out, loop);
    return loop;
}

static Expr *bind_claimed(Scheduler *s, Var *number, Expr *tiles) {
    Var *block = var_new(s->arena, "block", VAR_LET, TYPE_I64, s->grid->loc);
    block_push(s->arena, &s->top, s_let(s->arena, block, e_var(s->arena, number)));
    assume_within(s, e_var(s->arena, block), tiles);
    push_assume(s, e_lt(s->arena, e_var(s->arena, block), e_int(s->arena, s->context->target->max_grid)));
    return e_var(s->arena, block);
}

static void make_persistent(Scheduler *s, Func *kernel, Expr *tiles, bool dynamic) {
    Arena *a = s->arena;
    Var *cta = var_new(a, "cta", VAR_ITER, TYPE_I64, s->grid->loc), *next;
    Expr *ctas = e_min(a, tiles, e_sms(a)), *number;
    Block declarations = {0}, work = {0};
    split_declarations(a, &s->grid->grid.body, &declarations, &work);
    s->grid->grid.body = declarations;
    Block *out = &s->grid->grid.body;
    Stmt *loop =
        dynamic ? push_claimed_tiles(s, cta, tiles, out, &next) : push_static_tiles(s, cta, tiles, ctas, out, &number);
    loop->loc = s->grid->loc;
    attr_set_ints(a, &loop->attrs, ATTR_TILE_LOOP, 0, NULL);
    Block *body = dynamic ? &loop->while_.body : &loop->loop.body;
    decompose(s, dynamic ? bind_claimed(s, next, tiles) : bind_name(s, "block", number));
    block_append(a, body, &s->top);
    block_append(a, body, &work);
    if (dynamic) {
        kernel->when = e_both(a, kernel->when, e_lt(a, tiles, e_int(a, s->context->target->max_grid)));
        block_push(a, body, s_assign(a, next, next_claim(a, kernel_workspace(kernel, WORKSPACE_COUNTER), tiles, ctas)));
    }
    set_iter(s, cta, ctas);
}

void set_grid(Scheduler *s, Var *var, Expr *end) {
    Block body = {0}, work = {0};
    split_declarations(s->arena, &s->grid->grid.body, &body, &work);
    block_append(s->arena, &body, &s->top);
    block_append(s->arena, &body, &work);
    s->grid->grid.body = body;
    set_iter(s, var, end);
}

static void flatten(Scheduler *s, Expr *tiles) {
    Var *block = var_new(s->arena, "block", VAR_ITER, TYPE_I64, s->grid->loc);
    decompose(s, e_var(s->arena, block));
    set_grid(s, block, tiles);
}

// What is lowered; the roles of groups still have to come to their tiles. True: the grid had it.
static bool drop_schedule(Scheduler *s, bool claim) {
    bool had = set_order(s->arena, s->grid, (TileOrder){0});
    return (claim && set_claim(s->arena, s->grid, (TileClaim){0})) || had;
}

static Expr *extent_of_one(Mapper *mapper, Expr *expr) {
    return is_expr_call(expr, OP_CLUSTER_EXTENT) ? e_int(mapper->arena, 1) : expr;
}

static bool drop_cluster(Scheduler *s, Func *kernel, const char *why) {
    Mapper mapper = {.arena = s->arena, .expr = extent_of_one};
    if (grid_cluster(s->grid) == 1 && !chooses_cluster(s->grid)) return false;
    REMARK(s->context, s->grid->loc, T_GRID_HINT, "cluster", why);
    drop_cluster_shapes(s->grid);
    map_block(&mapper, &kernel->body);
    if (kernel->when) kernel->when = map_expr(&mapper, kernel->when);
    return true;
}

static bool is_extent_of_cluster(const Expr *expr, const void *what) {
    (void)what;
    return is_expr_call(expr, OP_CLUSTER_EXTENT);
}

// CTAs that have to be in one cluster, beyond shared tiles: they reach each other, or the source asks for how many they are.
static int needed_cluster(const Func *kernel, const Stmt *grid) {
    int blocks = func_cluster(kernel);
    bool asks = chooses_cluster(grid) && !loads_multicast(&kernel->body) &&
                block_any_expr(&kernel->body, is_extent_of_cluster, NULL);
    return blocks == 1 && asks ? grid_cluster(grid) : blocks;
}

// If the tile needs more threads than a CTA may have, they are those of the cluster's CTAs.
static bool divide_tile(Scheduler *s) {
    int64_t threads = 1;
    if (attr_get(s->grid->attrs, ATTR_CTAS) || !expr_const(s->grid->grid.threads, &threads)) return false;
    const Target *target = s->context->target;
    int blocks = target_cluster(target, threads);
    int64_t running = grid_threads(s->grid);   // those of roles run at the same time
    if (running > (int64_t)blocks * target->max_threads && blocks > 0) blocks = 0, threads = running;
    if (blocks == 0) diag(s->context->sink, s->grid->loc, T_TILE_THREADS, (long long)threads, target->name);
    if (blocks <= 1) return false;
    attr_set_int(s->arena, &s->grid->attrs, ATTR_CTAS, blocks);
    return true;
}

// The loops that the source writes over the tiles of a CTA. False: it has one, or all of its statements are in the loop over them, and
// those of the source are dropped.
static bool schedule_loops(Scheduler *s, Func *kernel, Expr *tiles) {
    bool used = uses_tile_outside(s->grid);
    if (used && grid_is_persistent(s->grid) && func_has_roles(kernel))
        REMARK(s->context, s->grid->loc, T_GRID_HINT, "claim",
               "a statement outside of the loops over tiles uses a name of the grid");
    if (used || !grid_is_persistent(s->grid)) {
        drop_tile_loops(s->grid);
        return false;
    }
    if (grid_claim(s->grid).kind == CLAIM_DYNAMIC && !claims_are_for_one_loop(s->grid)) {
        REMARK(s->context, s->grid->loc, T_GRID_HINT, "claim",
               "a role goes over its tiles more than one time: they are claimed in a fixed order");
        set_claim(s->arena, s->grid, (TileClaim){.kind = CLAIM_STATIC});
    }
    Var *cta = var_new(s->arena, "cta", VAR_ITER, TYPE_I64, s->grid->loc);
    set_iter(s, cta, expand_tile_loops(s, kernel, tiles, cta));
    drop_schedule(s, true);
    return true;
}

// Tiles of a grid without clusters, or whose cluster shares loads. False: the grid stays as it is.
static bool schedule_tiles(Scheduler *s, Func *kernel, Expr *tiles) {
    Stmt *grid = s->grid;
    if (loads_multicast(&kernel->body)) return false;   // already scheduled
    const char *not_shared = share_tiles(s, kernel);
    if (!not_shared) {
        flatten_shared(s);
        return true;
    }
    SpecializeKind kind = planned_kind(kernel);
    TileClaim claim = grid_claim(grid);
    bool changed = drop_cluster(s, kernel, not_shared),
         loops = kind == WS_NONE && grid_is_persistent(grid) && !func_has_roles(kernel);
    if (changed) tiles = grid_tiles(s->arena, grid);
    loops &= kernel->stage == STAGE_TILE || claim.kind != CLAIM_DYNAMIC;
    if (grid->grid.count > 1 && kind == WS_PINGPONG)   // (shared tiles need one order)
        l2_hints(s->arena, s->context->target, grid);
    s->snake = claim.snake;
    bool written = has_tile_loops(grid);
    if (written && schedule_loops(s, kernel, tiles)) return true;
    if (loops) make_persistent(s, kernel, tiles, claim.kind == CLAIM_DYNAMIC);
    else if (grid->grid.count > 1 || order_is_longest(s->order)) flatten(s, tiles);
    else return drop_schedule(s, kind == WS_NONE) || changed || written;
    drop_schedule(s, kind == WS_NONE);
    return true;
}

// As of true integers: extents whose product is too large are no launch's.
static bool is_never_negative(const Facts *facts, const Expr *e) {
    if (range_of(facts, e).low >= 0) return true;
    if (e->kind == EXPR_SELECT)
        return is_never_negative(facts, e->select.yes) && is_never_negative(facts, e->select.no);
    bool binary = e->kind == EXPR_BINARY && (e->binary.op == BIN_MUL || e->binary.op == BIN_ADD ||
                                             e->binary.op == BIN_DIV || e->binary.op == BIN_MOD);
    if (binary) return is_never_negative(facts, e->binary.a) && is_never_negative(facts, e->binary.b);
    bool call = e->kind == EXPR_CALL && (e->call.op == OP_MIN || e->call.op == OP_MAX || e->call.op == OP_CEILDIV);
    return call && is_never_negative(facts, e->call.args[0].value) && is_never_negative(facts, e->call.args[1].value);
}

// An extent below 0 is empty, as in a loop. (The product of two such would launch CTAs.)
static bool clamp_extents(Scheduler *s, const Func *kernel) {
    bool changed = false;
    int mark = facts_mark(s->facts);
    for (int i = 0; kernel->body.items[i] != s->grid; i++) facts_enter(s->facts, kernel->body.items[i]);
    for (int i = 0; i < s->grid->grid.count; i++) {
        Expr **end = &s->grid->grid.iters[i].end;
        if (is_never_negative(s->facts, *end)) continue;
        *end = e_max(s->arena, *end, e_int(s->arena, 0));
        changed = true;
    }
    facts_release(s->facts, mark);
    return changed;
}

static bool schedule_grid(PassContext *context, Func *kernel, Stmt *grid) {
    Scheduler s = {.context = context, .arena = context->arena, .grid = grid, .order = grid_order(grid)};
    s.facts = facts_new(context->arena, kernel);
    bool changed = clamp_extents(&s, kernel);
    changed |= divide_tile(&s);
    Expr *tiles = grid_tiles(s.arena, grid);
    int blocks = needed_cluster(kernel, grid);
    if (blocks == 1) return schedule_tiles(&s, kernel, tiles) || changed;
    return flatten_clusters(&s, kernel, tiles, blocks) || changed;
}

bool pass_tile_scheduler(PassContext *context, Func *kernel) {
    for (int i = 0; i < kernel->body.count; i++)
        if (kernel->body.items[i]->kind == STMT_GRID) return schedule_grid(context, kernel, kernel->body.items[i]);
    return false;
}
