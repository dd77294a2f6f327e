// The order of a grid's tiles, and how its CTAs come to them. `plan` asks once, and writes the answer on the grid
// (ir/schedule.h); the cost models ask for each combination of tunables.
//
// What the source says is kept. Else the order is
//
//     sections   where trip counts rise or fall with one name of the grid only, and tiles that differ in it read the same
//     raster     where it pays: one tile that is read depends on the first name and not on the second, another on the second and
//                not on the first, as in a gemm. (Attention reads keys by head only. There the plain order is best: the CTAs of
//                a head are neighbours.) In groups of eight rows; of fewer where loads limit the kernel, and neighbours then
//                load less (docs/notebook/hopper-clusters.md)
//     longest    as sections, where tiles share no reads or the counts depend on data too: sections would be as unequal as their
//                tiles
//     plain      else
//
// and CTAs are persistent in kernels with groups of threads, whose loads run ahead from one tile to the next: where tiles take
// equally long; and where the tile search says so, in kernels whose tiles' lengths are known, by which they are dealt in snake
// order. Else the hardware's scheduler balances, a CTA a tile.
#include "passes/grid/tile_order.h"
#include "passes/analysis/util.h"
#include "passes/specialize/builder.h"

enum { DEFAULT_RASTER = 8 };

// An iterator, and the lets whose values depend on it but not on data.
static Map *dependents(Arena *arena, const Stmt *grid, const Var *var) {
    Map *known = map_new(arena);
    map_put(known, var, (void *)var);
    FOR_EACH_STMT (stmt, &grid->grid.body)
        if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value) && expr_uses_any(stmt->let.value, known))
            map_put(known, stmt->let.var, stmt->let.var);
    return known;
}

static bool region_uses_any(const Region *region, const Map *vars) {
    for (int d = 0; d < region->count; d++)
        if (expr_uses_any(region->dims[d].start, vars)) return true;
    return false;
}

// A tile that is read depends on the first name and not on the second, another on the second and not on the first. Out: their bytes.
static bool raster_pays(Arena *arena, const Stmt *grid, int64_t bytes[2]) {
    const Map *names[] = {dependents(arena, grid, grid->grid.iters[0].var),
                          dependents(arena, grid, grid->grid.iters[1].var)};
    FOR_EACH_EFFECT (effect, arena, grid) {
        const Region *region = effect->region;
        bool uses[2] = {false, false};
        if (!region || effect->access != ACCESS_READ || region->buf->scope != SCOPE_GLOBAL) continue;
        for (int i = 0; i < 2; i++) uses[i] = region_uses_any(region, names[i]);
        if (uses[0] != uses[1]) bytes[uses[1]] += region_bytes(region);
    }
    return bytes[0] > 0 && bytes[1] > 0;
}

// Rows of a group. Neighbours load `rows` tiles of the first name and neighbours / rows of the second: of groups of a power of two, those
// with the fewest bytes.
static int raster_rows(const int64_t bytes[2], int64_t neighbours) {
    int best = DEFAULT_RASTER;
    int64_t least = INT64_MAX;
    for (int rows = DEFAULT_RASTER; neighbours > 0 && rows > 0; rows /= 2) {
        int64_t loads = rows * bytes[0] + ceil_div(neighbours, rows) * bytes[1];
        if (loads < least) least = loads, best = rows;
    }
    return best;
}

// ---- tiles with unequal work ----

typedef enum { TREND_FLAT = 0, TREND_UP = 1, TREND_DOWN = 2, TREND_UNKNOWN = 3 } Trend;   // the union is `|`
_Static_assert((TREND_UP | TREND_DOWN) == TREND_UNKNOWN, "the union of both trends is unknown");

static Trend opposite(Trend trend) {
    return trend == TREND_UP ? TREND_DOWN : trend == TREND_DOWN ? TREND_UP : trend;
}

typedef struct Trends {
    const Facts *facts;
    Subst *lets;
    const Var *var;
    Map *data;     // lets that depend on loaded data
    Trend trips;   // of all loops
    bool by_data;
} Trends;

static bool is_data(const Trends *t, const Expr *expr) {
    return expr_reads_memory(expr) || expr_uses_any(expr, t->data);
}

static Trend trend_of(const Trends *t, const Expr *e);

