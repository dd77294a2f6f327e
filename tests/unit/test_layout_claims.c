// Every claim of the five write-ups that the algebra answers to, true or not: a test is named after what is claimed,
// and says what is really so. docs/reference/layout-calculator.md tells the story; "claims ..." in a comment marks an error of the
// write-up.
#include "layout/calculator/calc.h"
#include "layout/calculator/tiled_copy.h"
#include "layout/calculator/tma.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static Arena *the_arena;   // of the running test

static const char *evaluated(const char *expression) {
    LayoutContext *cx = NEW(the_arena, LayoutContext);
    *cx = layout_context(the_arena);
    Calc *calc = calc_new(cx);
    CalcValue value = calc_run(calc, expression);
    return cx->failed ? arena_printf(the_arena, "error: %s", cx->reason) : calc_text(calc, value, false);
}

#define IS(expression, expected) assert_string_equal(evaluated(expression), expected)
#define REFUSED(expression) assert_memory_equal(evaluated(expression), "error: ", 7)

static const MemoryShape machine = {.banks = 32, .bank_bytes = 4, .sector_bytes = 32};
static const Swizzle sw343 = {3, 4, 3};

// ---- sources: Swizzle<3,4,3> ----

static void sw343_masks_are_bits_7_to_9_and_4_to_6(void **state) {
    (void)state;
    int64_t sources = 0, targets = 0;
    for (int bit = 0; bit < 20; bit++) {
        int64_t flipped = swizzle_apply(sw343, 1LL << bit) ^ 1LL << bit;
        if (flipped) sources |= 1LL << bit;
        targets |= flipped;
    }
    assert_int_equal(sources, 0x380);   // 0b1110000000
    assert_int_equal(targets, 0x70);    // 0b1110000
}

static void sw343_example_1023(void **state) {
    (void)state;
    assert_int_equal(swizzle_apply(sw343, 0x3ff), 0x38f);   // 0b1110001111
}

static void sw343_bit_7_flips_4_8_flips_5_9_flips_6(void **state) {
    (void)state;
    for (int bit = 0; bit < 3; bit++) assert_int_equal(swizzle_apply(sw343, 0x80 << bit), 0x80 << bit | 0x10 << bit);
    for (int64_t x = 0; x < 1 << 14; x++) {
        assert_int_equal(swizzle_apply(sw343, x) & 15, x & 15);   // bits 0..3 stay
        assert_int_equal(swizzle_apply(sw343, x) >> 7, x >> 7);   // bits 7 and up stay
    }
}

static void sw_needs_shift_of_at_least_bits(void **state) {
    LayoutContext cx = layout_context(*state);
    assert_true(swizzle_check(&cx, sw343));
    assert_false(swizzle_check(&cx, (Swizzle){3, 4, 2}));
}

// The 8 x 64 matrix of 16-bit elements: at chunk p of row r lies chunk p ^ r.
static void sw343_table_of_8x64_b16(void **state) {
    (void)state;
    for (int64_t row = 0; row < 8; row++)
        for (int64_t column = 0; column < 64; column++) {
            int64_t at = swizzle_apply(sw343, row * 128 + column * 2);
            assert_int_equal(at / 128, row);
            assert_int_equal(at % 128 / 16, (column / 8) ^ row);
            assert_int_equal(at % 16, column * 2 % 16);
        }
    the_arena = *state;
    IS("Sw<3,4,3> o (8,128):(128,1)", "Sw<3,4,3> o (8,128):(128,1)");
    IS("recast(Sw<3,4,3>, 8, 16)", "Sw<3,3,3>");
}

static void sw343_row_1_columns_8_to_15_are_at_128_and_row_7_flips_bits_4_to_6(void **state) {
    (void)state;
    assert_int_equal(swizzle_apply(sw343, 128 + 0 * 2), 128 + 16);
    assert_int_equal(swizzle_apply(sw343, 128 + 8 * 2), 128);
    assert_int_equal(swizzle_apply(sw343, 128 + 16 * 2), 128 + 32 + 16);
    assert_int_equal(swizzle_apply(sw343, 2 * 128), 2 * 128 + 32);
    assert_int_equal(swizzle_apply(sw343, 7 * 128), 7 * 128 + 112);   // claims "because bits 6-4 are set": bits 7-9 are
}

static void sw343_repeats_every_1024_bytes_not_128(void **state) {   // claims 128
    (void)state;
    assert_int_equal(swizzle_period(sw343), 1024);
    assert_int_not_equal(swizzle_apply(sw343, 128), 128 + swizzle_apply(sw343, 0));
    for (int64_t x = 0; x < 4096; x++) assert_int_equal(swizzle_apply(sw343, x + 1024), swizzle_apply(sw343, x) + 1024);
}

