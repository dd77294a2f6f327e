// Tensor-core instructions of one warp: mma.sync (PTX ISA, "Matrix fragments for mma.m16n8k8 / k16 / k32" and ".m8n8k4").
//
// In all of them a lane is (group, member): group = lane / 4 is a row of A and C and a column of B, member = lane % 4 a
// place along the other side. A 32-bit register holds elements that are neighbours along k (along n for C):
//
//     A of m16n8k16       k = 2 * member + {0,1}   | + 8
//       m = group           values 0 1             | 4 5
//       m = group + 8       values 2 3             | 6 7
//
// so A is ((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1)): lane digits (member, group), value digits (in the register, +8
// rows, +8 columns). tf32 has one element a register, 8-bit types have four. The instruction with half of k lacks the
// last value digit. Those of f64 have an element in two registers, and the one of 8 rows lacks the upper ones.
#include "target/target.h"
#include <string.h>

const MatrixFacts matrix_facts = {.rows = 8, .row_bytes = 16, .byte_rows = 16};

#define A_32 "((4,8),(2,2)):((1@1,1@0),(8@0,4@1))"
#define B_32 "((4,8),2):((1@1,1@0),4@1)"
#define A_64 "((4,8),(2,4)):((1@1,1@0),(8@0,4@1))"
#define B_64 "((4,8),4):((1@1,1@0),4@1)"
#define A_32_HALF "((4,8),2):((1@1,1@0),8@0)"
#define B_32_HALF "((4,8),1):((1@1,1@0),1@1)"
#define A_16 "((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1))"
#define B_16 "((4,8),(2,2)):((2@1,1@0),(1@1,8@1))"
#define A_16_HALF "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"
#define B_16_HALF "((4,8),2):((2@1,1@0),1@1)"
#define A_8 "((4,8),(4,2,2)):((4@1,1@0),(1@1,8@0,16@1))"
#define B_8 "((4,8),(4,2)):((4@1,1@0),(1@1,16@1))"
#define A_8_HALF "((4,8),(4,2)):((4@1,1@0),(1@1,8@0))"
#define B_8_HALF "((4,8),4):((4@1,1@0),1@1)"
#define C_ANY "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"
#define C_8_ROWS "((4,8),2):((2@1,1@0),1@1)"

