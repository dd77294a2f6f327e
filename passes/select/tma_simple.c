// TMA copies in kernels without warp specialization: legality beyond the rules of TMA itself (tma.h), and cost.
//
//     memory     TMA is another proxy. The kernel must not write global memory that TMA reads, and must not access global memory that
//                TMA writes. A tile that TMA fills is filled by TMA only; threads only read it. (When tiles share storage insert-sync
//                adds a fence.)
//     waits      each start has its wait (insert_mbarriers.c places them), with a phase bit for each slot
//     order      the tile has a swizzle of TMA: good for access by rows and for MMA operands, with bank conflicts by columns
//     cost       a TMA copy is a few instructions of one thread and a wait of all threads; cp.async is one instruction per 16 bytes of a
//                thread, but has less latency. TMA pays in loops with several MMA products, which need the issue slots and are long
//                enough to hide the latency. A loop of one product loads fragments ahead with cp.async (lower_gemm_loop.c), which
//                gains more. `@via(tma)` in the source skips this estimate.
//
// Speed of TMA relative to cp.async on an H200:
//
//     gemm_swiglu, 2^20 multiply-adds an iteration    1.22
//     attention, head dim 128; 64                     1.05; 0.88
//     loops without products, straight-line code      0.71 to 0.97
#include "passes/select/tma_simple.h"
#include "passes/analysis/kernel_walk.h"
#include "passes/analysis/tile_loop.h"
#include "passes/analysis/util.h"
#include "passes/lower/lower_gemm.h"
#include "passes/pipeline/async_copy_legality.h"
#include "passes/select/bulk.h"
#include "passes/select/tma.h"
#include "passes/select/tma_reduce.h"

enum { LEAST_VECTORS = 2 };   // that each thread would copy otherwise

static bool names_threads(const Stmt *stmt, void *user) {
    (void)user;
    return stmt->kind == STMT_ROLE || stmt->kind == STMT_THREAD;
}

static const char *kernel_problem(const Func *kernel) {
    if (block_any(&kernel->body, names_threads, NULL)) return "the kernel uses thread indices";
    if (grid_blocks(func_grid(kernel)) > 1) return "a tile spans a cluster";
    return NULL;
}

// ---- what else is done with the tile ----

typedef struct Uses {
    Arena *arena;
    const Buf *tile;
    bool filled;    // by something else than copies from global memory
    bool across;    // read or written across its rows
    bool dynamic;   // in a way that does not show
} Uses;

static void use_by_loop(Uses *uses, const TileLoop *loop) {
    TileAccessVec accesses = {0};
    tile_accesses(uses->arena, loop, &accesses);
    int fast = loop_fast_dim(loop, &accesses);
    VEC_EACH (const TileAccess, access, &accesses) {
        if (access->buf != uses->tile) continue;
        uses->filled |= access->is_store;
        uses->dynamic |= access->is_peer;
        uses->across |= loop->rank > 0 && access_stride(access, loop->iters[fast]) == STRIDE_OTHER;
    }
}

static bool use_by(Visitor *visitor, Stmt *stmt) {
    Uses *uses = visitor->user;
    TileLoop loop;
    EffectVec effects = {0};
    if (stmt->kind == STMT_STORE) uses->filled |= stmt->store.buf == uses->tile;
    if (is_global_to_shared_copy(stmt) && stmt->call.args[1].region->buf == uses->tile) return false;
    if (is_call(stmt, OP_GEMM)) return false;
    if (tile_loop_of(uses->arena, stmt, &loop)) {
        use_by_loop(uses, &loop);
        return false;
    }
    if (stmt->kind != STMT_CALL) return true;
    stmt_effects(uses->arena, stmt, &effects);
    for (int i = 0; i < effects.count; i++) uses->dynamic |= effects.items[i].buf == uses->tile;
    return true;
}

static Uses uses_of(Arena *arena, const Func *kernel, const Buf *tile) {
    Uses uses = {.arena = arena, .tile = tile};
    Visitor visitor = {.stmt = use_by, .user = &uses};
    visit_block(&visitor, (Block *)&kernel->body);
    return uses;
}

static const char *tile_problem(const Uses *uses) {
    if (uses->dynamic) return "another operation fixes the layout of its tile";
    return uses->across ? "its tile is accessed by columns, which has bank conflicts with the TMA swizzles" : NULL;
}

// ---- loads ----

static const char *load_problem(const Stmt *copy, const Uses *uses) {
    if (copy->call.args[0].region->buf->mode != MODE_IN) return "the kernel writes the tensor that it copies from";
    return uses->filled ? "its tile is written by threads too" : NULL;
}

// ---- stores ----

typedef struct AddressUses {
    Arena *arena;
    const Stmt *copy;
    const Buf *tensor;
    bool adds;     // the copy is an addition: others may add, too, in any order
    int uses;      // of the tensor, by statements
    bool repeat;   // a loop around the copy goes to the same place again
} AddressUses;

