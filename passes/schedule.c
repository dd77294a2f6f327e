// schedule: every grid becomes one-dimensional, in an order that the caches like.
//
//     grid (bm in X, bn in Y) threads T { body }
//
// becomes `grid (block in X * Y)` with the old names as lets. Plainly, the first name runs fastest: bm = block % X, bn
// = block / X. With raster R the order runs in groups of R rows: down R values of bm, then the next bn, and when all of
// bn is done the next R rows. Blocks that run together then share R tiles of A and few of B, where row after row would
// stream all of one of them past the L2 cache for each tile of the other:
//
//     X = 5, Y = 3, R = 2:        bn 0  1  2
//                          bm 0      0  2  4        group = block / (R * Y), first row = group * R
//                             1      1  3  5        rows = min(R, X - first row): the last group may be short
//                             2      6  8 10        bm = first row + (block % (R * Y)) % rows
//                             3      7  9 11        bn = (block % (R * Y)) / rows
//                             4     12 13 14
//
// With raster hilbert it is a Hilbert curve (hilbert.c), which shares at every scale, so with caches of any size.
//
// The raster is the source's; else `DEFAULT_RASTER` where it pays: some tile read depends on the first name and not on
// the second, and some on the second and not on the first, as in a gemm. (Attention reads keys by head only: there all
// blocks of a head in a row are best, which is the plain order.)
//
// Where blocks of a cluster work together (operations reach from one to another), they lie beside each other, since that is
// how the machine groups them: block / C is the cluster, block % C the rank in it, C the number of blocks of a cluster.
//
//     grid (part in 4, row in M) cluster (2, 1):    rank = block % 2, cluster = block / 2,
//                                                   part = cluster % (4 / 2) * 2 + rank % 2,   row = cluster / (4 / 2)
//
// Then raster and persistent are for nothing.
//
// Blocks that take unequally long, as under a causal mask, start with the longest, so that short ones fill the end. That is
// where loops' trips rise (or fall) with one name of the grid alone: points come by that name, last to first, and within by the
// others. These are taken in sections whose tiles stay in the L2 cache together, as read by other blocks of the section:
//
//     grid (m in M, h in H, b in B), trips rise with m, K[b, h, ...] and V[b, h, ...] read whole:
//         others = H * B      fit = what L2 holds of K[b, h] and V[b, h]      group = M * together
//         together = ceildiv(others, max(others / fit, 1)): equal sections
//         first = block / group * together, height = min(together, others - first): the last section may be short
//         m = M - 1 - block % group / height,  other = first + block % group % height,  h = other % H,  b = other / H
//
// Where the source says `persistent`, and roles are made of the block later, a block stays for several such points (`@sections`): one
// of each round of as many as there are blocks, in the next round from the other end, so that who had the longest of one has the
// shortest of the next (part_together.c). Every section begins with a round of its own, and with another block. Where data says how long
// points take besides, the device balances them better (seven sequences of 17 to 5000: 1.3 to 1.5 times as fast), and there are no sections.
//
// persistent: as many blocks as run at once, each looping over the points worker, worker + workers, ... A point's
// shared and fragment buffers are declared once, around the loop. The loop counts turns from 0, so that whatever counts
// its iterations (slots, phases) goes on simply.
#include "passes/hilbert.h"
#include "passes/lower.h"
#include "passes/streams.h"
#include "passes/util.h"
#include "passes/warp_specialize.h"
#include "support/map.h"

enum { DEFAULT_RASTER = 8 };

typedef struct Scheduler {
    PassContext *context;
    Arena *arena;
    const Facts *facts;
    Stmt *grid;
    bool persistent;
    bool stays;     // blocks stay, for points that differ
    bool by_data;   // points take as long as data says, too: sequences of any lengths
    Block top;      // lets that compute the old iterators
} Scheduler;

// Which of the first two names the tiles that are read depend on.
typedef struct Reads {
    const Iter *iters;
    bool first, second;   // there is one that depends on it alone
} Reads;

static void read_region(Visitor *visitor, Region *region, const Operand *operand) {
    Reads *reads = visitor->user;
    bool uses[2] = {false, false};
    if (!operand || operand->access != ACCESS_READ || region->buf->scope != SCOPE_GLOBAL) return;
    for (int d = 0; d < region->count; d++)
        for (int i = 0; i < 2; i++) uses[i] |= expr_uses_var(region->dims[d].start, reads->iters[i].var);
    reads->first |= uses[0] && !uses[1];
    reads->second |= uses[1] && !uses[0];
}

static bool raster_pays(const Stmt *grid) {
    Reads reads = {.iters = grid->grid.iters};
    Visitor visitor = {.region = read_region, .user = &reads};
    visit_block(&visitor, (Block *)&grid->grid.body);
    return reads.first && reads.second;
}

// `let name = value;` at the top; constants and names stay themselves.
static Expr *bind(Scheduler *s, const char *name, Expr *value) {
    int64_t constant;
    if (value->kind == EXPR_VAR || expr_const(value, &constant)) return value;
    Var *var = var_new(s->arena, name, VAR_LET, TYPE_I64, s->grid->loc);
    block_push(s->arena, &s->top, s_let(s->arena, var, value));
    return e_var(s->arena, var);
}

