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
// With `@claim(static, snake)` each CTA computes several tiles, in snake order: one
// tile of each wave, at the mirrored position in the next wave, so that the CTA with the longest tile of one wave gets
// the shortest of the next (persistent_loop.c). Each section begins with a new wave, and `shift` CTAs after the one
// before. If work depends on data too, the hardware scheduler balances better (seven sequences of 17 to 5000 tokens:
// 1.3 to 1.5 times as fast), and there are no sections.
#include "passes/grid/tile_scheduler.h"
#include "support/numbers.h"

// ---- sections ----

// Tiles of a wave of persistent CTAs start at the same time. Some of them should share their reads, or memory is too
// slow for all; and a section should have one tile per CTA.
static Expr *fit_round(Scheduler *s, Expr *fit, Expr *extent) {
    int64_t blocks = s->context->target->multiprocessors, sharers = s->context->target->l2_sharers, most = 1;
    EXPECT(s->context->failure, blocks > 0, "'%s' has no multiprocessors", s->context->target->name);
    while (most * 2 * sharers <= blocks) most *= 2;
    Expr *least = e_call2(s->arena, OP_CEILDIV, e_int(s->arena, blocks), extent);
    return e_max(s->arena, e_min(s->arena, fit, e_int(s->arena, most)), least);
}

// CTAs that come to tiles one by one read what others have read a moment before. More of them than `l2_sharers` gain nothing: they wait
// for the same lines, and a section ends more often.
static Expr *fit_claimed(Scheduler *s, Expr *fit) {
    int64_t sharers = s->context->target->l2_sharers, least = ceil_div(s->context->target->multiprocessors, sharers);
    return e_max(s->arena, fit, e_int(s->arena, least));
}

// The number of combinations of the other names in a section: as many as fit L2, with space for streamed data, and at
// least two. Sections are equal if possible: a short last one would not fill the device. NULL: tiles share no reads.
static Expr *section_of(Scheduler *s, const Iter *iter, Expr *extent, Expr *others) {
    enum { LEAST = 2 };
    Arena *a = s->arena;
    Expr *reread =
        s->order.kind == ORDER_SECTIONS ? bytes_read_again(a, s->grid, iter, s->context->target->l2_added) : NULL;
    if (!reread) return NULL;
    Expr *room = e_int(a, s->context->target->l2_kept);
    Expr *bytes = e_max(a, e_min(a, reread, room), e_int(a, 1));   // larger than the cache: all of it
    Expr *fit = e_div(a, room, bytes);
    if (s->snake) fit = fit_round(s, fit, extent);
    else if (grid_claim(s->grid).kind == CLAIM_DYNAMIC) fit = fit_claimed(s, fit);
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
    if (!section_size && s->snake) section_size = others;
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

void bind_longest_first(Scheduler *s, Expr *number) {
    Arena *a = s->arena;
    int deciding = s->order.iter;
    const Iter *iter = &s->grid->grid.iters[deciding];
    Expr *others = e_int(a, 1), *extent = bind_name(s, "extent", iter->end), *level = number, *other;
    for (int i = 0; i < s->grid->grid.count; i++)
        if (i != deciding) others = e_mul(a, others, s->grid->grid.iters[i].end);
    if (s->grid->grid.count > 1) {
        level = split_by_sections(s, number, iter, extent, bind_name(s, "others", others), &other);
        bind_iters(s, 0, deciding, other);
    }
    Expr *last = e_sub(a, extent, e_int(a, 1));
    bind_iter(s, deciding, s->order.last ? e_sub(a, last, level) : level, extent);
    REMARK(s->context, s->grid->loc, T_LONGEST_FIRST, s->order.last ? "last" : "first", iter->var->name);
}
