// The optimal swizzle of a pair of accesses, by linear algebra.
//
// A place in memory is a number of bits, and each bit stands for a vector of the tile: those within a vector, those
// that choose a bank, those that choose a row of all banks (a segment). A wavefront reads one word of each bank, so
// lanes conflict when a sum of the vectors of their bits lies in the span of the segment, apart from what one access
// moves anyway. The search is therefore for the vector and for a segment that avoids two spans:
//
//   vector    the bits that registers of both sides have, up to 16 bytes; then, for the side with more registers, bits
//             that only it has: it moves wider vectors, the other side's lanes lie next to each other. For ldmatrix and
//             stmatrix the row of 16 bytes is what the instruction says.
//   lanes     of one phase: with vectors wider than a word the last lane bits drop out; of a matrix its 8 rows
//   segment   avoids the spans of vector and lanes of both sides, S and D: what completes S + D, then sums of one
//             vector of S and one of D outside of what both have. That reaches the largest dimension that avoids both,
//             n - max(|S|, |D|); what is still missing conflicts, on the larger side first.
//
// Each choice is costed exactly, and the fewest wavefronts win, then the fewest instructions.
//
//     transpose of 32 x 32 words    S = columns, D = rows, vector nothing: segment (1,1), (2,2), (4,4), .. , the XOR of row
//                                   and column
#include "layout/shared_way.h"
#include "layout/matrix.h"
#include <string.h>

enum { WORD_BITS = 32, WIDEST_BITS = 128, ROW_LANES = 3, LANE_BITS = 5 };

// Vectors of the tile, in order.
typedef struct Vectors {
    int count;
    uint64_t items[2 * LINEAR_MAX_BITS];
} Vectors;

typedef struct Side {
    Vectors registers, lanes;   // of the images of their bits; registers without those that change nothing
    bool matrix, bytes;         // ldmatrix or stmatrix, ldmatrix_bytes is allowed
} Side;

typedef struct Search {
    LayoutContext *cx;
    Linear tile;   // whose outputs are those of the tile
    int bits, element_bits;
    MemoryShape memory;
    Side sides[2];   // of the store, of the load
    int64_t times[2];
    bool found;
    SharedWay best;
} Search;

// ---- vectors ----

static void push(Vectors *set, uint64_t vector) {
    set->items[set->count++] = vector;
}

static bool has(const Vectors *set, uint64_t vector) {
    for (int i = 0; i < set->count; i++)
        if (set->items[i] == vector) return true;
    return false;
}

static void append(Vectors *set, const Vectors *more) {
    for (int i = 0; i < more->count; i++)
        if (more->items[i]) push(set, more->items[i]);
}

static bool depends(const Vectors *on, uint64_t vector) {
    uint64_t which;
    return bits_express(on->items, on->count, vector, &which);
}

static void push_independent(Vectors *set, uint64_t vector) {
    if (!depends(set, vector)) push(set, vector);
}

static Vectors images(Linear a, const char *in, bool zeros) {
    Vectors set = {0};
    int dim = linear_find_in(a, in);
    for (int bit = 0; dim >= 0 && bit < a.ins[dim].bits; bit++) {
        uint64_t image = a.columns[linear_in_shift(a, dim) + bit];
        if (image || zeros) push(&set, image);
    }
    return set;
}

static int log2_floor(int64_t n) {
    return 63 - __builtin_clzll((unsigned long long)n);
}

// ---- the accesses of a side ----

// What one phase reads: `along` are the bits of one lane's vector (or of a row of a matrix), `across` those that differ
// between its lanes.
typedef struct Access {
    SharedInstruction instruction;
    int along;   // the first bits of the place
    Vectors across;
} Access;

static int word_bits(const Search *s) {   // of the elements of a word
    return s->element_bits < WORD_BITS ? log2_floor(WORD_BITS / s->element_bits) : 0;
}

static int words_log2(const Search *s, int along) {
    int64_t words = ((int64_t)s->element_bits << along) / WORD_BITS;
    return words > 1 ? log2_floor(words) : 0;
}

