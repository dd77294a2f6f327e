// TMA copies in kernels without warp specialization: legality beyond the rules of TMA itself (tma.h), and cost.
//
//     memory     TMA uses another proxy. The kernel must not write global memory that TMA reads, and must not access
//                global memory that TMA writes. A tile that TMA fills is filled by TMA only; threads only read it. (If
//                tiles share storage, insert-sync adds a fence.)
//     waits      each start has its wait (insert_mbarriers.c places them), with a phase bit for each slot
//     order      the tile has a TMA swizzle: good for access by rows and for MMA operands; bank conflicts by columns
//     cost       a TMA copy is a few instructions of one thread and a wait of all threads; cp.async is one instruction
//                per 16 bytes of a thread, but has less latency. TMA pays in loops with several MMAs, which need the
//                issue slots and are long enough to hide the latency. A loop with one MMA loads fragments ahead with
//                cp.async (lower_gemm_loop.c), which gains more. `@via(tma)` in the source skips this estimate, and so do
//                operands of wgmma, which would need a fence and a barrier behind the copies of threads.
//
// Speed of TMA relative to cp.async on an H200:
//
//     gemm_swiglu, 2^20 multiply-adds an iteration    1.22
//     attention, head dim 128; 64                     1.05; 0.88
//     loops without MMAs, straight-line code          0.71 to 0.97
#include "passes/select/tma_simple.h"
#include "ir/channels.h"
#include "ir/rewrite.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/cost/occupancy.h"
#include "passes/layout/shared_lifetimes.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"
#include "support/numbers.h"
#include <limits.h>

enum { LEAST_VECTORS = 2 };   // that each thread would copy by cp.async

// A copy into a slot that a role receives: lower-channels gives it the slot's mbarrier.
static bool fills_handed_slot(const Func *kernel, const Stmt *copy) {
    const Buf *channel = is_global_to_shared_copy(copy) ? copy_of(copy).dst->buf->channel : NULL;
    return channel && role_uses_channel(kernel, channel);
}

static const char *kernel_problem(const Func *kernel) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD)
            return "the kernel uses thread indices: write it with tile operations";
    return grid_blocks(func_grid(kernel)) > 1 ? "a tile spans a cluster: use at most 1024 threads" : NULL;
}

static const char *slot_problem(Arena *arena, const Func *kernel, const Buf *tile) {
    return is_used_before_commit(arena, kernel, tile) ? "its role works on the tile before the commit" : NULL;
}

// ---- uses of tiles and tensors ----

typedef struct TileUses {
    bool filled;    // by something other than copies from global memory
    bool across;    // read or written across its rows
    bool dynamic;   // with unknown indices
} TileUses;

typedef struct TensorUses {
    int all, but_additions;   // which may come in any order
} TensorUses;

struct KernelUses {
    const Func *kernel;
    const char *problem;    // why the CTA copies nothing by TMA; NULL: it may
    Map *tiles, *tensors;   // Buf -> TileUses, TensorUses
    bool full;              // shared memory: no mbarrier fits
    Map *received;   // handles of slots that a group has received: what it writes there is over before the next copy
};

static TileUses *tile_uses(Arena *arena, const KernelUses *uses, const Buf *tile) {
    TileUses *found = map_get(uses->tiles, tile);
    if (!found) map_put(uses->tiles, tile, found = NEW(arena, TileUses));
    return found;
}

static bool is_received(const KernelUses *uses, const Expr *slot) {
    return slot->kind == EXPR_VAR && map_has(uses->received, slot->var);
}

// From a slot that a role has received: lower-channels gives it back when TMA has read it.
static bool empties_slot(const KernelUses *uses, const Stmt *copy) {
    if (!is_shared_to_global_copy(copy)) return false;
    const Region *tile = copy_of(copy).src;
    return tile->buf->channel && role_uses_channel(uses->kernel, tile->buf->channel) &&
           is_received(uses, tile->dims[0].start);
}

static void use_by_loop(Arena *arena, const KernelUses *uses, const TileLoop *loop, const Buf *filled) {
    TileAccessVec accesses = {0};
    tile_accesses(arena, loop, &accesses);
    int fast = loop_fast_dim(loop, &accesses);
    VEC_EACH (const TileAccess, access, &accesses) {
        if (access->buf == filled) continue;
        TileUses *tile = tile_uses(arena, uses, access->buf);
        tile->filled |= access->is_store && !is_received(uses, access->indices[0]);
        tile->dynamic |= access->is_peer;
        tile->across |= loop->rank > 0 && access_stride(access, loop->iters[fast]) == STRIDE_OTHER;
    }
}

