// The curve, computed by folding: with constants for number and extents every let is one.
#include "ir/build.h"
#include "passes/grid/hilbert.h"
#include "unit.h"
#include <stdlib.h>

typedef struct Place {
    int64_t row, column;
} Place;

static Place place_of(Arena *arena, int64_t number, int64_t rows, int64_t columns) {
    Block lets = {0};
    Expr *row, *column;
    Place place = {-1, -1};
    hilbert_tile(arena, TYPE_I32, e_int(arena, number), e_int(arena, rows), e_int(arena, columns), &row, &column,
                 (Span){0}, &lets);
    assert_true(expr_const(row, &place.row) && expr_const(column, &place.column));
    return place;
}

static int64_t distance(Place a, Place b) {
    return llabs(a.row - b.row) + llabs(a.column - b.column);
}

// Every place once; the mean distance of points that follow each other, times a thousand.
static int64_t walk(Arena *arena, int64_t rows, int64_t columns) {
    int64_t tiles = rows * columns, way = 0;
    bool *taken = NEW_ARRAY(arena, bool, tiles);
    Place before = {0};
    for (int64_t i = 0; i < tiles; i++) {
        Place place = place_of(arena, i, rows, columns);
        assert_in_range(place.row, 0, rows - 1);
        assert_in_range(place.column, 0, columns - 1);
        assert_false(taken[place.row * columns + place.column]);
        taken[place.row * columns + place.column] = true;
        if (i > 0) way += distance(before, place);
        before = place;
    }
    return tiles > 1 ? 1000 * way / (tiles - 1) : 1000;
}

static void test_every_tile_a_single_time(void **state) {
    Arena *arena = *state;
    for (int64_t rows = 1; rows <= 19; rows++)
        for (int64_t columns = 1; columns <= 19; columns++) assert_true(walk(arena, rows, columns) < 2000);
    static const int64_t odd[][2] = {{1, 127}, {127, 1}, {2, 61}, {61, 3}, {64, 40}, {37, 41}, {13, 150}, {96, 17}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) assert_true(walk(arena, odd[i][0], odd[i][1]) < 2100);
}

// Where all cuts are even it is Hilbert's: each point beside the one before, from corner to corner.
static void test_powers_of_two(void **state) {
    Arena *arena = *state;
    for (int64_t n = 2; n <= 16; n *= 2) {
        assert_int_equal(walk(arena, n, n), 1000);
        assert_int_equal(distance((Place){0, 0}, place_of(arena, 0, n, n)), 0);
        assert_int_equal(distance((Place){n - 1, 0}, place_of(arena, n * n - 1, n, n)), 0);
    }
    assert_int_equal(walk(arena, 4, 16), 1000);
    assert_int_equal(walk(arena, 8, 4), 1000);
}

// What few blocks read together: 64 points that follow each other lie in 8 by 8, wherever they begin at a multiple of
// it.
static void test_quarters_are_squares(void **state) {
    Arena *arena = *state;
    for (int64_t first = 0; first < 32 * 32; first += 64) {
        Place origin = place_of(arena, first, 32, 32);
        for (int64_t i = 1; i < 64; i++) {
            Place place = place_of(arena, first + i, 32, 32);
            assert_int_equal(place.row / 8, origin.row / 8);
            assert_int_equal(place.column / 8, origin.column / 8);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(test_every_tile_a_single_time),
        IN_ARENA(test_powers_of_two),
        IN_ARENA(test_quarters_are_squares),
    };
    return run(tests);
}
