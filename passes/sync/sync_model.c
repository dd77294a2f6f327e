// Playing a kernel through, for insert-sync.
//
// The state is the list of live accesses: those that no barrier has ordered yet. Statements are executed one after the
// other with index values as far as they are known (affine.h); each access is compared with the live ones:
//
//     conflict        one of the two writes, they are not both updates that commute (additions whose old value is
//                     unused), and their boxes may overlap
//     - and the live one is an asynchronous write that has not landed: a wait is missing (and a barrier, but for the
//       thread's own data)
//     - and they are not element by element of the same threads: a barrier is missing
//
// A barrier ends all live accesses that have landed. A pending copy knows its age, the number of cp.async groups closed
// after its own; a wait(n) lands those of age n and above. Ages are exact, so n comes out as large as is right.
//
// Control flow. Loops are played with real trip counts: where they are not known with those of scenarios
// (sync_scenarios.c), and of long loops the first, the last, and some that may be anywhere between them; what is cut
// out are multiples of S, so that slots k % S come as they would. A count that is named (`let steps`) is bound to the
// scenario's, so that tests like k + 2 < steps are decided. A condition that is not decided goes both ways, and after
// it what is live on either way is live: nothing on any path is missed. So it is with one that depends on how many more
// iterations a long loop takes (affine_more), and with a loop of which nothing is known, or too much is open: it may
// end before any of its iterations.
//
//     gemm, S = 3, steps = 2        live before the statement                              missing
//     copies 0, commit              -
//     copies 1, commit              As[0] age 0
//     k = 0  await As[0]            As[0] age 1, As[1] age 0                               wait(1), barrier
//            commit (no copy)       As[1] age 0
//            gemm on slot 0         As[1] age 1
//     k = 1  await As[1]            As[1] age 1, gemm's reads of slot 0                    (the same wait and barrier)
#include "passes/lower/lower.h"
#include "passes/sync/sync.h"
#include "support/numbers.h"
#include <string.h>

typedef struct Live {
    const MemAccess *access;
    const Affine *start;   // [rank]; of one access the same place is the same pointer (place_of)
    const Affine *slot;    // of its mbarrier; NULL: it has none
    int64_t born;          // when it was played, or has landed
    int age;               // groups closed after its own; -1: its own is open
    bool pending;          // started, not landed
    bool lasting;          // a thread's write: TMA and wgmma need a fence behind it, and a barrier behind that
    bool ordered;          // ... for all else it is over
    bool fenced;
    bool *without;   // it is so without this one of the plan (Sync.needs); NULL: with the whole plan
} Live;

typedef struct Place {
    Affine start[LAYOUT_MAX_RANK];
    const MemAccess *access;
    struct Place *next;   // in its bucket
} Place;
typedef VEC(Place *) Places;
enum { PLACE_BUCKETS = 1 << 12 };

typedef struct State {
    VEC(Live) live;
    bool dead;   // after a break: nothing comes here
    struct State *next_free;
} State;

// A statement whose body is being played.
typedef struct Frame {
    const Stmt *stmt;
    int64_t entered, commits;   // what was played, and cp.async groups closed, before it: not its own condition's reads
    bool hoists;                // what is missing within is better put before it
    bool copies;                // it starts copies: its own waits are for them too
} Frame;

enum { DEEPEST = 64 };

struct SyncModel {
    Arena *arena;
    const Target *target;
    Block *body;   // of the kernel or role
    SyncPlan *plan;
    AffineEnv *env;
    Map *accesses;   // Stmt -> MemAccessVec
    Map *written;    // buffers that the kernel writes
    Map *reused;     // of these what it accesses at another place too
    Map *peered;     // buffers that other blocks of the cluster read
    Map *quiet;      // loops that touch nothing of this: they are not played
    Map *copying;    // loops that start copies
    Scenarios *scenarios;
    int access_count, copy_count;
    signed char *same;   // same_threads by ids: 0 not yet asked, 1 yes, -1 no
    Places all_places;   // those of the scenario come first, the others are free
    int places;
    Place **buckets;   // those of accesses
    State *free;
    State *breaks;   // what is live where `break` leaves the innermost loop
    Frame frames[DEEPEST];
    int depth;
    bool by_proxy;   // there are copies by TMA, or MMAs that read shared memory
    // What the role that is played awaits; NULL: it is a kernel. What else a role does to shared memory its author has
    // ordered, but for scratch.
    const Map *awaited;
    bool placing, weighing, failed;
    int64_t played;    // accesses
    int64_t commits;   // cp.async groups closed
    int64_t work;      // comparisons of accesses, since a plan was begun or checked first
};

// What is missing before an access.
typedef struct Need {
    Sync sync;
    int64_t latest;   // when the last of what it is against was played
    bool uses;        // it uses a copy that may not have landed
} Need;

static void play_block(SyncModel *m, State *s, Block *block);

// ---- states ----

static State *state_new(SyncModel *m) {
    State *s = m->free;
    if (s) m->free = s->next_free;
    else s = NEW(m->arena, State);
    s->live.count = 0;
    s->dead = false;
    return s;
}

static void state_free(SyncModel *m, State *s) {
    s->next_free = m->free;
    m->free = s;
}