static void sw343_stride_128_gives_8_groups_of_banks_not_32_banks(void **state) {   // claims 32 distinct banks
    (void)state;
    int64_t words[32], chunks[8];
    unsigned banks = 0;
    for (int64_t row = 0; row < 32; row++) {
        words[row] = swizzle_apply(sw343, row * 128);
        banks |= 1u << (words[row] / 4 % 32);
    }
    assert_int_equal(__builtin_popcount(banks), 8);
    SharedCost column = shared_cost_counted(words, 32, 4, machine);
    assert_int_equal(column.wavefronts, 4);   // a 4-byte column of 32 rows conflicts four ways
    for (int64_t row = 0; row < 8; row++) chunks[row] = swizzle_apply(sw343, row * 128);
    SharedCost phase = shared_cost_counted(chunks, 8, 16, machine);
    assert_int_equal(phase.wavefronts, 1);   // 16-byte accesses of 8 lanes do not
    for (int64_t row = 0; row < 8; row++) chunks[row] = row * 128;
    assert_int_equal(shared_cost_counted(chunks, 8, 16, machine).wavefronts, 8);   // without the swizzle
}

static void sw343_keeps_rows_contiguous(void **state) {
    (void)state;
    int64_t row[8];
    for (int64_t chunk = 0; chunk < 8; chunk++) row[chunk] = swizzle_apply(sw343, 3 * 128 + chunk * 16);
    assert_int_equal(shared_cost_counted(row, 8, 16, machine).wavefronts, 1);
}

// ---- sources: the swizzle in lower-tile-op ----

static void full_bank_256x64_f16_has_shape_1_32_512(void **state) {
    LayoutContext cx = layout_context(*state);
    BankTile tile = {256, 64, 16, 8};
    int64_t shape[3], index[3], most[3] = {0, 0, 0};
    assert_true(bank_check(&cx, tile));
    bank_shape(tile, shape);
    for (int64_t i = 0; i < 256; i++)
        for (int64_t j = 0; j < 64; j++) {
            bank_index(tile, i, j, index);
            for (int d = 0; d < 3; d++) most[d] = index[d] > most[d] ? index[d] : most[d];
        }
    assert_int_equal(shape[0], 1);   // three dims stay three dims
    assert_int_equal(shape[1], 32);
    assert_int_equal(shape[2], 512);
    for (int d = 0; d < 3; d++) assert_int_equal(most[d], shape[d] - 1);
}

static void full_bank_chunk_ranges_over_8_not_1(void **state) {   // claims c in [0,1)
    (void)state;
    int64_t most = 0;
    for (int64_t j = 0; j < 64; j++) most = j / 8 % 8 > most ? j / 8 % 8 : most;
    assert_int_equal(most, 7);
}

// Claims that reads find their data because XOR is an involution. What is needed is that both sides use one bijection;
// the map composed with itself is not the identity of the physical offsets' order that the claim needs.
static void both_sides_use_the_same_bijection(void **state) {
    LayoutContext cx = layout_context(*state);
    BankTile tile = {64, 128, 16, 4};
    bool *seen = NEW_ARRAY(*state, bool, 64 * 128);
    bool involution = true;
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 128; j++) {
            int64_t at = bank_element(tile, i, j);
            assert_false(seen[at]);
            seen[at] = true;
            involution = involution && bank_element(tile, at / 128, at % 128) == i * 128 + j;
        }
    assert_false(involution);   // two panels: applying the map twice does not give the element back
    assert_true(bank_check(&cx, tile));
}

static void bank_layouts_are_swizzles_of_a_panel_major_base(void **state) {
    static const int chunks[] = {8, 4, 2};
    for (int c = 0; c < 3; c++)
        for (int bits = 4; bits <= 64; bits *= 2)
            for (int64_t rows = 8; rows <= 32; rows += 8)
                for (int64_t panels = 1; panels <= 3; panels++) {
                    LayoutContext cx = layout_context(*state);
                    int64_t columns = panels * chunks[c] * (128 / bits);
                    BankTile tile = {rows, columns, bits, chunks[c]};
                    Swizzled s = bank_swizzle(&cx, tile);
                    assert_false(cx.failed);
                    for (int64_t i = 0; i < rows; i++)
                        for (int64_t j = 0; j < columns; j++)
                            assert_int_equal(swizzled_at(s, i + j * rows), bank_element(tile, i, j));
                }
}

