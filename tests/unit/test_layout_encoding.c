// Encodings against instruction fragments, ldmatrix, and the optimal swizzle against counting banks.
#include "layout/calculator/access_cost.h"
#include "layout/calculator/bridge.h"
#include "layout/calculator/conversion.h"
#include "layout/calculator/encoding.h"
#include "layout/calculator/linear_text.h"
#include "layout/calculator/optimal_swizzle.h"
#include "layout/calculator/tiled_copy.h"
#include "layout/shared_way.h"
#include "tests/unit/unit.h"
#include <string.h>

static const MemoryShape machine = {.banks = 32, .bank_bytes = 4, .sector_bytes = 32};
static const char *const lane_register[] = {"lane", "register"};

static void one_cta(Encoding *e, int rank) {
    e->rank = rank;
    for (int i = 0; i < rank; i++) {
        e->ctas[i] = e->cta_split[i] = 1;
        e->cta_order[i] = rank - 1 - i;
    }
}

static Encoding mma(int version, int64_t m, int64_t n, int64_t k, int64_t warps_m, int64_t warps_n) {
    Encoding e = {.kind = ENCODING_MMA,
                  .version = version,
                  .instr_shape = {m, n, k},
                  .instr_rank = version == 3 ? 3 : 2,
                  .warps_per_cta = {warps_m, warps_n}};
    one_cta(&e, 2);
    return e;
}

static Linear to_linear(LayoutContext *cx, Encoding e, int64_t rows, int64_t columns) {
    return encoding_to_linear(cx, &e, (int64_t[]){rows, columns}, 2);
}

// Lane and register part of a layout with one warp and one block, in the order of the bridge.
static Linear fragment(LayoutContext *cx, Linear a) {
    const char *outs[] = {"dim0", "dim1"};
    return linear_transpose_ins(cx, linear_sublayout(cx, a, lane_register, 2, outs, 2), lane_register, 2);
}

static void mma_encodings_are_the_instructions_fragments(void **state) {
    LayoutContext cx = layout_context(*state);
    Tuple c_tile = tuple_parse(&cx, "(16,8)"), a_tile = tuple_parse(&cx, "(16,16)"),
          b_tile = tuple_parse(&cx, "(8,16)");
    Encoding parent = mma(2, 16, 8, 0, 1, 1),
             a = {.kind = ENCODING_DOT, .op_index = 0, .k_width = 2, .parent = &parent};
    Encoding b = a;
    b.op_index = 1;
    Linear c_tv = linear_from_tv(&cx, cute_parse(&cx, "((4,8),(2,2)):((32,1),(16,8))"), c_tile, lane_register);
    Linear a_tv = linear_from_tv(&cx, cute_parse(&cx, "((4,8),(2,2,2)):((32,1),(16,8,128))"), a_tile, lane_register);
    Linear b_tv = linear_from_tv(&cx, cute_parse(&cx, "((4,8),(2,2)):((16,1),(8,64))"), b_tile, lane_register);
    assert_true(linear_equal(fragment(&cx, to_linear(&cx, parent, 16, 8)), c_tv));
    assert_true(linear_equal(fragment(&cx, to_linear(&cx, a, 16, 16)), a_tv));
    // B's encoding is [k, n], the atom's is (n, k).
    Linear transposed = linear_transpose_outs(&cx, to_linear(&cx, b, 16, 8), (const char *[]){"dim1", "dim0"}, 2);
    Linear renamed = linear_rename_outs(&cx, transposed, (const char *[]){"dim0", "dim1"});
    assert_true(linear_equal(fragment(&cx, renamed), b_tv));
    assert_false(cx.failed);
}

static void wgmma_accumulator_is_the_atoms(void **state) {
    LayoutContext cx = layout_context(*state);
    Linear encoded = to_linear(&cx, mma(3, 16, 64, 16, 4, 1), 64, 64);
    Cute tv = cute_parse(&cx, "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))");
    Linear atom = linear_from_tv(&cx, tv, tuple_parse(&cx, "(64,64)"), (const char *[]){"thread", "register"});
    LinearDim split[] = {{"lane", 5}, {"warp", 2}, {"register", 5}};   // thread = lane + 32 * warp
    Linear threads = linear_reshape_ins(&cx, atom, split, 3);
    const char *order[] = {"register", "lane", "warp"}, *outs[] = {"dim0", "dim1"};
    Linear piece = linear_sublayout(&cx, encoded, order, 3, outs, 2);
    assert_true(linear_equal(linear_transpose_ins(&cx, threads, order, 3), piece));
    assert_false(cx.failed);
}

