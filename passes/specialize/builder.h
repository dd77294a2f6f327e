// Warp specialization: kernels with products become roles of one CTA that meet at mbarriers.
//
// In: a tile-stage kernel whose loads and gemms have mechanisms (`@via(tma)`, `@via(wgmma)`) and whose tiles are
// multi-buffered. Out: a producer role, an optional transposer, and consumer roles with asynchronous MMA, over
// persistent CTAs where tiles take equally long; other kernels are unchanged.
//
//     specialize_kind.c   whether and how: ping-pong, cooperative, or not; registers and shared memory of roles
//     plan.c              the pass that writes the decision on the grid; plan_slots.c: how many slots tiles have
//     start_products.c    the pass before: products ahead of work that they do not wait for
//     warp_specialize.c   the pass; ping-pong kernels: each consumer warpgroup computes a tile of its own
//     ws_analysis.c       cooperative kernels: tiles, live ranges, rings, the producer's slice, legality
//     cooperative.c       ... their roles: all consumer warpgroups compute one tile
//     emit_producer.c     ... producer and transposer      emit_consumer.c   ... consumers
//     persistent_loop.c   ... the persistent loop over tiles
//     shared_loads.c      ... and ping-pong ones: multicast within a cluster
//     share_steps.c       ... two consumer roles for a tile of one warpgroup
//     masked_steps.c      ... steps that a mask leaves a warpgroup nothing of
//     sink.c, split_operands.c, prefetch_loads.c, mma_pipelining.c, async_mma.c, order_barriers.c   rewrite a consumer's
//                         body, in this order
//
// This header: helpers that both kinds use to build roles.
#pragma once
#include "ir/build.h"
#include "ir/schedule.h"
#include "passes/analysis/util.h"
#include "passes/grid/tile_claims.h"
#include "passes/select/tma.h"
#include "passes/specialize/async_mma.h"
#include "passes/specialize/warp_specialize.h"
#include "support/map.h"
#include "support/numbers.h"

// Multicast: CTAs that share a tile, and the distance of their ranks; NULL: a tile of one CTA.
typedef struct Sharing {
    Expr *blocks, *rank_stride;
    int along;   // the name of the grid along which they are, of a cluster whose shape the launch chooses; 0: the shape is fixed
} Sharing;
typedef VEC(Sharing) SharingVec;

typedef struct RoleBuilder {
    PassContext *context;
    Arena *arena;
    const Func *kernel;
    Groups groups;
    Stmt *grid;
    Span loc;
    int cluster;   // CTAs that share loads; 1: none
    // Of a cluster whose shape the launch chooses, by name of the grid: the index of this CTA and of the last one along it, and the CTAs
    // along it by rank.
    Expr *places[CLUSTER_NAMES], *last_places[CLUSTER_NAMES], *masks[CLUSTER_NAMES];
    int consumers;                // compute groups, of a warpgroup each; of one role, where several share steps
    int members;                  // compute roles that share the steps of a tile (share_steps.c)
    Expr *tiles, *ctas, *waves;   // number of tiles; of persistent CTAs; of this CTA's tiles
    Var *cta, *block;
    Expr *sections,
        *section;    // LPT: number of sections, tiles per section; `waves` are then of one section
    Expr *shift;     // a section begins this many CTAs after the one before
    Claims claims;   // of dynamic claims
    Var *quotient;   // the section of a tile, as its lets name it
    // ping-pong
    Block shared, fragments, work;   // statements of one tile, sorted
    Stmt *loop;
    int64_t slots;         // of the multi-buffered tiles
    bool single_tile;      // a CTA has one tile: no wait for its last slots
    SharingVec sharings;   // of its tiles, distinct
    Facts *facts;
    bool some_steps;   // every tile has an MMA
    Buf *full, *empty;
    Expr *steps;   // per tile; NULL: not equal
} RoleBuilder;

// Ping-pong: the largest number of consumers; registers of a thread for addresses and counters.
enum { PINGPONG_MOST = 2, PINGPONG_ROOM = 32 };

const Stmt *pipelined_loop(const Stmt *grid);                   // the first one of its body; NULL: none
typedef enum { LOADS_ALL, LOADS_WAITING, LOADS_AHEAD } Loads;   // AHEAD: `@independent` tensors
int64_t loaded_bytes(const Func *kernel, const Stmt *loop, Loads loads);

