// lower-channels: channels become mbarriers, slot counters and waits.
//
//     role load  { for (k in n) {                        role load  { var ring_slot: i32 = 0; var ring_parity: i32 = 1;
//         let f = acquire(ring);                             for (k in n) { mbarrier_wait(ring_empty[slot], parity);
//         copy(A.., As[f, :, :]);       (tma)                    mbarrier_expect(ring_full[slot], 16384);
//         commit(f);                                             async copy(A.., As[slot, :, :], bar = ring_full[slot]);
//     } }                                                        slot + 1, and the other parity behind the last one } }
//     role compute { for (k in n) {             =>       role compute { .. ring_parity: i32 = 0;
//         let u = receive(ring);                             for (k in n) { mbarrier_wait(ring_full[slot], parity);
//         gemm(As[u, :, :], .., acc);   (wgmma)                  gemm(As[slot, :, :], .., acc);
//         release(u);                                            mbarrier_arrive(ring_empty[slot]);
//     } }                                                        .. } }
//
// Between roles, what tells that a slot is full follows from what fills it, and how often:
//
//     TMA, bulk copies     mbarrier_expect of their bytes                   once a group; each of several warps tells that it
//                                                                           has waited for the slot: else it may be free again
//                                                                           by then, and the parity that of another phase
//     all else             fence_async where an asynchronous unit reads;    once a warp
//                          warp_sync, mbarrier_arrive
//
// and that it is empty from what reads it: behind wgmma one thread of each warpgroup arrives, also where the group has
// met at a barrier since its threads read the slot; behind all else one of each warp. (A warp that arrives behind its
// reads cannot be overtaken by the next copy into the slot.) What TMA stores or adds from the slot it has read by then:
// the thread that started it waits, and for the writes, too, where a loop may store to the same place again. A
// release whose slot products (async) still read arrives behind the await of their accumulator, where one follows
// before the group waits for anything else; else the products are awaited there.
//
// The first slots are free. A channel that is filled no more often than it has slots has no `empty`: no group would wait for it.
// What a group writes to a slot that it has received is behind a fence where an asynchronous unit fills it again or reads it.
// Slots that a group gives back one after the other are behind one wait and one warp_sync.
//
// A role that does nothing but start copies by TMA, into slots and from them, is one thread, whatever its size.
//
// Where one group fills and reads (`own`), the text orders what it does: slots are indices, copies become `async`, and
// receive awaits them, but for those into tiles on which the group works before it commits. insert-mbarriers and
// insert-sync do the rest, as for a pipelined loop; a role's stores from its own slots are awaited at its end. Slots that
// CTAs of a cluster fill together (peer_store) expect the bytes of a whole slot; they are never acquired before they are
// free, since each CTA has heard of all others in between.
//
// A section (enter, leave) has a barrier for each group, at which leaving the section before arrives: a named one, which
// two groups of equally many threads use, where they suffice, else an mbarrier.
//
// Counters: a slot and a parity for each group and end of a channel; or the number, where the text says it (numbers.c), of
// its own slots and where slot and parity are bits of it. Behind this pass nothing is left of channels.
#include "ir/channels.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/util.h"
#include "passes/channel/numbers.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "passes/select/tma_simple.h"
#include "passes/specialize/async_mma.h"

typedef struct Ends {                     // what a group does to the slots of a channel
    const Stmt *role;                     // NULL: the CTA
    int64_t members;                      // groups with its text
    int64_t threads;                      // of each
    bool one;                             // it is one thread of these
    bool by_bytes, by_threads;            // it fills them by copies that complete on mbarriers; in other ways
    bool by_wgmma, others_read, stores;   // stores: by TMA, from its slots
    bool stores_again;                    // perhaps to the same place, so the writes of one are over before the next
    Map *stored;                          // tiles that its threads write
    Var *slot[2], *parity[2];             // of filled, of received slots; NULL: not counted
    Map *numbers[2];
} Ends;

typedef struct Ring {
    Channel *channel;
    int64_t slots, number;
    bool own, fresh;   // fresh: no slot is filled again
    Buf *full, *empty, *next;
    int64_t named;    // the first of its named barriers; 0: mbarriers
    VEC(Ends) ends;   // in the order of the channel's groups
} Ring;

typedef struct Lowering {
    PassContext *context;
    Arena *arena;
    Func *kernel;
    Channels channels;
    VEC(Ring *) rings;
    Map *by_channel;   // Channel -> Ring
    const Stmt *role;
    Subst *handles;    // by their slots
    Map *bytes;        // handle -> Var: of copies that may not happen, which are counted
    Map *read_async;   // tiles that an asynchronous unit reads
    Map *in_order;     // tiles of own slots that are used before the commit
    Map *leaders;      // receives for which the first group of an array waits alone
    Map *consumes;     // arrivals at `empty` -> Consume
    Map *alone;        // begins of a slot where the group has no other of the channel
    bool in_parallel;
    int64_t named;   // the next free named barrier
} Lowering;

enum { FILLED, RECEIVED, FIRST_NAMED_BARRIER = 1 };

// ---- what fills and reads the slots ----

static Ring *ring_of(Lowering *l, const Buf *buf) {
    Channel *channel = map_get(l->channels.by_buf, buf->channel ? buf->channel : buf);
    return channel ? map_get(l->by_channel, channel) : NULL;
}

static Ring *ring_of_handle(Lowering *l, const Expr *handle) {
    Channel *channel = channel_of_handle(&l->channels, handle);
    EXPECT(l->context->failure, channel, "a handle of no channel");
    return map_get(l->by_channel, channel);
}

static Ends *ends_of(const Ring *ring, const Stmt *role) {
    VEC_EACH (Ends, ends, &ring->ends)
        if (ends->role == role) return ends;
    return NULL;
}

// Of the group that is being lowered.
static const Ends *own_ends(const Lowering *l, const Ring *ring) {
    const Ends *ends = ends_of(ring, l->role);
    EXPECT(l->context->failure, ends, "a group without an end of channel '%s' uses it", ring->channel->buf->name);
    return ends;
}

static bool completes_on_mbarrier(const Stmt *stmt) {
    return is_global_to_shared_copy(stmt) && (via_is(stmt, VIA_TMA) || via_is(stmt, VIA_BULK));
}

