// Rounds of shuffles, by linear algebra.
//
// Let X say where destination bits come from: register r of lane l is register R(r, l) of lane L(r, l). In round i each
// lane takes one register, i ^ M l, from lane L(i, 0) ^ T l with T = L(M l, l). M is chosen so that T is the identity
// where that can be: then the rounds i with L(i, 0) = 0 stay in the thread. Else T is made as injective as possible,
// so that each lane is asked by one lane alone. What it sends is then a linear function of its own number.
//
// Registers that come from the same lane in every round are the kernel of i -> L(i, 0): as many of them as fill a word
// travel together.
//
// Worked example, a transpose of 4 x 4 elements over 4 lanes: R(r, l) = l, L(r, l) = r. T = I needs M = I: in round i
// lane l takes register i ^ l from lane l ^ i, which sends its register l, that is (own number) ^ i. Round 0 is free;
// three shuffles, and two swaps of registers before and after them.
#include "layout/shuffle.h"
#include <string.h>

enum { WORD_BITS = 32 };

// ---- what repeats ----

static void add_repeats(LayoutContext *cx, ShufflePlan *plan, const Quotient *q) {
    const QuotientSide *from = &q->sides[0], *to = &q->sides[1];
    for (int i = 0; i < q->odd_count; i++) {
        const OddDigit *odd = &q->odd[i];
        bool values = odd->input[0] == TV_VALUE && odd->input[1] == TV_VALUE;
        if (values) plan->repeats[plan->repeat_count++] = (ShuffleRepeat){odd->extent, odd->weight[0], odd->weight[1]};
        else if (odd->input[0] != odd->input[1] || odd->weight[0] != odd->weight[1])
            layout_refuse(cx, "an odd digit at other places");
    }
    for (int i = 0; i < to->copy_count; i++)
        plan->repeats[plan->repeat_count++] = (ShuffleRepeat){to->copies[i].extent, 0, to->copies[i].weight};
    bool same = from->thread_bits == to->thread_bits;   // else odd digits take the warps apart at other places
    for (int bit = 0; bit < from->thread_bits && same; bit++) same = from->thread_weight[bit] == to->thread_weight[bit];
    if (!same) layout_refuse(cx, "other warps");
}

// ---- where the bits of the destination come from ----

typedef struct From {
    uint64_t registers, lanes;
} From;

typedef struct Moves {
    int registers, lanes, threads;   // bits: of the destination's registers; of lanes; of lanes and warps
    int held;                        // bits of the source's registers
    From of_register[SHUFFLE_BITS], of_thread[SHUFFLE_BITS];
    int copy_count;
    From copies[SHUFFLE_BITS];   // changes of place that lead to another copy of the same element
} Moves;

static const uint64_t *images_of(Linear a, const char *in, int *count) {
    int dim = linear_find_in(a, in);
    *count = a.ins[dim].bits;
    return a.columns + linear_in_shift(a, dim);
}

static From place_of(uint64_t bits, int registers) {
    return (From){bits & (((uint64_t)1 << registers) - 1), bits >> registers};
}

static Moves moves_of(LayoutContext *cx, Linear source, Linear destination) {
    Moves moves = {0};
    int warps, held, lanes;
    const uint64_t *have = images_of(source, "register", &held), *have_lanes = images_of(source, "lane", &lanes);
    const uint64_t *have_warps = images_of(source, "warp", &warps),
                   *need_lanes = images_of(destination, "lane", &lanes);
    const uint64_t *need = images_of(destination, "register", &moves.registers);
    const uint64_t *need_warps = images_of(destination, "warp", &warps);
    if (held > SHUFFLE_BITS || moves.registers > SHUFFLE_BITS || lanes + warps > SHUFFLE_BITS) {
        layout_refuse(cx, "too many values or threads");
        return moves;
    }
    uint64_t span[2 * SHUFFLE_BITS], found;
    memcpy(span, have, sizeof *span * (size_t)held);
    memcpy(span + held, have_lanes, sizeof *span * (size_t)lanes);
    moves.held = held, moves.lanes = lanes, moves.threads = lanes + warps;
    for (int i = 0; i < held + lanes; i++)
        if (bits_express(span, i, span[i], &found) && moves.copy_count < SHUFFLE_BITS)
            moves.copies[moves.copy_count++] = place_of(found | (uint64_t)1 << i, held);
    for (int i = 0; i < moves.registers + moves.threads; i++) {
        bool is_register = i < moves.registers;
        int t = i - moves.registers;
        uint64_t wanted = is_register ? need[i]
                          : t < lanes ? need_lanes[t] ^ have_lanes[t]   // from the own lane, if its registers have it
                                      : need_warps[t - lanes] ^ have_warps[t - lanes];
        if (!bits_express(span, held + lanes, wanted, &found)) {
            layout_refuse(cx, "an element comes from another warp");
            return moves;
        }
        From from = place_of(found, held);
        if (!is_register && t < lanes) from.lanes ^= (uint64_t)1 << t;
        if (is_register) moves.of_register[i] = from;
        else moves.of_thread[t] = from;
    }
    return moves;
}

