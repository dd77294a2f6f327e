// The layout of the passes: text, the worked swizzle example, inverses, distributions, against enumeration.
#include "layout/calculator/algebra.h"
#include "layout/calculator/tma.h"
#include "layout/distribution.h"
#include "tests/unit/unit.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Layout *parse(Arena *arena, const char *text, int bits) {
    const char *why = "no reason";
    const Layout *layout = layout_parse(arena, text, bits, &why);
    if (!layout) fail_msg("%s: %s", text, why);
    return layout;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int64_t pick(uint64_t *state, int64_t count) {
    return (int64_t)(next_random(state) % (uint64_t)count);
}

// The formulas of MakeFullBankSwizzleLayout2D for 16-bit elements.
static void the_worked_example(void **state) {
    const char *why = NULL;
    const Layout *layout = layout_bank_swizzle(*state, 256, 64, 16, 8, &why);
    assert_non_null(layout);
    assert_int_equal(layout->rank_out, 3);
    assert_int_equal(layout->out_shape[0], 1);
    assert_int_equal(layout->out_shape[1], 32);
    assert_int_equal(layout->out_shape[2], 512);
    for (int64_t i = 0; i < 256; i++)
        for (int64_t j = 0; j < 64; j++) {
            int64_t out[3], s = i % 8, c = j / 8 % 8;
            layout_eval(layout, (int64_t[]){i, j}, out);
            assert_int_equal(out[0], j / 8 / 8);
            assert_int_equal(out[1], i / 8);
            assert_int_equal(out[2], j % 8 + ((c ^ s) + s * 8) * 8);
            assert_int_equal(layout_linear(layout, (int64_t[]){i, j}), (out[0] * 32 + out[1]) * 512 + out[2]);
        }
    assert_true(layout_injective(layout));
    assert_string_equal(layout_text(*state, layout), "Sw<3,4,3> o ((8,32),(64,1)):((64@2,1@1),(1@2,1@0))");
    assert_true(layout_equal(layout, parse(*state, "Sw<3,4,3> o ((8,32),(8,8,1)):((64@2,1@1),(1@2,8@2,1@0))", 16)));
}

// Rows of golden/swizzle.tsv: kind rows cols bits i j tc,ts,index shape linear.
static void golden_bank_swizzles(void **state) {
    FILE *file = fopen(TILEC_SOURCE_DIR "/tests/golden/swizzle.tsv", "r");
    assert_non_null(file);
    char line[256], kind[16];
    int checked = 0, refused = 0;
    while (fgets(line, sizeof line, file)) {
        int64_t rows, columns, i, j, tc, ts, index, s0, s1, s2, linear;
        int bits;
        if (sscanf(line,
                   "%15s %" SCNd64 " %" SCNd64 " %d %" SCNd64 " %" SCNd64 " %" SCNd64 ",%" SCNd64 ",%" SCNd64
                   " %" SCNd64 ",%" SCNd64 ",%" SCNd64 " %" SCNd64,
                   kind, &rows, &columns, &bits, &i, &j, &tc, &ts, &index, &s0, &s1, &s2, &linear) != 13)
            continue;
        int chunks = strcmp(kind, "full") == 0 ? 8 : strcmp(kind, "half") == 0 ? 4 : 2;
        const char *why = NULL;
        const Layout *layout = layout_bank_swizzle(*state, rows, columns, bits, chunks, &why);
        if (!layout) {   // four rows and several panels: no swizzle of addresses
            assert_true(rows == 4 && s0 > 1 && why);
            refused++;
            continue;
        }
        int64_t out[3];
        layout_eval(layout, (int64_t[]){i, j}, out);
        assert_true(out[0] == tc && out[1] == ts && out[2] == index);
        assert_true(layout->out_shape[0] == s0 && layout->out_shape[1] == s1 && layout->out_shape[2] == s2);
        assert_int_equal(layout_linear(layout, (int64_t[]){i, j}), linear);
        checked++;
    }
    fclose(file);
    assert_true(checked > 1000);
    assert_true(refused > 0);
}

