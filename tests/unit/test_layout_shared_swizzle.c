// Swizzles for several accesses against all maps of segment bits to bank bits: none has fewer wavefronts, which are counted
// lane by lane. Runs stay together, and each element has a place of its own.
#include "layout/shared_swizzle.h"
#include "tests/unit/random.h"
#include "tests/unit/unit.h"
#include <string.h>

enum { ROUNDS = 150, MOST_ACCESSES = 3, ROWS = 8, LANE_BITS = 5 };

static const MemoryShape machine = {32, 4, 32};

typedef struct Case {
    int64_t shape[2];
    int element_bits, count;
    int64_t run;
    SwizzleAccess accesses[MOST_ACCESSES];
} Case;

// An access whose lanes differ in distinct bits of the index, behind those of its run.
static SwizzleAccess random_access(const Case *c, int bits) {
    SwizzleAccess access = {.width = c->run, .phases = 1 + below(3)};
    int64_t bytes = c->run * c->element_bits / 8;
    int first = 0, free[16], count = 0;
    while ((int64_t)1 << first < c->run) first++;
    for (int bit = first; bit < bits; bit++) free[count++] = bit;
    for (int lanes = LANE_BITS; bytes > 4; bytes /= 2) access.bits = --lanes;
    if (c->run * c->element_bits / 8 <= 4) access.bits = LANE_BITS;
    if (access.bits > count) access.bits = count;
    for (int i = 0; i < access.bits; i++) {
        int at = i + (int)below(count - i), swap = free[i];
        free[i] = free[at];
        free[at] = swap;
        access.spread[i] = (uint64_t)1 << free[i];
    }
    return access;
}

static int64_t place_of(const Case *c, const Layout *layout, int64_t index) {
    return layout_linear(layout, (int64_t[]){index / c->shape[1], index % c->shape[1]});
}

// Wavefronts of all phases where `place` gives the element's place in memory.
static int64_t wavefronts(const Case *c, const Layout *layout, const int64_t *map) {
    int64_t sum = 0;
    for (int a = 0; a < c->count; a++) {
        const SwizzleAccess *access = &c->accesses[a];
        int64_t addresses[32];
        for (int lane = 0; lane < 1 << access->bits; lane++) {
            uint64_t index = 0;
            for (int bit = 0; bit < access->bits; bit++)
                if (lane >> bit & 1) index ^= access->spread[bit];
            int64_t place = (int64_t)index, segment = place * c->element_bits / 8 / 128;
            for (int bit = 0; map && segment >> bit; bit++)
                if (segment >> bit & 1) place ^= map[bit];
            addresses[lane] = (map ? place : place_of(c, layout, (int64_t)index)) * c->element_bits / 8;
        }
        int bytes = (int)access->width * c->element_bits / 8;
        sum += access->phases * shared_cost_counted(addresses, 1 << access->bits, bytes, machine).wavefronts;
    }
    return sum;
}

// The fewest over all maps: each segment bit may flip any bits of the bank above the run.
static int64_t fewest(const Case *c, int segment_bits) {
    int64_t map[4], least = INT64_MAX, step = c->run * c->element_bits / 8 > 4 ? c->run : 32 / c->element_bits;
    int64_t values = 1024 / c->element_bits / step, combinations = 1;
    for (int i = 0; i < segment_bits; i++) combinations *= values;
    for (int64_t n = 0; n < combinations; n++) {
        int64_t left = n;
        for (int i = 0; i < segment_bits; i++, left /= values) map[i] = left % values * step;
        int64_t found = wavefronts(c, NULL, map);
        if (found < least) least = found;
    }
    return least;
}

static void no_map_has_fewer(void **state) {
    static const int widths[] = {8, 16, 32, 64};
    for (int round = 0; round < ROUNDS; round++) {
        LayoutContext cx = layout_context(*state);
        Case c = {.element_bits = widths[round % 4], .count = 1 + (int)below(MOST_ACCESSES)};
        int segment_bits = 2 + (int)below(2);
        int64_t size = (1024 / c.element_bits) << segment_bits;
        c.shape[0] = ROWS, c.shape[1] = size / ROWS;
        c.run = segment_bits == 3 ? 128 / c.element_bits : (128 / c.element_bits) >> below(3);
        if (c.run == 0) c.run = 1;
        int bits = 0;
        while ((int64_t)1 << bits < size) bits++;
        for (int i = 0; i < c.count; i++) c.accesses[i] = random_access(&c, bits);
        const Layout *layout = fewest_wavefronts(&cx, c.shape, c.element_bits, c.run, c.accesses, c.count, machine);
        assert_non_null(layout);
        assert_int_equal(wavefronts(&c, layout, NULL), fewest(&c, segment_bits));
        if (c.run > 1) assert_true(layout_keeps_runs(layout, c.run));
        assert_int_equal(layout_size_out(layout), size);
        bool *seen = arena_alloc(*state, (size_t)size);
        memset(seen, 0, (size_t)size);
        for (int64_t i = 0; i < size; i++) {
            assert_false(seen[place_of(&c, layout, i)]);
            seen[place_of(&c, layout, i)] = true;
        }
    }
}

// 48 rows: no more memory than they have.
static void other_extents(void **state) {
    LayoutContext cx = layout_context(*state);
    SwizzleAccess rows = {.bits = 3, .spread = {64, 128, 256}, .width = 8, .phases = 1};
    const Layout *layout = fewest_wavefronts(&cx, (int64_t[]){48, 64}, 16, 8, &rows, 1, machine);
    assert_non_null(layout);
    assert_int_equal(layout_size_out(layout), 48 * 64);
    Case c = {.shape = {48, 64}, .element_bits = 16, .count = 1, .run = 8, .accesses = {rows}};
    assert_int_equal(wavefronts(&c, layout, NULL), 1);
    // 48 columns are three panels of 16.
    rows = (SwizzleAccess){.bits = 3, .spread = {16, 32, 64}, .width = 8, .phases = 1};
    layout = fewest_wavefronts(&cx, (int64_t[]){64, 48}, 16, 8, &rows, 1, machine);
    assert_non_null(layout);
    assert_int_equal(layout_size_out(layout), 64 * 48);
    int64_t addresses[8];
    for (int row = 0; row < 8; row++) addresses[row] = 2 * layout_linear(layout, (int64_t[]){row, 0});
    assert_int_equal(shared_cost_counted(addresses, 8, 16, machine).wavefronts, 1);
    assert_null(fewest_wavefronts(&cx, (int64_t[]){48, 48}, 16, 8, &rows, 1, machine));   // no map of bits
    assert_null(fewest_wavefronts(&cx, (int64_t[]){64, 52}, 16, 8, &rows, 1, machine));   // a panel has 4 columns
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(no_map_has_fewer), IN_ARENA(other_extents)};
    return run(tests);
}
