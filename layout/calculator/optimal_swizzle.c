// Optimal swizzling through shared memory, by linear algebra.
//
// A wavefront reads one 32-bit word from each of 32 banks. Lanes of a wavefront conflict when they need the same bank
// in different rows ("segments"), that is when a combination of active lane bits lies in the span of the segment bits.
// So the search is for a segment subspace that meets neither the writers' lanes S nor the readers' lanes D:
//
//   1 vector   bits in registers on both sides, up to 128 bits; if that is less than a word, bits that are registers on
//              one side and warps on the other fill it: they are accessed at the same place by different warps
//   2 lanes    with vectors wider than a word fewer lanes are active per wavefront: the last lane bits drop out
//   3 segment  unit vectors in neither S nor D cannot conflict; then sums s + d of a bit of S \ D and one of D \ S,
//              which lie in neither span; what is still missing comes from S and D and costs conflicts
//   4 bank     whatever completes the space
//   5 reps     segment bits in registers on both sides: the tile repeats, so less memory does in more rounds
//
// Worked example, a 32 x 16 transpose of 32-bit words: S has lanes (0,1)..(0,8), D has (1,0)..(16,0), and (1,0) is in
// both. The segment is (2,1), (4,2), (8,4), (16,8): the familiar XOR of row and column falls out.
//
// Limits: vectorises first and then minimises conflicts, not jointly. Powers of two only.
#include "layout/calculator/optimal_swizzle.h"
#include <string.h>

// Shared memory: 32 banks of 4 bytes; accesses up to 16 bytes.
enum { BANKS_LOG2 = 5, WORD_BITS = 32, WIDEST_BITS = 128 };

typedef struct Bits {
    uint64_t items[3 * 64];
    int count;
} Bits;

static void add(Bits *set, uint64_t vector) {
    set->items[set->count++] = vector;
}

static bool has(const Bits *set, uint64_t vector) {
    for (int i = 0; i < set->count; i++)
        if (set->items[i] == vector) return true;
    return false;
}

static void append(Bits *set, const Bits *more) {
    for (int i = 0; i < more->count; i++) add(set, more->items[i]);
}

static void truncate_to(Bits *set, int count) {
    if (set->count > count) set->count = count;
}

// The images of an input's bits; an absent input has none.
static Bits images(Linear a, const char *in) {
    Bits set = {{0}, 0};
    int dim = linear_find_in(a, in);
    for (int bit = 0; dim >= 0 && bit < a.ins[dim].bits; bit++) add(&set, a.columns[linear_in_shift(a, dim) + bit]);
    return set;
}

static Bits nonzero_not_in(const Bits *set, const Bits *excluded) {
    Bits kept = {{0}, 0};
    for (int i = 0; i < set->count; i++)
        if (set->items[i] && !(excluded && has(excluded, set->items[i]))) add(&kept, set->items[i]);
    return kept;
}

static Bits not_in(const Bits *set, const Bits *excluded) {
    Bits kept = {{0}, 0};
    for (int i = 0; i < set->count; i++)
        if (!has(excluded, set->items[i])) add(&kept, set->items[i]);
    return kept;
}

static Bits common(const Bits *a, const Bits *b) {
    Bits set = {{0}, 0};
    set.count = bits_intersection(a->items, a->count, b->items, b->count, set.items);
    return set;
}

static int log2_floor(int64_t n) {
    return 63 - __builtin_clzll((unsigned long long)n);
}

static uint64_t smallest(const Bits *set) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < set->count; i++)
        if (set->items[i] < least) least = set->items[i];
    return least;
}

static void sort(Bits *set) {
    for (int i = 1; i < set->count; i++)
        for (int j = i; j > 0 && set->items[j - 1] > set->items[j]; j--) {
            uint64_t swap = set->items[j];
            set->items[j] = set->items[j - 1];
            set->items[j - 1] = swap;
        }
}

// ---- 1 vector ----

typedef enum { BY_NEITHER, BY_SOURCE, BY_DESTINATION } VectorSide;

// Fills the vector to a word with bits that are registers on one side and warps on the other, then with warps.
static VectorSide fill_word(Linear source, Linear destination, int word_bits, Bits *vector) {
    Bits zeros = {{0}, 0}, source_regs = images(source, "register"), destination_regs = images(destination, "register");
    Bits source_warps = images(source, "warp"), destination_warps = images(destination, "warp");
    Bits block = images(source, "block");
    source_warps = nonzero_not_in(&source_warps, &zeros);
    destination_warps = nonzero_not_in(&destination_warps, &zeros);
    source_regs = not_in(&source_regs, vector);
    destination_regs = not_in(&destination_regs, vector);
    Bits from_source = common(&source_regs, &destination_warps);
    Bits from_destination = common(&destination_regs, &source_warps);
    bool by_source = from_source.count > from_destination.count;
    if (from_source.count == from_destination.count && from_source.count > 0)
        by_source = smallest(&from_source) < smallest(&from_destination);   // the lowest basis needs fewer permutes
    append(vector, by_source ? &from_source : &from_destination);
    if (vector->count < word_bits) {
        Bits both = common(&source_warps, &destination_warps);
        append(vector, &both);
    }
    for (int i = 0; vector->count < word_bits && (i < source_warps.count || i < destination_warps.count); i++) {
        if (i < source_warps.count && !has(vector, source_warps.items[i])) add(vector, source_warps.items[i]);
        if (vector->count < word_bits && i < destination_warps.count && !has(vector, destination_warps.items[i]) &&
            !has(&block, destination_warps.items[i]))
            add(vector, destination_warps.items[i]);
    }
    truncate_to(vector, word_bits);
    return by_source ? BY_SOURCE : BY_DESTINATION;
}