static bool is_async_read(const Stmt *stmt) {
    return via_is(stmt, VIA_WGMMA) ||
           (is_shared_to_global_copy(stmt) && (via_is(stmt, VIA_TMA) || via_is(stmt, VIA_BULK)));
}

static void note_use(Lowering *l, const Stmt *stmt, const Effect *effect, const Stmt *role) {
    Ring *ring = effect->buf->channel ? ring_of(l, effect->buf) : NULL;
    Ends *ends = ring ? ends_of(ring, role) : NULL;
    if (!ends) return;
    bool reads = effect->access == ACCESS_READ;
    if (reads && is_async_read(stmt)) map_put(l->read_async, effect->buf, effect->buf);
    if (reads && via_is(stmt, VIA_WGMMA)) ends->by_wgmma = true;
    else if (reads && is_async_read(stmt)) {
        ends->others_read = ends->stores = true;
        ends->stores_again |= is_shared_to_global_copy(stmt) && stores_again(l->kernel, stmt);
    } else if (reads) ends->others_read = true;
    else if (completes_on_mbarrier(stmt)) ends->by_bytes = true;
    else {
        ends->by_threads = true;
        if (!ends->stored) ends->stored = map_new(l->arena);
        map_put(ends->stored, effect->buf, effect->buf);
    }
}

static void note_uses(Lowering *l, const Block *block, const Stmt *role) {
    FOR_EACH_STMT (stmt, block) {
        Stmt alone = stmt_alone(stmt);
        const Stmt *inner = stmt->kind == STMT_ROLE ? stmt : role;
        if (stmt->kind == STMT_ROLE) {
            note_uses(l, &stmt->role.body, inner);
            SKIP_BODY(stmt);
            continue;
        }
        Stmt *added = stmt->kind == STMT_FOR ? tma_copy(l->arena, (Stmt *)stmt) : NULL;
        if (added) {   // a loop that adds a tile to a tensor is one copy
            via_set(l->arena, added, VIA_TMA);
            FOR_EACH_EFFECT (effect, l->arena, added) note_use(l, added, effect, role);
            SKIP_BODY(stmt);
            continue;
        }
        FOR_EACH_EFFECT (effect, l->arena, &alone) note_use(l, stmt, effect, role);
    }
}

// A role that fills its own slots by units that complete on mbarriers hands them to itself, as it would to another role.
static bool fills_by_units(const Lowering *l, const Channel *channel) {
    if (!channel->groups.items[0].role) return false;
    FOR_EACH_STMT (stmt, &func_grid(l->kernel)->grid.body)
        if (completes_on_mbarrier(stmt) && copy_of(stmt).dst->buf->channel == channel->buf) return true;
    return false;
}

// Nothing but copies by TMA into slots and from them: lowering makes one thread of the role (needs_threads in
// lower_roles.c).
static bool only_starts(Arena *arena, const Stmt *role) {
    if (role->role.count) return false;
    FOR_EACH_STMT_MUT (stmt, &role->role.body) {
        const Stmt *copy = tma_copy(arena, stmt);
        if (is_loop(stmt, LOOP_PARALLEL)) SKIP_BODY(stmt);
        else if (!copy && (is_control(stmt) || is_call(stmt, OP_COMMIT) || is_call(stmt, OP_RELEASE))) continue;
        if (!copy || !via_is(stmt, VIA_TMA)) return false;
        if (!copy_of(copy).dst->buf->channel && !copy_of(copy).src->buf->channel) return false;
    }
    return true;
}

static bool fills(const Stmt *stmt, void *channel) {
    return is_acquire(stmt) && stmt->let.value->call.args[0].region->buf == channel;
}

// The most slots that the block fills; -1: they may be more than any number.
static int64_t most_filled(const Block *block, Buf *channel) {
    int64_t most = 0;
    FOR_EACH_ITEM (stmt, block) {
        if (!stmt_any(stmt, fills, channel)) continue;
        int64_t trips = 1, inside = is_acquire(stmt);
        if (stmt->kind == STMT_FOR) trips = stmt->loop.count == 1 ? iter_count(stmt->loop.iters) : -1;
        if (stmt->kind == STMT_WHILE || trips < 0 || trips > INT32_MAX) return -1;
        FOR_EACH_BODY (body, stmt) {
            int64_t some = most_filled(body, channel);
            if (some < 0) return -1;
            inside = some > inside ? some : inside;   // of both branches
        }
        most += trips * inside;
        if (most > INT32_MAX) return -1;
    }
    return most;
}

// Each group fills no more slots than there are, so they are free when it comes to them.
static bool is_filled_one_time(const Ring *ring) {
    if (ring->own || ring->channel->by_peers) return false;
    for (int i = 0; i < ring->channel->groups.count; i++) {
        const ChannelGroup *group = &ring->channel->groups.items[i];
        if (!group->role) return false;
        int64_t most = most_filled(&group->role->role.body, ring->channel->buf);
        if (most < 0 || most > ring->slots) return false;
    }
    return true;
}

static void find_rings(Lowering *l) {
    VEC_EACH_PTR (Channel, channel, &l->channels.all) {
        Ring *ring = NEW(l->arena, Ring);
        bool own = channel_is_own(channel) && !fills_by_units(l, channel);
        *ring =
            (Ring){.channel = channel, .slots = buf_extent(channel->buf, 0), .number = l->rings.count + 1, .own = own};
        for (int i = 0; i < channel->groups.count; i++) {
            const Stmt *role = channel->groups.items[i].role;
            Ends ends = {.role = role, .members = channel->groups.items[i].members};
            ends.one = role && only_starts(l->arena, role);
            ends.threads = ends.one ? l->context->target->warp_lanes
                           : role   ? role->role.threads
                                    : kernel_threads(l->kernel);
            vec_push(l->arena, &ring->ends, ends);
        }
        VEC_EACH_PTR (Buf, tile, &channel->tiles)
            if (ring->own && is_used_before_commit(l->arena, l->kernel, tile)) map_put(l->in_order, tile, tile);
        ring->fresh = is_filled_one_time(ring);
        vec_push(l->arena, &l->rings, ring);
        map_put(l->by_channel, channel, ring);
    }
    note_uses(l, &func_grid(l->kernel)->grid.body, NULL);
}

// ---- arrivals ----

