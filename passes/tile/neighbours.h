// Regions of one buffer that lie next to each other: what join_products.c and join_copies.c make one of.
#pragma once
#include "ir/ir.h"
#include "ir/rewrite.h"

// Opens the names of the kernel whose values are the same wherever they are computed.
Subst *stable_names(Arena *arena, const Func *kernel);
bool differ_by(Arena *arena, Subst *names, Expr *a, Expr *b,
               int64_t by);   // b - a, for all values of what they are made of

enum { REGIONS_EQUAL = -1, REGIONS_DIFFER = -2 };
// The operand's dim along which the second region begins where the first one ends, all else being equal; both are there as a
// whole along it.
int next_dim(Arena *arena, Subst *names, const Region *first, const Region *second);
// The region with another extent along the operand's dim; REGIONS_EQUAL: the same one.
Region *region_widened(Arena *arena, Subst *names, const Region *region, int operand, int64_t extent);
