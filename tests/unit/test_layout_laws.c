// Laws of the algebra over all coordinates of random layouts: ten thousand layouts per law.
//
// Random layouts are small (up to a few hundred coordinates), nested, with extents that need not be powers of two,
// strides from compact through padded and broadcast to arbitrary. A law about a partial operation counts how often the
// operation answered, so that a law cannot hold because everything is refused.
#include "layout/calculator/access_cost.h"
#include "layout/calculator/bridge.h"
#include "layout/calculator/conversion.h"
#include "layout/calculator/linear_text.h"
#include "tests/unit/unit.h"
#include <string.h>

enum { LAYOUTS = 10000, LARGEST = 256 };

// ---- random layouts ----

static uint64_t random_state;

static uint64_t random_bits(void) {   // xorshift64*
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1dULL;
}

static int64_t below(int64_t n) {
    return (int64_t)(random_bits() >> 11) % n;
}

static Tuple random_shape(LayoutContext *cx, int64_t *room, int depth) {
    static const int64_t extents[] = {1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 16};
    if (depth == 0 || below(3)) {
        int64_t extent = extents[below(11)];
        if (extent > *room) extent = 1;
        *room /= extent;
        return tuple_int(extent);
    }
    Tuple items[3];
    int count = 1 + (int)below(3);
    for (int i = 0; i < count; i++) items[i] = random_shape(cx, room, depth - 1);
    return tuple_list(cx, items, count);
}

// Strides of the leaves of `a` in a random order: compact, with gaps, or a broadcast now and then.
static void stride_leaves(Cute *leaves[], int count, bool gaps, bool zeros) {
    int64_t reach = 1;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)below(i + 1);
        Cute *swap = leaves[i];
        leaves[i] = leaves[j];
        leaves[j] = swap;
    }
    for (int i = 0; i < count; i++) {
        if (gaps && !below(3)) reach *= 1 + below(4);
        bool zero = zeros && !below(6);
        leaves[i]->stride = zero ? 0 : reach;
        if (!zero) reach *= leaves[i]->shape;
    }
}

static int collect(Cute *a, Cute *leaves[]) {
    if (a->rank == CUTE_LEAF) return leaves[0] = a, 1;
    int count = 0;
    for (int i = 0; i < a->rank; i++) count += collect((Cute *)&a->modes[i], leaves + count);
    return count;
}

typedef enum { COMPACT, GAPS, ANY_STRIDES } Kind;

static Cute random_layout(LayoutContext *cx, Kind kind, int64_t room) {
    Cute *a = NEW(cx->arena, Cute), *leaves[64];
    *a = cute_column_major(cx, random_shape(cx, &room, 2));
    int count = collect(a, leaves);
    stride_leaves(leaves, count, kind != COMPACT, kind == ANY_STRIDES);
    if (kind == ANY_STRIDES && !below(4))
        for (int i = 0; i < count; i++) leaves[i]->stride = below(20);
    return *a;
}

// Runs `law` on LAYOUTS cases, each with a context of its own. Returns how many said that the operation answered.
static int each(uint64_t seed, bool (*law)(LayoutContext *cx)) {
    int answered = 0;
    random_state = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (int i = 0; i < LAYOUTS; i++) {
        Failure failure;
        Arena *arena = NULL;
        assert_false(FAILURE_CAUGHT(&failure));
        arena = arena_new(libc_allocator, &failure);
        LayoutContext cx = layout_context(arena);
        answered += law(&cx);
        arena_free(arena);
    }
    return answered;
}

static const char *shown(LayoutContext *cx, Cute a) {
    return cute_text(cx->arena, a);
}

#define HOLDS(condition, a, b)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) fail_msg("%s: %s, %s", #condition, shown(cx, a), shown(cx, b));                              \
    } while (0)

// ---- shape:stride ----

static bool coalesce_keeps_the_map(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST), r = cute_coalesce(cx, a);
    HOLDS(cute_size(cx, r) == cute_size(cx, a), a, r);
    for (int64_t i = 0; i < cute_size(cx, a); i++) HOLDS(cute_at(r, i) == cute_at(a, i), a, r);
    HOLDS(cute_equal(cute_coalesce(cx, r), r), a, r);
    return !cx->failed;
}

