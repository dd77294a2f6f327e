// One group of threads claims tiles from the counter, and tells the others by a channel.
#include "passes/grid/tile_claims.h"
#include "ir/build.h"

enum { CLAIM_SLOTS = 2 };   // the group that claims is up to so many tiles ahead

Claims declare_claims(Arena *arena, Span loc, Block *out) {
    const int64_t slots = CLAIM_SLOTS;
    Claims claims = {.channel = buf_new_const(arena, "claimed", SCOPE_SHARED, TYPE_CHANNEL, 1, &slots, loc),
                     .numbers = buf_new_const(arena, "claimed", SCOPE_SHARED, TYPE_I32, 1, &slots, loc)};
    claims.channel->mode = claims.numbers->mode = MODE_INOUT;
    claims.numbers->channel = claims.channel;
    claims.numbers->stage_dims = 1;
    block_push(arena, out, s_decl(arena, claims.channel));
    block_push(arena, out, s_decl(arena, claims.numbers));
    return claims;
}

static Expr *push_slot(Arena *a, const Claims *claims, OpId op, Span loc, Block *out) {
    Arg channel = arg_region(region_whole(a, claims->channel));
    Var *slot = var_new(a, "slot", VAR_LET, TYPE_SLOT, loc);
    block_push(a, out, s_let(a, slot, e_call(a, op, 1, &channel)));
    return e_var(a, slot);
}

void push_claim(Arena *a, const Claims *claims, Expr *next, Var *number, Span loc, Block *out) {
    if (next) block_push(a, out, s_assign(a, number, block_let(a, out, "next", next, loc)));
    if (!claims->channel) return;
    Expr *slot = push_slot(a, claims, next ? OP_ACQUIRE : OP_RECEIVE, loc, out);
    if (next) block_push(a, out, s_store(a, claims->numbers, 1, &slot, e_cast(a, TYPE_I32, e_var(a, number))));
    else block_push(a, out, s_assign(a, number, e_cast(a, TYPE_I64, e_load(a, claims->numbers, 1, &slot))));
    BLOCK_CALL(a, out, loc, next ? OP_COMMIT : OP_RELEASE, arg_value(slot));
}
