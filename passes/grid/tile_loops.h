// Loops over the tiles of a CTA that the source writes (`@tiles`).
//
// In: a grid with such loops and an order (tile_scheduler.h). Out: persistent loops, with their claims.
#pragma once
#include "passes/grid/tile_claims.h"
#include "passes/grid/tile_scheduler.h"

bool uses_tile_outside(Stmt *grid);         // a name of the grid, outside of all tile loops
bool claims_are_for_one_loop(Stmt *grid);   // no role, and no CTA without roles, goes over its tiles again
void drop_tile_loops(Stmt *grid);           // each CTA has one tile
// `cta`: what will be the grid's only iterator. Returns the number of CTAs.
Expr *expand_tile_loops(Scheduler *s, Func *kernel, Expr *tiles, Var *cta);