// With cooperative consumers, or why there can be none.
Specialization cooperative_specialization(Arena *arena, const Target *target, const Func *kernel);
// One statement of the kernel (or one of each branch) writes the buffer, and no CTA reads it after that.
bool written_last(Arena *arena, const Func *kernel, const Buf *buf);
// Consumer warpgroups, and the roles among them that share the steps of a tile.
int cooperative_warpgroups(Arena *arena, const Target *target, const Func *kernel, int *members);
static inline int tile_warpgroups(Arena *arena, const Target *target, const Func *kernel) {
    int members;
    return cooperative_warpgroups(arena, target, kernel, &members);
}
bool cooperative_equal_tiles(Arena *arena,
                             const Func *kernel);   // all tiles have the same number of steps: CTAs are persistent
bool specialize_cooperative(PassContext *context, Func *kernel);   // false: it cannot be any more

// Registers that each thread starts with, in whole units; more than a thread may have where the warpgroups are few.
int64_t initial_registers(const Target *target, int warpgroups);
// Registers of a consumer thread, with `consumers` consumer warpgroups and `producers` others of `producer` registers
// per thread; 0: the maximum.
int64_t consumer_registers(const Target *target, int consumers, int producers, int64_t producer);
// Registers of a producer thread when consumers need so many. `most`: what it has where the consumers leave so many.
int64_t producer_registers(const Target *target, int consumers, int producers, int64_t most, int64_t needed);

// The expression in names that are the same for all tiles, or in `known` (NULL: none); NULL: it depends on others.
Expr *common_value(Arena *arena, const Block *work, Subst *known, Expr *expr);
// Trip count of the loop in names that are the same for all tiles; NULL: it differs.
Expr *common_trips(Arena *arena, const Block *work, const Stmt *loop);

// The last MMA of an iteration, with A in registers, moves behind the first MMA of the next one (mma_pipelining.c).
void pipeline_mma(Arena *arena, Facts *facts, Block *block, Map *consumes);

// Two roles may share the steps of a tile of 64 rows (share_steps.c).
enum { SHARED_STEPS = 2 };
// Groups that share the columns of one strip.
enum { COLUMN_GROUPS = 2 };
bool may_share_steps(Arena *arena, const Func *kernel);
int64_t shared_steps_bytes(const Func *kernel);   // of shared memory in which they add their accumulators
Buf *declare_sum(RoleBuilder *p, Block *out);     // this memory
Var *push_first_step(RoleBuilder *p, int member, Block *out);
// The consumer's work becomes that of one member: each second step, then the sum, and the epilogue by the first one.
void share_steps(RoleBuilder *p, int member, Var *first_step, Buf *sum, Block *work);

// Left operands that threads convert in registers become pieces along k (split_operands.c).
void split_operands(Arena *arena, const Target *target, Block *role, const Map *consumes);
bool converts_tile(Arena *arena, const Stmt *stmt, const Buf *buf);   // in shared memory to the whole fragment
bool multiplies_converted(Arena *arena, const Block *body);           // all its MMAs have such left operands

// Vectors that an iteration loads from global memory into registers come an iteration ahead (prefetch_loads.c).
void prefetch_loads(Arena *arena, Block *block);

// Order barriers between consumer warpgroups around the MMAs of a loop with one row of MMAs per iteration
// (order_barriers.c).
void insert_order_barriers(Arena *arena, Block *block);

// Cleanup of a role's body (sink.c): an MMA overwrites its accumulator instead of a fill with zeros; declarations of
// fragments move into the only loop that uses them; scalars move behind the last loop that does not use them.
void fold_zero_init(Arena *arena, Facts *facts, Block *block);
void sink_fragments(Arena *arena, Block *block);
void sink_scalars(Arena *arena, Block *block, const Map *consumes);

void learn_scalars(Facts *facts, const Block *block);   // adds the scalars and assumptions of the block itself

// ---- expressions and calls ----

// Shared memory that a pass added for the consumers.
static inline bool is_scratch(const Stmt *stmt) {
    return is_shared_decl(stmt) && attr_get(stmt->decl->attrs, ATTR_SCRATCH);
}