static VectorSide choose_vector(Linear source, Linear destination, int element_bits, Bits *vector) {
    Bits source_regs = images(source, "register"), destination_regs = images(destination, "register");
    *vector = common(&source_regs, &destination_regs);
    truncate_to(vector, log2_floor(WIDEST_BITS / element_bits));
    if (((int64_t)element_bits << vector->count) >= WORD_BITS) return BY_NEITHER;
    return fill_word(source, destination, log2_floor(WORD_BITS / element_bits), vector);
}

// ---- 2 lanes ----

static int words_log2(int vector_bits, int element_bits) {
    int64_t words = ((int64_t)element_bits << vector_bits) / WORD_BITS;
    return words > 1 ? log2_floor(words) : 0;
}

static Bits active_lanes(Linear a, int vector_bits, int element_bits) {
    Bits lanes = images(a, "lane");
    int dropped = words_log2(vector_bits, element_bits) + lanes.count - BANKS_LOG2;
    if (dropped > 0) truncate_to(&lanes, lanes.count > dropped ? lanes.count - dropped : 0);
    return lanes;
}

// ---- 3 segment ----

static Bits choose_segment(const Bits *source, const Bits *destination, int dim, int length) {
    Bits segment = {{0}, 0};
    for (int bit = 0; bit < dim; bit++)
        if (!has(source, (uint64_t)1 << bit) && !has(destination, (uint64_t)1 << bit))
            add(&segment, (uint64_t)1 << bit);
    if (segment.count < length) {
        Bits a = nonzero_not_in(source, destination), b = nonzero_not_in(destination, source);
        if (a.count > b.count) {
            Bits swap = a;
            a = b;
            b = swap;
        }
        sort(&a);
        sort(&b);
        int conflicts = length - a.count - segment.count;   // sums alone do not reach: some bits must conflict
        if (conflicts < 0) conflicts = 0;
        if (conflicts > a.count) conflicts = a.count;
        for (int i = conflicts; i < a.count; i++) add(&segment, a.items[i] ^ b.items[i]);
        for (int i = 0; i < conflicts; i++) add(&segment, a.items[i]);
        for (int i = 0; i < conflicts; i++) add(&segment, b.items[i]);
    }
    truncate_to(&segment, length);
    return segment;
}

// ---- 4 bank ----

// Banks that one side holds in registers come first, so that it can still vectorise its accesses.
static void registers_first(Bits *bank, Linear source, Linear destination, VectorSide side) {
    Bits source_regs = images(source, "register"), destination_regs = images(destination, "register");
    Bits in_source = {{0}, 0}, in_destination = {{0}, 0};
    for (int i = 0; i < bank->count; i++) {
        if (has(&source_regs, bank->items[i])) add(&in_source, bank->items[i]);
        if (has(&destination_regs, bank->items[i])) add(&in_destination, bank->items[i]);
    }
    bool source_first = side == BY_NEITHER ? in_source.count > in_destination.count : side == BY_SOURCE;
    Bits order = source_first ? in_source : in_destination;
    Bits rest = not_in(bank, &order);
    append(&order, &rest);
    *bank = order;
}

// ---- the search ----

static bool check_sides(LayoutContext *cx, Linear source, Linear destination, int element_bits) {
    if (element_bits < 1 || element_bits > WIDEST_BITS || (element_bits & (element_bits - 1)))
        return layout_refuse(cx, "the element's width is a power of two up to 128 bits");
    bool same = source.out_count == destination.out_count;
    for (int i = 0; i < source.out_count && same; i++)
        same =
            !strcmp(source.outs[i].name, destination.outs[i].name) && source.outs[i].bits == destination.outs[i].bits;
    if (!same) return layout_refuse(cx, "source and destination lay out different tensors");
    const Linear sides[] = {source, destination};
    for (int i = 0; i < 2; i++) {
        if (linear_find_in(sides[i], "register") < 0 || linear_find_in(sides[i], "lane") < 0)
            return layout_refuse(cx, "a register layout has inputs register and lane");
        Bits registers = images(sides[i], "register");
        if (has(&registers, 0)) return layout_refuse(cx, "remove broadcast registers first");
    }
    return true;
}

