// A Hilbert curve through a rectangle of any extents, as straight-line code from a number to a position.
//
// Textbooks compute it from the bits of the number, for squares of 2^n. Here a rectangle of p by q tiles is cut into
// quadrants of whole tiles, which may be unequal or empty. The number is compared with the number of tiles before each
// quadrant; the remainder is the number within the quadrant:
//
//              q1    q2           first tile       path through it
//     x   p1    0     1       0   0                x and y exchanged
//     |   p2    3     2       1   p1 * q1          as through the whole
//     v                       2   p1 * q           as through the whole
//        y ---->              3   p1 * q + p2 * q2 exchanged, both directions reversed
//
// A path begins in the first corner and ends in the next corner along x. So do the paths through the quadrants, and
// each ends next to the beginning of the next one. Two bits give the orientation of a path: whether x runs along
// columns, and whether both directions are reversed. The position of a quadrant follows from the extent of the other
// side of the cut. A rectangle at least twice as long as wide is cut across x only; both halves have the orientation of
// the whole.
//
// After LEVELS cuts the rest is traversed row by row. It is small compared with the CTAs that run at the same time.
#include "passes/grid/hilbert.h"
#include "ir/build.h"

// 16 by 16 cells: of 8 by 8 tiles in a grid of 128 by 128. CTAs that run at the same time (132) then read 28 rows and
// columns of tiles, as with more cuts; the CTAs before them have not read 10 to 13 of these. Groups of 8 rows have 26,
// of which 17 are new.
enum { LEVELS = 4 };

typedef struct Way {
    Arena *arena;
    Type type;
    Span loc;
    Block *out;
    Expr *number;          // within the rectangle
    Expr *extent[2];       // along x, along y
    Expr *begin[2];        // of the rectangle in the grid
    Expr *along_columns;   // x runs along columns
    Expr *reversed;
} Way;

static Expr *bind(Way *way, const char *name, Expr *value) {
    return block_name(way->arena, way->out, name, value, way->loc);
}

static Expr *number_of(const Way *way, int64_t value) {
    return e_int_of(way->arena, way->type, value);
}

static Expr *differ(const Way *way, Expr *a, Expr *b) {
    if (b->kind == EXPR_INT && !b->integer) return a;
    return e_binary(way->arena, BIN_NE, a, b);
}

static Expr *negation(const Way *way, Expr *a) {
    return e_unary(way->arena, UNARY_NOT, a);
}

// Half of an extent: a shift, since the extent is not known to be non-negative here.
static Expr *halved(const Way *way, Expr *extent) {
    return e_binary(way->arena, BIN_SHR, extent, number_of(way, 1));
}

// Takes the first or second half of one side: its extent and begin.
static void take_half(Way *way, int side, Expr *second, Expr *first_extent, Expr *second_extent) {
    Arena *a = way->arena;
    Expr *taken = bind(way, side ? "wide" : "long", e_select(a, second, second_extent, first_extent));
    Expr *skipped = e_sub(a, way->extent[side], taken);
    Expr *skips = differ(way, second, way->reversed);
    Expr *begin = e_add(a, way->begin[side], e_select(a, skips, skipped, number_of(way, 0)));
    way->begin[side] = bind(way, side ? "across" : "along", begin);
    way->extent[side] = taken;
}

static void exchange(Way *way, Expr *values[2], Expr *condition) {
    Expr *x = bind(way, "x", e_select(way->arena, condition, values[1], values[0]));
    values[1] = bind(way, "y", e_select(way->arena, condition, values[0], values[1]));
    values[0] = x;
}

static void cut(Way *way) {
    Arena *a = way->arena;
    Expr *zero = number_of(way, 0);
    Expr *p = way->extent[0], *q = way->extent[1];
    Expr *thin = bind(way, "thin", e_ge(a, p, e_add(a, q, q)));
    Expr *p2 = bind(way, "half", halved(way, p)), *p1 = bind(way, "half", e_sub(a, p, p2));
    Expr *q2 = bind(way, "half", e_select(a, thin, zero, halved(way, q))), *q1 = bind(way, "half", e_sub(a, q, q2));

    Expr *before1 = bind(way, "before", e_mul(a, p1, q1)), *before2 = bind(way, "before", e_mul(a, p1, q));
    Expr *before3 = bind(way, "before", e_add(a, before2, e_mul(a, p2, q2)));
    Expr *lower = bind(way, "second", e_ge(a, way->number, before2));
    Expr *last = bind(way, "last", e_ge(a, way->number, before3));
    Expr *outer = bind(way, "outer", e_and(a, e_ge(a, way->number, before1), negation(way, last)));
    Expr *before = e_select(a, last, before3, e_select(a, lower, before2, e_select(a, outer, before1, zero)));
    way->number = bind(way, "inside", e_sub(a, way->number, before));

    take_half(way, 0, lower, p1, p2);
    take_half(way, 1, outer, q1, q2);
    Expr *flipped = bind(way, "flipped", negation(way, e_binary(a, BIN_LOGICAL_OR, outer, thin)));
    exchange(way, way->extent, flipped);
    exchange(way, way->begin, flipped);
    way->along_columns = bind(way, "columnwise", differ(way, way->along_columns, flipped));
    way->reversed = bind(way, "reversed", differ(way, way->reversed, e_and(a, flipped, last)));
}

void hilbert_tile(Arena *arena, Type type, Expr *number, Expr *rows, Expr *columns, Expr **row, Expr **column, Span loc,
                  Block *out) {
    EXPECT(arena_failure(arena), type_is_int(type), "places of type %s", type_text(type));
    Way way = {.arena = arena, .type = type, .loc = loc, .out = out, .reversed = e_bool(arena, false)};
    way.number = bind(&way, "inside", e_cast(arena, type, number));
    way.extent[0] = bind(&way, "long", e_cast(arena, type, rows));
    way.extent[1] = bind(&way, "wide", e_cast(arena, type, columns));
    way.along_columns = bind(&way, "columnwise", e_lt(arena, way.extent[0], way.extent[1]));
    way.begin[0] = way.begin[1] = number_of(&way, 0);
    exchange(&way, way.extent, way.along_columns);
    for (int level = 0; level < LEVELS; level++) cut(&way);

    block_push(arena, out, s_assume(arena, e_ge(arena, way.extent[1], number_of(&way, 1)), loc));
    Expr *slower = bind(&way, "slower", e_div(arena, way.number, way.extent[1]));
    Expr *faster = e_sub(arena, way.number, e_mul(arena, slower, way.extent[1]));
    Expr *x = bind(&way, "x", e_add(arena, way.begin[0], slower));
    Expr *y = bind(&way, "y", e_add(arena, way.begin[1], faster));
    *row = e_cast(arena, TYPE_I64, e_select(arena, way.along_columns, y, x));
    *column = e_cast(arena, TYPE_I64, e_select(arena, way.along_columns, x, y));
}