// The group has met since a thread last read the slot: it has received a slot of its own that its threads have filled, and
// of which products read what other threads wrote.
static bool has_met(Lowering *l, const Ring *ring, const Stmt *role, const Block *block, int at) {
    const Var *handle = ARG(block->items[at], RELEASE, slot).value->var;
    for (int i = at - 1; i >= 0; i--) {
        const Stmt *stmt = block->items[i];
        if (is_receive(stmt)) {
            const Ring *other = ring_of(l, stmt->let.value->call.args[0].region->buf);
            const Ends *ends = other->own ? ends_of(other, role) : NULL;
            if (stmt->let.var == handle) return true;
            if (ends && ends->by_threads && ends->by_wgmma) return true;
        }
        if (via_is(stmt, VIA_WGMMA)) continue;
        VEC_EACH_PTR (Buf, tile, &ring->channel->tiles)
            if (stmt_touches(l->arena, stmt, tile)) return false;
    }
    return false;
}

static bool always_meets(Lowering *l, const Ring *ring, const Stmt *role) {
    FOR_EACH_STMT (stmt, &role->role.body) {
        if (!is_call(stmt, OP_RELEASE)) continue;
        const Expr *handle = ARG(stmt, RELEASE, slot).value;
        if (channel_of_handle(&l->channels, handle) != ring->channel) continue;
        if (!has_met(l, ring, role, BLOCK_OF(stmt), INDEX_OF(stmt))) return false;
    }
    return true;
}

// One thread of each warpgroup arrives for all.
static void find_meetings(Lowering *l) {
    VEC_EACH_PTR (Ring, ring, &l->rings)
        VEC_EACH (Ends, ends, &ring->ends) {
            bool reads = ends->by_wgmma && ends->others_read && !ends->stores;
            if (reads && !ring->own && always_meets(l, ring, ends->role)) ends->others_read = false;
        }
}

static int64_t warps_of(const Lowering *l, const Ends *ends) {
    return ends->threads / l->context->target->warp_lanes;
}

static bool reads_by_wgmma_alone(const Ends *ends) {
    return ends->by_wgmma && !ends->others_read;
}

// Its warps arrive when they commit: they have stored, or they are several, or the group fills nothing.
static bool warps_commit(const Lowering *l, const Ends *ends) {
    return ends->by_threads || !ends->by_bytes || warps_of(l, ends) > 1;
}

// Of a member, as at empty.
static int64_t arrivals_at_full(const Lowering *l, const Ends *ends) {
    return (ends->by_bytes ? 1 : 0) + (warps_commit(l, ends) ? warps_of(l, ends) : 0);
}

static int64_t arrivals_at_empty(const Lowering *l, const Ends *ends) {
    return reads_by_wgmma_alone(ends) ? ends->threads / target_warpgroup(l->context->target) : warps_of(l, ends);
}

static int64_t all_arrivals(const Lowering *l, const Ring *ring, bool full) {
    int64_t arrivals = 0;
    for (int i = 0; i < ring->ends.count; i++) {
        const ChannelGroup *group = &ring->channel->groups.items[i];
        const Ends *ends = &ring->ends.items[i];
        if (full && group->produces) arrivals += ends->members * arrivals_at_full(l, ends);
        if (!full && group->receives) arrivals += ends->members * arrivals_at_empty(l, ends);
    }
    return full ? arrivals : arrivals * channel_readers(ring->channel) / channel_receivers(ring->channel);
}

static void push_arrive(Lowering *l, Buf *bar, Expr *at, int64_t arrivals, Span loc, Block *out) {
    EXPECT(l->context->failure, arrivals > 0, "an mbarrier on which nothing arrives");
    Arg args[] = {arg_element(l->arena, bar, at), arg_int(l->arena, arrivals)};
    block_call(l->arena, out, loc, OP_MBARRIER_ARRIVE, arrivals > 1 ? 2 : 1, args);
    attr_set_ints(l->arena, &vec_last(out)->attrs, ATTR_PREDICATED, 0, NULL);
}

// The block ends with `what`, but for arrivals and names of registers' values. NULL: it does not.
static const Stmt *last_call(const Block *block, OpId what) {
    for (int i = block->count - 1; i >= 0; i--) {
        const Stmt *stmt = block->items[i];
        if (is_call(stmt, what)) return stmt;
        bool name = stmt->kind == STMT_LET && !expr_reads_memory(stmt->let.value);
        if (!name && !is_call(stmt, OP_WARP_SYNC) && !is_call(stmt, OP_MBARRIER_ARRIVE)) return NULL;
    }
    return NULL;
}

// One arrival a warp, behind what all its lanes did.
static void push_warps_arrive(Lowering *l, const Ends *ends, Buf *bar, Expr *at, Span loc, Block *out) {
    if (!ends->one && !last_call(out, OP_WARP_SYNC)) block_call(l->arena, out, loc, OP_WARP_SYNC, 0, NULL);
    push_arrive(l, bar, at, warps_of(l, ends), loc, out);
}

// ---- counters ----

static Var *counter(Lowering *l, const Ring *ring, const char *what, Expr *value, Block *out) {
    const char *name = arena_printf(l->arena, "%s_%s", ring->channel->buf->name, what);
    Var *var = var_new(l->arena, name, VAR_MUTABLE, TYPE_I32, ring->channel->buf->loc);
    block_push(l->arena, out, s_var(l->arena, var, e_cast(l->arena, TYPE_I32, value)));
    return var;
}

static bool receives(const Stmt *stmt, void *channel) {
    return (is_receive(stmt) && stmt->let.value->call.args[0].region->buf == channel) ||
           (is_call(stmt, OP_SKIP) && ARG(stmt, SKIP, channel).region->buf == channel);
}

// Filled slots begin with the other parity: all are free.
static void count_end(Lowering *l, const Ring *ring, Ends *ends, int end, const Block *body, Block *out) {
    Buf *buf = ring->channel->buf;
    bool bits = (ring->slots & (ring->slots - 1)) == 0;
    bool all = channel_readers(ring->channel) == channel_receivers(ring->channel);   // none are skipped
    if (ring->own || (bits && all && !ring->channel->by_peers)) {
        ends->numbers[end] = slot_numbers(l->arena, body, end == FILLED ? fills : receives, buf);
        if (ends->numbers[end]) return;
    }
    const char *name = ring->own && end == FILLED ? "filled" : "slot";   // own slots have two counters in one group
    if (ring->slots > 1) ends->slot[end] = counter(l, ring, name, e_int(l->arena, 0), out);
    bool waits = !ring->own || ring->channel->by_peers;
    if (waits) ends->parity[end] = counter(l, ring, "parity", e_int(l->arena, !ring->own && end == FILLED), out);
}

