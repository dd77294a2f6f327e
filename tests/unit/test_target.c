// Targets and mma instructions: rows that fit together, register layouts against the formulas of the PTX ISA.
#include "layout/calculator/algebra.h"
#include "target/target.h"
#include "tests/unit/unit.h"
#include <stdbool.h>
#include <string.h>

static void targets_are_listed_and_found(void **state) {
    (void)state;
    int count = 0;
    for (const Target *target; (target = target_at(count)) != NULL; count++) {
        assert_ptr_equal(target_named(target->name), target);
        assert_int_equal(target->shared_multiprocessor, target->shared_block + target->shared_reserved);
        assert_true(target_has(target, FEATURE_MMA) && target_has(target, FEATURE_CP_ASYNC));
        assert_int_equal(target->banks * target->bank_bytes, target->line_bytes);
        assert_int_equal(strncmp(target->ptx_feature, "+ptx", 4), 0);
    }
    assert_true(count >= 7);
    assert_null(target_at(-1));
    assert_null(target_named("sm_12"));
    assert_int_equal(target_named("sm_80")->shared_block, 163 * 1024);
    assert_int_equal(target_named("sm_86")->shared_block, 99 * 1024);
    assert_int_equal(target_named("sm_90a")->shared_block, 232448);
    assert_false(target_has(target_named("sm_90"), FEATURE_WGMMA));
    assert_true(target_has(target_named("sm_90a"), FEATURE_WGMMA));
    assert_false(target_has(target_named("sm_100a"), FEATURE_WGMMA));
    assert_false(target_has(target_named("sm_80"), FEATURE_TMA));
}

static void features_have_names(void **state) {
    (void)state;
    for (int f = 0; f < FEATURE_COUNT; f++) assert_non_null(feature_text((Feature)f));
}

// (lane, value) of a 32-lane fragment owns every element of [rows, columns] exactly once.
static void owns_each(Arena *arena, const char *text, int64_t rows, int64_t columns) {
    const char *why = NULL;
    const Layout *tv = layout_parse(arena, text, 0, &why);
    assert_non_null(tv);
    assert_int_equal(layout_extent_in(tv, 0), 32);
    assert_int_equal(tv->rank_out, 2);
    char owners[16][32] = {{0}};
    for (int64_t lane = 0; lane < 32; lane++)
        for (int64_t value = 0; value < layout_extent_in(tv, 1); value++) {
            int64_t at[2];
            layout_eval(tv, (int64_t[]){lane, value}, at);
            assert_true(at[0] < rows && at[1] < columns);
            owners[at[0]][at[1]]++;
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) assert_int_equal(owners[i][j], 1);
    LayoutContext cx = layout_context(arena);
    assert_non_null(layout_right_inverse(&cx, tv));
}

static void fragments_own_each_element(void **state) {
    int count = 0;
    for (const MmaInfo *row; (row = mma_at(count)) != NULL; count++) {
        assert_ptr_equal(mma_named(row->name), row);
        owns_each(*state, row->a_layout, row->m, row->k);
        owns_each(*state, row->b_layout, row->n, row->k);
        owns_each(*state, row->c_layout, row->m, row->n);
    }
    assert_int_equal(count, 24);
    assert_null(mma_named("m16n8k16"));
}

static void expect_at(Arena *arena, const char *text, int64_t lane, int64_t value, int64_t row, int64_t column) {
    const char *why = NULL;
    int64_t at[2];
    layout_eval(layout_parse(arena, text, 0, &why), (int64_t[]){lane, value}, at);
    assert_int_equal(at[0], row);
    assert_int_equal(at[1], column);
}

// "Matrix Fragments for mma.m16n8k16 with floating point type": row and col as functions of lane and register index i.
static void fragments_of_16_bits(void **state) {
    const MmaInfo *mma = mma_named("m16n8k16_f32_bf16");
    for (int lane = 0; lane < 32; lane++) {
        int group = lane >> 2, member = lane % 4;
        for (int i = 0; i < 8; i++) {
            int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
            expect_at(*state, mma->a_layout, lane, i, row, member * 2 + (i & 1) + (i >= 4 ? 8 : 0));
        }
        for (int i = 0; i < 4; i++)
            expect_at(*state, mma->b_layout, lane, i, group, member * 2 + (i & 1) + (i >= 2 ? 8 : 0));
        for (int i = 0; i < 4; i++)
            expect_at(*state, mma->c_layout, lane, i, i < 2 ? group : group + 8, member * 2 + (i & 1));
    }
}

