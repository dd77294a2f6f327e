// Linear layouts (layout/linear.h) as text, with the names of their dims, and as code.
#pragma once
#include "layout/calculator/linear_algebra.h"
#include "layout/calculator/tuple.h"

Linear linear_parse(LayoutContext *cx, const char *text);
Linear linear_scan(Scan *scan);
void linear_print(StrBuf *out, Linear a);
char *linear_text(Arena *arena, Linear a);

// ---- apply as code ----
// out = XOR over terms of ((in & mask) << shift), or >> -shift. One term per (input, distance) between a bit and its
// image; `masked` is false where the mask keeps every bit that the input can have.
typedef struct LinearTerm {
    int in, shift;
    uint64_t mask;
    bool masked;
} LinearTerm;
int linear_terms(LayoutContext *cx, Linear a, int out, LinearTerm **terms);
char *linear_code(LayoutContext *cx, Linear a, int out);   // as an expression, `0` when there are no terms