// What is true of the numbers that follow: no prover finds its way back through the arithmetic.
static void push_assume(Scheduler *s, Expr *condition) {
    Stmt *assume = stmt_new(s->arena, STMT_ASSUME, s->grid->loc);
    assume->assume = condition;
    block_push(s->arena, &s->top, assume);
}

static void assume_between(Scheduler *s, Expr *x, Expr *low, Expr *end) {
    push_assume(s, e_and(s->arena, e_binary(s->arena, BIN_GE, x, low), e_lt(s->arena, x, end)));
}

static void assume_within(Scheduler *s, Expr *x, Expr *extent) {
    assume_between(s, x, e_int(s->arena, 0), extent);
}

// The old iterator as a let.
static void bind_iter(Scheduler *s, int index, Expr *value, Expr *extent) {
    const Iter *iter = &s->grid->grid.iters[index];
    iter->var->kind = VAR_LET;
    block_push(s->arena, &s->top, s_let(s->arena, iter->var, value));
    assume_within(s, e_var(s->arena, iter->var), extent);
}

// a / b, where b is mostly `often`: a division takes as long as a hundred additions, and nothing is loaded before it is done.
static Expr *divided(Arena *arena, Expr *a, Expr *b, Expr *often) {
    return e_select(arena, e_binary(arena, BIN_EQ, b, often), e_div(arena, a, often), e_div(arena, a, b));
}

// bm and bn from a number below X * Y, in groups of `raster` rows. Few divisions: the first loads wait for them.
static void bind_raster(Scheduler *s, Expr *number, Expr *rows, Expr *columns, Expr *raster) {
    Arena *a = s->arena;
    Expr *group = bind(s, "group", e_mul(a, columns, raster)), *zero = e_int(a, 0), *one = e_int(a, 1);
    Expr *groups = e_select(a, e_lt(a, number, group), zero, e_mul(a, e_div(a, number, group), raster));
    Expr *first = bind(s, "first", groups);
    Expr *height = bind(s, "height", e_min(a, raster, e_sub(a, rows, first)));
    push_assume(s, e_binary(a, BIN_GE, height, one));
    Expr *inside = bind(s, "inside", e_sub(a, number, e_mul(a, first, columns)));
    push_assume(s, e_and(a, e_binary(a, BIN_GE, inside, zero), e_lt(a, inside, group)));
    Expr *column = e_select(a, e_binary(a, BIN_EQ, height, one), inside, divided(a, inside, height, raster));
    bind_iter(s, 1, column, columns);
    Expr *above = e_mul(a, e_var(a, s->grid->grid.iters[1].var), height);
    bind_iter(s, 0, e_add(a, first, e_sub(a, inside, above)), rows);
}

static void bind_hilbert(Scheduler *s, Expr *number, Expr *rows, Expr *columns, Type type) {
    Expr *row, *column;
    hilbert_point(s->arena, type, number, rows, columns, &row, &column, s->grid->loc, &s->top);
    bind_iter(s, 0, row, rows);
    bind_iter(s, 1, column, columns);
}

// ---- points that take unequally long ----

typedef enum { TREND_FLAT = 0, TREND_UP = 1, TREND_DOWN = 2, TREND_UNKNOWN = 3 } Trend;   // the union is `|`

static Trend opposite(Trend trend) {
    return trend == TREND_UP ? TREND_DOWN : trend == TREND_DOWN ? TREND_UP : trend;
}

typedef struct Trends {
    Arena *arena;
    const Facts *facts;
    Subst *lets;
    const Var *var;
    Map *data;     // lets that come of what is loaded
    Trend trips;   // of all loops
    bool by_data;
} Trends;

typedef struct Names {
    const Map *data;
    bool found;
} Names;

static bool find_data(Visitor *visitor, Expr *expr) {
    Names *names = visitor->user;
    names->found |= expr->kind == EXPR_LOAD || (expr->kind == EXPR_VAR && map_has(names->data, expr->var));
    return !names->found;
}

