// Plans of shuffles against enumeration: what each register of each thread gets, in as many rounds as are needed.
#include "layout/calculator/conversion.h"
#include "layout/shuffle.h"
#include "tests/unit/random.h"
#include "tests/unit/unit.h"

enum { ROUNDS = 3000, LANES = 32 };

typedef struct Pair {
    const Layout *source, *destination;
} Pair;

static void swap(int *order, int i, int j) {
    int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
}

typedef struct Digits {
    int count, threads, order[16];
    int64_t extents[16], strides[16];
    int odd_thread;   // the place of an odd digit of threads among them; 0: there is none
} Digits;

// Lanes and warps first, of twos, but for an odd digit; some are copies.
static const Layout *spread(Arena *arena, const Digits *digits, int copies) {
    Layout *tv = layout_new(arena, 2, 1);
    int left = digits->threads, last = digits->order[digits->count - 1];
    for (int i = 0; i < digits->count; i++) {
        int d = digits->order[i];
        bool thread = digits->extents[d] == 2 && left-- > 0;
        if (digits->odd_thread && i == digits->odd_thread)
            layout_add(tv, TV_THREAD, digits->extents[last], digits->strides[last], 0);
        if (digits->odd_thread && d == last) continue;
        if (thread && left < copies)
            layout_add(tv, TV_THREAD, 2, 0, 0), layout_add(tv, TV_VALUE, 2, digits->strides[d], 0);
        else layout_add(tv, thread ? TV_THREAD : TV_VALUE, digits->extents[d], digits->strides[d], 0);
    }
    return layout_finish(tv);
}

// An odd digit is the last in the order, and anywhere in the tile.
static Pair random_digits(Arena *arena, bool odd, int copies) {
    Digits digits = {.threads = 5 + (int)below(2), .odd_thread = odd && below(2) ? 3 + (int)below(3) : 0};
    int64_t stride = 1;
    digits.count = digits.threads + 1 + (int)below(4);
    int low = digits.count - odd, at = odd ? (int)below(digits.count) : digits.count;
    for (int i = 0; i < digits.count; i++) {
        digits.order[i] = i == digits.count - 1 && odd ? at : i + (i >= at);
        digits.extents[i] = i == at ? 3 + 2 * below(2) : 2;
        digits.strides[i] = stride;
        stride *= digits.extents[i];
    }
    for (int n = 0; n < 8; n++) swap(digits.order, (int)below(low), (int)below(low));
    const Layout *source = spread(arena, &digits, copies);
    for (int n = (int)below(5); n > 0; n--) {
        int first = digits.odd_thread ? digits.odd_thread : 5, a = (int)below(low), b = (int)below(low);
        bool crosses = (a >= first && a < digits.threads) != (b >= first && b < digits.threads);
        if (!crosses || !below(8)) swap(digits.order, a, b);
    }
    return (Pair){source, spread(arena, &digits, 0)};
}

// The images of the source with some XORed.
static Pair random_bits(Arena *arena) {
    LayoutBits a = {.in = {5 + (int)below(2), 1 + (int)below(4)}}, b;
    int count = a.in[0] + a.in[1], order[16];
    for (int i = 0; i < count; i++) order[i] = i;
    for (int n = 0; n < 8; n++) swap(order, (int)below(count), (int)below(count));
    for (int i = 0; i < count; i++) a.images[i][0] = (int64_t)1 << order[i];
    b = a;
    for (int n = (int)below(6); n > 0; n--) {
        int x = (int)below(count), y = (int)below(count);
        if (x != y && (x == 5 || y != 5 || a.in[0] == 5)) b.images[x][0] ^= b.images[y][0];
    }
    return (Pair){layout_of_bits(arena, 2, 1, &a, 0), layout_of_bits(arena, 2, 1, &b, 0)};
}

static Pair random_pair(Arena *arena, int round) {
    if (round % 4 == 0) return random_bits(arena);
    return random_digits(arena, round % 4 == 1, round % 4 == 2 ? (int)below(3) : 0);
}

static int64_t element(const Layout *tv, int64_t thread, int64_t value) {
    int64_t out;
    layout_eval(tv, (int64_t[]){thread, value}, &out);
    return out;
}