static Access vectors_access(const Search *s, const Side *side, const Vectors *place) {
    Access access = {SHARED_VECTORS, 0, side->lanes};
    while (access.along < place->count && has(&side->registers, place->items[access.along])) access.along++;
    int active = log2_floor(s->memory.banks) - words_log2(s, access.along);
    if (access.across.count > active) access.across.count = active;
    return access;
}

static bool fits_matrix(const Search *s, const Side *side, const Vectors *place) {
    int own = word_bits(s);
    if (!side->matrix) return false;
    for (int i = 0; i < own; i++)
        if (!has(&side->registers, place->items[i])) return false;
    return place->items[own] == side->lanes.items[0] && place->items[own + 1] == side->lanes.items[1];
}

static bool fits_transposed(const Search *s, const Side *side, const Vectors *place) {
    for (int i = 0; i < ROW_LANES; i++)
        if (place->items[i] != side->lanes.items[LANE_BITS - ROW_LANES + i]) return false;
    if (s->element_bits == 16) return side->matrix;
    return s->element_bits == 8 && side->bytes && has(&side->registers, place->items[ROW_LANES]);
}

// False: the instruction does not move this place's first 16 bytes as a row. Rows of a transposed matrix are the first
// registers that are not in the row, of one word, and the first lanes. (Of bytes two phases are a matrix, by the second lane.)
static bool matrix_access(const Search *s, const Side *side, const Vectors *place, bool transposed, Access *access) {
    int row = log2_floor(WIDEST_BITS / s->element_bits), first = transposed ? 0 : LANE_BITS - ROW_LANES;
    *access = (Access){transposed ? SHARED_MATRIX_TRANSPOSED : SHARED_MATRIX, row, {0}};
    if (s->element_bits > WORD_BITS || place->count < row || side->lanes.count < LANE_BITS) return false;
    if (!(transposed ? fits_transposed : fits_matrix)(s, side, place)) return false;
    for (int i = 0; transposed && i < side->registers.count && access->across.count < word_bits(s); i++)
        if (!has(place, side->registers.items[i])) push(&access->across, side->registers.items[i]);
    if (transposed && access->across.count < word_bits(s)) return false;
    for (int i = access->across.count; i < ROW_LANES; i++) push(&access->across, side->lanes.items[first++]);
    if (transposed && !side->lanes.items[1]) return false;
    for (int i = 0; i < ROW_LANES; i++)
        if (!access->across.items[i] || has(place, access->across.items[i])) return false;
    return true;
}

// ---- the segment ----

static Vectors joined(const Vectors *a, const Vectors *b) {
    Vectors both = {0};
    for (int i = 0; i < a->count; i++) push_independent(&both, a->items[i]);
    for (int i = 0; i < b->count; i++) push_independent(&both, b->items[i]);
    return both;
}

// A basis of `set` beyond `common`, and beyond what it has.
static Vectors beyond(const Vectors *set, const Vectors *common) {
    Vectors span = *common, rest = {0};
    for (int i = 0; i < set->count; i++) {
        if (depends(&span, set->items[i])) continue;
        push(&span, set->items[i]);
        push(&rest, set->items[i]);
    }
    return rest;
}

static void sort(Vectors *set) {
    for (int i = 1; i < set->count; i++)
        for (int j = i; j > 0 && set->items[j - 1] > set->items[j]; j--) {
            uint64_t swap = set->items[j];
            set->items[j] = set->items[j - 1];
            set->items[j - 1] = swap;
        }
}

static Vectors segment_outside(const Search *s, const Vectors *place, const Access *store, const Access *load,
                               int length) {
    Vectors a = joined(place, &store->across), b = joined(place, &load->across), both = joined(&a, &b), common = {0};
    Vectors segment = {0};
    common.count = bits_intersection(a.items, a.count, b.items, b.count, common.items);
    Vectors only_a = beyond(&a, &common), only_b = beyond(&b, &common), inner = beyond(&common, place);
    segment.count = bits_complement(both.items, both.count, s->bits, segment.items);
    sort(&only_a);
    sort(&only_b);
    const Vectors *more = only_a.count > only_b.count ? &only_a : &only_b, *less = more == &only_a ? &only_b : &only_a;
    int skipped = more->count - less->count;
    for (int i = 0; i < less->count; i++) push(&segment, more->items[skipped + i] ^ less->items[i]);
    for (int i = 0; i < skipped; i++) push(&segment, more->items[i]);
    append(&segment, &inner);
    for (int i = 0; i < less->count; i++) push(&segment, less->items[i]);
    if (segment.count > length) segment.count = length;
    return segment;
}