// ---- sections ----

// Whose barrier it is: the group's number among those that enter, which of a member of an array is known when it runs.
static Expr *rank_of(const Lowering *l, const Ring *ring) {
    Expr *first = e_int(l->arena, channel_rank(ring->channel, l->role));
    return l->role && l->role->role.count ? e_add(l->arena, e_var(l->arena, l->role->role.iters[0].var), first) : first;
}

static Expr *is_last(const Lowering *l, const Ring *ring) {
    return e_eq(l->arena, rank_of(l, ring), e_int(l->arena, ring->slots - 1));
}

static Expr *next_rank(const Lowering *l, const Ring *ring) {
    return e_select(l->arena, is_last(l, ring), e_int(l->arena, 0), e_plus(l->arena, rank_of(l, ring), 1));
}

static void push_named(Lowering *l, const Ring *ring, OpId op, Expr *rank, Span loc, Block *out) {
    BLOCK_CALL(l->arena, out, loc, op, arg_value(e_plus(l->arena, rank, ring->named)),
               arg_int(l->arena, 2 * ring->ends.items[0].threads));
}

// The first group enters as if the last one had left.
static void open_sections(Lowering *l, const Ring *ring, Ends *ends, Block *out) {
    Arena *a = l->arena;
    if (!ring->named) {
        ends->parity[0] = counter(l, ring, "parity", e_eq(a, rank_of(l, ring), e_int(a, 0)), out);
    } else if (channel_rank(ring->channel, l->role) + ends->members == ring->slots) {
        Block *last = ends->members > 1 ? block_if(a, out, is_last(l, ring)) : out;
        push_named(l, ring, OP_BARRIER_ARRIVE, e_int(a, 0), ring->channel->buf->loc, last);
    }
}

static void count_ends(Lowering *l, const Block *body, Block *out) {
    VEC_EACH_PTR (Ring, ring, &l->rings) {
        Ends *ends = ends_of(ring, l->role);
        for (int i = 0; ends && i < ring->ends.count; i++) {
            const ChannelGroup *group = &ring->channel->groups.items[i];
            if (group->role != l->role) continue;
            if (group->produces) count_end(l, ring, ends, FILLED, body, out);
            if (group->receives) count_end(l, ring, ends, RECEIVED, body, out);
            if (group->enters) open_sections(l, ring, ends, out);
        }
    }
}

static Expr *slot_now(Lowering *l, const Ring *ring, const Ends *ends, int end, const Stmt *begin) {
    Arena *a = l->arena;
    if (ends->numbers[end]) return e_rem(a, map_get(ends->numbers[end], begin), ring->slots);
    return ends->slot[end] ? e_cast(a, TYPE_I64, e_var(a, ends->slot[end])) : e_int(a, 0);
}

static Expr *parity_now(Lowering *l, const Ring *ring, const Ends *ends, int end, const Stmt *begin) {
    Arena *a = l->arena;
    EXPECT(l->context->failure, ends->numbers[end] || ends->parity[end], "channel '%s' is waited for and has no parity",
           ring->channel->buf->name);
    if (!ends->numbers[end]) return e_var(a, ends->parity[end]);
    Expr *phase = e_over(a, map_get(ends->numbers[end], begin), ring->slots);
    if (!ring->own && end == FILLED) phase = e_plus(a, phase, 1);
    return e_rem(a, phase, 2);
}

static void assign(Lowering *l, Var *var, Expr *value, Span loc, Block *out) {
    Stmt *stmt = s_assign(l->arena, var, value);
    stmt->loc = loc;
    block_push(l->arena, out, stmt);
}

static void push_advance(Lowering *l, const Ring *ring, const Ends *ends, int end, Span loc, Block *out) {
    Arena *a = l->arena;
    Expr *one = e_int_of(a, TYPE_I32, 1);
    if (ends->slot[end]) {
        Expr *slot = e_var(a, ends->slot[end]);
        assign(l, ends->slot[end], e_add(a, slot, one), loc, out);
        out = block_if(a, out, e_eq(a, slot, e_int_of(a, TYPE_I32, ring->slots)));
        assign(l, ends->slot[end], e_int_of(a, TYPE_I32, 0), loc, out);
    }
    if (ends->parity[end]) assign(l, ends->parity[end], e_xor(a, e_var(a, ends->parity[end]), one), loc, out);
}

static void push_skip(Lowering *l, const Stmt *skip, Block *out) {
    Arena *a = l->arena;
    const Ring *ring = ring_of(l, ARG(skip, SKIP, channel).region->buf);
    const Ends *ends = own_ends(l, ring);
    Expr *n = e_cast(a, TYPE_I32, ARG(skip, SKIP, n).value);
    if (ends->slot[RECEIVED]) n = e_add(a, e_var(a, ends->slot[RECEIVED]), n);
    Expr *sum = block_let(a, out, "sum", n, skip->loc);
    Expr *slots = e_int_of(a, TYPE_I32, ring->slots), *two = e_int_of(a, TYPE_I32, 2);
    if (ends->slot[RECEIVED]) assign(l, ends->slot[RECEIVED], e_mod(a, sum, slots), skip->loc, out);
    Expr *phases = e_mod(a, e_div(a, sum, slots), two);
    if (ends->parity[RECEIVED])
        assign(l, ends->parity[RECEIVED], e_xor(a, e_var(a, ends->parity[RECEIVED]), phases), skip->loc, out);
}

// ---- begins of slots ----

static void push_wait(Lowering *l, Buf *bar, Expr *at, Expr *parity, Span loc, Block *out) {
    BLOCK_CALL(l->arena, out, loc, OP_MBARRIER_WAIT, arg_element(l->arena, bar, at), arg_value(parity));
}

static void mark_alone(Lowering *l, const Ring *ring, const Stmt *begin, const Block *out) {
    if (map_has(l->alone, begin)) attr_set_int(l->arena, &vec_last(out)->attrs, ATTR_ALONE, ring->number);
}