static bool composition_is_composition(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST), b = random_layout(cx, ANY_STRIDES, 64);
    Cute r = cute_composition(cx, a, b);
    if (cx->failed) return false;
    HOLDS(cute_size(cx, r) == cute_size(cx, b), a, b);
    for (int64_t i = 0; i < cute_size(cx, b); i++) HOLDS(cute_at(r, i) == cute_at(a, cute_at(b, i)), a, b);
    return true;
}

static bool composition_is_associative(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST), b = random_layout(cx, GAPS, 64),
         c = random_layout(cx, COMPACT, 16);
    if (cute_cosize(cx, c) > cute_size(cx, b)) return false;   // beyond its domain, B and A o B go on differently
    Cute left = cute_composition(cx, cute_composition(cx, a, b), c);
    if (cx->failed) return false;
    Cute right = cute_composition(cx, a, cute_composition(cx, b, c));
    if (cx->failed) return false;
    for (int64_t i = 0; i < cute_size(cx, c); i++) HOLDS(cute_at(left, i) == cute_at(right, i), a, b);
    return true;
}

static bool complement_is_disjoint_and_ordered(LayoutContext *cx) {
    Cute a = random_layout(cx, GAPS, 64);
    int64_t target = 1 + below(400);
    Cute r = cute_complement(cx, a, tuple_int(target));
    if (cx->failed) return false;
    HOLDS(cute_injective(cx, cute_tuple(cx, (Cute[]){cute_filter(cx, a), r}, 2)), a, r);
    for (int64_t i = 1; i < cute_size(cx, r); i++) HOLDS(cute_at(r, i - 1) < cute_at(r, i), a, r);
    HOLDS(cute_cosize(cx, cute_tuple(cx, (Cute[]){a, r}, 2)) >= target ||
              cute_size(cx, r) * cute_cosize(cx, a) >= target,
          a, r);
    return true;
}

static bool right_inverse_inverts(LayoutContext *cx) {
    Cute a = random_layout(cx, below(2) ? COMPACT : ANY_STRIDES, LARGEST), r = cute_right_inverse(cx, a);
    for (int64_t i = 0; i < cute_size(cx, r); i++) HOLDS(cute_at(a, cute_at(r, i)) == i, a, r);
    return cute_size(cx, r) > 1;
}

static bool left_inverse_inverts(LayoutContext *cx) {
    Cute a = random_layout(cx, below(4) ? GAPS : ANY_STRIDES, LARGEST), r = cute_left_inverse(cx, a);
    if (cx->failed) return false;
    bool injective = cute_injective(cx, a);
    for (int64_t i = 0; i < cute_size(cx, a); i++) {
        HOLDS(cute_at(a, cute_at(r, cute_at(a, i))) == cute_at(a, i), a, r);
        if (injective) HOLDS(cute_at(r, cute_at(a, i)) == i, a, r);
    }
    return true;
}

// The tiles and the rests together are the layout: every division is a reordering of the coordinates.
static bool divide_reassembles(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST);
    int64_t size = cute_size(cx, a), extent = 1 + below(8);
    Tiler tiler = tiler_layout(cute_leaf(extent, below(2) ? 1 : 1 + below(4)));
    Cute d = cute_logical_divide(cx, a, tiler);
    if (cx->failed || cute_size(cx, d) != size) return false;   // a tile that does not divide is padded
    Cute domain = cute_logical_divide(cx, cute_leaf(size, 1), tiler);
    if (cx->failed || !cute_injective(cx, domain) || cute_cosize(cx, domain) != size) return false;
    for (int64_t i = 0; i < size; i++) HOLDS(cute_at(d, i) == cute_at(a, cute_at(domain, i)), a, d);
    Cute zipped = cute_zipped_divide(cx, a, tiler), tiled = cute_tiled_divide(cx, a, tiler),
         flat = cute_flat_divide(cx, a, tiler);
    for (int64_t i = 0; i < size; i++) {
        HOLDS(cute_at(zipped, i) == cute_at(d, i), a, zipped);
        HOLDS(cute_at(tiled, i) == cute_at(d, i), a, tiled);
        HOLDS(cute_at(flat, i) == cute_at(d, i), a, flat);
    }
    return true;
}

