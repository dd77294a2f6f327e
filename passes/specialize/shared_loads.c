// Multicast: tile-scheduler marks the copies of tiles that several CTAs of a cluster read (`@multicast`, or, where the launch
// chooses the cluster, `@multicast_along`: those along a name, of which there may be one, and then the copy is a plain one). One of
// these CTAs loads the tile for all of them: they take turns, slot by slot, since a multiprocessor asks for few lines of the L2 cache at
// a time. The slot must be empty in all of them, so consumers arrive at the loading CTA's mbarrier, too:
//
//     load                                                        compute
//     wait(empty[s])      of all that share, if it loads          wait(full[s])
//     expect(full[s], bytes)   who loads them                     MMAs
//     if (s % n == place) copy(B.., Bs[s], bar = full[s]) to all  arrive(empty[s])
//                                                                 if (s % n != place) arrive(empty[s]) of that CTA
//
// All CTAs have the same number of tiles and steps. They begin with a barrier of the cluster, since others arrive at their
// mbarriers from the first step on. The load role stays until all slots are empty, since others arrive until the last one.
#include "passes/specialize/shared_loads.h"

static Expr *rank_of(const RoleBuilder *p) {
    return e_call(p->arena, OP_CLUSTER_RANK, 0, NULL);
}

// Of a cluster whose shape the launch chooses the kernel asks for the extents.
static Sharing sharing_of(Arena *arena, const Stmt *copy) {
    const Attr *attr = attr_get(copy->attrs, ATTR_MULTICAST), *along = attr_get(copy->attrs, ATTR_MULTICAST_ALONG);
    if (attr && attr->args[0].integer > 1)
        return (Sharing){e_int(arena, attr->args[0].integer), e_int(arena, attr->args[1].integer), 0};
    if (!along) return (Sharing){0};
    int name = along->args[0].integer == 2;
    return (Sharing){e_cluster_extent(arena, name), name ? e_cluster_extent(arena, 0) : e_int(arena, 1), name + 1};
}

// The index of this CTA among them, in 32 bits: each step compares it.
static Expr *place_among(RoleBuilder *p, const Sharing *sharing) {
    if (sharing->along) {
        Expr *place = p->places[sharing->along - 1];
        EXPECT(p->context->failure, place, "a tile is shared in a grid without `@cluster`");
        return place;
    }
    Expr *place = e_mod(p->arena, e_div(p->arena, rank_of(p), sharing->rank_stride), sharing->blocks);
    return e_cast(p->arena, TYPE_I32, place);
}

// The rank of the first of them.
static Expr *first_among(RoleBuilder *p, const Sharing *sharing) {
    Expr *place = e_cast(p->arena, TYPE_I64, place_among(p, sharing));
    return e_sub(p->arena, rank_of(p), e_mul(p->arena, place, sharing->rank_stride));
}

// The index of the CTA that loads the slot. (Extents that a launch chooses are powers of two.)
static Expr *loader_of(RoleBuilder *p, const Sharing *sharing, Expr *slot) {
    slot = e_cast(p->arena, TYPE_I32, slot);
    if (sharing->along) return e_binary(p->arena, BIN_AND, slot, p->last_places[sharing->along - 1]);
    return e_mod(p->arena, slot, e_cast(p->arena, TYPE_I32, sharing->blocks));
}

static Expr *is_loader(RoleBuilder *p, const Sharing *sharing, Expr *slot) {
    return e_eq(p->arena, place_among(p, sharing), loader_of(p, sharing, slot));
}

void add_sharing(Arena *arena, SharingVec *sharings, const Stmt *copy) {
    Sharing sharing = sharing_of(arena, copy);
    bool known = !sharing.blocks;
    VEC_EACH (const Sharing, other, sharings)
        known |= expr_equal(other->blocks, sharing.blocks) && expr_equal(other->rank_stride, sharing.rank_stride);
    if (!known) vec_push(arena, sharings, sharing);
}

static Expr *count_readers(RoleBuilder *p, const SharingVec *sharings, int64_t own, Expr *slot) {
    Arena *a = p->arena;
    Expr *readers = integer(p, own);
    VEC_EACH (const Sharing, sharing, sharings) {
        Expr *others = e_times(a, e_sub(a, sharing->blocks, integer(p, 1)), own);
        readers = e_add(a, readers, e_select(a, is_loader(p, sharing, slot), others, integer(p, 0)));
    }
    return readers;
}

void push_barrier_init(RoleBuilder *p, int64_t slots, Buf *full, int64_t writers, Buf *empty, int64_t readers,
                       const SharingVec *sharings, Block *out) {
    Expr *s;
    Stmt *each = push_loop(p, "s", integer(p, slots), &s, out);
    each->loop.kind = LOOP_UNROLL;   // (a loop over threads initializes an mbarrier whose address differs by thread)
    push_on(p, OP_MBARRIER_INIT, full, s, integer(p, writers), &each->loop.body);
    if (empty) push_on(p, OP_MBARRIER_INIT, empty, s, count_readers(p, sharings, readers, s), &each->loop.body);
}

// The ranks behind the first CTA's, a bit each.
static Expr *blocks_from(RoleBuilder *p, const Sharing *sharing) {
    int64_t blocks = 1, stride = 1, mask = 0;
    if (sharing->along) return e_cast(p->arena, TYPE_I64, p->masks[sharing->along - 1]);
    expr_const(sharing->blocks, &blocks);
    expr_const(sharing->rank_stride, &stride);
    EXPECT(p->context->failure, stride > 0 && (blocks - 1) * stride < p->cluster,
           "%lld CTAs share a tile in a cluster of %d", (long long)blocks, p->cluster);
    for (int64_t i = 0; i < blocks; i++) mask |= INT64_C(1) << i * stride;
    return integer(p, mask);
}

