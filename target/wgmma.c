// Tensor-core instructions of one warpgroup, by name. (PTX ISA, "wgmma.mma_async".)
#include "target/target.h"
#include <stdio.h>
#include <string.h>

typedef struct WgmmaTypes {
    const char *acc, *a;
    int bits;              // of an element of a and b in shared memory
    const char *mixes;     // the type that b may have instead of a's
} WgmmaTypes;

static const WgmmaTypes rows[] = {
    {"f32", "f16", 16, NULL},    {"f16", "f16", 16, NULL},    {"f32", "bf16", 16, NULL}, {"f32", "tf32", 32, NULL},
    {"f32", "e4m3", 8, "e5m2"},  {"f16", "e4m3", 8, "e5m2"},  {"f32", "e5m2", 8, "e4m3"}, {"f16", "e5m2", 8, "e4m3"},
    {"i32", "i8", 8, "u8"},      {"i32", "u8", 8, "i8"},
};

static const WgmmaTypes *types_of(const WgmmaInfo *info) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const WgmmaTypes *row = &rows[i];
        if (strcmp(row->acc, info->acc_type) || strcmp(row->a, info->a_type)) continue;
        if (!strcmp(info->b_type, info->a_type) || (row->mixes && !strcmp(info->b_type, row->mixes))) return row;
    }
    return NULL;
}

bool wgmma_named(const char *name, WgmmaInfo *out) {
    enum { M = 64, MOST_N = 256, K_BITS = 256, STEP = 8, INTEGER_STEP = 16, INTEGER_FINE = 32 };
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
    bool integer = out->acc_type[0] == 'i' && out->n > INTEGER_FINE;
    out->can_transpose = types->bits == 16;
    return out->m == M && out->n >= STEP && out->n <= MOST_N && out->n % (integer ? INTEGER_STEP : STEP) == 0 &&
           out->k * types->bits == K_BITS;
}