// A tile that does not divide is rounded up: every element is in one tile at one place, and what is beyond them is
// outside of the layout, not another element. Strides of 64 make coordinates readable.
static bool divide_rounds_up(LayoutContext *cx) {
    int64_t extent[3] = {1 + below(8), 1 + below(8), 1 + below(8)}, tile = 1 + below(6);
    if (tile > extent[0]) return false;
    Cute modes[3] = {cute_leaf(extent[0], 1), cute_leaf(extent[1], 64), cute_leaf(extent[2], 64 * 64)};
    Cute a = cute_tuple(cx, modes, 3), d = cute_logical_divide(cx, a, tiler_layout(cute_leaf(tile, 1)));
    bool seen[8 * 8 * 8] = {0};
    int64_t inside = 0;
    for (int64_t i = 0; i < cute_size(cx, d); i++) {
        int64_t at = cute_at(d, i), x = at % 64, y = at / 64 % 64, z = at / 64 / 64;
        HOLDS(x % tile == i % tile, a, d);
        if (x >= extent[0] || y >= extent[1] || z >= extent[2]) continue;
        HOLDS(!seen[x + 8 * y + 64 * z], a, d);
        seen[x + 8 * y + 64 * z] = true;
        inside++;
    }
    HOLDS(inside == cute_size(cx, a), a, d);
    return !cx->failed && cute_size(cx, d) > cute_size(cx, a);
}

// The first mode of a product is the block; the second moves it, without overlap for injective blocks and tilers.
static bool product_repeats(LayoutContext *cx) {
    Cute a = random_layout(cx, GAPS, 32), b = random_layout(cx, below(2) ? COMPACT : GAPS, 16);
    Cute p = cute_logical_product(cx, a, tiler_layout(b));
    if (cx->failed) return false;
    HOLDS(cute_equal(p.modes[0], a), a, p);
    HOLDS(cute_injective(cx, p), a, p);
    int64_t size = cute_size(cx, a);
    for (int64_t i = 0; i < cute_size(cx, p); i++)
        HOLDS(cute_at(p, i) == cute_at(a, i % size) + cute_at(p.modes[1], i / size), a, p);
    Cute blocked = cute_blocked_product(cx, a, b), raked = cute_raked_product(cx, a, b);
    if (cx->failed) return false;
    HOLDS(cute_size(cx, blocked) == cute_size(cx, p), a, b);
    HOLDS(cute_injective(cx, blocked), a, blocked);
    HOLDS(cute_size(cx, raked) == cute_size(cx, p) && cute_injective(cx, raked), a, raked);
    return true;
}

static bool coordinates_round_trip(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST);
    Tuple shape = cute_shape(cx, a);
    Cute compact = cute_column_major(cx, shape);
    for (int64_t i = 0; i < 2 * cute_size(cx, a); i++) {   // the last mode does not wrap
        Tuple coord = cute_idx2crd(cx, shape, tuple_int(i));
        HOLDS(cute_crd2idx(cx, a, coord) == cute_at(a, i), a, a);
        if (i < cute_size(cx, a)) HOLDS(cute_crd2idx(cx, compact, coord) == i, a, compact);
    }
    return !cx->failed;
}

static bool text_round_trips(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST), b = cute_parse(cx, cute_text(cx->arena, a));
    HOLDS(!cx->failed && cute_equal(a, b), a, b);
    return true;
}

static bool slices_partition(LayoutContext *cx) {
    Cute a = random_layout(cx, ANY_STRIDES, LARGEST);
    if (cute_rank(a) < 2) return false;
    int64_t count = cute_size(cx, a.modes[0]), at = below(count), offset;
    Tuple coord[64];
    for (int i = 0; i < a.rank; i++) coord[i] = (Tuple){.kind = TUPLE_ANY};
    coord[0] = tuple_int(at);
    Cute piece = cute_slice(cx, a, tuple_list(cx, coord, a.rank), &offset);
    for (int64_t i = 0; i < cute_size(cx, piece); i++)
        HOLDS(offset + cute_at(piece, i) == cute_at(a, at + i * count), a, piece);
    return !cx->failed;
}