static void bank_layouts_of_4_rows_and_several_panels_are_no_swizzle(void **state) {
    static const int chunks[] = {8, 4, 2};
    for (int c = 0; c < 3; c++) {
        LayoutContext cx = layout_context(*state);
        BankTile one = {4, chunks[c] * 8, 16, chunks[c]}, two = {4, 2 * chunks[c] * 8, 16, chunks[c]};
        Swizzled s = bank_swizzle(&cx, one);
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < one.columns; j++)
                assert_int_equal(swizzled_at(s, i + j * 4), bank_element(one, i, j));
        assert_false(cx.failed);
        // The same swizzle over the base of two panels is another map.
        Cute panel = cute_tuple(&cx, (Cute[]){cute_leaf(one.columns, 1), cute_leaf(2, 4 * one.columns)}, 2);
        s.layout = cute_tuple(&cx, (Cute[]){cute_leaf(4, one.columns), panel}, 2);
        int differ = 0;
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < two.columns; j++) differ += swizzled_at(s, i + j * 4) != bank_element(two, i, j);
        assert_true(differ > 0);
        bank_swizzle(&cx, two);
        assert_true(cx.failed);
    }
}

// ---- sources: linear layouts ----

#define ID(size, in, out) "identity1d(" #size ", \"" in "\", \"" out "\")"

static void ll_4_1_blocked_has_inputs_register_lane_warp_block(void **state) {
    the_arena = *state;
    // Claims that block depends on the launch grid: it is the CTA's rank in its cluster, one here. Claims register 1
    // -> dim0 1: order [1,0] makes dim1 fastest.
    IS("blocked((64,16), (4,2), (8,4), (2,2), (1,0))",
       "{register: [(0,1),(1,0),(2,0)], lane: [(0,2),(0,4),(4,0),(8,0),(16,0)], warp: [(0,8),(32,0)], block: []} -> "
       "(dim0: 64, dim1: 16)");
    IS("apply(blocked((64,16), (4,2), (8,4), (2,2), (1,0)), (0,0,0,0))", "(0,0)");
    IS("apply(blocked((64,16), (4,2), (8,4), (2,2), (1,0)), (1,0,0,0))", "(0,1)");
    REFUSED("apply(blocked((64,16), (4,2), (8,4), (2,2), (1,0)), (1,0,0))");   // every input is needed, block too
}

static void ll_4_1_shared_has_inputs_offset_block(void **state) {
    the_arena = *state;
    IS("swizzled((8,8), 2, 1, 4, (1,0))",
       "{offset: [(0,1),(0,2),(0,4),(1,2),(2,4),(4,0)], block: []} -> (dim0: 8, dim1: 8)");
}

static void ll_4_2_order_1_0_is_row_major_and_outputs_keep_their_names(void **state) {   // claims column-major
    the_arena = *state;
    IS("blocked((2,2), (1,2), (2,1), (1,1), (1,0))",
       "{register: [(0,1)], lane: [(1,0)], warp: [], block: []} -> (dim0: 2, dim1: 2)");
    IS("blocked((2,2), (2,1), (1,2), (1,1), (0,1))",
       "{register: [(1,0)], lane: [(0,1)], warp: [], block: []} -> (dim0: 2, dim1: 2)");
}

static void ll_4_3_flatten_is_minor_to_major(void **state) {
    the_arena = *state;
    const char *layout = "L = {register: [(1),(2)], lane: [(4),(8),(16)], warp: [(32)]} -> (dim0: 64); ";
    IS(arena_printf(*state, "%sflatten_ins(L)", layout), "{register: [(1),(2),(4),(8),(16),(32)]} -> (dim0: 64)");
}

static void ll_5_6_reshape_splits_what_flatten_merges_and_transpose_chooses_the_minor_dim(void **state) {
    the_arena = *state;
    const char *layout = "L = {register: [(1),(2)], lane: [(4),(8),(16)], warp: [(32)]} -> (dim0: 64); ";
    IS(arena_printf(*state, "%sreshape_ins(L, \"thread\", 32, \"block\", 2)", layout),
       "{thread: [(1),(2),(4),(8),(16)], block: [(32)]} -> (dim0: 64)");
    IS(arena_printf(*state, "%sflatten_ins(transpose_ins(L, \"warp\", \"lane\", \"register\"))", layout),
       "{warp: [(32),(4),(8),(16),(1),(2)]} -> (dim0: 64)");
    REFUSED("reshape_ins({register: [(1)]} -> (dim0: 2), \"thread\", 4)");   // the sizes' product must stay
}

static void ll_5_7_apply_takes_integers_and_prints_as_code(void **state) {
    the_arena = *state;
    const char *layout = "L = {register: [(0,1),(8,0)], lane: [(0,2),(0,4),(1,0),(2,0),(4,0)], warp: [(16,0)]} -> "
                         "(dim0: 32, dim1: 8); ";
    IS(arena_printf(*state, "%sapply(L, (3,5,1))", layout), "(25,3)");   // register 3, lane 5, warp 1
    IS(arena_printf(*state, "%scode(L)", layout),
       "dim0 = ((register & 2) << 2) ^ (lane >> 2) ^ (warp << 4)\ndim1 = (register & 1) ^ ((lane & 3) << 1)");
}