// So many ones.
static Expr *ones(RoleBuilder *p, Expr *count) {
    Expr *one = small(p, 1);
    return e_sub(p->arena, e_binary(p->arena, BIN_SHL, one, e_cast(p->arena, TYPE_I32, count)), one);
}

// Ones of stride x, a power of two, over all ranks. (Few instructions: the first loads wait for them.)
static Expr *ones_with_stride(RoleBuilder *p, Expr *x) {
    Expr *bits = small(p, 1);
    int64_t mask = 1;
    for (int distance = MOST_CLUSTER / 2; distance >= 1; distance /= 2) {
        mask |= mask << distance;
        bits = e_select(p->arena, e_eq(p->arena, x, integer(p, distance)), small(p, mask), bits);
    }
    return bits;
}

// CTAs along the second name have ranks of stride x.
void bind_cluster(RoleBuilder *p, Block *out) {
    Arena *a = p->arena;
    if (p->cluster <= 1 || !chooses_cluster(p->grid)) return;
    Expr *x = e_cluster_extent(a, 0);
    p->places[0] = bind(p, "place", e_cast(a, TYPE_I32, e_mod(a, rank_of(p), x)), out);
    p->places[1] = bind(p, "place", e_cast(a, TYPE_I32, e_div(a, rank_of(p), x)), out);
    for (int d = 0; d < CLUSTER_NAMES; d++) {
        Expr *last = e_sub(a, e_cluster_extent(a, d), integer(p, 1));
        p->last_places[d] = bind(p, "last_place", e_cast(a, TYPE_I32, last), out);
    }
    p->masks[0] = bind(p, "ctas_along", ones(p, x), out);
    p->masks[1] = bind(p, "ctas_along", e_binary(a, BIN_AND, ones(p, e_cluster_ctas(a)), ones_with_stride(p, x)), out);
}

void push_shared_copy(RoleBuilder *p, Stmt *started, Expr *slot, Block *out) {
    Arena *a = p->arena;
    Sharing sharing = sharing_of(a, started);
    attr_remove(&started->attrs, ATTR_MULTICAST);
    attr_remove(&started->attrs, ATTR_MULTICAST_ALONG);
    if (sharing.blocks) out = block_if(a, out, is_loader(p, &sharing, slot));
    if (sharing.along) {   // (to this CTA alone a multicast takes longer than a load: 64 x 128 had 0.6 of the speed)
        Stmt *alone = s_if(a, e_lt(a, integer(p, 1), sharing.blocks));
        block_push(a, &alone->if_.otherwise, clone_stmt(a, subst_new(a), started));
        block_push(a, out, alone);
        out = &alone->if_.then;
    }
    block_push(a, out, started);
    if (!sharing.blocks) return;
    Expr *mask = e_binary(a, BIN_SHL, blocks_from(p, &sharing), first_among(p, &sharing));
    call_set_arg(a, started, OPERAND_INDEX(COPY, ctas), arg_value(mask));
}

void tell_loaders(RoleBuilder *p, const SharingVec *sharings, Buf *empty, Expr *slot, int64_t arrivals, Block *out) {
    Arena *a = p->arena;
    VEC_EACH (const Sharing, sharing, sharings) {
        Expr *loader = loader_of(p, sharing, slot);
        Expr *place = e_cast(a, TYPE_I64, loader);
        Expr *rank = e_add(a, first_among(p, sharing), e_mul(a, place, sharing->rank_stride));
        Arg args[] = {element(p, empty, slot), arg_value(rank), arg_int(a, arrivals)};
        Block *other = block_if(a, out, e_binary(a, BIN_NE, place_among(p, sharing), loader));
        block_call(a, other, p->loc, OP_PEER_ARRIVE, arrivals > 1 ? 3 : 2, args);
        attr_set_ints(a, &vec_last(other)->attrs, ATTR_PREDICATED, 0, NULL);
    }
}

// Whether CTAs share loads in this launch, where it chooses the cluster; NULL: they do, or never.
static Expr *shares_in_launch(RoleBuilder *p, const SharingVec *sharings) {
    Expr *some = NULL;
    VEC_EACH (const Sharing, sharing, sharings) {
        Expr *several = e_lt(p->arena, integer(p, 1), sharing->blocks);
        if (!sharing->along) return NULL;
        some = some ? e_binary(p->arena, BIN_LOGICAL_OR, some, several) : several;
    }
    return some;
}

void publish_barriers(RoleBuilder *p, const SharingVec *sharings, Block *out) {
    Expr *shared = p->cluster > 1 ? shares_in_launch(p, sharings) : NULL;
    if (shared) {
        Stmt *either = s_if(p->arena, shared);
        block_publish_mbarriers(p->arena, &either->if_.otherwise, false, p->loc);
        block_push(p->arena, out, either);
        out = &either->if_.then;
    }
    block_publish_mbarriers(p->arena, out, p->cluster > 1, p->loc);
}

void push_last_waits(RoleBuilder *p, const SharingVec *sharings, Buf *empty, const Counter *counter, Block *out) {
    Expr *s, *shared = shares_in_launch(p, sharings);
    if (shared) out = block_if(p->arena, out, shared);
    Stmt *each = push_loop(p, "s", integer(p, counter->slots), &s, out);
    push_slot_wait(p, empty, counter, &each->loop.body);
    push_advance(p, counter, &each->loop.body);
}

bool loads_multicast(const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (attr_get(stmt->attrs, ATTR_MULTICAST) || attr_get(stmt->attrs, ATTR_MULTICAST_ALONG)) return true;
    return false;
}
