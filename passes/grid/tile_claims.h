// Dynamic claims of several groups of threads.
//
// In: the number of the next tile, in the group that claims (`next_claim`, ir/schedule.h). Out: the same number in all groups.
#pragma once
#include "ir/ir.h"

typedef struct
    Claims {   // the channel by which the group that claims a tile tells the others; no channel: there are none
    Buf *channel, *numbers;
} Claims;

Claims declare_claims(Arena *arena, Span loc, Block *out);
// The next number: `next`, of which the others are told, or NULL: from the channel.
void push_claim(Arena *arena, const Claims *claims, Expr *next, Var *number, Span loc, Block *out);