static bool is_data(const Trends *t, Expr *expr) {
    Names names = {t->data, false};
    Visitor visitor = {.expr = find_data, .user = &names};
    visit_expr(&visitor, expr);
    return names.found;
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

// Whether an integer rises or falls with the variable, the others fixed.
static Trend trend_of(const Trends *t, const Expr *e) {
    if (!expr_uses_var(e, t->var)) return TREND_FLAT;
    switch (e->kind) {
    case EXPR_VAR: return TREND_UP;
    case EXPR_CAST:
        return type_is_int(e->type) && type_is_int(e->operand->type) ? trend_of(t, e->operand) : TREND_UNKNOWN;
    case EXPR_SELECT:
        if (expr_uses_var(e->select.condition, t->var)) return TREND_UNKNOWN;
        return trend_of(t, e->select.yes) | trend_of(t, e->select.no);
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

// Where begin and end go the same way, as those of a window that slides, begin is what is held up: by the tensor's start. (The order of
// points is for speed alone.)
static Trend trend_of_trip_count(const Trends *t, const Expr *begin, const Expr *end) {
    Trend rise = trend_of(t, end), fall = opposite(trend_of(t, begin));
    bool slides = rise != TREND_UNKNOWN && fall == opposite(rise);
    return slides ? rise : rise | fall;
}

static bool add_trips(Visitor *visitor, Stmt *stmt) {
    Trends *t = visitor->user;
    if (stmt->kind == STMT_LET && is_data(t, stmt->let.value)) map_put(t->data, stmt->let.var, stmt);
    if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value))
        subst_var(t->lets, stmt->let.var, subst_expr(t->lets, stmt->let.value));
    if (stmt->kind != STMT_FOR || (stmt->loop.kind != LOOP_SERIAL && stmt->loop.kind != LOOP_PIPELINED)) return true;
    for (int i = 0; i < stmt->loop.count; i++) {
        const Iter *iter = &stmt->loop.iters[i];
        t->by_data |= is_data(t, iter->begin) || is_data(t, iter->end);
        t->trips |= trend_of_trip_count(t, subst_expr(t->lets, iter->begin), subst_expr(t->lets, iter->end));
    }
    return true;
}

// How the block's loops grow with an iterator of the grid.
static Trend trend_of_trips(Scheduler *s, const Iter *iter) {
    Trends t = {
        .arena = s->arena, .facts = s->facts, .lets = subst_new(s->arena), .data = map_new(s->arena), .var = iter->var};
    Visitor visitor = {.stmt = add_trips, .user = &t};
    visit_block(&visitor, &s->grid->grid.body);
    s->by_data |= t.by_data;
    return t.trips;
}

// The iterator that alone decides how long a point takes; -1.
static int deciding_iter(Scheduler *s, Trend *trend) {
    int deciding = -1;
    for (int i = 0; i < s->grid->grid.count; i++) {
        Trend trips = trend_of_trips(s, &s->grid->grid.iters[i]);
        if (trips == TREND_FLAT) continue;
        if (trips == TREND_UNKNOWN || deciding >= 0) return -1;
        deciding = i;
        *trend = trips;
    }
    return deciding;
}

// What of the tensors the points of one section read again and again: those read at the other names' indices, not at `var`.
typedef struct Kept {
    Scheduler *s;
    const Var *var;
    Subst *lets;
    Map *seen, *chosen;   // tensors; names that choose among their parts
    Expr *bytes;          // for one point of the others
} Kept;

static bool keep_let(Visitor *visitor, Stmt *stmt) {
    Kept *kept = visitor->user;
    if (stmt->kind == STMT_LET) subst_var(kept->lets, stmt->let.var, subst_expr(kept->lets, stmt->let.value));
    return true;
}

static void keep_region(Visitor *visitor, Region *region, const Operand *operand) {
    Kept *kept = visitor->user;
    Arena *a = kept->s->arena;
    const Buf *buf = region->buf;
    if (!operand || operand->access != ACCESS_READ || buf->scope != SCOPE_GLOBAL || map_has(kept->seen, buf)) return;
    bool by_others = false;
    Expr *bytes = e_int(a, type_bytes(buf->type));
    for (int d = 0; d < region->count; d++)
        if (expr_uses_var(subst_expr(kept->lets, region->dims[d].start), kept->var)) return;
    for (int d = 0; d < region->count; d++) {
        const Expr *start = subst_expr(kept->lets, region->dims[d].start);
        bool chosen = false;
        for (int i = 0; i < kept->s->grid->grid.count; i++) {
            const Var *var = kept->s->grid->grid.iters[i].var;
            if (!expr_uses_var(start, var)) continue;
            chosen = true;
            map_put(kept->chosen, var, (void *)var);
        }
        by_others |= chosen;
        if (!chosen) bytes = e_mul(a, bytes, buf->shape[d]);
    }
    if (!by_others) return;
    map_put(kept->seen, buf, (void *)buf);
    kept->bytes = kept->bytes ? e_add(a, kept->bytes, bytes) : bytes;
}

// Points of the others in a section: about as many as L2 keeps, with room for what streams through it, but more than one. Sections
// are equal as far as that goes: a last one of few points would not fill the device. NULL: they read nothing in common.
//
// Where blocks stay, the points of a round start together: some of them shall share what they read, or memory is too slow for all, and
// there shall be one for each block.
static Expr *fit_round(Scheduler *s, Expr *fit, Expr *extent) {
    enum { SHARERS = 4 };
    int64_t blocks = s->context->target->multiprocessors, most = 1;
    while (most * 2 * SHARERS <= blocks) most *= 2;
    Expr *least = e_call2(s->arena, OP_CEILDIV, e_int(s->arena, blocks), extent);
    return e_max(s->arena, e_min(s->arena, fit, e_int(s->arena, most)), least);
}

static Expr *section_of(Scheduler *s, const Iter *iter, Expr *extent, Expr *others) {
    enum { LEAST = 2 };
    Arena *a = s->arena;
    if (s->by_data) return NULL;   // sections would be as unlike as what is in them
    Kept kept = {.s = s, .var = iter->var, .lets = subst_new(a), .seen = map_new(a), .chosen = map_new(a)};
    Visitor visitor = {.stmt = keep_let, .region = keep_region, .user = &kept};
    visit_block(&visitor, &s->grid->grid.body);
    if (!kept.bytes) return NULL;
    for (int i = 0; i < s->grid->grid.count; i++) {   // points that differ in this read the same
        const Iter *other = &s->grid->grid.iters[i];
        if (other->var != iter->var && !map_has(kept.chosen, other->var)) kept.bytes = e_div(a, kept.bytes, other->end);
    }
    Expr *room = e_int(a, s->context->target->l2_kept);
    Expr *bytes =
        e_max(a, e_min(a, kept.bytes, room), e_int(a, 1));   // more than there is room for is as good as all of it
    Expr *fit = e_div(a, room, bytes);
    if (s->stays) fit = fit_round(s, fit, extent);
    fit = bind(s, "fit", e_max(a, fit, e_int(a, LEAST)));
    assume_between(s, fit, e_int(a, LEAST), e_add(a, e_max(a, room, e_int(a, LEAST)), e_int(a, 1)));
    return e_call2(a, OP_CEILDIV, others, e_max(a, e_div(a, others, fit), e_int(a, 1)));
}

static void bind_others(Scheduler *s, int but, Expr *number) {
    Arena *a = s->arena;
    int last = but == s->grid->grid.count - 1 ? but - 1 : s->grid->grid.count - 1;
    for (int i = 0; i <= last; i++) {
        Expr *extent = s->grid->grid.iters[i].end;
        if (i == but) continue;
        bind_iter(s, i, i == last ? number : e_mod(a, number, extent), extent);
        number = e_div(a, number, extent);
        if (i + 1 < last) number = bind(s, "rest", number);
    }
}

// number = quotient * divisor + rest, both named. A remainder would be a second division.
static void bind_division(Scheduler *s, Expr *number, Expr *divisor, const char *names[2], Expr **quotient,
                          Expr **rest) {
    Arena *a = s->arena;
    *quotient = bind(s, names[0], e_div(a, number, divisor));
    *rest = bind(s, names[1], e_sub(a, number, e_mul(a, *quotient, divisor)));
    assume_within(s, *rest, divisor);
}

// The deciding iterator's level, longest first, and the number among the others, from the number of a point: by sections, if there are any. What
// is assumed of the numbers keeps their divisions in 32 bits: a block alone on its multiprocessor waits for them.
static Expr *split_by_sections(Scheduler *s, Expr *number, const Iter *iter, Expr *extent, Expr *others, Expr **other) {
    Arena *a = s->arena;
    Expr *most = e_int(a, s->context->target->max_grid), *one = e_int(a, 1);
    assume_between(s, others, one, most);   // the launch has so many blocks
    Expr *together = section_of(s, iter, extent, others), *section, *inside, *level, *place;
    if (!together && s->stays) together = others;
    if (!together) {
        bind_division(s, number, others, (const char *[]){"level", "other"}, &level, other);
        return level;
    }
    together = bind(s, "together", together);
    assume_between(s, together, one, most);
    Expr *group = bind(s, "group", e_mul(a, extent, together));
    assume_between(s, group, one, most);
    bind_division(s, number, group, (const char *[]){"section", "inside"}, &section, &inside);
    Expr *first = bind(s, "first", e_mul(a, section, together));
    Expr *height = bind(s, "height", e_min(a, together, e_sub(a, others, first)));
    assume_between(s, height, one, most);
    bind_division(s, inside, height, (const char *[]){"level", "place"}, &level, &place);
    *other = bind(s, "other", e_add(a, first, place));
    assume_within(s, *other, others);
    return level;
}

// All iterators from the number of a point, the longest points first.
static void bind_longest_first(Scheduler *s, Expr *number, int deciding, Trend trend) {
    Arena *a = s->arena;
    const Iter *iter = &s->grid->grid.iters[deciding];
    Expr *others = e_int(a, 1), *extent = bind(s, "extent", iter->end), *level = number, *other;
    for (int i = 0; i < s->grid->grid.count; i++)
        if (i != deciding) others = e_mul(a, others, s->grid->grid.iters[i].end);
    if (s->grid->grid.count > 1) {
        level = split_by_sections(s, number, iter, extent, bind(s, "others", others), &other);
        bind_others(s, deciding, other);
    }
    Expr *last = e_sub(a, extent, e_int(a, 1));
    bind_iter(s, deciding, trend == TREND_UP ? e_sub(a, last, level) : level, extent);
    if (s->stays) attr_set_ints(a, &s->grid->attrs, ATTR_SECTIONS, 0, NULL);
    REMARK(s->context, s->grid->loc, T_LONGEST_FIRST, trend == TREND_UP ? "last" : "first", iter->var->name);
}

// NULL: plain, or a curve.
static Expr *raster_of(Scheduler *s) {
    if (s->grid->grid.count < 2 || s->grid->grid.hilbert) return NULL;
    if (s->grid->grid.raster) return s->grid->grid.raster;
    return raster_pays(s->grid) ? e_int(s->arena, DEFAULT_RASTER) : NULL;
}

bool points_balance(Arena *arena, const Target *target, const Func *kernel) {
    Scheduler s = {.arena = arena, .grid = (Stmt *)func_grid(kernel), .facts = facts_new(arena, kernel)};
    Trend trend;
    return s.grid && specialized_together(arena, target, kernel) && !s.grid->grid.hilbert && !raster_of(&s) &&
           deciding_iter(&s, &trend) >= 0 && !s.by_data;
}

// The old iterators from the number of a point; fills s->top.
static void decompose(Scheduler *s, Expr *number) {
    Arena *a = s->arena;
    int count = s->grid->grid.count;
    const Iter *iters = s->grid->grid.iters;
    Expr *raster = raster_of(s);
    bool curve = s->grid->grid.hilbert && count > 1;
    Trend trend;
    int first = 0, deciding = raster || curve || s->persistent ? -1 : deciding_iter(s, &trend);
    bool is_block = number->kind == EXPR_VAR && number->var->kind == VAR_ITER;   // a launch has at most so many
    if (count > 1 && is_block) push_assume(s, e_lt(a, number, e_int(a, s->context->target->max_grid)));
    if (deciding >= 0) {
        bind_longest_first(s, number, deciding, trend);
        return;
    }
    if (raster || curve) {
        Expr *rows = bind(s, "rows", iters[0].end), *columns = bind(s, "columns", iters[1].end);
        Expr *plane = e_mul(a, rows, columns);
        Expr *point = count > 2 ? bind(s, "point", e_mod(a, number, plane)) : number;
        if (raster) bind_raster(s, point, rows, columns, raster);
        else bind_hilbert(s, point, rows, columns, is_block ? TYPE_I32 : TYPE_I64);
        number = e_div(a, number, plane);
        if (count > 3) number = bind(s, "rest", number);
        first = 2;
    }
    for (int i = first; i < count; i++) {
        bind_iter(s, i, i == count - 1 ? number : e_mod(a, number, iters[i].end), iters[i].end);
        number = e_div(a, number, iters[i].end);
        if (i + 2 < count) number = bind(s, "rest", number);
    }
}

static Expr *grid_points(Scheduler *s) {
    Expr *points = s->grid->grid.iters[0].end;
    for (int i = 1; i < s->grid->grid.count; i++) points = e_mul(s->arena, points, s->grid->grid.iters[i].end);
    return points;
}

static void set_iter(Scheduler *s, Var *var, Expr *end) {
    Iter *iter = NEW(s->arena, Iter);
    *iter = (Iter){var, e_int(s->arena, 0), end, e_int(s->arena, 1)};
    s->grid->grid.iters = iter;
    s->grid->grid.count = 1;
}

// Declarations at the top level of `from` go to `to`, the rest to `rest`.
static void split_declarations(Arena *arena, const Block *from, Block *to, Block *rest) {
    for (int i = 0; i < from->count; i++)
        block_push(arena, from->items[i]->kind == STMT_DECL ? to : rest, from->items[i]);
}

static void make_persistent(Scheduler *s, Expr *points) {
    Arena *a = s->arena;
    Span loc = s->grid->loc;
    Var *worker = var_new(a, "worker", VAR_ITER, TYPE_I64, loc), *turn = var_new(a, "turn", VAR_ITER, TYPE_I64, loc);
    Expr *workers = e_min(a, points, e_call(a, OP_SMS, 0, NULL));
    Block declarations = {0}, work = {0};
    split_declarations(a, &s->grid->grid.body, &declarations, &work);

    Expr *count = e_call2(a, OP_CEILDIV, e_sub(a, points, e_var(a, worker)), workers);
    Stmt *loop = s_for(a, LOOP_SERIAL, turn, e_int(a, 0), count);
    loop->loc = loc;
    attr_set_ints(a, &loop->attrs, ATTR_POINTS, 0, NULL);
    decompose(s, bind(s, "block", e_add(a, e_var(a, worker), e_mul(a, e_var(a, turn), workers))));
    block_append(a, &loop->loop.body, &s->top);
    block_append(a, &loop->loop.body, &work);

    s->grid->grid.body = declarations;
    block_push(a, &s->grid->grid.body, loop);
    set_iter(s, worker, workers);
}

static void flatten(Scheduler *s, Expr *points) {
    Var *block = var_new(s->arena, "block", VAR_ITER, TYPE_I64, s->grid->loc);
    Block body = {0}, work = {0};
    split_declarations(s->arena, &s->grid->grid.body, &body, &work);
    decompose(s, e_var(s->arena, block));
    block_append(s->arena, &body, &s->top);
    block_append(s->arena, &body, &work);
    s->grid->grid.body = body;
    set_iter(s, block, points);
}

static bool has_raster(const Stmt *grid) {
    return grid->grid.raster || grid->grid.hilbert;
}

static void drop_raster(Stmt *grid) {
    grid->grid.raster = NULL;
    grid->grid.hilbert = false;
}

static bool has_cluster(const Stmt *grid) {
    return grid->grid.cluster[0] > 1 || grid->grid.cluster[1] > 1 || grid->grid.cluster[2] > 1;
}

static void set_cluster(Stmt *grid, int blocks) {
    grid->grid.cluster[0] = blocks;
    grid->grid.cluster[1] = grid->grid.cluster[2] = 1;
}

static bool drop_cluster(Scheduler *s, const char *why) {
    if (!has_cluster(s->grid)) return false;
    REMARK(s->context, s->grid->loc, T_GRID_HINT, "cluster", why);
    set_cluster(s->grid, 1);
    return true;
}

// Clusters are whole: what the launch has to see to.
static bool want_whole_clusters(Scheduler *s, Func *kernel) {
    Arena *a = s->arena;
    bool wanted = false;
    for (int i = 0; i < s->grid->grid.count && i < 3; i++) {
        int extent = s->grid->grid.cluster[i];
        if (extent <= 1) continue;
        Expr *whole = e_binary(a, BIN_EQ, e_mod(a, s->grid->grid.iters[i].end, e_int(a, extent)), e_int(a, 0));
        if (prove(s->facts, whole)) continue;
        kernel->when = kernel->when ? e_and(a, kernel->when, whole) : whole;
        wanted = true;
    }
    return wanted;
}

// The old iterators from the cluster's number and the rank in it; fills s->top.
static void decompose_clusters(Scheduler *s, Expr *number, int blocks) {
    Arena *a = s->arena;
    const int *extents = s->grid->grid.cluster;
    Expr *cluster = bind(s, "cluster", e_div(a, number, e_int(a, blocks)));
    Expr *rank = bind(s, "rank", e_mod(a, number, e_int(a, blocks)));
    for (int i = 0; i < s->grid->grid.count; i++) {
        const Iter *iter = &s->grid->grid.iters[i];
        int extent = i < 3 && extents[i] > 1 ? extents[i] : 1;
        bool last = i == s->grid->grid.count - 1;
        Expr *clusters = extent > 1 ? e_div(a, iter->end, e_int(a, extent)) : iter->end;
        Expr *at = e_mul(a, last ? cluster : e_mod(a, cluster, clusters), e_int(a, extent));
        bind_iter(s, i, extent > 1 ? e_add(a, at, e_mod(a, rank, e_int(a, extent))) : at, iter->end);
        if (last) break;
        cluster = bind(s, "rest", e_div(a, cluster, clusters));
        if (extent > 1) rank = e_div(a, rank, e_int(a, extent));
    }
}

static bool flatten_clusters(Scheduler *s, Func *kernel, Expr *points, int blocks) {
    if (blocks > s->context->target->cluster_most)
        diag(s->context->sink, s->grid->loc, T_CLUSTER_TOO_LARGE, kernel->name, blocks, s->context->target->name,
             s->context->target->cluster_most);
    const char *unused = s->grid->grid.persistent ? "persistent" : has_raster(s->grid) ? "raster" : NULL;
    if (unused) REMARK(s->context, s->grid->loc, T_GRID_HINT, unused, "blocks of a cluster work together");
    bool changed = want_whole_clusters(s, kernel) || s->grid->grid.count > 1 || unused;
    if (s->grid->grid.count > 1) {
        Var *block = var_new(s->arena, "block", VAR_ITER, TYPE_I64, s->grid->loc);
        Block body = {0}, work = {0};
        split_declarations(s->arena, &s->grid->grid.body, &body, &work);
        push_assume(s, e_lt(s->arena, e_var(s->arena, block), e_int(s->arena, s->context->target->max_grid)));
        decompose_clusters(s, e_var(s->arena, block), blocks);
        block_append(s->arena, &body, &s->top);
        block_append(s->arena, &body, &work);
        s->grid->grid.body = body;
        set_iter(s, block, points);
    }
    set_cluster(s->grid, blocks);
    return changed;
}

// More threads than a block can have are those of a cluster's blocks.
static bool divide_point(Scheduler *s) {
    int64_t threads = 1;
    if (attr_get(s->grid->attrs, ATTR_BLOCKS) || !expr_const(s->grid->grid.threads, &threads)) return false;
    int blocks = target_cluster(s->context->target, threads);
    if (blocks == 0)
        diag(s->context->sink, s->grid->loc, T_POINT_THREADS, (long long)threads, s->context->target->name);
    if (blocks <= 1) return false;
    attr_set_int(s->arena, &s->grid->attrs, ATTR_BLOCKS, blocks);
    return true;
}

// ---- tiles that blocks of a cluster share ----
//
// Blocks of `cluster (x, y)` have x points beside each other along the first name and y along the second. What does not depend on the
// first name is the same tile for x blocks whose ranks are 1 apart, what does not depend on the second for y blocks that are x
// apart: warp-specialize lets one of them load it for all (`@multicast`).
//
//     grid (bm in X, bn in Y) cluster (2, 1):     A[bm * BM, ..] each its own,  B[bn * BN, ..] @multicast(2, 1)
//
// Clusters are points of a grid of their own, in raster order. Where they hang over the grid's end, the blocks there take part in all
// that is loaded and multiplied; what others would see of it they leave.

enum { SHARED_NAMES = 2 };

typedef struct Share {
    Scheduler *s;
    Subst *lets;
    bool some, differ;   // there is such a tile; blocks take unequally many steps, or nobody knows
} Share;

typedef struct Dependence {
    const Var *iter;
    bool found;
} Dependence;

static bool find_dependence(Visitor *visitor, Expr *expr) {
    Dependence *dependence = visitor->user;
    bool unknown = expr->kind == EXPR_LOAD || (expr->kind == EXPR_CALL && !op_is_pure(expr->call.op));
    if (expr->kind == EXPR_VAR)
        unknown = expr->var == dependence->iter || expr->var->kind == VAR_LET || expr->var->kind == VAR_MUTABLE;
    dependence->found |= unknown;
    return !dependence->found;
}

static bool depends_on(const Share *share, int name, Expr *expr) {
    Dependence dependence = {.iter = share->s->grid->grid.iters[name].var};
    Visitor visitor = {.expr = find_dependence, .user = &dependence};
    visit_expr(&visitor, subst_expr(share->lets, expr));
    return dependence.found;
}

static bool find_impure(Visitor *visitor, Expr *expr) {
    bool *found = visitor->user;
    *found |= expr->kind == EXPR_CALL && !op_is_pure(expr->call.op);
    return !*found;
}

static int cluster_blocks(const Stmt *grid) {
    int blocks = 1;
    for (int d = 0; d < 3; d++) blocks *= grid->grid.cluster[d] > 1 ? grid->grid.cluster[d] : 1;
    return blocks;
}

static bool share_copy(Visitor *visitor, Stmt *stmt) {
    Share *share = visitor->user;
    const Stmt *grid = share->s->grid;
    if (stmt->kind == STMT_LET && expr_is_stable(stmt->let.value))
        subst_var(share->lets, stmt->let.var, subst_expr(share->lets, stmt->let.value));
    if (stmt->kind == STMT_LET) visit_expr(&(Visitor){.expr = find_impure, .user = &share->differ}, stmt->let.value);
    for (int d = 0; stmt->kind == STMT_ASSUME && d < SHARED_NAMES; d++)   // beyond the grid's end nobody promised it
        share->differ |= grid->grid.cluster[d] > 1 && depends_on(share, d, stmt->assume);
    if (stmt->kind == STMT_FOR && stmt->loop.kind == LOOP_PIPELINED)
        for (int d = 0; d < SHARED_NAMES; d++)
            share->differ |= grid->grid.cluster[d] > 1 && depends_on(share, d, stmt->loop.iters[0].end);
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_COPY) return true;
    const Region *from = stmt->call.args[COPY_FROM].region, *to = stmt->call.args[COPY_TO].region;
    if (from->buf->scope != SCOPE_GLOBAL || to->buf->scope != SCOPE_SHARED) return true;
    int64_t numbers[] = {1, 1};   // blocks, apart
    for (int d = 0; d < SHARED_NAMES; d++) {
        bool moves = grid->grid.cluster[d] <= 1;
        for (int r = 0; r < from->count && !moves; r++) moves = depends_on(share, d, from->dims[r].start);
        if (moves) continue;
        if (numbers[0] == 1 && d == 1) numbers[1] = grid->grid.cluster[0];
        numbers[0] *= grid->grid.cluster[d];
    }
    if (numbers[0] == 1) return true;
    attr_set_ints(share->s->arena, &stmt->attrs, ATTR_MULTICAST, COUNT_OF(numbers), numbers);
    return share->some = true;
}