// A variable of the slots' type becomes one of their numbers.
static void push_handle(Lowering *l, const Stmt *begin, Expr *slot, Block *out) {
    if (begin->kind == STMT_ASSIGN) {
        assign(l, subst_expr(l->handles, e_var(l->arena, begin->let.var))->var, slot, begin->loc, out);
        return;
    }
    if (begin->kind == STMT_VAR) {
        Var *number = var_new(l->arena, begin->let.var->name, VAR_MUTABLE, TYPE_I64, begin->loc);
        block_push(l->arena, out, s_var(l->arena, number, slot));
        subst_var(l->handles, begin->let.var, e_var(l->arena, number));
        return;
    }
    Expr *at = block_name(l->arena, out, begin->let.var->name, slot, begin->loc);
    subst_var(l->handles, begin->let.var, at);
}

static bool copies_into(const Stmt *stmt, const Var *handle) {
    return completes_on_mbarrier(stmt) && expr_uses_var(copy_of(stmt).dst->dims[0].start, handle);
}

static bool any_copy_into(const Stmt *stmt, void *handle) {
    return copies_into(stmt, handle);
}

// The bytes of the copies into the slot that stand in the block up to its commit; -1: it is not known which happen.
static int64_t bytes_filled(const Block *block, int at) {
    const Stmt *begin = block->items[at];
    int64_t bytes = 0;
    for (int i = at + 1; i < block->count; i++) {
        const Stmt *stmt = block->items[i];
        if (is_call(stmt, OP_COMMIT) && ARG(stmt, COMMIT, slot).value->var == begin->let.var) return bytes;
        if (copies_into(stmt, begin->let.var)) bytes += buf_slot_bytes(copy_of(stmt).dst->buf);
        else if (below_any(stmt, any_copy_into, begin->let.var)) return -1;
    }
    return -1;
}

static void push_expect(Lowering *l, const Ring *ring, Expr *slot, Expr *bytes, Span loc, Block *out) {
    BLOCK_CALL(l->arena, out, loc, OP_MBARRIER_EXPECT, arg_element(l->arena, ring->full, slot), arg_value(bytes));
}

// The slot has not been filled before: its number is below that of the slots.
static bool is_free(const Ring *ring, const Ends *ends, const Stmt *begin) {
    int64_t number;
    return ends->numbers[FILLED] && expr_const(map_get(ends->numbers[FILLED], begin), &number) && number < ring->slots;
}

static void lower_acquire(Lowering *l, const Block *block, int at, Block *out) {
    Arena *a = l->arena;
    const Stmt *begin = block->items[at];
    Ring *ring = ring_of(l, begin->let.value->call.args[0].region->buf);
    const Ends *ends = own_ends(l, ring);
    Expr *slot = slot_now(l, ring, ends, FILLED, begin);
    if (ring->empty && !is_free(ring, ends, begin)) {
        push_wait(l, ring->empty, slot, parity_now(l, ring, ends, FILLED, begin), begin->loc, out);
        mark_alone(l, ring, begin, out);
    }
    if (ring->channel->by_peers)
        push_expect(l, ring, slot, e_int(a, channel_slot_bytes(ring->channel)), begin->loc, out);
    int64_t bytes = !ring->own && ends->by_bytes ? bytes_filled(block, at) : 0;
    if (bytes > 0) push_expect(l, ring, slot, e_int(a, bytes), begin->loc, out);
    push_handle(l, begin, slot, out);
    push_advance(l, ring, ends, FILLED, begin->loc, out);
    if (ring->own || !ends->by_bytes || bytes > 0) return;
    Var *sum = var_new(a, "bytes", VAR_MUTABLE, TYPE_I64, begin->loc);
    block_push(a, out, s_var(a, sum, e_int(a, 0)));
    map_put(l->bytes, begin->let.var, sum);
}

static bool is_awaited(const Lowering *l, const Buf *tile) {
    if (map_has(l->in_order, tile)) return false;
    FOR_EACH_STMT (stmt, &func_grid(l->kernel)->grid.body) {
        bool starts = completes_on_mbarrier(stmt) || starts_copy(stmt);
        if (starts && copy_slot(stmt) && stmt_writes(l->arena, stmt, tile)) return true;
    }
    return false;
}

static void push_awaits(Lowering *l, const Ring *ring, const Stmt *begin, Expr *slot, Block *out) {
    VEC_EACH_PTR (Buf, tile, &ring->channel->tiles) {
        if (!is_awaited(l, tile)) continue;
        Region *region = region_whole(l->arena, tile);
        region->dims[0] = (RegionDim){.start = slot, .tile = 1};
        region->loc = begin->loc;
        BLOCK_CALL(l->arena, out, begin->loc, OP_AWAIT, arg_region(region), (Arg){0});
    }
}

static void lower_receive(Lowering *l, const Stmt *begin, Block *out) {
    Ring *ring = ring_of(l, begin->let.value->call.args[0].region->buf);
    const Ends *ends = own_ends(l, ring);
    Expr *slot = slot_now(l, ring, ends, RECEIVED, begin);
    bool waits = !ring->own || ring->channel->by_peers;
    if (waits) push_wait(l, ring->full, slot, parity_now(l, ring, ends, RECEIVED, begin), begin->loc, out);
    else push_awaits(l, ring, begin, slot, out);
    bool leader = waits && map_has(l->leaders, begin);
    if (!ring->own && !leader) mark_alone(l, ring, begin, out);
    if (leader) attr_set_ints(l->arena, &vec_last(out)->attrs, ATTR_LEADER, 0, NULL);
    push_handle(l, begin, slot, out);
    push_advance(l, ring, ends, RECEIVED, begin->loc, out);
}

// ---- ends of slots ----

// Threads write what an asynchronous unit reads.
static bool needs_fence(const Lowering *l, const Ring *ring, const Ends *ends) {
    VEC_EACH_PTR (Buf, tile, &ring->channel->tiles)
        if (ends->stored && map_has(ends->stored, tile) && map_has(l->read_async, tile)) return true;
    return false;
}