// ldmatrix: registers of operand A from row-major, swizzled shared memory; transposed for a column-major tile.
static void ldmatrix_fits_what_it_can_load(void **state) {
    LayoutContext cx = layout_context(*state);
    Encoding parent = mma(2, 16, 8, 0, 1, 1),
             a = {.kind = ENCODING_DOT, .op_index = 0, .k_width = 2, .parent = &parent};
    Linear registers = to_linear(&cx, a, 64, 64), conversion;
    int permutation[LINEAR_MAX_BITS];
    for (int transposed = 0; transposed < 2; transposed++) {
        Encoding shared = {
            .kind = ENCODING_NVMMA_SHARED, .swizzle_bytes = 128, .element_bits = 16, .transposed = transposed};
        one_cta(&shared, 2);
        Linear tile = to_linear(&cx, shared, 64, 64);
        assert_int_equal(matrix_instruction_fits(&cx, registers, tile, 16, false, &conversion, permutation),
                         !transposed);
        assert_int_equal(matrix_instruction_fits(&cx, registers, tile, 16, true, &conversion, permutation), transposed);
        assert_false(cx.failed);
        // The instruction's tile divides the permuted conversion: rows of 16 bytes are contiguous.
        Linear instruction = matrix_tile(&cx, 16, transposed);
        int row_lanes = 0;
        for (int bit = 0; bit < 5; bit++) row_lanes += instruction.columns[instruction.ins[0].bits + bit] < 8;
        assert_int_equal(row_lanes, transposed ? 3 : 2);
    }
    assert_int_equal(matrix_tile(&cx, 8, false).ins[0].bits, 2);
    matrix_tile(&cx, 8, true);
    assert_true(cx.failed);
}

static void shared_encodings_are_swizzles(void **state) {
    for (int bytes = 32; bytes <= 128; bytes *= 2) {
        LayoutContext cx = layout_context(*state);
        Encoding shared = {.kind = ENCODING_NVMMA_SHARED, .swizzle_bytes = bytes, .element_bits = 16};
        one_cta(&shared, 2);
        int64_t columns = 2 * bytes;   // four panels
        Linear from_offset = to_linear(&cx, shared, 64, columns);
        Linear to_offset = linear_invert(&cx, from_offset);
        BankTile tile = {64, columns, 16, bytes / 16};
        for (int64_t i = 0; i < 64; i++)
            for (int64_t j = 0; j < columns; j++) {
                int64_t at[2];
                linear_apply(to_offset, (int64_t[]){i, j}, at);
                assert_int_equal(at[0], bank_element(tile, i, j));
            }
        assert_false(cx.failed);
    }
}

// ---- optimal swizzling ----

// The conflicts of one side by rank of the real addresses: registers -> offsets through the shared layout.
static int64_t conflicts_of(LayoutContext *cx, Linear side, Linear shared, int element_bits) {
    LinearDim offset = {"offset", linear_in_bits(shared)};
    Linear conversion = linear_invert_and_compose(cx, side, linear_reshape_ins(cx, shared, &offset, 1));
    assert_false(cx->failed);
    int reg = linear_find_in(conversion, "register"), width = 0;
    for (bool found = true; found && width < shared.ins[0].bits;
         width += found) {   // vector bits that are registers here
        found = false;
        for (int bit = 0; bit < conversion.ins[reg].bits; bit++)
            found |= conversion.columns[linear_in_shift(conversion, reg) + bit] == (uint64_t)1 << width;
    }
    // As wide as both sides agreed on: narrower accesses of one side still have all lanes of the vector's phase.
    int64_t bytes = ((int64_t)element_bits << width) / 8;
    SharedCost cost = shared_cost_linear(cx, conversion, element_bits, bytes ? (int64_t)1 << width : 1, machine);
    return cost.wavefronts / cost.phases - 1;
}