// A loop that each thread executes: iterations are not spread over the threads.
static inline bool is_thread_loop(const Stmt *stmt) {
    return stmt->kind == STMT_FOR && stmt->loop.kind != LOOP_PARALLEL;
}

static inline bool is_wgmma(const Stmt *stmt) {
    return is_call(stmt, OP_GEMM) && via_is(stmt, VIA_WGMMA);
}

static inline bool is_scalar(const Stmt *stmt) {
    return stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME;
}

static inline Expr *integer(RoleBuilder *p, int64_t value) {
    return e_int(p->arena, value);
}

static inline Expr *small(RoleBuilder *p, int64_t value) {
    return e_int_of(p->arena, TYPE_I32, value);
}

static inline Expr *bind(RoleBuilder *p, const char *name, Expr *value, Block *out) {
    return block_name(p->arena, out, name, value, p->loc);
}

#define PUSH_CALL(p, out, op, ...) BLOCK_CALL((p)->arena, out, (p)->loc, op, __VA_ARGS__)

static inline Arg element(RoleBuilder *p, Buf *buf, Expr *index) {
    return arg_element(p->arena, buf, index);
}

// An operation on an mbarrier; value NULL: one operand.
static inline Stmt *push_on(RoleBuilder *p, OpId op, Buf *bar, Expr *index, Expr *value, Block *out) {
    Arg args[] = {element(p, bar, index), {.value = value}};
    return block_call(p->arena, out, p->loc, op, value ? 2 : 1, args);
}

static inline void push_range(RoleBuilder *p, Expr *x, Expr *low, Expr *end, Block *out) {
    Expr *within = e_and(p->arena, e_ge(p->arena, x, low), e_lt(p->arena, x, end));
    block_push(p->arena, out, s_assume(p->arena, within, p->loc));
}

// ---- slots ----

// Slot and parity counters, declared in `out`. With one slot only the parity changes.
typedef struct Counter {
    Var *slot, *parity;
    int64_t slots;
    int64_t stride;   // of the role's slots; 0: it has all
} Counter;

static inline Counter push_counter(RoleBuilder *p, const char *prefix, int64_t slots, int parity, Block *out) {
    Arena *a = p->arena;
    Counter counter = {.slots = slots};
    EXPECT(p->context->failure, slots > 0, "a ring of %lld slots", (long long)slots);
    counter.parity = var_new(a, arena_printf(a, "%sparity", prefix), VAR_MUTABLE, TYPE_I32, p->loc);
    if (slots > 1) {
        counter.slot = var_new(a, arena_printf(a, "%sslot", prefix), VAR_MUTABLE, TYPE_I32, p->loc);
        block_push(a, out, s_var(a, counter.slot, small(p, 0)));
    }
    block_push(a, out, s_var(a, counter.parity, small(p, parity)));
    return counter;
}

static inline Expr *slot_index(RoleBuilder *p, const Counter *counter) {
    return counter->slot ? e_cast(p->arena, TYPE_I64, e_var(p->arena, counter->slot)) : integer(p, 0);
}

// Waits for the counter's phase of the slot.
static inline void push_slot_wait(RoleBuilder *p, Buf *bar, const Counter *counter, Block *out) {
    push_on(p, OP_MBARRIER_WAIT, bar, slot_index(p, counter), e_var(p->arena, counter->parity), out);
}

static inline void push_advance(RoleBuilder *p, const Counter *counter, Block *out) {
    Arena *a = p->arena;
    if (counter->slot && counter->stride > 1) {
        Expr *slot = e_var(a, counter->slot);
        block_push(a, out, s_assign(a, counter->slot, e_add(a, slot, small(p, counter->stride))));
        out = block_if(a, out, e_ge(a, slot, small(p, counter->slots)));
        block_push(a, out, s_assign(a, counter->slot, e_sub(a, slot, small(p, counter->slots))));
    } else if (counter->slot) {
        Expr *slot = e_var(a, counter->slot);
        block_push(a, out, s_assign(a, counter->slot, e_add(a, slot, small(p, 1))));
        out = block_if(a, out, e_eq(a, slot, small(p, counter->slots)));
        block_push(a, out, s_assign(a, counter->slot, small(p, 0)));
    }
    block_push(a, out, s_assign(a, counter->parity, e_xor(a, e_var(a, counter->parity), small(p, 1))));
}