// In each dim whose elements are known. Starts that are both unknown are the same where `unknown` says so.
static bool same_start(const MemAccess *access, const Affine *a, const Affine *b, bool unknown) {
    for (int d = 0; d < access->rank; d++) {
        bool both_unknown = unknown && !a[d].known && !b[d].known;
        if (access->dims[d].length >= 0 && !both_unknown && !affine_same(&a[d], &b[d])) return false;
    }
    return true;
}

static bool same_live(const Live *a, const Live *b) {
    return a->start == b->start && a->access == b->access && a->pending == b->pending && a->ordered == b->ordered &&
           a->fenced == b->fenced && a->without == b->without;
}

// Looks from *at on, and leaves there where to look for what came behind the live one: states that were copies of each
// other have their accesses in the same order.
static void state_add(SyncModel *m, State *s, const Live *live, int *at) {
    for (int i = 0, count = s->live.count; i < count; i++) {
        if (*at >= count) *at = 0;
        Live *other = &s->live.items[(*at)++];
        if (!same_live(other, live)) continue;
        if (live->age < other->age) other->age = live->age;
        if (live->born > other->born) other->born = live->born;
        return;
    }
    vec_push(m->arena, &s->live, *live);
}

static void state_union(SyncModel *m, State *s, const State *other) {
    m->work += s->live.count + other->live.count;
    int at = 0;
    if (other->dead) return;
    if (s->dead) s->live.count = 0;
    VEC_EACH (const Live, live, &other->live)
        if (!live->without || !*live->without) state_add(m, s, live, &at);
    s->dead = false;
}

static State *state_copy(SyncModel *m, const State *s) {
    State *copy = state_new(m);
    for (int i = 0; i < s->live.count; i++) vec_push(m->arena, &copy->live, s->live.items[i]);
    copy->dead = s->dead;
    return copy;
}

static Place *place_new(SyncModel *m) {
    if (m->places == m->all_places.count) vec_push(m->arena, &m->all_places, NEW(m->arena, Place));
    return m->all_places.items[m->places++];
}

static uint64_t mixed(uint64_t hash, uint64_t value) {   // FNV-1a, by words
    return (hash ^ value) * 0x100000001b3;
}

static Place **bucket_of(SyncModel *m, const MemAccess *access, const Affine *start) {
    uint64_t hash = mixed(0xcbf29ce484222325, (uint64_t)access->id);
    for (int d = 0; d < access->rank; d++) {
        if (access->dims[d].length < 0 || !start[d].known) continue;
        hash = mixed(hash, (uint64_t)start[d].constant);
        for (int t = 0; t < start[d].count; t++)
            hash = mixed(mixed(hash, (uint64_t)start[d].terms[t].atom), (uint64_t)start[d].terms[t].factor);
    }
    return &m->buckets[(hash ^ hash >> 32) % PLACE_BUCKETS];
}

// The place of an access in this scenario: one pointer for each, as nothing tells accesses at an unknown place apart.
static const Affine *place_of(SyncModel *m, const MemAccess *access, const Affine *start) {
    Place **bucket = bucket_of(m, access, start);
    for (Place *place = *bucket; place; place = place->next)
        if (place->access == access && same_start(access, place->start, start, true)) return place->start;
    Place *place = place_new(m);
    memcpy(place->start, start, sizeof *start * (size_t)access->rank);
    place->access = access;
    place->next = *bucket;
    *bucket = place;
    return place->start;
}

static void drop_places(SyncModel *m) {
    memset(m->buckets, 0, sizeof *m->buckets * PLACE_BUCKETS);
    m->places = 0;
}

// ---- what ends an access ----

static void land(SyncModel *m, Live *live) {
    if (live->pending) live->born = ++m->played;   // a barrier before does not order it
    live->pending = false;
}

// A barrier ends what landed before `when`; for TMA also what was fenced before it. False: the access is over.
static bool stays_behind_barrier(Live *live, int64_t when) {
    bool over = !live->pending && live->born < when;
    live->ordered |= over;
    return !over || (live->lasting && !live->fenced);
}

static bool stays_behind(SyncModel *m, Live *live, SyncOp op, int64_t groups) {
    const MemAccess *access = live->access;
    switch (op) {
    case SYNC_COMMIT: live->age += live->pending; break;
    case SYNC_WAIT:
        if (!access->tma && live->age >= groups) land(m, live);
        break;
    case SYNC_BULK:   // stores by TMA have read their tiles
        if (access->tma && !access->bar) land(m, live);
        break;
    case SYNC_FENCE: live->fenced = true; break;
    case SYNC_BARRIER: return stays_behind_barrier(live, INT64_MAX);
    }
    return true;
}

static void end_before(State *s, int64_t when) {
    int kept = 0;
    VEC_EACH (Live, live, &s->live)
        if (stays_behind_barrier(live, when)) s->live.items[kept++] = *live;
    s->live.count = kept;
}

static bool has_without(const State *s, const bool *needed) {
    VEC_EACH (const Live, live, &s->live)
        if (live->without == needed) return true;
    return false;
}

// What the operation changes also stays as it was, without it, while it may be found that it is needed.
static void do_op(SyncModel *m, State *s, SyncOp op, int64_t groups, bool *needed) {
    int kept = 0, count = s->live.count, at = 0;
    bool weighs = m->weighing && needed && !*needed, again = weighs && has_without(s, needed);
    m->commits += op == SYNC_COMMIT;
    if (weighs) m->work += count;
    for (int i = 0; i < count; i++) {
        Live live = s->live.items[i], before = live;
        bool stays = (weighs && live.without == needed) || stays_behind(m, &live, op, groups);
        if (weighs && !live.without && (!stays || live.age != before.age || !same_live(&live, &before))) {
            before.without = needed;
            if (again) state_add(m, s, &before, &at);
            else vec_push(m->arena, &s->live, before);
        }
        if (stays) s->live.items[kept++] = live;
    }
    for (int i = count; i < s->live.count; i++) s->live.items[kept++] = s->live.items[i];
    s->live.count = kept;
}