static bool drop_share(Visitor *visitor, Stmt *stmt) {
    (void)visitor;
    attr_remove(&stmt->attrs, ATTR_MULTICAST);
    return true;
}

static bool is_shared(const Stmt *stmt, void *user) {
    (void)user;
    return attr_get(stmt->attrs, ATTR_MULTICAST) != NULL;
}

// Marks what blocks share. NULL: they do; else why not.
static const char *share_tiles(Scheduler *s, Func *kernel) {
    const Stmt *grid = s->grid;
    Share share = {.s = s, .lets = subst_new(s->arena)};
    Visitor visitor = {.stmt = share_copy, .user = &share}, drop = {.stmt = drop_share, .user = &share};
    if (!has_cluster(grid)) return "there is none";
    if (!specialized_in_turn(s->arena, s->context->target, kernel))
        return "nothing reaches from one block of it to another, and only plain products in roles share tiles";
    if (grid->grid.cluster[2] > 1 || grid->grid.count < SHARED_NAMES)
        return "tiles are shared along the first two of several names";
    if (cluster_blocks(grid) > s->context->target->max_cluster) return "it is larger than the target's";
    visit_block(&visitor, &kernel->body);
    if (share.some && !share.differ) return NULL;
    visit_block(&drop, &kernel->body);
    return share.some
               ? "its blocks may take unequally many steps, or not all that is said of points holds beyond the grid"
               : "its blocks have no tile in common";
}