static void ll_5_1_1_identity(void **state) {
    the_arena = *state;
    IS(ID(8, "lane", "dim0"), "{lane: [(1),(2),(4)]} -> (dim0: 8)");
    IS("apply(" ID(8, "lane", "dim0") ", 5)", "5");
    REFUSED(ID(6, "lane", "dim0"));
}

static void ll_5_1_2_strided_is_not_surjective(void **state) {
    the_arena = *state;
    IS("strided1d(4, 2, \"lane\", \"dim0\")", "{lane: [(2),(4)]} -> (dim0: 8)");
    IS("apply(strided1d(4, 2, \"lane\", \"dim0\"), 3)", "6");
    // The tip, two of them multiplied: a map, but its sizes are 8, with holes.
    IS("multiply(strided1d(4, 2, \"lane\", \"dim0\"), strided1d(4, 2, \"lane\", \"dim1\"))",
       "{lane: [(2,0),(4,0),(0,2),(0,4)]} -> (dim0: 8, dim1: 8)");
    IS("surjective(strided1d(4, 2, \"lane\", \"dim0\"))", "0");
}

static void ll_5_1_3_zeros_broadcast(void **state) {
    the_arena = *state;
    IS("zeros1d(8, \"lane\", \"dim1\")", "{lane: [(0),(0),(0)]} -> (dim1: 1)");
    IS("apply(zeros1d(8, \"lane\", \"dim1\", 4), 5)", "0");
}

static void ll_5_2_swizzle_from_bases(void **state) {
    the_arena = *state;
    IS("apply({offset: [(0,1),(0,2),(0,4),(0,8),(1,0),(2,0),(4,4),(8,8)]} -> (dim0: 16, dim1: 16), 17)", "(1,1)");
}

static void ll_5_3_product_lists_the_left_operand_first(void **state) {   // claims (register, lane) -> (dim0, dim1)
    the_arena = *state;
    IS("multiply(" ID(4, "lane", "dim1") ", " ID(8, "register", "dim0") ")",
       "{lane: [(1,0),(2,0)], register: [(0,1),(0,2),(0,4)]} -> (dim1: 4, dim0: 8)");
}

static void ll_5_3_shared_outputs_are_shifted_not_xored(void **state) {   // claims L(lane 2, register 3) = 1
    the_arena = *state;
    IS("multiply(" ID(4, "lane", "dim0") ", " ID(8, "register", "dim0") ")",
       "{lane: [(1),(2)], register: [(4),(8),(16)]} -> (dim0: 32)");
    IS("apply(multiply(" ID(4, "lane", "dim0") ", " ID(8, "register", "dim0") "), (2,3))", "14");
}

static void ll_5_3_shared_inputs_are_appended_not_refused(void **state) {   // claims inputs must be disjoint
    the_arena = *state;
    IS("multiply(" ID(2, "register", "dim0") ", " ID(2, "register", "dim1") ")",
       "{register: [(1,0),(0,1)]} -> (dim0: 2, dim1: 2)");
}

static void ll_5_3_broadcast_with_identity(void **state) {
    the_arena = *state;
    IS("apply(multiply(zeros1d(4, \"lane\", \"dim1\"), " ID(8, "register", "dim0") "), (3,5))", "(0,5)");
}

static void ll_5_4_compose_wants_outputs_at_most_as_large(void **state) {   // claims both "exactly" and "<="
    the_arena = *state;
    IS("compose(" ID(2, "register", "offset") ", {offset: [(2),(1),(4)]} -> (dim0: 8))",
       "{register: [(2)]} -> (dim0: 8)");
    REFUSED("compose(" ID(16, "register", "offset") ", {offset: [(2),(1),(4)]} -> (dim0: 8))");
}

static void ll_5_5_outer_need_not_be_surjective(void **state) {   // claims it must be
    the_arena = *state;
    IS("invert_and_compose({register: [(1)]} -> (dim0: 2), {offset: [(1)]} -> (dim0: 4))",
       "{register: [(1)]} -> (offset: 2)");
    REFUSED(
        "invert_and_compose({register: [(2)]} -> (dim0: 4), {offset: [(1)]} -> (dim0: 4))");   // but must reach the image
}

static void ll_5_5_equal_dims_map_to_themselves_not_to_the_smallest_preimage(
    void **state) {   // claims always the smallest
    the_arena = *state;
    IS("invert_and_compose({warp: [(0),(1)]} -> (dim0: 2), {warp: [(0),(1)]} -> (dim0: 2))",
       "{warp: [(1),(2)]} -> (warp: 4)");
    IS("invert_and_compose({lane: [(0),(1)]} -> (dim0: 2), {warp: [(0),(1)]} -> (dim0: 2))",
       "{lane: [(0),(2)]} -> (warp: 4)");
}