// All threads have waited for what completes on an mbarrier: nothing is left to order.
static void do_mbarrier_wait(SyncModel *m, State *s, const Stmt *wait) {
    const Region *bar = wait_of(wait).bar;
    Affine slot = affine_of(m->env, bar->dims[0].start);
    int kept = 0;
    VEC_EACH (const Live, live, &s->live) {
        bool there = live->access->bar && live->access->bar->buf == bar->buf && affine_same(live->slot, &slot);
        if (!there) s->live.items[kept++] = *live;
    }
    s->live.count = kept;
}

// The role has a slot that others have had since it had one: what it did to the tiles is over.
static void take_slot(State *s, int64_t channel) {
    int kept = 0;
    VEC_EACH (const Live, live, &s->live) {
        const Buf *buf = live->access->buf;
        bool handed = buf && attr_int(buf_root(buf)->attrs, ATTR_HANDED, -1) == channel;
        if (!handed || live->pending) s->live.items[kept++] = *live;
    }
    s->live.count = kept;
}

// Tiles of a grid are independent, also those that one CTA computes one after the other.
static void drop_globals(State *s) {
    int kept = 0;
    for (int i = 0; i < s->live.count; i++) {
        const Buf *buf = s->live.items[i].access->buf;
        if (buf && buf->scope != SCOPE_GLOBAL) s->live.items[kept++] = s->live.items[i];
    }
    s->live.count = kept;
}

static void do_sync(SyncModel *m, State *s, Sync *sync) {
    for (int op = 0; sync && op < SYNC_OPS; op++)
        if (sync_has(sync, op)) do_op(m, s, op, sync->wait, &sync->needs[op]);
}

// ---- what is missing ----

static void need_op(Sync *need, SyncOp op) {
    need->ops |= 1 << op;
}

static void need_wait(Sync *need, int groups) {
    if (!sync_has(need, SYNC_WAIT) || groups < need->wait) need->wait = groups;
    need_op(need, SYNC_WAIT);
}

// ---- conflicts ----

static bool by_proxy(const MemAccess *access) {
    return access->tma || access->proxy;
}

// Different buffers: aliases, or shared memory that has been given twice.
static bool places_meet(const Live *y, const MemAccess *x, const Affine *start) {
    int64_t begin[2], end[2];
    if (buf_root(x->buf) == buf_root(y->access->buf)) return true;
    bool placed = shared_range(x, start, &begin[0], &end[0]) && shared_range(y->access, y->start, &begin[1], &end[1]);
    return placed && begin[0] < end[1] && begin[1] < end[0];
}

static bool boxes_meet(const SyncModel *m, const Live *y, const MemAccess *x, const Affine *start) {
    if (!y->access->buf) return x->buf && x->buf->scope == SCOPE_GLOBAL;
    if (!x->buf && x->pseudo) return map_has(m->peered, buf_root(y->access->buf));   // the cluster's barrier
    if (!x->buf) return y->access->buf->scope == SCOPE_GLOBAL;
    if (x->buf != y->access->buf) return places_meet(y, x, start);
    for (int d = 0; d < x->rank; d++) {
        const BoxDim *a = &y->access->dims[d], *b = &x->dims[d];
        int64_t low, high;
        if (a->length < 0 || b->length < 0) continue;
        Affine distance = affine_add(start[d], y->start[d], -1);
        if (!affine_range(m->env, &distance, &low, &high)) continue;
        const Int128 shift = (Int128)b->low - a->low;
        if (low >= a->length - shift || high <= -b->length - shift) return false;
    }
    return true;
}

static bool of_same_threads(SyncModel *m, const Live *y, const MemAccess *x, const Affine *start) {
    if (!x->buf || !y->access->buf) return x->pseudo || (x->who == WHO_ONE && y->access->who == WHO_ONE);
    if (x->pseudo || x->buf != y->access->buf || !same_start(x, y->start, start, false)) return false;
    signed char *same = &m->same[y->access->id * m->access_count + x->id];
    EXPECT(arena_failure(m->arena), x->id < m->access_count && y->access->id < m->access_count,
           "an access was found after they were numbered");
    if (!*same) *same = same_threads(m->arena, y->access, x) ? 1 : -1;
    return *same > 0;
}

static bool uses_mbarrier(const MemAccess *access) {
    bool call = access->stmt->kind == STMT_CALL;
    return access->buf && access->buf->type == TYPE_MBARRIER && !(call && access->stmt->call.op == OP_MBARRIER_INIT);
}

// A store to another CTA completes on an mbarrier there; and accesses to mbarriers are ordered by the mbarriers, once
// they are initialised.
static bool is_ordered(const MemAccess *before, const MemAccess *after) {
    return before->elsewhere || (uses_mbarrier(before) && uses_mbarrier(after));
}

