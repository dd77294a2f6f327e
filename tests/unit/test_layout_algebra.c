// The algebra of layouts against enumeration: on random layouts of powers of two, of digits and of XORed bits, and of
// other extents. What an operation gives must be right at every coordinate; what it refuses is counted, and refused
// rightly where the definition allows to say so.
#include "layout/calculator/algebra.h"
#include "tests/unit/random.h"
#include "tests/unit/unit.h"
#include <string.h>

enum { ROUNDS = 4000, MOST = 1 << 12 };
typedef enum { BITS, BINARY_DIGITS, DIGITS, FORMS } Form;

// ---- random layouts ----

static const Layout *random_bits(Arena *arena, int rank_in, int rank_out, int most_bits) {
    LayoutBits bits = {0};
    int count = 0, reach = 1 + (int)below(4);
    for (int i = 0; i < rank_in; i++) bits.in[i] = (int)below(1 + most_bits / rank_in), count += bits.in[i];
    for (int bit = 0; bit < count; bit++)
        for (int o = 0; o < rank_out; o++) bits.images[bit][o] = below(3) ? below((int64_t)1 << reach) : 0;
    return layout_of_bits(arena, rank_in, rank_out, &bits, 0);
}

// Mostly digits that follow each other, so that operations have something to find; sometimes broadcasts, gaps, sums.
static const Layout *random_digits(Arena *arena, int rank_in, int rank_out, bool binary) {
    Layout *layout = layout_new(arena, rank_in, rank_out);
    int64_t next[LAYOUT_MAX_RANK] = {1, 1, 1}, size = 1;
    for (int digits = (int)below(6); digits > 0; digits--) {
        int out = (int)below(rank_out);
        int64_t extent = binary ? (int64_t)1 << below(3) : 1 + below(5);
        if ((size *= extent) > MOST) break;
        if (!below(6)) next[out] *= binary ? 2 : 1 + below(3);
        int64_t stride = below(8) ? next[out] : below(2) ? 0 : 1 + below(4);
        layout_add(layout, (int)below(rank_in), extent, stride, out);
        if (stride) next[out] = stride * extent;
    }
    return layout_finish(layout);
}

static const Layout *random_layout(Arena *arena, Form form, int rank_in, int rank_out) {
    return form == BITS ? random_bits(arena, rank_in, rank_out, 8)
                        : random_digits(arena, rank_in, rank_out, form == BINARY_DIGITS);
}

// ---- enumeration ----

static void coordinates(const Layout *a, int64_t n, int64_t *in) {
    for (int i = 0; i < a->rank_in; n /= layout_extent_in(a, i++)) in[i] = n % layout_extent_in(a, i);
}

static void at(const Layout *a, int64_t n, int64_t *out) {
    int64_t in[LAYOUT_MAX_RANK];
    coordinates(a, n, in);
    layout_eval(a, in, out);
}

static bool same(const int64_t *a, const int64_t *b, int count) {
    return !memcmp(a, b, sizeof *a * (size_t)count);
}

static bool inside(const Layout *a, const int64_t *at) {
    for (int i = 0; i < a->rank_in; i++)
        if (at[i] >= layout_extent_in(a, i)) return false;
    return true;
}

// ---- the operations ----

typedef struct Tally {
    int made[FORMS], refused[FORMS];
} Tally;

static bool counted(Tally *tally, Form form, const LayoutContext *cx, const Layout *result) {
    assert_int_equal(cx->failed, result == NULL);
    tally->made[form] += result != NULL;
    tally->refused[form] += result == NULL;
    return result != NULL;
}

static void enough(const Tally *tally) {
    for (int form = 0; form < FORMS; form++) assert_true(tally->made[form] > ROUNDS / 50);
}

static void composition(void **state) {
    Tally tally = {0};
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state);
        int ranks[] = {1 + (int)below(2), 1 + (int)below(2), 1 + (int)below(3)};
        const Layout *inner = random_layout(*state, form, ranks[0], ranks[1]),
                     *outer = random_layout(*state, form, ranks[1], ranks[2]),
                     *both = layout_compose(&cx, outer, inner);
        bool fits = true;
        for (int64_t n = 0; n < layout_size_in(inner); n++) {
            int64_t middle[LAYOUT_MAX_RANK], wanted[LAYOUT_MAX_RANK], got[LAYOUT_MAX_RANK];
            at(inner, n, middle);
            fits = fits && inside(outer, middle);
            layout_eval(outer, middle, wanted);
            if (both) at(both, n, got);
            if (both) assert_true(same(wanted, got, ranks[2]));
        }
        assert_true(!both || fits);
        if (form == BITS) assert_int_equal(both != NULL, fits);   // never refused for want of a form
        if (fits) counted(&tally, form, &cx, both);
    }
    enough(&tally);
}

