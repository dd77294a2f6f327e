// Tiles of persistent CTAs in snake order, where tiles come the longest first: a CTA takes one of each wave of CTAs, in every second
// wave from the other end, so that a long tile is followed by a short one. Sections of tiles follow each other; each begins with a new
// wave, whose last one has no tile for some CTAs, and `shift` CTAs further on, so that these are others each time:
//
//     for (section in sections) {
//         let ahead = cta + section * shift; let own = ahead < ctas ? ahead : ahead - ctas;
//         for (wave in waves) {
//             let place = wave * ctas + (wave % 2 == 1 ? ctas - 1 - own : own); let number = section * group + place;
//             if (place < group && number < tiles) { .. }
//         }
//     }
#pragma once
#include "ir/ir.h"
#include "support/map.h"

typedef struct Snake {
    Expr *cta, *ctas, *tiles;
    Expr *group, *shift;   // tiles of a section; by how many CTAs the next one begins further on
} Snake;

// Removes the division `let section = block / group` from `body`: the section is the loop's. `inside`: what is bound for one tile. False:
// there is none.
bool take_section(Block *body, const Var *block, const Map *inside, Expr **group, Var **section);
// The CTA's place in even waves of a section. `most`: more than any number of CTAs.
Expr *snake_own(Arena *arena, const Snake *snake, Expr *section, Expr *most, Span loc, Block *out);
// The number of its tile in a wave, and whether there is one.
Expr *snake_number(Arena *arena, const Snake *snake, Expr *section, Expr *wave, Expr *own, Span loc, Block *out,
                   Expr **exists);
