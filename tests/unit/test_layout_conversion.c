// Conversions between distributions against enumeration of all threads and values: bits in any order and XORed, and tiles
// of other extents; ways through shared memory against the addresses of all lanes.
#include "layout/calculator/convert.h"
#include "layout/distribution.h"
#include "layout/shared_way.h"
#include "layout/shuffle.h"
#include "tests/unit/random.h"
#include "tests/unit/unit.h"
#include <string.h>

enum { ROUNDS = 1000, LANES = 32, MOST = 1 << 12 };

static const MemoryShape machine = {32, 4, 32};

// ---- pairs of distributions ----

// One output; the same digits, of which `threads` twos are the threads'. Each element has one holder.
static const Layout *spread(Arena *arena, const int64_t *extents, const int64_t *strides, int count, const int *order,
                            int threads) {
    Layout *tv = layout_new(arena, 2, 1);
    for (int i = 0, left = threads; i < count; i++) {
        bool thread = extents[order[i]] == 2 && left-- > 0;
        layout_add(tv, thread ? TV_THREAD : TV_VALUE, extents[order[i]], strides[order[i]], 0);
    }
    return layout_finish(tv);
}

static void swap(int *order, int i, int j) {
    int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
}

// A few digits exchanged: from nothing over registers and lanes to warps.
static void exchange(int *order, int count, int low) {
    for (int n = (int)below(4); n > 0; n--) swap(order, low + (int)below(count - low), low + (int)below(count - low));
}

typedef struct Pair {
    const Layout *source, *destination;
} Pair;

static Pair random_digits(Arena *arena, bool binary) {
    int threads = 5 + (int)below(2), count = threads + 1 + (int)below(3), order[16];
    int64_t extents[16], strides[16], stride = 1;
    for (int i = 0; i < count; i++) {
        order[i] = i;
        extents[i] = i < threads || binary || below(2) ? 2 : 3 + 2 * below(2);
        strides[i] = stride;
        stride *= extents[i];
    }
    exchange(order, count, 0);
    const Layout *source = spread(arena, extents, strides, count, order, threads);
    exchange(order, count, (int)below(count));
    return (Pair){source, spread(arena, extents, strides, count, order, threads)};
}

// The images of the source with some XORed: still each element once.
static Pair random_bits(Arena *arena) {
    LayoutBits a = {.in = {5 + (int)below(2), 1 + (int)below(3)}}, b;
    int count = a.in[0] + a.in[1], order[16];
    for (int i = 0; i < count; i++) order[i] = i;
    exchange(order, count, 0);
    for (int i = 0; i < count; i++) a.images[i][0] = (int64_t)1 << order[i];
    b = a;
    for (int n = (int)below(4); n > 0; n--) {
        int x = (int)below(count), y = (int)below(count);
        if (x != y) b.images[x][0] ^= b.images[y][0];
    }
    return (Pair){layout_of_bits(arena, 2, 1, &a, 0), layout_of_bits(arena, 2, 1, &b, 0)};
}

static Pair random_pair(Arena *arena, int round) {
    return round % 3 == 0 ? random_bits(arena) : random_digits(arena, round % 3 == 1);
}

// ---- enumeration ----

static int64_t element(const Layout *tv, int64_t thread, int64_t value) {
    int64_t out;
    layout_eval(tv, (int64_t[]){thread, value}, &out);
    return out;
}

// The thread that has an element.
static int64_t holder(const Layout *tv, int64_t wanted) {
    for (int64_t t = 0; t < tv_threads(tv); t++)
        for (int64_t v = 0; v < tv_values(tv); v++)
            if (element(tv, t, v) == wanted) return t;
    return -1;
}

