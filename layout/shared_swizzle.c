// The swizzle for several accesses, by linear algebra.
//
// The word of an element is a number of bits: those of the bank, and above them those of the segment (the row of
// all banks). A swizzle XORs into the bank a linear function T of the segment. In a phase of an access the words of the
// lanes are an affine space, whose differences P are known; under T, two of them conflict when the banks of their
// difference cancel. So the phase takes 2^d wavefronts, d the dimension of what of P the banks map to 0, and the sum of
// these over all accesses is what T must make least.
//
// T is chosen bit by bit, lowest segment bit first. Of a basis of P in which each vector has a highest bit of its own,
// those whose highest bit is decided span a part of P, and d of the part is at most d of the whole: a lower bound, by
// which choices that cannot be better than the best known one are left out. Values that start with the least bound come
// first, so the first leaf is mostly the best one.
//
//     64 x 64 words, read by rows and by columns    P = bank bits 0 .. 4 and segment bits 1 .. 5 (rows):  T = row bits to bank bits
#include "layout/shared_swizzle.h"
#include "layout/linear.h"
#include <string.h>

enum { WORD_BITS = 32, MOST_SEGMENT = 32, MOST_BASIS = 16, MOST_NODES = 1 << 14 };

typedef struct Phase {
    int count;
    uint64_t basis[MOST_BASIS];   // by highest bit, the lowest first
    int64_t phases;
} Phase;

typedef struct Search {
    int banks, low, top;   // bank bits; those below `low` belong to one access; bits of the whole
    const Phase *phases;
    int count, nodes;
    bool found;
    int64_t least;
    uint64_t map[MOST_SEGMENT], best[MOST_SEGMENT];   // segment bit -> banks
} Search;

// ---- the cost of a choice ----

static uint64_t bank_of(const Search *s, uint64_t word) {
    uint64_t bank = word & (((uint64_t)1 << s->banks) - 1);
    for (uint64_t left = word >> s->banks; left; left &= left - 1) bank ^= s->map[__builtin_ctzll(left)];
    return bank;
}

// Wavefronts beyond those without conflicts, with the bits below `decided` known: no fewer in the end.
static int64_t conflicts_until(const Search *s, int decided) {
    int64_t sum = 0;
    for (int i = 0; i < s->count; i++) {
        const Phase *phase = &s->phases[i];
        uint64_t banks[MOST_BASIS];
        int known = 0;
        while (known < phase->count && phase->basis[known] >> decided == 0) {
            banks[known] = bank_of(s, phase->basis[known]);
            known++;
        }
        sum += phase->phases * (((int64_t)1 << (known - bits_rank(banks, known))) - 1);
    }
    return sum;
}

static bool matters(const Search *s, int bit) {
    for (int i = 0; i < s->count; i++)
        for (int j = 0; j < s->phases[i].count; j++)
            if (s->phases[i].basis[j] >> bit & 1) return true;
    return false;
}

// ---- the search ----

typedef struct Choice {
    uint64_t value;
    int64_t bound;
} Choice;

// Nothing first, then the neighbour of what the bit below has, so that shifts of whole fields come out.
static int choices_of(Search *s, int bit, Choice *choices) {
    int at = bit - s->banks, count = 0;
    uint64_t next = at > 0 ? s->map[at - 1] << 1 : 0, values = (uint64_t)1 << (s->banks - s->low);
    for (uint64_t n = 0; n <= values; n++) {
        uint64_t value = n == 1 ? next : n > 1 ? (n - 1) << s->low : 0;
        if (n == 1 && (!next || next >> s->banks)) continue;
        if (n > 1 && value == next) continue;
        s->map[at] = value;
        Choice choice = {value, conflicts_until(s, bit + 1)};
        int place = count++;
        for (; place > 0 && choices[place - 1].bound > choice.bound; place--) choices[place] = choices[place - 1];
        choices[place] = choice;
        if (!matters(s, bit)) break;
    }
    return count;
}