static void lower_commit(Lowering *l, const Stmt *commit, Block *out) {
    Expr *handle = ARG(commit, COMMIT, slot).value, *slot = subst_expr(l->handles, handle);
    const Ring *ring = ring_of_handle(l, handle);
    const Ends *ends = own_ends(l, ring);
    if (ring->own) return;
    Var *bytes = map_get(l->bytes, handle->var);
    if (bytes) push_expect(l, ring, slot, e_var(l->arena, bytes), commit->loc, out);
    if (!warps_commit(l, ends)) return;
    if (needs_fence(l, ring, ends)) block_call(l->arena, out, commit->loc, OP_FENCE_ASYNC, 0, NULL);
    push_warps_arrive(l, ends, ring->full, slot, commit->loc, out);
}

// One thread arrives for a warpgroup. Its other warps have surely waited for the slot if it has executed a product since;
// else one could find the slot filled again, and wait for a phase that may never come.
static bool have_all_waited(const Block *block, int at) {
    const Var *handle = ARG(block->items[at], RELEASE, slot).value->var;
    for (int i = at - 1; i >= 0; i--) {
        const Stmt *stmt = block->items[i];
        if (via_is(stmt, VIA_WGMMA)) return true;
        if (is_receive(stmt) && stmt->let.var == handle) return false;
    }
    return false;
}

// The thread that started the stores waits; the others have none. (insert-sync waits before own slots are written again,
// lower_group at the end.)
static void wait_for_stores(Lowering *l, const Ring *ring, const Ends *ends, Span loc, Block *out) {
    const Stmt *waits = last_call(out, OP_BULK_WAIT);
    if (ends->stores_again) BLOCK_CALL(l->arena, out, loc, OP_BULK_WAIT, arg_int(l->arena, 0), (Arg){0});
    else if (!ring->own && !(waits && expr_is_int(ARG(waits, BULK_WAIT, n).value, 0)))
        push_store_wait(l->arena, loc, out);
}

static void lower_release(Lowering *l, const Block *block, int at, Block *out) {
    const Stmt *release = block->items[at];
    Expr *handle = ARG(release, RELEASE, slot).value, *slot = subst_expr(l->handles, handle);
    const Ring *ring = ring_of_handle(l, handle);
    const Ends *ends = own_ends(l, ring);
    if (handle->var->kind == VAR_MUTABLE && !ring->own)   // the arrival may come behind the next receive
        slot = block_let(l->arena, out, handle->var->name, slot, release->loc);
    if (ends->stores) wait_for_stores(l, ring, ends, release->loc, out);
    if (!ring->empty) return;
    if (reads_by_wgmma_alone(ends) && !have_all_waited(block, at)) block_barrier(l->arena, out, release->loc);
    if (reads_by_wgmma_alone(ends)) push_arrive(l, ring->empty, slot, arrivals_at_empty(l, ends), release->loc, out);
    else push_warps_arrive(l, ends, ring->empty, slot, release->loc, out);
    if (!ends->by_wgmma) return;
    Consume *consume = NEW(l->arena, Consume);
    VEC_EACH_PTR (Buf, tile, &ring->channel->tiles) vec_push(l->arena, &consume->tiles, tile);
    map_put(l->consumes, vec_last(out), consume);
}

static void lower_enter(Lowering *l, const Stmt *enter, Block *out) {
    const Ring *ring = ring_of(l, ARG(enter, ENTER, channel).region->buf);
    const Ends *ends = own_ends(l, ring);
    if (ring->named) {
        push_named(l, ring, OP_BARRIER, rank_of(l, ring), enter->loc, out);
        return;
    }
    push_wait(l, ring->next, rank_of(l, ring), e_var(l->arena, ends->parity[0]), enter->loc, out);
    push_advance(l, ring, ends, 0, enter->loc, out);
}

static void lower_leave(Lowering *l, const Stmt *leave, Block *out) {
    const Ring *ring = ring_of(l, ARG(leave, LEAVE, channel).region->buf);
    Expr *next = next_rank(l, ring);
    if (ring->named) push_named(l, ring, OP_BARRIER_ARRIVE, next, leave->loc, out);
    else push_warps_arrive(l, own_ends(l, ring), ring->next, next, leave->loc, out);
}

// ---- statements ----

// A copy into a slot: it completes on the slot's mbarrier or, of own slots, is awaited.
static void lower_copy(Lowering *l, Stmt *copy, Block *out) {
    Arena *a = l->arena;
    Region *dst = copy_of(copy).dst;
    const Ring *ring = ring_of(l, dst->buf);
    Expr *handle = dst->dims[0].start;
    block_push(a, out, copy);
    // (Another role has it at the commit: what threads copy has landed there.)
    bool starts = completes_on_mbarrier(copy) || (ring->own && starts_copy(copy));
    copy->call.is_async = starts && !map_has(l->in_order, dst->buf);
    if (ring->own || !completes_on_mbarrier(copy)) return;
    EXPECT(l->context->failure, ring->full, "a copy completes on a channel without mbarriers");
    call_set_arg(a, copy, OPERAND_INDEX(COPY, bar), arg_element(a, ring->full, handle));
    Var *bytes = handle->kind == EXPR_VAR ? map_get(l->bytes, handle->var) : NULL;
    if (bytes) assign(l, bytes, e_plus(a, e_var(a, bytes), buf_slot_bytes(dst->buf)), copy->loc, out);
}

static void lower_peer_store(Lowering *l, Stmt *store, Block *out) {
    const Region *x = ARG(store, PEER_STORE, x).region;
    const Ring *ring = ring_of(l, x->buf);
    EXPECT(l->context->failure, ring && ring->full, "a store to a peer's slot of no channel");
    Arg bar = arg_element(l->arena, ring->full, x->dims[0].start);
    call_set_arg(l->arena, store, OPERAND_INDEX(PEER_STORE, bar), bar);
    block_push(l->arena, out, store);
}

// An asynchronous unit reads the ring's slots behind the statement, which the role may come to again.
static bool is_read_behind(Lowering *l, const Ring *ring, const Stmt *write) {
    bool behind = false;
    FOR_EACH_STMT_MUT (stmt, &l->role->role.body) {
        const Stmt *copy = tma_copy(l->arena, stmt), *unit = copy ? copy : stmt;
        bool repeats = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
        behind |= stmt == write || (repeats && stmt_contains(stmt, write));
        if (!behind || !((copy && copy != stmt) || is_async_read(unit))) continue;   // an addition by TMA, too
        FOR_EACH_EFFECT (effect, l->arena, unit)
            if (effect->access == ACCESS_READ && effect->buf->channel && ring_of(l, effect->buf) == ring) return true;
    }
    return false;
}