// Builds (vector, bank, segment, block, reps) -> the outputs of `source`.
static Linear assemble(LayoutContext *cx, Linear source, const Bits *vector, const Bits *bank, const Bits *segment,
                       const Bits *block, const Bits *reps) {
    const Bits *groups[] = {vector, bank, segment, block, reps};
    static const char *const names[] = {"vector", "bank", "segment", "block", "reps"};
    bool with_block = linear_find_in(source, "block") >= 0;
    LinearDim ins[5];
    uint64_t columns[5 * 64];
    int in_count = 0, count = 0;
    for (int i = 0; i < 5; i++) {
        if (groups[i] == block && !with_block) continue;
        ins[in_count++] = (LinearDim){names[i], groups[i]->count};
        for (int j = 0; j < groups[i]->count; j++) columns[count++] = groups[i]->items[j];
    }
    Linear result = linear_make(cx, ins, in_count, source.outs, source.out_count, columns);
    if (!cx->failed && !linear_is_surjective(result)) layout_refuse(cx, "no swizzle covers the tensor");
    return result;
}

// One attempt: what is moved at once, which bits differ between the addresses of a wavefront on either side, and how
// many common registers stay in the segment (for instructions that move several matrices).
typedef struct Attempt {
    Bits vector, writers, readers;
    int kept_reps;
    VectorSide side;
} Attempt;

static Linear build(LayoutContext *cx, Linear source, Linear destination, int element_bits, const Attempt *attempt) {
    const Bits *vector = &attempt->vector;
    int dim = linear_out_bits(source);
    Bits zeros = {{0}, 0}, all_blocks = images(source, "block"), blocks = nonzero_not_in(&all_blocks, &zeros);
    int room = dim - vector->count - blocks.count;
    if (room < 0) return layout_refuse(cx, "the vector does not fit the tensor"), linear_empty();
    int64_t row_bits = ((int64_t)WORD_BITS << BANKS_LOG2) / ((int64_t)element_bits << vector->count);
    int bank_length = row_bits > 0 ? log2_floor(row_bits) : 0;
    if (bank_length > room) bank_length = room;

    Bits source_side = *vector, destination_side = *vector, union_side = *vector, bank = {{0}, 0};
    append(&source_side, &attempt->writers);
    append(&source_side, &blocks);
    append(&destination_side, &attempt->readers);
    append(&destination_side, &blocks);
    Bits segment = choose_segment(&source_side, &destination_side, dim, room - bank_length);
    append(&union_side, &segment);
    append(&union_side, &blocks);
    bank.count = bits_complement(union_side.items, union_side.count, dim, bank.items);

    Bits source_regs = images(source, "register"), destination_regs = images(destination, "register");
    Bits kept = {{0}, 0}, reps = {{0}, 0};
    for (int i = 0, stay = attempt->kept_reps; i < segment.count; i++) {
        bool both = has(&source_regs, segment.items[i]) && has(&destination_regs, segment.items[i]);
        add(both && stay-- <= 0 ? &reps : &kept, segment.items[i]);
    }
    if (words_log2(vector->count, element_bits) < 2) registers_first(&bank, source, destination, attempt->side);
    return assemble(cx, source, vector, &bank, &kept, &all_blocks, &reps);
}

Linear optimal_swizzle(LayoutContext *cx, Linear source, Linear destination, int element_bits) {
    if (!check_sides(cx, source, destination, element_bits)) return linear_empty();
    Attempt attempt = {.kept_reps = 0};
    attempt.side = choose_vector(source, destination, element_bits, &attempt.vector);
    attempt.writers = active_lanes(source, attempt.vector.count, element_bits);
    attempt.readers = active_lanes(destination, attempt.vector.count, element_bits);
    return build(cx, source, destination, element_bits, &attempt);
}

static SwizzleConflicts conflicts_in(Linear shared, const Bits *writers, const Bits *readers) {
    Bits segment = images(shared, "segment");
    int64_t write = (int64_t)1 << common(&segment, writers).count;
    int64_t read = (int64_t)1 << common(&segment, readers).count;
    return (SwizzleConflicts){read - 1, write - 1};
}

SwizzleConflicts optimal_swizzle_conflicts(LayoutContext *cx, Linear source, Linear destination, Linear shared,
                                           int element_bits) {
    SwizzleConflicts none = {0, 0};
    if (!check_sides(cx, source, destination, element_bits) || !check_sides(cx, source, source, element_bits))
        return none;
    int in = linear_find_in(shared, "vector");
    if (in < 0 || linear_find_in(shared, "segment") < 0 || linear_out_bits(shared) != linear_out_bits(source)) {
        layout_refuse(cx, "a shared layout has inputs vector and segment, and the tensor's outputs");
        return none;
    }
    Bits writers = active_lanes(source, shared.ins[in].bits, element_bits);
    Bits readers = active_lanes(destination, shared.ins[in].bits, element_bits);
    return conflicts_in(shared, &writers, &readers);
}