static const struct {
    const char *name;
    int bits;
    const char *source, *destination;
} conversions[] = {
    {"128x128 fp8 transpose", 8,
     "{register: [(0,1),(0,2),(0,4),(0,8),(1,0),(2,0)], lane: [(0,16),(0,32),(0,64),(4,0),(8,0)], warp: [(16,0),(32,0),(64,0)], "
     "block: []} -> (dim0: 128, dim1: 128)",
     "{register: [(1,0),(2,0),(4,0),(8,0),(0,1),(0,2)], lane: [(16,0),(32,0),(64,0),(0,4),(0,8)], warp: [(0,16),(0,32),(0,64)], "
     "block: []} -> (dim0: 128, dim1: 128)"},
    {"32x16 f32 transpose", 32,
     "{register: [(4,0),(8,0),(16,0)], lane: [(0,1),(0,2),(0,4),(0,8),(1,0)], warp: [(2,0)], block: []} -> (dim0: 32, dim1: 16)",
     "{register: [(0,2),(0,4),(0,8)], lane: [(1,0),(2,0),(4,0),(8,0),(16,0)], warp: [(0,1)], block: []} -> (dim0: 32, dim1: 16)"},
    {"128x128 f16 transpose", 16,
     "{register: [(1,0),(2,0),(4,0),(0,32),(0,64)], lane: [(8,0),(16,0),(32,0),(64,0),(0,1)], warp: [(0,2),(0,4),(0,8),(0,16)], "
     "block: []} -> (dim0: 128, dim1: 128)",
     "{register: [(0,1),(0,2),(0,4),(32,0),(64,0)], lane: [(0,8),(0,16),(0,32),(0,64),(1,0)], warp: [(2,0),(4,0),(8,0),(16,0)], "
     "block: []} -> (dim0: 128, dim1: 128)"},
    {"16x256 4-bit to mma", 4,
     "{register: [(0,1),(0,2),(0,4),(0,8),(0,16),(4,0),(8,0)], lane: [(0,32),(0,64),(0,128),(1,0),(2,0)], warp: [], block: []} -> "
     "(dim0: 16, dim1: 256)",
     "{register: [(0,1),(0,2),(0,4),(8,0),(0,32),(0,64),(0,128)], lane: [(0,8),(0,16),(1,0),(2,0),(4,0)], warp: [], block: []} -> "
     "(dim0: 16, dim1: 256)"},
    {"16x16 bf16 blocked to mma", 16,
     "{register: [(0,1),(0,2),(0,4)], lane: [(0,8),(1,0),(2,0),(4,0),(8,0)], warp: [], block: []} -> (dim0: 16, dim1: 16)",
     "{register: [(0,1),(0,8),(8,0)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)], warp: [], block: []} -> (dim0: 16, dim1: 16)"},
};

static void optimal_swizzles_have_no_conflicts_by_counting(void **state) {
    for (size_t i = 0; i < sizeof conversions / sizeof conversions[0]; i++) {
        LayoutContext cx = layout_context(*state);
        Linear source = linear_parse(&cx, conversions[i].source),
               destination = linear_parse(&cx, conversions[i].destination);
        Linear shared = optimal_swizzle(&cx, source, destination, conversions[i].bits);
        assert_string_equal(cx.reason, "");
        SwizzleConflicts c = optimal_swizzle_conflicts(&cx, source, destination, shared, conversions[i].bits);
        if (c.read || c.write) fail_msg("%s: %lld, %lld", conversions[i].name, (long long)c.read, (long long)c.write);
        if (conflicts_of(&cx, source, shared, conversions[i].bits))
            fail_msg("%s: the writes conflict", conversions[i].name);
        if (conflicts_of(&cx, destination, shared, conversions[i].bits))
            fail_msg("%s: the reads conflict", conversions[i].name);
    }
}

// Shared memory as one offset, for the questions of single instructions.
static Linear as_offsets(LayoutContext *cx, Linear shared) {
    return linear_reshape_ins(cx, shared, &(LinearDim){"offset", linear_in_bits(shared)}, 1);
}