// The group writes a slot that it has received, and that asynchronous units fill again or read.
static bool writes_received(Lowering *l, const Stmt *stmt) {
    bool whole = stmt->kind == STMT_CALL || stmt->kind == STMT_STORE || is_loop(stmt, LOOP_PARALLEL);
    if (!whole || l->in_parallel) return false;
    FOR_EACH_EFFECT (effect, l->arena, stmt) {
        const Ring *ring = effect->access != ACCESS_READ && effect->buf->channel ? ring_of(l, effect->buf) : NULL;
        if (!ring || ring->own) continue;
        bool receives = false, by_bytes = false;
        for (int i = 0; i < ring->ends.count; i++) {
            const ChannelGroup *group = &ring->channel->groups.items[i];
            receives |= group->role == l->role && group->receives && !group->produces;
            by_bytes |= ring->ends.items[i].by_bytes;
        }
        if (receives && by_bytes && (!ring->fresh || is_read_behind(l, ring, stmt))) return true;
    }
    return false;
}

static void channel_block(Lowering *l, Block *block);

static void channel_bodies(Lowering *l, Stmt *stmt) {
    bool outer = l->in_parallel;
    l->in_parallel |= is_loop(stmt, LOOP_PARALLEL);
    if (stmt->kind != STMT_ROLE)   // a group of its own
        FOR_EACH_BODY (body, stmt) channel_block(l, body);
    l->in_parallel = outer;
}

static void channel_stmt(Lowering *l, Block *block, int at, Block *out) {
    Stmt *stmt = block->items[at];
    bool writes = writes_received(l, stmt);
    if (writes && out->count && is_call(vec_last(out), OP_FENCE_ASYNC))
        block_remove(out, out->count - 1);   // one behind both
    channel_bodies(l, stmt);
    if (is_acquire(stmt)) lower_acquire(l, block, at, out);
    else if (is_receive(stmt)) lower_receive(l, stmt, out);
    else if (is_call(stmt, OP_COMMIT)) lower_commit(l, stmt, out);
    else if (is_call(stmt, OP_RELEASE)) lower_release(l, block, at, out);
    else if (is_call(stmt, OP_SKIP)) push_skip(l, stmt, out);
    else if (is_call(stmt, OP_ENTER)) lower_enter(l, stmt, out);
    else if (is_call(stmt, OP_LEAVE)) lower_leave(l, stmt, out);
    else if (is_call(stmt, OP_PEER_STORE) && ARG(stmt, PEER_STORE, x).region->buf->channel)
        lower_peer_store(l, stmt, out);
    else if (is_global_to_shared_copy(stmt) && copy_of(stmt).dst->buf->channel) lower_copy(l, stmt, out);
    else block_push(l->arena, out, stmt);
    if (writes) block_call(l->arena, out, stmt->loc, OP_FENCE_ASYNC, 0, NULL);
}

static void channel_block(Lowering *l, Block *block) {
    Block out = {0};
    for (int i = 0; i < block->count; i++) channel_stmt(l, block, i, &out);
    *block = out;
}

static bool begins(const Lowering *l, const Stmt *stmt, const Ring *ring) {
    return (is_acquire(stmt) || is_receive(stmt)) &&
           channel_of_handle(&l->channels, &(Expr){.kind = EXPR_VAR, .var = stmt->let.var}) == ring->channel;
}

static bool ends(const Lowering *l, const Stmt *stmt, const Ring *ring) {
    return (is_call(stmt, OP_COMMIT) || is_call(stmt, OP_RELEASE)) &&
           channel_of_handle(&l->channels, stmt->call.args[0].value) == ring->channel;
}

// Finds begins of slots where none is held. Returns how many slots are held behind the block.
static int find_alone(Lowering *l, const Block *block, const Ring *ring, int held) {
    FOR_EACH_ITEM (stmt, block) {
        if (begins(l, stmt, ring) && !held++) map_put(l->alone, stmt, (Stmt *)stmt);
        if (ends(l, stmt, ring)) held--;
        if (stmt->kind == STMT_IF) {
            int then = find_alone(l, &stmt->if_.then, ring, held),
                otherwise = find_alone(l, &stmt->if_.otherwise, ring, held);
            held = block_breaks(&stmt->if_.then) ? otherwise : then;
        } else if (stmt->kind != STMT_ROLE) {
            FOR_EACH_BODY (body, stmt) held = find_alone(l, body, ring, held);
        }
    }
    return held;
}

// Shared memory must outlive the stores that read it. (insert-mbarriers sees to those of a CTA without roles.)
static bool stores_own_slots(const Lowering *l) {
    VEC_EACH_PTR (Ring, ring, &l->rings) {
        const Ends *ends = ring->own ? ends_of(ring, l->role) : NULL;
        if (ends && ends->stores && !ends->stores_again) return true;
    }
    return false;
}

static bool multiplies_slots(const Lowering *l) {
    VEC_EACH_PTR (Ring, ring, &l->rings) {
        const Ends *ends = ring->own ? NULL : ends_of(ring, l->role);
        if (ends && ends->by_wgmma) return true;
    }
    return false;
}

// The body of a role, or the statements of the CTA: counters come first.
static void lower_group(Lowering *l, const Stmt *role, Block *body, int first) {
    Block counters = {0};
    l->role = role;
    l->leaders = waits_of_leader(l->arena, &l->channels, role);
    count_ends(l, body, &counters);
    VEC_EACH_PTR (Ring, ring, &l->rings) find_alone(l, body, ring, 0);
    channel_block(l, body);
    if (role && stores_own_slots(l)) push_store_wait(l->arena, role->loc, body);
    FOR_EACH_ITEM (stmt, &counters) block_insert(l->arena, body, first++, stmt);
    if (role && (map_count(l->consumes) || multiplies_slots(l)))
        make_mma_async(l->arena, body, l->consumes, true, NULL);
}

// ---- the kernel ----

