// Additions to consecutive elements of global memory by one instruction: red, which returns no old values. Each element
// is added to atomically, by itself. (PTX ISA, "red": .vec_32_bit of f32 and of packed types, and packed types alone.)
#include "target/target.h"
#include <string.h>

static const RedInfo rows[] = {
    {"f32", 4, "v4.f32", FEATURE_VECTOR_RED},
    {"f32", 2, "v2.f32", FEATURE_VECTOR_RED},
    {"f16", 8, "noftz.v4.f16x2", FEATURE_VECTOR_RED},
    {"f16", 4, "noftz.v2.f16x2", FEATURE_VECTOR_RED},
    {"f16", 2, "noftz.f16x2", FEATURE_BASE},
    {"bf16", 8, "noftz.v4.bf16x2", FEATURE_VECTOR_RED},
    {"bf16", 4, "noftz.v2.bf16x2", FEATURE_VECTOR_RED},
    {"bf16", 2, "noftz.bf16x2", FEATURE_VECTOR_RED},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const RedInfo *red_of(const char *type, int64_t elements) {
    for (int i = 0; i < ROWS; i++)
        if (rows[i].elements == elements && strcmp(rows[i].type, type) == 0) return &rows[i];
    return NULL;
}

int64_t red_elements(const Target *target, const char *type) {
    int64_t most = 1;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].elements > most && strcmp(rows[i].type, type) == 0 && target_has(target, rows[i].feature))
            most = rows[i].elements;
    return most;
}