static bool reaches_all(const Layout *a) {
    unsigned char seen[MOST * 64] = {0};
    int64_t in[LAYOUT_MAX_RANK], count = 0, size = layout_size_out(a);
    if (size > MOST * 64) return false;
    for (int64_t n = 0; n < layout_size_in(a); n++) {
        coordinates(a, n, in);
        unsigned char *place = &seen[layout_linear(a, in)];
        count += !*place;
        *place = 1;
    }
    return count == size;
}

static void right_inverse(void **state) {
    Tally tally = {0};
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state);
        const Layout *a = random_layout(*state, form, 1 + (int)below(2), 1 + (int)below(2)),
                     *inverse = layout_right_inverse(&cx, a);
        bool all = reaches_all(a);
        assert_true(!inverse || all);
        if (form == BITS) assert_int_equal(inverse != NULL, all);
        if (all) counted(&tally, form, &cx, inverse);
        for (int64_t n = 0; inverse && n < layout_size_out(a); n++) {
            int64_t y[LAYOUT_MAX_RANK], x[LAYOUT_MAX_RANK], back[LAYOUT_MAX_RANK], rest = n;
            for (int o = 0; o < a->rank_out; rest /= a->out_shape[o++]) y[o] = rest % a->out_shape[o];
            layout_eval(inverse, y, x);
            layout_eval(a, x, back);
            assert_true(inside(a, x) && same(back, y, a->rank_out));
        }
    }
    enough(&tally);
}

static int64_t number_of(const Layout *a, const int64_t *in) {
    int64_t n = 0;
    for (int i = a->rank_in - 1; i >= 0; i--) n = n * layout_extent_in(a, i) + in[i];
    return n;
}

static bool no_two_meet(const Layout *a) {
    int64_t x[LAYOUT_MAX_RANK], y[LAYOUT_MAX_RANK], size = layout_size_in(a);
    for (int64_t n = 0; n < size; n++)
        for (int64_t m = 0; m < n; m++) {
            at(a, n, x);
            at(a, m, y);
            if (same(x, y, a->rank_out)) return false;
        }
    return true;
}

static void left_inverse(void **state) {
    Tally tally = {0};
    for (int round = 0; round < ROUNDS / 4; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state);
        const Layout *a = random_layout(*state, form, 1 + (int)below(2), 1 + (int)below(2));
        if (layout_size_in(a) > 256) continue;
        const Layout *inverse = layout_left_inverse(&cx, a);
        bool injective = no_two_meet(a);
        assert_int_equal(layout_injective(a), injective);
        assert_true(!inverse || injective);
        if (form == BITS) assert_int_equal(inverse != NULL, injective);
        if (injective) counted(&tally, form, &cx, inverse);
        for (int64_t n = 0; inverse && n < layout_size_in(a); n++) {
            int64_t y[LAYOUT_MAX_RANK], x[LAYOUT_MAX_RANK];
            at(a, n, y);
            layout_eval(inverse, y, x);
            assert_true(inside(a, x) && number_of(a, x) == n);
        }
    }
    for (int form = 0; form < FORMS; form++) assert_true(tally.made[form] > 20);
}

static bool has_value(const Layout *a, const int64_t *value) {
    int64_t out[LAYOUT_MAX_RANK];
    for (int64_t n = 0; n < layout_size_in(a); n++) {
        at(a, n, out);
        if (same(out, value, a->rank_out)) return true;
    }
    return false;
}