static inline Buf *push_barriers(RoleBuilder *p, const char *name, int64_t slots, Block *out) {
    EXPECT(p->context->failure, slots > 0, "%lld mbarriers '%s'", (long long)slots, name);
    Buf *buf = buf_new_const(p->arena, name, SCOPE_SHARED, TYPE_MBARRIER, 1, &slots, p->loc);
    block_push(p->arena, out, s_decl(p->arena, buf));
    return buf;
}

// ---- loops, roles ----

static inline Stmt *push_loop(RoleBuilder *p, const char *name, Expr *count, Expr **index, Block *out) {
    Var *var = var_new(p->arena, name, VAR_ITER, TYPE_I64, p->loc);
    Stmt *loop = s_for(p->arena, LOOP_SERIAL, var, integer(p, 0), count);
    loop->loc = p->loc;
    block_push(p->arena, out, loop);
    *index = e_var(p->arena, var);
    return loop;
}

static inline Stmt *push_tile_loop(RoleBuilder *p, const char *name, Expr *count, Expr **index, Block *out) {
    Stmt *loop = push_loop(p, name, count, index, out);
    attr_set_ints(p->arena, &loop->attrs, ATTR_TILE_LOOP, 0, NULL);
    return loop;
}

static inline Stmt *push_role(RoleBuilder *p, const char *name, int64_t threads, int64_t regs, Block *out) {
    const Target *target = p->context->target;
    EXPECT(p->context->failure, threads > 0 && threads % target->warp_lanes == 0, "a role of %lld threads",
           (long long)threads);
    EXPECT(p->context->failure, regs % target->register_unit == 0, "a role of %lld registers", (long long)regs);
    Stmt *role = stmt_new(p->arena, STMT_ROLE, p->loc);
    role->role.name = name;
    role->role.threads = threads;
    role->role.regs = regs;
    block_push(p->arena, out, role);
    return role;
}

// The number of a tile, under the name that its lets use.
static inline void push_block(RoleBuilder *p, Expr *number, Subst *subst, Block *out) {
    Var *block = var_new(p->arena, p->block->name, VAR_LET, TYPE_I64, p->loc);
    block_push(p->arena, out, s_let(p->arena, block, number));
    push_range(p, e_var(p->arena, block), integer(p, 0), p->tiles, out);
    subst_var(subst, p->block, e_var(p->arena, block));
}

// Sets the grid: `ctas` CTAs, each with at least one producer warpgroup and the consumers.
static inline void set_grid(RoleBuilder *p, Expr *ctas, int producers, Block body) {
    Stmt *grid = p->grid;
    EXPECT(p->context->failure, p->consumers > 0 && producers > 0, "%d consumers and %d producers", p->consumers,
           producers);
    grid->grid.iters = NEW(p->arena, Iter);
    *grid->grid.iters = (Iter){p->cta, integer(p, 0), ctas, integer(p, 1)};
    int warpgroups = producers + p->consumers * (int)larger(p->members, 1);
    grid->grid.threads = integer(p, warpgroups * target_warpgroup(p->context->target));
    grid->grid.body = body;
}

static inline Expr *persistent_ctas(RoleBuilder *p) {
    Expr *most = e_sms(p->arena);
    if (p->cluster > 1) {   // whole clusters; pairs always fit
        Arena *a = p->arena;
        bool chooses = chooses_cluster(p->grid);
        Expr *blocks = chooses ? e_cluster_ctas(a) : integer(p, p->cluster), *clusters = e_div(a, most, blocks);
        Expr *stray = e_div(a, clusters, integer(p, p->context->target->wgmma.stray_clusters));
        if (chooses) stray = e_select(a, e_lt(a, integer(p, 2), blocks), stray, integer(p, 0));
        if (chooses || p->cluster > 2) clusters = e_sub(a, clusters, stray);
        most = e_mul(a, e_max(a, clusters, integer(p, 1)), blocks);
    }
    return e_min(p->arena, p->grid->grid.iters[0].end, most);
}

