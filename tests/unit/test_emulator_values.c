// Elements, conversions and random numbers of the emulator against the language's own rounding.
#include "tests/unit/unit.h"

#include "emulator/approximate.h"
#include "emulator/products.h"
#include "emulator/values.h"
#include <math.h>
#include <string.h>

static const Type small[] = {TYPE_F16, TYPE_BF16, TYPE_E4M3, TYPE_E5M2};

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static double store_and_load(Type type, double value) {
    uint8_t bits[8];
    element_store(type, bits, (Word){.f = value});
    return element_load(type, bits).f;
}

// A store keeps an infinity of e5m2: what converts a number saturates, what stores it does not.
static double stored(Type type, double value) {
    return type == TYPE_E5M2 && isinf(value) ? value : float_round(type, value);
}

// Every value of every small format, its neighbours' midpoints, and a little to either side.
static void stores_round_as_the_language_does(void **state) {
    (void)state;
    for (int t = 0; t < 4; t++) {
        int count = 1 << type_bits(small[t]);
        for (int i = 0; i < count; i++) {
            uint16_t bits = (uint16_t)i, next = (uint16_t)(i + 1);
            double value = element_load(small[t], &bits).f, after = element_load(small[t], &next).f;
            if (!isnan(value)) {
                uint16_t again = 0;
                element_store(small[t], &again, (Word){.f = value});
                assert_int_equal(again, bits & (count - 1));   // infinities, too
            }
            double middle = (value + after) / 2;
            double tries[] = {middle, nextafter(middle, INFINITY), nextafter(middle, -INFINITY), middle * (1 + 1e-7)};
            for (int k = 0; k < 4; k++) {
                double want = float_round(small[t], tries[k]);
                assert_true(same(store_and_load(small[t], tries[k]), stored(small[t], tries[k])));
                assert_true(same(word_convert(small[t], TYPE_F64, (Word){.f = tries[k]}).f, want));
            }
        }
    }
}

static void extremes(void **state) {
    (void)state;
    double tries[] = {0.0,   -0.0,  INFINITY, -INFINITY, NAN,     65504,   65519.99,  65520,    448,       464,   465,
                      57344, 61440, 1e300,    1e-300,    0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-133, 3.3895e38, 3.4e38};
    for (int t = 0; t < 4; t++)
        for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
            assert_true(same(store_and_load(small[t], tries[i]), stored(small[t], tries[i])));
}

static void integers(void **state) {
    (void)state;
    for (Type type = TYPE_I8; type <= TYPE_U64; type++) {
        uint8_t bits[8];
        for (int64_t value = -300; value <= 300; value += 7) {
            int64_t want = int_wrap(type, value);
            element_store(type, bits, (Word){.i = value});
            assert_int_equal(element_load(type, bits).i, want);
            assert_int_equal(word_convert(type, TYPE_I64, (Word){.i = value}).i, want);
        }
    }
    assert_int_equal(word_convert(TYPE_I8, TYPE_F32, (Word){.f = 300}).i, 127);
    assert_int_equal(word_convert(TYPE_I8, TYPE_F32, (Word){.f = -300}).i, -128);
    assert_int_equal(word_convert(TYPE_U8, TYPE_F32, (Word){.f = -3}).i, 0);
    assert_int_equal(word_convert(TYPE_I32, TYPE_F32, (Word){.f = -2.9}).i, -2);
    assert_int_equal(word_convert(TYPE_I32, TYPE_F32, (Word){.f = NAN}).i, 0);
    assert_int_equal(word_convert(TYPE_I64, TYPE_F64, (Word){.f = 1e30}).i, INT64_MAX);
    assert_int_equal(word_convert(TYPE_U64, TYPE_F64, (Word){.f = 1e30}).i, -1);
    assert_int_equal(word_convert(TYPE_BOOL, TYPE_F32, (Word){.f = 0.5}).i, 1);
    assert_true(word_convert(TYPE_F32, TYPE_I64, (Word){.i = 16777217}).f == 16777216);
    assert_true(word_convert(TYPE_F64, TYPE_U64, (Word){.i = -1}).f == 0x1p64);
}