static Conversion enumerated(const Pair *pair) {
    int64_t transfers[2][64] = {{0}}, most = 0;
    bool crosses = false;
    for (int64_t t = 0; t < tv_threads(pair->destination); t++)
        for (int64_t v = 0; v < tv_values(pair->destination); v++) {
            int64_t from = holder(pair->source, element(pair->destination, t, v));
            assert_true(from >= 0);
            crosses |= from / LANES != t / LANES;
            if (from == t) continue;
            transfers[0][t]++;
            transfers[1][from]++;
        }
    for (int i = 0; i < 128; i++)
        if (transfers[i / 64][i % 64] > most) most = transfers[i / 64][i % 64];
    return (Conversion){crosses ? CONVERT_BY_SHARED : most ? CONVERT_BY_SHUFFLES : CONVERT_IN_REGISTERS, most, true};
}

static void cheapest_ways(void **state) {
    int seen[4] = {0}, nothing = 0;
    for (int round = 0; round < ROUNDS; round++) {
        LayoutContext cx = layout_context(*state);
        Pair pair = random_pair(*state, round);
        Conversion wanted = enumerated(&pair),
                   got = conversion_of(&cx, pair.source, pair.destination, pair.source->out_shape, LANES);
        assert_false(cx.failed);
        nothing += got.kind == CONVERT_NOTHING;
        seen[wanted.kind]++;
        if (got.kind == CONVERT_NOTHING) assert_int_equal(wanted.kind, CONVERT_IN_REGISTERS);
        else assert_int_equal(got.kind, wanted.kind);
        if (wanted.kind == CONVERT_BY_SHUFFLES) assert_int_equal(got.shuffles, wanted.shuffles);
        assert_true(got.fewest);
    }
    assert_true(nothing > 20 && seen[CONVERT_IN_REGISTERS] > 20 && seen[CONVERT_BY_SHUFFLES] > 20 &&
                seen[CONVERT_BY_SHARED] > 20);
}

// ---- through shared memory ----

// Offsets in shared memory by element.
static void offsets_of(Linear shared, int64_t *offsets) {
    for (int64_t offset = 0; offset < (int64_t)1 << linear_in_bits(shared); offset++)
        offsets[linear_apply_packed(shared, (uint64_t)offset)] = offset;
}

// The first element of value v's access: the smallest of its vector.
static bool starts_access(const Layout *tv, const int64_t *offsets, int64_t v, int64_t width) {
    return offsets[element(tv, 0, v)] % width == 0;
}

static void check_accesses(const Layout *tv, const int64_t *offsets, const SharedSide *side, int element_bits) {
    int64_t seen = 0, width = side->width;
    for (int64_t v = 0; v < tv_values(tv); v++) {
        if (!starts_access(tv, offsets, v, width)) continue;
        for (int64_t first = 0; first < tv_threads(tv); first += LANES) {
            int64_t addresses[LANES];
            for (int lane = 0; lane < LANES; lane++)
                addresses[lane] = offsets[element(tv, first + lane, v)] / width * width * element_bits / 8;
            SharedCost counted = shared_cost_counted(addresses, LANES, (int)width * element_bits / 8, machine);
            assert_int_equal(counted.wavefronts, side->cost.wavefronts);
            assert_int_equal(counted.phases, side->cost.phases);
        }
        seen++;
    }
    assert_int_equal(seen, side->accesses);
}

static void shared_ways_cost_what_they_say(void **state) {
    static const int widths[] = {8, 16, 32, 64};
    int checked = 0;
    for (int round = 0; round < ROUNDS; round++) {
        LayoutContext cx = layout_context(*state);
        Pair pair = round % 2 ? random_bits(*state) : random_digits(*state, true);
        int element_bits = widths[round / 2 % 4];
        int64_t offsets[MOST];
        Linear a = distribution_to_linear(&cx, pair.source, LANES),
               b = distribution_to_linear(&cx, pair.destination, LANES);
        assert_false(cx.failed);
        if (conversion_by_rank(&cx, a, b).kind != CONVERT_BY_SHARED) continue;
        SharedWay way = shared_way(&cx, a, b, element_bits, (SharedMachine){machine, false, false, false}, 1, 1);
        if (cx.failed) continue;
        offsets_of(way.shared, offsets);
        check_accesses(pair.source, offsets, &way.store, element_bits);
        check_accesses(pair.destination, offsets, &way.load, element_bits);
        checked++;
    }
    assert_true(checked > ROUNDS / 20);
}