static void invert_and_compose(void **state) {
    Tally tally = {0};
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state);
        int rank_out = 1 + (int)below(2);
        const Layout *outer = random_layout(*state, form, 1 + (int)below(2), rank_out), *a;
        if (layout_size_in(outer) > 256) continue;
        // half of the time one that has only values of `outer`
        const Layout *inner = random_layout(*state, form, 1, outer->rank_in);
        LayoutContext trial = layout_context(*state);
        a = below(4) ? layout_compose(&trial, outer, inner) : random_layout(*state, form, 1, rank_out);
        if (!a || layout_size_in(a) > 256) continue;
        const Layout *way = layout_invert_and_compose(&cx, a, outer);
        bool all = true;
        for (int64_t n = 0; n < layout_size_in(a); n++) {
            int64_t value[LAYOUT_MAX_RANK], place[LAYOUT_MAX_RANK], back[LAYOUT_MAX_RANK];
            at(a, n, value);
            all = all && has_value(outer, value);
            if (way) layout_eval(way, &n, place);
            if (way) layout_eval(outer, place, back);
            if (way) assert_true(inside(outer, place) && same(back, value, rank_out));
        }
        assert_true(!way || all);
        if (form == BITS) assert_int_equal(way != NULL, all);
        if (all) counted(&tally, form, &cx, way);
    }
    enough(&tally);
}

// product(a, b) at (x + |a| y) is a(x) + range(a) b(y), in each input and output.
static void check_product(const Layout *a, const Layout *b, const Layout *both) {
    for (int64_t n = 0; n < layout_size_in(a); n++)
        for (int64_t m = 0; m < layout_size_in(b); m++) {
            int64_t x[LAYOUT_MAX_RANK], y[LAYOUT_MAX_RANK], of_x[LAYOUT_MAX_RANK], of_y[LAYOUT_MAX_RANK],
                got[LAYOUT_MAX_RANK];
            coordinates(a, n, x);
            coordinates(b, m, y);
            layout_eval(a, x, of_x);
            layout_eval(b, y, of_y);
            for (int i = 0; i < a->rank_in; i++) x[i] += layout_extent_in(a, i) * y[i];
            for (int o = 0; o < a->rank_out; o++) of_x[o] += a->out_shape[o] * of_y[o];
            layout_eval(both, x, got);
            assert_true(same(of_x, got, a->rank_out));
        }
}

static void product_and_quotient(void **state) {
    Tally products = {0}, quotients = {0};
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state), other = layout_context(*state), third = layout_context(*state);
        int rank_in = 1 + (int)below(2), rank_out = 1 + (int)below(2);
        const Layout *a = random_layout(*state, form, rank_in, rank_out),
                     *b = random_layout(*state, form, rank_in, rank_out), *both = layout_product(&cx, a, b);
        if (layout_size_in(a) * layout_size_in(b) > MOST) continue;
        if (!counted(&products, form, &cx, both)) continue;
        check_product(a, b, both);
        const Layout *rest = layout_divide(&other, both, a);
        if (counted(&quotients, form, &other, rest)) check_product(a, rest, both);
        assert_non_null(rest);
        // by something else: only if it is a product
        const Layout *c = random_layout(*state, form, rank_in, rank_out), *maybe = layout_divide(&third, both, c);
        if (maybe) check_product(c, maybe, both);
    }
    enough(&products);
    enough(&quotients);
}

static int64_t different_values(const Layout *a) {
    int64_t different = 0, x[LAYOUT_MAX_RANK], y[LAYOUT_MAX_RANK];
    for (int64_t n = 0; n < layout_size_in(a); n++) {
        bool before = false;
        at(a, n, x);
        for (int64_t m = 0; m < n && !before; m++) {
            at(a, m, y);
            before = same(x, y, a->rank_out);
        }
        different += !before;
    }
    return different;
}

static void image_and_kernel(void **state) {
    Tally tally = {0};
    for (int round = 0; round < ROUNDS / 2; round++) {
        Form form = (Form)(round % FORMS);
        LayoutContext cx = layout_context(*state), other = layout_context(*state);
        const Layout *a = random_layout(*state, form, 1 + (int)below(2), 1 + (int)below(2));
        if (layout_size_in(a) > 256) continue;
        const Layout *image = layout_image(&cx, a), *kernel = layout_kernel(&other, a);
        assert_true(form != BITS || (image && kernel));
        if (!counted(&tally, form, &cx, image) || !kernel) continue;
        int64_t value[LAYOUT_MAX_RANK], zero[LAYOUT_MAX_RANK] = {0}, change[LAYOUT_MAX_RANK];
        assert_int_equal(layout_size_in(image), different_values(a));
        assert_int_equal(layout_size_in(image) * layout_size_in(kernel), layout_size_in(a));
        assert_true(no_two_meet(image) && no_two_meet(kernel));
        for (int64_t n = 0; n < layout_size_in(image); n++) {
            at(image, n, value);
            assert_true(has_value(a, value));
        }
        for (int64_t n = 0; n < layout_size_in(kernel); n++) {
            at(kernel, n, change);
            layout_eval(a, change, value);
            assert_true(inside(a, change) && same(value, zero, a->rank_out));
        }
    }
    enough(&tally);
}