// A product of numbers of tiles, with those of small tiles, which are as many or more. Larger divisors than those of tiles are
// slices of k. Of clusters whose shape the launch chooses, as many as if each point took a whole one: extents along the second name are
// within those.
static inline Expr *as_small_tiles(Arena *arena, Expr *count) {
    enum { SMALL = 16, LARGEST = 256 };
    int64_t tile;
    if (expr_equal(count, e_cluster_ctas(arena))) return e_int(arena, MOST_CLUSTER);
    if (is_binary(count, BIN_MUL) && expr_equal(count->binary.b, e_cluster_extent(arena, 1)))
        return as_small_tiles(arena, count->binary.a);
    if (is_binary(count, BIN_MUL))
        return e_mul(arena, as_small_tiles(arena, count->binary.a), as_small_tiles(arena, count->binary.b));
    if (is_expr_call(count, OP_CLUSTER_EXTENT)) return e_int(arena, MOST_CLUSTER);
    if (is_expr_call(count, OP_CEILDIV) && is_expr_call(ARG(count, CEILDIV, b).value, OP_CLUSTER_EXTENT))
        return as_small_tiles(arena, ARG(count, CEILDIV, a).value);
    if (!is_expr_call(count, OP_CEILDIV) || !expr_const(ARG(count, CEILDIV, b).value, &tile)) return count;
    Expr *of = as_small_tiles(arena, ARG(count, CEILDIV, a).value);
    return e_call2(arena, OP_CEILDIV, of, e_int(arena, tile > SMALL && tile <= LARGEST ? SMALL : tile));
}

// Tile numbers fit 32 bits. The launch of a persistent grid does not reject larger numbers; that of a plain grid does. The
// condition is that of small tiles: it implies the kernel's own, and all tiles that a launch chooses among have it in common.
static inline void want_few_tiles(PassContext *context, Func *kernel, const Stmt *grid) {
    Arena *a = context->arena;
    Expr *tiles = as_small_tiles(a, grid->grid.iters[0].end);
    kernel->when = e_both(a, kernel->when, e_lt(a, tiles, e_int(a, context->target->max_grid)));
}

// ---- MMAs and stores ----

static inline void push_wait(RoleBuilder *p, int64_t pending, Block *out) {
    PUSH_CALL(p, out, OP_WGMMA_WAIT, arg_int(p->arena, pending));
}

static inline Arg staging_buffer(RoleBuilder *p, const char *name, Type type, int rank, const int64_t *shape,
                                 Block *out) {
    Buf *buf = buf_new_const(p->arena, name, SCOPE_SHARED, type, rank, shape, p->loc);
    buf->stage_dims = rank - 2;
    block_push(p->arena, out, s_decl(p->arena, buf));
    return arg_region(region_whole(p->arena, buf));
}

static inline void set_staging(RoleBuilder *p, Stmt *copy, Arg whole, Arg tail) {
    call_set_arg(p->arena, copy, OPERAND_INDEX(COPY, stage), whole);
    call_set_arg(p->arena, copy, OPERAND_INDEX(COPY, tail), tail);
}

// Staging for a TMA store, for each of `warpgroups`. `out`: where the role's shared memory is declared.
static inline void add_staging(RoleBuilder *p, Stmt *copy, int64_t warpgroups, Block *out) {
    TmaStore store;
    if (tma_epilogue_problem(p->context->target, copy, &store)) return;
    Type type = copy_of(copy).dst->buf->type;
    int64_t whole[] = {warpgroups, TMA_STORE_SLOTS, store.slot[0], store.slot[1]};
    int64_t tail[] = {warpgroups, store.rows, store.tail_columns};
    int one = warpgroups == 1;   // no dim needed
    bool by_tma = via_is(
        copy, VIA_TMA_STORE);   // threads read what they store as vectors: another name tells its conflicts apart
    Arg whole_arg = {0}, tail_arg = {0};
    if (store.chunks) whole_arg = staging_buffer(p, by_tma ? "stage" : "row_stage", type, 4 - one, whole + one, out);
    else tail_arg = staging_buffer(p, by_tma ? "tail" : "row_tail", type, 3 - one, tail + one, out);
    set_staging(p, copy, whole_arg, tail_arg);
}