// "... mma.m8n8k4 with .f64 floating point type".
static void fragments_of_64_bits(void **state) {
    const MmaInfo *mma = mma_named("m8n8k4_f64_f64");
    const MmaInfo *wide = mma_named("m16n8k16_f64_f64");
    for (int lane = 0; lane < 32; lane++) {
        int group = lane >> 2, member = lane % 4;
        expect_at(*state, mma->a_layout, lane, 0, group, member);
        expect_at(*state, mma->b_layout, lane, 0, group, member);
        for (int i = 0; i < 2; i++) expect_at(*state, mma->c_layout, lane, i, group, member * 2 + i);
        for (int i = 0; i < 8; i++)   // ".. mma.m16n8k16 with .f64"
            expect_at(*state, wide->a_layout, lane, i, i % 2 ? group + 8 : group, i / 2 * 4 + member);
        for (int i = 0; i < 4; i++) expect_at(*state, wide->b_layout, lane, i, group, member + 4 * i);
    }
}

// "... mma.m16n8k8" with .tf32 and "... mma.m16n8k32".
static void fragments_of_32_and_8_bits(void **state) {
    const MmaInfo *tf32 = mma_named("m16n8k8_f32_tf32"), *s8 = mma_named("m16n8k32_i32_i8");
    for (int lane = 0; lane < 32; lane++) {
        int group = lane >> 2, member = lane % 4;
        for (int i = 0; i < 4; i++)
            expect_at(*state, tf32->a_layout, lane, i, i % 2 ? group + 8 : group, i < 2 ? member : member + 4);
        for (int i = 0; i < 2; i++) expect_at(*state, tf32->b_layout, lane, i, group, member + 4 * i);
        for (int i = 0; i < 16; i++) {
            int row = i < 4 || (8 <= i && i < 12) ? group : group + 8;
            expect_at(*state, s8->a_layout, lane, i, row, member * 4 + (i & 3) + (i >= 8 ? 16 : 0));
        }
        for (int i = 0; i < 8; i++)
            expect_at(*state, s8->b_layout, lane, i, group, member * 4 + (i & 3) + (i >= 4 ? 16 : 0));
    }
}

static void instructions_are_found_by_type_and_target(void **state) {
    (void)state;
    const Target *ampere = target_named("sm_80"), *ada = target_named("sm_89");
    assert_string_equal(mma_find(ampere, "bf16", "bf16", "f32")->name, "m16n8k16_f32_bf16");
    assert_string_equal(mma_find(ampere, "f16", "f16", "f16")->name, "m16n8k16_f16_f16");
    assert_null(mma_find(ampere, "e4m3", "e4m3", "f32"));
    assert_non_null(mma_find(ada, "e4m3", "e4m3", "f32"));
    assert_string_equal(mma_holding(ampere, "e4m3", "e5m2", "f32", 64, 64)->name, "m16n8k16_f32_f16");
    assert_string_equal(mma_holding(ada, "e4m3", "e4m3", "f32", 64, 64)->name, "m16n8k32_f32_e4m3");
    assert_string_equal(mma_holding(ada, "bf16", "e4m3", "f32", 64, 64)->name, "m16n8k16_f32_bf16");
    assert_string_equal(mma_holding(target_named("sm_90a"), "e4m3", "e4m3", "f32", 64, 64)->name, "m16n8k16_f32_f16");
    assert_string_equal(mma_holding(ada, "bf16", "f16", "f32", 64, 64)->name, "m16n8k8_f32_tf32");
    assert_string_equal(mma_holding(ampere, "bf16", "u8", "f32", 64, 64)->name, "m16n8k16_f32_bf16");
    assert_string_equal(mma_holding(ampere, "f16", "f16", "f32", 64, 40)->name, "m16n8k8_f32_f16");
    assert_string_equal(mma_holding(ampere, "f16", "f16", "f32", 64, 12)->name, "m16n8k16_f32_f16");   // the same zeros
    assert_string_equal(mma_holding(ampere, "i8", "u8", "i32", 64, 48)->name, "m16n8k16_i32_i8_u8");
    assert_string_equal(mma_holding(ampere, "f64", "f64", "f64", 64, 16)->name, "m8n8k4_f64_f64");
    assert_string_equal(mma_holding(target_named("sm_90a"), "f64", "f64", "f64", 64, 16)->name, "m16n8k16_f64_f64");
    assert_string_equal(mma_holding(target_named("sm_90a"), "f64", "f64", "f64", 48, 12)->name, "m16n8k4_f64_f64");
    assert_string_equal(mma_holding(target_named("sm_90a"), "f64", "f64", "f64", 24, 16)->name, "m8n8k4_f64_f64");
    assert_null(mma_holding(ada, "i16", "f16", "f32", 64, 64));
    assert_null(mma_holding(ada, "f32", "e4m3", "f32", 64, 64));
    assert_null(mma_find(ada, "f32", "f32", "f32"));   // f32 is IEEE unless tf32 is asked for
    assert_non_null(mma_find(ada, "tf32", "tf32", "f32"));
}

