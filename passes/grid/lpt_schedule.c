// LPT scheduling: longest processing time first, in L2-sized sections.
//
// When the work of tiles differs, as under a causal mask, the longest tiles start first, so that short ones fill the
// end. This applies where trip counts rise (or fall) with one name of the grid only: tiles are ordered by that name,
// last to first, then by the others. The other names are divided into sections whose tiles fit the L2 cache:
//
//     grid (m in M, h in H, b in B), trips rise with m, K[b, h, ...] and V[b, h, ...] read whole:
//         others = H * B      fit = L2 size / size of K[b, h] and V[b, h]      group = M * section_size
//         section_size = ceildiv(others, max(others / fit, 1)): equal sections
//         first = block / group * section_size, height = min(section_size, others - first): the last may be short
//         m = M - 1 - block % group / height,  other = first + block % group % height,  h = other % H,  b = other / H
//
// In persistent kernels that will be warp-specialized (`@lpt`) each CTA computes several tiles, in snake order: one
// tile of each wave, at the mirrored position in the next wave, so that the CTA with the longest tile of one wave gets
// the shortest of the next (persistent_loop.c). Each section begins with a new wave, and `shift` CTAs after the one
// before. If work depends on data too, the hardware scheduler balances better (seven sequences of 17 to 5000 tokens:
// 1.3 to 1.5 times as fast), and there are no sections.
#include "passes/grid/tile_scheduler.h"
#include "passes/specialize/warp_specialize.h"

// ---- trip counts ----

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

// Whether an integer rises or falls with the variable, with the others fixed.
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

// The trend of the CTA's trip counts along an iterator of the grid.
static Trend trend_of_trips(Scheduler *s, const Iter *iter) {
    Arena *arena = s->arena;
    Trends t = {.facts = s->facts, .lets = subst_new(arena), .data = map_new(arena), .var = iter->var};
    FOR_EACH_STMT (stmt, &s->grid->grid.body) {
        if (stmt->kind == STMT_LET) {
            bool known = !expr_is_stable(stmt->let.value) || subst_let(t.lets, stmt->let.var, stmt->let.value);
            if (!known || is_data(&t, stmt->let.value)) map_put(t.data, stmt->let.var, stmt->let.var);
        }
        if (is_loop(stmt, LOOP_SERIAL) || is_loop(stmt, LOOP_PIPELINED)) add_trips(&t, stmt);
    }
    s->by_data |= t.by_data;
    return t.trips;
}