// ---- swizzles ----

static Swizzle random_swizzle(void) {
    int bits = (int)below(4), shift = bits + (int)below(3);
    return (Swizzle){bits, (int)below(4), below(3) ? shift : -shift};
}

static bool swizzle_is_an_involution(LayoutContext *cx) {
    Swizzle s = random_swizzle();
    assert_true(swizzle_check(cx, s));
    for (int64_t i = 0; i < swizzle_period(s); i++) {
        assert_int_equal(swizzle_apply(s, swizzle_apply(s, i)), i);
        assert_true(swizzle_apply(s, i) < swizzle_period(s));
        assert_int_equal(swizzle_apply(s, i + swizzle_period(s)), swizzle_apply(s, i) + swizzle_period(s));
    }
    return true;
}

static bool recast_counts_other_units(LayoutContext *cx) {
    Swizzle bytes = {(int)below(4), 4, 3};
    int width = 8 << below(4);
    Swizzle elements = swizzle_recast(cx, bytes, 8, width);
    for (int64_t i = 0; i < 2048; i++)
        assert_int_equal(swizzle_apply(elements, i) * (width / 8), swizzle_apply(bytes, i * (width / 8)));
    return !cx->failed;
}

// ---- linear layouts ----

static Linear random_linear(LayoutContext *cx, const char *const *ins, int in_count, const char *const *outs,
                            const int *out_bits, int out_count, bool invertible) {
    int bits = 0;
    LinearDim in_dims[4], out_dims[4];
    for (int i = 0; i < out_count; i++) {
        out_dims[i] = (LinearDim){outs[i], out_bits[i]};
        bits += out_bits[i];
    }
    int left = invertible ? bits : bits + (int)below(3), count = left;
    for (int i = 0; i < in_count; i++) {
        int taken = i == in_count - 1 ? left : (int)below(left + 1);
        in_dims[i] = (LinearDim){ins[i], taken};
        left -= taken;
    }
    uint64_t columns[32];
    do {
        for (int i = 0; i < count; i++) columns[i] = random_bits() & (((uint64_t)1 << bits) - 1);
        for (int i = 0; i < count && !invertible; i++) columns[i] &= below(3) ? ~(uint64_t)0 : 0;
    } while (invertible && bits_rank(columns, count) < bits);
    return linear_make(cx, in_dims, in_count, out_dims, out_count, columns);
}

static const char *const hardware[] = {"register", "lane", "warp"};
static const char *const tensor[] = {"dim0", "dim1", "dim2"};
static const char *const memory[] = {"offset", "block"};

static void random_sizes(int *bits) {
    for (int i = 0; i < 3; i++) bits[i] = (int)below(4);
}

static bool linear_is_linear(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 2, false);
    uint64_t x = (uint64_t)below((int64_t)1 << linear_in_bits(a)), y = (uint64_t)below((int64_t)1 << linear_in_bits(a));
    assert_true((linear_apply_packed(a, x) ^ linear_apply_packed(a, y)) == linear_apply_packed(a, x ^ y));
    return true;
}

static bool linear_composes(LayoutContext *cx) {
    int bits[3], middle[2];
    random_sizes(bits);
    middle[0] = (int)below(4), middle[1] = (int)below(3);
    Linear a = random_linear(cx, hardware, 3, memory, middle, 2, false);
    Linear b = random_linear(cx, memory, 2, tensor, bits, 3, false);
    for (int i = 0; i < 2; i++)   // the inner outputs must fit the outer inputs
        if (a.outs[i].bits > b.ins[i].bits) return false;
    Linear c = linear_compose(cx, a, b);
    assert_false(cx->failed);
    for (int64_t x = 0; x < (int64_t)1 << linear_in_bits(a); x++) {
        int64_t in[3], mid[2], out[3], both[3];
        for (int i = 0, shift = 0; i < 3; shift += a.ins[i++].bits)
            in[i] = x >> shift & (((int64_t)1 << a.ins[i].bits) - 1);
        linear_apply(a, in, mid);
        linear_apply(b, mid, out);
        linear_apply(c, in, both);
        assert_memory_equal(out, both, sizeof out);
    }
    return true;
}

