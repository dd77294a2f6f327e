// Dynamic claims of several groups of threads.
//
// In: in the group that claims (`next_claim`, ir/schedule.h), variables with the number of the next tile and, if the others are to be
// told, with more of it. Out: the same values in the variables of all groups.
#pragma once
#include "ir/ir.h"

typedef struct
    Claims {   // the channel by which the group that claims a tile tells the others; no channel: there are none
    Buf *channel, *values;
    int count;   // of the values of a tile, which fit 32 bits
} Claims;

Claims declare_claims(Arena *arena, int count, Span loc, Block *out);
// The values of a tile in `vars`, one variable each: the group that claims tells them, the others take them.
void push_claim(Arena *arena, const Claims *claims, bool tells, Var *const *vars, Span loc, Block *out);