// Equal as maps: what is printed and read again, and what another form would say, is the same layout; one changed value
// is seen.
static void equality_and_text(void **state) {
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        const char *why = "";
        int rank_in = 1 + (int)below(2), rank_out = 1 + (int)below(2);
        const Layout *a = random_layout(*state, form, rank_in, rank_out),
                     *b = random_layout(*state, form, rank_in, rank_out);
        const Layout *again = layout_parse(*state, layout_text(*state, a), 0, &why);
        assert_true(again && layout_equal(a, again));
        assert_string_equal(layout_text(*state, a), layout_text(*state, again));
        bool extents = true, values = true;
        for (int i = 0; i < rank_in; i++) extents &= layout_extent_in(a, i) == layout_extent_in(b, i);
        for (int64_t n = 0; extents && n < layout_size_in(a); n++) {
            int64_t x[LAYOUT_MAX_RANK], y[LAYOUT_MAX_RANK];
            at(a, n, x);
            at(b, n, y);
            values &= same(x, y, rank_out);
        }
        assert_int_equal(layout_same_map(a, b), extents && values);
    }
}

static const Layout *parse(Arena *arena, const char *text, int bits) {
    const char *why = "no reason";
    const Layout *layout = layout_parse(arena, text, bits, &why);
    if (!layout) fail_msg("%s: %s", text, why);
    return layout;
}