static void bind_in_cluster(Scheduler *s, Expr *rank, const Iter *clusters) {
    Arena *a = s->arena;
    int64_t apart = 1;
    for (int d = 0; d < SHARED_NAMES; d++) {
        int extent = s->grid->grid.cluster[d];
        if (extent <= 1) continue;
        Expr *place = e_mod(a, e_div(a, rank, e_int(a, apart)), e_int(a, extent));
        Expr *first = e_mul(a, e_var(a, clusters[d].var), e_int(a, extent));
        bind_iter(s, d, e_add(a, first, place), e_mul(a, clusters[d].end, e_int(a, extent)));
        apart *= extent;
    }
}

// Of clusters that may hang over the grid's end, whether the point is within it; NULL: all are.
static Expr *point_within(Scheduler *s, const Iter *own) {
    Arena *a = s->arena;
    Expr *within = NULL;
    for (int d = 0; d < SHARED_NAMES; d++) {
        int64_t extent = s->grid->grid.cluster[d];
        if (extent <= 1 || multiple_of(s->facts, own[d].end) % extent == 0) continue;
        Expr *below = e_lt(a, e_var(a, own[d].var), own[d].end);
        within = within ? e_and(a, within, below) : below;
    }
    return within;
}

// Its effect outlasts the block.
static bool is_seen(const Stmt *stmt, void *user) {
    EffectVec effects = {0};
    if (stmt->kind == STMT_CALL && (stmt->call.op == OP_PRINT || stmt->call.op == OP_ASSERT)) return true;
    stmt_effects(user, stmt, &effects);
    for (int i = 0; i < effects.count; i++)
        if (effects.items[i].buf && effects.items[i].buf->scope == SCOPE_GLOBAL &&
            effects.items[i].access != ACCESS_READ)
            return true;
    return false;
}