// ---- a choice and its cost ----

static void assemble(Search *s, const Vectors *place, const Vectors *bank, const Vectors *segment, SharedWay *way) {
    const Vectors *groups[] = {place, bank, segment};
    static const char *const names[] = {"vector", "bank", "segment"};
    LinearDim ins[3];
    Vectors all = {0};
    for (int i = 0; i < 3; i++) {
        ins[i] = (LinearDim){names[i], groups[i]->count};
        append(&all, groups[i]);
    }
    way->shared = linear_make(s->cx, ins, 3, s->tile.outs, s->tile.out_count, all.items);
}

// Wavefronts of a phase: the words of its addresses for each bank.
static int64_t wavefronts_of(const Search *s, const Linear *shared, const Access *access) {
    uint64_t words[2 * LINEAR_MAX_BITS], banks[2 * LINEAR_MAX_BITS], at;
    int count = 0, own = words_log2(s, access->along);
    for (int i = 0; i < own; i++) words[count++] = (uint64_t)1 << i;
    for (int i = 0; i < access->across.count; i++) {
        bits_express(shared->columns, s->bits, access->across.items[i], &at);
        words[count++] = at * (uint64_t)s->element_bits / WORD_BITS;
    }
    for (int i = 0; i < count; i++) banks[i] = words[i] % (uint64_t)s->memory.banks;
    return (int64_t)1 << (bits_rank(words, count) - bits_rank(banks, count));
}

// Phases of an access by vectors. Of lanes that hold the same one stores, and a phase of others does not take place.
static int64_t phases_of(const Side *side, const Access *access, bool store) {
    int64_t phases = 1;
    for (int i = access->across.count; i < side->lanes.count; i++)
        if (!store || side->lanes.items[i]) phases *= 2;
    return phases;
}

static SharedSide side_of(const Search *s, int number, const Linear *shared, const Access *access) {
    const Side *side = &s->sides[number];
    int64_t wavefronts = wavefronts_of(s, shared, access), matrices, most = 4;
    int held = side->registers.count, lanes = side->lanes.count;
    SharedSide result = {
        .instruction = access->instruction, .width = (int64_t)1 << access->along, .times = s->times[number]};
    if (access->instruction == SHARED_VECTORS) {
        result.accesses = (int64_t)1 << (held - access->along);
        result.cost.phases = phases_of(side, access, number == 0);
    } else {
        matrices = (int64_t)1 << (held + lanes - access->along - ROW_LANES);
        result.cost.phases = matrices < most ? matrices : most;
        result.accesses = matrices / result.cost.phases;
    }
    result.cost.wavefronts = result.cost.phases * wavefronts;
    return result;
}

static int64_t instructions(const SharedWay *way) {
    return way->store.times * way->store.accesses + way->load.times * way->load.accesses;
}

static void consider(Search *s, const Vectors *place, const Access *store, const Access *load) {
    int64_t row = (int64_t)s->memory.banks * WORD_BITS / s->element_bits;
    int banks = log2_floor(row) - place->count, room = s->bits - place->count;
    if (room < 0) return;
    if (banks > room) banks = room;
    Vectors segment = segment_outside(s, place, store, load, room - banks), bank = {0};
    Vectors taken = joined(place, &segment);
    bank.count = bits_complement(taken.items, taken.count, s->bits, bank.items);
    SharedWay way = {.shared = linear_empty()};
    assemble(s, place, &bank, &segment, &way);
    if (s->cx->failed) return;
    way.store = side_of(s, 0, &way.shared, store);
    way.load = side_of(s, 1, &way.shared, load);
    int64_t now = shared_way_wavefronts(&way), least = s->found ? shared_way_wavefronts(&s->best) : 0;
    bool better = !s->found || now < least || (now == least && instructions(&way) < instructions(&s->best));
    if (better) s->best = way;
    s->found = true;
}

