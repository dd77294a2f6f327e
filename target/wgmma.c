// Tensor-core instructions of one warpgroup, by name. (PTX ISA, "wgmma.mma_async".)
#include "target/target.h"
#include <stdio.h>
#include <string.h>

typedef struct WgmmaTypes {
    const char *acc, *a;
    int bits;            // of an element of a and b in shared memory
    const char *mixes;   // the type that b may have instead of a's
} WgmmaTypes;

// Within the 16 rows of a warp, lanes and registers lie as in mma.sync (mma.c): one more thread digit counts the warps.
#define A_32 "((4,8,4),(2,2)):((1@1,1@0,16@0),(8@0,4@1))"
#define A_16 "((4,8,4),(2,2,2)):((2@1,1@0,16@0),(1@1,8@0,8@1))"
#define A_8 "((4,8,4),(4,2,2)):((4@1,1@0,16@0),(1@1,8@0,16@1))"
#define A_8_PAIRED "((4,8,4),(2,2,2,2)):((2@1,1@0,16@0),(1@1,8@1,8@0,16@1))"
#define K_PAIRED "((2,4,2)):((1,4,2))"   // 0 1 8 9  2 3 10 11  4 5 12 13  6 7 14 15
#define ACC "((4,8,4),(2,2,%d)):((2@1,1@0,16@0),(1@1,8@0,8@1))"

enum { STEP = 8 };   // of n

static const WgmmaTypes rows[] = {
    {"f32", "f16", 16, NULL},   {"f16", "f16", 16, NULL},   {"f32", "bf16", 16, NULL},  {"f32", "tf32", 32, NULL},
    {"f32", "e4m3", 8, "e5m2"}, {"f16", "e4m3", 8, "e5m2"}, {"f32", "e5m2", 8, "e4m3"}, {"f16", "e5m2", 8, "e4m3"},
    {"i32", "i8", 8, "u8"},     {"i32", "u8", 8, "i8"},
};

static const WgmmaTypes *types_of(const WgmmaInfo *info) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const WgmmaTypes *row = &rows[i];
        if (strcmp(row->acc, info->acc_type) || strcmp(row->a, info->a_type)) continue;
        if (!strcmp(info->b_type, info->a_type) || (row->mixes && !strcmp(info->b_type, row->mixes))) return row;
    }
    return NULL;
}

// What n is a multiple of.
static int step_of(const WgmmaInfo *info) {
    enum { INTEGER_STEP = 16, INTEGER_FINE = 32 };
    return info->acc_type[0] == 'i' && info->n > INTEGER_FINE ? INTEGER_STEP : STEP;
}

bool wgmma_named(const char *name, WgmmaInfo *out) {
    enum { K_BITS = 256 };
    char again[64], rest[8];
    *out = (WgmmaInfo){0};
    int found = sscanf(name, "m%dn%dk%d_%7[a-z0-9]_%7[a-z0-9]_%7[a-z0-9]", &out->m, &out->n, &out->k, out->acc_type,
                       out->a_type, rest);
    if (found < 5) return false;
    memcpy(out->b_type, found == 6 ? rest : out->a_type, sizeof rest);
    snprintf(again, sizeof again, "m%dn%dk%d_%s_%s%s%s", out->m, out->n, out->k, out->acc_type, out->a_type,
             found == 6 ? "_" : "", found == 6 ? rest : "");
    const WgmmaTypes *types = types_of(out);
    if (!types || strcmp(again, name) != 0) return false;   // what is left over, leading zeros
    out->can_transpose = types->bits == 16;
    out->a_layout = types->bits == 32 ? A_32 : types->bits == 16 ? A_16 : A_8;
    out->a_paired = types->bits == 8 ? A_8_PAIRED : NULL;
    out->k_paired = types->bits == 8 ? K_PAIRED : NULL;
    snprintf(out->acc_layout, sizeof out->acc_layout, ACC, out->n / STEP);
    return out->m == WGMMA_ROWS && out->n >= STEP && out->n <= WGMMA_COLUMNS && out->n % step_of(out) == 0 &&
           out->k * types->bits == K_BITS;
}

static bool find_one(const Target *target, const char *a_type, const char *b_type, const char *acc_type, int n,
                     WgmmaInfo *out) {
    char name[64];
    bool mixed = strcmp(a_type, b_type) != 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].a, a_type) || strcmp(rows[i].acc, acc_type)) continue;
        snprintf(name, sizeof name, "m64n%dk%d_%s_%s%s%s", n, 256 / rows[i].bits, acc_type, a_type, mixed ? "_" : "",
                 mixed ? b_type : "");
        bool exists = wgmma_named(name, out), possible = types_of(out) != NULL;
        if (exists && target_has(target, FEATURE_WGMMA)) return true;
        *out = possible ? (WgmmaInfo){.m = out->m, .n = step_of(out), .k = out->k} : (WgmmaInfo){0};
        return false;
    }
    return false;
}

bool wgmma_find(const Target *target, const char *a_type, const char *b_type, const char *acc_type, int n,
                WgmmaInfo *out) {
    WgmmaInfo rest;
    if (n <= WGMMA_COLUMNS || n / 2 + WGMMA_ROOM > target->registers_thread)
        return find_one(target, a_type, b_type, acc_type, n, out);
    bool several = find_one(target, a_type, b_type, acc_type, WGMMA_COLUMNS, out) &&
                   find_one(target, a_type, b_type, acc_type, n - WGMMA_COLUMNS, &rest);
    if (!several) return find_one(target, a_type, b_type, acc_type, n, out);
    out->n = n;
    snprintf(out->acc_layout, sizeof out->acc_layout, ACC, n / STEP);
    return true;
}

// ---- operands in shared memory ----
const WgmmaForm *wgmma_form(const char *name) {
    static const WgmmaForm forms[] = {{"k128", 128, true}, {"k64", 64, true},     {"k32", 32, true},
                                      {"k0", 0, true},     {"mn128", 128, false}, {"mn64", 64, false},
                                      {"mn32", 32, false}, {"mn0", 0, false}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}