static Trend trend_of_product(const Trends *t, const Expr *a, const Expr *b) {
    Trend of_a = trend_of(t, a), of_b = trend_of(t, b);
    if (of_a != TREND_FLAT && range_of(t->facts, b).low < 0) return TREND_UNKNOWN;
    if (of_b != TREND_FLAT && range_of(t->facts, a).low < 0) return TREND_UNKNOWN;
    return of_a | of_b;
}

static Trend trend_of_quotient(const Trends *t, const Expr *a, const Expr *b) {
    bool fixed = !expr_uses_var(b, t->var) && range_of(t->facts, b).low >= 0;
    return fixed ? trend_of(t, a) : TREND_UNKNOWN;
}

// `a < b ? yes : no` goes from `yes` to `no` as a - b rises.
static Trend trend_of_choice(const Trends *t, const Expr *condition, const Expr *yes, const Expr *no) {
    if (!expr_uses_var(condition, t->var)) return TREND_FLAT;
    if (condition->kind != EXPR_BINARY || !type_is_int(condition->binary.a->type)) return TREND_UNKNOWN;
    BinaryOp op = condition->binary.op;
    bool less = op == BIN_LT || op == BIN_LE;
    if (!less && op != BIN_GT && op != BIN_GE) return TREND_UNKNOWN;
    Trend rise = trend_of(t, condition->binary.a) | opposite(trend_of(t, condition->binary.b));
    Range before = range_of(t->facts, less ? yes : no), after = range_of(t->facts, less ? no : yes);
    if (before.high <= after.low) return rise;
    return before.low >= after.high ? opposite(rise) : TREND_UNKNOWN;
}

// Whether an integer rises or falls with the variable, with the others fixed.
static Trend trend_of(const Trends *t, const Expr *e) {
    if (!expr_uses_var(e, t->var)) return TREND_FLAT;
    switch (e->kind) {
    case EXPR_VAR: return TREND_UP;
    case EXPR_CAST:
        return type_is_int(e->type) && type_is_int(e->operand->type) ? trend_of(t, e->operand) : TREND_UNKNOWN;
    case EXPR_SELECT:
        return trend_of(t, e->select.yes) | trend_of(t, e->select.no) |
               trend_of_choice(t, e->select.condition, e->select.yes, e->select.no);
    case EXPR_BINARY:
        if (!type_is_int(e->type)) return TREND_UNKNOWN;
        if (e->binary.op == BIN_ADD) return trend_of(t, e->binary.a) | trend_of(t, e->binary.b);
        if (e->binary.op == BIN_SUB) return trend_of(t, e->binary.a) | opposite(trend_of(t, e->binary.b));
        if (e->binary.op == BIN_MUL) return trend_of_product(t, e->binary.a, e->binary.b);
        return e->binary.op == BIN_DIV ? trend_of_quotient(t, e->binary.a, e->binary.b) : TREND_UNKNOWN;
    case EXPR_CALL: {
        if (e->call.count != 2 || !type_is_int(e->type)) return TREND_UNKNOWN;
        const Expr *a = e->call.args[0].value, *b = e->call.args[1].value;
        if (e->call.op == OP_CEILDIV) return trend_of_quotient(t, a, b);
        return e->call.op == OP_MIN || e->call.op == OP_MAX ? trend_of(t, a) | trend_of(t, b) : TREND_UNKNOWN;
    }
    default: return TREND_UNKNOWN;
    }
}

// If begin and end have the same trend, as those of a sliding window, begin is assumed to be clamped to the tensor's
// start. (The order of tiles affects only speed.)
static Trend trend_of_trip_count(const Trends *t, const Expr *begin, const Expr *end) {
    Trend rise = trend_of(t, end), fall = opposite(trend_of(t, begin));
    bool slides = rise != TREND_UNKNOWN && fall == opposite(rise);
    return slides ? rise : rise | fall;
}

static void add_trips(Trends *t, const Stmt *loop) {
    for (int i = 0; i < loop->loop.count; i++) {
        const Iter *iter = &loop->loop.iters[i];
        t->by_data |= is_data(t, iter->begin) || is_data(t, iter->end);
        t->trips |= trend_of_trip_count(t, subst_expr(t->lets, iter->begin), subst_expr(t->lets, iter->end));
    }
}

