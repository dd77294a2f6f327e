// Points of a grid along a Hilbert curve: points that follow each other lie close together, at every scale.
#pragma once
#include "ir/ir.h"

// Where point `number` (0 .. rows * columns - 1) lies; every place is taken once, whatever the extents. What is
// computed on the way becomes lets of `type`, an integer type that holds rows * columns, in `out`.
void hilbert_tile(Arena *arena, Type type, Expr *number, Expr *rows, Expr *columns, Expr **row, Expr **column, Span loc,
                  Block *out);