// ---- which register a lane takes ----

typedef struct Choice {
    uint64_t taken[SHUFFLE_BITS];     // M: thread bit -> registers of the destination
    uint64_t base[SHUFFLE_BITS];      // T: thread bit -> lanes
    uint64_t given[SHUFFLE_BITS];     // lane bit of the giver -> registers of the source
    uint64_t by_warp[SHUFFLE_BITS];   // the same of the thread's warp bits
    bool identity;
} Choice;

static From sum_of(const From *from, uint64_t mask) {
    From sum = {0, 0};
    for (; mask; mask &= mask - 1) {
        sum.registers ^= from[__builtin_ctzll(mask)].registers;
        sum.lanes ^= from[__builtin_ctzll(mask)].lanes;
    }
    return sum;
}

static uint64_t combine(const uint64_t *columns, uint64_t mask) {
    uint64_t sum = 0;
    for (; mask; mask &= mask - 1) sum ^= columns[__builtin_ctzll(mask)];
    return sum;
}

// The register or copy, if any, that makes the lane another one than those before it come from.
static uint64_t injective_step(const uint64_t *base, int count, uint64_t from, const uint64_t *steps, int step_count) {
    uint64_t found;
    if (!bits_express(base, count, from, &found)) return 0;
    for (int i = 0; i < step_count; i++)
        if (!bits_express(base, count, from ^ steps[i], &found)) return (uint64_t)1 << i;
    return 0;
}

static void choose_base(Moves *moves, Choice *choice) {
    uint64_t steps[2 * SHUFFLE_BITS], found;
    int copies = moves->copy_count, count = copies + moves->registers;   // copies first: they cost no selections
    for (int i = 0; i < copies; i++) steps[i] = moves->copies[i].lanes;
    for (int i = 0; i < moves->registers; i++) steps[copies + i] = moves->of_register[i].lanes;
    choice->identity = true;
    for (int t = 0; t < moves->threads; t++) {
        uint64_t own = t < moves->lanes ? (uint64_t)1 << t : 0, from = moves->of_thread[t].lanes;
        bool meets = bits_express(steps, count, from ^ own, &found);
        uint64_t taken = meets ? found : 0;
        if (t < moves->lanes && bits_express(choice->base, t, from ^ combine(steps, taken), &found))
            taken = injective_step(choice->base, t, from, steps, count);
        choice->base[t] = from ^ combine(steps, taken);
        choice->taken[t] = taken >> copies;
        From copy = sum_of(moves->copies, taken & (((uint64_t)1 << copies) - 1));
        moves->of_thread[t].registers ^= copy.registers;
        moves->of_thread[t].lanes ^= copy.lanes;
        choice->identity &= choice->base[t] == own;
    }
}