static Buf *declare(Lowering *l, const Ring *ring, const char *what, Block *out) {
    const Buf *channel = ring->channel->buf;
    const char *name = arena_printf(l->arena, "%s_%s", channel->name, what);
    Buf *bars = buf_new_const(l->arena, name, SCOPE_SHARED, TYPE_MBARRIER, 1, &ring->slots, channel->loc);
    block_push(l->arena, out, s_decl(l->arena, bars));
    return bars;
}

static void push_init(Lowering *l, const Ring *ring, Buf *bars, int64_t arrivals, Block *out) {
    Span loc = ring->channel->buf->loc;
    for (int64_t s = 0; s < ring->slots; s++)
        BLOCK_CALL(l->arena, out, loc, OP_MBARRIER_INIT, arg_element(l->arena, bars, e_int(l->arena, s)),
                   arg_int(l->arena, arrivals));
}

// Named barriers are for two groups of equally many threads, and below those of TMA stores.
static bool has_named_barriers(const Lowering *l, const Ring *ring) {
    for (int i = 0; i < ring->ends.count; i++)
        if (!ring->ends.items[i].role || ring->ends.items[i].threads != ring->ends.items[0].threads) return false;
    return l->named && ring->slots > 1 && l->named + ring->slots <= TMA_STORE_BARRIER;
}

static void set_up_sections(Lowering *l, Ring *ring, Block *decls, Block *inits) {
    const Channel *channel = ring->channel;
    ring->slots = channel_enters(channel);
    if (has_named_barriers(l, ring)) {
        ring->named = l->named;
        l->named += ring->slots;
        return;
    }
    ring->next = declare(l, ring, "next", decls);
    for (int g = 0, rank = 0; g < channel->groups.count; g++) {
        const Ends *ends = &ring->ends.items[g];
        for (int64_t m = 0; channel->groups.items[g].enters && m < ends->members; m++) {
            Expr *next = e_int(l->arena, (rank++ + 1) % ring->slots);
            BLOCK_CALL(l->arena, inits, channel->buf->loc, OP_MBARRIER_INIT, arg_element(l->arena, ring->next, next),
                       arg_int(l->arena, warps_of(l, ends)));
        }
    }
}

static void set_up_ring(Lowering *l, Ring *ring, Block *decls, Block *inits) {
    const Channel *channel = ring->channel;
    if (channel_enters(channel)) {
        set_up_sections(l, ring, decls, inits);
    } else if (channel->by_peers) {
        ring->full = declare(l, ring, "full", decls);
        push_init(l, ring, ring->full, 1, inits);
    } else if (!ring->own && channel->groups.count) {
        ring->full = declare(l, ring, "full", decls);
        push_init(l, ring, ring->full, all_arrivals(l, ring, true), inits);
        if (ring->fresh) return;
        ring->empty = declare(l, ring, "empty", decls);
        push_init(l, ring, ring->empty, all_arrivals(l, ring, false), inits);
    }
}

static void insert_all(Arena *arena, Block *body, int at, const Block *stmts) {
    FOR_EACH_ITEM (stmt, stmts) block_insert(arena, body, at++, stmt);
}

// Asynchronous units complete on the mbarriers: threads alone see them by the barrier behind the inits.
static bool by_bytes(const Lowering *l) {
    VEC_EACH_PTR (Ring, ring, &l->rings)
        VEC_EACH (const Ends, ends, &ring->ends)
            if (ends->by_bytes && !ring->own) return true;
    return false;
}

// mbarriers are set up behind the declarations at the grid's top, before anything meets at them.
static int set_up(Lowering *l, Stmt *grid) {
    Arena *a = l->arena;
    Block decls = {0}, inits = {0}, *body = &grid->grid.body;
    bool peers = false;
    VEC_EACH_PTR (Ring, ring, &l->rings) {
        set_up_ring(l, ring, &decls, &inits);
        peers |= ring->channel->by_peers;
    }
    if (inits.count && (peers || by_bytes(l))) block_publish_mbarriers(a, &inits, peers, grid->loc);
    else if (inits.count) block_barrier(a, &inits, grid->loc);
    int at = 0;
    while (at < body->count && body->items[at]->kind == STMT_DECL) at++;
    insert_all(a, body, at, &decls);
    insert_all(a, body, at + decls.count, &inits);
    return at + decls.count + inits.count;
}

static void drop_channels(Lowering *l, Block *block) {
    for (int i = block->count - 1; i >= 0; i--) {
        const Stmt *stmt = block->items[i];
        FOR_EACH_BODY (body, stmt) drop_channels(l, body);
        if (stmt->kind != STMT_DECL) continue;
        const Ring *ring = stmt->decl->channel ? ring_of(l, stmt->decl) : NULL;
        if (ring && !ring->own) attr_set_int(l->arena, &stmt->decl->attrs, ATTR_HANDED, ring->number);
        stmt->decl->channel = NULL;
        if (stmt->decl->type == TYPE_CHANNEL) block_remove(block, i);
    }
}

// The source numbers none itself.
static bool numbers_barriers(const Stmt *stmt, void *user) {
    (void)user;
    return (is_call(stmt, OP_BARRIER) && ARG(stmt, BARRIER, id).value) || is_call(stmt, OP_BARRIER_ARRIVE);
}

bool pass_lower_channels(PassContext *context, Func *kernel) {
    Arena *arena = context->arena;
    Stmt *grid = (Stmt *)func_grid(kernel);
    if (!grid || !has_channels(kernel)) return false;
    Lowering l = {.context = context,
                  .arena = arena,
                  .kernel = kernel,
                  .channels = channels_of(arena, kernel),
                  .by_channel = map_new(arena),
                  .bytes = map_new(arena),
                  .read_async = map_new(arena),
                  .in_order = map_new(arena),
                  .consumes = map_new(arena),
                  .alone = map_new(arena),
                  .handles = subst_new(arena)};
    l.named = block_any(&grid->grid.body, numbers_barriers, NULL) ? 0 : FIRST_NAMED_BARRIER;
    find_rings(&l);
    find_meetings(&l);
    Block *body = &grid->grid.body;
    int first = set_up(&l, grid);
    FOR_EACH_ITEM (stmt, body)
        if (stmt->kind == STMT_ROLE) lower_group(&l, stmt, &stmt->role.body, 0);
    lower_group(&l, NULL, body, first);
    drop_channels(&l, body);
    subst_block(l.handles, body);
    return true;
}