// All instructions that move these first bits.
static void consider_place(Search *s, const Vectors *place) {
    Access accesses[2][3];
    int counts[2];
    for (int i = 0; i < 2; i++) {
        accesses[i][0] = vectors_access(s, &s->sides[i], place);
        counts[i] = 1;
        for (int transposed = 0; transposed < 2; transposed++)
            counts[i] += matrix_access(s, &s->sides[i], place, transposed, &accesses[i][counts[i]]);
    }
    for (int i = 0; i < counts[0]; i++)
        for (int j = 0; j < counts[1]; j++) consider(s, place, &accesses[0][i], &accesses[1][j]);
}

// ---- candidates for the first bits ----

static Vectors common_registers(const Search *s) {
    Vectors common = {0};
    for (int i = 0; i < s->sides[0].registers.count; i++)
        if (has(&s->sides[1].registers, s->sides[0].registers.items[i])) push(&common, s->sides[0].registers.items[i]);
    return common;
}

static void extend(const Side *side, const Side *other, bool to_lanes, Vectors *more) {
    for (int i = 0; i < side->registers.count; i++) {
        uint64_t vector = side->registers.items[i];
        if (has(&other->registers, vector) || has(&other->lanes, vector) != to_lanes || has(more, vector)) continue;
        push(more, vector);
    }
}

static void reverse(Vectors *set) {
    for (int i = 0, j = set->count - 1; i < j; i++, j--) {
        uint64_t swap = set->items[i];
        set->items[i] = set->items[j];
        set->items[j] = swap;
    }
}

// A place narrower than a word: which further elements share the word, those of lanes on both sides, one or neither.
static void consider_words(Search *s, const Vectors *place) {
    consider_place(s, place);
    for (int kind = 0; kind < 4 && place->count < word_bits(s); kind++) {
        Vectors filled = *place;
        for (int pass = 0; pass < 2; pass++)   // those of the kind, then any
            for (int bit = 0; bit < s->bits && filled.count < word_bits(s); bit++) {
                uint64_t vector = (uint64_t)1 << bit;
                int is = has(&s->sides[0].lanes, vector) + 2 * has(&s->sides[1].lanes, vector);
                if (pass || is == kind) push_independent(&filled, vector);
            }
        consider_place(s, &filled);
    }
}

// `common`, then registers of one side that the other has in lanes or in warps.
static void consider_vectors(Search *s, const Vectors *common, int most) {
    consider_words(s, common);
    for (int i = 0; i < 2; i++)
        for (int order = 0; order < 4; order++) {
            Vectors more = {0}, place = *common;
            bool lanes_first = order % 2;
            extend(&s->sides[i], &s->sides[!i], lanes_first, &more);
            if (order / 2) reverse(&more);
            if (!lanes_first) extend(&s->sides[i], &s->sides[!i], true, &more);
            for (int j = 0; j < more.count && place.count < most; j++) {
                push(&place, more.items[j]);
                consider_words(s, &place);
            }
        }
}

// The rows of a matrix, if the side has enough registers for its words.
static void consider_rows(Search *s, const Vectors *common, const Side *side) {
    Vectors plain = {0}, transposed = {0};
    int own = word_bits(s);
    if ((!side->matrix && !side->bytes) || side->lanes.count < LANE_BITS) return;
    for (int i = 0; i < common->count && plain.count < own; i++) push(&plain, common->items[i]);
    for (int i = 0; i < side->registers.count && plain.count < own; i++)
        if (!has(&plain, side->registers.items[i])) push(&plain, side->registers.items[i]);
    if (plain.count < own) return;
    for (int i = 0; i < LANE_BITS - ROW_LANES; i++) push(&plain, side->lanes.items[i]);
    for (int i = LANE_BITS - ROW_LANES; i < LANE_BITS; i++) push(&transposed, side->lanes.items[i]);
    if (!has(&plain, 0)) consider_place(s, &plain);
    if (has(&transposed, 0)) return;
    if (s->element_bits == 16) consider_place(s, &transposed);
    for (int i = 0; s->element_bits == 8 && side->bytes && i < side->registers.count; i++) {
        Vectors row = transposed;   // its last eight bytes
        push(&row, side->registers.items[i]);
        consider_place(s, &row);
    }
}