// What a lane gives depends on the lane that takes it, base^-1 of its own number.
static void choose_given(LayoutContext *cx, const Moves *moves, Choice *choice) {
    uint64_t lanes[2 * SHUFFLE_BITS], needs[2 * SHUFFLE_BITS] = {0}, found;
    for (int t = 0; t < moves->lanes; t++) {
        lanes[t] = choice->base[t];
        needs[t] = moves->of_thread[t].registers ^ sum_of(moves->of_register, choice->taken[t]).registers;
        if (bits_express(lanes, t, lanes[t], &found) && combine(needs, found) != needs[t]) {
            layout_refuse(cx, "two lanes need different registers of one");
            return;
        }
        lanes[moves->lanes + t] = (uint64_t)1 << t;
    }
    for (int l = 0; l < moves->lanes; l++)
        if (bits_express(lanes, 2 * moves->lanes, (uint64_t)1 << l, &found)) choice->given[l] = combine(needs, found);
    for (int t = moves->lanes; t < moves->threads; t++)
        choice->by_warp[t] = moves->of_thread[t].registers ^ sum_of(moves->of_register, choice->taken[t]).registers ^
                             combine(choice->given, choice->base[t]);
}

// ---- orders of registers ----

typedef struct Rounds {
    int kernel, others, copies;   // numbers of the vectors below
    uint64_t vectors[SHUFFLE_BITS];
    uint64_t copied[SHUFFLE_BITS];
} Rounds;

static uint64_t given_in(const Moves *moves, const Choice *choice, uint64_t registers) {
    From from = sum_of(moves->of_register, registers);
    return from.registers ^ combine(choice->given, from.lanes);
}

// The registers of the destination in another basis: first what changes the register of the giver alone, then the rest;
// what changes nothing is a copy.
static Rounds order_rounds(const Moves *moves, const Choice *choice) {
    Rounds rounds = {0};
    uint64_t steps[SHUFFLE_BITS] = {0}, others[SHUFFLE_BITS], given[SHUFFLE_BITS], kernel[SHUFFLE_BITS], found;
    for (int i = 0; i < moves->registers; i++) {
        steps[i] = moves->of_register[i].lanes;
        if (!bits_express(steps, i, steps[i], &found)) {
            others[rounds.others++] = (uint64_t)1 << i;
            continue;
        }
        uint64_t vector = found | (uint64_t)1 << i, gives = given_in(moves, choice, vector);
        if (bits_express(given, rounds.kernel, gives, &found)) {
            rounds.copied[rounds.copies++] = vector ^ combine(kernel, found);
            continue;
        }
        given[rounds.kernel] = gives;
        kernel[rounds.kernel++] = vector;
    }
    memcpy(rounds.vectors, kernel, sizeof *kernel * (size_t)rounds.kernel);
    memcpy(rounds.vectors + rounds.kernel, others, sizeof *others * (size_t)rounds.others);
    return rounds;
}

// A basis of the source's registers that begins with what the rounds give; false: a word would be torn apart.
static bool order_source(const Moves *moves, const Choice *choice, const Rounds *rounds, ShufflePlan *plan) {
    int count = 0, words = rounds->kernel + rounds->others - plan->unit;
    uint64_t gives[SHUFFLE_BITS], found;
    for (int i = 0; i < plan->unit + words; i++) {
        gives[i] = given_in(moves, choice, rounds->vectors[i]);
        if (!bits_express(plan->source_order, count, gives[i], &found)) plan->source_order[count++] = gives[i];
    }
    for (int i = 0; i < moves->held && count < moves->held; i++)
        if (!bits_express(plan->source_order, count, (uint64_t)1 << i, &found))
            plan->source_order[count++] = (uint64_t)1 << i;
    for (int i = 0; i < words; i++) {
        bits_express(plan->source_order, count, gives[plan->unit + i], &found);
        if (found & (((uint64_t)1 << plan->unit) - 1)) return false;
        plan->sent[i] = found >> plan->unit;
        plan->lane_step[i] = sum_of(moves->of_register, rounds->vectors[plan->unit + i]).lanes;
    }
    return true;
}

static void order_destination(const Rounds *rounds, ShufflePlan *plan) {
    int count = rounds->kernel + rounds->others;
    memcpy(plan->destination_order, rounds->vectors, sizeof *rounds->vectors * (size_t)count);
    memcpy(plan->destination_order + count, rounds->copied, sizeof *rounds->copied * (size_t)rounds->copies);
    plan->copies = rounds->copies;
    plan->rounds = count - plan->unit;
}