static void shapes_without_swizzle_are_refused(void **state) {
    const char *why = NULL;
    assert_null(layout_bank_swizzle(*state, 12, 64, 16, 8, &why));
    assert_string_equal(why, "12 rows are no multiple of 8");
    assert_null(layout_bank_swizzle(*state, 16, 96, 16, 8, &why));
    assert_string_equal(why, "96 columns are no multiple of 64");
    assert_null(layout_bank_swizzle(*state, 16, 96, 12, 8, &why));
}

static void text_round_trips(void **state) {
    const char *texts[] = {
        "8:1",
        "(4,8):(8,1)",
        "((4,8)):((8,1))",
        "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))",
        "((2,2),1):((0,1),0)",
        "Sw<3,4,3> o (64,64):(64,1)",
        "((4,8),(2,1)):((2@1,1@1),(1@1,1@0))",
        "(1,1,1):(0,0,0)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const Layout *layout = parse(*state, texts[i], 16);
        assert_string_equal(layout_text(*state, layout), texts[i]);
    }
    // Digits that continue each other are one; spaces and deeper nests do not matter.
    assert_string_equal(layout_text(*state, parse(*state, " ( (2, (2,2)) , 3 ) : ( (1,(2,4)) , 8 ) ", 16)),
                        "(8,3):(1,8)");
}

