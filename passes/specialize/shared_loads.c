// Multicast: tile-scheduler marks the copies of tiles that several CTAs of a cluster read (`@multicast`). The first of
// these CTAs loads the tile for all of them. Its slot must be empty in all of them, so consumers arrive at the loading
// CTA's mbarrier, too:
//
//     load                                                 compute
//     wait(empty[s])      of all that share                wait(full[s])
//     expect(full[s], bytes)   who loads them              MMAs
//     if (first) copy(B.., Bs[s], bar = full[s]) to all    arrive(empty[s])
//                                                          if (!first) arrive(empty[s]) of the first
//
// All CTAs have the same number of tiles and steps. They begin with a barrier of the cluster, since others arrive at their
// mbarriers from the first step on. The load role stays until all slots are empty, since others arrive until the last one.
#include "passes/specialize/shared_loads.h"

static Expr *rank_of(const RoleBuilder *p) {
    return e_call(p->arena, OP_CLUSTER_RANK, 0, NULL);
}

static Sharing sharing_of(const Stmt *copy) {
    const Attr *attr = attr_get(copy->attrs, ATTR_MULTICAST);
    return attr ? (Sharing){attr->args[0].integer, attr->args[1].integer} : (Sharing){0};
}

// The index of this CTA among them.
static Expr *place_among(RoleBuilder *p, const Sharing *sharing) {
    Expr *number = e_over(p->arena, rank_of(p), sharing->rank_stride);
    return e_rem(p->arena, number, sharing->blocks);
}

static Expr *is_first(RoleBuilder *p, const Sharing *sharing) {
    return e_eq(p->arena, place_among(p, sharing), integer(p, 0));
}

void add_sharing(Arena *arena, SharingVec *sharings, const Stmt *copy) {
    Sharing sharing = sharing_of(copy);
    bool known = sharing.blocks < 2;
    VEC_EACH (const Sharing, other, sharings)
        known |= other->blocks == sharing.blocks && other->rank_stride == sharing.rank_stride;
    if (!known) vec_push(arena, sharings, sharing);
}

Expr *count_readers(RoleBuilder *p, const SharingVec *sharings, int64_t own) {
    Expr *readers = integer(p, own);
    VEC_EACH (const Sharing, sharing, sharings) {
        Expr *others = integer(p, (sharing->blocks - 1) * own);
        readers = e_add(p->arena, readers, e_select(p->arena, is_first(p, sharing), others, integer(p, 0)));
    }
    return readers;
}

static int64_t blocks_from(const Sharing *sharing) {
    int64_t mask = 0;
    for (int64_t i = 0; i < sharing->blocks; i++) mask |= INT64_C(1) << i * sharing->rank_stride;
    return mask;
}

void push_shared_copy(RoleBuilder *p, Stmt *started, Block *out) {
    Arena *a = p->arena;
    Sharing sharing = sharing_of(started);
    if (sharing.blocks > 1) {
        int64_t last = (sharing.blocks - 1) * sharing.rank_stride;
        EXPECT(p->context->failure, sharing.rank_stride > 0 && last < p->cluster,
               "%lld CTAs share a tile in a cluster of %d", (long long)sharing.blocks, p->cluster);
        Expr *mask = e_binary(a, BIN_SHL, integer(p, blocks_from(&sharing)), rank_of(p));
        call_set_arg(a, started, OPERAND_INDEX(COPY, ctas), arg_value(mask));
        attr_remove(&started->attrs, ATTR_MULTICAST);
        out = block_if(a, out, is_first(p, &sharing));
    }
    block_push(a, out, started);
}

void tell_loaders(RoleBuilder *p, const SharingVec *sharings, Buf *empty, Expr *slot, int64_t arrivals, Block *out) {
    Arena *a = p->arena;
    VEC_EACH (const Sharing, sharing, sharings) {
        Expr *place = place_among(p, sharing);
        Expr *first = e_sub(a, rank_of(p), e_mul(a, place, integer(p, sharing->rank_stride)));
        Arg args[] = {element(p, empty, slot), arg_value(first), arg_int(a, arrivals)};
        Block *other = block_if(a, out, e_binary(a, BIN_NE, place, integer(p, 0)));
        block_call(a, other, p->loc, OP_PEER_ARRIVE, arrivals > 1 ? 3 : 2, args);
    }
}

void push_last_waits(RoleBuilder *p, Buf *empty, const Counter *counter, Block *out) {
    Expr *s;
    Stmt *each = push_loop(p, "s", integer(p, counter->slots), &s, out);
    push_slot_wait(p, empty, counter, &each->loop.body);
    push_advance(p, counter, &each->loop.body);
}

bool loads_multicast(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (attr_get(stmt->attrs, ATTR_MULTICAST)) return true;
    return false;
}