// False: elements would change their place within a word.
static bool fill_swaps(const Moves *moves, const Choice *choice, ShufflePlan *plan) {
    for (int t = 0; t < moves->threads; t++) {
        uint64_t given = t < moves->lanes ? choice->given[t] : choice->by_warp[t], taken;
        bits_express(plan->source_order, moves->held, given, &given);
        if (given & (((uint64_t)1 << plan->unit) - 1)) return false;
        plan->swap_source[t] = given >> plan->unit;
        bits_express(plan->destination_order, plan->unit + plan->rounds, choice->taken[t], &taken);
        plan->swap_destination[t] = taken >> plan->unit;
        plan->lane_base[t] = choice->base[t];
    }
    return true;
}

// ---- the plan ----

static void plan_bits(LayoutContext *cx, ShufflePlan *plan, Linear source, Linear destination, int element_bits) {
    Choice choice = {0};
    Moves moves = moves_of(cx, source, destination);
    if (cx->failed) return;
    choose_base(&moves, &choice);
    choose_given(cx, &moves, &choice);
    if (cx->failed) return;
    Rounds rounds = order_rounds(&moves, &choice);
    plan->source_bits = moves.held, plan->lane_bits = moves.lanes, plan->thread_bits = moves.threads;
    plan->unit = element_bits < WORD_BITS ? log2_exact(WORD_BITS / element_bits) : 0;
    if (plan->unit > rounds.kernel) plan->unit = rounds.kernel;
    while (order_destination(&rounds, plan),
           !order_source(&moves, &choice, &rounds, plan) || !fill_swaps(&moves, &choice, plan))
        plan->unit--;
    plan->local = choice.identity ? rounds.kernel - plan->unit : -1;
}

ShufflePlan shuffle_plan_of_bits(LayoutContext *cx, Linear source, Linear destination, int element_bits) {
    ShufflePlan plan = {0};
    plan_bits(cx, &plan, source, destination, element_bits);
    return plan;
}

ShufflePlan shuffle_plan(LayoutContext *cx, const Quotient *q, int element_bits) {
    const QuotientSide *from = &q->sides[0], *to = &q->sides[1];
    ShufflePlan plan = {0};
    if (cx->failed) return plan;
    plan = shuffle_plan_of_bits(cx, from->bits, to->bits, element_bits);
    add_repeats(cx, &plan, q);
    memcpy(plan.source_weight, from->value_weight, sizeof from->value_weight);
    memcpy(plan.destination_weight, to->value_weight, sizeof to->value_weight);
    memcpy(plan.thread_weight, from->thread_weight, sizeof from->thread_weight);
    return plan;
}

// ---- its cost ----

int shuffle_swaps(const uint64_t *columns, int thread_bits, uint64_t *masks, uint64_t *images) {
    int count = 0;
    for (int t = 0; t < thread_bits; t++) {
        uint64_t found;
        if (!bits_express(images, count, columns[t], &found)) {
            images[count] = columns[t];
            masks[count] = 0;
            found = (uint64_t)1 << count++;
        }
        for (; found; found &= found - 1) masks[__builtin_ctzll(found)] |= (uint64_t)1 << t;
    }
    return count;
}

ShuffleCost shuffle_cost(const ShufflePlan *plan, int element_bits) {
    int64_t repeats = 1, registers = element_bits > WORD_BITS ? element_bits / WORD_BITS : 1;
    int64_t words = (int64_t)1 << (plan->source_bits - plan->unit), rounds = (int64_t)1 << plan->rounds;
    uint64_t masks[SHUFFLE_BITS], images[SHUFFLE_BITS];
    for (int i = 0; i < plan->repeat_count; i++) repeats *= plan->repeats[i].extent;
    int64_t selects = words * shuffle_swaps(plan->swap_source, plan->thread_bits, masks, images) +
                      rounds * shuffle_swaps(plan->swap_destination, plan->thread_bits, masks, images);
    int64_t local = plan->local < 0 ? 0 : (int64_t)1 << plan->local;
    return (ShuffleCost){repeats * registers * (rounds - local), repeats * registers * selects};
}