static void bad_text_says_why(void **state) {
    const struct {
        const char *text, *why;
    } cases[] = {
        {"", "syntax: expected a number at the end of the text"},
        {"(4,8)", "syntax: expected ':' at the end of the text"},
        {"(4,8):(1)", "shape and stride have different forms"},
        {"(4,8):(1,2", "syntax: expected ')' at the end of the text"},
        {"(0,8):(1,2)", "an extent below 1"},
        {"4:1 x", "syntax: expected the end at column 5, found 'x'"},
        {"4:1@9", "more than 8 outputs"},
        {"Sw<3,4> o 4:1", "syntax: expected ',' at column 7, found '> o 4:1'"},
        {"Sw<3,4,2> o 4:1", "swizzle: |S| is at least B, else source and target overlap"},
        {"Sw<3,1,3> o 64:1", "the swizzle would tear elements apart"},
        {"Sw<3,4,3> o (2,4):(1@0,1@1)", "the swizzle's period does not divide the last output"},
        {"99999999999999999999:1", "overflow: a number exceeds 2^62"},
        {"(1000000000,1000000000):(0,0)", "the layout is too large"},
        {"(1,1,1,1,1,1,1,1,1):0", "more than 8 inputs"},
        {"4:-1", "syntax: expected a number at column 3, found '-1'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = "none";
        assert_null(layout_parse(*state, cases[i].text, 64, &why));
        assert_string_equal(why, cases[i].why);
    }
}

// A random thread-value layout over `rank` outputs: a mixed-radix bijection with digits dealt to thread and value.
static const Layout *random_tv(Arena *arena, uint64_t *random, int rank) {
    Layout *tv = layout_new(arena, 2, rank);
    int64_t next[LAYOUT_MAX_RANK] = {1, 1, 1, 1};
    for (int digits = 1 + (int)pick(random, 7); digits > 0; digits--) {
        int out = (int)pick(random, rank);
        int64_t extent = 1 + pick(random, 5);
        layout_add(tv, (int)pick(random, 2), extent, next[out], out);
        next[out] *= extent;
    }
    if (pick(random, 3) == 0) layout_add(tv, 0, 2, 0, 0);
    return layout_finish(tv);
}

static void inverses_round_trip(void **state) {
    uint64_t random = 42;
    for (int trial = 0; trial < 300; trial++) {
        const Layout *tv = random_tv(*state, &random, 1 + trial % 3);
        LayoutContext cx = layout_context(*state);
        const Layout *inverse = layout_right_inverse(&cx, tv);
        assert_non_null(inverse);
        assert_true(layout_equal(parse(*state, layout_text(*state, tv), 0), tv));
        assert_true(layout_equal(parse(*state, layout_text(*state, inverse), 0), inverse));
        int64_t covered = 0;
        for (int64_t t = 0; t < layout_extent_in(tv, 0); t++)
            for (int64_t v = 0; v < layout_extent_in(tv, 1); v++) {
                int64_t at[LAYOUT_MAX_RANK], tv_back[2], again[LAYOUT_MAX_RANK];
                layout_eval(tv, (int64_t[]){t, v}, at);
                for (int k = 0; k < tv->rank_out; k++) assert_true(at[k] < tv->out_shape[k]);
                layout_eval(inverse, at, tv_back);
                layout_eval(tv, tv_back, again);
                assert_memory_equal(again, at, sizeof *at * (size_t)tv->rank_out);
                covered += tv_back[0] == t && tv_back[1] == v;
            }
        assert_int_equal(covered, layout_size_out(tv));   // each element has one first holder
        assert_int_equal(covered * tv_replicas(tv), layout_size_in(tv));
    }
}

static void gaps_have_no_inverse(void **state) {
    LayoutContext cx = layout_context(*state), swizzled = layout_context(*state);
    assert_null(layout_right_inverse(&cx, parse(*state, "(4,2):(1,8)", 0)));
    assert_string_equal(cx.reason, "output 0: after 4 elements the next digit has stride 8");
    assert_non_null(layout_right_inverse(&swizzled, parse(*state, "Sw<1,4,3> o (64,64):(64,1)", 8)));
}

static void injective_agrees_with_enumeration(void **state) {
    uint64_t random = 7;
    int yes = 0;
    for (int trial = 0; trial < 2000; trial++) {
        Layout *layout = layout_new(*state, 2, 1);
        for (int digits = 1 + (int)pick(&random, 4); digits > 0; digits--)
            layout_add(layout, (int)pick(&random, 2), 1 + pick(&random, 4), pick(&random, 10), 0);
        layout_finish(layout);
        char seen[256] = {0};
        bool injective = true;
        for (int64_t i = 0; i < layout_extent_in(layout, 0); i++)
            for (int64_t j = 0; j < layout_extent_in(layout, 1); j++) {
                int64_t out;
                layout_eval(layout, (int64_t[]){i, j}, &out);
                assert_true(out < layout->out_shape[0]);
                injective &= !seen[out];
                seen[out] = 1;
            }
        assert_int_equal(layout_injective(layout), injective);
        yes += injective;
    }
    assert_true(yes > 100);
    assert_true(layout_injective(parse(*state, "(1048576,1048576):(1,1048576)", 0)));
}

static void check_blocked(Arena *arena, int rank, const int64_t *shape, int64_t threads, int64_t vector) {
    const Layout *tv = tv_blocked(arena, rank, shape, threads, rank - 1, vector, 0);
    assert_int_equal(layout_extent_in(tv, 0), threads);
    LayoutContext cx = layout_context(arena);
    assert_non_null(layout_right_inverse(&cx, tv));   // each element once (or replicated whole)
    for (int k = 0; k < rank; k++) assert_true(tv->out_shape[k] >= shape[k]);
    for (int64_t v = 0; v + 1 < vector; v++) {
        int64_t a[LAYOUT_MAX_RANK], b[LAYOUT_MAX_RANK];
        layout_eval(tv, (int64_t[]){threads - 1, v}, a);
        layout_eval(tv, (int64_t[]){threads - 1, v + 1}, b);
        assert_int_equal(b[rank - 1], a[rank - 1] + 1);
    }
}

static void blocked_distributions_cover(void **state) {
    uint64_t random = 11;
    for (int trial = 0; trial < 500; trial++) {
        static const int64_t threads[] = {32, 64, 96, 128, 256, 384};
        int64_t shape[3] = {1 + pick(&random, 70), 1 + pick(&random, 70), 1 + pick(&random, 300)};
        int rank = 1 + trial % 3;
        check_blocked(*state, rank, shape + 3 - rank, threads[pick(&random, 6)], (int64_t)1 << pick(&random, 4));
    }
}

static void blocked_distributions_are_the_expected_ones(void **state) {
    const struct {
        int64_t shape[2], threads, vector;
        const char *text;
    } cases[] = {
        {{128, 64}, 128, 8, "((8,16),(8,8)):((8@1,1@0),(1@1,16@0))"},
        {{64, 200}, 128, 8, "((32,4),(8,16)):((8@1,1@0),(1@1,4@0))"},
        {{4, 8}, 128, 1, "((8,4,4),(1)):((1@1,1@0,0),(0))"},
        {{1, 1024}, 128, 4, "(128,(4,2,1)):(4@1,(1@1,512@1,1@0))"},
        {{1, 3072}, 192, 8, "(192,(8,2)):(8@1,(1@1,1536@1))"},   // 384 vectors: 128 threads divide them, 192 have work
        {{2, 3072}, 192, 8, "((64,3),(8,6,2)):((8@1,0),(1@1,512@1,1@0))"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Layout *tv = tv_blocked(*state, 2, cases[i].shape, cases[i].threads, 1, cases[i].vector, 0);
        assert_string_equal(layout_text(*state, tv), layout_text(*state, parse(*state, cases[i].text, 0)));
    }
}

static void stretches_are_blocked_by_groups(void **state) {
    static const struct {
        int64_t shape[2], threads, vector;
        const char *text;
    } cases[] = {
        {{1, 4096}, 256, 8, "((32,8),(8,2)):((8@1,512@1),(1@1,256@1))"},
        {{1, 4096}, 256, 1, "((32,8),16):((1@1,512@1),32@1)"},
        {{2, 1024}, 128, 4, "((32,2,2),(4,4)):((4@1,512@1,1@0),(1@1,128@1))"},
        {{1, 2048}, 256, 8, "(256,8):(8@1,1@1)"},                      // a block each: nothing to put side by side
        {{4, 1024}, 32, 8, "((8,4),(8,16)):((8@1,1@0),(1@1,64@1))"},   // no more threads than a group
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t fast = cases[i].threads / cases[i].shape[0];
        const Layout *tv = tv_blocked(*state, 2, cases[i].shape, cases[i].threads, 1, cases[i].vector, fast);
        const Layout *stretches = tv_in_stretches(*state, tv, 1, 32);
        LayoutContext cx = layout_context(*state);
        assert_string_equal(layout_text(*state, stretches), layout_text(*state, parse(*state, cases[i].text, 0)));
        assert_non_null(layout_right_inverse(&cx, stretches));
        assert_true(tv_threads(stretches) == tv_threads(tv) && tv_values(stretches) == tv_values(tv));
    }
}

static void a_dropped_dim_is_replicated(void **state) {
    const Layout *c = parse(*state, "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))", 0);
    const Layout *rows = tv_reduce(*state, c, 1);
    assert_string_equal(layout_text(*state, rows), "((4,8),2):((0,1),8)");
    assert_int_equal(tv_replicas(rows), 4);
    assert_false(layout_injective(rows));
    assert_string_equal(layout_text(*state, tv_reduce(*state, c, 0)), "((4,8),2):((2,0),1)");
    const Layout *scalar = tv_reduce(*state, rows, 0);
    assert_string_equal(layout_text(*state, scalar), "(32,1):(0,0)");
    assert_int_equal(scalar->out_shape[0], 1);
}

// The parts of a dim are the threads that lie along it: each in its own, and what is left of the dim stays with the
// others.
static void a_dim_in_pieces(void **state) {
    const Layout *c = parse(*state, "((4,8,2),(2,2)):((2@1,1@0,16@0),(1@1,8@0))", 0);
    assert_int_equal(tv_threads_along(c, 1), 4);
    assert_int_equal(tv_threads_along(c, 0), 16);
    assert_string_equal(layout_text(*state, tv_partial_reduce(*state, c, 1, 4)), "((4,8,2),2):((1@1,1@0,16@0),8@0)");
    assert_string_equal(layout_text(*state, tv_partial_reduce(*state, c, 1, 2)),
                        "((2,2,8,2),2):((1@1,0,1@0,16@0),8@0)");
    assert_string_equal(layout_text(*state, tv_partial_reduce(*state, c, 0, 16)), "((4,16),2):((2@1,1@0),1@1)");
    assert_null(tv_split_axis(*state, c, 1, 3));
    assert_null(tv_split_axis(*state, c, 1, 8));
    for (int axis = 0; axis < 2; axis++)
        for (int64_t pieces = 1; pieces <= tv_threads_along(c, axis); pieces *= 2) {
            const Layout *split = tv_split_axis(*state, c, axis, pieces);
            const Layout *after = tv_reduce(*state, tv_partial_reduce(*state, c, axis, pieces), axis);
            assert_string_equal(layout_text(*state, after), layout_text(*state, tv_reduce(*state, c, axis)));
            assert_int_equal(tv_threads_along(split, axis), tv_threads_along(c, axis) / pieces);
            assert_int_equal(tv_threads_along(split, 2), pieces);
            assert_true(layout_injective(split));
        }
}

static void plain_shared_layouts(void **state) {
    assert_string_equal(layout_text(*state, layout_row_major(*state, 3, (int64_t[]){2, 3, 4})), "(2,3,4):(12,4,1)");
    const Layout *padded = layout_padded(*state, 16, 30, 32);
    assert_string_equal(layout_text(*state, padded), "(16,30):(32,1)");
    assert_int_equal(layout_size_out(padded), 15 * 32 + 30);
}

static bool runs_by_enumeration(const Layout *layout, int64_t rows, int64_t columns, int64_t run) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t first = layout_linear(layout, (int64_t[]){i, j - j % run});
            if (first % run || layout_linear(layout, (int64_t[]){i, j}) != first + j % run) return false;
        }
    return true;
}