static void leave_beyond(Scheduler *s, Expr *within, Block *work) {
    for (int i = 0; within && i < work->count; i++) {
        Stmt *stmt = work->items[i];
        Block alone = {.items = &work->items[i], .count = 1, .capacity = 1};
        if (!block_any(&alone, is_seen, s->arena)) continue;
        Stmt *guard = s_if(s->arena, within);
        guard->loc = stmt->loc;
        block_push(s->arena, &guard->if_.then, stmt);
        work->items[i] = guard;
    }
}

static void flatten_shared(Scheduler *s) {
    static const char *const names[SHARED_NAMES] = {"cluster_row", "cluster_column"};
    Arena *a = s->arena;
    Stmt *grid = s->grid;
    int blocks = cluster_blocks(grid);
    Iter *own = grid->grid.iters, *clusters = arena_copy(a, own, sizeof *own * (size_t)grid->grid.count);
    for (int d = 0; d < SHARED_NAMES; d++) {
        if (grid->grid.cluster[d] <= 1) continue;
        clusters[d].var = var_new(a, names[d], VAR_ITER, TYPE_I64, grid->loc);
        clusters[d].end = e_call2(a, OP_CEILDIV, own[d].end, e_int(a, grid->grid.cluster[d]));
    }
    Var *block = var_new(a, "block", VAR_ITER, TYPE_I64, grid->loc);
    Expr *number = e_var(a, block), *size = e_int(a, blocks), *limit = e_int(a, s->context->target->max_grid);
    Block body = {0}, work = {0};
    split_declarations(a, &grid->grid.body, &body, &work);
    push_assume(s, e_lt(a, number, limit));
    Expr *raster = raster_of(s);   // of so many rows of points, as far as clusters go
    if (raster)
        grid->grid.raster =
            e_call2(a, OP_CEILDIV, raster, e_int(a, grid->grid.cluster[0] > 1 ? grid->grid.cluster[0] : 1));
    grid->grid.iters = clusters;
    Expr *points = e_mul(a, grid_points(s), size), *cluster = bind(s, "cluster", e_div(a, number, size));
    assume_within(s, cluster, limit);
    decompose(s, cluster);
    grid->grid.iters = own;
    bind_in_cluster(s, e_mod(a, number, size), clusters);
    leave_beyond(s, point_within(s, own), &work);
    block_append(a, &body, &s->top);
    block_append(a, &body, &work);
    grid->grid.body = body;
    set_iter(s, block, points);
    set_cluster(grid, blocks);
    grid->grid.persistent = false;
    drop_raster(grid);
}