static void ll_6_1_register_times_lane_is_register_minor(void **state) {   // claims (1,0) -> 4, (0,1) -> 1, (2,3) -> 11
    the_arena = *state;
    const char *as_written = "multiply(" ID(8, "register", "dim0") ", " ID(4, "lane", "dim0") ")";
    IS(arena_printf(*state, "apply(%s, (1,0))", as_written), "1");
    IS(arena_printf(*state, "apply(%s, (0,1))", as_written), "8");
    IS(arena_printf(*state, "apply(%s, (2,3))", as_written), "26");
    const char *meant = "multiply(" ID(4, "lane", "dim0") ", " ID(8, "register", "dim0") ")";   // operands exchanged
    IS(arena_printf(*state, "apply(%s, (0,1))", meant), "4");
    IS(arena_printf(*state, "apply(%s, (1,0))", meant), "1");
    IS(arena_printf(*state, "apply(%s, (3,2))", meant), "11");
}

static void ll_6_2_strided_pieces_are_shifted_again(void **state) {   // claims (2,5,0) -> (2,2)
    the_arena = *state;
    const char *registers = "R = multiply(" ID(2, "register", "dim0") ", " ID(2, "register", "dim1") "); ";
    IS(arena_printf(*state,
                    "%sL = multiply(strided1d(4, 2, \"lane\", \"dim0\"), strided1d(4, 2, \"lane\", \"dim1\")); "
                    "W = multiply(strided1d(2, 8, \"warp\", \"dim0\"), strided1d(2, 8, \"warp\", \"dim1\")); "
                    "multiply(multiply(R, L), W)",
                    registers),
       "{register: [(1,0),(0,1)], lane: [(4,0),(8,0),(0,4),(0,8)], warp: [(128,0),(0,128)]} -> (dim0: 256, dim1: 256)");
    IS(arena_printf(*state,
                    "%sL = multiply(strided1d(4, 2, \"lane\", \"dim0\"), strided1d(4, 2, \"lane\", \"dim1\")); "
                    "apply(multiply(R, L), (2,5))",
                    registers),
       "(4,5)");
    IS(arena_printf(*state,
                    "%sL = multiply(" ID(4, "lane", "dim0") ", " ID(
                        4, "lane", "dim1") "); "
                                           "W = multiply(" ID(2, "warp", "dim0") ", " ID(
                                               2, "warp", "dim1") "); "
                                                                  "apply(multiply(multiply(R, L), W), (2,5,0))",
                    registers),
       "(2,3)");   // as its arithmetic view says
    IS("apply(blocked((16,16), (2,2), (4,4), (2,2), (1,0)), (2,5,0,0))",
       "(3,2)");   // claims the encoding gives the same
}

static void ll_6_3_swizzle_of_128x32(void **state) {
    the_arena = *state;
    const char *s = "swizzled((128,32), 8, 4, 8, (1,0))";
    IS(arena_printf(*state, "apply(%s, (17,0))", s), "(0,17)");
    IS(arena_printf(*state, "apply(%s, (129,0))", s), "(4,9)");
    // Claims 8 phases: 32 columns in chunks of 8 have 4, the phase bit of row 16 wraps to 0.
    IS(arena_printf(*state, "apply(%s, (512,0))", s), "(16,0)");
}

static void ll_6_4_register_to_shared_pipeline(void **state) {
    the_arena = *state;
    const char *setup = "R = blocked((64,16), (4,2), (8,4), (2,2), (1,0)); S = swizzled((64,16), 2, 1, 4, (1,0)); "
                        "C = invert_and_compose(R, S); ";
    for (int thread = 0; thread < 8; thread++) {
        const char *at = arena_printf(*state, "(3,%d,1,0)", thread * 5 % 32);
        const char *held = evaluated(arena_printf(*state, "%sapply(R, %s)", setup, at));
        const char *place = evaluated(arena_printf(*state, "%sapply(C, %s)", setup, at));
        IS(arena_printf(*state, "%sapply(S, %s)", setup, place), held);
    }
}

// ---- sources: tiled copies ----

static char *whole_file(Arena *arena, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TILEC_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    StrBuf text;
    sb_init(&text, arena);
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) sb_bytes(&text, buffer, n);
    fclose(file);
    return text.text;
}

// The script is the transcript with every computed value replaced by a call of the calculator.
static void tiled_copy_transcript_is_regenerated(void **state) {
    LayoutContext cx = layout_context(*state);
    char *text = calc_expand(calc_new(&cx), whole_file(*state, "tests/golden/tiled-copy-c-atom.calc"));
    assert_string_equal(cx.reason, "");
    assert_string_equal(text, whole_file(*state, "tests/golden/tiled-copy-c-atom.txt"));
}