// A wait for another block's flag, behind one that this block has set: these are different ones, where nothing says
// that they are the same.
static bool waits_elsewhere(const Live *y, const MemAccess *x, const Affine *start) {
    bool waits = x->flag && x->stmt->kind == STMT_WHILE && x->stmt->while_.body.count == 0;
    return waits && y->access->flag && !same_start(x, y->start, start, false);
}

static bool may_conflict(SyncModel *m, const Live *y, const MemAccess *x, const Affine *start) {
    if (!(x->write || y->access->write)) return false;
    if (x->update != OP_COUNT && x->update == y->access->update) return false;
    if (x->pseudo && !y->access->async) return false;
    if (is_ordered(y->access, x)) return false;
    if (x->stmt->kind == STMT_ROLE && y->access->stmt->kind == STMT_ROLE) return false;   // side by side
    if (y->ordered && !by_proxy(x)) return false;
    return boxes_meet(m, y, x, start) && !waits_elsewhere(y, x, start);
}

// What is missing between the two; adds to *need.
static void need_between(SyncModel *m, const Live *y, const MemAccess *x, const Affine *start, Need *need) {
    if (!may_conflict(m, y, x, start)) return;
    if (by_proxy(x) && y->lasting && !y->fenced) need_op(&need->sync, SYNC_FENCE);
    if (y->pending && y->access->tma) {
        if (!y->access->write) need_op(&need->sync, SYNC_BULK);
    } else if (y->pending) {
        need->uses |= !x->async;
        need->latest = larger(need->latest, y->born);
        if (y->age < 0) need_op(&need->sync, SYNC_COMMIT);
        need_wait(&need->sync, y->age < 0 ? 0 : y->age);
    }
    if (of_same_threads(m, y, x, start)) return;
    need_op(&need->sync, SYNC_BARRIER);
    need->latest = larger(need->latest, y->born);
}

static void find_need(SyncModel *m, const State *s, const MemAccess *x, const Affine *start, Need *need) {
    m->work += s->live.count;
    VEC_EACH (const Live, y, &s->live)
        if (!y->without) need_between(m, y, x, start, need);
}

// What the plan lacks without one of its operations: then that is needed, and it is done with.
static void find_needed(SyncModel *m, State *s, const MemAccess *x, const Affine *start) {
    int kept = 0;
    m->work += s->live.count;
    VEC_EACH (const Live, y, &s->live) {
        Need need = {0};
        if (!y->without || *y->without) continue;
        need_between(m, y, x, start, &need);
        *y->without = need.sync.ops != 0;
    }
    VEC_EACH (const Live, y, &s->live)
        if (!y->without || !*y->without) s->live.items[kept++] = *y;
    s->live.count = kept;
}

// A barrier against what was there before a loop belongs before the loop: it runs once there. So it is with a wait
// before a copy starts, which would make the copies of a prologue one by one; with a wait before a use in a loop that
// starts no copies; and with the `if` around started copies, whose group must stay one. Returns the outermost such
// statement, NULL for none.
static const Frame *hoisted(const SyncModel *m, const Need *need) {
    enum { STAY = 1 << SYNC_BULK | 1 << SYNC_FENCE | 1 << SYNC_COMMIT };
    if (need->sync.ops & STAY) return NULL;
    for (int i = 0; i < m->depth && i < DEEPEST; i++) {
        const Frame *frame = &m->frames[i];
        if (frame->hoists && need->latest < frame->entered && !(need->uses && frame->copies)) return frame;
    }
    return NULL;
}

static Sync *sync_at(SyncModel *m, const void *place) {
    return map_get(m->plan->by_place, place);
}

static void add_to_plan(SyncModel *m, const Sync *need) {
    const void *place = need->before ? (const void *)need->before : (const void *)need->at_end;
    Sync *sync = sync_at(m, place);
    if (!sync) {
        sync = NEW(m->arena, Sync);
        *sync = (Sync){.before = need->before, .at_end = need->at_end};
        map_put(m->plan->by_place, place, sync);
        vec_push(m->arena, &m->plan->syncs, sync);
    }
    if (sync_has(need, SYNC_WAIT)) need_wait(sync, need->wait);
    sync->ops |= need->ops;
}

// The wait, where fewer groups were closed yet: those of copies from before it.
static void hoist_wait(SyncModel *m, State *s, Sync *need, const Frame *frame) {
    if (!sync_has(need, SYNC_WAIT)) return;
    for (int i = 0; i < s->live.count; i++) {
        Live *live = &s->live.items[i];
        if (!live->access->tma && live->born < frame->entered && live->age >= need->wait) live->pending = false;
    }
    int64_t closed = m->commits - frame->commits;
    need->wait = need->wait > closed ? need->wait - (int)closed : 0;
}

static void add_need(SyncModel *m, State *s, Need *need) {
    const Frame *frame = hoisted(m, need);
    Sync *sync = &need->sync;
    if (frame) {
        sync->before = frame->stmt;
        sync->at_end = NULL;
        hoist_wait(m, s, sync, frame);
        if (sync_has(sync, SYNC_BARRIER)) end_before(s, frame->entered);
    } else {
        do_sync(m, s, sync);
    }
    add_to_plan(m, sync);
}

// ---- statements ----

// An access matters when somebody writes what it touches.
static bool matters(const SyncModel *m, const MemAccess *access) {
    bool role = m->awaited != NULL;
    if (!access->buf) return !role || (!access->pseudo && map_count(m->reused) > 0);
    const Buf *root = buf_root(access->buf);
    bool shared = access->buf->scope == SCOPE_SHARED;
    if (!role) return shared || map_has(m->written, root);
    return shared ? attr_get(root->attrs, ATTR_SCRATCH) || map_has(m->awaited, root) : map_has(m->reused, root);
}