static bool linear_inverts(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 3, true), inverse = linear_invert(cx, a);
    assert_false(cx->failed);
    for (uint64_t x = 0; x < (uint64_t)1 << linear_in_bits(a); x++)
        assert_true(linear_apply_packed(inverse, linear_apply_packed(a, x)) == x);
    assert_true(linear_equal(linear_invert(cx, inverse), a));
    return true;
}

static bool pseudoinverse_gives_smallest_preimages(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 2, false);
    if (!linear_is_surjective(a)) return false;
    Linear p = linear_pseudoinvert(cx, a);
    assert_false(cx->failed);
    for (uint64_t y = 0; y < (uint64_t)1 << linear_out_bits(a); y++) {
        uint64_t smallest = 0, x = linear_apply_packed(p, y);
        assert_true(linear_apply_packed(a, x) == y);
        while (linear_apply_packed(a, smallest) != y) smallest++;
        assert_true(x == smallest || (y & (y - 1)));   // of each basis element the smallest; sums are sums
    }
    return true;
}

static bool invert_and_compose_solves(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 2, false),
           b = random_linear(cx, memory, 2, tensor, bits, 2, true);
    Linear x = linear_invert_and_compose(cx, a, b);
    if (cx->failed) return false;
    for (uint64_t i = 0; i < (uint64_t)1 << linear_in_bits(a); i++)
        assert_true(linear_apply_packed(b, linear_apply_packed(x, i)) == linear_apply_packed(a, i));
    return true;
}

static bool products_divide(LayoutContext *cx) {
    int bits[3], more[3];
    random_sizes(bits);
    random_sizes(more);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 3, false),
           b = random_linear(cx, hardware, 3, tensor, more, 3, false);
    if (linear_in_bits(a) + linear_in_bits(b) > 40) return false;
    Linear p = linear_multiply(cx, a, b), rest;
    assert_false(cx->failed);
    assert_int_equal(linear_is_surjective(p), linear_is_surjective(a) && linear_is_surjective(b));
    assert_true(linear_divide_left(cx, p, a, &rest) && linear_equal(rest, b));
    assert_true(linear_divide_right(cx, p, b, &rest) && linear_equal(rest, a));
    return true;
}

static bool linear_text_round_trips(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 3, false);
    assert_true(linear_equal(linear_parse(cx, linear_text(cx->arena, a)), a));
    return !cx->failed;
}

static bool code_computes_the_map(LayoutContext *cx) {
    int bits[3];
    random_sizes(bits);
    Linear a = random_linear(cx, hardware, 3, tensor, bits, 2, false);
    for (int64_t x = 0; x < (int64_t)1 << linear_in_bits(a) && x < 64; x++) {
        int64_t in[3], out[2];
        for (int i = 0, shift = 0; i < 3; shift += a.ins[i++].bits)
            in[i] = x >> shift & (((int64_t)1 << a.ins[i].bits) - 1);
        linear_apply(a, in, out);
        for (int i = 0; i < 2; i++) {
            LinearTerm *terms;
            uint64_t value = 0;
            for (int t = linear_terms(cx, a, i, &terms); t-- > 0;) {
                uint64_t piece = (uint64_t)in[terms[t].in] & (terms[t].masked ? terms[t].mask : ~(uint64_t)0);
                value ^= terms[t].shift < 0 ? piece >> -terms[t].shift : piece << terms[t].shift;
            }
            assert_int_equal(value, out[i]);
        }
    }
    return true;
}

// ---- bridge ----