static void find_tiles(Arena *arena, const KernelUses *uses) {
    FOR_EACH_STMT (stmt, &uses->kernel->body)
        if (is_receive(stmt)) map_put(uses->received, stmt->let.var, stmt->let.var);
    FOR_EACH_STMT_MUT (stmt, &uses->kernel->body) {
        TileLoop loop;
        const Buf *filled = is_global_to_shared_copy(stmt) ? copy_of(stmt).dst->buf : NULL;
        if (stmt->kind == STMT_STORE && !is_received(uses, stmt->store.indices[0]))
            tile_uses(arena, uses, stmt->store.buf)->filled = true;
        if (is_call(stmt, OP_GEMM) || via_is(stmt, VIA_TRANSPOSE)) continue;   // by rows
        if (tile_loop_of(arena, stmt, &loop)) {
            use_by_loop(arena, uses, &loop, filled);
            SKIP_BODY(stmt);
        } else if (stmt->kind == STMT_CALL) {
            FOR_EACH_EFFECT (effect, arena, stmt)
                if (effect->buf != filled) tile_uses(arena, uses, effect->buf)->dynamic = true;
        }
    }
}

static void find_tensors(Arena *arena, const KernelUses *uses) {
    FOR_EACH_STMT (stmt, &func_grid(uses->kernel)->grid.body) {
        Block *bodies[2];
        bool whole = is_loop(stmt, LOOP_PARALLEL);
        if (!whole && stmt_bodies((Stmt *)stmt, bodies) > 0) continue;
        FOR_EACH_EFFECT (effect, arena, stmt) {
            TensorUses *tensor = map_get(uses->tensors, effect->buf);
            if (!tensor) map_put(uses->tensors, effect->buf, tensor = NEW(arena, TensorUses));
            tensor->all++;
            tensor->but_additions += !is_addition(stmt) || effect->access != ACCESS_UPDATE;
        }
        if (whole) SKIP_BODY(stmt);
    }
}

// ---- space ----

static int64_t slots_of(const Occupancy *estimate, const Buf *buf) {
    VEC_EACH (const OccupancyBuffer, b, &estimate->buffers)
        if (b->buf == buf) return b->stages;
    return 1;
}

// With slots, in whole periods of the panels: other buffers may end between. Small ones live throughout (swizzle-allocation).
static void place_life(const Target *target, const Occupancy *estimate, SharedLifetime *life) {
    int64_t period = (int64_t)tma_facts.spans[0] * tma_facts.swizzle_rows;
    life->bytes = buf_space(life->buf) * slots_of(estimate, life->buf) * life->members;
    if (life->bytes <= target->line_bytes && life->first >= 0) life->first = 0, life->last = INT_MAX;
    if (life->bytes >= period) life->bytes = ceil_div(life->bytes, period) * period;
}

static int64_t bytes_at(const SharedLifetimes *lifetimes, int time) {
    int64_t bytes = 0;
    VEC_EACH (const SharedLifetime, life, &lifetimes->items)
        if (life->first >= 0 && life->first <= time && time <= life->last) bytes += life->bytes;
    return bytes;
}

// What lives at any one time leaves space for an mbarrier for each slot that is loaded. (Operands in fragments that go
// through shared memory have no buffers yet.)
static bool leaves_space(Arena *arena, const Target *target, const Func *kernel) {
    Occupancy estimate = occupancy_estimate(arena, kernel, target);
    SharedLifetimes lifetimes = shared_lifetimes(arena, kernel);
    int64_t throughout = 0, most = 0;
    VEC_EACH (const OccupancyBuffer, b, &estimate.buffers) {
        if (b->buf->scope == SCOPE_FRAGMENT) throughout += b->bytes;
        else if (b->is_loaded) throughout += b->stages * type_bytes(TYPE_MBARRIER);
    }
    VEC_EACH (SharedLifetime, life, &lifetimes.items) place_life(target, &estimate, life);
    VEC_EACH (const SharedLifetime, life, &lifetimes.items) most = larger(most, bytes_at(&lifetimes, life->first));
    return most + throughout <= target->shared_block;
}

const KernelUses *kernel_uses_new(Arena *arena, const Target *target, const Func *kernel) {
    KernelUses *uses = NEW(arena, KernelUses);
    *uses = (KernelUses){.kernel = kernel,
                         .problem = kernel_problem(kernel),
                         .tiles = map_new(arena),
                         .tensors = map_new(arena),
                         .received = map_new(arena),
                         .full = !leaves_space(arena, target, kernel)};
    find_tiles(arena, uses);
    find_tensors(arena, uses);
    return uses;
}

static TileUses uses_of(const KernelUses *uses, const Buf *tile) {
    const TileUses *found = map_get(uses->tiles, tile);
    return found ? *found : (TileUses){0};
}

static TensorUses tensor_uses(const KernelUses *uses, const Buf *tensor) {
    const TensorUses *found = map_get(uses->tensors, tensor);
    return found ? *found : (TensorUses){0};
}