static MemAccessVec *accesses_of(SyncModel *m, Stmt *stmt) {
    MemAccessVec *found = map_get(m->accesses, stmt);
    if (found) return found;
    found = NEW(m->arena, MemAccessVec);
    MemAccessVec all = {0};
    stmt_accesses(m->arena, stmt, &all);
    for (int i = 0; i < all.count; i++)
        if (matters(m, all.items[i])) vec_push(m->arena, found, all.items[i]);
    map_put(m->accesses, stmt, found);
    return found;
}

static void start_of(SyncModel *m, const MemAccess *access, Affine *start) {
    for (int d = 0; d < access->rank; d++) {
        start[d].known = false;   // an access of the same buffer may know its start in this dim
        if (access->dims[d].length >= 0) start[d] = affine_of(m->env, access->dims[d].start);
    }
}

static const Affine *slot_of(SyncModel *m, const Region *bar) {
    Affine *slot = place_new(m)->start;
    *slot = affine_of(m->env, bar->dims[0].start);
    return slot;
}

// The accesses of a statement, before or behind its own barrier: what they need, then they are live.
static void play_accesses(SyncModel *m, State *s, const MemAccessVec *accesses, bool behind, Sync place) {
    Affine start[LAYOUT_MAX_RANK];
    Need need = {.sync = place};
    VEC_EACH_PTR (MemAccess, x, accesses) {
        if (x->after_barrier != behind || (x->pseudo && x->buf && !m->placing)) continue;
        start_of(m, x, start);
        if (m->weighing) find_needed(m, s, x, start);
        else find_need(m, s, x, start, &need);
    }
    if (need.sync.ops) {
        if (m->placing) add_need(m, s, &need);
        else m->failed = true;
    }
    VEC_EACH_PTR (MemAccess, x, accesses) {
        if (x->after_barrier != behind || x->pseudo || !(x->buf || x->orders_later)) continue;
        Live live = {.access = x, .pending = x->async, .age = -1, .born = ++m->played};
        live.lasting = m->by_proxy && x->write && !x->tma && x->buf && x->buf->scope == SCOPE_SHARED;
        live.lasting &= x->buf && x->buf->type != TYPE_MBARRIER;
        int at = 0;
        start_of(m, x, start);
        live.start = place_of(m, x, start);
        if (x->bar) live.slot = slot_of(m, x->bar);
        state_add(m, s, &live, &at);
    }
}

// Returns when its place was passed: what it accesses itself, its condition or bounds, comes behind what stands there.
static int64_t play_statement(SyncModel *m, State *s, Stmt *stmt) {
    const MemAccessVec *accesses = accesses_of(m, stmt);
    Sync place = {.before = stmt};
    do_sync(m, s, sync_at(m, stmt));
    int64_t passed = ++m->played;
    if (accesses->count == 0) return passed;
    play_accesses(m, s, accesses, false, place);
    bool own_barrier = false;
    for (int i = 0; i < accesses->count; i++) own_barrier |= accesses->items[i]->after_barrier;
    if (!own_barrier) return passed;
    do_op(m, s, SYNC_BARRIER, 0, NULL);
    play_accesses(m, s, accesses, true, place);
    return passed;
}

// ---- values ----

// Where the number of iterations is not known: the scenario's. False: it is known, or no scenario says it.
static bool take_scenario(SyncModel *m, const Var *var, Affine *number) {
    int64_t low, high;
    return !affine_range(m->env, number, &low, &high) && scenario_trips(m->scenarios, m->env, var, number);
}

static void play_let(SyncModel *m, const Stmt *stmt) {
    if (!type_is_int(stmt->let.var->type) || !stmt->let.value) {
        affine_forget(m->env, stmt->let.var);
        return;
    }
    Affine value = affine_of(m->env, stmt->let.value);
    take_scenario(m, stmt->let.var, &value);
    affine_bind(m->env, stmt->let.var, value);
}

static void forget_assigned(SyncModel *m, const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_ASSIGN) affine_forget(m->env, stmt->let.var);
}

// Whether a value comes of the variable's last one as numbers of slots do: by small steps, back to a constant, in turns of
// two, or modulo the period that is played. Another one may come to any slot in an iteration that is not played.
static bool counts_slots(const SyncModel *m, const Expr *e, const Var *var) {
    int64_t c;
    switch (e->kind) {
    case EXPR_INT: return true;
    case EXPR_VAR: return e->var == var;
    case EXPR_CAST: return type_bytes(e->type) >= 4 && counts_slots(m, e->operand, var);
    case EXPR_SELECT: return counts_slots(m, e->select.yes, var) && counts_slots(m, e->select.no, var);
    case EXPR_BINARY: break;
    default: return false;
    }
    const Expr *a = e->binary.a, *b = e->binary.b;
    bool right = expr_const(b, &c), constant = right || expr_const(a, &c);
    if (!constant || type_bytes(e->type) < 4 || !counts_slots(m, right ? a : b, var)) return false;
    switch (e->binary.op) {
    case BIN_ADD:
    case BIN_SUB: return c >= -LONGEST_PERIOD && c <= LONGEST_PERIOD;
    case BIN_XOR: return true;
    case BIN_MOD: return right && c > 0 && scenarios_period(m->scenarios, NULL) % c == 0;
    default: return false;
    }
}