static void tiled_copy_of_c_matches_the_transcript_for_1_2_4_values(void **state) {
    static const char *const expected[][2] = {{"((4,8),1):((8,1),0)", "((4,8),1):((32,1),0)"},
                                              {"((4,8),2):((8,1),32)", "((4,8),2):((32,1),16)"},
                                              {"((4,8),(2,2)):((16,1),(64,8))", "((4,8),(2,2)):((32,1),(16,8))"}};
    LayoutContext cx = layout_context(*state);
    MmaAtom atom = mma_atom_parse(&cx, 16, 8, 16, "32:1", "((4,8),(2,2,2)):((32,1),(16,8,128))",
                                  "((4,8),(2,2)):((16,1),(8,64))", "((4,8),(2,2)):((32,1),(16,8))");
    TiledMma mma = tiled_mma(&cx, atom, cute_parse(&cx, "(1,1,1):(0,0,0)"), tiler_parse(&cx, "<16;8;16>"));
    for (int i = 0; i < 3; i++) {
        TiledCopy copy = tiled_copy_of_mma(&cx, mma, OPERAND_C, 1 << i);
        TiledCopySteps s =
            tiled_copy_steps(&cx, tiled_mma_tv(&cx, mma, OPERAND_C), tiled_mma_tile(&cx, mma, OPERAND_C), 1 << i);
        assert_string_equal(cute_text(*state, copy.tv), expected[i][0]);
        assert_string_equal(cute_text(*state, s.layout_tv), expected[i][1]);
        // Each (thread, value) lands where the fragment has it: tile coordinate -> MMA offset.
        for (int64_t k = 0; k < cute_size(&cx, s.tv); k++)
            assert_int_equal(cute_at(s.tile_to_mma, cute_at(s.tv, k)), cute_at(s.layout_tv, k));
    }
    assert_false(cx.failed);
}

static const struct {
    const char *name;
    int m, n, k;
    const char *threads, *a, *b, *c;
} atoms[] = {
#define MMA_ATOM(...) {__VA_ARGS__},
#define COPY_ATOM(...)
#include "target/atoms.def"
#undef MMA_ATOM
#undef COPY_ATOM
};

// 2 x 2 atoms cover the tile of every operand, the accumulator exactly once.
static void atoms_tile_and_copy(void **state) {
    for (size_t i = 0; i < sizeof atoms / sizeof atoms[0]; i++) {
        LayoutContext cx = layout_context(*state);
        MmaAtom atom = mma_atom_parse(&cx, atoms[i].m, atoms[i].n, atoms[i].k, atoms[i].threads, atoms[i].a, atoms[i].b,
                                      atoms[i].c);
        TiledMma mma = tiled_mma(&cx, atom, cute_parse(&cx, "(2,2,1):(1,2,0)"), tiler_parse(&cx, "<_;_;_>"));
        for (int operand = OPERAND_A; operand <= OPERAND_C; operand++) {
            Cute tv = tiled_mma_tv(&cx, mma, (TiledOperand)operand);
            int64_t tile = tuple_product(&cx, tiled_mma_tile(&cx, mma, (TiledOperand)operand));
            assert_false(cx.failed);
            bool *held = NEW_ARRAY(*state, bool, tile);
            for (int64_t k = 0; k < cute_size(&cx, tv); k++) held[cute_at(tv, k)] = true;
            for (int64_t k = 0; k < tile; k++) assert_true(held[k]);
            assert_int_equal(cute_size(&cx, tv.modes[0]), 4 * cute_size(&cx, atom.threads));
            if (operand == OPERAND_C) assert_true(cute_injective(&cx, tv));
        }
    }
}

static void copy_atoms_cover_their_bits(void **state) {
    static const struct {
        const char *name, *threads;
        int bits;
        const char *source, *destination;
    } copies[] = {
#define MMA_ATOM(...)
#define COPY_ATOM(...) {__VA_ARGS__},
#include "target/atoms.def"
#undef MMA_ATOM
#undef COPY_ATOM
    };
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        LayoutContext cx = layout_context(*state);
        Cute source = cute_parse(&cx, copies[i].source), destination = cute_parse(&cx, copies[i].destination);
        assert_int_equal(cute_cosize(&cx, source), cute_cosize(&cx, destination));
        assert_true(cute_injective(&cx, destination));
        assert_int_equal(cute_size(&cx, destination), cute_cosize(&cx, destination));
        assert_int_equal(cute_size(&cx, source.modes[1]), copies[i].bits);
    }
}

// ---- sources: TileTensor patterns ----