// ---- padding, copies, refusals ----

static Conversion between(Arena *arena, const char *source, const char *destination, int64_t rows, int64_t columns) {
    const char *why = "";
    LayoutContext cx = layout_context(arena);
    const Layout *a = layout_parse(arena, source, 0, &why), *b = layout_parse(arena, destination, 0, &why);
    if (!a || !b) fail_msg("%s", why);
    Conversion c = conversion_of(&cx, a, b, (int64_t[]){rows, columns}, LANES);
    if (cx.failed) fail_msg("%s", cx.reason);
    return c;
}

static void outside_of_the_tile_nothing_moves(void **state) {
    // 24 columns, of which the padding to 32 belongs to no thread: the same threads have them.
    Conversion c = between(*state, "(32,(8,4)):(1@0,(1@1,8@1))", "(32,(8,3)):(1@0,(1@1,8@1))", 32, 24);
    assert_int_equal(c.kind, CONVERT_IN_REGISTERS);
    c = between(*state, "((4,8),6):((6@1,1@0),1@1)", "((4,8),6):((1@1,1@0),4@1)", 8, 24);
    assert_int_equal(c.kind, CONVERT_BY_SHUFFLES);
    assert_int_equal(c.shuffles, 5);
}

static void copies_are_counted_once(void **state) {
    // Every lane of a row needs the row's one sum.
    Conversion c = between(*state, "((4,8),1):((0,1@0),1@1)", "((8,4),1):((1@0,0),1@1)", 8, 1);
    assert_int_equal(c.kind, CONVERT_BY_SHUFFLES);
    assert_int_equal(c.shuffles, 1);
    assert_false(c.fewest);
}

static char *conversion_text(LayoutContext *cx, const char *source, const char *destination, int element_bits,
                             bool explain) {
    ConvertSides sides = convert_sides(cx, source, destination, element_bits);
    return convert_text(cx, &sides, explain);
}

static void explanations(void **state) {
    LayoutContext cx = layout_context(*state);
    const char *rows = "(32,8):(1@0,1@1)", *columns = "((8,4),8):((1@1,8@0),1@0)";
    assert_string_equal(
        conversion_text(&cx, rows, rows, 16, true),
        "nothing moves\n    register 1 from register 1\n    register 2 from register 2\n    register 4 from "
        "register 4\n    lane 1 from lane 1\n    lane 2 from lane 2\n    lane 4 from lane 4\n    lane 8 from "
        "lane 8\n    lane 16 from lane 16");
    assert_string_equal(conversion_text(&cx, rows, columns, 16, false), "by shuffles: 7 per thread");
    assert_non_null(strstr(conversion_text(&cx, rows, columns, 16, true), "register 1 from lane 1"));
    assert_non_null(
        strstr(conversion_text(&cx, "(64,8):(1@0,1@1)", "((8,8),8):((1@1,8@0),1@0)", 32, true), "by shuffles"));
    char *text = conversion_text(&cx, "(64,8):(1@0,1@1)", "((8,2,4),8):((1@1,32@0,8@0),1@0)", 32, true);
    assert_non_null(strstr(text, "through shared memory"));
    assert_non_null(strstr(text, "wavefronts each"));
    assert_false(cx.failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(cheapest_ways),
        IN_ARENA(shared_ways_cost_what_they_say),
        IN_ARENA(outside_of_the_tile_nothing_moves),
        IN_ARENA(copies_are_counted_once),
        IN_ARENA(explanations),
    };
    return run(tests);
}