static void forget_others(SyncModel *m, const Block *block) {
    FOR_EACH_STMT (stmt, block)
        if (stmt->kind == STMT_ASSIGN && !counts_slots(m, stmt->let.value, stmt->let.var))
            affine_forget(m->env, stmt->let.var);
}

static void forget_bodies(SyncModel *m, const Stmt *stmt) {
    FOR_EACH_BODY (body, stmt) forget_assigned(m, body);
}

// ---- control ----

static bool fills_slots_of(const Block *block, const Var *iter) {
    FOR_EACH_ITEM (stmt, block) {
        if (stmt->kind == STMT_LET) continue;
        if (stmt->kind == STMT_IF && fills_slots_of(&stmt->if_.then, iter)) continue;
        const Expr *slot = starts_copy(stmt) ? copy_slot(stmt) : NULL;
        if (!slot || !is_binary(slot, BIN_MOD) || !expr_uses_var(slot, iter)) return false;
    }
    return true;
}

// Lowering may start the copies although the condition is false: they write zeros then (lower_gemm_loop.c).
static bool may_fill_with_zeros(const SyncModel *m, const Stmt *guard) {
    const Stmt *loop = NULL;
    for (int i = 0; i < m->depth && i < DEEPEST; i++)
        if (m->frames[i].stmt->kind == STMT_FOR) loop = m->frames[i].stmt;
    return loop && may_be_gemm_loop(m->target, loop) && guard->if_.otherwise.count == 0 &&
           fills_slots_of(&guard->if_.then, loop->loop.iters[0].var);
}

static void play_if(SyncModel *m, State *s, Stmt *stmt) {
    Affine condition = affine_of(m->env, stmt->if_.condition);
    int64_t decided;
    if (affine_is_const(&condition, &decided) && (decided || !may_fill_with_zeros(m, stmt))) {
        play_block(m, s, decided ? &stmt->if_.then : &stmt->if_.otherwise);
        return;
    }
    State *other = state_copy(m, s);
    play_block(m, s, &stmt->if_.then);
    play_block(m, other, &stmt->if_.otherwise);
    state_union(m, s, other);
    state_free(m, other);
    forget_bodies(m, stmt);
}

static void play_iters(SyncModel *m, State *s, Stmt *stmt, int count, const Iter *iters, Block *body);

typedef struct Trips {
    int64_t count;
    Affine more;   // so many more of them in the middle
    bool open;     // or less: it may end before any of them
} Trips;

// From begin to the loop's end; where that is not known, what the scenario says.
static Affine length_of(SyncModel *m, const Iter *iter, const Affine *begin, int64_t *step) {
    Affine length = affine_add(affine_of(m->env, iter->end), *begin, -1);
    *step = 1;
    if (!take_scenario(m, iter->end->kind == EXPR_VAR ? iter->end->var : iter->var, &length))
        expr_const(iter->step, step);
    return length;
}

static Trips trips_of(SyncModel *m, const Stmt *stmt, const Iter *iter, const Affine *begin) {
    int64_t step, low, high, some = scenarios_period(m->scenarios, stmt) + 2;
    Affine more = affine_more(m->env, scenarios_multiple(m->scenarios, stmt), INT64_MAX);
    Affine length = length_of(m, iter, begin, &step);
    if (!affine_range(m->env, &length, &low, &high)) return (Trips){some, more, true};
    if (high <= 0) return (Trips){0};
    int64_t least = low < 0 ? 0 : low / step + (low % step != 0);
    if (low == high) return (Trips){least, affine_const(0), false};
    if (least < some) return (Trips){some, more, true};
    return (Trips){least, step == 1 ? affine_add(length, affine_const(low), -1) : more, false};
}

// The first iterations, some in the middle where there are many, and the last. Where it may end before any of them,
// what is live before each is live behind it.
static void play_iter(SyncModel *m, State *s, Stmt *stmt, int count, const Iter *iters, Block *body) {
    Affine begin = affine_of(m->env, iters->begin);
    Trips trips = trips_of(m, stmt, iters, &begin);
    State *left = trips.open ? state_copy(m, s) : NULL;
    int64_t more, step = 1, period = scenarios_period(m->scenarios, stmt), piece = period + 1;
    int64_t cut = trips.count > 3 * piece ? (trips.count - 3 * piece) / period * period : 0;
    Affine middle = cut ? affine_more(m->env, scenarios_multiple(m->scenarios, stmt), cut) : affine_const(0);
    bool all = !cut && !trips.open && affine_is_const(&trips.more, &more) && more == 0;   // are played
    expr_const(iters->step, &step);
    for (int64_t i = 0; i < trips.count - cut && !s->dead && !m->failed; i++) {
        if (cut && (i == piece || i == 2 * piece)) forget_assigned(m, body);
        else if (i > 0 && !all) forget_others(m, body);
        Affine at = affine_const(i);
        if (cut && i >= 2 * piece) at = affine_const(i + cut);
        else if (i >= piece) at = affine_add(at, middle, 1);
        if (2 * i >= trips.count - cut) at = affine_add(at, trips.more, 1);
        affine_bind(m->env, iters->var, affine_add(begin, at, step));
        if (attr_get(stmt->attrs, ATTR_TILE_LOOP)) drop_globals(s);
        play_iters(m, s, stmt, count - 1, iters + 1, body);
        if (left) state_union(m, left, s);
    }
    if (!left) return;
    state_union(m, s, left);
    state_free(m, left);
    forget_assigned(m, body);
}