int deciding_iter(Scheduler *s, Trend *trend) {
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

// ---- sections ----

// The data that all tiles of a section read repeatedly: regions indexed by the other names and not by `var`.
typedef struct Kept {
    Scheduler *s;
    const Var *var;
    Subst *lets;
    Map *seen, *chosen;   // tensors; names in their indices
    Expr *bytes;          // per combination of the other names
} Kept;

static void keep_region(Kept *kept, const Region *region) {
    Arena *a = kept->s->arena;
    const Stmt *grid = kept->s->grid;
    bool by_others = false;
    Expr *bytes = e_int(a, type_bytes(region->buf->type));
    for (int d = 0; d < region->count; d++)
        if (expr_uses_var(subst_expr(kept->lets, region->dims[d].start), kept->var)) return;
    for (int d = 0; d < region->count; d++) {
        const Expr *start = subst_expr(kept->lets, region->dims[d].start);
        bool chosen = false;
        for (int i = 0; i < grid->grid.count; i++) {
            Var *var = grid->grid.iters[i].var;
            if (!expr_uses_var(start, var)) continue;
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
    FOR_EACH_STMT (stmt, &kept->s->grid->grid.body)
        if (stmt->kind == STMT_LET) subst_let(kept->lets, stmt->let.var, stmt->let.value);
    FOR_EACH_EFFECT (effect, kept->s->arena, kept->s->grid) {
        const Region *region = effect->region;
        if (!region || effect->access != ACCESS_READ || region->buf->scope != SCOPE_GLOBAL) continue;
        if (!map_has(kept->seen, region->buf)) keep_region(kept, region);
    }
}

// Tiles of a wave of persistent CTAs start at the same time. Some of them should share their reads, or memory is too
// slow for all; and a section should have one tile per CTA.
static Expr *fit_round(Scheduler *s, Expr *fit, Expr *extent) {
    enum { SHARERS = 4 };
    int64_t blocks = s->context->target->multiprocessors, most = 1;
    EXPECT(s->context->failure, blocks > 0, "'%s' has no multiprocessors", s->context->target->name);
    while (most * 2 * SHARERS <= blocks) most *= 2;
    Expr *least = e_call2(s->arena, OP_CEILDIV, e_int(s->arena, blocks), extent);
    return e_max(s->arena, e_min(s->arena, fit, e_int(s->arena, most)), least);
}

// The number of combinations of the other names in a section: as many as fit L2, with space for streamed data, and at
// least two. Sections are equal if possible: a short last one would not fill the device. NULL: tiles share no reads.
static Expr *section_of(Scheduler *s, const Iter *iter, Expr *extent, Expr *others) {
    enum { LEAST = 2 };
    Arena *a = s->arena;
    if (s->by_data) return NULL;   // sections would be as unequal as their tiles
    Kept kept = {.s = s, .var = iter->var, .lets = subst_new(a), .seen = map_new(a), .chosen = map_new(a)};
    keep_regions(&kept);
    if (!kept.bytes) return NULL;
    for (int i = 0; i < s->grid->grid.count; i++) {   // tiles that differ in this name only read the same data
        const Iter *other = &s->grid->grid.iters[i];
        if (other->var != iter->var && !map_has(kept.chosen, other->var)) kept.bytes = e_div(a, kept.bytes, other->end);
    }
    Expr *room = e_int(a, s->context->target->l2_kept);
    Expr *bytes = e_max(a, e_min(a, kept.bytes, room), e_int(a, 1));   // larger than the cache: all of it
    Expr *fit = e_div(a, room, bytes);
    if (s->lpt) fit = fit_round(s, fit, extent);
    fit = bind_name(s, "fit", e_max(a, fit, e_int(a, LEAST)));
    assume_between(s, fit, e_int(a, LEAST), e_plus(a, e_max(a, room, e_int(a, LEAST)), 1));
    return e_call2(a, OP_CEILDIV, others, e_max(a, e_div(a, others, fit), e_int(a, 1)));
}

// number = quotient * divisor + rest, both as lets. A remainder would be a second division.
static void bind_division(Scheduler *s, Expr *number, Expr *divisor, const char *names[2], Expr **quotient,
                          Expr **rest) {
    Arena *a = s->arena;
    *quotient = bind_name(s, names[0], e_div(a, number, divisor));
    *rest = bind_name(s, names[1], e_sub(a, number, e_mul(a, *quotient, divisor)));
    assume_within(s, *rest, divisor);
}

// The level of the deciding iterator (longest first) and the number among the others, from a tile number, with sections
// if there are any. The assumptions keep divisions in 32 bits: the first loads of a CTA wait for them.
static Expr *split_by_sections(Scheduler *s, Expr *number, const Iter *iter, Expr *extent, Expr *others, Expr **other) {
    Arena *a = s->arena;
    Expr *most = e_int(a, s->context->target->max_grid), *one = e_int(a, 1);
    assume_between(s, others, one, most);   // a launch has at most so many CTAs
    Expr *section_size = section_of(s, iter, extent, others), *section, *inside, *level, *place;
    if (!section_size && s->lpt) section_size = others;
    if (!section_size) {
        bind_division(s, number, others, (const char *[]){"level", "other"}, &level, other);
        return level;
    }
    section_size = bind_name(s, "section_size", section_size);
    assume_between(s, section_size, one, most);
    Expr *group = bind_name(s, "group", e_mul(a, extent, section_size));
    assume_between(s, group, one, most);
    bind_division(s, number, group, (const char *[]){"section", "inside"}, &section, &inside);
    Expr *first = bind_name(s, "first", e_mul(a, section, section_size));
    Expr *height = bind_name(s, "height", e_min(a, section_size, e_sub(a, others, first)));
    assume_between(s, height, one, most);
    bind_division(s, inside, height, (const char *[]){"level", "place"}, &level, &place);
    *other = bind_name(s, "other", e_add(a, first, place));
    assume_within(s, *other, others);
    return level;
}

void bind_longest_first(Scheduler *s, Expr *number, int deciding, Trend trend) {
    Arena *a = s->arena;
    const Iter *iter = &s->grid->grid.iters[deciding];
    EXPECT(s->context->failure, trend == TREND_UP || trend == TREND_DOWN, "iterator %d has trend %d", deciding, trend);
    Expr *others = e_int(a, 1), *extent = bind_name(s, "extent", iter->end), *level = number, *other;
    for (int i = 0; i < s->grid->grid.count; i++)
        if (i != deciding) others = e_mul(a, others, s->grid->grid.iters[i].end);
    if (s->grid->grid.count > 1) {
        level = split_by_sections(s, number, iter, extent, bind_name(s, "others", others), &other);
        bind_iters(s, 0, deciding, other);
    }
    Expr *last = e_sub(a, extent, e_int(a, 1));
    bind_iter(s, deciding, trend == TREND_UP ? e_sub(a, last, level) : level, extent);
    if (s->lpt) attr_set_ints(a, &s->grid->attrs, ATTR_LPT, 0, NULL);
    REMARK(s->context, s->grid->loc, T_LONGEST_FIRST, trend == TREND_UP ? "last" : "first", iter->var->name);
}

bool tiles_balance(Arena *arena, const Func *kernel) {
    Scheduler s = {.arena = arena, .grid = (Stmt *)func_grid(kernel), .facts = facts_new(arena, kernel)};
    Trend trend;
    return !s.grid->grid.hilbert && !raster_of(&s) && deciding_iter(&s, &trend) >= 0 && !s.by_data;
}