// NULL: its bytes are no whole number of periods.
static const Layout *under(Arena *arena, const Layout *plain, Swizzle swizzle, int element_bits) {
    Layout *layout = arena_copy(arena, plain, sizeof *plain);
    layout->swizzle = swizzle;
    layout->element_bits = element_bits;
    return layout_size_out(plain) * element_bits / 8 % layout_period(layout) == 0 ? layout : NULL;
}

static void runs_and_periods_agree_with_enumeration(void **state) {
    uint64_t random = 99;
    int kept = 0, torn = 0, refused = 0;
    for (int round = 0; round < 2000; round++) {
        int64_t rows = 8 << pick(&random, 3), columns = 16 << pick(&random, 3);
        int bits = 8 << pick(&random, 3), shift = 1 + (int)pick(&random, 4);
        const Layout *layout = layout_padded(*state, rows, columns, columns + pick(&random, 3) * 4);
        if (pick(&random, 2)) {
            Swizzle swizzle = {1 + (int)pick(&random, shift), 2 + (int)pick(&random, 4), shift};
            const Layout *swizzled = under(*state, layout, swizzle, bits);
            int64_t period = (int64_t)1 << (swizzle.bits + swizzle.base + swizzle.shift);
            refused += !swizzled;
            if (swizzled) assert_int_equal(layout_period(layout = swizzled), period);
        } else {
            assert_int_equal(layout_period(layout), 1);
        }
        for (int64_t run = 1; run <= 16; run *= 2) {
            bool keeps = layout_keeps_runs(layout, run);
            assert_int_equal(keeps, runs_by_enumeration(layout, rows, columns, run));
            kept += keeps;
            torn += !keeps;
        }
    }
    assert_true(kept > 1000 && torn > 1000 && refused > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(the_worked_example),
        IN_ARENA(golden_bank_swizzles),
        IN_ARENA(shapes_without_swizzle_are_refused),
        IN_ARENA(text_round_trips),
        IN_ARENA(bad_text_says_why),
        IN_ARENA(inverses_round_trip),
        IN_ARENA(gaps_have_no_inverse),
        IN_ARENA(injective_agrees_with_enumeration),
        IN_ARENA(blocked_distributions_cover),
        IN_ARENA(blocked_distributions_are_the_expected_ones),
        IN_ARENA(stretches_are_blocked_by_groups),
        IN_ARENA(a_dropped_dim_is_replicated),
        IN_ARENA(a_dim_in_pieces),
        IN_ARENA(plain_shared_layouts),
        IN_ARENA(runs_and_periods_agree_with_enumeration),
    };
    return run(tests);
}
