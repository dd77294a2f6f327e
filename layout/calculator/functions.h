// The functions of the calculator (functions.def), and the values that they take and give. Files: functions_cute.c
// (shape:stride), functions_linear.c (over F2, encodings, conversions), functions_tiles.c (memory, views, TMA, copies), functions_layout.c (the
// compiler's layouts).
//
// A function that refuses says so in the context; its value means nothing then.
#pragma once
#include "layout/calculator/calc.h"
#include "layout/calculator/encoding.h"
#include "support/map.h"

enum { MOST_ARGS = 10 };

struct Calc {
    LayoutContext *cx;
    StrMap *names;
    int depth;
    bool explain;
};

typedef CalcValue CalcFunction(Calc *c, const CalcValue *v, int count);
#define FUNCTION(name, least, most, arguments) CalcFunction f_##name;
#include "layout/calculator/functions.def"
#undef FUNCTION

// ---- values ----
CalcValue of_tuple(Tuple t);
CalcValue of_int(int64_t n);
CalcValue of_swizzled(Swizzled a);
CalcValue of_cute(Cute a);
CalcValue of_tiler(Tiler t);
CalcValue of_linear(Linear a);
CalcValue of_text(const char *text);

// Refuse a value of another kind. A tuple stands for a column-major layout and for a tiler.
Swizzled as_swizzled(Calc *c, CalcValue v);
Cute as_cute(Calc *c, CalcValue v);   // without a swizzle
Tuple as_tuple(Calc *c, CalcValue v);
int64_t as_int(Calc *c, CalcValue v);
int as_small(Calc *c, CalcValue v);                    // at most 1024
int as_per_dim(Calc *c, CalcValue v, PerDim values);   // a flat tuple; returns the number of its integers
Tiler as_tiler(Calc *c, CalcValue v);
Linear as_linear(Calc *c, CalcValue v);
const char *as_text(Calc *c, CalcValue v);
