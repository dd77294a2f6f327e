// One group of threads claims tiles from the counter, and tells the others by a channel.
#include "passes/grid/tile_claims.h"
#include "ir/build.h"

enum { CLAIM_SLOTS = 2 };   // the group that claims is up to so many tiles ahead

Claims declare_claims(Arena *arena, int count, Span loc, Block *out) {
    const int64_t extents[] = {CLAIM_SLOTS, count};
    Claims claims = {.channel = buf_new_const(arena, "claimed", SCOPE_SHARED, TYPE_CHANNEL, 1, extents, loc),
                     .values = buf_new_const(arena, "claimed", SCOPE_SHARED, TYPE_I32, count > 1 ? 2 : 1, extents, loc),
                     .count = count};
    claims.channel->mode = claims.values->mode = MODE_INOUT;
    claims.values->channel = claims.channel;
    claims.values->stage_dims = 1;
    block_push(arena, out, s_decl(arena, claims.channel));
    block_push(arena, out, s_decl(arena, claims.values));
    return claims;
}

static Expr *push_slot(Arena *a, const Claims *claims, OpId op, Span loc, Block *out) {
    Arg channel = arg_region(region_whole(a, claims->channel));
    Var *slot = var_new(a, "slot", VAR_LET, TYPE_SLOT, loc);
    block_push(a, out, s_let(a, slot, e_call(a, op, 1, &channel)));
    return e_var(a, slot);
}

void push_claim(Arena *a, const Claims *claims, bool tells, Var *const *vars, Span loc, Block *out) {
    if (!claims->channel) return;
    Expr *slot = push_slot(a, claims, tells ? OP_ACQUIRE : OP_RECEIVE, loc, out);
    for (int i = 0; i < claims->count; i++) {
        Expr *at[] = {slot, e_int(a, i)};
        int rank = claims->values->rank;
        if (tells) block_push(a, out, s_store(a, claims->values, rank, at, e_cast(a, TYPE_I32, e_var(a, vars[i]))));
        else block_push(a, out, s_assign(a, vars[i], e_cast(a, TYPE_I64, e_load(a, claims->values, rank, at))));
    }
    BLOCK_CALL(a, out, loc, tells ? OP_COMMIT : OP_RELEASE, arg_value(slot));
}