static void choose(Search *s, int bit) {
    enum { MOST_CHOICES = 64 };
    Choice choices[MOST_CHOICES];
    if (s->nodes++ > MOST_NODES && s->found) return;
    if (bit == s->top) {
        s->least = conflicts_until(s, bit);
        s->found = true;
        memcpy(s->best, s->map, sizeof s->map);
        return;
    }
    int count = choices_of(s, bit, choices);
    for (int i = 0; i < count; i++) {
        if (s->found && choices[i].bound >= s->least) break;
        s->map[bit - s->banks] = choices[i].value;
        choose(s, bit + 1);
    }
    s->map[bit - s->banks] = 0;
}

// ---- accesses as spaces of words ----

static uint64_t highest(uint64_t x) {
    return (uint64_t)1 << (63 - __builtin_clzll(x));
}

// Adds a vector, reduced by those before; the basis stays ordered.
static void insert(Phase *phase, uint64_t word) {
    for (int i = phase->count - 1; i >= 0; i--)
        if (word & highest(phase->basis[i])) word ^= phase->basis[i];
    if (!word || phase->count == MOST_BASIS) return;
    int place = phase->count++;
    for (; place > 0 && phase->basis[place - 1] > word; place--) phase->basis[place] = phase->basis[place - 1];
    phase->basis[place] = word;
}

static Phase phase_of(const SwizzleAccess *access, int element_bits) {
    Phase phase = {.phases = access->phases};
    for (int64_t words = access->width * element_bits / WORD_BITS, word = 1; word < words; word *= 2)
        insert(&phase, (uint64_t)word);
    for (int i = 0; i < access->bits; i++) insert(&phase, access->spread[i] * (uint64_t)element_bits / WORD_BITS);
    return phase;
}

static int64_t panel_of(const int64_t *shape) {
    return shape[1] & -shape[1];
}

int64_t swizzle_index(const int64_t *shape, int64_t row, int64_t column) {
    int64_t panel = panel_of(shape);
    return (column / panel * shape[0] + row) * panel + column % panel;
}

// The layout: the index with T of its segment bits.
static const Layout *with_map(LayoutContext *cx, const Search *s, const int64_t *shape, int element_bits) {
    LayoutBits bits = {.in = {log2_above(shape[0]), log2_above(shape[1])}};
    if (bits.in[0] + bits.in[1] > LAYOUT_MAX_BITS) return NULL;
    int at = 0;
    for (int d = 0; d < 2; d++)
        for (int bit = 0; bit < bits.in[d]; bit++, at++) {
            uint64_t index = (uint64_t)swizzle_index(shape, d ? 0 : (int64_t)1 << bit, d ? (int64_t)1 << bit : 0);
            uint64_t word = index * (uint64_t)element_bits / WORD_BITS, segment = word >> s->banks;
            if (segment) index ^= s->best[__builtin_ctzll(segment)] * WORD_BITS / (uint64_t)element_bits;
            bits.images[at][0] = (int64_t)index;
        }
    return layout_cut(cx->arena, layout_of_bits(cx->arena, 2, 1, &bits, element_bits), shape);
}

const Layout *fewest_wavefronts(LayoutContext *cx, const int64_t *shape, int element_bits, int64_t run,
                                const SwizzleAccess *accesses, int count, MemoryShape memory) {
    int columns = log2_above(shape[1]), rows = log2_above(shape[0]);
    bool on_bits = log2_exact(shape[1]) >= 0 || log2_exact(shape[0]) >= 0;
    if (!on_bits || panel_of(shape) < run || log2_exact(element_bits) < 0 || element_bits > 128) return NULL;
    int64_t words = ((int64_t)1 << (columns + rows)) * element_bits / WORD_BITS;
    int64_t own = run * element_bits / WORD_BITS;
    Search s = {.banks = log2_exact(memory.banks), .low = own > 1 ? log2_exact(own) : 0, .count = count};
    s.top = words > 0 ? log2_above(words) : 0;
    if (s.top <= s.banks || s.top - s.banks > MOST_SEGMENT) return NULL;
    Phase *phases = NEW_ARRAY(cx->arena, Phase, count);
    for (int i = 0; i < count; i++) phases[i] = phase_of(&accesses[i], element_bits);
    s.phases = phases;
    choose(&s, s.banks);
    return with_map(cx, &s, shape, element_bits);
}
