// Approximate f32 operations: results anywhere within what is promised (target/approximations.def).
//
// A device gives one of these results, which depends on its generation. A test that passes with the exact result may
// fail there: x / x can be 0.99999994, and a quotient that lies at a rounding boundary of e4m3 can fall on the other
// side. So lowered kernels get a result that a seed chooses. It is a function of the seed, the operation and its
// operands alone: the same in all lanes, CTAs, kernels and schedules.
//
// Exact are programs at tile stage, references, ieee(...), f64, and operations that PTX rounds correctly (+ - * fma).
// How matrix instructions sum says products.c.
#include "emulator/approximate.h"
#include <math.h>
#include <string.h>

typedef struct Bound {
    double ulps, relative, absolute, most;
} Bound;

enum { OP_DIV = OP_COUNT };   // the operator `/`

static const Bound bounds[OP_COUNT + 1] = {
#define APPROXIMATION(OP, ULPS, RELATIVE, ABSOLUTE, MOST, INSTRUCTION) [OP_##OP] = {ULPS, RELATIVE, ABSOLUTE, MOST},
#include "target/approximations.def"
#undef APPROXIMATION
};

bool op_is_approximate(OpId op) {
    return bounds[op].ulps > 0 || bounds[op].relative > 0;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double unit_of(double value) {   // of the last place, of an f32
    int exponent;
    frexp(value, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static double largest_error(int op, double x, double exact) {
    Bound bound = bounds[op];
    double relative = bound.relative * (op == OP_EXP ? 1 + fabs(x) / 3 : 1) * fabs(exact);
    return fmax(fmax(bound.ulps * unit_of(exact), relative), fabs(x) > 1 ? bound.absolute : 0);
}

// An f32 within the bounds; the rounded exact result if no other lies there.
static double within(double most, Random random, double exact) {
    double share = (double)(random_next(&random) >> 11) * 0x1p-52 - 1;   // in [-1, 1)
    float result = (float)(exact + share * most);
    bool fits = isfinite(result) && fabs((double)result - exact) <= most;
    return fits ? result : (float)exact;
}

static bool stays_exact(double operand, double exact) {
    return operand == 0 || !isfinite(operand) || exact == 0 || !isfinite((float)exact);
}

double approximate(uint64_t seed, OpId op, double x, double exact) {
    if (stays_exact(x, exact)) return (float)exact;
    Random random = {seed ^ bits_of(x) * 0x9e3779b97f4a7c15 ^ (uint64_t)op << 56};
    bool flushes = (op == OP_EXP || op == OP_EXP2) && exact < 0x1p-126 && random_below(&random, 2);
    double result = flushes ? 0 : within(largest_error((int)op, x, exact), random, exact), most = bounds[op].most;
    return most > 0 ? fmin(fmax(result, -most), most) : result;
}

static bool is_power(double x) {
    int exponent;
    return fabs(frexp(x, &exponent)) == 0.5;
}

double approximate_quotient(uint64_t seed, double a, double b) {
    double exact = a / b;
    if (stays_exact(b, exact) || is_power(b)) return (float)exact;
    Random random = {seed ^ bits_of(a)};
    random.state = random_next(&random) ^ bits_of(b);
    return within(largest_error(OP_DIV, b, exact), random, exact);
}