// Rows of a blocked layout, 16 bytes a thread, to operand A: stored by 16-byte stores, loaded by ldmatrix, without
// conflicts; operand A of the transposed tensor: loaded by ldmatrix.trans.
static void the_search_finds_ldmatrix(void **state) {
    LayoutContext cx = layout_context(*state);
    Encoding parent = mma(2, 16, 8, 0, 4, 1),
             a = {.kind = ENCODING_DOT, .op_index = 0, .k_width = 2, .parent = &parent};
    Encoding rows = {.kind = ENCODING_BLOCKED,
                     .size_per_thread = {1, 8},
                     .threads_per_warp = {4, 8},
                     .warps_per_cta = {4, 1},
                     .order = {1, 0}};
    Encoding columns = {.kind = ENCODING_BLOCKED,
                        .size_per_thread = {8, 1},
                        .threads_per_warp = {8, 4},
                        .warps_per_cta = {1, 4},
                        .order = {0, 1}};
    one_cta(&rows, 2);
    one_cta(&columns, 2);
    int permutation[LINEAR_MAX_BITS];
    Linear destination = to_linear(&cx, a, 64, 64), conversion;
    for (int transposed = 0; transposed < 2; transposed++) {
        Linear source = to_linear(&cx, transposed ? columns : rows, 64, 64);
        SharedWay choice = shared_way(&cx, source, destination, 16, (SharedMachine){machine, false, true, false}, 1, 1);
        assert_string_equal(cx.reason, "");
        assert_int_equal(choice.store.instruction, SHARED_VECTORS);
        assert_int_equal(choice.load.instruction, transposed ? SHARED_MATRIX_TRANSPOSED : SHARED_MATRIX);
        assert_int_equal(choice.store.cost.wavefronts, choice.store.cost.phases);
        assert_int_equal(choice.load.cost.wavefronts, choice.load.cost.phases);
        Linear memory = as_offsets(&cx, choice.shared);
        assert_true(matrix_instruction_fits(&cx, destination, memory, 16, transposed, &conversion, permutation));
        assert_int_equal(conflicts_of(&cx, source, choice.shared, 16), 0);
        // The eight rows of a matrix lie in different banks.
        int reg = linear_in_shift(conversion, linear_find_in(conversion, "register"));
        int lane = linear_in_shift(conversion, linear_find_in(conversion, "lane"));
        int64_t addresses[8];
        for (uint64_t row = 0; row < 8; row++) {
            uint64_t bits = transposed ? (row & 1) << reg | (row >> 1) << lane : row << (lane + 2);
            addresses[row] = (int64_t)linear_apply_packed(conversion, bits) * 2;
        }
        assert_int_equal(shared_cost_counted(addresses, 8, 16, machine).wavefronts, 1);
    }
    // Nothing in common: narrower accesses.
    Linear one = linear_parse(&cx, conversions[1].source), other = linear_parse(&cx, conversions[1].destination);
    SharedWay narrow = shared_way(&cx, one, other, 32, (SharedMachine){machine, true, true, false}, 1, 1);
    assert_int_equal(narrow.store.cost.wavefronts, narrow.store.cost.phases);
    assert_int_equal(narrow.load.cost.wavefronts, narrow.load.cost.phases);
    assert_false(cx.failed);
}

static void a_plain_transpose_conflicts_without_the_swizzle(void **state) {
    LayoutContext cx = layout_context(*state);
    Linear source = linear_parse(&cx, conversions[1].source),
           destination = linear_parse(&cx, conversions[1].destination);
    Linear plain =
        linear_parse(&cx, "{vector: [], bank: [(0,1),(0,2),(0,4),(0,8),(1,0)], segment: [(2,0),(4,0),(8,0),(16,0)], "
                          "block: [], reps: []} -> (dim0: 32, dim1: 16)");
    SwizzleConflicts c = optimal_swizzle_conflicts(&cx, source, destination, plain, 32);
    assert_int_equal(c.write, 0);
    assert_int_equal(c.read, 15);   // sixteen lanes of a column in one bank
    assert_int_equal(conflicts_of(&cx, destination, plain, 32), 15);
}

static void conversions_between_register_layouts_cost_what_they_must(void **state) {
    LayoutContext cx = layout_context(*state);
    Linear c = to_linear(&cx, mma(2, 16, 8, 0, 1, 1), 16, 16);
    Encoding parent = mma(2, 16, 8, 0, 1, 1),
             a = {.kind = ENCODING_DOT, .op_index = 0, .k_width = 2, .parent = &parent};
    // The accumulator of one product as operand A of the next: only registers are renamed.
    assert_int_equal(conversion_by_rank(&cx, c, to_linear(&cx, a, 16, 16)).kind, CONVERT_IN_REGISTERS);
    Encoding blocked = {.kind = ENCODING_BLOCKED,
                        .size_per_thread = {1, 8},
                        .threads_per_warp = {16, 2},
                        .warps_per_cta = {1, 1},
                        .order = {1, 0}};
    one_cta(&blocked, 2);
    Conversion rows = conversion_by_rank(&cx, c, to_linear(&cx, blocked, 16, 16));
    assert_int_equal(rows.kind, CONVERT_BY_SHUFFLES);
    assert_int_equal(rows.shuffles, 8);
    Encoding two_warps = mma(2, 16, 8, 0, 2, 1), other = mma(2, 16, 8, 0, 1, 2);
    assert_int_equal(conversion_by_rank(&cx, to_linear(&cx, two_warps, 32, 16), to_linear(&cx, other, 32, 16)).kind,
                     CONVERT_BY_SHARED);
    assert_false(cx.failed);
}