// The trend of the CTA's trip counts along an iterator of the grid. `by_data`: they also depend on loaded data.
static bool is_load(const Stmt *stmt, void *user) {
    (void)user;
    return is_global_to_shared_copy(stmt);
}

static bool is_group(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_ROLE;
}

// Where the source has groups of threads, those that load decide: the others wait for them.
static bool decides(const Stmt *stmt, bool roles) {
    return (is_loop(stmt, LOOP_SERIAL) || is_loop(stmt, LOOP_PIPELINED)) && !attr_get(stmt->attrs, ATTR_TILES) &&
           (!roles || block_any(&stmt->loop.body, is_load, NULL));
}

static Trend trend_of_trips(Arena *arena, const Facts *facts, const Stmt *grid, const Iter *iter, bool *by_data) {
    Trends t = {.facts = facts, .lets = subst_new(arena), .data = map_new(arena), .var = iter->var};
    bool roles = block_any(&grid->grid.body, is_group, NULL);
    FOR_EACH_STMT (stmt, &grid->grid.body) {
        if (stmt->kind == STMT_LET) {
            bool known = !expr_is_stable(stmt->let.value) || subst_let(t.lets, stmt->let.var, stmt->let.value);
            if (!known || is_data(&t, stmt->let.value)) map_put(t.data, stmt->let.var, stmt->let.var);
        }
        if (decides(stmt, roles)) add_trips(&t, stmt);
    }
    *by_data |= t.by_data;
    return t.trips;
}

// The only iterator that trip counts depend on, as a longest-first order; plain: there is none.
static TileOrder longest_first(Arena *arena, const Facts *facts, const Stmt *grid, bool *by_data) {
    TileOrder order = {.kind = ORDER_PLAIN};
    for (int i = 0; i < grid->grid.count; i++) {
        Trend trips = trend_of_trips(arena, facts, grid, &grid->grid.iters[i], by_data);
        if (trips == TREND_FLAT) continue;
        if (trips == TREND_UNKNOWN || order_is_longest(order)) return (TileOrder){.kind = ORDER_PLAIN};
        order = (TileOrder){.kind = ORDER_LONGEST, .iter = i, .last = trips == TREND_UP};
    }
    return order;
}

// ---- sections ----

// The data that all tiles of a section read repeatedly, or add to: regions indexed by the other names and not by `var`.
typedef struct Kept {
    Arena *arena;
    const Stmt *grid;
    const Var *var;
    Subst *lets;
    Map *loops;           // iterators; NULL: how far a region moves with one does not count
    Map *seen, *chosen;   // tensors; names in their indices
    int64_t added;        // how often a byte counts to which tiles add
    Expr *bytes;          // per combination of the other names
} Kept;

// In groups of the source the loop over a dim may begin where the tile says, as at the diagonal: tiles read pieces of the same.
static bool is_swept(const Kept *kept, const Expr *start) {
    return kept->loops && expr_uses_any(start, kept->loops);
}

static void keep_region(Kept *kept, const Region *region, int64_t times) {
    Arena *a = kept->arena;
    const Stmt *grid = kept->grid;
    bool by_others = false;
    Expr *bytes = e_int(a, times * type_bytes(region->buf->type));
    for (int d = 0; d < region->count; d++) {
        const Expr *start = subst_expr(kept->lets, region->dims[d].start);
        if (expr_uses_var(start, kept->var) && !is_swept(kept, start)) return;
    }
    for (int d = 0; d < region->count; d++) {
        const Expr *start = subst_expr(kept->lets, region->dims[d].start);
        bool chosen = false;
        for (int i = 0; i < grid->grid.count; i++) {
            Var *var = grid->grid.iters[i].var;
            if (!expr_uses_var(start, var) || is_swept(kept, start)) continue;
            chosen = true;
            map_put(kept->chosen, var, var);
        }
        by_others |= chosen;
        if (!chosen) bytes = e_mul(a, bytes, region->buf->shape[d]);
    }
    if (!by_others) return;
    map_put(kept->seen, region->buf, region->buf);
    kept->bytes = kept->bytes ? e_add(a, kept->bytes, bytes) : bytes;
}