static bool bridge_round_trips(LayoutContext *cx) {
    static const char *const ins[] = {"dim0", "dim1", "dim2"};
    Cute a = random_layout(cx, below(2) ? COMPACT : ANY_STRIDES, 128);
    Swizzled swizzled = {random_swizzle(), 0, a};
    if (cute_rank(a) > 3) return false;
    Linear l = linear_from_swizzled(cx, swizzled, ins, "offset");
    int64_t size = cute_size(cx, a);
    if (cx->failed) {   // rightly: a sum of two coordinates is not the XOR of their images, or no power of two
        bool linear = size > 0 && !(size & (size - 1));
        for (int i = 0; linear && i < cute_rank(a); i++)
            linear = !(cute_size(cx, cute_mode(a, i)) & (cute_size(cx, cute_mode(a, i)) - 1));
        for (int64_t x = 0; x < size && linear; x++)
            for (int64_t y = 0; y < size && linear; y++) linear = (cute_at(a, x) ^ cute_at(a, y)) == cute_at(a, x ^ y);
        if (linear) {   // powers of two inside a mode may still be split unevenly, (3,..) never
            cx->failed = false;
            fail_msg("%s is linear but was refused: %s", shown(cx, a), cx->reason);
        }
        return false;
    }
    for (int64_t x = 0; x < size; x++) assert_int_equal(linear_apply_packed(l, (uint64_t)x), swizzled_at(swizzled, x));
    Swizzled back = swizzled_from_linear(cx, l);
    HOLDS(!cx->failed, a, a);
    for (int64_t x = 0; x < size; x++) HOLDS(swizzled_at(back, x) == swizzled_at(swizzled, x), a, back.layout);
    return true;
}

// ---- costs: ranks and counting agree ----

static bool ranks_count_conflicts(LayoutContext *cx) {
    static const MemoryShape machine = {32, 4, 32};
    static const char *const names[] = {"register", "lane", "warp"};
    static const int element_widths[] = {8, 16, 32, 64};
    int element = element_widths[below(4)], most = 128 / element, vector_bits = 0;
    while (1 << (vector_bits + 1) <= most && below(2)) vector_bits++;
    uint64_t columns[16];
    int registers = vector_bits + (int)below(2), count = 0;
    for (int i = 0; i < registers; i++)   // the vector's registers are consecutive, all else is aligned to it
        columns[count++] = i < vector_bits ? (uint64_t)1 << i : random_bits() % 4096 >> vector_bits << vector_bits;
    for (int i = 0; i < 5; i++) columns[count++] = random_bits() % 4096 >> vector_bits << vector_bits;
    LinearDim ins[] = {{names[0], registers}, {names[1], 5}, {names[2], 0}};
    Linear a = linear_make(cx, ins, 3, &(LinearDim){"offset", 12}, 1, columns);
    int64_t addresses[32], bytes = (element << vector_bits) / 8;
    for (uint64_t lane = 0; lane < 32; lane++)
        addresses[lane] = (int64_t)linear_apply_packed(a, lane << registers) * element / 8;
    SharedCost by_rank = shared_cost_linear(cx, a, element, 1 << vector_bits, machine);
    SharedCost counted = shared_cost_counted(addresses, 32, (int)bytes, machine);
    assert_int_equal(by_rank.wavefronts, counted.wavefronts);
    assert_int_equal(by_rank.phases, counted.phases);
    assert_int_equal(sectors_linear(cx, a, element, 1 << vector_bits, machine),
                     sectors_counted(cx, addresses, 32, (int)bytes, machine));
    return counted.wavefronts > counted.phases;
}