static void tt_pattern_1_internal_k_major_128b_is_a_plain_pitch(void **state) {
    the_arena = *state;
    // ((BM/8,8),(64,BK/64)) : ((64, BM/8*64),(1,0)) for 16-bit elements, BM = BK = 64: rows 64 elements apart.
    IS("coalesce(((8,8),(64,1)):((64,512),(1,0)), (1,1))", "(64,64):(64,1)");
    LayoutContext cx = layout_context(*state);
    Swizzled tile = tma_k_major(&cx, 64, 64, 16, 128);
    Cute claimed = cute_parse(&cx, "((8,8),(64,1)):((64,512),(1,0))");
    for (int64_t i = 0; i < 64 * 64; i++) assert_int_equal(cute_at(tile.layout, i), cute_at(claimed, i));
    StrBuf text;
    sb_init(&text, *state);
    swizzle_print(&text, tile.swizzle);
    assert_string_equal(text.text, "Sw<3,3,3>");
}

static void tt_pattern_1_with_k_beyond_the_swizzle_aliases_its_panels(void **state) {
    // Claims one formula for all BK: with BK = 128 its panel stride is 0, so that both panels are one. It is BM * 64.
    LayoutContext cx = layout_context(*state);
    assert_false(cute_injective(&cx, cute_parse(&cx, "((8,8),(64,2)):((64,512),(1,0))")));
    Swizzled tile = tma_k_major(&cx, 64, 128, 16, 128);
    assert_string_equal(cute_text(*state, tile.layout), "(64,(64,2)):(64,(1,4096))");
    assert_true(cute_injective(&cx, tile.layout));
}

static void tt_k_and_mn_major_tiles_of_32_64_128_bytes(void **state) {
    for (int bytes = 32; bytes <= 128; bytes *= 2)
        for (int bits = 8; bits <= 32; bits *= 2) {
            LayoutContext cx = layout_context(*state);
            int64_t width = 8 * bytes / bits;
            Swizzled k = tma_k_major(&cx, 64, 2 * width, bits, bytes),
                     mn = tma_mn_major(&cx, 2 * width, 64, bits, bytes);
            assert_false(cx.failed);
            for (int64_t i = 0; i < 64; i++)
                for (int64_t j = 0; j < 2 * width; j++) {
                    BankTile tile = {64, 2 * width, bits, bytes / 16};   // the same as TileLang's bank layouts
                    assert_int_equal(swizzled_at(k, i + j * 64), bank_element(tile, i, j));
                    assert_int_equal(swizzled_at(mn, j + i * 2 * width), bank_element(tile, i, j));
                }
        }
}

static void tt_pattern_8_box_and_device_tile_come_from_one_description(void **state) {
    LayoutContext cx = layout_context(*state);
    TmaPlan plan = tma_plan(&cx, (TmaTile){3, {2, 512, 128}, 16, 64});
    assert_false(cx.failed);
    assert_int_equal(plan.boxes.extent[0], 2);
    assert_int_equal(plan.boxes.extent[1], 256);   // at most 256
    assert_int_equal(plan.boxes.extent[2], 32);    // 64 bytes
    assert_int_equal(plan.copies, 2 * 4);
    assert_int_equal(plan.alignment, 512);
    assert_int_equal(plan.swizzle_ordinal, 2);
    assert_true(cute_injective(&cx, plan.layout.layout));
    assert_int_equal(cute_cosize(&cx, plan.layout.layout), 2 * 512 * 128);
    // What a box writes, row-major with the hardware's swizzle, is where the device's layout looks.
    Swizzle hardware = {2, 4, 3};
    int64_t box_elements = plan.box_bytes * 8 / 16;
    bool *box_start = NEW_ARRAY(*state, bool, plan.copies);
    for (int64_t panel = 0; panel < 4; panel++)
        for (int64_t half = 0; half < 2; half++) {
            int64_t first = cute_at(plan.layout.layout, 0 + 2 * (half * 256) + 2 * 512 * (panel * 32)),
                    number = first / box_elements;
            assert_false(box_start[number]);
            box_start[number] = true;
            for (int64_t i = 0; i < 2; i++)
                for (int64_t j = 0; j < 256; j++)
                    for (int64_t k = 0; k < 32; k++) {
                        int64_t byte = swizzle_apply(hardware, ((i * 256 + j) * 32 + k) * 2) + first * 2;
                        int64_t at = swizzled_at(plan.layout, i + 2 * (half * 256 + j) + 2 * 512 * (panel * 32 + k));
                        assert_int_equal(at * 2, byte);
                    }
        }
    tma_plan(&cx, (TmaTile){2, {64, 40}, 16, 128});   // not whole panels
    assert_true(cx.failed);
}