static void play_iters(SyncModel *m, State *s, Stmt *stmt, int count, const Iter *iters, Block *body) {
    if (count > 0) play_iter(m, s, stmt, count, iters, body);
    else play_block(m, s, body);
}

// The condition is never decided: it may leave at any test. Its reads come again at the end of the body.
static void play_while(SyncModel *m, State *s, Stmt *stmt) {
    for (int64_t i = 0; i < scenarios_period(m->scenarios, NULL) + 2 && !s->dead && !m->failed; i++) {
        state_union(m, m->breaks, s);
        forget_assigned(m, &stmt->while_.body);
        play_block(m, s, &stmt->while_.body);
        if (s->dead) break;
        do_sync(m, s, sync_at(m, &stmt->while_.body));
        Sync place = {.at_end = &stmt->while_.body};
        play_accesses(m, s, accesses_of(m, stmt), false, place);
    }
}

static void play_loop(SyncModel *m, State *s, Stmt *stmt) {
    State *outer = m->breaks, *left = m->breaks = state_new(m);
    left->dead = true;
    if (stmt->kind == STMT_WHILE) play_while(m, s, stmt);
    else play_iters(m, s, stmt, stmt->loop.count, stmt->loop.iters, &stmt->loop.body);
    if (!left->dead) forget_bodies(m, stmt);   // it may have been left before they got these values
    state_union(m, s, left);
    state_free(m, left);
    m->breaks = outer;
}

static bool is_sync(const Stmt *stmt) {
    static const bool syncs[OP_COUNT] = {
        [OP_BARRIER] = true,     [OP_CP_ASYNC_COMMIT] = true, [OP_CP_ASYNC_WAIT] = true,
        [OP_FENCE_ASYNC] = true, [OP_BULK_WAIT] = true,       [OP_CLUSTER_BARRIER] = true};
    return stmt->kind == STMT_CALL && syncs[stmt->call.op];
}

// False: it is another one.
static bool sync_op_of(const Stmt *stmt, SyncOp *op, int64_t *groups) {
    *groups = 0;
    switch (stmt->call.op) {
    case OP_BARRIER:
        *op = SYNC_BARRIER;
        return !attr_get(stmt->attrs, ATTR_WARPGROUP) && (!stmt->call.count || !ARG(stmt, BARRIER, id).value);
    case OP_CP_ASYNC_COMMIT: *op = SYNC_COMMIT; return true;
    case OP_CP_ASYNC_WAIT: *op = SYNC_WAIT; return expr_const(ARG(stmt, CP_ASYNC_WAIT, n).value, groups);
    case OP_FENCE_ASYNC: *op = SYNC_FENCE; return true;
    case OP_BULK_WAIT: *op = SYNC_BULK; return true;
    default: return false;
    }
}

static void enter(SyncModel *m, const Stmt *stmt, int64_t passed) {
    bool loop = stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE;
    bool hoists = loop || map_has(m->plan->commits, stmt), copies = !loop || map_has(m->copying, stmt);
    if (m->depth < DEEPEST) m->frames[m->depth] = (Frame){stmt, passed, m->commits, hoists, copies};
    m->depth++;
}

static void play_stmt(SyncModel *m, State *s, Stmt *stmt) {
    SyncOp op;
    int64_t groups;
    if (stmt->kind == STMT_CALL && is_sync(stmt) && stmt->call.op != OP_CLUSTER_BARRIER) {
        if (sync_op_of(stmt, &op, &groups)) do_op(m, s, op, groups, NULL);
        return;
    }
    if (is_call(stmt, OP_MBARRIER_WAIT)) do_mbarrier_wait(m, s, stmt);
    if (attr_get(stmt->attrs, ATTR_ALONE)) take_slot(s, attr_int(stmt->attrs, ATTR_ALONE, -1));
    int64_t passed = play_statement(m, s, stmt);
    if (is_call(stmt, OP_CLUSTER_BARRIER)) do_op(m, s, SYNC_BARRIER, 0, NULL);
    enter(m, stmt, passed);
    switch (stmt->kind) {
    case STMT_LET:
    case STMT_VAR:
    case STMT_ASSIGN: play_let(m, stmt); break;
    case STMT_FOR:
    case STMT_WHILE:
        if (map_has(m->quiet, stmt)) forget_bodies(m, stmt);
        else if (!is_leaf(stmt)) play_loop(m, s, stmt);
        break;
    case STMT_IF: play_if(m, s, stmt); break;
    case STMT_BLOCK: play_block(m, s, &stmt->block); break;
    case STMT_GRID: play_block(m, s, &stmt->grid.body); break;
    case STMT_BREAK:
        if (m->breaks) state_union(m, m->breaks, s);
        s->dead = true;
        break;
    default: break;
    }
    m->depth--;
    if (map_has(m->plan->commits, stmt)) do_op(m, s, SYNC_COMMIT, 0, map_get(m->plan->commits, stmt));
}

static void play_block(SyncModel *m, State *s, Block *block) {
    enum { MOST_WORK = 1 << 22 };   // a second or two; kernels need up to 2^19
    for (int i = 0; i < block->count && !s->dead && !m->failed; i++) {
        if (++m->work > MOST_WORK) m->failed = true;
        else play_stmt(m, s, block->items[i]);
    }
}