// As many shuffles as the lane that lacks most lacks.
static bool shuffles_are_counted(LayoutContext *cx) {
    int bits[] = {2 + (int)below(2), 1 + (int)below(2)};
    LinearDim ins[] = {{"register", 2}, {"lane", bits[0] + bits[1] - 2}},
              outs[] = {{"dim0", bits[0]}, {"dim1", bits[1]}};
    uint64_t a_columns[8], b_columns[8];
    int count = bits[0] + bits[1];
    for (int i = 0; i < count; i++) a_columns[i] = b_columns[i] = (uint64_t)1 << i;
    for (int i = 0; i < 2; i++) {   // exchange a few bits
        int x = (int)below(count), y = (int)below(count);
        uint64_t swap = b_columns[x];
        b_columns[x] = b_columns[y];
        b_columns[y] = swap;
        if (x != y && !below(3)) b_columns[x] ^= b_columns[y];
    }
    Linear a = linear_make(cx, ins, 2, outs, 2, a_columns), b = linear_make(cx, ins, 2, outs, 2, b_columns);
    Conversion cost = conversion_by_rank(cx, a, b);
    int64_t lanes = (int64_t)1 << ins[1].bits, missing = 0;
    for (int64_t lane = 0; lane < lanes; lane++) {
        int64_t lacks = 0;
        for (int64_t r = 0; r < 4; r++) {
            bool held = false;
            for (int64_t s = 0; s < 4; s++)
                held |= linear_apply_packed(a, (uint64_t)(s | lane << 2)) ==
                        linear_apply_packed(b, (uint64_t)(r | lane << 2));
            lacks += !held;
        }
        if (lacks > missing) missing = lacks;
    }
    assert_int_equal(cost.shuffles, missing);
    return missing > 0;
}

#define LAW(law, least)                                                                                                \
    static void test_##law(void **state) {                                                                             \
        (void)state;                                                                                                   \
        int answered = each(__LINE__, law);                                                                            \
        if (answered < (least)) fail_msg("only %d of %d cases were answered", answered, LAYOUTS);                      \
    }

LAW(coalesce_keeps_the_map, LAYOUTS)
LAW(composition_is_composition, LAYOUTS / 4)
LAW(composition_is_associative, LAYOUTS / 8)
LAW(complement_is_disjoint_and_ordered, LAYOUTS)
LAW(right_inverse_inverts, LAYOUTS / 4)
LAW(left_inverse_inverts, LAYOUTS / 2)
LAW(divide_reassembles, LAYOUTS / 8)
LAW(divide_rounds_up, LAYOUTS / 8)
LAW(product_repeats, LAYOUTS / 2)
LAW(coordinates_round_trip, LAYOUTS)
LAW(text_round_trips, LAYOUTS)
LAW(slices_partition, LAYOUTS / 8)
LAW(swizzle_is_an_involution, LAYOUTS)
LAW(recast_counts_other_units, LAYOUTS)
LAW(linear_is_linear, LAYOUTS)
LAW(linear_composes, LAYOUTS / 8)
LAW(linear_inverts, LAYOUTS)
LAW(pseudoinverse_gives_smallest_preimages, LAYOUTS / 8)
LAW(invert_and_compose_solves, LAYOUTS / 2)
LAW(products_divide, LAYOUTS / 2)
LAW(linear_text_round_trips, LAYOUTS)
LAW(code_computes_the_map, LAYOUTS)
LAW(bridge_round_trips, LAYOUTS / 8)
LAW(ranks_count_conflicts, LAYOUTS / 4)
LAW(shuffles_are_counted, LAYOUTS / 8)

int main(void) {
#define ROW(law) cmocka_unit_test(test_##law)
    const struct CMUnitTest tests[] = {
        ROW(coalesce_keeps_the_map),
        ROW(composition_is_composition),
        ROW(composition_is_associative),
        ROW(complement_is_disjoint_and_ordered),
        ROW(right_inverse_inverts),
        ROW(left_inverse_inverts),
        ROW(divide_reassembles),
        ROW(divide_rounds_up),
        ROW(product_repeats),
        ROW(coordinates_round_trip),
        ROW(text_round_trips),
        ROW(slices_partition),
        ROW(swizzle_is_an_involution),
        ROW(recast_counts_other_units),
        ROW(linear_is_linear),
        ROW(linear_composes),
        ROW(linear_inverts),
        ROW(pseudoinverse_gives_smallest_preimages),
        ROW(invert_and_compose_solves),
        ROW(products_divide),
        ROW(linear_text_round_trips),
        ROW(code_computes_the_map),
        ROW(bridge_round_trips),
        ROW(ranks_count_conflicts),
        ROW(shuffles_are_counted),
    };
    return run(tests);
}