// Of equal types the longest k comes first. Operands of tf32 are f32 in registers.
static const MmaInfo rows[] = {
    {"m16n8k16_f32_f16", 16, 8, 16, "f16", "f16", "f32", A_16, B_16, C_ANY, FEATURE_MMA},
    {"m16n8k8_f32_f16", 16, 8, 8, "f16", "f16", "f32", A_16_HALF, B_16_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k16_f32_bf16", 16, 8, 16, "bf16", "bf16", "f32", A_16, B_16, C_ANY, FEATURE_MMA},
    {"m16n8k8_f32_bf16", 16, 8, 8, "bf16", "bf16", "f32", A_16_HALF, B_16_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k16_f16_f16", 16, 8, 16, "f16", "f16", "f16", A_16, B_16, C_ANY, FEATURE_MMA},
    {"m16n8k8_f16_f16", 16, 8, 8, "f16", "f16", "f16", A_16_HALF, B_16_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k8_f32_tf32", 16, 8, 8, "tf32", "tf32", "f32", A_32, B_32, C_ANY, FEATURE_MMA},
    {"m16n8k4_f32_tf32", 16, 8, 4, "tf32", "tf32", "f32", A_32_HALF, B_32_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k16_f64_f64", 16, 8, 16, "f64", "f64", "f64", A_64, B_64, C_ANY, FEATURE_MMA_F64},
    {"m16n8k8_f64_f64", 16, 8, 8, "f64", "f64", "f64", A_32, B_32, C_ANY, FEATURE_MMA_F64},
    {"m16n8k4_f64_f64", 16, 8, 4, "f64", "f64", "f64", A_32_HALF, B_32_HALF, C_ANY, FEATURE_MMA_F64},
    {"m8n8k4_f64_f64", 8, 8, 4, "f64", "f64", "f64", B_32_HALF, B_32_HALF, C_8_ROWS, FEATURE_MMA},
    {"m16n8k32_i32_i8", 16, 8, 32, "i8", "i8", "i32", A_8, B_8, C_ANY, FEATURE_MMA},
    {"m16n8k16_i32_i8", 16, 8, 16, "i8", "i8", "i32", A_8_HALF, B_8_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k32_i32_u8", 16, 8, 32, "u8", "u8", "i32", A_8, B_8, C_ANY, FEATURE_MMA},
    {"m16n8k16_i32_u8", 16, 8, 16, "u8", "u8", "i32", A_8_HALF, B_8_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k32_i32_i8_u8", 16, 8, 32, "i8", "u8", "i32", A_8, B_8, C_ANY, FEATURE_MMA},
    {"m16n8k16_i32_i8_u8", 16, 8, 16, "i8", "u8", "i32", A_8_HALF, B_8_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k32_i32_u8_i8", 16, 8, 32, "u8", "i8", "i32", A_8, B_8, C_ANY, FEATURE_MMA},
    {"m16n8k16_i32_u8_i8", 16, 8, 16, "u8", "i8", "i32", A_8_HALF, B_8_HALF, C_ANY, FEATURE_MMA},
    {"m16n8k32_f32_e4m3", 16, 8, 32, "e4m3", "e4m3", "f32", A_8, B_8, C_ANY, FEATURE_MMA_FP8},
    {"m16n8k32_f32_e5m2", 16, 8, 32, "e5m2", "e5m2", "f32", A_8, B_8, C_ANY, FEATURE_MMA_FP8},
    {"m16n8k32_f32_e4m3_e5m2", 16, 8, 32, "e4m3", "e5m2", "f32", A_8, B_8, C_ANY, FEATURE_MMA_FP8},
    {"m16n8k32_f32_e5m2_e4m3", 16, 8, 32, "e5m2", "e4m3", "f32", A_8, B_8, C_ANY, FEATURE_MMA_FP8},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const MmaInfo *mma_at(int index) {
    return index >= 0 && index < ROWS ? &rows[index] : NULL;
}

const MmaInfo *mma_named(const char *name) {
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

const MmaInfo *mma_find(const Target *target, const char *a_type, const char *b_type, const char *c_type) {
    for (int i = 0; i < ROWS; i++) {
        const MmaInfo *row = &rows[i];
        bool types =
            strcmp(row->a_type, a_type) == 0 && strcmp(row->b_type, b_type) == 0 && strcmp(row->c_type, c_type) == 0;
        if (types && target_has(target, row->feature)) return row;
    }
    return NULL;
}

// ---- types within types ----

// Every value of `type` is one of `wider`: f16 and bf16 have the exponents and mantissas of 8-bit floats, and all
// integers of 8 bits; tf32 has the exponents of bf16 and the mantissas of f16.
static bool holds(const char *wider, const char *type) {
    static const char *const pairs[][2] = {{"f16", "e4m3"},  {"f16", "e5m2"},  {"f16", "i8"},    {"f16", "u8"},
                                           {"bf16", "e4m3"}, {"bf16", "e5m2"}, {"bf16", "i8"},   {"bf16", "u8"},
                                           {"tf32", "f16"},  {"tf32", "bf16"}, {"tf32", "e4m3"}, {"tf32", "e5m2"},
                                           {"tf32", "i8"},   {"tf32", "u8"}};
    if (strcmp(wider, type) == 0) return true;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(pairs[i][0], wider) == 0 && strcmp(pairs[i][1], type) == 0) return true;
    return false;
}

static bool same_types(const MmaInfo *a, const MmaInfo *b) {
    return !strcmp(a->a_type, b->a_type) && !strcmp(a->b_type, b->b_type) && !strcmp(a->c_type, b->c_type);
}

static int64_t padded(const MmaInfo *row, int64_t m, int64_t k) {
    return (m + row->m - 1) / row->m * row->m * ((k + row->k - 1) / row->k * row->k);
}

static const MmaInfo *of_wider_types(const Target *target, const char *a_type, const char *b_type, const char *c_type) {
    for (int i = 0; i < ROWS; i++) {
        const MmaInfo *row = &rows[i];
        if (!holds(row->a_type, a_type) || !holds(row->b_type, b_type) || strcmp(row->c_type, c_type) != 0) continue;
        if (target_has(target, row->feature)) return row;
    }
    return NULL;
}

const MmaInfo *mma_holding(const Target *target, const char *a_type, const char *b_type, const char *c_type, int64_t m,
                           int64_t k) {
    const MmaInfo *best = mma_find(target, a_type, b_type, c_type);
    bool converted_anyway = best && best->feature == FEATURE_MMA_FP8 && !target_has(target, FEATURE_MMA_FP8_UNITS);
    if (!best || converted_anyway) best = of_wider_types(target, a_type, b_type, c_type);
    for (int i = 0; i < ROWS && best; i++) {
        bool serves = same_types(&rows[i], best) && target_has(target, rows[i].feature);
        if (serves && padded(&rows[i], m, k) < padded(best, m, k)) best = &rows[i];
    }
    return best;
}