static void normal_form(void **state) {
    static const struct {
        const char *text, *normal;
        int bits;
    } cases[] = {
        {"linear([1,2,4,8])", "16:1", 0},
        {"linear([(0,1),(8,0)],[(0,2),(0,4),(1,0),(2,0),(4,0)])", "((2,2),(4,8)):((1@1,8@0),(2@1,1@0))", 0},
        {"linear([1,2,0],[4])", "((4,2),2):((1,0),4)", 0},
        {"linear([3,1])", "linear([3,1])", 0},
        // rows of 128 bytes of 16-bit elements, the full bank swizzle
        {"linear([72,144,288,512],[1,2,4,8,16,32])", "Sw<3,4,3> o (16,64):(64,1)", 16},
        {"linear([72,144,288,512],[1,2,4,8,16,32])", "linear([72,144,288,512],[1,2,4,8,16,32])", 0},
        {"linear([])", "1:0", 0},
        {"linear([3,1]%,[4])", "linear([3,1]%,[4])", 0},
        {"((2,2%),8):((16,8),1)", "((2,2%),8):((16,8),1)", 0},
        {"(4%,8):(8,1)", "(4%,8):(8,1)", 0},
        {"linear([8,16]%,[1,2,4])", "(4%,8):(8,1)", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(layout_text(*state, parse(*state, cases[i].text, cases[i].bits)), cases[i].normal);
    // Two texts of one map.
    assert_true(layout_same_map(parse(*state, "Sw<3,4,3> o (16,64):(64,1)", 16),
                                parse(*state, "linear([72,144,288,512],[1,2,4,8,16,32])", 0)));
    assert_false(layout_same_map(parse(*state, "Sw<3,4,3> o (16,64):(64,1)", 16),
                                 parse(*state, "linear([72,144,288,514],[1,2,4,8,16,32])", 0)));
    assert_int_equal(layout_linear(parse(*state, "(4%,8):(8,1)", 0), (int64_t[]){6, 3}), 2 * 8 + 3);
    assert_int_equal(layout_linear(parse(*state, "(4,8):(8,1)", 0), (int64_t[]){6, 3}), 6 * 8 + 3);
}

static void a_ring_through_slots(void **state) {
    LayoutContext cx = layout_context(*state);
    const Layout *slots = parse(*state, "(4%,8):(8,1)", 0), *steps = parse(*state, "(16,8):(1@0,1@1)", 0);
    const Layout *all = layout_compose(&cx, slots, steps);
    assert_string_equal(layout_text(*state, all), "((4,4),8):((8,0),1)");
}

static void bad_texts(void **state) {
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"linear([1,(2,3)])", "images of different ranks"},
        {"linear([1,2)", "syntax: expected ']' at column 12, found ')'"},
        {"linear(1,2)", "syntax: expected '[' at column 8, found '1,2)'"},
        {"linear([2000000000000])", "the number 2000000000000 is too large"},
        {"linear([(1048576,1048576)])", "the layout is too large"},
        {"linear([1,3]:2)", "2 bits for 2 coordinates"},
        {"linear([1,3]:5)", "2 bits for 5 coordinates"},
        {"linear(([1,3]:3%,[4]))", "the mark of a ring is behind its last digit"},
        {"linear(([1,3]:3,[4])", "syntax: expected ')' at the end of the text"},
        {"(4%,8%):(8,1) x", "syntax: expected the end at column 15, found 'x'"},
        {"((2%,2),8):((16,8),1)", "the mark of a ring is behind its last extent"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = "none";
        assert_null(layout_parse(*state, cases[i].text, 64, &why));
        assert_string_equal(why, cases[i].why);
    }
}

// A cut map is the whole one on a smaller box; its ranges are those of the box.
static void cuts(void **state) {
    for (int round = 0; round < ROUNDS; round++) {
        const Layout *whole = random_layout(*state, BITS, 2, 1 + (int)below(2)), *cut, *again;
        int64_t extents[2], range[2] = {0, 0}, of_whole[LAYOUT_MAX_RANK], of_cut[LAYOUT_MAX_RANK];
        const char *why = "";
        for (int i = 0; i < 2; i++)
            extents[i] = layout_extent_in(whole, i) - (int64_t)below((int)(layout_extent_in(whole, i) + 1) / 2);
        if (!whole->bits) continue;
        cut = layout_cut(*state, whole, extents);
        for (int64_t i = 0; i < extents[0]; i++)
            for (int64_t j = 0; j < extents[1]; j++) {
                layout_eval(whole, (int64_t[]){i, j}, of_whole);
                layout_eval(cut, (int64_t[]){i, j}, of_cut);
                for (int o = 0; o < whole->rank_out; o++) {
                    assert_int_equal(of_cut[o], of_whole[o]);
                    if (of_cut[o] >= range[o]) range[o] = of_cut[o] + 1;
                }
            }
        for (int o = 0; o < whole->rank_out; o++) assert_int_equal(cut->out_shape[o], range[o]);
        again = layout_parse(*state, layout_text(*state, cut), 0, &why);
        if (!again) fail_msg("%s: %s", layout_text(*state, cut), why);
        assert_true(layout_equal(cut, again));
    }
}

// Digits of any extents, whose bits have images: places of their own in order, or any.
static LayoutBits bits_of_digits(LayoutInput *digits, bool in_order) {
    LayoutBits bits = {0};
    int count = 0;
    for (int i = 0; i < 2; i++) {
        digits[i].count = 1 + (int)below(3);
        for (int d = 0; d < digits[i].count; d++) {
            digits[i].modes[d].extent = 2 + (int64_t)below(6);
            for (int bit = 0; bit < log2_above(digits[i].modes[d].extent); bit++, bits.in[i]++, count++)
                bits.images[count][0] = in_order ? (int64_t)1 << (count + 2) : 1 + (int64_t)below(1 << 10);
        }
    }
    return bits;
}

static int64_t place_in_digits(const LayoutBits *bits, const LayoutInput *digits, const int64_t *in) {
    int64_t place = 0;
    for (int i = 0, bit = 0; i < 2; i++) {
        int64_t rest = in[i];
        for (int d = 0; d < digits[i].count; rest /= digits[i].modes[d++].extent)
            for (int b = 0; b < log2_above(digits[i].modes[d].extent); b++, bit++)
                if (rest % digits[i].modes[d].extent >> b & 1) place ^= bits->images[bit][0];
    }
    return place;
}

static void several_digits(void **state) {
    int linear = 0;
    for (int round = 0; round < ROUNDS; round++) {
        LayoutInput digits[2] = {0};
        LayoutBits bits = bits_of_digits(digits, round % 2);
        const Layout *a = layout_of_digits(*state, 2, 1, &bits, digits, 0), *again;
        const char *why = "";
        int64_t range = 0, place, in[2], run = (int64_t)2 << below(2);
        bool keeps = layout_extent_in(a, 1) % run == 0;
        for (in[0] = 0; in[0] < layout_extent_in(a, 0); in[0]++)
            for (in[1] = 0; in[1] < layout_extent_in(a, 1); in[1]++) {
                layout_eval(a, in, &place);
                assert_int_equal(place, place_in_digits(&bits, digits, in));
                if (place >= range) range = place + 1;
                int64_t first = layout_linear(a, (int64_t[]){in[0], in[1] / run * run});
                keeps = keeps && first % run == 0 && place == first + in[1] % run;
            }
        assert_int_equal(a->out_shape[0], range);
        if (layout_keeps_runs(a, run)) assert_true(keeps);
        again = layout_parse(*state, layout_text(*state, a), 0, &why);
        if (!again) fail_msg("%s: %s", layout_text(*state, a), why);
        assert_true(layout_equal(a, again));
        linear += a->bits && a->in[0].count > 1;
    }
    assert_true(linear > ROUNDS / 5 && linear < ROUNDS);
}

// Runs: what the function promises, and that it is not told of what has none.
static void runs(void **state) {
    int kept = 0;
    for (int round = 0; round < ROUNDS; round++) {
        Form form = (Form)(round % FORMS);
        const Layout *a = random_layout(*state, form, 2, 1 + (int)below(2));
        int64_t run = (int64_t)2 << below(2), fast = layout_extent_in(a, 1);
        bool keeps = fast % run == 0;
        for (int64_t n = 0; keeps && n < layout_size_in(a); n++) {
            int64_t in[2], first;
            coordinates(a, n, in);
            first = layout_linear(a, (int64_t[]){in[0], in[1] / run * run});
            keeps = first % run == 0 && layout_linear(a, in) == first + in[1] % run;
        }
        if (layout_keeps_runs(a, run)) assert_true(keeps);
        if (form == BITS && a->bits && keeps && a->rank_out == 1) assert_true(layout_keeps_runs(a, run));
        kept += layout_keeps_runs(a, run);
    }
    assert_true(kept > 20);
}

// Sets: the places of a run are a run, in the same order for all.
static void sets(void **state) {
    Arena *arena = *state;
    const char *why;
    static const struct {
        const char *text;
        int64_t run;
        bool kept;
    } cases[] = {{"((8),(2,4,2,12)):((192),(1,4,2,16))", 16, true},
                 {"((8),(2,4,2,12)):((192),(1,4,2,16))", 2, true},
                 {"((8),(2,4,2,12)):((192),(1,4,2,16))", 8, false},
                 {"((8),(2,4,2,12)):((192),(1,4,2,16))", 32, false},
                 {"((8),(4,4)):((16),(2,8))", 4, false},
                 {"((8),(4,4)):((16),(4,1))", 16, true},
                 {"((8),(64)):((64),(1))", 16, true},
                 {"((8),(4,4)):((20),(4,1))", 16, false}};
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        const Layout *layout = layout_parse(arena, cases[i].text, 0, &why);
        assert_non_null(layout);
        assert_int_equal(layout_keeps_sets(layout, cases[i].run), cases[i].kept);
    }
    int kept = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const Layout *a = random_layout(arena, (Form)(round % FORMS), 2, 1 + (int)below(2));
        int64_t run = (int64_t)2 << below(2);
        if (!layout_keeps_sets(a, run)) continue;
        kept++;
        for (int64_t n = 0; n < layout_size_in(a); n++) {
            int64_t in[2], zero[2] = {0, 0};
            coordinates(a, n, in);
            int64_t first = layout_linear(a, (int64_t[]){in[0], in[1] / run * run});
            int64_t within = layout_linear(a, (int64_t[]){0, in[1] % run}) - layout_linear(a, zero);
            assert_true(first % run == 0 && within >= 0 && within < run && layout_linear(a, in) == first + within);
        }
    }
    assert_true(kept > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(composition),
        IN_ARENA(sets),
        IN_ARENA(right_inverse),
        IN_ARENA(left_inverse),
        IN_ARENA(invert_and_compose),
        IN_ARENA(product_and_quotient),
        IN_ARENA(image_and_kernel),
        IN_ARENA(equality_and_text),
        IN_ARENA(normal_form),
        IN_ARENA(a_ring_through_slots),
        IN_ARENA(bad_texts),
        IN_ARENA(cuts),
        IN_ARENA(several_digits),
        IN_ARENA(runs),
    };
    return run(tests);
}
