// The layout calculator: a small expression language over the whole algebra, and the command `tilec layout`.
//
// In: expressions, or lines of questions. Out: text, SVG, HTML, JSON. Files: command.c (options), calc.c (expressions),
// functions.def and functions_*.c, draw*.c (pictures), batch.c and batch_json.c (questions by the line).
//
//     composition((16,8):(1,16), <8:1;4:2>)                       (8,4):(1,32)
//     C = ((4,8),(2,2)):((32,1),(16,8)); linear(C, (16,8))        {lane: ...} -> (dim0: 16, dim1: 8)
//     Sw<3,3,3> o (8,64):(64,1)
//
// Values: integers and nested tuples (`_` too), layouts with or without a swizzle, tilers `<a;b>`, swizzles, linear
// layouts `{in: [images]} -> (out: size)`. `name = expression;` names a value. A tuple stands for a column-major
// layout or a tiler where one is wanted; a tuple of layouts is the layout of those modes. `calc_help` lists the
// functions.
#pragma once
#include "layout/calculator/convert.h"
#include "layout/calculator/linear_algebra.h"
#include <stdio.h>

typedef enum { CALC_TUPLE, CALC_LAYOUT, CALC_TILER, CALC_SWIZZLE, CALC_LINEAR, CALC_TEXT } CalcKind;

typedef struct CalcValue {
    CalcKind kind;
    Tuple tuple;
    Swizzled layout;
    Tiler tiler;
    Swizzle swizzle;
    Linear linear;
    const char *text;
    const ConvertSides *conversion;   // of a text that `convert` gives, else NULL
} CalcValue;

typedef struct Calc Calc;   // the names defined so far

Calc *calc_new(LayoutContext *cx);
void calc_explain(Calc *calc, bool explain);   // what `convert` says
// Runs statements separated by `;`. The value is that of the last one.
CalcValue calc_run(Calc *calc, const char *text);
// As text. `static_mark`: integers of layouts and tuples as CuTe prints static ones, `_8`.
char *calc_text(Calc *calc, CalcValue value, bool static_mark);
// Replaces `{{statements}}` in a text by their value, in CuTe's print style; `{{table: ...}}` by its table,
// `{{cover: rows, columns, (M,N)}}` by a coverage map, `{{let ...}}` by nothing (with the rest of its line).
char *calc_expand(Calc *calc, const char *text);
char *calc_help(Arena *arena);   // one line per function

// `tilec layout ...`; argv[0] is "layout". Returns the exit code: 0, 1 (the expression is wrong), 2 (usage), 3 (cannot
// read or write), 70 (internal).
int layout_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);