static void tt_im2col_box_corners(void **state) {
    LayoutContext cx = layout_context(*state);
    TmaIm2col map = tma_im2col(&cx, 2, (int64_t[]){1, 1}, (int64_t[]){3, 3}, (int64_t[]){1, 1});
    assert_false(cx.failed);
    assert_int_equal(map.lower[0], -1);   // 3x3, padding 1: base pixels are those of the input moved by -1
    assert_int_equal(map.upper[0], -1);
}

// ---- the documentation ----

// In a block fenced as `layout`, a line `> expression` is followed by what it prints.
static void documentation_examples_are_true(void **state) {
    the_arena = *state;
    char *text = whole_file(*state, "docs/reference/layout-calculator.md");
    bool inside = false;
    int examples = 0;
    const char *question = NULL;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "```", 3)) inside = !strcmp(line, "```layout");
        else if (inside && !strncmp(line, "> ", 2)) question = line + 2;
        else if (inside) {
            assert_non_null(question);
            const char *answer = evaluated(question);
            if (strcmp(answer, line)) fail_msg("%s: the text says %s, it is %s", question, line, answer);
            question = NULL;
            examples++;
        }
    }
    assert_true(examples > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(sw343_masks_are_bits_7_to_9_and_4_to_6),
        IN_ARENA(sw343_example_1023),
        IN_ARENA(sw343_bit_7_flips_4_8_flips_5_9_flips_6),
        IN_ARENA(sw_needs_shift_of_at_least_bits),
        IN_ARENA(sw343_table_of_8x64_b16),
        IN_ARENA(sw343_row_1_columns_8_to_15_are_at_128_and_row_7_flips_bits_4_to_6),
        IN_ARENA(sw343_repeats_every_1024_bytes_not_128),
        IN_ARENA(sw343_stride_128_gives_8_groups_of_banks_not_32_banks),
        IN_ARENA(sw343_keeps_rows_contiguous),
        IN_ARENA(full_bank_256x64_f16_has_shape_1_32_512),
        IN_ARENA(full_bank_chunk_ranges_over_8_not_1),
        IN_ARENA(both_sides_use_the_same_bijection),
        IN_ARENA(bank_layouts_are_swizzles_of_a_panel_major_base),
        IN_ARENA(bank_layouts_of_4_rows_and_several_panels_are_no_swizzle),
        IN_ARENA(ll_4_1_blocked_has_inputs_register_lane_warp_block),
        IN_ARENA(ll_4_1_shared_has_inputs_offset_block),
        IN_ARENA(ll_4_2_order_1_0_is_row_major_and_outputs_keep_their_names),
        IN_ARENA(ll_4_3_flatten_is_minor_to_major),
        IN_ARENA(ll_5_1_1_identity),
        IN_ARENA(ll_5_1_2_strided_is_not_surjective),
        IN_ARENA(ll_5_1_3_zeros_broadcast),
        IN_ARENA(ll_5_2_swizzle_from_bases),
        IN_ARENA(ll_5_3_product_lists_the_left_operand_first),
        IN_ARENA(ll_5_3_shared_outputs_are_shifted_not_xored),
        IN_ARENA(ll_5_3_shared_inputs_are_appended_not_refused),
        IN_ARENA(ll_5_3_broadcast_with_identity),
        IN_ARENA(ll_5_4_compose_wants_outputs_at_most_as_large),
        IN_ARENA(ll_5_5_outer_need_not_be_surjective),
        IN_ARENA(ll_5_5_equal_dims_map_to_themselves_not_to_the_smallest_preimage),
        IN_ARENA(ll_5_6_reshape_splits_what_flatten_merges_and_transpose_chooses_the_minor_dim),
        IN_ARENA(ll_5_7_apply_takes_integers_and_prints_as_code),
        IN_ARENA(ll_6_1_register_times_lane_is_register_minor),
        IN_ARENA(ll_6_2_strided_pieces_are_shifted_again),
        IN_ARENA(ll_6_3_swizzle_of_128x32),
        IN_ARENA(ll_6_4_register_to_shared_pipeline),
        IN_ARENA(tiled_copy_transcript_is_regenerated),
        IN_ARENA(tiled_copy_of_c_matches_the_transcript_for_1_2_4_values),
        IN_ARENA(atoms_tile_and_copy),
        IN_ARENA(copy_atoms_cover_their_bits),
        IN_ARENA(tt_pattern_1_internal_k_major_128b_is_a_plain_pitch),
        IN_ARENA(tt_pattern_1_with_k_beyond_the_swizzle_aliases_its_panels),
        IN_ARENA(tt_k_and_mn_major_tiles_of_32_64_128_bytes),
        IN_ARENA(tt_pattern_8_box_and_device_tile_come_from_one_description),
        IN_ARENA(tt_im2col_box_corners),
        IN_ARENA(documentation_examples_are_true),
    };
    return run(tests);
}
