#include "layout/calculator/convert.h"
#include "layout/shared_way.h"
#include "layout/shuffle.h"
#include "support/vec.h"

enum { WARP = 32 };

static void print_kind(StrBuf *out, Conversion c) {
    static const char *const kinds[] = {"nothing moves", "in registers", "by shuffles", "through shared memory"};
    sb_str(out, kinds[c.kind]);
    if (c.kind == CONVERT_BY_SHUFFLES)
        sb_printf(out, ": %s%lld per thread", c.fewest ? "" : "at most ", (long long)c.shuffles);
}

// "lane 4 + register 1": the coordinates of the source whose bits `column` has.
static void print_place(StrBuf *out, Linear way, int in, int bit) {
    bool any = false;
    for (int o = 0; o < way.out_count; o++) {
        int64_t value = linear_basis(way, in, bit, o);
        if (value) sb_printf(out, "%s%s %lld", any ? " + " : "", way.outs[o].name, (long long)value);
        any |= value != 0;
    }
    if (!any) sb_str(out, "a copy");
}

static void print_bits(LayoutContext *cx, StrBuf *out, Linear source, Linear destination) {
    LayoutContext trial = layout_context(cx->arena);
    Linear way = linear_invert_and_compose(&trial, destination, source);
    if (trial.failed) way = linear_solve(cx, destination, source);
    for (int in = 0; in < way.in_count && !cx->failed; in++)
        for (int bit = 0; bit < way.ins[in].bits; bit++) {
            sb_printf(out, "\n    %s %lld from ", way.ins[in].name, 1LL << bit);
            print_place(out, way, in, bit);
        }
}

static void print_side(StrBuf *out, const char *what, const SharedSide *side) {
    static const char *const by[] = {"", " by matrices", " by transposed matrices"};
    sb_printf(out, "\n    %lld %s of %lld elements%s%s: %lld wavefronts each, %lld without conflicts",
              (long long)side->accesses, what, (long long)side->width,
              side->instruction == SHARED_VECTORS ? " a lane" : " a row", by[side->instruction],
              (long long)side->cost.wavefronts, (long long)side->cost.phases);
}

static void print_way(LayoutContext *cx, StrBuf *out, Linear source, Linear destination, int element_bits) {
    SharedWay way =
        shared_way(cx, source, destination, element_bits, (SharedMachine){nvidia_memory, true, true, false}, 1, 1);
    if (cx->failed) return;
    print_side(out, "stores", &way.store);
    print_side(out, "loads", &way.load);
    sb_str(out, "\n    in shared memory ");
    linear_print(out, way.shared);
}

static bool of_threads(Linear a) {
    static const char *const names[] = {"register", "lane", "warp"};
    int bits = 0, found = 0;
    for (int i = 0; i < a.in_count; i++) bits += a.ins[i].bits;
    for (int i = 0; i < COUNT_OF(names); i++) {
        int in = linear_find_in(a, names[i]);
        found += in >= 0;
        bits -= in < 0 ? 0 : a.ins[in].bits;
    }
    return found == COUNT_OF(names) && bits == 0;
}

// The other lanes that a lane takes something from: each is a round.
static int64_t lanes_met(const ShufflePlan *plan) {
    return ((int64_t)1 << bits_rank(plan->lane_step, plan->rounds)) - (plan->local >= 0);
}

// A shuffle moves a register of 32 bits: several elements that travel together, or half of one.
static void count_words(LayoutContext *cx, Conversion *c, Linear source, Linear destination, int element_bits) {
    enum { WORD = 32 };
    if (c->kind != CONVERT_BY_SHUFFLES || element_bits == WORD) return;
    int64_t least = (c->shuffles * element_bits + WORD - 1) / WORD;
    LayoutContext trial = layout_context(cx->arena);
    bool linear = of_threads(source) && of_threads(destination);
    ShufflePlan plan = {0};
    if (linear) plan = shuffle_plan_of_bits(&trial, source, destination, element_bits);
    if (linear && !trial.failed) {
        c->shuffles = shuffle_cost(&plan, element_bits).shuffles;
        if (lanes_met(&plan) > least) least = lanes_met(&plan);
    } else if (element_bits > WORD) {
        c->shuffles = least;
    }
    c->fewest = c->fewest && c->shuffles <= least;
}