static bool check(LayoutContext *cx, const Search *s, Linear a, Linear b) {
    if (s->element_bits < 8 || s->element_bits > WIDEST_BITS || log2_exact(s->element_bits) < 0)
        return layout_refuse(cx, "the element's width is a power of two from 8 to 128 bits");
    bool same = a.out_count == b.out_count;
    for (int i = 0; i < a.out_count && same; i++)
        same = !strcmp(a.outs[i].name, b.outs[i].name) && a.outs[i].bits == b.outs[i].bits;
    if (!same) return layout_refuse(cx, "source and destination lay out different tiles");
    for (int i = 0; i < 2; i++) {
        if (linear_find_in(i ? b : a, "register") < 0 || linear_find_in(i ? b : a, "lane") < 0)
            return layout_refuse(cx, "a register layout has inputs register and lane");
        const Side *side = &s->sides[i];
        Vectors all = joined(&side->registers, &side->lanes);
        int lanes = 0;
        for (int j = 0; j < side->lanes.count; j++) lanes += side->lanes.items[j] != 0;
        if (all.count != side->registers.count + lanes)
            return layout_refuse(cx, "registers or lanes that hold sums of others");
    }
    return true;
}

SharedWay shared_way(LayoutContext *cx, Linear source, Linear destination, int element_bits, SharedMachine machine,
                     int64_t stores, int64_t loads) {
    Search s = {.cx = cx,
                .tile = source,
                .bits = linear_out_bits(source),
                .element_bits = element_bits,
                .memory = machine.memory,
                .times = {stores, loads},
                .best = {.shared = linear_empty()}};
    s.sides[0] = (Side){images(source, "register", false), images(source, "lane", true), machine.stmatrix, false};
    s.sides[1] = (Side){images(destination, "register", false), images(destination, "lane", true), machine.ldmatrix,
                        machine.ldmatrix_bytes};
    if (!check(cx, &s, source, destination)) return s.best;
    Vectors common = common_registers(&s);
    int most = log2_floor(WIDEST_BITS / element_bits);
    if (common.count > most) common.count = most;
    consider_vectors(&s, &common, most);
    while (common.count > 0 && (s.best.store.cost.wavefronts > s.best.store.cost.phases ||
                                s.best.load.cost.wavefronts > s.best.load.cost.phases)) {
        common.count--;
        consider_vectors(&s, &common, most);
    }
    common = common_registers(&s);
    for (int i = 0; i < 2; i++) consider_rows(&s, &common, &s.sides[i]);
    return s.best;
}

static int64_t side_wavefronts(const SharedSide *side) {
    return side->times * side->accesses * side->cost.wavefronts;
}

int64_t shared_way_wavefronts(const SharedWay *way) {
    return side_wavefronts(&way->store) + side_wavefronts(&way->load);
}

const Layout *shared_way_layout(LayoutContext *cx, const SharedWay *way, const Quotient *q, int element_bits) {
    const Linear *shared = &way->shared;
    LayoutBits bits = {0};
    int own = linear_in_bits(*shared), top = own, count = 0;
    for (int dim = 0; dim < q->rank && !cx->failed; dim++) {
        int bit = linear_out_shift(*shared, dim);
        for (int d = 0; d < q->dims[dim].count; d++) {
            int64_t extent = q->dims[dim].modes[d].extent;
            int more = log2_above(extent);
            if (count + more > LAYOUT_MAX_BITS) return layout_refuse(cx, "too large a tile"), NULL;
            for (int i = 0; i < more; i++, bits.in[dim]++) {
                uint64_t place = (uint64_t)1 << top;
                if (extent % 2) top++;
                else bits_express(shared->columns, own, (uint64_t)1 << bit++, &place);
                bits.images[count++][0] = (int64_t)place;
            }
        }
    }
    return layout_of_digits(cx->arena, q->rank, 1, &bits, q->dims, element_bits);
}