static void find_address_uses(AddressUses *uses_, const Block *block, const Iter **loops, int depth) {
    enum { DEEPEST = 32 };
    FOR_EACH_ITEM (stmt, block) {
        Block *bodies[2];
        int count = stmt_bodies(stmt, bodies), inner = depth;
        bool leaf = count == 0 || is_loop(stmt, LOOP_PARALLEL);
        if (leaf) {
            EffectVec effects = {0};
            stmt_effects(uses_->arena, stmt, &effects);
            for (int e = 0; e < effects.count; e++) {
                bool adds = uses_->adds && is_addition(stmt) && effects.items[e].access == ACCESS_UPDATE;
                uses_->uses += effects.items[e].buf == uses_->tensor && !adds;
            }
            for (int l = 0; l < depth && stmt == uses_->copy; l++) {
                bool moves = false;
                const Region *to = stmt->call.args[1].region;
                for (int d = 0; loops[l] && d < to->count; d++)
                    moves |= expr_uses_var(to->dims[d].start, loops[l]->var);
                uses_->repeat |= !moves;
            }
            continue;
        }
        bool tiles = attr_get(stmt->attrs, ATTR_TILE_LOOP) != NULL;
        if (stmt->kind == STMT_WHILE && inner < DEEPEST) loops[inner++] = NULL;
        for (int l = 0; stmt->kind == STMT_FOR && !tiles && l < stmt->loop.count && inner < DEEPEST; l++)
            loops[inner++] = &stmt->loop.iters[l];
        for (int b = 0; b < count; b++) find_address_uses(uses_, bodies[b], loops, inner);
    }
}

static const char *store_problem(Arena *arena, const Func *kernel, const Stmt *copy) {
    AddressUses uses_ = {.arena = arena, .copy = copy, .tensor = copy->call.args[1].region->buf};
    const Iter *loops[32];
    find_address_uses(&uses_, &func_grid(kernel)->grid.body, loops, 0);
    if (uses_.uses != 1) return "its tensor is used elsewhere too";
    return uses_.repeat ? "it may write the same elements several times" : NULL;
}

const char *block_add_problem(Arena *arena, const Func *kernel, const Stmt *copy, bool in_shared) {
    const char *why = kernel_problem(kernel);
    if (why) return why;
    AddressUses uses_ = {.arena = arena, .copy = copy, .tensor = copy->call.args[1].region->buf, .adds = true};
    const Iter *loops[32];
    find_address_uses(&uses_, &func_grid(kernel)->grid.body, loops, 0);
    if (uses_.uses > 0) return "its tensor is not only added to";
    Uses uses = in_shared ? uses_of(arena, kernel, copy->call.args[0].region->buf) : (Uses){0};
    return tile_problem(&uses);
}

// Of a tile that boxes and rows would lay out differently.
static bool is_both(const Stmt *stmt, void *user) {
    const Buf *tile = user;
    return by_bulk(stmt) && stmt->kind == STMT_CALL &&
           stmt->call.args[is_shared_to_global_copy(stmt) ? 0 : 1].region->buf == tile;
}

const char *tma_simple_problem(Arena *arena, const Target *target, const Func *kernel, const Stmt *copy,
                               const Stmt *loop) {
    bool away = is_shared_to_global_copy(copy);
    Buf *tile = copy->call.args[away ? 0 : 1].region->buf;
    const char *why = kernel_problem(kernel);
    if (why) return why;
    if (copy->call.is_async) return "the source synchronizes it explicitly";
    if (loop && loop_stages(loop) >= type_bits(TYPE_I32)) return "its loop has 32 or more stages";
    if (away ? !tma_takes(target, copy, &why) : !tma_serves(target, copy, &why)) return why;
    Uses uses = uses_of(arena, kernel, tile);
    why = away ? store_problem(arena, kernel, copy) : load_problem(copy, &uses);
    if (!why && block_any(&kernel->body, is_both, tile)) why = "bulk copies move its tile too";
    return why ? why : tile_problem(&uses);
}

const char *block_bulk_problem(Arena *arena, const Target *target, const Func *kernel, const Facts *facts,
                               const Stmt *copy, const Stmt *loop) {
    bool away = is_shared_to_global_copy(copy);
    const char *why = kernel_problem(kernel);
    if (!why && loop && loop_stages(loop) >= type_bits(TYPE_I32)) why = "its loop has 32 or more stages";
    if (!why) why = bulk_problem(target, facts, copy);
    if (why) return why;
    Uses uses = uses_of(arena, kernel, copy->call.args[away ? 0 : 1].region->buf);
    return away ? store_problem(arena, kernel, copy) : load_problem(copy, &uses);
}

// ---- cost ----

// By mma, from shared memory.
static bool is_product(const Target *target, const Stmt *stmt) {
    if (stmt->kind != STMT_CALL || stmt->call.op != OP_GEMM) return false;
    const Buf *a = stmt->call.args[0].region->buf, *b = stmt->call.args[1].region->buf;
    if (a->scope != SCOPE_SHARED || b->scope != SCOPE_SHARED) return false;
    return mma_holding(target, gemm_type(stmt, 0), gemm_type(stmt, 1), gemm_type(stmt, 2)) != NULL;
}

const char *tma_simple_cost(const Target *target, const Func *kernel, const Stmt *copy, const Stmt *loop) {
    int64_t least = LEAST_VECTORS * kernel_threads(kernel) * target->vector_bytes, work = 0;
    int products = 0;
    if (is_shared_to_global_copy(copy)) return "stores by threads are as fast";
    if (!loop) return "it is not in a `pipelined` loop, and there cp.async and loads have less latency";
    FOR_EACH_ITEM (stmt, &loop->loop.body) {
        if (is_global_to_shared_copy(stmt) || stmt->kind == STMT_LET || stmt->kind == STMT_ASSUME) continue;
        if (!is_product(target, stmt))
            return "its loop has statements other than copies and gemms, where cp.async is as fast";
        const Region *a = stmt->call.args[0].region, *acc = stmt->call.args[2].region;
        work += region_extent(acc, 0) * region_extent(acc, 1) * region_extent(a, 1);
        products++;
    }
    if (products == 1) return "with cp.async its loop loads fragments ahead, which is faster";
    if (buf_slot_bytes(copy->call.args[1].region->buf) < least)
        return "cp.async needs only one instruction per thread for it";
    return work < tma_facts.hidden_products ? "its gemms are too short to hide the latency of TMA" : NULL;
}