static Conversion conversion_between(LayoutContext *cx, const ConvertSides *sides) {
    Conversion c;
    if (sides->from) {
        int64_t shape[LAYOUT_MAX_RANK];
        for (int o = 0; o < sides->from->rank_out && o < sides->to->rank_out; o++)
            shape[o] = sides->from->out_shape[o] < sides->to->out_shape[o] ? sides->from->out_shape[o]
                                                                           : sides->to->out_shape[o];
        c = conversion_of(cx, sides->from, sides->to, shape, WARP);
    } else {
        c = conversion_by_rank(cx, sides->source, sides->destination);
        if (!cx->failed && linear_equal(sides->source, sides->destination)) c.kind = CONVERT_NOTHING;
    }
    if (!cx->failed && sides->linear) count_words(cx, &c, sides->source, sides->destination, sides->element_bits);
    return c;
}

char *convert_text(LayoutContext *cx, const ConvertSides *sides, bool explain) {
    StrBuf out;
    sb_init(&out, cx->arena);
    Conversion c = conversion_between(cx, sides);
    if (cx->failed) return NULL;
    print_kind(&out, c);
    if (!explain || !sides->linear) return out.text;
    print_bits(cx, &out, sides->source, sides->destination);
    if (c.kind == CONVERT_BY_SHARED) print_way(cx, &out, sides->source, sides->destination, sides->element_bits);
    return out.text;
}

static const Layout *parse(LayoutContext *cx, const char *text) {
    const char *why = "";
    const Layout *layout = cx->failed ? NULL : layout_parse(cx->arena, text, 0, &why);
    if (!layout) layout_refuse(cx, "%s", why);
    return layout;
}

ConvertSides convert_sides(LayoutContext *cx, const char *source, const char *destination, int element_bits) {
    ConvertSides sides = {.element_bits = element_bits};
    const Layout *from = parse(cx, source), *to = parse(cx, destination);
    if (cx->failed) return sides;
    LayoutContext trial = layout_context(cx->arena);
    sides.from = from, sides.to = to;
    sides.source = distribution_to_linear(&trial, from, WARP);
    sides.destination = distribution_to_linear(&trial, to, WARP);
    sides.linear = !trial.failed;
    return sides;
}

// Of the same tile, cell by cell.
static void colour_by_source(Drawing *destination, const Drawing *source) {
    if (destination->rows != source->rows || destination->columns != source->columns) return;
    for (int i = 0; i < source->rows * source->columns; i++) destination->cells[i].colour = source->cells[i].colour;
}

int convert_draw(LayoutContext *cx, const ConvertSides *sides, Drawing *drawings) {
    int count = 0;
    Conversion c = conversion_between(cx, sides);
    if (cx->failed) return 0;
    bool linear = sides->linear;
    drawings[count++] =
        linear ? draw_linear(cx, sides->source)
               : draw_distribution(cx, layout_text(cx->arena, sides->from), sides->from, sides->from->out_shape);
    if (linear && c.kind == CONVERT_BY_SHARED) {
        SharedMachine machine = {nvidia_memory, true, true, false};
        SharedWay way = shared_way(cx, sides->source, sides->destination, sides->element_bits, machine, 1, 1);
        if (!cx->failed) drawings[count++] = draw_linear(cx, way.shared);
    }
    if (cx->failed) return 0;
    Drawing *last = &drawings[count++];
    *last = linear ? draw_linear(cx, sides->destination)
                   : draw_distribution(cx, layout_text(cx->arena, sides->to), sides->to, sides->to->out_shape);
    StrBuf how;
    sb_init(&how, cx->arena);
    print_kind(&how, c);
    if (!cx->failed) colour_by_source(last, &drawings[0]);
    last->caption = arena_printf(cx->arena, "%s; colours are those of the source's threads", sb_text(&how));
    return count;
}
