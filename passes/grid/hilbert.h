// Tiles of a grid along a Hilbert curve: consecutive tiles are close to each other, at every scale.
#pragma once
#include "ir/ir.h"

// The position of tile `number` (0 .. rows * columns - 1), a bijection for any extents. Intermediate values become lets
// of `type`, an integer type that holds rows * columns, in `out`.
void hilbert_tile(Arena *arena, Type type, Expr *number, Expr *rows, Expr *columns, Expr **row, Expr **column, Span loc,
                  Block *out);