static bool schedule_grid(PassContext *context, Func *kernel, Stmt *grid) {
    Scheduler s = {.context = context, .arena = context->arena, .grid = grid};
    s.facts = facts_new(context->arena, kernel);
    bool divided = divide_point(&s);
    Expr *points = grid_points(&s);
    int blocks = func_cluster(kernel);
    if (blocks > 1) {
        bool flattened = flatten_clusters(&s, kernel, points, blocks);
        grid->grid.persistent = false;
        drop_raster(grid);
        return flattened;
    }
    if (block_any(&kernel->body, is_shared, NULL)) return false;   // it has been here
    const char *apart = share_tiles(&s, kernel);
    bool shares = !apart, changed = shares || drop_cluster(&s, apart) || divided || has_raster(grid);
    const char *why;
    bool parted = can_specialize(context->arena, context->target, kernel,
                                 &why);   // warp-specialize makes its blocks persistent itself
    if (!shares && grid->grid.count > 1 && specialized_in_turn(context->arena, context->target, kernel))
        mark_streams(context->arena, context->target, grid);   // (what is shared has to come in one order)
    if (shares) {
        flatten_shared(&s);
        return true;
    }
    Trend trend = TREND_FLAT;
    s.stays = grid->grid.persistent && specialized_together(context->arena, context->target, kernel);
    s.persistent = grid->grid.persistent && !parted;
    if (s.persistent) make_persistent(&s, points);
    else if (grid->grid.count > 1 || (deciding_iter(&s, &trend) == 0 && (trend == TREND_UP || s.stays)))
        flatten(&s, points);
    else {
        drop_raster(grid);
        return changed;
    }
    grid->grid.persistent = false;
    drop_raster(grid);
    return true;
}

bool pass_schedule(PassContext *context, Func *kernel) {
    for (int i = 0; i < kernel->body.count; i++)
        if (kernel->body.items[i]->kind == STMT_GRID) return schedule_grid(context, kernel, kernel->body.items[i]);
    return false;
}