// An integer just beyond a tie of bf16, which f64 and f32 would round to the tie: executed, and folded.
static void integers_take_one_rounding(void **state) {
    static const struct {
        Type from;
        int64_t value;
        double want;
    } rows[] = {{TYPE_I64, (1LL << 62) + (1LL << 54) + 1, 0x1.02p62},
                {TYPE_I64, -(1LL << 62) - (1LL << 54) - 1, -0x1.02p62},
                {TYPE_I64, (1LL << 62) + (1LL << 54), 0x1p62},
                {TYPE_I64, (1LL << 62) + 3 * (1LL << 54) - 1, 0x1.02p62},
                {TYPE_U64, INT64_MIN + (1LL << 55) + 1, 0x1.02p63},
                {TYPE_U64, -1, 0x1p64},
                {TYPE_I64, INT64_MIN, -0x1p63},
                {TYPE_I32, (1 << 30) + (1 << 22) + 1, 0x1.02p30},
                {TYPE_U32, 0x80800001u, 0x1.02p31}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_true(word_convert(TYPE_BF16, rows[i].from, (Word){.i = rows[i].value}).f == rows[i].want);
        const Expr *folded = e_cast(*state, TYPE_BF16, e_int_of(*state, rows[i].from, rows[i].value));
        assert_true(folded->kind == EXPR_FLOAT && folded->real == rows[i].want);
    }
}

static void rows_and_lanes(void **state) {
    (void)state;
    uint16_t memory[64];
    Word words[32], back[32];
    for (int i = 0; i < 32; i++) words[i].f = i - 7.5;
    memset(memory, 0, sizeof memory);
    elements_store(TYPE_F16, (uint8_t *)memory, 2, 32, words);
    elements_load(TYPE_F16, (const uint8_t *)memory, 2, 32, back);
    for (int i = 0; i < 32; i++) assert_true(back[i].f == words[i].f && memory[2 * i + 1] == 0);
    int64_t offsets[32];
    for (int i = 0; i < 32; i++) offsets[i] = 62 - 2 * i;
    memset(back, 0, sizeof back);
    elements_gather(TYPE_F16, (const uint8_t *)memory, offsets, 0x80000001u, back);
    assert_true(back[0].f == words[31].f && back[31].f == words[0].f && back[1].f == 0);
    elements_scatter(TYPE_F16, (uint8_t *)memory, offsets, 2, &(Word[32]){[1] = {.f = 99}}[0]);
    assert_true(element_load(TYPE_F16, &memory[60]).f == 99);
}

static void random_is_normal(void **state) {
    (void)state;
    Random random = {42}, again = {42};
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; i++) {
        double x = random_normal(&random);
        assert_true(x == random_normal(&again));
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / 20000) < 0.03 && fabs(squares / 20000 - 1) < 0.05);
}

// Results lie within the bounds of target/approximations.def, depend on the seed, and use the room that there is.
static void approximations_keep_their_promise(void **state) {
    (void)state;
    static const struct {
        OpId op;
        double (*exact)(double);
        double relative;
    } rows[] = {{OP_SQRT, sqrt, 0x1p-22}, {OP_EXP2, exp2, 0x1p-22}, {OP_LOG2, log2, 0x1p-22}, {OP_TANH, tanh, 0x1p-11}};
    Random random = {7};
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        int different = 0, by_seed = 0;
        for (int i = 0; i < 2000; i++) {
            double x = (float)fmin(exp2(random_normal(&random) * 3), 100), exact = rows[r].exact(x);
            double got = approximate(1, rows[r].op, x, exact);
            assert_true(fabs(got - exact) <= rows[r].relative * fabs(exact));
            assert_true(got == approximate(1, rows[r].op, x, exact) && got == (float)got);
            different += got != (float)exact;
            by_seed += got != approximate(2, rows[r].op, x, exact);
        }
        assert_true(different > 500 && by_seed > 500);
    }
}

// None of a tangent, sine or cosine is beyond 1, where the exact one is next to it; some are 1, and some are below.
static void approximations_stay_within_one(void **state) {
    (void)state;
    static const struct {
        OpId op;
        double (*exact)(double);
        double first;   // operand
    } rows[] = {{OP_TANH, tanh, 6}, {OP_TANH, tanh, -12}, {OP_SIN, sin, M_PI / 2}, {OP_COS, cos, M_PI}};
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        int ones = 0, below = 0;
        for (int i = 0; i < 1000; i++) {
            double x = (float)(rows[r].first + i * 0x1p-22);
            double got = approximate(1, rows[r].op, x, rows[r].exact(x));
            assert_true(fabs(got) <= 1);
            ones += fabs(got) == 1;
            below += fabs(got) < 1;
        }
        assert_true(ones > 100 && below > 100);
    }
}