static void keep_regions(Kept *kept) {
    FOR_EACH_STMT (stmt, &kept->grid->grid.body)
        if (stmt->kind == STMT_LET) subst_let(kept->lets, stmt->let.var, stmt->let.value);
    FOR_EACH_EFFECT (effect, kept->arena, kept->grid) {
        const Region *region = effect->region;
        bool added = effect->access == ACCESS_UPDATE, again = added || effect->access == ACCESS_READ;
        if (!region || !again || region->buf->scope != SCOPE_GLOBAL) continue;
        if (!map_has(kept->seen, region->buf)) keep_region(kept, region, added ? kept->added : 1);
    }
}

static void put_iters(Map *iters, const Stmt *loop) {
    for (int i = 0; i < loop->loop.count; i++) map_put(iters, loop->loop.iters[i].var, loop->loop.iters[i].var);
}

Expr *bytes_read_again(Arena *arena, const Stmt *grid, const Iter *iter, int64_t added) {
    Kept kept = {.arena = arena, .grid = grid, .var = iter->var, .added = added};
    if (block_any(&grid->grid.body, is_group, NULL)) kept.loops = map_new(arena);
    FOR_EACH_STMT (stmt, &grid->grid.body)
        if (kept.loops && is_loop(stmt, LOOP_SERIAL) && !attr_get(stmt->attrs, ATTR_TILES)) put_iters(kept.loops, stmt);
    kept.lets = subst_new(arena), kept.seen = map_new(arena), kept.chosen = map_new(arena);
    keep_regions(&kept);
    for (int i = 0; kept.bytes && i < grid->grid.count; i++) {
        const Iter *other = &grid->grid.iters[i];   // tiles that differ in this name only read the same data
        if (other->var != iter->var && !map_has(kept.chosen, other->var))
            kept.bytes = e_div(arena, kept.bytes, other->end);
    }
    return kept.bytes;
}

// ---- the decision ----

// `loops`: in a plain loop over tiles a CTA gets long and short ones anyway.
static TileOrder order_of(Arena *arena, const Func *kernel, int64_t neighbours, bool loops, bool *by_data) {
    const Stmt *grid = func_grid(kernel);
    int64_t bytes[2] = {0};
    TileOrder order = {.kind = ORDER_OPEN};
    bool several = grid->grid.count > 1;
    if (!loops) order = longest_first(arena, facts_new(arena, kernel), grid, by_data);
    if (order_is_longest(order) && several && !*by_data &&
        bytes_read_again(arena, grid, &grid->grid.iters[order.iter], 1))
        order.kind = ORDER_SECTIONS;
    if (order.kind != ORDER_SECTIONS && several && raster_pays(arena, grid, bytes))
        order = (TileOrder){.kind = ORDER_RASTER, .rows = raster_rows(bytes, neighbours)};
    return order;
}

Schedule schedule_of(Arena *arena, const Func *kernel, const Specialization *how, int64_t neighbours) {
    const Stmt *grid = func_grid(kernel);
    Schedule schedule = {.order = grid_order(grid), .claim = grid_claim(grid)};
    TileOrder *order = &schedule.order;
    TileClaim *claim = &schedule.claim;
    bool by_data = false, loops = how->kind == WS_NONE && claim->kind == CLAIM_STATIC;
    if (order->kind == ORDER_OPEN) *order = order_of(arena, kernel, neighbours, loops, &by_data);
    schedule.deals = order_is_longest(*order) && !by_data;
    if (claim->kind == CLAIM_OPEN && has_tile_loops(grid)) claim->kind = CLAIM_STATIC;
    if (claim->kind == CLAIM_DYNAMIC && !kernel_workspace(kernel, WORKSPACE_COUNTER)) claim->kind = CLAIM_ONE;
    if (claim->kind == CLAIM_OPEN &&
        (how->kind == WS_PINGPONG || (how->kind == WS_COOPERATIVE && cooperative_equal_tiles(arena, kernel))))
        claim->kind = CLAIM_STATIC;
    bool dealt = how->kind == WS_COOPERATIVE || has_tile_loops(grid);
    if (dealt && claim->kind == CLAIM_STATIC && !claim->given) claim->snake = order_is_longest(*order);
    if (order_is_longest(*order) && grid->grid.count == 1 && !order->last && !claim->snake) order->kind = ORDER_PLAIN;
    return schedule;
}