static uint64_t image(const uint64_t *columns, uint64_t of) {
    uint64_t sum = 0;
    for (int i = 0; of >> i; i++) sum ^= of >> i & 1 ? columns[i] : 0;
    return sum;
}

static int64_t value_number(const int64_t *weights, uint64_t bits) {
    int64_t sum = 0;
    for (int i = 0; bits >> i; i++) sum += bits >> i & 1 ? weights[i] : 0;
    return sum;
}

// Executes the plan for element j of a thread's destination; what it gives is the element that the thread must have.
static void check_element(const ShufflePlan *plan, const Pair *pair, int64_t thread, uint64_t j, int64_t from_offset,
                          int64_t to_offset) {
    uint64_t within = j & ((1u << plan->unit) - 1), word = j >> plan->unit & ((1u << plan->rounds) - 1), bits = 0;
    for (int b = 0; b < plan->thread_bits; b++) bits |= (uint64_t)(thread / plan->thread_weight[b] % 2) << b;
    uint64_t round = word ^ image(plan->swap_destination, bits), warps = bits >> plan->lane_bits << plan->lane_bits;
    uint64_t lane = image(plan->lane_base, bits) ^ image(plan->lane_step, round);
    int64_t giver = (thread >> plan->lane_bits << plan->lane_bits) + (int64_t)lane;
    bool local = plan->local >= 0 && round < (uint64_t)1 << plan->local;
    if (local) assert_int_equal(giver, thread);
    uint64_t packed = (image(plan->sent, round) ^ image(plan->swap_source, warps | lane)) << plan->unit | within;
    int64_t from = value_number(plan->source_weight, image(plan->source_order, packed)) + from_offset;
    int64_t to = value_number(plan->destination_weight, image(plan->destination_order, j)) + to_offset;
    assert_int_equal(element(pair->source, giver, from), element(pair->destination, thread, to));
}

static int64_t check_plan(const ShufflePlan *plan, const Pair *pair) {
    int64_t checked = 0, repeats = plan->repeat_count ? plan->repeats[0].extent : 1;
    assert_true(plan->repeat_count < 2);
    for (int64_t thread = 0; thread < tv_threads(pair->source); thread++)
        for (int64_t r = 0; r < repeats; r++)
            for (uint64_t j = 0; j < (uint64_t)1 << (plan->unit + plan->rounds + plan->copies); j++, checked++)
                check_element(plan, pair, thread, j, r * plan->repeats[0].source, r * plan->repeats[0].destination);
    return checked;
}

static void plans_move_what_is_needed(void **state) {
    static const int widths[] = {8, 16, 32, 64};
    int done = 0, packed = 0, exact = 0, swapped = 0, repeated = 0, refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        LayoutContext cx = layout_context(*state), trial = layout_context(*state);
        Pair pair = random_pair(*state, round);
        int bits = widths[below(4)];
        Conversion way = conversion_of(&cx, pair.source, pair.destination, pair.source->out_shape, LANES);
        Quotient q = quotient_of(&trial, pair.source, pair.destination, LANES);
        ShufflePlan plan = shuffle_plan(&trial, &q, bits);
        assert_false(cx.failed);
        if (way.kind == CONVERT_BY_SHARED) {
            assert_true(trial.failed);
            continue;
        }
        if (trial.failed) {
            assert_false(way.fewest);
            refused++;
            continue;
        }
        assert_int_equal(check_plan(&plan, &pair), tv_threads(pair.source) * tv_values(pair.destination));
        ShuffleCost cost = shuffle_cost(&plan, bits);
        int64_t registers = bits > 32 ? bits / 32 : 1;
        if (way.fewest && plan.unit == 0) assert_int_equal(cost.shuffles, way.shuffles * registers), exact++;
        if (way.fewest) assert_int_equal(cost.shuffles << plan.unit, way.shuffles * registers);
        done++, packed += plan.unit > 0, swapped += cost.selects > 0, repeated += plan.repeat_count;
    }
    assert_true(done > ROUNDS / 4 && packed > 100 && exact > 100 && swapped > 100 && repeated > 100);
    assert_true(refused < done / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_ARENA(plans_move_what_is_needed)};
    return run(tests);
}