// ---- by counting ----

static bool threads_and_values(LayoutContext *cx, Swizzled a, int64_t *threads, int64_t *values) {
    enum { LARGEST = 1 << 22 };
    if (cute_rank(a.layout) != 2) return layout_refuse(cx, "expected a layout of (thread, value)");
    *threads = cute_size(cx, cute_mode(a.layout, 0));
    *values = cute_size(cx, cute_mode(a.layout, 1));
    if (layout_mul(cx, *threads, *values) > LARGEST) layout_refuse(cx, "too large to enumerate");
    return !cx->failed;
}

static bool runs_of(Swizzled a, int64_t threads, int64_t values, int64_t width) {
    for (int64_t thread = 0; thread < threads; thread++)
        for (int64_t value = 0; value < values; value++) {
            int64_t first = swizzled_at(a, thread + value / width * width * threads);
            if (first % width || swizzled_at(a, thread + value * threads) != first + value % width) return false;
        }
    return true;
}

static int64_t vector_width_counted(LayoutContext *cx, Swizzled a, int64_t most) {
    int64_t threads, values, width = 1;
    if (!threads_and_values(cx, a, &threads, &values)) return 1;
    while (2 * width <= most && values % (2 * width) == 0 && runs_of(a, threads, values, 2 * width)) width *= 2;
    return width;
}

static SharedCost shared_cost_of(LayoutContext *cx, Swizzled a, int element_bits, int64_t value, int64_t width,
                                 MemoryShape memory) {
    enum { WARP = 32 };
    int64_t threads, values, addresses[WARP];
    if (!threads_and_values(cx, a, &threads, &values)) return (SharedCost){0, 0};
    int lanes = threads < WARP ? (int)threads : WARP;
    for (int i = 0; i < lanes; i++) addresses[i] = swizzled_at(a, i + value * threads) * element_bits / 8;
    int64_t bytes = width * element_bits / 8;
    return shared_cost_counted(addresses, lanes, bytes < 1 ? 1 : (int)bytes, memory);
}

static void vector_widths_agree(void **state) {
    LayoutContext cx = layout_context(*state);
    Cute tv = cute_parse(&cx, "(32,8):(8,1)");
    Swizzled plain = {{0, 0, 0}, 0, tv}, swizzled = {{2, 2, 3}, 0, tv},
             odd = {{0, 0, 0}, 0, cute_parse(&cx, "(32,6):(6,1)")};
    assert_int_equal(vector_width_counted(&cx, plain, 8), 8);
    assert_int_equal(vector_width_counted(&cx, plain, 4), 4);
    assert_int_equal(vector_width_counted(&cx, swizzled, 8), 4);   // the swizzle moves groups of four
    assert_int_equal(vector_width_counted(&cx, odd, 8), 2);
    const char *ins[] = {"lane", "register"}, *order[] = {"register", "lane"};
    Linear a = linear_transpose_ins(&cx, linear_from_swizzled(&cx, swizzled, ins, "offset"), order, 2);
    assert_int_equal(vector_width_linear(a, 8), 4);
    assert_int_equal(shared_cost_of(&cx, plain, 16, 0, 8, machine).wavefronts,
                     4);   // 16 bytes a lane, consecutive: no conflict
    assert_false(cx.failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(mma_encodings_are_the_instructions_fragments),
        IN_ARENA(wgmma_accumulator_is_the_atoms),
        IN_ARENA(ldmatrix_fits_what_it_can_load),
        IN_ARENA(shared_encodings_are_swizzles),
        IN_ARENA(optimal_swizzles_have_no_conflicts_by_counting),
        IN_ARENA(the_search_finds_ldmatrix),
        IN_ARENA(a_plain_transpose_conflicts_without_the_swizzle),
        IN_ARENA(conversions_between_register_layouts_cost_what_they_must),
        IN_ARENA(vector_widths_agree),
    };
    return run(tests);
}