static const char *loop_problem(Arena *arena, const KernelUses *uses, const Stmt *copy, const Stmt *loop) {
    bool handed = fills_handed_slot(uses->kernel, copy);
    const char *why = handed                     ? slot_problem(arena, uses->kernel, copy_of(copy).dst->buf)
                      : empties_slot(uses, copy) ? NULL
                                                 : uses->problem;
    bool many = loop && loop_stages(loop) >= type_bits(TYPE_I32);
    return !why && many ? "its loop has 32 or more stages: use fewer" : why;
}

static const char *space_problem(const KernelUses *uses, const Stmt *copy) {
    bool needed = is_global_to_shared_copy(copy) && !fills_handed_slot(uses->kernel, copy);
    return uses->full && needed ? "its mbarriers need shared memory that buffers and slots take: use fewer stages or "
                                  "smaller tiles"
                                : NULL;
}

// (Of a tile whose layout the source says, it has decided.)
static const char *tile_problem(const TileUses *uses, const Buf *tile) {
    if (tile && tile->layout) return NULL;
    if (uses->dynamic) return "another operation fixes the layout of its tile: give that one a tile of its own";
    return uses->across
               ? "its tile is accessed by columns, which has bank conflicts with the TMA swizzles: access it by rows"
               : NULL;
}

// ---- loads ----

static const char *load_problem(const Stmt *copy, const TileUses *uses) {
    if (!buf_is_constant(buf_viewed(copy_of(copy).src->buf)))
        return "the kernel writes the tensor that it copies from: write to another one";
    return uses->filled ? "its tile is written by threads too: give them another one" : NULL;
}

// ---- stores ----

// Each value of the iterator has a place of its own: some dim moves by its whole extent at least.
static bool has_own_place(const Region *region, const Iter *iter) {
    int64_t step = 0, each = 0;
    for (int d = 0; d < region->count; d++) {
        if (!expr_const(iter->step, &step) || !linear_in(region->dims[d].start, iter->var, &each)) continue;
        if (larger(each, -each) * step >= larger(region_extent(region, d), 1)) return true;
    }
    return false;
}

static bool is_repeated_by(const Stmt *loop, const Stmt *copy) {
    bool tiles = attr_get(loop->attrs, ATTR_TILE_LOOP) != NULL;
    if ((loop->kind != STMT_WHILE && (loop->kind != STMT_FOR || tiles)) || !stmt_contains(loop, copy)) return false;
    if (loop->kind == STMT_WHILE) return true;
    for (int i = 0; i < loop->loop.count; i++)
        if (!has_own_place(copy_of(copy).dst, &loop->loop.iters[i])) return true;
    return false;
}

bool stores_again(const Func *kernel, const Stmt *copy) {
    FOR_EACH_STMT (loop, &func_grid(kernel)->grid.body)
        if (is_repeated_by(loop, copy)) return true;
    return false;
}

static bool releases(const Stmt *loop, const Var *handle) {
    FOR_EACH_STMT_IN (stmt, loop)
        if (is_call(stmt, OP_RELEASE) && ARG(stmt, RELEASE, slot).value->var == handle) return true;
    return false;
}

// A slot is stored to the same place again before it is given back: only that waits for the writes.
static bool is_repeated_from_slot(const Func *kernel, const Stmt *copy) {
    const Var *handle = copy_of(copy).src->dims[0].start->var;
    FOR_EACH_STMT (loop, &func_grid(kernel)->grid.body)
        if (is_repeated_by(loop, copy) && !releases(loop, handle)) return true;
    return false;
}

// Uses of a tensor in a block, each statement by itself; -1: it is not only written. (Roles within are not entered.)
static int writes_of(Arena *arena, const Block *block, const Buf *tensor) {
    int count = 0;
    FOR_EACH_STMT (stmt, block) {
        if (stmt->kind == STMT_ROLE) {
            SKIP_BODY(stmt);
            continue;
        }
        Stmt alone = stmt_alone(stmt);
        FOR_EACH_EFFECT (effect, arena, &alone) {
            if (effect->buf != tensor) continue;
            if (effect->access != ACCESS_WRITE) return -1;
            count++;
        }
    }
    return count;
}

// The only use of its tensor, but for what other roles write: nothing orders that with what this one does.
static bool is_alone_in_role(Arena *arena, const KernelUses *uses, const Stmt *copy) {
    const Buf *tensor = buf_viewed(copy_of(copy).dst->buf);
    const Block *body = &func_grid(uses->kernel)->grid.body;
    if (writes_of(arena, body, tensor) != 0) return false;
    FOR_EACH_STMT (role, body) {
        if (role->kind != STMT_ROLE) continue;
        int count = writes_of(arena, &role->role.body, tensor);
        if (count < 0 || (stmt_contains(role, copy) && count != 1)) return false;
        SKIP_BODY(role);
    }
    return true;
}

