// The text of a grid with roles: which of its names a role may use, and the statements behind it.
//
//     fragment v: f32[64];       piece 0     registers of the CTA's threads: gone where the piece ends
//     let n = lens[b];           at grid level: each thread computes it, so all know it
//     copy(x[b, 0], v);          piece 0
//     role load { .. n .. }      piece 1
//     role add { .. v .. }       piece 2: v is lost here
//     y[b] = n;                  piece 3
//
// lower-tile-op makes a thread region of each piece. A let that needs no registers and that another piece uses stands
// between the regions; before them where it reads nothing that is written, else it ends a piece.
#pragma once
#include "ir/ir.h"

typedef struct RoleText RoleText;

RoleText *role_text_new(Arena *arena, const Block *body);
bool role_text_is_outside(const RoleText *text, const Stmt *stmt);   // it stands at grid level
bool role_text_is_early(const RoleText *text, const Stmt *stmt);     // ... before the piece

// A name that is used in another piece than the one that declares it, and would be lost. NULL: none.
const char *role_text_lost(const RoleText *text, Span *use);