static void quotients_by_powers_of_two_are_exact(void **state) {
    (void)state;
    assert_true(approximate_quotient(1, 3, 4) == 0.75 && approximate_quotient(1, 0, 3) == 0);
    assert_true(isinf(approximate_quotient(1, 1, 0)) && isnan(approximate_quotient(1, 0, 0)));
    int different = 0;
    for (int i = 1; i < 1000; i++) {
        double got = approximate_quotient(1, i, i);
        assert_true(fabs(got - 1) <= 0x1p-22);
        different += got != 1;
    }
    assert_true(different > 100);
    assert_true(approximate(1, OP_EXP2, 0, 1) == 1 && approximate(1, OP_SQRT, INFINITY, INFINITY) == INFINITY);
}

// ---- products ----
enum { DEPTH = 32 };

// The sum of x[p] * y[p] and `sum`, by a tensor core of this seed.
static double product_of(uint64_t seed, const char *target, bool narrow, const double *x, const double *y, double sum) {
    Word a[DEPTH], b[DEPTH], c = {.f = sum};
    for (int p = 0; p < DEPTH; p++) a[p].f = x[p], b[p].f = y[p];
    Summing how = summing_of(seed, target_named(target), narrow);
    multiply_floats(&how, 1, 1, DEPTH, a, b, &c);
    return c.f;
}

static void products_lose_bits_below_the_largest_term(void **state) {
    (void)state;
    int differ = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        Random random = {seed};
        double x[DEPTH], y[DEPTH], whole[DEPTH], exact = 0, of_whole = 0, most = 1;
        for (int p = 0; p < DEPTH; p++) {
            x[p] = (float)random_normal(&random);
            y[p] = (float)(int)(16 * random_normal(&random)) / 16;
            x[p] = (float)(int)(4096 * x[p]) / 4096;
            whole[p] = (double)random_below(&random, 31) - 15;
            exact += x[p] * y[p];
            of_whole += whole[p] * 16;
            most = fmax(most, fabs(x[p] * y[p]));
        }
        double sixteen[DEPTH];
        for (int p = 0; p < DEPTH; p++) sixteen[p] = 16;
        double f32 = product_of(seed, "sm_90a", false, x, y, 1.0 / 3), f8 = product_of(seed, "sm_90a", true, x, y, 0);
        assert_true(product_of(seed, "sm_90a", true, whole, sixteen, 0) == of_whole);   // sums below 2^13
        assert_true(fabs(f32 - exact - 1.0 / 3) <= DEPTH * 2 * most * DEPTH * 0x1p-23);
        assert_true(fabs(f8 - exact) <= DEPTH * 2 * most * DEPTH * 0x1p-13);
        int exponent;
        assert_true(ldexp(frexp(f8, &exponent), 14) == rint(ldexp(frexp(f8, &exponent), 14)));   // 1 + 13 bits
        assert_true(product_of(seed, "sm_120a", true, x, y, 0) == product_of(seed, "sm_120a", false, x, y, 0));
        differ += f8 != exact;
        // A small term is lost next to a large one, toward zero; also where large terms cancel each other.
        double large[DEPTH] = {4096, 0x1p-3, -4096}, one[DEPTH] = {1, 1, 1};
        assert_true(product_of(seed, "sm_89", true, large, one, 0) == 0);
        assert_true(product_of(seed, "sm_90a", false, large, one, 0) == 0x1p-3);
    }
    assert_in_range(differ, 20, 200);
    double odd[DEPTH] = {INFINITY, 1}, ones[DEPTH] = {1, 1}, tiny[DEPTH] = {0x1p-70, 0x1p-70},
           by[DEPTH] = {0x1p-70, 0x1p-70};
    assert_true(isinf(product_of(1, "sm_80", false, odd, ones, 0)) &&
                isnan(product_of(1, "sm_80", false, odd, ones, NAN)));
    assert_true(product_of(1, "sm_80", false, tiny, by, 0) == 0x1p-139);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_round_as_the_language_does),
        cmocka_unit_test(extremes),
        cmocka_unit_test(integers),
        IN_ARENA(integers_take_one_rounding),
        cmocka_unit_test(rows_and_lanes),
        cmocka_unit_test(random_is_normal),
        cmocka_unit_test(approximations_keep_their_promise),
        cmocka_unit_test(approximations_stay_within_one),
        cmocka_unit_test(products_lose_bits_below_the_largest_term),
        cmocka_unit_test(quotients_by_powers_of_two_are_exact),
    };
    return run(tests);
}