static const char *store_problem(Arena *arena, const KernelUses *uses, const Stmt *copy) {
    bool alone = empties_slot(uses, copy) ? is_alone_in_role(arena, uses, copy)
                                          : tensor_uses(uses, buf_viewed(copy_of(copy).dst->buf)).all == 1;
    if (!alone) return "its tensor is used elsewhere too: store to it in one place";
    bool again =
        empties_slot(uses, copy) ? is_repeated_from_slot(uses->kernel, copy) : stores_again(uses->kernel, copy);
    return again ? "it may write the same elements several times: store after the loop" : NULL;
}

const char *block_add_problem(const KernelUses *uses, const Stmt *copy, bool in_shared) {
    if (uses->problem && !empties_slot(uses, copy)) return uses->problem;
    if (tensor_uses(uses, copy_of(copy).dst->buf).but_additions > 0) return "its tensor is not only added to";
    const Buf *buf = in_shared ? copy_of(copy).src->buf : NULL;
    TileUses tile = buf ? uses_of(uses, buf) : (TileUses){0};
    return tile_problem(&tile, buf);
}

// Bulk copies and boxes would give the tile different layouts.
static bool is_moved_by_bulk(const Func *kernel, const Buf *tile) {
    FOR_EACH_STMT (stmt, &kernel->body)
        if (by_bulk(stmt) && stmt->kind == STMT_CALL && copy_tile(stmt)->buf == tile) return true;
    return false;
}

const char *tma_simple_problem(Arena *arena, const Target *target, const KernelUses *uses, const Stmt *copy,
                               const Stmt *loop) {
    bool away = is_shared_to_global_copy(copy);
    const Buf *tile = copy_tile(copy)->buf;
    if (copy->call.is_async) return "the source synchronizes it explicitly: write `copy` without `async`";
    const char *why = loop_problem(arena, uses, copy, loop);
    if (!why) why = away ? tma_store_problem(target, copy) : tma_load_problem(target, copy);
    if (why) return why;
    TileUses other = uses_of(uses, tile);
    why = away ? store_problem(arena, uses, copy) : load_problem(copy, &other);
    if (!why && is_moved_by_bulk(uses->kernel, tile))
        why = "bulk copies move its tile too: use one mechanism for a tile";
    if (!why) why = tile_problem(&other, tile);
    return why ? why : space_problem(uses, copy);
}

const char *block_bulk_problem(Arena *arena, const Target *target, const KernelUses *uses, const Facts *facts,
                               const Stmt *copy, const Stmt *loop) {
    const char *why = loop_problem(arena, uses, copy, loop);
    if (!why) why = bulk_problem(target, facts, copy);
    if (why || is_shared_to_global_copy(copy)) return why ? why : store_problem(arena, uses, copy);
    TileUses tile = uses_of(uses, copy_of(copy).dst->buf);
    why = load_problem(copy, &tile);
    return why ? why : space_problem(uses, copy);
}

// ---- cost ----

// An mma with operands in shared memory.
static bool is_product(const Target *target, const Stmt *stmt) {
    GemmOp gemm;
    if (!match_gemm(stmt, &gemm)) return false;
    if (gemm.a->buf->scope != SCOPE_SHARED || gemm.b->buf->scope != SCOPE_SHARED) return false;
    return gemm_mma(target, stmt) != NULL;
}

const char *tma_simple_cost(const Target *target, const Func *kernel, const Stmt *copy, const Stmt *loop) {
    int64_t least = LEAST_VECTORS * kernel_threads(kernel) * target->vector_bytes, work = 0;
    int products = 0;
    if (fills_handed_slot(kernel, copy)) return NULL;   // its role has nothing else to do meanwhile
    if (is_shared_to_global_copy(copy)) return "stores by threads are as fast: `@via(tma)` stores by TMA all the same";
    if (!loop)
        return "it is not in a `pipelined` loop, and there cp.async and loads have less latency: put it into one, or write `@via(tma)`";
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_global_to_shared_copy(stmt) || stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) continue;
        if (!is_product(target, stmt))
            return "its loop has statements other than copies and gemms, where cp.async is as fast: write `@via(tma)` to measure it";
        GemmOp gemm = gemm_of(stmt);
        work += region_extent(gemm.acc, 0) * region_extent(gemm.acc, 1) * region_extent(gemm.a, 1);
        products++;
    }
    if (products == 1)
        return "with cp.async its loop loads fragments ahead, which is faster: write `@via(tma)` to measure it";
    if (buf_slot_bytes(copy_of(copy).dst->buf) < least)
        return "cp.async needs only one instruction per thread for it: enlarge the tile, or write `@via(tma)`";
    return work < tma_facts.hidden_products
               ? "its gemms are too short to hide the latency of TMA: enlarge the tiles, or write `@via(tma)`"
               : NULL;
}