// ---- the model ----

static void find_written(SyncModel *m) {
    EffectVec effects = {0};
    FOR_EACH_ITEM (stmt, m->body) path_effects(m->arena, stmt, &effects);
    VEC_EACH (const Effect, effect, &effects) {
        if (effect->access != ACCESS_READ) map_put(m->written, effect->buf, effect->buf);
        if (effect->op == OP_PEER) map_put(m->peered, effect->buf, effect->buf);
    }
    Map *seen = map_new(m->arena);
    VEC_EACH (const Effect, effect, &effects) {
        if (map_has(seen, effect->buf) && map_has(m->written, effect->buf)) map_put(m->reused, effect->buf, m);
        map_put(seen, effect->buf, m);
    }
}

// A started MMA reads shared memory until the wait that covers it, which reads it therefore, too: what is written then
// is ordered with the MMAs of all threads by a barrier behind that wait. Those of other blocks are complete
// (async_mma.c).
static void read_until(SyncModel *m, Stmt *wait, Block *started) {
    int64_t pending = 0;
    expr_const(ARG(wait, WGMMA_WAIT, n).value, &pending);
    while (started->count > pending) {
        VEC_EACH_PTR (MemAccess, access, accesses_of(m, started->items[0])) {
            MemAccess *read = NEW(m->arena, MemAccess);
            *read = *access;
            read->stmt = wait;
            vec_push(m->arena, accesses_of(m, wait), read);
        }
        block_remove(started, 0);
    }
}

// Roles that follow each other run side by side: what any of them needs stands before the first. (A barrier of the CTA
// between two of them would wait for the first one's end, which may wait for the second.)
static void join_roles(SyncModel *m, const Block *block) {
    MemAccessVec *first = NULL;
    FOR_EACH_ITEM (stmt, block) {
        MemAccessVec *accesses = accesses_of(m, stmt);
        if (stmt->kind != STMT_ROLE) {
            if (accesses->count > 0 || is_sync(stmt)) first = NULL;
        } else if (!first) {
            first = accesses;
        } else {
            VEC_EACH_PTR (MemAccess, access, accesses) vec_push(m->arena, first, access);
            accesses->count = 0;
        }
    }
}

// Every access is found and numbered before the first scenario. False: the block is quiet.
static bool number_accesses(SyncModel *m, Block *block) {
    bool any = false;
    Block started = {0};
    join_roles(m, block);
    FOR_EACH_ITEM (stmt, block) {
        MemAccessVec *accesses = accesses_of(m, stmt);
        int copies = m->copy_count;
        if (via_is(stmt, VIA_WGMMA) && stmt->call.is_async) block_push(m->arena, &started, stmt);
        if (is_call(stmt, OP_WGMMA_WAIT)) read_until(m, stmt, &started);
        for (int a = 0; a < accesses->count; a++) {
            accesses->items[a]->id = m->access_count++;
            m->copy_count += accesses->items[a]->async;
            m->by_proxy |= by_proxy(accesses->items[a]);
        }
        bool plays =
            accesses->count > 0 || is_sync(stmt) || stmt->kind == STMT_BREAK || map_has(m->plan->commits, stmt);
        FOR_EACH_BODY (body, stmt)
            if (!is_leaf(stmt)) plays |= number_accesses(m, body);
        if (!plays && (stmt->kind == STMT_FOR || stmt->kind == STMT_WHILE)) map_put(m->quiet, stmt, stmt);
        if (m->copy_count > copies) map_put(m->copying, stmt, stmt);
        any |= plays;
    }
    return any;
}

SyncModel *sync_model_new(Arena *arena, const Target *target, Block *body, const Map *awaited, SyncPlan *plan,
                          int scenarios) {
    SyncModel *m = NEW(arena, SyncModel);
    *m = (SyncModel){.arena = arena, .target = target, .body = body, .plan = plan, .awaited = awaited};
    m->env = affine_env(arena);
    m->accesses = map_new(arena), m->written = map_new(arena), m->reused = map_new(arena), m->peered = map_new(arena);
    m->quiet = map_new(arena), m->copying = map_new(arena);
    find_written(m);
    number_accesses(m, body);
    m->scenarios = scenarios_new(arena, body, m->quiet, scenarios);
    m->same = NEW_ARRAY(arena, signed char, (size_t)m->access_count *(size_t)m->access_count + 1);
    m->buckets = NEW_ARRAY(arena, Place *, PLACE_BUCKETS);
    return m;
}

static bool play_all(SyncModel *m, bool placing) {
    m->placing = placing;
    m->failed = false;
    scenarios_reset(m->scenarios);
    do {
        m->depth = 0;
        scenario_start(m->scenarios, m->env);
        drop_places(m);
        State *s = state_new(m);
        play_block(m, s, m->body);
        EXPECT(arena_failure(m->arena), m->depth == 0, "%d statements are left open", m->depth);
        state_free(m, s);
        m->breaks = NULL;
    } while (!m->failed && scenarios_next(m->scenarios));
    return !m->failed;
}

bool sync_model_place(SyncModel *m) {
    bool placed = play_all(m, true);
    m->work = 0;
    return placed;
}

bool sync_model_check(SyncModel *m) {
    return play_all(m, false);
}

void sync_model_weigh(SyncModel *m) {
    m->weighing = true;
    play_all(m, false);
    m->weighing = false;
}