static void warpgroup_instructions_have_names(void **state) {
    (void)state;
    WgmmaInfo info;
    assert_true(wgmma_named("m64n200k16_f32_bf16", &info));
    assert_int_equal(info.n, 200);
    assert_true(info.can_transpose);
    assert_string_equal(info.b_type, "bf16");
    assert_true(wgmma_named("m64n8k32_f32_e4m3_e5m2", &info));
    assert_string_equal(info.b_type, "e5m2");
    static const char *const right[] = {"m64n256k8_f32_tf32", "m64n24k32_i32_i8", "m64n48k32_i32_u8_i8",
                                        "m64n16k16_f16_f16", "m64n256k32_f32_e5m2"};
    static const char *const wrong[] = {
        "m64n200k16_f32_bf1", "m64n12k16_f32_bf16",     "m64n264k16_f32_f16", "m64n40k32_i32_i8",
        "m64n64k16_f32_e4m3", "m128n64k16_f32_f16",     "m64n064k16_f32_f16", "m64n64k16_f32_f16_f16x",
        "m64n64k16_f16_bf16", "m64n64k16_f32_f16_bf16", "m64n64k16",          ""};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) assert_true(wgmma_named(right[i], &info));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(wgmma_named(wrong[i], &info));
}

// More columns than an instruction has are those of two, where a thread has registers for them.
static void columns_of_two_instructions(void **state) {
    (void)state;
    WgmmaInfo info;
    const Target *hopper = target_named("sm_90a");
    assert_true(wgmma_find(hopper, "e4m3", "e4m3", "f32", 264, &info));
    assert_int_equal(info.n, 264);
    assert_string_equal(info.acc_layout, "((4,8,4),(2,2,33)):((2@1,1@0,16@0),(1@1,8@0,8@1))");
    assert_false(wgmma_find(hopper, "e4m3", "e4m3", "f32", 260, &info));
    assert_false(wgmma_find(hopper, "e4m3", "e4m3", "f32", 512, &info));
    assert_true(wgmma_find(hopper, "e4m3", "e4m3", "f32", 256, &info));
}

// Where a is in pairs of k, b's memory has them in the same order: what the instruction takes for a's element (m, k) is
// what the order says of k. And a thread's part of a is its part of an accumulator.
static void paired_operands_agree(void **state) {
    Arena *arena = *state;
    WgmmaInfo info;
    const char *why;
    assert_true(wgmma_named("m64n32k32_f32_e4m3", &info));
    const Layout *plain = layout_parse(arena, info.a_layout, 0, &why),
                 *paired = layout_parse(arena, info.a_paired, 0, &why),
                 *order = layout_parse(arena, info.k_paired, 0, &why),
                 *acc = layout_parse(arena, info.acc_layout, 0, &why);
    int64_t period = layout_extent_in(order, 0);
    assert_int_equal(period, 16);
    for (int64_t thread = 0; thread < 128; thread++) {
        int held = 0;
        for (int64_t value = 0; value < 16; value++) {
            int64_t in[2] = {thread, value}, taken[2], element[2], place, k;
            layout_eval(plain, in, taken);
            layout_eval(paired, in, element);
            k = element[1] % period;
            layout_eval(order, &k, &place);
            assert_int_equal(taken[0], element[0]);
            assert_int_equal(taken[1], element[1] / period * period + place);
            for (int64_t other = 0; other < 16; other++) {
                int64_t at[2] = {thread, other}, sum[2];
                layout_eval(acc, at, sum);
                held += sum[0] == element[0] && sum[1] == element[1];
            }
        }
        assert_int_equal(held, 16);
    }
    assert_true(wgmma_named("m64n32k16_f32_bf16", &info));
    assert_null(info.a_paired);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_ARENA(targets_are_listed_and_found),
        IN_ARENA(features_have_names),
        IN_ARENA(fragments_own_each_element),
        IN_ARENA(fragments_of_16_bits),
        IN_ARENA(fragments_of_64_bits),
        IN_ARENA(fragments_of_32_and_8_bits),
        IN_ARENA(instructions_are_found_by_type_and_target),
        IN_ARENA(warpgroup_instructions_have_names),
        IN_ARENA(paired_operands_agree),
        IN_ARENA(columns_of_two_instructions),
        IN_ARENA(paired_operands_agree),
    };
    return run(tests);
}
